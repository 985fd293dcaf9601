"""Functions of one vector whose derivatives are sparse: (function, point, most entries that its pattern may
have)."""

import numpy as np

import tapegrad as tg


def brusselator(N):
    """The SciML form, periodic: (f, u0), u in C order (N, N, 2)."""
    alpha, A, B = 10.0 * (N - 1) ** 2, 3.4, 1.0

    def laplacian(w):
        return np.roll(w, 1, 0) + np.roll(w, -1, 0) + np.roll(w, 1, 1) + np.roll(w, -1, 1) - 4 * w

    def f(u):
        U, V = u[..., 0], u[..., 1]
        return np.stack(
            [alpha * laplacian(U) + B + U**2 * V - (A + 1) * U, alpha * laplacian(V) + A * U - U**2 * V],
            axis=-1,
        )

    grid = np.linspace(0, 1, N)
    x, y = np.meshgrid(grid, grid, indexing="ij")
    return f, np.stack([22 * (y * (1 - y)) ** 1.5, 27 * (x * (1 - x)) ** 1.5], axis=-1)


def brusselator_in_place(N):
    """The same, written into a captured array through views, with loops over the neighbours."""
    alpha, A, B = 10.0 * (N - 1) ** 2, 3.4, 1.0
    du = np.zeros((N, N, 2))

    def f(u):
        U, V, dU, dV = u[..., 0], u[..., 1], du[..., 0], du[..., 1]
        dU[...] = B + U**2 * V - (A + 1) * U - 4 * alpha * U
        dV[...] = A * U - U**2 * V - 4 * alpha * V
        for w, dw in ((U, dU), (V, dV)):
            dw[1:] += alpha * w[:-1]
            dw[0] += alpha * w[-1]
            dw[:-1] += alpha * w[1:]
            dw[-1] += alpha * w[0]
            dw[:, 1:] += alpha * w[:, :-1]
            dw[:, 0] += alpha * w[:, -1]
            dw[:, :-1] += alpha * w[:, 1:]
            dw[:, -1] += alpha * w[:, 0]
        return du * 1.0

    return f, brusselator(N)[1]


N = 12
X = np.linspace(0.3, 1.7, N) + 0.1 * np.cos(np.arange(N) * 3.0)
R = np.random.default_rng(5)
EDGES = R.integers(0, N, (2, 15))
BAND = np.diag(np.full(N, 4.0)) + np.diag(np.ones(N - 1), 1) - np.diag(np.ones(N - 1), -1)
WEIGHTS = R.normal(size=(3, 3))
BUFFER, STATES = np.zeros(N), np.zeros((5, N))
FORWARD, BACKWARD = BAND.copy(), BAND.T.copy()
WORK = np.zeros((4, 3)), np.zeros((4, 3))


def stencil_in_place(x):
    y = np.zeros_like(x)
    y[1:-1] = x[:-2] - 2 * x[1:-1] + x[2:]
    y[1:-1] *= x[1:-1]
    y[0], y[-1] = x[0] ** 2, np.sin(x[-1])
    return y


def stencil_of_loops(x):
    y = np.zeros_like(x)
    for k in range(1, N - 1):
        y[k] = x[k - 1] * x[k + 1]
    return y


def graph(x):
    y = x**2
    np.add.at(y, EDGES[0], np.sin(x[EDGES[1]]) * x[EDGES[0]])
    return y


def graph_of_cells(x):
    """Cells take part in what flows over edges, and rows of several unknowns."""
    u = x.reshape(4, 3)
    y = np.zeros_like(u)
    np.add.at(y, [0, 1, 2, 1], u[[1, 2, 3, 0]] * u[[0, 1, 2, 1]])
    return y


def banded_solve(x):
    """By elimination, in place."""
    d, y = 4.0 + x, np.arange(1.0, N + 1) * x
    for k in range(1, N):
        w = 1.0 / d[k - 1]
        d[k] -= w
        y[k] -= w * y[k - 1]
    y[-1] /= d[-1]
    for k in range(N - 2, -1, -1):
        y[k] = (y[k] - y[k + 1]) / d[k]
    return y


def dense_solve(x):
    return np.linalg.solve(BAND + np.diag(x), np.ones(N))


def block_solves(x):
    A = np.eye(3) * 4.0 + x[:9].reshape(3, 3)[:, :, None] * np.ones(3)
    return np.linalg.solve(A, x[9:, None, None] * np.ones((3, 1)))[..., 0]


def block_model(x):
    return np.tanh(x.reshape(4, 3) @ WEIGHTS) ** 2


def trajectory(x):
    """Residuals of a trajectory: states at four times, each from the one before."""
    s = x.reshape(4, 3)
    return s[1:] - s[:-1] - 0.1 * np.stack([s[:-1, 1], s[:-1, 2], -np.sin(s[:-1, 0])], axis=1)


