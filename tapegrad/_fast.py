"""All generated texts and short ways: what the engine does sooner where it can.  The engine runs without this file (TAPEGRAD_FAST=0).

Entry points.  The function by which an operation is called gets the code of one of the texts below, so that the common case,
one open level and one or two arguments, runs straight through: no loop over arguments, no second bind, no choice left that the
declaration settles.  The text is the same for every level: a value that is itself a Variable calls the entry point again.  A
tape and a dual are written out in it; any other trace gets its arguments lowered (`Trace.step`).

Short ways.  Functions marked `hook` get another body: views, elements, rows written, products.  Each of these does what the
function does without it, and falls back on that for all but the common case, which is: NumPy, one level, no surprises."""

import dis
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
from numpy import ndarray

from ._array import F8, NUMBERS
from ._dual import FORWARD, Dual
from ._foreign import OBJECTS
from ._late import late
from ._primitive import ADD_AT, ASSIGN, READ, Primitive, bind, both_saved, handle, own, refresh, settled, view
from ._tape import IMMUTABLE, JOINT, REGION, SETTINGS, Fold, Like, Tape, fixed, keep
from ._variable import Variable, View, bottom, frozen, new, variable
from .ops import _families as _families
from .ops import _protocols, products, views, writing
from .ops._define import PRIMITIVES, Signature, coerced, is_operator, reads, signature_of
from .ops.indexing import laid_out, pull_diagonal, pull_turned, read, zeros_of
from .ops.products import T, column, matmul, row
from .ops.views import DIAGONAL, is_element, shown, transpose, unchanging

# --- the texts of entry points ---

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
        if trace is not None and trace.step is not None:
            return {stepped}
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
                if issubclass(type(bottom(v)), float64):  # Python's own product of the two is a Python number
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
            if issubclass(type(bottom(w)), float64):
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
        if trace is not None and trace.step is not None:
            return trace.step(prim, (a, b), (v, w), (i, j), NOTHING)
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


# On NumPy's vectors and matrices `dot` is the same BLAS call as `@`, with half of the way to it.
BODIES = {"matmul": "(v.dot(w) if type(v) is type(w) is ndarray and 0 < v.ndim < 3 and 0 < w.ndim < 3 else v @ w)"}
LOCALS = {"c", "d", "kind", "out", "records", "t", "trace", "v", "x", "y"}  # of the text UNARY

# What the generated texts name.
SPACE: dict = dict(
    __name__=__name__, both_saved=both_saved,
    Variable=Variable, View=View, Tape=Tape, Dual=Dual, bind=bind, refresh=refresh, handle=handle, new=new, frozen=frozen,
    settled=settled, Fold=Fold, Like=Like, F8=F8, NUMBERS=NUMBERS, CONSTANT=CONSTANT, NOTHING=NOTHING, NONE=NONE, late=late,
    SETTINGS=SETTINGS, JOINT=JOINT, constant=constant, coerced=coerced, keep=keep, IMMUTABLE=IMMUTABLE, fixed=fixed, ndarray=np.ndarray,
    OBJECTS=OBJECTS, bottom=bottom, float64=np.float64, complex128=np.complex128, C16=np.dtype(np.complex128), C8=np.dtype(np.complex64),
)  # fmt: skip


def recorded(signature: Signature, setting: str) -> str:
    """The setting as a record holds it; what is usual (True, None, a number) costs little or nothing."""
    if type(signature.whole.parameters[setting].default) is bool:
        return setting
    return f"{setting} if {setting}.__class__ in IMMUTABLE else fixed({setting})"


def pieces_of(signature: Signature, names: list[str]) -> dict:
    """Pieces of text, with the arrays called `names`."""
    varying, settings = signature.varying, signature.settings
    return dict(
        signature=", ".join(names + ["*" + n for n in varying] + settings),
        arrays="(" + "".join(n + ", " for n in names) + "".join("*" + n + ", " for n in varying) + ")",
        settings="{" + ", ".join(f"'{s}': {s}" for s in settings) + "}" if settings else "NOTHING",
        p="".join(f", {s}={s}" if s in signature.named else f", {s}" for s in settings),
        q="".join(f", {s}" for s in settings),
        settings_tuple="(" + "".join(recorded(signature, s) + ", " for s in settings) + ")" if settings else "None",
    )


