"""Hosted CuPy against NumPy: the same program on both, then CuPy's own ways, then dispatch of foreign
objects.

A case is a function `f(xp, c)`: `xp` is numpy or cupy, `c` puts a NumPy array on that side. Shapes and
types of the results must agree, values too: exactly for what is done element by element, closely for sums
and linear algebra.
"""

import functools
import gc
import tracemalloc

import numpy as np
import pytest
import scipy.linalg
import scipy.special

from tapegrad.testing import hosted as hosted_cupy

pytest.importorskip("cupy_backends")
if hosted_cupy.real_device():
    pytest.skip("a CUDA device answers: hosted CuPy is for machines without one", allow_module_level=True)

cupy = hosted_cupy.install()

import cupyx  # noqa: E402
import cupyx.scipy.linalg  # noqa: E402
import cupyx.scipy.special  # noqa: E402

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 4))
Y = RNG.normal(size=4)
U = RNG.uniform(0.1, 0.9, size=(3, 4))
I = RNG.integers(1, 9, size=(3, 4))
Z = X + 1j * RNG.normal(size=(3, 4))
B = RNG.normal(size=(2, 3, 3))
S = B @ B.swapaxes(-1, -2) + 3 * np.eye(3)  # a batch of positive definite matrices
A = RNG.normal(size=(4, 4))
A = A @ A.T + 4 * np.eye(4)
F32 = X.astype(np.float32)


def on_host(v):
    return v.copy()


def results(f):
    """The results of the case on both sides, each as a list."""
    with np.errstate(all="ignore"):
        expected, got = f(np, on_host), f(cupy, hosted_cupy.to_device)
    if isinstance(expected, (tuple, list)):
        assert isinstance(got, (tuple, list)) and len(got) == len(expected)
        return list(expected), list(got)
    return [expected], [got]


def agree(f, exact):
    for e, g in zip(*results(f), strict=True):
        assert type(g) is cupy.ndarray
        assert g.shape == np.shape(e)
        assert g.dtype == np.asarray(e).dtype
        tolerance = 0 if exact else (1e-5 if g.dtype.char in "fF" else 1e-12)
        np.testing.assert_allclose(hosted_cupy.host_view(g), e, rtol=tolerance, atol=tolerance)


def parametrized(cases):
    return pytest.mark.parametrize("f", list(cases.values()), ids=list(cases))


# ---------------------------------------------------------------------------------------- element by element

UNARY = (
    "sin cos tan arctan sinh cosh tanh arcsinh exp expm1 exp2 cbrt square negative positive absolute fabs "
    "sign floor ceil rint trunc isnan isinf isfinite signbit real imag conj conjugate angle sinc deg2rad "
    "rad2deg degrees radians log log2 log10 log1p sqrt reciprocal nan_to_num logical_not isneginf "
    "isposinf iscomplex isreal around i0 fix"
).split()
UNIT = "arcsin arccos arctanh log log2 log10 log1p sqrt".split()
BINARY = (
    "add subtract multiply divide true_divide floor_divide remainder mod fmod power float_power maximum "
    "minimum fmax fmin arctan2 hypot logaddexp logaddexp2 copysign heaviside nextafter less less_equal "
    "greater greater_equal equal not_equal logical_and logical_or logical_xor"
).split()
INTEGER = (
    "add subtract multiply floor_divide remainder power bitwise_and bitwise_or bitwise_xor gcd lcm".split()
)
INEXACT = {"around", "i0", "sinc"}


@pytest.mark.filterwarnings("ignore:numpy.fix is deprecated")  # (from NumPy 2.5 on)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    agree(lambda xp, c: getattr(xp, name)(c(X)), name not in INEXACT)


@pytest.mark.parametrize("name", UNIT)
def test_unary_on_the_unit_interval(name):
    agree(lambda xp, c: getattr(xp, name)(c(U)), True)


@pytest.mark.parametrize("name", ["arccosh"])
def test_unary_above_one(name):
    agree(lambda xp, c: getattr(xp, name)(c(1 + U)), True)


@pytest.mark.parametrize("name", "sin exp log sqrt square absolute negative real imag conj angle".split())
def test_unary_complex(name):
    agree(lambda xp, c: getattr(xp, name)(c(Z)), False)


@pytest.mark.parametrize("dtype", "b i l B L e f F".split())
@pytest.mark.parametrize("name", "exp sqrt square absolute".split())
def test_result_types(name, dtype):
    assert getattr(cupy, name)(cupy.ones(3, dtype)).dtype == getattr(np, name)(np.ones(3, dtype)).dtype


@pytest.mark.parametrize("name", BINARY)
def test_binary(name):
    agree(lambda xp, c: getattr(xp, name)(c(X), c(Y)), True)
    agree(lambda xp, c: getattr(xp, name)(c(X), 2.0), True)
    agree(lambda xp, c: getattr(xp, name)(2.0, c(X)), True)


@pytest.mark.parametrize("name", INTEGER)
def test_integer(name):
    agree(lambda xp, c: getattr(xp, name)(c(I), c(I[::-1])), True)
    agree(lambda xp, c: getattr(xp, name)(c(I), 3), True)


OPERATORS = {
    "mixed": lambda xp, c: c(X) * 2 + c(Y) / 3 - 1,
    "negated square": lambda xp, c: -(c(X) ** 2),
    "cube": lambda xp, c: c(X) ** 3,
    "power of two": lambda xp, c: 2.0 ** c(X),
    "root of abs": lambda xp, c: abs(c(X)) ** 0.5,
    "reflected": lambda xp, c: 1 - 1 / c(X),
    "floor and mod": lambda xp, c: c(X) // 0.3 + c(X) % 0.3,
    "divmod": lambda xp, c: divmod(c(X), 0.3),
    "comparison": lambda xp, c: (c(X) > 0) & (c(X) < 1) | ~(c(X) >= c(Y)),
    "shifts": lambda xp, c: (c(I) << 2) >> 1,
    "float32 and int": lambda xp, c: c(F32) * 2,
    "float32 and float": lambda xp, c: c(F32) + 0.1,
    "float32 and numpy float64": lambda xp, c: c(F32) + np.float64(1),
    "int32 divided": lambda xp, c: c(I.astype(np.int32)) / 3,
    "int power": lambda xp, c: xp.power(c(np.arange(5)), 2),
    "int8 and int": lambda xp, c: c(np.arange(4, dtype=np.int8)) + 1,
    "where": lambda xp, c: xp.where(c(X) > 0, c(X), 0.0),
    "where of one": lambda xp, c: xp.where(c(X) > 0),
    "clip": lambda xp, c: xp.clip(c(X), -0.5, 0.5),
    "clip from below": lambda xp, c: xp.clip(c(X), 0.0, None),
    "clip method": lambda xp, c: c(X).clip(-0.5, 0.5),
    "isclose": lambda xp, c: xp.isclose(c(X), c(X) + 1e-12),
    "round": lambda xp, c: xp.round(c(I * 1.26), 1),
    "modf": lambda xp, c: xp.modf(c(X)),
    "frexp": lambda xp, c: xp.frexp(c(X)),
    "ldexp": lambda xp, c: xp.ldexp(c(X), c(I)),
    "nan_to_num": lambda xp, c: xp.nan_to_num(
        c(np.array([np.nan, np.inf, -np.inf, 1.0])), nan=2.0, posinf=3.0
    ),
    "real and imag": lambda xp, c: (c(Z).real.copy(), c(Z).imag + 1, c(Z).conj()),
    "complex product": lambda xp, c: c(Z) * c(X),
    "0-d": lambda xp, c: c(np.array(2.0)) * 3 + c(np.array(1.0)),
    "empty": lambda xp, c: c(np.zeros((0, 3))) + 1,
}


