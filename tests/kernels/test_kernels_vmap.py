"""Kernels under `tg.vmap`: many samples in one launch, the numbers of a loop over them."""

import numpy as np
import pytest
from _cuda_host import array_library  # noqa: F401
from looped import forms, same

import tapegrad as tg
from tapegrad.kernels.launch.cpu import Launcher

RNG = np.random.default_rng(0)
THETA, MANY = RNG.normal(size=(4, 2)) ** 2 + 0.5, RNG.normal(size=(4, 2, 3)) ** 2 + 0.5
Y, ROWS, EACH = RNG.normal(size=(4, 7)), RNG.normal(size=(4, 2, 7)), RNG.normal(size=(4, 2, 7, 3))

of_numbers = tg.kernels.likelihood(lambda th, y: np.log(th[1]) - (y - th[0]) ** 2 * th[1])
of_rows = tg.kernels.likelihood(lambda th, y: np.log(th[1]) - (y[0] - th[0] * y[1]) ** 2 * th[1])
steps = tg.kernels.recursion(lambda th: 0.0, lambda m, th, y: (th[0] * m + y, -((y - m) ** 2) * th[1]))
mapped = tg.kernels.map(lambda a, b: np.sin(a) * b[0] + b[1])

CASES = {
    "shared data": (lambda th: of_numbers(th, Y[0]), THETA),
    "data of their own": (of_numbers, THETA, Y),
    "rows of their own": (of_rows, THETA, ROWS),
    "data alone": (lambda y: of_rows(THETA[0], y), ROWS),
    "samples in samples, shared data": (lambda th: of_rows(th, ROWS[0]), MANY),
    "samples in samples": (of_rows, MANY, EACH),
    "samples in samples, rows": (of_rows, MANY, ROWS),
    "samples in samples, numbers": (of_numbers, MANY, Y),
    "recursion": (steps, THETA, Y),
    "last carry": (steps.final, THETA, Y),
    "scores": (of_numbers.scores, THETA, Y),
    "contributions": (steps.contributions, THETA, Y),
    "gradient": (lambda th, y: of_numbers.value_and_grad(th, y)[1], THETA, Y),
    "map": (mapped, THETA, ROWS[:, :, :2]),
    "map beside a constant": (lambda a: mapped(a, ROWS[0]), RNG.normal(size=(4, 7))),
    "missing data": (
        tg.kernels.likelihood(lambda th, y: -((y - th[0]) ** 2) * th[1], missing="skip"),
        THETA, np.where(np.arange(7) % 3 == np.arange(4)[:, None] % 3, np.nan, Y),
    ),
}  # fmt: skip


def judged(name, order):
    f, *stacks = CASES[name]
    v = [np.cos(np.arange(x.size)).reshape(x.shape) for x in stacks]
    for form, batched, loop in forms(lambda: f, len(stacks), v, order):
        got, want = batched(*stacks), loop(*stacks)
        assert same(got, want, 1e-9), f"{form}: {got} instead of {want}"


@pytest.mark.one_in(7)
@pytest.mark.parametrize("name", CASES)
def test_one_launch_for_all_samples(name):
    judged(name, 1)


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_to_second_order(name):
    judged(name, 2)


@pytest.mark.parametrize(
    "name", ["shared data", "data of their own", "samples in samples", "recursion", "map"]
)
def test_how_often_it_is_launched(name, monkeypatch):
    f, *stacks = CASES[name]
    n, launches, launch = tuple(range(len(stacks))), [], Launcher.__call__
    total = lambda *xs: f(*xs).sum()
    tg.vmap(f)(*stacks), tg.vmap(tg.grad(total, n))(*stacks)
    tg.grad(lambda *s: tg.vmap(total)(*s).sum(), n)(*stacks)
    monkeypatch.setattr(
        Launcher, "__call__", lambda self, *args: (launches.append(self), launch(self, *args))[1]
    )
    for call in (tg.vmap(f), tg.vmap(tg.grad(total, n)), tg.grad(lambda *s: tg.vmap(total)(*s).sum(), n)):
        del launches[:]
        call(*stacks)
        assert 1 <= len(launches) <= 1 + len(stacks)


def test_in_nested_batches():
    got = tg.vmap(lambda th: tg.vmap(lambda y: of_numbers(th, y))(Y))(THETA)
    np.testing.assert_allclose(got, [[of_numbers(th, y) for y in Y] for th in THETA], rtol=1e-13)
    got = tg.vmap(tg.vmap(tg.grad(of_numbers), (None, 0)), (0, None))(THETA, Y)
    np.testing.assert_allclose(got, [[tg.grad(of_numbers)(th, y) for y in Y] for th in THETA], rtol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("name", ["data of their own", "samples in samples"])
def test_on_cupy(name, cupy):
    f, *stacks = CASES[name]
    n, on_device = tuple(range(len(stacks))), [cupy.asarray(x) for x in stacks]
    total = lambda *xs: (f(*xs) ** 2).sum()
    for g in (tg.vmap(f), tg.vmap(tg.grad(total, n)), tg.grad(lambda *s: tg.vmap(total)(*s).sum(), n)):
        got, want = g(*on_device), g(*stacks)
        assert same(
            got if isinstance(got, tuple) else [got], want if isinstance(want, tuple) else [want], 1e-12
        )


@pytest.mark.long
def test_kernels_of_the_library():
    t, kalman = np.sort(RNG.uniform(0, 10, 12)), tg.kernels.kalman
    noise = RNG.normal(size=(4, 12))
    one = np.ones((1, 1))
    model = kalman.Model(A=0.9 * one, c=np.ones(1), Q=0.3 * one, r=np.array(1.0), m0=np.zeros(1), P0=10 * one)
    curve = tg.kernels.celerite.light_curve(t, noise[0], 0.1)
    process = tg.kernels.celerite.process(real=1)
    for f, stacks in (
        (
            lambda r, y: kalman.loglik(model._replace(r=r.reshape(1)), y)[0],
            (np.array([0.3, 1.0, 2.0, 0.7]), noise),
        ),
        (
            lambda r: kalman.loglik(model._replace(r=r.reshape(1)), noise[0])[0],
            (np.array([0.3, 1.0, 2.0, 0.7]),),
        ),
        (lambda th: process(th, curve), (THETA,)),
        (lambda th: process(th, curve).sum(), (MANY,)),
    ):
        v = [np.cos(np.arange(x.size)).reshape(x.shape) for x in stacks]
        for form, batched, loop in forms(lambda f=f: f, len(stacks), v):
            got, want = batched(*stacks), loop(*stacks)
            assert same(got, want, 1e-9), f"{form}: {got} instead of {want}"
