"""One function of a prepared one, its gradient for example: its programs, and what is done where none
holds."""

import collections
import functools
import math
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from .._capture import THREADS
from .._capture.dependencies import may_catch
from .._capture.objects import restore, snapshot
from .._core.arrays import is_array, may_share_memory, owned, without_class
from .._core.errors import BatchError, DroppedDerivativeError, GuardError, RankError, ReplayWarning
from .._core.exchanges import PLAIN, RECORDED, REPLAYED, ReplayGivenUp
from .._core.float_errors import LOUD, ErrorListener, warned
from .._core.primitive import live, watching
from .._core.registry import load
from .._core.reverse import CollectorPause, has_nan
from .._core.scope import OPEN, now, scope_block
from .._core.trees import Const, is_node, leaves, tree_map, with_leaves
from .._core.variable import Variable, frozen
from .._dispatch.random import DRAW
from .._transforms.call import RecordedCall as Swept
from .._transforms.call import (
    cast_to_primal,
    leaves_like,
    overlapping,
    run_forward,
    user_name,
    value_and_tangent,
    value_out,
    where_of,
)
from .._transforms.gradient import grad, value_and_grad
from .._transforms.hessian_products import hmp, hvp, value_grad_hvp
from .._transforms.jacobian import hessian, jacobian
from .._transforms.products import jmp, vmp
from .._transforms.transform import wrapping
from ..ops.linalg.factorizations import is_finite
from .costs import (
    BLOCK_ELEMENTS,
    CHANGING_RECORDINGS,
    COMPILE_NS,
    EMITTED_REPLAY,
    FREE_RECORDINGS,
    GRAPHED_REPLAY,
    GROUP_REFUSALS,
    PROGRAMS_KEPT,
    REPEATED_INSTRUCTIONS,
    REPLAYS_PER_RECORDING,
    TOLD_CALLS,
    TRIED_REPLAYS,
    VAIN_RECORDINGS,
    WRITTEN_ELEMENT_NS,
    WRITTEN_INSTRUCTION_NS,
)
from .cuda_graph import CudaGraph, unfit
from .program import HEARD, Program
from .record.instructions import is_pure
from .record.recorder import Guard, Recording, is_single
from .signature import READ, CallSignature, ReadEnvironment, compare_each_time, exchange, flat_view

EMITTER = "tapegrad.replay.emitted"


# --- what there is of a function: each is a function of it, and of `argnums` ---


def value_form(f: Callable, argnums: Any) -> Callable:
    return f


def _jvp(f: Callable, argnums: Any) -> Callable:
    return lambda x, v, *args: value_and_tangent(
        *run_forward(f"jvp({user_name(f)})", f, (x, *args), (0,), (v,))
    )


def _vjp(f: Callable, argnums: Any) -> Callable:
    def pulled(x, w, *args):
        with scope_block():
            r = Swept(f"vjp({user_name(f)})", f, 0, (x, *args), {})
            ws = leaves_like("vjp", "cotangent", w, r.tree)
            gs = [
                None if s is None or c is None else cast_to_primal("vjp", "cotangent", c, y)
                for c, (y, s) in zip(ws, r.low, strict=True)
            ]
            return r.value(), r.inputs.results(r.gradient(gs))

    return pulled


METHODS = {
    "value": value_form,
    "grad": grad,
    "value_and_grad": value_and_grad,
    "jacobian": jacobian,
    "hessian": hessian,
    "jvp": _jvp,
    "vjp": _vjp,
    "hvp": lambda f, argnums: lambda x, v, *args: hvp(f, x, v, args),
    "hmp": lambda f, argnums: lambda x, V, *args: hmp(f, x, V, args),
    "jmp": lambda f, argnums: lambda x, V, *args: jmp(f, x, V, args),
    "vmp": lambda f, argnums: lambda x, W, *args: vmp(f, x, W, args),
    "smp": lambda f, argnums: lambda x, V, *args: vmp(grad(f), x, V, args),  # of a Hessian
    "value_grad_hvp": lambda f, argnums: lambda x, v, *args: value_grad_hvp(f, x, v, args),
}
# their second argument is a direction
PRODUCTS = frozenset(("jvp", "vjp", "hvp", "hmp", "jmp", "vmp", "smp", "value_grad_hvp"))


