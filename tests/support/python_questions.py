# ruff: noqa: B008, UP031
"""Questions that Python and NumPy may be asked about a value, most of them generated, and what a value
answers.

The judge is NumPy: a tracked value gives the answer of the plain value, or an error of the same class."""

import builtins
import collections.abc
import copy
import functools
import math
import numbers
import operator
import typing

import numpy as np

X = np.array([0.75, -1.5, 2.0])

# What a tracked value may stand for: made of the array x of float64.
STANDS = {
    "float64": lambda x: x[0] * 2,
    "float64, integral": lambda x: x[2] * 1.5,
    "float32": lambda x: x.astype(np.float32)[1],
    "float16": lambda x: x.astype(np.float16)[1],
    "longdouble": lambda x: x.astype(np.longdouble)[1],
    "complex128": lambda x: x[0] * (1 + 2j),
    "complex64": lambda x: (x * (1 + 2j)).astype(np.complex64)[2],
    "clongdouble": lambda x: (x * (1 + 2j)).astype(np.clongdouble)[2],
    "0-d array": lambda x: np.array(x[0]),
    "0-d view": lambda x: x[1:2].reshape(()),
    "0-d complex array": lambda x: np.array(x[0] * 1j),
    "array": lambda x: x * 2,
    "array of one": lambda x: x[:1] * 2,
    "view": lambda x: (x * 2)[1:],
    "float32 array": lambda x: x.astype(np.float32),
    "complex array": lambda x: x * (1 + 2j),
    "matrix": lambda x: np.outer(x, x),
    "transpose": lambda x: np.outer(x, x + 1).T,
    "empty": lambda x: x[:0],
}

ABSTRACT = [
    *[c for n, c in sorted(vars(collections.abc).items()) if isinstance(c, type) and n != "ByteString"],
    *[c for n, c in sorted(vars(numbers).items()) if isinstance(c, type) and issubclass(c, numbers.Number)],
    *[c for n, c in sorted(vars(typing).items()) if n.startswith("Supports")], typing.Iterable, typing.Sized,
    typing.Hashable,
    *[c for n, c in sorted(vars(builtins).items()) if isinstance(c, type) and not issubclass(c,
    BaseException)],
    *[c for n, c in sorted(vars(np).items()) if isinstance(c, type) and issubclass(c, (np.generic,
    np.ndarray))],
]  # fmt: skip
NAMES = sorted(
    {
        n
        for c in (
            np.ndarray,
            np.float64,
            np.float32,
            np.complex128,
            np.int64,
            float,
            complex,
            list,
            dict,
            str,
        )
        for n in dir(c)
    }
    | {
        "__array_struct__",
        "__buffer__",
        "__next__",
        "__reversed__",
        "to_numpy",
        "iloc",
        "get",
        "columns",
        "foo",
        "_private",
    }
)


def match(v):
    match v:
        case float():
            return "float"
        case np.floating():
            return "floating"
        case complex():
            return "complex"
        case int():
            return "int"
        case []:
            return "none"
        case [_, *_]:
            return "sequence"
        case {}:
            return "mapping"
        case np.ndarray():
            return "array"
    return "other"


@functools.singledispatch
def told(v):
    return "object"


told.register(float, lambda v: "float")
told.register(numbers.Number, lambda v: "number")
told.register(np.ndarray, lambda v: "array")
told.register(collections.abc.Sized, lambda v: "sized")


def unpack(v):
    first, *rest = v
    return len(rest)


def put(v, at, y):
    v = copy.copy(v)
    v[at] = y
    return v


def delete(v, at):
    v = copy.copy(v)
    del v[at]
    return v


def inplace(f):
    def run(v):
        w = v = copy.copy(v)
        w = f(w)
        return w is v, w

    return run


def lawful(v, other):
    """Does equality imply an equal hash?"""
    return (
        bool(v == other),
        hash(v) == hash(other),
        v in {other},
        other in {v},
        {other: "found"}.get(v),
        {v: "found"}.get(other),
    )


