"""Thousands of chains of Hamiltonian Monte Carlo at once, and nested sampling with gradient-guided proposals.

    python examples/batched_hmc.py                            # prints the tables, writes batched_hmc.png
    python examples/batched_hmc.py --chains 20000 --device cuda

Each log-likelihood is written for one parameter vector; tapegrad makes it a kernel that gives the value and
the gradient for all chains in one launch.  Three jobs, each checked against numbers that do not come from the
sampler:

1. the Gaussian likelihood of two means and two scales, sampled by Hamiltonian Monte Carlo (Neal, Handbook
   of Markov Chain Monte Carlo, chapter 5), against the closed form of its posterior;
2. the Kalman likelihood of the Nile data (local level model), against quadrature on a grid;
3. nested sampling (Skilling, Bayesian Analysis 2006) of the Gaussian: new points under the constraint
   L > L* come from paths that are reflected at the constraint by the gradient (Betancourt, "Nested sampling
   with constrained Hamiltonian Monte Carlo", 2011; Skilling, "Galilean and Hamiltonian Monte Carlo", 2019);
   the evidence against quadrature.

Why the seed of the output is ones.  The kernel gives a vector: one log-likelihood L_b for each sample b.  A
pullback takes a cotangent w of that vector and gives the gradient of sum_b w_b L_b.  Sample b's parameters
enter L_b and no other, so with w = (1, ..., 1) column b of the result is dL_b / dtheta_b: all per-sample
gradients in one sweep.  The seed of the output is therefore ones and what is filled is the gradient by the
parameters, not the other way round; the data get no derivative because nobody asked for one.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from device import add_option, array_module, library, to_host
from scipy import special, stats

import tapegrad as tg

try:
    import arviz
except ImportError:
    arviz = None
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

NILE = Path(__file__).parent / "data" / "nile.csv"
LOG2PI = np.log(2 * np.pi)
GAUSSIAN_NAMES = ["mu1", "mu2", "log sigma1", "log sigma2"]
NILE_NAMES = ["log observation_var", "log level_var"]
PRIOR_MEAN, PRIOR_SD = np.array([[9.0], [7.0]]), np.array([[2.0], [2.0]])  # of the Nile's log variances
BOX = np.array([[-2.0, 3.0], [-2.0, 3.0], [-2.0, 2.0], [-2.0, 2.0]])  # the uniform prior of nested sampling


# --- the models, each for one parameter vector ---


def normal(theta, x):
    """Two independent normal variables; theta = mu1, mu2, sigma1, sigma2."""
    mu1, mu2, sigma1, sigma2 = theta
    d1, d2 = (x[0] - mu1) / sigma1, (x[1] - mu2) / sigma2
    return -0.5 * (d1 * d1 + d2 * d2) - np.log(sigma1 * sigma2) - LOG2PI


def level_start(theta):
    return 0.0, 1e7  # Durbin and Koopman's vague first level


def level_step(carry, theta, y):
    a, P = carry
    F = P + np.exp(theta[0])
    v, K = y - a, P / F
    return (a + K * v, P - K * P + np.exp(theta[1])), -0.5 * (LOG2PI + np.log(F) + v * v / F)


gaussian = tg.kernels.likelihood(normal)
local_level = tg.kernels.recursion(level_start, level_step)


def gaussian_target(x):
    """log likelihood of q = (mu, log sigma), which are given a flat prior."""
    return lambda q: gaussian(np.concatenate([q[:2], np.exp(q[2:])]), x)


def nile_target(y, xp):
    mean, sd = xp.asarray(PRIOR_MEAN), xp.asarray(PRIOR_SD)
    return lambda q: local_level(q, y) - 0.5 * (((q - mean) / sd) ** 2).sum(0)


def value_and_gradients(target, q):
    """(B,) and (p, B): the pullback of ones holds every sample's own gradient."""
    value, pullback = tg.vjp(target, q)
    return value, pullback(np.ones_like(value))


