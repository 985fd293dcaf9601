"""Hand-written kernels under `tg.vmap`: one launch for all samples where the declaration names their
dimension, the numbers of a loop."""

import itertools

import numpy as np
import pytest
from comparison import host
from looped import forms, further_forms, same
from raw_device import noted_launches  # noqa: F401
from raw_kernels import (
    LOOP,
    THETA,
    X,
    gaussian,
    kernel,
    linear,
    raw,
    recursion,
    reduction,
    scale,
    stencil,
    while_loop,
)

import tapegrad as tg
from tapegrad.errors import KernelError
from tapegrad.kernels.launch.host import HostCode

RNG = np.random.default_rng(0)
WHICH = np.array([0, 1, -1], np.int32)
C = np.array([1.0, -2.0])
ROWS = RNG.normal(size=(4, 3))
MANY = RNG.normal(size=(4, 2, 3))
THETAS = np.stack([THETA * (1 + 0.1 * k) for k in range(4)])
GAUSSIAN, LINEAR, WHILE, RECURSION, SCALE = gaussian(2), linear(), while_loop(), recursion(), scale()

CASES = {
    "theta": (lambda theta: GAUSSIAN(theta, X), 2, THETAS),
    "shared coefficients": (lambda x: LINEAR(C, x, WHICH, 0.5), 1, MANY),
    "a forward rule": (WHILE, 1, abs(ROWS) + 1.5),
    "a slot for each thread": (lambda x: RECURSION(x, 3), 1, abs(ROWS) + 0.5),
    "in place": (SCALE, 1, ROWS, RNG.normal(size=(4, 3))),
    "one after the other: coefficients": (lambda c, x: LINEAR(c, x, WHICH, 0.5), 1, RNG.normal(size=(4, 2)),
    MANY),
    "one after the other: neighbours": (stencil(), 1, ROWS),
    "one after the other: a sum": (reduction(), 1, ROWS),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_as_in_a_loop(name):
    f, order, *stacks = CASES[name]
    v = [np.cos(np.arange(x.size)).reshape(x.shape) for x in stacks]
    for form, batched, loop in itertools.chain(
        forms(lambda: f, len(stacks), v, order), further_forms(lambda: f, len(stacks))
    ):
        got, want = batched(*stacks), loop(*stacks)
        assert same(got, want, 1e-9), f"{form}: {got} instead of {want}"


@pytest.mark.parametrize("name", [n for n in CASES if not n.startswith("one after")])
def test_how_often_it_is_launched(name, monkeypatch):
    f, _, *stacks = CASES[name]
    n, launches, launch = tuple(range(len(stacks))), [], HostCode.__call__
    total = lambda *xs: f(*xs).sum()
    calls = tg.vmap(f), tg.vmap(tg.grad(total, n)), tg.grad(lambda *s: tg.vmap(total)(*s).sum(), n)
    for call in calls:
        call(*stacks)
    monkeypatch.setattr(
        HostCode,
        "__call__",
        lambda self, *args, **rest: (launches.append(self), launch(self, *args, **rest))[1],
    )
    for call in calls:
        del launches[:]
        call(*stacks)
        assert 1 <= len(launches) <= 1 + len(stacks)


def test_on_both_libraries(device):
    xp, launches = device
    thetas = xp.asarray(THETAS)
    for call in (
        tg.vmap(lambda theta: GAUSSIAN(theta, xp.asarray(X))),
        tg.vmap(tg.grad(lambda theta: GAUSSIAN(theta, xp.asarray(X)).sum())),
    ):
        del launches[:]
        want = np.stack([host(row) for row in (call(xp.stack([t]))[0] for t in thetas)])
        several = len(launches)
        np.testing.assert_allclose(host(call(thetas)), want, rtol=1e-12)
        assert xp is np or (several and len(launches) - several <= several / 2)


def test_samples_that_are_not_independent_are_noticed():
    source = kernel(
        "beside", "const real* x, real* y, long long B", f"{LOOP} {{ y[b] = x[b] + (b > 0 ? x[b - 1] : 0); }}"
    )
    k = raw(source, "beside", ["in real x[B]", "out real y[B]", "size B"])
    assert k(ROWS[0]).shape == (3,)
    with pytest.raises(
        KernelError, match="beside: samples='B' says that each sample has its own thread, and under tg.vmap"
    ):
        tg.vmap(k)(ROWS)


def test_no_samples():
    assert tg.vmap(lambda theta: GAUSSIAN(theta, X))(THETAS[:1]).shape == (1, 3)
    with pytest.raises(tg.errors.BatchError, match="gaussian runs sample by sample, and there are none"):
        tg.vmap(lambda theta: GAUSSIAN(theta, X))(THETAS[:0])
