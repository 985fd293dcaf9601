"""Objects of SciPy's that a function captured or makes: they are followed, written back, and left as SciPy's
own."""

import copy
import subprocess
import sys

import numpy as np
import pytest
import scipy.integrate
import scipy.interpolate
import scipy.ndimage
import scipy.optimize
import scipy.signal
import scipy.sparse
import scipy.sparse.linalg
import scipy.stats
from _modes import differences
from scipy.sparse import csr_array, lil_matrix

import tapegrad as tg
from tapegrad.errors import ArgumentError, NoRuleError, SingularError

pytestmark = pytest.mark.smoke

X = np.array([1.0, 2.0, 3.0])


def agrees(f):
    want = differences(f, X)
    np.testing.assert_allclose(tg.grad(f)(X), want, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose([tg.jvp(f, (X,), (e,))[1] for e in np.eye(3)], want, rtol=1e-6, atol=1e-8)


def test_plain_matrices_are_filled_and_compared_inside():
    def f(x):
        B = lil_matrix((3, 3))
        for i in range(3):
            B[i, i] = i + 1.0
        B[0, 2] = 5
        C = B.tocsr()
        assert (
            scipy.sparse.issparse(B)
            and isinstance(C, scipy.sparse.csr_matrix)
            and (C != 0).nnz == 4
            and C.shape == (3, 3)
        )
        C.setdiag([1.0, 2.0, 4.0])
        D = scipy.sparse.dok_array((3, 3))
        D[1, 1] = 1.0
        return (
            (C @ x).sum()
            + (D @ x).sum()
            + (B * 2 @ x).sum()
            + C.diagonal() @ x
            + (x * (C + C.T)[0].toarray()).sum()
        )

    agrees(f)


def test_a_captured_matrix_is_written_as_by_a_plain_call():
    A = csr_array(np.diag([1.0, 2.0, 3.0]))
    B = copy.deepcopy(A)

    def f(A, x):
        A.data[:] = A.data * x
        A *= 2.0
        return ((A @ x) ** 2).sum()

    gradient = tg.grad(lambda x: f(A, x))(X)
    np.testing.assert_allclose(gradient, differences(lambda x: f(copy.deepcopy(B), x), X), rtol=1e-6)
    f(B, X)
    assert type(A) is csr_array and np.array_equal(A.data, B.data)


def test_what_a_plain_call_would_do_to_the_users_object_and_ours_cannot_is_refused():
    A, L, s = (
        csr_array(np.eye(3)),
        lil_matrix((3, 3)),
        scipy.interpolate.CubicSpline(np.arange(4.0), np.arange(4.0)),
    )

    def put(object, name, value):
        setattr(object, name, value)
        return value[0]

    with pytest.raises(NoRuleError, match=r"test_objects.*A\[i, j\] = value .*outside of the transform"):
        tg.grad(lambda x: (A.__setitem__((0, 0), 2.0), (A @ x).sum())[1])(X)
    with pytest.raises(NoRuleError, match="outside of the transform"):
        tg.grad(lambda x: (L.__setitem__((0, 0), x[0]), x.sum())[1])(X)
    with pytest.raises(ArgumentError, match=r"csr_array\.data = .* write into its arrays"):
        tg.grad(lambda x: put(A, "data", x))(X)
    with pytest.raises(ArgumentError, match=r"CubicSpline\.c = "):
        tg.grad(lambda x: put(s, "c", x))(X)
    assert np.array_equal(A.toarray(), np.eye(3)) and L.nnz == 0


def test_objects_that_the_function_keeps_are_scipys_afterwards():
    kept = {}

    def f(x):
        kept["spline"] = scipy.interpolate.CubicSpline(np.arange(4.0), np.arange(4.0) ** 2)
        kept["of x"] = scipy.interpolate.CubicSpline(np.arange(3.0), x)
        kept["lu"] = scipy.sparse.linalg.splu(scipy.sparse.csc_array(np.diag([1.0, 2.0, 4.0])))
        kept["matrix"] = csr_array(np.diag([1.0, 2.0, 4.0]))
        return kept["lu"].solve(x).sum() + kept["spline"](x).sum() + kept["of x"](x / 4).sum()

    tg.grad(f)(X)
    kinds = {
        "spline": scipy.interpolate.CubicSpline,
        "of x": scipy.interpolate.CubicSpline,
        "matrix": csr_array,
    }
    assert (
        all(type(kept[name]) is kind for name, kind in kinds.items())
        and type(kept["lu"]).__name__ == "SuperLU"
    )
    assert type(kept["of x"].c) is np.ndarray and type(kept["of x"](0.5)) is np.ndarray
    agrees(f)


def test_what_has_no_face_gets_scipys_objects():
    A = csr_array(np.array([[0.0, 2.0, 0.0], [0.0, 0.0, 3.0], [0.0, 0.0, 0.0]]))

    def f(x):
        count, labels = scipy.sparse.csgraph.connected_components(A + csr_array(A.T))
        far = scipy.sparse.csgraph.shortest_path(A, indices=0)[2]
        return (
            count * far * (A.sqrt() @ x).sum()
            + np.sum(A) * x[0]
            + (A.real @ x)[0]
            + A.max() * x[1]
            + labels[0]
        )

    agrees(f)
    B = csr_array(np.eye(3, dtype=int))
    g = tg.grad(lambda x: (B.data.__setitem__(0, 5), (B @ x).sum())[1])(X)
    np.testing.assert_array_equal(g, [5.0, 1.0, 1.0])
    assert B.data.dtype == int and B.data.tolist() == [5, 1, 1]  # as in a plain call


def test_captured_objects_in_a_class():
    class Model:
        def __init__(self):
            self.spline = scipy.interpolate.make_interp_spline(np.arange(5.0), np.sin(np.arange(5.0)))
            self.matrix = scipy.sparse.diags_array([np.arange(1.0, 4.0)], offsets=[0]).tocsc()
            self.lu = scipy.sparse.linalg.splu(self.matrix)

        def __call__(self, x):
            return self.spline(x).sum() + self.lu.solve(x) @ (x @ self.matrix)

    model = Model()
    agrees(model)
    assert type(model.spline) is scipy.interpolate.BSpline and type(model.matrix) is scipy.sparse.csc_array


def test_a_singular_system_says_so():
    A = scipy.sparse.csc_array(np.diag([1.0, 0.0, 2.0]))
    with pytest.raises(SingularError, match="singular"):
        tg.grad(lambda x: scipy.sparse.linalg.spsolve(A, x).sum())(X)


def test_bad_input_is_answered_as_scipy_does():
    for f in (
        lambda x: scipy.signal.lfilter(np.ones((2, 2)), [1.0], x).sum(),
        lambda x: scipy.signal.convolve(x, np.ones((2, 2))).sum(),
        lambda x: scipy.signal.convolve(x, X, mode="middle").sum(),
        lambda x: scipy.interpolate.CubicSpline([0.0, 2.0, 1.0], x)(0.5),
        lambda x: scipy.interpolate.interp1d(np.arange(3.0), x)(7.0),
        lambda x: (scipy.sparse.eye_array(4) @ x).sum(),
        lambda x: scipy.interpolate.RegularGridInterpolator((np.arange(3.0),), x)([[7.0]])[0],
    ):
        for call in (f, tg.grad(f)):
            with pytest.raises(ValueError):
                call(X)
    for f in (
        lambda x: scipy.ndimage.map_coordinates(x, np.zeros((2, 3))).sum(),
        lambda x: scipy.ndimage.shift(x, 1, order=7).sum(),
    ):
        for call in (f, tg.grad(f)):
            with pytest.raises(RuntimeError):
                call(X)


def test_single_precision_stays():
    x = X.astype(np.float32)
    s = scipy.sparse.csr_array(np.eye(3, dtype=np.float32))
    for f in (
        lambda x: scipy.signal.lfilter([1.0], [1.0, 0.5], x).sum(),
        lambda x: scipy.ndimage.gaussian_filter(x, 1.0).sum(),
        lambda x: (s @ x).sum(),
        lambda x: scipy.signal.detrend(x)[0],
    ):
        assert tg.grad(f)(x).dtype == np.float32


def test_replayed():
    nodes = np.arange(20.0)
    x = np.sin(nodes)
    A = scipy.sparse.csc_array(np.eye(20) * 3 + np.eye(20, k=1))
    spline = scipy.interpolate.CubicSpline(nodes, x)
    for f in (
        lambda x: (scipy.signal.lfilter([1.0, 0.2], [1.0, 0.3], x) ** 2).sum(),
        lambda x: (
            (spline(x + 5) ** 2).sum()
            + (scipy.interpolate.CubicSpline(nodes, x)(nodes[:-1] + 0.3) ** 2).sum()
        ),
        lambda x: (scipy.sparse.linalg.spsolve(A, x) ** 2).sum(),
        lambda x: scipy.optimize.brentq(lambda t: t**3 + t - x[1], -5, 5),
    ):
        prepared = tg.prepare(f, x)
        np.testing.assert_allclose(prepared.grad(0.9 * x), tg.grad(f)(0.9 * x), rtol=1e-9, atol=1e-12)


def test_importing_tapegrad_loads_none_of_them():
    """But for what SciPy's own subpackages load."""
    code = """if True:
        import sys, scipy.linalg, scipy.special
        before = set(sys.modules)
        import tapegrad, tapegrad.scipy
        print([m for m in sys.modules if m.startswith(("scipy.", "tapegrad._scipy")) and m not in before])"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not any(
        f"'scipy.{name}" in found
        for name in ("signal", "ndimage", "interpolate", "integrate", "optimize", "sparse", "spatial")
    )
    assert "tapegrad._scipy" not in found


PLAIN_LAW = scipy.stats.truncate(scipy.stats.Normal(mu=0.3, sigma=1.1), 0.2, 2.5)
LAWS_OF_LAWS = {
    "truncated": lambda x: scipy.stats.truncate(scipy.stats.Normal(mu=x[0], sigma=x[1]), 0.2, 2.5).logpdf(
        0.7
    ),
    "truncated below": lambda x: scipy.stats.truncate(scipy.stats.Normal(mu=x[0], sigma=x[1]), 0.2).logpdf(
        0.7
    ),
    "folded": lambda x: scipy.stats.abs(scipy.stats.Normal(mu=x[0], sigma=x[1])).logpdf(0.7),
    "exponential": lambda x: scipy.stats.exp(scipy.stats.Normal(mu=x[0], sigma=x[1])).logcdf(0.7),
    "order statistic": lambda x: scipy.stats.order_statistic(
        scipy.stats.Normal(mu=x[0], sigma=x[1]), r=2, n=4
    ).logpdf(x[2] / 4),
    "captured": lambda x: PLAIN_LAW.logpdf(x[0] * x[1] / 3) + PLAIN_LAW.cdf(x[2] / 2),
    "censored": lambda x: scipy.stats.weibull_min._penalized_nnlf(
        (x[1], 0.0, x[2]), scipy.stats.CensoredData(uncensored=x[:2], interval=[[0.1, 0.7]])
    ),
    "empirical": lambda x: np.sum(scipy.stats.ecdf(x).cdf.quantiles ** 2),
}


@pytest.mark.parametrize("name", LAWS_OF_LAWS)
def test_laws_made_of_laws_and_data(name):
    agrees(LAWS_OF_LAWS[name])


def test_fit_of_censored_data():
    """Of an exponential law it is the sum of all over the number of those that are not censored."""

    def f(x):
        data = scipy.stats.CensoredData.right_censored(x, [False, True, False])
        return scipy.stats.expon.fit(data, floc=0)[1]

    np.testing.assert_allclose(tg.grad(f)(X), np.full(3, 0.5), rtol=1e-8)


SCATTERED = np.random.default_rng(0).uniform(size=(25, 2)) * [1.0, 50.0]


@pytest.mark.parametrize(
    "kind", ["LinearNDInterpolator", "NearestNDInterpolator", "CloughTocher2DInterpolator"]
)
def test_scattered_data_in_another_scale(kind):
    """Points are scaled by `rescale`, in objects that are captured and in those that are made inside."""
    new, data = getattr(scipy.interpolate, kind), np.sin(SCATTERED.sum(axis=1))
    at, captured = np.array([[0.4, 20.0], [0.6, 31.0]]), new(SCATTERED, data, rescale=True)
    close = {"rtol": 1e-6}  # of the iterations of SciPy's CloughTocher2DInterpolator
    value, tangent = tg.jvp(lambda s: s * captured(at), (2.0,), (1.0,))
    np.testing.assert_allclose([value, tangent], [2 * captured(at), captured(at)], **close)
    value, tangent = tg.jvp(lambda y: new(SCATTERED, y, rescale=True)(at), (data,), (data,))
    np.testing.assert_allclose([value, tangent], [captured(at)] * 2, **close)
    if kind == "LinearNDInterpolator":
        moved = [captured(at + h * np.array([1.0, 5.0])) for h in (-1e-5, 1e-5)]
        tangent = tg.jvp(captured, (at,), (np.array([[1.0, 5.0]] * 2),))[1]
        np.testing.assert_allclose(tangent, (moved[1] - moved[0]) / 2e-5, rtol=1e-8)


def test_no_point_is_near():
    new = scipy.interpolate.NearestNDInterpolator(SCATTERED, SCATTERED[:, 0])
    at = np.array([SCATTERED[3] + 1e-3, [0.5, 1000.0]])
    value, tangent = tg.jvp(lambda s: s * new(at, distance_upper_bound=1.0), (2.0,), (1.0,))
    np.testing.assert_array_equal([value, tangent], [2 * SCATTERED[3, 0], np.nan] * np.array([[1], [0.5]]))


INNER_TIMES = np.linspace(0.0, 10.0, 12)
INNER_VALUES = np.sin(INNER_TIMES) + 0.3 * INNER_TIMES - 1.0


def cubic_at_a_root(v):
    inner = scipy.interpolate.interp1d(INNER_TIMES, v, kind="cubic")
    return scipy.optimize.brentq(lambda t: inner(t), 0.0, 9.0)


def cubic_in_an_integral(v):
    inner = scipy.interpolate.interp1d(INNER_TIMES, v, kind="cubic")
    return scipy.integrate.quad(lambda t: inner(t), 0.0, 10.0)[0]


def cubic_in_a_checkpoint(v):
    inner = scipy.interpolate.interp1d(INNER_TIMES, v, kind="cubic")
    return tg.checkpoint(lambda t: (inner(t) ** 2).sum())(np.array([1.3, 4.4]))


@pytest.mark.parametrize("f", [cubic_at_a_root, cubic_in_an_integral, cubic_in_a_checkpoint])
def test_an_object_of_the_library_within_another(f):
    """A cubic interp1d holds a BSpline, whose arrays a search, an integral and a checkpoint take for theirs."""
    expected = [(f(INNER_VALUES + h) - f(INNER_VALUES - h)) / 2e-5 for h in 1e-5 * np.eye(12)]
    found = tg.grad(f)(INNER_VALUES)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    samples = np.stack([INNER_VALUES, 1.1 * INNER_VALUES])
    np.testing.assert_allclose(tg.vmap(tg.grad(f))(samples)[0], found, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(tg.prepare(f, INNER_VALUES).grad(INNER_VALUES), found, rtol=1e-9, atol=1e-12)
