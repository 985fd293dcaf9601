"""The table of operations: one line each, `case(name, f, *inputs)`; tests/ops/test_grid.py runs every line
through all checks.

The first word of the name is the operation that the line covers (its name in the registry); `covers` names
further ones. Inputs are NumPy arrays away from corners and edges of the domain; f gets them on NumPy or CuPy
and may name NumPy or SciPy
functions.  Families stand in files cases_*.py, each with a list CASES."""

import importlib
import inspect
import pathlib
import zlib
from dataclasses import dataclass

import numpy as np

from tapegrad.ops import on_demand
from tapegrad.ops.declare import NUMPY
from tapegrad.ops.special import incomplete


@dataclass
class Case:
    """`order`: highest order of derivatives checked; 0: the derivative is zero.  `kinds`: variants of the inputs to run, from
    'scalar' (0-d and Python numbers), 'empty', 'strided', 'float32', 'broadcast' (of two inputs)."""

    name: str
    f: object
    inputs: tuple
    order: int = 3
    kinds: tuple = ("strided", "float32")
    covers: tuple = ()
    rtol: float = 1e-9
    eps: float = 1e-3
    numpy_only: bool = False
    single: float = 2e-4  # relative tolerance in float32

    def __repr__(self):
        return self.name.replace(" ", "-")

    def of_floats(self):
        """f of those inputs alone that are floating point numbers, and these."""
        inputs = [np.asarray(x) for x in self.inputs]

        def f(*xs):
            xs = iter(xs)
            return self.f(*[next(xs) if x.dtype.kind in "fc" else x for x in inputs])

        return f, tuple([x for x in inputs if x.dtype.kind in "fc"])


ELEMENTWISE = ("scalar", "empty", "strided", "float32")


def case(name, f, *inputs, **options):
    return Case(name, f, inputs, **options)


def unary(name, f, x, **options):
    return Case(name, f, (x,), **{"kinds": ELEMENTWISE, **options})


def binary(name, f, x, y, **options):
    return Case(name, f, (x, y), **{"kinds": (*ELEMENTWISE, "broadcast"), **options})


def registered(f):
    """SciPy's Python functions do not dispatch: f itself on NumPy arrays, else what tapegrad has registered
    for it."""
    ours = NUMPY[f]

    def run(*args, **params):
        plain = all(type(a).__module__ in ("numpy", "builtins") for a in args)
        return (f if plain else ours)(*args, **params)

    return run


# --- inputs ---


def _rng(*key):
    return np.random.default_rng(zlib.crc32(repr(key).encode()))


def normal(*shape, seed=0):
    return _rng("normal", shape, seed).standard_normal(shape)


def cnormal(*shape, seed=0):
    rng = _rng("cnormal", shape, seed)
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


def between(low, high, *shape, seed=0):
    """Numbers in the open interval, well inside."""
    pad = 0.05 * (high - low)
    return _rng("between", low, high, shape, seed).uniform(low + pad, high - pad, shape)


def positive(*shape, seed=0):
    return between(0.3, 2.5, *shape, seed=seed)


def distinct(*shape, seed=0):
    """Numbers that differ from each other, and from zero, by at least 0.2: for sorting and extremes."""
    n = int(np.prod(shape))
    return (_rng("distinct", shape, seed).permutation(n) * 0.37 - 0.37 * (n // 2) + 0.11).reshape(shape)


def all_cases():
    """The lines of all families, in the order of their files' names."""
    names = sorted(p.stem for p in pathlib.Path(__file__).parent.glob("cases_*.py"))
    return [c for name in names for c in importlib.import_module(name).CASES]


def all_lines():
    """The lines of what is declared with tapegrad.scipy, in files names_*.py, each with a list LINES:
    tests/ops/test_scipy_names.py runs them, in the default run by fewer checks."""
    names = sorted(p.stem for p in pathlib.Path(__file__).parent.glob("names_*.py"))
    return [c for name in names for c in importlib.import_module(name).LINES]


def covered(cases):
    """The names of the operations that lines cover."""
    return {c.name.split()[0] for c in cases}.union(*[c.covers for c in cases])


ON_DEMAND = (
    "tapegrad.ops.special.declare",
    *[x.__name__ for x in vars(on_demand).values() if inspect.ismodule(x)],
)


def declared_late(entry):
    """Is the operation, or the composition, one of those that are declared with tapegrad.scipy or
    tapegrad.stats?"""
    if any([x is entry for x in vars(incomplete).values()]):  # loaded with tapegrad
        return False
    return getattr(getattr(entry, "prim", None), "run", entry).__module__.startswith(
        (*ON_DEMAND, "tapegrad.stats")
    )


def of_subpackage(entry):
    """Is it one of a subpackage of SciPy's?  (Some have the name of what they wrap.)"""
    return any(
        [
            "tapegrad._scipy" in (home or "")
            for home in (entry.__module__, getattr(entry, "__globals__", {}).get("__name__"))
        ]
    )
