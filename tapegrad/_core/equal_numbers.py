"""Comparisons for equality in the libraries' own Python code, where both sides are equal.

NumPy's and SciPy's code takes a shorter way where a number is exactly 0 or 1, or where steps are equal.
That way has the value, and may lack the derivative. `OPEN.equalities` notes the places of such
comparisons during one call. In another run of the call they answer as for unequal numbers."""

from typing import Any

from .errors import package_of_frame
from .primitive import has_derivative
from .reverse import known
from .scope import OPEN
from .searches import shown
from .typing import AnyTuple
from .variable import Variable

FOLLOWED_LIBRARIES = ("numpy", "scipy")


class Equalities:
    """`apart`: the places at which a number with a derivative equals no other.  `met`: the other places at
    which one was equal, with the number that was last compared there."""

    __slots__ = ("apart", "met")

    def __init__(self, apart: frozenset[AnyTuple]) -> None:
        self.apart, self.met = apart, dict[AnyTuple, Variable]()


def are_apart(a: Any, b: Any, frame: Any) -> bool:
    """Does the comparison of a with b in the `frame` take them for unequal?"""
    noted = OPEN.equalities
    if noted is None or a is b or package_of_frame(frame) not in FOLLOWED_LIBRARIES or not has_derivative(a):
        return False
    place = frame.f_code, frame.f_lasti
    if place not in noted.apart and equal_somewhere(a, b):
        noted.met[place] = a
    return place in noted.apart


def equal_somewhere(a: Any, b: Any) -> bool:
    try:
        return bool((known(shown(a))[0] == known(shown(b))[0]).any())
    except (AttributeError, TypeError, ValueError):
        return False
