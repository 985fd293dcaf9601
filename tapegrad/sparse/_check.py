"""Checks that a pattern of the user has no missing entry; `_plan` calls it.

The pattern of the recording, where there is one, limits the entries that may be missing. An entry counts as
missing if its value differs from zero at the point or at a second point nearby."""

import numpy as np

from .._core.arrays import to_host, xp_of
from .._core.errors import ArgumentError, GuardError

SECOND_POINT_SHIFT = 0.01  # distance of the second point, relative to each number


def require_entries(plan, args: tuple) -> None:
    """Raise if an entry is missing in the pattern."""
    x, *rest = args
    library = xp_of(x)
    random = np.random.default_rng(0)
    nudged = x + library.asarray(
        random.uniform(-SECOND_POINT_SHIFT, SECOND_POINT_SHIFT, x.shape).astype(x.real.dtype)
    ) * (1 + library.abs(x))
    v = library.asarray(random.uniform(0.5, 1.5, x.shape).astype(x.dtype))
    for point in (x, nudged):
        with np.errstate(all="ignore"):
            try:
                wanted = to_host(plan_product(plan, point, v, rest)).reshape(-1)
                matrix = plan.matrix(plan.products((point, *rest)))
                got = to_host(matrix @ v.reshape(-1))
                size = to_host(abs(matrix) @ library.abs(v.reshape(-1))) + abs(wanted)
            # f is not defined at the point nearby
            except (ArithmeticError, GuardError, np.linalg.LinAlgError):
                if point is x:
                    raise
                return
        finite = np.isfinite(wanted) & np.isfinite(got)
        eps = np.finfo(wanted.dtype).eps
        missed = np.flatnonzero(finite & (abs(wanted - got) > 1e3 * eps * size))
        if missed.size:
            name(plan, point, rest, missed)


def plan_product(plan, x, v, rest: list):
    forms = plan.prepared.forms
    return forms["hvp"]((x, v, *rest)) if plan.second else forms["jvp"]((x, v, *rest))[1]


def name(plan, x, rest: list, rows: np.ndarray) -> None:
    """Raise and list the missing entries of the first incomplete row. Other rows share its colour."""
    for row in rows.tolist():
        whole = derivatives_of(plan, x, rest, row)
        whole[plan.pattern.indices[plan.pattern.indptr[row] : plan.pattern.indptr[row + 1]]] = 0.0
        missing = np.flatnonzero(whole)
        if missing.size:
            break
    places = ", ".join([f"({row}, {j})" for j in missing[:4]]) + (", .." if missing.size > 4 else "")
    lacks = (
        f"misses {'entries' if missing.size > 1 else 'entry'} {places}"
        if missing.size
        else f"does not hold what row {row} needs"
    )
    value = f", where the derivative is {whole[missing[0]]}" if missing.size else ""
    raise ArgumentError(f"{plan.call}: the pattern {lacks}{value}; leave the pattern away, and it is found")


def derivatives_of(plan, x, rest: list, row: int) -> np.ndarray:
    """Return one row of the dense matrix."""
    m, n = plan.shape
    forms, unit = plan.prepared.forms, np.zeros(m, getattr(plan.like, "dtype", float))
    unit[row] = 1.0
    w = xp_of(x).asarray(unit.reshape(np.shape(plan.like)))
    if plan.second:
        whole = to_host(forms["hvp"]((x, w, *rest)))
    elif w.dtype.kind == "c" and x.dtype.kind != "c":
        whole = to_host(forms["jacobian"]((x, *rest))).reshape(m, n)[row]
    else:
        whole = to_host(forms["vjp"]((x, w, *rest))[1]).conj()
    return whole.reshape(-1).copy()
