"""The memory order of results and arguments: whether a reshape is a view or a copy depends on it, so a
program that writes through one shows a difference."""

import itertools
from collections import Counter

import layout_programs
import numpy as np
import pytest
import scipy.fft
import scipy.linalg
from keyword_calls import calls, method_calls, ufunc_calls
from numpy.lib.stride_tricks import as_strided, sliding_window_view
from random_layouts import KINDS, MODES, compared, lies, relaid

import tapegrad as tg
from tapegrad._core.arrays import copy_with_layout, room_laid
from tapegrad._core.reverse import setting_copy
from tapegrad.errors import TapegradError
from tapegrad.replay.record.instructions import vector_product

pytestmark = pytest.mark.smoke

# --- every function and keyword, its operands in any order ---

# scipy.linalg.logm of a singular matrix: SciPy gives the real part of a complex array, or not, by the values.
# numpy.isreal and iscomplex: masks of samples lie as their stack does.
LEFT_OUT = {(scipy.linalg.logm, "repeated"), *itertools.product((np.isreal, np.iscomplex), KINDS)}


def searched(lines, modes, deep=(False, True)):
    found = Counter()
    for k, call in enumerate(lines):
        for n, kind in enumerate(KINDS):
            if (call.f, kind) in LEFT_OUT:
                continue
            for mode in modes:
                wrong = compared(call, kind, k + n, MODES[mode], deep[(k + n) % len(deep)])
                assert not wrong, (
                    f"{call}, operands {kind}, {mode}: strides {wrong[0][0]} instead of {wrong[0][1]}"
                )
                found[mode if wrong is not None else "not compared"] += 1
    print(dict(found))
    return found


def every_call():
    return itertools.chain(calls(), ufunc_calls(), method_calls())


def test_some_calls():
    found = searched([*every_call()][::97], ["forward", "backward"]) + searched(
        [*every_call()][11::197], ["recorded", "batched"]
    )
    assert min(found[mode] for mode in MODES) > 30


@pytest.mark.long
@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_every_call(mode, deep):
    assert searched(every_call(), [mode], [deep])[mode] > 20_000


@pytest.mark.one_in(3)
@pytest.mark.parametrize("mode", MODES)
def test_arrays_that_are_settings(mode):
    """Masks and places that an operation is given beside its operands, which a record keeps a copy of."""
    of_settings = [
        c
        for c in every_call()
        if any(isinstance(v, np.ndarray) and v.dtype.kind in "bi" for v in c.kwargs.values())
    ]
    assert len(of_settings) > 50
    assert searched(of_settings, [mode], [True])[mode] > 100


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_keeps_settings_as_they_lie(kind):
    rng = np.random.default_rng(KINDS.index(kind))
    for shape in [(4,), (2, 3), (3, 1, 2), (2, 2, 3), (2, 0, 3)]:
        v = rng.integers(0, 2, shape)
        x = relaid(v.astype(bool), kind, rng) if v.size else v.astype(bool)
        c = setting_copy({"where": (x, [x])})["where"]
        for y in (c[0], c[1][0]):
            assert lies(y) == lies(x) and np.array_equal(y, x) and not np.shares_memory(x, y)


# --- programs that write through a reshape of a result ---

