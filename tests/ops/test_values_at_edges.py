"""Under a transform a function of elements has the value that the library's own gives: also beyond its
domain, at zeros of either sign, at infinities and nan, where what it is composed of for its derivatives would
give something else."""

import warnings

import numpy as np
import pytest
import scipy.special

import tapegrad as tg

UFUNCS = {
    f"{library.__name__}.{name}": f
    for library in (np, scipy.special)
    for name, f in vars(library).items()
    if isinstance(f, np.ufunc)
    and f.signature is None
    and f.nout == 1
    and f.nin <= 4
    and any(t[: f.nin + 1] == "d" * f.nin + "-" for t in f.types)
}
# By series and searches that take seconds far out.
SLOW = {
    "hyp1f1",
    "hyp2f1",
    "hyperu",
    "lpmv",
    "obl_cv",
    "pro_cv",
    "besselpoly",
    "chndtr",
    "chndtridf",
    "chndtrinc",
    "chndtrix",
    "eval_genlaguerre",
}
SLOW |= {
    "eval_laguerre",
    "eval_jacobi",
    "eval_sh_jacobi",
    "eval_gegenbauer",
    "ncfdtri",
    "ncfdtridfd",
    "ncfdtridfn",
    "ncfdtrinc",
    "nctdtridf",
}
ONE = np.array(
    [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        2.0,
        -2.5,
        3.0,
        36.5,
        -36.5,
        709.9,
        -745.3,
        1e15,
        1e-300,
        -1e-310,
        5e-324,
        np.inf,
        -np.inf,
        np.nan,
    ]
)
SEVERAL = {
    2: np.array([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -2.5, 10.0, 1e-100, np.inf, -np.inf, np.nan]),
    3: np.array([0.0, 1.0, -1.0, 0.5, 2.0, np.inf, np.nan]),
    4: np.array([0.0, -1.0, 0.5, 2.0, np.nan]),
}


def points(n: int, dtype: type) -> list:
    with np.errstate(over="ignore", under="ignore"):
        if n == 1:
            return [ONE.astype(dtype)]
        return [x.ravel().astype(dtype) for x in np.meshgrid(*[SEVERAL[n]] * n)]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", [n for n in UFUNCS if n.split(".")[-1] not in SLOW])
