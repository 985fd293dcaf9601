"""The operations that are declared with tapegrad.scipy: every line of tests/support/names_*.py.

By default every fourth line: the value, and both modes against each other and against differences of the
plain function; in the long run all lines, the second order with its four nestings, samples under `vmap`, CuPy
and each operation's word `batch` too."""

import collections

import numpy as np
import pytest
import scipy.linalg as la
import scipy.special
from batched_words import failing, watched_calls
from cases import all_lines, covered, declared_late
from grid import derivatives, on
from hidden_values import Escaped
from looped import judged

import tapegrad as tg
from tapegrad._core.trees import leaves
from tapegrad.errors import ArgumentError, BatchError, DeviceError
from tapegrad.ops.declare import COMPOSED, PRIMITIVES
from tapegrad.testing import check_grads
from tapegrad.testing.derivative_checks import direction_like
from tapegrad.testing.hosted import real_device

pytestmark = pytest.mark.usefixtures("quiet")

LINES = all_lines()
over_lines = pytest.mark.parametrize("line", LINES, ids=repr)


def moved(x, v, step):
    return tuple([a if d is None else a + step * d for a, d in zip(x, v, strict=True)])


ON_CUPY = set(
    """
    gammainc gammaincc gammaincinv gammainccinv betainc betaincinv gdtr gdtrc chdtr chdtrc chdtri bdtr bdtrc nbdtr nbdtrc bdtri nbdtri
    pdtr pdtrc pdtri fdtr fdtrc fdtri lpmv ellipk ellipkm1 ellipkinc ellipeinc ellipj shichi zetac boxcox boxcox1p inv_boxcox inv_boxcox1p
    sindg cosdg tandg cotdg round radian wright_bessel solve_toeplitz matmul_toeplitz circulant solve_circulant scipy_lstsq
    sici lambertw lambertw_of yn spherical_yn sph_harm_y sph_harm_y_of poly roots eig eigvals histogram2d setxor1d kaiser
    eigh_tridiagonal eigvalsh_tridiagonal eig_banded eigvals_banded cosm sinm tanm coshm sinhm tanhm expm_frechet pinvh hankel companion
    leslie convolution_matrix fiedler diagsvd khatri_rao hfftn hfft2 ihfftn ihfft2""".split()
)  # as measured
SLOW = {
    "fractional_matrix_power",
    "tanm",
    "tanhm",
    "cosm",
    "sinm",
    "coshm",
    "expm_frechet",
}  # through expm of doubled matrices
SOME = [line for n, line in enumerate(LINES) if n % 4 == 0 and line.name.split()[0] not in SLOW]


@pytest.mark.parametrize("line", SOME, ids=repr)
def test_first_order(line):
    first_order(line)


@pytest.mark.long
@over_lines
def test_first_order_of_all(line):
    first_order(line)


def first_order(line):
    """One direction: forward against differences of the plain function of fourth order, reverse against
    forward."""
    value, tangent, _, (a, b) = derivatives(line, line.inputs)
    direct = line.f(*line.inputs)
    for u, w in zip(leaves(value), leaves(direct), strict=True):
        assert np.shape(u) == np.shape(w) and np.asarray(u).dtype == np.asarray(w).dtype
        np.testing.assert_allclose(u, w, rtol=1e-11, atol=1e-13)
    assert abs(a - b) <= 1e-9 * max(1.0, abs(a), abs(b))
    nums = [n for n, x in enumerate(line.inputs) if np.asarray(x).dtype.kind in "fc"]
    rng = np.random.default_rng(0)
    v = [None] * len(line.inputs)
    for n, d in zip(nums, direction_like(tuple([line.inputs[n] for n in nums]), rng), strict=True):
        v[n] = d
    h = line.eps
    at = [leaves(line.f(*moved(line.inputs, v, k * h))) for k in (1, -1, 2, -2)]
    for u, p, m, pp, mm in zip(leaves(tangent), *at, strict=True):
        if u is not None:
            numeric = (8 * (np.asarray(p) - m) - (np.asarray(pp) - mm)) / (12 * h)
            np.testing.assert_allclose(
                u, numeric, rtol=max(line.rtol, 1e-8) * 100, atol=1e-7 * max(1.0, np.max(np.abs(numeric)))
            )


@pytest.mark.long
@over_lines
def test_second_order(line):
    check_grads(line.f, line.inputs, order=min(line.order, 2), rtol=line.rtol, atol=line.rtol, eps=line.eps)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@over_lines
