"""Comparisons for equality in the libraries' own Python code, where both sides are equal.

NumPy's and SciPy's code takes a shorter way where a number is exactly 0 or 1, or where steps are equal.
That way has the value, and may lack the derivative. `OPEN.equalities` notes the places of such
comparisons during one call. In another run of the call they answer as for unequal numbers."""

from typing import Any

from .errors import frame_outside, package_of_frame
from .primitive import has_derivative, truth_of
from .reverse import known
from .scope import OPEN
from .searches import shown
from .typing import AnyFunction, AnyTuple
from .variable import Variable

FOLLOWED_LIBRARIES = ("numpy", "scipy")


class Equalities:
    """`apart`: the places at which a number with a derivative equals no other.  `met`: the other places at
    which one was equal, with the number that was last compared there."""

    __slots__ = ("apart", "met")

    def __init__(self, apart: frozenset[AnyTuple]) -> None:
        self.apart, self.met = apart, dict[AnyTuple, Variable]()


def are_apart(sides: AnyTuple, frame: Any, equal: AnyFunction) -> bool:
    """Does the comparison of two sides in the `frame` take them for unequal? `equal(*sides)`: are they
    equal?"""
    noted = OPEN.equalities
    if noted is None or sides[0] is sides[1] or package_of_frame(frame) not in FOLLOWED_LIBRARIES:
        return False
    tracked = [side for side in sides if has_derivative(side)]
    place = frame.f_code, frame.f_lasti
    if tracked and place not in noted.apart and equal(*sides):
        noted.met[place] = tracked[0]
    return bool(tracked) and place in noted.apart


def truth(x: Variable) -> bool:
    """bool(x), which compares x with zero."""
    if OPEN.equalities is not None and are_apart((x, 0.0), frame_outside("tapegrad"), equal_somewhere):
        return True
    return truth_of(x)


def equal_somewhere(a: Any, b: Any) -> bool:
    try:
        return bool((known(shown(a))[0] == known(shown(b))[0]).any())
    except (AttributeError, TypeError, ValueError):
        return False
