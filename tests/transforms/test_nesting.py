"""Discussion 4, derivatives of derivatives, and the scenarios of DifferentiationInterface's test suite.

Expected derivatives are closed forms."""

import collections
import dataclasses
import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from _modes import check_first, check_second, nested, second_orders
from comparison import close, host, library

import tapegrad as tg

D1 = [[0.5403023058681397, -2.9699774898013364], [-0.8322936730942848, 5.7610217199021961]]
D2 = [[-0.8414709848078965, -1.2700800725388050], [-3.6371897073027268, 10.0589579351613310]]
D3 = [[-0.5403023058681397, 26.7297974082120270], [3.3291746923771391, -207.3967819164790600]]
NESTINGS = ["".join(m) for n in (1, 2, 3) for m in itertools.product("FR", repeat=n)]


def number_to_matrix(xp):
    def n2v(x):
        return xp.sin(xp.array([1, 2]) * x)

    def n2m(x):
        return xp.stack([n2v(x), n2v(3 * x)], axis=1)

    return n2m


@pytest.mark.parametrize("modes", NESTINGS)
def test_n1_n2_n3_number_to_matrix(xp, modes):
    expected = {1: D1, 2: D2, 3: D3}[len(modes)]
    close(nested(modes, number_to_matrix(xp))(1.0), expected, rtol=1e-14)


def test_n2_jacobian_of_jacobian(xp):
    """The discussion's own program, reverse over reverse."""
    derivative = lambda f, x: tg.jacobian(f, mode="reverse")(x)
    second_derivative = lambda f, x: derivative(lambda z: derivative(f, z), x)
    close(derivative(number_to_matrix(xp), 1.0), D1, rtol=1e-14)
    close(second_derivative(number_to_matrix(xp), 1.0), D2, rtol=1e-14)


def test_n4_exact_integers(xp):
    f = lambda x: (x**4).sum() * (x**6).sum()
    x = xp.arange(1.0, 7.0)
    gradient = [282334, 2586272, 10571418, 31173376, 76241750, 164178144]
    product = [-2541006, -23276448, -95142762, -280560384, -686175750, -1477603296]
    assert host(f(x)) == 152814025
    check_first(f, x, gradient)
    check_second(f, x, -x, product)
    close(tg.grad(f)(x), gradient, rtol=1e-15)
    close(tg.hvp(f, x, -x), product, rtol=1e-15)


@pytest.mark.parametrize("outer", "FR")
@pytest.mark.parametrize("inner", "FR")
def test_n6_perturbation_confusion(outer, inner):
    f = lambda x: x * nested(inner, lambda y: x + y)(1.0)
    assert nested(outer, f)(1.0) == 1.0


@pytest.mark.parametrize("modes", ["".join(m) for m in itertools.product("FR", repeat=4)])
def test_n6_fourth_derivative(modes):
    # The fourth derivative of sin^3 = (3 sin x - sin 3x) / 4 is (3 sin x - 81 sin 3x) / 4.
    close(nested(modes, lambda x: np.sin(x) ** 3)(0.7), -16.99682640921143, rtol=1e-13)


# --- N5: the scenarios of DifferentiationInterface ---
#
# An operator is applied to a function, out of place y = f(x) or in place f(y, x); the operator's result is
# taken as it comes or written into the caller's memory (after a first call at other inputs, as a preparation
# would make).  "Batched" scenarios have two tangents.  Each is modified in the suite's five ways: a closure
# that forces input and output through captured buffers, a constant argument, a cache argument that is an
# array or a structure of arrays, and a structure that holds constants and a cache; and in one way of ours,
# buffers that are written in place.


@dataclass(frozen=True)
class Scenario:
    operator: str
    place: str  # of the operator's result: "out" or "in"
    fun: str  # name of the function; a trailing "!" means in place
    x: Any
    y_shape: tuple
    tangents: tuple = ()
    modifier: str = "normal"

    @property
    def name(self):
        shape = lambda s: "x".join(map(str, s)) or "number"
        text = f"{self.operator}-{self.place}-{self.fun}-{shape(self.x.shape)}-{shape(self.y_shape)}"
        return text + ("-batched" if len(self.tangents) == 2 else "") + f"-{self.modifier}"


def weights(shape):
    return np.arange(1.0, np.prod(shape) + 1).reshape(shape)


