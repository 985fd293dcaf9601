"""Lent memory: arrays for code that does not know tapegrad, such as compiled functions.

It is lent by `numpy.asarray(x)` in such code, by x.data, x.ctypes, numpy.nditer and SciPy's output=.

`lend(x)` returns an array over the memory of an untracked handle. Its holder may read and write that
memory at any time, also through views. So no record may refer to it: records keep their memory, and
the handle moves to new memory. While the array is alive, the handle is on loan. Its trace is a `MemoryLoan`,
below all transforms, and each read copies. A weak reference tells when the array is released. A handle
that moved but was not written then moves back, so a mere read costs nothing later."""

import weakref
from typing import Any

import numpy as np

from .arrays import address, copy_with_layout, is_array, xp_of
from .errors import AliasError, asks_attribute
from .primitive import (
    READ,
    SAMPLED,
    TransparentTrace,
    bind,
    handle,
    is_tracked,
    layout_of,
    live,
    path_to_owner,
    refresh,
    values_of,
)
from .typing import Params
from .variable import Variable, View, copied, frozen, is_saved, variable


class LoanVersion(int):
    """The version of a handle on loan; every view of it is out of date."""

    def __ne__(self, other: Any) -> bool:
        return True

    def __eq__(self, other: Any) -> bool:
        return False

    def __add__(self, n: Any) -> Any:
        return self

    __hash__ = int.__hash__


class LentMemory:
    """The base of a lent array. Views of that array refer to it, not to the owner of the memory, and so
    keep it alive."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, a: np.ndarray):
        self.__array_interface__, self.owner = a.__array_interface__, a


class MemoryLoan(TransparentTrace):
    """The trace of one handle whose memory is lent."""

    __slots__ = ("memory", "given", "kept")
    lent = True
    given: Any

    def __init__(self, x: Variable):
        """Move the handle x, of level 0, to memory without other holders, and lend that."""
        super().__init__()
        self.level = 0.1
        before, version = None, getattr(x, "_version", 0)
        if is_saved(x) or (not version and x._value.base is not None):
            before = x._value
            x._value = copy_with_layout(before)
            x._value.flags.writeable = before.flags.writeable
        self.memory, self.kept = x._value, None

        def end(_: Any) -> None:
            self.given = None
            if x._trace is not self:
                return
            x._trace = None
            if before is not None and before.tobytes() == self.memory.tobytes():
                x._value, x._version, x._saved = before, version, True
            else:
                x._version, x._saved = version + 1, False

        given = np.asarray(LentMemory(self.memory))
        self.given = weakref.ref(given, end)
        x._trace, x._slot, x._version = self, None, LoanVersion(1)
        self.kept = given  # until `lend` takes it

    def now(self) -> np.ndarray:
        return copy_with_layout(self.memory)  # type: ignore[no-any-return]

    def apply(self, prim: Any, args: Any, params: Params) -> Any:
        if prim is READ:
            return handle(prim.run(self.memory, path=params["path"], at=params["at"], copy=True))
        return bind(
            prim,
            [variable(self.now()) if isinstance(a, Variable) and a._trace is self else a for a in args],
            params,
        )

    def write(self, prim: Any, x: Any, path: Any, y: Any, at: Any) -> None:
        """Write in place, so that the holder of the memory sees it. Raises for a tracked value, whose
        derivative would be lost."""
        if is_tracked(y):
            raise AliasError(
                "x[...] = y: x was handed out as a plain array (to numpy.asarray, a compiled function, "
                "x.data or x.ctypes), and whoever "
                "has it would not see the derivative of y; hand out tapegrad.value(x).copy()"
            )
        if type(y) is View:
            refresh(y)
        y = self.now() if y is x else values_of(y)
        prim.run(self.memory, y, path=path, at=at)


def lend(x: Any, for_ever: bool = False) -> Any:
    """The array of an untracked Variable, for code that may write it and keep it. `for_ever`: its release
    cannot be observed. Lists, tuples and dicts are searched for Variables; other objects are returned
    as they are."""
    if not isinstance(x, Variable):
        if type(x) is dict:
            return {k: lend(v) for k, v in x.items()}
        return type(x)([lend(v) for v in x]) if type(x) in (list, tuple) else x
    base, path = path_to_owner(x)
    # captured under a vmap: whoever has it may read it
    if base._trace is not None and base._trace.visibility == SAMPLED:
        given = values_of(x)
        if is_array(given):
            given = copy_with_layout(given)
            if xp_of(given) is np:
                given.flags.writeable = False
                base._trace.handed = True
                if for_ever:  # an address does not keep the array alive
                    base._trace.pointed.append((given, given.copy()))
        return given
    if base._trace is not None and not base._trace.lent:  # belongs to a transform that has ended
        base._become(frozen(live(base)))
        base._saved = True
    if isinstance(base._value, np.ndarray):
        loan = base._trace
        if loan is None:
            loan = MemoryLoan(base)
            given, loan.kept = loan.kept, None
        elif loan.lent:
            given = loan.given()
        else:
            return np.asarray(x)  # raises: x is tracked
        if for_ever:
            loan.kept = given
    elif isinstance(base._value, np.generic):
        return base._value
    else:  # CuPy: the release cannot be observed
        if is_saved(base):
            base._become(copied(base))
        base._version = getattr(base, "_version", 0) + 1
        given = base._value
    return READ.run(given, path=path, at=None, copy=False)


def place_of_data(x: Any, frame: Any) -> dict[str, Any]:
    """`x.__array_interface__`: the place of the data, which code that is followed may compare.  C code finds
    no interface, with which NumPy would take the memory first."""
    if not asks_attribute(frame):
        raise AttributeError("__array_interface__")
    return {"data": (address(layout_of(x)), False)}
