// Student's t: the sum over data of log density at x, of location m, scale s and v degrees of freedom.  theta: m, s, v.
//
//     log density = h(v / 2) - log(2 pi) / 2 - log s - (v + 1) / 2 log(1 + u),   u = z^2 / v,  z = (x - m) / s
//     h(a) = log Gamma(a + 1/2) - log Gamma(a) - log(a) / 2
//
// h in place of two log Gammas keeps its digits for large v.  From the sums of log(1 + u), of u / (1 + u) and of z / (1 + u):
//
//     d/dm = (v + 1) / (v s) sum z / (1 + u)             d/ds = ((v + 1) sum u / (1 + u) - n) / s
//     d/dv = n h'(v / 2) / 2 - (sum log(1 + u)) / 2 + (v + 1) / (2 v) sum u / (1 + u)

#define HALF_LOG_2_PI 0.91893853320467274178

// h and its derivative.  The recurrence h(a) = h(a + 1) + log(a (a + 1) / (a + 1/2)^2) / 2 up to 10; above it the asymptotic series
// of a ratio of Gamma functions (Tricomi and Erdelyi 1951, Pacific J. Math. 1; DLMF 5.11.13), whose error is below 1e-16.
static __device__ void gamma_ratio(double a, double* h, double* dh) {
  double product = 1, more = 0;
  while (a < 10) {
    const double middle = a + 0.5, both = a * (a + 1);
    product *= both / (middle * middle);
    more += 0.25 / (both * middle);
    a += 1;
  }
  const double r = 1 / a, w = r * r;
  *h = 0.5 * own_log(product) +
       r * (-1. / 8 + w * (1. / 192 + w * (-1. / 640 + w * (17. / 14336 + w * (-31. / 18432 + w * (691. / 180224 + w * (-5461. / 425984)))))));
  *dh = more + w * (1. / 8 + w * (-1. / 64 + w * (1. / 128 + w * (-17. / 2048 + w * (31. / 2048 + w * (-691. / 16384 + w * (5461. / 32768)))))));
}

template <bool GRADIENT>
static __device__ __forceinline__ void student_t(const real* theta, const real* data, real* value, real* gradient, long long B, long long N) {
  SAMPLES(s, B) {
    const double location = theta[s], scale = theta[B + s], df = theta[2 * B + s];
    const real mean = theta[s], inverse = 1 / theta[B + s], over = 1 / theta[2 * B + s];
    double logs = 0, parts = 0, means = 0;
    long long seen = N;
    for (long long begin = 0; begin < N; begin += CHUNK) {
      const long long end = begin + CHUNK < N ? begin + CHUNK : N;
      real some_logs = 0, some_parts = 0, some_means = 0;
      for (long long n = begin; n < end; ++n) {
        const real x = DATUM(0, n);
#if MISSING
        if (x != x) {
          --seen;
          continue;
        }
#endif
        const real z = (x - mean) * inverse, u = z * z * over;
        some_logs += own_log1p(u);
        if (GRADIENT) {
          const real q = 1 / (1 + u);
          some_parts += u * q;
          some_means += z * q;
        }
      }
      logs += some_logs;
      parts += some_parts;
      means += some_means;
    }
    double h, dh;
    gamma_ratio(df > 0 ? 0.5 * df : 1, &h, &dh);
    const double total = seen * (h - HALF_LOG_2_PI - own_log(scale)) - 0.5 * (df + 1) * logs;
    const bool valid = scale > 0 && df > 0 && is_finite(location) && is_finite(total);
    value[s] = valid ? total : REJECTED;
    if (GRADIENT) {
      gradient[s] = valid ? (df + 1) * means / (df * scale) : 0;
      gradient[B + s] = valid ? ((df + 1) * parts - seen) / scale : 0;
      gradient[2 * B + s] = valid ? 0.5 * (seen * dh - logs + (df + 1) * parts / df) : 0;
    }
  }
}

extern "C" __global__ void student_t_value(const real* theta, const real* data, real* value, long long B, long long N) {
  student_t<false>(theta, data, value, 0, B, N);
}

extern "C" __global__ void student_t_value_and_grad(const real* theta, const real* data, real* value, real* gradient, long long B, long long N) {
  student_t<true>(theta, data, value, gradient, B, N);
}
