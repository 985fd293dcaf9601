"""sums=np.float64: the terms of float32 kernels, added in float64.

References: whole numbers of any size, mpmath, closed forms on data for which the terms are exact; and the
float64 kernel, on inputs that were rounded to float32 first, where only the terms' own rounding is left."""

import dataclasses
import math

import numpy as np
import pytest
import scipy.special
from _cuda_host import array_library, needs_compiler, run_on_host  # noqa: F401
from _kernel_cases import CASES, MATRICES, WAYS, case
from mpmath import mp, mpf

import tapegrad as tg
from tapegrad.errors import ArgumentError, ShapeError
from tapegrad.kernels import emit_cuda
from tapegrad.kernels.emit.cuda_split import emit_split
from tapegrad.kernels.emit.llvm import emit
from tapegrad.kernels.launch import waiting
from tapegrad.kernels.launch.cpu import Launcher

pytestmark = pytest.mark.one_in(4)  # its cases compile

kernels = tg.kernels
F4, F8 = np.dtype(np.float32), np.dtype(np.float64)
RNG = np.random.default_rng(0)


def normal(theta, x):
    mu, sigma = theta
    return -0.5 * ((x - mu) / sigma) ** 2 - np.log(sigma)


def tilted(theta, x):
    """Of two components; a term with exp, a choice and a constant that no float holds."""
    z = (x[0] - theta[0]) * theta[1]
    return np.where(z > 0.3, -np.exp(0.1 * z), -0.5 * z * z) + 0.1 * theta[2] * x[1] - np.log(theta[1])


def grid(n):
    """Data of which differences and their squares are exact in float32."""
    return (RNG.integers(-2000, 2000, n) / 256.0).astype(F4)


NORMAL, TILTED = kernels.likelihood(normal, sums=np.float64), kernels.likelihood(tilted, sums=np.float64)
NARROW, EXACT = kernels.likelihood(tilted), kernels.likelihood(tilted)
THETA = (np.array([[0.3], [1.2], [-0.7]]) * (1 + 0.1 * RNG.normal(size=(3, 37)))).astype(F4)
DATA = RNG.normal(size=(2, 300)).astype(F4)


def close(found, expected, tolerance=2e-6):
    expected = np.asarray(expected)
    np.testing.assert_allclose(
        found, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max(initial=1e-30)
    )


def widened(k, *more):
    """The kernel of the list with sums of float64."""
    return type(k)(dataclasses.replace(k._parts, sums=np.float64), *more)


# --- the sum itself is exact ---


@pytest.mark.parametrize("batch", [1, 2, 70])
def test_whole_numbers(batch):
    """Terms, and products of two that have 44 bits; all sums are below 2^53."""
    x = np.random.default_rng(3).integers(-(2**22), 2**22, (2, 3001))
    k = kernels.likelihood(lambda theta, x: theta[0] * x[0] + theta[1] * (x[0] * x[1]), sums=np.float64)
    theta = np.ones((2, batch), F4) * np.array([[2.0], [0.5]], F4)
    value, gradient = k.value_and_grad(theta, x.astype(F4))
    one, product = sum(int(a) for a in x[0]), sum(int(a) * int(b) for a, b in zip(*x, strict=True))
    assert value.dtype == F8 and gradient.dtype == F4
    assert (value == 2 * one + 0.5 * product).all()
    assert (gradient[0] == F4.type(one)).all() and (gradient[1] == F4.type(product)).all()
    assert (
        abs(float(kernels.likelihood(k._parts.f)(theta, x.astype(F4))[0]) - value[0]) > 1
    )  # float32 loses this


