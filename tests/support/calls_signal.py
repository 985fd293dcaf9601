"""Calls of scipy.signal, as users write them: see public_calls.py."""

import numpy as np
import scipy.signal as s
from public_calls import table

CALLS, t = table()
rng = np.random.default_rng(0)
x = rng.normal(size=20)
b = np.array([1.0, 0.3, 0.2])
a = np.array([1.2, -0.5, 0.1, 0.05])
X = rng.normal(size=(4, 12))
K = rng.normal(size=(2, 3))
xl = rng.normal(size=60)
sos = s.butter(4, 0.3, output="sos")
t("lfilter", lambda b, a, x: s.lfilter(b, a, x), b, a, x)
t("lfilter zi", lambda b, a, x, zi: s.lfilter(b, a, x, zi=zi), b, a, x, np.array([0.1, 0.2, 0.3]))
t("lfilter 2d", lambda x: s.lfilter(b, a, x, 0), X)
t("filtfilt", lambda b, a, x: s.filtfilt(b, a, x), b, a, x)
for p in ("even", "constant", None):
    t("filtfilt " + str(p), lambda x, p=p: s.filtfilt(b, a, x, padtype=p), x)
for m in ("full", "same", "valid"):
    t("convolve " + m, lambda x, h, m=m: s.convolve(x, h, m), x, b)
    t("correlate " + m, lambda x, h, m=m: s.correlate(x, h, m), x, b)
    t("correlate r " + m, lambda x, h, m=m: s.correlate(x, h, m), b, x)
    t("fft " + m, lambda x, h, m=m: s.fftconvolve(x, h, m, axes=1), X, X[:1, :4])
    t("oa " + m, lambda x, h, m=m: s.oaconvolve(x, h, m), X, K)
    for bd in ("fill", "wrap", "symm"):
        t("c2d " + m + bd, lambda x, h, m=m, bd=bd: s.convolve2d(x, h, m, bd), X, K)
        t("r2d " + m + bd, lambda x, h, m=m, bd=bd: s.correlate2d(x, h, m, bd), X, K)
t("lfilter_zi", lambda b, a: s.lfilter_zi(b, a), b, a)
one = np.ones((2, 1))
full = lambda q: np.concatenate([q[:, :3], one, q[:, 3:]], 1)
Q = np.delete(sos, 3, 1) + 0.05
t("sosfilt", lambda q, x: s.sosfilt(full(q), x), Q, x)
t("sosfilt zi", lambda x: s.sosfilt(sos, x, zi=s.sosfilt_zi(sos)), x)
t("sosfilt_zi", lambda q: s.sosfilt_zi(full(q)), Q)
t("sosfiltfilt", lambda x: s.sosfiltfilt(sos, x), xl)
t("sosfiltfilt q", lambda q, x: s.sosfiltfilt(full(q), x), Q, x, samples=False)
for m in ("interp", "mirror", "constant", "nearest", "wrap"):
    t("savgol " + m, lambda x, m=m: s.savgol_filter(x, 5, 2, mode=m), x)
t("savgol delta", lambda x: s.savgol_filter(np.arange(7.0) ** 2, 5, 2, deriv=1, delta=1.5 + x[0]), x)
t("savgol cval", lambda x: s.savgol_filter(x, 5, 2, mode="constant", cval=2.0), x)
t("detrend", lambda x: s.detrend(x, axis=0), X)
t("detrend bp", lambda x: s.detrend(x, bp=[5]), X)
t("detrend c", lambda x: s.detrend(x, type="constant"), X)
t("resample", lambda x: s.resample(x, 13), x)
t("resample up", lambda x: s.resample(x, 30, axis=1), X)
t("resample_poly", lambda x: s.resample_poly(x, 3, 2), x)
t("resample_poly median", lambda x: s.resample_poly(x, 3, 2, padtype="median"), x)
t("filtfilt gust", lambda b, a, x: s.filtfilt(b, a, x, method="gust"), b, a, x, h=1e-4)
t("decimate", lambda x: s.decimate(x, 2), xl)
t("decimate fir", lambda x: s.decimate(x, 2, ftype="fir"), xl)
t("upfirdn", lambda h, x: s.upfirdn(h, x, 3, 2), b, x)
t("upfirdn c", lambda x: s.upfirdn(b, x, 3, 2), x)
t("hilbert", lambda x: s.hilbert(x), x)
t("hilbert N", lambda x: s.hilbert(x, 25, axis=0), X)
t("hilbert2", lambda x: s.hilbert2(x), X)
xl = rng.normal(size=64)
yl = rng.normal(size=64)
for fn in ("welch", "csd"):
    args = (xl,) if fn == "welch" else (xl, yl)
    for kw in (
        dict(nperseg=16),
        dict(nperseg=16, average="median"),
        dict(nperseg=16, detrend="linear", scaling="spectrum"),
        dict(nperseg=16, nfft=20, noverlap=4, window="hamming", detrend=False),
        dict(nperseg=15, return_onesided=False),
    ):
        t(fn + str(kw), lambda *x, kw=kw, fn=fn: getattr(s, fn)(*x, fs=2.0, **kw)[1], *args)
