"""Newton's method for a million unknowns, without a matrix: a noisy picture of 1000 x 1000 pixels is cleaned.

    python examples/newton_krylov.py                # prints the iterations, writes newton_krylov.png
    python examples/newton_krylov.py --size 300 --device cuda

The unknowns are the pixels u; what is minimised is

    f(u) = 1/2 |u - noisy|^2 + weight * sum over pixels of sqrt(dx^2 + dy^2 + eps^2),

dx and dy being the differences to the neighbours (Rudin, Osher and Fatemi, Physica D 1992, smoothed).
`energy` is written as one writes it in NumPy, into arrays that were made once.

Its Hessian has 10^12 entries.  `tg.operators.hessian` is a LinearOperator: `update(u)` runs `energy` once,
and gives the value and the gradient too; each product with a vector is then one sweep over what was recorded.
Two jobs use it:

1. a trust-region Newton method whose steps come from truncated conjugate gradients (Steihaug, SIAM J.
   Numer. Anal. 1983);
2. scipy.sparse.linalg.eigsh: the largest eigenvalue at the solution.  The smallest is 1, for a constant
   shift of all pixels changes the first term only; so their ratio is the condition of the Hessian, which
   tells how many products a step costs.

Checks that do not come from the method: the gradient against differences of `energy`, H times ones against
ones, the eigenvalue against the bound 1 + 8 weight / eps.  Where JAX is installed, it times the same
function, compiled, and must give the same product.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from device import add_option, array_module, to_host
from scipy.sparse.linalg import eigsh

import tapegrad as tg

try:
    import cupyx.scipy.sparse.linalg
except ImportError:
    cupyx = None
try:
    import jax
    import jax.numpy as jnp
except ImportError:
    jax = None
try:
    from tqdm import tqdm
except ImportError:
    tqdm = None
try:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
except ImportError:
    pyplot = None

WEIGHT, EPS, NOISE = 0.1, 0.1, 0.15


# --- the problem ---


def picture(n):
    """Discs, a bar and a wedge: flat pieces with edges."""
    y, x = np.mgrid[:n, :n] / n
    clean = 0.2 + 0.5 * ((x - 0.35) ** 2 + (y - 0.4) ** 2 < 0.06) + 0.3 * (abs(x - 0.75) < 0.08)
    clean[(x + y > 1.45) & (y > 0.7)] = 0.9
    clean -= 0.4 * ((x - 0.35) ** 2 + (y - 0.4) ** 2 < 0.01)
    return clean


class Energy:
    """f(u) above, for one noisy picture."""

    def __init__(self, noisy):
        self.noisy = noisy
        self.dx, self.dy = np.zeros_like(noisy), np.zeros_like(noisy)

    def __call__(self, u):
        np.subtract(u[:, 1:], u[:, :-1], out=self.dx[:, :-1])
        np.subtract(u[1:], u[:-1], out=self.dy[:-1])
        length = np.sqrt(self.dx**2 + self.dy**2 + EPS**2)
        return 0.5 * np.sum((u - self.noisy) ** 2) + WEIGHT * np.sum(length)


# --- the method ---


def dot(a, b):
    return float(np.vdot(a, b))


def to_the_edge(step, direction, radius):
    """The t > 0 with |step + t direction| = radius."""
    a, b, c = dot(direction, direction), dot(step, direction), dot(step, step) - radius**2
    return (-b + np.sqrt(b * b - a * c)) / a


def truncated_cg(H, gradient, radius, tolerance):
    """About the minimum of g.s + s.H s / 2 within the trust region, and how many products it took."""
    step, residual = np.zeros_like(gradient), -gradient
    direction, square, product = residual.copy(), dot(residual, residual), np.empty_like(gradient)
    for count in range(1, 101):
        H.hvp(direction, out=product)
        curvature = dot(direction, product)
        if curvature <= 0:
            return step + to_the_edge(step, direction, radius) * direction, count
        t = square / curvature
        if np.linalg.norm(step + t * direction) >= radius:
            return step + to_the_edge(step, direction, radius) * direction, count
        step += t * direction
        residual -= t * product
        square, before = dot(residual, residual), square
        if np.sqrt(square) <= tolerance:
            break
        direction *= square / before
        direction += residual
    return step, count


def newton(f, u, tolerance, bar):
    """The minimum, the operator there, and a row (value, norm of the gradient, products, seconds) for each
    iteration."""
    start = time.perf_counter()
    H = tg.operators.hessian(f, u)
    value, gradient, radius, products = H.value, H.gradient, float(np.linalg.norm(u)), 0
    rows = [(float(value), dot(gradient, gradient) ** 0.5, 0, time.perf_counter() - start)]
    while rows[-1][1] > tolerance * rows[0][1]:
        size = rows[-1][1]
        step, count = truncated_cg(H, gradient, radius, min(0.1, np.sqrt(size / rows[0][1])) * size)
        products += count + 1
        expected = -dot(gradient, step) - 0.5 * dot(step, H.hvp(step))
        after = f(u + step)
        ratio = (value - after) / expected
        if ratio < 0.25:
            radius *= 0.25
        elif ratio > 0.75:
            radius = max(radius, 2 * float(np.linalg.norm(step)))
        if ratio > 1e-4 or size < 1e-7 * rows[0][1]:  # (so near that the differences of values are rounding)
            u = u + step
            H.update(u)
            value, gradient = H.value, H.gradient
        rows.append((float(value), dot(gradient, gradient) ** 0.5, products, time.perf_counter() - start))
        bar(rows)
        if len(rows) > 50:
            raise RuntimeError("no convergence in 50 iterations")
    return u, H, rows


def bar_of(total):
    """A progress bar in the decimals of the gradient that are gone; without tqdm a line for each
    iteration."""
    meter = (
        None
        if tqdm is None
        else tqdm(total=total, desc="Newton", leave=False, disable=None, bar_format="{l_bar}{bar}| {postfix}")
    )

    def show(rows):
        value, size, products, _ = rows[-1]
        if meter is None:
            print(
                f"  iteration {len(rows) - 1}: f = {value:.6f}, |gradient| = {size:.1e}, {products} products",
                file=sys.stderr,
            )
            return
        meter.n = min(total, round(-np.log10(size / rows[0][1]), 1))
        meter.set_postfix_str(f"|gradient| {size:.1e}, {products} products")
        if meter.n >= total:
            meter.close()

    return show


# --- checks ---


def check(f, u, H, largest, residual, v):
    h = 1e-4
    difference = (f(u + h * v) - f(u - h * v)) / (2 * h)
    slope = dot(tg.grad(f)(u), v)
    if abs(difference - slope) > 1e-6 * np.linalg.norm(v):
        raise RuntimeError(f"the slope along a direction is {slope}, by differences {difference}")
    shift = abs(H.hvp(np.ones_like(u)) - 1).max()
    if shift > 1e-10:
        raise RuntimeError(f"H times ones is off ones by {shift}")
    if not 1 < largest <= 1 + 8 * WEIGHT / EPS or residual > 0.05 * largest:
        raise RuntimeError(
            f"the eigenvalue {largest} breaks the bound {1 + 8 * WEIGHT / EPS}, or is none: residual "
            f"{residual}"
        )


def median_time(call, repeats=5):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def beside_jax(noisy, u, H, v):
    """(seconds of a product, seconds of one at a new point) by JAX, which must agree."""
    jax.config.update("jax_enable_x64", True)

    def energy(u):
        dx, dy = jnp.diff(u, axis=1), jnp.diff(u, axis=0)
        squares = jnp.pad(dx**2, ((0, 0), (0, 1))) + jnp.pad(dy**2, ((0, 1), (0, 0)))
        return 0.5 * jnp.sum((u - noisy) ** 2) + WEIGHT * jnp.sum(jnp.sqrt(squares + EPS**2))

    gradient = jax.grad(energy)
    fixed = jax.jit(jax.linearize(gradient, jnp.asarray(u))[1])
    moving = jax.jit(lambda u, v: jax.jvp(gradient, (u,), (v,))[1])
    off = abs(np.asarray(fixed(v)) - H.hvp(v)).max()
    if off > 1e-9:
        raise RuntimeError(f"the products differ by {off}")
    moving(u, v).block_until_ready()
    return median_time(lambda: fixed(v).block_until_ready()), median_time(
        lambda: moving(u, v).block_until_ready()
    )


def draw(output, clean, noisy, u, rows):
    if pyplot is None:
        print("matplotlib is not installed: no picture", file=sys.stderr)
        return
    values, sizes, products, _ = np.array(rows).T
    figure, axes = pyplot.subplots(1, 5, figsize=(20, 4), layout="constrained")
    for axis, image, title in zip(axes, (clean, noisy, u), ("true", "noisy", "cleaned"), strict=False):
        shown = axis.imshow(image, cmap="gray", vmin=-0.1, vmax=1.2)
        axis.set(
            title=f"{title}, rms error {np.sqrt(np.mean((image - clean) ** 2)):.3f}", xticks=[], yticks=[]
        )
    figure.colorbar(shown, ax=axes[:3], shrink=0.7, location="left", label="brightness")
    errors = axes[3].imshow(u - clean, cmap="RdBu", vmin=-0.3, vmax=0.3)
    axes[3].set(title="cleaned less true", xticks=[], yticks=[])
    figure.colorbar(errors, ax=axes[3], shrink=0.7)
    axes[4].semilogy(products, sizes / sizes[0], "o-", label="norm of the gradient")
    gap = (values - values[-1]) / (values[0] - values[-1])
    axes[4].semilogy(products[gap > 1e-16], gap[gap > 1e-16], "s--", label="f above its minimum")
    axes[4].set(
        xlabel="products with the Hessian",
        ylabel="share of the first",
        title=f"convergence, {u.size:,} unknowns",
    )
    axes[4].legend()
    figure.savefig(output, dpi=80)
    print(f"picture: {output}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", type=int, default=1000, help="pixels along a side")
    parser.add_argument(
        "--tolerance", type=float, default=1e-8, help="by which the norm of the gradient is to fall"
    )
    parser.add_argument("--seed", type=int, default=0)
    add_option(parser)
    parser.add_argument("--output", type=Path, default=Path("newton_krylov.png"), help="the picture")
    args = parser.parse_args()
    if args.size < 3:
        parser.error("--size: a picture has at least 3 pixels along a side")

    xp = array_module(args.device)
    eigenvalues = eigsh if xp is np else cupyx.scipy.sparse.linalg.eigsh

    rng = np.random.default_rng(args.seed)
    clean = picture(args.size)
    noisy = clean + NOISE * rng.standard_normal(clean.shape)
    noisy.flags.writeable = False  # nobody writes it: no copies, no comparisons
    noisy = xp.asarray(noisy)
    f = Energy(noisy)

    u, H, rows = newton(f, noisy.copy(), args.tolerance, bar_of(-np.log10(args.tolerance)))
    print(f"{u.size:,} unknowns")
    print("iteration            f   |gradient|  products  seconds")
    for k, (value, size, products, seconds) in enumerate(rows):
        print(f"{k:9d} {value:12.4f}   {size:10.2e}  {products:8d}  {seconds:7.2f}")

    start = xp.asarray(rng.standard_normal(u.size))
    (largest,), vectors = eigenvalues(H, 1, which="LA", tol=1e-2, v0=start)
    largest = float(largest)
    residual = float(np.linalg.norm(H @ vectors[:, 0] - largest * vectors[:, 0]))
    print(
        f"largest eigenvalue {largest:.3f} +- {residual:.3f}, smallest 1: the condition of the Hessian is "
        f"{largest:.1f}"
    )
    v = xp.asarray(rng.standard_normal(u.shape))
    check(f, u, H, largest, residual, v)

    ours = median_time(lambda: H.hvp(v)), median_time(lambda: tg.hvp(f, u, v))
    plain = median_time(lambda: f(u))
    print(
        f"a product: {1e3 * ours[0]:.0f} ms at a fixed point, {1e3 * ours[1]:.0f} ms at a new one; f: {1e3 * plain:.0f} ms"
    )
    if jax is not None and args.device == "cpu":
        theirs = beside_jax(noisy, u, H, v)
        print(
            f"JAX, compiled: {1e3 * theirs[0]:.0f} ms at a fixed point, {1e3 * theirs[1]:.0f} ms at a new "
            f"one; the same numbers"
        )
    draw(args.output, clean, to_host(noisy), to_host(u), rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
