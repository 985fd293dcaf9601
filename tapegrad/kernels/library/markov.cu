// Log-likelihood of a hidden Markov model of K states by the forward algorithm, and its gradient.  theta: K logits of the first state,
// K x K logits of the next state by rows, and with GAUSSIAN the means and the scales of the states; else the data are the K log densities
// at each step.  See markov.py.
//
// One sample a thread.  With p the distribution of the state before the datum and b the log densities,
//
//     top = max of b where p > 0     w = p exp(b - top)     contribution top + log sum w     f = w / sum w     p' = f A
//
// and f = p where the datum is missing.  The reverse sweep starts each step from the stored p; the derivative by `top` is zero.

#define EACH(i, n) _Pragma("unroll") for (int i = 0; i < (n); ++i)

typedef long long i64;

struct Model {
  real start[K], A[K * K], mu[K], inverse[K], scale[K];  // inverse of the standard deviations, and their logarithms
  bool valid;
};

// exp(x) / sum exp(x) in place.
template <int at, int n> static __device__ __forceinline__ void softmax(real (&x)[n]) {
  real top = x[at], sum = 0;
  EACH(i, K) top = x[at + i] > top ? x[at + i] : top;
  EACH(i, K) {
    x[at + i] = own_exp(x[at + i] - top);
    sum = sum + x[at + i];
  }
  EACH(i, K) x[at + i] = x[at + i] / sum;
}

template <int row> struct Rows {
  static __device__ __forceinline__ void run(real (&A)[K * K]) {
    softmax<(row - 1) * K>(A);
    Rows<row - 1>::run(A);
  }
};
template <> struct Rows<0> {
  static __device__ __forceinline__ void run(real (&)[K * K]) {}
};

static __device__ __forceinline__ Model model(const real* theta, i64 B, i64 s) {
  Model x;
  x.valid = true;
  EACH(i, K) x.start[i] = theta[i * B + s];
  EACH(i, K * K) x.A[i] = theta[(K + i) * B + s];
  softmax<0>(x.start);
  Rows<K>::run(x.A);
#if GAUSSIAN
  EACH(i, K) {
    x.mu[i] = theta[(K * K + K + i) * B + s];
    const real sigma = theta[(K * K + 2 * K + i) * B + s];
    x.inverse[i] = 1 / sigma;
    x.scale[i] = own_log(sigma);
    x.valid = x.valid && sigma > 0 && is_finite(sigma) && is_finite(x.mu[i]);
  }
#endif
  EACH(i, K) x.valid = x.valid && x.start[i] == x.start[i];
  EACH(i, K * K) x.valid = x.valid && x.A[i] == x.A[i];
  return x;
}

struct Seen {
  real w[K], f[K], z[K], top, sum;
  bool here;
};

static __device__ __forceinline__ Seen filtered(const Model& x, const real (&p)[K], const real* data, i64 t, i64 s, i64 B, i64 N) {
  Seen r;
  real b[K];
  r.here = true;
#if GAUSSIAN
  const real y = DATUM(0, t);
  r.here = y == y;
  EACH(i, K) {
    r.z[i] = r.here ? (y - x.mu[i]) * x.inverse[i] : (real)0;
    b[i] = fma((real)-0.5 * r.z[i], r.z[i], -x.scale[i]);
  }
#else
  EACH(i, K) {
    b[i] = DATUM(i, t);
    r.here = r.here && b[i] == b[i];
  }
#endif
  r.top = -(real)1e30;
  EACH(i, K) r.top = p[i] > 0 && b[i] > r.top ? b[i] : r.top;
  r.sum = 0;
  EACH(i, K) {
    r.w[i] = p[i] > 0 ? own_exp(b[i] - r.top) : (real)0;
    r.sum = fma(p[i], r.w[i], r.sum);
  }
  EACH(i, K) r.f[i] = r.here ? p[i] * r.w[i] / r.sum : p[i];
  return r;
}