def test_a_million_data():
    """The normal density of data on a grid: the squares of differences are exact, and so is all but the end
    of the formula."""
    x, theta = grid(10**6), np.array([[0.5, -1.25], [1.7, 0.3]], F4)
    value, gradient = NORMAL.value_and_grad(theta, x)
    again = NORMAL.value_and_grad(theta, x)  # as remembered
    hessian = NORMAL.hessian(theta, x)
    whole = np.round(x * 256).astype(int)
    for b, (mu, sigma) in enumerate(theta.T):
        d = whole - int(mu * 256)
        with mp.workdps(40):
            s1, s2, s = mpf(int(d.sum())) / 256, mpf(int((d * d).sum())) / 65536, mpf(float(sigma))
            expected = -s2 / (2 * s * s) - len(x) * mp.log(s)
            slope = s1 / s**2, s2 / s**3 - len(x) / s
            second = [[-len(x) / s**2, -2 * s1 / s**3], [-2 * s1 / s**3, -3 * s2 / s**4 + len(x) / s**2]]
            assert abs(value[b] / expected - 1) < 1e-15
            assert [F4.type(float(g)) for g in slope] == list(gradient[:, b])  # rounded once
            np.testing.assert_allclose(hessian[b], np.array(second, float), rtol=1.2e-7)
    assert value.dtype == F8 and gradient.dtype == hessian.dtype == F4
    assert np.array_equal(again[0], value) and np.array_equal(again[1], gradient) and again[0].dtype == F8


def test_what_follows_the_sum_is_float64():
    """Coefficients, constants and the number of data: 0.1 is that of float64, and 2^24 + 1 data are
    counted."""
    theta = np.array([[3.0]], F4)
    k = kernels.likelihood(lambda theta, x: 0.1 * theta[0] + x, sums=np.float64)
    assert abs(k(theta, np.ones(1000, F4))[0] / (1000 * (0.1 * 3 + 1)) - 1) < 1e-15
    count = kernels.likelihood(lambda theta, x: theta[0] + 0.0 * x, sums=np.float64)
    assert count(np.ones((1, 1), F4), np.zeros(2**24 + 1, F4))[0] == 2**24 + 1
    gamma = kernels.likelihood(
        lambda theta, x: np.log(theta[0]) * np.exp(1.5) + np.tanh(theta[0]) + x, sums=np.float64
    )
    expected = 100 * (math.log(3) * math.exp(1.5) + math.tanh(3))
    assert abs(gamma(theta, np.zeros(100, F4))[0] / expected - 1) < 1e-15


def test_a_choice_is_the_same_in_steps_and_after_them():
    """float32(0.1) is above 0.1: decided in float32, it is not, wherever it is asked."""
    k = kernels.likelihood(
        lambda theta, x: np.where(theta[0] > 0.1, x * x, 2.0) + np.where(theta[0] > 0.1, 5.0, 0.0),
        sums=np.float64,
    )
    theta, x = np.full((1, 3), 0.1, F4), np.array([1.0, 2.0], F4)
    assert (k(theta, x) == 4.0).all() and (k.contributions(theta, x) == 2.0).all()
    floor = kernels.likelihood(
        lambda theta, x: np.floor(theta[0] * 10.0) * x + np.floor(theta[0] * 10.0), sums=np.float64
    )
    assert (floor(theta, x) == floor.contributions(theta, x).sum(0)).all()


# --- all kinds, in both languages ---


def launched(low, inputs, data, steps, batch, per_sample=False):
    launcher = Launcher(low, F4, per_sample)
    outs = [
        np.empty((rows, batch), kind) for rows, kind in zip(launcher.outputs, launcher.types, strict=True)
    ]
    launcher(inputs, data, steps, outs, batch)
    return outs


