// CUDA C on the CPU.  Threads of a kernel without barriers are calls in a loop; with barriers each is a fiber, and a
// scheduler opens a barrier when all live threads wait at it.  All state is per host thread, so that launches may run at once.
#pragma once
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#define __CUDA_ON_HOST__ 1
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __restrict__ __restrict
#define __constant__ static
#define __shared__ static thread_local
#define __align__(n) __attribute__((aligned(n)))

struct uint3 { unsigned x, y, z; };
struct dim3 { unsigned x, y, z; dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {} };
static thread_local uint3 threadIdx, blockIdx;
static thread_local dim3 blockDim, gridDim;
static const int warpSize = 32;

namespace tapegrad_host {

template <class T> struct Pointee { static const bool pointer = false, constant = false; typedef T type; };
template <class T> struct Pointee<T*> { static const bool pointer = true, constant = false; typedef T type; };
template <class T> struct Pointee<const T*> { static const bool pointer = true, constant = true; typedef T type; };
template <class T> struct Pointee<T* __restrict> : Pointee<T*> {};
template <class T> struct Plain { typedef T type; };
template <class T> struct Plain<const T> { typedef T type; };
template <size_t... I> struct Indices {};
template <size_t n, size_t... I> struct Range : Range<n - 1, n - 1, I...> {};
template <size_t... I> struct Range<0, I...> { typedef Indices<I...> type; };

enum State { RUNNING, AT_BLOCK, AT_WARP, DONE };
struct Fiber { ucontext_t context; State state; unsigned flat; };
static const size_t STACK = 512 << 10;  // as much local memory as a thread of a device has
static thread_local Fiber* fibers;
static thread_local Fiber* current;
static thread_local ucontext_t scheduler;
static thread_local void (*body)(void*);
static thread_local void* argument;
static thread_local const char* error;
static thread_local uint64_t exchanged[1024], seed;
static thread_local int predicate[1024];
static thread_local char* dynamic_shared;
static thread_local char said[300];
static void failed(const char* text, int line) {
  snprintf(said, sizeof said, "the assertion `%s` in line %d failed", text, line);
  error = said;
}

static inline uint64_t random_number() { seed ^= seed << 13; seed ^= seed >> 7; seed ^= seed << 17; return seed; }
static inline uint3 thread_number(unsigned i) {
  return {i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y)};
}
static void wait(State s) {
  Fiber* f = current;
  f->state = s;
  swapcontext(&f->context, &scheduler);
  threadIdx = thread_number(f->flat);
}
static void begin() {
  body(argument);
  current->state = DONE;
  swapcontext(&current->context, &scheduler);
}
static void ordered(unsigned* order, unsigned n, int how) {
  for (unsigned i = 0; i < n; ++i) order[i] = how == 1 ? n - 1 - i : i;
  if (how > 1)
    for (unsigned i = n; i > 1; --i) { unsigned j = random_number() % i, k = order[i - 1]; order[i - 1] = order[j]; order[j] = k; }
}
// Whether a warp's barrier opened.
static bool open_warps(unsigned n, bool ran) {
  bool opened = false;
  for (unsigned w = 0; w < n; w += 32) {
    unsigned live = 0, waiting = 0, end = w + 32 < n ? w + 32 : n;
    for (unsigned i = w; i < end; ++i) live += fibers[i].state != DONE, waiting += fibers[i].state == AT_WARP;
    if (waiting && waiting == live) {
      for (unsigned i = w; i < end; ++i) if (fibers[i].state == AT_WARP) fibers[i].state = RUNNING;
      opened = true;
    } else if (waiting && !ran) {
      error = "a __sync warp function was reached by only a part of a warp";
    }
  }
  return opened;
}
static void run_block(unsigned n, const unsigned* order, char* stacks) {
  for (unsigned i = 0; i < n; ++i) {
    Fiber& f = fibers[i];
    f.flat = i;
    f.state = RUNNING;
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = stacks + i * STACK;
    f.context.uc_stack.ss_size = STACK;
    f.context.uc_link = &scheduler;
    makecontext(&f.context, begin, 0);
  }
  for (;;) {
    bool ran = false;
    for (unsigned q = 0; q < n; ++q) {
      Fiber& f = fibers[order[q]];
      if (f.state != RUNNING) continue;
      current = &f;
      threadIdx = thread_number(f.flat);
      swapcontext(&scheduler, &f.context);
      ran = true;
    }
    if (open_warps(n, ran)) continue;
    if (error) return;
    unsigned done = 0, waiting = 0;
    for (unsigned i = 0; i < n; ++i) done += fibers[i].state == DONE, waiting += fibers[i].state == AT_BLOCK;
    if (done == n) return;
    if (done + waiting < n) continue;
    if (done) { error = "__syncthreads() was reached by only a part of the block"; return; }
    for (unsigned i = 0; i < n; ++i) fibers[i].state = RUNNING;
  }
}

