"""Programs that capture large objects: value and gradient over the plain call, and over the same arrays as
arguments.  A transform is made once and called again, as an optimiser calls it; the column "new" makes one
for each call.

    python benchmarks/captured.py [--save] [--quick] [--only programs]

Each program stands for a style of a package: a model with many parts of which a call reads a few.  `flat` is
the same computation as one function, which gets the arrays as arguments.  The goal of the library is a median
of 12 plain calls, and at most 5 times the call of the flat function."""

import functools
import inspect
import statistics
from collections import namedtuple
from dataclasses import dataclass, field

import _harness as bench
import numpy as np

import tapegrad as tg

rng = np.random.default_rng(0)
PROGRAMS = {}


def program(make):
    """`make()` gives (f, flat, arrays, x)."""
    PROGRAMS[make.__name__.replace("_", " ")] = make
    return make


# --- a likelihood made of channels, samples and modifiers (pyhf) ---


class Modifier:
    def __init__(self, name, index, width):
        self.name, self.index, self.width = name, index, width
        self.low, self.high = rng.uniform(0.8, 0.9, width), rng.uniform(1.1, 1.2, width)

    def factor(self, pars):
        a = pars[self.index]
        return np.where(a > 0, self.high**a, self.low ** (-a))


class Sample:
    def __init__(self, name, width, modifiers):
        self.name, self.nominal, self.modifiers = name, rng.uniform(5, 10, width), modifiers

    def expected(self, pars):
        rate = self.nominal
        for m in self.modifiers:
            rate = rate * m.factor(pars)
        return rate


class Channel:
    def __init__(self, name, samples):
        self.name, self.samples = name, samples

    def expected(self, pars):
        return sum([s.expected(pars) for s in self.samples])


class Likelihood:
    def __init__(self, channels):
        self.channels = {c.name: c for c in channels}
        self.data = {name: rng.poisson(20.0, 4).astype(float) for name in self.channels}

    def logpdf(self, name, pars):
        rate = self.channels[name].expected(pars)
        return np.sum(self.data[name] * np.log(rate) - rate)


@program
def likelihood_of_channels():
    channels = [
        Channel(f"c{i}", [Sample(f"s{j}", 4, [Modifier(f"m{k}", k, 4) for k in range(3)]) for j in range(3)])
        for i in range(50)
    ]
    model = Likelihood(channels)

    def f(x):
        return model.logpdf("c3", x)

    def flat(x, data, nominal, low, high):
        total = 0.0
        for n, lo, hi in zip(nominal, low, high, strict=True):
            for k in range(3):
                n = n * np.where(x[k] > 0, hi[k] ** x[k], lo[k] ** (-x[k]))
            total = total + n
        return np.sum(data * np.log(total) - total)

    samples = model.channels["c3"].samples
    arrays = (
        model.data["c3"],
        [s.nominal for s in samples],
        *[[[getattr(m, side) for m in s.modifiers] for s in samples] for side in ("low", "high")],
    )
    return f, flat, arrays, np.array([0.3, -0.2, 0.5])


# --- a regression model with mixins, cached properties and a data handler (statsmodels) ---


class DataHandler:
    def __init__(self, endog, exog, names):
        self.orig_endog, self.orig_exog = endog, exog
        self.endog, self.exog = np.asarray(endog), np.asarray(exog)
        self.names, self.missing = names, "none"
        self.history = [{"step": i, "trace": np.zeros(3)} for i in range(200)]


class Model:
    def __init__(self, endog, exog, **options):
        self.data = DataHandler(endog, exog, [f"x{i}" for i in range(exog.shape[1])])
        self.endog, self.exog = self.data.endog, self.data.exog
        self.options = options

    @property
    def nobs(self):
        return self.exog.shape[0]

    @functools.cached_property
    def weights(self):
        return np.ones(self.nobs)


class LikelihoodMixin:
    def loglike(self, params):
        return np.sum(self.loglikeobs(params))


class Link:
    def __call__(self, eta):
        return 1.0 / (1.0 + np.exp(-eta))


