"""Random programs of ufuncs and their methods, `out=`, `where=` and `casting=`, on arrays of mixed dtypes and
strides, of no axes and of no elements, masked arrays and records; a part of them captured and written.

A statement is a template whose slots are drawn: `{a}` an expression, `{w}` an array that may be written, `{v}` a
view of one, `{m}` a mask, `{i}` an index, `{n}` a new name.  A statement that NumPy refuses, or after which
numbers are large, is dropped.  Derivatives are judged by differences of the same program in double precision."""

import linecache
import random
import warnings

import numpy as np
from judged_routes import lines_of

X, V = np.array([0.37, -0.52, 0.81, 1.24, -0.93]), np.array([0.3, -0.7, 0.5, 0.2, -0.4])
NARROW = {"F4": np.float32, "C8": np.complex64}
WIDE = {"F4": np.float64, "C8": np.complex128}
CAPTURED = """
B0 = np.linspace(0.2, 0.8, 5)
B1 = np.linspace(-0.5, 0.9, 12).astype(F4).reshape(3, 4)
B2 = (np.linspace(0.1, 0.7, 4) * (1 + 0.5j)).astype(C8)
B3 = np.zeros((2, 3), order="F") + 0.3
B4 = np.linspace(0.1, 0.9, 24).reshape(2, 3, 4)[:, ::-1, ::2]
B5 = np.array(0.7)
B6 = np.zeros(3, [("a", float), ("b", F4, (2,)), ("c", complex)])
B7 = np.linspace(0.3, 1.2, 5)[::-1]
B8 = np.zeros((4, 4), complex)
N0 = np.array([0, 2, 1, 2])
M0 = np.array([True, False, True, True, False])
M1 = np.arange(12).reshape(3, 4) % 3 > 0
"""
STATE = [f"B{n}" for n in range(9)] + ["N0"]
HELP = '''
def total(*vs):
    """A number made of all elements."""
    t = 0.0
    for n, v in enumerate(vs):
        if v.dtype.names:
            t = t + total(*[v[k] for k in v.dtype.names])
            continue
        w = np.cos(1.0 + n + np.arange(v.size)).reshape(v.shape)
        t = t + (np.sum(w * v.real) + np.sum(np.sin(w) * v.imag) if v.dtype.kind == "c" else np.sum(w * v))
    return t + 0.0
'''
UNARY = "sin cos tanh exp sqrt square negative abs arctan expm1 conj real imag cbrt reciprocal exp2".split()
BINARY = (
    "add subtract multiply true_divide maximum minimum power hypot arctan2 logaddexp copysign fmod".split()
)
SIMPLE = "add subtract multiply maximum minimum".split()
TYPES = ("float", "F4", "complex", "C8")
VIEWS = lines_of("""
{x}
{x}
{x}[::-1]
{x}[1:]
{x}[..., ::2]
{x}.T
{x}[..., None]
{x}[:0]
{x}[..., -1]
{x}.ravel()
{x}[::-2]
{x}.real
{x}.imag[1:]
{x}.swapaxes(0, -1)
{x}.diagonal()
np.lib.stride_tricks.sliding_window_view({x}[0], 2)
np.broadcast_to({x}, (2, *{x}.shape))
""")
MASKS = lines_of("""
({x}.real > 0.3)
(np.arange({x}.size).reshape({x}.shape) % 2 == 0)
M0
M1
True
({x} != 0)
""")
INDICES = lines_of("""
N0
[0, 0, 1]
-1
slice(None, None, -2)
(..., 0)
M0
[]
(N0[:2], slice(None))
(slice(None), [0, 1, 0])
([0, 1], [1, 0])
np.ix_([0, 1], [1, 0])
...
""")
STATEMENTS = lines_of("""
{n} = {a}
{n} = {a} * {a}
np.{u}({a}, out={v})
np.{b}({a}, {a}, out={v})
np.{b}({a}, {a}, out={v}, where={m})
np.{b}({a}, {a}, out={v}, casting="unsafe", dtype={t})
np.{s}.at({v}, {i}, x[1])
np.{s}.at(B0, N0, x[:4] * {a})
{n} = np.{s}.reduceat({a}, [0, 2, 1], axis=-1)
{n} = np.{s}.accumulate({a}, axis=0)
{n} = np.zeros((3, 4), {t}); np.{s}.accumulate(B1 * x[0], axis=-1, out={n})
{n} = np.{s}.reduce({a}, axis=-1, where={m}, initial=0.3)
{n} = np.{s}.outer({a}, {a})
{v}[{i}] = {a}
{v}[{i}] += {a}
{w}[{i}] *= {a}
{w}[...] = {w}[::-1]
np.copyto({v}, {a}, where={m})
np.putmask({w}, {m}, {a})
{n} = np.zeros((3, 4), {t}); {n}[...] = {a}
{n} = np.ma.array({a}, mask={m}).mean(axis=-1) * {a}
{n} = (np.ma.array({a}, mask={m}) * {a}).filled(0.3)
for p, q in np.nditer([{w}, {w}], op_flags=[["readonly"], ["readwrite"]]): q[...] = q * 0.5 + p
for k in np.ndindex(*{w}.shape): {w}[k] = {w}[k] * x[1]
{w}.flat[1:3] = {a}
B6["a"] = {a}
B6["c"].real[...] = {a}
B6[::-1]["a"] *= {a}
{n} = B6[N0[:2]]["b"] * {a}
{w}.real[::-1] = {a}
if x[2] > 0: {v}[...] = {a}
{w}.sort(axis=0)
{w}[1:] += {w}[:-1]
N0[:2] = N0[2:]
{n} = np.where({m}, {a}, {a})
{n} = {a}.astype({t})
{n} = np.take({a}, N0, axis=0, mode="wrap")
""")


