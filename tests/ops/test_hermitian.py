"""cholesky, eigh and their kin read one triangle: symmetrised at symmetric matrices, else the derivative of
what NumPy computes.

The references are central differences of the plain NumPy and SciPy functions, entry by entry."""

import itertools

import numpy as np
import pytest
import scipy.linalg
from comparison import close, host

import tapegrad as tg
from tapegrad.ops.linalg.hermitian import symmetric
from tapegrad.testing.derivative_checks import check_grads, nested_derivative

RNG = np.random.default_rng(11)
W, B, V = RNG.standard_normal((3, 3)), RNG.standard_normal((3, 2)), RNG.standard_normal(3)
JUNK = RNG.standard_normal((3, 3))


def positive(seed, n=3, complex_=False):
    a = np.random.default_rng(seed).standard_normal((n, n))
    a = a + 1j * np.random.default_rng(seed + 1).standard_normal((n, n)) if complex_ else a
    return a @ a.conj().T + n * np.eye(n)


def by_vectors(w, v):
    """A smooth function of the eigenvectors that is free of their signs."""
    return (w * np.array([1.0, -2.0, 0.5])).sum() + (((v * np.sin(w)) @ v.conj().T).real * W).sum()


OTHER = positive(3)
# name: (a function of a matrix, given scipy.linalg or its twin; is the lower triangle read?)
FUNCTIONS = {
    "cholesky": (lambda sp: lambda a: (np.linalg.cholesky(a).real * W).sum(), True),
    "cholesky upper": (lambda sp: lambda a: (np.linalg.cholesky(a, upper=True).real * W).sum(), False),
    "scipy cholesky": (lambda sp: lambda a: (sp.cholesky(a).real * W).sum(), False),
    "scipy cholesky lower": (lambda sp: lambda a: (sp.cholesky(a, lower=True).real * W).sum(), True),
    "cho_factor": (lambda sp: lambda a: (sp.cho_solve(sp.cho_factor(a), B).real * W[:, :2]).sum(), False),
    "cho_factor lower": (
        lambda sp: lambda a: (sp.cho_solve(sp.cho_factor(a, lower=True), B).real * W[:, :2]).sum(),
        True,
    ),
    "solve pos": (lambda sp: lambda a: (sp.solve(a, V, assume_a="pos").real * V).sum(), False),
    "solve pos lower": (
        lambda sp: lambda a: (sp.solve(a, V, assume_a="pos", lower=True).real * V).sum(),
        True,
    ),
    "eigh": (lambda sp: lambda a: by_vectors(*np.linalg.eigh(a)), True),
    "eigh U": (lambda sp: lambda a: by_vectors(*np.linalg.eigh(a, UPLO="U")), False),
    "eigvalsh": (lambda sp: lambda a: (np.linalg.eigvalsh(a) * V).sum(), True),
    "eigvalsh u": (lambda sp: lambda a: (np.linalg.eigvalsh(a, "u") * V).sum(), False),
    "scipy eigh": (lambda sp: lambda a: by_vectors(*sp.eigh(a)), True),
    "scipy eigh upper": (lambda sp: lambda a: by_vectors(*sp.eigh(a, lower=False)), False),
    "scipy eigh general": (lambda sp: lambda a: (sp.eigh(a, OTHER, eigvals_only=True) * V).sum(), True),
    "scipy eigh of b": (lambda sp: lambda b: (sp.eigh(OTHER, b, eigvals_only=True) * V).sum(), True),
}
over_functions = pytest.mark.parametrize("name", FUNCTIONS)


def entries(f, a, h=1e-5):
    """df/da as f computes it: df/dx + i df/dy of each entry."""
    g = np.zeros_like(a)
    for i in np.ndindex(*a.shape):
        for unit in (1.0, 1j) if a.dtype.kind == "c" else (1.0,):
            e = np.zeros_like(a)
            e[i] = unit
            g[i] += (
                unit * (8 * (f(a + h * e) - f(a - h * e)) - (f(a + 2 * h * e) - f(a - 2 * h * e))) / (12 * h)
            )
    return g


def hermitian(a):
    return (a + a.conj().swapaxes(-1, -2)) / 2


POINTS = {
    "one triangle filled": lambda a, keep: keep(a),
    "other numbers opposite": lambda a, keep: keep(a) + (JUNK - keep(JUNK)),
    "nearly symmetric": lambda a, keep: a + 1e-9 * (JUNK - keep(JUNK)),
    "an entry that is tiny": lambda a, keep: (
        np.diag(np.diag(a)) + 1e-18 * (keep(JUNK) - np.diag(np.diag(JUNK)))
    ),
    "diagonal": lambda a, keep: np.diag(np.diag(a)),
}


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("complex_", [False, True], ids=["real", "complex"])
@over_functions
def test_elsewhere_it_is_the_derivative_of_what_is_computed(name, complex_, point):
    make, lower = FUNCTIONS[name]
    f = make(scipy.linalg)
    keep = np.tril if lower else np.triu
    a = POINTS[point](positive(1, complex_=complex_), keep)
    g = tg.grad(f)(a)
    close(g, entries(f, a), 1e-8)
    close(g - keep(g), np.zeros((3, 3)))
    t = positive(5, complex_=complex_) + JUNK
    close(tg.jvp(f, (a,), (t,))[1], np.sum((g.conj() * t).real), 1e-11)
    check_grads(make(tg.scipy.linalg), a)


