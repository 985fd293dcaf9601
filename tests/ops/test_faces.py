"""`tapegrad.numpy`, `.cupy` and `.scipy`: every name is there, plain arguments give the library's own
results, and arrays made while a transform is open can be written with tracked values."""

import importlib
import sys
import types

import numpy as np
import pytest
import scipy.fft
import scipy.linalg
import scipy.special
from frames import calls

import tapegrad as tg
import tapegrad.numpy as tnp
import tapegrad.scipy as tsp
from tapegrad._dispatch import faces
from tapegrad.errors import ArgumentError, DroppedDerivativeError, NoRuleError
from tapegrad.ops import elementwise, reductions

rng = np.random.default_rng(0)
V, M, S = rng.random(4) + 0.5, rng.random((3, 4)), np.eye(3) * 4 + rng.random((3, 3)) @ np.ones((3, 3))
P = S @ S.T


def public(module):
    return [n for n in dir(module) if not n.startswith("_")]


PAIRS = [
    (np, tnp), (np.linalg, tnp.linalg), (np.fft, tnp.fft),
    (scipy.linalg, tsp.linalg), (scipy.special, tsp.special), (scipy.fft, tsp.fft),
]  # fmt: skip


@pytest.mark.parametrize("real, twin", PAIRS, ids=lambda m: m.__name__)
def test_every_name_is_there(real, twin):
    missing = [n for n in public(real) if not hasattr(twin, n)]
    assert not missing
    assert set(public(real)) <= set(dir(twin))


@pytest.mark.parametrize("real, twin", PAIRS, ids=lambda m: m.__name__)
def test_constants_and_types_are_the_librarys_own(real, twin):
    for name in public(real):
        x = getattr(real, name)
        if (
            name in ("ndarray", "r_", "c_", "errstate", "vectorize", "ndenumerate", "nditer", "broadcast")
            or callable(x)
            and not isinstance(x, type)
        ):
            continue
        if isinstance(x, types.ModuleType):
            assert getattr(twin, name).__name__ in (x.__name__, f"tapegrad.{real.__name__}.{name}")
        else:
            assert getattr(twin, name) is x or x != x or getattr(twin, name) == x


@pytest.mark.parametrize("name", ["linalg", "fft"])
def test_submodules_can_be_imported(name):
    module = importlib.import_module(f"tapegrad.numpy.{name}")
    assert module is getattr(tnp, name) and importlib.import_module(f"tapegrad.scipy.{name}") is getattr(
        tsp, name
    )


def test_faces_are_made_once():
    assert tnp.sum is tnp.sum and tnp.sin is tnp.sin and tnp.sum is not np.sum
    assert tnp.sum.__name__ == "sum" and tnp.sum.__doc__ == np.sum.__doc__ and tnp.sin.nin == 1
    with pytest.raises(AttributeError):
        tnp.no_such_function  # noqa: B018


def same(a, b):
    if isinstance(b, (tuple, list)):
        return type(a) is type(b) and len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and np.array_equal(
        a, b, equal_nan=getattr(np.asarray(b).dtype, "kind", "O") in "fc"
    )


UFUNCS = [n for n in public(np) if isinstance(getattr(np, n), np.ufunc)]


@pytest.mark.parametrize("name", UFUNCS)
def test_ufuncs_on_plain_arrays(name):
    ours, theirs = getattr(tnp, name), getattr(np, name)
    kinds = [np.array([0.5, 1.0, 0.25]), np.array([3, 1, 2]), np.array([True, False, True]), np.eye(3) + 1]
    for x in kinds:
        args = (x,) * theirs.nin
        with np.errstate(all="ignore"):
            try:
                right = theirs(*args)
            except (TypeError, ValueError):
                with pytest.raises((TypeError, ValueError)):
                    ours(*args)
                continue
            assert same(ours(*args), right)