# --- Hamiltonian Monte Carlo ---


def hmc(target, q, rng, warmup, draws, steps, label):
    """Samples (draws, p, chains) and the mean acceptance.  Step size and masses are set during warm-up; all
    chains share them, and the masses are the spread of the chains."""
    xp = library(q)
    kept = xp.empty((draws, *q.shape))
    value, gradient = value_and_gradients(target, q)
    step, scale, accepted = 0.1, xp.ones((len(q), 1)), 0.0
    for n in progress(range(warmup + draws), label):
        if n < warmup and n % 20 == 19:
            scale = q.std(axis=1, keepdims=True)
        eps = step * (0.3 + rng.random(q.shape[1])) * scale
        momentum = rng.standard_normal(q.shape)
        new, p, v, g = q, momentum, value, gradient
        for _ in range(steps):  # leapfrog
            p = p + 0.5 * eps * g
            new = new + eps * p
            v, g = value_and_gradients(target, new)
            p = p + 0.5 * eps * g
        log_ratio = v - value + 0.5 * (momentum**2 - p**2).sum(0)
        take = xp.log(rng.random(q.shape[1])) < log_ratio
        q, value, gradient = xp.where(take, new, q), xp.where(take, v, value), xp.where(take, g, gradient)
        rate = float(xp.exp(xp.minimum(log_ratio, 0.0)).mean())
        if n < warmup:
            step *= np.exp((rate - 0.85) / (1 + n) ** 0.3)
        else:
            kept[n - warmup], accepted = q, accepted + rate / draws
    return kept, accepted


# --- nested sampling ---


def galilean(target, q, floor, box, scale, size, rng, steps):
    """Points moved `steps` times within {target > floor} and the box, uniform there if they were: a step that
    would leave is reflected at the point outside, by the gradient or the wall, and if that fails too the
    velocity is turned round.  Gives points, values and the share of steps that moved."""
    xp = library(q)
    value, moved = target(q), 0.0
    for n in range(steps):
        if n % 10 == 0:
            velocity = size * scale * rng.standard_normal(q.shape)
        there = q + velocity
        v, g = value_and_gradients(target, there)
        outside = (there < box[:, :1]) | (there > box[:, 1:])
        inside = ~outside.any(axis=0) & (v > floor)
        normal = xp.where(outside.any(axis=0), 0.0, g * scale)
        along = (normal * velocity / scale).sum(0) / xp.maximum((normal**2).sum(0), 1e-300)
        turned = xp.where(outside, -velocity, velocity - 2 * along * normal * scale)
        beyond = there + turned
        w = target(beyond)
        back = (w > floor) & ((beyond >= box[:, :1]) & (beyond <= box[:, 1:])).all(axis=0)
        q = xp.where(inside, there, xp.where(back, beyond, q))
        value = xp.where(inside, v, xp.where(back, w, value))
        velocity = xp.where(inside, velocity, xp.where(back, turned, -velocity))
        moved += float((inside | back).mean()) / steps
    return q, value, moved


