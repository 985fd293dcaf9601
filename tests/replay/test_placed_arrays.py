"""Bodies of operations on places of the arena, calls of NumPy's loops, whole numbers and indices in
blocks."""

import numpy as np
import pytest
import scipy.fft
import scipy.linalg
import scipy.sparse.linalg
import scipy.special
from cases import all_cases
from test_replay_operations import outcome

import tapegrad as tg
from tapegrad._core.trees import leaves
from tapegrad.replay.emitted import InstructionKinds, unlike_instructions
from tapegrad.replay.interpreter import instruction_kinds
from tapegrad.replay.interpreter.placed_arrays import NotPlaced, PlacedArray
from tapegrad.replay.interpreter.placed_bodies import BODIES_KNOWN, NoRows

STEPS, SIZE = 12, 6
SEED = np.random.default_rng(0)
A = 0.3 * np.eye(SIZE) + 0.05 * SEED.normal(size=(SIZE, SIZE))
X = SEED.random(SIZE) + 0.5
GRID = np.linspace(-3.0, 3.0, 9)
WEIGHTS = SEED.normal(size=(SIZE, SIZE, SIZE))


@pytest.fixture
def blocks_that_do_not_pay(monkeypatch):
    monkeypatch.setattr(instruction_kinds, "TRANSFER_ROWS", 0)
    monkeypatch.setattr(instruction_kinds, "BLOCK_ROWS", 0)


def matrix(z):
    return np.eye(SIZE) + 0.1 * np.outer(z, z)


