"""What the Kalman filters of the library give beside value and gradient: derivatives by the observations,
second derivatives by arguments with a value for each step, Hessians, scores, single terms, the final state;
against dense Gaussians and differences."""

import numpy as np
import pytest
from comparison import close, host
from library_recursions import consts, model, series, varying
from raw_device import noted_launches  # noqa: F401 (the fixture `device`)

import tapegrad as tg
from tapegrad.errors import ArgumentError, KernelError, ShapeError
from tapegrad.kernels import garch, kalman, kalman_vector
from tapegrad.kernels.library.observation import observation_step

pytestmark = pytest.mark.one_in(4)  # its cases compile


def moments(M, steps, b=0):
    """Mean (T,) and covariance (T, T) of the observations of a kalman.Model with constant arguments."""
    A, c, Q, r, m, P = [np.asarray(x)[..., b] if np.ndim(x) else x for x in M]
    states = []
    for _ in range(steps):
        states.append((m, P))
        m, P = A @ m, A @ P @ A.T + Q
    cov = np.zeros((steps, steps))
    for t in range(steps):
        moved = np.eye(len(A))
        for u in range(t, steps):
            cov[u, t] = cov[t, u] = c @ moved @ states[t][1] @ c
            moved = A @ moved
        cov[t, t] += r
    return np.array([c @ m for m, _ in states]), cov


def differences(f, x, v, h=1e-5):
    """Along v, of fourth order."""
    return (8 * (f(x + h * v) - f(x - h * v)) - f(x + 2 * h * v) + f(x - 2 * h * v)) / (12 * h)


# --- the observations ---


@pytest.mark.parametrize("holes", [(), (2, 5)])
def test_gradient_by_observations_of_dense_gaussians(holes):
    """- S^-1 (y - mean), and the Hessian - S^-1, of the data that are there; summed over the samples that
    share y."""
    M, y = model(2, 3), series(8, holes=holes)
    here = ~np.isnan(y)
    expected, curvature = np.zeros((3, 8)), np.zeros((3, 8, 8))
    for b in range(3):
        mean, cov = moments(M, 8, b)
        inverse = np.linalg.inv(cov[np.ix_(here, here)])
        expected[b, here] = -inverse @ (y - mean)[here]
        curvature[b][np.ix_(here, here)] = -inverse
    weights = np.array([1.0, -2.0, 0.5])
    close(tg.grad(lambda y: (weights * kalman.loglik(M, y)).sum())(y), weights @ expected)
    each = np.repeat(y[:, None], 3, axis=1)
    close(tg.grad(lambda y: kalman.loglik(M, y).sum())(each), expected.T)
    v = np.random.default_rng(3).normal(size=8)
    close(tg.hvp(lambda y: kalman.loglik(M, y).sum(), y, v), curvature.sum(axis=0) @ v, 1e-10)
    close(tg.jvp(lambda y: kalman.loglik(M, y), (y,), (v * here,))[1], expected @ (v * here), 1e-10)


@pytest.mark.parametrize("names", ["", "AR"])
def test_gradient_by_vectors_of_observations(names):
    M, y = model(2, 3, 2), series(2, 7, holes=[(0, 3), (slice(None), 5)])
    M = consts(varying(M, 7, names, 3), names) if names else M
    f = lambda y: kalman_vector.loglik(M, y).sum()
    found, v = tg.grad(f)(y), np.random.default_rng(1).normal(size=y.shape)
    assert found.shape == y.shape and not found[np.isnan(y)].any()
    there = np.where(np.isnan(y), 0.0, v)
    close((found * there).sum(), differences(f, y, there), 1e-8)


