"""What type checkers are told of the public names: `mypy` reads this file, and nothing runs it.

`assert_type` says what a call gives.  A line with `type: ignore[...]` is a wrong use: that the checker finds nothing there is an error."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, assert_type

import numpy as np

import tapegrad as tg
from tapegrad import statespace as ss
from tapegrad._transforms.linearize import LinearMap

Array = np.ndarray
Theta = dict[str, float]


def energy(x: Array, k: float) -> float:
    raise NotImplementedError


def loglik(theta: Theta) -> float:
    raise NotImplementedError


def with_aux(x: Array) -> tuple[float, str]:
    raise NotImplementedError


def flow(x: Array) -> Array:
    raise NotImplementedError


@dataclass
class Model:
    a: Array

    def loss(self, x: Array) -> float:
        return float((self.a * x).sum())


x: Array = np.ones(3)
theta, model = {"a": 1.0}, Model(x)


def first_order() -> None:
    assert_type(tg.grad(energy)(x, 2.0), Array)
    assert_type(tg.grad(energy)(x, k=2.0), Array)
    assert_type(tg.grad(loglik)(theta), Theta)
    assert_type(tg.grad(model.loss)(x), Array)
    assert_type(tg.grad(with_aux, has_aux=True)(x), tuple[Array, str])
    assert_type(tg.grad(energy, (0, 1))(x, 2.0), tuple[Array, float])
    assert_type(tg.grad(energy, 1)(x, 2.0), float)
    assert_type(tg.grad(energy, (1, 0))(x, 2.0), Any)
    assert_type(tg.value_and_grad(energy, (0, 1))(x, 2.0), tuple[float, tuple[Array, float]])
    assert_type(tg.value_and_grad(energy)(x, 2.0), tuple[float, Array])
    assert_type(tg.value_and_grad(with_aux, has_aux=True)(x), tuple[tuple[float, str], Array])
    assert_type(tg.jvp(flow, (x,), (x,)), tuple[Array, Array])
    assert_type(tg.vjp(flow, x), tuple[Array, Callable[[Array], Array]])
    assert_type(tg.vjp(energy, x, 2.0), tuple[float, Callable[[float], tuple[Array, float]]])
    assert_type(tg.jacobian(flow, mode="forward")(x), Array)
    assert_type(tg.jacobian(loglik)(theta), Any)
    assert_type(tg.vmap(flow)(x), Array)
    assert_type(tg.vmap(with_aux)(x), tuple[float, str])
    assert_type(tg.linearize(flow, x), tuple[Array, LinearMap[Array]])
    tg.grad(lambda x: (x * x).sum())(x)
    tg.grad(tg.Const(energy))(x, 2.0)

    tg.grad(energy)("x", 2.0)  # type: ignore[arg-type]
    tg.grad(energy)(x)  # type: ignore[call-arg]
    tg.grad(energy)(x, steps=3)  # type: ignore[call-arg]
    tg.grad(x)  # type: ignore[call-overload]
    tg.grad(energy, has_aux=True)  # type: ignore[call-overload]
    tg.grad(energy, mode="forward")  # type: ignore[call-overload]
    tg.jacobian(flow, mode="sideways")  # type: ignore[call-overload]
    tg.vmap(3)  # type: ignore[call-overload]
    tg.vjp(flow, "x")  # type: ignore[arg-type]
    tg.jvp(flow, x, x)  # type: ignore[call-overload]
    tg.gradient(energy)  # type: ignore[attr-defined]


def with_steps(x: Array) -> tuple[float, int]:
    return energy(x, 2.0), 3


def second_order() -> None:
    assert_type(tg.hvp(energy, x, x, (2.0,)), Array)
    assert_type(tg.hmp(energy, x, np.eye(3), (2.0,)), Array)
    assert_type(tg.value_grad_hvp(loglik, theta, theta), tuple[float, Theta, Theta])
    assert_type(tg.hessian(energy)(x, 2.0), Array)
    assert_type(tg.hessian(loglik)(theta), Any)
    assert_type(tg.hvp(lambda x: (energy(x, 2.0), "aux"), x, x, has_aux=True), tuple[Array, Any])
    assert_type(tg.hessian(with_steps, has_aux=True)(x), tuple[Any, int])
    assert_type(tg.jvp(with_steps, (x,), (x,), has_aux=True), tuple[float, float, int])
    assert_type(tg.vjp(with_steps, x, has_aux=True)[2], int)
    assert_type(tg.linearize(with_steps, x, has_aux=True)[2], int)
    p = tg.prepare(energy, x, 2.0)
    assert_type(p.value_and_grad(x, 2.0), tuple[float, Array])
    assert_type(p.hvp(x, x, (2.0,)), Array)
    tg.prepare(energy, x, 2.0, on_change="ask")  # type: ignore[call-overload]
    assert_type(tg.grad(lambda x: tg.grad(energy)(x, 2.0).sum())(x), Any)


def by_hand() -> None:
    v = tg.Variable(x)
    v[0] = 2.0
    v += 1.0
    assert_type(v.shape, tuple[int, ...])
    assert_type(-v @ v + 2 * v, tg.Variable)
    assert_type(v[1:].reshape(2, -1).sum(axis=0), tg.Variable)
    assert_type(v.mean().item(), float)
    v.reshape("three")  # type: ignore[arg-type]
    assert_type(v.sum(axis=0).T.reshape(3, 1), tg.Variable)
    assert_type(v[1:], tg.Variable)
    assert_type(v > 0, Array)
    x * v
    assert_type(tg.value(v), Array)
    assert_type(tg.value(2.0), float)
    v.foo()  # type: ignore[attr-defined]
    v + "text"  # type: ignore[operator]
    with tg.Tape() as tape:
        y = tape.watch(x)
    assert_type(y, tg.Variable)
    assert_type(tape.saved_bytes, int)
    assert_type(tape.grad(y, y), Array)
    assert_type(tape.vjp(y, x, y), tg.Variable)
    assert_type(tape.jvp(y, y, x), tg.Variable)
    assert_type(tape.snapshots[0].line, str)
    y.backward()
    d = tg.Dual(x, x)
    d[0] = d[1] * 2.0 + y
    assert_type(d[1:] * 3.0 - 2.0, tg.Dual)
    assert_type(d.sum(axis=0), tg.Dual)
    assert_type(d.shape, tuple[int, ...])
    assert_type(tg.rule(energy, vjp=lambda g, out, x, k: (g * k, None))(x, 2.0), float)
    assert_type(tg.checkpoint(energy)(x, 2.0), float)
    assert_type(tg.inplace(lambda out, x: None, x)(x), Array)
    assert_type(tg.stateful(flow, x)((x,), x), tuple[Array, tuple[Any, ...]])
    assert_type(tg.ravel(theta), tuple[Array, Callable[[Array], Theta]])
    tg.rule(energy, 3)  # type: ignore[arg-type]
    tg.checkpoint(energy)(x)  # type: ignore[call-arg]
    assert tg.Tape().watched  # type: ignore[attr-defined]


def finding_errors() -> None:
    assert_type(tg.audit(energy, x, 2.0).ok, bool)
    assert_type(tg.audit(energy, x, 2.0).failures, list[str])
    assert_type(tg.profile(energy, x, 2.0).total, float)
    assert_type(tg.graph(flow, x).svg(), str)
    with tg.detect_anomalies(inf=False):
        tg.grad(loglik)(theta)
    tg.register_tree(Model, lambda m: ((m.a,), None), lambda rest, members: Model(*members))


def on_the_core() -> None:
    fitted = ss.fit(lambda p: ss.local_level(p["a"], p["b"]), x, {"a": 1.0, "b": 1.0}, ss.positive())
    assert_type(fitted, ss.FitResult)
    assert_type(fitted.summary().as_text(), str)
    assert_type(ss.loglik(ss.local_level(1.0, 1.0), x), Any)
    kernel = tg.kernels.likelihood(lambda theta, y: -((y - theta[0]) ** 2))
    kernel.value_and_grad(np.ones((1, 5)), x)
    kernel.final(np.ones((1, 5)), x)  # type: ignore[attr-defined]
    assert_type(tg.kernels.recursion(lambda theta: 0.0, lambda theta, m, y: (m, y)).final(x, x), Any)
    tg.kernels.likelihood(loglik, mising="skip")  # type: ignore[call-arg]
    tg.testing.check_grads(energy, (x, 2.0), order=1)
    tg.optimize.minimize(energy, x, args=(2.0,), method="trust-ncg")
    try:
        tg.grad(flow)(x)
    except tg.errors.NotScalarError as error:
        assert_type(error, tg.errors.NotScalarError)
