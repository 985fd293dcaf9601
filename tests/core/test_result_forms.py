"""The form of results: dtype, shape, and of what has no axes whether it is an array or a number, as NumPy
gives them.

`z = y; z += 1` alters y where that is an array without axes, and does not where it is a number, so a program
shows the difference."""

import itertools
import warnings

import numpy as np
import pytest
import scipy.linalg
import scipy.special
from keyword_calls import IN_PLACE, Host, calls, members, method_calls, run, ufunc_calls
from random_layouts import MODES, mapped, shown

import tapegrad as tg
from tapegrad.errors import TapegradError

# --- every function and keyword, its operands of every rank and dtype ---

RANKS = {
    "as they are": np.copy,
    "vectors": lambda v: v.ravel()[:3].copy(),
    "one row": lambda v: v[:1].copy(),
    "arrays without axes": lambda v: np.array(v.flat[0]),
    "numbers": lambda v: v.flat[0],
}
KINDS = [*[(rank, None) for rank in RANKS], *itertools.product(["as they are", "numbers"], "fFDe")]
# Functions of which the loops for float16 are another library's, or the dtype depends on the values, or is
# said of one part of complex results only; what of them is left out.
SP = scipy.special
LEFT_OUT = {
    SP.cbrt: "e", SP.exp2: "e", SP.expm1: "e", SP.log1p: "e", SP.huber: "e", SP.pseudo_huber: "e",
    SP.factorial: "f",
    np.average: "FD", np.histogram: "FD", SP.logsumexp: "FD", scipy.linalg.norm: "fF",
}  # fmt: skip


def is_left_out(call, rank, dtype):
    if (
        call.f is SP.logsumexp
        and call.kwargs.get("keepdims")
        and rank not in ("as they are", "vectors", "one row")
    ):
        return True  # SciPy gives one axis
    f = getattr(call.f, "__self__", None) if call.ufunc else call.f
    return "out" in call.kwargs or (dtype is not None and dtype in LEFT_OUT.get(f, ""))


def is_float(v):
    return isinstance(v, (np.ndarray, np.generic)) and v.dtype.kind in "fc"


def operands(call, rank, dtype):
    def of(v):
        if isinstance(v, np.ndarray) and v.ndim and v.dtype.kind in "biufc":
            v = RANKS[rank](v)
        if dtype is None or not is_float(v):
            return v
        return v.astype(
            dtype
            if v.dtype.kind == "f"
            else dtype.upper()
            if dtype in "fd"
            else "F"
            if dtype == "e"
            else dtype
        )

    return mapped((call.args, call.kwargs), of)


def floats(x):
    if isinstance(x, dict):
        x = list(x.values())
    return [v for e in x for v in floats(e)] if isinstance(x, (list, tuple)) else [x] if is_float(x) else []


def form(v):
    return isinstance(v, np.ndarray), v.dtype, v.shape


def compared(call, rank, dtype, transform):
    """None where the call is not one of the library's or not of ours, else the first pair of forms (ours, the
    library's) that differ."""
    if is_left_out(call, rank, dtype):
        return None
    given = operands(call, rank, dtype)
    values, seen = floats(given), []

    def g(*xs):
        left = iter(xs)
        args, kwargs = mapped(given, lambda v: next(left) if is_float(v) else v)
        seen[:] = [
            form(shown(v))
            for v in members(run(call, Host.face(call), args, kwargs, Host.faced_zeros))
            if is_float(shown(v))
        ]
        return xs[0] * 1

    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            plain = [
                form(v)
                for v in members(run(call, call.f, *operands(call, rank, dtype), np.zeros))
                if is_float(v)
            ]
            transform(g, values)
    except Exception:
        return None
    if len(seen) != len(plain):  # it was not run, or gives what is no float
        return None
    return next(((a, b) for a, b in zip(seen, plain, strict=True) if a != b), ())


def every_call():
    return [
        c
        for c in itertools.chain(calls(), ufunc_calls(), method_calls())
        if floats((c.args, c.kwargs)) and c.f not in IN_PLACE
    ]


def searched(lines, mode, kinds):
    found = 0
    for n, call in enumerate(lines):
        rank, dtype = kinds[n % len(kinds)]
        if mode == "batched" and rank == "arrays without axes":  # a sample of a vector is a number
            continue
        wrong = compared(call, rank, dtype, MODES[mode])
        assert not wrong, f"{call}, {rank}, {dtype}, {mode}: {wrong[0]} for {wrong[1]}"
        found += wrong is not None
    return found


