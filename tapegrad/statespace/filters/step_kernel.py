"""The filter as a kernel: one step of the recursion, written once for all models, and compiled for the
pattern of a model's matrices.

A matrix entry is a place in a pool of numbers: the constants 0, 1 and -1, the numbers that the kernel gets
for all steps (`theta`), and those of a step (a row of data each).  The places alone tell the kernel, so
models of one form share it, and it is on disk from an earlier process.  Zeros and ones cost nothing: what
they multiply is never computed.

    theta   the first state (m,), the upper triangle of its covariance, then the other numbers
    row     y (p,), with gaps 1 or 0 for each element, then what varies over time
"""

import functools
import hashlib
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from ...kernels.generated.kernel import Recursion, named_recursion
from ...kernels.launch import stored
from ...kernels.library import observation

LOGGER = logging.getLogger("tapegrad")
SECONDS_BY_SQUARE = 1.5e-3  # seconds of a first fit that compiles, by the square of the number of states,
WHOLE_MATRICES = 40  # up to so many; with more, steps are products of whole matrices, which are short code
SECONDS_OF_WHOLE = 0.8  # of which a first fit compiles in this time
SECONDS_BY_CUBE = 1e-9  # seconds of a step of these, with its gradient, by the cube of the number of states
LOGGED_SECONDS, SHOWN_SECONDS = 0.3, 1.0
CONSTANTS = (0.0, 1.0, -1.0)
LETTERS = "TZQHcd"
# names of coefficients and regressors of an offset that is a regression
INPUT, REGRESSOR = {"c": "c inputs", "d": "d inputs"}, {"c": "c regressors", "d": "d regressors"}


class EntryLayout(NamedTuple):
    """The pattern of a model's matrices.

    `places` holds for each letter the places of its entries, as bytes of an int64 array. `inputs` holds, for
    offsets that are regressions, the places of coefficients and of regressors. `gaps`: elements may be
    missing. `apart`: the errors of the elements are independent. `joseph`: the longer update of the
    covariance."""

    states: int
    width: int
    places: tuple[bytes, ...]
    gaps: bool
    apart: bool
    joseph: bool
    inputs: tuple[tuple[str, int, bytes, bytes], ...] = ()


def cache_key(layout: EntryLayout) -> str:
    return "filter " + hashlib.sha256(repr(layout).encode()).hexdigest()


@functools.lru_cache(maxsize=256)
def announce(layout: EntryLayout, steps: int) -> None:
    """Log, before a fit compiles the kernels of this layout for the first time, how long that takes about.

    Of many states it also says how long an evaluation takes. Python shows the message of a long pause without
    any settings."""
    m, name = layout.states, f"{cache_key(layout)} announced"
    whole, each = m > WHOLE_MATRICES, SECONDS_BY_CUBE * m**3 * steps
    seconds = SECONDS_OF_WHOLE if whole else SECONDS_BY_SQUARE * m**2
    if seconds > LOGGED_SECONDS and not stored.was_compiled(name):
        stored.note_compiled(name)
        level = logging.WARNING if seconds > SHOWN_SECONDS else logging.INFO
        more = f"; each value with its gradient takes about {each:.1f} s" if whole else ""
        LOGGER.log(level, "compiling a filter of %d states, once: about %.1f s%s", m, seconds, more)


@functools.lru_cache(maxsize=64)
def compile_layout(layout: EntryLayout) -> Recursion:
    """Return the kernel of this pattern, at theta (q,) or (q, B) and rows (r, n)."""
    return named_recursion(cache_key(layout), *definition(layout))


@functools.lru_cache(maxsize=64)
def path_of(layout: EntryLayout, columns: int, states: int = 1) -> Recursion:
    """Return the kernel of the augmented filter; its `path` returns what `augmented` describes.

    With fewer than two `states` it is compiled for few steps."""
    key = f"{cache_key(layout)} augmented {columns} {states}"
    return named_recursion(key, *augmented(layout, columns, states), short=states < 2)


OWN = len(CONSTANTS)


