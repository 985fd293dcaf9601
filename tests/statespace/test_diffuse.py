"""Diffuse starts against log-likelihoods, gradients and smoothed states in 2000 bits
(tests/support/diffuse_truth.py), and against themselves in other coordinates; what the data do not determine;
fits, errors and pictures of such models."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from diffuse_models import LEVEL, NAMED, TREND, drawn, missing, model, series, wave

import tapegrad as tg
from tapegrad import statespace as ss
from tapegrad.errors import ArgumentError, DataError, ShapeError
from tapegrad.statespace.filters import augmented, diffuse_start
from tapegrad.statespace.filters import compiled as _compiled

TRUTH = json.loads((Path(__file__).parent.parent / "support" / "diffuse_truth.json").read_text())
LONG = pytest.mark.long


def system(m, q, **more):
    T, Q, H = m.matrices(q)
    return ss.LinearGaussian(T, m.Z, Q, H, start=ss.Start(0.0, m.cov, m.mark), **more)


@pytest.fixture
def compiled(monkeypatch):
    for name in ("FEW", "SHORT", "FILTERED"):
        monkeypatch.setattr(_compiled, name, 0)


def assert_true(m, truth):
    """Value and gradient to max(1e-8, 1e-14 condition), relative to max(1, value) and to the largest
    derivative by a logarithm."""
    bound = max(1e-8, 1e-14 * (truth["condition"] or 0.0))
    value, gradient = tg.value_and_grad(lambda q: ss.loglik(system(m, q), m.y))(m.q)
    assert abs(value - truth["loglik"]) <= bound * max(1.0, abs(truth["loglik"]))
    known = {int(i): x for i, x in truth["gradient"].items()}
    scale = max(1.0, *(abs(x * m.q[i]) for i, x in known.items()))
    for i, x in known.items():
        assert abs(gradient[i] - x) * m.q[i] <= bound * scale


def assert_states(m, truth):
    """Smoothed states against the truth; and all that filter and smoother say of each other."""
    s, f = ss.smooth(system(m, m.q), m.y), ss.filter(system(m, m.q), m.y)
    for t, (mean, variance) in zip(m.steps, truth["states"], strict=True):
        np.testing.assert_allclose(np.diag(s.cov[t]), variance, rtol=1e-10)
        assert (abs(s.mean[t] - mean) < 1e-10 * np.sqrt(variance)).all()
    assert (np.diagonal(s.cov, axis1=1, axis2=2) > 0).all()
    np.testing.assert_allclose(f.loglik_terms.sum(), truth["loglik"], rtol=1e-9)
    size = np.sqrt(np.diag(s.cov[-1]))
    assert (abs(s.mean[-1] - f.filtered_mean[-1]) < 1e-9 * size).all()
    assert (abs(s.cov[-1] - f.filtered_cov[-1]) < 1e-9 * np.outer(size, size)).all()
    ahead = ss.forecast(system(m, m.q), m.y, 1)
    T, Q, _ = m.matrices(m.q)
    np.testing.assert_allclose(ahead.state_mean[0], T @ f.filtered_mean[-1], rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(ahead.state_cov[0], T @ f.filtered_cov[-1] @ T.T + Q, rtol=1e-8, atol=1e-12)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=LONG) if name in ("365.25/10", "24/3, 168/2") else name for name in NAMED],
)
def test_likelihood_on_arrays(name):
    assert_true(NAMED[name](), TRUTH[name])


FEW = ["365.25/2", "100/2"]


@pytest.mark.parametrize("name", [name if name in FEW else pytest.param(name, marks=LONG) for name in NAMED])
def test_likelihood_compiled(name, compiled):
    assert_true(NAMED[name](), TRUTH[name])


STATES = [name for name in NAMED if "states" in TRUTH[name]]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("way", ["arrays", "compiled"])
@pytest.mark.parametrize(
    "name", [name if name in ("24/3", "365.25/1") else pytest.param(name, marks=LONG) for name in STATES]
)
def test_states(name, way, request):
    if way == "compiled":
        request.getfixturevalue("compiled")
    assert_states(NAMED[name](), TRUTH[name])


@LONG
@pytest.mark.parametrize("seed", [int(name.split()[1]) for name in TRUTH if name.startswith("seed")])
def test_random_models(seed, monkeypatch):
    """On arrays, and by the kernels; collapsed early and late.  Above a condition number of 1e10 there is an error, unless columns are
    dependent to the last digit and count for nothing."""
    m, truth = drawn(seed), TRUTH[f"seed {seed}"]
    for number in (10**9, 0) if seed % 5 == 0 else (10**9,):
        monkeypatch.setattr(_compiled, "FEW", number)
        monkeypatch.setattr(_compiled, "FILTERED", 0)
        if truth["condition"] < 1e10:
            assert_true(m, truth)
        elif truth["condition"] < 1e13:
            with pytest.raises(
                DataError, match="the data hardly determine the diffuse start of these states: state"
            ):
                ss.loglik(system(m, m.q), m.y)


def small(seed):
    """A random model with a few diffuse states, gaps and two series now and then, whose condition number is
    moderate."""
    g = np.random.default_rng(seed)
    period, n = float(g.choice([4, 7, 12, 9.5])), 40
    begin = int(g.integers(1, 6)) * (seed % 2)
    y = missing(series(n, period, 10 ** g.uniform(-1, 2), seed), slice(0, begin), g.integers(6, n, 4))
    parts = [
        LEVEL if g.random() < 0.5 else TREND,
        wave(period, int(g.integers(1, 3)), 10 ** g.uniform(-6, -2)),
    ]
    more = {}
    if seed % 3 == 0:
        y = missing(np.stack([y, 0.5 * y + g.normal(size=n)], axis=1), (slice(3, 9), 0))
        more = dict(H=np.array([[1.0, 0.3], [0.3, 0.7]]), loadings=[1.0, 0.5])
    return model(y, 10 ** g.uniform(-3, 0), *parts, **more)


def turned(m, seed):
    """The same model in other coordinates of the states."""
    k = len(m.T0)
    M = np.linalg.qr(np.random.default_rng(seed).normal(size=(k, k)))[0]
    M = M[np.random.default_rng(seed).permutation(k)] if seed % 2 else M
    return replace(m, T0=M @ m.T0 @ M.T, Z=m.Z @ M.T, DQ=M @ m.DQ @ M.T, DT=M @ m.DT @ M.T)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", range(12))
def test_what_does_not_matter(seed, monkeypatch):
    """The coordinates of the states, the units of the data, the finite variance along the diffuse elements,
    the constant on them, and where the start is collapsed."""
    m = small(seed)
    of = lambda m, q: ss.loglik(system(m, q), m.y)
    value, gradient = tg.value_and_grad(lambda q: of(m, q))(m.q)

    def assert_same(made, scale=1.0, shift=0.0, rtol=1e-11):
        v, g = tg.value_and_grad(lambda q: of(made, q))(made.q)
        np.testing.assert_allclose(v + shift, value, rtol=rtol)
        np.testing.assert_allclose(
            g * scale, gradient, rtol=0, atol=rtol * abs(gradient * m.q).max() / m.q.min()
        )

    assert_same(turned(m, seed))
    for unit in (1e-6, 1e6):
        left = (~np.isnan(m.y)).sum() - m.mark.sum()  # of each diffuse element the unit is that of the data
        assert_same(replace(m, y=m.y * unit, q=m.q * unit**2), unit**2, left * np.log(unit))
    for spread in (1e-6, 1.0):
        monkeypatch.setattr(augmented, "DIFFUSE_SPREAD", spread)
        assert_same(m)
    far = 1e3 * np.random.default_rng(seed).normal(size=len(m.T0))
    X, A = [], np.eye(len(m.T0))
    for _ in m.y:
        X.append(m.Z @ A @ far)
        A = m.T0 @ A
    assert_same(replace(m, y=m.y + np.array(X)), rtol=1e-10)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("most", [2.0, 10.0, 300.0])
def test_where_the_start_is_collapsed(most, compiled, monkeypatch):
    """Values, gradients and Hessians on both sides, with gaps; and with all that the filter says."""
    m = model(missing(series(60, 12), slice(8, 11), slice(40, 42)), 0.09, LEVEL, wave(12, 2))
    of = lambda q: ss.loglik(system(m, q), m.y)
    monkeypatch.setattr(diffuse_start, "COLLAPSE", 0.0)
    wanted, H = tg.value_and_grad(of)(m.q), tg.hessian(of)(m.q)
    before = ss.filter(system(m, m.q), m.y)
    monkeypatch.setattr(diffuse_start, "COLLAPSE", most)
    found, K = tg.value_and_grad(of)(m.q), tg.hessian(of)(m.q)
    after = ss.filter(system(m, m.q), m.y)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-12)
    np.testing.assert_allclose(found[1], wanted[1], rtol=1e-9)
    np.testing.assert_allclose(K, H, rtol=0, atol=1e-8 * abs(H).max())
    for name in ("predicted_mean", "filtered_mean", "filtered_cov", "loglik_terms"):
        np.testing.assert_allclose(getattr(after, name), getattr(before, name), rtol=1e-8, atol=1e-8)
    assert after.diffuse_steps == before.diffuse_steps == 5
    tg.testing.check_grads(lambda u: of(np.exp(u)), (np.log(m.q),))


def test_numbers_that_want_more_steps(compiled):
    """A start that was collapsed where the noise was small, at numbers for which the same rows say less; and
    many models at once."""
    m = model(series(150, 60), 0.09, LEVEL, wave(60, 2))
    data, q = ss.Observations(m.y), m.q * np.array([1e-6, 1e-4, 1.0])
    first, other = ss.loglik(system(m, q), data), system(m, m.q * np.array([1.0, 1e4, 1.0]))
    np.testing.assert_allclose(ss.loglik(other, data), ss.loglik(other, m.y), rtol=1e-9)
    f = lambda q: ss.loglik(system(m, q), data)
    many = np.stack([q, m.q])
    np.testing.assert_allclose(tg.vmap(f)(many), [first, f(m.q)], rtol=1e-9)


# --- what the data do not determine ---


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", ["arrays", "compiled"])
def test_elements_that_depend_on_each_other(kind, request):
    """The likelihood counts what is seen; where it hardly is, the states are named."""
    if kind == "compiled":
        request.getfixturevalue("compiled")
    twice = model(series(150, 7), 0.09, LEVEL, wave(7, 2), wave(7, 2))
    with pytest.raises(
        DataError, match="smooth: the data do not determine .* of these states: state 1, .*state 8; give"
    ):
        ss.smooth(system(twice, twice.q), twice.y)
    # a wave twice is one wave with both variances; sqrt 2 to the power 4 is the change of coordinates
    once = model(series(150, 7), 0.09, LEVEL, wave(7, 2, 2e-6))
    wanted = ss.loglik(system(once, once.q), once.y) - 2 * np.log(2)
    np.testing.assert_allclose(ss.loglik(system(twice, twice.q), twice.y), wanted, rtol=1e-11)
    near = model(series(150), 0.09, LEVEL, wave(8766, 5))
    names = ["level", *(f"wave {i}{side}" for i in range(1, 6) for side in "ab")]
    with pytest.raises(
        DataError,
        match=r"hardly determine the diffuse start of these states: (.*, )?wave 3[ab].* fewer waves",
    ):
        ss.loglik(system(near, near.q, state_names=names), near.y)
    np.testing.assert_array_equal(
        tg.vmap(lambda q: ss.loglik(system(near, q), near.y))(np.stack([near.q] * 2)), np.nan
    )
    alike = model(series(400, 12), 0.09, LEVEL, wave(12, 1), wave(12 + 2e-12, 1))
    with pytest.raises(DataError, match="of these states: state 1, state 2, state 3, state 4; to 10 digits"):
        ss.loglik(system(alike, alike.q), alike.y)


def test_fewer_observations_than_elements():
    m = model(series(6), 0.09, LEVEL, wave(7, 3))
    X = np.array([m.Z[0] @ np.linalg.matrix_power(m.T0, t) for t in range(6)])
    wanted = -3 * np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(X @ X.T)[1]
    np.testing.assert_allclose(ss.loglik(system(m, m.q), m.y), wanted, rtol=1e-12)
    nothing = ss.filter(ss.local_linear_trend(1.0, 0.5, 0.1), np.full(10, np.nan))
    assert nothing.loglik == 0.0 and nothing.diffuse_steps == 10
    np.testing.assert_array_equal(nothing.predicted_diffuse_cov[3], [[10.0, 3.0], [3.0, 1.0]])


@pytest.mark.parametrize("unseen", [3, 12])
def test_data_that_tell_nothing_of_the_start_have_their_own_terms(unseen):
    """Steps at which the observation matrix is zero, before others or alone."""
    y, Z = np.random.default_rng(0).normal(size=12), np.ones((12, 1, 2))
    Z[:unseen] = 0.0
    T = np.array([[1.0, 1.0], [0.0, 1.0]])
    found = ss.filter(ss.LinearGaussian(T, Z, np.ones(2), 0.7), y)
    wanted = -0.5 * (np.log(2 * np.pi * 0.7) + y**2 / 0.7)
    np.testing.assert_allclose(found.loglik_terms[:unseen], wanted[:unseen], rtol=1e-13)
    np.testing.assert_allclose(
        found.loglik, ss.loglik(ss.LinearGaussian(T, Z, np.ones(2), 0.7), y), rtol=1e-13
    )


def test_the_fit_of_a_model_whose_parts_are_alike_names_them():
    with pytest.raises(DataError, match=r"seasonal \(wave 3\)"):
        ss.fit(ss.level() + ss.seasonal(8766, harmonics=5), series(150))


# --- fits ---


@pytest.mark.long
@pytest.mark.parametrize(
    "parts",
    [[(365.25, 2)], pytest.param([(365.25, 3)], marks=LONG), pytest.param([(7, 3), (365.25, 2)], marks=LONG)],
)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=LONG) for seed in range(1, 5))])
def test_fits_end_at_a_maximum(parts, seed):
    n, g = 130 if len(parts) == 1 else 500, np.random.default_rng(seed)
    y = (
        series(n, seed=seed)
        + 0.3 * np.sin(2 * np.pi * np.arange(n) / 7) * (len(parts) > 1)
        + 0.02 * g.normal(size=n)
    )
    kind = ss.level()
    for i, (period, count) in enumerate(parts):
        kind = kind + ss.seasonal(period, harmonics=count, name=f"wave{i}")
    fit = ss.fit(kind, y)
    assert fit.gradient < 1e-8 and fit.report().startswith("compiled filter")
    assert (np.diagonal(fit.smoothed.cov, axis1=1, axis2=2) > -1e-15).all()
    np.testing.assert_allclose(fit.filtered.loglik_terms.sum(), fit.loglik, rtol=1e-8)
    assert np.isfinite(fit.standardised[fit.filtered.diffuse_steps :]).all()


def test_states_with_names():
    """Of a model of one's own they are its components, with a picture."""
    y = series(60)
    names = ["level", "slope"]
    build = lambda p: replace(ss.local_linear_trend(p["a"], p["b"], 0.01), state_names=names)
    fit = ss.fit(build, y, {"a": 0.1, "b": 0.1}, ss.positive())
    parts = fit.components()
    assert list(parts) == names
    np.testing.assert_array_equal(parts["slope"].mean, fit.smoothed.mean[:, 1])
    figure = fit.plot_components()
    assert [axis.get_ylabel() for axis in figure.axes] == names
    with pytest.raises(ShapeError, match="state_names.*wanted 2 names"):
        ss.loglik(replace(ss.local_linear_trend(1.0, 0.5, 0.1), state_names=["level"]), y)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", range(24))
