"""Ratings of players, maps, registered points, tensor trains, quantum states, copulas, geometric algebra."""

import clifford.g3
import composition_stats
import copulae
import fatpack
import findiff
import kalepy
import numpy as np
import openskill.models
import stockstats
import teneva
import toqito.channels
import toqito.state_metrics
import toqito.state_props
import trueskill
import uqtestfuns
from blackscholes import BlackScholesCall, BlackScholesPut
from lapy import Polygon, TriaMesh
from minisom import MiniSom
from pandas import DataFrame
from pycpd import AffineRegistration, RigidRegistration

POINT = np.array([1.1, 0.9, 1.2])
CLOUD = np.random.default_rng(17).standard_normal((12, 2))
UNIT = np.random.default_rng(18).uniform(0.1, 0.9, (6, 2))
TETRAHEDRON = (
    np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]),
    np.array([[0, 2, 1], [0, 1, 3], [1, 2, 3], [0, 3, 2]]),
)


def skill_of_two(x):
    one, two = trueskill.rate_1vs1(trueskill.Rating(25 * x[0], 8 * x[1]), trueskill.Rating(30 * x[2], 7.0))
    return np.array([one.mu, one.sigma, two.mu, two.sigma])


def match_quality(x):
    return trueskill.quality_1vs1(trueskill.Rating(25 * x[0], 8 * x[1]), trueskill.Rating(30 * x[2], 7.0))


def plackett_luce(x):
    model = openskill.models.PlackettLuce()
    teams = [[model.rating(25 * x[0], 8 * x[1])], [model.rating(28 * x[2], 7.0)]]
    return np.array([p for team in model.rate(teams) for r in team for p in (r.mu, r.sigma)])


def bradley_terry(x):
    model = openskill.models.BradleyTerryFull()
    teams = [[model.rating(25 * x[0], 8 * x[1])], [model.rating(28 * x[2], 7.0)]]
    return np.array(model.predict_win(teams))


def option_greeks(x):
    call = BlackScholesCall(S=55 * x[0], K=50.0, T=x[1], r=0.02, sigma=0.2 * x[2], q=0.01)
    return np.array(list(call.get_all_greeks().values()))


def put_option(x):
    put = BlackScholesPut(S=55 * x[0], K=50.0, T=x[1], r=0.02, sigma=0.2 * x[2])
    return np.array([put.price(), put.delta(), put.vanna(), put.lambda_greek()])


def map_of_colours(x):
    som = MiniSom(3, 3, 2, sigma=1.0, learning_rate=0.5 * x[0], random_seed=1)
    som.train(CLOUD * x[1], 20)
    return som.get_weights().ravel()


def quantisation(x):
    som = MiniSom(3, 3, 2, random_seed=1)
    return som.quantization_error(CLOUD * x[0] + x[1])


def rigid_points(x):
    turn = np.array([[np.cos(0.2 * x[0]), -np.sin(0.2 * x[0])], [np.sin(0.2 * x[0]), np.cos(0.2 * x[0])]])
    moved, (scale, rotation, shift) = RigidRegistration(
        X=CLOUD, Y=CLOUD @ turn + 0.1 * x[1], max_iterations=8
    ).register()
    return np.concatenate([moved.ravel(), [scale], rotation.ravel(), shift.ravel()])


def affine_points(x):
    return AffineRegistration(X=CLOUD, Y=CLOUD * x + 0.1, max_iterations=5).register()[0].ravel()


def tensor_train(x):
    full = np.sin(x[0] * np.arange(24.0).reshape(2, 3, 4)) + x[1]
    return teneva.full(teneva.svd(full, e=1e-12)).ravel()


def train_products(x):
    train = [x[0] * np.ones((1, 3, 2)), np.cos(x[1] * np.arange(12.0)).reshape(2, 3, 2), np.ones((2, 3, 1))]
    return np.array([teneva.norm(train), teneva.sum(teneva.mul(train, train)), teneva.mean(train)])


def chebyshev_train(x):
    train = [
        np.sin(x[0] * np.arange(4.0) + 1).reshape(1, 4, 1),
        np.cos(x[1] * np.arange(4.0)).reshape(1, 4, 1),
    ]
    return teneva.func_get(np.array([[0.2, 0.3], [0.5, -0.4]]), teneva.func_int(train), -1.0, 1.0)


def state_entropy(x):
    state = np.outer([x[0], x[1], 0.3, 0.5], [x[0], x[1], 0.3, 0.5]) + np.diag([0.3, 0.2, 0.5, 0.4])
    state = state / np.trace(state)
    return np.array([toqito.state_props.von_neumann_entropy(state), toqito.state_props.purity(state)])


