import biosppy.signals.tools as st
import fatpack
import hmmlearn.hmm
import neurokit2 as nk
import numpy as np
import pyfar as pf
from biosppy import stats
from hmmlearn.hmm import GaussianHMM

WAVE = np.sin(0.7 * np.arange(48.0)) + 0.3 * np.cos(2.1 * np.arange(48.0)) + 0.05 * np.arange(48.0)


def filtered(x):
    return st.filter_signal(
        signal=x, ftype="butter", band="lowpass", order=2, frequency=8, sampling_rate=100
    )["signal"]


def smoothed(x):
    return st.smoother(signal=x, kernel="hamming", size=7)["signal"]


def envelope(x):
    amplitude, phase = st.analytic_signal(signal=x)
    return np.array([*amplitude[5:15], np.cos(phase[9])])


def statistics_of_a_signal(x):
    found = st.signal_stats(signal=x)
    return np.array([found[k] for k in ("mean", "median", "var", "std_dev", "rms", "kurtosis", "skew")])


def differences(x):
    return st.finite_difference(signal=x, weights=np.array([-1.0, 0.0, 1.0]))["derivative"]


def correlated(x):
    return np.array(
        [
            stats.pearson_correlation(x=x[:24], y=x[24:])[0],
            *stats.linear_regression(x=x[:24], y=x[24:], show=False)[:2],
        ]
    )


def entropies(x):
    return np.array([nk.entropy_differential(x)[0], nk.entropy_svd(x)[0], nk.entropy_fuzzy(x)[0]])


def dimensions(x):
    return np.array([nk.fractal_katz(x)[0], nk.fractal_sevcik(x)[0], nk.fractal_higuchi(x, k_max=5)[0]])


def fluctuations(x):
    return nk.fractal_dfa(x, scale=[4, 6, 8, 12])[0]


def hjorth(x):
    value, more = nk.complexity_hjorth(x)
    return np.array([value, more["Mobility"]])


def detrended(x):
    return np.concatenate([nk.signal_detrend(x, order=2), nk.signal_detrend(x, method="tarvainen2002")])


def filtered_band(x):
    return nk.signal_filter(x, sampling_rate=100, lowcut=2, highcut=20, method="butterworth", order=2)


def rescaled(x):
    return np.concatenate([nk.rescale(x, to=[-1, 1]), nk.standardize(x), nk.standardize(x, robust=True)])


def between_beats(x):
    return nk.signal_interpolate(
        np.arange(0, 48, 4.0), x[::4], x_new=np.arange(0, 44, 1.5), method="quadratic"
    )


def resampled(x):
    return nk.signal_resample(x, desired_length=30, method="FFT")


def rainflow(x):
    ranges = fatpack.find_rainflow_ranges(x, k=256)
    return np.array([np.sum(ranges**3), fatpack.LinearEnduranceCurve(90.0).find_miner_sum(ranges * 1e2)])


def endurance(x):
    curve = fatpack.TriLinearEnduranceCurve(x[0])
    return np.array([curve.get_endurance(x[1]), curve.get_stress(1e6)])


def equivalent_stress(x):
    return np.concatenate(
        [
            fatpack.find_goodman_equivalent_stress(x[:3], x[3:6], 400.0),
            fatpack.find_swt_equivalent_stress(x[:3], x[3:6]),
        ]
    )


def octave_filter(x):
    signal = pf.Signal(x, 1000)
    return pf.dsp.filter.butterworth(signal, 2, 200, "lowpass").time[0]


def spectrum(x):
    signal = pf.Signal(x, 1000)
    return np.array(
        [*np.abs(signal.freq[0]), *np.ravel(pf.dsp.energy(signal)), *np.ravel(pf.dsp.rms(signal))]
    )


def equaliser(x):
    impulse = pf.Signal(np.eye(1, 32)[0], 1000)
    return pf.dsp.filter.bell(impulse, 150, x[0], x[1]).time[0]


def loudspeakers(x):
    points = pf.Coordinates(x[:3], x[3:6], x[6:9])
    return np.concatenate([points.radius, points.azimuth, points.colatitude])


def hidden_states(x):
    model = GaussianHMM(2, covariance_type="diag")
    model.startprob_, model.transmat_ = np.array([0.6, 0.4]), np.array([[0.8, 0.2], [0.3, 0.7]])
    model.means_, model.covars_ = x[:2, None], np.array([[0.5], [0.7]])
    return model.score(WAVE[:, None])


def categories(x):
    model = hmmlearn.hmm.CategoricalHMM(2)
    model.startprob_, model.transmat_ = np.array([x[0], 1 - x[0]]), np.array([[0.8, 0.2], [0.3, 0.7]])
    model.emissionprob_ = np.array([[x[1], 1 - x[1]], [0.4, 0.6]])
    return model.score(np.array([[0, 1, 1, 0, 1, 0, 0, 1]]).T)


CALLS = [
    (filtered, WAVE),
    (smoothed, WAVE),
    (envelope, WAVE),
    (statistics_of_a_signal, WAVE),
    (differences, WAVE),
    (correlated, WAVE),
    (entropies, WAVE),
    (dimensions, WAVE),
    (fluctuations, WAVE),
    (hjorth, WAVE),
    (detrended, WAVE),
    (filtered_band, WAVE),
    (rescaled, WAVE),
    (between_beats, WAVE),
    (resampled, WAVE),
    (rainflow, WAVE),
    (endurance, [90.0, 120.0]),
    (equivalent_stress, [100.0, 150.0, 80.0, 30.0, 20.0, 50.0]),
    (octave_filter, WAVE),
    (spectrum, WAVE),
    (equaliser, [4.0, 2.0]),
    (loudspeakers, [1.0, 0.5, 0.3, 0.2, 0.8, 0.6, 0.4, 0.1, 1.2]),
    (hidden_states, [0.3, 1.7]),
    (categories, [0.6, 0.7]),
]
