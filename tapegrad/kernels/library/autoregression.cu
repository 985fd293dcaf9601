// Exact log-likelihood of a stationary autoregression of order P, and its gradient.  theta: mu, phi_1 .. phi_P, the variance of the
// innovations; see autoregression.py.
//
// One sample a thread.  With x = y - mu, the datum t < P is predicted from the t before it by the best predictor of that order.  These
// follow from phi by the steps of Levinson and Durbin backwards, with k = a_n[n]:
//
//     a_(n-1)[j] = (a_n[j] + k a_n[n - j]) / (1 - k^2)      v_(n-1) = v_n / (1 - k^2)      a_P = phi, v_P = variance
//
// where the model is stationary if all |k| < 1.  From t = P on all errors e = x[t] - sum phi_j x[t - j] have the same variance: their sums
// are all that the gradient needs, so nothing is stored.  Element j of a_n stands at ORDER(n) + j - 1.

#define ORDER(n) ((n) * ((n) - 1) / 2)
#define EACH(i, from, n) _Pragma("unroll") for (int i = (from); i < (n); ++i)

struct Predictors {
  real a[ORDER(P + 1)], v[P + 1], rest[P + 1];
  bool valid;
};

static __device__ __forceinline__ Predictors predictors(const real* theta, long long B, long long s) {
  Predictors x;
  EACH(j, 0, P) x.a[ORDER(P) + j] = theta[(j + 1) * B + s];
  x.v[P] = theta[(P + 1) * B + s];
  x.valid = x.v[P] > 0 && theta[s] - theta[s] == 0;
  EACH(i, 0, P) {
    const int n = P - i;
    const real k = x.a[ORDER(n) + n - 1];
    x.rest[n] = 1 - k * k;
    x.valid = x.valid && x.rest[n] > 0;
    EACH(j, 1, n) x.a[ORDER(n - 1) + j - 1] = (x.a[ORDER(n) + j - 1] + k * x.a[ORDER(n) + n - j - 1]) / x.rest[n];
    x.v[n - 1] = x.v[n] / x.rest[n];
  }
  return x;
}

// From the cotangents of all predictors and variances to those of phi and the variance of the innovations.
static __device__ __forceinline__ void predictors_adjoint(const Predictors& x, real (&a_bar)[ORDER(P + 1)], real (&v_bar)[P + 1]) {
  EACH(n, 1, P + 1) {
    const real k = x.a[ORDER(n) + n - 1];
    real k_bar = 0, rest_bar = -(v_bar[n - 1] * x.v[n - 1]);
    v_bar[n] = v_bar[n] + v_bar[n - 1] / x.rest[n];
    EACH(j, 1, n) {
      const real b = a_bar[ORDER(n - 1) + j - 1];
      a_bar[ORDER(n) + j - 1] = a_bar[ORDER(n) + j - 1] + b / x.rest[n];
      a_bar[ORDER(n) + n - j - 1] = a_bar[ORDER(n) + n - j - 1] + k * b / x.rest[n];
      k_bar = k_bar + b * x.a[ORDER(n) + n - j - 1];
      rest_bar = rest_bar - b * x.a[ORDER(n - 1) + j - 1];
    }
    a_bar[ORDER(n) + n - 1] = a_bar[ORDER(n) + n - 1] + (k_bar - 2 * k * rest_bar) / x.rest[n];
  }
}

// The data before datum t: lag[j] = x[t - 1 - j].  Returns the error of the predictor of order n.
template <int n> static __device__ __forceinline__ real error(const Predictors& x, const real (&lag)[P], real now) {
  EACH(j, 0, n) now = fma(-x.a[ORDER(n) + j], lag[j], now);
  return now;
}

static __device__ __forceinline__ void shift(real (&lag)[P], real now) {
  EACH(j, 1, P) lag[P - j] = lag[P - j - 1];
  lag[0] = now;
}

