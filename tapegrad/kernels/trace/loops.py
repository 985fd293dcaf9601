"""Loops inside a kernel function: `loop` and `while_loop`.

Components of the carry that are equal at the start are assumed equal throughout. The body is traced again
until that is proved."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._core.errors import ArgumentError, KernelError
from ..._core.scope import OPEN
from ..._core.trees import leaves, tree_map
from ..._core.variable import Variable
from ..graph.nodes import Graph
from ..graph.program import ProgramLoop
from .symbolic import Sym, UnknownNumber, as_real_symbol, lift, truth
from .tracing import Tracer, equal_components, flatten_nodes, number_count

SHORT, SHORT_INSIDE = 4, 16  # constant numbers of steps up to which a loop is unrolled
UNROLLED_STEPS = 1000  # the same for a loop that must be unrolled
TAPED_STEPS = 256  # bound up to which memory for all stored steps is allocated at once
KEPT_NUMBERS = 1 << 24  # numbers in the steps of one segment of a loop, of all lanes: 128 MB
LANES, LEAST_SEGMENT = 16, 4096
PACKAGE = __name__.partition(".")[0]
ATTEMPTS = 4  # traces to find which components of a carry are equal throughout


def loop(n: Any, body: Callable, carry: Any, max_steps: int | None = None) -> Any:
    """Repeat a step: ``carry = body(i, carry)`` for i in range(n).

    Inside a kernel function this is a loop of the compiled code. It may stand in the step of a recursion, the
    function of a likelihood, or the body of another loop, to any depth. Outside it is a plain Python loop.

    Parameters
    ----------
    n : int, or a number of the kernel
        The number of steps, which may be known only at run time and differ from sample to sample. A
        fractional n counts with its whole part. If n is known while tracing, a few steps are unrolled: up to
        4, up to 16 inside a step, and up to 1000 if the body takes element i of a list or array made outside.
    body : callable
        ``body(i, carry)`` returns the next carry.
    carry : number, array or tree
        The start. Its arrays are values: the body may write into those that it gets, and the start stays.
    max_steps : int, optional
        A bound for n.

    Returns
    -------
    tree
        The last carry. It is nan if n is nan or above `max_steps`.

    See Also
    --------
    while_loop : A loop with a condition.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> k = tg.kernels.map(lambda x, n: tg.kernels.loop(n, lambda i, s: s * x, 1.0))
    >>> k(np.array([1.5, 2.0]), np.array([3.0, 3.0]))
    array([3.375, 8.   ])
    """
    t = OPEN.tracer
    known: Any = n.constant() if isinstance(n, Sym) else n
    if known is not None and max_steps is not None and known > max_steps:
        raise ArgumentError(f"loop: n = {known} is above max_steps = {max_steps}")
    if t is None or (known is not None and int(known) <= (SHORT if len(t.regions) == 1 else SHORT_INSIDE)):
        return _in_turn(int(known), body, carry)
    g = t.g
    steps = as_real_symbol(lift(g, n))
    if steps.size != 1:
        raise KernelError("loop(n, body, carry): n must be one number for each sample")
    node = g.node("floor", steps.node_list[0])  # int(n) steps, as in plain Python
    if known is not None:
        begun = t.attempt()
        try:
            return _traced_loop(
                t, g.const(int(known)), int(known), None, lambda i, c: body(Sym(g, i), c), body, carry
            )
        except UnknownNumber:
            if known > UNROLLED_STEPS:
                raise
            g.refusal = None
            begun.forget()  # the body needs a known i, to take an element of a list, for example
        return _in_turn(int(known), body, carry)
    enough = g.compare("le", node, g.const(math.inf if max_steps is None else max_steps))  # false for nan
    bounded = g.select(enough, node, g.zero)
    cap = math.ceil(max_steps) if max_steps is not None and max_steps <= TAPED_STEPS else None
    result = _traced_loop(t, bounded, cap, None, lambda i, c: body(Sym(g, i), c), body, carry)
    ids, build = flatten_nodes(g, result)
    return build([g.select(enough, i, g.const(np.nan)) for i in ids])


def while_loop(cond: Callable, body: Callable, carry: Any, max_steps: int) -> Any:
    """Repeat a step while a condition holds: ``while cond(carry): carry = body(carry)``.

    Like `loop` it may stand anywhere in a kernel function, to any depth.

    Parameters
    ----------
    cond : callable
        ``cond(carry)`` returns a condition.
    body : callable
        ``body(carry)`` returns the next carry.
    carry : number, array or tree
        The start.
    max_steps : int
        The largest number of steps.

    Returns
    -------
    tree
        The last carry.

    See Also
    --------
    loop : A loop with a number of steps.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> f = lambda x: tg.kernels.while_loop(lambda s: s < 10, lambda s: s * x, x, 100)
    >>> tg.kernels.map(f)(np.array([1.5, 2.0]))
    array([11.390625, 16.      ])
    """
    t = OPEN.tracer
    if t is None:
        carry = _apart(carry)
        for _ in range(max_steps):
            if not cond(carry):
                break
            carry = body(carry)
        return carry
    return _traced_loop(t, t.g.const(int(max_steps)), int(max_steps), cond, lambda i, c: body(c), body, carry)


def segment_steps(carry, max_steps: int, lanes: int, least: int) -> int:
    """Return the number of steps in a segment of a loop.

    `lanes`: the samples that are computed side by side. `least`: the shortest segment that pays."""
    numbers = sum([getattr(x, "size", 1) for x in leaves(carry)])
    return max(KEPT_NUMBERS // (lanes * numbers), least, math.isqrt(max_steps))


def while_loop_in_segments(cond: Callable, body: Callable, carry, max_steps: int, segment=None, **kept: int):
    """Return the result of `while_loop`. What a derivative keeps is bounded.

    It reads what was carried before each step. If so many steps may exceed a segment, it keeps the starts
    of segments, and takes the steps of a segment again when it sweeps them. A gradient then takes about
    1.4 times as long. `segment(carry, steps)` takes the steps of one; the last one may end after
    `max_steps`. `kept`: as for `segment_steps`."""
    steps = segment_steps(carry, max_steps, **{"lanes": LANES, "least": LEAST_SEGMENT, **kept})
    if steps >= max_steps:
        return while_loop(cond, body, carry, max_steps)
    one = segment or (lambda c, steps: while_loop(cond, body, c, steps))
    return while_loop(cond, lambda c: one(c, steps), carry, max_steps // steps + 2)


def _apart(carry):
    """Return the carry with copies of its arrays: a body may write into them, and the start stays."""
    return tree_map(lambda x: x.copy() if isinstance(x, (np.ndarray, Sym, Variable)) else x, carry)


def _in_turn(n: int, body: Callable, carry):
    carry = _apart(carry)
    for i in range(n):
        carry = body(i, carry)
    return carry


@dataclass
class LoopRequest:
    """A loop to be traced.

    `steps` is the node of their number. `cap` is that number if known, or the most that `cond` allows."""

    steps: int
    cap: int | None
    cond: Callable | None
    body: Callable
    of: Callable  # the user's function, for errors
    start: list[int]
    build: Callable

    def going(self, g: Graph, condition: int, counter: int, gate: int) -> tuple[int, int]:
        """Return the number of steps, and whether this sample takes a step.

        It takes the surrounding step only if `gate` holds."""
        if self.cond is not None:
            return self.steps, g.both(gate, condition)
        steps = g.select(gate, self.steps, g.zero)
        return steps, gate if g.value(self.steps) is not None else g.compare("lt", counter, steps)

    def traced(self, t: Tracer, leader: list[int], gate: int) -> tuple[ProgramLoop, int, list[int]]:
        """Return a new loop, its condition, and its carry after a step; component k equals leader[k]."""
        g = t.g
        made = ProgramLoop(g.new_loop(), self.steps, cap=self.cap)
        kept = sorted(set(leader))
        made.carry = [g.input("c", made.id, n, g.shape[self.start[k]]) for n, k in enumerate(kept)]
        given = lambda: self.build([made.carry[kept.index(k)] for k in leader])
        with t.step(made.id) as region:
            condition, counter = g.bool(True), g.input("i", made.id, 0)
            if (cond := self.cond) is not None:
                condition = contribution_bool(g, cond(given()))
            region.going = self.going(g, condition, counter, gate)[1]
            after = flatten_nodes(g, self.body(counter, given()))[0]
            t.varying([condition, *after])
        made.inner = region.loops
        if [g.shape[i] for i in after] != [g.shape[i] for i in self.start]:
            raise KernelError(
                f"the body of a loop was given {number_count(g, self.start)} numbers and returned "
                f"{number_count(g, after)}"
            )
        return made, condition, after


def is_package_code(f: Callable) -> bool:
    """Is this code of the package? It changes nothing that it reads."""
    return (getattr(f, "__module__", None) or "").partition(".")[0] == PACKAGE


def _proved_loop(t: Tracer, wanted: LoopRequest, leader: list[int], gate: int) -> tuple:
    """Trace the loop until what is assumed of its carry is proved.

    Its body is traced again while components that are equal at the start prove unequal. It is also traced
    again if its inner loops must know that the surrounding step may not be taken. The first attempt runs the
    functions twice, unless they are our own and it is the only one: the code around it is traced twice too.
    Return the loop, its condition, its carry after a step, the leader of each component, and the region."""
    g, begun, place, once, attempts = t.g, t.attempt(), t.g.loops, t.once, 0
    start = wanted.start
    if t.repeats:
        number, known, passed = t.settled.get(place, (0, [], gate))
        if len(known) == len(start) and all([start[k] == start[r] for k, r in enumerate(known)]):
            g.loops, leader, gate = number, known, passed

    def attempt() -> tuple:
        made, condition, after = wanted.traced(t, leader, gate)
        return (condition, after, made.inner), made

    try:
        while True:
            begun.forget()
            begun.number = g.loops
            (condition, after, inner), made = attempt()
            classes = {}
            finer = [classes.setdefault((r, after[k]), k) for k, r in enumerate(leader)]
            home = t.home(_within(t, made, [*start, *after, wanted.steps, condition]))
            proved = finer == leader and (home.going == gate or not inner)
            if not t.once and not (proved and is_package_code(wanted.of)):
                t.again(begun, (condition, after, inner), lambda: attempt()[0], wanted.of)
            if proved:
                t.settled[place] = begun.number, leader, gate
                return made, condition, after, leader, home
            attempts, t.once = attempts + 1, True
            if finer == leader:
                gate = home.going
            else:
                leader = finer if attempts < ATTEMPTS else list(range(len(start)))
    finally:
        t.once = once


def _traced_loop(
    t: Tracer, steps: int, cap: int | None, cond: Callable | None, body: Callable, of: Callable, carry
):
    """Trace a loop of the kernel."""
    g = t.g
    start, build = flatten_nodes(g, carry)
    t.varying([*start, steps])
    wanted = LoopRequest(steps, cap, cond, body, of, start, build)
    equal = equal_components(start, carry)
    made, condition, after, leader, home = _proved_loop(t, wanted, equal, g.bool(True))
    kept = sorted(set(leader))
    made.start = [start[k] for k in kept]
    made.steps, going = wanted.going(g, condition, g.input("i", made.id, 0), home.going)
    made.active = None if cond is None else going
    made.going = None if g.op[going] == "bool" else going
    within = _within(t, made, [*start, *after, steps, condition])
    g.within[made.id] = within | g.mask[home.going] & ~(1 << made.id)
    made.next = [g.select(going, after[k], c) for k, c in zip(kept, made.carry, strict=True)]
    made.final = [g.input("co", made.id, n, g.shape[c]) for n, c in enumerate(made.carry)]
    home.loops.append(made)
    return build([made.final[kept.index(k)] for k in leader])


def _within(t: Tracer, made: ProgramLoop, nodes: list[int]) -> int:
    """Return the surrounding loops on which a new loop depends, as bits."""
    g = t.g
    within = functools.reduce(
        int.__or__, [g.mask[i] for i in nodes] + [g.within[x.id] for x in made.inner]
    ) & ~(1 << made.id)
    return within if t.hoists or len(t.regions) == 1 else within | 1 << t.regions[-1].loop


def contribution_bool(g: Graph, x) -> int:
    x = lift(g, x)
    if x.size != 1:
        raise KernelError("the condition of while_loop must be one value for each sample")
    return truth(x).node_list[0]
