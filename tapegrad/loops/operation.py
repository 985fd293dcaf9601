"""A loop program as an operation, with derivatives of every order, and the call of a function of Numba's."""

import dis
import functools
import inspect
import weakref
from collections.abc import Callable

import numpy as np

from .._core.arrays import is_array, may_share_memory, xp_of
from .._core.primitive import Primitive, bind, holds_variable, layout_of, values_of
from .._core.registry import load
from .._core.reverse import Tape
from .._core.scope import OPEN
from .._core.trees import tree_map
from .._core.variable import Variable
from ..ops.declare import dtype, shape
from ..ops.indexing.overlaps import answered
from .adjoint import adjoint, checkpoints, resumed_adjoint
from .machine import code_of
from .numba_device import AXES, SIZES, launch_sizes
from .numba_ir import is_device_kernel, type_of_array, type_of_object, type_of_scalar, type_of_tuple
from .numba_program import NumbaProgram
from .program import (
    DTYPES,
    FLOATS,
    LoopProgram,
    LoopRefused,
    Scalar,
    type_of_elements,
    type_of_number,
    verified,
    written,
)
from .reference import interpreted
from .tangent import tangent
from .views import Known, TupleMembers

CHECKPOINTED_BYTES = 2**16  # of arrays, from which on a tape keeps the states of a program's loops


class LoopOperation:
    """A program as a primitive; its results are a tuple."""

    def __init__(self, p: LoopProgram):
        self.p = p
        # of a program with checkpoints: the operation without them, and the numbers of the active arguments
        self.origin: tuple[LoopOperation, tuple] | None = None
        self.written = written(p)
        self.count = len(p.outs) + len(p.body.yields)
        prim = self.prim = Primitive(p.name, self.run, multi=self.count)
        prim.holomorphic, prim.joint = False, True
        prim.keep_spec = lambda active: (tuple(range(len(active))), False)
        prim.vjp, prim.jvp = (self.pull,), self.push

    def __call__(self, *args) -> tuple:
        made = self.with_checkpoints(args)
        if made is None:
            return bind(self.prim, args, {})
        found, n = bind(made.prim, args, {}), len(self.p.outs)
        return (*found[:n], *found[n + len(made.p.derived["kept"]) :])

    def with_checkpoints(self, args) -> "LoopOperation | None":
        """What runs in place of this operation if a tape alone records it, and its loops take long."""
        tracked = [isinstance(x, Variable) and x._trace is not None for x in args]
        active = [x for x, yes in zip(args, tracked, strict=True) if yes]
        if (
            len({x._trace for x in active}) != 1
            or not isinstance(active[0]._trace, Tape)
            or self.p.launch is not None
        ):
            return None
        size = sum([getattr(layout_of(x), "nbytes", 0) for x in args])
        if size < CHECKPOINTED_BYTES or any(isinstance(x._value, Variable) for x in active):
            return None
        wrt = tuple([k for k, yes in enumerate(tracked) if yes])
        made = self.derived(checkpoints, wrt)
        if made.p.derived["lengths"] is None:
            return None
        made.origin = self, wrt
        made.prim.keep_spec = lambda active: (tuple(range(len(active))), True)
        return made

    def run(self, *args) -> tuple:
        given = []
        for q, x in zip(self.p.params, args, strict="kept" not in self.p.derived):
            if isinstance(q, Scalar):
                given.append(x.item() if hasattr(x, "item") else x)
            else:
                make = np.array if q in self.written else np.asarray
                given.append(make(x, DTYPES[q.type], order="C"))
        if "kept" in self.p.derived:
            lengths = iter(code_of(self.p.derived["lengths"])(given))
            for a in self.p.derived["kept"]:
                given.append(np.empty([next(lengths) for _ in a.shape], DTYPES[a.type]))
        return tuple(code_of(self.p)(given))

    def derived(self, make: Callable, wrt: tuple) -> "LoopOperation":
        key = make.__name__, wrt
        if key not in self.p.derived:
            self.p.derived[key] = type(self)(verified(make(self.p, wrt)))
        return self.p.derived[key]

    def push(self, t, out, *args) -> tuple:
        p = self.p
        made = self.derived(tangent, tuple([k for k, d in enumerate(t) if d is not None]))
        shadows = [
            d if d is not None else zeros(q, x)
            for q, x, d in zip(p.params, args, t, strict=True)
            if q in made.p.derived["shadows"]
        ]
        scalars = [d for q, d in zip(p.params, t, strict=True) if isinstance(q, Scalar) and d is not None]
        got = iter(made(*args, *shadows, *scalars)) if made.count else iter(())
        active = made.p.derived["shadows"]
        tangents = [next(got) if a in active else None for a in p.outs]
        tangents += [next(got) if y.type in FLOATS else None for y in p.body.yields]
        return tuple(
            [
                xp_of(layout_of(o)).zeros(shape(o), dtype(o)) if d is None else d
                for d, o in zip(tangents, out, strict=True)
            ]
        )

    def pull(self, g, out, need, *args) -> tuple:
        wrt = tuple([k for k, yes in enumerate(need) if yes])
        g = list(g) if isinstance(g, (list, tuple)) else [g]
        if self.origin is None:
            return self.pulled(self.derived(adjoint, wrt), wrt, g, args, ())
        of, planned = self.origin
        n = len(of.p.outs)
        past = n + len(self.p.derived["kept"])
        g, kept = [*g[:n], *g[past:]], out[n:past]
        made = of.derived(resumed_adjoint, wrt) if wrt == planned else of.derived(adjoint, wrt)
        return of.pulled(made, wrt, g, args, kept if wrt == planned else ())

    def pulled(self, made: "LoopOperation", wrt: tuple, g: list, args: tuple, kept) -> tuple:
        """The cotangents of the arguments, by an adjoint program that takes what was kept."""
        p = self.p
        bars: dict = dict(zip(p.outs, g, strict=False))
        rest = g[len(p.outs) :]
        shadows = made.p.derived["shadows"]
        seeds = [
            zeros(q, x) if bars.get(q) is None else bars[q]
            for q, x in zip(p.params, args, strict=True)
            if q in shadows
        ]
        seeds += [
            0.0 if c is None else c for y, c in zip(p.body.yields, rest, strict=True) if y.type in FLOATS
        ]
        got = iter(made(*args, *kept, *seeds))
        found: dict = {k: next(got) for k in sorted(wrt, key=lambda k: isinstance(p.params[k], Scalar))}
        return tuple([found.get(k) for k in range(len(args))])


