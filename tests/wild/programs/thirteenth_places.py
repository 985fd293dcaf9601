import networkx as nx
import numbagg
import numpy as np
import pandas as pd
import xarray as xr
from eofs.standard import Eof
from esda.geary import Geary
from esda.getisord import G
from esda.lee import Spatial_Pearson
from esda.losh import LOSH
from esda.moran import Moran
from kneed import KneeLocator
from libpysal.weights import W
from networkx.algorithms.flow import maximum_flow_value
from PyEMD import EMD
from pypfopt import black_litterman, expected_returns, objective_functions, risk_models
from skimage.filters import frangi, sato
from skimage.segmentation import chan_vese
from skimage.transform import radon
from spglm.family import Gamma, Poisson
from spglm.glm import GLM

NEIGHBOURS = W({0: [1, 2], 1: [0, 3], 2: [0, 4], 3: [1, 4], 4: [2, 3, 5], 5: [4]}, silence_warnings=True)
DESIGN = np.column_stack([np.ones(8), np.linspace(-1.0, 1.0, 8), np.cos(np.arange(8.0))])
DAYS = pd.date_range("2024-01-01", periods=6)


def autocorrelation(x):
    moran = Moran(x, NEIGHBOURS, permutations=0)
    return np.array([moran.I, moran.VI_rand, Geary(x, NEIGHBOURS, permutations=0).C])


def getis(x):
    return G(x, NEIGHBOURS, permutations=0).G


def local_spread(x):
    return LOSH(connectivity=NEIGHBOURS, inference=None).fit(x).Hi


def bivariate(x):
    return (
        Spatial_Pearson(connectivity=NEIGHBOURS.sparse, permutations=0)
        .fit(x[:, None], x[::-1, None] ** 2)
        .association_
    )


def counts(x):
    return GLM(np.exp(x)[:, None], DESIGN, family=Poisson()).fit().params.ravel()


def gamma_model(x):
    return GLM(x[:, None], DESIGN, family=Gamma()).fit().deviance


def patterns(x):
    field = x.reshape(4, 3)
    solver = Eof(field - field.mean(axis=0), weights=np.array([1.0, 0.8, 0.5]))
    return np.concatenate([solver.varianceFraction(), np.abs(solver.pcs(npcs=1, pcscaling=1)).ravel()])


def moving(x):
    return numbagg.move_mean(x, window=3, min_count=1) + numbagg.move_exp_nanmean(x, alpha=0.4)


def missing(x):
    holes = np.where(np.arange(x.size) == 2, np.nan, x)
    return np.array([numbagg.nanmean(holes), numbagg.nanvar(holes), numbagg.nansum(holes)])


def elbow(x):
    return KneeLocator(
        np.arange(1.0, 9.0), x[0] - x[1] / np.arange(1.0, 9.0), curve="concave", direction="increasing"
    ).y_normalized


def modes(x):
    t = np.linspace(0.0, 1.0, 60)
    return EMD(FIXE=2).emd(
        np.sin(2 * np.pi * 9 * t) * x[0] + x[1] * t**2 + x[2] * np.cos(2 * np.pi * 3 * t), t
    )[0, 20:30]


def grouped(x):
    field = xr.DataArray(x, dims="time", coords={"time": DAYS, "month": ("time", [1, 1, 2, 2, 3, 3])})
    monthly = field.groupby("month").mean()
    return np.concatenate([monthly.values, (field.groupby("month") - monthly).values])


def weighted(x):
    field = xr.DataArray(x.reshape(2, 3), dims=("a", "b"), coords={"b": [0.0, 1.0, 3.0]})
    mean = field.weighted(xr.DataArray([1.0, 2.0, 0.5], dims="b")).mean("b")
    return np.concatenate(
        [
            mean.values,
            field.integrate("b").values,
            field.interp(b=[0.4, 2.2]).values.ravel(),
            field.differentiate("b").values[0],
        ]
    )


def polynomial_trend(x):
    field = xr.DataArray(x, dims="t", coords={"t": np.arange(6.0)})
    fitted = field.polyfit("t", deg=2)
    return xr.polyval(field.t, fitted.polyfit_coefficients).values


