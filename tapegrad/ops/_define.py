"""`primitive` and `rules`: the two words with which an operation is declared; `implements`: a NumPy name for a composition.

    @primitive(np.sin)
    def sin(x): return xp_of(x).sin(x)
    rules(sin, lambda g, out, x: g * cos(x), jvp=same)

Arguments without a default are arrays; those with a default, or after `*`, are settings.  A reverse rule stands for each array
argument: (g, out, *arrays, *settings) gives the cotangent of that argument.  `jvp(t, out, *arrays, *settings)` gets a tuple of
tangents (None: constant).  Short words for common forward rules: `same` (elementwise: the tangent is pushed by the rules that
pull the cotangent), `linear` (linear in its one array: the operation applied to the tangent).

`rules` writes the operation's own entry point from the texts below, so that the common case, one open level and one or two
arguments, runs straight through: no loop over arguments, no second bind, no choice left that the declaration settles.  The
text is the same for every level: a value that is itself a Variable calls the entry point again.  What a rule reads is found in
its own code, so nobody declares it and nobody can declare it wrongly: it decides what a record keeps, hence what a later write
must copy."""

import dis
import functools
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from .._array import F8, NUMBERS, is_array, is_scalar, xp_of
from .._dual import FORWARD, Dual
from .._foreign import OBJECTS, operand
from .._primitive import Primitive, bind, handle, plain, refresh, settled
from .._tape import IMMUTABLE, JOINT, SETTINGS, Like, Tape, fixed, keep, late
from .._variable import Variable, View, bottom, frozen, new
from ..errors import DeviceError

NUMPY: dict = {}  # NumPy or SciPy function -> ours
PRIMITIVES: dict = {}  # name -> entry point
COMPOSED: dict = {}  # name -> composed function
same, linear = object(), object()

GENERAL = """
def {name}({signature}):
    return bind(prim, {arrays}, {settings})
"""

UNARY = """
def {name}({signature}):
    c = type(x)
    if c is not Variable:
        if c is not View:
            return run(x{p})
        if x._seen != x._base._version:
            refresh(x)
    v = x._value
    trace = x._trace
    kind = type(trace)
    if kind is not Tape and kind is not Dual:
        return {low}
    out = {name}(v{p}) if isinstance(v, Variable) else run(v{p})
    y = new(Variable)
    y._value = out
    y._trace = trace
    {mark_both}
    if kind is Tape:
        {mark_x}
        {mark_y}
        records = trace.records
        y._slot = len(records)
        {rule}
        return y
    x._saved = True  # forward
    t = {jvp}
    if type(t) is View:
        t = settled(t)
    elif t is None:
        return handle(out)
    y._slot = t
    return y
"""

