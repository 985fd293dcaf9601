"""Generated entry points of operations.

An entry point gets the code of one of the templates below. The common case, one open level and one or
two arguments, runs without loops over arguments, without a second `bind`, and without decisions that
the declaration settles. The code serves every level: for a value that is a Variable, it calls the
entry point again. Tapes and duals are handled inline. For other traces the arguments are lowered
(`Trace.step`)."""

import itertools
import marshal
import sys
from types import CodeType, FunctionType

import numpy as np

from ... import cache
from ..._core.abstract_arrays import NUMBERS as HIDDEN_NUMBERS
from ..._core.arrays import F8, IMMUTABLE, NUMBERS
from ..._core.forward import FORWARD, Dual
from ..._core.primitive import Primitive, bind, both_saved, frozen_view, handle, refresh
from ..._core.registry import late
from ..._core.reverse import JOINT, NONE, SETTINGS, AdaptedRule, ShapeStandIn, Tape, keep, setting_copy
from ..._core.variable import CLASSES, FLOAT, HANDLES, ArrayVariable, Variable, View, bottom, frozen, new
from ...ops import families as families
from ...ops.declare import PRIMITIVES, Signature, bound, coerced, is_operator, reads, signature_of
from .numbers import fit_rule

GENERAL = """
def {name}({signature}):
    return bind(prim, {arrays}, {settings})
"""

UNARY = """
def {name}({signature}):
    c = type(x)
    if c is FLOAT and ((d := type(v := x._value)) is float64 or d is FLOAT) and ((kind := type(trace := x._trace)) is Tape or kind is Dual):
        out = {body}
        c = type(out)
        y = new({number})
        y._value = out
        y._trace = trace
        if kind is Tape:
            records = trace.records
            y._slot = len(records)
            {rule_of_number}
            return y
    else:
        if c is not ArrayVariable:
            if c is ndarray or c is float64 or c not in HANDLES:
                return run(x{p})
            if c is View and x._seen != x._base._version:
                refresh(x)
        v = x._value
        trace = x._trace
        kind = type(trace)
        if kind is not Tape and kind is not Dual:
            return {stepped} if trace is not None else {low}
        out = {body}
        c = type(out)
        y = new({made})
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
    t = {jvp}
    if t is None:
        return handle(out)
    y._slot = t
    return y
"""

BINARY = """
def {name}(a, b):
    ca = type(a)  # None, from where it is known that a is a Variable that can be read
    cb = type(b)
    number = False
    if ca is FLOAT:
        ca = None
        v = a._value
        trace = a._trace
        i = a._slot
        if cb is FLOAT:
            cb = None
            w = b._value
            j = b._slot
            if b._trace is trace:
                d = type(w)
                number = d is float64 or d is FLOAT
                if d is HIDDEN:
                    return trace.pair(prim, a, b, v, w, i, j)
        else:
            w = b
            j = None
            number = cb is float
        number = number and ((d := type(v)) is float64 or d is FLOAT)
    elif cb is FLOAT:
        cb = None
        v = a
        i = None
        w = b._value
        trace = b._trace
        j = b._slot
        number = ca is float and ((d := type(w)) is float64 or d is FLOAT)
    if {elementwise} and number and ((kind := type(trace)) is Tape or kind is Dual):
        out = {body}
        c = type(out)
        y = new({number})
        y._value = out
        y._trace = trace
        if kind is Tape:
            records = trace.records
            y._slot = len(records)
            if j is None:
                records.append(({number0}, i, NONE, None, {out0}, {x0}, {y0}))
            elif i is None:
                records.append((None, None, {number1}, j, {out1}, {x1}, {y1}))
            else:
                records.append(({number0}, i, {number1}, j, {outs}, {xs}, {ys}))
            return y
    else:
        if ca is ArrayVariable:
            ca = None
        elif ca is not None and ca is not float and ca is not ndarray and ca is not float64 and ca in HANDLES:
            if ca is View and a._seen != a._base._version:
                refresh(a)
            ca = None
        if cb is ArrayVariable:
            cb = None
        elif cb is not None and cb is not float and cb is not ndarray and cb is not float64 and cb in HANDLES:
            if cb is View and b._seen != b._base._version:
                refresh(b)
            cb = None
        if ca is None:
            v = a._value
            trace = a._trace
            i = a._slot
            if cb is None:
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
                elif (cb is not ndarray or (d := b.dtype) is not F8 and d.char in CAST) and cb not in NUMBERS:
                    w = coerced(b, a)
                    if w is NotImplemented:
                        return w
                    if type(w) in HANDLES:
                        return {name}(a, w)
        elif cb is None:
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
            elif (ca is not ndarray or (d := a.dtype) is not F8 and d.char in CAST) and ca not in NUMBERS:
                v = coerced(a, b)
                if v is NotImplemented:
                    return v
                if type(v) in HANDLES:
                    return {name}(v, b)
        else:
            return {body_ab}
        kind = type(trace)
        if kind is not Tape and kind is not Dual:
            return trace.pair(prim, a, b, v, w, i, j) if trace is not None else handle({body})
        out = {body}
        c = type(out)
        y = new({made})
        y._value = out
        y._trace = trace
        if kind is Tape:
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
        if cb is None:  # forward
            b._saved = True
        if ca is None:
            a._saved = True
        {dual}
        if type(t) is View:
            t = settled(t)
        y._slot = t
        return y
    if j is None:
        t = vjp0(i, out, v, w)
    elif i is None:
        t = vjp1(j, out, v, w)
    else:
        t = vjp0(i, out, v, w) + vjp1(j, out, v, w)
    y._slot = t
    return y
"""