def call_arguments(args: tuple, themselves: bool) -> list:
    """As f gets them: values, which it may write, and not the caller's arrays.  `themselves`: those, for they
    share memory with what f writes."""
    kept: dict = {}  # one that is given twice is one
    return [
        a.value if isinstance(a, Const) else a if themselves else tree_map(lambda x: result_value(x, kept), a)
        for a in args
    ]


def result_value(x: Any, kept: dict) -> Any:
    if id(x) not in kept:
        if isinstance(x, Variable):
            kept[id(x)] = frozen(live(x))
        elif is_array(x):
            kept[id(x)] = y = owned(x)
            if not getattr(x.flags, "writeable", True):
                y.flags.writeable = False
        else:
            return x
    return kept[id(x)]


def any_variable(args: tuple) -> bool:
    for a in args:
        if type(a) is not np.ndarray and any([isinstance(x, Variable) for x in leaves(a)]):
            return True
    return False


class TransformForm:
    """One of the functions above, and its programs, the last one used first."""

    def __init__(self, owner: Any, method: str):
        self.owner, self.method = owner, method
        self.programs: list = []
        self.recordings = self.replays = self.disturbed = 0
        self.names: frozenset[str] = frozenset()  # of the code that the last recording met
        # recordings of other ways since the last replay; how many replays there were then
        self.vain = self.replayed = 0
        self.pause = 0  # calls that are run as they are
        self.eager: str | None = None  # why the function is run as it is
        self.plainly: collections.Counter = collections.Counter()  # why single calls were run as they are
        self.full = False  # are calls of further kinds run as they are?
        self.numbers = True  # may Python numbers be inputs?
        self.groups: list = []  # of processes with which its calls exchange data
        self.joint = 1  # the number of recordings that these made together, with that in which they met

    @property
    def name(self) -> str:
        return f"{self.owner.name}.{self.method}"

    def plain(self, args: tuple, themselves: bool = False) -> Any:
        """Without a program."""
        compare_each_time()
        f = self.owner.f
        if self.method == "value" and watching() and not isinstance(f, Const):
            with scope_block():
                return Swept(self.name, f, self.owner.argnums, args, {}).value()  # where it is seen
        y = METHODS[self.method](f, self.owner.argnums)(
            *(call_arguments(args, themselves) if self.method == "value" else args)
        )
        return tree_map(value_out, y) if self.method == "value" else y

    def __call__(self, args: tuple) -> Any:
        if OPEN.depth or OPEN.inside is not None or any_variable(args) or watching():
            return self.plain(args)
        if self.groups:
            return self.together(args)
        if self.eager is not None:
            return self.plain(args)
        if self.pause > 0:  # (threads may take from it at once)
            self.pause -= 1
            return self.plain(args)
        failed: Any = None
        for k, kept in enumerate(self.programs):
            values = kept.values(args)
            if values is None:
                continue
            if kept.surroundings.changed():
                failed = f"{READ} has changed"
                continue
            found = kept.replay(values)
            if type(found) in FAILED:
                failed = found
                continue
            if found is None:
                self.excepted(kept.plainly)
                return self.plain(args, kept.shares_written(values))
            if k:
                self.programs.insert(0, self.programs.pop(k))
            self.replays += 1
            return found
        if (
            self.owner.on_change == "raise"
            and type(failed) is not Departure
            and any([kept.is_of_setting() for kept in self.programs])
        ):
            raise GuardError(self.complaint(args, failed))
        if type(failed) in FAILED and self.owner.on_change == "record":
            self.branched()
        return self.plain(args) if self.full and failed is None else self.record(args, failed)

    def unchecked(self, args: tuple) -> Callable | None:
        """Return ``results(x)`` of the program used last, as `CachedProgram.unchecked` does, or None."""
        if OPEN.compared is None or OPEN.depth or OPEN.inside is not None or watching():
            return None
        if self.groups or self.eager is not None or self.pause or not self.programs:
            return None
        return self.programs[0].unchecked(args)

    def together(self, args: tuple) -> Any:
        """A call in which this process exchanges data with others: all do the same (`_core.exchanges`)."""
        plainly = self.eager is not None or self.pause > 0 or len(self.groups) > 1
        self.pause = max(self.pause - 1, 0)
        otherwise, failed, latest = PLAIN if plainly or self.full else RECORDED, None, self.joint
        while True:
            kept = None if plainly else self.holding(args, latest)
            asked = (otherwise, 0) if kept is None else (REPLAYED, kept.joint)
            found = [group.begin_replay(*asked, self.name) for group in self.groups]
            way, (_, latest, most) = max([way for way, *_ in found]), found[0]  # (of several: no replay)
            if way != REPLAYED:
                break
            if kept is None or latest != most:
                continue
            found = kept.replay(kept.values(args))
            if found is not None and type(found) not in FAILED and type(found) is not ReplayGivenUp:
                self.replays += 1
                self.programs.sort(key=lambda other: other is not kept)
                return found
            if type(found) is not ReplayGivenUp:
                self.groups[0].end_replay(False, self.name)
                failed, otherwise = found, PLAIN if found is None else RECORDED
            latest = kept.joint - 1
        if way == PLAIN:
            return self.plain(args)
        if failed is not None:
            self.branched()
        self.joint += 1
        return self.record(args, failed)

    def holding(self, args: tuple, latest: int) -> "CachedProgram | None":
        """The last program that holds for the call, of those up to the joint recording `latest`."""
        joint = [k for k in self.programs if 0 < k.joint <= latest and k.values(args) is not None]
        return max(
            [k for k in joint if not k.surroundings.changed()], key=lambda kept: kept.joint, default=None
        )

    def excepted(self, reason: str) -> None:
        """One call is run as it is."""
        self.plainly[reason] += 1
        if self.plainly[reason] == TOLD_CALLS:
            warn(self.name, f"{TOLD_CALLS} calls were run as they are, without a replay: {reason}")

    def branched(self) -> None:
        """The call takes a way through the function that none before it took.  Where each one does,
        recordings are in vain: there are more and more calls between them, and then no more of them."""
        self.vain = 1 if self.replays > self.replayed else self.vain + 1
        self.replayed = self.replays
        if self.vain >= FREE_RECORDINGS:
            self.pause = FREE_RECORDINGS << (self.vain - FREE_RECORDINGS)
        if self.vain == FREE_RECORDINGS:
            warn(
                self.name,
                f"each of the last {self.vain} calls took another way through it, so some calls are "
                "run as they are. Replace conditions on values by np.where, or call the function unprepared",
            )

    def complaint(self, args: tuple, failed: Any) -> str:
        if failed is None:
            what = f"the call has {self.programs[0].signature.difference(args)}"
        else:
            what = str(failed)
        return f"{self.name}: {what}; with on_change='record' it would be recorded anew"

    def record(self, args: tuple, failed: Any) -> Any:
        """A call as it is, and its program with it.  `failed`: why no other program holds.  (A recording is
        long, and holds no cycles.)"""
        with scope_block():
            CollectorPause()
            return self.recorded(args, failed)

    def recorded(self, args: tuple, failed: Any) -> Any:
        compare_each_time()
        owner = self.owner
        example, of_f = owner.example, args if self.method not in PRODUCTS else (args[0], *args[2:])
        if owner.on_change == "raise" and example.values(of_f) is None:
            raise GuardError(
                f"{self.name}: the call has {example.difference(of_f)}, which was given to prepare"
            )
        active = tuple([k in owner.nums or (k == 1 and self.method in PRODUCTS) for k in range(len(args))])
        # at first a number is what it is: once another comes, and the function is known to be recorded, it is
        # an input
        numbers = (
            self.numbers
            and bool(self.programs or owner.on_change == "raise")
            and not any([is_single(x) for a in args for x in flat_view(a)])
        )
        signature = CallSignature(args, active, numbers)
        f = owner.f
        wrap = wrapping(f)
        lift = None if self.method == "value" else lambda g: METHODS[self.method](wrap(g), owner.argnums)
        roots = [*([] if isinstance(f, Const) else [f]), *signature.static]
        surroundings = ReadEnvironment(roots, self.names)
        self.names = surroundings.names
        if surroundings.unsure():
            self.stop(surroundings.unsure())
            return self.plain(args)
        if signature.weak and surroundings.has_single():
            self.numbers = False
            return self.recorded(args, failed)
        before = failed.kept if type(failed) is Departure else self.programs[0] if self.programs else None
        catches = warned() != "error" or may_catch(roots, surroundings.names)
        written: list = []
        try:
            with ErrorListener() as told:
                recorded = Recording(
                    self.name,
                    f,
                    lift,
                    args,
                    signature.chosen,
                    catches,
                    lambda trace: self.check(args, trace, before),
                    self.groups,
                    written,
                )
        except Exception as error:
            exchange(written)
            drawn = surroundings.rewind()
            if owner.on_change == "raise" and isinstance(error, (BatchError, DroppedDerivativeError)):
                raise GuardError(self.refusal(str(error))) from error
            again = surroundings.disturbed({}) is None  # what it has written, a second run would find
            if signature.weak and again:
                self.numbers = False
                return self.recorded(args, failed)
            if owner.on_change == "raise" or not again:
                if not isinstance(error, GuardError):
                    exchange(written)
                    surroundings.rewind(drawn)
                raise
            y = self.plain(args)  # which may raise as well: then it was no fault of the recording
            self.stop(f"{type(error).__name__}: {error}")
            return y
        program = Program(recorded)
        if self.keeps(recorded, program, surroundings, told, failed):
            kept = CachedProgram(signature, surroundings, program, owner, self.groups, self.joint)
            self.programs = [kept, *self.programs[: PROGRAMS_KEPT - 1]]
        return recorded.result()

    def keeps(
        self, recorded: Recording, program: Program, surroundings: ReadEnvironment, told: Any, failed: Any
    ) -> bool:
        """May the program of a recording stand for further calls?  If not, it is noted how these run."""
        trace, owner = recorded.trace, self.owner
        drawn = [(real, first) for real, first, _ in trace.generators.values()]
        reason = surroundings.settle(recorded.arrays, program, drawn) or trace.drawn
        if self.groups and owner.on_change == "raise":
            reason = "a collective of tapegrad.parallel acts outside of the process"
        if type(failed) is Departure and failed.is_fault() and not trace.raised:
            self.eager, self.programs = (
                f"a replay of it failed: {type(failed.error).__name__}: {failed.error}",
                [],
            )
            broken(self.name, failed.error, "the function is run as it is from now on")
            return False
        self.recordings += 1
        self.disturbed += reason is not None
        if reason is not None and self.disturbed < CHANGING_RECORDINGS and owner.on_change == "record":
            return False  # it may have filled a cache, or imported a module
        shown = [t for t in told.heard if type(t) is tuple and "encountered in" not in t[1]]
        unkept = trace.unkept or (f"the function gives a warning: {shown[0][1]}" if shown else None)
        if reason is None and unkept is not None and self.vain < VAIN_RECORDINGS:
            self.branched()
            return False
        if reason is None and self.vain >= VAIN_RECORDINGS:
            vain = f"each of the last {self.vain} recordings took another way, and none was replayed"
            reason = unkept or vain
        reason = reason or self.too_many(failed) or unkept
        if self.eager is not None:
            return False
        if reason is not None:
            self.stop(reason)
            return False
        if type(failed) is Departure and failed.kept.program.other_way(program.conditions) is None:
            # it was about tangents, of which no plain call tells
            failed.kept.deaf = owner.on_change == "record"
            return False
        return True

    def too_many(self, failed: Any) -> str | None:
        """Were there too many recordings for so few replays?  Then other calls run as they are, or all."""
        if self.recordings <= 2 * PROGRAMS_KEPT + self.replays // REPLAYS_PER_RECORDING:
            return None
        reason = f"it was recorded {self.recordings} times for {self.replays} replays"
        if self.owner.on_change != "record":
            return reason
        self.full = failed is None and len(self.programs) == PROGRAMS_KEPT
        then = (
            f"the last {PROGRAMS_KEPT} of them are replayed, and others run as they are"
            if self.full
            else "it is run as it is"
        )
        many = f"its calls differ in more than {PROGRAMS_KEPT} ways in turn; {then} from now on"
        advice = "Prepare it once for each shape, or pad the arrays to a few shapes"
        warn(self.name, f"{reason}, for {many}. {advice}")
        if not self.full:
            self.eager, self.programs = reason, []
        return None

    def check(self, args: tuple, trace: Any, before: "CachedProgram | None") -> None:
        """With on_change='raise': does a further recording take the way of the one before?"""
        if self.owner.on_change == "raise":
            if trace.unkept:
                raise GuardError(self.refusal(trace.unkept))
            other = None if before is None else before.program.other_way(trace.guards.values())
            if other is not None:
                raise GuardError(self.complaint(args, other))

    def stop(self, reason: str | None) -> None:
        """The function is run as it is from now on."""
        if self.owner.on_change == "raise":
            raise GuardError(self.refusal(reason))
        self.eager, self.programs = reason, []
        warn(self.name, f"{self.owner_named()} cannot be recorded and is run as it is: {reason}")

    def owner_named(self) -> str:
        return f"{user_name(self.owner.f)}{where_of(self.owner.f)}"

    def refusal(self, reason: Any) -> str:
        return f"{self.name}: {self.owner_named()} cannot be recorded: {reason}"

    def report(self) -> list:
        if self.eager is not None:
            return [f"run as it is, not recorded: {self.eager}"]
        paused = (
            [
                f"the next {self.pause} calls are run as they are, for the last {self.vain} took other ways "
                f"each"
            ]
            if self.pause > 0
            else []
        )
        others = ["calls of other kinds are run as they are"] if self.full else []
        others += [f"{n} calls were run as they are: {reason}" for reason, n in self.plainly.items()]
        return [*paused, *others, *[kept.report() for kept in self.programs]]