class Logit(LikelihoodMixin, Model):
    def __init__(self, endog, exog, link=None):
        super().__init__(endog, exog, link=link or Link())

    def predict(self, params, exog=None):
        exog = self.exog if exog is None else exog
        return self.options["link"](np.dot(exog, params))

    def loglikeobs(self, params):
        mean = self.predict(params)
        return self.weights * (self.endog * np.log(mean) + (1 - self.endog) * np.log(1 - mean))


def regression(built_inside):
    X = rng.normal(size=(200, 3))
    y = (rng.uniform(size=200) < 0.5).astype(float)
    model = Logit(y, X)

    def captured(x):
        return model.loglike(x)

    def built(x):
        return Logit(y, X).loglike(x)

    def flat(x, y, X):
        mean = 1.0 / (1.0 + np.exp(-np.dot(X, x)))
        return np.sum(np.ones(X.shape[0]) * (y * np.log(mean) + (1 - y) * np.log(1 - mean)))

    return built if built_inside else captured, flat, (y, X), np.array([0.1, -0.2, 0.3])


@program
def regression_model():
    return regression(False)


@program
def regression_built_inside():
    return regression(True)


# --- estimators with checked arguments (scikit-learn) ---


class Estimator:
    @classmethod
    def names(cls):
        return [p for p in inspect.signature(cls.__init__).parameters if p != "self"]

    def params(self):
        return {name: getattr(self, name) for name in self.names()}

    def check(self, X, ensure=True):
        X = np.asarray(X)
        if ensure and (X.ndim != 2 or not np.isfinite(X).all()):
            raise ValueError("X")
        return X


class Scaler(Estimator):
    def __init__(self, mean=True):
        self.mean = mean

    def fit(self, X):
        X = self.check(X)
        self.mean_, self.scale_ = X.mean(axis=0), X.std(axis=0)
        return self

    def transform(self, X):
        return (self.check(X) - self.mean_) / self.scale_


class Ridge(Estimator):
    def __init__(self, alpha=1.0):
        self.alpha = alpha

    def fit(self, X, y):
        X = self.check(X)
        self.coef_ = np.linalg.solve(X.T @ X + self.alpha * np.eye(X.shape[1]), X.T @ y)
        return self

    def predict(self, X):
        return self.check(X) @ self.coef_


class Pipeline(Estimator):
    def __init__(self, steps):
        self.steps = steps

    def fit(self, X, y):
        for _, step in self.steps[:-1]:
            X = step.fit(X).transform(X)
        self.steps[-1][1].fit(X, y)
        return self

    def predict(self, X):
        for _, step in self.steps[:-1]:
            X = step.transform(X)
        return self.steps[-1][1].predict(X)


@program
def fitted_pipeline():
    X = rng.normal(size=(50, 3))
    y0 = rng.normal(size=50)
    pipe = Pipeline([("scale", Scaler()), ("ridge", Ridge(0.5))]).fit(X, y0)

    def f(x):
        return np.sum(pipe.predict(x) ** 2)

    def flat(x, mean, scale, coef):
        x = np.asarray(x)
        x = (x - mean) / scale
        return np.sum((np.asarray(x) @ coef) ** 2)

    scaler, ridge = pipe.steps[0][1], pipe.steps[1][1]
    return f, flat, (scaler.mean_, scaler.scale_, ridge.coef_), rng.normal(size=(8, 3))


@program
def pipeline_fitted_inside():
    X = rng.normal(size=(50, 3))

    def f(y):
        return np.sum(Pipeline([("scale", Scaler()), ("ridge", Ridge(0.5))]).fit(X, y).predict(X) ** 2)

    def flat(y, X):
        Z = (X - X.mean(axis=0)) / X.std(axis=0)
        return np.sum((Z @ np.linalg.solve(Z.T @ Z + 0.5 * np.eye(3), Z.T @ y)) ** 2)

    return f, flat, (X,), rng.normal(size=50)


# --- kernels of a Gaussian process, composed of objects (george, GPy) ---


class Kernel:
    def __add__(self, other):
        return Sum(self, other)

    def __mul__(self, other):
        return Product(self, other)