def test_matrices_longer_than_the_data(seed):
    """Each that may vary over time, longer by some steps or not: the same as those of the right length."""
    g = np.random.default_rng(seed)
    m, n = int(g.integers(1, 3)), int(g.integers(3, 45))
    y, first = missing(g.normal(size=n), g.integers(0, n)), bool(g.random() < 0.5)
    shapes = {
        "transition": (m, m),
        "observation": (1, m),
        "transition_cov": (m, m),
        "observation_cov": (1, 1),
        "selection": (m, m),
    }
    shapes |= {"transition_offset": (m,), "observation_offset": (1,)}
    fields = {name: g.normal(size=(n + 5, *shape)) * 0.5 for name, shape in shapes.items()}
    for name in ("transition_cov", "observation_cov"):
        fields[name] = fields[name] @ fields[name].transpose(0, 2, 1) + np.eye(shapes[name][0])
    vary = {name: g.random() < 0.5 for name in shapes}
    of = lambda cut: {
        name: (x[: n if cut else n + int(g.integers(0, 6))] if vary[name] else x[0])
        for name, x in fields.items()
    }
    start = ss.Start(diffuse=bool(g.random() < 0.5), cov=1.0, predict_first=first)
    wanted, found = (ss.LinearGaussian(**of(cut), start=start) for cut in (True, False))
    for call in (ss.loglik, lambda m, y: ss.filter(m, y).filtered_mean, lambda m, y: ss.smooth(m, y).mean):
        np.testing.assert_allclose(call(found, y), call(wanted, y), rtol=1e-12)


