"""A kernel function gives what NumPy gives for one sample, or is refused: programs at random of what acts
otherwise on conditions, numbers and arrays (arithmetic, two names for one array, views, copies, places known
at run time), and what a trace cannot see."""

import itertools
import math

import numpy as np
import pytest
import scipy.special

import tapegrad as tg
from tapegrad.errors import DroppedDerivativeError, KernelError

kernels = tg.kernels

X, Y, I = np.array([0.5, -1.3, 2.2, 0.0]), np.array([1.5, 0.7, -0.4, 0.5]), np.array([0, 2, -1, 1])
V = np.array([[0.5, -1.3, 2.2, 0.0], [1.5, 0.7, -0.4, 0.5], [0.3, 3.0, -2.0, 0.0]])
M = np.random.default_rng(0).normal(size=(3, 3, 4))

# of a number n, a condition b, a vector v of three, a vector of three conditions c, a matrix m
LINES = {
    "n": [
        "{n} + {b}", "{n} * {b}", "2.0 * ({b} + {b})", "({b} + {b}) * {n}", "{b} * {b} + {n}", "{n} - {b}",
        "np.sum({c}) * {n}",
        "np.mean({c}) + {n}", "({c} @ {v}) * 0.5", "np.dot({v}, {c})", "np.einsum('i,i->', {c}, {v})",
        "{v}[{b} * 1 if False else 1] + {n}", "({b} ** 2) * {n}", "np.where({b} + {b} == 1, {n}, 1.0)",
        "{v}[i] * {n}", "{m}[i][1]",
        "np.max({c}) * {n}", "np.prod({c}) + {n}", "np.where({b} ^ {b}, {n}, {n} * {n})",
        "np.array([{b}, {n}])[1] + np.array([{b}, {n}])[0]", "np.median({v})", "np.add.reduce({v}) + {n}",
        "{v}.sum() * 0.1",
        "np.maximum({b}, {b}) * {n}", "np.linalg.det({m} * 0.5 + np.eye(3, dtype=np.float64))",
        "np.array({n})", "{v}[2, ...]",
    ],
    "b": [
        "{n} > 0.3", "{b} & {b}", "{b} | {b}", "~{b}", "{b} ^ {b}", "{b} * {b}", "{b} + {b}", "np.any({c})",
        "np.all({c})", "{c}[1]",
        "{n} == {n}",
    ],
    "v": [
        "np.array([{n}, {b}, {n}])", "np.stack([{b}, {n}, {b}])", "np.concatenate([{c}[:2], {v}[1:2]])",
        "np.cumsum({c}) * 0.5",
        "np.cumsum({v})", "{v} * {c}", "{m} @ {v}", "({m} > 0) @ {v}", "np.diag({m})", "np.sort({v})",
        "np.full(3, {n})",
        "np.where({c}, {v}, {n})", "{v}[[2, 0, 0]]", "{m}[1]", "{m}[:, 2]", "{m}.T[0]",
        "np.zeros_like({v}) + {n}",
        "np.cumprod({c}) * {v}", "np.einsum('ij,j->i', {m}, {v})", "{v}[::-1]",
    ],
    "c": [
        "({m} > 0) @ {c}", "np.outer({c}, {c})[1]", "np.max({m} > 0, axis=0)",
        "{v} > {n}", "{c} & {c}", "~{c}", "{c} + {c}", "{c} * {b}", "np.tril({m} > 0)[1]",
        "np.array([{b}, {b}, {b}])", "np.isnan({v})",
    ],
    "m": [
        "np.outer({v}, {c})", "np.tril({m})", "np.diag({c}) * {m}", "{m} * ({m} > 0)", "np.diag({v})",
        "np.array([{v}, {c}, {v}])",
        "{m}.T",
    ],
}  # fmt: skip
WRITES = [
    "{n} **= 2", "{n} += {n}", "{n} //= 2.0", "{n} %= 2.0", "{n} *= {b}", "{v}[1] = {b}", "{v}[i] = {n}",
    "{v} **= 2",
    "{v}[1:] = {v}[:-1]", "{v} %= 2.0", "{v}[::2] += {n}", "{c}[0] = {n}", "{c}[1] = {b}", "{m}[0] = {v}",
    "{m}.T[1] = {c}",
    "{b} &= {b}", "{b} |= {b}", "{c} ^= {c}", "{m}[1, 1] = {n}", "{m}.ravel()[0] = {n}",
    "{m}.flatten()[0] = {n}",
    "{m}.reshape(-1)[3:5] = {n}", "{m}[[0, 1]] = {m}[[1, 0]]", "{v} /= 2.0", "{v} += {c}",
    "{v}[1, ...] += 1.0",
]  # fmt: skip


