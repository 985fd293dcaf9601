"""Random chains of views over whatever NumPy answers with memory of what it was given.

Nothing is listed: every function of tapegrad's registry and every method of an array is called with arguments
of many sorts, and
those calls whose result shares memory with the array are the links.  A program makes arrays (local ones, written ones, captured
ones, the argument), chains of links on them, writes at any link and reads at any other."""

import functools
import inspect
import itertools
import random
import warnings
from dataclasses import replace

import numpy as np
from judged_routes import PRELUDE, Text, lines_of, runs
from numpy.lib.array_utils import byte_bounds

import tapegrad  # noqa: F401  (fills the registry)
from tapegrad.ops import declare

SAMPLES = lines_of(r"""
np.full(4, 0.5)
np.full((2, 3), 0.5)
np.full((3, 3), 0.5)
np.asfortranarray(np.full((3, 2), 0.5))
np.full((1, 4), 0.5)
np.full((2, 2, 2), 0.5)
np.array(0.5)
""")
ARGUMENTS = (
    "",
    *lines_of(r"""

0
1
-1
0, 1
1, 0
(0, 1)
(1, 0)
(-1,)
2
(4,)
(2, 2)
(2, -1)
(3, 2)
(2, 3)
(6,)
(2, 4)
(1, -1)
None
float
'd'
complex
np.float64
[1]
[1, 2]
-1, 0
0, -1
1, (0, 1)
2, 1
np.ndarray
(2, 2), (8, 8)
...
2, 0
'C'
'F'
'A'
'K'
slice(1, None)
copy=False
copy=None
dtype=float
order='A'
subok=False
-1, order='F'
-1, copy=False
float, copy=False
axis=0
axis=-1
axis=(0, 1)
axis1=1, axis2=0
offset=1
ndmin=2
(0,), (1,)
shape=(2, 4)
1, -1
"""),
)
FIRST = (
    "",
    "0",
    "1",
    "2",
    "0, 1",
    "(0, 1)",
    "(2, -1)",
    "copy=False",
    "float, copy=False",
    "copy=None",
    "(2, 4)",
    "dtype=float",
)
BEFORE = (
    "'ii->i', ",
    "'ij->ji', ",
    "'ij->ij', ",
    "'i->i', ",
    "'ijk->kji', ",
    "'iij->ij', ",
    "'...i->i...', ",
    "None, ",
)
INTO = "{n}", "[{n}, {n}]"
# Still wrong (test_minimal_alias_programs.py, `OPEN`): left out here, or every search would end at them.
OPEN = "np.meshgrid(", "np.fft.fftn(", "np.fft.ifftn(", "np.array(x[0] * x[1])"
UNFIT = {
    "tofile",
    "dump",
    "dumps",
    "resize",
    "setflags",
    "setfield",
    "newbyteorder",
    "byteswap",
    "tolist",
    "item",
    "choose",
    "partition",
    "sort",
    "fill",
    "put",
}


def names() -> list:
    """Calls of one array, as texts with `{a}` for the array and `{args}` for the rest: the functions that
    tapegrad knows by their names in NumPy and its modules, and the methods of arrays."""
    modules = {
        "np": np,
        "np.linalg": np.linalg,
        "np.lib.stride_tricks": np.lib.stride_tricks,
        "np.fft": np.fft,
    }
    known = {id(f) for f in declare.NUMPY}
    found = []
    for where, module in modules.items():
        for name in sorted(dir(module)):
            f = getattr(module, name, None)
            if isinstance(f, np.ufunc):
                continue  # makes new arrays
            if f"{where}.{name}(" in OPEN:
                continue
            if id(f) in known or where == "np.lib.stride_tricks" and callable(f) and not inspect.isclass(f):
                found.append(f"{where}.{name}({{before}}{{a}}{{args}})")
    for name in sorted(dir(np.ndarray)):
        if name.startswith("_") and name not in ("__getitem__", "__copy__", "__array__", "__iter__"):
            continue
        if name not in UNFIT:
            found.append(
                f"{{a}}.{name}({{args}})" if callable(getattr(np.ndarray, name)) else f"{{a}}.{name}"
            )
    return found


def parts(x) -> list:
    """Arrays in a result: [(suffix of its text, array)]."""
    if isinstance(x, np.ndarray):
        return [("", x)]
    if isinstance(x, (tuple, list)):
        return [(f"[{k}]", a) for k, a in enumerate(x) if isinstance(a, np.ndarray)][:2]
    return []


