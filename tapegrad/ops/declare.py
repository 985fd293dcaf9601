"""`primitive` and `rules` declare an operation; `elementwise` declares a function of one library in one
statement, and `implements` a composition under a NumPy name.

    tanh = elementwise(np.tanh, lambda g, out, x: g * (1.0 - out * out), scalar="tanh")

    @primitive(np.sin)
    def sin(x): return xp_of(x).sin(x)
    rules(sin, lambda g, out, x: g * cos(x), jvp=same)

Arguments without a default are arrays. Arguments with a default, or after `*`, are settings. There is
a reverse rule for each array argument: (g, out, *arrays, *settings) returns the cotangent of that
argument. The forward rule `jvp(t, out, *arrays, *settings)` gets a tuple of tangents (None: constant).
Two common forward rules have names. `same` is for elementwise operations: the reverse rules also push
the tangent. `linear` is for operations linear in their one array: the operation is applied to the
tangent.

The code of a rule shows which values it reads, so no declaration can get this wrong. What the rules
read decides what a record keeps, and therefore what a later write must copy. `primitive` returns the
entry point of the operation, which binds. _dispatch.fast replaces its body by a faster one."""

import dis
import functools
import inspect
import operator
from types import FunctionType
from typing import Any

import numpy as np
import scipy

from .._core.arrays import NARROW, NUMBERS, TRUTHS, is_array, is_narrow, is_scalar, widened, xp_of
from .._core.bytecode import distinct_instructions
from .._core.errors import DeviceError
from .._core.foreign import operand
from .._core.primitive import Primitive, bind, layout_of, wide_operands
from .._core.registry import TABLES, late, load
from .._core.reverse import ShapeStandIn
from .._core.scope import OPEN, changed
from .._core.typing import AnyDict, AnyFunction, AnyTuple, Shape
from .._core.variable import DIRECT, HANDLES, Variable, View, bottom
from .layouts import laid_as_library

NUMPY: AnyDict = {}  # NumPy or SciPy function -> ours
PRIMITIVES: AnyDict = {}  # name -> entry point
COMPOSED: AnyDict = {}  # name -> composed function
TABLES.extend((NUMPY, PRIMITIVES, COMPOSED))
same, linear = object(), object()
CAST = NARROW | {"O"}  # codes of the arrays that are converted first
# for functions whose meaning differs in older releases
NUMPY_VERSION, SCIPY = (tuple([int(n) for n in m.__version__.split(".")[:2]]) for m in (np, scipy))


def coerced(b: Any, other: Any) -> Any:
    """Convert an operand that is not a Variable, an array of floats or int64, or a Python number."""
    if is_narrow(b, TRUTHS):
        b = widened(b, layout_of(other).dtype)
        if type(b) is np.ndarray and type(bottom(other)) is np.ndarray:
            return b
    if is_scalar(b):
        return b
    if isinstance(b, (list, tuple)):
        return late.stacked(b)
    b = operand(b)
    if is_array(b):
        if is_array(layout_of(other)) and xp_of(b) is not xp(other):
            raise DeviceError(
                "an operation met a NumPy and a CuPy array: move one of them with cupy.asarray(a) or a.get()"
            )
    return b


def paired(a: Any, b: Any) -> AnyTuple | None:
    """The operands of an operator; None if the reflected method of the other one must be tried."""
    if type(b) in HANDLES:
        a = operand_for(a, b)
    elif type(a) in HANDLES:
        b = operand_for(b, a)
    return None if a is NotImplemented or b is NotImplemented else (a, b)


def operand_for(a: Any, other: Any) -> Any:
    c = type(a)
    # in Python, the product of the two is a Python number
    if c is complex and type(bottom(other)) is np.float64:
        return np.complex128(a)
    if c in HANDLES or c in NUMBERS or (c is np.ndarray and a.dtype.char not in CAST):
        return a
    return coerced(a, other)


