import numpy as np
import pyfeng as pf
from pysabr import black
from pysabr.models import hagan_2002_lognormal_sabr as lognormal
from pysabr.models import hagan_2002_normal_sabr as normal

strikes = np.array([90.0, 100.0, 112.0])


def black_scholes(x):
    m = pf.Bsm(x[0], intr=x[1], divr=0.01)
    return np.concatenate(
        [m.price(strikes, x[2], 1.2), m.delta(strikes, x[2], 1.2), m.vega(strikes, x[2], 1.2)]
    )


def implied_volatility(x):
    return pf.Bsm(0.2).impvol(x, strikes, 100.0, 1.2)


def bachelier(x):
    m = pf.Norm(x[0])
    return np.concatenate(
        [m.price(strikes, x[1], 1.2), m.impvol(m.price(strikes, x[1], 1.2), strikes, x[1], 1.2)]
    )


def constant_elasticity(x):
    return pf.Cev(x[0], beta=x[1]).price(strikes / 100, 1.05, 1.2)


def sabr_hagan(x):
    return pf.SabrHagan2002(x[0], vov=x[1], rho=x[2], beta=0.5).vol_for_price(strikes / 100, 1.03, 1.2)


def sabr_mixture(x):
    return pf.SabrUncorrChoiWu2021(x[0], vov=x[1], rho=0.0, beta=0.5).price(strikes / 100, 1.03, 1.2)


def heston_fft(x):
    return pf.HestonFft(x[0], vov=x[1], mr=x[2], rho=x[3], theta=0.04).price(strikes, 100.0, 1.2)


def variance_gamma_cos(x):
    return pf.VarGammaCos(x[0], theta=x[1], nu=x[2]).price(strikes, 100.0, 1.2)


def spread(x):
    return pf.BsmSpreadKirk(x[:2], rho=x[2]).price(np.array([3.0, 5.0]), x[3:5], 1.2)


def basket(x):
    return pf.BsmBasketLevy1992(x[:3], rho=0.4, weight=np.ones(3) / 3).price(strikes, x[3:6], 1.2)


def svi(x):
    return pf.Svi(*x).vol_for_price(strikes / 100, 1.0, 1.2)


def hyperbolic(x):
    return pf.Nsvh1(x[0], vov=x[1], rho=x[2]).price(strikes, 100.0, 1.2)


def risk_parity(x):
    cov = np.diag(x[:3] ** 2) + 0.01 * np.ones((3, 3))
    model = pf.RiskParity(cov_m=cov)
    model.fit_ccd(tol=1e-14)
    return model.weight


def lognormal_smile(x):
    return np.array(
        [lognormal.lognormal_vol(k, x[0], 1.5, x[1], x[2], x[3], x[4]) for k in (0.02, 0.03, 0.045)]
    )


def calibrated_alpha(x):
    model = lognormal.Hagan2002LognormalSABR(
        f=x[0], shift=0.0, t=1.5, v_atm_n=x[1], beta=0.6, rho=-0.2, volvol=x[2]
    )
    return np.array(
        [model.alpha(), model.lognormal_vol(0.03), model.normal_vol(0.03), 100 * model.call(0.03)]
    )


def normal_smile(x):
    model = normal.Hagan2002NormalSABR(
        f=x[0], shift=0.0, t=1.5, v_atm_n=x[1], beta=0.6, rho=-0.2, volvol=x[2]
    )
    return np.array([100 * model.normal_vol(k) for k in (0.02, 0.03)])


def black_formulas(x):
    return np.array([black.lognormal_call(1.0, x[0], 2.0, x[1], x[2]), black.normal_call(1.0, x[0], 2.0, x[1], x[2]),
                     black.shifted_lognormal_call(1.0, x[0], 0.1, 2.0, x[1], x[2])])  # fmt: skip


CALLS = [
    (black_scholes, np.array([0.2, 0.03, 101.0])),
    (implied_volatility, np.array([15.0, 9.0, 5.0])),
    (bachelier, np.array([18.0, 101.0])),
    (constant_elasticity, np.array([0.3, 0.6])),
    (sabr_hagan, np.array([0.3, 0.5, -0.3])),
    (sabr_mixture, np.array([0.3, 0.5])),
    (heston_fft, np.array([0.04, 0.5, 1.2, -0.4])),
    (variance_gamma_cos, np.array([0.2, -0.1, 0.3])),
    (spread, np.array([0.2, 0.3, 0.4, 100.0, 96.0])),
    (basket, np.array([0.2, 0.3, 0.25, 100.0, 96.0, 104.0])),
    (svi, np.array([0.04, 0.2, -0.4, 0.1, 0.2])),
    (hyperbolic, np.array([20.0, 0.5, -0.3])),
    (risk_parity, np.array([0.2, 0.3, 0.4])),
    (lognormal_smile, np.array([0.031, 0.05, 0.6, -0.2, 0.5])),
    (calibrated_alpha, np.array([0.032, 0.008, 0.5])),
    (normal_smile, np.array([0.032, 0.008, 0.5])),
    (black_formulas, np.array([1.1, 0.2, 0.03])),
]
