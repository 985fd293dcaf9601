"""scipy.signal: filters by their critical frequencies, and the forms of a filter: zeros and poles, quotients of polynomials, sections."""

import math
from typing import Any

import numpy as plain_np
import scipy.signal as sig

from ... import numpy as np
from ...ops.declare import dtype, ndim, shape
from ..namespaces import array, bare, tracked
from .filters import FOLLOWED, SIGNAL, sections

# --- zeros, poles and gain ---


def like_of(*xs: Any) -> Any:
    return next((x for x in xs if tracked(x)), 1.0)


def rooted(z: Any, p: Any, *more: Any) -> tuple:
    like = like_of(z, p, *more)
    z, p = [np.atleast_1d(array(x, like)) for x in (z, p)]
    if shape(p)[0] < shape(z)[0]:
        raise ValueError("scipy.signal: improper transfer function; it must have at least as many poles as zeros")
    return z, p, shape(p)[0] - shape(z)[0]


def quotient(z: Any, p: Any) -> Any:
    """The real part of prod(z) / prod(p)."""
    y = np.prod(z) / np.prod(p)
    return y.real if dtype(y).kind == "c" else y


@SIGNAL.rule(sig.lp2lp_zpk)
def lp2lp_zpk(z, p, k, wo=1.0):
    z, p, degree = rooted(z, p, k, wo)
    return wo * z, wo * p, k * wo**degree


@SIGNAL.rule(sig.lp2hp_zpk)
def lp2hp_zpk(z, p, k, wo=1.0):
    z, p, degree = rooted(z, p, k, wo)
    return np.concatenate([wo / z, plain_np.zeros(degree)]), wo / p, k * quotient(-z, -p)


def doubled(x: Any, wo: Any) -> Any:
    """The solutions s of s + wo^2 / s = 2 x."""
    x = np.astype(x, complex)
    root = np.sqrt(x * x - wo * wo)
    return np.concatenate([x + root, x - root])


@SIGNAL.rule(sig.lp2bp_zpk)
def lp2bp_zpk(z, p, k, wo=1.0, bw=1.0):
    z, p, degree = rooted(z, p, k, wo, bw)
    zeros = np.concatenate([doubled(z * bw / 2, wo), plain_np.zeros(degree)])
    return zeros, doubled(p * bw / 2, wo), k * bw**degree


@SIGNAL.rule(sig.lp2bs_zpk)
def lp2bs_zpk(z, p, k, wo=1.0, bw=1.0):
    z, p, degree = rooted(z, p, k, wo, bw)
    centre = wo * plain_np.repeat([1j, -1j], degree)
    return np.concatenate([doubled(bw / 2 / z, wo), centre]), doubled(bw / 2 / p, wo), k * quotient(-z, -p)


@SIGNAL.rule(sig.bilinear_zpk)
def bilinear_zpk(z, p, k, fs):
    z, p, degree = rooted(z, p, k, fs)
    c = 2.0 * fs
    zeros = np.concatenate([(c + z) / (c - z), -plain_np.ones(degree)])
    return zeros, (c + p) / (c - p), k * quotient(c - z, c - p)


def polynomial(roots: Any) -> Any:
    """The coefficients of prod (s - r); real where the roots come in conjugate pairs."""
    c = None
    for i in range(shape(roots)[0]):
        r = np.reshape(roots[i], 1)
        c = np.concatenate([1.0 + 0.0 * r, -r]) if c is None else np.concatenate([c, 0.0 * r]) - np.concatenate([0.0 * r, c * r])
    if c is None:
        return plain_np.ones(1)
    if dtype(c).kind == "c":
        r = bare(roots)
        paired = plain_np.array_equal(plain_np.sort(r[r.imag > 0]), plain_np.sort(r[r.imag < 0].conj()))
        return c.real if paired else c
    return c


@SIGNAL.rule(sig.zpk2tf)
def zpk2tf(z, p, k):
    like = like_of(z, p, k)
    return k * polynomial(np.atleast_1d(array(z, like))), polynomial(np.atleast_1d(array(p, like)))