@pytest.mark.one_in(5)
@needs_compiler
@pytest.mark.parametrize("per_sample", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", [*CASES, *[pytest.param(name, marks=pytest.mark.long) for name in MATRICES]])
def test_emitters_give_the_same_bits(name, per_sample):
    """Vectors, one lane, and CUDA C; all near the float64 kernel on the same numbers."""
    narrow, theta, data = case(name)
    k, (p, batch) = widened(narrow), theta.shape
    theta, data = theta.astype(F4), data.astype(F4)
    rows, steps = 0 if data.ndim == 1 else data.shape[0], data.shape[-1]
    if per_sample:
        data = (np.atleast_2d(data)[:, :, None] * (1 + 0.01 * np.arange(batch))).astype(F4)
    for kind, order in [*WAYS, ("F", 1)]:
        low = k.lowered(p, rows, kind, order, dtype=F4)
        inputs = [theta, *[RNG.normal(size=theta.shape).astype(F4) for _ in range(order)]]
        ours = launched(low, inputs, data, steps, batch, per_sample)
        host = run_on_host(low, F4, inputs, data, steps, batch, per_sample)
        first = data[..., :1].copy() if per_sample else data
        single = launched(low, [x[:, :1].copy() for x in inputs], first, steps, 1, per_sample)
        exact = narrow.lowered(p, rows, kind, order)
        reference = [np.empty((n, batch)) for n in Launcher(exact, F8, per_sample).outputs]
        Launcher(exact, F8, per_sample)(
            [x.astype(F8) for x in inputs], data.astype(F8), steps, reference, batch
        )
        assert [x.dtype for x in ours] == {"F": [F8], "VG": [F8, F4], "R": [F4]}[kind]
        for a, b, c, d in zip(ours, host, single, reference, strict=True):
            assert np.array_equal(a, b) and np.array_equal(a[:, :1], c)
            close(
                a, d, 2e-5 if name == "kepler" else 2e-6
            )  # its terms are solutions of an equation, found in float32


FORMS = {
    "constant": lambda th, x: 1.0 + 0.0 * (th[0] + th[1]),
    "data only": lambda th, x: x[0] * x[1],
    "parameters only": lambda th, x: np.log(th[0]) * th[1],
    "choices": lambda th, x: np.where((th[0] > 1) & (x[0] > 0), th[1] * x[0], -x[1]) + np.where(th[0] > 1,
    th[1] ** 2, np.sin(th[1])),
    "abs": lambda th, x: -np.abs(x[0] - th[0]) * th[1] + np.abs(th[0] - 1.0),
    "maximum": lambda th, x: np.maximum(th[0] * x[0], th[1] * x[1]) - np.maximum(th[0], th[1]),
    "loop": lambda th, x: kernels.loop(3, lambda i, s: s * th[0] + x[0], th[1], max_steps=3),
    "special": lambda th, x: scipy.special.gammaln(th[0] + 2.5) - th[1] * x[0] ** 2,
    "floor": lambda th, x: np.clip(th[0], 0.9, 1.2) * x[0] - np.floor(th[1] * 3) * x[1] + np.floor(th[1] * 3),
    "determinant": lambda th, x: -np.sum((x - th) ** 2) + np.linalg.slogdet(np.array([[th[0], 0.1], [0.1,
    th[1]]]))[1],
}  # fmt: skip


@pytest.mark.one_in(3)
@needs_compiler
@pytest.mark.parametrize("name", FORMS)
def test_result_forms(name):
    """What stands in steps and after them; no data, no samples."""
    k, exact = kernels.likelihood(FORMS[name], sums=np.float64), kernels.likelihood(FORMS[name])
    rng = np.random.default_rng(0)
    theta = (np.array([[1.0], [0.8]]) + 0.2 * rng.normal(size=(2, 11))).astype(F4)
    theta[0, 0] = 1.0
    x, v = rng.normal(size=(2, 150)).astype(F4), rng.normal(size=(2, 11)).astype(F4)
    wide = theta.astype(F8), x.astype(F8), v.astype(F8)
    for d, dtype in [
        (lambda k, t, x, v: k(t, x), F8),
        (lambda k, t, x, v: k.grad(t, x), F4),
        (lambda k, t, x, v: k.hvp(t, v, x), F4),
        (lambda k, t, x, v: tg.jvp(lambda t: k(t, x), (t,), (v,))[1], F8),
        (lambda k, t, x, v: tg.grad(lambda x: k(t, x).sum())(x), F4),
    ]:
        ours = d(k, theta, x, v)
        assert ours.dtype == dtype
        close(ours, d(exact, *wide), 2e-7)
    for kind, order in [*WAYS, ("F", 2), ("R", 2)]:
        low = k.lowered(2, 2, kind, order, dtype=F4)
        inputs = [theta, *[v] * order]
        for a, b in zip(
            launched(low, inputs, x, 150, 11), run_on_host(low, F4, inputs, x, 150, 11), strict=True
        ):
            assert np.array_equal(a, b)
    value, gradient = k.value_and_grad(theta, x[:, :0].copy())
    assert value.dtype == F8 and not value.any() and not gradient.any()
    value, gradient = k.value_and_grad(theta[:, :0].copy(), x)
    assert value.shape == (0,) and value.dtype == F8 and gradient.shape == (2, 0)


@pytest.mark.long
@needs_compiler
@pytest.mark.parametrize("start", ["identity", "stationary"])
def test_matrices_that_are_kept_whole(start):
    """Sums and what follows them are blocks of float64 in an arena of float32; the stationary start is solved
    for outside of loops."""
    n = 12

    def init(theta):
        A = theta[: n * n].reshape(n, n)
        return np.zeros(n), np.eye(n) if start == "identity" else np.linalg.inv(np.eye(n) - 0.3 * A @ A.T)

    def step(carry, theta, y):
        m, P = carry
        A = theta[: n * n].reshape(n, n)
        m, P = A @ m, A @ P @ A.T + np.diag(np.exp(theta[n * n :]))
        S, v = P[0, 0] + 1.0, y - m[0]
        return (m + P[:, 0] * (v / S), P - np.outer(P[:, 0], P[:, 0]) / S), -0.5 * (np.log(S) + v * v / S)

    k, narrow = kernels.recursion(init, step, sums=np.float64), kernels.recursion(init, step)
    rng = np.random.default_rng(0)
    theta = np.concatenate([0.7 * np.linalg.qr(rng.normal(size=(n, n)))[0].ravel(), np.zeros(n)])
    theta = (theta[:, None] * (1 + 0.05 * rng.normal(size=(theta.size, 5)))).astype(F4)
    data, v = rng.normal(size=70).astype(F4), rng.normal(size=theta.shape).astype(F4)
    low = k.lowered(len(theta), 0, dtype=F4)
    assert low.arena > 0 and any(low.program.g.shape[i] for i in low.wide)
    ours = launched(low, [theta], data, 70, 5)
    for a, b in zip(ours, run_on_host(low, F4, [theta], data, 70, 5), strict=True):
        assert np.array_equal(a, b)
    for a, b in zip(ours, launched(low, [theta[:, :1].copy()], data, 70, 1), strict=True):
        assert np.array_equal(a[:, :1], b)
    value, gradient = narrow.value_and_grad(theta.astype(F8), data.astype(F8))
    close(ours[0][0], value, 1e-7)
    close(ours[1], gradient, 5e-7)
    close(k.hvp(theta, v, data), narrow.hvp(theta.astype(F8), v.astype(F8), data.astype(F8)), 5e-7)


def test_float64_parameters_are_as_without_it():
    plain = kernels.likelihood(tilted)
    for kind, order in [*WAYS, ("F", 1), ("D", 0)]:
        a, b = (
            kernels.likelihood(tilted, sums=np.float64).lowered(3, 2, kind, order),
            kernels.likelihood(tilted).lowered(3, 2, kind, order),
        )
        assert a.precise is None and not a.wide
        assert emit(a, 8, 64, False, "x") == emit(b, 8, 64, False, "x") and emit_cuda(a)[0] == emit_cuda(b)[0]
    theta, x = THETA.astype(F8), DATA.astype(F8)
    for a, b in zip(TILTED.value_and_grad(theta, x), plain.value_and_grad(theta, x), strict=True):
        assert a.dtype == F8 and np.array_equal(a, b)


def test_without_it_the_text_is_what_it_was():
    """No float64 in a float32 kernel that was not asked for it, in either language, and the other way
    round."""
    for k, wide in [(NARROW, False), (TILTED, True)]:
        low = k.lowered(3, 2, dtype=F4)
        texts = [emit(low, 16, 32, False, "x"), emit_cuda(low, F4)[0], emit_split(low, F4)[0]]
        assert ["double" in text for text in texts] == [wide] * 3


def test_a_program_knows_its_dtype():
    low = TILTED.lowered(3, 2, dtype=F4)
    for emitter in (emit_cuda, emit_split):
        with pytest.raises(ArgumentError, match="for np.float32"):
            emitter(low, np.float64)


# --- what a kernel gives ---


@pytest.mark.long
def test_every_method():
    theta, x, v = THETA, DATA, RNG.normal(size=THETA.shape).astype(F4)
    wide = [a.astype(F8) for a in (theta, x, v)]
    for name, given, dtype, tolerance in [
        ("__call__", (0, 1), F8, 1e-7), ("grad", (0, 1), F4, 3e-7), ("hvp", (0, 2, 1), F4, 3e-7), ("hessian",
        (0, 1), F4, 3e-7),
        ("contributions", (0, 1), F4, 1e-6), ("scores", (0, 1), F4, 1e-6), ("fisher", (0, 1), F4, 3e-7),
    ]:  # fmt: skip
        found = getattr(TILTED, name)(*[(theta, x, v)[n] for n in given])
        assert found.dtype == dtype, name
        close(found, getattr(EXACT, name)(*[wide[n] for n in given]), tolerance)
    for name in ("contributions", "scores"):
        assert np.array_equal(getattr(TILTED, name)(theta, x), getattr(NARROW, name)(theta, x))


def test_fisher_of_many_data():
    """The outer products of exact scores."""
    k = kernels.likelihood(lambda theta, x: theta[0] * x + theta[1], sums=np.float64)
    x = RNG.integers(-(2**12), 2**12, 200_000)
    expected = [[int((x * x).sum()), int(x.sum())], [int(x.sum()), len(x)]]
    assert np.array_equal(k.fisher(np.ones(2, F4), x.astype(F4)), np.array(expected, float).astype(F4))
    assert np.array_equal(
        k.fisher(np.ones((2, 3), F4), x.astype(F4))[1], np.array(expected, float).astype(F4)
    )


def test_one_sample_trees_and_out():
    value = TILTED(THETA[:, 0].copy(), DATA)
    assert value.dtype == F8 and value == TILTED(THETA, DATA)[0]
    v, g = TILTED.value_and_grad(THETA[:, 0].copy(), DATA)
    assert v == value and g.dtype == F4 and g.shape == (3,)

    @dataclasses.dataclass
    class Parameters:
        mu: object
        sigma: object

    k = kernels.likelihood(lambda theta, x: normal((theta.mu, theta.sigma), x), sums=np.float64)
    x, theta = grid(100), np.array([[0.5, 1.0], [1.5, 2.0]], F4)
    v, g = k.value_and_grad(Parameters(*theta), x)
    expected = NORMAL.value_and_grad(theta, x)
    assert (
        v.dtype == F8
        and np.array_equal(v, expected[0])
        and np.array_equal(g.mu, expected[1][0])
        and g.sigma.dtype == F4
    )

    out = np.empty(37), np.empty((3, 37), F4)
    assert TILTED.value_and_grad(THETA, DATA, out=out)[0] is out[0]
    assert np.array_equal(out[0], TILTED(THETA, DATA)) and np.array_equal(out[1], TILTED.grad(THETA, DATA))
    with pytest.raises(ShapeError, match=r"out\[0\].*float64"):
        TILTED(THETA, DATA, out=np.empty(37, F4))
    with pytest.raises(ShapeError, match=r"out\[1\].*float32"):
        TILTED.value_and_grad(THETA, DATA, out=(np.empty(37), np.empty((3, 37))))


def test_a_remembered_launch():
    k = kernels.likelihood(tilted, sums=np.float64)
    theta = np.ascontiguousarray(THETA[:, :1])
    first = k.value_and_grad(theta, DATA)
    assert k._launches.VG is not None
    again = k.value_and_grad(theta, DATA)
    assert [a.dtype for a in again] == [F8, F4]
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    wide = k.value_and_grad(theta.astype(F8), DATA.astype(F8))
    assert [a.dtype for a in wide] == [F8, F8]
    once_more = k.value_and_grad(theta, DATA)
    assert all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(first, once_more, strict=True))


