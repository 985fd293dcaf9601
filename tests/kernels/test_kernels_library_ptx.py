"""Library kernels as the CUDA compiler's own output, PTX, run on the CPU: the bits of the CUDA C that g++
compiles."""

import numpy as np
import pytest

pytest.importorskip("cupy", reason="NOT RUN: NVRTC, which is called through CuPy")

from _cuda_host import needs_compiler
from _ptx import PtxKernel
from library_models import BY_HAND, MODELS, arrays, by_source
from library_recursions import CASES

pytestmark = needs_compiler
SERIES = ["markov 3", "markov given"]


def by_ptx(k, theta, data):
    """Value and gradient, by two blocks of 32 threads."""
    (p, batch), (d, steps), real = theta.shape, data.shape[:2], theta.dtype
    kernel = k.kernels(p, d, data.ndim == 3, bool(np.isnan(data).any()))[1]
    value, gradient = np.full(batch, 7.0, real), np.full((p, batch), 7.0, real)
    work = [
        np.full(a.shape({"N": steps, "B": batch, "slots": 64}), np.nan, real)
        for a in kernel.args
        if a.role == "work"
    ]
    run = PtxKernel(kernel.code.text(real), kernel.code.entry)
    run((2,), (32,), (theta, data, value, gradient, *work, np.int64(batch), np.int64(steps)))
    return value, gradient


@pytest.mark.one_in(2)
@pytest.mark.parametrize("real", [np.float64, pytest.param(np.float32, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", [*BY_HAND, *SERIES])
def test_bits_of_the_source(name, real):
    if name in MODELS:
        k, (theta, data) = MODELS[name][0], arrays(name, real, False, True, batch=70)
    else:
        k, theta, data = CASES[name]()
    theta, data = np.ascontiguousarray(theta, real), np.ascontiguousarray(data, real)
    value, gradient = by_source(k, theta, data)
    found = by_ptx(k, theta, data)
    assert np.isfinite(value).any() and gradient.any()
    assert np.array_equal(found[0], value) and np.array_equal(found[1], gradient)
