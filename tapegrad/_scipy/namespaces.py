"""The words with which SciPy's further subpackages are declared, and the faces made of them.

    SIGNAL = Namespace(scipy.signal)

    @SIGNAL.rule(scipy.signal.convolve)
    def convolve(in1, in2, mode="full", method="auto"): ...

    SIGNAL.constant(scipy.signal.find_peaks)                    the derivative is zero: it runs on values
    SIGNAL.refuse("not smooth", "scipy.ndimage.median_filter", scipy.signal.medfilt) SIGNAL.follow(FOLLOWED)
    SciPy's own code, for all that has no entry yet SIGNAL.stand_in("tapegrad.scipy.signal")

A rule is made of tapegrad's operations, and called where something in the arguments is tracked; else SciPy
itself is.  A name without any of these raises NoRuleError for a tracked argument.  `SciPyNamespace.kinds`
says it of each public name (docs/coverage.md)."""

import contextlib
import functools
import inspect
import sys
import types
import warnings
from collections.abc import Callable, Collection
from types import ModuleType
from typing import Any

import numpy as np

from .._core.arrays import copy_with_layout, is_array, xp_of
from .._core.errors import ArgumentError, Attempt, NoRuleError, callers_line
from .._core.foreign import argument, is_table
from .._core.lent_memory import lend
from .._core.primitive import (
    RECORDED,
    SAMPLED,
    holds_variable,
    is_tracked,
    layout_of,
    primal_of,
    values_of,
)
from .._core.registry import load
from .._core.scope import OPEN
from .._core.trees import nested, tree_map
from .._core.variable import HANDLES
from .._dispatch.faces import FACES, faces_of, is_function, library_function, numbers_of_table
from .._dispatch.stand_ins import INSTANCES, of_instance
from ..implicit.sequential import run_sequentially
from ..ops.creation import as_variable
from ..ops.declare import NUMPY, dtype, xp
from ..ops.elementwise import select
from ..ops.indexing.traced_masks import SelectedElements
from ..ops.nondifferentiable import at_users_line
from ..ops.protocols import Adapter
from ..ops.shaping import nested_to_array

NAMESPACES: dict[str, "SciPyNamespace"] = {}  # by the name of SciPy's module


class Carrier:
    """An object of ours that holds Variables, and stands for one of SciPy's."""

    _captured = False  # does it stand for an object of the user's?

    def _tracked(self) -> bool:
        raise NotImplementedError

    def _plain(self):
        """SciPy's object, of plain arrays."""
        raise NotImplementedError

    def _bare(self):
        """The same of values, where it holds tracked ones."""
        return self._plain()

    def _handed_back(self):
        """What is left of it after the transform, where the function stored it."""
        return self if self._tracked() else self._plain()

    def __setattr__(self, name: str, value) -> None:
        if self._captured and not name.startswith("_"):
            raise ArgumentError(
                f"{callers_line()}: {type(self).__name__}.{name} = ...: the object was made outside of the "
                f"transform, and a new {name} "
                "would not be seen there; write into its arrays, x[...] = value, or make another object"
            )
        object.__setattr__(self, name, value)


def others_that(test: Callable) -> Callable:
    """Does an object other than a Variable pass the test, or hold what does?"""

    def inside(x):
        if isinstance(x, Carrier):
            return test(x)
        parts = (
            (x.full,)
            if type(x) is SelectedElements
            else (numbers,)
            if is_table(x) and (numbers := numbers_of_table(x)) is not x
            else x.flat
            if type(x) is np.ndarray and x.dtype == object
            else ()
        )
        return holds_variable(parts, test, inside)

    return inside


def is_carrier(x) -> bool:
    return True


def tracked_one(x) -> bool:
    return is_tracked(x) if type(x) in HANDLES else x._tracked()


CARRIERS, TRACKED = others_that(is_carrier), others_that(tracked_one)


def carries(xs) -> bool:
    """Is there a Variable, or an object of ours, among xs or in lists, tuples and dicts there?"""
    return holds_variable(xs, None, CARRIERS)


def holds_tracked(*xs) -> bool:
    return holds_variable(xs, tracked_one, TRACKED)


KEPT = (int, float, complex, bool, str, bytes, type(None), slice, type, types.ModuleType, np.dtype)


