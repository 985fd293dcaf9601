"""Calls of SciPy's larger subpackages by their public names: values, both modes, second order and samples,
against differences of the
plain function.  By default every fifth call, to first order; all of them, to second order and under vmap, in the long run."""

import warnings

import calls_distance
import calls_integrate
import calls_interpolate
import calls_laws
import calls_ndimage
import calls_operators
import calls_optimize
import calls_polynomial
import calls_programs
import calls_signal
import calls_smoothing
import calls_solutions
import calls_sparse
import calls_systems
import numpy as np
import pytest
import scipy.interpolate
import scipy.optimize
import scipy.signal
import scipy.sparse.linalg
import scipy.spatial
from looped import looped, vmapped, weighed
from public_calls import judged

import tapegrad as tg

TABLES = (
    calls_distance, calls_integrate, calls_interpolate, calls_laws, calls_ndimage, calls_operators, calls_optimize,
    calls_polynomial, calls_programs,
    calls_signal, calls_smoothing, calls_solutions, calls_sparse, calls_systems,
)  # fmt: skip
CALLS = [
    (f"{table.__name__.removeprefix('calls_')} {call[0]}", *call[1:])
    for table in TABLES
    for call in table.CALLS
]


def name_of(call):
    return call[0].replace(" ", "-") if isinstance(call, tuple) else ""


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SciPy's own, of formats that cost time
        yield


@pytest.mark.one_in(3)
@pytest.mark.parametrize("call", [c for c in CALLS[::5] if "BDF" not in c[0]], ids=name_of)
def test_values_and_both_modes(call):
    _, f, x, options = call
    judged(f, *x, **{**options, "order": 1, "samples": False})


@pytest.mark.long
@pytest.mark.parametrize("call", CALLS, ids=name_of)
def test_to_second_order_and_of_samples(call):
    _, f, x, options = call
    judged(f, *x, **options)


@pytest.mark.long
def test_of_samples_that_go_ways_of_their_own():
    """The calls whose values decide what is done: as a loop over two samples, or loud.  (SciPy's own code may raise what it raises.)"""
    found = {"right": 0, "loud": 0}
    for name, f, x, options in CALLS:
        if options.get("samples", True):
            continue
        active = [k for k, a in enumerate(x) if np.asarray(a).dtype.kind in "fc"]
        g = lambda *v, f=f, x=x, active=active: f(
            *[v[active.index(k)] if k in active else a for k, a in enumerate(x)]
        )
        stacks = [np.stack([np.asarray(x[k]), 0.97 * np.asarray(x[k])]) for k in active]
        try:
            got, want = vmapped(g)(*stacks), looped(g)(*stacks)
        except (tg.errors.TapegradError, RuntimeError, TypeError, AttributeError, ValueError):
            found["loud"] += 1
            continue
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8, err_msg=name)
        found["right"] += 1
    print(found)
    assert found["right"] > 2 * found["loud"]


# what samples share: all arguments, or captured ones
SHARED = {
    "equal": lambda g, xs: (
        tg.vmap(lambda k, *v: g(*v))(np.arange(2.0), *[np.stack([v, v]) for v in xs]) / 2
    ).sum(),
    "captured": lambda g, xs: tg.vmap(lambda share: share * g(*xs))(np.array([0.4, 0.6])).sum(),
}


def of_floats(call):
    """(the call as a function of its floating-point arguments, those, their numbers)"""
    _, f, x, _ = call
    active = [k for k, a in enumerate(x) if np.asarray(a).dtype.kind in "fc"]
    h = lambda *v: f(*[v[active.index(k)] if k in active else a for k, a in enumerate(x)])
    return h, [np.asarray(x[k]) * 1.0 for k in active], tuple(range(len(active)))


def judged_of_equal_samples(call):
    """Where the values are the same for all samples, what looks at them goes on; the derivative stays."""
    h, xs, n = of_floats(call)
    g = lambda *v: weighed(h(*v))
    want = tg.grad(g, n)(*xs)
    for name, of in SHARED.items():
        try:
            got = tg.grad(lambda *v, of=of: of(g, v), n)(*xs)
        except tg.errors.BatchError:
            continue
        for a, b in zip(got, want, strict=True):
            size = np.abs(b[np.isfinite(b)]).max(initial=1.0)
            np.testing.assert_allclose(a, b, 1e-5, 1e-6 * size, err_msg=name)


WITH_ARGUMENTS = [c for c in CALLS if c[0] != "solutions event eval" and c[2]]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("call", WITH_ARGUMENTS[::15], ids=name_of)
def test_of_equal_samples(call):
    judged_of_equal_samples(call)