template <class... A> struct Call { void (*kernel)(A...); void** values; };
template <class... A, size_t... I> static void call(Call<A...>* c, Indices<I...>) {
  c->kernel(*(typename Plain<A>::type*)c->values[I]...);
}
template <class... A> static void invoke(void* p) { call((Call<A...>*)p, typename Range<sizeof...(A)>::type()); }

// `shape`: grid and block; blocks first .. first + count - 1 of the grid; `how`: 0 forwards, 1 backwards, more: shuffled.
template <class... A> static const char* launch(void (*kernel)(A...), const unsigned* shape, int barriers, int how, size_t shared,
                                                uint64_t first, uint64_t count, void** values) {
  gridDim = dim3(shape[0], shape[1], shape[2]);
  blockDim = dim3(shape[3], shape[4], shape[5]);
  seed = 88172645463325252ull + how;
  error = nullptr;
  Call<A...> c{kernel, values};
  body = invoke<A...>;
  argument = &c;
  unsigned n = blockDim.x * blockDim.y * blockDim.z;
  char* stacks = nullptr;
  if (barriers) {
    void* room = mmap(nullptr, n * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) return "no memory for the stacks of a block of threads";
    stacks = (char*)room;
  }
  unsigned* order = (unsigned*)malloc(n * sizeof(unsigned));
  fibers = barriers ? (Fiber*)calloc(n, sizeof(Fiber)) : nullptr;
  dynamic_shared = shared ? (char*)malloc(shared) : nullptr;
  for (uint64_t k = 0; k < count && !error; ++k) {
    uint64_t b = first + (how % 2 ? count - 1 - k : k);
    blockIdx = {(unsigned)(b % gridDim.x), (unsigned)(b / gridDim.x % gridDim.y), (unsigned)(b / ((uint64_t)gridDim.x * gridDim.y))};
    ordered(order, n, how);
    if (shared) memset(dynamic_shared, 0xCC, shared);  // what a block finds is not what another left
    if (barriers) { run_block(n, order, stacks); continue; }
    for (unsigned i = 0; i < n; ++i) { threadIdx = thread_number(order[i]); invoke<A...>(&c); }
  }
  free(order);
  if (stacks) munmap(stacks, n * STACK);
  free(fibers);
  free(dynamic_shared);
  return error;
}
template <class T> static void describe(int* o) {
  typedef typename Plain<typename Pointee<typename Plain<T>::type>::type>::type V;
  o[0] = Pointee<typename Plain<T>::type>::pointer;
  o[1] = Pointee<typename Plain<T>::type>::constant;
  o[2] = sizeof(V);
  o[3] = (V)0.5 != (V)0;
  o[4] = (V)-1 < (V)0;
}
template <class... A> static int signature(void (*)(A...), int* o) {
  int k = 0;
  int all[] = {0, (describe<A>(o + 5 * k++), 0)...};
  (void)all;
  return sizeof...(A);
}
template <class T> static T exchange(T v, int from) {
  static_assert(sizeof(T) <= 8, "a shuffled value has at most 8 bytes");
  unsigned me = current->flat;
  memcpy(&exchanged[me], &v, sizeof v);
  wait(AT_WARP);
  unsigned base = me & ~31u, n = blockDim.x * blockDim.y * blockDim.z;
  T r = v;
  if (from >= 0 && from < 32 && base + from < n) memcpy(&r, &exchanged[base + from], sizeof r);
  wait(AT_WARP);
  return r;
}
static inline int lane() { return current->flat & 31; }
static inline int vote(int p, int how) {  // how: 0 ballot, 1 block count
  unsigned me = current->flat, n = blockDim.x * blockDim.y * blockDim.z;
  State s = how ? AT_BLOCK : AT_WARP;
  predicate[me] = p != 0;
  wait(s);
  unsigned base = how ? 0 : me & ~31u, end = how ? n : (base + 32 < n ? base + 32 : n), r = 0;
  for (unsigned i = base; i < end; ++i) r = how ? r + predicate[i] : r | (unsigned)predicate[i] << (i - base);
  wait(s);
  return (int)r;
}
}  // namespace tapegrad_host

