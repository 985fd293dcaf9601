"""Kernels in CUDA C: each with its arguments, and a NumPy function of the arguments that gives the same."""

import math

import numpy as np

R = np.random.default_rng(7)

LOG_LIKELIHOOD = r"""
extern "C" __global__
void log_likelihood_kernel(float* logLs, const float* thetas, const float* x, const int N,
                           const int batch_size) {
    // compute the global thread index (1D grid)
    int idx = blockIdx.x * blockDim.x + threadIdx.x;
    // only compute if thread corresponds to a sample in the batch
    if (idx < batch_size) {
        // extract parameters for this thread/sample
        float mu1     = thetas[0 * batch_size + idx];
        float mu2     = thetas[1 * batch_size + idx];
        float sigma_1 = thetas[2 * batch_size + idx];
        float sigma_2 = thetas[3 * batch_size + idx];

        // compute inverses of standard deviations once to avoid repeated division
        float inv_sigma1 = 1.0f / sigma_1;
        float inv_sigma2 = 1.0f / sigma_2;

        // accumulate quadratic term of Gaussian log-likelihood
        float quad = 0.0f;
        #pragma unroll 4
        for (int i = 0; i < N; ++i) {
            float d1 = (x[i] - mu1) * inv_sigma1;
            float d2 = (x[N + i] - mu2) * inv_sigma2;
            quad += d1 * d1 + d2 * d2;
        }

        // formula: -0.5 * quad - N*log(sigma1*sigma2) - N*0.5*log(2pi)
        logLs[idx] = -0.5f * quad - N * (logf(sigma_1) + logf(sigma_2))
                   - N * logf(2.0f * 3.14159265358979323846);
    }
}
"""

TILED = r"""
#define TILE 4
#define AT(a, i, j, n) a[(i) * (n) + (j)]
extern "C" __global__ void tiled(const double* a, const double* b, double* c, int n, int m, int k) {
  __shared__ double left[TILE][TILE], right[TILE][TILE];
  int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
  double sum = 0;
  for (int t = 0; t < (k + TILE - 1) / TILE; t++) {
    int p = t * TILE + threadIdx.x, q = t * TILE + threadIdx.y;
    left[threadIdx.y][threadIdx.x] = row < n && p < k ? AT(a, row, p, k) : 0.0;
    right[threadIdx.y][threadIdx.x] = (q < k && column < m) ? AT(b, q, column, m) : 0.0;
    __syncthreads();
    for (int s = 0; s < TILE; s++) sum += left[threadIdx.y][s] * right[s][threadIdx.x];
    __syncthreads();
  }
  if (row < n && column < m) AT(c, row, column, m) = sum;
}
"""

BLOCK_SUM = r"""
extern "C" __global__ void block_sum(const double* x, double* out, int n) {
  extern __shared__ double part[];
  unsigned int tid = threadIdx.x;
  double mine = 0.0;
  for (unsigned int i = blockIdx.x * blockDim.x + tid; i < n; i += blockDim.x * gridDim.x)
    mine += x[i] * x[i];
  part[tid] = mine;
  __syncthreads();
  for (int s = blockDim.x / 2; s > 0; s >>= 1) {
    if (tid < s) part[tid] += part[tid + s];
    __syncthreads();
  }
  if (tid == 0) atomicAdd(out, sqrt(part[0] + 1.0));
}
"""


LEAPFROG = r"""
__device__ double force(double q, double k) { return -k * q - 0.1 * q * q * q; }
__device__ void store(double* out, int i, double v) { out[i] = v; }
const double HALF = 0.5;
extern "C" __global__ void leapfrog(double* q, const double* p0, double k, double end, long long n) {
  const long long all = (long long)blockDim.x * gridDim.x;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += all) {
    double x = q[i], v = p0[i], t = 0, h = 0.05;
    int steps = 0;
    while (t < end && steps < 1000) {
      v += HALF * h * force(x, k);
      x += h * v;
      v += HALF * h * force(x, k);
      t += h;
      if (fabs(x) > 3.0) { x *= 0.9; continue; }
      if (++steps > 30) break;
    }
    store(q, i, x + 0.01 * v);
  }
}
"""

SPARSE = r"""
extern "C" __global__ void product(const int* starts, const int* columns, const double* values,
                                   const double* x,
                                   double* y, int rows) {
  const int row = threadIdx.x + blockIdx.x * blockDim.x;
  if (row >= rows) return;
  double total = 0;
  const double* v = values + starts[row];
  for (int j = starts[row]; j < starts[row + 1]; j++, v++) total += *v * x[columns[j]];
  y[row] = tanh(total) + (row % 2 ? 1.0 : pow(total, 2));
}
"""

HASHED = r"""
extern "C" __global__ void hashed(const double* x, double* bins, int n, int m) {
  int i = blockDim.x * blockIdx.x + threadIdx.x;
  if (i >= n) return;
  unsigned int state = i * 747796405u + 2891336453u;
  state = ((state >> ((state >> 28u) + 4u)) ^ state) * 277803737u;
  state = (state >> 22u) ^ state;
  int left = (i - 3) / 2;
  double w[2] = {x[i], 1.0};
  for (int k = 1; k >= 0; --k) atomicAdd(&bins[(state + k) % m], w[k] * w[0] * (left < 0 ? -1.0 : 0.5));
}
"""