class Writer:
    """The program that a seed stands for; `source` writes it."""

    def __init__(self, seed: int, size: int) -> None:
        self.random, self.lines, self.names = random.Random(seed), [], ["x", *STATE[:6], *STATE[7:9]]
        self.size, self.space = size, self.after([])

    def pick(self, among, **slots) -> str:
        return self.random.choice(list(among)).replace("{x}", slots.get("x", "x"))

    def name(self, written=False) -> str:
        names = self.names[1:] if written else self.names
        return self.random.choice(names[-4:] if self.random.random() < 0.6 else names)

    def slot(self, kind: str) -> str:
        if kind == "a":
            x = self.pick(VIEWS, x=self.name())
            r = self.random.random()
            one = f"np.{self.random.choice(UNARY)}({x})"
            return (
                x
                if r < 0.5
                else one
                if r < 0.8
                else self.random.choice(("0.5", "1j", "np.float32(0.3)", "x[1]"))
            )
        if kind in "wv":
            x = self.name(written=True)
            return x if kind == "w" else self.pick(VIEWS, x=x)
        among = {"m": MASKS, "i": INDICES, "u": UNARY, "b": BINARY, "s": SIMPLE, "t": TYPES}[kind]
        return self.pick(among, x=self.name())

    def statement(self) -> str:
        head, *rest = self.random.choice(STATEMENTS).split("{")
        new = f"v{len(self.lines)}"
        return head + "".join([(new if r[0] == "n" else self.slot(r[0])) + r[2:] for r in rest])

    def after(self, lines: list) -> dict | None:
        """What the names stand for after these lines; None if they cannot be run."""
        body = "\n".join([f"    {line}" for line in (*lines, "return dict(locals())")])
        with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
            warnings.simplefilter("error", np.exceptions.ComplexWarning)
            try:
                space = world(f"def f(x):\n{body}\n", NARROW)
                space |= space["f"](X.copy())
                floats = [v for n, v in space.items() if n[0] in "Bv" and v.dtype.kind in "fc"]
            except Exception:
                return None
        small = all([v.size < 200 and np.isfinite(v).all() and not (abs(v) > 1e3).any() for v in floats])
        return space if small else None

    def source(self) -> str:
        for _ in range(40 * self.size):
            line = self.statement()
            space = self.after([*self.lines, line]) if len(self.lines) < self.size else None
            if space is not None:
                self.lines.append(line)
                self.names += [n for n in space if n[0] == "v" and n not in self.names]
        outs = ", ".join([f"np.asanyarray({n})" for n in (*self.names[1:], "B6")])
        return (
            "def f(x):\n" + "".join([f"    {line}\n" for line in self.lines]) + f"    return total({outs})\n"
        )


def world(source: str, types: dict) -> dict:
    """The globals of a program, with its function f."""
    file = f"<program {abs(hash(source))}>"
    space = {"np": np, "__name__": file, **types}
    exec(CAPTURED + HELP, space)
    linecache.cache[file] = len(source), None, source.splitlines(True), file
    exec(compile(source, file, "exec"), space)
    return space


def reset(space: dict, changed: bool) -> None:
    """The captured arrays as they were made, or others."""
    fresh = {"np": np, "F4": space["F4"], "C8": space["C8"]}
    exec(CAPTURED, fresh)
    for name in STATE:
        space[name][...] = fresh[name]
    if changed:
        space["B0"] *= 0.9
        space["B1"][1] += 0.05
        space["B8"].real[0], space["N0"][1] = 0.2, 0


def run(space: dict, x, changed=False) -> float:
    reset(space, changed)
    return float(space["f"](x))


def state(space: dict) -> np.ndarray:
    parts = [space[n][k] for n in STATE for k in space[n].dtype.names or (Ellipsis,)]
    return np.concatenate([np.asarray(p, complex).reshape(-1) for p in parts])


def slope(space: dict, x, changed=False) -> float | None:
    """The derivative along V by differences, or None if it cannot be told."""
    at = lambda h: run(space, x + h * V, changed)
    d = np.array([[(at(h) - at(0.0)) / h, (at(0.0) - at(-h)) / h] for h in (1e-4, 3e-5, 1e-5)])
    centred, gap, size = d.mean(1), abs(d[:, 0] - d[:, 1]), 1e-5 * (1 + abs(d[2]).max())
    smooth = np.isfinite(d).all() and gap[2] <= 0.3 * gap[0] + size and np.ptp(centred[1:]) <= size
    return centred[2] if smooth else None
