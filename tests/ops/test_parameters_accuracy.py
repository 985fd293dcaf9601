"""Derivatives by parameters, and of functions that are eigenvectors, sums or integrals, against multiple
precision: at usual places, near where terms cancel or vanish, and in tails."""

import mpmath as mp
import numpy as np
import pytest
import scipy.special as sp

import tapegrad as tg
from tapegrad import stats


def poisson(f, nc):
    return sum(mp.exp(-nc / 2) * (nc / 2) ** j / mp.factorial(j) * f(j) for j in range(int(nc) + 60))


def chndtr(x, df, nc):
    return poisson(lambda j: mp.gammainc(df / 2 + j, 0, x / 2, regularized=True), nc)


def ncfdtr(n, d, nc, f):
    return poisson(lambda j: mp.betainc(n / 2 + j, d / 2, 0, n * f / (n * f + d), regularized=True), nc)


def nctdtr(df, nc, t):
    chi = lambda s: 2 * (df / 2) ** (df / 2) / mp.gamma(df / 2) * s ** (df - 1) * mp.exp(-df * s * s / 2)
    return mp.quad(lambda s: mp.ncdf(t * s - nc) * chi(s), [0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 3, 5, 9])


def landau(z):
    v = mp.pi * z / 2 + mp.log(mp.pi / 2)
    s = mp.exp(-1 - v)
    path = lambda y: mp.re(mp.exp((s + 1j * y) * mp.log(s + 1j * y) + v * (s + 1j * y)))
    return mp.log(mp.quad(path, [0, 1, 2, 4, 8, 16, 32, 64, 128]) / 2)


def besselpoly(a, k, v):
    return mp.quad(lambda x: x**k * mp.besselj(v, 2 * a * x), [0, 0.25, 0.5, 1])


def kolmogorov(x):
    return 2 * sum((-1) ** (k - 1) * mp.exp(-2 * k * k * x * x) for k in range(1, 60))


def wright(a, b, x):
    return sum(x**k / mp.factorial(k) * mp.rgamma(a * k + b) for k in range(150))


def characteristic(diagonal, beside):
    """The eigenvalues of a tridiagonal matrix, to all digits."""
    n = len(diagonal)
    a = mp.matrix(n, n)
    for k in range(n):
        a[k, k] = diagonal[k]
        if k + 1 < n:
            a[k, k + 1] = a[k + 1, k] = beside[k]
    return mp.eigsy(a, eigvals_only=True)


def mathieu_a(q):
    """Of order 4."""
    return characteristic([(2 * k) ** 2 for k in range(24)], [q * mp.sqrt(2), *[q] * 22])[2]


def pro_cv(c):
    """Of order 1 and degree 3."""
    l = [1 + 2 * k for k in range(16)]
    part = lambda l: mp.sqrt(mp.mpf(l * l - 1) / (4 * l * l - 1))
    diagonal = [k * (k + 1) + c * c * (part(k) ** 2 + part(k + 1) ** 2) for k in l]
    return characteristic(diagonal, [c * c * part(k + 1) * part(k + 2) for k in l[:-1]])[1]


def pbdv(v, x):
    return sp.pbdv(v, x)[0]


def pbvv(v, x):
    return sp.pbvv(v, x)[0]


def pbwa(a, x):
    return sp.pbwa(a, x)[0]


