"""What the families of distributions have in common: parameters, support, which function answers, SciPy's
own."""

import functools
import math
from collections.abc import Callable
from types import ModuleType

import numpy as np

from .._core.arrays import NUMBERS, is_array, is_scalar, xp_of
from .._core.errors import ArgumentError, NoRuleError
from .._core.foreign import argument, is_table
from .._core.lent_memory import lend
from .._core.primitive import RECORDED, any_tracked, is_tracked, layout_of, primal_of
from .._core.registry import load
from .._core.scope import OPEN, now, put, quiet, setting
from .._core.variable import FLOAT, Variable
from ..ops import shaping
from ..ops.declare import dtype, primitive, rules, xp
from ..ops.elementwise import exp, expm1, log, log1p, select, times0

LOG_2 = math.log(2.0)
QUIET = setting(all="ignore")


def array_argument(x):
    # (`isinstance` asks a Variable for its class)
    return shaping.nested_to_array(x) if issubclass(type(x), (list, tuple)) else x


def number_like(a, x):
    """A Python number as one of the dtype of x, so that float32 stays float32."""
    a = array_argument(a)
    if type(a) not in (int, float):
        return a
    return dtype(x).type(a) if dtype(x).kind == "f" else np.float64(a)


def wide(x):
    """x in at least double precision, as scipy.stats computes; of CuPy's arrays, for which there is no
    scipy.stats, as it is."""
    if type(x) in (int, float):
        return np.float64(x)
    if type(x) in (np.float64, FLOAT):
        return x
    below = layout_of(x)
    if (
        xp_of(below) is not np
        or not (is_array(below) or is_scalar(below))
        or below.dtype.kind not in "fiub"
        or below.dtype.itemsize >= 8
    ):
        return x
    return shaping.astype(x, to=np.float64)


# --- SciPy's own, and when it is asked ---


def scipy_stats() -> ModuleType:
    """scipy.stats, which takes half a second to import, so only when something of it is asked for."""
    return load("scipy.stats")


def all_plain(xs) -> bool:
    """Are these plain values that SciPy takes, none of them tracked?"""
    for x in xs:
        if isinstance(x, Variable):
            if is_tracked(x) or xp_of(layout_of(x)) is not np:
                return False
        elif isinstance(x, (list, tuple)):
            if not all_plain(x):
                return False
        elif not issubclass(type(x), (np.ndarray, np.generic, str, type(None))) and type(x) not in NUMBERS:
            return False
    return True


def tracked_method(method: Callable) -> Callable:
    """A method that is ours where it gets something tracked (outside of transforms always); else SciPy's."""

    @functools.wraps(method)
    def run(self, *args, **given):
        if OPEN.depth and all_plain(args) and all_plain(given.values()):
            return getattr(self.theirs(), method.__name__)(*lend(args), **lend(given))
        if OPEN.depth and not self.knows(method.__name__):
            return getattr(laws().followed_law(self), method.__name__)(*args, **given)
        args = tuple([argument(x) if is_table(x) else x for x in args])
        given = {k: argument(x) if is_table(x) else x for k, x in given.items()}
        return method(self, *args, **given)

    vars(run)["ours"] = True
    return run


def holds_stand_in(args: tuple, given: dict) -> bool:
    """Does an argument stand for an object of SciPy's, such as `CensoredData`?"""
    return any([hasattr(type(x), "_theirs") for x in (*args, *given.values())])


def law_attribute(theirs, name: str, followed: Callable):
    """An attribute of SciPy's law.  A method that gets tracked values is that of `followed()`."""
    f = getattr(theirs, name)
    if not callable(f):
        return f

    @functools.wraps(f)
    def run(*args, **given):
        if OPEN.depth and (any_tracked((args, given)) or holds_stand_in(args, given)):
            return getattr(followed(), name)(*args, **given)
        return f(*lend(args), **lend(given))

    return run


def laws() -> ModuleType:
    return load("tapegrad._scipy.statistics")


