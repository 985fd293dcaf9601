"""The fixture `device`: raw kernels on NumPy, on hosted CuPy by the host's code, and (-m gpu) on a device."""

import numpy as np
import pytest

from tapegrad.kernels.launch.host import host_code


class OnHost:
    """What `loaded` gives, run by the host: the memory of hosted CuPy is the host's."""

    def __init__(self, view, launches, text, entry, options=(), name="kernel.cu"):
        head, _, source = text.partition("\n#line 1 ")
        self.run = host_code(entry, source.partition("\n")[2], entry, head.split()[1], name)
        self.view, self.launches, self.entry = view, launches, entry

    def __call__(self, grid, block, values, shared_mem=0):
        self.launches.append((self.entry, grid, block))
        self.run(grid, block, [self.view(v) if hasattr(v, "get") else v for v in values], shared_mem)


@pytest.fixture(name="device")
def launched_on_host(xp, monkeypatch):
    """(library, the launches): on hosted CuPy a launch runs the host's code on the same memory."""
    launches = []
    if xp is not np and getattr(xp.cuda.runtime, "_hosted", False):
        from tapegrad.kernels.raw_code import cuda as raw_cuda
        from tapegrad.testing import hosted as hosted_cupy

        made = {}

        def loaded(*args):
            return made.setdefault(args, OnHost(hosted_cupy.host_view, launches, *args))

        monkeypatch.setattr(raw_cuda, "loaded", loaded)
        monkeypatch.setattr(raw_cuda, "kernel_limits", lambda function: (256, 40))
        monkeypatch.setattr(raw_cuda, "blocks_at_once", lambda function, threads, shared: 65536 // (40 * threads))
    return xp, launches
