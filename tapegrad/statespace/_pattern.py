"""From a model function to its kernel: what of the matrices depends on the parameters, which entries are 0 and 1, how the filter
begins, and what the data rows hold.

All numbers of a model stand in one vector (`Numbers`); the kernel's theta is an affine map of those of them that depend on the
parameters.  With a diffuse start whose first observations all meet an infinite variance, under a transition that the parameters leave
alone, the gains of the first steps are constants, so that the state behind them is affine in the numbers (`_begun_by_constants`).
Otherwise the first steps run on arrays, and the state behind them joins the numbers."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy

from .. import numpy as np
from .._array import xp_of
from .._primitive import is_tracked
from .._recording import value
from ..errors import TapegradError
from ._filter import NotCompiled, begun, diffuse_plan
from ._kernel import CONSTANTS, LETTERS, Layout, triangle
from ._model import LinearGaussian, Observations, System, system
from ._parameters import Parameters

FIELDS = ("mean", "cov", *LETTERS)
DOUBLE = numpy.dtype(float)
NAMES = {"T": "transition", "Z": "observation", "Q": "transition_cov", "H": "observation_cov", "c": "transition_offset"}
NAMES |= {"d": "observation_offset"}


@dataclass(frozen=True)
class Numbers:
    """What of a model does not vary over time, in one vector: the fields of FIELDS, flat; and, if the filter begins on arrays (`head`),
    mean, covariance (upper triangle) and log-likelihood of the first steps."""

    parameters: Parameters
    data: Observations
    joseph: bool
    at: dict[str, slice]
    states: int
    head: int | None = None

    def __call__(self, u: Any, build: Callable, data: Observations) -> Any:
        return self.of(build(self.parameters.tree(u)), data)

    def of(self, model: LinearGaussian, data: Observations) -> Any:
        return self.of_system(system(model, data), data)

    def of_system(self, s: System, data: Observations) -> Any:
        for name in s.varying:
            if is_tracked(getattr(s, name)):
                raise NotCompiled(f"{NAMES[name]} varies over time and depends on the parameters")
        pieces = [_flat(getattr(s, name), place.stop - place.start) for name, place in self.at.items()]
        if self.head is not None:
            a, P, total = begun(s, data, self.head, self.joseph)
            pieces += [a, P.reshape((-1,))[triangle(self.states)[0]], _flat(total, 1)]
        return np.concatenate(pieces)


def _flat(x: Any, size: int) -> Any:
    """A field as a vector; a number stands for all elements."""
    return x.reshape((-1,)) if getattr(x, "ndim", 0) else x * numpy.ones(size)


@dataclass(frozen=True)
class Pattern:
    """theta = constant + slope @ numbers[used]; the log-likelihood is what the kernel gives on `rows`, and `begun` for the steps before
    these (with a head the last of the numbers, too).  `known`: the numbers at one point; those that are not `free` do not change.
    `begins`: the first steps, where their gains are constants."""

    numbers: Numbers
    layout: Layout
    known: numpy.ndarray
    free: numpy.ndarray
    used: numpy.ndarray
    constant: numpy.ndarray
    slope: numpy.ndarray
    begun: float
    rows: numpy.ndarray
    begins: Any = None


def pattern(
    build: Callable, parameters: Parameters, data: Observations, joseph: bool, u: numpy.ndarray, depends: numpy.ndarray | None = None
) -> Pattern:
    """The pattern of the models that `build` gives near the free parameters u; `depends`: the numbers that are known to depend on u.
    Raises `NotCompiled` where there is none."""
    s = system(build(parameters.tree(u)), data)
    _refuse(s, data)
    numbers = Numbers(parameters, data, joseph, _places_of(s, data.width), len(s.diffuse))
    known, free = _examined(numbers, s, build, u)
    if depends is not None:
        free |= depends[: free.size]
    plan, settled = diffuse_plan(s, data)
    steps = len(plan)
    if not settled or steps == data.steps:
        raise NotCompiled("no step is left behind those that settle the diffuse start")
    moving = any(free[numbers.at[name]].any() for name in "TZ" if name in numbers.at)
    begins = None
    if steps and data.width == 1 and not moving and not s.predict_first and all(all(step) for step in plan):
        begins = _Constants(s, data, steps)
    elif steps or s.predict_first:
        numbers = replace(numbers, head=steps)
        known = numpy.asarray(numbers(u, build, data))
        free = numpy.concatenate([free, numpy.ones(known.size - free.size, bool)])
    return _laid_out(s, numbers, known, free, steps, begins)


def _refuse(s: System, data: Observations) -> None:
    """Raise `NotCompiled` for what no kernel is made of."""
    if data.xp is not numpy or any(xp_of(value(getattr(s, name))) is not numpy for name in FIELDS):
        raise NotCompiled("the data are on a device")
    if is_tracked(data.values):
        raise NotCompiled("the data are under differentiation")
    for x in (data.values, *[getattr(s, name) for name in FIELDS]):
        if getattr(x, "dtype", DOUBLE) != DOUBLE:
            raise NotCompiled(f"the numbers are {x.dtype}, not float64")


def _places_of(s: System, p: int) -> dict[str, slice]:
    """Where the fields stand in the vector of all numbers."""
    m = len(s.diffuse)
    size = {"mean": m, "cov": m * m, "T": m * m, "Z": p * m, "Q": m * m, "H": p * p, "c": m, "d": p}
    at, first = {}, 0
    for name in FIELDS:
        if name not in s.varying:
            at[name] = slice(first, first + size[name])
            first += size[name]
    return at


def _examined(numbers: Numbers, s: System, build: Callable, u: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    """The numbers at u, and which of them depend on u: what differs at points around u.  (What depends on u elsewhere alone is found
    there: the objective compares at each point.)  Where there is no model around u, nothing would seem to depend on it."""
    known = numpy.asarray(numbers.of_system(s, numbers.data))
    free, looked = numpy.zeros(known.size, bool), False
    for size in (0.01, -0.03, 0.1):
        try:
            around = u + size * (1.0 + 0.5 * numpy.cos(numpy.arange(u.size)))
            other = system(build(numbers.parameters.tree(around)), numbers.data)
            free |= numpy.asarray(numbers.of_system(other, numbers.data)) != known
        except (TapegradError, ValueError, ArithmeticError):  # no model there
            continue
        looked = True
        for name in s.varying:
            if name not in other.varying or (value(getattr(s, name)) != value(getattr(other, name))).any():
                raise NotCompiled(f"{NAMES[name]} varies over time and depends on the parameters")
    if not looked:
        raise NotCompiled("there is no model at the points around the start, so it cannot be seen what depends on the parameters")
    return known, free


def _laid_out(s: System, numbers: Numbers, known: numpy.ndarray, free: numpy.ndarray, steps: int, begins: "_Constants | None") -> Pattern:
    m, data = numbers.states, numbers.data
    rows, gaps = _data_rows(data, steps)
    places, sources = {}, []
    for name, at in numbers.at.items():
        if name in LETTERS:
            places[name], more = _coded(known[at], free[at], len(CONSTANTS) + len(sources), name)
            sources += [at.start + e for e in more]
    for name in sorted(s.varying):  # the row of data stands behind theta in the pool
        ahead = s.predict_first and name in "TQc"
        t = numpy.minimum(numpy.arange(steps, data.steps) + ahead, data.steps - 1)
        x = value(getattr(s, name))[t].reshape(t.size, -1)
        places[name], more = _coded(x[0], (x != x[0]).any(axis=0), len(CONSTANTS) + len(sources) + len(rows), name)
        rows += [x[:, e] for e in more]
    apart = not numpy.triu(places["H"].reshape(data.width, -1), 1).any()
    layout = Layout(m, data.width, tuple(places[name].tobytes() for name in LETTERS), gaps, apart, numbers.joseph)
    upper = triangle(m)[0]
    if numbers.head is not None:  # what the first steps ended with stands behind the fields
        begin = max(at.stop for at in numbers.at.values()) + numpy.arange(m + upper.size)
    else:
        begin = numpy.concatenate([numpy.arange(m), numbers.at["cov"].start + upper])
    origin = numpy.concatenate([begin, numpy.array(sources, int)])
    if begins is None:
        used = numpy.unique(origin[free[origin]])
    else:
        used = numpy.flatnonzero(free)
    slope = (origin[:, None] == used).astype(float)
    constant = numpy.where(free[origin], 0.0, known[origin])
    total = 0.0
    if begins is not None:
        k = m + upper.size
        slope[:k] = begins.slope(numbers.at, used)
        constant[:k] = begins.state() - slope[:k] @ known[used]
        total = begins.loglik
    return Pattern(numbers, layout, known, free, used, constant, slope, total, numpy.ascontiguousarray(numpy.stack(rows)), begins)


def _data_rows(data: Observations, steps: int) -> tuple[list[numpy.ndarray], bool]:
    """The observations behind the first steps, one row for each element, and where elements are missing as many rows that say which
    are there."""
    y = numpy.asarray(value(data.values))[steps:]
    there = ~numpy.isnan(numpy.asarray(value(data.raw), float).reshape(data.steps, data.width)[steps:])
    gaps = not there.all()
    return [*y.T, *(there.astype(float).T if gaps else ())], gaps


def _coded(x: numpy.ndarray, free: numpy.ndarray, first: int, name: str) -> tuple[numpy.ndarray, list[int]]:
    """The places of the entries of a field in the pool, and those entries that get a place of their own, from `first` on.  Of a
    covariance the upper triangle counts."""
    n = math.isqrt(x.size) if name in "QH" else 0
    places, own = numpy.zeros(x.size, numpy.int64), []
    for e in range(x.size):
        mirrored = (e % n) * n + e // n if n else e
        if mirrored < e:
            places[e] = places[mirrored]
        elif free[e] or x[e] not in CONSTANTS:
            places[e] = first + len(own)
            own.append(e)
        else:
            places[e] = CONSTANTS.index(x[e])
    return places, own


class _Constants:
    """The first steps after a diffuse start, where each observed number meets an infinite variance: with B = A A' the infinite part of
    the covariance the gain is B z / z' B z, whatever the finite part is, and P <- (I - K z') P (I - K z')' + K h K'.

    So the state at the end is a sum over the inputs: what enters as w leaves as X w, and its covariance W as X W X'."""

    def __init__(self, s: System, data: Observations, steps: int):
        self.s, m = s, len(s.diffuse)
        y = numpy.asarray(value(data.values))[:, 0]
        B, gains, log_sizes = numpy.diag(s.diffuse.astype(float)), [], 0.0
        for t in range(steps):
            z, T = s.host(t, "Z")[0], s.host(t, "T")
            if data.rows[t]:
                M = B @ z
                gains.append(M / (z @ M))
                log_sizes += math.log(2 * math.pi * (z @ M))
                B = B - numpy.outer(M, gains[-1])
            else:
                gains.append(numpy.zeros(m))
            B = T @ B @ T.T
        self.loglik = -0.5 * log_sizes
        X = numpy.eye(m)
        self.noise, self.errors, self.seen = [], [], y[:steps]
        for t in reversed(range(steps)):
            self.noise.append(X)
            X = X @ s.host(t, "T")
            self.errors.append(X @ gains[t])
            X = X - numpy.outer(self.errors[-1], s.host(t, "Z")[0])
        self.first = X
        self.noise, self.errors = numpy.stack(self.noise[::-1]), numpy.stack(self.errors[::-1])

    def state(self) -> numpy.ndarray:
        """Mean and upper triangle of the covariance, at the numbers of the system."""
        s, m = self.s, len(self.s.diffuse)
        shapes = {"c": (m,), "d": (1,), "Q": (m, m), "H": (1, 1)}
        c, d, Q, H = (
            numpy.stack([numpy.broadcast_to(s.host(t, name), shape) for t in range(len(self.seen))]) for name, shape in shapes.items()
        )
        a = self.first @ value(s.mean) + numpy.einsum("tij,tj->i", self.noise, c) + (self.seen - d[:, 0]) @ self.errors
        P = self.first @ value(s.cov) @ self.first.T + (self.noise @ Q @ self.noise.transpose(0, 2, 1)).sum(axis=0)
        return self._together(a, P + (self.errors * H[:, :, 0]).T @ self.errors)

    def slope(self, at: dict[str, slice], used: numpy.ndarray) -> numpy.ndarray:
        """The derivative of `state` by the numbers that are used."""
        m = len(self.s.diffuse)
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
            made[:, k] = self._together(a, P)
        return made

    def _together(self, a: numpy.ndarray, P: numpy.ndarray) -> numpy.ndarray:
        return numpy.concatenate([a, ((P + P.T) / 2).reshape(-1)[triangle(a.size)[0]]])
