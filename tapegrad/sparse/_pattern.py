"""The sparsity pattern of a recorded program: sets of inputs are carried through its instructions.

A pattern is found at one point. With `scope="global"` it holds wherever the recording does: `select`
contributes both branches, and an index that depends on x contributes all places. With `scope="local"` the
branches and indices are those of the point, and `conditions` are the values that decide them. Other values
that were read, such as zeros of matrices, come from captured arrays. The pattern holds while those arrays,
listed in `relied`, are unchanged."""

import numpy as np
import scipy.sparse

from .._core.arrays import is_array, xp_of
from .._core.errors import ArgumentError
from .._core.scope import now, put
from .._dispatch.random import DRAW
from ..replay.program import QUIET, Program, run_instruction
from ..replay.record.instructions import LAID, PART, Instruction
from ._rules import names_of
from ._sets import IndexSets

SCOPES = ("global", "local")


class AbstractValue:
    """Shape and dtype of a value without its numbers."""

    __slots__ = ("shape", "dtype", "ndim")

    def __init__(self, shape: tuple, dtype):
        self.shape, self.dtype, self.ndim = shape, dtype, len(shape)


class DependencySets:
    """The dependency sets of all values of a program, with respect to one of its inputs."""

    def __init__(self, program: Program, values: list, scope: str):
        """Run the rules; `values` are those of the program's inputs, the differentiated one first."""
        self.program, self.scope = program, scope
        self.at = dict(program.code)
        self.env = dict(zip(program.arguments, values, strict=True))
        self.env.update(dict(program.captured))
        self.env.update(program.constants)
        self.on_device = any([is_array(v) and xp_of(v) is not np for v in self.env.values()])
        x = values[0]
        self.sets = IndexSets(int(np.prod(np.shape(x))))
        self.names = {program.arguments[0]: self.sets.singles(np.shape(x))}
        # the captured arrays that each value is made of; None: it depends on arguments
        self.sources: dict = {
            **dict.fromkeys(program.arguments),
            **{k: frozenset((k,)) for k, _ in program.captured},
        }
        self.sources.update(dict.fromkeys(program.constants, frozenset()))
        self.drawn: set = set()  # values that random generators draw anew at each call
        # values that change only with integer arguments; they serve as indices
        self.placing = {
            k for k, v in zip(program.arguments, values, strict=True) if is_array(v) and v.dtype.kind in "iu"
        }
        self.relied = set()
        self.conditions = set()
        for k, i in program.code:
            self.carry(k, i)

    def carry(self, k: int, i: Instruction) -> None:
        sources = [self.sources[j] for j in i.args]
        self.sources[k] = None if None in sources or i.prim is DRAW else frozenset().union(*sources)
        if i.prim is DRAW or not self.drawn.isdisjoint(i.args):
            self.drawn.add(k)
        elif None in sources and all(
            [s is not None or j in self.placing for j, s in zip(i.args, sources, strict=True)]
        ):
            self.placing.add(k)
        sets: list = [self.names.get(j) for j in i.args]
        if all([s is None for s in sets]):
            return
        if i.prim is PART:
            found = sets[0][i.params["at"]]
        elif i.prim is LAID:
            found = sets[0]
        else:
            several = i.prim.multi or self.program.shown[k][3] is None  # or it is a Python number
            out = self.value(k) if several else self.looks(k)
            found = names_of(self, i, sets, [self.looks(j) for j in i.args], out)
        if found is not None:
            self.names[k] = found

    def looks(self, k: int):
        """Return the value if it is known, otherwise its shape and dtype."""
        if k in self.env:
            return self.env[k]
        _, shape, _, dtype, _ = self.program.shown[k]
        return AbstractValue(shape, dtype)

    def value(self, k: int):
        """Return the value of an instruction, computed on demand."""
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
                for j in sorted(needed):  # operands have lower numbers than their instruction
                    i = self.at[j]
                    self.env[j] = run_instruction(i, [self.env[a] for a in i.args])
            finally:
                put(before)
        return self.env[k]

    def known(self, k: int, local: bool = False) -> bool:
        """Return whether a rule may read the value k; if so, the pattern relies on that value."""
        sources = self.sources[k]
        if sources is not None:
            self.relied |= sources
            return True
        if local and k not in self.drawn and (self.scope == "local" or k in self.placing):
            self.conditions.add(k)
            return True
        return False

    def matrix(self, shape: tuple) -> scipy.sparse.csr_array:
        """Return the pattern of the only output."""
        (k, _), *_ = self.program.outputs
        m = int(np.prod(shape))
        names = self.names.get(k)
        names = np.zeros(m, np.int64) if names is None else names
        indptr, indices = self.sets.rows(names)
        return boolean(indptr, indices, (m, self.sets.n))


def asked_of(program: Program, numbers: list, guards: dict | None = None) -> Program | None:
    """Return the part of the program that computes these values and checks their guards.

    With guards, instructions that may raise are kept as well, because an exception may decide a branch."""
    may_raise = () if guards is None else program.may_raise
    if not numbers and not guards and not may_raise:
        return None
    needed, pairs = {*numbers, *(guards or ()), *may_raise}, []
    for k, i in reversed(program.code):
        if k in needed:
            needed.update(i.args)
            pairs.append((k, i))
    part = program.with_code(reversed(pairs))
    part.outputs, part.written = [(k, None) for k in numbers], []
    part.guards = guards or {}
    return part


def boolean(indptr, indices, shape: tuple) -> scipy.sparse.csr_array:
    """Return a boolean matrix with sorted column indices; all other modules rely on that order."""
    made = scipy.sparse.csr_array((np.ones(len(indices), np.bool_), indices, indptr), shape=shape)
    made.has_sorted_indices = made.has_canonical_format = True
    return made


def given_pattern(call: str, pattern, shape: tuple) -> scipy.sparse.csr_array:
    """Convert a pattern of the user: the stored entries of a sparse matrix, the nonzeros of a dense one."""
    if scipy.sparse.issparse(pattern):
        coo = pattern.tocoo()
        found = scipy.sparse.csr_array((np.ones(coo.nnz, np.bool_), (coo.row, coo.col)), shape=coo.shape)
    else:
        pattern = pattern.get() if is_array(pattern) and xp_of(pattern) is not np else np.asarray(pattern)
        if pattern.ndim != 2 or pattern.dtype.kind not in "biufc":
            raise ArgumentError(
                f"{call}: a pattern is a matrix, sparse or of booleans; got shape {pattern.shape}, "
                f"{pattern.dtype}"
            )
        found = scipy.sparse.csr_array(pattern != 0)
    if found.shape != shape:
        raise ArgumentError(f"{call}: the pattern has shape {found.shape}, the matrix of derivatives {shape}")
    found.sum_duplicates()
    found.sort_indices()
    return boolean(found.indptr, found.indices, shape)