t("welch axis", lambda x: s.welch(x, nperseg=4, axis=0)[1], X.T)
t("periodogram", lambda x: s.periodogram(x)[1], xl)
t("periodogram2", lambda x: s.periodogram(x, 2.0, "hann", nfft=80)[1], xl)
t("periodogram3", lambda x: s.periodogram(x, nfft=50)[1], xl)
t("coherence", lambda x, y: s.coherence(x, y, nperseg=16)[1], xl, yl)
t("spectrogram", lambda x: s.spectrogram(x, nperseg=16)[2], xl)
for m in ("magnitude", "complex", "angle"):
    t("spectrogram " + m, lambda x, m=m: s.spectrogram(x, nperseg=16, mode=m)[2], xl, rtol=1e-5, h=1e-4)
t("stft", lambda x: s.stft(x, nperseg=16)[2], xl)
t(
    "stft2",
    lambda x: s.stft(x, nperseg=16, boundary=None, padded=False, noverlap=12, scaling="psd")[2],
    xl[:61],
)
t("stft3", lambda x: s.stft(x, nperseg=16, boundary="even", noverlap=12)[2], xl[:61])
t(
    "stft t",
    lambda x: np.concatenate(
        [
            s.stft(x, 3.0, nperseg=16)[1] * x[0],
            s.stft(x, 3.0, nperseg=16)[0] * x[1],
            s.spectrogram(x, 3.0, nperseg=16)[1] * x[1],
        ]
    ),
    xl,
)
t("istft", lambda x: s.istft(s.stft(x, nperseg=16)[2], nperseg=16)[1], xl)
Z = rng.normal(size=(9, 7))
t("istft2", lambda x, y: s.istft(x + 1j * y, noverlap=12, scaling="psd")[1], Z, rng.normal(size=(9, 7)))

t("freqz", lambda b, a: s.freqz(b, a, 16)[1], b, a)
t("freqz w", lambda b, w: s.freqz(b, [1, 0.2], w, fs=3.0)[1], b, np.array([0.2, 0.7]))
t("freqz_sos", lambda q: s.sosfreqz(full(q), 8)[1], Q)
t("freqz_zpk", lambda z, p: s.freqz_zpk(z, p, 2.0, 8)[1], np.array([0.3, -0.2]), np.array([0.5, 0.1]))
t("freqs", lambda b, a: s.freqs(b, a, np.array([0.5, 1.5]))[1], b, a, rtol=1e-6)
t("group_delay", lambda b, a: s.group_delay((b, a), 7)[1], b, a, exact=1e-9)
t("czt", lambda x: s.czt(x, 7, axis=0), X)
t("zoom_fft", lambda x: s.zoom_fft(x, [0.1, 0.6], 5), x)
TIMES = np.sort(rng.uniform(0, 9, 12))
for normalize in (False, True, "amplitude"):
    t(
        f"lombscargle {normalize}",
        lambda x, y, f, k=normalize: s.lombscargle(x, y, f, normalize=k),
        TIMES,
        x[:12],
        np.array([0.7, 1.9]),
    )
