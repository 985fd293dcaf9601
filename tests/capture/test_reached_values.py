"""Tracked values that a function reads, or keeps, by ways that nobody listed: the derivative is right, or
there is an error.

What takes a function of plain values (a rule, a solver, a sparse matrix) or calls it again (a checkpoint)
asks its result, not its ways."""

import numpy as np
import pytest
from nested_holders import HOLDERS, nested

import tapegrad as tg

x, v = np.array([0.7, -1.3, 2.1]), np.array([0.3, 0.5, -0.2])

READERS = {
    "rule": lambda read: (
        lambda a: tg.rule(lambda x: x * read(), vjp=lambda g, out, x: g, jvp=lambda t, out, x: t[0])(a).sum()
    ),
    "rule of a sum": lambda read: (
        lambda a: tg.rule(lambda x: [x.sum(), (read() ** 2).sum()], vjp=lambda g, out, x: g[0])(a)[1]
    ),
    "root": lambda read: (
        lambda a: tg.implicit.root(lambda u, p: u - p * read(), lambda F, u, p: u - F(u, p))(
            np.zeros(3), a
        ).sum()
    ),
    "checkpoint": lambda read: lambda a: (tg.checkpoint(lambda z: z * read())(a)).sum(),
    "sparse Jacobian": lambda read: lambda a: tg.sparse.jacobian(lambda z: z**2 * read(), np.ones(3)).sum(),
    "sparse Hessian": lambda read: (
        lambda a: tg.sparse.hessian(lambda z: (z**3 * read()).sum(), np.ones(3), pattern=np.eye(3) > 0).sum()
    ),
    "prepare": lambda read: lambda a: tg.prepare(lambda z: (z * read()).sum(), np.ones(3))(a * 1.0),
}


def derivative(f, mode):
    if mode == "reverse":
        return tg.grad(f)(x) @ v
    if mode == "forward":
        return tg.jvp(f, (x,), (v,))[1]
    return tg.jvp(lambda s: tg.jvp(f, (x,), (s * v,))[1], (1.0,), (1.0,))[1]  # linear in the direction


def right_or_loud(f, mode, note):
    h = 1e-6
    try:
        slope = (f(x + h * v) - f(x - h * v)) / (2 * h)
        got = float(derivative(f, mode))
    except tg.errors.TapegradError:
        return False
    assert got == pytest.approx(slope, rel=1e-6, abs=1e-6), (note, mode)
    return True


@pytest.mark.parametrize("reader", READERS)
def test_a_tracked_value_that_a_function_reads(reader):
    for seed in range(12):
        r = np.random.default_rng(seed)
        kinds, _ = nested(x, np.random.default_rng(seed))

        def f(a, seed=seed):
            return READERS[reader](nested(a * 2.0, np.random.default_rng(seed))[1])(a)

        right_or_loud(f, ("reverse", "forward", "nested")[r.integers(3)], kinds)


def kept(wrap, used, seed):
    class Owner:
        pass

    def f(a):
        owner = Owner()

        def keep(z):
            owner.read = nested(z * 2.0, np.random.default_rng(seed))[1]
            return (z * z).sum()

        y = wrap(keep)(a)
        return 3.0 * owner.read().sum() + (y if used else 0.0)

    return f


KEEPERS = {
    "checkpoint": tg.checkpoint,
    "checkpoint of a gradient": lambda g: tg.checkpoint(lambda z: (tg.grad(g)(z) ** 2).sum()),
    "checkpoint of a product": lambda g: tg.checkpoint(lambda z: tg.jvp(g, (z,), (z,))[1]),
    "gradient of a checkpoint": lambda g: lambda z: tg.grad(tg.checkpoint(g))(z).sum(),
    "checkpoint of a checkpoint": lambda g: tg.checkpoint(lambda z: tg.checkpoint(g)(z)),
    "none": lambda g: g,
}


@pytest.mark.parametrize("keeper", KEEPERS)
def test_a_tracked_value_that_a_function_keeps(keeper):
    done = 0
    for seed in range(12):
        used, mode = bool(seed % 2), ("reverse", "forward")[seed // 2 % 2]
        done += right_or_loud(
            kept(KEEPERS[keeper], used, seed), mode, nested(x, np.random.default_rng(seed))[0]
        )
    assert done >= (12 if keeper == "none" else 0)


@pytest.mark.long
@pytest.mark.parametrize("what", [*READERS, *KEEPERS])
def test_many_ways(what):
    for seed in range(100, 300):
        r = np.random.default_rng(seed)
        if what in READERS:
            f = lambda a, seed=seed: READERS[what](nested(a * 2.0, np.random.default_rng(seed))[1])(a)
        else:
            f = kept(KEEPERS[what], bool(seed % 2), seed)
        right_or_loud(
            f, ("reverse", "forward", "nested")[r.integers(3)], nested(x, np.random.default_rng(seed))[0]
        )


def test_what_is_kept_and_has_no_derivative_is_allowed():
    class Owner:
        calls, last = 0, None

    def f(a):
        owner = Owner()

        def g(z):
            owner.calls += 1
            owner.last = [np.full(3, 2.0), {"scale": 1.5}, tg.value(z).sum()]
            return (z * z).sum()

        tg.checkpoint(g)(a)
        return owner.last[1]["scale"] * owner.last[0].sum() * a.sum() * owner.calls

    assert np.allclose(tg.grad(f)(x), 9.0) and tg.jvp(f, (x,), (v,))[1] == pytest.approx(9.0 * v.sum())


def test_a_rule_names_the_way():
    def f(a):
        read = HOLDERS["namespace"](a)
        return tg.rule(lambda z: (z * read()).sum(), vjp=lambda g, out, z: g * z)(a)

    with pytest.raises(
        tg.errors.ArgumentError, match=r"test_reached_values.*`held` of .*pass it as an argument"
    ):
        tg.grad(f)(x)
    cut = lambda a: tg.rule(lambda z: (z * tg.value(a)).sum(), vjp=lambda g, out, z: g * x)(a)
    assert np.array_equal(tg.grad(cut)(x), x)


def test_a_function_that_reads_other_values_in_each_run_ends():
    class Owner:
        pass

    def f(a):
        owner = Owner()
        owner.read = lambda: 0.0

        def F(u, p):
            r = u - p + 0 * owner.read()
            owner.read = lambda: p
            return r

        return tg.implicit.root(F, lambda F, u, p: u - F(u, p))(np.zeros(3), a).sum()

    for run in (lambda: tg.grad(f)(x), lambda: tg.jvp(f, (x,), (v,))):
        with pytest.raises(tg.errors.TapegradError):
            run()


def test_a_sparse_matrix_of_what_is_not_tracked_within_a_transform():
    scale = np.array([1.0, 2.0, 3.0])

    def f(a):
        plain = tg.value(a)
        return a.sum() * tg.sparse.hessian(lambda z: (scale * plain * z**3).sum(), np.ones(3)).sum()

    assert np.allclose(tg.grad(f)(x), 6 * (scale * x).sum())
