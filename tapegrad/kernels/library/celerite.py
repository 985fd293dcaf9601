"""Gaussian processes of celerite's kind for light curves: covariances that are sums of damped terms, times as
they come, in O(N).

    loglik = process(real=1, complex=1, jitter=True, mean=True) data = light_curve(t, y, variance)          t
    (N,) ascending, y and variances of the noise (N,); nan in y is missing: (3, N) loglik(theta, data)
    theta (2 + 4 + 2, B): (B,) loglik.value_and_grad(theta, data)          (B,), (8, B)

The rows of theta, and the covariance at the lag tau, are in this order

    real        a, c              a exp(-c tau)
    complex     a, b, c, d        exp(-c tau) (a cos(d tau) + b sin(d tau))
    quadratic   a, b, c, w        exp(-c tau) (a cos(h tau) + b sin(h tau) / h)       h^2 = w - c^2
    jitter      a variance that is added to all those of the noise
    mean

A quadratic term belongs to the polynomial z^2 + 2 c z + w.  It is smooth where the damping is critical, w =
c^2, and beyond it continues with cosh and sinh: an oscillator of frequency w0 and quality Q of any size has
a = S0 w0 Q,  c = w0 / (2 Q),  b = a c, w = w0^2.  Not valid are c < 0, w < 0, a negative jitter, and
parameters with which the covariance of the data is not positive.

Sources: Foreman-Mackey, Agol, Ambikasaran and Angus, Fast and scalable Gaussian process modeling,
Astronomical Journal 154:220 (2017); Foreman-Mackey, Scalable backpropagation for Gaussian processes using
celerite, Research Notes AAS 2:31 (2018).

>>> import numpy as np, tapegrad as tg
>>> celerite = tg.kernels.celerite
>>> data = celerite.light_curve([0.0, 0.3, 1.1, 1.2], [0.5, np.nan, -0.2, -0.1], 0.01)
>>> value, gradient = celerite.process(complex=1).value_and_grad(np.array([[1.0], [0.1], [0.5], [2.0]]), data)
>>> value.round(4), gradient[:, 0].round(4)
(array([-1.8051]), array([-1.3302,  1.2015, -0.8214,  0.122 ]))
"""

import functools
import math
import weakref

import numpy as np
from scipy.special import zeta

from ..._core.arrays import xp_of
from ..._core.errors import ArgumentError, ShapeError
from ..._core.primitive import layout_of, values_of
from ..._core.variable import Variable
from ...ops import shaping
from ..generated.arguments import as_float
from ..generated.derivatives import derivative_library
from ..generated.kernel import recursion
from .handwritten import HandwrittenDefinition, HandwrittenRecursion
from .models import LOG_2_PI

MOST_TERMS = 12
LENGTH = 12
# of (1 - x cot x) / (2 x^2) in x^2
SERIES = tuple([float(zeta(2 * k) / np.pi ** (2 * k)) for k in range(LENGTH, 0, -1)])


def light_curve(t, y, variance=0.0):
    """The data of a process, (3, N): the time since the datum before, y, and the variance of its noise.

    t and y (N,), variance (N,) or a number; each may be (N, B), where samples have their own: (3, N, B).
    Times ascend, equal ones are allowed; they are subtracted in their own precision, and the result has the
    dtype of y.  nan in y or variance is missing.

    Raises ShapeError where lengths differ, ArgumentError where times descend or are not finite, or a variance
    is negative.

    >>> light_curve([1.0, 1.5, 4.0], [0.1, 0.3, 0.2], 0.01)
    array([[0.  , 0.5 , 2.5 ],
           [0.1 , 0.3 , 0.2 ],
           [0.01, 0.01, 0.01]])
    """
    given = [as_float(x, f"light_curve: {name}") for name, x in (("t", t), ("y", y), ("variance", variance))]
    xp, shapes = derivative_library(*[layout_of(x) for x in given]), [tuple(x.shape) for x in given]
    samples = {s[1] for s in shapes if len(s) == 2}
    fits = [len(s) in (1, 2) and s[0] == shapes[1][0] for s in shapes if len(shapes[1]) and s != ()]
    if len(fits) < 2 or shapes[0] == () or not all(fits) or len(samples - {1}) > 1:
        raise ShapeError(
            f"light_curve: t has shape {shapes[0]}, y {shapes[1]} and variance {shapes[2]}; wanted is (N,) "
            f"or (N, B)"
        )
    given = [x if isinstance(x, Variable) or xp_of(x) is xp else xp.asarray(x) for x in given]
    t, y, variance = [x.reshape((-1, 1)) if samples and x.ndim == 1 else x for x in given]
    gap = t[1:] - t[:-1]
    _check_times(xp, values_of(t), values_of(gap))
    if bool((values_of(variance) < 0).any()):
        raise ArgumentError("light_curve: a variance is negative; give the squares of the errors")
    gap = shaping.concatenate(0 * t[:1], gap)
    shape = shapes[1][:1] + ((max(samples),) if samples else ())
    rows = [shaping.broadcast_to(x, shape).reshape((1, *shape)) for x in (gap, y, variance)]
    return shaping.concatenate(*rows).astype(layout_of(y).dtype)


