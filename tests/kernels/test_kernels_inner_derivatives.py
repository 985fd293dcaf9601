"""tg.grad, jvp and the other transforms inside kernel functions: the same program outside, sample by sample,
is the reference."""

from typing import NamedTuple

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import grad as grad_by_name
from tapegrad.errors import ArgumentError, KernelError, NotScalarError, ShapeError
from tapegrad.kernels.trace import tracing

pytestmark = pytest.mark.one_in(4)  # its cases compile

kernels = tg.kernels
X = np.random.default_rng(0).normal(size=(3, 4))
A = np.array([0.5, 1.0, 2.0, 3.0])


def f(x, a):
    return np.sin(x[0] * a) * x[1] ** 2 + a * np.exp(x[0] - x[2]) + np.sqrt(1 + x[2] ** 2)


def vector(x, a):
    return np.array([x[0] * x[1] * a, np.sin(x[2]), x[1] / (1 + x[0] ** 2), a * x[2] ** 3])


def in_place(x, a):
    y = np.zeros(3)
    y[0] = x[0] * a
    for i in range(1, 3):
        y[i] = y[i - 1] * x[i] + np.sin(x[i])
    y[1:] *= y[0]
    return y.sum()


def matrices(x, a):
    M = np.eye(2) * (1 + x[0] ** 2) + np.outer(x[1:], x[1:])
    L = np.linalg.cholesky(M)
    return np.linalg.slogdet(M)[1] + x[1:] @ np.linalg.solve(M, x[:2]) + a * L[1, 0]


def chosen(x, a):
    return np.where(x[0] > 0, np.sqrt(abs(x[0])) * x[1], x[2] ** 2 * a)


SCALARS = [f, in_place, matrices, chosen]
V = np.array([0.3, -1.0, 0.7])
made_outside = tg.value_and_grad(f, argnums=(0, 1))

PROGRAMS = {
    **{f"grad of {g.__name__}": lambda x, a, g=g: tg.grad(g)(x, a) for g in SCALARS},
    **{f"hessian of {g.__name__}": lambda x, a, g=g: tg.hessian(g)(x, a) for g in SCALARS},
    **{f"hvp of {g.__name__}": lambda x, a, g=g: tg.hvp(g, x, V, (a,)) for g in SCALARS},
    "by name": lambda x, a: grad_by_name(f)(x, a),
    "made outside": lambda x, a: made_outside(x, a)[1][0] * made_outside(x, a)[0],
    "argnums": lambda x, a: tg.grad(f, argnums=1)(x, a) + tg.grad(f, -1)(x, a),
    "blocks of a hessian": lambda x, a: tg.hessian(f, argnums=(0, 1))(x, a)[0][1],
    "value too": lambda x, a: tg.value_and_grad(f)(x, a)[0],
    "aux": lambda x, a: tg.grad(lambda x: (f(x, a), x[0] * a), has_aux=True)(x)[1],
    "jvp": lambda x, a: tg.jvp(vector, (x, a), (V, 2.0))[1],
    "jvp of the value": lambda x, a: tg.jvp(vector, (x, a), (V, None))[0],
    "jacobian": lambda x, a: tg.jacobian(vector)(x, a),
    "forward": lambda x, a: tg.jacobian(vector, mode="forward")(x, a),
    "reverse": lambda x, a: tg.jacobian(vector, mode="reverse")(x, a),
    "jacobian by a number": lambda x, a: tg.jacobian(vector, argnums=1)(x, a),
    "third": lambda x, a: tg.jacobian(tg.hessian(f))(x, a),
    "vjp": lambda x, a: tg.vjp(vector, x, a)[1](np.array([1.0, 2.0, -1.0, 0.5]))[0],
    "all three": lambda x, a: tg.value_grad_hvp(f, x, V, (a,))[2] + tg.value_grad_hvp(f, x, V, (a,))[1],
    "hmp": lambda x, a: tg.hmp(f, x, np.array([[1.0, 0.0, 2.0], [0.0, 1.0, -1.0]]), (a,)),
    "closure": lambda x, a: tg.grad(lambda y: f(y * x[0], a) * x[1])(x),
    "nested": lambda x, a: tg.grad(lambda y: y * tg.grad(lambda z: z * y * x[0])(2.0))(x[1]),
    "constant point": lambda x, a: tg.grad(lambda y: y**2 * x[0])(3.0),
    "const": lambda x, a: tg.grad(tg.Const(f))(x, tg.Const(a)),
    "tree": lambda x, a: tg.grad(lambda p: p["u"] ** 2 * p["w"][0] + p["w"][1] * a)({"u": x[0], "w": x[1:]})[
        "w"
    ],
    "jacobian of a tree": lambda x, a: tg.jacobian(lambda p: (p[0] * a, p[1] * x[2]))((x[0], x[1]))[1][1],
    "descent": lambda x, a: descended(x, a),
}


