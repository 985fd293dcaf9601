// Log-likelihood of a linear Gaussian state space model with D numbers observed at a step, and its gradient.
// The model and the order of the parameters are in kalman_vector.py; the sweeps and the prediction in filters.cu.
//
// One sample a thread.  With m, P the mean and covariance of the state before the observations y:
//
//     U = P C'     S = C U + R = L L'     v = y - C m     V = 1 / L     z = V v     W = U V'
//     contribution -(D log 2 pi + 2 sum log L[a, a] + z.z) / 2
//     m <- m + W z                        P <- P - W W'
//
// An observation that is nan has 0 in its column of U and its element of v, and a row and column of
// the identity in S: the others are as if it were not there.  The adjoint, with G = U / S = W V and s = S \ v = V' z:
//
//     U_bar = m_bar s' - 2 P_bar G + C' S_bar          v_bar = G' m_bar - s
//     S_bar = G' P_bar G - sym(G' m_bar s') - (V' V - s s') / 2
//     C_bar += S_bar U' + U_bar' P - v_bar m'          P_bar += sym(U_bar C)          m_bar -= C' v_bar

struct Seen {
  real U[K * D], W[K * D], V[OBSERVED], z[D], term;
  bool here[D], positive;
  int count;

  __device__ __forceinline__ void innovation(const real (&C)[D * K], const real (&R)[OBSERVED], const real (&y)[D], const real (&m)[K],
                                             const real (&P)[TRIANGLE], real (&S)[OBSERVED], real (&v)[D]) {
    EACH(a, D) here[a] = y[a] == y[a];
    EACH(i, K) EACH(a, D) {
      real sum = P[AT(i, 0)] * C[a * K];
      EACH(j, K) if (j) sum = fma(P[AT(i, j)], C[a * K + j], sum);
      U[i * D + a] = here[a] ? sum : (real)0;
    }
    EACH(a, D) {
      v[a] = y[a];
      EACH(i, K) v[a] = fma(-C[a * K + i], m[i], v[a]);
      v[a] = here[a] ? v[a] : (real)0;
      EACH(b, a + 1) {
        real sum = R[AT(a, b)];
        EACH(i, K) sum = fma(C[a * K + i], U[i * D + b], sum);
        S[AT(a, b)] = here[a] && here[b] ? sum : (real)(a == b);
      }
    }
  }

  // S becomes L; V, and whether S is positive definite.  The sum of the logarithms of the diagonal of L.
  __device__ __forceinline__ real factor(real (&S)[OBSERVED]) {
    positive = true;
    EACH(a, D) EACH(b, a + 1) {
      real sum = S[AT(a, b)];
      EACH(c, b) sum = fma(-S[AT(a, c)], S[AT(b, c)], sum);
      if (a == b) positive = positive && sum > 0;
      S[AT(a, b)] = a == b ? sqrt(sum) : sum / S[AT(b, b)];
    }
    real logs = 0;
    EACH(a, D) {
      logs = logs + own_log(S[AT(a, a)]);
      V[AT(a, a)] = 1 / S[AT(a, a)];
      EACH(b, a) {
        real sum = S[AT(a, b)] * V[AT(b, b)];
        EACH(c, a) if (c > b) sum = fma(S[AT(a, c)], V[AT(c, b)], sum);
        V[AT(a, b)] = -(sum * V[AT(a, a)]);
      }
    }
    return logs;
  }

  __device__ __forceinline__ void update(const real (&C)[D * K], const real (&R)[OBSERVED], const real (&y)[D], real (&m)[K],
                                         real (&P)[TRIANGLE]) {
    real S[OBSERVED], v[D], squares = 0;
    innovation(C, R, y, m, P, S, v);
    const real logs = factor(S);
    count = 0;
    EACH(a, D) {
      count += here[a];
      z[a] = V[AT(a, 0)] * v[0];
      EACH(b, a + 1) if (b) z[a] = fma(V[AT(a, b)], v[b], z[a]);
      squares = fma(z[a], z[a], squares);
      EACH(i, K) {
        real sum = U[i * D] * V[AT(a, 0)];
        EACH(b, a + 1) if (b) sum = fma(U[i * D + b], V[AT(a, b)], sum);
        W[i * D + a] = sum;
        m[i] = fma(sum, z[a], m[i]);
      }
    }
    EACH(i, K) EACH(j, i + 1) EACH(a, D) P[AT(i, j)] = fma(-W[i * D + a], W[j * D + a], P[AT(i, j)]);
    term = 2 * logs + squares;
  }

