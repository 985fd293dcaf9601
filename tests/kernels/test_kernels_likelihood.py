"""Generated kernels for sums over data and per-sample maps: discussion 1's table, the K-cases, nestings, bad
input, memory."""

import threading
import tracemalloc
import weakref

import numpy as np
import pytest
import scipy.special
import scipy.stats
from comparison import close
from kernel_programs import GAUSSIAN, GRADIENT, SECOND, THETA, VALUE, X, gaussian, kernels, random_program

import tapegrad as tg
from tapegrad.errors import ArgumentError, KernelError, ShapeError
from tapegrad.kernels.generated.arguments import MissingCheck

pytestmark = pytest.mark.smoke

# --- discussion 1 ---


def test_table_of_discussion_1():
    close(GAUSSIAN(THETA, X), VALUE)
    value, gradient = GAUSSIAN.value_and_grad(THETA, X)
    close(value, VALUE)
    close(gradient, GRADIENT)
    H = GAUSSIAN.hessian(THETA, X)
    found = np.stack([H[:, 0, 0], H[:, 1, 1], H[:, 2, 2], H[:, 3, 3], H[:, 0, 2], H[:, 1, 3]], axis=1)
    close(found, SECOND)
    assert np.all(H[:, 0, 1] == 0) and np.all(H[:, 2, 3] == 0)


def test_the_pullback_of_ones_is_the_gradient_of_each_sample():
    value, pullback = tg.vjp(lambda t: GAUSSIAN(t, X), THETA)
    close(value, VALUE)
    close(pullback(np.ones(3)), GRADIENT)
    close(pullback(np.array([0.0, 2.0, 0.0])), GRADIENT * [0, 2, 0])


def test_float32():
    theta, x = THETA.astype(np.float32), X.astype(np.float32)
    value, gradient = GAUSSIAN.value_and_grad(theta, x)
    assert value.dtype == gradient.dtype == np.float32
    np.testing.assert_allclose(
        value, [-28.663532390449643, -10.720006040067712, -21.794532757470965], rtol=2e-6
    )
    exact = GAUSSIAN.grad(theta.astype(np.float64), x.astype(np.float64))
    np.testing.assert_allclose(gradient, exact, rtol=2e-6)


def test_const_data_have_no_adjoint_node():
    program = GAUSSIAN._family.derived("VG", 0, (4, 2, False))
    g = program.g
    data = {g.input("y", program.loops[0].id, k) for k in range(2)}
    low = GAUSSIAN.lowered(4, 2)
    assert all(node not in data for node, _, _ in low.bodies[0].code)
    assert len(low.bodies) == 1 and len(low.bodies[0].loop.sums) == 4, (
        "four sums give the value and four derivatives"
    )


@pytest.mark.parametrize("how", ["value", "value_and_grad", "grad through the tape"])
def test_memory_does_not_grow_with_the_data(how):
    calls = {
        "value": lambda x: GAUSSIAN(THETA, tg.Const(x)),
        "value_and_grad": lambda x: GAUSSIAN.value_and_grad(THETA, tg.Const(x)),
        "grad through the tape": lambda x: tg.grad(lambda t, d: GAUSSIAN(t, d).sum())(THETA, tg.Const(x)),
    }
    peaks = []
    for n in (10**3, 10**6):
        x = np.random.default_rng(0).random((2, n))
        calls[how](x)
        found = []
        for _ in range(3):  # (in one of them a table of other work may grow)
            tracemalloc.start()
            calls[how](x)
            found.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        peaks.append(min(found))
    assert peaks[1] - peaks[0] < 1000


# --- nesting ---


def total(theta):
    return (GAUSSIAN(theta, X) ** 2).sum() * 1e-3


def by_hand(theta):
    np_ = tg.numpy
    mu1, mu2, s1, s2 = (theta[k][:, None] for k in range(4))
    terms = (
        -0.5 * ((X[0] - mu1) / s1) ** 2
        - 0.5 * ((X[1] - mu2) / s2) ** 2
        - np_.log(s1)
        - np_.log(s2)
        - np.log(2 * np.pi)
    )
    return (terms.sum(axis=1) ** 2).sum() * 1e-3