class Truth:
    """Derivatives of the base functions by hand; second ones where the input or output is a number."""

    def __init__(self, fun, x, y_shape):
        self.x, self.y_shape = x, y_shape
        kind = fun.rstrip("!")
        if kind in ("num_to_num", "num_to_num_vec"):
            self.jac = np.cos(x).reshape(y_shape + x.shape)
            self.second = -np.sin(x)
        elif kind == "num_to_arr":
            a = weights(y_shape)
            self.jac = a * np.cos(a * x)
            self.second = -(a**2) * np.sin(a * x)
        elif kind == "arr_to_num":
            p4, p6 = (x**4).sum(), (x**6).sum()
            g4, g6 = 4 * x**3, 6 * x**5
            self.jac = g4 * p6 + g6 * p4
            outer = np.multiply.outer(g4, g6)
            n = x.size
            cross = (outer.reshape(n, n) + outer.reshape(n, n).T).reshape(x.shape * 2)
            diagonal = np.diag(np.ravel(12 * x**2 * p6 + 30 * x**4 * p4)).reshape(x.shape * 2)
            self.second = cross + diagonal
        else:
            pieces = [np.diag(np.ravel(d)) for d in (np.cos(x), -np.sin(x))]
            if kind.endswith("_to_vec"):
                self.jac = np.concatenate(pieces).reshape(y_shape + x.shape)
            else:
                self.jac = np.stack(pieces, axis=1).reshape(y_shape + x.shape)

    def push(self, t):
        return np.tensordot(self.jac, t, axes=self.x.ndim)

    def pull(self, w):
        return np.tensordot(w, self.jac, axes=len(self.y_shape))

    def hessian_times(self, t):
        return np.tensordot(self.second, t, axes=self.x.ndim)


def base_functions(xp):
    """The functions under test, as plain user code."""

    def num_to_num(x):
        return xp.sin(x)

    def num_to_num_vec(x):
        return xp.sin(x)

    def num_to_num_vec_(y, x):
        xp.sin(x, out=y)

    def num_to_arr(x, shape):
        return xp.sin(x * xp.asarray(weights(shape)))

    def num_to_arr_(y, x):
        y[...] = xp.sin(x * xp.asarray(weights(y.shape)))

    def arr_to_num(x):
        v = x.reshape(-1)
        return (v**4 * (v**6)[:, None]).sum()

    def vec_to_vec(x):
        return xp.concatenate([xp.sin(x), xp.cos(x)])

    def vec_to_vec_(y, x):
        y[: len(x)] = xp.sin(x)
        y[len(x) :] = xp.cos(x)

    def vec_to_mat(x):
        return xp.stack([xp.sin(x), xp.cos(x)], axis=1)

    def vec_to_mat_(y, x):
        y[:, 0] = xp.sin(x)
        y[:, 1] = xp.cos(x)

    def mat_to_vec(x):
        return xp.concatenate([xp.sin(x).ravel(), xp.cos(x).ravel()])

    def mat_to_vec_(y, x):
        n = x.size
        y[:n] = xp.sin(x).ravel()
        y[n:].reshape(x.shape)[...] = xp.cos(x)

    def mat_to_mat(x):
        return xp.column_stack([xp.sin(x).ravel(), xp.cos(x).ravel()])

    def mat_to_mat_(y, x):
        y[:, 0] = xp.sin(x.ravel())
        y[:, 1] = xp.cos(x).T.T.reshape(-1)

    return {name.rstrip("_") + "!" * name.endswith("_"): f for name, f in locals().items() if callable(f)}


class WritableClosure:
    """Input and output pass through captured buffers, and the output is multiplied by 3 + 4."""

    def __init__(self, f, x, y):
        self.f, self.a, self.b = f, 3.0, [4.0]
        self.x_buffer, self.y_buffer = [library(x).zeros_like(x)], [library(y).zeros_like(y)]

    def out_of_place(self, x):
        self.x_buffer[0] = x.copy()
        self.y_buffer[0] = (self.a + self.b[0]) * self.f(x)
        return self.y_buffer[0].copy()

    def in_place(self, y, x):
        self.x_buffer[0] = x.copy()
        self.f(self.y_buffer[0], self.x_buffer[0])
        self.y_buffer[0] *= self.a + self.b[0]
        y[...] = self.y_buffer[0]