OPERATIONS = {
    "norm": lambda z: z / np.linalg.norm(z),
    "interp": lambda z: np.interp(z, GRID, np.sin(GRID)),
    "clip": lambda z: np.clip(z, -2.0, 2.0),
    "arctan2": lambda z: np.arctan2(z, 1.5),
    "logsumexp": lambda z: z - scipy.special.logsumexp(z),
    "logsumexp of rows": lambda z: scipy.special.logsumexp(A + z, axis=0),
    "floor": lambda z: z - 0.1 * np.floor(3.0 * z),
    "convolve": lambda z: np.convolve(z, [0.2, 0.5, 0.3], "same"),
    "max": lambda z: z - z.max(),
    "min of columns": lambda z: (A + z).min(axis=1) + z,
    "maximum": lambda z: np.maximum(z, z[::-1]),
    "cholesky": lambda z: np.linalg.cholesky(matrix(z)) @ z,
    "cholesky of 3": lambda z: np.concatenate([np.linalg.cholesky(matrix(z)[:3, :3]) @ z[:3], z[3:]]),
    "solve": lambda z: np.linalg.solve(matrix(z), z),
    "solve of several": lambda z: np.linalg.solve(matrix(z), A).sum(0),
    "inv": lambda z: np.linalg.inv(matrix(z)) @ z,
    "slogdet": lambda z: z + 0.01 * np.linalg.slogdet(matrix(z))[1],
    "sort": np.sort,
    "logaddexp": lambda z: np.logaddexp(z, z[::-1]),
    "power": lambda z: (z * z + 0.1) ** 1.5,
    "hypot": lambda z: np.hypot(z, z[::-1]),
    "mod": lambda z: np.mod(z, 0.7),
    "cross": lambda z: np.concatenate((np.cross(z[:3], z[3:]), z[3:])),
    "erf": scipy.special.erf,
    "gammaln": lambda z: scipy.special.gammaln(z * z + 1.0),
    "expit": scipy.special.expit,
    "prod": lambda z: z + 0.01 * np.prod(z),
    "std": lambda z: z / (1.0 + np.std(z)),
    "einsum": lambda z: np.einsum("ijk,j->ik", WEIGHTS, z)[0] + np.einsum("i,ij->j", z, A),
    "any": lambda z: np.where((A * z > 0.1).any(axis=1), z, 0.5 * z),
    "count": lambda z: z / (1 + (z > 0.3).sum()),
    "count_nonzero": lambda z: z / (1 + np.count_nonzero(z > 0.3)),
    "argsort": lambda z: z[np.argsort(-z)] * X,
    "argsort of columns": lambda z: np.take_along_axis(A + z, np.argsort(A * z, 0), 0)[1],
    "argmax of rows": lambda z: z * X[np.argmax(A * z, axis=1)],
    "argmin": lambda z: z * X[np.argmin(z, keepdims=True)],
    "remainder of whole numbers": lambda z: z[np.argsort(z) * 5 % SIZE] - z[np.argsort(z) // 2],
    "median": lambda z: z - np.median(z),
    "digitize": lambda z: z * X[np.digitize(z, GRID[2:6])],
    "round": lambda z: z - 0.1 * np.round(z, 1) + 0.1 * np.round(z),
    "modf": lambda z: np.modf(2.5 * z)[0],
    "nan_to_num": np.nan_to_num,
    "sinc": np.sinc,
    "choose": lambda z: np.choose((z > 0.3).astype(int), [z, 2.0 * z]),
    "bincount": lambda z: np.bincount([0, 2, 2, 1, 0, 5], z),
    "toeplitz": lambda z: 0.1 * scipy.linalg.toeplitz(z) @ X,
    "eigvalsh": lambda z: 0.3 * np.linalg.eigvalsh(matrix(z) + np.diag(GRID[:SIZE])),
    "singular values": lambda z: 0.3 * np.linalg.svd(matrix(z) + np.diag(GRID[:SIZE]))[1],
    "det": lambda z: z + 0.01 * np.linalg.det(matrix(z)),
    "qr": lambda z: np.linalg.qr(matrix(z))[1][0] + 0.1 * z,
    "qr of a tall matrix": lambda z: 0.1 * np.linalg.qr(np.outer(z, X[:3]) + A[:, :3])[0] @ X[:3] + z,
    "betaln": lambda z: scipy.special.betaln(2.0 + z * z, 3.0),
    "tridiagonal": lambda z: scipy.linalg.solve_banded((1, 1), np.stack([0.1 * z, 3 + z * z, z]), X),
    "bands": lambda z: scipy.linalg.solve_banded((2, 1), np.stack([z, 9 + z, z, 0.2 * z]), A * z)[:, 1],
    "bands of a symmetric matrix": lambda z: scipy.linalg.solveh_banded(np.stack([0.1 * z, 3 + z * z]), z),
    "pinv": lambda z: z + 0.1 * np.linalg.pinv(np.outer(z, X[:3]) + A[:, :3] + np.eye(SIZE)[:, :3])[2],
    "lexsort": lambda z: z[np.lexsort((X, np.round(z), z > 0.3))],
}  # fmt: skip


def loop(operation):
    def f(z):
        for _ in range(STEPS):
            z = np.tanh(A @ operation(z)) + X
        return (z * z).sum()

    return f


def replayed(f, *args, method="value_and_grad", compile=False):
    p = tg.prepare(f, *args, compile=compile)
    for _ in range(3):
        found = getattr(p, method)(*args)
    return p, found


@pytest.mark.one_in(7)
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_loop_with_the_operation_is_one_block(name):
    """The results are those of the plain call, whether rows are rolled or not; the report names no call of
    Python."""
    f = loop(OPERATIONS[name])
    for compile in (False, True):
        p, _ = replayed(f, X, compile=compile)
        for z in (X, X[::-1] - 0.4, -X):
            for got, want in zip(p.value_and_grad(z), tg.value_and_grad(f)(z), strict=True):
                np.testing.assert_allclose(got, want, 1e-13, 1e-14 * np.abs(want).max())
        kept = p.forms["value_and_grad"].programs[0]
        assert (
            not kept.failures and kept.emitted.blocks == 1 and kept.emitted.inside == len(kept.program.code)
        )
        assert "calls of Python" not in p.report()


BITS = dict.fromkeys(
    (
        np.arctan,
        np.floor,
        np.cbrt,
        np.exp2,
        np.log2,
        np.sinh,
        scipy.special.erf,
        scipy.special.expit,
        scipy.special.j0,
    ),
    1,
)
BITS |= dict.fromkeys(
    (
        np.arctan2,
        np.hypot,
        np.power,
        np.maximum,
        np.minimum,
        np.fmod,
        np.remainder,
        np.copysign,
        np.logaddexp,
    ),
    2,
)
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, np.pi, 1e300, -1e300, 5e-324, np.inf, -np.inf, np.nan])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ufunc", BITS, ids=lambda f: f.__name__)
def test_ufuncs_have_the_bits_of_numpy(ufunc, blocks_that_do_not_pay):
    """Signed zeros, infinities and nan included; along lines, across them, backwards, and for one number."""
    rng = np.random.default_rng(0)
    views = (
        lambda x: x,
        lambda x: x.T,
        lambda x: x[::-2],
        lambda x: x[..., 1::2],
        lambda x: x[:, :1],
        lambda x: x[0, 0],
    )
    f = lambda *args: tuple([ufunc(*[v(x) for x in args]) for v in views])
    args = [rng.uniform(0.1, 2.0, (5, 12)) for _ in range(BITS[ufunc])]
    p, _ = replayed(f, *args, method="value")
    assert p.forms["value"].programs[0].emitted.blocks == 1
    for low, high in ((-3, 3), (0, 1e-3), (1e200, 1e300)):
        again = [rng.uniform(low, high, (5, 12)) for _ in args]
        for x in (
            again,
            [SPECIAL + 0 * x for x in again],
            [x[:, :1] + SPECIAL[::k] for k, x in zip((1, -1), again, strict=False)],
        ):
            for got, want in zip(p.value(*x), f(*x), strict=True):
                np.testing.assert_array_equal(got, want)
                np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_some_operations_in_blocks(blocks_that_do_not_pay):
    for case in all_cases()[::12]:
        list(outcome(case))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", range(12))
