"""Interpolation through many nodes, and distances at scales where squares are no numbers: as accurate as SciPy's
own results."""

import numpy as np
import pytest
import scipy.interpolate
import scipy.spatial.distance as sd

import tapegrad as tg

NODES = np.cos(np.pi * (np.arange(80) + 0.5) / 80)


def interpolant(y, t, nodes=NODES):
    return scipy.interpolate.BarycentricInterpolator(nodes, y)(t)


def test_a_polynomial_through_many_nodes():
    """Its shares of the values are those of the barycentric formula; its slope is that of the function."""
    f = lambda x: 1.0 / (1.0 + 4.0 * x * x)
    w = (-1.0) ** np.arange(80) * np.sin(np.pi * (np.arange(80) + 0.5) / 80)
    shares = w / (0.3 - NODES)
    got = tg.grad(interpolant)(f(NODES), 0.3)
    assert np.allclose(got, shares / shares.sum(), rtol=1e-10)
    slope = tg.grad(interpolant, 1)(f(NODES), 0.3)
    assert np.allclose(slope, -2.4 * f(0.3) ** 2, rtol=1e-9)
    nodes = tg.grad(interpolant, 2)(
        f(NODES), 0.3, NODES
    )  # a node moves the value there along the slope's error
    assert np.all(np.isfinite(nodes)) and abs(nodes.sum() + slope) < 1e-6


@pytest.mark.parametrize("k", [0, 3, 4])
def test_derivatives_at_a_node(k):
    x = NODES[::10]
    y = np.exp(x)
    first, second = tg.grad(interpolant, 1)(y, x[k], x), tg.hvp(lambda t: interpolant(y, t, x), x[k], 1.0)
    d = np.polynomial.Polynomial.fit(x, y, len(x) - 1).convert()
    assert np.allclose([first, second], [d.deriv()(x[k]), d.deriv(2)(x[k])], rtol=1e-9)
    assert np.allclose(tg.grad(interpolant)(y, x[k], x), np.eye(len(x))[k], atol=1e-14)


DISTANCES = {
    "euclidean": lambda x: sd.euclidean(x[0], x[1]),
    "cosine of rows": lambda x: sd.cdist(x, x[:1] + x[1:2], "cosine")[1:].sum(),
    "correlation of rows": lambda x: sd.pdist(x, "correlation").sum(),
}


@pytest.mark.parametrize("scale", [2.0**-480, 2.0**300, 2.0**480])
@pytest.mark.parametrize("name", DISTANCES)
def test_distances_at_any_scale(name, scale):
    """A distance is homogeneous: its gradient at scaled points follows exactly from that at the points."""
    f, x = DISTANCES[name], np.random.default_rng(5).uniform(0.2, 1.5, (4, 3))
    degree = 1 if name == "euclidean" else 0
    value, gradient = tg.value_and_grad(f)(x)
    far, there = tg.value_and_grad(f)(x * scale)
    assert isinstance(far, float) and np.allclose([value, far / scale**degree], f(x), rtol=1e-13)
    assert np.allclose(there * scale ** (1 - degree), gradient, rtol=1e-12, atol=1e-13)
