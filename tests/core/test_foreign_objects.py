"""Ways out of the tracked world: object arrays, masked arrays, matrices and other subclasses, pandas, arrays
of other libraries, functions that call functions, errors that were swallowed, text.  Right, or an error that
names the thing.

The judge is the plain call itself and its differences; a search puts each kind of foreign argument into every
operation's line of tests/support/cases.py."""

import contextlib
import csv
import decimal
import inspect
import io
import json
import logging
import operator
import re
import statistics
import struct
import threading

import numpy as np
import pandas as pd
import pytest
from cases import all_cases

import tapegrad as tg
from tapegrad._core.foreign import OBJECTS
from tapegrad._core.scope import OPEN
from tapegrad.errors import DroppedDerivativeError, NoRuleError, NotScalarError, TapegradError

pytestmark = [
    pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning"),
    pytest.mark.filterwarnings("ignore:__array_wrap__ must accept:DeprecationWarning"),
]

X = np.array([1.3, 2.1, 0.7])
C = np.array([0.5, 1.5, 2.5])


class Labelled(np.ndarray):
    """A subclass that does nothing of its own."""


class Doubling(np.ndarray):
    def __mul__(self, other):
        return np.asarray(self) * other * 2

    __rmul__ = __mul__


class Length(float):
    pass