@primitive(batch="elementwise")
def quantiles(*xs, name, call):
    """SciPy's quantiles of primal values: probabilities and shape parameters."""
    return getattr(getattr(scipy_stats(), name), call)(*xs).astype(np.result_type(*xs))[()]


@primitive(batch="elementwise")
def scipys_where_uncertain(y, *xs, name, call):
    """y, and where it may not be the function's value what SciPy gives for xs."""
    family = FAMILIES[name]
    with quiet():
        certain = family.certain(call, y, *xs)
    return np.where(certain, y, getattr(family.theirs(), call)(*xs))[()]


def where_finite(t, y, out):
    """A derivative of y. Where y is no finite number, the value is a constant beyond the support, and its
    derivative 0; or it is a limit that the formula lacks, with a derivative of nan."""
    v = primal_of(out)
    constant = (v == 0) | (v == 1) | (v != v) | (abs(v) == math.inf)
    return select(abs(primal_of(y)) < math.inf, t, select(constant, 0.0 * t, times0(t, math.nan)))


rules(
    scipys_where_uncertain,
    joint=lambda g, out, need, y, *xs, name, call: (where_finite(g, y, out), *[None] * len(xs)),
    jvp=lambda t, out, y, *xs, name, call: where_finite(t[0], y, out),
)


def as_scipy(family: "Continuous | Discrete", call: str, y, *xs):
    """y with the value of SciPy's function of xs wherever the formula does not give that; the derivative is
    that of the formula.

    A recording, and a device, do without SciPy: there the formula stands, and nan for parameters that the
    family does not allow."""
    below = layout_of(y)
    if not (is_array(below) or is_scalar(below)):
        return y  # in a kernel
    xs = tuple(map(primal_of, xs))
    if xp_of(below) is not np or any([t.visibility == RECORDED for t in OPEN.hiding]):
        ok = family.allowed(*xs[1:])
        plain = not isinstance(ok, Variable) and xp_of(ok) is np
        return y if plain and np.all(ok) else select(ok, y, dtype(y).type(math.nan))
    if not OPEN.hiding:
        certain = family.certain(call, primal_of(y), *xs)
        if np.all(certain) if is_array(certain) else certain:
            return y
    return scipys_where_uncertain(y, *xs, name=family.name, call=call)


class Distribution:
    """What all have: SciPy's distribution of the same name answers for the methods that have no derivative
    here."""

    name: str

    def __repr__(self) -> str:
        return f"<tapegrad.stats.{self.name}>"

    def theirs(self):
        return getattr(scipy_stats(), self.name)

    def knows(self, call: str) -> bool:
        """Has this method a formula?"""
        return True

    def __getattr__(self, call: str):
        if call.startswith("__") or "name" not in vars(self):
            raise AttributeError(call)
        return law_attribute(self.theirs(), call, lambda: laws().followed_law(self))

    def __call__(self, *args, **given) -> "Frozen":
        return Frozen(self, args, given)


