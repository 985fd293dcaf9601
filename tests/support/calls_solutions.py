"""Calls of scipy.integrate's further integrals, classes of steps and boundary value problems, as users write
them: see public_calls.py."""

import numpy as np
import scipy.integrate as s
from public_calls import cat, table
from scipy.stats import qmc

CALLS, t = table(samples=False)
rng = np.random.default_rng(0)
z = np.array([0.7, 1.3])
F = lambda t, u, a, b: np.array([u[1], -a * u[0] - b * u[1] + np.sin(t)])
t(
    "cubature",
    lambda p: (
        s.cubature(lambda x, a: np.exp(-a * np.sum(x * x, -1)), [0.0, 0.0], [1.0, 1.0], args=(p[0],)).estimate
    ),
    z,
)
t("cubature limits", lambda p: s.cubature(lambda x: np.cos(x[:, 0] * p[0]), [0.0], p[1:]).estimate, z)
t(
    "qmc",
    lambda p: (
        s.qmc_quad(
            lambda x: np.exp(-p[0] * np.sum(x * x, 0)),
            np.zeros(2),
            p,
            n_points=32,
            n_estimates=3,
            qrng=qmc.Halton(2, seed=np.random.default_rng(5)),
        ).integral
    ),
    z,
)
t("newton_cotes", lambda x: s.newton_cotes(np.concatenate([[0.0], x, [3.0]]), 0)[0], np.array([1.1, 1.9]))


def stepped(M, p, **k):
    r = M(lambda t, u: F(t, u, p[0], p[1]), 0.0, np.array([1.0, 0.2]) * p[0], 1.0, rtol=1e-6, atol=1e-8, **k)
    for _ in range(6):
        r.step()
    return cat(r.y, r.t, r.dense_output()(r.t_old * 0.3 + 0.7 * r.t))


for m in ("RK23", "RK45", "DOP853", "Radau", "BDF"):
    t("class " + m, lambda p, m=m: stepped(getattr(s, m), p, max_step=0.15), z, rtol=1e-4, exact=1e-8)
t("tanhsinh", lambda p: s.tanhsinh(lambda x: np.exp(-p[0] * x * x), 0.0, p[1]).integral, z)
t(
    "tanhsinh args",
    lambda p: s.tanhsinh(lambda x, a: np.exp(-a * x * x), -np.inf, np.inf, args=(p[0],)).integral,
    z,
)
t(
    "tanhsinh half",
    lambda p: s.tanhsinh(lambda x: np.exp(-p[0] * x) * np.sqrt(x), 0.0, np.inf).integral,
    z,
    exact=1e-9,
)
t("tanhsinh minus", lambda p: s.tanhsinh(lambda x: np.exp(p[0] * x), -np.inf, p[1]).integral, z, exact=1e-9)
t(
    "tanhsinh many",
    lambda p: s.tanhsinh(lambda x, a: np.exp(-a * x * x), np.zeros(2), p, args=(p,)).integral,
    z,
)
t("nsum", lambda p: s.nsum(lambda k: 1 / (k**2 + p[0]), 1, np.inf).sum, z, exact=1e-8, rtol=1e-6)
t("nsum fin", lambda p: s.nsum(lambda k, a: np.exp(-a * k), 1, 20, args=(p[0],)).sum, z)
x = np.linspace(0, 1, 6)
t(
    "bvp",
    lambda p: s.solve_bvp(
        lambda x, y: np.stack([y[1], -p[0] * np.exp(y[0])]),
        lambda a, b: np.array([a[0] - p[1] * 0.1, b[0]]),
        x,
        np.zeros((2, 6)),
        tol=1e-6,
    ).sol(np.array([0.33, 0.5]))[0],
    z,
    exact=1e-7,
    rtol=1e-4,
    h=1e-2,
)
t(
    "bvp p",
    lambda q: cat(
        s.solve_bvp(
            lambda x, y, p: np.stack([y[1], -(p[0] ** 2) * y[0] * q[0]]),
            lambda a, b, p: np.array([a[0], b[0], a[1] - p[0] * q[1]]),
            x,
            np.array([np.sin(3 * x), 3 * np.cos(3 * x)]),
            p=[3.0],
            tol=1e-6,
        ).p
    ),
    z,
    exact=1e-7,
    rtol=1e-4,
    h=1e-2,
)
z = np.array([1.1, 0.3])


def fall(t, u, g, k):
    return np.array([u[1], -g - k * u[1] * np.abs(u[1]) * 0 - k * u[1]])


def ground(t, u, g, k):
    return u[0]


ground.terminal = True
ground.direction = -1


def top(t, u, g, k):
    return u[1]


TIGHT = dict(rtol=1e-10, atol=1e-12)
for m in ("RK45", "DOP853", "Radau", "LSODA"):
    t(
        "events " + m,
        lambda u, p, m=m: (
            lambda r: cat(r.t_events[0], r.t_events[1], r.y_events[0], r.y_events[1], r.t[-1], r.y[:, -1])
        )(
            s.solve_ivp(
                fall,
                (0.0, 50.0),
                u,
                m,
                events=(ground, top),
                args=(p[0], p[1]),
                rtol=1e-9 if m != "Radau" else 1e-8,
                atol=1e-10,
            )
        ),
        np.array([1.0, 5.0]),
        z,
        rtol=1e-4,
        h=1e-2,
        exact=1e-8,
    )
t(
    "event end",
    lambda u, p: s.solve_ivp(
        lambda t, u: fall(t, u, p[0], p[1]), (0.0, 50.0), u, events=lambda t, u: u[0] - p[1], **TIGHT
    ).t_events[0],
    np.array([1.0, 5.0]),
    z,
    rtol=1e-6,
    h=1e-3,
)


def stop(t, u):
    return u[0] - 0.5


stop.terminal = 2
t(
    "event eval",
    lambda u, p: (lambda r: cat(r.y, r.sol(0.7)))(
        s.solve_ivp(
            lambda t, u: np.array([u[1], -p[0] * u[0]]),
            (0.0, 20.0),
            u,
            t_eval=[0.1, 0.5, 1.0, 9.0, 12.0],
            dense_output=True,
            events=stop,
            **TIGHT,
        )
    ),
    np.array([1.0, 0.2]),
    z,
    rtol=1e-6,
    h=1e-3,
)
t(
    "event backward",
    lambda u, p: (lambda r: cat(r.t_events[0], r.y[:, -1]))(
        s.solve_ivp(lambda t, u: np.array([u[1], -p[0] * u[0]]), (p[1], -20.0), u, events=stop, **TIGHT)
    ),
    np.array([1.0, 0.2]),
    z,
    rtol=1e-6,
    h=1e-3,
)
