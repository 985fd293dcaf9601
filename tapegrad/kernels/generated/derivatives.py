"""A generated kernel as operations of the array tape, closed under differentiation.

Let f be the traced function of theta (rows, samples) and data. Let v1 .. vn be directions of the shape of
theta, y1 .. ym directions of the shape of the data, and W a cotangent of f. Three families cover every
nesting of transforms:

    F(theta, data, v.., y..)       = D^(n+m) f [v.., y..]             n + m times forward mode on the program
    R(theta, data, v.., y.., W)    = gradient of <W, F> by theta      and one reverse sweep D(theta, data,
    v.., y.., W)    = gradient of <W, F> by the data   the same; summed over samples that share the data

The gradient of <W, F> with respect to theta is R, and with respect to the data D. With respect to v_i it is R
without v_i, and with respect to y_i it is D without y_i. Moreover <U, R> = <W, F(.., v = U)> and <U, D> = <W,
F(.., y = U)>. The derivatives of R and D are therefore of the same kinds. Forward rules follow in the same
way.

If f is one number for each sample, W is left out of R and multiplied outside. `VG` computes F and R without
directions in one launch. `FR` is F, and R that reads the steps
of F, in two launches. `VGD` adds D for W = 1, for data of each sample; D leaves out the first
`observed` rows. Each program is derived and compiled when it is first needed."""

import functools
import math
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..._core.arrays import xp_of
from ..._core.errors import ArgumentError
from ..._core.primitive import Primitive, bind, joint_primitive, layout_of
from ..._core.scope import lock, scope_block
from ...ops import shaping
from ...ops.declare import sum_of_given
from ..emit.lower import SUMS, LoweredProgram, lower_program
from ..graph.adjoint import forward, reverse
from ..graph.program import KernelProgram
from ..launch.cpu import Launcher
from ..launch.recording import StepRecorder
from ..launch.stored import StoredLauncher
from ..trace.captured import steadily
from .samples import batched_as

# which groups of outputs have the dtype of the sums
PRECISE = {"F": (True,), "R": (False,), "D": (), "VG": (True, False), "VGD": (True, False)}


def direction_counts(n) -> tuple[int, int]:
    """Return the numbers of directions of theta and of the data; a single number counts those of theta."""
    return (n, 0) if isinstance(n, int) else n