CALLS = [
    ("sum", (M,), {"axis": 0}), ("sum", (M, 1, np.float32), {}), ("mean", (M,), {"keepdims": True}), ("std",
    (M,), {"ddof": 1}),
    ("where", (M > 0.5, M, 0), {}), ("where", (M > 0.5,), {}), ("einsum", ("ij,kj->ik", M, M), {}), ("dot",
    (M, V), {}),
    ("concatenate", ([M, M],), {"axis": 1}), ("stack", ([V, V],), {}), ("vstack", ([V, M],), {}), ("block",
    ([[M, M], [M, M]],), {}),
    ("array", ([1.0, 2.0],), {"dtype": np.float32}), ("asarray", (M,), {}), ("zeros", (3,), {}), ("ones", ((2,
    3),), {}),
    ("full", (3, 2.0), {}), ("arange", (5,), {}), ("linspace", (0, 1, 5), {}), ("eye", (3,), {"k": 1}),
    ("zeros_like", (M,), {}),
    ("full_like", (M, 2), {}), ("meshgrid", (V, V), {}), ("diag", (V,), {}), ("tril", (S,), {}), ("pad", (V,
    2), {"mode": "edge"}),
    ("tile", (V, 2), {}), ("repeat", (M, 2), {}), ("roll", (M, 1), {}), ("rot90", (M,), {}), ("take", (M, [0,
    1]), {}),
    ("sort", (M,), {}), ("argsort", (M,), {}), ("argmax", (M,), {}), ("unique", (np.array([1, 2, 1]),), {}),
    ("cumsum", (M,), {}),
    ("clip", (M, 0.2, 0.6), {}), ("interp", (0.3, V.cumsum(), V), {}), ("unwrap", (V,), {}), ("histogram", (V,
    ), {}),
    ("select", ([V > 1, V < 1], [V, -V]), {}), ("diff", (V,), {"n": 2}), ("split", (M, 2, 1), {}),
    ("atleast_2d", (V,), {}),
    ("broadcast_arrays", (V, M), {}), ("nan_to_num", (np.array([np.nan, 1]),), {}), ("allclose", (M, M), {}),
    ("shape", (M,), {}),
    ("isclose", (M, M), {}), ("result_type", (M, 1), {}), ("percentile", (M, 30), {}), ("median", (M,), {}),
    ("trace", (S,), {}),
    ("outer", (V, V), {}), ("kron", (V, V), {}), ("vander", (V,), {}), ("insert", (V, 1, 5), {}), ("delete",
    (V, 1), {}),
    ("linalg.inv", (S,), {}), ("linalg.cholesky", (P,), {}), ("linalg.solve", (S, V[:3]), {}), ("linalg.norm",
    (M,), {}),
    ("linalg.eigh", (P,), {}), ("fft.fft", (V,), {}), ("fft.irfft", (V,), {}), ("apply_along_axis", (np.sum,
    0, M), {}),
]  # fmt: skip


@pytest.mark.parametrize("name, args, kwargs", CALLS, ids=[c[0] for c in CALLS])
@pytest.mark.parametrize("inside", [False, True])
def test_plain_arguments_give_numpys_results(name, args, kwargs, inside):
    get = lambda module: __import__("functools").reduce(getattr, name.split("."), module)

    def compare():
        ours, theirs = get(tnp)(*args, **kwargs), get(np)(*args, **kwargs)
        if inside:
            ours = (
                tg._core.trees.tree_map(tg.value, ours) if isinstance(ours, (tuple, list)) else tg.value(ours)
            )
        theirs = tuple(theirs) if isinstance(theirs, tuple) else theirs
        ours = tuple(ours) if isinstance(ours, tuple) else ours
        assert same(ours, theirs)

    if inside:
        tg.grad(tg.Const(lambda x: (compare(), x)[1]))(1.0)
    else:
        compare()


