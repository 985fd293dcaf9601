"""Hand-written kernels that the tests of `tg.kernels.raw` use: those of the founding discussion and of the
measured failures."""

import numpy as np

import tapegrad as tg

raw = tg.kernels.raw
LOOP = """for (long long b = blockIdx.x * (long long)blockDim.x + threadIdx.x; b < B;
       b += (long long)gridDim.x * blockDim.x)"""


def kernel(name, parameters, body, head=""):
    """The text of one kernel."""
    return f'{head}\nextern "C" __global__ void {name}({parameters}) {{\n{body}\n}}\n'


# --- the Gaussian of discussion 1: theta = (mu1, mu2, sigma1, sigma2), and its first and second derivatives ---

HEAD = """
struct Sums { real s, q; };
static __device__ Sums sums(const real* x, long long N, real mu, real sigma) {
  Sums r = {0, 0};
  for (long long i = 0; i < N; ++i) {
    const real d = (x[i] - mu) / sigma;
    r.s += d;
    r.q += d * d;
  }
  return r;
}
"""
GAUSSIAN = (
    HEAD
    + kernel(
        "gaussian",
        "const real* __restrict__ theta, const real* __restrict__ x, real* value, long long B, long long N",
        f"""{LOOP} {{
    real quad = 0;
    real logs = 0;
    for (int k = 0; k < 2; ++k) {{
      quad += sums(x + k * N, N, theta[k * B + b], theta[(2 + k) * B + b]).q;
      logs += log(theta[(2 + k) * B + b]);
    }}
    value[b] = -(real)0.5 * quad - N * logs - N * (real)1.8378770664093454836;
  }}""",
    )
    + kernel(
        "gaussian_vjp",
        "const real* theta, const real* x, const real* value_bar, real* theta_bar, long long B, long long N",
        f"""{LOOP} {{
    for (int k = 0; k < 2; ++k) {{
      const real sigma = theta[(2 + k) * B + b];
      const Sums z = sums(x + k * N, N, theta[k * B + b], sigma);
      theta_bar[k * B + b] = value_bar[b] * z.s / sigma;
      theta_bar[(2 + k) * B + b] = value_bar[b] * (z.q - N) / sigma;
    }}
  }}""",
    )
    + kernel(
        "gaussian_vjp_vjp",
        "const real* theta, const real* x, const real* value_bar, const real* theta_bar_bar, real* "
        "theta_bar, real* value_bar_bar, long long B, long long N",
        f"""{LOOP} {{
    real slope = 0;
    for (int k = 0; k < 2; ++k) {{
      const real sigma = theta[(2 + k) * B + b], u = theta_bar_bar[k * B + b], v = theta_bar_bar[(2 + k) * B + b];
      const Sums z = sums(x + k * N, N, theta[k * B + b], sigma);
      const real w = value_bar[b] / (sigma * sigma);
      theta_bar[k * B + b] = w * (-N * u - 2 * z.s * v);
      theta_bar[(2 + k) * B + b] = w * (-2 * z.s * u + (N - 3 * z.q) * v);
      slope += (z.s * u + (z.q - N) * v) / sigma;
    }}
    value_bar_bar[b] = slope;
  }}""",
    )
)
GIVEN = ["in real theta[4, B]", "const real x[2, N]"]
SIZES = ["size B", "size N"]


def gaussian(order=1, source=GAUSSIAN, **options):
    """The kernel, with `order` derivatives by hand."""
    rules = {}
    if order > 1:
        second = [
            *GIVEN,
            "in real value_bar[B]",
            "in real theta_bar_bar[4, B]",
            "out real theta_bar[4, B]",
            "out real value_bar_bar[B]",
        ]
        rules = {"vjp": raw(source, "gaussian_vjp_vjp", [*second, *SIZES], **options)}
    if order > 0:
        first = [*GIVEN, "in real value_bar[B]", "out real theta_bar[4, B]", *SIZES]
        rules = {"vjp": raw(source, "gaussian_vjp", first, **rules, **options)}
    return raw(source, "gaussian", [*GIVEN, "out unsaved real value[B]", *SIZES], **rules, **options)


THETA = np.array([[0.5, 0.6, 0.7], [0.5, 0.4, 0.3], [0.1, 0.2, 0.15], [0.1, 0.2, 0.25]])
X = np.array([[0.0, 0.5, 0.3, 0.4, 0.5], [0.6, 0.7, 0.8, 0.9, 1.0]])
VALUE = [-28.663534402106271, -10.720006207705724, -21.79453582424009]
GRADIENT = np.array([[-80, 150, 250, 500], [-32.5, 50, 38.75, 87.5], [-80, 40, 5660 / 27, 66.4]]).T
SECOND = [  # mu1mu1, mu2mu2, s1s1, s2s2, mu1s1, mu2s2
    [-500, -500, -8500, -16000, 1600, -3000],
    [-125, -125, -831.25, -1562.5, 325, -500],
    [-2000 / 9, -80, -125200 / 27, -956.8, 3200 / 3, -320],
]

# --- others ---

STENCIL = kernel(
    "stencil",
    "const real* x, real* y, long long N",
    """  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < N) y[i] = 2 * x[i] - (i > 0 ? x[i - 1] : 0) - (i + 1 < N ? x[i + 1] * x[i + 1] : 0);""",
) + kernel(
    "stencil_vjp",
    "const real* x, const real* y_bar, real* x_bar, long long N",
    """  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < N) x_bar[i] = 2 * y_bar[i] - (i + 1 < N ? y_bar[i + 1] : 0) - (i > 0 ? 2 * x[i] * y_bar[i - 1] : 0);""",
)