class Proxy:
    """An array-like of the user's own."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype)


class Operator:
    """Has reflected methods and wants its turn, as sparse matrices and units do."""

    __array_ufunc__ = None

    def __init__(self, k):
        self.k = k

    def __rmul__(self, x):
        return x * self.k + 1

    def __rmatmul__(self, x):
        return (x * self.k).sum()


class Urgent:
    __array_priority__ = 20.0

    def __radd__(self, x):
        return x * 5


def stranger(module, values=C):
    """An array of a library that is not installed."""
    body = {
        "__init__": lambda self, a: setattr(self, "a", a),
        "__array__": lambda self, dtype=None, copy=None: self.a,
        "__mul__": lambda self, other: NotImplemented,
        "__rmul__": lambda self, other: 7.0,
        "dtype": property(lambda self: self.a.dtype),
        "shape": property(lambda self: self.a.shape),
        "__module__": module,
    }
    return type("Tensor", (), body)(values)


def numeric(f, x=X, h=1e-6):
    grads = []
    for e in np.eye(x.size):
        grads.append((float(f(x + h * e)) - float(f(x - h * e))) / (2 * h))
    return np.array(grads)


def both_modes(f):
    reverse = tg.grad(f)(X)
    forward = [tg.jvp(f, (X,), (e,))[1] for e in np.eye(3)]
    nested = tg.jvp(tg.grad(f), (X,), (np.ones(3),))[0]
    np.testing.assert_allclose(forward, reverse, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(nested, reverse, rtol=1e-10, atol=1e-12)
    return reverse


def filled(shape, pairs):
    out = np.empty(shape, object)
    for i, v in pairs:
        out[i] = v
    return out


class Components(np.ndarray):
    """A vector whose elements are arrays, as an older class wraps results."""

    def __new__(cls, components):
        return filled(len(components), enumerate(components)).view(cls)

    def __array_wrap__(self, obj, context=None):
        return obj.view(type(self)) if obj.ndim else obj

    def last(self):
        return self[-1] ** 2


RIGHT = {
    "list with dtype=object": lambda x: (np.array([x[0] * x[1], x[1]], dtype=object) ** 2).sum(),
    "row with dtype=object": lambda x: (np.array([x, x * 2], dtype=object) * np.arange(3)).sum(),
    "ragged": lambda x: np.array([[x[0], x[1]], [x[2]]], dtype=object)[0][1] * 2,
    "None beside": lambda x: sum(np.array([None, x[0] * 3], dtype=object)[1:]),
    "astype(object)": lambda x: (x.astype(object) ** 2)[1:].sum(),
    "object arrays of 0-d": lambda x: np.array(x.sum() ** 2, dtype=object)[()],
    "dot of objects": lambda x: np.dot(x.astype(object), np.array([2.0, 3.0, 4.0])),
    "stored in objects": lambda x: (lambda o: o[0] * o[2])(filled(3, [(0, x[0] ** 2), (2, x[1])])),
    "objects times tracked": lambda x: (x * filled(3, [(i, x[i] ** 2) for i in range(3)])).sum(),
    "tracked times numbers as objects": lambda x: (np.array([1, 2.5, 3], dtype=object) * x).sum(),
    "arrays as objects": lambda x: sum([np.sum(v**2) for v in (filled(3, [(0, C), (1, x), (2, 2.0)]) - x) * x[0]]),
    "objects of a class": lambda x: np.sum((x * Components([x, C**2, 0.5]) - 2.0 * Components([C, x, x])).last()),
    "objects, in place": lambda x: (lambda o: o.__imul__(x)[1].sum())(filled(3, [(i, C * i) for i in range(3)])),
    "objects beside tracked": lambda x: np.concatenate([x, x.astype(object) * 2]).sum() ** 2,
    "objects returned": lambda x: np.array(x.prod(), dtype=object),
    "fromiter": lambda x: (np.fromiter((v * v for v in x), float) * C).sum(),
    "fromiter counted": lambda x: np.fromiter(iter([x[0] ** 2, x[1], x[2]]), float, 2).sum(),
    "fromfunction": lambda x: np.fromfunction(lambda i, j: x[i.astype(int)] * x[j.astype(int)], (3, 2)).sum(),
    "vectorize": lambda x: np.vectorize(lambda a, b: a * a if a > 1 else b)(x, C).sum(),
    "vectorize of a closure": lambda x: (np.vectorize(lambda i: x[i] ** 2)(np.arange(3)) * C).sum(),
    "vectorize, two results": lambda x: (lambda a, b: (a * b).sum())(*np.vectorize(lambda v: (v * v,
    3 * v))(x)),
    "vectorize, a matrix": lambda x: np.vectorize(lambda a, b: a * b)(x[:, None], x[None]).sum(),
    "frompyfunc": lambda x: np.frompyfunc(lambda v: v * v, 1, 1)(x)[:2].sum(),
    "frompyfunc of two": lambda x: np.frompyfunc(lambda v, w: v * w, 2, 1)(x, C).sum(),
    "frompyfunc of a closure": lambda x: np.frompyfunc(lambda i: x[int(i)] ** 2, 1, 1)(np.arange(3)).sum(),
    "frompyfunc of a number": lambda x: np.frompyfunc(lambda v: v**3, 1, 1)(x[1]),
    "apply_along_axis": lambda x: (np.apply_along_axis(lambda r: r * r[0], 1, np.outer(x,
    x)) * np.arange(9.0).reshape(3, 3)).sum(),
    "apply_along_axis of plain rows": lambda x: np.apply_along_axis(lambda r: (r * x).sum(), 0,
    np.arange(6.0).reshape(3, 2))[1],
    "apply_along_axis to matrices": lambda x: np.apply_along_axis(lambda r: np.outer(r, r), 0, np.outer(x,
    C))[1, :, 2].sum(),
    "apply_over_axes": lambda x: np.apply_over_axes(np.sum, np.outer(x, x * x), [0, 1])[0, 0],
    "a plain subclass": lambda x: (C.view(Labelled) * x).sum() + (x / C.view(Labelled)).sum(),
    "a memory map": lambda x: np.dot(x, MAPPED) + (MAPPED * x).sum(),
    "a subclass of float": lambda x: (Length(2.0) * x - x**2 / Length(3.0)).sum() + x[0] * Length(2.0),
    "an array-like": lambda x: (x * Proxy([1.0, 2.0, 3.0])).sum() + np.multiply(Proxy(C),
    x).sum() + np.dot(Proxy(C), x),
    "an operator": lambda x: (x * Operator(3.0)).sum() + x @ Operator(2.0) + x[0] * Operator(4.0),
    "an urgent operand": lambda x: (x + Urgent()).sum(),
    "Series in dot": lambda x: np.dot(pd.Series(C), x) + np.interp(x[0], pd.Series(C), pd.Series(C * C)),
    "Series in where and concatenate": lambda x: np.where(pd.Series(C) > 1, x, 0).sum() + (np.concatenate([x,
    pd.Series(C)]) ** 2).sum(),
    "Series as a mask": lambda x: x[(pd.Series(C) > 1).to_numpy()].sum() * x[pd.Series(C) > 1].prod(),
    "Series of tracked": lambda x: pd.Series([x[0] * x[1], x[1]]).sum(),
    "values of a frame": lambda x: (pd.DataFrame({"a": C, "b": C}).to_numpy().T @ x).sum(),
    "Series stored": lambda x: (lambda b: (b.__setitem__(slice(None), pd.Series(C)),
    (b * x).sum())[1])(np.zeros(3)),
    "sorted, sum, max": lambda x: sorted(x)[0] * 2 + sum(x) + max(x) * min(x),
    "Const inside": lambda x: 3.0 * x[0],
}  # fmt: skip
MAPPED = None


@pytest.fixture(autouse=True, scope="module")
def mapped(tmp_path_factory):
    global MAPPED
    path = tmp_path_factory.mktemp("maps") / "c.bin"
    C.tofile(path)
    MAPPED = np.memmap(path, float, "r")
    yield
    MAPPED = None


@pytest.mark.parametrize("name", RIGHT)
def test_right(name):
    f = RIGHT[name]
    np.testing.assert_allclose(both_modes(f), numeric(f), rtol=1e-6, atol=1e-7)
    assert tg.value_and_grad(f)(X)[0] == pytest.approx(float(f(X)), rel=1e-12)


def test_const_met_inside_is_its_value():
    f = lambda x: (tg.Const(C) * x).sum() + np.dot(x, tg.Const(C)) + np.where(C > 1, tg.Const(C), x).sum()
    np.testing.assert_allclose(both_modes(f), C * 2 + (C <= 1))


MASKED = np.ma.array(C, mask=[0, 1, 0])
LOUD = {
    "masked on the right": (lambda x: (x * MASKED).sum(), "MaskedArray", "filled"),
    "masked on the left": (lambda x: (MASKED * x).sum(), "numpy.ma"),
    "masked in a ufunc": (lambda x: np.add(MASKED, x).sum(), "MaskedArray"),
    "masked in dot": (lambda x: np.dot(x, MASKED), "MaskedArray"),
    "masked in a list": (lambda x: np.concatenate([x, MASKED]).sum(), "MaskedArray"),
    "masked as weights": (lambda x: np.average(x, weights=MASKED), "MaskedArray"),
    "masked as bounds": (lambda x: np.clip(x, MASKED, 3.0).sum(), "np.clip"),
    "made a masked array": (lambda x: np.ma.array(x * x, mask=[0, 1, 0]).sum(), "numpy.ma"),
    "masked where": (lambda x: np.ma.masked_where(C > 1, x).sum(), "numpy.ma"),
    "matrix on the right": (lambda x: (x * np.matrix(np.eye(3))).sum(), "numpy.matrix", "@"),
    "matrix on the left": (lambda x: (np.matrix(np.eye(3)) * x.reshape(3, 1)).sum(), "numpy.matrix"),
    "matrix times a number": (lambda x: (np.matrix(np.eye(3)) * x[0]).sum(), "numpy.matrix"),
    "made a matrix": (lambda x: (np.matrix(x) + np.eye(3)[0] * x).sum(), "matrix"),
    "a subclass with operators": (lambda x: (x * C.view(Doubling)).sum(), "Doubling", "numpy.asarray"),
    "a frame of tracked": (lambda x: pd.DataFrame({"a": x})["a"].sum(), "pandas", ".to_numpy()"),
    "text among numbers": (lambda x: np.array([x[0], "a"])[0], "'a'"),
    "None among numbers": (lambda x: np.array([x[0], None])[0] * 2, "dtype=object"),
    "words times tracked": (lambda x: (x * np.array(["a", 1, 2], dtype=object)).sum(), "dtype object"),
}  # fmt: skip
REMEDIES = {
    "torch": ".detach()", "jaxlib._jax": "numpy.asarray", "jax._src.array": "numpy.asarray",
    "tensorflow.python": ".numpy()",
    "xarray.core": ".to_numpy()", "polars.series": ".to_numpy()",
}  # fmt: skip
for _module in REMEDIES:
    _root = _module.partition(".")[0]
    LOUD[f"{_root} on the right"] = (lambda x, m=_module: (x * stranger(m)).sum(), _module, REMEDIES[_module])
    LOUD[f"{_root} on the left"] = (lambda x, m=_module: (stranger(m) * x).sum(), _module)
    LOUD[f"{_root} in a function"] = (lambda x, m=_module: np.dot(stranger(m), x), _module, REMEDIES[_module])


# Classes whose Python code is followed are right there, and raise where it is not.
FOLLOWED = (
    "masked on the right",
    "masked on the left",
    "masked in a ufunc",
    "masked in dot",
    "masked in a list",
    "masked as weights",
    "made a masked array",
    "masked where",
    "matrix on the right",
    "matrix on the left",
    "matrix times a number",
    "made a matrix",
    "a frame of tracked",
    "a subclass with operators",
)

ELSEWHERE = ("a frame of tracked", "made a matrix")  # what becomes of these in code that is not followed


class Kept:
    """Its reflected methods keep what they are given, as units keep a number."""

    __hash__ = None  # type: ignore[assignment]

    def keep(self, x):
        return 3.0 * x

    __rlshift__ = __rrshift__ = __rand__ = __ror__ = __rxor__ = __gt__ = __le__ = __eq__ = __ne__ = keep


KEPT = {
    "plain": Kept(),
    "priority": type("Prior", (Kept,), {"__array_priority__": 10.0, "__hash__": None})(),
    "ufuncs": type("Own", (Kept,), {"__array_ufunc__": None, "__hash__": None})(),
}


@pytest.mark.parametrize("kind", KEPT)
@pytest.mark.parametrize("op", ["lshift", "rshift", "and_", "or_", "xor", "lt", "ge", "eq", "ne"])
def test_reflected_methods_keep_the_tracked_value(kind, op):
    """`q << unit`: a number that the other side keeps has its derivative."""
    f, unit = getattr(operator, op), KEPT[kind]
    assert f(np.float64(0.5), unit) == 1.5
    np.testing.assert_array_equal(both_modes(lambda x: f(x[0], unit) * 2.0), [6.0, 0.0, 0.0])
    if kind != "plain":  # NumPy leaves arrays to these
        np.testing.assert_array_equal(f(X, unit), 3.0 * X)
        np.testing.assert_array_equal(both_modes(lambda x: np.sum(f(x, unit))), [3.0, 3.0, 3.0])
    elif op in ("lt", "ge", "eq", "ne"):  # truth values
        np.testing.assert_array_equal(tg.grad(lambda x: np.sum(x * f(x, unit)))(X), f(X, unit))


def test_the_place_of_the_data_may_be_compared():
    """As scikit-learn's checks of alignment do.  C code finds no memory there."""
    read = tg.Const(np.asarray)

    def f(x):
        assert x.__array_interface__["data"][0] % 8 == 0
        return np.sum(x**2)

    np.testing.assert_array_equal(both_modes(f), 2 * X)
    with pytest.raises(DroppedDerivativeError):
        tg.grad(lambda x: np.sum(read(x)))(X)


