"""The loop program of a function of Numba's: its parameters, its results, and names that stand for several
arrays."""

import itertools

from .numba_calls import CallFrame
from .numba_device import AXES, SIZES, KernelFrame
from .numba_front import FunctionSource, whole
from .numba_ir import TypedFunction
from .program import (
    Block,
    LoopArray,
    LoopProgram,
    LoopRefused,
    Scalar,
    duplicate,
    pruned,
    verified,
    written,
)
from .views import ArrayView, Known, TupleMembers
from .writer import Rebound


class NumbaProgram:
    """The program of a function of Numba's for these types of arguments.

    `params` are the program's parameters for each argument, in order; `result` says what it returns; `alike`
    lists arrays that must have one shape, `targets` those that are written, `apart` pairs that must not
    overlap: numbers of parameters.  `raises`: exceptions are left out of the program, so Numba's own
    function is to run first."""

    def __init__(self, func, given, device: bool, of_thread: bool = False):
        self.of_thread = of_thread  # of a kernel: the program tells what one thread does
        typed = TypedFunction(func, given.types, device)
        classes: tuple = ()
        for _ in range(8):
            try:
                self.build(typed, given, classes)
                return
            except Rebound as error:
                found = frozenset(error.args[0])
                classes = (
                    *[c for c in classes if not c & found],
                    found.union(*[c for c in classes if c & found]),
                )
        raise LoopRefused(f"{func.__name__}: its names stand for too many arrays")

    def build(self, typed: TypedFunction, given, classes: tuple) -> None:
        """The leaves of the arguments are kinds, or (kind, number of axes)."""
        source = FunctionSource(classes, self.of_thread)
        w, objects, copies = source.w, [], []
        self.params: list = []
        for k, (leaf, name) in enumerate(zip(given.leaves, given.names, strict=True)):
            if isinstance(leaf, str):
                self.params.append(Scalar(leaf, name))
                objects.append(self.params[-1])
                continue
            a = LoopArray(leaf[0], [Scalar("i8") for _ in range(leaf[1])], name)
            self.params.append(a)
            source.ranges.least.update(dict.fromkeys(a.shape, 0))
            if source.class_of(k):
                view = source.layer(k, a.type, a.shape)
                w.copy(view.array, a, at=(view.parts[0],))
                copies.append((a, view))
                objects.append(view)
            else:
                objects.append(whole(a, frozenset((k,))))
        if typed.device:  # the last six numbers are the sizes of the launch
            names = [f"{size}.{axis}" for size in SIZES for axis in AXES]
            source.special.update(zip(names, objects[-6:], strict=True))
            source.ranges.least.update(dict.fromkeys(objects[-6:], 1))
        frame = (KernelFrame if typed.device else CallFrame)(source, typed, tuple(given.objects(objects)))
        result = frame.run()
        self.raises = source.raises
        for a, view in copies:
            w.copy(a, view.array, of=(view.parts[0],))
        self.alike = [
            [self.params.index(a) for a, v in copies if v.array is stacked]
            for stacked, _ in source.layers.values()
        ]
        if self.alike and self.of_thread:
            raise LoopRefused(f"{typed.name}: a name stands for several arrays on a device")
        self.yields: list[Scalar] = []
        self.returned: list[tuple[LoopArray, tuple]] = []
        self.views: list[ArrayView] = []  # what is returned as new arrays
        self.members = {stacked: list(of) for stacked, of in source.layers.values()}
        self.result = self.described(frame, result)
        w.block.yields = [*self.yields, *[n for _, shape in self.returned for n in shape]]
        body = w.resolve(w.block)
        self.constants = [x for _, x in source.constants]
        self.frozen = [x.copy() for x in self.constants]
        params = [*self.params, *[a for a, _ in source.constants], *[a for a, _ in self.returned]]
        count = len(self.yields)
        shapes = Block(body.statements, body.yields[count:])
        self.shapes = (
            pruned(verified(duplicate(LoopProgram(typed.name, params, shapes, [], typed.file))))
            if self.returned
            else None
        )
        body.yields = body.yields[:count]
        first = len(given.leaves) - 6 if self.of_thread else None
        self.program = LoopProgram(typed.name, params, body, [], typed.file, launch=first)
        made = written(self.program)
        self.program.outs = [a for a in self.program.arrays if a in made]
        self.program = verified(pruned(self.program))
        arrays = [k for k, q in enumerate(self.params) if isinstance(q, LoopArray)]
        self.targets = [k for k in arrays if self.params[k] in made]
        self.apart = [
            pair
            for pair in itertools.combinations(arrays, 2)
            if not made.isdisjoint([self.params[k] for k in pair])
        ]

    def described(self, frame: CallFrame, x):
        """What is returned: ("yield", number), ("array", number of the parameter), ("new", number), a tuple,
        None, or ("either", what each value of a yielded number stands for, number of the yield)."""
        match x:
            case None | Known(object=None):
                return None
            case Scalar():
                self.yields.append(x)
                return "yield", len(self.yields) - 1
            case TupleMembers():
                return tuple([self.described(frame, y) for y in x.items])
            case ArrayView() if x.array in self.params and x == whole(x.array, x.origins):
                return "array", self.params.index(x.array)
            case ArrayView() if x.array not in self.params:
                members = self.members.get(x.array, [])
                if not any(type(m) is int for m in members):
                    return self.new(frame, x)
                if x.parts[1:] == whole(x.array).parts[1:]:
                    self.yields.append(x.parts[0])
                    number = len(self.yields) - 1
                    new = self.new(frame, x) if any(type(m) is not int for m in members) else None
                    return "either", [("array", m) if type(m) is int else new for m in members], number
        raise frame.refuse("a result that is no number, no new array and no argument")

    def new(self, frame: CallFrame, x: ArrayView) -> tuple[str, int]:
        """A new array with what x holds, which no argument shares memory with."""
        if x not in self.views:
            if any(x.array is v.array for v in self.views):
                raise frame.refuse("results that may share memory")
            self.views.append(x)
            out = LoopArray(x.array.type, [Scalar("i8") for _ in x.shape], f"result{len(self.returned)}")
            frame.store(whole(out), Known(Ellipsis), x)
            self.returned.append((out, x.shape))
        return "new", self.views.index(x)
