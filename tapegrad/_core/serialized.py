"""Numbers that a function under a transform has written into texts and files.

Texts and files hold plain values, so printing and saving work. A number that the function reads back from
them would have lost its derivative in silence. The outermost open call keeps a hash of each number in such a
text, and of the content of each saved array. Of a number that `%` formats only the value is known, and a
number in a text that is a rounding of it counts. Followed code that reads numbers compares."""

import re
from typing import Any

import numpy as np

from .errors import DroppedDerivativeError
from .scope import OPEN

NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d+)?")  # not an integer


def hashes(x: Any) -> set[int]:
    """Of the numbers in a text, or of the content of an array of floats."""
    if isinstance(x, bytes):
        x = x.decode(errors="replace")
    if isinstance(x, str):
        return {hash(float(number)) for number in NUMBER.findall(x)}
    return {hash(x.tobytes())} if isinstance(x, np.ndarray) and x.dtype.kind in "fc" else set()


def note_written(x: Any) -> None:
    """A text, or an array that is saved, has values of tracked Variables."""
    if OPEN.shadows:
        outermost = OPEN.shadows[0]
        if not outermost.written_numbers:
            outermost.written_numbers = set()
        outermost.written_numbers.update(hashes(x))


def note_formatted(x: float) -> None:
    """A text has x, rounded in some way."""
    if OPEN.shadows:
        outermost = OPEN.shadows[0]
        if not outermost.formatted_numbers:
            outermost.formatted_numbers = set()
        outermost.formatted_numbers.add(x)


def has_rounding(text: Any, values: set[float]) -> bool:
    """Is a number in the text one of the values, rounded to the digits that the text shows?"""
    text = text.decode(errors="replace") if isinstance(text, bytes) else text
    for number in NUMBER.findall(text) if isinstance(text, str) else ():
        mantissa, _, exponent = number.lower().partition("e")
        digits = len(mantissa.partition(".")[2]) - int(exponent or 0)
        shown, half = float(number), 0.500001 * 10.0**-digits
        if any([abs(shown - v) <= half for v in values]):
            return True
    return False


def refuse_written(x: Any, call: str) -> None:
    """Raise if a text or array that `call` reads contains what an open call has written."""
    if not OPEN.shadows:
        return
    written, formatted = OPEN.shadows[0].written_numbers, OPEN.shadows[0].formatted_numbers
    if written and not written.isdisjoint(hashes(x)) or formatted and has_rounding(x, formatted):
        raise DroppedDerivativeError(
            f"{call} reads numbers that this function wrote into a text or file while they were tracked; "
            "this would drop their derivative in silence; use the values themselves, numpy.round(x, n) "
            "in place of a "
            "rounded text, or write tapegrad.value(x) into the text"
        )
