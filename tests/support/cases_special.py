"""scipy.special."""

import numpy as np
import scipy.special as sp
from cases import between, binary, case, normal, positive, registered, unary

import tapegrad.ops.special.error_functions as t
from tapegrad.ops.special import bessel, gamma, incomplete, zeta

X, P, U = normal(2, 3), positive(2, 3), between(0.1, 0.9, 2, 3)
Q = positive(2, 3, seed=1)
AWAY = np.sign(X) * (0.3 + abs(X))
POLYGAMMA = registered(sp.polygamma)
MULTIGAMMALN = registered(sp.multigammaln)
FACTORIAL = registered(sp.factorial)
ZETA = registered(sp.zeta)


CASES = [
    unary("expit", sp.expit, X, covers=("logistic_slope",)),
    unary("gammaln", sp.gammaln, P),
    unary("loggamma", sp.loggamma, P, numpy_only=True),
    unary("loggamma_of_real", sp.loggamma, P),
    unary("digamma", sp.digamma, P, single=2e-3),
    unary("polygamma_n", lambda x: gamma.polygamma_n(x, n=2), P, single=2e-3),
    unary("polygamma", lambda x: POLYGAMMA(1, x), P, single=2e-3, kinds=("strided",)),
    unary("gamma", sp.gamma, P),
    unary("rgamma", sp.rgamma, P),
    binary("beta", sp.beta, P, Q, covers=("psi_gap",)),
    binary("betaln", sp.betaln, P, Q),
    unary("gammasgn", sp.gammasgn, AWAY, order=0, numpy_only=True),
    binary("binom", sp.binom, 2 + P, Q),
    binary("poch", sp.poch, P, Q),
    unary("multigammaln", lambda x: MULTIGAMMALN(x, 3), 2 + P, kinds=("strided",)),
    unary("factorial", lambda x: FACTORIAL(x), P, kinds=("strided",), numpy_only=True),
    case("hurwitz", lambda x, q: zeta.hurwitz(x, q), 1.5 + P, Q, covers=("zeta_order",)),
    case("riemann", lambda x: ZETA(x), np.array([1.4, 1.7, 2.5])),
    case("zeta", lambda q: ZETA(3.0, q), P, kinds=("strided",)),
    case("gammainc", lambda x: sp.gammainc(1.7, x), P),
    case("gammaincc", lambda x: sp.gammaincc(1.7, x), P),
    case("gammaincinv", lambda x: sp.gammaincinv(1.7, x), U, numpy_only=True),
    case("gammainccinv", lambda x: sp.gammainccinv(1.7, x), U, numpy_only=True),
    case("betainc", lambda x: sp.betainc(1.7, 2.3, x), U),
    case("betaincinv", lambda x: sp.betaincinv(1.7, 2.3, x), U, numpy_only=True),
    case("betaincc", lambda x: sp.betaincc(1.7, 2.3, x), U, numpy_only=True),
    case("stdtr", lambda x: sp.stdtr(2.7, x), X, numpy_only=True),
    case("betainccinv", lambda x: sp.betainccinv(1.7, 2.3, x), U, numpy_only=True),
    case("gamma_moment", lambda a, x: incomplete.gamma_moment(a, x, n=1), P, Q, order=1),
    case("beta_moment", lambda a, b, x: incomplete.beta_moment(a, b, x, n=1, m=1), P, Q, U, order=1),
    case("huber", lambda r: sp.huber(1.3, r), AWAY, numpy_only=True),
    case("pseudo_huber", lambda r: sp.pseudo_huber(1.3, r), X, numpy_only=True),
    case(
        "pseudo_huber delta",
        lambda d, r: sp.pseudo_huber(d, r),
        P,
        X,
        numpy_only=True,
        covers=("half_tangent",),
    ),
    unary("expm1 of scipy", sp.expm1, X, kinds=()),
    unary("erf", sp.erf, X),
    unary("erfc", sp.erfc, X),
    unary("erfcx", sp.erfcx, X, covers=("erfcx_ratio",)),
    unary("erfcx far out", sp.erfcx, np.append(X, [[13.0, 12.5, 40.0]], 0)),
    unary("erfi", sp.erfi, X, numpy_only=True),
    unary("dawsn", sp.dawsn, X, numpy_only=True, covers=("tail",)),
    unary("erfinv", sp.erfinv, 2 * U - 1, eps=2e-4),
    unary("erfcinv", sp.erfcinv, U, eps=2e-4),
    unary("ndtr", sp.ndtr, X),
    unary("ndtri", sp.ndtri, U, eps=2e-4),
    unary("ndtri_exp", sp.ndtri_exp, -P, numpy_only=True, eps=2e-4),
    unary("log_ndtr", sp.log_ndtr, 3 * X),
    unary("inverse_mills", t.inverse_mills, 3 * X),
    unary("logit", sp.logit, U, eps=2e-4),
    unary("log_expit", sp.log_expit, X),
    binary("xlogy", sp.xlogy, X, P),
    binary("xlog1py", sp.xlog1py, X, P),
    unary("entr", sp.entr, P),
    binary("rel_entr", sp.rel_entr, P, Q),
    binary("kl_div", sp.kl_div, P, Q, single=1e-3),
    *([unary("softplus", sp.softplus, X, kinds=("strided",))] if hasattr(sp, "softplus") else []),
    *[unary(f.__name__, f, np.append(X, [[0.0, 5.5, -13.0]], 0), single=2e-3) for f in (sp.j0, sp.j1)],
    *[unary(f.__name__, f, np.append(X, [[0.0, 5.5, -13.0]], 0) / 2, single=2e-3) for f in (sp.i0, sp.i1)],
    *[unary(f.__name__, f, np.append(AWAY, [[0.5, -55.0, -13.0]], 0), single=2e-3) for f in (sp.i0e, sp.i1e)],
    unary("bessel_j", lambda x: bessel.bessel_j(x, n=1), X),
    unary("bessel_i", lambda x: bessel.bessel_i(x, n=1), X),
    unary("bessel_ie", lambda x: bessel.bessel_ie(x, n=1), AWAY),
    *[unary(f.__name__, f, 0.5 + P, single=2e-3) for f in (sp.y0, sp.y1, sp.k0, sp.k1, sp.k0e, sp.k1e)],
    unary("expi", sp.expi, P, single=2e-3),
    unary("exp1", sp.exp1, P, single=2e-3),
    case("expn", lambda x: sp.expn(2, x), P, single=2e-3),
    unary("exp10", sp.exp10, X),
    unary("cosm1", sp.cosm1, X),
    unary("wrightomega", sp.wrightomega, 3 * X, numpy_only=True),
    unary(
        "exprel",
        sp.exprel,
        np.append(AWAY, [[0.0, 1e-9, -4.5]], 0),
        covers=("exprel_n",),
        numpy_only=True,
        single=1e-3,
    ),
]
