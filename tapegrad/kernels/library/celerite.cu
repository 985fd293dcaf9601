// Log-likelihood of a Gaussian process whose covariance is a sum of damped terms, and its gradient, in O(N R^2).  The model and the
// order of the parameters are in celerite.py.  REAL, COMPLEX, QUADRATIC: how many terms of each kind; JITTER, MEAN: is there such a row?
//
// One sample a thread.  A term is  u' F(gap) v  with  v = 1, F = exp(-c gap)  or, for one of two rows,
//
//     v = (1, 0)    F = [[p, -m], [n, p]]    p = exp(-c gap) cos(w gap)    n = exp(-c gap) sin(w gap) / w    m = s n    s = w^2
//
// where s may be negative: then cosh and sinh, with the rate of the slower exponential, c - |w|.  Over all terms, F block diagonal:
//
//     q = S u      D = variance + k(0) - u.q      w = v - q      z = y - mean - u.f      contribution -(log 2 pi + log D + z^2 / D) / 2
//     S <- S + w w' / D    f <- f + w z / D       (left out where the datum is missing)
//     S <- F S F'          f <- F f               (F of the gap to the next datum)
//
// The reverse sweep starts each step from the stored S and f.  S is a lower triangle, row after row; its cotangent is kept as a
// symmetric matrix, and an element off the diagonal stands for two.

#define PAIRS (COMPLEX + QUADRATIC)
#define TERMS (REAL + PAIRS)
#define R (REAL + 2 * PAIRS)
#define TRIANGLE (R * (R + 1) / 2)
#define AT(i, j) ((i) >= (j) ? (i) * ((i) + 1) / 2 + (j) : (j) * ((j) + 1) / 2 + (i))
#define EACH(i, n) _Pragma("unroll") for (int i = 0; i < (n); ++i)
#define ROW(k) ((k) < REAL ? (k) : 2 * (k) - REAL)                                // the first row of term k
#define AT_THETA(k) ((k) < REAL ? 2 * (k) : 4 * (k) - 2 * REAL)                   // its first parameter
#define LAST (2 * REAL + 4 * PAIRS)                                               // the first parameter after those of the terms
#define SQUARE(k) ((k) >= REAL + COMPLEX)                                         // its fourth parameter is w0^2, not w
#define LOG_2_PI 1.8378770664093454836

typedef long long i64;

struct Model {
  real u[R], c[TERMS], s[TERMS], root[TERMS], rate[TERMS], inverse[TERMS], base, mean;  // root = sqrt(|s|), base = k(0) + jitter
  bool valid;
};

static __device__ __forceinline__ Model model(const real* theta, i64 B, i64 b) {
  Model x;
  x.valid = true;
  x.base = 0;
  EACH(k, TERMS) {
    const real a = theta[AT_THETA(k) * B + b];
    x.base = x.base + a;
    x.u[ROW(k)] = a;
    x.s[k] = x.root[k] = x.inverse[k] = 0;
    if (k < REAL) {
      x.c[k] = x.rate[k] = theta[(AT_THETA(k) + 1) * B + b];
    } else {
      const real second = theta[(AT_THETA(k) + 1) * B + b], last = theta[(AT_THETA(k) + 3) * B + b];
      x.c[k] = theta[(AT_THETA(k) + 2) * B + b];
      x.u[ROW(k) + 1] = SQUARE(k) ? second : second * last;
      x.s[k] = SQUARE(k) ? last - x.c[k] * x.c[k] : last * last;
      x.root[k] = SQUARE(k) ? sqrt(fabs(x.s[k])) : fabs(last);
      x.rate[k] = x.s[k] < 0 ? last / (x.c[k] + x.root[k]) : x.c[k];
      x.inverse[k] = x.root[k] > 0 ? 1 / x.root[k] : (real)0;
      x.valid = x.valid && is_finite(x.u[ROW(k) + 1]) && is_finite(x.s[k]) && x.rate[k] >= 0;
    }
    x.valid = x.valid && x.c[k] >= 0 && is_finite(x.c[k]);
  }
#if JITTER
  x.base = x.base + theta[LAST * B + b];
  x.valid = x.valid && theta[LAST * B + b] >= 0;
#endif
  x.mean = MEAN ? theta[(LAST + JITTER) * B + b] : (real)0;
  x.valid = x.valid && is_finite(x.base) && is_finite(x.mean);
  return x;
}

