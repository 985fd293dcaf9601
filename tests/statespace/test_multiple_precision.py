"""Random models against the multivariate normal density of all data, in 60 decimal digits.

The reference has no recursion over a filter: it builds the covariance of all observations, and regresses on
the diffuse part of the start. Its derivatives are differences in these digits."""

import decimal
from decimal import Decimal

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import statespace as ss
from tapegrad.statespace.filters import compiled

EXACT = np.vectorize(Decimal, otypes=[object])
DIGITS, STEP = 60, Decimal("1e-20")
LOG_2PI = Decimal("1.83787706640934548356065947281123527972279494727556682563430")
AHEAD = 2
QUICK = (0, 1, 2, 3, 4, 6, 8)


def zeros(*shape):
    return EXACT(np.zeros(shape))


def cholesky(S):
    L = zeros(*S.shape)
    for j in range(len(S)):
        L[j, j] = (S[j, j] - L[j, :j] @ L[j, :j]).sqrt() if j else S[0, 0].sqrt()
        for i in range(j + 1, len(S)):
            L[i, j] = (S[i, j] - (L[i, :j] @ L[j, :j] if j else 0)) / L[j, j]
    return L


def forward(L, X):
    X = X.copy()
    for i in range(len(L)):
        if i:
            X[i] = X[i] - L[i, :i] @ X[:i]
        X[i] = X[i] / L[i, i]
    return X


class RandomModel:
    """A model whose fields are affine in three parameters, in numbers of any kind."""

    def __init__(self, seed):
        g = np.random.default_rng(seed)
        self.m, self.p, self.n = m, p, n = (
            int(g.integers(1, 5)),
            int(g.integers(1, 4)),
            int(g.integers(9, 14)),
        )
        self.mark = g.random(m) < g.choice([0.0, 0.4, 1.0])
        self.first, self.joseph = bool(g.random() < 0.3), bool(g.random() < 0.2)
        vary = {name for name in "TZAHcd" if g.random() < g.choice([0.0, 0.4])}
        apart = {"H"} if g.random() < 0.5 else set()
        shapes = {
            "T": (m, m),
            "Z": (p, m),
            "A": (m, 2),
            "H": (p, p),
            "c": (m,),
            "d": (p,),
            "a": (m,),
            "C": (m, m),
        }
        self.parts = {}
        for name, shape in shapes.items():
            base = g.normal(size=(n + AHEAD, *shape) if name in vary else shape)
            if name == "T":
                base = 0.8 * np.linalg.qr(base)[0] if m > 1 else np.full(base.shape, 0.8)
            if name == "H":
                base = 0.2 * base + np.eye(p)
                base = base * np.eye(p) if apart else base
            slope = 0.3 * g.normal(size=shape) * (g.random() < 0.5)
            self.parts[name] = base, slope * np.eye(p) if name == "H" and apart else slope, int(g.integers(3))
        self.u = 0.3 * g.normal(size=3)
        self.y = g.normal(size=(n, p)).cumsum(axis=0)
        if g.random() < 0.6:
            self.y[g.random((n, p)) < 0.25] = np.nan

    def fields(self, u, of=lambda x: x):
        """The fields, with factors in place of covariances; `of` converts constants to the numbers of u."""
        return {name: of(base) + of(slope) * u[k] for name, (base, slope, k) in self.parts.items()}

    def build(self, u):
        f = self.fields(u)
        Q, H, C = (f[name] @ np.swapaxes(f[name], -1, -2) for name in "AHC")
        start = ss.Start(f["a"], C, self.mark if self.mark.any() else False, predict_first=self.first)
        return ss.LinearGaussian(f["T"], f["Z"], Q, H, None, f["c"], f["d"], start)