normalize = SIGNAL.rule(sig.normalize)(FOLLOWED.function(sig.normalize))


@SIGNAL.rule(sig.tf2zpk)
def tf2zpk(b, a):
    b, a = normalize(b, a)
    return np.roots(b / b[0]), np.roots(a), b[0]


# --- sections: SciPy pairs the roots by their values ---


def of_root(found: list, roots: Any, used: list) -> Any:
    """The tracked roots that are nearest to those found; 0 where a section was filled up."""
    near, values = [], bare(roots)
    for r in found:
        left = [i for i in range(len(values)) if i not in used]
        best = min(left, key=lambda i: abs(values[i] - r), default=None)
        if best is None or abs(values[best] - r) > 1e-5 * max(1.0, abs(r)):
            near.append(0.0 * roots[0] if len(values) else 0.0)
            continue
        used.append(best)
        near.append(roots[best])
    return np.stack([np.astype(array(r, like_of(roots)), complex) for r in near]) if near else plain_np.zeros(0)


def quadratic(roots: Any) -> Any:
    """s^2 - (r + q) s + r q; of fewer roots with zeros in front."""
    c = polynomial(roots)
    c = c.real if dtype(c).kind == "c" else c
    return np.concatenate([0.0 * c[:1] * plain_np.ones(3 - shape(c)[0]), c]) if shape(c)[0] < 3 else c


@SIGNAL.rule(sig.zpk2sos)
def zpk2sos(z, p, k, pairing=None, *, analog=False):
    z, p = [np.atleast_1d(array(x, like_of(z, p, k))) for x in (z, p)]
    found = sig.zpk2sos(bare(z), bare(p), bare(k), pairing, analog=analog)
    rows, used_z, used_p = [], [], []
    for n, row in enumerate(found):
        b, a = row[:3], row[3:]
        b = quadratic(of_root(exact_roots(b / b[plain_np.flatnonzero(b)[0]]), z, used_z))
        a = quadratic(of_root(exact_roots(a[plain_np.flatnonzero(a)[0] :]), p, used_p))
        rows.append(np.concatenate([b * k if n == 0 else b, a]))
    return np.stack(rows)


def exact_roots(c: Any) -> list:
    """Of a polynomial of degree 2 at most; a double root without the error of a square root of rounding."""
    c = plain_np.trim_zeros(c, "f")
    if len(c) < 3:
        return list(plain_np.roots(c))
    half, rest = -c[1] / (2 * c[0]), c[2] / c[0]
    d = half * half - rest
    d = 0.0 if abs(d) < 1e-12 * max(1.0, half * half) else d
    s = plain_np.sqrt(complex(d))
    return [half + s, half - s]


@SIGNAL.rule(sig.tf2sos)
def tf2sos(b, a, pairing=None, *, analog=False):
    return zpk2sos(*tf2zpk(b, a), pairing, analog=analog)


@SIGNAL.rule(sig.sos2zpk)
def sos2zpk(sos):
    z, p, k = [], [], 1.0
    for b, a in sections(sos, sos):
        z.append(np.roots(b / b[0]))
        p.append(np.roots(a))
        k = k * b[0]
    n = 2 * len(z)  # what is missing stands at 0
    fill = lambda r: np.concatenate([*r, plain_np.zeros(n - sum([shape(x)[0] for x in r]))])
    return fill(z), fill(p), k


# --- quotients of polynomials, with another function in place of s ---


def substituted(b: Any, a: Any, top: Any, under: Any, *more: Any) -> tuple:
    """b(top / under) / a(top / under) as a quotient, the first coefficient below being 1."""
    like = like_of(b, a, *more)
    b, a = [np.atleast_1d(array(x, like)) for x in (b, a)]
    m = max(shape(b)[0], shape(a)[0]) - 1
    powers = [([1.0], [1.0])]
    for _ in range(m):
        powers.append((np.convolve(powers[-1][0], top), np.convolve(powers[-1][1], under)))

    def of(c):
        total, degree = None, shape(c)[0] - 1
        for i in range(degree + 1):
            term = c[i] * np.convolve(powers[degree - i][0], powers[m - degree + i][1])
            if total is not None:
                n = max(shape(total)[0], shape(term)[0])
                total, term = [np.concatenate([plain_np.zeros(n - shape(v)[0]), v]) for v in (total, term)]
            total = term if total is None else total + term
        return total

    return normalize(of(b), of(a))