def present(module, names) -> list:
    """What a module has of these names, in this version."""
    return [getattr(module, name) for name in names if hasattr(module, name)]


def tracked_among(*xs):
    """The first that is tracked; the first, if none is."""
    return next((x for x in xs if holds_tracked(x)), xs[0])


def on_a_device(xs) -> bool:
    """Is there a CuPy array, or a Variable over one, among xs or in lists, tuples, dicts and objects of ours
    there?"""
    if "cupy" not in sys.modules:
        return False
    for x in xs:
        kind = type(x)
        if kind is np.ndarray or kind in KEPT:
            continue
        if kind in HANDLES:
            if xp_of(layout_of(x)) is not np:
                return True
        elif kind in (list, tuple):
            if on_a_device(x):
                return True
        elif kind is dict or isinstance(x, Carrier):
            if on_a_device((x if kind is dict else vars(x)).values()):
                return True
        elif xp_of(x) is not np:
            return True
    return False


@nested
def plain_argument(x):
    """What SciPy is given for x, in which nothing is tracked."""
    if isinstance(x, Carrier):
        return x._plain()
    if type(x) is SelectedElements:
        return plain_argument(x.plain_elements())
    return x.theirs() if hasattr(type(x), "theirs") else lend(x)  # (a law of tapegrad.stats)


@nested
def bare(x):
    """The values of x, with no derivative."""
    if isinstance(x, Carrier):
        return x._bare()
    if type(x) is SelectedElements:
        return bare(x.plain_elements())
    return values_of(numbers_of_table(x) if is_table(x) else x)


CASTS: dict = {}  # (function or class, places of complex arguments) -> does SciPy cast one to real?


def with_derivative_of(value, y):
    """Return the value, with the derivative of y."""
    return value + (y - primal_of(y))


def clip_rounding(y, *limits, out=None, **named):
    """`numpy.clip`. What exceeds a limit by rounding only, or meets it, keeps its derivative."""
    clip, v = NUMPY[np.clip], primal_of(y)
    clipped = clip(v, *limits, **named)
    r = select(abs(clipped - v) < 1e-13, with_derivative_of(clipped, y), clip(y, *limits, **named))
    if out is not None:
        out[...] = r
    return r


def keep_imaginary_parts(f, name: str, run: Callable, args: tuple, kwargs: dict) -> None:
    """Raise if SciPy would cast one of these complex arguments to a real one, with a warning: the rule would
    go on with the imaginary part. SciPy is asked once for each choice of arguments, by `run`."""
    which = tuple([n for n, v in (*enumerate(args), *kwargs.items()) if kind_of(v) == "c"])
    if not which:
        return
    cast = CASTS.get((f, which))
    if cast is None:
        cast = CASTS[f, which] = casts_to_real(run, args, kwargs)
    if cast:
        raise lost_imaginary_part(name)


def lost_imaginary_part(name: str) -> ArgumentError:
    return ArgumentError(
        f"{callers_line()}: {name}: SciPy casts a complex argument to a real one there, and loses its "
        f"imaginary part; give x.real"
    )


def casts_to_real(run: Callable, args: tuple, kwargs: dict) -> bool | None:
    """None: it did not come to an end."""
    with Attempt():  # what an error is, the call itself will tell
        args, kwargs = tree_map(plain_copy, (args, kwargs))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", np.exceptions.ComplexWarning)
            try:
                run(*args, **kwargs)
            except np.exceptions.ComplexWarning:
                return True
        return False
    return None


def plain_copy(x):
    x = bare(x)
    return copy_with_layout(x) if is_array(x) else x


def kind_of(x) -> str:
    """'c' for a complex array or number, or several of which one is."""
    if type(x) is list or type(x) is tuple:
        return "c" if "c" in map(kind_of, x) else ""
    kind: str = getattr(getattr(x, "dtype", None), "kind", "c" if type(x) is complex else "")
    return kind


def refusal_text(name: str, why: str = "", instead: str = "") -> NoRuleError:
    """`instead`: what the user may write."""
    why = f" ({why})" if why else ""
    also = (
        f"; use {instead}"
        if instead
        else "; compose it of other operations, or give it a rule with tapegrad.rule(f, vjp=...)"
    )
    cut = "tapegrad.value(x), which has no derivative"
    return NoRuleError(
        f"{callers_line()}: {name} has no derivative rule in tapegrad{why}{also}; or give it {cut}"
    )