# Two arrays and a joint rule, such as `solve` of real matrices on one tape.
JOINT_BINARY = """
def {name}(a, b):
    ca = type(a)
    cb = type(b)
    v = a
    w = b
    i = j = trace = other = None
    if ca in HANDLES:
        if ca is View and a._seen != a._base._version:
            refresh(a)
        v = a._value
        trace = other = a._trace
        i = a._slot
    if cb in HANDLES:
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
    y = new(ArrayVariable)
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


CONSTANT: dict = {}
NOTHING: dict = {}


def constant_text(b: float) -> np.ndarray:
    """A number as a 0-d array. NumPy multiplies by it in 0.6 of the time for a Python float."""
    w = np.array(b)
    w.flags.writeable = False
    if b and b == b:  # 0.0 and -0.0 are one key; nan never equals itself
        if len(CONSTANT) > 999:
            CONSTANT.clear()
        CONSTANT[b] = w
    return w


# For NumPy's vectors and matrices `dot` makes the same BLAS call as `@`, with half of the overhead.
BODIES = {
    "matmul": "(v.dot(w) if type(v) is type(w) is ndarray and 0 < v.ndim < 3 and 0 < w.ndim < 3 else v @ w)",
    "negative": "-v",
}
REAL = "(d is F8 or d.kind != 'c')"  # for a dtype d; several dtype objects can stand for one type
# the class of a Variable over a value of type c, most likely a number
NUMBER = "FLOAT if c is float64 or c is FLOAT else CLASSES[c]"
# the same, most likely an array
MADE = "ArrayVariable if c is ndarray or c is ArrayVariable else FLOAT if c is float64 else CLASSES[c]"
LOCALS = {"c", "d", "kind", "out", "records", "t", "trace", "v", "x", "y"}  # those of the template UNARY

# Calls of an operation before its code is generated. That takes as long as it saves in some hundred calls.
GENERAL_CALLS = 4

# The names that generated code uses.
SPACE: dict = dict(
    __name__=__name__, GENERAL_CALLS=GENERAL_CALLS, both_saved=both_saved,
    Variable=Variable, ArrayVariable=ArrayVariable, FLOAT=FLOAT, HIDDEN=HIDDEN_NUMBERS[F8], HANDLES=HANDLES,
    CLASSES=CLASSES, View=View, Tape=Tape, Dual=Dual, bind=bind, refresh=refresh, handle=handle, new=new,
    frozen=frozen,
    settled=frozen_view, Fold=AdaptedRule, fitted=fit_rule, Like=ShapeStandIn, F8=F8,
    NUMBERS=NUMBERS - {bool}, CONSTANT=CONSTANT, NOTHING=NOTHING,
    NONE=NONE, late=late,
    SETTINGS=SETTINGS, JOINT=JOINT, constant=constant_text, coerced=coerced,
    keep=keep, IMMUTABLE=IMMUTABLE,
    fixed=setting_copy,
    ndarray=np.ndarray,
    bottom=bottom, float64=np.float64, complex128=np.complex128,
)  # fmt: skip


def recorded_setting(signature: Signature, setting: str) -> str:
    """The code of a setting in a record. Common settings (True, None, a number) cost little or nothing."""
    if type(signature.whole.parameters[setting].default) is bool:
        return setting
    return f"{setting} if {setting}.__class__ in IMMUTABLE else fixed({setting})"


def text_pieces(signature: Signature, names: list[str]) -> dict:
    """The pieces of code that fill a template, with the arrays called `names`."""
    varying, settings = signature.varying, signature.settings
    return dict(
        signature=", ".join(names + ["*" + n for n in varying] + settings),
        arrays="(" + "".join(n + ", " for n in names) + "".join("*" + n + ", " for n in varying) + ")",
        settings="{" + ", ".join(f"'{s}': {s}" for s in settings) + "}" if settings else "NOTHING",
        p="".join(f", {s}={s}" if s in signature.named else f", {s}" for s in settings),
        q="".join(f", {s}" for s in settings),
        settings_tuple="(" + "".join(recorded_setting(signature, s) + ", " for s in settings) + ")"
        if settings
        else "None",
    )


def entry_text(prim: Primitive, signature: Signature) -> str:
    """The code of the operation's entry point."""
    n, others = len(signature.arrays), prim.multi or prim.writes or prim.pull or signature.varying
    if prim.vjp is not None and not others:
        if is_operator(prim, signature):
            return _binary_text(prim)
        if n == 1 and not prim.joint:
            return _unary_text(prim, signature)
        if n == 2 and prim.joint and not signature.settings and not prim.aliases:
            return _joint_text(prim)
    return GENERAL.format(name=prim.name, **text_pieces(signature, signature.arrays))


