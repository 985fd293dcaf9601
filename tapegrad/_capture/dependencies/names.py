"""Names for the walk of dependencies: which names code uses, which packages are trusted, which members of
classes syntax reads.

Each table lists names; the comment says what the names have in common. The walk reads them
(`_capture.dependencies.walk`)."""

import dis
import functools
import gc
import os
import sys
import time
import types
from typing import Any

from ..._core.bytecode import instructions_of
from .. import is_foreign
from ..builtin import codes_in
from ..classes import POOL

# modules whose objects are compared by their text
VALUES = frozenset(("datetime", "decimal", "fractions", "re", "uuid", "zoneinfo"))
# modules whose objects hold no numbers, and their classes that do
HARMLESS = frozenset(("logging", "_thread", "concurrent"))
UNCHANGING = frozenset((("builtins", "SuperLU"),))  # classes of C whose objects never change
HOLDING = frozenset((("concurrent.futures._base", "Future"),))
# functions and attributes that read attributes by other names
ANYTHING = frozenset(("getattr", "vars", "__dict__", "attrgetter", "methodcaller", "__getattribute__"))
UNSEEN = frozenset((
    "globals", "locals", "eval", "exec", "__globals__", "__import__", "import_module", "_getframe",
    "get_objects", "get_referrers",
))  # fmt: skip  # with these, code can read anything
READERS = frozenset((
    "load", "loadtxt", "genfromtxt", "fromfile", "read_csv", "read_excel", "read_parquet", "read_pickle",
    "read_sql", "geterr",
))  # fmt: skip  # functions of trusted packages that read files or settings
# names with which code reads the level of a logger, which else decides on texts only
LEVELS = frozenset(("level", "getEffectiveLevel", "isEnabledFor"))
OUTSIDE = frozenset(("open", "input"))  # builtins that read from outside of this process
CLOCKS = frozenset(("now", "today", "utcnow"))  # methods of datetime that read the time
NEUTRAL = frozenset(
    (
        os.fspath,
        os.putenv,
        os.unsetenv,
        time.sleep,
        sys.exc_info,
        sys.intern,
        gc.collect,
        gc.enable,
        gc.disable,
    )
)
TRUSTED = frozenset((
    "numpy", "scipy", "cupy", "cupyx", "numba", "llvmlite", "tapegrad", "math", "cmath", "builtins",
    "itertools", "functools", "operator",
    "collections", "typing", "abc", "enum", "contextlib", "random", "warnings", "logging", "types", "weakref",
    "re", "_abc", "pandas",
    "_operator", "_functools", "_collections", "_collections_abc", "_weakref", "_weakrefset", "_warnings",
    "_contextvars", "_bisect",
    "_heapq", "_statistics", "_struct", "_json", "_random", "_string", "_sre", "_thread", "zlib", "binascii",
))  # fmt: skip  # packages whose code keeps no numbers that change, and reads what our code names
# attributes of this package's objects that hold the user's functions
OURS = ("f", "F", "of", "_parts", "trace", "missing", "vjp", "jvp", "cpu", "solver", "solve")
DRAWING = frozenset(("cupy.random",))  # random generators without a state to compare
MAKING = frozenset(("__init__", "__new__", "__post_init__"))  # called when the class is called
UNASKED = frozenset((
    "__doc__", "__module__", "__dict__", "__weakref__", "__qualname__", "__annotations__", "__slots__",
    "__firstlineno__", "__del__",
    "__static_attributes__", "__abstractmethods__", "__orig_bases__", "__parameters__",
    "__dataclass_fields__", "__dataclass_params__",
    "__match_args__", "__init_subclass__", "__set_name__", "__reduce__", "__reduce_ex__", "__getstate__",
    "__setstate__", "__copy__",
    "__deepcopy__", "__repr__", "__str__", "__format__", "__class_getitem__", "__dir__", "__sizeof__",
    "__replace__", "__annotate__",
    "__annotate_func__", "__annotations_cache__", "__type_params__", "__getnewargs__", "__getnewargs_ex__",
    "__subclasses__", POOL,
)) | MAKING  # fmt: skip  # members of a class that no syntax reads
OF_CLASSES = frozenset(("__dict__", "__weakref__"))  # descriptors of storage, not members
LIKE = (int, float, list, dict, set, type(iter(())), types.FunctionType, types.CoroutineType)
SYNTAX = frozenset([n for kind in LIKE for n in dir(kind) if n[:2] == "__"]).union((
    "__enter__", "__exit__", "__getattr__", "__delete__", "__set__", "__bytes__", "__complex__", "__matmul__",
    "__rmatmul__",
    "__imatmul__", "__array__", "__array_ufunc__", "__array_function__", "__instancecheck__", "__fspath__",
)) - UNASKED  # fmt: skip  # members that syntax reads from the class of an object


