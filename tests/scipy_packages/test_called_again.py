"""Functions of the user's that SciPy calls, and that are called again for the derivative: what they count,
log and draw is left as SciPy's own run leaves it, and what they keep of that run has no derivative, which is
told."""

import numpy as np
import pytest
import scipy.integrate as itg
import scipy.optimize as opt

import tapegrad as tg
from tapegrad.errors import GuardError, NoRuleError

X = np.array([1.1, 0.4])
TIMES = np.linspace(0.0, 1.0, 9)


class Notes:
    """What functions alter in all the ways that there are: a number, an attribute, a list, a dict, integers
    in an array, a generator."""

    def __init__(self):
        self.count, self.last, self.log, self.known, self.calls = 0, None, [], {"n": 0}, np.zeros(1, int)
        self.rng = np.random.default_rng(3)

    def __call__(self, point, value):
        self.count += 1
        self.last = value
        self.log.append(point)
        self.known["n"] += 1
        self.calls += 1
        self.rng.normal()
        return value

    def left(self):
        assert not any(isinstance(v, tg.Variable) for v in (self.last, *self.log))
        return (
            self.count,
            len(self.log),
            self.known["n"],
            self.calls[0],
            self.rng.bit_generator.state["state"]["state"],
        )


def event(x, note):
    def crosses(t, y):
        return note(t, y[0] - 0.5 * x[1])

    crosses.terminal = True
    found = itg.solve_ivp(
        lambda t, y: note(y, -x[0] * y), (0, 5), [1.0], events=crosses, rtol=1e-9, atol=1e-11
    )
    return found.t[-1] * found.y[0, -1]


def boundary(x, note):
    ends = lambda a, b: np.array([a[0], b[0] - x[1]])
    return itg.solve_bvp(
        lambda t, y: note(y, np.vstack([y[1], -x[0] * y[0]])), ends, TIMES, np.zeros((2, 9)), tol=1e-8
    ).y[1, 0]


def flow(method):
    fine = dict(rtol=1e-9, atol=1e-11)
    return lambda x, note: itg.solve_ivp(
        lambda t, y, a: note(y, -a * y), (0, 1), [1.0], method, args=(x[0],), **fine
    ).y[0, -1]


def fitted(x, note):
    data = x[0] * np.exp(-x[1] * TIMES)
    return (
        opt.curve_fit(lambda t, a, b: note(a, a * np.exp(-b * t)), TIMES, data, xtol=1e-13, ftol=1e-13)[0][0]
        * x[1]
    )


CALLS = {
    "quad": lambda x, note: itg.quad(lambda t: note(t, np.exp(-t * x[0])), 0, 2)[0],
    "quad by its end": lambda x, note: itg.quad(lambda t: note(t, np.exp(-t * x[0])), 0, x[1])[0],
    "dblquad": lambda x, note: itg.dblquad(lambda s, t: note(t, np.exp(-s * t * x[0])), 0, 2, 0,
    lambda t: t * x[1])[0],
    "nquad": lambda x, note: itg.nquad(lambda s, t: note(t, np.exp(-s * t * x[0])), [[0, 1], [0, 1]])[0],
    "quad_vec": lambda x, note: itg.quad_vec(lambda t: note(t, np.exp(-t * x)), 0, 2)[0].sum(),
    "tanhsinh": lambda x, note: itg.tanhsinh(lambda t: note(t, np.exp(-t * x[0])), 0, 1).integral,
    "nsum": lambda x, note: itg.nsum(lambda t: note(t, 1 / (t + x[0]) ** 3), 1, np.inf).sum,
    "RK45": flow("RK45"),
    "DOP853": flow("DOP853"),
    "Radau": flow("Radau"),
    "LSODA": flow("LSODA"),
    "event": event,
    "odeint": lambda x, note: itg.odeint(lambda y, t: note(y, -x[0] * y), [1.0], [0, 1.0], rtol=1e-10,
    atol=1e-12)[-1, 0],
    "solve_bvp": boundary,
    "brentq": lambda x, note: opt.brentq(lambda z: note(z, z**3 - x[0]), 0, 2, xtol=1e-14),
    "newton": lambda x, note: opt.newton(lambda z, a: note(z, z**3 - a), 1.0, args=(x[0],)),
    "fsolve": lambda x, note: opt.fsolve(lambda z: note(z, z**3 - x), [1.0, 1.0], xtol=1e-13).sum(),
    "root": lambda x, note: opt.root(lambda z: note(z, z**3 - x), [1.0, 1.0], tol=1e-13, method="lm").x[1],
    "minimize": lambda x, note: opt.minimize(lambda z: note(z, ((z - x) ** 2).sum() + z[0] ** 4), [0.5, 0.5],
    tol=1e-10).fun,
    "minimize_scalar": lambda x, note: opt.minimize_scalar(lambda z: note(z, (z - x[0]) ** 2 + z**4),
    tol=1e-12).fun,
    "fmin": lambda x, note: opt.fmin(lambda z: note(z, ((z - x) ** 2).sum()), X, xtol=1e-10, ftol=1e-10,
    disp=False)[1],
    "least_squares": lambda x, note: opt.least_squares(lambda z: note(z, np.stack([z[0] - x[0],
    z[0] * z[1] - x[1]])), X, xtol=1e-14).cost
    + opt.least_squares(lambda z: note(z, np.stack([z[0] - x[0], z[0] * z[1] - x[1]])), X, xtol=1e-14).x[1],
    "leastsq": lambda x, note: opt.leastsq(lambda z: note(z, np.stack([z[0] - x[0], z[0] * z[1] - x[1]])), X,
    xtol=1e-13)[0].sum(),
    "curve_fit": fitted,
}  # fmt: skip


