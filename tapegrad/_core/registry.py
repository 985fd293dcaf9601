"""The registry of all dependencies without an import statement.

tests/project/test_layers.py reads it and finds every dependency that is missing here. `GIVEN`:
functions that lower folders call as `late.name` and a higher module supplies. `LOADED`: modules that
`load` imports on first use. `FILLED`: tables and primitives of lower folders to which higher modules
add entries."""

import importlib
import signal
import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

from .typing import AnyDict, AnyList, AnyTuple

late = SimpleNamespace()

# name -> (the module that supplies it, the modules that call it)
GIVEN = {
    "fit": ("ops.shaping", ("_core.variable", "_core.reverse")),
    "careful": ("ops.elementwise", ("_core.reverse",)),
    "unless_nan": ("ops.elementwise", ("_core.reverse",)),
    "conj": ("ops.shaping", ("_core.reverse",)),
    "widened": ("ops.shaping", ("ops.declare",)),
    "stacked": ("ops.shaping", ("_core.foreign", "ops.declare")),
    "relaid": ("ops.shaping", ("ops.layouts",)),
    "astype": ("ops.shaping", ("ops.layouts",)),
    "array_of": ("ops.shaping", ("ops.layouts",)),
    "shown": ("ops.indexing.views", ("ops.layouts", "ops.creation")),
    "class_of": ("ops.variable_methods", ("_core.variable",)),
    "refuse_lost": ("ops.variable_methods", ("ops.protocols", "ops.indexing.gathering")),
    "write_value": ("ops.variable_methods", ("ops.protocols",)),
    "index": ("ops.variable_methods", ("ops.protocols",)),
    "class_meant": ("_capture.type_queries", ("ops.variable_methods",)),
    "subarray_class": ("_capture.array_subclasses", ("ops.variable_methods", "_dispatch.subarrays")),
    "subarray_over": ("_dispatch.subarrays", ("ops.variable_methods",)),
    "structured_over": ("_dispatch.structured", ("ops.creation",)),
    "structured_from": ("_dispatch.structured", ("ops.creation",)),
    "seen_with_fields": ("_dispatch.structured", ("ops.variable_methods",)),
    "with_subarrays": ("_dispatch.subarrays", ("ops.protocols",)),
    "shadowed": ("_capture.builtin", ("numpy", "stats", "_dispatch.faces")),
    "followed": (
        "_capture.array_subclasses",
        ("_dispatch.faces", "_dispatch.subarrays", "_scipy.sparse.matrices"),
    ),
    "gradient": ("_transforms.tape", ("ops.variable_methods",)),
    "backward": ("_transforms.tape", ("ops.variable_methods",)),
}

# tapegrad.<name> on first use
PUBLIC = (
    "cupy", "implicit", "interop", "kernels", "loops", "numpy", "ode", "operators", "optimize", "parallel",
    "scipy", "sparse", "statespace", "stats",
    "testing", "tree",
)  # fmt: skip
ON_USE = {
    "prepare": "tapegrad.replay", "detect_anomalies": "tapegrad.testing.diagnostics.anomalies",
    "audit": "tapegrad.testing.diagnostics.audit",
    "graph": "tapegrad.testing.diagnostics.graph", "laplace": "tapegrad.sparse",
    "profile": "tapegrad.testing.diagnostics.profile", "propagate": "tapegrad.optimize._propagation",
    "show_versions": "tapegrad.testing.diagnostics.versions",
}  # fmt: skip
# (tapegrad.<name> of a module on first use)
ELSEWHERE = {  # names of other libraries -> ours
    "gradient": "grad", "jacfwd": "jacobian(f, mode='forward')", "jacrev": "jacobian(f, mode='reverse')",
    "jit": "prepare(f, x)",
    "compile": "prepare(f, x)", "stop_gradient": "value", "detach": "value", "no_grad": "value",
    "custom_vjp": "rule", "custom_jvp": "rule",
    "custom_gradient": "rule", "primitive": "rule", "elementwise_grad": "grad(lambda x: f(x).sum())",
    "GradientTape": "Tape",
    "Tensor": "Variable", "tensor": "Variable", "pmap": "vmap", "hessian_vector_product": "hvp",
    "make_jvp": "jvp", "make_vjp": "vjp",
    "ravel_pytree": "ravel", "remat": "checkpoint", "detect_anomaly": "detect_anomalies",
    "debug_nans": "detect_anomalies",
    "register_pytree_node": "register_tree", "gradcheck": "testing.check_grads",
    "check_grads": "testing.check_grads",
    "hessian_vector": "hvp", "derivative": "grad", "diff": "grad", "minimize": "optimize.minimize",
    "fit": "statespace.fit",
}  # fmt: skip
# tapegrad.scipy.<name> on first use
SCIPYS = ("signal", "ndimage", "interpolate", "integrate", "spatial", "sparse", "optimize", "fftpack")
RANKS = (  # tapegrad.parallel.<name> on first use, for it starts MPI
    "allgather", "bcast", "halo", "hvp", "pmean", "psum", "scatter", "split", "together", "value_and_grad",
)  # fmt: skip
KERNEL_FUNCTIONS = {  # tapegrad.kernels.<name> on first use
    "emit_cuda": "emit.cuda", "likelihood": "generated.kernel", "loop": "trace.loops", "map": "generated.map",
    "raw": "raw_code.kernel", "recursion": "generated.kernel", "source": "raw_code.sources",
    "while_loop": "trace.loops",
}  # fmt: skip
MODELS = (  # tapegrad.kernels.<name> on first use
    "autoregression", "carma", "celerite", "garch", "gaussian", "kalman", "kalman_vector", "markov",
    "mixture", "regression", "student_t",
)  # fmt: skip