class Family:
    """All derivatives of one traced function.

    `scalar`: the function gives one number for each sample. Otherwise it gives rows, or numbers of each step.
    `reject`: nan becomes -inf, and derivatives are 0 where the number is not finite. `by_data`: the second
    argument may be differentiated. `sums`: sums and F are float64 even for a float32 theta, and gradients are
    rounded."""

    def __init__(
        self,
        name: str,
        base: Callable[[tuple], KernelProgram],
        scalar: bool,
        reject: bool,
        by_data: bool = True,
        sums: bool = False,
    ):
        self.name, self.base, self.scalar, self.reject, self.by_data, self.sums = (
            name,
            base,
            scalar,
            reject,
            by_data,
            sums,
        )
        self.lock = lock()
        self.key: str | None = None  # a name for everything that the traced function depends on
        self.short = False  # does it run for few steps?
        self.general = False  # are numbers arguments of the code? (for numbers that change)
        self.captured = []  # objects captured by the traced functions
        self.observed = 0
        self.programs = {}
        self.launchers = {}
        self.recordings = {}
        self.recorder = None  # that of the last launch
        self.prims = {}
        self.seconds = [0.0]  # spent on traces and compilation

    def renewed(self) -> "Family":
        """Return an untraced copy, after a captured object has changed and may change again."""
        new = Family(self.name, self.base, self.scalar, self.reject, self.by_data, self.sums)
        new.short, new.observed, new.general = self.short, self.observed, True
        return new

    # --- programs and code ---

    def program(self, signature: tuple, n) -> KernelProgram:
        """Return the program after n applications of forward mode."""
        thetas, data = direction_counts(n)
        key = signature, thetas, data
        if key not in self.programs:
            if data:
                made = forward(self.program(signature, (thetas, data - 1)), None)
            else:
                made = forward(self.program(signature, thetas - 1), 0) if thetas else self.traced(signature)
            self.programs[key] = made
        return self.programs[key]

    def traced(self, signature: tuple) -> KernelProgram:
        return steadily(lambda: self.base(signature), self.name, self.captured)

    def derived(self, kind: str, n, signature: tuple) -> KernelProgram:
        p = self.program(signature, n)
        g, outputs, made = p.g, list(p.outputs), p
        gradient = []
        inputs, seeds = list(p.inputs), [g.one] * len(outputs)
        if kind != "F":
            if outputs and (kind == "D" or not self.scalar):
                seeds = g.parameters_like(sum(inputs), outputs)
                inputs.append(sum([p.rows_of(k) for k in range(len(p.groups))]))
            made, gradient = reverse(p, [] if kind == "D" else p.thetas(0), seeds, kind in ("D", "VGD"))
            for loop, given in zip(made.loops, p.loops if kind == "FR" else (), strict=False):
                loop.each = list(given.each)
            for loop in made.loops if kind == "VGD" else ():
                loop.each = loop.each[self.observed :]
        if self.reject:
            (v,) = self.program(signature, 0).outputs
            good = g.compare("lt", g.node("abs", v), g.const(np.inf))
            gradient = [g.select(good, d, g.zero) for d in gradient]
            outputs = [
                g.select(g.isnan(v), g.const(-np.inf), v)
                if direction_counts(n) == (0, 0)
                else g.select(good, o, g.zero)
                for o in outputs
            ]
            for loop in made.loops if kind in ("D", "VGD") else ():
                loop.each = [g.select(good, e, g.zero) for e in loop.each]
        both = [outputs, gradient]
        groups = {
            "F": [outputs] if outputs else [],
            "R": [gradient],
            "FR": [gradient],
            "D": [],
            "VG": both,
            "VGD": both,
        }[kind]
        return replace(made, inputs=inputs, groups=groups)

    def wide(self, dtype: np.dtype) -> bool:
        """Return whether sums are wider than this dtype of theta."""
        return self.sums and dtype.itemsize < SUMS.itemsize

    def lowered(self, kind: str, n, signature: tuple, dtype: np.dtype, keep: bool = False) -> LoweredProgram:
        try:
            return lower_program(
                self.derived(kind, n, signature), PRECISE[kind] if self.wide(dtype) else None, keep
            )
        except BaseException:
            self.programs.clear()  # an interrupt may have left the graph incomplete
            raise

    def launcher(
        self, kind: str, n, signature: tuple, dtype: np.dtype, per_sample: bool, make: Callable = Launcher
    ):
        key = kind, direction_counts(n), signature, dtype, per_sample, make
        found = self.launchers.get(key)
        if found is None:
            with scope_block(), self.lock:
                found = self.launchers.get(key)
                if found is None:
                    begin = time.perf_counter()

                    def trace():
                        low = self.lowered(kind, n, signature, dtype, make is Launcher)
                        low.name, low.general = f"{self.name}.{kind}{sum(direction_counts(n))}", self.general
                        return low

                    if self.key is not None and make is Launcher:
                        found = StoredLauncher(
                            f"{self.key} {kind} {direction_counts(n)} {signature}",
                            trace,
                            dtype,
                            per_sample,
                            self.short,
                            direction_counts(n) != (0, 0),
                        )
                    else:
                        found = make(trace(), dtype, per_sample)
                    self.launchers[key] = found
                    self.seconds[0] += time.perf_counter() - begin
        return found

    def recording(self, signature: tuple, dtype: np.dtype, per_sample: bool) -> StepRecorder | None:
        """Return F and R as two launches, of which the second reads the steps of the first; or None. A kernel
        that may lie on disk is not traced to tell."""
        key = signature, dtype, per_sample
        if key not in self.recordings:
            with scope_block(), self.lock:
                found = None
                if self.key is None and any([loop.inner for loop in self.program(signature, 0).loops]):
                    found = self.launcher("FR", 0, signature, dtype, per_sample, StepRecorder)
                self.recordings[key] = found if found and found.separable else None
        return self.recordings[key]

    # --- operations of the tape ---

    def apply(self, kind: str, n: tuple, arrays: tuple, run: Callable):
        """Apply the operation to (theta, data, directions..., W); `run(kind, n, arrays)` launches it."""
        return bind(self.prim(kind, n), arrays, {"run": run})

    def prim(self, kind: str, n: tuple) -> Primitive:
        key = kind, n
        found = self.prims.get(key)
        if found is None:
            pull, push = {
                "F": (self.pull_value, self.push_value),
                "R": (self.pull_gradient, self.push_gradient),
                "D": (self.pull_gradient, self.push_gradient),
                "VG": (self.pull_both, self.push_both),
            }[kind]
            at, both = ArgumentLayout(self, kind, n), kind == "VG"
            found = self.prims[key] = joint_primitive(
                f"{self.name}_{kind}{n[0]}{n[1]}",
                lambda *arrays, run: run(kind, n, arrays),
                lambda g, out, need, *arrays, run: pull(at, run, g, out, self.checked(need), arrays),
                lambda t, out, *arrays, run: push(at, run, self.checked(t), out, arrays),
                both,
                2 * both,
            )
            found.batch = batched_as(kind, n, not self.by_data)
        return found

    def column(self) -> Primitive:
        """Return F of one sample as (arrays.., data) -> (the first rows, the others), of (rows, steps) each.

        theta is made of the arrays; `first` is the number of the first rows."""
        found = self.prims.get("column")
        if found is None:
            name = f"{self.name}_column"
            found = joint_primitive(name, self.run_column, self.pull_column, self.push_column, multi=2)
            found.batch, self.prims["column"] = "inside", found
        return found

    def run_column(self, *arrays, run, first):
        theta, data = sample_column(arrays[:-1]), arrays[-1]
        if type(theta) is np.ndarray is type(data):
            found = run("F", (0, 0), (theta, data))
            return found[:first, :, 0], found[first:, :, 0]
        return two_parts(self.F(run, theta, data), first)

    def pull_column(self, g, out, need, *arrays, run, first):
        theta, data, w = sample_column(arrays[:-1]), arrays[-1], column_rows(g, out)
        terms, end = [None] * len(arrays), 0
        if any(need[:-1]):
            plain = type(theta) is np.ndarray is type(data) is type(w)
            gradient = run if plain else functools.partial(self.apply, run=run)
            r = gradient("R", (0, 0), (theta, data, w))
            for k, x in enumerate(arrays[:-1]):
                shape, start = layout_of(x).shape, end
                end += math.prod(shape)
                if need[k]:
                    terms[k] = r[start:end].reshape(shape)
        if need[-1]:
            terms[-1] = self.gradient("D", run, theta, data, (), (), w)
        return terms

    def push_column(self, t, out, *arrays, run, first):
        theta, data = sample_column(arrays[:-1]), arrays[-1]
        made = [np.zeros(layout_of(x).shape) if dx is None else dx for x, dx in zip(arrays, t, strict=True)]
        ways: list = [((sample_column(made[:-1]),), ())] if any([dx is not None for dx in t[:-1]]) else []
        ways += [((), (t[-1],))] if t[-1] is not None else []
        return two_parts(sum_of_given([self.F(run, theta, data, *way) for way in ways]), first)

    def checked(self, need: tuple) -> tuple:
        """Return `need` (or the tangents); raise if a missing derivative is asked for."""
        if not self.by_data and need[1] is not None and need[1] is not False:
            raise ArgumentError(
                f"{self.name}: a generated kernel has no derivative by its whole-number or Const arguments"
            )
        return need

    def F(self, run, theta, data, vs=(), ys=()):
        return self.apply("F", (len(vs), len(ys)), (theta, data, *vs, *ys), run)

    def gradient(self, kind, run, theta, data, vs, ys, W):
        """Return R or D; W may be None (ones) if f is one number for each sample."""
        n = len(vs), len(ys)
        if not self.scalar:
            return self.apply(kind, n, (theta, data, *vs, *ys, W), run)
        if kind == "R":
            r = self.apply("R", n, (theta, data, *vs, *ys), run)
            return r if W is None else r * W.reshape(1, -1)
        if W is None:
            W = xp_of(layout_of(theta)).ones(theta.shape[1], layout_of(theta).dtype)
        return self.apply("D", n, (theta, data, *vs, *ys, W), run)

    def pull_value(self, at, run, g, out, need, arrays):
        theta, data, vs, ys, _ = at.parts(arrays)
        return tuple(self.shares(run, theta, data, vs, ys, g, need, at.n))

    def shares(self, run: Callable, theta, data, vs: tuple, ys: tuple, w, need: tuple, n: tuple) -> list:
        """Return the needed gradients of <w, F> with respect to theta, the data, and the first n directions
        of each."""
        ways = [("R", vs, ys), ("D", vs, ys)]
        ways += [("R", without(vs, i), ys) for i in range(n[0])] + [
            ("D", vs, without(ys, i)) for i in range(n[1])
        ]
        wanted = zip(ways, need, strict=False)
        return [
            self.gradient(kind, run, theta, data, a, b, w) if yes else None for (kind, a, b), yes in wanted
        ]

    def push_value(self, at, run, t, out, arrays):
        theta, data, vs, ys, _ = at.parts(arrays)
        return sum_of_given([self.F(run, theta, data, vs, ys) for vs, ys in at.direction_terms(t, vs, ys)])

    def pull_gradient(self, at, run, U, out, need, arrays):
        """Pull back through R or D: <U, gradient of <W, F>> is <W, F> with the further direction U."""
        theta, data, vs, ys, w = at.parts(arrays)
        vs, ys = ((*vs, U), ys) if at.kind == "R" else (vs, (*ys, U))
        terms = self.shares(run, theta, data, vs, ys, w, need, at.n)
        if w is not None:
            terms.append(self.F(run, theta, data, vs, ys) if need[-1] else None)
        return tuple(terms)

    def push_gradient(self, at, run, t, out, arrays):
        theta, data, vs, ys, w = at.parts(arrays)
        terms = [self.gradient(at.kind, run, theta, data, a, b, w) for a, b in at.direction_terms(t, vs, ys)]
        if w is not None and t[-1] is not None:
            terms.append(self.gradient(at.kind, run, theta, data, vs, ys, t[-1]))
        return sum_of_given(terms)

    def pull_both(self, at, run, g, out, need, arrays):
        theta, data = arrays
        by_theta, by_data = [], []
        if g[0] is not None:
            by_theta.append(out[1] * g[0].reshape(1, -1) if need[0] else None)
            by_data.append(self.gradient("D", run, theta, data, (), (), g[0]) if need[1] else None)
        if g[1] is not None:
            by_theta.append(self.gradient("R", run, theta, data, (g[1],), (), None) if need[0] else None)
            by_data.append(self.gradient("D", run, theta, data, (g[1],), (), None) if need[1] else None)
        return sum_of_given(by_theta), sum_of_given(by_data)

    def push_both(self, at, run, t, out, arrays):
        theta, data = arrays
        value = []
        if t[0] is not None:
            # out[1] is rounded; a sum of its products would lose precision
            narrow = self.wide(layout_of(theta).dtype)
            value = [self.F(run, theta, data, (t[0],)) if narrow else (out[1] * t[0]).sum(axis=0)]
        value += [self.F(run, theta, data, (), (t[1],))] if t[1] is not None else []
        gradient = [
            self.gradient("R", run, theta, data, vs, ys, None) for vs, ys in at.direction_terms(t, (), ())
        ]
        return sum_of_given(value), sum_of_given(gradient)


