"""`RawKernel.check`: a search on the CPU for faults of a handwritten kernel.

Each kernel, and each kernel that is its rule, is compiled and run between canaries, in several orders and
numbers of threads. Then its rules are compared with finite differences and with each other. A failure raises
KernelError with the numbers."""

import math
from typing import Any

import numpy as np

from ... import cache
from ..._core.arrays import is_array, xp_of
from ..._core.errors import KernelError, NoRuleError
from ..._core.primitive import values_of
from ..._core.registry import load
from ..._core.scope import changed
from ..._core.trees import Const
from ..._transforms.products import jvp, vjp
from ..launch.host import sanitized, uses_block
from .declare import SLOTS, bind_dimensions
from .plan import REALS
from .transpose import sample_axis, sample_rows, units

GUARD = 512  # bytes on both sides of an array
CANARY, FILLS = 0xA5, (0xCC, 0x33)  # as doubles -9e61 and 5e-62
ARCHITECTURES = (75, 90)
DIRECTIONS = 32
CHECK_STEP = 1e-3
MOST_THREADS = 4096  # of a slow interpreter


class GuardedArray:
    """A copy of an array, or a new one, between canaries."""

    def __init__(self, shape: tuple, dtype: np.dtype, like: np.ndarray | None, fill: int = 0):
        size = math.prod(shape) * dtype.itemsize
        memory = np.full(size + 2 * GUARD + 64, CANARY, np.uint8)
        start = GUARD + -(memory.ctypes.data + GUARD) % 64
        self.before, self.after = memory[:start], memory[start + size :]
        inside = memory[start : start + size]
        inside[:] = fill
        self.array = inside.view(dtype).reshape(shape)
        if like is not None:
            self.array[...] = like

    def harm(self) -> str:
        """Describe what was written outside of the array."""
        for where, part in (("before", self.before[::-1]), ("behind", self.after)):
            hurt = np.flatnonzero(part != CANARY)
            if hurt.size:
                return f"{where} it, {int(hurt[0]) + 1} bytes away"
        return ""


