"""scipy.integrate.solve_ivp as a kernel: in recordings, and under vmap for many samples."""

import functools
import math
from math import sqrt

import numpy as np
import pytest
import scipy.integrate
import scipy.interpolate
import scipy.special

import tapegrad as tg
from tapegrad._scipy.integrate import ivp_kernel
from tapegrad._scipy.integrate.bdf_steps import BdfSteps
from tapegrad._scipy.integrate.kernel_steps import ExplicitSteps
from tapegrad._scipy.integrate.linear_steps import EXPLICIT
from tapegrad._scipy.integrate.radau_steps import RadauSteps
from tapegrad.errors import BatchError
from tapegrad.kernels.trace import loops
from tests.support.frames import frames_of, profiled

K = np.array([1.0, 0.4, 0.2, 0.8])
TIMES = np.linspace(0.0, 10.0, 7)
SCRATCH, CALLS, SCALE = np.zeros(2), [0], np.array([1.0, 2.0])


def predators(t, y, k):
    return [k[0] * y[0] - k[1] * y[0] * y[1], k[2] * y[0] * y[1] - k[3] * y[1] + 0.01 * np.cos(t)]


def oscillator(t, y):
    return np.array([y[1], 3.0 * (1 - y[0] ** 2) * y[1] - y[0]])


def python_frames(job):
    """The number of calls of functions of this file."""
    found = []
    profiled(
        lambda frame, what, _: found.append(what == "call" and frame.f_code.co_filename == __file__), job
    )
    return sum(found) - 1  # the job


@pytest.mark.one_in(3)
@pytest.mark.parametrize("method", [m.__name__ for m in EXPLICIT])
@pytest.mark.parametrize("options", ({}, {"max_step": 0.3, "rtol": 1e-7}, {"first_step": 0.05, "atol": 1e-9}))
@pytest.mark.parametrize("way", (1.0, -1.0))
def test_the_steps_are_those_of_scipy(method, options, way):
    """The text of the kernel, run as Python: as many calls, and the same states."""
    calls = [0]

    def f(t, y):
        calls[0] += 1
        return way * oscillator(t, y)

    start, span = np.array([2.0, 0.3]), (0.0, way * 7.0)
    expected = scipy.integrate.solve_ivp(f, span, start, method, **options)
    calls[0] = 0
    steps = ExplicitSteps(method, options).within(*span)
    c = steps.reached(f, steps.begun(f, start), span[1])
    assert calls[0] == expected.nfev
    np.testing.assert_allclose(c.y, expected.y[:, -1], rtol=1e-11, atol=1e-12)
    sol = scipy.integrate.solve_ivp(f, span, start, method, dense_output=True, **options).sol
    t = 0.3 * c.before + 0.7 * c.t
    np.testing.assert_allclose(steps.between(f, c, t), sol(t), rtol=1e-11, atol=1e-12)


def robertson(t, y, k=(0.04, 1e4, 3e7)):
    a, b, c = k[0] * y[0], k[1] * y[1] * y[2], k[2] * y[1] ** 2
    return np.array([b - a, a - b - c, c])


def robertson_jacobian(t, y):
    b, c = 1e4 * y[1:][::-1], 6e7 * y[1]
    return np.array([[-0.04, *b], [0.04, -b[0] - c, -b[1]], [0.0, c, 0.0]])


def relaxation(t, y):  # van der Pol's equation
    return np.array([y[1], 100.0 * (1 - y[0] ** 2) * y[1] - y[0] + np.cos(t)])


def relaxation_jacobian(t, y):
    return np.array([[0.0, 1.0], [-200.0 * y[0] * y[1] - 1, 100.0 * (1 - y[0] ** 2)]])


def oscillator_jacobian(t, y):
    return np.array([[0.0, 1.0], [-6.0 * y[0] * y[1] - 1, 3.0 * (1 - y[0] ** 2)]])


class Counts:
    """Steps with the Jacobian that SciPy is given, and what SciPy counts."""

    def counting(self, jac):
        self.jac, self.njev, self.nlu, self.matrix = jac, 0, 0, None
        return self

    def jacobian(self, f, t, y):
        self.njev += 1
        return self.jac(t, y)

    def tried(self, f, c):
        self.matrix = self.matrix if c.factored else None
        return super().tried(f, c)

    def counted(self, matrix, factors):
        self.nlu += factors * (not np.array_equal(self.matrix, matrix))
        self.matrix = matrix


class CountedBdf(Counts, BdfSteps):
    def converged(self, f, t, y, given):
        self.counted(given[0], 1)
        return super().converged(f, t, y, given)

    def differentiated(self, f, t, y, weight, psi, found):
        return found.d


class CountedRadau(Counts, RadauSteps):
    def converged(self, f, c, h, scale, matrices):
        self.counted(matrices[0], 2)
        return super().converged(f, c, h, scale, matrices)


