"""The launches of one operation on a tape: the value stores its steps, and the gradient reads them."""

from typing import Any

import numpy as np


def bits_of(theta: np.ndarray, data: np.ndarray, *others: np.ndarray) -> tuple:
    return theta.shape, theta.dtype.char, theta.tobytes(), data.shape, data.dtype.char, data.tobytes()


class RecordedRun:
    """Launches a kernel of the value; what it has stored serves a gradient for the same arguments."""

    def __init__(self, kernel, family):
        self.kernel, self.family = kernel, family
        self.recorder: Any = None
        self.held = []  # the bits of the arguments, and the tapes, while no sweep uses them

    def __del__(self) -> None:
        if hasattr(self, "held"):  # no exception has ended the constructor
            self.let_go()

    def let_go(self) -> None:
        """Let another call use the tapes that no sweep uses."""
        held, self.held = self.held, []
        for _, recording in held:
            self.recorder.take_back(recording)

    def __call__(self, kind: str, n: tuple, arrays: tuple, numbers: bool = False):
        run = self.kernel._run_of
        if kind == "R" and n == (0, 0):
            found = self.taken(arrays)
            if found is None:
                return run(self.family, kind, n, arrays, numbers)
            sweeper = found[1].sweeper()
            result = sweeper.repeated(arrays)
            if result is None:
                result = run(self.family, kind, n, arrays, numbers, sweeper)
                sweeper.remember(arrays, result)
            else:
                self.kernel._looked_at(arrays, result)
            self.held.append(found)
            return result
        if kind != "F" or n != (0, 0) or numbers:
            return run(self.family, kind, n, arrays, numbers)
        self.let_go()  # of a recorded program, which calls this again
        result, recording = self.again(arrays)
        if recording is None:
            recording = self.begun(*arrays)
            result = run(self.family, kind, n, arrays, numbers, recording)
            if recording is None:
                return result
            recording.remember(arrays, result)
        if recording.fits():
            self.held = [(bits_of(*arrays), recording)]
        else:
            self.recorder.take_back(recording)
        return result

    def again(self, arrays: tuple) -> tuple:
        """Return the result and the launcher, if the last launch that stored steps was like this one."""
        self.recorder = recorder = self.family.recorder
        recording = recorder and recorder.free_copy()
        if recording is None:
            return None, None
        recording.needed = []
        result = recording.repeated(arrays)
        if result is None:
            recorder.take_back(recording)
            return None, None
        return self.kernel._looked_at(arrays, result), recording

    def taken(self, arrays: tuple) -> tuple | None:
        """Return what has been stored for these arguments, for one thread at a time, or None."""
        held = self.held
        try:
            found = held.pop()
        except IndexError:
            return None
        if bits_of(*arrays) == found[0]:
            return found
        held.append(found)
        return None

    def begun(self, theta, data):
        """Return the launcher that stores steps, or None if there is no memory for them."""
        if type(theta) is not np.ndarray or type(data) is not np.ndarray or self.kernel._is_missing(data):
            return None
        signature = theta.shape[0], data.shape[0] if data.ndim > 1 else 0, False
        made = self.family.recording(signature, theta.dtype, data.ndim == 3)
        self.recorder = self.family.recorder = made
        return made and made.begun(data.shape[-1 if data.ndim < 3 else 1], theta.shape[1])