def test_threads_and_padding_give_the_same_bits(monkeypatch):
    """Results of two dtypes, in parts that begin anywhere."""
    theta = (np.abs(RNG.normal(size=(3, 3001))) + 0.5).astype(F4)
    x = RNG.normal(size=(2, 900)).astype(F4)
    found = []
    for threads in (1, 3):
        monkeypatch.setattr(waiting, "THREADS", threads)
        found.append([*TILTED.value_and_grad(theta, x), tg.grad(lambda x: TILTED(theta, x).sum())(x)])
    for a, b in zip(*found, strict=True):
        assert np.isfinite(a).all() and np.array_equal(a, b)
    few = TILTED.value_and_grad(theta[:, 2900:].copy(), x)
    assert np.array_equal(few[0], found[0][0][2900:]) and np.array_equal(few[1], found[0][1][:, 2900:])


def test_missing_and_invalid():
    x = np.insert(DATA, 7, np.nan, axis=1)
    for a, b in zip(TILTED.value_and_grad(THETA, x), TILTED.value_and_grad(THETA, DATA), strict=True):
        close(a, b, 1e-7)
    theta = THETA.copy()
    theta[1, 5] = -1.0
    value, gradient = TILTED.value_and_grad(theta, DATA)
    assert (
        value.dtype == F8
        and value[5] == -np.inf
        and not gradient[:, 5].any()
        and np.isfinite(value[:5]).all()
    )
    assert not tg.grad(lambda x: TILTED(theta[:, 5:6], x).sum())(DATA).any()
    left = kernels.likelihood(tilted, invalid="nan", sums=np.float64)
    value, gradient = left.value_and_grad(theta, DATA)
    assert np.isnan(value[5]) and np.isfinite(value[:5]).all()
    close(gradient, kernels.likelihood(tilted, invalid="nan").grad(theta.astype(F8), DATA.astype(F8)), 5e-7)


