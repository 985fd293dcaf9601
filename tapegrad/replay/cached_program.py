"""A recorded program with what it holds for: when it may be replayed, and how a replay ends."""

import functools
import math
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from .._capture import replay_reading, replay_writing
from .._capture.dependencies.walk import may_catch
from .._capture.objects import restore, snapshot
from .._core.arrays import may_share_memory
from .._core.errors import RankError, ReplayWarning, let_through
from .._core.exchanges import ReplayGivenUp
from .._core.float_errors import LOUD, warned
from .._core.registry import load
from .._core.reverse import CollectorPause
from .._core.scope import now, scope_block
from .._core.trees import leaves
from .._dispatch.random import DRAW
from .._transforms.arguments import overlapping
from ..ops.linalg.factorizations import is_finite
from .costs import (
    BLOCK_ELEMENTS,
    CLEAR_REPLAYS,
    COMPILE_NS,
    EMITTED_REPLAY,
    FIRST_TEXT,
    GRAPHED_REPLAY,
    GROUP_REFUSALS,
    LOADING_NS,
    RECORDED_CALLS,
    REPAID,
    REPEATED_INSTRUCTIONS,
    TEXT_WEIGHT,
    TRIED_REPLAYS,
    WRITTEN_ELEMENT_NS,
    WRITTEN_INSTRUCTION_NS,
    WRITTEN_KIND_NS,
)
from .cuda_graph import CudaGraph, unfit
from .instruction_table import about_unlike
from .program import HEARD, Program
from .record.instructions import Guard, is_pure
from .shared_factors import with_shared_factors
from .signature import CallSignature, ReadEnvironment
from .summed_products import with_summed_products
from .tree_text import builder

EMITTER = "tapegrad.replay.emitted"


# errors that operations raise for values outside of their domain
OF_VALUES = (ArithmeticError, np.linalg.LinAlgError, IndexError, MemoryError, Warning)


class Departure:
    """The end of a replay that leaves the recorded path: an operation raises this error, or (None) warns
    where the function may notice."""

    def __init__(self, kept: "CachedProgram", error: Exception | None = None):
        self.kept, self.error = kept, error

    def __str__(self) -> str:
        if self.error is None:
            return "the function may hear of a warning or a floating-point error"
        return f"an operation raises {type(self.error).__name__}: {self.error}"

    def is_fault(self) -> bool:
        """Return whether the error may be a fault of this package."""
        of_values = self.error is None or isinstance(self.error, OF_VALUES)
        return not of_values and all([is_pure(i.prim) for _, i in self.kept.program.code])


FAILED = (Guard, Departure)


class WritingTime:
    """How many times as long as by the model texts take. The first one of a process loads the interpreter,
    and does not count."""

    factor, weight = FIRST_TEXT, 0.0

    def add(self, factor: float) -> None:
        self.factor += self.weight * (factor - self.factor)
        self.weight = TEXT_WEIGHT


WRITING = WritingTime()


def warn(name: str, what: str, cause: Exception | None = None) -> None:
    """A `ReplayWarning`, shown at the line that called the prepared function."""
    shown = ReplayWarning(f"{name}: {what}")
    shown.__cause__ = cause
    frame: Any = sys._getframe(1)
    level = 2
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == "tapegrad":
        frame, level = frame.f_back, level + 1
    warnings.warn(shown, stacklevel=level)


def broken(name: str, failure: Exception | None, then: str) -> None:
    """Warn once of a fault that costs only time: of this package, or of an installation without Numba."""
    what, advice = "a replay failed where a plain call does not, by a fault of tapegrad", "please report it"
    if isinstance(failure, ModuleNotFoundError):
        what, advice = "nothing is compiled", f"install it with: pip install {failure.name}"
    text = f"{what}: {type(failure).__name__}: {failure}; {then}. Results are right; {advice}"
    warn(name, text, failure)


