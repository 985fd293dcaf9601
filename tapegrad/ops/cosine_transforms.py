"""Cosine and sine transforms of all types, and Hermitian Fourier transforms over several axes.

The primitives are SciPy's without normalisation. The matrices of type 4, and of the sine transform of
type 1, are symmetric. Types 2 and 3 are transposes of each other. The cosine transform of type 1 is
its own transpose up to weights, because its end elements count twice or half."""

import math

import numpy as np
import scipy.fft
from scipy.fft import _fftlog_backend

from .._core.arrays import xp_of
from .._core.registry import load
from .declare import NUMPY, axis_of, dtype, followed, linear, ndim, primitive, rules, shape, xp
from .fft import SWAPPED
from .fft import _array as floats
from .fft import _fitted as fitted
from .shaping import conj
from .special.declare import implements_special


@primitive(batch="axis")
def trigonometric(x, *, sine, kind, axis):
    """The transform of type `kind` along an axis, without normalisation."""
    fft = scipy.fft if xp_of(x) is np else load("cupyx.scipy.fft")
    if kind in (1, 4) and fft is not scipy.fft:
        return by_fourier(xp_of(x), x, sine, kind, axis)
    return (fft.dst if sine else fft.dct)(x, type=kind, axis=axis)


def by_fourier(library, x, sine: bool, kind: int, axis: int):
    """Types 1 and 4 on CuPy, which lacks them: by the Fourier transform of the even or odd continuation,
    and of x shifted by an eighth of the period."""
    if x.dtype.kind == "c":
        return by_fourier(library, x.real, sine, kind, axis) + 1j * by_fourier(
            library, x.imag, sine, kind, axis
        )
    x = library.moveaxis(x, axis, -1)
    n = x.shape[-1]
    if kind == 1 and sine:
        zero = library.zeros_like(x[..., :1])
        y = -library.fft.rfft(library.concatenate([zero, x, zero, -x[..., ::-1]], -1)).imag[..., 1 : n + 1]
    elif kind == 1:
        y = library.fft.rfft(library.concatenate([x, x[..., -2:0:-1]], -1)).real
    else:
        k = library.arange(n)
        z = library.fft.fft(x * library.exp(-0.5j * math.pi / n * k), 2 * n)[..., :n] * library.exp(
            -0.25j * math.pi / n * (2 * k + 1)
        )
        y = -2 * z.imag if sine else 2 * z.real
    return library.ascontiguousarray(library.moveaxis(y, -1, axis).astype(x.dtype, copy=False))


TRANSPOSED = {1: 1, 2: 3, 3: 2, 4: 4}


def ends(x, axis, first=1.0, last=1.0):
    """x with its first and last element along the axis multiplied by weights."""
    if first == last == 1.0:
        return x
    n, library = shape(x)[axis], xp(x)
    w = np.ones(n)
    w[0] *= first
    w[-1] *= last
    return x * library.asarray(w.astype(dtype(x).type(0).real.dtype)).reshape(
        (n,) + (1,) * (ndim(x) - 1 - axis)
    )


def _transposed(g, out, x, sine, kind, axis):
    to = TRANSPOSED[kind]
    if kind == 1 and not sine:
        return ends(trigonometric(ends(g, axis, 2.0, 2.0), sine=False, kind=1, axis=axis), axis, 0.5, 0.5)
    side = {"last" if sine else "first": 2.0}
    if kind == 2:
        g = ends(g, axis, **side)
    y = trigonometric(g, sine=sine, kind=to, axis=axis)
    return ends(y, axis, **dict.fromkeys(side, 0.5)) if kind == 3 else y


rules(trigonometric, _transposed, jvp=linear)


