"""The mapping from modules and functions of NumPy, CuPy and SciPy to their stand-ins inside a shadow."""

import sys
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from .._core.foreign import name_in
from .._core.registry import load
from ..ops.protocols import function_for
from .cupy_kernels import KINDS
from .faces import face
from .numbers import MODULES, NUMBER_TYPES, OPERATORS

STAND_INS = {
    "numpy": "tapegrad.numpy",
    "cupy": "tapegrad.cupy",
    "scipy": "tapegrad.scipy",
    "cupyx.scipy": "tapegrad.scipy",
    "cupyx": "tapegrad.cupyx",
    "numexpr": "tapegrad._scipy.expressions",
}


# modules over subclasses of arrays, whose Python code is followed as the user's is
OF_SUBCLASSES = ("numpy.ma", "numpy.matrixlib", "scipy.stats.mstats", "scipy.stats._mstats")
HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE, of all classes that Python code made
MATRICES = frozenset((id(np.matrix), id(np.asmatrix), id(np.bmat)))
ROOTS = frozenset(("numpy", "cupy", "scipy", "cupyx", "numexpr", *MODULES))
FOUND: dict = {}  # module name -> its stand-in


def module_stand_in(name: str):
    """The stand-in for a module name, or None. 'scipy.linalg' is the attribute `linalg` of
    tapegrad.scipy."""
    for theirs in STAND_INS:
        if name == theirs or name.startswith(theirs + "."):
            ours: Any = load(STAND_INS[theirs])  # the face of a library is loaded when its user is met
            for part in name[len(theirs) + 1 :].split(".") if name != theirs else []:
                if part.startswith("_") or ours is None:
                    return None
                ours = getattr(ours, part, None)
            return ours
    return MODULES.get(name)


def module(m: ModuleType):
    found = FOUND.get(m.__name__)
    if found is None and m.__name__.partition(".")[0] in ROOTS and not m.__name__.startswith(OF_SUBCLASSES):
        found = module_stand_in(m.__name__)
        if found is not None:
            FOUND[m.__name__] = found
    return found


def function_stand_in(f):
    """The face of a NumPy, CuPy or SciPy function, or None."""
    theirs, ours = FACES.get(id(f), NONE)
    return ours if theirs is f and f is not None else face_of(f)


NONE = None, None
FACES: dict = {
    id(f): (f, ours) for f, ours in (NUMBER_TYPES | OPERATORS).items()
}  # id of a function -> (function, its face)


def module_of(f: Any) -> Any:
    """The name of the module of a function or class. One made by code whose globals have no name has none:
    Python gives such a class the name of its builtins. NumPy gives its matrices another one."""
    name = "numpy.matrixlib" if id(f) in MATRICES else getattr(f, "__module__", None)
    return None if name == "builtins" and isinstance(f, type) and f.__flags__ & HEAP else name


def face_of(f):
    if type(f).__name__ == "fortran":
        return load("tapegrad._scipy.linear_routines").LinearRoutine(f)
    module_name = module_of(f) or "numpy"  # (a ufunc names none)
    root = module_name.partition(".")[0]
    if root == "pandas" and isinstance(f, (type, FunctionType)):
        return load("tapegrad._capture.tables").PANDAS_FACES.get(f)
    if root not in ROOTS or module_name.startswith(OF_SUBCLASSES):
        return None
    name = getattr(f, "__name__", None)
    # a distribution, a MultiUFunc
    if name is None and not type(f).__module__.startswith(("scipy.stats", "scipy.special")):
        return None
    same = None
    public = [p for p in module_name.split(".") if not p.startswith("_")]
    # from the private scipy.integrate.ivp upwards to scipy.integrate
    above = [".".join(public[:n]) for n in range(len(public), 0, -1)]
    for place in dict.fromkeys((*above, root, root + ".linalg", root + ".fft", "scipy.special")):
        theirs, ours = sys.modules.get(place), module_stand_in(place)
        if ours is None or theirs is None:
            continue
        if name is None or root in ("cupy", "cupyx"):  # `cupy.linalg.cross` has the name linalg_cross
            name = name_in(theirs, f) or name
        if name is not None and getattr(theirs, name, None) is f:
            found = getattr(ours, name, None)
            if found is f:  # in a private module, perhaps, which has no face
                same = f
                continue
            if found is not None and len(FACES) < 9999:
                FACES[id(f)] = f, found
            return found
    if same is None and function_for(f) is not None:  # other code has put a substitute in its place
        same = face(f)
    if same is not None and len(FACES) < 9999:
        FACES[id(f)] = f, same
    return same


