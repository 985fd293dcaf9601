"""The compiled filter against the one on arrays: value, gradient, Hessian and scores on models of many kinds;
which of the two a fit takes, and that it says so."""

import itertools
import time

import mpmath as mp
import numpy as np
import pytest

import tapegrad as tg
from tapegrad import statespace as ss
from tapegrad.optimize import Objective
from tapegrad.statespace import _pattern
from tapegrad.statespace._matrices import system
from tapegrad.statespace._model import RegressionOffset
from tapegrad.statespace._objective import ModelObjective
from tapegrad.statespace._observations import Observations
from tapegrad.statespace._parameters import Parameters
from tapegrad.statespace.filters import compiled, step_kernel
from tapegrad.statespace.filters.arrays import ArrayFilter
from tapegrad.statespace.filters.diffuse_start import loglik_on_arrays
from tapegrad.statespace.filters.gains import filtered
from tapegrad.statespace.filters.step_kernel import kernel_form

pytestmark = pytest.mark.one_in(4)  # its cases compile


def both(build, y, start, constraints=None, joseph=False):
    """The objective of a fit, and the same on arrays."""
    parameters, data = Parameters(start, constraints), Observations(y)
    ours = ModelObjective(build, data, parameters, joseph)

    def negative(u, build):
        return -loglik_on_arrays(build(parameters.tree(u)), data, joseph)

    return (
        ours,
        Objective(negative, parameters.start, (build,)),
        lambda u: scores(build, data, parameters, joseph, u),
    )


def scores(build, data, parameters, joseph, u):
    def terms(u, build):
        return filtered(ArrayFilter(system(build(parameters.tree(u)), data), data, joseph))[1]

    return tg.jacobian(terms, mode="forward")(u, build)


def assert_same(ours, arrays, scores, points, way="compiled filter", rtol=1e-10):
    assert ours.way.startswith(way), ours.way
    for u in points:
        (v, g), (w, h) = ours(u), arrays(u)
        np.testing.assert_allclose(v, w, rtol=rtol)
        np.testing.assert_allclose(g, h, rtol=0, atol=rtol * max(1.0, abs(h).max()))
        H, K = ours.hessian(u), arrays.hessian(u)
        np.testing.assert_allclose(H, K, rtol=0, atol=rtol * max(1.0, abs(K).max()))
        S, R = ours.scores(u), scores(u)
        np.testing.assert_allclose(S, R, rtol=0, atol=rtol * max(1.0, abs(R).max()))
        np.testing.assert_allclose(
            -S.sum(axis=0), h, rtol=0, atol=rtol * max(1.0, abs(R).max(), abs(h).max())
        )


def random_build(g, m, p, n, *, diffuse=(), vary=(), correlated=False, predict_first=False, offsets=True):
    """A function of three parameters to a model of m states and p observations; `vary`: fields that vary over
    time."""
    T = 0.8 * np.linalg.qr(g.normal(size=(m, m)))[0]
    T[g.random((m, m)) < 0.4] = 0.0
    Z = np.round(g.normal(size=(p, m)))
    Z[:, 0] = 1.0
    R = g.normal(size=(m, 2))
    A, B = g.normal(size=(m, m)), g.normal(size=(p, p))
    c, d = g.normal(size=m), g.normal(size=p)
    mark = np.isin(np.arange(m), diffuse)
    series = {
        name: g.normal(size=(n, *shape))
        for name, shape in {"T": (m, m), "Z": (p, m), "c": (m,), "d": (p,)}.items()
    }

    def build(q):
        a, b, s = q[0], q[1], q[2]
        transition = T * np.tanh(a) if not mark.any() else T + 0.0
        state = np.exp(b) * np.eye(2) + 0.1 * np.exp(s) * np.ones((2, 2))
        errors = np.exp(s) * (B @ B.T + np.eye(p)) if correlated else np.exp(s + 0.1 * np.arange(p))
        fields = {
            "T": series["T"] * 0.3 if "T" in vary else transition,
            "Z": series["Z"] if "Z" in vary else Z,
            "c": series["c"] if "c" in vary else c * b if offsets else 0.0,
            "d": series["d"] if "d" in vary else d * a if offsets else 0.0,
        }
        start = ss.Start(
            c * a, A @ A.T + np.exp(a) * np.eye(m), mark if mark.any() else False, predict_first=predict_first
        )
        return ss.LinearGaussian(fields["T"], fields["Z"], state, errors, R, fields["c"], fields["d"], start)

    return build


def with_gaps(g, n, p, share):
    y = g.normal(size=(n, p)).cumsum(axis=0)
    y[g.random((n, p)) < share] = np.nan
    return y


LONG = pytest.mark.long
POINTS = [np.array([0.3, -0.2, 0.1]), np.array([-0.5, 0.4, 0.6])]
CASES = {
    "one state": dict(m=1, p=1),
    "three states": dict(m=3, p=1),
    "gaps": dict(m=3, p=1, share=0.3),
    "two observations": dict(m=3, p=2),
    "two observations, gaps": dict(m=3, p=2, share=0.3),
    "correlated errors": dict(m=2, p=2, correlated=True),
    "correlated errors, gaps": dict(m=2, p=3, correlated=True, share=0.3),
    "diffuse": dict(m=3, p=1, diffuse=(0, 1, 2)),
    "diffuse in part, gaps": dict(m=3, p=1, diffuse=(0, 2), share=0.3),
    "diffuse, two observations": dict(m=3, p=2, diffuse=(0, 1)),
    "all varies": dict(m=2, p=2, vary=("T", "Z", "c", "d")),
    "regression, diffuse, gaps": dict(m=2, p=1, vary=("Z",), diffuse=(0, 1), share=0.2),
    "varying, first step a transition": dict(m=2, p=1, vary=("T", "c"), predict_first=True),
    "diffuse, first step a transition": dict(m=2, p=1, diffuse=(0,), predict_first=True),
    "longer update of the covariance": dict(m=2, p=1, joseph=True),
    "longer update, correlated errors": dict(m=2, p=2, joseph=True, correlated=True),
}


@pytest.mark.one_in(7)
@pytest.mark.parametrize("case", CASES)
def test_against_the_filter_on_arrays(case):
    settings = dict(CASES[case])
    g, n = np.random.default_rng(len(case)), 25
    y = with_gaps(g, n, settings["p"], settings.pop("share", 0.0))
    joseph = settings.pop("joseph", False)
    build = random_build(g, settings.pop("m"), settings.pop("p"), n, **settings)
    assert_same(*both(build, y, POINTS[0], joseph=joseph), POINTS)


# --- loglik ---


@pytest.fixture
def at_once(monkeypatch):
    """The compiled filter is taken from the first call on."""
    for name, number in (("FEW", 0), ("SHORT", 0), ("FILTERED", 0)):
        monkeypatch.setattr(compiled, name, number)
    ran = []
    for name in ("loglik", "moments"):
        f = getattr(compiled.CompiledFilter, name)
        monkeypatch.setattr(
            compiled.CompiledFilter, name, lambda *arguments, f=f: ran.append(f) or f(*arguments)
        )
    return ran


