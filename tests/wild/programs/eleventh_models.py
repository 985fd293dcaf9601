import astropy.units as u
import networkx as nx
import numpy as np
import patsy
import seaborn._statistics as seaborn
import sympy
from astropy.modeling import physical_models, rotations
from skimage.transform import ProjectiveTransform
from sklearn.decomposition import FastICA
from sklearn.linear_model import BayesianRidge, TweedieRegressor
from sklearn.preprocessing import PowerTransformer, SplineTransformer
from statsmodels.discrete.truncated_model import TruncatedLFPoisson
from statsmodels.duration.hazard_regression import PHReg
from statsmodels.genmod.families import Gamma, NegativeBinomial, Tweedie, links
from statsmodels.nonparametric.kernel_density import KDEMultivariate
from statsmodels.regression.linear_model import OLS
from statsmodels.regression.mixed_linear_model import MixedLM, MixedLMParams
from statsmodels.stats.contingency_tables import Table2x2
from statsmodels.stats.meta_analysis import combine_effects
from statsmodels.stats.outliers_influence import OLSInfluence
from statsmodels.stats.power import FTestAnovaPower, TTestIndPower
from statsmodels.stats.proportion import proportion_effectsize

A = np.sin(1.3 * np.arange(16.0) ** 1.1).reshape(8, 2)
Q, R, S = sympy.symbols("q r s")
EXPRESSION = sympy.lambdify((Q, R, S), [sympy.exp(-Q * R) * sympy.cos(S), sympy.Max(Q, R) + sympy.erf(S)])


def families(x):
    y = np.array([0.4, 1.0, 2.0])
    return np.array(
        [
            Gamma().deviance(y, x),
            NegativeBinomial(alpha=0.7).loglike(y, x),
            Tweedie(var_power=1.5).deviance(y, x),
            np.sum(links.CLogLog()(x / 4)),
        ]
    )


def power(x):
    return np.array(
        [
            TTestIndPower().power(x[0], 25.0 + x[1], 0.05),
            FTestAnovaPower().power(x[0], 60.0, 0.05, k_groups=3),
            proportion_effectsize(x[0], x[1]),
        ]
    )


def truncated_counts(x):
    model = TruncatedLFPoisson(np.array([1, 2, 1, 4, 3, 1, 2, 5]), A)
    return model.loglike(x)


def black_body(x):
    body = physical_models.BlackBody(x[0] * u.K, scale=x[1])
    return body(np.array([5e-4, 1e-3]) * u.mm).value


def halo(x):
    halo = physical_models.Plummer1D(mass=x[0] * u.M_sun, r_plum=x[1] * u.pc)
    return halo(np.array([1.0, 4.0]) * u.pc).value


def ranked(x):
    graph = nx.DiGraph()
    graph.add_weighted_edges_from([(0, 1, x[0]), (1, 2, x[1]), (2, 0, x[2]), (0, 2, x[3])])
    return np.array(list(nx.pagerank(graph).values()))


def conductances(x):
    graph = nx.Graph()
    graph.add_weighted_edges_from([(0, 1, x[0]), (1, 2, x[1]), (2, 0, x[2]), (1, 3, x[3])])
    return np.array([nx.resistance_distance(graph, 0, 3, weight="weight"), nx.algebraic_connectivity(graph)])


def symbolic(x):
    return np.array(EXPRESSION(*x))


def evidence(x):
    model = BayesianRidge().fit(A, x)
    return np.append(model.coef_, model.alpha_)


def powers(x):
    return PowerTransformer(standardize=True).fit_transform(x[:, None]).ravel()


def knots(x):
    return SplineTransformer(n_knots=3, degree=3).fit(x[:, None]).transform(x[2:5, None] * 0.9).ravel()


def splines_of_formulas(x):
    return np.ravel(patsy.dmatrix("bs(x, df=5) + np.log(x + 3) - 1", {"x": x}))


def density(x):
    values, grid = seaborn.KDE(gridsize=5, cut=1)(x)
    return np.concatenate([values, grid])


def projected(x):
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    transform = ProjectiveTransform()
    transform.estimate(corners, corners + x.reshape(4, 2))
    return np.ravel(transform(np.array([[0.3, 0.4], [0.7, 0.1]])))


