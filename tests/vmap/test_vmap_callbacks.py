"""SciPy's functions of functions, whose steps depend on values, under `vmap` and in recordings: as a loop
over the samples and as a plain call, in both modes and all orders."""

import numpy as np
import pytest
import scipy.integrate
import scipy.interpolate
import scipy.linalg
import scipy.optimize
import scipy.signal
import scipy.stats

import tapegrad as tg
from tapegrad._scipy import namespaces
from tapegrad.errors import BatchError

TIMES = np.linspace(0.0, 1.0, 5)
DATA = np.cos(7.0 * np.arange(12.0))
X = np.random.default_rng(3).normal(size=(3, 4)) * 0.7
SCRATCH = np.zeros(2)


def oscillator(x):
    right = lambda t, y: [y[1], -(x[0] ** 2) * y[0] - 0.1 * x[1] * y[1]]
    return (scipy.integrate.solve_ivp(right, (0.0, 1.0), [1.0, x[2]], t_eval=TIMES, rtol=1e-8).y ** 2).sum()


def bracketed(x):
    return scipy.optimize.brentq(lambda z: z**3 + np.exp(x[0]) * z - 1 - x[1] ** 2, -5, 5)


def of_arguments(x):
    return scipy.optimize.newton(lambda z, a, b: z**3 + z - a - 2 * b, 1.0, args=(x[0], x[1] * x[2]))


def result_object(x):
    found = scipy.optimize.root_scalar(lambda z: z + np.exp(0.1 * z * x[0]) - 3 - x[1], bracket=[-20, 20])
    return found.root * (2.0 if found.converged else 0.0)


def system(x):
    return (
        scipy.optimize.root(lambda z: [z[0] + 0.1 * z[1] ** 2 - x[0], z[1] + 0.1 * z[0] - x[1]], [0.0, 0.0]).x
        @ x[:2]
    )


def minimum(x):
    found = scipy.optimize.minimize(
        lambda z: ((z - x[:2]) ** 2).sum() + 0.1 * np.cos(z[0] * x[2]), np.zeros(2)
    )
    return found.x @ x[:2] + found.fun


def fitted(x):
    p, covariance = scipy.optimize.curve_fit(
        lambda t, u, v: u * np.exp(-0.1 * t) + v * t, np.arange(12.0), DATA + x[0], p0=[1.0, 1.0]
    )
    return p @ x[1:3] + covariance[0, 0]


def integral(x):
    return scipy.integrate.quad(
        lambda s, p: np.exp(-p * s) * np.sin(x[1] + s), 0, np.exp(0.3 * x[0]), args=(x[2],)
    )[0]


FUNCTIONS = [oscillator, bracketed, of_arguments, result_object, system, minimum, fitted, integral]
FORMS = {
    "value": (lambda f: tg.vmap(f)(X), lambda f, x: f(x)),
    "grad inside": (lambda f: tg.vmap(tg.grad(f))(X), lambda f, x: tg.grad(f)(x)),
    "grad outside": (lambda f: tg.grad(lambda X: tg.vmap(f)(X).sum())(X), lambda f, x: tg.grad(f)(x)),
    "hvp": (lambda f: tg.vmap(lambda x: tg.hvp(f, x, np.ones(4)))(X), lambda f, x: tg.hvp(f, x, np.ones(4))),
    "forward": (lambda f: tg.jvp(tg.vmap(f), (X,), (np.ones((3, 4)),))[1], lambda f, x: tg.grad(f)(x).sum()),
    "hessian": (lambda f: tg.vmap(tg.hessian(f))(X), lambda f, x: tg.hessian(f)(x)),
    "equal samples": (
        lambda f: np.stack([tg.grad(lambda x: tg.vmap(f)(np.stack([x, x])).sum() / 2)(x) for x in X]),
        lambda f, x: tg.grad(f)(x),
    ),
    "equal samples, hvp": (
        lambda f: np.stack([tg.hvp(lambda x: tg.vmap(f, chunk=1)(x[None])[0], x, np.ones(4)) for x in X]),
        lambda f, x: tg.hvp(f, x, np.ones(4)),
    ),
    "replayed": (lambda f: tg.prepare(tg.vmap(tg.grad(f)), X + 0.1)(X), lambda f, x: tg.grad(f)(x)),
}