def assert_loglik(build, y, points, joseph=False, rtol=1e-10):
    """Value, gradient by each mode and Hessian of `ss.loglik`, by model and data."""
    data = Observations(y)
    kernel = lambda u, e: ss.loglik(build(u), y + e, joseph)
    arrays = lambda u, e: loglik_on_arrays(build(u), Observations(y + e), joseph)
    for u in points:
        value = loglik_on_arrays(build(u), data, joseph)
        np.testing.assert_allclose(ss.loglik(build(u), data, joseph), value, rtol=rtol)
        e = 0.1 * np.cos(np.arange(np.size(y))).reshape(np.shape(y))
        for of in (tg.grad(kernel, (0, 1)), tg.jacobian(lambda u, e: kernel(u, e), (0, 1), mode="forward"))[
            : 1 + (np.size(y) < 30)
        ]:
            for g, h in zip(of(u, e), tg.grad(arrays, (0, 1))(u, e), strict=True):
                np.testing.assert_allclose(g, h, rtol=0, atol=rtol * max(1.0, abs(h).max()))
        H, K = (tg.hessian(lambda u, f=f: f(u, e))(u) for f in (kernel, arrays))
        np.testing.assert_allclose(H, K, rtol=0, atol=rtol * max(1.0, abs(K).max()))


SOME = ["diffuse in part, gaps", "correlated errors, gaps", "varying, first step a transition"]
FEW_OR_ALL = [case if case in SOME else pytest.param(case, marks=LONG) for case in CASES]


@pytest.mark.parametrize("case", FEW_OR_ALL)
def test_loglik_against_arrays(case, at_once):
    settings = dict(CASES[case])
    g, n = np.random.default_rng(len(case)), 20
    y = with_gaps(g, n, settings["p"], settings.pop("share", 0.0))
    joseph = settings.pop("joseph", False)
    assert_loglik(random_build(g, settings.pop("m"), settings.pop("p"), n, **settings), y, POINTS[:1], joseph)
    assert len(at_once) >= 3


def test_loglik_of_a_model_written_into_a_buffer(at_once):
    """A captured matrix that the model function writes into, and data that are made once."""
    g = np.random.default_rng(9)
    T, data = np.array([[0.0, 1.0], [0.0, 0.3]]), Observations(g.normal(size=40))

    def f(x):
        T[0, 0] = x[0]
        return ss.loglik(
            ss.LinearGaussian(T, np.array([1.0, 0.5]), x[1] ** 2, 1.0, start=ss.Start(0.0, 1.0)), data
        )

    def plain(x):
        T = tg.numpy.stack([tg.numpy.stack([x[0], 1.0]), np.array([0.0, 0.3])])
        return loglik_on_arrays(
            ss.LinearGaussian(T, np.array([1.0, 0.5]), x[1] ** 2, 1.0, start=ss.Start(0.0, 1.0)), data
        )

    x = np.array([0.4, 1.2])
    for _ in range(2):
        np.testing.assert_allclose(tg.hessian(f)(x), tg.hessian(plain)(x), rtol=1e-10)
    np.testing.assert_allclose(tg.grad(f)(x), tg.grad(plain)(x), rtol=1e-10)
    assert T[0, 0] == 0.4 and len(at_once) == 3


def test_observations_are_a_copy(at_once):
    y = np.random.default_rng(9).normal(size=40)
    data, model = Observations(y), ss.local_level(1.3, 0.4)
    value = ss.loglik(model, data)
    y[5] = 100.0
    assert ss.loglik(model, data) == value
    np.testing.assert_allclose(
        [loglik_on_arrays(model, data), ss.filter(model, data).loglik_terms.sum()], value, rtol=1e-12
    )
    assert ss.loglik(model, y) < value - 100


@pytest.mark.parametrize("diffuse", [False, (True, False)])
def test_derivatives_by_covariances_are_symmetric(at_once, diffuse):
    """Of covariances the symmetric part counts, in both filters: compared with differences in each entry."""
    g = np.random.default_rng(4)
    y, T, Z = g.normal(size=(40, 2)), np.array([[0.9, 0.2], [0.0, 0.5]]), np.array([[1.0, 0.0], [1.0, 1.0]])
    A = g.normal(size=(3, 2, 2))
    covs = A @ A.transpose(0, 2, 1) + np.eye(2)

    def f(covs, of=ss.loglik):
        return of(
            ss.LinearGaussian(T, Z, covs[0], covs[1], start=ss.Start(0.0, covs[2], diffuse)), Observations(y)
        )

    found = tg.grad(f)(covs)
    np.testing.assert_allclose(
        found, tg.grad(lambda covs: f(covs, loglik_on_arrays))(covs), rtol=0, atol=1e-10
    )
    np.testing.assert_allclose(found, found.transpose(0, 2, 1), rtol=0, atol=1e-12)
    for at in [(0, 0, 1), (1, 1, 0), (2, 1, 1)]:
        step = np.zeros((3, 2, 2))
        step[at] = 1e-5
        np.testing.assert_allclose(found[at], (f(covs + step) - f(covs - step)) / 2e-5, rtol=0, atol=1e-7)
    assert len(at_once) == 7


@pytest.mark.parametrize(
    "case",
    [pytest.param("one state", marks=LONG), pytest.param("all varies", marks=LONG), "diffuse in part, gaps"],
)
def test_under_vmap(case, at_once):
    """Many models at once, by one launch; a sample that is no model is nan."""
    settings = dict(CASES[case])
    g, n = np.random.default_rng(len(case)), 12
    p = settings["p"]
    y = with_gaps(g, n, p, settings.pop("share", 0.0))
    build, U = random_build(g, settings.pop("m"), settings.pop("p"), n, **settings), np.stack(POINTS)
    data = Observations(y)
    f = lambda u: ss.loglik(build(u), data)
    for of in (f, tg.grad(f), tg.hessian(f)):
        before = len(at_once)
        found = tg.vmap(of)(U)
        assert len(at_once) == before + 1
        for x, u in zip(found, U, strict=True):
            np.testing.assert_allclose(x, of(u), rtol=0, atol=1e-10 * max(1.0, abs(x).max()))
    said = lambda u: everything(build, u, y, False)
    for x, u in zip(tg.vmap(said)(U), U, strict=True):
        np.testing.assert_allclose(x, said(u), rtol=0, atol=1e-10 * max(1.0, abs(x).max()))


