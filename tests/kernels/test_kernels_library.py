"""Library kernels for independent data: discussion 1's numbers, scipy.stats, mpmath, the generated kernels,
the CUDA C."""

import shutil
import subprocess
import sys

import mpmath
import numpy as np
import pytest
import scipy.stats
from comparison import close, host
from kernel_programs import GRADIENT, SECOND, THETA, VALUE, X
from library_models import (
    BY_HAND,
    CHUNK,
    DESIGN,
    INVALID,
    MODELS,
    RNG,
    SAMPLE,
    YES,
    agree,
    arrays,
    batch_of,
    by_source,
    mp_student,
)
from raw_device import noted_launches  # noqa: F401 (a fixture)

import tapegrad as tg
from tapegrad.errors import ArgumentError, ShapeError
from tapegrad.kernels import gaussian, mixture, regression, student_t
from tapegrad.kernels.launch.cuda import cubin
from tapegrad.kernels.library.handwritten import PRELUDE
from tapegrad.kernels.library.own_functions import device_functions

pytestmark = pytest.mark.one_in(4)  # its cases compile

REALS = [np.float64, np.float32]


# --- the models: kernel, one vector of parameters, data, log density by scipy.stats, by mpmath ---


# --- values and derivatives ---


def test_table_of_discussion_1():
    k = tg.kernels.gaussian.loglik
    close(k(THETA, X), VALUE)
    value, gradient = k.value_and_grad(THETA, X)
    close(value, VALUE)
    close(gradient, GRADIENT)
    H = k.hessian(THETA, X)
    close(np.stack([H[:, 0, 0], H[:, 1, 1], H[:, 2, 2], H[:, 3, 3], H[:, 0, 2], H[:, 1, 3]], axis=1), SECOND)
    value, gradient = k.value_and_grad(THETA.astype(np.float32), X.astype(np.float32))
    assert value.dtype == gradient.dtype == np.float32
    np.testing.assert_allclose(
        value, [-28.663532390449643, -10.720006040067712, -21.794532757470965], rtol=2e-6
    )
    np.testing.assert_allclose(
        gradient,
        k.grad(THETA.astype(np.float32).astype(float), X.astype(np.float32).astype(float)),
        rtol=2e-6,
    )


@pytest.mark.parametrize("name", MODELS)
def test_values_of_scipy_stats(name):
    k, _, x, density, _ = MODELS[name]
    theta = batch_of(name, 5)
    close(k(theta, x), [density(theta[:, s], x) for s in range(5)])
    close(k(theta[:, 0], x), density(theta[:, 0], x))
    close(k.value_and_grad(theta, x)[0], k(theta, x), 1e-15)


@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_mpmath(name):
    k, theta, x, _, density = MODELS[name]
    x, theta = x[:, :5], np.array(theta)
    with mpmath.workdps(40):
        columns = [[mpmath.mpf(v) for v in column] for column in x.T.tolist()]
        start = [mpmath.mpf(v) for v in theta.tolist()]

        def along(j, h):
            th = start[:j] + [start[j] + h] + start[j + 1 :]
            return mpmath.fsum(density(th, c) for c in columns)

        value, gradient = along(0, 0), [mpmath.diff(lambda h: along(j, h), 0) for j in range(len(start))]
    close(k(theta, x), float(value), 1e-14)
    close(k.grad(theta, x), np.array(gradient, float), 1e-14)


@pytest.mark.parametrize("name", MODELS)
def test_the_formula_as_a_generated_kernel(name):
    k, _, x, _, _ = MODELS[name]
    generated = tg.kernels.likelihood(k.definition.formula._parts.f)
    theta = batch_of(name, 7)
    for a, b in zip(k.value_and_grad(theta, x), generated.value_and_grad(theta, x), strict=True):
        close(a, b, 1e-13)
    scores = k.scores(theta, x)
    assert scores.shape == (40, *theta.shape)
    close(scores, generated.scores(theta, x), 1e-12)
    close(scores.sum(axis=0), k.grad(theta, x))
    close(k.fisher(theta, x), np.einsum("nib,njb->bij", scores, scores))


