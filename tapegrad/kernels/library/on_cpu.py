"""Library kernels on NumPy arrays: in blocks of samples, on several threads, those given by `Steps` with scratch of each thread's own."""

import ctypes
import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ..launch import cpu
from ..launch.waiting import spread
from .straight_line_code import straight, straight_sums
from .sweeps import Block, Frame, Steps, Sums, looping, looping_sums
from .vectors import lanes

KEPT = 1 << 26  # bytes of scratch that a thread keeps from call to call
FEW = 3  # samples below which each is computed by itself
LARGE = 50_000  # lines of text, most of them reads of slots that become registers; the largest filter has 25,000 and compiles in 2 s
LONG = 1200  # vectors in the room above which Numba's loops serve: straight-line code would take many seconds to compile
LOOPING: dict = {}  # by steps, what Numba made of them
FORM = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 5, *[ctypes.c_int64] * 3)


class Shared:
    """A compiled twin twin(theta, .., B, N, first, last) as a function without the last two, for all samples.

    `width`: samples side by side; `cost(p)`: operations for a sample and a datum with p parameters."""

    def __init__(self, twin: Callable, width: int, cost: Callable):
        self.twin, self.width, self.cost = twin, width, cost

    def __call__(self, theta: np.ndarray, *rest: Any) -> None:
        B, N = rest[-2:]

        def run(first, last):
            self.twin(theta, *rest, first * self.width, min(last * self.width, B))

        spread(-(-B // self.width), B * N * self.cost(theta.shape[0]), run)


class Sweeps:
    """The functions `value` and `both` for NumPy arrays.

    `room`: vectors of the room; `cost`: operations at a step."""

    def __init__(self, steps: Steps | Sums, frame: Frame, room: int, cost: int):
        self.steps, self.frame = steps, frame._replace(modes=np.array(frame.modes))
        self.room, self.cost = room, cost
        self.sums = isinstance(steps, Sums)
        self.loops = self.loops_of(steps) if room > LONG else None
        self.local = threading.local()
        self.forms: dict = {}

    def loops_of(self, steps: Steps | Sums) -> Callable:
        if steps not in LOOPING:
            LOOPING[steps] = (looping_sums if self.sums else looping)(steps)
        return LOOPING[steps]

    def by_numba(self) -> "Sweeps":
        """The same with sizes at run time, slower by a factor of 2 to 4."""
        other = Sweeps(self.steps, self.frame, self.room, self.cost)
        other.loops = self.loops_of(self.steps)
        return other

    def value(self, theta: np.ndarray, data: np.ndarray, value: np.ndarray, B: int, N: int) -> None:
        self.run(theta, data, value, None, N)

    def both(self, theta: np.ndarray, data: np.ndarray, value: np.ndarray, gradient: np.ndarray, *rest: Any) -> None:
        self.run(theta, data, value, gradient, rest[-1])

    def run(self, theta: np.ndarray, data: np.ndarray, value: np.ndarray, gradient: np.ndarray | None, N: int) -> None:
        B, width = theta.shape[1], self.width(theta)
        if width > B:
            self.padded(theta, data, value, gradient, N, width)
            return
        form = self.form(theta.dtype, width, data.ndim == 3, gradient is not None)

        def run(first, last):
            self.part(form, theta, data, value, gradient, N, first, last, width)

        spread(-(-B // width), B * N * self.cost, run)

    def width(self, theta: np.ndarray) -> int:
        """Samples of a block: as many as leave the carries in registers."""
        n = lanes(theta)
        if self.loops is not None:
            return n
        return 1 if theta.shape[1] < FEW else n * (4 if self.cost < cpu.WIDE else 2 if self.cost < cpu.NARROW else 1)

    def part(
        self, form: Any, theta: np.ndarray, data: np.ndarray, value: np.ndarray, gradient: Any, N: int, first: int, last: int, width: int
    ) -> None:
        """The blocks from `first` to `last`; one that would go beyond the last sample begins earlier."""
        B, item = theta.shape[1], theta.itemsize
        arrays = [(theta, True), (data, data.ndim == 3), (value, True), (gradient, True)]
        addresses = [(0, False) if x is None else (cpu.address(x), moves) for x, moves in arrays]
        kept = N * self.frame.stored * (gradient is not None and not self.sums) + self.room * (self.loops is not None)
        scratch = self.scratch(width * item * kept)
        full = min(last, B // width) - first
        for start, blocks in ((first * width, full), (B - width, last - first - full)):
            if blocks:
                form(*[a + start * item * moves for a, moves in addresses], scratch, B, N, blocks)

    def form(self, dtype: np.dtype, width: int, each: bool, gradient: bool) -> Any:
        """The function of (theta, data, value, gradient, scratch, B, N, blocks)."""
        key = dtype, width, each, gradient
        if key not in self.forms:
            self.forms[key] = (self.unrolled if self.loops is None else self.looped)(*key)
        return self.forms[key]

    def frame_for(self, gradient: bool) -> Frame:
        return self.frame._replace(sizes=(*self.frame.sizes, int(gradient))) if self.sums else self.frame

    def looped(self, dtype: np.dtype, width: int, each: bool, gradient: bool) -> Any:
        zero, frame, rest = dtype.type(0), self.frame_for(gradient), (each, width, dtype.itemsize)
        return lambda *given: self.loops(zero, Block(*given, *rest), frame)

    def unrolled(self, dtype: np.dtype, width: int, each: bool, gradient: bool) -> Any:
        given = self.steps, self.frame_for(gradient), width, 8 * dtype.itemsize, each
        text = straight_sums(*given) if self.sums else straight(*given, gradient)
        return FORM(cpu.compiled(text, large=LARGE))

    def scratch(self, size: int) -> int:
        """The address of so many bytes for this thread, a multiple of 64."""
        kept = self.local.__dict__.get("kept")
        if kept is None or kept.nbytes < size + 64 or kept.nbytes > KEPT:
            self.local.kept = None
            kept = self.local.kept = np.empty(size + 64, np.uint8)
        place = cpu.address(kept)
        return place + -place % 64

    def padded(self, theta: np.ndarray, data: np.ndarray, value: np.ndarray, gradient: Any, N: int, width: int) -> None:
        """Fewer samples than a block has: copies, filled up with the last one."""
        B = theta.shape[1]
        fill = np.minimum(np.arange(width), B - 1)
        theta, data = theta.take(fill, 1), data.take(fill, 2) if data.ndim == 3 else data
        wide = np.empty(width, theta.dtype)
        slope = None if gradient is None else np.empty((gradient.shape[0], width), theta.dtype)
        self.part(self.form(theta.dtype, width, data.ndim == 3, gradient is not None), theta, data, wide, slope, N, 0, 1, width)
        value[:] = wide[:B]
        if gradient is not None:
            gradient[:] = slope[:, :B]


class Sized:
    """The functions for NumPy arrays of a kernel for each number p of parameters: make(p) gives `Sweeps`."""

    def __init__(self, make: Callable):
        self.made = functools.cache(make)

    def value(self, theta: np.ndarray, *rest: Any) -> None:
        self.made(theta.shape[0]).value(theta, *rest)

    def both(self, theta: np.ndarray, *rest: Any) -> None:
        self.made(theta.shape[0]).both(theta, *rest)