@parametrized(OPERATORS)
def test_operators(f):
    agree(f, False)


SPECIAL_NAMES = (
    "gammaln gamma digamma erf erfc erfcx erfinv erfcinv ndtr log_ndtr ndtri expit logit log_expit entr "
    "i0 i1 i0e i1e j0 j1 k0 k1 y0 y1 rgamma loggamma exp1 expi cosm1 exp10 ellipk kl_div rel_entr"
).split()


@pytest.mark.parametrize("name", SPECIAL_NAMES)
@pytest.mark.parametrize("dtype", "df")
def test_special_unary(name, dtype):
    ours, theirs = getattr(cupyx.scipy.special, name), getattr(scipy.special, name)
    x = (U.astype(dtype),) * theirs.nin
    agree(lambda xp, c: theirs(*map(c, x)) if xp is np else ours(*map(c, x)), False)


SPECIAL_BINARY = {
    "xlogy": (U, U),
    "xlog1py": (U, U),
    "zeta": (1.5 + U, 1 + U),
    "polygamma": (np.array([[1], [2], [3]]), 1 + U),
    "beta": (U, U),
    "betaln": (U, U),
    "gammainc": (U, U),
    "gammaincc": (U, U),
    "betainc": (U, U, U),
    "gammaincinv": (U, U),
    "huber": (U, X),
    "poch": (U, U),
    "binom": (I * 1.0, U),
    "expn": (I, U),
}


@pytest.mark.parametrize("name", SPECIAL_BINARY)
def test_special_of_several(name):
    ours, theirs = getattr(cupyx.scipy.special, name), getattr(scipy.special, name)
    agree(lambda xp, c: (theirs if xp is np else ours)(*map(c, SPECIAL_BINARY[name])), False)


def special(xp):
    return scipy.special if xp is np else cupyx.scipy.special


SPECIAL_REDUCED = {
    "logsumexp": lambda xp, c: special(xp).logsumexp(c(X), axis=1),
    "logsumexp all": lambda xp, c: xp.asarray(special(xp).logsumexp(c(X))),
    "softmax": lambda xp, c: special(xp).softmax(c(X), axis=0),
    "log_softmax": lambda xp, c: special(xp).log_softmax(c(X), axis=1),
    "multigammaln": lambda xp, c: special(xp).multigammaln(3 + c(U), 2),
    "by hand": lambda xp, c: xp.log(xp.sum(xp.exp(c(X) - c(X).max(1)[:, None]), axis=1)) + c(X).max(1),
}


@parametrized(SPECIAL_REDUCED)
def test_special_reduced(f):
    agree(f, False)


# ------------------------------------------------------------------------------------------------ reductions

N = np.where(X > 1, np.nan, X)
REDUCED = "sum prod max min amax amin mean var std median any all argmax argmin ptp count_nonzero".split()
KEYWORDS = ({}, {"axis": 0}, {"axis": -1}, {"axis": 1, "keepdims": True}, {"axis": (0, 1)})


def takes(name, keywords):
    if name == "count_nonzero":
        return "keepdims" not in keywords
    return not (name.startswith("arg") and keywords.get("axis") == (0, 1))


def applied(name, array, place=None, **keywords):
    """The case that calls function `name` of xp, or of its module `place`, on the array."""

    def f(xp, c):
        return getattr(getattr(xp, place) if place else xp, name)(c(array), **keywords)

    return f


REDUCTIONS = {f"{n} {k}": applied(n, X, **k) for n in REDUCED for k in KEYWORDS if takes(n, k)}
REDUCTIONS |= {
    "nansum": lambda xp, c: xp.nansum(c(N), axis=0),
    "nanmax": lambda xp, c: xp.nanmax(c(N), axis=0),
    "nanmean": lambda xp, c: xp.nanmean(c(N), axis=1),
    "nanvar": lambda xp, c: xp.nanvar(c(N), axis=1),
    "nanprod": lambda xp, c: xp.nanprod(c(N)),
    "max with nan": lambda xp, c: xp.max(c(N), axis=0),
    "var ddof": lambda xp, c: xp.var(c(X), axis=1, ddof=1),
    "std method": lambda xp, c: c(X).std(0),
    "sum of bool": lambda xp, c: (c(X) > 0).sum(0),
    "sum of int32": lambda xp, c: c(I.astype(np.int32)).sum(),
    "sum of float32": lambda xp, c: c(F32).sum(1),
    "sum dtype": lambda xp, c: c(F32).sum(1, dtype=np.float64),
    "sum of complex": lambda xp, c: c(Z).sum(0),
    "mean of int": lambda xp, c: c(I).mean(0),
    "sum of empty": lambda xp, c: c(np.zeros((0, 3))).sum(0),
    "sum of nothing": lambda xp, c: xp.sum(c(np.zeros((2, 0))), axis=1),
    "cumsum": lambda xp, c: xp.cumsum(c(X), 1),
    "cumsum flat": lambda xp, c: c(X).cumsum(),
    "cumsum of bool": lambda xp, c: xp.cumsum(c(X) > 0, 0),
    "cumprod": lambda xp, c: xp.cumprod(c(X), axis=0),
    "average": lambda xp, c: xp.average(c(X), axis=0, weights=c(U)),
    "quantile": lambda xp, c: xp.quantile(c(X), 0.3, axis=1),
    "percentile": lambda xp, c: xp.percentile(c(X), c(np.array([10.0, 60.0]))),
    "trace": lambda xp, c: xp.trace(c(A)),
    "sum out": lambda xp, c: xp.sum(c(X), axis=0, out=xp.empty(4)),
    "diff": lambda xp, c: xp.diff(c(X), axis=1),
    "add.reduce": lambda xp, c: xp.add.reduce(c(X), axis=0),
}


