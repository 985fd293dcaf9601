"""Programs whose name is known before they are traced: later processes neither trace nor compile them.

The results of tracing and compiling are stored on disk under the name. To trace, differentiate and lower a
filter of a dozen states takes a tenth of a second; to read machine code takes milliseconds. The name must
identify everything that the traced function depends on. This module adds the state of the package and the
processor."""

import functools
import hashlib
import json
import os
import zlib
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ... import cache
from . import cpu
from .cpu import Launcher, LaunchPlan

# lines of text above which code for few steps, or for few calls, is compiled for a short compilation time
SHORT_RUN_LINES = 2_000


def _states_of_files(folder: str) -> list[str]:
    """Return path, size and time of each file of Python in a folder and those below it."""
    found = []
    for entry in os.scandir(folder):
        if entry.name.endswith(".py"):
            status = entry.stat()
            found.append(f"{entry.path} {status.st_size} {status.st_mtime_ns}")
        elif entry.name != "__pycache__" and entry.is_dir():
            found += _states_of_files(entry.path)
    return found


@functools.cache
def state_of_package() -> str:
    """Return names, sizes and times of the files that determine programs, so that edits change the key."""
    package = Path(__file__).parents[2]
    found = [
        state for name in ("kernels", "ops", "statespace") for state in _states_of_files(f"{package / name}")
    ]
    return hashlib.sha256(" ".join(sorted(found)).encode()).hexdigest()


def note_compiled(name: str) -> None:
    """Record for later processes that programs of this name have been compiled."""
    cache.save(cache.key(state_of_package(), name), b"compiled")


def was_compiled(name: str) -> bool:
    return cache.load_code(cache.key(state_of_package(), name)) is not None


class StoredLauncher(Launcher):
    """A Launcher whose `trace()` is called only if the disk does not have the program.

    `short`: code above a few lines is compiled for a short compilation time. `rare`: so it is until it has
    run for long, or a later launcher meets it, which finds its text on disk."""

    def __init__(
        self,
        name: str,
        trace: Callable[[], Any],
        dtype: np.dtype,
        per_sample: bool,
        short: bool,
        rare: bool = False,
    ):
        self.large, self.rare = SHORT_RUN_LINES if short else cpu.LARGE_TEXT_LINES, rare and not short
        self.name, self.trace = (
            cache.key(cpu.processor().description, state_of_package(), name, dtype.char, str(per_sample)),
            trace,
        )
        record = cache.load_code(self.name)
        if record is None:
            self.codes: dict[str, str] = {}  # names of the machine code of the forms, by width
            super().__init__(trace(), dtype, per_sample)
        else:
            record = json.loads(record)
            self.codes = record["codes"]
            super().__init__(None, dtype, per_sample, LaunchPlan(**record["plan"]))

    def engine(self, width: int):
        known = self.codes.get(str(width))
        engine = None if known is None else cpu.stored_engine(known)
        if engine is None and known is not None and (packed := cache.load_code(cache.key(known))):
            engine = cpu.engine_of(zlib.decompress(packed).decode(), self.large)
        if engine is None:
            if self.low is None:
                self.low = self.trace()
            text = self.text(width)
            lines = text.count("\n")
            if self.rare and SHORT_RUN_LINES < lines <= self.large:
                self.quick[width] = text, cpu.optimisation_seconds(text)
                engine, text = cpu.engine_of(text, 0), text + cpu.OPTIMIZED
                cache.save(cache.key(cpu.code_name(text)), zlib.compress(text.encode(), 1))
            else:
                engine = cpu.engine_of(text, self.large)
            self.codes[str(width)] = cpu.code_name(text)
            cache.save(self.name, json.dumps({"plan": asdict(self.plan), "codes": self.codes}).encode())
        return engine
