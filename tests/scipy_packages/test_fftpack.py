"""scipy.fftpack, names that packages put into SciPy's modules, and operators of other packages."""

import numpy as np
import pytest
import scipy.fftpack as fp
import scipy.sparse.linalg
import scipy.stats

import tapegrad as tg

X = np.array([1.0, 2.0, 3.0, 0.5, 0.2, -1.0])
V = np.array([0.3, 0.2, 0.5, -0.1, 0.7, 0.2])

LINEAR = {
    **{
        f"{name} {kind}": lambda x, name=name, kind=kind: getattr(fp, name)(x, type=kind)
        for name in ("dct", "idct", "dst", "idst")
        for kind in (1, 2, 3, 4)
    },
    "orthonormal": lambda x: fp.dct(x, norm="ortho", n=4),
    "fft": lambda x: fp.fft(x, n=8),
    "ifft": lambda x: fp.ifft(x),
    "fft2": lambda x: fp.fft2(x.reshape(2, 3)),
    "fftn": lambda x: fp.fftn(x.reshape(2, 3), shape=(4, 4)),
    "dctn": lambda x: fp.dctn(x.reshape(2, 3)),
    "idctn": lambda x: fp.idctn(x.reshape(2, 3)),
    "fftshift": lambda x: fp.fftshift(x) * fp.next_fast_len(7),
}


@pytest.mark.parametrize("f", LINEAR.values(), ids=LINEAR)
def test_linear_transforms(f):
    value, tangent = tg.jvp(f, (X,), (V,))
    np.testing.assert_allclose(value, f(X), atol=1e-12)
    np.testing.assert_allclose(tangent, f(V), atol=1e-12)
    w = np.cos(np.arange(1.0, 1.0 + value.size)).reshape(value.shape)
    gradient = tg.grad(lambda x: np.sum(w * np.real(f(x))))(X)
    assert np.sum(gradient * V) == pytest.approx(np.sum(w * np.real(f(V))), abs=1e-12)


def test_packed_numbers_are_refused():
    with pytest.raises(tg.errors.TapegradError):
        tg.grad(lambda x: np.sum(fp.rfft(x)))(X)


def test_a_function_that_a_package_put_into_scipy(monkeypatch):
    monkeypatch.setattr(scipy.stats, "chisqprob", scipy.stats.chi2.sf, raising=False)
    gradient = tg.grad(lambda x: np.sum(scipy.stats.chisqprob(x**2, 2)))(X)
    np.testing.assert_allclose(gradient, -X * np.exp(-(X**2) / 2), rtol=1e-12)


class Scaled:
    """An operator of a package, which SciPy's solvers take for its methods."""

    shape, dtype = (6, 3), np.dtype(float)

    def __init__(self, p):
        self.A = np.vander(np.linspace(0.1, 1.0, 6), 3) * p

    def matvec(self, x):
        return self.A @ x

    def rmatvec(self, y):
        return self.A.T @ y


def test_operators_of_other_packages():
    solve = lambda p, b: scipy.sparse.linalg.lsqr(Scaled(p), b, atol=1e-15, btol=1e-15)[0]
    f = lambda p: np.sum(solve(p, p * X) ** 2 * p)
    exact = np.sum(np.linalg.lstsq(Scaled(1.0).A, X, rcond=None)[0] ** 2)
    value, slope = tg.value_and_grad(f)(1.3)
    assert [float(value), float(slope)] == pytest.approx([1.3 * exact, exact], rel=1e-8)