BINARY = """
def {name}(a, b):
    ca = type(a)
    cb = type(b)
    if ca is View:
        if a._seen != a._base._version:
            refresh(a)
        ca = Variable
    if cb is View:
        if b._seen != b._base._version:
            refresh(b)
        cb = Variable
    if ca is Variable:
        v = a._value
        trace = a._trace
        i = a._slot
        if cb is Variable:
            w = b._value
            j = b._slot
            other = b._trace
            if other is not trace:
                if other is None:
                    j = None
                elif trace is None:
                    trace = other
                    i = None
                elif trace.level > other.level:
                    w = frozen(b)
                    j = None
                else:
                    v = frozen(a)
                    trace = other
                    i = None
        else:
            j = None
            w = b
            if cb is float:
                if type(v) is ndarray and v.dtype is F8:
                    w = CONSTANT.get(b)
                    if w is None:
                        w = constant(b)
            elif cb is complex:
                if type(bottom(v)) is float64:  # Python's own product of the two is a Python number
                    w = complex128(b)
            elif (cb is not ndarray or b.dtype is OBJECTS) and cb not in NUMBERS:
                w = coerced(b, a)
                if w is NotImplemented:
                    return w
                if type(w) is Variable:
                    return {name}(a, w)
    elif cb is Variable:
        v = a
        i = None
        w = b._value
        trace = b._trace
        j = b._slot
        if ca is float:
            if type(w) is ndarray and w.dtype is F8:
                v = CONSTANT.get(a)
                if v is None:
                    v = constant(a)
        elif ca is complex:
            if type(bottom(w)) is float64:
                v = complex128(a)
        elif (ca is not ndarray or a.dtype is OBJECTS) and ca not in NUMBERS:
            v = coerced(a, b)
            if v is NotImplemented:
                return v
            if type(v) is Variable:
                return {name}(v, b)
    else:
        return {body_ab}
    kind = type(trace)
    if kind is not Tape and kind is not Dual:
        return bind(prim, (a, b), NOTHING) if trace is not None else handle({body})
    out = {body}
    y = new(Variable)
    y._value = out
    y._trace = trace
    if kind is Tape:
        d = out.dtype
        {mark_y}
        records = trace.records
        y._slot = len(records)
        if j is None:
            {mark_a0}
            {mark_b0}
            records.append(({fold0}, i, NONE, None, {out0}, {x0}, {y0}))
        elif i is None:
            {mark_a1}
            {mark_b1}
            records.append((None, None, {fold1}, j, {out1}, {x1}, {y1}))
        else:
            {mark_a}
            {mark_b}
            {both}
        return y
    if cb is Variable:  # forward
        b._saved = True
    if ca is Variable:
        a._saved = True
    {dual}
    if type(t) is View:
        t = settled(t)
    y._slot = t
    return y
"""

# Two arrays and a joint rule, as solve has: real matrices on one tape.
JOINT_BINARY = """
def {name}(a, b):
    ca = type(a)
    cb = type(b)
    v = a
    w = b
    i = j = trace = other = None
    if ca is Variable or ca is View:
        if ca is View and a._seen != a._base._version:
            refresh(a)
        v = a._value
        trace = other = a._trace
        i = a._slot
    if cb is Variable or cb is View:
        if cb is View and b._seen != b._base._version:
            refresh(b)
        w = b._value
        other = b._trace
        j = b._slot
        if trace is None:
            trace = other
    if type(trace) is not Tape or (other is not None and other is not trace):
        return bind(prim, (a, b), NOTHING)
    if not (type(v) is type(w) is ndarray and v.dtype is w.dtype is F8):
        return bind(prim, (a, b), NOTHING)
    out = run(v, w)
    y = new(Variable)
    y._value = out
    y._trace = trace
    {mark_y}
    {mark_a}
    {mark_b}
    records = trace.records
    y._slot = len(records)
    records.append((vjp0, i, JOINT, j, {out}, {x}, {y}))
    return y
"""

DUAL_SAME = """if j is None:
        t = vjp0(i if v.shape == out.shape else late.widened(i, out), out, v, w)
    elif i is None:
        t = vjp1(j if w.shape == out.shape else late.widened(j, out), out, v, w)
    elif v.shape == w.shape:
        t = vjp0(i, out, v, w) + vjp1(j, out, v, w)
    else:
        t = vjp0(late.widened(i, out), out, v, w) + vjp1(late.widened(j, out), out, v, w)"""


class Fold:
    """A rule made to fit: around a holomorphic rule, written as the transpose, the conjugations that make it the adjoint,
    pullback(w) = J^H w = conj(J^T conj(w)); then the result brought to the shape and dtype that its argument had before
    broadcasting and promotion."""

    __slots__ = ("rule", "shape", "dtype", "conjugate")

    def __init__(self, rule, v, holomorphic):
        v = bottom(v)
        self.rule, self.shape, self.dtype, self.conjugate = rule, v.shape, v.dtype, holomorphic

    def __call__(self, g, out, *rest):
        if self.conjugate and dtype(g).kind == "c":
            c = late.conj(self.rule(late.conj(g), out, *rest))
        else:
            c = self.rule(g, out, *rest)
        return self.fold(c)

    def fold(self, c):
        return late.fit(c, self.shape, self.dtype)

    def made_with(self, rule):
        """The same fit around another rule."""
        other = Fold.__new__(Fold)
        other.rule, other.shape, other.dtype, other.conjugate = rule, self.shape, self.dtype, self.conjugate
        return other


