// Log-likelihood of a linear Gaussian state space model with D numbers observed at a step, and its gradient.
// The model and the order of the parameters are in kalman_vector.py.
//
// One sample a thread.  With m, P the mean and covariance of the state before the observations y:
//
//     U = P C'     S = C U + R = L L'     v = y - C m     V = 1 / L     z = V v     W = U V'
//     contribution -(D log 2 pi + 2 sum log L[a, a] + z.z) / 2
//     m <- m + W z                        P <- P - W W'
//
// and the prediction of _filters.cu.  An observation that is nan has 0 in its column of U and its element of v, and a row and column of
// the identity in S: the others are as if it were not there.  The adjoint, with G = U / S = W V and s = S \ v = V' z:
//
//     U_bar = m_bar s' - 2 P_bar G + C' S_bar          v_bar = G' m_bar - s
//     S_bar = G' P_bar G - sym(G' m_bar s') - (V' V - s s') / 2
//     C_bar += S_bar U' + U_bar' P - v_bar m'          P_bar += sym(U_bar C)          m_bar -= C' v_bar

#define OBSERVED (D * (D + 1) / 2)

struct Seen {
  real U[K * D], W[K * D], V[OBSERVED], z[D], logs, squares;
  bool here[D], positive;
  int count;
};

static __device__ __forceinline__ void innovation(Seen& x, const real (&C)[D * K], const real (&R)[OBSERVED], const real (&y)[D],
                                                  const real (&m)[K], const real (&P)[TRIANGLE], real (&S)[OBSERVED], real (&v)[D]) {
  EACH(a, D) x.here[a] = y[a] == y[a];
  EACH(i, K) EACH(a, D) {
    real sum = P[AT(i, 0)] * C[a * K];
    EACH(j, K) if (j) sum = sum + P[AT(i, j)] * C[a * K + j];
    x.U[i * D + a] = x.here[a] ? sum : (real)0;
  }
  EACH(a, D) {
    v[a] = y[a];
    EACH(i, K) v[a] = v[a] - C[a * K + i] * m[i];
    v[a] = x.here[a] ? v[a] : (real)0;
    EACH(b, a + 1) {
      real sum = R[AT(a, b)];
      EACH(i, K) sum = sum + C[a * K + i] * x.U[i * D + b];
      S[AT(a, b)] = x.here[a] && x.here[b] ? sum : (real)(a == b);
    }
  }
}

// S becomes L; V, the logarithms, and whether S is positive definite.
static __device__ __forceinline__ void factor(Seen& x, real (&S)[OBSERVED]) {
  x.positive = true;
  EACH(a, D) EACH(b, a + 1) {
    real sum = S[AT(a, b)];
    EACH(c, b) sum = sum - S[AT(a, c)] * S[AT(b, c)];
    if (a == b) x.positive = x.positive && sum > 0;
    S[AT(a, b)] = a == b ? sqrt(sum) : sum / S[AT(b, b)];
  }
  x.logs = 0;
  EACH(a, D) {
    x.logs = x.logs + log(S[AT(a, a)]);
    x.V[AT(a, a)] = 1 / S[AT(a, a)];
    EACH(b, a) {
      real sum = S[AT(a, b)] * x.V[AT(b, b)];
      EACH(c, a) if (c > b) sum = sum + S[AT(a, c)] * x.V[AT(c, b)];
      x.V[AT(a, b)] = -(sum * x.V[AT(a, a)]);
    }
  }
}

static __device__ __forceinline__ Seen update(const real (&C)[D * K], const real (&R)[OBSERVED], const real (&y)[D], real (&m)[K],
                                              real (&P)[TRIANGLE]) {
  Seen x;
  real S[OBSERVED], v[D];
  innovation(x, C, R, y, m, P, S, v);
  factor(x, S);
  x.squares = 0;
  x.count = 0;
  EACH(a, D) {
    x.count += x.here[a];
    x.z[a] = x.V[AT(a, 0)] * v[0];
    EACH(b, a + 1) if (b) x.z[a] = x.z[a] + x.V[AT(a, b)] * v[b];
    x.squares = x.squares + x.z[a] * x.z[a];
    EACH(i, K) {
      real sum = x.U[i * D] * x.V[AT(a, 0)];
      EACH(b, a + 1) if (b) sum = sum + x.U[i * D + b] * x.V[AT(a, b)];
      x.W[i * D + a] = sum;
      m[i] = m[i] + sum * x.z[a];
    }
  }
  EACH(i, K) EACH(j, i + 1) EACH(a, D) P[AT(i, j)] = P[AT(i, j)] - x.W[i * D + a] * x.W[j * D + a];
  return x;
}