def _first(*args, **kwargs):
    """The code of every entry point before it is generated. Most operations are called seldom or never."""
    return (general if next(calls) < GENERAL_CALLS else install())(*args, **kwargs)  # noqa: F821


def quicken(entry) -> None:
    prim = entry.prim
    vjp = prim.vjp or (None,)
    space = entry.__globals__
    space.update(SPACE, vjp0=vjp[0], vjp1=vjp[-1], jvp=prim.jvp, install=lambda: _install(entry))
    space["CAST"] = prim.narrow | {"O"}
    space.update(general=FunctionType(bound.__code__, space, entry.__name__), calls=itertools.count())
    space[entry.__name__] = entry
    entry.__code__ = _first.__code__


def _install(entry):
    """Give the entry point its generated code. The object stays the same, because others have imported
    it."""
    signature = signature_of(entry.__globals__["run"])
    text = entry_text(entry.prim, signature)
    made = {}
    exec(_compiled(text, f"<entry of {entry.__name__}>"), entry.__globals__, made)
    entry.__code__, entry.text = made[entry.__name__].__code__, text
    if "# forward" in text:
        FORWARD[entry.__code__] = text[: text.index("# forward")].count("\n") + 1
    entry.__globals__[entry.__name__] = entry
    if signature.varying:
        entry.__kwdefaults__ = dict(
            zip(
                signature.settings[len(signature.settings) - len(signature.defaults) :],
                signature.defaults,
                strict=True,
            )
        )
    else:
        entry.__defaults__ = signature.defaults or None
    return entry


def _compiled(text: str, file: str) -> CodeType:
    """The compiled code of a text. Compiling takes a millisecond, reading it from the cache a tenth of
    that."""
    key = cache.key("text", BYTECODE, file, text)
    stored = cache.load_code(key)
    if stored is not None:
        return marshal.loads(stored)
    code = compile(text, file, "exec")
    cache.save(key, marshal.dumps(code))
    return code


BYTECODE = f"{sys.version} {sys.flags.optimize}"


def fit_of_number(k: int, value: str, holomorphic: bool) -> str:
    """The rule if result and argument are most likely numbers of double precision."""
    return f"vjp{k} if c is float64 or c is FLOAT else Fold(vjp{k}, {value}, {holomorphic})"


def _unary_text(prim: Primitive, signature: Signature) -> str:
    """The code for one array, with or without settings. The array is called x here, whatever its name in
    the body."""
    name, used = prim.name, reads(prim.vjp[0])
    out, x = used[1], used[2]
    if LOCALS & set(signature.settings):
        raise TypeError(
            f"{name}: a setting must not be called {LOCALS & set(signature.settings)}, as in the generated "
            f"text"
        )
    kept = x and 0 not in prim.shapes and prim.shapes != "*"
    pieces = text_pieces(signature, ["x"])
    p, q = pieces["p"], pieces["q"]
    forward = (
        f"vjp0(x._slot, out, v{q})"
        if prim.same
        else f"{name}(x._slot{p})"
        if prim.linear
        else f"jvp((x._slot,), out, v{q})"
    )
    held = "v" if kept else "Like(v)" if x else None
    rest = f"{'SETTINGS' if p else None}, {pieces['settings_tuple']}, {'out' if out else None}, {held}, None"
    rule = f"records.append((vjp0, x._slot, {rest}))"
    if prim.holomorphic:
        fits = f"(d := out.dtype) is v.dtype and {REAL}"
        rule = f"records.append((vjp0 if {fits} else Fold(vjp0, v, True), x._slot, {rest}))"
    of_number = f"records.append(({fit_of_number(0, 'v', prim.holomorphic)}, x._slot, {rest}))"
    general = f"bind(prim, (x,), {pieces['settings']})"
    stepped = f"trace.step(prim, (x,), (v,), (x._slot,), {pieces['settings']})"
    single = "trace.single(prim, x, v, x._slot)"
    body = BODIES.get(name) or f"{name}(v{p}) if isinstance(v, Variable) else run(v{p})"
    return UNARY.format(
        made=MADE, number=NUMBER, rule_of_number=of_number if prim.holomorphic else rule, name=name,
        body=body, jvp=forward,
        rule=rule, stepped=f"both_saved((x,), {stepped})" if prim.aliases else stepped if p else single,
        low=general if prim.aliases else f"handle(run(v{p}))",
        mark_both="x._saved = y._saved = True" if prim.aliases else "",
        mark_x="x._saved = True" if kept else "", mark_y="y._saved = True" if out else "", **pieces,
    )  # fmt: skip