def test_a_prepared_likelihood(at_once):
    """Recorded once with its kernel, and right at other points."""
    data = Observations(np.random.default_rng(3).normal(size=40).cumsum())
    f = lambda u: ss.loglik(ss.arma(np.tanh(u[:1]), u[1:2], np.exp(u[2])), data)
    prepared = tg.prepare(f, np.array([0.3, 0.2, 0.1]))
    for u in (np.array([-0.4, 0.0, 1.0]), np.array([1.0, -0.6, -0.3])):
        np.testing.assert_allclose(prepared.value(u), f(u), rtol=1e-12)
        np.testing.assert_allclose(prepared.grad(u), tg.grad(f)(u), rtol=1e-10)


def test_no_model_among_many(at_once):
    y = np.random.default_rng(3).normal(size=40)
    found = tg.vmap(lambda v: ss.loglik(ss.local_level(v, 1.0), y))(np.array([1.0, -0.55, 2.0]))
    assert np.isnan(found[1]) and len(at_once) == 1
    np.testing.assert_allclose(
        found[[0, 2]], [ss.loglik(ss.local_level(v, 1.0), y) for v in (1.0, 2.0)], rtol=1e-12
    )


NO_MODELS = {
    "one state": lambda v: ss.LinearGaussian(0.5, 1.0, v[0], v[1], start=ss.Start(0.0, 1.0)),
    "start": lambda v: ss.LinearGaussian(0.5, 1.0, 1.0, 1.0, start=ss.Start(0.0, v[0] * v[1])),
    "matrix": lambda v: ss.LinearGaussian(
        0.5 * np.eye(2),
        np.ones(2),
        v[0] * np.ones((2, 2)) + v[1] * np.eye(2),
        1.0,
        start=ss.Start(np.zeros(2), np.eye(2)),
    ),
    "stationary": lambda v: ss.LinearGaussian(
        np.array([[v[0], 0.5], [v[1], 0.3]]), np.ones(2), np.eye(2), 1.0, start=ss.Start(stationary=True)
    ),
    "local level": lambda v: ss.local_level(v[0], v[1]),
}


@pytest.mark.parametrize("steps", [3, 30])
@pytest.mark.parametrize("case", NO_MODELS)
def test_under_vmap_nan_stands_where_a_plain_call_raises(case, steps):
    y, points = (
        np.random.default_rng(3).normal(size=steps),
        np.random.default_rng(4).uniform(-1.2, 1.6, (12, 2)),
    )
    points[0] = np.nan
    f = lambda v: ss.loglik(NO_MODELS[case](v), y)
    want = []
    for v in points:
        try:
            want.append(f(v))
        except tg.errors.NotPositiveDefiniteError:
            want.append(np.nan)
    assert 0 < np.isnan(want).sum() < len(want) - 2
    np.testing.assert_allclose(tg.vmap(f)(points), want, rtol=1e-10)


def test_a_variance_that_is_not_positive_is_named(at_once):
    y = np.random.default_rng(3).normal(size=40)
    for call in (ss.loglik, ss.filter, ss.smooth):
        with pytest.raises(
            tg.errors.NotPositiveDefiniteError, match=r"variance of y\[0\] given the past is 0"
        ):
            call(ss.LinearGaussian(1.0, 1.0, 0.0, 0.0, start=ss.Start(0.0, 0.0)), y)
        Z, two = np.ones((2, 1)), np.stack([y, y], axis=1)
        with pytest.raises(tg.errors.NotPositiveDefiniteError, match=r"covariance of y\[0\] given the past"):
            call(ss.LinearGaussian(0.5, Z, 1.0, 0.0, start=ss.Start(0.0, 1.0)), two)
    assert len(at_once) == 6


def test_when_it_is_compiled(monkeypatch):
    """After so many steps of one form, or if its kernel is on disk."""
    monkeypatch.setattr(compiled, "FILTERED", 200)
    kernel_form.cache_clear()
    ran, notes = [], set()
    monkeypatch.setattr(compiled.stored, "note_compiled", notes.add)
    monkeypatch.setattr(compiled.stored, "was_compiled", lambda name: name in notes)
    monkeypatch.setattr(
        compiled.CompiledFilter,
        "loglik",
        lambda self, f=compiled.CompiledFilter.loglik: ran.append(self) or f(self),
    )
    y = np.random.default_rng(3).normal(size=60)
    values = [float(ss.loglik(ss.local_level(1.3, 0.4), y)) for _ in range(5)]
    assert len(ran) == 2 and len(notes) == 1
    np.testing.assert_allclose(values, values[0], rtol=1e-12)
    ss.loglik(ss.local_level(1.3, 0.4), y[:29])
    assert len(ran) == 2
    kernel_form.cache_clear()
    ss.loglik(ss.local_level(1.0, 2.5), y)  # a variance of 1 is a number as any other
    assert len(ran) == 3


def everything(build, u, y, joseph, arrays=False):
    """All that the filter and the smoother say, in one vector."""
    with pytest.MonkeyPatch.context() as patch:
        if arrays:
            patch.setattr(compiled, "FEW", 10**9)
        f, s = ss.filter(build(u), y, joseph), ss.smooth(build(u), y, joseph)
    parts = [
        f.predicted_mean,
        f.predicted_cov,
        f.filtered_mean,
        f.filtered_cov,
        f.innovation_cov,
        f.loglik_terms,
    ]
    parts += [f.innovations, s.mean, s.cov, s.signal, s.signal_cov]
    here = ~np.isnan(tg.value(f.innovations))
    return tg.numpy.concatenate(
        [tg.numpy.reshape(x[here] if x is f.innovations else x, (-1,)) for x in parts]
    )


def assert_moments(build, y, u, joseph=False, rtol=1e-10):
    weights = np.cos(np.arange(everything(build, u, y, joseph, True).size))
    ours, arrays = (lambda u, e, on=on: everything(build, u, y + e, joseph, on) for on in (False, True))
    e = 0.1 * np.cos(np.arange(np.size(y))).reshape(np.shape(y))
    x, z = ours(u, e), arrays(u, e)
    np.testing.assert_allclose(x, z, rtol=0, atol=rtol * max(1.0, abs(z).max()))
    for g, h in zip(
        [
            *tg.grad(lambda u, e: ours(u, e) @ weights, (0, 1))(u, e),
            tg.jacobian(lambda u: ours(u, e), mode="forward")(u),
        ],
        [
            *tg.grad(lambda u, e: arrays(u, e) @ weights, (0, 1))(u, e),
            tg.jacobian(lambda u: arrays(u, e), mode="forward")(u),
        ],
        strict=True,
    ):
        np.testing.assert_allclose(g, h, rtol=0, atol=rtol * max(1.0, abs(h).max()))


@pytest.mark.parametrize("case", FEW_OR_ALL)
def test_filter_and_smoother_against_arrays(case, at_once):
    settings = dict(CASES[case])
    g, n = np.random.default_rng(len(case) + 1), 20  # transitions that leave no diffuse element out
    y = with_gaps(g, n, settings["p"], settings.pop("share", 0.0))
    joseph = settings.pop("joseph", False)
    assert_moments(random_build(g, settings.pop("m"), settings.pop("p"), n, **settings), y, POINTS[0], joseph)
    assert len(at_once) >= 6