STIFF = {
    "Robertson": (robertson, robertson_jacobian, [1.0, 0.0, 0.0], 40.0, {"rtol": 1e-6, "atol": 1e-10}),
    "Robertson, long": (robertson, robertson_jacobian, [1.0, 0.0, 0.0], 1e5, {"rtol": 1e-4, "atol": 1e-9}),
    "loose": (oscillator, oscillator_jacobian, [1.5, 0.4], 6.0, {}),
    "exact": (relaxation, relaxation_jacobian, [2.0, 0.0], 70.0, {"rtol": 1e-5, "atol": 1e-8}),
    "short steps": (oscillator, oscillator_jacobian, [2.0, 0.3], 7.0, {"max_step": 0.3, "rtol": 1e-7}),
    "first step": (oscillator, oscillator_jacobian, [2.0, 0.3], -3.0, {"first_step": 0.05, "atol": 1e-9}),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("problem", STIFF)
@pytest.mark.parametrize("method", ["BDF", "Radau"])
def test_the_steps_of_implicit_methods_are_those_of_scipy(method, problem):
    """The text of the kernel, run as Python: SciPy's counts, and the same states."""
    f, jac, start, end, options = STIFF[problem]
    times, calls = end * np.array([0.0, 1e-4, 0.3, 0.31, 1.0]), [0]

    def g(t, y):
        calls[0] += 1
        return f(t, y)

    expected = scipy.integrate.solve_ivp(g, (0.0, end), start, method, times, jac=jac, **options)
    calls[0] = 0
    counted = CountedBdf if method == "BDF" else CountedRadau
    steps = counted(options).within(0.0, end).counting(jac)
    with np.errstate(all="ignore"):
        c, found = steps.begun(g, np.array(start)), []
        for t in times:
            c = steps.reached(g, c, t)
            found.append(steps.between(g, c, t))
        c = steps.reached(g, c, end)
    assert c.status == 0.0
    steps.njev += method == "Radau" and c.renews  # at the end: SciPy computes it before it is needed
    assert (calls[0], steps.njev, steps.nlu) == (expected.nfev, expected.njev, expected.nlu)
    np.testing.assert_allclose(np.transpose(found), expected.y, rtol=0, atol=1e-12 * abs(expected.y).max())


def stiff_loss(k, method="BDF", rtol=1e-6):
    given = {"t_eval": [0.0, 1.0, 40.0], "args": (k,), "rtol": rtol, "atol": 1e-4 * rtol}
    return scipy.integrate.solve_ivp(robertson, (0, 40), [1.0, 0.0, 0.0], method, **given).y[0, 1:].sum()


RATES = np.array([0.04, 1e4, 3e7])


@pytest.mark.parametrize("method", ["BDF", pytest.param("Radau", marks=pytest.mark.long)])
def test_a_recorded_call_of_implicit_methods_runs_no_python(method):
    """The gradient is that of its own steps; that of a tight solution by Radau's method is near."""
    p = tg.prepare(lambda k: stiff_loss(k, method), RATES)
    for k in (RATES, np.array([0.05, 1e4, 2e7])):
        value, gradient = p.value_and_grad(k)
        assert value == pytest.approx(
            stiff_loss(k, method), rel=1e-9
        )  # SciPy's Jacobian is one by differences
    exact = tg.grad(lambda k: stiff_loss(k, "Radau", 1e-7))(k)
    np.testing.assert_allclose(gradient * k, exact * k, rtol=1e-5)
    assert p.forms["value_and_grad"].recordings == 1
    assert python_frames(lambda: p.value_and_grad(0.9 * RATES)) == 0


def diffusion(t, y, k):
    inflow, outflow = np.concatenate([y[:1], y[:-1]]), np.concatenate([y[1:], y[-1:]])
    return 30.0 * k[0] * (inflow - 2 * y + outflow) - k[1] * y**2


@pytest.mark.parametrize(
    "method, states",
    [("BDF", 32), *[pytest.param(*x, marks=pytest.mark.long) for x in (("Radau", 20), ("BDF", 48))]],
)
def test_tens_of_states_run_no_python(method, states):
    """Against SciPy with the exact Jacobian, and the gradient of a tight solution."""
    y0 = 1.0 + np.sin(np.arange(states))

    def loss(k, jac=None, rtol=1e-6):
        given = {"t_eval": [0.5, 2.0], "args": (k,), "rtol": rtol, "atol": 1e-3 * rtol, "jac": jac}
        return (scipy.integrate.solve_ivp(diffusion, (0, 2), y0, method, **given).y ** 2).sum()

    def exact(t, y, k):
        second = np.eye(states, k=1) + np.eye(states, k=-1) - 2 * np.eye(states)
        second[0, 0] = second[-1, -1] = -1.0
        return 30.0 * k[0] * second - np.diag(2 * k[1] * y)

    p, k = tg.prepare(loss, K[:2]), 1.1 * K[:2]
    p.value_and_grad(K[:2])
    value, gradient = p.value_and_grad(k)
    assert value == pytest.approx(loss(k, exact), rel=1e-10)
    np.testing.assert_allclose(gradient, tg.grad(lambda k: loss(k, rtol=1e-8))(k), rtol=1e-4)
    assert python_frames(lambda: p.value_and_grad(0.9 * k)) == 0


@pytest.mark.parametrize(
    "problem",
    [pytest.param(p, marks=pytest.mark.long) for p in ("loose", "exact", "short steps")] + ["first step"],
)
def test_the_derivative_of_bdf_is_that_of_its_kernel(problem):
    """The steps that SciPy has taken, and those of the kernel, in both modes; changes of size and order."""
    f, jac, start, end, options = STIFF[problem]

    def states(x, **given):
        run = lambda t, y: x[0] * np.asarray(f(t, y))
        times = end * np.array([0.0, 0.3, 0.31, 1.0])
        return scipy.integrate.solve_ivp(
            run, (0.0, end), x[1] * np.array(start), "BDF", times, **options, **given
        ).y

    x = np.array([1.0, 1.1])
    plainly = lambda x: states(x, jac=lambda t, y: tg.value(x)[0] * jac(t, y))
    found = tg.jacobian(plainly, mode="forward")(x)
    expected, scale = tg.prepare(states, x).jacobian(x), abs(found).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8 * scale)
    np.testing.assert_allclose(tg.jacobian(plainly, mode="reverse")(x), found, rtol=0, atol=1e-12 * scale)


@pytest.mark.long
def test_the_derivative_of_bdf_by_span_and_events():
    """Dense output, an event, and both ends of the interval, against a tight solution by Radau's method."""
    A = np.array([[-3.0, 1.0, 0.0], [0.5, -2.0, 1.0], [0.0, 0.3, -40.0]])

    def found(x, rtol=1e-8, method="BDF"):
        crosses = lambda t, y: y[0] - 0.3
        run = scipy.integrate.solve_ivp(
            lambda t, y: x[0] * (A @ y) + x[1] * np.sin(t), (x[2], 2.0 + x[3]), np.ones(3), method,
            rtol=rtol, atol=1e-2 * rtol, events=crosses, dense_output=True,
        )  # fmt: skip
        at = run.t_events[0][0]
        return np.concatenate([run.y[:, -1], run.sol(1.0 + x[3]), run.sol(at + 0.1), at[None], run.t[-1:]])

    x = np.array([1.0, 0.5, 0.1, 0.2])
    J = tg.jacobian(found, mode="forward")(x)
    np.testing.assert_allclose(tg.jacobian(found, mode="reverse")(x), J, rtol=0, atol=1e-13)
    exact = tg.jacobian(lambda x: found(x, 1e-11, "Radau"), mode="forward")(x)
    np.testing.assert_allclose(J, exact, rtol=1e-6, atol=1e-6)
    v, total = np.array([1.0, -0.5, 0.3, 0.7]), lambda x: (found(x) ** 2).sum()
    moved = tg.hvp(lambda x: (found(x, 1e-10, "Radau") ** 2).sum(), x, v)
    np.testing.assert_allclose(
        tg.hvp(total, x, v), moved, rtol=0, atol=3e-5 * abs(moved).max()
    )  # (a slow crossing)