X = np.array([[0.3, 0.8, -0.4], [0.7, -0.2, 0.5]])
LIES = {
    "F": lambda x: np.asfortranarray(x) * 1.0,
    "T": lambda x: (x * 1.0).T,
    "gaps": lambda x: np.repeat(x, 2, 1)[:, ::2],
    "reversed": lambda x: x[::-1],
    "repeated": lambda x: np.broadcast_to(x[0], (2, 3)),
}
OPERATIONS = {
    "sort": lambda y: np.sort(y, 0), "partition": lambda y: np.partition(y, 1, 1),
    "cumprod": lambda y: np.cumprod(y, 1),
    "cumsum": lambda y: np.cumsum(y, 0), "take": lambda y: np.take(y, [1, 0], 1),
    "compress": lambda y: y.compress([True, False], 0),
    "stack": lambda y: np.stack([y, y * 2]), "select": lambda y: np.select([y > 0], [y], 0.0),
    "roll": lambda y: np.roll(y, 1, 0),
    "insert": lambda y: np.insert(y, 1, 0.4, 0), "delete": lambda y: np.delete(y, 0, 1),
    "gradient": lambda y: np.gradient(y, axis=0),
    "full_like": lambda y: np.full_like(y, y[0, 0]), "angle": lambda y: np.angle(y + 1j),
    "tile": lambda y: np.tile(y, (1, 2)),
    "median": lambda y: np.median(y[..., None] * np.arange(1, 4), 2), "meshgrid": lambda y: np.meshgrid(y[0],
    y[1])[0],
    "padded fft": lambda y: abs(np.fft.rfft(y, 5, axis=0)), "scipy.fft": lambda y: abs(scipy.fft.fft(y,
    axis=0)),
    "order=": lambda y: np.sin(y, order="C"), "order=F": lambda y: np.add(y, 1.0, order="F"),
    "pad": lambda y: np.pad(y, 1, "wrap"),
    "astype": lambda y: y.astype(float, order="C"), "copy": lambda y: y.copy("K"),
    "zeros_like": lambda y: np.zeros_like(y, order="F") + y,
    "require": lambda y: np.require(y, requirements="F") * 1.0,
    "ascontiguousarray": lambda y: np.ascontiguousarray(y).T * 2,
    "array": lambda y: np.array(y, order="F"), "flatten": lambda y: y.flatten("K") * y.ravel("A"),
    "outer": lambda y: np.outer(y, y[0]),
    "where": lambda y: np.where(y > 0.1, y, 0.3), "clip": lambda y: np.clip(y, -0.3, 0.6),
    "cholesky": lambda y: scipy.linalg.cholesky(y @ y.T + np.eye(len(y))),
    "solve": lambda y: np.linalg.solve(np.asfortranarray(y @ y.T + np.eye(len(y))), y),
    "solve vector": lambda y: np.linalg.solve(y @ y.T + np.eye(len(y)), y[:, 1]),
    "solve batch": lambda y: np.linalg.solve((y @ y.T + np.eye(len(y)))[None] * np.ones((3, 1, 1)), y),
    "qr": lambda y: scipy.linalg.qr(y @ y.T + np.eye(len(y)))[1], "einsum": lambda y: np.einsum("ij,kj->kij",
    y, y),
    "nanmean": lambda y: np.nanmean(y[..., None] * np.ones(2), 2),
    "vecdot": lambda y: np.linalg.vecdot(y[None] * y[:, None], y),
}  # fmt: skip


def written_through(operation, lay):
    def f(x):
        y = operation(lay(x))
        z = y.reshape(-1)
        z[1] = 0.5
        z[-1] = z[0] * x[0, 1]
        w = y.ravel()
        w[2:3] *= 3.0
        return (y.reshape(-1) * np.arange(1.0, 1 + y.size)).sum()

    return f


def slopes(f, x, step=1e-3):
    """By differences, of the plain function, extrapolated; each point lies as x does."""
    g = np.zeros(x.shape)
    for at in np.ndindex(*x.shape):
        if 0 in x.strides:
            continue

        def value(h, at=at):
            z = copy_with_layout(x)
            z[at] += h
            return f(z)

        d1, d2 = [(value(h) - value(-h)) / (2 * h) for h in (step, step / 2)]
        g[at] = (4 * d2 - d1) / 3
    return g


def forms_of(f, x):
    """Every way in which the gradient and value of f are found."""
    yield "grad", tg.value_and_grad(f)(x)
    yield (
        "jvp",
        (
            tg.jvp(f, (x,), (np.ones(x.shape),))[0],
            np.array([tg.jvp(f, (x,), (e,))[1] for e in units(x)]).reshape(x.shape),
        ),
    )
    p = tg.prepare(f, x)
    yield "prepared", [p.value_and_grad(copy_with_layout(x)) for _ in range(4)][-1]
    with_samples = tg.vmap(lambda z: tg.value_and_grad(f)(z))(np.stack([x, x * 0.9]))
    if x.flags.c_contiguous:
        yield "vmap", (with_samples[0][0], with_samples[1][0])


def units(x):
    return np.eye(x.size).reshape(-1, *x.shape)