# (ours, in multiple precision, arguments, by which, digits that are lost)
HYPERGEOMETRIC = [
    (sp.hyp1f1, mp.hyp1f1, (0.7, 1.6, 20.0), 0, 1),
    (sp.hyp1f1, mp.hyp1f1, (0.7, 1.6, -30.0), 1, 1),
    (sp.hyp1f1, mp.hyp1f1, (-2.0, 1.6, 3.0), 0, 1),
    (sp.hyp1f1, mp.hyp1f1, (40.0, 1.5, 100.0), 0, 1),
    (sp.hyp1f1, mp.hyp1f1, (5.0, 1.5, -20.0), 0, 1),
    (sp.hyp2f1, mp.hyp2f1, (0.7, 1.6, 2.1, 0.9), 0, 1),
    (sp.hyp2f1, mp.hyp2f1, (0.7, 1.6, 2.1, -0.5), 1, 1),
    (sp.hyp2f1, mp.hyp2f1, (0.7, 1.6, 2.1, -20.0), 2, 1),
    (sp.hyp2f1, mp.hyp2f1, (0.7, 1.6, 2.1, -150.0), 1, 2),
    (sp.hyperu, mp.hyperu, (0.3, 1.6, 0.01), 0, 2),
    (sp.hyperu, mp.hyperu, (5.0, 0.5, 20.0), 1, 2),
    (sp.hyp0f1, mp.hyp0f1, (0.7, 200.0), 0, 1),
    (sp.hyp0f1, mp.hyp0f1, (1.7, -90.0), 0, 2),
    (sp.hyp0f1, mp.hyp0f1, (1.7, 1e-8), 0, 1),
    (sp.wright_bessel, wright, (0.5, 1.2, 8.0), 0, 1),
    (sp.eval_jacobi, mp.jacobi, (8.0, 0.5, 1.5, 0.3), 1, 1),
    (sp.eval_gegenbauer, mp.gegenbauer, (7.0, 0.7, 0.3), 1, 1),
    (sp.eval_genlaguerre, mp.laguerre, (12.0, 0.7, 9.3), 1, 4),  # terms of both signs
    (sp.struve, mp.struveh, (1.5, 20.0), 0, 1),
    (sp.struve, mp.struveh, (0.5, 0.1), 0, 3),
    (sp.modstruve, mp.struvel, (1.5, 20.0), 0, 1),
    (pbdv, mp.pcfd, (2.3, 6.0), 0, 2),  # where it falls
    (pbdv, mp.pcfd, (0.4, 30.0), 0, 2),
    (pbdv, mp.pcfd, (3.7, -4.0), 0, 2),
    (pbdv, mp.pcfd, (-20.3, 3.0), 0, 2),
    (pbdv, mp.pcfd, (-8.0, -3.0), 0, 2),
    (pbdv, mp.pcfd, (2.0, -0.5), 0, 2),  # a zero of the factor of the even solution
    (pbvv, lambda v, x: mp.pcfv(-v - 0.5, x), (1.3, 2.0), 0, 2),
    (pbvv, lambda v, x: mp.pcfv(-v - 0.5, x), (-3.3, 4.0), 0, 2),
    (pbwa, mp.pcfw, (1.2, -2.0), 0, 2),
    (pbwa, mp.pcfw, (-2.5, 3.0), 0, 3),
]
LAWS = [
    (sp.nctdtr, nctdtr, (3.0, 1.0, 2.0), 0, 1),
    (sp.nctdtr, nctdtr, (3.0, 1.0, -4.0), 1, 1),
    (sp.nctdtr, nctdtr, (30.0, 3.0, 2.0), 0, 3),
    (sp.chndtr, chndtr, (5.0, 2.5, 9.0), 1, 3),
    (sp.chndtr, chndtr, (0.1, 2.5, 30.0), 1, 3),
    (sp.chndtr, chndtr, (900.0, 2.5, 850.0), 0, 2),
    (sp.chndtr, chndtr, (900.0, 2.5, 850.0), 2, 2),
    (sp.ncfdtr, ncfdtr, (2.0, 5.0, 3.0, 1.5), 0, 3),
    (sp.ncfdtr, ncfdtr, (2.0, 5.0, 3.0, 0.01), 2, 3),
    (sp.kolmogorov, kolmogorov, (0.5,), 0, 1),
    (sp.kolmogorov, kolmogorov, (0.9,), 0, 1),
    (sp.kolmogorov, kolmogorov, (4.0,), 0, 1),
    (stats.landau.logpdf, landau, (-3.0,), 0, 2),
    (stats.landau.logpdf, landau, (2.0,), 0, 1),
    (stats.landau.logpdf, landau, (30.0,), 0, 1),
    (sp.besselpoly, besselpoly, (2.0, 0.5, 1.5), 1, 3),
    (sp.besselpoly, besselpoly, (2.0, 0.5, 1.5), 2, 3),
    (lambda q: sp.mathieu_a(4, q), mathieu_a, (30.0,), 0, 2),
    (lambda c: sp.pro_cv(1, 3, c), pro_cv, (6.0,), 0, 2),
]