class Frozen:
    """A distribution with its parameters: `norm(loc, scale).logpdf(x)`.  It stands for SciPy's, which a
    function captured, too."""

    def __init__(self, family: Distribution, args: tuple, given: dict):
        self._family, self._args, self._given = family, args, given
        ours = any([hasattr(type(a), "_follower") for a in (*args, *given.values())])  # a `Covariance`
        tracked = ours or any_tracked((args, given))
        self._theirs = None if tracked else family.theirs()(*lend(args), **lend(given))

    @classmethod
    def _of(cls, theirs, shadow) -> "Frozen":
        """What stands for a frozen distribution of SciPy's."""
        new, given = object.__new__(cls), {}
        args = ()
        if hasattr(theirs, "dist"):
            name, args, given = theirs.dist.name, theirs.args, theirs.kwds
        else:
            name = type(theirs).__name__.removesuffix("_frozen")
        law = getattr(scipy_stats(), name, None)
        family = shadow(law) if type(law) is type(getattr(theirs, "dist", law)) else None
        if not isinstance(family, Distribution):  # of a family that is not here: it refuses tracked values
            family = Distribution()
            family.name = name
        elif not hasattr(theirs, "dist") and not hasattr(type(family), "parameters"):
            return laws().FOLLOWED.klass(type(theirs))._of(theirs, shadow)
        elif not hasattr(theirs, "dist"):
            given = family.parameters(theirs)
        new._family, new._theirs = family, theirs
        new._args = tuple([shadow(a) for a in args])
        new._given = {k: shadow(v) for k, v in given.items()}
        return new

    def _handed_back(self):
        """What is left of it after the transform, where the function stored it: SciPy's."""
        if self._theirs is not None:
            return self._theirs
        tracked = any_tracked((self._args, self._given))
        return self if tracked else self._family.theirs()(*lend(self._args), **lend(self._given))

    def __repr__(self) -> str:
        return f"<tapegrad.stats.{self._family.name}, frozen>"

    def __dir__(self) -> list[str]:
        made = scipy_stats()._distn_infrastructure
        frozen = {*dir(made.rv_continuous_frozen), *dir(made.rv_discrete_frozen)}
        return sorted(frozen.intersection(dir(self._family.theirs())))

    def __getattr__(self, call: str):
        if call.startswith("_"):
            raise AttributeError(call)
        family, args, given = self._family, self._args, self._given
        if getattr(getattr(type(family), call, None), "ours", False):
            return lambda *xs, **more: getattr(family, call)(*xs, *args, **given, **more)
        followed = lambda: laws().frozen_law(family, args, given)
        return (
            getattr(followed(), call) if self._theirs is None else law_attribute(self._theirs, call, followed)
        )


CALLS = ("logpdf", "cdf", "sf", "logcdf", "logsf", "ppf", "isf")


FAMILIES: dict = {}  # name -> family


def is_positive(*shapes):
    """The usual condition on shape parameters."""
    ok = True
    for s in shapes:
        ok = (s > 0) & ok
    return ok


def of_value(call: str, *outside: float) -> Callable:
    """The method `call` of a continuous family; `outside`: its value below and above the support."""

    def method(self, x, *args, loc=0.0, scale=1.0, **given):
        return self._answer(call, x, args, loc, scale, given, *outside)

    method.__name__ = call
    return tracked_method(method)


def of_count(call: str, answer: Callable, *outside: float) -> Callable:
    """The method `call` of a discrete family."""

    def method(self, k, *args, loc=0, **given):
        return answer(self, call, k, args, loc, given, *outside)

    method.__name__ = call
    return tracked_method(method)