static inline void __syncthreads() { tapegrad_host::wait(tapegrad_host::AT_BLOCK); }
static inline int __syncthreads_count(int p) { return tapegrad_host::vote(p, 1); }
static inline int __syncthreads_or(int p) { return tapegrad_host::vote(p, 1) > 0; }
static inline int __syncthreads_and(int p) { return tapegrad_host::vote(!p, 1) == 0; }
static inline void __syncwarp(unsigned = 0xffffffffu) { tapegrad_host::wait(tapegrad_host::AT_WARP); }
static inline unsigned __ballot_sync(unsigned, int p) { return (unsigned)tapegrad_host::vote(p, 0); }
static inline int __any_sync(unsigned, int p) { return tapegrad_host::vote(p, 0) != 0; }
static inline int __all_sync(unsigned, int p) { return tapegrad_host::vote(!p, 0) == 0; }
#undef assert
#define assert(x) ((x) ? (void)0 : tapegrad_host::failed(#x, __LINE__))
static inline void __threadfence() {}
static inline void __threadfence_block() {}
template <class T> static T __shfl_sync(unsigned, T v, int s, int w = 32) {
  return tapegrad_host::exchange(v, (tapegrad_host::lane() & ~(w - 1)) + (s & (w - 1)));
}
template <class T> static T __shfl_down_sync(unsigned, T v, unsigned d, int w = 32) {
  int me = tapegrad_host::lane(), s = (me & (w - 1)) + (int)d;
  return tapegrad_host::exchange(v, s < w ? me + (int)d : -1);
}
template <class T> static T __shfl_up_sync(unsigned, T v, unsigned d, int w = 32) {
  int me = tapegrad_host::lane(), s = (me & (w - 1)) - (int)d;
  return tapegrad_host::exchange(v, s >= 0 ? me - (int)d : -1);
}
template <class T> static T __shfl_xor_sync(unsigned, T v, int m, int w = 32) {
  int me = tapegrad_host::lane(), s = me ^ m;
  return tapegrad_host::exchange(v, s < (me & ~(w - 1)) + w ? s : -1);
}
template <class T> static T atomicAdd(T* p, T v) { T old = *p; *p = old + v; return old; }
template <class T> static T atomicSub(T* p, T v) { T old = *p; *p = old - v; return old; }
template <class T> static T atomicExch(T* p, T v) { T old = *p; *p = v; return old; }
template <class T> static T atomicMax(T* p, T v) { T old = *p; if (v > old) *p = v; return old; }
template <class T> static T atomicMin(T* p, T v) { T old = *p; if (v < old) *p = v; return old; }
template <class T> static T atomicCAS(T* p, T c, T v) { T old = *p; if (old == c) *p = v; return old; }
template <class T> static T __ldg(const T* p) { return *p; }
#define TAPEGRAD_MIN_MAX(T) \
  static inline T min(T a, T b) { return b < a ? b : a; } static inline T max(T a, T b) { return a < b ? b : a; }
TAPEGRAD_MIN_MAX(int) TAPEGRAD_MIN_MAX(unsigned) TAPEGRAD_MIN_MAX(long) TAPEGRAD_MIN_MAX(unsigned long)
TAPEGRAD_MIN_MAX(long long) TAPEGRAD_MIN_MAX(unsigned long long)
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
// a C library of C23 declares these names
#define rsqrt cuda_rsqrt
#define rsqrtf cuda_rsqrtf
#define sinpi cuda_sinpi
#define cospi cuda_cospi
#define sinpif cuda_sinpif
#define cospif cuda_cospif
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float rsqrt(float x) { return 1.0f / sqrtf(x); }
static inline float rcbrtf(float x) { return 1.0f / cbrtf(x); }
static inline double rcbrt(double x) { return 1.0 / cbrt(x); }
static inline double sinpi(double x) { return sin(3.14159265358979323846 * fmod(x, 2.0)); }
static inline double cospi(double x) { return cos(3.14159265358979323846 * fmod(x, 2.0)); }
static inline float sinpif(float x) { return (float)sinpi((double)x); }
static inline float cospif(float x) { return (float)cospi((double)x); }
static inline double normcdf(double x) { return 0.5 * erfc(-0.70710678118654752440 * x); }
static inline float normcdff(float x) { return (float)normcdf((double)x); }
static inline float fdividef(float a, float b) { return a / b; }
static inline float __fdividef(float a, float b) { return a / b; }
#define __expf expf
#define __logf logf
#define __sinf sinf
#define __cosf cosf
#define __powf powf
#define __tanf tanf
#define __exp10f exp10f
#define __log2f log2f
#define __log10f log10f
static inline float saturate(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }
static inline float __saturatef(float x) { return saturate(x); }
static inline double __longlong_as_double(long long x) { double r; memcpy(&r, &x, 8); return r; }
static inline long long __double_as_longlong(double x) { long long r; memcpy(&r, &x, 8); return r; }
static inline float __int_as_float(int x) { float r; memcpy(&r, &x, 4); return r; }
static inline int __float_as_int(float x) { int r; memcpy(&r, &x, 4); return r; }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double __dsqrt_rn(double x) { return sqrt(x); }
static inline double __ddiv_rn(double a, double b) { return a / b; }
static inline double __drcp_rn(double x) { return 1.0 / x; }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }

#define TAPEGRAD_EXPORT(kernel)                                                                                              \
  extern "C" const char* tapegrad_launch(const unsigned* shape, int barriers, int how, size_t shared, uint64_t first,        \
                                         uint64_t count, void** values) {                                                    \
    return tapegrad_host::launch(kernel, shape, barriers, how, shared, first, count, values);                                \
  }                                                                                                                          \
  extern "C" int tapegrad_signature(int* o) { return tapegrad_host::signature(kernel, o); }
