"""Programs as scientists have them lying around: classes with buffers, event loops, solvers inside.

Each entry of PROGRAMS is (function, points): the function of (parameters, *data), and two points."""

import heapq
from dataclasses import dataclass, field

import numpy as np
from scipy import linalg, sparse
from scipy.interpolate import BSpline
from scipy.spatial.distance import pdist, squareform
from scipy.special import expit, gammaln, logsumexp
from scipy.stats import norm


class NewKeynesianModel:
    """The likelihood of a three-equation model, solved by an ordered generalised Schur form."""

    def matrices(self, p):
        sigma, kappa, on_inflation, on_gap, *persistence = p[:7]
        A, B = np.eye(5), np.zeros((5, 5))
        B[:3, :3] = np.diag(persistence)
        A[3, 4], A[4, 4] = 1 / sigma, 0.99
        B[3] = [-1.0, 0.0, 1 / sigma, 1.0 + on_gap / sigma, on_inflation / sigma]
        B[4] = [0.0, -1.0, 0.0, -kappa, 1.0]
        return A, B

    def solve(self, p):
        A, B = self.matrices(p)
        S, T, _, _, _, Z = linalg.ordqz(B, A, sort="iuc", output="complex")
        inverse = np.linalg.inv(Z[:3, :3])
        policy = np.real(Z[3:, :3] @ inverse)
        return policy, np.real(Z[:3, :3] @ np.linalg.solve(T[:3, :3], S[:3, :3]) @ inverse)

    def negative_loglik(self, p, y):
        policy, H = self.solve(p)
        Q, R = np.diag(np.exp(2 * p[7:])), 0.01 * np.eye(2)
        a, P, total = np.zeros(3), linalg.solve_discrete_lyapunov(H, Q), 0.0
        for row in y:
            v, F = row - policy @ a, policy @ P @ policy.T + R
            factor = linalg.cho_factor(F, lower=True)
            K = H @ P @ policy.T
            total += 0.5 * v @ linalg.cho_solve(factor, v) + np.log(np.diag(factor[0])).sum()
            a = H @ a + K @ linalg.cho_solve(factor, v)
            P = H @ P @ H.T + Q - K @ linalg.cho_solve(factor, K.T)
        return total


class CoxModel:
    """Efron's partial likelihood with strata and ties."""

    def __init__(self, strata):
        self.strata = strata

    def negative_loglik(self, beta, X, time, event):
        eta, total = X @ beta, 0.5 * (beta**2).sum()
        for s in np.unique(self.strata):
            here = np.flatnonzero(self.strata == s)
            order = here[np.argsort(-time[here], kind="stable")]
            weight, died = np.exp(eta[order]), event[order]
            _, first, counts = np.unique(-time[order], return_index=True, return_counts=True)
            at_risk = np.cumsum(weight)[first + counts - 1]
            tied, deaths = np.add.reduceat(weight * died, first), np.add.reduceat(died, first)
            total -= (eta[order] * died).sum()
            for k in np.flatnonzero(deaths):
                share = np.arange(deaths[k]) / deaths[k]
                total += np.log(at_risk[k] - share * tied[k]).sum()
        return total


class Slab:
    """Radiation by discrete ordinates: sweeps over cells, with a negative outflow set to zero."""

    def __init__(self, cells):
        self.cells = cells
        self.mu, self.weights = np.polynomial.legendre.leggauss(4)
        self.centre = np.zeros((4, cells))

    def sweep(self, sigma, source, inflow):
        for m, mu in enumerate(self.mu):
            rate = 2 * abs(mu) * self.cells / 4
            psi_in = inflow if mu > 0 else 0.0
            for i in range(self.cells) if mu > 0 else range(self.cells - 1, -1, -1):
                psi = (source[i] / 2 + rate * psi_in) / (sigma[i] + rate)
                out = 2 * psi - psi_in
                if out < 0:
                    out, psi = 0.0, (source[i] / 2 + rate / 2 * psi_in) / sigma[i]
                self.centre[m, i], psi_in = psi, out
        return self.weights @ self.centre

    def signal(self, p, source, albedo):
        x = (np.arange(self.cells) + 0.5) / self.cells * 4
        sigma = np.exp(p[0] + p[1] * np.sin(x))
        flux = np.zeros(self.cells)
        for _ in range(2):
            flux = self.sweep(sigma, albedo * sigma * flux + source, np.exp(p[2]))
        return np.log(flux[-3:].sum()) + 0.1 * flux.sum()


