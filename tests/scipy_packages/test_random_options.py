"""Random options of scipy.ndimage, scipy.fft, scipy.signal and scipy.interpolate: values, both modes and
samples, against differences of SciPy's own functions."""

import random

import numpy as np
import pytest
import scipy.fft as fft
import scipy.interpolate as itp
import scipy.ndimage as ndi
import scipy.signal as sig
from public_calls import judged

MODES = "reflect constant nearest mirror wrap grid-wrap grid-mirror grid-constant".split()
SHAPES = ((9,), (5, 6), (3, 4, 5))


def image_call(r):
    """(text, function, inputs) of a filter, or of a spline on an image."""
    shape = r.choice(SHAPES)
    n, border = len(shape), {"mode": r.choice(MODES), "cval": r.randint(-9, 9) / 10 + 0.05}
    spline = {**border, "order": r.randint(0, 5), "prefilter": r.random() < 0.5}
    axis, origin = r.randint(-n, n - 1), r.randint(-1, 0)
    name = r.choice("correlate convolve1d gaussian uniform largest laplace shift zoom coordinates".split())
    shift, zoom = [r.uniform(-2, 2) for _ in shape], [r.uniform(0.6, 2.2) for _ in shape]
    grid = border["mode"] not in ("constant", "wrap") and r.random() < 0.5  # (for these SciPy warns)
    calls = {
        "correlate": lambda x: ndi.correlate(x, np.ones((2,) * n) + np.arange(2), **border, origin=origin),
        "convolve1d": lambda x: ndi.convolve1d(x, [0.2, 0.7, -0.4], axis, **border, origin=origin),
        "gaussian": lambda x: ndi.gaussian_filter(x, 0.9, order=r_order, **border),
        "uniform": lambda x: ndi.uniform_filter(x, 3, **border, origin=origin),
        "largest": lambda x: ndi.maximum_filter(x, 3, **border, origin=origin),
        "laplace": lambda x: ndi.laplace(x, **border),
        "shift": lambda x: ndi.shift(x, shift, **spline),
        "zoom": lambda x: ndi.zoom(x, zoom, **spline, grid_mode=grid),
        "coordinates": lambda x: ndi.map_coordinates(x, places, **spline),
    }
    r_order, rng = r.randint(0, 3), np.random.default_rng(r.randint(0, 10**6))
    image = rng.permutation(np.prod(shape)).reshape(shape) / 10 - 1.0  # (no two are near each other)
    places = rng.uniform(-3, max(shape) + 2, size=(n, 4))
    return f"{name} {shape} {spline} {axis} {origin} {grid}", calls[name], [image]


def other_call(r):
    rng = np.random.default_rng(r.randint(0, 10**6))
    x, nodes = rng.normal(size=(3, 9)), np.arange(9.0) + rng.uniform(-0.3, 0.3, size=9)
    axis, norm, kind = r.randint(-2, 1), r.choice((None, "ortho", "forward")), r.randint(1, 4)
    degree, extended, nu = r.choice((1, 2, 3, 5)), r.randint(0, 3), r.randint(0, 2)
    m, full, length = r.choice(("full", "same", "valid")), r.random() < 0.5, r.randint(2, 10)
    points = np.array([-0.9, 0.7, 3.3, 8.9]) if extended != 2 else np.array([0.7, 3.3])
    calls = {
        "dct": lambda x: fft.dct(x, kind, length, axis, norm, orthogonalize=full),
        "rfft": lambda x: fft.rfft(x, length, axis, norm),
        "irfft": lambda x: fft.irfft(x, length, axis, norm),
        "convolve": lambda x: sig.convolve(x, x[:2, :3], m),
        "savgol": lambda x: sig.savgol_filter(x, 5, 3, nu, 0.7, mode=r_mode),
        "upfirdn": lambda x: sig.upfirdn([0.3, 0.5, -0.2], x, 1 + nu, kind, axis),
        "resample": lambda x: sig.resample(x, length, axis=1),
        "splev": lambda x: itp.splev(points, itp.splrep(nodes, x[0], k=degree), min(nu, degree), extended),
        "spline": lambda x: itp.make_interp_spline(nodes, x.T, degree)(points, nu),
        "periodic": lambda x: itp.make_interp_spline(
            np.arange(10.0), np.concatenate([x.T, x.T[:1]]), degree, bc_type="periodic"
        )(points, nu),
    }
    r_mode, name = r.choice("mirror nearest wrap interp constant".split()), r.choice(sorted(calls))
    return f"{name} {axis} {norm} {kind} {degree} {extended} {nu} {m} {length} {r_mode}", calls[name], [x]


def check(seed):
    r = random.Random(seed)
    text, f, x = (image_call if seed % 2 else other_call)(r)
    try:
        judged(f, *x, order=1, exact=1e-10, rtol=1e-6)
    except AssertionError as e:
        raise AssertionError(f"seed {seed}: {text}") from e


@pytest.mark.parametrize("block", range(3))
def test_some_options(block):
    for seed in range(10 * block, 10 * block + 10):
        check(seed)


@pytest.mark.long
@pytest.mark.parametrize("block", range(50))
def test_many_options(block):
    for seed in range(30 + 40 * block, 70 + 40 * block):
        check(seed)
