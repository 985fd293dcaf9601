"""tg.loop is the plain loop, in few states and in the fewest steps."""

import functools
import itertools
import math
import os
import tracemalloc
from dataclasses import dataclass

import numpy as np
import pytest

import tapegrad as tg
from tapegrad._core.scope import OPEN
from tapegrad._transforms import time_loop
from tapegrad._transforms.schedules import advance_length, first_snapshots
from tapegrad.errors import ArgumentError, GuardError, ShapeError

x, v = np.array([0.9, 1.1, 0.8]), np.array([0.3, 0.2, -0.5])
scale = np.array([1.0, 1.2, 0.7])


def plain_loop(n, step, state, **settings):
    state = tg.tree.map(lambda leaf: leaf * 1, state)
    for i in range(n):
        state = step(i, state)
    return state


@dataclass
class Body:
    place: np.ndarray
    speed: np.ndarray


def wave(loop, n, x):
    def step(i, s):
        u, w = s
        w = np.sin(u) * x + w * 0.1 * i
        return w, u * scale

    return sum(np.sum(s) for s in loop(n, step, (x * 2, np.ones(3))))


def in_place(loop, n, x):
    def step(i, s):
        s["u"][1:] += 0.1 * s["u"][:-1] * x[1:]
        s["u"][0] = np.cos(s["u"][2])
        s["t"] = s["t"] + 0.5
        s["k"] += 1
        return {"u": s["u"] * s["t"] / (s["k"] + 1), "t": s["t"], "k": s["k"], "name": s["name"]}

    return np.sum(loop(n, step, {"u": x * 1.0, "t": 0.5, "k": 0, "name": "a"})["u"])


def trajectory(loop, n, x):
    X = np.zeros((n + 1, 3))
    X[0] = x

    def step(i, total):
        X[i + 1] = np.sin(X[i]) * x
        return total + X[i + 1].sum() ** 2

    return loop(n, step, 0.0) + X[-1].sum()


def swapped(loop, n, x):
    old, new = x * 1.0, np.zeros(3)

    def step(i, s):
        a, b = s
        b[:] = np.tanh(a) * x
        return b, a

    return loop(n, step, (old, new))[0].sum()


def bodies(loop, n, x):
    def step(i, b):
        assert isinstance(b, Body)
        speed = b.speed - 0.1 * b.place**3
        return Body(b.place + 0.1 * speed, speed)

    b = loop(n, step, Body(x, x * x))
    return (b.place * b.speed).sum()


def nested(loop, n, x):
    return loop(n, lambda i, s: loop(3, lambda j, q: np.sin(q) * x + i, s), x).sum()


def noise(loop, n, x):
    rng = np.random.default_rng(4)
    return loop(n, lambda i, s: s * 0.9 + x * rng.normal(size=3) * s, x).sum() + rng.random()


def inner_gradient(loop, n, x):
    energy = lambda q: (q**4).sum() / 4 + (q * x).sum()
    return (loop(n, lambda i, q: q - 0.05 * tg.grad(energy)(q), x * 0.5) ** 2).sum()


PROGRAMS = [wave, in_place, trajectory, swapped, bodies, nested, noise, inner_gradient]
FORMS = {
    "value": lambda f: f(x),
    "grad": lambda f: tg.grad(f)(x),
    "jvp": lambda f: tg.jvp(f, (x,), (v,))[1],
    "hvp": lambda f: tg.hvp(f, x, v),
    "reverse over reverse": lambda f: tg.grad(lambda y: tg.grad(f)(y) @ v)(x),
    "pulled twice": lambda f: (lambda pullback: pullback(1.0) - 3 * pullback(1.0))(tg.vjp(f, x)[1]),
    "vmap of grad": lambda f: tg.vmap(tg.grad(f))(np.stack([x, x * 1.1])),
    "grad of vmap": lambda f: tg.grad(lambda X: tg.vmap(f)(X).sum())(np.stack([x, x * 1.1])),
}


# (under vmap a generator would draw once for all samples)
CASES = [(p, form) for p in PROGRAMS for form in FORMS if p is not noise or "vmap" not in form]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("program, form", CASES, ids=lambda c: getattr(c, "__name__", c))
def test_as_the_plain_loop(program, form):
    expected = FORMS[form](functools.partial(program, plain_loop, 5))
    for snapshots in (1, 2, None):
        loop = functools.partial(tg.loop, snapshots=snapshots)
        assert np.allclose(FORMS[form](functools.partial(program, loop, 5)), expected, rtol=1e-12)


@pytest.mark.parametrize("n", [0, 1, 2, 17])
def test_numbers_of_steps(n):
    loop = functools.partial(tg.loop, snapshots=3)
    for program in (wave, in_place):
        assert np.allclose(
            tg.grad(lambda x: program(loop, n, x))(x), tg.grad(lambda x: program(plain_loop, n, x))(x)
        )


