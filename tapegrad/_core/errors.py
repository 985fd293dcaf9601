"""The exceptions.  Each is a `TapegradError` and also the builtin that a caller would expect; the text says
what happened, where, and what to write instead."""

import ctypes
import dis
import functools
import inspect
import itertools
import linecache
import math
import re
import signal
import sys
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np

from .scope import OPEN
from .typing import AnyList

PUBLIC = "tapegrad.errors"  # the module of these classes, for users and pickles


class TapegradError(Exception):
    """Base class of every error raised by tapegrad."""

    __module__ = PUBLIC

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__module__ == __name__:
            cls.__module__ = PUBLIC


def heard() -> int:
    """How many errors this thread has heard so far: those after them may be taken back."""
    return len(OPEN.dropped or ())


def take_back(known: int, texts: Any = None) -> None:
    """What was raised after the first `known` errors has been seen to by another way: it dropped nothing.
    `texts`: those of them only."""
    if OPEN.dropped is not None:
        OPEN.dropped[known:] = [] if texts is None else [d for d in OPEN.dropped[known:] if d[1] not in texts]


def let_through(error: BaseException) -> None:
    """Raise an error again that a handler of a signal raised, such as that of a time limit.

    It may come anywhere, and no other way of the call takes its place."""
    if isinstance(error, TapegradError) and error.__cause__ is None:
        return
    handlers = [signal.getsignal(n) for n in range(1, signal.NSIG)]
    codes = [code_called(handler) for handler in handlers if callable(handler)]
    cause: BaseException | None = error
    while codes and cause is not None:
        if any([frame.f_code in codes for frame, _ in traceback.walk_tb(cause.__traceback__)]):
            raise cause
        cause = cause.__cause__


def code_called(f: Any) -> Any:
    """The code that a call of f runs first, or None."""
    f = inspect.unwrap(getattr(f, "func", f))
    f = f if hasattr(f, "__code__") or inspect.ismethod(f) else type(f).__call__
    return getattr(f, "__code__", None)


class Attempt:
    """A block that tries one way of a call: ``with Attempt() as tried``.  An exception ends the block, and
    `failed` tells so: what it dropped is taken back, and another way takes the place of this one.

    Exceptions of the classes `raised`, or not of the classes `of`, leave the block, as do those of signal
    handlers."""

    __slots__ = ("failed", "known", "of", "raised")

    def __init__(self, *raised: type[Exception], of: Any = Exception):
        self.raised, self.of, self.failed, self.known = raised, of, False, heard()

    def __enter__(self) -> "Attempt":
        return self

    def __exit__(self, kind: Any, error: Any, _: Any) -> bool:
        if not isinstance(error, self.of) or isinstance(error, self.raised):
            return False
        let_through(error)
        take_back(self.known)
        self.failed = True
        return True