def test_a_diffuse_start_and_a_field_that_varies_by_parameters(at_once):
    """Nothing else depends on them; and many of the models at once."""
    g = np.random.default_rng(4)
    x, y, T, Z = (
        g.normal(size=(12, 1, 1)),
        g.normal(size=12).cumsum(),
        np.array([[1.0, 1.0], [0.0, 0.7]]),
        np.array([[1.0, 0.0]]),
    )
    assert_moments(lambda u: ss.LinearGaussian(T, Z + x * u, [0.5, 0.2], 1.0), y, np.array([0.3, 0.4]))
    f = lambda u: (
        ss.smooth(ss.LinearGaussian(T, Z, [0.5, 0.2], 1.0, observation_offset=x[:, :, 0] * u), y).mean ** 2
    ).sum()
    points = np.array([[0.3], [0.7]])
    np.testing.assert_allclose(tg.vmap(f)(points), [f(u) for u in points], rtol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("m", [8, 13, 20])
def test_many_states(m):
    """Above a certain length matrices are whole in the kernel, and no longer unrolled."""
    g = np.random.default_rng(m)
    for p, diffuse in ((1, ()), (2, (0, 1, 2))):
        build = random_build(g, m, p, 30, diffuse=diffuse, correlated=p > 1)
        assert_same(*both(build, with_gaps(g, 30, p, 0.1), POINTS[0]), POINTS, rtol=1e-9)


def random_settings(g, m):
    """Which form a random model has."""
    settings = dict(
        diffuse=tuple(np.flatnonzero(g.random(m) < 0.3)),
        vary=tuple(name for name in "TZcd" if g.random() < 0.25),
        correlated=bool(g.random() < 0.3),
        predict_first=bool(g.random() < 0.3),
        offsets=bool(g.random() < 0.6),
    )
    if settings["diffuse"]:
        settings["vary"] = tuple(set(settings["vary"]) - {"T"})
    return settings


@pytest.mark.long
@pytest.mark.parametrize("seed", range(60))
def test_random_models(seed):
    g = np.random.default_rng(seed)
    m, p = int(g.integers(1, 5)), int(g.integers(1, 4))
    settings = random_settings(g, m)
    y = with_gaps(g, 30, p, 0.25 * (g.random() < 0.5))
    assert_same(
        *both(random_build(g, m, p, 30, **settings), y, POINTS[0], joseph=bool(g.random() < 0.2)),
        POINTS,
        way="",
    )


@pytest.mark.long
@pytest.mark.parametrize("seed", range(40))
def test_all_that_is_said_of_random_models(seed, at_once):
    g = np.random.default_rng(1000 + seed)
    m, p = int(g.integers(1, 5)), int(g.integers(1, 4))
    settings = random_settings(g, m)
    y = with_gaps(g, 25, p, 0.25 * (g.random() < 0.5))
    build, joseph = random_build(g, m, p, 25, **settings), bool(g.random() < 0.2)
    assert_loglik(build, y, POINTS[1:], joseph)
    assert_moments(build, y, POINTS[1], joseph)


@pytest.mark.long
@pytest.mark.parametrize("m", [8, 13, 20])
def test_all_that_is_said_of_many_states(m, at_once):
    g = np.random.default_rng(m)
    for p, diffuse in ((1, ()), (2, (0, 1, 2))):
        build, y = random_build(g, m, p, 30, diffuse=diffuse, correlated=p > 1), with_gaps(g, 30, p, 0.1)
        assert_loglik(build, y, POINTS[:1])
        assert_moments(build, y, POINTS[0])


def smoothed_exactly(s, y):
    """Covariances of the states given y, one series, in 60 digits, where all of the start is unknown: by one
    linear model for all steps, y = G delta + W eta + e, x[t] = X[t] (delta, eta)."""
    of = np.vectorize(mp.mpf, otypes=[object])
    inverse = lambda x: np.array(mp.inverse(mp.matrix(x.tolist())).tolist())
    T, Z, Q, H, n, m = *(of(getattr(s, name)) for name in "TZQH"), len(y), s.T.shape[0]
    X = [np.concatenate([of(np.eye(m)), of(np.zeros((m, m * (n - 1))))], axis=1)]
    for t in range(1, n):
        X.append(T @ X[-1])
        X[-1][:, m * t : m * (t + 1)] += of(np.eye(m))
    S = np.kron(of(np.eye(n - 1)), Q)
    both = np.concatenate([Z @ x for x in X])
    G, W = both[:, :m], both[:, m:]
    C = inverse(W @ S @ W.T + H[0, 0] * of(np.eye(n)))
    unknown, made = inverse(G.T @ C @ G), []
    for x in X:
        gain = x[:, m:] @ S @ W.T @ C
        E = x[:, :m] - gain @ G
        made.append(x[:, m:] @ S @ x[:, m:].T - gain @ W @ S @ x[:, m:].T + E @ unknown @ E.T)
    return np.array(made).astype(float)


@pytest.mark.long
@pytest.mark.parametrize("way", ["compiled", "on arrays"])
def test_a_start_that_the_first_observations_hardly_settle(way, at_once, monkeypatch):
    """Six diffuse elements, the last of which the first six observations see by a factor of 1e-4: the
    infinite part of the covariance is carried as a factor, with the root of its condition number."""
    g = np.random.default_rng(24)
    model = random_build(g, 6, 1, 8, diffuse=range(6))(np.array([0.3, -0.2, 0.1]))
    y = Observations(g.normal(size=8).cumsum())
    if way == "on arrays":
        monkeypatch.setattr(compiled, "FEW", 10**9)
    with mp.workdps(60):
        wanted = smoothed_exactly(system(model, y), y.values[:, 0])
    found = ss.smooth(model, y).cov
    assert (abs(found - wanted).max(axis=(1, 2)) < 1e-10 * abs(wanted).max(axis=(1, 2))).all()
    assert len(at_once) == (way == "compiled")


def structural(p):
    """Level, slope and eleven seasonal states."""
    T = np.zeros((13, 13))
    T[0, 0] = T[0, 1] = T[1, 1] = 1.0
    T[2, 2:] = -1.0
    T[np.arange(3, 13), np.arange(2, 12)] = 1.0
    z, R = np.zeros(13), np.zeros((13, 3))
    z[0] = z[2] = R[0, 0] = R[1, 1] = R[2, 2] = 1.0
    return ss.LinearGaussian(
        T, z, np.stack([p["level"], p["slope"], p["seasonal"]]), p["irregular"], selection=R
    )


@pytest.mark.long
def test_structural_model():
    """Each of the thirteen first steps meets an infinite variance, with constant gains."""
    y = np.random.default_rng(3).normal(size=50).cumsum()
    y[[15, 20, 21]] = np.nan
    start = {"level": 0.5, "slope": 0.1, "seasonal": 0.2, "irregular": 1.0}
    ours, arrays, scores = both(structural, y, start, ss.positive())
    assert ours.pattern.numbers.head is None and ours.pattern.rows.shape[1] == 37
    assert_same(ours, arrays, scores, [ours.start, ours.start + np.array([0.3, -0.2, 0.5, -0.4])])


@pytest.mark.parametrize("order", [(1, 0), (2, 1), (0, 4), (5, 2)])
def test_stationary_start(order):
    """Up to three states by equations, above by doubling."""
    g = np.random.default_rng(7)
    ar, ma = 0.3 * g.normal(size=order[0]), 0.3 * g.normal(size=order[1])
    start = {"ar": ar, "ma": ma, "var": 1.3, "mean": 0.4}
    start = {name: x for name, x in start.items() if np.size(x)}
    constraints = {"var": ss.positive()} | {name: ss.stationary() for name in ("ar", "ma") if name in start}
    ours, arrays, scores = both(
        lambda p: ss.arma(p.get("ar", ()), p.get("ma", ()), p["var"], p["mean"]),
        g.normal(size=40),
        start,
        constraints,
    )
    assert_same(ours, arrays, scores, [ours.start, ours.start + 0.1])


def test_stationary_covariance_by_doubling():
    """P = T P T' + Q for four states, of which one is near a unit root; and its derivative against
    differences."""
    T = np.diag([0.999, 0.5, -0.7, 0.2]) + np.diag([0.3, 0.1, -0.2], 1)
    start = ss.Start(stationary=True)

    def first(x):
        r = ss.filter(ss.LinearGaussian(T * x[0], np.ones(4), np.ones(4), 1.0, start=start), [0.0, 1.0])
        return r.predicted_cov[0]

    P = first(np.array([1.0]))
    np.testing.assert_allclose(P, T @ P @ T.T + np.eye(4), rtol=1e-12)
    x, h = np.array([0.9]), 1e-6
    slope = (first(x + h) - first(x - h)) / (2 * h)
    np.testing.assert_allclose(tg.jacobian(first)(x)[..., 0], slope, rtol=1e-7)


ALL_STARTS = itertools.product([False, True], [1, 2], [False, True])


@pytest.mark.long
@pytest.mark.parametrize(
    ("diffuse", "width", "first"),
    [x if x == (True, 1, False) else pytest.param(*x, marks=LONG) for x in ALL_STARTS],
)
def test_offsets_that_are_regressions(diffuse, width, first, at_once):
    """Kernels read the regressors as data, whichever offset has them, and whatever is missing."""
    g = np.random.default_rng(width)
    n, m = 25, 2
    inputs = {"c": g.normal(size=(n, m, 3)), "d": g.normal(size=(n, width, 2))}
    inputs["d"][:, 0, 0], inputs["c"][:, 1, 1] = 1.0, 0.0
    y, Z = with_gaps(g, n, width, 0.2), g.normal(size=(width, m))

    def build(u):
        c, d = RegressionOffset(inputs["c"], u), RegressionOffset(inputs["d"], u[1:] * u[0])
        start = ss.Start(0.3, 1.0, [True, False] if diffuse else False, predict_first=first)
        return ss.LinearGaussian(
            np.diag([0.9, 0.5]), Z, np.ones(m), np.exp(u[0]) * np.ones(width), None, c, d, start
        )

    assert_loglik(build, y, POINTS[:1])
    assert_moments(build, y, POINTS[0])
    assert_same(*both(build, y, POINTS[0]), POINTS)


def test_regressors_and_gaps_are_compiled():
    g = np.random.default_rng(0)
    y, X = g.normal(size=60).cumsum(), g.normal(size=(60, 2))
    y[[5, 30]] = np.nan
    fit = ss.sarimax(y, order=(1, 1, 0), exog=X, trend="t").fit()
    assert fit.report().startswith("compiled filter: 1 states")  # of the differences
    y = X[:, 0].copy()
    y[3] = np.nan
    assert "2 states" in ss.fit(ss.level() + ss.ar(1) + ss.regression(X[:, 1]), y).report()
    assert "with the model function" in ss.sarimax(X[:, 0], order=(1, 0, 0), exog=X[:, 1]).fit().report()


@pytest.mark.parametrize("size", [1.0, 1.02])
def test_no_stationary_start(size):
    T = np.diag([size, 0.5, 0.3, 0.2])
    model = ss.LinearGaussian(T, np.ones(4), np.ones(4), 1.0, start=ss.Start(stationary=True))
    with pytest.raises(
        tg.errors.NotPositiveDefiniteError,
        match=f"eigenvalue of the transition has size {size:g}.*stationary",
    ):
        ss.loglik(model, [0.0, 1.0, 2.0])


# --- which way is taken ---


@pytest.mark.long
def test_a_number_that_moves_later():
    """An entry that is 0 near the start, and depends on a parameter elsewhere: the pattern is found anew."""
    y = np.random.default_rng(2).normal(size=30)
    build = lambda q: ss.LinearGaussian(
        np.array([[0.5, np.maximum(q[0], 0.0)], [0.0, 0.3]]), np.ones(2), np.exp(q[1:]), 1.0
    )
    start = ss.Start(0.0, 1.0)
    ours, arrays, scores = both(
        lambda q: ss.LinearGaussian(*tg_fields(build(q)), start=start), y, np.array([-1.0, 0.1, -0.1])
    )
    before = ours.pattern
    assert_same(ours, arrays, scores, [np.array([-0.8, 0.0, 0.2])])
    assert ours.pattern is before
    assert_same(ours, arrays, scores, [np.array([0.6, 0.0, 0.2])])
    assert ours.pattern is not before
    assert_same(ours, arrays, scores, [np.array([-0.8, 0.0, 0.2])])


def tg_fields(model):
    return model.transition, model.observation, model.transition_cov, model.observation_cov


@pytest.mark.long
def test_matrices_that_vary_by_parameters():
    """Rows of data under differentiation."""
    g = np.random.default_rng(6)
    y, shift = with_gaps(g, 30, 2, 0.2), g.normal(size=30)

    def build(q):
        Z = np.exp(0.1 * q[0] * shift)[:, None, None] * np.array([[1.0, 0.0], [0.5, 1.0]])
        H = np.exp(q[1] * shift)[:, None, None] * np.eye(2)
        T = 0.5 * np.tanh(q[0] + shift)[:, None, None] * np.eye(2)
        return ss.LinearGaussian(
            T,
            Z,
            np.exp(q[2]),
            H,
            observation_offset=q[1] * shift[:, None] * np.ones(2),
            start=ss.Start(0.0, 1.0),
        )

    ours, arrays, scores = both(build, y, POINTS[0])
    assert "observation_cov varies over time and depends on the parameters" in ours.way
    assert_same(ours, arrays, scores, POINTS[:1], way="compiled filter, put together anew for each model")


def test_an_element_that_no_observation_sees():
    """Of two levels the sum alone is seen: what is hidden has no part in the likelihood."""
    y = np.random.default_rng(2).normal(size=30)
    build = lambda q: ss.LinearGaussian(np.eye(2), np.array([1.0, 1.0]), np.exp(q), 1.0)
    ours, arrays, scores = both(build, y, np.array([0.1, 0.2]))
    assert_same(ours, arrays, scores, [ours.start])


@pytest.mark.long
def test_a_start_of_which_less_is_seen_elsewhere():
    """Where the second state is not seen any more; then the kernel gets the numbers of each model anew."""
    y = np.random.default_rng(4).normal(size=20)
    Z = np.ones((20, 1, 2)) * np.array([1.0, 0.0])
    T = lambda q: np.array([[1.0, np.maximum(q[0], 0.0)], [0.0, 0.5]])
    build = lambda q: ss.LinearGaussian(T(q), Z, np.exp(q[1]) * np.ones(2), 1.0)
    ours, arrays, scores = both(build, y, np.array([1.0, 0.1]))
    assert_same(ours, arrays, scores, [ours.start])
    assert np.isfinite(ours(np.array([-1.0, 0.1]))[0])
    assert "what the data see of the diffuse start" in ours.way
    assert_same(ours, arrays, scores, [ours.start], way="compiled filter, put together anew")


def test_report():
    y = np.random.default_rng(5).normal(size=40).cumsum()
    r = ss.fit(lambda p: ss.local_level(p["a"], p["b"]), y, {"a": 1.0, "b": 1.0}, ss.positive())
    assert r.report().startswith("compiled filter: 1 states, ") and "39 of 40 steps" in r.report()
    assert f"{r.evaluations} values" in r.report()


def test_single_precision_data():
    """Data of float32 are fitted as the same numbers in float64; a model and data of float32 have a
    likelihood of float32."""
    y = np.random.default_rng(2).normal(size=30).astype(np.float32)
    build = lambda q: ss.local_level(np.exp(q[0]), np.exp(q[1]))
    ours = both(build, y, np.array([0.1, 0.2]))[0]
    assert_same(ours, *both(build, y.astype(float), np.array([0.1, 0.2]))[1:], [ours.start])
    assert ss.loglik(ss.local_level(np.float32(1.3), np.float32(0.4)), y).dtype == np.float32


@pytest.mark.parametrize("xp", ["hosted-cupy", pytest.param("cupy", marks=pytest.mark.gpu)], indirect=True)
@pytest.mark.parametrize(
    "kind",
    [
        "varies",
        "with a prior",
        pytest.param("a pattern", marks=LONG),
        pytest.param("of the library", marks=LONG),
    ],
)
def test_fit_of_data_on_a_device(xp, kind):
    """The model function works where the data are, the filter on the host; with the same result."""
    g = np.random.default_rng(12)
    y, x = g.normal(size=60).cumsum() + g.normal(size=60), np.cos(np.arange(60.0))
    y[[3, 20, 21]] = np.nan
    if kind == "of the library":
        found, wanted = (ss.sarimax(lib.asarray(y), order=(1, 0, 1)).fit() for lib in (xp, np))
    else:

        def build(p, lib):
            noise = (
                p["noise"] * lib.exp(0.1 * p["level"] * lib.asarray(x))[:, None, None]
                if kind == "varies"
                else p["noise"]
            )
            T = lib.asarray(np.array([[1.0, 1.0], [0.0, 0.8]]))
            return ss.LinearGaussian(
                T, np.array([1.0, 0.0]), lib.stack([p["level"], 0.1 * p["level"]]), noise
            )

        start = {"noise": 1.0, "level": 0.5}
        prior = {"level": tg.stats.norm(1.0, 0.5)} if kind == "with a prior" else None
        found, wanted = (
            ss.fit(lambda p, lib=lib: build(p, lib), lib.asarray(y), start, ss.positive(), prior=prior)
            for lib in (xp, np)
        )
    assert found.report().startswith(
        "compiled filter, put together anew" if kind == "varies" else "compiled filter:"
    ), found.report()
    np.testing.assert_allclose(found.estimates, wanted.estimates, rtol=1e-7)
    np.testing.assert_allclose(found.loglik, wanted.loglik, rtol=1e-11)
    for way in ("exact", "robust"):
        np.testing.assert_allclose(found.cov(way), wanted.cov(way), rtol=1e-6, atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("xp", ["hosted-cupy", pytest.param("cupy", marks=pytest.mark.gpu)], indirect=True)
def test_likelihood_filter_and_smoother_of_a_device_run_compiled(xp, monkeypatch):
    """On the host; with the same values and derivatives, by parameters and data, as arrays of the host have
    on arrays."""
    g = np.random.default_rng(3)
    y, T, Z = (
        g.normal(size=(14, 2)).cumsum(axis=0),
        np.array([[1.0, 1.0], [0.0, 0.7]]),
        np.array([[1.0, 0.0], [0.3, 1.0]]),
    )
    y[3, 1], y[7], q, s = np.nan, np.nan, np.array([0.1, -0.2]), g.normal(size=(14, 2, 2))

    def build(q, lib):
        noise = lib.exp(q[0]) * lib.asarray(np.eye(2)) + lib.asarray(np.full((2, 2), 0.1))
        return ss.LinearGaussian(
            T, Z, [lib.exp(q[1]), 0.5], noise, start=ss.Start(diffuse=[True, False], cov=1.0)
        )

    def said(q, y, lib):
        model = build(q, lib)
        states = (ss.filter(model, y).predicted_cov * lib.asarray(s)).sum() + (
            ss.smooth(model, y).mean * lib.asarray(s[:, 0])
        ).sum()
        return ss.loglik(model, y) + states + ss.forecast(model, y, 2).cov[1, 0, 1]

    f = lambda lib: lambda q, y: said(q, y, lib)
    wanted = tg.value_and_grad(f(np), argnums=(0, 1))(q, y)
    wanted = *wanted, tg.hessian(f(np))(q, y)
    monkeypatch.setattr(compiled, "FILTERED", 0)
    monkeypatch.setattr(compiled, "loglik_on_arrays", None)  # not called
    at = xp.asarray(q), xp.asarray(y)
    found = *tg.value_and_grad(f(xp), argnums=(0, 1))(*at), tg.hessian(f(xp))(*at)
    for a, b in zip((found[0], *found[1], found[2]), (wanted[0], *wanted[1], wanted[2]), strict=True):
        assert isinstance(a, xp.ndarray)
        np.testing.assert_allclose(a.get(), b, rtol=1e-9, atol=1e-9)


def test_matrices_of_single_precision_run_compiled(monkeypatch):
    """In float64, as on arrays."""
    y = np.random.default_rng(2).normal(size=30).astype(np.float32)
    half, ones = (0.5 * np.eye(2)).astype(np.float32), np.ones(2, np.float32)
    f = lambda q: ss.loglik(ss.LinearGaussian(half, ones, q[:1] * ones, q[1], start=ss.Start(0.0, ones)), y)
    q = np.array([0.5, 1.5], np.float32)
    wanted = f(q), tg.grad(f)(q)
    monkeypatch.setattr(compiled, "FILTERED", 0)
    monkeypatch.setattr(compiled, "loglik_on_arrays", None)  # not called
    found = f(q), tg.grad(f)(q)
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-6)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-12)