def level_and_cycle(t):
    T = np.array([[1.0, 0], [0, 0]]) + np.array([[0, 0], [0, 1.0]]) * (0.5 + 0.1 * t[2])
    start = ss.Start(np.zeros(2), np.diag([0, 2.0]), diffuse=[True, False])
    return ss.LinearGaussian(
        T, np.ones((1, 2)), transition_cov=np.exp(t[:2]), observation_cov=np.array([0.1]), start=start
    )


def arma12(t):
    T = np.array([[0.5, 1, 0], [0, 0, 1], [0, 0, 0]]) + np.diag([1.0, 0, 0]) * 0.1 * t[0]
    r = np.concatenate([np.ones(1), 0.2 + 0.1 * t[1:3]])
    Q, start = np.outer(r, r), ss.Start(stationary=True)
    return ss.LinearGaussian(T, np.eye(3)[:1], transition_cov=Q, observation_cov=np.array([0.1]), start=start)


def ar4(t):
    T = np.concatenate([np.concatenate([0.3 + 0.05 * t[:2], np.zeros(2)])[None], np.eye(4)[:3]])
    Q, start = np.diag([1.0, 0, 0, 0]) * np.exp(t[2]), ss.Start(stationary=True)
    return ss.LinearGaussian(T, np.eye(4)[:1], transition_cov=Q, observation_cov=np.array([0.1]), start=start)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("steps", [8, 60])