@pytest.mark.long
@pytest.mark.parametrize("method", ["BDF", "Radau"])
def test_higher_derivatives_of_implicit_methods(method):
    """Each order has a round of Newton's method of its own."""
    loss, exact = lambda k: stiff_loss(k, method), lambda k: stiff_loss(k, "Radau", 1e-10)
    p = tg.prepare(loss, RATES)
    H = np.outer(RATES, RATES) * tg.hessian(exact)(RATES)
    np.testing.assert_allclose(np.outer(RATES, RATES) * p.hessian(RATES), H, rtol=0, atol=2e-5)
    outer = tg.jacobian(lambda k: p.grad(k))(RATES)
    np.testing.assert_allclose(np.outer(RATES, RATES) * outer, H, rtol=0, atol=2e-5)
    third = lambda f: lambda k: tg.hvp(lambda k: tg.jvp(f, (k,), (RATES,))[1], k, RATES)
    np.testing.assert_allclose(
        RATES * tg.prepare(third(loss), RATES)(RATES), RATES * third(exact)(RATES), rtol=1e-3
    )


@pytest.mark.long
@pytest.mark.parametrize("method", ["BDF", "Radau"])
def test_many_stiff_samples_are_solved_at_once(method):
    ks = RATES * np.exp(0.1 * np.random.default_rng(0).standard_normal((70, 3)))
    found = tg.vmap(tg.grad(lambda k: stiff_loss(k, method)))(ks)
    exact = [tg.grad(lambda k: stiff_loss(k, "Radau", 1e-9))(k) for k in ks[::23]]
    np.testing.assert_allclose(found[::23] * ks[::23], exact * ks[::23], rtol=1e-5)


MATRIX = np.array([[0.0, 1.0], [-2.0, -0.1]])


@pytest.mark.parametrize("given", ("jac", "vectorized", "other jac"))
def test_other_arguments_in_a_recording(given):
    """A Jacobian that is right, and columns of states, are no reason to run Python. Another Jacobian is."""
    f = lambda t, y, k: k[0] * (MATRIX @ y) + k[1] * np.sin(t)
    factor = 1.5 if given == "other jac" else 1.0
    options = (
        {"vectorized": True} if given == "vectorized" else {"jac": lambda t, y, k: factor * k[0] * MATRIX}
    )

    def loss(k, tolerance=1e-7):
        s = scipy.integrate.solve_ivp(
            f, (0, 3), [1.0, 0.0], "Radau", [1.0, 3.0], args=(k,), rtol=tolerance, atol=tolerance, **options
        )
        return (s.y**2).sum()

    k = np.array([1.2, 0.3])
    p = tg.prepare(loss, k)
    value, gradient = [p.value_and_grad(k) for _ in range(3)][-1]
    rel = 1e-9 if given == "jac" else 1e-6  # SciPy's own Jacobian is one by differences
    assert value == pytest.approx(loss(k), rel=rel)
    differences = [(loss(k + h, 1e-11) - loss(k - h, 1e-11)) / 2e-5 for h in 1e-5 * np.eye(2)]
    np.testing.assert_allclose(gradient, differences, rtol=1e-5)
    assert (python_frames(lambda: p.value_and_grad(1.01 * k)) == 0) == (given != "other jac")