class OfTracked(TapegradError):
    """An error that a plain call would not have met: one that an `except` clause swallows is raised again
    when the transform ends, for what took the place of the value has not its derivative."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        dropped = OPEN.dropped
        if dropped is not None:
            place, text = callers_line(), str(self)
            if place is not None:
                dropped.append((type(self), text, place))
                if place not in text:
                    self.args = (f"{place}: {quoted(callers_code())}{text}",)


class DroppedDerivativeError(OfTracked, TypeError):
    """A tracked value was about to become a plain number or array, which would drop its derivative in
    silence."""


class BatchError(OfTracked, TypeError):
    """A function under `vmap` asked for a value that differs from sample to sample: by `if`, an index, a
    shape or a conversion."""


class NotScalarError(TapegradError, TypeError):
    """A gradient was asked of a function whose value is not a real scalar."""


class ArgumentError(TapegradError, TypeError):
    """An argument cannot be differentiated, or does not fit what the call needs."""


class DeviceError(TapegradError, TypeError):
    """Arrays of two libraries or two devices met in one operation."""


class NoRuleError(OfTracked, NotImplementedError):
    """An operation without a derivative rule met a tracked value."""


class ShapeError(TapegradError, ValueError):
    """Shapes do not fit together."""


class DataError(TapegradError, ValueError):
    """Observations that a model cannot use: infinite ones, or too few."""


class AliasError(TapegradError, RuntimeError):
    """Two arguments, or an argument and a captured array, share memory and one of them is written."""


class RouteError(TapegradError, RuntimeError):
    """A captured array was written, and the function can reach it by a way that is not followed, or it was
    changed by one."""


class GuardError(TapegradError, RuntimeError):
    """A recorded computation met a branch or shape other than the recorded one, a recomputation other
    values."""


class KernelError(TapegradError, RuntimeError):
    """A kernel could not be built or launched."""


class ConvergenceError(TapegradError, RuntimeError):
    """An optimiser stopped before it reached a maximum, a solver before it reached a solution."""


class RankError(TapegradError, RuntimeError):
    """A rank of a parallel program has failed, or the ranks do not do the same."""


class AnomalyError(OfTracked, FloatingPointError):
    """Under `detect_anomalies`: a nan or inf, with the operation that made it."""


class NotPositiveDefiniteError(TapegradError, np.linalg.LinAlgError):
    """A matrix that must be positive definite is not."""


class SingularError(TapegradError, np.linalg.LinAlgError):
    """A solution does not depend on its parameters in a differentiable way: the matrix of the linear system
    is singular."""


class NonDifferentiableWarning(RuntimeWarning):
    """A second derivative where there is none, or none that can be told, was taken as zero; or a number was
    found by comparisons."""

    __module__ = PUBLIC


class DenseWarning(UserWarning):
    """A sparse matrix has rows so full that it costs as much as a dense one."""

    __module__ = PUBLIC


class ReplayWarning(RuntimeWarning):
    """A prepared function runs, from now on or in some calls, without a replay.  Results are right, and take
    longer.  The text says why, and the report of the prepared function repeats it."""

    __module__ = PUBLIC


# --- errors that were swallowed ---

# libraries that are left alone
UNKNOWING = frozenset(("pandas", "torch", "jax", "tensorflow", "matplotlib", "mpl_toolkits", "h5py"))
LIBRARIES = (
    frozenset(sys.stdlib_module_names - {"__main__"})
    | {"tapegrad", "numpy", "scipy", "cupy", "cupyx"}
    | UNKNOWING
)
TEXT = frozenset(("logging", "pprint", "reprlib", "traceback", "pdb", "bdb"))  # what is lost there is text


def package_of_frame(frame: Any) -> str:
    return package_of(frame.f_globals.get("__name__"))


@functools.cache
def package_of(module: str | None) -> str:
    return (module or "").partition(".")[0]


INSTRUCTIONS: dict[
    int, tuple[Any, bytes]
] = {}  # id of a code object -> (it, its instructions, which Python makes anew each time)


def opcode_at(frame: Any) -> int:
    """The opcode that a frame is at."""
    found = INSTRUCTIONS.get(id(frame.f_code))
    if found is None:
        if len(INSTRUCTIONS) > 4095:
            INSTRUCTIONS.clear()
        found = INSTRUCTIONS[id(frame.f_code)] = frame.f_code, frame.f_code.co_code
    at: int = frame.f_lasti
    while found[1][at] == CACHE:  # behind the instruction, where Python 3.12 has specialised it
        at -= 2
    return found[1][at]


CACHE = dis.opmap["CACHE"]


def asks_attribute(frame: Any) -> bool:
    """Is this a frame of code that is followed, at an attribute that it names?"""
    return type(frame.f_globals) is not dict and opcode_at(frame) in LOADS


LOADS = frozenset(dis.opmap[name] for name in ("LOAD_ATTR", "LOAD_METHOD") if name in dis.opmap)


def stack() -> Iterator[Any]:
    """The frames that are running, from the one that asks outwards."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def steps_of(error: BaseException) -> Iterator[Any]:
    """The steps of its traceback, the outermost first."""
    step = error.__traceback__
    while step is not None:
        yield step
        step = step.tb_next


def is_library(frame: Any) -> bool:
    """Is the code of this frame ours, or a library's?"""
    return package_of_frame(frame) in LIBRARIES


def frame_outside(package: str) -> Any:
    """The innermost frame outside of a package."""
    return next((f for f in stack() if package_of_frame(f) != package), None)


def users_frame() -> Any:
    """The innermost frame of the user's code; None where there is none."""
    frame: Any = sys._getframe(1)
    while frame is not None and package_of(frame.f_globals.get("__name__")) in LIBRARIES:
        frame = frame.f_back
    return frame


def users_place() -> tuple[str, int]:
    """(file, line) of the user's code that is running."""
    frame = users_frame()
    return ("an unknown place", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def spelt(place: tuple[str, int]) -> str:
    return f"{place[0]}:{place[1]}" if place[1] else place[0]


def callers_line() -> str | None:
    """'file:line' of the user's code that is running; None if it only asks for text."""
    return (
        None
        if any([package_of_frame(f) in TEXT for f in itertools.takewhile(is_library, stack())])
        else spelt(users_place())
    )


def callers_code() -> str:
    """The expression there that is being worked out; empty where its source is not known, or is long."""
    frame = users_frame()
    if frame is None:
        return ""
    line, last, first_column, last_column = next(
        itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), (None,) * 4
    )
    if line is None or line != last or first_column is None:
        return ""
    whole = linecache.getline(frame.f_code.co_filename, line)
    text = whole.encode()[first_column:last_column].decode(errors="replace")
    # a[i] = x: the whole of it
    if dis.opname[opcode_at(frame)] in ("STORE_SUBSCR", "STORE_SLICE"):
        text = whole.strip()
    return text if len(text) <= 60 else ""