def test_all_operations_in_blocks(first, blocks_that_do_not_pay):
    for case in all_cases()[first::12]:
        list(outcome(case))


# --- errors and warnings ---


@pytest.mark.parametrize("name", ["cholesky", "solve", "inv"])
def test_a_matrix_without_a_factor_raises_as_plainly(name):
    f = {
        "cholesky": np.linalg.cholesky,
        "solve": lambda a: np.linalg.solve(a, np.ones(6)),
        "inv": np.linalg.inv,
    }[name]
    g = lambda a: (f(a * 1.0 + 0.0) * 2.0 - 1.0).sum()
    p, _ = replayed(g, matrix(X))
    assert p.forms["value_and_grad"].programs[0].emitted.blocks
    for bad in (np.zeros((6, 6)), -np.ones((6, 6))):
        with pytest.raises(np.linalg.LinAlgError) as plain:
            tg.value_and_grad(g)(bad)
        with pytest.raises(np.linalg.LinAlgError) as prepared:
            p.value_and_grad(bad)
        assert str(plain.value) == str(prepared.value)
    np.testing.assert_allclose(p.grad(matrix(X)), tg.grad(g)(matrix(X)), 1e-15)


def test_warnings_are_those_of_a_plain_call():
    f = lambda x: (np.arctan2(np.log(x), 2.0) * np.hypot(x, 1.0) + x).sum()
    p, _ = replayed(f, X)
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        got = p.value(X * 0.0)
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        assert got == f(X * 0.0)


def test_errors_that_scipy_is_asked_to_raise():
    f = lambda x: (scipy.special.gammaln(x) * 2.0 + x * x).sum()
    p, _ = replayed(f, X, method="value")
    with scipy.special.errstate(all="raise"), pytest.raises(scipy.special.SpecialFunctionError):
        p.value(-np.ones(SIZE))
    np.testing.assert_allclose(p.value(X), f(X), 1e-15)


# --- whole numbers, and indices ---