// The data before datum P, each with its own predictor.
template <int n> struct Beginning {
  static __device__ __forceinline__ void run(const Predictors& x, const real* data, real mu, real (&lag)[P], double& total, long long s,
                                             long long B, long long N, bool back, real (&a_bar)[ORDER(P + 1)], real (&v_bar)[P + 1],
                                             double& mu_bar) {
    Beginning<n - 1>::run(x, data, mu, lag, total, s, B, N, back, a_bar, v_bar, mu_bar);
    if (n - 1 >= N) return;
    const real now = DATUM(0, n - 1) - mu, e = error<n - 1>(x, lag, now), z = e / x.v[n - 1];
    total += (double)fma(e, z, own_log(x.v[n - 1]));
    if (back) {
      real slope = 1;
      EACH(j, 0, n - 1) {
        slope = slope - x.a[ORDER(n - 1) + j];
        a_bar[ORDER(n - 1) + j] = z * lag[j];
      }
      mu_bar += (double)(z * slope);
      v_bar[n - 1] = (real)0.5 * fma(z, z, -1 / x.v[n - 1]);
    }
    shift(lag, now);
  }
};
template <> struct Beginning<0> {
  static __device__ __forceinline__ void run(const Predictors&, const real*, real, real (&)[P], double&, long long, long long, long long,
                                             bool, real (&)[ORDER(P + 1)], real (&)[P + 1], double&) {}
};

static __device__ __forceinline__ real exact(const Predictors& x, double total, double squares, long long N, bool& valid) {
  const double v = x.v[P], rest = N > P ? (double)(N - P) : 0.0;
  const real out = (real)(-0.5 * (total + rest * own_log(v) + squares / v + N * 1.8378770664093454836));
  valid = x.valid && is_finite(out);
  return x.valid && out == out ? out : (real)REJECTED;
}

extern "C" __global__ void autoregression_value(const real* theta, const real* data, real* value, long long B, long long N) {
  SAMPLES(s, B) {
    const Predictors x = predictors(theta, B, s);
    const real mu = theta[s];
    real lag[P] = {}, a_bar[ORDER(P + 1)], v_bar[P + 1], square = 0;
    double total = 0, squares = 0, none = 0;
    Beginning<P>::run(x, data, mu, lag, total, s, B, N, false, a_bar, v_bar, none);
    for (long long t = P; t < N; ++t) {
      const real now = DATUM(0, t) - mu, e = error<P>(x, lag, now);
      square = fma(e, e, square);
      shift(lag, now);
      if ((t - P + 1) % CHUNK == 0 || t + 1 == N) {
        squares += square;
        square = 0;
      }
    }
    bool valid;
    value[s] = exact(x, total, squares, N, valid);
  }
}

extern "C" __global__ void autoregression_value_and_grad(const real* theta, const real* data, real* value, real* gradient, long long B,
                                                         long long N) {
  SAMPLES(s, B) {
    const Predictors x = predictors(theta, B, s);
    const real mu = theta[s];
    real lag[P] = {}, a_bar[ORDER(P + 1)] = {}, v_bar[P + 1] = {}, square = 0, sum = 0, product[P] = {};
    double total = 0, squares = 0, sums = 0, products[P] = {}, mu_bar = 0;
    Beginning<P>::run(x, data, mu, lag, total, s, B, N, true, a_bar, v_bar, mu_bar);
    for (long long t = P; t < N; ++t) {
      const real now = DATUM(0, t) - mu, e = error<P>(x, lag, now);
      square = fma(e, e, square);
      sum = sum + e;
      EACH(j, 0, P) product[j] = fma(e, lag[j], product[j]);
      shift(lag, now);
      if ((t - P + 1) % CHUNK == 0 || t + 1 == N) {
        squares += square;
        sums += sum;
        EACH(j, 0, P) products[j] += product[j];
        square = sum = 0;
        EACH(j, 0, P) product[j] = 0;
      }
    }
    bool valid;
    value[s] = exact(x, total, squares, N, valid);

    predictors_adjoint(x, a_bar, v_bar);
    const double v = x.v[P];
    double slope = 1;
    EACH(j, 0, P) {
      slope -= x.a[ORDER(P) + j];
      gradient[(j + 1) * B + s] = valid ? (real)(a_bar[ORDER(P) + j] + products[j] / v) : (real)0;
    }
    gradient[s] = valid ? (real)(mu_bar + sums / v * slope) : (real)0;
    const double rest = N > P ? (double)(N - P) : 0.0;
    gradient[(P + 1) * B + s] = valid ? (real)(v_bar[P] + 0.5 * (squares / v - rest) / v) : (real)0;
  }
}