def test_gradient_by_model_and_observations_at_once():
    M, y = model(2, 3), series(6)
    f = lambda r, y: kalman.loglik(M._replace(r=r), y).sum()
    by_r, by_y = tg.grad(f, argnums=(0, 1))(M.r, y)
    close(by_r, kalman.loglik.grad(M, y).r)
    close(by_y, tg.grad(lambda y: f(M.r, y))(y))
    mixed = tg.grad(lambda r: (tg.grad(f, argnums=1)(r, y) ** 2).sum())(M.r)
    g = lambda r: (tg.grad(f, argnums=1)(r, y) ** 2).sum()
    v = np.array([0.3, -1.0, 0.2])
    close(mixed @ v, differences(g, M.r, v), 1e-7)


# --- second derivatives by arguments with a value for each step ---


@pytest.mark.one_in(7)
@pytest.mark.parametrize("names", ["A", "r", "Acr", "AcQr"])
@pytest.mark.parametrize("vector", [False, True])
def test_hessian_vector_products_by_arguments_of_each_step(names, vector):
    k = kalman_vector if vector else kalman
    names = [dict(c="C", r="R").get(n, n) if vector else n for n in names]
    M = varying(model(2, 3, 2 if vector else None), 6, names, 3)
    y = series(2, 6, holes=[(0, 3)]) if vector else series(6, holes=[3])
    rng = np.random.default_rng(4)
    v = type(M)(*[rng.normal(size=x.shape) for x in M])
    v = type(M)(
        *[
            0.5 * (x + np.moveaxis(x, -3, -2)) if n in ("Q", "R", "P0") and x.ndim > 2 else x
            for n, x in v._asdict().items()
        ]
    )
    moved = lambda h: k.loglik.grad(type(M)(*[x + h * d for x, d in zip(M, v, strict=True)]), y)
    h = 1e-5
    for found, *sides in zip(k.loglik.hvp(M, v, y), *[moved(s * h) for s in (1, -1, 2, -2)], strict=True):
        close(found, (8 * (sides[0] - sides[1]) - sides[2] + sides[3]) / (12 * h), 1e-7)


def test_derivatives_by_steps_are_those_by_a_constant():
    """One number that all steps share, to the third order."""
    M, y = model(2, 3), series(5)

    def constant(s):
        return kalman.loglik(M._replace(r=M.r * s[0], A=M.A * s[1]), y).sum()

    def stepwise(s):
        r = np.ones((5, 1)) * (M.r * s[0])
        A = np.ones((5, 1, 1, 1)) * (M.A * s[1])
        return kalman.loglik(M._replace(r=r, A=A), y).sum()

    s, v = np.array([1.1, 0.9]), np.array([0.5, -0.3])
    close(stepwise(s), constant(s))
    close(tg.grad(stepwise)(s), tg.grad(constant)(s))
    close(tg.hessian(stepwise)(s), tg.hessian(constant)(s), 1e-10)
    third = [tg.grad(lambda s, f=f: (tg.hvp(f, s, v) * v).sum())(s) for f in (stepwise, constant)]
    close(*third, 1e-9)


def test_observations_and_arguments_of_each_step():
    M, y = varying(model(1, 2), 4, "r", 2), series(4)
    f = lambda r, y: kalman.loglik(M._replace(r=r), y).sum()
    g = lambda r: (tg.grad(f, argnums=1)(r, y) ** 2).sum()
    v = np.random.default_rng(0).normal(size=M.r.shape)
    close((tg.grad(g)(M.r) * v).sum(), differences(g, M.r, v), 1e-7)
    own = y[:, None] + np.zeros(2)
    close(tg.grad(f, argnums=1)(M.r, own).sum(axis=1), tg.grad(f, argnums=1)(M.r, y))


# --- the methods of generated kernels ---


