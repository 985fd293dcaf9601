"""Rows of the interpreter that share strips of their elements, against the same rows one after the other."""

import numpy as np
import pytest
from bare_blocks import bare_block

import tapegrad as tg
from tapegrad.replay.interpreter import arena as _arena
from tapegrad.replay.interpreter import blocks
from tapegrad.replay.interpreter.machine_code import NUMBER
from tapegrad.replay.interpreter.strips import in_strips

N = 1500


def random_rows(rng):
    """A block with rows on parts of a few arrays that may overlap, with sums, calls of ufuncs and indices."""
    values = [rng.uniform(0.5, 1.5, N + 8) for _ in range(4)]
    block, (*places, total, image, index) = bare_block(
        *values, np.ones(3), rng.uniform(0.5, 1.5, N), rng.integers(-N, N, N + 8).astype(float)
    )

    def line():
        skipped = int(rng.choice([0, 0, 0, 0, 1, 8]))
        at = places[rng.integers(4)] if rng.random() < 0.9 else index
        return at[skipped : skipped + N]

    for _ in range(rng.integers(3, 25)):
        to = places[rng.integers(4)][(skipped := int(rng.choice([0, 0, 0, 3]))) : skipped + N]
        kind = rng.integers(8)
        number = total[rng.integers(3)]
        if kind == 0:
            block.row("addto", np.broadcast_to(number, (N,)), line())
        elif kind == 1:
            block.row("copy", number, total[rng.integers(3)])
        elif kind == 2:
            block.called(np.arctan, to, line())
        elif kind == 3:
            block.indexed("gathered", to, image if rng.random() < 0.7 else line(), index[:N])
        elif kind == 4:
            block.row("mul", to, line(), number)
        elif kind == 5:
            block.row("select", to, line(), number, line())
        else:
            block.row(str(rng.choice(["add", "sub", "max", "mul"])), to, line(), line())
    return block


def state_after(block, rows):
    block.rows, memory = rows, _arena.ArenaMemory(block.arena)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "in_strips", lambda rows: rows)
        block.settle()
    answer = block.run(*block.before, memory.address)
    return memory.arena.copy(), answer


def judged(seeds):
    """The number of programs that have strips."""
    found = 0
    for seed in seeds:
        block = random_rows(np.random.default_rng(seed))
        plain = block.rows
        strips = in_strips(plain)
        found += any([row[0] == NUMBER["strip"] for row in strips])
        block.arena.settle()
        (want, answer), (got, same) = state_after(block, plain), state_after(block, strips)
        if np.isfinite(want).all():
            np.testing.assert_allclose(got, want, 1e-8, 1e-8, err_msg=f"seed {seed}")
            assert answer == same
    return found


def test_strips_give_what_rows_give_one_after_the_other():
    assert judged(range(150)) > 100


@pytest.mark.long
def test_strips_of_many_programs():
    assert judged(range(1000, 11_000)) > 7000


@pytest.mark.parametrize("n", [1023, 1024, 1025, 1537, 4096, 30_001])
def test_functions_of_lines_that_are_done_in_strips(n):
    rng = np.random.default_rng(n)
    at, image = rng.integers(-n, n, n), rng.normal(size=n)

    def f(x):
        y = np.maximum(x * x - 0.5, 0.1 * x)
        y = np.where(y > 0.3, y, 2.0) * np.sin(x) + image[at]
        z = y[1:] - y[:-1]
        return (z * z).sum() + np.clip(y, 0.2, 0.9).sum() * y.mean()

    p = tg.prepare(f, rng.normal(size=n), compile=False)
    for _ in range(4):
        x = rng.normal(size=n)
        np.testing.assert_allclose(p.value(x), f(x), 1e-12)
        np.testing.assert_allclose(p.grad(x), tg.grad(f)(x), 1e-11, 1e-12)
    assert p.forms["grad"].programs[0].emitted.blocks > 0


@pytest.mark.parametrize("shape", [(40, 2, 2), (17, 3), (20, 3, 3), (6, 5, 4)], ids=str)
def test_stacks_of_small_matrices_and_short_lines(shape):
    rng = np.random.default_rng(1)
    square = len(shape) > 2 and shape[-1] == shape[-2]
    buffer = np.zeros(shape)

    def f(x):
        buffer[...] = x
        buffer[..., 0] *= 2.0
        y = buffer + 0.1 * x[..., ::-1]
        if square:
            y = y @ x.swapaxes(-1, -2) + np.linalg.inv(x + 4 * np.eye(shape[-1]))
            y = y * np.linalg.det(y)[..., None, None]
        return y, (y * y).sum(-1), np.linalg.norm(y, axis=-1).max(0)

    p = tg.prepare(f, rng.normal(size=shape))
    total = tg.prepare(lambda x: sum([(v * v).sum() for v in f(x)]), rng.normal(size=shape))
    for _ in range(4):
        x = rng.normal(size=shape)
        for got, want in zip(p.value(x), f(x), strict=True):
            np.testing.assert_allclose(got, want, 1e-12, 1e-13)
            assert got.strides == want.strides
        np.testing.assert_allclose(
            total.grad(x), tg.grad(lambda x: sum([(v * v).sum() for v in f(x)]))(x), 1e-10, 1e-10
        )


