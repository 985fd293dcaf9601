"""scipy.signal: frequency responses, medians, peaks, waveforms."""

import inspect
import math
from typing import Any

import numpy as plain_np
import scipy.signal as sig

from ... import numpy as np
from ..._core.errors import ArgumentError
from ...ops.declare import SCIPY, ndim, shape
from ...ops.nondifferentiable import at_users_line
from ..linear_maps import along, remembers
from ..namespaces import array, bare, constant, fixed, integer, tracked
from ..ndimage.labelled_regions import footprint_of, neighbours
from .filters import FOLLOWED, SIGNAL, convolve, correlate, lfilter, moved_last, sections


def rank(x: Any) -> int:
    return ndim(x) if hasattr(x, "shape") else plain_np.ndim(x)


# --- responses ---


def powers(w: Any, n: int) -> Any:
    """exp(-i w k), k = 0, .., n - 1."""
    return np.exp(-1j * np.reshape(w, (-1, 1)) * plain_np.arange(n))


def response(c: Any, w: Any) -> Any:
    P = powers(w, shape(c)[0])
    return (P if tracked(w) else constant(P, c)) @ c


def frequencies(worN: Any, whole: bool, fs: Any, include_nyquist: bool = False) -> tuple:
    """(in the units of fs, in radians a sample)"""
    if worN is None or rank(worN) == 0 and float(bare(worN)) == int(bare(worN)):
        n = 512 if worN is None else integer(worN)
        w = plain_np.linspace(0, 2 * math.pi if whole else math.pi, n, endpoint=include_nyquist and not whole)
        return w * fs / (2 * math.pi), w
    w = np.atleast_1d(array(worN))
    return w, 2 * math.pi * w / fs


@SIGNAL.rule(sig.freqz)
def freqz(b, a=1, worN=512, whole=False, plot=None, fs=2 * math.pi, include_nyquist=False):
    like = next((x for x in (b, a, worN, fs) if tracked(x)), b)
    b, a = np.atleast_1d(array(b, like)), np.atleast_1d(array(a, like))
    if plot is not None or ndim(b) > 1 or ndim(a) > 1:
        raise ArgumentError("scipy.signal.freqz: plot=, and several filters at once, are not supported on a tracked Variable")
    f, w = frequencies(worN, whole, fs, include_nyquist)
    return f, response(b, w) / response(a, w)


def freqz_sos(sos, worN=512, whole=False, fs=2 * math.pi):
    f, w = frequencies(worN, whole, fs)
    return f, math.prod([response(b, w) / response(a, w) for b, a in sections(sos, sos if tracked(sos) else worN)])


SIGNAL.rule(sig.sosfreqz)(freqz_sos)
if hasattr(sig, "freqz_sos"):
    SIGNAL.rule(sig.freqz_sos)(freqz_sos)


@SIGNAL.rule(sig.freqz_zpk)
def freqz_zpk(z, p, k, worN=512, whole=False, fs=2 * math.pi):
    f, w = frequencies(worN, whole, fs)
    at = np.exp(1j * np.reshape(w, (-1, 1)))
    return f, k * np.prod(at - array(z), -1) / np.prod(at - array(p), -1)


@SIGNAL.rule(sig.freqs)
def freqs(b, a, worN=200):
    if worN is None or rank(worN) == 0:
        w = sig.freqs(bare(b), bare(a), bare(worN))[0]
    else:
        w = np.atleast_1d(array(worN))
    s = 1j * w
    return w, np.polyval(array(b), s) / np.polyval(array(a), s)


SIGNAL.rule(sig.group_delay)(FOLLOWED.function(sig.group_delay))


@SIGNAL.rule(sig.czt)
def czt(x, m=None, w=None, a=1 + 0j, *, axis=-1):
    x = moved_last(array(x), axis)
    n = shape(x)[-1]
    m = n if m is None else integer(m)
    w, a = [fixed(v, "scipy.signal.czt", name) for v, name in ((w, "w"), (a, "a"))]
    w = plain_np.exp(-2j * math.pi / m) if w is None else w
    at = a * w ** -plain_np.arange(float(m))
    return np.moveaxis(x @ constant(at ** -plain_np.arange(float(n))[:, None], x), -1, axis)