@pytest.mark.one_in(3)
@pytest.mark.parametrize("mode", MODES)
def test_some_calls(mode):
    lines = every_call()
    found = sum([searched(lines[k::41], mode, [kind]) for k, kind in enumerate(KINDS)])
    assert found > 200


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_every_call(mode, kind):
    searched(every_call(), mode, [kind])


# --- programs that alter a result under another name ---

X = np.array([0.7, 0.4, 1.1])
RESULTS = {
    "inner": lambda x: np.inner(x, x), "multi_dot": lambda x: np.linalg.multi_dot([x, np.eye(3), x]),
    "vdot": lambda x: np.vdot(x, x),
    "tensordot": lambda x: np.tensordot(x, x, 1), "where": lambda x: np.where(x[0] > 0.5, x[0], x[1]),
    "plus": lambda x: +np.asarray(x[0]),
    "select": lambda x: np.select([x[0] > 0.5], [x[0]], 0.0), "imag": lambda x: np.imag(x[0]) + x[0],
    "cov": np.cov,
    "broadcast": lambda x: np.broadcast_arrays(x[0], 2.0)[0] * 1.0, "i0": lambda x: np.i0(x[0]),
    "flip": lambda x: np.flip(np.asarray(x[0])),
    "real_if_close": lambda x: np.real_if_close(x[0]), "choose": lambda x: np.choose(np.array(0),
    [np.asarray(x[0]), x[1]]),
    "reshape": lambda x: np.reshape(x[0], ()), "squeeze": lambda x: np.squeeze(x[0]),
    "kron": lambda x: np.kron(x[0], x[1]),
    "median": lambda x: np.median(x[0], keepdims=True), "fftn": lambda x: np.fft.fftn(x[0]).real,
    "asarray": lambda x: np.asarray(x[0]),
    "element": lambda x: x[0], "ellipsis": lambda x: x[0, ...], "copy": lambda x: x[0].copy(),
    "clip": lambda x: np.asarray(x[0]).clip(),
}  # fmt: skip


@pytest.mark.parametrize("name", RESULTS)
def test_written_under_another_name(name):
    def f(x):
        s = RESULTS[name](x.copy())
        t = s
        t += x[1]
        t *= 2.0
        return s + 3.0 * t

    h = 1e-6 * np.eye(3)
    slope = np.array([f(X + e) - f(X - e) for e in h]) / 2e-6
    value, g = tg.value_and_grad(f)(X)
    with_samples = tg.vmap(tg.value_and_grad(f))(np.stack([X, X]))
    prepared = tg.prepare(f, X)
    for v, d in (
        (value, g),
        (with_samples[0][1], with_samples[1][1]),
        *[prepared.value_and_grad(X) for _ in range(3)],
    ):
        np.testing.assert_allclose(v, f(X), rtol=1e-12)
        np.testing.assert_allclose(d, slope, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(tg.jvp(f, (X,), (X,))[1], slope @ X, rtol=1e-6)


# --- axes of samples ---

REDUCTIONS = [
    *[getattr(np, name) for name in "sum max min prod ptp nansum nanmean nanmax nanvar any argmax".split()],
    scipy.special.logsumexp, scipy.special.softmax, scipy.special.log_softmax, np.add.reduce,
    np.maximum.reduce,
    lambda x, axis: x - np.max(x, axis=axis), np.sort, np.cumsum, np.median, np.mean, np.fft.fft,
]  # fmt: skip


@pytest.mark.parametrize("f", REDUCTIONS, ids=lambda f: f.__name__)
def test_axes_of_one_sample(f):
    """An axis that a sample does not have is not that of the samples."""
    for x in (np.array([0.3, 1.7, 0.9]), np.array([[0.3, 1.7, 0.9], [0.1, 2.0, -0.4]])):
        for axis in (-3, -2, -1, 0, 1, 2):
            try:
                wanted = np.stack([f(v, axis=axis) for v in x])
            except Exception:
                wanted = None
            try:
                found = tg.vmap(lambda v, axis=axis: f(v, axis=axis))(x)
            except TapegradError:
                continue
            except Exception:
                found = None
            assert (wanted is None) == (found is None), (axis, x.shape, wanted, found)
            if wanted is not None:
                np.testing.assert_allclose(found, wanted, rtol=1e-12)


# --- masks and places under another name ---


def mask(x):
    m = x > 0.5
    n = m
    n |= x < 0.1
    return np.where(m, x, 0.0).sum()


def places(x):
    k = np.argsort(x)
    j = k
    j <<= 1
    j ^= 3
    j &= 1
    return (x[k] * np.array([1.0, 2.0, 3.0])).sum()


def part_of_a_mask(x):
    m = x > 0.5
    r, q = m[1], m[None]
    r ^= True
    q &= x < 0.65
    return np.where(m, x, 0.0).sum() + 10.0 * np.where(r, x, 0.0).sum()


def truth(x):
    m = x[0] > 0.5
    n = m
    n |= x[1] > 0.04
    n ^= x[2] > 0.5
    return np.where(m, x, 0.0).sum() + 10.0 * np.where(n, x, 0.0).sum()


def number(x):
    k = np.argsort(x).astype(np.int32)[0]
    i = k
    i += 1
    i %= 3
    return x[k] + 10.0 * x[i]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.longdouble])
