"""Operands of integers of few bits, and of truth values: rules compute -b, b - 1 and exp(b)."""

import numpy as np
import pytest
import scipy.special as sp

import tapegrad as tg

INTEGERS = [np.array([5, 1], np.uint8), np.array([-128, 3], np.int8), np.array([2, 1], np.uint64)]
OPERATIONS = [
    np.minimum, np.fmin, np.maximum, np.fmax, np.hypot, np.arctan2, np.logaddexp, np.copysign,
    np.subtract, np.divide, np.remainder, lambda x, n: np.clip(x, -1.0, n), lambda x, n: n - x,
    lambda x, n: np.ldexp(x, (n % 4).astype(np.int8)),
]  # fmt: skip


@pytest.mark.parametrize("integers", INTEGERS, ids=lambda n: n.dtype.name)
@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("f", OPERATIONS)
def test_integers_count_as_floats_of_the_same_value(f, kind, integers):
    x = np.array([0.375, 1.25], kind)
    wide = integers.astype(np.int64 if f is OPERATIONS[-1] else np.float64)
    y = f(x, integers)
    value, pullback = tg.vjp(lambda x: f(x, integers), x)
    assert value.dtype == y.dtype
    np.testing.assert_array_equal(value, y)
    wanted = tg.vjp(lambda x: f(x.astype(float), wide), x)[1](np.array([1.0, 2.0]))
    np.testing.assert_allclose(
        pullback(np.array([1, 2], y.dtype)), wanted, rtol=1e-2 if kind is np.float16 else 1e-6
    )
    t = tg.jvp(lambda x: f(x, integers), (x,), (np.ones(2, kind),))[1]
    assert t.dtype == y.dtype
    np.testing.assert_allclose(np.sum(np.array([1.0, 2.0]) * t), np.sum(wanted), rtol=1e-2)


@pytest.mark.parametrize("n", [np.uint8(0), np.uint8(5), np.int8(-3), np.array([0, 2], np.uint16)], ids=repr)
@pytest.mark.parametrize(
    "f",
    [
        sp.jv, sp.iv, sp.kv, sp.binom, sp.eval_legendre, sp.eval_chebyu, sp.huber, np.hypot, sp.agm, sp.xlogy,
        lambda n, x: x**n, lambda n, x: np.minimum(n, x),
    ],
)  # fmt: skip
def test_special_functions_of_integers(f, n):
    x = np.array([0.7, 2.3])
    wide = n.astype(np.int64)
    np.testing.assert_array_equal(tg.vjp(lambda x: f(n, x), x)[0], f(n, x))
    for derivative in (
        tg.grad,
        lambda g: tg.jacobian(g, mode="forward"),
        lambda g: lambda x: tg.hvp(g, x, x),
    ):
        found, wanted = [derivative(lambda x, n=n: np.sum(f(n, x)))(x) for n in (n, wide)]
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize("truth", [True, np.array([True, False])], ids=["bool", "array"])
@pytest.mark.parametrize("f", [
    sp.xlog1py, sp.boxcox1p, sp.binom, sp.iv, sp.kv, sp.ellipeinc, sp.struve, np.hypot, lambda x, b: sp.eval_legendre(b, x),
    lambda x, b: sp.xlog1py(b, x), lambda x, b: sp.ellipkinc(b, x), lambda x, b: sp.hyp2f1(b, x, 1.5, 0.3),
])  # fmt: skip
def test_truth_values_count_as_numbers(f, truth):
    for x in (np.array([0.7, 0.3]), np.array([0.7, 0.3], np.float32)):
        found, wanted = [
            [np.sum(d) for d in (tg.grad(g)(x), tg.jvp(g, (x,), (x,))[1], tg.hvp(g, x, x))]
            for g in (lambda x, b=b: np.sum(f(x, b)) for b in (truth, np.asarray(truth, x.dtype)))
        ]
        np.testing.assert_allclose(found, wanted, rtol=1e-12 if x.dtype == float else 1e-5)
        assert tg.vjp(lambda x: f(x, truth), x)[0].dtype == f(x, truth).dtype


@pytest.mark.parametrize("n", [-1, -2, -3, -4, -2.5, np.array([-3, -5])])
@pytest.mark.parametrize("f", [sp.eval_legendre, sp.eval_sh_legendre])
def test_legendre_of_negative_degree(f, n):
    x, mirror = np.array([0.37, 0.2]), -n - 1
    for g in (tg.grad, lambda h: lambda x: tg.hvp(h, x, x)):
        np.testing.assert_allclose(
            g(lambda x: np.sum(f(n, x)))(x), g(lambda x: np.sum(f(mirror, x)))(x), rtol=1e-12
        )


@pytest.mark.parametrize("n", [-1, -2, -3, -4, -2.5, np.array([-3, -5])])
@pytest.mark.parametrize("f", [sp.eval_chebyu, sp.eval_chebys, sp.eval_sh_chebyu])
def test_chebyshev_of_negative_degree(f, n):
    x, mirror = np.array([0.37, 0.2]), -n - 2
    for g in (tg.grad, lambda h: lambda x: tg.hvp(h, x, x)):
        wanted = 0.0 if np.all(mirror == -1) else -g(lambda x: np.sum(f(mirror, x)))(x)
        np.testing.assert_allclose(g(lambda x: np.sum(f(n, x)))(x), wanted, rtol=1e-12, atol=1e-14)


def test_the_mean_of_negative_numbers():
    x = np.array([3.0, 1.3])

    def mean(x):
        return sp.agm(x[0], x[1])

    np.testing.assert_allclose(tg.grad(mean)(-x), tg.grad(mean)(x), rtol=1e-14)
    np.testing.assert_allclose(tg.hessian(mean)(-x), -tg.hessian(mean)(x), rtol=1e-13)