class ArgumentLayout:
    """The kind, the orders and the family of an operation; it splits the arguments accordingly."""

    def __init__(self, family: Family, kind: str, n: tuple):
        self.kind, self.n = kind, n
        self.cotangent = kind == "D" or (kind == "R" and not family.scalar)

    def parts(self, arrays: tuple) -> tuple:
        """Return theta, data, directions of theta, directions of the data, and W or None."""
        k = 2 + self.n[0]
        m = k + self.n[1]
        return arrays[0], arrays[1], arrays[2:k], arrays[k:m], arrays[m] if self.cotangent else None

    def direction_terms(self, t: tuple, vs: tuple, ys: tuple) -> list[tuple]:
        """Return the directions in each term of the derivative along t.

        t holds the tangents of theta, of the data and of the directions."""
        terms = [((*vs, t[0]), ys)] if t[0] is not None else []
        terms += [(vs, (*ys, t[1]))] if t[1] is not None else []
        terms += [(replace_item(vs, i, t[2 + i]), ys) for i in range(len(vs)) if t[2 + i] is not None]
        k = 2 + len(vs)
        return terms + [(vs, replace_item(ys, i, t[k + i])) for i in range(len(ys)) if t[k + i] is not None]


def sample_column(arrays):
    """Return the numbers of arrays as a column (p, 1)."""
    for x in arrays:
        if type(x) is not np.ndarray or x.ndim != 1:
            flat = shaping.concatenate(*[shaping.reshape(x, to=(-1,)) for x in arrays])
            return shaping.reshape(flat, to=(layout_of(flat).size, 1))
    return np.concatenate(arrays)[:, None]


