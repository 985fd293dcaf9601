"""Light curves of celerite terms against dense Gaussians, mpmath, complex steps and differences; the CUDA
C."""

import shutil

import mpmath
import numpy as np
import pytest
from comparison import close
from library_models import by_source
from light_curves import DATA, VARIANCE, T, Y, agrees, log_density
from raw_device import noted_launches  # noqa: F401 (the fixture `device`)

import tapegrad as tg
from tapegrad.errors import ArgumentError, ShapeError
from tapegrad.kernels import celerite

pytestmark = pytest.mark.one_in(4)  # its cases compile

REALS = [np.float64, np.float32]
SIZES = [
    (1, 0, 0, 0, 0),
    (0, 1, 0, 0, 0),
    (0, 0, 1, 1, 1),
    (1, 1, 1, 0, 1),
    (2, 2, 0, 1, 0),
    (0, 2, 1, 0, 0),
    (3, 0, 2, 1, 1),
]
NAMES = "real", "complex", "quadratic", "jitter", "mean"


def process(sizes):
    return celerite.process(**dict(zip(NAMES, sizes, strict=True)))


def parameters(sizes, batch, seed=0):
    """Of positive covariances; quadratic terms on both sides of the critical damping."""
    rng = np.random.default_rng(seed)
    real, complex_, quadratic, jitter, mean = sizes
    rows = []
    for _ in range(real):
        rows += [rng.uniform(0.5, 1.5, batch), rng.uniform(0.1, 1.0, batch)]
    for _ in range(complex_):
        rows += [
            rng.uniform(0.5, 1.5, batch),
            rng.uniform(-0.1, 0.1, batch),
            rng.uniform(0.2, 1.0, batch),
            rng.uniform(1, 3, batch),
        ]
    for n in range(quadratic):
        a, c = rng.uniform(0.5, 1.5, batch), rng.uniform(0.3, 1.0, batch)
        ratio = np.where(
            (np.arange(batch) + n) % 2, rng.uniform(0.05, 0.9, batch), rng.uniform(1.1, 9.0, batch)
        )
        rows += [a, 0.9 * a * c, c, ratio * c * c]
    rows += [rng.uniform(0.01, 0.1, batch)] * jitter + [rng.normal(size=batch)] * mean
    return np.array(rows)


def covariance(theta, sizes, tau, xp=np):
    """Sum of the terms at the lags tau >= 0, by their definition; theta may be complex, or of mpmath."""
    i, total = 0, 0 * tau
    for _ in range(sizes[0]):
        a, c = theta[i : i + 2]
        i, total = i + 2, total + a * xp.exp(-c * tau)
    for kind in "c" * sizes[1] + "q" * sizes[2]:
        a, b, c, w = theta[i : i + 4]
        h = w if kind == "c" else xp.sqrt(w - c * c + 0j)
        i, total = (
            i + 4,
            total
            + xp.exp(-c * tau) * (a * xp.cos(h * tau) + b * xp.sin(h * tau) / (1 if kind == "c" else h)),
        )
    return total


def dense(theta, sizes, t=T, variance=VARIANCE):
    """The covariance matrix of the data, complex if theta is."""
    K = covariance(theta, sizes, np.abs(t[:, None] - t))
    jitter = theta[2 * sizes[0] + 4 * (sizes[1] + sizes[2])] if sizes[3] else 0.0
    return (K if np.iscomplexobj(theta) else K.real) + np.diag(variance + jitter)


def reference(theta, sizes):
    return log_density(dense(theta, sizes), Y - (theta[-1] if sizes[4] else 0.0))


def score(theta, sizes):
    """By complex steps of the covariance's real and imaginary parts: tr((alpha alpha' - K^-1) dK) / 2."""
    K, residual = dense(theta, sizes), Y - (theta[-1] if sizes[4] else 0.0)
    inverse = np.linalg.inv(K)
    alpha, found = inverse @ residual, []
    for e in np.eye(len(theta)):
        if sizes[2]:  # a complex h: central differences
            h = 1e-3
            first, second, third = [
                (dense(theta + n * h * e, sizes) - dense(theta - n * h * e, sizes)) / h for n in (1, 2, 3)
            ]
            dK = (45 * first - 9 * second + third) / 60
        else:
            dK = dense(theta + 1e-30j * e, sizes).imag / 1e-30
        found.append(0.5 * np.sum((np.outer(alpha, alpha) - inverse) * dK))
    if sizes[4]:
        found[-1] = alpha.sum()
    return np.array(found)