def operation_on(device: bool) -> type[LoopOperation]:
    """The class of operations on arrays of this place."""
    return load("tapegrad.loops.cuda_c.thread_operation").ThreadOperation if device else LoopOperation


def zeros(q, x):
    return xp_of(layout_of(x)).zeros(shape(x), DTYPES[q.type])


# --- calls of functions of Numba's ---


@functools.cache
def loops_in(code) -> bool:
    """Is there a loop in this code?  Straight code is followed as Python."""
    return any("BACKWARD" in i.opname for i in dis.get_instructions(code))


class LoopArguments:
    """The arguments of a call: the arrays and numbers in them, each once, with names and kinds."""

    def __init__(self, names, args):
        self.leaves = []  # the kind of a number, or (kind, number of axes) of an array
        self.values: list = []
        self.names: list[str] = []
        self.on_device = False
        # for each argument a number of `values`, a tuple, or a fixed object
        self.forms = tuple(map(self.form, args, names))
        self.key = tuple(self.leaves), self.forms, self.on_device

    @property
    def types(self) -> tuple:
        """The arguments' types in Numba."""

        def of(form):
            if isinstance(form, tuple):
                return type_of_tuple([of(f) for f in form])
            if isinstance(form, Fixed):
                return form.type
            leaf = self.leaves[form]
            return type_of_scalar(leaf) if isinstance(leaf, str) else type_of_array(*leaf)

        return tuple(map(of, self.forms))

    def form(self, x, name: str):
        if type(x) is tuple:
            return tuple([self.form(y, name) for y in x])
        look = layout_of(x)
        if is_array(look):
            self.on_device |= xp_of(look) is not np
            at = next((k for k, v in enumerate(self.values) if v is x), None)
            kind = type_of_elements(look.dtype)
            if kind is None:
                raise LoopRefused(f"an array of dtype {look.dtype}")
            return self.add((kind, look.ndim), x, name) if at is None else at
        kind = type_of_number(look)
        return Fixed(x) if kind is None else self.add(kind, x, name)

    def add(self, leaf, x, name: str) -> int:
        self.leaves.append(leaf)
        self.names.append(name)
        self.values.append(x)
        return len(self.values) - 1

    def objects(self, made: list) -> list:
        """The arguments of the function, from the objects for `values`."""

        def build(form):
            if isinstance(form, tuple):
                return TupleMembers(tuple([build(f) for f in form]))
            return Known(form.object) if isinstance(form, Fixed) else made[form]

        return [build(form) for form in self.forms]


