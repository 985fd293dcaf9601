"""Sums of products of matrices become one product in the texts of replays."""

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.replay.summed_products import SUM_OF_PRODUCTS

N = 6
RNG = np.random.default_rng(0)
A, XS, YS = RNG.normal(size=(N, N)) * 0.2, RNG.normal(size=(20, N)), RNG.normal(size=(9, 5, N))


def recurrence(a):
    h = XS[0]
    for x in XS:
        h = np.tanh(a @ h + x)
    return (h * XS[1]).sum()


def of_both_signs(a):
    """Other terms than products are added up as well."""
    total = a**3
    for k, x in enumerate(XS[:12]):
        product = np.sin(x[:, None]) @ (a @ x)[None]
        total = total - product if k % 3 else np.negative(-product - total)
    return (total**2).sum()


def of_rows(a):
    """The factors are rows of an array that loops read."""
    return sum([((a @ XS[k]) ** 2).sum() for k in range(len(XS))])


def only_negative(a):
    v = XS[0]
    for _ in range(8):
        v = np.linalg.solve(np.eye(N) + a, v)
    return (v**2).sum()


def of_matrices(a):
    return sum([np.tanh(y[:1] @ a).sum() + (y[1:3] @ a @ y[3:].T).sum() for y in YS])


def partial_sums(a):
    """A sum of some of the terms is a result as well."""
    total, parts = np.zeros((N, N)), []
    for k, x in enumerate(XS[:12]):
        total = total + np.tanh(x[:, None]) @ (a @ x)[None]
        if k % 6 == 5:
            parts.append(total)
    return (parts[0] * parts[1]).sum()


FUNCTIONS = [recurrence, of_both_signs, of_rows, only_negative, of_matrices, partial_sums]


def products(p, method="value_and_grad"):
    kept = p.forms[method].programs[0]
    return sum([i.prim is SUM_OF_PRODUCTS for _, i in kept.text_program.code])


@pytest.mark.parametrize("compile", [True, False])
@pytest.mark.parametrize("f", FUNCTIONS)
def test_values_and_derivatives(f, compile):
    p = tg.prepare(f, A, compile=compile)
    direction = RNG.normal(size=A.shape)
    for k in range(4):
        a = A + 0.01 * k
        value, gradient = p.value_and_grad(a)
        np.testing.assert_allclose(value, f(a), rtol=1e-12)
        np.testing.assert_allclose(
            (gradient * direction).sum(), f(a + 1e-30j * direction).imag / 1e-30, rtol=1e-10
        )
    assert products(p) == {of_both_signs: 3, partial_sums: 3}.get(f, 1)


def test_few_products_and_vectors_stay():
    p = tg.prepare(lambda a: sum([((a @ x) ** 2).sum() for x in XS[:3]]), A)
    p.value_and_grad(A)
    assert not products(p)
    p = tg.prepare(lambda x: sum([np.sin(A @ x + y).sum() for y in XS]), XS[0])
    p.value_and_grad(XS[0])
    assert not products(p)


def test_of_infinite_values():
    """A cotangent of zero stays zero where the other factor is infinite: the program is asked anew."""
    ys = XS.copy()
    ys[3] = np.inf

    def f(a, y):
        return sum([np.where(y[k, 0] > 1e9, 0.0, (a @ y[k]) ** 2).sum() for k in range(len(XS))])

    p = tg.prepare(f, A, ys)
    with np.errstate(all="ignore"):
        for y in (XS, ys, XS, ys, ys):
            np.testing.assert_allclose(p.grad(A, y), tg.grad(f)(A, y), rtol=1e-12)