def test_whole_numbers_are_counted_one_by_one(blocks_that_do_not_pay):
    """Beyond those that a float can be, the program runs without blocks."""

    def f(x, n):
        m = n * 2 - 1
        for _ in range(3):
            m = m + m
        return x * 2.0 - 1.0, np.maximum(m, -m), m > n, m / 3, n.sum()

    n = np.array([1, -2, 3, 0, 5, 6])
    p, _ = replayed(f, X, n, method="value")
    assert p.forms["value"].programs[0].emitted.inside > 6
    for k in (0, 1, 7, 2**30, 2**49 + 1, 2**53 - 1, 2**53 + 1, 2**58 + 1):
        for got, want in zip(leaves(p.value(X, n + k)), leaves(f(X, n + k)), strict=True):
            np.testing.assert_array_equal(got, want)
            assert got.dtype == want.dtype


@pytest.mark.parametrize(
    "whole",
    [lambda n: n * -3, lambda n: -n, lambda n: n % -2, lambda n: n // -2, lambda n: np.minimum(n, 0 * n)],
)
def test_whole_numbers_have_no_negative_zero(whole, blocks_that_do_not_pay):
    """Its sign would show once it is a float."""
    f = lambda x, n: np.copysign(x * 1.5, whole(n) * 1) + 1.0 + np.arctan2(whole(n).astype(float), -1.0)
    n = np.array([0, 1, -2, 4, 0, 0])
    p, _ = replayed(f, X, n, method="value", compile=True)
    assert p.forms["value"].programs[0].emitted.inside > 5
    for k in (n, -n, 0 * n):
        np.testing.assert_array_equal(p.value(X, k), f(X, k))


def test_indices_that_are_values(blocks_that_do_not_pay):
    """Ties, places from the end, and places that are not there."""
    f = lambda x: (np.sort(np.round(x * 3.0)) * X).sum() + (np.interp(x, GRID, np.cos(GRID)) * X).sum()
    p, _ = replayed(f, X)
    for x in (X, np.zeros(SIZE), np.array([1.0, -0.0, 0.0, 5.0, -5.0, 3.0]), GRID[:SIZE]):
        for got, want in zip(p.value_and_grad(x), tg.value_and_grad(f)(x), strict=True):
            np.testing.assert_allclose(got, want, 1e-15, 1e-15)
    g = lambda x, at: np.take_along_axis(x * 2.0 + 1.0, at * 1, 0) * 3.0 - 1.0
    p, _ = replayed(g, X, np.array([0, 5, 2]), method="value")
    np.testing.assert_array_equal(p.value(X, np.array([-1, -6, 3])), g(X, np.array([-1, -6, 3])))
    with pytest.raises(IndexError):
        p.value(X, np.array([0, 6, 1]))


@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_ordered_is_left_to_numpy(blocks_that_do_not_pay):
    f = lambda x: (np.argsort(x * 1.0, kind="stable") * 2, np.searchsorted(GRID, x * 1.0) + 1, x * 2.0)
    p, _ = replayed(f, X, method="value")
    for x in (X, np.where(X > 0.9, np.nan, X), np.full(SIZE, -np.inf)):
        for got, want in zip(p.value(x), f(x), strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [None, "stable", "heapsort"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 100, 333])
def test_orders_are_those_of_numpy(kind, size, blocks_that_do_not_pay):
    """Ties too: NumPy orders equal elements as it likes, unless the sort is stable."""
    rng = np.random.default_rng(size)
    f = lambda x: (np.argsort(x * 1.0, kind=kind) * 2, np.sort(x + 0.0, kind=kind) * 2.0, x - 1.0)
    x = rng.normal(size=size)
    p, _ = replayed(f, x, method="value")
    assert p.forms["value"].programs[0].emitted.blocks
    ties = rng.integers(0, 4, size) * 1.0
    for y in (x, -x, np.sort(x), ties, 0.0 * x, np.where(x > 1.0, np.nan, x), x / 0.0, np.round(x, 1)):
        for got, want in zip(p.value(y), f(y), strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 8, 33, 300])
