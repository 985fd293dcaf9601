"""Which operations run on places: a dry run of the body tells."""

import functools
import math

import numpy as np

from ..._core.errors import let_through
from ...ops.declare import GatedProduct
from ..record.instructions import is_pure, moved_places
from ..record.settings_keys import settings_key
from .machine_code import CHECKED
from .placed_arrays import PlacedArray
from .placed_matrices import TRANSLATED


class NoRows:
    """A block that keeps no rows.  It shows what the body of an operation asks of a block: `rows`
    (names and operands), and `temporaries` in order."""

    nothing = np.zeros((), np.int64)

    def __init__(self) -> None:
        self.rows = []
        self.temporaries = []
        self.exact = True  # do all rows give what NumPy gives for all values?
        self.foreign = False  # is one of them a function that tells of errors in its own way?

    def row(self, name: str, to, *operands) -> None:
        self.rows.append((name, operands))
        self.exact = self.exact and name not in JUDGE_VALUES

    def called(self, ufunc, *args, **settings) -> None:
        self.rows.append(("", ()))
        self.foreign = self.foreign or getattr(np, ufunc.__name__, None) is not ufunc

    def others(self, *args, **settings) -> None:
        self.rows.append(("", ()))
        self.exact = False

    def pair_of(self, at, kind: str) -> tuple:
        return at, at + 1 if kind == "c" else self.nothing

    of_matrices = indexed = ordered = matmul = lapack = others

    def temporary(self, *shape: int, **settings) -> np.ndarray:
        self.temporaries.append(np.zeros(shape, np.int64))
        return self.temporaries[-1]

    def number(self, v: float) -> np.ndarray:
        return self.nothing

    def constant(self, v: np.ndarray) -> np.ndarray:
        return np.zeros(v.shape, np.int64)


class PlacedBody:
    """The body of an operation for operands of given shapes and kinds, as a dry run on places shows it.

    `refused`: why it is no rows, or empty; `name`: of the only row, if its operands are those of the
    operation; `target`: the number of the temporary array that becomes the result, or -1; `exact`: does it
    give what NumPy gives for all values?  (If that is asked, products are gated.)  `foreign`: is it a
    function that tells of errors in its own way?"""

    def __init__(self, i, shape: tuple, shapes: tuple, kinds: tuple, exact: bool = False):
        self.kinds, self.refused, self.name, self.target, self.gating = kinds[1:], "", "", -1, exact
        self.exact = self.foreign = False
        self.moves = i.prim.linear and [*kinds] == 2 * [kinds[0]] and moves_elements(i, shapes[0])
        b, at = NoRows(), [np.zeros(s, np.int64) for s in shapes]
        try:
            made = self.run(b, i, at)
            if i.prim.multi:
                return
            if made.size != math.prod(shape) or made.kind != kinds[0]:
                self.refused = f"it gives {made.shape} of kind {made.kind}"
        except Exception as error:
            let_through(error)
            self.refused = f"{type(error).__name__}: {error}"
            return
        self.foreign = b.foreign
        self.exact = b.exact and (len(b.rows) < 2 or i.prim.scalar is not None)
        if made.shape == shape:
            self.target = next((n for n, t in enumerate(b.temporaries) if t is made.places), -1)
        alone = self.target == 0 and len(b.rows) == 1
        if alone and [*map(id, b.rows[0][1])] == [*map(id, at)]:
            self.name = b.rows[0][0]

    def run(self, b, i, at: list):
        """What the body gives."""
        prim = i.prim
        if self.moves:
            return PlacedArray(b, np.asarray(prim.run(at[0], **i.params)), self.kinds[0])
        gated = type(prim.scalar) is GatedProduct  # (what is not finite ends the run)
        f = prim.scalar.form if gated else TRANSLATED.get(prim, prim.run)
        if gated and self.gating:
            f = functools.partial(gated_form, f, prim.scalar.gates)
        if type(prim.scalar) is tuple and prim.scalar[0] in CHECKED and "c" not in self.kinds:
            to = b.temporary(*at[0].shape)
            b.row(prim.scalar[0], to, *at)
            return PlacedArray(b, to)
        return f(*[PlacedArray(b, v, kind) for v, kind in zip(at, self.kinds, strict=True)], **i.params)


JUDGE_VALUES = ("index", "within")  # rows that end a run by their values


def gated_form(form, gates: int, *x, **params):
    """Zero where one of the first operands is, whatever the others are."""
    made = form(*x, **params)
    for v in x[:gates]:
        made = np.where(v == 0.0, 0.0, made)
    return made


def moves_elements(i, shape: tuple) -> bool:
    return moved_places(functools.partial(i.prim.run, **i.params), shape) is not None


BODIES_KNOWN: dict = {}  # (operation, settings, shapes and kinds) -> its `PlacedBody`


def placed_body(k: int, i, shown, kinds: tuple, exact: bool = False) -> PlacedBody | None:
    """That of an instruction; None where it cannot run on places.  `kinds`: of result and operands."""
    if not is_pure(i.prim) or i.prim.writes:
        return None
    shapes = tuple([shown[a][1] for a in (k, *i.args)])
    try:
        key = i.prim, settings_key(i.params), shapes, kinds, exact
        body = BODIES_KNOWN.get(key)
    except TypeError:  # of the key
        return None
    if body is None:
        body = BODIES_KNOWN[key] = PlacedBody(i, shapes[0], shapes[1:], kinds, exact)
    return None if body.refused else body
