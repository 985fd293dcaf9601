"""Every line of the table of operations in a kernel: it gives what the function gives on arrays, with the same
gradient, or raises.  A kernel runs the compositions of ops/ on symbols, so what they ask for must be there."""

import numpy as np
import pytest
from cases import all_cases, all_lines

import tapegrad as tg
from tapegrad._core.trees import leaves

PARTS = 40
MOST_NUMBERS = 60  # of the inputs of a line: a kernel has a node for each


def in_doubles(case):
    given = [np.asarray(x) for x in case.inputs]
    floats = [x for x in given if x.dtype.kind in "fc"]
    return floats and all(x.dtype == float for x in floats) and sum(x.size for x in floats) <= MOST_NUMBERS


LINES = [case for case in [*all_cases(), *all_lines()] if in_doubles(case)]


def right(case):
    """Is the line right in a kernel?  False if it is refused; raises AssertionError if it is wrong."""
    f, x = case.of_floats()

    def first(*xs):
        return leaves(f(*xs))[0]

    samples = [x, tuple(v + 1e-3 for v in x)]
    stacks = [np.stack(pair, -1) for pair in zip(*samples, strict=True)]
    expected = np.stack([first(*sample) for sample in samples], -1)
    if expected.dtype != float:
        return False
    kernel = tg.kernels.map(first)
    w = np.random.default_rng(0).normal(size=expected.shape)
    nums = tuple(range(len(x)))
    try:
        value = kernel(*stacks)
        gradient = tg.grad(lambda *xs: (kernel(*xs) * w).sum(), nums)(*stacks)
    except Exception:
        return False
    np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-10, err_msg=case.name, strict=True)
    for b, sample in enumerate(samples):
        theirs = tg.grad(lambda *xs, b=b: (first(*xs) * w[..., b]).sum(), nums)(*sample)
        for mine, other in zip(gradient, theirs, strict=True):
            np.testing.assert_allclose(mine[..., b], other, rtol=1e-6, atol=1e-7, err_msg=case.name)
    return True


@pytest.mark.filterwarnings("ignore")
@pytest.mark.one_in(PARTS)
@pytest.mark.parametrize("part", range(PARTS))
def test_lines_are_right_or_refused(part):
    lines = LINES[part::PARTS]
    with np.errstate(all="ignore"):
        assert sum(right(case) for case in lines) > 0.25 * len(lines)


COMPOSED = {
    "average": lambda v, m: np.average(m, axis=0, weights=v * v),
    "cov": lambda v, m: np.cov(m, v),
    "gradient": lambda v, m: np.gradient(v, 0.5),
    "trapezoid": lambda v, m: np.trapezoid(m, v, axis=0),
    "multi_dot": lambda v, m: np.linalg.multi_dot([v, m, m, v]),
    "norm": lambda v, m: np.linalg.norm(m, axis=1),
    "kron": lambda v, m: np.kron(v, m),
    "cross": lambda v, m: np.cross(m, v),
    "diff": lambda v, m: np.diff(m, axis=0, prepend=1.0),
    "ptp": lambda v, m: np.ptp(m, axis=1),
    "pad and block": lambda v, m: np.block([[m, np.pad(m, 1)[1:4, 1:4]]]),
    "rot90": lambda v, m: np.rot90(m),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", COMPOSED)
def test_compositions(name):
    """Value and both orders of derivative, against NumPy and the array tape."""
    f, rng = COMPOSED[name], np.random.default_rng(1)
    v, m = rng.normal(size=(3, 2)), rng.normal(size=(3, 3, 2))
    kernel = tg.kernels.map(f)
    np.testing.assert_allclose(
        kernel(v, m), np.stack([f(v[:, b], m[..., b]) for b in (0, 1)], -1), rtol=1e-12
    )
    square = lambda v, m, f=f: (f(v, m) ** 2).sum()
    mine = tg.hvp(lambda v: square(v, m, kernel), v, np.ones_like(v))
    theirs = [tg.hvp(lambda v, b=b: square(v, m[..., b]), v[:, b], np.ones(3)) for b in (0, 1)]
    np.testing.assert_allclose(mine, np.stack(theirs, -1), rtol=1e-9, atol=1e-10)


def test_views_of_compositions():
    """What NumPy gives as a view is one: a write through it reaches the array."""

    def f(m):
        m = m * 1.0
        np.rot90(m)[0] = 7.0
        first = np.fliplr(m)
        m[1] = 0.0
        return m + first

    m = np.arange(18.0).reshape(3, 3, 2)
    np.testing.assert_array_equal(tg.kernels.map(f)(m), np.stack([f(m[..., b]) for b in (0, 1)], -1))


def test_differences_of_conditions():
    v = np.array([[0.5, -1.0], [0.2, 0.3], [-0.1, 0.4]])
    expected = np.stack([np.diff(v[:, b] > 0.25) for b in (0, 1)], -1)
    np.testing.assert_array_equal(tg.kernels.map(lambda v: np.diff(v > 0.25) * 1.0)(v), expected)
    np.testing.assert_array_equal(tg.vmap(lambda v: np.diff(v > 0.25), 1)(v), expected.T)