def text_of(prim: Primitive, signature: Signature) -> str:
    """The text of the operation's entry point."""
    n, others = len(signature.arrays), prim.multi or prim.writes or prim.pull or signature.varying
    if prim.vjp is not None and not others:
        if is_operator(prim, signature):
            return _binary_text(prim)
        if n == 1 and not prim.joint:
            return _unary_text(prim, signature)
        if n == 2 and prim.joint and not signature.settings and not prim.aliases:
            return _joint_text(prim)
    return GENERAL.format(name=prim.name, **pieces_of(signature, signature.arrays))


def _first(*args, **kwargs):
    """The code of every entry point before its first call, which writes the real one: most operations are never called."""
    return install()(*args, **kwargs)  # noqa: F821


def quicken(entry: FunctionType) -> None:
    prim = entry.prim
    vjp = prim.vjp or (None,)
    entry.__globals__.update(SPACE, vjp0=vjp[0], vjp1=vjp[-1], jvp=prim.jvp, install=lambda: _install(entry))
    entry.__globals__[prim.name] = entry
    entry.__code__ = _first.__code__


def _install(entry: FunctionType) -> FunctionType:
    """Give the entry point the code of its text.  Others have imported it already: the object stays the same."""
    signature = signature_of(entry.__globals__["run"])
    text, made = text_of(entry.prim, signature), {}
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


def _unary_text(prim: Primitive, signature: Signature) -> str:
    """One array, or one and settings.  The array is called x here, whatever the body calls it."""
    used = reads(prim.vjp[0])
    out, x = used[1], used[2]
    if LOCALS & set(signature.settings):
        raise TypeError(f"{prim.name}: a setting must not be called {LOCALS & set(signature.settings)}, as in the generated text")
    kept = x and 0 not in prim.shapes and prim.shapes != "*"
    pieces = pieces_of(signature, ["x"])
    p, q = pieces["p"], pieces["q"]
    forward = f"vjp0(x._slot, out, v{q})" if prim.same else f"{prim.name}(x._slot{p})" if prim.linear else f"jvp((x._slot,), out, v{q})"
    held = "v" if kept else "Like(v)" if x else None
    rest = f"{'SETTINGS' if p else None}, {pieces['settings_tuple']}, {'out' if out else None}, {held}, None"
    rule = f"records.append((vjp0, x._slot, {rest}))"
    if prim.holomorphic:
        fits = "d is not C16 and d is not C8 and v.dtype is d"
        rule = f"d = out.dtype\n        records.append((vjp0 if {fits} else Fold(vjp0, v, True), x._slot, {rest}))"
    general = f"bind(prim, (x,), {pieces['settings']})"
    stepped = f"trace.step(prim, (x,), (v,), (x._slot,), {pieces['settings']})"
    return UNARY.format(
        name=prim.name, jvp=forward, rule=rule, stepped=f"both_saved((x,), {stepped})" if prim.aliases else stepped,
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


def _binary_text(prim: Primitive) -> str:
    """Two arrays: what is kept depends on which of them is active."""
    (_, o0, x0, y0), (_, o1, x1, y1) = [reads(r) for r in prim.vjp]
    small = (0 in prim.shapes, 1 in prim.shapes)
    elementwise = prim.same

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
    body = BODIES.get(prim.name) or prim.infix or f"{prim.name}(v, w) if isinstance(v, Variable) or isinstance(w, Variable) else run(v, w)"
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
        dual=DUAL_SAME if elementwise else "t = jvp((i, j), out, v, w)",
    )  # fmt: skip


for _entry in PRIMITIVES.values():
    quicken(_entry)


# --- short ways: how a function gets another body ---


def before(slow: FunctionType) -> FunctionType:
    """The function as it is now, to fall back on."""
    return FunctionType(slow.__code__, slow.__globals__, slow.__name__)