BUILTINS = {
    f.__name__: f
    for f in (
        abs, all, any, ascii, bin, bool, bytearray, bytes, callable, chr, complex, dict, enumerate, filter,
        float, frozenset, hash, hex,
        int, iter, len, list, map, max, min, next, oct, ord, range, reversed, round, set, slice, sorted, str,
        sum, tuple, zip, format,
        memoryview,
    )
}  # fmt: skip
CALLS = {
    "match": match, "singledispatch": told, "unpack": unpack, "star": lambda v: (lambda *a: len(a))(*v),
    "class": lambda v: v.__class__,
    "format .3f": lambda v: f"{v:.3f}", "format d": lambda v: f"{v:d}", "format s": lambda v: f"{v:s}",
    "%": lambda v: "%s" % (v,),
    "divmod": lambda v: divmod(v, 2.0), "rdivmod": lambda v: divmod(2.0, v), "pow": lambda v: pow(v, 2),
    "pow 3": lambda v: pow(v, 2, 3),
    "round 1": lambda v: round(v, 1), "index": operator.index, "length_hint": operator.length_hint,
    "call": lambda v: v(),
    "list index": lambda v: [1, 2, 3][v], "slice": lambda v: [1, 2, 3][:v], "repeat": lambda v: [1, 2] * v,
    "text repeat": lambda v: "a" * v,
    "copy": copy.copy, "deepcopy": copy.deepcopy, "is type": lambda v: isinstance(v, type),
    "bool of ==": lambda v: bool(v == v),
    "if": lambda v: 1 if v else 2, "not": lambda v: not v, "and": lambda v: v and 1,
    "with": lambda v: v.__enter__(),
    "set foo": lambda v: setattr(v, "foo", 1), "del foo": lambda v: delattr(v, "foo"),
    "get foo": lambda v: v.foo,
    "set shape": lambda v: setattr(copy.copy(v), "shape", (7, 5)),
    "set dtype": lambda v: setattr(copy.copy(v), "dtype", "U3"),
    "hash is None": lambda v: v.__hash__ is None, "iter is None": lambda v: getattr(v, "__iter__",
    None) is None,
    "is_integer": lambda v: v.is_integer(), "floor": math.floor, "ceil": math.ceil, "trunc": math.trunc,
    "hash law of itself": lambda v: lawful(v, v), "hash law of the plain number": lambda v: lawful(v,
    complex(np.asarray(plain(v))[()])),
    "hash law of float": lambda v: lawful(v, float(np.asarray(plain(v)).real[()])),
    "hash law of int": lambda v: lawful(v, 3),
    "set of two": lambda v: len({v, v + 0.0}), "dict": lambda v: {v: 1}[v + 0.0],
    "in list": lambda v: v in [v + 0.0], "in tuple": lambda v: 3.0 in (1, v),
    "count": lambda v: [v, 3.0].count(3.0), "list.index": lambda v: [1.0, v].index(v),
    **{f"{k!r} in": (lambda v, k=k: k in v) for k in (1.5, 3, "a", None)},
    **{f"[{k!r}]": (lambda v, k=k: v[k]) for k in (0, -1, 1, 7, (), ..., None, slice(None), slice(1), (0, 0),
    (0, 0, 0), "a", 1.5, True, [0], (..., None), (slice(None),) * 3)},
    **{f"[{k!r}] = ": (lambda v, k=k: put(v, k, 1.0)) for k in (0, 7, (), ..., slice(None), (0, 0, 0), "a",
    1.5)},
    **{f"[...] = {y!r}": (lambda v, y=y: put(v, ..., y)) for y in ([1.0] * 5, "a", None, [[1.0], [2.0, 3.0]],
    1j, {})},
    **{f"del [{k!r}]": (lambda v, k=k: delete(v, k)) for k in (0, ...)},
}  # fmt: skip
OPERANDS = (
    2,
    2.5,
    1j,
    True,
    "a",
    None,
    [1.0],
    [1.0, 2.0, 3.0, 4.0],
    {},
    (),
    np.float32(2),
    np.int64(3),
    np.ones(3),
    np.ones(4),
    np.array(2.0),
    object,
)
OPERATORS = "add sub mul truediv floordiv mod pow matmul lt le eq ne gt ge and_ or_ xor lshift rshift".split()
INPLACE = "iadd isub imul itruediv ifloordiv imod ipow imatmul iand ior ixor ilshift irshift".split()
for _op in OPERATORS:
    for _y in OPERANDS:
        CALLS[f"{_op} {_y!r}"] = lambda v, f=getattr(operator, _op), y=_y: f(v, y)
        CALLS[f"{_op} {_y!r} reflected"] = lambda v, f=getattr(operator, _op), y=_y: f(y, v)
