"""Random programs of operations on arrays in any memory order, with writes through whatever is a view or a
copy by that order.

The judge is the plain run: a write that reaches the array in the one and not in the other makes another number.  The same text is run by
NumPy (or CuPy) and by tapegrad."""

import numpy as np
import scipy.fft
import scipy.linalg
import scipy.special
from random_layouts import KINDS, relaid

import tapegrad as tg

# a, b: axes; p: a permutation of the axes, q: its inverse; o: an order; i: places along the axis a; k: a
# small number
OPERATIONS = """
y.transpose({p}) | np.swapaxes(y, {a}, {b}) | np.moveaxis(y, {a}, {b}) | np.rollaxis(y, -1) | np.flip(y, {a}) | np.rot90(y, {k}) | y[::-1]
y[..., ::2] | y[:, :2] | y.T[None] | np.asfortranarray(y) | np.ascontiguousarray(y) | y.copy('{o}') | np.copy(y, order='{o}')
np.array(y, order='{o}') | np.asarray(y, order='{o}') | np.require(y, None, ['C', 'F', 'W', 'A'][{k}]) | y.astype(float, order='{o}')
y.astype(float, order='{o}', copy=False) | np.sin(y, order='{o}') | np.add(y, 1.0, order='{o}', dtype=float) | y * 1.5 | y**2 | abs(y)
y + np.arange(1.0 * y.size).reshape([y.shape[n] for n in {p}]).transpose({q}) * 0.1 | y * np.arange(1.0, 1 + y.shape[-1])
np.hypot(y, np.ones([y.shape[n] for n in {p}]).transpose({q})) | np.exp(-y, out=np.empty(y.shape[::-1]).T) | y[..., None] * np.ones(2)
np.sum(y, {a}) | y.mean({a}, keepdims=True) | y.max({a}) | np.var(y, {a}) | np.prod(y, {a}) | np.median(y, {a}) | np.ptp(y, {a})
np.quantile(y, [0.2, 0.7], {a}) | np.percentile(y, 30.0, {a}, keepdims=True) | np.average(y, {a}, abs(y) + 1) | np.nansum(y, {a})
np.nanmean(y, {a}) | np.nanstd(y, {a}) | np.nanmax(y, {a}, keepdims=True) | np.nanmedian(y, {a}) | np.nancumsum(y, {a})
np.cumsum(y, {a}) | np.cumprod(y, {a}) | np.add.accumulate(y, -1) | np.multiply.reduce(y, {a}, keepdims=True) | np.trapezoid(y, axis={a})
np.cumulative_sum(y, axis={a}, include_initial=True) | np.diff(y, axis={a}) | np.gradient(y, axis={a}) | np.sort(y, {a})
np.partition(y, 0, {a}) | np.take_along_axis(y, np.argsort(y, {a}), {a}) | np.take(y, {i}, {a})
np.compress(np.arange(y.shape[{a}]) % 2 == 0, y, {a}) | y[[1, 0]] | y[:, [1, 0]] | y[[0, 1], ..., [1, 0]] | y[np.ix_([0, 1], [1, 0])]
np.roll(y, 1, {a}) | np.roll(y, 2) | np.repeat(y, 2, {a}) | np.tile(y, 2) | np.stack([y, y * 2], {a}) | np.concatenate([y, y * 0.5], {a})
np.concatenate([y, np.asfortranarray(y) * 0.5], {a}) | np.vstack([y, y]) | np.column_stack([y, y]) | np.dstack([y, y])
np.append(y, y, {a}) | np.block([[y, y * 2]]) | np.r_[y, y] | np.c_[y, y] | np.resize(y, (3, 4)) | np.insert(y, 1, 0.3, {a})
np.delete(y, 0, {a}) | np.pad(y, 1, ['constant', 'edge', 'wrap', 'reflect'][{k}]) | np.array_split(y, 2, {a})[0]
np.where(y > 0.1, y, 0.3) | np.select([y > 0.2], [y], 0.1) | np.clip(y, -0.5, 0.9) | np.maximum(y, 0.1) | np.nan_to_num(y)
np.round(y, 1) + y | np.choose((np.arange(y.size) % 2).reshape(y.shape), [y, y * 2]) | np.piecewise(y, [y > 0.5], [0.3, 2.0]) + y
np.extract(y > -99, y) | np.zeros_like(y, order='{o}') + y | np.full_like(y, y.sum(), order='{o}') * y
np.linspace(y, y * 2, 3, axis={k} % 2) | np.interp(y, [-5.0, 5], [-1.0, 2]) | np.fft.fft(y, {k} + 2, {a}).real | abs(np.fft.rfftn(y))
np.fft.irfft(y, 3, {a}) | np.fft.fftshift(y) | abs(sp.fft.fft(y, axis={a})) | np.einsum('...i,...i->...i', y, y)
np.einsum('...i,ij->j...', y, np.ones((y.shape[-1], 2))) | np.einsum('ab,ab->ba', y, y) | np.einsum('ab,cb->ca', y, y, optimize=True)
y @ np.ones((y.shape[-1], 3)) | np.ones((2, y.shape[-2])) @ y | np.dot(y, np.ones((y.shape[-1], 2)))
np.tensordot(y, np.ones((2, y.shape[-1])), (-1, 1)) | np.inner(y, np.ones((2, y.shape[-1]))) | np.multiply.outer(y, np.array([1.0, 2.0]))
np.cross(y, np.array([1.0, 2.0, 3.0])) | np.kron(y, np.ones((1, 2))) | np.outer(y, y.ravel()[:2]) | np.tril(y)
np.vander(y.ravel()[:3], 3) | np.broadcast_to(y, (2, *y.shape)) | np.squeeze(y) | np.atleast_3d(y)
y.reshape(y.shape[0], -1, order='{o}') | np.ravel(y, '{o}') | y.flatten('{o}').reshape(y.shape) | np.expand_dims(y, 1)
np.meshgrid(y.ravel()[:3], np.array([1.0, 2.0]))[0] | np.array([v for v in y]) | np.apply_along_axis(lambda v: v * 2 - v[0], {a}, y)
np.vectorize(lambda v: v * v + 1)(y) | (y + 1j * y).imag | y.conj() | np.angle(y + 1j) | np.linalg.inv(y @ y.mT + 3 * np.eye(y.shape[-2]))
np.linalg.solve(y @ y.mT + 3 * np.eye(y.shape[-2]), y) | np.linalg.qr(y @ y.mT)[1]
np.linalg.cholesky(y @ y.mT + 3 * np.eye(y.shape[-2])) | sp.linalg.inv(y @ y.T + 3 * np.eye(len(y)))
np.linalg.matrix_power(y @ y.mT * 0.3, 2) | sp.linalg.solve(y @ y.T + 3 * np.eye(len(y)), y)
sp.linalg.solve_triangular(np.eye(len(y)) * 2, y, lower=True) | sp.linalg.expm(np.sin(y @ y.T))
sp.linalg.qr(y @ y.T + 3 * np.eye(len(y)))[1] | sp.linalg.block_diag(y, y) | sp.special.erf(y) | sp.special.logsumexp(y, {a})
sp.special.softmax(y, {a}) | sp.special.multigammaln(abs(y) + 3, 2) | np.divmod(y, 0.7)[1] | np.frexp(y)[0] | np.i0(y)
tg.checkpoint(lambda v: np.sort(v, 0) * 1.1)(y) | tg.grad(lambda v: (v.reshape(-1) ** 2).sum())(y)
tg.vmap(lambda v: np.sort(v, 0) * 2)(y)
""".replace("\n", " | ").split(" | ")[1:-1]
WRITES = """
z = y.reshape(-1); z[0] = 0.7; z[-1] = z[0] * y.flat[0]
z = y.ravel(); z[z.size // 2] *= 2.0
z = y.ravel('K'); z[0] = z[-1] * 0.5
z = y.reshape(y.shape[0], -1); z[0] += 0.25
z = y.reshape(-1, order='F'); z[-1] = 0.1
z = y.ravel('A'); z[:2] *= 0.5
z = y.reshape(-1, y.shape[-1]); z[-1] = z[0]
z = np.asarray(y, order='{o}'); z[0] = 0.4
z = np.require(y, None, 'F'); z[-1] *= 1.5
z = y; z.flat[0] = 0.3; z.flat[1:2] = z.flat[0:1]
""".strip().split("\n")  # fmt: skip