def portfolio(x):
    prices = pd.DataFrame(x.reshape(5, 2), columns=["a", "b"])
    mu = expected_returns.ema_historical_return(prices, span=3)
    covariance = risk_models.exp_cov(prices, span=3)
    return objective_functions.sharpe_ratio(np.array([0.4, 0.6]), mu.to_numpy(), covariance.to_numpy())


def posterior(x):
    covariance = np.array([[0.04, 0.01], [0.01, 0.09]]) * x[0]
    model = black_litterman.BlackLittermanModel(covariance, pi=x[1:3], P=np.array([[1.0, -1.0]]), Q=x[3:4])
    return model.bl_returns().to_numpy()


def ridges(x):
    rows, columns = np.mgrid[:12, :12]
    image = np.exp(-((rows - x[0]) ** 2) / x[1]) + 0.1 * columns * x[2]
    return np.concatenate([sato(image, sigmas=[1.0])[5, 3:8], frangi(image, sigmas=[1.5])[5, 3:8]])


def sinogram(x):
    rows, columns = np.mgrid[:9, :9]
    return radon(np.exp(-((rows - x[0]) ** 2 + (columns - x[1]) ** 2)), theta=[10.0, 55.0], circle=False)[
        4:9
    ].ravel()


def electric(x):
    graph = nx.Graph()
    graph.add_weighted_edges_from([(0, 1, x[0]), (1, 2, x[1]), (2, 0, x[2]), (2, 3, x[3])])
    return np.array(
        list(nx.current_flow_betweenness_centrality(graph, weight="weight").values())
        + list(nx.information_centrality(graph, weight="weight").values())
    )


def shortest(x):
    graph = nx.DiGraph()
    for (a, b), cost in zip([(0, 1), (1, 2), (0, 2), (2, 3)], x, strict=True):
        graph.add_edge(a, b, weight=cost, capacity=cost)
    return (
        nx.dijkstra_path_length(graph, 0, 3) + 2.0 * maximum_flow_value(graph, 0, 3) + nx.reciprocity(graph)
    )


def region(x):
    rows, columns = np.mgrid[:10, :10]
    image = 1.0 / (1.0 + np.exp((rows - x[0]) ** 2 + (columns - x[1]) ** 2 - 9.0))
    return chan_vese(image, mu=0.2, max_num_iter=3, extended_output=True)[1][2:4].ravel()


CALLS = [
    (autocorrelation, [1.0, 1.7, 0.4, 2.2, 1.1, 0.9]),
    (getis, [1.0, 1.7, 0.4, 2.2, 1.1, 0.9]),
    (local_spread, [1.0, 1.7, 0.4, 2.2, 1.1, 0.9]),
    (bivariate, [1.0, 1.7, 0.4, 2.2, 1.1, 0.9]),
    (counts, [0.3, 0.8, 1.2, 0.5, 1.9, 1.4, 0.7, 1.1]),
    (gamma_model, [1.3, 0.8, 1.2, 2.5, 1.9, 1.4, 0.7, 1.1]),
    (patterns, [0.3, 1.2, 0.7, 2.0, 0.4, 1.1, 0.9, 1.6, 0.2, 0.5, 1.3, 2.4]),
    (moving, [0.3, 0.8, 1.2, 0.5, 1.9, 1.4]),
    (missing, [0.3, 0.8, 1.2, 0.5, 1.9, 1.4]),
    (elbow, [3.0, 2.0]),
    (modes, [1.0, 0.8, 0.6]),
    (grouped, [0.3, 0.8, 1.2, 0.5, 1.9, 1.4]),
    (weighted, [0.3, 0.8, 1.2, 0.5, 1.9, 1.4]),
    (polynomial_trend, [0.3, 0.8, 1.2, 0.5, 1.9, 1.4]),
    (portfolio, [10.0, 20.0, 10.3, 20.9, 10.1, 21.7, 10.9, 21.2, 11.3, 22.0]),
    (posterior, [1.2, 0.05, 0.08, 0.02]),
    (ridges, [5.3, 4.0, 0.3]),
    (sinogram, [3.7, 4.4]),
    (electric, [1.0, 2.0, 1.5, 0.7]),
    (shortest, [1.0, 2.0, 3.5, 1.2]),
    (region, [4.4, 5.2]),
]
