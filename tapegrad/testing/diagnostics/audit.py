"""`audit`: runs a function plainly and under every transform, and compares the results.

`CHECKS` lists the comparisons, one function each. As in `testing`, they compare derivatives along
random directions: those of phi(x) = Re <w, f(x)> along v."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._capture.routes import of_function
from ..._core.arrays import is_array, xp_of
from ..._core.errors import Attempt, TapegradError, let_through, spelt, users_place
from ..._core.primitive import Primitive, bind, values_of
from ..._core.scope import OPEN, entry
from ..._core.trees import Const, describe_tree, leaves, tree_map
from ..._transforms.arguments import user_name
from ..._transforms.batching.watched_traces import Watcher, source_line, values_and_tangents
from ..._transforms.gradient import grad
from ..._transforms.hessian_products import hvp
from ..._transforms.products import jvp, vjp
from ..._transforms.vmap import vmap
from ..._transforms.wrapped import inner_product, partial_call, weighted_output
from ...ops.declare import dtype
from ...replay import prepare
from ..derivative_checks import (
    check_grads,
    copied_array,
    cotangents,
    direction_like,
    displaced,
    gaps,
    hermitian_part,
    plain_host_array,
)
from .profile import ArrayRestorer, StateSnapshot, active_numbers, in_bytes, is_float_array, profile, table

CLOSE = 1e-8  # tolerance between two kinds of derivatives, in float64
CLOSE_DIFFERENCES = 1e-5  # tolerance between derivatives and differences
DIFFERENCE_STEP = 1e-3


LOST = (
    "each operation by itself is right: the derivative is lost between them, where a value leaves what is "
    "followed (tg.value, int(x), an array made of plain numbers, compiled code, a pointer)"
)


@dataclass
class AuditCheck:
    """The outcome of one check. `state`: 'ok', 'FAILED', 'refused' (an error, so nothing is lost) or
    'unsure' (the differences do not settle)."""

    name: str
    state: str
    detail: str = ""


class Audit:
    """The report of `tg.audit`; print it. `ok`, `failures` (names), `checks`, `captured` (name, outcome),
    `profile`."""

    def __init__(self, name: str):
        self.name = name
        self.checks: list[AuditCheck] = []
        self.captured: list = []
        self.constants: list = []
        self.culprits: list = []
        self.profile: Any = None

    @property
    def ok(self) -> bool:
        return not self.failures

    @property
    def failures(self) -> list[str]:
        return [c.name for c in self.checks if c.state == "FAILED"]

    def __str__(self) -> str:
        failed = (
            f"{len(self.failures)} of {len(self.checks)} checks FAILED"
            if self.failures
            else f"all {len(self.checks)} checks hold"
        )
        lines = [
            f"audit({self.name}): {failed}",
            *["  " + row for row in table([(c.name, c.state, c.detail) for c in self.checks])],
        ]
        if self.culprits:
            lines += ["its operations, each by itself:", *["  " + text for text in self.culprits]]
        elif any("differences" in name for name in self.failures):
            lines += [LOST]
        if self.captured:
            lines += [
                "captured:",
                *["  " + row for row in table([(n, what, "") for n, what in self.captured])],
            ]
        if self.constants:
            lines += ["constant: " + ", ".join(self.constants)]
        if self.profile is not None:
            lines += [str(self.profile)]
        return "\n".join(lines)

    __repr__ = __str__


@entry
def audit(
    f: Callable[..., object], *args: object, argnums: int | tuple[int, ...] | None = None, seed: int = 0
) -> Audit:
    """Compare the derivatives of a function in all modes with each other and with differences.

    f runs plainly, in reverse and forward mode, and with hvp, vmap and prepare. Then it runs in reverse mode
    with nan in the captured arrays that it writes. What reads them in a way that tapegrad does not follow,
    such as a pointer, then shows. If a check fails, each operation is checked by itself, so that a wrong
    `tapegrad.rule` is named. The report ends with `tapegrad.profile`. f runs about fifty times, and what it
    captures is left as it was.

    Parameters
    ----------
    f : callable
        A function of `args` that returns an array, a number or a tree of these.
    *args : object
        Its arguments.
    argnums : int or tuple of int, optional
        The arguments to differentiate. By default all with float leaves.
    seed : int, default 0
        Seed of the random directions.

    Returns
    -------
    Audit
        The report. Print it, or use `ok` and `failures` in tests. A check near a kink, within steps of 0.001,
        is 'unsure', because differences do not settle there.

    Raises
    ------
    ArgumentError
        If f is not a function, or no argument has float leaves.

    See Also
    --------
    tapegrad.testing.check_grads : Raises if derivatives are wrong.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> tg.audit(lambda x: (np.sin(x) * x).sum(), np.ones(3)).ok
    True
    >>> wrong = tg.rule(lambda x: x * x, vjp=lambda g, out, x: 3 * g * x)
    >>> tg.audit(lambda x: wrong(x).sum(), np.ones(3)).failures
    ['gradient against differences', 'jvp against differences']
    """
    a = AuditRun(f, args, active_numbers("audit", f, args, argnums), seed)
    report = Audit(user_name(f))
    OPEN.unfinished = (*OPEN.unfinished, StateSnapshot(f), a.keeper)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for check in CHECKS:
            found = a.taken(check)
            report.checks += found
            if check is reverse_mode and found[0].name == "reverse mode":  # it raised
                return report
        if report.failures:
            report.culprits = a.culprits()
        report.captured, report.constants = a.told_captured(), a.told_constants()
        report.profile = profile(f, *args, argnums=a.nums)
        a.keeper.put_back()
    return report


class AuditRun:
    """One call of `audit`."""

    w: Any
    plain: Any
    first: Any
    value: Any
    v: Any
    gradient: Any
    numeric: Any
    unsettled: Any
    direction: Any

    def __init__(self, f: Callable, args: tuple, nums: tuple, seed: int):
        self.f, self.args, self.nums, self.rng = f, args, nums, np.random.default_rng(seed)
        self.x = tuple([args[n] for n in nums])
        self.call = partial_call(f, args, nums)
        self.keeper = ArrayRestorer()
        self.written: Any = {}  # id -> name of a captured array that f writes
        single = any(
            np.finfo(values_of(v).dtype).bits < 64
            for v in leaves(self.x)
            if hasattr(v, "dtype") and is_float_array(v)
        )
        self.slack = 1e5 if single else 1.0

    def taken(self, check: Callable) -> list:
        """The results of a check; 'refused' if it raises."""
        name = check.__name__.replace("_", " ")
        try:
            with self.keeper:
                return list(check(self))
        except Exception as error:  # an error of tapegrad or of f, with its own message
            let_through(error)
            kind = (
                "refused"
                if isinstance(error, (TapegradError, NotImplementedError)) and check is not reverse_mode
                else "FAILED"
            )
            return [AuditCheck(name, kind, f"{type(error).__name__}: {first_line(error)}")]
        finally:
            self.keeper.put_back()

    def run(self, call: Callable, *given):
        """Call a function with the captured arrays as they were at first."""
        try:
            return call(*given)
        finally:
            self.keeper.put_back()

    def phi(self, *xs):
        """The function to differentiate, run plainly."""
        return self.run(
            lambda *xs: plain_host_array(inner_product(self.w, self.call(*xs))) * 1.0,
            *[tree_map(copied_argument, x) for x in xs],
        )

    def slope(self, g: Callable, v) -> tuple:
        """(derivative of g along v by differences, estimate of its error)."""
        scaled = [
            tree_map(lambda d, a: None if d is None else d * step_scale(a), d, x)
            for d, x in zip(v, self.x, strict=True)
        ]
        return *settled_difference(g, self.x, tuple(scaled)), tuple(scaled)

    def compared(self, name: str, ours, theirs, tolerance: float, unsettled: float = 0.0) -> AuditCheck:
        """Compare two trees of numbers."""
        worst, scale, where = 0.0, 0.0, ""
        for n, (u, v) in enumerate(zip(leaves(ours), leaves(theirs), strict=True)):
            if u is None or v is None or not is_float_array(values_of(u)):
                continue
            u, v = plain_host_array(u), plain_host_array(v)
            if u.shape != v.shape:
                return AuditCheck(name, "FAILED", f"shapes {u.shape} and {v.shape}")
            if not u.size:
                continue
            scale = max(scale, float(np.max(np.abs(v[np.isfinite(v)]), initial=0.0)))
            gap = gaps(u, v)
            if gap.max() > worst:
                worst, at = float(gap.max()), np.unravel_index(int(np.argmax(gap)), gap.shape)
                where = f"{u[at]:.10g} against {v[at]:.10g}" + (
                    f" at {[int(i) for i in at]}" if u.ndim else ""
                )
                where += f" of leaf {n}" if len(leaves(ours)) > 1 else ""
        allowed = tolerance * self.slack * max(scale, 1e-3)
        if worst <= allowed + 2 * unsettled:
            return AuditCheck(name, "ok")
        if unsettled > 10 * allowed and np.isfinite(worst):
            return AuditCheck(name, "unsure", f"{where}; differences do not settle there")
        return AuditCheck(name, "FAILED", where)

    def like_plain(self, transform: str, value) -> AuditCheck:
        """Compare the value under a transform (by default reverse mode) with the plain call, dtypes and
        integers included."""
        name = f"value{transform} against plain call"
        for u, v in zip(leaves(value), leaves(self.plain), strict=True):
            if is_float_array(values_of(v)) and dtype(u) != dtype(v):
                return AuditCheck(name, "FAILED", f"dtypes {dtype(u)} and {dtype(v)}")
            if getattr(values_of(v), "dtype", np.dtype(object)).kind in "biu" and not np.array_equal(
                plain_host_array(u), plain_host_array(v)
            ):
                return AuditCheck(name, "FAILED", f"{values_of(u)} and {values_of(v)}")
        return self.compared(name, value, self.plain, 1e-12)

    # --- the origin of a failure ---

    def culprits(self) -> list:
        """The operations whose own derivative is wrong, by line."""
        each = OperandCollector()
        with each:
            try:
                vjp(self.call, *self.x)
            except Exception as error:
                let_through(error)
                return []
            finally:
                self.keeper.put_back()
        told = []
        for place, prim, values, params in list(each.found.values())[:MOST_CHECKED_OPERATIONS]:
            active = tuple([n for n, v in enumerate(values) if is_float_array(v)])
            try:
                with Attempt(AssertionError):  # the operation may not be checked in isolation
                    check_grads(
                        lambda *xs, prim=prim, params=params: bind(prim, xs, params),
                        tuple(values),
                        argnums=active,
                        order=1,
                    )
            except AssertionError as error:
                told.append(
                    f"{spelt(place)}: {prim.known_as}: {first_line(error).partition('): ')[2]}\n      "
                    f"{source_line(place)}"
                )
        return told

    def told_captured(self) -> list:
        names = (
            {id(v): name.strip("`") for name, v in of_function(self.f)} if hasattr(self.f, "__code__") else {}
        )
        found = []
        given = {id(v) for v in leaves(self.args)}
        for key, (array, before) in self.first.items():
            if key in given:
                continue
            name = names.get(key, "an array")
            what = (
                f"written: copied, {in_bytes(array.nbytes)}, handed back"
                if key in self.written
                else "read, not copied"
            )
            found.append((f"{name} {before.shape}", what))
        return found

    def told_constants(self) -> list:
        rest = [
            f"argument {n} ({describe_tree(a.value if isinstance(a, Const) else a)})"
            for n, a in enumerate(self.args)
            if n not in self.nums
        ]
        inside = [
            f"part of argument {n}"
            for n in self.nums
            if not all([is_float_array(values_of(v)) for v in leaves(self.args[n])])
        ]
        return rest + inside


MOST_CHECKED_OPERATIONS = 200  # the number of operations that are checked in isolation


class OperandCollector(Watcher):
    """The first operation of each kind on each line, with its operands."""

    def __init__(self):
        self.found: dict = {}

    def done(self, prim: Primitive, args, out, params: dict) -> None:
        place = users_place()
        if prim.vjp is None or prim.writes or prim.pull is not None or (prim, place) in self.found:
            return
        values = [(values_and_tangents(a)[0] or [a])[0] for a in args]
        self.found[prim, place] = place, prim, [copied_argument(v) for v in values], params


class Poison(Watcher):
    """Fills captured arrays that f writes with nan during a call. Only tracked reads see the true values."""

    def __init__(self, written):
        self.written = written

    def captured(self, array, x) -> None:
        if id(array) in self.written:
            x._value = array.copy(order="K")
            array[...] = np.nan


# --- the checks; later ones use results of earlier ones ---


def reverse_mode(a: AuditRun):
    value, pullback = vjp(a.call, *a.x)
    a.first = dict(a.keeper.arrays)
    afterwards = {key: array.copy() for key, (array, _) in a.first.items()}
    a.written = a.keeper.written() | {
        key for key, (array, before) in a.first.items() if not same_values(array, before)
    }
    a.value, a.w = value, direction_like(value, a.rng)
    a.v = tuple([hermitian_part(x, direction_like(x, a.rng)) for x in a.x])
    pulled = pullback(a.w)
    a.gradient = pulled if len(a.x) > 1 else (pulled,)
    a.keeper.put_back()
    a.plain = a.call(*[tree_map(copied_argument, x) for x in a.x])
    yield a.like_plain("", value)
    after_plain = {key: array.copy() for key, (array, _) in a.first.items()}
    a.keeper.put_back()
    again = vjp(a.call, *a.x)
    # f bound this array anew in the first call; later calls write that new array
    astray = [
        array
        for key, (array, _) in a.first.items()
        if not same_values(afterwards[key], after_plain[key]) and not same_values(array, after_plain[key])
    ]
    what = f"one of shape {astray[0].shape} is not as a plain call leaves it" if astray else ""
    yield AuditCheck("captured arrays afterwards", "FAILED" if astray else "ok", what)
    a.keeper.put_back()
    check = a.compared("repeated call", (again[0], again[1](a.w)), (value, pulled), 0.0)
    if check.state != "ok":
        check.detail += (
            "; f keeps something from call to call that is no array (a name, an attribute), or draws random"
            " numbers"
        )
    yield check
    ends = [v for tree in (value, pulled) for v in leaves(tree) if is_float_array(v)]
    bad = [v for v in ends if not np.isfinite(plain_host_array(v)).all()]
    yield AuditCheck("finite", "FAILED" if bad else "ok", "run it under tg.detect_anomalies()" if bad else "")


def gradient_against_differences(a: AuditRun):
    a.numeric, a.unsettled, a.direction = a.slope(a.phi, a.v)
    reverse = inner_product(a.direction, a.gradient)
    yield a.compared("gradient against differences", reverse, a.numeric, CLOSE_DIFFERENCES, a.unsettled)


def jvp_against_differences(a: AuditRun):
    value, pushed = a.run(lambda: jvp(a.call, a.x, a.direction))
    yield a.like_plain(" of forward mode", value)
    forward, reverse = inner_product(a.w, pushed), inner_product(a.direction, a.gradient)
    yield a.compared("jvp against differences", forward, a.numeric, CLOSE_DIFFERENCES, a.unsettled)
    yield a.compared("gradient against jvp", reverse, forward, CLOSE)


def hvp_against_differences(a: AuditRun):
    phi = weighted_output(a.call, a.w)
    nums = tuple(range(len(a.x)))
    if len(a.x) == 1:
        product = (a.run(lambda: hvp(phi, a.x[0], a.direction[0])),)
    else:
        product = a.run(lambda: jvp(lambda *xs: grad(phi, nums)(*xs), a.x, a.direction))[1]
    other = tuple([hermitian_part(x, direction_like(x, a.rng)) for x in a.x])

    def slope(*xs):
        return plain_host_array(inner_product(other, a.run(cotangents, a.call, xs, a.w)))

    numeric, unsettled = settled_difference(slope, a.x, a.direction)
    yield a.compared(
        "hvp against differences", inner_product(other, product), numeric, CLOSE_DIFFERENCES, unsettled
    )


def vmap_against_calls(a: AuditRun):
    points = [a.x, displaced(a.x, a.direction, DIFFERENCE_STEP)]
    stacks = tuple([tree_map(lambda *vs: xp_of(vs[0]).stack(vs), *xs) for xs in zip(*points, strict=True)])
    axes = tuple([0] * len(a.x))
    together = a.run(lambda: vmap(grad(weighted_output(a.call, a.w), tuple(range(len(a.x)))), axes)(*stacks))
    for n, x in enumerate(points):
        alone = a.run(cotangents, a.call, x, a.w)
        each = tree_map(lambda v, n=n: None if v is None else v[n], together)
        check = a.compared("vmap against calls", each, alone, CLOSE)
        if check.state != "ok":
            break
    yield check


def prepare_against_calls(a: AuditRun):
    yield a.like_plain(
        " of prepare", a.run(prepare(a.call, *a.x, argnums=tuple(range(len(a.x)))).value, *a.x)
    )
    phi, other = weighted_output(a.call, a.w), displaced(a.x, a.direction, DIFFERENCE_STEP)
    p = prepare(phi, *a.x, argnums=tuple(range(len(a.x))))
    for x in (a.x, a.x, other):
        replayed = a.run(p.grad, *x)
        check = a.compared("prepare against calls", replayed, a.run(cotangents, a.call, x, a.w), CLOSE)
        if check.state != "ok":
            break
    yield check


def routes(a: AuditRun):
    """Run with nan in the memory of the captured arrays that f writes."""
    if not a.written:
        yield AuditCheck("captured arrays by other ways", "ok", "none is written")
        return
    with Poison(a.written):
        value, pullback = vjp(a.call, *a.x)
        pulled = pullback(a.w)
    check = a.compared(
        "captured arrays by other ways",
        (value, pulled),
        (a.value, a.gradient[0] if len(a.x) == 1 else a.gradient),
        1e-12,
    )
    if check.state != "ok":
        check.detail += (
            "; f reads what it wrote by a way that is not followed: a pointer, a buffer, an object of "
            "compiled"
            " code"
        )
    yield check


def arguments(a: AuditRun):
    before = [copied_array(v) for v in leaves(a.args)]
    a.run(cotangents, a.call, a.x, a.w)
    after = [copied_array(v) for v in leaves(a.args)]
    fine = all([u is None or same_values(u, v) for u, v in zip(before, after, strict=True)])
    yield AuditCheck("arguments left as they were", "ok" if fine else "FAILED")


CHECKS = (
    reverse_mode, routes, gradient_against_differences, jvp_against_differences, hvp_against_differences,
    vmap_against_calls,
    prepare_against_calls, arguments,
)  # fmt: skip


# --- helpers ---


def copied_argument(v):
    return v.copy() if is_array(v) else v


def same_values(u, v) -> bool:
    return plain_host_array(u).tobytes() == plain_host_array(v).tobytes()


def step_scale(x) -> float:
    """The scale of the steps at x: that of its largest number."""
    h = np.abs(plain_host_array(x))
    return float(np.max(h, initial=0.0, where=np.isfinite(h))) or 1.0


def settled_difference(g: Callable, x: tuple, v: tuple) -> tuple:
    """(The derivative of g along v by extrapolated central differences, an estimate of its error)."""

    def central(h: float):
        return (np.asarray(g(*displaced(x, v, h))) - np.asarray(g(*displaced(x, v, -h)))) / (2 * h)

    wide, near, close = [central(DIFFERENCE_STEP / n) for n in (1, 2, 8)]
    return (4 * near - wide) / 3, float(np.max(np.abs(near - close), initial=0.0))


def first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