@pytest.mark.parametrize("model", [level_and_cycle, arma12, ar4])
def test_transitions_that_differ_between_samples(model, steps):
    y = 0.3 * np.cumsum(np.random.default_rng(0).normal(size=steps))
    X = 0.2 * np.arange(12.0).reshape(4, 3) - 0.5
    f = lambda t: ss.loglik(model(t), y)
    np.testing.assert_allclose(tg.vmap(f)(X), [f(x) for x in X], rtol=1e-9)
    np.testing.assert_allclose(tg.vmap(tg.grad(f))(X), [tg.grad(f)(x) for x in X], rtol=1e-7, atol=1e-9)


def test_samples_without_a_stationary_state_are_nan():
    f = lambda t: ss.loglik(ar4(t), np.ones(9))
    found = tg.vmap(f)(np.array([[0.0, 0, 0], [20.0, 0, 0]]))
    np.testing.assert_allclose(found, [f(np.zeros(3)), np.nan], rtol=1e-9)


def test_an_unseen_diffuse_state_of_samples_raises():
    def f(t):
        T = np.eye(2) * (1 + 0.1 * t)
        return ss.loglik(
            ss.LinearGaussian(T, np.array([[1.0, 0]]), transition_cov=np.ones(2), observation_cov=1.0,
                              start=ss.Start(diffuse=True)), np.ones(5))  # fmt: skip

    with pytest.raises(ArgumentError, match="vmap: no observation tells of .* state 1"):
        tg.vmap(f)(np.arange(3.0))
