"""Arrays with fields: captured or made inside, read, written, moved, and handed back field by field.

The reference is NumPy's plain call with fields of complex numbers, by complex steps."""

import copy

import numpy as np
import pytest
from numpy.lib import recfunctions

import tapegrad as tg

X = np.array([0.7, -1.2, 0.4])


def dtype(kind):
    return np.dtype([("x", kind), ("k", "i4"), ("v", kind)])


def pair(kind):
    return np.dtype([("x", kind), ("v", kind)])


def nested(kind):
    return np.dtype([("p", kind, (3,)), ("of", pair(kind)), ("name", "U3")])


def made_inside(kind):
    def f(x):
        a = np.zeros(3, dtype(kind))
        a["x"] = x
        a["v"][1:] = a["x"][:-1] * x[2]
        a["k"][:] = [1, 2, 3]
        return np.sum(a["x"] * a["v"] * a["k"]) + np.sum(a["v"] ** 2)

    return f


def captured(kind):
    a, others = np.ones(4, dtype(kind)), np.full(3, 2.0)

    def f(x):
        a["v"][:3] = others * x
        a["x"][1] = x[0] * x[1]
        a[0] = (x[2], 5, 1.5)
        a["k"][3] = 7
        return np.sum(a["x"] ** 2 * a["k"] + a["v"] ** 3)

    return f


def read_only(kind):
    a = np.zeros(3, dtype(kind))
    a["x"], a["v"], a["k"] = [1, 2, 3], [0.5, 0.1, 0.2], 4
    return lambda x: np.sum(a["x"] * x**2 + a["k"] * x * a["v"])


def views_as_aliases(kind):
    a = np.zeros(4, pair(kind))
    speeds, first, tail = a["v"], a[0], a[1:]

    def f(x):
        speeds[:3] = x
        a["x"][1] = x[1] ** 2
        tail["x"][1] = x[0] * x[2]
        first["x"] = np.prod(x)
        first["v"] *= x[1]
        return np.sum(a["x"] * a["v"]) + first["x"] * tail[0]["x"] + speeds[0] ** 2

    return f


def records(kind):
    def f(x):
        a = np.array([(x[0], 1, x[1]), (x[2] ** 2, 2, 0.5), (1.0, 3, x[0] * x[1])], dtype(kind))
        r, total = a[1], 0.0
        r["v"] = x[0] + r["x"]
        for e in a:
            x0, k, v = e
            total = total + x0 * k * v + e[0] * e["v"]
        a[0], a[2] = a[2], a[0]
        a[["x", "v"]] = a[["v", "x"]]
        return total + np.sum(a["x"] * [1.0, 2.0, 3.0]) + sum(a[-1].tolist()) + len(r)

    return f


def moved(kind):
    def f(x):
        a = np.zeros((2, 3), dtype(kind))
        a["x"], a["v"] = x, x**2 * [[1.0], [2.0]]
        b = np.concatenate([a.T, a.reshape(3, 2)], axis=1)
        c = np.where([[True], [False], [True]], b, b[::-1])
        d = np.repeat(c.copy(), 2, axis=0)[[0, 3, 2]].ravel()
        d["x"][0] = 3.0
        d = np.ascontiguousarray(np.array(np.asarray(d)))
        even, odd = np.split(np.roll(d, 1)[:12], 2)
        b["v"][0] *= 2.0
        w = np.arange(6.0)
        return np.sum(w * even["x"] * odd["v"]) + np.sum(a["v"]) + np.sum(np.zeros_like(a)["x"])

    return f


def masks_and_multiple_fields(kind):
    def f(x):
        a = np.zeros(3, dtype(kind))
        both = a[["v", "x"]]
        both["v"] = x
        both[1] = (x[0] ** 2, x[1])
        a["x"][a["k"] == 0] += x * 2.0
        chosen = a[np.array([True, False, True])]
        chosen["x"] *= 2.0
        a[2:] = a[:1]
        a.fill(0.0) if len(a) == 2 else None
        return np.sum(chosen["x"] * chosen["v"]) + np.sum(a["x"] ** 2 * a["v"])

    return f