@pytest.mark.parametrize("vector", [False, True])
def test_hessian_as_models(vector):
    k = kalman_vector if vector else kalman
    M, y = model(2, 3, 2 if vector else None), series(*([2, 9] if vector else [9]))
    H = k.loglik.hessian(M, y)
    rng = np.random.default_rng(5)
    for a in M._fields:
        v = M._replace(
            **{name: 0.0 * x for name, x in M._asdict().items()} | {a: rng.normal(size=getattr(M, a).shape)}
        )
        hv = k.loglik.hvp(M, v, y)
        d = getattr(v, a).reshape(-1, 3)
        for b in M._fields:
            block, other = getattr(getattr(H, b), a), getattr(M, b)
            assert block.shape == other.shape[:-1] + getattr(M, a).shape[:-1] + (3,)
            close(
                np.einsum("ijb,jb->ib", block.reshape(-1, len(d), 3), d).reshape(other.shape),
                getattr(hv, b),
                1e-9,
            )
    one = type(M)(*[x[..., 0] for x in M])
    single = k.loglik.hessian(one._replace(Q=tg.Const(one.Q)), y)
    assert single.Q is None and single.A.Q is None
    close(single.A.A, H.A.A[..., 0])


@pytest.mark.parametrize("vector", [False, True])
def test_scores_contributions_fisher(vector):
    k = kalman_vector if vector else kalman
    M = model(2, 3, 2 if vector else None)
    y = series(2, 9, holes=[(0, 3), (slice(None), 6)]) if vector else series(9, holes=[6])
    value, gradient = k.loglik.value_and_grad(M, y)
    terms, scores, fisher = k.loglik.contributions(M, y), k.loglik.scores(M, y), k.loglik.fisher(M, y)
    assert terms.shape == (9, 3) and not terms[6].any()
    close(terms.sum(axis=0), value)
    for t in range(1, 9):
        close(terms[:t].sum(axis=0), k.loglik(M, y[..., :t]))
    for s, g in zip(scores, gradient, strict=True):
        assert s.shape == (9, *g.shape)
        close(s.sum(axis=0), g, 1e-10)
    close(scores.A[:4].sum(axis=0), k.loglik.grad(M, y[..., :4]).A, 1e-10)
    close(fisher.A.m0, np.einsum("tijb,tkb->ijkb", scores.A, scores.m0))
    one = type(M)(*[x[..., 1] for x in M])
    close(k.loglik.scores(one, y).A, scores.A[..., 1])
    close(k.loglik.contributions(one, y), terms[:, 1])


def test_final_state():
    """That the filter goes on from it gives the value of the whole series."""
    M, y = model(3, 4), series(20, holes=[4])
    m, P = kalman.loglik.final(M, y[:12])
    assert m.shape == (3, 4) and P.shape == (3, 3, 4)
    close(kalman.loglik(M, y[:12]) + kalman.loglik(M._replace(m0=m, P0=P), y[12:]), kalman.loglik(M, y))
    one = type(M)(*[x[..., 2] for x in M])
    close(kalman.loglik.final(one, y[:12])[1], P[..., 2])


def test_arguments_of_each_step_as_data():
    M, y = varying(model(2, 3), 6, "Ar", 3), series(6)
    close(kalman.loglik.contributions(M, y).sum(axis=0), kalman.loglik(M, y))
    H = kalman.loglik.hessian(consts(M, "Ar"), y)
    assert H.A is None and H.c.c.shape == (2, 2, 3)
    with pytest.raises(
        KernelError, match=r"kalman.hessian: A has a value for each step; pass Const\(A\), or take hvp"
    ):
        kalman.loglik.hessian(M, y)
    with pytest.raises(KernelError, match=r"kalman.scores: A has a value for each step"):
        kalman.loglik.scores(M, y)
    close(
        tg.grad(lambda A: kalman.loglik.contributions(M._replace(A=A), y).sum())(M.A),
        kalman.loglik.grad(M, y).A,
    )
    f, v = (
        lambda r: (kalman.loglik.final(M._replace(r=r), y)[1] ** 2).sum(),
        np.random.default_rng(2).normal(size=M.r.shape),
    )
    close((tg.grad(f)(M.r) * v).sum(), differences(f, M.r, v), 1e-8)


