"""Discussion 2: Hessian-vector products, structured inputs, the user's own rules."""

import collections
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from _modes import check_first, check_second, second_orders
from comparison import close, host, library

import tapegrad as tg
from tapegrad._core.scope import scope_block
from tapegrad._transforms.call import RecordedCall

pytestmark = pytest.mark.smoke

VALUE = 2040.4545839513073
GRAD = [113.24297730643494, 222.48595461286989, 333.72893191930483, 444.97190922573978, 964.10580332243618]
HV = [1164.8817648121440, 1749.5486430921132, 2346.2155213720825, 2942.8823996520517, 6431.8666878993295]
H_ROW_0 = [115.26557689382467, 4.045199174779453, 6.06779876216918, 8.090398349558907, 32.36159339823562]
H_ONES = [165.8305665785678, 216.4181558507007, 269.0057451228337, 321.5933343949665, 707.9098555864043]


def norm_cubed(xp):
    def f(x):
        return xp.linalg.norm(x) ** 3 * x[-1] + x[0] ** 2

    return f


def at(xp):
    return xp.arange(1.0, 6.0), xp.arange(6.0, 11.0)


def exact_hessian(x):
    """Of |x|^3 x_n + x_0^2, in closed form."""
    r, n = np.sqrt(x @ x), len(x)
    last = np.eye(n)[-1]
    H = 3 * x[-1] * (r * np.eye(n) + np.outer(x, x) / r) + 3 * r * (np.outer(x, last) + np.outer(last, x))
    H[0, 0] += 2
    return H


# --- H1 to H8 ---


def test_h1_value_and_gradient(xp):
    x, _ = at(xp)
    value, gradient = tg.value_and_grad(norm_cubed(xp))(x)
    close(value, VALUE)
    close(gradient, GRAD)
    check_first(norm_cubed(xp), x, GRAD)


def test_h1b_at_zero(xp):
    zero, v = xp.zeros(5), at(xp)[1]
    check_first(norm_cubed(xp), zero, np.zeros(5))
    with (
        pytest.warns(tg.errors.NonDifferentiableWarning, match="^norm at zero") if xp is np else nullcontext()
    ):
        check_second(norm_cubed(xp), zero, v, [12.0, 0.0, 0.0, 0.0, 0.0])


def test_h2_hessian_vector_product(xp):
    x, v = at(xp)
    check_second(norm_cubed(xp), x, v, HV)
    assert [name for name, _ in second_orders(norm_cubed(xp), x, v)] == [
        "hvp",
        "forward over reverse",
        "reverse over reverse",
        "reverse over forward",
        "forward over forward",
    ]


def test_h3_hessian(xp):
    x, _ = at(xp)
    H = tg.hessian(norm_cubed(xp))(x)
    close(H[0], H_ROW_0)
    close(H[4, 4], 384.293921604048)
    close(H, host(H).T)
    close(H, exact_hessian(host(x)))


def test_h4_several_directions(xp):
    x, v = at(xp)
    V = xp.stack([v, xp.ones(5), xp.eye(5)[-1]])
    products = tg.hmp(norm_cubed(xp), x, V)
    close(products[0], HV)
    close(products[1], H_ONES)
    close(products[2], exact_hessian(host(x))[-1])
    assert library(products) is xp


def test_h4_records_once(xp):
    calls = []

    def f(x):
        calls.append(1)
        return (x**3).sum()

    close(tg.hmp(f, xp.ones(3), xp.eye(3)), 6 * np.eye(3))
    assert len(calls) == 1


def test_h4_of_a_tree(xp):
    def f(p):
        return (p["a"] ** 2).sum() * p["b"]

    x = {"a": xp.array([1.0, 2.0]), "b": xp.asarray(3.0)}
    V = {"a": xp.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]), "b": xp.array([0.0, 0.0, 1.0])}
    products = tg.hmp(f, x, V)
    close(products["a"], [[6.0, 0.0], [0.0, 6.0], [2.0, 4.0]])
    close(products["b"], [2.0, 4.0, 0.0])


