"""Causes, tests of persons, thresholds, fuzzy rules, decisions, ratings, cities, diversity, prices, losses, groups."""

import catsim.irt
import causallearn.utils.cit
import cca_zoo.linear
import deeptime.covariance
import deeptime.decomposition
import deeptime.markov.tools.analysis
import dfols
import elote
import fcmeans
import finquant.quants
import finquant.returns
import fuzzylite
import gemact.copulas
import gemact.distributions
import girth
import hepstats.modeling
import nevergrad.functions.corefuncs as tasks
import numpy as np
import pandas as pd
import prince
import psignifit.sigmoids
import pybobyqa
import pyrepo_mcda.mcda_methods
import pyrepo_mcda.normalizations
import pyrepo_mcda.weighting_methods
import pyunfold
import quantstats.stats
import segregation.multigroup
import segregation.singlegroup
import simpful
import skbio.diversity.alpha
import skbio.stats.composition
import skbio.stats.ordination
import skcriteria
import skcriteria.agg.topsis
import skcriteria.preprocessing.scalers
import skfda
import spm1d
import tigramite.independence_tests.parcorr
import universal.algos

POINT = np.array([1.1, 0.9, 1.2])
RNG = np.random.default_rng(19)
TABLE = RNG.standard_normal((40, 3))
GROUPS = RNG.uniform(5.0, 50.0, (8, 3))
RETURNS = 0.01 * RNG.standard_normal(60)
MOVES = np.array([[0.8, 0.15, 0.05], [0.1, 0.75, 0.15], [0.05, 0.25, 0.7]])


def independence(x):
    return np.atleast_1d(causallearn.utils.cit.CIT(TABLE * x + TABLE[:, ::-1] * 0.5, "fisherz")(0, 1, [2]))


def partial_correlation(x):
    measure = tigramite.independence_tests.parcorr.ParCorr()
    one, two = TABLE[:, 0] * x[0] + TABLE[:, 2], TABLE[:, 1] + TABLE[:, 0] * x[1]
    return np.array(measure.run_test_raw(one[:, None], two[:, None], TABLE[:, 2:] * x[2])[:1])


def item_response(x):
    items = np.array([[1.0, 0.0, 0.1, 1.0], [1.5, 0.5, 0.2, 1.0]]) * np.array([x[0], x[1], 1.0, 1.0])
    return np.array(
        [
            catsim.irt.icc(0.5 * x[2], 1.1 * x[0], 0.3, 0.2),
            catsim.irt.test_info(0.4 * x[2], items),
            catsim.irt.log_likelihood(0.3 * x[2], [True, False], items),
        ]
    )


def psychometric(x):
    levels = np.linspace(0.5, 3.0, 6)
    laws = psignifit.sigmoids
    return np.concatenate(
        [
            laws.Gaussian()(levels, 1.5 * x[0], 0.7 * x[1], gamma=0.1 * x[2], lambd=0.05),
            laws.Gumbel().slope(levels, 1.2 * x[0], 0.8),
        ]
    )


def tip(x):
    rules = simpful.FuzzySystem(show_banner=False, verbose=False)
    service = [
        simpful.TriangleFuzzySet(a, b, c, term=t) for a, b, c, t in ((0, 0, 5, "poor"), (0, 5, 10, "good"))
    ]
    rules.add_linguistic_variable(
        "service", simpful.LinguisticVariable(service, universe_of_discourse=[0, 10])
    )
    rules.set_crisp_output_value("low", 5.0 * x[0])
    rules.set_crisp_output_value("high", 20.0 * x[1])
    rules.add_rules(["IF (service IS poor) THEN (tip IS low)", "IF (service IS good) THEN (tip IS high)"])
    rules.set_variable("service", 3.0 * x[2])
    return np.array([rules.Sugeno_inference(["tip"])["tip"]])


def memberships(x):
    return np.array(
        [
            fuzzylite.Triangle("a", 0.0, 1.0 * x[0], 3.0).membership(1.5),
            fuzzylite.Bell("b", 1.0, 0.7 * x[1], 2.0).membership(1.4 * x[2]),
            fuzzylite.SigmoidDifference("c", 0.5, 3.0 * x[0], 2.0, 2.0).membership(1.1),
        ]
    )


