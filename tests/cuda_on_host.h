// CUDA C on the CPU: the threads of a launch run one after the other, forwards, backwards or shuffled.
//
// For kernels without barriers and shared memory, as the generated ones are.  HOST_KERNEL(k) exports k__launch, which unpacks
// void** as cuLaunchKernel does, and k__signature, the kinds and sizes of the parameters as the compiler sees them.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>
using std::fabs; using std::floor; using std::fma; using std::fmax; using std::fmin; using std::sqrt;

#define __global__
#define __device__
#define __forceinline__ inline
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
  std::copy(found, found + sizeof...(A), out);
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
  std::vector<uint64_t> turn;
  if (order > 1) {
    uint64_t random = 0x9e3779b97f4a7c15ull * order;
    for (uint64_t i = 0; i < blocks * threads; ++i) turn.push_back(i);
    for (uint64_t i = turn.size(); i > 1; --i) {
      random ^= random << 13; random ^= random >> 7; random ^= random << 17;
      std::swap(turn[i - 1], turn[random % i]);
    }
  }
  for (uint64_t i = blocks * threads - std::min(last, blocks * threads); i < blocks * threads; ++i) {
    const uint64_t n = order == 0 ? i : order == 1 ? blocks * threads - 1 - i : turn[i], b = n / threads, t = n % threads;
    blockIdx = {(unsigned)(b % gridDim.x), (unsigned)(b / gridDim.x % gridDim.y), (unsigned)(b / gridDim.x / gridDim.y)};
    threadIdx = {(unsigned)(t % blockDim.x), (unsigned)(t / blockDim.x % blockDim.y), (unsigned)(t / blockDim.x / blockDim.y)};
    call(f, arguments, std::index_sequence_for<A...>{});
  }
  return nullptr;
}

}  // namespace host

#define HOST_KERNEL(k)                                                                           \
  extern "C" const char* k##__launch(const unsigned* s, unsigned order, uint64_t last, void** a) { \
    return host::launch(k, s, order, last, a);                                                   \
  }                                                                                              \
  extern "C" int k##__signature(int* out) { return host::signature(k, out); }
