"""What a recording holds for: the arguments of the call, and what the function read from its surroundings."""

import pickle
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from .._capture.dependencies import Environment, Status, state
from .._capture.dependencies.walk import walk_with_names
from .._capture.objects import restore
from .._core.arrays import (
    IMMUTABLE,
    PLAIN_ARRAYS,
    checksum,
    copy_with_layout,
    is_array,
    is_scalar,
    mark_immutable,
    may_share_memory,
    memory_owner,
    room_like,
    xp_of,
)
from .._core.scope import OPEN
from .._core.trees import (
    Const,
    children,
    describe_tree,
    is_node,
    leaves,
)
from .._transforms.arguments import numpy_number
from .record.recorder import WEAK, is_single
from .tree_text import TreeText, node_signature

NUMBERS = (float, complex)
READ = "what the function reads from its surroundings (a number, a name, an attribute or a member of a container)"


def is_input(x, active: bool, numbers: bool):
    """Is this leaf of an argument an input of the program?  `numbers`: Python numbers too, as WEAK ones:
    beside arrays they count as less than an array's dtype.  (Where they are differentiated they are those of
    NumPy.)"""
    if is_array(x):
        return x.dtype.kind in "biufc" and (type(x) is np.ndarray or xp_of(x) is not np)
    if type(x) in NUMBERS:
        return True if active else WEAK if numbers else False
    return is_scalar(x) and x.dtype.kind in "fc"


def tree_of(x):
    """What two trees share that are alike."""
    return (node_signature(x), *[tree_of(c) for c in children(x)]) if is_node(x) else None


class Leaf:
    """What is asked of one leaf of the arguments.  `chosen`: is it an input?  `packed`: has it the strides of
    its copy?"""

    __slots__ = ("kind", "layout", "value", "chosen", "packed")

    def __init__(self, x, chosen: bool):
        self.kind, self.value, self.layout, self.chosen, self.packed = type(x), x, None, chosen, True
        if chosen:
            self.value = None
            if is_array(x):
                self.layout = x.shape, x.strides, x.dtype
                room = room_like(x) if x.flags.forc else copy_with_layout(x)
                self.packed = room.strides == x.strides

    def holds(self, x) -> bool:
        if type(x) is not self.kind:
            return False
        if self.layout is not None:
            return (x.shape, x.strides, x.dtype) == self.layout
        if self.value is None or x is self.value:
            return True
        if type(x) is Const:
            return x.value is self.value.value
        return (type(x) in IMMUTABLE or is_scalar(x)) and repr(x) == repr(self.value)

    def differs(self, x) -> str:
        return f"{described(x)} instead of {described(self.value) if self.layout is None else layout_text(*self.layout)}"


def layout_text(shape: tuple, strides: tuple, dtype) -> str:
    return f"an array of shape {shape}, {dtype}"


def described(x) -> str:
    if is_array(x):
        return layout_text(x.shape, x.strides, x.dtype)
    return repr(x) if type(x) in IMMUTABLE else describe_tree(x)


class CallSignature:
    """The arguments for which a program was recorded; `chosen` says of each leaf whether it is an input."""

    def __init__(self, args: tuple, active: tuple, numbers: bool):
        """`active`: for each argument, whether it is differentiated, or a direction; `numbers`: are Python
        numbers inputs?"""
        self.trees = tuple(map(tree_of, args))
        pairs = [(x, on) for a, on in zip(args, active, strict=True) for x in leaves(a)]
        self.chosen = [is_input(x, on, numbers) for x, on in pairs]
        self.weak = WEAK in self.chosen
        self.leaves = [Leaf(x, bool(chosen)) for (x, _), chosen in zip(pairs, self.chosen, strict=True)]
        counts = [n for n, a in enumerate(args) for _ in leaves(a)]
        # of each input the number of its argument
        self.owners = [n for n, chosen in zip(counts, self.chosen, strict=True) if chosen]
        self.static = [
            x
            for (x, _), chosen in zip(pairs, self.chosen, strict=True)
            if not chosen and type(x) is not Const
        ]

        self.values = self.reader(args)

    def reader(self, args: tuple) -> Callable:
        """Return ``values(args)``: the inputs of a call, None if it is another kind of call."""
        text, found = TreeText(), []
        names = text.take("args", args)
        for x, leaf in zip(names, self.leaves, strict=True):
            alike = f"{text.given(leaf)}.holds({x})"
            if leaf.layout is not None:
                kind, shape, strides, dtype = [text.given(v) for v in (leaf.kind, *leaf.layout)]
                alike = f"type({x}) is {kind} and {x}.shape == {shape} and {x}.strides == {strides}"
                alike += f" and {x}.dtype == {dtype}"
            text.lines.append(f"if not ({alike}): return None")
            if leaf.chosen and (leaf.layout is None or not leaf.packed):
                x = f"{text.given(numpy_number if leaf.layout is None else copy_with_layout)}({x})"
            found += [x] * leaf.chosen
        text.lines.append(f"return [{', '.join(found)}]")
        return text.function("args")

    def difference(self, args: tuple) -> str:
        """How a call differs from that which was recorded."""
        if len(args) != len(self.trees):
            return f"{len(args)} arguments instead of {len(self.trees)}"
        start = 0
        for n, (a, tree) in enumerate(zip(args, self.trees, strict=True)):
            flat = leaves(a)
            if tree_of(a) != tree:
                return f"argument {n} is {describe_tree(a)}, a tree of another form"
            for x, leaf in zip(flat, self.leaves[start : start + len(flat)], strict=True):
                if not leaf.holds(x):
                    return f"argument {n} is {leaf.differs(x)}"
            start += len(flat)
        return "nothing"