@dataclass
class KernelForm:
    """A layout, and the origin of the kernel's numbers.

    `sources`, entries of constant fields, follow the first state in theta. `lines`, entries of fields that
    vary over time, follow the data in the rows. `filtered` counts the steps that arrays have filtered, for
    each use of the kernel. `ready` holds the uses for which it is compiled, or is to be."""

    layout: EntryLayout
    sources: tuple[tuple[str, int], ...]
    lines: tuple[tuple[str, int], ...]
    varying: frozenset[str]
    inputs: tuple[tuple[str, int], ...] = ()
    filtered: Counter[str] = field(default_factory=Counter)
    ready: set[str] = field(default_factory=set)

    @functools.cached_property
    def at(self) -> ndarray:
        """Return the places of the sources in the vector of all constant fields."""
        first = starts(self.layout.states, self.layout.width, self.varying, self.inputs)
        return np.array([first[name].start + e for name, e in self.sources], int)

    @functools.cached_property
    def begun(self) -> ndarray:
        """Return the same places, after those of the first state."""
        m = self.layout.states
        return np.concatenate([np.arange(m), m + triangle_places(m)[0], self.at])


def constant_codes(x: ndarray, own: ndarray | bool = False) -> ndarray:
    """Return the place of each number among the constants, or OWN for a place of its own."""
    codes = np.full(x.size, OWN, np.int8)
    for place, constant in enumerate(CONSTANTS):
        codes[x == constant] = place
    codes[own] = OWN
    return codes


FIELDS = ("mean", "cov", *LETTERS)


@functools.cache
def field_sizes(m: int, p: int) -> dict[str, int]:
    """Return the number of entries of each field."""
    return {"mean": m, "cov": m * m, "T": m * m, "Z": p * m, "Q": m * m, "H": p * p, "c": m, "d": p}


@functools.lru_cache(maxsize=256)
def starts(
    m: int, p: int, varying: frozenset[str], inputs: tuple[tuple[str, int], ...] = ()
) -> dict[str, slice]:
    """Return the slices of the constant fields in the vector of their entries, and of the coefficients of
    inputs."""
    at, first = {}, 0
    for name, size in (*field_sizes(m, p).items(), *[(INPUT[letter], k) for letter, k in inputs]):
        if name not in varying:
            at[name] = slice(first, first + size)
            first += size
    return at


@functools.lru_cache(maxsize=256)
def kernel_form(
    m: int,
    p: int,
    gaps: bool,
    joseph: bool,
    varying: frozenset[str],
    codes: bytes,
    inputs: tuple[tuple[str, int, bytes], ...] = (),
) -> KernelForm:
    """Return the form of models of m states and p observations.

    `codes` are those of the entries of the fields LETTERS, one field after the other. Of a covariance the
    upper triangle counts. `inputs` are letters, numbers of coefficients, and codes of the regressors."""
    size, code, first = field_sizes(m, p), np.frombuffer(codes, np.int8), 0
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
    regressors = {letter: np.frombuffer(x, np.int8).astype(np.int64) for letter, _, x in inputs}
    sources += [(INPUT[letter], j) for letter, k, _ in inputs for j in range(k)]
    lines += [
        (REGRESSOR[letter], int(e)) for letter, x in regressors.items() for e in np.flatnonzero(x == OWN)
    ]
    at = {entry: OWN + k for k, entry in enumerate(sources)}
    at |= {entry: OWN + len(sources) + (2 if gaps else 1) * p + k for k, entry in enumerate(lines)}
    placed = {
        name: np.array([at[name, e] if here[e] == OWN else here[e] for e in mirrored], np.int64)
        for name, (here, mirrored) in places.items()
    }
    products = []
    for letter, k, _ in inputs:
        rows = np.array(
            [at[REGRESSOR[letter], e] if x == OWN else x for e, x in enumerate(regressors[letter])], np.int64
        )
        coefficients = np.array([at[INPUT[letter], j] for j in range(k)], np.int64)
        products.append((letter, k, coefficients.tobytes(), rows.tobytes()))
    apart = not np.triu(placed["H"].reshape(p, p), 1).any()
    layout = EntryLayout(
        m, p, tuple(placed[name].tobytes() for name in LETTERS), gaps, apart, joseph, tuple(products)
    )
    return KernelForm(
        layout, tuple(sources), tuple(lines), varying, tuple([(letter, k) for letter, k, _ in inputs])
    )


@functools.cache
def triangle_places(m: int) -> tuple[ndarray, ndarray]:
    """Return the flat places of the upper triangle of an m x m matrix, and each entry's place among them."""
    upper = np.flatnonzero(np.triu(np.ones((m, m), bool)))
    number = np.zeros((m, m), np.int64)
    number.flat[upper] = np.arange(upper.size)
    return upper, np.triu(number) + np.triu(number, 1).T