class Fixed:
    """An argument that is part of the program."""

    def __init__(self, x):
        self.object, self.type = x, None if holds_variable((x,)) else type_of_object(x)
        if self.type is None:
            raise LoopRefused(f"an argument of type {type(x).__name__}")

    def __eq__(self, other) -> bool:
        if not isinstance(other, Fixed):
            return False
        x, y = self.object, other.object
        return x is y or (isinstance(x, str) and isinstance(y, str) and type(x) is type(y) and x == y)

    def __hash__(self) -> int:
        return hash(self.object) if isinstance(self.object, str) else id(self.object)


class NumbaFunction:
    """The programs of a function of Numba's, one for each kind of arguments."""

    def __init__(self, dispatcher, device: bool = False):
        func = dispatcher.py_func
        self.dispatcher = weakref.ref(dispatcher)  # which holds the key under which this is found
        self.device, self.signature = device, inspect.signature(func)
        params = self.signature.parameters.values()
        self.names = [q.name for q in params if q.kind is q.POSITIONAL_OR_KEYWORD]
        self.is_plain = len(self.names) == len(params)
        self.programs = {}

    def program(self, func, given: LoopArguments) -> tuple[NumbaProgram, LoopOperation | None]:
        """(program, its operation); the text of a refusal is kept."""
        found = self.programs.get(given.key)
        if found is None:
            try:
                made = NumbaProgram(func, given, self.device, given.on_device)
                some = made.program.outs or made.program.body.yields
                found = made, operation_on(given.on_device)(made.program) if some else None
            except LoopRefused as error:
                found = str(error)
            except (
                AttributeError,
                LookupError,
                TypeError,
                ValueError,
                RecursionError,
            ) as error:  # unknown to the front end
                found = f"{func.__name__} has no loop program ({type(error).__name__}: {error})"
            self.programs[given.key] = found
        if isinstance(found, str):
            raise LoopRefused(found)
        return found

    def arguments(self, args: tuple, kwargs: dict, sizes=()) -> LoopArguments:
        if self.is_plain and len(args) == len(self.names) and not kwargs:
            given = LoopArguments(self.names, args)
        else:
            bound = self.signature.bind(*args, **kwargs)
            bound.apply_defaults()
            given = LoopArguments(bound.arguments, bound.arguments.values())
        if given.on_device and not self.device:
            raise LoopRefused("an array on a device for a function that runs on the CPU")
        for k, n in enumerate(sizes):
            given.add("i8", n, f"{SIZES[k // 3]}_{AXES[k % 3]}")
        return given

    def __call__(self, func, args: tuple, kwargs: dict, sizes=()):
        given = self.arguments(args, kwargs, sizes)
        made, operation = self.program(func, given)
        if made.raises:
            self.run_plainly(args, kwargs)
        self.check(made, given.values)
        values = [*given.values, *made.constants]
        if made.shapes is not None:
            values += self.new_arrays(made, values)
        results = operation(*values) if operation is not None else ()
        outs = dict(zip(made.program.outs, results, strict=False))
        for k in made.targets:
            given.values[k][...] = outs[made.params[k]]
        return self.result(made, made.result, given.values, outs, results[len(outs) :])

    def run_plainly(self, args: tuple, kwargs: dict) -> None:
        """Numba's own function runs on copies of the values, and raises what it raises."""
        dispatcher = self.dispatcher()
        if OPEN.hiding or dispatcher is None:
            raise LoopRefused("an exception that may be raised, where values are hidden")

        def copied(x):
            return np.array(values_of(x)) if is_array(layout_of(x)) else values_of(x)

        args, kwargs = tree_map(copied, (args, kwargs))
        dispatcher(*args, **kwargs)

    def check(self, made, values: list) -> None:
        """Arrays that the program writes must not overlap with others; some must have one shape."""
        for j, k in made.apart:
            if overlap(values[j], values[k]):
                raise LoopRefused("an array that is written overlaps with another argument")
        if any(
            not np.array_equal(x, then, equal_nan=True)
            for x, then in zip(made.constants, made.frozen, strict=True)
        ):
            raise LoopRefused("a global array was changed since the function was first called")
        for k in made.targets:
            x = values[k]
            if isinstance(x, np.ndarray) and not x.flags.writeable:
                raise LoopRefused("an array that is written is read-only")
            if made.params[k].type == "i8" and dtype(x).itemsize < 8:
                raise LoopRefused(f"an array of {dtype(x)} that is written: use int64")
        if any(len({shape(values[k]) for k in group}) > 1 for group in made.alike):
            raise LoopRefused("a name stands for arrays of different shapes")

    def new_arrays(self, made, values: list) -> list[np.ndarray]:
        """Zeros for the arrays that the function makes and returns."""
        p = made.shapes
        used = [
            values_of(x) if isinstance(q, Scalar) or q.type in ("i8", "b1") else layout_of(x)
            for q, x in zip(p.params, values, strict=False)
        ]
        lengths = iter(interpreted(p, [*used, *[np.zeros([0] * len(s)) for _, s in made.returned]]))
        return [np.zeros([next(lengths) for _ in s], DTYPES[a.type]) for a, s in made.returned]

    def result(self, made, form, values: list, outs: dict, yields):
        if form is None:
            return None
        if form[:1] == ("yield",):
            return yields[form[1]]
        if form[:1] == ("array",):
            return values[form[1]]
        if form[:1] == ("new",):
            return outs[made.returned[form[1]][0]]
        if form[:1] == ("either",):
            return self.result(made, form[1][int(yields[form[2]])], values, outs, yields)
        return tuple([self.result(made, f, values, outs, yields) for f in form])


