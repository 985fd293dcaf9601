"""Random sequences of tracked writes, plain writes, and writes by what knows nothing of tapegrad: on captured
arrays and arrays made inside, on their views, on index arrays, masks and other settings, during f and between
the forward run and a pullback."""

import itertools
import random
import sys
import types
import warnings
from dataclasses import replace

import numba
import numpy as np
from judged_routes import PRELUDE, Text, lines_of, runs

# Floats of one, two and no axes that f captures, and views of them.
CAPTURED = lines_of(r"""
{n} = np.linspace(0.2, 0.8, 3)
{n} = np.full((2, 3), 0.4)
{n} = np.linspace(0.1, 0.9, 9).reshape(3, 3)
{n} = np.linspace(0.1, 0.8, 6)[::2]
{n} = np.full((3, 2), 0.3, order='F')
{n} = np.array(0.6)
{n} = np.frombuffer(array.array('d', [0.3, 0.4, 0.5]))
{n} = np.frombuffer(bytearray(np.full(3, 0.3).tobytes()))
{n} = np.full(40, 0.3)
{n} = np.linspace(0.2, 0.8, 12).reshape(2, 2, 3)
""")
SETTINGS = lines_of(r"""
{n} = np.array([0, 2, 1])
{n} = np.array([1, 1, 0])
{n} = np.array([True, False, True])
{n} = np.array([2, 0])
{n} = np.array([0, -1])
{n} = [0, 2]
{n} = np.array([1.5, 0.5, 2.0])
{n} = np.array([[1, 0, 2]])
""")
LOCAL = lines_of(r"""
{n} = np.zeros(3)
{n} = x * 1.0
{n} = np.outer(x, x)
{n} = np.full((2, 3), 0.5)
& {n}[0] = x
{n} = np.linspace(0.2, 0.8, 3)
{n} = np.sin(x)
{n} = np.zeros((3, 3))
& {n}[...] = x
{n} = np.ones(3) * 0.7
""")
VIEWS = lines_of(r"""
{n} = {a}[1:]
{n} = {a}[::-1]
{n} = {a}.T
{n} = {a}.reshape(-1)
{n} = {a}[..., 0]
{n} = {a}[()]
{n} = np.asarray({a})
{n} = {a}.view()
{n} = {a}.ravel()
""")
# What writes knowing nothing of tapegrad; each is right on plain arrays.
FOREIGN = lines_of(r"""
m = memoryview({a}).cast('B').cast('d')
& m[0] = 0.9
{a}.data[{first}] = 1.1
ctypes.cast({a}.ctypes.data, ctypes.POINTER(ctypes.c_double))[0] = 0.8
{a}.ctypes.data_as(ctypes.POINTER(ctypes.c_double))[0] = 1.2
p = (ctypes.c_double * {a}.size).from_buffer({a})
& p[0] = 0.35
ctypes.memmove({a}.ctypes.data, np.full(1, 0.45).ctypes.data, 8)
scipy.ndimage.uniform_filter1d({a} * 1.0, 2, output={a})
scipy.ndimage.gaussian_filter({a} * 1.0, 1.0, output={a})
np.random.default_rng(0).shuffle({a})
np.random.default_rng(1).shuffle({a}, axis=-1)
np.random.RandomState(2).shuffle({a})
random.Random(3).shuffle({a})
np.random.default_rng(3).random(out={a})
np.random.default_rng(4).standard_normal(out={a})
np.random.default_rng(5).permuted({a}, out={a})
np.add.at({a}, 0, 0.25)
np.multiply.at({a}, {idx}, 1.5)
np.add({a}, 0.1, out={a})
np.cos({a}, out={a})
np.cumsum({a}, out={a})
np.add.accumulate({a}, out={a})
np.dot(np.eye(3), {a}.copy(), out={a})
np.take({a}.copy(), [0, 0, 1], axis=0, out={a}, mode='clip')
np.clip({a}, 0.3, 0.6, out={a})
np.copyto({a}, 0.55)
np.copyto({a}[..., :1], 0.65)
np.copyto({a}, {b})
np.put({a}, [0], 0.2)
np.place({a}, {a} > 0.45, 0.7)
np.putmask({a}, {a} < 0.5, 0.3)
np.fill_diagonal({a}, 0.15)
np.put_along_axis({a}, np.argsort({a}, axis=-1)[..., :1], 0.9, -1)
np.nan_to_num({a}, copy=False)
& {a} += 0.01
np.frombuffer({a})[0] = 0.75
np.ndarray((1,), float, {a})[0] = 0.85
np.lib.stride_tricks.as_strided({a}, (1,), (8,))[0] = 0.95
np.from_dlpack({a})[..., 0] = 0.5
np.asarray({a}.data)[..., 0] = 0.4
np.asarray(memoryview({a}))[...] = 0.33
np.ctypeslib.as_array({a}.ctypes.data_as(ctypes.POINTER(ctypes.c_double)), (1,))[0] = 0.44
for v in np.nditer({a}, op_flags=['readwrite']):
&     v[...] = v * 1.4
with np.nditer({a}, ['external_loop'], ['readwrite']) as it:
&     for v in it:
&         v *= 0.7
it = np.nditer([{a}, None])
& for p, q in it:
&     q[...] = p
& {a}[...] = it.operands[1]
{a}.flat[:] = 0.6
{a}.flat[0] = 0.3
for k, v in np.ndenumerate({a}):
&     {a}[k] = v * 0.9
{a}.sort()
{a}.partition(1)
{a}.fill(0.35)
{a}.put(0, 0.9)
{a}.setfield(0.5, float)
{a}.byteswap(inplace=True).byteswap(inplace=True)
& {a}.real[...] = 0.4
{a}.real[...] *= 1.2
{a}.view(np.int64)[...] = 4599075939470750515
{a}.view('V8')[...] = np.full(1, 0.7).view('V8')
{a}.view(complex).imag[...] = 0.2
{a}.__setitem__(0, 0.45)
operator.setitem({a}, 0, 0.65)
operator.imul({a}, 1.3)
memoryview({a})[{first}] = 0.25
{a}.data.cast('B')[:8] = np.full(1, 0.3).tobytes()
io.BytesIO(np.full(1, 0.77).tobytes()).readinto(memoryview({a}).cast('B')[:8])
struct.pack_into('d', {a}, 0, 0.66)
jitted({a})
python_function({a})
functools.reduce(operator.iadd, [0.1, 0.2], {a})
np.vectorize(lambda k: {a}.fill(0.5))(0)
np.apply_along_axis(lambda r: r.fill(0.4) or 0.0, -1, {a})
list(map({a}.fill, [0.3, 0.8]))
threading.Thread(target={a}.fill, args=(0.6,)).run()
t = threading.Thread(target={a}.fill, args=(0.6,))
& t.start()
& t.join()
np.ma.array({a}, copy=False)[...] = 0.5
np.asmatrix({a})[0, 0] = 0.7
{a}.view(np.recarray)[...] = 0.4
scipy.linalg.inv({a} @ {a}.T + np.eye(3), overwrite_a=True)
& {a} *= 1.1
scipy.special.expit({a}, out={a})
np.linalg.matmul({a}.copy(), np.eye({a}.shape[-1]) * 0.5, out={a})
np.einsum('...->...', {a}.copy() * 0.5, out={a})
np.concatenate([{a}[1:], {a}[:1]], out={a}.copy())
& {a}[...] = 0.5
np.sum([{a}, {a}], axis=0, out={a})
{a}[{idx}] = 0.4
{a}[{idx}] += 0.2
{a}[{a} > 0.4] = 0.2
{a}[...] = {a}[::-1]
{a} **= 2
{a}[...], {b}[...] = {b}, {a}.copy()
exec('a[...] = 0.6', {{'a': {a}}})
setattr({a}, 'shape', {a}.shape)
& {a}.flat = 0.3
{a}.flags.writeable = True
& {a}[...] = 0.7
{a}.resize({a}.shape)
& {a}[...] *= 0.8
np.ndarray.__setitem__({a}, 0, 0.4)
np.ndarray.fill({a}, 0.8)
np.ndarray.sort({a})
type({a}).fill({a}, 0.2)
[{a}][0][...] = 0.3
for row in {a}:
&     row *= 0.6
a0, *rest = {a}
& a0 *= 0.5
np.lib.recfunctions.structured_to_unstructured({a}.view([('a', float)]))[...] = 0.4
""")
ON_SETTINGS = lines_of(r"""
{i}[...] = {i}[::-1].copy()
{i}[0] = {i}[-1]
{i}.sort()
{i}[...] = {i}[0]
np.random.default_rng(0).shuffle({i})
memoryview({i})[{ifirst}] = {i}.flat[1]
random.Random(1).shuffle({i})
{i}.fill({i}.flat[-1])
np.copyto({i}, {i}.flat[0])
{i}.reverse()
{i}[0], {i}[1] = {i}[1], {i}[0]
np.logical_not({i}, out={i})
{i} %= 2
{i}.data[{ifirst}] = {i}.flat[-1]
jitted_index({i})
""")
# Tracked statements; {i} is a setting, {a} and {b} are arrays.
TRACKED = lines_of(r"""
{a}[...] = fit(x, {a}) * 0.8
{a} *= x[0]
{a}[0] = x[1]
{a}[...] += fit(x, {a}) ** 2
{a}[{i}] = x[0] * 0.6
{a}[{i}] *= x[2]
{a} -= {b} * x[1]
np.multiply({a}, x[0], out={a})
np.copyto({a}, fit(x, {a}))
np.add.at({a}, {i}, x[1])
np.put_along_axis({a}, {i}, x[:1], -1)
np.put({a}, {i}, x[:2])
np.place({a}, {i}, x)
np.putmask({a}, {i}, x)
np.copyto({a}, x, where={i})
np.sin({a}, out={a}, where={i})
{a}[...] = np.where({i}, x, {a})
{a}.fill(x[0] * x[1])
""")
READS = lines_of(r"""
s = s + (fit(x, {a}) * {a}).sum()
s = s + (fit(x, {a}) ** 2 * {a}).sum()
s = s + red({a}) * x[0]
s = s + (np.sin({a}) * fit(x, {a})).sum()
s = s + ({a} ** 2).sum() * x[1]
s = s + (x * x[{i}].sum() * {a}).sum()
s = s + red(x[{i}] ** 2)
s = s + red(np.take(x, np.asarray({i}, int)) ** 2 * 0.7)
s = s + red(np.take_along_axis(np.sin(x), {i}, -1))
s = s + (np.where({i}, x, 0.0) ** 2).sum()
s = s + red(np.compress({i}, x) ** 2)
s = s + (np.inner({a}, x) ** 2).sum()
s = s + (np.tensordot({a}, x, 1) ** 2).sum()
s = s + (np.dot({a}, x) ** 2).sum()
s = s + np.kron({a}, x).sum() * x[0]
s = s + (np.outer({a}, x) ** 2).sum()
s = s + (np.exp({a} * x[0])).sum()
s = s + ({a} / (x[0] + 3.0)).sum()
s = s + ((x[0] + 2.0) ** {a}).sum()
s = s + (np.interp(x * 0.1 + 0.5, np.array([0.0, 1.0]), {a}.ravel()[:2]) ** 2).sum()
s = s + np.average(x, weights={a}) ** 2
s = s + (np.einsum('...i,i->...', {a}, x) ** 2).sum()
s = s + (np.convolve({a}.ravel(), x) ** 2).sum() * 0.2
s = s + (np.sum(x * x, where={i}) ** 2)
s = s + (np.prod(x + 2.0, where={i}))
s = s + np.linalg.norm({a} - x[0] - 3.0)
s = s + (np.linalg.solve({a} @ {a}.T + 3.0 * np.eye(3), x) ** 2).sum()
s = s + (np.repeat(x ** 2, {i}) * 0.5).sum()
s = s + red(np.add.reduceat(x ** 2, {i}))
s = s + red(np.choose({i}, [x[0], x[1], x[2]]) ** 2)
s = s + (np.roll(x ** 2, {i}[0]) * {a}).sum()
s = s + (x[{i}] * x[{i}][::-1] * {a}).sum()
s = s + np.polyval({a}.ravel()[:3], x[0])
s = s + (np.maximum({a}, x[0] - 5.0) * x[1]).sum()
s = s + (np.clip(x, {a} - 9.0, {a} + 9.0) ** 2).sum()
s = s + (np.cumsum(x * {a}, axis=-1) ** 2).sum()
s = s + (np.diff(x ** 2, prepend={a}.ravel()[:1]) ** 2).sum()
s = s + (np.gradient(x ** 2, {a}.ravel()[0] + 1.0) ** 2).sum()
s = s + np.trapezoid(x ** 2, {a}.ravel()[:3])
s = s + (np.matmul({a}, x) ** 2).sum()
s = s + (np.linalg.multi_dot([{a}, {a}.T, x]) ** 2).sum()
s = s + (np.cross({a}, x) ** 2).sum()
s = s + (x[{i}[0] % 3] ** 2 * {a}).sum()
s = s + (x ** {a}.size * {a}).sum()
s = s + np.vdot({a}, np.full_like({a}, x[2] * x[0]))
s = s + (np.select([{i}], [x ** 2], {a})).sum() * x[0]
s = s + red(np.quantile(x ** 2 + np.arange(3) * 5, {a}.ravel()[:1] * 0.1 + 0.3))
s = s + (tg.checkpoint(lambda v: v * v * {a})(x)).sum()
s = s + tg.grad(lambda z: (z ** 3 * {a}).sum())(x).sum()
s = s + (np.linalg.inv({a} + 4.0 * np.eye(3)) @ x * x).sum()
s = s + (np.power({a} + 2.0, x)).sum()
s = s + (np.arctan2({a} + 2.0, x + 3.0)).sum()
s = s + red(np.insert(x ** 2, {i}, {a}.ravel()[0]))
s = s + red(np.delete(x ** 2, {i}))
s = s + (np.piecewise(x, [{i}], [lambda v: v * v, lambda v: v ** 3]) * {a}).sum()
s = s + np.bincount({i}, x ** 2) @ np.arange(1.0, np.max({i}) + 2)
s = s + red(np.sort({a} * 3.0) * x)
""")
HELPERS = (
    "import io, struct\nimport scipy.linalg, scipy.special, numpy.lib.recfunctions\nfrom foreign_writers "
    "import jitted, jitted_index",
    "def python_function(a):\n    a[...] = a * 0.5 + 0.1",
)