@pytest.mark.parametrize("rank", [3, 4, 8, 17])
def test_rows_that_are_gathered_and_scattered(rank):
    rng = np.random.default_rng(rank)
    i, j = rng.integers(0, 40, 300), rng.integers(0, 20, 300)

    def f(u, v):
        a, b = u[i], v[j]
        buffer = np.zeros((40, rank))
        np.add.at(buffer, i, a * b)
        return (a * b).sum(axis=1), a - b * (a * b).sum(axis=1)[:, None], buffer, a[:, ::-1] + b[0]

    def total(u, v):
        return sum([(y * y).sum() for y in f(u, v)])

    p, q = [tg.prepare(g, rng.normal(size=(40, rank)), rng.normal(size=(20, rank))) for g in (f, total)]
    for _ in range(4):
        u, v = rng.normal(size=(40, rank)), rng.normal(size=(20, rank))
        for got, want in zip(p.value(u, v), f(u, v), strict=True):
            np.testing.assert_allclose(got, want, 1e-12, 1e-12)
        np.testing.assert_allclose(q.grad(u, v), tg.grad(total)(u, v), 1e-9, 1e-9)
    assert q.forms["grad"].programs[0].emitted.blocks > 0


@pytest.mark.parametrize(
    "sizes", [(20, 25, 3, 60), (20, 3, 25, 60), (17, 30, 40, 4), (20, 40, 3, 3), (3, 300, 4, 20)]
)
def test_products_of_stacks_that_blas_computes(sizes):
    n, rows, inner, columns = sizes
    rng = np.random.default_rng(0)
    x, y, w = rng.normal(size=(n, rows, inner)), rng.normal(size=(n, inner, columns)), rng.normal(size=inner)

    def f(scale):
        z = (x * scale) @ y
        for _ in range(3):
            z = np.tanh(z) * 0.5 + (x * scale) @ (y * z.mean())
        u = (x * scale) @ w + (x * scale + z.mean()) @ w
        return (z * z).sum() + (u * u).sum(), z, u

    p = tg.prepare(f, w)
    q = tg.prepare(lambda scale: f(scale)[0], w)
    for _ in range(4):
        scale = rng.normal(size=inner)
        for got, want in zip(p.value(scale), f(scale), strict=True):
            np.testing.assert_allclose(got, want, 1e-10, 1e-12)
        np.testing.assert_allclose(q.grad(scale), tg.grad(lambda s: f(s)[0])(scale), 1e-9)


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize(
    "starts", [np.arange(60), np.array([0, 2, 3, 3, 9, 11, 12, 20, 21, 30, 31, 33])], ids=len
)
def test_places_that_are_written_repeatedly_keep_what_is_written_last(starts, order):
    """Windows that overlap, written by elements in either memory order."""
    rng = np.random.default_rng(0)
    at = np.ascontiguousarray(
        (starts + np.arange(9)[:, None]).T if order == "C" else starts + np.arange(9)[:, None]
    )
    values, others = np.asarray(rng.normal(size=at.shape), order="F"), rng.normal(size=at.shape[::-1])

    def f(x):
        y = np.zeros(80) + x[0]
        y[at] = values * x[1]
        z = y * 2.0 + 1.0
        z[at] = (others * x[0] + 1.0).T * np.tanh(z[at])
        for _ in range(3):
            z = np.sin(z) + y * 0.5
        return z

    p = tg.prepare(f, np.ones(2), compile=True)
    q = tg.prepare(lambda x: (f(x) ** 2).sum(), np.ones(2), compile=True)
    for k in range(1, 6):
        x = np.array([0.3 * k, 0.5])
        np.testing.assert_allclose(p.value(x), f(x), 1e-13)
        np.testing.assert_allclose(q.grad(x), tg.grad(lambda x: (f(x) ** 2).sum())(x), 1e-12)
    assert p.forms["value"].programs[0].emitted.blocks > 0
