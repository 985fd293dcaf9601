"""Who gets called when a plain array meets a tracked Variable: every row gives the right derivative or a loud
error, never a
derivative dropped in silence.  The functions run without a shadow (`Const`), so that NumPy's and CuPy's own names are called."""

import copy
import functools
import math
import pickle

import numpy as np
import pytest
import scipy.interpolate
import scipy.linalg
import scipy.special
from comparison import host

import tapegrad as tg
from tapegrad.errors import DroppedDerivativeError, NoRuleError, TapegradError

A = np.array([0.5, 1.5, 2.0])
X = np.array([1.1, 0.7, 0.3])
W = np.array([1.0, -2.0, 0.5])
LOUD = (
    TypeError,
    ValueError,
    IndexError,
    NotImplementedError,
    AttributeError,
)  # tapegrad's errors are some of these too


def differences(f, x):
    h, g = 1e-6, np.zeros_like(x)
    for i in np.ndindex(x.shape):
        e = np.zeros_like(x)
        e[i] = h
        g[i] = (f(x + e) - f(x - e)) / (2 * h)
    return g


def weighted(xp, y):
    """A scalar of y, whatever its shape."""
    if isinstance(y, tuple):
        return sum(weighted(xp, v) for v in y)
    size = int(np.prod(y.shape)) if hasattr(y, "shape") else 1
    w = xp.asarray(np.cos(np.arange(size) + 1.0).reshape(getattr(y, "shape", ())))
    return (y * w).sum() if size > 1 or getattr(y, "shape", ()) else y * float(np.cos(1.0))


def check(xp, f, modes="grad jvp", shadow=False):
    """Gradient and tangent of f(xp, a, x) against differences of the plain NumPy function."""
    a = xp.asarray(A)
    right = differences(lambda x: float(weighted(np, f(np, A.copy(), x))), X)
    g = lambda x: weighted(xp, f(xp, a.copy(), x))
    g = g if shadow else tg.Const(g)
    np.testing.assert_allclose(host(tg.grad(g)(xp.asarray(X))), right, rtol=1e-6, atol=1e-7)
    _, t = tg.jvp(g, (xp.asarray(X),), (xp.asarray(W),))
    np.testing.assert_allclose(float(host(t)), right @ W, rtol=1e-6, atol=1e-7)


def spd(xp, x):
    return xp.eye(3) * 4 + x[:, None] * x[None, :]