class Continuous(Distribution):
    """A family of densities with location and scale.  Its functions of the standardised z and the shape
    parameters are given as texts of mathematics below: `logpdf` and, where known, the distribution function
    in the forms that are exact.

    `valid` says for which shape parameters these formulas are right.  For other parameters, at the ends of
    the support and where a formula is not finite, the value is what SciPy's distribution gives; see
    `as_scipy`.  `follows` names the functions whose formula is SciPy's own Python code, followed."""

    def __init__(
        self,
        name: str,
        shapes: str = "",
        low=-math.inf,
        high=math.inf,
        valid: Callable = is_positive,
        follows: str = "",
        symmetric: bool = False,
        **functions,
    ):
        self.name, self._shapes, self.valid = name, shapes.split(), valid
        ends: list = [None if end in (-math.inf, math.inf) else end for end in (low, high)]
        self.low, self.high = ends
        self.followed = follows.split()
        followed = {call: functools.partial(self._scipys, call) for call in self.followed}
        self.functions = completed({**functions, **followed}, symmetric)
        self._nan_at = {}
        FAMILIES[name] = self

    def _parameters(self, call: str, x, args: tuple, loc, scale, given: dict) -> tuple:
        """(x, the shape parameters, loc, scale)."""
        k = len(self._shapes)
        if given:
            args = args + tuple([given.pop(n) for n in self._shapes[len(args) :] if n in given])
        if given or not k <= len(args) <= k + 2:
            wanted = ", ".join(["x", *self._shapes, "loc=0", "scale=1"])
            more = f" and {', '.join(given)}" if given else ""
            raise ArgumentError(f"{self.name}.{call} takes ({wanted}); got {1 + len(args)} arguments{more}")
        loc = args[k] if len(args) > k else loc
        scale = args[k + 1] if len(args) > k + 1 else scale
        x = wide(array_argument(x))
        return x, tuple([number_like(a, x) for a in args[:k]]), number_like(loc, x), number_like(scale, x)

    def knows(self, call: str) -> bool:
        return {"pdf": "logpdf", "ppf": "cdf", "isf": "sf"}.get(call, call) in self.functions

    def _scipys(self, call: str, z, *shapes):
        """The result of SciPy's formula, in the precision of z."""
        y = laws().formula(self.name, call)(z, *shapes)
        return y if dtype(y) == dtype(z) or dtype(z).kind != "f" else shaping.astype(y, to=dtype(z))

    def _function(self, call: str) -> Callable:
        if call not in self.functions:
            raise ArgumentError(
                f"{self.name}.{call} has no derivative in tapegrad; there are: "
                f"{', '.join(n for n in CALLS if n in self.functions)}"
            )
        return self.functions[call]

    def _limits(self, shapes: tuple) -> list:
        """The ends of the support of the standardised z; None for an infinite one."""
        return [end(*shapes) if callable(end) else end for end in (self.low, self.high)]

    def _edges(self, call: str, z, y, shapes: tuple, below: float, above: float):
        """y, and constants outside the support, and at its ends where the formula is nan."""
        low, high = self._limits(tuple(map(primal_of, shapes)))
        for end, before, out in ((low, np.less, below), (high, np.greater, above)):
            if end is not None:
                at = primal_of(z)
                outside = before(at, end)
                if before in self._undefined(call):
                    outside = outside | (at == end) & (primal_of(y) != primal_of(y))
                y = select(outside, dtype(y).type(out), y)
        return y

    def _undefined(self, call: str) -> list:
        """At which ends of the support is the formula nan?  Found out once, by a trial."""
        if call not in self._nan_at:
            shapes = np.arange(2.0, 2.0 + len(self._shapes))
            ends = zip((np.less, np.greater), self._limits(tuple(shapes)), strict=True)
            f = self._function(call)
            self._nan_at[call] = [
                before for before, end in ends if end is not None and np.isnan(f(np.float64(end), *shapes))
            ]
        return self._nan_at[call]

    def allowed(self, *params):
        """Has the family a distribution of these shape parameters, loc and scale?  All are without
        derivatives."""
        return self.valid(*params[:-2]) & (params[-1] > 0)

    def certain(self, call: str, y, x, *params):
        """Where does the formula's y hold, so that SciPy's value need not be asked for?  All are without
        derivatives."""
        ok = self.allowed(*params) & (abs(y) < math.inf)
        if call in ("ppf", "isf"):
            return ok & (x > 0) & (x < 1)
        if self.low is self.high is None:
            return ok
        low, high = self._limits(params[:-2])
        z = (x - params[-2]) / params[-1]
        inside = True
        if low is not None:
            inside = (z > low) & inside
        if high is not None:
            inside = (z < high) & inside
        return ok & inside

    def _answer(self, call: str, x, args: tuple, loc, scale, given: dict, below: float, above: float):
        x, shapes, loc, scale = self._parameters(call, x, args, loc, scale, given)
        before = now()
        put(QUIET)
        try:
            z = (x - loc) / scale
            name = "logpdf" if call == "pdf" else call
            y = self._function(name)(z, *shapes)
            y = y - log(scale) if name == "logpdf" else y
            if not self.low is self.high is None:
                y = self._edges(name, z, y, shapes, below, above)
            y = exp(y) if call == "pdf" else y
        finally:
            put(before)
        return as_scipy(self, call, y, x, *shapes, loc, scale)

    logpdf, pdf = of_value("logpdf", -math.inf, -math.inf), of_value("pdf", -math.inf, -math.inf)
    cdf, sf = of_value("cdf", 0.0, 1.0), of_value("sf", 1.0, 0.0)
    logcdf, logsf = of_value("logcdf", -math.inf, 0.0), of_value("logsf", 0.0, -math.inf)

    def _quantile(self, call: str, q, args: tuple, loc, scale, given: dict):
        q, shapes, loc, scale = self._parameters(call, q, args, loc, scale, given)
        with quiet():
            z = self.functions[call](q, *shapes) if call in self.functions else self._solved(call, q, shapes)
            y = z * scale + loc
        return as_scipy(self, call, y, q, *shapes, loc, scale)

    def _solved(self, call: str, q, shapes: tuple):
        """What SciPy finds, with the derivatives of two of Newton's steps from it: the first is right to
        first order, the second to third order."""
        direct = self._function("cdf" if call == "ppf" else "sf")
        if xp(q) is not np:
            raise ArgumentError(
                f"scipy.stats.{self.name}.{call}: CuPy has no such function; move the arguments with a.get()"
            )
        z = found = quantiles(*[primal_of(v) for v in (q, *shapes)], name=self.name, call=call)
        if any_tracked((q, *shapes)):
            for _ in range(2):
                step = (direct(z, *shapes) - q) / exp(self._function("logpdf")(z, *shapes))
                z = z - step if call == "ppf" else z + step
            z = found + (z - primal_of(z))
        return z

    @tracked_method
    def ppf(self, q, *args, loc=0.0, scale=1.0, **given):
        return self._quantile("ppf", q, args, loc, scale, given)

    @tracked_method
    def isf(self, q, *args, loc=0.0, scale=1.0, **given):
        return self._quantile("isf", q, args, loc, scale, given)


