"""Colours, fatigue, formulas, kernels, networks, orbits, spectra and random processes."""

import hsluv
import numpy as np
import rainflow
from asteval import Interpreter
from equadratures import Parameter
from himalaya.kernel_ridge import Kernelizer, KernelRidge, polynomial_kernel, rbf_kernel
from himalaya.ridge import Ridge
from himalaya.scoring import correlation_score, r2_score
from jenn.core import activation, cost, parameters
from nmrsim import SpinSystem, math
from nmrsim.discrete import AB, ABX
from orbit_predictor import coordinate_systems, keplerian
from pyglmnet import GLM, simulate_glm
from squaternion import Quaternion
from stochastic.processes.continuous import BrownianMotion
from stochastic.processes.diffusion import CoxIngersollRossProcess

rng = np.random.default_rng(15)
A = rng.normal(size=(12, 3))
Y = A @ np.array([0.5, -1.0, 0.3]) + 0.1 * rng.normal(size=12)
LOADS = rng.normal(size=20)


def hue_of(x):
    return np.array(hsluv.rgb_to_hsluv(list(x)))


def colour_of(x):
    return np.array(hsluv.hpluv_to_rgb([100 * x[0], 20 * x[1], 50 * x[2]]))


def fatigue(x):
    """Miner's sum over the cycles of a history of loads."""
    loads = x[0] * LOADS + x[1] * np.sin(np.arange(20.0))
    return sum([n * size ** (2.0 + x[2]) for size, _, n, _, _ in rainflow.extract_cycles(loads)])


def formula(x):
    aeval = Interpreter()
    aeval.symtable["a"], aeval.symtable["b"] = x[0], x[1]
    aeval.symtable["t"] = np.linspace(0.0, 2.0, 5)
    return aeval("a*exp(-b*t) + sqrt(a + t)")


def procedure(x):
    aeval = Interpreter(user_symbols={"p": x})
    aeval(
        "def value(t, k=2):\n    total = 0\n    for i in range(k):\n        total += p[i]*t**i\n    return total"
    )
    return aeval("value(0.7) + value(1.3, 3)")


def kernel(x):
    k = rbf_kernel(A * x[:3], gamma=0.3 * x[3])
    return k[0] + polynomial_kernel(A * x[:3], gamma=0.1, coef0=x[3])[1]


def kernel_ridge(x):
    model = KernelRidge(alpha=x[0], kernel="rbf", kernel_params={"gamma": 0.2 * x[1]}).fit(A, Y)
    return model.predict(A[:4] + 0.1)


def kernelized(x):
    return Kernelizer(kernel="polynomial", kernel_params={"gamma": 0.2, "degree": 2}).fit_transform(A[:4] * x)


def ridge(x):
    return Ridge(alpha=x[0], fit_intercept=True).fit(A, Y * x[1]).coef_


def scores(x):
    predicted = np.stack([A @ x, A[::-1] @ x], axis=1)
    wanted = np.stack([Y, Y[::-1]], axis=1)
    return r2_score(wanted, predicted) + correlation_score(wanted, predicted)


def predicted_rates(x):
    glm = GLM(distr="softplus", fit_intercept=True)
    glm.beta0_, glm.beta_ = x[0], x[1:]
    return glm.predict(A)


def deviance(x):
    glm = GLM(distr="poisson", score_metric="deviance")
    glm.beta0_, glm.beta_, glm.ynull_ = x[0], x[1:], 1.0
    return glm.score(A, np.arange(12.0) % 4)


def rates(x):
    return simulate_glm("poisson", x[0], x[1:], A, sample=False)


def network(x):
    net = parameters.Parameters([1, 3, 1])
    net.initialize(1)
    flat = net.stack()[:4]
    return activation.Tanh.evaluate(flat * x[0]) + activation.Tanh.first_derivative(flat * x[1])


def squared_cost(x):
    return cost.SquaredLoss(Y[None, :], np.ones((1, 12))).evaluate((A @ x)[None, :])


