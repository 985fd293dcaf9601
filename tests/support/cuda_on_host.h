// CUDA C on the CPU: the threads of a launch run one after the other, forwards, backwards or shuffled.
//
// For kernels without barriers and shared memory, as the generated ones are.  HOST_KERNEL(k) exports k__launch, which unpacks
// void** as cuLaunchKernel does, and k__signature, the kinds and sizes of the parameters as the compiler sees them.
#pragma once
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <type_traits>
#include <utility>

// the functions of <cmath> by hand: the header would take half of the time of a compilation
#define FUNCTION1(name)                                                  \
  static inline double name(double x) { return __builtin_##name(x); }    \
  static inline float name##f(float x) { return __builtin_##name##f(x); }
#define FUNCTION2(name)                                                                    \
  static inline double name(double x, double y) { return __builtin_##name(x, y); }         \
  static inline float name##f(float x, float y) { return __builtin_##name##f(x, y); }
FUNCTION1(fabs)
FUNCTION1(floor)
FUNCTION1(ceil)
FUNCTION1(trunc)
FUNCTION1(rint)
FUNCTION1(sqrt)
FUNCTION1(sin)
FUNCTION1(cos)
FUNCTION2(fmin)
FUNCTION2(fmax)
static inline double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
static inline float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }

#define __global__
#define __device__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __restrict__ __restrict

struct uint3 { unsigned x, y, z; };
static uint3 threadIdx, blockIdx, blockDim, gridDim;

template <class T> static T atomicMax(T* p, T v) {
  T old = *p;
  if (v > old) *p = v;
  return old;
}

namespace host {

// bits 0..7: size of the parameter, or of what it points to; 8: floating point; 9: pointer; 10: pointer to const
template <class T> constexpr int kind() {
  using P = typename std::remove_pointer<T>::type;
  using V = typename std::remove_cv<P>::type;
  return (int)sizeof(V) | std::is_floating_point<V>::value << 8 | std::is_pointer<T>::value << 9 | std::is_const<P>::value << 10;
}

template <class... A> int signature(void (*)(A...), int* out) {
  const int found[] = {kind<A>()..., 0};
  memcpy(out, found, sizeof...(A) * sizeof(int));
  return sizeof...(A);
}

template <class... A, size_t... I> void call(void (*f)(A...), void** a, std::index_sequence<I...>) {
  f(*(typename std::remove_reference<A>::type*)a[I]...);
}

// `order`: 0 forwards, 1 backwards, else the seed of a shuffle of all threads of all blocks; of these the last `last` run
template <class... A> const char* launch(void (*f)(A...), const unsigned* shape, unsigned order, uint64_t last, void** arguments) {
  gridDim = {shape[0], shape[1], shape[2]};
  blockDim = {shape[3], shape[4], shape[5]};
  const uint64_t threads = (uint64_t)blockDim.x * blockDim.y * blockDim.z, blocks = (uint64_t)gridDim.x * gridDim.y * gridDim.z;
  if (!threads || !blocks) return "an empty grid or block";
  if (threads > 1024) return "more than 1024 threads in a block";
  if (gridDim.x > 2147483647u || gridDim.y > 65535 || gridDim.z > 65535) return "a grid of too many blocks";
  const uint64_t all = blocks * threads;
  uint64_t* const turn = order > 1 ? (uint64_t*)malloc(all * sizeof(uint64_t)) : nullptr;
  if (turn) {
    uint64_t random = 0x9e3779b97f4a7c15ull * order;
    for (uint64_t i = 0; i < all; ++i) turn[i] = i;
    for (uint64_t i = all; i > 1; --i) {
      random ^= random << 13; random ^= random >> 7; random ^= random << 17;
      std::swap(turn[i - 1], turn[random % i]);
    }
  }
  for (uint64_t i = all - (last < all ? last : all); i < all; ++i) {
    const uint64_t n = order == 0 ? i : order == 1 ? all - 1 - i : turn[i], b = n / threads, t = n % threads;
    blockIdx = {(unsigned)(b % gridDim.x), (unsigned)(b / gridDim.x % gridDim.y), (unsigned)(b / gridDim.x / gridDim.y)};
    threadIdx = {(unsigned)(t % blockDim.x), (unsigned)(t / blockDim.x % blockDim.y), (unsigned)(t / blockDim.x / blockDim.y)};
    call(f, arguments, std::index_sequence_for<A...>{});
  }
  free(turn);
  return nullptr;
}

}  // namespace host

#define HOST_KERNEL(k)                                                                           \
  extern "C" const char* k##__launch(const unsigned* s, unsigned order, uint64_t last, void** a) { \
    return host::launch(k, s, order, last, a);                                                   \
  }                                                                                              \
  extern "C" int k##__signature(int* out) { return host::signature(k, out); }