def log1mexp(x):
    """log(1 - exp(x)) of x <= 0."""
    small = primal_of(x) > -LOG_2
    one = dtype(x).type(1)
    return select(small, log(-expm1(select(small, x, -one))), log1p(-exp(select(small, -one, x))))


def is_finite(c):
    return abs(c) < math.inf


def composed(f: Callable, g: Callable) -> Callable:
    return lambda x, *shapes: f(g(x, *shapes))


def image(law, to, back=None):
    """The functions of a number that `to` maps to one of the law, and the quantiles by its inverse."""
    found = {call: composed(law.functions[call], to) for call in ("cdf", "sf", "logcdf", "logsf")}
    for call in ("ppf", "isf") if back else ():
        found[call] = lambda q, *shapes, quantile=law.functions[call]: back(quantile(q), *shapes)
    return found


def completed(given: dict, symmetric=False) -> dict:
    """The functions that follow from those given: of a law that is symmetric about 0 from one tail the other;
    from the logarithm of one tail the other tail; from the inverse of a logarithm, `from_logcdf` or
    `from_logsf`, the quantiles from both sides; from the distribution function its logarithm."""
    if symmetric:
        for one, other in (("cdf", "sf"), ("logcdf", "logsf")):
            if one in given:
                given[other] = lambda z, *shapes, f=given[one]: f(-z, *shapes)
        if "ppf" in given:
            given["isf"] = composed(lambda z: -z, given["ppf"])
    f = dict(given)
    for one, other, mine, its in (("cdf", "sf", "ppf", "isf"), ("sf", "cdf", "isf", "ppf")):
        log_one, log_other = "log" + one, "log" + other
        if log_one in given:
            f.setdefault(one, composed(exp, given[log_one]))
            if log_other not in given:
                f.setdefault(other, composed(lambda y: -expm1(y), given[log_one]))
            f.setdefault(log_other, composed(log1mexp, given[log_one]))
        if "from_" + log_one in given:
            back = given["from_" + log_one]
            f.setdefault(mine, lambda q, *shapes, back=back: back(log(q), *shapes))
            f.setdefault(its, lambda q, *shapes, back=back: back(log1p(-q), *shapes))
    for one, other in (("cdf", "sf"), ("sf", "cdf")):
        if one in f and other not in f:
            f[other] = composed(lambda y: 1.0 - y, f[one])
    for one in ("cdf", "sf"):
        if one in f:
            f.setdefault("log" + one, composed(log, f[one]))
    if "ppf" in f:
        f.setdefault("isf", lambda q, *shapes: f["ppf"](1.0 - q, *shapes))
    return f


