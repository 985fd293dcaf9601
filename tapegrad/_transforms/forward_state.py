"""What the function of a `tg.rule` stores for its rules, such as a factorisation in an attribute.

A sweep comes after all calls of the function, so rules would read what the last one stored. The function is
run again before a rule that reads what each run changes. What the first run alone changes is a cache."""

import functools
from typing import Any

from .._capture.dependencies import Environment, differing, is_atom
from .._core.errors import DroppedDerivativeError
from .._core.primitive import bind, joint_primitive, values_of
from .._core.trees import leaves, tree_map
from .._core.typing import AnyFunction, AnyList, AnyTuple
from .arguments import numpy_number

DISCRETE = (int, bool, str)
WATCHED_RUNS = 3


@functools.lru_cache(256)
def runs_to_look_at(codes: AnyTuple) -> AnyList:
    """[their number], for all functions with these codes together while they change nothing."""
    return [WATCHED_RUNS]


def code_of(f: AnyFunction) -> Any:
    return getattr(getattr(f, "__func__", f), "__code__", type(f))


class StoredState:
    """What f changes of what its rules can read, found at its first runs.

    Attributes
    ----------
    runs_left : int
        The runs of f that will be looked at.
    changes : bool
        Is there anything?
    derived : bool
        Is it more than integers and texts?
    grown : bool
        Has the first run stored something new, as one does that fills a cache?"""

    def __init__(self, f: AnyFunction, rules: AnyList, pure: bool):
        self.f, self.rules, self.shared = f, rules, runs_to_look_at(tuple(map(code_of, (f, *rules))))
        self.changes = self.derived = self.grown = False
        self.runs_left = 0 if pure else self.shared[0]

    def run(self, *args: Any, **params: Any) -> Any:
        """f of plain arguments."""
        if not self.runs_left:
            return self.f(*args, **params)
        before = Environment(self.rules)
        y = self.f(*args, **params)
        self.runs_left -= 1
        self.shared[0] = self.runs_left
        if before.unknown is not None:
            self.runs_left = 0
        elif before.seen[1]():
            self.changes = self.derived = self.grown = False
        else:
            self.compare(before.walk, Environment(self.rules).walk)
        return y

    def compare(self, before: Any, now: Any) -> None:
        """Something has changed, or is another object."""
        places = None if now.unknown is not None else differing(before.form, now.form)
        counts = bool(places) and all(
            [is_atom(now.form[k]) and now.form[k][0] in DISCRETE for k in places or ()]
        )
        self.grown = not places and self.runs_left == WATCHED_RUNS - 1
        self.changes, self.derived, self.shared[0] = True, not counts, WATCHED_RUNS
        if not self.grown:
            self.runs_left = 0

    def before(self, rule: AnyFunction) -> AnyFunction:
        """The rule, after a run of f at the arguments of the call."""

        def run(first: Any, out: Any, *args: Any, **params: Any) -> Any:
            if self.changes:
                self.run(*[values_of(x) for x in args], **params)
            return rule(first, out, *args, **params)

        return run

    def as_operation(self, name: str, rule: AnyFunction) -> AnyFunction:
        """The rule as an operation of plain arrays without derivatives of its own."""

        def refused(*_: Any, **params: Any) -> Any:
            raise DroppedDerivativeError(
                f"rule({name}): a rule reads what the function has stored, and an open transform watches "
                "what the rule is given: the derivative through what was stored would be lost. Compute it in "
                "the rule from the arguments, or return it as one more result of the function; or, where the "
                "rules read nothing of it before they write it, give tapegrad.rule(f, ..., pure=True)"
            )

        def called(first: Any, out: Any, *args: Any, **params: Any) -> Any:
            given = (first, out, args)
            found: AnyList = []  # which terms there are, and whether they are several

            def run(*values: Any) -> Any:
                column = iter(values)
                plain = tree_map(lambda v: None if v is None else next(column), given)
                terms = self.before(rule)(plain[0], plain[1], *plain[2], **params)
                found[:] = terms, terms if isinstance(terms, (tuple, list)) else (terms,)
                return tuple([numpy_number(v) for v in found[1] if v is not None])

            values = [v for v in leaves(given) if v is not None]
            terms = iter(bind(joint_primitive(f"rule of {name}", run, refused, refused), values, {}))
            columns = tuple([None if v is None else next(terms) for v in found[1]])
            return columns if found[0] is found[1] else columns[0]

        return called
