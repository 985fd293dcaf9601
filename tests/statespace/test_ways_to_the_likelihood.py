"""The objective of a fit by each of its ways, against the filter on arrays, step by step."""

import numpy as np
import pytest
import scipy.linalg

import tapegrad as tg
from tapegrad import statespace as ss
from tapegrad.errors import NotPositiveDefiniteError
from tapegrad.optimize import Objective
from tapegrad.statespace import Observations
from tapegrad.statespace._objective import AffineObjective, CompiledObjective, ModelObjective
from tapegrad.statespace._parameters import Parameters
from tapegrad.statespace.filters.diffuse_start import loglik_on_arrays
from tapegrad.statespace.filters.regressed_start import RegressedPhase
from tapegrad.statespace.models.arima import state_covariance

Y = np.random.default_rng(0).normal(size=(60, 2)).cumsum(axis=0)[:, 0]
LEVEL = {"noise": 1.0, "level": 0.5}


def assert_as_on_arrays(ours, build, parameters, data, points, offset=0.0):
    arrays = Objective(
        lambda u, build: -loglik_on_arrays(build(parameters.tree(u)), data) - offset,
        parameters.start,
        (build,),
    )
    for u in points:
        (v, g), (w, h) = ours(u), arrays(u)
        H, K = ours.hessian(u), arrays.hessian(u)
        np.testing.assert_allclose(v, w, rtol=1e-10)
        np.testing.assert_allclose(g, h, rtol=0, atol=1e-9 * max(1.0, abs(h).max()))
        np.testing.assert_allclose(H, K, rtol=0, atol=1e-8 * max(1.0, abs(K).max()))


def objective_of(build, start, constraints=None, y=Y):
    parameters, data = Parameters(start, constraints), Observations(y)
    return ModelObjective(build, data, parameters), parameters, data


AFFINE = {
    "level": lambda p: ss.local_level(p["noise"], p["level"]),
    "scaled and shifted": lambda p: ss.local_level(3.0 * p["noise"] + p["level"], p["level"] + 0.1),
    "stopped": lambda p: ss.local_level(p["noise"], p["level"] + 0.0 * tg.value(p["level"])),
}


@pytest.mark.parametrize("name", AFFINE)
def test_affine_models_take_no_tape(name):
    build = AFFINE[name]
    ours, parameters, data = objective_of(build, LEVEL, ss.positive())
    points = [parameters.start, np.array([-1.0, 0.7]), np.array([0.3, -9.0])]
    assert isinstance(ours.whole, AffineObjective)
    assert_as_on_arrays(ours, build, parameters, data, points)
    assert isinstance(ours.whole, AffineObjective)


NOT_AFFINE = {
    "piecewise": lambda p: ss.local_level(np.maximum(p["noise"], 0.5), p["level"]),
    "branch": lambda p: ss.local_level(p["noise"] if p["noise"] > 0.5 else 0.5 + 0 * p["noise"], p["level"]),
    "square": lambda p: ss.local_level(p["noise"] ** 2, p["level"]),
    "stopped": lambda p: ss.local_level(p["noise"], tg.value(p["level"])),
}


@pytest.mark.parametrize("name", NOT_AFFINE)
def test_a_model_that_is_affine_near_the_start_alone(name):
    """A point where the numbers are not those of the affine map ends its use."""
    build = NOT_AFFINE[name]
    ours, parameters, data = objective_of(build, LEVEL, ss.positive())
    for u in (parameters.start, np.array([-3.0, 0.7]), np.array([0.4, 0.4])):
        assert_as_on_arrays(ours, build, parameters, data, [u])
    assert ours.whole is None


def test_many_series_of_a_model_that_is_affine_in_pieces():
    rng = np.random.default_rng(1)
    Y = np.stack([rng.normal(size=60).cumsum() + s * rng.normal(size=60) for s in (0.01, 2.0, 1.0, 0.02)])
    build = lambda p: ss.local_level(np.maximum(p["noise"], 0.5), p["level"])
    many = ss.fit_many(build, Y, LEVEL, ss.positive())
    for b in (1, 2):
        one = ss.fit(build, Y[b], LEVEL, ss.positive())
        np.testing.assert_allclose(many.loglik[b], one.loglik, rtol=1e-9)
        np.testing.assert_allclose(many.standard_errors[b], one.standard_errors, rtol=1e-5)
    for b in np.flatnonzero(many.converged):  # the value is that of the model itself
        p = dict(zip(LEVEL, many.estimates[b], strict=True))
        np.testing.assert_allclose(many.loglik[b], ss.loglik(build(p), Y[b]), rtol=1e-9)


SUMS = {
    "trend and ar(1)": ss.level(var=0) + ss.trend() + ss.ar(1) + ss.noise(var=0),
    "cycle": ss.level() + ss.cycle(period=(4, 30)),
    "season and ar(2)": ss.level() + ss.seasonal(4) + ss.ar(2),
}