def number(x: Any) -> Any:
    return np.reshape(array(x), 1)


@SIGNAL.rule(sig.lp2lp)
def lp2lp(b, a, wo=1.0):
    return substituted(b, a, plain_np.array([1.0, 0.0]), number(wo), wo)


@SIGNAL.rule(sig.lp2hp)
def lp2hp(b, a, wo=1.0):
    return substituted(b, a, number(wo), plain_np.array([1.0, 0.0]), wo)


@SIGNAL.rule(sig.lp2bp)
def lp2bp(b, a, wo=1.0, bw=1.0):
    w, c = number(wo), number(bw)
    return substituted(b, a, np.concatenate([[1.0, 0.0], w * w]), np.concatenate([c, [0.0]]), wo, bw)


@SIGNAL.rule(sig.lp2bs)
def lp2bs(b, a, wo=1.0, bw=1.0):
    w, c = number(wo), number(bw)
    return substituted(b, a, np.concatenate([c, [0.0]]), np.concatenate([[1.0, 0.0], w * w]), wo, bw)


@SIGNAL.rule(sig.bilinear)
def bilinear(b, a, fs=1.0):
    c = 2.0 * number(fs)
    return substituted(b, a, np.concatenate([c, -c]), plain_np.array([1.0, 1.0]), fs)


@SIGNAL.rule(sig.freqs_zpk)
def freqs_zpk(z, p, k, worN=200):
    w = sig.freqs_zpk(bare(z), bare(p), bare(k), bare(worN))[0] if ndim(worN) == 0 and not hasattr(worN, "__len__") else array(worN)
    at = 1j * np.reshape(w, (-1, 1))
    return w, k * np.prod(at - array(z, like_of(z, p)), -1) / np.prod(at - array(p, like_of(z, p)), -1)


# --- by critical frequencies ---

KINDS = {
    "butter": lambda N, rp, rs, norm: sig.buttap(N),
    "cheby1": lambda N, rp, rs, norm: prototype(sig.cheb1ap, N, rp),
    "cheby2": lambda N, rp, rs, norm: prototype(sig.cheb2ap, N, rs),
    "ellip": lambda N, rp, rs, norm: prototype(sig.ellipap, N, rp, rs),
    "bessel": lambda N, rp, rs, norm: sig.besselap(N, norm),
}
OTHERS = {
    "butterworth": "butter", "cauer": "ellip", "elliptic": "ellip", "chebyshev1": "cheby1", "chebyshevi": "cheby1", "chebyshev2": "cheby2",
    "chebyshevii": "cheby2", "bessel_phase": "bessel",
}  # fmt: skip


def band_of(btype: str) -> str:
    name = btype.lower()
    if name in ("bs", "bandstop", "bands", "stop"):
        return "bandstop"
    if name in ("band", "bandpass", "pass", "bp"):
        return "bandpass"
    return {"l": "lowpass", "h": "highpass"}[name[0]]


def prototype(f: Any, *given: Any) -> Any:
    return (SIGNAL.rules[f] if tracked(given) else f)(*given)