def NONE(g, out, x, y):
    """Stands where a record of two arguments has no second rule."""
    raise AssertionError


CONSTANT: dict = {}
NOTHING: dict = {}


def constant(b: float) -> np.ndarray:
    """NumPy multiplies an array by a 0-d array in 0.6 of the time it needs for a Python float."""
    w = np.array(b)
    w.flags.writeable = False
    if b and b == b:  # 0.0 and -0.0 are one key; nan is none
        if len(CONSTANT) > 999:
            CONSTANT.clear()
        CONSTANT[b] = w
    return w


def coerced(b: Any, other: Any) -> Any:
    """An operand that is neither Variable, ndarray nor Python number, as one that the operation can take."""
    if is_scalar(b):
        return b
    if isinstance(b, (list, tuple)):
        return late.stacked(b)
    b = operand(b)
    if is_array(b):
        if is_array(plain(other)) and xp_of(b) is not xp_of(plain(other)):
            raise DeviceError("an operation met a NumPy and a CuPy array: move one of them with cupy.asarray(a) or a.get()")
    return b


def shape(x: Any) -> tuple:
    c = type(x)
    if c is Variable:
        x = x._value
        while isinstance(x, Variable):
            x = x._value
        return x.shape
    return x.shape if c is np.ndarray or c is View or c is Like else getattr(x, "shape", ())


def dtype(x: Any) -> np.dtype:
    if type(x) is np.ndarray:
        return x.dtype
    if type(x) is not Like:
        x = plain(x)
    return x.dtype if getattr(x, "dtype", None) is not None else np.dtype(type(x))


def ndim(x: Any) -> int:
    return len(shape(x))


def xp(x: Any) -> Any:
    """The library under x, which may be a Variable."""
    return xp_of(plain(x))


LOCALS = {"c", "d", "kind", "out", "records", "t", "trace", "v", "x", "y"}  # of the text UNARY

# What the generated texts name.
SPACE: dict = dict(
    __name__=__name__,
    Variable=Variable, View=View, Tape=Tape, Dual=Dual, bind=bind, refresh=refresh, handle=handle, new=new, frozen=frozen,
    settled=settled, Fold=Fold, Like=Like, F8=F8, NUMBERS=NUMBERS, CONSTANT=CONSTANT, NOTHING=NOTHING, NONE=NONE, late=late,
    SETTINGS=SETTINGS, JOINT=JOINT, constant=constant, coerced=coerced, keep=keep, IMMUTABLE=IMMUTABLE, fixed=fixed, ndarray=np.ndarray,
    OBJECTS=OBJECTS, bottom=bottom, float64=np.float64, complex128=np.complex128, C16=np.dtype(np.complex128), C8=np.dtype(np.complex64),
)  # fmt: skip


def implements(*functions: Callable) -> Callable:
    """The decorated function, composed of other operations, answers for these NumPy or SciPy functions."""

    def declare(f):
        for function in functions:
            NUMPY[function] = f
        COMPOSED[f.__name__] = f
        return f

    return declare