@pytest.mark.long
@pytest.mark.parametrize("name", MODELS)
def test_nestings_on_the_tape(name):
    k, _, x, _, _ = MODELS[name]
    theta = batch_of(name, 3)
    v, w = np.random.default_rng(2).normal(size=(2, *theta.shape))
    f = lambda t: (k(t, tg.Const(x)) ** 2).sum() * 1e-3
    value, gradient = k.value_and_grad(theta, x)
    by_hand = 2e-3 * value * gradient
    H = lambda u: np.einsum("bij,jb->ib", k.hessian(theta, x), u)
    close(tg.grad(f)(theta), by_hand)
    close(tg.jvp(f, (theta,), (v,))[1], (by_hand * v).sum())
    second = 2e-3 * ((gradient * v).sum(axis=0) * gradient + value * H(v))
    close(tg.hvp(f, theta, v), second, 1e-11)
    close(tg.jvp(tg.grad(f), (theta,), (v,))[1], second, 1e-11)
    close(tg.grad(lambda t: tg.jvp(f, (t,), (v,))[1])(theta), second, 1e-11)
    close(tg.grad(lambda t: (k.value_and_grad(t, x)[1] * w).sum())(theta), H(w), 1e-11)
    h = 1e-6
    close((k.grad(theta + h * v, x) - k.grad(theta - h * v, x)) / (2 * h), H(v), 1e-7)
    third = tg.grad(lambda t: (tg.hvp(f, t, v) * w).sum())(theta)
    close(third, (tg.jvp(lambda t: tg.hvp(f, t, v), (theta,), (w,))[1]), 1e-10)
    close(third, (tg.hvp(f, theta + h * w, v) - tg.hvp(f, theta - h * w, v)) / (2 * h), 1e-6)


def test_canonical_links_have_the_fisher_information_as_hessian():
    theta = np.array([0.2, 0.1, -0.3])
    mean = np.exp(DESIGN @ theta)
    close(-regression.poisson.hessian(theta, MODELS["poisson"][2]), DESIGN.T @ (DESIGN * mean[:, None]))
    p = 1 / (1 + np.exp(-DESIGN @ np.zeros(3)))  # where eta = 0 the formula's two branches meet
    close(
        -regression.logistic.hessian(np.zeros(3), MODELS["logistic"][2]),
        DESIGN.T @ (DESIGN * (p * (1 - p))[:, None]),
    )
    close(regression.logistic.grad(np.zeros(3), MODELS["logistic"][2]), DESIGN.T @ (YES - p))


# --- the CUDA C ---