def test_searches_are_those_of_numpy(size, side, blocks_that_do_not_pay):
    """Elements that do not ascend too, and what is no number."""
    rng = np.random.default_rng(size)
    f = lambda a, v: (
        np.searchsorted(a * 1.0, v + 0.0, side=side) + 1,
        np.digitize(v * 1.0, a + 0.0, right=side == "right") * 2,
        (a - 1.0) * (a + 1.0),
    )
    a, v = np.sort(rng.normal(size=size)), rng.normal(size=(5, 60))
    p, _ = replayed(f, a, v, method="value")
    kept = p.forms["value"].programs[0].emitted
    assert kept.blocks and not {"searchsorted", "digitize"} & {*kept.called}
    ties, whole = np.sort(rng.integers(-3, 3, size)) * 1.0, rng.integers(-4, 4, v.shape) * 1.0
    others = [np.where(v > 1.0, np.nan, v), np.where(v > 1.0, np.inf, -v), rng.choice(a, v.shape)]
    for b, w in [(ties, whole), (np.append(a[1:], np.nan), v), *[(a, w) for w in others]]:
        for got, want in zip(p.value(b, w), f(b, w), strict=True):
            np.testing.assert_array_equal(got, want)
    for got, want in zip(p.value(a[::-1].copy(), v), f(a[::-1], v), strict=True):
        np.testing.assert_array_equal(got, want)
    mixed = np.roll(a, 1)  # neither way, of three and more
    if len(a) > 2:
        with pytest.raises(ValueError, match="monotonic"):  # of digitize
            p.value(mixed, v)
    g = lambda a, v: (np.searchsorted(a * 1.0, v + 0.0, side=side) + 1, (a - 1.0) * (a + 1.0))
    p, _ = replayed(g, a, v, method="value")
    np.testing.assert_array_equal(p.value(mixed, v)[0], g(mixed, v)[0])


@pytest.mark.filterwarnings("ignore")
def test_first_extremes_are_those_of_numpy(blocks_that_do_not_pay):
    f = lambda x: (
        np.argmax(x * 1.0, axis=0) + 1,
        np.argmin(x * 1.0, axis=1, keepdims=True) + 1,
        np.argmax(x > 0.5, axis=1) * 2,
        np.argmax(x * 2.0) + 1,
    )
    x = SEED.normal(size=(4, 5))
    p, _ = replayed(f, x, method="value")
    assert p.forms["value"].programs[0].emitted.inside > 5
    for y in (x, -x, 0.0 * x, np.round(x), np.where(x > 0.9, np.nan, x), np.where(x > 0, np.inf, -np.inf)):
        for got, want in zip(p.value(y), f(y), strict=True):
            np.testing.assert_array_equal(got, want)


def test_a_choice_that_depends_on_a_value_is_checked_within_a_block():
    """An index that is one number, and the numbers of a mask, hold for a recording."""

    def f(x):
        for _ in range(STEPS):
            x = np.tanh(A @ x) + X * x[np.argmax(x)] + (x * x)[x > 0.8].sum() * 0.01
        return (x * x).sum()

    p, _ = replayed(f, X)
    kept = p.forms["value_and_grad"].programs[0]
    assert kept.emitted.blocks == 1 and kept.emitted.inside == len(kept.program.code)
    rng = np.random.default_rng(5)
    for _ in range(30):
        z = X + rng.normal(size=SIZE) * 0.3
        for got, want in zip(p.value_and_grad(z), tg.value_and_grad(f)(z), strict=True):
            np.testing.assert_allclose(got, want, 1e-12)