@SIGNAL.rule(sig.zoom_fft)
def zoom_fft(x, fn, m=None, *, fs=2, endpoint=False, axis=-1):
    x = moved_last(array(x), axis)
    n = shape(x)[-1]
    m = n if m is None else integer(m)
    ends = plain_np.asarray(fixed(fn, "scipy.signal.zoom_fft", "fn"))
    low, high = (0.0, float(ends)) if ends.ndim == 0 else map(float, ends)
    f = plain_np.linspace(low, high, m, endpoint=endpoint)
    M = plain_np.exp(-2j * math.pi / float(fs) * plain_np.outer(plain_np.arange(n), f))
    return np.moveaxis(x @ constant(M, x), -1, axis)


@SIGNAL.rule(sig.lombscargle)
def lombscargle(x, y, freqs, *, precenter=None, normalize=False, weights=None, floating_mean=False):
    """The least squares of a cosine and a sine (and a mean) at each frequency, by the two equations of their amplitudes."""
    like = next(v for v in (x, y, freqs, weights) if tracked(v))
    x, y, f = [array(v, like) for v in (x, y, freqs)]
    n = shape(x)[0]
    w = constant(plain_np.full(n, 1.0 / n), y) if weights is None else array(weights, like) / np.sum(array(weights, like))
    c, s = [g(np.reshape(f, (-1, 1)) * x) for g in (np.cos, np.sin)]
    mean = lambda v: v @ w
    cc, cs = mean(c * c), mean(c * s)
    ss, yc, ys, yy = 1.0 - cc, mean(c * y), mean(s * y), np.sum(w * y * y)
    if floating_mean:
        m, mc, ms = np.sum(w * y), mean(c), mean(s)
        cc, ss, cs = cc - mc * mc, ss - ms * ms, cs - mc * ms
        yc, ys, yy = yc - m * mc, ys - m * ms, yy - m * m
    both = cc * ss - cs * cs
    a, b = (ss * yc - cs * ys) / both, (cc * ys - cs * yc) / both
    kind = {False: "power", True: "normalize"}.get(normalize, normalize)
    if kind == "amplitude":
        return a + 1j * b
    power = 2.0 * (a * yc + b * ys)
    return power * (n / 4.0) if kind == "power" else power * 0.5 / yy


# --- quotients, states, coefficients ---


@SIGNAL.rule(sig.deconvolve)
def deconvolve(signal, divisor):
    like = signal if tracked(signal) else divisor
    num, den = np.atleast_1d(array(signal, like)), np.atleast_1d(array(divisor, like))
    n, d = shape(num)[0], shape(den)[0]
    if d > n:
        return [], num
    quotient = lfilter(num, den, plain_np.eye(1, n - d + 1)[0])
    return quotient, num - convolve(den, quotient)


@SIGNAL.rule(sig.lfiltic)
def lfiltic(b, a, y, x=None):
    like = next(v for v in (b, a, y, x) if tracked(v))
    b, a, y = [np.atleast_1d(array(v, like)) for v in (b, a, y)]
    m, n = shape(b)[0] - 1, shape(a)[0] - 1
    given = x is not None
    x = np.atleast_1d(array(x, like)) if given else constant(plain_np.zeros(m), y)

    def past(c, v, k):  # sum_j c[i + 1 + j] v[j]
        v = v[:k] if shape(v)[0] >= k else np.concatenate([v, plain_np.zeros(k - shape(v)[0])])
        return [np.sum(c[i + 1 :] * v[: k - i]) for i in range(k)]

    if remembers(y):
        taken = [np.concatenate([v, np.zeros(max(k - shape(v)[0], 0))])[:k][::-1] for v, k in ((x, m), (y, n))]
        return np.concatenate(taken) if given else taken[1]  # (as CuPy has it)
    of_x, of_y = past(b, x, m), past(a, y, n)
    zero = 0.0 * a[0]
    rows = [(of_x[i] if i < m else zero) - (of_y[i] if i < n else zero) for i in range(max(m, n))]
    return np.stack(rows) / (a[0] if SCIPY >= (1, 16) else 1.0)  # (before, SciPy takes a[0] for 1)


@SIGNAL.rule(sig.sos2tf)
def sos2tf(sos):
    b = a = None
    for p, q in sections(sos, sos):
        b, a = (p, q) if b is None else (np.convolve(b, p), np.convolve(a, q))
    return b, a