def uncertain_input(x):
    law = Parameter(distribution="gaussian", shape_parameter_A=x[0], shape_parameter_B=x[1], order=3)
    return law.get_pdf(np.array([0.1, 0.7]))


def quaternion(x):
    return np.array([*(Quaternion(*x).normalize * Quaternion.from_euler(x[1], x[2], x[3]))])


def euler_angles(x):
    return np.array(Quaternion(*x).normalize.to_euler())


def kepler_orbit(x):
    r, v = keplerian.coe2rv(398600.4, 7000.0 * x[0], 0.1 * x[1], 0.5 * x[2], 0.3, 0.7, x[3])
    return np.concatenate([r / 1e3, v])


def elements(x):
    return np.array(keplerian.rv2coe(398600.4, 1e3 * x[:3], x[3:]))


def geodetic(x):
    return np.array(coordinate_systems.ecef_to_llh(tuple(1e3 * x)))


def on_the_sky(x):
    return np.array(
        coordinate_systems.horizon_to_az_elev(
            *coordinate_systems.to_horizon(x[0], x[1], 6e3 * x[2:5], 7e3 * x[2:5])
        )
    )


def quartet(x):
    return np.array(AB(10 * x[0], 20 * x[1], 100 * x[2])).ravel()


def three_spins(x):
    return np.array(ABX(8 * x[0], 7 * x[1], 12 * x[0], 15 * x[2], 30.0, 120 * x[1])).ravel()


def spin_system(x):
    system = SpinSystem(
        [100 * x[0], 150 * x[1]], np.array([[0.0, 7.0], [7.0, 0.0]]) * x[2], second_order=False
    )
    return np.array(system.peaklist()).ravel()


def line_shape(x):
    peaks = [(10 * x[0], x[1]), (12.0, x[2])]
    return math.add_lorentzians(np.linspace(5.0, 15.0, 7), peaks, 0.8 * x[3])


def brownian(x):
    process = BrownianMotion(drift=x[0], scale=x[1], t=2, rng=np.random.default_rng(3))
    return process.sample(4)


def square_root_process(x):
    process = CoxIngersollRossProcess(
        speed=x[0], mean=x[1], vol=0.1 * x[2], t=1, rng=np.random.default_rng(3)
    )
    return process.sample(5, initial=1.0)


CALLS = [
    (hue_of, [0.3, 0.6, 0.8]),
    (colour_of, [0.7, 2.1, 1.2]),
    (fatigue, [1.2, 0.7, 1.1]),
    (formula, [1.3, 0.7]),
    (procedure, [0.5, 1.2, -0.4]),
    (kernel, [0.8, 1.1, 0.6, 0.9]),
    (kernel_ridge, [0.5, 1.2]),
    (kernelized, [0.8, 1.1, 0.6]),
    (ridge, [0.7, 1.3]),
    (scores, [0.4, -0.8, 0.5]),
    (predicted_rates, [0.2, 0.5, -0.3, 0.4]),
    (deviance, [0.2, 0.5, -0.3, 0.4]),
    (rates, [0.2, 0.5, -0.3, 0.4]),
    (network, [0.8, 1.3]),
    (squared_cost, [0.4, -0.8, 0.5]),
    (uncertain_input, [0.4, 1.3]),
    (quaternion, [0.8, 0.3, -0.4, 0.5]),
    (euler_angles, [0.8, 0.3, -0.4, 0.5]),
    (kepler_orbit, [1.1, 0.8, 1.3, 0.9]),
    (elements, [6.5, 2.1, 3.2, -2.3, 6.8, 1.9]),
    (geodetic, [4.1, 2.3, 4.4]),
    (on_the_sky, [0.5, 0.8, 0.9, 0.3, 0.4]),
    (quartet, [0.9, 1.2, 1.4]),
    (three_spins, [0.9, 1.2, 1.1]),
    (spin_system, [1.1, 1.3, 0.9]),
    (line_shape, [0.9, 1.2, 0.8, 1.1]),
    (brownian, [0.4, 1.2]),
    (square_root_process, [0.9, 1.2, 1.1]),
]
