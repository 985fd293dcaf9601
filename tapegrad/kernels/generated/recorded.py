"""The launches of one operation on a tape: the value stores its steps, and the gradient reads them."""

from typing import Any

import numpy as np


class RecordedRun:
    """Launches a kernel of the value; what it has stored serves a gradient for the same arguments."""

    def __init__(self, kernel: Any, family: Any):
        self.kernel, self.family = kernel, family
        self.found: tuple | None = None  # copies of the arguments, and the tapes

    def __call__(self, kind: str, n: tuple, arrays: tuple, numbers: bool = False) -> Any:
        found, run = self.found, self.kernel._run_of
        if kind == "R" and n == (0, 0) and found is not None and all(map(np.array_equal, arrays, found[0])):
            return run(self.family, kind, n, arrays, numbers, found[1].sweeper())
        recording = self.begun(*arrays) if kind == "F" and n == (0, 0) and not numbers else None
        result = run(self.family, kind, n, arrays, numbers, recording)
        if recording is not None:
            self.found = (tuple([x.copy() for x in arrays]), recording) if recording.fits() else None
        return result

    def begun(self, theta: Any, data: Any) -> Any:
        """Return the launcher that stores steps, or None if there is no memory for them."""
        if type(theta) is not np.ndarray or type(data) is not np.ndarray or self.kernel._is_missing(data):
            return None
        signature = theta.shape[0], data.shape[0] if data.ndim > 1 else 0, False
        made = self.family.recording(signature, theta.dtype, data.ndim == 3)
        return made and made.begun(data.shape[-1 if data.ndim < 3 else 1], theta.shape[1])
