"""The filter as a kernel: one step of the recursion, written once for all models, and compiled for the pattern of a model's matrices.

A matrix entry is a place in a pool of numbers: the constants 0, 1 and -1, the numbers that the kernel gets for all steps (`theta`),
and those of a step (a row of data each).  The places alone tell the kernel, so models of one form share it, and it is on disk from an
earlier process.  Zeros and ones cost nothing: what they multiply is never computed.

    theta   the first state (m,), the upper triangle of its covariance, then the other numbers
    row     y (p,), with gaps 1 or 0 for each element, then what varies over time
"""

import functools
import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..kernels.generated.kernel import Recursion, named_recursion
from ..kernels.library import observation
from . import _diffuse as diffuse

CONSTANTS = (0.0, 1.0, -1.0)
LETTERS = "TZQHcd"


class Layout(NamedTuple):
    """`places`: for each letter the places of its entries, as bytes of an int64 array; `gaps`: are elements missing?  `apart`: are the
    errors of the elements independent?  `joseph`: the longer update of the covariance."""

    states: int
    width: int
    places: tuple[bytes, ...]
    gaps: bool
    apart: bool
    joseph: bool


def key_of(layout: Layout) -> str:
    return "filter " + hashlib.sha256(repr(layout).encode()).hexdigest()


@functools.lru_cache(maxsize=64)
def compiled(layout: Layout) -> Recursion:
    """The kernel of this pattern: value, gradient and all that kernels give, at theta (q,) or (q, B) and rows (r, n)."""
    return named_recursion(key_of(layout), *definition(layout))


@functools.lru_cache(maxsize=64)
def path_of(layout: Layout) -> Recursion:
    """The kernel whose `path` gives, step by step, the term of the log-likelihood, and mean and upper triangle of the covariance of the
    state, before and after the observation."""
    return named_recursion(key_of(layout) + " moments", *definition(layout, True))


OWN = len(CONSTANTS)


@dataclass
class Form:
    """A layout, and where the numbers of the kernel come from: `sources`, entries of constant fields, stand in theta behind the first
    state; `lines`, entries of fields that vary over time, in the rows behind the data.  `filtered`: how many steps arrays have filtered,
    for each use of the kernel; `ready`: the uses for which it is compiled, or is to be."""

    layout: Layout
    sources: tuple[tuple[str, int], ...]
    lines: tuple[tuple[str, int], ...]
    varying: frozenset[str]
    filtered: Counter[str] = field(default_factory=Counter)
    ready: set[str] = field(default_factory=set)

    @functools.cached_property
    def at(self) -> np.ndarray:
        """The places of the sources in the vector of all constant fields."""
        first = starts(self.layout.states, self.layout.width, self.varying)
        return np.array([first[name].start + e for name, e in self.sources], int)

    @functools.cached_property
    def begun(self) -> np.ndarray:
        """The same behind those of the first state."""
        m = self.layout.states
        return np.concatenate([np.arange(m), m + triangle(m)[0], self.at])


def codes_of(x: np.ndarray, own: np.ndarray | bool = False) -> np.ndarray:
    """For each number its place among the constants, or OWN: it gets a place of its own."""
    codes = np.full(x.size, OWN, np.int8)
    for place, constant in enumerate(CONSTANTS):
        codes[x == constant] = place
    codes[own] = OWN
    return codes


FIELDS = ("mean", "cov", *LETTERS)


@functools.cache
def sizes(m: int, p: int) -> dict[str, int]:
    """How many entries the fields have."""
    return {"mean": m, "cov": m * m, "T": m * m, "Z": p * m, "Q": m * m, "H": p * p, "c": m, "d": p}


@functools.lru_cache(maxsize=256)
def starts(m: int, p: int, varying: frozenset[str]) -> dict[str, slice]:
    """Where the fields that do not vary stand in the vector of their entries."""
    at, first = {}, 0
    for name, size in sizes(m, p).items():
        if name not in varying:
            at[name] = slice(first, first + size)
            first += size
    return at


