"""Twenty-two usual programs, each as its users would write it, for G5p of `overhead.py`.

A program is a function of the array library and of data, which gives the loss.  One text serves NumPy,
PyTorch, autograd and JAX where their users would write the same; where they would not (writes into arrays,
loops over time in JAX, a name that only NumPy has) the other texts stand beside it.  A program that autograd
cannot differentiate at all has no text for it."""

import dataclasses
from collections.abc import Callable

import numpy as np
from scipy.special import logsumexp


@dataclasses.dataclass
class Program:
    """`text(library, *data)` gives the loss, a function of the arrays `at`.  Texts for the others: "same", or
    None where there is none."""

    title: str
    text: Callable
    at: tuple
    data: tuple = ()
    torch: Callable | str = "same"
    autograd: Callable | str | None = "same"
    jax: Callable | str = "same"

    def for_system(self, system):
        text = getattr(self, system)
        return self.text if text == "same" else text


# --- regression, networks ---


def logistic(np, X, y):
    def loss(w):
        return np.log1p(np.exp(-y * (X @ w))).mean() + 1e-3 * (w @ w)

    return loss


def mlp(np, X, y):
    def loss(W1, b1, W2, b2, W3, b3):
        h = np.tanh(X @ W1 + b1)
        h = np.tanh(h @ W2 + b2)
        r = h @ W3 + b3 - y
        return (r * r).mean()

    return loss


def softmax(np, X, rows, labels):
    def loss(W, b):
        z = X @ W + b
        z = z - np.amax(z, axis=1, keepdims=True)
        logp = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
        return -logp[rows, labels].mean()

    return loss


def lstm(np, xs, h0, c0):
    n = h0.shape[1]

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    def loss(Wx, Wh, b):
        h, c = h0, c0
        for x in xs:
            z = x @ Wx + h @ Wh + b
            i, f, o, g = (
                sigmoid(z[:, :n]),
                sigmoid(z[:, n : 2 * n]),
                sigmoid(z[:, 2 * n : 3 * n]),
                np.tanh(z[:, 3 * n :]),
            )
            c = f * c + i * g
            h = o * np.tanh(c)
        return (h * h).sum()

    return loss


def lstm_jax(np, xs, h0, c0):
    from jax import lax, nn

    n = h0.shape[1]

    def loss(Wx, Wh, b):
        def step(carry, x):
            h, c = carry
            z = x @ Wx + h @ Wh + b
            i, f, o, g = (
                nn.sigmoid(z[:, :n]),
                nn.sigmoid(z[:, n : 2 * n]),
                nn.sigmoid(z[:, 2 * n : 3 * n]),
                np.tanh(z[:, 3 * n :]),
            )
            c = f * c + i * g
            return (o * np.tanh(c), c), None

        h = lax.scan(step, (h0, c0), xs)[0][0]
        return (h * h).sum()

    return loss