def test_h7_value_gradient_and_product(xp):
    f = lambda x: xp.sin(x[0] * x[1])
    value, gradient, product = tg.value_grad_hvp(f, xp.array([2.0, 3.0]), xp.array([5.0, 2.7]))
    close(value, np.sin(6.0), rtol=1e-15)
    close(gradient, [2.880510859951098, 1.920340573300732])
    close(product, [19.6926882637302, 16.201003759768003])


def test_h8_three_at_once(xp):
    value, gradient, product = tg.value_grad_hvp(
        lambda x: (x * x).sum(), xp.array([1.0, 2.0]), xp.array([1.0, 0.0])
    )
    close(value, 5.0)
    close(gradient, [2.0, 4.0])
    close(product, [2.0, 0.0])


# --- T1: structured inputs ---


@dataclass
class Pair:
    first: Any
    second: Any


Named = collections.namedtuple("Named", "first second")


def pairs(kind, a, b):
    return {
        "tuple": (a, b),
        "list": [a, b],
        "dict": {"first": a, "second": b},
        "named": Named(a, b),
        "dataclass": Pair(a, b),
        "nested": {"in": [(a, None), "text"], "out": (b,)},
    }[kind]


def parts(p):
    if isinstance(p, dict):
        return (p["in"][0][0], p["out"][0]) if "in" in p else (p["first"], p["second"])
    return (p.first, p.second) if isinstance(p, (Named, Pair)) else (p[0], p[1])


KINDS = ("tuple", "list", "dict", "named", "dataclass", "nested")


def test_t1_two_arguments(xp):
    f = lambda a, b: a.sum() * b.sum()
    a, b = xp.array([2.0, 3.0]), xp.array([5.0, 7.0])
    ga, gb = tg.grad(f, argnums=(0, 1))(a, b)
    close(ga, [12.0, 12.0])
    close(gb, [5.0, 5.0])
    close(tg.grad(f, argnums=-1)(a, b), [5.0, 5.0])
    (aa, ab), (ba, bb) = tg.hessian(f, argnums=(0, 1))(a, b)
    close(aa, np.zeros((2, 2)))
    close(bb, np.zeros((2, 2)))
    close(ab, np.ones((2, 2)))
    close(ba, np.ones((2, 2)))
    _, slope = tg.jvp(f, (a, b), (xp.array([1.0, 0.0]), xp.array([0.0, 2.0])))
    close(slope, 12.0 + 10.0)
    ga, gb = tg.vjp(f, a, b)[1](xp.asarray(2.0))
    close(ga, [24.0, 24.0])
    close(gb, [10.0, 10.0])


@pytest.mark.parametrize("kind", KINDS)
def test_t1_trees(xp, kind):
    def f(p):
        a, b = parts(p)
        return a.sum() * b.sum()

    a, b = xp.array([2.0, 3.0]), xp.array([5.0, 7.0])
    p = pairs(kind, a, b)
    g = tg.grad(f)(p)
    assert type(g) is type(p)
    close(parts(g)[0], [12.0, 12.0])
    close(parts(g)[1], [5.0, 5.0])
    _, slope = tg.jvp(f, (p,), (pairs(kind, xp.array([1.0, 0.0]), xp.array([0.0, 2.0])),))
    close(slope, 22.0)
    H = tg.hessian(f)(p)
    blocks = [parts(row) for row in parts(H)]
    close(blocks[0][0], np.zeros((2, 2)))
    close(blocks[0][1], np.ones((2, 2)))
    close(blocks[1][0], np.ones((2, 2)))
    close(blocks[1][1], np.zeros((2, 2)))
    v = pairs(kind, xp.array([1.0, 0.0]), xp.array([0.0, 2.0]))
    product = tg.hvp(f, p, v)
    close(parts(product)[0], [2.0, 2.0])
    close(parts(product)[1], [1.0, 1.0])
    if kind == "nested":
        assert g["in"][0][1] is None and g["in"][1] is None


# --- T2: only what is asked for is recorded ---


