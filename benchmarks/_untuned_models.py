"""Programs on whole arrays, as their users would write them: for `programs.py`.

A function of this file makes the data of one program. It gives the text for NumPy, the text for JAX and the
point. Nobody has changed a text to suit a system."""

import numpy as np
import scipy.linalg
from scipy.special import erf, gammaln, logsumexp

try:
    import jax
    import jax.numpy as jnp
except ImportError:
    jax = jnp = None


def gaussian_process(rng):
    n, d = 500, 3
    X = rng.random((n, d))
    y = np.sin(6 * X[:, 0]) + 0.1 * rng.normal(size=n)

    def f(theta):
        length, amplitude, noise = np.exp(theta[:d]), np.exp(theta[d]), np.exp(theta[d + 1])
        Z = X / length
        sq = ((Z[:, None, :] - Z[None, :, :]) ** 2).sum(axis=2)
        K = amplitude * np.exp(-0.5 * sq) + noise * np.eye(n)
        L = np.linalg.cholesky(K)
        alpha = scipy.linalg.solve_triangular(L, y, lower=True)
        return 0.5 * (alpha @ alpha) + np.log(np.diag(L)).sum()

    def theirs(theta):
        length, amplitude, noise = jnp.exp(theta[:d]), jnp.exp(theta[d]), jnp.exp(theta[d + 1])
        Z = X / length
        sq = ((Z[:, None, :] - Z[None, :, :]) ** 2).sum(axis=2)
        K = amplitude * jnp.exp(-0.5 * sq) + noise * jnp.eye(n)
        L = jnp.linalg.cholesky(K)
        alpha = jax.scipy.linalg.solve_triangular(L, y, lower=True)
        return 0.5 * (alpha @ alpha) + jnp.log(jnp.diag(L)).sum()

    return f, theirs, np.array([-0.5, -0.3, -0.2, 0.0, -3.0])


def mlp(rng):
    n, sizes = 128, (20, 32, 32, 5)
    X, labels = rng.normal(size=(n, sizes[0])), rng.integers(0, sizes[-1], n)
    start = [
        (rng.normal(size=(a, b)) / np.sqrt(a), np.zeros(b)) for a, b in zip(sizes, sizes[1:], strict=False)
    ]

    def f(layers):
        h = X
        for W, b in layers[:-1]:
            h = np.maximum(h @ W + b, 0)
        W, b = layers[-1]
        logits = h @ W + b
        return -(logits[np.arange(n), labels] - logsumexp(logits, axis=1)).mean()

    def theirs(layers):
        h = X
        for W, b in layers[:-1]:
            h = jnp.maximum(h @ W + b, 0)
        W, b = layers[-1]
        logits = h @ W + b
        return -(logits[jnp.arange(n), labels] - jax.scipy.special.logsumexp(logits, axis=1)).mean()

    return f, theirs, start


