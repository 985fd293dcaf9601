import numpy as np
import statsmodels.api as sm
from statsmodels.discrete.count_model import ZeroInflatedPoisson
from statsmodels.nonparametric.kernel_regression import KernelReg
from statsmodels.robust.norms import HuberT, TukeyBiweight
from statsmodels.stats.moment_helpers import corr2cov, cov2corr
from statsmodels.stats.stattools import durbin_watson, jarque_bera
from statsmodels.stats.weightstats import DescrStatsW
from statsmodels.tsa.arima_process import ArmaProcess, arma_acovf
from statsmodels.tsa.filters.hp_filter import hpfilter
from statsmodels.tsa.stattools import acf, pacf
from statsmodels.tsa.tsatools import detrend

rng = np.random.default_rng(0)
X = sm.add_constant(rng.normal(size=(30, 2)))
y = X @ np.array([1.0, 0.5, -0.3]) + 0.5 * rng.normal(size=30)
b = (y > 1.0).astype(float)
n = rng.poisson(2.0, size=30).astype(float)
x3 = np.array([0.8, 0.4, -0.2])


def ols_loglike(x):
    return sm.OLS(y, X).loglike(x)


def ols_fit_params(x):
    return sm.OLS(x, X).fit().params


def ols_fit_ssr(x):
    return sm.OLS(x, X).fit().ssr


def wls_fit(x):
    return sm.WLS(y, X, weights=np.exp(x)).fit().params


def gls_fit(x):
    return sm.GLS(x, X, sigma=np.diag(1.0 + np.arange(30) / 30)).fit().params


def logit_loglike(x):
    return sm.Logit(b, X).loglike(x)


def probit_loglike(x):
    return sm.Probit(b, X).loglike(x)


def poisson_loglike(x):
    return sm.Poisson(n, X).loglike(x)


def negative_binomial_loglike(x):
    return sm.NegativeBinomial(n, X).loglike(x)


def zero_inflated_loglike(x):
    return ZeroInflatedPoisson(n, X).loglike(x)


def glm_gamma_loglike(x):
    return sm.GLM(np.exp(y), X, family=sm.families.Gamma(sm.families.links.Log())).loglike(x)


def arma_autocovariance(x):
    return arma_acovf([1.0, -x[0]], [1.0, x[1]], nobs=6)


def arma_impulse_response(x):
    return ArmaProcess(np.array([1.0, -0.5]), np.r_[1.0, x]).impulse_response(8)


def autocorrelation(x):
    return acf(x, nlags=5, fft=False)


def partial_autocorrelation(x):
    return pacf(x, nlags=3, method="ldb")


def dw(x):
    return durbin_watson(x)


def jarque(x):
    return jarque_bera(x)[0]


def hodrick_prescott(x):
    return hpfilter(x, lamb=10.0)[1]


def huber(x):
    return HuberT().rho(x)


def tukey(x):
    return TukeyBiweight().psi(x)


def correlation(x):
    return cov2corr(x @ x.T + np.eye(3))


def covariance(x):
    return corr2cov(np.array([[1.0, 0.3], [0.3, 1.0]]), x)


def weighted_std(x):
    return DescrStatsW(x, weights=np.arange(1.0, 31.0)).std


def sarimax_loglike(x):
    return sm.tsa.SARIMAX(y, order=(1, 0, 0)).loglike(x)


def arima_hannan(x):
    return detrend(x, order=1)


def kernel_regression(x):
    return KernelReg(y, X[:, 1], "c", bw=[0.5]).fit(x)[0]


CALLS = [
    (ols_loglike, x3), (ols_fit_params, y), (ols_fit_ssr, y), (wls_fit, 0.1 * y), (gls_fit, y),
    (logit_loglike, x3), (probit_loglike, x3),
    (poisson_loglike, x3), (negative_binomial_loglike, np.array([0.8, 0.4, -0.2, 0.3])),
    (zero_inflated_loglike, np.array([-1.0, 0.8, 0.4, -0.2])), (glm_gamma_loglike, x3), (arma_autocovariance,
    np.array([0.5, 0.3])),
    (arma_impulse_response, np.array([0.3, 0.2])), (autocorrelation, y), (partial_autocorrelation, y), (dw,
    y), (jarque, y),
    (hodrick_prescott, y), (huber, y), (tukey, y), (correlation, X[:3, 1:]), (covariance, np.array([1.5,
    2.0])), (weighted_std, y),
    (sarimax_loglike, np.array([0.5, 0.8])), (arima_hannan, y), (kernel_regression, np.array([0.1, 0.4])),
]  # fmt: skip