t(
    "lombscargle mean",
    lambda x, y, w: s.lombscargle(x, y, [0.7, 1.9], weights=w, floating_mean=True),
    TIMES,
    x[:12],
    xl[:12] ** 2 + 0.1,
)
t("deconvolve", lambda x, d: np.concatenate(s.deconvolve(x, d)), x[:8], np.array([1.1, 0.3, 0.2]))
t("lfiltic", lambda b, a, y: s.lfiltic(b, a, y, [0.3, 0.1]), b, a, x[:2])
t("lfiltic 1", lambda b, a, y: s.lfiltic(b, a, y), b, a, x[:4])
t("sos2tf", lambda q: np.concatenate(s.sos2tf(full(q))), Q)
t("cspline1d", lambda x: s.cspline1d(x), x)
t("qspline1d", lambda x: s.qspline1d(x), x)
t("cspline1d_eval", lambda c, p: s.cspline1d_eval(c, p), x, np.array([0.3, 4.4, 17.7, -1.3, 21.2]))
t("qspline1d_eval", lambda c, p: s.qspline1d_eval(c, p), x, np.array([0.3, 4.4, 17.7, -1.3, 21.2]), order=1)
t("order_filter", lambda x: s.order_filter(x, np.ones((3, 1)), 1), X)
t("medfilt", lambda x: s.medfilt(x, 5), x)
t("medfilt2d", lambda x: s.medfilt2d(x, [3, 1]), X)
t("wiener", lambda x: s.wiener(x, 3), X, h=1e-5, rtol=1e-5)
t("wiener noise", lambda x, n: s.wiener(x, (3, 5), n[0]), X, np.array([0.4]), h=1e-5, rtol=1e-5)
t("sepfir2d", lambda x, r, c: s.sepfir2d(x, r, c), X, rng.normal(size=5), np.array([0.3, 1.0, 0.2]))
t("find_peaks", lambda x: s.find_peaks(x, height=-9.0, prominence=0.1)[1]["prominences"], xl, samples=False)
t(
    "find_peaks h",
    lambda x: s.find_peaks(x, height=-9.0, threshold=0.01)[1]["peak_heights"],
    xl,
    samples=False,
)
t("peak_prominences", lambda x: s.peak_prominences(x, s.find_peaks(xl)[0])[0], xl, samples=False)
t(
    "vectorstrength",
    lambda e, p: np.stack(s.vectorstrength(e, p)),
    TIMES,
    np.array([2.3, 1.1]),
    h=1e-4,
    rtol=1e-6,
)
t("gauss_spline", lambda x: s.gauss_spline(x, 3), x)
for method in ("linear", "quadratic", "logarithmic", "hyperbolic"):
    t("chirp " + method, lambda t, f, m=method: s.chirp(t, 1.3, 2.0, 0.4, m), x[:5] ** 2, np.array([0.1]))
t("chirp vertex", lambda t: s.chirp(t, 1.3, 2.0, 0.4, "quadratic", 30, False), x[:5] ** 2)
t("sweep_poly", lambda t, p: s.sweep_poly(t, p, 20), x[:5], np.array([0.1, 0.5, 0.3]))
t("gausspulse", lambda t: np.stack(s.gausspulse(t, 1.5, retquad=True, retenv=True)), x[:5])
t("sawtooth", lambda t, w: s.sawtooth(t, w), x[:5] * 3, np.array([0.3, 0.5, 0.6, 0.2, 0.9]), h=1e-4)

LOW, BAND = np.array([0.31]), np.array([0.22, 0.47])
for name, f in {
    "butter": lambda w, kind, **o: s.butter(3, w, kind, **o),
    "cheby1": lambda w, kind, **o: s.cheby1(3, 0.5, w, kind, **o),
    "cheby2": lambda w, kind, **o: s.cheby2(2, 20, w, kind, **o),
    "ellip": lambda w, kind, **o: s.ellip(3, 0.5, 30, w, kind, **o),
    "bessel": lambda w, kind, **o: s.bessel(3, w, kind, **o),
}.items():
    for kind, w in {"low": LOW, "high": LOW, "band": BAND, "stop": BAND}.items():
        t(
            f"{name} {kind}",
            lambda w, f=f, k=kind: np.concatenate(f(w if len(w) > 1 else w[0], k)),
            w,
            samples=False,
            rtol=1e-6,
            exact=1e-9,
        )
    t(f"{name} sos", lambda w, f=f: f(w[0], "low", output="sos"), LOW, samples=False, rtol=1e-6, exact=1e-7)
    t(
        f"{name} analog",
        lambda w, f=f: np.concatenate(f(w * 3, "band", analog=True)),
        BAND,
        samples=False,
        rtol=1e-6,
        exact=1e-9,
    )
