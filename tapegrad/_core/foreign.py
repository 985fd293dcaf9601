"""Objects of other libraries that meet tracked values: converted to numbers where possible, else an error
that names them.

`argument` handles arguments of functions. `operand` handles operands of operators and ufuncs; there
NumPy would also try the methods of a foreign operand. Types are known by name, so no other library is
imported."""

import itertools
from typing import Any

import numpy as np

from .arrays import NUMBERS, is_array, is_scalar, xp_of
from .errors import ArgumentError, is_library, stack
from .registry import late
from .trees import LEAVES, Const, leaves, paths
from .variable import HANDLES, PlainSubarray, Subarray

# Types without a further meaning as arguments or settings (except for object arrays): those of plain values,
# and of dtypes, of which each has its own;
SIMPLE = (
    NUMBERS
    | {np.ndarray, np.float64, np.int64, np.bool_, str, type(None), slice, type}
    | {type(np.dtype(code)) for code in np.typecodes["All"]}
)
ORDINARY = SIMPLE | HANDLES | {list, tuple}  # and those that may hold Variables
OBJECTS = np.dtype(object)
ARRAY_LIKE = ("__array__", "__array_interface__", "__cuda_array_interface__", "__dlpack__", "toarray")

# How to convert an array of another library to NumPy.
REMEDIES = {
    "torch": "t.detach().cpu().numpy()", "jax": "numpy.asarray(a)", "jaxlib": "numpy.asarray(a)",
    "tensorflow": "t.numpy()",
    "mxnet": "a.asnumpy()", "xarray": "a.to_numpy()", "polars": "s.to_numpy()", "pyarrow": "a.to_numpy()",
    "dask": "a.compute()",
    "astropy": "q.value", "sparse": "a.todense()", "pytensor": "a.eval()", "autograd": "a._value",
}  # fmt: skip
NEUTRAL = frozenset(
    "__new__ __init__ __array_finalize__ __module__ __qualname__ __doc__ __dict__ __weakref__ __slots__ "
    "__repr__ __str__ __reduce__ "
    "__setstate__ __getnewargs__ __firstlineno__ __static_attributes__ __annotations__ __del__".split()
)
# (the `__dict__` of a shadow class contains other names too)
OF_ARRAYS = frozenset(n for c in np.ndarray.__mro__ for n in c.__dict__)
ASKERS = {
    "pandas": "s.to_numpy() for a Series, and keep tracked values in arrays",
    "numpy.ma": "numpy.where(mask, a, b) instead of a masked array",
    "matplotlib": "ax.plot(tapegrad.value(x))",
}


def asked_by() -> str:
    """For an error message: the library that asked for a plain array, if tapegrad does not support it."""
    homes = [
        (frame.f_globals.get("__name__") or "") + "." for frame in itertools.takewhile(is_library, stack())
    ]
    found = [name for home in homes for name in ASKERS if home.startswith(name + ".")]
    return f" ({found[-1]} asked for it: write {ASKERS[found[-1]]})" if found else ""


def is_table(x: Any) -> bool:
    """Is x a series or a table of pandas, or of a class like these?"""
    return hasattr(type(x), "iloc") and hasattr(type(x), "to_numpy")


def library_of(kind: type) -> str:
    """The library of a class: that of its first base with a remedy, else its own."""
    roots = [(c.__module__ or "").partition(".")[0] for c in kind.__mro__]
    return next((r for r in roots if r in REMEDIES or r == "pandas"), roots[0])


def check_constants(what: str, tree: Any) -> None:
    """Raise if a constant leaf is an array or number of another library that holds floats; their
    derivative would be lost."""
    for x, path in zip(leaves(tree), paths(tree), strict=True):
        remedy = remedy_of(x)
        if remedy is not None:
            raise ArgumentError(
                f"{what}{f', at {path},' if path else ''} is of {full_name(type(x))}, whose numbers tapegrad "
                f"does not differentiate; pass {remedy}, or tapegrad.Const(x) where it is a constant"
            )


def remedy_of(x: Any) -> str | None:
    """How to convert x, if it holds floats outside NumPy's and CuPy's arrays and numbers. None if it
    holds no such floats."""
    kind = type(x)
    if kind is np.ndarray:
        held = x.dtype == OBJECTS and any(
            type(v) in LEAVES and not isinstance(v, int) or remedy_of(v) for v in x.flat
        )
        return "an array of floats, numpy.array([...])" if held else None
    if kind in ORDINARY or issubclass(kind, type) or is_scalar(x) or xp_of(x) is not np:
        return None
    if any(hasattr(kind, name) for name in ARRAY_LIKE):
        dtype = getattr(x, "dtype", None)
        dtypes = [dtype] if dtype is not None else getattr(x, "dtypes", None)
        if dtypes is None:
            dtypes = [np.asarray(x).dtype] if hasattr(kind, "__array__") else []
        if not any("float" in str(d).lower() or "complex" in str(d).lower() for d in dtypes):
            return None
        library = library_of(kind)
        known = (
            "x.to_numpy()"
            if library == "pandas"
            else "x.toarray()"
            if hasattr(kind, "toarray")
            else "numpy.asarray(x)"
        )
        return REMEDIES.get(library, known)
    number = (hasattr(kind, "__float__") or hasattr(kind, "__complex__")) and not hasattr(kind, "__index__")
    return "float(x)" if number else None