@pytest.mark.long
@pytest.mark.parametrize("call", WITH_ARGUMENTS, ids=name_of)
def test_all_of_equal_samples(call):
    judged_of_equal_samples(call)


def spread(a):
    wide = np.zeros([2 * n for n in a.shape], a.dtype)
    part = wide[(slice(None, None, 2),) * a.ndim]
    part[...] = a
    return part


def sealed(a):
    a = a.copy()
    a.flags.writeable = False
    return a


LAYOUTS = {
    "Fortran": np.asfortranarray,
    "spread": spread,
    "backwards": lambda a: np.flip(np.flip(a).copy()),
    "read-only": sealed,
    "single": lambda a: a.astype(np.float32 if a.dtype.kind == "f" else np.complex64),
}
OWN_STEPS = {"solutions class Radau"}  # in single precision it takes others


def judged_in_layouts(call):
    """Arguments in other memory, and in single precision: the same derivatives in both modes."""
    h, xs, n = of_floats(call)
    g = lambda *v: weighed(h(*v))
    want = tg.grad(g, n)(*xs)
    slope = np.asarray(sum([np.real(np.sum(w)) for w in want]))
    for layout, made in LAYOUTS.items():
        if layout == "single" and call[0] in OWN_STEPS:
            continue
        ys = tuple([made(a) if np.ndim(a) else a for a in xs])
        try:
            h(*ys)
        except (ValueError, TypeError, RuntimeError):
            continue  # SciPy itself takes no such array
        got = [*tg.grad(g, n)(*ys), tg.jvp(g, ys, tuple([np.ones(np.shape(y), y.dtype) for y in ys]))[1]]
        near = 2e-2 if layout == "single" else 1e-5
        for a, b in zip(got, map(np.asarray, [*want, slope]), strict=True):
            size = np.abs(b[np.isfinite(b)]).max(initial=0.1)
            np.testing.assert_allclose(np.asarray(a, b.dtype), b, near, near * size, err_msg=layout)
        assert all([a.dtype == np.asarray(y).dtype for a, y in zip(got[:-1], ys, strict=True)])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("call", WITH_ARGUMENTS[7::30], ids=name_of)
def test_in_layouts(call):
    judged_in_layouts(call)


@pytest.mark.long
@pytest.mark.parametrize("call", WITH_ARGUMENTS, ids=name_of)
def test_all_in_layouts(call):
    judged_in_layouts(call)


def test_complex_arguments():
    """What SciPy computes with complex numbers has their derivative; what it casts to real ones is refused, once
    and again, in both modes."""
    r = np.random.default_rng(4)
    A, b = [r.normal(size=n) + 1j * r.normal(size=n) for n in ((6, 3), 6)]
    exact = lambda A: (abs(np.linalg.lstsq(A, b)[0]) ** 2).sum()
    for solver in (scipy.sparse.linalg.lsqr, scipy.sparse.linalg.lsmr):
        f = lambda A, solver=solver: (
            abs(solver(scipy.sparse.csr_array(A), b, atol=1e-14, btol=1e-14)[0]) ** 2
        ).sum()
        np.testing.assert_allclose(tg.grad(f)(A), tg.grad(exact)(A), rtol=1e-9)
    lengths = lambda A: scipy.sparse.linalg.norm(scipy.sparse.csr_array(A), axis=0)
    np.testing.assert_allclose(tg.jvp(lengths, (A,), (A,))[1], np.linalg.norm(A, axis=0), rtol=1e-12)
    for f, x in (
        (lambda x: scipy.spatial.distance.cdist(x[None], np.eye(6)[:1], "cosine")[0, 0], b),
        (lambda x: scipy.interpolate.splev(0.3, scipy.interpolate.splrep(np.arange(6.0), x)), b),
        (lambda x: scipy.signal.lombscargle(np.arange(6.0), x, np.ones(2)).sum(), b),
        (lambda x: scipy.optimize.isotonic_regression(x).x.sum(), b),
        (lambda x: scipy.optimize.linprog(x, bounds=(0, 1)).fun, b),
        (lambda x: scipy.interpolate.UnivariateSpline(np.arange(6.0), x, s=0)(0.3), b),
    ):
        try:
            f(x)
        except TypeError:  # from SciPy 1.18 on, splrep refuses it itself
            continue
        for _ in range(2):
            with pytest.raises(tg.errors.ArgumentError, match="casts a complex argument.*give x.real"):
                tg.grad(lambda x, f=f: abs(f(x)))(x)
            with pytest.raises(tg.errors.ArgumentError, match="casts a complex argument"):
                tg.jvp(f, (x,), (x,))
        assert np.all(np.isfinite(tg.grad(lambda x, f=f: abs(f(x)) + 0.0)(x.real)))