def test_a_choice_out_of_range_raises_as_plainly():
    f = lambda x, at: (np.choose(at * 1, [x, 2.0 * x, x * x]) * X).sum()
    p, _ = replayed(f, X, np.array([0, 1, 2, 2, 1, 0]))
    np.testing.assert_allclose(p.grad(X, np.full(SIZE, 2)), 2.0 * X * X, 1e-15)
    for mode, found in (("clip", [0, 2, 1, 0, 2, 0]), ("wrap", [2, 0, 1, 1, 2, 0])):
        at = np.array([-1, 3, 1, -2, 5, 0])
        g = lambda x, at, mode=mode: (np.choose(at, [x, 2.0 * x, x * x], mode=mode) * X).sum()
        want = X * np.choose(found, [np.ones(SIZE), np.full(SIZE, 2.0), 2.0 * X])
        np.testing.assert_allclose(tg.grad(g)(X, at), want, 1e-15)
        np.testing.assert_allclose(replayed(g, X, at, method="grad")[1], want, 1e-15)
    with pytest.raises(ValueError, match="invalid entry in choice array"):
        p.value(X, np.full(SIZE, 3))


@pytest.mark.parametrize("name", ["eigh", "svd", "qr", "slogdet"])
def test_results_that_replace_their_operands(name):
    """Several results, which may lie where operands do, in an order that frees one for the next."""
    f = {
        "eigh": lambda a: sum([(v**3).sum() * k for k, v in enumerate(np.linalg.eigh(a + a.T), 1)]),
        "svd": lambda a: sum([(v**4).sum() * k for k, v in enumerate(np.linalg.svd(a), 1)]),
        "qr": lambda a: sum([(v**4).sum() * k for k, v in enumerate(np.linalg.qr(a), 1)]),
        "slogdet": lambda a: sum([2.0 * v for v in np.linalg.slogdet(a)]),
    }[name]
    g = lambda a: f(a * (1.0 + 0.01 * np.tanh(0.1 * f(a * 1.0))))
    a = SEED.normal(size=(5, 5))
    p, _ = replayed(g, a)
    for _ in range(5):
        b = SEED.normal(size=(5, 5))
        for got, want in zip(p.value_and_grad(b), tg.value_and_grad(g)(b), strict=True):
            np.testing.assert_allclose(got, want, 1e-9, 1e-9 * np.abs(want).max())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["eigh", "svd", "det", "solve"])
def test_matrices_that_are_not_finite(name, blocks_that_do_not_pay):
    """As in a plain call, errors included."""
    f = {
        "eigh": lambda a: np.linalg.eigh(a * 1.0)[0] * 2.0,
        "svd": lambda a: np.linalg.svd(a * 1.0, compute_uv=False) * 2.0,
        "det": lambda a: np.linalg.det(a * 1.0) * 2.0,
        "solve": lambda a: np.linalg.solve(a * 1.0, X[:4]) * 2.0,
    }[name]
    a = SEED.normal(size=(4, 4))
    p, _ = replayed(f, a, method="value")
    for place in np.ndindex(4, 4):
        for bad in (np.nan, np.inf):
            b = a.copy()
            b[place] = bad
            try:
                want = f(b)
            except np.linalg.LinAlgError as error:
                with pytest.raises(np.linalg.LinAlgError, match=str(error)):
                    p.value(b)
            else:
                np.testing.assert_array_equal(p.value(b), want)
    np.testing.assert_allclose(p.value(a), f(a), 1e-13)


@pytest.mark.filterwarnings("ignore")
def test_parts_of_numbers_have_the_bits_of_numpy(blocks_that_do_not_pay):
    f = lambda x: (np.modf(x * 1.0)[0], np.nan_to_num(x * 1.0), np.nan_to_num(x * 1.0, True, 3.0, 4.0, 5.0)) + (
        np.round(x * 1.0), np.round(x * 1.0, 2), np.round(x * 1.0, -1), np.heaviside(x * 1.0, 0.5)
    )  # fmt: skip
    p, _ = replayed(f, X, method="value")
    for x in (10.0 * SEED.normal(size=50), SPECIAL, np.arange(-5.0, 5.0, 0.5), 15.0 * np.arange(-3.0, 4.0)):
        for got, want in zip(p.value(x), f(x), strict=True):
            np.testing.assert_array_equal(got, want)
            np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


