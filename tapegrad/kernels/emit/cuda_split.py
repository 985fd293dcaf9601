"""A sum over many data for few samples, as CUDA C: several threads share the data of one sample.

    partial(inputs..., data, sums, batch, T, first, chunks, each)
                                           the sums of the chunks first .. first + chunks - 1
    gather(sums, totals, rows, chunks)     added to the totals, one after the other
    finish(inputs..., outputs..., totals, batch, T)
                                           what follows the sum

Chunks, and the order in which they are added, are those of the undivided kernel. The results therefore have
the same bits for any number of threads. `sums` is [chunk][sum][sample], `totals` is [sum][sample]."""

import functools

import numpy as np

from .cuda import CudaText, KernelSignature, bits_for
from .lower import CHUNK, LoweredProgram

# One warp of a block adds a tile of chunks, in order. The others move later tiles to shared memory. A load
# has the time of GATHER_AHEAD tiles to arrive in its register.
GATHER_ROWS, GATHER_THREADS = 32, 512  # of a block; a warp has a lane for each row
GATHER_AHEAD = 4  # an even number
GATHER = """typedef long long i64;
typedef {real} real;
extern "C" __global__ void __launch_bounds__({threads})
gather(const real* __restrict__ sums, real* __restrict__ totals, i64 rows, i64 chunks) {{
  __shared__ real tile[2][64][{rows}];
  const int lane = threadIdx.x % {rows}, warp = threadIdx.x / {rows};
  const i64 row = (i64)blockIdx.x * {rows} + lane, tiles = (chunks + 63) / 64;
  const bool some = row < rows;
  real total = some && warp == 0 ? totals[row] : 0;
  real held[{ahead}][{each}];
#pragma unroll
  for (int d = 0; d < {ahead}; ++d)
#pragma unroll
    for (int n = 0; n < {each}; ++n) {{
      const int j = warp - 1 + n * {movers};
      const i64 chunk = d * 64 + j;
      held[d][n] = some && warp && j < 64 && chunk < chunks ? sums[chunk * rows + row] : 0;
    }}
  for (i64 k = 0; k <= tiles; k += {ahead})
#pragma unroll
    for (int d = 0; d < {ahead}; ++d) {{
      const int side = d % 2;
      if (some && warp) {{
#pragma unroll
        for (int n = 0; n < {each}; ++n) {{
          const int j = warp - 1 + n * {movers};
          const i64 chunk = (k + d + {ahead}) * 64 + j;
          if (j < 64) tile[side][j][lane] = held[d][n];
          held[d][n] = j < 64 && chunk < chunks ? sums[chunk * rows + row] : 0;
        }}
      }}
      const i64 left = chunks - (k + d - 1) * 64;
      const int count = k + d == 0 || left < 0 ? 0 : left < 64 ? left : 64;
      if (some && !warp) {{
#pragma unroll 16
        for (int j = 0; j < count; ++j) total = total + tile[1 - side][j][lane];
      }}
      __syncthreads();
    }}
  if (some && !warp) totals[row] = total;
}}
"""


@functools.cache
def gather_text(dtype: np.dtype | type) -> str:
    """The source of `gather` for sums of this dtype."""
    real = "double" if np.dtype(dtype) == np.float64 else "float"
    movers = GATHER_THREADS // GATHER_ROWS - 1
    return GATHER.format(
        real=real,
        rows=GATHER_ROWS,
        threads=GATHER_THREADS,
        ahead=GATHER_AHEAD,
        movers=movers,
        each=-(-64 // movers),
    )


def splittable(low: LoweredProgram) -> bool:
    """Return whether the program is one plain sum of numbers over data.

    Its terms may contain loops, but none with a backward sweep, because the parts have no tape."""
    p = low.program
    if low.arena or p.streams or p.step_rows or any(p.g.shape[s] for loop in low.loops for s in loop.sums):
        return False
    return len(low.outer) == 1 and low.loops[0].data and not low.loops[0].carry and not low.taped()


class KernelPart(CudaText):
    """One kernel of a split program."""

    def partial(self) -> tuple[str, KernelSignature]:
        body, inputs = self.low.bodies[0], self.inputs()
        env = {}
        inner = [("sums", f"{self.sum}*", "sums"), ("batch", "i64", "batch"), ("T", "i64", "steps")]
        inner += [(name, "i64", name) for name in ("first", "chunks", "each")]
        self.begin("batch * ((chunks + each - 1) / each)", "w")
        self.line(
            "const i64 s = w % batch, from = w / batch * each, to = from + each < chunks ? from + each : "
            "chunks;"
        )
        self.load_inputs(env)
        self.straight(self.low.sections[0], env)
        sums = [f"s{k}" for k in range(len(body.loop.sums))]
        self.line("for (i64 chunk = from; chunk < to; ++chunk) {")
        self.line(f"const i64 o = (first + chunk) * {CHUNK}, e = o + {CHUNK} < T ? o + {CHUNK} : T;")
        for name in sums:
            self.line(f"{self.sum} {name} = 0;")
        self.steps(0, env, [], sums, "u", "T", ("o", "e"))
        for k, name in enumerate(sums):
            self.line(f"sums[(chunk * {len(sums)} + {k}) * batch + s] = {name};")
        self.line("}")
        return self.finished("partial", (*inputs, *inner))

    def finish(self) -> tuple[str, KernelSignature]:
        loop = self.low.loops[0]
        env = {}
        inputs = [x for x in self.inputs() if x[2] == "input"] + self.outputs()
        self.begin()
        self.load_inputs(env)
        self.straight(self.low.sections[0], env)
        for k, s in enumerate(loop.sums):
            env[s] = self.let(f"totals[{k}LL * batch + s]", self.sum)
        self.straight(self.low.sections[1], env)
        self.store_outputs(env)
        return self.finished(
            "finish",
            (
                *inputs,
                ("totals", f"const {self.sum}*", "totals"),
                ("batch", "i64", "batch"),
                ("T", "i64", "steps"),
            ),
        )


def emit_split(
    low: LoweredProgram, dtype: np.dtype | type = np.float64, per_sample: bool = False
) -> tuple[str, dict[str, KernelSignature]]:
    """CUDA C source of `partial` and `finish`, and their parameters.

    >>> import tapegrad as tg
    >>> k = tg.kernels.likelihood(lambda theta, x: -((x - theta[0]) ** 2))
    >>> source, signatures = emit_split(k.lowered(1, 0))
    >>> [name for name, _, _ in signatures["partial"].parameters]
    ['in0', 'data', 'sums', 'batch', 'T', 'first', 'chunks', 'each']
    """
    bits = bits_for(low, dtype)
    parts = {name: getattr(KernelPart(low, bits, per_sample), name)() for name in ("partial", "finish")}
    text = KernelPart(low, bits, per_sample).head() + "".join(text for text, _ in parts.values())
    return text, {name: signature for name, (_, signature) in parts.items()}
