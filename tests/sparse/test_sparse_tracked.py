"""Sparse Jacobians and Hessians inside other transforms: against the dense ones, and by differences."""

import numpy as np
import pytest
from sparse_functions import FUNCTIONS

import tapegrad as tg
from tapegrad.errors import ArgumentError, GuardError

WEIGHTS = np.random.default_rng(5)
CALLS = [(name, "csr") for name in FUNCTIONS] + [  # some write into arrays that they capture
    ("stencil in place", "csc"),
    ("stencil in place", "coo"),
]


def chain(x, v):
    return (v[:-1] * np.diff(x) ** 3).sum() + (np.sin(x) * v).sum() + v[0] * x[0] * x[-1] ** 2


X, V = np.linspace(0.3, 1.2, 6), np.linspace(0.5, 2.0, 6)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name, format", CALLS)
def test_entries_of_jacobians_carry_derivatives(name, format):
    f, x, _ = FUNCTIONS[name]
    plan = tg.sparse.prepare_jacobian(f, x, format=format)
    rows, cols = plan(x).tocoo().coords
    w = WEIGHTS.normal(size=rows.size)
    sparse = lambda x: (w * plan.values(x)).sum()
    dense = lambda x: (w * tg.jacobian(f)(x).reshape(-1, x.size)[rows, cols]).sum()
    np.testing.assert_allclose(
        tg.grad(sparse)(x), tg.grad(dense)(x), rtol=1e-10, atol=1e-10 * (1 + abs(x).max())
    )
    v = WEIGHTS.normal(size=x.shape)
    np.testing.assert_allclose(
        tg.jvp(sparse, (x,), (v,))[1], tg.jvp(dense, (x,), (v,))[1], rtol=1e-9, atol=1e-9
    )