RIGHT = {
    "a + v": lambda xp, a, v: a + v,
    "a - v": lambda xp, a, v: a - v,
    "a * v": lambda xp, a, v: a * v,
    "a / v": lambda xp, a, v: a / v,
    "a // v": lambda xp, a, v: a // v + v,
    "a % v": lambda xp, a, v: a % v,
    "a @ v": lambda xp, a, v: a @ v,
    "a ** v": lambda xp, a, v: a**v,
    "divmod(a, v)": lambda xp, a, v: divmod(a, v)[1],
    "a < v": lambda xp, a, v: (a < v) * v,
    "a == v": lambda xp, a, v: (a == v) * v + v,
    "a != v": lambda xp, a, v: (a != v) * v,
    "v + a": lambda xp, a, v: v + a,
    "v - a": lambda xp, a, v: v - a,
    "v * a": lambda xp, a, v: v * a,
    "v / a": lambda xp, a, v: v / a,
    "v // a": lambda xp, a, v: v // a + v,
    "v % a": lambda xp, a, v: v % a,
    "v @ a": lambda xp, a, v: v @ a,
    "v ** a": lambda xp, a, v: v**a,
    "2 ** v": lambda xp, a, v: 2**v,
    "2.0 - v": lambda xp, a, v: 2.0 - v,
    "abs(v), -v, +v": lambda xp, a, v: abs(-v) + +v,
    "np.float64 * v": lambda xp, a, v: np.float64(2) * v,
    "matrix @ v": lambda xp, a, v: xp.stack([a, 2 * a]) @ v,
    "np.sin(v)": lambda xp, a, v: np.sin(v),
    "np.add(a, v)": lambda xp, a, v: np.add(a, v),
    "np.sum(v)": lambda xp, a, v: np.sum(v * v),
    "np.where(m, v, a)": lambda xp, a, v: np.where(v > 0.5, v, a),
    "np.einsum": lambda xp, a, v: np.einsum("i,j->ij", a, v),
    "np.linalg.cholesky": lambda xp, a, v: np.linalg.cholesky(spd(xp, v)),
    "np.concatenate([a, v])": lambda xp, a, v: np.concatenate([a, v]),
    "np.zeros_like(v)": lambda xp, a, v: filled(np.zeros_like(v), v),
    "np.maximum.reduce": lambda xp, a, v: np.maximum.reduce(v),
    "np.add.reduce": lambda xp, a, v: np.add.reduce(v * v, axis=0),
    "np.add.accumulate": lambda xp, a, v: np.add.accumulate(v),
    "np.multiply.outer": lambda xp, a, v: np.multiply.outer(a, v),
    "np.sin(v, out=)": lambda xp, a, v: np.sin(v, out=np.empty_like(v)),
    "np.sin(v, out=, where=)": lambda xp, a, v: np.sin(v, out=v * 1, where=v > 0.5),
    "np.add(v, v, dtype=)": lambda xp, a, v: np.add(v, v, dtype=np.float64),
    "np.add.at(v, i, v)": lambda xp, a, v: added(np, v * 1, v),
    "np.sum(v, out=)": lambda xp, a, v: np.sum(v[:, None] * v, 0, None, np.empty_like(v)),
    "scipy.special on v": lambda xp, a, v: scipy.special.gammaln(v),
    # the library's own names
    "xp.sin(v)": lambda xp, a, v: xp.sin(v),
    "xp.exp(v) in float": lambda xp, a, v: xp.exp(v) * xp.sqrt(v),
    "xp.add(a, v)": lambda xp, a, v: xp.add(a, v),
    "xp.power(v, 2)": lambda xp, a, v: xp.power(v, 2),
    "xp.where(m, v, a)": lambda xp, a, v: xp.where(a > 1, v, a),
    "xp.clip(v)": lambda xp, a, v: xp.clip(v, 0.5, 1.0),
    "xp.maximum(a, v)": lambda xp, a, v: xp.maximum(a, v),
    "xp.sum(v)": lambda xp, a, v: xp.sum(v * v, axis=0),
    "xp.mean(v)": lambda xp, a, v: xp.mean(v * v),
    "xp.max(v)": lambda xp, a, v: xp.max(v),
    "xp.prod(v)": lambda xp, a, v: xp.prod(v),
    "xp.reshape(v)": lambda xp, a, v: xp.reshape(v, (3, 1)),
    "xp.transpose(v)": lambda xp, a, v: xp.transpose(v[None, :] * a[:, None]),
    "xp.outer(v, v)": lambda xp, a, v: xp.outer(v, v),
}

# On NumPy right; CuPy's own functions refuse an argument of another type.
RIGHT_ON_NUMPY = {
    "xp.dot(a, v)": lambda xp, a, v: xp.dot(a, v),
    "xp.matmul(a, v)": lambda xp, a, v: xp.matmul(a, v),
    "xp.stack([v])": lambda xp, a, v: xp.stack([v, v]),
    "xp.concatenate([a, v])": lambda xp, a, v: xp.concatenate([a, v]),
    "xp.einsum": lambda xp, a, v: xp.einsum("i,i->", a, v),
    "xp.cumsum(v)": lambda xp, a, v: xp.cumsum(v),
    "xp.broadcast_to(v)": lambda xp, a, v: xp.broadcast_to(v, (2, 3)),
    "xp.linalg.cholesky": lambda xp, a, v: xp.linalg.cholesky(spd(xp, v)),
    "xp.linalg.solve": lambda xp, a, v: xp.linalg.solve(spd(xp, v), v),
    "xp.zeros(like=v)": lambda xp, a, v: filled(xp.zeros(3, like=v), v),
    "xp.full(like=v)": lambda xp, a, v: filled(xp.full(3, 2.0, like=v), v),
    "xp.array([v0, v1], like=v)": lambda xp, a, v: xp.array([v[0], 2 * v[1]], like=v),
    "xp.sin(v, out=)": lambda xp, a, v: xp.sin(v, out=xp.empty_like(v)),
}