class DenseNormal:
    """Means and covariances of all states and observations of a random model, and the diffuse columns of
    both."""

    def __init__(self, model, u):
        m, steps = model.m, model.n + AHEAD
        f = model.fields(u, EXACT)
        at = {
            name: (lambda t, x=f[name], k=k: x[t] if x.ndim > k else x)
            for name, k in zip("TZAHcd", (2, 2, 2, 2, 1, 1), strict=True)
        }
        eye = EXACT(np.eye(m))
        keep = EXACT((~model.mark).astype(float))
        a, P, D = f["a"] * keep, (f["C"] @ f["C"].T) * keep[:, None] * keep, eye[:, model.mark]
        states, covs, diffuse = [], [[None] * steps for _ in range(steps)], []
        for t in range(steps):
            if t or model.first:
                T, A = at["T"](t if model.first else t - 1), at["A"](t if model.first else t - 1)
                a, P, D = T @ a + at["c"](t if model.first else t - 1), T @ P @ T.T + A @ A.T, T @ D
                for s in range(t):
                    covs[t][s] = T @ covs[t - 1][s]
                    covs[s][t] = covs[t][s].T
            covs[t][t] = P
            states.append(a)
            diffuse.append(D)
        Z = zeros(steps * model.p, steps * m)
        H = zeros(steps * model.p, steps * model.p)
        for t in range(steps):
            rows = slice(t * model.p, (t + 1) * model.p)
            Z[rows, t * m : (t + 1) * m] = at["Z"](t)
            H[rows, rows] = at["H"](t) @ at["H"](t).T
        self.Z, self.H, self.D = Z, H, np.concatenate(diffuse)
        self.a, self.P = np.concatenate(states), np.block(covs)
        self.d = np.concatenate([at["d"](t) for t in range(steps)])
        y = model.y.reshape(-1)
        self.seen = seen = np.flatnonzero(~np.isnan(y))
        self.PZ = self.P @ Z[seen].T
        self.L = cholesky(Z[seen] @ self.PZ + H[np.ix_(seen, seen)])
        self.e = forward(self.L, EXACT(y[seen]) - self.d[seen] - Z[seen] @ self.a)
        self.W = forward(self.L, Z[seen] @ self.D)
        self.information = cholesky(self.W.T @ self.W) if self.D.shape[1] else zeros(0, 0)
        self.estimate = forward(self.information, self.W.T @ self.e) if self.D.shape[1] else zeros(0)

    def loglik(self):
        square = self.e @ self.e - (self.estimate @ self.estimate if self.estimate.size else 0)
        logs = sum([x.ln() for L in (self.L, self.information) for x in np.diag(L)])
        return -(len(self.e) * LOG_2PI + square) / 2 - logs

    def given_data(self):
        """Mean and covariance of all states, given the data."""
        G = forward(self.L, self.PZ.T)
        mean, cov = self.a + G.T @ self.e, self.P - G.T @ G
        if self.estimate.size:
            B = forward(self.information, (self.D - G.T @ self.W).T)
            mean, cov = mean + B.T @ self.estimate, cov + B.T @ B
        return mean, cov

    def fully_seen(self):
        """Whether the data determine each diffuse element well."""
        if not self.D.shape[1]:
            return True
        W = self.W.astype(float)
        return np.linalg.cond(W / np.linalg.norm(W, axis=0)) < 1e3


def differences(f, u):
    """Value, gradient and Hessian by forward differences of a step of 1e-20."""
    k = len(u)
    moved = lambda *at: f(u + STEP * EXACT(sum([np.eye(k)[i] for i in at], np.zeros(k))))
    value, one = f(u), [moved(i) for i in range(k)]
    H = np.zeros((k, k))
    for i in range(k):
        for j in range(i + 1):
            H[i, j] = H[j, i] = float((moved(i, j) - one[i] - one[j] + value) / STEP**2)
    return float(value), np.array([float((x - value) / STEP) for x in one]), H


def assert_near(found, wanted, tolerance):
    wanted = np.asarray(wanted).astype(float)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * max(1.0, abs(wanted).max()))


def drawn(seed):
    """The first of a few random models whose diffuse start the data determine."""
    for again in range(20):
        model = RandomModel([seed, again])
        dense = DenseNormal(model, EXACT(model.u))
        if dense.fully_seen():
            return model, dense
    raise AssertionError("no model")


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    "seed", [s if s in QUICK else pytest.param(s, marks=pytest.mark.long) for s in range(200)]
)
def test_random_models_in_multiple_precision(seed, monkeypatch):
    if seed % 2 or seed >= 10:
        for name in ("FEW", "SHORT", "FILTERED"):
            monkeypatch.setattr(compiled, name, 0)
    with decimal.localcontext(prec=DIGITS):
        model, dense = drawn(seed)
        m, p, n = model.m, model.p, model.n
        value, gradient, hessian = differences(lambda u: DenseNormal(model, u).loglik(), EXACT(model.u))
        mean, cov = dense.given_data()
        ahead = slice(n * p, None)
        signal, spread = (
            dense.Z[ahead] @ mean + dense.d[ahead],
            dense.Z[ahead] @ cov @ dense.Z[ahead].T + dense.H[ahead, ahead],
        )
    f = lambda u: ss.loglik(model.build(u), model.y, model.joseph)
    assert_near(f(model.u), value, 1e-9)
    assert_near(tg.grad(f)(model.u), gradient, 1e-8)
    assert_near(tg.jacobian(f, mode="forward")(model.u), gradient, 1e-8)
    assert_near(tg.hessian(f)(model.u), hessian, 1e-6)
    at = model.build(model.u)
    assert_near(ss.filter(at, model.y, model.joseph).loglik, value, 1e-9)
    smoothed = ss.smooth(at, model.y, model.joseph)
    blocks = cov.reshape(n + AHEAD, m, n + AHEAD, m)
    assert_near(smoothed.mean, mean.reshape(-1, m)[:n], 1e-8)
    assert_near(smoothed.cov, [blocks[t, :, t] for t in range(n)], 1e-8)
    forecast = ss.forecast(at, model.y, AHEAD, model.joseph)
    spreads = spread.reshape(AHEAD, p, AHEAD, p)
    assert_near(forecast.mean, signal.reshape(AHEAD, p), 1e-8)
    assert_near(forecast.cov, [spreads[h, :, h] for h in range(AHEAD)], 1e-8)
    assert_near(forecast.state_mean, mean.reshape(-1, m)[n:], 1e-8)