class Discrete(Distribution):
    """A family of probabilities of integers k, which are constants; derivatives are those in the parameters.
    `cdf` and `sf`, where given, are functions of the whole part of k inside the support. The support begins
    at `first` and ends at `last` of the parameters, if it ends. `inside` tells another one."""

    def __init__(
        self,
        name: str,
        shapes: str,
        logpmf: Callable,
        first: float = 0,
        last: Callable | None = None,
        valid: Callable = is_positive,
        inside: Callable | None = None,
        **functions,
    ):
        self.name = name
        self._shapes = shapes.split()
        self._logpmf = logpmf
        self._first, self._last = first, last
        self._inside = inside or self._in_range
        self.valid, self.functions = valid, completed(functions)
        FAMILIES[name] = self

    def _parameters(self, call: str, k, args: tuple, loc, given: dict) -> tuple:
        args = args + tuple([given.pop(n) for n in self._shapes[len(args) :] if n in given])
        args, loc = (args[:-1], args[-1]) if len(args) == len(self._shapes) + 1 else (args, loc)
        if given or len(args) != len(self._shapes):
            more = f" and {', '.join(given)}" if given else ""
            raise ArgumentError(
                f"{self.name}.{call} takes (k, {', '.join(self._shapes)}, loc=0); got {1 + len(args)} "
                f"arguments{more}"
            )
        return (
            primal_of(array_argument(k)),
            primal_of(array_argument(loc)),
            tuple([wide(array_argument(a)) for a in args]),
        )

    def _in_range(self, k, *params):
        begun = k >= self._first
        return begun if self._last is None else begun & (k <= self._last(*params))

    def knows(self, call: str) -> bool:
        return call in ("logpmf", "pmf", *self.functions)

    def allowed(self, *params):
        """As of a continuous family; the last of `params` is loc."""
        return self.valid(*params[:-1])

    def certain(self, call: str, y, k, *params):
        """As of a continuous family."""
        return self.allowed(*params) & (abs(y) < math.inf) & (k - params[-1] >= self._first)

    def _mass(self, call: str, k, args: tuple, loc, given: dict):
        k, loc, args = self._parameters(call, k, args, loc, given)
        at = k - loc
        with quiet():
            inside = (at == np.floor(at)) & self._inside(at, *map(primal_of, args))
            y = self._logpmf(at * 1.0, *args)
            y = select(inside, y, dtype(y).type(-math.inf))
            y = exp(y) if call == "pmf" else y
        return as_scipy(self, call, y, k, *args, loc)

    def _of_value(self, call: str, k, args: tuple, loc, given: dict, below: float, above: float):
        k, loc, args = self._parameters(call, k, args, loc, given)
        if call not in self.functions:
            raise NoRuleError(
                f"{self.name}.{call} has no derivative in tapegrad; sum {self.name}.pmf, or cut the "
                f"derivative with tapegrad.value"
            )
        at = np.floor(k - loc) * 1.0
        with quiet():
            inside = self._inside(at, *map(primal_of, args))
            y = self.functions[call](select(inside, at, self._first + 0.0), *args)
            y = select(at < self._first, dtype(y).type(below), select(inside, y, dtype(y).type(above)))
        return as_scipy(self, call, y, k, *args, loc)

    logpmf, pmf = of_count("logpmf", _mass), of_count("pmf", _mass)
    cdf, sf = of_count("cdf", _of_value, 0.0, 1.0), of_count("sf", _of_value, 1.0, 0.0)
    logcdf = of_count("logcdf", _of_value, -math.inf, 0.0)
    logsf = of_count("logsf", _of_value, 0.0, -math.inf)