@parametrized(REDUCTIONS)
def test_reductions(f):
    agree(f, False)


# ---------------------------------------------------------------------------------------- making and shaping

CREATION = {
    "zeros": lambda xp, c: xp.zeros((2, 3)),
    "ones": lambda xp, c: xp.ones((2, 3), dtype=np.float32),
    "full": lambda xp, c: xp.full((2, 2), 3.5),
    "empty times zero": lambda xp, c: xp.empty_like(c(X), dtype=int) * 0,
    "eye": lambda xp, c: xp.eye(3, 4, k=1),
    "identity": lambda xp, c: xp.identity(3),
    "arange": lambda xp, c: (xp.arange(5.0), xp.arange(2, 9, 3), xp.arange(0, 1, 0.3)),
    "linspace": lambda xp, c: (xp.linspace(0.0, 1.0, 7), xp.linspace(0, 1, 4, endpoint=False)),
    "tri": lambda xp, c: xp.tri(3, 4, 1),
    "like": lambda xp, c: (xp.zeros_like(c(X)), xp.ones_like(c(I)), xp.full_like(c(X), 2.0)),
    "array": lambda xp, c: (xp.array([1.0, 2.0]), xp.array([[1, 2], [3, 4]]), xp.array(3.0), xp.array(True)),
    "array of arrays": lambda xp, c: xp.array([c(Y), c(Y)]),
    "array copies": lambda xp, c: xp.array(c(X)) + xp.asarray(c(X)),
    "ascontiguousarray": lambda xp, c: xp.ascontiguousarray(c(X).T),
    "asfortranarray": lambda xp, c: xp.asfortranarray(c(X)),
    "astype": lambda xp, c: (
        c(X).astype(np.float32),
        c(X).astype(int),
        c(X > 0).astype(float),
        c(X).astype(complex),
    ),
    "copy": lambda xp, c: (c(X).copy(), xp.copy(c(X).T), c(X).T.copy()),
    "meshgrid": lambda xp, c: tuple(xp.meshgrid(c(Y), c(X[:, 0]))),
    "indices": lambda xp, c: xp.indices((2, 3)),
    "logspace": lambda xp, c: xp.logspace(0.0, 1.0, 4),
}
SHAPING = {
    "reshape": lambda xp, c: (
        c(X).reshape(2, 6),
        c(X).reshape(-1),
        c(X).T.reshape(2, 6),
        xp.reshape(c(X), (4, 3)),
    ),
    "ravel": lambda xp, c: (c(X).ravel(), c(X).T.ravel(), c(X).flatten(), xp.ravel(c(X))),
    "transpose": lambda xp, c: (c(X).T, xp.transpose(c(B), (2, 0, 1)), c(B).transpose(0, 2, 1)),
    "moveaxis": lambda xp, c: (xp.moveaxis(c(B), 0, -1), xp.swapaxes(c(B), 0, 1), xp.rollaxis(c(B), 2)),
    "expand and squeeze": lambda xp, c: (xp.expand_dims(c(Y), 0), xp.squeeze(c(X)[:1]), c(Y)[None, :, None]),
    "broadcast_to": lambda xp, c: xp.broadcast_to(c(Y), (3, 4)) + 0,
    "broadcast_arrays": lambda xp, c: tuple(xp.broadcast_arrays(c(Y), c(X))),
    "concatenate": lambda xp, c: xp.concatenate([c(X), c(X)], axis=1),
    "concatenate views": lambda xp, c: xp.concatenate([c(X)[:, ::-1], c(X)[:, :2], c(F32)], axis=1),
    "concatenate flat": lambda xp, c: xp.concatenate([c(X), c(Y)], axis=None),
    "concatenate unequal": lambda xp, c: xp.concatenate([c(X), c(X)[:2], c(X)[:1]], axis=0),
    "concatenate many": lambda xp, c: xp.concatenate([c(Y) + i for i in range(9)]),
    "stack": lambda xp, c: (xp.stack([c(Y), c(Y)]), xp.stack([c(Y), c(Y)], axis=1)),
    "vstack": lambda xp, c: (xp.vstack([c(Y), c(X)]), xp.hstack([c(Y), c(Y)]), xp.dstack([c(X), c(X)])),
    "column_stack": lambda xp, c: xp.column_stack([c(Y), c(Y)]),
    "split": lambda xp, c: tuple(xp.split(c(Y), 2)) + tuple(xp.array_split(c(Y), 3)),
    "pad": lambda xp, c: (xp.pad(c(X), 1), xp.pad(c(X), ((0, 1), (2, 0)), mode="edge")),
    "tile": lambda xp, c: (xp.tile(c(Y), 2), xp.tile(c(X), (2, 2))),
    "repeat": lambda xp, c: (xp.repeat(c(X), 2, axis=1), xp.repeat(c(Y), 3), xp.repeat(c(Y), [1, 0, 2, 1])),
    "roll": lambda xp, c: (xp.roll(c(Y), 1), xp.roll(c(X), 2, axis=1), xp.roll(c(X), (1, 2), (0, 1))),
    "flip": lambda xp, c: (xp.flip(c(X)), xp.fliplr(c(X)), xp.flipud(c(X)), xp.rot90(c(X))),
    "diag": lambda xp, c: (
        xp.diag(c(A)),
        xp.diag(c(Y)),
        xp.diag(c(Y), 1),
        xp.diagonal(c(B), axis1=1, axis2=2),
    ),
    "diagflat": lambda xp, c: xp.diagflat(c(Y)),
    "tril": lambda xp, c: (xp.tril(c(A)), xp.triu(c(A), 1), xp.tril(c(B), -1)),
    "atleast": lambda xp, c: (xp.atleast_1d(c(np.array(1.0))), xp.atleast_2d(c(Y)), xp.atleast_3d(c(Y))),
    "append": lambda xp, c: xp.append(c(Y), c(Y)),
}


@parametrized(CREATION | SHAPING)
def test_creation_and_shaping(f):
    agree(f, True)


# -------------------------------------------------------------------------------------------------- indexing

J = np.array([3, 1, 1])


def changed(change):
    """A case that changes a copy of X in place and returns it."""

    def f(xp, c):
        a = c(X)
        change(a, xp, c)
        return a

    return f


def in_place(a, xp, c):
    a += 1
    a *= c(Y)
    a -= a.mean(0)
    a /= 2
    a **= 2


def through_a_view(a, xp, c):
    v = a[1:, ::2]
    v += 10
    v[...] = v * 2