def test_a_value_beyond_float32():
    """The sum has room where no float32 would, each term having it."""
    k = kernels.likelihood(lambda theta, x: theta[0] * x, sums=np.float64)
    value, gradient = k.value_and_grad(np.full((1, 1), 1e30, F4), np.full(1000, 1e7, F4))
    assert abs(value[0] / (1000 * float(F4.type(1e30)) * 1e7) - 1) < 1e-15 and gradient[0, 0] == F4.type(1e10)


@pytest.mark.parametrize(
    "bad",
    [
        np.float32,
        np.float16,
        "float32",
        np.int64,
        np.complex128,
        np.longdouble,
        "wide",
        64,
        float("nan"),
        int,
    ],
)
def test_other_dtypes_raise(bad):
    if np.dtype(np.longdouble) == F8 and bad is np.longdouble:
        pytest.skip("longdouble is float64 here")
    for make in (
        lambda: kernels.likelihood(normal, sums=bad),
        lambda: kernels.recursion(lambda th: 0.0, lambda m, th, y: (m, y), sums=bad),
    ):
        with pytest.raises(ArgumentError, match="sums="):
            make()
    assert kernels.likelihood(normal, sums="float64")(np.ones((2, 1), F4), np.ones(2, F4)).dtype == F8


# --- on the tape ---


