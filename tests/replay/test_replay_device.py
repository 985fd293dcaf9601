"""Groups of instructions on CuPy arrays as kernels of CUDA C: its text, run on the host by g++, agrees with
plain calls."""

import numpy as np
import pytest
from _cuda_host import array_library  # noqa: F401  (the fixture `cupy`)

import tapegrad as tg
from tapegrad._core.trees import leaves
from tapegrad.kernels.launch.cuda import cubin

RNG = np.random.default_rng(3)
X, Y = RNG.normal(size=600), RNG.normal(size=600)


def host(cupy, x):
    return [cupy.asnumpy(a) if hasattr(a, "get") else a for a in leaves(x)]


FUNCTIONS = {
    "chain": lambda np, x: (np.tanh(x * 1.3 + 0.2) ** 2 * np.exp(-(x * x))).sum(),
    "sines": lambda np, x: np.sum(np.sin(x * 300.0) * np.cos(x) + x),
    "choices": lambda np, x: np.where(x > 0.1, np.log1p(np.abs(x)), x**3).sum() + np.maximum(x, 0.3).sum(),
    "rosenbrock": lambda np, x: np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2),
    "stencil": lambda np, x: np.sum((np.roll(x, 1) - 2.0 * x + np.roll(x, -1)) ** 2 * x[::-1]),
    "blocks": lambda np, x: np.sum((x.reshape(20, 30) * np.cos(x[:30])).T ** 2 + x[:20]),
}


FEW = [
    ("chain", "hvp", "f4"),
    ("sines", "value", "f8"),
    ("choices", "grad", "f8"),
    ("stencil", "hvp", "f8"),
    ("blocks", "grad", "f8"),
]
ALL = [(f, m, t) for f in FUNCTIONS for m in ("value", "grad", "hvp") for t in ("f8", "f4")]


@pytest.mark.parametrize(
    ("name", "method", "dtype"),
    [*FEW, *[pytest.param(*c, marks=pytest.mark.long) for c in ALL if c not in FEW]],
)
def test_the_kernels_agree_with_plain_calls(name, method, dtype, cupy):
    x, v = X.astype(dtype), Y.astype(dtype)
    f, g = (lambda x: FUNCTIONS[name](cupy, x)), (lambda x: FUNCTIONS[name](np, x))
    p = tg.prepare(f, cupy.asarray(x), compile=True)
    for k in range(4):
        at, by = (x * dtype_of(dtype)(1 + k / 8), v)
        given = (cupy.asarray(at), cupy.asarray(by))[: 2 if method == "hvp" else 1]
        got = host(cupy, getattr(p, method)(*given))[0]
        want = {"value": lambda: g(at), "grad": lambda: tg.grad(g)(at), "hvp": lambda: tg.hvp(g, at, by)}[
            method
        ]()
        assert got.dtype == want.dtype and got.shape == np.shape(want)
        np.testing.assert_allclose(
            got, want, 1e-11 if dtype == "f8" else 2e-3, 1e-11 if dtype == "f8" else 2e-3
        )
    kept = p.forms[method].programs[0]
    assert kept.emitted.groups and not kept.failures and not kept.refusals


def dtype_of(dtype):
    return np.dtype(dtype).type


def test_what_is_written_read_and_carried_on(cupy):
    """Captured buffers, strided views, truths, and results in another memory order."""
    buffer = cupy.zeros((20, 30))

    def f(x):
        u = x.reshape(20, 30)
        buffer[1:, ::2] = u[:-1, ::2] * 2.0
        buffer[0] += 1.0
        return (buffer * u).T, u[::-1, ::3] > 0.1, (u * u).sum()

    x = cupy.asarray(X)
    p = tg.prepare(f, x, compile=True)
    for k in range(4):
        at = x * (1.0 + k)
        buffer[...] = 0.5
        got, left = host(cupy, p.value(at)), cupy.asnumpy(buffer)
        buffer[...] = 0.5
        want = host(cupy, f(at))
        for a, b in zip([*got, left], [*want, cupy.asnumpy(buffer)], strict=True):
            np.testing.assert_allclose(a, b, 1e-13)
            assert a.dtype == b.dtype and a.strides == b.strides
    kept = p.forms["value"].programs[0]
    assert kept.emitted.groups and not kept.failures and not kept.refusals


def test_integers_beside_floats(cupy):
    whole, small = cupy.arange(600) - 300, cupy.arange(600, dtype="i4")[::-1]
    f = lambda x: (
        x * whole + x / (small + 1.0),
        np.where(x > 0.0, x, whole),
    )  # (hosted CuPy's own counts its calls, which is state)
    x = cupy.asarray(X)
    p = tg.prepare(f, x, compile=True)
    for _ in range(4):
        for a, b in zip(p.value(x), f(x), strict=True):
            np.testing.assert_array_equal(cupy.asnumpy(a), cupy.asnumpy(b))
    kept = p.forms["value"].programs[0]
    assert kept.emitted.groups and not kept.failures


def test_a_group_is_one_launch_and_waits_for_nothing(cupy):
    f = lambda x: cupy.exp(cupy.tanh(x) * 2.0 + x * x) - x[::-1]
    x = cupy.asarray(X)
    plain, p = tg.prepare(f, x, compile=False), tg.prepare(f, x, compile=True)
    for _ in range(4):
        plain.value(x), p.value(x)
    if cupy.hosted:
        launches, kernels, syncs = len(cupy.loader.launches), cupy.stats["kernels"], cupy.stats["syncs"]
        p.value(x)
        assert len(cupy.loader.launches) == launches + 1 and cupy.stats["syncs"] == syncs
        assert cupy.stats["kernels"] == kernels
        plain.value(x)
        assert cupy.stats["kernels"] > kernels + 4
    assert "1 compiled loop with" in p.report()


def test_what_is_not_finite_stays_so(cupy):
    """CuPy warns of nothing."""
    f = lambda x: cupy.log(x) * 2.0 + 1.0 / x
    x = cupy.asarray(np.array([1.0, 0.0, -1.0, np.nan, np.inf]))
    p = tg.prepare(f, x, compile=True)
    for _ in range(4):
        np.testing.assert_allclose(cupy.asnumpy(p.value(x)), [1.0, np.nan, np.nan, np.nan, np.inf])
    assert not p.forms["value"].programs[0].refusals


def test_nvrtc_takes_the_text(cupy):
    if not cupy.hosted:
        return  # it did
    for name, dtype in (("choices", "f8"), ("sines", "f4")):
        x = cupy.asarray(X.astype(dtype))
        p = tg.prepare(lambda x, name=name: FUNCTIONS[name](cupy, x), x, compile=True)
        for _ in range(4):
            p.grad(x)
    assert len(cupy.loader.kernels) == 2
    for source, _ in cupy.loader.kernels:
        for arch in (75, 90):
            assert cubin(source, arch)[0]
