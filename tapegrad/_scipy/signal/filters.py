"""scipy.signal: convolutions, filters, resampling."""

import functools

import numpy as plain_np
import scipy.fft
import scipy.signal as sig

from ... import numpy as np
from ... import scipy as faces
from ..._core.errors import ArgumentError
from ...ops.declare import axes_of, dtype, ndim, shape
from ...ops.linalg import equations
from ...ops.nondifferentiable import at_users_line
from ..followed import Follower, FunctionOverlay
from ..linear_maps import SettingsFunction, apply_linear, axes_last, convolved, overlap, recursed, remembers
from ..namespaces import (
    SciPyNamespace,
    as_float_array,
    as_integer,
    bare,
    holds_tracked,
    plain_setting,
    tracked_among,
)
from ..spatial import cKDTree

SIGNAL = SciPyNamespace(sig, "cupyx.scipy.signal")


def solveh_banded(ab, b, calc_logdet=False):
    """(solution, logarithm of the determinant, 0 or 1 for a matrix that is not positive definite), as SciPy's
    smoothing asks for it."""
    try:
        x = equations.solveh_banded(ab, b, lower=True)
        logdet = 2.0 * np.log(equations.cholesky_banded(ab, lower=True)[0]).sum() if calc_logdet else 0.0
    except plain_np.linalg.LinAlgError:
        return b, 0.0, 1
    return x, logdet, 0


def by_spacing(f):
    """The frequencies for a spacing that may be tracked."""
    return lambda n, d=1.0: f(n) / d


def fft_helper(x, win, detrend_func, nperseg, noverlap, nfft, sides):
    """The spectra of the segments of x; SciPy's function asks for segments that may be written."""
    pieces = np.lib.stride_tricks.sliding_window_view(x, nperseg, -1)[..., :: nperseg - noverlap, :]
    pieces = win * detrend_func(pieces)
    return np.fft.fft(pieces, nfft) if sides == "twosided" else np.fft.rfft(pieces.real, nfft)


def any_of(x, *args, **kwargs):
    """(A tracked input is not left out where it is 0: its derivative is not.)"""
    return np.any(x, *args, **kwargs) if dtype(x).kind == "b" or not holds_tracked(x) else True


GIVEN = {
    "cKDTree": cKDTree, "_solveh_banded": solveh_banded, "_fft_helper": fft_helper,
    "mintypecode": lambda xs, *more: plain_np.mintypecode([dtype(x).char for x in xs], *more),
    "scipy.fft": FunctionOverlay(faces.fft, **{n: by_spacing(getattr(scipy.fft, n)) for n in ("fftfreq",
    "rfftfreq")}),
}  # fmt: skip
FOLLOWED = Follower("scipy.signal", **GIVEN)
FOLLOWED.given.update(_trim_zeros=np.trim_zeros, numpy=FunctionOverlay(np, any=any_of))  # on the host

# --- convolutions ---


def two_signals(in1, in2) -> tuple:
    first = in1 if holds_tracked(in1) else in2
    return as_float_array(in1, first), as_float_array(in2, first)


def centred(y, to: tuple, axes):
    """The middle of y along these axes, of the lengths `to`."""
    at = [slice(None)] * ndim(y)
    for i in axes:
        start = (shape(y)[i] - to[i]) // 2
        at[i] = slice(start, start + to[i])
    return y[tuple(at)]


def convolve_axes(in1, in2, mode: str, axes, name: str):
    a, b = two_signals(in1, in2)
    if ndim(a) != ndim(b):
        raise ValueError(
            f"{name}: in1 and in2 should have the same dimensionality; they have {ndim(a)} and {ndim(b)} axes"
        )
    if mode not in ("full", "same", "valid"):
        raise ValueError(f"{name}: mode must be 'full', 'same' or 'valid', not {mode!r}")
    n = ndim(a)
    axes = tuple(sorted(axes_of(axes, n)))
    if n == 0:
        return a * b
    to, small = shape(a), shape(b)
    if mode == "valid":
        if all(p >= q for p, q in ((to[i], small[i]) for i in axes)):
            pass
        elif all(p <= q for p, q in ((to[i], small[i]) for i in axes)):
            a, b = b, a
        else:
            raise ValueError(
                f"{name}: for mode='valid' one of the arrays must be at least as large as the other along "
                f"every axis"
            )
    (a, back), (b, _) = axes_last(a, axes), axes_last(b, axes)
    if mode == "valid":
        y = overlap(a, b[(..., *(slice(None, None, -1),) * len(axes))], k=len(axes))
    else:
        y = convolved(a, b, k=len(axes))
    y = y if back is None else np.transpose(y, back)
    return centred(y, to, axes) if mode == "same" else y