class Signature:
    """The parameters of a body: arrays first, then settings."""

    def __init__(self, run):
        self.whole = inspect.signature(run)
        parameters = list(self.whole.parameters.values())
        self.varying = [p.name for p in parameters if p.kind is p.VAR_POSITIONAL]
        arrays = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty]
        self.arrays = [p.name for p in arrays]
        rest = [p for p in parameters if p not in arrays and p.kind is not p.VAR_POSITIONAL]
        self.settings = [p.name for p in rest]
        self.named = {p.name for p in rest if p.kind is p.KEYWORD_ONLY}
        self.defaults = tuple([p.default for p in rest if p.default is not p.empty])

    def recorded(self, setting: str) -> str:
        """The setting as a record holds it; what is usual (True, None, a number) costs little or nothing."""
        if type(self.whole.parameters[setting].default) is bool:
            return setting
        return f"{setting} if {setting}.__class__ in IMMUTABLE else fixed({setting})"

    def text(self, names: list[str]) -> dict:
        """Pieces of generated text, with the arrays called `names`."""
        star = ["*" + n for n in self.varying]
        return dict(
            signature=", ".join(names + star + self.settings),
            arrays="(" + "".join(n + ", " for n in names) + "".join("*" + n + ", " for n in self.varying) + ")",
            settings="{" + ", ".join(f"'{s}': {s}" for s in self.settings) + "}" if self.settings else "NOTHING",
            p="".join(f", {s}={s}" if s in self.named else f", {s}" for s in self.settings),
            q="".join(f", {s}" for s in self.settings),
            settings_tuple="(" + "".join(self.recorded(s) + ", " for s in self.settings) + ")" if self.settings else "None",
        )


signature_of = functools.cache(Signature)


def _first(*args, **kwargs):
    """The code of every entry point before its first call, which writes the real one."""
    return install()(*args, **kwargs)  # noqa: F821


def _prepare(entry: FunctionType, text: Callable, signature: Signature) -> None:
    """Let the first call of the entry point write its code: most operations are never called, and all are declared at import."""
    entry.__globals__["install"] = lambda: _install(entry, text(), signature)


def _install(entry: FunctionType, text: str, signature: Signature) -> FunctionType:
    """Give the entry point the code of the text.  Others may have imported it already: the object stays the same."""
    made: dict = {}
    exec(compile(text, f"<entry of {entry.__name__}>", "exec"), entry.__globals__, made)
    entry.__code__, entry.text = made[entry.__name__].__code__, text
    if "# forward" in text:
        FORWARD[entry.__code__] = text[: text.index("# forward")].count("\n") + 1
    entry.__globals__[entry.__name__] = entry
    if signature.varying:
        entry.__kwdefaults__ = dict(
            zip(signature.settings[len(signature.settings) - len(signature.defaults) :], signature.defaults, strict=True)
        )
    else:
        entry.__defaults__ = signature.defaults or None
    return entry


def primitive(
    *numpy: Callable,
    shapes: Any = (),
    writes: bool = False,
    multi: int = 0,
    infix: str | None = None,
    holomorphic: bool = True,
    aliases: bool = False,
    prim: Any = None,
):
    """Declare an operation.  `numpy`: the functions that it answers for.  `shapes`: inputs ("*": all) of which the rules read
    only the shape.  `multi`: the number of outputs, if a tuple.  `infix`: the operator that does the
    same, or an expression of v and w.  `holomorphic`:
    on complex input the rules, written as transposes, are made adjoints by the engine; otherwise they see to it themselves.
    `aliases`: what the body gives may share memory with an array that it gets, or be that array."""

    def declare(run):
        p = Primitive(run.__name__, run, shapes, writes, multi, infix, holomorphic) if prim is None else prim
        p.run, p.shapes, p.aliases = run, shapes, aliases
        entry = FunctionType(_first.__code__, {**SPACE, "run": run, "prim": p}, run.__name__)
        signature = signature_of(run)
        entry.prim, entry.__doc__, p.call = p, run.__doc__, entry
        entry.__globals__[p.name] = entry
        entry.__signature__ = signature.whole
        _prepare(entry, lambda: GENERAL.format(name=p.name, **signature.text(signature.arrays)), signature)
        PRIMITIVES[p.name] = entry
        for function in numpy:
            NUMPY[function] = entry
        return entry

    return declare


def reads(rule: Callable) -> list[bool]:
    """Which of its arguments does the rule's text read?  What no rule reads is not kept, nor copied at a write."""
    seen = set()
    for line in dis.get_instructions(rule):
        seen.update(line.argval if isinstance(line.argval, tuple) else (line.argval,))
    return [n in seen or p.kind is p.VAR_POSITIONAL for n, p in inspect.signature(rule).parameters.items()]