def designed(kind: str, N: Any, Wn: Any, rp: Any, rs: Any, btype: str, analog: bool, output: str, fs: Any, norm: str = "phase") -> Any:
    """SciPy's prototype, moved to the critical frequencies."""
    name = f"scipy.signal.{kind}"
    z, p, k = KINDS[kind](int(bare(N)), rp, rs, norm)
    w = np.reshape(array(Wn, like_of(Wn, fs, rp, rs)), -1)
    w = w if fs is None else w / (fs / 2)
    values = bare(w)
    if not bool((values > 0).all() and (plain_np.diff(values) > 0).all()) or not analog and not bool((values < 1).all()):
        raise ValueError(f"{name}: critical frequencies must be positive, in order, and below half the sampling frequency")
    band = band_of(btype)
    if shape(w)[0] != (2 if band.startswith("band") else 1):
        raise ValueError(f"{name}: a {band} filter has {2 if band.startswith('band') else 1} critical frequencies")
    w = w if analog else 4.0 * np.tan(math.pi * w / 2.0)
    if band in ("lowpass", "highpass"):
        z, p, k = (lp2lp_zpk if band == "lowpass" else lp2hp_zpk)(z, p, k, w[0])
    else:
        z, p, k = (lp2bp_zpk if band == "bandpass" else lp2bs_zpk)(z, p, k, np.sqrt(w[0] * w[1]), w[1] - w[0])
    if not analog:
        z, p, k = bilinear_zpk(z, p, k, 2.0)
    return (z, p, k) if output == "zpk" else zpk2sos(z, p, k, analog=analog) if output == "sos" else real_quotient(z, p, k)


def real_quotient(z: Any, p: Any, k: Any) -> tuple:
    b, a = [polynomial(x) for x in (z, p)]
    return tuple([c.real if dtype(c).kind == "c" else c for c in (k * b, a)])


@SIGNAL.rule(sig.butter)
def butter(N, Wn, btype="low", analog=False, output="ba", fs=None):
    return designed("butter", N, Wn, None, None, btype, analog, output, fs)


@SIGNAL.rule(sig.cheby1)
def cheby1(N, rp, Wn, btype="low", analog=False, output="ba", fs=None):
    return designed("cheby1", N, Wn, rp, None, btype, analog, output, fs)


@SIGNAL.rule(sig.cheby2)
def cheby2(N, rs, Wn, btype="low", analog=False, output="ba", fs=None):
    return designed("cheby2", N, Wn, None, rs, btype, analog, output, fs)


@SIGNAL.rule(sig.ellip)
def ellip(N, rp, rs, Wn, btype="low", analog=False, output="ba", fs=None):
    return designed("ellip", N, Wn, rp, rs, btype, analog, output, fs)


@SIGNAL.rule(sig.bessel)
def bessel(N, Wn, btype="low", analog=False, output="ba", norm="phase", fs=None):
    return designed("bessel", N, Wn, None, None, btype, analog, output, fs, norm)


@SIGNAL.rule(sig.iirfilter)
def iirfilter(N, Wn, rp=None, rs=None, btype="band", analog=False, ftype="butter", output="ba", fs=None):
    return designed(OTHERS.get(ftype.lower(), ftype.lower()), N, Wn, rp, rs, btype, analog, output, fs)


def resonance(w0: Any, Q: Any, fs: Any) -> tuple:
    like = like_of(w0, Q, fs)
    w = 2 * math.pi * array(w0, like) / fs
    return np.cos(w), 1.0 / (1.0 + np.tan(w / Q / 2.0))


@SIGNAL.rule(sig.iirnotch)
def iirnotch(w0, Q, fs=2.0):
    c, gain = resonance(w0, Q, fs)
    one = 0.0 * c + 1.0
    return gain * np.stack([one, -2.0 * c, one]), np.stack([one, -2.0 * gain * c, 2.0 * gain - 1.0])


@SIGNAL.rule(sig.iirpeak)
def iirpeak(w0, Q, fs=2.0):
    c, gain = resonance(w0, Q, fs)
    one = 0.0 * c + 1.0
    return (1.0 - gain) * plain_np.array([1.0, 0.0, -1.0]), np.stack([one, -2.0 * gain * c, 2.0 * gain - 1.0])


@SIGNAL.rule(sig.kaiser_beta)
def kaiser_beta(a):
    a = array(a)
    d = np.where(a > 21, a - 21, 1.0)
    return np.where(a > 50, 0.1102 * (a - 8.7), np.where(a > 21, 0.5842 * d**0.4 + 0.07886 * d, 0.0))


@SIGNAL.rule(sig.kaiser_atten)
def kaiser_atten(numtaps, width):
    return 2.285 * (numtaps - 1) * math.pi * width + 7.95