@functools.lru_cache(maxsize=4096)
def words(code: types.CodeType) -> frozenset:
    """Return the names that code uses, and its strings, which may be names for getattr."""
    found: set = set()
    for c in codes_in(code):
        found.update(c.co_names)
        for x in c.co_consts:
            # (keywords of calls and patterns)
            found.update([t for t in (x if isinstance(x, tuple) else (x,)) if isinstance(t, str)])
    return frozenset(found)


# operations that read a name -> by how many bits their number is shifted to give its place
GLOBALS = {
    dis.opmap.get("LOAD_GLOBAL"): 1,
    dis.opmap.get("LOAD_NAME"): 0,
    dis.opmap.get("LOAD_FROM_DICT_OR_GLOBALS"): 0,
}
ATTRIBUTES = {dis.opmap.get("LOAD_METHOD"): 0, dis.opmap["LOAD_ATTR"]: int(sys.version_info >= (3, 12))}
IMPORT = dis.opmap["IMPORT_NAME"]


@functools.lru_cache(maxsize=4096)
def outer_names(code: types.CodeType) -> tuple[dict, tuple]:
    """Return the globals that code looks up, each with the chains of attributes read from it, and the modules
    that it imports."""
    names: dict = {}
    modules: dict = {}
    for c in codes_in(code):
        chain: list = []  # the last global, and the attributes read from it so far
        for operation, number in instructions_of(c):
            if operation in ATTRIBUTES:
                if chain:
                    chain.append(c.co_names[number >> ATTRIBUTES[operation]])
                continue
            if chain:
                names.setdefault(chain[0], set()).add(tuple(chain[1:]))
                chain = []
            if operation in GLOBALS:
                chain = [c.co_names[number >> GLOBALS[operation]]]
            elif operation == IMPORT:
                modules[c.co_names[number]] = None
    return names, tuple(modules)


def module_root(module: Any) -> str:
    return module.partition(".")[0] if isinstance(module, str) else ""


def is_trusted(module: Any) -> bool:
    return is_foreign(module) and module_root(module) in TRUSTED


def is_closed(module: Any) -> bool:
    """Return whether a walk stops at this module without trusting it."""
    return (
        is_foreign(module)
        and module_root(module) not in TRUSTED
        and module_root(module) not in sys.stdlib_module_names
    )


def is_left(x: Any) -> bool:
    """Return whether this class belongs to a trusted package."""
    module = getattr(x, "__module__", None)
    return is_trusted(module) if isinstance(module, str) else module is not None


def globals_of(f: types.FunctionType) -> dict:
    """Return the globals of f; for a function that a shadow rebuilt, those of the user's module."""
    return getattr(f.__globals__, "real", f.__globals__)


def codes_of(x: Any) -> list:
    """Return the code that a member of a class may run."""
    inner = [getattr(x, a, None) for a in ("__func__", "fget", "func", "__wrapped__")]
    return [v.__code__ for v in (x, *inner) if isinstance(v, types.FunctionType)]
