"""Operands of one operation that belong to different transforms: one to an inner derivative, the other to an outer
one or to the samples of a `vmap`.

Every line of tests/support/cases.py with real inputs, for each pair of inputs; the judge is the derivative in which
one transform watches all inputs."""

import numpy as np
import pytest
from cases import all_cases

import tapegrad as tg

pytestmark = pytest.mark.usefixtures("quiet")
CASES = [
    c
    for c in all_cases()
    if c.order > 1
    and all([x.dtype != complex and x.size <= 40 for x in c.of_floats()[1]])
    and c.of_floats()[1]
]


def total_of(case):
    """(the sum of the real results with fixed weights, the inputs)"""
    f, xs = case.of_floats()
    outputs = lambda y: y if isinstance(y, (tuple, list)) else [y]
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=np.shape(y)) for y in outputs(f(*xs))]

    def total(*xs):
        pairs = zip(outputs(f(*xs)), weights, strict=True)
        return sum([(np.real(y) * w).sum() for y, w in pairs if np.asarray(tg.value(y)).dtype.kind in "fc"])

    return total, xs


def at(xs, places):
    return [places.get(k, x) for k, x in enumerate(xs)]


def mixed(h, xs, i, j, u, v):
    """(name, derivative by x[i] along u and by x[j], is it along v too?) with each input in a transform of its own."""
    inner = lambda z: tg.grad(lambda a: h(*at(xs, {j: z, i: a})))(xs[i])
    along = lambda z: tg.jvp(lambda a: h(*at(xs, {j: z, i: a})), (xs[i],), (u,))[1]
    twice = lambda x: np.stack([x, x])
    yield "RR", tg.grad(lambda z: (inner(z) * u).sum())(xs[j]), False
    yield "FR", tg.jvp(lambda z: (inner(z) * u).sum(), (xs[j],), (v,))[1], True
    yield "RF", tg.grad(along)(xs[j]), False
    yield "FF", tg.jvp(along, (xs[j],), (v,))[1], True
    yield "samples of x[j]", tg.grad(lambda Z: (tg.vmap(inner)(Z) * u).sum())(twice(xs[j]))[0], False
    slope = lambda z, a: (tg.grad(lambda a: h(*at(xs, {j: z, i: a})))(a) * u).sum()
    samples = lambda z: tg.vmap(lambda a: slope(z, a))(twice(xs[i])).sum() / 2
    yield "samples of x[i]", tg.grad(samples)(xs[j]), False


def tangents(h, xs, i, j, u):
    """The derivative by x[i] along u, which is a sample, as a function of x[j]."""
    push = lambda z, u: tg.jvp(lambda a: h(*at(xs, {j: z, i: a})), (z if i == j else xs[i],), (u,))[1]
    return lambda z: tg.vmap(lambda u: push(z, u))(np.stack([u, u])).sum() / 2


@pytest.mark.parametrize(
    "k", [pytest.param(k, marks=[] if k % 24 == 7 else pytest.mark.long) for k in range(len(CASES))]
)
def test_second_derivatives(k):
    h, xs = total_of(CASES[k])
    rng = np.random.default_rng(1)
    directions = [rng.normal(size=x.shape) for x in xs]
    every = tuple(range(len(xs)))
    for i, u in enumerate(directions):
        want = tg.jvp(lambda z, i=i: tg.grad(h, every)(*at(xs, {i: z})), (xs[i],), (u,))[1]
        for j, v in enumerate(directions):
            found = mixed(h, xs, i, j, u, v) if i != j else ()
            for name, got, pushed in found:
                close(got, (want[j] * v).sum() if pushed else want[j], name)
            pushed = tangents(h, xs, i, j, u)
            close(tg.grad(pushed)(xs[j]), want[j], "tangents")
            if CASES[k].order > 2:
                twice = tg.grad(lambda z, f=pushed, v=v: (tg.grad(f)(z) * v).sum())(xs[j])
                close(
                    twice,
                    tg.hvp(
                        lambda z: tg.jvp(lambda a: h(*at(xs, {j: z, i: a})), (z if i == j else xs[i],), (u,))[
                            1
                        ],
                        xs[j],
                        v,
                    ),
                    "third",
                )


def close(got, want, name):
    finite = np.isfinite(want)
    scale = 1e-3 + np.max(np.abs(want), where=finite, initial=0.0)
    assert np.shape(got) == np.shape(want) and np.array_equal(np.isfinite(got), finite), name
    assert np.all(np.abs(np.asarray(got) - want)[finite] <= 1e-7 * scale), (name, got, want)


def test_a_right_side_of_an_outer_transform():
    x, A = np.array([0.3, -0.5]), np.array([[2.0, 0.3], [0.1, 1.5]])
    f = lambda z: (tg.grad(lambda a: np.linalg.solve(a, z).sum())(A) ** 2).sum()
    w, B = np.linalg.solve(A.T, np.ones(2)), np.linalg.inv(A)  # the gradient is - w (B z)^T
    assert np.allclose(tg.grad(f)(x), 2.0 * (w @ w) * B.T @ B @ x, rtol=1e-12)
