"""Trees are matched by structure and key, and floats that nobody differentiates are refused: random trees,
changed in one place."""

import collections
import dataclasses
import decimal
import fractions

import numpy as np
import pandas
import pytest
import scipy.sparse

import tapegrad as tg
from tapegrad.errors import ArgumentError

Pair, Riap = collections.namedtuple("Pair", "a b"), collections.namedtuple("Riap", "b a")


@dataclasses.dataclass
class Point:
    a: object
    b: object


@dataclasses.dataclass
class Tniop:
    b: object
    a: object


class Bag:
    def __init__(self, held):
        self.held = held


tg.register_tree(
    Bag,
    lambda x: (tuple(x.held.values()), tuple(x.held)),
    lambda keys, members: Bag(dict(zip(keys, members, strict=True))),
)
NODES = (
    lambda a, b: {"a": a, "b": b},
    lambda a, b: (a, b),
    lambda a, b: [a, b],
    Pair,
    Point,
    lambda a, b: Bag({"a": a, "b": b}),
)


def random_tree(rng, leaf, depth=0):
    if depth == 3 or (depth and rng.random() < 0.3):
        return leaf()
    return NODES[rng.integers(len(NODES))](
        random_tree(rng, leaf, depth + 1), random_tree(rng, leaf, depth + 1)
    )


def other_order(x):
    """The same tree, with the entries of its dicts in another order."""
    if isinstance(x, dict):
        return {k: other_order(v) for k, v in reversed(x.items())}
    if isinstance(x, (tuple, list)):
        return type(x)(*map(other_order, x)) if hasattr(x, "_fields") else type(x)(map(other_order, x))
    if isinstance(x, Point):
        return Point(other_order(x.a), other_order(x.b))
    return Bag({k: other_order(v) for k, v in x.held.items()}) if isinstance(x, Bag) else x


def spoilt(x, rng):
    """The same numbers in the same order, but one node is another one.  None where the tree has no node whose
    change tells."""
    if isinstance(x, dict):
        return {"a": x["a"], "B": x["b"]}
    if isinstance(x, Pair):
        return Riap(*x)
    if isinstance(x, Point):
        return Tniop(x.a, x.b)
    if isinstance(x, Bag):
        return Bag({"b": x.held["a"], "a": x.held["b"]})
    if isinstance(x, (tuple, list)):
        return type(x)([*x, 1.0]) if rng.random() < 0.5 else {0: x[0], 1: x[1]}
    return None


def members(x):
    return tg.ravel(x)[0]


@pytest.mark.parametrize("seed", range(40))
def test_random_trees_are_matched_by_key(seed):
    rng = np.random.default_rng(seed)
    x = random_tree(rng, lambda: rng.standard_normal(2))
    flat, restore = tg.ravel(x)
    v = rng.standard_normal(flat.size)
    f = lambda p: (members(p) ** 3).sum()
    right = 3 * flat**2
    tangent = other_order(restore(v))
    assert tg.jvp(f, (x,), (tangent,))[1] == pytest.approx(right @ v)
    np.testing.assert_allclose(members(tg.hvp(f, x, tangent)), 6 * flat * v)
    np.testing.assert_allclose(members(tg.vjp(lambda p: restore(members(p) ** 3), x)[1](tangent)), right * v)
    assert tg.linearize(f, x)[1](tangent) == pytest.approx(right @ v)
    prepared = tg.prepare(f, x)
    np.testing.assert_allclose(members(prepared.hvp(x, tangent)), 6 * flat * v)
    out = other_order(restore(np.zeros(flat.size)))
    prepared.grad(x, out=out)
    np.testing.assert_allclose(members(tg.grad(f)(x)), right)
    np.testing.assert_allclose(members(other_order(out)), right)
    wrong = spoilt(restore(v), rng)
    for call in (
        lambda: tg.jvp(f, (x,), (wrong,)),
        lambda: tg.hvp(f, x, wrong),
        lambda: tg.vjp(lambda p: restore(members(p) ** 3), x)[1](wrong),
        lambda: tg.linearize(f, x)[1](wrong),
        lambda: prepared.hvp(x, wrong),
    ):
        with pytest.raises(ArgumentError, match="they must be alike"):
            call()


class Like:
    def __array__(self, dtype=None, copy=None):
        return np.array([1.0, 2.0], dtype)


FLOATS = {
    "Series": pandas.Series([1.0, 2.0]),
    "DataFrame": pandas.DataFrame({"a": [1.0, 2.0]}),
    "Index": pandas.Index([1.0, 2.0]),
    "Decimal": decimal.Decimal("1.5"),
    "Fraction": fractions.Fraction(1, 2),
    "Like": Like(),
    "csr_array": scipy.sparse.csr_array(np.eye(2)),
    "ndarray": np.array([1.0, 2.0], object),
}
CONSTANTS = (
    None,
    "text",
    3,
    True,
    np.arange(3),
    np.array(["a"]),
    pandas.Series([1, 2]),
    pandas.Timestamp("2020-01-01"),
    range(3),
    np.sin,
)