FUNCTIONS = frozenset((types.FunctionType, types.MethodType))
BUILT_IN = frozenset((np.ndarray, np.float64, float, int, bool, str, type(None)))


def unchanged(x):
    return x


def is_public(x, module: str) -> bool:
    """A function or class of this module of SciPy's that computes: no warning, no base class, nothing of
    another module."""
    home = getattr(x, "__module__", None) or module
    if not (home.startswith(".".join(module.split(".")[:2])) or home == "builtins"):
        return False
    return (
        is_function(x)
        and not isinstance(x, np.ufunc)
        or isinstance(x, type)
        and not issubclass(x, (BaseException, Warning))
    )


class RecordedWhole(Exception):
    """Raised by a rule that a recording is to have as one instruction."""


def is_recorded() -> bool:
    """Is a recording all that hides values?"""
    return bool(OPEN.hiding) and not OPEN.of_one and all([t.visibility == RECORDED for t in OPEN.hiding])


class SciPyNamespace:
    """A module of SciPy's.  `device`: that of CuPy's of the same functions, if it has one.  `searches`:
    functions with `by_steps` of which a recording has what their rules add to SciPy's result."""

    searches: Collection = ()

    def __init__(self, real: ModuleType, device: str | None = None, listed: bool = True):
        self.real, self.device, self.name = real, device, real.__name__
        self.rules = {}  # function or class -> ours
        self.constants = set()
        self.refusals = {}  # function or class -> (why, what to write)
        self.smooth = {}  # of constants: the settings on which they depend smoothly
        # rules of functions of functions, which may have captured what is tracked
        self.functional = set()
        self.by_steps = set()  # those of them whose steps depend on values
        self.compiled = {}  # function of these -> what runs a call without Python
        if listed:
            NAMESPACES[self.name] = self

    def rule(self, *functions, of_functions: bool = False, by_steps: bool = False, compiled=None) -> Callable:
        """`by_steps`: of functions, and what it does is decided by their values. `compiled(args, kwargs)`
        runs a call of such a function without Python, or returns None."""

        def declare(ours):
            for f in functions:
                self.rules[f] = ours
                if isinstance(f, type):
                    INSTANCES[f] = ours
                else:
                    NUMPY[f] = ours
                if of_functions or by_steps:
                    self.functional.add(f)
                if by_steps:
                    self.by_steps.add(f)
                if compiled is not None:
                    self.compiled[f] = compiled
            return ours

        return declare

    def constant(self, *functions, but: tuple = ()) -> None:
        """`but`: names of settings on which the result depends smoothly."""
        self.constants.update(functions)
        self.smooth.update(dict.fromkeys(functions, but) if but else {})

    def refuse(self, why: str, instead: str, *functions) -> None:
        for f in functions:
            self.refusals[f] = (why, instead)

    def follow(self, follower) -> None:
        """The library's own code, followed, for each public function and class that has no entry yet."""
        for name in dir(self.real):
            x = getattr(self.real, name)
            if (
                name.startswith("_")
                or not is_public(x, self.name)
                or x in self.rules
                or x in self.constants
                or x in self.refusals
            ):
                continue
            self.rule(x)(follower.klass(x) if isinstance(x, type) else follower.function(x))

    def public(self, f) -> str:
        return f"{self.name}.{f.__name__}"

    def kinds(self) -> dict[str, str]:
        """Public name -> 'differentiated', 'constant', 'refused' or 'none', of the functions and classes of
        the module."""
        found = {}
        for name in dir(self.real):
            x = getattr(self.real, name)
            if not name.startswith("_") and is_public(x, self.name):
                kinds = {"differentiated": self.rules, "constant": self.constants, "refused": self.refusals}
                found[name] = next((kind for kind, table in kinds.items() if x in table), "none")
        return found

    def why(self, name: str) -> str:
        """Why this public name is refused, and what to write."""
        why, instead = self.refusals[getattr(self.real, name)]
        return f"{why}; use {instead}" if why else f"use {instead}"

    def stand_in(self, name: str):
        """The module of faces."""
        module = faces_of(name, self.real, device=self.device)
        for public in dir(self.real):
            x = getattr(self.real, public)
            known = isinstance(x, type) and x in self.rules
            if public.startswith("_") or not (
                known or (getattr(x, "__module__", None) or "").startswith(self.name.partition(".")[0])
            ):
                continue
            # (a module has functions of other modules among its names)
            if is_function(x) and is_public(x, self.name):
                face = FACES[x] = FACES.get(x) or self.face(x)
                module.__dict__[public] = face
            elif isinstance(x, type):
                module.__dict__[public] = self.rules.get(x) or (
                    refusing_class(self, x) if x in self.refusals else x
                )
        for x, ours in self.rules.items():
            if isinstance(x, type):  # those that are not public, too: an instance may be met
                module.__dict__.setdefault(x.__name__, ours)
        return module

    def face(self, f: Callable) -> Callable:
        functional, guards = f in self.functional, f not in self.rules and f not in self.constants
        run = self.face_of_rule(f, lambda *args, **kwargs: on_variables(*args, **kwargs))

        @functools.wraps(f)
        def on_variables(*args, **kwargs):
            if guards and OPEN.depth:
                args, kwargs = self.guarded(args, f), self.guarded(kwargs, f)
            given = (*args, *kwargs.values()) if kwargs else args
            if not (functional and OPEN.depth) and not carries(given):
                return self.faced(at_users_line(self.function_for(f, args), *args, **kwargs))
            if functional or holds_tracked(*given):
                if f in self.rules:
                    return run(args, kwargs)
                args, kwargs = self.settings_of_constant(f, args, kwargs)
            args = plain_argument(args)
            return as_variable(
                self.faced(at_users_line(self.function_for(f, args), *args, **plain_argument(kwargs)))
            )

        return on_variables

    def face_of_rule(self, f: Callable, face: Callable) -> Callable:
        """A call (args, kwargs) of the rule of f."""
        name, functional, by_steps = self.public(f), f in self.functional, f in self.by_steps
        adapters: dict[bool, Adapter] = {}
        library = lambda *args, **kwargs: self.function_for(f, args)(*args, **kwargs)

        def run(args, kwargs):
            if not functional:
                keep_imaginary_parts(f, name, library, args, kwargs)
            there = on_a_device((args, kwargs))
            if there not in adapters:
                ours = self.rules[f]
                adapters[there] = Adapter(
                    f, load("tapegrad._scipy.followed").device_rule(ours) if there else ours
                )
            adapter = adapters[there]
            args, kwargs = tuple([argument(a) for a in args]), {k: argument(v) for k, v in kwargs.items()}
            found = self.compiled[f](args, kwargs) if f in self.compiled else None
            if found is not None:
                return found
            if not (OPEN.hiding and (functional or any([t.visibility == SAMPLED for t in OPEN.hiding]))):
                return adapter(args, kwargs)
            attempt = lambda *args, **kwargs: adapter(args, kwargs)
            if f in self.searches and is_recorded():
                with contextlib.suppress(RecordedWhole):
                    return attempt(*args, **kwargs)
            return run_sequentially(name, attempt, args, kwargs, by_steps, None if functional else face)

        return run

    def settings_of_constant(self, f: Callable, args: tuple, kwargs: dict) -> tuple:
        """The plain arguments of a function without a derivative; raises where f is none."""
        if f not in self.constants:
            raise refusal_text(self.public(f), *self.refusals.get(f, ()))
        for what in self.smooth.get(f, ()):
            given = inspect.signature(f).bind(*args, **kwargs).arguments.get(what)
            plain_setting(given, self.public(f), what)
        return bare(args), bare(kwargs)

    def function_for(self, f: Callable, args) -> Callable:
        """f, or CuPy's on its arrays and sparse matrices."""
        if self.device is not None and any([type(x).__module__.startswith("cupyx.") for x in args]):
            return getattr(load(self.device), f.__name__, f)
        return library_function(f, self.device, args)

    def guarded(self, x, f):
        """Functions of the user's among the arguments of what has no rule: they may have captured what is
        tracked."""
        if type(x) is dict:
            return {k: self.guarded(v, f) for k, v in x.items()}
        if type(x) is tuple:
            return tuple([self.guarded(v, f) for v in x])
        if type(x) not in FUNCTIONS:
            return x

        @functools.wraps(x)
        def run(*args, **kwargs):
            y = x(*args, **kwargs)
            if holds_tracked(y):
                raise refusal_text(self.public(f), *self.refusals.get(f, ()))
            return y

        return run

    def faced(self, x):
        """An object of SciPy's as ours, where a transform is open: it may meet what is tracked."""
        if not OPEN.depth or type(x) in BUILT_IN:
            return x
        if type(x) is tuple or type(x) is list:
            return type(x)([self.faced(v) for v in x])
        if type(x) is types.BuiltinMethodType and of_instance(type(x.__self__)) is not None:
            return getattr(self.faced(x.__self__), x.__name__)
        ours = self.rules.get(type(x)) or of_instance(type(x))
        return ours._of(x, unchanged) if hasattr(ours, "_of") else x