def descended(x, a):
    for _ in range(3):
        x = x - 0.1 * tg.grad(f)(x, a)
    return x


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_outside(name):
    program = PROGRAMS[name]
    k = kernels.map(program)
    expected = np.stack([program(X[:, b], A[b]) for b in range(4)], axis=-1)
    np.testing.assert_allclose(k(X, A), expected, rtol=1e-12, atol=1e-13)
    W = np.random.default_rng(1).normal(size=expected.shape)
    outer = tg.grad(lambda x, a: (k(x, a) * W).sum(), argnums=(0, 1))(X, A)
    for b in range(4):
        alone = tg.grad(lambda x, a, b=b: (program(x, a) * W[..., b]).sum(), argnums=(0, 1))(X[:, b], A[b])
        np.testing.assert_allclose(outer[0][:, b], alone[0], rtol=1e-10, atol=1e-11)
        np.testing.assert_allclose(outer[1][b], alone[1], rtol=1e-10, atol=1e-11)


def energy(q, theta):
    return theta[0] * np.cosh(q[0]) + 0.5 * theta[1] * q[1] ** 2 + q[0] * q[1]


def flow(x, theta):
    """One step of steepest descent: a change of variables."""
    return x - 0.1 * tg.grad(energy)(x, theta)


def density(theta, x):
    """Of what the flow makes of x, a standard normal density with the Jacobian determinant."""
    z = flow(x, theta)
    return -0.5 * z @ z + np.linalg.slogdet(tg.jacobian(flow)(x, theta))[1]


@pytest.mark.long
def test_change_of_variables_in_a_likelihood():
    data = np.random.default_rng(2).normal(size=(2, 30))
    theta = np.array([[1.0, 0.5], [0.7, 1.5]])
    k = kernels.likelihood(density)
    value, gradient = k.value_and_grad(theta, data)
    hessian = k.hessian(theta, data)
    scores = k.scores(theta, data)
    for b in range(2):
        plain = lambda t: sum(density(t, x) for x in data.T)
        v, g = tg.value_and_grad(plain)(theta[:, b])
        np.testing.assert_allclose(value[b], v, rtol=1e-12)
        np.testing.assert_allclose(gradient[:, b], g, rtol=1e-10)
        np.testing.assert_allclose(hessian[b], tg.hessian(plain)(theta[:, b]), rtol=1e-9)
        np.testing.assert_allclose(scores[5, :, b], tg.grad(density)(theta[:, b], data[:, 5]), rtol=1e-10)
    by_data = tg.grad(lambda d: k(theta, d).sum())(data)
    np.testing.assert_allclose(
        by_data[:, 3], sum(tg.grad(density, 1)(theta[:, b], data[:, 3]) for b in range(2)), rtol=1e-10
    )


class State(NamedTuple):
    x: object
    P: object


def growth(x, theta):
    return np.array(
        [x[0] + 0.1 * theta[0] * x[0] * (1 - x[1]), x[1] + 0.1 * (np.exp(theta[1]) * x[0] - x[1])]
    )


def extended_init(theta):
    return State(np.array([1.0, 0.5]), np.eye(2) * 0.1)


def extended_step(carry, theta, y):
    x, P = carry
    H = tg.grad(lambda x: np.sqrt(1 + x @ x))(x)
    S = H @ P @ H + 0.1
    v = y - np.sqrt(1 + x @ x)
    K = P @ H / S
    x, P = x + K * v, P - np.outer(K, K) * S
    J = tg.jacobian(growth)(x, theta)
    return State(growth(x, theta), J @ P @ J.T + 0.01 * np.eye(2)), -0.5 * (np.log(S) + v * v / S)


