"""Instruction scheduling for a machine with few registers: each value is made late and used soon.

The graph's own order is the order of construction. In it a backward sweep first rebuilds all values of the
forward step and then uses them. The sums add their terms at the end. A compiler largely keeps this order, and
a Kalman filter of four states then needs more registers than a thread has. `cuda` calls this module. The
order changes no bit of any result."""

from collections.abc import Hashable, Iterable

Item = tuple[Hashable, tuple]  # the name of a result, and those of the values of the step that it needs


def peak(items: list[Item], order: list[int], last: Iterable) -> int:
    """Return the largest number of values that are alive at once."""
    alive = set(last)
    most = len(alive)
    for n in reversed(order):
        name, operands = items[n]
        alive.discard(name)
        alive.update(operands)
        most = max(most, len(alive))
    return most


def schedule_order(items: list[Item], last: Iterable, room: int) -> list[int]:
    """The places in `items`, as given if at most `room` values are then alive at once, else in an order with
    fewer of them.

    >>> chain = [("a", ()), ("b", ()), ("c", ()), ("A", ("a",)), ("B", ("b", "A")), ("C", ("c", "B"))]
    >>> peak(chain, list(range(6)), ["C"])
    3
    >>> [chain[n][0] for n in schedule_order(chain, ["C"], 2)]
    ['a', 'A', 'b', 'B', 'c', 'C']
    """
    given, last = list(range(len(items))), list(last)
    before = peak(items, given, last)
    if before <= room:
        return given
    made = frugal(items, last)
    return made if peak(items, made, last) < before else given


def frugal(items: list[Item], last: Iterable) -> list[int]:
    """Return the places in `items` in a new order; what is in `last` is needed after all of them.

    The order is built from the end. A candidate is an instruction whose users are all placed. The one that
    leaves the fewest values alive is placed before them. In a tie, the one whose result came alive last wins.
    Names that no item makes are alive at the beginning."""
    maker = {name: n for n, (name, _) in enumerate(items)}
    users = [0] * len(items)
    for _, operands in items:
        for x in operands:
            if x in maker:
                users[maker[x]] += 1
    alive = dict.fromkeys(last, 0)  # -> the time it came alive, counted from the end
    ready = [n for n, count in enumerate(users) if not count]
    found: list[int] = []

    def cost(n: int) -> tuple:
        name, operands = items[n]
        return sum(x not in alive for x in operands) - (name in alive), -alive.get(name, 0), -n

    while ready:
        best = min(ready, key=cost)
        ready.remove(best)
        found.append(best)
        name, operands = items[best]
        alive.pop(name, None)
        for x in operands:
            alive.setdefault(x, len(found))
            if x in maker:
                users[maker[x]] -= 1
                if not users[maker[x]]:
                    ready.append(maker[x])
    return found[::-1]
