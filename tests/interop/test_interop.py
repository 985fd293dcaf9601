"""Functions across libraries.  References: closed forms, and the same function written in the other library."""

import math
from pathlib import Path

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
import torch

import tapegrad as tg

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings(
        "ignore:.torch.jit.script. is deprecated", "ignore:Numba will use object mode"
    ),
]
jax.config.update("jax_enable_x64", True)
pytensor.config.cxx, pytensor.config.linker = "", "py"

ROOT = Path(__file__).resolve().parents[2]
NILE = np.loadtxt(ROOT / "examples/data/nile.csv", delimiter=",", skiprows=3)[:, 1]
COUPLING = np.array([[2.0, 0.3], [0.3, 1.0]])
buffer = np.zeros(2)


# --- two likelihoods with exact derivatives ---


def gaussian(p):
    """The log-density of 100 numbers with mean p[0] and log standard deviation p[1]."""
    z = (NILE / 100 - p[0]) / np.exp(p[1])
    return -0.5 * np.sum(z * z) - NILE.size * (p[1] + 0.5 * math.log(2 * math.pi))


def gaussian_exactly(p):
    r = NILE / 100 - p[0]
    v = np.exp(2 * p[1])
    n, s, q = r.size, r.sum(), r @ r
    gradient = np.array([s / v, q / v - n])
    return gradient, np.array([[-n / v, -2 * s / v], [-2 * s / v, -2 * q / v]])


def nile(p):
    """The log-likelihood of a local level model from its second observation on, by the Kalman filter.

    p: the logarithms of the variances of the observation and of the level."""
    h, q = np.exp(p[0]), np.exp(p[1])
    level, variance, total = NILE[0], h + q, 0.0
    for y in NILE[1:]:
        F = variance + h
        total = total - 0.5 * (np.log(2 * math.pi * F) + (y - level) ** 2 / F)
        level = level + variance / F * (y - level)
        variance = variance * h / F + q
    return total


def nile_exactly(p):
    """By differences y[t] - y[0], normal with covariance h (I + 1 1') + q min(s, t), linear in the
    variances."""
    d, n = NILE[1:] - NILE[0], NILE.size - 1
    t = np.arange(1, n + 1)
    parts = [np.exp(p[0]) * (np.eye(n) + 1), np.exp(p[1]) * np.minimum.outer(t, t)]
    inverse = np.linalg.inv(sum(parts))
    u = inverse @ d
    gradient = [-0.5 * (np.sum(inverse * V) - u @ V @ u) for V in parts]
    second = [
        [0.5 * np.sum((inverse @ V) * (inverse @ W).T) - u @ V @ inverse @ W @ u for V in parts]
        for W in parts
    ]
    return np.array(gradient), np.array(second) + np.diag(gradient)


def torch_derivatives(f, p):
    f, p = tg.interop.to_torch(f), torch.tensor(p)
    return torch.func.grad(f)(p).numpy(), torch.autograd.functional.hessian(f, p).numpy()


def jax_derivatives(f, p):
    f = tg.interop.to_jax(f)
    return np.asarray(jax.jit(jax.grad(f))(p)), np.asarray(jax.jit(jax.hessian(f))(p))


def pytensor_derivatives(f, p):
    x = pt.dvector()
    y = tg.interop.to_pytensor(f)(x)
    return tuple(pytensor.function([x], [pytensor.grad(y, x), pytensor.gradient.hessian(y, x)])(p))


@pytest.mark.parametrize("derivatives", [torch_derivatives, jax_derivatives, pytensor_derivatives])
@pytest.mark.parametrize(
    ("f", "exactly", "p"),
    [(gaussian, gaussian_exactly, [9.0, 0.5]), (nile, nile_exactly, [9.6, 7.3])],
    ids=["gaussian", "nile"],
)
def test_likelihoods(f, exactly, p, derivatives):
    p = np.array(p)
    for found, right in zip(derivatives(f, p), exactly(p), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-10)


