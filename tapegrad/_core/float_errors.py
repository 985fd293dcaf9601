"""Floating-point warnings as in a plain call: only for values, at the user's line, and as `np.errstate`
says.

NumPy reports a division by zero at the line that called it, which would be one of tapegrad's. It also
cannot tell a value from a tangent. So NumPy calls a `Handler` while a function runs under a transform.
The handler inspects the frames. It is silent in a forward rule (`_core.forward.FORWARD`), and
otherwise acts for the caller's frame. Reverse sweeps suppress their own flags (`_core.reverse.pull`).

Control flow can depend on the errors and warnings of an operation. `ErrorListener` notes those that the
user's code can observe. `ending` turns them into a value that can be compared."""

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
    "+": "add", "-": "subtract", "*": "multiply", "/": "divide", "**": "power", "//": "floor_divide",
    "%": "remainder", "@": "matmul",
}  # fmt: skip
SCALAR = frozenset(SYMBOLS.values())
NUMPYS = {"power_n": "power", "sum": "reduce", "product": "dot"}  # name here -> name in NumPy


class Handler:
    """The error callback during a transform. `modes` and `user`: the user's modes and callback, from
    `np.errstate` or `np.seterr`."""

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
        mode, text = self.modes[KINDS[kind]], f"{kind} encountered in {operation_name(top)}"
        if OPEN.listener is not None and not OPEN.listener.told(KINDS[kind], mode):
            return
        if mode == "raise":
            raise FloatingPointError(text)
        if mode == "warn":
            space = frame.f_globals
            space = getattr(space, "real", space)  # a rebuilt function: the globals of its module
            registry = space.setdefault("__warningregistry__", {})
            warnings.warn_explicit(
                text,
                RuntimeWarning,
                frame.f_code.co_filename,
                frame.f_lineno,
                space.get("__name__"),
                registry,
            )
        elif mode == "print":
            print(f"Warning: {text}", file=sys.stderr)
        elif mode == "log":
            self.user.write(f"Warning: {text}\n")
        elif self.user is not None:
            self.user(kind, flag)

    def settings(self) -> AnyDict:
        return {name: mode if mode == "ignore" else "call" for name, mode in self.modes.items()}


def operation_name(frame: Any) -> str:
    """NumPy's name for the operation of a frame: that of a body, of a wrapper, or of an operator."""
    code, here = frame.f_code, frame.f_locals
    if code.co_filename.startswith(OURS):
        name = (
            here["self"].__name__
            if code.co_name == "__call__" and hasattr(here.get("self"), "__name__")
            else code.co_name
        )
        name = here["prim"].name if isinstance(here.get("prim"), Primitive) else name  # during recording
        name = NUMPYS.get(name, name)
        numbers = [here[n] for n in ("v", "w", "x", "y", "a", "b") if n in here]
        return f"scalar {name}" if name in SCALAR and not any(np.ndim(v) for v in numbers) else name
    found = next((i for i in dis.get_instructions(code) if i.offset == frame.f_lasti), None)
    return (  # type: ignore[no-any-return]
        SYMBOLS.get(found.argrepr.rstrip("="), code.co_name)
        if found is not None and found.opname == "BINARY_OP"
        else code.co_name
    )


def current() -> Any:
    """The active handler, or None."""
    found = np.geterrcall()
    return found if type(found) is Handler else None


class ErrorState(threading.local):
    changed = False  # was `seterr` or `seterrcall` called since the outermost transform of this thread began?


STATE = ErrorState()
HANDLERS: AnyDict = {}  # modes -> the handler without a callback of the user's, its setting
KNOWN: AnyDict = {}  # id of a setting in force -> that, and what `handler_around` gave for it; the last few


MISSED = (None, None)