def stencil(over="threads", jvp=None, source=STENCIL):
    adjoint = raw(
        source,
        "stencil_vjp",
        ["const real x[N]", "in real y_bar[N]", "out real x_bar[N]", "size N"],
        **{over: "N"},
    )
    return raw(
        source, "stencil", ["in real x[N]", "out real y[N]", "size N"], vjp=adjoint, jvp=jvp, **{over: "N"}
    )


REDUCTION = kernel(
    "reduction",
    "const real* x, real* total, long long N",
    """  __shared__ real part[64];
  const int t = threadIdx.x;
  real sum = 0;
  for (long long i = t; i < N; i += blockDim.x) sum += x[i] * x[i];
  for (int k = 16; k; k /= 2) sum += __shfl_down_sync(0xffffffffu, sum, k);
  if (t % 32 == 0) part[t / 32] = sum;
  __syncthreads();
  if (t == 0) total[0] = part[0] + part[1];""",
)


def reduction(source=REDUCTION):
    return raw(
        source,
        "reduction",
        ["in real x[N]", "out real total[]", "size N"],
        vjp=lambda g, out, x: 2 * g * x,
        grid=1,
        block=64,
    )


# Regression: shared coefficients, one sample a thread; the adjoint gives partial sums, and integers tell what
# is looked at.
LINEAR = kernel(
    "linear",
    "const real* c, const real* x, const int* which, double scale, real* y, long long B, long long p",
    f"""{LOOP} {{
    real sum = 0;
    for (long long k = 0; k < p; ++k) sum += c[k] * c[k] * x[k * B + b];
    y[b] = which[b] < 0 ? (real)0 : (real)scale * sum + c[which[b]];
  }}""",
) + kernel(
    "linear_vjp",
    "const real* c, const real* x, const int* which, double scale, const real* y_bar, real* c_bar, real* "
    "x_bar, long long B, long long p",
    f"""{LOOP} {{
    const real w = which[b] < 0 ? (real)0 : (real)scale * y_bar[b];
    for (long long k = 0; k < p; ++k) {{
      c_bar[k * B + b] = 2 * c[k] * x[k * B + b] * w + (which[b] == k ? y_bar[b] : (real)0);
      x_bar[k * B + b] = c[k] * c[k] * w;
    }}
  }}""",
)


def linear(rule="vjp"):
    given = ["in real c[p]", "in real x[p, B]", "const int which[B]", "const double scale"]
    adjoint = raw(
        LINEAR,
        "linear_vjp",
        [*given, "in real y_bar[B]", "out real c_bar[p, B]", "out real x_bar[p, B]", "size B", "size p"],
    )
    return raw(LINEAR, "linear", [*given, "out real y[B]", "size B", "size p"], vjp=adjoint)


def linear_formula(c, x, which, scale):
    y = scale * ((c * c)[:, None] * x).sum(axis=0) + c[np.maximum(which, 0)]
    return np.where(which < 0, 0.0, y)


# s = 1; while s < 10: s *= x.  With its forward rule, a kernel, only.
WHILE = kernel(
    "while_loop",
    "const real* x, real* s, long long B",
    f"{LOOP} {{ real r = 1; while (r < 10) r *= x[b]; s[b] = r; }}",
) + kernel(
    "while_dot",
    "const real* x, const real* x_dot, real* s_dot, long long B",
    f"{LOOP} {{ real r = 1, d = 0; while (r < 10) {{ d = d * x[b] + r * x_dot[b]; r *= x[b]; }} s_dot[b] = "
    f"d; }}",
)


def while_loop():
    forward = raw(WHILE, "while_dot", ["in real x[B]", "in real x_dot[B]", "out real s_dot[B]", "size B"])
    return raw(WHILE, "while_loop", ["in real x[B]", "out real s[B]", "size B"], jvp=forward)


# s = 1, then n times s = s x + sin(s); the steps are stored in a slot for each thread.
RECURSION = kernel(
    "recursion",
    "const real* x, int n, real* s, long long B",
    f"{LOOP} {{ real r = 1; for (int i = 0; i < n; ++i) r = r * x[b] + sin(r); s[b] = r; }}",
) + kernel(
    "recursion_vjp",
    "const real* x, int n, const real* s_bar, real* x_bar, real* tape, long long B",
    f"""  const long long slots = (long long)gridDim.x * blockDim.x, slot = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  {LOOP} {{
    real r = 1, d = 0, g = s_bar[b];
    for (int i = 0; i < n; ++i) {{ tape[i * slots + slot] = r; r = r * x[b] + sin(r); }}
    for (int i = n; i-- > 0;) {{ r = tape[i * slots + slot]; d += g * r; g *= x[b] + cos(r); }}
    x_bar[b] = d;
  }}""",
)


def recursion():
    given = ["in real x[B]", "const int n"]
    adjoint = raw(
        RECURSION,
        "recursion_vjp",
        [*given, "in real s_bar[B]", "out real x_bar[B]", "work real tape[n, slots]", "size B"],
    )
    return raw(RECURSION, "recursion", [*given, "out real s[B]", "size B"], vjp=adjoint)


# a *= b, in place
SCALE = kernel(
    "scale",
    "real* a, const real* f, long long B",
    f"{LOOP} a[b] *= f[b];",
) + kernel(
    "scale_vjp",
    "const real* a, const real* f, real* a_bar, real* f_bar, long long B",
    f"{LOOP} {{ f_bar[b] = a[b] * a_bar[b]; a_bar[b] *= f[b]; }}",
)


def scale():
    given = ["in real f[B]"]
    adjoint = raw(
        SCALE, "scale_vjp", ["in real a[B]", *given, "inout real a_bar[B]", "out real f_bar[B]", "size B"]
    )
    return raw(SCALE, "scale", ["inout real a[B]", *given, "size B"], vjp=adjoint)
