// What the filters share, after prelude.cu: where the arguments of one sample lie, where their gradients go, the prediction, and the
// sweeps.  Each argument is constant (mode 0: rows of theta), one for each step (1: rows of theta, step after step), or one for each
// step without a gradient (2: rows of the data).  K is the number of states, D that of the numbers observed, N that of the steps.
//
// Symmetric matrices are lower triangles, row after row; their cotangents are kept as symmetric matrices, and an element off the
// diagonal stands for two.

#define TRIANGLE (K * (K + 1) / 2)
#define OBSERVED (D * (D + 1) / 2)
#define AT(i, j) ((i) >= (j) ? (i) * ((i) + 1) / 2 + (j) : (j) * ((j) + 1) / 2 + (i))
#define EACH(i, n) _Pragma("unroll") for (int i = 0; i < (n); ++i)

#define EACH_B (DATA_EACH ? B : 1)
#define AT_DATUM(line, t) (((line) * N + (t)) * EACH_B + (DATA_EACH ? s : 0))

typedef long long i64;

struct Argument {
  const real* at;
  i64 item, time, row, rows;
};

static __device__ __forceinline__ Argument argument(int mode, i64 rows, i64& row, i64& line, const real* theta, const real* data, i64 s,
                                                    i64 B, i64 N) {
  Argument a;
  a.row = mode == 2 ? -1 : row;
  a.rows = rows;
  if (mode == 2) {
    a.at = data + AT_DATUM(line, 0);
    a.item = N * EACH_B;
    a.time = EACH_B;
    line += rows;
  } else {
    a.at = theta + row * B + s;
    a.item = B;
    a.time = mode ? rows * B : 0;
    row += mode ? rows * N : rows;
  }
  return a;
}

template <int n> static __device__ __forceinline__ void load(real (&x)[n], const Argument& a, i64 t) {
  EACH(i, n) x[i] = a.at[i * a.item + t * a.time];
}

// The gradient of an argument, and zeros in its place; written after each step if there is one for each step, else at the end.
template <int n> static __device__ __forceinline__ void store(real* gradient, real (&x)[n], const Argument& a, i64 t, i64 s, i64 B, bool valid) {
  EACH(i, n) {
    if (a.row >= 0) gradient[(a.row + (a.time ? t * a.rows : 0) + i) * B + s] = valid ? x[i] : (real)0;
    x[i] = 0;
  }
}

template <int rows, int n> static __device__ __forceinline__ bool nonnegative_diagonal(const real (&P)[n]) {
  bool found = true;
  EACH(i, rows) found = found && P[AT(i, i)] >= 0;
  return found;
}

// m <- A m, P <- A P A' + Q.
static __device__ __forceinline__ void predict(const real (&A)[K * K], const real (&Q)[TRIANGLE], real (&m)[K], real (&P)[TRIANGLE]) {
  real n[K], M[K * K];
  EACH(i, K) {
    n[i] = A[i * K] * m[0];
    EACH(j, K) if (j) n[i] = fma(A[i * K + j], m[j], n[i]);
    EACH(j, K) {
      real sum = A[i * K] * P[AT(0, j)];
      EACH(p, K) if (p) sum = fma(A[i * K + p], P[AT(p, j)], sum);
      M[i * K + j] = sum;
    }
  }
  EACH(i, K) m[i] = n[i];
  EACH(i, K) EACH(j, i + 1) {
    real sum = Q[AT(i, j)];
    EACH(p, K) sum = fma(M[i * K + p], A[j * K + p], sum);
    P[AT(i, j)] = sum;
  }
}

// From the cotangents of the results to those of the operands m and P, in place; those of A and Q are added to.
static __device__ __forceinline__ void predict_adjoint(const real (&A)[K * K], const real (&m)[K], const real (&P)[TRIANGLE],
                                                       real (&A_bar)[K * K], real (&Q_bar)[TRIANGLE], real (&m_bar)[K],
                                                       real (&P_bar)[TRIANGLE]) {
  real PA[K * K], mean[K];
  EACH(i, K) EACH(j, K) {
    real sum = P_bar[AT(i, 0)] * A[j];
    EACH(p, K) if (p) sum = fma(P_bar[AT(i, p)], A[p * K + j], sum);
    PA[i * K + j] = sum;
  }
  EACH(i, K) EACH(j, K) {
    real sum = PA[i * K] * P[AT(0, j)];
    EACH(p, K) if (p) sum = fma(PA[i * K + p], P[AT(p, j)], sum);
    A_bar[i * K + j] = fma((real)2, sum, fma(m_bar[i], m[j], A_bar[i * K + j]));
  }
  EACH(i, K) EACH(j, i + 1) Q_bar[AT(i, j)] = Q_bar[AT(i, j)] + (i == j ? P_bar[AT(i, j)] : 2 * P_bar[AT(i, j)]);
  EACH(j, K) {
    mean[j] = m_bar[0] * A[j];
    EACH(i, K) if (i) mean[j] = fma(m_bar[i], A[i * K + j], mean[j]);
  }
  EACH(i, K) EACH(j, i + 1) {
    real sum = A[i] * PA[j];
    EACH(p, K) if (p) sum = fma(A[p * K + i], PA[p * K + j], sum);
    P_bar[AT(i, j)] = sum;
  }
  EACH(i, K) m_bar[i] = mean[i];
}