def nested_fields(kind):
    a = np.zeros(2, nested(kind))
    inner = a["of"]["v"]

    def f(x):
        a["p"][0] = x
        a["p"][1, 1:] = x[:2] ** 2
        a["of"]["x"] = x[1:]
        a["of"][1]["v"] = x[0] * x[2]
        inner[0] = x[1]
        a[0]["p"][2] *= x[0]
        a["name"] = ["one", "two"]
        return np.sum(a["p"] ** 2) + np.sum(a["of"]["x"] * inner) * len(a["name"][0]) + a[1]["of"]["v"]

    return f


def other_memory(kind):
    def f(x):
        y = np.concatenate([x, x**2])
        a = y.view(pair(kind))
        a["v"][1] *= x[0]
        b = np.zeros(3, pair(kind))
        b[...] = [(x[0], 1.0), (x[1], x[2]), (2.0, x[0])]
        z = recfunctions.structured_to_unstructured(b)
        return np.sum(y**2) + np.sum(a["x"] ** 3) + np.sum(z @ z.T) + np.sum(b.view(kind) ** 2)

    return f


def record_arrays(kind):
    r = np.zeros(3, pair(kind)).view(np.recarray)

    def f(x):
        r.x = x
        r.v[1] = x[0] * r[1].x
        s = np.rec.fromarrays([x**2, [1, 2, 3]], names="a,n")
        s.a[0] = x[1]
        t = np.zeros(3, pair(kind)).view(np.recarray)
        t.v = s.a
        u = np.rec.fromrecords([(x[0], 1), (x[1] ** 2, 2)], names="a,n")
        w = np.rec.array([(x[2], 1.0), (x[1] ** 3, 2.0)], dtype=pair(kind))
        y = np.recarray(3, dtype=pair(kind))
        y.x, y.v = x * 2.0, u.a[0]
        return (
            np.sum(r.v * r.x)
            + np.sum(s.a * s.n)
            + np.sum(t[1:].v ** 2)
            + np.sum(u.a * u.n)
            + np.sum(w.x * w.v * w[1].x + np.sum(y.x * y.v))
        )

    return f


PROGRAMS = [
    *(made_inside, captured, read_only, views_as_aliases, records, moved, masks_and_multiple_fields),
    *(nested_fields, other_memory, record_arrays),
]


def slopes(make, x, directions=((1, 0, 0), (0, 1, 0), (0, 0, 1))):
    f = make(complex)
    return np.array([np.imag(f(x + 1e-30j * np.array(e))) * 1e30 for e in directions])