def log_likelihood(thetas, x):
    mu, sigma = thetas[:2], thetas[2:]
    quad = (((x[:, :, None] - mu[:, None]) / sigma[:, None]) ** 2).sum((0, 1))
    return -0.5 * quad - x.shape[1] * (np.log(sigma).sum(0) + math.log(2 * math.pi))


def leapfrog(q, p, k, end):
    out = []
    for x, v in zip(q, p, strict=True):
        t, steps = 0.0, 0
        while t < end and steps < 1000:
            v = v + 0.5 * 0.05 * (-k * x - 0.1 * x**3)
            x = x + 0.05 * v
            v = v + 0.5 * 0.05 * (-k * x - 0.1 * x**3)
            t += 0.05
            if abs(x) > 3.0:
                x = x * 0.9
                continue
            steps += 1
            if steps > 30:
                break
        out.append(x + 0.01 * v)
    return np.array(out)


STARTS, COLUMNS = np.array([0, 2, 2, 5, 6], np.int32), np.array([0, 3, 1, 2, 4, 0], np.int32)


def product(values, x):
    total = np.array([values[s:e] @ x[COLUMNS[s:e]] for s, e in zip(STARTS[:-1], STARTS[1:], strict=True)])
    return np.tanh(total) + np.where(np.arange(4) % 2 == 1, 1.0, total**2)


def hashed(x):
    bins = [0.0] * 5
    for i, v in enumerate(x):
        s = (i * 747796405 + 2891336453) % 2**32
        s = ((s >> ((s >> 28) + 4)) ^ s) * 277803737 % 2**32
        s = (s >> 22) ^ s
        left = int((i - 3) / 2)
        for k, w in ((1, 1.0), (0, v)):
            bins[(s + k) % 2**32 % 5] += w * v * (-1.0 if left < 0 else 0.5)
    return np.array(bins)


class Case:
    """A kernel; `launch(xp, k, *args)` calls it and gives its result; `reference` gives the same by NumPy."""

    def __init__(self, source, entry, args, launch, reference):
        self.source, self.entry, self.args, self.launch, self.reference = (
            source,
            entry,
            args,
            launch,
            reference,
        )


def launch_likelihood(xp, k, thetas, x):
    out = xp.zeros(thetas.shape[1], thetas.dtype)
    k((2,), (2,), (out, thetas, x, np.int32(x.shape[1]), np.int32(thetas.shape[1])))
    return out


def launch_tiled(xp, k, a, b):
    c = xp.zeros((a.shape[0], b.shape[1]))
    k((2, 2), (4, 4), (a, b, c, a.shape[0], b.shape[1], a.shape[1]))
    return c


def launch_block_sum(xp, k, x):
    out = xp.zeros(())
    k((2,), (8,), (x, out, len(x)), shared_mem=64)
    return out


def launch_leapfrog(xp, k, q, p, stiffness):
    q = q.copy()
    k((1,), (2,), (q, p, stiffness, 2.0, q.size))
    return q


def launch_product(xp, k, values, x):
    y = xp.zeros(4)
    k(2, 3, (xp.asarray(STARTS), xp.asarray(COLUMNS), values, x, y, 4))
    return y


def launch_hashed(xp, k, x):
    bins = xp.zeros(5)
    k((3,), (3,), (x, bins, x.size, 5))
    return bins


def block_sum(x):
    mine = [sum(x[i] ** 2 for i in range(len(x)) if i // 8 % 2 == b) for b in (0, 1)]
    return np.sqrt(mine[0] + 1.0) + np.sqrt(mine[1] + 1.0)


THETAS = np.array([[0.5, 0.6, 0.7], [0.5, 0.4, 0.3], [0.1, 0.2, 0.15], [0.1, 0.2, 0.25]])
X = np.array([[0.0, 0.5, 0.3, 0.4, 0.5], [0.6, 0.7, 0.8, 0.9, 1.0]])
CASES = {
    "log likelihood": Case(
        LOG_LIKELIHOOD.replace("float", "double").replace("logf", "log"),
        "log_likelihood_kernel", (THETAS, X), launch_likelihood, log_likelihood,
    ),
    "tiled product": Case(
        TILED, "tiled", (R.random((6, 7)), R.random((7, 5))), launch_tiled, lambda a, b: a @ b
    ),
    "block sums": Case(BLOCK_SUM, "block_sum", (R.random(21),), launch_block_sum, block_sum),
    "leapfrog": Case(
        LEAPFROG, "leapfrog", (np.array([0.3, 2.9, -1.0]), np.array([0.1, 3.0, 1.0]), 1.3), launch_leapfrog,
        lambda q, p, k: leapfrog(q, p, k, 2.0),
    ),
    "sparse product": Case(SPARSE, "product", (R.random(6), R.random(5)), launch_product, product),
    "hashed bins": Case(HASHED, "hashed", (R.random(8),), launch_hashed, hashed),
}  # fmt: skip
