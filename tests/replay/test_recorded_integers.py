"""Integers and truth values that a recording computes, in arrays of integers that are plain NumPy."""

import warnings

import numpy as np
import pytest

import tapegrad as tg

STRATUM = np.array([3, 0, 4, 1, 2])
ORDER = np.zeros(5, int)


def partial_likelihood(x, time):
    """An index array from outside, read at recorded places."""
    order = STRATUM[np.argsort(-time[STRATUM])]
    return np.log(np.cumsum(np.exp(x[order]))) @ np.arange(1.0, 6.0) - x @ time


def viterbi(x, time):
    """Back pointers, written into an integer array that the function makes."""
    back, score = np.zeros((4, 5), int), x * time
    for t in range(4):
        moved = score[:, None] - np.abs(np.subtract.outer(x, x)) * (1 + t)
        back[t] = moved.argmax(0)
        score = moved[back[t], np.arange(5)] + np.sin(x + t)
    path = [int(score.argmax())]
    for t in (3, 2, 1, 0):
        path.append(int(back[t][path[-1]]))
    return score.max() + x[path].prod()


def pairwise_energy(x, time):
    """A list of pairs as a plain array, thinned by a recorded mask."""
    pairs = np.array(sorted({(i, j) for i in range(5) for j in range(i)}))
    i, j = pairs[np.abs(time[pairs[:, 0]] - time[pairs[:, 1]]) < 1.0].T
    return np.sum(1 / (1 + (x[i] - x[j]) ** 2))


def kept_order(x, time):
    """An integer array from outside, written."""
    ORDER[:] = np.argsort(x * time)
    return np.diff(x[ORDER]) ** 2 @ np.arange(4.0) + x[ORDER[0]]


@pytest.mark.parametrize("f", [partial_likelihood, viterbi, pairwise_energy, kept_order])
def test_recorded_integers_in_plain_arrays(f):
    rng = np.random.default_rng(0)
    calls = [(x, t) for t in rng.uniform(0.2, 2.0, (2, 5)) for x in rng.uniform(-1.0, 1.0, (2, 5))]
    prepared = tg.prepare(f, *calls[0])
    with warnings.catch_warnings(action="ignore" if f is kept_order else "error"):
        for k in (0, 0, 1, 0, 2, 3, 1, 2, 2, 3, 0):
            x, t = calls[k]
            value, gradient = prepared.value_and_grad(x, t)
            held = ORDER.copy()
            assert np.isclose(value, f(x, t), rtol=1e-13)
            assert np.array_equal(held, ORDER)
            np.testing.assert_allclose(gradient, tg.grad(f)(x, t), rtol=1e-12)
            for i in range(5):
                z = x.astype(complex)
                z[i] += 1e-30j
                if f is partial_likelihood:
                    assert np.isclose(gradient[i], f(z, t).imag / 1e-30, rtol=1e-12)
    if f is not kept_order:
        assert "run as it is" not in prepared.report()