def test_an_extended_filter_as_a_recursion():
    y = 1.5 + 0.3 * np.random.default_rng(3).normal(size=25)
    theta = np.array([[0.5, 0.8, 1.1], [0.1, 0.2, -0.3]])
    k = kernels.recursion(extended_init, extended_step)

    def plain(theta):
        carry, total = extended_init(theta), 0.0
        for v in y:
            carry, inc = extended_step(carry, theta, v)
            total = total + inc
        return total

    value, gradient = k.value_and_grad(theta, y)
    for b in range(3):
        v, g = tg.value_and_grad(plain)(theta[:, b])
        np.testing.assert_allclose(value[b], v, rtol=1e-11)
        np.testing.assert_allclose(gradient[:, b], g, rtol=1e-9)
    np.testing.assert_allclose(k.hessian(theta, y)[0], tg.hessian(plain)(theta[:, 0]), rtol=1e-8)


def test_no_confusion_of_perturbations():
    """d/dx (x d/dy (x + y)) = 1, and the inner variable is the outer one in value."""
    k = kernels.map(lambda x: tg.grad(lambda x: x * tg.grad(lambda y: x + y)(x))(x))
    assert (k(np.array([1.0, 3.0])) == 1.0).all()
    k = kernels.map(
        lambda x: tg.jvp(lambda u: u * tg.jvp(lambda v: u * v * x, (x,), (1.0,))[1], (x,), (1.0,))[1]
    )
    np.testing.assert_allclose(
        k(np.array([2.0, 3.0])), [8.0, 18.0]
    )  # u * u x at u = x: its derivative is 2 x^2


def test_a_captured_transform_reads_anew():
    scale = np.array([1.0, 2.0])
    slope = tg.grad(lambda x: (scale * x**2).sum())
    k = kernels.map(lambda x: slope(x))
    np.testing.assert_allclose(k(np.ones((2, 3)))[:, 0], [2.0, 4.0])
    scale[:] = 5.0
    np.testing.assert_allclose(k(np.ones((2, 3)))[:, 0], [10.0, 10.0])


class Body:
    stiffness = 2.0

    def energy(self, x):
        return self.stiffness * (x**2).sum()

    force = tg.grad(energy, argnums=1)

    def step(self, x):
        import tapegrad

        return x - 0.1 * self.force(x) + 0 * tapegrad.grad(self.energy)(x)


def test_methods_and_imports_inside():
    body = Body()
    for f in (body.step, lambda x: body.step(x), lambda x: x - 0.1 * body.force(x)):
        k = kernels.map(f)
        np.testing.assert_allclose(k(X), X * (1 - 0.4))
        body.stiffness = 1.0
        np.testing.assert_allclose(k(X), X * (1 - 0.2))
        body.stiffness = 2.0


def leaking(x, n):
    box = []

    def f(y):
        box.append(y * 2)
        return y**2

    return tg.grad(f)(x) * box[0]


def test_what_is_kept_of_a_function_is_refused():
    with pytest.raises(KernelError, match="made in the function of a transform"):
        kernels.map(leaking)(A, A)
    with pytest.raises(KernelError, match="made in the function of a transform"):
        kernels.likelihood(lambda theta, d: leaking(theta[0], d)).scores(np.ones((1, 2)), A)
    with pytest.raises(KernelError, match="made in the function of a transform"):
        kernels.map(lambda x, n: kernels.loop(n, lambda i, s: s * leaking(x, n), 1.0))(A, N)


def test_outside_of_a_trace_nothing_is_left():
    """A trace that fails leaves the transforms as they were."""
    with pytest.raises(KernelError):
        kernels.map(lambda x: tg.grad(lambda y: y * len(range(y)))(x))(A)
    assert tg.grad(lambda x: x**2)(3.0) == 6.0 and type(tg.grad(np.sin)(0.0)) is np.float64


@pytest.mark.long
def test_whole_matrices(monkeypatch):
    """Where arrays are kept as blocks."""
    rng = np.random.default_rng(4)
    M = rng.normal(size=(10, 10)) * 0.2

    def energy(x, a):
        B = M * a + np.outer(x, x)
        return np.linalg.slogdet(np.eye(10) + B @ B.T)[1] + np.sin(x) @ np.linalg.solve(
            np.eye(10) + B @ B.T, x
        )

    def program(x, a):
        value, g = tg.value_and_grad(energy)(x, a)
        return g * value + tg.hvp(energy, x, x * 1.0, (a,))

    x, a = rng.normal(size=(10, 2)), np.array([0.5, 1.0])
    monkeypatch.setattr(tracing.LIMITS, "nodes", 500)
    k = kernels.map(program)
    got = k(x, a)
    for b in range(2):
        np.testing.assert_allclose(got[:, b], program(x[:, b], a[b]), rtol=1e-9)
    outer = tg.grad(lambda x: k(x, a).sum())(x)
    np.testing.assert_allclose(outer[:, 0], tg.grad(lambda x: program(x, a[0]).sum())(x[:, 0]), rtol=1e-8)
    flat = kernels.map(lambda X: tg.jacobian(lambda X: (X @ X.T)[0])(X).sum(axis=0))
    X = rng.normal(size=(9, 9, 2))
    np.testing.assert_allclose(
        flat(X)[..., 0], tg.jacobian(lambda X: (X @ X.T)[0])(X[..., 0]).sum(axis=0), rtol=1e-12
    )