def both(f, *arrays):
    """f of the kernel and float32 arrays, and of the float64 kernel and the same numbers."""
    return f(TILTED, *arrays), f(EXACT, *[a.astype(F8) for a in arrays])


W = RNG.normal(size=37)
V, U = RNG.normal(size=(2, 3, 37)).astype(F4)
Y = RNG.normal(size=DATA.shape).astype(F4)
EACH = (DATA[:, :40, None] * (1 + 0.1 * RNG.normal(size=37))).astype(F4)


def scalar(k, t, x):
    return (k(t, x) * (1e-2 * W)).sum() + (k(t, x) ** 2).sum() * 1e-4


def through_value_and_grad(k, t, x):
    value, gradient = k.value_and_grad(t, x)
    return (value * (1e-2 * W)).sum() + (gradient * gradient).sum() * 1e-3


@pytest.mark.parametrize("f", [scalar, through_value_and_grad])
@pytest.mark.parametrize("data", [DATA[:, :40].copy(), EACH])
def test_derivatives_on_the_tape(f, data):
    """First and second, by theta and by the data, in all mixtures; each has the dtype of what it is a
    derivative by."""
    by = {
        "grad": lambda k, t, x: tg.grad(lambda t: f(k, t, x))(t),
        "grad by data": lambda k, t, x: tg.grad(lambda x: f(k, t, x))(x),
        "reverse over reverse": lambda k, t, x: tg.grad(
            lambda t: (tg.grad(lambda t: f(k, t, x))(t) * V).sum()
        )(t),
        "by data, of grad": lambda k, t, x: tg.grad(lambda x: (tg.grad(lambda t: f(k, t, x))(t) * V).sum())(
            x
        ),
        "forward over reverse": lambda k, t, x: tg.jvp(
            lambda t: tg.grad(lambda t: f(k, t, x))(t), (t,), (V.astype(t.dtype),)
        )[1],
        "reverse over forward": lambda k, t, x: tg.grad(
            lambda t: tg.jvp(lambda t: f(k, t, x), (t,), (V.astype(t.dtype),))[1]
        )(t),
    }
    for name, d in by.items():
        ours, exact = both(d, THETA, data)
        assert ours.dtype == F4, name
        close(ours, exact, 5e-6)