# module -> the modules that load it
LOADED: dict[str, AnyTuple] = {
    **{f"tapegrad.{name}": ("__init__",) for name in PUBLIC},
    # a library's wrappers: loaded when a function uses the library, or by name
    "tapegrad.numpy": ("__init__", "_dispatch.stand_ins", "_scipy.device"),
    "tapegrad.cupy": ("__init__", "_dispatch.stand_ins", "scipy", "_scipy.device"),
    "tapegrad.cupyx": ("_dispatch.stand_ins",),
    "tapegrad.scipy": ("__init__", "_dispatch.stand_ins"),
    "tapegrad.implicit.sequential": ("ops.special.declare",),  # when hidden values decide the control flow
    # when a vmap meets an object that nobody follows
    "tapegrad._capture.dependencies": ("_capture.snapshots",),
    "tapegrad.ops.on_demand": ("ops.protocols",),  # operations that are declared on first use
    "tapegrad.stats": ("__init__", "scipy"),
    # with the first sparse matrix: it imports Numba
    "tapegrad.sparse": ("__init__", "ode._large", "optimize._constrained", "_scipy.integrate.right_side"),
    "tapegrad.sparse._renewed": (
        "optimize._flat",
        "optimize._objective",
        "optimize._ipopt",
        "optimize._constrained",
    ),
    # within a transform: it imports what stands for SciPy
    "tapegrad.sparse._tracked": ("sparse._plan",),
    "tapegrad.sparse._cholesky": ("sparse", "optimize._gauss_newton"),
    "tapegrad.sparse._laplace": ("sparse",),
    **{
        f"tapegrad.stats.{name}": ("stats",)
        for name in ("_continuous", "_elementary", "_discrete", "_integrated")
    },  # on request
    **{f"tapegrad._scipy.{name}": ("scipy",) for name in SCIPYS},
    "tapegrad._scipy.followed": ("_scipy.namespaces",),
    "tapegrad._scipy.followed_functions": ("ops.declare",),
    "tapegrad._scipy.followed_modules": ("scipy", "stats"),
    "tapegrad._scipy.integrate.ivp_kernel": ("_scipy.integrate",),  # in recordings: it imports kernels
    "tapegrad._scipy.statistics": ("stats", "stats._families"),
    "tapegrad._scipy.linear_routines": ("scipy", "_dispatch.stand_ins", "_dispatch.faces"),
    "tapegrad._scipy.polynomial": ("numpy",),
    **{f"tapegrad.kernels.{name}": ("kernels",) for name in KERNEL_FUNCTIONS.values()},
    # a library model: on request, or when one of its kernels is unpickled
    **{f"tapegrad.kernels.library.{name}": ("kernels", "kernels.library.models") for name in MODELS},
    # with the first CuPy array: they cannot be imported without CuPy
    "tapegrad.kernels.launch.cuda": (
        "kernels.generated.arguments",
        "kernels.raw_code.check",
        "replay.fusion.device",
    ),
    "tapegrad.kernels.raw_code.cuda": ("kernels.raw_code.kernel",),
    "cupyx.scipy.fft": ("_dispatch.faces", "ops.cosine_transforms"),
    "cupyx.scipy.linalg": ("_dispatch.faces", "ops.linalg.factorizations", "ops.linalg.equations"),
    "cupyx.scipy.special": ("_dispatch.faces", "ops.piecewise"),
    "cupyx.scipy.sparse.linalg": (
        "operators",
        "implicit.systems",
        "_dispatch.faces",
        "_scipy.sparse.products",
        "_scipy.sparse.linear_systems",
        "_scipy.namespaces",
    ),
    "cupyx.scipy.sparse": (
        "_dispatch.faces",
        "_scipy.sparse.places",
        "_scipy.sparse.products",
        "sparse._plan",
    ),
    "cupyx.scipy.signal": ("_dispatch.faces", "_scipy.linear_maps"),
    "cupyx.scipy.interpolate": (
        "_dispatch.faces",
        "_scipy.interpolate.piecewise",
        "_scipy.interpolate.fitpack",
    ),
    "cupyx.scipy.spatial": ("_scipy.interpolate",),
    "cupyx.scipy.ndimage": ("_dispatch.faces", "_scipy.linear_maps"),
    # slow to import
    "scipy.linalg.cython_blas": ("replay.interpreter.foreign_calls",),
    "scipy.linalg.cython_lapack": ("replay.interpreter.foreign_calls",),
    "numpy.linalg._umath_linalg": ("replay.interpreter.placed_matrices",),
    "numpy.fft._pocketfft_umath": ("replay.interpreter.placed_complex",),
    "tapegrad.kernels.launch.cpu": ("replay.interpreter.machine_code",),
    **dict.fromkeys([name for name in ON_USE.values() if name != "tapegrad.sparse"], ("__init__",)),
    "tapegrad.replay": ("__init__", "_scipy.integrate.stage_sweeps", "optimize._ipopt"),
    # another library, with the first function that crosses
    **{f"tapegrad.interop.{name}": ("interop",) for name in ("jax", "pytensor", "pytorch")},
    "tapegrad.parallel.functions": ("parallel",),
    "tapegrad.parallel.workers": ("ode._trajectories", "optimize._many", "statespace._panel"),
    # what a replayed program needs
    "tapegrad.replay.emitted": ("replay.cached_program", "replay.partial_evaluation", "sparse._direct"),
    "tapegrad.replay.fusion.groups": ("replay.emitted",),
    "tapegrad.replay.scalar_graph": ("replay.emitted",),
    "numba": ("kernels.raw_code.kernel",),
    # with the first call of a function of Numba's that has loops, or of a device kernel of its
    "tapegrad.loops.cuda_c.derived_rules": (
        "kernels.raw_code.check",
        "kernels.raw_code.kernel",
        "kernels.raw_code.sources",
    ),
    "tapegrad.loops.cuda_c.element_kernels": ("_dispatch.cupy_kernels",),
    "tapegrad.loops.cuda_c.kernels": ("_dispatch.cupy_kernels",),
    "tapegrad.loops.cuda_c.python_kernels": ("_dispatch.cupy_kernels", "loops.inspection"),
    "tapegrad.loops.cuda_c.thread_operation": ("loops.operation",),
    "tapegrad.loops.inspection": ("kernels.raw_code.sources",),
    "tapegrad.loops.operation": ("_capture.functions",),
    "tapegrad.loops.universal": ("_capture.functions",),
    **dict.fromkeys(
        ("numba.cuda.dispatcher", "numba.cuda.descriptor", "numba.cuda.compiler"), ("loops.numba_ir",)
    ),
    "scipy.stats": ("stats._families",),
    "tapegrad._scipy.expressions": ("_dispatch.stand_ins",),  # when numexpr is met
    "tapegrad._capture.tables": ("_capture.functions", "_dispatch.stand_ins"),  # when pandas is met
    # optional: pandas for tables of pandas data, a drawing library on request
    "pandas": (
        "statespace._labels",
        "statespace._panel",
        "statespace.results.archive",
        "statespace.results.forecast",
        "statespace.results.news",
        "statespace.results.predictions",
    ),
    "matplotlib.pyplot": ("statespace.results.plots", "sparse._pictures"),
    "ipyopt": ("optimize._ipopt",),  # brings Ipopt
}