def _check_times(xp, t, gap) -> None:
    if not bool(xp.isfinite(t).all()):
        raise ArgumentError("light_curve: a time is not finite; a datum without a time has to be left out")
    if bool((gap < 0).any()):
        n = int(xp.argmax((gap if gap.ndim == 1 else gap.min(axis=1)) < 0))
        raise ArgumentError(
            f"light_curve: times have to ascend, and t[{n + 1}] is before t[{n}]; sort by i = "
            f"np.argsort(t): t[i], y[i]"
        )


# --- the model in plain Python, from which kernels are generated ---


def rotation(c, d, gap):
    """Return p, m and n of a complex term over a gap."""
    e = np.exp(-c * gap)
    return e * np.cos(d * gap), e * np.sin(d * gap), e * np.sin(d * gap)


def damped(c, w, gap):
    """Return p, m and n of a quadratic term.

    They are exp(-c gap) times cos(h gap), h sin(h gap) and sin(h gap) / h, with h^2 = s = w - c^2."""
    s = w - c * c
    x = s * gap * gap
    near = abs(x) < 1
    even, odd = 1 / math.factorial(20), 1 / math.factorial(21)
    for k in range(18, -1, -2):
        even, odd = 1 / math.factorial(k) - even * x, 1 / math.factorial(k + 1) - odd * x
    h = np.sqrt(np.where(near, 1.0, abs(s)))
    slow = np.exp(-np.where(s < 0, w / (c + h), c) * gap)
    fast = np.exp(np.where(s < 0, -2 * h * gap, 0.0))
    p = np.where(near, np.exp(-c * gap) * even, slow * np.where(s < 0, 0.5 * (1 + fast), np.cos(h * gap)))
    n = np.where(
        near, np.exp(-c * gap) * odd * gap, slow * np.where(s < 0, 0.5 * (1 - fast), np.sin(h * gap)) / h
    )
    return p, s * n, n


def celerite_formula(real: int, complex: int, quadratic: int, jitter: int, mean: int) -> tuple:
    """Return init and step for `recursion`; complex terms have other coordinates than in celerite.cu."""
    pairs = complex + quadratic
    rows, last = real + 2 * pairs, 2 * real + 4 * pairs
    v = np.array([1.0] * real + [1.0, 0.0] * pairs)
    firsts = [2 * k for k in range(real)] + [2 * real + 4 * k for k in range(pairs)]

    def start(theta):
        return np.zeros((rows, rows)), np.zeros(rows)

    def step(carry, theta, datum):
        """Return S and f after the datum, from those after the datum before."""
        S, f = carry
        gap, y, variance = datum
        entries, amplitudes, least = [[0.0] * rows for _ in range(rows)], [], []
        for k in range(real):
            a, c = theta[2 * k : 2 * k + 2]
            entries[k][k] = np.exp(-c * gap)
            amplitudes.append(a)
            least.append(c)
        for k in range(pairs):
            i, first = real + 2 * k, 2 * real + 4 * k
            a, b, c, d = theta[first : first + 4]
            p, m, n = rotation(c, d, gap) if k < complex else damped(c, d, gap)
            entries[i][i : i + 2], entries[i + 1][i : i + 2] = [p, -m], [n, p]
            amplitudes += [a, b]
            least += [c] if k < complex else [c, d]
        F, u = np.stack([np.stack(row) for row in entries]), np.stack(amplitudes)
        base = sum(theta[firsts])
        if jitter:
            base = base + theta[last]
            least.append(theta[last])
        here = ~(np.isnan(y) | np.isnan(variance))
        S, f = F @ S @ F.T, F @ f
        q = S @ u
        w = v - q
        D = np.where(here, variance + base - u @ q, np.inf)  # what is missing tells nothing
        z = np.where(here, y, 0.0) - (theta[last + jitter] if mean else 0.0) - u @ f
        valid = np.where(np.min(np.stack(least)) >= 0, D, -1.0) > 0
        term = np.where(here, -0.5 * (LOG_2_PI + np.log(D) + z * z / D), 0.0)
        return (S + np.outer(w, w) / D, f + w * (z / D)), np.where(valid, term, np.nan)

    return start, step