def attention(np, x, target):
    heads, (length, width) = 4, x.shape

    def split(a):
        return a.reshape(length, heads, width // heads).swapaxes(0, 1)

    def loss(Wq, Wk, Wv, Wo):
        q, k, v = split(x @ Wq), split(x @ Wk), split(x @ Wv)
        s = q @ k.swapaxes(1, 2) / (width // heads) ** 0.5
        s = np.exp(s - np.amax(s, axis=-1, keepdims=True))
        s = s / s.sum(axis=-1, keepdims=True)
        r = (s @ v).swapaxes(0, 1).reshape(length, width) @ Wo - target
        return (r * r).sum()

    return loss


def tensors(np, A, B):
    def loss(core, U, V):
        """A Tucker form: a core turned by two matrices, against data, and a batch of bilinear forms."""
        T = np.einsum("ijk,ia->ajk", core, U)
        T = np.einsum("ajk,jb->abk", T, V)
        r = T - A
        return (r * r).sum() + np.einsum("nj,nj->n", B @ V, B @ V).sum()

    return loss


def convolution(np, target):
    n, m = target.shape

    def loss(w, x):
        out = 0.0
        for i in range(w.shape[0]):
            for j in range(w.shape[1]):
                out = out + w[i, j] * x[i : i + n, j : j + m]
        r = np.tanh(out) - target
        return (r * r).sum()

    return loss


# --- probability ---


def gaussian_process(np, X, y, I):
    def loss(theta):
        scale, length, noise = np.exp(theta)
        d = (X[:, None] - X) / length
        K = scale * np.exp(-0.5 * (d * d).sum(-1)) + noise * I
        L = np.linalg.cholesky(K)
        return 0.5 * (y @ np.linalg.solve(K, y)) + np.log(np.diag(L)).sum()

    return loss


def gaussian_process_torch(torch, X, y, I):
    def loss(theta):
        scale, length, noise = torch.exp(theta)
        d = (X[:, None] - X) / length
        K = scale * torch.exp(-0.5 * (d * d).sum(-1)) + noise * I
        L = torch.linalg.cholesky(K)
        return 0.5 * (y @ torch.cholesky_solve(y[:, None], L)[:, 0]) + torch.log(torch.diagonal(L)).sum()

    return loss


def mixture(np, x, logsumexp=logsumexp):
    def loss(logits, mu, log_s):
        z = (x[:, None] - mu) / np.exp(log_s)
        return logsumexp(logits, 0) * len(x) - logsumexp(logits - log_s - 0.5 * z * z, 1).sum()

    return loss


def mixture_torch(torch, x):
    return mixture(torch, x, torch.logsumexp)


def mixture_autograd(np, x):
    from autograd.scipy.special import logsumexp

    return mixture(np, x, logsumexp)


def mixture_jax(np, x):
    from jax.nn import logsumexp

    return mixture(np, x, logsumexp)


def arma(np, y):
    def loss(theta):
        phi, ma, c = theta[0], theta[1], theta[2]
        e, total = 0.0, 0.0
        for t in range(1, len(y)):
            e = y[t] - c - phi * y[t - 1] - ma * e
            total = total + e * e
        return total

    return loss


def arma_jax(np, y):
    from jax import lax

    def loss(theta):
        phi, ma, c = theta

        def step(e, pair):
            e = pair[1] - c - phi * pair[0] - ma * e
            return e, e * e

        return lax.scan(step, 0.0, (y[:-1], y[1:]))[1].sum()

    return loss


def cox(np, X):
    """The partial likelihood of Cox: subjects in the order of their times."""

    def loss(beta):
        eta = X @ beta
        return (np.log(np.cumsum(np.exp(eta), axis=0)) - eta).sum()

    return loss


# --- geometry, factorisations ---


def pairwise(np, I):
    def loss(x):
        d = x[:, None] - x
        r2 = (d * d).sum(-1) + I
        inverse = 1 / r2**3
        return (inverse * inverse - inverse).sum()

    return loss


def k_means(np, X):
    def loss(centres):
        d = X[:, None] - centres
        return np.amin((d * d).sum(-1), axis=1).mean()

    return loss


def factorisation(np, i, j, ratings):
    def loss(U, V):
        r = (U[i] * V[j]).sum(-1) - ratings
        return (r * r).sum() + 0.01 * ((U * U).sum() + (V * V).sum())

    return loss


def low_rank(np, target):
    def loss(M):
        u, s, vt = np.linalg.svd(M, full_matrices=False)
        r = (u[:, :3] * s[:3]) @ vt[:3] - target
        return (r * r).sum() + np.log1p(s).sum()

    return loss


def cholesky_loop(np, I):
    """A user's own Cholesky, columns written in place."""
    n = len(I)

    def loss(B):
        A = B @ B.T + I
        L = np.zeros((n, n))
        for j in range(n):
            L[j, j] = np.sqrt(A[j, j] - L[j, :j] @ L[j, :j])
            L[j + 1 :, j] = (A[j + 1 :, j] - L[j + 1 :, :j] @ L[j, :j]) / L[j, j]
        return np.log(np.diag(L)).sum() + L[n - 1, 0]

    return loss


def cholesky_loop_torch(torch, I):
    n = len(I)

    def loss(B):
        A = B @ B.T + I
        L = torch.zeros((n, n))
        for j in range(n):
            row = L[j, :j].clone()
            pivot = torch.sqrt(A[j, j] - row @ row)
            L[j, j] = pivot
            L[j + 1 :, j] = (A[j + 1 :, j] - L[j + 1 :, :j].clone() @ row) / pivot
        return torch.log(torch.diagonal(L)).sum() + L[n - 1, 0]

    return loss


def cholesky_loop_columns(np, I):
    """For systems without writes: a list of columns."""
    n = len(I)

    def loss(B):
        A = B @ B.T + I
        columns = []
        for j in range(n):
            c = A[j:, j] - sum(k[j - i :] * k[j - i] for i, k in enumerate(columns))
            columns.append(c / np.sqrt(c[0]))
        return sum(np.log(c[0]) for c in columns) + columns[0][n - 1]

    return loss


# --- simulation, signals ---


def runge_kutta(np, A, x0, steps=100, h=0.05):
    def f(x, p):
        return A @ np.tanh(x) - p * x

    def loss(p):
        X = np.zeros((steps + 1, len(x0)))
        X[0] = x0
        x = x0 + 0.0
        for t in range(steps):
            k1 = f(x, p)
            k2 = f(x + 0.5 * h * k1, p)
            k3 = f(x + 0.5 * h * k2, p)
            k4 = f(x + h * k3, p)
            x += h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            X[t + 1] = x
        return (X * X).sum()

    return loss


def runge_kutta_torch(torch, A, x0, steps=100, h=0.05):
    """PyTorch refuses to write into x, which p * x has saved."""

    def f(x, p):
        return A @ torch.tanh(x) - p * x

    def loss(p):
        X = torch.zeros((steps + 1, len(x0)))
        X[0] = x0
        x = x0
        for t in range(steps):
            k1 = f(x, p)
            k2 = f(x + 0.5 * h * k1, p)
            k3 = f(x + 0.5 * h * k2, p)
            k4 = f(x + h * k3, p)
            x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            X[t + 1] = x
        return (X * X).sum()

    return loss


def runge_kutta_autograd(np, A, x0, steps=100, h=0.05):
    def f(x, p):
        return np.dot(A, np.tanh(x)) - p * x

    def loss(p):
        x, total = x0, (x0 * x0).sum()
        for _ in range(steps):
            k1 = f(x, p)
            k2 = f(x + 0.5 * h * k1, p)
            k3 = f(x + 0.5 * h * k2, p)
            k4 = f(x + h * k3, p)
            x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            total = total + (x * x).sum()
        return total

    return loss


def runge_kutta_jax(np, A, x0, steps=100, h=0.05):
    from jax import lax

    def f(x, p):
        return A @ np.tanh(x) - p * x

    def loss(p):
        def step(x, _):
            k1 = f(x, p)
            k2 = f(x + 0.5 * h * k1, p)
            k3 = f(x + 0.5 * h * k2, p)
            k4 = f(x + h * k3, p)
            x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            return x, (x * x).sum()

        return lax.scan(step, x0, None, length=steps)[1].sum() + (x0 * x0).sum()

    return loss


def stencil(np, target, steps=20):
    """Heat on a torus."""

    def loss(u, c):
        for _ in range(steps):
            u = u + c * (np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1) - 4 * u)
        r = u - target
        return (r * r).sum()

    return loss


def stencil_jax(np, target, steps=20):
    from jax import lax

    def loss(u, c):
        def step(_, u):
            return u + c * (
                np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1) - 4 * u
            )

        r = lax.fori_loop(0, steps, step, u) - target
        return (r * r).sum()

    return loss


