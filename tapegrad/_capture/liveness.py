"""May the code of a function read a name before it has bound it?  Told from its bytecode, of all code that the function can reach.

Of a count, `self.n += 1` is no reading: nobody sees it."""

import dis
import types
from collections.abc import Collection, Iterator
from typing import Any

from .._core.variable import Variable
from .dependencies import UNASKED, Walk, is_left, walked

LOADS = frozenset((
    "LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "DELETE_ATTR", "LOAD_GLOBAL", "LOAD_NAME", "DELETE_GLOBAL", "DELETE_NAME", "LOAD_DEREF",
    "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF", "LOAD_FROM_DICT_OR_GLOBALS", "DELETE_DEREF", "IMPORT_FROM",
))  # fmt: skip
STORES = {"STORE_ATTR": "LOAD_ATTR", "STORE_GLOBAL": "LOAD_GLOBAL", "STORE_DEREF": "LOAD_DEREF"}
ENDS = frozenset(("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "INTERPRETER_EXIT"))
ALWAYS = frozenset(("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE"))
JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))


class Codes(Walk):
    """A walk that keeps the code it meets, and under which names cells are known."""

    def __init__(self, *args: object):
        self.codes: dict = {}
        self.cells: list = []
        super().__init__(*args)

    def visit(self, x: object) -> None:
        if isinstance(x, types.FunctionType):
            self.codes[x.__code__] = None
            self.cells += zip(x.__code__.co_freevars, x.__closure__ or (), strict=True)
        if not isinstance(x, Variable):
            super().visit(x)

    def class_of(self, kind: type, made: bool) -> None:
        """The methods for texts and copies too: what they read may be what was kept."""
        new = (kind, made) not in self.classes
        super().class_of(kind, made)
        if new:
            self.follow([m for c in kind.__mro__ if not is_left(c) for n, m in c.__dict__.items() if n in UNASKED and callable(m)])

    def name_of(self, cell: types.CellType) -> str | None:
        return next((name for name, c in self.cells if c is cell), None)

    def read_first(self, names: set, f: object, counts: bool = False) -> bool:
        """May one of these names, of attributes, globals or cells, be read before the same code has bound it, where f runs?  `counts`:
        they are of numbers and texts, to which more may be added."""
        if not names:
            return False
        codes = [code for c in self.codes for code in inner(c)]
        if self.unknown is not None or self.all or not any([code is code_of(f) for code in codes]):
            return True
        return any([read_first(code, name, counts) for code in codes for name in names])


def code_of(f: Any) -> Any:
    """That of the function which f is, or is made of."""
    while not isinstance(f, types.FunctionType):
        inside = [g for g in [getattr(f, name, None) for name in ("__func__", "func", "of")] if g is not None]
        if not inside:
            method = getattr(type(f), "__call__", None)  # noqa: B004
            return method.__code__ if isinstance(method, types.FunctionType) else None
        f = inside[0]
    return f.__code__


def may_catch(roots: list) -> bool:
    """May code that can be reached from there catch an exception?"""
    walk = walked(roots, lambda x: x.dtype.kind != "O", Codes)
    codes = [code for c in walk.codes for code in inner(c)]
    return walk.unknown is not None or any([i.opname == "PUSH_EXC_INFO" for code in codes for i in dis.get_instructions(code)])


def inner(code: types.CodeType) -> Iterator:
    yield code
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            yield from inner(c)


def read_first(code: types.CodeType, name: str, counts: bool = False) -> bool:
    if any([name == c or (isinstance(c, tuple) and name in c) for c in code.co_consts]):
        return True  # it may be given to getattr
    if name not in (*code.co_names, *code.co_cellvars, *code.co_freevars):
        return False
    steps = list(dis.get_instructions(code))
    loads = [k for k, i in enumerate(steps) if i.argval == name and i.opname in LOADS]
    added = {k: counted_at(code, steps, k) for k in loads} if counts else {}
    return any([not surely_bound(code, steps, k, added.values()) for k in loads if added.get(k) is None])


def counted_at(code: types.CodeType, steps: list, load: int) -> int | None:
    """The step that binds what this one reads again under the same name, with a constant added to it or the like, and seen by nobody."""
    kind, name, k = steps[load].opname, steps[load].argval, load + 3
    if len(steps) < load + 6 or not is_constant(steps[load + 1]) or steps[load + 2].opname != "BINARY_OP":
        return None
    if kind == "LOAD_ATTR":
        same = steps[load - 1].opname == "COPY" and steps[k].opname == "SWAP"  # self.n += 1: the object is the same
        k += 1
        if not same and (base_of(code, steps, load) is None or base_of(code, steps, k) != base_of(code, steps, load)):
            return None
    return k if STORES.get(steps[k].opname) == kind and steps[k].argval == name else None


def is_constant(i: dis.Instruction) -> bool:
    return i.opname in ("LOAD_CONST", "LOAD_SMALL_INT") and type(i.argval) in (int, str, bool)


def base_of(code: types.CodeType, steps: list, k: int) -> str | None:
    """The argument of the function of which an attribute is read or bound; None: it is no such argument, or is bound anew."""
    before = steps[k - 1]
    found = before.argval[-1] if isinstance(before.argval, tuple) else before.argval
    if not before.opname.startswith("LOAD_FAST") or found not in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
        return None
    bound = [i for i in steps if "FAST" in i.opname and not i.opname.startswith("LOAD_FAST")]
    return None if any([found == i.argval or (isinstance(i.argval, tuple) and found in i.argval) for i in bound]) else found


def surely_bound(code: types.CodeType, steps: list, load: int, added: Collection = ()) -> bool:
    """Has every way to this step bound what it reads?  What the steps `added` bind is what was there, and more."""
    kind, name = steps[load].opname, steps[load].argval
    kind = "LOAD_ATTR" if kind == "LOAD_METHOD" else kind
    base = base_of(code, steps, load) if kind == "LOAD_ATTR" else ""
    if base is None or kind not in STORES.values():
        return False
    binds = [
        k not in added and STORES.get(i.opname) == kind and i.argval == name and (not base or base_of(code, steps, k) == base)
        for k, i in enumerate(steps)
    ]
    place = {i.offset: k for k, i in enumerate(steps)}
    before: list = [[] for _ in steps]  # the steps from which each is reached; none: the first, and handlers of exceptions
    for k, i in enumerate(steps):
        if i.opname not in ENDS and i.opname not in ALWAYS and k + 1 < len(steps):
            before[k + 1].append(k)
        if i.opcode in JUMPS:
            before[place[i.argval]].append(k)
    before[0] = []
    known, moved = [True] * len(steps), True
    while moved:
        now = [bool(before[k]) and all([known[j] or binds[j] for j in before[k]]) for k in range(len(steps))]
        known, moved = now, now != known
    return known[load]