// One sample's model, state and place in the arrays.
struct Sample {
  Argument in[6];
  real A[K * K], C[D * K], Q[TRIANGLE], R[OBSERVED], m[K], P[TRIANGLE], y[D];
  const real* data;
  i64 s, B, N;
  double total, seen;
  bool valid;

  __device__ __forceinline__ Sample(const real* theta, const real* data, i64 s, i64 B, i64 N) : data(data), s(s), B(B), N(N), total(0), seen(0) {
    i64 row = 0, line = D;
    in[0] = argument(A_MODE, K * K, row, line, theta, data, s, B, N);
    in[1] = argument(C_MODE, D * K, row, line, theta, data, s, B, N);
    in[2] = argument(Q_MODE, TRIANGLE, row, line, theta, data, s, B, N);
    in[3] = argument(R_MODE, OBSERVED, row, line, theta, data, s, B, N);
    in[4] = argument(0, K, row, line, theta, data, s, B, N);
    in[5] = argument(0, TRIANGLE, row, line, theta, data, s, B, N);
    if (!A_MODE) ::load(A, in[0], 0);
    if (!C_MODE) ::load(C, in[1], 0);
    if (!Q_MODE) ::load(Q, in[2], 0);
    if (!R_MODE) ::load(R, in[3], 0);
    ::load(m, in[4], 0);
    ::load(P, in[5], 0);
    valid = nonnegative_diagonal<K>(P);
  }

  __device__ __forceinline__ void load(i64 t) {
    EACH(a, D) y[a] = data[AT_DATUM(a, t)];
    if (A_MODE) ::load(A, in[0], t);
    if (C_MODE) ::load(C, in[1], t);
    if (Q_MODE) ::load(Q, in[2], t);
    if (R_MODE) ::load(R, in[3], t);
  }

  template <class Seen> __device__ __forceinline__ void step(i64 t) {
    load(t);
    Seen x;
    x.update(C, R, y, m, P);
    total += (double)x.term;
    seen += x.count;
    valid = valid && x.positive && nonnegative_diagonal<D>(R) && nonnegative_diagonal<K>(Q);
    if (t + 1 < N) predict(A, Q, m, P);
  }
};

template <class Seen> static __device__ __forceinline__ void filter(const real* theta, const real* data, real* value, i64 B, i64 N) {
  SAMPLES(s, B) {
    Sample x(theta, data, s, B, N);
    for (i64 t = 0; t < N; ++t) x.step<Seen>(t);
    value[s] = outcome(x.total, x.seen, x.valid);
  }
}

// The gradients of the arguments: of those with a value for each step at each step, of the others at the end.
struct Cotangents {
  real A[K * K], C[D * K], Q[TRIANGLE], R[OBSERVED], m[K], P[TRIANGLE];

  __device__ __forceinline__ void store(real* gradient, const Sample& x, bool varying, i64 t) {
    if ((A_MODE != 0) == varying) ::store(gradient, A, x.in[0], t, x.s, x.B, x.valid);
    if ((C_MODE != 0) == varying) ::store(gradient, C, x.in[1], t, x.s, x.B, x.valid);
    if ((Q_MODE != 0) == varying) ::store(gradient, Q, x.in[2], t, x.s, x.B, x.valid);
    if ((R_MODE != 0) == varying) ::store(gradient, R, x.in[3], t, x.s, x.B, x.valid);
  }
};

// The reverse sweep starts each step from the stored m and P.
template <class Seen>
static __device__ __forceinline__ void filter_and_adjoint(const real* theta, const real* data, real* value, real* gradient, real* tape, i64 B,
                                                          i64 N) {
  const i64 slots = gridDim.x * (i64)blockDim.x, slot = blockIdx.x * (i64)blockDim.x + threadIdx.x;
  SAMPLES(s, B) {
    Sample x(theta, data, s, B, N);
    for (i64 t = 0; t < N; ++t) {
      EACH(i, K) tape[(t * (K + TRIANGLE) + i) * slots + slot] = x.m[i];
      EACH(i, TRIANGLE) tape[(t * (K + TRIANGLE) + K + i) * slots + slot] = x.P[i];
      x.step<Seen>(t);
    }
    value[s] = outcome(x.total, x.seen, x.valid);

    Cotangents bar = {};
    for (i64 t = N - 1; t >= 0; --t) {
      real n[K], T[TRIANGLE];  // m and P after the update
      x.load(t);
      EACH(i, K) n[i] = x.m[i] = tape[(t * (K + TRIANGLE) + i) * slots + slot];
      EACH(i, TRIANGLE) T[i] = x.P[i] = tape[(t * (K + TRIANGLE) + K + i) * slots + slot];
      Seen seen;
      seen.update(x.C, x.R, x.y, n, T);
      if (t + 1 < N) predict_adjoint(x.A, n, T, bar.A, bar.Q, bar.m, bar.P);
      seen.update_adjoint(x.C, x.m, x.P, bar.C, bar.R, bar.m, bar.P);
      bar.store(gradient, x, true, t);
    }
    EACH(i, K) EACH(j, i) bar.P[AT(i, j)] = 2 * bar.P[AT(i, j)];
    bar.store(gradient, x, false, 0);
    store(gradient, bar.m, x.in[4], 0, s, B, x.valid);
    store(gradient, bar.P, x.in[5], 0, s, B, x.valid);
  }
}
