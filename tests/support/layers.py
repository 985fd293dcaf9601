"""The modules of the package, and the floors on which they stand."""

from pathlib import Path

import tapegrad

PACKAGE = Path(tapegrad.__file__).parent

# A module imports only from floors below its own, or from what stands before it on its own floor.  A name
# that ends with a dot is a package whose modules may import each other, without a cycle.
FLOORS = [
    ["_late", "_scope", "errors", "_types", "_array", "_variable", "_tree", "_pickling", "_foreign", "_hollow", "cache"],
    ["_primitive", "_loans"],
    ["_tape", "_dual", "ops", "ops._layouts", "ops._define"],
    [
        "ops.shaping",
        "ops.creation",
        "ops.indexing",
        "ops.gates",
        "ops.zero_derivative",
        "ops.elementwise",
        "ops.corners",
        "ops.far_out",
        "ops.special",
        "ops.gamma",
        "ops.zeta",
        "ops.incomplete",
        "ops.bessel",
        "ops.reductions",
        "ops.products",
        "ops.scans",
        "ops.einsum",
        "ops.sorting",
        "ops.picking",
        "ops.selecting",
        "ops.statistics",
        "ops.one_triangle",
        "ops.linalg",
        "ops.degenerate",
        "ops.spectral",
        "ops.norms",
        "ops.structured",
        "ops.fft",
    ],
    [
        "ops.views",
        "ops.overlaps",
        "ops.gathering",
        "ops.padding",
        "ops.names",
        "ops.further.",
        "ops.writing",
        "ops._flat",
        "ops._families",
        "ops._protocols",
        "ops._cupy_calls",
        "ops._attach",
        "_fast.",
        "_float_errors",
        "_carried",
        "_counted",
        "_stacked",
        "_batch",
    ],
    [
        "_faces",
        "_higher",
        "_random",
        "_cupy_kernels",
        "numpy",
        "cupy",
        "scipy",
        "_cupyx",
        "stats.",
        "_questions",
        "_stand_ins",
    ],
    ["_shadow."],
    [
        "_reads",
        "_calls",
        "_directions",
        "_transforms",
        "_transposed",
        "_first_read",
        "_kept",
        "_vmap",
        "_rule",
        "_linearize",
        "_recording",
        "_implicit_systems",
        "_rebind",
        "_memory",
        "_watching",
        "_anomalies",
        "_wrapped",
    ],
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
    [
        "replay.",
        "sparse.",
        "operators",
        "implicit",
        "_one_by_one",
        "_scipy.",
        "optimize.",
        "statespace.",
        "testing",
        "_profile",
        "_graph",
        "_audit",
    ],
    ["__init__"],
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