# --- a captured buffer, trees, several results, an integer argument ---


def of_tree(p, n):
    buffer[:] = np.sin(p["x"])
    return {"v": (buffer @ COUPLING @ p["x"]) ** 2 * p["s"], "n": n.sum(), "w": p["x"] * 2}


X, S, N = np.array([0.3, 0.7]), 2.0, np.arange(3)


def in_torch(sin, x, s):
    return (sin(x) @ torch.tensor(COUPLING) @ x) ** 2 * s


TORCH = {
    "value": lambda f, x, s, X: f(x, s),
    "grad": lambda f, x, s, X: torch.func.grad(f, (0, 1))(x, s),
    "jvp": lambda f, x, s, X: torch.func.jvp(f, (x, s), (x, s)),
    "hessian": lambda f, x, s, X: torch.func.hessian(f, (0, 1))(x, s),
    "jacrev of jacrev": lambda f, x, s, X: torch.func.jacrev(torch.func.jacrev(f))(x, s),
    "vmap": lambda f, x, s, X: torch.func.vmap(f, in_dims=(1, None))(X, s),
    "vmap of grad": lambda f, x, s, X: torch.func.vmap(torch.func.grad(f), in_dims=(1, None))(X, s),
    "third": lambda f, x, s, X: torch.func.grad(lambda x: torch.func.hessian(f)(x, s).sum())(x),
}


def leaves(y):
    return [y] if hasattr(y, "shape") else [v for z in y for v in leaves(z)]


