"""Starting values of ARMA processes: local maxima of P. Whittle's likelihood, from many points at once.

With the periodogram I and the spectrum g of unit noise, minus twice the log-likelihood of n frequencies is
n log mean(I / g) + sum log g. The logarithm of g is a sum over the factors of the process, so that its
derivatives are short. A root and its reciprocal conjugate have the same spectrum."""

from collections.abc import Mapping, Sequence

import numpy
from numpy import ndarray

from .._constraints import stationary

STEPS, POINTS, KEPT = 12, 16, 7  # at most 4 points for each coefficient
APART, WITHIN = 0.1, 6.0  # of log-likelihoods: between two maxima, and below the highest


def spectral_maxima(w: ndarray, lags: Mapping[str, Sequence[int]]) -> list[tuple[dict[str, ndarray], float]]:
    """Return the coefficients of each factor ("ma", "seasonal_ar", ...) at the local maxima, the highest
    first, pulled inside the constraints, and the variances of the noise."""
    likelihood = _Whittle(w, lags)
    points, value = likelihood.maxima()
    cuts = numpy.cumsum([len(x) for x in lags.values()])[:-1]
    found: list[tuple[dict[str, ndarray], float]] = []
    last, value = -numpy.inf, 0.5 * w.size * value
    for i in numpy.argsort(value):
        if last + APART < value[i] < min(value) + WITHIN and len(found) < KEPT:
            last = value[i]
            parts = zip(lags.items(), numpy.split(points[i], cuts), strict=True)
            inside = {
                name: _inside(part, own, 1.0 if name.endswith("ar") else -1.0) for (name, own), part in parts
            }
            found.append((inside, likelihood.variance(numpy.concatenate(list(inside.values())))))
    return found


class _Whittle:
    """The likelihood, at many points (s, k) together; `lags` of each factor."""

    def __init__(self, w: ndarray, lags: Mapping[str, Sequence[int]]):
        x = numpy.where(numpy.isnan(w), 0.0, w - numpy.nanmean(w))
        places = numpy.arange(1, max((x.size + 1) // 2, 2))
        self.periodogram = abs(numpy.fft.fft(x)[places]) ** 2 / max(int((x != 0).sum()), 1)
        self.sizes = [len(own) for own in lags.values()]
        ends = numpy.cumsum(self.sizes)
        # of each factor: its coefficients, and the side of the fraction on which it stands
        self.factors = [
            (slice(end - size, end), -1.0 if name.endswith("ar") else 1.0)
            for name, size, end in zip(lags, self.sizes, ends, strict=True)
            if size
        ]
        every = numpy.array(sum(map(list, lags.values()), []), float)
        angles = 2 * numpy.pi / x.size * every[:, None] * places
        side = numpy.repeat([-1.0 if name.endswith("ar") else 1.0 for name in lags], self.sizes)[:, None]
        self.real, self.imaginary = side * numpy.cos(angles), -side * numpy.sin(angles)

    def _logarithm(self, points: ndarray, D: ndarray | None = None) -> ndarray:
        """Return log g (s, f), and fill D (s, k, f) with its derivatives."""
        log = numpy.zeros((len(points), self.periodogram.size))
        for own, side in self.factors:
            cos, sin = self.real[own], self.imaginary[own]
            real, imaginary = 1.0 + points[:, own] @ cos, points[:, own] @ sin
            square = real * real + imaginary * imaginary
            log += side * numpy.log(square)
            if D is not None:
                scale = 2.0 * side / square
                D[:, own] = (real * scale)[:, None] * cos + (imaginary * scale)[:, None] * sin
        return log

    def variance(self, point: ndarray) -> float:
        """Return the variance of the noise."""
        return float((self.periodogram * numpy.exp(-self._logarithm(point[None]))).mean())

    def __call__(self, points: ndarray) -> tuple[ndarray, ...]:
        """Return minus twice the log-likelihood over n (s,), I / g over its mean less 1 (s, f), and the
        derivatives of log g (s, k, f) less their means."""
        D = numpy.empty((*points.shape, self.periodogram.size))
        log = self._logarithm(points, D)
        ratio = self.periodogram * numpy.exp(-log)
        mean = ratio.mean(axis=1, keepdims=True)
        return (
            numpy.log(mean[:, 0]) + log.mean(axis=1),
            ratio / mean - 1,
            D - D.mean(axis=2, keepdims=True),
        )

    def maxima(self) -> tuple[ndarray, ndarray]:
        """Return where steps of Levenberg and Marquardt end from several points, and the values there."""
        k, f = sum(self.sizes), len(self.periodogram)
        points = numpy.random.default_rng(0).uniform(-0.9, 0.9, (min(POINTS, 4 * k) or 1, k))
        points /= numpy.repeat(self.sizes, self.sizes)
        points[0] = 0.0
        damping, now = numpy.full(len(points), 1e-2), (points, *self(points))
        for _ in range(STEPS if k else 0):
            points, value, left, D = now
            M = D @ D.mT / f + damping[:, None, None] * numpy.eye(k)
            moved = points + numpy.linalg.solve(M, D @ left[:, :, None] / f)[:, :, 0]
            new = (moved, *self(moved))
            better = new[1] < value
            damping = numpy.where(better, damping / 4, damping * 8)
            pairs = zip(new, now, strict=True)
            now = tuple([numpy.where(better.reshape(-1, *[1] * (a.ndim - 1)), a, b) for a, b in pairs])
            if not (abs(value - new[1]) > 1e-3 / f).any():
                break
        return now[0], now[1]


def _inside(x: ndarray, lags: Sequence[int], sign: float) -> ndarray:
    """Return the coefficients at these lags with their roots in the stationary region, and not near its
    bound."""
    if not x.size:
        return x
    step = min(lags) if all([lag % min(lags) == 0 for lag in lags]) else 1
    places = numpy.array(lags, int) // step
    phi = numpy.zeros(places.max())
    phi[places - 1] = sign * x
    if phi.size == x.size:  # no gaps: the reciprocal of a root has the same spectrum
        roots = numpy.roots(numpy.r_[1.0, -phi])
        outside = abs(roots) > 1
        roots[outside] = 1 / numpy.conj(roots[outside])
        x = -sign * numpy.poly(roots).real[1:]
    for _ in range(200):
        phi[places - 1] = sign * x
        if stationary().inside(phi) and abs(numpy.tanh(stationary().unconstrained(phi))).max() < 0.97:
            return x
        x = x * 0.95**places
    return numpy.zeros(x.size)
