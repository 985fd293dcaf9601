"""x[mask] in a recording: a mask that the values decide is an input of it, and no guard, as long as nobody
asks how many it chooses."""

import copy

import numpy as np
import pytest
from scipy import special
from scipy.interpolate import BSpline

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


@pytest.mark.one_in(3)
@pytest.mark.parametrize("method", ["value", "grad", "hvp"])
@pytest.mark.parametrize(
    "f", [damped, in_its_domain, in_a_field, counted, kept_apart], ids=lambda f: f.__name__
)
def test_masks_that_flip(f, method):
    p = tg.prepare(f, POINTS[0])
    with np.errstate(all="raise", under="ignore"):
        for x in 2 * POINTS:
            if method == "hvp":
                found, want = p.hvp(x, SLOPE), tg.hvp(f, x, SLOPE)
            else:
                found, want = (p(x), f(x)) if method == "value" else (p.grad(x), tg.grad(f)(x))
            np.testing.assert_allclose(found, want, 1e-12, 1e-13)
    form = p.forms[method]
    if f in (counted, kept_apart):
        assert form.recordings == 2 and form.eager is None
    elif f is damped:
        assert form.recordings <= 6 and form.replays >= 5  # by which of the eight masks choose none


def test_a_mask_that_chooses_nothing_is_told_from_one_that_does():
    p = tg.prepare(in_its_domain, POINTS[0])
    with np.errstate(all="raise", under="ignore"):
        for x in 12 * [POINTS[0], -np.abs(POINTS[1]), np.abs(POINTS[2]), POINTS[3], -np.abs(POINTS[4])]:
            np.testing.assert_allclose(p.grad(x), tg.grad(in_its_domain)(x), 1e-12, 1e-13)
    assert p.forms["grad"].recordings == 3


# --- what was chosen is an array like others: written into, viewed, copied, kept ---


def filled(x):
    v = x[x > 0]
    v.fill(2.0)
    return v.sum() * x[0]


def with_where(x):
    v = x[x > 0]
    np.add(v, 1.0, out=v, where=np.ones(len(v), bool))
    np.copyto(v, v * 3.0)
    np.clip(v, 0.1, 5.0, out=v)
    return (v * v).sum()


def of_a_view(x):
    v = x[x > 0]
    first, column, same = v[:1], v.reshape(-1, 1), v
    v += 1.0
    v *= 2.0
    return first.sum() * (column * column).sum() + same.sum() * v.ndim


def sorted_in_place(x):
    v = x[x > 0]
    v.sort()
    np.maximum.at(v, [0], 5.0)
    v[v > 4.0] = 0.0
    v[np.array([0])] += x[1]
    return v @ np.arange(len(v)) + v.sum() * x[0]


def of_a_mask_that_is_written(x):
    m = x > 0
    v = x[m]
    m[np.argmax(x)] = False
    rows = np.stack([m, m])
    row, y = rows[0], x * 1.0
    w = x[row]
    row[0] = not row[0]
    y[row] = y[row] * 3.0
    y[m] = 0.5
    return (v * v).sum() + (w * w * w).sum() + (y * y).sum()


def copied(x):
    v = x[x > 0]
    c, e = v.copy(), copy.deepcopy(v)
    v[0] = 9.0 * x[0]
    d = v.copy()
    d[0] = 1.0
    return v.sum() + (c * c).sum() + (e**3).sum() + d.sum() + np.where(c > 0.5)[0].sum() * x[0]


@pytest.mark.parametrize(
    "f",
    [filled, with_where, of_a_view, sorted_in_place, of_a_mask_that_is_written, copied],
    ids=lambda f: f.__name__,
)
def test_an_array_like_others(f):
    p = tg.prepare(f, POINTS[0])
    for x in POINTS[:6]:
        np.testing.assert_allclose(p(x), f(x), 1e-12)
        np.testing.assert_allclose(p.grad(x), tg.grad(f)(x), 1e-12, 1e-13)


def test_returned_and_kept():
    class Box:
        last = np.ones(2)

    box, log = Box(), []

    def keep(x):
        box.last = x[x > 0]
        log.append(x[x > 0])
        return box.last.sum()

    p, chosen = tg.prepare(keep, POINTS[0]), tg.prepare(lambda x: x[x > 0] * 2.0, POINTS[0])
    for x in POINTS[:3]:
        assert p(x) == x[x > 0].sum()
        assert (
            type(box.last) is type(log[-1]) is np.ndarray
            and (box.last == x[x > 0]).all()
            and (log[-1] == box.last).all()
        )
        assert (chosen(x) == 2.0 * x[x > 0]).all()
    samples = np.array([[1.0, -1.0, 2.0], [3.0, 4.0, -1.0], [1.0, 1.0, 1.0]])

    def keep_only(x):
        box.last = x[x > 0]
        return x.sum()

    tg.vmap(tg.grad(keep_only))(samples)
    assert type(box.last) is np.ndarray and box.last.tolist() == [1.0, 1.0, 1.0]

    def hand_on(x):
        before = box.last.sum()
        box.last = x[x > 0]
        return before * x[0]

    with pytest.raises(tg.errors.BatchError):
        tg.vmap(hand_on)(samples)


# --- functions that do not ask their arguments for `__array_function__` ---


def added(v):
    bins = np.zeros(2)
    np.add.at(bins, np.arange(len(v)) % 2, v)
    return bins @ bins


@pytest.mark.parametrize(
    "f",
    (
        lambda v: (np.asarray(v) ** 2).sum(),
        lambda v: np.ascontiguousarray(v, dtype=float)[-1] ** 2,
        lambda v: (np.r_[v, v**2, 1.0] ** 3).sum(),
        lambda v: np.c_[v, np.sqrt(v)].prod(1).sum(),
        added,
        special.logsumexp,
        lambda v: BSpline(np.arange(8.0), np.array([1.0, 3.0, 2.0, 5.0]), 3)(3 + v).sum(),
    ),
)
def test_functions_of_the_elements_chosen(f):
    of_positive, p = lambda x: f(x[x > 0]), tg.prepare(lambda x: f(x[x > 0]), POINTS[0], on_change="raise")
    for _ in range(3):
        for x in (POINTS[0], POINTS[0] / 2):
            chosen = np.where(x > 0, x, 0)
            want = tg.grad(f)(x[x > 0])
            found = p.grad(x)
            np.testing.assert_allclose(found[x > 0], want, 1e-12)
            assert not found[chosen == 0].any()
            np.testing.assert_allclose(p(x), of_positive(x), 1e-12)
