"""Python branches in kernel functions: `if x > 0` of a value that is known only when the kernel runs.

The function is traced once for each path through its branches. The results are joined by `np.where`, which
has exact derivatives whatever the path that is not taken gives. `Tracer.run` calls `branching` for each
function of a kernel, and solvers call it for functions of the user.

Invariant: a path that is traced sees nothing of the paths before it. So a function with such branches may not
change what it captures."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..._capture.dependencies import Status
from ..._capture.kinds import holders
from ..._core.errors import KernelError, TapegradError, let_through
from ..._core.scope import OPEN
from ..._core.trees import children, is_node, rebuilt
from ..graph.nodes import Graph
from .surroundings import Rebuilder
from .symbolic import Sym, lift

MOST_PATHS, MOST_CONDITIONS = 32, 12  # of a function, and on one path


class Branches:
    """The conditions on the path that is being traced, with the answers that were given."""

    def __init__(self, g: Graph):
        self.g = g
        self.answers: list[tuple[int, bool]] = []
        self.asked = 0  # conditions since the path began

    def decide(self, condition: int, refusal: KernelError) -> bool:
        """Return the answer to a condition: the one given before, or true at first."""
        for known, answer in self.answers[: self.asked]:
            if known == condition:
                return answer
        if self.asked == len(self.answers):
            if self.asked == MOST_CONDITIONS:
                raise self.g.refused(refusal)
            self.answers.append((condition, True))
        elif self.answers[self.asked][0] != condition:
            raise KernelError("a function asks for other conditions when it runs again")
        self.asked += 1
        return self.answers[self.asked - 1][1]

    def next_path(self) -> bool:
        """Turn the last condition that was true; return whether there is one."""
        while self.answers and not self.answers[-1][1]:
            self.answers.pop()
        if self.answers:
            self.answers[-1] = (self.answers[-1][0], False)
        return bool(self.answers)


def branching(call: Callable) -> Any:
    """Return call(), which runs code of the user, in a trace joined over all paths through its branches."""
    if OPEN.tracer is None:
        return call()
    g: Graph = OPEN.tracer.g
    outer, own, found, loops = g.branches, Branches(g), [], g.loops
    g.branches = own
    try:
        while True:
            own.asked = 0
            try:
                result = call()
            except TapegradError:
                raise
            except Exception as error:
                let_through(error)
                if not own.asked:
                    raise
                raise KernelError(
                    "a path of a Python `if` on a value that is known only when the kernel runs raises "
                    f"{type(error).__name__}: {error}; return np.nan or -np.inf there"
                ) from error
            if not own.answers:
                return result
            found.append(([*own.answers], result))
            hindrance = (
                "contains a loop of the kernel" if g.loops != loops
                else f"has more than {MOST_PATHS} paths" if len(found) > MOST_PATHS
                else "" if leaves_nothing(g, OPEN.tracer.rebuild)
                else "changes what it captures"
            )  # fmt: skip
            if hindrance:
                raise KernelError(
                    "a Python `if` on a value that is known only when the kernel runs stands in a function "
                    f"that {hindrance}: write np.where(condition, a, b)"
                )
            if not own.next_path():
                return joined(g, found, 0)
    finally:
        g.branches = outer


def unbranched(call: Callable) -> Any:
    """Return call(), in which Python branches are refused."""
    g: Graph = OPEN.tracer.g
    outer, g.branches = g.branches, None
    try:
        return call()
    finally:
        g.branches = outer


def leaves_nothing(g: Graph, rebuild: Rebuilder) -> bool:
    """Is all that the traced functions capture as it was before the trace?"""
    if g.captured is None:
        return True
    return all([e.status() is Status.UNCHANGED for e in g.captured.before]) and not any(
        [change[0].altered(rebuild, change) for change in holders(rebuild)]
    )


def joined(g: Graph, found: list, depth: int) -> Any:
    """Return the result of these paths, which have the first `depth` conditions in common."""
    if len(found) == 1:
        return found[0][1]
    condition = found[0][0][depth][0]
    parts = [[path for path in found if path[0][depth][1] is answer] for answer in (True, False)]
    return chosen(Sym(g, condition), *[joined(g, part, depth + 1) for part in parts])


def chosen(condition: Sym, a: Any, b: Any) -> Any:
    """Return tree a where the condition holds, otherwise tree b."""
    if is_node(a) and type(a) is type(b) and len(children(a)) == len(children(b)):
        pairs = zip(children(a), children(b), strict=True)
        return rebuilt(a, [chosen(condition, x, y) for x, y in pairs])
    if a is b:
        return a
    try:
        x, y = [lift(condition.g, np.asarray(v) if type(v) in (list, tuple) else v) for v in (a, b)]
    except (TypeError, ValueError) as error:
        raise KernelError("the paths of a branch return different things") from error
    if x.shape != y.shape:
        raise KernelError(f"the paths of a branch return shapes {x.shape} and {y.shape}")
    where: Callable = np.where
    return where(condition, x, y)