def judged(pairs):
    seen = Counter()
    for name, lay in pairs:
        operation = OPERATIONS[name]
        f = written_through(operation, LIES[lay])
        try:
            value = f(X.copy())
        except ValueError as error:  # what NumPy gives is read-only
            with pytest.raises(ValueError, match="read-only"):
                tg.grad(f)(X)
            assert "read-only" in str(error)
            continue
        g = slopes(f, X)
        for form, (v, d) in forms_of(f, X):
            np.testing.assert_allclose(v, value, rtol=1e-12, err_msg=f"{name}, {lay}, {form}")
            np.testing.assert_allclose(d, g, rtol=1e-6, atol=1e-8, err_msg=f"{name}, {lay}, {form}")
            seen[form] += 1
    print(dict(seen))
    return seen


@pytest.mark.filterwarnings("ignore")
def test_writes_through_a_reshape():
    """Each operation of operands in one of the orders."""
    assert judged([(name, [*LIES][k % len(LIES)]) for k, name in enumerate(OPERATIONS)])["grad"] > 25


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("lay", LIES)
def test_all_writes_through_a_reshape(lay):
    assert judged([(name, lay) for name in OPERATIONS])["grad"] > 25


# --- random programs ---

WAYS = {
    "grad": lambda f, x: tg.value_and_grad(f)(x)[0],
    "jvp": lambda f, x: tg.jvp(f, (x,), (np.ones(x.shape),))[0],
    "vmap": lambda f, x: tg.vmap(f)(x[None])[0],
    "prepared": lambda f, x: [p(copy_with_layout(x)) for p in [tg.prepare(f, x)] for _ in range(2)][-1],
}


def run_programs(seeds, ways=WAYS):
    """Programs by the plain run; of those whose derivative exists, the gradient by differences."""
    found = Counter()
    for seed in seeds:
        x, lines = layout_programs.drawn(seed, place=copy_with_layout)
        f = layout_programs.function(lines)
        value = f(copy_with_layout(x))
        for way in ways:
            got = WAYS[way](f, x)
            assert np.isclose(got, value, rtol=1e-8), (
                f"seed {seed}, {way}: {got} instead of {value}, strides {x.strides}: {lines}"
            )
            found[way] += 1
        if seed % 4:
            continue
        g, coarse = slopes(f, x), slopes(f, x, 3e-3)
        if np.allclose(g, coarse, rtol=1e-5, atol=1e-7):
            np.testing.assert_allclose(
                tg.grad(f)(x), g, rtol=1e-4, atol=1e-5, err_msg=f"seed {seed}: {lines}"
            )
            found["gradients"] += 1
    print(dict(found))
    return found


@pytest.mark.filterwarnings("ignore")
def test_programs():
    assert run_programs(range(60))["gradients"] > 8


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seeds", [range(k, k + 1000) for k in range(1000, 6000, 1000)], ids=str)
def test_thousands_of_programs(seeds):
    assert run_programs(seeds)["gradients"] > 150


@pytest.mark.one_in(3)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", ["grad", "jvp"])
def test_programs_by_library(xp, way):
    right = 0
    for seed in range(40):
        x, lines = layout_programs.drawn(seed, xp, None, lambda x: on_device(xp, x))
        f = layout_programs.function(lines, xp, None)
        value = float(f(on_device(xp, x)))
        z = on_device(xp, x)
        try:
            got = tg.value_and_grad(f)(z)[0] if way == "grad" else tg.jvp(f, (z,), (xp.ones(x.shape),))[0]
        except TapegradError:  # cupy.r_ and others that are not supported
            continue
        assert np.isclose(float(got), value, rtol=1e-8), (
            f"seed {seed}: {got} instead of {value}, strides {x.strides}: {lines}"
        )
        right += 1
    assert right > 30


def on_device(xp, x):
    y = room_laid(xp, x.shape, x.strides, x.dtype)
    y[...] = xp.asarray(x)
    return y