@pytest.mark.parametrize("f", [mask, places, part_of_a_mask, truth, number], ids=lambda f: f.__name__)
def test_masks_under_another_name(f, dtype):
    x = np.array([[0.7, 0.05, 0.3], [0.2, 0.6, 0.9], [0.05, 0.03, 0.95], [0.8, 0.2, 0.01]], dtype)
    wanted = [f(v) for v in x]
    np.testing.assert_allclose(tg.vmap(f)(x), wanted, rtol=1e-2)
    p = tg.prepare(f, x[0])
    np.testing.assert_allclose([p.value(v) for v in x], wanted, rtol=1e-2)
    slopes = [tg.grad(lambda v: f(v) * dtype(1))(v) for v in x]
    np.testing.assert_allclose([p.grad(v) for v in x], slopes, rtol=1e-2)
    np.testing.assert_allclose(tg.vmap(tg.grad(f))(x), slopes, rtol=1e-2)


def test_nothing_is_written_for_each_sample():
    def f(x):
        a, b = np.zeros((0, 3)), np.full((3, 2), 0.3)
        a += x
        a.T[...] *= 2.0
        b[b > 0.4] *= x[1]
        return x.sum() + a.sum() + b.sum()

    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_allclose(tg.vmap(f)(x), [f(v) for v in x])


# --- arrays made of a number ---

MADE = {
    "none": lambda v: v[None], "ellipsis": lambda v: v[...], "both": lambda v: v[..., None],
    "reshape": lambda v: v.reshape(1),
    "atleast_1d": np.atleast_1d, "asarray": np.asarray, "expand_dims": lambda v: np.expand_dims(v, 0),
    "ravel": lambda v: v.ravel(),
    "array": lambda v: np.array(v, ndmin=1), "broadcast": lambda v: np.broadcast_to(v, (1,)).copy(),
    "stack": lambda v: np.stack([v]),
}  # fmt: skip


@pytest.mark.parametrize(
    "number",
    [lambda x: x[0], np.sum, lambda x: np.mean(np.argsort(x)) + 0.5],
    ids=["element", "sum", "integers"],
)
@pytest.mark.parametrize("name", MADE)
def test_an_array_of_a_number_is_its_own(name, number):
    def f(x):
        v = number(x)
        a = MADE[name](v)
        a[...] = 3.0
        a *= 2.0
        return v * 1.0 + 10.0 * a.sum() + x[2]

    x = np.array([[0.7, 0.2, 0.3], [0.4, 0.5, 0.6]])
    wanted = [f(v) for v in x]
    p = tg.prepare(f, x[0])
    for found in ([tg.value_and_grad(f)(v)[0] for v in x], tg.vmap(f)(x), [p(v) for v in x]):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_elements_of_nothing_and_powers_without_end():
    def f(x):
        return x[0] + sum([v for _, v in np.ndenumerate(np.zeros((2, 0)) * x[0])])

    np.testing.assert_array_equal(tg.grad(f)(X), [1.0, 0.0, 0.0])
    with np.errstate(all="ignore"):
        for n in (np.inf, -np.inf, np.nan):
            value, slope = tg.value_and_grad(lambda x, n=n: x**n)(0.5)
            np.testing.assert_array_equal(value, 0.5**n)
            assert not np.isfinite(slope) or slope == 0.0