@pytest.mark.parametrize("dtype", ["u1", "u4", "u8"])
def test_powers_with_unsigned_exponents(dtype):
    n = np.array([0, 1, 2, 3], dtype)
    np.testing.assert_allclose(tg.hessian(lambda x: np.sum(x[0] ** n))(np.array([1.3])), [[2 + 6 * 1.3]])
    np.testing.assert_allclose(tg.grad(lambda x: np.sum(np.power(x[0], n)))(np.array([0.0])), [1.0])


def test_a_matrix_in_code_that_is_not_followed():
    with pytest.raises(TypeError):
        tg.grad(tg.Const(lambda x: (np.matrix(x) * np.matrix(x).T)[0, 0]))(X)


@pytest.mark.parametrize("name", FOLLOWED)
def test_classes_that_are_followed(name):
    f, h = LOUD[name][0], 1e-6
    g = tg.grad(f)
    np.testing.assert_allclose(tg.value_and_grad(f)(X)[0], f(X))
    differences = [(f(X + h * e) - f(X - h * e)) / (2 * h) for e in np.eye(3)]
    np.testing.assert_allclose(g(X), differences, atol=1e-7)
    np.testing.assert_allclose(tg.jvp(f, (X,), (C,))[1], g(X) @ C)
    np.testing.assert_allclose(tg.hvp(f, X, C), (g(X + h * C) - g(X - h * C)) / (2 * h), atol=1e-7)