@pytest.mark.parametrize(
    "model", [ss.local_level(1.0, 0.5), ss.local_linear_trend(1.0, 0.5, 0.1)], ids=["level", "trend"]
)
def test_gaps_in_the_first_steps_alone(model, monkeypatch):
    """The kernel has none, but was asked for one with gaps."""
    y = np.random.default_rng(0).normal(size=40).cumsum()
    y[0] = np.nan
    wanted = ss.loglik(model, y), ss.filter(model, y).filtered_mean, ss.smooth(model, y).cov
    monkeypatch.setattr(compiled, "FILTERED", 0)
    monkeypatch.setattr(compiled, "loglik_on_arrays", None)  # not called
    for a, b in zip(
        (ss.loglik(model, y), ss.filter(model, y).filtered_mean, ss.smooth(model, y).cov), wanted, strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-11)


def test_one_state_and_two_noises():
    """The short way for one state and one observation reads one noise alone."""
    model = ss.LinearGaussian(
        0.5,
        1.0,
        np.array([[1.0, 0.3], [0.3, 2.0]]),
        1.0,
        selection=np.array([[1.0, 0.5]]),
        start=ss.Start(0.0, 1.0),
    )
    y = [0.3, -0.5, 1.2]
    one = ss.LinearGaussian(0.5, 1.0, 1.0 + 0.3 + 0.5, 1.0, start=ss.Start(0.0, 1.0))
    np.testing.assert_allclose(ss.loglik(model, y), ss.loglik(one, y), rtol=1e-14)
    np.testing.assert_allclose(ss.loglik(model, y), ss.filter(model, y).loglik, rtol=1e-14)


