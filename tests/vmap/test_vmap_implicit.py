"""Implicit functions under `tg.vmap`: the numbers of a loop, the equations and the linear systems of all
samples at once."""

import itertools

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse.linalg as linalg
from looped import forms, further_forms, looped, same, vmapped

import tapegrad as tg
from tapegrad.errors import SingularError

RNG = np.random.default_rng(1)
M = np.array([[3.0, 1.0, 0.0], [0.5, 4.0, 1.0], [0.0, 1.0, 5.0]])


def newton(F, x, *params):
    for _ in range(12):
        x = x - np.linalg.solve(tg.jacobian(F)(x, *params), F(x, *params))
    return x


def coupled(x, a):
    return M @ x + 0.3 * np.sin(x) * a - a


def brentq(F, x0):
    return scipy.optimize.brentq(F, 0.0, 10.0, xtol=1e-15)


def of_captured(th):
    return tg.implicit.root(lambda x: x**3 - th[0] * th[1], brentq)(1.0)


def iterate(F, x, *params):
    for _ in range(80):
        x = F(x, *params)
    return x


def pair(p):
    F = lambda x, p: (0.3 * np.sin(x[1].sum()) + p[0], 0.2 * x[0] * x[1] + p[1:])
    y = tg.implicit.fixed_point(F, iterate)((0.0, np.zeros(2)), p)
    return y[0] * y[1]


def least(p):
    return tg.implicit.minimum(lambda x, p: (np.cosh(x - p)).sum() + x[0] * x[1] * 0.2, newton_of_gradient)(
        np.zeros(2), p
    )


def newton_of_gradient(F, x, *params):
    return newton(tg.grad(F), x, *params)


def by_pieces(p):
    """With a branch on which samples disagree."""

    def F(x, p):
        return x - p**2 if p.sum() > 0 else x + np.sin(p)

    return tg.implicit.root(F, newton)(np.zeros(2), p)


def started(x0, a):
    return tg.implicit.root(coupled, newton)(x0, a)


def of_numbers(w):
    heron = lambda F, z, w: iterate(lambda z, w: (z + w / z) / 2, z, w)
    return tg.implicit.root(lambda z, w: z * z - w, heron)(w * 0 + 1.0, w)


def matrix_free(solve):
    return lambda a: tg.implicit.root(coupled, newton, solve=solve)(np.zeros(3), a)


ROWS = RNG.uniform(0.5, 2.0, (4, 3))
CASES = {
    "a captured value": (of_captured, ROWS[:, :2]),
    "a parameter": (lambda a: tg.implicit.root(coupled, newton)(np.zeros(3), a), ROWS),
    "a start": (started, ROWS, ROWS + 1),
    "a tuple": (pair, ROWS),
    "a minimum": (least, ROWS[:, :2]),
    "numbers": (of_numbers, ROWS[:, 0]),
    "complex": (of_numbers, ROWS[:, 0] + 1j * ROWS[:, 1]),
    "by gmres": (matrix_free(linalg.gmres), ROWS),
    "dense": (matrix_free("dense"), ROWS),
}


SLOW = {"a minimum", "by gmres", "dense", "a start"}


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.long] if n in SLOW else []) for n in CASES]
)
def test_as_in_a_loop(name):
    f, *stacks = CASES[name]
    v = [np.cos(np.arange(x.size)).reshape(x.shape).astype(x.dtype) for x in stacks]
    for form, batched, loop in itertools.chain(
        forms(lambda: f, len(stacks), v), further_forms(lambda: f, len(stacks))
    ):
        got, want = batched(*stacks), loop(*stacks)
        assert same(got, want, 1e-8), f"{form}: {got} instead of {want}"


def counted(n):
    """Calls of F, and of the solver, for n samples."""
    calls = {"F": 0, "solver": 0}

    def F(x, a):
        calls["F"] += 1
        return coupled(x, a)

    def solver(_, x0, a):
        calls["solver"] += 1
        return newton(coupled, x0, a)

    return calls, lambda a: (tg.implicit.root(F, solver)(np.zeros(3), a) ** 2).sum()


@pytest.mark.long
@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "around", [lambda f: tg.vmap(tg.grad(f)), lambda f: tg.grad(lambda a: tg.vmap(f)(a).sum())]
)
def test_the_equations_and_their_systems_are_those_of_all_samples(around):
    """F runs for the residual of each solution; beside that, as often for many samples as for one."""
    rest = []
    for n in (1, 4, 9):
        calls, f = counted(n)
        got = around(f)(np.tile(ROWS, (3, 1))[:n])
        assert calls["solver"] == n
        rest.append(calls["F"] - n)
        np.testing.assert_allclose(got, [tg.grad(f)(a) for a in np.tile(ROWS, (3, 1))[:n]], rtol=1e-12)
    assert rest[0] == rest[1] == rest[2]


