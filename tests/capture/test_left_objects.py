"""What a function leaves in an object of the user's is the library's own, not what stood for it in the call."""

import functools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats

import tapegrad as tg


def filled(holder, x):
    """Names of libraries, where a class may keep them, and a law with tracked parameters."""
    holder.function, holder.module, holder.many = np.tanh, np.linalg, {"f": [np.sin, np.linalg.norm]}
    holder.law, holder.frozen, holder.bound = scipy.stats.norm, scipy.stats.norm(x[0], 2.0), np.add.reduce
    holder.array, holder.number, holder.sample = np.ndarray, float, np.float64
    holder.sine, holder.partial = math.sin, functools.partial(np.cumsum, axis=0)
    return np.sum(holder.function(x)) + holder.frozen.logpdf(0.3)


TRANSFORMS = {
    "grad": tg.grad,
    "hessian": tg.hessian,
    "jvp": lambda f: lambda x: tg.jvp(f, (x,), (x,)),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_stand_ins_are_handed_back_as_the_library_s(transform):
    left, plain, x = SimpleNamespace(), SimpleNamespace(), np.array([0.5, 1.5])
    TRANSFORMS[transform](functools.partial(filled, left))(x)
    filled(plain, x)
    found, wanted = vars(left), vars(plain)
    law, partial = found.pop("frozen"), found.pop("partial")
    assert type(law) is type(wanted.pop("frozen")) and law.args == (0.5, 2.0)
    assert type(law.args[0]) is np.float64
    assert partial.func is wanted.pop("partial").func
    assert found == wanted
    assert left.number is float and left.array is np.ndarray
