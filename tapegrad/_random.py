"""NumPy's random generators inside a shadow: the same streams, for arrays and Variables alike.

A generator is compiled code that would exchange the rows of a Variable as views.  Here `shuffle`, `permutation`, `permuted` and
`choice` draw the order, by shuffling numbers, and apply it as a constant index; other methods get what no transform watches as lent
memory, so that out= and shuffled data are right, and refuse a tracked value."""

from typing import Any

import numpy as np

from ._faces import FACES, faces_of, has_variable
from ._loans import lend
from ._primitive import OPEN, Trace, values_of
from ._variable import Variable
from .errors import NoRuleError
from .ops._define import NUMPY, ndim, shape
from .ops._protocols import any_tracked
from .ops.views import shown
from .ops.writing import write_value

take = NUMPY[np.take]


def shuffle(real: Any, x: Any, axis: int = 0) -> None:
    at = np.arange(shape(x)[axis])
    real.shuffle(at)
    write_value(x, take(x, at, axis), Ellipsis)


def permutation(real: Any, x: Any, axis: int = 0) -> Any:
    return take(x, real.permutation(shape(x)[axis]), axis) if ndim(x) else real.permutation(values_of(x))


def permuted(real: Any, x: Any, *, axis: int | None = None, out: Any = None) -> Any:
    like = shown(x if out is None else out)
    at = np.empty_like(like, np.intp)  # in the order of memory, in which all elements are drawn
    at[...] = np.arange(like.size).reshape(shape(x))
    if out is not None and not like.flags.c_contiguous | like.flags.f_contiguous:
        at = at.copy()  # NumPy draws through a copy in C order
    y = take(x, real.permuted(at, axis=axis))
    if out is None:
        return y
    if not isinstance(out, Variable):
        raise NoRuleError("Generator.permuted: out= is a plain array, which cannot hold a derivative; leave out= away")
    write_value(out, y, Ellipsis)
    return out


def choice(real: Any, a: Any, size: Any = None, replace: bool = True, p: Any = None, axis: int = 0, **rest: Any) -> Any:
    if any_tracked([p]) or not ndim(a):
        raise no_rule("choice")
    return take(a, real.choice(shape(a)[axis], size, replace, values_of(p), **rest), axis)


ORDERS = {"shuffle": shuffle, "permutation": permutation, "permuted": permuted, "choice": choice}


def no_rule(name: str) -> NoRuleError:
    return NoRuleError(
        f"numpy.random: {name}() of a tracked value has no derivative rule in tapegrad; draw standard numbers and transform them, "
        "as in mu + sigma * rng.standard_normal(n), or write tapegrad.value(x)"
    )


class Kind(type):
    """NumPy's own generators are instances too."""

    def __instancecheck__(cls, x):
        return isinstance(x, cls.__mro__[1])


def method(name: str) -> Any:
    def call(self, *args, **kwargs):
        f = getattr(self.real, name)
        for trace in OPEN.hiding:
            if trace.level > self.born:
                trace.draws(name)
        if not has_variable(args) and not has_variable(kwargs.values()):
            return f(*args, **kwargs)
        if not any_tracked(args) and not any_tracked(kwargs.values()):
            return given_back(f(*lend(args), **{k: lend(v) for k, v in kwargs.items()}), args, kwargs)
        if name not in ORDERS:
            raise no_rule(name)
        return ORDERS[name](self.real, *args, **kwargs)

    call.__name__ = name
    return call


def given_back(y: Any, args: tuple, kwargs: dict) -> Any:
    """The result of a method, which is the array that was given as out=, if one was."""
    out = kwargs.get("out")
    return y if out is None else out


class Generator(np.random.Generator, metaclass=Kind):
    """`born`: the level that a trace would have that was opened with it; 0 for one that was there before all."""

    def __init__(self, real: Any):
        self.real = real if isinstance(real, np.random.Generator) else np.random.Generator(real)
        super().__init__(self.real.bit_generator)
        self.born = 0


class RandomState(np.random.RandomState, metaclass=Kind):
    def __init__(self, real: Any = None):
        self.real = real if isinstance(real, np.random.RandomState) else np.random.RandomState(real)
        super().__init__(self.real._bit_generator)
        self.born = next(Trace.levels) if isinstance(real, (int, np.integer)) else 0


KINDS = {np.random.Generator: Generator, np.random.RandomState: RandomState}
for _real, _ours in KINDS.items():
    for _name in dir(_real):
        if not _name.startswith("_") and callable(getattr(_real, _name)) and _name != "spawn":
            setattr(_ours, _name, method(_name))


def ours_of(real: Any) -> Any:
    """The generator that stands for one of NumPy's in a shadow."""
    return KINDS[type(real)](real)


def default_rng(seed: Any = None) -> Generator:
    if type(seed) is Generator:
        return seed
    made = Generator(np.random.default_rng(seed))
    made.born = 0 if seed is None else next(Trace.levels)
    return made


random = faces_of("tapegrad.numpy.random", np.random)
random.default_rng, random.Generator, random.RandomState = default_rng, Generator, RandomState
FACES[np.random.default_rng] = default_rng
_legacy = RandomState(np.random.mtrand._rand)
for _name, _f in vars(np.random).items():
    if getattr(_f, "__self__", None) is _legacy.real and _name in ("seed", "get_state", "set_state"):
        setattr(random, _name, _f)
    elif getattr(_f, "__self__", None) is _legacy.real:
        setattr(random, _name, getattr(_legacy, _name))
