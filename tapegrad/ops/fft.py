"""Discrete Fourier transforms: three linear primitives without normalisation, and NumPy's and SciPy's
functions composed of them.

The matrix of the transform is symmetric, so `dft` is its own transpose. `rdft` (real to half spectrum)
and `irdft` (half spectrum to real) are adjoints of each other up to a weight. The half spectrum holds
each frequency once, but the inner ones stand for two."""

import math
from typing import Any

import numpy as np
import scipy.fft
from numpy.lib.array_utils import normalize_axis_index

from .._core.arrays import is_array, xp_of
from .._core.primitive import layout_of
from .declare import axes_of, dtype, implements, linear, ndim, primitive, rules, shape
from .shaping import array_of, arrays_of, conj, embed, fit_to_shape, rolled, slice_of


@primitive(shapes=(0,), batch="axis")
def dft(x, *, axes, inverse=False):
    fft = xp_of(x).fft
    return fft.ifftn(x, axes=axes, norm="forward") if inverse else fft.fftn(x, axes=axes, norm="backward")


@primitive(shapes=(0,), holomorphic=False, batch="axis")
def rdft(x, *, axis):
    return xp_of(x).fft.rfft(x, axis=axis, norm="backward")


@primitive(shapes=(0,), holomorphic=False, batch="axis")
def irdft(x, *, n, axis):
    return xp_of(x).fft.irfft(x, n, axis=axis, norm="forward")


@primitive(shapes=(0,), holomorphic=False, batch="axis")
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


def normalised(y: Any, n: int, powers: dict, norm: Any) -> Any:
    if norm not in powers:
        raise ValueError(f"fft: norm must be 'backward', 'ortho' or 'forward', not {norm!r}")
    power = powers[norm]
    return y if power == 0 or n == 1 else y * float(n) ** power


def _fitted(x: Any, axis: int, n: int | None) -> Any:
    """x truncated or zero-padded to length n along the axis."""
    have = shape(x)[axis]
    if n is None or n == -1 or n == have:
        return x
    if n < 1:
        raise ValueError(f"fft: the number of points must be positive, not {n}")
    return slice_of(x, axis=axis, start=0, stop=n) if n < have else embed(x, axis=axis, start=0, size=n)


def _array(a: Any) -> Any:
    a = a if hasattr(a, "dtype") else arrays_of([a])[0]
    return a if dtype(a).kind in "fc" else a * 1.0


def _axes(a: Any, s: Any, axes: Any) -> tuple:
    """(lengths or None, axes), as NumPy interprets s and axes."""
    n = ndim(a)
    if axes is None:
        axes = range(n) if s is None else range(n - len(s), n)
    axes = tuple([normalize_axis_index(i, n) for i in axes])
    return (None,) * len(axes) if s is None else tuple([None if k is None else int(k) for k in s]), axes


def _all_fitted(a: Any, s: Any, axes: Any) -> tuple:
    """Return the array in the lengths s along its axes, these axes, and the number of elements of a
    transform."""
    s, axes = _axes(a, s, axes)
    for n, axis in zip(s, axes, strict=True):
        a = _fitted(a, axis, n)
    return a, axes, math.prod([shape(a)[i] for i in axes])


def _full(a, s, axes, norm, inverse):
    a, axes, n = _all_fitted(_array(a), s, axes)
    if not axes:  # a transform over no axes is the array itself
        return a if is_array(layout_of(a)) else array_of(a)
    y = dft(a, axes=axes, inverse=inverse)
    return normalised(y, n, INVERSE if inverse else FORWARD, norm)


@implements(np.fft.fft)
def fft(a, n=None, axis=-1, norm=None, out=None):
    return _full(a, (n,), (axis,), norm, False)


@implements(np.fft.ifft)
def ifft(a, n=None, axis=-1, norm=None, out=None):
    return _full(a, (n,), (axis,), norm, True)


@implements(np.fft.fftn)
def fftn(a, s=None, axes=None, norm=None, out=None):
    return _full(a, s, axes, norm, False)


@implements(np.fft.ifftn)
def ifftn(a, s=None, axes=None, norm=None, out=None):
    return _full(a, s, axes, norm, True)


@implements(np.fft.fft2)
def fft2(a, s=None, axes=(-2, -1), norm=None, out=None):
    return _full(a, s, axes, norm, False)


