"""`source` shows a loop program, `check` compares its derivatives."""

import itertools
import linecache
from collections.abc import Iterable
from typing import Any

import numpy as np

from .._core.errors import ArgumentError, KernelError
from .._core.registry import load
from .._core.variable import Variable
from .adjoint import adjoint
from .numba_device import launch_sizes
from .numba_program import NumbaProgram
from .operation import LoopOperation, programs_of
from .program import (
    DTYPES,
    FLOATS,
    SIGNS,
    Accumulate,
    Allocate,
    Block,
    Compute,
    For,
    If,
    Load,
    LoopArray,
    LoopProgram,
    Pop,
    Push,
    Scalar,
    Store,
)
from .races import search_races
from .reference import interpreted
from .tangent import tangent

DERIVATIVES = {"adjoint": adjoint, "tangent": tangent}
OPERATORS = {**SIGNS, "floordiv": "//", "mod": "%", "and": "and", "or": "or"}


class StructuredText:
    """The text of a program, with the user's lines as comments; a subclass writes a statement."""

    indent, comment = "    ", "# "

    def __init__(self, file: str, taken: Iterable[str] = ()):
        self.file, self.line = file, 0
        self.names: dict[Any, str] = {}
        self.taken = set(taken)
        self.lines: list[str] = []

    def put(self, depth: int, text: str) -> None:
        self.lines.append(self.indent * depth + text)

    def name(self, v) -> str:
        if v not in self.names:
            base = self.word(v)
            others = (f"{base}_{k}" for k in itertools.count(1))
            self.names[v] = next(n for n in itertools.chain((base,), others) if n not in self.taken)
            self.taken.add(self.names[v])
        return self.names[v]

    def word(self, v) -> str:
        """The first part of v's name, as an identifier."""
        return "".join([c if c.isalnum() else "_" for c in v.name.split(".")[0]]).strip("_") or "t"

    def block(self, block: Block, depth: int) -> None:
        for s in block.statements:
            if s.line and s.line != self.line:
                self.line = s.line
                text = linecache.getline(self.file, s.line).strip().rstrip("\\")
                if text:
                    self.put(depth, f"{self.comment}{s.line}: {text}")
            self.statement(s, depth)

    def statement(self, s, depth: int) -> None:
        raise NotImplementedError


class ProgramPrinter(StructuredText):
    """A program as text that resembles Python."""

    def __init__(self, p: LoopProgram):
        super().__init__(p.file)
        params = [self.name(q) for q in p.params]
        self.lines.append(f"def {p.name}({', '.join(params)}):")
        for a in p.arrays:
            self.put(
                1, f"{', '.join(map(self.name, a.shape))}{',' * (len(a.shape) == 1)} = {self.name(a)}.shape"
            ) if a.shape else None
        self.block(p.body, 1)
        self.put(1, "return " + ", ".join([*map(self.name, p.outs), *map(self.name, p.body.yields)]))

    def name(self, v) -> str:
        known = isinstance(v, Scalar) and v.number is not None
        return repr(v.number) if known else super().name(v)

    def at(self, s) -> str:
        return f"{self.name(s.array)}[{', '.join(map(self.name, s.index)) or '()'}]"

    def assign(self, targets, values, depth: int) -> None:
        if targets:
            self.put(depth, ", ".join(map(self.name, targets)) + " = " + ", ".join(map(self.name, values)))

    def statement(self, s, depth: int) -> None:
        match s:
            case Compute():
                x = list(map(self.name, s.args))
                text = f"{x[0]} {OPERATORS[s.op]} {x[1]}" if s.op in OPERATORS else f"{s.op}({', '.join(x)})"
                self.put(depth, f"{self.name(s.out)} = {text}")
            case Load():
                self.put(depth, f"{self.name(s.out)} = {self.at(s)}")
            case Store():
                self.put(
                    depth, f"{self.at(s)} {'+=' if isinstance(s, Accumulate) else '='} {self.name(s.value)}"
                )
            case Push():
                self.put(depth, f"{self.name(s.stack)}.append({self.name(s.value)})")
            case Pop():
                self.put(depth, f"{self.name(s.out)} = {self.name(s.stack)}.pop()")
            case Allocate():
                self.put(
                    depth, f"{self.name(s.array)} = zeros(({', '.join(map(self.name, s.array.shape))},))"
                )
            case If():
                self.put(depth, f"if {self.name(s.test)}:")
                for k, b in enumerate(s.blocks):
                    if k and (b.statements or s.results):
                        self.put(depth, "else:")
                    self.block(b, depth + 1)
                    self.assign(s.results, b.yields, depth + 1)
                    if not k and not (b.statements or s.results):
                        self.put(depth + 1, "pass")
            case _:
                self.loop(s, depth)

    def loop(self, s, depth: int) -> None:
        self.assign(s.results, s.inits, depth)
        head = (
            f"for {self.name(s.index)} in range({', '.join(map(self.name, s.bounds))}):"
            if isinstance(s, For)
            else "while True:"
        )
        self.put(depth, head)
        self.assign(s.args, s.results, depth + 1)
        self.block(s.body, depth + 1)
        self.assign(s.results, s.body.yields, depth + 1)
        if not isinstance(s, For):
            self.put(depth + 1, f"if not {self.name(s.test)}: break")