@pytest.mark.one_in(7)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_as_a_loop(f, form):
    found, one = FORMS[form]
    np.testing.assert_allclose(found(f), np.stack([one(f, x) for x in X]), 1e-6, 1e-8)


def test_two_vmaps():
    f = lambda x, y: scipy.optimize.brentq(lambda z: z + 0.3 * np.sin(z) - x - 2 * y, -20, 20)
    x, y = np.arange(3.0), np.array([0.5, 0.9])
    found = tg.vmap(tg.vmap(tg.grad(f, 1), (None, 0)), (0, None))(x, y)
    np.testing.assert_allclose(found, [[tg.grad(f, 1)(a, b) for b in y] for a in x], 1e-9)


def test_what_is_equal_stays():
    """Flags that all samples share are plain; counts that differ raise an error where they are used."""

    def f(x, counts=False):
        found = scipy.optimize.root_scalar(lambda z: z + np.exp(z * x) - 3, bracket=[-20, 20])
        assert found.converged is True and type(found) is scipy.optimize.RootResults
        return found.root + found.function_calls if counts else found.root

    points = np.array([0.1, 0.2, 5.0])
    assert np.isfinite(tg.vmap(f)(points)).all()
    with pytest.raises(BatchError, match="the entry 'function_calls' .* may be another for each sample"):
        tg.vmap(lambda x: f(x, True))(points)


def test_refusals():
    def written(x):
        def right(z):
            SCRATCH[:] = z[0] + 0.1 * z[1] - x[0], z[1] + 0.05 * z[0] ** 3 - x[1]
            return SCRATCH.copy()

        return scipy.optimize.root(right, [0.0, 0.0]).x.sum()

    ragged = lambda x: scipy.integrate.solve_ivp(lambda t, y: -y * x[0] ** 2, (0.0, 1.0), [x[1]]).y[0, 1]
    counted = lambda x: (
        scipy.optimize.fsolve(lambda z: np.exp(z) - 9.0 + 9.0 * x[0], 1.0, full_output=True)[1]["nfev"] * x[1]
    )
    for f, told in (
        (written, r"root goes another way .* writes a captured array"),
        (ragged, "solve_ivp.* has shapes that differ.*t_eval="),
    ):
        with pytest.raises(BatchError, match=told):
            tg.vmap(f)(np.array([[0.1, 1.0], [9.0, 1.0], [3.0, 2.0]]))
    with pytest.raises(BatchError, match="the entry 'nfev' of the result of scipy.optimize.fsolve"):
        tg.vmap(counted)(np.array([[0.1, 1.0], [0.9, 1.0]]))
    with pytest.raises(ValueError, match="different signs"):
        tg.vmap(lambda a: scipy.optimize.brentq(lambda z: z * z + a, -1, 1))(np.array([0.1, 0.2]))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_replayed(f):
    """One recording holds for other values: the solver is one instruction of it."""
    p = tg.prepare(f, X[0])
    for x in np.linspace(X[0], X[1], 5):
        np.testing.assert_allclose(p.grad(x), tg.grad(f)(x), 1e-8, 1e-10)
    assert p.forms["grad"].recordings == 1 and p.forms["grad"].replays == 4


def test_recorded_flags():
    """A flag that turns is seen; one who reads counts is run as it is."""

    def flagged(x):
        found = scipy.optimize.minimize(
            lambda z: (z[0] - x) ** 2 + 0.1 * z[0] ** 4, [0.0], options={"maxiter": 4}, method="CG"
        )
        return found.x[0] if found.success else -x

    def counted(x):
        return x * scipy.optimize.root_scalar(lambda z: z + z**5 - x, bracket=[-9, 9]).function_calls

    for f in (flagged, counted):
        p = tg.prepare(f, 0.5)
        for x in (0.5, 0.6, 30.0, 1.0, 1e3):
            try:
                expected = f(x)
            except tg.errors.ConvergenceError:
                continue
            assert p(x) == expected
    assert "function_calls" in str(p.report())