# What operations raise at values that they cannot take.
OF_VALUES = (ArithmeticError, np.linalg.LinAlgError, IndexError, MemoryError, Warning)


class Departure:
    """A replay that leaves the way of its program: an operation raises this error, or (None) warns where the
    function may hear of it."""

    def __init__(self, kept: "CachedProgram", error: Exception | None = None):
        self.kept, self.error = kept, error

    def __str__(self) -> str:
        if self.error is None:
            return "the function may hear of a warning or a floating-point error"
        return f"an operation raises {type(self.error).__name__}: {self.error}"

    def is_fault(self) -> bool:
        """May it be one of ours?"""
        of_values = self.error is None or isinstance(self.error, OF_VALUES)
        return not of_values and all(
            [type(i.prim) is str or is_pure(i.prim) for _, i in self.kept.program.code]
        )


FAILED = (Guard, Departure)


def warn(name: str, what: str, cause: Exception | None = None) -> None:
    """A `ReplayWarning`, shown at the line that called the prepared function."""
    shown = ReplayWarning(f"{name}: {what}")
    shown.__cause__ = cause
    frame, level = sys._getframe(1), 2
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == "tapegrad":
        frame, level = frame.f_back, level + 1
    warnings.warn(shown, stacklevel=level)


def broken(name: str, failure: Exception, then: str) -> None:
    """A fault of ours that costs time only is shown, once."""
    what = "a replay failed where a plain call does not, by a fault of tapegrad"
    warn(
        name,
        f"{what}: {type(failure).__name__}: {failure}; {then}. Results are right; please report it",
        failure,
    )