def replaces(slow: FunctionType) -> Callable:
    """The function below is the body of `slow` from now on, for all who have imported that; the names that it reads go along."""

    def put(quick):
        for line in dis.get_instructions(quick):
            name = line.argval
            if line.opname == "LOAD_GLOBAL" and name in quick.__globals__:
                if slow.__globals__.setdefault(name, quick.__globals__[name]) is not quick.__globals__[name]:
                    raise NameError(f"{name} means something else in {slow.__module__}")
        slow.__code__ = quick.__code__
        return slow

    return put


# --- views and elements ---

TRANSPOSED = ("transpose", (1, 0))
refresh_generally, getitem_generally = before(refresh), before(views.getitem)
run_read, pull_read, pull_assign, pull_add_at = read.prim.run, READ.vjp[0], ASSIGN.vjp[0], ADD_AT.vjp[0]


def slot_read(trace: Any, slot: Any, value: Any, path: tuple, at: Any, copy: bool) -> Any:
    """The slot, on a tape or a dual, of a region of the buffer with this slot and value."""
    if type(trace) is Dual:
        return bind(READ, (slot,), {"path": path, "at": at, "copy": copy})
    records = trace.records
    k = len(records)
    layout = laid_out(value) if at is None else trace.layout(value)
    records.append((pull_read, slot, REGION, None, layout, path, at))
    if k > trace.look:
        trace.grown()
    return k


@replaces(views.turned)
def turned(x):
    """The transpose of a matrix is made unread: until it is read, the place of its value holds x, from which it may be read."""
    v = shown(x) if type(x) is View and x._seen != x._base._version else x._value  # (what is not read yet need not be)
    while isinstance(v, Variable):
        v = v._value
    if getattr(v, "ndim", 0) != 2:
        return transpose(x)
    y = view(x, TRANSPOSED)
    if type(x) is not View or x._seen != -1 or x._value is None:  # not one that is itself to be read so
        y._value = x
    return y


def unread_transpose(y: View) -> Variable | None:
    """The matrix of which y, made by `turned` and not yet read, is the transpose, if it may be read from that by alias: nothing
    was written, and one tape is open at most."""
    source = y._value
    if y._base._version:
        return None
    if type(source) is View and source._seen:
        refresh(source)
    trace = source._trace
    return source if type(source._value) is ndarray and (trace is None or type(trace) is Tape) else None


@replaces(refresh)
def refreshed(y):
    base = y._base
    source = unread_transpose(y) if y._seen == -1 and y._value is not None else None
    if source is not None:
        base._saved = True
        y._value, y._trace, y._seen = source._value.T, source._trace, 0
        if y._trace is None:
            y._slot = None
        else:
            records = y._trace.records
            y._slot = len(records)
            records.append((pull_turned, source._slot, None, None, None, None, None))
        return
    value, trace = base._value, base._trace
    if type(value) is not ndarray or not (trace is None or type(trace) is Tape or type(trace) is Dual):
        return refresh_generally(y)
    hot = base._version > 0
    if not hot:
        base._saved = True
    y._value = run_read(value, path=y._path, at=None, copy=hot)
    y._trace, y._slot = trace, None if trace is None else slot_read(trace, base._slot, value, y._path, None, hot)
    y._seen = base._version


def are_places(at: tuple) -> bool:
    """Are these arrays of integers?"""
    return all([type(i) is ndarray and i.dtype.kind == "i" for i in at])


@replaces(views.getitem)
def getitem(x, at):
    if type(x) is Variable:
        value = x._value
        if type(value) is ndarray:
            kind, rank = type(at), value.ndim
            if rank == 1 if kind is int else kind is tuple and is_element(at, rank):
                element, trace = value[at], x._trace
                if trace is None:
                    return element
                if type(trace) is Tape or type(trace) is Dual:
                    return variable(element, trace, slot_read(trace, x._slot, value, (), at, False))
            elif rank and kind is slice:
                return view(x, ("at", unchanging(at)))
            elif rank and kind is int:
                value[at]  # raises as NumPy does
                return view(x, ("at", at))
            elif type(x._trace) is Tape and (kind is ndarray or kind is tuple and at) and are_places(at if kind is tuple else (at,)):
                trace, taken = x._trace, run_read(value, path=(), at=at, copy=False)
                return variable(taken, trace, slot_read(trace, x._slot, value, (), fixed(at), False))
    return getitem_generally(x, at)


