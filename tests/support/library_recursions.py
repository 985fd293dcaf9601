"""The recursions of the library with arguments for their tests."""

import numpy as np
from raw_device import noted_launches  # noqa: F401 (the fixture `device`)

import tapegrad as tg
from tapegrad.kernels import autoregression, garch, kalman, kalman_vector, markov


def positive(rng, k, batch, least=0.2):
    L = 0.4 * rng.normal(size=(k, k, batch))
    return np.einsum("ijb,ljb->ilb", L, L) + least * np.eye(k)[:, :, None]


def model(k, batch, d=None, seed=0):
    """A kalman.Model, or with d a kalman_vector.Model, of which each sample has its own arguments."""
    rng = np.random.default_rng(seed)
    A = 0.7 * np.linalg.qr(rng.normal(size=(k, k)))[0][:, :, None] + 0.05 * rng.normal(size=(k, k, batch))
    c, r = (rng.normal(size=(k, batch)), np.exp(rng.normal(size=batch))) if d is None else (None, None)
    if d is not None:
        c, r = rng.normal(size=(d, k, batch)), positive(rng, d, batch)
    kind = kalman.Model if d is None else kalman_vector.Model
    return kind(A, c, positive(rng, k, batch), r, rng.normal(size=(k, batch)), positive(rng, k, batch))


def series(*shape, seed=1, holes=()):
    y = np.random.default_rng(seed).normal(size=shape)
    for hole in holes:
        y[hole] = np.nan
    return y


def partial(P, batch, seed=0):
    """Parameters of stationary autoregressions."""
    rng = np.random.default_rng(seed)
    phi = np.zeros((0, batch))
    for k in rng.uniform(-0.8, 0.8, (P, batch)):
        phi = np.concatenate([phi - k * phi[::-1], k[None]])
    return np.concatenate([0.3 * rng.normal(size=(1, batch)), phi, rng.uniform(0.5, 2, (1, batch))])


def garch_theta(batch, seed=0):
    rng = np.random.default_rng(seed)
    return np.stack(
        [
            0.1 * rng.normal(size=batch),
            *rng.uniform([[0.1], [0.05], [0.1]], [[0.5], [0.3], [0.6]], (3, batch)),
        ]
    )


def markov_theta(K, batch, normal=True, seed=0):
    rng = np.random.default_rng(seed)
    rows = [
        rng.normal(size=(K * K + K, batch)),
        rng.normal(size=(K, batch)),
        rng.uniform(0.5, 2.0, (K, batch)),
    ]
    return np.concatenate(rows if normal else rows[:1])


def packed(filter, model, y):
    """The kernel behind a filter, theta and data."""
    call = filter._packed(model, y, True)
    return filter.kernel(call), call.theta, call.data


def varying(model, steps, names, batch, seed=3):
    """Some arguments with a value for each step."""
    rng = np.random.default_rng(seed)
    change = {}
    for name in names:
        x = getattr(model, name)
        scale = np.exp(0.3 * rng.normal(size=(steps, *[1] * (x.ndim - 1), batch)))
        change[name] = np.ascontiguousarray(x[..., :batch] * scale)
    return model._replace(**change)


def consts(model, names):
    return model._replace(**{name: tg.Const(getattr(model, name)) for name in names})


BY_HAND = ("markov",)  # with CUDA C: what their names begin with


LONG, SHORT = [3, 4, 20], [(0, 3), (slice(None), 5), (-1, 7)]


CASES = {
    "kalman 1": lambda: packed(kalman.loglik, model(1, 70), series(40, holes=LONG)),
    "kalman 3": lambda: packed(kalman.loglik, model(3, 70), series(40)),
    "kalman 4, each": lambda: packed(kalman.loglik, model(4, 5), series(30, 5, holes=[(3, 2), 9])),
    "kalman 8": lambda: packed(kalman.loglik, model(8, 3), series(12)),
    "kalman, fixed steps": lambda: packed(
        kalman.loglik, consts(varying(model(2, 5), 25, "AcQr", 1), "AcQr"), series(25, holes=LONG)
    ),
    "kalman, steps of samples": lambda: packed(
        kalman.loglik, consts(varying(model(2, 5), 25, "Ar", 5), "Ar"), series(25, 5, holes=LONG)
    ),
    "vector 3, 2": lambda: packed(kalman_vector.loglik, model(3, 70, 2), series(2, 30, holes=SHORT)),
    "vector 2, 4": lambda: packed(kalman_vector.loglik, model(2, 5, 4), series(4, 30, holes=SHORT)),
    "vector 4, 3, each": lambda: packed(kalman_vector.loglik, model(4, 5, 3), series(3, 20, 5, holes=SHORT)),
    "vector, fixed steps": lambda: packed(
        kalman_vector.loglik, consts(varying(model(2, 5, 2), 25, "ACQR", 1), "ACQR"), series(2, 25,
        holes=SHORT)
    ),
    "garch": lambda: (garch.loglik, garch_theta(70), series(1, 400, holes=[(0, 3), (0, 4), (0, 129)])),
    "garch, each": lambda: (garch.loglik, garch_theta(5), series(1, 40, 5, holes=[(0, 3, 1)])),
    "autoregression 1": lambda: (autoregression.loglik, partial(1, 70), series(1, 400)),
    "autoregression 4": lambda: (autoregression.loglik, partial(4, 70), series(1, 400)),
    "autoregression 8, each": lambda: (autoregression.loglik, partial(8, 5), series(1, 30, 5)),
    "autoregression, short": lambda: (autoregression.loglik, partial(5, 5), series(1, 3)),
    "markov 1": lambda: (markov.loglik, markov_theta(1, 5), series(1, 30)),
    "markov 3": lambda: (markov.loglik, markov_theta(3, 70), series(1, 60, holes=[(0, 3), (0, 59)])),
    "markov 8, each": lambda: (markov.loglik, markov_theta(8, 5), series(1, 20, 5)),
    "markov given": lambda: (markov.loglik_given, markov_theta(3, 5, False), series(3, 30, holes=[(1, 3)])),
}  # fmt: skip
