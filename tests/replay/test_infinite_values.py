"""Random programs with infinite values, nan and numbers near the ends of the range, against plain calls."""

import numpy as np
import pytest
import scipy.special

import tapegrad as tg

SPECIAL = (np.inf, -np.inf, np.nan, 0.0, -0.0, 1e308, 1e-320)
STEPS = (
    lambda x, y, z, s: x + z,
    lambda x, y, z, s: x * y,
    lambda x, y, z, s: np.where(z > s, x, y),
    lambda x, y, z, s: np.logaddexp(x, y + z),
    lambda x, y, z, s: np.maximum(x, z),
    lambda x, y, z, s: np.exp(-abs(x)),
    lambda x, y, z, s: x / (1 + y * y),
    lambda x, y, z, s: np.minimum(x, y),
    lambda x, y, z, s: x - z * 0.5,
    lambda x, y, z, s: np.tanh(x),
    lambda x, y, z, s: np.where(np.isfinite(x), x, s),
    lambda x, y, z, s: np.sqrt(abs(x)),
    lambda x, y, z, s: np.clip(x, -1.0 if s > 0 else -np.inf, np.inf),
    lambda x, y, z, s: x.sum() * 0.01 + y,
    lambda x, y, z, s: x - x.max(),
    lambda x, y, z, s: np.log(abs(y) + (0 if s > 0.8 else 0.1)),
    lambda x, y, z, s: x / y,
    lambda x, y, z, s: scipy.special.expit(x),
    lambda x, y, z, s: np.where(x > s, np.log(x), y),
    lambda x, y, z, s: np.nan_to_num(x, nan=0.3, posinf=1.0, neginf=-1.0),
    lambda x, y, z, s: x[::-1] * s + z,
)


def random_program(rng):
    n, trips = int(rng.choice([1, 2, 3, 5, 8, 40, 1500])), int(rng.choice([1, 3, 12, 30]))
    trips = 1 if n == 1500 else trips
    constants = [rng.normal(size=n) for _ in range(3)]
    for c in constants:
        for v in SPECIAL:
            if rng.random() < 0.25:
                c[rng.integers(n)] = v
    if rng.random() < 0.5:
        constants[0] = np.where(rng.random(n) < 0.4, -np.inf, 0.0)
    steps = [
        (STEPS[rng.integers(len(STEPS))], *rng.integers(4, size=2), constants[rng.integers(3)], rng.normal())
        for _ in range(rng.integers(3, 9))
    ]

    def f(x):
        v = [x, x * 0.5, x + 0.1, -x]
        for _ in range(trips):
            for step, a, b, c, s in steps:
                v[(a + 1) % 4] = step(v[a], v[b], c, s)
        return v[0].sum() + (v[1] * 0.5).sum()

    return f, n


def judged(seeds):
    """How many programs had blocks after all calls."""
    blocks = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        f, n = random_program(rng)
        points = [rng.normal(size=n) * (1 if k % 3 else 10) for k in range(9)]
        for k in (4, 7):
            points[k][rng.integers(n)] = rng.choice([0.0, 1e308, -1e-320, 1.0])
        with np.errstate(all="ignore"):
            p, gradient = tg.prepare(f, points[0], compile=True if seed % 2 else "auto"), tg.grad(f)
            for x in points:
                want, near = f(x), f(x * (1 + 2e-16))
                if np.isfinite(want) and not np.isclose(want, near, 1e-11, 1e-11):
                    continue  # rounding grows here
                size = max(1.0, abs(want)) if np.isfinite(want) else 1.0
                np.testing.assert_allclose(p.value(x), want, 1e-8, 1e-10 * size, err_msg=f"seed {seed}")
                slope = gradient(x)
                size = np.nanmax(np.abs(np.where(np.isfinite(slope), slope, 1.0)))
                np.testing.assert_allclose(p.grad(x), slope, 1e-6, 1e-8 * size, err_msg=f"seed {seed}")
        blocks += any([q.emitted and q.emitted.blocks for q in p.forms["value"].programs])
    return blocks


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", [np.sin, np.cos])
def test_sines_of_large_numbers_beside_missing_ones(function):
    x = np.linspace(-1.0, 2.0, 6)
    missing = np.where(x < 0, np.nan, x)
    p = tg.prepare(lambda x: (function(x * 2) * 2).sum() + (0 * x).sum(), x, compile=True)
    for y in [x, x, x, missing, x, x, x, *[missing] * 6]:
        p.value(y)
    for y in (1e15 * x, 1e20 * x):
        np.testing.assert_allclose(p.value(y), (function(y * 2) * 2).sum(), 1e-12)


@pytest.mark.filterwarnings("ignore")
def test_infinite_values_in_random_programs():
    assert judged(range(12)) > 4


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seeds", [range(k, k + 50) for k in range(1000, 1400, 50)], ids=str)
def test_infinite_values_in_many_programs(seeds):
    assert judged(seeds) > 15