def program_of(f, args: tuple, launch, of_thread: bool = False) -> tuple[LoopProgram, list]:
    """The program of a function or kernel for these arguments, and their values."""
    if type(f).__name__ == "_JitRawKernel":
        kernels = load("tapegrad.loops.cuda_c.python_kernels")
        return kernels.program_of_launch(f, launch, args, of_thread)
    if not hasattr(f, "py_func"):
        raise ArgumentError(
            f"{getattr(f, '__name__', f)} was not made by numba.njit, numba.cuda.jit or cupyx.jit.rawkernel"
        )
    programs = programs_of(f)
    given = programs.arguments(args, {}, launch_sizes(launch) if programs.device else ())
    if of_thread:
        made = NumbaProgram(f.py_func, given, True, of_thread=True)
    else:
        made, _ = programs.program(f.py_func, given)
    programs.check(made, given.values)
    values = [*given.values, *made.constants]
    values += programs.new_arrays(made, values) if made.shapes is not None else []
    if any(isinstance(x, Variable) for x in values):
        raise ArgumentError("a loop program is looked at outside of transforms")
    arrays = [
        np.array(x, DTYPES[q.type]) if isinstance(q, LoopArray) else x
        for q, x in zip(made.program.params, values, strict=True)
    ]
    return made.program, arrays


def floats(p: LoopProgram) -> tuple[int, ...]:
    return tuple([k for k, q in enumerate(p.params) if q.type in FLOATS])


def source(f: Any, *args: Any, derivative: str | None = None, launch: tuple | None = None) -> str:
    """Show the loop program of a compiled function, or of its derivative.

    Parameters
    ----------
    f : function
        What ``numba.njit``, ``numba.cuda.jit`` or ``cupyx.jit.rawkernel`` made.
    *args
        Arguments of a call. Their types and numbers of axes choose the program.
    derivative : {'adjoint', 'tangent'}, optional
        Show the program of the reverse or the forward derivative by all real arguments.
    launch : tuple, optional
        (blocks, threads) of a kernel.

    Returns
    -------
    str
        Text that resembles Python. Comments hold the lines of the function.

    Raises
    ------
    tapegrad.errors.KernelError
        If the function has no loop program. The message says why, and where.

    See Also
    --------
    check : Compare the derivatives of a function.

    Examples
    --------
    >>> import numba, numpy as np, tapegrad as tg
    >>> @numba.njit
    ... def total(x):
    ...     s = 0.0
    ...     for k in range(x.shape[0]):
    ...         s += x[k] * x[k]
    ...     return s
    >>> print(tg.loops.source(total, np.ones(3)).splitlines()[0])
    def total(x):
    """
    p, _ = program_of(f, args, launch)
    return "\n".join(ProgramPrinter(derivative_of(p, derivative)).lines) + "\n"


def derivative_of(p: LoopProgram, derivative: str | None, wrt: tuple | None = None) -> LoopProgram:
    """The program of a derivative by all real parameters, or by these."""
    if derivative is not None and derivative not in DERIVATIVES:
        raise ArgumentError(f"derivative={derivative!r}: it is 'adjoint', 'tangent' or None")
    return p if derivative is None else DERIVATIVES[derivative](p, floats(p) if wrt is None else wrt)


