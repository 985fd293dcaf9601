"""scipy.signal: functions of which SciPy's code takes many small steps on arrays."""

import math

import numpy as plain_np
import scipy.signal as sig

from ... import numpy as np
from ...ops.declare import ndim, shape
from ...ops.indexing.gathering import without
from ...ops.nondifferentiable import at_users_line, holds_somewhere
from ..namespaces import as_float_array, bare, constant_like, holds_tracked, tracked_among
from .filters import FOLLOWED, SIGNAL


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
        num = np.atleast_1d(num) if holds_tracked(num) else num
        n, m = plain_np.size(bare(den)), shape(num)[-1] if holds_tracked(num) else 0
        if not 1 < m <= n or ndim(num) > 1 or bare(den)[0] == 0 or not holds_somewhere(num[:1] == 0):
            return run(num, den)
        NORMALIZE(num, den)  # warns
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


FOLLOWED.decorate(sig.normalize, told_of_zeros)
FOLLOWED.decorate(sig.tf2ss, companion_of_all)
FOLLOWED.decorate(sig.ss2tf, led_by_feedthrough)
for _response in (sig.lsim, sig.impulse, sig.step, sig.dlsim, sig.dimpulse, sig.dstep):
    FOLLOWED.decorate(_response, by_states)
NORMALIZE, TF2SS = FOLLOWED.function(sig.normalize), FOLLOWED.function(sig.tf2ss)
SIGNAL.rule(sig.cspline1d_eval)(evaluated(cubic_weights))
SIGNAL.rule(sig.qspline1d_eval)(evaluated(quadratic_weights))