def test_out_and_ufunc_methods_on_plain_arrays():
    out = np.zeros(4)
    assert tnp.sin(V, out=out) is out and np.array_equal(out, np.sin(V))
    assert tnp.add.reduce(V) == V.sum() and np.array_equal(
        tnp.maximum.accumulate(V), np.maximum.accumulate(V)
    )
    a = np.zeros(4)
    tnp.add.at(a, [0, 0], 1.0)
    assert a[0] == 2.0 and np.array_equal(tnp.multiply.outer(V, V), np.outer(V, V))
    assert np.array_equal(tnp.add.reduceat(V, [0, 2]), np.add.reduceat(V, [0, 2])) and tnp.add.identity == 0


MAKERS = {
    "zeros": lambda xp, x: xp.zeros(3),
    "ones": lambda xp, x: xp.ones(3),
    "empty": lambda xp, x: xp.empty(3),
    "full": lambda xp, x: xp.full(3, 2.0),
    "zeros_like": lambda xp, x: xp.zeros_like(x),
    "zeros_like of a plain array": lambda xp, x: xp.zeros_like(xp.ones(3)),
    "ones_like": lambda xp, x: xp.ones_like(x),
    "empty_like": lambda xp, x: xp.empty_like(x),
    "full_like": lambda xp, x: xp.full_like(x, 7.0),
    "eye": lambda xp, x: xp.eye(3)[0],
    "identity": lambda xp, x: xp.identity(3)[0],
    "array": lambda xp, x: xp.array([1.0, 2.0, 3.0]),
    "asarray": lambda xp, x: xp.asarray([1.0, 2.0, 3.0]),
    "array of Variables": lambda xp, x: xp.array([x[0], x[1], x[2]]),
    "copy": lambda xp, x: xp.copy(xp.ones(3)),
    "arange": lambda xp, x: xp.arange(3.0),
    "linspace": lambda xp, x: xp.linspace(0, 1, 3),
    "tile": lambda xp, x: xp.tile(xp.ones(1), 3),
    "concatenate": lambda xp, x: xp.concatenate([xp.ones(1), xp.ones(2)]),
    "complex": lambda xp, x: xp.zeros(3, dtype=complex),
    "diag": lambda xp, x: xp.diag(xp.ones(3))[0],
    "float32": lambda xp, x: xp.zeros(3, xp.float32),
}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("mode", ["face", "shadow"])
def test_arrays_made_inside_a_transform_take_tracked_values(xp, name, mode):
    space = tnp if xp is np else importlib.import_module("tapegrad.cupy")
    make = MAKERS[name]

    def f(x):
        b = make(xp if mode == "shadow" else space, x)
        b[...] = 0.0
        b[0] = x[0] ** 2
        b[1:] = x[1:] * 3
        return (b.real * b.real).sum()

    x = xp.asarray([1.0, 2.0, 3.0])
    right = [4.0, 36.0, 54.0]
    g = tg.grad(f if mode == "shadow" else tg.Const(f))(x)
    np.testing.assert_allclose(g.get() if xp is not np else g, right, rtol=1e-6)
    _, t = tg.jvp(f if mode == "shadow" else tg.Const(f), (x,), (x,))
    np.testing.assert_allclose(float(t), np.dot(right, [1, 2, 3]), rtol=1e-6)


@pytest.mark.parametrize("name", MAKERS)
def test_outside_a_transform_they_are_plain(xp, name):
    space = tnp if xp is np else importlib.import_module("tapegrad.cupy")
    x = xp.asarray([1.0, 2.0, 3.0])
    assert type(MAKERS[name](space, x)) is xp.ndarray
    tg.grad(lambda t: t * 2)(1.0)
    assert type(space.zeros(3)) is xp.ndarray


def test_integer_arrays_stay_plain_inside():
    tg.grad(tg.Const(lambda t: (type(tnp.zeros(3, int)) is np.ndarray or 1 / 0, t)[1]))(1.0)
    tg.grad(tg.Const(lambda t: (type(tnp.arange(3)) is np.ndarray or 1 / 0, t)[1]))(1.0)