def test_complex_points_of_interpolants():
    grid, values = np.arange(4.0), np.sin(np.arange(16.0)).reshape(4, 4)
    at = np.array([[1.3 + 0.1j, 2.2]])
    for f in (
        lambda v, x: scipy.interpolate.RegularGridInterpolator((grid, grid), v)(x),
        lambda v, x: scipy.interpolate.RBFInterpolator(v[:, :2], v[:, 2])(x),
        lambda v, x: scipy.interpolate.RectBivariateSpline(grid, grid, v)(x[0, 0], x[0, 1]),
    ):
        with pytest.raises(tg.errors.ArgumentError, match=r"complex ar(gument|ray).*x\.real"):
            tg.jvp(f, (values, at), (values, at))
        assert np.all(np.isfinite(tg.jvp(f, (values, at.real), (values, at.real))[1]))


# SciPy's values are not those that it documents: `zoom` forgets its settings, `cg` takes any matrix for Hermitian
NOT_ITS_OWN = ("ndimage zoom g", "sparse cg")
WARNED = {  # SciPy's solvers warn, within the transform too
    *("integrate quad_vec", "integrate ivp LSODA", "integrate ode", "integrate ode adams"),
    *("interpolate interp1d fills", "programs generic_filter"),
}


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", [c for c in WITH_ARGUMENTS if not c[0].startswith(NOT_ITS_OWN)], ids=name_of)
def test_all_of_complex_arguments(call):
    """Each argument by itself: the derivative along a complex direction, or an error."""
    if call[0] in WARNED:
        return
    h, xs, _ = of_floats(call)
    g = lambda *v: np.real(weighed(h(*v)))
    for k, x in enumerate(xs):
        if x.dtype.kind != "f":
            continue
        r = np.random.default_rng(5)
        zs = [z + 0.3j * r.normal(size=z.shape) if n == k else z for n, z in enumerate(xs)]
        ts = [
            r.normal(size=z.shape) + (1j * r.normal(size=z.shape) if n == k else 0.0)
            for n, z in enumerate(zs)
        ]
        along = lambda e, zs=zs, ts=ts: float(g(*[z + e * t for z, t in zip(zs, ts, strict=True)]))
        try:
            a, b, c = [(along(e) - along(-e)) / (2 * e) for e in (2e-3, 1e-3, 5e-4)]
            got = tg.jvp(g, tuple(map(np.asarray, zs)), tuple(map(np.asarray, ts)))[1]
        except Exception:
            continue  # loud, or SciPy's own
        fine, finer = (4 * b - a) / 3, (4 * c - b) / 3
        want = (16 * finer - fine) / 15
        assert not np.isfinite(want) or abs(got - want) <= 1e-5 * (1 + abs(want)) + 50 * abs(finer - fine)


BOX = [(-2.0, 2.0)]
# searches of the minimum of (t - x)^2 + x^3, which is x^3
MINIMA = {
    "fmin": lambda f: scipy.optimize.fmin(f, [0.1], xtol=1e-9, full_output=True, disp=0)[1],
    "fmin_bfgs": lambda f: scipy.optimize.fmin_bfgs(f, [0.1], full_output=True, disp=0)[1],
    "fmin_l_bfgs_b": lambda f: scipy.optimize.fmin_l_bfgs_b(f, [0.1], approx_grad=True)[1],
    "fmin_slsqp": lambda f: scipy.optimize.fmin_slsqp(f, [0.1], iprint=0, full_output=True)[1],
    "brent": lambda f: scipy.optimize.brent(lambda t: f([t]), full_output=True)[1],
    "fminbound": lambda f: scipy.optimize.fminbound(lambda t: f([t]), -2, 2, full_output=True)[1],
    "brute": lambda f: scipy.optimize.brute(f, BOX, full_output=True)[1],
    "direct": lambda f: scipy.optimize.direct(f, BOX, eps=1e-8).fun,
    "dual_annealing": lambda f: scipy.optimize.dual_annealing(f, BOX, maxiter=5, rng=1).fun,
    "shgo": lambda f: scipy.optimize.shgo(f, BOX).fun,
}


@pytest.mark.parametrize("name", MINIMA)
def test_the_value_of_a_minimum(name):
    f = lambda x: MINIMA[name](lambda t: (t[0] - x) ** 2 + x**3)
    assert tg.grad(f)(0.7) == pytest.approx(3 * 0.49, rel=1e-6)
    assert tg.jvp(tg.grad(f), (0.7,), (1.0,))[1] == pytest.approx(6 * 0.7, rel=1e-6)
