"""Which elements of a Jacobian can differ from zero: sets of inputs carried through the instructions of a recorded program.

A pattern is found at one point.  `scope="global"`: it holds wherever the recording does; of `select` it has both branches, of an index that
depends on x all places.  `scope="local"`: the branches and indices are those of the point; `conditions` are the values which say so.
What else was looked at, zeros of matrices say, comes from captured arrays, and holds as long as these do: `relied`."""

import copy
from typing import Any

import numpy as np
import scipy.sparse

from .._core.arrays import is_array, xp_of
from .._core.errors import ArgumentError
from .._core.scope import now, put
from .._dispatch.random import DRAW
from ..replay.program import LAID, PART, QUIET, Program, done
from ..replay.record.recorder import Instruction
from ._rules import names_of
from ._sets import Sets

SCOPES = ("global", "local")


class Look:
    """Shape and dtype."""

    __slots__ = ("shape", "dtype", "ndim")

    def __init__(self, shape: tuple, dtype: Any):
        self.shape, self.dtype, self.ndim = shape, dtype, len(shape)


class Carried:
    """The sets of all values of a program, by one of its inputs."""

    def __init__(self, program: Program, values: list, scope: str):
        """`values`: of the program's inputs, the differentiated one first."""
        self.program, self.scope = program, scope
        self.at = dict(program.code)
        self.env: dict = dict(zip(program.arguments, values, strict=True))
        self.env.update(dict(program.captured))
        self.env.update(program.constants)
        self.on_device = any([is_array(v) and xp_of(v) is not np for v in self.env.values()])
        x = values[0]
        self.sets = Sets(int(np.prod(np.shape(x))))
        self.names: dict = {program.arguments[0]: self.sets.singles(np.shape(x))}
        # of each value the captured arrays that it is made of; None: it depends on arguments
        self.sources: dict = {**dict.fromkeys(program.arguments), **{k: frozenset((k,)) for k, _ in program.captured}}
        self.sources.update(dict.fromkeys(program.constants, frozenset()))
        self.drawn: set = set()  # values that differ from call to call
        # values that are made of nothing else that may change than integer arrays among the arguments: they tell places
        self.placing = {k for k, v in zip(program.arguments, values, strict=True) if is_array(v) and v.dtype.kind in "iu"}
        self.relied: set = set()
        self.conditions: set = set()
        for k, i in program.code:
            self.carry(k, i)

    def carry(self, k: int, i: Instruction) -> None:
        sources = [self.sources[j] for j in i.args]
        self.sources[k] = None if None in sources or i.prim is DRAW else frozenset().union(*sources)
        if i.prim is DRAW or not self.drawn.isdisjoint(i.args):
            self.drawn.add(k)
        elif None in sources and all([s is not None or j in self.placing for j, s in zip(i.args, sources, strict=True)]):
            self.placing.add(k)
        sets = [self.names.get(j) for j in i.args]
        if all([s is None for s in sets]):
            return
        if i.prim is PART:
            found = sets[0][i.params]
        elif i.prim is LAID:
            found = sets[0]
        else:
            several = i.prim.multi or self.program.shown[k][3] is None  # or it is a number of Python's
            out = self.value(k) if several else self.looks(k)
            found = names_of(self, i, sets, [self.looks(j) for j in i.args], out)
        if found is not None:
            self.names[k] = found

    def looks(self, k: int) -> Any:
        """What stands for a value of which only shape and dtype are asked."""
        if k in self.env:
            return self.env[k]
        _, shape, _, dtype, _ = self.program.shown[k]
        return Look(shape, dtype)

    def value(self, k: int) -> Any:
        """The value of an instruction, worked out when it is asked for."""
        if k not in self.env:
            needed, asked = set(), [k]
            while asked:
                j = asked.pop()
                if j not in self.env and j not in needed:
                    needed.add(j)
                    asked += self.at[j].args
            before = now()
            try:
                put(QUIET)
                for j in sorted(needed):  # an instruction stands after its operands
                    i = self.at[j]
                    self.env[j] = done(i, [self.env[a] for a in i.args])
            finally:
                put(before)
        return self.env[k]

    def known(self, k: int, local: bool = False) -> bool:
        """May a rule look at the value number k?  Then the pattern holds as long as that is as it is."""
        sources = self.sources[k]
        if sources is not None:
            self.relied |= sources
            return True
        if local and k not in self.drawn and (self.scope == "local" or k in self.placing):
            self.conditions.add(k)
            return True
        return False

    def matrix(self, shape: tuple) -> scipy.sparse.csr_array:
        """The pattern of the one output."""
        (k, _), *_ = self.program.outputs
        m = int(np.prod(shape))
        names = self.names.get(k)
        names = np.zeros(m, np.int64) if names is None else names
        indptr, indices = self.sets.rows(names)
        return boolean(indptr, indices, (m, self.sets.n))


def asked_of(program: Program, numbers: list, guards: dict | None = None) -> Program | None:
    """What of the program gives the values of these numbers, and asks these of its conditions.  With conditions, all that may raise is
    done too: which way the function goes may depend on that."""
    may_raise = () if guards is None else program.may_raise
    if not numbers and not guards and not may_raise:
        return None
    part = copy.copy(program)
    needed, part.code = {*numbers, *(guards or ()), *may_raise}, []
    for k, i in reversed(program.code):
        if k in needed:
            needed.update(i.args)
            part.code.append((k, i))
    part.code.reverse()
    part.outputs, part.written = [(k, None) for k in numbers], []
    part.guards = guards or {}
    return part


def boolean(indptr: Any, indices: Any, shape: tuple) -> scipy.sparse.csr_array:
    """A pattern, in the order that all else goes by: indices rise in each row."""
    made = scipy.sparse.csr_array((np.ones(len(indices), np.bool_), indices, indptr), shape=shape)
    made.has_sorted_indices = made.has_canonical_format = True
    return made


def given_pattern(call: str, pattern: Any, shape: tuple) -> scipy.sparse.csr_array:
    """A pattern of the user's: a sparse or dense matrix, of which what is stored, or not zero, counts."""
    if scipy.sparse.issparse(pattern):
        coo = pattern.tocoo()
        found = scipy.sparse.csr_array((np.ones(coo.nnz, np.bool_), (coo.row, coo.col)), shape=coo.shape)
    else:
        pattern = pattern.get() if is_array(pattern) and xp_of(pattern) is not np else np.asarray(pattern)
        if pattern.ndim != 2 or pattern.dtype.kind not in "biufc":
            raise ArgumentError(f"{call}: a pattern is a matrix, sparse or of booleans; got shape {pattern.shape}, {pattern.dtype}")
        found = scipy.sparse.csr_array(pattern != 0)
    if found.shape != shape:
        raise ArgumentError(f"{call}: the pattern has shape {found.shape}, the matrix of derivatives {shape}")
    found.sum_duplicates()
    found.sort_indices()
    return boolean(found.indptr, found.indices, shape)