for _op in INPLACE:
    for _y in (2, 2.5, 1j, "a", np.ones(4), np.float32(2)):
        CALLS[f"{_op} {_y!r}"] = inplace(lambda v, f=getattr(operator, _op), y=_y: f(v, y))
for _op in "neg pos abs inv".split():
    CALLS[_op] = getattr(operator, _op)
SPECIAL = [
    n
    for n in NAMES
    if n.startswith("__") and n not in dir(object) and "array" not in n and n != "__class_getitem__"
]
for _name in SPECIAL:
    for _args in ((), (2,)):
        if not (
            _name.startswith("__i")
            and _name[3:-2] in "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
        ):
            CALLS[f"{_name}{_args}"] = lambda v, n=_name, a=_args: getattr(v, n)(*a)
for _name in "flat T mT real imag base size ndim itemsize nbytes shape strides dtype flags device".split():
    CALLS["." + _name] = lambda v, n=_name: getattr(v, n)
for _op in ("eq", "ne", "lt", "ge"):
    CALLS[f"flat {_op}"] = lambda v, f=getattr(operator, _op): f(v.flat, 1.5)


def plain(v):
    """The number that v stands for, for its comparison with itself."""
    return VALUE(v)


VALUE = None  # tapegrad.value, given by the test: plain values pass through


