"""Calls of linear programs, searches, filters by functions, as users write them: see public_calls.py."""

import numpy as np
import scipy.ndimage as n
import scipy.optimize as o
import scipy.spatial.distance as sd
from public_calls import cat, table

CALLS, t = table(samples=False)
rng = np.random.default_rng(0)
z = np.array([0.7, 1.3])
c3 = np.array([-1.0, -2.0, 0.5])
Au = np.array([[1.0, 1.0, 1.0], [1.0, 3.0, 0.2]])
bu = np.array([4.3, 6.1])
Ae = np.array([[1.0, -1.0, 2.0]])
be = np.array([0.5])
t(
    "linprog",
    lambda c, A, b: cat(o.linprog(c, A, b).x, o.linprog(c, A, b).fun, o.linprog(c, A, b).slack),
    c3,
    Au,
    bu,
)
t(
    "linprog eq",
    lambda c, A, b, E, e: cat(o.linprog(c, A, b, E, e, bounds=[(0, 3), (0.1, None), (None, 2)]).x),
    c3,
    Au,
    bu,
    Ae,
    be,
)
t(
    "linprog marginals",
    lambda c, A, b, E, e: cat(
        o.linprog(c, A, b, E, e, bounds=[(0, 3), (0.1, None), (None, 2)]).ineqlin.marginals,
        o.linprog(c, A, b, E, e).eqlin.marginals,
    ),
    c3,
    Au,
    bu,
    Ae,
    be,
)
t("linprog whole", lambda c, A, b: o.linprog(c, A, b, integrality=[1, 0, 0]).x, c3, Au, bu)
t("milp", lambda c, A, b: cat(o.milp(c, constraints=(A, -np.inf, b), integrality=[1, 0, 0]).x), c3, Au, bu)
t(
    "milp fun",
    lambda c: o.milp(c, constraints=o.LinearConstraint(Au, -np.inf, bu), bounds=o.Bounds(0, 2)).fun,
    c3,
)
M = rng.uniform(size=(4, 4))
N4 = rng.uniform(size=(4, 4))
t("qap", lambda a, b: o.quadratic_assignment(a, b, options={"rng": np.random.default_rng(0)}).fun, M, N4)
f = lambda x, p: np.sum(np.exp(p[0] * x)) + p[1] * x[0] * x[1]
t(
    "approx_fprime",
    lambda x, p: o.approx_fprime(x, lambda x: f(x, p), 1e-3),
    np.array([0.3, 0.4]),
    z,
    exact=1e-9,
)
t(
    "check_grad",
    lambda x, p: o.check_grad(lambda x: f(x, p), lambda x: x * p, x, epsilon=1e-3),
    np.array([0.3, 0.4]),
    z,
    exact=1e-9,
)
t(
    "bracket",
    lambda p: cat(*o.bracket(lambda x: (x - p[0]) ** 2 + p[1] * np.exp(x))[:6]),
    z,
    exact=1e-9,
    rtol=1e-5,
    h=1e-5,
)
t(
    "line_search",
    lambda x, p: cat(
        o.line_search(
            lambda x: f(x, p) + np.sum(x**4),
            lambda x: p[0] * np.exp(p[0] * x) + p[1] * x[::-1] + 4 * x**3,
            x,
            -np.array([5.0, 9.0]),
        )[0]
    ),
    np.array([1.3, 1.4]),
    z,
    exact=1e-9,
    rtol=1e-5,
    h=1e-5,
)
X = rng.normal(size=(4, 5))
t("generic_filter", lambda x, p: n.generic_filter(x, lambda w: np.sum(w**3) * p[0], 3), X, z)
t(
    "generic_filter fp",
    lambda x: n.generic_filter(
        x, lambda w, a: w.max() * a, footprint=[[0, 1], [1, 1]], mode="constant", extra_arguments=(2.0,)
    ),
    X,
)


def line(a, out):
    out[:] = a[2:] * a[:-2]


t("generic_filter1d", lambda x: n.generic_filter1d(x, line, 3, axis=0), X)
if hasattr(n, "vectorized_filter"):  # from SciPy 1.16 on
    t("vectorized_filter", lambda x: n.vectorized_filter(x, np.mean, size=(3, 2)), X)
    t(
        "vectorized_filter fp",
        lambda x: n.vectorized_filter(
            x * x, np.sum, footprint=np.array([[0, 1, 1], [1, 0, 1]]), mode="mirror"
        ),
        X,
    )
L = np.array([[1, 1, 2, 2, 0], [1, 3, 3, 2, 0], [0, 0, 3, 3, 1], [2, 2, 2, 0, 0]])
t("labeled", lambda x: n.labeled_comprehension(x, L, [1, 2, 3, 7], lambda v: np.sum(v * v), float, -1.0), X)
t(
    "labeled pos",
    lambda x: n.labeled_comprehension(x, L, [1, 2], lambda v, i: np.sum(v * i), float, 0.0, True),
    X,
)
t("hausdorff", lambda u, v: sd.directed_hausdorff(u, v)[0], X, X[:3] ** 2)