def written(rng):
    """A function of a number, a number, a vector, a matrix and a place, of twelve lines."""
    names = {"n": ["x", "y"], "b": ["p"], "v": ["v"], "c": ["q"], "m": ["m"]}
    lines = ["p = x > 0.2", "q = v > 0.4"]
    for k in range(12):
        pick = {kind: _Pick(rng, found) for kind, found in names.items()}
        if rng.random() < 0.4:
            lines.append(WRITES[rng.integers(len(WRITES))].format_map(pick))
            continue
        kind = "nbvcm"[rng.integers(5)]
        if rng.random() < 0.2:
            right = pick[kind].__format__("")  # another name
        else:
            right = LINES[kind][rng.integers(len(LINES[kind]))].format_map(pick)
        lines.append(f"{kind}{k} = {right}")
        names[kind].append(f"{kind}{k}")
    sums = [f"np.sum(1.0 * {name}) * {w + 1}" for w, name in enumerate(itertools.chain(*names.values()))]
    return "def f(x, y, v, m, i):\n    " + "\n    ".join(lines) + "\n    return " + " + ".join(sums) + "\n"


class _Pick:
    """Stands for a name in a line, another one each time."""

    def __init__(self, rng, names):
        self.rng, self.names = rng, names

    def __format__(self, spec):
        return self.names[self.rng.integers(len(self.names))]


def samples(*arrays):
    return [[a[..., b].copy()[()] for a in arrays] for b in range(len(X))]


@pytest.mark.one_in(7)
@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed):
    rng, space = np.random.default_rng(seed), {"np": np}
    text = written(rng)
    exec(text, space)
    f = space["f"]
    with np.errstate(all="ignore"):
        try:
            expected = [f(*given) for given in samples(X, Y, V, M, I)]
        except (TypeError, ValueError):
            return  # NumPy does not take it
        k = kernels.map(f)
        np.testing.assert_allclose(k(X, Y, V, M, I), expected, rtol=1e-12, err_msg=text)
        try:
            slopes = [tg.grad(f, (0, 1, 2, 3))(*given) for given in samples(X, Y, V, M, I)]
        except DroppedDerivativeError as error:
            assert "array of truth values" in str(error)  # which a kernel takes for a condition
            return
        mine = tg.grad(lambda *x: k(*x, I).sum(), (0, 1, 2, 3))(X, Y, V, M)
    for n in range(4):
        theirs = np.stack([s[n] for s in slopes], axis=-1)
        np.testing.assert_allclose(
            mine[n], theirs, rtol=1e-10, atol=1e-10 * max(1.0, np.abs(theirs).max()), err_msg=text
        )


def test_random_programs_are_not_all_refused_by_numpy():
    taken = 0
    for seed in range(60):
        space = {"np": np}
        exec(written(np.random.default_rng(seed)), space)
        try:
            taken += bool([space["f"](*given) for given in samples(X, Y, V, M, I)])
        except (TypeError, ValueError):
            pass
    assert taken > 30


# --- functions of other modules ---

OF_MATH = [
    lambda x, y: math.hypot(x, y, x * y) + y, lambda x, y: math.log(x * x + 1, y * y + 3) + y, lambda x,
    y: math.log(x * x + 1, 10),
    lambda x, y: math.dist([x, y], [y, 1.0]), lambda x, y: math.fsum([x, y]), lambda x, y: math.prod([x, y],
    start=2.0),
    lambda x, y: math.gamma(x * x + 1), lambda x, y: math.fmod(5 * x, y), lambda x, y: math.trunc(3 * x) * y,
    lambda x, y: math.remainder(5 * x, y), lambda x, y: math.ldexp(x, 2),
]  # fmt: skip