def test_t2_only_the_chosen_leaves(xp):
    def f(u, p, t):
        drift = xp.exp(u) * t  # constant: no record
        return (p["rates"][0] * drift).sum() + (p["scale"] * p["fixed"]).sum()

    u, t = xp.array([0.0, 1.0]), 2.0
    p = {"rates": [xp.array([1.0, 2.0]), 5], "scale": xp.asarray(3.0), "fixed": tg.Const(xp.ones(2))}
    g = tg.grad(f, argnums=1)(u, p, t)
    close(g["rates"][0], 2 * np.exp([0.0, 1.0]))
    close(g["scale"], 2.0)
    assert g["rates"][1] is None and g["fixed"] is None
    with scope_block():
        recorded = RecordedCall("grad", f, 1, (u, p, t), {})
        # Two leaves, two products, two sums and the last addition; u, t and the Const leaf leave nothing.
        assert len(recorded.tape.records) == 7


def test_t2_inactive_arguments_leave_no_record():
    def f(u, p):
        for _ in range(10):
            u = np.sin(u) * 2.0
        return p * u.sum()

    with scope_block():
        assert len(RecordedCall("grad", f, 1, (np.ones(3), 2.0), {}).tape.records) == 2
        assert len(RecordedCall("grad", f, 0, (np.ones(3), 2.0), {}).tape.records) == 23


# --- R1, R2: the user's own rules ---


def test_r1_rule(xp):
    sumsq = tg.rule(lambda x: (x * x).sum(), vjp=lambda g, out, x: 2 * g * x)
    x, v = xp.array([2.0, 3.0]), xp.array([1.0, -1.0])
    value, pullback = tg.vjp(sumsq, x)
    close(value, 13.0)
    close(pullback(xp.asarray(1.0)), [4.0, 6.0])
    check_first(lambda x: sumsq(x), x, [4.0, 6.0])
    check_second(lambda x: sumsq(x), x, v, [2.0, -2.0])


def test_r1_rule_is_the_one_used(xp):
    wrong = tg.rule(lambda x: (x * x).sum(), vjp=lambda g, out, x: 7 * g * x)
    close(tg.grad(wrong)(xp.array([2.0, 3.0])), [14.0, 21.0])
    close(tg.jvp(wrong, (xp.array([2.0, 3.0]),), (xp.array([1.0, 0.0]),))[1], 14.0)


def test_r1_forward_rule_alone_serves_reverse_mode(xp):
    sumsq = tg.rule(lambda x: (x * x).sum(), jvp=lambda t, out, x: (2 * t[0] * x).sum())
    x = xp.array([2.0, 3.0])
    check_first(lambda x: sumsq(x), x, [4.0, 6.0])
    check_second(lambda x: sumsq(x), x, xp.array([1.0, -1.0]), [2.0, -2.0])


def log_sum_exp(x):
    return np.log(np.sum(np.exp(x)))


RULES = {
    "vjp": lambda g, out, x: np.full(x.shape, g) * np.exp(x - np.full(x.shape, out)),
    "jvp": lambda t, out, x: np.sum(np.full(x.shape, t[0]) * np.exp(x - np.full(x.shape, out))),
}


@pytest.mark.parametrize("names", [("vjp",), ("vjp", "jvp")])
def test_a_rule_that_fills_arrays_has_derivatives(names):
    f = tg.rule(log_sum_exp, **{name: RULES[name] for name in names})
    x, v = np.array([0.1, 0.4, -0.3]), np.array([1.0, -0.5, 2.0])
    p = np.exp(x) / np.sum(np.exp(x))
    wanted = p * v - p * (p @ v)
    close(tg.hvp(lambda x: f(x) * 1.0, x, v), wanted)
    close(tg.hessian(lambda x: f(x) * 1.0)(x) @ v, wanted)
    close(tg.vmap(tg.hessian(f))(np.stack([x, 2 * x]))[0] @ v, wanted)


def test_r2_a_rule_keeps_its_input_as_it_was(xp):
    sumsq = tg.rule(lambda x: (x * x).sum(), vjp=lambda g, out, x: 2 * g * x)
    x = xp.array([2.0, 3.0])

    def cleared(x):
        r = sumsq(x)
        x[:] = 0
        return r

    def cleared_and_read(x):
        r = sumsq(x)
        x[:] = 0
        return r + x.sum()

    for f in (cleared, cleared_and_read):
        value, gradient = tg.value_and_grad(f)(x)
        close(value, 13.0)
        close(gradient, [4.0, 6.0])
        check_first(f, x, [4.0, 6.0])
        check_second(f, x, xp.array([1.0, -1.0]), [2.0, -2.0])
    close(x, [2.0, 3.0])