class WrittenBuffers(WritableClosure):
    """The same with buffers that are written element by element, never bound anew."""

    def out_of_place(self, x):
        self.x_buffer[0][...] = x
        self.y_buffer[0][...] = self.f(self.x_buffer[0])
        self.y_buffer[0][...] *= self.a + self.b[0]
        return self.y_buffer[0].copy()

    def in_place(self, y, x):
        self.x_buffer[0][...] = x
        self.f(self.y_buffer[0], self.x_buffer[0])
        self.y_buffer[0] *= self.a + self.b[0]
        y[...] = self.y_buffer[0]


Caches = collections.namedtuple("Caches", "useful useless")
Contexts = collections.namedtuple("Contexts", "cache constant")


def cached(f, in_place):
    def find(cache):
        return cache.useful[0] if isinstance(cache, Caches) else cache

    def out_of_place(x, cache):
        cache = find(cache)
        cache[...] = f(x)
        return cache.copy()

    def filled(y, x, cache):
        cache = find(cache)
        f(cache, x)
        y[...] = cache

    return filled if in_place else out_of_place


def constant_and_cache(f, in_place):
    def out_of_place(x, both):
        a, b = both.constant
        both.cache[...] = (a + b[0]) * f(x)
        return both.cache.copy()

    def filled(y, x, both):
        a, b = both.constant
        f(both.cache, x)
        both.cache[...] *= a + b[0]
        y[...] = both.cache

    return filled if in_place else out_of_place


def multiplied(f, in_place):
    def filled(y, x, a):
        f(y, x)
        y *= a

    return filled if in_place else (lambda x, a: a * f(x))


MODIFIERS = (
    "normal",
    "closurified",
    "buffered",
    "constantified",
    "cachified",
    "cachified tuples",
    "constantorcachified",
)


def modified(xp, scenario):
    """(f or f!, further arguments, factor of the results)."""
    name, in_place = scenario.fun, scenario.fun.endswith("!")
    f = base_functions(xp)[name]
    if name == "num_to_arr":
        base, shape = f, scenario.y_shape
        f = lambda x: base(x, shape)
    x, y = xp.asarray(scenario.x), xp.zeros(scenario.y_shape)
    match scenario.modifier:
        case "normal":
            return f, (), 1.0
        case "closurified" | "buffered":
            kind = WritableClosure if scenario.modifier == "closurified" else WrittenBuffers
            closure = kind(f, x, y)
            return (closure.in_place if in_place else closure.out_of_place), (), 7.0
        case "constantified":
            return multiplied(f, in_place), (3.0,), 3.0
        case "cachified":
            return cached(f, in_place), (y.copy(),), 1.0
        case "cachified tuples":
            return cached(f, in_place), (Caches((y.copy(),), y.copy()),), 1.0
        case "constantorcachified":
            return constant_and_cache(f, in_place), (Contexts(y.copy(), (3.0, xp.array([4.0]))),), 7.0


def default_scenarios():
    x, dx, dy = np.array(0.42), np.array(3.14), np.array(-1 / 12)
    x6, dx6 = np.arange(1.0, 7.0), -np.arange(1.0, 7.0)
    x23, dx23 = x6.reshape(2, 3, order="F"), dx6.reshape(2, 3, order="F")
    dy6, dy12 = np.arange(-5.0, 6.0, 2.0), np.arange(-11.0, 12.0, 2.0)
    dy23, dy62 = dy6.reshape(2, 3, order="F"), dy12.reshape(6, 2, order="F")
    found = []

    def add(fun, x, w, t, operators, places):
        for operator, place in itertools.product(operators, places):
            tangents = {"pushforward": (t,), "hvp": (t,), "pullback": (w,)}.get(operator, ())
            found.append(Scenario(operator, place, fun, x, w.shape, tangents))

    add("num_to_num", x, dy, dx, ["pushforward", "pullback", "derivative", "second_derivative"], ["out"])
    for fun in ("num_to_num_vec", "num_to_num_vec!"):
        add(
            fun,
            x.reshape(1),
            dy.reshape(1),
            dx.reshape(1),
            ["pushforward", "pullback", "jacobian"],
            ["out", "in"],
        )
    for w in (dy6, dy23):
        add("num_to_arr", x, w, dx, ["pushforward", "derivative", "second_derivative"], ["out", "in"])
        add("num_to_arr", x, w, dx, ["pullback"], ["out"])
    for a, t in ((x6, dx6), (x23, dx23)):
        add("arr_to_num", a, dy, t, ["pullback", "gradient", "hvp", "hessian"], ["out", "in"])
        add("arr_to_num", a, dy, t, ["pushforward"], ["out"])
    arrays = [("vec_to_vec", x6, dy12, dx6), ("vec_to_mat", x6, dy62, dx6)]
    arrays += [("mat_to_vec", x23, dy12, dx23), ("mat_to_mat", x23, dy62, dx23)]
    for fun, a, w, t in arrays:
        add(fun, a, w, t, ["pushforward", "pullback", "jacobian"], ["out", "in"])
    for w in (dy6, dy23):
        add("num_to_arr!", x, w, dx, ["pushforward", "derivative"], ["out", "in"])
        add("num_to_arr!", x, w, dx, ["pullback"], ["out"])
    for fun, a, w, t in arrays:
        add(fun + "!", a, w, t, ["pushforward", "pullback", "jacobian"], ["out", "in"])
    batched = [
        Scenario(s.operator, s.place, s.fun, s.x, s.y_shape, (s.tangents[0], -s.tangents[0]))
        for s in found
        if s.tangents
    ]
    return [
        Scenario(s.operator, s.place, s.fun, s.x, s.y_shape, s.tangents, modifier)
        for modifier in MODIFIERS
        for s in found + batched
    ]


