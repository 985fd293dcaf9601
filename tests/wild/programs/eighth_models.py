import chaospy as cp
import numpy as np
import pandas as pd
import semopy
import symfit
from pygsp import filters, graphs, learning
from symfit.core.objectives import LeastSquares, LogLikelihood

rng = np.random.default_rng(3)
factor = rng.normal(size=60)
table = pd.DataFrame({f"y{k}": (0.5 + 0.2 * k) * factor + rng.normal(size=60) for k in range(4)})
table["z"] = 0.7 * factor + rng.normal(size=60)
MODEL = "eta =~ y0 + y1 + y2 + y3\nz ~ eta"


def structural(objective):
    def discrepancy(x):
        model = semopy.Model(MODEL)
        model.load(table)
        if objective == "fiml":
            model.prepare_fiml()
        return getattr(model, f"obj_{objective}")(x)

    discrepancy.__name__ = f"structural_{objective}"
    return discrepancy


def implied_covariance(x):
    model = semopy.Model(MODEL)
    model.load(table)
    model.update_matrices(x)
    return model.calc_sigma()[0]


def gradient_of_likelihood(x):
    model = semopy.Model(MODEL)
    model.load(table)
    return model.grad_mlw(x)


a, b, t, y = *symfit.parameters("a, b"), *symfit.variables("t, y")
decay = symfit.Model({y: a * symfit.exp(-b * t)})
points = np.linspace(0, 3, 7)


def evaluated(x):
    return decay(t=points, a=x[0], b=x[1]).y


def residuals(x):
    objective = LeastSquares(
        decay, data={t: points, y: 2 * np.exp(-0.9 * points) + 0.1, decay.sigmas[y]: np.ones(7)}
    )
    return objective(a=x[0], b=x[1])


def log_likelihood(x):
    density = symfit.Model({y: symfit.exp(-t / a) / a})
    return LogLikelihood(density, data={t: points})(a=x[0])


def kinetics(x):
    (p, q), (k, s) = symfit.variables("p, q"), symfit.parameters("k, s")
    model = symfit.ODEModel(
        {symfit.D(p, t): -k * p, symfit.D(q, t): k * p - s * q}, initial={t: 0.0, p: 1.0, q: 0.0}
    )
    return np.concatenate(model(t=points, k=x[0], s=x[1]))


def densities(x):
    d = cp.J(cp.Normal(x[0], 1.3), cp.Gamma(x[1], 0.7))
    return d.pdf(np.array([[0.2, 0.5], [0.7, 1.1]]))


def inverse_transform(x):
    d = cp.J(cp.Normal(x[0], 1.3), cp.Beta(2.0, x[1]))
    return d.inv(np.array([[0.2, 0.5], [0.7, 0.4]]))


def chaos_mean(x):
    d = cp.Uniform(-1, 2)
    expansion = cp.generate_expansion(3, d)
    nodes, weights = cp.generate_quadrature(4, d, rule="gaussian")
    model = cp.fit_quadrature(expansion, nodes, weights, np.exp(-x[0] * nodes[0]) + x[1] * nodes[0])
    return np.array([cp.E(model, d), cp.Var(model, d)])


def regression(x):
    d = cp.Normal(0, 1)
    expansion = cp.generate_expansion(2, d)
    samples = d.sample(9, rule="halton")
    model = cp.fit_regression(expansion, samples, np.sin(x[0] * samples) + x[1])
    return model(np.array([0.1, 0.7]))


def sobol(x):
    d = cp.J(cp.Uniform(0, 1), cp.Uniform(0, 1))
    q0, q1 = cp.variable(2)
    return cp.Sens_m(x[0] * q0 + x[1] * q0 * q1 + q1, d)


def moments(x):
    return np.array([cp.Normal(x[0], x[1]).mom(3), cp.Uniform(x[0], x[0] + x[1]).mom(2)])


G = graphs.Ring(N=12)
G.compute_fourier_basis()


def fourier(x):
    return np.abs(G.gft(x)) ** 2


def heat(x):
    return filters.Heat(G, scale=x[0]).filter(x[1:], method="exact")


def chebyshev(x):
    return filters.Expwin(G, band_max=0.6).filter(x, method="chebyshev", order=15)


def smoothness(x):
    return G.dirichlet_energy(x)


def tikhonov(x):
    mask = np.arange(12) % 3 > 0
    return learning.regression_tikhonov(G, x, mask, tau=0.7)


def weighted_graph(x):
    points = np.reshape(x, (6, 2))
    weights = np.exp(-np.sum((points[:, None] - points[None]) ** 2, axis=-1)) * (1 - np.eye(6))
    g = graphs.Graph(weights)
    return g.L.toarray()


signal = np.cos(1.7 * np.arange(12.0) ** 1.3)
start = np.array([0.9, 1.2, 1.1, 0.8, 0.7, 1.1, 0.9, 1.0, 1.2, 0.8])
CALLS = [
    (structural("mlw"), start),
    (structural("uls"), start),
    (structural("gls"), start),
    (structural("fiml"), start),
    (implied_covariance, start),
    (gradient_of_likelihood, start),
    (evaluated, np.array([2.0, 0.9])),
    (residuals, np.array([2.0, 0.9])),
    (log_likelihood, np.array([1.4])),
    (kinetics, np.array([0.8, 0.3])),
    (densities, np.array([0.3, 1.7])),
    (inverse_transform, np.array([0.3, 1.7])),
    (chaos_mean, np.array([0.3, 1.7])),
    (regression, np.array([0.3, 1.7])),
    (sobol, np.array([0.3, 1.7])),
    (moments, np.array([0.3, 1.7])),
    (fourier, signal),
    (heat, np.array([0.9, *signal])),
    (chebyshev, signal),
    (smoothness, signal),
    (tikhonov, signal),
    (weighted_graph, signal),
]
