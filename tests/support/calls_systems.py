"""Calls of scipy.signal's linear systems, designs of filters, windows and transforms, as users write them:
see public_calls.py."""

import numpy as np
import scipy.signal as s
from public_calls import cat, table

from tapegrad.ops.declare import SCIPY

# What these compute depends on values: on how many roots are equal, on equal steps, on whether a series is
# real.
BY_VALUES = {
    "ss2zpk",
    "bode n",
    "place",
    "residue",
    "residue real",
    "residuez",
    "unique",
    "buttord",
    "buttord band",
    "cheb1ord",
    "cheb1ord band",
    "cheb2ord",
    "cheb2ord band",
    "ellipord",
    "ellipord band",
    "iirdesign",
    "iirdesign b",
    "kaiserord",
    "savgol_coeffs",
    "window tukey",
    "SFT cap stft",
    "SFT cap spec",
    "SFT istft",
    "SFT from",
    "peak_widths",
    "find_peaks w",
}
CALLS, t = table(by_values=BY_VALUES)


rng = np.random.default_rng(0)

N, D = np.array([1.0, 0.4]), np.array([1.3, 0.7, 0.5])
A = rng.normal(size=(3, 3)) - 2 * np.eye(3)
B = rng.normal(size=(3, 1))
Cm = rng.normal(size=(1, 3))
Dm = np.array([[0.3]])
T = np.linspace(0, 1, 6)
U = rng.normal(size=6)
t("tf2ss", lambda b, a: cat(*s.tf2ss(b, a)), N, D)
t("ss2tf", lambda a, b, c, d: cat(*s.ss2tf(a, b, c, d)), A, B, Cm, Dm, exact=1e-9)
t("zpk2ss", lambda z, p: cat(*s.zpk2ss(z, p, 2.0)), np.array([0.3]), np.array([-0.5, -1.2]))
t("ss2zpk", lambda a, b, c, d: 0j + cat(*s.ss2zpk(a, b, c, d)), A, B, Cm, Dm, exact=1e-9, order=1)
t("abcd", lambda a, b: cat(*s.abcd_normalize(a, b, np.ones((1, 3)))), A, B)
for m in ("zoh", "foh", "impulse", "bilinear", "euler", "backward_diff"):
    t(
        "c2d " + m,
        lambda a, b, c, dt, m=m: cat(*s.cont2discrete((a, b, c, np.zeros((1, 1))), dt[0], m)[:4]),
        A,
        B,
        Cm,
        np.array([0.3]),
    )
