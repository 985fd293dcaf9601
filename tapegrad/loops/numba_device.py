"""Kernels of numba.cuda as loop programs: blocks and threads are loops, in order."""

import types
from collections.abc import Callable
from dataclasses import dataclass

from .numba_calls import CallFrame
from .numba_front import whole
from .numba_ir import kind_of
from .program import Barrier, Block, LoopProgram, LoopRefused, Scalar, Store, pruned, walk
from .threads import split_threads
from .views import Known, Ranges, TupleMembers
from .writer import ONE, ZERO, NameScope, ProgramWriter

AXES = "zyx"
SIZES = ("gridDim", "blockDim")
ATOMICS = {"add": "add", "sub": "sub", "max": "gt", "min": "lt"}  # name -> operation of `writer.atomic`


@dataclass(frozen=True)
class DeviceName:
    """A name of numba.cuda, such as atomic.add."""

    path: str


class KernelFrame(CallFrame):
    """A call of a kernel, or of a function that it calls."""

    def constant(self, x):
        name = getattr(x, "__module__", None) or ""
        if name.startswith("numba.cuda") and not hasattr(x, "py_func"):
            return Known(DeviceName(getattr(x, "__qualname__", type(x).__qualname__)))
        return super().constant(x)

    def attribute(self, x, name: str):
        if isinstance(x, types.ModuleType) and x.__name__.startswith("numba.cuda"):
            found = getattr(x, name)
            return (
                super().constant(found)
                if isinstance(found, (int, float, types.ModuleType)) or hasattr(found, "py_func")
                else Known(DeviceName(name))
            )
        if isinstance(x, DeviceName):
            path = f"{x.path}.{name}"
            if path in self.source.special:
                return self.source.special[path]
            return Known(DeviceName(path))
        return super().attribute(x, name)

    def called(self, f, args: tuple, named: dict, t):
        if not isinstance(f, DeviceName):
            return super().called(f, args, named, t)
        w, special = self.w, self.source.special
        if f.path == "syncthreads":
            w.put(Barrier())
            return Known(None)
        if f.path in ("grid", "gridsize"):
            made = []
            for axis in AXES[::-1][: args[0].number]:
                blocks = special[f"{'blockIdx' if f.path == 'grid' else 'gridDim'}.{axis}"]
                made.append(self.learned("mul", (blocks, special[f"blockDim.{axis}"])))
                if f.path == "grid":
                    made[-1] = self.learned("add", (made[-1], special[f"threadIdx.{axis}"]))
            return made[0] if len(made) == 1 else TupleMembers(tuple(made))
        if f.path in ("shared.array", "local.array"):
            given = args[0] if args else named["shape"]
            shape = given.items if isinstance(given, TupleMembers) else (given,)
            kind = kind_of(self.type_of(t).dtype)
            if kind is None or any(not isinstance(n, Scalar) or not n.number for n in shape):
                raise self.refuse(f"{f.path} of this shape or type")
            array = w.allocate(kind, shape, f.path.partition(".")[0], f.path == "shared.array")
            return whole(array, frozenset((f"array{next(self.source.made)}",)))
        if f.path[7:] in ATOMICS:
            view = self.ranges.indexed(args[0], self.at(args[1]))
            value = w.cast(self.scalar(args[2]), view.array.type)
            at = self.ranges.element(view)
            w.atomic(ATOMICS[f.path[7:]], view.array, at, value)
            return Known(None)  # the old value, which depends on the order of threads, cannot be used
        raise self.refuse(f"cuda.{f.path}")

    def run(self):
        if self.prefix:
            return super().run()
        run = super().run
        write_launch(self.source, self.typed.name, lambda: run())
        return None


def write_launch(source, name: str, run: Callable) -> None:
    """What all threads do in order, or what one thread does; `run` writes the kernel."""
    if not source.of_thread:
        write_grid(source.w, name, source.special, source.ranges, run)
        return
    for index in [f"{word}.{axis}" for word in ("blockIdx", "threadIdx") for axis in AXES]:
        source.special[index] = source.w.compute(index, type="i8")
        source.ranges.least[source.special[index]] = 0
    run()


def write_grid(
    w: ProgramWriter, name: str, special: dict[str, Scalar], ranges: Ranges, run: Callable
) -> None:
    """The blocks of the grid as loops, each with its threads, which all do what `run` writes.

    `special` holds the sizes of the launch, and gets the indices of block and thread."""

    def block(found: tuple) -> None:
        if len(found) < 3:
            w.loop(lambda i: block((*found, i)), (), (ZERO, special[f"gridDim.{AXES[len(found)]}"], ONE))
            return
        index = tuple([Scalar("i8", f"thread_{axis}") for axis in AXES])
        for k, axis in enumerate(AXES):
            special[f"blockIdx.{axis}"], special[f"threadIdx.{axis}"] = found[k], index[k]
            ranges.least.update({found[k]: 0, index[k]: 0})
        body = Block()
        w.scoped(body, NameScope(w.scope), run)
        given = [s.array for s in walk(w.resolve(body)) if isinstance(s, Store) and not s.array.shared]
        body = pruned(LoopProgram(name, [], body, given)).body
        split_threads(w, body, index, tuple([special[f"blockDim.{axis}"] for axis in AXES]))

    block(())


def launch_sizes(launch) -> list[int]:
    """The numbers (z, y, x) of blocks, then of threads in a block, of kernel[blocks, threads]."""
    if not isinstance(launch, tuple) or not 2 <= len(launch) <= 4:
        raise LoopRefused("a kernel is launched as kernel[blocks, threads](...)")
    made: list[int] = []
    for n in launch[:2]:
        given = [int(k) for k in (n if isinstance(n, (tuple, list)) else (n,))]
        if min(given) < 1:
            raise LoopRefused(f"a launch with {n} blocks or threads")
        made += [*given, 1, 1, 1][:3][::-1]
    return made