# --- what is refused ---


@pytest.mark.parametrize(
    "ask", [bool, float, int, np.asarray, np.linalg.eigvalsh, lambda x: x.tolist(), lambda x: np.divmod(x, x)]
)
def test_a_body_that_asks_for_values_is_refused(ask):
    with pytest.raises((NotPlaced, TypeError, AttributeError)):
        ask(PlacedArray(NoRows(), np.zeros((2, 2), np.int64)))


def test_what_stays_with_python_is_reported():
    def f(x):
        for _ in range(4):
            x = scipy.special.ellipj(x, 0.3)[0] * 0.1 + np.tanh(A @ x) * 2.0 - x
        return x.sum()

    p, _ = replayed(f, X)
    assert "calls of Python, about " in p.report() and any([body.refused for body in BODIES_KNOWN.values()])


FACTORS = scipy.sparse.linalg.splu(scipy.sparse.csc_array(np.eye(SIZE) * 2.0))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: FACTORS.solve(x * x),
        lambda x, dct=scipy.fft.dct: dct(x) ** 2,
        lambda x, f=scipy.special.legendre_p: f(3, x),
    ],
    ids=["SuperLU", "dct", "legendre_p"],
)
def test_functions_and_factors_of_scipy_that_are_captured(f):
    """They do not change, so a recording holds."""
    p, found = replayed(lambda x: f(x).sum(), X)
    np.testing.assert_allclose(found[1], tg.grad(lambda x: f(x).sum())(X), rtol=1e-13)
    assert p.forms["value_and_grad"].eager is None


STACKS = {
    "det": lambda x: np.linalg.det(x) ** 2,
    "inv": lambda x: np.linalg.inv(x) * np.sin(x),
    "solve": lambda x: np.linalg.solve(x, np.sin(x[..., :2])),
    "solve with one vector": lambda x: np.linalg.solve(x, np.arange(1.0, 1.0 + 2 * len(x[0])).reshape(-1, 2)),
    "product": lambda x: x @ np.sin(x) @ x[:1],
}


@pytest.mark.parametrize("unknowns", [1, 2, 3, 4])
@pytest.mark.parametrize("name", STACKS)
def test_a_stack_of_small_matrices_is_one_block(name, unknowns):
    rng, f = np.random.default_rng(unknowns), STACKS[name]
    x, v = rng.normal(size=(2, 90, unknowns, unknowns))
    p = tg.prepare(lambda x: f(x).sum(), x)
    for shift in (0.0, 0.1, 0.2, 0.3):
        value, gradient = p.value_and_grad(x + shift)
    np.testing.assert_allclose(value, f(x + shift).sum(), rtol=1e-10)
    by_complex_step = f(x + shift + 1e-30j * v).sum().imag / 1e-30
    np.testing.assert_allclose((gradient * v).sum(), by_complex_step, rtol=1e-9)
    assert " of Python" not in p.report().partition("one text of Python")[2], p.report()


def test_a_singular_matrix_of_a_stack_is_left_to_numpy():
    x = np.random.default_rng(0).normal(size=(80, 3, 3))
    p = tg.prepare(lambda x: (np.linalg.det(x) * np.arange(80.0)).sum(), x)
    for _ in range(3):
        p.value_and_grad(x)
    x[7, :, 1] = 0.0
    value, gradient = p.value_and_grad(x)
    np.testing.assert_allclose(value, np.linalg.det(x) @ np.arange(80.0), rtol=1e-13)
    minors = np.cross(x[7, [1, 2, 0]], x[7, [2, 0, 1]])
    np.testing.assert_allclose(gradient[7], 7.0 * minors, rtol=1e-13)