def scatter_add(a, xp, c, index, values):
    np.add.at(a, index, values) if xp is np else cupyx.scatter_add(a, index, values)


INDEXING = {
    "basic": lambda xp, c: (c(X)[1, 2], c(X)[1:, ::-1], c(X)[..., None][0], c(X)[-1], c(X)[:, 1], c(X)[()]),
    "rows": lambda xp, c: c(X)[[0, 2, 0]],
    "columns": lambda xp, c: c(X)[:, c(J)],
    "negative": lambda xp, c: c(X)[:, c(-J)],
    "pairs": lambda xp, c: c(X)[c(np.array([0, 1])), c(np.array([1, 3]))],
    "pairs apart": lambda xp, c: c(B)[c(np.array([0, 1])), :, c(np.array([1, 2]))],
    "outer": lambda xp, c: c(X)[c(np.array([[0], [2]])), c(J)],
    "index and slice": lambda xp, c: c(B)[0, :, c(np.array([0, 2]))],
    "0-d index": lambda xp, c: c(X)[c(np.array(1))],
    "mask": lambda xp, c: c(X)[c(X) > 0],
    "row mask": lambda xp, c: c(X)[c(np.array([True, False, True]))],
    "column mask": lambda xp, c: c(X)[:, c(Y) > 0],
    "mask and index": lambda xp, c: c(X)[c(np.array([True, False, True])), 1],
    "big mask": lambda xp, c: c(np.arange(3000.0))[c(np.arange(3000) % 3 == 0)],
    "empty list": lambda xp, c: c(X)[[]],
    "take": lambda xp, c: (
        xp.take(c(X), c(J)),
        xp.take(c(X), c(J), axis=1),
        c(X).take(2),
        c(X).take([0, 1], 0),
    ),
    "take_along_axis": lambda xp, c: xp.take_along_axis(c(X), xp.argsort(c(X), axis=1), axis=1),
    "nonzero": lambda xp, c: xp.nonzero(c(X) > 0) + (xp.flatnonzero(c(X) > 0), xp.argwhere(c(X) > 0)),
    "big nonzero": lambda xp, c: xp.nonzero(c(np.arange(3000) % 7)),
    "searchsorted": lambda xp, c: (
        xp.searchsorted(c(np.sort(Y)), c(X)),
        xp.searchsorted(c(np.sort(Y)), c(Y), side="right"),
    ),
    "digitize": lambda xp, c: xp.digitize(c(X), c(np.sort(Y))),
    "histogram": lambda xp, c: xp.histogram(c(X), bins=c(np.linspace(-2, 2, 5))),
    "bincount": lambda xp, c: (xp.bincount(c(J)), xp.bincount(c(J), minlength=6)),
    "weighted bincount": lambda xp, c: xp.bincount(c(J), weights=c(Y[:3])),
    "choose": lambda xp, c: xp.choose(c(np.array([0, 1, 0, 1])), c(X[:2])),
    "tril_indices": lambda xp, c: xp.tril_indices(4),
    "ix": lambda xp, c: c(X)[xp.ix_(c(np.array([0, 2])), c(np.array([1, 3])))],
    "compress": lambda xp, c: xp.compress(c(Y > 0), c(X), axis=1),
    "unravel_index": lambda xp, c: xp.unravel_index(c(J), (2, 3)),
    "isin": lambda xp, c: xp.isin(c(I), c(np.array([2, 5]))),
    "sort": lambda xp, c: (xp.sort(c(X)), xp.sort(c(X), axis=0), xp.sort(c(X), axis=None)),
    "argsort": lambda xp, c: (xp.argsort(c(X), kind="stable"), c(X).argsort(axis=0)),
    "lexsort": lambda xp, c: xp.lexsort(c(np.array([[2, 1, 2, 0], [1, 1, 0, 0]]))),
    "partition": lambda xp, c: xp.sort(xp.partition(c(Y), 2)[:3]),
    "unique": lambda xp, c: xp.unique(c(I)),
    "unique and more": lambda xp, c: xp.unique(
        c(I.ravel()), return_index=True, return_inverse=True, return_counts=True
    ),
    "interp": lambda xp, c: xp.interp(c(X), c(np.sort(Y)), c(Y)),
}


@parametrized(INDEXING)
def test_indexing(f):
    agree(f, True)


def set_index(index, value):
    def change(a, xp, c):
        a[c(index) if isinstance(index, np.ndarray) else index] = (
            c(value) if isinstance(value, np.ndarray) else value
        )

    return change


def indirect_update(a, xp, c):
    a[[0, 2]] -= 1


def sort_in_place(a, xp, c):
    a.sort(axis=0)


def fill(a, xp, c):
    a.fill(3)
    a[0].fill(xp.asarray(4.0))


def put(a, xp, c):
    a.put(c(np.array([0, 5])), c(np.array([7.0, 8.0])))


def copyto(a, xp, c):
    xp.copyto(a, 0.0, where=c(X > 0))


def mask_scaled(a, xp, c):
    a[a > 0] *= 2


def two_index_arrays(a, xp, c):
    a[c(np.array([0, 1])), c(np.array([3, 2]))] = c(np.array([5.0, 6.0]))


def out_arguments(a, xp, c):
    xp.add(a, 1, out=a)
    xp.multiply(a, c(Y), a)
    xp.exp(a, out=a[::-1])


CHANGES = {
    "in place": in_place,
    "through a view": through_a_view,
    "row": set_index(1, 5),
    "column": set_index((slice(None), 2), X[:, 0]),
    "all": set_index(Ellipsis, X[::-1]),
    "broadcast": set_index(slice(1, None), Y),
    "cast": set_index(slice(1, None), I[1:]),
    "index array": set_index(np.array([2, 0]), X[:2]),
    "index list": set_index([2, 0], 1.0),
    "two index arrays": two_index_arrays,
    "mask": set_index(X > 0, 0),
    "mask, array": set_index(X > 0, np.arange((X > 0).sum()) * 1.0),
    "row mask": set_index(np.array([True, False, True]), Y),
    "mask scaled": mask_scaled,
    "copyto": copyto,
    "fill_diagonal": lambda a, xp, c: xp.fill_diagonal(a, 2.0),
    "putmask": lambda a, xp, c: xp.putmask(a, c(X > 0), c(Y)),
    "indirect update": indirect_update,
    "out": out_arguments,
    "sort": sort_in_place,
    "fill": fill,
    "put": put,
    "scatter_add": lambda a, xp, c: scatter_add(a, xp, c, c(np.array([0, 0, 2])), c(X)),
    "scatter_add of column": lambda a, xp, c: scatter_add(a, xp, c, (slice(None), c(J)), 1.0),
    "scatter_add by mask": lambda a, xp, c: scatter_add(a, xp, c, c(X) > 0, 1.0),
    "add.at": lambda a, xp, c: xp.add.at(a, (c(J - 1), c(J)), c(Y[:3])),
    "add.at slice": lambda a, xp, c: xp.add.at(a, slice(1, 3), c(Y)),
    "maximum.at": lambda a, xp, c: xp.maximum.at(a, c(np.array([0, 0])), c(X[1:])),
    "overlap": lambda a, xp, c: a.__setitem__(slice(1, None), a[:-1]),
}


