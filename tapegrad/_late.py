"""The one registry of arrows that no import statement shows.  tests/core/test_layers.py reads it, and finds every arrow that is not here.

`GIVEN`: a function that lower floors call as `late.name`, and a higher one gives.  `LOADED`: a module that is imported when it is first
needed, by `load`.  `FILLED`: a table or primitive of a lower floor to which higher ones add entries."""

import importlib
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

late = SimpleNamespace()

# name -> (who gives it, who calls it)
GIVEN = {
    "fit": ("ops.shaping", ("_variable", "_tape")),
    "conj": ("ops.shaping", ("_tape",)),
    "widened": ("ops.shaping", ("ops._define",)),
    "stacked": ("ops.shaping", ("_foreign", "ops._define")),
    "relaid": ("ops.shaping", ("ops._layouts",)),
    "astype": ("ops.shaping", ("ops._layouts",)),
    "array_of": ("ops.shaping", ("ops._layouts",)),
    "shown": ("ops.views", ("ops._layouts", "ops.creation")),
    "class_of": ("ops._attach", ("_variable",)),
    "refuse_lost": ("ops._attach", ("ops._protocols",)),
    "write_value": ("ops._attach", ("ops._protocols",)),
    "index": ("ops._attach", ("ops._protocols",)),
    "gradient": ("_recording", ("ops._attach",)),
    "backward": ("_recording", ("ops._attach",)),
    "held_by": ("_reads", ("_counted",)),
}

# tapegrad.<name> on first use
PUBLIC = ("cupy", "implicit", "kernels", "numpy", "operators", "optimize", "scipy", "sparse", "statespace", "stats", "testing")
ON_USE = {
    "prepare": "tapegrad.replay", "detect_anomalies": "tapegrad._anomalies", "audit": "tapegrad._audit",
    "graph": "tapegrad._graph", "profile": "tapegrad._profile",
}  # fmt: skip
# (tapegrad.<name> of a module on first use)
ELSEWHERE = {  # names of other libraries -> ours
    "gradient": "grad", "jacfwd": "jacobian(f, mode='forward')", "jacrev": "jacobian(f, mode='reverse')", "jit": "prepare(f, x)",
    "compile": "prepare(f, x)", "stop_gradient": "value", "detach": "value", "no_grad": "value", "custom_vjp": "rule", "custom_jvp": "rule",
    "custom_gradient": "rule", "primitive": "rule", "elementwise_grad": "grad(lambda x: f(x).sum())", "GradientTape": "Tape",
    "Tensor": "Variable", "tensor": "Variable", "pmap": "vmap", "hessian_vector_product": "hvp", "make_jvp": "jvp", "make_vjp": "vjp",
    "ravel_pytree": "ravel", "remat": "checkpoint", "detect_anomaly": "detect_anomalies", "debug_nans": "detect_anomalies",
    "register_pytree_node": "register_tree", "gradcheck": "testing.check_grads", "check_grads": "testing.check_grads",
    "hessian_vector": "hvp", "derivative": "grad", "diff": "grad", "minimize": "optimize.minimize", "fit": "statespace.fit",
}  # fmt: skip
SCIPYS = ("signal", "ndimage", "interpolate", "integrate", "spatial", "sparse", "optimize")  # tapegrad.scipy.<name> on first use
MODELS = (  # tapegrad.kernels.<name> on first use
    "autoregression", "carma", "celerite", "garch", "gaussian", "kalman", "kalman_vector", "markov", "mixture", "regression", "student_t",
)  # fmt: skip

