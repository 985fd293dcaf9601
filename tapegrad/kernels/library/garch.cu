// Log-likelihood of a GARCH(1, 1) model, and its gradient.  theta: mu, omega, alpha, beta; see garch.py.
//
// One sample a thread.  With h the variance of y and e = y - mu:   h' = omega + alpha e^2 + beta h,   where y is nan e^2 = h, its mean.
// The reverse sweep reads the stored h.

#define PARAMETERS                                                                              \
  const real mu = theta[s], omega = theta[B + s], alpha = theta[2 * B + s], beta = theta[3 * B + s]; \
  const real rest = 1 - alpha - beta, start = omega / rest;                                     \
  bool valid = mu - mu == 0 && omega > 0 && alpha >= 0 && beta >= 0 && rest > 0;                \
  double total = 0, seen = 0;                                                                   \
  real h = start;

#define STEP(t)                                                \
  {                                                            \
    const real y = DATUM(0, t), e = y - mu;                    \
    const bool here = e == e;                                  \
    total += here ? (double)fma(e, e / h, own_log(h)) : 0.0;   \
    seen += here;                                              \
    h = fma(alpha, here ? e * e : h, fma(beta, h, omega));     \
  }

extern "C" __global__ void garch_value(const real* theta, const real* data, real* value, long long B, long long N) {
  SAMPLES(s, B) {
    PARAMETERS
    for (long long t = 0; t < N; ++t) STEP(t)
    value[s] = outcome(total, seen, valid);
  }
}

extern "C" __global__ void garch_value_and_grad(const real* theta, const real* data, real* value, real* gradient, real* tape, long long B,
                                                long long N) {
  const long long slots = gridDim.x * (long long)blockDim.x, slot = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  SAMPLES(s, B) {
    PARAMETERS
    for (long long t = 0; t < N; ++t) {
      tape[t * slots + slot] = h;
      STEP(t)
    }
    value[s] = outcome(total, seen, valid);

    double sums[4] = {};
    real mu_bar = 0, omega_bar = 0, alpha_bar = 0, beta_bar = 0, h_bar = 0;
    for (long long t = N - 1; t >= 0; --t) {
      const real y = DATUM(0, t), e = y - mu;
      const bool here = e == e;
      h = tape[t * slots + slot];
      const real inverse = 1 / h, z = e * inverse;
      mu_bar = mu_bar + (here ? fma(-2 * alpha * e, h_bar, z) : (real)0);
      omega_bar = omega_bar + h_bar;
      alpha_bar = fma(h_bar, here ? e * e : h, alpha_bar);
      beta_bar = fma(h_bar, h, beta_bar);
      h_bar = here ? fma(beta, h_bar, (real)0.5 * fma(z, z, -inverse)) : (alpha + beta) * h_bar;
      if (t % CHUNK == 0) {
        sums[0] += mu_bar;
        sums[1] += omega_bar;
        sums[2] += alpha_bar;
        sums[3] += beta_bar;
        mu_bar = omega_bar = alpha_bar = beta_bar = 0;
      }
    }
    const real slope = h_bar / rest, slope_start = slope * start;  // by omega at the start, and by alpha and beta
    gradient[s] = valid ? (real)sums[0] : (real)0;
    gradient[B + s] = valid ? (real)(sums[1] + slope) : (real)0;
    gradient[2 * B + s] = valid ? (real)(sums[2] + slope_start) : (real)0;
    gradient[3 * B + s] = valid ? (real)(sums[3] + slope_start) : (real)0;
  }
}