def test_all_nestings_to_third_order():
    rng = np.random.default_rng(0)
    v, w, t = rng.normal(size=(3, 4, 3))

    def nested(f):
        g = tg.grad(f)
        yield f(t * 0.01 + THETA)
        yield g(THETA)
        yield tg.jvp(f, (THETA,), (v,))[1]
        yield tg.grad(lambda x: (g(x) * v).sum())(THETA)
        yield tg.jvp(g, (THETA,), (v,))[1]
        yield tg.grad(lambda x: tg.jvp(f, (x,), (v,))[1])(THETA)
        yield tg.jvp(lambda x: tg.jvp(f, (x,), (v,))[1], (THETA,), (w,))[1]
        yield tg.grad(lambda x: tg.jvp(lambda y: tg.jvp(f, (y,), (v,))[1], (x,), (w,))[1])(THETA)
        yield tg.jvp(tg.grad(lambda x: (g(x) * v).sum()), (THETA,), (w,))[1]
        yield tg.grad(lambda x: (tg.grad(lambda y: (g(y) * v).sum())(x) * w).sum())(THETA)

    for a, b in zip(nested(total), nested(by_hand), strict=True):
        close(tg.value(a), tg.value(b), 1e-10)


def test_value_and_grad_is_differentiable_itself():
    f = lambda t: (GAUSSIAN.value_and_grad(t, X)[1] ** 2).sum() * 1e-4
    v = np.random.default_rng(1).normal(size=THETA.shape)
    H = GAUSSIAN.hessian(THETA, X)
    close(tg.grad(f)(THETA), 2e-4 * np.einsum("bij,jb->ib", H, GRADIENT), 1e-11)
    close(tg.jvp(f, (THETA,), (v,))[1], (tg.grad(f)(THETA) * v).sum(), 1e-11)


def test_hvp_scores_fisher():
    v = np.random.default_rng(2).normal(size=THETA.shape)
    close(GAUSSIAN.hvp(THETA, v, X), np.einsum("bij,jb->ib", GAUSSIAN.hessian(THETA, X), v), 1e-12)
    scores = GAUSSIAN.scores(THETA, X)
    assert scores.shape == (5, 4, 3)
    close(scores.sum(axis=0), GRADIENT)
    close(GAUSSIAN.fisher(THETA, X), np.einsum("nib,njb->bij", scores, scores))
    normal = kernels.likelihood(lambda theta, x: -0.5 * ((x - theta[0]) / theta[1]) ** 2 - np.log(theta[1]))
    close(normal.scores(THETA[:2], X[0]).sum(axis=0), normal.grad(THETA[:2], X[0]))


# --- shapes, dtypes, bad input ---


@pytest.mark.parametrize("batch", [0, 1, 2, 7, 8, 33, 1000])
def test_every_batch_size_gives_each_sample_its_own_numbers(batch):
    theta = np.tile(THETA, 400)[:, :batch]
    value, gradient = GAUSSIAN.value_and_grad(theta, X)
    assert value.shape == (batch,) and gradient.shape == (4, batch)
    close(value, np.tile(VALUE, 400)[:batch])
    close(gradient, np.tile(GRADIENT, 400)[:, :batch])
    again = GAUSSIAN.value_and_grad(theta, X)[1]
    assert np.array_equal(gradient, again)


def test_one_parameter_vector_may_be_a_vector():
    value, gradient = GAUSSIAN.value_and_grad(THETA[:, 0], X)
    close(value, VALUE[0])
    close(gradient, GRADIENT[:, 0])
    close(tg.grad(lambda t: GAUSSIAN(t, X))(THETA[:, 1]), GRADIENT[:, 1])