@pytest.mark.long
@pytest.mark.parametrize("data", [DATA[:, :40].copy(), EACH])
def test_tangents_are_of_the_values_dtype(data):
    y = Y[:, :40].copy() if data.ndim == 2 else (EACH * 0.3).astype(F4)
    along_theta = lambda k, t, x, v, y: tg.jvp(lambda t: k(t, x), (t,), (v,))[1]
    along_data = lambda k, t, x, v, y: tg.jvp(lambda x: k(t, x), (x,), (y,))[1]
    twice = lambda k, t, x, v, y: tg.jvp(lambda t: tg.jvp(lambda t: k(t, x), (t,), (v,))[1], (t,), (v,))[1]
    mixed = lambda k, t, x, v, y: tg.jvp(lambda x: tg.jvp(lambda t: k(t, x), (t,), (v,))[1], (x,), (y,))[1]
    of_both = lambda k, t, x, v, y: tg.jvp(lambda t: k.value_and_grad(t, x)[0], (t,), (v,))[1]
    for d in (along_theta, along_data, twice, mixed, of_both):
        ours, exact = both(d, THETA, data, V, y)
        assert ours.dtype == F8
        close(ours, exact, 1e-6)
    gradient = lambda k, t, x, v, y: tg.jvp(lambda t: k.value_and_grad(t, x)[1], (t,), (v,))[1]
    ours, exact = both(gradient, THETA, data, V, y)
    assert ours.dtype == F4
    close(ours, exact, 1e-6)


def test_a_pullback_takes_a_float64_cotangent():
    for f in (lambda t: TILTED(t, DATA), lambda t: TILTED.value_and_grad(t, DATA)[0]):
        value, pullback = tg.vjp(f, THETA)
        found = pullback(W)
        found = found[0] if isinstance(found, tuple) else found
        assert value.dtype == F8 and found.dtype == F4
        close(found, EXACT.grad(THETA.astype(F8), DATA.astype(F8)) * W, 5e-7)
    value, pullback = tg.vjp(lambda t: TILTED.value_and_grad(t, DATA), THETA)
    found = pullback((W, U))
    found = found[0] if isinstance(found, tuple) else found
    assert found.dtype == F4


def test_directions_add_up_exactly():
    """A tangent of a million terms: the sum of whole numbers."""
    x = RNG.integers(-(2**20), 2**20, 10**6)
    k = kernels.likelihood(lambda theta, x: theta[0] * x, sums=np.float64)
    one = np.ones((1, 1), F4)
    assert tg.jvp(lambda t: k(t, x.astype(F4)), (one,), (one,))[1][0] == int(x.sum())


def test_by_shared_data_the_samples_are_added_in_float64():
    """The derivative by each datum is a sum over 100,000 samples."""
    theta = RNG.integers(-(2**20), 2**20, (1, 100_003))
    k = kernels.likelihood(lambda theta, x: theta[0] * x, sums=np.float64)
    found = tg.grad(lambda x: k(theta.astype(F4), x).sum())(np.ones(3, F4))
    assert found.dtype == F4 and (found == F4.type(int(theta.sum()))).all()


