"""Sparse Jacobians and Hessians: exact against dense, the founding cases, bad input, and what takes them."""

import copy
import importlib
import pickle
import warnings

import numpy as np
import pytest
import scipy.integrate
import scipy.sparse
import scipy.sparse.linalg
from comparison import host
from sparse_functions import (
    FUNCTIONS,
    X,
    arrowhead,
    broyden_tridiagonal,
    brusselator,
    brusselator_in_place,
    by_captured_matrices,
    chained_wood,
)

import tapegrad as tg
from tapegrad.errors import ArgumentError, DenseWarning, GuardError, NotScalarError

sp = tg.sparse


def dense_of(f, x):
    return tg.jacobian(f)(x).reshape(-1, x.size)


def differences(f, x):
    """By central differences: knows nothing of tapegrad."""
    columns = []
    for k in range(x.size):
        e = np.zeros(x.size)
        e[k] = 1e-6
        columns.append((np.array(f(x + e)).reshape(-1) - np.array(f(x - e)).reshape(-1)) / 2e-6)
    return np.stack(columns, axis=1)


def scalar_of(f):
    return lambda x: (np.cos(f(x)) * (1.0 + np.arange(np.size(f(x))).reshape(np.shape(f(x))))).sum()


# --- exact against dense ---


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_jacobian_is_the_dense_one(name):
    f, x, most = FUNCTIONS[name]
    plan = sp.prepare_jacobian(f, x)
    assert plan.pattern.nnz <= most
    for point in (x, x * 1.1 - 0.05, x):
        dense = dense_of(f, point)
        J = plan(point)
        np.testing.assert_allclose(J.toarray(), dense, rtol=1e-11, atol=1e-11 * abs(dense).max())
        assert not (dense[~plan.pattern.toarray()] != 0).any()
    np.testing.assert_allclose(
        plan(x).toarray(), differences(f, x), rtol=1e-5, atol=1e-6 * abs(plan(x)).max()
    )


@pytest.mark.parametrize("kind", ["columns", "rows", "both"])
@pytest.mark.parametrize("name", ["graph", "captured buffer", "joined"])
@pytest.mark.filterwarnings("ignore::tapegrad.errors.DenseWarning")
def test_each_kind_and_format_gives_the_same(name, kind):
    f, x, _ = FUNCTIONS[name]
    dense = dense_of(f, x)
    for order, format in (("largest_first", "csr"), ("smallest_last", "csc"), ("random", "coo")):
        J = sp.prepare_jacobian(f, x, kind=kind, order=order, format=format)(x)
        assert J.format == format
        np.testing.assert_allclose(J.toarray(), dense, rtol=1e-11, atol=1e-11 * abs(dense).max())


@pytest.mark.parametrize(
    "name",
    ["stencil in place", "graph of cells", "block model", "captured buffer", "chosen", "groups", "joined"],
)
@pytest.mark.parametrize("kind", ["star", "acyclic"])
def test_hessian_is_the_dense_one(name, kind):
    f, x, _ = FUNCTIONS[name]
    scalar = scalar_of(f)
    plan = sp.prepare_hessian(scalar, x, kind=kind)
    for point in (x, x * 1.1 - 0.05, x):
        H = tg.hessian(scalar)(point)
        np.testing.assert_allclose(plan(point).toarray(), H, rtol=1e-9, atol=1e-10 * abs(H).max())


def test_hessian_of_samples_is_block_diagonal():
    model, data = FUNCTIONS["samples of a kernel"][0], X[:12]
    plan = sp.prepare_hessian(lambda x: model(x).sum(), data)
    assert plan.pattern.nnz == 4 * 9 and plan.colors == 3
    np.testing.assert_allclose(plan(data).toarray(), tg.hessian(lambda x: model(x).sum())(data), rtol=1e-12)


# --- the founding cases ---


@pytest.mark.parametrize(
    ("N", "colours", "norm"),
    [(4, 8, 2286.7503602699558), (6, 10, None), (8, 8, 24805.29822649006), (16, 8, None)],
)
def test_brusselator(N, colours, norm):
    for f, u0 in (brusselator(N), brusselator_in_place(N)):
        plan = sp.prepare_jacobian(f, u0)
        J = plan(u0)
        assert plan.pattern.nnz == 12 * N**2 and np.diff(plan.pattern.indptr).max() == 6
        assert plan.colors == colours
        assert J.sum() == pytest.approx(-(N**2), rel=1e-9)
        assert plan(u0 + 1.0).sum() == pytest.approx(-(N**2), rel=1e-9)
        if norm is not None:
            assert np.linalg.norm(J.data) == pytest.approx(norm, rel=1e-13)
            dense = dense_of(f, u0)
            np.testing.assert_allclose(J.toarray(), dense, atol=1e-11 * norm)
            assert np.count_nonzero(dense) == {4: 184, 8: 752}[N]
    if N == 6:
        assert len(sp.coloring(plan.pattern, order="smallest_last")) == 8