static __device__ __forceinline__ void moved(const Model& x, const real (&f)[K], real (&p)[K]) {
  EACH(j, K) {
    p[j] = f[0] * x.A[j];
    EACH(i, K) if (i) p[j] = fma(f[i], x.A[i * K + j], p[j]);
  }
}

#define STEP(t)                                                        \
  {                                                                    \
    const Seen r = filtered(x, p, data, t, s, B, N);                   \
    total += r.here ? (double)(-2 * (r.top + own_log(r.sum))) : 0.0;   \
    seen += GAUSSIAN && r.here;                                        \
    moved(x, r.f, p);                                                  \
  }

extern "C" __global__ void markov_value(const real* theta, const real* data, real* value, i64 B, i64 N) {
  SAMPLES(s, B) {
    Model x = model(theta, B, s);
    real p[K];
    double total = 0, seen = 0;
    EACH(i, K) p[i] = x.start[i];
    for (i64 t = 0; t < N; ++t) STEP(t)
    value[s] = outcome(total, seen, x.valid);
  }
}

// The gradient by logits from that by the probabilities.
static __device__ __forceinline__ void softmax_adjoint(const real* p, const real* p_bar, real* gradient, i64 B, i64 s, bool valid) {
  real mean = 0;
  EACH(i, K) mean = fma(p[i], p_bar[i], mean);
  EACH(i, K) gradient[i * B + s] = valid ? p[i] * (p_bar[i] - mean) : (real)0;
}

extern "C" __global__ void markov_value_and_grad(const real* theta, const real* data, real* value, real* gradient, real* tape, i64 B, i64 N) {
  const i64 slots = gridDim.x * (i64)blockDim.x, slot = blockIdx.x * (i64)blockDim.x + threadIdx.x;
  SAMPLES(s, B) {
    Model x = model(theta, B, s);
    real p[K], p_bar[K] = {}, A_bar[K * K] = {}, mu_bar[K] = {}, sigma_bar[K] = {};
    double total = 0, seen = 0;
    EACH(i, K) p[i] = x.start[i];
    for (i64 t = 0; t < N; ++t) {
      EACH(i, K) tape[(t * K + i) * slots + slot] = p[i];
      STEP(t)
    }
    value[s] = outcome(total, seen, x.valid);

    for (i64 t = N - 1; t >= 0; --t) {
      EACH(i, K) p[i] = tape[(t * K + i) * slots + slot];
      const Seen r = filtered(x, p, data, t, s, B, N);
      real f_bar[K], mean = 0;
      EACH(i, K) {
        real sum = x.A[i * K] * p_bar[0];
        EACH(j, K) if (j) sum = fma(x.A[i * K + j], p_bar[j], sum);
        EACH(j, K) A_bar[i * K + j] = fma(r.f[i], p_bar[j], A_bar[i * K + j]);
        f_bar[i] = sum;
        mean = fma(r.f[i], sum, mean);
      }
      EACH(i, K) {
        const real e = f_bar[i] - mean + 1;  // of the logarithm of w, over f
        p_bar[i] = r.here ? e * r.w[i] / r.sum : f_bar[i];
#if GAUSSIAN
        const real b_bar = (r.here ? e * r.f[i] : (real)0) * x.inverse[i];
        mu_bar[i] = fma(b_bar, r.z[i], mu_bar[i]);
        sigma_bar[i] = fma(b_bar, fma(r.z[i], r.z[i], (real)-1), sigma_bar[i]);
#endif
      }
    }
    softmax_adjoint(x.start, p_bar, gradient, B, s, x.valid);
    EACH(i, K) softmax_adjoint(x.A + i * K, A_bar + i * K, gradient + (i + 1) * K * B, B, s, x.valid);
#if GAUSSIAN
    EACH(i, K) {
      gradient[(K * K + K + i) * B + s] = x.valid ? mu_bar[i] : (real)0;
      gradient[(K * K + 2 * K + i) * B + s] = x.valid ? sigma_bar[i] : (real)0;
    }
#endif
  }
}