@SIGNAL.rule(sig.convolve)
def convolve(in1, in2, mode="full", method="auto"):
    return convolve_axes(in1, in2, mode, None, "scipy.signal.convolve")


@SIGNAL.rule(sig.fftconvolve)
def fftconvolve(in1, in2, mode="full", axes=None):
    return convolve_axes(in1, in2, mode, axes, "scipy.signal.fftconvolve")


@SIGNAL.rule(sig.oaconvolve)
def oaconvolve(in1, in2, mode="full", axes=None):
    return convolve_axes(in1, in2, mode, axes, "scipy.signal.oaconvolve")


def reversed_conj(x):
    y = x[(slice(None, None, -1),) * ndim(x)]
    return np.conj(y) if dtype(y).kind == "c" else y


@SIGNAL.rule(sig.correlate)
def correlate(in1, in2, mode="full", method="auto"):
    a, b = two_signals(in1, in2)
    return convolve_axes(a, reversed_conj(b), mode, None, "scipy.signal.correlate")


PAD = {"fill": "constant", "wrap": "wrap", "symm": "symmetric"}


@SIGNAL.rule(sig.convolve2d)
def convolve2d(in1, in2, mode="full", boundary="fill", fillvalue=0):
    a, b = two_signals(in1, in2)
    if boundary not in PAD:
        raise ValueError("scipy.signal.convolve2d: boundary must be 'fill', 'wrap' or 'symm'")
    if mode == "valid" or (
        boundary == "fill" and plain_setting(fillvalue, "scipy.signal.convolve2d", "fillvalue") == 0
    ):
        return convolve_axes(a, b, mode, None, "scipy.signal.convolve2d")
    width = [(n - 1, n - 1) for n in shape(b)]
    settings = {"constant_values": fillvalue} if boundary == "fill" else {}
    y = convolve_axes(
        np.pad(a, width, PAD[boundary], **settings), b, "valid", None, "scipy.signal.convolve2d"
    )
    return centred(y, shape(a), (0, 1)) if mode == "same" else y