def two_parts(rows, first: int) -> tuple:
    """Return the first of rows (k, steps, 1), and the others, without the last axis."""
    k, steps, _ = layout_of(rows).shape
    flat = shaping.reshape(rows, to=(k, steps))
    return tuple([shaping.slice_of(flat, axis=0, start=a, stop=b) for a, b in ((0, first), (first, k))])


def column_rows(parts, like: tuple):
    """Return rows (k, steps, 1) of the first ones and the others; None stands for zeros."""
    if parts[1] is None and type(parts[0]) is np.ndarray:
        first, steps = parts[0].shape
        found = np.zeros((first + len(like[1]), steps, 1))
        found[:first, :, 0] = parts[0]
        return found
    xp = xp_of(layout_of(like[0]))
    both = [xp.zeros(layout_of(x).shape) if g is None else g for g, x in zip(parts, like, strict=True)]
    return shaping.concatenate(*both)[:, :, None]


def replace_item(vs: tuple, i: int, v) -> tuple:
    return vs[:i] + (v,) + vs[i + 1 :]


def without(vs: tuple, i: int) -> tuple:
    return vs[:i] + vs[i + 1 :]


def derivative_library(*arrays):
    for x in arrays:
        if xp_of(x) is not np:
            return xp_of(x)
    return np