SCENARIOS = default_scenarios()


def test_n5_count():
    """106 scenarios and 64 batched ones, in seven modifications; each name once."""
    assert len(SCENARIOS) == 7 * (106 + 64) == 1190
    assert len({s.name for s in SCENARIOS}) == 1190
    single = [s for s in SCENARIOS if s.modifier == "normal" and len(s.tangents) < 2]
    assert collections.Counter(s.operator for s in single) == {
        "pushforward": 31,
        "pullback": 29,
        "jacobian": 20,
        "derivative": 9,
        "second_derivative": 5,
        "gradient": 4,
        "hvp": 4,
        "hessian": 4,
    }
    assert sum(s.fun.endswith("!") for s in single) == 40


def results(operator, g, x, args, tangents):
    """All ways to compute the operator's result, as lists (one entry a tangent)."""
    f = lambda z: g(z, *args)
    constants = (None,) * len(args)
    if operator == "pushforward":
        yield [tg.jvp(g, (x, *args), (t, *constants))[1] for t in tangents]
    elif operator == "pullback":
        pullback = tg.vjp(f, x)[1]
        yield [pullback(w) for w in tangents]
    elif operator == "derivative":
        yield [tg.jvp(f, (x,), (library(x).ones_like(x),))[1]]
        yield [tg.jacobian(g)(x, *args)]
    elif operator == "gradient":
        yield [tg.grad(g)(x, *args)]
        yield [tg.value_and_grad(g)(x, *args)[1]]
    elif operator == "jacobian":
        yield [tg.jacobian(g, mode="forward")(x, *args)]
        yield [tg.jacobian(g, mode="reverse")(x, *args)]
    elif operator == "second_derivative":
        one = library(x).ones_like(x)
        yield [tg.jvp(lambda z: tg.jvp(f, (z,), (one,))[1], (x,), (one,))[1]]
        yield [tg.jvp(lambda z: tg.jacobian(f, mode="reverse")(z), (x,), (one,))[1]]
        yield [tg.jacobian(lambda z: tg.jvp(f, (z,), (one,))[1], mode="reverse")(x)]
        yield [tg.jacobian(lambda z: tg.jacobian(f, mode="reverse")(z), mode="reverse")(x)]
    elif operator == "hvp":
        yield [tg.hvp(g, x, t, args) for t in tangents]
        yield list(tg.hmp(g, x, library(x).stack(tangents), args))
        for some in zip(*[second_orders(f, x, t) for t in tangents], strict=True):
            yield [product for _, product in some]
    else:
        yield [tg.hessian(g)(x, *args)]


def truth(s, factor):
    exact = Truth(s.fun, s.x, s.y_shape)
    match s.operator:
        case "pushforward":
            found = [exact.push(t) for t in s.tangents]
        case "pullback":
            found = [exact.pull(w) for w in s.tangents]
        case "hvp":
            found = [exact.hessian_times(t) for t in s.tangents]
        case "second_derivative" | "hessian":
            found = [exact.second]
        case _:
            found = [exact.jac]
    return [factor * np.asarray(r) for r in found]


def paired(s, xp):
    marks = {
        "numpy": [],
        "hosted-cupy": [] if s.modifier == "normal" else pytest.mark.long,
        "cupy": pytest.mark.gpu,
    }
    return pytest.param(s, xp, marks=marks[xp], id=f"{xp}-{s.name}")


