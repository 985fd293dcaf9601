"""tg.operators: against dense derivatives, SciPy's solvers on dense matrices, and closed forms."""

import gc
import pickle

import numpy as np
import pytest
from scipy.sparse import linalg

import tapegrad as tg
from tapegrad.errors import ArgumentError, GuardError, NotScalarError, ShapeError

pytestmark = pytest.mark.smoke

X, V = np.arange(1.0, 6), np.arange(6.0, 11)
HV = [1164.8817648121440, 1749.5486430921132, 2346.2155213720825, 2942.8823996520517, 6431.8666878993295]


def cubed_norm(x):
    return np.linalg.norm(x) ** 3 * x[-1] + x[0] ** 2


def matrix(operator):
    return operator @ np.eye(operator.shape[1])


def test_hessian_of_the_discussion():
    H = tg.operators.hessian(cubed_norm, X)
    assert isinstance(H, linalg.LinearOperator) and H.shape == (5, 5) and H.dtype == float
    buffer, v = np.empty(5), V.copy()
    for _ in range(3):
        np.testing.assert_allclose(H @ V, HV, rtol=1e-14)
        assert H.hvp(V, out=buffer) is buffer and H.hvp(v, out=v) is v
        np.testing.assert_array_equal(buffer, H @ V)
        np.testing.assert_array_equal(v, buffer)
        v[:] = V
    dense = tg.hessian(cubed_norm)(X)
    np.testing.assert_allclose(matrix(H), dense, rtol=1e-13)
    assert H.value == cubed_norm(X)
    np.testing.assert_array_equal(H.gradient, tg.grad(cubed_norm)(X))
    assert linalg.eigsh(H, 1)[0] == pytest.approx(np.linalg.eigvalsh(dense)[-1])
    assert linalg.eigsh(H, 1, which="SA")[0] == pytest.approx(np.linalg.eigvalsh(dense)[0])
    assert H.update(X + 1) is H
    np.testing.assert_allclose(matrix(H), tg.hessian(cubed_norm)(X + 1), rtol=1e-13)
    np.testing.assert_allclose((H.H @ V, H.T @ V), (H @ V, H @ V))


def problem(n=30, m=40):
    rng = np.random.default_rng(3)
    A = rng.standard_normal((m, n))
    return (
        (lambda x: np.tanh(A @ x)),
        (lambda x: np.log(np.cosh(A @ x)).sum() + 0.5 * (x * x).sum()),
        rng.standard_normal(n) * 0.1,
        rng,
    )


def test_solvers_of_scipy():
    r, f, x, rng = problem()
    H, J, G = tg.operators.hessian(f, x), tg.operators.jacobian(r, x), tg.operators.gauss_newton(r, x)
    D, K = tg.hessian(f)(x), tg.jacobian(r)(x)
    b, c = rng.standard_normal(30), rng.standard_normal(40)
    for solver in (linalg.cg, linalg.minres, linalg.gmres):
        y, info = solver(H, b, rtol=1e-12)
        assert info == 0
        np.testing.assert_allclose(y, np.linalg.solve(D, b), rtol=1e-8)
    np.testing.assert_allclose(
        linalg.lsqr(J, c, atol=1e-13, btol=1e-13)[0], np.linalg.lstsq(K, c)[0], rtol=1e-7
    )
    np.testing.assert_allclose(sorted(linalg.svds(J, 3)[1]), sorted(np.linalg.svd(K)[1])[-3:])
    np.testing.assert_allclose(linalg.eigsh(H, 3)[0], np.linalg.eigvalsh(D)[-3:])
    np.testing.assert_allclose(matrix(G), K.T @ K, atol=1e-13)
    np.testing.assert_allclose(G.gradient, K.T @ r(x), atol=1e-13)
    np.testing.assert_allclose((2 * H + linalg.aslinearoperator(np.eye(30))) @ b, 2 * D @ b + b)


