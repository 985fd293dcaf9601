"""The derivatives of a line of the table of cases, for the tests that run all lines."""

import numpy as np

import tapegrad as tg
from tapegrad._core.trees import leaves
from tapegrad.testing.derivative_checks import direction_like, inner_product, plain_host_array


def on(xp, inputs):
    """The inputs in the library xp; Python numbers and integers stay."""
    return tuple([xp.asarray(a) if isinstance(a, np.ndarray) else a for a in inputs])


def active(inputs):
    return tuple(
        [
            n
            for n, a in enumerate(inputs)
            if isinstance(a, (float, complex)) or getattr(a, "dtype", np.dtype(int)).kind in "fc"
        ]
    )


def of_active(case, inputs):
    """Numbers of the inputs that are differentiated, and the function of these alone."""
    nums = active(inputs)

    def f(*xs):
        given = list(inputs)
        for n, x in zip(nums, xs, strict=True):
            given[n] = x
        return case.f(*given)

    return nums, f


def derivatives(case, inputs, seed=0):
    """(value, tangent, cotangents) along fixed random directions, as host arrays."""
    nums, f = of_active(case, inputs)
    x = tuple([inputs[n] for n in nums])
    rng = np.random.default_rng(seed)
    v = direction_like(x, rng)
    value, tangent = tg.jvp(f, x, v)
    w = direction_like(value, rng)
    again, pullback = tg.vjp(f, *x)
    c = pullback(w)
    c = c if len(x) > 1 else (c,)
    assert [np.shape(plain_host_array(a)) for a in leaves(again)] == [
        np.shape(plain_host_array(a)) for a in leaves(value)
    ]
    a, b = plain_host_array(inner_product(v, c)), plain_host_array(inner_product(w, tangent))
    return value, tangent, c, (a, b)