@pytest.mark.parametrize("rounding", [False, True], ids=["exactly", "to rounding"])
@pytest.mark.parametrize("complex_", [False, True], ids=["real", "complex"])
@over_functions
def test_at_a_symmetric_matrix_gradients_are_symmetrised(name, complex_, rounding):
    make, _ = FUNCTIONS[name]
    f = make(scipy.linalg)
    a = positive(1, complex_=complex_)
    if rounding:
        a = a * (1 + 4e-16 * np.tril(np.ones((3, 3)), -1))
        assert (a != a.conj().T).any()
    g = tg.grad(f)(a)
    close(g, hermitian(entries(f, a)), 1e-8)
    t = JUNK + 1j * W if complex_ else JUNK
    close(tg.jvp(f, (a,), (t,))[1], np.sum((g.conj() * hermitian(t)).real), 1e-11)
    check_grads(make(tg.scipy.linalg), a)


@pytest.mark.parametrize("n", [2, 3, 5, 12])
def test_which_matrices_count_as_symmetric(n):
    a = positive(2, n)
    scale = np.logspace(-150, 150, n)
    for s in (np.ones(n), scale):
        b = s[:, None] * a * s
        kinds = [
            b,
            b * (1 + 3e-16 * np.tril(np.ones((n, n)), -1)),
            np.tril(b),
            np.diag(np.diag(b)),
            b + np.triu(b, 1) * 1e-10,
            np.zeros((n, n)),
        ]
        wanted = [True, True, False, False, False, False]
        assert [symmetric(k) for k in kinds] == wanted
        assert symmetric(np.stack(kinds)).ravel().tolist() == wanted
    holes = a.copy()
    holes[0, 1] = holes[1, 0] = 0.0
    assert symmetric(holes) is (n > 2)
    assert symmetric(a.astype("f") * (1 + 1e-7 * np.triu(np.ones((n, n), "f"), 1))) is True


def test_the_choice_is_made_for_each_matrix_of_a_batch(xp):
    a = positive(1)
    batch = np.stack([a, np.tril(a), np.diag(np.diag(a)), np.tril(a) + np.triu(JUNK, 1)])

    def make(xp, weights, other):
        def f(a):
            w, v = xp.linalg.eigh(a)
            values = (xp.linalg.eigvalsh(a, "U") * other).sum() + (w * other).sum()
            return (xp.linalg.cholesky(a) * weights).sum() + values + (v[..., 0] ** 2 * other).sum()

        return f

    f = make(xp, xp.asarray(W), xp.asarray(V))
    g = host(tg.grad(f)(xp.asarray(batch)))
    v = np.stack([JUNK, W, positive(7), JUNK @ W])
    close(tg.jvp(f, (xp.asarray(batch),), (xp.asarray(v),))[1], np.sum(g * v), 1e-11)
    for k, b in enumerate(batch):
        wanted = entries(make(np, W, V), b)
        close(g[k], hermitian(wanted) if k == 0 else wanted, 1e-8)


def test_a_program_that_fills_one_triangle(xp):
    """At the start, where the entries off the diagonal are zero, too; every nesting, against a closed form of
    the program."""

    def f(x):
        a = xp.zeros((3, 3))
        a[xp.arange(3), xp.arange(3)] = 4.0 + x[:3] ** 2
        a[1, 0] = x[3]
        a[2, 0] = 2.0 * x[4]
        a[2, 1] = x[5] * x[3]
        L = xp.linalg.cholesky(a)
        return xp.log(xp.diagonal(L)).sum() + (L * xp.asarray(W)).sum()

    def by_hand(x):
        d, (p, q, r) = 4.0 + x[:3] ** 2, (x[3], 2.0 * x[4], x[5] * x[3])
        a = np.sqrt(d[0])
        b, c = p / a, q / a
        e = np.sqrt(d[1] - b * b)
        s = (r - b * c) / e
        u = np.sqrt(d[2] - c * c - s * s)
        total = b * W[1, 0] + c * W[2, 0] + s * W[2, 1] + a * W[0, 0] + e * W[1, 1] + u * W[2, 2]
        return total + np.log(a) + np.log(e) + np.log(u)

    for x in (
        np.zeros(6),
        np.array([0.1, 0.2, 0.3, 0.0, 0.4, 0.0]),
        np.array([0.3, -0.2, 0.5, 0.7, -0.4, 0.6]),
    ):
        y = xp.asarray(x)
        close(tg.grad(f)(y), tg.grad(by_hand)(x), 1e-12)
        for word in ("".join(w) for w in itertools.product("FR", repeat=2)):
            v, w = np.arange(1.0, 7.0), np.cos(np.arange(6.0))
            wanted = nested_derivative(by_hand, word, [(v,), (w,)])(x)
            close(nested_derivative(f, word, [(xp.asarray(v),), (xp.asarray(w),)])(y), wanted, 1e-11)


def test_single_precision_keeps_its_dtype():
    a = np.tril(positive(1)).astype(np.float32)
    for f in (lambda a: np.linalg.cholesky(a).sum(), lambda a: np.linalg.eigvalsh(a)[0]):
        assert tg.grad(f)(a).dtype == tg.hvp(f, a, a).dtype == np.float32
    close(
        tg.grad(lambda a: np.linalg.cholesky(a).sum())(a),
        tg.grad(lambda a: np.linalg.cholesky(a).sum())(a.astype(float)),
        1e-5,
    )


def test_check_grads_sees_a_rule_that_is_wrong_off_the_symmetric_matrices():
    """Its differences are taken along symmetric directions, but forward and reverse must agree along any."""
    skew = tg.rule(
        lambda a: (a * a).sum(),
        vjp=lambda g, out, a: 2 * g * a + g * (W - W.T),
        jvp=lambda t, out, a: (2 * a * t[0]).sum(),
    )
    with pytest.raises(AssertionError, match="reverse against forward"):
        check_grads(skew, positive(1))
