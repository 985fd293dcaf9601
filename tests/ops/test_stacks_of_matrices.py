"""scipy.linalg's functions of one matrix, for stacks: values as SciPy's, slopes as differences."""

import numpy as np
import pytest
import scipy.linalg as sl

import tapegrad as tg
from tapegrad._core.trees import leaves
from tapegrad.ops.declare import SCIPY

rng = np.random.default_rng(0)
A, B, V = rng.normal(size=(3, 2, 3, 3))
TALL, WIDE = rng.normal(size=(2, 5, 3)), rng.normal(size=(2, 2, 3))
SOLID, PAIR = 0.3 * A + 2 * np.eye(3), rng.normal(size=(2, 3, 2))
SYMMETRIC = A + A.swapaxes(1, 2)
BAND = np.stack([0.3 * V[:, 0], np.abs(V[:, 1]) + 3 * np.arange(1, 4)], 1)
CALLS = {
    "subspace_angles": (sl.subspace_angles, TALL, rng.normal(size=(2, 5, 2))),
    "null_space": (lambda x: abs(sl.null_space(x)), WIDE),
    "polar": (sl.polar, SOLID),
    "rq": (sl.rq, SOLID),
    "hessenberg": (sl.hessenberg, SOLID),
    "ldl": (lambda x: sl.ldl(x)[:2], SYMMETRIC + 9 * np.eye(3)),
    "eigvals_banded": (sl.eigvals_banded, BAND),
    "eigh_tridiagonal": (lambda d, e: sl.eigh_tridiagonal(d, e, eigvals_only=True), V[:, 0], V[:, 1, :2]),
    "lstsq": (lambda a, b: sl.lstsq(a, b)[0], TALL, rng.normal(size=(2, 5, 2))),
    "lstsq of one": (lambda a, b: sl.lstsq(a, b)[0], TALL, rng.normal(size=5)),
    "khatri_rao": (sl.khatri_rao, A, B),
    "companion": (sl.companion, V[:, 0] + 3),
    "leslie": (sl.leslie, V[:, 0], V[:, 1, :2]),
    "orthogonal_procrustes": (sl.orthogonal_procrustes, A, SOLID),
    "lu": (sl.lu, SOLID),
    "lu_solve": (lambda a, b: sl.lu_solve(sl.lu_factor(a), b), SOLID, PAIR),
    "toeplitz": (sl.toeplitz, V[:, 0], V[:1, 1]),
}


def numbers(y):
    return np.concatenate([np.reshape(v, -1) for v in leaves(y)])


@pytest.mark.skipif(SCIPY < (1, 17), reason="older versions take fewer stacks")
@pytest.mark.parametrize("name", CALLS)
def test_functions_of_one_matrix_take_stacks(name):
    f, *x = CALLS[name]
    want = [np.asarray(y) for y in leaves(f(*x))]
    v = [rng.normal(size=a.shape) for a in x]
    if name == "ldl":
        v = [a + a.swapaxes(1, 2) for a in v]
    value, slope = tg.jvp(f, tuple(x), tuple(v))
    for a, b in zip(leaves(value), want, strict=True):
        assert np.shape(a) == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)
    ahead, behind = [numbers(f(*[a + h * d for a, d in zip(x, v, strict=True)])) for h in (1e-6, -1e-6)]
    differences = (ahead - behind) / 2e-6
    slopes = slope if isinstance(slope, tuple) else (slope,)
    found = np.concatenate(
        [np.zeros(b.size) if t is None else np.reshape(t, -1) for t, b in zip(slopes, want, strict=True)]
    )
    np.testing.assert_allclose(found, differences, rtol=1e-6, atol=1e-7)
    w = rng.normal(size=found.shape)
    gradient = tg.grad(lambda *x: np.sum(w * numbers(f(*x))), argnums=tuple(range(len(x))))(*x)
    assert sum(np.sum(g * d) for g, d in zip(gradient, v, strict=True)) == pytest.approx(w @ found, rel=1e-9)


def test_a_basis_of_a_complement_is_a_choice():
    """The last two columns of Q are one of many bases: nan in both modes, with a warning."""
    rng = np.random.default_rng(0)
    q, r = sl.qr(rng.normal(size=(5, 3)))
    u, v, w = rng.normal(size=5), rng.normal(size=3), rng.normal(size=(5, 2))
    f = lambda t: (sl.qr_update(q, r, u * t + t**2, v)[0][:, 3:] * w).sum()
    for derivative in (lambda: tg.grad(f)(0.7), lambda: tg.jvp(f, (0.7,), (1.0,))[1]):
        with pytest.warns(RuntimeWarning, match="the sign or phase of a vector"):
            assert np.isnan(derivative())