def _joint_text(prim: Primitive) -> str:
    _, out, _, x, y = reads(prim.vjp[0])

    def mark(wanted, name, c, value):
        return (
            f"if {c} is not ndarray: {name}._saved = True\n    else: {value} = keep(trace, {value})"
            if wanted
            else ""
        )

    return JOINT_BINARY.format(
        name=prim.name, out="out" if out else None, mark_y="y._saved = True" if out else "",
        x="v" if x else "Like(v)", mark_a=mark(x, "a", "ca", "v"),
        y="w" if y else "Like(w)", mark_b=mark(y, "b", "cb", "w"),
    )  # fmt: skip


def _binary_text(prim: Primitive) -> str:
    """The code for two arrays. What a record keeps depends on the active arguments."""
    name = prim.name
    (_, o0, x0, y0), (_, o1, x1, y1) = [reads(r) for r in prim.vjp]
    small = (0 in prim.shapes, 1 in prim.shapes)
    elementwise = prim.same
    broadcasts = elementwise or prim.batch == "elementwise"

    def mark(wanted, name, c):
        return f"if {c} is None: {name}._saved = True" if wanted else ""

    def mark_constant(wanted, name, c, value):
        if not wanted:
            return ""
        return f"if {c} is None: {name}._saved = True\n                elif {c} is not float: {value} = keep(trace, {value})"

    def piece(wanted, value, by_shape):
        return "None" if not wanted else f"Like({value})" if by_shape else value

    holomorphic = prim.holomorphic

    def fold(k, value):
        fits = f"{value}.dtype is (d := out.dtype)" + (f" and {REAL}" if holomorphic else "")
        fits = f"{fits} and {value}.shape == out.shape" if broadcasts else fits
        return f"vjp{k} if {fits} else fitted(vjp{k}, {value}, out, {holomorphic})"

    xs, ys, outs = piece(x0 or x1, "v", small[0]), piece(y0 or y1, "w", small[1]), "out" if o0 or o1 else None
    both = f"records.append(({fold(0, 'v')}, i, {fold(1, 'w')}, j, {outs}, {xs}, {ys}))"
    if elementwise:
        plain_record = f"records.append((vjp0, i, vjp1, j, {outs}, {xs}, {ys}))"
        real = f" and {REAL}" if holomorphic else ""
        alike = f"v.shape == w.shape and (d := v.dtype) is w.dtype{real}"
        both = f"if {alike}:\n                    {plain_record}\n                else:\n                    {both}"
    body = (
        BODIES.get(name)
        or prim.infix
        or f"{name}(v, w) if isinstance(v, Variable) or isinstance(w, Variable) else run(v, w)"
    )
    body = f"v {body} w" if len(body) == 1 else body
    return BINARY.format(
        made=MADE, number=NUMBER, elementwise=elementwise, number0=fit_of_number(0, "v", holomorphic),
        number1=fit_of_number(1, "w", holomorphic), outs=outs, xs=xs, ys=ys, name=name, body_ab="run(a, b)",
        body=body,
        mark_y="y._saved = True" if o0 or o1 else "",
        mark_a0=mark(x0 and not small[0], "a", "ca"), mark_b0=mark_constant(y0 and not small[1], "b", "cb",
        "w"),
        mark_b1=mark(y1 and not small[1], "b", "cb"), mark_a1=mark_constant(x1 and not small[0], "a", "ca",
        "v"),
        mark_a=mark((x0 or x1) and not small[0], "a", "ca"), mark_b=mark((y0 or y1) and not small[1], "b",
        "cb"),
        fold0=fold(0, "v"), fold1=fold(1, "w"), both=both,
        out0="out" if o0 else None, x0=piece(x0, "v", small[0]), y0=piece(y0, "w", small[1]),
        out1="out" if o1 else None, x1=piece(x1, "v", small[0]), y1=piece(y1, "w", small[1]),
        dual=DUAL_SAME if elementwise else "t = jvp((i, j), out, v, w)",
    )  # fmt: skip


for _entry in PRIMITIVES.values():
    quicken(_entry)