def test_directions_at_one_point_have_one_system():
    calls, f = counted(1)
    tg.hessian(f)(ROWS[0])
    alone = calls["F"]
    many = tg.vmap(lambda v: tg.jvp(f, (ROWS[0],), (v,))[1])(np.eye(3))
    np.testing.assert_allclose(many, tg.grad(f)(ROWS[0]), rtol=1e-12)
    assert calls["F"] - alone < 10


def test_a_branch_on_which_samples_disagree():
    """In reverse mode around vmap they are solved one after the other."""
    stack = np.array([[1.0, 2.0], [-1.0, 0.5], [-2.0, 1.5]])
    assert same(vmapped(by_pieces)(stack), looped(by_pieces)(stack))
    got = tg.grad(lambda s: (tg.vmap(by_pieces)(s) ** 2).sum())(stack)
    np.testing.assert_allclose(
        got, np.where(stack.sum(1, keepdims=True) > 0, 4 * stack**3, np.sin(2 * stack)), rtol=1e-12
    )


def test_one_singular_sample_is_told():
    g = lambda a: tg.implicit.root(lambda x, a: x * x - a, lambda F, x0, a: np.sqrt(a))(np.ones(2), a).sum()
    stack = np.array([[1.0, 4.0], [9.0, 0.0], [4.0, 1.0]])
    assert tg.vmap(g)(stack).tolist() == [3.0, 3.0, 3.0]
    for call in (tg.vmap(tg.grad(g)), tg.grad(lambda s: tg.vmap(g)(s).sum())):
        with pytest.raises(SingularError, match="is singular at the solution"):
            call(stack)
        assert call(stack[::2]).tolist() == [[0.5, 0.25], [0.25, 0.5]]


@pytest.mark.parametrize("kind", ["minimum", "root"])
def test_matrix_free(kind):
    """Of a minimum by conjugate gradients on the systems of all samples; gmres takes one after the other."""
    n, stack = 1200, RNG.uniform(0.5, 2.0, (3, 1200))
    slope = lambda x, a: x**3 / 3 + x - a
    if kind == "root":
        g = tg.implicit.root(slope, lambda F, x0, a: solution(a))
    else:
        g = tg.implicit.minimum(
            lambda x, a: (x**4 / 12 + x * x / 2 - a * x).sum(), lambda F, x0, a: solution(a)
        )
    x = np.stack([solution(a) for a in stack])
    want = 2 * x / (x * x + 1)
    np.testing.assert_allclose(
        tg.vmap(tg.grad(lambda a: (g(np.zeros(n), a) ** 2).sum()))(stack), want, rtol=1e-7
    )
    np.testing.assert_allclose(
        tg.grad(lambda s: (tg.vmap(lambda a: g(np.zeros(n), a))(s) ** 2).sum())(stack), want, rtol=1e-7
    )


def solution(a):
    x = a.copy()
    for _ in range(60):
        x = x - (x**3 / 3 + x - a) / (x * x + 1)
    return x


def test_what_is_not_finite_stays_with_its_sample():
    g = lambda a, w: (
        tg.implicit.root(lambda x, a: x * x - a, lambda F, x0, a: np.sqrt(a))(np.ones(2), a) * w
    ).sum()
    a, w = np.array([[1.0, 4.0], [9.0, 1.0]]), np.array([[1.0, np.inf], [1.0, 1.0]])
    with np.errstate(invalid="ignore"):
        got = tg.vmap(tg.grad(g))(a, w)
    assert np.isnan(got[0]).all() and got[1].tolist() == pytest.approx([1 / 6, 1 / 2])


def test_no_samples():
    with pytest.raises(tg.errors.BatchError, match="runs sample by sample, and there are none"):
        tg.vmap(CASES["a parameter"][0])(ROWS[:0])


def test_on_cupy_too(xp):
    def cubes(F, x, a):
        for _ in range(30):
            x = x - F(x, a) / (3 * x * x)
        return x

    g, a = tg.implicit.root(lambda x, a: x**3 - a, cubes), xp.asarray([[1.0, 8.0], [27.0, 64.0]])
    each = tg.vmap(tg.grad(lambda a: g(xp.ones(2), a).sum()))(a)
    assert type(each) is type(a) and each.ravel().tolist() == pytest.approx([1 / 3, 1 / 12, 1 / 27, 1 / 48])
    both = tg.grad(lambda a: tg.vmap(lambda a: g(xp.ones(2), a))(a).sum())(a)
    assert both.ravel().tolist() == pytest.approx([1 / 3, 1 / 12, 1 / 27, 1 / 48])
