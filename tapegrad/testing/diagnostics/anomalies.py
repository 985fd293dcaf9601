"""`detect_anomalies`: the first nan or inf, in values or derivatives, raises an error with the operation
and the user's line."""

import numpy as np

from ..._core.arrays import is_array, xp_of
from ..._core.errors import AnomalyError, Attempt, spelt, users_place
from ..._core.primitive import Primitive
from ..._core.scope import Exit, changed
from ..._core.trees import leaves
from ..._transforms.arguments import user_name, where_of
from ..._transforms.batching.watched_traces import (
    WatchedRecords,
    Watcher,
    plain_parts,
    source_line,
    values_and_tangents,
)

SHOWN_OPERANDS = 4  # operands


class Anomalies(Watcher):
    """The watcher. `inf`: whether inf counts. `met`: the first operation with an anomaly among its
    operands."""

    silences = True

    def __init__(self, inf: bool):
        self.inf = inf
        self.met: str | None = None

    # --- forward ---

    def done(self, prim: Primitive, args, out, params: dict) -> None:
        if prim.pull is not None:  # an operation on regions moves what other operations have made
            return
        results = out if type(out) is tuple else (out,)
        given = list(plain_parts(args))
        for y in results:
            values, slopes = values_and_tangents(y)
            for v in values:
                if self.mask(v) is None:
                    continue
                mask = self.made(prim, v, [a for some, _ in given for a in some])
                if mask is not None:
                    raise AnomalyError(
                        self.told(f"{prim.known_as} gives", v, mask, [a for some, _ in given for a in some])
                    )
                if self.met is None:
                    place = users_place()
                    self.met = f"{spelt(place)}: {prim.known_as} had it among its operands{source(place)}"
            for t in slopes:
                mask = self.mask(t)
                if mask is not None and all([self.mask(s) is None for _, some in given for s in some]):
                    what = f"the derivative of {prim.known_as}, in forward mode, is"
                    raise AnomalyError(self.told(what, t, mask, [a for some, _ in given for a in some]))

    def mask(self, v) -> np.ndarray | None:
        """The mask of anomalies in v; None if there are none."""
        v = host_floats(v)
        if v is None:
            return None
        bad = ~np.isfinite(v) if self.inf else np.isnan(v)
        return bad if bad.any() else None

    def made(self, prim: Primitive, out, operands: list) -> np.ndarray | None:
        """The mask of anomalies that the operation itself made: its operands have none there."""
        y = host_floats(out)
        assert y is not None
        hosts = [h for h in map(host_floats, operands) if h is not None]
        each = prim.batch == "elementwise" and all([has_shape_of(h, y) for h in hosts])
        nan, unbounded = np.isnan(y), np.isinf(y) & self.inf
        for h in hosts:
            unknown, large = np.isnan(h), ~np.isfinite(h)
            nan = nan & ~(unknown if each else unknown.any())
            unbounded = unbounded & ~(large if each else large.any())
        found = nan | unbounded
        return found if found.any() else None

    def told(self, what: str, v, mask: np.ndarray, operands: list, place: tuple | None = None) -> str:
        """The message: where, which anomaly, and the operands."""
        place = users_place() if place is None else place
        y = host_floats(v)
        assert y is not None
        at = tuple([int(k[0]) for k in np.nonzero(mask)]) if mask.ndim else ()
        count = f" in {int(mask.sum())} of {mask.size} elements, first at {list(at)}" if mask.ndim else ""
        return f"{spelt(place)}: {what} {y[at]}{count}{of_operands(operands, y.shape, at)}{source(place)}"

    # --- backward ---

    def swept(self, noted: WatchedRecords, slot: int, c) -> None:
        values, slopes = values_and_tangents(c)
        for v in (*values, *slopes):
            mask = self.mask(v)
            if mask is None:
                continue
            if noted.now is None:
                raise AnomalyError(self.told("the cotangent that the sweep begins with is", v, mask, []))
            k, record, name = noted.now
            how = "backward" if k not in noted.origins else "in a further sweep"
            what = f"the derivative of {name}, {how}, is"
            raise AnomalyError(self.told(what, v, mask, kept_operands(record), noted.lines[k]))

    # --- results ---

    def returned(self, f, y) -> None:
        for n, leaf in enumerate(leaves(y)):
            for v in values_and_tangents(leaf)[0]:
                mask = self.mask(v)
                if mask is not None:
                    which = f"result {n} of " if len(leaves(y)) > 1 else ""
                    why = (
                        f"It came in from outside: {self.met}"
                        if self.met
                        else "No operation made it: it was there, or is a constant"
                    )
                    y0 = host_floats(v)
                    assert y0 is not None
                    raise AnomalyError(
                        f"{which}{user_name(f)}{where_of(f)} returned {y0[mask].flat[0]}. {why}"
                    )

    # --- kernels ---

    def launched(self, name: str, theta, results, rerun) -> None:
        for v in results if isinstance(results, tuple) else (results,):
            y = host_floats(v)
            if y is None or np.isfinite(y).all() or self.mask(theta) is not None:
                continue
            # the last axis holds the samples
            sample = int(np.nonzero(~np.isfinite(y))[-1][0]) if y.ndim else 0
            try:
                with Attempt(AnomalyError), changed(within=False, sweeping=None):
                    rerun(sample)  # an error: it needs something that only a kernel has
            except AnomalyError as error:
                raise AnomalyError(
                    f"{error}\n  in the kernel of {name}, sample {sample}, called at {spelt(users_place())}"
                ) from None
            mask = self.mask(v)
            if mask is not None:
                raise AnomalyError(self.told(f"the kernel of {name} gives", v, mask, []))