def filled(b, v):
    b[0] = v[0] * v[1]
    b[1:] = v[:2] ** 2
    return b


def added(lib, b, v):
    lib.add.at(b, [0, 0, 2], v * v)
    lib.subtract.at(b, [1], 3 * v[:1])
    return b


def assign(at):
    def f(xp, a, v):
        a[at] = v[at] if at is not Ellipsis else v
        return a

    return f


def fill_method(xp, a, v):
    a.fill(v[0])
    return a


def augmented(op):
    def f(xp, a, v):
        if op == "+":
            a += v
        elif op == "*":
            a *= v
        elif op == "@":
            b = xp.eye(3)
            b @= v[:, None] * v
            return b
        return a

    return f


def loop(xp, a, v):
    for i in range(3):
        a[i] = v[i]
    return a


LOSES = {
    "a += v": augmented("+"),
    "a *= v": augmented("*"),
    "a @= v": augmented("@"),
    "xp.add(a, v, out=a)": lambda xp, a, v: xp.add(a, v, out=a),
    "np.add(a, v, out=a)": lambda xp, a, v: np.add(a, v, out=a),
    "xp.add(a, v, a)": lambda xp, a, v: xp.add(a, v, a),
    "xp.add.at(a, i, v)": lambda xp, a, v: added(xp, a, v),
    "np.add.at(a, i, v)": lambda xp, a, v: added(np, a, v),
    "a[...] = v": assign(Ellipsis),
    "a[1] = v": assign(1),
    "a[[0, 1]] = v": assign([0, 1]),
    "a[mask] = v": lambda xp, a, v: assign(xp.asarray([True, False, True]))(xp, a, v),
    "a[:] = v": assign(slice(None)),
    "a[i] = v[i]": loop,
    "a.fill(v)": fill_method,
    "a.dot(v)": lambda xp, a, v: a.dot(v),
    "xp.asarray(v)": lambda xp, a, v: xp.asarray(v) * v,
    "np.asarray(v)": lambda xp, a, v: np.asarray(v) * v,
    "np.array(v)": lambda xp, a, v: np.array(v) * 2.0,
    "xp.array([v0, v1])": lambda xp, a, v: xp.array([v[0], v[1]]),
    "xp.asarray([v, v])": lambda xp, a, v: xp.asarray([v, v]),
    "xp.float64(v0)": lambda xp, a, v: xp.float64(v[0]) * v,
    "np.copyto(a, v)": lambda xp, a, v: (np.copyto(a, v), a)[1],
    "np.put(a, i, v)": lambda xp, a, v: (np.put(a, [0], v[:1]), a)[1],
    "np.fill_diagonal": lambda xp, a, v: (np.fill_diagonal(a[:, None] * a, v), a)[1],
    "a & v": lambda xp, a, v: a & v,
    "v & a": lambda xp, a, v: v & a,
    "a[v]": lambda xp, a, v: a[v],
    "float(v0)": lambda xp, a, v: float(v[0]) * v,
    "complex(v0)": lambda xp, a, v: complex(v[0]).real * v,
    "math.sin(v0)": lambda xp, a, v: math.sin(v[0]) * v,
    "v.tobytes": lambda xp, a, v: len(v.tobytes()) * v,
    "v.get": lambda xp, a, v: v.get() * v,
    "v.data": lambda xp, a, v: v.data,
    "memoryview(v)": lambda xp, a, v: memoryview(v),
    "v.ctypes": lambda xp, a, v: v.ctypes,
    "v.dumps": lambda xp, a, v: v.dumps(),
    "v.view": lambda xp, a, v: v.view(np.int64) * v,
    "v.resize()": lambda xp, a, v: v.resize(2),
    "v.__dlpack__": lambda xp, a, v: v.__dlpack__(),
    "np.from_dlpack(v)": lambda xp, a, v: xp.from_dlpack(v) * v,
    "v.__cuda_array_interface__": lambda xp, a, v: v.__cuda_array_interface__,
    "v.__array_interface__": lambda xp, a, v: v.__array_interface__,
    "pickle": lambda xp, a, v: pickle.loads(pickle.dumps(v)) * v,
    "np.histogram_bin_edges": lambda xp, a, v: np.histogram_bin_edges(v),
    "beta.accumulate": lambda xp, a, v: scipy.special.beta.accumulate(v),
    "np.vectorize": lambda xp, a, v: np.vectorize(lambda t: t * t)(v),
    "np.frompyfunc": lambda xp, a, v: np.frompyfunc(lambda t: t, 1, 1)(v),
    "np.nditer": lambda xp, a, v: sum(t for t in np.nditer(v)),
    "scipy.interpolate": lambda xp, a, v: scipy.interpolate.CubicSpline(A, v)(1.0),
    "scipy.linalg on v": lambda xp, a, v: scipy.linalg.cholesky(spd(xp, v)),
    "functools.reduce with sum into list": lambda xp, a, v: np.asarray(
        functools.reduce(lambda p, q: [*p, q], list(v), [])
    ),
    "where= without out=": lambda xp, a, v: np.sin(v, where=a > 1),
}
RIGHT_OR_LOUD = {
    "a @= v",
    "np.vectorize",
    "np.frompyfunc",
    "functools.reduce with sum into list",
    "a.dot(v)",
    "a[v]",
}


