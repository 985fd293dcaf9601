"""GARCH(1, 1): y[t] = mu + e[t], e[t] ~ N(0, h[t]), h[t + 1] = omega + alpha e[t]^2 + beta h[t].

loglik(theta, y)                    theta (4, B): mu, omega, alpha, beta; y (N,) or (1, N, B): (B,)
loglik.value_and_grad(theta, y)     (B,), (4, B)

The first variance is the stationary one, omega / (1 - alpha - beta).  nan is missing: e^2 has then its mean h.  omega <= 0, alpha < 0,
beta < 0 and alpha + beta >= 1 are not valid.

Source: Bollerslev, Generalized autoregressive conditional heteroskedasticity, J. Econometrics 31 (1986).

>>> import numpy as np, tapegrad as tg
>>> value, gradient = tg.kernels.garch.loglik.value_and_grad(np.array([0.0, 0.1, 0.1, 0.8]), np.array([0.5, np.nan, -1.0]))
>>> gradient.round(4)
array([-0.5759, -3.3968, -3.4259, -3.3997])
"""

import numpy as np

from ..generated.kernel import recursion
from .handwritten import Definition, HandwrittenRecursion, twin
from .on_cpu import Sweeps
from .sample_loops import LOG_2_PI
from .sweeps import Frame, Steps, datum, nothing, nothing_stored
from .vectors import double, doubles, fma, log, narrow, splat, where, whole


def start(theta):
    _, omega, alpha, beta = theta
    valid = np.minimum(np.minimum(alpha, beta), 0.0) >= 0
    valid = np.where(valid, np.minimum(omega, 1 - alpha - beta), 0.0) > 0
    return np.where(valid, omega / (1 - alpha - beta), np.nan)


def step(h, theta, y):
    """The next variance, and the log density of y."""
    mu, omega, alpha, beta = theta
    here = ~np.isnan(y[0])
    e = np.where(here, y[0], mu) - mu
    square = np.where(here, e * e, h)
    return omega + alpha * square + beta * h, np.where(here, -0.5 * (LOG_2_PI + np.log(h) + e * e / h), 0.0)


# --- the twin of garch.cu: mu, omega, alpha, beta, rest, h, e; the cotangents of mu, omega, alpha, beta, h; sums of the first four ---


@twin
def begin(room, outside, layout, sizes):
    theta, sums = outside[0], doubles(room + 12)
    for k in range(4):
        room[k] = theta[k]
        room[7 + k] = 0
        sums[k] = 0
    room[11] = 0
    mu, omega, alpha, beta = room[0], room[1], room[2], room[3]
    rest = 1 - alpha - beta
    room[4] = rest
    room[5] = omega / rest
    return (mu - mu == 0) & (omega > 0) & (alpha >= 0) & (beta >= 0) & (rest > 0)


@twin
def recall(room, outside, t, layout, sizes):
    room[6] = datum(outside, 0, t) - room[0]


@twin
def observe(room, outside, t, layout, sizes):
    recall(room, outside, t, layout, sizes)
    h, e = room[5], room[6]
    here = e == e
    return where(here, fma(e, e / h, log(h)), 0), where(here, splat(1, h), 0), whole(h, True)


@twin
def move(room, outside, t, layout, sizes):
    h, e = room[5], room[6]
    room[5] = fma(room[2], where(e == e, e * e, h), fma(room[3], h, room[1]))


@twin
def save(room, stored, sizes):
    stored[0] = room[5]


@twin
def restore(room, stored, sizes):
    room[5] = stored[0]


@twin
def observe_adjoint(room, outside, t, layout, sizes):
    alpha, beta, h, e, h_bar = room[2], room[3], room[5], room[6], room[11]
    here, inverse = e == e, 1 / h
    z = e * inverse
    room[7] = room[7] + where(here, fma(-2 * alpha * e, h_bar, z), 0)
    room[8] = room[8] + h_bar
    room[9] = fma(h_bar, where(here, e * e, h), room[9])
    room[10] = fma(h_bar, h, room[10])
    room[11] = where(here, fma(beta, h_bar, 0.5 * fma(z, z, -inverse)), (alpha + beta) * h_bar)


@twin
def flush(room, outside, t, layout, sizes):
    sums = doubles(room + 12)
    for k in range(4):
        sums[k] = sums[k] + double(room[7 + k])
        room[7 + k] = 0


@twin
def finish(room, outside, layout, valid, sizes):
    sums, gradient, rest = doubles(room + 12), outside[6], room[4]
    slope = room[11] / rest
    slope_start = slope * (room[1] / rest)
    gradient[0] = where(valid, narrow(sums[0], rest), 0)
    gradient[1] = where(valid, narrow(sums[1] + double(slope), rest), 0)
    gradient[2] = where(valid, narrow(sums[2] + double(slope_start), rest), 0)
    gradient[3] = where(valid, narrow(sums[3] + double(slope_start), rest), 0)


STEPS = Steps(begin, observe, move, save, restore, recall, nothing, observe_adjoint, nothing_stored, flush, finish)
SWEEPS = Sweeps(STEPS, Frame(sizes=(1,), modes=[(0, 4)], lines=1, stored=1), room=20, cost=50)

loglik = HandwrittenRecursion(
    Definition(
        name="garch",
        stem="garch",
        formula=recursion(start, step, missing="step"),
        fit=lambda p, d: {} if (p, d) == (4, 1) else None,
        wants="theta (4, B) and y (N,) or (1, N, B)",
        value=SWEEPS.value,
        both=SWEEPS.both,
        work=lambda p, d: ("work real tape[N, slots]",),
        workers=0,
    )
)