#define ARGUMENTS                                                                    \
  i64 row = 0, line = D;                                                             \
  const Argument a_A = argument(A_MODE, K * K, row, line, theta, data, s, B, N);     \
  const Argument a_C = argument(C_MODE, D * K, row, line, theta, data, s, B, N);     \
  const Argument a_Q = argument(Q_MODE, TRIANGLE, row, line, theta, data, s, B, N);  \
  const Argument a_R = argument(R_MODE, OBSERVED, row, line, theta, data, s, B, N);  \
  const Argument a_m = argument(0, K, row, line, theta, data, s, B, N);              \
  const Argument a_P = argument(0, TRIANGLE, row, line, theta, data, s, B, N);       \
  real A[K * K], C[D * K], Q[TRIANGLE], R[OBSERVED], m[K], P[TRIANGLE], y[D];        \
  load(m, a_m, 0);                                                                   \
  load(P, a_P, 0);                                                                   \
  bool valid = nonnegative_diagonal<K>(P);                                           \
  double total = 0;                                                                  \
  i64 seen = 0;

#define LOAD_STEP(t, first)                          \
  EACH(a, D) y[a] = data[AT_DATUM(a, t)];            \
  if (first || A_MODE) load(A, a_A, t);              \
  if (first || C_MODE) load(C, a_C, t);              \
  if (first || Q_MODE) load(Q, a_Q, t);              \
  if (first || R_MODE) load(R, a_R, t);

#define FILTER_STEP(t)                                                                               \
  LOAD_STEP(t, t == 0)                                                                               \
  {                                                                                                  \
    const Seen x = update(C, R, y, m, P);                                                            \
    total += (double)(2 * x.logs + x.squares);                                                       \
    seen += x.count;                                                                                 \
    valid = valid && x.positive && nonnegative_diagonal<D>(R) && nonnegative_diagonal<K>(Q);         \
    if (t + 1 < N) predict(A, Q, m, P);                                                              \
  }

#define STORE(mode, t)                                                             \
  if ((A_MODE != 0) == mode) store(gradient, A_bar, a_A, t, s, B, valid);          \
  if ((C_MODE != 0) == mode) store(gradient, C_bar, a_C, t, s, B, valid);          \
  if ((Q_MODE != 0) == mode) store(gradient, Q_bar, a_Q, t, s, B, valid);          \
  if ((R_MODE != 0) == mode) store(gradient, R_bar, a_R, t, s, B, valid);

extern "C" __global__ void kalman_vector_value(const real* theta, const real* data, real* value, i64 B, i64 N) {
  SAMPLES(s, B) {
    ARGUMENTS
    for (i64 t = 0; t < N; ++t) { FILTER_STEP(t) }
    value[s] = outcome(total, seen, valid);
  }
}

// S_bar, with 0 for what is not observed; v_bar in place of z.
static __device__ __forceinline__ void innovation_adjoint(Seen& x, const real (&G)[K * D], const real (&PG)[K * D], const real (&s)[D],
                                                          const real (&m_bar)[K], real (&S_bar)[OBSERVED]) {
  real e[D];
  EACH(a, D) {
    e[a] = G[a] * m_bar[0];
    EACH(i, K) if (i) e[a] = e[a] + G[i * D + a] * m_bar[i];
    x.z[a] = x.here[a] ? e[a] - s[a] : (real)0;
  }
  EACH(a, D) EACH(b, a + 1) {
    real sum = G[a] * PG[b], inverse = 0;
    EACH(i, K) if (i) sum = sum + G[i * D + a] * PG[i * D + b];
    EACH(c, D) if (c >= a) inverse = inverse + x.V[AT(c, a)] * x.V[AT(c, b)];
    sum = sum - (real)0.5 * (e[a] * s[b] + s[a] * e[b]) - (real)0.5 * (inverse - s[a] * s[b]);
    S_bar[AT(a, b)] = x.here[a] && x.here[b] ? sum : (real)0;
  }
}