def spectrum(np, y):
    def loss(x, h):
        s = np.fft.irfft(np.fft.rfft(x) * np.fft.rfft(h))
        r = s - y
        return (r * r).sum()

    return loss


def median(np, X, y):
    def loss(w):
        r = y - X @ w
        return np.median(np.abs(r - np.median(r)))

    return loss


def scatter(np, cells, n):
    """A histogram with weights."""

    def loss(w):
        h = np.zeros(n)
        np.add.at(h, cells, np.exp(w))
        return (h * h).sum() + np.log(h).sum()

    return loss


def scatter_torch(torch, cells, n):
    def loss(w):
        h = torch.zeros(n)
        h.index_add_(0, cells, torch.exp(w))
        return (h * h).sum() + torch.log(h).sum()

    return loss


def scatter_jax(np, cells, n):
    def loss(w):
        h = np.zeros(n).at[cells].add(np.exp(w))
        return (h * h).sum() + np.log(h).sum()

    return loss


def scalars(np):
    """A population, year by year, in Python's numbers."""

    def loss(rate, harvest):
        x, total = 0.3, 0.0
        for _ in range(200):
            x = x + rate * x * (1 - x) - harvest * x
            total = total + (x - 0.5) ** 2
        return total

    return loss


def scalars_jax(np):
    from jax import lax

    def loss(rate, harvest):
        def step(x, _):
            x = x + rate * x * (1 - x) - harvest * x
            return x, (x - 0.5) ** 2

        return lax.scan(step, 0.3, None, length=200)[1].sum()

    return loss


