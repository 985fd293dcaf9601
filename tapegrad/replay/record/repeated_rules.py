"""Reverse rules in a recording: what a rule asks for is noted once, and done again for operands that look alike.

Under a recording a rule sees shapes, dtypes and memory orders, and no values. So its requests follow from these,
from its settings, and from which of its operands are one value. The second time that all this is the same, the
requests are noted. From then on they are repeated without the rule. A rule that asks for more than operations is
called each time."""

import warnings
from collections.abc import Callable, Iterable
from typing import Any

from ..._core.float_errors import LOUD
from ..._core.reverse import ELEMENT, REGION, SETTINGS, AdaptedRule, RecordMark, ShapeStandIn
from ..._core.scope import now
from ..._core.variable import DIRECT, variable
from .instructions import CONSTANT, is_pure
from .settings_keys import index_key

NUMBERS = (float, int, complex)


class RuleTemplate:
    """The requests of a rule. `steps`: (method of the recording, its settings, places of its operands). Places
    count the operands of the rule, then `constants`, then the results of the steps. `results`: (place, may
    something else hold its memory?) of each result, or None. `saved`: operands whose memory something else may
    hold afterwards. `flags`: the flags looked at. `owned`: of a region, which buffers belong to the sweep."""

    __slots__ = ("constants", "flags", "owned", "results", "saved", "steps")

    def __init__(self, constants: list, steps: list, results: list, saved: list, flags: tuple):
        self.constants, self.steps, self.results, self.saved, self.flags = (
            constants,
            steps,
            results,
            saved,
            flags,
        )
        self.owned: tuple = ()

    def repeat(self, trace: Any, operands: list, slots: list) -> list:
        """The results for other operands, of these slots."""
        places = [*slots, *self.constants]
        for method, settings, at in self.steps:
            places.append(method(trace, *settings, tuple([places[n] for n in at])))
        for n in self.saved:
            operands[n]._saved = True
        made: list = []
        for result in self.results:
            if result is None:
                made.append(None)
                continue
            n, held = result
            if n < len(slots):
                made.append(operands[n])
                continue
            k = places[n]
            y = variable(trace.looks[k][0], trace, k)
            if held:
                y._saved = True
            made.append(y)
        return made


def is_held(x: Any) -> bool:
    return x is not None and getattr(x, "_saved", False)


class RequestLog:
    """Notes what a call of a rule asks of a recording."""

    def __init__(self, trace: Any, operands: list, slots: list):
        self.trace, self.operands, self.slots = trace, operands, slots
        self.before, self.size = self.state(), len(trace.known)
        self.held = [is_held(x) for x in operands]
        trace.log = self.requests = []

    def state(self) -> tuple:
        """What requests change that are no operations."""
        t = self.trace
        asked = t.asked, t.finite, t.raised, t.pulled, t.unkept, t.drawn, t.setting, t.filters, t.watched
        return (*asked, *map(len, (t.guards, t.weak, t.generators, t.by_samples, t.groups)))

    def template(self, found: Iterable) -> RuleTemplate | None:
        """What is repeated. None: the rule asked for more, or one value stood for two."""
        trace, slots = self.trace, self.slots
        place: dict = {}
        for n, s in enumerate(slots):
            if s is not None:
                place.setdefault(s, n)
        constants: dict = {}
        for *_, given, _ in self.requests:
            for s in given:
                if s not in place and trace.what[s][0] is CONSTANT:
                    constants.setdefault(s, len(slots) + len(constants))
        place |= constants
        first, steps, asked = len(slots) + len(constants), [], {}
        for method, settings, given, k in self.requests:
            if type(k) is not int or not all([s in place for s in given]):
                return None
            places = tuple([place[s] for s in given])
            if asked.get(k) == (method, places):
                continue  # the same once more
            if k in place:
                return None
            place[k], asked[k] = first + len(steps), (method, places)
            steps.append((method, settings, places))
        if self.state() != self.before or not all(
            [k in place or trace.what[k][0] is CONSTANT for k in range(self.size, len(trace.known))]
        ):
            return None
        results: list = []
        for c in found:
            if c is not None and (type(c) not in DIRECT or c._trace is not trace or c._slot not in place):
                return None
            results.append(None if c is None else (place[c._slot], is_held(c)))
        saved = [n for n, x in enumerate(self.operands) if is_held(x) and not self.held[n]]
        return RuleTemplate([*constants], steps, results, saved, trace.watched)