# --- kernels ---


class CeleriteKernel(HandwrittenRecursion):
    """A kernel whose data come from `light_curve`."""

    # a weak reference to the last checked data on a device, and their address
    _looked: tuple = (lambda: None, 0)

    def _arguments(self, theta, data) -> tuple:
        theta, data, single = super()._arguments(theta, data)
        rows = values_of(data)
        xp = xp_of(rows)
        if xp is np or self._looked[0]() is not rows or self._looked[1] != rows.data.ptr:
            if not bool((rows[0] >= 0).all()) or bool((rows[2] < 0).any()):
                raise ArgumentError(
                    f"{self.__name__}: the data hold a time step that is negative or nan, or a negative "
                    "variance; make them by tapegrad.kernels.celerite.light_curve(t, y, variance)"
                )
            if xp is not np:
                self._looked = weakref.ref(rows), rows.data.ptr
        return theta, data, single

    def _remember(self, kind: str, theta: np.ndarray, data: np.ndarray, single: bool) -> None:
        """Store nothing: a repeated call would not check the data."""


def process(
    *, real: int = 0, complex: int = 0, quadratic: int = 0, jitter: bool = False, mean: bool = False
) -> CeleriteKernel:
    """The kernel for so many terms of each kind; R = real + 2 complex + 2 quadratic is 1 to 12, and a step
    takes R^2 operations.

    It is called as `loglik(theta, data)`, with theta (2 real + 4 complex + 4 quadratic + jitter + mean, B)
    and the data of `light_curve`; the same arguments give the same kernel.  Raises ArgumentError for numbers
    of terms that it is not made for.

    >>> data = light_curve([0.0, 1.0, 3.0], [0.2, 0.5, -0.3], 0.1)
    >>> theta = np.array([1.0, 0.2])                            # a damped random walk
    >>> process(real=1)(theta, data).round(4)
    np.float64(-2.6553)
    """
    counts = {"real": real, "complex": complex, "quadratic": quadratic}
    if (
        not all([isinstance(n, (int, np.integer)) and n >= 0 for n in counts.values()])
        or not 1 <= real + 2 * (complex + quadratic) <= MOST_TERMS
    ):
        told = ", ".join([f"{name}={n!r}" for name, n in counts.items()])
        raise ArgumentError(
            f"celerite.process({told}): wanted are whole numbers with real + 2 complex + 2 quadratic from 1 "
            f"to {MOST_TERMS}"
        )
    return celerite_kernel(int(real), int(complex), int(quadratic), int(bool(jitter)), int(bool(mean)))


@functools.cache
def celerite_kernel(*sizes: int) -> CeleriteKernel:
    real, complex, quadratic, jitter, mean = sizes
    rows = 2 * real + 4 * (complex + quadratic) + jitter + mean
    rank = real + 2 * (complex + quadratic)
    names = "REAL", "COMPLEX", "QUADRATIC", "JITTER", "MEAN"
    series = {"SERIES": ", ".join([repr(x) for x in SERIES]), "SERIES_LENGTH": len(SERIES)}
    macros = {**dict(zip(names, sizes, strict=True)), **series}
    made = CeleriteKernel(
        HandwrittenDefinition(
            name="celerite",
            key=str(sizes),
            formula=recursion(*celerite_formula(*sizes), missing="step"),
            fits=lambda p, d: (p, d) == (rows, 3),
            macros=lambda p, d: macros,
            wants=f"theta ({rows}, B) and the data of light_curve, (3, N) or (3, N, B)",
            work=lambda p, d: (f"work real tape[N, {rank * (rank + 3) // 2}, slots]",),
        )
    )
    made._place = celerite_kernel, sizes
    return made