def test_values_under_a_transform_are_those_of_the_library(name, dtype):
    f = UFUNCS[name]
    at = points(f.nin, dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = f(*at)
        for k, x in enumerate(at):
            try:
                found, _ = tg.jvp(lambda x, k=k: f(*at[:k], x, *at[k + 1 :]), (x,), (np.ones_like(x),))
            except (tg.errors.NoRuleError, tg.errors.ArgumentError):
                continue
            assert found.dtype == expected.dtype
            kind = np.float32 if dtype is np.float32 else expected.dtype
            rtol = 100 * np.finfo(kind).eps if np.issubdtype(kind, np.inexact) else 0
            np.testing.assert_allclose(
                found, expected, rtol=rtol, atol=1e-320
            )  # (SciPy's expm1 has no denormal numbers)
            np.testing.assert_array_equal(np.signbit(found[found == 0]), np.signbit(expected[found == 0]))


@pytest.mark.parametrize("f", [scipy.special.jve, scipy.special.yve], ids=lambda f: f.__name__)
def test_derivatives_that_hold_for_real_numbers_only(f):
    """jve and yve scale by exp(-|Im z|): of complex numbers they are other functions than jv and yv."""
    with pytest.raises(tg.errors.NoRuleError, match=f"{f.__name__} of complex numbers"):
        tg.jvp(lambda z: f(1.0, z), (np.array([1.0 + 2.0j]),), (np.array([1.0 + 0.0j]),))


COMPLEX = [name for name, f in UFUNCS.items() if any([t.endswith("D->D") for t in f.types])]


@pytest.mark.parametrize("name", COMPLEX)
def test_derivatives_at_complex_numbers_are_right_or_refused(name):
    f = UFUNCS[name]
    g = lambda z: f(*[1.5, 0.8, 1.2][: f.nin - 1], z)
    z, h = np.array([0.7 + 0.4j, 0.3 - 0.6j]), 1e-6
    for d in (1.0, 1.0j):
        try:
            _, found = tg.jvp(g, (z,), (np.full(2, d + 0.0j),))
        except tg.errors.NoRuleError:
            continue
        np.testing.assert_allclose(found, (g(z + h * d) - g(z - h * d)) / (2 * h), rtol=1e-6, atol=1e-7)


Y = np.array([[0.35, 1.2, -0.3], [-0.005, 0.4, 0.7]])
GAPS = np.array([[0.35, 1.2, np.nan], [-0.005, np.nan, np.nan]])
SOME = np.array([[True, False, True], [False, False, False]])
FEW = {  # elements no more than the degrees of freedom; signs of zero; leading zeros
    "var": lambda x: np.var(Y + x, 1, ddof=5),
    "var of some": lambda x: np.var(Y + x, 1, ddof=1, where=SOME, keepdims=True),
    "std of some": lambda x: np.std(Y + x, 1, ddof=3, where=SOME),
    "nanvar": lambda x: np.nanvar(GAPS + x, 1, ddof=2),
    "nanvar of one": lambda x: np.nanvar(GAPS + x, 1, ddof=1, keepdims=True),
    "nanvar of none": lambda x: np.nanvar((GAPS + x)[:, :0], 1, ddof=1),
    "nanstd": lambda x: np.nanstd(GAPS + x, ddof=4),
    "cov": lambda x: np.cov(Y + x, ddof=5),
    "weighted cov": lambda x: np.cov(Y + x, fweights=[1, 2, 1], ddof=9),
    "prod": lambda x: np.prod(Y[:, :1] * -x, 1),
    "polymul": lambda x: np.polymul(np.append([0.0, 0.0], Y[0] + x), np.append(x, Y[1])),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", FEW)
def test_statistics_of_few_elements(name):
    f = FEW[name]
    want, p = f(0.0), tg.prepare(f, 0.0)
    found = (
        tg.jvp(f, (0.0,), (1.0,))[0],
        tg.vjp(f, 0.0)[0],
        tg.vmap(f)(np.zeros(1))[0],
        p.value(0.0),
        p.value(0.0),
    )
    for y in found:
        np.testing.assert_allclose(y, want, rtol=1e-12)
        np.testing.assert_array_equal(np.signbit(y), np.signbit(want))


@pytest.mark.parametrize(
    ("start", "stop", "num"), [(0.3, 0.3, 4), (0.1, 0.7, 5), (-0.3, 2.2, 7), (1.0, 2.0, 1)]
)
@pytest.mark.parametrize("endpoint", [True, False])
def test_linspace_is_numpys_to_the_last_bit(start, stop, num, endpoint):
    """Equal numbers stay equal, which a sort or a comparison tells."""
    met = []
    tg.grad(lambda x: met.append(np.linspace(x[0], x[1], num, endpoint)) or met[0].sum())(
        np.array([start, stop])
    )
    assert tg.value(met[0]).tobytes() == np.linspace(start, stop, num, endpoint).tobytes()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [float, np.float32])
@pytest.mark.parametrize("median", [np.median, np.nanmedian])
def test_medians_of_infinite_elements(median, dtype):
    inf, nan = np.inf, np.nan
    for values in (
        [1, inf],
        [inf, inf],
        [-inf, inf],
        [1, 2, inf, inf],
        [inf, 1, 2],
        [nan, 1, inf],
        [0.1, 0.7],
    ):
        x = np.array([values, values[::-1]], dtype)
        for f, y in (
            (median, x[0]),
            (lambda x: median(x, -1), x),
            (lambda x: median(x, 0, keepdims=True), x),
        ):
            value = tg.vjp(f, y)[0]
            np.testing.assert_array_equal(value, f(y))
            assert value.dtype == f(y).dtype


@pytest.mark.parametrize("name", ["erf", "erfc", "ndtr", "gammainc", "gammaincc", "expit", "arctan"])
def test_at_infinity_a_distribution_function_is_flat_to_every_order(name):
    f = getattr(scipy.special, name, None) or getattr(np, name)
    f = (lambda x, g=f: g(2.0, x)) if name.startswith("gamma") else f

    def total(t, at):
        return np.sum(f(np.array(at) + t))

    orders = tg.grad(total), tg.grad(tg.grad(total))
    for of in orders:
        np.testing.assert_allclose(of(0.2, [np.inf, 0.3]), of(0.2, [0.3]), rtol=1e-12)
    for at in ([np.inf, 0.3], [0.3]):
        found = tg.jvp(lambda t, at=at: tg.jvp(lambda s: total(s, at), (t,), (1.0,))[1], (0.2,), (1.0,))[1]
        np.testing.assert_allclose(found, orders[1](0.2, [0.3]), rtol=1e-12)


@pytest.mark.parametrize("name", ["gammainc", "gammaincc", "betainc", "betaincc", "chdtr"])
def test_distributions_are_flat_in_their_shapes_at_the_ends(name):
    """There they are 0 or 1 for all shapes, so all derivatives with respect to the shapes are 0."""
    f = getattr(scipy.special, name)
    for end in (0.0, 1.0) if "beta" in name else (np.inf,):
        flat = lambda s, end=end: f(*s, end)
        shapes = np.array([0.2, 3.5])[: f.nin - 1]
        np.testing.assert_allclose(tg.hessian(flat)(shapes), 0.0, atol=1e-15)
        np.testing.assert_allclose(tg.jacobian(tg.jacobian(flat, mode="forward"))(shapes), 0.0, atol=1e-15)


def test_values_outside_of_the_domain():
    """`factorial` is 0 for negative numbers, `multigammaln` raises."""
    x = np.array([-0.5, 0.5, 2.0])
    value, slope = tg.jvp(scipy.special.factorial, (x,), (np.ones(3),))
    np.testing.assert_array_equal(value, scipy.special.factorial(x))
    np.testing.assert_allclose(slope[1:], value[1:] * scipy.special.psi(x[1:] + 1), rtol=1e-12)
    assert slope[0] == 0
    for f in (
        tg.grad(lambda a: scipy.special.multigammaln(a, 3)),
        lambda a: scipy.special.multigammaln(a, 3),
    ):
        with pytest.raises(ValueError, match="condition a .*not met"):
            f(0.9)
