"""Products of one matrix with work between them as a loop over its rows: functions, random programs, threads,
and when it pays."""

import numpy as np
import pytest
import test_replay_groups as from_groups

import tapegrad as tg
from tapegrad.kernels.launch import waiting
from tapegrad.replay.fusion import compiled_groups, row_products

RNG = np.random.default_rng(12)
Y = RNG.uniform(0.1, 0.9, size=600)
fused, small_arrays_too = from_groups.fused, from_groups.small_arrays_too


def logistic(A, y, w):
    return np.logaddexp(0.0, -y * (A @ w)).sum()


def residuals(A, y, w):
    r = np.tanh(A @ w) - y
    return (r * r).sum() * 0.5, A.T @ (r * r), r


def powers(A, y, w):
    z = A @ w
    return ((A @ (w * w)) * z).sum() + (np.exp(-z * z) * y).sum()


def ridge(A, y, w):
    """Work on the columns, and on sums, stands between that on the rows."""
    s = (w * w).sum()
    return (
        np.logaddexp(0.0, -y * (A @ w)).sum() + 0.5 * s + np.exp(-s) * (np.tanh(A @ w) ** 2).sum() / (1.0 + s)
    )


@pytest.mark.one_in(2)
@pytest.mark.parametrize("f", [logistic, residuals, powers, ridge], ids=lambda f: f.__name__)
@pytest.mark.parametrize("rows", [161, *[pytest.param(n, marks=pytest.mark.long) for n in (160, 500)]])
@pytest.mark.parametrize("kind", ["captured", "constant", "argument"])
def test_rows(f, rows, kind, monkeypatch):
    monkeypatch.setattr(row_products, "MATRIX_BYTES", 0)
    monkeypatch.setattr(compiled_groups, "GROUP_ENTRY_NS", -1e12)
    monkeypatch.setattr(row_products, "PART_BYTES", 8 * 7 * 48)
    A, y, w = RNG.normal(size=(rows, 7)), RNG.normal(size=rows), RNG.normal(size=7) / 3
    A.flags.writeable = kind != "constant"
    g = (lambda w, A: f(A, y, w)) if kind == "argument" else lambda w: f(A, y, w)
    args = (w, A) if kind == "argument" else (w,)
    if f is residuals:
        emitted = fused(g, args, (w * 2.0, *args[1:]), rtol=1e-13)
        if kind != "constant":  # (whose transpose is a constant by itself)
            assert (
                any([type(group) is row_products.RowGroup for group in emitted.groups])
                and "matmul" not in emitted.alone
            )
        return
    p = tg.prepare(g, *args, compile=True)
    for k in range(5):
        at = (w * (1 + k / 8), *args[1:])
        value, gradient = p.value_and_grad(*at)
        want, slope = tg.value_and_grad(g)(*at)
        np.testing.assert_allclose(value, want, 1e-12)
        np.testing.assert_allclose(gradient, slope, 1e-11, 1e-11)
        np.testing.assert_allclose(p.hvp(at[0], w, args=at[1:]), tg.hvp(g, at[0], w, at[1:]), 1e-11, 1e-11)
    for method in ("value_and_grad", "hvp"):
        kept = p.forms[method].programs[0]
        assert (
            not kept.failures
            and not kept.refusals
            and any([type(group) is row_products.RowGroup for group in kept.emitted.groups])
        )
    here = p.at(*args)
    for k in range(4):
        np.testing.assert_allclose(here.hvp(w * k), tg.hvp(g, w, w * k, args[1:]), 1e-11, 1e-11)


def test_rows_that_others_read():
    """A product that another one reads too is no part of the tiles, nor one of another matrix."""
    A, B = RNG.normal(size=(600, 250)), RNG.normal(size=(600, 250))
    f = lambda w: (A @ w, np.tanh(A @ w) @ B, np.cumsum(np.tanh(A @ w) * 2.0 + np.exp(A @ w)) @ A)
    fused(f, (Y[:250] / 9,), (Y[100:350] / 9,), rtol=1e-12)


def test_rows_of_float32_whose_factors_two_sums_share():
    A, w = RNG.normal(size=(2003, 450)).astype("f4"), (RNG.normal(size=450) / 30).astype("f4")

    def f(w):
        z = A @ w
        r = np.tanh(z) - np.float32(0.1) * z
        return r @ A, A.T @ r

    emitted = fused(f, (w,), (w * 2,), rtol=2e-4)
    assert [type(group) for group in emitted.groups] == [
        row_products.RowGroup
    ] and "matmul" not in emitted.alone


def test_rows_whose_factors_need_a_sum_of_all_of_them():
    """The matrix is read twice, before that sum and after it; products that do not need it are done
    together."""
    A, w = RNG.normal(size=(1200, 400)), RNG.normal(size=400) / 30

    def f(w):
        z = A @ w
        e = np.exp(z)
        return (e / e.sum()) @ A, np.tanh(z) @ A, e.sum() * (w * w)

    emitted = fused(f, (w,), (w * 2,), rtol=1e-12)
    assert row_products.RowGroup in [type(group) for group in emitted.groups] and emitted.alone["matmul"] == 1


