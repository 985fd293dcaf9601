"""x[mask] in a recording: a mask that the values decide is an input of it, and no guard, as long as nobody asks how many it chooses."""

import numpy as np
import pytest

import tapegrad as tg

SLOPE = np.linspace(1.0, 2.0, 5)
FIELD = np.zeros((4, 5))


def damped(x):
    u = x * 2.0
    for _ in range(4):
        u[u < 0] *= 0.5
        u[np.abs(u) > 1.0] = np.tanh(u[np.abs(u) > 1.0]) + 0.1 * u[0]
        u = u - 0.1 * x[1]
    return (u**2).sum()


def in_its_domain(x):
    m, out = x > 0, np.zeros(5)
    out[m] = np.log(x[m]) * np.sqrt(x[m])
    out[~m] -= np.sqrt(-x[~m]) + x[~m] / x[0]
    return out @ SLOPE


def in_a_field(x):
    for k in range(4):
        FIELD[k] = np.sin(x * (k + 1))
        row = FIELD[k]
        row[row > 0.3] -= row[row > 0.3] ** 2
    rows = FIELD[:, 0] < 0
    FIELD[rows] *= SLOPE
    return (FIELD**3).sum()


def counted(x):
    chosen = x[x > 0]
    return chosen.sum() * len(chosen) + np.sort(chosen)[-1] + chosen @ chosen + sum(chosen)


def kept_apart(x):
    y = x[x > 0.2]
    y[0] = 3.0 * y[-1]
    y += 1.0
    z = np.concatenate([y, y * 2.0])
    return z.sum() + z.shape[0] * y.mean() + np.linalg.norm(y)


POINTS = [np.append(np.random.default_rng(k).normal(size=4) + 0.1, 0.3 + 0.1 * k) for k in range(12)]


@pytest.mark.parametrize("method", ["value", "grad", "hvp"])
@pytest.mark.parametrize("f", [damped, in_its_domain, in_a_field, counted, kept_apart], ids=lambda f: f.__name__)
def test_masks_that_flip(f, method):
    p = tg.prepare(f, POINTS[0])
    with np.errstate(all="raise", under="ignore"):
        for x in POINTS:
            if method == "hvp":
                found, want = p.hvp(x, SLOPE), tg.hvp(f, x, SLOPE)
            else:
                found, want = (p(x), f(x)) if method == "value" else (p.grad(x), tg.grad(f)(x))
            np.testing.assert_allclose(found, want, 1e-12, 1e-13)
    form = p.forms[method]
    if f in (counted, kept_apart):
        assert form.recordings > 4 and form.eager is None
    elif f is damped:
        assert form.recordings <= 6 and form.replays >= 6  # by which of the eight masks choose none


def test_a_mask_that_chooses_nothing_is_told_from_one_that_does():
    p = tg.prepare(in_its_domain, POINTS[0])
    with np.errstate(all="raise", under="ignore"):
        for x in (POINTS[0], -np.abs(POINTS[1]), np.abs(POINTS[2]), POINTS[3], -np.abs(POINTS[4])):
            np.testing.assert_allclose(p.grad(x), tg.grad(in_its_domain)(x), 1e-12, 1e-13)
    assert p.forms["grad"].recordings == 3