def test_numbers_of_each_step_that_are_none():
    """What is not differentiated holds numbers; else the sample alone is rejected."""
    M, y = varying(model(1, 3), 5, "r", 3), series(5, holes=[1])
    for bad in (np.nan, np.inf):
        r = M.r.copy()
        r[2, 1] = bad
        with pytest.raises(ArgumentError, match=f"kalman: r holds {bad}"):
            kalman.loglik(M._replace(r=r), y)
        value, gradient = kalman.loglik.value_and_grad(M._replace(r=r), y)
        good, slope = kalman.loglik.value_and_grad(M, y)
        assert value[1] == -np.inf and not gradient.r[:, 1].any() and not gradient.A[..., 1].any()
        close(value[::2], good[::2])
        close(gradient.r[:, ::2], slope.r[:, ::2])


@pytest.mark.parametrize("batch", [1, 3, 8, 9, 23])
def test_the_last_block_and_columns_of_tables(batch):
    """Blocks that share samples give the same bits as one sample after the other, `out=` that is an argument
    too; and data that are a column, or hold a gap in a repeated call only, take no wrong way."""

    def step(m, theta, y):
        here = ~np.isnan(y)
        v = np.where(here, y, 0.0) - m
        return m + np.where(here, np.tanh(theta[1]) * v, 0.1), np.where(here, -theta[2] * v * v, 0.0)

    k, theta = (
        tg.kernels.recursion(lambda theta: theta[0], step, missing="step"),
        np.array([0.1, 0.3, 0.8])[:, None],
    )
    theta = np.ascontiguousarray(theta * np.random.default_rng(0).uniform(0.9, 1.1, (3, batch)))
    table = np.random.default_rng(1).normal(size=(50, 3))
    value, gradient = k.value_and_grad(theta, np.ascontiguousarray(table[:, 1]))
    one = [k.value_and_grad(theta[:, [b]], table[:, 1].copy()) for b in range(batch)]
    close(value, np.concatenate([v for v, _ in one]))
    for _ in range(2):
        found = k.value_and_grad(theta, table[:, 1])
        assert np.array_equal(found[0], value) and np.array_equal(found[1], gradient)
    gap = table[:, 1].copy()
    gap[7] = np.nan
    missing = k.value_and_grad(theta, gap)
    assert np.isfinite(missing[0]).all() and (missing[0] != value).all()
    with pytest.raises(ArgumentError, match="the data hold inf"):
        k.value_and_grad(theta, np.where(np.isnan(gap), np.inf, gap))
    room = theta.copy()
    k.value_and_grad(room, table[:, 1], out=(np.empty(batch), room))
    assert np.array_equal(room, gradient)


def test_out():
    M, y = model(2, 3), series(9)
    value, gradient = kalman.loglik.value_and_grad(M, y)
    out = np.empty(3), type(M)(*[np.empty_like(x) for x in M])
    found = kalman.loglik.value_and_grad(M, y, out=out)
    assert found[0] is out[0] and found[1].A is out[1].A
    for a, b in zip((value, *gradient), (out[0], *out[1]), strict=True):
        assert np.array_equal(a, b)
    room = np.empty(3)
    assert kalman.loglik(M, y, out=room) is room and np.array_equal(room, value)
    found = kalman.loglik.value_and_grad(M._replace(Q=tg.Const(M.Q)), y, out=(room, out[1]._replace(Q=None)))
    assert found[1].Q is None and found[1].A is out[1].A
    with pytest.raises(
        ShapeError, match=r"kalman: out\[1\].c must be a writable float64 array of shape \(2, 3\)"
    ):
        kalman.loglik.value_and_grad(M, y, out=(room, out[1]._replace(c=np.empty(2))))
    with pytest.raises(ArgumentError, match="out= needs an array and Model"):
        kalman.loglik.value_and_grad(M, y, out=room)
    with pytest.raises(ShapeError, match=r"out must be a writable float64 array of shape \(3,\)"):
        kalman.loglik(M, y, out=np.empty(3, np.float32))
    with pytest.raises(ArgumentError, match="an argument is tracked"):
        tg.grad(lambda r: kalman.loglik(M._replace(r=r), y, out=room).sum())(M.r)