def check(f, *args, launch: tuple | None = None, rtol: float = 1e-5, seed: int = 0) -> list[str]:
    """Check the loop program of a compiled function, and its derivatives, with these arguments.

    A slow interpreter checks each index, and runs the threads of a kernel from barrier to barrier to find
    races: an element that one thread writes and another one uses in between. Its results are compared with
    those of the machine code, the reverse with the forward derivative, and the latter with central
    differences, in a random direction.

    Parameters
    ----------
    f : function
        What ``numba.njit``, ``numba.cuda.jit`` or ``cupyx.jit.rawkernel`` made.
    *args
        Arguments of a call. They are copied.
    launch : tuple, optional
        (blocks, threads) of a kernel.
    rtol : float, default 1e-5
        How much the differences may deviate, in relation to the largest of the results' derivatives.
    seed : int, default 0
        Chooses the direction.

    Returns
    -------
    list of str
        What was compared.

    Raises
    ------
    tapegrad.errors.KernelError
        If something does not agree, an index is out of bounds, two threads race, or the function has no
        loop program.

    See Also
    --------
    source : Show what is compared.
    tapegrad.testing.check_grads : The same for any function.

    Examples
    --------
    >>> import numba, numpy as np, tapegrad as tg
    >>> @numba.njit
    ... def smooth(x, y):
    ...     for k in range(1, x.shape[0] - 1):
    ...         y[k] = 0.5 * x[k - 1] * x[k + 1]
    >>> for line in tg.loops.check(smooth, np.arange(5.0), np.zeros(5)):
    ...     print(line)
    the interpreter and the machine code agree, and all indices are in bounds
    reverse and forward derivatives agree
    forward derivatives agree with central differences
    """
    p, values = program_of(f, args, launch)
    said = [
        "the interpreter and the machine code agree, and all indices are in bounds",
        "reverse and forward derivatives agree",
        "forward derivatives agree with central differences",
    ]
    if launch is not None:
        search_races(program_of(f, args, launch, of_thread=True)[0], values)
        said.append("no two threads meet at an element, unless all read it or all change it by atomics")
    wide = all(q.type != "f4" for q in p.params)
    tight = 1e-10 if wide else 1e-4
    rng = np.random.default_rng(seed)
    operation, wrt = LoopOperation(p), floats(p)
    plain = operation.run(*values)
    slow = interpreted(p, [v.copy() if hasattr(v, "copy") else v for v in values])
    compare(f, "the interpreter and the machine code", slow, list(plain), tight)

    def direction(x):
        return np.asarray(rng.standard_normal(np.shape(x)), np.result_type(np.asarray(x), np.float32))

    moved = {k: direction(values[k]) for k in wrt}
    tangents = operation.push(tuple([moved.get(k) for k in range(len(values))]), plain, *values)
    weights = [direction(y) for y in plain]
    bars = operation.pull(weights, None, tuple([k in moved for k in range(len(values))]), *values)
    results: list = [*p.outs, *p.body.yields]
    real = [k for k, y in enumerate(results) if y.type in FLOATS]
    forward = [np.sum([np.sum(weights[k] * tangents[k]) for k in real])]
    reverse = [np.sum([np.sum(d * bars[k]) for k, d in moved.items()])]
    compare(f, "reverse and forward derivatives", forward, reverse, 100 * tight)
    h = 1e-6 if wide else 1e-2
    up, down = [
        operation.run(*[shifted(x, s * h * moved[k]) if k in moved else x for k, x in enumerate(values)])
        for s in (1, -1)
    ]
    differences = [(up[k] - down[k]) / (2 * h) for k in real]
    compare(
        f,
        "forward derivatives and central differences",
        [tangents[k] for k in real],
        differences,
        rtol if wide else 1e3 * rtol,
    )
    return said


def shifted(x, by):
    return (x + by).astype(x.dtype) if isinstance(x, np.ndarray) else float(x + by)


def compare(f, what: str, found: list, wanted: list, rtol: float) -> None:
    size = max([1e-300, *[float(np.max(np.abs(x), initial=0.0)) for x in wanted]])
    for a, b in zip(found, wanted, strict=True):
        worst = float(np.max(np.abs(np.subtract(a, b, dtype=float)), initial=0.0))
        if not worst <= rtol * size:
            raise KernelError(
                f"{f.__name__}: {what} differ by {worst:.1e}, where the largest of their values is {size:.1e}"
            )