@pytest.mark.filterwarnings("ignore:.*scatter_add.* is deprecated")
@parametrized({name: changed(change) for name, change in CHANGES.items()})
def test_changes(f):
    agree(f, False)


# -------------------------------------------------------------------------------------------- linear algebra

PRODUCTS = {
    "matrix and matrix": lambda xp, c: c(X) @ c(A),
    "matrix and vector": lambda xp, c: (c(X) @ c(Y), c(Y) @ c(A), c(Y) @ c(Y)),
    "batch": lambda xp, c: (xp.matmul(c(B), c(S)), c(B) @ c(S[0]), c(B) @ c(Y[:3])),
    "matmul out": lambda xp, c: xp.matmul(c(X), c(A), out=xp.empty((3, 4))),
    "float32": lambda xp, c: c(F32) @ c(A.astype(np.float32)),
    "mixed": lambda xp, c: (c(F32) @ c(A), c(Z) @ c(A), c(I) @ c(A), c(I) @ c(I.T)),
    "dot": lambda xp, c: (xp.dot(c(X), c(A)), c(X).dot(c(Y)), xp.dot(c(Y), c(Y)), xp.dot(c(B), c(S))),
    "vdot": lambda xp, c: (xp.vdot(c(Y), c(Y)), xp.vdot(c(Z), c(Z))),
    "inner": lambda xp, c: (xp.inner(c(X), c(X)), xp.inner(c(Y), c(Y))),
    "outer": lambda xp, c: xp.outer(c(Y), c(X)),
    "tensordot": lambda xp, c: (xp.tensordot(c(X), c(A), 1), xp.tensordot(c(B), c(S), axes=([0, 2], [0, 1]))),
    "einsum": lambda xp, c: (
        xp.einsum("ij,jk->ik", c(X), c(A)),
        xp.einsum("bij,bjk,bkl->bil", c(B), c(S), c(B)),
        xp.einsum("ii", c(A)),
        xp.einsum("ij->j", c(X)),
        xp.einsum("ij,ij->i", c(X), c(X)),
    ),
    "kron": lambda xp, c: (xp.kron(c(X), c(S[0])), xp.kron(c(Y), c(Y))),
    "cross": lambda xp, c: xp.cross(c(X[:, :3]), c(X[:, 1:])),
    "nothing to sum": lambda xp, c: c(np.zeros((2, 0))) @ c(np.zeros((0, 3))),
}
LINALG = {
    "cholesky": lambda xp, c: (xp.linalg.cholesky(c(A)), xp.linalg.cholesky(c(S))),
    "solve": lambda xp, c: (
        xp.linalg.solve(c(A), c(Y)),
        xp.linalg.solve(c(A), c(X.T)),
        xp.linalg.solve(c(S), c(B)),
    ),
    "inv": lambda xp, c: (xp.linalg.inv(c(A)), xp.linalg.inv(c(S))),
    "det": lambda xp, c: (xp.linalg.det(c(A)), xp.linalg.det(c(S))),
    "slogdet": lambda xp, c: tuple(xp.linalg.slogdet(c(A))) + tuple(xp.linalg.slogdet(c(S))),
    "qr": lambda xp, c: tuple(xp.linalg.qr(c(X.T))) + tuple(xp.linalg.qr(c(B), mode="complete")),
    "svd": lambda xp, c: tuple(xp.linalg.svd(c(X), full_matrices=False)) + tuple(xp.linalg.svd(c(B))),
    "singular values": lambda xp, c: xp.linalg.svd(c(X), compute_uv=False),
    "eigh": lambda xp, c: tuple(xp.linalg.eigh(c(A))) + tuple(xp.linalg.eigh(c(S))),
    "eigvalsh": lambda xp, c: xp.linalg.eigvalsh(c(S)),
    "norm": lambda xp, c: (xp.linalg.norm(c(Y)), xp.linalg.norm(c(X)), xp.linalg.norm(c(X), axis=1)),
    "norms": lambda xp, c: (xp.linalg.norm(c(X), 2), xp.linalg.norm(c(X), 1), xp.linalg.norm(c(Y), np.inf)),
    "lstsq": lambda xp, c: xp.linalg.lstsq(c(X.T), c(Y), rcond=None)[0],
    "pinv": lambda xp, c: xp.linalg.pinv(c(X)),
    "matrix_power": lambda xp, c: (xp.linalg.matrix_power(c(A), 3), xp.linalg.matrix_power(c(A), -1)),
    "matrix_rank": lambda xp, c: xp.linalg.matrix_rank(c(X)),
    "float32": lambda xp, c: xp.linalg.cholesky(c(A.astype(np.float32))),
    "int": lambda xp, c: xp.linalg.inv(c(np.array([[2, 1], [1, 3]]))),
    "complex": lambda xp, c: xp.linalg.solve(c(Z[:, :3]), c(X)),
    "vector for a batch": lambda xp, c: xp.linalg.solve(c(S), c(Y[:3])),
    "empty batch": lambda xp, c: xp.linalg.cholesky(c(np.zeros((0, 3, 3)))),
    "tensorsolve": lambda xp, c: xp.linalg.tensorsolve(c(A.reshape(2, 2, 4)), c(Y.reshape(2, 2))),
}
COMPLEX_FFT = "fft ifft fft2 ifft2 fftn ifftn irfft irfftn hfft fftshift ifftshift".split()
REAL_FFT = "rfft rfft2 rfftn ihfft".split()
FFT = {name: applied(name, A + 1j, "fft") for name in COMPLEX_FFT}
FFT |= {name: applied(name, X, "fft") for name in REAL_FFT}
FFT |= {"fft of real": applied("fft", X, "fft")}
FFT |= {
    "n and axis": lambda xp, c: (xp.fft.fft(c(X), 6, axis=0), xp.fft.rfft(c(X), 3), xp.fft.irfft(c(Z), 5)),
    "norm": lambda xp, c: (xp.fft.fft(c(X), norm="ortho"), xp.fft.irfft(c(Z), norm="forward")),
    "shape": lambda xp, c: (
        xp.fft.fftn(c(X), s=(2, 3), axes=(0, 1)),
        xp.fft.irfftn(c(Z), s=(3, 5), axes=(0, 1)),
    ),
    "freq": lambda xp, c: (xp.fft.fftfreq(5, 0.1), xp.fft.rfftfreq(6)),
    "single": lambda xp, c: (xp.fft.fft(c(F32)), xp.fft.rfft(c(F32))),
}