# module -> who loads it
LOADED: dict[str, tuple] = {
    **{f"tapegrad.{name}": ("__init__",) for name in PUBLIC},
    # a face of a library, when a function is met that uses the library, or when it is asked for by name
    "tapegrad.numpy": ("__init__", "_stand_ins", "_scipy._device"),
    "tapegrad.cupy": ("__init__", "_stand_ins", "scipy", "_scipy._device"),
    "tapegrad._cupyx": ("_stand_ins",),
    "tapegrad.scipy": ("__init__", "_stand_ins"),
    "tapegrad._one_by_one": ("ops.further._declare",),  # when values that a vmap hides decide what is done
    "tapegrad.ops.further": ("ops._protocols",),  # operations that are declared on first use
    "tapegrad.stats": ("__init__", "scipy"),
    # with the first sparse matrix: it imports Numba
    "tapegrad.sparse": ("__init__", "optimize._flat", "optimize._minimize"),
    **{
        f"tapegrad.stats.{name}": ("stats",)
        for name in ("_continuous", "_elementary", "_discrete", "_integrated", "_statistics", "_hypotheses", "_samples")
    },  # when they are asked for
    **{f"tapegrad._scipy.{name}": ("scipy",) for name in SCIPYS},
    "tapegrad._scipy._followed": ("_scipy._declare",),
    "tapegrad._scipy.polynomial": ("numpy",),
    # a model of the library, when it is asked for, or for one of its kernels that was pickled
    **{f"tapegrad.kernels.library.{name}": ("kernels", "kernels.library.handwritten") for name in MODELS},
    # with the first CuPy array: without CuPy these cannot be imported
    "tapegrad.kernels.launch.cuda": ("kernels.generated.arguments", "kernels.raw_code.check", "replay._device"),
    "tapegrad.kernels.raw_code.cuda": ("kernels.raw_code.kernel",),
    "cupyx.scipy.fft": ("_faces", "ops.further.transforms"),
    "cupyx.scipy.linalg": ("_faces", "ops.linalg", "ops.further.equations"),
    "cupyx.scipy.special": ("_faces", "ops.corners"),
    "cupyx.scipy.sparse.linalg": (
        "operators",
        "_implicit_systems",
        "_faces",
        "_scipy._solving",
        "_scipy._sparse_systems",
        "_scipy._declare",
    ),
    "cupyx.scipy.sparse": ("_faces", "_scipy._matrices", "_scipy._solving", "sparse._plan"),
    "cupyx.scipy.signal": ("_faces", "_scipy._linear"),
    "cupyx.scipy.interpolate": ("_faces", "_scipy._piecewise", "_scipy._fitpack"),
    "cupyx.scipy.spatial": ("_scipy.interpolate",),
    "cupyx.scipy.ndimage": ("_faces", "_scipy._linear"),
    # slow to import
    "llvmlite.binding": ("replay._interpreter",),
    "scipy.linalg.cython_blas": ("replay._outside",),
    "tapegrad.kernels.launch.cpu": ("replay._interpreter",),
    **dict.fromkeys(ON_USE.values(), ("__init__",)),
    # what a program needs that is replayed
    "tapegrad.replay._emitted": ("replay._form", "replay._at"),
    "tapegrad.replay._groups": ("replay._emitted",),
    "numba": ("kernels.raw_code.kernel",),
    "scipy.stats": ("stats._families",),
    # optional: tables are pandas' where the data were, and pictures are drawn when they are asked for
    "pandas": ("statespace._labels",),
    "matplotlib.pyplot": ("statespace._plots", "sparse._pictures"),
}

# table or primitive -> who adds to it; a name that ends with a dot: the modules of a package
FILLED = {
    "_late.TABLES": ("ops._define",),
    "_primitive.READ": ("ops.indexing",),
    "_primitive.ASSIGN": ("ops.indexing",),
    "_primitive.ADD_AT": ("ops.indexing",),
    "_tape.SAFE": ("ops.elementwise", "_fast.numbers"),
    "_dual.FORWARD": ("_fast.entries",),
    "ops._define.NUMPY": ("ops.", "stats", "_scipy._declare"),
    "_faces.FACES": ("_random", "stats", "_scipy._declare"),
    "_questions.METAS": ("_shadow.classes",),
    "_shadow.core.MAKERS": (
        "_transforms",
        "_memory",
        "implicit",
        "statespace._nonlinear",
        "replay._prepare",
        "_scipy.optimize",
        "_scipy._search",
        "_scipy._boundary",
        "_scipy._adjoint",
    ),
    **dict.fromkeys(("_variable.Variable", "_variable.ArrayVariable", "_variable.NumberVariable"), ("ops._attach",)),
    "kernels.graph.nodes.OPERATIONS": ("kernels.trace.",),
    "kernels.trace.symbolic.ARRAYS": ("kernels.trace.",),
    "kernels.trace.symbolic.FUNCTIONS": ("kernels.trace.",),
    "kernels.trace.symbolic.COMPOSED": ("kernels.trace.",),
    "kernels.trace.symbolic.REDUCE": ("kernels.trace.",),
    "kernels.trace.linalg.FOREIGN": ("kernels.trace.",),
}

STATE = ("_scope.OPEN", "_scope.WATCHERS")  # what is open in a thread, who watches: no arrow
FOR_USERS = ("_shadow.builtin",)  # imports what the user's code imports, not for itself


TABLES: list = []  # the tables of operations


class Whole:
    """A context for modules that fill `TABLES`.  If one of them fails to load, or is interrupted, the tables are as before, and all of
    them are loaded anew next time.  An operation whose rules are not declared yet would answer without a derivative."""

    def __enter__(self) -> None:
        self.modules, self.tables = set(sys.modules), [(table, dict(table)) for table in TABLES]

    def __exit__(self, kind: type | None, error: Any, traceback: Any) -> None:
        if kind is None:
            return
        for table, before in self.tables:
            for key in table.keys() - before.keys():
                del table[key]
            table.update(before)
        for name in sys.modules.keys() - self.modules:
            if name.startswith("tapegrad."):
                del sys.modules[name]


def load(name: str) -> ModuleType:
    """A module of `LOADED`."""
    if name not in LOADED:
        raise AssertionError(f"{name} is loaded late, and _late.py does not declare it; please report this")
    if name in sys.modules:
        return importlib.import_module(name)
    with Whole():
        return importlib.import_module(name)