def overlap(x, y) -> bool:
    return answered(lambda a, b, _: may_share_memory(a, b), x, y, 0)


FUNCTIONS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # Python function -> its programs


def programs_of(d) -> NumbaFunction:
    """The programs of a function or kernel that Numba compiles."""
    known = FUNCTIONS.get(d.py_func)
    if known is None:
        known = FUNCTIONS[d.py_func] = NumbaFunction(d, is_device_kernel(d))
    return known


def call_numba(d, args: tuple, kwargs: dict, follow: Callable):
    """Call a function of Numba's with tracked values: as a loop program, or followed as Python."""
    if not loops_in(d.py_func.__code__):
        return follow()
    try:
        return programs_of(d)(d.py_func, args, kwargs)
    except LoopRefused:
        return follow()


class DeviceKernel:
    """A kernel of numba.cuda in followed code: kernel[blocks, threads](...) as a loop program."""

    def __init__(self, d):
        self.kernel, self.__name__ = d, d.py_func.__name__

    def __getitem__(self, launch) -> Callable:
        sizes = launch_sizes(launch)
        return lambda *args: programs_of(self.kernel)(self.kernel.py_func, args, {}, sizes)

    def __call__(self, *args) -> None:
        raise LoopRefused(f"{self.__name__} is a kernel: launch it as {self.__name__}[blocks, threads](...)")

    def forall(self, count: int, tpb: int = 0, stream=0, sharedmem: int = 0) -> Callable:
        threads = tpb or 128
        return self[-(-count // threads), threads]