def misuses():
    """(name, call) of calls that NumPy refuses, for some values at least."""
    wrong = {
        "axis=7": dict(axis=7), "axis=-8": dict(axis=-8), "axis='a'": dict(axis="a"),
        "axis=1.5": dict(axis=1.5), "axis=(0, 0)": dict(axis=(0, 0)),
        "axis=None": dict(axis=None), "foo=1": dict(foo=1), "dtype='U3'": dict(dtype="U3"),
        "dtype='nonsense'": dict(dtype="nonsense"),
    }  # fmt: skip
    reductions = "sum prod mean std var max min argmax argmin cumsum cumprod all any ptp sort argsort squeeze repeat take".split()
    functions = (
        reductions
        + "median average nansum nanmax diff flip roll unwrap gradient trapezoid expand_dims stack "
        "concatenate".split()
    )
    for f in functions:
        for w, options in wrong.items():
            yield f"np.{f}({w})", lambda v, f=f, o=options: getattr(np, f)(v, **o)
            if f in reductions:
                yield f".{f}({w})", lambda v, f=f, o=options: getattr(v, f)(**o)
    given = {
        "reshape": [((7, 5),), ("a",), (1.5,), ((-1, -1),), ((-2,),)], "transpose": [((0, 0),), ((0, 1, 2, 3),
        ), ("a",), ((5,),)],
        "swapaxes": [(0, 7), (0,), ("a", 0)], "moveaxis": [(0, 7), (0, (0, 1)), (7, 0)], "take": [(9,), ("a",
        ), ([0, 9],), (1.5,)],
        "repeat": [(-1,), ([1, 2, 3, 4, 5],), ("a",)], "broadcast_to": [((2, 7),), ((-1,),), ("a",)],
        "dot": [(np.ones(4),), ("a",), (None,)],
        "matmul": [(np.ones(4),), (2.0,), ("a",)], "add": [(np.ones(4),), ("a",), (None,), ({},)],
        "concatenate": [(9,), ("a",)],
        "clip": [(np.ones(4), None), ("a", "b"), ()], "split": [(7,), ("a",), (0,)], "array_split": [(0,),
        (-1,)], "tile": [("a",), ((-1,),)],
        "where": [(np.ones(4),), (np.ones(4), 1.0)], "interp": [(np.ones(2), np.ones(3)), (np.ones(0),
        np.ones(0))], "pad": [("a",), ((1, 2, 3),), (-1,)],
        "diagonal": [(0, 0, 0), (0, 0, 7), ("a",)], "trace": [(0, 0, 0), (0, 0, 7)], "searchsorted": [("a",),
        (np.ones((2, 2)),)], "outer": [("a",)],
        "cross": [(np.ones(5),), (np.ones(3),)], "kron": [("a",)], "insert": [(9, 1.0), ("a", 1.0)],
        "delete": [(9,), ("a",)], "roll": [("a",), (1, 7)],
        "rot90": [(1, (0, 0)), (1, (0, 5))], "percentile": [(101,), (-1,), ("a",)], "quantile": [(2.0,)],
        "polyval": [("a",)], "tensordot": [(np.ones(4), 1), (1.0, 9)],
        "einsum": [("ij,jk",), ("ijklm->i",), ("i",)], "linalg.solve": [(np.ones(5),), ("a",)],
        "linalg.norm": [("a",), (2, 7), (99,)], "linalg.inv": [()],
        "linalg.det": [()], "linalg.cholesky": [()], "linalg.eigh": [()], "linalg.svd": [()], "vander": [("a",
        ), (-1,)], "convolve": [(np.ones(0),), (np.ones((2, 2)),)],
        "unravel_index": [((3,),)], "full_like": [("a",)], "zeros": [()], "arange": [()], "linspace": [(1.0,
        -1)], "expand_dims": [(9,), ((0, 0),)],
        "squeeze": [(0,), (9,), ("a",)], "astype": [("nonsense",)], "hstack": [()], "vstack": [()],
        "stack": [(9,)], "compress": [([True] * 9,)],
        "choose": [([1.0, 2.0],)], "put_along_axis": [([9], 1.0, 0)], "take_along_axis": [(np.array([9]), 0),
        (np.array([[0]]), 5)], "histogram": [(-1,), ("a",)],
        "digitize": [([1.0, 0.0, 2.0],)], "trapezoid": [(np.ones(9),)], "gradient": [(1.0, 2.0, 3.0)],
        "cov": [(np.ones(9),)], "corrcoef": [(np.ones(9),)],
        "fft.fft": [(-1,), (3, 7)], "ldexp": [(1.5,)], "sin": [("a", "b", "c"), ()], "argpartition": [(9,)],
        "partition": [(9,), ("a",)], "item": [(9,), ("a",)],
    }  # fmt: skip
    for f, tuples in given.items():
        g = operator.attrgetter(f)
        for args in tuples:
            if hasattr(np, f.partition(".")[0]):
                yield (
                    f"np.{f}{args!r}",
                    lambda v, g=g, a=args, f=f: g(np)(*((a[0], v) if f == "einsum" else (v, *a))),
                )
            if hasattr(np.ndarray, f):
                yield f".{f}{args!r}", lambda v, f=f, a=args: getattr(v, f)(*a)


def questions():
    """(name, question) of all."""
    for c in ABSTRACT:
        yield f"isinstance {c.__module__}.{getattr(c, '__name__', c)}", lambda v, c=c: isinstance(v, c)
    for n in NAMES:
        yield f"hasattr {n}", lambda v, n=n: hasattr(v, n)
    yield from BUILTINS.items()
    yield from CALLS.items()
    yield from misuses()