@replaces(views.diagonal_of)
def diagonal_of(x):
    """Read at once where that is sure to be right: by alias, for it was never written, with one tape open at most."""
    y = view(x, DIAGONAL)
    trace = x._trace
    if x._version or not (trace is None or type(trace) is Tape):
        return y
    x._saved = True
    y._value, y._trace, y._seen = x._value.diagonal(), trace, 0
    if trace is not None:
        records = trace.records
        y._slot = len(records)
        records.append((pull_diagonal, x._slot, REGION, None, laid_out(x._value), None, None))
    return y


# --- writes ---

NUMBER = ((), F8)  # shape and dtype of a number


def written_forward(x: Variable, v: Any, t: Any, at: Any, trace: Dual) -> bool:
    """The same in forward mode: the tangent of the buffer, which is as much its own, is written like its value."""
    tangent = zeros_of(x) if x._trace is None else x._slot
    if type(tangent) is not np.ndarray or tangent.dtype is not F8 or (t is not None and getattr(t, "dtype", None) is not F8):
        return False
    if isinstance(t, Variable):  # of another level
        return False
    x._value[at] = v
    tangent[at] = 0.0 if t is None else t
    if x._trace is None:
        x._trace, x._slot = trace, tangent
        trace.risen.append(x)
    x._version += 1
    return True


@replaces(writing.written_short)
def written_short(x: Variable, y: Any, at: Any) -> bool:
    """The short way, for what a loop writes: a number, row, slice or all of an owned float64 buffer, with one transform open at most."""
    value, trace = x._value, x._trace
    if type(value) is not np.ndarray or value.dtype is not F8:
        return False
    if not getattr(x, "_version", 0) or getattr(x, "_saved", False) or not (trace is None or type(trace) is Tape or type(trace) is Dual):
        return False
    kind = type(at)
    if kind is int:
        to = value.shape[1:]
    elif kind is slice:
        to = value[at].shape
    elif kind is tuple and is_element(at, value.ndim):
        to = ()
    elif at is Ellipsis:
        to = value.shape
    else:
        return False
    slot = like = None
    if type(y) is Variable:
        v, other = y._value, y._trace
        if getattr(v, "dtype", None) is not F8 or isinstance(v, Variable) or y is x or (v.shape != to and v.shape != ()):
            return False
        if other is not None:
            if other is not trace and (trace is not None or not (type(other) is Tape or type(other) is Dual)):
                return False
            trace, slot, like = other, y._slot, NUMBER if v.shape == () else (v.shape, F8)
    elif type(y) in NUMBERS or type(y) is np.float64:
        v = y
    else:
        return False
    if type(trace) is Dual:
        return written_forward(x, v, slot, at, trace)
    value[at] = v
    if trace is not None:
        records = trace.records
        records.append((pull_assign, x._slot, REGION, slot, trace.layout(value), like, ((), at)))
        if x._trace is None:
            x._trace = trace
            trace.risen.append(x)
        x._slot = k = len(records) - 1
        if k > trace.look:
            trace.grown()
    x._version += 1
    return True


@replaces(_protocols.added_short)
def added_short(x, at, y):
    """`np.add.at(x, at, y)` for a float64 vector of our own, numbers of one tape and as many places."""
    value, trace = x._value, getattr(x, "_trace", None)
    if type(x) is not Variable or type(y) is not Variable or type(at) is not ndarray or at.dtype.kind != "i" or y is x:
        return False
    v, other = y._value, y._trace
    if type(value) is not ndarray or type(v) is not ndarray or not (value.dtype is v.dtype is F8) or value.ndim != 1 or v.shape != at.shape:
        return False
    if type(other) is not Tape or not (trace is None or trace is other):
        return False
    own(x)
    value, trace = x._value, other
    np.add.at(value, at, v)
    records = trace.records
    records.append((pull_add_at, x._slot, REGION, y._slot, trace.layout(value), (v.shape, F8), ((), fixed(at))))
    if x._trace is None:
        x._trace = trace
        trace.risen.append(x)
    x._slot = k = len(records) - 1
    if k > trace.look:
        trace.grown()
    x._version += 1
    return True