def test_a_frame_in_code_that_is_not_followed():
    """pandas keeps tracked values once a followed function has used it."""
    f = LOUD["a frame of tracked"][0]
    try:
        found = tg.grad(tg.Const(f))(X)
    except TapegradError:
        found = tg.grad(f)(X)
    np.testing.assert_allclose(found, 1.0)
    np.testing.assert_allclose(tg.grad(tg.Const(f))(X), 1.0)


@pytest.mark.parametrize(
    "name, followed",
    [(n, b) for n in LOUD for b in (True, False) if not (b and n in FOLLOWED) and n not in ELSEWHERE],
)
def test_loud(name, followed):
    f, *words = LOUD[name]
    g = f if followed else tg.Const(f)
    for call in (lambda: tg.grad(g)(X), lambda: tg.jvp(g, (X,), (C,)), lambda: tg.hvp(g, X, C)):
        with pytest.raises((TapegradError, ValueError)) as caught:
            call()
        error = caught.value if isinstance(caught.value, TapegradError) else caught.value.__cause__
        assert isinstance(error, TapegradError)
        if followed:
            assert all(w in str(error) for w in words), str(error)


def test_without_a_transform_foreign_objects_are_numpys_affair():
    v = tg.Variable(C)
    assert (v * np.array([1, 2, 3], dtype=object)).sum() == (C * [1, 2, 3]).sum()


def test_what_f_returns_in_objects():
    value, tangent = tg.jvp(lambda x: (x * x).astype(object), (X,), (C,))
    np.testing.assert_allclose(value.astype(float), X * X)
    np.testing.assert_allclose(tangent, 2 * X * C)
    np.testing.assert_allclose(
        tg.jacobian(lambda x: np.array([x[0] * x[1], x[2]], dtype=object))(X), [[X[1], X[0], 0], [0, 0, 1]]
    )
    (_, aux), _ = tg.value_and_grad(lambda x: (x.sum(), x.astype(object)), has_aux=True)(X)
    assert aux.dtype == object and all(type(e) is np.float64 for e in aux)
    with pytest.raises(NotScalarError):
        tg.grad(lambda x: x.astype(object))(X)


# --- the search ---


def memory_mapped(a):
    return a.view(np.memmap) if a.ndim else a


FOREIGN = {
    "objects": lambda a: a.astype(object),
    "subclass": lambda a: a.view(Labelled),
    "matrix": lambda a: np.asmatrix(a) if a.ndim == 2 else a.astype(object),
    "masked": lambda a: np.ma.array(a, mask=np.arange(a.size).reshape(a.shape) % 3 == 1),
    "unmasked": np.ma.array,
    "pandas": lambda a: pd.Series(a) if a.ndim == 1 else pd.DataFrame(a) if a.ndim == 2 else a.view(Labelled),
    "array-like": Proxy,
    "overriding": lambda a: a.view(Doubling),
    "torch": lambda a: stranger("torch", a),
}


def is_float(a):
    return isinstance(a, np.ndarray) and a.dtype.kind in "fc" and a.size > 0


PLACES = [(c, p, q) for c in all_cases() for p, a in enumerate(c.inputs) for q, b in enumerate(c.inputs)
          if p != q and is_float(a) and is_float(b) and c.order]  # fmt: skip