def rules(entry: Callable, *vjp: Callable, jvp: Any, joint: Callable | None = None) -> None:
    """Give the operation its derivatives.  `joint`: one rule (g, out, need, *arrays, *settings) that gives the cotangents of all
    inputs as a tuple (None where `need` is false), in place of one rule each."""
    prim = entry.prim
    signature = signature_of(prim.run)
    prim.joint, prim.vjp = joint is not None, vjp if joint is None else (joint,)
    prim.keep_spec = _keep_spec(prim, bool(signature.varying))
    prim.jvp = _applied(entry) if jvp is linear else _pushed(vjp) if jvp is same else jvp
    n = len(signature.arrays)
    if signature.varying or prim.multi or prim.writes or (prim.joint and (n != 2 or signature.settings or prim.aliases)):
        return
    entry.__globals__.update(vjp0=prim.vjp[0], vjp1=prim.vjp[-1], jvp=prim.jvp)
    if prim.joint:
        _prepare(entry, lambda: _joint_text(prim), signature)
        return
    if n == 1:
        _prepare(entry, lambda: _unary_text(prim, jvp, signature), signature)
    elif n == 2 and not signature.settings and not prim.aliases:
        _prepare(entry, lambda: _binary_text(prim, jvp), signature)


def _keep_spec(prim: Primitive, varying: bool) -> Callable:
    """A function from the pattern of active inputs to (inputs that its rules read, do they read the output?)."""
    first = 3 if prim.joint else 2

    def spec(active):
        used = [reads(r) for r in prim.vjp]
        if prim.shapes == "*" or varying:
            return () if prim.shapes == "*" else tuple(range(len(active))), any(u[1] for u in used)
        on = used if prim.joint else [u for u, a in zip(used, active, strict=True) if a]
        inputs = [i for i in range(len(active)) if i not in prim.shapes and any(u[first + i] for u in on)]
        return tuple(inputs), any(u[1] for u in on)

    return spec


def _applied(entry: Callable) -> Callable:
    return lambda t, out, x, *settings, **params: entry(t[0], *settings, **params)


def _pushed(vjp: tuple) -> Callable:
    """The forward rule of an elementwise operation: its Jacobian is diagonal, hence its own transpose."""

    def jvp(t, out, *args, **settings):
        total = None
        for d, rule in zip(t, vjp, strict=True):
            if d is not None:
                c = rule(d if shape(d) == shape(out) else late.widened(d, out), out, *args, **settings)
                total = c if total is None else total + c
        return total

    return jvp


def _unary_text(prim: Primitive, jvp: Any, signature: Signature) -> str:
    """One array, or one and settings.  The array is called x here, whatever the body calls it."""
    used = reads(prim.vjp[0])
    out, x = used[1], used[2]
    if LOCALS & set(signature.settings):
        raise TypeError(f"{prim.name}: a setting must not be called {LOCALS & set(signature.settings)}, as in the generated text")
    kept = x and 0 not in prim.shapes and prim.shapes != "*"
    pieces = signature.text(["x"])
    p, q = pieces["p"], pieces["q"]
    forward = f"vjp0(x._slot, out, v{q})" if jvp is same else f"{prim.name}(x._slot{p})" if jvp is linear else f"jvp((x._slot,), out, v{q})"
    held = "v" if kept else "Like(v)" if x else None
    rest = f"{'SETTINGS' if p else None}, {pieces['settings_tuple']}, {'out' if out else None}, {held}, None"
    rule = f"records.append((vjp0, x._slot, {rest}))"
    if prim.holomorphic:
        fits = "d is not C16 and d is not C8 and v.dtype is d"
        rule = f"d = out.dtype\n        records.append((vjp0 if {fits} else Fold(vjp0, v, True), x._slot, {rest}))"
    general = f"bind(prim, (x,), {pieces['settings']})"
    return UNARY.format(
        name=prim.name, jvp=forward, rule=rule,
        low=general if prim.aliases else f"{general} if trace is not None else handle(run(v{p}))",
        mark_both="x._saved = y._saved = True" if prim.aliases else "",
        mark_x="x._saved = True" if kept else "", mark_y="y._saved = True" if out else "", **pieces,
    )  # fmt: skip