t("c2d tf", lambda b, a: cat(*s.cont2discrete((b, a), 0.2)[:2]), N, D, exact=1e-9)
t("lsim", lambda a, b, u: cat(*s.lsim((a, b, Cm, Dm), u, T)), A, B, U)
t("lsim tf", lambda b, a, u: s.lsim((b, a), u, T, interp=False)[1], N, D, U)
t("lsim lti", lambda b, a, u: s.lti(b, a).output(u, T)[1], N, D, U)
cap = s.lti(N, D)
t("lsim captured", lambda u: cap.output(u, T)[1], U)
t("impulse", lambda b, a: s.impulse((b, a), T=T)[1], N, D)
t("impulse def", lambda b, a: cat(*s.impulse((b, a), N=7)), N, D)
t("step", lambda b, a: s.step((b, a), N=5)[1], N, D)
t("bode", lambda b, a: cat(*s.bode((b, a), [0.3, 0.7])[1:]), N, D)
t("bode n", lambda b, a: cat(*s.bode(s.TransferFunction(b, a), n=5)), N, D)
t(
    "freqresp zpk",
    lambda z, p: s.ZerosPolesGain(z, p, 2.0).freqresp([0.3, 0.7])[1],
    np.array([0.3]),
    np.array([-0.5, -1.2]),
)
t("freqresp ss", lambda a: s.StateSpace(a, B, Cm, Dm).freqresp([0.3, 0.7])[1], A, exact=1e-9)
t(
    "ss mul",
    lambda a, b: (
        ((s.StateSpace(a, b, Cm, Dm) * s.StateSpace(A, b, Cm, Dm) + s.StateSpace(a, b, Cm, Dm)) * 2)
        .to_tf()
        .num
    ),
    A,
    B,
    exact=1e-9,
)
Ad = A * 0.2
t("dlsim", lambda a, b, u: cat(*s.dlsim((a, b, Cm, Dm, 0.5), u)[1:]), Ad, B, U)
t("dlsim cls", lambda a, b, u: s.dlti(a, b, Cm, Dm, dt=0.5).output(u, np.arange(6) * 0.5)[1], Ad, B, U)
t("dimpulse", lambda b, a: s.dimpulse((b, a, 0.5), n=5)[1][0], N, D)
t("dstep", lambda b, a: s.dstep((b, a, 0.5), n=5)[1][0], N, D)
t("dbode", lambda b, a: cat(*s.dbode((b, a, 0.5), [0.3, 0.7])[1:]), N, D)
t("dfreqresp", lambda b, a: s.dfreqresp((b, a, 0.5), [0.3, 0.7])[1], N, D)
t("to_discrete", lambda b, a: s.lti(b, a).to_discrete(0.2).num, N, D, exact=1e-9)
t(
    "place",
    lambda a, p: s.place_poles(a, B, p).gain_matrix,
    A,
    np.array([-1.0, -2.0, -3.0]),
    exact=1e-8,
    order=1,
)
t("residue", lambda b, a: cat(*s.residue(b, a)), N, D, order=1)
t("residue real", lambda b, a: 0j + cat(*s.residue(b, a)), N, np.array([1.0, 3.2, 2.1]))
t("residuez", lambda b, a: 0j + cat(*s.residuez(b, a)), N, np.array([1.0, 3.2, 2.1]))
t("invres", lambda r, p: cat(*s.invres(r, p, [])), N, np.array([-0.4, -1.3]))
t("invresz", lambda r, p: cat(*s.invresz(r, p, [])), N, np.array([-0.4, -1.3]))
t("unique", lambda p: s.unique_roots(p, 0.5)[0], np.array([-0.4, -1.3, -0.43]))
t("cheb1ap", lambda r: cat(*s.cheb1ap(3, r[0])), np.array([0.5]))
t("cheb2ap", lambda r: cat(*s.cheb2ap(3, r[0])), np.array([20.0]))
t("ellipap", lambda r: cat(*s.ellipap(3, r[0], r[1])), np.array([0.5, 30.0]), exact=1e-9, rtol=1e-5)
for n in ("buttord", "cheb1ord", "cheb2ord", "ellipord"):
    t(n, lambda w, n=n: getattr(s, n)(w[0], w[1], w[2], w[3])[1], np.array([0.2, 0.35, 1.0, 30.0]), rtol=1e-5)
    t(
        n + " band",
        lambda w, n=n: getattr(s, n)(w[:2], w[2:4], w[4], w[5])[1],
        np.array([0.2, 0.5, 0.14, 0.6, 1.0, 30.0]),
        rtol=1e-5,
    )
t(
    "band_stop",
    lambda w: s.band_stop_obj(w[0], 0, w[1:3], w[3:5], w[5], w[6], "cheby"),
    np.array([0.15, 0.14, 0.6, 0.2, 0.5, 1.0, 30.0]),
    rtol=1e-6,
)
t("findfreqs", lambda b, a: s.findfreqs(b, a, 8), np.array([1.0, 0.4]), np.array([1.0, 0.3, 0.2]))
t(
    "iirdesign",
    lambda w: cat(*s.iirdesign(w[0], w[1], w[2], w[3])),
    np.array([0.2, 0.35, 1.0, 30.0]),
    exact=1e-8,
    rtol=1e-5,
)
t(
    "iirdesign b",
    lambda w: cat(*s.iirdesign(w[0], w[1], w[2], w[3], ftype="butter")),
    np.array([0.2, 0.35, 1.0, 30.0]),
    exact=1e-8,
    rtol=1e-5,
)
t("iircomb", lambda w: cat(*s.iircomb(0.25, w[0])), np.array([5.0]))
t("gammatone", lambda w: cat(*s.gammatone(w[0], "iir", fs=16.0)), np.array([0.44]))
t("gammatone fir", lambda w: cat(*s.gammatone(w[0], "fir", fs=16.0)), np.array([0.44]))
t("kaiserord", lambda w: s.kaiserord(w[0], w[1])[1], np.array([40.0, 0.2]))
t("firwin2", lambda f, g: s.firwin2(9, cat(0, f, 1), g), np.array([0.3, 0.6]), np.array([1.0, 0.9, 0.1, 0.0]))
if SCIPY >= (1, 17):  # before, it sets `bands.shape`, which is refused
    t(
        "firls",
        lambda f, g, w: s.firls(7, cat(0, f, 1), g, weight=w),
        np.array([0.3, 0.6]),
        np.array([1.0, 0.9, 0.1, 0.3]),
        np.array([1.0, 2.0]),
    )
if hasattr(s, "firwin_2d"):  # from SciPy 1.16 on
    t(
        "firwin_2d",
        lambda c: s.firwin_2d((5, 5), (("kaiser", c[0]), ("kaiser", c[1])), fc=0.4, fs=2.0),
        np.array([5.0, 4.0]),
    )
