"""One function of a prepared one, its gradient for example: its programs, and what is done where none
holds."""

import collections
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from .._capture.attribute_watch import PAST_DESCRIPTORS, AttributeWatch, describe_places
from .._capture.dependencies import OtherThreads
from .._capture.dependencies.walk import may_catch
from .._core.arrays import IMMUTABLE, is_array, owned
from .._core.errors import BatchError, DroppedDerivativeError, GuardError, let_through
from .._core.exchanges import PLAIN, RECORDED, REPLAYED, ReplayGivenUp
from .._core.float_errors import ErrorListener, warned
from .._core.primitive import live, watching
from .._core.reverse import CollectorPause
from .._core.scope import OPEN, scope_block
from .._core.trees import Const, leaves, tree_map
from .._core.variable import Variable, frozen
from .._transforms.arguments import user_name, where_of
from .._transforms.call import RecordedCall as Swept
from .._transforms.call import value_out
from .._transforms.transform import wrapping
from .cached_program import FAILED, CachedProgram, Departure, broken, warn
from .costs import (
    CALLS_PER_RECORDING,
    CHANGING_RECORDINGS,
    FREE_RECORDINGS,
    KINDS_KEPT,
    PROGRAMS_KEPT,
    REPLAYS_PER_RECORDING,
    TOLD_CALLS,
    TOLD_WAITS,
    UNATTEMPTED_REPLAYS,
    VAIN_RECORDINGS,
)
from .methods import METHODS, PRODUCTS
from .program import Program
from .record.instructions import Guard
from .record.recorder import is_single
from .record.recording import Recording
from .signature import READ, CallSignature, ReadEnvironment, compare_each_time, exchange

OTHER_KINDS = (
    "had arguments of another kind",
    "Prepare it once for each shape, or pad the arrays to a few shapes",
)
OTHER_WAYS = (
    "took another way through it, or read other surroundings",
    "Replace conditions on values by np.where, pass what changes as arguments",
)

STATIC = IMMUTABLE - {float, complex, np.float64}

# --- what there is of a function: each is a function of it, and of `argnums` ---


def call_arguments(args: tuple, themselves: bool) -> list:
    """As f gets them: values, which it may write, and not the caller's arrays.  `themselves`: those, for they
    share memory with what f writes."""
    kept = {}  # one that is given twice is one
    return [
        a.value if isinstance(a, Const) else a if themselves else tree_map(lambda x: result_value(x, kept), a)
        for a in args
    ]


def result_value(x, kept: dict):
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


def argument_kind(x):
    """What tells the kind of an argument: its layout, its class where it is a number, or itself."""
    if is_array(x):
        return x.shape, x.strides, x.dtype
    return x if type(x) in STATIC else type(x)


def free_recordings(failed: Any) -> int:
    """How many recordings in vain need not be paid for before. Arguments of another kind are likely to come
    again, and errors are to be told."""
    return 0 if type(failed) in (Guard, str) else FREE_RECORDINGS


