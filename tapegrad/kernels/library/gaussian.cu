// Independent Gaussians: the sum over data n and components k of  -z^2 / 2 - log s_k - log(2 pi) / 2,  z = (x_kn - m_k) / s_k.
// theta: D means m, then D scales s.
//
// With e = c (x - m), where c is 1, or a power of two near 1 / s if s is so large or small that e^2 might overflow or vanish, a term
// takes one fma, m c being exact, and no division.  From the sums of e and of e^2, with r = 1 / (s c) and z = r e:
//
//     value = -(sum z^2) / 2 - n (log s + log(2 pi) / 2)        d/dm = (sum z) / s        d/ds = (sum z^2 - n) / s

#define HALF_LOG_2_PI 0.91893853320467274178
#define MOST (sizeof(real) == 8 ? (real)2.2471164185778949e307 : (real)4.2535295865117308e37)  // 2^1021, 2^125: c of smaller scales
#define LARGE 1.1579208923731620e77      // 2^256: the bound of products of scales

// The largest scale, and the inverse of the smallest, for which c is 1: 2^256 or 2^20.
static __device__ __forceinline__ bool is_plain(double s) { return s <= LARGE && s >= 1 / LARGE; }
static __device__ __forceinline__ bool is_plain(float s) { return s <= 1048576.0f && s >= 1 / 1048576.0f; }

template <bool GRADIENT>
static __device__ __forceinline__ void gaussian(const real* theta, const real* data, real* value, real* gradient, long long B, long long N) {
  SAMPLES(s, B) {
    real c[D], mc[D];
    double sums[D], squares[D];
    for (int k = 0; k < D; ++k) {
      const real scale = theta[(D + k) * B + s];
      c[k] = is_plain(scale) ? (real)1 : power_of_two(fmin(1 / scale, MOST));
      mc[k] = -theta[k * B + s] * c[k];
      sums[k] = squares[k] = 0;
    }
    long long seen = N;
    for (long long begin = 0; begin < N; begin += CHUNK) {
      const long long end = begin + CHUNK < N ? begin + CHUNK : N;
      real sum[D] = {}, square[D] = {};
      for (long long n = begin; n < end; ++n) {
#if MISSING
        bool here = true;
        for (int k = 0; k < D; ++k) here = here && DATUM(k, n) == DATUM(k, n);
        if (!here) {
          --seen;
          continue;
        }
#endif
        for (int k = 0; k < D; ++k) {
          const real e = fma(DATUM(k, n), c[k], mc[k]);
          if (GRADIENT) sum[k] += e;
          square[k] = fma(e, e, square[k]);
        }
      }
      for (int k = 0; k < D; ++k) {
        if (GRADIENT) sums[k] += sum[k];
        squares[k] += square[k];
      }
    }
    double total = 0, logs = 0, product = 1;
    bool valid = true;
    for (int k = 0; k < D; ++k) {
      const double scale = theta[(D + k) * B + s], r = 1 / (scale * c[k]);
      squares[k] *= r * r;
      sums[k] *= r;
      total += squares[k];
      valid = valid && scale > 0;
      product *= is_plain(scale) ? scale : 1;
      if (!is_plain(scale)) logs += own_log(scale);
      if (!is_plain(product) || k == D - 1) {
        logs += own_log(product);
        product = 1;
      }
    }
    total = -0.5 * total - seen * (logs + D * HALF_LOG_2_PI);
    valid = valid && is_finite(total);
    value[s] = valid ? total : REJECTED;
    if (GRADIENT) {
      for (int k = 0; k < D; ++k) {
        const double scale = theta[(D + k) * B + s];
        gradient[k * B + s] = valid ? sums[k] / scale : 0;
        gradient[(D + k) * B + s] = valid ? (squares[k] - seen) / scale : 0;
      }
    }
  }
}

extern "C" __global__ void gaussian_value(const real* theta, const real* data, real* value, long long B, long long N) {
  gaussian<false>(theta, data, value, 0, B, N);
}

extern "C" __global__ void gaussian_value_and_grad(const real* theta, const real* data, real* value, real* gradient, long long B, long long N) {
  gaussian<true>(theta, data, value, gradient, B, N);
}