# --- the product of real vectors and matrices, one tape open ---
#
# An operand that is the transpose of something, read for nothing but this product, needs no record of its own: the rule gives
# the cotangent transposed.  Rules by [is the operand a transpose?][axes of x][axes of y], each also for a Variable g.

LEFT = (
    (
        (),
        (
            None,
            lambda g, out, x, y: g * y,
            lambda g, out, x, y: y.dot(g) if type(g) is ndarray else matmul(y, g),
        ),
        (
            None,
            lambda g, out, x, y: g[:, None].dot(y[None]) if type(g) is ndarray else matmul(column(g), row(y)),
            lambda g, out, x, y: g.dot(y.T) if type(g) is ndarray else matmul(g, y.T),
        ),
    ),
    (
        (),
        (),
        (
            None,
            lambda g, out, x, y: y[:, None].dot(g[None]) if type(g) is ndarray else matmul(column(y), row(g)),
            lambda g, out, x, y: y.dot(g.T) if type(g) is ndarray else matmul(y, T(g)),
        ),
    ),
)
RIGHT = (
    (
        (),
        (
            None,
            lambda g, out, x, y: g * x,
            lambda g, out, x, y: x[:, None].dot(g[None]) if type(g) is ndarray else matmul(column(x), row(g)),
        ),
        (
            None,
            lambda g, out, x, y: x.T.dot(g) if type(g) is ndarray else matmul(x.T, g),
            lambda g, out, x, y: x.T.dot(g) if type(g) is ndarray else matmul(x.T, g),
        ),
    ),
    (
        (),
        (None, None, lambda g, out, x, y: g[:, None].dot(x[None]) if type(g) is ndarray else matmul(column(g), row(x))),
        (None, None, lambda g, out, x, y: g.T.dot(x) if type(g) is ndarray else matmul(T(g), x)),
    ),
)


def factor(x: View) -> tuple:
    """(value, trace, slot, 1 if the slot is that of the transpose else 0) of a view."""
    source = unread_transpose(x) if x._seen == -1 and x._value is not None else None
    if source is not None:
        x._base._saved = True
        return source._value.T, source._trace, source._slot, 1
    if x._seen != x._base._version:
        refresh(x)
    return x._value, x._trace, x._slot, 0


for _rule in [r for table in (LEFT, RIGHT) for kind in table for rules in kind for r in rules if r is not None]:
    _rule.prim = matmul.prim


@replaces(products.product)
def product(x, y):
    cx, cy = type(x), type(y)
    turned_x = turned_y = 0
    i = j = trace = other = None
    v, w = x, y
    if cx is Variable:
        v, trace, i = x._value, x._trace, x._slot
    elif cx is View:
        v, trace, i, turned_x = factor(x)
    if cy is Variable:
        w, other, j = y._value, y._trace, y._slot
    elif cy is View:
        w, other, j, turned_y = factor(y)
    if trace is None:
        trace = other
    elif other is not None and other is not trace:
        return matmul(x, y)
    if type(trace) is not Tape or not (type(v) is type(w) is ndarray and v.dtype is w.dtype is F8):
        return matmul(x, y)
    n, m = v.ndim, w.ndim
    if not 0 < n < 3 or not 0 < m < 3:
        return matmul(x, y)
    z = new(Variable)
    z._value = v.dot(w)
    z._trace = trace
    records = trace.records
    z._slot = len(records)
    if j is None:
        if cy is ndarray:
            w = keep(trace, w)
        elif cy is Variable:
            y._saved = True
        records.append((LEFT[turned_x][n][m], i, NONE, None, None, None, w))
    elif i is None:
        if cx is ndarray:
            v = keep(trace, v)
        elif cx is Variable:
            x._saved = True
        records.append((None, None, RIGHT[turned_y][n][m], j, None, v, None))
    else:
        if cx is Variable:
            x._saved = True
        if cy is Variable:
            y._saved = True
        records.append((LEFT[turned_x][n][m], i, RIGHT[turned_y][n][m], j, None, v, w))
    return z