SEARCH = [(c, p, q, kind) for c, p, q in PLACES for kind in FOREIGN]


def plainly(y):
    """What a plain call gave, as a list of float or complex arrays; None if it is something else."""
    ys = y if isinstance(y, tuple) else (y,)
    out = []
    for y in ys:
        if isinstance(y, np.ma.MaskedArray) and np.ma.is_masked(y):
            return None
        try:
            out.append(np.asarray(y, dtype=complex))
        except (TypeError, ValueError):
            return None
    return out


# Python's and NumPy's own words for what they cannot do with a Variable, or with another library's array.
WORDS = (
    "a number cannot be written in place",
    "__array__ method not producing an array",
    "'Tensor' object has no attribute",
)


def loud(error):
    """Is it an error of ours, or of Python's that names the type of the operand?"""
    while error is not None:
        if isinstance(error, TapegradError) or any(words in str(error) for words in WORDS):
            return True
        error = error.__cause__ or error.__context__
    return False


def searched(c, p, q, kind):
    """'right', 'loud' or 'as plain' (the plain call fails); else raises AssertionError."""
    given = list(c.inputs)
    given[p] = FOREIGN[kind](given[p])

    def f(x):
        xs = list(given)
        xs[q] = x
        return c.f(*xs)

    x = c.inputs[q]
    v = np.random.default_rng(0).standard_normal(x.shape)
    with np.errstate(all="ignore"):
        try:
            value, tangent = tg.jvp(f, (x,), (v,))
        except Exception as error:
            if loud(error):
                return "loud"
            try:
                f(x)
            except Exception:
                return "as plain"
            raise AssertionError(f"{c.name} [{kind} at {p}]: {type(error).__name__}: {error}") from error
        h = 1e-6
        try:
            ys = [plainly(f(x + s * v)) for s in (0, h, -h)]
        except Exception:
            ys = [None]
        objects = getattr(given[p], "dtype", None) is OBJECTS  # numpy.correlate does not conjugate these
        if (ys[0] is None and kind != "masked") or objects:
            given[p] = c.inputs[p]
            ys = [plainly(f(x + s * v)) for s in (0, h, -h)]
    assert ys[0] is not None, f"{c.name} [{kind} at {p}]: a masked result was answered with numbers"
    values = value if isinstance(value, tuple) else (value,)
    tangents = tangent if isinstance(tangent, tuple) else (tangent,)
    for mine, slope, y, up, down in zip(values, tangents, *ys, strict=True):
        if mine is None or np.asarray(mine).dtype.kind not in "fc":
            continue
        rough = 1e-5 * max(1.0, abs(y).max(initial=0))
        assert np.shape(mine) == y.shape or np.size(mine) == y.size, (c.name, kind, np.shape(mine), y.shape)
        np.testing.assert_allclose(
            np.ravel(mine), y.ravel(), rtol=1e-9, atol=1e-12, err_msg=f"{c.name} [{kind} at {p}]"
        )
        difference = ((up - down) / (2 * h)).ravel()
        slope = np.zeros(y.size) if slope is None else np.ravel(slope)
        np.testing.assert_allclose(
            slope, difference, rtol=1e-4, atol=rough, err_msg=f"{c.name} [{kind} at {p}]"
        )
    return "right"


def run_search(lines):
    counts = dict.fromkeys(("right", "loud", "as plain"), 0)
    for line in lines:
        counts[searched(*line)] += 1
    print(len(lines), counts)
    return counts


def test_search():
    counts = run_search(SEARCH[::9])
    assert counts["right"] > 50 and counts["loud"] > 50


@pytest.mark.long
@pytest.mark.parametrize("kind", FOREIGN)
def test_search_whole(kind):
    run_search([line for line in SEARCH if line[3] == kind])


PARTS = ("real", "imaginary")  # of objects these are themselves and 0
ONE = [
    (c, q)
    for c in all_cases()
    for q, b in enumerate(c.inputs)
    if is_float(b) and c.order and c.name not in PARTS
]


def test_search_of_tracked_objects():
    """Every operation of an object array of tracked numbers."""
    counts = {"right": 0, "loud": 0, "as plain": 0}
    for c, q in ONE[::4]:

        def f(x, c=c, q=q):
            xs = list(c.inputs)
            xs[q] = x.astype(object)
            return c.f(*xs)

        x = c.inputs[q]
        v = np.random.default_rng(0).standard_normal(x.shape)
        with np.errstate(all="ignore"):
            try:
                plain = plainly(f(x))
                if c.name.startswith("correlate"):  # numpy.correlate does not conjugate objects
                    plain = plainly(c.f(*c.inputs))
            except Exception:
                plain = None
            try:
                value, tangent = tg.jvp(f, (x,), (v,))
            except Exception as error:
                assert loud(error) or plain is None, (c.name, error)
                counts["loud" if plain is not None else "as plain"] += 1
                continue
            if plain is None or isinstance(value, tuple):
                continue
            direct = tg.jvp(
                lambda x, c=c, q=q: c.f(*[x if n == q else a for n, a in enumerate(c.inputs)]), (x,), (v,)
            )
        np.testing.assert_allclose(
            np.ravel(value).astype(complex), plain[0].ravel(), rtol=1e-9, atol=1e-12, err_msg=c.name
        )
        if tangent is not None:
            np.testing.assert_allclose(
                np.ravel(tangent).astype(complex), np.ravel(direct[1]), rtol=1e-8, atol=1e-10, err_msg=c.name
            )
        counts["right"] += 1
    print(counts)
    assert counts["right"] > 40


