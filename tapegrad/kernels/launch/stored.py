"""A program of which a name is known before it is traced: what was learnt of it is on disk under that name, and neither tracing nor
compiling is due in a later process.

Tracing, differentiating and lowering a filter of a dozen states takes a tenth of a second, in each process; reading machine code takes a
few milliseconds.  The name must say all that the traced function depends on; the text of this package and the processor are added to it
here."""

import functools
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ... import cache
from . import cpu
from .cpu import Launcher, Plan

SHORT = 2_000  # lines of text above which code for few steps is generated for the time that takes


@functools.cache
def state_of_package() -> str:
    """Names, sizes and times of the files that decide what a program computes: other text, other programs."""
    found = []
    for folder in ("kernels", "ops", "statespace"):
        for where, _, names in os.walk(Path(__file__).parents[2] / folder):
            for path in [f"{where}/{name}" for name in names if name.endswith(".py")]:
                status = os.stat(path)
                found.append(f"{path} {status.st_size} {status.st_mtime_ns}")
    return hashlib.sha256(" ".join(sorted(found)).encode()).hexdigest()


def note(name: str) -> None:
    """Let later processes know that programs of this name have been compiled."""
    cache.save(cache.key(state_of_package(), name), b"compiled")


def noted(name: str) -> bool:
    return cache.load(cache.key(state_of_package(), name)) is not None


class StoredLauncher(Launcher):
    """Like Launcher; `trace()` gives the lowered program, and is called only where the disk does not have what is asked for.  `short`:
    above a few lines it is compiled for the time that takes."""

    def __init__(self, name: str, trace: Callable[[], Any], dtype: np.dtype, per_sample: bool, short: bool = False):
        self.large = SHORT if short else cpu.LARGE
        self.name, self.trace = cache.key(cpu.machine()[1], state_of_package(), name, dtype.char, str(per_sample)), trace
        record = cache.load(self.name)
        if record is None:
            self.codes: dict[str, str] = {}  # the names of the machine code of the forms, by width
            super().__init__(trace(), dtype, per_sample)
        else:
            record = json.loads(record)
            self.codes = record["codes"]
            super().__init__(None, dtype, per_sample, Plan(**record["plan"]))

    def engine(self, width: int) -> Any:
        known = self.codes.get(str(width))
        engine = None if known is None else cpu.found(known)
        if engine is None:
            if self.low is None:
                self.low = self.trace()
            text = self.text(width)
            engine = cpu.engine_of(text, self.large)
            self.codes[str(width)] = cpu.name_of(text)
            cache.save(self.name, json.dumps({"plan": asdict(self.plan), "codes": self.codes}).encode())
        return engine
