"""Memory handed to code that knows nothing of tapegrad: `numpy.asarray(x)` there, compiled functions, x.data, x.ctypes, numpy.nditer,
SciPy's output=.

`lend(x)` gives an array over the memory of an untracked handle.  Whoever has it, or a view of it, may read and write it at any
time, so no record may hold that memory: what records hold stays with them, and the handle moves.  While the array is alive, the
handle is on loan: its trace is a `Loan`, below all transforms, and it is read by copy each time.  When it is given back (a weak
reference tells), a handle that moved and was not written moves back, so that what was only read costs nothing later."""

import weakref
from typing import Any

import numpy as np

from .arrays import is_array, kept, xp_of
from .errors import AliasError
from .primitive import READ, SAMPLED, Ended, bind, handle, is_tracked, live, refresh, values_of
from .typing import Params
from .variable import Variable, View, copied, frozen, is_saved, variable


class Moving(int):
    """The version of a handle on loan: whatever a view has seen is out of date."""

    def __ne__(self, other: Any) -> bool:
        return True

    def __eq__(self, other: Any) -> bool:
        return False

    def __add__(self, n: Any) -> Any:
        return self

    __hash__ = int.__hash__


class Memory:
    """The base of an array that is lent: views of that array refer to it, not to what owns its memory, and so keep it alive."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, a: np.ndarray):
        self.__array_interface__, self.owner = a.__array_interface__, a


class Loan(Ended):
    """One handle's memory in other hands."""

    __slots__ = ("memory", "given", "kept")
    lent, over = True, False
    given: Any

    def __init__(self, x: Variable):
        """x, of level 0, moves to memory that nobody holds, and that is lent."""
        super().__init__()
        self.level = 0.1
        before, version = None, getattr(x, "_version", 0)
        if is_saved(x) or (not version and x._value.base is not None):
            before = x._value
            x._value = kept(before)
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

        given = np.asarray(Memory(self.memory))
        self.given = weakref.ref(given, end)
        x._trace, x._slot, x._version = self, None, Moving(1)
        self.kept = given  # until `lend` has it

    def now(self) -> np.ndarray:
        return kept(self.memory)  # type: ignore[no-any-return]

    def apply(self, prim: Any, args: Any, params: Params) -> Any:
        if prim is READ:
            return handle(prim.run(self.memory, path=params["path"], at=params["at"], copy=True))
        return bind(prim, [variable(self.now()) if isinstance(a, Variable) and a._trace is self else a for a in args], params)

    def write(self, prim: Any, x: Any, path: Any, y: Any, at: Any) -> None:
        """What is written in place is seen by whoever has the memory; a derivative would be lost there."""
        if is_tracked(y):
            raise AliasError(
                "x[...] = y: x was handed out as a plain array (to numpy.asarray, a compiled function, x.data or x.ctypes), and whoever "
                "has it would not see the derivative of y; hand out tapegrad.value(x).copy()"
            )
        if type(y) is View:
            refresh(y)
        y = self.now() if y is x else values_of(y)
        prim.run(self.memory, y, path=path, at=at)


def lend(x: Any, for_ever: bool = False) -> Any:
    """The array under an untracked Variable for code that may write it and keep it.  `for_ever`: nothing will tell when it is given
    back.  Other objects, and members of lists, tuples and dicts, likewise."""
    if not isinstance(x, Variable):
        if type(x) is dict:
            return {k: lend(v) for k, v in x.items()}
        return type(x)([lend(v) for v in x]) if type(x) in (list, tuple) else x
    base, path = (x._base, x._path) if type(x) is View else (x, ())
    if base._trace is not None and base._trace.visibility == SAMPLED:  # captured under a vmap: whoever has it may read it
        given = values_of(x)
        if is_array(given):
            given = kept(given)
            if xp_of(given) is np:
                given.flags.writeable = False
                base._trace.handed = True
                if for_ever:  # an address knows nothing of that
                    base._trace.pointed.append((given, given.copy()))
        return given
    if base._trace is not None and not base._trace.lent:  # of a transform that has ended
        base._become(frozen(live(base)))
        base._saved = True
    if isinstance(base._value, np.ndarray):
        loan = base._trace
        if loan is None:
            loan = Loan(base)
            given, loan.kept = loan.kept, None
        else:
            given = loan.given()
        if for_ever:
            loan.kept = given
    elif isinstance(base._value, np.generic):
        return base._value
    else:  # CuPy: nobody tells when it is given back
        if is_saved(base):
            base._become(copied(base))
        base._version = getattr(base, "_version", 0) + 1
        given = base._value
    return READ.run(given, path=path, at=None, copy=False)