@pytest.mark.parametrize(
    "method", [pytest.param(m, marks=pytest.mark.long) for m in ("RK23", "DOP853")] + ["RK45"]
)
def test_a_recorded_call_runs_no_python(method):
    def states(k):
        given = {"t_eval": TIMES, "rtol": 1e-7, "atol": 1e-9}
        return scipy.integrate.solve_ivp(
            lambda t, y: predators(t, y, k), (0, 10), [5.0, k[0]], method, **given
        ).y

    loss = lambda k: (states(k) ** 2).sum()
    p = tg.prepare(loss, K)
    for k in (K, 1.1 * K, K[::-1] + 0.2):
        np.testing.assert_allclose(p.grad(k), tg.grad(loss)(k), rtol=1e-10)
    assert p.forms["grad"].recordings == 1 and python_frames(lambda: p.grad(0.9 * K)) == 0
    if method == "DOP853":
        q = tg.prepare(states, K)
        for k in (K, 1.1 * K):
            y = states(k)
            np.testing.assert_allclose(q(k), y, rtol=0, atol=1e-12 * abs(y).max())
            np.testing.assert_allclose(q.jacobian(k), tg.jacobian(states)(k), rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(p.hvp(K, K), tg.hvp(loss, K, K), rtol=1e-8)


class Rates:
    def __init__(self, k):
        self.k = k

    def __call__(self, t, y):
        return predators(t, y, self.k)


WRITTEN = np.zeros((2, 2))


def by_global(k):
    WRITTEN[...] = k.reshape(2, 2)
    return lambda t, y: WRITTEN.T.ravel() @ np.array([[0.1, 0.2], [0.3, -0.1], [-0.2, 0.1], [0.1, 0.1]]) * y


def by_views(k):
    m = k.reshape(2, 2)
    a, b, c = m.T[::-1], m[1:], m[0][1:]
    return lambda t, y: a @ y * 0.1 - b[0] * y + c * np.sin(t) + m[:, 1] * np.ones(2)


WAYS = {
    "closure": lambda k: lambda t, y: predators(t, y, k),
    "object": Rates,
    "partial": lambda k: functools.partial(predators, k=[k[0], k[1], *k[2:]]),
    "default": lambda k: lambda t, y, k=(2 * k)[::-1]: predators(t, y, k) if k.ndim else y,
    "dict": lambda k: (lambda found: lambda t, y: predators(t, y, found["k"]) + found["one"])(
        {"k": np.exp(0.1 * k), "one": k[1]}
    ),
    "global": by_global,
    "views": by_views,
    "matrix": lambda k: lambda t, y: k.reshape(2, 2) @ y * 0.1 - scipy.special.expit(k[:2]) * y,
}


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_however_the_parameters_reach_the_function(way):
    def loss(k):
        y0 = np.array([2.0, 1.5]) * k[1:3]
        y = scipy.integrate.solve_ivp(WAYS[way](k), (0, 2), y0, t_eval=[0.0, 0.7, 1.9], rtol=1e-6).y
        return (y * np.array([1.0, 2.0, 3.0])).sum()

    p = tg.prepare(loss, K)
    for k in (K, 1.1 * K, K[::-1].copy()):
        value, gradient = p.value_and_grad(k)
        np.testing.assert_allclose(value, loss(k), rtol=1e-12)
        np.testing.assert_allclose(gradient, tg.grad(loss)(k), rtol=1e-10)
    assert (python_frames(lambda: p.value_and_grad(0.9 * K)) > 0) == (way == "global")


def test_many_samples_are_solved_at_once():
    def loss(k):
        return scipy.integrate.solve_ivp(predators, (0, 3), [5.0, 1.5], t_eval=[3.0], args=(k,)).y.sum()

    ks = K * np.exp(0.1 * np.random.default_rng(0).standard_normal((70, 4)))
    found = tg.vmap(tg.grad(loss))(ks)
    np.testing.assert_allclose(found[::23], [tg.grad(loss)(k) for k in ks[::23]], rtol=1e-11)


def test_times_and_starts_may_be_tracked():
    def last(s):
        return scipy.integrate.solve_ivp(
            lambda t, y: -s[0] * y * SCALE, (0, 2), s[:2], t_eval=s[2:], rtol=1e-8
        ).y.sum()

    s, scale = np.array([0.7, 1.3, 0.5, 1.9]), SCALE.copy()
    p = tg.prepare(last, s)
    try:
        for SCALE[0] in (1.0, 3.0):  # a captured array that changes is seen
            np.testing.assert_allclose(p.grad(s), tg.grad(last)(s), rtol=1e-9)
    finally:
        SCALE[:] = scale
    with pytest.raises(ValueError, match="not properly sorted"):
        p(s[[0, 1, 3, 2]])
    with pytest.raises(ValueError, match="not within"):
        p(np.array([0.7, 1.3, 0.5, 2.1]))


def counts(t, y, k):
    CALLS[0] += 1
    return -k * y


def overwrites(t, y, k):
    y *= 1.0 - 1e-3 * k
    return -k * y


@pytest.mark.parametrize("f", (counts, overwrites), ids=lambda f: f.__name__)
def test_what_a_kernel_cannot_run_is_left_to_scipy(f):
    last = lambda k: scipy.integrate.solve_ivp(f, (0, 1), [1.0, 2.0], t_eval=[0.3, 1.0], args=(k,)).y.sum()
    p = tg.prepare(last, np.array(1.0))
    for k in (1.0, 1.3):
        before = CALLS[0]
        found, calls = p(np.array(k)), CALLS[0] - before
        assert found == last(np.array(k)) and (calls > 10 or f is not counts)


def test_a_failure_is_seen():
    """The solution is infinite at t = 1 / k: SciPy gives what it has until then."""
    count = lambda k: len(
        np.atleast_1d(scipy.integrate.solve_ivp(lambda t, y: k * y * y, (0, 1), [1.0], t_eval=[0.1, 0.9]).t)
    )
    last = lambda k: scipy.integrate.solve_ivp(lambda t, y: k * y * y, (0, 1), [1.0], t_eval=[0.1, 0.9]).y[
        0, 0
    ]
    p = tg.prepare(last, np.array(0.5))
    for k in (0.5, 2.0, 0.7):
        assert count(k) == (1 if k == 2.0 else 2)
        np.testing.assert_allclose(p(np.array(k)), last(np.array(k)), rtol=1e-13)


# --- calls that repeat, outside of recordings ---


@pytest.fixture
def soon(monkeypatch):
    """The third call of one form is compiled. The result is a function: how many kernels were made since?"""
    found = []
    monkeypatch.setattr(ivp_kernel, "COMPILATION", 1)
    monkeypatch.setattr(ivp_kernel, "CANDIDATES", found)
    return lambda: sum([c.states is not None and c.states.traced for c in found])


def test_long_solves_are_compiled_sooner_than_short_ones(monkeypatch):
    """A kernel is made once the calls without it have taken about as long. Its gradient is that of the same
    steps."""
    found = []
    monkeypatch.setattr(ivp_kernel, "CANDIDATES", found)
    made = []
    for end in (3.0, 300.0):

        def loss(k, end=end):
            given = {"t_eval": [0.5 * end, end], "args": (k,), "rtol": 1e-7, "atol": 1e-9}
            return (scipy.integrate.solve_ivp(predators, (0, end), [5.0, 1.5], **given).y ** 2).sum()

        gradients = [tg.grad(loss)(K) for _ in range(3)]
        np.testing.assert_allclose(gradients[1:], gradients[:1] * 2, rtol=1e-9)
        made.append(sum([c.states is not None and c.states.traced for c in found]))
    assert made == [0, 1]


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("RK23", {}),
        pytest.param("RK45", {"first_step": 0.05, "max_step": 0.4}, marks=pytest.mark.long),
        pytest.param("DOP853", {}, marks=pytest.mark.long),
        pytest.param("DOP853", {"first_step": 0.05}, marks=pytest.mark.long),
    ],
)
def test_a_call_that_repeats_is_a_kernel(method, options, soon):
    """SciPy's steps, and its counts; the gradient is that of the same steps."""
    seen = []
    given = {"args": (K,), "rtol": 1e-7, "atol": 1e-9, **options}

    def loss(k, times):
        found = scipy.integrate.solve_ivp(
            predators, (0, 10), [5.0, 1.5], method, times, **{**given, "args": (k,)}
        )
        seen.append({k: tg.value(v) for k, v in found.items()})
        return (found.y**2).sum()

    gradients = []
    for times in (TIMES, TIMES, TIMES, TIMES[1:3], np.array([0.0, 1e-3, 2e-3, 9.0])):
        gradients.append(tg.grad(lambda k, times=times: loss(k, times))(K))
        plain, found = (
            scipy.integrate.solve_ivp(predators, (0, 10), [5.0, 1.5], method, times, **given),
            seen[-1],
        )
        assert {k: v for k, v in found.items() if k not in "ty"} == {
            k: v for k, v in plain.items() if k not in "ty"
        }
        np.testing.assert_array_equal(found["t"], plain.t)
        np.testing.assert_allclose(found["y"], plain.y, rtol=0, atol=1e-12 * abs(plain.y).max())
    assert soon() == 1
    np.testing.assert_allclose(gradients[2], gradients[0], rtol=1e-10)
    frames = python_frames(lambda: tg.grad(lambda k: loss(k, TIMES))(1.1 * K))
    assert frames < 4  # the loss, and none of the right-hand side