@pytest.mark.parametrize("f", OF_MATH)
def test_functions_of_math(f):
    np.testing.assert_allclose(kernels.map(f)(X, Y), [f(a, b) for a, b in zip(X, Y, strict=True)], rtol=1e-13)


@pytest.mark.parametrize(
    "f", [lambda x, y: math.isclose(x, y) * 1.0, lambda x, y: math.lgamma(x) * math.nextafter(x, y)]
)
def test_functions_of_math_without_a_translation(f):
    with pytest.raises(KernelError, match="has no translation"):
        kernels.map(f)(X, Y)


OF_NAN = [
    lambda v: np.sort(np.log(v)), lambda v: np.median(np.log(v)), lambda v: 1.0 * np.argmax(np.log(v)),
    lambda v: 1.0 * np.argmin(np.log(v)),
    lambda v: 1.0 * np.searchsorted([0.0, 0.5, 1.0], np.log(v)), lambda v: 1.0 * np.searchsorted([0.0, 0.5],
    np.log(v), side="right"),
    lambda v: 1.0 * np.digitize(v, [1.5, 0.5, 0.0]), lambda v: 1.0 * np.digitize(v, [1.5, 0.5, 0.0],
    right=True),
    lambda v: np.nan_to_num(v / (v - v[0])), lambda v: np.nan_to_num(np.log(v - v[0]), nan=1.0, posinf=2.0,
    neginf=3.0),
    lambda v: np.diff(v > 0.4) * 1.0, lambda v: np.einsum("i,i", v, v[:1]), lambda v: np.einsum("i,j->j",
    v[:1], v),
]  # fmt: skip


@pytest.mark.parametrize("f", OF_NAN)
def test_order_of_nan(f):
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(
            kernels.map(f)(V), np.stack([f(*given) for given in samples(V)], axis=-1), rtol=1e-14
        )


def test_places_that_are_not_there():
    """NumPy raises IndexError; a kernel cannot."""
    v, at = np.arange(12.0).reshape(3, 4), np.array([3.0, -4.0, 0.5, np.nan])
    assert np.isnan(kernels.map(lambda v, i: v[i])(v, at)).all()

    def write(v, i):
        w = v * 1.0
        w[i] = 7.0
        return w

    assert np.isnan(kernels.map(write)(v, at)).all()
    assert (
        kernels.likelihood(lambda theta, y: theta[y])(np.ones((3, 2)), np.array([0.0, 3.0])).tolist()
        == [-np.inf] * 2
    )