class Spline:
    """Coefficients of a spline through equidistant samples: of each row of these axes, which are put together in the last."""

    def __init__(self, f: Any, to: tuple, *settings: Any):
        self.f, self.to, self.settings = f, to, settings

    def __call__(self, x: Any) -> Any:
        rows = [self.f(row.reshape(self.to), *self.settings).reshape(-1) for row in x.reshape(-1, x.shape[-1])]
        return plain_np.array(rows).reshape(x.shape)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Spline) and (self.f, self.to, self.settings) == (other.f, other.to, other.settings)

    def __hash__(self) -> int:
        return hash((self.f, self.to, self.settings))


def through_samples(f: Any, axes: int, settings: dict) -> Any:
    """The rule of f: linear in its first argument, over the last axes of it."""
    names = inspect.signature(f).parameters
    first = next(iter(names))

    def run(*args, **kwargs):
        given = inspect.signature(f).bind(*args, **kwargs).arguments
        x = array(given.pop(first))
        rest = [fixed(given.get(n, default), f"scipy.signal.{f.__name__}", n) for n, default in settings.items()]
        to = shape(x)[ndim(x) - axes :]
        y = along(Spline(f, to, *map(float, rest)), np.reshape(x, (*shape(x)[: ndim(x) - axes], -1)) if axes > 1 else x)
        return np.reshape(y, shape(x))

    run.__signature__ = inspect.signature(f)
    return run


for _f in (sig.cspline1d, sig.qspline1d):
    SIGNAL.rule(_f)(through_samples(_f, 1, {"lamb": 0.0}))
for _f in (sig.cspline2d, sig.qspline2d):
    SIGNAL.rule(_f)(through_samples(_f, 2, {"lamb": 0.0, "precision": -1.0}))
SIGNAL.rule(sig.symiirorder1)(through_samples(sig.symiirorder1, 1, {"c0": 1.0, "z1": 0.5, "precision": -1.0}))
SIGNAL.rule(sig.symiirorder2)(through_samples(sig.symiirorder2, 1, {"r": 0.5, "omega": 1.0, "precision": -1.0}))


def evaluated(weights: Any) -> Any:
    """The spline with these weights of the neighbours, the samples mirrored at the ends."""

    def run(cj, newx, dx=1.0, x0=0):
        like = cj if tracked(cj) else newx
        c, t = array(cj, like), (array(newx, like) - x0) / dx
        n = shape(c)[0]
        period = max(2 * n - 2, 1)
        t = t - np.floor(t / period) * period
        t = np.where(t > n - 1, period - t, t)
        first, parts = weights(t)
        y = 0.0
        for k, w in enumerate(parts):
            y = y + w * np.take(c, np.clip(np.astype(first, int) + k, 0, n - 1))
        return y

    return run


def cubic_weights(t: Any) -> tuple:
    first = np.floor(t)
    s = t - first
    r = 1 - s
    return first - 1, (r**3 / 6, (4 - 6 * s**2 + 3 * s**3) / 6, (4 - 6 * r**2 + 3 * r**3) / 6, s**3 / 6)


def quadratic_weights(t: Any) -> tuple:
    middle = np.floor(t + 0.5)
    s = t - middle
    return middle - 1, ((0.5 - s) ** 2 / 2, 0.75 - s**2, (0.5 + s) ** 2 / 2)


SIGNAL.rule(sig.cspline1d_eval)(evaluated(cubic_weights))
SIGNAL.rule(sig.qspline1d_eval)(evaluated(quadratic_weights))

# --- order statistics and local means ---


def ordered(a: Any, domain: Any, rank: Any, name: str) -> Any:
    x = array(a)
    where = footprint_of(x, None, plain_np.asarray(bare(domain)).astype(bool), None, name)
    if any(m % 2 == 0 for m in where.shape):
        raise ValueError(f"{name}: each dimension of the neighbourhood must be of odd length")
    return np.sort(neighbours(x, where, "constant", 0.0, 0, name), 0)[rank(int(where.sum()))]


@SIGNAL.rule(sig.order_filter)
def order_filter(a, domain, rank):
    return ordered(a, domain, lambda n: integer(rank), "scipy.signal.order_filter")


