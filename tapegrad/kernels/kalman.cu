// Log-likelihood of a linear Gaussian state space model with one number observed at a step, and its gradient.
// The model and the order of the parameters are in kalman.py.
//
// One sample a thread.  With m, P the mean and covariance of the state before the observation y:
//
//     u = P c      S = c.u + r      v = y - c.m          contribution -(log 2 pi + log S + v^2 / S) / 2
//     m <- m + u v / S              P <- P - u u' / S    (left out where y is nan)
//     m <- A m                      P <- A P A' + Q      (left out after the last observation)
//
// The reverse sweep starts each step from the stored m and P.  Symmetric matrices are lower triangles, row after row; their
// cotangents are kept as symmetric matrices, and an element off the diagonal stands for two.

struct Seen {
  real u[K], g[K], S, inverse, v;
  bool here;
};

static __device__ __forceinline__ Seen update(const real (&c)[K], real r, real y, real (&m)[K], real (&P)[TRIANGLE]) {
  Seen x;
  x.here = y == y;
  x.S = r;
  x.v = y;
  EACH(i, K) {
    real sum = P[AT(i, 0)] * c[0];
    EACH(j, K) if (j) sum = sum + P[AT(i, j)] * c[j];
    x.u[i] = sum;
  }
  EACH(i, K) {
    x.S = x.S + c[i] * x.u[i];
    x.v = x.v - c[i] * m[i];
  }
  EACH(i, K) x.u[i] = x.here ? x.u[i] : (real)0;
  x.S = x.here ? x.S : (real)1;
  x.v = x.here ? x.v : (real)0;
  x.inverse = 1 / x.S;
  EACH(i, K) {
    x.g[i] = x.u[i] * x.inverse;
    m[i] = m[i] + x.g[i] * x.v;
  }
  EACH(i, K) EACH(j, i + 1) P[AT(i, j)] = P[AT(i, j)] - x.g[i] * x.u[j];
  return x;
}

#define ARGUMENTS                                                                    \
  i64 row = 0, line = 1;                                                             \
  const Argument a_A = argument(A_MODE, K * K, row, line, theta, data, s, B, N);     \
  const Argument a_c = argument(C_MODE, K, row, line, theta, data, s, B, N);         \
  const Argument a_Q = argument(Q_MODE, TRIANGLE, row, line, theta, data, s, B, N);  \
  const Argument a_r = argument(R_MODE, 1, row, line, theta, data, s, B, N);         \
  const Argument a_m = argument(0, K, row, line, theta, data, s, B, N);              \
  const Argument a_P = argument(0, TRIANGLE, row, line, theta, data, s, B, N);       \
  real A[K * K], c[K], Q[TRIANGLE], r[1], m[K], P[TRIANGLE];                         \
  load(m, a_m, 0);                                                                   \
  load(P, a_P, 0);                                                                   \
  bool valid = nonnegative_diagonal<K>(P);                                              \
  double total = 0;                                                                  \
  i64 seen = 0;

#define LOAD_STEP(t, first)              \
  if (first || A_MODE) load(A, a_A, t);  \
  if (first || C_MODE) load(c, a_c, t);  \
  if (first || Q_MODE) load(Q, a_Q, t);  \
  if (first || R_MODE) load(r, a_r, t);

#define FILTER_STEP(t)                                                             \
  LOAD_STEP(t, t == 0)                                                             \
  {                                                                                \
    const Seen x = update(c, r[0], data[AT_DATUM(0, t)], m, P);                       \
    total += x.here ? (double)(log(x.S) + x.v * x.inverse * x.v) : 0.0;            \
    seen += x.here;                                                                \
    valid = valid && x.S > 0 && r[0] >= 0 && nonnegative_diagonal<K>(Q);              \
    if (t + 1 < N) predict(A, Q, m, P);                                            \
  }

#define STORE(mode, t)                                                             \
  if ((A_MODE != 0) == mode) store(gradient, A_bar, a_A, t, s, B, valid);          \
  if ((C_MODE != 0) == mode) store(gradient, c_bar, a_c, t, s, B, valid);          \
  if ((Q_MODE != 0) == mode) store(gradient, Q_bar, a_Q, t, s, B, valid);          \
  if ((R_MODE != 0) == mode) store(gradient, r_bar, a_r, t, s, B, valid);