def test_prepared():
    p = tg.prepare(functools.partial(wave, functools.partial(tg.loop, snapshots=2), 5), x)
    for y in (x, 1.1 * x, 0.8 * x, 1.2 * x):
        assert np.allclose(p.grad(y), tg.grad(functools.partial(wave, plain_loop, 5))(y), rtol=1e-12)


def test_tape_by_hand():
    with tg.Tape() as tape:
        a = tape.watch(x)
        y = tg.loop(6, lambda i, s: s * a * 1.1, a, snapshots=2).sum()
    assert np.allclose(tape.grad(y, a), 7 * 1.1**6 * x**6)


# --- the schedule ---


@functools.cache
def fewest(length, snapshots):
    """By trial of all places for the next snapshot."""
    if length <= 1 or snapshots == 1:
        return length * (length - 1) // 2
    return min(m + fewest(m, snapshots) + fewest(length - m, snapshots - 1) for m in range(1, length))


def advances(length, snapshots):
    """Formula (6) of Griewank and Walther: r n - C(s + r, r - 1), with r the least such that C(s + r, s)
    reaches n."""
    r = next(r for r in itertools.count() if math.comb(snapshots + r, snapshots) >= length)
    return r * length - math.comb(snapshots + r, r - 1) if r else 0


@functools.cache
def scheduled(length, snapshots):
    if length <= 1:
        return 0
    if snapshots == 1:
        return length * (length - 1) // 2
    m = advance_length(length, snapshots)
    return m + scheduled(m, snapshots) + scheduled(length - m, snapshots - 1)


def test_the_schedule_is_optimal():
    for length, snapshots in itertools.product(range(1, 40), range(1, 9)):
        assert advances(length, snapshots) == fewest(length, snapshots) == scheduled(length, snapshots)
        assert len(first_snapshots(length, snapshots)) <= snapshots


@pytest.mark.parametrize("snapshots", [4, 10, 50])
def test_the_schedule_of_many_steps(snapshots):
    assert scheduled(10**5, snapshots) == advances(10**5, snapshots)


@pytest.mark.parametrize("snapshots, n", [(1, 12), (2, 60), (3, 100), (7, 400), (400, 300)])
def test_steps_are_counted(snapshots, n):
    assert steps_of_gradient(snapshots, n) == n + advances(n, snapshots)


@pytest.mark.long
def test_steps_are_counted_in_a_long_loop():
    for snapshots in (20, 200):
        assert steps_of_gradient(snapshots, 10**5) == 10**5 + advances(10**5, snapshots)


def steps_of_gradient(snapshots, n):
    ran = Counted()
    assert np.isclose(tg.grad(lambda a: tg.loop(n, ran.step(a), a, snapshots=snapshots))(0.5), 1.0 + n)
    return ran.count


class Counted:
    """Counts in compiled code, past everything that is followed."""

    def __init__(self):
        self.ticks = itertools.count()

    def step(self, a):
        tick = tg.Const(self.ticks.__next__)

        def step(i, s):
            tick()
            return s + a

        return step

    @property
    def count(self):
        return next(self.ticks)


def test_memory_is_that_of_the_snapshots():
    """It grows by one state with each snapshot, and not with the number of steps."""
    size, state = 20_000, np.linspace(0.0, 1.0, 20_000)

    def peak(n, snapshots):
        """In states."""

        def f(a):
            return tg.loop(n, lambda i, s: np.sin(s) * a, state, snapshots=snapshots).sum()

        tg.grad(f)(1.0)
        tracemalloc.start()
        tg.grad(f)(1.0)
        found = tracemalloc.get_traced_memory()[1] / (8 * size)
        tracemalloc.stop()
        return found

    few, many, long_ = peak(40, 4), peak(40, 16), peak(200, 16)
    assert abs(many - few - 12) < 0.5
    assert abs(long_ - many) < 0.5


def test_snapshots_in_files(tmp_path, monkeypatch):
    big = np.linspace(0.0, 1.0, 2000)

    folder, files = tmp_path / "new", []

    class Watched(time_loop.StoredArray):
        def __init__(self, *args):
            super().__init__(*args)
            files.append(len(os.listdir(folder)))

    monkeypatch.setattr(time_loop, "StoredArray", Watched)

    def g(a, store):
        constant = np.ones(2000)
        step = lambda i, s: np.sin(s) * a + constant
        return tg.loop(20, step, big, snapshots=4, store=store).sum()

    assert tg.grad(g)(1.1, folder) == tg.grad(g)(1.1, None)
    assert max(files) == 3  # those of the first state and of the constant are held anyway
    assert np.isclose(tg.hvp(lambda a: g(a, folder), 1.1, 1.0), tg.hvp(lambda a: g(a, None), 1.1, 1.0))
    assert os.listdir(folder) == []


def test_on_a_device(xp):
    start = xp.linspace(0.0, 1.0, 1000)

    def f(a, store):
        return tg.loop(9, lambda i, s: xp.sin(s) * a, start * a, snapshots=3, store=store).sum()

    expected = tg.grad(
        lambda a: plain_loop(9, lambda i, s: np.sin(s) * a, np.linspace(0, 1, 1000) * a).sum()
    )(1.1)
    for store in (None, "host"):
        assert np.isclose(float(tg.grad(f)(xp.asarray(1.1), store)), expected)