@pytest.mark.parametrize("n", [3, 30])
def test_differences_squared(n):
    x = np.linspace(1, 3, n) ** 2
    plan = sp.prepare_jacobian(lambda x: np.diff(x) ** 2, x)
    d = 2 * np.diff(x)
    np.testing.assert_allclose(plan(x).toarray(), np.eye(n)[1:] * d[:, None] - np.eye(n)[:-1] * d[:, None])
    assert plan.colors == 2 and plan.pattern.nnz == 2 * (n - 1)


def arrow(x):
    y = x**2
    y[0] = (x * x).sum()
    y[1:] += x[0] * x[1:]
    return y


def test_both_sides_beat_one_on_an_arrow():
    x = np.linspace(1, 2, 40)
    with pytest.warns(
        DenseWarning, match=r"sparse.prepare_jacobian\(arrow\): 1 of the 40 rows .* takes 40 products"
    ):
        assert sp.prepare_jacobian(arrow, x, kind="columns").colors == 40
    plan = sp.prepare_jacobian(arrow, x)
    assert plan.coloring.kind == "both" and plan.colors == 3
    np.testing.assert_allclose(plan(x).toarray(), dense_of(arrow, x), rtol=1e-13)
    assert len(sp.coloring(plan.pattern, kind="rows")) == 40


def test_arrowhead_hessian_takes_two_products():
    x = np.linspace(1, 2, 40)
    plan = sp.prepare_hessian(arrowhead, x)
    assert plan.pattern.nnz == 3 * 40 - 2 and plan.colors == 2
    np.testing.assert_allclose(plan(x).toarray(), tg.hessian(arrowhead)(x), rtol=1e-12)


def test_problems_of_a_collection():
    """BROYDN3D, ARWHEAD and CHAINWOO with 1,000 unknowns; elements by closed forms."""
    n = 1000
    x = -1.0 + 0.001 * np.arange(n)
    plan = sp.prepare_jacobian(broyden_tridiagonal, x)
    J = plan(x)
    assert plan.colors == 3 and plan.pattern.nnz == 3 * n - 2
    expected = scipy.sparse.diags_array(
        [np.full(n - 1, -1.0), 3.0 - 4.0 * x, np.full(n - 1, -2.0)], offsets=[-1, 0, 1]
    )
    assert abs(J - expected).max() < 1e-12
    H = sp.hessian(arrowhead, x)
    last = 4 * (x[:-1] ** 2 + 3 * x[-1] ** 2).sum()
    np.testing.assert_allclose(H.diagonal(), [*(4 * (3 * x[:-1] ** 2 + x[-1] ** 2)), last], rtol=1e-11)
    np.testing.assert_allclose(H.toarray()[-1, :-1], 8 * x[:-1] * x[-1], rtol=1e-11)
    plan = sp.prepare_hessian(chained_wood, x)
    v = np.cos(np.arange(n))
    np.testing.assert_allclose(plan(x) @ v, tg.hvp(chained_wood, x, v), rtol=1e-10, atol=1e-9)
    assert plan.colors <= 4