# --- errors that were swallowed ---


def fallback_float(x):
    try:
        s = float.fromhex(x[0].hex())
    except TypeError:
        s = 0.0
    return s * x[1]


def fallback_suppressed(x):
    s = 0.0
    with contextlib.suppress(TypeError):
        s = float("%f".__mod__(x[0]))
    return s * x[1]


def fallback_any(x):
    try:
        s = np.histogram_bin_edges(x).sum()
    except Exception:
        s = x.sum()
    return s


def fallback_not_implemented(x):
    try:
        s = x.byteswap().sum()
    except NotImplementedError:
        s = x[0]
    return s * x[1]


def fallback_store(x):
    b = memoryview(bytearray(24)).cast("d")
    try:
        b[0] = x[0]
    except (TypeError, ValueError):
        b[0] = 1.0
    return b[0] * x[1]


def fallback_in_a_helper(x):
    def helper(v):
        try:
            return float("%f".__mod__(v))
        except TypeError:
            return 0.0

    return sum([helper(v) for v in x]) + x.sum()


def fallback_statistics(x):
    try:
        return statistics.NormalDist(x[0]).mean * x[0]
    except TypeError:
        return x[0]


def fallback_finally(x):
    for _ in range(2):
        try:
            return float.fromhex(x[0].hex())
        except DroppedDerivativeError:
            continue
    return x[0] * 3


SWALLOWING = [
    fallback_float, fallback_suppressed, fallback_any, fallback_not_implemented, fallback_store,
    fallback_in_a_helper,
    fallback_statistics, fallback_finally,
]  # fmt: skip


@pytest.mark.parametrize("f", SWALLOWING, ids=lambda f: f.__name__)
def test_a_swallowed_error_is_raised_again(f):
    first = f.__code__.co_firstlineno
    calls = [
        lambda: tg.grad(f)(X),
        lambda: tg.jvp(f, (X,), (C,)),
        lambda: tg.vjp(f, X),
        lambda: tg.hessian(f)(X),
        lambda: tg.hvp(f, X, C),
    ]
    for call in [*calls, lambda: tg.grad(tg.Const(f))(X)]:
        with pytest.raises((DroppedDerivativeError, NoRuleError), match=r"tapegrad\.value\(x\)") as caught:
            call()
        place = next(w for w in str(caught.value).split() if w.startswith(__file__))
        line = int(place.rstrip(":").rpartition(":")[2])
        assert first < line < first + 12
        assert "`except` clause" in str(caught.value)
    assert not getattr(OPEN, "dropped", None)
    np.testing.assert_allclose(tg.grad(lambda x: (x * x).sum())(X), 2 * X)  # nothing is left behind


def test_an_error_that_is_heard_is_raised_once():
    with pytest.raises(DroppedDerivativeError) as caught:
        tg.grad(lambda x: float.fromhex(x[0].hex()))(X)
    assert "except" not in str(caught.value)

    def f(x):
        try:
            float.fromhex(x[0].hex())
        except TypeError as error:
            raise KeyError("mine") from error

    with pytest.raises(KeyError, match="mine"):
        tg.grad(f)(X)
    np.testing.assert_allclose(tg.grad(lambda x: x.sum())(X), np.ones(3))


def test_an_error_caught_outside_is_not_raised_again():
    outer = []

    def f(x):
        outer.append(1)
        return x.sum()

    for _ in range(2):
        with contextlib.suppress(DroppedDerivativeError):
            tg.grad(lambda x: float.fromhex(x[0].hex()))(X)
        np.testing.assert_allclose(tg.grad(f)(X), np.ones(3))


def test_the_transform_that_lost_it_raises():
    def inner(y):
        with contextlib.suppress(TypeError):
            return float("%f".__mod__(y)) * y
        return y * y

    seen = []

    def f(x):
        try:
            d = tg.grad(inner)(x[0])
        except DroppedDerivativeError as error:
            seen.append(str(error))
            raise
        return d * x[1]

    with pytest.raises(DroppedDerivativeError):
        tg.grad(f)(X)
    assert len(seen) == 1

    def g(x):  # what the inner transform raised is swallowed by the outer function
        try:
            d = tg.grad(inner)(x[0])
        except TypeError:
            d = 1.0
        return d * x[1]

    with pytest.raises(DroppedDerivativeError, match=f":{g.__code__.co_firstlineno + 2}:"):
        tg.grad(g)(X)

    def h(x):  # the inner one is in order: the outer one raises
        with contextlib.suppress(TypeError):
            float.fromhex(x[0].hex())
        return tg.grad(lambda y: y * y)(x[0])

    with pytest.raises(DroppedDerivativeError, match=f":{h.__code__.co_firstlineno + 2}:"):
        tg.grad(h)(X)


