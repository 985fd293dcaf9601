"""Warnings of floating-point arithmetic, as in a plain call: of values only, at the user's line, and as `np.errstate` says.

NumPy reports a division by zero at the line that called it, which is one of ours, and it does not know a value from a tangent.
So while a function runs under a transform, what NumPy is asked to warn of or to raise goes to a `Handler`, which looks at the
frames: it is silent where a forward rule is at work (`_core.forward.FORWARD`), and acts for the caller's frame else.  Reverse sweeps
keep their flags to themselves (`_core.reverse.pull`).

What an operation raises, and what the user's code hears of it, decides which way his function takes: a `Listening` notes that, and
`ending` makes of it what can be compared."""

import contextlib
import dis
import os
import re
import sys
import threading
import warnings
from typing import Any

import numpy as np

from .forward import FORWARD
from .primitive import Primitive
from .reverse import SWEEPING
from .scope import OPEN, now, put, setting
from .typing import AnyDict, AnyList, AnyTuple

KINDS = {"divide by zero": "divide", "overflow": "over", "underflow": "under", "invalid value": "invalid"}
OURS = (os.path.dirname(os.path.dirname(__file__)) + os.sep, "<entry of ")
SYMBOLS = {
    "+": "add", "-": "subtract", "*": "multiply", "/": "divide", "**": "power", "//": "floor_divide", "%": "remainder", "@": "matmul",
}  # fmt: skip
SCALAR = frozenset(SYMBOLS.values())
NUMPYS = {"power_n": "power", "sum": "reduce", "product": "dot"}  # ours -> NumPy's


class Handler:
    """`modes` and `user`: what the user set by `np.errstate` or `np.seterr`, and his callback."""

    def __init__(self, modes: Any, user: Any):
        self.modes, self.user = modes, user

    def __call__(self, kind: str, flag: int) -> None:
        frame: Any = sys._getframe(1)
        top = frame
        while frame.f_code.co_filename.startswith(OURS):
            if frame.f_lineno >= FORWARD.get(frame.f_code, sys.maxsize):
                return
            frame = frame.f_back
        if OPEN.watcher is not None and OPEN.watcher.silences:
            return
        mode, text = self.modes[KINDS[kind]], f"{kind} encountered in {operation(top)}"
        if OPEN.listener is not None and not OPEN.listener.told(KINDS[kind], mode):
            return
        if mode == "raise":
            raise FloatingPointError(text)
        if mode == "warn":
            space = frame.f_globals
            space = getattr(space, "real", space)  # of a rebuilt function: those of its module
            registry = space.setdefault("__warningregistry__", {})
            warnings.warn_explicit(text, RuntimeWarning, frame.f_code.co_filename, frame.f_lineno, space.get("__name__"), registry)
        elif mode == "print":
            print(f"Warning: {text}", file=sys.stderr)
        elif mode == "log":
            self.user.write(f"Warning: {text}\n")
        elif self.user is not None:
            self.user(kind, flag)

    def settings(self) -> AnyDict:
        return {name: mode if mode == "ignore" else "call" for name, mode in self.modes.items()}


def operation(frame: Any) -> str:
    """NumPy's name for what the frame was doing: that of our body or face, or of an operator."""
    code, here = frame.f_code, frame.f_locals
    if code.co_filename.startswith(OURS):
        name = here["self"].__name__ if code.co_name == "__call__" and hasattr(here.get("self"), "__name__") else code.co_name
        name = here["prim"].name if isinstance(here.get("prim"), Primitive) else name  # while it is recorded
        name = NUMPYS.get(name, name)
        numbers = [here[n] for n in ("v", "w", "x", "y", "a", "b") if n in here]
        return f"scalar {name}" if name in SCALAR and not any(np.ndim(v) for v in numbers) else name
    found = next((i for i in dis.get_instructions(code) if i.offset == frame.f_lasti), None)
    return SYMBOLS.get(found.argrepr.rstrip("="), code.co_name) if found is not None and found.opname == "BINARY_OP" else code.co_name  # type: ignore[no-any-return]


def current() -> Any:
    """The handler in charge, or None."""
    found = np.geterrcall()
    return found if type(found) is Handler else None


class State(threading.local):
    changed = False  # was `seterr` or `seterrcall` called since the outermost transform of this thread began?