class KernelCheck:
    """One kernel checked with one set of arguments."""

    def __init__(self, k, values: list, known: dict, settings: dict, report: list):
        self.k, self.values, self.settings, self.report = k, values, settings, report
        self.given = known
        self.rng = np.random.default_rng(settings["seed"])

    def say(self, text: str) -> None:
        self.report.append(f"{self.k.__name__}: {text}")

    def fail(self, text: str) -> None:
        raise KernelError(f"check of {self.k.__name__}: {text}")

    def run(self) -> None:
        reals = (np.float64, np.float32) if any([a.kind == "real" for a in self.k.args]) else (np.float64,)
        for real in reals:
            self.source(np.dtype(real))
        if self.settings["derivatives"]:
            self.derivatives(len(reals) > 1)

    def cast(self, real: np.dtype) -> list:
        return [
            np.array(v, a.dtype(real), order="C") if is_array(v) else a.dtype(real).type(v)
            for a, v in zip(self.k.given, self.values, strict=True)
        ]

    # --- the source ---

    def source(self, real: np.dtype) -> None:
        k = self.k
        values = self.cast(real)
        known = bind_dimensions(k.__name__, k.args, values, self.given)
        code = k.on_host(real)
        self.device_compiles(real)
        block = k.threads.of(k.threads.block or (128 if uses_block(k.code.source) else 32))
        grid = k.threads.blocks(known, block, None)
        if self.settings["sanitize"]:  # first, in a separate process: a write far outside would end this one
            self.sanitized(values, known, real, grid, block)
        first = self.host_run(code, values, known, real, grid, block)
        refilled = self.host_run(code, values, known, real, grid, block, fill=FILLS[1])
        self.same(
            first,
            refilled,
            "holds what was in memory before: it is not written in full, or is read before it is written",
        )
        for order in (1, 2, 3):
            other = self.host_run(code, values, known, real, grid, block, order=order)
            how = "backwards" if order == 1 else "in another order"
            self.same(
                first, other, f"depends on the order of the threads (run {how}): a race", atomics=code.atomics
            )
        if k.derived and real == np.float64:
            self.races(values, known, grid, block)
        if k.threads.samples is not None:
            self.shapes(code, values, known, real, block, first)
        if k.cpu is not None:
            self.by_function(values, known, real, first)
        self.say(
            f"real = {real.name}: the source compiles, runs within its arrays, in any order of its threads"
        )

    def races(self, values: list, known: dict, grid: tuple, block: tuple) -> None:
        """Search the accesses of all threads, which a derived adjoint repeats, for races."""
        if math.prod(grid) * math.prod(block) > MOST_THREADS:
            self.say(f"NOT RUN: the search for races, with more than {MOST_THREADS} threads")
            return
        load("tapegrad.loops.cuda_c.derived_rules").DerivedRules(self.k).search_races(
            tuple(values), known, grid, block
        )
        self.say("no two threads meet at an element, unless all read it or all change it by atomics")

    def device_compiles(self, real: np.dtype) -> None:
        try:
            cuda = load("tapegrad.kernels.launch.cuda")
            if cuda.cupy is None:
                raise ImportError("CuPy is not installed")
            version = str(cuda.nvrtc.getVersion())
        except (ImportError, RuntimeError) as error:
            self.say(f"NOT RUN: compilation for a device ({error})")
            return
        text, options = self.k.code.text(real), cuda.with_options(self.k.code.options)
        for arch in ARCHITECTURES:
            key = cache.key("check", text, str(arch), version, *options)
            if cache.load_code(key) is None:
                cache.save(key, cuda.cubin(text, arch, options, self.k.code.file)[0])

    def host_run(
        self,
        code,
        values: list,
        known: dict,
        real: np.dtype,
        grid: tuple,
        block: tuple,
        order=0,
        fill=FILLS[0],
    ) -> list:
        """Return the outputs of a run between canaries."""
        slots = math.prod(grid) * math.prod(block)
        holds, parameters = self.guarded(values, known, real, slots, fill)
        if code is None:
            self.k.cpu(*[int(v) if isinstance(v, np.integer) else v for v in parameters])
        else:
            code(grid, block, parameters, self.k.threads.shared_bytes(known, block, real), order)
        return self.checked(holds, values)

    def guarded(self, values: list, known: dict, real: np.dtype, slots: int, fill: int) -> tuple:
        given, holds, parameters = iter(values), [], []
        for a in self.k.args:
            v: Any = next(given) if a.given else None
            if a.dims is None:
                parameters.append(np.int64(known[a.name]) if a.role == "size" else v)
                continue
            shape = v.shape if a.given else a.shape({**known, SLOTS: slots})
            holds.append((a, GuardedArray(shape, a.dtype(real), v, fill)))
            parameters.append(holds[-1][1].array)
        return holds, parameters

    def checked(self, holds: list, values: list) -> list:
        before = dict(zip([a.name for a in self.k.given], values, strict=True))
        for a, g in holds:
            harm = g.harm()
            if harm:
                self.fail(f"memory next to {a.name} ({a.text!r}, here {g.array.shape}) was written: {harm}")
            if a.role in ("in", "const") and g.array.tobytes() != before[a.name].tobytes():
                at = np.argwhere(~same_elements(g.array, before[a.name]))[0]
                self.fail(
                    f"{a.name} is declared {a.text!r}, and its element {tuple(map(int, at))} was written"
                )
        return [g.array.copy() for a, g in holds if a.returned]

    def same(self, one: list, two: list, what: str, atomics: bool = False, rtol: float = 0.0) -> None:
        for a, x, y in zip(self.k.outs, one, two, strict=True):
            bad = ~same_elements(x, y)
            if (atomics or rtol) and x.dtype.kind == "f":
                with np.errstate(invalid="ignore"):
                    allowed = rtol or 1000 * np.finfo(x.dtype).eps
                    bad &= ~(np.abs(x - y) <= allowed * np.max(np.abs(x[np.isfinite(x)]), initial=0))
            if bad.any():
                at = tuple(map(int, np.argwhere(bad)[0]))
                self.fail(
                    f"the output {a.name} {what}; element {at} is {x[at]!r} and {y[at]!r}, {int(bad.sum())} "
                    f"of {bad.size} differ"
                )

    def shapes(self, code, values: list, known: dict, real: np.dtype, block: tuple, first: list) -> None:
        pairs = (
            [((1, 1, 1), block)]
            if uses_block(self.k.code.source)
            else [((1, 1, 1), (1, 1, 1)), ((2, 1, 1), (3, 1, 1))]
        )
        for grid, threads in pairs:
            other = self.host_run(code, values, known, real, grid, threads)
            self.same(
                first,
                other,
                f"depends on the number of threads ({math.prod(grid)} blocks of {math.prod(threads)}); with "
                f"samples= the kernel loops over "
                f"them in steps of gridDim.x * blockDim.x, or say threads={self.k.threads.samples.text!r}",
            )

    def by_function(self, values: list, known: dict, real: np.dtype, first: list) -> None:
        slots = self.k.worker_count()
        other = self.host_run(None, values, known, real, (slots, 1, 1), (1, 1, 1))
        self.same(
            first,
            other,
            "is not the same by the source and by the function for the CPU (cpu=)",
            rtol=self.settings["cpu_rtol"],
        )

    def sanitized(self, values: list, known: dict, real: np.dtype, grid: tuple, block: tuple) -> None:
        _, parameters = self.guarded(values, known, real, math.prod(grid) * math.prod(block), FILLS[0])
        k, code, shared = self.k, self.k.code, self.k.threads.shared_bytes(known, block, real)
        found = sanitized(
            k.__name__, code.source, code.entry, REALS[real], code.file, grid, block, parameters, shared
        )
        if found:
            self.fail(found)
        self.say("no fault found by the address and undefined behaviour sanitizers")

    # --- derivatives ---

    def derivatives(self, two: bool) -> None:
        k = self.k
        if k.vjp is None and k.jvp is None:
            self.say("has no rules")
            return
        active = [n for n, a in enumerate(k.given) if a.role in ("in", "inout") and a.active]
        with changed(source=True):
            values = self.cast(np.dtype(np.float64))
            call = k.with_dimensions(self.given)
            out = outputs(call(*values))
            seeds = [
                self.rng.standard_normal(o.shape).astype(o.dtype) if a.active else None
                for a, o in zip(k.outs, out, strict=True)
            ]
            for n in active:
                self.along(call, values, n, out, seeds)
            if two and k.vjp is not None:
                self.narrow(call, active, seeds)
        self.say("rules agree with differences and with each other")
        for rule, prefix in ((k.vjp, "bar"), (k.jvp, "dot")):
            if type(rule) is type(k):
                self.follow(rule, prefix, values, out, seeds)

    def directions(self, n: int, x) -> list:
        """Return one direction for each row, or a few for all rows."""
        a, scale = self.k.given[n], np.max(np.abs(x), initial=0) or 1.0
        size = np.abs(x) + 1e-2 * scale
        axis = sample_axis(self.k, a) if np.ndim(x) else None
        if sample_rows(np.shape(x), axis) <= DIRECTIONS:
            chosen = [*units(np, np.shape(x), np.asarray(x).dtype, axis)]
        else:
            chosen = [np.ones(np.shape(x))] * 8
        return [
            (
                u * size * self.rng.choice([-1.0, 1.0], np.shape(x)) * self.rng.uniform(0.5, 1, np.shape(x))
            ).astype(x.dtype)
            for u in chosen
        ]

    def along(self, call, values: list, n: int, out: list, seeds: list) -> None:
        """Check the rules with respect to argument n."""
        k, x = self.k, values[n]
        name = k.given[n].name
        fine = x.dtype.itemsize == 8 and all(o.dtype.itemsize == 8 for o in out if o.dtype.kind == "f")
        tolerance = self.settings["rtol"] or (1e-6 if fine else 3e-2)
        only = lambda v: call(*values[:n], v, *values[n + 1 :])
        bars = self.pulled(only, x, seeds, out)
        for v in self.directions(n, x):
            slope, noise = kernel_differences(only, x, v, CHECK_STEP if fine else 0.02)
            for a, w, bar, d, e in zip(k.outs, seeds, bars, slope, noise, strict=True):
                if w is None or bar is None:
                    continue
                wanted, got = float((w * d).sum()), float((bar.astype(float) * v).sum())
                bound = tolerance * (abs(wanted) + float(np.abs(bar * v).sum())) + 20 * e * float(
                    np.abs(w).sum()
                )
                if not abs(wanted - got) <= bound:
                    self.fail(
                        f"the vjp is wrong by {name} from {a.name}: <{a.name}_bar, J v> is {wanted:.10g} by "
                        f"differences, <{name}_bar, v> is {got:.10g}"
                    )
            self.forward(only, x, v, slope, noise, bars, seeds, name, tolerance)

    def pulled(self, only, x, seeds: list, out: list) -> list:
        """Return the cotangent of x for a seed in one output at a time."""
        try:
            _, back = vjp(only, x)
            bars = []
            for m, w in enumerate(seeds):
                each = [np.zeros_like(o) if i != m else w for i, o in enumerate(out)]
                bars.append(
                    None if w is None else np.asarray(back(each[0] if len(out) == 1 else tuple(each)))
                )
            return bars
        except NoRuleError as error:
            self.say(f"NOT RUN: reverse mode ({error})")
            return [None] * len(seeds)

    def forward(
        self, only, x, v, slope: list, noise: list, bars: list, seeds: list, name: str, tolerance: float
    ) -> None:
        try:
            tangents = outputs(jvp(only, (x,), (v,))[1])
        except NoRuleError as error:
            text = f"{self.k.__name__}: NOT RUN: forward mode ({error})"
            if text not in self.report:
                self.report.append(text)
            return
        for a, t, d, e, w, bar in zip(self.k.outs, tangents, slope, noise, seeds, bars, strict=True):
            if w is None:
                continue
            t = np.asarray(t)
            gap = np.abs(t.astype(float) - d)
            bound = tolerance * (np.abs(d) + np.max(np.abs(d), initial=0) * 1e-3) + 20 * e
            if not (gap <= bound).all():
                at = np.unravel_index(int(np.argmax(np.where(np.isnan(gap), np.inf, gap - bound))), gap.shape)
                self.fail(
                    f"the jvp is wrong by {name}: {a.name}_dot{list(map(int, at))} is {t[at]:.10g}, by "
                    f"differences {d[at]:.10g}"
                )
            if bar is None:
                continue
            one, two = float((w * t).sum()), float((bar * v).sum())
            exact = (1e-9 if x.dtype.itemsize == 8 else 1e-3) * (
                float(np.abs(w * t).sum()) + float(np.abs(bar * v).sum())
            )
            if not abs(one - two) <= exact:
                self.fail(
                    f"jvp and vjp are no adjoints by {name}: <{a.name}_bar, jvp v> is {one:.15g}, <vjp "
                    f"{a.name}_bar, v> is {two:.15g}"
                )

    def narrow(self, call, active: list, seeds: list) -> None:
        """Compare the vjp in float32 with that in float64."""
        made = []
        for real in (np.float64, np.float32):
            values = self.cast(np.dtype(real))
            out, back = vjp(
                lambda *xs: call(*replace_value(values, active, xs)), *[values[n] for n in active]
            )
            full = [
                np.asarray(w, o.dtype) if w is not None else np.zeros_like(o)
                for w, o in zip(seeds, outputs(out), strict=True)
            ]
            bars = back(full[0] if len(full) == 1 else tuple(full))
            made.append(bars if len(active) > 1 else (bars,))
        for n, one, two in zip(active, *made, strict=True):
            one, two = np.asarray(one, float), np.asarray(two, float)
            finite = np.isfinite(one) & np.isfinite(two)
            gap = np.max(np.abs(np.where(finite, one - two, 0)), initial=0)
            scale = np.max(np.abs(np.where(finite, one, 0)), initial=0)
            if not gap <= 1e-2 * scale:
                self.fail(
                    f"the vjp by {self.k.given[n].name} in float32 is {gap:.3g} away from that in float64, "
                    f"of size {scale:.3g}"
                )

    def follow(self, rule, prefix: str, values: list, out: list, seeds: list) -> None:
        """Check the kernel of a rule as a kernel."""
        k = self.k
        names = {a.name: o for a, o in zip(k.outs, out, strict=True) if a.role == "out"}
        names |= dict(zip([a.name for a in k.given], values, strict=True))
        if prefix == "bar":
            names |= {f"{a.name}_bar": w for a, w in zip(k.outs, seeds, strict=True)}
        else:
            for a, v in zip(k.given, values, strict=True):
                if a.active:
                    names[f"{a.name}_dot"] = self.rng.standard_normal(np.shape(v)).astype(np.asarray(v).dtype)
        known = bind_dimensions(k.__name__, k.args, values, self.given)
        KernelCheck(rule, [names[a.name] for a in rule.given], known, self.settings, self.report).run()