def test_factorisations_whose_form_depends_on_values():
    """A real Schur form has blocks where eigenvalues are complex: the samples here have one, none and one."""
    stack = np.stack(
        [
            np.array([[1.0, 2.0], [-1.5, 0.5]]),
            np.array([[1.0, 0.3], [0.2, 3.0]]),
            np.array([[0.5, 1.0], [-2.0, 0.3]]),
        ]
    )
    invariant = lambda a: (abs(scipy.linalg.schur(a)[0]) ** 2).sum() + scipy.linalg.ldl(a + a.T)[1].sum()
    each = np.stack([tg.grad(invariant)(a) for a in stack])
    assert np.allclose(tg.vmap(tg.grad(invariant))(stack), each, rtol=1e-10)
    assert np.allclose(tg.grad(lambda s: tg.vmap(invariant)(s).sum())(stack), each, rtol=1e-10)
    p = tg.prepare(tg.vmap(invariant), stack)
    assert (
        np.allclose(p(stack), [invariant(a) for a in stack], rtol=1e-12)
        and "scipy.linalg.schur" in p.report()
    )
    with pytest.raises(BatchError, match="numpy.union1d has shapes that differ between samples"):
        tg.vmap(lambda x: np.union1d(x, np.array([1.0, 2.0])))(np.array([[1.0, 2.0], [1.0, 3.0]]))


def test_designs_and_programs_by_values(monkeypatch):
    """Functions of SciPy's that look at values and take no function.  Nothing is known of them yet."""
    monkeypatch.setattr(namespaces, "CASTS", {})
    low = lambda x: np.concatenate(scipy.signal.butter(3, 0.2 + 0.1 * np.tanh(x[0])))
    cheapest = lambda x: scipy.optimize.linprog(x, [[1.0, 1.0, 1.0, 1.0]], [1.5], bounds=[(0, 1)] * 4).fun
    for f in (low, cheapest):
        g = lambda x, f=f: (f(x) ** 2).sum()
        each = np.stack([tg.grad(g)(x) for x in X])
        assert np.allclose(tg.vmap(f)(X), [f(x) for x in X], rtol=1e-12)
        assert np.allclose(tg.vmap(tg.grad(g))(X), each, rtol=1e-9)
        assert np.allclose(tg.grad(lambda s, g=g: tg.vmap(g)(s).sum())(X), each, rtol=1e-9)


def test_one_engine_of_random_numbers_is_not_shared():
    def f(x):
        engine = scipy.stats.qmc.Halton(2, seed=np.random.default_rng(5))
        square = lambda t: np.exp(-x[0] * (t * t).sum(0))
        return scipy.integrate.qmc_quad(
            square, np.zeros(2), np.exp(x[:2]), n_points=8, n_estimates=2, qrng=engine
        ).integral

    with pytest.raises(BatchError):
        tg.vmap(f)(X)


def test_an_object_for_each_sample_can_be_called():
    curve = lambda x: scipy.interpolate.make_splrep(np.arange(4.0), x, s=0.01)
    each = [tg.grad(lambda x: curve(x)(1.5))(x) for x in X]
    np.testing.assert_allclose(tg.vmap(tg.grad(lambda x: curve(x)(1.5)))(X), each, rtol=1e-9, atol=1e-12)
    with pytest.raises(AttributeError, match=r"make_splrep\.derivative: .*can only be called"):
        tg.vmap(lambda x: curve(x).derivative()(1.5))(X)