def transform_axis(x, sine, kind, n, axis, norm, orthogonalize, inverse):
    """SciPy's transform along one axis."""
    if kind not in TRANSPOSED:
        raise ValueError(f"scipy.fft: type must be 1, 2, 3 or 4, not {kind!r}")
    x = floats(x)
    axis = axis_of(axis, ndim(x))
    x = fitted(x, axis, n)
    size = shape(x)[axis]
    if norm not in (None, "backward", "ortho", "forward"):
        raise ValueError(f"scipy.fft: norm must be 'backward', 'ortho' or 'forward', not {norm!r}")
    orthogonal = norm == "ortho" if orthogonalize is None else orthogonalize
    kind = TRANSPOSED[kind] if inverse else kind
    length = 2 * (size + 1 if sine else size - 1) if kind == 1 else 2 * size
    root, end = math.sqrt(2.0), "last" if sine else "first"
    if orthogonal and kind == 1 and not sine:
        x = ends(x, axis, root, root)
    if orthogonal and kind == 3:
        x = ends(x, axis, **{end: root})
    y = trigonometric(x, sine=sine, kind=kind, axis=axis)
    if orthogonal and kind == 1 and not sine:
        y = ends(y, axis, 1 / root, 1 / root)
    if orthogonal and kind == 2:
        y = ends(y, axis, **{end: 1 / root})
    power = -0.5 if norm == "ortho" else -1.0 if (norm == "forward") != inverse else 0.0
    return y * float(length) ** power if power else y


def _declare(name, sine, inverse):
    def one(x, type=2, n=None, axis=-1, norm=None, orthogonalize=None):
        return transform_axis(x, sine, type, n, axis, norm, orthogonalize, inverse)

    def several(x, type=2, s=None, axes=None, norm=None, *, orthogonalize=None):
        if axes is None:
            axes = range(ndim(x)) if s is None else range(ndim(x) - np.size(s), ndim(x))
        axes = np.atleast_1d(axes).tolist()
        lengths = [None] * len(axes) if s is None else np.atleast_1d(s).tolist()
        for axis, n in zip(axes, lengths, strict=True):
            x = transform_axis(x, sine, type, n, axis, norm, orthogonalize, inverse)
        return x

    implements_special(getattr(scipy.fft, name))(one)
    implements_special(getattr(scipy.fft, name + "n"))(several)


for _name, _sine, _inverse in (
    ("dct", False, False),
    ("idct", False, True),
    ("dst", True, False),
    ("idst", True, True),
):
    _declare(_name, _sine, _inverse)


# --- Hermitian spectra over several axes ---


def _axes_of(x, s, axes):
    axes = (
        tuple(range(ndim(x)) if s is None else range(ndim(x) - len(s), ndim(x)))
        if axes is None
        else tuple(axes)
    )
    return axes, [None] * len(axes) if s is None else list(s)


def _hermitian(x, s, axes, norm):
    """Complex transforms of the conjugate spectrum along the other axes, then the last axis to real
    numbers."""
    axes, lengths = _axes_of(x, s, axes)
    x = floats(x)
    if len(axes) > 1:
        rest = None if s is None else lengths[:-1]
        x = NUMPY[np.fft.fftn](x, rest, axes[:-1], norm)
    return NUMPY[np.fft.irfft](conj(x), lengths[-1], axes[-1], SWAPPED[norm])


def _to_hermitian(x, s, axes, norm):
    axes, lengths = _axes_of(x, s, axes)
    x = conj(NUMPY[np.fft.rfft](floats(x), lengths[-1], axes[-1], SWAPPED[norm]))
    return (
        NUMPY[np.fft.ifftn](x, None if s is None else lengths[:-1], axes[:-1], norm) if len(axes) > 1 else x
    )


def _declare_hermitian(name, f, default):
    def of(x, s=None, axes=default, norm=None):
        return f(x, s, axes, norm)

    implements_special(getattr(scipy.fft, name))(of)


for _name, _f in (("hfft", _hermitian), ("ihfft", _to_hermitian)):
    _declare_hermitian(_name + "n", _f, None)
    _declare_hermitian(_name + "2", _f, (-2, -1))


# --- the Hankel transform on a logarithmic grid ---


for _f in (_fftlog_backend.fht, _fftlog_backend.ifht):
    implements_special(getattr(scipy.fft, _f.__name__))(followed(_f, __name__))