def programs():
    """All of them, with their data: arrays that can be written."""
    g = np.random.default_rng(5)
    n = g.standard_normal
    order = np.arange(201)
    return [
        Program("logistic regression, 500 x 20", logistic, (0.1 * n(20),), (n((500, 20)), np.sign(n(500)))),
        Program(
            "MLP 10-32-32-1, 64 rows",
            mlp,
            (0.3 * n((10, 32)), 0.1 * n(32), 0.2 * n((32, 32)), 0.1 * n(32), 0.2 * n((32, 1)), 0.1 * n(1)),
            (n((64, 10)), n((64, 1))),
        ),
        Program(
            "Gaussian process, 60 points",
            gaussian_process,
            (np.array([0.2, -0.1, -2.0]),),
            (n((60, 2)), n(60), np.eye(60)),
            gaussian_process_torch,
        ),
        Program(
            "RK4 in place, 10 states, 100 steps",
            runge_kutta,
            (np.linspace(0.5, 1.5, 10),),
            (0.4 * n((10, 10)), n(10)),
            runge_kutta_torch,
            runge_kutta_autograd,
            runge_kutta_jax,
        ),
        Program(
            "LSTM, 30 steps, 8 x 16",
            lstm,
            (0.3 * n((6, 64)), 0.2 * n((16, 64)), 0.1 * n(64)),
            (n((30, 8, 6)), n((8, 16)), n((8, 16))),
            jax=lstm_jax,
        ),
        Program(
            "softmax regression, 201 x 20, 10 classes",
            softmax,
            (0.2 * n((20, 10)), 0.1 * n(10)),
            (n((201, 20)), order, order % 10),
        ),
        Program(
            "einsum, Tucker form",
            tensors,
            (n((8, 9, 10)), n((8, 12)), n((9, 11))),
            (n((12, 11, 10)), n((50, 9))),
        ),
        Program("FFT, filter of 1,024", spectrum, (n(1024), n(1024)), (n(1024),)),
        Program("median, 501 residuals", median, (0.1 * n(5),), (n((501, 5)), n(501)), autograd=None),
        Program(
            "stencil by roll, 32 x 32, 20 steps",
            stencil,
            (n((32, 32)), np.array(0.1)),
            (n((32, 32)),),
            jax=stencil_jax,
        ),
        Program("cumsum, Cox regression, 500 x 5", cox, (0.1 * n(5),), (n((500, 5)),)),
        Program("pairwise forces, 50 bodies", pairwise, (3 * n((50, 3)),), (np.eye(50),)),
        Program("k-means, 300 x 2, 8 centres", k_means, (n((8, 2)),), (n((300, 2)),)),
        Program(
            "factorisation, 1,000 ratings",
            factorisation,
            (n((100, 5)), n((80, 5))),
            (g.integers(100, size=1000), g.integers(80, size=1000), n(1000)),
        ),
        Program("ARMA(1,1), 200 points", arma, (np.array([0.5, 0.3, 0.1]),), (n(200),), jax=arma_jax),
        Program(
            "Cholesky loop, 12 x 12",
            cholesky_loop,
            (n((12, 12)),),
            (np.eye(12),),
            cholesky_loop_torch,
            cholesky_loop_columns,
            cholesky_loop_columns,
        ),
        Program("SVD, 20 x 10", low_rank, (n((20, 10)),), (n((20, 10)),)),
        Program(
            "mixture of 3, 300 points",
            mixture,
            (0.1 * n(3), n(3), 0.1 * n(3)),
            (n(300),),
            mixture_torch,
            mixture_autograd,
            mixture_jax,
        ),
        Program(
            "scatter, 1,000 into 50",
            scatter,
            (0.3 * n(1000),),
            (np.arange(1000) % 50, 50),
            scatter_torch,
            None,
            scatter_jax,
        ),
        Program("Python scalars, 200 steps", scalars, (0.7, 0.2), jax=scalars_jax),
        Program(
            "attention, 4 heads, 32 x 32",
            attention,
            tuple([0.2 * n((32, 32)) for _ in range(4)]),
            (n((32, 32)), n((32, 32))),
        ),
        Program(
            "convolution by slices, 5 x 5 over 28 x 28",
            convolution,
            (0.2 * n((5, 5)), n((28, 28))),
            (n((24, 24)),),
        ),
    ]