struct Transition {
  real p[TERMS], n[TERMS], m[TERMS];
};

static __device__ __forceinline__ Transition transition(const Model& x, real gap) {
  Transition f;
  EACH(k, TERMS) {
    const real e = own_exp(-(x.rate[k] * gap)), angle = x.root[k] * gap;
    if (k < REAL) {
      f.p[k] = e;
    } else if (x.s[k] < 0) {
      const real half = own_expm1(-2 * angle) * (real)-0.5;
      f.p[k] = e - e * half;
      f.n[k] = e * half * x.inverse[k];
    } else {
      f.p[k] = e * own_cos(angle);
      f.n[k] = x.root[k] > 0 ? e * own_sin(angle) * x.inverse[k] : e * gap;
    }
    if (k >= REAL) f.m[k] = x.s[k] * f.n[k];
  }
  return f;
}

// What a datum gives.
struct Seen {
  real q[R], w[R], D, z, inverse, gain;  // gain = z / D
  bool here;
};

static __device__ __forceinline__ Seen seen_from(const Model& x, const real (&S)[TRIANGLE], const real (&f)[R], real y, real variance) {
  Seen d;
  d.here = y == y && variance == variance;
  d.D = variance + x.base;
  d.z = y - x.mean;
  EACH(i, R) {
    d.q[i] = 0;
    EACH(j, R) d.q[i] = fma(S[AT(i, j)], x.u[j], d.q[i]);
    d.w[i] = -d.q[i];
  }
  EACH(i, R) {
    d.D = fma(-x.u[i], d.q[i], d.D);
    d.z = fma(-x.u[i], f[i], d.z);
  }
  EACH(k, TERMS) d.w[ROW(k)] = 1 - d.q[ROW(k)];
  d.inverse = d.here ? 1 / d.D : (real)0;
  d.gain = d.here ? d.z * d.inverse : (real)0;
  return d;
}

static __device__ __forceinline__ void update(const Seen& d, real (&S)[TRIANGLE], real (&f)[R]) {
  EACH(i, R) {
    const real g = d.w[i] * d.inverse;
    EACH(j, i + 1) S[AT(i, j)] = fma(g, d.w[j], S[AT(i, j)]);
    f[i] = fma(d.w[i], d.gain, f[i]);
  }
}

// S <- F S F', f <- F f.
static __device__ __forceinline__ void propagate(const Transition& F, real (&S)[TRIANGLE], real (&f)[R]) {
  real M[R * R];
  EACH(k, TERMS) {
    const int i = ROW(k);
    if (k < REAL) {
      EACH(j, R) M[i * R + j] = F.p[k] * S[AT(i, j)];
      f[i] = F.p[k] * f[i];
    } else {
      EACH(j, R) {
        M[i * R + j] = fma(F.p[k], S[AT(i, j)], -(F.m[k] * S[AT(i + 1, j)]));
        M[(i + 1) * R + j] = fma(F.p[k], S[AT(i + 1, j)], F.n[k] * S[AT(i, j)]);
      }
      const real first = f[i];
      f[i] = fma(F.p[k], first, -(F.m[k] * f[i + 1]));
      f[i + 1] = fma(F.p[k], f[i + 1], F.n[k] * first);
    }
  }
  EACH(k, TERMS) {
    const int j = ROW(k);
    EACH(i, R) {
      if (k < REAL) {
        if (i >= j) S[AT(i, j)] = F.p[k] * M[i * R + j];
      } else {
        if (i >= j) S[AT(i, j)] = fma(F.p[k], M[i * R + j], -(F.m[k] * M[i * R + j + 1]));
        if (i > j) S[AT(i, j + 1)] = fma(F.p[k], M[i * R + j + 1], F.n[k] * M[i * R + j]);
      }
    }
  }
}