def slopes(f, h=1e-5):
    return np.array([(f(X + h * e) - f(X - h * e)) / (2 * h) for e in np.eye(2)])


@pytest.mark.one_in(7)
@pytest.mark.parametrize("name", CALLS)
def test_state_is_that_of_a_plain_call(name):
    run = CALLS[name]

    def through(transform):
        note = Notes()
        return transform(lambda x: run(x, note)), note.left()

    value, left = through(lambda f: f(X))
    found, again = through(lambda f: tg.value_and_grad(f)(X))
    assert found[0] == pytest.approx(value, rel=1e-12, abs=1e-14)
    assert again == left
    np.testing.assert_allclose(found[1], slopes(lambda x: run(x, Notes())), rtol=3e-4, atol=1e-5)
    for transform in (
        lambda f: tg.jvp(f, (X,), (X,)),
        lambda f: tg.hvp(f, X, X),
        lambda f: tg.vjp(f, X)[1](1.0),
    ):
        assert through(transform)[1] == left


PATH: list = []


def path_of(x):
    PATH.clear()
    return opt.minimize(lambda z: ((z - x) ** 2).sum(), [0.0, 0.0], callback=lambda z: PATH.append(z.copy()))


def best_of(x):
    best = {"value": np.inf}

    def f(z):
        value = ((z - x) ** 2).sum()
        if value < best["value"]:
            best.update(value=value, z=z.copy())
        return value

    opt.minimize(f, [0.0, 0.0])
    return best


def last_of(x):
    slopes = []
    itg.solve_ivp(lambda t, y: slopes.append(-x[0] * y) or slopes[-1], (0, 1), [1.0])
    return slopes[-1][0]


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (path_of(x).x * 0 + PATH[-1]) @ x,
        lambda x: best_of(x)["z"] @ x,
        lambda x: best_of(x)["value"],
        lambda x: last_of(x) * 2.0,
        last_of,
    ],
    ids=["path", "best point", "best value", "slope", "slope as it is"],
)
def test_what_is_kept_of_the_search_has_no_derivative(f):
    with pytest.raises(NoRuleError, match="kept while scipy"):
        tg.grad(f)(X)
    with pytest.raises(NoRuleError, match="kept while scipy"):
        tg.jvp(f, (X,), (X,))


def test_it_can_be_looked_at_and_is_plain_afterwards():
    def f(x):
        x_best = path_of(x).x
        assert PATH[-1][0] > 0 and f"{PATH[-1][0]:.1f}" == "1.1"
        return x_best @ tg.value(PATH[-1])

    np.testing.assert_allclose(tg.grad(f)(X), X, rtol=1e-6)
    assert all(type(z) is np.ndarray for z in PATH)
    plain = [*PATH]
    f(X)
    np.testing.assert_allclose(plain, PATH)


def test_buffers_have_their_derivatives():
    """What an integrand adds up, and what a slope leaves in a buffer, is read afterwards."""
    total, slope = np.zeros(1), np.zeros(1)

    def f(x):
        def integrand(t):
            total[:] += x[0] * t
            return t * x[1]

        def fall(t, y):
            slope[:] = x[0] * y
            return -slope

        total[:] = 0
        y = itg.solve_ivp(fall, (0, 1), [1.0], rtol=1e-10, atol=1e-12).y[0, -1]
        return itg.quad(integrand, 0, 1)[0] * total[0] + y * slope[0]

    value, gradient = tg.value_and_grad(f)(X)
    assert value == pytest.approx(f(X), rel=1e-9)
    np.testing.assert_allclose(gradient, slopes(f), rtol=1e-5)


class Counted:
    calls = 0

    def __call__(self, t, y):
        self.calls += 1
        return -y * self.a * np.exp(-self.calls / 50)


def counted(x):
    slope = Counted()
    slope.a = x[0]
    return itg.solve_ivp(slope, (0, 1), [1.0]).y[0, -1]


def switched(x):
    on = [False]

    def slope(t, y):
        on[0] = on[0] or bool(y[0] > 1.0)
        return [-x[0] if on[0] else x[0]]

    return itg.solve_ivp(slope, (0, 3), [0.0], max_step=0.05).y[0, -1]


def noisy(x):
    rng = np.random.default_rng(0)
    return itg.solve_ivp(
        lambda t, y: x[0] * y + x[1] * rng.normal(), (0, 1), [1.0], max_step=0.1, rtol=1, atol=1
    ).y[0, -1]


@pytest.mark.parametrize("f", [counted, switched, noisy])
def test_other_values_when_called_again_are_told(f):
    with pytest.raises(GuardError, match="changes from call to call"):
        tg.grad(f)(X)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("method", ["RK23", "RK45", "DOP853"])
@pytest.mark.parametrize("rtol", [1e-4, 1e-6])
def test_rounding_is_not_taken_for_it(method, rtol):
    """In a chaotic equation it grows to the size of the solution."""

    def lorenz(x):
        slope = lambda t, y: [
            10 * x[0] * (y[1] - y[0]),
            y[0] * (28 - y[2]) - y[1],
            y[0] * y[1] - 8 / 3 * y[2],
        ]
        return itg.solve_ivp(slope, (0, 30), [1.0, 1.0, 1.0], method, rtol=rtol).y[0, -1]

    assert np.isfinite(tg.value_and_grad(lorenz)(X)[0])
