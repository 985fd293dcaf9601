"""Derivatives of solutions with active constraints, against closed forms and differences of whole solves."""

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, NonlinearConstraint

import tapegrad as tg
from tapegrad.errors import ArgumentError, ConvergenceError
from tapegrad.optimize import constrained_minimum

pytest.importorskip("ipyopt")
START = np.array([0.3, 0.3, 0.2])


def distance(x, a):
    return ((x - a) ** 2).sum()


def differences(g, a, step=1e-5):
    return np.stack([(g(a + e) - g(a - e)) / (2 * step) for e in step * np.eye(a.size)], axis=-1)


def test_bounds_and_an_inequality():
    product = NonlinearConstraint(lambda x, a: x[0] * x[1], -np.inf, 0.4)
    g = constrained_minimum(distance, bounds=[(0, 1)] * 3, constraints=product, multipliers=True)
    a = np.array([2.0, 0.5, 0.7])
    x, multipliers = g(START, a)
    np.testing.assert_allclose(x, [1.0, 0.4, 0.7], atol=1e-9)
    np.testing.assert_allclose(multipliers, 2 * (a[1] - 0.4), rtol=1e-7)
    J, M = tg.jacobian(lambda a: g(START, a))(a)
    np.testing.assert_allclose(J, np.diag([0.0, 0.0, 1.0]), atol=1e-8)
    np.testing.assert_allclose(M, [[0.0, 2.0, 0.0]], atol=1e-7)
    H = tg.hessian(lambda a: g(START, a)[1][0] ** 2)(a)
    np.testing.assert_allclose(H, np.diag([0.0, 8.0, 0.0]), atol=1e-6)
    tangent = tg.jvp(lambda a: g(START, a)[0], (a,), (np.ones(3),))[1]
    np.testing.assert_allclose(tangent, [0.0, 0.0, 1.0], atol=1e-8)
    assert not tg.jacobian(g, 0)(START, a)[0].any()


def test_lower_limits_equalities_and_trees():
    """A quadratic programme whose active set is known: the multiplier of a lower limit is negative."""
    weights = np.array([1.0, 2.0, 4.0])
    f = lambda p, a: (weights * (p["x"] - a) ** 2).sum() + (p["y"] - a[0]) ** 2
    given = [
        {"type": "eq", "fun": lambda p, a: p["x"].sum() - 1.0},
        {"type": "ineq", "fun": lambda p, a: p["x"][0] - a[2] * p["y"]},
    ]
    g = constrained_minimum(f, bounds={"x": (0.0, None)}, constraints=given, multipliers=True)
    start = {"x": np.full(3, 0.3), "y": 0.1}

    def flat(a):
        p, multipliers = g(start, a)
        return np.concatenate([p["x"], np.reshape(p["y"], 1), multipliers])

    a = np.array([0.4, -0.9, 1.2])
    assert flat(a)[1] < 1e-9 and flat(a)[5] < -1e-3
    np.testing.assert_allclose(tg.jacobian(flat)(a), differences(flat, a), atol=1e-6)


def swing(steps, limit=8.0):
    h = 2.0 / steps

    def effort(z, p):
        return h * (z[2 * steps + 2 :] ** 2).sum() * p[0]

    def defects(z, p):
        angle, speed, torque = z.reshape(3, steps + 1)
        force = torque - 9.81 * p[1] * np.sin(angle) - 0.1 * speed
        parts = [x[1:] - x[:-1] - h / 2 * (s[1:] + s[:-1]) for x, s in ((angle, speed), (speed, force))]
        return np.concatenate([*parts, np.stack([angle[0], speed[0], angle[-1] - np.pi, speed[-1]])])

    reach = np.concatenate([np.full(2 * steps + 2, np.inf), np.full(steps + 1, limit)])
    start = np.concatenate(
        [np.linspace(0, np.pi, steps + 1), np.full(steps + 1, np.pi / 2), np.zeros(steps + 1)]
    )
    return (
        effort,
        start,
        constrained_minimum(
            effort, bounds=Bounds(-reach, reach), constraints=NonlinearConstraint(defects, 0, 0)
        ),
    )


@pytest.mark.parametrize("steps", [40, pytest.param(400, marks=pytest.mark.long)])
def test_optimal_control_with_active_limits(steps):
    """400 steps have 2,409 unknowns in the KKT system: the sparse factor."""
    effort, start, g = swing(steps)
    p, way = np.array([1.0, 1.0]), np.array([0.0, 1.0])
    moved = tg.jvp(lambda p: g(start, p), (p,), (way,))[1]
    a, b = [g(start, p + s * way) for s in (1e-5, -1e-5)]
    np.testing.assert_allclose(moved, (a - b) / 2e-5, atol=2e-6 * abs(moved).max())
    assert (abs(g(start, p)[-steps:]) > 8.0 - 1e-6).mean() > 0.3
    slope = tg.grad(lambda p: effort(g(start, p), p))(p)
    np.testing.assert_allclose(slope[1], (effort(a, p) - effort(b, p)) / 2e-5, rtol=1e-6)


def test_a_kink_is_told():
    g = constrained_minimum(distance, bounds=[(0, 1)] * 3)
    with pytest.raises(ConvergenceError, match="upper bound number 2 .*both small"):
        g(START, np.array([2.0, 0.5, 1.0]))
    g = constrained_minimum(distance, constraints=LinearConstraint(np.ones((1, 3)), -np.inf, 1.0))
    with pytest.raises(ConvergenceError, match="constraint number 0 .*both small"):
        g(START, np.array([0.5, 0.25, 0.25]))
    np.testing.assert_allclose(
        tg.jacobian(g, 1)(START, np.array([0.5, 0.4, 0.25])), np.eye(3) - 1 / 3, atol=1e-8
    )


def test_captured_arrays_are_followed():
    weights = np.ones(2)

    def f(x, a):
        weights[0] = a[0] ** 2
        return (weights * (x - a) ** 2).sum()

    g = constrained_minimum(f, constraints=LinearConstraint(np.ones((1, 2)), 1.0, 1.0))
    a = np.array([2.0, 1.0])
    solution = lambda a: (
        np.stack([a[0] + 0 * a[0], a[1]])
        - np.array([1 / a[0] ** 2, 1.0]) * (a.sum() - 1) / (1 + 1 / a[0] ** 2)
    )
    np.testing.assert_allclose(g(np.zeros(2), a), solution(a), atol=1e-8)
    np.testing.assert_allclose(tg.jacobian(g, 1)(np.zeros(2), a), differences(solution, a), atol=1e-6)


def test_bad_input():
    with pytest.raises(ArgumentError, match="takes the parameters after x"):
        constrained_minimum(distance, constraints={"type": "eq", "fun": distance, "args": (1,)})
    with pytest.raises(ArgumentError, match="'eq' or 'ineq'"):
        constrained_minimum(distance, constraints={"type": "equal", "fun": distance})
    with pytest.raises(ConvergenceError, match="infeasible"):
        constrained_minimum(
            distance, constraints=NonlinearConstraint(lambda x, a: (x**2).sum(), -np.inf, -1.0)
        )(START, np.ones(3))
    with pytest.raises(ArgumentError, match="lower limit above"):
        constrained_minimum(distance, bounds=[(1, 0)] * 3)(START, np.ones(3))
