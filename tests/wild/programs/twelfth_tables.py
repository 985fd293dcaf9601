import numpy as np
import pandas as pd
import quantstats
from formulaic import model_matrix
from inequality import atkinson, gini, theil, wolfson
from pycircstat2 import descriptive
from pyrolite.comp import codata
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import ARDRegression, HuberRegressor
from sklearn.metrics import explained_variance_score, pairwise, silhouette_score
from statsmodels.nonparametric.kde import KDEUnivariate
from statsmodels.regression.recursive_ls import RecursiveLS
from statsmodels.stats import diagnostic, stattools
from statsmodels.tsa.seasonal import seasonal_decompose

DAYS = pd.date_range("2024-01-01", periods=12, freq="D")
DESIGN = np.stack([np.ones(12), np.sin(np.arange(12.0)), np.cos(0.7 * np.arange(12.0))], 1)


def performance(x):
    returns = pd.Series(x, index=DAYS)
    return np.array(
        [
            quantstats.stats.sharpe(returns),
            quantstats.stats.sortino(returns),
            quantstats.stats.volatility(returns),
        ]
    )


def drawdown(x):
    returns = pd.Series(x, index=DAYS)
    return np.array(
        [
            quantstats.stats.ulcer_index(returns),
            quantstats.stats.cagr(returns),
            quantstats.stats.max_drawdown(returns),
        ]
    )


def incomes(x):
    return np.array([gini.Gini(x).g, theil.Theil(x).T, atkinson.Atkinson(x, 0.5).A, wolfson.wolfson(x)])


def between_groups(x):
    decomposed = theil.TheilD(x, np.array([0, 0, 1, 1, 1, 0]))
    return np.array([decomposed.T, decomposed.bg[0], decomposed.wg[0]])


def angles(x):
    return np.array(
        [
            descriptive.circ_mean(x),
            descriptive.circ_skewness(x),
            descriptive.circ_kurtosis(x),
            descriptive.circ_dispersion(x),
        ]
    )


def compositions(x):
    parts = np.abs(x.reshape(3, 4))
    return np.concatenate(
        [
            codata.CLR(parts).ravel(),
            codata.ALR(parts).ravel(),
            codata.ILR(parts).ravel(),
            codata.boxcox(parts)[0].ravel(),
        ]
    )


def formula(x):
    table = pd.DataFrame({"a": x[:4], "b": x[4:], "c": list("uvuv")})
    return np.asarray(model_matrix("a + b:c + center(b)", table))


def isotonic(x):
    return IsotonicRegression().fit_transform(np.arange(7.0), x)


def relevance(x):
    model = ARDRegression(max_iter=5, tol=1e-30).fit(DESIGN, x)
    return np.concatenate([model.coef_, [model.intercept_, model.alpha_]])


def huber(x):
    return HuberRegressor(alpha=0.1, tol=1e-9).fit(DESIGN[:, 1:], x).coef_


def distances(x):
    rows = x.reshape(4, 3)
    return np.concatenate(
        [
            pairwise.laplacian_kernel(rows).ravel(),
            pairwise.chi2_kernel(np.abs(rows)).ravel(),
            pairwise.haversine_distances(rows[:, :2]).ravel(),
        ]
    )


def nearest(x):
    rows = x.reshape(6, 2)
    return np.array(
        [silhouette_score(rows, [0, 0, 0, 1, 1, 1]), explained_variance_score(rows[:, 0], rows[:, 1])]
    )


def density(x):
    found = KDEUnivariate(x)
    found.fit(kernel="gau", bw="scott", fft=False)
    return np.concatenate([found.evaluate(np.array([0.2, 1.0])), [found.bw]])


def recursive(x):
    return RecursiveLS(x, DESIGN).fit().cusum


def seasons(x):
    parts = seasonal_decompose(x, period=4)
    return np.concatenate([parts.trend[2:-2], parts.seasonal[:4]])


def residuals(x):
    return np.array(
        [
            stattools.omni_normtest(x)[0],
            diagnostic.het_breuschpagan(x, DESIGN)[0],
            diagnostic.acorr_ljungbox(x, lags=2)["lb_stat"].iloc[1],
        ]
    )


CALLS = [
    (performance, [0.01, -0.02, 0.015, 0.03, -0.011, 0.004, 0.021, -0.013, 0.007, 0.012, -0.004, 0.009]),
    (drawdown, [0.01, -0.02, 0.015, 0.03, -0.011, 0.004, 0.021, -0.013, 0.007, 0.012, -0.004, 0.009]),
    (incomes, [10.0, 14.0, 21.0, 9.0, 40.0, 17.0]),
    (between_groups, [10.0, 14.0, 21.0, 9.0, 40.0, 17.0]),
    (angles, [0.3, 1.1, 0.7, 2.1, 1.8, 0.4]),
    (compositions, 1.5 + np.sin(np.arange(12.0) ** 1.3)),
    (formula, [0.3, 0.8, 1.4, 0.9, 2.0, 1.1, 0.6, 1.7]),
    (isotonic, [0.2, 0.9, 0.6, 1.4, 1.1, 1.2, 2.0]),
    (relevance, 0.5 + DESIGN @ [1.0, 0.7, -0.4] + 0.1 * np.sin(np.arange(12.0) ** 2)),
    (huber, 0.5 + DESIGN @ [1.0, 0.7, -0.4] + 0.4 * np.sin(np.arange(12.0) ** 2)),
    (distances, 0.8 + 0.5 * np.sin(np.arange(12.0) ** 1.3)),
    (nearest, [0.1, 0.3, 0.2, 0.5, 0.4, 0.2, 2.1, 2.3, 2.2, 1.8, 2.6, 2.0]),
    (density, [0.1, 0.9, 0.4, 1.7, 1.2]),
    (recursive, 0.5 + DESIGN @ [1.0, 0.7, -0.4] + 0.1 * np.sin(np.arange(12.0) ** 2)),
    (seasons, np.sin(np.arange(12.0) ** 1.3)),
    (residuals, np.sin(np.arange(12.0) ** 1.3)),
]