class Sum(Kernel):
    def __init__(self, a, b):
        self.a, self.b = a, b

    def __call__(self, p, t):
        return self.a(p, t) + self.b(p, t)


class Product(Sum):
    def __call__(self, p, t):
        return self.a(p, t) * self.b(p, t)


class Squared(Kernel):
    def __init__(self, at):
        self.at = at

    def __call__(self, p, t):
        return np.exp(-0.5 * ((t[:, None] - t) / p[self.at]) ** 2)


class Periodic(Squared):
    def __call__(self, p, t):
        return np.exp(-2 * (np.sin(np.pi * (t[:, None] - t)) / p[self.at]) ** 2)


@program
def composed_kernels():
    kernel, t, y = Squared(0) * Periodic(1) + Squared(2), np.linspace(0, 3, 20), rng.normal(size=20)

    def f(x):
        K = kernel(x, t) + np.eye(20)
        return y @ np.linalg.solve(K, y) + np.linalg.slogdet(K)[1]

    def flat(x, t, y):
        d = t[:, None] - t
        K = np.exp(-0.5 * (d / x[0]) ** 2) * np.exp(-2 * (np.sin(np.pi * d) / x[1]) ** 2)
        K = K + np.exp(-0.5 * (d / x[2]) ** 2) + np.eye(20)
        return y @ np.linalg.solve(K, y) + np.linalg.slogdet(K)[1]

    return f, flat, (t, y), np.array([1.0, 0.8, 2.0])


# --- a table of species, of which a mixture reads a few (chemicals, thermo) ---


@program
def table_of_species():
    table = {
        f"species{i}": {
            "a": float(i),
            "cp": rng.uniform(1, 2, 4),
            "names": [f"n{i}", f"m{i}"],
            "valid": (200.0, 3000.0),
        }
        for i in range(2000)
    }
    mixture = ["species5", "species77", "species1200"]

    def heat(name, T):
        cp = table[name]["cp"]
        return cp[0] + cp[1] * T + cp[2] * T**2 + cp[3] / T**2

    def f(x):
        return sum(w * heat(name, x[3]) for w, name in zip(x, mixture, strict=False))

    def flat(x, *cps):
        return sum(
            w * (cp[0] + cp[1] * x[3] + cp[2] * x[3] ** 2 + cp[3] / x[3] ** 2)
            for w, cp in zip(x, cps, strict=False)
        )

    return f, flat, tuple([table[n]["cp"] for n in mixture]), np.array([0.2, 0.3, 0.5, 1.4])


# --- layers of a network (a list of dataclasses) ---


@dataclass
class Layer:
    W: np.ndarray
    b: np.ndarray
    name: str = ""
    notes: dict = field(default_factory=dict)

    def __call__(self, x):
        return np.tanh(self.W @ x + self.b)


@program
def layers_in_a_list():
    layers = [Layer(rng.normal(size=(8, 8)) / 3, rng.normal(size=8), f"layer{i}") for i in range(10)]

    def f(x):
        for layer in layers:
            x = layer(x)
        return np.sum(x)

    def flat(x, Ws, bs):
        for W, b in zip(Ws, bs, strict=True):
            x = np.tanh(W @ x + b)
        return np.sum(x)

    return f, flat, ([layer.W for layer in layers], [layer.b for layer in layers]), rng.normal(size=8)


# --- a mesh with many elements (scikit-fem) ---


class Element:
    def __init__(self, nodes, area):
        self.nodes, self.area, self.neighbours = nodes, area, []


class Mesh:
    def __init__(self, n):
        self.points = rng.normal(size=(n, 2))
        self.elements = [Element(rng.integers(0, n, 3), float(a)) for a in rng.uniform(0, 1, 3 * n)]
        for a, b in zip(self.elements, self.elements[1:], strict=False):
            a.neighbours.append(b), b.neighbours.append(a)
        self.triangles = np.array([e.nodes for e in self.elements])
        self.areas = np.array([e.area for e in self.elements])

    def energy(self, u):
        return np.sum(self.areas * np.sum(u[self.triangles] ** 2, axis=1))


