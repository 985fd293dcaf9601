"""Functions of lists of tracked numbers: those of scipy.special that are no ufuncs, and others."""

import numpy as np
import pytest
import scipy.linalg
import scipy.special as sp

import tapegrad as tg

OF_LISTS = {
    "polygamma": lambda a: sp.polygamma([0, 1], a),
    "multigammaln": lambda a: sp.multigammaln(a, 2),
    "factorial": sp.factorial,
    "comb": lambda a: sp.comb(a, 1.0),
    "diric": lambda a: sp.diric(a, 5),
    "zeta": lambda a: sp.zeta(a, 2.0),
    "spherical_jn": lambda a: sp.spherical_jn(2, a),
    "ellip_harm": lambda a: sp.ellip_harm(5, 8, 1, 1, a),
    "lambertw": lambda a: sp.lambertw(a).real,
    "sph_harm_y": lambda a: sp.sph_harm_y(1, 1, a, a).real,
    "assoc_laguerre": lambda a: sp.assoc_laguerre(a, 2, 1),
    "logsumexp": lambda a: sp.logsumexp(np.outer(a, a).tolist(), (0, 1)),
    "np.c_ of a list": lambda a: np.c_[np.eye(2), [a[0], a[1] ** 2]],
    "residuals": lambda a: scipy.linalg.lstsq(np.vander([1.0, 2.0, 3.0], 2), [*a, 1.0])[1] ** 2,
    "no residuals by gelsy": lambda a: scipy.linalg.lstsq(
        np.array([[1.0], [a[0]], [2.0]]), [*a, 1.0], lapack_driver="gelsy"
    )[0],
    # 0 where k > N
    "some choices": lambda a: sp.comb(np.array(a), 2.0),
    "no choices": lambda a: sp.comb(a[0], 2) + sp.comb(-a[0], 1),
    "some permutations": lambda a: sp.perm(np.array(a), 2.0),
    "repetitions": lambda a: sp.comb(np.array(a), 2.0, repetition=True),
}


@pytest.mark.parametrize("name", OF_LISTS)
def test_lists(name):
    f = lambda t: np.sum(OF_LISTS[name]([1.3 * t, 2.2 * t**2]))
    slope = (f(1 + 1e-6) - f(1 - 1e-6)) / 2e-6
    for _ in range(2):  # the second call finds the adapter
        value, gradient = tg.value_and_grad(f)(1.0)
        np.testing.assert_allclose(value, f(1.0), rtol=1e-13)
        np.testing.assert_allclose(gradient, slope, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(tg.jvp(f, (1.0,), (1.0,))[1], gradient, rtol=1e-12)


def test_forms_of_least_squares():
    """SciPy gives the residual of one right side as a number, and none by `gelsy`."""
    forms = []

    def f(x):
        for driver in ("gelsd", "gelss", "gelsy"):
            y, squares, rank, s = scipy.linalg.lstsq(np.vander(x, 2), x**2, lapack_driver=driver)
            forms.append((np.shape(y), np.shape(squares), int(rank), np.shape(s), s is None))
        return y.sum()

    f(np.array([1.0, 2.0, 4.0]))
    plain = forms.copy()
    forms.clear()
    tg.grad(f)(np.array([1.0, 2.0, 4.0]))
    assert forms == plain