def choice_by_distance(x):
    found = skcriteria.mkdm(np.abs(TABLE[:5]) * x, [max, min, max], weights=[0.5, 0.2, 0.3])
    scaled = skcriteria.preprocessing.scalers.VectorScaler("both").transform(found)
    return skcriteria.agg.topsis.TOPSIS().evaluate(scaled).e_.similarity


def choice_by_compromise(x):
    matrix = np.abs(TABLE[:5]) * x + 0.1
    weights = pyrepo_mcda.weighting_methods.entropy_weighting(matrix)
    vikor = pyrepo_mcda.mcda_methods.VIKOR(
        normalization_method=pyrepo_mcda.normalizations.minmax_normalization
    )
    return np.concatenate([weights, vikor(matrix, weights, np.array([1, -1, 1]))])


def rating(x):
    one, two = (
        elote.EloCompetitor(initial_rating=1500.0 * x[0]),
        elote.EloCompetitor(initial_rating=1400.0 * x[1]),
    )
    one.beat(two)
    two.tied(one)
    return np.array([one.rating, two.rating, one.expected_score(two)])


def rating_with_doubt(x):
    one, two = [elote.Glicko2Competitor(initial_rating=1500.0 * a, initial_rd=100.0 * x[2]) for a in x[:2]]
    return np.atleast_1d(one.expected_score(two))


def clusters(x):
    model = fcmeans.FCM(n_clusters=2, random_state=1, error=1e-10, max_iter=400)
    model.fit(TABLE[:12] * x)
    return np.sort(model.centers.ravel())


def segregated_city(x):
    frame = pd.DataFrame(GROUPS * x, columns=list("abc"))
    frame["all"] = frame.sum(axis=1)
    single, many = segregation.singlegroup, segregation.multigroup
    return np.array(
        [
            single.Dissim(frame, "a", "all").statistic,
            single.Isolation(frame, "b", "all").statistic,
            many.MultiInfoTheory(frame, list("abc")).statistic,
            many.SimpsonsInteraction(frame, list("abc")).statistic,
        ]
    )


def diversity(x):
    counts = np.array([4.0, 7.0, 2.0]) * x
    alpha = skbio.diversity.alpha
    return np.array(
        [
            alpha.shannon(counts),
            alpha.simpson(counts),
            alpha.pielou_e(counts),
            alpha.renyi(counts, 2),
            alpha.hill(counts, 2),
        ]
    )


def composition(x):
    parts = skbio.stats.composition
    mix = parts.closure(np.abs(TABLE[:3]) * x + 0.1)
    return np.concatenate(
        [parts.ilr(mix).ravel(), parts.clr(mix).ravel(), parts.perturb(mix, mix[::-1]).ravel()]
    )


def ordination(x):
    return skbio.stats.ordination.ca(pd.DataFrame(GROUPS * x)).eigvals.to_numpy()


def portfolio(x):
    means = pd.Series([0.1, 0.2, 0.15])
    q = finquant.quants
    weights = pd.Series(x / np.sum(x))
    return np.array(
        [
            q.weighted_mean(means.values, weights.values),
            q.sharpe_ratio(0.1 * x[0], 0.3 * x[1], 0.01),
        ]
    )


def risks(x):
    returns = pd.Series(RETURNS * x[0] + 0.001 * x[1], index=pd.date_range("2024-01-01", periods=60))
    stats = quantstats.stats
    return np.array(
        [
            stats.sharpe(returns),
            stats.sortino(returns),
            stats.volatility(returns),
            stats.skew(returns),
            stats.max_drawdown(returns),
        ]
    )


def weights_of_prices(x):
    prices = pd.DataFrame(np.cumprod(1 + 0.01 * TABLE * x, axis=0), columns=list("abc"))
    return universal.algos.EG(eta=0.3 * x[0]).run(prices).B.to_numpy()[[3, 20]].ravel()


def losses(x):
    law = gemact.distributions
    return np.concatenate(
        [
            law.GenPareto(c=0.2 * x[0], scale=1.0 * x[1]).cdf(np.array([0.5, 2.0])),
            np.ravel(law.Lognormal(shape=0.5 * x[0], scale=1.2 * x[2]).lev(2.0)),
            law.Burr12(c=2.0 * x[1], d=1.5).pdf(np.array([0.5, 2.0]) * x[2]),
        ]
    )