def shape(x: Any) -> AnyTuple:
    c = type(x)
    if c is np.ndarray or c is View or c is ShapeStandIn:
        return x.shape  # type: ignore[no-any-return]
    if c in DIRECT:
        x = x._value
        while isinstance(x, Variable):
            x = x._value
        return x.shape  # type: ignore[no-any-return]
    return getattr(x, "shape", ())


def dtype(x: Any) -> np.dtype:
    if type(x) is np.ndarray:
        return x.dtype  # type: ignore[no-any-return]
    if type(x) is not ShapeStandIn:
        x = layout_of(x)
    return x.dtype if getattr(x, "dtype", None) is not None else np.dtype(type(x))


def ndim(x: Any) -> int:
    return len(shape(x))


def axes_of(axis: Any, n: int) -> Shape:
    """The axes of an array with n axes as a tuple of numbers in range(n), given one or several as in
    NumPy. None: all."""
    if axis is None:
        return tuple(range(n))
    axes = tuple(
        [operator.index(k) for k in ((axis,) if hasattr(axis, "__index__") and not np.ndim(axis) else axis)]
    )
    for k in axes:
        if not -n <= k < n:
            raise np.exceptions.AxisError(k, n)
    axes = tuple([k % n for k in axes])
    if len(set(axes)) != len(axes):
        raise ValueError("an axis is repeated")
    return axes


def axis_of(axis: Any, n: int) -> int:
    """One axis as a number in range(n). Raises for a tuple."""
    return axes_of(operator.index(axis), n)[0]


def xp(x: Any) -> Any:
    """The library of x, which may be a Variable."""
    return xp_of(layout_of(x))


def narrow_operands(*ufuncs: Any) -> frozenset[str]:
    """The dtypes of operands in which rules cannot compute: integers of few bits, and truth values where
    the functions have no loop for them."""
    return NARROW if any(["?" in t for f in ufuncs for t in f.types]) or not ufuncs else TRUTHS


def with_wide_operands(ufunc: Any, f: AnyFunction) -> AnyFunction:
    """f, which stands for the ufunc, of operands in types in which it can compute."""
    codes = narrow_operands(ufunc)

    @functools.wraps(f)
    def run(*args: Any, **kwargs: Any) -> Any:
        args = wide_operands(args, codes) if any([is_narrow(a, codes) for a in args]) else args
        return f(*args, **kwargs)

    return run


def implements(*functions: AnyFunction, layout: str | None = None) -> Any:
    """Register the decorated composition of operations for these NumPy or SciPy functions.

    `layout` concerns the memory order of the results. "own": it already is NumPy's, for a view or the
    result of NumPy's own function. None: it is NumPy's if the operands are in C order; otherwise NumPy
    is asked (ops/layouts.py). "asked": NumPy is always asked."""

    def declare(f: Any) -> Any:
        if "<locals>" in f.__qualname__:  # made by another function
            f.__name__ = functions[0].__name__
        for function in functions:
            own = layout == "own" or hasattr(f, "writes")
            several = isinstance(function, np.ufunc) and function.nin > 1
            given = with_wide_operands(function, f) if several else f
            NUMPY[function] = given if own else laid_as_library(function, given, layout == "asked")
        COMPOSED[f.__name__] = f
        return f

    return declare


def takes_lists(f: Any) -> Any:
    """Declare that a composition tells lists of arrays from arrays, as code that is followed does."""
    f.takes_lists = True
    return f


class ComposedScalar:
    """An operation that is in a kernel what this function writes out: a few operations, which are simplified
    and differentiated as they stand there.  `value`: another function for its value alone."""

    def __init__(self, form: AnyFunction, value: AnyFunction | None = None):
        self.form, self.value = form, value or form


class GatedProduct(ComposedScalar):
    """The same, of a product with a cotangent that keeps it zero where it is zero: in kernels the sweep does
    so, where rules ask for it. `gates`: the number of operands for which it does.  The form may be the ufunc
    that does the same without a gate."""

    def __init__(self, form: AnyFunction, gates: int = 1):
        super().__init__(form)
        self.gates = gates