t(
    "minphase",
    lambda h: s.minimum_phase(cat(h, h[:-1][::-1]), n_fft=64),
    np.array([0.1, 0.2, 0.7]),
    exact=1e-9,
    rtol=1e-5,
    h=1e-4,
)
t("savgol_coeffs", lambda d: s.savgol_coeffs(5, 3, 1, delta=d[0], pos=d[1]), np.array([0.4, 1.7]))
for w in (
    ("kaiser",),
    ("gaussian",),
    ("tukey",),
    ("general_gaussian", 2.0),
    ("exponential", None),
    ("general_hamming",),
    ("chebwin",),
):
    v = {"tukey": 0.3, "general_hamming": 0.6, "chebwin": 50.0}.get(w[0], 3.0)
    t(
        "window " + w[0],
        lambda p, w=w: s.get_window(
            (w[0], p[0])
            if w[0] != "general_gaussian" and len(w) < 2
            else (w[0], p[0], 2.0)
            if w[0] == "general_gaussian"
            else (w[0], None, p[0]),
            8,
        ),
        np.array([v]),
    )
t("window gc", lambda p: s.get_window(("general_cosine", p), 8), np.array([0.5, 0.4, 0.1]))
t("windows.gaussian", lambda p: s.windows.gaussian(8, p[0]), np.array([2.0]))
win = np.hanning(9)[1:8]
if hasattr(s, "closest_STFT_dual_window"):  # from SciPy 1.16 on
    t("dual", lambda w: s.closest_STFT_dual_window(w, 3)[0], win + 0.1)
x = rng.normal(size=40)
t("envelope", lambda x: s.envelope(x, (1, 8)), x, exact=1e-9, h=1e-4, rtol=1e-5)
t(
    "envelope2",
    lambda x: s.envelope(x, (None, 8), residual="all", squared=True),
    x,
    exact=1e-9,
    h=1e-4,
    rtol=1e-5,
)
t("czt_points", lambda w: s.czt_points(5, np.exp(1j * w[0]), w[1]), np.array([0.3, 0.9]))
t("CZT", lambda x: s.CZT(40, 9)(x), x)
t("CZT w", lambda x, w: s.CZT(8, 9, np.exp(1j * w[0]), w[1])(x), x[:8], np.array([0.3, 1.01]))
t("ZoomFFT", lambda x: s.ZoomFFT(40, [0.1, 0.5], 9)(x), x)
czt = s.CZT(40, 9)
t("CZT cap", lambda x: czt(x), x)
sft = s.ShortTimeFFT(win, 3, fs=2.0)
t("SFT cap stft", lambda x: sft.stft(x), x)
t("SFT cap spec", lambda x: sft.spectrogram(x), x)
t("SFT istft", lambda x: sft.istft(sft.stft(x), k1=40), x)
t("SFT from", lambda x: s.ShortTimeFFT.from_window("hann", 2.0, 8, 4).stft_detrend(x, "linear"), x)
X = rng.normal(size=(36, 33))
x = rng.normal(size=64)
xl = rng.normal(size=60)
t("cspline2d", lambda x: s.cspline2d(x, 0.0), X)
t("qspline2d", lambda x: s.qspline2d(x, 0.0), X)
t("cspline2d l", lambda x: s.cspline2d(x, 2.0), X)
t("spline_filter", lambda x: s.spline_filter(x, 2.0), X, exact=1e-6, rtol=1e-5)
t("symiir1", lambda x: s.symiirorder1(x, 0.8, 0.4), x)
t("symiir1 2d", lambda x: s.symiirorder1(x, 0.8, 0.4), X, order=1)
t("symiir2", lambda x: s.symiirorder2(x, 0.4, 0.9), x)
t("peak_widths", lambda x: cat(*s.peak_widths(x, s.find_peaks(xl)[0])), xl, h=1e-4, rtol=1e-6)
t(
    "find_peaks w",
    lambda x: cat(*[s.find_peaks(x, width=0)[1][k] for k in ("widths", "left_ips")]),
    xl,
    h=1e-4,
    rtol=1e-6,
)
t("welch window", lambda x, b: s.welch(x, window=("kaiser", b[0]), nperseg=16)[1], xl, np.array([3.0]))
if hasattr(s, "whittaker_henderson"):  # of SciPy 1.18
    SIGNAL, WEIGHTS = np.sin(np.arange(9.0)) + 0.1 * np.arange(9), np.linspace(0.5, 1.5, 9)
    t("whittaker", lambda y, w: s.whittaker_henderson(y, lamb=2.0, weights=w).x, SIGNAL, WEIGHTS)
    t("whittaker lamb", lambda y, v: s.whittaker_henderson(y, lamb=v[0], order=3).x, SIGNAL, np.array([0.7]))