def replace_value(values: list, where: list, by: tuple) -> list:
    values = list(values)
    for n, x in zip(where, by, strict=True):
        values[n] = x
    return values


def outputs(out) -> list:
    return [np.asarray(values_of(o)) for o in (out if isinstance(out, tuple) else (out,))]


def same_elements(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the elementwise equality, with nan equal to nan."""
    return (x == y) | ((x != x) & (y != y))


def kernel_differences(f, x, v, h: float) -> tuple:
    """Return derivatives along v by extrapolated central differences, and their rounding noise."""

    def central(h):
        h = x.dtype.type(h)
        up, down = outputs(f((x + h * v).astype(x.dtype))), outputs(f((x - h * v).astype(x.dtype)))
        return [(a.astype(float) - b.astype(float)) / (2 * h) for a, b in zip(up, down, strict=True)], up

    (wide, up), (near, _) = central(h), central(h / 2)
    slope = [(4 * b - a) / 3 for a, b in zip(wide, near, strict=True)]
    noise = [
        np.finfo(u.dtype).eps * np.max(np.abs(u[np.isfinite(u)]), initial=0) / h
        if u.dtype.kind == "f"
        else 0.0
        for u in up
    ]
    return slope, noise


def check_kernel(k, args: tuple, settings: dict) -> list:
    values = []
    for v in args:
        v = values_of(v.value) if isinstance(v, Const) else values_of(v)
        values.append(v.get() if is_array(v) and xp_of(v) is not np else v)
    report = []
    KernelCheck(k, values, {}, settings, report).run()
    return report
