"""What the instructions of a recording are, and how operations are done in it."""

import functools
import math
import operator
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy import bool_, ndarray

from ..._core.arrays import NUMBERS, is_array, is_scalar, room_laid, xp_of
from ..._core.errors import Attempt, spelt
from ..._core.primitive import READ, Primitive
from ..._dispatch.random import DRAW
from ...ops.zero_derivative import ArgumentPlaceholder


def copy_with_strides(v, shape: tuple, strides: tuple):
    """A copy of v with these strides."""
    fresh = room_laid(xp_of(v), shape, strides, v.dtype)
    fresh[...] = v
    return fresh


ARGUMENT, CAPTURED, CONSTANT = [Primitive(name, None) for name in ("argument", "captured", "constant")]
GROUP = Primitive("group", None)  # stands for several (fusion.groups.py), which its settings are
PART = Primitive("part", lambda x, at: x[at])  # one of several results
IS_COMPLEX = Primitive("is_complex", lambda x: bool_(x.dtype.kind == "c"))
LAID = Primitive("laid", copy_with_strides)  # a copy in another memory order
INPUTS, STRUCTURAL = (ARGUMENT, CAPTURED, CONSTANT), (ARGUMENT, CAPTURED, CONSTANT, PART, LAID)
PART.total, IS_COMPLEX.total, LAID.batch = True, True, "moves"


@functools.cache
def part_settings(at: int) -> dict:
    """The settings of one of several results: one object for all instructions."""
    return {"at": at}


@functools.lru_cache(1024)
def laid_settings(shape: tuple, strides: tuple) -> dict:
    """The settings of a memory order, likewise."""
    return {"shape": shape, "strides": strides}


class Instruction:
    """`prim` is the operation, or one of the words above; `args` the numbers of its operands.  `watched`:
    which flags of floating-point arithmetic a plain call would look at."""

    __slots__ = ("prim", "args", "params", "watched")

    def __init__(self, prim, args: tuple = (), params=None, watched: tuple = ()):
        self.prim, self.args, self.params, self.watched = prim, args, params, watched

    @property
    def name(self) -> str:
        return self.prim.name

    @property
    def reduces(self) -> str | None:
        """How it combines elements along axes."""
        return self.prim.reduces


class InstructionList(Sequence):
    """The instructions of a program as pairs (number, instruction), which are made when they are asked for.
    `numbers`, `what`, as (operation, settings, flags), and `operands` are the columns."""

    __slots__ = ("numbers", "operands", "what")

    def __init__(self, numbers: list, what: list, operands: list):
        self.numbers, self.what, self.operands = numbers, what, operands

    @classmethod
    def of_pairs(cls, pairs: Iterable) -> "InstructionList":
        """Return the list of these pairs."""
        each = [(k, (i.prim, i.params, i.watched), i.args) for k, i in pairs]
        return cls(*[[row[n] for row in each] for n in range(3)])

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator:
        for k, (prim, params, watched), ks in zip(self.numbers, self.what, self.operands, strict=True):
            yield k, Instruction(prim, ks, params, watched)

    def __getitem__(self, at):
        if type(at) is slice:
            return [*InstructionList(self.numbers[at], self.what[at], self.operands[at])]
        prim, params, watched = self.what[at]
        return self.numbers[at], Instruction(prim, self.operands[at], params, watched)


@dataclass(eq=False, slots=True)
class Guard:
    """A condition on which a program holds: the value number `k` is `value` (its truth, if `truth`)."""

    k: int
    value: Any
    truth: bool
    place: tuple[str, int]  # file and line of the user's code
    raised: str = ""  # the error of an operation that it is about

    def __str__(self) -> str:
        place = spelt(self.place)
        if self.raised:
            return f"{place}: {self.raised} is no longer raised"
        what = "a condition" if self.truth else "a value that the function asked for"
        return f"{place}: {what} is no longer {self.value!r}"


def vector_product(x, y):
    """Of NumPy's vectors and matrices `dot` is the same BLAS call as `@`, with half of the way to it."""
    return x.dot(y) if type(x) is type(y) is ndarray and 0 < x.ndim < 3 and 0 < y.ndim < 3 else x @ y


SHORTER = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "@": vector_product,
}  # by operator, of two arrays
WAYS: dict = {}  # how they are done (`instruction_form`)


def is_pure(prim: Primitive) -> bool:
    """Is it an operation of tapegrad's own that acts on its results alone?  (A function of the user's may count
    its calls.)"""
    if prim.external:
        return False
    return prim.declared or (prim.vjp is None and prim is not DRAW)


def instruction_form(prim: Primitive) -> tuple:
    """(its body, is it pure?, does its result own its memory, and that alone?)"""
    found = WAYS.get(prim)
    if found is None:
        run = SHORTER.get(prim.infix, prim.run) if len(prim.vjp or ()) == 2 else prim.run
        found = run, is_pure(prim), not (prim.writes or prim.aliases or prim is READ)
        if found[1]:
            WAYS[prim] = found
    return found


WORDS = ("elementwise", "axis", "moves")  # of `batch`, of which `total` follows


def is_total(prim) -> bool:
    """Does it give a result for all numbers?  (Of integers, which may be indices, that is not said.)"""
    return prim.total or prim.linear or (is_pure(prim) and prim.batch in WORDS)


def ufunc_of(i):
    """The ufunc of an instruction without a derivative, where its operands are arrays and numbers and nothing
    is set."""
    prim, params = i.prim, i.params
    if prim.vjp is not None or type(params) is not dict or params.keys() != {"args", "kwargs"}:
        return None
    plain = not params["kwargs"] and all(
        [type(a) is ArgumentPlaceholder or type(a) in NUMBERS for a in params["args"]]
    )
    return prim.ufunc if plain else None


def is_of_another(out, values: list) -> bool:
    """May the result lie in the memory of an operand?  (It does not if it owns its memory, and is none of
    them.)"""
    if is_array(out):
        return out.base is not None or any([out is v for v in values])
    return not is_scalar(out)


LEAST_NUMBER = 1 << 40


def moved_places(f: Callable, shape: tuple):
    """The places of the elements that make up a linear function of an array of this shape, -1 for zeros; None
    if it does not only move elements.

    The numbers of the elements tell, and random complex integers: no combination of several gives both of
    one."""
    size = math.prod(shape)
    a = np.arange(LEAST_NUMBER, LEAST_NUMBER + size)
    b = np.random.default_rng(0).integers(1 << 40, 1 << 50, (size, 2)) @ (1, 1j)
    with Attempt() as tried:  # a body may take only its own kind of arrays
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a cast to real numbers, or to whole ones
            made, again = [np.asarray(f(v.reshape(shape))) for v in (a, b)]
            at = made.astype(np.int64) - LEAST_NUMBER
    if tried.failed or made.dtype.kind not in "if":
        return None
    at = np.where((at >= 0) & (at < size), at, -1)
    same = (np.append(b, 0)[at] == again) & ((at >= 0) | (made == 0))
    return at if same.all() else None