def test_a_failed_fit_keeps_its_last_parameters():
    """All data are the same: the smaller the variance the larger the likelihood."""
    y, build = (
        np.ones(20),
        lambda p: ss.LinearGaussian(
            0.5, 1.0, p["var"], 0.0, observation_offset=1.0, start=ss.Start(stationary=True)
        ),
    )
    with pytest.raises(
        tg.errors.ConvergenceError, match="no maximum reached.*last parameters as .params"
    ) as caught:
        ss.fit(build, y, {"var": 1.0}, ss.positive())
    error = caught.value
    assert set(error.params) == {"var"} and error.params["var"] < 1e-3 and error.unconstrained.shape == (1,)
    np.testing.assert_allclose(ss.loglik(build(error.params), y), error.loglik, rtol=1e-12)


def test_parameters_of_which_only_the_sum_is_known():
    g = np.random.default_rng(5)
    y = g.normal(size=80).cumsum() + 2 * g.normal(size=80)
    with pytest.raises(tg.errors.DataError, match="does not depend on a and b one by one") as caught:
        ss.fit(
            lambda p: ss.local_level(p["a"] + p["b"], p["c"]),
            y,
            {"a": 1.0, "b": 1.5, "c": 2.0},
            ss.positive(),
        )
    assert set(caught.value.params) == set("abc") and np.isfinite(caught.value.loglik)


