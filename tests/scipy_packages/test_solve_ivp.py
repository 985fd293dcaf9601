"""scipy.integrate.solve_ivp: SciPy's own steps and values, derivatives of all orders, and what the right-hand
side may do."""

import contextlib
import warnings
from collections import deque

import mpmath
import numpy as np
import pytest
import scipy.integrate as itg
import scipy.sparse

import tapegrad as tg
from tapegrad._scipy.integrate import ivp_by_steps, right_side
from tapegrad._scipy.integrate.linear_steps import COLLOCATION, RefinedSteps, SparseJacobians
from tapegrad.errors import BatchError, ConvergenceError, GuardError, NoRuleError

EXPLICIT, IMPLICIT = ["RK23", "RK45", "DOP853"], ["Radau", "BDF", "LSODA"]
METHODS = [*EXPLICIT, *IMPLICIT]
K = np.array([1.0, 0.4, 0.2, 0.8])
TIMES = np.linspace(0.0, 5.0, 6)


def population(t, y, k):
    return np.array([k[0] * y[0] - k[1] * y[0] * y[1], k[2] * y[0] * y[1] - k[3] * y[1]])


def robertson(t, y, k):
    a, b, c = k[0] * y[0], k[1] * y[1] * y[2], k[2] * y[1] ** 2
    return [-a + b, a - b - c, c]


def slopes(f, x, h=1e-5):
    return np.stack([(f(x + h * e) - f(x - h * e)) / (2 * h) for e in np.eye(len(x))], -1)