def point(seed):
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.2, 1.5, tuple(rng.integers(2, 4, rng.integers(1, 4))))
    return relaid(x, str(rng.choice(KINDS[:6])), rng), rng


def line(rng, shape):
    """One more line for an array y of this shape."""
    n = len(shape)
    a, p = int(rng.integers(n)), rng.permutation(n).tolist()
    words = dict(
        a=a,
        b=int(rng.integers(n)),
        p=tuple(p),
        q=tuple(np.argsort(p).tolist()),
        o=str(rng.choice(list("CFAK"))),
    )
    words.update(k=int(rng.integers(4)), i=rng.integers(0, shape[a], 3).tolist())
    written = rng.random() < 0.4
    text = str(rng.choice(WRITES if written else OPERATIONS)).format(**words)
    return f"{text}; t = t + weigh(z)" if written else f"y = {text}"


def function(lines, library=np, science=scipy):
    text = "\n".join(
        [f"    {k}" for k in ["y, t = x, 0.0", *lines, "return weigh(y.ravel()) + t + (x * x).sum()"]]
    )
    space = {
        "np": library,
        "sp": science,
        "tg": tg,
        "weigh": lambda z: (z * library.cos(library.arange(z.size)).reshape(z.shape)).sum(),
    }
    exec(f"def f(x):\n{text}", space)
    return space["f"]


def drawn(seed, library=np, science=scipy, place=lambda x: x):
    """(point, lines): those lines that a plain run takes, and that give no more than a few finite numbers."""
    x, rng = point(seed)
    lines: list = []
    shape = x.shape
    for _ in range(60):
        new = line(rng, shape)
        space: dict = {}
        f = function([*lines, new, "space['y'] = y"], library, science)
        f.__globals__["space"] = space
        try:
            total = f(place(x))
        except Exception:
            continue
        y = space["y"]
        if y.dtype == x.dtype and 0 < y.ndim < 5 and 1 < y.size < 200 and abs(float(total)) < 1e4:
            lines.append(new)
            shape = y.shape
        if len(lines) == 2 + seed % 4:
            break
    return x, lines
