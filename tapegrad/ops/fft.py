"""Discrete Fourier transforms: three linear primitives without normalisation. NumPy's functions are followed
down to its transform along one axis, which is composed of these. SciPy's call NumPy's.

The matrix of the transform is symmetric, so `dft` is its own transpose. `rdft` (real to half spectrum)
and `irdft` (half spectrum to real) are adjoints of each other up to a weight. The half spectrum holds
each frequency once, but the inner ones stand for two."""

import numpy as np
import scipy.fft

from .._core.arrays import xp_of
from .._core.primitive import layout_of
from .declare import NUMPY, axis_of, dtype, followed, implements, linear, ndim, primitive, rules, shape
from .shaping import arrays_of, embed, fit_to_shape, slice_of


@primitive(batch="axis")
def dft(x, *, axes, inverse=False):
    fft = xp_of(x).fft
    return fft.ifftn(x, axes=axes, norm="forward") if inverse else fft.fftn(x, axes=axes, norm="backward")


@primitive(holomorphic=False, batch="axis")
def rdft(x, *, axis):
    return xp_of(x).fft.rfft(x, axis=axis, norm="backward")


@primitive(holomorphic=False, batch="axis")
def irdft(x, *, n, axis):
    return xp_of(x).fft.irfft(x, n, axis=axis, norm="forward")


@primitive(holomorphic=False, batch="axis")
def weighted(x, *, n, axis, weight):
    """The half spectrum of a signal of length n, with the inner frequencies multiplied by `weight`."""
    library, m = xp_of(x), x.shape[axis]
    k = library.arange(m)
    w = library.where((k == 0) | (2 * k == n), 1.0, weight).astype(x.real.dtype)
    return x * w.reshape((m,) + (1,) * (x.ndim - 1 - axis))


rules(dft, lambda g, out, x, axes, inverse: dft(g, axes=axes, inverse=inverse), jvp=linear)
rules(
    rdft,
    lambda g, out, x, axis: irdft(
        weighted(g, n=shape(x)[axis], axis=axis, weight=0.5), n=shape(x)[axis], axis=axis
    ),
    jvp=linear,
)
rules(
    irdft,
    lambda g, out, x, n, axis: fit_to_shape(
        weighted(rdft(g, axis=axis), n=n, axis=axis, weight=2.0), shape(x), dtype(x)
    ),
    jvp=linear,
)
rules(weighted, lambda g, out, x, n, axis, weight: weighted(g, n=n, axis=axis, weight=weight), jvp=linear)

FORWARD = {None: 0, "backward": 0, "ortho": -0.5, "forward": -1}
INVERSE = {None: -1, "backward": -1, "ortho": -0.5, "forward": 0}


def normalised(y, n: int, powers: dict, norm):
    if norm not in powers:
        raise ValueError(f"fft: norm must be 'backward', 'ortho' or 'forward', not {norm!r}")
    power = powers[norm]
    return y if power == 0 or n == 1 else y * float(n) ** power


def _fitted(x, axis: int, n: int | None):
    """x truncated or zero-padded to length n along the axis."""
    have = shape(x)[axis]
    if n is None or n == -1 or n == have:
        return x
    if n < 1:
        raise ValueError(f"fft: the number of points must be positive, not {n}")
    return slice_of(x, axis=axis, start=0, stop=n) if n < have else embed(x, axis=axis, start=0, size=n)


def _array(a):
    a = a if hasattr(a, "dtype") else arrays_of([a])[0]
    return a if dtype(a).kind in "fc" else a * 1.0


def transform_axis(a, n: int, axis: int, is_real: bool, is_forward: bool, norm, out: None = None):
    """NumPy's `_raw_fft`, the compiled part of all its transforms."""
    a = _array(a)
    axis, powers = axis_of(axis, ndim(a)), FORWARD if is_forward else INVERSE
    if is_real and not is_forward:
        return normalised(irdft(_fitted(a, axis, n // 2 + 1), n=n, axis=axis), n, powers, norm)
    if is_real and dtype(a).kind == "c":
        raise TypeError("rfft: the input is complex; use fft, or pass its .real")
    a = _fitted(a, axis, n)
    y = rdft(a, axis=axis) if is_real else dft(a, axes=(axis,), inverse=not is_forward)
    return normalised(y, n, powers, norm)


TRANSFORMS = "fft ifft rfft irfft hfft ihfft fft2 ifft2 rfft2 irfft2 fftn ifftn rfftn irfftn".split()
for _name in (*TRANSFORMS, "fftshift", "ifftshift"):
    _f = getattr(np.fft, _name)
    implements(_f)(followed(_f, __name__))
SWAPPED = {None: "forward", "backward": "forward", "ortho": "ortho", "forward": "backward"}


def _more_axes(f, default):
    def scipy_more(x, s=None, axes=default, norm=None):
        s, axes = [(v,) if isinstance(v, (int, np.integer)) else v for v in (s, axes)]
        return f(x, s, tuple(range(-len(s), 0)) if axes is None is not s else axes, norm)

    return scipy_more


def frequencies(name: str) -> None:
    def of(n, d=1.0, *, xp=None, device=None):
        return getattr(xp_of(layout_of(d)).fft, name)(n) / d

    implements(getattr(np.fft, name), getattr(scipy.fft, name))(of)


frequencies("fftfreq")
frequencies("rfftfreq")


for _name in (*TRANSFORMS, "fftshift", "ifftshift"):
    _f, _scipys = NUMPY[getattr(np.fft, _name)], getattr(scipy.fft, _name)
    _several = {"2": (-2, -1), "n": None}
    implements(_scipys)(_more_axes(_f, _several[_name[-1]]) if _name[-1] in _several else _f)