class CachedProgram:
    """A program, and what it holds for."""

    def __init__(
        self,
        signature: CallSignature,
        surroundings: ReadEnvironment,
        program: Program,
        owner: Any,
        groups: list,
        joint: int,
    ):
        self.signature, self.surroundings, self.program = signature, surroundings, program
        self.groups, self.joint = groups, joint if groups else 0
        tree = program.tree
        # leaves in a tuple, as (value, gradient)
        self.several = type(tree) is tuple and not any([is_node(v) for v in tree])
        self.setting, self.modes, self.warned = now(), np.geterr(), warned()
        self.emitted: Any = None
        self.trial: list = []  # (text, seconds of its replays) of those of which the faster one stays
        # the replay for which the text is written next
        self.name, self.compile = owner.name, owner.compile
        early = self.compile is not True and len(program.numbers) >= REPEATED_INSTRUCTIONS
        self.due: float = 1 if early else EMITTED_REPLAY
        self.kinds: Any = None  # what is known of its instructions, until the text is there
        self.spent = 0.0  # ns of replays as bound calls
        self.cuda_graph = owner.cuda_graph
        self.graph: Any = None
        self.graphless: str | None = None  # why it is none
        # (begun: the replay after which refusals count)
        self.replays = self.failures = self.refusals = self.begun = 0
        self.deaf = False  # have replays heard of floating-point errors of which the function does not?
        self.refused = False  # are there none any more, for its values are often not finite?
        self.plainly = ""  # why the last call was run as it is

    def is_apart(self, values: list) -> bool:
        """Does nothing that is written share memory with an argument, or with what another thread follows?"""
        program = self.program
        if program.written and (THREADS or self.shares_written(values)):
            return False
        return not (program.writes_arguments and len(values) > 1 and overlapping(values))

    def shares_written(self, values: list) -> bool:
        """Does an argument share memory with a captured array that is written?  Only then does a plain call
        get the caller's own arrays."""
        return any([may_share_memory(v, array) for v in values for array, _ in self.program.written])

    def is_of_setting(self) -> bool:
        """Is NumPy asked to warn as it was then?"""
        setting = now()
        modes = setting is not None and setting is self.setting
        if not modes and np.geterr() == self.modes:
            modes, self.setting = True, setting
        return modes and (warned() == self.warned or not self.may_catch)

    @functools.cached_property
    def may_catch(self) -> bool:
        return may_catch(self.surroundings.roots)

    def values(self, args: tuple) -> list | None:
        """The inputs of the program, if it holds for a call of this kind."""
        return self.signature.values(args) if self.is_of_setting() else None

    def fixed_inputs(self, args: tuple, varying: int) -> list | None:
        """Return the inputs after the first `varying` arguments, or None.

        The first arguments may then be replaced by arrays of the same layout without a comparison, in a block
        of `OPEN.compared`."""
        values = self.values(args)
        leaves = self.signature.leaves[:varying]
        if values is None or self.surroundings.changed() or not all([x.chosen and x.packed for x in leaves]):
            return None
        return values[varying:]

    def unchecked(self, args: tuple) -> Callable | None:
        """Return ``results(x)``, which replays the call with another first argument, or None.

        x shares no memory with the other arguments. The function compares nothing, so it holds in a block of
        `OPEN.compared`. It returns None where only a call of the form gives the results."""
        rest, program = self.fixed_inputs(args, 1), self.program
        asks = program.written or program.generators or program.warns or program.finite or self.cuda_graph
        if rest is None or asks or self.joint or self.trial or self.graph is not None or self.emitted is None:
            return None
        if not self.is_apart([args[0], *rest]):
            return None
        run = self.emitted.run

        def results(x: Any) -> list | None:
            self.replays += 1
            if self.replays >= self.due:
                return None
            try:
                found = run(x, *rest)
            except Exception:
                return None  # a call of the form raises it, too
            if type(found) is not tuple or HEARD.shown is not None or HEARD.unsafe is not None:
                return None
            return None if program.pulled and any(map(has_nan, found[0])) else found[0]

        return results

    def replay(self, values: list) -> Any:
        """The result; a guard that failed; a `Departure`; None where only a plain call will do: it warns, or
        arrays share memory."""
        program = self.program
        if not self.is_apart(values):
            self.plainly = "what is written shares memory with an argument, or with another thread's arrays"
            return None
        if program.finite and not is_finite([*values, *[array for _, array in program.captured]]):
            self.plainly = "its inputs are not finite"
            return None
        self.replays += 1
        before = [(x, snapshot(x)) for x in program.generators] if program.generators else []
        try:
            found = self.heard(values, before) if program.warns else self.found(values, before)
        except ReplayGivenUp as given_up:
            found = given_up
        # by another sweep it may be a number
        plainly = type(found) is tuple and program.pulled and any(map(has_nan, found[0]))
        if self.joint and type(found) is tuple and not plainly:
            found = found if self.groups[0].end_replay(True, self.name) else ReplayGivenUp()
        if plainly or type(found) is not tuple:
            self.plainly = "its results are not numbers" if plainly else "NumPy warns: " + str(HEARD.shown)
            for x, state in before:
                restore(x, state)
            return None if plainly else found
        results, written = found
        for array, v in written:
            without_class(array)[...] = v
        return tuple(results) if self.several else with_leaves(program.tree, iter(results))

    def is_paid(self) -> bool:
        """Have the replays so far cost as much as writing the text may?  (Ranks write theirs together.)"""
        asked = self.compile is True or self.cuda_graph or self.joint
        asked = asked or self.emitted is not None or self.due < EMITTED_REPLAY
        return asked or self.spent >= self.writing_cost

    @functools.cached_property
    def writing_cost(self) -> float:
        """About how many ns the text takes."""
        sizes = [math.prod(shown[1]) for shown in self.program.shown.values()]
        return WRITTEN_INSTRUCTION_NS * len(self.program.numbers) + WRITTEN_ELEMENT_NS * sum(
            [size for size in sizes if size <= BLOCK_ELEMENTS]
        )

    def write(self) -> None:
        """The text; with groups once the replays so far have cost as much as compiling them might."""
        with scope_block():
            CollectorPause()
            self.written()

    def written(self) -> None:
        emitter, program = load(EMITTER), self.program
        wanted = self.compile is True
        if self.replays < EMITTED_REPLAY:
            self.kinds = emitter.InstructionKinds(program)
            if not emitter.is_repeated(self.kinds):
                self.due = EMITTED_REPLAY
                return
        if self.emitted is None and not wanted:
            self.emitted = emitter.EmittedProgram(program, kinds=self.kinds)
        self.kinds = None
        if self.compile == "auto":
            after = self.emitted.worthwhile(COMPILE_NS)
            wanted = self.replays >= after
        self.due = math.inf if wanted or self.compile is False else max(after, EMITTED_REPLAY)
        if wanted:
            made = emitter.compiled_program(program)
            if (
                self.compile == "auto" and not self.joint
            ):  # ranks take the same text, so that their bits agree
                self.trial = [(each, []) for each in (self.emitted, made)]
            self.emitted = made

    def tried(self, values: list) -> Any:
        """A replay by one of two texts in turn.  The faster one stays."""
        trial = self.trial  # (another thread may end it at once)
        if not trial:
            return self.emitted.run(*values)
        text, seconds = min(trial, key=lambda each: len(each[1]))
        begin = time.perf_counter()
        found = text.run(*values)
        seconds.append(time.perf_counter() - begin)
        if self.trial and len(trial[-1][1]) >= TRIED_REPLAYS:
            self.emitted, self.trial = min(trial, key=lambda each: min(each[1]))[0], []
        return found

    def refuse(self) -> None:
        """Values that are not finite, and of which a plain call does not warn, would be worked out twice at
        each call: first there are no groups any more, then no blocks."""
        self.refusals += 1
        if self.refusals > GROUP_REFUSALS and 2 * self.refusals > self.replays - self.begun:
            self.refused, self.compile, self.trial = True, False, []
            self.refusals, self.begun = 0, self.replays
            warn(
                self.name,
                "its operations run as they are, nothing is compiled: its values are often not finite",
            )
            self.emitted = load(EMITTER).EmittedProgram(self.program, blocks=bool(self.emitted.groups))

    def heard(self, values: list, before: list) -> Any:
        """The same where an operation may give a warning of which the function hears: that is another way
        through it."""
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            found = self.found(values, before)
        ours = [w.message for w in given if w.category is ReplayWarning]
        for message in ours:
            warnings.warn(message, stacklevel=2)
        return Departure(self) if len(given) > len(ours) and type(found) is tuple else found

    def found(self, values: list, before: list) -> Any:
        """What the program gives; a guard that failed; a `Departure`; or None.  `before`: the states of its
        generators."""
        program, found, failure = self.program, None, None
        try:
            if self.replays >= self.due and self.is_paid():
                self.write()
            if self.cuda_graph and self.replays >= GRAPHED_REPLAY and self.emitted is not None:
                self.cuda_graph = False  # it is tried once
                self.captured(values)
            if self.graph is not None:
                return self.graph(values)
            if self.emitted is not None:
                found = self.tried(values)
        except RankError:
            raise
        # an operation's, and then the bound calls raise it too; or else it is ours
        except Exception as error:
            failure = error
        anew = found is None or HEARD.unsafe is not None
        if anew and self.joint and (failure is not None or self.emitted is not None):
            if failure is None:
                self.refuse()
            return None if failure is None else Departure(self, failure)
        if anew:
            for x, state in before:
                restore(x, state)
            begin = time.perf_counter_ns()
            try:
                found = program.run(values)
                self.spent += time.perf_counter_ns() - begin
            except RankError:
                raise
            except Exception as error:
                self.failures += 1
                return Departure(self, error)
            if failure is not None:
                self.stop(failure)
            elif (
                self.emitted is not None
                and (self.emitted.groups or self.emitted.blocks)
                and HEARD.shown is None
            ):
                self.refuse()
        if HEARD.shown is None or type(found) is Guard:
            return found
        return Departure(self) if HEARD.shown == LOUD and not self.deaf else None

    def stop(self, failure: Exception) -> None:
        """From now on as bound calls: the quicker ways failed where these do not."""
        self.failures += 1
        self.emitted, self.graph, self.due, self.cuda_graph, self.trial = None, None, math.inf, False, []
        broken(self.name, failure, "its operations are called one after the other from now on")

    def captured(self, values: list) -> None:
        """The replay becomes a CUDA graph, if it can be one."""
        self.graphless = unfit(self.program, values)
        if self.graphless is None:
            try:
                self.graph = CudaGraph(self.program, self.emitted.run, values)
            except Exception as error:
                self.graphless = f"{type(error).__name__}: {error}"

    def report(self) -> str:
        way = (
            "as bound calls"
            if self.emitted is None
            else f"as one text of Python with {self.emitted.inside} of them in {self.emitted.blocks} blocks"
            + load(EMITTER).describe_calls(self.emitted)
        )
        way = "as one CUDA graph" if self.graph is not None else way
        way += f" (no CUDA graph: {self.graphless})" if self.graphless else ""
        sizes = f"{len(self.program.code)} of the {self.program.recorded} instructions that were recorded, run {way}"
        drawn = sum([i.prim is DRAW for _, i in self.program.code])
        anew = (
            f"{len(self.program.captured)} captured arrays read anew, {len(self.program.written)} written"
            + (f", random numbers drawn {drawn} times" if drawn else "")
        )
        looped = self.program.by_samples
        looped = f"; under vmap one sample after the other: {', '.join(looped)}" if looped else ""
        guards = sum([len(g) for g in self.program.guards.values()])
        return (
            f"{sizes}; {anew}, {guards} values and conditions guarded; {self.surroundings.compared()} bytes "
            f"of other arrays compared at each call{looped}{self.fused()}"
        )

    def fused(self) -> str:
        """What runs in compiled loops."""
        if self.compile is False:
            return "; nothing compiled for it, for its values are often not finite" if self.refused else ""
        if self.emitted is None or (not self.emitted.groups and self.due != math.inf):
            return "" if self.compile is True else "; its large arrays in compiled loops once that pays"
        return load(EMITTER).describe_program(self.emitted)