# --- values and derivatives ---


@pytest.mark.one_in(7)
@pytest.mark.parametrize("sizes", SIZES)
def test_dense_gaussians(sizes):
    k, theta = process(sizes), parameters(sizes, 6)
    value, gradient = k.value_and_grad(theta, DATA)
    close(value, [reference(th, sizes) for th in theta.T], 1e-11)
    for b in range(3):
        close(gradient[:, b], score(theta[:, b], sizes), 1e-7 if sizes[2] else 1e-10)
    assert k(theta[:, 0], DATA) == value[0] and np.array_equal(k.grad(theta[:, 0], DATA), gradient[:, 0])


@pytest.mark.one_in(4)
@pytest.mark.skipif(shutil.which("g++") is None, reason="NOT RUN: CUDA C on the CPU, for there is no g++")
@pytest.mark.parametrize("real", [np.float64, pytest.param(np.float32, marks=pytest.mark.long)])
@pytest.mark.parametrize("each", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("sizes", [*SIZES[:4], *[pytest.param(s, marks=pytest.mark.long) for s in SIZES[4:]]])
def test_cuda_source_and_generated_kernel(sizes, each, real):
    """More data than are summed in one part, holes, and a sample that is not valid; in the other coordinates
    of the CUDA C."""
    k, theta, n = process(sizes), parameters(sizes, 70), 150
    t = np.cumsum(np.random.default_rng(2).exponential(0.3, n))
    data = celerite.light_curve(t, np.sin(t), np.resize(VARIANCE, n))
    data[1, [3, 4, 130]], data[2, 9] = np.nan, np.nan
    if each:
        data = data[:, :, None] * np.random.default_rng(3).uniform(0.9, 1.1, 70)
    bad = theta.copy()
    bad[1, 7] = -3.0 if sizes[0] else np.nan
    th, x = bad.astype(real), data.astype(real)
    value, gradient = by_source(k, th, x)
    assert np.array_equal(by_source(k, th, x, value=True), value)
    good = np.arange(70) != 7
    assert (
        value[7] == -np.inf
        and not gradient[:, 7].any()
        and np.isfinite(value[good]).all()
        and gradient[:, good].all()
    )
    expected, slope = k.value_and_grad(bad, data)
    error = np.linalg.norm(gradient - slope, axis=0)[good] / np.linalg.norm(slope, axis=0)[good]
    close(value[good], expected[good], 1e-12 if real is np.float64 else 2e-5)
    assert (
        error.max() < (1e-11 if real is np.float64 else 1e-3)
        and expected[7] == -np.inf
        and not slope[:, 7].any()
    )


@pytest.mark.parametrize("sizes", SIZES)
def test_float32(sizes):
    k, theta, data = process(sizes), parameters(sizes, 20).astype(np.float32), DATA.astype(np.float32)
    value, gradient = k.value_and_grad(theta, data)
    expected, slope = k.value_and_grad(theta.astype(float), data.astype(float))
    assert value.dtype == gradient.dtype == np.float32
    close(value, expected, 2e-5)
    assert (np.linalg.norm(gradient - slope, axis=0) / np.linalg.norm(slope, axis=0)).max() < 1e-3


@pytest.mark.one_in(3)
@pytest.mark.parametrize("sizes", SIZES)
def test_hessians(sizes):
    k, theta = process(sizes), parameters(sizes, 3)
    v, h = np.random.default_rng(5).normal(size=theta.shape), 1e-5
    first, second = [(k.grad(theta + n * h * v, DATA) - k.grad(theta - n * h * v, DATA)) / h for n in (1, 2)]
    differences = (8 * first - second) / 12
    close(k.hvp(theta, v, DATA), differences, 1e-7)
    close(np.einsum("bij,jb->ib", k.hessian(theta, DATA), v), differences, 1e-7)
    close(tg.hvp(lambda x: k(x, DATA).sum(), theta, v), differences, 1e-7)


def test_the_dense_form_on_the_tape():
    sizes = (1, 2, 0, 1, 1)
    theta, gap = parameters(sizes, 3), np.abs(T[:, None] - T)

    def loglik(th):
        K = covariance(th, sizes, gap) + np.diag(VARIANCE) + th[10] * np.eye(len(T))
        residual = Y - th[11]
        return -0.5 * (
            residual @ np.linalg.solve(K, residual) + np.linalg.slogdet(K)[1] + len(T) * np.log(2 * np.pi)
        )

    for b in range(3):
        value, gradient = tg.value_and_grad(loglik)(theta[:, b])
        ours = process(sizes).value_and_grad(theta[:, b], DATA)
        np.testing.assert_allclose(ours[0], value, rtol=1e-12)
        close(ours[1], gradient, 1e-10)
        close(process(sizes).hessian(theta[:, b], DATA), tg.hessian(loglik)(theta[:, b]), 1e-8)


def mp_log_density(theta, sizes, t, y, variance):
    n = len(t)
    K = mpmath.matrix(n, n)
    for i in range(n):
        for j in range(n):
            K[i, j] = mpmath.re(covariance(theta, sizes, abs(t[i] - t[j]), mpmath)) + (
                variance[i] if i == j else 0
            )
    y = mpmath.matrix(y)
    return (
        -(y.T * mpmath.lu_solve(K, y))[0] / 2
        - mpmath.log(mpmath.det(K)) / 2
        - n * mpmath.log(2 * mpmath.pi) / 2
    )


CRITICAL = 0, 1e-14, -1e-14, 1e-7, -1e-7, 0.02, -0.02, 0.3, -0.3, 8, -0.99, -1 + 1e-8  # w / c^2 - 1


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "sizes, theta",
    [
        ((1, 0, 0, 0, 0), [0.7, 0.3]),
        ((0, 1, 0, 0, 0), [0.7, 0.1, 0.3, 2.5]),
        *[((0, 0, 1, 0, 0), [0.7, 0.3, 0.5, 0.25 * (1 + x)]) for x in CRITICAL],
    ],
)
def test_multiple_precision_through_the_critical_damping(sizes, theta):
    """Value and gradient of six points by the generated kernel and by hand."""
    t, y, variance = T[:12:2].copy(), Y[:12:2].copy(), VARIANCE[:12:2].copy()
    k, theta, data = process(sizes), np.array(theta), celerite.light_curve(t, y, variance)
    with mpmath.workdps(60):
        point = [mpmath.mpf(x) for x in theta.tolist()]
        given = [[mpmath.mpf(x) for x in a.tolist()] for a in (t, y, variance)]
        if sizes[2] and theta[3] == theta[2] ** 2:
            point[3] += mpmath.mpf(10) ** -25  # sin(h tau) / h at h = 0 by its limit
        f = lambda *p: mp_log_density(p, sizes, *given)
        value = float(f(*point))
        small, slope = mpmath.mpf(10) ** -20, []
        for j in range(len(point)):
            up, down = [f(*[x + sign * (i == j) * small for i, x in enumerate(point)]) for sign in (1, -1)]
            slope.append(float((up - down) / (2 * small)))
    for found in (
        k.value_and_grad(theta, data),
        [x[..., 0] for x in by_source(k, theta[:, None], data)],
    ):
        np.testing.assert_allclose(found[0], value, rtol=1e-13)
        close(found[1], np.array(slope), 2e-11)