// From the cotangents of F S F' and F f to those of S and f, in place, and half of those of p, n and m.  S, f: before the product.
static __device__ __forceinline__ void propagate_adjoint(const Transition& F, const real (&S)[TRIANGLE], const real (&f)[R],
                                                         real (&S_bar)[TRIANGLE], real (&f_bar)[R], Transition& bar) {
  real Y[R * R];
  const real half = 0.5;
  EACH(k, TERMS) {
    const int j = ROW(k);
    if (k < REAL) {
      EACH(i, R) Y[i * R + j] = F.p[k] * S_bar[AT(i, j)];
      bar.p[k] = half * f_bar[j] * f[j];
      f_bar[j] = F.p[k] * f_bar[j];
    } else {
      EACH(i, R) {
        Y[i * R + j] = fma(F.p[k], S_bar[AT(i, j)], F.n[k] * S_bar[AT(i, j + 1)]);
        Y[i * R + j + 1] = fma(F.p[k], S_bar[AT(i, j + 1)], -(F.m[k] * S_bar[AT(i, j)]));
      }
      const real first = f_bar[j], second = f_bar[j + 1];
      bar.p[k] = half * fma(first, f[j], second * f[j + 1]);
      bar.n[k] = half * second * f[j];
      bar.m[k] = half * first * f[j + 1];
      f_bar[j] = fma(F.p[k], first, F.n[k] * second);
      f_bar[j + 1] = fma(F.p[k], second, -(F.m[k] * first));
    }
  }
  EACH(k, TERMS) {  // with Y = S_bar F, the cotangent of F is 2 Y S, of which the diagonal blocks count
    const int i = ROW(k);
    EACH(j, R) bar.p[k] = fma(Y[i * R + j], S[AT(i, j)], bar.p[k]);
    if (k >= REAL) {
      EACH(j, R) bar.p[k] = fma(Y[(i + 1) * R + j], S[AT(i + 1, j)], bar.p[k]);
      EACH(j, R) bar.n[k] = fma(Y[(i + 1) * R + j], S[AT(i, j)], bar.n[k]);
      real sum = 0;
      EACH(j, R) sum = fma(Y[i * R + j], S[AT(i + 1, j)], sum);
      bar.m[k] = -(bar.m[k] + sum);
      EACH(j, i + 1) S_bar[AT(i, j)] = fma(F.p[k], Y[i * R + j], F.n[k] * Y[(i + 1) * R + j]);
      EACH(j, i + 2) S_bar[AT(i + 1, j)] = fma(F.p[k], Y[(i + 1) * R + j], -(F.m[k] * Y[i * R + j]));
    } else {
      EACH(j, i + 1) S_bar[AT(i, j)] = F.p[k] * Y[i * R + j];
    }
  }
}

// The derivative of n by s: (gap p - n) / (2 s), near s = 0 by the series of x cot x, Abramowitz & Stegun 4.3.70.
static __device__ __forceinline__ real slope(real s, real p, real n, real gap) {
  const real x = s * gap * gap;
  if (x > (real)-0.25 && x < (real)0.25) {
    const real zeta[] = {SERIES};
    real sum = zeta[0];
    EACH(k, SERIES_LENGTH - 1) sum = fma(sum, x, zeta[k + 1]);
    return -(gap * gap * n * sum);
  }
  return fma(gap, p, -n) / (2 * s);
}

// Sums over the data, in parts: of u, of c and s of each term, of base and of the mean.
struct Sums {
  real u[R], c[TERMS], s[TERMS], base, mean;
};