def test_isinstance(xp):
    space = tnp if xp is np else importlib.import_module("tapegrad.cupy")
    a = xp.ones(3)
    assert isinstance(a, space.ndarray) and not isinstance(3.0, space.ndarray)
    assert issubclass(xp.ndarray, space.ndarray) and space.ndarray == xp.ndarray

    def f(x):
        assert isinstance(x, space.ndarray) and isinstance(x[1:], space.ndarray)
        return x.sum()

    tg.grad(tg.Const(f))(a)
    if xp is np:
        assert tnp.ndarray((2, 3)).shape == (2, 3) and tnp.ndarray.sum(a) == 3.0


def test_get_array_module(xp):
    cp = pytest.importorskip("tapegrad.cupy")
    space = tnp if xp is np else cp
    a = xp.ones(3)
    assert cp.get_array_module(a) is space and cp.get_array_module(2.0, a) is space
    tg.grad(tg.Const(lambda x: (cp.get_array_module(x) is space or 1 / 0, x.sum())[1]))(a)


def test_scipy_faces_take_either_library(xp):
    x = xp.asarray(V)
    right = scipy.special.gammaln(V)
    y = tsp.special.gammaln(x)
    assert type(y) is xp.ndarray
    np.testing.assert_allclose(y.get() if xp is not np else y, right, rtol=1e-12)


def test_errors_name_the_function():
    with pytest.raises(NoRuleError, match="numpy.histogram_bin_edges"):
        tg.grad(tg.Const(lambda x: tnp.histogram_bin_edges(x).sum()))(V)
    with pytest.raises(DroppedDerivativeError, match="plain array"):
        tg.grad(tg.Const(lambda x: tnp.sin(x, out=np.zeros(4)).sum()))(V)
    with pytest.raises(TypeError, match="where="):
        tg.grad(tg.Const(lambda x: tnp.sin(x, where=V > 1).sum()))(V)