def test_on_cupy_too(xp):
    A = xp.asarray(np.random.default_rng(0).standard_normal((6, 4)))
    H = tg.operators.hessian(lambda x: xp.exp(A @ x * 0.3).sum(), xp.ones(4))
    J = tg.operators.jacobian(lambda x: xp.tanh(A @ x), xp.ones(4))
    D = 0.09 * (A.T * xp.exp(0.3 * A.sum(1))) @ A
    K = (1 - xp.tanh(A.sum(1)) ** 2)[:, None] * A
    for got, want in (
        (H @ xp.eye(4), D),
        (J @ xp.eye(4), K),
        (J.H @ xp.eye(6), K.T),
        (H @ xp.ones(4), D.sum(1)),
        (J.T @ xp.ones(6), K.sum(0)),
    ):
        assert type(got) is type(A) and bool(abs(got - want).max() < 1e-13)
    out = xp.ones(4)
    assert H.hvp(out, out=out) is out and bool(abs(out - D.sum(1)).max() < 1e-13)
    A[0, 0] += 1
    with pytest.raises(GuardError):
        H @ xp.ones(4)


def test_many_vectors_at_once():
    r, f, x, rng = problem()
    H, J = tg.operators.hessian(f, x), tg.operators.jacobian(r, x)
    D, K = tg.hessian(f)(x), tg.jacobian(r)(x)
    for k in (0, 1, 2, 9, 50):
        B, C = rng.standard_normal((30, k)), rng.standard_normal((40, k))
        np.testing.assert_allclose(H @ B, D @ B, atol=1e-12)
        np.testing.assert_allclose(J @ B, K @ B, atol=1e-12)
        np.testing.assert_allclose(J.H @ C, K.T @ C, atol=1e-12)


def test_many_large_vectors():
    x = np.linspace(0.1, 1, 200_000)
    H = tg.operators.hessian(lambda x: (x**4).sum(), x)
    V = np.random.default_rng(0).standard_normal((200_000, 3))
    np.testing.assert_allclose(H @ V, 12 * (x * x)[:, None] * V, rtol=1e-13)
    J = tg.operators.jacobian(lambda x: np.exp(1j * x), x)
    np.testing.assert_allclose(J @ V, (1j * np.exp(1j * x))[:, None] * V, rtol=1e-13)


def test_trees():
    x = {"a": np.array([[1.0, 2.0], [3.0, 0.5]]), "k": None, "b": 2.0}

    def f(t):
        return np.sum(t["a"] ** 3) * t["b"] ** 2

    H, v = tg.operators.hessian(f, x), {"a": np.ones((2, 2)), "k": None, "b": 1.0}
    flat, restore = tg.ravel({"a": x["a"], "b": x["b"]})
    D = tg.hessian(lambda u: f(restore(u)))(flat)
    np.testing.assert_allclose(matrix(H), D)
    hv = H.hvp(v)
    assert (
        hv["k"] is None
        and hv["b"] == pytest.approx((D @ np.ones(5))[4])
        and set(H.gradient) == {"a", "k", "b"}
    )
    np.testing.assert_allclose(hv["a"].ravel(), (D @ np.ones(5))[:4])
    J = tg.operators.jacobian(lambda t: (t["a"] * t["b"], t["b"] ** 2), x)
    y = J.jvp(v)
    np.testing.assert_allclose(y[0], x["a"] + 2)
    assert y[1] == 4 and J.shape == (5, 5) and J.vjp((np.zeros((2, 2)), 1.0))["b"] == 4


def test_complex():
    x = np.array([1.0, 2.0])

    def f(x):
        return np.exp(1j * x) * x[::-1]

    J, K = tg.operators.jacobian(f, x), tg.jacobian(f)(x)
    w = np.array([1j, 2.0])
    np.testing.assert_allclose(matrix(J), K)
    np.testing.assert_allclose(J.H @ w, K.conj().T @ w)
    np.testing.assert_allclose(J.adjoint() @ w, K.conj().T @ w)
    np.testing.assert_allclose(J @ w, K @ w)
    np.testing.assert_allclose(J.T @ w, K.T @ w)
    Z, L = tg.operators.jacobian(f, x + 1j, holomorphic=True), tg.jacobian(f, holomorphic=True)(x + 1j)
    np.testing.assert_allclose(matrix(Z), L)
    np.testing.assert_allclose(Z.H @ np.eye(2), L.conj().T)
    R = tg.operators.jacobian(lambda x: x * x, x)
    np.testing.assert_allclose(R @ w, 2 * x * w)
    np.testing.assert_allclose(R.H @ w, 2 * x * w)
    G = tg.operators.gauss_newton(f, x)
    np.testing.assert_allclose(matrix(G), (K.conj().T @ K).real, atol=1e-15)


