"""What the filter knows behind its first steps, where something of a diffuse start is infinite still: on arrays, or, where the gains of
these steps are constants, by an affine map of the model's numbers."""

from dataclasses import dataclass
from typing import Any

import numpy

from .. import numpy as np
from .._primitive import is_tracked
from .._recording import value
from ..kernels.library.observation import predicted
from ._diffuse import element, plan_of, term, unknown
from ._filter import NotCompiled, begun, loglik_of, terms_of, update_diffuse
from ._kernel import triangle
from ._model import Observations, System


@dataclass(frozen=True)
class Begin:
    """`steps` of the data are filtered before the kernel begins; with `constants` where the gains are.  `plan`: which elements meet an
    infinite variance, where that was found for this very model."""

    steps: int
    constants: "Constants | None"
    plan: list[list[bool]] | None = None

    def state(self, s: System, data: Observations, joseph: bool) -> tuple[Any, Any, Any]:
        """Mean and covariance of the state at the next step, and the log-likelihood of these steps."""
        if self.constants is None:
            a, P, path = begun(s, data, self.steps, joseph, self.plan)
            return a, P, loglik_of(path, data.first(self.steps)) if self.steps else 0.0
        return *self.constants.state(s, data), self.constants.loglik


def begin_of(s: System, data: Observations, moving: bool) -> Begin | None:
    """How the filter begins, or None if it may begin with the kernel; `moving`: transition or observation are to be differentiated."""
    if not s.diffuse.any():
        return Begin(0, None) if s.predict_first else None
    fixed = not moving and not s.varying & {"T", "Z"}
    key = (value(s.T).tobytes(), value(s.Z).tobytes(), s.diffuse.tobytes(), s.predict_first) if fixed else None
    known = data.begin
    if key is None or known is None or known[0] != key:
        plan, settled = plan_of(s, data)
        if not settled or len(plan) == data.steps:
            raise NotCompiled("no step is left behind those that settle the diffuse start")
        alone = data.width == 1 and not moving and not s.predict_first and all(all(step) for step in plan)
        found = Begin(len(plan), Constants(s, data, len(plan)) if alone else None, plan)
        if key is None:
            return found
        known = data.begin = key, found
    return known[1]


class Constants:
    """The first steps after a diffuse start, where each observed number meets an infinite variance: its gain K is the same whatever the
    finite part P of the covariance is (`_diffuse`), and P <- (I - K z') P (I - K z')' + K h K'.

    So the state at the end is a sum over the inputs: what enters as w leaves as X w, and its covariance W as X W X'."""

    def __init__(self, s: System, data: Observations, steps: int):
        m = len(s.diffuse)
        A, gains, total, nothing = unknown(s), [], 0.0, numpy.zeros((m, m))
        for t in range(steps):
            z, T = s.host(t, "Z")[0], s.host(t, "T")
            if data.rows[t]:
                *_, A, x = element(nothing[0], nothing, A, z, 0.0, 0.0, False, True)
                gains.append(x.K)
                total -= 0.5 * float(term(x))
            else:
                gains.append(numpy.zeros(m))
            A = T @ A
        self.steps, self.loglik = steps, total
        X = numpy.eye(m)
        noise, errors = [], []
        for t in reversed(range(steps)):
            noise.append(X)
            X = X @ s.host(t, "T")
            errors.append(X @ gains[t])
            X = X - numpy.outer(errors[-1], s.host(t, "Z")[0])
        self.first = X
        self.noise, self.errors = numpy.stack(noise[::-1]), numpy.stack(errors[::-1])

    def state(self, s: System, data: Observations) -> tuple[Any, Any]:
        """Mean and covariance, of whatever is tracked in the system and the data."""
        n, noise, errors = self.steps, self.noise, self.errors
        c, d, Q, H = (getattr(s, name)[:n] if name in s.varying else getattr(s, name) for name in "cdQH")
        a = self.first @ s.mean + errors.T @ (data.values[:n, 0] - (d[:, 0] if "d" in s.varying else d))
        if "c" in s.varying:
            a = a + np.sum(noise @ c[:, :, None], axis=0)[:, 0]
        elif is_tracked(c) or c.any():
            a = a + noise.sum(axis=0) @ (c * numpy.ones(len(s.diffuse)))
        P = np.sum(noise @ Q @ noise.transpose(0, 2, 1), axis=0) + (errors.T * H[..., 0, 0]) @ errors
        if is_tracked(s.cov) or s.cov.any():
            P = P + self.first @ s.cov @ self.first.T
        return a, (P + P.T) * 0.5

    def slope(self, at: dict[str, slice], used: numpy.ndarray) -> numpy.ndarray:
        """The derivative of mean and upper triangle of the covariance by the numbers that are used."""
        m = self.first.shape[0]
        made = numpy.zeros((m + triangle(m)[0].size, used.size))
        for k, e in enumerate(used):
            name = next(name for name, place in at.items() if place.start <= e < place.stop)
            i, j = divmod(int(e) - at[name].start, m)
            a, P = numpy.zeros(m), numpy.zeros((m, m))
            if name == "mean":
                a = self.first[:, j]
            elif name == "c":
                a = self.noise[:, :, j].sum(axis=0)
            elif name == "d":
                a = -self.errors.sum(axis=0)
            elif name == "cov":
                P = numpy.outer(self.first[:, i], self.first[:, j])
            elif name == "Q":
                P = self.noise[:, :, i].T @ self.noise[:, :, j]
            elif name == "H":
                P = self.errors.T @ self.errors
            made[:, k] = upper(a, (P + P.T) / 2)
        return made


def head_of(fields: dict[str, Any], y: Any, plan: list[list[bool]], predict_first: bool) -> tuple[Any, Any, Any]:
    """What `Begin.state` gives, in plain operations that a kernel is traced from: of one series y and constant matrices.  `plan`: the
    elements seen at each step, and whether they meet an infinite variance."""
    T, Q, z, h, c, d = (fields[name] for name in ("T", "Q", "Z", "H", "c", "d"))
    a, P, A, total = fields["mean"], fields["cov"], fields["unknown"], 0.0

    def moved(a: Any, P: Any, A: Any) -> tuple[Any, Any, Any]:
        return *predicted(a, P, T, Q, c), T @ A

    for t, infinite in enumerate(plan):
        if predict_first:
            a, P, A = moved(a, P, A)
        if infinite:
            a, P, A, updates = update_diffuse(a, P, A, (z, h, y[t] - d), infinite, numpy)
            total = total + terms_of(updates, numpy)
        if not predict_first:
            a, P, A = moved(a, P, A)
    if predict_first:
        a, P = predicted(a, P, T, Q, c)
    return a, P, total


def upper(a: Any, P: Any) -> Any:
    """Mean and upper triangle of the covariance as one vector."""
    return np.concatenate([a, P.reshape((-1,))[triangle(P.shape[0])[0]]])
