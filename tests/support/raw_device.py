"""The fixture `device`: raw kernels on NumPy, on hosted CuPy by the host's code, and (-m gpu) on a device."""

import numpy as np
import pytest


@pytest.fixture(name="device")
def noted_launches(xp, monkeypatch):
    """(library, the launches); on hosted CuPy a launch runs the host's code on the same memory."""
    launches = []
    if xp is not np:
        from tapegrad.kernels.launch.cuda import HostedCode, LoadedCode

        code = HostedCode if getattr(xp.cuda.runtime, "_hosted", False) else LoadedCode
        run = code.__call__

        def noted(self, grid, block, args, shared_mem=0):
            launches.append((self.entry, grid, block))
            run(self, grid, block, args, shared_mem)

        monkeypatch.setattr(code, "__call__", noted)
    return xp, launches
