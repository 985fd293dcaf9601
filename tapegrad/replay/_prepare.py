"""`prepare`: a function and its derivatives, recorded once and replayed at other points."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .._array import is_array, shares_memory, xp_of
from .._calls import Inputs, cast, leaves_like, name_of, overlapping, run_forward, value_and_tangent, value_out
from .._calls import Recorded as Swept
from .._flags import now
from .._pickling import Remade
from .._primitive import OPEN
from .._shadow import MAKERS, THREADS
from .._transforms import _wrapping, grad, hessian, hmp, hvp, jacobian, value_and_grad, value_grad_hvp
from .._tree import Const, is_node, leaves, structure, tree_map
from .._variable import Variable
from ..errors import ArgumentError, GuardError, ShapeError
from ._emitted import Emitted
from ._program import HEARD, Program
from ._recorder import Guard, Recorded
from ._signature import READ, Signature, Surroundings

MOST = 8  # programs that are kept of one function
TRIES = 2  # recordings that changed what f reads, before it is run as it is
PATIENCE = 3  # recordings for each replay, beyond which the function is run as it is


# --- what there is of a function: each is a function of it, and of `argnums` ---


def _value(f: Callable, argnums: Any) -> Callable:
    return f


def _jvp(f: Callable, argnums: Any) -> Callable:
    return lambda x, v, *args: value_and_tangent(*run_forward(f"jvp({name_of(f)})", f, (x,), (v,), None, args))


def _vjp(f: Callable, argnums: Any) -> Callable:
    def pulled(x, w, *args):
        with Swept(f"vjp({name_of(f)})", f, 0, (x, *args), {}) as r:
            ws = leaves_like("vjp", "cotangent", w, r.tree)
            gs = [None if s is None or c is None else cast("vjp", "cotangent", c, y) for c, (y, s) in zip(ws, r.low, strict=True)]
            return r.value(), r.inputs.results(r.gradient(gs, last=True))

    return pulled


METHODS = {
    "value": _value,
    "grad": grad,
    "value_and_grad": value_and_grad,
    "jacobian": jacobian,
    "hessian": hessian,
    "jvp": _jvp,
    "vjp": _vjp,
    "hvp": lambda f, argnums: lambda x, v, *args: hvp(f, x, v, args),
    "hmp": lambda f, argnums: lambda x, V, *args: hmp(f, x, V, args),
    "value_grad_hvp": lambda f, argnums: lambda x, v, *args: value_grad_hvp(f, x, v, args),
}
PRODUCTS = frozenset(("jvp", "vjp", "hvp", "hmp", "value_grad_hvp"))  # their second argument is a direction


def given(args: tuple) -> list:
    """As f gets them."""
    return [a.value if isinstance(a, Const) else a for a in args]


class Form:
    """One of the functions above, and its programs, the last one used first."""

    def __init__(self, owner: "Prepared", method: str):
        self.owner, self.method = owner, method
        self.programs: list = []
        self.recordings = self.replays = self.disturbed = 0
        self.eager: str | None = None  # why the function is run as it is

    @property
    def name(self) -> str:
        return f"{self.owner.name}.{self.method}"

    def plain(self, args: tuple) -> Any:
        """Without a program."""
        f = self.owner.f
        y = METHODS[self.method](f, self.owner.argnums)(*(given(args) if self.method == "value" else args))
        return tree_map(value_out, y) if self.method == "value" else y

    def __call__(self, args: tuple) -> Any:
        if OPEN.depth or OPEN.inside is not None or any([isinstance(x, Variable) for a in args for x in leaves(a)]):
            return self.plain(args)
        if self.eager is not None:
            return self.plain(args)
        failed = None
        for k, kept in enumerate(self.programs):
            values = kept.values(args)
            if values is None:
                continue
            if kept.surroundings.changed():
                failed = f"{READ} has changed"
                continue
            found = kept.replay(values)
            if type(found) is Guard:
                failed = found
                continue
            if found is None:
                return self.plain(args)
            if k:
                self.programs.insert(0, self.programs.pop(k))
            self.replays += 1
            return found
        if self.programs and self.owner.on_change == "raise":
            raise GuardError(self.complaint(args, failed))
        return self.record(args)

    def complaint(self, args: tuple, failed: Any) -> str:
        if failed is None:
            what = f"the call has {self.programs[0].signature.difference(args)}"
        elif type(failed) is Guard:
            asked = "a condition" if failed.truth else "a value that the function asked for"
            what = f"{failed.place}: {asked} is no longer {failed.value!r}"
        else:
            what = failed
        return f"{self.name}: {what}; with on_change='record' it would be recorded anew"

    def record(self, args: tuple) -> Any:
        """A call as it is, and its program with it."""
        owner = self.owner
        example, of_f = owner.example, args if self.method not in PRODUCTS else (args[0], *args[2:])
        if owner.on_change == "raise" and example.values(of_f) is None:
            raise GuardError(f"{self.name}: the call has {example.difference(of_f)}, which was given to prepare")
        active = tuple([k in owner.nums or (k == 1 and self.method in PRODUCTS) for k in range(len(args))])
        signature = Signature(args, active)
        f = owner.f
        wrap = _wrapping(f)
        lift = None if self.method == "value" else lambda g: METHODS[self.method](wrap(g), owner.argnums)
        roots = [*([] if isinstance(f, Const) else [f]), *signature.static]
        surroundings = Surroundings(roots)
        try:
            recorded = Recorded(self.name, f, lift, args, signature.chosen)
        except Exception as error:
            if owner.on_change == "raise" or surroundings.disturbed() is not None:
                raise
            y = self.plain(args)  # which may raise as well: then it was no fault of the recording
            self.eager = f"{type(error).__name__}: {error}"
            return y
        y = recorded.result()
        reason = surroundings.settle(recorded.arrays)
        if reason is None and recorded.trace.drawn is not None:
            reason = f"{recorded.trace.drawn} draws random numbers"
        self.recordings += 1
        self.disturbed += reason is not None
        if reason is not None and self.disturbed < TRIES and owner.on_change == "record":
            return y  # it may have filled a cache, or imported a module
        if reason is None and self.recordings > PATIENCE * (self.replays + MOST):
            reason = f"it was recorded {self.recordings} times for {self.replays} replays"
        if reason is not None:
            if owner.on_change == "raise":
                raise GuardError(f"{self.name}: {owner.of} cannot be recorded: {reason}")
            self.eager, self.programs = reason, []
        else:
            self.programs = [Kept(signature, surroundings, Program(recorded)), *self.programs[: MOST - 1]]
        return y

    def report(self) -> list:
        if self.eager is not None:
            return [f"run as it is, not recorded: {self.eager}"]
        return [kept.report() for kept in self.programs]


class Kept:
    """A program, and what it holds for."""

    def __init__(self, signature: Signature, surroundings: Surroundings, program: Program):
        self.signature, self.surroundings, self.program = signature, surroundings, program
        self.setting, self.modes = now(), np.geterr()
        self.emitted: Emitted | None = None
        self.replays = 0

    def values(self, args: tuple) -> list | None:
        """The inputs of the program, if it holds for a call of this kind."""
        setting = now()
        if (setting is None or setting is not self.setting) and np.geterr() != self.modes:
            return None
        return self.signature.values(args)

    def replay(self, values: list) -> Any:
        """The result; a guard that failed; None where only a plain call will do: it warns, raises, or arrays share memory."""
        program = self.program
        if program.written and (THREADS or any([shares_memory(v, array) for v in values for array, _ in program.written])):
            return None
        if program.writes_arguments and len(values) > 1 and overlapping(values):
            return None
        self.replays += 1
        if self.emitted is None and self.replays > 1:
            self.emitted = Emitted(program)
        try:
            found = program.run(values) if self.emitted is None else self.emitted.run(*values)
            if HEARD.unsafe is not None and self.emitted is not None:
                found = program.run(values)
        except Exception:
            return None
        if type(found) is Guard:
            return found
        if HEARD.shown is not None:
            return None
        results, written = found
        for array, v in written:
            array[...] = v
        each = iter(results)
        return tree_map(lambda _: next(each), program.tree)

    def report(self) -> str:
        way = "as bound calls" if self.emitted is None else "as one text of Python"
        sizes = f"{len(self.program.code)} of the {self.program.recorded} instructions that were recorded, run {way}"
        guards = sum([len(g) for g in self.program.guards.values()])
        return (
            f"{sizes}; {len(self.program.captured)} captured arrays read anew, {len(self.program.written)} written, {guards} values and "
            f"conditions guarded; {self.surroundings.compared()} bytes of other arrays compared at each call"
        )


class Prepared(Remade):
    """A function and its derivatives, recorded once for each kind of call and replayed at new points: see `prepare`."""

    def __init__(self, f: Callable, args: tuple, argnums: Any, on_change: str):
        self.args = args
        self.of, self.argnums, self.on_change = f, argnums, on_change
        self.f = f
        self.name = f"prepare({name_of(f)})"
        self.__name__ = self.name
        self.nums = Inputs(self.name, argnums, args).nums
        self.example = Signature(args, tuple([k in self.nums for k in range(len(args))]))
        self.forms = {method: Form(self, method) for method in METHODS}

    def _made(self) -> tuple:
        return Prepared, (self.of, self.args, self.argnums, self.on_change)

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def value(self, *args: Any, out: Any = None) -> Any:
        """f(*args)."""
        return filled_out(f"{self.name}.value", self.forms["value"](args), out)

    __call__ = value

    def grad(self, *args: Any, out: Any = None) -> Any:
        """The gradient, as `tapegrad.grad` gives it."""
        return filled_out(f"{self.name}.grad", self.forms["grad"](args), out)

    def value_and_grad(self, *args: Any, out: Any = None) -> Any:
        """(value, gradient); `out` is for the gradient."""
        value, gradient = self.forms["value_and_grad"](args)
        return value, filled_out(f"{self.name}.value_and_grad", gradient, out)

    def jacobian(self, *args: Any, out: Any = None) -> Any:
        """The Jacobian, as `tapegrad.jacobian` gives it."""
        return filled_out(f"{self.name}.jacobian", self.forms["jacobian"](args), out)

    def hessian(self, *args: Any, out: Any = None) -> Any:
        """The Hessian, as `tapegrad.hessian` gives it."""
        return filled_out(f"{self.name}.hessian", self.forms["hessian"](args), out)

    def jvp(self, x: Any, v: Any, args: tuple = (), *, out: Any = None) -> tuple:
        """(f(x, *args), J v); `out` is for J v."""
        value, slope = self.product("jvp", x, v, args)
        return value, filled_out(f"{self.name}.jvp", slope, out)

    def vjp(self, x: Any, w: Any, args: tuple = (), *, out: Any = None) -> tuple:
        """(f(x, *args), J^H w); `out` is for J^H w."""
        value, pulled = self.product("vjp", x, w, args)
        return value, filled_out(f"{self.name}.vjp", pulled, out)

    def hvp(self, x: Any, v: Any, args: tuple = (), *, out: Any = None) -> Any:
        """H v, the Hessian of f(x, *args) by x times v."""
        return filled_out(f"{self.name}.hvp", self.product("hvp", x, v, args), out)

    def hmp(self, x: Any, V: Any, args: tuple = (), *, out: Any = None) -> Any:
        """H times each of the rows of V."""
        return filled_out(f"{self.name}.hmp", self.product("hmp", x, V, args), out)

    def value_grad_hvp(self, x: Any, v: Any, args: tuple = (), *, out: Any = None) -> tuple:
        """(value, gradient, H v); `out` is for H v."""
        value, gradient, hv = self.product("value_grad_hvp", x, v, args)
        return value, gradient, filled_out(f"{self.name}.value_grad_hvp", hv, out)

    def product(self, method: str, x: Any, v: Any, args: tuple) -> Any:
        if self.nums != (0,):
            raise ArgumentError(f"{self.name}.{method}: a product is that of argument 0; prepare with argnums=0, not {self.argnums!r}")
        return self.forms[method]((x, v, *args))

    def report(self) -> str:
        """What is recorded, and how it is run."""
        lines = [f"{self.name}"]
        for method, form in self.forms.items():
            lines += [f"  .{method}: {line}" for line in form.report()]
        return "\n".join(lines if len(lines) > 1 else [*lines, "  nothing is recorded yet"])


def filled_out(call: str, y: Any, out: Any) -> Any:
    """The result, in the memory of `out` if that is given."""
    if out is None:
        return y
    if is_node(y) or is_node(out):
        if not is_node(out) or len(leaves(out)) != len(leaves(y)):
            raise ArgumentError(f"{call}: out= is {structure(out)}, the result is {structure(y)}")
        return tree_map(lambda v, o: filled_out(call, v, o) if v is not None else o, y, out)
    if not is_array(out) or not is_array(y) or out.shape != y.shape or out.dtype != y.dtype or xp_of(out) is not xp_of(y):
        raise ShapeError(f"{call}: out= is {structure(out)}, the result is {structure(y)} of dtype {getattr(y, 'dtype', None)}")
    out[...] = y
    return out


def prepare(f: Callable, *args: Any, argnums: Any = 0, on_change: str = "record", shadow: bool = True) -> Prepared:
    """f and its derivatives, each recorded at its first call and replayed at other points: what `tapegrad.grad` and its like give.

    `args` are arguments like those of the calls to come; `argnums` says which are differentiated.  `p.value(x, ...)`, `p.grad`,
    `p.value_and_grad`, `p.jacobian`, `p.hessian` take the arguments of f; `p.jvp(x, v)`, `p.vjp(x, w)`, `p.hvp(x, v)`, `p.hmp(x, V)`
    and `p.value_grad_hvp(x, v)` take further arguments of f in `args`.  Results are fresh arrays, or written to `out`.

    Captured arrays are read anew at each call, and written as a plain call would.  Where shapes, dtypes, a branch, an index, or a
    number, name or attribute that f reads differ from those of the recording, it is recorded anew; with on_change='raise' that raises
    GuardError.  A function that cannot be recorded, for it draws random numbers or counts its calls, say, is run as it is:
    `p.report()` tells.

    >>> import numpy as np, tapegrad as tg
    >>> p = tg.prepare(lambda x: (x ** 3).sum(), np.ones(2))
    >>> p.grad(np.array([1.0, 2.0])), p.hvp(np.array([1.0, 2.0]), np.array([1.0, 0.0]))
    (array([ 3., 12.]), array([6., 0.]))
    """
    if not args:
        raise ArgumentError(f"prepare({name_of(f)}): give arguments like those of the calls to come: prepare(f, x)")
    if on_change not in ("record", "raise"):
        raise ArgumentError(f"prepare({name_of(f)}): on_change={on_change!r}; it is 'record' or 'raise'")
    return Prepared(f if shadow else Const(f), args, argnums, on_change)


def _shadowed(shadow: Any, x: Prepared) -> Prepared:
    """Within a transform it is the function whose captured arrays that transform follows."""
    f = shadow(x.of)
    return x if f is x.of else Prepared(f, x.args, x.argnums, x.on_change)


MAKERS[Prepared] = _shadowed
