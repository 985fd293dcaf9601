"""Algebra of tracked sparse matrices against the same on dense arrays: sums, products, transposes, `kron`,
block arrays, selected entries; in both modes, to third order, under vmap and replayed."""

import numpy as np
import pytest
import scipy.sparse

import tapegrad as tg

N = 5
RNG = np.random.default_rng(7)
X, V, B = RNG.normal(size=N) + 2.0, RNG.normal(size=N), RNG.normal(size=(N, 2))
FIXED = scipy.sparse.diags_array([np.ones(N - 1), np.full(N, 2.0)], offsets=[1, 0], format="csr")


def energy(x):
    return (np.diff(x) ** 4).sum() / 6 + (x**3).sum() + x[0] * x[2] ** 2


PLAN, DENSE = tg.sparse.prepare_hessian(energy, X), tg.hessian(energy)

# name -> what is done to a Hessian H and a matrix F; None: the same text for dense arrays
ALGEBRA = {
    "sum": (lambda H, F: H + 2.0 * F - H * 0.5, None),
    "product with a vector": (lambda H, F: H @ V, None),
    "product with a matrix": (lambda H, F: F @ (H @ B), None),
    "product of sparse ones": (lambda H, F: H @ F @ H, None),
    "transpose": (lambda H, F: (F @ H).T @ V, None),
    "quadratic form": (lambda H, F: np.array([V @ (H @ V), V @ (F @ (H @ V))]), None),
    "kron": (
        lambda H, F: scipy.sparse.kron(scipy.sparse.eye_array(2), H),
        lambda H, F: np.kron(np.eye(2), H),
    ),
    "kron of both": (lambda H, F: scipy.sparse.kron(H, F), lambda H, F: np.kron(H, F)),
    "blocks": (
        lambda H, F: scipy.sparse.block_array([[H, F], [F.T, None]]),
        lambda H, F: np.block([[H, F], [F.T, np.zeros((N, N))]]),
    ),
    "block diagonal": (
        lambda H, F: scipy.sparse.block_diag([H, F]),
        lambda H, F: np.block([[H, 0 * F], [0 * F, F]]),
    ),
    "stacks": (
        lambda H, F: scipy.sparse.vstack([H, scipy.sparse.hstack([F[:, :2], H[:, 2:]])]),
        lambda H, F: np.concatenate([H, np.concatenate([F[:, :2], H[:, 2:]], axis=1)]),
    ),
    "entries": (lambda H, F: np.stack([H[0, 0], H[1, 2], H[2, 1], H[4, 0]]), None),
    "rows": (lambda H, F: H[1:4] @ V, None),
    "places": (lambda H, F: H[[0, 3, 2]] @ V + (H[:, [1, 4, 0]] @ V[:3])[:3], None),
    "diagonal": (lambda H, F: H.diagonal() + np.reshape(np.asarray(H.sum(axis=0)), (-1,)), None),
}


def functions(name):
    """The function of a sparse matrix and that of a dense one, from x to a vector."""
    change, other = ALGEBRA[name]

    def sparse(x):
        found = change(PLAN(x) * x[1], FIXED * x[0])
        return np.reshape(found.toarray() if hasattr(found, "toarray") else found, (-1,))

    def dense(x):
        return np.reshape((other or change)(DENSE(x) * x[1], FIXED.toarray() * x[0]), (-1,))

    return sparse, dense


BY_DEFAULT = ("product of sparse ones", "kron", "blocks", "entries")


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in BY_DEFAULT else pytest.mark.long) for n in ALGEBRA]
)
def test_algebra_is_that_of_dense_matrices(name):
    sparse, dense = functions(name)
    np.testing.assert_allclose(sparse(X), dense(X), rtol=1e-13)
    w = np.cos(np.arange(dense(X).size))
    one, two = (lambda x, f=f: (w * f(x) ** 2).sum() for f in (sparse, dense))
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10 * abs(np.asarray(b)).max())
    close(tg.grad(one)(X), tg.grad(two)(X))
    close(tg.jvp(sparse, (X,), (V,))[1], tg.jvp(dense, (X,), (V,))[1])
    close(tg.hessian(one)(X), tg.hessian(two)(X))
    third = lambda f: tg.jvp(lambda x: tg.hvp(f, x, V), (X,), (V,))[1]
    close(third(one), third(two))
    samples = np.stack([X, X + 0.1, 2.0 - X])
    close(tg.vmap(tg.grad(one))(samples), [tg.grad(two)(x) for x in samples])
    prepared = tg.prepare(one, X)
    for x in samples:
        close(prepared.grad(x), tg.grad(two)(x))
