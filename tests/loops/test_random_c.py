"""Random kernels in CUDA C: what is read of them, as machine code, against g++."""

import numpy as np
import pytest
from random_c import RandomKernel

from tapegrad.kernels.launch.host import HostCode
from tapegrad.loops.cuda_c.kernel_program import KernelText
from tapegrad.loops.machine import code_of
from tapegrad.loops.program import LoopRefused


def is_read(seed):
    """Is the kernel read?  Then its results are those of the compiled kernel."""
    source, r = RandomKernel(seed).source, np.random.default_rng(seed)
    x, y, k, n = r.random(6), r.random(6), r.integers(0, 9, 5), int(r.integers(1, 5))
    try:
        p = KernelText(source, "<random>").program("f", False)
    except LoopRefused as error:
        assert "an unsigned number of 64 bits" in str(error), source
        return False
    want = [x.copy(), y.copy(), k.astype(np.int32)]
    code = HostCode("f", source, "f", "double", "random.cu", ("-O0", "-fwrapv"))
    code((1, 1, 1), (1, 1, 1), [*want, np.int32(n)])
    found = [x.copy(), y.copy(), k.copy()]
    code_of(p)([*found, n, *[1] * 6])
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=source)
    return True


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", [101, 112, 128])
def test_a_random_kernel(seed):
    assert is_read(seed)


@pytest.mark.long
def test_many_random_kernels():
    assert sum(is_read(seed) for seed in range(1000, 1300)) > 200