def nested_sampling(target, box, points, rng, xp, steps, label):
    """(log X, values, points) of all points in order of their death, X the prior mass that was left; and log
    evidence with its standard error.  Each step lets the worse half of the points die at L* and grows it
    anew, uniform where L > L*."""
    low, high = box[:, :1], box[:, 1:]
    live = low + (high - low) * rng.random((len(box), points))
    value, log_x, dead, size, half = target(live), 0.0, [], 0.5, points // 2
    shrink = -1 / np.arange(points, points - half, -1)  # E log of the mass after each death
    for _ in progress(range(60), label):
        order = xp.argsort(value)
        live, value = live[:, order], value[order]
        dead.append((log_x + np.cumsum(shrink), to_host(value[:half]), to_host(live[:, :half])))
        log_x = dead[-1][0][-1]
        floor, better = value[half - 1], live[:, half:]
        start = better[:, rng.integers(0, points - half, half)]
        fresh, fresh_value, moved = galilean(
            target, start, floor, box, better.std(axis=1, keepdims=True), size, rng, steps
        )
        if not bool((fresh_value > floor).all()):
            raise RuntimeError("a new point breaks the constraint")
        size *= np.exp(moved - 0.7)
        live, value = xp.concatenate([better, fresh], axis=1), xp.concatenate([value[half:], fresh_value])
        gathered = special.logsumexp(np.concatenate([d[0] + d[1] for d in dead]) + np.log(1 / points))
        if log_x + float(value.max()) < gathered - 7:  # what is left can add a thousandth
            break
    order = to_host(xp.argsort(value))
    rest = log_x + np.log1p(-np.arange(1, points + 1) / (points + 1))
    dead.append((rest, to_host(value)[order], to_host(live)[:, order]))
    log_x, values, where = (np.concatenate(part, axis=-1) for part in zip(*dead, strict=True))
    edges = np.concatenate([[0.0], log_x])
    log_mass = edges[:-1] + np.log(-np.expm1(np.diff(edges)))
    log_z = special.logsumexp(values + log_mass)
    weights = np.exp(values + log_mass - log_z)
    information = weights @ (values - log_z)
    return log_x, values, where, weights, log_z, np.sqrt(information / points)


# --- numbers to check against ---


def gaussian_moments(x):
    """Posterior mean and variance of mu1, mu2, log sigma1, log sigma2 under the flat prior: mu is Student's t
    with n - 1 degrees of freedom, (n - 1) s^2 / sigma^2 is chi squared (Gelman et al., Bayesian Data
    Analysis, section 3.2)."""
    n, s2 = x.shape[1], x.var(axis=1, ddof=1)
    mean = np.concatenate(
        [x.mean(axis=1), 0.5 * (np.log(0.5 * (n - 1) * s2) - special.digamma(0.5 * (n - 1)))]
    )
    variance = np.concatenate(
        [s2 / n * (n - 1) / (n - 3), np.full(2, 0.25 * special.polygamma(1, 0.5 * (n - 1)))]
    )
    return mean, variance


def nile_moments(y):
    """Mean and variance by quadrature, and the grid with its density."""
    first, second = np.linspace(7.5, 11.5, 161), np.linspace(0.0, 12.0, 241)
    grid = np.stack([a.ravel() for a in np.meshgrid(first, second, indexing="ij")])
    log_p = nile_target(y, np)(grid)
    weight = np.exp(log_p - log_p.max())
    weight /= weight.sum()
    mean = grid @ weight
    return mean, (grid - mean[:, None]) ** 2 @ weight, (first, second, weight.reshape(len(first), -1))


def gaussian_evidence(x):
    """log of the mean likelihood over BOX: a product of two integrals over (mu, log sigma)."""
    total = 0.0
    for row, data in enumerate(x):
        mu, log_sigma = (np.linspace(*BOX[k], 1201) for k in (row, row + 2))
        n, mean, spread = len(data), data.mean(), data.var()
        sum_of_squares = n * (spread + (mean - mu[:, None]) ** 2)
        log_l = -0.5 * sum_of_squares * np.exp(-2 * log_sigma) - n * log_sigma - 0.5 * n * LOG2PI
        total += special.logsumexp(log_l) - np.log(log_l.size)
    return total