def test_a_matrix_that_is_read_twice_is_worth_a_loop_over_its_rows():
    A, y, w = RNG.normal(size=(2100, 200)), RNG.normal(size=2100), RNG.normal(size=200) / 20
    due = []
    for f in (lambda w: logistic(A, y, w), lambda w: (A @ w) ** 2):
        p = tg.prepare(f, w)
        for _ in range(3):
            p.value(w)
        kept = p.forms["value"].programs[0]
        due.append(kept.due)
        assert kept.emitted.read_again() == 0
        for _ in range(3):
            p.vjp(w, np.ones(np.shape(f(w))))
        kept = p.forms["vjp"].programs[0]
        assert kept.emitted.read_again() == A.nbytes and kept.due < due[-1] / 3


def test_the_bits_of_rows_do_not_depend_on_threads(monkeypatch):
    monkeypatch.setattr(row_products, "MATRIX_BYTES", 0)
    monkeypatch.setattr(row_products, "PART_BYTES", 1 << 14)
    monkeypatch.setattr(waiting, "THREADED_OPERATIONS", 1000)
    A, y, w = RNG.normal(size=(1001, 37)), RNG.normal(size=1001), RNG.normal(size=37) / 6
    found = []
    for threads in (1, 3, 8):
        monkeypatch.setattr(waiting, "THREADS", threads)
        waiting.dismiss()
        p = tg.prepare(lambda w: logistic(A, y, w), w, compile=True)
        found.append([p.value_and_grad(w) for _ in range(4)][-1])
        assert any(
            [
                type(group) is row_products.RowGroup
                for group in p.forms["value_and_grad"].programs[0].emitted.groups
            ]
        )
    waiting.dismiss()
    for value, gradient in found[1:]:
        assert value == found[0][0] and np.array_equal(gradient, found[0][1])


# --- random programs ---


def program(seed):
    """A function of a few numbers: values for rows, for columns, and single ones, each made of others; its
    start."""
    rng = np.random.default_rng(seed)
    m, n = rng.integers(100, 220), rng.integers(3, 12)
    A = rng.normal(size=(m, n)) / n
    if rng.integers(4) == 0:
        A = np.asfortranarray(A)
    A.flags.writeable = bool(rng.integers(2))
    y, steps = rng.normal(size=m), [(rng.integers(8), *rng.random(2)) for _ in range(rng.integers(6, 16))]

    def f(w):
        values = {"rows": [A @ w, y], "columns": [w], "single": [(w * w).sum() * 0.1]}
        take = lambda kind, u: values[kind][int(u * len(values[kind]))]
        for what, u, v in steps:
            r, c, s = take("rows", u), take("columns", v), take("single", u)
            if what == 0:
                values["rows"].append(np.sin(r) + take("rows", v) * 0.3)
            elif what == 1:
                values["rows"].append(r * take("rows", v) / (1.0 + r * r))
            elif what == 2:
                values["rows"].append(np.tanh(r) * s)
            elif what == 3:
                values["rows"].append(A @ np.sin(c))
            elif what == 4:
                values["columns"].append(np.tanh((r @ A) * 0.05 + c))
            elif what == 5:
                values["columns"].append(np.cos(c) * s if u < 0.5 else np.tanh(A.T @ r * 0.05))
            else:
                values["single"].append(
                    np.tanh((r * r).sum() * 0.01 + s) if what == 6 else np.exp(-(c * c).sum()) + s
                )
        return (
            sum([np.tanh(v * 0.2).sum() for kind in values.values() for v in kind[1:]])
            + np.log1p(np.exp(-values["rows"][0])).sum()
        )

    return f, rng.normal(size=n) / 2


def judged(seeds, monkeypatch):
    """Gradients and products of replays, the same as those of the tape, and of complex steps; how many had a
    loop over rows."""
    monkeypatch.setattr(row_products, "MATRIX_BYTES", 0)
    monkeypatch.setattr(row_products, "PART_BYTES", 1 << 12)
    monkeypatch.setattr(compiled_groups, "GROUP_ENTRY_NS", -1e12)
    found = 0
    for seed in seeds:
        f, w = program(seed)
        p, v = tg.prepare(f, w, compile=True), np.random.default_rng(seed).normal(size=len(w))
        for k in range(5):
            at = w * (1 + k / 9)
            slope, product = p.grad(at), p.hvp(at, v)
            np.testing.assert_allclose(
                slope, tg.grad(f)(at), 1e-10, 1e-10 * np.abs(slope).max(), err_msg=f"seed {seed}"
            )
            np.testing.assert_allclose(
                product, tg.hvp(f, at, v), 1e-9, 1e-9 * np.abs(product).max(), err_msg=f"seed {seed}"
            )
            np.testing.assert_allclose(
                slope @ v, f(at + 1e-100j * v).imag / 1e-100, 1e-9, 1e-9, err_msg=f"seed {seed}"
            )
        for method in ("grad", "hvp"):
            kept = p.forms[method].programs[0]
            assert not kept.failures and not kept.refusals
            found += any([type(group) is row_products.RowGroup for group in kept.emitted.groups])
    return found


@pytest.mark.long
def test_random_programs(monkeypatch):
    assert judged(range(4), monkeypatch) >= 4


@pytest.mark.long
def test_many_random_programs(monkeypatch):
    assert judged(range(100, 220), monkeypatch) >= 120