def rotation(y, k):
    return np.array([k[0] * y[1], -k[1] * y[0]])


@pytest.mark.parametrize(
    ("method", "times"),
    [("RK23", None), *[pytest.param("LSODA", t, marks=pytest.mark.long) for t in (None, [0.5, 2.0])]],
)
def test_scipy_takes_the_steps_and_a_kernel_the_derivative(method, times, soon):
    """Without t_eval, and by LSODA: SciPy's values to the last bit, and its counts."""
    seen, given = [], {"rtol": 1e-6, "atol": 1e-8}

    def states(k, method=method, **given):
        return scipy.integrate.solve_ivp(
            lambda t, y: rotation(y, k) - 0.1 * k[2] * y**3,
            (0, 2),
            k[:2] * [2.0, 1.0],
            method,
            times,
            **given,
        )

    def loss(k):
        seen.append(states(k, **given))
        return (seen[-1].y[:, -1] ** 2).sum() + seen[-1].y[0, 0]

    for _ in range(4):
        gradient = tg.grad(loss)(K)
        plain, found = states(K, **given), {k: tg.value(v) for k, v in seen[-1].items()}
        for name in plain:
            np.testing.assert_array_equal(found[name], plain[name])
    assert soon() == 1
    tight = lambda k: (
        (states(k, "DOP853", rtol=1e-11, atol=1e-12).y[:, -1] ** 2).sum()
        + 2.0 * (k[0] if times is None else states(k, "DOP853", rtol=1e-11, atol=1e-12).y[0, 0] / 2)
    )
    np.testing.assert_allclose(gradient, tg.grad(tight)(K), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("way", ("prepare", pytest.param("vmap", marks=pytest.mark.long)))
def test_lsoda_where_values_are_hidden(way):
    """SciPy's values to the last bit. A kernel has the derivatives, also after what f reads has changed."""
    scale, options = np.array([1.0, 2.0]), {"rtol": 1e-6, "atol": 1e-8}

    def states(k, method="LSODA", options=options):
        f = lambda t, y: rotation(y, k) * scale - 0.1 * k[2] * y**3
        return scipy.integrate.solve_ivp(f, (0, 2), k[:2] * [2.0, 1.0], method, [0.5, 2.0], **options).y

    loss = lambda k: (states(k) ** 2).sum()
    tight = tg.grad(lambda k: (states(k, "DOP853", {"rtol": 1e-11, "atol": 1e-12}) ** 2).sum())
    if way == "vmap":
        points = K * np.linspace(0.9, 1.1, 70)[:, None]
        values, gradients = tg.vmap(tg.value_and_grad(loss))(points)
        np.testing.assert_array_equal(values, [loss(k) for k in points])
        np.testing.assert_allclose(gradients[::23], [tight(k) for k in points[::23]], rtol=1e-4, atol=1e-7)
        return
    p = tg.prepare(loss, K)
    for n, factor in enumerate((1.0, 1.1, 0.95)):
        scale[0] = 1.0 + 0.2 * (n > 1)
        value, gradient = p.value_and_grad(factor * K)
        assert value == loss(factor * K)
        np.testing.assert_allclose(gradient, tight(factor * K), rtol=1e-4, atol=1e-7)
    assert "run as it is" not in p.report()


def filled(method, k, times=(0.5, 1.7)):
    """(The states, what the right-hand side has left in a captured buffer)"""

    def f(t, y, k):
        SCRATCH[0], SCRATCH[1] = k[0] * y[1] + np.sin(t), -k[1] * y[0]
        return SCRATCH.copy()

    times = None if times is None else [*times]
    found = scipy.integrate.solve_ivp(f, (0, 2), [1.0, 0.5], method, times, args=(k,), rtol=1e-6, atol=1e-8)
    return (found.y[:, -1] ** 2).sum() + (SCRATCH * [1.0, 2.0]).sum()


@pytest.mark.parametrize("method", [m.__name__ for m in EXPLICIT])
@pytest.mark.parametrize("times", ((0.5, 1.7), (0.5, 1.9), None))
def test_what_the_last_call_leaves_in_a_buffer(method, times):
    """The last call of `DOP853` is at a stage of the interpolant if a time of the result is in the last step.
    (This stage moves with the size of the step, which counts as constant: so differences tell nothing.)"""
    last = np.array([1.3, 0.91])
    for k in (K[:2], last):
        value, gradient = tg.value_and_grad(lambda k: filled(method, k, times))(k)
        after, h = SCRATCH.copy(), 1e-5 * np.eye(2)
        np.testing.assert_allclose(value, filled(method, k, times), rtol=1e-13)
        np.testing.assert_allclose(after, SCRATCH, rtol=1e-13)
        slopes = [(filled(method, k + d, times) - filled(method, k - d, times)) / 2e-5 for d in h]
        if method != "DOP853" or times is None or (k is last and times[-1] < 1.8):
            np.testing.assert_allclose(gradient, slopes, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "method",
    ("DOP853", *[pytest.param(m, marks=pytest.mark.long) for m in ("RK23", "RK45", "LSODA", "BDF", "Radau")]),
)
@pytest.mark.parametrize("times", ((0.5, 1.7), pytest.param(None, marks=pytest.mark.long)))
def test_a_buffer_is_filled_in_a_recording(method, times):
    """What it held before does not count. SciPy's last call lies near the one that is recorded: by LSODA as near
    as its tolerance, by Radau as near as its differences for a Jacobian; stages of DOP853 move by rounding."""
    near = {"LSODA": 1e-5, "Radau": 1e-7, "DOP853": 1e-7}.get(method, 1e-9)
    p, calls = tg.prepare(lambda k: filled(method, k, times), K[:2]), []
    for k in (K[:2], 1.1 * K[:2], np.array([1.3, 0.91]), 0.95 * K[:2]):
        calls.append(python_frames(lambda k=k: p.value_and_grad(k)))
        value, gradient = p.value_and_grad(k)
        after = SCRATCH.copy()
        np.testing.assert_allclose(value, filled(method, k, times), rtol=near)
        np.testing.assert_allclose(after, SCRATCH, rtol=near, atol=near)
        expected = tg.grad(lambda k: filled(method, k, times))(k)
        np.testing.assert_allclose(gradient, expected, rtol=near, atol=near)
    assert "as it is" not in p.report() and (method == "LSODA" or not any(calls[1:]))


BESIDE = {"rate": 1.0, "sign": [1], "scale": np.ones(1)}


@pytest.mark.parametrize("method", ("RK45", pytest.param("LSODA", marks=pytest.mark.long)))
def test_what_a_function_reads_beside_its_buffer_may_change(method, monkeypatch):
    """What a global buffer has held is no condition of a recording. All else that is read is seen anew."""
    given = {"t_eval": [0.5, 1.7], "rtol": 1e-6, "atol": 1e-8}

    def f(t, y, k):
        SCRATCH[0] = k[0] * y[1] * BESIDE["scale"][0] + BESIDE["rate"] * np.sin(t)
        SCRATCH[1] = -k[1] * y[0] * BESIDE["sign"][0]
        return SCRATCH.copy()

    loss = lambda k: (
        scipy.integrate.solve_ivp(f, (0, 2), [1.0, 0.5], method, args=(k,), **given).y ** 2
    ).sum()
    p, near = tg.prepare(loss, K[:2]), 1e-5 if method == "LSODA" else 1e-9
    changes = {"rate": 2.0, "sign": [-2], "scale": np.full(1, 0.5)}
    for n in range(8):
        if n > 2 and n % 2:
            name, v = changes.popitem()
            monkeypatch.setitem(BESIDE, name, v)
        k = (1.0 + 0.01 * n) * K[:2]
        value, gradient = p.value_and_grad(k)
        np.testing.assert_allclose(value, loss(k), rtol=near)
        np.testing.assert_allclose(gradient, tg.grad(loss)(k), rtol=near, atol=near)
    assert not changes


def test_functions_of_math_and_floats_are_those_of_a_kernel():
    def f(t, y, k):
        return [
            -k[0] * y[0] * math.exp(-t) + sqrt(1.0 + y[1] ** 2),
            -k[1] * float(np.where(t > 1.0, y[1], y[0])),
        ]

    loss = lambda k: scipy.integrate.solve_ivp(f, (0, 2), [1.0, 0.5], t_eval=[0.5, 1.7], args=(k,)).y.sum()
    p = tg.prepare(loss, K[:2])
    p.grad(K[:2])
    assert python_frames(lambda: p.grad(1.1 * K[:2])) == 0
    for k in (K[:2], 1.1 * K[:2]):
        np.testing.assert_allclose(p.grad(k), tg.grad(loss)(k), rtol=1e-9)


@pytest.mark.parametrize("method", ("RK45", pytest.param("LSODA", marks=pytest.mark.long)))
def test_many_samples_fill_buffers_of_their_own(method):
    def loss(k):
        buffer = np.zeros(2)

        def f(t, y):
            buffer[0], buffer[1] = k[0] * y[1] + np.sin(t), -k[1] * y[0]
            return buffer.copy()

        found = scipy.integrate.solve_ivp(f, (0, 2), [1.0, 0.5], method, [0.5, 1.7], rtol=1e-6, atol=1e-8)
        return (found.y[:, -1] ** 2).sum() + buffer[0]

    points = K[:2] * np.linspace(0.9, 1.1, 66)[:, None]
    values, gradients = tg.vmap(tg.value_and_grad(loss))(points)
    near = 1e-5 if method == "LSODA" else 1e-9
    np.testing.assert_allclose(values, list(map(loss, points)), rtol=near)
    np.testing.assert_allclose(gradients[::30], list(map(tg.grad(loss), points[::30])), rtol=near)


@pytest.mark.parametrize("method", ("LSODA", "Radau"))
def test_the_dense_output_that_was_not_asked_for(method):
    """`sol` is None, also where nothing is tracked."""
    seen = []

    def loss(x):
        seen.append(scipy.integrate.solve_ivp(lambda t, y: -y, (0, 1), [1.0], method, [1.0]).sol)
        return x * 2.0

    assert tg.grad(loss)(1.0) == 2.0 and seen == [None]


def test_a_stiff_equation_by_lsoda(soon):
    """SciPy's values, and derivatives by steps of Radau with smaller tolerances; a replay solves once."""
    loss, exact = lambda k: stiff_loss(k, "LSODA"), tg.grad(lambda k: stiff_loss(k, "Radau", 1e-11))(RATES)
    found = [tg.value_and_grad(loss)(RATES) for _ in range(4)]
    assert soon() and "LSODA" not in ivp_kernel.REFUSED.get(robertson.__code__, ())
    p = tg.prepare(loss, RATES)
    for _ in range(3):
        found.append(p.value_and_grad(RATES))
    for value, gradient in found:
        assert value == loss(RATES)
        np.testing.assert_allclose(gradient, exact, rtol=1e-4)
    assert frames_of(lambda: p.value_and_grad(1.01 * RATES)).count("solve_ivp") == 1


class Held:
    def __init__(self):
        self.scale, self.numbers, self.written = np.array([1.0, 2.0]), [1.0], np.zeros(4)


HELD = Held()
LATER = {
    "args": lambda k, i: ((lambda t, y, k, c: rotation(y, k) * c), (k, 1.0 + i % 2)),
    "closure": lambda k, i: lambda t, y: rotation(y, k) * (1 + i % 2),
    "array": lambda k, i: (HELD.scale.__setitem__(0, 1.0 + i), lambda t, y: rotation(y, k) * HELD.scale)[1],
    "list": lambda k, i: (
        HELD.numbers.__setitem__(0, 1.0 + i % 2),
        lambda t, y: rotation(y, k) * HELD.numbers[0],
    )[1],
    "written": lambda k, i: (
        HELD.written.__setitem__(slice(None), (1 + i) * k),
        lambda t, y: rotation(y, HELD.written),
    )[1],
    "views": lambda k, i: lambda t, y, a=k[: 2 + i % 2], b=k[::-1]: rotation(y, b) * a[-1],
    "branch": lambda k, i: lambda t, y: rotation(y, k) * (1.0 if y[0] > 4.5 else 2.0),
}


@pytest.mark.parametrize(
    "way",
    [pytest.param(w, marks=pytest.mark.long) if w != "branch" else w for w in LATER],
)
def test_what_changes_between_calls_is_seen(way, soon):
    def states(k, f):
        f, args = f if type(f) is tuple else (f, None)
        return scipy.integrate.solve_ivp(f, (0, 1), [5.0, 1.5], t_eval=[0.3, 1.0], rtol=1e-6, args=args).y

    for i in (0, 1, 0, 1, 2, 3):
        k = K * (1 + 0.01 * i)
        value, gradient = tg.value_and_grad(lambda k, i=i: (states(k, LATER[way](k, i)) ** 2).sum())(k)
        exact = lambda k, i=i: (states(k, LATER[way](k, i)) ** 2).sum()
        assert value == pytest.approx(exact(k), rel=1e-12)
        tangent = (exact(k + 1e-5 * K) - exact(k - 1e-5 * K)) / 2e-5
        assert gradient @ K == pytest.approx(tangent, rel=1e-5)
    assert soon() > 0


def fills_rows(t, y, k):
    SCRATCH[0], SCRATCH[1] = k[0] * y[1], -k[1] * y[0]
    slope = SCRATCH.copy()
    SCRATCH[:] *= 2.0
    return slope


SQUARE = np.zeros((2, 2))
ROW = SQUARE[0]


def fills_by_a_view(t, y, k):
    SQUARE[:] = np.stack([k[:2] * y[::-1], y])
    return ROW * np.array([1.0, -1.0])


def accumulates(t, y, k):
    SCRATCH[:] = 0.5 * SCRATCH + y
    return rotation(y, k)


@pytest.mark.parametrize(
    ("f", "buffer"),
    [
        pytest.param(fills_rows, SCRATCH, marks=pytest.mark.long),
        (fills_by_a_view, SQUARE),
        (accumulates, SCRATCH),
    ],
    ids=lambda f: getattr(f, "__name__", ""),
)
def test_a_captured_buffer_is_left_as_the_last_call_leaves_it(f, buffer, soon):
    """What a kernel leaves there has derivatives too. Other writes are left to SciPy."""

    def loss(k):
        SCRATCH[:], SQUARE[:] = 0.0, 0.0
        y = scipy.integrate.solve_ivp(f, (0, 1), [1.0, 0.5], "RK23", [0.5, 1.0], args=(k,), rtol=1e-4).y
        return y[:, -1] @ np.array([1.0, 2.0]) * buffer.sum() + buffer.max()

    found = []
    for _ in range(4):
        value, gradient = tg.value_and_grad(loss)(K)
        found.append([value, *gradient, *buffer.ravel()])
    np.testing.assert_allclose(found[1:], [found[0]] * 3, rtol=1e-10, atol=1e-12)
    assert soon() == (f is fills_rows)


def test_what_the_user_would_miss_is_left_to_scipy(soon, capsys):
    def shows(t, y, k):
        print(t)
        return -k * y

    for _ in range(4):
        tg.grad(lambda k: scipy.integrate.solve_ivp(shows, (0, 1), [1.0], t_eval=[1.0], args=(k,)).y[0, 0])(
            1.0
        )
        assert len(capsys.readouterr().out) > 50
    assert soon() == 0


@pytest.mark.long
def test_many_steps_between_two_times():
    """More than the first attempt of a kernel takes."""
    last = lambda w: scipy.integrate.solve_ivp(
        lambda t, y: w * np.array([y[1], -y[0]]),
        (0, 300),
        [1.0, 0.0],
        t_eval=[300.0],
        max_step=0.1,
        method="RK23",
    ).y[0, 0]
    p = tg.prepare(last, np.array(0.7))
    value, slope = p.value_and_grad(np.array(0.7))
    assert value == pytest.approx(last(np.array(0.7)), rel=1e-10)
    assert slope == pytest.approx(-300 * np.sin(210), rel=1e-2)
    assert python_frames(lambda: p.value_and_grad(np.array(0.71))) == 0


@pytest.mark.long
def test_many_steps_are_swept_in_segments(monkeypatch):
    """More steps than a first attempt allows, in segments of a thousand."""
    monkeypatch.setattr(loops, "KEPT_NUMBERS", 0)
    monkeypatch.setattr(loops, "LEAST_SEGMENT", 1000)
    settings = {"rtol": 1e-6, "first_step": 1 / 4000, "max_step": 1 / 4000}
    end = lambda k: scipy.integrate.solve_ivp(
        lambda t, y: -k * y, (0, 1), [1.0], "RK23", [1.0], **settings
    ).y[0, -1]
    p, k = tg.prepare(end, 0.7), np.float64(0.7)
    assert p(k) == pytest.approx(np.exp(-k), rel=1e-11)
    assert p.grad(k) == pytest.approx(-np.exp(-k), rel=1e-11)


# --- without t_eval, where values are hidden ---


def last_of(method, k):
    """What is read at the ends of a solution whose steps are not known, in several spellings."""
    found = scipy.integrate.solve_ivp(predators, (0, 3), k[:2] * 3.0, method, args=(k,), rtol=1e-6, atol=1e-9)
    y = found.y
    return np.stack([y[0, -1], y.T[-1][1], y[..., -1].sum(), found.t[-1] * y[1, 0], y[:, -1] @ y[::-1, 0]])


@pytest.mark.parametrize(
    ("way", "method"),
    [
        *[(way, method) for way in (3, "prepare") for method in ("RK45", "LSODA", "BDF")],
        (70, "BDF"),
        *[pytest.param(70, method, marks=pytest.mark.long) for method in ("RK45", "LSODA")],
    ],
)
def test_the_ends_of_a_solution_whose_steps_are_not_known(method, way):
    points = K * np.linspace(0.9, 1.1, way if way != "prepare" else 4)[:, None]
    f = lambda k: last_of(method, k)
    given = {"rtol": 1e-6, "atol": 1e-9}
    solved = [
        scipy.integrate.solve_ivp(predators, (0, 3), k[:2] * 3.0, method, args=(k,), **given) for k in points
    ]
    assert len({found.t.size for found in solved}) > 1
    some = slice(None, None, 1 if way == 3 else 23 if way == 70 else 1)
    wanted, slopes = [f(k) for k in points[some]], [tg.jacobian(f)(k) for k in points[some]]
    if way == "prepare":
        p = tg.prepare(f, points[0])
        found, found_slopes = [p(k) for k in points], [p.jacobian(k) for k in points]
        assert "run as it is" not in p.report()
    else:
        found, found_slopes = tg.vmap(f)(points)[some], tg.vmap(tg.jacobian(f))(points)[some]
    np.testing.assert_allclose(found, wanted, rtol=1e-11)
    np.testing.assert_allclose(found_slopes, slopes, rtol=1e-9, atol=2e-4 if method == "LSODA" else 1e-8)


@pytest.mark.parametrize("count", (3, 70))
@pytest.mark.parametrize(
    "read",
    (
        lambda y: y[0], lambda y: y[:, 1], lambda y: y.sum(), lambda y: y * 2.0, lambda y: np.sum(y),
        lambda y: y.T[:, -1], lambda y: y[-1], lambda y: len(y), lambda y: y.shape[1], lambda y: y[..., None],
        lambda y: y[:, [0, -1]], lambda y: y[:, ::-1],
    ),
)  # fmt: skip
def test_other_elements_of_such_a_solution_are_refused(read, count):
    def f(k):
        return np.sum(read(scipy.integrate.solve_ivp(predators, (0, 3), k[:2] * 3.0, args=(k,)).y))

    with pytest.raises(BatchError, match="t_eval"):
        tg.vmap(f)(K * np.linspace(0.8, 1.2, count)[:, None])


HOURS = np.linspace(0.0, 4.0, 30)
INFLOW = 1.0 + np.sin(HOURS)
FORCES = {
    "interp": lambda t: np.interp(t, HOURS, INFLOW),
    "CubicSpline": scipy.interpolate.CubicSpline(HOURS, INFLOW),
    "interp1d": scipy.interpolate.interp1d(HOURS, INFLOW),
    "cubic interp1d": scipy.interpolate.interp1d(HOURS, INFLOW, "cubic"),
    "UnivariateSpline": scipy.interpolate.UnivariateSpline(HOURS, INFLOW, s=0),
    "step": lambda t: INFLOW[int(7.0 * t)],
    "Polynomial": np.polynomial.Polynomial([1.0, 0.3, -0.1]),
}


@pytest.mark.parametrize(
    "name", [n if n in ("interp1d", "step") else pytest.param(n, marks=pytest.mark.long) for n in FORCES]
)
def test_forced_equations_run_no_python(name):
    """An inflow by a table, a spline or a polynomial, which the right-hand side captures."""
    inflow = FORCES[name]

    def loss(k, rtol=1e-6):
        f = lambda t, y: np.array([k[0] * inflow(t) - k[1] * y[0], k[1] * y[0] - k[2] * y[1]])
        given = {"t_eval": HOURS[::7], "rtol": rtol, "atol": 1e-3 * rtol}
        return (scipy.integrate.solve_ivp(f, (0, 4), [0.5, 0.0], **given).y ** 2).sum()

    p, k = tg.prepare(loss, K[:3]), np.array([0.9, 0.5, 0.3])
    p.value_and_grad(K[:3])
    value, gradient = p.value_and_grad(k)
    kinks = name in ("interp", "interp1d", "step")  # after one, roundings decide on the steps
    assert value == pytest.approx(loss(k), rel=1e-4 if kinks else 1e-8)
    differences = [(loss(k + h, 1e-10) - loss(k - h, 1e-10)) / 4e-3 for h in 2e-3 * np.eye(3)]
    np.testing.assert_allclose(gradient, differences, rtol=1e-3 if kinks else 2e-5)
    assert python_frames(lambda: p.value_and_grad(0.9 * k)) == 0
    if name == "interp1d":
        many = tg.vmap(tg.grad(loss))(np.stack([k, 1.1 * k] * 20))
        np.testing.assert_allclose(many[0], gradient, rtol=1e-4)


def test_a_spline_that_changes_between_replays():
    """Also where it is called with a known number, and asked for an integral, which SciPy has to answer."""
    inflow = scipy.interpolate.CubicSpline(HOURS, INFLOW)

    def loss(k):
        f = lambda t, y: k[0] * inflow(t) * inflow(0.5) - k[1] * y * inflow.integrate(0.0, 1.0)
        return scipy.integrate.solve_ivp(f, (0, 4), [0.5], t_eval=[4.0], rtol=1e-8).y[0, 0]

    p, k = tg.prepare(loss, K[:2]), np.array([0.9, 0.5])
    p.grad(K[:2])
    before = p.grad(k)
    inflow.c[-1] *= 2.0
    np.testing.assert_allclose(p.grad(k), tg.grad(loss)(k), rtol=1e-6)
    assert abs(p.grad(k) - before).max() > 0.1
