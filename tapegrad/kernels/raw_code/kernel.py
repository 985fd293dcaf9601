"""raw: the user's own CUDA C, with its own adjoint, as an operation of the array tape.

Reading order: `raw`, which describes the declarations; `RawKernel.run`, one call on plain arrays; the rules.

Kernels that are rules are matched by name. An adjoint takes inputs and outputs of its primal under their
names and the cotangent of the output `y` as `y_bar`. It returns that of the input `x` as `x_bar`. A forward
rule takes `x_dot` and returns `y_dot`. Each may have rules of its own. An order of derivative exists if its
kernel does."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..._core.arrays import xp_of
from ..._core.errors import ArgumentError, KernelError, NoRuleError, ShapeError
from ..._core.pickling import PickledByCall
from ..._core.primitive import Primitive, bind, is_tracked, layout_of, values_of
from ..._core.registry import load
from ..._core.reverse import ShapeStandIn
from ..._core.scope import OPEN
from ..._core.trees import Const
from ..._core.variable import Variable
from ..._transforms.batching.rules import CustomRule
from ..._transforms.call import constant_like
from ..._transforms.transpose import checked_terms, transposed_jvp, transposed_vjp
from ..launch.host import HostCode, host_code, uses_block
from ..launch.waiting import THREADS
from .batch import in_one_launch
from .check import check_kernel
from .declare import Arg, bind_dimensions, c_parameters, compare, compare_compiled, derivable, parse
from .plan import REALS, CallPlan, UnsavedArgument, plan_key, real_of, unwritten
from .threads import SourceEntry, Threads, source_entry, threads_of
from .transpose import pullback_kernel, pushforward_kernel, transposes_in_one

HOST_BLOCK_THREADS = 128
THREADED_NUMBERS = 200_000  # numbers touched, below which a run on the CPU stays in its thread


class RawKernel(PickledByCall):
    """A hand-written kernel as an operation; made by `tapegrad.kernels.raw`."""

    def __init__(
        self,
        code: SourceEntry,
        args: Sequence,
        threads: Threads,
        vjp: Any = None,  # RawKernel | Callable | str | None
        jvp: Any = None,  # RawKernel | Callable | None
        cpu: Callable | None = None,
        workers: int | Callable | None = None,
    ):
        self._call = code, tuple(args), threads, vjp, jvp, cpu, workers
        self.code, self.threads, self.vjp, self.jvp, self.cpu, self.workers = (
            code,
            threads,
            vjp,
            jvp,
            cpu,
            workers,
        )
        entry = self.__name__ = code.entry
        self.args: list[Arg] = [parse(entry, a) for a in args]
        names = [a.name for a in self.args]
        for n in names:
            if names.count(n) > 1:
                raise KernelError(f"{entry}: the name {n} is declared twice")
        self.given = [a for a in self.args if a.given]
        self.outs = [a for a in self.args if a.returned]
        if not self.outs:
            raise KernelError(f'{entry}: no output is declared: "out real value[B]"')
        compare(entry, self.args, c_parameters(entry, code.source, entry))
        derivable(entry, self.args)
        threads.of(threads.block or HOST_BLOCK_THREADS)
        threads.check(self.given)
        self.cooperates = uses_block(code.source)
        self.plans = {}
        self.hosts = {}
        self.independent = set()  # calls whose samples were found independent (transpose.py)
        self.derived = vjp == "derive"
        if self.derived:
            if jvp is not None:
                raise KernelError(f'{entry}: vjp="derive" gives the forward rule too; pass no jvp')
            rules = load("tapegrad.loops.cuda_c.derived_rules").DerivedRules(self)
            self.vjp, self.jvp = rules.pull, rules.push
        self.prim = self._primitive()
        for word in ("vjp", "jvp", "cpu"):
            if not (getattr(self, word) is None or callable(getattr(self, word))):
                raise KernelError(f"{entry}: {word}={getattr(self, word)!r} cannot be called")
        for rule, prefix in ((self.vjp, "bar"), (self.jvp, "dot")):
            if isinstance(rule, RawKernel):
                self._check_rule(rule, prefix)

    def _made(self) -> tuple:
        return RawKernel, self._call

    def __repr__(self) -> str:
        return f"<raw kernel {self.__name__}>"

    # --- calls ---

    def __call__(self, *args: Any, **named: Any) -> Any:
        """The outputs for the `in` and `const` arguments, in their order or by name."""
        if len(args) > len(self.given) or named:
            args = self._ordered(args, named)
        if len(args) != len(self.given):
            raise ArgumentError(
                f"{self.__name__} takes {len(self.given)} arguments: {', '.join([a.name for a in self.given])}"
            )
        values = [self._entered(a, v) for a, v in zip(self.given, args, strict=True)]
        return bind(self.prim, values, {"known": {}})

    def _ordered(self, args: tuple, named: dict) -> tuple:
        values = dict(zip([a.name for a in self.given], args, strict=False))
        for name, v in named.items():
            if name in values or name not in [a.name for a in self.given]:
                raise ArgumentError(
                    f"{self.__name__}: the argument {name} is {'given twice' if name in values else 'unknown'}"
                )
            values[name] = v
        if len(args) > len(self.given):
            raise ArgumentError(f"{self.__name__} takes {len(self.given)} arguments, {len(args)} were given")
        return tuple([values[a.name] for a in self.given if a.name in values])

    def _entered(self, a: Arg, v):
        if isinstance(v, Const):
            v = values_of(v.value)
        if isinstance(v, Variable) and not a.active:
            if is_tracked(v):
                raise ArgumentError(
                    f"{self.__name__}: {a.name} is declared {a.text!r} and has no derivative, but a tracked "
                    f"value was passed; "
                    f'declare it "in" and let the adjoint give {a.name}_bar, or pass tg.Const({a.name})'
                )
            v = values_of(v)
        return v

    def check(
        self,
        *args: Any,
        derivatives: bool = True,
        rtol: float | None = None,
        cpu_rtol: float = 0.0,
        sanitize: bool = False,
        seed: int = 0,
    ) -> list:
        """Look for faults with these arguments, on the CPU; what was done, as lines of text.  Rules that are
        kernels are checked too.

        The source is compiled by g++ and, where CuPy is installed, by NVRTC, and run in float64 and float32:
        with canaries around every array, threads in several orders and numbers, outputs first filled with one
        number and then with another; `cpu` must give the same bits, or be within `cpu_rtol`.  vjp and jvp are
        compared with central differences (`rtol`, by default 1e-6) and with each other.  `sanitize`: once
        more under the address sanitizer, which sees faults that miss the canaries.

        Raises KernelError that says what failed, with the numbers."""
        settings = {
            "derivatives": derivatives,
            "rtol": rtol,
            "cpu_rtol": cpu_rtol,
            "sanitize": sanitize,
            "seed": seed,
        }
        if len(args) != len(self.given):
            raise ArgumentError(
                f"{self.__name__}.check takes {len(self.given)} arguments: {', '.join([a.name for a in self.given])}"
            )
        return check_kernel(self, args, settings)

    def with_dimensions(self, known: dict) -> Callable:
        """Return the call for dimensions that no argument determines."""
        return lambda *args: bind(self.prim, args, {"known": known})

    # --- one call on plain arrays ---

    def run(self, *values: Any, known: dict) -> Any:
        key = plan_key(values, known)
        plan = self.plans.get(key)
        if plan is None:
            plan = CallPlan(self, values, known)
            if len(self.plans) > 64:
                self.plans.clear()
            self.plans[key] = plan
        given = plan.values(values)
        if plan.xp is np:
            outs = [o if o.ndim else o[()] for o in self._run_numpy(given, plan)]
        else:
            with plan.device:
                outs = load("tapegrad.kernels.raw_code.cuda").launch(self, given, plan)
        return outs[0] if len(outs) == 1 else tuple(outs)

    def _run_numpy(self, values: list, plan: CallPlan) -> list:
        if self.cpu is not None and not OPEN.source:
            parameters, outs = plan.parameters(values, self.worker_count())
            if any([o.size for o in outs]):
                told = self.cpu(*[int(v) if isinstance(v, np.integer) else v for v in parameters])
                if told is not None:
                    raise KernelError(
                        f"{self.__name__}: cpu= returned {type(told).__name__}; it is to fill its outputs"
                    )
            self._refuse_unwritten(outs, plan)
            return outs
        code, known = self.on_host(plan.real), plan.known
        alone = self.threads.block is None and self.threads.samples is not None and not self.cooperates
        block = self.threads.of(
            1 if alone else self.threads.block or HOST_BLOCK_THREADS
        )  # neighbours in one thread: in order through the memory
        workers = THREADS if THREADS > 1 and self._work(values, known) > THREADED_NUMBERS else 1
        grid = self.threads.blocks(known, block, None if self.threads.samples is None else workers)
        parameters, outs = plan.parameters(values, math.prod(grid) * math.prod(block))
        if any([o.size for o in outs]):
            shared = self.threads.shared_bytes(known, block, plan.real)
            code(grid, block, parameters, shared, workers=workers, met=self._met(values, known))
        self._refuse_unwritten(outs, plan)
        return outs

    def _refuse_unwritten(self, outs: list, plan: CallPlan) -> None:
        """Raise KernelError for an output that the kernel did not write."""
        for a, out in zip(self.outs, outs, strict=True):
            left = unwritten(out) if plan.marks and a.role == "out" else None
            if left is not None:
                at = ", ".join([str(int(i)) for i in np.argwhere(left)[0]]) if out.ndim else "()"
                raise KernelError(
                    f"{self.__name__}: the kernel did not write {int(left.sum())} of {out.size} numbers of "
                    f"its output {a.name}, the first at [{at}], or added to them without setting them first; "
                    "an output is not zero at the start"
                )

    def on_host(self, real: np.dtype) -> HostCode:
        """Compile for the CPU, and compare the parameters with the declarations."""
        code = self.hosts.get(real)
        if code is None:
            code = host_code(self.__name__, self.code.source, self.code.entry, REALS[real], self.code.file)
            compare_compiled(self.__name__, self.args, code.signature, real)
            self.hosts[real] = code
        return code

    def _work(self, values: list, known: dict) -> int:
        """Estimate how many numbers are touched: for each sample its own and all shared ones."""
        if self.threads.samples is None:
            return sum([v.size for v in values if isinstance(v, np.ndarray)])
        each = self.threads.samples.value(known)
        arrays = [(a, v) for a, v in zip(self.given, values, strict=True) if a.dims is not None]
        return sum([v.size if self.threads.samples.names & a.names else v.size * each for a, v in arrays])

    def _met(self, values: list, known: dict) -> float:
        """Return the same estimate, multiplied by the integers among the arguments."""
        return math.prod(
            [max(abs(int(v)), 1) for v in values if isinstance(v, np.integer)],
            start=float(self._work(values, known) + 1),
        )

    def worker_count(self) -> int:
        """Return the number of workers of the CPU function, each with a slot of its own."""
        if self.workers is not None:
            return self.workers() if callable(self.workers) else self.workers
        if getattr(self.cpu, "targetoptions", {}).get("parallel"):
            return load("numba").get_num_threads()
        return 1

    # --- rules ---

    def _primitive(self) -> Primitive:
        prim = Primitive(self.__name__, self.run, multi=len(self.outs) if len(self.outs) > 1 else 0)
        prim.holomorphic, prim.joint, prim.batch = False, True, CustomRule(in_one_launch(self))
        if self.vjp is None or self.derived:
            used = {a.name for a in self.args}
        elif isinstance(self.vjp, RawKernel):
            used = {a.name for a in self.vjp.given}
        else:
            used = {a.name for a in self.args if a.saved}
        # scalars cost nothing and may serve in dimensions
        reads = tuple([n for n, a in enumerate(self.given) if a.name in used or a.dims is None])
        reads_out = any([a.name in used for a in self.outs if a.role == "out"])
        prim.keep_spec = lambda active: (reads, reads_out)
        prim.vjp, prim.jvp = (self._pull,), self._push
        return prim

    def _check_rule(self, rule: "RawKernel", prefix: str) -> None:
        """Check that the arguments of the rule are determined, and that it returns what is needed."""
        mine = {a.name: a for a in self.args if a.given or a.role == "out"}
        sides = (self.outs, self.given) if prefix == "bar" else (self.given, self.outs)
        starts, ends = [{f"{a.name}_{prefix}": a for a in side if a.active} for side in sides]
        title = f"{self.__name__}: its {'vjp' if prefix == 'bar' else 'jvp'}, the kernel {rule.__name__},"
        for a in rule.given:
            if a.name in mine and a.name in starts:
                raise KernelError(
                    f"{title} takes {a.name}, which is both an argument of {self.__name__} and a "
                    f"derivative: rename one"
                )
            if a.name not in mine and a.name not in starts:
                raise KernelError(
                    f"{title} takes {a.name}, which is neither an input or output of {self.__name__} ({', '.join(mine)}) "
                    f"nor one of {', '.join(starts) or 'no derivatives'}"
                )
        outs = {a.name: a for a in rule.outs}
        for name, a in ends.items():
            if name not in outs:
                raise KernelError(
                    f"{title} does not give {name}: declare it among its outputs, or {a.name} as const"
                )
            found, wanted = len(outs[name].dims or ()), len(a.dims or ())
            if found < wanted or (prefix == "dot" and found > wanted):
                raise KernelError(f"{title} gives {outs[name].text!r}, which does not fit {a.text!r}")
        for name in outs:
            if name not in ends:
                raise KernelError(f"{title} gives {name}, which is none of {', '.join(ends)}")

    def dimensions(self, args: tuple, known: dict) -> dict:
        """Return the dimensions of a recorded call."""
        return bind_dimensions(self.__name__, self.args, self.seen(args), known)

    def real_of(self, args: tuple) -> np.dtype:
        return real_of(self, tuple(self.seen(args)))

    def seen(self, args: tuple) -> list:
        """Return the layouts of arrays, and the numbers that may serve in dimensions."""
        return [
            values_of(v) if a.dims is None and a.kind in ("int", "long long") else layout_of(v)
            for a, v in zip(self.given, args, strict=True)
        ]

    def library_of(self, *groups: Any) -> Any:
        for v in [v for group in groups for v in group]:
            if xp_of(layout_of(v)) is not np:
                return xp_of(layout_of(v))
        return np

    def _need(self, rule, which: str) -> None:
        if rule is None:
            raise NoRuleError(
                f"the raw kernel {self.__name__} was to be differentiated and has no rule: pass {which}= to "
                "tapegrad.kernels.raw (another raw kernel, or a function)"
            )

    def _refuse(self, tracked) -> None:
        for a, yes in zip(self.given, tracked, strict=True):
            if yes and not a.active:
                raise ArgumentError(
                    f"{self.__name__}: a derivative by {a.name} is needed, which is declared {a.text!r}; "
                    'declare it "in", and let the rules give its derivative'
                )

    def _pull(self, g, out, need: tuple, *args, known: dict):
        self._refuse(need)
        if self.vjp is None:
            self._need(self.jvp, "vjp")
            if isinstance(self.jvp, RawKernel):
                return pullback_kernel(self, g, out, need, args, known)
            return transposed_jvp(self.jvp, self.filled(g, out, args, known), out, need, args, {})
        return self._terms(self.filled(g, out, args, known), out, args, known)

    def _terms(self, g, out, args: tuple, known: dict) -> tuple:
        """Return the cotangent of each argument."""
        if isinstance(self.vjp, RawKernel):
            bars = self.cotangents(g if isinstance(g, tuple) else (g,), out, args, known)
            mine = [None if c is None else self.reduced(a, c) for a, c in zip(self.given, bars, strict=True)]
            for a, c, v in zip(self.given, mine, args, strict=True):
                came, own = np.shape(layout_of(c)), np.shape(layout_of(v))
                if c is not None and came != own:
                    raise ShapeError(
                        f"{self.vjp.__name__}: {a.name}_bar came with shape {came}, {a.name} has shape {own}"
                    )
            return tuple(mine)
        seen = [
            UnsavedArgument(self.__name__, a, v) if isinstance(v, ShapeStandIn) else v
            for a, v in zip(self.given, args, strict=True)
        ]
        terms = self.vjp(g, out, *seen)
        active = [a.role in ("in", "inout") and a.active for a in self.given]
        terms = tuple(terms) if isinstance(terms, (tuple, list)) else (terms,)
        if len(terms) == sum(active) < len(args):
            short = iter(terms)
            terms = tuple([next(short) if a else None for a in active])
        return checked_terms(self.__name__, terms, args)

    def filled(self, g: Any, out: Any, args: tuple, known: dict) -> Any:
        """Replace None by zeros among the cotangents."""
        if not isinstance(g, (list, tuple)):
            return g
        dims, real, xp = self.dimensions(args, known), self.real_of(args), self.library_of(args, g)
        return tuple(
            [
                xp.zeros(a.shape(dims), a.dtype(real)) if c is None and a.active else c
                for a, c in zip(self.outs, g, strict=True)
            ]
        )

    def cotangents(self, gs: Any, out: Any, args: tuple, known: dict) -> list:
        """Return cotangents by the adjoint kernel; for shared inputs they may be partial sums along further
        axes."""
        names = self._names(out, args)
        gs = self.filled(tuple(gs), out, args, known)
        names |= {f"{a.name}_bar": c for a, c in zip(self.outs, gs, strict=True)}
        bars = self._launched(self.vjp, names, args, known)
        return [bars.get(f"{a.name}_bar") for a in self.given]

    def tangents_of(self, t: Any, out: Any, args: tuple, known: dict) -> list:
        """Return tangents by the kernel of the forward rule."""
        names = self._names(out, args)
        for a, v, d in zip(self.given, args, t, strict=True):
            if a.active:
                names[f"{a.name}_dot"] = constant_like(v, 0) if d is None else d
        dots = self._launched(self.jvp, names, args, known)
        return [dots.get(f"{a.name}_dot") for a in self.outs]

    def _names(self, out, args: tuple) -> dict:
        outs = out if isinstance(out, tuple) else (out,) * len(self.outs)
        names = {a.name: o for a, o in zip(self.outs, outs, strict=True) if a.role == "out"}
        return names | dict(zip([a.name for a in self.given], args, strict=True))

    def _launched(self, rule: "RawKernel", names: dict, args: tuple, known: dict) -> dict:
        told = bind(rule.prim, [names[a.name] for a in rule.given], {"known": self.dimensions(args, known)})
        return dict(
            zip([a.name for a in rule.outs], told if isinstance(told, tuple) else (told,), strict=True)
        )

    def reduced(self, a: Arg, c: Any) -> Any:
        """Add partial sums along further axes at the end, in order."""
        extra = layout_of(c).ndim - len(a.dims or ())
        return c.sum(axis=tuple(range(-extra, 0))) if extra else c

    def _push(self, t, out, *args, known: dict):
        self._refuse([d is not None for d in t])
        if isinstance(self.jvp, RawKernel):
            tangents = self.tangents_of(t, out, args, known)
            return tuple(tangents) if isinstance(out, tuple) else tangents[0]
        if self.jvp is not None:
            return self.jvp(tuple(t), out, *args)
        self._need(self.vjp, "jvp")
        if isinstance(self.vjp, RawKernel):
            bars = {f"{a.name}_bar" for a in self.outs}
            linear = self.vjp.vjp is not None and all(
                [a.active and a.role != "const" for a in self.vjp.given if a.name in bars]
            )
            if not linear or transposes_in_one(self, t, args, known):
                return pushforward_kernel(self, t, out, args, known)
        return transposed_vjp(
            lambda g, out, *args: self._terms(g, out, args, known), self.__name__, t, out, args, {}
        )


def raw(
    source: str | Path,
    entry: str,
    args: Sequence[str],
    *,
    vjp: RawKernel | Callable | str | None = None,
    jvp: RawKernel | Callable | None = None,
    cpu: Callable | None = None,
    samples: str = "B",
    threads: str | None = None,
    grid: Any = None,
    block: int | tuple | None = None,
    shared: int | str | None = None,
    workers: int | Callable | None = None,
    options: Sequence[str] = (),
    test: tuple | None = None,
) -> RawKernel:
    """Make a differentiable operation of your own CUDA C.

    The page "Your own CUDA C" of the documentation has a whole example.

    Parameters
    ----------
    source : str or Path
        The text or a file. ``real`` is defined in front of it, as double or float.
    entry : str
        The name of the C function.
    args : sequence of str
        One declaration for each parameter of `entry`, in its order:
        ``in real theta[p, B]`` is an argument with a derivative;
        ``const real x[N]`` is one without;
        ``const int n`` is a number passed by value;
        ``size B`` is the length of a dimension;
        ``out real value[B]`` is allocated for each call;
        ``inout real state[3, B]`` is copied, then changed;
        ``work real tape[T, p, slots]`` is scratch, where slots is the number of threads;
        ``in unsaved real x[N]`` is not read by the rules.
    vjp : RawKernel, callable or 'derive', optional
        Another raw kernel. It takes arguments and outputs of this one by name, takes the cotangent
        ``value_bar`` of the output ``value``, and gives ``theta_bar``. Or a function ``vjp(g, out, *args)``,
        as for `tapegrad.rule`. Or ``'derive'``: both rules are derived from the source, to any order.
    jvp : RawKernel or callable, optional
        The same with ``theta_dot`` and ``value_dot``, or a function ``jvp(t, out, *args)``. With only one of
        `vjp` and `jvp`, the other mode is its transpose.
    cpu : callable, optional
        A function of the same parameters that fills the outputs, for NumPy arrays. By default g++ compiles
        the source.
    samples : str, default 'B'
        The dimension over which the kernel loops in steps of all threads (a grid-stride loop). Samples are
        independent.
    threads : str, optional
        Start at least so many threads, in place of `samples`.
    grid : int, str or tuple, optional
        Start exactly so many blocks.
    block : int or tuple, optional
        Threads in a block.
    shared : int or str, optional
        Bytes of dynamic shared memory: an expression in dimensions, ``threads`` (of a block) and ``real``
        (its size).
    workers : int or callable, optional
        Slots of work arrays for `cpu`.
    options : sequence of str, optional
        Further options of NVRTC.
    test : tuple, optional
        Arguments with which to `check_kernel` the kernel now.

    Returns
    -------
    RawKernel
        The operation, on NumPy and CuPy arrays. ``check_kernel(*args)`` looks for faults.

    Raises
    ------
    KernelError
        If declarations, source and rules do not fit together; and in a call, if the source does not compile.

    See Also
    --------
    map : Kernels from Python functions.
    source : The text of a derived derivative.
    tapegrad.rule : A derivative for any Python function.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> source = '''
    ... extern "C" __global__ void cube(const real* x, real* y, long long B) {
    ...   const long long threads = (long long)gridDim.x * blockDim.x;
    ...   for (long long b = blockIdx.x * (long long)blockDim.x + threadIdx.x; b < B; b += threads) y[b] = x[b] * x[b] * x[b];
    ... }'''
    >>> def fill(x, y, B):
    ...     y[:] = x**3
    >>> cube = tg.kernels.raw(source, "cube", ["in real x[B]", "out real y[B]", "size B"], vjp=lambda g, y, x: 3 * g * x**2, cpu=fill)
    >>> tg.grad(lambda x: cube(x).sum())(np.array([1.0, 2.0]))
    array([ 3., 12.])
    """
    how = threads_of(entry, samples, threads, grid, block, shared)
    kernel = RawKernel(source_entry(source, entry, options), args, how, vjp, jvp, cpu, workers)
    if test is not None:
        kernel.check(*test)
    return kernel
