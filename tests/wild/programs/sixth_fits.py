import numdifftools as nd
import numdifftools.fornberg as fornberg
import numpy as np
from spotpy import likelihoods, objectivefunctions, signatures

rng = np.random.default_rng(5)
flow = np.array([3.1, 4.2, 2.7, 6.0, 5.1, 3.9])
seen = flow * 1.1 + 0.3 * np.sin(np.arange(6.0))


def kling_gupta(x):
    return objectivefunctions.kge(seen, x)


def nash(x):
    return np.stack([objectivefunctions.nashsutcliffe(seen, x), objectivefunctions.lognashsutcliffe(seen, x)])


def errors(x):
    o = objectivefunctions
    return np.stack([o.rmse(seen, x), o.mae(seen, x), o.pbias(seen, x), o.rsr(seen, x), o.rrmse(seen, x)])


def agreement(x):
    return np.stack([objectivefunctions.agreementindex(seen, x), objectivefunctions.rsquared(seen, x)])


def likelihood(x):
    return likelihoods.gaussianLikelihoodMeasErrorOut(seen, x)


def heteroscedastic(x):
    return likelihoods.logLikelihood(seen, x)


def mean_flow(x):
    return signatures.get_mean(x)


def derivative(x):
    return nd.Derivative(lambda t: np.exp(0.1 * t * x[0]) * x[1], n=1)(1.0)


def gradient(x):
    return nd.Gradient(lambda p: np.sum(x[:2] * p**2) + x[2] * p[0] * p[1])([1.0, 2.0])


def hessian(x):
    return nd.Hessian(lambda p: x[0] * p[0] ** 2 * p[1] + x[1] * np.cos(p[1]))([1.0, 0.5])


def complex_step(x):
    return nd.Jacobian(lambda p: np.stack([x[0] * np.sin(p[0]), x[1] * p[0] * p[1]]), method="complex")(
        [1.0, 2.0]
    )


def weights(x):
    return fornberg.fd_weights(np.cumsum(x[:4]), x[0] + 0.5, n=1)


CALLS = [
    (f, flow)
    for f in (
        kling_gupta, nash, errors, agreement, likelihood, heteroscedastic, mean_flow, derivative, gradient, hessian,
        complex_step, weights,
    )
]  # fmt: skip