@pytest.mark.parametrize("shape", [(300,), (300, 2), (2, 300), (2, 150, 3)])
def test_long_sums_are_those_of_numpy(shape):
    x, axis = np.random.default_rng(0).normal(size=shape), int(np.argmax(shape))
    f = lambda x: (np.cumsum(2.0 * x - x, axis=axis) * 3.0 - x) * x
    p = tg.prepare(f, x)
    q = tg.prepare(lambda x: f(x).sum(), x)
    for k in range(4):
        y = x + 0.001 * k
        np.testing.assert_array_equal(p.value(y), f(y))
        later = np.flip(np.cumsum(np.flip(3.0 * y, axis), axis), axis)
        np.testing.assert_allclose(
            q.grad(y), later + 3.0 * np.cumsum(y, axis) - 2.0 * y, rtol=1e-10, atol=1e-10
        )


IMAGE, VOLUME = SEED.normal(size=(7, 9)), SEED.normal(size=(7, 9, 2))


def interpolated(x, image=IMAGE):
    i, j = np.floor(x).astype(int), (0.7 * x - 0.4).astype(int)
    u = x - i
    lines = (1 - u) * image[i, j] + u * image[i + 1, j]
    return lines, VOLUME[i, j] * x[:, None], (x * x)[j - 2], 1.0 / (2.5 - j)


def test_indices_of_rounded_numbers():
    x = np.random.default_rng(3).random(40) * 5.9 + 0.01
    p = tg.prepare(interpolated, x)
    q = tg.prepare(lambda x, image: sum(v.sum() for v in interpolated(x, image)), x, IMAGE, argnums=(0, 1))
    for k in range(5):
        y, image = np.roll(x, k), IMAGE + k
        for got, want in zip(p.value(y), interpolated(y), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-15)
        i, j = np.floor(y).astype(int), (0.7 * y - 0.4).astype(int)
        slope = image[i + 1, j] - image[i, j] + VOLUME[i, j].sum(1)
        np.add.at(slope, j - 2, 2 * y[j - 2])
        weights = np.zeros((7, 9))
        np.add.at(weights, (i, j), 1 - (y - i))
        np.add.at(weights, (i + 1, j), y - i)
        for got, want in zip(q.grad(y, image), (slope, weights), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    assert " of Python" not in q.report().partition("one text of Python")[2], q.report()
    with pytest.raises(IndexError, match="index 7 is out of bounds"):
        p.value(x + 1.0)


@pytest.mark.filterwarnings("ignore")
def test_rounded_numbers_are_those_of_numpy(blocks_that_do_not_pay):
    f = lambda x: 3 * (2.0 * x).astype(int) - 1
    p, _ = replayed(f, X, method="value")
    for x in ([-0.3, -0.0, 0.4, -2.6, 7.5, -7.5], [1e15, -1e15, 1e18, np.nan, np.inf, -np.inf]):
        np.testing.assert_array_equal(p.value(np.array(x)), f(np.array(x)))


@pytest.mark.parametrize("name", ["solve", "eigvalsh", "singular values", "qr", "median"])
def test_the_trips_of_a_loop_are_written_once(name):
    """Its trips are seen to repeat: settings, layouts and flags of equal instructions are one object each."""

    def f(z):
        for _ in range(60):
            z = np.tanh(A @ OPERATIONS[name](z)) + X
        return (z * z).sum()

    p = tg.prepare(f, X)
    p.value_and_grad(X)
    kinds = InstructionKinds(p.forms["value_and_grad"].programs[0].program)
    assert unlike_instructions(kinds) < 0.2 * len(kinds.table.code)


@pytest.mark.parametrize("n", [2, 3])
def test_the_factor_of_a_hermitian_matrix_in_blocks(n, blocks_that_do_not_pay):
    m = SEED.normal(size=(n, n)) + 1j * SEED.normal(size=(n, n))
    m = m @ m.conj().T + 3 * np.eye(n)

    def f(x):
        y = np.linalg.cholesky(x)
        return (y.real * A[:n, :n] + y.imag).sum()

    p = tg.prepare(f, m, compile=True)
    for scale in (1.0, 1.1, 1.2, 1.3):
        np.testing.assert_allclose(p.grad(scale * m), tg.grad(f)(scale * m), rtol=1e-10, atol=1e-12)
