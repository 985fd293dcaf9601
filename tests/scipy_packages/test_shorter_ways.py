"""Where a number is exactly 0 or 1, or numbers are equal, the libraries' Python code takes a shorter way, which
has the value and not the derivative: normalised filters, equal steps, parameters of transforms, laws at the end
of their parameters. Judged by differences, to the right where there is nothing to the left."""

import numpy as np
import pytest
import scipy.fft
import scipy.integrate
import scipy.linalg
import scipy.signal as sig
import scipy.special as sp
import scipy.stats as stats
from numpy.polynomial import chebyshev, hermite, laguerre, polynomial
from scipy.spatial import distance, geometric_slerp
from scipy.spatial.transform import Rotation

import tapegrad as tg
from tapegrad._scipy import shorter_ways
from tapegrad._scipy.followed import is_python_class

X = np.array([0.3, -0.4, 0.8, 1.7, -1.2])
Y = X**2 + 1
A, B = np.array([1.0, 0.7, 0.5]), np.array([1.0, 0.4, 0.3])
WAYS = {
    "gradient, equal steps": (lambda t: np.gradient(X, t), np.arange(5.0)),
    "gradient, edges of order 2": (lambda t: np.gradient(X, t, edge_order=2), 2 * np.arange(5.0)),
    "gradient of an image": (lambda t: np.gradient(np.outer(X, Y), t, 0.5 * t)[1], np.arange(5.0)),
    "lfilter_zi": (lambda a: sig.lfilter_zi(B, a), A),
    "lfiltic": (lambda a: sig.lfiltic(B, a, X[:2], X[2:4]), A),
    "lp2hp": (lambda w: np.concatenate(sig.lp2hp(B, A, w)), 1.0),
    "iqr": (lambda s: stats.iqr(X, scale=s), 1.0),
    "power_divergence": (lambda p: stats.power_divergence(Y, np.full(5, Y.mean()), lambda_=p)[0], 1.0),
    "yeojohnson at 0": (lambda p: stats.yeojohnson(X, p), 0.0),
    "yeojohnson at 2": (lambda p: stats.yeojohnson_llf(p, X), 2.0),
    "boxcox_llf": (lambda p: stats.boxcox_llf(p, Y), 0.0),
    "logsumexp": (lambda b: sp.logsumexp(X, b=b), np.array([0.0, 1.0, 0.5, 2.0, 0.0])),
    "chebline": (lambda q: chebyshev.chebval(X, chebyshev.chebline(0.3, q)), 0.0),
    "hermline": (lambda q: hermite.hermval(X, hermite.hermline(0.3, q)), 0.0),
    "lagline": (lambda q: laguerre.lagval(X, laguerre.lagline(0.3, q)), 0.0),
    "polyline": (lambda q: polynomial.polyval(X, polynomial.polyline(0.3, q)), 0.0),
}
WAYS |= {
    f"a rotation to the power {n}": (lambda n: (Rotation.from_rotvec(X[:3]) ** n).as_matrix(), float(n))
    for n in (-1, 0, 1)
    if is_python_class(Rotation)  # (compiled before SciPy 1.17)
}
WAYS |= {
    "fht of no bias": (lambda b: scipy.fft.fht(Y, 0.3, 0.5, bias=b), 0.0),
    "minkowski of 2": (lambda p: distance.minkowski(X, Y, p), 2.0),
    "norm of order 2": (lambda p: scipy.linalg.norm(X, p), 2.0),
}
FROM_THE_RIGHT = {
    "euclidean": lambda w: distance.euclidean(X, Y, np.concatenate([np.reshape(w, 1), np.ones(4)])),
    "minkowski": lambda w: distance.minkowski(X, Y, 3, np.concatenate([np.reshape(w, 1), np.ones(4)])),
    "rice": lambda b: stats.rice.logpdf(Y, b),
    "vonmises": lambda k: stats.vonmises.pdf(X, k),
    "logsumexp": lambda b: sp.logsumexp(X, b=np.concatenate([np.ones(3), np.reshape(b, 1), np.ones(1)])),
    "ive": lambda z: sp.ive(3.0, z) + sp.ive(0.0, z) + sp.i1e(z),
}
NO_DERIVATIVE = {  # the formula has none at this point
    "pearson3": lambda k: stats.pearson3.pdf(X, k),
    "ncx2": lambda c: stats.ncx2.pdf(Y, 3.0, c),
    "power_divergence at 0": lambda p: stats.power_divergence(Y, np.full(5, Y.mean()), lambda_=p)[0],
    "pmean at 0": lambda p: stats.pmean(Y, p),
    "slerp between equal points": lambda p: geometric_slerp(
        np.array([1.0, 0.0]), np.stack([np.cos(p), np.sin(p)]), np.array([0.3, 0.7])
    ),
    "chirp of equal frequencies": lambda f: sig.chirp(X, 1.0 + f, 4.0, 1.0, "hyperbolic"),
}