t("butter fs", lambda w, fs: np.concatenate(s.butter(2, w[0], fs=fs[0])), LOW, np.array([1.5]), samples=False)
t(
    "butter filters",
    lambda w, x: s.sosfilt(s.butter(4, w, "band", output="sos"), x),
    BAND,
    x,
    samples=False,
    rtol=1e-6,
    exact=1e-7,
)
t(
    "iirfilter",
    lambda w: np.concatenate(s.iirfilter(2, w, rs=30, ftype="cheby2")),
    BAND,
    samples=False,
    exact=1e-9,
)
t("iirnotch", lambda w, q: np.concatenate(s.iirnotch(w[0], q[0])), LOW, np.array([5.0]))
t("iirpeak", lambda w, q: np.concatenate(s.iirpeak(w[0], q[0], fs=1.3)), LOW, np.array([5.0]))
for kind, w in {"lowpass": LOW, "highpass": LOW, "bandpass": BAND, "bandstop": BAND}.items():
    t("firwin " + kind, lambda w, k=kind: s.firwin(9, w, pass_zero=k), w, samples=False)
t("firwin width", lambda w: s.firwin(9, w, width=0.2, scale=False), LOW, samples=False)
t(
    "kaiser_beta",
    lambda a: np.stack([s.kaiser_beta(a[0]), s.kaiser_beta(a[1]), s.kaiser_beta(a[2])]),
    np.array([10.0, 30.0, 60.0]),
)
N, D = np.array([1.0, 0.4]), np.array([1.3, 0.7, 0.5])
t("lp2lp", lambda b, a, w: np.concatenate(s.lp2lp(b, a, w[0])), N, D, LOW, samples=False)
t("lp2hp", lambda b, a, w: np.concatenate(s.lp2hp(b, a, w[0])), N, D, LOW, samples=False)
t("lp2bp", lambda b, a, w: np.concatenate(s.lp2bp(b, a, w[0], w[1])), N, D, BAND, samples=False)
t("lp2bs", lambda b, a, w: np.concatenate(s.lp2bs(b, a, w[0], w[1])), N, D, BAND, samples=False)
t("bilinear", lambda b, a, w: np.concatenate(s.bilinear(b, a, w[0])), N, D, LOW, samples=False)
t("normalize", lambda b, a: np.concatenate(s.normalize(b, a)), N, D, samples=False)
t(
    "tf2zpk",
    lambda b, a: np.concatenate([*s.tf2zpk(b, a)[:2], [s.tf2zpk(b, a)[2]]]),
    N,
    D,
    samples=False,
    exact=1e-9,
)
t("zpk2tf", lambda z, p, k: np.concatenate(s.zpk2tf(z, p, k[0])), N, D, LOW)
t("tf2sos", lambda b, a: s.tf2sos(b, a), N, D, samples=False, exact=1e-9)
t(
    "sos2zpk",
    lambda q: np.concatenate(s.sos2zpk(full(q))[:2]),
    Q,
    samples=False,
    exact=1e-7,
    rtol=1e-5,
    h=1e-4,
    order=1,
)
t("freqs_zpk", lambda z, p: s.freqs_zpk(z, p, 2.0, [0.4, 1.2])[1], N, D)

for name in ("welch", "spectrogram", "stft"):
    t(name + " by fs", lambda x, fs, n=name: getattr(s, n)(x, fs[0], nperseg=16)[0], xl, np.array([2.3]))
t("spectrogram times by fs", lambda x, fs: s.spectrogram(x, fs[0], nperseg=16)[1], xl, np.array([2.3]))
t("stft times by fs", lambda x, fs: s.stft(x, fs[0], nperseg=16)[1], xl, np.array([2.3]))
t(
    "cspline1d_eval by dx",
    lambda c, d: s.cspline1d_eval(c, np.array([0.3, 4.4]), d[0], d[1]),
    x,
    np.array([0.9, 0.05]),
)
t("gausspulse by bwr", lambda t, r: s.gausspulse(t, 1.5, 0.5, r[0]), x[:5], np.array([-6.0]))
t("gausspulse cutoff", lambda r: s.gausspulse("cutoff", 1.5, 0.5, r[0], r[1]), np.array([-6.0, -60.0]))
