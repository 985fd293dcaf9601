"""NumPy's random generators inside a shadow: the same streams, for arrays and Variables.

A generator is compiled code; it would permute the rows of a Variable through views. So `shuffle`,
`permutation`, `permute_array` and `choice` draw an order of integers and apply it as a constant index.
Other methods get untracked Variables as lent memory, so `out=` and shuffled data are right. The laws of
draws.py take tracked parameters; the others refuse them.

A trace may note draws, as a recording does. Then each draw is the operation `DRAW`, which draws again
in a replay, and its numbers are hidden."""

import sys
from typing import Any

import numpy as np

from .._core.errors import NoRuleError
from .._core.lent_memory import lend
from .._core.primitive import (
    RECORDED,
    Primitive,
    Trace,
    any_tracked,
    holds_variable,
    live,
    primal_of,
    values_of,
)
from .._core.scope import OPEN
from .._core.variable import Variable, variable
from ..ops.declare import NUMPY, ndim, shape
from ..ops.indexing.views import layout_source
from ..ops.indexing.writes import write_value
from ..ops.zero_derivative import emptied, filled
from .draws import has_formula, holds_hidden, reparametrised
from .faces import FACES, faces_of

take = NUMPY[np.take]


def _draw(*hidden, real, name: str, args: tuple, kwargs: dict):
    """One draw. (`shuffle` works on a copy of its argument and returns that.)"""
    args, kwargs = filled(hidden, (args, kwargs))
    if name != "shuffle":
        return getattr(real, name)(*args, **kwargs)
    x = args[0].copy()
    real.shuffle(x, *args[1:], **kwargs)
    return x


DRAW = Primitive("random", _draw)  # (hidden arguments; real, name, args, kwargs)


class TracedGenerator:
    """A generator whose draws are operations of a trace."""

    def __init__(self, trace, real):
        self.trace, self.real = trace, real

    def __getattr__(self, name: str):
        return lambda *args, **kwargs: self.draw(name, args, kwargs)

    def shuffle(self, x: np.ndarray) -> None:
        x[...] = self.draw("shuffle", (x,), {})

    def draw(self, name: str, args: tuple, kwargs: dict):
        hidden, (args, kwargs) = emptied((args, kwargs))
        return self.trace.draw(hidden, {"real": self.real, "name": name, "args": args, "kwargs": kwargs})

    def has_derivatives(self, xs) -> bool:
        """Does a transform above the trace watch anything in xs?"""
        return any(
            self.has_derivatives(x)
            if type(x) in (list, tuple)
            else isinstance(x, Variable) and live(x)._trace not in (None, self.trace)
            for x in xs
        )

    def call(self, name: str, args: tuple, kwargs: dict):
        given = (*args, *kwargs.values())
        orders = name in ORDERS and any([isinstance(x, Variable) for x in given])
        out = kwargs.get("out")
        if self.has_derivatives(given) and not orders:
            if not has_formula(name, args, kwargs):
                raise refusing_draw(name)
            draw = lambda args, kwargs: self.draw(name, args, kwargs)
            return reparametrised(self.real, draw, name, args, kwargs)
        if orders and (ndim(given[0]) or name != "permutation"):
            return ORDERS[name](self, *args, **kwargs)
        if name == "shuffle" or (out is not None and not isinstance(out, Variable)):
            return self.trace.plainly(self.real, name, args, kwargs)
        if out is None:
            return self.draw(name, args, kwargs)
        if not layout_source(out).flags.c_contiguous or len(args) > (name in SHAPED):
            return self.trace.plainly(self.real, name, args, kwargs)
        rest = {k: v for k, v in kwargs.items() if k != "out"}
        write_value(
            out,
            self.draw(name, args, {"size": shape(out), "dtype": layout_source(out).dtype, **rest}),
            Ellipsis,
        )
        return out


SHAPED = frozenset(("standard_gamma",))  # their first argument is neither size nor dtype


def shuffle_integers(real, x):
    """The integers as a shuffled array."""
    if type(real) is TracedGenerator:
        return real.draw("shuffle", (x,), {})
    real.shuffle(x)
    return x


def shuffle(real, x, axis: int = 0) -> None:
    write_value(x, take(x, shuffle_integers(real, np.arange(shape(x)[axis])), axis), Ellipsis)


def permutation(real, x, axis: int = 0):
    return take(x, real.permutation(shape(x)[axis]), axis) if ndim(x) else real.permutation(values_of(x))


def permute_array(real, x, *, axis: int | None = None, out=None):
    like = layout_source(x if out is None else out)
    at = np.empty_like(like, np.intp)  # in memory order, in which all elements are drawn
    at[...] = np.arange(like.size).reshape(shape(x))
    if out is not None and not like.flags.c_contiguous | like.flags.f_contiguous:
        at = at.copy()  # NumPy draws through a copy in C order
    y = take(x, real.permuted(at, axis=axis))
    if out is None:
        return y
    if not isinstance(out, Variable):
        raise NoRuleError(
            "Generator.permuted: out= is a plain array, which cannot hold a derivative; leave out= away"
        )
    write_value(out, y, Ellipsis)
    return out