def test_fisher():
    rng = np.random.default_rng(0)
    y = rng.standard_normal(20)

    def logp(p):
        return -0.5 * ((y - p[0]) * np.exp(-p[1])) ** 2 - p[1]

    p = np.array([0.3, 0.2])
    scores = np.stack([(y - p[0]) * np.exp(-2 * p[1]), ((y - p[0]) * np.exp(-p[1])) ** 2 - 1])
    np.testing.assert_allclose(matrix(tg.operators.fisher(logp, p)), scores @ scores.T)
    with pytest.raises(
        ShapeError, match=r"returned shape \(\); it must give one log-density for each observation"
    ):
        tg.operators.fisher(lambda p: logp(p).sum(), p)


def test_single_precision():
    H = tg.operators.hessian(lambda x: (x**3).sum(), np.ones(3, np.float32))
    assert H.dtype == np.float32 and (H @ np.ones(3, np.float32)).dtype == np.float32


# --- what the function read is as it was, or it is said ---


def test_a_captured_array_that_changed():
    r, _, x, _ = problem(4, 6)
    A = r.__closure__[0].cell_contents
    for make in (tg.operators.jacobian, tg.operators.gauss_newton, tg.operators.hessian):
        operator = make((lambda x: np.tanh(A @ x).sum()) if make is tg.operators.hessian else r, x)
        before = operator @ np.ones(4)
        A[0, 0] += 1
        for product in (
            lambda o=operator: o @ np.ones(4),
            lambda o=operator: o @ np.eye(4),
            lambda o=operator: o.H @ np.ones(o.shape[0]),
        ):
            with pytest.raises(GuardError, match=r"`A` of shape \(6, 4\).*has changed.*call .update\(x\)"):
                product()
        A[0, 0] -= 1
        np.testing.assert_array_equal(operator @ np.ones(4), before)
        A[0, 0] += 2
        assert abs((operator.update(x) @ np.ones(4)) - before).max() > 0


def test_a_name_that_means_something_else():
    scale, power = 2.0, np.array([3.0])

    def f(x):
        return scale * (x ** power[0]).sum()

    H = tg.operators.hessian(f, np.ones(2))
    scale = 3.0
    with pytest.raises(GuardError, match="what f reads besides its arguments"):
        H.hvp(np.ones(2))
    scale = 2.0
    H.hvp(np.ones(2))
    power = np.array([3.0])
    with pytest.raises(GuardError, match="what f reads besides its arguments"):
        H @ np.ones(2)


def test_an_index_that_a_helper_reads():
    order, holder = np.array([0, 1, 2]), {"power": 2.0}

    def helper(x):
        return x[order] ** holder["power"]

    H = tg.operators.hessian(lambda x: (helper(x) * np.arange(3.0)).sum(), np.ones(3))
    assert (H @ np.ones(3)).tolist() == [0, 2, 4]
    order[:] = [2, 1, 0]
    with pytest.raises(GuardError, match="reads besides its arguments"):
        H @ np.ones(3)
    order[:] = [0, 1, 2]
    holder["power"] = 3.0
    with pytest.raises(GuardError, match="reads besides its arguments"):
        H @ np.ones(3)
    assert (H.update(np.ones(3)) @ np.ones(3)).tolist() == [0, 6, 12]


def test_attributes():
    class Model:
        def __init__(self):
            self.A, self.power, self.calls = np.ones((2, 2)), 2.0, 0

        def loss(self, x):
            return ((self.A @ x) ** self.power).sum()

    m = Model()
    H = tg.operators.hessian(m.loss, np.ones(2))
    first = H @ np.ones(2)
    m.calls += 1  # which it does not read
    np.testing.assert_array_equal(H @ np.ones(2), first)
    m.power = 3.0
    with pytest.raises(GuardError, match="what loss reads besides its arguments"):
        H @ np.ones(2)
    assert (H.update(np.ones(2)) @ np.ones(2)).tolist() == [48, 48]
    m.A = 2 * m.A
    with pytest.raises(GuardError):
        H @ np.ones(2)


def test_what_the_function_itself_writes_is_free():
    scratch, calls = np.zeros(3), [0]

    def f(x):
        calls[0] += 1
        scratch[:] = x**2
        scratch[1:] *= scratch[:-1].copy()
        return scratch.sum()

    x = np.array([1.0, 2.0, 3.0])
    H = tg.operators.hessian(f, x)
    first = matrix(H)
    f(x + 3)
    np.testing.assert_array_equal(matrix(H), first)
    assert calls == [2]
    np.testing.assert_allclose(first, tg.hessian(f)(x))


