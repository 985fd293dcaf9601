"""The modules of the package, and the floors on which they stand."""

import ast
import functools
import gc
from pathlib import Path

import tapegrad

PACKAGE = Path(tapegrad.__file__).parent

# A module imports only from floors below its own, or from what stands before it on its own floor.  A name
# that ends with a dot is a folder whose modules may import each other, without a cycle.
FLOORS = [
    ["_core."],
    ["cache", "errors", "tree"],
    ["ops."],
    ["_dispatch.fast.", "_dispatch."],
    ["numpy", "scipy", "stats.", "cupyx", "cupy"],
    ["_capture."],
    ["_transforms.batching."],
    ["_transforms."],
    ["implicit.", "parallel."],
    [
        "kernels.graph.",
        "kernels.trace.",
        "kernels.emit.",
        "kernels.launch.",
        "kernels.generated.",
        "kernels.raw_code.",
        "kernels.library.",
        "kernels",
    ],
    ["optimize.", "replay.", "_scipy.", "loops."],
    ["operators", "sparse.", "testing.", "statespace.", "ode.", "interop."],
    ["__init__"],
    ["__main__"],
]


def modules():
    """Name within the package -> path."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)
        found[name] = path
    return found


MODULES = modules()


@functools.cache
def trees():
    """Name -> syntax tree of each module.  The collector does not visit their million nodes, also while they are made."""
    gc.disable()
    try:
        found = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}
        gc.freeze()
    finally:
        gc.enable()
    return found