# table or primitive -> the modules that add to it; a name that ends with a dot stands for the modules of
# a package
FILLED = {
    "_core.registry.TABLES": ("ops.declare",),
    "_core.primitive.READ": ("ops.indexing.regions",),
    "_core.primitive.ASSIGN": ("ops.indexing.regions",),
    "_core.primitive.ADD_AT": ("ops.indexing.regions",),
    "_core.forward.FORWARD": ("_dispatch.fast.entries",),
    "ops.declare.NUMPY": ("ops.", "_scipy.namespaces"),
    "_dispatch.stand_ins.INSTANCES": ("_scipy.namespaces",),
    "_dispatch.faces.FACES": (
        "_dispatch.random",
        "stats",
        "_scipy.namespaces",
        "_scipy.followed_modules",
    ),
    "_capture.type_queries.METAS": ("_capture.classes", "_transforms.side_effects"),
    "_core.registry.SHADOW_MAKERS": (
        "_capture.core",
        "_transforms.transform",
        "_transforms.checkpoint",
        "implicit",
        "statespace.filters.nonlinear",
        "replay.prepared",
        "_scipy.optimize",
        "_scipy.optimize.callback_search",
        "_scipy.integrate.boundary",
        "_scipy.integrate.ivp_adjoint",
        "optimize._constrained",
        "ode._large",
        "sparse._plan",
    ),
    "_core.registry.FROZEN": ("ode._arguments", "ode._solver"),
    "_core.variable.PlainSubarray": ("_dispatch.subarrays",),
    "_core.variable.SUBARRAYS": ("_capture.array_subclasses", "_capture.classes", "_dispatch.structured"),
    **dict.fromkeys(
        ("_core.variable.Variable", "_core.variable.ArrayVariable", "_core.variable.NumberVariable"),
        ("ops.variable_methods",),
    ),
    "kernels.graph.nodes.OPERATIONS": ("kernels.trace.",),
    "kernels.trace.symbolic.ARRAYS": ("kernels.trace.",),
    "kernels.trace.symbolic.COMPLEX": ("kernels.trace.",),
    "kernels.trace.symbolic.FUNCTIONS": ("kernels.trace.",),
    "kernels.trace.symbolic.COMPOSED": ("kernels.trace.",),
    "kernels.trace.symbolic.REDUCE": ("kernels.trace.",),
}