@pytest.mark.long
def test_parameters_on_a_ridge_are_named():
    """Where no maximum is reached since two parameters are known only together, along a curve, or run to
    their bounds together: a cycle that does not change has any small variance, and a damping as close to
    1."""
    g = np.random.default_rng(5)
    y = g.normal(size=80).cumsum() + 2 * g.normal(size=80)
    for build, message in (
        (lambda p: ss.local_level(p["a"] / p["b"], p["c"]), "does not depend on a and b one by one"),
        (
            lambda p: ss.local_level(p["c"], p["a"] / (p["b"] * p["d"])),
            "does not depend on a, b and d one by one",
        ),
    ):
        with pytest.raises(tg.errors.DataError, match=message) as caught:
            ss.fit(build, y, {"a": 1.0, "b": 1.5, "c": 2.0} | ({"d": 1.0} if "d" in message else {}))
        error = caught.value
        np.testing.assert_allclose(ss.loglik(build(error.params), y), error.loglik, rtol=1e-10)
    with pytest.raises(
        tg.errors.DataError, match="does not depend on sigma2.cycle and damping.cycle one by one"
    ):
        ss.fit(ss.level() + ss.cycle(), np.random.default_rng(0).normal(size=80))


def test_a_search_that_was_cut_short_is_not_taken_for_a_ridge():
    y = np.random.default_rng(5).normal(size=80).cumsum()
    with pytest.raises(tg.errors.ConvergenceError, match="no maximum reached"):
        ss.fit(ss.level() + ss.trend(), y, method="Nelder-Mead", options={"maxiter": 3})


@pytest.mark.parametrize(
    "method", ["Nelder-Mead", "L-BFGS-B", "Newton-CG", "trust-ncg", "trust-exact", "auto"]
)
def test_every_method_ends_at_the_maximum(method):
    g = np.random.default_rng(8)
    y = g.normal(size=60).cumsum() + g.normal(size=60)
    r = ss.fit(
        lambda p: ss.local_level(p["a"], p["b"]), y, {"a": 1.0, "b": 1.0}, ss.positive(), method=method
    )
    best = ss.fit(lambda p: ss.local_level(p["a"], p["b"]), y, {"a": 0.5, "b": 2.0}, ss.positive())
    np.testing.assert_allclose(r.estimates, best.estimates, rtol=1e-8)
    assert r.gradient < 1e-9


# --- bad input ---


def level(p):
    return ss.local_level(p["noise"], p["level"])


Y = np.random.default_rng(8).normal(size=30).cumsum()
START = {"noise": 1.0, "level": 1.0}


@pytest.mark.parametrize(
    "arguments, error, words",
    [
        (
            (Y, level, START),
            tg.errors.ArgumentError,
            "fit: build is a ndarray; .*the model function comes first, then the data",
        ),
        (
            (level(START), Y, START),
            tg.errors.ArgumentError,
            "fit: build is a LinearGaussian; wanted a function",
        ),
        (
            (lambda p: p, Y, START),
            tg.errors.ArgumentError,
            "fit: build returned a dict; wanted a LinearGaussian",
        ),
        ((lambda p: None, Y, START), tg.errors.ArgumentError, "fit: build returned a NoneType"),
        (
            (level, Y, {"noise": 1.0, "lvl": 1.0}),
            tg.errors.ArgumentError,
            "build asks for the parameter 'level'; start has noise, lvl",
        ),
        (
            (level, Y, START, {"trend": ss.positive()}),
            tg.errors.ArgumentError,
            "'trend' is not a parameter; start has noise, level",
        ),
        ((level, np.full(9, np.nan), START), tg.errors.DataError, "all 9 observations are missing"),
        ((level, [1.0], START), tg.errors.DataError, "1 observed values do not determine the parameters"),
        (
            (level, Y, {"noise": -2.0, "level": 1.0}),
            tg.errors.NotPositiveDefiniteError,
            "observation_cov: a variance of -2",
        ),
        ((level, Y, {"noise": np.nan, "level": 1.0}), tg.errors.ArgumentError, "start of noise is nan"),
    ],
)
def test_bad_input(arguments, error, words):
    with pytest.raises(error, match=words):
        ss.fit(*arguments)