@functools.cache
def links() -> tuple:
    """Texts with `{a}`, a list for each name: calls whose result shares memory with the array, on some sample.  Names that share with
    none of a few arguments are not asked further."""
    return tuple([[*sharing(name, ARGUMENTS)] for name in names() if sharing(name, FIRST, SAMPLES[::2])])


def sharing(name: str, arguments: tuple, samples: tuple = SAMPLES) -> dict:
    found: dict = {}
    space: dict = {"np": np}
    made_of = [eval(sample, space) for sample in samples]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for before, args in itertools.product(
            BEFORE if "einsum" in name else ("",), arguments if "{args}" in name else ("",)
        ):
            joint = ", " if args and "{before}" in name else ""
            text = name.replace("{before}", before).replace("{args}", joint + args)
            call = eval("lambda a: " + text.replace("{a}", "a"), space)
            for a in made_of:
                a = a.copy(order="K")
                try:
                    made = parts(call(a))
                except Exception:
                    continue
                for suffix, b in made:
                    if b.dtype in (float, complex) and b.size and np.shares_memory(a, b) and inside(b, a):
                        found[text + suffix] = None
    return found


def inside(b, a) -> bool:
    """Does b stay within a's memory, and name no element twice where it can be written?  (What `as_strided` makes may not.)"""
    (low, high), (least, most) = byte_bounds(b), byte_bounds(a)
    places = sum([i * s for i, s in zip(np.indices(b.shape), b.strides, strict=True)], np.zeros(b.shape))
    return least <= low and high <= most and (not b.flags.writeable or np.unique(places).size == b.size)


INDEX = (
    "[1:]",
    "[::-1]",
    "[..., 0]",
    "[0]",
    "[-1:]",
    "[None]",
    "[..., None]",
    "[::2]",
    "[:, 1]",
    "[...]",
    "[1]",
    "[:-1]",
    "[()]",
)
MORE = lines_of(r"""
[*{a}][-1]
next(iter({a}))
np.r_[{a}]
[b for b in {a}][0]
np.nditer({a}).operands[0]
np.broadcast_arrays({a}, 1.0)[0]
np.meshgrid({a}, {a}, copy=False)[0]
np.meshgrid({a}, {a}, copy=False, sparse=True)[1]
np.ix_
np.nan_to_num({a}, copy=False)
np.lib.stride_tricks.sliding_window_view({a}, 2, 0)
np.add({a}, 0.1, out={a})
np.take({a}, 0, 0)
np.where(True, {a}, {a})
np.ndindex
{a}.__iadd__(0.1)
operator.imul({a}, 1.1)
np.cumsum({a}, out={a}) if {a}.ndim == 1 else {a}
np.atleast_2d({a}, {a})[1]
np.sin({a}, out={a}).T
functools.reduce(np.swapaxes, (0, -1), {a}) if 0 else {a}
copy.copy({a})
""")
STARTS = lines_of(r"""
{n} = x
{n} = x * 1.0
{n} = x[1:]
{n} = np.outer(x, x)
{n} = np.zeros((2, 3))
& {n}[0] = x
{n} = np.zeros(4)
& {n}[1:] = x * x
{n} = np.empty((3, 3), order='F')
& {n}[...] = x
{n} = np.ones((2, 2, 2))
& {n}[0] *= x[0]
{n} = np.stack([x, x * x])
{n} = np.sin(x)[None]
{n} = np.full(6, 0.3)
& {n}[::2] = x
{n} = np.array([x[0], x[1] * x[2], 0.5])
{n} = np.array(x[0] * x[1])
{n} = np.zeros((3, 3))
& {n}[...] = x[:, None] * x
""")
CAPTURED = lines_of(r"""
{n} = np.linspace(0.2, 0.8, 4)
{n} = np.full((2, 3), 0.4)
{n} = np.full((3, 3), 0.3)
{n} = np.full((3, 2), 0.3, order='F')
{n} = np.linspace(0.1, 0.8, 8)[::2]
{n} = np.full((2, 2, 2), 0.6)
{n} = np.full(3, 0.2)[None].T
{n} = np.array(0.4)
""")
WRITES = lines_of(r"""
{a}[...] = fit(x, {a}) * 0.8
{a}[...] *= 1.1
{a} += 0.2
{a} *= x[1]
{a}[...] = 0.6
{a}[0] = x[2]
{a}[..., -1] *= x[0] + 0.3
np.multiply({a}, x[2] + 0.5, out={a})
np.copyto({a}, fit(x, {a}))
{a}.fill(x[1])
{a}.flat[0] = x[0]
{a}[...] = {a} * {b}
{a}[{a} > -50.0] *= 0.9
{a} -= fit(x, {a}) * {a}
np.add.at({a}, 0, x[0])
{a}[...] = {b}
{a}.sort()
{a}[::-1] = {a} * 0.7
np.sin({a}, out={a})
np.put({a}, [0], x[1])
{a} **= 2
""")
READS = lines_of(r"""
s = s + red({a})
s = s + red({a}) * x[1]
s = s + (np.sin({a}) * fit(x, {a})).sum()
s = s + ({a} * {b}).sum() * 0.3
s = s + np.tensordot({a}, {a}, np.ndim({a})) * 0.4
s = s + red(np.exp({a} * 0.3))
s = s + ({a} / (2.0 + np.cos({a}))).sum()
s = s + np.linalg.norm({a} - 2.0)
s = s + red({a} @ {b}) * 0.3
s = s + np.inner({a}, {a}).sum() * 0.2
s = s + red(np.kron({a}, {a}))
s = s + np.prod({a} + 1.5) * 0.1
s = s + red(np.cumsum({a}) * {a}.ravel())
s = s + red(np.einsum('...i,...i', {a}, {a})) * 0.3
s = s + red(np.where(True, {a}, 0.0) ** 2)
s = s + red(np.outer({a}, {a})) * 0.1
s = s + np.vdot({a}, {a}) * 0.2
s = s + red(np.convolve({a}, {b}))
s = s + red({a} ** {b} if np.all({a} > 0) else {a})
""")