@pytest.mark.parametrize("what", ["observations", "steps"])
def test_on_both_libraries(device, what):
    """By hand and generated."""
    xp, _ = device
    M, y = model(1, 5), series(6, holes=[2])
    M = varying(M, 6, "r", 5) if what == "steps" else M
    moved = type(M)(*[xp.asarray(x) for x in M])
    if what == "observations":
        found, expected = [
            tg.grad(lambda y, M=M: kalman.loglik(M, y).sum())(y) for M, y in ((moved, xp.asarray(y)), (M, y))
        ]
        H = kalman.loglik.hessian(moved, xp.asarray(y)).A.r
        close(host(H), kalman.loglik.hessian(M, y).A.r, 1e-9)
    else:
        found, expected = [kalman.loglik.hvp(M, M, y).r for M, y in ((moved, xp.asarray(y)), (M, y))]
    assert isinstance(found, xp.ndarray)
    close(host(found), expected, 1e-9)


def test_samples_that_are_not_valid():
    M, y = varying(model(1, 3), 5, "r", 3), series(5)
    for bad in (-1.0, np.nan, np.inf):
        r = M.r.copy()
        r[2, 1] = bad
        hv = kalman.loglik.hvp(M._replace(r=r), M, y)
        good = kalman.loglik.hvp(M, M, y)
        for a, b in zip(hv, good, strict=True):
            assert not a[..., 1].any()
            close(a[..., ::2], b[..., ::2])


@pytest.mark.parametrize("dtype", [np.float64, np.float32, int])
def test_masked_arrays_are_refused(dtype):
    """Whose mask was lost in silence where a copy was made."""
    y, M, theta = (
        np.ma.masked_array(np.arange(4), [0, 1, 0, 0]).astype(dtype),
        model(1, 2),
        np.array([0.0, 0.1, 0.1, 0.8]),
    )
    generated = tg.kernels.recursion(garch.garch_start, garch.garch_step, missing="step")
    for call in (lambda: garch.loglik(theta, y), lambda: generated(theta, y), lambda: kalman.loglik(M, y)):
        with pytest.raises(
            ArgumentError, match=r"is a masked array, .* mark missing data by nan: x.filled\(numpy.nan\)"
        ):
            call()
    assert np.isfinite(garch.loglik(theta, y.astype(float).filled(np.nan)))


@pytest.mark.parametrize("apart", [True, False])
def test_the_values_of_missing_elements_do_not_matter(apart):
    rng = np.random.default_rng(0)
    y, seen, theta = rng.normal(size=(2, 9)), np.ones((2, 9)), np.array([0.5, 0.1, -0.2, 0.4, 1.2])
    seen[0, 3], seen[:, 5] = 0, 0
    Z, errors = np.array([[1.0, 0.5], [0.0, 1.0]]), np.array([0.3, 0.7])

    def step(carry, theta, row):
        T, H = theta[:4].reshape(2, 2), errors * theta[4]
        H = H if apart else np.diag(H) + 0.1
        return observation_step(*carry, T, np.eye(2), Z, H, row[:2], row[2:] > 0.5, apart)

    k = tg.kernels.recursion(lambda theta: (np.zeros(2), np.eye(2)), step, missing="step")
    value, gradient = k.value_and_grad(theta, np.concatenate([np.where(seen > 0, y, 0.0), seen]))
    assert np.isfinite(value) and np.isfinite(gradient).all()
    for other in (np.nan, 1e300, -7.0):
        found = k.value_and_grad(theta, np.concatenate([np.where(seen > 0, y, other), seen]))
        assert found[0] == value and np.array_equal(found[1], gradient)
