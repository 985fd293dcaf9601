"""What `numba.vectorize` and `numba.guvectorize` made, called with tracked values: a loop over the cores of
the arguments.  A core of `vectorize` is an element."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from .._core.errors import ArgumentError, callers_line
from ..ops.creation import as_variable, asarray
from ..ops.declare import dtype, shape
from ..ops.shaping import astype, broadcast_to, reshape
from .operation import programs_of
from .program import LoopRefused


class UniversalFunction:
    """The Python function of u, the axes of its cores, and the loop over these."""

    def __init__(self, u):
        self.u, self.name = u, u.__name__
        builder: Any = getattr(u, "gufunc_builder", None)
        self.writes = builder is not None  # the function writes its results; or it returns the one it has
        self.f = builder.py_func if self.writes else u._dispatcher.py_func
        if self.writes:
            ins, outs = [side.split(")") for side in builder.signature.replace(" ", "").split("->")]
            self.cores = [
                tuple(filter(None, part.strip(",(").split(","))) for part in [*ins[:-1], *outs[:-1]]
            ]
            self.nin = len(ins) - 1
            declared = [getattr(t, "ndim", 0) for t in builder._sigs[0].args] if builder._sigs else []
            # a number may be declared as an array of one element; each result is one
            self.boxed = [
                k >= self.nin or k < len(declared) and declared[k] > 0 for k in range(len(self.cores))
            ]
        else:
            self.cores, self.nin = [()] * (u.nin + 1), u.nin
            self.boxed = [False] * u.nin + [True]
        self.loop = self.written_loop()

    def written_loop(self):
        """The loop, compiled.  It gets the first values of its results, whose core has an axis at least."""
        names = [f"x{n}" for n in range(len(self.cores))]
        makes = [f"y{n} = x{n}.copy()" for n in range(self.nin, len(names))]
        results = [f"y{n}" for n in range(self.nin, len(names))]
        given, kept = [f"{x}[i]" for x in names[: self.nin]], [f"{y}[i]" for y in results]
        call = (
            f"f({', '.join([*given, *kept])})"
            if self.writes
            else f"{results[0]}[i, 0] = f({', '.join(given)})"
        )
        lines = [*makes, "for i in range(x0.shape[0]):", f"    {call}", f"return {', '.join(results)}"]
        text = f"def loop({', '.join(names)}):\n    " + "\n    ".join(lines)
        space = {"f": njit(self.f), "__name__": self.f.__module__}
        exec(compile(text, f"<numba: {self.name}>", "exec"), space)
        return njit(space["loop"])

    def dtypes(self, args: list) -> list:
        """The dtypes with which Numba's own function runs."""
        given = [dtype(x) for x in args]
        if self.writes and not self.u.is_dynamic:
            return list(self.u.ufunc.resolve_dtypes((*given, *[None] * (len(self.cores) - self.nin))))
        single = all(d == np.float32 for d in given)
        return [*given, *[np.dtype(np.float32 if single else np.float64)] * (len(self.cores) - self.nin)]

    def sizes(self, args: list) -> tuple[tuple, dict]:
        """The shape over which the function is broadcast, and the lengths of the axes of cores."""
        lengths = {}
        for x, core in zip(args, self.cores, strict=False):
            own = shape(x)[len(shape(x)) - len(core) :]
            if len(own) < len(core) or any(
                lengths.setdefault(a, n) != n for a, n in zip(core, own, strict=True)
            ):
                raise ValueError(f"{self.name}: an argument of shape {shape(x)} does not fit the signature")
        outer = [shape(x)[: len(shape(x)) - len(core)] for x, core in zip(args, self.cores, strict=False)]
        return np.broadcast_shapes(*outer), lengths

    def __call__(self, args: tuple, kwargs: dict, follow: Callable):
        outs = kwargs.get("out", ())
        args = (*args, *(outs if type(outs) is tuple else (outs,)))
        if not kwargs.keys() <= {"out"} or len(args) not in (self.nin, len(self.cores)):
            raise ArgumentError(
                f"{callers_line()}: {self.name}, made by numba, takes its {self.nin} arguments and out= "
                "alone for a tracked value"
            )
        inputs = [asarray(x) for x in args[: self.nin]]
        to, lengths = self.sizes([*inputs, *args[self.nin :]])
        kinds = self.dtypes(inputs)
        flat = []
        for n, (core, kind) in enumerate(zip(self.cores, kinds, strict=True)):
            inner = tuple([lengths[a] for a in core])
            if n < self.nin:
                x = broadcast_to(astype(inputs[n], to=kind), to=(*to, *inner))
            else:
                x = args[n] if len(args) > n else np.zeros((*to, *inner), kind)
            inner = inner or (1,) * self.boxed[n]
            flat.append(reshape(x, to=(-1, *inner) if inner else (-1,)))
        try:
            found = programs_of(self.loop)(self.loop.py_func, tuple(flat), {})
        except LoopRefused:
            found = self.followed(follow(), flat)
        found = found if type(found) is tuple else (found,)
        return self.results(found, args[self.nin :], to, lengths, kinds)

    def followed(self, f: Callable, flat: list) -> tuple:
        """The loop in Python: f is the followed function."""
        results = [as_variable(np.empty(shape(x), dtype(x))) for x in flat[self.nin :]]
        for y, x in zip(results, flat[self.nin :], strict=True):
            y[...] = x
        for i in range(shape(flat[0])[0]):
            given = [x[i] for x in flat[: self.nin]]
            if self.writes:
                f(*given, *[y[i] for y in results])
            else:
                results[0][i, 0] = f(*given)
        return tuple(results)

    def results(self, found: tuple, outs: tuple, to: tuple, lengths: dict, kinds: list):
        got = [
            astype(reshape(y, to=(*to, *[lengths[a] for a in core])), to=kind)
            for y, core, kind in zip(found, self.cores[self.nin :], kinds[self.nin :], strict=True)
        ]
        for x, y in zip(outs, got, strict=False):
            x[...] = y
        got = list(outs) or got
        return got[0] if len(got) == 1 else tuple(got)


universal = functools.lru_cache(256)(UniversalFunction)