@pytest.mark.parametrize("name", TORCH)
def test_torch(name):
    function = tg.interop.to_torch(of_tree)
    x, s = torch.tensor(X), torch.tensor(S, dtype=torch.float64)
    found = TORCH[name](
        lambda x, s: function({"x": x, "s": s}, torch.tensor(N))["v"],
        x,
        s,
        torch.tensor(np.stack([X, 2 * X, 3 * X], 1)),
    )
    right = TORCH[name](
        lambda x, s: in_torch(torch.sin, x, s), x, s, torch.tensor(np.stack([X, 2 * X, 3 * X], 1))
    )
    for a, b in zip(leaves(found), leaves(right), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    assert type(buffer) is np.ndarray and np.isfinite(buffer).all()


def test_torch_backward_runs_f_once():
    calls = []

    def f(x):
        calls.append(1)
        return np.sum(x**3)

    x = torch.tensor(X, requires_grad=True)
    y = tg.interop.to_torch(f)(x)
    y.backward()
    assert len(calls) == 1
    np.testing.assert_allclose(x.grad, 3 * X**2, rtol=1e-14)
    assert torch.autograd.gradcheck(tg.interop.to_torch(f), (x,)) and torch.autograd.gradgradcheck(
        tg.interop.to_torch(f), (x,)
    )


def test_torch_results_and_dtypes():
    y = tg.interop.to_torch(of_tree)({"x": torch.tensor(X), "s": torch.tensor(S)}, torch.tensor(N))
    assert list(y) == ["v", "n", "w"] and y["n"].dtype == torch.int64 and int(y["n"]) == 3
    x = torch.ones(3, dtype=torch.float32, requires_grad=True)
    y = tg.interop.to_torch(lambda x, power: np.sum(x**power))(x, 2)
    y.backward()
    assert y.dtype == x.grad.dtype == torch.float32 and x.grad.tolist() == [2.0, 2.0, 2.0]
    z = torch.tensor([0.3 + 0.2j, 1.0 - 0.5j], requires_grad=True)
    tg.interop.to_torch(lambda z: np.sum(np.abs(z * z + 1) ** 2))(z.conj()).backward()
    w = z.detach().clone().requires_grad_()
    (torch.abs(w.conj() * w.conj() + 1) ** 2).sum().backward()
    torch.testing.assert_close(z.grad, w.grad)


def test_torch_leaves_its_tensors_alone():
    def f(x):
        x[0] = 5.0
        return np.sum(x * x)

    for needed in (False, True):
        x = torch.tensor(X, requires_grad=needed)
        assert float(tg.interop.to_torch(f)(x).detach()) == pytest.approx(25 + X[1] ** 2)
        assert x.detach().tolist() == X.tolist()


def test_torch_bad_input():
    with pytest.raises(tg.errors.ArgumentError, match="bfloat16"):
        tg.interop.to_torch(np.sum)(torch.ones(2, dtype=torch.bfloat16))
    x = torch.tensor(X, requires_grad=True)
    with pytest.raises(ZeroDivisionError):
        tg.interop.to_torch(lambda x: 1 // 0)(x)
    assert tg.grad(lambda x: np.sum(x * x))(X).tolist() == (2 * X).tolist()  # no level is left open


def in_jax(x, s):
    return (jax.numpy.sin(x) @ COUPLING @ x) ** 2 * s


JAX = {
    "value": lambda f, x, s, X: f(x, s),
    "grad": lambda f, x, s, X: jax.grad(f, (0, 1))(x, s),
    "jit of grad": lambda f, x, s, X: jax.jit(jax.grad(f, (0, 1)))(x, s),
    "jvp": lambda f, x, s, X: jax.jvp(f, (x, s), (x, s)),
    "linearize": lambda f, x, s, X: jax.linearize(lambda x: f(x, s), x)[1](x),
    "hessian": lambda f, x, s, X: jax.hessian(f, (0, 1))(x, s),
    "jit of hessian": lambda f, x, s, X: jax.jit(jax.hessian(f))(x, s),
    "jacrev of jacrev": lambda f, x, s, X: jax.jacrev(jax.jacrev(f))(x, s),
    "vmap": lambda f, x, s, X: jax.vmap(f, (1, None))(X, s),
    "jit of vmap of grad": lambda f, x, s, X: jax.jit(jax.vmap(jax.grad(f), (1, None)))(X, s),
    "grad of vmap": lambda f, x, s, X: jax.grad(lambda X: jax.vmap(f, (1, None))(X, s).sum())(X),
    "third": lambda f, x, s, X: jax.grad(lambda x: jax.hessian(f)(x, s).sum())(x),
    "loop": lambda f, x, s, X: jax.grad(
        lambda x: jax.lax.fori_loop(0, 3, lambda _, c: c + 0.01 * f(c, s) * x, x).sum()
    )(x),
}


@pytest.mark.parametrize("name", JAX)
def test_jax(name):
    function = tg.interop.to_jax(of_tree)
    stack = np.stack([X, 2 * X, 3 * X], 1)
    found = JAX[name](lambda x, s: function({"x": x, "s": s}, N)["v"], X, S, stack)
    right = JAX[name](in_jax, X, S, stack)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(right), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    assert type(buffer) is np.ndarray and np.isfinite(buffer).all()


def test_jax_of_complex_numbers():
    z = np.array([0.3 + 0.2j, 1.0 - 0.5j])
    found = jax.grad(tg.interop.to_jax(lambda z: np.sum(np.abs(z * z + 1) ** 2)))(z)
    np.testing.assert_allclose(
        found, jax.grad(lambda z: jax.numpy.sum(jax.numpy.abs(z * z + 1) ** 2))(z), rtol=1e-14
    )


def test_jax_results():
    y = tg.interop.to_jax(of_tree)({"x": X, "s": S}, N)
    assert list(y) == ["v", "n", "w"] and int(y["n"]) == 3 and isinstance(y["w"], jax.Array)
    f = tg.interop.to_jax(lambda x, label: np.sum(x) if label == "sum" else np.prod(x))
    assert float(f(X, "sum")) == pytest.approx(1.0) and float(f(X, "product")) == pytest.approx(0.21)
    with jax.enable_x64(False):
        assert jax.grad(tg.interop.to_jax(lambda x: np.sum(x**2)))(np.ones(2, np.float32)).dtype == np.float32


def test_jax_bad_input():
    f = tg.interop.to_jax(lambda x: x[x > 0.5])
    with pytest.raises(Exception, match="must not depend on values"):
        jax.block_until_ready(f(np.array([0.1, 0.7, 0.8, 0.9])))
    f = lambda A: np.linalg.cholesky(A - 5 * np.eye(2))
    with pytest.raises(np.linalg.LinAlgError) as caught:
        jax.jit(tg.interop.to_jax(f))(np.eye(2))
    assert any("out=" in note for note in caught.value.__notes__)
    np.testing.assert_allclose(jax.jit(tg.interop.to_jax(f, out=np.eye(2)))(9 * np.eye(2)), 2 * np.eye(2))


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_foreign_functions(library):
    if library == "torch":
        f = tg.interop.from_torch(
            lambda p, k: {
                "y": torch.exp(p["x"]).sum() * torch.sin(p["x"][0] * p["x"][1]) * p["s"] ** k,
                "n": k,
            }
        )
    else:
        jnp = jax.numpy
        f = tg.interop.from_jax(
            lambda p, k: {"y": jnp.exp(p["x"]).sum() * jnp.sin(p["x"][0] * p["x"][1]) * p["s"] ** k, "n": k}
        )
    plain = lambda x, s: np.exp(x).sum() * np.sin(x[0] * x[1]) * s**3
    foreign = lambda x, s: f({"x": x, "s": s}, 3)["y"]
    stack = np.stack([X, 2 * X])
    ways = {
        "value": lambda f: f(X, S),
        "grad": lambda f: np.append(*tg.grad(f, (0, 1))(X, S)),
        "jvp": lambda f: tg.jvp(f, (X, S), (X, 0.5))[1],
        "hvp": lambda f: tg.hvp(lambda x: f(x, S), X, X),
        "hessian": lambda f: tg.hessian(lambda x: f(x, S))(X),
        "vmap": lambda f: tg.vmap(f, in_axes=(0, None))(stack, S),
        "vmap of grad": lambda f: tg.vmap(tg.grad(f), in_axes=(0, None))(stack, S),
        "third": lambda f: tg.grad(lambda x: (tg.hessian(lambda x: f(x, S))(x) ** 2).sum())(X),
        "replay": lambda f: [
            p := tg.prepare(lambda x: f(x, S), X),
            p.grad(X),
            p.grad(1.1 * X),
            p.grad(1.2 * X),
        ][-1],
    }
    for name, way in ways.items():
        np.testing.assert_allclose(way(foreign), way(plain), rtol=1e-11, atol=1e-12, err_msg=name)


def test_foreign_complex_functions():
    z, w = np.array([0.3 + 0.2j, 1.0 - 0.5j]), 1.3 - 0.4j
    plain = lambda z: (z * np.conj(z) * np.sin(z)).sum()
    for f in (
        tg.interop.from_jax(lambda z: (z * jax.numpy.conj(z) * jax.numpy.sin(z)).sum()),
        tg.interop.from_torch(lambda z: (z * torch.conj(z) * torch.sin(z)).sum()),
    ):
        np.testing.assert_allclose(tg.vjp(f, z)[1](w), tg.vjp(plain, z)[1](w), rtol=1e-13)
        np.testing.assert_allclose(
            tg.jvp(f, (z,), (1j * z,))[1], tg.jvp(plain, (z,), (1j * z,))[1], rtol=1e-13
        )


def test_jax_does_not_round_in_silence():
    f = tg.interop.from_jax(lambda x: x.sum())
    with jax.enable_x64(False), pytest.raises(tg.errors.ArgumentError, match="jax_enable_x64"):
        f(X)


def test_pytensor():
    x, s = pt.dvector(), pt.dscalar()
    function = tg.interop.to_pytensor(of_tree, out={"v": 0.0, "n": 0, "w": np.zeros(1)})
    y = function({"x": x, "s": s}, N)
    z = (pt.sin(x) @ COUPLING @ x) ** 2 * s
    ways = {
        "value": lambda y: y,
        "grad": lambda y: pytensor.grad(y, x),
        "other": lambda y: pytensor.grad(y, s),
        "hessian": lambda y: pytensor.gradient.hessian(y, x),
        "jvp": lambda y: pytensor.gradient.pushforward(y, [x], [2 * x]),
        "third": lambda y: pytensor.grad(pytensor.gradient.hessian(y, x).sum(), x),
    }
    for name, way in ways.items():
        found, right = (pytensor.function([x, s], way(v))(X, S) for v in (y["v"], z))
        np.testing.assert_allclose(found, right, rtol=1e-12, atol=1e-12, err_msg=name)
    wrong = tg.interop.to_pytensor(lambda x: x * 2)(x)
    with pytest.raises(tg.errors.ShapeError, match="1 dimensions"):
        pytensor.function([x], wrong)(X)


# --- tensors and tracers of other libraries inside a function of arrays ---

WEIGHTS = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
OF_JAX = jax.numpy.array([1.0, 2.0])


def note_of(f, *args):
    with pytest.raises(Exception) as caught:
        f(*args)
    return "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])


def test_captured_tensors_raise():
    x = torch.tensor(X)
    for f in (
        lambda x: np.sum(x * WEIGHTS),
        lambda x: np.sum(WEIGHTS * x),
        lambda x: np.dot(x, WEIGHTS),
        lambda x: np.multiply(x, WEIGHTS).sum(),
    ):
        for given in (x, x.clone().requires_grad_()):
            assert "captured WEIGHTS, a Tensor of torch" in note_of(tg.interop.to_torch(f), given)
        assert "torch" in note_of(tg.grad(f), X)
        assert "captured WEIGHTS" in note_of(lambda f=f: jax.grad(tg.interop.to_jax(f))(X))
    inside = lambda z: tg.interop.to_torch(lambda x: np.sum(x * z))(x)
    for transform in (torch.func.grad, torch.func.hessian):
        assert "captured z, a Tensor of torch" in note_of(transform(inside), torch.tensor(X))
    # as an argument it has its derivative
    both = tg.interop.to_torch(lambda x, w: np.sum(x * w))
    both(x, WEIGHTS).backward()
    np.testing.assert_array_equal(WEIGHTS.grad, X)


def test_captured_tracers_raise():
    for out in (None, 0.0):
        inside = lambda z, out=out: tg.interop.to_jax(lambda x: np.sum(x * z), out)(X)
        for way in (jax.grad(inside), jax.jit(inside), jax.vmap(inside), jax.hessian(inside)):
            text = note_of(lambda way=way: jax.block_until_ready(way(X)))
            assert "captured ['z']" in text or "tracer" in text, text
    with pytest.raises(tg.errors.ArgumentError, match="ArrayImpl"):
        tg.grad(lambda x: np.sum(x * OF_JAX))(X)
    with pytest.raises(tg.errors.ArgumentError, match="Tracer"):
        jax.grad(lambda z: tg.grad(lambda x: np.sum(x * z))(X).sum())(X)


def test_tracked_values_do_not_enter_other_libraries():
    for f in (
        lambda y: tg.interop.from_torch(lambda z: (z * torch.as_tensor(y)).sum())(X),
        lambda y: tg.interop.from_jax(lambda z: (z * y).sum())(X),
        lambda y: torch.sin(y).sum(),
        lambda y: torch.as_tensor(y).sum(),
        lambda y: torch.from_dlpack(y).sum(),
        lambda y: jax.numpy.sin(y).sum(),
        lambda y: jax.numpy.asarray(y).sum(),
    ):
        with pytest.raises((tg.errors.DroppedDerivativeError, TypeError)):
            tg.grad(f)(X)