def test_recursions_on_the_tape():
    init, step = (
        lambda theta: theta[0],
        lambda m, theta, y: (theta[1] * m + theta[2] * y, -0.5 * (y - m) ** 2),
    )
    k, exact = kernels.recursion(init, step, sums=np.float64), kernels.recursion(init, step)
    theta = np.array([[0.3, 0.2], [0.7, 0.5], [0.2, 0.4]], F4)
    y = RNG.normal(size=500).astype(F4)
    wide = theta.astype(F8), y.astype(F8)
    for d in (
        lambda k, t, y: tg.grad(lambda t: (k(t, y) ** 2).sum() * 1e-3)(t),
        lambda k, t, y: tg.grad(lambda y: (k(t, y) ** 2).sum() * 1e-3)(y),
        lambda k, t, y: tg.hvp(lambda t: (k(t, y) ** 2).sum() * 1e-3, t, np.ones_like(t)),
        lambda k, t, y: k.hessian(t, y),
        lambda k, t, y: k.final(t, y),
    ):
        ours = d(k, theta, y)
        assert ours.dtype == F4
        close(ours, d(exact, *wide), 5e-6)
    assert k(theta, y).dtype == F8
    close(k(theta, y), exact(*wide), 2e-7)
    holes = y.copy()
    holes[[3, 77]] = np.nan
    skip = kernels.recursion(init, step, missing="skip", sums=np.float64)
    close(skip(theta, holes), kernels.recursion(init, step, missing="skip")(wide[0], holes.astype(F8)), 2e-7)


def test_a_loop_outside_of_the_sum():
    """A while loop in the start of a recursion: its adjoint starts from a float64 sum, rounded."""

    def init(theta):
        return kernels.while_loop(
            lambda c: c[0] < 3.0, lambda c: (c[0] + theta[0], c[1] * theta[1]), (0.0, 1.0), 40
        )[1]

    step = lambda m, theta, y: (m * theta[0], -((y - m) ** 2))
    k, exact = kernels.recursion(init, step, sums=np.float64), kernels.recursion(init, step)
    theta, y = np.array([[0.4, 0.9], [1.1, 0.8]], F4), RNG.normal(size=50).astype(F4)
    value, gradient = k.value_and_grad(theta, y)
    expected = exact.value_and_grad(theta.astype(F8), y.astype(F8))
    assert value.dtype == F8 and gradient.dtype == F4
    close(value, expected[0], 1e-6)
    close(gradient, expected[1], 2e-6)


# --- CuPy ---


def same(ours, reference):
    for a, b in zip(ours, reference, strict=True):
        a = a.get()
        assert a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b), np.abs(a - b).max()


@pytest.mark.parametrize("batch, steps", [(37, 300), (1, 5000), (3, 70)])
def test_on_cupy_arrays(cupy, batch, steps):
    """Few samples: the sum is divided."""
    theta, x = THETA[:, :batch].copy(), RNG.normal(size=(2, steps)).astype(F4)
    t, d = cupy.asarray(theta), cupy.asarray(x)
    v = cupy.asarray(V[:, :batch].copy())
    same(TILTED.value_and_grad(t, d), TILTED.value_and_grad(theta, x))
    same([TILTED(t, d), TILTED.hvp(t, v, d)], [TILTED(theta, x), TILTED.hvp(theta, V[:, :batch].copy(), x)])
    f = lambda t, d: (TILTED(t, d) ** 2).sum()
    for a, b in [
        (tg.grad(lambda t: f(t, d))(t), tg.grad(lambda t: f(t, x))(theta)),
        (tg.grad(lambda d: f(t, d))(d), tg.grad(lambda x: f(theta, x))(x)),
        (TILTED.fisher(t, d), TILTED.fisher(theta, x)),
        (
            tg.jvp(lambda t: TILTED(t, d), (t,), (v,))[1],
            tg.jvp(lambda t: TILTED(t, x), (theta,), (V[:, :batch].copy(),))[1],
        ),
    ]:
        assert a.dtype == b.dtype
        close(a.get(), b, 1e-6)


@pytest.mark.parametrize("name", ["local level", "kalman 4", "hidden markov"])
def test_recursions_on_cupy_arrays(cupy, name):
    """That of four states keeps the totals of its sums in the tape."""
    narrow, theta, data = case(name)
    k, theta, data = widened(narrow), theta.astype(F4), data.astype(F4)
    t, d = cupy.asarray(theta), cupy.asarray(data)
    value, gradient = k.value_and_grad(t, d)
    assert value.dtype == F8 and gradient.dtype == F4
    same((value, gradient), k.value_and_grad(theta, data))
    out = cupy.empty(11), cupy.empty(theta.shape, F4)
    k.value_and_grad(t, d, out=out)
    same(out, k.value_and_grad(theta, data))
