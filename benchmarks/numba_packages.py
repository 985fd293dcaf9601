"""Functions that installed packages compile with Numba, differentiated as they stand.

    python benchmarks/numba_packages.py

Install arch, quantecon, stumpy, librosa, numba-stats and pynndescent first; those that are missing are named.
The derivative in a random direction, forward and reverse, is compared with differences of the package's own
compiled function. The table says whether a loop program ran, or the function was followed as Python."""

import importlib
import warnings

import numpy as np

import tapegrad as tg
from tapegrad.loops import operation

R = np.random.default_rng(7)


def positive(*shape):
    return R.random(shape) + 0.5


def probabilities(n):
    x = positive(n)
    return x / x.sum()


def arch_cases():
    module = importlib.import_module("arch.univariate.recursions_python")
    n, e = 12, R.standard_normal(12)
    e += 0.2 * np.sign(e)  # the models have kinks at 0
    bounds = np.ones((n, 2)) * [0.0, 1e6]
    cases = {
        "garch_recursion": (
            lambda p, e: module.garch_recursion(
                p, e**2, np.sign(e) * e**2, np.zeros(n), 1, 1, 1, n, 1.0, bounds
            ),
            (np.array([0.1, 0.1, 0.1, 0.7]), e),
        ),
        "arch_recursion": (
            lambda p, e: module.arch_recursion(p, e, np.zeros(n), 1, n, 1.0, bounds),
            (np.array([0.1, 0.3]), e),
        ),
        "egarch_recursion": (
            lambda p, e: module.egarch_recursion(
                p, e, np.zeros(n), 1, 1, 1, n, 0.1, bounds, np.zeros(n), np.zeros(n), np.zeros(n)
            ),
            (np.array([0.1, 0.2, -0.1, 0.6]), e),
        ),
        "midas_recursion": (
            lambda p, w, e: module.midas_recursion(p, w, e, np.zeros(n), n, 1.0, bounds),
            (np.array([0.1, 0.2, 0.1]), probabilities(4), e),
        ),
        "figarch_weights": (
            lambda p: module.figarch_weights(p, 1, 1, 8),
            (np.array([0.2, 0.4, 0.3]),),
        ),
        "figarch_recursion": (
            lambda p, e: module.figarch_recursion(p, e**2, np.zeros(n), 1, 1, n, 8, 1.0, bounds),
            (np.array([0.1, 0.2, 0.4, 0.3]), e),
        ),
        "harch_recursion": (
            lambda p, e: module.harch_recursion(p, e, np.zeros(n), np.array([1, 3]), n, 1.0, bounds),
            (np.array([0.1, 0.3, 0.2]), e),
        ),
        "aparch_recursion": (
            lambda p, e: module.aparch_recursion(
                p, e, np.abs(e), np.zeros(n), np.zeros(n), 1, 1, 1, n, 1.0, bounds
            ),
            (np.array([0.1, 0.1, 0.1, 0.6, 1.5]), e),
        ),
    }
    return module, cases


def quantecon_cases():
    q = importlib.import_module("quantecon")
    lss = importlib.import_module("quantecon._lss")
    inequality = importlib.import_module("quantecon._inequality")
    a = 0.3 * R.standard_normal((3, 3))
    return q, {
        "simulate_linear_model": (
            lambda A, x, v: lss.simulate_linear_model(A, x, v, 6),
            (a, positive(3), R.standard_normal((3, 6))),
        ),
        "gini_coefficient": (inequality.gini_coefficient, (positive(7),)),
        "shorrocks_index": (inequality.shorrocks_index, (positive(4, 4),)),
        "lorenz_curve": (lambda y: inequality.lorenz_curve(y)[1], (positive(7),)),
    }


def stumpy_cases():
    core = importlib.import_module("stumpy.core")
    t, m = R.standard_normal(12), 4
    return core, {
        "_sliding_dot_product": (core._sliding_dot_product, (R.standard_normal(m), t)),
        "_rolling_nanstd_1d": (lambda t: core._rolling_nanstd_1d(t, m), (t,)),
        "_rolling_nanmin_1d": (lambda t: core._rolling_nanmin_1d(t, m), (t,)),
        "_rolling_nanmax_1d": (lambda t: core._rolling_nanmax_1d(t, m), (t,)),
        "_p_norm_distance_profile": (
            lambda q, t: core._p_norm_distance_profile(q, t, 3.0),
            (R.standard_normal(m), t),
        ),
        "_calculate_squared_distance": (
            lambda x: core._calculate_squared_distance(m, x[0], x[1], x[2], x[3], x[4], False, False),
            (positive(5),),
        ),
    }


def librosa_cases():
    beat = importlib.import_module("librosa.beat")
    filters = importlib.import_module("librosa.filters")
    spectrum = importlib.import_module("librosa.core.spectrum")
    sequence = importlib.import_module("librosa.sequence")
    n = 5
    return beat, {
        "__window_ss_fill": (
            lambda w: filled(np.zeros(14), lambda x: vars(filters)["__window_ss_fill"](x, w, 4, 3)),
            (positive(5),),
        ),
        "__overlap_add": (
            lambda y: filled(np.zeros(14), lambda x: vars(spectrum)["__overlap_add"](x, y, 3)),
            (R.standard_normal((5, 4)),),
        ),
        "__dtw_calc_accu_cost": (
            lambda C: vars(sequence)["__dtw_calc_accu_cost"](
                C, np.pad(C, ((1, 0), (1, 0)), constant_values=np.inf) * 1.0,
                np.zeros((n + 1, n + 1), np.int32), np.array([[1, 1], [0, 1], [1, 0]]),
                np.ones(3), np.zeros(3), 1, 1,
            )[0][1:, 1:],
            (positive(n, n),),
        ),
    }  # fmt: skip


