"""Memory of the blocks of a running program; `lower` calls this module.

A view is read from its source. An elementwise result with a single elementwise user is computed there and
never stored. Every other block has a place in the arena, the first part of the workspace of a block of lanes
(on a device, of a thread). A place is reused once its block is dead. The arena is therefore only as large as
the blocks that are alive together."""

from ..graph.blocks import BLOCK_OPS, element_total
from ..graph.nodes import LEAVES, Graph

COSTS = {"cholesky": 3, "trisolve": 2, "lu": 1, "lusolve": 1}  # the cost is n^3 divided by this


def is_elementwise(g: Graph, i: int) -> bool:
    return bool(g.shape[i]) and g.op[i] not in BLOCK_OPS and g.op[i] not in LEAVES


def element_root(g: Graph, i: int) -> int:
    """Return the block, or number, that holds the elements of i."""
    return g.args[i][0] if g.op[i] == "view" else i


def node_cost(g: Graph, i: int) -> int:
    """Estimate the number of operations of node i."""
    op, x = g.op[i], g.args[i]
    if op == "matmul":
        return element_total(g.shape[i]) * g.shape[x[0]][1]
    if op in ("trisolve", "lusolve"):
        return element_total(g.shape[i]) * g.shape[i][0] // COSTS[op]
    if op in ("cholesky", "lu"):
        return g.shape[i][-1] ** 3 // COSTS[op]
    return element_total(g.shape[x[0]] if op == "sum" else g.shape[i])