class CarrierType(type):
    """The class of ours that stands for `_theirs`: SciPy's own instances are instances too."""

    _theirs: Any

    def __call__(cls, *args, **kwargs):
        theirs = getattr(cls, "_theirs", None)
        if theirs is not None:
            args = tuple([numbers_of_table(x) if is_table(x) else x for x in args])
            keep_imaginary_parts(theirs, theirs.__name__, theirs, args, kwargs)
        return super().__call__(*args, **kwargs)

    def __instancecheck__(cls, x):
        return (
            issubclass(getattr(type(x), "_theirs", object), cls._theirs)
            if isinstance(x, Carrier)
            else isinstance(x, cls._theirs)
        )

    def __subclasscheck__(cls, c):
        return issubclass(getattr(c, "_theirs", c), cls._theirs)

    def __eq__(cls, other):
        return other is cls or other is getattr(cls, "_theirs", cls)

    def __hash__(cls):
        theirs = getattr(cls, "_theirs", None)  # (a base class stands for none)
        return type.__hash__(cls) if theirs is None else hash(theirs)


class RefusingType(CarrierType):
    def __call__(cls, *args, **kwargs):
        if holds_tracked(args, kwargs):
            raise refusal_text(cls.name, *cls.space.refusals[cls._theirs])
        if OPEN.depth:
            args, kwargs = cls.space.guarded(args, cls._theirs), cls.space.guarded(kwargs, cls._theirs)
        return cls._theirs(*plain_argument(args), **plain_argument(kwargs))

    def __getattr__(cls, name):
        return getattr(cls._theirs, name)