def choice(real, a, size=None, replace: bool = True, p=None, axis: int = 0, **rest):
    if type(real) is not TracedGenerator:
        if any_tracked([p]) or not ndim(a):
            raise refusing_draw("choice")
        p = values_of(p)
    elif real.has_derivatives([p]):
        raise refusing_draw("choice")
    if not ndim(a):
        return real.choice(values_of(a), size, replace, p, **rest)
    return take(a, real.choice(shape(a)[axis], size, replace, p, **rest), axis)


ORDERS: dict[str, Any] = {
    "shuffle": shuffle,
    "permutation": permutation,
    "permuted": permute_array,
    "choice": choice,
}


def refusing_draw(name: str) -> NoRuleError:
    return NoRuleError(
        f"numpy.random: {name}() of a tracked value has no derivative rule in tapegrad; draw standard "
        "numbers and transform them, as in mu + sigma * rng.standard_normal(n), or write tapegrad.value(x)"
    )


class GeneratorType(type):
    """NumPy's own generators count as instances too."""

    def __instancecheck__(cls, x):
        return isinstance(x, cls.__mro__[1])


def method(name: str):
    def call(self, *args, **kwargs):
        f = getattr(self.real, name)
        drawn = None
        for trace in OPEN.hiding:
            if trace.level > self.born:
                trace.draws(name)
                drawn = trace if trace.visibility == RECORDED else drawn
        if drawn is not None:
            return (
                TracedGenerator(drawn, self.real).call(name, args, kwargs)
                if self.lasts
                else drawn.plainly(self.real, name, args, kwargs)
            )
        if not holds_variable((args, kwargs)):
            y = f(*args, **kwargs)
            # the caller, a rebuilt function whose globals are no plain dict, may write tracked values
            # into it
            mine = (
                type(y) is np.ndarray
                and y.dtype.kind == "f"
                and y.base is None
                and OPEN.depth
                and kwargs.get("out") is None
            )
            return variable(y) if mine and type(sys._getframe(1).f_globals) is not dict else y
        if not any_tracked((args, kwargs)):
            return given_back(f(*lend(args), **lend(kwargs)), args, kwargs)
        hidden = any([isinstance(primal_of(x), Variable) for x in (*args, *kwargs.values())])
        if has_formula(name, args, kwargs) and (not hidden or holds_hidden(name, args, kwargs)):
            draw = lambda args, kwargs: f(*args, **kwargs)
            return reparametrised(self.real, draw, name, args, kwargs, hidden)
        if name not in ORDERS:
            raise refusing_draw(name)
        return ORDERS[name](self.real, *args, **kwargs)

    call.__name__ = name
    return call


def given_back(y, args: tuple, kwargs: dict):
    """The result of a method: the array given as `out=`, if there is one."""
    out = kwargs.get("out")
    return y if out is None else out


class Generator(np.random.Generator, metaclass=GeneratorType):
    """`born`: the level that a trace opened at the same time would have; 0 for a generator that existed
    before all traces. `lasts`: it persists from one call of a function to the next."""

    def __init__(self, real):
        self.real = real if isinstance(real, np.random.Generator) else np.random.Generator(real)
        super().__init__(self.real.bit_generator)
        self.born, self.lasts = 0, False


class RandomState(np.random.RandomState, metaclass=GeneratorType):
    def __init__(self, real=None):
        self.real = real if isinstance(real, np.random.RandomState) else np.random.RandomState(real)
        super().__init__(self.real._bit_generator)
        self.lasts = False
        self.born = next(Trace.levels) if isinstance(real, (int, np.integer)) else 0


KINDS = {np.random.Generator: Generator, np.random.RandomState: RandomState}
for _real, _ours in KINDS.items():
    for _name in dir(_real):
        if not _name.startswith("_") and callable(getattr(_real, _name)) and _name != "spawn":
            setattr(_ours, _name, method(_name))


def generator_stand_in(real):
    """The stand-in for a NumPy generator in a shadow."""
    made = KINDS[type(real)](real)
    made.lasts = True
    return made


def default_rng(seed=None) -> Generator:
    if type(seed) is Generator:
        return seed
    made = Generator(np.random.default_rng(seed))
    made.born = 0 if seed is None or isinstance(seed, np.random.BitGenerator) else next(Trace.levels)
    made.lasts = seed is None
    return made


random: Any = faces_of("tapegrad.numpy.random", np.random)
random.default_rng, random.Generator, random.RandomState = default_rng, Generator, RandomState
FACES[np.random.default_rng] = default_rng
_legacy = generator_stand_in(np.random.mtrand._rand)
for _name, _f in vars(np.random).items():
    if getattr(_f, "__self__", None) is _legacy.real and _name in ("get_state", "set_state"):
        setattr(random, _name, _f)
    elif getattr(_f, "__self__", None) is _legacy.real:
        setattr(random, _name, getattr(_legacy, _name))