def check(names, samples, mean, variance):
    """Print mean and variance beside the true ones; true if all lie within five standard errors, which come
    from the spread of the chains, for these are independent of each other."""
    print(
        f"{'':22}{'mean':>11}{'true':>11}{'error / s.e.':>14}{'variance':>12}{'true':>12}{'error / s.e.':>14}"
    )
    good = True
    for k, name in enumerate(names):
        chains = samples[:, k]
        second = (chains - mean[k]) ** 2
        off = [
            (a.mean() - b) / (a.mean(axis=0).std() / np.sqrt(a.shape[1]))
            for a, b in ((chains, mean[k]), (second, variance[k]))
        ]
        print(
            f"{name:22}{chains.mean():11.4f}{mean[k]:11.4f}{off[0]:14.2f}{second.mean():12.5f}{variance[k]:12.5f}{off[1]:14.2f}"
        )
        good = good and max(abs(o) for o in off) < 5
    return good


def summary(names, samples):
    """Effective sample sizes and R-hat by ArviZ, when it is installed, of as many chains as there are
    draws."""
    if arviz is None:
        print("(pip install arviz for effective sample sizes and R-hat)")
        return
    posterior = {name: samples[:, k, : len(samples)].T for k, name in enumerate(names)}
    print(arviz.summary(arviz.convert_to_dataset(posterior)).to_string())


# --- the program ---


def progress(steps, label):
    return steps if tqdm is None else tqdm(steps, desc=label, leave=False, disable=None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_option(parser)
    parser.add_argument("--chains", type=int, default=2000)
    parser.add_argument("--draws", type=int, default=150)
    parser.add_argument("--warmup", type=int, default=150)
    parser.add_argument("--steps", type=int, default=8, help="leapfrog steps of a proposal")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("batched_hmc.png"), help="the picture")
    args = parser.parse_args()
    xp = array_module(args.device)
    rng = xp.random.default_rng(args.seed)

    x = np.array([[0.5], [0.7]]) + np.array([[1.0], [0.4]]) * np.random.default_rng(1).standard_normal(
        (2, 50)
    )
    y = np.loadtxt(NILE, delimiter=",", skiprows=3)[:, 1]
    good = True

    print(f"1. Gaussian, {x.shape[1]} data, {args.chains} chains of {args.draws} draws")
    target = gaussian_target(xp.asarray(x))
    start = 0.5 * rng.standard_normal((4, args.chains))
    draws, rate = hmc(target, start, rng, args.warmup, args.draws, args.steps, "Gaussian")
    first = to_host(draws)
    print(f"acceptance {rate:.3f}")
    good &= check(GAUSSIAN_NAMES, first, *gaussian_moments(x))
    summary(GAUSSIAN_NAMES, first)

    print(f"\n2. Nile, local level, {args.chains} chains of {args.draws} draws")
    target = nile_target(xp.asarray(y), xp)
    start = xp.asarray(PRIOR_MEAN) + 0.5 * rng.standard_normal((2, args.chains))
    draws, rate = hmc(target, start, rng, args.warmup, args.draws, args.steps, "Nile")
    second = to_host(draws)
    mean, variance, grid = nile_moments(y)
    print(f"acceptance {rate:.3f}")
    good &= check(NILE_NAMES, second, mean, variance)
    summary(NILE_NAMES, second)

    print(f"\n3. Nested sampling of the Gaussian, {args.chains} points")
    target = gaussian_target(xp.asarray(x))
    log_x, values, where, weights, log_z, error = nested_sampling(
        target, xp.asarray(BOX), args.chains, rng, xp, 60, "nested"
    )
    exact = gaussian_evidence(x)
    print(f"log evidence {log_z:.3f} +- {error:.3f}, by quadrature {exact:.3f}; {len(values)} points")
    good &= abs(log_z - exact) < 5 * error

    if pyplot is None:
        print("no picture: pip install 'tapegrad[plot]'")
    else:
        draw(x, first, second, grid, log_x, where, weights, args.output)
        print(f"\npicture: {args.output}")
    if not good:
        print("a moment or the evidence is off", file=sys.stderr)
    return 0 if good else 1


