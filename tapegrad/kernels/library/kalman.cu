// Log-likelihood of a linear Gaussian state space model with one number observed at a step, and its gradient.
// The model and the order of the parameters are in kalman.py; the sweeps and the prediction in filters.cu.
//
// One sample a thread.  With m, P the mean and covariance of the state before the observation y:
//
//     u = P c      S = c.u + r      v = y - c.m          contribution -(log 2 pi + log S + v^2 / S) / 2
//     m <- m + u v / S              P <- P - u u' / S    (left out where y is nan)

struct Seen {
  real u[K], g[K], inverse, v, term;
  int count;
  bool positive;

  __device__ __forceinline__ void update(const real (&c)[K], const real (&r)[1], const real (&y)[1], real (&m)[K], real (&P)[TRIANGLE]) {
    const bool here = y[0] == y[0];
    real S = r[0];
    v = y[0];
    EACH(i, K) {
      real sum = P[AT(i, 0)] * c[0];
      EACH(j, K) if (j) sum = fma(P[AT(i, j)], c[j], sum);
      S = fma(c[i], sum, S);
      v = fma(-c[i], m[i], v);
      u[i] = here ? sum : (real)0;
    }
    S = here ? S : (real)1;
    v = here ? v : (real)0;
    inverse = 1 / S;
    EACH(i, K) {
      g[i] = u[i] * inverse;
      m[i] = fma(g[i], v, m[i]);
    }
    EACH(i, K) EACH(j, i + 1) P[AT(i, j)] = fma(-g[i], u[j], P[AT(i, j)]);
    term = here ? fma(v * inverse, v, own_log(S)) : (real)0;
    count = here;
    positive = S > 0;
  }

  __device__ __forceinline__ void update_adjoint(const real (&c)[K], const real (&m)[K], const real (&P)[TRIANGLE], real (&c_bar)[K],
                                                 real (&r_bar)[1], real (&m_bar)[K], real (&P_bar)[TRIANGLE]) {
    real w[K], u_bar[K], q = 0, e = 0;
    EACH(i, K) {
      real sum = P_bar[AT(i, 0)] * u[0];
      EACH(j, K) if (j) sum = fma(P_bar[AT(i, j)], u[j], sum);
      w[i] = sum;
      q = fma(sum, g[i], q);
      e = fma(m_bar[i], g[i], e);
    }
    const real vs = v * inverse, v_bar = e - vs, twice = -2 * inverse;
    const real S_bar = count ? fma(inverse, q - (real)0.5, vs * fma((real)0.5, vs, -e)) : (real)0;
    EACH(i, K) u_bar[i] = fma(m_bar[i], vs, fma(twice, w[i], c[i] * S_bar));
    EACH(i, K) {
      real sum = fma(u[i], S_bar, -(m[i] * v_bar));
      EACH(j, K) sum = fma(P[AT(i, j)], u_bar[j], sum);
      c_bar[i] = c_bar[i] + sum;
      m_bar[i] = fma(-c[i], v_bar, m_bar[i]);
    }
    r_bar[0] = r_bar[0] + S_bar;
    EACH(i, K) EACH(j, i + 1) P_bar[AT(i, j)] = fma((real)0.5, fma(u_bar[i], c[j], c[i] * u_bar[j]), P_bar[AT(i, j)]);
  }
};

extern "C" __global__ void kalman_value(const real* theta, const real* data, real* value, i64 B, i64 N) {
  filter<Seen>(theta, data, value, B, N);
}

extern "C" __global__ void kalman_value_and_grad(const real* theta, const real* data, real* value, real* gradient, real* tape, i64 B, i64 N) {
  filter_and_adjoint<Seen>(theta, data, value, gradient, tape, B, N);
}
