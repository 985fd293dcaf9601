"""`tg.vmap` of functions that read and write at indices that differ from sample to sample, against a loop."""

import numpy as np
import pytest
from looped import WEIGHTS, looped, same, vmapped, weighed

import tapegrad as tg
from tapegrad.errors import BatchError

X = np.random.default_rng(3).normal(size=(4, 3))
M = np.random.default_rng(4).normal(size=(4, 3, 2, 5))
K = np.array([0, 2, 1, 2])
I = np.array([[0, 1], [2, 2], [1, 0], [0, 0]])
TABLE = np.arange(12.0).reshape(4, 3)


def rows_written(x, m, k, i):
    y = x * 1.0
    y[k] = x[0] * 3
    y[i] *= x[:2]
    y[x > 0] = 2.0
    return y


def regions_written(x, m, k, i):
    y = np.zeros((3, 2, 5))
    y[k] = m[0]
    y[:, i * 0, k] += x[:, None]
    v = y[1:]
    v[i * 0, 1] = x[1]
    return y


def added(x, m, k, i):
    y = np.zeros(3)
    np.add.at(y, i, x[:2])
    y += x
    np.subtract.at(y, (k,), 2.0 * x[1])
    return y


PROGRAMS = {
    "number": lambda x, m, k, i: x[k],
    "row": lambda x, m, k, i: m[k],
    "last axis": lambda x, m, k, i: m[:, :, k],
    "array": lambda x, m, k, i: m[i],
    "apart": lambda x, m, k, i: m[i, :, i + 1],
    "behind an ellipsis": lambda x, m, k, i: m[..., i, i * 0, :],
    "with a list": lambda x, m, k, i: m[k, :, [1, 2]],
    "between slices": lambda x, m, k, i: m[:, i * 0 + 1, 1:3],
    "new axis": lambda x, m, k, i: m[None, k, ..., k],
    "of values": lambda x, m, k, i: x[np.argmax(x)] * x[np.argsort(x)][0],
    "take": lambda x, m, k, i: np.take(m, i, axis=2) + np.take(x, i + 7, mode="wrap")[0] + np.take(x, i - 1, mode="clip")[1],
    "captured": lambda x, m, k, i: TABLE[k] * x + TABLE[k, i[0]],
    "with a mask": lambda x, m, k, i: m[np.array([True, False, True]), :, k],
    "negative": lambda x, m, k, i: x[-k],
    "rows written": rows_written,
    "regions written": regions_written,
    "added": added,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_indices(name):
    f = PROGRAMS[name]
    gradient = lambda x, m, k, i: tg.grad(lambda x, m: weighed(f(x, m, k, i)), (0, 1))(x, m)
    second = lambda x, m, k, i: tg.hvp(lambda x: weighed(f(x, m, k, i) ** 2), x, x)
    for g in (f, gradient, second):
        got, want = vmapped(g)(X, M, K, I), looped(g)(X, M, K, I)
        assert same(got, want), (got, want)
    got = tg.grad(lambda X: (tg.vmap(lambda *args: weighed(f(*args)))(X, M, K, I) * WEIGHTS[:4]).sum())(X)
    want = tg.grad(lambda X: sum([weighed(f(X[n] * 1.0, M[n], K[n], I[n])) * WEIGHTS[n] for n in range(4)]))(X)
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-14)
    twice = [np.stack([a, a[::-1]]) for a in (X, M, K, I)]
    want = [[f(*[np.copy(a[p, q]) for a in twice]) for q in range(4)] for p in range(2)]
    np.testing.assert_allclose(tg.vmap(tg.vmap(f))(*twice), want, rtol=1e-12, atol=1e-14)


def test_out_of_range():
    with pytest.raises(IndexError):
        tg.vmap(lambda x, k: x[k])(X, K + 1)


def test_masks_that_differ():
    for f in (lambda x: x[x > 0], lambda x: x[x > 0].sum()):
        with pytest.raises(BatchError, match="numpy.where|a value is asked for"):
            tg.vmap(f)(X)

    def halved(x):
        x[x > 0] *= 0.5
        return x

    with pytest.raises(BatchError, match="mask that differs between samples.*numpy.where"):
        tg.vmap(halved)(X)


def test_masks_on_which_samples_agree_where_another_trace_hides_them():
    """The samples of an outer vmap agree, too; what was recorded holds for this mask."""

    def halved(x, m):
        y = x * 1.0
        y[m > 0] *= 0.5
        y[m < 0] = y[m < 0] + x[m < 0] * 2.0
        return y[m > 0].sum() * x

    mask = np.stack([np.array([1.0, -1.0, 2.0])] * 4)
    want = looped(halved)(X, mask)
    assert same(vmapped(halved)(X, mask), want)
    both = tg.vmap(tg.vmap(halved))(np.stack([X, 2 * X]), np.stack([mask, mask]))
    assert same([both[0], both[1]], [*want, *looped(halved)(2 * X, mask)])
    p = tg.prepare(tg.vmap(halved), X, mask)
    for m in (mask, -mask, mask):
        assert same([p(X, m)], looped(halved)(X, m))
    mask[1] *= -1
    for f, args in ((tg.vmap(tg.vmap(halved)), (np.stack([X, X]), np.stack([mask, mask]))), (p, (X, mask))):
        with pytest.raises(BatchError, match="mask that differs between samples.*numpy.where"):
            f(*args)


def test_a_captured_array_written_at_places_that_differ_raises():
    table = np.zeros(3)

    def g(x, k):
        table[k] = x[0]
        return x.sum()

    with pytest.raises(BatchError, match="from sample to sample"):
        tg.vmap(g)(X, K)