@pytest.mark.parametrize("row", RIGHT)
def test_right(xp, row):
    check(xp, RIGHT[row])


@pytest.mark.parametrize("row", RIGHT_ON_NUMPY)
def test_right_on_numpy_and_loud_on_cupy(xp, row):
    if xp is np:
        return check(xp, RIGHT_ON_NUMPY[row])
    right_or_loud(xp, RIGHT_ON_NUMPY[row])


@pytest.mark.parametrize("row", [*RIGHT, *RIGHT_ON_NUMPY])
def test_right_in_a_shadow(xp, row):
    """The same rows with the names of NumPy and CuPy meaning their twins: then all are right on both."""
    check(xp, {**RIGHT, **RIGHT_ON_NUMPY}[row], shadow=True)


@pytest.mark.parametrize("row", [r for r in LOSES if r not in RIGHT_OR_LOUD])
def test_loud(xp, row):
    a, x = xp.asarray(A), xp.asarray(X)
    f = tg.Const(lambda v: weighted(xp, LOSES[row](xp, a.copy(), v)))
    inside = tg.Const(lambda v: tg.grad(tg.Const(lambda u: f.value(u) + v.sum() * 0))(v).sum())
    for transform in (lambda: tg.grad(f)(x), lambda: tg.jvp(f, (x,), (x,)), lambda: tg.grad(inside)(x)):
        with pytest.raises(LOUD):
            transform()


def right_or_loud(xp, f):
    try:
        check(xp, f)
    except LOUD:
        pass


@pytest.mark.parametrize("row", sorted(RIGHT_OR_LOUD))
def test_right_or_loud(xp, row):
    right_or_loud(xp, LOSES[row])


def test_the_plain_array_is_untouched_by_a_refused_write(xp):
    a = xp.asarray(A)

    def f(v):
        for write in (lambda: a.__setitem__(Ellipsis, v), lambda: a.__iadd__(v), lambda: np.add(a, v, out=a)):
            with pytest.raises(LOUD):
                write()
        return v.sum()

    with pytest.raises(LOUD, match="`except` clause"):  # what was swallowed is raised again
        tg.grad(tg.Const(f))(xp.asarray(X))
    np.testing.assert_array_equal(host(a), A)


@pytest.mark.parametrize(
    "write",
    [lambda a, v: a.__setitem__(Ellipsis, v), lambda a, v: np.asarray(v), lambda a, v: float(v[0])],
)
def test_the_error_says_what_to_write_instead(write):
    with pytest.raises(DroppedDerivativeError, match=r"tapegrad\.value\(x\)"):
        tg.grad(tg.Const(lambda v: (write(A.copy(), v), v.sum())[1]))(X)


def test_one_element_of_a_plain_array_names_us_as_cause():
    with pytest.raises((TypeError, ValueError)) as info:
        tg.grad(tg.Const(lambda v: (A.copy().__setitem__(0, v[0]), v.sum())[1]))(X)
    chain = [info.value, info.value.__cause__, info.value.__context__]
    assert any(isinstance(e, DroppedDerivativeError) for e in chain)


