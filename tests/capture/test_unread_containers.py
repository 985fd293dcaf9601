"""Captured lists and dicts of many objects: their members are made when code reads them."""

import collections
import copy
import functools
import heapq
import json
import operator
import random

import numpy as np
import pytest

import tapegrad as tg
from tapegrad._capture.unread_containers import MANY, UNREAD, UnreadDict, UnreadList

N = 2 * MANY


class Part:
    def __init__(self, k):
        self.a, self.k = np.array([float(k), 1.0]), k

    def __lt__(self, other):
        return self.k < other.k


class Key:
    def __init__(self, k):
        self.k = k

    def __hash__(self):
        return hash(self.k)

    def __eq__(self, other):
        return isinstance(other, Key) and self.k == other.k


class Plain:
    """A key by identity."""


parts = [Part(k) for k in range(N)]
pairs = [(k, np.array([float(k), 2.0])) for k in range(N)]
rows = [[float(k), 2.0] for k in range(N)]
table = {f"k{k}": {"a": np.array([float(k), 1.0]), "n": [k]} for k in range(N)}
keyed = {Key(k): Part(k) for k in range(N)}
by_tuple = {(k, Key(k)): Part(k) for k in range(N)}
plain_keys = [Plain() for _ in range(N)]
by_object = {k: Part(n) for n, k in enumerate(plain_keys)}
by_function = {(lambda x, k=k: k * x): Part(k) for k in range(N)}
x0 = np.array([2.0, 3.0])


def attribute_a(part):
    return part.a


def starred(*members):
    return members[5]


def named(k7, **rest):
    return k7 if len(rest) == N - 1 else None


def matched():
    match table:
        case {"k3": {"a": a}}:
            return a


def unpacked():
    first, *rest = parts
    return rest[6]


READS = {
    "index": lambda: parts[3].a,
    "negative": lambda: parts[-1].a,
    "numpy index": lambda: parts[np.int64(4)].a,
    "slice": lambda: sum([e.a for e in parts[2:5]]),
    "loop": lambda: sum([e.a for e in parts]),
    "after a read": lambda: parts[7].a + sum([e.a for e in parts]) + parts[7].a,
    "star": lambda: starred(*parts).a,
    "unpacked": lambda: unpacked().a,
    "list": lambda: list(parts)[7].a + tuple(parts)[8].a + [*parts][9].a,
    "sums": lambda: (parts + [1])[7].a + ([1] + parts)[7].a + (parts * 2)[N + 7].a,
    "sorted": lambda: sorted(parts, key=lambda e: -e.k)[7].a + max(parts).a,
    "zip": lambda: sum([e.a * t[1] for e, t in zip(parts, pairs, strict=True)]),
    "reversed": lambda: next(reversed(parts)).a,
    "index of": lambda: parts[parts.index(parts[3])].a * (parts[4] in parts) * parts.count(parts[4]),
    "copies": lambda: copy.copy(parts)[3].a + copy.deepcopy(parts)[3].a + parts.copy()[2].a,
    "kinds": lambda: np.ones(2) * len(parts) * bool(parts) * (type(parts) is list) * (type(table) is dict),
    "equal": lambda: np.ones(2) * (parts == list(parts)) * (parts != [1]) * (table == dict(table)),
    "heap": lambda: heapq.nsmallest(2, parts)[1].a,
    "choice": lambda: random.Random(0).choice(parts).a,
    "map": lambda: sum(map(attribute_a, parts)) + functools.reduce(lambda s, e: s + e.a, parts, 0.0),
    "arrays": lambda: np.array(rows)[7] + np.sum(rows, axis=0) + np.stack([t[1] for t in pairs]).sum(axis=0),
    "concatenated": lambda: np.asarray(rows)[3],
    "get": lambda: table.get("k5")["a"] * (table.get("none") is None) * ("none" not in table),
    "items": lambda: sum([v["a"] for _, v in table.items()]) + sum([v["a"] for v in table.values()]),
    "keys": lambda: sum([table[k]["a"] for k in table]) + table[list(table.keys())[5]]["a"],
    "dict": lambda: dict(table)["k7"]["a"] + {**table}["k8"]["a"],
    "or": lambda: (table | {"q": 1})["k7"]["a"] + ({"q": 1} | table)["k7"]["a"],
    "keywords": lambda: named(**table)["a"],
    "other dicts": lambda: collections.OrderedDict(table)["k7"]["a"] + collections.ChainMap(table)["k7"]["a"],
    "copies of a dict": lambda: table.copy()["k7"]["a"] + copy.deepcopy(table)["k9"]["a"],
    "setdefault": lambda: table.setdefault("k7", 0)["a"],
    "match": matched,
    "json": lambda: np.ones(2) * len(json.dumps(rows)),
    "format": lambda: np.ones(2) * len("{k3}".format_map({"k3": len(table)})) * len(repr(rows)),
    "own hash": lambda: keyed[Key(5)].a + keyed[next(iter(keyed))].a + keyed.get(Key(-1), parts[1]).a,
    "own hash in": lambda: np.ones(2) * (Key(5) in keyed) * (Key(-1) not in keyed) * len(keyed),
    "tuples": lambda: by_tuple[4, Key(4)].a,
    "identity": lambda: by_object[plain_keys[3]].a + sum([v.a for v in by_object.values()]),
    "functions": lambda: sum([v.a * k(1.0) for k, v in by_function.items()]),
}


