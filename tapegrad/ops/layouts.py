"""The form of results, as in NumPy: memory order, dtype, and whether a result without axes is an array or
a number.

The memory order of y decides whether `y.reshape(-1)` is a view or a copy. A program that writes
through the result sees the difference. After `z = y`, `z += 1` changes y if it is a 0-d array, but not
if it is a number. An operation whose body is NumPy's own function has NumPy's form; a composition need
not. So NumPy's function is called once for each kind of call to learn the form. That happens if an
operand is not in C order or not float64, or if the result is a 0-d array. A result of another form is
copied (`ops.shaping.relaid`, an ordinary operation), cast, or taken out of its array."""

import functools
import sys
import warnings
from collections.abc import Callable

import numpy as np

from .._core.arrays import NUMBERS, copy_with_layout, is_array, packed_steps, room_laid, xp_of
from .._core.errors import Attempt
from .._core.registry import late
from .._core.variable import DIRECT, HANDLES, Variable, View, bottom

KNOWN: dict = {}  # a kind of call -> the forms of NumPy's results
NAMED = {str, type(None)}  # settings that equal no value of another type
FLOATS = {float, complex, np.float64, np.complex128}
UNUSUAL = frozenset("efFgG")  # floats of other sizes, which decide the result type of SciPy and NumPy
LAPACKS = ("scipy.linalg._decomp", "scipy.linalg._basic")  # modules whose results have LAPACK's types
LAPACK = {"e": np.dtype("f"), "g": np.dtype("d"), "G": np.dtype("D")}
SETTINGS = NUMBERS | FLOATS | {str, type(None), slice, type(Ellipsis), type, np.dtype, np.bool_, np.int64}


def laid_as_library(function: Callable, ours: Callable, always: bool) -> Callable:
    """`ours`, a composition of operations, with results in the form of `function`'s. `always`: check also
    for operands in C order, for which most compositions match NumPy already."""

    by_lapack = (getattr(function, "__module__", None) or "").startswith(LAPACKS)

    @functools.wraps(ours)
    def implemented(*args, **kwargs):
        if by_lapack:
            args = tuple([for_lapack(a) for a in args])
        y = ours(*args, **kwargs)
        c = type(y)
        if c in DIRECT:
            v = bottom(y)
            if is_array(v) and not v.ndim:
                return in_library_layout(y, function, args, kwargs)
        elif not issubclass(c, (tuple, list)):
            return y
        if always or not all_usual(args) or (kwargs and not all_usual(kwargs.values())):
            return in_library_layout(y, function, args, kwargs)
        return y

    return implemented


def for_lapack(x):
    """An array in the precision to which SciPy casts it: LAPACK has single and double."""
    d = getattr(late.shown(x) if isinstance(x, Variable) else x, "dtype", None)
    to = LAPACK.get(getattr(d, "char", ""))
    return x if to is None else late.astype(x, to=to) if isinstance(x, Variable) else x.astype(to)


def all_usual(xs) -> bool:
    """Are all arrays in xs, and in lists there, in C order, and is every dtype the usual one?"""
    for x in xs:
        c = type(x)
        if c is list or c is tuple:
            if not all_usual(x):
                return False
        elif c not in SETTINGS:
            x = late.shown(x) if c is View else bottom(x) if c in HANDLES else x
            if is_array(x):
                if not x.flags.c_contiguous or x.dtype.char in UNUSUAL:
                    return False
            elif issubclass(type(x), np.generic) and x.dtype.char in UNUSUAL:
                return False
    return True


def in_library_layout(y, function: Callable, args: tuple, kwargs: dict):
    """The result y of a composition, or each member of it, in the form of the library's result."""
    # (`isinstance` would ask a Variable for its class)
    several = type(y) not in HANDLES and issubclass(type(y), (tuple, list))
    found = y if several else [y]
    members = [None if type(m) is View or not hasattr(v := bottom(m), "dtype") else v for m in found]
    given = []
    try:
        key = (
            function,
            layout_key(args, given),
            *[None if v is None else (v.shape, v.dtype.char) for v in members],
        )
        if kwargs:
            key = key, *kwargs, layout_key(tuple(kwargs.values()), given)
        known = KNOWN.get(key)
    except TypeError:  # an argument that may not be used twice
        return y
    if known is None:
        if len(KNOWN) > 999:
            KNOWN.clear()
        known = KNOWN[key] = library_layout(function, args, kwargs, given)
    if len(known) != len(members):
        return y
    found = [
        m if v is None or form is None else like(m, v, *form)
        for m, v, form in zip(found, members, known, strict=True)
    ]
    return found[0] if not several else type(y)(found) if type(y) in (tuple, list) else type(y)(*found)