@pytest.mark.long
@pytest.mark.one_in(3)
@pytest.mark.skipif(shutil.which("g++") is None, reason="NOT RUN: CUDA C on the CPU, for there is no g++")
@pytest.mark.parametrize("real", [np.float64, pytest.param(np.float32, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "name, each, missing",
    [(n, each, True) for n in BY_HAND for each in (False, True)] + [("gaussian", False, False)],
)
def test_cuda_source_and_generated_kernel(name, each, missing, real):
    k = MODELS[name][0]
    theta, x = arrays(name, real, each, missing)
    ours, theirs = k.value_and_grad(theta, x), by_source(k, theta, x)
    agree(theirs, ours)
    assert np.array_equal(by_source(k, theta, x, value=True), theirs[0])
    assert ours[0][7] == -np.inf and not ours[1][:, 7].any()
    good = np.arange(300) != 7
    close(k(theta, x)[good], ours[0][good], 1e-14 if real is np.float64 else 1e-6)
    assert (
        np.isfinite(ours[0][good]).all()
        and np.isfinite(ours[1][:, good]).all()
        and ours[1][:, good].any(axis=0).all()
    )


@pytest.mark.long
def test_regression_with_many_coefficients():
    rng = np.random.default_rng(3)
    design, y = rng.normal(size=(30, 260)) / 16, rng.random(30) < 0.5
    theta, data = rng.normal(size=(260, 9)), regression.logistic_data(design, y)
    value, gradient = regression.logistic.value_and_grad(theta, data)
    eta = design @ theta
    close(value, scipy.stats.bernoulli(1 / (1 + np.exp(-eta))).logpmf(y[:, None]).sum(axis=0))
    close(gradient, design.T @ (y[:, None] - 1 / (1 + np.exp(-eta))))
    one = regression.logistic.value_and_grad(theta[:, :1], data)
    assert one[0][0] == value[0] and np.array_equal(one[1][:, 0], gradient[:, 0])


@pytest.mark.parametrize("name", BY_HAND)
@pytest.mark.parametrize(
    "arch", [75, 90, *[pytest.param(a, marks=pytest.mark.long) for a in (80, 86, 89, 100, 120)]]
)
def test_nvrtc_compiles(name, arch):
    pytest.importorskip("cupy")
    k, theta, x, _, _ = MODELS[name]
    for real, kernel in zip(REALS, k.kernels(len(theta), len(x), arch == 90, arch in (86, 100)), strict=True):
        code, log = cubin(
            kernel.code.text(np.dtype(real)),
            arch,
            ("-std=c++17", "-fmad=false", "-default-device", "--ptxas-options=-v"),
        )
        assert code[:4] == b"\x7fELF" and "0 bytes spill stores" in log


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", MODELS)
def test_both_libraries(name, device):
    xp, launches = device
    k = MODELS[name][0]
    for each, missing in ((False, False), (True, True)):
        theta, x = arrays(name, np.float64, each, missing, batch=9)
        theta, x = xp.asarray(theta), xp.asarray(x)
        value, gradient = k.value_and_grad(theta, x)
        assert isinstance(gradient, xp.ndarray)
        expected = k.value_and_grad(host(theta), host(x))
        agree((host(value), host(gradient)), expected)
        assert np.array_equal(host(tg.grad(lambda t: k(t, x).sum())(theta)), host(gradient))
    if xp is not np:
        one = f"{name}_value_and_grad" if name in BY_HAND else "kernel"
        assert {entry for entry, *_ in launches} == {one}, "value and gradient are one launch"


@pytest.mark.cupy_only
def test_data_on_a_device_are_looked_at_once(device, monkeypatch):
    xp, _ = device
    looks, isinf = [], xp.isinf
    monkeypatch.setattr(xp, "isinf", lambda x: looks.append(x.shape) or isinf(x))
    theta, x = xp.asarray([[0.1], [0.9]]), xp.asarray(SAMPLE)
    for _ in range(3):
        student_t.loglik(xp.asarray([[0.1], [0.9], [3.0]]), x)
        gaussian.loglik.value_and_grad(theta, x)
    assert looks == [x.shape] * 2, "once by each kernel"


def test_nothing_is_loaded_before_it_is_used():
    program = (
        "import sys, tapegrad as tg; tg.kernels.likelihood; assert 'numba' not in sys.modules, 'numba'; "
        "from tapegrad.kernels import gaussian; assert tg.kernels.gaussian is gaussian and 'mixture' in "
        "dir(tg.kernels)"
    )
    assert (
        subprocess.run([sys.executable, "-c", program], env={"PYTHONPATH": ":".join(sys.path)}).returncode
        == 0
    )
    with pytest.raises(AttributeError, match="gausian"):
        tg.kernels.gausian  # noqa: B018


def test_one_text_for_both_chunks_and_functions():
    assert f"#define CHUNK {CHUNK}\n" in PRELUDE
    assert device_functions("x = exp(1);") == "\n" and "double own_exp(double x)" in device_functions(
        "own_exp(y)"
    )


# --- digits ---


@pytest.mark.parametrize("name", MODELS)
def test_float32_keeps_its_digits_over_a_million_data(name):
    k, theta, x, _, _ = MODELS[name]
    theta = np.array(theta, np.float32)[:, None]
    x = np.ascontiguousarray(np.tile(x, 25000), np.float32)
    for a, b in zip(
        k.value_and_grad(theta, x), k.value_and_grad(theta.astype(float), x.astype(float)), strict=True
    ):
        scale = np.abs(k.value_and_grad(theta.astype(float), x.astype(float))[0])
        assert np.abs(a - b).max() < 2e-6 * max(np.abs(b).max(), 0.1 * scale[0])


@pytest.mark.parametrize("real", REALS)
def test_gaussian_far_from_unit_scale(real):
    """Squares of 1e-22 and 1e25 do not exist in float32, nor those of 1e-200 in float64."""
    for unit in (1e-30, 1e-22, 1e-6, 1e6, 1e25) if real is np.float32 else (1e-250, 1e-200, 1e-40, 1e200):
        theta, x = np.array([0.3, 1.2]) * unit, np.array([1.0, -0.5, 0.2]) * unit
        value, gradient = gaussian.loglik.value_and_grad(theta.astype(real), x.astype(real))
        tight = 1e-12 if real is np.float64 else 1e-5
        close(value, scipy.stats.norm(0.3, 1.2).logpdf(x / unit).sum() - 3 * np.log(unit), tight)
        close(gradient.astype(float) * unit, gaussian.loglik.grad(np.array([0.3, 1.2]), x / unit), 10 * tight)


@pytest.mark.parametrize("df", [0.01, 0.5, 9.99, 300.0, 1e8])
def test_student_t_from_few_to_many_degrees_of_freedom(df):
    x = SAMPLE[:4]
    with mpmath.workdps(50):
        total = lambda v: mpmath.fsum(
            mp_student([mpmath.mpf(0.2), mpmath.mpf(0.9), v], [mpmath.mpf(y)]) for y in x.tolist()
        )
        value, slope = float(total(mpmath.mpf(df))), float(mpmath.diff(total, mpmath.mpf(df)))
    found = student_t.loglik.value_and_grad(np.array([0.2, 0.9, df]), x)
    np.testing.assert_allclose(found[0], value, rtol=1e-14)
    np.testing.assert_allclose(found[1][2], slope, rtol=1e-12, atol=1e-15 / df)


def test_mixture_with_a_collapsed_and_an_absent_component():
    for real in REALS:
        theta = np.array([0.0, 0.0, -np.inf, 0.0, 5.0, 1.0, 0.0, -60.0, 0.0], real)
        value, gradient = mixture.loglik.value_and_grad(theta, SAMPLE.astype(real))
        close(value, (scipy.stats.norm(0, 1).logpdf(SAMPLE) - np.log(2)).sum(), 1e-5)
        close(gradient, [20.0, -20.0, 0, SAMPLE.sum(), 0, 0, (SAMPLE**2).sum() - 40, 0, 0], 1e-5)
    assert mixture.loglik(np.array([0.0, 0, 0, 5, 0, -800]), SAMPLE) == -np.inf


def test_logistic_far_from_the_boundary():
    data = regression.logistic_data(np.array([[1.0], [1.0]]), np.array([0, 1]))
    value, gradient = regression.logistic.value_and_grad(np.array([[800.0, -800.0, 40.0]]), data)
    close(value, [-800.0, -800.0, -40 - 2 * np.exp(-40)])
    close(gradient, [[-1.0, 1.0, -1.0]])


# --- shapes, missing data, bad input ---


@pytest.mark.parametrize("name", MODELS)
def test_missing_data_are_left_out(name):
    k, _, x, _, _ = MODELS[name]
    theta, holes = batch_of(name, 3), x.copy()
    holes[0, 4], holes[-1, 11] = np.nan, np.nan
    keep = ~np.isnan(holes).any(axis=0)
    close(k(theta, holes), k(theta, x[:, keep]))
    close(k.grad(theta, holes), k.grad(theta, x[:, keep]))
    v = np.ones_like(theta)
    close(k.hvp(theta, v, holes), k.hvp(theta, v, x[:, keep]))
    generated = tg.kernels.likelihood(k.definition.formula._parts.f)  # its gradients of np.where were nan
    close(generated.grad(theta, holes), k.grad(theta, holes))
    each = np.stack([holes, x, np.full_like(x, np.nan)], axis=-1)
    value, gradient = k.value_and_grad(theta, each)
    close(value, [k(theta[:, 0], holes), k(theta[:, 1], x), 0.0])
    close(gradient[:, :2], np.stack([k.grad(theta[:, 0], holes), k.grad(theta[:, 1], x)], axis=1))
    assert not gradient[:, 2].any()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("batch", [0, 1, 255, 257])
def test_every_batch_size_gives_each_sample_its_own_numbers(name, batch):
    k, _, x, _, _ = MODELS[name]
    theta = np.resize(batch_of(name, 5).T, (batch, len(MODELS[name][1]))).T
    value, gradient = k.value_and_grad(theta, x)
    assert value.shape == (batch,) and gradient.shape == theta.shape
    few = k.value_and_grad(batch_of(name, 5), x)
    assert np.array_equal(value, np.resize(few[0], batch)) and np.array_equal(
        gradient, np.resize(few[1].T, theta.shape[::-1]).T
    )
    value, gradient = k.value_and_grad(theta, x[:, :0])
    assert not value.any() and not gradient.any()


@pytest.mark.parametrize("name", MODELS)
def test_samples_with_invalid_parameters(name):
    k, _, x, _, _ = MODELS[name]
    theta = batch_of(name, 3)
    good = k.value_and_grad(theta, x)
    row, bad = INVALID[name]
    theta[row, 1] = bad
    value, gradient = k.value_and_grad(theta, x)
    assert (
        value[1] == -np.inf
        and not gradient[:, 1].any()
        and not k.hvp(theta, np.ones_like(theta), x)[:, 1].any()
    )
    assert np.array_equal(value[::2], good[0][::2]) and np.array_equal(gradient[:, ::2], good[1][:, ::2])
    value, gradient = k.options(invalid="nan").value_and_grad(theta, x)
    assert np.isnan(value[1]) and np.isnan(gradient[:, 1]).all() and np.array_equal(value[::2], good[0][::2])
    with pytest.raises(ArgumentError, match="invalid="):
        k.options(invalid="raise")


@pytest.mark.parametrize("scale", [0.0, -0.1, np.nan, np.inf, -np.inf, -1e300])
def test_scales_that_are_none(scale):
    for k, theta in (
        (gaussian.loglik, [0.1, scale]),
        (student_t.loglik, [0.1, scale, 3.0]),
        (student_t.loglik, [0.1, 1.0, scale]),
    ):
        value, gradient = k.value_and_grad(np.array(theta), SAMPLE)
        assert value == -np.inf and not gradient.any()


@pytest.mark.long
def test_layouts_shapes_and_out():
    k = gaussian.loglik
    value, gradient = np.empty(3), np.empty((4, 3))
    got = k.value_and_grad(np.asfortranarray(THETA), np.asfortranarray(X), out=(value, gradient))
    assert got[0] is value and got[1] is gradient
    close(gradient, GRADIENT)
    with pytest.raises(ShapeError, match=r"out\[1\]"):
        k.value_and_grad(THETA, X, out=(value, gradient.T))
    close(k(THETA[:, 1], X), VALUE[1])
    close(k(THETA, X.astype(np.float32).astype(float)), k(THETA, X.astype(np.float32)))
    one = np.array([0.1, 0.9])
    assert k(one, SAMPLE) == k(one, SAMPLE[None]) == k(one[:, None], SAMPLE[None, :, None])[0]
    wide = (
        np.abs(RNG.normal(size=(100, 2))) + 0.5
    )  # 50 components: the product of the scales is taken in parts
    wide[60] *= 1e-90
    wide[61:66] *= 1e70
    close(
        k(wide, np.ones((50, 3))),
        scipy.stats.norm(wide[:50, None], wide[50:, None]).logpdf(1).sum(axis=0)[0] * 3,
    )


@pytest.mark.parametrize(
    "k, theta, data, error, text",
    [
        (
            gaussian.loglik,
            THETA,
            X[:1],
            ShapeError,
            r"theta has shape \(4, 3\) and the data \(1, 5\); wanted are theta \(2 d, B\)",
        ),
        (gaussian.loglik, THETA, X[:, :, None], ShapeError, "3 samples"),
        (gaussian.loglik, THETA.astype(complex), X, ArgumentError, "complex128"),
        (gaussian.loglik, THETA.astype(np.float16), X, ArgumentError, "float16"),
        (gaussian.loglik, THETA[None], X, ShapeError, r"\(p, B\)"),
        (gaussian.loglik, {"mean": THETA[:2], "scale": THETA[2:]}, X, ArgumentError, "theta is one array"),
        (gaussian.loglik, THETA, np.where(X == 1, np.inf, X), ArgumentError, "inf"),
        (student_t.loglik, THETA, SAMPLE, ShapeError, "degrees of freedom"),
        (mixture.loglik, THETA, SAMPLE, ShapeError, "k logits"),
        (regression.poisson, THETA[:3], MODELS["logistic"][2], ShapeError, "poisson_data"),
        (regression.logistic, np.zeros((0, 2)), np.zeros((1, 3)), ShapeError, "logistic_data"),
    ],
)
def test_wrong_arguments(k, theta, data, error, text):
    for call in (k, k.value_and_grad, k.grad):
        with pytest.raises(error, match=text):
            call(theta, data)


def test_derivatives_by_the_data():
    """Those of the generated kernel, and of the Gaussian in closed form: (mu - x) / sigma^2, summed over the
    samples."""
    weights = np.array([1.0, -2.0, 0.5])
    found = tg.grad(lambda x: (weights * gaussian.loglik(THETA, x)).sum())(X)
    mu, sigma = THETA[:2], THETA[2:]
    np.testing.assert_allclose(
        found, (weights * (mu[:, None] - X[:, :, None]) / sigma[:, None] ** 2).sum(-1), rtol=1e-12
    )
    found = tg.grad(lambda t, x: (weights * gaussian.loglik(t, x)).sum(), argnums=(0, 1))(THETA, X)
    generated = tg.kernels.likelihood(gaussian.gaussian_formula)
    expected = tg.grad(lambda t, x: (weights * generated(t, x)).sum(), argnums=(0, 1))(THETA, X)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_data_of_regressions():
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_allclose(
        regression.poisson_data(x, [2, np.nan]),
        [[1, 3], [2, 4], [2, np.nan], [np.log(2), np.nan]],
        rtol=1e-12,
    )
    assert regression.logistic_data(x.astype(np.float32), [0, 1]).dtype == np.float32
    for bad in ([1.5, 2], [-1, 2]):
        with pytest.raises(ArgumentError, match="counts"):
            regression.poisson_data(x, bad)
    with pytest.raises(ArgumentError, match="between 0 and 1"):
        regression.logistic_data(x, [1, 2])
    with pytest.raises(ShapeError, match=r"\(2, 2\) and the responses \(3,\)"):
        regression.logistic_data(x, [1, 0, 1])