def test_masked_data():
    """Masked data are missing."""
    masked = np.ma.masked_array(Y, mask=np.arange(30) % 7 == 3)
    r = ss.fit(level, masked, START, ss.positive())
    gaps = np.where(np.arange(30) % 7 == 3, np.nan, Y)
    np.testing.assert_allclose(r.loglik, ss.fit(level, gaps, START, ss.positive()).loglik, rtol=1e-12)


def test_a_model_that_there_is_only_close_to_the_start():
    """Where no point around tells what depends on the parameters, nothing is taken for a constant: the
    gradient is not zero."""
    y, start = np.array([0.3, 1.0, -0.4, 0.8, 1.5, 0.2]), {"a": 0.7, "b": 0.4}

    def build(p):
        if abs(float(tg.value(p["a"])) - 0.7) > 1e-3:
            raise ValueError("far")
        return ss.local_level(p["a"] ** 2, p["b"] ** 2)

    objective = ModelObjective(build, Observations(y), Parameters(start, None))
    assert "put together anew for each model: there is no model at the points around" in objective.way
    wanted = tg.grad(lambda u: -ss.loglik(ss.local_level(u[0] ** 2, u[1] ** 2), y))(objective.start)
    np.testing.assert_allclose(objective(objective.start)[1], wanted, rtol=1e-12)
    assert abs(wanted).min() > 0.1


# --- models of the library: what leads from the parameters to the matrices is in the kernel, too ---


def whole_and_arrays(y, *, constraints=None, prior=None, **model):
    """The objective of a SARIMAX fit, and the same on arrays."""
    specified = ss.sarimax(y, **model)
    problem = specified.model.problem(specified.data, None, constraints, False, prior)
    inner = problem.quick or problem

    def negative(u, build):
        return -ss.loglik(build(inner.parameters.tree(u)), inner.data)

    arrays = Objective(negative, inner.parameters.start, (inner.build,))
    return problem.objective(), arrays, lambda u: scores(inner.build, inner.data, inner.parameters, False, u)


@pytest.mark.parametrize(
    "model",
    [
        {"order": (2, 0, 1), "trend": "c"},
        {"order": (1, 1, 1), "trend": "ct", "exog": 1, "gap": False},
        {"order": (1, 0, 0), "trend": "c", "gap": True},
        {"order": (0, 1, 1), "seasonal_order": (0, 1, 1, 4)},
    ],
    ids=str,
)
def test_the_model_function_is_in_the_kernel(model):
    g = np.random.default_rng(3)
    n, model = 60, dict(model)
    y = g.normal(size=n).cumsum()
    if model.pop("gap", False):
        y[[5, 6, 20]] = np.nan
    if "exog" in model:
        model["exog"] = g.normal(size=(n, model["exog"]))
    ours, arrays, each = whole_and_arrays(y, **model)
    assert ours.whole is not None
    assert_same(ours, arrays, each, [ours.start, ours.start + 0.3 * g.normal(size=ours.start.size)])


def test_a_kernel_with_the_model_function_is_only_for_what_its_name_can_say():
    y = np.random.default_rng(4).normal(size=50)
    assert whole_and_arrays(y)[0].whole is not None
    own = ss.Constraint("stationary()", "numbers", lambda u: np.sin(u), np.arcsin, lambda x: True)
    other, arrays, each = whole_and_arrays(y, constraints={"ar": own})
    assert other.whole is None
    assert_same(other, arrays, each, [other.start + 0.2])
    assert whole_and_arrays(y, prior=lambda p: -p["sigma2"])[0].whole is None
    assert (
        whole_and_arrays(y, order=(4, 0, 0))[0].whole is None
    )  # its start is found by a loop that looks at numbers
    assert (
        whole_and_arrays(np.where(np.arange(50) == 9, np.nan, y), order=(1, 1, 0))[0].whole is None
    )  # with missing data it is diffuse


def test_a_number_that_only_seemed_constant_keeps_the_kernel_from_the_model_function(monkeypatch):
    def nothing_moves(numbers, s, build, u):
        known = np.asarray(numbers.of_system(s, numbers.data))
        return known, np.zeros(known.size, bool)

    monkeypatch.setattr(_pattern, "_examined", nothing_moves)
    ours = whole_and_arrays(np.random.default_rng(4).normal(size=50))[0]
    assert ours.whole is None


def test_a_long_compilation_is_announced_once(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("TAPEGRAD_CACHE", str(tmp_path))
    monkeypatch.setattr(step_kernel, "SECONDS_BY_SQUARE", 0.5)
    build = lambda p: ss.local_linear_trend(1.0, p["level"], p["slope"])
    y = np.random.default_rng(0).normal(size=40).cumsum()
    for _ in range(2):
        step_kernel.announce.cache_clear()  # as in another process
        ss.fit(build, y, {"level": 1.0, "slope": 0.1}, ss.positive())
    assert caplog.messages == ["compiling a filter of 2 states, once: about 2.0 s"]
    monkeypatch.setattr(step_kernel, "WHOLE_MATRICES", 1)
    monkeypatch.setattr(step_kernel, "SECONDS_OF_WHOLE", 2.0)
    monkeypatch.setattr(step_kernel, "SECONDS_BY_CUBE", 0.01)
    ss.fit(build, np.r_[y, np.nan], {"level": 1.0, "slope": 0.1}, ss.positive())  # another layout: gaps
    assert caplog.messages[1:] == [
        "compiling a filter of 2 states, once: about 2.0 s; each value with its gradient takes about 3.3 s"
    ]


@pytest.mark.long
def test_a_hundred_states_compile_in_seconds(tmp_path, monkeypatch):
    monkeypatch.setenv("TAPEGRAD_CACHE", str(tmp_path))
    y = np.random.default_rng(0).normal(size=110).cumsum()
    problem = (ss.level() + ss.seasonal(100)).problem(ss.Observations(y), ranked=False)
    begin = time.process_time()
    objective = problem.objective()
    value, gradient = objective(objective.start)
    assert time.process_time() - begin < 60
    wanted = -float(ss.filter(problem.build(problem.parameters.tree(objective.start)), y).loglik)
    np.testing.assert_allclose(value, wanted, rtol=1e-9)
    assert np.isfinite(gradient).all()