def test_without_cupy_the_error_names_the_extras(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.delitem(sys.modules, "tapegrad.cupy", raising=False)
    with pytest.raises(ImportError, match=r"cuda12x.*cuda13x"):
        importlib.import_module("tapegrad.cupy")


def test_r_and_c():
    x = np.array([2.0, 3.0])
    assert same(tnp.r_[1:4, 0.5], np.r_[1:4, 0.5]) and same(tnp.c_[x, x], np.c_[x, x])
    np.testing.assert_array_equal(tg.grad(lambda v: (np.r_[v, 1.0, 0:2, v[0]] ** 2).sum())(x), [8.0, 6.0])
    np.testing.assert_array_equal(
        tg.jacobian(lambda v: np.c_[v, x * v])(x)[..., 0], [[[1.0, 2.0]], [[0.0, 0.0]]][0] + [[0.0, 0.0]]
    )


VECTOR, CUBE = np.arange(3.0) + 0.5, np.arange(12.0).reshape(2, 3, 2) * 1.1
JOINS = [
    ("r_", (M, M)), ("r_", (M, 2 * M, M)), ("r_", (VECTOR, 2.5, 0, 4)), ("r_", (VECTOR, slice(0, 3), 2.5)),
    ("r_", (VECTOR, [1, 2])),
    ("r_", (VECTOR, slice(0, 1, 5j))), ("r_", ("1", M, M)), ("r_", ("-1", M, M)), ("r_", ("0,2", VECTOR,
    VECTOR)), ("r_", (CUBE, CUBE)),
    ("r_", ("0,2,0", VECTOR, VECTOR)), ("r_", ("0,2,1", VECTOR, VECTOR)), ("r_", ("1,2,0", VECTOR, VECTOR)),
    ("c_", (VECTOR, VECTOR)),
    ("r_", ("0,3,0", VECTOR, np.ones((2, 1, 1)))), ("r_", ("0,3,-1", VECTOR, VECTOR)), ("r_", ("0,3,-2",
    VECTOR, VECTOR)), ("c_", (M, M)),
    ("c_", (CUBE, CUBE)), ("c_", (M, M[:, 0])), ("c_", (2.5, 1.5)), ("r_", (VECTOR.astype(np.float32),
    VECTOR)),
]  # fmt: skip


@pytest.mark.parametrize("name, parts", JOINS)
def test_r_and_c_join_as_numpys(name, parts):
    """All parts of floats move with x: the tangent is the join of the parts where they move and of zeros
    where they do not."""
    right = getattr(np, name)[parts]
    moves = lambda p: isinstance(p, (float, np.ndarray))
    move = lambda x: tuple([p * (1 + x) if moves(p) else p for p in parts])
    y, t = tg.jvp(lambda x: getattr(np, name)[move(x)], (0.0,), (1.0,))
    assert y.shape == right.shape and y.dtype == right.dtype and np.allclose(y, right)
    still = [p if moves(p) or isinstance(p, str) else np.r_[p] * 0 for p in parts]
    assert np.allclose(t, getattr(np, name)[tuple(still)])


def test_r_with_tracked_ends_of_a_range():
    y, t = tg.jvp(lambda x: np.r_[0.5:x:3j, x], (2.5,), (1.0,))
    assert np.allclose(y, [0.5, 1.5, 2.5, 2.5]) and np.allclose(t, [0.0, 0.5, 1.0, 1.0])


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("kind, row", [("r", True), ("c", False)])
def test_r_makes_matrices(kind, row):
    def f(x):
        y = np.r_[kind, 2.0 * x, 1.0]
        return np.asarray(y), isinstance(y, np.matrix)

    y, t = tg.jvp(lambda x: f(x)[0], (VECTOR,), (VECTOR,))
    joined = np.concatenate([2.0 * VECTOR, [1.0]])
    to = (1, -1) if row else (-1, 1)
    np.testing.assert_array_equal(y, joined.reshape(to))
    np.testing.assert_array_equal(t, np.concatenate([2.0 * VECTOR, [0.0]]).reshape(to))
    assert tg.vjp(f, VECTOR, has_aux=True)[-1] is True
    with tg.Tape() as tape, pytest.raises(ArgumentError, match=r"numpy\.r_\['r'"):
        tg.numpy.r_["r", tape.watch(VECTOR)]


@pytest.mark.parametrize("classes, most", [(set(), 4), ({type("Other", (), {})}, 5)])
def test_calls_of_a_face(classes, most, monkeypatch):
    """A face calls two functions more than the operation itself, and one more where there are subarrays."""
    monkeypatch.setattr(faces, "SUBARRAYS", classes)
    with tg.Tape() as tape:
        x = tape.watch(np.ones(3))
        for face, operation in ((tnp.sin, elementwise.sin), (tnp.sum, reductions.sum)):
            for _ in range(6):  # from then on the operation has code of its own
                face(x)
            assert calls(lambda face=face: face(x)) <= calls(lambda operation=operation: operation(x)) + most


@pytest.mark.cupy_only
@pytest.mark.parametrize("mode", ["face", "shadow"])
def test_host_to_device_and_back(xp, mode):
    cp = xp if mode == "shadow" else importlib.import_module("tapegrad.cupy")
    c = np.array([1.0, 2.0, 3.0])

    def f(x):
        y = cp.asarray(x) ** 2 * cp.asarray(c)
        return (cp.asnumpy(y) * x).sum() + float(cp.asarray(c).sum())

    f = f if mode == "shadow" else tg.Const(f)
    x = np.array([0.5, 1.0, 2.0])
    np.testing.assert_allclose(tg.grad(f)(x), 3 * c * x**2)
    np.testing.assert_allclose(tg.hessian(f)(x), np.diag(6 * c * x))
    np.testing.assert_allclose(tg.jvp(f, (x,), (c,))[1], (3 * c * x**2 * c).sum())