class RepeatedRule:
    """One rule in one recording. `found`: key of a call -> 0 (it was called once), its template, or None."""

    __slots__ = ("found", "rule", "trace")

    def __init__(self, trace: Any, rule: Callable):
        self.trace, self.rule = trace, rule
        self.found: dict = {}

    @property
    def prim(self) -> Any:
        return self.rule.prim  # type: ignore[attr-defined]

    def alike(self, operands: Iterable, key: list) -> list | None:
        """The slots of the operands (None: it has none). What tells calls apart is added to the key. None:
        they cannot be told apart."""
        trace, slots = self.trace, []
        if now() is not trace.setting or warnings.filters is not trace.filters or trace.log is not None:
            return None
        looks = trace.looks
        for a in operands:
            kind = type(a)
            if kind in DIRECT:
                if a._trace is not trace or getattr(a, "_version", 0):
                    return None
                s = a._slot
                if s in slots:
                    key.append(-1 - slots.index(s))
                slots.append(s)
                key.append(looks[s][3])
                key.append(getattr(a, "_saved", False))
                continue
            slots.append(None)
            if a is None:
                key.append(None)
            elif kind is ShapeStandIn:
                key.append((a.shape, a.dtype, a.library))
            elif kind in NUMBERS:
                key.append((kind, repr(a)))
            else:
                try:
                    key.append(index_key(a))
                except TypeError:
                    return None
        return None if trace.weak and not trace.weak.isdisjoint(slots) else slots

    def template_of(self, key: tuple) -> Any:
        """The template; 0: this is the first call; 1: the second; None: there is none."""
        found = self.found.get(key)
        if found is None:
            return self.found.setdefault(key, 0) if key not in self.found and LOUD not in self.trace.watched else None
        if found == 0:
            self.found[key] = None
            return 1
        return found if found.flags == self.trace.watched else None

    def __call__(self, *operands: Any) -> Any:
        key: list = []
        slots = self.alike(operands, key)
        if slots is None:
            return self.rule(*operands)
        found = self.template_of(tuple(key))
        if type(found) is RuleTemplate:
            return found.repeat(self.trace, operands, slots)[0]
        if found != 1:
            return self.rule(*operands)
        log = RequestLog(self.trace, operands, slots)
        try:
            c = self.rule(*operands)
        finally:
            self.trace.log = None
        self.found[tuple(key)] = log.template((c,))
        return c


class RepeatedRegionRule(RepeatedRule):
    """The same of a rule that reads and changes the cotangents of buffers."""

    __slots__ = ()

    def __call__(self, G: Any, owned: set, k: int, g: Any, i: Any, j: Any, *settings: Any) -> None:
        buffers = [*i] if type(i) is list else [i, j]
        given = [s for s in buffers if s is not None]
        operands = [g, *[None if s is None else G[s] for s in buffers]]
        key: list = [*[s if s is None else s in owned for s in buffers], k in owned]
        slots = self.alike([*operands, *settings], key) if len({*given}) == len(given) else None
        found = 0 if slots is None else self.template_of(tuple(key))
        if type(found) is RuleTemplate:
            made = found.repeat(self.trace, operands, slots[: len(operands)])
            for s, c in zip(given, made, strict=True):
                G[s] = c
            owned.difference_update(given, (k,))
            owned.update([s for s, is_owned in zip((*given, k), found.owned, strict=True) if is_owned])
            return
        if found != 1:
            self.rule(G, owned, k, g, i, j, *settings)
            return
        log = RequestLog(self.trace, operands, slots[: len(operands)])
        held = {s: G[s] for s in (*given, k)}
        try:
            self.rule(held, owned, k, g, i, j, *settings)
        finally:
            self.trace.log = None
        for s, c in held.items():
            G[s] = c
        made = log.template([held[s] for s in given]) if held[k] is None else None
        if made is not None:
            made.owned = tuple([s in owned for s in (*given, k)])
        self.found[tuple(key)] = made


def repeated(trace: Any, rules: dict, record: tuple) -> tuple:
    """A record of a tape, with such rules. `rules`: those that there are."""
    rule, i, second, j, *rest = record
    if second is None or second is SETTINGS or second is REGION or second is ELEMENT:
        return record if rule is None else (repeated_rule(trace, rules, rule, second), i, second, j, *rest)
    if type(second) is RecordMark:
        return record
    one = None if rule is None else repeated_rule(trace, rules, rule, None)
    return one, i, second if j is None else repeated_rule(trace, rules, second, None), j, *rest


def repeated_rule(trace: Any, rules: dict, rule: Any, mark: Any) -> Any:
    key = (rule.rule, rule.shape, rule.dtype, rule.conjugate) if type(rule) is AdaptedRule else rule
    found = rules.get(key)
    if found is None:
        region = mark is REGION or mark is ELEMENT
        own = region or is_pure(rule.prim)
        found = rules[key] = (RepeatedRegionRule if region else RepeatedRule)(trace, rule) if own else rule
    return found
