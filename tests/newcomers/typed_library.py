"""A program of a user, fully typed: a small library over tapegrad, with trees of its own, a rule, a tape by
hand."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

import tapegrad as tg

Floats = npt.NDArray[np.float64]


class Layer:
    def __init__(self, weights: Floats, bias: Floats) -> None:
        self.weights, self.bias = weights, bias


tg.register_tree(Layer, lambda m: ((m.weights, m.bias), None), lambda rest, members: Layer(*members))


class Network(NamedTuple):
    layers: list[Layer]
    scale: float


def _softplus(x: Floats) -> Floats:
    out: Floats = np.logaddexp(x, 0.0)
    return out


softplus = tg.rule(_softplus, vjp=lambda g, out, x: g / (1.0 + np.exp(-x)))


def predict(network: Network, x: Floats) -> Floats:
    for layer in network.layers:
        x = softplus(x @ layer.weights + layer.bias)
    return x * network.scale


def loss(network: Network, x: Floats, y: Floats) -> float:
    total: float = ((predict(network, x)[:, 0] - y) ** 2).mean()
    return total


def descend(f: Callable[[Network], float], network: Network, rate: float, steps: int) -> Network:
    flat, restore = tg.ravel(network)
    for _ in range(steps):
        direction, _ = tg.ravel(tg.grad(f)(restore(flat)))
        flat = flat - rate * direction
    return restore(flat)


def by_hand(x: Floats) -> Floats:
    with tg.Tape() as tape:
        watched = tape.watch(x)
        y = (watched[1:] * watched[:-1]).sum() + 2.0 * watched.max() - watched.reshape(2, 2).T[0, 1]
    gradient: Floats = tape.grad(y, watched)
    return gradient


def main() -> None:
    rng = np.random.default_rng(0)
    x, sizes = rng.standard_normal((50, 2)), [(2, 4), (4, 1)]
    y = np.abs(x[:, 0])
    network = Network([Layer(rng.standard_normal(s) / 2, np.zeros(s[1])) for s in sizes], 1.0)
    better = descend(lambda n: loss(n, x, y), network, 0.05, 40)
    assert loss(better, x, y) < loss(network, x, y) and isinstance(better.layers[0], Layer)
    value, pullback = tg.vjp(predict, network, x)
    of_network, of_x = pullback(np.ones_like(value))
    assert of_x.shape == x.shape and of_network.layers[1].weights.shape == (4, 1)
    assert np.allclose(by_hand(np.array([1.0, 2.0, 4.0, 3.0])), [2.0, 5.0, 6.0, 4.0])
    tg.testing.check_grads(softplus, (x,), order=1)


if __name__ == "__main__":
    main()