def components(x):
    return np.abs(
        FastICA(2, random_state=0, tol=1e-12, max_iter=1000, whiten="unit-variance")
        .fit(x.reshape(8, 2))
        .mixing_
    ).ravel()


def tweedie(x):
    return TweedieRegressor(power=1.5, alpha=0.1, link="log", tol=1e-10).fit(A, np.exp(x)).coef_


def mixed_effects(x):
    model = MixedLM(x, A, groups=np.repeat([0, 1, 2, 3], 2))
    model.cov_pen = model.fe_pen = None
    return model.loglike(
        MixedLMParams.from_components(np.array([0.3, 0.2]), np.array([[0.4]])), profile_fe=False
    )


def several_densities(x):
    model = KDEMultivariate(x.reshape(4, 2), var_type="cc", bw=[0.5, 0.7])
    return np.append(model.pdf(A[:3]), model.cdf(A[:2]))


def hazards(x):
    model = PHReg(
        np.array([3.0, 1.2, 5.0, 2.2, 2.2, 4.0, 0.6, 1.7]),
        A,
        status=np.array([1, 1, 0, 1, 1, 0, 1, 1]),
        ties="efron",
    )
    return model.loglike(x)


def odds(x):
    table = Table2x2(x.reshape(2, 2))
    return np.array(
        [table.log_oddsratio, table.riskratio, table.log_oddsratio_se, *table.log_riskratio_confint()]
    )


def combined(x):
    found = combine_effects(x, np.array([0.1, 0.2, 0.15, 0.3]), method_re="dl")
    return np.ravel(found.summary_frame()[["eff", "sd_eff"]].to_numpy())


def influence(x):
    found = OLSInfluence(OLS(x, A).fit())
    return np.append(found.cooks_distance[0], found.resid_studentized_internal)


def euler(x):
    turn = rotations.EulerAngleRotation(x[0], x[1], x[2], axes_order="zxz")
    return np.array(turn(np.array([0.3, 1.1]), 0.4 * np.ones(2)))


def katz(x):
    graph = nx.Graph()
    graph.add_weighted_edges_from([(0, 1, x[0]), (1, 2, x[1]), (2, 0, x[2]), (1, 3, x[3])])
    return np.array(list(nx.katz_centrality_numpy(graph, alpha=0.2, weight="weight").values()))


CALLS = [
    (families, [0.4, 1.3, 2.2]),
    (power, [0.5, 0.3]),
    (truncated_counts, [0.4, 0.3]),
    (black_body, [5500.0, 1.2]),
    (halo, [1000.0, 2.0]),
    (ranked, [0.4, 1.1, 0.7, 0.3]),
    (conductances, [0.4, 1.1, 0.7, 0.3]),
    (symbolic, [0.4, 1.3, 0.2]),
    (evidence, np.sin(0.7 * np.arange(8.0)) + A[:, 0]),
    (powers, 2.0 + A[:, 0] + A[:, 1] ** 2),
    (knots, np.sin(0.7 * np.arange(8.0)) + A[:, 0]),
    (splines_of_formulas, np.sin(0.7 * np.arange(8.0)) + A[:, 0]),
    (density, np.sin(0.7 * np.arange(8.0)) + A[:, 0]),
    (projected, 0.2 * np.sin(np.arange(8.0))),
    (components, (A + 0.3 * np.cos(np.arange(16.0) ** 1.3).reshape(8, 2)).ravel()),
    (tweedie, np.sin(0.7 * np.arange(8.0)) + A[:, 0]),
    (mixed_effects, np.sin(0.7 * np.arange(8.0)) + A[:, 0]),
    (several_densities, np.sin(0.7 * np.arange(8.0)) + A[:, 0]),
    (hazards, [0.4, 0.3]),
    (odds, [10.0, 4.0, 5.0, 12.0]),
    (combined, [0.4, 0.9, 0.2, 0.3]),
    (influence, np.sin(0.7 * np.arange(8.0)) + A[:, 0]),
    (euler, [0.4, 0.9, 0.2]),
    (katz, [0.4, 1.1, 0.7, 0.3]),
]