class Multigrid:
    """V-cycles of red-black Gauss-Seidel for a Poisson equation with a coefficient; all levels are kept."""

    def __init__(self, n):
        sizes = [n >> k for k in range(n.bit_length() - 1)]
        self.levels = [{name: np.zeros((m + 1, m + 1)) for name in "ubrk"} for m in sizes]

    def edges(self, k):
        inner = k[1:-1, 1:-1]
        return [0.5 * (inner + other) for other in (k[2:, 1:-1], k[:-2, 1:-1], k[1:-1, 2:], k[1:-1, :-2])]

    def flows(self, level):
        u = level["u"]
        around = (u[2:, 1:-1], u[:-2, 1:-1], u[1:-1, 2:], u[1:-1, :-2])
        return sum([e * v for e, v in zip(self.edges(level["k"]), around, strict=True)])

    def smooth(self, level, times):
        diagonal, h = sum(self.edges(level["k"])), 1.0 / (len(level["u"]) - 1)
        i, j = np.indices(diagonal.shape)
        for colour in [0, 1] * times:
            new = (self.flows(level) + h * h * level["b"][1:-1, 1:-1]) / diagonal
            mine = (i + j) % 2 == colour
            level["u"][1:-1, 1:-1][mine] = new[mine]

    def cycle(self, depth=0):
        level = self.levels[depth]
        self.smooth(level, 2)
        if depth + 1 < len(self.levels):
            coarse, n = self.levels[depth + 1], len(level["u"]) - 1
            u, r = level["u"], level["r"]
            r[1:-1, 1:-1] = self.flows(level) - sum(self.edges(level["k"])) * u[1:-1, 1:-1]
            r[1:-1, 1:-1] *= n * n
            r[1:-1, 1:-1] += level["b"][1:-1, 1:-1]
            coarse["b"][1:-1, 1:-1] = r[2:-1:2, 2:-1:2]
            coarse["u"][...] = 0
            self.cycle(depth + 1)
            fine = np.zeros_like(u)
            fine[::2, ::2] = coarse["u"]
            fine[1::2, ::2] = 0.5 * (coarse["u"][1:] + coarse["u"][:-1])
            fine[:, 1::2] = 0.5 * (fine[:, :-1:2] + fine[:, 2::2])
            u += fine
            self.smooth(level, 1)

    def misfit(self, log_k, load, seen):
        top = self.levels[0]
        top["u"][:], top["b"][:], top["k"][:] = 0, load, np.exp(log_k)
        for fine, coarse in zip(self.levels, self.levels[1:], strict=False):
            coarse["k"][:] = fine["k"][::2, ::2]
        for _ in range(2):
            self.cycle()
        return 100 * np.sum((top["u"] - seen) ** 2) + np.sum(np.diff(log_k, axis=0) ** 2)


@dataclass(order=True)
class Event:
    time: float
    kind: str = field(compare=False)
    index: int = field(compare=False, default=0)


@dataclass
class Belief:
    mean: np.ndarray
    cov: np.ndarray
    time: float = 0.0


