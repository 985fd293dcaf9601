"""Random programs that put numbers into sets and dicts: each takes the branch of the plain call, in every
mode, or says that it cannot.

The judge is the plain program: its values, and its differences at points where no two numbers are equal that
were not."""

import collections

import numpy as np
import pytest

import tapegrad as tg

TABLE = {0.5: 3.0, 1.5: -2.0, 2.5: 0.25}


def distinct(v):
    return sum(a * a for a in {v[0], v[1], v[2], v[0] * 1.0}) * len(set(v))


def table(v):
    return sum(a * TABLE.get(a, 1.0) for a in v)


def member(v):
    return sum(a * a if a in {0.5, 1.5, 2.5} else a * a * a for a in v)


def seen(v):
    met, s = set(), 0.0
    for a in (*v, *v[::-1]):
        if a not in met:
            met.add(a)
            s = s + a * a * len(met)
    return s


def memo(v):
    known = {}

    def f(a):
        if a not in known:
            known[a] = a * a + len(known)
        return known[a]

    return sum(f(a) for a in (*v, v[1], v[2]))


def counted(v):
    return sum(a * n for a, n in collections.Counter(v[i] for i in (0, 1, 2, 0, 3)).items())


def groups(v):
    found = collections.defaultdict(lambda: 0.0)
    for k, a in enumerate(v):
        found[a * 1.0] += a * (k + 1)
    return sum(g * g for g in found.values())


def ordered(v):
    return sum(k * a for k, a in enumerate(dict.fromkeys(v[i] for i in (2, 0, 2, 1, 3))))


def frozen(v):
    return v[0] * v[1] * (2.0 if frozenset((v[0], v[1])) == {0.5, 1.5} else 3.0) + v[3] * len(
        frozenset(v) & {0.5, 2.5}
    )


def places(v):
    at = {a: k for k, a in enumerate(v)}
    return sum(a * at[a] for a in v) + v[0] * [*at].index(v[-1])


PIECES = [distinct, table, member, seen, memo, counted, groups, ordered, frozen, places]
INNER = [
    lambda x: x,
    lambda x: x * 1.0,
    lambda x: np.maximum(x, 0.6),
    lambda x: np.floor(x) + 0.5,
    lambda x: np.where(x > 1, x, 1.5),
]


def program(rng):
    """A function of a vector of four numbers, some of which are those of the table, and equal to each
    other."""
    outer, inner = [PIECES[k] for k in rng.integers(len(PIECES), size=2)], INNER[rng.integers(len(INNER))]
    f = lambda x: outer[0](inner(x)) + outer[1](x) * x[0]
    return f, rng.choice([0.5, 1.5, 2.5, 0.7, 1.1, 1.9], size=4)


def same_branch(f, x, v, h=1e-4):
    """The derivative along v by differences of the program on the branch of x."""
    found = [f_of(f, x, t * h * v) for t in (1, -1, 2, -2)]
    return (8 * (found[0] - found[1]) - (found[2] - found[3])) / (12 * h)


def f_of(f, x, step):
    """f at x + step, on the branch of x."""
    y = np.empty(x.size, object)
    y[:] = [Pair(a, a + b) for a, b in zip(x, step, strict=True)]
    return float(Pair.of(f(y)).there)


class Pair:
    """Two numbers: all questions are asked of the first."""

    def __init__(self, here, there):
        self.here, self.there = here, there

    @staticmethod
    def of(x):
        return x if isinstance(x, Pair) else Pair(x, x)

    def __hash__(self):
        return hash(self.here)

    def __eq__(self, other):
        return self.here == Pair.of(other).here

    def __lt__(self, other):
        return self.here < Pair.of(other).here

    def __gt__(self, other):
        return self.here > Pair.of(other).here

    def __add__(self, other):
        return Pair(self.here + Pair.of(other).here, self.there + Pair.of(other).there)

    def __mul__(self, other):
        return Pair(self.here * Pair.of(other).here, self.there * Pair.of(other).there)

    def __ge__(self, other):
        return not self < other

    def __floor__(self):
        return Pair(np.floor(self.here), np.floor(self.here))

    __radd__, __rmul__ = __add__, __mul__


def judge(seed):
    rng = np.random.default_rng(seed)
    f, x = program(rng)
    v = rng.standard_normal(4)
    plain, slope = f(x), same_branch(f, x, v)
    value, g = tg.value_and_grad(f)(x)
    _, d = tg.jvp(f, (x,), (v,))
    nested = tg.jvp(lambda x: tg.value_and_grad(f)(x)[0], (x,), (v,))[1]
    assert value == plain
    np.testing.assert_allclose([g @ v, d, nested], slope, rtol=1e-7, atol=1e-7)
    p = tg.prepare(f, x)
    points = [x, rng.permutation(x), np.round(x) + 0.5, x]
    for y in points:  # another branch
        assert np.isclose(p.value(y), f(y), rtol=1e-12)
        np.testing.assert_allclose(p.grad(y) @ v, same_branch(f, y, v), rtol=1e-7, atol=1e-7)
    for some in (points, [x, x + 0.0]):
        try:
            batched = tg.vmap(f)(np.array(some))
        except tg.errors.BatchError:
            assert some is points
            continue
        np.testing.assert_allclose(batched, [f(y) for y in some], rtol=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_programs_with_numbers_in_sets_and_dicts(seed):
    judge(seed)


@pytest.mark.long
def test_many_programs_with_numbers_in_sets_and_dicts():
    for seed in range(8, 300):
        judge(seed)


@pytest.mark.parametrize(
    "make",
    [lambda x: x * 2, lambda x: x[1:], lambda x: np.array(x[0]), lambda x: np.outer(x, x).T],
    ids=range(4),
)
def test_arrays_are_not_hashed(make):
    def f(x):
        for ask in (hash, lambda y: {y}, lambda y: {y: 1}, lambda y: y in {1.0}):
            with pytest.raises(TypeError, match="unhashable"):
                ask(make(x))
        return x.sum()

    x = np.ones(3)
    f(x), tg.grad(f)(x), tg.jvp(f, (x,), (x,)), tg.hvp(f, x, x), tg.prepare(f, x).value(x)