def test_captured_arrays_after_a_swallowed_error():
    buf = np.zeros(3)

    def f(x):
        buf[:] = x * 2
        with contextlib.suppress(TypeError):
            float.fromhex(x[0].hex())
        return buf.sum()

    with pytest.raises(DroppedDerivativeError):
        tg.grad(f)(X)
    np.testing.assert_allclose(buf, X * 2)  # as a plain call leaves it


def test_questions_and_printing_swallow_nothing(capsys, caplog):
    def f(x):
        assert not hasattr(x[0], "no_such") and getattr(x, "__array_interface__", None) is None
        assert np.iterable(x) and not np.iterable(x[0]) and np.ndim(x) == 1 and np.isscalar(x[0])
        print(x, x[0], f"{x[0]:.3f} {x[0]!r}", str(x))
        logging.getLogger("ways").warning("%s %r", x, x[0])
        return x.sum()

    np.testing.assert_allclose(both_modes(f), np.ones(3))


def test_a_number_in_a_log_is_only_text(monkeypatch):
    monkeypatch.setattr(logging, "raiseExceptions", False)
    monkeypatch.setattr(logging.lastResort, "level", logging.DEBUG)
    logger = logging.Logger("alone", logging.DEBUG)
    logger.addHandler(logging.StreamHandler())

    def f(x):
        logger.debug("%f", x[0])
        return x.sum()

    np.testing.assert_allclose(tg.grad(f)(X), np.ones(3))


def test_percent_formats_a_number(capsys):
    def f(x):
        print("iter %d: %.4f %s %g" % (3, x[0], x[1], x[0] * x[1]))  # noqa: UP031
        line = "%(a)5.2f"
        line %= {"a": x[1]}
        print(line)
        return x[0] * x[1]

    x = np.array([1.2345, 2.0])
    np.testing.assert_allclose(tg.grad(f)(x), x[::-1])
    np.testing.assert_allclose(tg.hvp(f, x, x), x[::-1])
    assert capsys.readouterr().out == "iter 3: 1.2345 2.0 2.469\n 2.00\n" * 2


@pytest.mark.parametrize("spec", ["%.6f", "%.1e", "n %9.3g end", "%s"])
def test_a_formatted_number_that_is_read_back_raises(spec):
    def f(x):
        return float(re.search(r"[-+.e\d]+\d", spec % x[0])[0]) * x[1]

    with pytest.raises(DroppedDerivativeError, match="reads numbers that this function wrote"):
        tg.grad(f)(np.array([1.2345, 2.0]))


def test_other_numbers_in_texts_are_constants():
    def f(x):
        log = "%.6f" % x[0]  # noqa: UP031
        return float("1.2346") * x[1] + len(log) * x[0]

    np.testing.assert_allclose(tg.grad(f)(np.array([1.2345, 2.0])), [8, 1.2346])