static __device__ __forceinline__ void transition_adjoint(const Model& x, const Transition& F, const Transition& bar, real gap, Sums& part) {
  EACH(k, TERMS) {
    if (k < REAL) {
      part.c[k] = fma(-2 * gap, bar.p[k] * F.p[k], part.c[k]);
    } else {
      const real by_c = fma(bar.p[k], F.p[k], fma(bar.n[k], F.n[k], bar.m[k] * F.m[k]));
      const real by_m = bar.m[k] * fma(gap, F.p[k], F.n[k]) - gap * F.n[k] * bar.p[k];
      part.c[k] = fma(-2 * gap, by_c, part.c[k]);
      part.s[k] = part.s[k] + fma(2 * bar.n[k], slope(x.s[k], F.p[k], F.n[k], gap), by_m);
    }
  }
}

static __device__ __forceinline__ void update_adjoint(const Model& x, const Seen& d, const real (&S)[TRIANGLE], const real (&f)[R],
                                                      real (&S_bar)[TRIANGLE], real (&f_bar)[R], Sums& part) {
  real h[R], q_bar[R], quadratic = 0, linear = 0;
  EACH(i, R) {
    h[i] = 0;
    EACH(j, R) h[i] = fma(S_bar[AT(i, j)], d.w[j], h[i]);
  }
  EACH(i, R) {
    quadratic = fma(d.w[i], h[i], quadratic);
    linear = fma(d.w[i], f_bar[i], linear);
  }
  const real half = 0.5, z_bar = fma(d.inverse, linear, -d.gain);
  const real D_bar = half * d.gain * d.gain - d.inverse * fma(linear, d.gain, fma(d.inverse, quadratic, half));
  EACH(i, R) {
    q_bar[i] = -fma(D_bar, x.u[i], fma(d.gain, f_bar[i], 2 * d.inverse * h[i]));
    f_bar[i] = fma(-z_bar, x.u[i], f_bar[i]);
  }
  EACH(i, R) {
    real sum = -fma(D_bar, d.q[i], z_bar * f[i]);
    EACH(j, R) sum = fma(S[AT(i, j)], q_bar[j], sum);
    part.u[i] = part.u[i] + sum;
    EACH(j, i + 1) S_bar[AT(i, j)] = fma(half, fma(q_bar[i], x.u[j], x.u[i] * q_bar[j]), S_bar[AT(i, j)]);
  }
  part.base = part.base + D_bar;
  part.mean = part.mean - z_bar;
}

static __device__ __forceinline__ real outcome(double total, i64 seen, bool& valid) {
  const real v = (real)(-0.5 * (total + seen * LOG_2_PI));
  const real out = valid && v == v ? v : (real)REJECTED;
  valid = valid && is_finite(v);
  return out;
}

#define ZERO(x, n) EACH(i_, n) x[i_] = 0;

#define STEP(t)                                                          \
  {                                                                      \
    const Seen d = seen_from(x, S, f, DATUM(1, t), DATUM(2, t));         \
    total += d.here ? (double)(own_log(d.D) + d.z * d.gain) : 0.0;       \
    seen += d.here;                                                      \
    x.valid = x.valid && (!d.here || d.D > 0);                           \
    if (t + 1 < N) {                                                     \
      update(d, S, f);                                                   \
      propagate(transition(x, DATUM(0, t + 1)), S, f);                   \
    }                                                                    \
  }

extern "C" __global__ void celerite_value(const real* theta, const real* data, real* value, i64 B, i64 N) {
  SAMPLES(s, B) {
    Model x = model(theta, B, s);
    real S[TRIANGLE], f[R];
    double total = 0;
    i64 seen = 0;
    ZERO(S, TRIANGLE)
    ZERO(f, R)
    for (i64 t = 0; t < N; ++t) STEP(t)
    value[s] = outcome(total, seen, x.valid);
  }
}