def draw(x, first, second, grid, log_x, where, weights, output):
    """Samples beside exact densities; each contour of a density holds the share of the probability that is
    written on it."""
    figure, axes = pyplot.subplots(2, 3, figsize=(14, 8), layout="constrained")
    n, centre, s2 = x.shape[1], x[0].mean(), x[0].var(ddof=1)
    mu, log_sigma = centre + 0.55 * np.linspace(-1, 1, 201), 0.5 * np.log(s2) + 0.45 * np.linspace(-1, 1, 201)
    squares = (n - 1) * s2 + n * (centre - mu) ** 2
    log_p = -0.5 * squares * np.exp(-2 * log_sigma[:, None]) - n * log_sigma[:, None]
    name = "Gaussian, 50 data"
    sampled(axes[0, 0], first[:, 0].ravel(), first[:, 2].ravel(), mu, log_sigma, np.exp(log_p - log_p.max()))
    axes[0, 0].set(xlabel="mu1", ylabel="log sigma1", title=f"{name}: samples (blue), exact (lines)")
    exact = stats.t(n - 1, centre, np.sqrt(s2 / n)).pdf(mu)
    axes[0, 1].hist(
        first[:, 0].ravel(),
        bins=80,
        range=(mu[0], mu[-1]),
        density=True,
        color="C0",
        alpha=0.4,
        label="samples",
    )
    axes[0, 1].plot(mu, exact, "k", lw=1, label="exact: Student's t")
    axes[0, 1].set(xlabel="mu1", ylabel="density", title=f"{name}: one margin")
    sampled(axes[0, 2], *second.transpose(1, 0, 2).reshape(2, -1), grid[0], grid[1], grid[2].T)
    title = "Nile: samples (blue), quadrature (lines)"
    axes[0, 2].set(xlabel=NILE_NAMES[0], ylabel=NILE_NAMES[1], xlim=(8.8, 10.4), ylim=(4, 10), title=title)
    axes[1, 0].plot(log_x, np.cumsum(weights))
    axes[1, 0].set(
        xlabel="log prior mass inside",
        ylabel="posterior mass outside",
        title="nested sampling: where the posterior lies",
    )
    axes[1, 1].hist(
        where[0],
        bins=60,
        range=(mu[0], mu[-1]),
        weights=weights,
        density=True,
        color="C1",
        alpha=0.4,
        label="weighted points",
    )
    axes[1, 1].plot(mu, exact, "k", lw=1, label="exact: Student's t")
    axes[1, 1].set(xlabel="mu1", ylabel="density", title="nested sampling: one margin")
    for k, label in enumerate(NILE_NAMES):
        density = grid[2].sum(axis=1 - k) / (grid[k][1] - grid[k][0])
        axes[1, 2].hist(second[:, k].ravel(), bins=80, density=True, color=f"C{k}", alpha=0.4, label=label)
        axes[1, 2].plot(grid[k], density, "k", lw=1)
    axes[1, 2].set(xlabel="log of a variance", ylabel="density", title="Nile: margins, by quadrature (lines)")
    for axis in (axes[0, 1], axes[1, 1], axes[1, 2]):
        axis.legend(loc="upper left")
    figure.savefig(output, dpi=80)


def sampled(axis, u, v, across, up, density):
    """A histogram of (u, v), and lines of the density (up, across) within which half, 90 % and 99 % of the
    probability lie."""
    ranges = ((across[0], across[-1]), (up[0], up[-1]))
    axis.hist2d(u, v, bins=80, range=ranges, cmap="Blues")
    ordered = np.sort(density.ravel())[::-1]
    shares = (0.99, 0.9, 0.5)
    levels = [ordered[np.searchsorted(np.cumsum(ordered) / ordered.sum(), share)] for share in shares]
    lines = axis.contour(across, up, density, levels=levels, colors="k", linewidths=1)
    axis.clabel(
        lines, fmt=dict(zip(lines.levels, [f"{share:.0%}" for share in shares], strict=True)), fontsize=8
    )


if __name__ == "__main__":
    sys.exit(main())