def test_parameters_with_names():
    def loglik(theta, x):
        return (
            gaussian([theta["mu"][0], theta["mu"][1], theta["sigma"][0], theta["sigma"][1]], x)
            * theta["weight"]
        )

    k = kernels.likelihood(loglik)
    theta = {"mu": THETA[:2], "sigma": THETA[2:], "weight": np.array([1.0, 2.0, 3.0])}
    close(k(theta, X), VALUE * [1, 2, 3])
    value, gradient = k.value_and_grad(theta, X)
    close(gradient["mu"], GRADIENT[:2] * [1, 2, 3])
    close(gradient["sigma"], GRADIENT[2:] * [1, 2, 3])
    close(gradient["weight"], VALUE)
    taped = tg.grad(lambda t: k(t, X).sum())(theta)
    for name in theta:
        close(taped[name], gradient[name])


def test_data_of_each_sample():
    each = np.stack([X, X[:, ::-1], X], axis=-1)
    close(GAUSSIAN(THETA, each), VALUE)
    each = X[:, :, None] + np.array([0.0, 0.1, 0.2])
    one_by_one = [GAUSSIAN(THETA[:, k], X + 0.1 * k) for k in range(3)]
    close(GAUSSIAN(THETA, each), one_by_one)
    assert GAUSSIAN.hessian(THETA, each).shape == (3, 4, 4)


def test_memory_layouts_and_out():
    value, gradient = np.empty(3), np.empty((4, 3))
    theta = np.asfortranarray(THETA)
    got = GAUSSIAN.value_and_grad(theta, np.asfortranarray(X), out=(value, gradient))
    assert got[0] is value and got[1] is gradient
    close(gradient, GRADIENT)
    assert GAUSSIAN(THETA, X, out=value) is value
    with pytest.raises(ShapeError, match=r"out\[1\]"):
        GAUSSIAN.value_and_grad(THETA, X, out=(value, gradient.T))


def test_invalid_samples_get_minus_infinity_and_no_gradient():
    theta = THETA.copy()
    theta[2, 1] = -0.2
    value, gradient = GAUSSIAN.value_and_grad(theta, X)
    assert value[1] == -np.inf and np.all(gradient[:, 1] == 0)
    close(value[[0, 2]], VALUE[[0, 2]])
    close(gradient[:, [0, 2]], GRADIENT[:, [0, 2]])
    assert np.all(GAUSSIAN.hvp(theta, np.ones((4, 3)), X)[:, 1] == 0)
    raw = kernels.likelihood(gaussian, invalid="nan")
    value, gradient = raw.value_and_grad(theta, X)
    assert np.isnan(value[1]) and not np.isnan(value[[0, 2]]).any()


def test_nan_is_missing_and_inf_an_error():
    x = np.insert(X, 2, np.nan, axis=1)
    x[1, 2] = 3.0
    close(GAUSSIAN(THETA, x), VALUE)
    close(GAUSSIAN.grad(THETA, x), GRADIENT)
    x[0, 2] = np.inf
    with pytest.raises(ArgumentError, match="inf"):
        GAUSSIAN(THETA, x)


@pytest.mark.parametrize(
    "theta, data, error, text",
    [
        (THETA[None], X, ShapeError, r"\(p, B\)"),
        (THETA, X[:, :, None], ShapeError, "3 samples"),
        (THETA.astype(complex), X, ArgumentError, "complex128"),
        (THETA.astype(np.float16), X, ArgumentError, "float16"),
        (THETA, np.float64(1.0), ShapeError, r"\(d, N\)"),
    ],
)
def test_wrong_shapes_and_dtypes(theta, data, error, text):
    with pytest.raises(error, match=text):
        GAUSSIAN(theta, data)


def test_too_few_parameters_names_the_users_line():
    with pytest.raises(ValueError, match="unpack") as caught:
        GAUSSIAN(THETA[:3], X)
    assert "kernel_programs.py:32" in caught.value.__notes__[0]


def test_writing_outside_is_refused():
    seen = np.zeros(2)

    def loglik(theta, x):
        seen[0] = x * theta[0]
        return x * theta[0]

    with pytest.raises((KernelError, ValueError), match="known only when the kernel runs|sequence"):
        kernels.likelihood(loglik)(np.ones((1, 2)), np.ones(3))