def library_object(x):
    """The module, class or function that x stands for; x itself if it is no stand-in."""
    if type(x) is partial and getattr(x.func, "__module__", None) == "tapegrad.scipy":
        return x.args[0]
    named = type(x) in (ModuleType, FunctionType, type)
    home = (getattr(x, "__module__", None) or x.__name__) if named else type(x).__module__
    if home.partition(".")[0] not in {"tapegrad", *(ROOTS if named else ())}:
        return x
    if type(x).__name__ == "LinearRoutine":
        return x.f
    if type(x) is ModuleType:
        real = sys.modules.get(home.removeprefix("tapegrad."))
        return x if real is None else real
    for theirs in ROOTS:
        real = sys.modules.get(theirs)
        ours = MODULES.get(theirs) or sys.modules.get(STAND_INS.get(theirs, theirs))
        if real is not None and ours is not None and ours is not real:
            found = in_module(real, ours, x)
            if found is not None:
                return found
    return x


def in_module(theirs, ours, x):
    """The member of a module whose stand-in is x; None if there is none.  A stand-in that was handed out is
    among the names of the stand-in for its module, or `__getattr__` there gives it again."""
    name = getattr(x, "__name__", None) or getattr(x, "name", None)
    if isinstance(name, str) and hasattr(theirs, name) and getattr(ours, name, None) is x:
        return getattr(theirs, name)
    for name, stand_in in list(vars(ours).items()):
        inner = None if name.startswith("_") else getattr(theirs, name, None)
        if stand_in is x and inner is not None:
            return inner
        if isinstance(stand_in, ModuleType) and isinstance(inner, ModuleType) and inner is not stand_in:
            found = in_module(inner, stand_in, x)
            if found is not None:
                return found
    return None


INSTANCES: dict = {}  # a class of SciPy's, public or not -> ours; the modules of rules fill it
# classes that do not name their module
UNNAMED = {"poly1d": "numpy", "SuperLU": "scipy.sparse.linalg"}


def of_instance(kind: type):
    """The class that stands for instances of a NumPy or SciPy class, or None."""
    module = getattr(kind, "__module__", None) or ""
    if kind.__name__ in UNNAMED and module.partition(".")[0] in ("builtins", "numpy", "scipy"):
        ours = getattr(module_stand_in(UNNAMED[kind.__name__]), kind.__name__)
    elif module.startswith("scipy.stats.") and kind.__name__.endswith("_frozen"):
        ours = module_stand_in("scipy.stats").Frozen
    elif module.startswith(("scipy.", "numpy.polynomial.")):
        ours = function_stand_in(kind)  # (which loads the rules)
        ours = INSTANCES.get(kind, ours)
    elif module.startswith(("cupyx.scipy.sparse.", "cupyx.scipy.interpolate.")):
        place = "scipy.sparse.linalg" if kind.__name__ in UNNAMED else ".".join(module.split(".")[1:3])
        ours = getattr(module_stand_in(place), kind.__name__, None)
    elif module.startswith(("cupy.", "cupyx.")):
        ours = KINDS.get(kind.__name__)
    elif module.partition(".")[0] == "pandas":
        load("tapegrad._capture.tables")  # whose columns a table takes, wherever it was made
        return None
    else:
        return None
    return ours if hasattr(ours, "_of") else None
