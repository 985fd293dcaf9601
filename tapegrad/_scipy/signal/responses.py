"""scipy.signal: functions of which SciPy's code takes many small steps on arrays."""

import math

import numpy as plain_np
import scipy.signal as sig

from ... import numpy as np
from ..._core.errors import ArgumentError
from ...ops.declare import generic, ndim, shape
from ...ops.indexing.gathering import without
from ...ops.nondifferentiable import at_users_line, holds_somewhere
from ..namespaces import as_float_array, as_integer, bare, constant_like, holds_tracked, tracked_among
from .filters import FOLLOWED, SIGNAL, sections


def rank(x) -> int:
    return ndim(x) if hasattr(x, "shape") else plain_np.ndim(x)


def powers(w, n: int):
    """exp(-i w k), k = 0, .., n - 1."""
    return np.exp(-1j * np.reshape(w, (-1, 1)) * plain_np.arange(n))


def response(c, w):
    P = powers(w, shape(c)[0])
    return (P if holds_tracked(w) else constant_like(P, c)) @ c


def frequencies(worN, whole: bool, fs, include_nyquist: bool = False) -> tuple:
    """(in the units of fs, in radians a sample)"""
    if worN is None or rank(worN) == 0 and float(bare(worN)) == int(bare(worN)):
        n = 512 if worN is None else as_integer(worN)
        w = plain_np.linspace(0, 2 * math.pi if whole else math.pi, n, endpoint=include_nyquist and not whole)
        return w * fs / (2 * math.pi), w
    w = np.atleast_1d(as_float_array(worN))
    return w, 2 * math.pi * w / fs


@SIGNAL.rule(sig.freqz)
def freqz(b, a=1, worN=512, whole=False, plot=None, fs=2 * math.pi, include_nyquist=False):
    like = tracked_among(b, a, worN, fs)
    b, a = np.atleast_1d(as_float_array(b, like)), np.atleast_1d(as_float_array(a, like))
    if plot is not None or ndim(b) > 1 or ndim(a) > 1:
        raise ArgumentError(
            "scipy.signal.freqz: plot=, and several filters at once, are not supported on a tracked Variable"
        )
    f, w = frequencies(worN, whole, fs, include_nyquist)
    return f, response(b, w) / response(a, w)


@SIGNAL.rule(sig.lombscargle)
def lombscargle(x, y, freqs, *, precenter=None, normalize=False, weights=None, floating_mean=False):
    """The least squares of a cosine and a sine (and a mean) at each frequency, by the two equations of their
    amplitudes."""
    like = tracked_among(x, y, freqs, weights)
    x, y, f = [as_float_array(v, like) for v in (x, y, freqs)]
    y = y - np.mean(y) if precenter else y
    n = shape(x)[0]
    w = constant_like(plain_np.ones(n), y) if weights is None else as_float_array(weights, like)
    if holds_somewhere(w < 0) or holds_somewhere(np.sum(w) <= 0):
        raise ValueError("scipy.signal.lombscargle: weights must not be negative, and their sum not zero")
    w = w / np.sum(w)
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
        return np.squeeze(a + 1j * b)
    power = np.squeeze(2.0 * (a * yc + b * ys))
    return power * (n / 4.0) if kind == "power" else power * 0.5 / yy


@SIGNAL.rule(sig.sos2tf)
def sos2tf(sos):
    b = a = [1.0]
    for p, q in sections(sos, sos):
        b, a = np.polymul(b, p), np.polymul(a, q)
    return b, a


def evaluated(weights):
    """The spline with these weights of the neighbours, the samples mirrored at the ends."""

    def run(cj, newx, dx=1.0, x0=0):
        like = cj if holds_tracked(cj) else newx
        c, t = as_float_array(cj, like), (as_float_array(newx, like) - x0) / dx
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


def cubic_weights(t) -> tuple:
    first = np.floor(t)
    s = t - first
    r = 1 - s
    return first - 1, (r**3 / 6, (4 - 6 * s**2 + 3 * s**3) / 6, (4 - 6 * r**2 + 3 * r**3) / 6, s**3 / 6)


def quadratic_weights(t) -> tuple:
    middle = np.floor(t + 0.5)
    s = t - middle
    return middle - 1, ((0.5 - s) ** 2 / 2, 0.75 - s**2, (0.5 + s) ** 2 / 2)