class detect_anomalies:
    """A context in which the first nan or inf raises an error with the operation, its operands and your line.

    All code under a transform in this thread is checked: each operation, each derivative forward and
    backward, kernels, and calls of `tapegrad.prepare`, which run plainly meanwhile. An operation is reported
    if it makes a nan of operands that have none. A nan that was there before, such as missing data, is an
    error if it gets into a result.

    Inside the context an operation takes about 25 microseconds more. A gradient of small arrays takes ten
    times as long, and one of arrays of 10,000 half as long again. Outside it there is no cost.

    Parameters
    ----------
    inf : bool, default True
        Whether infinite values count too. With False only nan counts.

    Raises
    ------
    AnomalyError
        At the first nan or inf.

    See Also
    --------
    audit : Checks all derivatives of a function.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> with tg.detect_anomalies():
    ...     tg.grad(lambda x: np.sqrt(x).sum())(np.array([1.0, 0.0]))
    Traceback (most recent call last):
    tapegrad.errors.AnomalyError: ...: the derivative of sqrt, backward, is inf in 1 of 2 elements...
    """

    def __init__(self, inf: bool = True):
        self.inf = inf
        self.entered: list = []

    __exit__ = Exit()

    def __enter__(self) -> None:
        Exit.hold(self)
        self.entered.append(Anomalies(self.inf))
        self.entered[-1].__enter__()

    def left(self, *error) -> None:
        if self.entered:
            # before it is removed: an interrupt may strike here, and the call is then repeated
            self.entered[-1].left()
            self.entered.pop()


# --- texts ---


def host_floats(v) -> np.ndarray | None:
    """A plain array of floats on the host; None for anything else."""
    if is_array(v) and xp_of(v) is not np:
        v = v.get()
    v = np.asarray(v)
    return v if v.dtype.kind in "fc" else None


def has_shape_of(h: np.ndarray, y: np.ndarray) -> bool:
    try:
        return np.broadcast_shapes(h.shape, y.shape) == y.shape
    except ValueError:
        return False


def source(place: tuple) -> str:
    text = source_line(place)
    return f"\n    {text}" if text else ""


def of_operands(operands: list, to: tuple, at: tuple) -> str:
    """The operands at the place `at` of a result of shape `to`, or their shapes."""
    told = []
    for v in operands[:SHOWN_OPERANDS]:
        h = np.asarray(host_floats(v)) if host_floats(v) is not None else None
        if h is None:
            continue
        told.append(
            str(np.broadcast_to(h, to)[at])
            if has_shape_of(h, np.empty(to))
            else f"an array of shape {h.shape}"
        )
    return f"; operands: {', '.join(told)}" if told else ""


def kept_operands(record: tuple) -> list:
    """The operands that a record keeps, as plain arrays."""
    if record[1] is None:
        return []
    found = []
    for x in record[5] if isinstance(record[5], (list, tuple)) else record[5:]:
        found += values_and_tangents(x)[0]
    return found