@pytest.mark.one_in(7)
@pytest.mark.parametrize(
    "s, xp", [paired(s, xp) for xp in ("numpy", "hosted-cupy", "cupy") for s in SCENARIOS], indirect=["xp"]
)
def test_n5_scenario(xp, s):
    f, args, factor = modified(xp, s)
    x, tangents = xp.asarray(s.x), [xp.asarray(t) for t in s.tangents]
    if xp is np and s.x.shape == () and s.modifier == "normal":
        x = float(x)
    y = xp.zeros(s.y_shape)
    g = tg.inplace(f, y) if s.fun.endswith("!") else f
    expected = truth(s, factor)
    if s.place == "in":  # a first call at other inputs leaves other numbers in every buffer
        for _ in results(s.operator, g, x * 0 + 0.5, args, tangents):
            pass
    before = [host(a).copy() for a in (x, *tangents)]
    for found in results(s.operator, g, x, args, tangents):
        if s.place == "in":
            memory = [xp.full(e.shape, np.nan) for e in expected]
            for m, r in zip(memory, found, strict=True):
                m[...] = r
            found = memory
        for r, e in zip(found, expected, strict=True):
            close(r, e)
    for a, b in zip((x, *tangents), before, strict=True):
        close(a, b, rtol=0)
    close(y, np.zeros(s.y_shape))


@pytest.mark.parametrize(
    "s", [s for s in SCENARIOS if s.fun.endswith("!") and s.modifier == "normal"], ids=lambda s: s.name
)
def test_n5_in_place_through_a_captured_buffer(xp, s):
    """f!(y, x) with a captured y, read afterwards."""
    f, _, _ = modified(xp, s)
    y = xp.full(s.y_shape, 9.0)

    def g(x):
        f(y, x)
        return y.copy()

    x, tangents = xp.asarray(s.x), [xp.asarray(t) for t in s.tangents]
    for found in results(s.operator, g, x, (), tangents):
        for r, e in zip(found, truth(s, 1.0), strict=True):
            close(r, e)
    assert type(y) is xp.ndarray
    value = g(x)
    close(y, host(value))


def of_prepared(operator, p, x, args, tangents, out):
    """The result of a prepared function, one entry a tangent; `out`: memory for each, or None."""
    if operator == "pushforward":
        return [p.jvp(x, t, args, out=o)[1] for t, o in zip(tangents, out, strict=True)]
    if operator == "pullback":
        return [p.vjp(x, w, args, out=o)[1] for w, o in zip(tangents, out, strict=True)]
    if operator == "hvp":
        return [p.hvp(x, t, args, out=o) for t, o in zip(tangents, out, strict=True)]
    method = {"gradient": "grad", "hessian": "hessian"}.get(operator, "jacobian")
    return [getattr(p, method)(x, *args, out=out[0])]


def prepared_is_right(xp, s):
    f, args, factor = modified(xp, s)
    x, tangents = xp.asarray(s.x), [xp.asarray(t) for t in s.tangents]
    y = xp.zeros(s.y_shape)
    g = tg.inplace(f, y) if s.fun.endswith("!") else f
    expected = truth(s, factor)
    p = tg.prepare(tg.jacobian(g) if s.operator == "second_derivative" else g, x * 0 + 0.5, *args)
    for call in range(5):  # recorded, replayed, written out; there and back
        at = x if call % 2 else x * 0 + 0.5
        memory = [xp.full(e.shape, np.nan) if s.place == "in" else None for e in expected]
        found = of_prepared(s.operator, p, at, args, tangents, memory)
        wanted = expected if call % 2 else truth(dataclasses.replace(s, x=s.x * 0 + 0.5), factor)
        for r, m, e in zip(found, memory, wanted, strict=True):
            assert m is None or r is m
            close(r, e)
    close(x, s.x, rtol=0)
    close(y, np.zeros(s.y_shape))


FEW = [
    s
    for s in SCENARIOS
    if s.modifier in ("closurified", "buffered", "constantorcachified")
    and len(s.tangents) < 2
    and s.place == "in"
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("s", FEW, ids=[s.name for s in FEW])
def test_n5_prepared(s):
    prepared_is_right(np, s)


@pytest.mark.long
@pytest.mark.parametrize("s", SCENARIOS, ids=[s.name for s in SCENARIOS])
def test_n5_prepared_all(xp, s):
    prepared_is_right(xp, s)