static __device__ __forceinline__ void update_adjoint(Seen& x, const real (&C)[D * K], const real (&m)[K], const real (&P)[TRIANGLE],
                                                      real (&C_bar)[D * K], real (&R_bar)[OBSERVED], real (&m_bar)[K],
                                                      real (&P_bar)[TRIANGLE]) {
  real G[K * D], PG[K * D], s[D], S_bar[OBSERVED];
  EACH(a, D) {
    s[a] = 0;
    EACH(c, D) if (c >= a) s[a] = s[a] + x.V[AT(c, a)] * x.z[c];
    EACH(i, K) {
      real sum = 0;
      EACH(c, D) if (c >= a) sum = sum + x.W[i * D + c] * x.V[AT(c, a)];
      G[i * D + a] = sum;
    }
  }
  EACH(i, K) EACH(a, D) {
    real sum = P_bar[AT(i, 0)] * G[a];
    EACH(j, K) if (j) sum = sum + P_bar[AT(i, j)] * G[j * D + a];
    PG[i * D + a] = sum;
  }
  innovation_adjoint(x, G, PG, s, m_bar, S_bar);
  EACH(i, K) EACH(a, D) {  // U_bar, in place of PG
    real sum = m_bar[i] * s[a] - 2 * PG[i * D + a];
    EACH(b, D) sum = sum + C[b * K + i] * S_bar[AT(a, b)];
    PG[i * D + a] = x.here[a] ? sum : (real)0;
  }
  EACH(a, D) EACH(i, K) {
    real sum = C_bar[a * K + i] - x.z[a] * m[i];
    EACH(b, D) sum = sum + S_bar[AT(a, b)] * x.U[i * D + b];
    EACH(j, K) sum = sum + P[AT(i, j)] * PG[j * D + a];
    C_bar[a * K + i] = sum;
    m_bar[i] = m_bar[i] - C[a * K + i] * x.z[a];
  }
  EACH(a, D) EACH(b, a + 1) R_bar[AT(a, b)] = R_bar[AT(a, b)] + (a == b ? S_bar[AT(a, b)] : 2 * S_bar[AT(a, b)]);
  EACH(i, K) EACH(j, i + 1) EACH(a, D) {
    P_bar[AT(i, j)] = P_bar[AT(i, j)] + (real)0.5 * (PG[i * D + a] * C[a * K + j] + PG[j * D + a] * C[a * K + i]);
  }
}

extern "C" __global__ void kalman_vector_value_and_grad(const real* theta, const real* data, real* value, real* gradient, real* tape, i64 B,
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

    real A_bar[K * K] = {}, C_bar[D * K] = {}, Q_bar[TRIANGLE] = {}, R_bar[OBSERVED] = {}, m_bar[K] = {}, P_bar[TRIANGLE] = {};
    for (i64 t = N - 1; t >= 0; --t) {
      real n[K], T[TRIANGLE];  // m and P after the update
      LOAD_STEP(t, false)
      EACH(i, K) n[i] = m[i] = tape[(t * (K + TRIANGLE) + i) * slots + slot];
      EACH(i, TRIANGLE) T[i] = P[i] = tape[(t * (K + TRIANGLE) + K + i) * slots + slot];
      Seen x = update(C, R, y, n, T);
      if (t + 1 < N) predict_adjoint(A, n, T, A_bar, Q_bar, m_bar, P_bar);
      update_adjoint(x, C, m, P, C_bar, R_bar, m_bar, P_bar);
      STORE(true, t)
    }
    EACH(i, K) EACH(j, i) P_bar[AT(i, j)] = 2 * P_bar[AT(i, j)];
    STORE(false, 0)
    store(gradient, m_bar, a_m, 0, s, B, valid);
    store(gradient, P_bar, a_P, 0, s, B, valid);
  }
}