def draw(seed: int, library: str = "numpy") -> Text:
    """A program that NumPy can run."""
    return next(
        t
        for k in itertools.count()
        if runs(t := replace(attempt(random.Random(f"{seed} {k}"), seed), library=library))
    )


def attempt(rng, seed: int) -> Text:
    """Lines are run on plain arrays while they are drawn, and kept where NumPy takes them."""
    space: dict = {"x": np.array([0.7, -0.6, 0.9]), "s": 0.0}
    head, body, pool = [], [], []
    exec(PRELUDE, space)

    def keep(lines: list, text: str) -> bool:
        try:
            exec(text, space)
        except Exception:
            return False
        lines.append(text)
        return True

    def array(name: str) -> bool:
        a = space[name]
        return type(a) is np.ndarray and a.dtype == float and 0 < a.size <= 64

    def start(lines, texts, name):
        if keep(lines, rng.choice(texts).format(n=name)):
            pool.append(name)

    def chain(lines, name, length):
        for _ in range(length):
            r = rng.random()
            link = (
                rng.choice(rng.choice(links()))
                if r < 0.6
                else "{a}" + rng.choice(INDEX)
                if r < 0.85
                else rng.choice(sound(MORE))
            )
            new = f"v{len(space)}"
            before = len(lines)
            if (
                keep(lines, f"{new} = {link.replace('{a}', name)}")
                and array(new)
                and inside(space[new], space[name])
            ):
                pool.append(new)
                name = new
            else:
                del lines[before:]

    sound = lambda texts: [t for t in texts if not any(o in t for o in OPEN)]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for k in range(rng.choice((0, 1, 1, 2))):
            start(head, CAPTURED, f"buf{k}")
            if rng.random() < 0.4:
                chain(head, f"buf{k}", rng.choice((1, 2)))
        captured = list(pool)
        start(body, sound(STARTS), "a0")
        if rng.random() < 0.4:
            start(body, sound(STARTS), "a1")
        for _ in range(rng.choice((2, 3, 4, 5))):
            chain(body, rng.choice(pool), rng.choice((1, 2, 3)))
            for _ in range(rng.choice((1, 2, 2, 3))):
                texts = WRITES if rng.random() < 0.5 else READS
                keep(body, rng.choice(texts).format(a=rng.choice(pool), b=rng.choice(pool)))
        for name in pool:
            keep(body, rng.choice(READS[:5]).format(a=name, b=name))
    return Text(tuple(head), tuple(body), tuple(captured), (), rng.random() < 0.3, seed)
