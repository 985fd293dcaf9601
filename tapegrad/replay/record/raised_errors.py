"""Errors of operations in a recording: that one is raised, and caught by the function, is a condition like
that of a branch."""

import warnings
from typing import Any

from ..._core.errors import let_through
from ..._core.float_errors import ErrorListener, Handler, ending, modes_of_setting
from ..._core.primitive import Primitive
from ..._core.scope import now, put, scope_block, setting
from .instructions import instruction_form

SILENT = setting(**dict.fromkeys(("divide", "over", "under", "invalid"), "ignore"))


def conditions(prim: Primitive, params: dict, error: Exception, loud: bool) -> dict:
    """The settings of `RAISED` for an operation that has raised this error.  `loud`: a floating-point error
    may have become one."""
    handler = Handler(modes_of_setting(now()), None)
    found = setting(**handler.settings(), call=handler) if loud else SILENT
    filters = [*warnings.filters] if isinstance(error, Warning) else None
    return {"prim": prim, "params": params, "modes": found, "filters": filters, "ended": ending(error, [])}


def raises_again(*operands, prim: Primitive, params: dict, modes, filters: list | None, ended: tuple) -> bool:
    """Does the operation raise the error that it raised when it was recorded?"""
    if filters is not None:
        with warnings.catch_warnings():
            now_in_force: Any = warnings.filters
            now_in_force[:] = filters
            return raises_again(*operands, prim=prim, params=params, modes=modes, filters=None, ended=ended)
    error, before = None, now()
    try:
        with scope_block(), ErrorListener(True) as told:
            put(modes)
            instruction_form(prim)[0](*operands, **params)
    except Exception as e:
        let_through(e)
        error = e
    put(before)
    return ending(error, told.heard) == ended


RAISED = Primitive("raised", raises_again)