@SIGNAL.rule(sig.sawtooth)
def sawtooth(t, width=1):
    like = t if holds_tracked(t) else width
    t, w = as_float_array(t, like), as_float_array(width, like)
    s = t / (2 * math.pi)
    s = s - np.floor(s)
    rising = s < w
    up, down = np.where(w == 0, 1.0, w), np.where(w == 1, 0.5, w)
    y = np.where(rising, 2.0 * s / up - 1.0, (1.0 + down - 2.0 * s) / (1.0 - down))
    return np.where((w > 1) | (w < 0), plain_np.nan, y)


@SIGNAL.rule(sig.bilinear)
def bilinear(b, a, fs=1.0):
    """Each power s^k becomes (2 fs (z - 1))^k (z + 1)^(m - k)."""
    like = tracked_among(b, a, fs)
    b, a = [np.atleast_1d(as_float_array(x, like)) for x in (b, a)]
    m = max(shape(b)[0], shape(a)[0]) - 1
    power = lambda root, k: plain_np.atleast_1d(plain_np.poly([root] * k))
    P = [plain_np.convolve(power(1.0, k), power(-1.0, m - k)) for k in range(m + 1)]
    P = constant_like(plain_np.stack(P), b)
    of = lambda c: (c * (2.0 * fs) ** plain_np.arange(shape(c)[0])[::-1]) @ P[shape(c)[0] - 1 :: -1]
    return NORMALIZE(of(b), of(a))


def told_of_zeros(run):
    """SciPy removes leading zeros of the numerator. There is no derivative with respect to these."""

    def normalize(b, a):
        num, den = at_users_line(run, b, a)
        if holds_tracked(b) and (lost := shape(b)[-1] - shape(num)[-1]):
            num = without(num, np.asarray(b)[..., :lost])
        return num, den

    return normalize


def companion_of_all(run):
    """The same state space with all coefficients of a numerator that begins with 0."""

    def tf2ss(num, den):
        n, m = plain_np.size(bare(den)), shape(num)[-1] if holds_tracked(num) else 0
        if not 1 < m <= n or ndim(num) > 1 or bare(den)[0] == 0 or not holds_somewhere(num[:1] == 0):
            return run(num, den)
        first = den[0]
        A, B, _, _ = run([1.0], den)
        pad = constant_like(plain_np.zeros(n - m), num)
        num, den = np.concatenate([pad, num]) / first, np.asarray(den)[1:] / first
        return A, B, np.reshape(num[1:] - num[0] * den, (1, -1)), np.reshape(num[:1], (1, 1))

    return tf2ss


def by_states(run):
    """A system that is given by its coefficients, by its states if the numerator begins with 0."""

    def response(system, *args, **kwargs):
        if isinstance(system, tuple) and len(system) in (2, 3) and holds_tracked(system[0]):
            num, den, *step = system
            if ndim(num) == 1 and shape(num)[0] > 1 and holds_somewhere(num[:1] == 0):
                system = (*TF2SS(num, den), *step)
        return run(system, *args, **kwargs)

    return response


def led_by_feedthrough(run):
    """The first coefficient of the numerator is D, and 0 if that is: no rounding, and no other derivative."""

    def ss2tf(A, B, C, D, input=0):
        num, den = run(A, B, C, D, input)
        D = np.atleast_2d(D)
        if shape(D)[0] and shape(num)[-1] == shape(A)[-1] + 1 > 1:
            num = np.concatenate([as_float_array(D[:, input : input + 1], num), num[:, 1:]], 1)
        return num, den

    return ss2tf


generic(sig.lfilter_zi, sig.lfiltic, sig.lp2hp)
FOLLOWED.decorate(sig.normalize, told_of_zeros)
FOLLOWED.decorate(sig.tf2ss, companion_of_all)
FOLLOWED.decorate(sig.ss2tf, led_by_feedthrough)
for _response in (sig.lsim, sig.impulse, sig.step, sig.dlsim, sig.dimpulse, sig.dstep):
    FOLLOWED.decorate(_response, by_states)
NORMALIZE, TF2SS = FOLLOWED.function(sig.normalize), FOLLOWED.function(sig.tf2ss)
SIGNAL.rule(sig.cspline1d_eval)(evaluated(cubic_weights))
SIGNAL.rule(sig.qspline1d_eval)(evaluated(quadratic_weights))