REFUSED = {
    "np.full(3, 0)[:] = x": lambda x: np.full(3, 0).__setitem__(0, x),
    "dtype=int": lambda x: np.array([x, x], dtype=int),
    "reduce(initial=)": lambda x: np.add.reduce(np.array([x, x]), initial=5.0),
    "reduce(where=)": lambda x: np.add.reduce(np.array([x, x]), where=np.array([True, False])),
    "bits of numbers": lambda x: x | 1,
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    with pytest.raises(KernelError):
        kernels.map(REFUSED[name])(X)


def test_misfit_of_einsum():
    with pytest.raises(ValueError, match="lengths 3 and 2"):
        kernels.map(lambda m, v: np.einsum("ij,j->i", m, v[:2]))(M, V)


def test_difference_of_conditions():
    with pytest.raises(TypeError, match="logical_xor"):
        kernels.map(lambda x, y: (x > 0) - (y > 0))(X, Y)


def test_classes():
    """`isinstance` and dtypes answer as those of a sample."""

    def f(x, v):
        assert (
            isinstance(x, float)
            and isinstance(x, np.float64)
            and np.isscalar(x)
            and not isinstance(x, np.ndarray)
        )
        assert (
            isinstance(v, np.ndarray)
            and v.dtype == np.float64
            and not np.isscalar(v)
            and isinstance(x > 0, np.bool_)
        )
        return np.zeros(3, dtype=np.float64) + v.astype(np.float64) * x

    np.testing.assert_array_equal(kernels.map(f)(X, V), X * V)


# --- what a function changes ---


def test_a_refusal_that_the_function_catches():
    def f(x):
        try:
            return x if range(int(x)) else -x
        except Exception:
            return 7.0 * x

    with pytest.raises(KernelError, match="caught"):
        kernels.map(f)(X)


def test_parameters_that_the_function_writes():
    """Each call of it gets its own."""

    def inside(theta, y):
        theta[1] = np.exp(theta[1])
        return -0.5 * ((y - theta[0]) / theta[1]) ** 2 - np.log(theta[1])

    def tree(p, y):
        p["s"] = np.exp(p["s"])
        return inside([p["m"], np.log(p["s"])], y)

    def plain(theta, y):
        return inside([theta[0], theta[1]], y)

    theta, y = np.array([[0.3, -0.2], [0.1, 0.4]]), np.array([1.0, np.nan, -0.5])
    for data in (y, y[::2]):
        for what in ("__call__", "grad", "scores", "hessian"):
            expected = getattr(kernels.likelihood(plain), what)(theta, data)
            np.testing.assert_array_equal(getattr(kernels.likelihood(inside), what)(theta, data), expected)
        np.testing.assert_array_equal(
            kernels.likelihood(tree)({"m": theta[0], "s": theta[1]}, data),
            kernels.likelihood(plain)(theta, data),
        )

    def step(carry, theta, y):
        a, b = carry
        a[0] = 0.5 * a[0] + y
        b[1] = 0.5 * b[1] + a[0]
        return (a, b), inside(theta, a[0] + b[1])

    def rewritten(carry, theta, y):
        a, b = carry
        a = np.array([0.5 * a[0] + y, a[1]])
        return (a, np.array([b[0], 0.5 * b[1] + a[0]])), plain(theta, a[0] + 0.5 * b[1] + a[0])

    init = lambda theta: (np.zeros(2), np.zeros(2))
    expected = kernels.recursion(init, rewritten)(theta, y[::2])
    np.testing.assert_allclose(kernels.recursion(init, step)(theta, y[::2]), expected, rtol=1e-14)

    def start(theta):
        theta[1] = 5.0
        return init(theta)

    np.testing.assert_allclose(kernels.recursion(start, step)(theta, y[::2]), expected, rtol=1e-14)


class Running:
    def __init__(self):
        self.last = 0.0

    def __call__(self, theta, y):
        term = -((y - theta[0] * self.last) ** 2)
        self.last = y
        return term


def counter():
    numbers = iter([1.0, 2.0, 3.0, 4.0])
    return lambda x: x * next(numbers)


def test_state_of_the_function():
    """What it left for its next call would be lost: a kernel runs it once."""
    with pytest.raises(KernelError, match="something else when it runs again"):
        kernels.likelihood(Running())(np.ones((1, 2)), Y)
    with pytest.raises(KernelError, match="something else when it runs again"):
        kernels.map(counter())(X)

    def closure(x):
        total = np.zeros(1)

        def body(i, s):
            total[0] = total[0] + x
            return s + total[0]

        return kernels.loop(20, body, 0.0)

    with pytest.raises(KernelError, match="something else when it runs again"):
        kernels.map(closure)(X)


def loop_that_changes(place, calls):
    """A recursion with a loop that computes another number at each call, or at its first call only: for its
    start, its number of steps, its condition or its body."""

    def number(at):
        if at == place[0]:
            calls.append(1)
        return float(len(calls) == 1 if place[1] == "first" else len(calls)) if at == place[0] else 0.0

    def step(c, theta, y):
        going = lambda s: s[0] < 10.0 + number("condition")
        body = lambda s: (s[0] + y + number("body"), s[2], s[1] + 1.0)  # equal at first, not afterwards
        if place[0] == "steps":
            found = kernels.loop(theta[0] + number("steps"), lambda i, s: s * theta[0], c)
        else:
            found = kernels.while_loop(going, body, (c + number("start"), 0.0, 0.0), 100)[0]
        return found, found

    return lambda theta, y: kernels.recursion(lambda theta: 1.0, step).path(theta, y)


@pytest.mark.parametrize("when", ["each", "first"])
@pytest.mark.parametrize("at", ["start", "steps", "condition", "body"])
def test_state_of_the_parts_of_a_loop(at, when):
    """What a part of a loop left for its next call would be lost too."""
    with pytest.raises(KernelError, match="something else when it runs again"):
        loop_that_changes((at, when), [])(np.array([[1.5, 2.0]]), np.array([1.0, 2.0, 4.0]))


def test_a_loop_in_a_recursion_is_traced_a_few_times():
    """Twice, to see that it gives the same; anew, because starts that are equal do not stay equal; and with
    these starts no longer taken for constants."""
    calls, data = [], np.array([1.0, 2.0, 4.0])

    def step(c, theta, y):
        def body(s):
            calls.append(1)
            return s[0] + y, s[2], s[1] + 1.0

        c = kernels.while_loop(lambda s: s[0] < 10.0, body, c, 100)
        return (c[0] * 0.1, c[1], c[2]), np.stack(c)

    found = kernels.recursion(lambda theta: (0.0, 0.0, 0.0), step).path(np.ones((1, 1)), data)
    carry, expected = (0.0, 0.0, 0.0), []
    for y in data:
        while carry[0] < 10.0:
            carry = carry[0] + y, carry[2], carry[1] + 1.0
        expected.append(carry)
        carry = (carry[0] * 0.1, carry[1], carry[2])
    np.testing.assert_allclose(found[:, :, 0], np.transpose(expected), rtol=1e-14)
    assert len(calls) <= 8


def test_a_nan_made_anew_is_the_same():
    two, none = kernels.map(lambda x: (2.0 * x, float("nan")))(X)
    np.testing.assert_array_equal(two, 2.0 * X)
    assert np.isnan(none).all()


def test_a_value_kept_for_the_next_trace():
    kept = []

    def f(x, y):
        if not kept:
            kept.append(np.exp(x))
        return kept[0] * y

    k = kernels.map(f)
    np.testing.assert_allclose(k(X, Y), np.exp(X) * Y)
    with pytest.raises(KernelError, match="another trace"):
        k(X, V)


def by_name(module, name, arity):
    """A likelihood that reaches the function as an attribute of the module, and one that holds the function
    itself."""
    f = getattr(module, name)
    if arity == 1:
        return (
            lambda th, y: getattr(module, name)(0.3 * th[0] + 0.1 * y) * th[1],
            lambda th, y: f(0.3 * th[0] + 0.1 * y) * th[1],
        )
    return lambda th, y: getattr(module, name)(th[0], y) * th[1], lambda th, y: f(th[0], y) * th[1]


@pytest.mark.long
def test_names_of_cupy_mean_numpys():
    """Each ufunc of NumPy and of scipy.special that a kernel takes is taken under CuPy's names, with the same
    bits."""
    cupy = pytest.importorskip("cupy")
    special = pytest.importorskip("cupyx.scipy.special")
    theta, data, tried = np.random.default_rng(3).uniform(0.4, 0.9, (2, 2)), np.array([0.5, 0.7]), 0
    for ours, theirs in ((np, cupy), (scipy.special, special)):
        for name in sorted(
            n for n in dir(ours) if isinstance(getattr(ours, n), np.ufunc) and hasattr(theirs, n)
        ):
            arity = getattr(ours, name).nin
            try:
                right = kernels.likelihood(by_name(ours, name, arity)[0]).value_and_grad(theta, data)
            except Exception:  # not a function of one or two real numbers, or not in kernels
                continue
            for f in by_name(theirs, name, arity):
                for a, b in zip(kernels.likelihood(f).value_and_grad(theta, data), right, strict=True):
                    assert np.array_equal(a, b, equal_nan=True), name
            tried += 1
    assert tried > 60


def test_functions_of_cupy_that_are_no_ufuncs():
    cupy = pytest.importorskip("cupy")

    def written_with(m):
        def f(th, y):
            a = m.array([[th[0] + 1.0, 0.1], [0.1, th[1] + 2.0]])
            return m.sum(m.linalg.solve(a, m.stack([y, th[0]]))) + m.where(
                th[0] > 0.6, m.dot(a[0], a[1]), m.max(a)
            )

        return kernels.likelihood(f)

    theta, data = np.random.default_rng(3).uniform(0.4, 0.9, (2, 5)), np.array([0.5, 0.7])
    for a, b in zip(*[written_with(m).value_and_grad(theta, data) for m in (np, cupy)], strict=True):
        assert np.array_equal(a, b)
