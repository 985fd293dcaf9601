"""scipy.signal: spectra by segments, all segments at once, where SciPy's code has a loop over them."""

import numpy as plain_np
import scipy.signal as sig

from ... import numpy as np
from ...ops.declare import dtype, ndim, shape
from ...ops.nondifferentiable import holds_somewhere, warn_user
from ..linear_maps import SettingsFunction, apply_linear
from ..namespaces import as_float_array, as_integer, bare, constant_like, holds_tracked
from .filters import FOLLOWED, SIGNAL, moved_last, padded_last, two_signals

WINDOW = FOLLOWED.function(sig.get_window)


def window_of(window, nperseg: int, like):
    if holds_tracked(window):
        return as_float_array(WINDOW(window, nperseg) if isinstance(window, tuple) else window)
    window = bare(window)
    return constant_like(
        sig.get_window(window, nperseg)
        if isinstance(window, (str, tuple, float))
        else plain_np.asarray(window),
        like,
    )


class Segments:
    """How the spectral functions cut a signal into segments, and what each segment's spectrum is scaled
    by."""

    def __init__(self, name, like, n, fs, window, nperseg, noverlap, nfft, scaling, mode="psd"):
        given = window if not isinstance(window, (str, tuple, float)) else None
        length = (
            shape(given)[0]
            if given is not None and nperseg is None
            else 256
            if nperseg is None
            else as_integer(nperseg)
        )
        if given is None and length > n:
            warn_user(
                f"nperseg = {length} is greater than input length {n}, using nperseg = {n}", UserWarning
            )
            length = n
        if holds_somewhere(np.asarray(fs) <= 0):
            raise ValueError(f"{name}: the sampling frequency fs must be positive")
        self.length, self.fs = length, fs
        self.overlap = length // 2 if noverlap is None else as_integer(noverlap)
        self.nfft = length if nfft is None else as_integer(nfft)
        if not 0 <= self.overlap < length or self.nfft < length:
            raise ValueError(f"{name}: noverlap must be less than nperseg, and nfft at least nperseg")
        self.window = window_of(window, length, like)
        if shape(self.window) != (length,):
            raise ValueError(f"{name}: window has shape {shape(self.window)}, nperseg is {length}")
        if scaling not in ("density", "spectrum", "psd"):
            raise ValueError(f"{name}: unknown scaling {scaling!r}")
        self.scale = (
            1.0 / (fs * np.sum(self.window**2))
            if scaling in ("density", "psd")
            else 1.0 / np.sum(self.window) ** 2
        )
        if mode == "stft":
            self.scale = np.sqrt(self.scale)

    def spectra(self, x, trend, onesided: bool):
        """(..., segments, frequencies) of x along its last axis."""
        step, n = self.length - self.overlap, shape(x)[-1]
        count = (n - self.overlap) // step
        at = step * plain_np.arange(count)[:, None] + plain_np.arange(self.length)
        x = x[..., at]
        if callable(trend):
            x = trend(x)
        elif trend:
            x = (
                x - np.mean(x, -1, keepdims=True)
                if trend == "constant"
                else apply_linear(SettingsFunction(sig.detrend, type=trend), x, -1)
            )
        x = x * self.window
        return np.fft.rfft(x, self.nfft) if onesided else np.fft.fft(x, self.nfft)

    def frequencies(self, onesided: bool):
        freqs = plain_np.fft.rfftfreq if onesided else plain_np.fft.fftfreq
        return freqs(self.nfft) * self.fs

    def times(self, n: int):
        step = self.length - self.overlap
        return plain_np.arange(self.length / 2, n - self.length / 2 + 1, step) / self.fs

    def weight(self, onesided: bool, like):
        """Frequencies that stand for two count twice."""
        n = self.nfft
        w = plain_np.ones(n // 2 + 1 if onesided else n)
        if onesided:
            w[1 : None if n % 2 else -1] = 2
        return constant_like(w, like)


def is_onesided(return_onesided: bool, *xs) -> bool:
    return bool(return_onesided) and not any(dtype(x).kind == "c" for x in xs)


@SIGNAL.rule(sig.spectrogram)
def spectrogram(
    x, fs=1.0, window=("tukey", 0.25), nperseg=None, noverlap=None, nfft=None, detrend="constant",
    return_onesided=True, scaling="density",
    axis=-1, mode="psd",
):  # fmt: skip
    x = moved_last(as_float_array(x), axis)
    kind = "psd" if mode == "psd" else "stft"
    if noverlap is None:
        n = shape(x)[-1]
        noverlap = (
            shape(window)[0]
            if nperseg is None and not isinstance(window, (str, tuple))
            else min(nperseg or 256, n)
        ) // 8
    parts = Segments(
        "scipy.signal.spectrogram", x, shape(x)[-1], fs, window, nperseg, noverlap, nfft, scaling, kind
    )
    onesided = is_onesided(return_onesided, x)
    S = parts.spectra(x, detrend, onesided)
    if mode == "psd":
        S = (S.real**2 + S.imag**2) * parts.scale * parts.weight(onesided, x)
    else:
        S = S * parts.scale
        if mode == "magnitude":
            S = np.abs(S)
        elif mode in ("angle", "phase"):
            S = np.angle(S) if mode == "angle" else np.unwrap(np.angle(S), axis=-2)
        elif mode != "complex":
            raise ValueError(f"scipy.signal.spectrogram: unknown mode {mode!r}")
    S = (
        np.moveaxis(np.swapaxes(S, -1, -2), -2, axis)
        if axis not in (-1, ndim(x) - 1)
        else np.swapaxes(S, -1, -2)
    )
    return parts.frequencies(onesided), parts.times(shape(x)[-1]), S


@SIGNAL.rule(sig.csd)
def csd(
    x, y, fs=1.0, window="hann", nperseg=None, noverlap=None, nfft=None, detrend="constant",
    return_onesided=True,
    scaling="density", axis=-1, average="mean",
):  # fmt: skip
    same = y is x
    x, y = (as_float_array(x),) * 2 if same else two_signals(x, y)
    x, y = moved_last(x, axis), moved_last(y, axis)
    n = max(shape(x)[-1], shape(y)[-1])
    x, y = padded_last(x, n), padded_last(y, n)
    parts = Segments("scipy.signal.csd", x, n, fs, window, nperseg, noverlap, nfft, scaling)
    onesided = is_onesided(return_onesided, x, y)
    a = parts.spectra(x, detrend, onesided)
    if same:
        S = a.real**2 + a.imag**2
    else:
        S = np.conj(a) * parts.spectra(y, detrend, onesided)
    S = S * parts.scale * parts.weight(onesided, x)
    if average == "median":
        odd = 2.0 * plain_np.arange(1, (shape(S)[-2] - 1) // 2 + 1)
        bias = 1 + float((1.0 / (odd + 1) - 1.0 / odd).sum())
        S = (np.median(S, -2) if same else np.median(S.real, -2) + 1j * np.median(S.imag, -2)) / bias
    elif average == "mean":
        S = np.mean(S, -2)
    else:
        raise ValueError(f"scipy.signal.csd: average must be 'mean' or 'median', not {average!r}")
    return parts.frequencies(onesided), np.moveaxis(S, -1, axis)