class Localisation:
    """An extended Kalman filter of a robot, driven by a queue of controls, fixes and ranges."""

    beacon = np.array([4.0, 1.0])

    def predicted(self, now, time, control, noise):
        dt, angle = time - now.time, now.mean[2]
        c, s = np.cos(angle), np.sin(angle)
        F, G = np.eye(3), dt * np.array([[c, 0.0], [s, 0.0], [0.0, 1.0]])
        F[0, 2], F[1, 2] = -dt * control[0] * s, dt * control[0] * c
        return Belief(now.mean + G @ control, F @ now.cov @ F.T + G @ np.diag(noise) @ G.T, time)

    def updated(self, now, v, H, R):
        S = H @ now.cov @ H.T + R
        K = np.linalg.solve(S, H @ now.cov).T
        surprise = 0.5 * (v @ np.linalg.solve(S, v) + np.linalg.slogdet(S)[1])
        return Belief(now.mean + K @ v, now.cov - K @ S @ K.T, now.time), surprise

    def negative_loglik(self, theta, controls, fixes, ranges):
        noise, queue = np.exp(2 * theta), []
        for k in range(len(controls)):
            heapq.heappush(queue, Event(0.5 * k, "control", k))
            heapq.heappush(queue, Event(0.3 + 0.5 * k, "fix" if k % 2 else "range", k))
        now, control, total = Belief(np.array([0.0, 0.0, 0.1]), 0.1 * np.eye(3)), controls[0], 0.0
        while queue:
            event = heapq.heappop(queue)
            now = self.predicted(now, event.time, control, noise[:2])
            if event.kind == "control":
                control = controls[event.index]
                continue
            if event.kind == "fix":
                v, H, R = fixes[event.index] - now.mean[:2], np.eye(3)[:2], noise[2] * np.eye(2)
            else:
                d = self.beacon - now.mean[:2]
                distance = np.hypot(*d)
                v = ranges[event.index] - np.array([distance, np.arctan2(d[1], d[0]) - now.mean[2]])
                v[1] = (v[1] + np.pi) % (2 * np.pi) - np.pi
                H = np.array([[*(-d / distance), 0.0], [d[1] / distance**2, -d[0] / distance**2, -1.0]])
                R = np.diag(noise[3:5])
            now, surprise = self.updated(now, v, H, R)
            total += surprise
        return total


class BouncingRotor:
    """A thrust-vectoring body that bounces, steered by a network whose hidden layer is a buffer."""

    def __init__(self):
        self.hidden = np.zeros(6)

    def cost(self, p, start, goal):
        W, b, V = p[:24].reshape(6, 4), p[24:30], p[30:].reshape(2, 6)
        position, velocity, total, bounces = start.copy(), np.zeros(2), 0.0, []
        for t in range(20):
            if t % 2 == 0:
                self.hidden[:] = np.tanh(W @ np.concatenate([position - goal, velocity]) + b)
                push = np.clip(V @ self.hidden, -1, 1) * np.array([2.0, 8.0])
            drag = 0.1 * velocity * np.linalg.norm(velocity + 0.01)
            velocity = velocity + 0.03 * (push - drag - np.array([0.0, 9.81]))
            position = position + 0.03 * velocity
            if position[1] < 0:
                position[1] *= -0.6
                velocity[1] *= -0.6
                bounces.append(t)
            total += (position - goal) @ (position - goal) + 0.1 * len(bounces) * velocity @ velocity
        return total


class Survival:
    """Royston-Parmar: the log cumulative hazard is a spline of log time; entries may be late."""

    def __init__(self, knots):
        self.t = np.r_[[knots[0]] * 3, knots, [knots[-1]] * 3]
        self.count = len(self.t) - 4

    def negative_loglik(self, p, log_time, entry, event, X):
        rising, beta = np.cumsum(np.r_[p[0], np.exp(p[1 : self.count])]), p[self.count :]
        hazard = BSpline(self.t, rising, 3)
        eta, late = hazard(log_time) + X @ beta, entry > 0
        before = hazard(np.log(entry[late])) + X[late] @ beta
        seen = event * (np.log(hazard.derivative()(log_time)) - log_time + eta)
        return np.exp(eta).sum() - seen.sum() - np.exp(before).sum()