@parametrized(PRODUCTS | LINALG | FFT)
def test_linear_algebra_and_transforms(f):
    agree(f, False)


def linalg(xp):
    return scipy.linalg if xp is np else cupyx.scipy.linalg


def each_triangular(xp, a, b, **options):
    """(SciPy before 1.17 takes one matrix.)"""
    solve = functools.partial(linalg(xp).solve_triangular, lower=True, **options)
    return solve(a, b) if xp is not np else np.stack([solve(*each) for each in zip(a, b, strict=True)])


TRIANGULAR = {
    "lower": lambda xp, c: linalg(xp).solve_triangular(c(A), c(Y), lower=True),
    "upper": lambda xp, c: linalg(xp).solve_triangular(c(A), c(X.T)),
    "transposed": lambda xp, c: linalg(xp).solve_triangular(c(A), c(X.T), trans=1, lower=True),
    "unit": lambda xp, c: linalg(xp).solve_triangular(c(A), c(Y), unit_diagonal=True),
    "batch": lambda xp, c: each_triangular(xp, c(S), c(B)),
    "batch T": lambda xp, c: each_triangular(xp, c(S), c(B), trans="T"),
    "lu_factor": lambda xp, c: linalg(xp).lu_factor(c(A)),
    "lu_solve": lambda xp, c: linalg(xp).lu_solve(linalg(xp).lu_factor(c(A)), c(Y)),
}


@parametrized(TRIANGULAR)
def test_triangular_and_lu(f):
    agree(f, False)


# ---------------------------------------------------------------------------------- CuPy's ways, not NumPy's


@pytest.fixture
def c():
    hosted_cupy.reset_counts()
    return hosted_cupy.to_device(X)


def test_reductions_and_full_indexing_give_arrays(c):
    for a in (c.sum(), c[0, 0], c.max(), cupy.dot(c[0], c[0]), cupy.linalg.det(c[:3, :3]), c.argmax()):
        assert type(a) is cupy.ndarray and a.shape == ()


@pytest.mark.filterwarnings("ignore:__array__ implementation")
def test_implicit_conversion_is_refused(c):
    for convert in (np.asarray, np.array, lambda a: np.array([a[0], a[0]])):
        with pytest.raises(TypeError):
            convert(c)


def test_numpy_arrays_are_refused(c):
    for mix in (
        lambda: c + X,
        lambda: X + c,
        lambda: c @ X.T,
        lambda: cupy.sin(X),
        lambda: cupy.dot(c, Y),
        lambda: cupy.concatenate([c, X]),
        lambda: cupy.stack([c, X]),
        lambda: cupy.where(c > 0, c, X),
        lambda: cupy.broadcast_to(Y, (3, 4)),
        lambda: cupyx.scipy.special.gammaln(X),
    ):
        with pytest.raises(TypeError):
            mix()
    with pytest.raises(ValueError, match="non-scalar numpy.ndarray"):
        c[...] = X
    with pytest.raises(np.linalg.LinAlgError):
        cupy.linalg.cholesky(A)


def test_other_types_are_refused(c):
    with pytest.raises(ValueError, match="object"):
        cupy.array([None])
    with pytest.raises(TypeError):
        cupy.add(c, "one")


def test_index_arrays_wrap_and_integers_do_not(c):
    np.testing.assert_array_equal(c[[0, 7]].get(), X[[0, 1]])
    c[[4]] = 0.0
    assert (c.get()[1] == 0).all()
    with pytest.raises(IndexError):
        c[7]


def test_first_of_duplicate_indices_wins():
    a = cupy.zeros(3)
    a[[1, 1, 1]] = cupy.asarray(np.array([5.0, 6.0, 7.0]))
    assert a.get().tolist() == [0, 5, 0]


@pytest.mark.filterwarnings("error")
def test_no_warnings(c):
    assert np.isnan(cupy.log(-c * c).get()).any()
    (c / 0).get()
    cupy.linalg.inv(cupy.zeros((2, 2)))
    cupy.asarray(np.array([np.nan, 1e300])).astype(int)


def test_failed_factorisations_are_silent(c):
    left = cupy.linalg.cholesky(cupy.asarray(np.array([[4.0, 2], [2, -9]]))).get()
    assert left.tolist() == [[2, 0], [1, -9]]  # the first column is done, the rest is not: garbage, no nan
    good_and_bad = cupy.linalg.cholesky(cupy.asarray(np.stack([np.eye(2), -np.eye(2)])))
    assert (good_and_bad.get()[0] == np.eye(2)).all()
    assert hosted_cupy.stats["syncs"] == 2
    with cupyx.errstate(linalg="raise"), pytest.raises(np.linalg.LinAlgError):
        cupy.linalg.cholesky(-cupy.eye(2))
    assert hosted_cupy.stats["syncs"] == 3


def test_results_are_c_contiguous(c):
    assert cupy.linalg.cholesky(cupy.asarray(A)).flags.c_contiguous
    assert cupy.fft.fft(c, axis=0).flags.c_contiguous
    assert (c @ c.T).flags.c_contiguous


def test_negative_integer_powers_do_not_raise():
    assert (cupy.arange(-2, 3) ** cupy.full(5, -1)).get().tolist() == [0, -1, 0, 1, 0]


def test_out_is_checked(c):
    with pytest.raises(ValueError, match="Out shape"):
        cupy.add(c, 1, out=cupy.empty((1, 4)))
    with pytest.raises(ValueError, match="broadcast"):
        cupy.add(c, 1, out=cupy.empty(3))
    with pytest.raises(TypeError):
        cupy.add(c, 1, out=cupy.empty((3, 4), int))
    with pytest.raises(TypeError):
        cupy.add(c, 1, out=np.empty((3, 4)))


def test_atomics_have_few_types():
    for dtype in (np.int8, np.complex128):
        with pytest.raises(TypeError, match="add.at only supports"):
            cupy.add.at(cupy.zeros(3, dtype), cupy.asarray(np.array([0, 0])), 1)


def test_missing_methods_of_ufuncs(c):
    with pytest.raises(NotImplementedError):
        cupy.maximum.accumulate(c)
    with pytest.raises(TypeError):
        np.add(c, 1, where=c > 0, out=c)