@pytest.mark.parametrize("name", READS)
def test_reads(name):
    read = READS[name]
    wanted = read()
    value, gradient = tg.value_and_grad(lambda x: np.sum(read() * x**2))(x0)
    assert value == np.sum(wanted * x0**2)
    np.testing.assert_allclose(gradient, 2 * wanted * x0)
    tangent = tg.jvp(lambda x: np.sum(read() * x**2), (x0,), (np.ones(2),))[1]
    np.testing.assert_allclose(tangent, np.sum(2 * wanted * x0))


def fresh():
    return [[np.zeros(2)] for _ in range(N)], {f"k{k}": [np.zeros(2)] for k in range(N)}


def member(x, rows, names):
    rows[3] = [x**2]
    names["k3"] = [x**3]
    return rows[3][0] * names["k3"][0]


def inside(x, rows, names):
    rows[3][0][0] = x[0] ** 2
    names["k3"][0][:] = x
    return rows[3][0] * names["k3"][0]


def grown(x, rows, names):
    rows.append([x])
    rows.insert(0, [x**2])
    names["new"] = [x**3]
    del names["k4"], rows[5]
    return rows[0][0] * rows[-1][0] * names["new"][0]


def sorted_in_place(x, rows, names):
    rows[7][0] += x
    rows.sort(key=lambda r: -float(np.sum(tg.value(r[0]))))
    names.pop("k2")
    names.update(k5=[x], k99=[2 * x])
    return rows[0][0] * names["k99"][0]


@pytest.mark.parametrize("alter", [member, inside, grown, sorted_in_place])
def test_writes_end_where_a_plain_call_leaves_them(alter):
    rows, names = fresh()
    wanted_rows, wanted_names = fresh()
    plain = alter(x0.copy(), wanted_rows, wanted_names)
    value, gradient = tg.value_and_grad(lambda x: np.sum(alter(x, rows, names)))(x0)
    assert value == np.sum(plain)

    def again(x):
        return np.sum(alter(x, *fresh()))

    h = 1e-6
    wanted = [(again(x0 + h * e) - again(x0 - h * e)) / (2 * h) for e in np.eye(2)]
    np.testing.assert_allclose(gradient, wanted, rtol=1e-6)
    assert type(rows) is list and type(names) is dict
    assert list(names) == list(wanted_names)
    for found, there in [
        *zip(rows, wanted_rows, strict=True),
        *zip(names.values(), wanted_names.values(), strict=True),
    ]:
        assert type(found[0]) is np.ndarray
        np.testing.assert_array_equal(found[0], there[0])