def filled(x, f):
    f(x)
    return x


def numba_stats_cases():
    load = lambda name: importlib.import_module(f"numba_stats.{name}")
    x = R.standard_normal(6)
    found = {}
    for name, args in {
        "norm": (x, 0.2, 1.3), "expon": (positive(6) + 1, 0.1, 1.2), "laplace": (x, 0.1, 1.1),
        "t": (x, 4.0, 0.1, 1.2), "lognorm": (positive(6), 0.6, 0.1, 1.3),
        "truncnorm": (x / 4, -1.5, 1.5, 0.1, 1.2), "crystalball": (x, 1.2, 3.0, 0.1, 1.2),
        "qgaussian": (x, 1.5, 0.1, 1.2), "tsallis": (positive(6), 0.2, 0.5, 6.0), "voigt": (x, 0.7, 0.1, 1.2),
    }.items():  # fmt: skip
        found[f"{name}.pdf"] = (load(name).pdf, args)
    found["norm.logpdf"] = (load("norm").logpdf, (x, 0.2, 1.3))
    found["norm.cdf"] = (load("norm").cdf, (x, 0.2, 1.3))
    return load("norm"), found


def pynndescent_cases():
    d = importlib.import_module("pynndescent.distances")
    x, y, p, q = R.standard_normal(6), R.standard_normal(6), probabilities(6), probabilities(6)
    plain = ("euclidean", "squared_euclidean", "manhattan", "chebyshev", "canberra", "bray_curtis", "cosine",
    "dot", "correlation", "alternative_cosine", "true_angular", "tsss")  # fmt: skip
    laws = ("hellinger", "jensen_shannon_divergence", "symmetric_kl_divergence", "wasserstein_1d",
    "circular_kantorovich", "alternative_hellinger")  # fmt: skip
    found = {n: (getattr(d, n), (x, y)) for n in plain if hasattr(d, n)}
    found |= {n: (getattr(d, n), (p, q)) for n in laws if hasattr(d, n)}
    found["minkowski"] = (lambda x, y: d.minkowski(x, y, 3.0), (x, y))
    found["weighted_minkowski"] = (lambda x, y, w: d.weighted_minkowski(x, y, w, 3.0), (x, y, positive(6)))
    found["mahalanobis"] = (d.mahalanobis, (x, y, np.eye(6) + 0.1 * positive(6, 6)))
    found["haversine"] = (d.haversine, (x[:2], y[:2]))
    return d, found


PACKAGES = {
    "arch": arch_cases, "quantecon": quantecon_cases, "stumpy": stumpy_cases, "librosa": librosa_cases,
    "numba-stats": numba_stats_cases, "pynndescent": pynndescent_cases,
}  # fmt: skip
USED: list = []


def watch():
    """Note in USED how each call of a function of Numba's ends."""
    usual = operation.call_numba

    def call(d, args, kwargs, follow):
        def followed():
            reasons = [x for x in operation.programs_of(d).programs.values() if isinstance(x, str)]
            USED.append(f"followed: {(reasons or [d.py_func.__name__])[-1][:160]}")
            return follow()

        found = len(USED)
        made = usual(d, args, kwargs, followed)
        if len(USED) == found:
            USED.append("loop program")
        return made

    operation.call_numba = call


def judge(f, args):
    """(what ran, the error of the derivatives, that of the differences), in relation to the largest value."""
    n = tuple(range(len(args)))
    w = np.cos(np.arange(np.size(f(*args)))).reshape(np.shape(f(*args)))
    loss = lambda *x: (f(*x) * w).sum()
    d = [R.standard_normal(np.shape(x)) if np.ndim(x) else float(R.standard_normal()) for x in args]
    at = lambda h: loss(*[x + h * t for x, t in zip(args, d, strict=True)])
    weights = (4 / 5, -1 / 5, 4 / 105, -1 / 280)
    by_step = lambda h: sum(c * (at(k * h) - at(-k * h)) for k, c in enumerate(weights, 1)) / h
    coarse, want = by_step(1e-3), by_step(5e-4)
    USED.clear()
    value, g = tg.value_and_grad(loss, argnums=n)(*args)
    ways = sorted(set(USED)) or ["followed: no loop"]
    slope = sum(np.sum(a * b) for a, b in zip(g, d, strict=True))
    forward = tg.jvp(loss, args, tuple(d))[1]
    size = max(1.0, abs(want), abs(float(value)))
    error = max(abs(slope - want), abs(forward - want), abs(value - loss(*args)))
    return ways, error / size, abs(coarse - want) / size


def main():
    watch()
    warnings.simplefilter("ignore")
    counts = {"loop program": 0, "followed": 0, "refused": 0, "WRONG": 0}
    for package, make in PACKAGES.items():
        try:
            _, cases = make()
        except ImportError as error:
            print(f"{package}: NOT RUN ({error})")
            continue
        for name, (f, args) in cases.items():
            try:
                f(*args)
            except Exception as error:
                print(f"{package:12} {name:32} NOT RUN: the case itself fails ({str(error)[:120]})")
                continue
            try:
                ways, error, own = judge(f, args)
            except Exception as problem:
                counts["refused"] += 1
                print(f"{package:12} {name:32} refused: {type(problem).__name__}: {str(problem)[:300]}")
                continue
            what = (
                "WRONG"
                if not error <= max(1e-8, 10 * own)
                else "loop program"
                if ways == ["loop program"]
                else "followed"
            )
            counts[what] += 1
            print(f"{package:12} {name:32} {what:12} {error:.0e}  {'' if what == 'loop program' else ways}")
    print(counts)
    return counts["WRONG"]


if __name__ == "__main__":
    raise SystemExit(main())