def diffused(x):
    """Rows of a captured array, each from the one before."""
    STATES[0] = x
    for k in range(1, 3):
        STATES[k] = STATES[k - 1]
        STATES[k, 1:] += 0.1 * STATES[k - 1, :-1] ** 2
    return STATES[2] * 1.0


def captured_buffer(x):
    BUFFER[:] = x
    BUFFER[::2] *= x[1::2]
    view = BUFFER.reshape(3, 4)
    view[1] += view[0] * view[2]
    return BUFFER[1:] * 2.0


def by_captured_matrices(x):
    return FORWARD @ x**2 + (x * x) @ BACKWARD


def by_work_arrays(x):
    """The third form of a reaction and diffusion in SciML's course: products into captured arrays."""
    u, (left, right) = x.reshape(4, 3), WORK
    left[...] = BAND[:4, :4] @ u
    right[...] = u @ BAND[:3, :3]
    return u * u / (1.0 + u) + left + right


def chosen(x):
    return np.where(x > 1.0, x * np.roll(x, 1), np.roll(x, -2) ** 2)


def by_masks(x):
    y = np.zeros_like(x)
    odd = np.arange(N) % 2 == 1
    y[odd] = x[~odd] ** 3
    return np.maximum(y, x)


def running(x):
    return np.cumsum(x**2)


def of_groups(x):
    """Each element relative to the sum of its group."""
    u = x.reshape(4, 3)
    return u / u.sum(axis=1, keepdims=True)


def convolved(x):
    return np.convolve(x**2, [0.2, 0.5, 0.3], "same")


def joined(x):
    return np.concatenate([x[:3] * x[3:6], np.flip(x)[:4], x[:1].repeat(3) ** 2, np.pad(x[2:5], 2)])


def einsums(x):
    u = x.reshape(4, 3)
    return np.einsum("ij,jk,ik->ik", u, WEIGHTS, u)


def sorted_by_value(x):
    return np.sort(x) ** 2


MODEL = tg.kernels.likelihood(
    lambda theta, y: -((y - theta[0]) ** 2) * np.exp(theta[1]) + theta[2] * theta[0]
)
DATA = np.array([0.3, 1.0, -0.4])


def of_samples(x):
    return MODEL(x.reshape(3, 4), DATA)


FUNCTIONS = {
    "stencil in place": (stencil_in_place, X, 3 * N - 4),
    "stencil of loops": (stencil_of_loops, X, 2 * N - 4),
    "graph": (graph, X, N + 2 * EDGES.shape[1]),
    "graph of cells": (graph_of_cells, X, 24),
    "banded solve": (banded_solve, X, N * N),
    "dense solve": (dense_solve, X, N * N),
    "block solves": (block_solves, X, 3 * 4 * 3),
    "block model": (block_model, X, 3 * N),
    "trajectory": (trajectory, X, 3 * 9),
    "diffused": (diffused, X, 3 * N - 3),
    "captured buffer": (captured_buffer, X, 4 * N),
    "captured matrices": (by_captured_matrices, X, 3 * N - 2),
    "work arrays": (by_work_arrays, X, 5 * N),
    "chosen": (chosen, X, 3 * N),
    "masks": (by_masks, X, 2 * N),
    "running": (running, X, N * (N + 1) // 2),
    "groups": (of_groups, X, 3 * N),
    "convolved": (convolved, X, 3 * N - 2),
    "joined": (joined, X, 2 * 3 + 4 + 3 + 3),
    "einsum": (einsums, X, 3 * N),
    "sorted": (sorted_by_value, X, N * N),
    "samples of a kernel": (of_samples, X, 3 * 4),
    "brusselator": (brusselator(4)[0], brusselator(4)[1].reshape(-1), 192),
    "brusselator in place": (brusselator_in_place(4)[0], brusselator_in_place(4)[1].reshape(-1), 192),
}
for _name in ("brusselator", "brusselator in place"):
    _f, _x, _most = FUNCTIONS[_name]
    FUNCTIONS[_name] = (lambda u, f=_f: f(u.reshape(4, 4, 2)), _x, _most)


# --- three problems of the CUTEst kind: (function, start, whether it is a sum whose Hessian is meant, entries) ---


def broyden_tridiagonal(x):
    """BROYDN3D: residuals."""
    y = (3.0 - 2.0 * x) * x + 1.0
    y[1:] -= x[:-1]
    y[:-1] -= 2.0 * x[1:]
    return y


def arrowhead(x):
    """ARWHEAD."""
    return ((x[:-1] ** 2 + x[-1] ** 2) ** 2 - 4.0 * x[:-1] + 3.0).sum()


def chained_wood(x):
    """CHAINWOO."""
    a, b, c, d = x[:-3:2], x[1:-2:2], x[2:-1:2], x[3::2]
    return (
        1.0
        + (100 * (b - a**2) ** 2 + (1 - a) ** 2 + 90 * (d - c**2) ** 2 + (1 - c) ** 2).sum()
        + (10 * (b + d - 2) ** 2 + 0.1 * (b - d) ** 2).sum()
    )
