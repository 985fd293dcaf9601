"""Products with matrices that turn out to be zero but near their diagonals: what says so, the products, and
what NumPy gives."""

import ctypes

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.kernels.launch.cpu import function_address
from tapegrad.replay.interpreter import instruction_kinds
from tapegrad.replay.interpreter.banded import BAND_DIAGONALS, BANDED_UNKNOWNS, TEXT, workspace_size

NAMES = ("xi", "xk", "yk", "yj", "m", "n", "p")
CHECK = f"""
define i64 @check(ptr %c, ptr %x, ptr %y, ptr %room, {", ".join([f"i64 %{name}" for name in NAMES])}) {{
  %one = call i1 @banded(ptr %c, ptr %x, i64 %xi, i64 %xk, ptr %y, i64 %yk, i64 %yj, i64 %m, i64 %n, i64 %p, ptr %room)
  %answer = zext i1 %one to i64
  ret i64 %answer
}}
"""


def check():
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 4, *[ctypes.c_int64] * len(NAMES))
    return kind(function_address(TEXT + CHECK, "check"))


def band(rng, n, width):
    far = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    return np.where(far <= width, rng.normal(size=(n, n)), rng.choice([0.0, -0.0], size=(n, n)))


def laid(rng, a):
    """The same elements by rows or by columns, side by side or with gaps of nan between lines; the steps."""
    turned, gap = rng.integers(2), rng.integers(2) * 3
    lines = a.T if turned else a
    room = np.full((len(lines), lines.shape[1] + gap), np.nan)
    room[:, : lines.shape[1]] = lines
    return room, (1, room.shape[1]) if turned else (room.shape[1], 1)


def product(run, rng, x, y):
    """x y, and whether it was found that one is banded."""
    (xs, xsteps), (ys, ysteps) = laid(rng, x), laid(rng, y)
    found, room = np.full((len(x), y.shape[1]), np.nan), np.full(workspace_size(y.shape[1]), np.nan)
    places = [v.ctypes.data for v in (found, xs, ys, room)]
    return found, bool(run(*places, *xsteps, *ysteps, *x.shape, y.shape[1]))


def most(n):
    return min((n - 8) // 16, BAND_DIAGONALS) if n >= BANDED_UNKNOWNS else -1


@pytest.mark.parametrize("seed", [0, *[pytest.param(k, marks=pytest.mark.long) for k in range(1, 20)]])
def test_banded_products(seed):
    rng, run = np.random.default_rng(seed), check()
    for _ in range(150):
        n, m = rng.integers(1, 100), rng.integers(1, 70)
        width, left = rng.integers(0, 7), rng.integers(2)
        a, b = band(rng, n, width), rng.normal(size=(n, m) if left else (m, n))
        x, y = (a, b) if left else (b, a)
        found, is_banded = product(run, rng, x, y)
        width = np.abs(np.subtract(*np.nonzero(a))).max(initial=0)
        assert is_banded == (width <= most(n))
        if is_banded:
            np.testing.assert_allclose(found, x @ y, 1e-13, 1e-13)


def test_one_element_far_from_the_diagonal():
    rng, run = np.random.default_rng(3), check()
    for n in (BANDED_UNKNOWNS, 33, 64, 71):
        for place in ((0, n - 1), (n - 1, 0), (n // 2, n - 1), (n - 1, n - 2 - most(n)), (1, 2 + most(n))):
            for value in (1e-300, np.nan, np.inf):
                a = band(rng, n, 0)
                a[place] = value
                for x, y in ((a, rng.normal(size=(n, 5))), (rng.normal(size=(5, n)), a)):
                    assert not product(run, rng, x, y)[1]


def test_what_is_not_finite_is_never_left_out():
    """The diagonal counts, even where it is zero."""
    rng, run = np.random.default_rng(4), check()
    for n in (40, 70):
        for value in (np.nan, np.inf, -np.inf):
            for a in (np.zeros((n, n)), band(rng, n, 1)):
                b = rng.normal(size=(n, n + 3))
                b[rng.integers(n), rng.integers(n)] = value
                with np.errstate(invalid="ignore"):
                    for x, y in ((a, b), (b.T, a)):
                        found, is_banded = product(run, rng, x, y)
                        assert is_banded and not np.isfinite(found).all()


def programs():
    grid = lambda n: 2.0 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    heat = lambda A, u: sum([(v * v).sum() for v in (A @ u, u @ A, A.T @ u + (u @ A.T) * np.sin(u))])
    steps = lambda A, u: (np.tanh(A @ np.tanh(u @ A - 0.1 * u)) * u).sum()
    return [(f, grid(n), n) for f in (heat, steps) for n in (24, 48)]


@pytest.mark.parametrize("f, A, n", programs())
@np.errstate(all="ignore")
def test_replays_whose_matrix_is_banded_or_is_not(f, A, n, monkeypatch):
    """The same program, at matrices of other widths, and at values that are not finite."""
    monkeypatch.setattr(instruction_kinds, "TRANSFER_ROWS", 0)
    rng = np.random.default_rng(n)
    A, u = A.copy(), rng.normal(size=(n, n))
    g = lambda u: f(A, u)
    p = tg.prepare(g, u)
    for k, matrix in enumerate(
        (
            A.copy(),
            A.copy(),
            band(rng, n, 0),
            band(rng, n, 1),
            rng.normal(size=(n, n)),
            np.zeros((n, n)),
            A.copy(),
        )
    ):
        A[...] = matrix
        at, v = u * (1 + k / 7), rng.normal(size=(n, n))
        np.testing.assert_allclose(p.grad(at), tg.grad(g)(at), 1e-11, 1e-11)
        np.testing.assert_allclose(p.hvp(at, v), tg.hvp(g, at, v), 1e-11, 1e-10)
    for value in (np.nan, np.inf):
        at = u.copy()
        at[3, 5] = value
        np.testing.assert_array_equal(np.isnan(p.grad(at)), np.isnan(tg.grad(g)(at)))
    assert p.forms["grad"].programs[0].emitted.blocks and p.forms["grad"].recordings == 1


def test_jacobians_whose_seed_is_an_identity():
    W, x = np.random.default_rng(1).normal(size=(30, 30)) / 6, np.random.default_rng(2).normal(size=30)

    def f(x):
        for _ in range(3):
            x = np.sin(W @ x) + 0.2 * x
        return x

    s, h = lambda x: (f(x) ** 2).sum(), 1e-100
    p, q = tg.prepare(f, x), tg.prepare(s, x)
    for k in range(5):
        at = x * (1 + k / 5)
        want = np.stack([f(at + 1j * h * e).imag / h for e in np.eye(30)], axis=1)
        np.testing.assert_allclose(p.jacobian(at), want, 1e-12, 1e-13)
        np.testing.assert_allclose(q.hessian(at), tg.hessian(s)(at), 1e-11, 1e-11)
    assert p.forms["jacobian"].programs[0].emitted.blocks
