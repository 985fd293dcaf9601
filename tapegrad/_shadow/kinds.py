"""Which kinds of objects a shadow never enters, and whose code it leaves alone."""

import sys
from typing import Any

import numpy as np

ATOMS = frozenset((float, int, bool, complex, str, bytes, type(None), type(Ellipsis), slice, range, np.dtype, np.float64, np.int64))
FOREIGN = frozenset(sys.stdlib_module_names) | {
    "numpy", "scipy", "cupy", "cupyx", "cupy_backends", "numba", "llvmlite", "tapegrad", "torch", "jax", "jaxlib", "tensorflow",
    "pandas", "matplotlib", "pytest", "_pytest", "hypothesis", "tqdm", "h5py",
}  # fmt: skip
OWN = frozenset(("__main__", "__mp_main__"))
EMPTY = object()  # what an empty cell holds


def is_foreign(module: str | None) -> bool:
    """Is the code of this module left alone?  (`__main__` and unnamed modules are the user's.)"""
    return module is not None and module not in OWN and module.partition(".")[0] in FOREIGN


def attribute_names(x: Any) -> list:
    names = list(getattr(x, "__dict__", ()))
    for c in type(x).__mro__:
        slots = c.__dict__.get("__slots__", ())
        names += [s for s in ((slots,) if isinstance(slots, str) else slots) if s not in ("__dict__", "__weakref__")]
    return names