def test_full_of_objects():
    """A tracked number that fills an array of objects stays tracked, whatever was called before."""
    o = np.array([1.0, 2.0], object)
    for make in (
        lambda x: np.full_like(x, x[0]),
        lambda x: np.full_like(o, x[0]),
        lambda x: np.full(2, x[0], dtype=object),
    ):

        def f(x, make=make):
            y = make(x)
            return y[0] * y[1]

        for _ in range(2):
            np.testing.assert_allclose(tg.grad(f)(X[0]), [0.6, 0.0, 0.0])


# --- arguments ---


def through_its_reshapes(x):
    z = x.reshape(-1)
    z[0] = 5.0
    w = x.ravel()
    w[1] = w[2] * 2.0
    q = x.reshape(x.shape[0], -1)
    q[1] *= 0.5
    return (x * x * np.arange(1.0, 1 + x.size).reshape(x.shape)).sum() + z.sum() * w[1] + (q * q).sum()


def outcome(f, x):
    try:
        f(x)
    except ValueError as error:
        return "read-only" if "read-only" in str(error) else error
    return "a number"


def points(seed):
    """(kind, array): the same numbers in every order."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(tuple(rng.integers(2, 4, rng.integers(2, 4))))
    for kind in KINDS:
        yield kind, relaid(x, kind, rng)


@pytest.mark.parametrize("seed", range(2))
def test_arguments_keep_their_gaps(seed):
    for kind, x in points(seed):
        if kind == "repeated":
            calls = (through_its_reshapes, tg.grad(through_its_reshapes))
            assert [outcome(f, x) for f in calls] in (["read-only"] * 2, ["a number"] * 2)
            continue
        value, g = through_its_reshapes(copy_with_layout(x)), slopes(through_its_reshapes, x)
        for form, (v, d) in forms_of(through_its_reshapes, x):
            np.testing.assert_allclose(v, value, rtol=1e-12, err_msg=f"{kind}, {form}")
            np.testing.assert_allclose(d, g, rtol=1e-6, atol=1e-8, err_msg=f"{kind}, {form}")


def test_samples_lie_as_in_a_loop():
    for kind, x in itertools.chain(points(1), points(2)):
        if kind == "repeated":
            continue
        stack = np.moveaxis(np.stack([x, x * 0.7, x - 0.2], axis=-1), -1, 0)
        for axis in range(stack.ndim):
            many = np.moveaxis(stack, 0, axis)
            want = [through_its_reshapes(copy_with_layout(s)) for s in np.moveaxis(many, axis, 0)]
            np.testing.assert_allclose(
                tg.vmap(through_its_reshapes, in_axes=axis)(many), want, rtol=1e-12, err_msg=f"{kind}, {axis}"
            )


def test_a_copy_that_lies_alike():
    rng = np.random.default_rng(0)
    for n in range(300):
        a = rng.standard_normal(tuple(rng.integers(1, 6, rng.integers(1, 5))))
        a = relaid(a, KINDS[n % len(KINDS)], rng)
        if n % 10 == 0 and a.shape[-1] > 2:
            a = sliding_window_view(a, 2, axis=-1)
        b = copy_with_layout(a)
        np.testing.assert_array_equal(a, b)
        assert lies(a) == lies(b) and np.exp(a).strides == np.exp(b).strides
        questions = [
            lambda v: v.reshape(-1),
            lambda v: v.ravel("K"),
            lambda v: v.ravel("F"),
            lambda v: v.reshape(v.shape[0], -1),
        ]
        for q in questions:
            np.testing.assert_array_equal(q(a), q(b))
            assert np.shares_memory(q(a), a) == np.shares_memory(q(b), b)
    thin = np.zeros((1000, 1000))[:, :1]
    assert copy_with_layout(thin).base.nbytes < 3 * thin.nbytes  # the gap is kept, not its size


REPEATED = [
    lambda: np.broadcast_to(np.ones(3), (2, 3)),
    lambda: as_strided(np.ones(3), (2, 3), (0, 8)),
    lambda: as_strided(np.ones(4), (3, 2), (8, 8)),
]


@pytest.mark.parametrize("made", REPEATED)
def test_a_repeated_argument_is_read_only(made):
    def f(x):
        x[0, 0] = 2.0
        return x.sum()

    def prepared(x):
        """(What cannot be recorded is run as it is.)"""
        try:
            return tg.prepare(f, x)(x) - f(made())
        except ValueError as error:
            return str(error)

    for call in (tg.grad(f), lambda x: tg.jvp(f, (x,), (np.ones(x.shape),)), lambda x: tg.vmap(f)(x[None])):
        with pytest.raises(ValueError, match="read-only"):
            call(made())
    assert prepared(made()) in (0.0, "assignment destination is read-only")
    np.testing.assert_allclose(tg.grad(lambda x: (x * x).sum())(made()), 2 * made())


@pytest.mark.parametrize("columns", [2, 3, 4, 5, 6, 7])
@pytest.mark.parametrize("step", [1, 2, 3, -1, -2])
def test_an_argument_with_gaps_is_written_as_it_lies(columns, step):
    """Rows may begin in the gap that the last one ends with; and what is taken of it is joined as before, no
    more."""
    whole = np.random.default_rng(0).random((4, columns))

    def f(x):
        x[0] = x[-1] ** 2
        y = x[:, ::2].reshape(-1)
        y[-1] = 0.5
        d = x.diagonal().reshape(-1)
        return (x * x).sum() + (y**3).sum() + d.sum()

    for x in (whole[:, ::step], whole[::step], whole.T[::step], whole[:, :-1]):
        g = tg.grad(f)(x)
        steps = 1e-6 * np.eye(x.size).reshape(x.size, *x.shape)

        def moved(e, x=x):
            memory = whole.copy()
            at = np.ndarray(
                x.shape,
                float,
                memory,
                x.__array_interface__["data"][0] - whole.__array_interface__["data"][0],
                x.strides,
            )
            at += e
            return f(at)

        np.testing.assert_allclose(
            g.ravel(), [(moved(e) - moved(-e)) / 2e-6 for e in steps], rtol=1e-6, atol=1e-8
        )


def test_products_of_a_recording_lie_as_those_of_numpy_do():
    """(A recording multiplies by `dot`, its replays by `matmul`.)"""
    rng = np.random.default_rng(0)

    def arrays(m, k):
        a = rng.normal(size=(m, k))
        wide = rng.normal(size=(2 * m, 2 * k))
        yield from (
            a,
            np.asfortranarray(a),
            rng.normal(size=(k, m)).T,
            wide[::2, 1::2],
            wide.T.reshape(2 * m, 2 * k, order="F")[m:, ::-2],
        )
        yield from (
            np.broadcast_to(rng.normal(size=k), (m, k)),
            a.astype(np.float32),
            a + 1j,
            a.astype(int),
            a > 0,
        )
        yield from (rng.normal(size=k), rng.normal(size=2 * k)[::-2], rng.normal(size=k) > 0)

    sizes = (0, 1, 2, 5, 9)
    for m, k, p in itertools.product(sizes, repeat=3):
        for x, y in itertools.product(arrays(m, k), (*arrays(k, p), *arrays(1, k))):
            if x.shape[-1] == y.shape[0]:
                with np.errstate(invalid="ignore"):  # OpenBLAS may set the flag for strided operands
                    found, wanted = vector_product(x, y), np.matmul(x, y)
                assert type(found) is type(wanted) and found.dtype == wanted.dtype, (x.dtype, y.dtype)
                assert found.shape == wanted.shape and found.strides == wanted.strides, (x.strides, y.strides)
                assert np.allclose(found, wanted, 1e-5, 1e-5)


@pytest.mark.parametrize("f", [np.add, np.multiply, np.cumsum, np.sum, np.einsum], ids=lambda f: f.__name__)
def test_classes_of_python_name_dtypes(f):
    x, found = np.asfortranarray(np.arange(24.0).reshape(2, 3, 4)), []

    def call(x):
        if f is np.einsum:
            return np.einsum("ijk,k->kji", x, np.ones(4), order="F", dtype=float)
        if f in (np.cumsum, np.sum):
            return f(x, 0, dtype=float)
        return f(x, 1.0, order="C", dtype=float)

    def total(x):
        y = call(x)
        found.append(y.strides)
        return y.sum()

    tg.grad(total)(x), tg.jvp(total, (x,), (x,))
    assert found == [call(x).strides] * 2