class ReadEnvironment:
    """What the functions of a program can read, as it was: numbers, names, attributes and members, and arrays
    by their layout, which the program reads anew; other arrays by their content."""

    def __init__(self, roots: list, names: frozenset, apart: Collection = ()):
        """`apart`: attributes that the call may write before it reads them."""
        self.roots, self.apart = roots, apart
        # the walk of a program that leaves objects of the user's in others: equal ones do not stand for them
        self.walked: Any = None
        self.environment = Environment(roots, is_input_leaf, names, apart=apart)
        walk, self.same = self.environment.seen
        self.form, self.unknown, self.names = walk.form, walk.unknown, walk.names
        self.content = [(x, checksum(x)) for x in walk.layouts if type(x) is np.ndarray and x.flags.writeable]
        self.sources = [(x, state(x)) for x in walk.sources]

    def has_single(self) -> bool:
        return any([is_single(x) for x, _ in self.content])

    def is_as_before(self) -> bool:
        """Does the function read now what it could read before the call?"""
        now = lambda: walk_with_names(self.roots, is_input_leaf, names=self.names, apart=self.apart)
        return self.same() or now().form == self.form

    def disturbed(self, anew=None, drawn=()) -> str | None:
        """What a call has changed, so that no program can stand for it.  `anew`: arrays that it may change;
        `drawn`: (generator of which it draws by operations, its state before the first)."""
        if not self.is_as_before():
            return f"a call changes {READ}"
        first = {id(bits_of(x)): (x, found) for x, found in drawn}
        for x, before in self.sources:
            if first.get(id(bits_of(x)), (x, state(x))) != (x, before):
                return "a call draws random numbers"
        if anew is not None and any(
            [id(x) not in anew and checksum(x) != before for x, before in self.content]
        ):
            return "a call writes an array that the recording does not follow"
        return None

    def rewind(self, to: list | None = None) -> list:
        """What was drawn is not drawn; or generators have these states again.  Gives those that they had."""
        had = [(x, state(x)) for x, _ in self.sources]
        for x, before in self.sources if to is None else to:
            if state(x) != before:
                restore(x, pickle.loads(before))
        return had

    def settle(self, anew: dict, program, drawn=(), frozen: Collection = ()) -> str | None:
        """The recording is done, which followed these arrays, and drew of these generators.  Gives the reason
        if no program can stand for the function.  (An array that was followed, and of which the program reads
        nothing, is compared; and one that it reads, where `frozen` has the id of the owner of its memory.)"""
        read = [*[x for _, x in program.captured], *[x for x, _ in program.written]]
        known = {id(x) for x in read}
        used = {k for k, x in anew.items() if k in known or any([may_share_memory(x, y) for y in read])}
        if frozen:
            used = {k for k in used if id(memory_owner(anew[k])) not in frozen}
        read_anew = lambda x: id(x) in used or mark_immutable(x)
        self.environment = Environment(self.roots, read_anew, self.names, self.environment, self.apart)
        self.unknown = self.environment.unknown
        reason = self.unsure() or self.disturbed(anew, drawn)
        self.content = self.sources = []
        return reason

    def unsure(self) -> str | None:
        return (
            None
            if self.unknown is None
            else f"it reads {self.unknown}, and nothing tells whether that has changed"
        )

    def changed(self) -> bool:
        known = OPEN.compared
        if known is not None and self in known:
            return False
        if self.environment.status() is not Status.UNCHANGED:
            return True
        if self.walked not in (None, self.environment.walk):
            return True
        if known is not None:
            known.add(self)
        return False

    def compared(self) -> int:
        """Bytes of arrays that are compared at each call."""
        return sum([x.nbytes for x in self.environment.walk.arrays])


def exchange(written: list) -> None:
    """Arrays as they were before a call that failed; or again as it left them."""
    for array, other in written:
        now = array.copy()
        array[...], other[...] = other, now


def compare_each_time() -> None:
    """End what `OPEN.compared` is for: code of the user runs now, and may change what replays read."""
    OPEN.compared = None


def bits_of(x):
    """Where the random numbers of a generator come from."""
    return getattr(x, "bit_generator", None) or getattr(x, "_bit_generator", x)


def is_input_leaf(x) -> bool:
    """(What is of a subclass is compared with its attributes.)"""
    return x.dtype.kind in "fc" and (not isinstance(x, np.ndarray) or type(x) in PLAIN_ARRAYS)
