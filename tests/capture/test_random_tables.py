"""Random programs over columns of pandas, given and computed.

Values and derivatives are compared with those of plain runs, recordings with further transforms."""

import numpy as np
import pandas as pd
import pytest

import tapegrad as tg

SEEDS = 300


def grouped(s, table, c):
    return (s * c).groupby(table["g"]).transform("mean")


def of_table(s, other, c):
    return (pd.DataFrame({"u": s, "v": other}) * c).sum(axis=1)


# of a column, another one, a tracked number and the table
STEPS = [
    lambda s, o, c, table: s * c,
    lambda s, o, c, table: c * s + c,
    lambda s, o, c, table: s - o,
    lambda s, o, c, table: s / (2.0 + o**2),
    lambda s, o, c, table: np.exp(-0.1 * s * s * c**2),
    lambda s, o, c, table: s.shift(1) * c,
    lambda s, o, c, table: s.iloc[1:] + o,
    lambda s, o, c, table: s.cumsum(),
    lambda s, o, c, table: s[table["n"] > 1] * c,
    lambda s, o, c, table: s.where(table["b"] > 1.0, 0.0) * c if s.index.equals(table.index) else s,
    lambda s, o, c, table: grouped(s, table, c),
    lambda s, o, c, table: s.rolling(2).mean() * c,
    lambda s, o, c, table: pd.concat([s.iloc[:2], o.iloc[2:] * c]),
    lambda s, o, c, table: np.log1p(s * s) * c,
    lambda s, o, c, table: s.diff(),
    lambda s, o, c, table: s.rename("z") ** 2,
    lambda s, o, c, table: abs(s) + c,
    lambda s, o, c, table: pd.Series(s.to_numpy() * c, index=s.index),
    lambda s, o, c, table: s.mul(c).add(o),
    lambda s, o, c, table: of_table(s, o, c),
    lambda s, o, c, table: s.sort_index(ascending=False) * c,
    lambda s, o, c, table: s.dropna(),
    lambda s, o, c, table: np.maximum(s, 0.1) * c,
]


def random_program(seed):
    """(a function of three numbers, three numbers)"""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 7))
    labels = [pd.RangeIndex(n), pd.date_range("2024", periods=n), pd.Index([*"abcdefg"[:n]])][rng.integers(3)]
    columns = {
        "a": rng.normal(size=n),
        "b": rng.uniform(0.5, 2.0, n),
        "n": rng.integers(1, 5, n),
        "g": [*"xyxyxyx"[:n]],
    }
    table = pd.DataFrame(columns, index=labels)
    if rng.random() < 0.3:
        table.iloc[1, 0] = np.nan
    steps = [(STEPS[rng.integers(len(STEPS))], *rng.integers(100, size=3)) for _ in range(rng.integers(3, 8))]

    def f(x):
        known = [table["a"], table["b"], table["n"], x[0] * table["b"]]
        for step, i, j, k in steps:
            known.append(step(known[i % len(known)], known[j % len(known)], x[k % 3], table))
        last = known[-1]
        return (last * last).sum() + 0.3 * known[-2].mean() + (0.5 * last).sum() * x[1]

    return f, rng.uniform(0.5, 1.5, 3)


def slopes(f, x, h):
    return np.array([(f(x + h * e) - f(x - h * e)) / (2 * h) for e in np.eye(len(x))])


def verdict(seed):
    """Is this program right? None: it has no derivative there, or is refused."""
    f, x = random_program(seed)
    try:
        value = f(x)
        near, nearer = slopes(f, x, 1e-5), slopes(f, x, 1e-6)
    except (TypeError, ValueError):  # pandas refuses it
        return None
    if not np.isfinite(value) or not np.allclose(near, nearer, rtol=1e-4, atol=1e-5):
        return None
    try:
        found, gradient = tg.value_and_grad(f)(x)
        forward = tg.jacobian(f, mode="forward")(x)
        prepared = tg.prepare(f, x)
        replayed = [(prepared.value_and_grad(c * x)[1], tg.grad(f)(c * x)) for c in (1.0, 1.01, 0.98)]
    except (tg.errors.TapegradError, TypeError):
        return None
    right = np.isclose(found, value, rtol=1e-11) and np.allclose(gradient, near, rtol=1e-4, atol=1e-5)
    pairs = [(forward, gradient), *replayed]
    return bool(right and all([np.allclose(a, b, rtol=1e-9, atol=1e-10) for a, b in pairs]))


@pytest.mark.parametrize(
    "seeds", [range(10), pytest.param(range(10, SEEDS), marks=pytest.mark.long)], ids=["few", "many"]
)
def test_random_programs(seeds):
    found = {seed: verdict(seed) for seed in seeds}
    assert [seed for seed, right in found.items() if right is False] == []
    assert sum([right is True for right in found.values()]) >= 0.9 * len(seeds)
