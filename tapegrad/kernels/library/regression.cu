// Regression with the canonical link: eta = x . b for the K coefficients b (theta) and the K first rows x of a datum; y is its next row.
//
//     Poisson     y eta - exp(eta) - log(y!)            the row after y holds log(y!)
//     logistic    y eta - log(1 + exp(eta))
//
// d/db = sum over data of (y - mean) x, the mean being exp(eta) or 1 / (1 + exp(-eta)).

struct Term {
  real value, residual;
};

static __device__ __forceinline__ Term poisson_term(real eta, real y, real log_factorial) {
  const real mean = own_exp(eta);
  return {y * eta - mean - log_factorial, y - mean};
}

static __device__ __forceinline__ Term logistic_term(real eta, real y) {
  const real t = own_exp(eta > 0 ? -eta : eta), above = eta > 0 ? eta : (real)0;
  return {y * eta - above - own_log1p(t), y - (eta > 0 ? (real)1 : t) / (1 + t)};
}

template <bool GRADIENT, bool LOGISTIC>
static __device__ __forceinline__ void regression(const real* theta, const real* data, real* value, real* gradient, long long B, long long N) {
  SAMPLES(s, B) {
    real b[K];
    double total = 0, slopes[K];
    for (int k = 0; k < K; ++k) {
      b[k] = theta[k * B + s];
      slopes[k] = 0;
    }
    for (long long begin = 0; begin < N; begin += CHUNK) {
      const long long end = begin + CHUNK < N ? begin + CHUNK : N;
      real some = 0, slope[K] = {};
      for (long long n = begin; n < end; ++n) {
#if MISSING
        bool here = true;
        for (int k = 0; k < K + 2 - LOGISTIC; ++k) here = here && DATUM(k, n) == DATUM(k, n);
        if (!here) continue;
#endif
        real eta = 0;
        for (int k = 0; k < K; ++k) eta = fma(DATUM(k, n), b[k], eta);
        const real y = DATUM(K, n);
        const Term t = LOGISTIC ? logistic_term(eta, y) : poisson_term(eta, y, DATUM(K + 1 - LOGISTIC, n));
        some += t.value;
        if (GRADIENT) for (int k = 0; k < K; ++k) slope[k] = fma(DATUM(k, n), t.residual, slope[k]);
      }
      total += some;
      for (int k = 0; k < K; ++k) slopes[k] += slope[k];
    }
    const bool valid = is_finite(total);
    value[s] = valid ? total : REJECTED;
    if (GRADIENT) for (int k = 0; k < K; ++k) gradient[k * B + s] = valid ? slopes[k] : 0;
  }
}

extern "C" __global__ void poisson_value(const real* theta, const real* data, real* value, long long B, long long N) {
  regression<false, false>(theta, data, value, 0, B, N);
}

extern "C" __global__ void poisson_value_and_grad(const real* theta, const real* data, real* value, real* gradient, long long B, long long N) {
  regression<true, false>(theta, data, value, gradient, B, N);
}

extern "C" __global__ void logistic_value(const real* theta, const real* data, real* value, long long B, long long N) {
  regression<false, true>(theta, data, value, 0, B, N);
}

extern "C" __global__ void logistic_value_and_grad(const real* theta, const real* data, real* value, real* gradient, long long B, long long N) {
  regression<true, true>(theta, data, value, gradient, B, N);
}
