"""`graph`: the tape of one call of a function, as text or drawn."""

import html
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..._core.errors import spelt
from ..._core.primitive import Primitive, layout_of
from ..._core.reverse import ELEMENT, MANY, PART, SETTINGS, Tape, primitive_of
from ..._core.scope import OPEN, scope_block
from ..._core.trees import leaves
from ..._core.variable import Variable
from ..._transforms.arguments import user_name
from ..._transforms.batching.watched_traces import WatchedRecords, Watcher, source_line
from ..._transforms.products import vjp
from ..._transforms.wrapped import partial_call
from ...ops.declare import dtype, shape
from .profile import ArrayRestorer, StateSnapshot, active_numbers, table

MOST_DRAWN_NODES = 300  # the number of nodes in a drawing


@dataclass
class Node:
    """One record: the name of its operation, its result, the numbers of its inputs, and its line."""

    name: str
    kind: str
    inputs: tuple
    place: tuple | None = None
    result: bool = False


class TapeGraph:
    """The result of `tg.graph`: `nodes`. Print it, draw it with `.svg()`, or save the drawing with
    `.save("tape.svg")`. A notebook shows it."""

    def __init__(self, name: str, nodes: list):
        self.name, self.nodes = name, nodes

    def __str__(self) -> str:
        rows: list = []
        for k, node in enumerate(self.nodes[:MOST_DRAWN_NODES]):
            of = f"({', '.join([f'%{i}' for i in node.inputs])})" if node.inputs else ""
            line = f"{spelt(node.place)}  {source_line(node.place)}" if node.place and node.inputs else ""
            rows.append((f"  %{k}", node.kind, ("result: " if node.result else "") + node.name + of, line))
        width = max([len(row[2]) for row in rows], default=0)
        rest = (
            [f"  and {len(self.nodes) - MOST_DRAWN_NODES} more"] if len(self.nodes) > MOST_DRAWN_NODES else []
        )
        head = f"graph({self.name}): {sum(bool(n.inputs) for n in self.nodes)} operations"
        return "\n".join([head, *table([(a, b, f"{c.ljust(width)}  {d}") for a, b, c, d in rows]), *rest])

    __repr__ = __str__

    def dot(self) -> str:
        """The graph in the language of graphviz."""
        lines = ["digraph tape {", 'node [shape=box, style=rounded, fontname="sans-serif", fontsize=11]']
        for k, node in enumerate(self.nodes[:MOST_DRAWN_NODES]):
            label = f"{node.name}\\n{node.kind}".replace('"', "'")
            lines.append(f'n{k} [label="{label}"{", penwidth=2" if node.result or not node.inputs else ""}]')
            lines += [f"n{i} -> n{k}" for i in node.inputs]
        return "\n".join([*lines, "}"])

    def svg(self) -> str:
        """The drawing: by graphviz if its program `dot` is installed, else a simple layered one."""
        found = shutil.which("dot")
        if found is not None:
            return subprocess.run(
                [found, "-Tsvg"], input=self.dot(), capture_output=True, text=True, check=True
            ).stdout
        return layer_nodes(self.nodes[:MOST_DRAWN_NODES])

    _repr_svg_ = svg

    def save(self, path: str) -> None:
        """Write the drawing to a file."""
        Path(path).write_text(self.svg(), encoding="utf-8")


class TapeWatcher(Watcher):
    """Watches the first tape that is opened."""

    def __init__(self):
        self.tape: Any = None
        self.kinds: dict = {}  # slot -> dtype and shape
        self.records: list | None = None
        self.results: tuple = ()

    def opened(self, trace) -> None:
        super().opened(trace)
        if self.tape is None and isinstance(trace, Tape):
            self.tape = trace
            self.records = trace.records

    def done(self, prim: Primitive, args, out, params: dict) -> None:
        for x in (*args, *(out if type(out) is tuple else (out,))):
            self.meet(x)

    def meet(self, x) -> None:
        if isinstance(x, Variable):
            layout_of(x)
            if x._trace is self.tape:
                self.kinds[x._slot] = f"{dtype(x)} {shape(x)}" if shape(x) else str(dtype(x))

    def returned(self, f, y) -> None:
        if not self.results:
            for v in leaves(y):
                self.meet(v)
            self.results = tuple(
                [v._slot for v in leaves(y) if isinstance(v, Variable) and v._trace is self.tape]
            )


