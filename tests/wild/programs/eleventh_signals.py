import ffn
import numpy as np
import pandas as pd
import tsfel.feature_extraction.features as features
from pygam.distributions import BinomialDist, GammaDist, PoissonDist
from pygam.links import LogitLink

T = np.arange(64.0)
WAVE = np.sin(0.3 * T) + 0.4 * np.cos(1.1 * T)


def moments_of_time(x):
    return np.array(
        [
            features.calc_centroid(x, 10.0),
            features.auc(x, 10.0),
            features.distance(x),
            features.slope(x),
            features.rms(x),
            features.pk_pk_distance(x),
        ]
    )


def moments_of_the_spectrum(x):
    return np.array(
        [
            features.spectral_centroid(x, 10.0),
            features.spectral_kurtosis(x, 10.0),
            features.spectral_spread(x, 10.0),
            features.spectral_slope(x, 10.0),
            features.spectral_entropy(x, 10.0),
        ]
    )


def cepstrum(x):
    return np.array(features.mfcc(x, 10.0, nfilt=8, num_ceps=4))


def wavelets(x):
    return np.array(features.wavelet_std(x, 10.0, max_width=4)["values"])


def drawdown(x):
    prices = pd.Series(x, index=pd.date_range("2024-01-01", periods=len(x)))
    return np.array([ffn.calc_max_drawdown(prices), ffn.calc_total_return(prices), ffn.calc_cagr(prices)])


def sharpe(x):
    returns = ffn.to_returns(pd.Series(x, index=pd.date_range("2024-01-01", periods=len(x))))
    return np.array([ffn.calc_sharpe(returns, nperiods=252), ffn.calc_sortino_ratio(returns, nperiods=252)])


def likelihoods(x):
    return np.concatenate(
        [
            PoissonDist().log_pdf(np.arange(3.0), x),
            GammaDist(scale=0.5).deviance(np.array([0.4, 1.0, 2.0]), x),
            LogitLink().mu(x, BinomialDist(levels=1)),
        ]
    )


CALLS = [
    (moments_of_time, WAVE),
    (moments_of_the_spectrum, WAVE),
    (cepstrum, WAVE),
    (wavelets, WAVE[:24]),
    (drawdown, 10.0 + WAVE[:20]),
    (sharpe, 10.0 + WAVE[:20]),
    (likelihoods, [0.4, 1.3, 2.2]),
]