def test_derivatives_by_the_data():
    """By y they are -K^-1 (y - mean); by times and variances against differences through `light_curve`."""
    sizes = (1, 1, 0, 0, 1)
    k, theta = process(sizes), parameters(sizes, 2)
    weights = np.array([1.0, -0.5])
    f = lambda t, y, variance: (weights * k(theta, celerite.light_curve(t, y, variance))).sum()
    found = tg.grad(f, argnums=(0, 1, 2))(T, Y, VARIANCE)
    expected = sum(
        [-w * np.linalg.solve(dense(th, sizes), Y - th[-1]) for w, th in zip(weights, theta.T, strict=True)]
    )
    close(found[1], expected, 1e-10)
    for which in (0, 2):
        v, h = np.random.default_rng(8).normal(size=40), 1e-6
        move = lambda s: f(
            *[x + s * h * v * (x if which == 2 else 1) * (i == which) for i, x in enumerate((T, Y, VARIANCE))]
        )
        slope = (move(1) - move(-1)) / (2 * h)
        np.testing.assert_allclose(
            (found[which] * v * (VARIANCE if which == 2 else 1)).sum(), slope, rtol=1e-6
        )


@pytest.mark.parametrize("real", REALS)
@pytest.mark.parametrize("gap", [300.0, 1e5])
def test_what_is_far_apart_is_independent(gap, real):
    """Value, gradient and Hessian of two pieces add up; powers of the gap overflow in float32."""
    sizes = (1, 1, 1, 0, 0)
    k, theta = process(sizes), parameters(sizes, 4)
    theta[1], theta[4], theta[8] = 0.5, 0.5, 0.5  # decays
    theta[9] = [9.0, 0.25, 0.25 - 1e-12, 0.12]
    both = DATA.copy()
    both[0, 20] = gap
    v = np.ones_like(theta).astype(real)
    one, two, all_ = [np.ascontiguousarray(x, real) for x in (DATA[:, :20], DATA[:, 20:], both)]
    theta = theta.astype(real)
    tight = 1e-12 if real is np.float64 else 1e-4
    close(k(theta, all_), k(theta, one) + k(theta, two), tight)
    close(k.grad(theta, all_), k.grad(theta, one) + k.grad(theta, two), 10 * tight)
    close(k.hvp(theta, v, all_), k.hvp(theta, v, one) + k.hvp(theta, v, two), 100 * tight)


