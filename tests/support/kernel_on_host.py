"""Generated CUDA C run on the host, as several tests do it."""

import numpy as np
from _cuda_host import HostKernel, arguments
from _kernel_cases import MAPS, case, lowered

from tapegrad.kernels import emit_cuda


def on_host(low, dtype, inputs, data, each, batch, per_sample, grid=2, block=4):
    """The outputs of the CUDA C, those of the steps last."""
    source, entry, signature = emit_cuda(low, dtype, per_sample)
    p, slots = low.program, grid * block
    summed = p.by_data and not per_sample
    steps = data.shape[0 if data.ndim == 1 else 1]
    stepped = {
        "step input": each,
        "step output": np.zeros((p.step_rows, steps, slots if summed else batch), dtype),
    }
    given, outs = arguments(low, signature, dtype, inputs, data, steps, batch, 32, stepped=stepped)
    HostKernel(source, entry)((grid,), (block,), given)
    if p.step_rows:
        outs = [*outs, stepped["step output"].sum(axis=-1) if summed else stepped["step output"]]
    return outs


def prepared(name, kind="VG", order=0, dtype=np.float64, batch=45, slots=64):
    """Program, source, entry, signature, arguments and outputs of a kernel of the list."""
    low = lowered(name, kind, order)
    source, entry, signature = emit_cuda(low, dtype)
    rng = np.random.default_rng(0)
    if name in MAPS:
        data, steps = None, 0
        theta = (
            [rng.uniform(-0.8, 0.3, (2, batch))] if name == "escape" else [rng.uniform(0.9, 1.1, (1, batch))]
        )
        rest = (
            [np.zeros((0, batch))]
            if name == "escape"
            else [np.arange(batch) % 9 * 1.0 + np.zeros((1, batch))]
        )
        inputs = theta + rest + [rng.normal(size=(rows, batch)) for rows in low.program.inputs[2:]]
    else:
        _, theta, data = case(name)
        steps = data.shape[-1]
        inputs = [
            np.tile(theta, 5)[:, :batch],
            *[rng.normal(size=theta.shape[:1] + (batch,)) for _ in low.program.inputs[1:]],
        ]
        data = np.ascontiguousarray(data, dtype)
    inputs = [np.ascontiguousarray(x, dtype) for x in inputs]
    given, outs = arguments(low, signature, dtype, inputs, data, steps, batch, slots)
    return low, source, entry, signature, given, outs