def test_unknown_kernels_are_named(c):
    with pytest.raises(NotImplementedError, match="my_kernel"):
        cupy.ElementwiseKernel("T x", "T y", "y = x", "my_kernel")(c)
    with pytest.raises(NotImplementedError, match="my_raw"):
        cupy.RawKernel('extern "C" __global__ void my_raw(double *x) {}', "my_raw")((1,), (1,), (c,))
    with pytest.raises(NotImplementedError, match="my_reduction"):
        cupy.ReductionKernel("T x", "T y", "x", "a + b", "y = a", "0", "my_reduction")(c)
    assert "my_kernel" in hosted_cupy.stats["unknown"]


# --------------------------------------------------------------------------------- counters, memory, streams

TRANSFERS = {
    "get": lambda a: a.get(),
    "asnumpy": cupy.asnumpy,
    "item": lambda a: a[0, 0].item(),
    "tolist": lambda a: a.tolist(),
    "bool": lambda a: bool(a[0, 0]),
    "float": lambda a: float(a[0, 0]),
    "int": lambda a: int(a[0, 0]),
    "complex": lambda a: complex(a[0, 0]),
    "repr": repr,
    "str": str,
    "format": lambda a: f"{a[0, 0]:.2f}",
    "synchronize": lambda a: cupy.cuda.get_current_stream().synchronize(),
    "device synchronize": lambda a: cupy.cuda.Device().synchronize(),
    "nonzero": lambda a: cupy.nonzero(a),
    "mask": lambda a: a[a > 0],
    "allclose": lambda a: bool(cupy.allclose(a, a)),
    "iterate": lambda a: [float(v) for v in a[0, :1]],
    "numpy to list": lambda a: cupy.asarray(a).tolist(),
}


@pytest.mark.parametrize("name", TRANSFERS)
def test_each_transfer_counts_once(name, c):
    TRANSFERS[name](c)
    assert hosted_cupy.stats["syncs"] == 1


def test_what_stays_on_the_device_counts_nothing(c):
    d = cupy.where(c > 0, c, 0.0) @ c.T
    d[0] = 1.0
    d[[1, 2]] += cupy.linalg.inv(cupy.asarray(A))[0, :3]
    hosted_cupy.host_view(d)
    assert d.shape == (3, 3) and d.dtype == float and len(d) == 3
    assert hosted_cupy.stats["syncs"] == 0
    assert hosted_cupy.stats["kernels"] > 5
    hosted_cupy.reset_counts()
    assert hosted_cupy.stats == {"kernels": 0, "syncs": 0, "unknown": set()}


def test_new_memory_is_garbage_and_freed_with_its_array():
    a = cupy.empty(4, np.uint8)
    assert (hosted_cupy.host_view(a) == 0xCC).all()
    view = hosted_cupy.host_view(a[1:])
    del a
    gc.collect()
    assert (view == 0xCC).all()  # the view keeps the memory


def test_memory_does_not_grow():
    def work():
        for _ in range(20):
            cupy.sin(cupy.ones(100_000)).sum()

    work()
    tracemalloc.start()
    work()
    gc.collect()
    left, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert left < 1e5 and 5e5 < peak < 6e6


def test_host_view_and_to_device_share_nothing_with_the_source():
    a = hosted_cupy.to_device(X)
    hosted_cupy.host_view(a)[0, 0] = 42
    assert a.get()[0, 0] == 42 and X[0, 0] != 42
    assert hosted_cupy.host_view(a.T[::-1]).strides == a.T[::-1].strides
    assert hosted_cupy.to_device(3.0).shape == ()


def test_streams_and_events(c):
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        assert cupy.cuda.get_current_stream() == stream
        (c + 1).get()
    before, after = cupy.cuda.Event(), cupy.cuda.Event()
    before.record()
    after.record(stream)
    stream.wait_event(before)
    after.synchronize()
    assert after.done
    assert cupy.cuda.get_elapsed_time(before, after) == 0
    assert hosted_cupy.stats["syncs"] == 2
    assert cupy.cuda.is_available() and cupy.cuda.runtime.getDeviceCount() == 1


def test_set_and_host_copies():
    a = cupy.empty((3, 4))
    a.set(X)
    out = np.empty((3, 4))
    a.get(out=out)
    np.testing.assert_array_equal(out, X)
    np.testing.assert_array_equal(cupy.asnumpy(a.T), X.T)


def test_cuda_array_interface_is_taken_without_copy(c):
    class Other:
        __cuda_array_interface__ = c.__cuda_array_interface__

    np.testing.assert_array_equal(cupy.add(c, Other()).get(), 2 * X)
    assert cupy.asarray(Other()).data.ptr == c.data.ptr


def test_hooks_are_called(c):
    """They are CuPy's, and undocumented: a version without them must be noticed."""
    for call in (lambda: c + 1, lambda: c.sum(), lambda: c[[0]], lambda: c.astype(int), lambda: c @ c.T):
        hosted_cupy.reset_counts()
        call()
        assert hosted_cupy.stats["kernels"] >= 1


def test_install_is_idempotent_and_refuses_a_device(monkeypatch):
    assert hosted_cupy.install() is cupy
    assert not hosted_cupy.real_device()
    monkeypatch.setattr(hosted_cupy, "_installed", None)
    monkeypatch.setattr(hosted_cupy, "real_device", lambda: True)
    with pytest.raises(RuntimeError, match="as it is"):
        hosted_cupy.install()


# -------------------------------------------------------------------------------------------------- dispatch


@pytest.mark.parametrize(
    "call",
    [
        lambda a: np.sin(a),
        lambda a: np.add(a, 1.0),
        lambda a: np.sum(a, axis=0),
        lambda a: np.where(a > 0, a, 0.0),
        lambda a: np.concatenate([a, a]),
        lambda a: np.linalg.norm(a),
        lambda a: np.linalg.cholesky(a @ a.T + 3 * cupy.eye(3)),
        lambda a: np.fft.fft(a),
        lambda a: np.einsum("ij->i", a),
        lambda a: np.matmul(a, a.T),
        lambda a: np.zeros_like(a),
        lambda a: np.moveaxis(a, 0, 1),
    ],
)
def test_numpy_functions_dispatch_to_cupy(call, c):
    assert type(call(c)) is cupy.ndarray


class Foreign:
    """An object of a third class, which says what it was asked."""

    shape = (3, 4)

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        return "ufunc", ufunc.__name__, method

    def __array_function__(self, function, types, args, kwargs):
        return "function", function.__name__

    def __cupy_override_elementwise_kernel__(self, kernel, *args, **kwargs):
        return "kernel", kernel.name, [x is self for x in args]

    def __cupy_override_reduction_kernel__(self, kernel, axis, dtype, out, keepdims):
        return "reduction", kernel.name

    def sum(self, *args, **kwargs):
        return "method", "sum"

    def __radd__(self, other):
        return "radd"