STATE = State()
HANDLERS: AnyDict = {}  # modes -> the handler without a callback of the user's, its setting
KNOWN: AnyDict = {}  # id of a setting in force -> that, and what `around` gave for it; the last few


MISSED = (None, None)


def around() -> AnyTuple:
    """The handler for a function that runs under the setting in force, and the setting with it; within another transform None, and the
    handler in charge."""
    modes = np.geterr()
    key = tuple(modes.values())
    found = HANDLERS.get(key)
    if found is None:
        user = np.geterrcall()
        if type(user) is Handler:
            return None, user
        handler = Handler(modes, user)
        found = handler, setting(**handler.settings(), call=handler)
        if "call" not in key and "log" not in key:  # without a callback
            HANDLERS[key] = found
    return found


def watch() -> Any:
    """The user's function begins: the handler in charge from now on, None where there is one already."""
    current = now()
    known, found = KNOWN.get(id(current), MISSED)
    if known is not current:
        found = around()
        if found[0] is None or found[0].user is None:
            if len(KNOWN) > 15:
                KNOWN.clear()
            KNOWN[id(current)] = current, found
            if found[0] is not None:
                KNOWN[id(found[1])] = found[1], (None, found[0])
    if found[0] is not None:
        STATE.changed = False
        put(found[1])
    return found[0]


def unwatch(handler: Any, thorough: bool = False) -> None:
    """It has ended.  What it set by `np.seterr` stays set, as after a plain call; where its code is not followed, and calls NumPy's own,
    that is looked for (`thorough`)."""
    block = OPEN.block
    if handler is not None:
        raw: Any
        last, raw = (current(), np.geterr()) if thorough or STATE.changed else (None, None)
        put(block[2])
        if last is not None:
            known = last.settings()
            modes = {name: last.modes[name] if raw[name] == known[name] else raw[name] for name in raw}
            if modes != handler.modes or last.user is not handler.user:
                np.seterr(**modes)
                np.seterrcall(last.user)
                block[2] = now()
    elif getattr(STATE, "changed", False):
        block[2] = now()


LAST: tuple[Any, int, Any, str] = (None, 0, None, "")  # the filters of warnings, their number and the first of them, and what was found


def warned() -> str:
    """What becomes of a warning of floating-point arithmetic: "error" (perhaps), "ignore" (surely), or else "show".  (Filters that are
    added come first.)"""
    global LAST
    filters = warnings.filters
    known, count, first, found = LAST
    if filters is known and len(filters) == count and (not count or filters[0] is first):
        return found
    telling = [(f[0], f[1] is f[3] is None and not f[4]) for f in filters if issubclass(RuntimeWarning, f[2])]
    actions = [action for action, always in telling if action == "error" or always]
    found = "error" if actions[:1] == ["error"] else "ignore" if telling[:1] == [("ignore", True)] else "show"
    LAST = filters, len(filters), filters[0] if filters else None, found
    return found


# --- what the user's code may hear ---

SHOWN = frozenset(("ignore", "warn"))
LOUD = "loud"  # among the kinds that are looked at: the user's code may hear of them


def modes_of(setting: Any) -> Any:
    """What is done about each kind under the setting in force."""
    if setting is SWEEPING:
        return {}
    known, found = KNOWN.get(id(setting), MISSED)
    if known is setting is not None and found[0] is None:
        return found[1].modes
    handler, modes = np.geterrcall(), np.geterr()
    if type(handler) is Handler:
        return handler.modes
    return {} if setting is None and modes["invalid"] == "call" else modes


def looked_at(setting: Any, outside: Any, errors: bool = False) -> AnyTuple:
    """The kinds of floating-point errors that a plain call would show, under the setting in force: none within a reverse sweep.  `LOUD` is
    among them if code may hear of one.  `outside`: the filters of warnings around the function; `errors`: may it catch a warning?"""
    own = warnings.filters is not outside  # set by the function
    quiet = ("ignore", "warn") if own and warned() == "ignore" else ("ignore",)
    modes = modes_of(setting)
    found = [kind for kind, mode in modes.items() if mode not in quiet]
    if found and (own or not SHOWN.issuperset(modes.values()) or (errors and warned() == "error")):
        found.append(LOUD)
    return tuple(found)


