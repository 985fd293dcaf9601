"""Shorter ways of the libraries' Python code at exactly equal numbers.

A call of followed code is run again, with each comparison that found a tracked number equal to another
answered as for unequal numbers. If the values are the same, that run has the derivatives: its formula holds
nearby too. Otherwise the first run stands. If the general formula has another value, the derivative with
respect to the compared number is not known, and nan."""

import functools
import warnings
from collections.abc import Callable

import numpy as np

from .._core.arrays import IMMUTABLE, is_array, is_differentiable, xp_of
from .._core.equal_numbers import Equalities
from .._core.errors import heard, let_through, take_back
from .._core.primitive import layout_of
from .._core.reverse import known
from .._core.scope import OPEN, changed, quiet
from .._core.searches import shown
from .._core.trees import children, is_node, tree_map
from .._core.variable import HANDLES
from ..ops.declare import dtype, shape
from ..ops.indexing.gathering import without
from .namespaces import Carrier

MOST_PLACES = 8  # runs of a call, for as many places


def in_general(f: Callable, args: tuple, kwargs: dict):
    """f(*args, **kwargs), with the derivatives of the general way where a shorter one has been taken."""
    if OPEN.equalities is not None or not may_repeat(args) or kwargs and not may_repeat(kwargs):
        return f(*args, **kwargs)
    first, met = noted_run(f, args, kwargs, frozenset())
    y, apart, tried, lost = first, frozenset(), set(), []
    while (left := [place for place in met if place not in tried]) and len(tried) < MOST_PLACES:
        tried.add(place := left[0])
        before = heard()
        try:
            with quiet(), warnings.catch_warnings(action="ignore"):
                other, found = noted_run(f, args, kwargs, apart | {place})
        except Exception as error:
            let_through(error)
            take_back(before)
            if not isinstance(error, ArithmeticError) and "math domain" not in str(error):
                continue  # the arguments are checked there, or nothing else is defined
            other = found = None  # the general formula has no value
        if found is not None and agree(first, other):
            y, apart, met = other, apart | {place}, met | found
        elif not shape(met[place]):
            lost.append(met[place])
    for x in lost:
        y = tree_map(lambda v, x=x: without(v, x) if is_differentiable(layout_of(v)) else v, y)
    return y


def generalised(f: Callable) -> Callable:
    """f, of which each call is such a one."""
    return functools.wraps(f)(lambda *args, **kwargs: in_general(f, args, kwargs))


def noted_run(f: Callable, args: tuple, kwargs: dict, apart: frozenset) -> tuple:
    """(the result, the places of the other comparisons that found equal numbers)"""
    with changed(equalities=(noted := Equalities(apart))):
        return f(*args, **kwargs), noted.met


def may_repeat(x) -> bool:
    """Do the arguments x have no state that a call changes?"""
    if isinstance(x, (list, tuple)):
        return all(map(may_repeat, x))
    if isinstance(x, dict):
        return x.get("out") is None and all(map(may_repeat, x.values()))
    return (
        type(x) in IMMUTABLE
        or type(x) in HANDLES
        or is_array(x)
        or isinstance(x, (np.generic, type, Carrier))
    )


def agree(x, y) -> bool:
    """Are two results the same up to rounding?"""
    xs, ys = parts_of_result(x), parts_of_result(y)
    if xs or ys:
        return len(xs) == len(ys) and all(map(agree, xs, ys))
    if not is_differentiable(layout_of(x)):
        return bool(np.all(x == y))
    a, b = [known(shown(v))[0] for v in (x, y)]
    if np.ndim(a) == 1 == np.ndim(b) and len(a) < len(b) and not b[len(a) :].any():
        b = b[: len(a)]  # coefficients of 0 that the shorter way leaves out
    if np.shape(a) != np.shape(b) or dtype(a) != dtype(b):
        return False
    lib, digits = xp_of(a), np.finfo(dtype(a)).eps ** 0.5
    return bool(lib.allclose(a, b, digits, digits * float(lib.abs(a).max(initial=0.0)), equal_nan=True))


def parts_of_result(x) -> list:
    """The parts of a tree, or of an object of ours; none of an array."""
    return list(vars(x).values()) if isinstance(x, Carrier) else children(x) if is_node(x) else []
