"""Searches by comparisons in the user's code: bisection, golden sections.

Comparisons have no derivative, so what such a search finds lacks one.  It is known by the margins of the
comparisons at one place, which are the differences of the two sides.  The margins shrink geometrically, both
answers keep occurring, and the derivative of the margin does not shrink as the margin does.  So a smaller
and smaller change of the arguments would change an answer.  In Newton's method, in a line search and in a
sum of a series the derivative shrinks with the margin."""

import dis
import math
import warnings
from typing import Any

import numpy as np

from .errors import NonDifferentiableWarning, opcode_at, package_of_frame, stack
from .primitive import layout_of
from .reverse import SWEEPING, known
from .scope import now, put
from .typing import AnyFunction, AnyTuple
from .variable import HANDLES, Variable

LEAST_MARGIN = 1e-12  # a margin below this part of the sides counts as zero
MOST_VISITS = 40  # after so many a place is left alone, unless a run is going on
SHRINKING_RUN = 8  # comparisons in a row, each margin below a bound that falls by this factor:
FALL_OF_BOUND = 0.8
NEAR_ENOUGH = 1e-3  # the largest bound of a distance to a stored number
ZERO = 0.0  # the other side of a sign
COMPARE_OP = dis.opmap["COMPARE_OP"]
HOST_NUMBERS = (np.ndarray, np.generic, float, int)
SEEN_ELEMENTS = 64  # elements of an array that are looked at
REST_OF_MARGIN = 0.02  # what a run leaves of the first margin
SHRINKING_POWER = (
    2 / 3
)  # a derivative that falls by less than this power of the margin does not shrink with it
TOLD: dict[str, Any] = {}  # file -> what Python has shown of its lines


class ComparisonSearch:
    """The comparisons at one place, which may be a search."""

    __slots__ = (
        "bound", "equal", "first", "flips", "found", "margin", "over", "place", "positive", "run", "text",
        "visits",
    )  # fmt: skip
    bound: float
    equal: AnyTuple | None  # the place, if an argument was equal, or near enough, to a stored number
    first: AnyTuple
    flips: Any
    found: AnyTuple | None
    margin: float
    over: bool  # is the place left alone?
    place: AnyTuple
    positive: Any
    run: int

    def __init__(self) -> None:
        self.visits, self.run, self.bound, self.found, self.over = 0, 0, 0.0, None, False
        self.equal, self.text = None, EQUAL_TEXT

    def visit(self, trace: Any, sides: AnyTuple, values: AnyTuple, frame: Any) -> None:
        """Note a comparison of two `sides`, of which the trace follows one or both, with their `values`."""
        self.visits += 1
        if self.visits == 1:
            if is_near(sides, values) and package_of_frame(frame) not in ("numpy", "scipy"):
                self.equal = frame.f_code.co_filename, frame.f_lineno
            return
        d = difference(*values)
        if d is None or self.visits > MOST_VISITS and self.run == 0:
            self.over = True
            return
        if type(d) is float:
            margin, positive = abs(d), d > 0
        else:
            margin, positive = float(np.abs(d).max(initial=0.0)), d > 0
        if margin == 0.0:
            return
        self.bound *= FALL_OF_BOUND
        if not margin <= self.bound or np.shape(positive) != np.shape(self.positive):
            self.run, self.flips = 0, 0
            self.bound = margin if margin < np.inf else 0.0
        else:
            self.run += 1
            self.flips = self.flips + (positive != self.positive)
            if self.run == 1:
                self.first = margin, sensitivity(trace, sides)
            larger = max(margin, self.margin)
            if (
                self.run >= SHRINKING_RUN
                and larger <= REST_OF_MARGIN * self.first[0]
                and np.max(self.flips) > 1
            ):
                self.over = not (sides[1] is ZERO or is_comparison(frame))
                if not self.over:
                    self.found = (*self.first, larger, sensitivity(trace, sides))
                    self.place = frame.f_code.co_filename, frame.f_lineno
        self.margin, self.positive = margin, positive


def is_near(sides: AnyTuple, values: AnyTuple) -> bool:
    """Is a distance of zero below a small bound, as where an argument is compared with a stored number?"""
    x, y = values
    if not (isinstance(x, HOST_NUMBERS) and isinstance(y, HOST_NUMBERS)):
        return False
    for side, distance, bound in (sides[0], x, y), (sides[1], y, x):
        if isinstance(side, Variable) and not first_element(distance):
            if np.size(bound) and not np.any(distance) and 0 < np.max(np.abs(bound)) <= NEAR_ENOUGH:
                return True
    return False


def first_element(x: Any) -> Any:
    return x.size and x.flat[0] if type(x) is np.ndarray else x


def is_comparison(frame: Any) -> bool:
    """Does the code itself compare, and not a function of C, as `sort`?  An integrator whose steps are cut
    down where the right-hand side jumps searches nothing."""
    own = opcode_at(frame) == COMPARE_OP
    return own and not any([".integrate" in (f.f_globals.get("__name__") or "") for f in stack()])


def new_search(trace: Any, place: int) -> ComparisonSearch:
    found = trace.searches[place] = ComparisonSearch()
    return found


def note_comparison(sides: AnyTuple, frame: Any) -> None:
    """Two sides are compared for their order, in the `frame`."""
    sides = tuple([shown(side) for side in sides])
    for side in sides:
        if isinstance(side, Variable) and (trace := side._trace) is not None:
            place = id(frame.f_code) + frame.f_lasti  # in the memory of the code
            search = trace.searches.get(place) or new_search(trace, place)
            if not search.over:
                search.visit(trace, sides, tuple([known(side)[0] for side in sides]), frame)
            return