def test_inside_loops_of_the_kernel():
    """A transform in the body of a loop is as any other code there."""

    def program(x, n):
        return kernels.loop(
            n, lambda i, s: s - 0.1 * tg.grad(lambda s: (s - x) ** 2 + 0.1 * s**4)(s), 0.0 * x
        )

    k = kernels.map(program)
    x, n = np.array([1.0, -2.0, 0.5]), np.array([30.0, 7.0, 12.0])
    for b in range(3):
        np.testing.assert_allclose(k(x, n)[b], program(x[b], int(n[b])), rtol=1e-12)
    outer = tg.grad(lambda x: k(x, n).sum())(x)
    np.testing.assert_allclose(outer[1], tg.grad(lambda x: program(x, 7))(x[1]), rtol=1e-10)


def powers(y, n):
    return kernels.loop(n, lambda i, s: s * y, 1.0)


def orbit(x, a, n):
    """A loop with a carry of two arrays, another one in its step, and one that goes on as long as needed."""

    def body(i, carry):
        u, v = carry
        w = kernels.loop(n - 2.0, lambda j, w: w + 0.1 * np.sin(w * x[1]), v)
        return u + 0.1 * w * x[0], v - 0.1 * u * a

    u, v = kernels.loop(n, body, (x[:2], x[1:] * a))
    root = kernels.while_loop(
        lambda r: abs(r * r - 2 - x[0] ** 2) > 1e-13,
        lambda r: 0.5 * (r + (2 + x[0] ** 2) / r),
        1.0 + 0 * a,
        40,
    )
    return u @ v + root