def test_samples(line):
    """All at once, or, where values decide what is done, one after the other."""
    if line.name == "mathieu_even_coef":  # how many there are differs
        with pytest.raises(
            BatchError, match="scipy.special.mathieu_even_coef has shapes that differ between samples"
        ):
            tg.vmap(line.f)(np.stack([line.inputs[0], line.inputs[0] * 0.93]))
    else:
        judged(line, 2, order=2)


@pytest.mark.long
@pytest.mark.cupy_only
@over_lines
def test_on_cupy(xp, line):
    """Right where CuPy has what the line needs, else an error of ours that says so."""
    if real_device() and line.name.split()[0] == "spherical_yn":
        # CuPy's spherical_yn(1, x, derivative=True) is the derivative of order 0
        ones = [np.ones_like(x) for x in line.inputs]
        want, got = tg.jvp(line.f, line.inputs, ones), tg.jvp(line.f, on(xp, line.inputs), on(xp, ones))
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a.get(), b, rtol=1e-10)
        return
    try:
        check_grads(line.f, on(xp, line.inputs), order=1, rtol=max(line.rtol, 1e-8), atol=1e-8, eps=line.eps)
    except (ArgumentError, DeviceError) as error:
        assert line.name.split()[0] not in ON_CUPY and ("CuPy" in str(error) or "move" in str(error))
    except (
        NotImplementedError,
        AttributeError,
        TypeError,
        ValueError,
        OverflowError,
    ):  # the plain call of CuPy's own, or a kernel that the hosted one does not know
        assert line.name.split()[0] not in ON_CUPY


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_the_words_of_all_operations_hold():
    calls = collections.defaultdict(dict)
    for line in LINES:
        try:
            watched_calls(line, calls)
        except Escaped:
            pass
    wrong, words = (
        {},
        {n: e.prim.batch for n, e in PRIMITIVES.items() if declared_late(e) and e.prim.batch is not None},
    )
    for name, word in words.items():
        assert calls[name], name
        why = failing(word, calls[name].values())
        if why is not None:
            wrong[name] = word, why
    assert wrong == {}


def test_every_operation_has_a_line():
    declared = {name for name, entry in {**PRIMITIVES, **COMPOSED}.items() if declared_late(entry)}
    assert len(declared) > 150
    assert declared - covered(LINES) == set()
    own_name = lambda name: getattr(getattr(scipy.special, name, None), "__name__", name)
    known = {*PRIMITIVES, *COMPOSED}  # (SciPy before 1.16 calls `pro_cv` `obl_cv`)
    assert {name for name in covered(LINES) if own_name(name) not in known} == set()


BY_VALUES = {
    "schur": lambda a: la.schur(a)[0],
    "schur complex": lambda a: abs(la.schur(a, output="complex")[0]),
    "hessenberg": lambda a: la.hessenberg(a),
    "cossin": lambda a: la.cossin(la.expm(a - a.T), 2, 2)[1],
    "qz": lambda a: abs(la.qz(a, np.eye(4), output="complex")[0]),
    "matrix_balance": lambda a: la.matrix_balance(a)[0],
    "qr_delete": lambda a: la.qr_delete(*la.qr(a), 1)[1],
    "qr_insert": lambda a: la.qr_insert(*la.qr(a), a[0], 1)[1],
    "qr_update": lambda a: la.qr_update(*la.qr(a), a[0], a[1])[1],
    "rsf2csf": lambda a: abs(la.rsf2csf(*la.schur(a))[0]),
}


@pytest.mark.parametrize("name", BY_VALUES)
def test_factorisations_by_values_go_sample_by_sample(name):
    """A real Schur form has blocks where eigenvalues are pairs, for one sample here and not for another."""
    f, rng = BY_VALUES[name], np.random.default_rng(0)
    samples = np.stack(
        [
            rng.normal(size=(4, 4)),
            rng.normal(size=(4, 4)),
            np.diag([1.0, 2.0, 3.5, 5.0]) + 0.1 * rng.normal(size=(4, 4)),
        ]
    )
    w = rng.normal(size=(5, 5))[tuple([slice(n) for n in f(samples[0]).shape])]
    phi = lambda a: np.sum(w * f(a) ** 2)
    for of in (f, tg.grad(phi)):
        one = np.stack([of(a) for a in samples])
        np.testing.assert_allclose(tg.vmap(of)(samples), one, rtol=1e-9, atol=1e-10)


def test_pivots_that_differ_between_samples_raise():
    a = np.stack([b + b.T for b in np.random.default_rng(0).normal(size=(3, 4, 4))])
    with pytest.raises(BatchError, match="scipy.linalg.ldl"):
        tg.vmap(lambda x: la.ldl(x)[1])(a)