def median(x: Any, size: Any, name: str) -> Any:
    size = [3 if size is None else integer(size)] * len(shape(x)) if size is None or rank(size) == 0 else [integer(m) for m in size]
    return ordered(x, plain_np.ones(size), lambda n: n // 2, name)


SIGNAL.rule(sig.medfilt)(lambda volume, kernel_size=None: median(volume, kernel_size, "scipy.signal.medfilt"))
SIGNAL.rule(sig.medfilt2d)(lambda input, kernel_size=3: median(input, kernel_size, "scipy.signal.medfilt2d"))


@SIGNAL.rule(sig.wiener)
def wiener(im, mysize=None, noise=None):
    """Local means, with what differs from them taken for noise by its share of the local variance."""
    x = array(im, im if tracked(im) else noise)
    size = [3] * ndim(x) if mysize is None else [integer(mysize)] * ndim(x) if rank(mysize) == 0 else [integer(m) for m in mysize]
    ones = constant(plain_np.ones(size), x)
    local = lambda v: correlate(v, ones, "same") / math.prod(size)
    mean = local(x)
    variance = local(x * x) - mean * mean
    noise = np.mean(variance) if noise is None else noise
    below = variance < noise
    return np.where(below, mean, mean + (x - mean) * (1.0 - noise / np.where(below, 1.0, variance)))


@SIGNAL.rule(sig.sepfir2d)
def sepfir2d(input, hrow, hcol):
    like = next(v for v in (input, hrow, hcol) if tracked(v))
    x = array(input, like)
    for h, axis in ((hrow, 1), (hcol, 0)):
        h = array(h, like)
        m = shape(h)[0]
        wide = np.pad(x, [(m // 2, m // 2) if i == axis else (0, 0) for i in (0, 1)], "symmetric")
        x = convolve(wide, np.reshape(h, (1, -1) if axis else (-1, 1)), "valid")
    return x


# --- peaks: places are constant, heights are not ---


@SIGNAL.rule(sig.find_peaks)
def find_peaks(
    x, height=None, threshold=None, distance=None, prominence=None, width=None, wlen=None, rel_height=0.5, plateau_size=None
):  # fmt: skip
    x = array(x)
    given = [bare(v) for v in (height, threshold, distance, prominence, width, wlen, rel_height, plateau_size)]
    peaks, found = at_users_line(sig.find_peaks, bare(x), *given)
    heights = np.take(x, peaks)
    if "peak_heights" in found:
        found["peak_heights"] = heights
    if "left_thresholds" in found:
        found["left_thresholds"], found["right_thresholds"] = [heights - np.take(x, peaks + d) for d in (-1, 1)]
    if "prominences" in found:
        found["prominences"] = heights - base_of(x, found["left_bases"], found["right_bases"])
    if "widths" in found:
        names = ("widths", "width_heights", "left_ips", "right_ips")
        data = [found[n] for n in ("prominences", "left_bases", "right_bases")]
        found.update(zip(names, peak_widths(x, peaks, given[6], data), strict=True))
    return peaks, found


def base_of(x: Any, left: Any, right: Any) -> Any:
    return np.maximum(np.take(x, left), np.take(x, right))


@SIGNAL.rule(sig.peak_prominences)
def peak_prominences(x, peaks, wlen=None):
    x, peaks = array(x), plain_np.asarray(bare(peaks))
    _, left, right = at_users_line(sig.peak_prominences, bare(x), peaks, bare(wlen))
    return np.take(x, peaks) - base_of(x, left, right), left, right


@SIGNAL.rule(sig.peak_widths)
def peak_widths(x, peaks, rel_height=0.5, prominence_data=None, wlen=None):
    """On the line between the two samples where the signal crosses the height."""
    like = next(v for v in (x, prominence_data, rel_height) if tracked(v))
    x, peaks = array(x, like), plain_np.asarray(bare(peaks))
    if prominence_data is None:
        prominence_data = peak_prominences(x, peaks, wlen)
    found = at_users_line(sig.peak_widths, bare(x), peaks, bare(rel_height), tuple([bare(v) for v in prominence_data]))
    height = np.take(x, peaks) - prominence_data[0] * rel_height
    ends = []
    for places, inward in ((plain_np.floor(found[2]), 1), (plain_np.ceil(found[3]), -1)):
        low, high = np.take(x, places.astype(int)), np.take(x, places.astype(int) + inward)
        crosses = low < height
        ends.append(places + inward * np.where(crosses, (height - low) / np.where(crosses, high - low, 1.0), 0.0))
    return ends[1] - ends[0], height, *ends


@SIGNAL.rule(sig.vectorstrength)
def vectorstrength(events, period):
    like = events if tracked(events) else period
    t, p = array(events, like), array(period, like)
    mean = np.mean(np.exp(2j * math.pi * t / np.reshape(p, (-1, 1))), -1)
    strength, phase = np.abs(mean), np.angle(mean)
    return (strength[0], phase[0]) if ndim(p) == 0 else (strength, phase)


# --- waveforms ---


@SIGNAL.rule(sig.gauss_spline)
def gauss_spline(x, n):
    variance = (n + 1) / 12.0
    return np.exp(-(array(x) ** 2) / (2 * variance)) / np.sqrt(2 * math.pi * variance)


def phase_of(t: Any, f0: Any, t1: Any, f1: Any, method: str, vertex_zero: bool) -> Any:
    """2 pi times the integral of the frequency."""
    if method in ("linear", "lin", "li"):
        return 2 * math.pi * (f0 * t + (f1 - f0) * t * t / (2 * t1))
    if method in ("quadratic", "quad", "q"):
        curve = (f1 - f0) / (3 * t1**2)
        return 2 * math.pi * (f0 * t + curve * t**3 if vertex_zero else f1 * t + curve * ((t1 - t) ** 3 - t1**3))
    if bool(f0 == f1):
        return 2 * math.pi * f0 * t
    if method in ("logarithmic", "log", "lo"):
        rate = np.log(f1 / f0) / t1
        return 2 * math.pi * f0 * (np.exp(rate * t) - 1.0) / rate
    if method in ("hyperbolic", "hyp"):
        pole = f1 * t1 / (f1 - f0)
        return -2 * math.pi * pole * f0 * np.log(np.abs(1.0 - t / pole))
    raise ValueError(f"scipy.signal.chirp: method must be 'linear', 'quadratic', 'logarithmic' or 'hyperbolic', not {method!r}")


@SIGNAL.rule(sig.chirp)
def chirp(t, f0, t1, f1, method="linear", phi=0, vertex_zero=True, *, complex=False):
    phase = phase_of(array(t), f0, t1, f1, method, vertex_zero) + np.deg2rad(phi)
    return np.exp(1j * phase) if complex else np.cos(phase)


@SIGNAL.rule(sig.sweep_poly)
def sweep_poly(t, poly, phi=0):
    c = array(poly.c if isinstance(poly, plain_np.poly1d) else poly, t if tracked(t) else poly)
    n = shape(c)[0]
    whole = np.concatenate([c / plain_np.arange(n, 0, -1), 0.0 * c[:1]])
    return np.cos(2 * math.pi * np.polyval(whole, array(t, c)) + np.deg2rad(phi))


@SIGNAL.rule(sig.gausspulse)
def gausspulse(t, fc=1000, bw=0.5, bwr=-6, tpr=-60, retquad=False, retenv=False):
    rate = -((math.pi * fc * bw) ** 2) / (math.log(10.0) * bwr / 5.0)
    if isinstance(t, str):
        return np.sqrt(-math.log(10.0) * tpr / 20.0 / rate)
    t = array(t)
    envelope = np.exp(-rate * t * t)
    found = [envelope * np.cos(2 * math.pi * fc * t)]
    found += [envelope * np.sin(2 * math.pi * fc * t)] if retquad else []
    found += [envelope] if retenv else []
    return tuple(found) if len(found) > 1 else found[0]


@SIGNAL.rule(sig.sawtooth)
def sawtooth(t, width=1):
    like = t if tracked(t) else width
    t, w = array(t, like), array(width, like)
    s = t / (2 * math.pi)
    s = s - np.floor(s)
    rising = s < w
    up, down = np.where(w == 0, 1.0, w), np.where(w == 1, 0.5, w)
    y = np.where(rising, 2.0 * s / up - 1.0, (1.0 + down - 2.0 * s) / (1.0 - down))
    return np.where((w > 1) | (w < 0), plain_np.nan, y)