@SIGNAL.rule(sig.correlate2d)
def correlate2d(in1, in2, mode="full", boundary="fill", fillvalue=0):
    a, b = two_signals(in1, in2)
    if mode != "same":
        return convolve2d(a, reversed_conj(b), mode, boundary, fillvalue)
    # whose middle lies elsewhere where b is of even length
    y = convolve2d(a, reversed_conj(b), "full", boundary, fillvalue)
    return y[tuple([slice(m // 2, m // 2 + n) for n, m in zip(shape(a), shape(b), strict=True)])]


# --- recursive filters ---


def moved_last(x, axis: int):
    return x if axis in (-1, ndim(x) - 1) else np.moveaxis(x, axis, -1)


def leading_row(a, n: int):
    """A vector with axes of length 1 before."""
    return np.reshape(a, (1,) * (n - 1) + (shape(a)[0],))


@SIGNAL.rule(sig.lfilter)
def lfilter(b, a, x, axis=-1, zi=None):
    """y = (b * x - a[1:] * y before) / a[0], with the state zi of the transposed direct form added to what
    drives it."""
    like = tracked_among(x, b, a, zi)
    b, a, x = [as_float_array(v, like) for v in (b, a, x)]
    b, a = np.atleast_1d(b), np.atleast_1d(a)
    if ndim(a) != 1 or ndim(b) != 1:
        raise ValueError("scipy.signal.lfilter: b and a must be one-dimensional")
    b, a, order = b / a[0], a / a[0], max(shape(a)[0], shape(b)[0]) - 1
    x = moved_last(x, axis)
    n, m, lead = ndim(x), shape(x)[-1], shape(x)[:-1]
    drive = convolved(x, leading_row(b, n), k=1)  # longer than x by what the state at the end has of x
    state = None
    if zi is not None:
        state = moved_last(as_float_array(zi, like), axis)
        needed = shape(b)[0] + shape(a)[0] - 2 if remembers(x) else order
        if shape(state)[-1:] != (needed,):
            raise ValueError(
                f"scipy.signal.lfilter: zi has shape {shape(zi)}; its length along the axis must be {needed}"
            )
        state = np.broadcast_to(filter_state(b, a, state) if remembers(x) else state, (*lead, order))
    length = m + order
    drive = padded_last(drive, length)
    if state is not None:
        drive = drive + padded_last(state, length)
    y = drive[..., :m] if shape(a)[0] == 1 else recursed(drive[..., :m], leading_row(a[1:], n))
    back = lambda y: y if axis in (-1, n - 1) else np.moveaxis(y, -1, axis)
    if zi is None:
        return back(y)
    if remembers(x):
        return back(y), back(np.concatenate([v[..., m + 1 - shape(c)[0] :] for v, c in ((x, b), (y, a))], -1))
    final = drive[..., m:]
    if shape(a)[0] > 1:
        final = (
            final
            - padded_last(convolved(y, leading_row(a * (plain_np.arange(shape(a)[0]) > 0), n), k=1), length)[
                ..., m:
            ]
        )
    return back(y), back(final)


def filter_state(b, a, zi):
    """The state after these inputs and outputs: z[i] = sum_j b[i + 1 + j] x[-1 - j] - a[i + 1 + j] y[-1 -
    j]."""
    m, n = shape(b)[0] - 1, shape(a)[0] - 1
    if not m + n:
        return zi
    inputs, outputs, rows = zi[..., :m][..., ::-1], zi[..., m:][..., ::-1], []
    for i in range(max(m, n)):
        z = 0.0 * zi[..., 0]
        for c, v, k in ((b, inputs, m), (-a, outputs, n)):
            z = z + np.sum(c[i + 1 :] * v[..., : k - i], -1) if i < k else z
        rows.append(z)
    return np.stack(rows, -1)


def padded_last(x, length: int):
    have = shape(x)[-1]
    return x if have == length else np.pad(x, [(0, 0)] * (ndim(x) - 1) + [(0, length - have)])


@SIGNAL.rule(sig.lfilter_zi)
def lfilter_zi(b, a):
    """The state at which a step of 1 leaves the filter at rest; CuPy's is the inputs and outputs before."""
    like = b if holds_tracked(b) else a
    if not remembers(like):
        return STEP_STATE(b, a)
    b, a = np.atleast_1d(as_float_array(b, like)), np.atleast_1d(as_float_array(a, like))
    return np.concatenate([np.ones(shape(b)[0] - 1), np.ones(shape(a)[0] - 1) * (np.sum(b) / np.sum(a))])


@SIGNAL.rule(sig.lfiltic)
def lfiltic(b, a, y, x=None):
    like = tracked_among(b, a, y, x)
    if not remembers(like):
        return STATE_AFTER(b, a, y, x)
    b, a, y = [np.atleast_1d(as_float_array(v, like)) for v in (b, a, y)]
    m, n = shape(b)[0] - 1, shape(a)[0] - 1
    v = np.concatenate([y, np.zeros(max(n - shape(y)[0], 0))])[:n][::-1]
    if x is None:
        return v
    x = np.atleast_1d(as_float_array(x, like))
    return np.concatenate([np.concatenate([x, np.zeros(max(m - shape(x)[0], 0))])[:m][::-1], v])


STEP_STATE, STATE_AFTER = FOLLOWED.function(sig.lfilter_zi), FOLLOWED.function(sig.lfiltic)


def sections(sos, like) -> list:
    sos = as_float_array(sos, like)
    if ndim(sos) != 2 or shape(sos)[1] != 6:
        raise ValueError(f"scipy.signal: sos must have the shape (sections, 6); it has {shape(sos)}")
    return [(sos[k, :3], sos[k, 3:]) for k in range(shape(sos)[0])]


@SIGNAL.rule(sig.sosfilt)
def sosfilt(sos, x, axis=-1, zi=None):
    like = tracked_among(x, sos, zi)
    y = moved_last(as_float_array(x, like), axis)
    zi = None if zi is None else np.moveaxis(as_float_array(zi, like), axis + 1 if axis >= 0 else axis, -1)
    ends = []
    for k, (b, a) in enumerate(sections(sos, like)):
        given = (b, a, y, -1, None if zi is None else zi[k])
        y = (lfilter if holds_tracked(given) else sig.lfilter)(*given)
        if zi is not None:
            y, end = y
            ends.append(end)
    y = np.moveaxis(y, -1, axis)
    return y if zi is None else (y, np.stack([np.moveaxis(e, -1, axis) for e in ends]))


@SIGNAL.rule(sig.sosfilt_zi)
def sosfilt_zi(sos):
    scale, found = 1.0, []
    for b, a in sections(sos, sos):
        found.append(scale * lfilter_zi(b, a))  # (the product is what CuPy remembers, too)
        scale = scale * np.sum(b) / np.sum(a)
    return np.stack(found)


@SIGNAL.rule(sig.sosfiltfilt)
def sosfiltfilt(sos, x, axis=-1, padtype="odd", padlen=None):
    like = tracked_among(x, sos)
    if not remembers(like):
        return BOTH_WAYS(sos, x, axis, padtype, padlen)
    # CuPy's sections remember inputs and outputs, and SciPy's code counts two numbers
    ends = [[float(bare(part[2])) == 0 for part in pair] for pair in sections(sos, like)]
    taps = 2 * len(ends) + 1 - min([sum(column) for column in zip(*ends, strict=True)])
    edge, y = PADDED(padtype, padlen, moved_last(as_float_array(x, like), axis), -1, ntaps=taps)
    state = sosfilt_zi(sos)
    state = np.reshape(state, (shape(state)[0], *[1] * (ndim(y) - 1), shape(state)[1]))
    for _ in range(2):
        y = np.flip(sosfilt(sos, y, -1, state * y[..., :1])[0], -1)
    return np.moveaxis(y[..., edge : shape(y)[-1] - edge], -1, axis)


BOTH_WAYS, PADDED = FOLLOWED.function(sig.sosfiltfilt), FOLLOWED.function(sig._signaltools._validate_pad)


# --- spectra of segments ---


def all_slices_at_once(run):
    """SciPy's code has a loop over the slices of a signal. A user's function of a slice is run in it."""

    def stft_detrend(self, x, detr, p0=None, p1=None, *, k_offset=0, padding="zeros", axis=-1):
        n = shape(x)[axis]
        known = detr in (None, "linear", "constant") and padding == "zeros"
        if not known or n < self.m_num - self.m_num_mid or self.onesided_fft and dtype(x).kind == "c":
            return run(self, x, detr, p0, p1, k_offset=k_offset, padding=padding, axis=axis)
        p0, p1 = self.p_range(n, p0, p1)
        first = p0 * self.hop - self.m_num_mid + k_offset
        last = first + (p1 - p0 - 1) * self.hop + self.m_num
        y = np.moveaxis(x, axis, -1)[..., max(first, 0) : min(last, n)]
        y = np.pad(y, [(0, 0)] * (ndim(x) - 1) + [(-min(first, 0), max(last - n, 0))])
        y = np.lib.stride_tricks.sliding_window_view(y, self.m_num, -1)[..., :: self.hop, :]
        y = (detrend(y, type=detr) if detr else y) * self.win.conj()
        S = np.astype(self._fft_func(np.reshape(y, (-1, self.m_num))), complex)  # takes no further axes
        S = np.swapaxes(np.reshape(S, (*shape(y)[:-1], -1)), -1, -2)
        return np.moveaxis(S, -2, axis if axis >= 0 else axis - 1) if ndim(x) > 1 else S

    return stft_detrend


FOLLOWED.decorate(sig.ShortTimeFFT.stft_detrend, all_slices_at_once)
# its warnings are at the line of the caller of its caller, `welch`
FOLLOWED.decorate(sig.csd, lambda run: functools.partial(at_users_line, run))

# --- maps along an axis ---


def with_settings(f, x, axis: int, **settings):
    settings = {k: plain_setting(v, f"scipy.signal.{f.__name__}", k) for k, v in settings.items()}
    return apply_linear(SettingsFunction(f, **settings), as_float_array(x), axis)


@SIGNAL.rule(sig.savgol_filter)
def savgol_filter(x, window_length, polyorder, deriv=0, delta=1.0, axis=-1, mode="interp", cval=0.0):
    if holds_tracked(delta):
        with_unit = savgol_filter(x, window_length, polyorder, deriv, 1.0, axis, mode, cval)
        return with_unit / delta ** as_integer(deriv)
    settings = dict(window_length=window_length, polyorder=polyorder, deriv=deriv, delta=delta, mode=mode)
    if mode == "constant" and cval:  # affine in x
        x = as_float_array(x)
        return with_settings(sig.savgol_filter, x - cval, axis, **settings) + cval * (deriv == 0)
    return with_settings(sig.savgol_filter, x, axis, **settings)


@SIGNAL.rule(sig.detrend)
def detrend(data, axis=-1, type="linear", bp=0, overwrite_data=False):
    f = SettingsFunction(sig.detrend, type=type, bp=plain_setting(bp, "scipy.signal.detrend", "bp"))
    # an orthogonal projection is its own transpose
    return apply_linear(f, as_float_array(data), axis, back=f)


@SIGNAL.rule(sig.decimate)
def decimate(x, q, n=None, ftype="iir", axis=-1, zero_phase=True):
    return with_settings(sig.decimate, x, axis, q=as_integer(q), n=n, ftype=ftype, zero_phase=zero_phase)


@SIGNAL.rule(sig.upfirdn)
def upfirdn(h, x, up=1, down=1, axis=-1, mode="constant", cval=0):
    up, down = as_integer(up), as_integer(down)
    if holds_tracked(cval) or cval:
        raise ArgumentError("scipy.signal.upfirdn: cval= has no derivative here; leave it at 0")
    if not holds_tracked(h):
        h = plain_setting(h, "scipy.signal.upfirdn", "h")
        return apply_linear(Upfirdn(h, up, down, mode), as_float_array(x), axis)
    if mode != "constant":
        raise ArgumentError(
            "scipy.signal.upfirdn: with a tracked h only mode='constant' has a derivative here"
        )
    h, x = two_signals(h, x)
    x = moved_last(x, axis)
    if up > 1:  # zeros between
        x = np.reshape(np.pad(x[..., None], [(0, 0)] * ndim(x) + [(0, up - 1)]), (*shape(x)[:-1], -1))[
            ..., : (shape(x)[-1] - 1) * up + 1
        ]
    return np.moveaxis(convolved(x, leading_row(h, ndim(x)), k=1)[..., ::down], -1, axis)


class Upfirdn(SettingsFunction):
    def __init__(self, h, up: int, down: int, mode: str):
        super().__init__(sig.upfirdn, h=plain_np.asarray(h), up=up, down=down, mode=mode)

    def __call__(self, x):
        return sig.upfirdn(
            self.settings["h"], x, self.settings["up"], self.settings["down"], -1, self.settings["mode"]
        )


# --- of images ---


@SIGNAL.rule(sig.sepfir2d)
def sepfir2d(input, hrow, hcol):
    like = tracked_among(input, hrow, hcol)
    x = as_float_array(input, like)
    for h, axis in ((hrow, 1), (hcol, 0)):
        h = as_float_array(h, like)
        m = shape(h)[0]
        wide = np.pad(x, [(m // 2, m // 2) if i == axis else (0, 0) for i in (0, 1)], "symmetric")
        x = convolve(wide, np.reshape(h, (1, -1) if axis else (-1, 1)), "valid")
    return x


def medfilt2d(input, kernel_size=3):
    return MEDFILT(input, kernel_size)


MEDFILT = FOLLOWED.function(sig.medfilt)
SIGNAL.rule(sig.medfilt2d)(medfilt2d)
