"""Music, features of series, dictionaries, sound in all directions."""

import librosa
import numpy as np
import spaudiopy.sph
import sporco.linalg
import sporco.prox
import tsfel

POINT = np.array([1.1, 0.9, 1.2])
T = np.arange(512) / 512.0
NOISE = np.random.default_rng(19).standard_normal(512)


def tone(x):
    return np.sin(60 * x[0] * T) * x[1] + 0.3 * x[2] * np.sin(170 * T) + 0.05 * NOISE


def mel_spectrum(x):
    return librosa.feature.melspectrogram(y=tone(x), sr=512, n_fft=128, hop_length=64, n_mels=8).ravel()[::5]


def cepstrum(x):
    return librosa.feature.mfcc(y=tone(x), sr=512, n_mfcc=5, n_fft=128, hop_length=64, n_mels=12).ravel()[::4]


def centres_of_spectrum(x):
    options = {"y": tone(x), "sr": 512, "n_fft": 128, "hop_length": 128}
    return np.concatenate(
        [
            librosa.feature.spectral_centroid(**options).ravel(),
            librosa.feature.spectral_bandwidth(**options).ravel(),
            librosa.feature.spectral_flatness(y=tone(x), n_fft=128, hop_length=128).ravel(),
        ]
    )


def loudness(x):
    return librosa.feature.rms(y=tone(x), frame_length=128, hop_length=64, dtype=np.float64).ravel()


def there_and_back(x):
    spectrum = librosa.stft(tone(x), n_fft=128, hop_length=32, dtype=np.complex128)
    return librosa.istft(
        spectrum * np.exp(-0.01 * x[0] * np.arange(65.0))[:, None], hop_length=32, dtype=np.float64
    )[::40]


def onsets(x):
    strength = np.abs(librosa.stft(tone(x), n_fft=128, hop_length=64, dtype=np.complex128))
    return librosa.onset.onset_strength(S=librosa.amplitude_to_db(strength + 0.1), sr=512)


def levelled(x):
    strength = np.abs(librosa.stft(tone(x), n_fft=128, hop_length=64, dtype=np.complex128))
    return librosa.pcen(strength, sr=512, hop_length=64, gain=0.9 * x[2]).ravel()[::30]


def notes(x):
    return np.array(
        [
            librosa.hz_to_midi(440.0 * x[0]),
            librosa.midi_to_hz(60.0 * x[1]),
            librosa.hz_to_mel(900 * x[2]),
            librosa.A_weighting(500 * x[0]),
        ]
    )


def features_in_time(x):
    y = tone(x)
    f = tsfel
    return np.array(
        [
            f.auc(y, 512),
            f.calc_centroid(y, 512),
            f.sum_abs_diff(y),
            f.average_power(y, 512),
            f.interq_range(y),
            f.mean_diff(y),
        ]
    )


def features_of_spectrum(x):
    y = tone(x)
    f = tsfel
    return np.array(
        [
            f.spectral_centroid(y, 512),
            f.spectral_spread(y, 512),
            f.spectral_entropy(y, 512),
            f.spectral_slope(y, 512),
            f.power_bandwidth(y, 512) + x[0],
        ]
    )


def coefficients(x):
    return np.concatenate(
        [
            np.ravel(tsfel.lpcc(tone(x) + NOISE, 5)),
            np.ravel(tsfel.mfcc(tone(x), 512, nfft=64, nfilt=10, num_ceps=4)),
        ]
    )


def proximal(x):
    v = NOISE[:8] * x[0]
    return np.concatenate(
        [
            sporco.prox.prox_l1(v, 0.3 * x[1]),
            sporco.prox.prox_l2(v, 0.4 * x[2]),
            sporco.prox.prox_sl1l2(v, 0.1 * x[1], 0.2),
        ]
    )


def dictionary_step(x):
    a, b = NOISE[:12].reshape(4, 3) * x, NOISE[20:24]
    rho = 0.5 * x[0]
    lu, piv = sporco.linalg.lu_factor(a, rho)
    return sporco.linalg.lu_solve_ATAI(a, rho, a.T @ b, lu, piv).ravel()


def source_in_b_format(x):
    return spaudiopy.sph.src_to_b(NOISE[:4] * x[2], 0.4 * x[0], 1.1 * x[1]).ravel()


CALLS = [
    (f, POINT)
    for f in (
        mel_spectrum, cepstrum, centres_of_spectrum, loudness, there_and_back, onsets, levelled, notes, features_in_time,
        features_of_spectrum, coefficients, proximal, dictionary_step, source_in_b_format,
    )
]  # fmt: skip