# the open state of a thread, and the watchers: not a dependency
STATE = ("_core.scope.OPEN", "_core.scope.WATCHERS")
# imports what the user's code imports, reads which versions are installed, puts host memory below CuPy, or
# has its own copy of CuPy's compiler
FOR_USERS = (
    "_capture.builtin", "loops.cuda_c.python_kernels", "testing.diagnostics.versions", "testing.hosted", "testing.hosted.routines",
    "testing.hosted.runtime",
    "testing.hosted.scipy_functions",
)  # fmt: skip


TABLES: AnyList = []  # the tables of operations


class LoadTransaction:
    """A context for modules that load others. The handlers of signals run at its end, because other code
    finds a half-loaded module. If a module fails to load, the tables are restored and the modules are
    unloaded. The next use loads them again. An operation whose rules were not declared yet would run without
    a derivative."""

    def __enter__(self) -> None:
        self.modules, self.tables = set(sys.modules), [(table, dict(table)) for table in TABLES]
        self.waiting: AnyList = []
        self.handlers: AnyDict = {}
        self.open = True
        if threading.current_thread() is threading.main_thread():  # no other one runs handlers
            for number in signal.valid_signals():
                if callable(handler := signal.getsignal(number)):
                    self.handlers[number] = handler
                    signal.signal(number, self.wait)

    def wait(self, number: int, frame: Any) -> None:
        self.waiting.append(number) if self.open else self.handlers[number](number, frame)

    def __exit__(self, kind: type | None, error: Any, traceback: Any) -> None:
        if kind is not None:
            self.unload()
        self.open = False  # an interrupt from here on leaves handlers that call the user's
        for number, handler in self.handlers.items():
            if signal.getsignal(number) == self.wait:
                signal.signal(number, handler)
        for number in self.waiting:
            signal.raise_signal(number)

    def unload(self) -> None:
        for table, before in self.tables:
            for key in table.keys() - before.keys():
                del table[key]
            table.update(before)
        for name in sys.modules.keys() - self.modules:
            if name.startswith("tapegrad."):
                folder, _, module = name.rpartition(".")
                # else `from folder import module` would find the half-loaded module
                vars(sys.modules.get(folder, late)).pop(module, None)
                del sys.modules[name]


def load(name: str) -> ModuleType:
    """Import a module of `LOADED`."""
    if name not in LOADED:
        raise AssertionError(
            f"{name} is loaded late, and _core/registry.py does not declare it; please report this"
        )
    if name in sys.modules:
        return importlib.import_module(name)
    with LoadTransaction():
        return importlib.import_module(name)


# class -> function (shadow, x): makes what stands for x while a call follows what its function captured
SHADOW_MAKERS: AnyDict = {}
# classes of ours whose objects hold no Variable, and give nobody an array, and whose attributes are not bound
# again: a shadow may wait with them
FROZEN: set[type] = set()
