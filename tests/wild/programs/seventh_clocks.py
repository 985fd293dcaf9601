import allantools
import numpy as np
import sk_dsp_comm.digitalcom as dc
import sk_dsp_comm.sigsys as ss
import sk_dsp_comm.synchronization as sync

rng = np.random.default_rng(7)
phase = np.cumsum(rng.normal(size=48)) * 0.1
frequency = rng.normal(size=48)
signal = np.sin(0.3 * np.arange(64)) + 0.1 * rng.normal(size=64)


def clock(x):
    return phase * x[0] + x[1] * np.arange(48.0) ** 1.5 * 0.01


def allan(x):
    return allantools.adev(clock(x), rate=1.0, taus=[1, 2, 4])[1]


def overlapping(x):
    return allantools.oadev(frequency * x[0] + x[1], data_type="freq", taus=[1, 2, 4, 8])[1]


def modified(x):
    return allantools.mdev(clock(x), taus=[1, 3, 5])[1]


def total(x):
    return allantools.totdev(clock(x), taus=[1, 2, 4])[1]


def hadamard(x):
    return allantools.ohdev(clock(x), taus="octave")[1]


def interval_error(x):
    return allantools.mtie(clock(x), taus=[2, 4])[1]


def theo(x):
    return allantools.theo1(clock(x), taus=[4, 8])[1]


def of_spectrum(x):
    taus, found = allantools.psd2allan(x[0] * np.arange(0, 33) ** 0.5 + x[1], f=1.0)
    return found


def equalizer(x):
    return ss.ten_band_eq_filt(signal, np.resize(x, 10) * 3)


def fourier_series(x):
    Xk, f = ss.fs_coeff(signal * x[0] + x[1] * signal**2, 5, 1.0)
    return np.concatenate([Xk.real, Xk.imag])


def overlap_and_add(x):
    return ss.oa_filter(signal, np.array([x[0], x[1], 0.3]), 16)


def raised_cosine(x):
    return ss.rc_imp(4, x[0] / 2, 3) * x[1]


def error_rate(x):
    return dc.qam_bep_thy(np.array([4.0, 6.0]) * x[0], 16) + dc.q_fctn(x[1])


def phase_locked(x):
    found = sync.PLL1(signal[:32] * x[0], 100, 2, 1, 5.0 * x[1], 0.707, 1)
    return np.concatenate([found[0], found[1]])


def discriminator(x):
    return sync.discrim(np.exp(1j * (x[0] * signal + 0.1 * x[1] * np.arange(64))))


CALLS = [
    (f, [0.9, 1.2])
    for f in (allan, overlapping, modified, total, hadamard, interval_error, theo, of_spectrum, equalizer, fourier_series,
              overlap_and_add, raised_cosine, error_rate, phase_locked, discriminator)
]  # fmt: skip