extern "C" __global__ void kalman_value(const real* theta, const real* data, real* value, i64 B, i64 N) {
  SAMPLES(s, B) {
    ARGUMENTS
    for (i64 t = 0; t < N; ++t) { FILTER_STEP(t) }
    value[s] = outcome(total, seen, valid);
  }
}

static __device__ __forceinline__ void update_adjoint(const Seen& x, const real (&c)[K], const real (&m)[K], const real (&P)[TRIANGLE],
                                                      real (&c_bar)[K], real (&r_bar)[1], real (&m_bar)[K], real (&P_bar)[TRIANGLE]) {
  real w[K], u_bar[K], q = 0, e = 0;
  EACH(i, K) {
    real sum = P_bar[AT(i, 0)] * x.u[0];
    EACH(j, K) if (j) sum = sum + P_bar[AT(i, j)] * x.u[j];
    w[i] = sum;
    q = q + sum * x.g[i];
    e = e + m_bar[i] * x.g[i];
  }
  const real vs = x.v * x.inverse, v_bar = e - vs;
  const real S_bar = x.here ? x.inverse * (q - (real)0.5) + vs * ((real)0.5 * vs - e) : (real)0;
  EACH(i, K) u_bar[i] = m_bar[i] * vs - 2 * w[i] * x.inverse + c[i] * S_bar;
  EACH(i, K) {
    real sum = x.u[i] * S_bar - m[i] * v_bar;
    EACH(j, K) sum = sum + P[AT(i, j)] * u_bar[j];
    c_bar[i] = c_bar[i] + sum;
    m_bar[i] = m_bar[i] - c[i] * v_bar;
  }
  r_bar[0] = r_bar[0] + S_bar;
  EACH(i, K) EACH(j, i + 1) P_bar[AT(i, j)] = P_bar[AT(i, j)] + (real)0.5 * (u_bar[i] * c[j] + c[i] * u_bar[j]);
}

extern "C" __global__ void kalman_value_and_grad(const real* theta, const real* data, real* value, real* gradient, real* tape, i64 B,
                                                 i64 N) {
  const i64 slots = gridDim.x * (i64)blockDim.x, slot = blockIdx.x * (i64)blockDim.x + threadIdx.x;
  SAMPLES(s, B) {
    ARGUMENTS
    for (i64 t = 0; t < N; ++t) {
      EACH(i, K) tape[(t * (K + TRIANGLE) + i) * slots + slot] = m[i];
      EACH(i, TRIANGLE) tape[(t * (K + TRIANGLE) + K + i) * slots + slot] = P[i];
      FILTER_STEP(t)
    }
    value[s] = outcome(total, seen, valid);

    real A_bar[K * K] = {}, c_bar[K] = {}, Q_bar[TRIANGLE] = {}, r_bar[1] = {}, m_bar[K] = {}, P_bar[TRIANGLE] = {};
    for (i64 t = N - 1; t >= 0; --t) {
      real n[K], R[TRIANGLE];  // m and P after the update
      LOAD_STEP(t, false)
      EACH(i, K) n[i] = m[i] = tape[(t * (K + TRIANGLE) + i) * slots + slot];
      EACH(i, TRIANGLE) R[i] = P[i] = tape[(t * (K + TRIANGLE) + K + i) * slots + slot];
      const Seen x = update(c, r[0], data[AT_DATUM(0, t)], n, R);
      if (t + 1 < N) predict_adjoint(A, n, R, A_bar, Q_bar, m_bar, P_bar);
      update_adjoint(x, c, m, P, c_bar, r_bar, m_bar, P_bar);
      STORE(true, t)
    }
    EACH(i, K) EACH(j, i) P_bar[AT(i, j)] = 2 * P_bar[AT(i, j)];
    STORE(false, 0)
    store(gradient, m_bar, a_m, 0, s, B, valid);
    store(gradient, P_bar, a_P, 0, s, B, valid);
  }
}
