// Mixture of K Gaussians: the sum over data of log sum_k w_k N(x; m_k, exp(r_k)^2),  w = softmax(a).
// theta: K logits a, K means m, K log scales r.
//
// With z_k = (x - m_k) exp(-r_k) and q_k = a_k - r_k - z_k^2 / 2, a term is log sum exp q - log sum exp a - log(2 pi) / 2, and the
// responsibility of component k for the datum p_k = exp(q_k) / sum exp q:
//
//     d/da_k = sum p_k - n w_k        d/dm_k = exp(-r_k) sum p_k z_k        d/dr_k = sum p_k (z_k^2 - 1)

#define HALF_LOG_2_PI 0.91893853320467274178

template <bool GRADIENT>
static __device__ __forceinline__ void mixture(const real* theta, const real* data, real* value, real* gradient, long long B, long long N) {
  const real far = sizeof(real) == 8 ? (real)1e150 : (real)1e18;  // so far away a component has density 0, and z^2 is finite
  SAMPLES(s, B) {
    real mean[K], inverse[K], bias[K];
    double parts[K], firsts[K], seconds[K], total = 0, top = theta[s], weights = 0;
    bool valid = true;
    for (int k = 1; k < K; ++k) top = theta[k * B + s] > top ? theta[k * B + s] : top;
    for (int k = 0; k < K; ++k) {
      const double a = theta[k * B + s], r = theta[(2 * K + k) * B + s];
      mean[k] = theta[(K + k) * B + s];
      inverse[k] = own_exp(-r);
      bias[k] = a - top - r;
      weights += own_exp(a - top);
      parts[k] = firsts[k] = seconds[k] = 0;
      valid = valid && is_finite(mean[k]) && is_finite(r) && is_finite(inverse[k]);
    }
    long long seen = N;
    for (long long begin = 0; begin < N; begin += CHUNK) {
      const long long end = begin + CHUNK < N ? begin + CHUNK : N;
      real some = 0, part[K] = {}, first[K] = {}, second[K] = {};
      for (long long n = begin; n < end; ++n) {
        const real x = DATUM(0, n);
#if MISSING
        if (x != x) {
          --seen;
          continue;
        }
#endif
        real z[K], q[K], most = 0, sum = 0;
        for (int k = 0; k < K; ++k) {
          z[k] = (x - mean[k]) * inverse[k];
          z[k] = z[k] > far ? far : z[k] < -far ? -far : z[k];
          q[k] = fma((real)-0.5 * z[k], z[k], bias[k]);
          most = k == 0 || q[k] > most ? q[k] : most;
        }
        for (int k = 0; k < K; ++k) {
          q[k] = own_exp(q[k] - most);
          sum += q[k];
        }
        some += most + own_log(sum);
        if (GRADIENT) {
          const real over = 1 / sum;
          for (int k = 0; k < K; ++k) {
            const real p = q[k] * over, pz = p * z[k];
            part[k] += p;
            first[k] += pz;
            second[k] = fma(pz, z[k], second[k]);
          }
        }
      }
      total += some;
      for (int k = 0; k < K; ++k) {
        parts[k] += part[k];
        firsts[k] += first[k];
        seconds[k] += second[k];
      }
    }
    total -= seen * (own_log(weights) + HALF_LOG_2_PI);
    valid = valid && is_finite(total);
    value[s] = valid ? total : REJECTED;
    if (GRADIENT) {
      for (int k = 0; k < K; ++k) {
        const double w = own_exp(theta[k * B + s] - top) / weights;
        gradient[k * B + s] = valid ? parts[k] - seen * w : 0;
        gradient[(K + k) * B + s] = valid ? firsts[k] * inverse[k] : 0;
        gradient[(2 * K + k) * B + s] = valid ? seconds[k] - parts[k] : 0;
      }
    }
  }
}

extern "C" __global__ void mixture_value(const real* theta, const real* data, real* value, long long B, long long N) {
  mixture<false>(theta, data, value, 0, B, N);
}

extern "C" __global__ void mixture_value_and_grad(const real* theta, const real* data, real* value, real* gradient, long long B, long long N) {
  mixture<true>(theta, data, value, gradient, B, N);
}