# --- data ---


@pytest.mark.long
def test_missing_data_are_left_out():
    sizes = (1, 1, 1, 1, 1)
    k, theta, y, variance = process(sizes), parameters(sizes, 3), Y.copy(), VARIANCE.copy()
    y[[0, 7, 8, 39]], variance[20] = np.nan, np.nan
    keep = ~np.isnan(y + variance)
    some = celerite.light_curve(T[keep], Y[keep], VARIANCE[keep])
    data = celerite.light_curve(T, y, variance)
    v = np.ones_like(theta)
    close(k(theta, data), k(theta, some))
    close(k.grad(theta, data), k.grad(theta, some), 1e-11)
    close(k.hvp(theta, v, data), k.hvp(theta, v, some), 1e-10)
    each = np.stack([data, np.where([[False], [True], [False]], np.nan, data), DATA], axis=-1)
    value, gradient = k.value_and_grad(theta, each)
    close(value, [k(theta[:, 0], data), 0.0, k(theta[:, 2], DATA)])
    assert not gradient[:, 1].any()
    close(gradient[:, 2], k.grad(theta[:, 2], DATA))


def test_light_curves_of_samples():
    """Times of each sample, filled up with nan."""
    t, y = np.stack([T, 2 * T], axis=1), np.stack([Y, Y + 1], axis=1)
    y[30:, 1] = np.nan
    data = celerite.light_curve(t, y, VARIANCE)
    assert data.shape == (3, 40, 2)
    k, theta = process(SIZES[3]), parameters(SIZES[3], 2)
    close(
        k(theta, data),
        [k(theta[:, 0], DATA), k(theta[:, 1], celerite.light_curve(2 * T[:30], Y[:30] + 1, VARIANCE[:30]))],
    )
    assert (
        np.array_equal(celerite.light_curve(t, Y, 0.1)[1, :, 1], Y)
        and (celerite.light_curve(t, Y, 0.1)[2] == 0.1).all()
    )


def test_light_curve_keeps_the_digits_of_the_times():
    t = 59000 + T
    data = celerite.light_curve(t, Y.astype(np.float32), 0.25)
    assert (
        data.dtype == np.float32 and np.abs(data[0, 1:] - np.diff(t)).max() < 1e-6 and (data[2] == 0.25).all()
    )
    assert celerite.light_curve([1, 2], [3, 4]).tolist() == [[0, 1], [3, 4], [0, 0]]
    assert celerite.light_curve([], [], []).shape == (3, 0)


