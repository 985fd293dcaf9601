// What the filters share, after _library.cu: where the arguments of one sample lie, where their gradients go, and the prediction.  Each
// argument is constant (mode 0: rows of theta), one for each step (1: rows of theta, step after step), or one for each step without a
// gradient (2: rows of the data).  K is the number of states, N that of the steps.

#define TRIANGLE (K * (K + 1) / 2)
#define AT(i, j) ((i) >= (j) ? (i) * ((i) + 1) / 2 + (j) : (j) * ((j) + 1) / 2 + (i))
#define EACH(i, n) _Pragma("unroll") for (int i = 0; i < (n); ++i)
#define LOG_2_PI 1.8378770664093454836

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

// The log-likelihood from minus twice the sum of its terms; `valid` is false afterwards where the gradient is to be 0.
static __device__ __forceinline__ real outcome(double total, i64 seen, bool& valid) {
  const real v = (real)(-0.5 * (total + seen * LOG_2_PI));
  const real out = valid && v == v ? v : (real)REJECTED;
  valid = valid && is_finite(v);
  return out;
}

// m <- A m, P <- A P A' + Q.
static __device__ __forceinline__ void predict(const real (&A)[K * K], const real (&Q)[TRIANGLE], real (&m)[K], real (&P)[TRIANGLE]) {
  real n[K], M[K * K];
  EACH(i, K) {
    n[i] = A[i * K] * m[0];
    EACH(j, K) if (j) n[i] = n[i] + A[i * K + j] * m[j];
    EACH(j, K) {
      real sum = A[i * K] * P[AT(0, j)];
      EACH(p, K) if (p) sum = sum + A[i * K + p] * P[AT(p, j)];
      M[i * K + j] = sum;
    }
  }
  EACH(i, K) m[i] = n[i];
  EACH(i, K) EACH(j, i + 1) {
    real sum = Q[AT(i, j)];
    EACH(p, K) sum = sum + M[i * K + p] * A[j * K + p];
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
    EACH(p, K) if (p) sum = sum + P_bar[AT(i, p)] * A[p * K + j];
    PA[i * K + j] = sum;
  }
  EACH(i, K) EACH(j, K) {
    real sum = PA[i * K] * P[AT(0, j)];
    EACH(p, K) if (p) sum = sum + PA[i * K + p] * P[AT(p, j)];
    A_bar[i * K + j] = A_bar[i * K + j] + (m_bar[i] * m[j] + 2 * sum);
  }
  EACH(i, K) EACH(j, i + 1) Q_bar[AT(i, j)] = Q_bar[AT(i, j)] + (i == j ? P_bar[AT(i, j)] : 2 * P_bar[AT(i, j)]);
  EACH(j, K) {
    mean[j] = A[j] * m_bar[0];
    EACH(i, K) if (i) mean[j] = mean[j] + A[i * K + j] * m_bar[i];
  }
  EACH(i, K) EACH(j, i + 1) {
    real sum = A[i] * PA[j];
    EACH(p, K) if (p) sum = sum + A[p * K + i] * PA[p * K + j];
    P_bar[AT(i, j)] = sum;
  }
  EACH(i, K) m_bar[i] = mean[i];
}