class Kriging:
    """The restricted likelihood of a field with a linear trend."""

    def __init__(self, places):
        self.places, self.trend = places, np.c_[np.ones(len(places)), places]

    def negative_loglik(self, p, y):
        sill, nugget, ratio = np.exp(p[:3])
        turn = np.array([[np.cos(p[3]), -np.sin(p[3])], [np.sin(p[3]), np.cos(p[3])]])
        K = squareform(sill * np.exp(-pdist(self.places @ turn * np.array([1.0, ratio]))))
        K[np.diag_indices_from(K)] += sill + nugget
        factor = linalg.cho_factor(K, lower=True)
        of_trend, of_y = linalg.cho_solve(factor, self.trend), linalg.cho_solve(factor, y)
        G = self.trend.T @ of_trend
        beta = np.linalg.solve(G, self.trend.T @ of_y)
        size = 2 * np.log(np.diag(factor[0])).sum() + np.linalg.slogdet(G)[1]
        return 0.5 * (size + y @ of_y - beta @ (self.trend.T @ of_y))


class Tomography:
    """The error of an image that momentum steps find from its ray sums, with total variation."""

    def __init__(self, n):
        i, j = np.divmod(np.arange(n * n), n)
        rows = np.concatenate([i, n + j, 2 * n + i + j])
        self.A = sparse.coo_matrix((np.ones(3 * n * n), (rows, np.tile(np.arange(n * n), 3)))).tocsr()
        self.truth = ((i - n / 2) ** 2 + (j - n / 3) ** 2 < n).reshape(n, n) * 1.0

    def variation(self, u, eps):
        g = np.zeros_like(u)
        dx, dy = np.diff(u, axis=0, append=u[-1:]), np.diff(u, axis=1, append=u[:, -1:])
        size = np.sqrt(dx**2 + dy**2 + eps**2)
        g -= dx / size + dy / size
        g[1:] += (dx / size)[:-1]
        g[:, 1:] += (dy / size)[:, :-1]
        return g

    def error(self, p, noise):
        y = self.A @ self.truth.ravel() + noise
        u = np.zeros_like(self.truth)
        speed = np.zeros_like(u)
        for _ in range(3):
            gradient = (self.A.T @ (self.A @ u.ravel() - y)).reshape(u.shape)
            speed *= 0.8
            speed -= 0.02 * (gradient + np.exp(p[0]) * self.variation(u, np.exp(p[1])))
            u += speed
        return ((u - self.truth) ** 2).sum()


class GradedResponse:
    """Answers in categories: the trait is integrated by quadrature, and some answers are missing."""

    def __init__(self, items, categories):
        self.items, self.categories = items, categories
        self.trait, weight = np.polynomial.hermite_e.hermegauss(7)
        self.log_weight = np.log(weight / weight.sum())

    def negative_loglik(self, p, answers):
        slope, raw = np.exp(p[: self.items]), p[self.items :].reshape(self.items, -1)
        bounds = np.cumsum(np.column_stack([raw[:, 0], np.exp(raw[:, 1:])]), axis=1)
        ll, edge = np.zeros((len(answers), len(self.trait))), np.ones((len(self.trait), 1))
        for j in range(self.items):
            above = expit(slope[j] * (self.trait[:, None] - bounds[j]))
            chance = np.log(np.hstack([edge, above]) - np.hstack([above, 0 * edge]))
            given = answers[:, j] >= 0
            ll[given] += chance[:, answers[given, j]].T
        return -logsumexp(ll + self.log_weight, axis=1).sum()


