"""How results are compared: on the host, leaf by leaf, relative to the largest element."""

import sys

import numpy as np

from tapegrad._core.arrays import is_array
from tapegrad._core.variable import Variable


def library(x):
    """numpy or cupy."""
    cupy = sys.modules.get("cupy")
    return cupy if cupy is not None and isinstance(x, cupy.ndarray) else np


def host(x):
    """The NumPy array or scalar with the values of x, which may lie on a device."""
    return np.asarray(x) if library(x) is np else x.get()


def close(actual, expected, rtol=1e-12, atol=0.0):
    """Equal to rtol of the largest expected element, with the same shape."""
    actual, expected = host(actual), host(expected)
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    scale = np.max(np.abs(expected[np.isfinite(expected)]), initial=0.0)
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol + rtol * scale)


def leaves_of(x):
    """What nested lists and tuples hold, in order."""
    return [v for e in x for v in leaves_of(e)] if type(x) in (list, tuple) else [x]


def floats(x):
    """The float arrays among nested arguments or results, plain or not, in order."""
    return [v for v in leaves_of(x) if (isinstance(v, Variable) or is_array(v)) and v.dtype.kind in "fc"]