// From the sums by u, c and s to the gradient.
static __device__ __forceinline__ void finish(const Model& x, const real* theta, real* gradient, const double (&u)[R], const double (&c)[TERMS],
                                              const double (&s)[TERMS], double base, double mean, i64 B, i64 b) {
  EACH(k, TERMS) {
    real* out = gradient + AT_THETA(k) * B + b;
    out[0] = x.valid ? (real)(u[ROW(k)] + base) : (real)0;
    if (k < REAL) {
      out[B] = x.valid ? (real)c[k] : (real)0;
    } else {
      const double second = theta[(AT_THETA(k) + 1) * B + b], last = theta[(AT_THETA(k) + 3) * B + b], u2 = u[ROW(k) + 1];
      out[B] = x.valid ? (real)(SQUARE(k) ? u2 : u2 * last) : (real)0;
      out[2 * B] = x.valid ? (real)(SQUARE(k) ? c[k] - 2 * x.c[k] * s[k] : c[k]) : (real)0;
      out[3 * B] = x.valid ? (real)(SQUARE(k) ? s[k] : u2 * second + 2 * last * s[k]) : (real)0;
    }
  }
  if (JITTER) gradient[LAST * B + b] = x.valid ? (real)base : (real)0;
  if (MEAN) gradient[(LAST + JITTER) * B + b] = x.valid ? (real)mean : (real)0;
}

extern "C" __global__ void celerite_value_and_grad(const real* theta, const real* data, real* value, real* gradient, real* tape, i64 B,
                                                   i64 N) {
  const i64 slots = gridDim.x * (i64)blockDim.x, slot = blockIdx.x * (i64)blockDim.x + threadIdx.x;
  SAMPLES(s, B) {
    Model x = model(theta, B, s);
    real S[TRIANGLE], f[R];
    double total = 0;
    i64 seen = 0;
    ZERO(S, TRIANGLE)
    ZERO(f, R)
    for (i64 t = 0; t < N; ++t) {
      EACH(i, R) tape[(t * (R + TRIANGLE) + i) * slots + slot] = f[i];
      EACH(i, TRIANGLE) tape[(t * (R + TRIANGLE) + R + i) * slots + slot] = S[i];
      STEP(t)
    }
    value[s] = outcome(total, seen, x.valid);

    real S_bar[TRIANGLE], f_bar[R];
    double u[R], c[TERMS], by_s[TERMS], base = 0, mean = 0;
    Sums part;
    ZERO(S_bar, TRIANGLE)
    ZERO(f_bar, R)
    ZERO(u, R)
    ZERO(c, TERMS)
    ZERO(by_s, TERMS)
    ZERO(part.u, R)
    ZERO(part.c, TERMS)
    ZERO(part.s, TERMS)
    part.base = part.mean = 0;
    for (i64 t = N - 1; t >= 0; --t) {
      EACH(i, R) f[i] = tape[(t * (R + TRIANGLE) + i) * slots + slot];
      EACH(i, TRIANGLE) S[i] = tape[(t * (R + TRIANGLE) + R + i) * slots + slot];
      const Seen d = seen_from(x, S, f, DATUM(1, t), DATUM(2, t));
      if (t + 1 < N) {
        real T[TRIANGLE], g[R];  // S and f after the update
        EACH(i, R) g[i] = f[i];
        EACH(i, TRIANGLE) T[i] = S[i];
        update(d, T, g);
        const real gap = DATUM(0, t + 1);
        const Transition F = transition(x, gap);
        Transition bar;
        propagate_adjoint(F, T, g, S_bar, f_bar, bar);
        transition_adjoint(x, F, bar, gap, part);
      }
      update_adjoint(x, d, S, f, S_bar, f_bar, part);
      if (t % CHUNK == 0) {
        EACH(i, R) u[i] += part.u[i];
        EACH(k, TERMS) c[k] += part.c[k];
        EACH(k, TERMS) by_s[k] += part.s[k];
        base += part.base;
        mean += part.mean;
        ZERO(part.u, R)
        ZERO(part.c, TERMS)
        ZERO(part.s, TERMS)
        part.base = part.mean = 0;
      }
    }
    finish(x, theta, gradient, u, c, by_s, base, mean, B, s);
  }
}