@pytest.mark.parametrize(
    "args, error, text",
    [
        (([0.0, 2.0, 1.0], [1, 2, 3], 0.1), ArgumentError, r"t\[2\] is before t\[1\]; sort"),
        (([0.0, np.nan, 1.0], [1, 2, 3], 0.1), ArgumentError, "not finite"),
        (([0.0, np.inf], [1, 2], 0.1), ArgumentError, "not finite"),
        (([0.0, 1.0], [1, 2], [0.1, -0.1]), ArgumentError, "squares of the errors"),
        (([0.0, 1.0], [1, 2, 3], 0.1), ShapeError, r"t has shape \(2,\), y \(3,\)"),
        (([0.0, 1.0], [1, 2], [0.1]), ShapeError, r"variance \(1,\)"),
        ((0.0, [1, 2], 0.1), ShapeError, r"t has shape \(\)"),
        ((np.zeros((2, 3)), np.zeros((2, 2)), 0.1), ShapeError, "wanted is"),
        ((np.zeros((2, 3, 1)), np.zeros(2), 0.1), ShapeError, "wanted is"),
        (([0.0, 1.0], [1j, 2], 0.1), ArgumentError, "light_curve: y has dtype complex128"),
    ],
)
def test_wrong_light_curves(args, error, text):
    with pytest.raises(error, match=text):
        celerite.light_curve(*args)


def test_wrong_calls():
    k, theta = process(SIZES[1]), parameters(SIZES[1], 3)
    assert process(SIZES[1]) is k and k.options() is not k
    for call in (k, k.value_and_grad, k.grad):
        with pytest.raises(
            ShapeError, match=r"wanted are theta \(4, B\) and the data of light_curve, \(3, N\)"
        ):
            call(theta[:3], DATA)
        with pytest.raises(ShapeError, match="light_curve"):
            call(theta, DATA[:2])
        with pytest.raises(ShapeError, match="3 samples"):
            call(theta, np.zeros((3, 5, 2)))
        infinite, descending, negative = DATA.copy(), DATA.copy(), DATA.copy()
        infinite[1, 3], descending[0, 5], negative[2, 6] = np.inf, -0.1, -0.1
        call(theta, DATA)  # a repeated call looks at the data again
        with pytest.raises(ArgumentError, match="the data hold inf"):
            call(theta, infinite)
        for wrong in (descending, negative):
            with pytest.raises(ArgumentError, match="negative or nan, or a negative variance; make them by"):
                call(theta, wrong)
        with pytest.raises(ArgumentError, match="complex128"):
            call(theta + 0j, DATA)
    for wrong in ({}, {"real": -1, "complex": 1}, {"real": 1.0}, {"quadratic": 7}):
        with pytest.raises(ArgumentError, match="real \\+ 2 complex \\+ 2 quadratic from 1 to 12"):
            celerite.process(**wrong)


@pytest.mark.parametrize("n", [0, 1, 2])
def test_few_data(n):
    sizes = (1, 0, 1, 1, 1)
    k, theta = process(sizes), parameters(sizes, 4)
    value, gradient = k.value_and_grad(theta, np.ascontiguousarray(DATA[:, :n]))
    assert value.shape == (4,) and gradient.shape == theta.shape
    for b in range(4):
        K = dense(theta[:, b], sizes, T[:n], VARIANCE[:n])
        close(value[b], log_density(K, Y[:n] - theta[-1, b]) if n else 0.0)
    assert n or not gradient.any()
    empty = k.value_and_grad(theta[:, :0], DATA)
    assert empty[0].shape == (0,) and empty[1].shape == (len(theta), 0)


def test_equal_times():
    """With noise two observations at one time are two; without, the covariance is singular."""
    k, theta = process(SIZES[0]), np.array([0.8, 0.5])
    t, y = np.array([0.0, 1.0, 1.0, 2.0]), np.array([0.1, 0.4, 0.5, -0.2])
    K = 0.8 * np.exp(-0.5 * np.abs(t[:, None] - t))
    close(k(theta, celerite.light_curve(t, y, 0.01)), log_density(K + 0.01 * np.eye(4), y))
    value, gradient = k.value_and_grad(theta, celerite.light_curve(t, y))
    assert value == -np.inf and not gradient.any()


INVALID = [
    ((1, 0, 0, 1, 1), 1, -0.1), ((1, 0, 0, 1, 1), 2, -0.1), ((1, 0, 0, 1, 1), 0, -5.0), ((1, 0, 0, 1, 1), 0,
    np.nan),
    ((1, 0, 0, 1, 1), 3, np.inf), ((1, 0, 0, 1, 1), 1, np.inf), ((0, 1, 0, 0, 0), 1, 40.0), ((0, 1, 0, 0, 0),
    2, -0.1),
    ((0, 1, 0, 0, 0), 3, np.nan), ((0, 1, 0, 0, 0), 3, np.inf), ((0, 0, 1, 0, 0), 2, -0.2), ((0, 0, 1, 0, 0),
    3, -0.2),
    ((0, 0, 1, 0, 0), 1, -40.0),
]  # fmt: skip


