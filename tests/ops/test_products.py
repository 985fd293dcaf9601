"""Products with transposes, which are recorded without the transpose, and small systems, which go to LAPACK
itself."""

import numpy as np
import pytest
from _modes import check_first, check_second, complex_step, second_difference
from comparison import close

import tapegrad as tg

pytestmark = pytest.mark.smoke

# --- transposes read for a product, small systems ---


def written_before_use(x):
    A = x * 1.0
    B = A.T
    A[0, 1] = x[1, 1] ** 2
    return ((B @ x) ** 2).sum()


def written_between_uses(x):
    A = x * 1.0
    B = A.T
    y = B @ x
    A[1] = x[0] * 3
    z = x @ B
    return (y * z).sum()


def written_through_the_transpose(x):
    A = x * 1.0
    B = A.T
    y = (B @ x).sum() ** 2
    B[0] *= x[1]
    return y + ((A @ B) ** 2).sum()


def transposed_twice_and_in_part(x):
    A = x * 1.0
    return ((A[:2].T @ A[1:]) * x).sum() + (A.T.T @ x[0]) @ (x[0] @ A.T) + (A.T + x @ A.T).sum() ** 2


def vectors_and_transposes(x):
    return x[0] @ x.T @ x[1] + (x.T @ x[2]) @ (x @ x[0]) + ((x[0] @ x) * x[1]).sum()


def a_constant_transposed(x):
    C = np.arange(9.0).reshape(3, 3)
    return (C.T @ x @ C.T @ x.T).sum() + (C.T @ x[0]).sum()


def the_transpose_kept_in_a_list(x):
    views = [x.T]
    return sum([(v @ x @ v).sum() for v in views * 3])


PRODUCTS = [
    written_before_use, written_between_uses, written_through_the_transpose, transposed_twice_and_in_part,
    vectors_and_transposes,
    a_constant_transposed, the_transpose_kept_in_a_list,
]  # fmt: skip


@pytest.mark.parametrize("f", PRODUCTS)
def test_transposes_in_products(f):
    x, v = np.random.default_rng(4).standard_normal((2, 3, 3))
    close(tg.value_and_grad(f)(x)[0], f(x), 1e-14)
    check_first(f, x, complex_step(lambda z: f(z.astype(complex)), x))
    check_second(f, x, v, second_difference(lambda z: f(z.astype(complex)), x, v), 1e-8)


def test_a_transpose_of_one_tape_in_a_product_of_another():
    x = np.random.default_rng(5).standard_normal((2, 2))
    f = lambda a: (tg.grad(lambda b: ((a.T @ b) ** 2).sum())(a) * a.T).sum()
    check_first(f, x, complex_step(lambda a: (2 * a @ (a.T @ a) * a.T).sum(), x))


@pytest.mark.parametrize("n", [1, 2, 5, 32, 33])
def test_small_systems_have_numpys_values_layout_and_errors(n):
    g = np.random.default_rng(n)
    a, b, c = g.standard_normal((n, n)) + n * np.eye(n), g.standard_normal((n, 2)), g.standard_normal(n)
    s = a @ a.T + np.eye(n)
    seen = []

    def f(a, b, c, s):
        seen.extend(
            [
                np.linalg.solve(a, b),
                np.linalg.solve(a.T, c),
                np.linalg.cholesky(s),
                np.linalg.solve(a, b[:, :1]),
            ]
        )
        return sum([(y**2).sum() for y in seen[-4:]])

    f(a, b, c, s)
    plain = seen[:]
    seen.clear()
    value, grads = tg.value_and_grad(f, (0, 1, 2, 3))(a, b, c, s)
    for y, z in zip(seen, plain, strict=True):
        close(tg.value(y), z, 1e-12)
        assert tg.value(y).flags.c_contiguous
    flat = lambda z: f(
        z[: n * n].reshape(n, n), z[n * n : n * n + 2 * n].reshape(n, 2), z[n * n + 2 * n : n * n + 3 * n], s
    )
    expected = complex_step(flat, np.concatenate([a.ravel(), b.ravel(), c])) if n < 6 else None
    if expected is not None:
        close(np.concatenate([grads[0].ravel(), grads[1].ravel(), grads[2]]), expected, 1e-10)
    with pytest.raises(np.linalg.LinAlgError):
        tg.grad(lambda a: np.linalg.solve(a * 0, b).sum())(a)
    with pytest.raises(np.linalg.LinAlgError):
        tg.grad(lambda s: np.linalg.cholesky(-s).sum())(s)
    with pytest.raises(ValueError):
        tg.grad(lambda a: np.linalg.solve(a, np.ones(n + 1)).sum())(a)