N = np.array([20.0, 7.0, 24.0, 18.0])
LOOPED = {
    "grad": lambda x, a, n: tg.grad(orbit)(x, a, n),
    "by a": lambda x, a, n: x * tg.grad(orbit, argnums=1)(x, a, n),
    "jvp": lambda x, a, n: x * tg.jvp(lambda x, a: orbit(x, a, n), (x, a), (V, 0.3))[1],
    "vjp": lambda x, a, n: tg.vjp(lambda x: orbit(x, a, n) * x, x)[1](x)[0] * x,
    "jacobian": lambda x, a, n: tg.jacobian(lambda x: orbit(x, a, n) * x)(x) @ V,
    "hvp": lambda x, a, n: tg.hvp(orbit, x, V, (a, n)),
    "hessian": lambda x, a, n: tg.hessian(lambda x: orbit(x, a, n))(x) @ V,
    "value": lambda x, a, n: x * tg.value_and_grad(orbit)(x, a, n)[0],
    "not called": lambda x, a, n: x * tg.vjp(lambda x: orbit(x, a, n), x)[0],
    "in a loop": lambda x, a, n: kernels.loop(
        n - 4.0, lambda i, s: s - 0.01 * tg.grad(lambda s: powers(s @ s + a, n - 5.0) * 1e-3)(s), x
    ),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", LOOPED)
def test_loops_inside_of_a_transform(name):
    program = LOOPED[name]
    k = kernels.map(program)
    x, a = 0.3 * X, A * 0.3
    got = k(x, a, tg.Const(N))
    slope = tg.grad(lambda x, a: (k(x, a, tg.Const(N)) * V[:, None]).sum(), argnums=(0, 1))(x, a)
    for b in range(4):
        plain = lambda x, a, b=b: program(x, a, Whole(N[b]))
        np.testing.assert_allclose(got[:, b], plain(x[:, b], a[b]), rtol=1e-10, atol=1e-12)
        alone = tg.grad(lambda x, a: (plain(x, a) * V).sum(), argnums=(0, 1))(x[:, b], a[b])
        np.testing.assert_allclose(slope[0][:, b], alone[0], rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(slope[1][b], alone[1], rtol=1e-8, atol=1e-10)


class Whole(int):
    """A number of steps outside of kernels."""

    def __sub__(self, other):
        return Whole(int(self) - int(other))


def test_loops_that_depend_on_other_numbers_alone():
    free = kernels.map(lambda x, n: tg.grad(lambda y: y**2 * powers(x, n))(x))
    np.testing.assert_allclose(free(np.array([1.5, 2.0]), np.array([3.0, 2.0])), [2 * 1.5**4, 2 * 2.0**3])
    short = kernels.map(lambda x: tg.grad(lambda y: powers(y, 3))(x))  # written out
    np.testing.assert_allclose(short(np.array([1.5, 2.0])), [3 * 1.5**2, 12.0])


def test_a_loop_in_a_step_whose_derivative_enters():
    """A likelihood of the slope of what a loop gives, in each datum: value, gradient, Hessian and scores."""

    def term(theta, d):
        curve = lambda t: kernels.loop(d[0], lambda i, s: s + 0.1 * theta[0] * np.sin(s) * t, t)
        return -0.5 * (d[1] - tg.grad(curve)(theta[1])) ** 2

    data = np.array([[20.0, 18.0, 25.0], [1.0, 2.0, 0.5]])
    theta = np.array([[0.4, 0.7], [0.9, 0.5]])
    k = kernels.likelihood(term)
    value, gradient = k.value_and_grad(theta, data)
    for b in range(2):
        plain = lambda th: sum(term(th, (Whole(d[0]), d[1])) for d in data.T)
        v, g = tg.value_and_grad(plain)(theta[:, b])
        np.testing.assert_allclose(value[b], v, rtol=1e-11)
        np.testing.assert_allclose(gradient[:, b], g, rtol=1e-9)
        np.testing.assert_allclose(k.hessian(theta, data)[b], tg.hessian(plain)(theta[:, b]), rtol=1e-8)
        np.testing.assert_allclose(k.scores(theta, data).sum(axis=0)[:, b], g, rtol=1e-9)


def test_float32_and_the_text_of_a_device():
    k = kernels.map(lambda x, a: tg.grad(f)(x, a))
    got = k(X.astype(np.float32), A.astype(np.float32))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, kernels.map(lambda x, a: tg.grad(f)(x, a))(X, A), rtol=1e-4, atol=1e-5)
    text = kernels.emit_cuda(kernels.likelihood(density).lowered(2, 2), np.float64, False)[0]
    assert "mark" not in text and "__global__" in text


def test_wholes_in_a_tree_are_constants():
    def program(x, a):
        g = tg.grad(lambda p: p["x"] ** p["n"] * a)({"x": x, "n": 3})
        assert g["n"] is None
        return g["x"]

    np.testing.assert_allclose(kernels.map(program)(A, A), 3 * A**3)


@pytest.mark.parametrize(
    "program, error, text",
    [
        (
            lambda x, a: tg.grad(vector)(x, a),
            NotScalarError,
            r"grad\(vector\): the function returned shape \(4,\).*sum",
        ),
        (lambda x, a: tg.grad(lambda x: x[:1])(x), NotScalarError, r"shape \(1,\)"),
        (lambda x, a: tg.grad(lambda x: None)(x), NotScalarError, "NoneType"),
        (lambda x, a: tg.grad(f, argnums=2)(x, a), ArgumentError, "argnums=2.*2 positional"),
        (lambda x, a: tg.grad(lambda n, x: n * x[0])(3, x), ArgumentError, "argument 0 holds no real number"),
        (
            lambda x, a: tg.jvp(vector, (x, a), (V[:2], None))[1],
            ShapeError,
            r"tangent has shape \(2,\), the primal has shape \(3,\)",
        ),
        (lambda x, a: tg.jvp(vector, x, V), ArgumentError, r"jvp\(f, \(x,\), \(v,\)\)"),
        (lambda x, a: tg.vjp(vector, x, a)[1](np.ones(3))[0], ShapeError, r"cotangent has shape \(3,\)"),
        (lambda x, a: tg.grad(f, has_aux=True)(x, a), ArgumentError, "has_aux=True"),
    ],
)
def test_bad_input(program, error, text):
    with pytest.raises(error, match=text):
        kernels.map(program)(X, A)


@pytest.mark.parametrize("product", [lambda J, P: J @ P @ J.T, lambda J, P: J @ (P @ J.T)])
def test_congruences_of_multiples(product):
    """J P J' whose factors are multiples: simplified, the product is made of other nodes than J, which gets
    its adjoint all the same."""

    def step(carry, theta, y):
        x, P = carry
        S = P[0, 0] + 0.1
        v, gain = y - x[0], P[0] / S
        x, P = x + gain * v, P - np.outer(P[0], P[0]) / S
        J = np.array(
            [[1 + 0.1 * theta[0] * (1 - x[1]), -0.1 * theta[0] * x[0]], [0.1 * np.exp(theta[1]), 0.9]]
        )
        return (growth(x, theta), product(J, P) + 0.01 * np.eye(2)), -0.5 * (np.log(S) + v * v / S)

    y, theta = np.array([1.3, 1.7, 1.2, 1.6]), np.array([0.5, 0.1])

    def plain(theta):
        carry, total = extended_init(theta), 0.0
        for v in y:
            carry, inc = step(carry, theta, v)
            total = total + inc
        return total

    k = kernels.recursion(extended_init, step)
    np.testing.assert_allclose(k.grad(theta, y), tg.grad(plain)(theta), rtol=1e-11)
    np.testing.assert_allclose(k.hessian(theta, y), tg.hessian(plain)(theta), rtol=1e-10)


# --- random programs ---

UNARY = [
    np.sin,
    np.tanh,
    lambda u: np.exp(0.3 * u),
    lambda u: np.log1p(u * u),
    lambda u: np.sqrt(1.5 + np.cos(u)),
    np.arctan,
]
BINARY = [
    lambda u, v: u * v,
    lambda u, v: u - 2.0 * v,
    lambda u, v: u / (2.0 + v * v),
    lambda u, v: np.where(u > v, u * u, v),
    lambda u, v: np.hypot(u, v + 3.0),
    lambda u, v: np.maximum(u, v * 0.5),
]


def random_function(rng):
    """Of x (3,) and a number, made of a handful of operations, arrays and writes."""
    steps = [
        (int(rng.integers(3)), int(rng.integers(6)), rng.integers(0, 100, 2))
        for _ in range(int(rng.integers(3, 9)))
    ]

    def program(x, a):
        work = np.zeros(4)
        work[:3] = x
        work[3] = a
        for kind, op, at in steps:
            i, j = int(at[0]) % 4, int(at[1]) % 4
            if kind == 0:
                work[i] = UNARY[op](work[j])
            elif kind == 1:
                work[i] = BINARY[op](work[i], work[j])
            else:
                work[1:] = work[1:] * UNARY[op](work[:3])
        return work

    return program


def nested(rng, f):
    """One of the transforms of a function of x and a number, whose value is an array of 3 or 4."""
    kind = int(rng.integers(7))
    v = rng.normal(size=3)
    one = lambda x, a: f(x, a)[:3].sum() * f(x, a)[0]
    return [
        lambda x, a: tg.grad(one)(x, a),
        lambda x, a: tg.jvp(f, (x, a), (v, 0.5))[1],
        lambda x, a: tg.jacobian(f)(x, a) @ v,
        lambda x, a: tg.vjp(f, x, a)[1](f(x, a))[0],
        lambda x, a: tg.hvp(one, x, v, (a,)),
        lambda x, a: x * tg.grad(one, argnums=1)(x, a),
        lambda x, a: tg.hessian(one)(x * 0.5, a) @ x,
    ][kind]


def agrees(seed):
    rng = np.random.default_rng(seed)
    program = random_function(rng)
    for _ in range(int(rng.integers(1, 3))):
        program = nested(rng, program)
    x, a = rng.normal(size=(3, 2)), rng.normal(size=2)
    k = kernels.map(program)
    w = rng.normal(size=3)
    got, slope = k(x, a), tg.grad(lambda x: (k(x, a)[:3] * w[:, None]).sum())(x)
    for b in range(2):
        expected = program(x[:, b], a[b])
        scale = 1e-9 * max(1.0, abs(expected).max())
        np.testing.assert_allclose(got[:, b], expected, rtol=1e-9, atol=scale, err_msg=str(seed))
        alone = tg.grad(lambda x, b=b: (program(x, a[b])[:3] * w).sum())(x[:, b])
        np.testing.assert_allclose(
            slope[:, b], alone, rtol=1e-8, atol=1e-8 * max(1.0, abs(alone).max()), err_msg=str(seed)
        )


@pytest.mark.long
def test_random_nests():
    for seed in range(5):
        agrees(seed)


@pytest.mark.long
def test_many_random_nests():
    for seed in range(1000, 1500):
        agrees(seed)