def state_distances(x):
    one, two = (
        np.diag([0.5 * x[0], 0.4]) + 0.1 * np.eye(2)[::-1],
        np.diag([0.3, 0.6 * x[1]]) + 0.05 * np.eye(2)[::-1],
    )
    one, two = one / np.trace(one), two / np.trace(two)
    return np.array([toqito.state_metrics.trace_distance(one, two), toqito.state_metrics.fidelity(one, two)])


def damped_state(x):
    state = np.array([[0.5, 0.3 * x[0]], [0.3 * x[0], 0.5]])
    return toqito.channels.amplitude_damping(state, gamma=0.3 * x[1], prob=0.8).real.ravel()


def entanglement(x):
    vector = np.array([x[0], 0.0, 0.0, x[1]]) / np.sqrt(x[0] ** 2 + x[1] ** 2)
    state = 0.9 * np.outer(vector, vector) + 0.1 * np.diag([0.4, 0.1, 0.2, 0.3])
    return np.array([toqito.state_props.negativity(state), toqito.state_props.concurrence(state)])


def clayton_density(x):
    return copulae.ClaytonCopula(2 * x[0], dim=2).pdf(UNIT * x[1])


def gaussian_copula(x):
    copula = copulae.GaussianCopula(dim=2)
    copula.params = np.array([0.5 * x[0]])
    return copula.pdf(UNIT * x[1], log=True)


def rotated_vector(x):
    e1, e2, e3 = clifford.g3.e1, clifford.g3.e2, clifford.g3.e3
    vector = x[0] * e1 + x[1] * e2 + 0.5 * e3
    rotor = (x[2] * (e1 ^ e2)).exp()
    return np.array((rotor * vector * ~rotor).value)


def derivatives_on_grid(x):
    at = np.linspace(0.0, 1.0, 12)
    return findiff.FinDiff(0, at[1] - at[0], 2, acc=4)(np.exp(x[0] * at) * x[1])


def density_of_samples(x):
    return kalepy.density(CLOUD[:, 0] * x[0], points=np.array([-0.5, 0.2, 0.9]) * x[1])[1]


def mesh_measures(x):
    vertices, faces = TETRAHEDRON
    mesh = TriaMesh(vertices * x, faces)
    return np.concatenate([[mesh.area(), mesh.volume()], mesh.tria_areas(), mesh.vertex_normals().ravel()])


def polygon_measures(x):
    polygon = Polygon(np.array([[0.0, 0.0], [2 * x[0], 0.1], [1.5, x[1]], [0.2, 1.0]]), closed=True)
    return np.array([polygon.length(), polygon.area(), *polygon.centroid()])


def composition(x):
    parts = composition_stats.closure(np.array([[0.2, 0.3, 0.5], [0.4, 0.4, 0.2]]) * x)
    return np.concatenate([composition_stats.ilr(parts).ravel(), composition_stats.power(parts, 0.4).ravel()])


def endurance(x):
    curve = fatpack.LinearEnduranceCurve(90 * x[0])
    return np.log(curve.get_endurance(np.array([60.0, 120.0]) * x[1]))


def borehole(x):
    at = np.array([[0.1, 500.0, 80000.0, 1050.0, 80.0, 760.0, 1400.0, 10000.0]])
    return uqtestfuns.Borehole()(at * np.append(x, np.ones(5)))


def indicators(x):
    prices = np.array([10.0, 11.0, 10.5, 12.0, 11.7, 12.4, 12.1, 13.0, 12.5, 13.3]) * x
    table = stockstats.wrap(
        DataFrame({"close": prices, "high": prices + 0.5, "low": prices - 0.4, "open": prices, "volume": 1.0})
    )
    return np.concatenate(
        [table["close_5_sma"].to_numpy(), table["macd"].to_numpy(), table["atr_5"].to_numpy()]
    )


CALLS = [
    (skill_of_two, POINT), (match_quality, POINT), (plackett_luce, POINT), (bradley_terry, POINT), (option_greeks, POINT),
    (put_option, POINT), (map_of_colours, POINT[:2]), (quantisation, POINT[:2]), (rigid_points, POINT[:2]),
    (affine_points, POINT[:2]), (tensor_train, POINT[:2]), (train_products, POINT[:2]), (chebyshev_train, POINT[:2]),
    (state_entropy, POINT[:2]), (state_distances, POINT[:2]), (damped_state, POINT[:2]), (entanglement, POINT[:2]),
    (clayton_density, POINT[:2]), (gaussian_copula, POINT[:2]), (rotated_vector, POINT), (derivatives_on_grid, POINT[:2]),
    (density_of_samples, POINT[:2]), (mesh_measures, POINT), (polygon_measures, POINT[:2]), (composition, POINT),
    (endurance, POINT[:2]), (borehole, POINT), (indicators, 1 + 0.01 * np.cos(np.arange(10.0))),
]  # fmt: skip
