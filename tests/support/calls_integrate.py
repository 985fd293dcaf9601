"""Calls of scipy.integrate, as users write them: see public_calls.py."""

import numpy as np
import scipy.integrate as s
from public_calls import table

CALLS, t = table()
rng = np.random.default_rng(0)
y = rng.normal(size=9)
x = np.sort(rng.uniform(0, 3, 9))
Y = rng.normal(size=(8, 3))
z = np.array([0.7, 1.3])
t("trapezoid", lambda y, x: s.trapezoid(y, x), y, x)
t("trap dx", lambda y: s.trapezoid(y, dx=0.2, axis=0), Y)
t("ctrap", lambda y, x: s.cumulative_trapezoid(y, x, initial=0), y, x)
t("simpson", lambda y, x: s.simpson(y, x), y, x, rtol=1e-5, h=1e-4)
t("simpson even", lambda y, x: s.simpson(y, x), y[:8], x[:8], rtol=1e-5, h=1e-4)
t("simpson dx", lambda y: s.simpson(y, dx=0.3, axis=0), Y)
t("simpson 9", lambda y: s.simpson(y), y)
t("csimpson", lambda y: s.cumulative_simpson(y, dx=0.3, axis=0), Y)
t("csimpson x", lambda y: s.cumulative_simpson(y, x=x, initial=1.0), y)
t("csimpson nodes", lambda y, x: s.cumulative_simpson(y, x=x), y, x, rtol=1e-5, h=1e-4)
t("csimpson initial", lambda y, a: s.cumulative_simpson(y, dx=a[0], initial=a[1]), y, np.array([0.3, 0.4]))
t("romb", lambda y: s.romb(y, dx=0.5), y)
t("fixed", lambda p: s.fixed_quad(lambda x: np.exp(p[0] * x) * np.sin(x), p[1], 2 * p[0], n=6)[0], z)
t("quad", lambda p: s.quad(lambda x: np.exp(-p[0] * x * x), 0.0, p[1])[0], z, samples=False)
t(
    "quad args",
    lambda p: s.quad(lambda x, a, b: a * np.cos(b * x), -1.0, 2.0, args=(p[0], p[1]))[0],
    z,
    samples=False,
)
t(
    "quad inf",
    lambda p: s.quad(lambda x: np.exp(-p[0] * x * x) / (1 + p[1] * x * x), -np.inf, np.inf)[0],
    z,
    samples=False,
)
t("quad half", lambda p: s.quad(lambda x: np.exp(-p[0] * x), p[1], np.inf)[0], z, samples=False)
t("quad minus", lambda p: s.quad(lambda x: np.exp(p[0] * x), -np.inf, p[1])[0], z, samples=False)
t("quad rev", lambda p: s.quad(lambda x: np.exp(-p[0] * x), np.inf, p[1])[0], z, samples=False)
t(
    "quad_vec",
    lambda p: s.quad_vec(lambda x: np.array([np.exp(p[0] * x), x * p[1]]), 0.0, p[1])[0],
    z,
    samples=False,
)
t(
    "dbl",
    lambda p: s.dblquad(lambda y, x: np.exp(p[0] * x * y), 0.0, 1.0, 0.0, lambda x: x * p[1])[0],
    z,
    samples=False,
    order=1,
)
f = lambda t, u, a, b: np.array([u[1], -a * u[0] - b * u[1] + np.sin(t)])
for m in ("RK45", "RK23", "DOP853"):
    t(
        "ivp " + m,
        lambda u, p, m=m: s.solve_ivp(lambda t, u: f(t, u, p[0], p[1]), (0.0, 1.5), u, method=m).y[:, -1],
        np.array([1.0, 0.2]),
        z,
        samples=False,
        rtol=1e-3,  # differences of SciPy's vary the steps too
        h=1e-2,
    )
    t(
        "ivp args " + m,
        lambda u, p, m=m: (
            s.solve_ivp(
                f,
                (0.0, 1.5),
                u,
                method=m,
                t_eval=np.linspace(0, 1.5, 4),
                args=(p[0], p[1]),
                rtol=1e-8,
                atol=1e-10,
            ).y
        ),
        np.array([1.0, 0.2]),
        z,
        samples=False,
    )
    t(
        "ivp dense " + m,
        lambda u, p, m=m: s.solve_ivp(
            f, (p[1], 0.0), u, method=m, dense_output=True, args=(p[0], p[1]), rtol=1e-8, atol=1e-10
        ).sol(p * 0.5),
        np.array([1.0, 0.2]),
        z,
        samples=False,
        rtol=1e-5,
    )