# --- values and places ---


def test_the_first_state_stays_as_it_is():
    first = x.copy()

    def step(i, s):
        s *= 2
        return s

    assert tg.loop(3, step, first).tolist() == (8 * x).tolist()
    assert np.allclose(tg.grad(lambda a: tg.loop(3, step, first * a).sum())(1.0), 8 * x.sum())
    assert np.array_equal(first, x)


def test_a_result_is_a_value():
    """A captured array that a step returns is not altered by later writes; inside transforms and outside."""
    buffer = np.zeros(3)

    def step(i, s):
        buffer[:] = s * 2
        buffer[0] = s[1]
        return buffer

    def f(x):
        return (tg.loop(4, step, x) * np.array([1.0, 2.0, 3.0])).sum()

    value, gradient = tg.value_and_grad(f)(x)
    assert np.isclose(value, f(x))
    assert np.allclose(gradient, [0.0, 8 + 2 * 16.0, 3 * 16.0])


# --- what is refused ---


@pytest.mark.parametrize("n", [-1, 2.5, "3", True])
def test_numbers_that_are_none(n):
    with pytest.raises(ArgumentError, match="n is .* at least 0"):
        tg.loop(n, lambda i, s: s, x)
    with pytest.raises(ArgumentError, match="snapshots is .* at least 1"):
        tg.loop(3, lambda i, s: s, x, snapshots=n)
    with pytest.raises(ArgumentError, match="snapshots is 0"):
        tg.loop(3, lambda i, s: s, x, snapshots=0)
    with pytest.raises(ArgumentError, match="store is 3"):
        tg.loop(3, lambda i, s: s, x, store=3)
    with pytest.raises(ArgumentError, match="not a function"):
        tg.loop(3, 5, x)


@pytest.mark.parametrize("transform", [lambda f: f, tg.grad], ids=["plain", "grad"])
@pytest.mark.parametrize(
    "step, words",
    [
        (lambda i, s: s[:2], r"leaf 0 .* from shape \(3,\), float64 to shape \(2,\)"),
        (lambda i, s: (s, s), "same tree"),
        (lambda i, s: None, "from shape .* no array"),
        (lambda i, s: s.astype(np.float32), "float32"),
    ],
    ids=range(4),
)
def test_another_state(step, words, transform):
    with pytest.raises(ShapeError, match=r"^loop\(<lambda>\): step 0 .*" + words):
        transform(lambda x: tg.loop(3, step, x).sum())(x)
    assert OPEN.depth == 0


def test_a_state_that_is_no_tree():
    class Holder:
        pass

    with pytest.raises(ArgumentError, match="register_tree"):
        tg.loop(3, lambda i, s: s, Holder())


def side_effects():
    listed, counts, held = [], [0], type("Held", (), {"n": 0})()
    total, numbers, feed = 0, np.zeros(1, int), iter(range(100))

    def appends(i, s):
        listed.append(i)
        return s

    def counted(i, s):
        counts[0] += 1
        return s

    def attribute(i, s):
        held.n += 1
        return s

    def name(i, s):
        nonlocal total
        total += 1
        return s

    def integers(i, s):
        numbers[0] += 1
        return s

    def feeds(i, s):
        return s * next(feed)

    def keeps(i, s):
        listed.append(s * 2)
        return s

    return [appends, counted, attribute, name, integers, feeds, keeps]


@pytest.mark.parametrize("k", range(7), ids=[f.__name__ for f in side_effects()])
def test_side_effects(k):
    step = side_effects()[k]
    with pytest.raises(ArgumentError, match=r"^loop\(.*outside"):
        tg.grad(lambda x: tg.loop(4, step, x).sum())(x)
    assert OPEN.depth == 0
    assert tg.grad(lambda q: (q * q).sum())(x).tolist() == (2 * x).tolist()


def test_what_has_changed_is_told():
    held = [1.0, 2.0]

    def f(x):
        y = tg.loop(4, lambda i, s: s * held[1], x, snapshots=1)
        held[1] += 1.0
        return y.sum()

    with pytest.raises(GuardError, match="has changed"):
        tg.grad(f)(x)
    unseeded = lambda i, s: s * np.random.default_rng().normal(size=3)
    with pytest.raises(GuardError, match="other values"):
        tg.grad(lambda x: tg.loop(4, unseeded, x, snapshots=1).sum())(x)


def test_parameters_of_a_class():
    class Model:
        def __init__(self, rate):
            self.rate = rate

        def step(self, i, s):
            return s - self.rate * s * i

    f = lambda loop: lambda r: loop(5, Model(r * 0.1).step, x).sum()
    assert np.isclose(tg.grad(f(tg.loop))(0.7), tg.grad(f(plain_loop))(0.7))
    assert np.isclose(tg.hessian(f(tg.loop))(0.7), tg.hessian(f(plain_loop))(0.7))