@pytest.mark.one_in(3)
@pytest.mark.parametrize("sizes, row, wrong", INVALID)
def test_invalid_parameters(sizes, row, wrong):
    """-inf and 0 in that sample alone, by hand and generated; or nan."""
    k, theta = process(sizes), parameters(sizes, 5)
    value, gradient = k.value_and_grad(theta, DATA)
    bad = theta.copy()
    bad[row, 3] = wrong
    others = np.arange(5) != 3
    for v, g in (k.value_and_grad(bad, DATA), by_source(k, bad, DATA)):
        assert v[3] == -np.inf and not g[:, 3].any()
        close(v[others], value[others])
        close(g[:, others], gradient[:, others], 1e-10)
    assert k(bad, DATA)[3] == -np.inf and not k.hvp(bad, np.ones_like(bad), DATA)[:, 3].any()
    loud = k.options(invalid="nan")
    out = np.empty(5), np.empty(theta.shape)
    assert loud.value_and_grad(bad, DATA, out=out)[0] is out[0]
    for v, g in (
        out,
        (loud(bad, DATA), loud.grad(bad, DATA)),
        (loud(bad, DATA, out=np.empty(5)), loud.grad(bad, DATA)),
    ):
        assert np.isnan(v[3]) and np.isnan(g[:, 3]).all() and np.array_equal(v[others], value[others])
        assert np.array_equal(g[:, others], gradient[:, others])


def test_nestings_on_the_tape():
    sizes = (1, 1, 0, 0, 0)
    k, theta = process(sizes), parameters(sizes, 3)
    v, w = np.random.default_rng(2).normal(size=(2, *theta.shape))
    f = lambda x: (k(x, tg.Const(DATA)) ** 2).sum() * 1e-3
    value, gradient = k.value_and_grad(theta, DATA)
    H = lambda u: np.einsum("bij,jb->ib", k.hessian(theta, DATA), u)
    close(tg.grad(f)(theta), 2e-3 * value * gradient)
    second = 2e-3 * ((gradient * v).sum(axis=0) * gradient + value * H(v))
    close(tg.hvp(f, theta, v), second, 1e-10)
    close(tg.jvp(tg.grad(f), (theta,), (v,))[1], second, 1e-10)
    close(tg.grad(lambda x: (k.value_and_grad(x, DATA)[1] * w).sum())(theta), H(w), 1e-10)


# --- devices ---


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "arch", [90, *[pytest.param(a, marks=pytest.mark.long) for a in (75, 80, 86, 89, 100, 120)]]
)
@pytest.mark.parametrize("sizes", [(1, 0, 0, 0, 0), (0, 2, 0, 1, 0), (1, 1, 1, 1, 1)])
def test_nvrtc_compiles(sizes, arch):
    pytest.importorskip("cupy")
    from tapegrad.kernels.launch.cuda import cubin

    k, theta = process(sizes), parameters(sizes, 1)
    for kernel in k.kernels(len(theta), 3, arch == 90, True):
        for real in REALS:
            assert cubin(kernel.code.text(np.dtype(real)), arch)[0][:4] == b"\x7fELF"


@pytest.mark.long
@pytest.mark.skipif(shutil.which("g++") is None, reason="NOT RUN: checks of raw kernels, for there is no g++")
@pytest.mark.parametrize("each", [False, True])
def test_checks_of_raw_kernels(each):
    """Canaries, orders of threads, the adjoint against differences, the address sanitizer."""
    sizes = (1, 1, 1, 1, 1)
    k, theta, data = process(sizes), parameters(sizes, 5), np.ascontiguousarray(DATA[:, :9])
    data = data[:, :, None] * np.linspace(0.9, 1.1, 5) if each else data
    value, gradient = k.kernels(len(theta), 3, each, False)
    assert any("within its arrays" in line for line in value.check(theta, data, sanitize=not each))
    assert any(
        "within its arrays" in line
        for line in gradient.check(theta, data, derivatives=False, sanitize=not each)
    )


def test_both_libraries(device):
    sizes = (1, 1, 1, 0, 1)
    agrees(process(sizes), parameters(sizes, 300), device)
