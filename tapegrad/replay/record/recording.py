"""One recorded call: its arguments become inputs, and what it gives and leaves becomes outputs."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..._capture.attribute_watch import AttributeWatch, bound_places
from ..._core.arrays import is_array
from ..._core.primitive import live
from ..._core.scope import OPEN, scope_block
from ..._core.trees import Const, leaves, tree_map
from ..._core.variable import Variable, bottom
from ..._transforms.arguments import Inputs, enter_leaf, overlapping
from ..._transforms.call import returned, run_once, value_out
from .object_state import ObjectState, UntoldValue
from .recorder import Record, refuse_tracked


class Leaves(Inputs):
    """The arguments of a call, of which `watched` says which leaves are inputs of the program."""

    def __init__(self, call: str, args: tuple, chosen: list):
        super().__init__(call, (), args)
        self.chosen = chosen

    def enter(self, watch: Callable) -> list:
        shared = overlapping([x for xs in self.flat for x in xs])
        chosen = iter(self.chosen)

        def new(x):
            kind = next(chosen)
            return watch(enter_leaf(x), kind) if kind else x.value if isinstance(x, Const) else x

        return self.replaced(new, shared)


class Recording:
    """f recorded at these arguments.  `outputs`: for each leaf of `tree` the number of its value, or None for
    one that is `leaf` always; `arrays`: ids of arrays that a replay reads anew."""

    def __init__(
        self,
        call: str,
        f: Callable,
        lift: Callable | None,
        args: tuple,
        chosen: list,
        catches: bool,
        check: Callable,
        groups: list,
        before: list,
        watch: AttributeWatch,
        outside: frozenset = frozenset(),
    ):
        """`check` is given the recording before captured arrays are written, and may raise.  `watch`: of
        attributes that may be outputs; `outside`: ids of objects that f has not made."""
        inputs = Leaves(call, args, chosen)
        self.check, self.watch, self.outside = check, watch, outside
        self.bound = {}  # attributes that f has bound, which may be outputs: (id, name) -> object
        self.unsure = set()  # attributes of `watch` that are none
        self.state: Any = None
        self.followed = type(f) is not Const
        self.outputs: list = []
        self.leaves: list = []
        with scope_block():
            self.trace = trace = Record(inputs.constants, catches, groups, before)
            entered_args = inputs.enter(trace.watch)
            self.inputs = len(trace.known)
            shadow = run_once(f, trace, inputs, entered_args, {}, self.read, lift, watch)
            hold = shadow.hold if shadow.on else ()
            self.arrays = {
                id(x): x for x in hold if is_array(x) and isinstance(shadow.seen.get(id(x)), Variable)
            }
            shadow.finish()

    def read(self, y) -> None:
        self.check(self.trace)
        y = returned(y)
        # (a program keeps it: with the leaves it would keep all that was recorded)
        self.tree = tree_map(lambda _: 0, y)
        for v in leaves(y):
            if isinstance(v, Variable):
                v = live(v)
                if self.output(v) is not None:
                    continue
                refuse_tracked(v)
                v = bottom(v)
            self.outputs.append(None)
            self.leaves.append(np.float64(v) if type(v) is float else v.copy() if is_array(v) else v)

        if self.followed:
            self.read_state(OPEN.shadows[-1], len(self.outputs))

    def output(self, v: Variable) -> int | None:
        """The number of a new output; None for what is no value of the recording."""
        if v._trace is not self.trace:
            return None
        self.outputs.append(v._slot)
        self.leaves.append(None)
        return len(self.outputs) - 1

    def read_state(self, shadow, results: int) -> None:
        """What the function leaves in objects.  Their values come after `results`."""
        self.bound = bound_places(shadow, self.watch)
        found, self.unsure = self.watch.outputs(shadow)
        left = ObjectState(shadow, self.output, self.outside)
        for (key, name), value in found.items():
            try:
                left.add(self.watch.objects[key], name, value)
            except UntoldValue:
                self.unsure |= {place for place in self.watch.places if place[0] == key}
        left.end()
        if found and not self.unsure:
            self.state = left
        else:
            del self.outputs[results:], self.leaves[results:]

    def result(self):
        """What the recorded call gives."""
        known = self.trace.known
        found = iter(
            [
                value_out(leaf if k is None else known[k])
                for k, leaf in zip(self.outputs, self.leaves, strict=True)
            ]
        )
        return tree_map(lambda _: next(found), self.tree)