@pytest.mark.parametrize("dtype", [np.dtypes.Float64DType, np.float64, "f8"])
def test_a_dtype_by_its_class_keeps_the_derivative(dtype):
    """NumPy's own code names a dtype by its class, of which `numpy.dtype` makes that of objects."""
    assert tg.grad(lambda x: np.subtract(x, 1.0, dtype=dtype) * x)(2.0) == 3.0


def test_objects_of_a_tracked_value_are_refused():
    with pytest.raises(TapegradError, match="dtype=object would drop the derivative"):
        tg.grad(lambda x: np.subtract(x, 1.0, dtype=object) * x)(2.0)
    assert np.subtract(2.0, 1.0, dtype=object) == 1.0


def test_function_without_rule_is_named():
    for f, name in (
        (np.histogram_bin_edges, "histogram_bin_edges"),
        (np.apply_along_axis, "apply_along_axis"),
    ):
        args = (lambda v: v, 0) if f is np.apply_along_axis else ()
        with pytest.raises(NoRuleError, match=f"numpy.{name} has no derivative rule"):
            tg.grad(tg.Const(lambda v: f(*args, v).sum()))(X)


def test_hash_and_equality(xp):
    def f(v):
        with pytest.raises(TypeError, match="unhashable"):
            hash(v)
        assert bool((v == v).all()) and not bool((xp.asarray(X) != v).any())
        return v.sum()

    tg.grad(tg.Const(f))(xp.asarray(X))


def test_case_42_int_and_bool(xp):
    def f(v):
        y = v[int(v[0])] if v[1] > 0.5 else v[2]
        while y < 3.0:
            y = y * 2.0
        return y

    np.testing.assert_array_equal(host(tg.grad(tg.Const(f))(xp.asarray(X))), [0, 8, 0])


def test_case_45_list_of_elements_in_a_shadow(xp):
    g = tg.grad(lambda v: (xp.array([v[0], v[1] * v[2]]) ** 2).sum())(xp.asarray(X))
    np.testing.assert_allclose(host(g), [2 * X[0], 2 * X[1] * X[2] ** 2, 2 * X[1] ** 2 * X[2]])


def test_case_49_left_operands(xp):
    g = tg.grad(tg.Const(lambda v: (xp.asarray(A) * v + np.float64(3.0) * v + 2 * v).sum()))(xp.asarray(X))
    np.testing.assert_allclose(host(g), A + 5)


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda v: copy.deepcopy([v])[0], lambda v: v.copy()]
)
def test_case_50_copies_keep_the_derivative(xp, copied):
    def f(v):
        w = copied(v)
        w[0] = 0.0
        return (w * v).sum()

    np.testing.assert_allclose(host(tg.grad(tg.Const(f))(xp.asarray(X))), [0, 2 * X[1], 2 * X[2]])


def test_case_52_printing(xp):
    def f(v):
        text = repr(v), str(v), f"{v}", f"{v[0]:.3f}", np.array2string(v) if xp is np else ""
        assert "1.1" in text[0] and text[3] == "1.100"
        return (v * v).sum()

    np.testing.assert_allclose(host(tg.grad(tg.Const(f))(xp.asarray(X))), 2 * X)


def test_contains_iteration_and_length(xp):
    def f(v):
        assert len(v) == 3 and 0.7 in v and 0.9 not in v and v.size == 3 and v.T.shape == (3,)
        m = v[:, None] * v
        for row in m:
            row *= 2.0
        return m.sum() + sum(e for e in v)

    np.testing.assert_allclose(host(tg.grad(tg.Const(f))(xp.asarray(X))), 4 * X.sum() + 1)


def test_untracked_variable_is_its_array():
    v = tg.Variable(A)
    assert float(v[0]) == 0.5 and v.tolist() == A.tolist() and np.asarray(v).tolist() == A.tolist()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(v)), A)
    np.testing.assert_allclose(scipy.interpolate.CubicSpline(v, v)(1.0), 1.0)
    assert np.unwrap(v).tolist() == np.unwrap(A).tolist()


def test_every_method_of_ndarray_answers():
    missing = [
        n for n in dir(np.ndarray) if not n.startswith("_") and not hasattr(type(tg.Variable(np.ones(2))), n)
    ]
    assert not missing