@functools.lru_cache(maxsize=256)
def form_of(m: int, p: int, gaps: bool, joseph: bool, varying: frozenset[str], codes: bytes) -> Form:
    """The form of models of m states and p observations; `codes`: of the entries of the fields LETTERS, one behind the other.  Of a
    covariance the upper triangle counts."""
    size, code, first = sizes(m, p), np.frombuffer(codes, np.int8), 0
    places, own = {}, {}
    for name in LETTERS:
        here = code[first : first + size[name]].astype(np.int64)
        first += here.size
        n = {"Q": m, "H": p}.get(name, 0)
        mirrored = [min(e, e % n * n + e // n) if n else e for e in range(here.size)]
        own[name] = [e for e, other in enumerate(mirrored) if e == other and here[e] == OWN]
        places[name] = here, mirrored
    sources = [(name, e) for name in LETTERS if name not in varying for e in own[name]]
    lines = [(name, e) for name in sorted(varying) for e in own[name]]
    at = {entry: OWN + k for k, entry in enumerate(sources)}
    at |= {entry: OWN + len(sources) + (2 if gaps else 1) * p + k for k, entry in enumerate(lines)}
    placed = {
        name: np.array([at[name, e] if here[e] == OWN else here[e] for e in mirrored], np.int64)
        for name, (here, mirrored) in places.items()
    }
    apart = not np.triu(placed["H"].reshape(p, p), 1).any()
    layout = Layout(m, p, tuple(placed[name].tobytes() for name in LETTERS), gaps, apart, joseph)
    return Form(layout, tuple(sources), tuple(lines), varying)


@functools.cache
def triangle(m: int) -> tuple[np.ndarray, np.ndarray]:
    """The upper triangle of an m x m matrix, as flat places; and of each entry of the matrix its place among them."""
    upper = np.flatnonzero(np.triu(np.ones((m, m), bool)))
    number = np.zeros(m * m, np.int64)
    number[upper] = np.arange(upper.size)
    number = number.reshape(m, m)
    return upper, np.triu(number) + np.triu(number, 1).T


def reader(layout: Layout) -> Callable:
    """(numbers of theta behind the first state, row) to the arguments of a step: T, Q, Z, errors, y - d, c."""
    m, p = layout.states, layout.width
    shapes = {"T": (m, m), "Z": (p, m), "Q": (m, m), "H": (p, p), "c": (m,), "d": (p,)}
    T, Z, Q, H, c, d = (np.frombuffer(x, np.int64).reshape(shapes[name]) for name, x in zip(LETTERS, layout.places, strict=True))
    constants, H = np.array(CONSTANTS), np.diag(H) if layout.apart else H

    def read(numbers: Any, row: Any) -> tuple:
        pool = np.concatenate([constants, numbers, row])
        return pool[T], pool[Q], pool[Z], pool[H], row[:p] - pool[d], pool[c]

    return read


def definition(layout: Layout, path: bool = False) -> tuple[Callable, Callable]:
    """init(theta) and step(carry, theta, row) of the filter; with `path` the step hands out what `path_of` says."""
    m, p, gaps, joseph, read = layout.states, layout.width, layout.gaps, layout.joseph, reader(layout)
    full, first, pairs = triangle(m)[1], m + m * (m + 1) // 2, np.triu_indices(m)

    def init(theta: Any) -> Any:
        return theta[:m], theta[m:first][full]

    def filtered(carry: Any, theta: Any, row: Any) -> tuple[Any, Any, Any, Any]:
        T, Q, Z, errors, e, c = read(theta[first:], row)
        seen = row[p : 2 * p] > 0.5 if gaps else None
        return observation.step(*carry, T, Q, Z, errors, e, seen, layout.apart, c, joseph)

    def step(carry: Any, theta: Any, row: Any) -> Any:
        return filtered(carry, theta, row)[:2]

    def moments(carry: Any, theta: Any, row: Any) -> Any:
        after, term, a, P = filtered(carry, theta, row)
        return after, np.concatenate([np.reshape(term, (1,)), carry[0], carry[1][pairs], a, P[pairs]])

    return init, moments if path else step


def first_steps(layout: Layout, q: int) -> tuple[Callable, Callable]:
    """The first steps after a start with q diffuse elements, where the covariance is P + kappa A A'.

        theta   a (m,), the upper triangle of P, A (m, q), then the other numbers
        row     as of the filter, then 1 or 0 for each element that meets a finite variance, and for each that meets an infinite one

    A step hands out its term of the log-likelihood, a, P and A, and the state behind the observation."""
    m, p, read = layout.states, layout.width, reader(layout)
    pairs, end = np.triu_indices(m), sizes_of_state(m, q)

    def init(theta: Any) -> Any:
        return state_of(theta, m, q)

    def step(carry: Any, theta: Any, row: Any) -> Any:
        T, Q, Z, errors, e, c = read(theta[end:], row)
        flags = row[row.shape[0] - 2 * p :]
        a, P, A, seen = diffuse.elements(*carry, Z, errors, e, flags[:p], flags[p:], layout.apart)
        term = -0.5 * sum([diffuse.term(x) for x in seen])
        before = [carry[0], carry[1][pairs], np.reshape(carry[2], (m * q,))]
        return (*observation.predicted(a, P, T, Q, c), T @ A), np.concatenate([np.reshape(term, (1,)), *before, a, P[pairs]])

    return init, step


def sizes_of_state(m: int, q: int) -> int:
    return m + m * (m + 1) // 2 + m * q


def state_of(x: Any, m: int, q: int) -> tuple[Any, Any, Any]:
    """Mean, covariance and A of the numbers that `first_steps` hands out."""
    k = m + m * (m + 1) // 2
    return x[:m], x[m:k][triangle(m)[1]], np.reshape(x[k : k + m * q], (m, q))


def first_weights(layout: Layout, q: int) -> tuple[Callable, Callable]:
    """The same steps backward.

        theta   the weights r (m,) and N (its upper triangle) behind the last of the steps, then the other numbers
        row     as in `first_steps`, then a, P and A

    A step hands out mean and covariance of the state given all data."""
    m, p, read = layout.states, layout.width, reader(layout)
    pairs, k, end = np.triu_indices(m), m + m * (m + 1) // 2, sizes_of_state(m, q)

    def init(theta: Any) -> Any:
        return tuple(diffuse.behind(theta[:m], theta[m:k][triangle(m)[1]], q))

    def step(carry: Any, theta: Any, row: Any) -> Any:
        T, _, Z, errors, e, _ = read(theta[k:], row)
        at = row.shape[0] - end
        a, P, A, seen = diffuse.elements(*state_of(row[at:], m, q), Z, errors, e, row[at - 2 * p : at - p], row[at - p : at], layout.apart)
        w = diffuse.through(diffuse.Weights(*carry), T)
        mean, cov = diffuse.smoothed(a, P, A, w)
        return tuple(diffuse.before(w, seen)), np.concatenate([mean, cov[pairs]])

    return init, step


@functools.lru_cache(maxsize=32)
def first_of(layout: Layout, q: int) -> tuple[Recursion, Recursion]:
    """The kernels of the first steps, forward and backward."""
    key = f"{key_of(layout)} first {q}"
    forward, backward = first_steps(layout, q), first_weights(layout, q)
    return named_recursion(key, *forward, short=True), named_recursion(key + " backward", *backward, short=True)


@functools.lru_cache(maxsize=16)
def weights(m: int) -> Recursion:
    """The backward recursion of the smoother: theta (m + m (m + 1) / 2,) are the weights r, N behind the last step, a row holds L, u and
    the triangle of W of a step, the last step first.  `path` gives r <- u + L' r and N <- W + L' N L of each."""
    full, pairs, size = triangle(m)[1], np.triu_indices(m), m * m

    def init(theta: Any) -> Any:
        return theta[:m], theta[m:][full]

    def step(carry: Any, theta: Any, row: Any) -> Any:
        L = row[:size].reshape(m, m)
        r, N = row[size : size + m] + L.T @ carry[0], row[size + m :][full] + L.T @ carry[1] @ L
        return (r, N), np.concatenate([r, N[pairs]])

    return named_recursion(f"weights of the smoother {m}", init, step)