def reader(layout: EntryLayout) -> Callable:
    """Return the function from (theta after the first state, row) to the step's T, Q, Z, errors, y - d, c."""
    m, p = layout.states, layout.width
    shapes = {"T": (m, m), "Z": (p, m), "Q": (m, m), "H": (p, p), "c": (m,), "d": (p,)}
    T, Z, Q, H, c, d = (
        np.frombuffer(x, np.int64).reshape(shapes[name])
        for name, x in zip(LETTERS, layout.places, strict=True)
    )
    constants, H = np.array(CONSTANTS), np.diag(H) if layout.apart else H
    inputs = {
        name: (np.frombuffer(a, np.int64), np.frombuffer(x, np.int64).reshape(-1, k))
        for name, k, a, x in layout.inputs
    }

    def read(numbers, row) -> tuple:
        pool = np.concatenate([constants, numbers, row])
        offsets = {"c": pool[c], "d": pool[d]}
        for name, (coefficients, regressors) in inputs.items():
            offsets[name] = offsets[name] + pool[regressors] @ pool[coefficients]
        return pool[T], pool[Q], pool[Z], pool[H], row[:p] - offsets["d"], offsets["c"]

    return read


def parts_of_step(layout: EntryLayout, columns: int | None = None) -> tuple[Callable, Callable]:
    """Return init(theta) of the filter, whose mean may have columns, and the function from (theta, row) to
    what `reader` reads and to which elements are there (None: all)."""
    m, p, read = layout.states, layout.width, reader(layout)
    k, full = m * (columns or 1), triangle_places(m)[1]
    first = k + m * (m + 1) // 2

    def init(theta):
        return np.reshape(theta[:k], (m, columns) if columns else (m,)), theta[k:first][full]

    def step_of(theta, row) -> tuple:
        return *read(theta[first:], row), row[p : 2 * p] > 0.5 if layout.gaps else None

    return init, step_of


def definition(layout: EntryLayout) -> tuple[Callable, Callable]:
    """Return init(theta) and step(carry, theta, row) of the filter."""
    init, step_of = parts_of_step(layout)

    def step(carry: tuple[Any, Any], theta, row):
        T, Q, Z, errors, e, c, seen = step_of(theta, row)
        return observation.observation_step(*carry, T, Q, Z, errors, e, seen, layout.apart, c, layout.joseph)

    return init, step


def augmented(layout: EntryLayout, columns: int, states: int) -> tuple[Callable, Callable]:
    """The same where the mean is a matrix (m, columns), of which the first column alone sees the data, and
    the others zeros.

        theta   the mean, the upper triangle of the covariance, then the other numbers

    A step hands out the log of the determinant of 2 pi F and the innovations in units of F (p, columns).
    With `states` 1, mean and upper triangle of the covariance before the observation follow, and with 2
    those after it too."""
    init, step_of = parts_of_step(layout, columns)
    pairs = np.triu_indices(layout.states)

    def beside(x):
        return np.concatenate([x[:, None], np.zeros((x.shape[0], columns - 1))], axis=1)

    def step(carry: tuple[Any, Any], theta, row):
        T, Q, Z, errors, e, c, seen = step_of(theta, row)
        a, P, size, v, g = observation.measured(
            *carry, Z, errors, beside(e), seen, layout.apart, layout.joseph
        )
        found = [np.reshape(size, (1,)), np.reshape(observation.whitened(v, g), (-1,))]
        found += [
            part for mean, cov in (carry, (a, P))[:states] for part in (np.reshape(mean, (-1,)), cov[pairs])
        ]
        return observation.predicted(a, P, T, Q, beside(c)), np.concatenate(found)

    return init, step


@functools.lru_cache(maxsize=16)
def weights(m: int, columns: int) -> Recursion:
    """Return the kernel of the smoother's backward recursion, from zeros.

    A row holds L, u (m, columns) and the triangle of W of a step, the last step first. `path` returns r <- u
    + L' r and N <- W + L' N L of each."""
    full = triangle_places(m)[1]
    pairs = np.triu_indices(m)
    size = m * m
    k = m * columns

    def init(theta):
        return np.reshape(theta[:k], (m, columns)), theta[k:][full]

    def step(carry, theta, row):
        L = row[:size].reshape(m, m)
        r = np.reshape(row[size : size + k], (m, columns)) + L.T @ carry[0]
        N = row[size + k :][full] + L.T @ carry[1] @ L
        return (r, N), np.concatenate([np.reshape(r, (k,)), N[pairs]])

    return named_recursion(f"weights of the smoother {m} {columns}", init, step)