class Placement:
    """The places of all blocks of a program.

    Several loops may compute a node, each anew. Places are therefore keyed by (part, node). The part is the
    number of the loop, or None outside of loops. A carry and a sum belong to their loop. Their final values
    belong to the part around it.

    `group[part, i]` holds the instructions computed together with block i. `inlined` holds nodes that their
    user computes. `place` holds offsets in the arena, also of (what, loop, component). `size` counts the
    elements of the arena.

    A block of a node in `wide` takes two elements for each of its own, and begins at an even one."""

    def __init__(self, g: Graph, sections: list, outer: list, outputs: list[int], wide: frozenset[int]):
        self.g, self.wide = g, wide
        self.uses = {}  # key -> [(time, part, key of the user or None, can the user compute it?)]
        self.made = {}  # key -> (time, instruction)
        self.given = set()  # keys of carries, and of final values of loops
        self.parent = {}  # loop -> the part that contains it
        self.begin = {}
        self.end = {}
        self.time = 0
        bodies = self._region(sections, outer, None)
        self.time += 1
        for o in outputs:
            self._use(o, None)
        self.inlined = {key for key in self.made if self._is_inlined(key)}
        self._evaluated()
        self.place = {}
        self.size = 0
        self.in_place = self._in_place(bodies)
        self._allocate(self._lives(bodies))
        self.place.update({key: self.place[carry] for key, carry in self.in_place.items()})
        self.group = {key: self._grouped(key) for key in self.made if key not in self.inlined}

    # --- uses and their times ---

    def _pass(self, code: list, part: int | None) -> None:
        g = self.g
        for i, op, args in code:
            self.time += 1
            if op == "view":
                continue
            self.made[part, i] = self.time, (i, op, args)
            for j in args:
                fits = is_elementwise(g, i) and g.shape[j] == g.shape[i]
                self._use(j, part, (part, i), fits or op == "sum")

    def _use(self, j: int, part: int | None, user: tuple | None = None, alike: bool = False) -> None:
        if self.g.op[j] == "view":
            j, alike = self.g.args[j][0], False
        self.uses.setdefault(self.key(part, j), []).append((self.time, part, user, alike))

    def key(self, part: int | None, j: int) -> tuple:
        while part is not None and (part, j) not in self.made and (part, j) not in self.given:
            part = self.parent[part]
        return part, j

    def _region(self, sections: list, inner: list, part: int | None) -> list:
        """Pass over straight code with loops in between; return the bodies of all of these."""
        found = []
        for k, code in enumerate(sections):
            self._pass(code, part)
            if k < len(inner):
                found += self._loop(inner[k], part)
        return found

    def _loop(self, body, part: int | None) -> list:
        loop, n = body.loop, body.number
        self.parent[n] = part
        self.time += 1
        self.begin[n] = self.time
        for s in loop.start:
            self._use(s, part)
        self.given.update([(n, c) for c in loop.carry])
        found = self._region(body.sections, body.inner, n)
        self.time += 1
        for j in loop.next + [j for term in body.terms for j in term]:
            self._use(j, n)
        self.end[n] = self.time
        self.given.update([(part, f) for f in loop.final + loop.sums])
        return [body, *found]

    def _is_inlined(self, key: tuple) -> bool:
        part, i = key
        if not is_elementwise(self.g, i):
            return False
        uses = self.uses.get(key, [])
        alone = len({user for _, _, user, _ in uses}) == 1
        return alone and all(alike and where == part for _, where, _, alike in uses)

    def _evaluated(self) -> None:
        """Set the time at which each node is evaluated; an inlined node is evaluated with its user."""
        self.when = {}
        for key in sorted(self.made, key=lambda key: -self.made[key][0]):
            self.when[key] = self.when[self.uses[key][0][2]] if key in self.inlined else self.made[key][0]

    def _grouped(self, key: tuple) -> list:
        """Return the instructions of a node and of the nodes inlined into it, operands first."""
        part, i = key
        found, stack = {i}, [i]
        while stack:
            for j in self.made[part, stack.pop()][1][2]:
                if (part, j) in self.inlined and j not in found:
                    found.add(j)
                    stack.append(j)
        return [self.made[part, j][1] for j in sorted(found)]

    # --- places ---

    def _last(self, key: tuple) -> int:
        """Return the last time at which the node is read.

        A node from outside of a loop is read in every step of that loop."""
        times = [0]
        for time, part, user, _ in self.uses.get(key, ()):
            time = self.when[user] if user in self.inlined else time
            while part != key[0]:
                part, time = self.parent[part], self.end[part]
            times.append(time)
        return max(times)

    def _in_place(self, bodies: list) -> dict:
        """Return key -> key of the carry whose place it takes, where the old carry is dead by then."""
        g, found = self.g, {}
        for body in bodies:
            n = body.number
            for c, after in zip(body.loop.carry, body.loop.next, strict=True):
                key = n, after
                if g.shape[c] and key in self.made and key not in found and key not in self.inlined:
                    if self._last((n, c)) < self.made[key][0]:
                        found[key] = n, c
        return found

    def _lives(self, bodies: list) -> list[tuple]:
        """Return (first time, last time, key, elements) for everything that needs a place."""
        g, lives, extent = self.g, [], self.extent
        for key, (time, _) in self.made.items():
            if g.shape[key[1]] and key not in self.inlined and key not in self.in_place:
                lives.append((time, max(time, self._last(key)), key, extent(key[1])))
        for key in self.uses:
            if g.shape[key[1]] and g.op[key[1]] == "in" and g.args[key[1]][0] == "th":
                lives.append((0, self._last(key), key, extent(key[1])))
        for body in bodies:
            n, loop = body.number, body.loop
            part, begin, end = self.parent[n], self.begin[n], self.end[n]
            for k, (c, f, after) in enumerate(zip(loop.carry, loop.final, loop.next, strict=True)):
                if not g.shape[c]:
                    continue
                size = extent(c)
                lives.append((begin, max(end, self._last((part, f))), (n, c), size))
                if element_root(g, after) in loop.carry and after != c:
                    lives.append((begin, end, ("moved", n, k), size))
            for k, s in enumerate(loop.sums):
                if g.shape[s]:
                    lives.append((begin, max(end, self._last((part, s))), (n, s), extent(s)))
                    lives.append((begin, end, ("chunk", n, k), extent(s)))
        return lives

    def extent(self, i: int) -> int:
        """Return the number of arena elements of block i."""
        size = element_total(self.g.shape[i])
        return 2 * size if i in self.wide else size + size % 2 if self.wide else size

    def _allocate(self, lives: list[tuple]) -> None:
        free = {}
        living: list[tuple] = []
        for first, last, key, size in sorted(lives, key=lambda x: x[:2]):
            still = []
            for entry in living:
                if entry[0] < first:
                    free.setdefault(entry[2], []).append(entry[1])
                else:
                    still.append(entry)
            living = still
            if free.get(size):
                at = free[size].pop()
            else:
                at = self.size
                self.size += size
            self.place[key] = at
            living.append((last, at, size))