def curvature(make, x, v, h=1e-4):
    wide, near = [(slopes(make, x + s * v) - slopes(make, x - s * v)) / (2 * s) for s in (h, h / 2)]
    return (4 * near - wide) / 3


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
def test_derivatives(make):
    f, v = make(float), np.array([0.3, 1.0, -0.7])
    expected = slopes(make, X)
    for _ in range(3):  # a captured array keeps what a call has written
        value, gradient = tg.value_and_grad(f)(X)
        np.testing.assert_allclose(gradient, expected, rtol=1e-12)
    np.testing.assert_allclose(value, make(float)(X), rtol=1e-14)
    np.testing.assert_allclose(tg.jvp(f, (X,), (v,))[1], expected @ v, rtol=1e-12)
    np.testing.assert_allclose(tg.jacobian(f, mode="forward")(X), expected, rtol=1e-12)
    np.testing.assert_allclose(tg.hvp(f, X, v), curvature(make, X, v), rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(tg.jvp(tg.grad(f), (X,), (v,))[1], tg.hvp(f, X, v), rtol=1e-12)
    stack = np.stack([X, X[::-1], X**2])
    np.testing.assert_allclose(
        tg.vmap(tg.grad(f))(stack), np.stack([slopes(make, x) for x in stack]), rtol=1e-12
    )
    if make is not captured:  # it reads an element that it has not written
        p = tg.prepare(f, X)
        for x in stack:
            np.testing.assert_allclose(p.grad(x), slopes(make, x), rtol=1e-12)


def test_captured_arrays_hold_what_a_plain_call_leaves():
    a, b = [np.ones(4, dtype(float)) for _ in range(2)]

    def f(x, a):
        a["x"][1:] = x**2
        a["k"][0] = 9
        a[3] = (x[0], 8, x[1])
        return a["x"].sum()

    tg.grad(lambda x: f(x, a))(X)
    f(X, b)
    np.testing.assert_array_equal(a, b)
    assert type(a) is np.ndarray and type(a["x"][0]) is np.float64


def test_what_is_stored_is_an_array_with_fields():
    kept = {}
    a = np.zeros(3, pair(float))

    def f(x):
        a["x"] = x
        kept["whole"], kept["part"], kept["record"], kept["field"] = a, a[1:], a[2], a["x"]
        kept["new"] = np.zeros(2, pair(float))
        kept["new"]["v"] = x[:2]
        kept["of new"] = kept["new"][1:]
        kept["record array"] = a.view(np.recarray)
        kept["copy"] = copy.deepcopy(a)
        return np.sum(a["x"] ** 2)

    tg.grad(f)(X)
    assert kept["whole"] is a and type(kept["record array"]) is np.recarray
    assert all([np.shares_memory(kept[name], a) for name in ("part", "field", "record array")])
    assert type(kept["record"]) is np.void and kept["record"]["x"] == X[2]
    np.testing.assert_array_equal(kept["new"]["v"], X[:2])
    np.testing.assert_array_equal(kept["copy"], a)
    assert np.shares_memory(kept["new"], kept["of new"]) and not np.shares_memory(kept["copy"], a)
    np.testing.assert_array_equal(kept["record array"].x, X)


def with_values(x):
    a = np.zeros(3, dtype(float))
    a["x"], a["v"] = x, [3.0, 1.0, 2.0]
    return a


def test_answers_of_values_are_plain():
    def f(x):
        a = with_values(x)
        order = np.argsort(a, order="v")
        same = a == a[::-1]
        assert isinstance(a, np.ndarray) and isinstance(a[0], np.void) and a.dtype.names == ("x", "k", "v")
        assert a.shape == (3,) and len(a) == 3 and a.ndim == 1 and a.size == 3 and a.itemsize == 20
        assert same.tolist() == [False, True, False] and "0.7" in str(a)
        b = np.sort(a, order="v")
        a.sort(order="x")
        return np.sum(b["x"] * [1.0, 2.0, 3.0]) + np.sum(a["x"] * [1.0, 2.0, 3.0]) + order[0]

    expected = np.array([3.0, 1.0, 2.0]) + np.array([3.0, 1.0, 2.0])
    np.testing.assert_array_equal(tg.grad(f)(X), expected)


def into_integers(a, x):
    a["k"][0] = x[0]


def into_integers_of_a_record(a, x):
    a[0]["k"] = x[0]


def into_integers_by_a_tuple(a, x):
    a[0] = (1.0, x[0], 2.0)


def bytes_of_it(a, x):
    a.tobytes()


def flat_iterator(a, x):
    next(a.flat)


def copied_into(a, x):
    np.copyto(a, a[::-1])


def distinct(a, x):
    np.unique(a)


def without_zeros(a, x):
    a["x"][0] = a["v"][0] = a["k"][0] = 0
    np.trim_zeros(a)


def field_of_objects(a, x):
    np.zeros(2, [("x", float), ("o", object)])["x"][0] = x[0]


def to_other_fields(a, x):
    a.astype(pair(float))


REFUSED = [
    *(into_integers, into_integers_of_a_record, into_integers_by_a_tuple, bytes_of_it, flat_iterator),
    *(copied_into, distinct, without_zeros, field_of_objects, to_other_fields),
]


@pytest.mark.parametrize("use", REFUSED, ids=lambda use: use.__name__)
def test_refusals(use):
    def f(x):
        a = with_values(x)
        use(a, x)
        return a["x"].sum()

    with pytest.raises((tg.errors.TapegradError, TypeError)):
        tg.grad(f)(X)


def test_a_copy_of_all_fields_and_its_source_are_not_written():
    def f(x):
        a = np.zeros(3, pair(float))
        a["x"] = x
        both = recfunctions.structured_to_unstructured(a)
        a["x"] *= 2.0
        return both.sum()

    with pytest.raises(tg.errors.AliasError):
        tg.grad(f)(X)


def random_program(seed):
    """make(kind) of a random program: writes and reads of arrays with fields, their views and records."""
    choices = np.random.default_rng(seed).integers(0, 2**31, (14, 5))

    def make(kind):
        to = [pair, dtype][seed % 2](kind)
        outside = np.ones((4, 2), to)
        alias = outside[1:]["v"]

        def f(x):
            arrays, values, total = [outside, np.zeros((4, 2), to)], [x[0], x[1] * x[2]], 0.0
            for what, i, j, k, m in choices.tolist():
                a, name = arrays[i % len(arrays)], ("x", "v")[j % 2]
                v, row = values[k % len(values)], m % len(a)
                match what % 11:
                    case 0:
                        a[name][row] = v
                    case 1:
                        a[row][name] *= v if a.ndim == 1 else 0.5
                    case 2:
                        arrays.append(a[::-1] if m % 2 else a[: max(row, 1)])
                    case 3:
                        b = arrays[j % len(arrays)]
                        arrays.append(
                            np.concatenate([a, b.copy()])[:4] if a.ndim == b.ndim == 2 else a.copy()
                        )
                    case 4:
                        a[row] = a[-1 - row]
                    case 5:
                        arrays.append(a[[row, 0, row]])
                    case 6:
                        a[["x", "v"]] = a[["v", "x"]]
                    case 7:
                        values.append(np.sum(a[name] * 0.3) + v)
                    case 8:
                        alias[row % 3, 0] = v * 0.5
                    case 9:
                        arrays.append(a.T[0] if a.ndim == 2 else a)
                    case 10:
                        a[name][...] = a[("v", "x")[j % 2]] * v
            for a in arrays:
                total = total + np.sum(a["x"] * 1.3 + a["v"] * a["x"])
            return total + np.sum(alias) + values[-1]

        return f

    return make


@pytest.mark.parametrize("seed", [0, 1, *[pytest.param(k, marks=pytest.mark.long) for k in range(2, 200)]])
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_random_programs(seed):
    make = random_program(seed)
    expected = np.concatenate([slopes(make, X, [e]) for e in np.eye(3)])  # each from the same contents
    assert np.isfinite(expected).all()
    scale = 1e-12 * np.max(np.abs(expected), initial=1.0)
    np.testing.assert_allclose(tg.jvp(make(float), (X,), (X,))[1], expected @ X, rtol=1e-11, atol=scale)
    np.testing.assert_allclose(tg.grad(make(float))(X), expected, rtol=1e-11, atol=scale)


@pytest.mark.parametrize("name", ["a", "b"])
def test_windows_of_a_field_that_share_elements(name):
    """An element in two windows takes the cotangents of both."""
    field = np.zeros(3, [("a", float), ("b", float)])[name]
    windows = np.lib.stride_tricks.sliding_window_view(field, 2)

    def f(x):
        field[...] = x * 0.8
        return (windows * windows).sum()

    x = np.array([0.3, 0.5, 0.7])
    np.testing.assert_allclose(tg.grad(f)(x), 1.28 * x * [1.0, 2.0, 1.0])