@pytest.mark.parametrize("seed", range(30))
def test_foreign_floats_anywhere_in_a_tree_are_refused(seed):
    rng = np.random.default_rng(seed)
    name = list(FLOATS)[seed % len(FLOATS)]
    tree = {
        "first": np.ones(2),
        "then": random_tree(rng, lambda: [1.0, CONSTANTS[rng.integers(len(CONSTANTS))]]),
    }
    f = lambda p: (p["first"] ** 2).sum()
    assert tg.grad(f)(tree)["first"].tolist() == [2.0, 2.0]
    assert tg.optimize.minimize(f, tree).x["first"] == pytest.approx([0.0, 0.0], abs=1e-6)
    tree["last"] = [0.5, (FLOATS[name],)]
    for call in (
        tg.grad(f),
        tg.hessian(f),
        lambda p: tg.jvp(f, (p,), (p,)),
        tg.ravel,
        lambda p: tg.optimize.minimize(f, p),
    ):
        with pytest.raises(
            ArgumentError, match=rf"\['last'\]\[1\]\[0\], is of .*{name}.*pass .*, or tapegrad.Const"
        ):
            call(tree)
    tree["last"] = [0.5, (tg.Const(FLOATS[name]),)]
    assert tg.grad(f)(tree)["first"].tolist() == [2.0, 2.0]
    assert tg.optimize.minimize(f, tree).success


@pytest.mark.parametrize("seed", range(12))
def test_integers_in_a_tree_are_not_moved(seed):
    rng = np.random.default_rng(seed)
    whole = (int(rng.integers(5)), np.int64(3), rng.integers(0, 9, 2), True)[seed % 4]
    x0 = {"p": rng.standard_normal(2), "rest": (whole, rng.standard_normal())}
    r = tg.optimize.minimize(lambda p: ((p["p"] - p["rest"][0]) ** 2).sum() + p["rest"][1] ** 2, x0)
    assert r.x["p"] == pytest.approx(np.broadcast_to(whole, 2) * 1.0) and np.array_equal(
        r.x["rest"][0], whole
    )
    assert type(r.x["rest"][0]) is type(whole)


@pytest.mark.parametrize("dtype", [int, np.int8, np.uint16, bool])
@pytest.mark.parametrize(
    "text",
    [
        "a[0] = x[0]",
        "a.fill(x[0])",
        "a.fill(\n        x.max())",
        "b = [a]; b[0].fill(x[0])",
        "a[:2] = x",
        "a[...] = x[0]",
        "a[[0, 1]] = x",
        "a[a > 5] = x[0]",
        "a[0] += x[0]",
        "a.flat[0] = x[0]",
    ],
)
def test_storing_in_an_array_of_integers_raises(text, dtype):
    space = {"np": np, "dtype": dtype}
    exec(f"def f(x):\n    a = np.full(2, 9, dtype)\n    {text}\n    return a.sum() * 1.0", space)
    for transform in (tg.grad, lambda f: lambda x: tg.jvp(f, (x,), (x,))):
        with pytest.raises((tg.errors.DroppedDerivativeError, ValueError, TypeError)):
            transform(space["f"])(np.array([1.5, 2.5]))
    plain = {"np": np, "dtype": dtype}
    exec("def f(x):\n    a = np.full(2, 9, dtype)\n    a[0] = int(x[0])\n    return a[0] * x[1]", plain)
    assert tg.grad(plain["f"])(np.array([1.5, 2.5])).tolist() == [0.0, 1.0]
    exec("def f(x):\n    a = np.full(2, 9, dtype)\n    a.fill(int(x[0]))\n    return a[0] * x[1]", plain)
    assert tg.grad(plain["f"])(np.array([1.5, 2.5])).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("text", ["a[0] = x[0]", "a.fill(x[0])"])
@pytest.mark.parametrize("dtype", [int, bool])
def test_the_error_is_ours(text, dtype):
    space = {"np": np, "dtype": dtype}
    exec(f"def f(x):\n    a = np.zeros(2, dtype)\n    {text}\n    return a.sum() * x[1]", space)
    x = np.array([1.5, 2.5])
    for run in (
        tg.grad,
        lambda f: lambda x: tg.vmap(tg.grad(f))(x[None]),
        lambda f: lambda x: tg.prepare(f, x).grad(x),
    ):
        with pytest.raises(tg.errors.DroppedDerivativeError, match="dtype|storing"):
            run(space["f"])(x)