def test_read_only_and_const_are_not_compared():
    A = np.ones((3, 3))
    A.flags.writeable = False
    C = tg.operators.hessian(lambda x: (A @ x).sum() ** 2, np.ones(3))
    assert not C.point.around.arrays
    big = np.ones((300, 300))
    big.flags.writeable = False
    C = tg.operators.hessian(lambda x: ((big @ x) ** 4).sum(), np.ones(300))
    members = [
        v for r in C.point.recorded.tape.records for m in r[4:] for v in (m if type(m) is list else [m])
    ]
    kept = [v for v in members if isinstance(v, np.ndarray) and v.shape == big.shape]
    assert len(kept) >= 2 and all(
        [np.shares_memory(v, big) for v in kept]
    )  # two products read it, and no copy was made
    B = np.ones((3, 3))
    C = tg.operators.hessian(tg.Const(lambda x: ((B @ x) ** 3).sum()), np.ones(3))
    before = C @ np.ones(3)
    B += 1
    np.testing.assert_array_equal(C @ np.ones(3), before)


def test_arguments_are_values():
    data, x = np.arange(3.0), np.ones(3)
    H = tg.operators.hessian(lambda x, data, n: ((x * data) ** n).sum(), x, data, 3)
    before = H @ np.ones(3)
    data += 5
    x += 5
    np.testing.assert_array_equal(H @ np.ones(3), before)
    np.testing.assert_allclose(H.update(2 * np.ones(3)) @ np.ones(3), 2 * before)
    np.testing.assert_allclose(H.update(np.ones(3), tg.Const(np.ones(3)), 2) @ np.ones(3), [2, 2, 2])


def test_results_are_fresh():
    H = tg.operators.hessian(lambda x: (x**3).sum(), np.array([1.0, 2.0]))
    kept = H @ np.ones(2), H.hvp(np.ones(2)), H.gradient, H @ np.eye(2)
    copies = [k.copy() for k in kept]
    for k in kept:
        k += 1
    for k, c in zip((H @ np.ones(2), H.hvp(np.ones(2)), H.gradient, H @ np.eye(2)), copies, strict=True):
        np.testing.assert_array_equal(k, c)


def test_within_a_transform():
    H = tg.operators.hessian(lambda x: (x**3).sum(), np.array([1.0, 2.0]))
    assert tg.grad(lambda v: (v * H.hvp(v)).sum())(np.ones(2)).tolist() == [12, 24]
    assert tg.grad(lambda v: (v * (H @ np.ones(2))).sum())(np.ones(2)).tolist() == [6, 12]
    J = tg.operators.jacobian(np.sin, np.ones(2))
    for product, instead in (
        (lambda v: H @ v, "hvp"),
        (lambda v: H.matvec(v), "hvp"),
        (lambda v: J.rmatvec(v), "jvp"),
        (lambda v: tg.operators.hessian(lambda x: (x**3).sum(), v) @ np.ones(2), "hvp"),
    ):
        with pytest.raises(
            tg.errors.DroppedDerivativeError, match=rf"operators\..* @ v: .* use \.{instead}\(v\)"
        ):
            tg.grad(lambda v: (v * product(v)).sum())(np.ones(2))


@pytest.mark.parametrize(
    "make",
    [lambda f: tg.operators.hessian(f, X), lambda f: tg.operators.gauss_newton(lambda x: x[:2] * f(x), X)],
)
def test_many_in_sequence_at_one_point(make):
    """From the forty-first on they are replayed."""
    operator = make(cubed_norm)
    dense = operator @ np.eye(5)
    rng = np.random.default_rng(0)
    for _ in range(60):
        v = rng.standard_normal(5)
        np.testing.assert_allclose(operator @ v, dense @ v, rtol=1e-12, atol=1e-9)
    (program,) = operator.point.replays.values()
    assert "run as one text" in program.report()
    np.testing.assert_allclose(operator @ np.eye(5), dense, rtol=1e-12, atol=1e-9)
    first = operator @ V
    assert all([np.array_equal(operator @ V, first) for _ in range(5)])
    kept = [operator @ V for _ in range(2)]
    assert not np.shares_memory(*kept)
    assert np.isnan(operator @ (V * np.nan)).all()
    np.testing.assert_allclose(operator @ (1j * V), 1j * first)
    assert not operator.update(X + 1).point.replays
    np.testing.assert_allclose(operator @ V, make(cubed_norm).update(X + 1) @ V)