def dependent_losses(x):
    places = np.array([[0.3, 0.6], [0.7, 0.2]])
    laws = gemact.copulas
    return np.concatenate(
        [
            laws.ClaytonCopula(1.5 * x[0], 2).cdf(places),
            laws.FrankCopula(2.0 * x[1], 2).cdf(places),
            laws.GumbelCopula(1.3 * x[2], 2).cdf(places),
        ]
    )


def muscles(x):
    walks = np.cumsum(TABLE.reshape(8, 15), axis=1)
    return np.concatenate(
        [
            spm1d.stats.ttest2(walks[:4] * x[0] + x[1], walks[4:]).z,
            spm1d.stats.regress(walks, np.arange(8.0) ** x[2]).z,
        ]
    )


def chain(x):
    moves = MOVES * x
    moves = moves / np.sum(moves, axis=1, keepdims=True)
    tools = deeptime.markov.tools.analysis
    return np.concatenate(
        [tools.stationary_distribution(moves), tools.mfpt(moves, 0), tools.timescales(moves)[1:]]
    )


def slow_modes(x):
    walks = np.cumsum(TABLE, axis=0) * x
    found = (
        deeptime.covariance.Covariance(lagtime=1, compute_c0t=True, compute_ctt=True).fit(walks).fetch_model()
    )
    return np.concatenate([found.cov_00.ravel(), found.cov_0t.ravel()])


def correspondence(x):
    model = prince.CA(n_components=2, engine="scipy").fit(pd.DataFrame(GROUPS * x))
    return np.ravel(model.eigenvalues_)


def common_factors(x):
    two = [
        TABLE * x,
        np.column_stack([TABLE[:, 0] + np.cos(9 * TABLE[:, 1]) * x[0], np.sin(9 * TABLE[:, 2]) * x[1]]),
    ]
    return np.ravel(cca_zoo.linear.CCA(1).fit(two).score(two))


def curves(x):
    lines = skfda.FDataGrid(np.sin(np.outer(x, np.linspace(0, 3, 12))), np.linspace(0, 3, 12))
    return np.concatenate(
        [lines.mean().data_matrix.ravel()[::3], lines.derivative().data_matrix[0].ravel()[::4]]
    )


def abilities(x):
    answers = (TABLE[:4] > 0).astype(int)[:3]
    return girth.ability_eap(answers, np.array([-0.5, 0.1, 0.7]) * x, np.array([1.0, 1.2, 0.8]) * x[0])


def unfolded(x):
    found = pyunfold.iterative_unfold(
        data=np.array([100.0, 150.0]) * x[:2], data_err=np.array([10.0, 12.0]), response=np.array([[0.9, 0.1], [0.1, 0.9]]),
        response_err=np.full((2, 2), 0.01), efficiencies=np.array([1.0, 1.0]) * 0.9, efficiencies_err=np.full(2, 0.01), ts_stopping=1e-4,
    )  # fmt: skip
    return np.ravel(found["unfolded"]) * x[2]


def bins_of_events(x):
    return hepstats.modeling.bayesian_blocks(np.sort(TABLE[:30, 0]) * x[0] + x[1] + x[2])


def test_functions(x):
    return np.array(
        [
            tasks.ackley(x),
            tasks.griewank(x),
            tasks.rastrigin(x),
            tasks.lunacek(x),
            tasks.rosenbrock(x),
            tasks.cigar(x),
        ]
    )


def fitted_without_slopes(x):
    def residuals(p):
        return np.array([p[0] - x[0], p[1] * x[1] - 1.0, (p[0] - p[1]) * 0.1 * x[2]])

    return dfols.solve(residuals, np.array([0.5, 0.5])).x


def least_without_slopes(x):
    found = pybobyqa.solve(lambda p: (p[0] - x[0]) ** 2 + 2 * (p[1] - x[1] * x[2]) ** 2, np.array([0.5, 0.5]))
    return np.atleast_1d(found.f + np.sum(x))


CALLS = [
    (f, POINT)
    for f in (
        independence, partial_correlation, item_response, psychometric, tip, memberships, choice_by_distance,
        choice_by_compromise, rating, rating_with_doubt, clusters, segregated_city, diversity, composition, ordination,
        portfolio, risks, weights_of_prices, losses, dependent_losses, muscles, chain, slow_modes, correspondence,
        common_factors, curves, abilities, unfolded, bins_of_events, test_functions,
        fitted_without_slopes, least_without_slopes,
    )
]  # fmt: skip