def layout_key(x, given: list):
    """The part of an argument that decides the form of the result: the layout of arrays, which are
    appended to `given`. Raises TypeError for other objects than arrays and settings."""
    c = type(x)
    if c is tuple or c is list:
        return c, *[layout_key(e, given) for e in x]
    if c in NAMED or issubclass(c, type):  # (`float` of a followed function has a class of its own)
        return x
    if c in SETTINGS:
        return c, (x.start, x.stop, x.step) if c is slice else None if c in FLOATS else x
    if c is View:
        x = late.shown(x)
    elif c in HANDLES:
        x = bottom(x)
    if issubclass(type(x), np.generic):
        return type(x)
    if not is_array(x) or x.dtype.kind not in "biufc":
        raise TypeError
    given.append(x)
    return xp_of(x), x.shape, x.strides, x.dtype.char


def library_view(x, least: int):
    """x as the library takes it: a copy, because the library may overwrite it (`overwrite_a=True`). Hidden
    values are replaced by dummy values, from `least` upwards."""
    c = type(x)
    if c is tuple or c is list:
        return c([library_view(e, least) for e in x])
    if c in SETTINGS:
        return x
    if issubclass(c, Variable):
        x = late.shown(x)
    if type(x) is xp_of(x).ndarray:
        return copy_with_layout(x)
    return x if type(x).__module__ == "numpy" else stand_in(x, least)


def library_layout(function: Callable, args: tuple, kwargs: dict, given: list) -> list:
    """The forms (shape, strides, dtype; strides None: a number) of the library's results for such
    arguments. Empty if the library raises."""
    libraries = {xp_of(x) for x in given} or {np}
    f = function if libraries == {np} else device_function(function)
    for least in (0, 9):
        y = ()
        with Attempt() as tried:  # the dummy values may be refused
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                y = f(
                    *[library_view(a, least) for a in args],
                    **{k: library_view(v, least) for k, v in kwargs.items()},
                )
        if not tried.failed:
            break
    return [array_form(v) for v in (y if isinstance(y, (tuple, list)) else [y])]


def array_form(v) -> tuple | None:
    if is_array(v):
        return v.shape, v.strides, v.dtype
    return ((), None, v.dtype) if isinstance(v, np.generic) else None


def device_function(function: Callable):
    """CuPy's function of the same name, or None."""
    library, dot, rest = (getattr(function, "__module__", None) or "numpy").partition("._")[0].partition(".")
    # (ufuncs do not name their module)
    homes = [
        {"numpy": "cupy", "scipy": "cupyx.scipy"}.get(library, library) + dot + rest,
        "cupyx.scipy.special",
    ]
    found = [getattr(sys.modules.get(home), function.__name__, None) for home in homes]
    return found[0] or found[1]


def like(y, v, shape: tuple, strides: tuple | None, dtype: np.dtype):
    """y, whose value is v, copied or cast to this form."""
    if shape != v.shape:
        return y
    if v.dtype != dtype and v.dtype.kind == dtype.kind and dtype.kind in "fc" and type(y) in HANDLES:
        y = late.astype(y, to=dtype)
        v = bottom(y)
    if not shape:
        return (
            y
            if type(y) not in HANDLES or is_array(v) is (strides is not None)
            else y[()]
            if strides is None
            else late.array_of(y)
        )
    size = v.dtype.itemsize
    if strides is not None and dtype.itemsize != size:
        strides = tuple([s * size // dtype.itemsize for s in strides])
    if v.strides == strides or packed_steps(shape, v.strides, size, True) == packed_steps(
        shape, strides, size, True
    ):
        return y
    return late.relaid(y, strides=strides)


def stand_in(x, least: int = 0):
    """Dummy values in the memory order of x: matrices that have an inverse and a root, and valid indices.
    `least` is added to floats."""
    if not is_array(x):
        return (
            x.dtype.type(least + 1 if x.dtype.kind in "fc" else 0) if issubclass(type(x), np.generic) else x
        )
    y = room_laid(xp_of(x), x.shape, x.strides, x.dtype, True)
    if x.dtype.kind not in "fc":
        y[...] = 0
    else:
        y[...] = least + (
            1 if x.ndim < 2 or 0 in y.strides[-2:] else xp_of(x).eye(*x.shape[-2:], dtype=x.dtype)
        )
        if y.size:  # all rows differ, except repeated ones
            once = y[tuple([slice(1) if stride == 0 else slice(None) for stride in y.strides])]
            once += xp_of(x).arange(once.size).reshape(once.shape).astype(y.real.dtype) * (0.01 / y.size)
    return y
