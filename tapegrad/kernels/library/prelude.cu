// In front of every library kernel.  The host defines: DATA_EACH 1 where every sample has data of its own, (d, N, B), and 0 where all
// share (d, N); MISSING 1 where the data hold nan; and the sizes of the model.

#define SAMPLES(s, B) for (long long s = (long long)blockIdx.x * blockDim.x + threadIdx.x, step_ = (long long)gridDim.x * blockDim.x; \
                           s < (B); s += step_)

// Row k of datum n of sample s, from `data`.
#if DATA_EACH
#define DATUM(k, n) data[((long long)(k) * N + (n)) * B + s]
#else
#define DATUM(k, n) data[(long long)(k) * N + (n)]
#endif

// So many terms are summed in `real` before their sum is added to one in double.
#define CHUNK 128

#define REJECTED (-1e308 * 1e308)  // the value, -inf, of a sample whose parameters are not valid; its derivatives are 0

static __device__ __forceinline__ bool is_finite(double x) { return x - x == 0.0; }

// The exponent of x without sign and fraction.
static __device__ __forceinline__ double power_of_two(double x) {
  union { double number; long long bits; } u;
  u.number = x;
  u.bits &= 0x7ff0000000000000LL;
  return u.number;
}
static __device__ __forceinline__ float power_of_two(float x) {
  union { float number; int bits; } u;
  u.number = x;
  u.bits &= 0x7f800000;
  return u.number;
}

// The log-likelihood from minus twice the sum of its terms, each but for log(2 pi) of `seen` numbers; `valid` is false afterwards where
// the gradient is to be 0.
static __device__ __forceinline__ real outcome(double total, double seen, bool& valid) {
  const real v = (real)(-0.5 * fma(seen, 1.8378770664093454836, total));
  const real out = valid && v == v ? v : (real)REJECTED;
  valid = valid && is_finite(v);
  return out;
}
