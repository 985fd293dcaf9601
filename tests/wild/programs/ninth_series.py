import bct
import numpy as np
import ordpy
import pandas as pd
import sfs
import ta
from mosqito.sq_metrics import loudness_zwst_freq, sharpness_din_freq
from nitime import algorithms as alg
from nitime import utils
from spafe.fbanks.mel_fbanks import mel_filter_banks
from spafe.features.lpc import lpc
from spafe.features.mfcc import mfcc
from spafe.utils.preprocessing import pre_emphasis


def momentum(x):
    close = pd.Series(20 + np.cumsum(x))
    return np.array(
        [ta.momentum.RSIIndicator(close, window=5).rsi().iloc[-1], ta.momentum.roc(close, window=4).iloc[-1]]
    )


def moving_averages(x):
    close = pd.Series(20 + np.cumsum(x))
    return np.array(
        [ta.trend.MACD(close, 12, 5, 4).macd_diff().iloc[-1], ta.trend.wma_indicator(close, 6).iloc[-1]]
    )


def bands(x):
    close = pd.Series(20 + np.cumsum(x))
    found = ta.volatility.BollingerBands(close, window=8)
    return np.array([found.bollinger_hband().iloc[-1], found.bollinger_wband().iloc[-1]])


def volume(x):
    close = pd.Series(20 + np.cumsum(x))
    traded = pd.Series(100 + np.arange(36.0))
    return np.array([ta.volume.force_index(close, traded, window=5).iloc[-1], ta.volume.on_balance_volume(close, traded).iloc[-1],
                     ta.others.daily_log_return(close).iloc[-1]])  # fmt: skip


def autoregression(x):
    ak, sigma = alg.AR_est_YW(x, 3)
    bk, tau = alg.AR_est_LD(x, 3)
    return np.array([*ak, sigma, *bk, tau])


def autoregressive_spectrum(x):
    return alg.AR_psd(x[:2], x[2], n_freqs=8)[1]


def multitaper(x):
    return alg.multi_taper_psd(x, NW=2, adaptive=True, jackknife=False)[1]


def cross_spectrum(x):
    return np.abs(alg.multi_taper_csd(np.reshape(x, (2, 18)), NW=2)[1][0, 1])


def granger(x):
    a = np.reshape(x, (1, 2, 2))
    return np.concatenate(
        [np.ravel(np.real(f)) for f in alg.granger_causality_xy(a, np.eye(2), n_freqs=6)[1:]]
    )


def cross_covariance(x):
    return utils.crosscov(x[:18], x[18:])[:6]


def event_related(x):
    design = utils.fir_design_matrix(np.tile([1, 0, 0, 0, 0, 0], 6), 4)
    return alg.fir(x, design)


def weighted_permutations(x):
    return ordpy.weighted_permutation_entropy(x, dx=3)


def tsallis(x):
    return np.array(ordpy.tsallis_complexity_entropy(x / np.sum(x), q=1.3, dx=3, probs=True))


def renyi(x):
    return np.array([ordpy.renyi_entropy(x / np.sum(x), alpha=0.7, dx=3, probs=True),
                     *ordpy.complexity_entropy(x / np.sum(x), dx=3, probs=True)])  # fmt: skip


def network(x):
    w = np.reshape(x, (6, 6)) ** 2 * (1 - np.eye(6))
    return np.concatenate([bct.strengths_dir(w), bct.clustering_coef_wd(w)])


def undirected(x):
    w = np.reshape(x, (6, 6)) ** 2 * (1 - np.eye(6))
    w = (w + w.T) / 2
    return np.concatenate(
        [bct.clustering_coef_wu(w), bct.eigenvector_centrality_und(w), bct.pagerank_centrality(w, 0.85)]
    )


def paths(x):
    w = np.reshape(x, (6, 6)) ** 2 * (1 - np.eye(6))
    lengths = bct.weight_conversion(w + w.T, "lengths")
    distances, _ = bct.distance_wei(lengths)
    return np.array(bct.charpath(distances)[:2])


def modularity(x):
    w = np.reshape(x, (6, 6)) ** 2 * (1 - np.eye(6))
    return np.concatenate([bct.participation_coef(w + w.T, np.array([1, 1, 2, 2, 3, 3])),
                           bct.module_degree_zscore(w + w.T, np.array([1, 1, 1, 2, 2, 2])), [bct.efficiency_wei(w + w.T)]])  # fmt: skip


grid = sfs.util.xyz_grid([-1, 1], [-1, 1], 0, spacing=0.5)


def point_source(x):
    return np.real(sfs.fd.source.point(2 * np.pi * x[0], x[1:4], grid))


def wave_field_synthesis(x):
    array = sfs.array.circular(8, 1.5)
    d, selection, secondary = sfs.fd.wfs.point_25d(2 * np.pi * x[0], array.x, array.n, [x[1], x[2], 0.0])
    return np.abs(sfs.fd.synthesize(d, sfs.tapering.none(selection), array, secondary, grid=grid))


def ambisonics(x):
    array = sfs.array.circular(8, 1.5)
    d, selection, secondary = sfs.fd.nfchoa.plane_25d(
        2 * np.pi * x[0], array.x, 1.5, sfs.util.direction_vector(x[1]), max_order=3
    )
    return np.abs(sfs.fd.synthesize(d, selection, array, secondary, grid=grid))


def cepstral(x):
    return mfcc(np.resize(x, 900), fs=2000, num_ceps=5, nfilts=12, nfft=64, pre_emph=True)[:2]


def linear_prediction(x):
    return lpc(np.resize(x, 300), fs=1000, order=4)[0][:2]


def mel_bank(x):
    bank = mel_filter_banks(nfilts=6, nfft=32, fs=800)[0]
    return bank @ np.abs(np.fft.rfft(pre_emphasis(x, 0.97)[:32])) ** 2


tones = 60 + 10 * np.cos(np.arange(60.0))
frequencies = np.linspace(24, 24000, 60)


def loudness(x):
    return loudness_zwst_freq(2e-5 * 10 ** ((tones + x[0]) / 20) * np.sqrt(2), frequencies)[1]


def sharpness(x):
    return sharpness_din_freq(
        2e-5 * 10 ** ((tones + x[0] * np.arange(60) / 60) / 20) * np.sqrt(2), frequencies
    )


signal = np.cos(1.7 * np.arange(36.0) ** 1.3) + 0.3 * np.sin(np.arange(36.0))
CALLS = [
    (momentum, signal),
    (moving_averages, signal),
    (bands, signal),
    (volume, signal),
    (autoregression, signal),
    (autoregressive_spectrum, np.array([0.5, -0.3, 1.2])),
    (multitaper, signal),
    (cross_spectrum, signal),
    (granger, np.array([0.3, 0.1, 0.2, 0.4])),
    (cross_covariance, signal),
    (event_related, signal),
    (weighted_permutations, signal),
    (tsallis, np.array([0.1, 0.3, 0.2, 0.15, 0.25, 0.4])),
    (renyi, np.array([0.1, 0.3, 0.2, 0.15, 0.25, 0.4])),
    (network, signal),
    (undirected, signal),
    (paths, signal),
    (modularity, signal),
    (point_source, np.array([300.0, 0.3, 2.0, 0.1])),
    (wave_field_synthesis, np.array([200.0, 0.3, 2.5])),
    (ambisonics, np.array([200.0, 0.4])),
    (cepstral, signal),
    (linear_prediction, signal),
    (mel_bank, signal),
    (loudness, np.array([1.3])),
    (sharpness, np.array([1.3])),
]