class SemiMarkov:
    """Hidden states that last for negative binomial times; impossible starts have the logarithm -inf."""

    def negative_loglik(self, p, y):
        mean, spread, size, odds = p.reshape(4, 2)
        stay = np.arange(4)[:, None]
        r, q = np.exp(size), expit(odds)
        lasting = gammaln(stay + r) - gammaln(r) - gammaln(stay + 1) + r * np.log(q) + stay * np.log1p(-q)
        lasting = lasting - logsumexp(lasting, axis=0)
        seen = np.cumsum(norm.logpdf(y[:, None], mean, np.exp(spread)), axis=0)
        seen = np.vstack([np.zeros((1, 2)), seen])
        start = np.full((len(y) + 1, 2), -np.inf)
        start[0] = -np.log(2)
        for t in range(1, len(y) + 1):
            n = min(t, 4)
            end = logsumexp(start[t - n : t][::-1] + lasting[:n] + seen[t] - seen[t - n : t][::-1], axis=0)
            start[t] = end[::-1]
        return -logsumexp(end)


def of_seed(make):
    return [make(np.random.default_rng(seed)) for seed in range(2)]


GRID = np.sin(np.add.outer(np.arange(5.0), 2 * np.arange(5.0)))
PROGRAMS = {
    "new_keynesian": (
        NewKeynesianModel().negative_loglik,
        of_seed(
            lambda rng: (
                np.array([1.5, 0.3, 1.5, 0.2, 0.8, 0.6, 0.4, -1.0, -1.2, -1.5]) + 0.02 * rng.random(10),
                rng.normal(size=(6, 2)),
            )
        ),
    ),
    "cox": (
        CoxModel(np.arange(40) % 3).negative_loglik,
        of_seed(
            lambda rng: (
                rng.normal(size=4),
                rng.normal(size=(40, 4)),
                np.ceil(5 * rng.exponential(size=40)),
                rng.integers(0, 2, 40),
            )
        ),
    ),
    "slab": (
        Slab(8).signal,
        of_seed(lambda rng: (0.3 * rng.random(3), 0.1 + rng.random(8), 0.5 + 0.1 * rng.random())),
    ),
    "multigrid": (
        Multigrid(4).misfit,
        of_seed(lambda rng: (0.3 * GRID + 0.1 * rng.random((5, 5)), 1 + GRID, 0.02 * rng.random((5, 5)))),
    ),
    "localisation": (
        Localisation().negative_loglik,
        of_seed(
            lambda rng: (
                -1 + 0.3 * rng.random(5),
                np.array([1.0, 0.3]) + 0.1 * rng.normal(size=(8, 2)),
                rng.normal(size=(8, 2)),
                rng.random((8, 2)) * [4, 1],
            )
        ),
    ),
    "rotor": (
        BouncingRotor().cost,
        of_seed(lambda rng: (0.3 * rng.normal(size=42), np.array([0.5, 0.1]), np.array([0.0, 0.5]))),
    ),
    "survival": (
        Survival(np.linspace(-3, 3, 4)).negative_loglik,
        of_seed(
            lambda rng: (
                np.r_[-3, rng.normal(size=7) / 5],
                2 * rng.random(20),
                np.where(rng.random(20) < 0.3, 0.5, 0),
                rng.random(20) < 0.7,
                rng.normal(size=(20, 2)),
            )
        ),
    ),
    "kriging": (
        Kriging(np.random.default_rng(0).random((12, 2))).negative_loglik,
        of_seed(lambda rng: (rng.normal(size=4) / 3, rng.normal(size=12))),
    ),
    "tomography": (
        Tomography(5).error,
        of_seed(lambda rng: (-1 + 0.3 * rng.random(2), 0.1 * rng.normal(size=19))),
    ),
    "graded_response": (
        GradedResponse(3, 4).negative_loglik,
        of_seed(lambda rng: (rng.normal(size=12) / 3, rng.integers(-1, 4, (15, 3)))),
    ),
    "semi_markov": (
        SemiMarkov().negative_loglik,
        of_seed(lambda rng: (rng.normal(size=8), rng.normal(size=10))),
    ),
}
