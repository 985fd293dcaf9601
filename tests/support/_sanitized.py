"""Run by test_kernels_cuda.py in a process that has the runtime of AddressSanitizer: kernels at awkward
sizes, their arrays just
as large as they must be.  With the argument "plant" one kernel writes an element beyond its output."""

import sys

import numpy as np
from _cuda_host import BlockKernel, HostKernel, arguments
from _kernel_cases import case, lowered

from tapegrad.kernels import emit_cuda
from tapegrad.kernels.emit.cuda_split import emit_split, gather_text

SIZES = [(batch, steps) for batch in (1, 5, 33) for steps in (0, 1, 7)]
SANITIZE = ("-fsanitize=address", "-g")
PLACE = "out0[0LL * batch + s]"


def run(name: str, per_sample: bool, plant: bool, every: int = 1) -> None:
    low = lowered(name, "VG", 0)
    source, entry, signature = emit_cuda(low, np.float64, per_sample, every=every)
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
        given, outs = arguments(low, signature, np.float64, inputs, d, steps, batch, 3 * 32, every)
        kernel((3,), (32,), given)
        assert all(np.isfinite(x).all() for x in outs)


def run_divided() -> None:
    low = lowered("gaussian", "VG", 0)
    source, signatures = emit_split(low, np.float64)
    partial, finish = (HostKernel(source, entry, SANITIZE) for entry in ("partial", "finish"))
    gather = BlockKernel(gather_text(np.float64), "gather", SANITIZE)
    _, theta, _ = case("gaussian")
    for batch, steps, each in [(1, 64 * 5, 1), (5, 64 * 5 + 1, 2), (33, 64 * 7 - 1, 3), (33, 1, 4)]:
        chunks, rows = -(-steps // 64), 4 * batch
        inputs, data = np.ascontiguousarray(np.tile(theta, 4)[:, :batch]), np.ones((2, steps))
        sums, totals = np.full(chunks * rows, np.nan), np.zeros(rows)
        given = [inputs, data, sums, *[np.int64(x) for x in (batch, steps, 0, chunks, each)]]
        assert len(given) == len(signatures["partial"].parameters)
        partial((2,), (32,), given)
        gather((-(-rows // 32),), (512,), (sums, totals, np.int64(rows), np.int64(chunks)))
        outs = np.empty((1, batch)), np.empty((4, batch))
        finish((2,), (32,), (inputs, *outs, totals, np.int64(batch), np.int64(steps)))
        assert all(np.isfinite(x).all() for x in outs)


if __name__ == "__main__":
    run_divided()
    for model in ("gaussian", "local level", "kalman 2", "kepler", "substeps"):
        for each in (False, True):
            run(model, each, "plant" in sys.argv)
    run("local level", False, False, 3)
    run("kalman 2", True, False, 4)
    run("substeps", False, False, 3)
    print("all sizes ran")