def refusing_class(space: SciPyNamespace, real: type) -> type:
    """A class that takes plain values only."""
    return RefusingType(
        real.__name__,
        (),
        {"_theirs": real, "name": space.public(real), "space": space, "__doc__": real.__doc__},
    )


# --- what rules are written with ---


def as_float_array(x, like=None):
    """x as an array or Variable of floating point numbers, in the library of `like`."""
    if isinstance(x, (list, tuple)):
        x = nested_to_array(x)
    if is_table(x):
        x = numbers_of_table(x)
    if type(x) in HANDLES:
        if like is not None and not is_tracked(x) and xp(x) is not xp(like):
            return as_float_array(values_of(x), like)
        return x if dtype(x).kind in "fc" else x * 1.0
    library = xp_of(x) if like is None else xp(like)
    x = x if is_array(x) and xp_of(x) is library else library.asarray(x)
    return x if x.dtype.kind in "fc" else x.astype(float)


def constant_like(x, like):
    """Plain numbers in the library and the precision of `like`."""
    library, to = xp(like), dtype(like)
    x = library.asarray(x)
    if x.dtype.kind not in "fc":
        return x
    half = to.itemsize // (2 if to.kind == "c" else 1)
    return x.astype({("f", 4): "f4", ("c", 4): "c8"}.get((x.dtype.kind, half), x.dtype), copy=False)


def as_integer(x):
    return None if x is None else int(values_of(x))


def plain_setting(x, name: str, what: str):
    """A setting: plain, not tracked."""
    if holds_tracked(x):
        raise ArgumentError(
            f"{callers_line()}: {name}: {what}= has no derivative here; give tapegrad.value({what})"
        )
    return bare(x)