def _joint_text(prim: Primitive) -> str:
    _, out, _, x, y = reads(prim.vjp[0])

    def mark(wanted, name, c, value):
        return f"if {c} is not ndarray: {name}._saved = True\n    else: {value} = keep(trace, {value})" if wanted else ""

    return JOINT_BINARY.format(
        name=prim.name, out="out" if out else None, mark_y="y._saved = True" if out else "",
        x="v" if x else "Like(v)", mark_a=mark(x, "a", "ca", "v"),
        y="w" if y else "Like(w)", mark_b=mark(y, "b", "cb", "w"),
    )  # fmt: skip


def _binary_text(prim: Primitive, jvp: Any) -> str:
    """Two arrays: what is kept depends on which of them is active."""
    (_, o0, x0, y0), (_, o1, x1, y1) = [reads(r) for r in prim.vjp]
    small = (0 in prim.shapes, 1 in prim.shapes)
    elementwise = jvp is same

    def mark(wanted, name, c):
        return f"if {c} is Variable: {name}._saved = True" if wanted else ""

    def mark_constant(wanted, name, c, value):
        if not wanted:
            return ""
        return f"if {c} is Variable: {name}._saved = True\n            elif {c} is not float: {value} = keep(trace, {value})"

    def piece(wanted, value, by_shape):
        return "None" if not wanted else f"Like({value})" if by_shape else value

    holomorphic = prim.holomorphic

    def fold(k, value):
        fits = f"{value}.dtype is d" + (" and d is not C16 and d is not C8" if holomorphic else "")
        fits += f" and {value}.shape == out.shape" if elementwise else ""
        return f"vjp{k} if {fits} else Fold(vjp{k}, {value}, {holomorphic})"

    xs, ys, outs = piece(x0 or x1, "v", small[0]), piece(y0 or y1, "w", small[1]), "out" if o0 or o1 else None
    both = f"records.append(({fold(0, 'v')}, i, {fold(1, 'w')}, j, {outs}, {xs}, {ys}))"
    if elementwise:
        plain_record = f"records.append((vjp0, i, vjp1, j, {outs}, {xs}, {ys}))"
        real = " and d is not C16 and d is not C8" if holomorphic else ""
        alike = f"v.shape == w.shape and v.dtype is w.dtype{real}"
        both = f"if {alike}:\n                {plain_record}\n            else:\n                {both}"
    body = prim.infix or f"{prim.name}(v, w) if isinstance(v, Variable) or isinstance(w, Variable) else run(v, w)"
    body = f"v {body} w" if len(body) == 1 else body
    return BINARY.format(
        name=prim.name, body_ab="run(a, b)", body=body,
        mark_y="y._saved = True" if o0 or o1 else "",
        mark_a0=mark(x0 and not small[0], "a", "ca"), mark_b0=mark_constant(y0 and not small[1], "b", "cb", "w"),
        mark_b1=mark(y1 and not small[1], "b", "cb"), mark_a1=mark_constant(x1 and not small[0], "a", "ca", "v"),
        mark_a=mark((x0 or x1) and not small[0], "a", "ca"), mark_b=mark((y0 or y1) and not small[1], "b", "cb"),
        fold0=fold(0, "v"), fold1=fold(1, "w"), both=both,
        out0="out" if o0 else None, x0=piece(x0, "v", small[0]), y0=piece(y0, "w", small[1]),
        out1="out" if o1 else None, x1=piece(x1, "v", small[0]), y1=piece(y1, "w", small[1]),
        dual=DUAL_SAME if jvp is same else "t = jvp((i, j), out, v, w)",
    )  # fmt: skip