def test_methods(xp):
    m = np.arange(6.0).reshape(2, 3) + np.array([[1.0], [0.3]])

    def pairs(x):
        c = x > 2
        yield x.sum(axis=0), x.sum(0, None, None, True), x.mean(), x.prod(axis=1), x.std(), x.var(axis=0)
        yield x.max(axis=1), x.min(), x.cumsum(axis=1), x.cumprod(axis=0)
        yield (
            x.argmax(axis=1),
            x.argmin(),
            x.argsort(axis=-1),
            x.all(),
            x.any(axis=0),
            x.nonzero()[0],
            x.round(1),
        )
        yield (
            x.clip(1, 3),
            x.conj(),
            x.conjugate(),
            x.copy(),
            x.flatten(),
            x.ravel(),
            x.T,
            x.mT,
            x.real,
            x.imag,
            x.diagonal(1),
        )
        yield (
            x.reshape(3, 2),
            x.reshape((6,)),
            x.reshape(-1, order="F"),
            x.transpose(1, 0),
            x.transpose((1, 0)),
            x.swapaxes(0, 1),
        )
        yield (
            x.repeat(2, axis=0),
            x.take([0, 2], axis=1),
            x.trace(),
            x.squeeze(),
            x.dot(x.T),
            x.astype(np.float32),
            x.astype(int),
        )
        yield (
            x.compress([True, False, True], axis=1),
            x[c],
            x[0],
            x[:, 1],
            x.size,
            x.ndim,
            x.shape,
            x.nbytes,
            x.itemsize,
        )

    plain = [y for group in pairs(xp.asarray(m)) for y in group]
    seen = []
    tg.grad(tg.Const(lambda x: (seen.extend(tg.value(y) for group in pairs(x) for y in group), x.sum())[1]))(
        xp.asarray(m)
    )
    for ours, theirs in zip(seen, plain, strict=True):
        if hasattr(theirs, "dtype"):
            assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
            np.testing.assert_allclose(host(ours), host(theirs), rtol=1e-14)
        else:
            assert ours == theirs


def test_in_place_methods(xp):
    def f(v):
        b = v * 1.0
        b.sort()
        b.fill(2.0)
        b[1] = v[1]
        b += v
        b *= v
        b **= 2
        b -= 1.0
        b /= 2.0
        return b.sum()

    x = X
    right = np.array([(2 + x[0]), 2 * x[1], (2 + x[2])])  # b before the square is right * x
    slope = np.array([2 + 2 * x[0], 4 * x[1], 2 + 2 * x[2]])
    np.testing.assert_allclose(host(tg.grad(tg.Const(f))(xp.asarray(x))), right * x * slope)


def test_in_place_result_must_fit(xp):
    def f(v):
        w = v * 1.0
        with pytest.raises((ValueError, TapegradError)):
            w += v[:, None]
        return w.sum()

    tg.grad(tg.Const(f))(xp.asarray(X))


RANGES = {
    "operators": lambda z: np.sum(range(3) - z * (range(3) * z)),
    "ufuncs": lambda z: np.sum(np.multiply(z, range(3))) + np.sum(scipy.special.jv(range(3), z)),
    "whole orders": lambda z: np.sum(scipy.special.spherical_yn(range(3), z)),
    "functions": lambda z: (
        np.dot(range(3), z) + np.sum(np.where(z > 1, range(3), z)) + np.trapezoid(z, range(3))
    ),
    "indices and axes": lambda z: (
        z[range(2)] @ np.transpose(np.outer(z, z), range(1, -1, -1))[range(2), range(2)]
    ),
}


@pytest.mark.parametrize("name", RANGES)
def test_ranges_are_arrays(name):
    f, z, h = RANGES[name], np.array([0.7, 1.3, 1.9]), 1e-5
    value, gradient = tg.value_and_grad(f)(z)
    assert value == pytest.approx(float(f(z)), rel=1e-12)
    wanted = [(f(z + h * e) - f(z - h * e)) / (2 * h) for e in np.eye(3)]
    np.testing.assert_allclose(gradient, wanted, rtol=1e-7, atol=1e-8)
