"""Points where a derivative does not exist and is set to zero: lengths of zero, and the warning for their
second derivatives.

The first derivative of |x| at 0 is set to 0. A second derivative there may be infinite, or finite by
cancellation, like that of |x|^2 = 2 I. A rule cannot tell which from the values that it sees. So rules
pass their results through `noted`. Its further derivatives are 0 at such points, and a nonzero tangent
or cotangent there causes a NonDifferentiableWarning. On a device this happens only under
`detect_anomalies`, because it must synchronise. Under a trace that hides values, `vmap` warns for any
sample, and a recording has the guard that nothing is zero."""

import functools
import sys
import warnings
from collections.abc import Callable
from types import CodeType, FunctionType

import numpy as np

from .._core.arrays import is_array
from .._core.errors import NonDifferentiableWarning, callers_line, users_frame
from .._core.primitive import SAMPLED, is_tracked, live, primal_of, seen, truth_of, watching
from .._core.variable import Variable
from .declare import primitive, rules, xp


def warn_user(text: str, kind: type) -> None:
    """Issue a warning at the user's line."""
    at_users_line(warnings.warn, text, kind)


CALL = (lambda f, args, kwargs: f(*args, **kwargs)).__code__


def at_users_line(f: Callable, *args, **kwargs):
    """`f(*args, **kwargs)`, called from two frames that stand for the user's. A warning of f's at the line
    of its caller, or of the caller of that, is at the user's."""
    frame = users_frame() or sys._getframe(1)
    code = call_at(frame.f_code.co_filename, frame.f_lineno)
    call = FunctionType(code, getattr(frame.f_globals, "real", frame.f_globals))
    return call(call, (f, args, kwargs), {})


@functools.lru_cache(4096)
def call_at(file: str, line: int) -> CodeType:
    """The code of a call that stands at this line."""
    return CALL.replace(co_filename=file, co_firstlineno=line)


def warn_nondifferentiable(what: str, line: str | None) -> None:
    warn_user(
        f"{what} at zero ({line}): a second derivative does not exist there, or cannot be told; it is taken "
        f"as 0. If the function is "
        "smooth, write it without the root, as (x * x).sum() for norm(x)**2, or z.real**2 + z.imag**2 for "
        "abs(z)**2; else keep away from zero",
        NonDifferentiableWarning,
    )


def meets_nonzero(v, zero) -> bool:
    """Is v nonzero in any element where `zero` holds? (False if the values cannot be read.)"""
    if is_unreadable(v) or is_unreadable(zero):
        return warns_somewhere((primal_of(v) != 0) & primal_of(zero))
    v, zero = readable_values(v), readable_values(zero)
    return v is not None and zero is not None and bool((np.asarray(v != 0) & zero).any())


def is_unreadable(v) -> bool:
    return isinstance(primal_of(v), Variable)


def of_all_samples(x):
    """The values of x in all samples."""
    v = primal_of(x)
    while isinstance(v, Variable) and v._trace.visibility == SAMPLED:
        slot = live(v)._slot
        v = primal_of(getattr(slot, "value", slot))
    return v


def holds_somewhere(condition) -> bool:
    """Does a condition hold for any element of any sample? In a recording the answer is a guard. On a
    device, where looking would wait, the answer is no."""
    v = of_all_samples(condition)
    return xp(v) is np and truth_of(v.any())


def warns_somewhere(condition) -> bool:
    """`holds_somewhere` for a warning, which each call gives. So the recording is valid for its own call
    only."""
    found, v = holds_somewhere(condition), of_all_samples(condition)
    if found and isinstance(v, Variable):
        v._trace.unkept = f"{callers_line()}: a derivative of a length at zero"
    return found


def readable_values(v):
    """The values of v if they may be read, else None. On a device only while a watcher is active, because
    it must synchronise."""
    found = seen(v)
    if found is None and watching():
        found = primal_of(v)
        return found.get() if is_array(found) else None
    return found


@primitive(holomorphic=False, batch=lambda run, stacks, params: stacks[0].copy(), total=True)
def noted(y, x, *, zero, what, line, pulled, pushed):
    """y, a derivative at x, whose length is zero where the mask `zero` holds. y is a cotangent of x
    (`pulled`), or was found along the tangent `pushed`. For a rule of both modes, it may be either."""
    return y.copy()


def _noted_vjp(g, out, y, x, zero, what, line, pulled, pushed):
    if (pulled and meets_nonzero(g, zero)) or (pushed is not None and meets_nonzero(pushed, zero)):
        warn_nondifferentiable(what, line)


def _noted_jvp(t, out, y, x, zero, what, line, pulled, pushed):
    if t[1] is not None and meets_nonzero(t[1], zero) and (pulled or meets_nonzero(pushed, zero)):
        warn_nondifferentiable(what, line)
    return t[0]


rules(
    noted,
    lambda g, out, y, x, zero, what, line, pulled, pushed: g,
    _noted_vjp,
    jvp=_noted_jvp,
)


def note_zero(y, x, zero, what: str, line: str | None = None, pulled: bool = True, pushed=None):
    """`noted` if it can matter: on the host, at a zero length, for a tracked x."""
    if not is_tracked(x):
        return y
    if is_unreadable(zero):
        if primal_of(x) is live(x) or not warns_somewhere(zero):
            return y
    elif (found := readable_values(zero)) is None or not found.any():
        return y
    return noted(
        y,
        x,
        zero=zero,
        what=what,
        line=line or callers_line(),
        pulled=pulled,
        pushed=None if pushed is None else primal_of(pushed),
    )