@functools.cache
def followed_code(f: AnyFunction) -> Any:
    return load("tapegrad._scipy.followed_functions").FOLLOWED.function(f)


def followed(f: AnyFunction, family: str) -> Any:
    """f on tracked values by its own Python code (`_scipy.followed`). `family`: the declaring module."""

    @functools.wraps(f)
    def run(*args: Any, **kwargs: Any) -> Any:
        if OPEN.depth:
            return followed_code(f)(*args, **kwargs)
        with changed(depth=1):  # arrays that the code makes can hold what a kernel traces
            return followed_code(f)(*args, **kwargs)

    run.__module__, run.__doc__ = family, None  # (the examples are the library's, not this module's)
    vars(run)["followed"] = functools.partial(followed_code, f)
    return run


def follow(family: str, *functions: AnyFunction) -> None:
    """Declare functions that NumPy has written in Python, whose own code is followed. It must pass all tests,
    and not be slow beside rules of its own."""
    for f in functions:
        implements(f, layout="own")(followed(f, family))


class Signature:
    """The parameters of a body: arrays first, then settings."""

    def __init__(self, run: Any) -> None:
        self.whole = inspect.signature(run)
        parameters = list(self.whole.parameters.values())
        self.varying = [p.name for p in parameters if p.kind is p.VAR_POSITIONAL]
        arrays = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty]
        self.arrays = [p.name for p in arrays]
        rest = [p for p in parameters if p not in arrays and p.kind is not p.VAR_POSITIONAL]
        self.settings = [p.name for p in rest]
        self.named = {p.name for p in rest if p.kind is p.KEYWORD_ONLY}
        self.defaults = tuple([p.default for p in rest if p.default is not p.empty])
        kind = inspect.Parameter.KEYWORD_ONLY if self.varying else inspect.Parameter.POSITIONAL_OR_KEYWORD
        first = [p for p in parameters if p not in rest]
        # the names of all arguments, if all are arrays
        self.names = () if self.varying or self.settings else self.arrays
        self.entry = inspect.Signature([*first, *[p.replace(kind=kind) for p in rest]])

    def split(self, args: AnyTuple, settings: AnyDict) -> AnyTuple:
        """The arrays and the settings by name, from a call of the entry point."""
        if len(args) == len(self.names) and not settings:
            return args, {}
        call = self.entry.bind(*args, **settings)
        call.apply_defaults()
        given = call.arguments
        arrays = [*[given[n] for n in self.arrays], *[a for n in self.varying for a in given[n]]]
        return arrays, {s: given[s] for s in self.settings}


signature_of = functools.cache(Signature)


# The globals of `bound`.
signature: Any
prim: Any
pair: bool


def bound(*args: Any, **settings: Any) -> Any:
    """The code of every entry point; each has globals of its own."""
    arrays, settings = signature.split(args, settings)  # noqa: F821
    if pair:  # noqa: F821
        arrays = paired(*arrays)
        if arrays is None:
            return NotImplemented
    return bind(prim, arrays, settings)  # noqa: F821


