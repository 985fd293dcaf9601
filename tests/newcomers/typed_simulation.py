"""A program of a user, fully typed: a simulation in place with buffers of its own, fitted to data, for many
starts at once."""

import numpy as np
import numpy.typing as npt

import tapegrad as tg

Floats = npt.NDArray[np.float64]


class Pendulum:
    """Steps into arrays that it keeps."""

    def __init__(self, steps: int, dt: float) -> None:
        self.dt = dt
        self.path: Floats = np.zeros((steps, 2))

    def run(self, parameters: Floats) -> Floats:
        """(angles, speeds) over time; `parameters`: the start, the friction."""
        self.path[0, 0], self.path[0, 1] = parameters[0], 0.0
        for t in range(1, len(self.path)):
            angle, speed = self.path[t - 1, 0], self.path[t - 1, 1]
            self.path[t, 1] = speed - self.dt * (np.sin(angle) + parameters[1] * speed)
            self.path[t, 0] = angle + self.dt * self.path[t, 1]
        return self.path

    def misfit(self, parameters: Floats, seen: Floats) -> float:
        gap = self.run(parameters)[:, 0] - seen
        total: float = (gap * gap).sum()
        return total


def main() -> None:
    model, truth = Pendulum(40, 0.1), np.array([1.0, 0.2])
    seen = model.run(truth)[:, 0].copy()
    at = np.array([0.8, 0.0])
    prepared = tg.prepare(model.misfit, at, seen)
    value = np.inf
    for _ in range(30):
        value, slope = prepared.value_and_grad(at, seen)
        curved = tg.hessian(model.misfit)(at, seen)
        at = at - np.linalg.solve(curved + 1e-6 * np.eye(2), slope)
    assert value < 1e-12 and np.abs(at - truth).max() < 1e-5
    final, J = tg.linearize(lambda p: model.run(p)[-1], at)
    assert final.shape == J(np.ones(2)).shape == (2,)
    starts: Floats = np.linspace(0.5, 1.5, 5)
    losses = tg.vmap(lambda start: model_of(start, seen))(starts)
    assert losses.shape == (5,) and losses.argmin() == 2
    with tg.detect_anomalies():
        product = tg.hvp(model.misfit, at, np.array([1.0, 0.0]), (seen,))
    assert np.isfinite(product).all()


def model_of(start: Floats, seen: Floats) -> float:
    return Pendulum(40, 0.1).misfit(np.stack([start, start * 0 + 0.2]), seen)


if __name__ == "__main__":
    main()