def test_in_a_prepared_function():
    H = tg.operators.hessian(lambda x: (x**3).sum(), np.ones(2))

    def f(a):
        return (a * H.hvp(a)).sum()

    p = tg.prepare(f, V[:2])
    for a in (V[:2], V[1:3], V[2:4]):
        for _ in range(24):  # another recording waits until as many calls have paid for it
            np.testing.assert_allclose(p.grad(a), tg.grad(f)(a))
        H.update(a)
    assert p.report().count("run as") == 3  # a program for each point


def test_pickled_and_collected():
    H = pickle.loads(pickle.dumps(tg.operators.hessian(cubed_norm, X)))
    np.testing.assert_allclose(H @ V, HV, rtol=1e-14)
    gc.collect()
    gc.disable()
    try:
        gc.collect()
        for _ in range(3):
            tg.operators.hessian(cubed_norm, X) @ V
            tg.operators.jacobian(np.sin, X) @ V
        assert gc.collect() == 0
    finally:
        gc.enable()


def vector(x):
    return x * x


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: tg.operators.hessian(vector, X),
            NotScalarError,
            r"operators.hessian\(vector\).*returned shape \(5,\)",
        ),
        (
            lambda: tg.operators.hessian(cubed_norm, np.arange(5)),
            ArgumentError,
            r"hessian\(cubed_norm\): argument 0 has dtype int64",
        ),
        (
            lambda: tg.operators.hessian(lambda z: abs(z).sum(), X + 1j),
            ArgumentError,
            "linear for real factors only",
        ),
        (lambda: tg.operators.jacobian(vector, X + 1j), ArgumentError, "holomorphic=True"),
        (lambda: tg.operators.jacobian(lambda x: "a", X), ArgumentError, "returned str, no float array"),
        (
            lambda: tg.operators.hessian(cubed_norm, X).update(np.ones(3)),
            ShapeError,
            r"x is float64\(3,\) now.*made for float64\(5,\)",
        ),
        (lambda: tg.operators.hessian(cubed_norm, X) @ np.ones(4), ValueError, "(?i)dimension mismatch"),
        (
            lambda: tg.operators.hessian(cubed_norm, X).hvp(np.ones(4)),
            ShapeError,
            r"the tangent has shape \(4,\)",
        ),
        (
            lambda: tg.operators.hessian(cubed_norm, X).hvp(X, out=np.ones(4)),
            ShapeError,
            r"out= .*float64\(5,\).*got float64\(4,\)",
        ),
        (
            lambda: tg.operators.hessian(cubed_norm, X).hvp(X, out=np.ones(5, int)),
            ShapeError,
            r"got int64\(5,\)",
        ),
        (
            lambda: tg.operators.jacobian(vector, X).vjp(np.ones(4)),
            ShapeError,
            r"the cotangent has shape \(4,\)",
        ),
    ],
)
def test_bad_input(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_an_update_that_fails_leaves_the_operator():
    H = tg.operators.hessian(cubed_norm, X)
    with pytest.raises(ShapeError):
        H.update(np.ones(3))
    np.testing.assert_allclose(H @ V, HV, rtol=1e-14)


def test_made_for_each_sample():
    """Of a function that captured arrays of the sample; one written since is told."""
    at = np.arange(1.0, 4.0)

    def f(s, late=False):
        w = s * 1.0
        H = tg.operators.hessian(lambda x: (w * x**4).sum() + (x * s).sum(), at)
        if late:
            w[0] = 3.0
        return H.hvp(at)

    samples = np.arange(12.0).reshape(4, 3)
    np.testing.assert_allclose(tg.vmap(f)(samples), 12 * samples * at**3, rtol=1e-14)
    np.testing.assert_allclose(tg.vmap(tg.jacobian(f))(samples), [np.diag(12 * at**3)] * 4, rtol=1e-14)
    p = tg.prepare(tg.vmap(f), samples)
    for k in (1.0, 2.0, 3.0):
        np.testing.assert_allclose(p.value(samples * k), 12 * samples * k * at**3, rtol=1e-14)
    for call, x in ((tg.vmap(f, in_axes=(0, None)), samples), (tg.jacobian(f), samples[0])):
        with pytest.raises(GuardError, match="reads besides its arguments"):
            call(x, True)