t(
    "ivp span",
    lambda p: s.solve_ivp(f, (0.0, p[1]), [1.0, 0.2], args=(p[0], p[1]), rtol=1e-9, atol=1e-10).y[:, -1],
    z,
    samples=False,
)
t(
    "odeint",
    lambda u, p: s.odeint(
        lambda u, t: f(t, u, p[0], p[1]), u, np.linspace(0, 1.5, 4), rtol=1e-11, atol=1e-11
    ),
    np.array([1.0, 0.2]),
    z,
    samples=False,
    exact=1e-8,
    rtol=1e-5,
    h=1e-2,
)

STIFF = lambda t, u, a, b: np.array([-40 * a * u[0] + 3 * u[1] ** 2, 2 * u[0] - b * u[1]])
LOOSE = {"samples": False, "rtol": 1e-4, "h": 1e-2}
DENSE = {"method": "Radau", "dense_output": True, "rtol": 1e-6, "atol": 1e-7}
t(
    "ivp Radau",
    lambda u, p: s.solve_ivp(STIFF, (0, 0.3), u, "Radau", args=(p[0], p[1]), rtol=1e-6, atol=1e-7).y[:, -1],
    z + 0.1,
    z,
    **LOOSE,
)
t(
    "ivp BDF",
    lambda p: s.solve_ivp(lambda t, u: STIFF(t, u, p[0], p[1]), (0, 0.3), z, "BDF", rtol=1e-7, atol=1e-8).y[
        :, -1
    ],
    z,
    **LOOSE,
)
t(
    "ivp LSODA",
    lambda u, p: (
        s.solve_ivp(STIFF, (0, 0.3), u, "LSODA", [0.1, 0.3], args=(p[0], p[1]), rtol=1e-8, atol=1e-9).y
    ),
    z,
    z,
    **LOOSE,
)
t(
    "ivp dense Radau",
    lambda p: s.solve_ivp(STIFF, (0, p[0]), [1.0, 0.4], args=(p[0], p[1]), **DENSE).sol(p * 0.2),
    z,
    **LOOSE,
    order=1,
)
t(
    "nquad",
    lambda p: s.nquad(
        lambda y, x, c: np.exp(p[0] * x * y) * c, [lambda x, c: (0, x * p[1]), (0, 1)], args=(p[1],)
    )[0],
    z,
    samples=False,
    order=1,
)


def ode(kind, name, **settings):
    def run(u, p):
        slope = lambda t, u, a: [u[1], -a * np.sin(u[0]) if kind is s.ode else 1j * a * u[0]]
        r = kind(lambda t, u: slope(t, u, p[0])) if kind is s.complex_ode else kind(slope).set_f_params(p[0])
        r.set_integrator(name, rtol=1e-11, atol=1e-12, **settings)
        r.set_initial_value(u, 0.0)
        first = r.integrate(0.7)
        return np.concatenate([first, r.integrate(0.7 + p[1])])

    return run


def ode_with_jacobian(u, p):
    r = s.ode(lambda t, u, a: -a * u, lambda t, u, a: np.diag([-a, -a])).set_integrator(
        "vode", method="bdf", rtol=1e-11, atol=1e-12
    )
    r.set_initial_value(u, 0.0).set_f_params(p[0]).set_jac_params(p[0])
    return r.integrate(0.7)


ODE = {"samples": False, "exact": 1e-9, "rtol": 1e-5, "h": 1e-2}
t("ode", ode(s.ode, "dopri5"), np.array([1.0, 0.2]), z, **ODE)
t("ode adams", ode(s.ode, "vode", method="adams"), np.array([1.0, 0.2]), z, **ODE)
t("ode jac", ode_with_jacobian, np.array([0.2, 1.0]), z, **ODE)
t("complex_ode", ode(s.complex_ode, "dop853"), np.array([1.0, 0.2]), z, **ODE)