def graph(f: Callable[..., object], *args: object, argnums: int | tuple[int, ...] | None = None) -> TapeGraph:
    """Show the operations that a call of a function puts on the tape.

    f runs once, and what it captures is left as it was.

    Parameters
    ----------
    f : callable
        A function of `args`.
    *args : object
        Its arguments.
    argnums : int or tuple of int, optional
        The arguments to differentiate. By default all with float leaves.

    Returns
    -------
    Graph
        Print it, or draw it with `svg()` or `save(path)`.

    Raises
    ------
    ArgumentError
        If f is not a function, or no argument has float leaves.

    See Also
    --------
    profile : Time and memory for each line.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> print(tg.graph(lambda x: np.sum(np.sin(x) * 2), np.ones(3)))  # doctest: +ELLIPSIS
    graph(<lambda>): 3 operations
      %0  float64 (3,)  argument
      %1  float64 (3,)  sin(%0)          ...
      %2  float64 (3,)  multiply(%1)     ...
      %3       float64  result: sum(%2)  ...
    """
    nums = active_numbers("graph", f, args, argnums)
    seen, keeper = TapeWatcher(), ArrayRestorer()
    seen.captured = keeper.captured  # type: ignore[method-assign]
    with scope_block():
        OPEN.unfinished = (*OPEN.unfinished, StateSnapshot(f), keeper)
        with keeper, seen:
            vjp(partial_call(f, args, nums), *[args[n] for n in nums])
    assert isinstance(seen.records, WatchedRecords)
    return TapeGraph(user_name(f), nodes_of(seen, seen.records))


def nodes_of(seen: TapeWatcher, records: WatchedRecords) -> list:
    nodes = []
    for k, record in enumerate(list(records)):
        prim: Any = primitive_of(record)
        name = (
            "argument"
            if record[0] is None and record[2] is None
            else "part"
            if record[2] is PART
            else prim.known_as
        )
        nodes.append(
            Node(name, seen.kinds.get(k, ""), inputs_of(record), records.lines[k], k in seen.results)
        )
    return nodes


def inputs_of(record: tuple) -> tuple:
    """The slots that a record reads."""
    _, i, second, j, *_ = record
    slots = (
        i if second is MANY else (i,) if second is SETTINGS or second is ELEMENT or second is PART else (i, j)
    )
    return tuple(dict.fromkeys([s for s in slots if type(s) is int]))


# --- a drawing without graphviz ---

WIDE, HIGH, GAP = 150, 40, 30


def layer_nodes(nodes: list) -> str:
    """Assigns each node to the layer below its lowest input. Within a layer, nodes are ordered by the
    places of their inputs."""
    depth: list = []
    place: dict = {}
    rows: dict = {}
    for k, node in enumerate(nodes):
        depth.append(1 + max([depth[i] for i in node.inputs], default=-1))
        rows.setdefault(depth[k], []).append(k)
    for level in sorted(rows):
        rows[level].sort(
            key=lambda k: sum([place[i] for i in nodes[k].inputs]) / max(len(nodes[k].inputs), 1)
        )
        for n, k in enumerate(rows[level]):
            place[k] = n - len(rows[level]) / 2
    middle = max([len(row) for row in rows.values()], default=1) / 2
    x = {k: (place[k] + middle) * (WIDE + GAP) + GAP for k in place}
    y = {k: depth[k] * (HIGH + GAP) + GAP for k in place}
    width, height = 2 * middle * (WIDE + GAP) + GAP, (max(rows, default=0) + 1) * (HIGH + GAP) + GAP
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" '
        'font-family="sans-serif" font-size="11" text-anchor="middle">'
    ]
    for k, node in enumerate(nodes):
        for i in node.inputs:
            a, b = x[i] + WIDE / 2, x[k] + WIDE / 2
            lines.append(f'<line x1="{a:g}" y1="{y[i] + HIGH:g}" x2="{b:g}" y2="{y[k]:g}" stroke="#888"/>')
    for k, node in enumerate(nodes):
        heavy = 2 if node.result or not node.inputs else 1
        lines.append(
            f'<rect x="{x[k]:g}" y="{y[k]:g}" width="{WIDE}" height="{HIGH}" rx="6" fill="#fff" '
            f'stroke="#333" stroke-width="{heavy}"/>'
            f'<text x="{x[k] + WIDE / 2:g}" y="{y[k] + 16:g}">{html.escape(node.name)}</text>'
            f'<text x="{x[k] + WIDE / 2:g}" y="{y[k] + 31:g}" fill="#666">{html.escape(node.kind)}</text>'
        )
    return "\n".join([*lines, "</svg>"])