def name_in(home: Any, f: Any) -> str | None:
    """The public name of f in the module `home`, or None. `f.__name__` is only a hint: some objects of
    CuPy, and of SciPy before 1.16, have another name or none."""
    own: str | None = getattr(f, "__name__", None)
    if own is not None and getattr(home, own, None) is f:
        return own
    return next((name for name, x in vars(home).items() if x is f and not name.startswith("_")), None)


def full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def refuse_foreign(x: Any, remedy: str) -> ArgumentError:
    return ArgumentError(
        f"an object of type {full_name(type(x))} met a tracked value, which tapegrad cannot compute with; "
        f"write {remedy}"
    )


def argument(x: Any) -> Any:
    """An argument of a function: x itself, or the numbers that it holds. Raises an error with a remedy
    for other objects."""
    kind = type(x)
    if kind is np.ndarray:
        return numbers_of(x) if x.dtype.kind == "O" else x
    if kind in ORDINARY or is_scalar(x):
        return x
    if kind is Const:
        return argument(x.value)
    if issubclass(kind, (Subarray, PlainSubarray)):  # its class would be lost in silence
        raise refuse_foreign(x, "numpy.asarray(x), of a masked array x.filled(...)")
    if issubclass(kind, np.ndarray):
        return base_array(x)
    if xp_of(x) is not np:
        return x
    if hasattr(kind, "plain_elements"):  # elements chosen by a hidden mask
        return x.plain_elements()
    library = library_of(kind)
    if library == "pandas" and hasattr(x, "to_numpy"):
        return argument(x.to_numpy())
    if library in REMEDIES and (hasattr(x, "dtype") or hasattr(x, "__array__")):
        raise refuse_foreign(x, REMEDIES[library])
    if kind is range:
        return np.asarray(x)
    return argument(x.__array__()) if hasattr(kind, "__array__") else x


def as_array(x: Any) -> Any:
    """An argument that must be an array; a list becomes the array of its numbers."""
    return late.stacked(x) if isinstance(x, (list, tuple)) else argument(x)


def operand(x: Any) -> Any:
    """An operand of an operator: the result of `argument`, or NotImplemented if its own reflected method
    must be tried."""
    kind = type(x)
    if issubclass(kind, (Subarray, PlainSubarray)) or holds_objects(x):
        return NotImplemented
    if library_of(kind) == "pandas":  # a result has labels
        if is_table(x) or hasattr(kind, "array") or hasattr(kind, "_from_sequence"):  # (an index, a column)
            return NotImplemented
        raise refuse_foreign(x, "its .to_numpy()")
    theirs = library_of(kind) in REMEDIES and any(hasattr(kind, name) for name in ARRAY_LIKE)
    if is_scalar(x) or is_array(x) or kind is Const or theirs:
        return argument(x)
    if getattr(kind, "__array_ufunc__", x) is not x or getattr(kind, "__array_priority__", 0) > 0:
        return NotImplemented
    for number in (int, float, complex):
        if issubclass(kind, number):
            return number(x)
    return argument(x) if kind is range or hasattr(kind, "__array__") else NotImplemented


def has_reflected(y: Any, elementwise: bool) -> bool:
    """Is an operator left to y, whose reflected method may keep its operand?  `elementwise`: NumPy asks
    objects of any class for a truth value for each element."""
    kind = type(y)
    if kind in ORDINARY or kind.__module__ == "builtins" or is_scalar(y):
        return False
    if hasattr(kind, "__array_ufunc__"):
        return kind.__array_ufunc__ is None
    if getattr(kind, "__array_priority__", 0) > 0:
        return True
    return not elementwise and not any([hasattr(kind, name) for name in ARRAY_LIKE])


def numbers_of(x: np.ndarray) -> Any:
    """An object array of numbers, some of them tracked, as an array of numbers."""
    y = late.stacked(x.tolist()) if x.ndim else x[()]
    if getattr(y, "dtype", OBJECTS).kind not in "biufc":
        raise ArgumentError(
            f"an array of dtype object and shape {x.shape} met a tracked value, and not all of its elements "
            "are numbers; make an array of floats, numpy.array([...])"
        )
    return y


def holds_objects(x: Any) -> bool:
    """Is x an object array with elements that are no numbers, as arrays are?  NumPy computes with each by
    its own operators."""
    return (
        issubclass(type(x), np.ndarray)
        and x.dtype.kind == "O"
        and any([type(e) not in NUMBERS and np.ndim(e) > 0 for e in x.flat])
    )


def base_array(x: np.ndarray) -> np.ndarray:
    """A subclass of ndarray as a plain array, if the subclass has no behaviour of its own."""
    kind = type(x)
    if issubclass(kind, np.ma.MaskedArray):
        raise refuse_foreign(x, "x.filled(value) or numpy.where(mask, a, b): masks have no derivative here")
    if not issubclass(kind, np.memmap):
        for c in kind.__mro__[: kind.__mro__.index(np.ndarray)]:
            if own := [n for n in c.__dict__ if n not in NEUTRAL and n in OF_ARRAYS]:
                raise refuse_foreign(x, f"numpy.asarray(x), for {own[0]} of this class is not NumPy's")
    return numbers_of(np.asarray(x)) if x.dtype.kind == "O" else np.asarray(x)