def test_writes_to_a_dict_with_objects_as_keys():
    names = {Key(k): [np.zeros(2)] for k in range(N)}
    before = [*names]

    def f(x):
        names[Key(3)] = [x**2]
        names[new] = [x]
        names[Key(4)][0][:] = 2 * x
        return np.sum(names[Key(3)][0] * names[Key(4)][0] * sum([v[0] for v in names.values()]))

    new = Key(-1)
    gradient = tg.grad(f)(x0)
    np.testing.assert_allclose(gradient, 10 * x0**4 + 24 * x0**3)
    after = [*names]
    assert all(map(operator.is_, after, [*before, new])) and len(after) == N + 1
    assert all([type(v[0]) is np.ndarray for v in names.values()])
    np.testing.assert_array_equal(names[Key(4)][0], 2 * x0)


def test_what_is_stored_leaves_the_others_unread():
    rows, names = fresh()
    left = []

    def f(x):
        rows[3], names["k3"] = [x], [x**2]
        rows.append([x**3])
        names["new"] = [x]
        left.extend([sum([v is UNREAD for v in m]) for m in (list.__iter__(rows), dict.values(names))])
        return np.sum(rows[3][0] * names["k3"][0] * rows[-1][0])

    np.testing.assert_allclose(tg.grad(f)(x0), 6 * x0**5)
    assert left == [N - 1, N - 1] and len(rows) == len(names) == N + 1
    assert {type(v[0]) for v in [*rows, *names.values()]} == {np.ndarray}


def test_only_what_is_read_is_made():
    made = []

    def f(x):
        y = parts[3].a * table["k4"]["a"] * keyed[Key(5)].a
        made.extend(
            [sum([v is UNREAD for v in members]) for members in (list.__iter__(parts), dict.values(keyed))]
        )
        return np.sum(x * y)

    tg.grad(f)(x0)
    assert made == [N - 1, N - 1]


def test_a_leaked_container_is_the_users():
    kept, holder = [], []

    def f(x):
        kept.extend([parts, table])
        own = Plain()
        own.rows = parts
        holder.append(own)
        return np.sum(x * parts[3].a)

    tg.grad(f)(x0)
    assert kept[0] is parts and kept[1] is table and holder[0].rows is parts
    value, aux = tg.jvp(lambda x: (np.sum(x * parts[3].a), parts), (x0,), (x0,), has_aux=True)[::2]
    assert type(aux) is list and aux[3] is parts[3]


def test_another_route_is_not_silent():
    rows, _ = fresh()
    hidden = memoryview(rows[3][0])

    def f(x):
        rows[3][0][:] = x
        return np.sum(np.frombuffer(hidden) * x)

    with pytest.raises(tg.errors.RouteError):
        tg.grad(f)(x0)
    assert not np.any(rows[3][0])


def test_other_transforms():
    def f(x):
        return np.sum(parts[3].a * x**2) + np.sum(table["k4"]["a"] * x)

    wanted = 2 * parts[3].a * x0 + table["k4"]["a"]
    np.testing.assert_allclose(tg.vmap(tg.grad(f))(np.stack([x0, x0])), [wanted, wanted])
    np.testing.assert_allclose(tg.hvp(f, x0, np.ones(2)), 2 * parts[3].a)
    np.testing.assert_allclose(tg.grad(lambda x: np.sum(tg.grad(f)(x)))(x0), 2 * parts[3].a)
    p = tg.prepare(f, x0)
    np.testing.assert_allclose(p.grad(x0), wanted)
    old, parts[3] = parts[3], Part(9)
    try:
        np.testing.assert_allclose(p.grad(x0), 2 * parts[3].a * x0 + table["k4"]["a"])
    finally:
        parts[3] = old
    np.testing.assert_allclose(p.grad(x0), wanted)


def test_whoever_makes_another_one_gets_a_builtin():
    assert type(UnreadList([1])) is list and type(UnreadDict({1: 2})) is dict
    inner = {f"k{k}": [np.ones(2)] for k in range(N)}

    def f(x):
        g = tg.grad(lambda tree: np.sum(tree["k3"][0] * x))(inner)
        assert type(g) is dict
        return np.sum(g["k3"][0] * x)

    np.testing.assert_allclose(tg.grad(f)(x0), 2 * x0)