def may_agree(found: Any, answer: bool) -> bool:
    """May this be the answer for all elements? (One is looked at.)"""
    if type(found) is np.ndarray:
        return found.size > 0 and bool(found.item(0)) is answer
    return type(found) in (bool, np.bool_) and bool(found) is answer


def note_equality(sides: AnyTuple, frame: Any) -> None:
    """Two sides are compared for equality, in the `frame`. NumPy and SciPy have no memos, and a number that
    the code writes is no stored one."""
    sides = tuple([shown(side) for side in sides])
    traces = [side._trace if isinstance(side, Variable) else None for side in sides]
    if (trace := traces[0] or traces[1]) is None or None not in traces:
        return
    place = id(frame.f_code) + frame.f_lasti
    if place in trace.searches:
        return
    a, b = [known(side)[0] for side in sides]
    if not (isinstance(a, HOST_NUMBERS) and isinstance(b, HOST_NUMBERS) and np.size(a)):
        return
    if not np.array_equal(a, b):
        return
    search = new_search(trace, place)
    search.over = True
    written = np.ndim(a) == 0 and a in [x for x in frame.f_code.co_consts if type(x) in (int, float)]
    if not written and package_of_frame(frame) not in ("numpy", "scipy"):
        search.equal = frame.f_code.co_filename, frame.f_lineno


def note_loss(x: Variable, frame: Any, text: str | None = None) -> None:
    """In the `frame` the hash of x is taken, as where x is looked up in a dict, or something else without a
    derivative.  `text`: of the warning."""
    place = id(frame.f_code) + frame.f_lasti
    if (trace := x._trace) is None or place in trace.searches:
        return
    new_search(trace, place).over = True
    if isinstance(x := shown(x), Variable) and x._trace is not None:
        search = new_search(x._trace, place)
        search.over, search.equal = True, (frame.f_code.co_filename, frame.f_lineno)
        search.text = text or EQUAL_TEXT


def shown(x: Any) -> Any:
    """x where its values are hidden: what is under it."""
    if type(x) not in HANDLES:
        return x
    layout_of(x)  # (this reads a view)
    while isinstance(x, Variable) and x._trace is not None and x._trace.visibility:
        x = x._trace.held(x)
    return x


def difference(x: Any, y: Any) -> Any:
    """x - y as a float, or some elements of it; zero where it is rounding error.  None where it is not real,
    or on a device."""
    if not (isinstance(x, HOST_NUMBERS) and isinstance(y, HOST_NUMBERS)):
        return None
    before = now()
    try:
        if type(x) is not np.ndarray and type(y) is not np.ndarray:
            x, y = float(x), float(y)
            return x - y if abs(x - y) > LEAST_MARGIN * abs(x) else 0.0
        put(SWEEPING)
        if max(np.size(x), np.size(y)) > SEEN_ELEMENTS:
            x, y = [a.flat[:: a.size // SEEN_ELEMENTS] for a in np.broadcast_arrays(x, y)]
        d = np.subtract(x, y, dtype=float)
        return np.where(np.abs(d) > LEAST_MARGIN * np.abs(x), d, 0.0)
    except (TypeError, ValueError):
        return None
    finally:
        put(before)


def sensitivity(trace: Any, sides: AnyTuple) -> Any:
    """The derivative of the margin: in forward mode its size, in reverse mode the seeds of a sweep that gives
    it."""
    seeds, tangent, size = [], 0.0, max([shape_size(side) for side in sides])
    for side, sign in zip(sides, (1, -1), strict=True):
        if not isinstance(side, Variable) or side._trace is not trace:
            continue
        if trace.holds:
            tangent = tangent + sign * known(side._slot)[0]
        else:
            like = layout_of(side)
            seed = np.full(like.shape, sign * size / max(shape_size(side), 1), like.dtype)
            seeds.append((side._slot, seed if like.ndim else seed[()]))
    return seeds or float(np.max(np.abs(tangent), initial=0.0))


def shape_size(x: Any) -> int:
    return math.prod(getattr(layout_of(x), "shape", ()))


def tell_searches(trace: Any, size_of: AnyFunction, connected: bool = True) -> None:
    """Warn of the searches that this trace has met, each at its place.  `size_of` gives the size of a
    derivative that is kept as seeds.  `connected`: does a result depend on what the trace follows?"""
    for search in trace.searches.values():
        if search.equal is not None and not connected:
            warn_at(search.equal, search.text)
        if search.found is not None:
            before, first, now, last = search.found
            first, last = [size_of(d) if type(d) is list else d for d in (first, last)]
            if last > 0 and last >= first * (now / before) ** SHRINKING_POWER:
                warn_at(search.place, SEARCH_TEXT)


def warn_at(place: tuple[str, int], text: str) -> None:
    file, line = place
    warnings.warn_explicit(text, NonDifferentiableWarning, file, line, registry=TOLD.setdefault(file, {}))


EQUAL_TEXT = (
    "the result does not depend on the argument, which was equal or near to a stored number here, or hashed: "
    "if an earlier call has left the result, as in a memo, its derivative is lost, and the gradient of 0 is "
    "wrong. Empty the memo, or use functools.cache, which is followed"
)
ROUNDED_TEXT = (
    "the result does not depend on the argument, except through a rounding here, which has no derivative: "
    "the gradient of 0 is wrong if the rounding is for display. Remove it, or differentiate what is rounded"
)
SEARCH_TEXT = (
    "a number is found by comparisons here, as by bisection, which have no derivative: the derivative of "
    "that number is lost. Write scipy.optimize.brentq(f, a, b), or tapegrad.implicit.root; or make the "
    "search with tapegrad.value(x) in place of x, and after it one step of Newton's method with x"
)