  // S_bar, with 0 for what is not observed; v_bar in place of z.
  __device__ __forceinline__ void innovation_adjoint(const real (&G)[K * D], const real (&PG)[K * D], const real (&s)[D],
                                                     const real (&m_bar)[K], real (&S_bar)[OBSERVED]) {
    real e[D];
    EACH(a, D) {
      e[a] = m_bar[0] * G[a];
      EACH(i, K) if (i) e[a] = fma(m_bar[i], G[i * D + a], e[a]);
      z[a] = here[a] ? e[a] - s[a] : (real)0;
    }
    EACH(a, D) EACH(b, a + 1) {
      real sum = G[a] * PG[b], inverse = 0;
      EACH(i, K) if (i) sum = fma(G[i * D + a], PG[i * D + b], sum);
      EACH(c, D) if (c >= a) inverse = fma(V[AT(c, a)], V[AT(c, b)], inverse);
      sum = fma((real)-0.5, fma(e[a], s[b], s[a] * e[b]), sum);
      sum = fma((real)-0.5, fma(-s[a], s[b], inverse), sum);
      S_bar[AT(a, b)] = here[a] && here[b] ? sum : (real)0;
    }
  }

  __device__ __forceinline__ void update_adjoint(const real (&C)[D * K], const real (&m)[K], const real (&P)[TRIANGLE],
                                                 real (&C_bar)[D * K], real (&R_bar)[OBSERVED], real (&m_bar)[K],
                                                 real (&P_bar)[TRIANGLE]) {
    real G[K * D], PG[K * D], s[D], S_bar[OBSERVED];
    EACH(a, D) {
      s[a] = 0;
      EACH(c, D) if (c >= a) s[a] = fma(V[AT(c, a)], z[c], s[a]);
      EACH(i, K) {
        real sum = 0;
        EACH(c, D) if (c >= a) sum = fma(W[i * D + c], V[AT(c, a)], sum);
        G[i * D + a] = sum;
      }
    }
    EACH(i, K) EACH(a, D) {
      real sum = P_bar[AT(i, 0)] * G[a];
      EACH(j, K) if (j) sum = fma(P_bar[AT(i, j)], G[j * D + a], sum);
      PG[i * D + a] = sum;
    }
    innovation_adjoint(G, PG, s, m_bar, S_bar);
    EACH(i, K) EACH(a, D) {  // U_bar, in place of PG
      real sum = fma(m_bar[i], s[a], -2 * PG[i * D + a]);
      EACH(b, D) sum = fma(C[b * K + i], S_bar[AT(a, b)], sum);
      PG[i * D + a] = here[a] ? sum : (real)0;
    }
    EACH(a, D) EACH(i, K) {
      real sum = fma(-z[a], m[i], C_bar[a * K + i]);
      EACH(b, D) sum = fma(S_bar[AT(a, b)], U[i * D + b], sum);
      EACH(j, K) sum = fma(P[AT(i, j)], PG[j * D + a], sum);
      C_bar[a * K + i] = sum;
      m_bar[i] = fma(-C[a * K + i], z[a], m_bar[i]);
    }
    EACH(a, D) EACH(b, a + 1) R_bar[AT(a, b)] = R_bar[AT(a, b)] + (a == b ? S_bar[AT(a, b)] : 2 * S_bar[AT(a, b)]);
    EACH(i, K) EACH(j, i + 1) EACH(a, D) {
      P_bar[AT(i, j)] = fma((real)0.5, fma(PG[i * D + a], C[a * K + j], PG[j * D + a] * C[a * K + i]), P_bar[AT(i, j)]);
    }
  }
};

extern "C" __global__ void kalman_vector_value(const real* theta, const real* data, real* value, i64 B, i64 N) {
  filter<Seen>(theta, data, value, B, N);
}

extern "C" __global__ void kalman_vector_value_and_grad(const real* theta, const real* data, real* value, real* gradient, real* tape, i64 B,
                                                        i64 N) {
  filter_and_adjoint<Seen>(theta, data, value, gradient, tape, B, N);
}