def weighed(f):
    return lambda x: np.sum(np.reshape(f(x), -1) * np.cos(1 + np.arange(np.size(f(x)))))


@pytest.mark.parametrize("name", WAYS)
def test_values_at_which_the_code_takes_a_shorter_way(name):
    f, x = WAYS[name]
    g, x, h = weighed(f), np.asarray(x), 1e-3
    along = lambda e: (8 * (g(x + h * e) - g(x - h * e)) - g(x + 2 * h * e) + g(x - 2 * h * e)) / (12 * h)
    wanted = np.reshape([along(np.reshape(e, x.shape)) for e in np.eye(x.size)], x.shape)
    assert tg.value_and_grad(g)(x)[0] == pytest.approx(g(x), rel=1e-12)
    for mode in ("reverse", "forward"):
        np.testing.assert_allclose(tg.jacobian(g, mode=mode)(x), wanted, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(tg.prepare(g, x).grad(x), wanted, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", FROM_THE_RIGHT)
def test_laws_at_the_end_of_their_parameters(name):
    g = weighed(FROM_THE_RIGHT[name])
    h = 1e-4
    wanted = (-3 * g(0.0) + 4 * g(h) - g(2 * h)) / (2 * h)
    assert tg.grad(g)(0.0) == pytest.approx(wanted, rel=1e-5, abs=1e-6)
    assert tg.jvp(g, (0.0,), (1.0,))[1] == pytest.approx(wanted, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("name", NO_DERIVATIVE)
def test_a_limit_that_the_formula_lacks(name):
    """Unless SciPy's formula has it: that of `pmean` does from SciPy 1.18 on."""
    g = weighed(NO_DERIVATIVE[name])
    with np.errstate(all="ignore"):
        value, slope = tg.value_and_grad(g)(0.0)
        tangent, h = tg.jvp(g, (0.0,), (1.0,))[1], 1e-4
        right = pytest.approx((g(h) - g(-h)) / (2 * h), rel=1e-6)
        assert [not np.isfinite(x) or name == "pmean at 0" and x == right for x in (slope, tangent)] == [
            True,
            True,
        ]
    assert value == pytest.approx(g(0.0), rel=1e-12)


LIBRARY = {"__name__": "scipy.signal.imagined", "np": np}
exec(
    """
def power(x, p):
    return x if p == 1 else x**p

def checked(x, p):
    if not p == 1:
        raise ValueError("p is 1")
    return 3 * x * p

def undefined(x, p):
    if not p == 1:
        raise ValueError("math domain error")
    return x

def guarded(x, p):
    y = x - p
    y[y == 0] = 2.0
    return x / y

def limit(x, p):
    return np.log(x) if p == 1 else (x ** (p - 1) - 1) / (p - 1)

def twice(x, p):
    if p == 1:
        x = x * 1
    else:
        x = x * p
    return checked(x, 1.0) + (x if p == 1 else x**p)

def same(x, p):
    return x if np.array_equal(p, 1.0) else x**p

def close(x, p):
    return x if np.allclose(1.0, p) else x**p

def near(x, p):
    return np.where(np.isclose(p, 1.0), x, x**p)

def true(x, p):
    return x**p if p - 1 else x

def of_a_function(f, p):
    return f(p) if p == 1 else f(p) ** p
""",
    LIBRARY,
)
Z = np.array([1.0, 0.5])


def in_general(name):
    return lambda x, p: shorter_ways.in_general(LIBRARY[name], (x, p), {})


@pytest.mark.parametrize(
    "name, by_x, by_p",
    [
        *[(name, np.ones(2), np.sum(Z * np.log(Z))) for name in ("power", "same", "close", "near", "true")],
        ("checked", 3 * np.ones(2), 3 * np.sum(Z)),
        ("guarded", [0.5, -4.0], 2.0),
        ("limit", 1 / Z, np.nan),
        ("undefined", np.ones(2), np.nan),
        ("twice", 4 * np.ones(2), 4 * np.sum(Z) + np.sum(Z * np.log(Z))),
    ],
)
def test_which_of_two_ways_has_the_derivatives(name, by_x, by_p):
    """A way that holds nearby; a check of arguments; a formula that is not defined at the point; a guard against division by zero; a limit."""
    g = lambda x, p: np.sum(in_general(name)(x, p))
    value, (dx, dp) = tg.value_and_grad(g, (0, 1))(Z, 1.0)
    assert value == np.sum(LIBRARY[name](Z, 1.0))
    np.testing.assert_allclose(dx, by_x, rtol=1e-12)
    np.testing.assert_allclose(dp, by_p, rtol=1e-12)


def test_a_function_of_the_user_is_called_once():
    calls = []
    f = lambda p: calls.append(p) or 2 * p
    assert tg.grad(lambda p: in_general("of_a_function")(f, p))(1.0) == 2.0 and len(calls) == 1


def test_odeint_over_an_empty_interval():
    f = lambda y, t: scipy.integrate.odeint(lambda y, t: -2 * y, y, t)[-1].sum()
    y, t = np.array([1.5]), np.array([0.3, 0.3])
    value, (by_start, by_times) = tg.value_and_grad(f, (0, 1))(y, t)
    assert value == f(y, t) == 1.5
    np.testing.assert_allclose(by_start, [1.0])
    np.testing.assert_allclose(by_times, [3.0, -3.0])


def test_the_solution_within_an_empty_interval():
    """SciPy's is constant there; a longer interval has the slope of the right-hand side."""

    def f(end, dense):
        found = scipy.integrate.solve_ivp(lambda t, y: -2 * y, (0.0, end), [1.5], dense_output=dense)
        return found.sol(0.2 * end)[0] if dense else found.y[0, -1]

    assert tg.grad(f)(0.0, False) == pytest.approx(-3.0)
    with pytest.raises(np.linalg.LinAlgError, match="empty interval"):
        tg.grad(f)(0.0, True)


def test_an_empty_region_of_cubature():
    f = lambda b: scipy.integrate.cubature(lambda x: np.cos(x[:, 0]), [0.3], b).estimate
    assert f(np.array([0.3])) == 0
    with pytest.raises(np.linalg.LinAlgError, match="limits that are equal"):
        tg.grad(f)(np.array([0.3]))


@pytest.mark.parametrize("output", ("sos", "zpk", "ba"))
@pytest.mark.parametrize("order", (2, 3, 5))
@pytest.mark.parametrize("kind", ("lowpass", "bandpass"))
def test_filters_by_their_frequency(kind, order, output):
    """Poles that are conjugate make a real polynomial; in the general way it is complex, and raises."""

    def design(w):
        edges = w if kind == "lowpass" else [w, w + 0.3]
        found = sig.butter(order, edges, kind, output=output)
        parts = found if isinstance(found, tuple) else (found,)
        return sum([np.sum(abs(x) * np.arange(1.0, np.size(x) + 1).reshape(np.shape(x))) for x in parts])

    differences = (design(0.3 + 1e-6) - design(0.3 - 1e-6)) / 2e-6
    assert tg.grad(design)(0.3) == pytest.approx(differences, rel=1e-6)
    assert tg.jvp(design, (0.3,), (1.0,))[1] == pytest.approx(differences, rel=1e-6)