class CachedProgram:
    """A recorded program, and the calls and surroundings for which it is valid.

    `program` is what runs. Whoever asks how values depend on others reads `recorded`: its instructions have
    the derivatives of the operations that the function called."""

    def __init__(
        self,
        signature: CallSignature,
        surroundings: ReadEnvironment,
        program: Program,
        owner,
        groups: list,
        joint: int,
        recording: float,
    ):
        self.signature, self.surroundings, self.recorded = signature, surroundings, program
        self.program = program = with_shared_factors(program)
        self.groups, self.joint = groups, joint if groups else 0
        if program.state is not None and program.state.holds_objects:
            surroundings.walked = surroundings.environment.walk
        # the outputs after these are of the state
        self.results = None if program.state is None else len(leaves(program.tree))
        self.setting, self.modes, self.warned = now(), np.geterr(), warned()
        self.emitted: Any = None
        self.trial: list = []  # (text, seconds of its replays) of those of which the faster one stays
        # the replay for which the text is written next
        self.name, self.compile = owner.name, owner.compile
        # is the text written at once if instructions repeat so often that it costs no more than a recording?
        # (a program with conditions has to hold first)
        asked = self.compile is True or self.joint
        self.early = not asked and len(program.numbers) >= REPEATED_INSTRUCTIONS
        self.due: float = 1 if self.early and not program.guards else EMITTED_REPLAY
        self.spent = 0.0  # ns of replays as bound calls
        self.recording = recording  # ns of the recorded call
        self.cuda_graph = owner.cuda_graph
        self.graph: Any = None
        self.graphless: str | None = None  # why it is none
        # (begun: the replay after which refusals count)
        self.replays = self.failures = self.refusals = self.begun = 0
        self.deaf = False  # have replays heard of floating-point errors of which the function does not?
        self.refused = False  # are there none any more, for its values are often not finite?
        self.writes = bool(program.written) or program.writes_arguments
        self.plainly = ""  # why the last call was run as it is

    @functools.cached_property
    def built(self) -> Callable:
        """What makes the result of its leaves."""
        return builder(self.program.tree)

    def is_apart(self, values: list) -> bool:
        """Return whether written arrays share no memory with arguments."""
        program = self.program
        if program.written and self.shares_written(values):
            return False
        return not (program.writes_arguments and len(values) > 1 and overlapping(values))

    def shares_written(self, values: list) -> bool:
        """Return whether an argument shares memory with a captured array that is written. Only then a plain
        call gets the caller's own arrays."""
        return any([may_share_memory(v, array) for v in values for array, _ in self.program.written])

    def is_of_setting(self) -> bool:
        """Return whether NumPy's error modes and the warning filters are those of the recording."""
        setting = now()
        modes = setting is not None and setting is self.setting
        if not modes and np.geterr() == self.modes:
            modes, self.setting = True, setting
        return modes and (warned() == self.warned or not self.may_catch)

    @functools.cached_property
    def may_catch(self) -> bool:
        return may_catch(self.surroundings.environment.walk)

    def values(self, args: tuple) -> list | None:
        """Return the inputs of the program, or None if it is not valid for these arguments."""
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

    def unchecked(self, args: tuple, varying: int) -> Callable | None:
        """Return ``results(*xs)``, which replays the call with other first arguments, so many, or None.

        They share no memory with the other arguments. The function compares nothing, so it holds in a block
        of `OPEN.compared`. It returns None where only a call of the form gives the results."""
        rest, program = self.fixed_inputs(args, varying), self.program
        acts = program.written or program.state or program.generators
        asks = acts or program.warns or program.finite or self.cuda_graph
        if rest is None or asks or self.joint or self.trial or self.graph is not None or self.emitted is None:
            return None
        if not self.is_apart([*args[:varying], *rest]):
            return None
        run = self.emitted.run

        def results(*xs) -> list | None:
            self.replays += 1
            if self.replays >= self.due:
                return None
            try:
                found = run(*xs, *rest)
            except Exception as error:
                let_through(error)
                return None  # a call of the form raises it, too
            if type(found) is not tuple or HEARD.shown is not None or HEARD.unsafe is not None:
                return None
            return None if program.is_undefined(found[0]) else found[0]

        return results

    def replay(self, values: list):
        """The result; a guard that failed; a `Departure`; None where only a plain call will do: it warns, or
        arrays share memory."""
        program = self.program
        if self.writes and not self.is_apart(values):
            self.plainly = "what is written shares memory with an argument"
            return None
        found = self.reading(self.computed, values) if program.read else self.computed(values)
        if type(found) is not tuple:
            return found
        results, written = found
        if written:
            replay_writing(written)
        if program.state is not None:
            program.state.put(results)
            results = results[: self.results]
        return self.built(results)

    def reading(self, call: Callable, *args):
        """`call(*args)`, while no other thread writes the captured arrays back that it reads."""
        return replay_reading(self.program.read, call, *args)

    def computed(self, values: list):
        """(results, what is written), or as `replay`."""
        program = self.program
        if program.finite and not is_finite([*values, *[array for _, array in program.captured]]):
            self.plainly = "its inputs are not finite"
            return None
        self.replays += 1
        before = [(x, snapshot(x)) for x in program.generators] if program.generators else []
        try:
            found = self.heard(values, before) if program.warns else self.found(values, before)
        except ReplayGivenUp as given_up:
            found = given_up
        self.replays -= type(found) is Guard  # one that does not hold pays for nothing
        plainly = type(found) is tuple and program.is_undefined(found[0][: self.results])
        if self.joint and type(found) is tuple and not plainly:
            found = found if self.groups[0].end_replay(True, self.name) else ReplayGivenUp()
        if plainly or type(found) is not tuple:
            self.plainly = "its results are not numbers" if plainly else "NumPy warns: " + str(HEARD.shown)
            for x, state in before:
                restore(x, state)
            return None if plainly else found
        return found

    def is_paid(self) -> bool:
        """Return whether the replays so far have cost so much that the text may be written. Ranks write
        together."""
        asked = self.compile is True or self.cuda_graph or self.joint
        if asked or self.emitted is not None:
            return True
        loading = 0.0 if EMITTER in sys.modules else LOADING_NS
        if self.early:
            return self.recording + self.spent >= REPAID * loading
        return self.spent >= REPAID * (self.writing_cost * WRITING.factor + loading)

    @functools.cached_property
    def unlike(self) -> int:
        """How many instructions are written one by one, so far as is known."""
        return about_unlike(self.program)

    @functools.cached_property
    def kind_costs(self) -> tuple:
        """How many ns it takes by the model: for kinds of instructions, and for one of these."""
        program = self.program
        kinds = {(w[0], id(program.shown[k])) for k, w in zip(program.numbers, program.what, strict=True)}
        sizes = [math.prod(shown[1]) for shown in program.shown.values()]
        elements = sum([size for size in sizes if size <= BLOCK_ELEMENTS]) / max(len(sizes), 1)
        return WRITTEN_KIND_NS * len(kinds), WRITTEN_INSTRUCTION_NS + WRITTEN_ELEMENT_NS * elements

    @property
    def writing_cost(self) -> float:
        """How many ns it takes to write the text, by the model."""
        return self.kind_costs[0] + self.kind_costs[1] * self.unlike

    def write(self) -> None:
        """The text; with groups once the replays so far have cost as much as compiling them might."""
        with scope_block():
            CollectorPause()
            self.written(time.thread_time_ns())

    @functools.cached_property
    def text_program(self) -> Program:
        """The program of which texts are written."""
        return with_summed_products(self.program)

    def written(self, begin: int) -> None:
        emitter, program = load(EMITTER), self.text_program
        wanted = self.compile is True
        # ranks take the same text, and a device still works when its launch has returned
        comparable = not self.joint and not program.on_device
        kinds, early, self.early = None, self.early, False
        if early:
            self.due = EMITTED_REPLAY
            if self.writing_cost > self.recording:
                return
            kinds = emitter.InstructionKinds(program)
            self.unlike = emitter.unlike_instructions(kinds)
            if self.writing_cost > self.recording:
                return
        if self.emitted is None and (comparable or not wanted):
            start = time.thread_time_ns()
            self.emitted = emitter.EmittedProgram(program, kinds=kinds)
            if self.writing_cost:  # (a program without instructions has none)
                WRITING.add((time.thread_time_ns() - start) / self.writing_cost)
        if self.compile == "auto":
            spent = self.recording + self.spent + time.thread_time_ns() - begin
            # ranks take the same text, so that their bits agree: no time that one of them measured counts
            times = () if self.joint else (spent, self.recording / RECORDED_CALLS)
            after = self.emitted.worthwhile(COMPILE_NS, *times)
            wanted = self.replays >= after
        self.due = math.inf if wanted or self.compile is False else max(after, EMITTED_REPLAY)
        if wanted:
            kinds = None if self.emitted is None else self.emitted.kinds
            made = emitter.compiled_program(program, kinds=kinds)
            if comparable and TRIED_REPLAYS and (made.groups or made.loops):
                self.trial = [(each, []) for each in (self.emitted, made)]
            self.emitted = made

    def tried(self, values: list):
        """A replay by one of two texts in turn.  The faster one stays, soon if it takes less than half."""
        trial = self.trial  # (another thread may end it at once)
        if not trial:
            return self.emitted.run(*values)
        text, seconds = min(trial, key=lambda each: len(each[1]))
        begin = time.thread_time()
        found = text.run(*values)
        seconds.append(time.thread_time() - begin)
        turns = len(trial[-1][1])
        if self.trial and turns >= CLEAR_REPLAYS:
            least, most = sorted([min(each[1]) for each in trial])
            if turns >= TRIED_REPLAYS or 2 * least < most:
                self.emitted, self.trial = min(trial, key=lambda each: min(each[1]))[0], []
        return found

    def refuse(self) -> None:
        """Values that are not finite, and of which a plain call does not warn, would be worked out twice at
        each call.  First loops tell infinite values that came of infinite ones.  Then there are no groups any
        more, and blocks do what NumPy does for all values.  At last there are no blocks."""
        self.refusals += 1
        if self.refusals <= GROUP_REFUSALS or 2 * self.refusals <= self.replays - self.begun:
            return
        self.trial, self.refusals, self.begun = [], 0, self.replays
        emitter = load(EMITTER)
        if self.emitted.loops and not self.emitted.tolerant:
            self.emitted = emitter.compiled_program(self.text_program, tolerant=True)
            return
        self.refused, self.compile = True, False
        if not self.emitted.kinds.exact:
            kinds = emitter.InstructionKinds(self.program, exact=True)
            self.emitted = emitter.EmittedProgram(self.program, kinds=kinds)
            return
        warn(
            self.name, "its operations run as they are, nothing is compiled: its values are often not finite"
        )
        self.emitted = emitter.EmittedProgram(self.program, blocks=False)

    def heard(self, values: list, before: list):
        """The same where an operation may give a warning of which the function hears: that is another way
        through it."""
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            found = self.found(values, before)
        ours = [w.message for w in given if w.category is ReplayWarning]
        for message in ours:
            warnings.warn(message, stacklevel=2)
        return Departure(self) if len(given) > len(ours) and type(found) is tuple else found

    def found(self, values: list, before: list):
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
            let_through(error)
            failure = error
        anew = found is None or HEARD.unsafe is not None
        if anew and self.joint and (failure is not None or self.emitted is not None):
            if failure is None:
                self.refuse()
            return None if failure is None else Departure(self, failure)
        if anew:
            for x, state in before:
                restore(x, state)
            begin = time.thread_time_ns()
            try:
                found = program.run(values)
                self.spent += time.thread_time_ns() - begin
            except RankError:
                raise
            except Exception as error:
                let_through(error)
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
                let_through(error)
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
        by_samples = ", ".join(self.program.by_samples)
        looped = f"; under vmap one sample after the other: {by_samples}" if by_samples else ""
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