V = Foreign()
DISPATCH = {
    "c + v": (lambda c: c + V, ("ufunc", "add", "__call__")),
    "c @ v": (lambda c: c @ V, ("ufunc", "matmul", "__call__")),
    "c ** v": (lambda c: c**V, ("ufunc", "power", "__call__")),
    "c < v": (lambda c: c < V, ("ufunc", "less", "__call__")),
    "numpy + v": (lambda c: X + V, ("ufunc", "add", "__call__")),
    "np.add": (lambda c: np.add(c, V), ("ufunc", "add", "__call__")),
    "np.sum": (lambda c: np.sum(V), ("function", "sum")),
    "np.concatenate": (lambda c: np.concatenate([c, V]), ("function", "concatenate")),
    "np.linalg.cholesky": (lambda c: np.linalg.cholesky(V), ("function", "cholesky")),
    "cupy.sin": (lambda c: cupy.sin(V), ("kernel", "cupy_sin", [True])),
    "cupy.add": (lambda c: cupy.add(c, V), ("kernel", "cupy_add", [False, True])),
    "cupy.add of two": (lambda c: cupy.add(V, c), ("kernel", "cupy_add", [True, False])),
    "cupy.where": (lambda c: cupy.where(c > 0, V, c), ("kernel", "cupy_where", [False, True, False])),
    "gammaln": (lambda c: cupyx.scipy.special.gammaln(V), ("kernel", "cupyx_scipy_special_gammaln", [True])),
    "cupy.sum": (lambda c: cupy.sum(V), ("method", "sum")),
    "cupy.multiply out": (
        lambda c: cupy.multiply(c, 2, V),
        ("kernel", "cupy_multiply", [False, False, True]),
    ),
}


@pytest.mark.parametrize("name", DISPATCH)
def test_foreign_objects_are_asked(name, c):
    call, expected = DISPATCH[name]
    assert call(c) == expected


def test_foreign_object_in_place(c):
    c += V  # CuPy's kernel gets the array as output too
    assert c == ("kernel", "cupy_add", [False, True, False])


REFUSED = {
    "dot": lambda c: cupy.dot(c, V),
    "dot method": lambda c: c.dot(V),
    "matmul": lambda c: cupy.matmul(c, V),
    "stack": lambda c: cupy.stack([V, V]),
    "concatenate": lambda c: cupy.concatenate([c, V]),
    "cumsum": lambda c: cupy.cumsum(V),
    "broadcast_to": lambda c: cupy.broadcast_to(V, (3, 3, 4)),
    "tensordot": lambda c: cupy.tensordot(c, V, 1),
    "einsum": lambda c: cupy.einsum("ij,ij->i", c, V),
    "out": lambda c: cupy.add(c, c, out=V),
}


@pytest.mark.parametrize("name", REFUSED)
def test_typed_functions_refuse_foreign_objects(name, c):
    expected = {"einsum": ValueError, "tensordot": AttributeError}.get(name, TypeError)
    with pytest.raises(expected):
        REFUSED[name](c)


@pytest.mark.parametrize("name", ["item", "fill", "all", "index", "mask"])
def test_foreign_values_are_asked_for_an_array(name, c):
    class Loud:
        def __array__(self, dtype=None, copy=None):
            raise TypeError("no array here")

        def __float__(self):
            raise TypeError("no float here")

    change = {
        "item": lambda v: c.__setitem__((0, 0), v),
        "fill": lambda v: c.fill(v),
        "all": lambda v: c.__setitem__(Ellipsis, v),
        "index": lambda v: c.__setitem__([0, 1], v),
        "mask": lambda v: c.__setitem__(c > 0, v),
    }[name]
    with pytest.raises(TypeError, match="no array here|no float here"):
        change(Loud())


@pytest.mark.parametrize("name", ["random", "standard_normal", "gamma", "integers", "uniform", "binomial"])
def test_generators_draw_numpys_numbers(name):
    """Uninitialised memory was handed out as random numbers before."""
    settings = {"gamma": (np.array([2.0, 3.0, 4.0]),), "integers": (9,), "binomial": (9, 0.5)}.get(name, ())
    found, wanted = [
        getattr(draw, name)(
            *[
                hosted_cupy.to_device(s) if isinstance(s, np.ndarray) and library is cupy else s
                for s in settings
            ],
            size=3,
        )
        for library, draw in (
            (cupy, cupy.random.default_rng(5)),
            (np, np.random.Generator(np.random.PCG64(5))),
        )
    ]
    assert type(found) is cupy.ndarray and found.dtype == wanted.dtype
    assert np.array_equal(found.get(), wanted)
    rng = cupy.random.default_rng(cupy.random.MRG32k3a(5))
    out = cupy.empty(2, np.float32)
    assert (
        rng.random(2, dtype=np.float32).dtype == np.float32 and rng.random(out=out, dtype=np.float32) is out
    )


@pytest.mark.parametrize(
    "draw",
    [
        lambda r, xp: r.normal(1.0, 2.0, (2, 3)),
        lambda r, xp: r.normal(xp.ones(3), 2.0),
        lambda r, xp: r.rand(2, 3),
        lambda r, xp: r.standard_normal(4),
        lambda r, xp: r.randint(2, 9, size=5),
        lambda r, xp: r.choice(xp.arange(5.0), 3, replace=False),
        lambda r, xp: r.permutation(xp.arange(4.0)),
        lambda r, xp: r.poisson(3.0, 4),
    ],
)
def test_the_module_of_random_numbers_draws_numpys(draw):
    cupy.random.seed(7)
    found, wanted = draw(cupy.random, cupy), draw(np.random.RandomState(7), np)
    assert type(found) is cupy.ndarray and found.dtype == wanted.dtype
    assert np.array_equal(found.get(), wanted)


def test_random_numbers_of_a_dtype_and_in_place():
    assert (
        cupy.random.rand(2, dtype=np.float32).dtype
        == cupy.random.normal(size=2, dtype="f").dtype
        == np.float32
    )
    a = cupy.arange(9)
    cupy.random.shuffle(a)
    assert sorted(a.get()) == list(range(9))


@pytest.mark.parametrize(
    "f, said",
    [
        (lambda: cupy.random.multinomial(5, [0.2, 0.8]), "cupy_random_multinomial runs on a device only"),
        (lambda: cupy.cuda.Device(1), "device 1 was asked for"),
        (lambda: cupy.sqrt(3), "of a number, give it as an array"),
    ],
)
def test_what_only_a_device_has_is_named(f, said):
    with pytest.raises(NotImplementedError, match=said):
        f()