def primitive(
    *numpy: AnyFunction,
    shapes: Any = (),
    writes: bool = False,
    multi: int = 0,
    infix: str | None = None,
    holomorphic: bool = True,
    aliases: bool = False,
    batch: Any = None,
    scalar: Any = None,
    total: bool = False,
    external: bool = False,
    rough: Any = False,
    reduces: str | None = None,
    known_as: str | None = None,
    by_values: bool = False,
    prim: Any = None,
    layout: str = "own",
) -> Any:
    """Declare an operation.  `numpy`: the functions that it answers for.  `shapes`: inputs ("*": all) of
    which the rules read only the shape; that of a linear operation is known. `multi`: the number of
    outputs, if a tuple. `infix`: Python's operator for the same. `holomorphic`: on complex input the
    engine makes adjoints of the rules, which are written as transposes; else they do so themselves.
    `aliases`: what the body gives may share memory with an array that it gets, or be that array. `batch`:
    see `Primitive`; that of NumPy's ufuncs, and of what has the forward rule `same`, is known. `layout`:
    see `implements`.

    `scalar`: what the operation is in a kernel, for one number.  The name of an instruction (or (name, n),
    where it has the first n inputs only); or a function of the same parameters, written in NumPy's functions
    and operators (`numpy.where` for a choice), which gives the value, while the rules give the derivatives;
    or `ComposedScalar(function)`, of which the derivatives are those of what is written there.

    `total`: it gives a result for all numbers, as elementwise and linear operations and moves do: it
    neither raises nor warns of its own. `external`: it acts outside of the process, so that it is never
    left out, merged with another or moved. `rough`: kernels compute it less exactly than NumPy (a
    function of the settings, where they decide). `reduces`: it combines elements along axes: "add",
    "max", "min", or "products". `known_as`: the name that errors and graphs show. `by_values`: whether its
    result is complex depends on the values of real inputs."""

    def declare(run: Any) -> Any:
        if run.__name__ in PRIMITIVES:
            raise TypeError(f"there is an operation {run.__name__} already")
        p: Any = (
            Primitive(run.__name__, run, shapes, writes, multi, infix, holomorphic) if prim is None else prim
        )
        p.run, p.shapes, p.aliases, p.scalar, p.rough, p.reduces = (
            run,
            shapes,
            aliases,
            scalar,
            rough,
            reduces,
        )
        ufuncs = [f for f in numpy if isinstance(f, np.ufunc) and f.signature is None]
        p.ufunc = next((f for f in ufuncs if getattr(np, f.__name__, None) is f), None)
        p.batch = batch or ("elementwise" if ufuncs else None)
        p.narrow = narrow_operands(*ufuncs)
        p.declared, p.external, p.known_as, p.total = True, external, known_as or p.name, total
        p.by_values = by_values
        signature = signature_of(run)
        space = dict(
            __name__=__name__, prim=p, run=run, signature=signature, pair=False, bind=bind, paired=paired
        )
        entry: Any = FunctionType(bound.__code__, space, run.__name__)
        entry.prim, entry.__doc__, p.call, entry.__signature__ = p, run.__doc__, entry, signature.whole
        PRIMITIVES[p.name] = entry
        for function in numpy:
            NUMPY[function] = entry if layout == "own" else laid_as_library(function, entry, True)
        return entry

    return declare


def reads(rule: AnyFunction) -> list[bool]:
    """Which arguments does the code of the rule read? An argument that no rule reads is not kept, and a
    write need not copy it.

    An argument that inner functions read has another number there, too."""
    code = rule.__code__
    seen: set[int] = set()
    arguments = code.co_argcount + code.co_kwonlyargcount
    several = code.co_flags & inspect.CO_VARARGS
    for operation, number in distinct_instructions(code):
        if operation in PAIRS:
            seen.update((number >> 4, number & 15))
        elif operation in LOCALS:
            seen.add(number)
    named = [n in seen for n in range(arguments)]
    return named[: code.co_argcount] + [True] * bool(several) + named[code.co_argcount :]


LOCALS = {*dis.haslocal, *dis.hasfree}
# Python 3.13: two loads in one instruction
PAIRS = {dis.opmap[name] for name in dis.opmap if name.count("_FAST") == 2 and dis.opmap[name] in LOCALS}


def rules(entry: Any, *vjp: AnyFunction, jvp: Any, joint: AnyFunction | None = None) -> None:
    """Declare the derivatives of an operation. `joint`: one rule (g, out, need, *arrays, *settings) for
    all inputs instead of one each. It returns their cotangents as a tuple, with None where `need` is
    false."""
    prim = entry.prim
    signature = signature_of(prim.run)
    prim.joint, prim.vjp = (
        joint is not None,
        tuple([named_rule(r, prim) for r in (vjp if joint is None else (joint,))]),
    )
    prim.same, prim.linear = jvp is same, jvp is linear
    if prim.linear:
        prim.shapes = (0,)
    if prim.same and prim.batch is None:
        prim.batch = "elementwise"
    prim.keep_spec = _keep_spec(prim, bool(signature.varying))
    prim.jvp = _applied(entry) if jvp is linear else _pushed(prim.vjp) if jvp is same else jvp
    entry.__globals__["pair"] = is_operator(prim, signature)


