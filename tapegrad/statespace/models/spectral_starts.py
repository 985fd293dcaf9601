"""Starting values of ARMA processes: local maxima of P. Whittle's likelihood, from many points at once.

With the periodogram I and the spectrum g of unit noise, minus twice the log-likelihood of n frequencies is
n log mean(I / g) + sum log g. The logarithm of g is a sum over the factors of the process, so that its
derivatives are short, and a root and its reciprocal conjugate have the same spectrum."""

from collections.abc import Mapping, Sequence

import numpy

from .._constraints import stationary

STEPS, POINTS, KEPT = 12, 16, 7
APART, WITHIN = 0.1, 6.0  # of log-likelihoods: between two maxima, and below the highest


def spectral_maxima(
    w: numpy.ndarray, lags: Mapping[str, Sequence[int]]
) -> list[tuple[dict[str, numpy.ndarray], float]]:
    """Return the coefficients of each factor ("ma", "seasonal_ar", ...) at the local maxima, the highest
    first, pulled inside the constraints, and the variances of the noise."""
    x = numpy.where(numpy.isnan(w), 0.0, w - numpy.nanmean(w))
    n = x.size
    frequencies = 2 * numpy.pi * numpy.arange(1, (n + 1) // 2) / n
    periodogram = abs(numpy.fft.fft(x)[1 : (n + 1) // 2]) ** 2 / n
    every = numpy.array(sum(map(list, lags.values()), []))
    owner = numpy.repeat(numpy.arange(len(lags)), [len(x) for x in lags.values()])
    side = numpy.array([-1.0 if name.endswith("ar") else 1.0 for name in lags])
    waves = side[owner] * numpy.exp(-1j * frequencies[:, None] * every)
    factor = owner[:, None] == numpy.arange(len(lags))

    def logarithm(points: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
        """Return the factors (s, f, factors) and log g (s, f)."""
        factors = 1.0 + (points[:, None] * waves) @ factor
        return factors, 2 * numpy.log(abs(factors)) @ side

    def spectrum(points: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]:
        """Return the objective (s,), I / g over its mean less 1 (s, f), and the derivatives of log g."""
        factors, log = logarithm(points)
        ratio = periodogram * numpy.exp(-log)
        mean = ratio.mean(axis=1, keepdims=True)
        return (
            numpy.log(mean[:, 0]) + log.mean(axis=1),
            ratio / mean - 1,
            2 * (side[owner] * waves / factors[:, :, owner]).real,
        )

    rng, k = numpy.random.default_rng(0), every.size
    points = rng.uniform(-0.9, 0.9, (POINTS, k)) / factor.sum(axis=0)[owner]
    points[0] = 0.0
    damping, now = numpy.full(POINTS, 1e-2), (points, *spectrum(points))
    for _ in range(STEPS if k else 0):  # of Levenberg and Marquardt
        points, value, left, D = now
        D = D - D.mean(axis=1, keepdims=True)
        M = D.swapaxes(1, 2) @ D / len(frequencies) + damping[:, None, None] * numpy.eye(k)
        moved = points + numpy.linalg.solve(M, (left[:, None] @ D).swapaxes(1, 2) / len(frequencies))[:, :, 0]
        new = (moved, *spectrum(moved))
        better = new[1] < value
        damping = numpy.where(better, damping / 4, damping * 8)
        now = tuple(
            numpy.where(better.reshape(-1, *[1] * (a.ndim - 1)), a, b) for a, b in zip(new, now, strict=True)
        )
    points, value = now[:2]
    found, last, value = [], -numpy.inf, 0.5 * n * value
    cuts = numpy.cumsum([len(x) for x in lags.values()])[:-1]
    for i in numpy.argsort(value):
        if last + APART < value[i] < min(value) + WITHIN and len(found) < KEPT:
            last = value[i]
            parts = zip(lags.items(), numpy.split(points[i], cuts), strict=True)
            inside = {
                name: _inside(part, own, 1.0 if name.endswith("ar") else -1.0) for (name, own), part in parts
            }
            log = logarithm(numpy.concatenate(list(inside.values()))[None])[1]
            found.append((inside, float((periodogram * numpy.exp(-log)).mean())))
    return found


def _inside(x: numpy.ndarray, lags: Sequence[int], sign: float) -> numpy.ndarray:
    """Return the coefficients at these lags with their roots in the stationary region, and not near its
    bound."""
    step = min(lags, default=1) if all([lag % min(lags) == 0 for lag in lags]) else 1
    places = numpy.array(lags, int) // step
    phi = numpy.zeros(places.max(initial=0))
    phi[places - 1] = sign * x
    if phi.size == x.size > 0:  # no gaps: a root and its reciprocal have the same spectrum
        roots = numpy.roots(numpy.r_[1.0, -phi])
        x = (
            -sign
            * numpy.poly(numpy.where(abs(roots) > 1, 1 / numpy.conj(roots + (roots == 0)), roots)).real[1:]
        )
    for _ in range(200):
        phi[places - 1] = sign * x
        if not phi.size or (
            stationary().inside(phi) and abs(numpy.tanh(stationary().unconstrained(phi))).max() < 0.97
        ):
            return x
        x = x * 0.95**places
    return numpy.zeros(x.size)
