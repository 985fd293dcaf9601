"""Student's t distribution.

loglik(theta, x)                    theta (3, B): location, scale, degrees of freedom; x (N,), (1, N) or (1, N, B)
loglik.value_and_grad(theta, x)     (B,), (3, B)"""

import numpy as np
from scipy.special import gammaln

from ..generated.kernel import likelihood
from .handwritten import Definition, HandwrittenLikelihood, twin
from .on_cpu import Sweeps
from .sweeps import Frame, Sums, datum, nothing
from .vectors import double, doubles, log, log1p, narrow, splat, where

HALF_LOG_2_PI = 0.91893853320467274178


def formula(theta, x):
    """The log density of one datum."""
    mean, scale, df = theta
    half = 0.5 * (df + 1)
    constant = gammaln(half) - gammaln(0.5 * df) - 0.5 * np.log(np.pi * df) - np.log(scale)
    return constant - half * np.log1p(((x[0] - mean) / scale) ** 2 / df)


# --- the twin of student_t.cu: mean, 1 / scale, 1 / df; sums of a chunk of data and their number; the same of all data in float64 ---


@twin
def gamma_ratio(a):
    product, more = splat(1, a), splat(0, a)
    for _ in range(10):
        small, middle, both = a < 10, a + 0.5, a * (a + 1)
        product = where(small, product * (both / (middle * middle)), product)
        more = where(small, more + 0.25 / (both * middle), more)
        a = where(small, a + 1, a)
    r = 1 / a
    w = r * r
    h = 0.5 * log(product) + r * (
        -1 / 8 + w * (1 / 192 + w * (-1 / 640 + w * (17 / 14336 + w * (-31 / 18432 + w * (691 / 180224 + w * (-5461 / 425984))))))
    )
    dh = more + w * (1 / 8 + w * (-1 / 64 + w * (1 / 128 + w * (-17 / 2048 + w * (31 / 2048 + w * (-691 / 16384 + w * (5461 / 32768)))))))
    return h, dh


@twin
def begin(room, outside, layout, sizes):
    theta, sums = outside[0], doubles(room + 7)
    room[0] = theta[0]
    room[1] = 1 / theta[1]
    room[2] = 1 / theta[2]
    for k in range(4):
        room[3 + k] = 0
        sums[k] = 0


@twin
def observe(room, outside, t, layout, sizes):
    x = datum(outside, 0, t)
    here = x == x
    z = where(here, (x - room[0]) * room[1], 0)
    u = z * z * room[2]
    room[3] = room[3] + log1p(u)
    room[6] = room[6] + where(here, splat(1, x), 0)
    if sizes[0]:
        q = 1 / (1 + u)
        room[4] = room[4] + u * q
        room[5] = room[5] + z * q


@twin
def flush(room, outside, t, layout, sizes):
    sums = doubles(room + 7)
    for k in range(4):
        sums[k] = sums[k] + double(room[3 + k])
        room[3 + k] = 0


@twin
def finish(room, outside, layout, sizes):
    theta, sums, gradient = outside[0], doubles(room + 7), outside[6]
    location, scale, df = double(theta[0]), double(theta[1]), double(theta[2])
    logs, parts, means, seen = sums[0], sums[1], sums[2], sums[3]
    h, dh = gamma_ratio(where(df > 0, 0.5 * df, 1))
    total = seen * (h - HALF_LOG_2_PI - log(scale)) - 0.5 * (df + 1) * logs
    valid = (scale > 0) & (df > 0) & (location - location == 0) & (total - total == 0)
    outside[7][0] = where(valid, narrow(total, room[0]), -np.inf)
    if sizes[0]:
        gradient[0] = where(valid, narrow((df + 1) * means / (df * scale), room[0]), 0)
        gradient[1] = where(valid, narrow(((df + 1) * parts - seen) / scale, room[0]), 0)
        gradient[2] = where(valid, narrow(0.5 * (seen * dh - logs + (df + 1) * parts / df), room[0]), 0)


SWEEPS = Sweeps(Sums(begin, observe, flush, finish, nothing), Frame(sizes=(), modes=[(0, 3)], lines=1, stored=0), room=16, cost=50)

loglik = HandwrittenLikelihood(
    Definition(
        name="student_t",
        stem="student_t",
        formula=likelihood(formula),
        fit=lambda p, d: {} if p == 3 and d == 1 else None,
        wants="theta (3, B), location, scale and degrees of freedom, and data (N,), (1, N) or (1, N, B)",
        value=SWEEPS.value,
        both=SWEEPS.both,
    )
)