@program
def mesh_of_objects():
    mesh = Mesh(500)

    def f(x):
        return mesh.energy(x)

    def flat(x, areas, triangles):
        return np.sum(areas * np.sum(x[triangles] ** 2, axis=1))

    return f, flat, (mesh.areas, mesh.triangles), rng.normal(size=500)


# --- a filter that alters its attributes (filterpy) ---


class Filter:
    def __init__(self, n):
        self.x, self.P, self.F = np.zeros(n), np.eye(n), np.eye(n) + 0.1 * np.eye(n, k=1)
        self.H, self.R, self.Q = np.eye(1, n), np.eye(1), 0.01 * np.eye(n)
        self.log, self.saved = 0.0, [np.zeros(n) for _ in range(500)]

    def predict(self):
        self.x = self.F @ self.x
        self.P = self.F @ self.P @ self.F.T + self.Q

    def update(self, z, R):
        S = self.H @ self.P @ self.H.T + R
        e = z - self.H @ self.x
        K = self.P @ self.H.T / S[0, 0]
        self.x = self.x + K @ e
        self.P = self.P - K @ self.H @ self.P
        self.log = self.log - 0.5 * (e[0] ** 2 / S[0, 0] + np.log(S[0, 0]))


@program
def filter_with_state():
    kalman, ys = Filter(2), rng.normal(size=(5, 1))

    def f(x):
        kalman.x, kalman.P, kalman.log = np.zeros(2), np.eye(2), 0.0
        for y in ys:
            kalman.predict()
            kalman.update(y, x[0] * kalman.R)
        return kalman.log

    def flat(p, ys, F, H, R, Q):
        x, P, log = np.zeros(2), np.eye(2), 0.0
        for y in ys:
            x, P = F @ x, F @ P @ F.T + Q
            S, e = H @ P @ H.T + p[0] * R, y - H @ x
            K = P @ H.T / S[0, 0]
            x, P = x + K @ e, P - K @ H @ P
            log = log - 0.5 * (e[0] ** 2 / S[0, 0] + np.log(S[0, 0]))
        return log

    return f, flat, (ys, kalman.F, kalman.H, kalman.R, kalman.Q), np.array([0.7])


# --- helpers in several layers, behind decorators ---


def checked(g):
    @functools.wraps(g)
    def run(*args, **kwargs):
        if not args:
            raise TypeError("no arguments")
        return g(*args, **kwargs)

    return run


@functools.lru_cache
def constants(name):
    return {"water": (610.94, 17.625, 243.04)}[name]


@checked
def saturation(T):
    a, b, c = constants("water")
    return a * np.exp(b * T / (c + T))


@checked
def mixing_ratio(T, p, epsilon=0.622):
    e = saturation(T)
    return epsilon * e / (p - e)


@checked
def moist_energy(T, p):
    return np.sum(1005.0 * T + 2.5e6 * mixing_ratio(T, p))


@program
def decorated_helpers():
    p = np.full(20, 1e5)

    def f(x):
        return moist_energy(x, p)

    def flat(x, p):
        e = 610.94 * np.exp(17.625 * x / (243.04 + x))
        return np.sum(1005.0 * x + 2.5e6 * (0.622 * e / (p - e)))

    return f, flat, (p,), np.linspace(5, 25, 20)


# --- records of measurements ---

Reading = namedtuple("Reading", "time value sigma")


@program
def list_of_records():
    readings = [Reading(float(t), float(v), 0.1) for t, v in rng.normal(size=(30, 2))]
    archive = {
        f"day{k}": [Reading(float(t), float(v), 0.1) for t, v in rng.normal(size=(30, 2))] for k in range(50)
    }
    archive["today"] = readings

    def f(x):
        return sum([((r.value - x[0] - x[1] * r.time) / r.sigma) ** 2 for r in archive["today"]])

    def flat(x, times, values, sigmas):
        return sum([((v - x[0] - x[1] * t) / s) ** 2 for t, v, s in zip(times, values, sigmas, strict=True)])

    columns = [[getattr(r, name) for r in readings] for name in Reading._fields]
    return f, flat, tuple(map(tg.Const, columns)), np.array([0.1, 0.2])