def judged(f, exact, x, k, lost):
    with mp.workdps(40):
        at = [mp.mpf(v) for v in x]
        expected = mp.diff(lambda v: mp.re(exact(*at[:k], v, *at[k + 1 :])), at[k])
        assert float(tg.grad(lambda v: f(*x[:k], v, *x[k + 1 :]))(x[k])) == pytest.approx(
            float(expected), rel=10.0 ** (lost - 15)
        )


@pytest.mark.parametrize(
    "case", HYPERGEOMETRIC, ids=lambda c: f"{getattr(c[0], '__name__', 'f')}-{c[2]}-{c[3]}"
)
def test_functions(case):
    judged(*case)


@pytest.mark.long
@pytest.mark.parametrize("case", LAWS, ids=lambda c: f"{getattr(c[0], '__name__', 'f')}-{c[2]}-{c[3]}")
def test_laws(case):
    judged(*case)


def test_no_wrong_number_where_there_is_no_formula():
    """Complex arguments are refused, and where a series does not converge the derivative by its parameter is
    nan."""
    for f, x in (
        (sp.jv, (0.7, 1.3 + 0.4j)),
        (sp.hankel1, (0.7, 1.3 + 0.4j)),
        (sp.hyp0f1, (0.7, 1.3 + 0.4j)),
        (sp.hyp1f1, (0.7, 1.2, 1j)),
    ):
        with pytest.raises(tg.errors.NoRuleError, match="at complex arguments"):
            tg.grad(lambda v, f=f, x=x: f(v, *x[1:]).real)(x[0])
    with np.errstate(all="ignore"):
        assert np.isnan(tg.grad(lambda a: sp.hyp2f1(a, 1.2, 2.0, 0.999))(0.7))
        assert np.isnan(tg.grad(lambda a: sp.hyperu(a, 1.2, 2.0))(-0.7))


@pytest.mark.parametrize("df", [0.6, 30.0, 1001.0, 1e8])
@pytest.mark.parametrize("t", [-12.0, 1e-5, 1.0])
def test_student_by_degrees_of_freedom(df, t):
    """The two terms of a difference of betas cancel for many degrees of freedom, and near 0."""
    f = lambda n: mp.sign(-t) * mp.betainc(n / 2, mp.mpf(0.5), 0, n / (n + mp.mpf(t) ** 2), regularized=True)
    with mp.workdps(70):
        wanted = [mp.diff(f, mp.mpf(df), k, h=df * mp.mpf(10) ** -20) / 2 for k in (1, 2)]
    g = lambda n: sp.stdtr(n, t)
    assert tg.grad(g)(df) == pytest.approx(float(wanted[0]), rel=1e-9)
    assert tg.hvp(g, df, 1.0) == pytest.approx(float(wanted[1]), rel=1e-9)


@pytest.mark.parametrize("df", [2.5, 30.0, 2000.0])
def test_student_by_both_at_zero(df):
    """The order of derivatives does not matter, at 0 either."""
    by_df = lambda t: tg.grad(lambda n: sp.stdtr(n, t))(df)
    by_t = lambda n: tg.grad(lambda t: sp.stdtr(n, t))(0.0)
    density = np.exp(sp.gammaln(df / 2 + 0.5) - sp.gammaln(df / 2)) / np.sqrt(np.pi * df)
    by_hand = density * (sp.psi(df / 2 + 0.5) - sp.psi(df / 2) - 1 / df) / 2
    assert tg.grad(by_df)(0.0) == pytest.approx(by_hand, rel=1e-8)
    assert tg.grad(by_t)(df) == pytest.approx(by_hand, rel=1e-8)
