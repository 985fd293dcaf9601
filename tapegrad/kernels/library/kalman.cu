// Log-likelihood of a linear Gaussian state space model with one number observed at a step, and its gradient.
// The model and the order of the parameters are in kalman.py.
//
// One sample a thread.  With m, P the mean and covariance of the state before the observation y:
//
//     u = P c      S = c.u + r      v = y - c.m          contribution -(log 2 pi + log S + v^2 / S) / 2
//     m <- m + u v / S              P <- P - u u' / S    (left out where y is nan)
//
// Each of A, c, Q and r is constant (mode 0: rows of theta), or belongs to the steps and has no gradient (mode 2: rows of the data).
// K is the number of states, N that of the steps.  Symmetric matrices are lower triangles, row after row; their cotangents are kept as
// symmetric matrices, and an element off the diagonal stands for two.

#define TRIANGLE (K * (K + 1) / 2)
#define AT(i, j) ((i) >= (j) ? (i) * ((i) + 1) / 2 + (j) : (j) * ((j) + 1) / 2 + (i))
#define EACH(i, n) _Pragma("unroll") for (int i = 0; i < (n); ++i)

#define EACH_B (DATA_EACH ? B : 1)
#define AT_DATUM(line, t) (((line) * N + (t)) * EACH_B + (DATA_EACH ? s : 0))

typedef long long i64;

struct Argument {
  const real* at;
  i64 item, time, row;
};

static __device__ __forceinline__ Argument argument(int mode, i64 rows, i64& row, i64& line, const real* theta, const real* data, i64 s,
                                                    i64 B, i64 N) {
  Argument a;
  a.row = row;
  if (mode) {
    a.at = data + AT_DATUM(line, 0);
    a.item = N * EACH_B;
    a.time = EACH_B;
    line += rows;
  } else {
    a.at = theta + row * B + s;
    a.item = B;
    a.time = 0;
    row += rows;
  }
  return a;
}

template <int n> static __device__ __forceinline__ void load(real (&x)[n], const Argument& a, i64 t) {
  EACH(i, n) x[i] = a.at[i * a.item + t * a.time];
}

// The gradient of a constant argument.
template <int n> static __device__ __forceinline__ void store(real* gradient, const real (&x)[n], const Argument& a, i64 s, i64 B, bool valid) {
  EACH(i, n) gradient[(a.row + i) * B + s] = valid ? x[i] : (real)0;
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

// One sample's model, state and place in the arrays.
struct Sample {
  Argument in[6];
  real A[K * K], C[K], Q[TRIANGLE], R[1], m[K], P[TRIANGLE], y[1];
  const real* data;
  i64 s, B, N;
  double total, seen;
  bool valid;

  __device__ __forceinline__ Sample(const real* theta, const real* data, i64 s, i64 B, i64 N) : data(data), s(s), B(B), N(N), total(0), seen(0) {
    i64 row = 0, line = 1;
    in[0] = argument(A_MODE, K * K, row, line, theta, data, s, B, N);
    in[1] = argument(C_MODE, K, row, line, theta, data, s, B, N);
    in[2] = argument(Q_MODE, TRIANGLE, row, line, theta, data, s, B, N);
    in[3] = argument(R_MODE, 1, row, line, theta, data, s, B, N);
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
    y[0] = data[AT_DATUM(0, t)];
    if (A_MODE) ::load(A, in[0], t);
    if (C_MODE) ::load(C, in[1], t);
    if (Q_MODE) ::load(Q, in[2], t);
    if (R_MODE) ::load(R, in[3], t);
  }

  __device__ __forceinline__ void step(i64 t) {
    load(t);
    Seen x;
    x.update(C, R, y, m, P);
    total += (double)x.term;
    seen += x.count;
    valid = valid && x.positive && R[0] >= 0 && nonnegative_diagonal<K>(Q);
    if (t + 1 < N) predict(A, Q, m, P);
  }
};

static __device__ __forceinline__ void filter(const real* theta, const real* data, real* value, i64 B, i64 N) {
  SAMPLES(s, B) {
    Sample x(theta, data, s, B, N);
    for (i64 t = 0; t < N; ++t) x.step(t);
    value[s] = outcome(x.total, x.seen, x.valid);
  }
}

// The gradients of the arguments.
struct Cotangents {
  real A[K * K], C[K], Q[TRIANGLE], R[1], m[K], P[TRIANGLE];

  __device__ __forceinline__ void store(real* gradient, const Sample& x) {
    if (!A_MODE) ::store(gradient, A, x.in[0], x.s, x.B, x.valid);
    if (!C_MODE) ::store(gradient, C, x.in[1], x.s, x.B, x.valid);
    if (!Q_MODE) ::store(gradient, Q, x.in[2], x.s, x.B, x.valid);
    if (!R_MODE) ::store(gradient, R, x.in[3], x.s, x.B, x.valid);
    ::store(gradient, m, x.in[4], x.s, x.B, x.valid);
    ::store(gradient, P, x.in[5], x.s, x.B, x.valid);
  }
};

// The reverse sweep starts each step from the stored m and P.
static __device__ __forceinline__ void filter_and_adjoint(const real* theta, const real* data, real* value, real* gradient, real* tape, i64 B,
                                                          i64 N) {
  const i64 slots = gridDim.x * (i64)blockDim.x, slot = blockIdx.x * (i64)blockDim.x + threadIdx.x;
  SAMPLES(s, B) {
    Sample x(theta, data, s, B, N);
    for (i64 t = 0; t < N; ++t) {
      EACH(i, K) tape[(t * (K + TRIANGLE) + i) * slots + slot] = x.m[i];
      EACH(i, TRIANGLE) tape[(t * (K + TRIANGLE) + K + i) * slots + slot] = x.P[i];
      x.step(t);
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
    }
    EACH(i, K) EACH(j, i) bar.P[AT(i, j)] = 2 * bar.P[AT(i, j)];
    bar.store(gradient, x);
  }
}
extern "C" __global__ void kalman_value(const real* theta, const real* data, real* value, i64 B, i64 N) {
  filter(theta, data, value, B, N);
}

extern "C" __global__ void kalman_value_and_grad(const real* theta, const real* data, real* value, real* gradient, real* tape, i64 B, i64 N) {
  filter_and_adjoint(theta, data, value, gradient, tape, B, N);
}