def transformer_block(rng):
    T, d, heads = 64, 64, 4
    x, y = rng.normal(size=(T, d)), rng.normal(size=(T, d))
    start = {
        "qkv": rng.normal(size=(d, 3 * d)) / 8,
        "out": rng.normal(size=(d, d)) / 8,
        "up": rng.normal(size=(d, 4 * d)) / 8,
        "down": rng.normal(size=(4 * d, d)) / 16,
        "scale": np.ones((2, d)),
        "shift": np.zeros((2, d)),
    }

    def text(np, erf):
        def f(w):
            def norm(x, k):
                mean, var = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
                return (x - mean) / np.sqrt(var + 1e-5) * w["scale"][k] + w["shift"][k]

            q, k, v = np.split(norm(x, 0) @ w["qkv"], 3, axis=-1)
            q, k, v = [z.reshape(T, heads, d // heads).transpose(1, 0, 2) for z in (q, k, v)]
            scores = q @ k.transpose(0, 2, 1) / np.sqrt(d // heads)
            scores = np.where(np.tril(np.ones((T, T))) > 0, scores, -1e9)
            scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
            mixed = (scores / scores.sum(axis=-1, keepdims=True)) @ v
            h = x + mixed.transpose(1, 0, 2).reshape(T, d) @ w["out"]
            up = norm(h, 1) @ w["up"]
            gelu = 0.5 * up * (1 + erf(up / np.sqrt(2.0)))
            return ((h + gelu @ w["down"] - y) ** 2).mean()

        return f

    return text(np, erf), jax and text(jnp, jax.scipy.special.erf), start


def multinomial_logit(rng):
    n, d, k = 5000, 20, 5
    X, labels = rng.normal(size=(n, d)), rng.integers(0, k, n)

    def f(W):
        eta = X @ W
        return -(eta[np.arange(n), labels] - logsumexp(eta, axis=1)).sum() + 0.5 * (W**2).sum()

    def theirs(W):
        eta = X @ W
        lse = jax.scipy.special.logsumexp(eta, axis=1)
        return -(eta[jnp.arange(n), labels] - lse).sum() + 0.5 * (W**2).sum()

    return f, theirs, 0.1 * rng.normal(size=(d, k))


def variational_logistic(rng):
    n, d, draws = 1000, 20, 16
    X, y = rng.normal(size=(n, d)), rng.choice([-1.0, 1.0], n)
    eps = rng.normal(size=(draws, d))

    def text(np):
        def f(theta):
            mean, log_sd = theta[:d], theta[d:]
            w = mean + np.exp(log_sd) * eps
            loglik = -np.logaddexp(0, -(w @ X.T) * y).sum(axis=1).mean()
            kl = 0.5 * (np.exp(2 * log_sd) + mean**2 - 1 - 2 * log_sd).sum()
            return kl - loglik

        return f

    return text(np), jax and text(jnp), 0.1 * rng.normal(size=2 * d)


def cox(rng):
    n, d = 2000, 10
    X, event = rng.normal(size=(n, d)), rng.random(n) < 0.7

    def text(np):
        def f(beta):
            eta = X @ beta
            at_risk = np.cumsum(np.exp(eta)[::-1])[::-1]
            return -np.where(event, eta - np.log(at_risk), 0.0).sum() + 0.01 * np.abs(beta).sum()

        return f

    return text(np), jax and text(jnp), 0.2 * rng.normal(size=d)


def k_means(rng):
    n, d, k = 2000, 5, 10
    X = rng.normal(size=(n, d))

    def text(np):
        def f(centres):
            sq = ((X[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2)
            return np.min(sq, axis=1).mean()

        return f

    return text(np), jax and text(jnp), rng.normal(size=(k, d))


def matrix_factorisation(rng):
    users, items, rank, n = 200, 100, 8, 3000
    i, j, rating = rng.integers(0, users, n), rng.integers(0, items, n), rng.normal(size=n)

    def text(np):
        def f(params):
            U, V, bias = params
            guess = (U[i] * V[j]).sum(axis=1) + bias[j]
            return ((rating - guess) ** 2).mean() + 0.01 * ((U**2).sum() + (V**2).sum())

        return f

    start = rng.normal(size=(users, rank)), rng.normal(size=(items, rank)), np.zeros(items)
    return text(np), jax and text(jnp), start


def bundle_adjustment(rng):
    cameras, points, n = 10, 150, 1000
    i, j = rng.integers(0, cameras, n), rng.integers(0, points, n)
    pixels = 0.2 * rng.normal(size=(n, 2))

    def text(np):
        def f(params):
            camera, place = params["camera"][i], params["place"][j]
            turn, shift = camera[:, :3], camera[:, 3:6]
            focal, k1, k2 = camera[:, 6], camera[:, 7], camera[:, 8]
            angle = np.linalg.norm(turn, axis=1, keepdims=True)
            axis = turn / angle
            cos, sin = np.cos(angle), np.sin(angle)
            along = (axis * place).sum(axis=1, keepdims=True)
            seen = cos * place + sin * np.cross(axis, place) + (1 - cos) * along * axis + shift
            flat = -seen[:, :2] / seen[:, 2:]
            r2 = (flat**2).sum(axis=1)
            miss = (focal * (1 + k1 * r2 + k2 * r2**2))[:, None] * flat - pixels
            return np.sqrt(1 + (miss**2).sum(axis=1)).sum()

        return f

    camera = 0.1 * rng.normal(size=(cameras, 9)) + np.array([0.1, 0.2, 0.3, 0, 0, -5.0, 1, 0, 0])
    return text(np), jax and text(jnp), {"camera": camera, "place": rng.normal(size=(points, 3))}


def finite_elements(rng):
    n = 21
    grid = np.stack(np.meshgrid(np.linspace(0, 1, n), np.linspace(0, 1, n), indexing="ij"), -1).reshape(-1, 2)
    a = (np.arange(n - 1)[:, None] * n + np.arange(n - 1)).ravel()
    triangles = np.concatenate([np.stack([a, a + n, a + 1], 1), np.stack([a + n + 1, a + 1, a + n], 1)])
    edges = grid[triangles[:, 1:]] - grid[triangles[:, :1]]
    inverse, area = np.linalg.inv(edges), 0.5 * np.abs(np.linalg.det(edges))
    fixed = grid[:, 0] == 0

    def text(np):
        def f(u):
            place = grid + np.where(fixed[:, None], 0.0, u)
            corners = place[triangles]
            now = corners[:, 1:] - corners[:, :1]
            F = inverse @ now
            J = np.linalg.det(F)
            C = np.einsum("tij,tij->t", F, F)
            energy = 0.5 * (C - 2) - np.log(J) + 2.0 * np.log(J) ** 2
            return (area * energy).sum() + 0.1 * u[:, 1].sum() / n

        return f

    return text(np), jax and text(jnp), 0.002 * rng.normal(size=grid.shape)


def hessian_of_a_likelihood(rng):
    n, d = 1000, 15
    X, y = rng.normal(size=(n, d - 1)), rng.poisson(2.0, n)

    def text(np, gammaln):
        def f(theta):
            beta, size = theta[:-1], np.exp(theta[-1])
            mu = np.exp(0.1 * (X @ beta))
            terms = gammaln(y + size) - gammaln(size) + size * np.log(size / (size + mu))
            return -(terms + y * np.log(mu / (size + mu))).sum()

        return f

    theirs = jax and text(jnp, jax.scipy.special.gammaln)
    return text(np, gammaln), theirs, 0.3 * rng.normal(size=d)


def spline_fit(rng):
    knots, n = 16, 400
    t, x = np.linspace(0, 1, knots), np.sort(rng.random(n))
    y = np.sin(8 * x) + 0.1 * rng.normal(size=n)
    h, k = t[1] - t[0], np.clip(np.searchsorted(t, x) - 1, 0, knots - 2)
    second = 4 * np.eye(knots - 2) + np.eye(knots - 2, k=1) + np.eye(knots - 2, k=-1)

    def text(np):
        def f(heights):
            bend = 6 * (heights[2:] - 2 * heights[1:-1] + heights[:-2]) / h**2
            m = np.concatenate([np.zeros(1), np.linalg.solve(second, bend), np.zeros(1)])
            left, right = (t[k + 1] - x) / h, (x - t[k]) / h
            value = left * heights[k] + right * heights[k + 1]
            value = value + h**2 / 6 * ((left**3 - left) * m[k] + (right**3 - right) * m[k + 1])
            return ((value - y) ** 2).sum() + 1e-6 * (m**2).sum()

        return f

    return text(np), jax and text(jnp), rng.normal(size=knots)


def ising_energy(rng):
    samples, n = 50, 16
    spins = rng.choice([-1.0, 1.0], (samples, n, n))

    def text(np):
        def f(params):
            field, right, down = params["field"], params["right"], params["down"]
            pull = field + right * np.roll(spins, -1, axis=2) + down * np.roll(spins, -1, axis=1)
            pull = pull + np.roll(right, 1, axis=1) * np.roll(spins, 1, axis=2)
            pull = pull + np.roll(down, 1, axis=0) * np.roll(spins, 1, axis=1)
            return np.log1p(np.exp(-2 * spins * pull)).sum() / samples

        return f

    start = {name: 0.2 * rng.normal(size=(n, n)) for name in ("field", "right", "down")}
    return text(np), jax and text(jnp), start


def image_registration(rng):
    n = 64
    rows, columns = np.meshgrid(np.arange(n), np.arange(n), indexing="ij")
    moving = np.exp(-((rows - 30) ** 2 + (columns - 35) ** 2) / 200.0)
    fixed = np.exp(-((rows - 33) ** 2 + (columns - 32) ** 2) / 180.0)

    def text(np):
        def f(theta):
            a, b, c, d, e, g = theta
            y = (1 + a) * rows + b * columns + c
            x = d * rows + (1 + e) * columns + g
            y, x = np.clip(y, 0, n - 1.001), np.clip(x, 0, n - 1.001)
            i, j = np.floor(y).astype(int), np.floor(x).astype(int)
            v, u = y - i, x - j
            image = np.asarray(moving)
            top = (1 - u) * image[i, j] + u * image[i, j + 1]
            bottom = (1 - u) * image[i + 1, j] + u * image[i + 1, j + 1]
            return (((1 - v) * top + v * bottom - fixed) ** 2).sum()

        return f

    return text(np), jax and text(jnp), np.array([0.0113, 0.0227, 0.5331, -0.0219, 0.0123, 0.4171])


PROGRAMS = (
    gaussian_process, mlp, transformer_block, multinomial_logit, variational_logistic, cox, k_means,
    matrix_factorisation, bundle_adjustment, finite_elements, hessian_of_a_likelihood, spline_fit,
    ising_energy, image_registration,
)  # fmt: skip