@pytest.mark.parametrize("gap", [False, pytest.param(True, marks=pytest.mark.long)], ids=["", "gap"])
@pytest.mark.parametrize(
    "name", [next(iter(SUMS)), *[pytest.param(k, marks=pytest.mark.long) for k in list(SUMS)[1:]]]
)
def test_a_diffuse_start_beside_states_that_move(name, gap):
    y = Y.copy()
    if gap:
        y[[1, 20, 21]] = np.nan
    data = Observations(y)
    problem = SUMS[name].problem(data)
    ours, parameters = problem.objective(), problem.parameters
    if not (gap and name == "season and ar(2)"):  # there the first observations determine too little
        assert isinstance(ours.whole, CompiledObjective)
    rng = np.random.default_rng(2)
    points = [parameters.start, parameters.start + 0.3 * rng.normal(size=parameters.start.size)]
    assert_as_on_arrays(ours, problem.build, parameters, data, points)


@pytest.mark.long
def test_a_long_season_beside_states_that_move_is_not_traced():
    y = np.random.default_rng(3).normal(size=80).cumsum()
    data = Observations(y)
    problem = (ss.level() + ss.seasonal(12) + ss.ar(1)).problem(data)
    ours = problem.objective()
    assert ours.whole is None and ours.pattern.numbers.head.constants is not None
    assert_as_on_arrays(ours, problem.build, problem.parameters, data, [problem.parameters.start + 0.1])


def two_series(p):
    """A common walk, a slope of its own and a mean, in two series."""
    T = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    Z = np.array([[1.0, 0.0, 0.0], [0.5, 0.0, 1.0]])
    Q, H = np.stack([p["walk"], p["slope"], 0.0]), np.stack([p["noise"], 2.0 * p["noise"]])
    return ss.LinearGaussian(T, Z, Q, H)


WAVES = ss.level() + ss.seasonal(7) + ss.seasonal(91.3, harmonics=2)
REGRESSED = {"waves": 150, "all steps": 20, "gaps": 150, "walk": 60}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", REGRESSED)
def test_the_first_steps_of_waves_are_one_regression(name):
    """Value and derivatives without a tape are those of the filter on arrays, step by step."""
    n = REGRESSED[name]
    y = np.sin(np.arange(n) / 14.5) + np.random.default_rng(7).normal(size=n).cumsum() / 5
    if name == "gaps":
        y[[0, 3, 4, 17, 60]] = np.nan
    if name == "walk":
        other = 0.5 * y + np.random.default_rng(8).normal(size=n)
        other[[1, 2]] = np.nan
        build, data = two_series, Observations(np.stack([y, other], axis=1))
        parameters = Parameters(dict.fromkeys(("walk", "slope", "noise"), 0.5), ss.positive())
        ours = ModelObjective(build, data, parameters)
    else:
        problem = WAVES.problem(Observations(y))
        ours, build, parameters, data = problem.objective(), problem.build, problem.parameters, problem.data
    assert isinstance(ours.pattern.numbers.head, RegressedPhase) and isinstance(ours.whole, AffineObjective)
    assert (ours.pattern.numbers.head.steps == data.steps) == (name == "all steps")
    points = [parameters.start, parameters.start + 0.4 * np.cos(np.arange(parameters.start.size))]
    assert_as_on_arrays(ours, build, parameters, data, points)
    assert isinstance(ours.whole, AffineObjective)


def test_a_regression_that_loses_digits_reads_more_steps():
    """At other variances the first steps do not determine the waves well: the regression grows."""
    y = np.sin(np.arange(200) / 14.5) + np.random.default_rng(7).normal(size=200) / 5
    problem = WAVES.problem(Observations(y))
    ours, parameters = problem.objective(), problem.parameters
    before = ours.pattern.numbers.head.steps
    far = parameters.start + np.where([n.startswith("sigma2.level") for n in parameters.names], 9.0, -9.0)
    assert_as_on_arrays(ours, problem.build, parameters, problem.data, [far])
    assert ours.pattern.numbers.head.steps > before


def test_the_covariance_of_the_states_of_a_process():
    rng = np.random.default_rng(4)
    for _ in range(60):
        p, q = rng.integers(0, 4), rng.integers(0, 15)
        phi = ss.stationary().natural(0.8 * rng.normal(size=p)) if p else np.zeros(0)
        model = ss.arma(phi, theta := rng.normal(size=q))
        wanted = scipy.linalg.solve_discrete_lyapunov(model.transition, model.selection @ model.selection.T)
        found = state_covariance(phi, theta)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-9 * abs(wanted).max())
    with pytest.raises(NotPositiveDefiniteError, match=r"\[1\.2\] are not those of a stationary process"):
        state_covariance(np.array([1.2]), np.zeros(1))


@pytest.mark.parametrize("order", [(1, 0, 1), pytest.param((2, 0, 3), marks=pytest.mark.long)], ids=str)
def test_processes_that_may_leave_the_stationary_region(order):
    """With free coefficients the kernel has no likelihood there."""
    specified = ss.sarimax(Y[:50] - 0.9 * np.r_[0.0, Y[:49]], order)
    problem = specified.model.problem(specified.data, None, {"ar": ss.unconstrained()}, False, None)
    ours, parameters = problem.objective(), problem.parameters
    assert isinstance(ours.whole, CompiledObjective)
    assert_as_on_arrays(ours, problem.build, parameters, specified.data, [parameters.start + 0.05])
    outside = parameters.start.copy()
    outside[:1] = 1.3
    assert ours(outside)[0] == np.inf