@implements(np.fft.ifft2)
def ifft2(a, s=None, axes=(-2, -1), norm=None, out=None):
    return _full(a, s, axes, norm, True)


@implements(np.fft.rfftn)
def rfftn(a, s=None, axes=None, norm=None, out=None):
    """The real transform along the last axis, then complex transforms along the others."""
    a = _array(a)
    if dtype(a).kind == "c":
        raise TypeError("rfft: the input is complex; use fft, or pass its .real")
    a, axes, n = _all_fitted(a, s, axes)
    y = rdft(a, axis=axes[-1])
    return normalised(dft(y, axes=axes[:-1]) if len(axes) > 1 else y, n, FORWARD, norm)


@implements(np.fft.irfftn)
def irfftn(a, s=None, axes=None, norm=None, out=None):
    a = _array(a)
    s, axes = _axes(a, s, axes)
    last = s[-1] if s[-1] not in (None, -1) else 2 * (shape(a)[axes[-1]] - 1)
    for n, axis in zip((*s[:-1], last // 2 + 1), axes, strict=True):
        a = _fitted(a, axis, n)
    n = math.prod([shape(a)[i] for i in axes[:-1]]) * last
    y = dft(a, axes=axes[:-1], inverse=True) if len(axes) > 1 else a
    return normalised(irdft(y, n=last, axis=axes[-1]), n, INVERSE, norm)


@implements(np.fft.rfft)
def rfft(a, n=None, axis=-1, norm=None, out=None):
    return rfftn(a, (n,), (axis,), norm)


@implements(np.fft.irfft)
def irfft(a, n=None, axis=-1, norm=None, out=None):
    return irfftn(a, (n,), (axis,), norm)


@implements(np.fft.rfft2)
def rfft2(a, s=None, axes=(-2, -1), norm=None, out=None):
    return rfftn(a, s, axes, norm)


@implements(np.fft.irfft2)
def irfft2(a, s=None, axes=(-2, -1), norm=None, out=None):
    return irfftn(a, s, axes, norm)


SWAPPED = {None: "forward", "backward": "forward", "ortho": "ortho", "forward": "backward"}


@implements(np.fft.hfft)
def hfft(a, n=None, axis=-1, norm=None, out=None):
    return irfft(conj(_array(a)), n, axis, SWAPPED[norm])


@implements(np.fft.ihfft)
def ihfft(a, n=None, axis=-1, norm=None, out=None):
    return conj(rfft(a, n, axis, SWAPPED[norm]))


def _halves(x: Any, axes: Any, sign: int) -> Any:
    n = ndim(x)
    axes = axes_of(axes, n)
    return rolled(x, shift=tuple([sign * (shape(x)[i] // 2) for i in axes]), axis=axes)


@implements(np.fft.fftshift)
def fftshift(x, axes=None):
    return _halves(x, axes, 1)


@implements(np.fft.ifftshift)
def ifftshift(x, axes=None):
    return _halves(x, axes, -1)


def _one_axis(f):
    def scipy_one(x, n=None, axis=-1, norm=None, overwrite_x=False, workers=None, *, plan=None):
        return f(x, n, axis, norm)

    return scipy_one


def _more_axes(f, default):
    def scipy_more(x, s=None, axes=default, norm=None, overwrite_x=False, workers=None, *, plan=None):
        s = (s,) if isinstance(s, (int, np.integer)) else s
        return f(x, s, (axes,) if isinstance(axes, (int, np.integer)) else axes, norm)

    return scipy_more


def frequencies(name: str) -> None:
    def of(n, d=1.0, *, xp=None, device=None):
        return getattr(xp_of(layout_of(d)).fft, name)(n) / d

    of.__name__ = name
    implements(getattr(np.fft, name), getattr(scipy.fft, name))(of)


frequencies("fftfreq")
frequencies("rfftfreq")


for _f in (fft, ifft, rfft, irfft, hfft, ihfft):
    implements(getattr(scipy.fft, _f.__name__))(_one_axis(_f))
for _f in (fft2, ifft2, rfft2, irfft2):
    implements(getattr(scipy.fft, _f.__name__))(_more_axes(_f, (-2, -1)))
for _f in (fftn, ifftn, rfftn, irfftn):
    implements(getattr(scipy.fft, _f.__name__))(_more_axes(_f, None))
implements(scipy.fft.fftshift)(fftshift)
implements(scipy.fft.ifftshift)(ifftshift)
