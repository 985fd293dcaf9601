import networkx
import numpy as np
import sympy
from pyriemann.estimation import Covariances
from pyriemann.tangentspace import TangentSpace
from pyriemann.utils.distance import distance_riemann
from pyriemann.utils.geodesic import geodesic_riemann
from pyriemann.utils.mean import mean_logeuclid, mean_riemann

v = np.array([0.5, 1.2, 0.8])
fixed = np.array([[2.0, 0.3, 0.1], [0.3, 1.5, 0.2], [0.1, 0.2, 1.0]])
signals = np.sin(np.arange(60.0)).reshape(1, 3, 20)
a, b = sympy.symbols("a b")
lambdified = sympy.lambdify((a, b), sympy.exp(-a) * sympy.besselj(0, b) + sympy.gamma(a + b))


def matrix(x):
    return fixed + np.diag(x) + 0.1 * np.outer(x, x)


def distance(x):
    return distance_riemann(matrix(x), fixed)


def geodesic(x):
    return geodesic_riemann(matrix(x), fixed, 0.3)


def mean(x):
    return mean_riemann(np.stack([matrix(x), fixed, np.eye(3)]), tol=1e-12)


def log_mean(x):
    return mean_logeuclid(np.stack([matrix(x), fixed]))


def covariances(x):
    return Covariances("oas").transform(signals * x[:, None])


def tangents(x):
    return TangentSpace().fit(np.stack([fixed, np.eye(3)])).transform(matrix(x)[None])


def formula(x):
    return lambdified(x[0], x[1])


def path_length(x):
    graph = networkx.DiGraph()
    graph.add_weighted_edges_from([(0, 1, x[0]), (1, 2, x[1]), (0, 2, x[2] + 5)])
    return networkx.shortest_path_length(graph, 0, 2, weight="weight")


CALLS = [
    (f, v) for f in (distance, geodesic, mean, log_mean, covariances, tangents, formula, path_length)
]  # fmt: skip