# number of arguments -> the body that calls the function of a library
LIBRARY_CALLS: dict[int, AnyFunction] = {
    1: lambda f, own, of: lambda x: f(x) if (lib := of(x)) is own else getattr(lib, f.__name__)(x),
    2: lambda f, own, of: (
        lambda x, y: (
            f(x, y) if (lib := of(x if is_array(x) else y)) is own else getattr(lib, f.__name__)(x, y)
        )
    ),
    3: lambda f, own, of: (
        lambda x, y, z: (
            f(x, y, z)
            if (lib := of(x if is_array(x) else y if is_array(y) else z)) is own
            else getattr(lib, f.__name__)(x, y, z)
        )
    ),
}


def elementwise(f: Any, *vjp: AnyFunction, library: AnyFunction = xp_of, **words: Any) -> Any:
    """Declare the ufunc f with its reverse rules, which also push tangents.

    `library(x)` returns the library of an array x: a CuPy array gets CuPy's function of the same name.
    `words` are those of `primitive`. Without rules, a call of `rules` follows."""
    run = LIBRARY_CALLS[f.nin](f, library(None), library)
    run.__name__ = run.__qualname__ = f.__name__
    run.__code__ = run.__code__.replace(co_name=f.__name__)  # NumPy's warnings tell this name
    entry = primitive(f, **words)(run)
    if vjp:
        rules(entry, *vjp, jvp=same)
    return entry


def is_operator(prim: Primitive, signature: Signature) -> bool:
    """Are there two arrays, no settings, and one rule for each array?"""
    return len(signature.arrays) == 2 and not (
        signature.settings or signature.varying or prim.joint or prim.aliases or prim.multi or prim.writes
    )


def named_rule(rule: Any, prim: Primitive) -> Any:
    """The rule as a function of this primitive alone; a record finds its primitive through its rule."""
    if getattr(rule, "prim", prim) is not prim:
        defaults = rule.__kwdefaults__
        rule = FunctionType(
            rule.__code__, rule.__globals__, rule.__name__, rule.__defaults__, rule.__closure__
        )
        rule.__kwdefaults__ = defaults
    rule.prim = prim
    return rule


def _keep_spec(prim: Primitive, varying: bool) -> AnyFunction:
    """A function from the pattern of active inputs to (inputs that their rules read, do they read the
    output?)."""
    first = 3 if prim.joint else 2

    def spec(active: Any) -> Any:
        used = [reads(r) for r in prim.vjp]
        if prim.shapes == "*" or varying:
            return () if prim.shapes == "*" else tuple(range(len(active))), any(u[1] for u in used)
        on = used if prim.joint else [u for u, a in zip(used, active, strict=True) if a]
        inputs = [i for i in range(len(active)) if i not in prim.shapes and any(u[first + i] for u in on)]
        return tuple(inputs), any(u[1] for u in on)

    return spec


def sum_of_given(terms: Any) -> Any:
    """The sum of the terms that are not None; None if there are none."""
    total = None
    for c in terms:
        if c is not None:
            total = c if total is None else total + c
    return total


def _applied(entry: AnyFunction) -> AnyFunction:
    return lambda t, out, x, *settings, **params: entry(t[0], *settings, **params)


def _pushed(vjp: AnyTuple) -> AnyFunction:
    """The forward rule of an elementwise operation: its Jacobian is diagonal, and so its own transpose."""

    def jvp(t: Any, out: Any, *args: Any, **settings: Any) -> Any:
        total = None
        for d, rule in zip(t, vjp, strict=True):
            if d is not None:
                c = rule(d if shape(d) == shape(out) else late.widened(d, out), out, *args, **settings)
                total = c if total is None else total if c is None else total + c
        return total

    return jvp