def halve(a):
    for k in range(a.shape[0]):
        a[k] = a[k] * 0.5 + 0.2


def turn(a):
    a[0] = a[a.shape[0] - 1]


def compile_writers() -> None:
    """`foreign_writers`: a module of compiled functions, the same for all programs."""
    if "foreign_writers" not in sys.modules:
        module = sys.modules["foreign_writers"] = types.ModuleType("foreign_writers")
        module.jitted, module.jitted_index = (
            numba.njit("(float64[:],)")(halve),
            numba.njit("(int64[:],)")(turn),
        )


def draw(seed: int, library: str = "numpy") -> Text:
    """A program that NumPy can run."""
    compile_writers()
    return next(
        t
        for k in itertools.count()
        if runs(t := replace(attempt(random.Random(f"{seed} {k}"), seed), library=library))
    )


def attempt(rng, seed: int) -> Text:
    """Lines are run on plain arrays while they are drawn, and kept where NumPy takes them."""
    space: dict = {"x": np.array([0.7, -0.6, 0.9]), "s": 0.0, "__name__": "route_program"}
    head, body, after = list(HELPERS), [], []
    arrays, settings = [], []
    exec("\n".join([PRELUDE, *HELPERS]), space)

    def keep(lines: list, text: str) -> bool:
        held = {n: v.copy() for n, v in space.items() if isinstance(v, np.ndarray)}
        try:
            exec(text, space)
        except Exception:
            for n, v in held.items():
                if (
                    isinstance(space[n], np.ndarray)
                    and space[n].shape == v.shape
                    and space[n].flags.writeable
                ):
                    space[n][...] = v
            return False
        if any(not np.all(np.isfinite(space[n])) for n in arrays) or not np.isfinite(space["s"]):
            raise ArithmeticError
        lines.append(text)
        return True

    def new(lines: list, texts: tuple, pool: list) -> None:
        name, values = f"v{len(space)}", {"a": rng.choice(arrays) if arrays else ""}
        if keep(lines, rng.choice(texts).format(n=name, **values)) and np.size(space[name]):
            pool.append(name)

    def line(lines: list, texts: tuple, pool=None) -> bool:
        a, b, i = rng.choice(pool or arrays), rng.choice(pool or arrays), rng.choice(settings)
        dims = lambda n: ", ".join("0" * np.ndim(space[n])) or "()"
        return keep(
            lines,
            rng.choice(texts).format(a=a, b=b, i=i, idx=rng.choice((0, i)), first=dims(a), ifirst=dims(i)),
        )

    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            for _ in range(rng.choice((1, 1, 2))):
                new(head, CAPTURED, arrays)
                if rng.random() < 0.3:
                    new(head, VIEWS, arrays)
            captured = list(arrays)
            for _ in range(rng.choice((1, 2))):
                new(head, SETTINGS, settings)
            if rng.random() < 0.5:
                new(body, LOCAL, arrays)
            if rng.random() < 0.3:
                new(body, VIEWS, arrays)
            wanted, tries = rng.choice((3, 5, 7, 9)), 0
            while wanted and tries < 300:
                tries += 1
                r = rng.random()
                kind = READS if r < 0.4 else FOREIGN if r < 0.75 else ON_SETTINGS if r < 0.85 else TRACKED
                wanted -= line(body, kind)
            plain = [n for n in captured if isinstance(space[n], np.ndarray)]
            for n in arrays:
                keep(
                    body,
                    f"s = s + red({n}) * x[0]"
                    if rng.random() < 0.5
                    else f"s = s + (fit(x, {n}) * {n}).sum()",
                )
            state = dict(space)
            for _ in range(rng.choice((0, 1, 2, 3))):
                line(after, FOREIGN if rng.random() < 0.7 else ON_SETTINGS, plain)
            del state
    except ArithmeticError:
        pass
    return Text(tuple(head), tuple(body), tuple(captured), tuple(after), rng.random() < 0.3, seed)
