"""Where a derivative does not exist and is set to zero: the length of zero, and what to say when a second derivative asks for more.

The first derivative of |x| at 0 is 0.  A second derivative there may be infinite, or finite by cancellation, as that of |x|^2 =
2 I, and no rule can tell from what it sees.  So a rule hands its result through `noted`: it is 0 there in every further
derivative, and where a tangent or cotangent that is not zero comes by, with a NonDifferentiableWarning.  (Not on a device: to
look would wait for it.)"""

import os
import sys
import warnings
from typing import Any

import numpy as np

from .._primitive import is_tracked, primal_of, seen
from ..errors import NonDifferentiableWarning
from ._define import primitive, rules

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
OTHERS = (PACKAGE, os.path.dirname(np.__file__) + os.sep, "<entry of", "<string>", "<frozen")


def users_frame() -> Any:
    """The innermost frame on the stack that is the user's."""
    frame = last = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(OTHERS):
        frame, last = frame.f_back, frame
    return last if frame is None else frame


def users_line() -> str:
    frame = users_frame()
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def warn(what: str, line: str) -> None:
    frame = users_frame()
    warnings.warn_explicit(
        f"{what} at zero ({line}): a second derivative does not exist there, or cannot be told; it is taken as 0. If the function is "
        "smooth, write it without the root, as (x * x).sum() for norm(x)**2; else keep away from zero",
        NonDifferentiableWarning, frame.f_code.co_filename, frame.f_lineno,
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )  # fmt: skip


def meets(v: Any, zero: Any) -> bool:
    """Is v, or any element of v where `zero` holds, not zero?  (Not if it may not be looked at.)"""
    v = seen(v)
    return v is not None and bool((np.asarray(v != 0) & zero).any())


@primitive(holomorphic=False)
def noted(y, x, *, zero, what, line, pulled, pushed):
    """y, a derivative found at x, which has the length zero where the mask `zero` holds.  y is a cotangent of x (`pulled`), or was
    found along the tangent `pushed`; of a rule that serves in both modes, either may be."""
    return y.copy()


def _noted_vjp(g, zero, what, line, pulled, pushed):
    if (pulled and meets(g, zero)) or (pushed is not None and meets(pushed, zero)):
        warn(what, line)


def _noted_jvp(t, zero, what, line, pulled, pushed):
    if t[1] is not None and meets(t[1], zero) and (pulled or meets(pushed, zero)):
        warn(what, line)
    return t[0]


rules(
    noted,
    lambda g, out, y, x, zero, what, line, pulled, pushed: g,
    lambda g, out, y, x, zero, what, line, pulled, pushed: _noted_vjp(g, zero, what, line, pulled, pushed),
    jvp=lambda t, out, y, x, zero, what, line, pulled, pushed: _noted_jvp(t, zero, what, line, pulled, pushed),
)


def note(y: Any, x: Any, zero: Any, what: str, line: str | None = None, pulled: bool = True, pushed: Any = None) -> Any:
    """`noted`, where there is anything to note: on the host, at a zero, of a value that is watched."""
    if not is_tracked(x) or seen(zero) is None or not zero.any():
        return y
    return noted(y, x, zero=zero, what=what, line=line or users_line(), pulled=pulled, pushed=None if pushed is None else primal_of(pushed))