def handler_around() -> AnyTuple:
    """(handler, setting) for a function that runs under the current setting. Inside another transform it
    is (None, active handler)."""
    modes = np.geterr()
    key = tuple(modes.values())
    found = HANDLERS.get(key)
    if found is None:
        user = np.geterrcall()
        if type(user) is Handler:
            return None, user
        handler = Handler(modes, user)
        found = handler, setting(**handler.settings(), call=handler)
        if "call" not in key and "log" not in key:  # no callback is involved
            HANDLERS[key] = found
    return found


def watch_errors() -> Any:
    """Make a handler active before the user's function runs, and return it. None if one is active
    already."""
    current = now()
    known, found = KNOWN.get(id(current), MISSED)
    if known is not current:
        found = handler_around()
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
    """Restore the setting after the user's function. Changes that it made with `np.seterr` persist, as
    after a plain call. `thorough`: look for such changes also where the function is not followed and
    calls NumPy's own `seterr`."""
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


# the filters of warnings, their number and the first of them, and what was found
LAST: tuple[Any, int, Any, str] = (None, 0, None, "")


def warned() -> str:
    """The action for a floating-point warning: "error" (possible), "ignore" (certain), or "show". (New
    filters are added in front.)"""
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


# --- what the user's code can observe ---

SHOWN = frozenset(("ignore", "warn"))
LOUD = "loud"  # an entry of `looked_at`: the user's code can observe an error


def modes_of_setting(setting: Any) -> Any:
    """The mode of each kind of error under the current setting."""
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
    """The kinds of floating-point errors that a plain call would show under this setting. It contains
    `LOUD` if code can observe one. `outside`: the warning filters around the function. `errors`:
    whether it can catch a warning."""
    own = warnings.filters is not outside  # set inside the function
    quiet = ("ignore", "warn") if own and warned() == "ignore" else ("ignore",)
    modes = modes_of_setting(setting)
    found = [kind for kind, mode in modes.items() if mode not in quiet]
    if found and (own or not SHOWN.issuperset(modes.values()) or (errors and warned() == "error")):
        found.append(LOUD)
    return tuple(found)


class ErrorListener:
    """A context that notes what the caller of an operation can observe.

    `heard`: the error kinds reported to a callback, and the classes and texts of shown warnings.
    `flagged`: the kinds that caused a warning, shown or not. `quiet`: whether contexts further out are
    not told."""

    __slots__ = ("heard", "flagged", "quiet", "outer", "show", "waiting")

    def __init__(self, quiet: bool = False):
        self.quiet = quiet
        self.heard: AnyList = []
        self.flagged: set[Any] = set()

    def __enter__(self) -> "ErrorListener":
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
        """Note a floating-point error. Returns whether it must be acted on."""
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
    """How an operation ended, as a comparable tuple: class and text of its exception, then what was
    heard."""
    return type(error), without_numbers(error), *heard


def without_numbers(message: Any) -> str:
    return re.sub(r"[-+.\w]*\d[-+.\w]*|-?\b(nan|inf)\b", "#", str(message))


# --- replacements of NumPy's functions under a transform ---

MISSING = object()


def setting_of(handler: Handler, all: Any, modes: AnyDict, call: Any = MISSING) -> Handler:
    given = {
        **(dict.fromkeys(handler.modes, all) if all is not None else {}),
        **{k: v for k, v in modes.items() if v is not None},
    }
    # raises for what NumPy does not accept
    with np.errstate(**given, **({} if call is MISSING else {"call": call})):
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
            given = {
                k: self.given[k]
                for k in ("call", "all")
                if self.given[k] is not MISSING and self.given[k] is not None
            }
            self.context = np.errstate(**given, **self.given["modes"])
        else:
            new = setting_of(now, **self.given)
            self.context = np.errstate(**new.settings(), call=new)
        self.context.__enter__()

    def __exit__(self, *error: Any) -> None:
        self.context.__exit__(*error)


def seterr(
    all: Any = None, divide: Any = None, over: Any = None, under: Any = None, invalid: Any = None
) -> Any:
    now, modes = current(), {"divide": divide, "over": over, "under": under, "invalid": invalid}
    if now is None:
        return np.seterr(all, **modes)
    new = setting_of(now, all, modes)
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