SETTINGS = {
    "as it is": {},
    "times": {"t_eval": TIMES},
    "dense": {"dense_output": True},
    "dense at times": {"t_eval": TIMES, "dense_output": True},
    "steps": {"first_step": 0.01, "max_step": 0.3},
    "event": {"events": [lambda t, y, k: y[0] - 4.0]},
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", SETTINGS)
def test_steps_and_values_are_those_of_scipy(method, name):
    given = {"method": method, "args": (K,), "rtol": 1e-5, "atol": 1e-7, **SETTINGS[name]}
    plain, seen = itg.solve_ivp(population, (0, 5), [5.0, 1.5], **given), []

    def f(k):
        found = itg.solve_ivp(population, (0, 5), [5.0, 1.5], **{**given, "args": (k,)})
        seen.append(
            tg.value(
                (
                    found.t,
                    found.y,
                    found.t_events or [],
                    found.y_events or [],
                    found.nfev,
                    found.njev,
                    found.nlu,
                )
            )
        )
        at = np.linspace(0.1, 4.9, 7) if found.sol is None else found.sol(plain.t)
        seen.append(tg.value(at))
        return found.y[:, -1].sum()

    tg.grad(f)(K)
    t, y, times, states, *counts = seen[0]
    assert counts == [plain.nfev, plain.njev, plain.nlu]
    np.testing.assert_array_equal(t, plain.t)
    np.testing.assert_array_equal(y, plain.y)
    for ours, theirs in zip(
        [*times, *states], [*(plain.t_events or []), *(plain.y_events or [])], strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    if plain.sol is not None:
        np.testing.assert_array_equal(seen[1], plain.sol(plain.t))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("method", METHODS)
def test_derivatives_against_tight_tolerances(method):
    """To 100 times rtol."""
    rtol = 1e-6

    def f(x, method=method, rtol=rtol):
        return itg.solve_ivp(
            population, (0.0, x[6]), x[4:6], method, args=(x[:4],), rtol=rtol, atol=rtol / 100
        ).y[:, -1]

    x = np.array([*K, 5.0, 1.5, 4.0])
    exact = slopes(lambda x: f(x, "DOP853", 1e-12), x)
    for mode in ("forward", "reverse"):
        np.testing.assert_allclose(tg.jacobian(f, mode=mode)(x), exact, atol=100 * rtol * np.abs(exact).max())


@pytest.mark.parametrize("method", METHODS)
def test_linear_equation_with_a_known_solution(method):
    """y' = A y: the derivatives of the exponential, with respect to all of A, y0 and both ends."""
    A, y0, ends = np.array([[-1.0, 2.0], [-3.0, -0.5]]), np.array([1.0, -0.5]), np.array([0.3, 1.1])
    rtol = 1e-7 if method != "RK23" else 1e-6

    def f(A, y0, ends):
        return itg.solve_ivp(lambda t, y: A @ y, ends, y0, method, rtol=rtol, atol=rtol / 10).y[
            :, -1
        ] @ np.array([1.0, 2.0])

    def closed(A, y0, ends):
        return mpmath.fdot([1, 2], mpmath.expm(mpmath.matrix(A) * (ends[1] - ends[0])) * mpmath.matrix(y0))

    given = [A, y0, ends]
    with mpmath.workdps(40):
        for n, found in enumerate(tg.grad(f, (0, 1, 2))(*given)):
            for at in np.ndindex(found.shape):
                moved = [
                    [
                        [mpmath.mpf(float(v)) for v in row] if np.ndim(row) else mpmath.mpf(float(row))
                        for row in a
                    ]
                    for a in given
                ]

                def along(h, n=n, at=at, moved=moved):
                    new = [[list(row) if isinstance(row, list) else row for row in a] for a in moved]
                    if len(at) == 2:
                        new[n][at[0]][at[1]] += h
                    else:
                        new[n][at[0]] += h
                    return closed(*new)

                exact = float(
                    (along(mpmath.mpf("1e-12")) - along(mpmath.mpf("-1e-12"))) / mpmath.mpf("2e-12")
                )
                assert found[at] == pytest.approx(exact, abs=100 * rtol)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("method", METHODS)
def test_second_derivatives_are_those_of_the_first(method):
    """Differences of the gradient on the same problem; the steps move between the points, so to the
    tolerance."""
    rtol = 1e-9 if method in ("DOP853", "RK45", "Radau") else 1e-8

    def f(x):
        y = itg.solve_ivp(
            population, (0.0, 2.0), x[4:], method, args=(x[:4],), t_eval=[1.0, 2.0], rtol=rtol, atol=rtol / 10
        ).y
        return (y * y).sum()

    x, v = np.array([*K, 5.0, 1.5]), np.array([0.3, -0.2, 0.1, 0.5, 1.0, -1.0])
    h = 1e-4
    exact = (tg.grad(f)(x + h * v) - tg.grad(f)(x - h * v)) / (2 * h)
    atol = 2e-5 * np.abs(exact).max()
    np.testing.assert_allclose(tg.hvp(f, x, v), exact, atol=atol)
    np.testing.assert_allclose(tg.grad(lambda x: tg.jvp(f, (x,), (v,))[1])(x), exact, atol=atol)
    np.testing.assert_allclose(tg.jvp(lambda x: tg.grad(f)(x), (x,), (v,))[1], exact, atol=atol)


def test_third_derivative():
    """y = y0 exp(-k): the third derivative by k is -y0 exp(-k), by one step of an explicit method -(its
    polynomial)'''."""
    f = lambda k: itg.solve_ivp(lambda t, y: -k * y, (0, 1), [2.0], "DOP853", rtol=1e-11, atol=1e-13).y[0, -1]
    g = lambda k: itg.solve_ivp(lambda t, y: -k * y, (0, 1), [2.0], "Radau", rtol=1e-8, atol=1e-10).y[0, -1]
    assert tg.grad(tg.grad(tg.grad(f)))(0.7) == pytest.approx(-2 * np.exp(-0.7), rel=1e-8)
    assert tg.grad(tg.grad(tg.grad(g)))(0.7) == pytest.approx(-2 * np.exp(-0.7), rel=1e-5)


def test_mixed_derivative_of_start_and_rate_at_different_levels():
    f = lambda y0, k: itg.solve_ivp(lambda t, y: -k * y * y, (0, 1), [y0], rtol=1e-10, atol=1e-12).y[0, -1]
    found = tg.grad(lambda k: tg.grad(f)(1.5, k))(0.7)
    exact = lambda k: 1 / (1 + 1.5 * k) ** 2
    assert found == pytest.approx((exact(0.7 + 1e-5) - exact(0.7 - 1e-5)) / 2e-5, rel=1e-6)


def reacted(z, method="Radau", rtol=1e-9):
    return itg.solve_ivp(
        robertson, (0, 40.0), [1.0, 0, 0], method, args=(np.exp(z),), rtol=rtol, atol=rtol * 1e-4
    ).y[:, -1]


Z = np.log([0.04, 1e4, 3e7])


@pytest.fixture(scope="module")
def exact_reaction():
    return slopes(reacted, Z, 1e-3)


@pytest.mark.long
@pytest.mark.parametrize("method", IMPLICIT)
def test_stiff_network(method, exact_reaction):
    found = tg.jacobian(lambda z: reacted(z, method, 1e-6))(Z)
    np.testing.assert_allclose(found, exact_reaction, atol=1e-4 * np.abs(exact_reaction).max())


@pytest.mark.parametrize("n", [20, 40, 80])
@pytest.mark.parametrize("method", ["RK45", "DOP853", "BDF"])
def test_more_states(method, n):
    """Diffusion, by the closed form of its slowest wave; from 25 states on steps are not matrices, from 65 on
    products."""
    A = n * (np.diag(np.ones(n - 1), 1) + np.diag(np.ones(n - 1), -1) - 2 * np.eye(n)) / 10
    wave, rate = np.sin(np.pi * np.arange(1, n + 1) / (n + 1)), n * (2 * np.cos(np.pi / (n + 1)) - 2) / 10

    def f(x):
        y = itg.solve_ivp(lambda t, y: x[0] * (A @ y), (0, 0.5), x[1] * wave, method, rtol=1e-7, atol=1e-9).y[
            :, -1
        ]
        return y @ wave

    x, size = np.array([1.1, 0.7]), wave @ wave
    value = size * np.exp(0.5 * x[0] * rate)
    found, exact = tg.grad(f)(x), np.array([x[1] * 0.5 * rate * value, value])
    # the derivative of the steps of BDF has their error, which is relative to the state
    np.testing.assert_allclose(found, exact, rtol=1e-5, atol=3e-7 * value if method == "BDF" else 0.0)
    np.testing.assert_allclose(tg.jvp(f, (x,), (np.ones(2),))[1], exact.sum(), rtol=1e-5)
    np.testing.assert_allclose(tg.jvp(f, (x,), (np.ones(2),))[1], found.sum(), rtol=1e-12)


@pytest.mark.parametrize("method", ["RK45", "DOP853", "Radau", "BDF"])
def test_complex_states(method):
    """y' = (a i - b) y."""
    f = lambda x: (lambda y: np.real(y) + 2 * np.imag(y))(
        itg.solve_ivp(lambda t, y: (1j * x[0] - x[1]) * y, (0, 1), [1.0 + 0.5j], method, rtol=1e-8,
        atol=1e-10).y[0, -1]
    )  # fmt: skip
    if method == "Radau":
        pytest.raises(ValueError, f, K[:2])
        return
    y = (1 + 0.5j) * np.exp(1j * K[0] - K[1])
    exact = [(g.real + 2 * g.imag) for g in (1j * y, -y)]
    np.testing.assert_allclose(tg.grad(f)(K[:2]), exact, atol=1e-5)


# --- what the right-hand side may do ---


@pytest.mark.parametrize("method", METHODS)
def test_branches_of_time(method):
    """y' = -a y + b (t - 1/2)+"""

    def slope(t, y, k):
        if t < 0.5:
            return [-k[0] * y[0]]
        return [-k[0] * y[0] + k[1] * (t - 0.5)]

    f = lambda k: itg.solve_ivp(
        slope, (0, 1.0), [1.0], method, args=(k,), rtol=1e-8, atol=1e-10, max_step=0.1
    ).y[0, -1]
    end = lambda a, b: np.exp(-a) + b * (0.5 / a - (1 - np.exp(-a / 2)) / a**2)
    np.testing.assert_allclose(tg.grad(f)(K[:2]), slopes(lambda k: end(*k), K[:2]), rtol=1e-4)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("method", METHODS)
def test_branches_of_the_state(method):
    """y'' = -k y, and -2 k y below zero; a half-wave of each, and another half."""

    def slope(t, y, k):
        return [y[1], -k[0] * y[0] if y[0] > 0 else -2 * k[0] * y[0]]

    def f(k):
        return itg.solve_ivp(
            slope, (0, 5.0), [0.0, 1.0], method, args=(k,), rtol=1e-8, atol=1e-10, max_step=0.1
        ).y[0, -1]

    def exact(k):
        w = np.sqrt(k)
        first = np.pi / w
        return -np.sin(np.sqrt(2) * w * (5 - first)) / (np.sqrt(2) * w)

    assert 5 - np.pi < np.pi / np.sqrt(2)
    np.testing.assert_allclose(tg.grad(f)(K[:1]), [(exact(1 + 1e-6) - exact(1 - 1e-6)) / 2e-6], rtol=1e-3)


SCRATCH = np.zeros(2)


def fills(t, y, k):
    out = np.empty(2)
    out[0], out[1] = k[0] * y[1], -k[1] * y[0]
    return out


def fills_captured(t, y, k):
    SCRATCH[0], SCRATCH[1] = k[0] * y[1], -k[1] * y[0]
    return SCRATCH.copy()


def leaves_zeros(t, y, k):
    SCRATCH[0], SCRATCH[1] = k[0] * y[1], -k[1] * y[0]
    out = SCRATCH.copy()
    SCRATCH[:] = 0.0
    return out


def solves(t, y, k):
    return np.linalg.solve(np.diag(1 / k), np.array([y[1], -y[0]]))


class Model:
    calls = 0

    def __call__(self, t, y, k):
        self.calls += 1
        return [k[0] * y[1], -k[1] * y[0]]


@pytest.mark.parametrize(
    "slope",
    [fills, fills_captured, leaves_zeros, solves, Model()],
    ids=["fills", "captured", "zeros", "solves", "counts"],
)
@pytest.mark.parametrize("method", ["RK45", "BDF"])
def test_buffers_matrices_and_counts(slope, method):
    """A rotation: y0 = cos(w t), w = sqrt(k0 k1)."""
    f = lambda k: itg.solve_ivp(slope, (0, 2.0), [1.0, 0.0], method, args=(k,), rtol=1e-7, atol=1e-9).y[0, -1]
    k = K[:2]
    exact = slopes(lambda k: np.cos(2 * np.sqrt(k[0] * k[1])), k, 1e-6)
    np.testing.assert_allclose(tg.grad(f)(k), exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", ["RK45", "LSODA"])
def test_a_buffer_is_left_as_the_last_call_leaves_it(method):
    """Also if it holds the same numbers before, from a plain call."""

    def f(k):
        y = itg.solve_ivp(fills_captured, (0, 2.0), [1.0, 0.0], method, args=(k,), rtol=1e-8, atol=1e-10).y[
            :, -1
        ]
        return y[0] * SCRATCH[1] + SCRATCH[0]

    def exact(k):
        w, r = np.sqrt(k[0] * k[1]), np.sqrt(k[1] / k[0])
        y0, y1 = np.cos(2 * w), -r * np.sin(2 * w)
        return y0 * -k[1] * y0 + k[0] * y1

    k = K[:2]
    value = f(k)
    for _ in range(2):
        found = tg.value_and_grad(f)(k)
        assert found[0] == pytest.approx(value, rel=1e-6)
        np.testing.assert_allclose(found[1], slopes(exact, k), rtol=1e-4)
        assert f(k) == value


def test_a_history_has_its_derivatives():
    """Written call by call, at places that the function counts."""
    history, count = np.zeros(4096), [0]

    def slope(t, y, k):
        history[count[0] % 4096] = k[0] * y[0]
        count[0] += 1
        return -k[0] * y

    def f(k):
        count[0] = 0
        history[:] = 0.0
        y = itg.solve_ivp(slope, (0, 1.0), [1.0], args=(k,), rtol=1e-8, atol=1e-10).y[0, -1]
        return y + history.max()  # at the start: k

    assert tg.grad(f)(K[:1])[0] == pytest.approx(1 - np.exp(-1), rel=1e-6)


LAST, NOTES = deque(maxlen=2), {}


def to_deque(t, y, k):
    LAST.append(y[0] * k[0])
    return -k[0] * y


def to_dict(t, y, k):
    NOTES["last"] = y[0] * k[0]
    return -k[0] * y


@pytest.mark.parametrize(
    ("slope", "read"), [(to_deque, lambda: LAST[-1]), (to_dict, lambda: NOTES["last"])], ids=["deque", "dict"]
)
def test_what_is_kept_is_told_if_it_was_kept_before(slope, read):
    def f(k):
        return itg.solve_ivp(slope, (0, 1.0), [1.0], args=(k,)).y[0, -1] + read() * 2.0

    assert f(K[:1]) == f(K[:1])
    with pytest.raises(NoRuleError, match="kept while scipy"):
        tg.grad(f)(K[:1])


@pytest.mark.parametrize("method", EXPLICIT)
def test_an_infinite_slope_that_nothing_moves(method):
    """The root of a state that starts at zero."""

    def f(k):
        slope = lambda t, y: [-k[0] * np.sqrt(y[1]) - y[0] * k[0], k[1] * y[0]]
        return itg.solve_ivp(slope, (0, 1), [1.0, 0.0], method, rtol=1e-7, atol=1e-9).y[:, -1].sum()

    k = np.array([1.1, 0.4])
    exact = slopes(f, k, 1e-4)
    np.testing.assert_allclose(tg.grad(f)(k), exact, rtol=1e-4)
    assert tg.jvp(f, (k,), (np.ones(2),))[1] == pytest.approx(exact.sum(), rel=1e-4)


def test_args_may_be_functions_that_capture():
    f = lambda k: itg.solve_ivp(
        lambda t, y, rate: -rate(t) * y, (0, 1), [1.0], args=(lambda t: k[0] * t,), rtol=1e-9, atol=1e-11
    ).y[0, -1]
    assert tg.grad(f)(K[:1])[0] == pytest.approx(-0.5 * np.exp(-0.5), rel=1e-7)


def test_jac_takes_args():
    jac = lambda t, y, k: np.array([[0.0, k[0]], [-k[1], 0.0]])
    f = lambda k: itg.solve_ivp(
        fills, (0, 2.0), [1.0, 0.0], "Radau", args=(k,), jac=jac, rtol=1e-7, atol=1e-9
    ).y[0, -1]
    exact = slopes(lambda k: np.cos(2 * np.sqrt(k[0] * k[1])), K[:2], 1e-6)
    np.testing.assert_allclose(tg.grad(f)(K[:2]), exact, rtol=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_interpolant_by_its_time_alone(method):
    f = lambda t: itg.solve_ivp(
        lambda t, y: -y, (0, 2), [1.0], method, dense_output=True, rtol=1e-8, atol=1e-10
    ).sol(t)[0]
    assert tg.grad(f)(0.77) == pytest.approx(-np.exp(-0.77), rel=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_an_interval_without_length(method):
    f = lambda x: itg.solve_ivp(lambda t, y: x[0] * y, (1, 1), x, method, dense_output=True)
    np.testing.assert_array_equal(tg.grad(lambda x: f(x).y.sum() + f(x).sol(1.0)[0])(K[:2]), [3.0, 2.0])
    last = lambda t: itg.solve_ivp(lambda t, y: x * t * y, (t[0], t[1]), [x], method).y[0, -1]
    x, t = 2.0, np.array([1.5, 1.5])  # x exp(x (t1^2 - t0^2) / 2)
    np.testing.assert_allclose(tg.grad(last)(t), [-6.0, 6.0], rtol=1e-14)
    np.testing.assert_allclose(tg.hessian(last)(t), [[14.0, -18.0], [-18.0, 22.0]], rtol=1e-13)


@pytest.mark.parametrize(
    "method, states, t_eval, end",
    [
        ("RK45", 1, None, 0.8),
        ("BDF", 1, [0.2, 0.6], 0.6),
        *[
            pytest.param(m, 1, t, e, marks=pytest.mark.long)
            for m in METHODS
            for t, e in ((None, 0.8), ([0.2, 0.6], 0.6))
        ],
        pytest.param("RK45", 70, None, 0.8, marks=pytest.mark.long),
    ],
)
def test_ends_that_move_do_not_move_a_switch(method, states, t_eval, end):
    """y = exp(s - t0 + 3 (t - s)) after the switch s."""

    def f(t):
        return itg.solve_ivp(
            lambda t, y: y if t < 0.35 else 3.0 * y, (t[0], t[1]), y0, method, t_eval, rtol=1e-6, atol=1e-7
        ).y[0, -1]

    at, y0 = np.array([0.1, 0.8]), np.full(states, 1.5)
    y, v = 1.5 * np.exp(0.25 + 3 * (end - 0.35)), np.array([-1.0, 3.0 if end == 0.8 else 0.0])
    for found in (tg.grad(f)(at), [tg.jvp(f, (at,), (e,))[1] for e in np.eye(2)]):
        np.testing.assert_allclose(found, v * y, rtol=2e-3, atol=1e-3)
    np.testing.assert_allclose(tg.hvp(f, at, v), (v @ v) * v * y, rtol=2e-3, atol=1e-3)


def test_a_solution_that_blows_up_has_the_derivative_of_its_steps():
    def f(k):
        found = itg.solve_ivp(lambda t, y: k[0] * y * y, (0, 3), [1.0], rtol=1e-8)
        assert not found.success
        return found.y[0, 4] / found.t[4]

    value, gradient = tg.value_and_grad(f)(K[:1])
    t = itg.solve_ivp(lambda t, y: y * y, (0, 3), [1.0], rtol=1e-8).t[4]
    assert gradient[0] == pytest.approx(1 / (1 - t) ** 2, rel=1e-5)


def test_nan_at_the_start_is_an_error():
    for method in METHODS:
        with pytest.raises(ConvergenceError, match=r"test_solve_ivp.*nan at the start, t = 0"):
            tg.grad(lambda k: itg.solve_ivp(lambda t, y: k * np.nan * y, (0, 1), [1.0], method).y[0, -1])(1.0)


def test_errors_are_those_of_scipy():
    for given, error in (
        ({"t_eval": [0.5, 3.0]}, "not within"),
        ({"t_eval": [0.5, 0.2]}, "not properly sorted"),
    ):
        with pytest.raises(ValueError, match=error):
            tg.grad(
                lambda k, given=given: itg.solve_ivp(lambda t, y: -k * y, (0, 1), [1.0], **given).y[0, -1]
            )(1.0)
    with pytest.raises(ValueError, match="broadcast"):
        tg.grad(lambda k: itg.solve_ivp(lambda t, y: np.stack([k, k]), (0, 1), [1.0]).y[0, -1])(1.0)

    def fails(t, y, k):
        if t > 0.5:
            raise OSError("no data after 0.5")
        return -k * y

    with pytest.raises(OSError, match=r"no data after 0\.5"):
        tg.grad(lambda k: itg.solve_ivp(fails, (0, 1), [1.0], args=(k,)).y[0, -1])(1.0)


def test_implicit_methods_tell_other_values_too():
    class Counted:
        calls = 0

        def __call__(self, t, y):
            self.calls += 1
            return -y * self.k * np.exp(-self.calls / 50)

    def f(k, method):
        slope = Counted()
        slope.k = k
        return itg.solve_ivp(slope, (0, 1), [1.0], method).y[0, -1]

    for method in ("RK45", "Radau"):
        with pytest.raises(GuardError, match="changes from call to call"):
            tg.grad(f)(1.0, method)


# --- recorded and batched ---


def last_states(x, methods=("RK45", "LSODA"), rtol=1e-8):
    """Of two calls, one of which starts where the other ends, and one function that is used twice."""
    given, (one, two) = {"rtol": rtol, "atol": 0.01 * rtol}, methods
    first = itg.solve_ivp(population, (0, 1), x[4:], one, [0.5, 1.0], args=(x[:4],), **given).y
    then = itg.solve_ivp(population, (0, 1), first[:, -1], two, [1.0], args=(2 * x[:4],), **given).y
    return np.concatenate([first[0], then[:, 0]])


X = np.array([*K, 5.0, 1.5])


@pytest.mark.long
def test_prepared_calls_give_new_derivatives_at_each_point():
    """Derivatives are those of an accurate solution to a hundred times the tolerance."""
    p = tg.prepare(last_states, X)
    scalar = tg.prepare(lambda x: (last_states(x) ** 2).sum(), X)
    tight = lambda x: last_states(x, ("DOP853", "DOP853"), 1e-12)
    loss = lambda x: (tight(x) ** 2).sum()
    near = lambda found, right: np.testing.assert_allclose(found, right, rtol=0, atol=1e-6 * abs(right).max())
    for scale in (1.05, 1.05, 0.9):
        x = X * scale
        np.testing.assert_allclose(p.value(x), last_states(x), rtol=1e-12)
        near(p.jacobian(x), tg.jacobian(tight)(x))
        value, gradient = scalar.value_and_grad(x)
        assert value == pytest.approx((last_states(x) ** 2).sum(), rel=1e-12)
        near(gradient, tg.grad(loss)(x))
        near(scalar.hvp(x, X), tg.hvp(loss, x, X))


def test_a_replay_solves_once_for_all_rows(monkeypatch):
    f = lambda x: itg.solve_ivp(
        lambda t, y: -x * y, (0, 1), np.array([1.0, 2.0]), "LSODA", t_eval=[0.5, 1.0]
    ).y.ravel()
    x = np.array([0.5, 0.7])
    p = tg.prepare(f, x)
    p.jacobian(x)
    p.jacobian(x)
    calls, solve = [], itg.solve_ivp
    monkeypatch.setattr(
        itg, "solve_ivp", lambda *args, **kwargs: calls.append(None) or solve(*args, **kwargs)
    )
    p.jacobian(1.1 * x)
    assert len(calls) == 1


def test_samples_have_steps_of_their_own():
    xs = X * np.linspace(1.0, 1.2, 3)[:, None]
    found = tg.vmap(tg.jacobian(last_states))(xs)
    np.testing.assert_allclose(found, [tg.jacobian(last_states)(x) for x in xs], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(tg.vmap(last_states)(xs), [last_states(x) for x in xs], rtol=1e-14)


@pytest.mark.parametrize("spread", [0.01, 10.0], ids=["refined", "one system"])
@pytest.mark.parametrize("is_sparse", [False, True], ids=["dense", "sparse"])
def test_steps_of_many_states_against_the_inverse(spread, is_sparse):
    """Jacobians of the stages that are near each other, and others; four steps, of which two are equal."""
    rng, n = np.random.default_rng(0), 30
    places = rng.uniform(size=(n, n)) < (0.2 if is_sparse else 1.0)
    h = np.array([0.3, 0.3, 0.5, 0.05])
    A, J = (
        h[:, None, None] * COLLOCATION.A,
        rng.normal(size=(n, n)) + spread * rng.normal(size=(3, n, n)) / 10,
    )
    J, pattern = np.stack([J * places] * 4), scipy.sparse.csr_array(places)
    given = SparseJacobians(J[..., places], pattern) if is_sparse else J
    steps, c = RefinedSteps(A, given), rng.normal(size=(4, 3, n, 2))
    for k in range(4):
        whole = np.eye(3 * n) - np.einsum("ij,iab->iajb", A[k], J[k]).reshape(3 * n, 3 * n)
        for back, matrix in ((False, whole), (True, whole.T)):
            expected = np.linalg.solve(matrix, c[k].reshape(-1, 2)).reshape(c[k].shape)
            np.testing.assert_allclose(steps.solve(k, c[k], back), expected, rtol=1e-9, atol=1e-10)
    assert (0 in steps.used) == (spread < 1)
    assert spread > 1 or (steps.used[0] is steps.used[1] and steps.used[1] is not steps.used[2])


def heat(u, k, wall):
    """The slopes of a plate of unequal conductivity with radiation; `wall` is the temperature around it."""
    m = int(round(u.size**0.5))
    padded = np.zeros((m + 2, m + 2))
    padded[...] = wall
    padded[1:-1, 1:-1] = u.reshape(m, m)
    inner = padded[1:-1, 1:-1]
    across = padded[2:, 1:-1] + padded[:-2, 1:-1] + padded[1:-1, 2:] + padded[1:-1, :-2] - 4 * inner
    return (k[0] * across * m**2 / 10 - k[1] * inner**4).reshape(-1)


@pytest.mark.parametrize(
    "method",
    ["BDF", pytest.param("Radau", marks=pytest.mark.long), pytest.param("LSODA", marks=pytest.mark.long)],
)
def test_a_sparse_jacobian_is_found(method):
    """A plate of 144 unknowns: no matrix of all pairs of states; values as SciPy's own, both modes agree."""
    start = np.linspace(0.5, 1.0, 144)
    run = lambda k, rtol=1e-7: itg.solve_ivp(
        lambda t, u: heat(u, k, 1.0 + 0.1 * np.sin(t)), (0, 0.2), start, method, rtol=rtol, atol=1e-9
    )
    loss = lambda k, rtol=1e-7: (run(k, rtol).y[:, -1] ** 2).sum()
    k = np.array([1.0, 0.5])
    with watched_jacobians() as kinds:
        value, found = tg.value_and_grad(loss)(k)
    assert kinds == [SparseJacobians]
    assert value == pytest.approx(loss(k), rel=1e-12)
    np.testing.assert_allclose(tg.jacobian(loss, mode="forward")(k), found, rtol=1e-10)
    np.testing.assert_allclose(found, slopes(lambda k: loss(k, 1e-11), k, 1e-3), rtol=1e-5)
    v, gradient = np.array([0.3, -0.2]), tg.grad(loss)
    moved = (gradient(k + 1e-3 * v) - gradient(k - 1e-3 * v)) / 2e-3
    np.testing.assert_allclose(tg.hvp(loss, k, v), moved, rtol=1e-4)


@contextlib.contextmanager
def watched_jacobians():
    """The classes of the Jacobians at the stages."""
    kinds, computed = [], right_side.RightSide.jacobians

    def noted(self, *given):
        found = computed(self, *given)
        kinds.append(type(found[1]))
        return found

    right_side.RightSide.jacobians = noted
    try:
        yield kinds
    finally:
        right_side.RightSide.jacobians = computed


def chain(y, k):
    return -k * (2 * y - np.roll(y, 1) - np.roll(y, -1))


def late_coupling(t, y, k):  # entries that the first point lacks
    slope = chain(y, k)
    if t > 0.5:
        slope = slope - 0.3 * y.mean() * np.ones(len(y))
    return slope


@pytest.mark.parametrize("given", ["nothing", "sparsity", "too little", "jac", "vectorized"])
def test_given_patterns_of_a_chain(given):
    """A pattern of the user is used where it holds, and so is a sparse `jac`."""
    n = 120
    ring = scipy.sparse.csr_array((np.subtract.outer(np.arange(n), np.arange(n)) + 1) % n <= 2)
    options = {
        "nothing": {},
        "sparsity": {"jac_sparsity": ring},
        "too little": {
            "jac_sparsity": scipy.sparse.diags_array(np.ones((3, n)), offsets=(-1, 0, 1), shape=(n, n))
        },
        "jac": {"jac": lambda t, y, k: scipy.sparse.csc_matrix(ring * 1.0 - 3.0 * np.eye(n))},
        "vectorized": {"vectorized": True},
    }[given]
    f = (
        (lambda t, y, k: -k * (2 * y - np.roll(y, 1, 0) - np.roll(y, -1, 0)))
        if given == "vectorized"
        else (lambda t, y, k: chain(y, k))
    )
    wave = np.sin(2 * np.pi * np.arange(n) / n)
    rate = 2 - 2 * np.cos(2 * np.pi / n)
    end = lambda k: (
        wave @ itg.solve_ivp(f, (0, 100.0), wave, "BDF", args=(k,), rtol=1e-8, atol=1e-10, **options).y[:, -1]
    )
    with watched_jacobians() as kinds:
        found = tg.grad(end)(1.2)
    assert kinds == [np.ndarray if given == "too little" else SparseJacobians]
    exact = -100 * rate * np.exp(-1.2 * rate * 100) * (wave @ wave)
    assert found == pytest.approx(exact, rel=1e-5)


def test_entries_that_the_first_point_lacks():
    """A branch couples all states later on; the sparse Jacobian is not used then."""
    n = 120
    start = 1.0 + 0.1 * np.sin(np.arange(n))
    total = lambda k: (
        itg.solve_ivp(late_coupling, (0, 1), start, "Radau", args=(k,), rtol=1e-8).y[:, -1].sum()
    )
    with watched_jacobians() as kinds:
        value, found = tg.value_and_grad(total)(np.float64(0.8))
    assert kinds == [np.ndarray]
    assert value == pytest.approx(start.sum() * np.exp(-0.3 * 0.5), rel=1e-6)
    assert abs(found) < 1e-6  # the chain keeps the sum


@pytest.mark.parametrize("method", ["RK45", "BDF", "Radau", "LSODA"])
def test_the_map_and_its_transpose_of_many_states(method):
    """A nonlinear reaction and diffusion: both modes agree to rounding, and with differences."""
    n = 30
    A = np.diag(np.ones(n - 1), 1) + np.diag(np.ones(n - 1), -1) - 2 * np.eye(n)

    def f(x, rtol=1e-7):
        slope = lambda t, y: x[0] * 5 * (A @ y) + x[1] * y * (1 - y) - y**3
        return (
            itg.solve_ivp(slope, (0, 0.5), np.linspace(0, 2, n), method, rtol=rtol, atol=1e-9).y[:, -1].sum()
        )

    x = np.array([1.1, 0.7])
    found = tg.grad(f)(x)
    assert found.sum() == pytest.approx(tg.jvp(f, (x,), (np.ones(2),))[1], rel=1e-11)
    np.testing.assert_allclose(
        found, slopes(lambda x: f(x, 1e-10 if method != "LSODA" else 1e-11), x, 1e-3), rtol=1e-4
    )


@pytest.mark.parametrize("nested", [False, True], ids=["vmap of grad", "grad of vmap"])
@pytest.mark.parametrize("method", ["RK45", "LSODA"])
def test_samples_are_solved_once(method, nested, monkeypatch):
    """The value and the pullback of a sample come from one solution."""
    calls, solve = [], itg.solve_ivp
    monkeypatch.setattr(ivp_by_steps.itg, "solve_ivp", lambda *a, **k: calls.append(1) or solve(*a, **k))
    end = lambda k: itg.solve_ivp(lambda t, y: -k * y, (0, 1), [1.0], method, [1.0], rtol=1e-8).y[0, -1]
    rates = np.linspace(0.5, 1.5, 5)
    every = tg.grad(lambda k: tg.vmap(end)(k).sum()) if nested else tg.vmap(tg.grad(end))
    np.testing.assert_allclose(every(rates), -np.exp(-rates), rtol=1e-5)
    assert len(calls) == 5


@pytest.mark.parametrize("method", IMPLICIT)
def test_a_gradient_does_not_depend_on_what_else_is_derived(method):
    """The stages of LSODA's steps obey an implicit formula up to its tolerance only. The gradient is the
    same to rounding where a second derivative is taken of it, and under vmap."""

    def end(k):
        found = itg.solve_ivp(lambda t, y: -k * y**2, (0, 1), [1.0], method, rtol=1e-4, dense_output=True)
        return found.sol(0.9)[0]

    k = np.array([0.7])
    first = tg.grad(end)(k)
    for other in (tg.value_grad_hvp(end, k, np.ones(1))[1], tg.vmap(tg.grad(end))(k[None])[0]):
        np.testing.assert_allclose(other, first, rtol=1e-13)


def test_dense_output_of_samples():
    """The interpolant of each sample has other steps. What f reads is as it was when the call was made."""
    rates, scale = np.array([0.5, 2.0]), [3.0]

    def found(k):
        rate = np.array([k])
        s = itg.solve_ivp(
            lambda t, y: -rate[0] * scale[0] * y,
            (0, 1), [1.0], rtol=1e-8, atol=1e-12, dense_output=True, events=lambda t, y: y[0] - 0.8,
        )  # fmt: skip
        rate[0], scale[0] = 7.0, 5.0
        at = s.t_events[0][0]
        value = s.sol(0.3 * k)[0] + at**2
        scale[0] = 3.0
        return s, value

    exact = lambda k: np.exp(-0.9 * k * k) + (np.log(1.25) / 3 / k) ** 2
    f = lambda k: found(k)[1]
    np.testing.assert_allclose(tg.vmap(f)(rates), exact(rates), rtol=1e-7)
    np.testing.assert_allclose(
        tg.vmap(tg.grad(f))(rates), tg.grad(lambda k: exact(k).sum())(rates), rtol=1e-6
    )
    every = lambda k: tg.vmap(f)(k).sum()
    np.testing.assert_allclose(tg.grad(every)(rates), tg.vmap(tg.grad(f))(rates), rtol=1e-12)
    simple = lambda k: itg.solve_ivp(lambda t, y: -k * y, (0, 1), [1.0], dense_output=True).sol(k / 3)[0]
    p = tg.prepare(simple, 0.5)
    np.testing.assert_allclose([p(k) for k in rates], [simple(k) for k in rates], rtol=1e-12)
    for name in ("t", "y"):
        with pytest.raises(BatchError, match=rf"solve_ivp\(\.\.\.\)\.{name} has shapes that differ.*t_eval="):
            tg.vmap(lambda k, name=name: found(k)[0][name][..., 1])(rates)
    with pytest.raises(AttributeError, match=r"\.sol\.t_min: .*can only be called"):
        tg.vmap(lambda k: found(k)[0].sol.t_min)(rates)


def test_dense_output_at_times_that_differ_between_samples():
    """The samples share one solution, which is made inside or outside of vmap."""
    times = np.array([0.2, 0.9])
    solve = lambda k: itg.solve_ivp(lambda t, y: -k * y, (0, 1), [1.0], dense_output=True).sol
    inside = lambda k: tg.vmap(lambda t: solve(k)(t)[0])(times)

    def outside(k):
        sol = solve(k)
        return tg.vmap(lambda t: sol(t)[0])(times)

    one_by_one = tg.jacobian(lambda k: np.stack([solve(k)(t)[0] for t in times]))(0.7)
    np.testing.assert_allclose(inside(0.7), np.exp(-0.7 * times), rtol=1e-3)
    np.testing.assert_allclose(one_by_one, -times * np.exp(-0.7 * times), rtol=1e-3)
    for f in (inside, outside):
        np.testing.assert_allclose(tg.jacobian(f)(0.7), one_by_one, rtol=1e-13)


@pytest.mark.filterwarnings("ignore:Excess work done")
def test_odeint_beyond_a_pole():
    """y' = k y^2 is infinite at 1 / k; the error says how far the derivative came."""
    end = lambda k: itg.odeint(lambda y, t: k * y**2, [1.0], [0.0, 0.5, 3.0])[-1, 0]
    for run in (lambda: tg.grad(end)(0.7), lambda: tg.vmap(tg.grad(end))(np.array([0.1, 0.7]))):
        with pytest.raises(ConvergenceError, match=r"ended at t = [0-9.]+: Required step size"):
            run()


@pytest.mark.parametrize("settings", [{"atol": np.array([1e-10, 1e-11])}, {"rtol": [1e-9, 1e-8], "ml": 0}])
def test_odeint_with_a_tolerance_for_each_state(settings):
    times = np.array([0.0, 0.5, 2.0])
    f = lambda k: itg.odeint(lambda y, t: np.array([-k * y[0], -y[1]]), [2.0, 1.0], times, **settings)[:, 0]
    np.testing.assert_allclose(tg.jacobian(f)(0.7), -2 * times * np.exp(-0.7 * times), rtol=1e-7)


def decay_until(k, f, method="RK45"):
    return itg.solve_ivp(lambda t, y: f(t, y, k), (0, 1), [1.0, 2.0], method, [0.5, 1.0]).y[:, -1].sum()


def test_a_sample_that_fails_is_named():
    """A blow-up in sample 2: its time, and its number."""
    with pytest.raises(ConvergenceError, match=r"ended at t = 0.5\d*: Required step size") as caught:
        tg.vmap(tg.grad(lambda k: decay_until(k, lambda t, y, k: k * y**2)))(np.array([0.1, 0.2, 0.9]))
    assert any("in sample 2 of 3" in note for note in caught.value.__notes__)
    with pytest.raises(ConvergenceError, match="gives nan at the start") as caught, np.errstate(all="ignore"):
        tg.vmap(lambda k: decay_until(k, lambda t, y, k: np.sqrt(k) * y))(np.array([0.1, -0.2, 0.9]))
    assert any("in sample 1 of 3" in note for note in caught.value.__notes__)


GENERATOR = np.random.default_rng(0)
DRAWS = {
    "factor": lambda t, y, k: -k * y * np.random.rand(),
    "seldom": lambda t, y, k: -k * y * (1 + 1e-6 * (np.random.rand() < 0.3)),
    "small": lambda t, y, k: -k * y * (1 + 1e-8 * GENERATOR.standard_normal()),
    "unseeded": lambda t, y, k: -k * y + 1e-7 * np.random.default_rng().standard_normal(2),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("draws", DRAWS)
def test_a_random_right_hand_side(method, draws):
    """Each call draws other numbers: no solution has a derivative."""
    with pytest.raises(GuardError, match="the function gave other values"):
        tg.grad(lambda k: decay_until(k, DRAWS[draws], method))(1.0)


@pytest.mark.parametrize("method", METHODS)
def test_draws_that_are_the_same_in_each_call(method):
    same = lambda t, y, k: -k * y * (1 + np.random.default_rng(3).uniform(size=2))
    rates = 1 + np.random.default_rng(3).uniform(size=2)
    found = tg.grad(lambda k: decay_until(k, same, method))(1.0)
    exact = -(rates * [1.0, 2.0] * np.exp(-rates)).sum()
    assert found == pytest.approx(exact, rel=2e-2)


def test_one_number_for_all_states():
    """SciPy's explicit methods take it, and so does the derivative."""
    end = lambda k: decay_until(k, lambda t, y, k: k * y[:1])
    assert tg.grad(end)(1.0) == pytest.approx((end(1.0 + 1e-6) - end(1.0 - 1e-6)) / 2e-6, rel=1e-4)


def test_steps_of_lsoda_that_no_longer_advance():
    """The solution is infinite before t = 0. SciPy gives nan there, and has no interpolant."""
    A, start = np.array([[0.21, -0.02], [-0.89, 0.4]]), [-2.01, -0.48]
    settings = {"method": "LSODA", "t_eval": [0.65, 0.04], "rtol": 1e-7, "atol": 1e-9}
    loss = lambda k: itg.solve_ivp(lambda t, y: A @ y - k * y**3, (0.93, 0), start, **settings).y.sum()
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ConvergenceError, match="blow up"):
            tg.grad(loss)(0.5)
