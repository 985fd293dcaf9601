"""Run by test_kernels_cuda.py in a process that has the runtime of AddressSanitizer: kernels at awkward sizes, their arrays just
as large as they must be.  With the argument "plant" one kernel writes an element beyond its output."""

import sys

import numpy as np
from _cuda_host import HostKernel, arguments
from _kernel_cases import case, lowered

from tapegrad.kernels import emit_cuda

SIZES = [(batch, steps) for batch in (1, 5, 33) for steps in (0, 1, 7)]
SANITIZE = ("-fsanitize=address", "-g")
PLACE = "out0[0LL * batch + s]"


def run(name: str, per_sample: bool, plant: bool) -> None:
    low = lowered(name, "VG", 0)
    source, entry, signature = emit_cuda(low, np.float64, per_sample)
    if plant:
        assert PLACE in source
        source = source.replace(PLACE, "out0[1LL * batch + s]")
    kernel = HostKernel(source, entry, SANITIZE)
    _, theta, data = case(name)
    for batch, steps in SIZES:
        inputs = [np.ascontiguousarray(np.tile(theta, 4)[:, :batch])]
        d = np.ascontiguousarray(data[..., :steps])
        if per_sample:
            d = np.ascontiguousarray(np.repeat(d[..., None], batch, axis=-1))
        given, outs = arguments(low, signature, np.float64, inputs, d, steps, batch, 3 * 32)
        kernel((3,), (32,), given)
        assert all(np.isfinite(x).all() for x in outs)


if __name__ == "__main__":
    for model in ("gaussian", "local level", "kalman 2"):
        for each in (False, True):
            run(model, each, "plant" in sys.argv)
    print("all sizes ran")