def test_parts_of_results_that_a_search_made():
    """Those with a formula have their derivative; the others are loud, where nothing is tracked they are
    plain."""
    times = np.linspace(0, 1, 9)
    data = 1.4 * np.exp(-0.8 * times)  # the model can be it: the search ends where the last digits are right
    model = lambda a: lambda p: p[0] * np.exp(-p[1] * times * a) - data
    slope = lambda a: (
        lambda p: np.stack([np.exp(-p[1] * times * a), -p[0] * times * a * np.exp(-p[1] * times * a)], 1)
    )
    quadratic = lambda a: lambda x: a * x[0] ** 2 + 2 * x[1] ** 2 + x[0] * x[1]
    linear = lambda a: lambda x: [a * x[0] - 1, x[1] + x[0] - 2]
    opt = scipy.optimize
    right = (
        lambda a: (
            opt.least_squares(model(a), [1.0, 1.0], slope(a), xtol=1e-15, ftol=1e-15, gtol=1e-15).jac ** 2
        ).sum(),
        lambda a: (
            opt.leastsq(model(a), [1.0, 1.0], Dfun=slope(a), full_output=True, xtol=1e-14, ftol=1e-14)[1] ** 2
        ).sum(),
    )
    for f in right:
        np.testing.assert_allclose(tg.value_and_grad(f)(1.3)[0], f(1.3), 1e-6)
        np.testing.assert_allclose(tg.grad(f)(1.3), (f(1.3 + 1e-4) - f(1.3 - 1e-4)) / 2e-4, 1e-5)
        np.testing.assert_allclose(
            tg.vmap(tg.grad(f))(np.array([1.3, 0.9])), [tg.grad(f)(1.3), tg.grad(f)(0.9)], 1e-7
        )
    loud = (
        lambda a: opt.minimize(quadratic(a), [1.0, 1.0], method="BFGS").hess_inv[0, 0],
        lambda a: np.sum(opt.minimize(quadratic(a), [1.0, 1.0], method="BFGS").hess_inv * 2.0),
        lambda a: opt.minimize(quadratic(a), [1.0, 1.0], method="L-BFGS-B").hess_inv.todense()[0, 0],
        lambda a: opt.leastsq(model(a), [1.0, 1.0], full_output=True)[2]["fvec"].sum(),
        lambda a: np.asarray(opt.root(linear(a), [0.0, 0.0]).fjac).sum(),
        lambda a: opt.fsolve(linear(a), [0.0, 0.0], full_output=True)[1]["r"].sum(),
        lambda a: opt.basinhopping(
            quadratic(a), [1.0, 1.0], niter=1, rng=1
        ).lowest_optimization_result.x.sum(),
    )
    for f in loud:
        with pytest.raises(tg.errors.NoRuleError, match="what the search made on its way"):
            tg.grad(f)(1.3)
        assert np.isfinite(f(1.3))
        assert tg.grad(lambda x, f=f: x * f(1.3))(2.0) == f(1.3)
    with pytest.raises(tg.errors.NoRuleError, match="'hess_inv' of its result"):
        tg.vmap(loud[0])(np.array([1.3, 0.9]))


BINARY = (
    "add subtract multiply divide power floor_divide remainder fmod divmod less less_equal equal not_equal "
    "greater greater_equal logical_and logical_or logical_xor maximum minimum fmax hypot arctan2 copysign "
    "nextafter heaviside logaddexp isclose float_power"
).split()


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if k % 6 == 5 else pytest.mark.long) for k, n in enumerate(BINARY)]
)
def test_a_list_is_an_operand_of_each_sample(name):
    """Also where it is as long as there are samples."""
    f, rows = getattr(np, name), np.array([[5.3, 2.2, 1.0], [7.7, 3.1, 2.0]])
    for y in ([1.5, 2.0], (5.3, 2.2), [[1.5, 2.0], [3.0, 4.0]], [1.5, 2.0, 4.0]):
        for of in (lambda x: x[0], lambda x: np.array(x[0]), lambda x: x[:1], lambda x: x[:2], lambda x: x):
            for call in (lambda x: f(of(x), y), lambda x: f(y, of(x))):
                try:
                    expected = np.array([call(row) for row in rows])
                except ValueError:
                    continue  # shapes that do not fit
                g = (lambda x, call=call: np.stack(call(x))) if name == "divmod" else call
                np.testing.assert_allclose(np.asarray(tg.vmap(g)(rows), float), expected)
                replayed = tg.prepare(g, rows[0])
                np.testing.assert_allclose(np.asarray(replayed.value(rows[1]), float), expected[1])