SCENARIOS = {
    "vector to vector": (
        lambda x: np.concatenate([np.diff(x) ** 2, np.diff(x) ** 3]),
        np.linspace(1, 2, 6) ** 2,
    ),
    "vector to matrix": (
        lambda x: np.stack([np.diff(x) ** 2, np.diff(x) ** 3], axis=1),
        np.linspace(1, 2, 6) ** 2,
    ),
    "matrix to vector": (
        lambda x: np.concatenate([np.diff(x.ravel()) ** 2, np.diff(x.ravel()) ** 3]),
        np.linspace(1, 2, 6).reshape(2, 3),
    ),
    "matrix to matrix": (
        lambda x: np.stack([np.diff(x.ravel()) ** 2, np.diff(x.ravel()) ** 3]),
        np.linspace(1, 2, 6).reshape(3, 2) ** 2,
    ),
    "complex": (lambda x: np.diff(x) ** 2 * 1j, np.linspace(1, 2, 6) + 0.5j),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenarios(name):
    """Out of place; in place; through captured arrays, times 3 + 4."""
    f, x = SCENARIOS[name]
    inside, out = np.zeros_like(x), np.zeros_like(f(x))

    def in_place(x):
        y = np.zeros_like(out)
        y[...] = f(x)
        return y

    a, b = [3.0], {"b": 4.0}

    def closed(x):
        inside[...] = x
        out[...] = f(inside)
        out[...] *= a[0] + b["b"]
        return out * 1.0

    more = {"holomorphic": True} if name == "complex" else {}
    dense = tg.jacobian(f, **more)(x).reshape(out.size, x.size)
    for g, factor in ((f, 1.0), (in_place, 1.0), (closed, 7.0)):
        for kind in ("columns", "rows"):
            plan = sp.prepare_jacobian(g, x, kind=kind, **more)
            assert plan.pattern.nnz == 2 * out.size
            np.testing.assert_allclose(plan(x).toarray(), factor * dense, rtol=1e-12)
    np.testing.assert_allclose(out, 7 * f(x))


def test_hessian_scenarios():
    for x in (np.linspace(1, 2, 6) ** 2, np.linspace(1, 2, 6).reshape(2, 3) ** 2):
        kept = np.zeros_like(x)

        def cubes(x):
            return (np.diff(x.ravel()) ** 3).sum()

        def closed(x):
            kept[...] = x
            return 7.0 * cubes(kept)

        H = tg.hessian(cubes)(x).reshape(6, 6)
        for f, factor in ((cubes, 1.0), (closed, 7.0)):
            plan = sp.prepare_hessian(f, x)
            assert plan.pattern.nnz == 3 * 6 - 2
            np.testing.assert_allclose(plan(x).toarray(), factor * H, rtol=1e-12)


# --- what holds where ---


def test_local_pattern_is_smaller_and_guarded():
    f, x, _ = FUNCTIONS["chosen"]
    local, whole = sp.prepare_jacobian(f, x, scope="local"), sp.prepare_jacobian(f, x)
    assert local.pattern.nnz < whole.pattern.nnz
    assert sp.pattern(f, x, scope="local").nnz == local.pattern.nnz
    np.testing.assert_allclose(local(x + 1e-9).toarray(), dense_of(f, x + 1e-9))
    np.testing.assert_allclose(whole(x[::-1].copy()).toarray(), dense_of(f, x[::-1]))
    with pytest.raises(
        GuardError, match=r"sparse.prepare_jacobian\(chosen\): a branch or an index .* scope='local'"
    ):
        local(x[::-1].copy())


def test_order_of_elements_is_an_index():
    x = np.array([3.0, 1.0, 2.0])
    plan = sp.prepare_jacobian(lambda x: np.sort(x) ** 2, x, scope="local")
    assert plan.pattern.nnz == 3
    np.testing.assert_allclose(plan(x).toarray(), [[0, 2, 0], [0, 0, 4], [6, 0, 0]])
    with pytest.raises(GuardError):
        plan(x[::-1].copy())


def test_another_branch_is_noticed():
    plan = sp.prepare_jacobian(lambda x: x**2 if x[0] > 0 else np.roll(x, 1), np.ones(3))
    with pytest.raises(
        GuardError,
        match=r"^sparse.prepare_jacobian\(<lambda>\): \S+test_sparse.py:\d+: a condition is no longer True; "
        r"the plan",
    ):
        plan(-np.ones(3))
    np.testing.assert_allclose(plan(np.full(3, 2.0)).toarray(), 4 * np.eye(3))
    constant = sp.prepare_jacobian(lambda x: np.floor(x) if x[0] > 0 else x, np.ones(3))
    assert constant.pattern.nnz == constant.colors == 0 and constant(np.ones(3)).nnz == 0
    with pytest.raises(GuardError):
        constant(-np.ones(3))


def test_captured_matrices_may_change_but_not_their_zeros():
    A = np.diag(np.ones(20)) + np.diag(np.ones(19), 1)
    plan = sp.prepare_jacobian(lambda x: A @ x**2, np.ones(20))
    assert plan.pattern.nnz == 39
    A[0, 1] = 3.0
    np.testing.assert_allclose(plan(np.ones(20)).toarray(), 2 * A)
    A[0, 1] = 0.0
    np.testing.assert_allclose(plan(np.ones(20)).toarray(), 2 * A)
    A[7, 2] = 1.0
    with pytest.raises(GuardError, match="a captured array has changed, and with it the pattern"):
        plan(np.ones(20))
    A[7, 2] = 0.0
    np.testing.assert_allclose(plan(np.full(20, 2.0)).toarray(), 4 * A)


def swapped(u):
    """Written through a view of u, where there is one."""
    flat = u.ravel()
    flat[0] = flat[3] * 2.0
    return u.reshape(-1) ** 2


def test_shapes_layouts_and_numbers():
    plan = sp.prepare_jacobian(lambda x: x**2, np.ones(4))
    wide = np.arange(8.0)
    np.testing.assert_allclose(plan(wide[::2]).diagonal(), 2 * wide[::2])
    ravelled = lambda x: swapped(x.reshape(2, 2)) + 0.0 * x
    plan_of_rows, turned = sp.prepare_jacobian(ravelled, np.ones(4)), np.arange(1.0, 5.0)[::-1]
    for x in (turned, turned.copy(), turned):  # a view of x, or a copy
        np.testing.assert_allclose(plan_of_rows(x).toarray(), dense_of(ravelled, x))
    np.testing.assert_allclose(plan([1, 2, 3, 4]).diagonal(), [2, 4, 6, 8])
    np.testing.assert_allclose(plan(np.arange(4)).diagonal(), [0, 2, 4, 6])
    with pytest.raises(GuardError, match="shape"):
        plan(np.ones(5))
    single = sp.prepare_jacobian(lambda x: x**2, np.ones(4, np.float32))
    assert single(np.ones(4, np.float32)).dtype == np.float32
    assert sp.jacobian(lambda x: x.sum() ** 2, np.ones(3)).toarray().tolist() == [[6.0, 6.0, 6.0]]
    assert sp.jacobian(lambda x: x * 2, np.ones(0)).shape == (0, 0)


def squares(x):
    return x**2 * np.roll(x, 1)


def test_plans_are_copied_and_pickled():
    x = np.linspace(1, 2, 5)
    plan = sp.prepare_jacobian(squares, x, format="csc")
    for other in (copy.deepcopy(plan), pickle.loads(pickle.dumps(plan))):
        assert repr(other) == repr(plan)
        np.testing.assert_allclose(other(x + 1).toarray(), plan(x + 1).toarray())


def test_results_are_fresh():
    plan = sp.prepare_jacobian(lambda x: x**2, np.ones(4))
    J = plan(np.ones(4))
    before = J.toarray()
    J.data[:] = 9.0
    np.testing.assert_allclose(plan(np.ones(4)).toarray(), before)
    for format in ("csr", "csc"):
        f = lambda x: x * np.roll(x, 1) + 3 * x**2  # of which the Jacobian is far from singular
        plan = sp.prepare_jacobian(f, np.ones(4), format=format)
        x = np.array([1.0, 0.0, 2.0, 0.0])
        dense = dense_of(f, x)
        J = plan(x)
        J.eliminate_zeros()  # which writes indices where they lie
        assert J.nnz < plan.pattern.nnz
        np.testing.assert_allclose(J.toarray(), dense)
        np.testing.assert_allclose(plan(x).toarray(), dense)
        np.testing.assert_allclose((plan(x) @ plan(x).T).toarray(), dense @ dense.T)
        np.testing.assert_allclose(
            scipy.sparse.linalg.splu(plan(x + 1).tocsc()).solve(np.ones(4)),
            np.linalg.solve(plan(x + 1).toarray(), np.ones(4)),
        )


def test_numbers_beside_may_vary():
    plan = sp.prepare_jacobian(
        lambda t, y, p: np.sin(t) * y**2 * p["a"], 0.5, np.ones(3), {"a": 2.0}, argnum=1
    )
    np.testing.assert_allclose(
        plan(1.0, np.full(3, 2.0), {"a": 2.0}).toarray(), np.sin(1.0) * 8.0 * np.eye(3)
    )


def test_a_function_with_nothing_to_follow_needs_a_pattern():
    """One that counts its calls in an attribute is not recorded."""

    class Counter:
        calls = 0

    def counting(x):
        Counter.calls += 1
        return x**2 * (1.0 + 0 * Counter.calls)

    with pytest.raises(GuardError, match=r"counting.*cannot be recorded"):
        sp.prepare_jacobian(counting, np.ones(3))
    plan = sp.prepare_jacobian(counting, np.ones(3), pattern=np.eye(3))
    np.testing.assert_allclose(plan(np.full(3, 2.0)).toarray(), 4 * np.eye(3))


def test_within_a_transform():
    inner = lambda x: (x * sp.jacobian(lambda y: y**2, np.arange(1.0, 4.0)).diagonal()).sum()
    np.testing.assert_allclose(tg.grad(inner)(np.ones(3)), [2, 4, 6])


# --- patterns of the user's ---


def test_missing_entry_is_found():
    f, x, _ = FUNCTIONS["stencil in place"]
    whole = sp.pattern(f, x)
    assert sp.prepare_jacobian(f, x, pattern=whole).colors == 3
    np.testing.assert_allclose(sp.jacobian(f, x, pattern=whole.toarray()).toarray(), dense_of(f, x))
    for k, (i, j) in enumerate(zip(*whole.nonzero(), strict=True)):
        less = whole.toarray()
        less[i, j] = False
        for kind in ("columns", "rows", "both")[k % 3 : k % 3 + 1]:
            with pytest.raises(ArgumentError, match=rf"misses entry \({i}, {j}\), where"):
                sp.prepare_jacobian(f, x, pattern=less, kind=kind)


def test_a_pattern_counts_as_it_is_without_a_check():
    unchecked = sp.prepare_jacobian(lambda x: x[1:] * x[:-1], np.ones(4), pattern=np.eye(3, 4), check=False)
    assert unchecked.pattern.nnz == 3


def test_missing_entry_that_is_zero_here_is_found():
    with pytest.raises(ArgumentError, match=r"misses entry \(0, 1\)"):
        sp.jacobian(lambda x: x**2 + np.array([x[1] ** 3, 0.0 * x[0]]), np.zeros(2), pattern=np.eye(2))


def test_missing_pair_of_a_hessian_is_found():
    x = np.linspace(1, 2, 6)
    with pytest.raises(ArgumentError, match=r"misses entries \(0, 1\), \(0, 5\)"):
        sp.prepare_hessian(lambda x: (x**3 * np.roll(x, 1)).sum(), x, pattern=np.eye(6))


def test_wrong_patterns():
    f, x = (lambda x: x**2), np.ones(3)
    with pytest.raises(
        ArgumentError, match=r"the pattern has shape \(4, 4\), the matrix of derivatives \(3, 3\)"
    ):
        sp.prepare_jacobian(f, x, pattern=np.eye(4))
    with pytest.raises(ArgumentError, match="the pattern of a Hessian is symmetric"):
        sp.prepare_hessian(lambda x: (x**2).sum(), x, pattern=np.triu(np.ones((3, 3))))
    with pytest.raises(ArgumentError, match="a pattern is a matrix"):
        sp.prepare_jacobian(f, x, pattern=np.ones(3))
    # explicit zeros of a sparse pattern count as entries
    stored = scipy.sparse.coo_array((np.zeros(3), (np.arange(3), np.arange(3))), shape=(3, 3))
    np.testing.assert_allclose(sp.jacobian(f, x, pattern=stored).toarray(), 2 * np.eye(3))


def test_bad_input():
    f = lambda x: x**2
    for call, match in (
        (lambda: sp.prepare_jacobian(f), "give x"),
        (
            lambda: sp.jacobian(f, np.ones(3), mode="fwd"),
            r"sparse.jacobian\(<lambda>\): there is no option 'mode'",
        ),
        (
            lambda: sp.prepare_jacobian(f, np.ones(3, int)),
            r"sparse.prepare_jacobian\(<lambda>\): x has dtype int64",
        ),
        (
            lambda: sp.jacobian(f, np.ma.array(np.ones(3), mask=[0, 1, 0])),
            r"x is a masked array.*x.filled\(v\)",
        ),
        (lambda: sp.prepare_jacobian(f, np.ones(3), argnum=1), "argnum=1, and 1 arguments"),
        (
            lambda: sp.prepare_jacobian(f, np.ones(3), kind="star"),
            "kind='star'; it is one of 'columns', 'rows', 'both'",
        ),
        (
            lambda: sp.prepare_hessian(f, np.ones(3), kind="rows"),
            "kind='rows'; it is one of 'star', 'acyclic'",
        ),
        (lambda: sp.prepare_jacobian(f, np.ones(3), order="best"), "order='best'"),
        (lambda: sp.prepare_jacobian(f, np.ones(3), format="dok"), "format='dok'"),
        (lambda: sp.prepare_jacobian(f, np.ones(3), scope="here"), "scope='here'"),
        (lambda: sp.pattern(f, np.ones(3), scope="here"), "scope='here'"),
        (
            lambda: sp.prepare_jacobian(lambda x: {"a": x, "b": x}, np.ones(3)),
            "join them by numpy.concatenate",
        ),
        (lambda: sp.prepare_jacobian(f, np.ones(3) * 1j), "holomorphic=True"),
        (lambda: sp.prepare_jacobian(lambda x: x * 1j, np.ones(3), kind="rows"), "differentiated by columns"),
        (lambda: sp.coloring(np.ones((2, 3)), kind="star"), "symmetric"),
        (lambda: sp.coloring(np.ones((2, 3)), kind="stars"), "kind='stars'"),
    ):
        with pytest.raises(ArgumentError, match=match):
            call()
    with pytest.raises(NotScalarError):
        sp.prepare_hessian(f, np.ones(3))


def test_dense_rows_warn_with_their_number():
    with pytest.warns(DenseWarning, match="30 of the 30 rows depend on at least half of the 30 unknowns"):
        sp.prepare_jacobian(lambda x: x * x.sum(), np.ones(30))
    with pytest.warns(DenseWarning, match="tapegrad.hessian does it as well"):
        sp.prepare_hessian(lambda x: x.sum() ** 2, np.ones(30))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sp.prepare_jacobian(lambda x: np.append(x**2, x.sum()), np.ones(30))


def test_complex_function_of_real_numbers():
    x = np.linspace(1, 2, 5)
    J = sp.jacobian(lambda x: np.exp(1j * x) * np.roll(x, 1), x)
    np.testing.assert_allclose(
        J.toarray(), tg.jacobian(lambda x: np.exp(1j * x) * np.roll(x, 1))(x), rtol=1e-13
    )


# --- who takes them ---


def test_implicit_integrator_takes_a_plan():
    f, u0 = brusselator(6)
    y0 = u0.reshape(-1)

    def rhs(t, y):
        return f(y.reshape(6, 6, 2)).reshape(-1) + 0.0 * t

    plan = sp.prepare_jacobian(rhs, 0.0, y0, argnum=1, format="csc")
    exact = scipy.integrate.solve_ivp(rhs, (0.0, 0.5), y0, method="BDF", jac=plan, rtol=1e-8, atol=1e-8)
    plain = scipy.integrate.solve_ivp(rhs, (0.0, 0.5), y0, method="BDF", rtol=1e-8, atol=1e-8)
    assert exact.success and exact.njev > 0
    assert exact.nfev < plain.nfev - y0.size  # no evaluations for differences
    np.testing.assert_allclose(exact.y[:, -1], plain.y[:, -1], rtol=1e-4)


def test_newton_with_a_sparse_solve():
    x = -np.ones(500)
    plan = sp.prepare_jacobian(broyden_tridiagonal, x, format="csc")
    for _ in range(6):
        x = x - scipy.sparse.linalg.spsolve(plan(x), broyden_tridiagonal(x))
    assert abs(broyden_tridiagonal(x)).max() < 1e-12


def test_device(xp, monkeypatch):
    if (
        xp is not np and "descr" not in str(getattr(cusparse(), "createMatDescr", "")).lower()
    ):  # over host memory: no library
        monkeypatch.setattr("cupyx.cusparse.MatDescriptor.create", classmethod(lambda cls: None))
    f, u0 = brusselator(4)
    A = xp.asarray(np.diag(np.ones(4)))

    def on_device(u):
        lap = sum([xp.roll(u, k, axis) for axis in (0, 1) for k in (1, -1)]) - 4 * u
        y = xp.zeros_like(u)
        y[...] = lap + u[..., ::-1] * u**2
        xp.add.at(y, ([0, 0],), u[1]) if xp is np else None
        return y + (A @ u[0])[None]

    u = xp.asarray(u0)
    plan = sp.prepare_jacobian(on_device, u)
    J = plan(u)
    assert type(J.data) is type(u)
    dense = tg.jacobian(on_device)(u).reshape(32, 32)
    np.testing.assert_allclose(host(J.data), host(dense)[_entries(plan)], rtol=1e-12, atol=1e-12)
    missing = host(dense).copy()
    missing[_entries(plan)] = 0
    assert not missing.any()
    h = sp.prepare_hessian(lambda u: (u**3).sum() + (u[0] * u[1]).sum(), u)
    np.testing.assert_allclose(
        host(h(u).data),
        host(tg.hessian(lambda u: (u**3).sum() + (u[0] * u[1]).sum())(u)).reshape(32, 32)[_entries(h)],
        rtol=1e-12,
    )


def cusparse():
    return importlib.import_module("cupyx.cusparse")._cusparse


def _entries(plan):
    p = plan.pattern.tocoo()
    return p.row, p.col


def test_picture():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    f, x, _ = FUNCTIONS["brusselator"]
    plan = sp.prepare_jacobian(f, x)
    ax = plan.plot()
    (dots,) = ax.collections
    assert len(dots.get_offsets()) == 192 and len(np.unique(dots.get_facecolors(), axis=0)) == plan.colors
    assert "192 entries, 8 colours" in ax.get_title()
    assert (
        repr(plan) == "<sparse Jacobian (32, 32): 192 entries, <coloring (columns, natural): 8 of columns>>"
    )
    both = sp.prepare_jacobian(arrow, np.ones(9), kind="both").plot(ax)
    assert both is ax
    matplotlib.pyplot.close(ax.figure)


def test_captured_matrices_in_the_gradient():
    """Zeros of captured matrices are seen in the recorded gradient as well."""
    scalar = lambda x: (by_captured_matrices(x) ** 2).sum()
    plan = sp.prepare_hessian(scalar, X)
    assert plan.pattern.nnz < X.size**2
    np.testing.assert_allclose(plan(X).toarray(), tg.hessian(scalar)(X), rtol=1e-11, atol=1e-9)


def test_optimisers_take_them():
    start = {"a": -np.ones(40), "b": np.zeros(10)}
    target = np.linspace(0.5, 1.5, 50)

    def residuals(p, scale=1.0):
        x = np.concatenate([p["a"], p["b"]])
        return np.concatenate([scale * (x - target), 0.3 * np.diff(x) ** 2])

    for options in ({}, {"kwargs": {"scale": 2.0}}):
        dense = tg.optimize.least_squares(residuals, start, **options)
        for sparse in (True, sp.pattern(lambda x: residuals({"a": x[:40], "b": x[40:]}), np.ones(50))):
            r = tg.optimize.least_squares(residuals, start, sparse=sparse, **options)
            assert scipy.sparse.issparse(r.jac) and r.jac.nnz <= 50 + 98
            np.testing.assert_allclose(r.flat, dense.flat, atol=1e-6)
    cost = lambda p: (residuals(p) ** 2).sum()
    for method in ("trust-constr", "trust-ncg"):
        r = tg.optimize.minimize(cost, start, method=method, hess="sparse")
        np.testing.assert_allclose(r.flat, tg.optimize.least_squares(residuals, start).flat, atol=1e-4)
        assert r.hessians > 0 and (r.products == 0) is (method == "trust-constr")
    with pytest.raises(
        ArgumentError, match=r"hess='sparse' with method='trust-exact': those that take a sparse matrix"
    ):
        tg.optimize.minimize(cost, start, method="trust-exact", hess="sparse")


def test_a_factorisation_is_a_preconditioner():
    """Of the matrix at the start, for products with the Hessian at another point."""
    x = np.linspace(0.5, 1.5, 300)
    energy = lambda x: (100 * np.diff(x) ** 2).sum() + (x**4).sum()
    first = scipy.sparse.linalg.splu(sp.hessian(energy, x, format="csc"))
    H = tg.operators.hessian(energy, x + 0.1)
    steps = {}
    for name, M in (
        ("plain", None),
        ("preconditioned", scipy.sparse.linalg.LinearOperator(H.shape, first.solve)),
    ):
        seen = []
        y, failed = scipy.sparse.linalg.cg(
            H, np.ones(300), rtol=1e-10, M=M, callback=seen.append, maxiter=5000
        )
        assert not failed and abs(H @ y - 1.0).max() < 1e-6
        steps[name] = len(seen)
    assert steps["preconditioned"] < 12 < steps["plain"] / 5


def test_a_search_may_cross_a_branch():
    def residuals(x):
        return (
            np.concatenate([x - 3.0, np.diff(x)])
            if x[0] < 2.0
            else np.concatenate([x - 3.0, np.roll(x, 2)[1:] - x[1:]])
        )

    r = tg.optimize.least_squares(residuals, np.linspace(-1, 0, 12), sparse=True)
    np.testing.assert_allclose(r.x, 3.0, atol=1e-6)


def test_index_arrays_among_the_arguments_are_those_of_the_plan():
    x, i = np.linspace(0.1, 1.0, 8), np.array([1, 2, 3, 4, 5, 6, 7, 0])

    def added(x, i):
        y = np.zeros(8)
        np.add.at(y, i, x**2)
        return y

    for f, entries in ((lambda x, i: x[i] ** 2 * x, 16), (added, 8)):
        plan = tg.sparse.prepare_jacobian(f, x, i)
        assert plan.pattern.nnz == entries
        assert np.allclose(plan(x * 2, i).toarray(), tg.jacobian(f)(x * 2, i))
        with pytest.raises(tg.errors.GuardError, match="an index among the arguments differs"):
            plan(x, i[::-1].copy())


def test_a_function_that_draws_random_numbers_has_no_plan():
    rng = np.random.default_rng(0)
    with pytest.raises(tg.errors.GuardError, match="draws random numbers"):
        tg.sparse.prepare_jacobian(lambda x: x * rng.normal(size=8), np.ones(8))


def test_masks_that_are_written_by_have_both_ways():
    def f(x):
        y = x * 1.0
        y[x > 0.5] = x[0]
        return y

    x = np.linspace(0.1, 1.0, 8)
    plan = tg.sparse.prepare_jacobian(f, x)
    for point in (x, x[::-1].copy(), x + 1):
        assert np.allclose(plan(point).toarray(), tg.jacobian(f)(point))


def test_products_with_sparse_matrices():
    """The patterns are those of the same products with dense matrices, of each operand and both."""
    A = scipy.sparse.random_array((7, 5), density=0.3, rng=np.random.default_rng(3), format="csr")
    at = A.indices, np.repeat(np.arange(7), np.diff(A.indptr))
    made = lambda v: scipy.sparse.csr_array((v, A.indices, A.indptr), shape=A.shape)

    def dense(v):
        out = np.zeros((7, 5))
        out[at[1], at[0]] = v
        return out

    nnz = A.nnz
    both = np.arange(1.0, 1 + nnz + 5)
    for f, g, x in (
        (lambda x: A @ x, lambda x: A.toarray() @ x, both[:5]),
        (lambda x: A.T @ x, lambda x: A.T.toarray() @ x, both[:7]),
        (lambda x: A @ x.reshape(5, 2), lambda x: A.toarray() @ x.reshape(5, 2), both[:10]),
        (lambda x: made(x[:nnz]) @ x[nnz:], lambda x: dense(x[:nnz]) @ x[nnz:], both),
        (lambda x: made(x[:nnz]).T @ x[:7], lambda x: dense(x[:nnz]).T @ x[:7], both),
    ):
        expected = tg.jacobian(g)(x).reshape(-1, x.size)
        np.testing.assert_array_equal(tg.sparse.pattern(f, x).toarray(), expected != 0)
        np.testing.assert_allclose(tg.sparse.jacobian(f, x).toarray(), expected, rtol=1e-13)
        total = lambda x, f=f: (f(x) ** 3).sum()
        found = tg.sparse.hessian(total, x)
        np.testing.assert_allclose(
            found.toarray(), tg.hessian(lambda x, g=g: (g(x) ** 3).sum())(x), rtol=1e-12
        )
        assert (
            found.nnz <= ((expected != 0).T.astype(int) @ (expected != 0) + (x.size > 10)).astype(bool).sum()
        )


def test_dependence_rules_are_for_operations_that_exist():
    import tapegrad._scipy.sparse.products as loaded  # noqa: F401 (it declares operations)
    from tapegrad.ops.declare import PRIMITIVES
    from tapegrad.sparse._rules import RULES

    assert not set(RULES) - set(PRIMITIVES)


def test_a_dense_pattern_is_coloured_at_once():
    assert len(tg.sparse.coloring(np.ones((1500, 1500)), "star")) == 1500


@pytest.mark.parametrize("of_f", [np.float32, np.float64])
@pytest.mark.parametrize("of_x", [np.float32, np.float64])
def test_a_jacobian_without_entries_has_the_dtype_of_one_with_entries(of_f, of_x):
    x = np.ones(4, of_x)
    found = tg.sparse.jacobian(lambda x: np.ones(3, of_f), x)
    assert found.nnz == 0 and found.dtype == tg.sparse.jacobian(lambda x: (2 * x[:3]).astype(of_f), x).dtype