def test_third_and_fourth_derivatives_of_hessians():
    plan = tg.sparse.prepare_hessian(chain, X, V)
    rows, cols = plan(X, V).tocoo().coords
    w = WEIGHTS.normal(size=rows.size)
    at = lambda H: (w * H[rows, cols]).sum()
    sparse = lambda x, v: (w * plan(x, v).tocoo().data ** 2).sum()
    dense = lambda x, v: at(tg.hessian(chain)(x, v) ** 2)
    for k in (0, 1):
        np.testing.assert_allclose(tg.grad(sparse, k)(X, V), tg.grad(dense, k)(X, V), rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(
            tg.hessian(sparse, k)(X, V), tg.hessian(dense, k)(X, V), rtol=1e-10, atol=1e-11
        )
    h = 1e-5
    by_differences = [(sparse(X + h * e, V) - sparse(X - h * e, V)) / (2 * h) for e in np.eye(6)]
    np.testing.assert_allclose(tg.grad(sparse)(X, V), by_differences, rtol=1e-7, atol=1e-7)


def test_matrices_at_once_and_products():
    b = np.arange(1.0, 7.0)
    once = lambda x, v: (tg.sparse.hessian(chain, x, v) @ b) @ b
    dense = lambda x, v: b @ tg.hessian(chain)(x, v) @ b
    np.testing.assert_allclose(tg.grad(once, (0, 1))(X, V), tg.grad(dense, (0, 1))(X, V), rtol=1e-11)
    third = lambda x: (tg.sparse.jacobian(lambda y: np.diff(y) ** 3, x) @ b).sum()
    np.testing.assert_allclose(
        tg.grad(third)(X),
        tg.grad(lambda x: (tg.jacobian(lambda y: np.diff(y) ** 3)(x) @ b).sum())(X),
        rtol=1e-11,
    )


SCALE = np.ones(6)


@pytest.mark.parametrize("argnum", [0, 1])
def test_captured_array_that_the_outer_function_writes(argnum):
    """The plan follows the array of this transform, whether or not its own arguments are tracked."""
    f = lambda t, x: t * (SCALE * x**3).sum()
    of = (lambda x, t: f(t, x)) if argnum == 0 else f
    plan = tg.sparse.prepare_hessian(of, *((X, 2.0) if argnum == 0 else (2.0, X)), argnum=argnum)

    def outer(t, x):
        SCALE[0] = t
        return (plan(x, 2.0) if argnum == 0 else plan(2.0, x)).sum()

    np.testing.assert_allclose(tg.grad(outer)(3.0, X), 12 * X[0])
    np.testing.assert_allclose(tg.grad(outer, 1)(3.0, X), [36.0] + 5 * [12.0])
    SCALE[:] = 1.0


def test_captured_values_that_change_the_pattern_raise():
    C, plain, way = np.diag([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0]), np.ones(3)
    products = tg.sparse.prepare_jacobian(lambda x: C @ x**2, np.ones(3))
    branches = tg.sparse.prepare_jacobian(lambda x: x**2 if way[0] > 0 else x * np.roll(x, 1), np.ones(3))

    def with_entry(a, tracked):
        C[0, 1] = a
        return products(plain * (a if tracked else 1)).sum()

    def other_branch(a):
        way[0] = -a
        return branches(plain).sum()

    for call in (lambda: tg.grad(with_entry)(2.0, True), lambda: tg.grad(with_entry)(2.0, False)):
        C[0, 1] = 0.0
        with pytest.raises(GuardError, match="entries that the pattern lacks"):
            call()
    with pytest.raises(GuardError, match="entries that the pattern lacks"):
        tg.grad(other_branch)(2.0)


def test_under_vmap_and_prepare():
    plan = tg.sparse.prepare_hessian(chain, X, V)
    f = lambda x: (plan(x, V) @ V).sum()
    samples = np.stack([X, 2 * X, X - 1.0])
    np.testing.assert_allclose(tg.vmap(f)(samples), [f(x) for x in samples])
    np.testing.assert_allclose(tg.vmap(tg.grad(f))(samples), [tg.grad(f)(x) for x in samples])
    prepared = tg.prepare(f, X)
    for x in samples:
        np.testing.assert_allclose(prepared.grad(x), tg.grad(f)(x), rtol=1e-12)
    with pytest.raises(ArgumentError, match="vmap and recording hide"):
        tg.vmap(lambda x: tg.sparse.hessian(chain, x, V).sum())(samples)


def test_what_is_refused_within_a_transform():
    with pytest.raises(ArgumentError, match="open transform"):
        tg.grad(lambda v: tg.sparse.hessian(lambda x: (v * x**3).sum(), X).sum())(X)
    acyclic = tg.sparse.prepare_hessian(chain, X, V, kind="acyclic")
    with pytest.raises(ArgumentError, match="kind='star'"):
        tg.grad(lambda x: acyclic(x, V).sum())(X)
    branch = tg.sparse.prepare_jacobian(lambda x: x**2 if x[0] > 0 else np.cumsum(x) ** 2, X)
    with pytest.raises(GuardError, match="a condition is no longer True"):
        tg.grad(lambda x: branch(x).sum())(-X)
    with pytest.raises(GuardError, match=r"shape \(3,\)"):
        tg.grad(lambda x: branch(x).sum())(X[:3])
    plan = tg.sparse.prepare_hessian(chain, X, V)
    with pytest.raises(ArgumentError, match="out= takes no derivatives"):
        tg.grad(lambda x: plan.values(x, V, out=np.empty(plan.pattern.nnz)).sum())(X)


@pytest.mark.parametrize("compile", [True, False])
@pytest.mark.parametrize("format", ["csr", "csc", "coo"])
def test_values_into_memory_of_the_caller(format, compile):
    plan = tg.sparse.prepare_hessian(chain, X, V, format=format, compile=compile)
    out = np.full(plan.pattern.nnz, np.nan)
    for x in (X, 2 * X):
        assert plan.values(x, V, out=out) is out
        np.testing.assert_allclose(out, plan(x, V).data, rtol=1e-14)
        wide = np.full(2 * out.size, np.nan)[::2]
        np.testing.assert_allclose(plan.values(x, V, out=wide), out, rtol=1e-14)
        single = np.zeros(out.size, np.float32)
        np.testing.assert_allclose(plan.values(x, V, out=single), out, rtol=1e-6)
    for bad in (np.zeros(3), np.zeros(out.size, int)):
        with pytest.raises(ArgumentError, match="out= must be"):
            plan.values(X, V, out=bad)