def test_threads_share_a_kernel():
    fresh = kernels.likelihood(gaussian)
    found = [None] * 8

    def work(k):
        found[k] = fresh.value_and_grad(THETA, X)[1]

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(np.array_equal(g, found[0]) for g in found)
    close(found[0], GRADIENT)


# --- densities against scipy.stats ---

DENSITIES = [
    (
        lambda th, x: -0.5 * ((x - th[0]) / th[1]) ** 2 - np.log(th[1]) - 0.9189385332046727,
        scipy.stats.norm,
        (0.3, 1.2),
    ),
    (
        lambda th, x: np.where(x > 0, -x / th[0] - np.log(th[0]), -np.inf),
        lambda s: scipy.stats.expon(0, s),
        (0.7,),
    ),
    (lambda th, x: -np.log(np.pi * th[1] * (1 + ((x - th[0]) / th[1]) ** 2)), scipy.stats.cauchy, (0.1, 0.8)),
    (lambda th, x: -np.abs(x - th[0]) / th[1] - np.log(2 * th[1]), scipy.stats.laplace, (0.05, 0.9)),
    (
        lambda th, x: -(x - th[0]) / th[1] - np.log(th[1]) - 2 * np.log1p(np.exp(-(x - th[0]) / th[1])),
        scipy.stats.logistic,
        (0.2, 0.6),
    ),
]


@pytest.mark.parametrize("loglik, frozen, theta", DENSITIES)
def test_log_densities(loglik, frozen, theta):
    x = np.random.default_rng(3).gamma(2.0, size=50)
    theta = np.array(theta)
    k = kernels.likelihood(loglik)
    f = lambda th: frozen(*th).logpdf(x).sum()
    close(k(theta, x), f(theta), 1e-12)
    steps = 1e-5 * np.eye(len(theta))
    differences = [(f(theta + h) - f(theta - h)) / 2e-5 for h in steps]
    np.testing.assert_allclose(k.grad(theta, x), differences, rtol=1e-7, atol=1e-7)


def test_student_t_and_poisson_by_gammaln():
    def student(th, x):
        nu, s = th
        half = 0.5 * (nu + 1)
        constant = scipy.special.gammaln(half) - scipy.special.gammaln(0.5 * nu) - 0.5 * np.log(np.pi * nu)
        return constant - np.log(s) - half * np.log1p((x / s) ** 2 / nu)

    x = np.random.default_rng(4).standard_t(4, size=40)
    k, theta = kernels.likelihood(student), np.array([3.7, 1.3])
    close(k(theta, x), scipy.stats.t(3.7, 0, 1.3).logpdf(x).sum(), 1e-12)
    h = 1e-5
    f = lambda nu: scipy.stats.t(nu, 0, 1.3).logpdf(x).sum()
    np.testing.assert_allclose(k.grad(theta, x)[0], (f(3.7 + h) - f(3.7 - h)) / (2 * h), rtol=1e-7)
    poisson = kernels.likelihood(lambda th, n: n * th[0] - np.exp(th[0]) - scipy.special.gammaln(n + 1.0))
    n = np.array([0.0, 1, 4, 50, 300])
    close(poisson(np.array([1.3]), n), scipy.stats.poisson(np.exp(1.3)).logpmf(n).sum(), 1e-12)


def test_guarded_branch_has_exact_zero_derivatives():
    """Others give nan where the branch not taken has an infinite derivative."""
    k = kernels.likelihood(
        lambda th, x: np.where(th[0] > 0, np.sqrt(th[0]) * np.log(th[0]) + 1 / th[0], 0.0) * x
    )
    value, gradient = k.value_and_grad(np.array([[0.0, -1.0, 1.0]]), np.ones(2))
    assert np.array_equal(value, [0, 0, 2]) and np.array_equal(gradient, [[0, 0, 0]])
    assert np.array_equal(k.hessian(np.array([[0.0, -1.0]]), np.ones(2)), np.zeros((2, 1, 1)))


# --- random programs against the array tape ---