def quoted(code: str) -> str:
    """An expression before what is wrong with it, with NumPy's name for a function of `math`."""
    if not code:
        return ""
    found = re.match(r"(?:math\.)?(\w+)\(", code)
    name = found.group(1) if found and hasattr(math, found.group(1)) else ""
    name = {"lgamma": "gammaln"}.get(name, name)
    instead = f"numpy.{name}" if hasattr(np, name) else f"scipy.special.{name}"
    return f"`{code}`" + (f" (write {instead}(x)): " if name else ": ")


def compiled_code_refusal(error: BaseException, dropped: AnyList) -> TapegradError | None:
    """What compiled code says, in our words: of an error of ours that it met and replaced by one of its own
    (`SystemError` of scipy.optimize.brentq, `error` of fsolve), or of a tracked value that it refused for
    what it is."""
    kind, text = type(error), str(error)
    if dropped and (
        kind is SystemError or kind.__name__ == "error" or text.startswith("setting an array element")
    ):
        kind, text, place = dropped[-1]
        return kind(f"{place}: {text}")  # type: ignore[no-any-return]
    if kind not in (TypeError, ctypes.ArgumentError) or not REFUSED.search(text):
        return None
    place, raised = "", False
    for step in steps_of(error):
        code = step.tb_frame.f_code
        if not is_library(step.tb_frame):
            place = f"{code.co_filename}:{step.tb_lineno}: "
        # by Python code: what it means is its own affair
        raised = dis.opname[code.co_code[step.tb_lasti]] == "RAISE_VARARGS"
    if raised:
        return None
    return DroppedDerivativeError(
        f"{place}compiled code, which takes no value that tapegrad follows, refused one ({text}). Write it "
        "with numpy's functions, operators and indexing (x[i], x[...] = y); or call it in a function f of "
        "arrays and use tapegrad.rule(f, vjp=...), or tapegrad.rule(f, jvp='differences'); or give it "
        "tapegrad.value(x), which has no derivative"
    )


def note_library(error: BaseException) -> None:
    """A note on an error from within a library that knows nothing of tapegrad."""
    place, root = "", ""
    for step in steps_of(error):
        found = package_of_frame(step.tb_frame)
        if found not in LIBRARIES:
            place, root = f"{step.tb_frame.f_code.co_filename}:{step.tb_lineno}", ""
        elif found in UNKNOWING:
            root = root or found
    if root and hasattr(error, "add_note"):
        error.add_note(
            f"{place}: this came from {root}, which does not know values that tapegrad follows. Use numpy's "
            f"functions in the function that is differentiated, and {root} outside of it, or on "
            "tapegrad.value(x), which has no derivative"
        )


REFUSED = re.compile(
    r"(?<!unhashable type: )'(Variable|View|Content)'(?! and )|not (Variable|View)|"
    r"from (Variable|View|numpy\.\w+) to|"
    "Iterator operand is flagged as writeable|"
    "(float|array) .*required, not (Variable|View)|"
    # of Cython and Pythran, which look for the code of an argument's type
    r"^No matching signature found$|^Function call with ambiguous argument types$|"
    r"^argument \d+: TypeError: wrong type$|"  # of ctypes
    r"^Invalid call to pythranized function .*\b(Variable|View)\b"
)


def heard_error(error: BaseException, dropped: AnyList, outer: Any) -> TapegradError | None:
    """An error has left the user's function: it has been heard, unless the function around an outer transform
    swallows it.  Gives what it is in our words, if compiled code raised it."""
    if outer is not None:
        outer.extend(dropped)
    if not isinstance(error, Exception) or isinstance(error, TapegradError):
        return None
    ours = compiled_code_refusal(error, dropped)
    if ours is None:
        note_library(error)
    return ours


def raise_swallowed(dropped: AnyList) -> None:
    """The user's function has returned: the first error that it swallowed is raised again."""
    kind, text, place = dropped[0]
    told = (
        f"{text} (an `except` clause has caught this error)"
        if kind is BatchError
        else f"{place}: an `except` clause caught the following error, and what was computed instead lacks "
        f"the derivative; where the "
        f"plain number is wanted, write tapegrad.value(x) on that line. The error was: {text}"
    )
    error = kind(told)
    error.args = (told,)  # its place is that of the error
    raise error
