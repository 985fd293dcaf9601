"""One call into a package, judged: the value against the plain call, first and second derivatives against
differences."""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tapegrad as tg

STEPS = (1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6)  # relative to the size of the point
TOLERANCE = 2e-5  # of differences that agree between steps


@dataclass
class Verdict:
    """What became of a call. `cost` is the time of value and gradient over that of the plain call."""

    outcome: str  # "right", "refused" or "wrong"
    cause: str = ""
    cost: float = float("nan")  # of value and gradient, in plain calls
    entered: float = float("nan")  # of value and gradient, in calls that are entered already
    compiled: bool = False


def scalar(f: Callable, x: np.ndarray) -> Callable:
    """The call as a function with one value: its elements with fixed weights."""
    weights = np.cos(np.arange(1.0, 1.0 + np.size(f(x.copy()))))

    def of_point(p):
        return np.sum(np.ravel(np.asarray(f(p))) * weights)

    return of_point


def difference(f: Callable, x: np.ndarray, v: np.ndarray, steps: tuple = STEPS) -> tuple[Any, Any]:
    """The derivative of f at x along v, and how far the differences of two steps are apart.  The step is the one
    at which neighbours agree best."""
    size = max(1e-3, float(np.max(np.abs(x)))) / max(1e-300, float(np.max(np.abs(v))))
    with np.errstate(all="ignore"):
        found = [richardson(f, x, v, h * size) for h in steps]
    apart = [np.max(np.abs(a - b)) for a, b in zip(found, found[1:], strict=False)]
    k = int(np.nanargmin(apart)) if not np.all(np.isnan(apart)) else 0
    return found[k + 1], apart[k]


def richardson(f: Callable, x: np.ndarray, v: np.ndarray, h: float) -> Any:
    """Central differences of two steps, extrapolated."""
    wide, near = [(np.asarray(f(x + s * v)) - np.asarray(f(x - s * v))) / (2 * s) for s in (h, h / 2)]
    return (4 * near - wide) / 3


def close(found: Any, wanted: Any, apart: Any) -> bool:
    found, wanted = np.asarray(found, float), np.asarray(wanted, float)
    scale = max(float(np.max(np.abs(wanted))), 1e-8)
    return bool(np.max(np.abs(found - wanted)) <= TOLERANCE * scale + 20 * apart)


def fastest(f: Callable, x: np.ndarray, budget: float = 0.2) -> float:
    times: list = []
    while len(times) < 3 or (sum(times) < budget and len(times) < 50):
        begin = time.process_time()
        f(x)
        times.append(time.process_time() - begin)
    return min(times)


def cause_of(error: BaseException) -> str:
    """The error, and the package's line from which it came."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


def verdict(f: Callable, x: np.ndarray, timed: bool = True) -> Verdict:
    x = np.array(x, float)
    g = scalar(f, x)
    plain = float(g(x.copy()))
    v = np.sin(1.0 + np.arange(x.size)).reshape(x.shape) * np.maximum(np.abs(x), 1e-2)
    slope, apart = difference(g, x, v)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        return compared(g, x, v, (plain, slope, apart), timed, told)


def compared(g: Callable, x: np.ndarray, v: np.ndarray, wanted: tuple, timed: bool, told: list) -> Verdict:
    """The derivatives along v, and those wanted.  What is not right, and of which tapegrad warned, is a refusal."""
    plain, slope, apart = wanted
    try:
        value, gradient = tg.value_and_grad(g)(x)
        forward, tangent = tg.jvp(g, (x,), (v,))
        product = tg.hvp(g, x, v)
        along, bent = difference(lambda p: tg.grad(g)(p), x, v, STEPS[1::2])
    except Exception as error:
        return Verdict("refused", cause_of(error))
    total = float(np.sum(gradient * v))
    scale = max(float(np.sum(np.abs(gradient * v))), 1e-10)
    checks = {
        f"value {float(value)!r} and {float(forward)!r}, plain {plain!r}": all(
            [abs(float(y) - plain) <= 1e-9 * max(abs(plain), 1e-3) for y in (value, forward)]
        ),
        f"gradient along v {total!r}, differences {float(slope)!r} +- {apart:.1e}": abs(total - slope)
        <= TOLERANCE * max(scale, abs(slope)) + 20 * apart,
        f"tangent {float(tangent)!r}, gradient along v {total!r}": abs(float(tangent) - total)
        <= 1e-8 * scale + 1e-12,
        f"second order {product!r}, differences {along!r} +- {bent:.1e}": close(product, along, bent),
    }
    wrong = [words for words, holds in checks.items() if not holds]
    if np.isnan([total, tangent, *np.ravel(product)]).any() and any(
        "tapegrad" in str(w.message) for w in told
    ):
        return Verdict("refused", "nan with a warning")
    if wrong and any(w.category is tg.errors.NonDifferentiableWarning for w in told):
        return Verdict("refused", "a warning: " + str(told[0].message))
    if wrong:
        return Verdict("wrong", "; ".join(wrong))
    return Verdict("right", "", *costs(g, x) if timed else ())


def costs(g: Callable, x: np.ndarray) -> tuple[float, float]:
    """Value and gradient in plain calls, and in what a further call of g within the transform costs: that has
    no captured objects to find, as if they were arguments."""
    once, more = [fastest(tg.value_and_grad(h), x) for h in (g, lambda p: g(p) + g(p) + g(p) + g(p))]
    return once / fastest(g, x), 3.0 * once / max(more - once, 1e-3 * once)
