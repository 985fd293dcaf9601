"""A prepared function at a fixed point: what does not depend on the direction is done once."""

import math

from .._core.arrays import copy_with_layout, is_array, xp_of
from .._core.errors import ArgumentError, Attempt, ShapeError
from .._core.primitive import watching
from .._core.registry import load
from .._core.scope import OPEN
from .._core.trees import describe_tree, is_node, leaves, tree_map
from .cached_program import EMITTER, FAILED, CachedProgram
from .form import TransformForm, any_variable
from .program import Program, guard_holds


def filled_out(call: str, y, out):
    """The result, in the memory of `out` if that is given."""
    if out is None:
        return y
    if is_node(y) or is_node(out):
        if not is_node(out) or len(leaves(out)) != len(leaves(y)):
            raise ArgumentError(f"{call}: out= is {describe_tree(out)}, the result is {describe_tree(y)}")
        return tree_map(lambda v, o: filled_out(call, v, o) if v is not None else o, y, out)
    if (
        not is_array(out)
        or not is_array(y)
        or out.shape != y.shape
        or out.dtype != y.dtype
        or xp_of(out) is not xp_of(y)
    ):
        raise ShapeError(
            f"{call}: out= is {describe_tree(out)}, the result is {describe_tree(y)} of dtype {getattr(y, 'dtype', None)}"
        )
    out[...] = y
    return out


class FoldedProgram:
    """A program of a product at a fixed point: what depends on the direction."""

    def __init__(self, kept: CachedProgram, program: Program, owner):
        self.kept = kept
        self.free = [n for n, argument in enumerate(kept.signature.owners) if argument == 1]
        self.used = [(array, array.copy(order="K")) for _, array in kept.program.captured]
        self.rest = CachedProgram(kept.signature, kept.surroundings, program, owner, [], 0, kept.recording)
        grouped = kept.emitted is not None and bool(kept.emitted.groups)
        self.rest.emitted, self.rest.due = load(EMITTER).EmittedProgram(program, grouped), math.inf

    def __call__(self, args: tuple):
        """The result; None where the whole is to be asked."""
        values = self.kept.values(args)
        if (
            values is None
            or self.kept.surroundings.changed()
            or not all([guard_holds(a, b) for a, b in self.used])
        ):
            return None
        found = self.rest.replay([values[n] for n in self.free])
        return None if type(found) in FAILED else found


class FixedPointProduct:
    """A prepared function at a fixed point: `p.at(x)`.  A product pays for what depends on its direction
    only.

    Where a captured array has changed since, or a branch, the product is that of now: it is worked out
    anew."""

    def __init__(self, p, x, args: tuple):
        self.p, self.x, self.args = p, tree_map(lambda v: copy_with_layout(v) if is_array(v) else v, x), args
        self.folded = {}
        self.__name__ = f"{p.name}.at"

    def product(self, method: str, v, out, place: int | None):
        form, args = self.p.forms[method], (self.x, v, *self.args)
        folded = self.folded.get(method)
        y = (
            None
            if folded is None or watching() or OPEN.depth or OPEN.inside is not None or any_variable(args)
            else folded(args)
        )
        if y is None:
            y = self.p.product(method, self.x, v, self.args)
            self.folded[method] = self.fold(form, args)
        if out is None:
            return y
        name = f"{self.__name__}(x).{method}"
        return filled_out(name, y, out) if place is None else (*y[:place], filled_out(name, y[place], out))

    def fold(self, form: TransformForm, args: tuple) -> FoldedProgram | None:
        if (
            OPEN.depth
            or watching()
            or form.eager is not None
            or not form.programs
            or form.programs[0].program.written
            or form.programs[0].program.generators
            or form.groups
        ):
            return None
        kept = form.programs[0]
        values = kept.values(args)
        if values is None or kept.surroundings.changed():
            return None
        program, owners = kept.program, kept.signature.owners
        with Attempt() as tried:
            fixed = program.fixed(
                {k: v for k, v, owner in zip(program.arguments, values, owners, strict=True) if owner != 1}
            )
        # (an operation's error is as in the call before, which dealt with it)
        return None if tried.failed or fixed is None else FoldedProgram(kept, fixed, self.p)

    def value(self):
        """f(x, *args)."""
        return self.p.value(self.x, *self.args)

    def grad(self, *, out=None):
        """The gradient there."""
        return self.p.grad(self.x, *self.args, out=out)

    def jvp(self, v, *, out=None) -> tuple:
        """(f(x, *args), J v)."""
        return self.product("jvp", v, out, 1)

    def vjp(self, w, *, out=None) -> tuple:
        """(f(x, *args), J^H w)."""
        return self.product("vjp", w, out, 1)

    def hvp(self, v, *, out=None):
        """H v."""
        return self.product("hvp", v, out, None)

    def hmp(self, V, *, out=None):
        """H times each of the rows of V."""
        return self.product("hmp", V, out, None)