@pytest.mark.one_in(7)
@pytest.mark.parametrize("seed", range(25))
def test_random_programs(seed):
    run = random_program(seed)
    k = kernels.likelihood(lambda theta, x: run(np, theta, x))
    rng = np.random.default_rng(100 + seed)
    theta, x, v = rng.normal(size=(4, 5)), rng.normal(size=(2, 7)), rng.normal(size=(4, 5))

    def on_tape(theta):
        rows = [theta[j][:, None] for j in range(4)]
        return (run(tg.numpy, rows, [x[0][None], x[1][None]]) + np.zeros((5, 7))).sum()

    value, gradient = k.value_and_grad(theta, x)
    close(value.sum(), on_tape(theta), 1e-11)
    close(gradient, tg.grad(on_tape)(theta), 1e-10)
    close(k.hvp(theta, v, x), tg.hvp(on_tape, theta, v), 1e-9)


# --- map, loop, while_loop: the K-cases ---


def grad_of(f, x):
    return tg.grad(lambda a: f(a).sum())(np.asarray(x, float))


def test_k_product_over_an_array():
    k = kernels.map(lambda x, n: kernels.loop(n, lambda i, s: s * x[i], 1.0))
    assert np.array_equal(grad_of(lambda a: k(a, np.array([3])), [[2.0], [2.0], [2.0]]), [[4], [4], [4]])


def test_k_power_with_run_time_bound():
    k = kernels.map(lambda x, n: kernels.loop(n, lambda i, s: s * x, 1.0))
    close(grad_of(lambda a: k(a, 3), [1.5, 2.0]), np.array([6.75, 12]))
    close(k(np.array([1.5, 2.0]), np.array([0, 5])), np.array([1.0, 32.0]))
    close(grad_of(lambda a: k(a, np.array([700, 3])), [1.0, 2.0]), np.array([700.0, 12.0]))


def test_k_while():
    k = kernels.map(lambda x: kernels.while_loop(lambda s: s < 10, lambda s: s * x, x, 100))
    close(k(np.array([1.5, 2.0])), np.array([11.390625, 16.0]))
    close(grad_of(k, [1.5, 2.0]), np.array([45.5625, 32.0]))


def test_k_loop_that_is_no_sum():
    k = kernels.map(lambda x, n: kernels.loop(n, lambda i, s: s * x + np.sin(s), 1.0))
    close(grad_of(lambda a: k(a, 3), [1.5, 2.0]), np.array([7.487055434113092, 17.45818963356281]))
    h = 1e-6
    d = (grad_of(lambda a: k(a, 3), [1.5 + h, 2.0]) - grad_of(lambda a: k(a, 3), [1.5 - h, 2.0])) / (2 * h)
    found = tg.hvp(lambda a: k(a, 3).sum(), np.array([1.5, 2.0]), np.array([1.0, 0.0]))
    np.testing.assert_allclose(found, d, rtol=1e-7, atol=1e-7)


def test_k_names_and_writes():
    def square(a):
        b = a * a
        a = 1.0
        return b

    def product(a, b):
        a *= b
        return a

    assert np.array_equal(grad_of(kernels.map(square), [1.0, 2, 3]), [2, 4, 6])
    times = kernels.map(product)
    assert np.array_equal(grad_of(lambda b: times(np.array([1.0, 2, 3]), b), [4.0, 5, 6]), [1, 2, 3])
    first, second = kernels.map(lambda a: a * a), kernels.map(lambda a: a * 0.0)

    def two_launches(a):
        y = first(a)
        a[...] = second(a)
        return y.sum()

    assert np.array_equal(tg.grad(two_launches)(np.array([1.0, 2.0])), [2, 4])


