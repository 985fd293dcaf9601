"""Functions of lists of tracked numbers: those of scipy.special that are no ufuncs, and others."""

import numpy as np
import pytest
import scipy.fft
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


LINEAR = [
    getattr(home, name)
    for home, names in (
        (np.linalg, "inv det cholesky slogdet svdvals eigvalsh pinv matrix_power"),
        (scipy.linalg, "inv det expm logm sqrtm pinvh svdvals eigvalsh cholesky polar circulant"),
        (scipy.fft, "dctn dstn idctn idstn hfftn ihfftn fftn rfft2 dct"),
        (np, "ravel rot90 cumsum"),
    )
    for name in names.split()
]


@pytest.mark.parametrize("f", LINEAR, ids=lambda f: f"{f.__module__}.{f.__name__}")
def test_nested_lists_are_arrays(f):
    """The library's value, and the gradient of the same call with an array."""
    a = np.array([[4.0, 1.2, 0.3], [1.2, 3.0, 0.5], [0.3, 0.5, 2.0]])
    more = {np.linalg.matrix_power: (2,)}.get(f, ())
    of_list = lambda x: weighted(f([list(row) for row in x], *more))
    value, gradient = tg.value_and_grad(of_list)(a)
    np.testing.assert_allclose(value, of_list(a), rtol=1e-12)
    np.testing.assert_allclose(gradient, tg.grad(lambda x: weighted(f(x, *more)))(a), rtol=1e-10, atol=1e-12)


def weighted(y):
    parts = y if isinstance(y, tuple) else (y,)
    return sum([np.sum(np.abs(p) * np.cos(np.arange(np.size(p))).reshape(np.shape(p))) for p in parts])


def test_a_list_of_arrays_is_no_array_where_the_library_says_so():
    x = np.array([0.1, 0.4, 0.35, 0.8, 0.9])
    edges = lambda x: np.sum(np.histogramdd([x, x**2], bins=3)[1][1] * [1, 2, 3, 4])
    blocks = lambda x: np.sum(np.block([[x, x**2], [x**3, x]]) * np.arange(10))
    for f in (edges, blocks):
        step = 1e-6 * np.eye(5)
        np.testing.assert_allclose(
            tg.grad(f)(x), [(f(x + h) - f(x - h)) / 2e-6 for h in step], rtol=1e-6, atol=1e-8
        )