# --- a network of linked objects ---


class Node:
    def __init__(self, name):
        self.name, self.edges, self.bias = name, [], rng.normal(size=3)

    def value(self, x):
        return np.tanh(x + self.bias)


class Network:
    registry: dict = {}

    def __init__(self, n):
        self.nodes = [Node(f"n{i}") for i in range(n)]
        for node in self.nodes:
            node.edges = [self.nodes[j] for j in rng.integers(0, n, 4)]
        self.registry[n] = self

    def walk(self, x, steps):
        node = self.nodes[0]
        for k in range(steps):
            x = node.value(x)
            node = node.edges[k % 4]
        return x


@program
def linked_objects():
    network = Network(300)

    def f(x):
        return np.sum(network.walk(x, 10))

    def flat(x, biases):
        for b in biases:
            x = np.tanh(x + b)
        return np.sum(x)

    biases, node = [], network.nodes[0]
    for k in range(10):
        biases.append(node.bias)
        node = node.edges[k % 4]
    return f, flat, (biases,), rng.normal(size=3)


# --- settings in nested dataclasses, with an enumeration ---


@dataclass(frozen=True)
class Physics:
    g: float = 9.81
    drag: np.ndarray = field(default_factory=lambda: np.array([0.1, 0.2, 0.3]))


@dataclass
class Settings:
    physics: Physics = field(default_factory=Physics)
    steps: int = 10
    dt: float = 0.05
    table: dict = field(default_factory=lambda: {i: np.full(3, float(i)) for i in range(300)})


class Simulator:
    def __init__(self, settings):
        self.settings = settings

    def force(self, v):
        return -self.settings.physics.drag * v - self.settings.physics.g * self.settings.table[1]

    def run(self, v):
        for _ in range(self.settings.steps):
            v = v + self.settings.dt * self.force(v)
        return v


@program
def nested_settings():
    simulator = Simulator(Settings())

    def f(x):
        return np.sum(simulator.run(x) ** 2)

    def flat(x, drag, one):
        for _ in range(10):
            x = x + 0.05 * (-drag * x - 9.81 * one)
        return np.sum(x**2)

    settings = simulator.settings
    return f, flat, (settings.physics.drag, settings.table[1]), rng.normal(size=3)


def programs(report):
    report.table(
        "value and gradient",
        (
            "program",
            "plain, us",
            "value and gradient, us",
            "over plain",
            "over the flat function",
            "new, over plain",
        ),
    )
    plain, flat, new = [], [], []
    for name, make in PROGRAMS.items():
        f, g, arrays, x = make()
        np.testing.assert_allclose(
            tg.value_and_grad(f)(x)[1], tg.value_and_grad(g)(x, *arrays)[1], rtol=1e-10, atol=1e-12
        )
        kept, apart = tg.value_and_grad(f), tg.value_and_grad(g)
        found = bench.measure(
            {
                "plain": lambda f=f, x=x: f(x),
                "tapegrad": lambda t=kept, x=x: t(x),
                "flat": lambda t=apart, x=x, arrays=arrays: t(x, *arrays),
                "new": lambda f=f, x=x: tg.value_and_grad(f)(x),
            },
            seconds=0.2 if report.quick else 1.0,
            compare=False,
            most=20,
        )
        plain.append(bench.ratio(found["tapegrad"], found["plain"]))
        flat.append(bench.ratio(found["tapegrad"], found["flat"]))
        new.append(bench.ratio(found["new"], found["plain"]))
        report.row(name, *[1e6 * found[k] for k in ("plain", "tapegrad")], plain[-1], flat[-1], new[-1])
    report.say()
    report.goal("median over the plain call", statistics.median(plain), 12)
    report.goal("median with a new transform for each call", statistics.median(new), 12)
    report.goal("most over the flat function", max(flat), 5)


if __name__ == "__main__":
    bench.start(__doc__).run(programs)