class Listening:
    """A context around an operation that notes what its caller may hear of it.  `heard`: the kinds of floating-point errors of which a
    callback is told, the classes and texts of warnings that are shown; `flagged`: the kinds of which a warning was made, shown or not.
    `quiet`: nobody else hears of it."""

    __slots__ = ("heard", "flagged", "quiet", "outer", "show", "waiting")

    def __init__(self, quiet: bool = False):
        self.quiet = quiet
        self.heard: AnyList = []
        self.flagged: set[Any] = set()

    def __enter__(self) -> "Listening":
        self.outer, self.show, self.waiting = OPEN.listener, warnings.showwarning, OPEN.unfinished
        OPEN.unfinished = (*self.waiting, self)
        OPEN.listener, warnings.showwarning = self, self.shown  # type: ignore[assignment]
        return self

    def __exit__(self, *error: Any) -> None:
        self.end()
        OPEN.unfinished = self.waiting

    def end(self, error: Any = None) -> None:
        OPEN.listener, warnings.showwarning = self.outer, self.show

    def shown(self, message: Any, category: type, *rest: Any) -> None:
        self.heard.append((category, without_numbers(message)))
        if not self.quiet:
            self.show(message, category, *rest)

    def told(self, kind: str, mode: str) -> bool:
        """Notes an error of floating-point arithmetic.  Is it to be acted on?"""
        listener: Any = self
        while listener is not None:
            if mode == "warn":
                listener.flagged.add(kind)
            elif mode != "raise":
                listener.heard.append(kind)
            if listener.quiet:
                return mode in ("warn", "raise")
            listener = listener.outer
        return True


def ending(error: BaseException | None, heard: AnyList) -> AnyTuple:
    """How an operation ended, to be compared: the class and the text of what it raised, and what was heard."""
    return type(error), without_numbers(error), *heard


def without_numbers(message: Any) -> str:
    return re.sub(r"[-+.\w]*\d[-+.\w]*|-?\b(nan|inf)\b", "#", str(message))


# --- NumPy's own functions, for code that runs under a transform ---

MISSING = object()


def changed(handler: Handler, all: Any, modes: AnyDict, call: Any = MISSING) -> Handler:
    given = {**(dict.fromkeys(handler.modes, all) if all is not None else {}), **{k: v for k, v in modes.items() if v is not None}}
    with np.errstate(**given, **({} if call is MISSING else {"call": call})):  # refuses what NumPy refuses
        pass
    return Handler({**handler.modes, **given}, handler.user if call is MISSING else call)


class errstate(contextlib.ContextDecorator):
    __doc__ = np.errstate.__doc__

    def __init__(self, *, call: Any = MISSING, all: Any = None, **modes: Any) -> None:
        self.given = {"call": call, "all": all, "modes": modes}

    def _recreate_cm(self) -> Any:
        return errstate(call=self.given["call"], all=self.given["all"], **self.given["modes"])

    def __enter__(self) -> None:
        now = current()
        if now is None:
            given = {k: self.given[k] for k in ("call", "all") if self.given[k] is not MISSING and self.given[k] is not None}
            self.context = np.errstate(**given, **self.given["modes"])
        else:
            new = changed(now, **self.given)
            self.context = np.errstate(**new.settings(), call=new)
        self.context.__enter__()

    def __exit__(self, *error: Any) -> None:
        self.context.__exit__(*error)


def seterr(all: Any = None, divide: Any = None, over: Any = None, under: Any = None, invalid: Any = None) -> Any:
    now, modes = current(), {"divide": divide, "over": over, "under": under, "invalid": invalid}
    if now is None:
        return np.seterr(all, **modes)
    new = changed(now, all, modes)
    np.seterr(**new.settings())
    np.seterrcall(new)
    STATE.changed = True
    return now.modes


def geterr() -> Any:
    now = current()
    return np.geterr() if now is None else dict(now.modes)


def seterrcall(func: Any) -> Any:
    now = current()
    if now is None:
        return np.seterrcall(func)
    np.seterrcall(Handler(now.modes, func))
    STATE.changed = True
    return now.user


def geterrcall() -> Any:
    now = current()
    return np.geterrcall() if now is None else now.user