def test_threads_do_not_see_each_others_errors():
    barrier, found = threading.Barrier(2), {}

    def swallowing(x):
        with contextlib.suppress(TypeError):
            float.fromhex(x[0].hex())
        barrier.wait(10)
        return x.sum()

    def decent(x):
        barrier.wait(10)
        return (x * x).sum()

    def run(name, f):
        try:
            found[name] = tg.grad(f)(X)
        except TapegradError as error:
            found[name] = error

    threads = [threading.Thread(target=run, args=a) for a in (("a", swallowing), ("b", decent))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert isinstance(found["a"], DroppedDerivativeError)
    np.testing.assert_allclose(found["b"], 2 * X)


# --- text ---


def saved_and_read(save, read):
    """f with what `save(file, x)` wrote, read by `read(file)`."""

    def f(x):
        file = io.StringIO() if save in (np.savetxt, save_json) else io.BytesIO()
        save(file, x * 1.1)
        file.seek(0)
        return np.sum(np.asarray(read(file)) * x)

    return f


def save_json(file, x):
    json.dump({"x": x.tolist()}, file)


READ_BACK = {
    "float(str)": lambda x: float(str(x[0])) * x[1],
    "float(f-string)": lambda x: float(f"{x[0]}") * x[1],
    "float of a rounded text": lambda x: float(f"{x[0]:10.3f}") * x[1],
    "complex": lambda x: abs(complex(f"{x[0]}")) * x[1],
    "numpy.float64": lambda x: np.float64(f"{x[0]:.6e}") * x[1],
    "split": lambda x: sum(float(t) for t in ", ".join([f"{v!s}" for v in x]).split(",")) * x[1],
    "inside another text": lambda x: float(f"x = {x[0]}".split("=")[1]) * x[1],
    "the text of an array": lambda x: np.fromstring(np.array2string(x, separator=",")[1:-1], sep=",").sum(),
    "str of an array": lambda x: float(str(x * 1.25).strip("[]").split()[0]) * x[1],
    "json": lambda x: sum(json.loads(json.dumps({"x": x.tolist()}))["x"]),
    "json of text": lambda x: json.loads(f"[{x[0]}]")[0] * x[1],
    "csv": lambda x: sum(float(t) for t in next(csv.reader([",".join(map(str, x))]))),
    "astype": lambda x: x.astype(str).astype(float).sum(),
    "astype of one": lambda x: float(x[0].astype("U30")),
    "numpy.save": saved_and_read(np.save, np.load),
    "numpy.savez": saved_and_read(np.savez, lambda file: np.load(file)["arr_0"]),
    "numpy.savetxt": saved_and_read(np.savetxt, np.loadtxt),
    "numpy.genfromtxt": saved_and_read(np.savetxt, np.genfromtxt),
    "json.load": saved_and_read(save_json, lambda file: json.load(file)["x"]),
}


@pytest.mark.parametrize("name", READ_BACK)
def test_numbers_read_back_from_text_raise(name):
    f = READ_BACK[name]
    f(X)
    for transform in (tg.grad(f), lambda x: tg.jvp(f, (x,), (x,)), tg.hessian(f), tg.prepare(f, X).grad):
        with pytest.raises(DroppedDerivativeError, match=r"tapegrad\.value\(x\)"):
            transform(X)


def test_what_is_written_and_read_apart_is_right():
    """Texts of plain values, of other numbers, and those of earlier calls are no reason to raise."""
    texts = []

    def f(x):
        assert float(f"{tg.value(x[0])}") == X[0] and float("0.25") == 0.25
        texts.append(f"{x[1]} {x}")
        np.save(io.BytesIO(), x)
        data = np.loadtxt(io.StringIO("1.5 2.5 3.5"))
        assert json.loads('{"steps": 3, "rate": 0.125}')["rate"] == 0.125
        return (data * x * x).sum() * float("2.0")

    for _ in range(2):
        np.testing.assert_allclose(tg.grad(f)(X), [6 * X[0], 10 * X[1], 14 * X[2]])
    assert float(texts[0].split()[0]) == X[1]
    np.testing.assert_allclose(tg.grad(lambda x: float(texts[0].split()[0]) * x[1])(X), [0, X[1], 0])


def test_texts_of_an_inner_transform_are_not_read_in_the_outer_one():
    def f(x):
        found = []
        tg.grad(lambda y: (found.append(f"{y[0]}"), y.sum())[1])(x)
        return float(found[0]) * x[1]

    with pytest.raises(DroppedDerivativeError):
        tg.grad(f)(X)


def test_conversions_that_would_drop():
    for convert in (lambda v: v.hex(), lambda v: v.as_integer_ratio(), "%f".__mod__):
        with pytest.raises(DroppedDerivativeError, match=r"tapegrad\.value"):
            tg.grad(lambda x, convert=convert: convert(x[0]) * x[1])(X)


# --- what compiled code says of a tracked value ---


def in_two_lines(x):
    return decimal.Decimal(x[0])


OUTSIDE = {
    "Decimal": in_two_lines,
    "pack": lambda x: struct.unpack("d", struct.pack("d", x[0]))[0],
    "pack_into": lambda x: struct.pack_into("d", x, 0, 1.0),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_compiled_code_refuses_is_an_error_of_ours(name):
    f, here = OUTSIDE[name], inspect.getsourcelines(OUTSIDE[name])[1]
    for call in (
        tg.grad(f),
        lambda v: tg.jvp(f, (v,), (v,)),
        lambda v: tg.grad(lambda u: tg.grad(f)(u)[0])(v),
    ):
        with pytest.raises(DroppedDerivativeError, match=r"tapegrad\.value\(x\)") as caught:
            call(np.array([0.7, -0.6, 0.9]))
        assert any(f"test_foreign_objects.py:{line}: " in str(caught.value) for line in (here, here + 1))
        assert caught.value.__cause__ is not None


@pytest.mark.parametrize(
    "error",
    [
        TypeError("what is a 'Variable'?"),
        SystemError("mine"),
        type("error", (Exception,), {})("mine"),
        TypeError("not Variable"),
    ],
)
def test_errors_of_the_function_itself_pass(error):
    def f(x):
        raise error

    with pytest.raises(type(error)) as caught:
        tg.grad(f)(np.ones(3))
    assert caught.value is error


def test_an_operator_that_python_refuses_is_pythons_own():
    with pytest.raises(TypeError, match="unsupported operand") as caught:
        tg.grad(lambda x: x[0] + "a")(np.ones(3))
    assert not isinstance(caught.value, tg.errors.TapegradError)


def test_a_list_that_a_vectorized_function_gives():
    """NumPy 2.4 gives the list itself, NumPy before it a copy."""

    def f(x):
        c = [0.5, 0.5]
        v = np.vectorize(lambda k: c, otypes=[object])
        c[1] = c[1] + x[0]
        v(1)[()][1] += x[1] * v(1)[()][1]
        return c[1] * x[1]

    x, h = np.array([0.3, 0.9]), 1e-6
    expected = [(f(x + h * e) - f(x - h * e)) / (2 * h) for e in np.eye(2)]
    np.testing.assert_allclose(tg.grad(f)(x), expected, rtol=1e-8)