def test_map_of_trees_and_matrices():
    def f(A, x):
        y = np.zeros(2)
        for k in range(2):
            y[k] = A[k] @ x
        return {"y": y, "q": x @ A @ x}

    rng = np.random.default_rng(5)
    A, x = rng.normal(size=(2, 2, 6)), rng.normal(size=(2, 6))
    k = kernels.map(f)
    out = k(A, x)
    close(out["y"], np.einsum("ijb,jb->ib", A, x))
    close(out["q"], np.einsum("ib,ijb,jb->b", x, A, x))
    loss = lambda A, x: (k(A, x)["y"] ** 2).sum() + (k(A, x)["q"] ** 3).sum()
    ours = lambda A, x: (
        (tg.numpy.einsum("ijb,jb->ib", A, x) ** 2).sum()
        + (tg.numpy.einsum("ib,ijb,jb->b", x, A, x) ** 3).sum()
    )
    for a, b in zip(tg.grad(loss, (0, 1))(A, x), tg.grad(ours, (0, 1))(A, x), strict=True):
        close(a, b, 1e-12)
    v = rng.normal(size=A.shape)
    close(tg.jvp(lambda A: loss(A, x), (A,), (v,))[1], tg.jvp(lambda A: ours(A, x), (A,), (v,))[1], 1e-12)
    close(tg.hvp(lambda A: loss(A, x), A, v), tg.hvp(lambda A: ours(A, x), A, v), 1e-11)


def test_a_loop_inside_a_loop():
    k = kernels.map(lambda x, n: kernels.loop(n, lambda i, s: kernels.loop(n, lambda j, r: r * x, s), 1.0))
    close(k(np.array([2.0, 3.0]), 3), np.array([2.0**9, 3.0**9]))
    inner = kernels.map(
        lambda x, n: kernels.loop(n, lambda i, s: kernels.loop(2, lambda j, r: r * x, s), 1.0)
    )
    close(inner(np.array([2.0]), 3), np.array([64.0]))


def test_map_without_derivatives_and_wrong_shapes():
    assert np.array_equal(kernels.map(lambda n: n * 2)(np.array([1, 2])), [2.0, 4.0])
    add = kernels.map(lambda a, b: a + b)
    assert np.array_equal(add(np.ones(3), 2.0), [3, 3, 3])
    assert add(np.empty(0), np.empty(0)).shape == (0,)
    with pytest.raises(ShapeError, match=r"\[2, 3\] samples"):
        add(np.ones(3), np.ones(2))
    with pytest.raises(ShapeError, match="no argument has an axis"):
        add(1.0, 2.0)


def test_plain_python_outside_of_a_kernel():
    assert kernels.loop(3, lambda i, s: s * 2.0, 1.0) == 8.0
    assert kernels.while_loop(lambda s: s < 10, lambda s: s * 2.0, 1.0, 50) == 16.0


def test_what_is_known_of_an_array_that_is_gone_does_not_stand_for_another():
    """An array may get the place in memory of one that was looked at on a device."""
    gone, x = np.ones(3), np.array([1.0, np.nan])
    looking = MissingCheck("f")
    looking.clean = {id(x): (weakref.ref(gone), 5, False)}
    assert looking(x)


def test_out_is_refused_where_it_would_be_ignored():
    out = np.empty(THETA.shape[1])
    for f in (
        lambda t: GAUSSIAN(t, X, out=out),
        lambda t: GAUSSIAN.value_and_grad(t, X, out=(out, np.empty_like(THETA)))[0],
    ):
        with pytest.raises(ArgumentError, match="out= cannot hold a derivative"):
            tg.grad(lambda t, f=f: f(t).sum())(THETA)
    k = kernels.likelihood(lambda t, x: -((x - t["mu"]) ** 2))
    with pytest.raises(ArgumentError, match="not for a tree"):
        k.value_and_grad({"mu": np.zeros(3)}, np.ones(2), out=(np.empty(3), np.empty((1, 3))))


@pytest.mark.parametrize("dtype", [">f8", ">f4", "<f8", "<f4"])
def test_bytes_in_another_order(dtype):
    """As files of FITS have them."""
    theta, x = THETA.astype(dtype), X.astype(dtype)
    found, expected = (
        GAUSSIAN(theta, x),
        GAUSSIAN(theta.astype(theta.dtype.newbyteorder("=")), x.astype(x.dtype.newbyteorder("="))),
    )
    assert found.dtype == expected.dtype and found.dtype.isnative
    np.testing.assert_array_equal(found, expected)