class Cached:
    """What an objective knows of the last point at which it was asked."""

    def __init__(self):
        self.x = None

    def both(self, x, p):
        if self.x is None or not np.array_equal(self.x, x):
            self.x, self.f, self.g = x.copy(), ((x - p) ** 2).sum() + (x**4).sum(), 2 * (x - p) + 4 * x**3
        return self.f

    def slope(self, x, p):
        self.both(x, p)
        return self.g


def searched(keep, at_end=lambda held: 0.0):
    """The minimum, with `keep(held, x, p)` called on the way, and `at_end(held)` of what that left behind."""

    def f(p):
        held = {}

        def objective(x):
            keep(held, x, p)
            return ((x - p) ** 2).sum() + (x**4).sum()

        r = scipy.optimize.minimize(objective, [0.1, 0.1], tol=1e-9)
        return r.x.sum() * p[0] + at_end(held)

    return f


def test_what_a_search_keeps_for_each_sample():
    """It has one place for all samples: reading it is an error, and leaving it unread is none."""
    rows = np.array([[1.0, 2.0], [3.0, 0.5]])
    root = lambda p: scipy.optimize.brentq(lambda z: 4 * z**3 + 2 * z - 2 * p, 0, 9, xtol=1e-15)
    slope = lambda p: 1.0 / (6.0 * root(p) ** 2 + 1.0)

    def cached(p):
        m = Cached()
        return scipy.optimize.minimize(m.both, [0.1, 0.1], (p,), jac=m.slope, tol=1e-9).x.sum() * p[0]

    unread = searched(lambda held, x, p: held.update(x=x.copy()))
    for f in (cached, unread):
        np.testing.assert_allclose(tg.vmap(f)(rows), [sum(map(root, p)) * p[0] for p in rows], 1e-7)
    slopes = [[sum(map(root, p)) + p[0] * slope(p[0]), p[0] * slope(p[1])] for p in rows]
    np.testing.assert_allclose(tg.vmap(tg.grad(unread))(rows), slopes, 1e-5)

    last = searched(lambda held, x, p: held.update(last=float(x[0])), lambda held: 0.0 + held["last"])
    listed = searched(
        lambda held, x, p: held.setdefault("x", []).append(x[0] * 2), lambda held: held["x"][-1] * 1.0
    )
    of_parameters = searched(lambda held, x, p: held.update(p=float(p[0])), lambda held: held["p"])

    def nodes(p):
        held = {}
        return scipy.integrate.quad(lambda s: held.update(p=p[0] * s) or s * p[1], 0, 1)[0] + held["p"]

    for f, told in (
        (last, "kept while"),
        (listed, "kept while"),
        (of_parameters, "keeps floats"),
        (nodes, "keeps floats"),
    ):
        with pytest.raises((tg.errors.NoRuleError, BatchError), match=told):
            tg.vmap(f)(rows)
    with pytest.raises(tg.errors.NoRuleError, match="kept while"):
        tg.prepare(tg.vmap(last), rows).value(rows[::-1])


def test_a_count_is_that_of_all_samples():
    calls = []

    def f(p):
        n = 0

        def equation(z):
            nonlocal n
            n += 1
            calls.append(n)
            return z**3 - p

        found = scipy.optimize.brentq(equation, 0.0, 3.0)
        return found + 0 * p, n + 0 * p

    for transform in (
        tg.vmap(f),
        tg.vmap(lambda p: tg.vjp(f, p)[0]),
        tg.vmap(lambda p: tg.jvp(f, (p,), (p,))[0]),
    ):
        calls.clear()
        both = sum([int(f(p)[1]) for p in (1.0, 2.0)])
        calls.clear()
        np.testing.assert_array_equal(transform(np.array([1.0, 2.0]))[1], [both, both])
        assert len(calls) == both