class TransformForm:
    """One of the functions above, and its programs, the last one used first."""

    def __init__(self, owner, method: str):
        self.owner, self.method = owner, method
        self.programs: list = []
        self.recordings = self.replays = self.disturbed = 0
        self.names: frozenset[str] = frozenset()  # of the code that the last recording met
        # places that calls write before they read them, so far as is known, and others that they bind: as
        # `AttributeWatch.places`
        self.apart: dict = {}
        self.read_first: dict = {}
        self.vain = 0  # recordings in a row of which few were replayed
        self.told = False  # that they are in vain
        # calls run as they are since the last recording; how many replays there were before it
        self.waited = self.replayed = 0
        # calls in a row for which a condition failed, the last one of those; how many calls are now run as
        # they are, without a replay that is likely to fail
        self.missed, self.condition, self.unattempted = 0, None, 0
        self.eager: str | None = None  # why the function is run as it is
        self.plainly: collections.Counter = collections.Counter()  # why single calls were run as they are
        self.full = False  # are calls of further kinds run as they are?
        self.numbers = True  # may Python numbers be inputs?
        self.kinds: set = set()  # kinds of arguments that have come
        self.groups: list = []  # of processes with which its calls exchange data
        self.unconfirmed = []  # programs of recordings during which another thread has run
        self.joint = 1  # the number of recordings that these made together, with that in which they met

    @property
    def name(self) -> str:
        return f"{self.owner.name}.{self.method}"

    def plain(self, args: tuple, themselves: bool = False):
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

    def __call__(self, args: tuple):
        if OPEN.depth or OPEN.inside is not None or watching() or self.eager is not None:
            return self.plain(args)
        if self.groups:
            return self.plain(args) if any_variable(args) else self.together(args)
        failed = None
        if self.unattempted:
            self.unattempted -= 1
            if self.owner.on_change == "record" and self.waits(self.condition):
                return self.plain(args)
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
            if k:  # (another thread may have put others there)
                self.programs = [kept, *[other for other in self.programs if other is not kept]]
            self.replays += 1
            self.missed = self.unattempted = 0
            return found
        if any_variable(args) or (failed is None and self.is_first_of_kind(args)):
            return self.plain(args)
        if type(failed) is Guard:
            self.missed, self.condition = self.missed + 1, failed
            self.unattempted = min(2 ** max(self.missed - 2, 0), UNATTEMPTED_REPLAYS + 1) - 1
        if (
            self.owner.on_change == "raise"
            and type(failed) is not Departure
            and any([kept.is_of_setting() for kept in self.programs])
        ):
            raise GuardError(self.complaint(args, failed))
        if self.owner.on_change == "record" and self.waits(failed):
            return self.plain(args)
        if self.programs and self.owner.on_change == "record":
            self.branched(failed)
        return self.plain(args) if self.full and failed is None else self.record(args, failed)

    def is_first_of_kind(self, args: tuple) -> bool:
        """Return whether arguments of this kind come for the first time, after a recording of another kind.
        They may never come again, so they are recorded the second time."""
        kind = tuple([argument_kind(x) for a in args for x in leaves(a)])
        if kind in self.kinds or not self.programs or self.owner.on_change != "record":
            self.kinds.add(kind)
            return False
        self.kinds = {*self.kinds, kind} if len(self.kinds) < KINDS_KEPT else {kind}
        self.excepted("arguments of their kind had not come before", TOLD_WAITS)
        return True

    def waits(self, failed: Any) -> bool:
        """Return whether a call for which no program holds is run as it is. A recording costs as much as
        `CALLS_PER_RECORDING` plain calls. So another way through the function, or other surroundings, are
        recorded once the calls since the last one are as many, or twice as many after each in vain, and
        where the last one was not replayed."""
        free = free_recordings(failed)
        self.waited += 1
        calls, unused = self.waited + self.replays - self.replayed, self.replays == self.replayed
        if self.vain < free or calls >= CALLS_PER_RECORDING << (self.vain - free + unused):
            return False
        self.excepted("no recording holds for them, and another one is not paid for yet", TOLD_WAITS)
        return True

    def unchecked(self, args: tuple, varying: int = 1) -> Callable | None:
        """Return ``results(*xs)`` of the program used last, as `CachedProgram.unchecked` does, or None."""
        if OPEN.compared is None or OPEN.depth or OPEN.inside is not None or watching():
            return None
        if self.groups or self.eager is not None or not self.programs:
            return None
        return self.programs[0].unchecked(args, varying)

    def together(self, args: tuple):
        """A call in which this process exchanges data with others: all do the same (`_core.exchanges`)."""
        plainly = self.eager is not None or len(self.groups) > 1
        anew = PLAIN if plainly or self.full or self.waits(None) else RECORDED
        otherwise, failed, latest = anew, None, self.joint
        while True:
            kept = None if plainly else self.holding(args, latest)
            asked = (otherwise, 0) if kept is None else (REPLAYED, kept.joint)
            found = [group.begin_replay(*asked, self.name) for group in self.groups]
            way, (_, latest, most) = max([way for way, *_ in found]), found[0]  # (of several: no replay)
            if way != REPLAYED:
                break
            if kept is None or latest != most:
                continue
            values: Any = kept.values(args)
            found = kept.replay(values)
            if found is not None and type(found) not in FAILED and type(found) is not ReplayGivenUp:
                self.replays += 1
                self.programs.sort(key=lambda other: other is not kept)
                return found
            if type(found) is not ReplayGivenUp:
                self.groups[0].end_replay(False, self.name)
                failed, otherwise = found, PLAIN if found is None else anew
            latest = kept.joint - 1
        if way == PLAIN:
            return self.plain(args)
        if failed is not None:
            self.branched(failed)
        self.joint += 1
        return self.record(args, failed)

    def holding(self, args: tuple, latest: int) -> "CachedProgram | None":
        """The last program that holds for the call, of those up to the joint recording `latest`."""
        joint = [k for k in self.programs if 0 < k.joint <= latest and k.values(args) is not None]
        return max(
            [k for k in joint if not k.surroundings.changed()], key=lambda kept: kept.joint, default=None
        )

    def excepted(self, reason: str, told: int = TOLD_CALLS) -> None:
        """One call is run as it is. So many for one reason are told."""
        self.plainly[reason] += 1
        if self.plainly[reason] == told and not self.told:
            self.told = told > TOLD_CALLS
            warn(self.name, f"{told} calls were run as they are, without a replay: {reason}")

    def branched(self, failed: Any) -> None:
        """Count a recording of a call for which no program held.  While few replays lie between recordings,
        they are in vain: there are more and more calls between them, and then no more of them."""
        self.vain = 1 if self.replays - self.replayed >= REPLAYS_PER_RECORDING else self.vain + 1
        if self.vain == max(free_recordings(failed), 2) and not self.told:
            self.told = True
            what, advice = OTHER_KINDS if failed is None else OTHER_WAYS
            warn(
                self.name,
                f"each of the last {self.vain} recorded calls {what}, so some calls are run as they are. "
                f"{advice}, or call the function unprepared",
            )

    def complaint(self, args: tuple, failed) -> str:
        if failed is None:
            what = f"the call has {self.programs[0].signature.difference(args)}"
        else:
            what = str(failed)
        return f"{self.name}: {what}; with on_change='record' it would be recorded anew"

    def record(self, args: tuple, failed):
        """A call as it is, and its program with it.  `failed`: why no other program holds.  (A recording is
        long, and holds no cycles.)"""
        with scope_block():
            CollectorPause()
            y = self.recorded(args, failed)
        self.waited, self.replayed = 0, self.replays
        self.missed = self.unattempted = 0
        return y

    def recorded(self, args: tuple, failed):
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
            and bool(self.programs or self.unconfirmed or owner.on_change == "raise")
            and not any([is_single(x) for a in args for x in leaves(a)])
        )
        signature = CallSignature(args, active, numbers)
        f, others = owner.f, OtherThreads()
        wrap = wrapping(f)
        lift = None if self.method == "value" else lambda g: METHODS[self.method](wrap(g), owner.argnums)
        roots = [*([] if isinstance(f, Const) else [f]), *signature.static]
        surroundings = self.read_by(roots)
        self.names = surroundings.names
        if surroundings.unsure():
            self.stop(surroundings.unsure())
            return self.plain(args)
        if signature.weak and surroundings.has_single():
            self.numbers = False
            return self.recorded(args, failed)
        before = failed.kept if type(failed) is Departure else self.programs[0] if self.programs else None
        catches = warned() != "error" or may_catch(surroundings.environment.walk)
        written = []
        begin = time.thread_time_ns()
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
                    AttributeWatch(dict(self.apart)),
                    frozenset(map(id, surroundings.environment.walk.hold)),
                )
        except Exception as error:
            let_through(error)
            return self.after_error(error, args, failed, signature.weak, surroundings, written)
        if self.sets_apart(recorded, surroundings):
            return self.recorded(args, failed) if owner.on_change == "raise" else recorded.result()
        program = Program(recorded)
        keeps = self.keeps(recorded, program, surroundings, told, failed)
        if keeps and others.have_run() and not self.confirmed(program):
            return self.again(args, failed, recorded, program)
        if keeps:
            recording = time.thread_time_ns() - begin
            kept = CachedProgram(signature, surroundings, program, owner, self.groups, self.joint, recording)
            self.programs = [kept, *self.programs[: PROGRAMS_KEPT - 1]]
        return recorded.result()

    def confirmed(self, program: Program) -> bool:
        """Return whether a recording before was like this one. The two count once."""
        alike = [other for other in self.unconfirmed if program.is_like(other)]
        self.unconfirmed = [other for other in self.unconfirmed if other not in alike]
        self.recordings -= len(alike)
        return bool(alike)

    def again(self, args: tuple, failed, recorded: Recording, program: Program):
        """Another thread has run during the recording. What the function has read may have been other than
        before and after. So a second recording must be alike: that of the next call, or one at once if the
        call must leave a program."""
        self.unconfirmed = [program, *self.unconfirmed[: PROGRAMS_KEPT - 1]]
        if self.owner.on_change != "raise":
            return recorded.result()
        if self.recordings > 2 * PROGRAMS_KEPT:
            raise GuardError(self.refusal(f"other threads change {READ} meanwhile"))
        return self.recorded(args, failed)

    def read_by(self, roots: list) -> ReadEnvironment:
        """What the call reads, without the places that it writes first."""
        found = ReadEnvironment(roots, self.names, (*self.apart,))
        if self.apart and PAST_DESCRIPTORS & found.names:
            self.read_first, self.apart = self.read_first | self.apart, {}
            found = ReadEnvironment(roots, found.names)
        return found

    def sets_apart(self, recorded: Recording, surroundings: ReadEnvironment) -> bool:
        """Is it known only now that the call writes places before it reads them, or reads them first?  Then
        the next recording tells what the call depends on."""
        told = self.apart.keys() | self.read_first.keys()
        same = surroundings.is_as_before() if recorded.bound else True
        new = {
            key: place.x
            for key, place in recorded.bound.items()
            if key not in told and place.x is not None and not (place.constant and same)
        }
        if recorded.unsure:
            self.read_first |= {key: self.apart.pop(key) for key in recorded.unsure}
        elif not new or self.recordings >= 2 * PROGRAMS_KEPT or PAST_DESCRIPTORS & surroundings.names:
            return False
        self.apart |= new
        self.recordings += 1
        return True

    def after_error(
        self, error: Exception, args: tuple, failed, weak: bool, surroundings: ReadEnvironment, written: list
    ):
        """The result of a call whose recording raised `error`, or the error again."""
        exchange(written)
        drawn = surroundings.rewind()
        loud = self.owner.on_change == "raise"
        if loud and isinstance(error, (BatchError, DroppedDerivativeError)):
            raise GuardError(self.refusal(str(error))) from error
        again = surroundings.disturbed({}) is None  # what it has written, a second run would find
        if weak and again:
            self.numbers = False
            return self.recorded(args, failed)
        if loud or not again:
            if not isinstance(error, GuardError):
                exchange(written)
                surroundings.rewind(drawn)
            raise error
        y = self.plain(args)  # which may raise as well: then it was no fault of the recording
        self.stop(f"{type(error).__name__}: {error}")
        return y

    def keeps(
        self, recorded: Recording, program: Program, surroundings: ReadEnvironment, told, failed
    ) -> bool:
        """May the program of a recording stand for further calls?  If not, it is noted how these run."""
        trace, owner = recorded.trace, self.owner
        drawn = [(real, first) for real, first, _ in trace.generators.values()]
        reason = surroundings.settle(recorded.arrays, program, drawn, trace.frozen) or trace.drawn
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
        bound = {key: place for key, place in recorded.bound.items() if key not in self.apart}
        if reason is None and not all([place.constant for place in bound.values()]):
            reason = f"a call changes {READ}"
        if reason is not None and reason.endswith(READ) and bound:
            reason += ": " + describe_places(bound)
        self.disturbed += reason is not None
        if reason is not None and self.disturbed < CHANGING_RECORDINGS and owner.on_change == "record":
            return False  # it may have filled a cache, or imported a module
        shown = [t for t in told.heard if type(t) is tuple and "encountered in" not in t[1]]
        unkept = trace.unkept or (f"the function gives a warning: {shown[0][1]}" if shown else None)
        if reason is None and unkept is not None and self.vain < VAIN_RECORDINGS:
            self.branched(unkept)
            return False
        if reason is None and self.vain >= VAIN_RECORDINGS:
            vain = f"each of the last {self.vain} recordings took another way, and few were replayed"
            reason = unkept or vain
        reason = reason or self.too_many(failed) or unkept
        if reason is not None:
            self.stop(reason)
            return False
        if type(failed) is Departure and failed.kept.program.other_way(program.conditions) is None:
            # it was about tangents, of which no plain call tells
            failed.kept.deaf = owner.on_change == "record"
            return False
        return True

    def too_many(self, failed) -> str | None:
        """Were there too many recordings for so few replays?  Then other calls run as they are, or all."""
        if self.recordings <= 2 * PROGRAMS_KEPT + self.replays // REPLAYS_PER_RECORDING:
            return None
        is_full = failed is None and len(self.programs) == PROGRAMS_KEPT
        self.full = is_full and self.owner.on_change == "record"
        if not self.full:
            return f"it was recorded {self.recordings} times for {self.replays} replays"
        if not self.told:
            kept = f"the last {PROGRAMS_KEPT} are replayed, and others run as they are from now on"
            warn(self.name, f"its calls differ in more than {PROGRAMS_KEPT} ways; {kept}. {OTHER_KINDS[1]}")
        return None

    def check(self, args: tuple, trace, before: "CachedProgram | None") -> None:
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

    def refusal(self, reason) -> str:
        return f"{self.name}: {self.owner_named()} cannot be recorded: {reason}"

    def report(self) -> list:
        if self.eager is not None:
            return [f"run as it is, not recorded: {self.eager}"]
        others = ["calls of other kinds are run as they are"] if self.full else []
        others += [f"{n} calls were run as they are: {reason}" for reason, n in self.plainly.items()]
        return [*others, *[kept.report() for kept in self.programs]]
