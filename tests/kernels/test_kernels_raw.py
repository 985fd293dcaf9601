"""Hand-written kernels as operations: the founding Gaussian, rules of all kinds, calls, errors, memory,
threads, CuPy."""

import shutil

import numpy as np
import pytest
import sympy
from comparison import host
from raw_device import noted_launches  # noqa: F401
from raw_kernels import (
    GAUSSIAN,
    GIVEN,
    GRADIENT,
    LOOP,
    SECOND,
    SIZES,
    STENCIL,
    THETA,
    VALUE,
    X,
    gaussian,
    kernel,
    linear,
    linear_formula,
    raw,
    recursion,
    reduction,
    scale,
    stencil,
    while_loop,
)

import tapegrad as tg
from tapegrad.errors import KernelError, NoRuleError, ShapeError
from tapegrad.testing import check_grads

pytestmark = [
    pytest.mark.skipif(
        shutil.which("g++") is None, reason="NOT RUN: raw kernels on the CPU, for there is no g++"
    ),
    pytest.mark.one_in(4),
]
REALS = [np.float64, np.float32]

# --- discussion 1 ---


@pytest.mark.parametrize("real", REALS)
def test_founding_gaussian(real):
    theta, x = THETA.astype(real), X.astype(real)
    k = gaussian()
    value, pullback = tg.vjp(lambda theta: k(theta, tg.Const(x)), theta)
    gradient = pullback(np.ones(3, real))
    exact = VALUE if real is np.float64 else [-28.663532390449643, -10.720006040067712, -21.794532757470965]
    np.testing.assert_allclose(value, exact, rtol=1e-15 if real is np.float64 else 2e-6)
    np.testing.assert_allclose(gradient, GRADIENT, rtol=1e-13 if real is np.float64 else 2e-6)
    assert value.dtype == gradient.dtype == real
    assert np.array_equal(tg.grad(lambda theta: k(theta, tg.Const(x)).sum())(theta), gradient)
    # forward mode from the adjoint: the sum of each column
    tangent = tg.jvp(lambda theta: k(theta, x), (theta,), (np.ones_like(theta),))[1]
    np.testing.assert_allclose(tangent, gradient.sum(axis=0), rtol=1e-14 if real is np.float64 else 1e-6)


def test_output_that_is_not_needed_is_not_kept():
    k = gaussian()
    with tg.Tape() as tape:
        theta = tape.watch(THETA)
        y = k(theta, tg.Const(X)).sum()
    records = [r for r in tape._trace.records if r[0] is k.prim]
    assert records[0][4] is None  # the output
    np.testing.assert_allclose(tape.grad(y, theta), GRADIENT)


def test_a_rule_that_reads_what_is_not_kept():
    args = ["in unsaved real theta[4, B]", GIVEN[1], "out real value[B]", *SIZES]
    fits = raw(
        GAUSSIAN,
        "gaussian",
        args,
        vjp=lambda g, value, theta, x: (np.zeros(theta.shape, theta.dtype) + g, None),
    )
    assert tg.grad(lambda theta: fits(theta, X).sum())(THETA).tolist() == np.ones((4, 3)).tolist()
    for use in (
        lambda t: t * 2.0,
        lambda t: np.exp(t),
        lambda t: np.sum(t),
        lambda t: X.sum() * t,
        lambda t: t[0],
        lambda t: t.sum(),
    ):
        k = raw(GAUSSIAN, "gaussian", args, vjp=lambda g, value, theta, x: (use(theta), None))
        with pytest.raises(
            KernelError, match="gaussian: a rule read theta, which is declared 'in unsaved real theta"
        ):
            tg.grad(lambda theta: k(theta, X).sum())(THETA)


def test_second_derivatives():
    k = gaussian(2)
    total = lambda theta: k(theta, X).sum()
    pairs = [(0, 0), (1, 1), (2, 2), (3, 3), (0, 2), (1, 3)]
    H = tg.hessian(total)(THETA)
    for sample in range(3):
        got = [H[i, sample, j, sample] for i, j in pairs]
        np.testing.assert_allclose(got, SECOND[sample], rtol=1e-12, atol=1e-9)
    np.testing.assert_array_equal(H[:, 0, :, 1], 0)
    check_grads(total, (THETA,))
    check_grads(lambda theta: k(theta, X) ** 2, (THETA,), rtol=1e-8, atol=1e-6)


def test_a_derivative_beyond_the_last_kernel_names_it():
    with pytest.raises(NoRuleError, match="raw kernel gaussian_vjp was to be differentiated and has no rule"):
        tg.hessian(lambda theta: gaussian()(theta, X).sum())(THETA)
    with pytest.raises(NoRuleError, match="raw kernel gaussian was"):
        tg.grad(lambda theta: gaussian(0)(theta, X).sum())(THETA)
    with pytest.raises(NoRuleError, match="pass jvp="):
        tg.jvp(lambda theta: gaussian(0)(theta, X), (THETA,), (THETA,))
    third = lambda theta: (
        tg.grad(lambda t: tg.hvp(lambda s: gaussian(2)(s, X).sum(), t, THETA).sum())(theta)
    ).sum()
    with pytest.raises(NoRuleError, match="gaussian_vjp_vjp"):
        third(THETA)


# --- rules of other kinds ---


@pytest.mark.long
def test_stencil():
    x = np.random.default_rng(0).normal(size=300)
    k = stencil()
    reference = lambda x: 2 * x - np.concatenate([[0.0], x[:-1]]) - np.concatenate([x[1:] ** 2, [0.0]])
    np.testing.assert_allclose(k(x), reference(x), rtol=1e-14)
    w = np.cos(np.arange(300.0))
    np.testing.assert_allclose(
        tg.grad(lambda x: (w * k(x)).sum())(x), tg.grad(lambda x: (w * reference(x)).sum())(x), rtol=1e-14
    )
    with pytest.raises(NoRuleError, match="would take 300 launches"):
        tg.jvp(k, (x,), (x,))
    np.testing.assert_allclose(
        tg.jvp(k, (x[:50],), (w[:50],))[1], tg.jvp(reference, (x[:50],), (w[:50],))[1], rtol=1e-13
    )
    with_jvp = stencil(jvp=lambda t, y, x: tg.jvp(reference, (x,), (t[0],))[1])
    np.testing.assert_allclose(tg.jvp(with_jvp, (x,), (w,))[1], tg.jvp(reference, (x,), (w,))[1])


def test_samples_that_are_not_independent_are_noticed():
    once = "const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n  if (i < N)"
    every = "for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < N; i += (long long)gridDim.x * blockDim.x)"
    assert STENCIL.count(once) == 2
    for n in (2, 3, 50):
        with pytest.raises(KernelError, match="a seed for one sample reached the derivatives of another"):
            tg.jvp(
                stencil("samples", source=STENCIL.replace(once, every)),
                (np.linspace(1, 2, n),),
                (np.ones(n),),
            )
        with pytest.raises(
            KernelError, match="did not write"
        ):  # it does not loop over the samples, as `samples=` says
            stencil("samples")(np.linspace(1, 2, n))


@pytest.mark.long
def test_shared_arguments_integers_and_scalars():
    rng = np.random.default_rng(0)
    c, x, which = rng.normal(size=3), rng.normal(size=(3, 40)), rng.integers(-1, 3, 40).astype(np.int32)
    k = linear()
    np.testing.assert_allclose(k(c, x, which, 2.5), linear_formula(c, x, which, 2.5), rtol=1e-14)
    for f in (lambda k, c, x: k(c, x, which, 2.5), lambda k, c, x: k(c, x, scale=2.5, which=which)):
        ours, theirs = [
            tg.grad(lambda c, x: (f(k, c, x) ** 2).sum(), (0, 1))(c, x) for k in (k, linear_formula)
        ]
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-13)
    check_grads(lambda c, x: k(c, x, which, 2.5), (c, x), order=1)
    assert any("agree" in line for line in k.check(c, x, which, 2.5))


SCALAR = kernel(
    "scalar",
    "real s, const real* shift, const real* x, real* y, long long B",
    f"{LOOP} y[b] = s * s * x[b] + shift[0];",
) + kernel(
    "scalar_vjp",
    "real s, const real* x, const real* y_bar, real* s_bar, real* shift_bar, real* x_bar, long long B",
    f"{LOOP} {{ s_bar[b] = 2 * s * x[b] * y_bar[b]; shift_bar[b] = y_bar[b]; x_bar[b] = s * s * y_bar[b]; }}",
)


@pytest.mark.long
def test_scalars_with_derivatives(device):
    xp, _ = device
    outs = ["out real s_bar[B]", "out real shift_bar[B]", "out real x_bar[B]"]
    adjoint = raw(SCALAR, "scalar_vjp", ["in real s", "in real x[B]", "in real y_bar[B]", *outs, "size B"])
    k = raw(
        SCALAR,
        "scalar",
        ["in real s", "in real shift[]", "in real x[B]", "out real y[B]", "size B"],
        vjp=adjoint,
    )
    x, w = np.arange(1.0, 5), np.array([1.0, -1, 2, 0.5])
    f = lambda s, shift, x: (k(s, shift, x) * xp.asarray(w)).sum()
    shift = 3.0 if xp is np else xp.asarray(3.0)
    ds, dshift, dx = tg.grad(f, (0, 1, 2))(1.5, shift, xp.asarray(x))
    np.testing.assert_allclose([float(ds), float(dshift)], [3 * (w * x).sum(), w.sum()])
    np.testing.assert_allclose(host(dx), 2.25 * w)
    t = tg.jvp(k, (1.5, shift, xp.asarray(x)), (2.0, 3.0, xp.asarray(w)))[1]
    np.testing.assert_allclose(host(t), 2 * 3 * x + 3 + 2.25 * w)
    if xp is np:
        k.check(1.5, np.asarray(3.0), x)
        check_grads(lambda s, x: k(s, 3.0, x), (1.5, x), order=1)


@pytest.mark.long
def test_loops_with_a_bound_known_at_run_time():
    k = recursion()
    x = np.array([1.5, 2.0])
    np.testing.assert_allclose(
        tg.grad(lambda x: k(x, 3).sum())(x), [7.487055434113092, 17.45818963356281], rtol=1e-15
    )
    many = np.linspace(0.1, 1.2, 1000)
    one = tg.grad(lambda x: k(x, 7).sum())(many)
    np.testing.assert_allclose(
        one, [tg.grad(lambda x: k(x, 7).sum())(many[i : i + 1])[0] for i in range(1000)], rtol=0
    )
    assert tg.grad(lambda x: k(x, 0).sum())(x).tolist() == [0, 0]


PRODUCT = kernel(
    "product",
    "const real* x, real* y, long long N",
    "if (threadIdx.x == 0) { real p = 1; for (long long i = 0; i < N; ++i) p *= x[i]; y[0] = p; }",
) + kernel(
    "product_vjp",
    "const real* x, const real* y_bar, real* x_bar, long long N",
    """  if (threadIdx.x) return;
  real p = 1;
  for (long long i = 0; i < N; ++i) { x_bar[i] = y_bar[0] * p; p *= x[i]; }
  p = 1;
  for (long long i = N - 1; i >= 0; --i) { x_bar[i] *= p; p *= x[i]; }""",
)


@pytest.mark.long
def test_product_loop_and_an_argument_overwritten_after_its_use():
    adjoint = raw(
        PRODUCT, "product_vjp", ["in real x[N]", "in real y_bar[]", "out real x_bar[N]", "size N"], grid=1
    )
    k = raw(PRODUCT, "product", ["in real x[N]", "out real y[]", "size N"], vjp=adjoint, grid=1)
    assert tg.grad(k)(np.full(3, 2.0)).tolist() == [4, 4, 4]
    assert tg.grad(k)(np.array([0.0, 3, 0.0])).tolist() == [0, 0, 0]
    np.testing.assert_allclose(tg.jvp(k, (np.arange(1.0, 5),), (np.ones(4),))[1], 50)
    k.check(np.arange(1.0, 5))
    source = kernel("square", "real* a, real* y, long long B", f"{LOOP} {{ y[b] = a[b] * a[b]; a[b] = 1; }}")
    k = raw(
        source, "square", ["inout real a[B]", "out real y[B]", "size B"], vjp=lambda g, out, a: 2 * a * g[1]
    )
    assert tg.grad(lambda a: k(a)[1].sum())(np.array([1.0, 2, 3])).tolist() == [2, 4, 6]


@pytest.mark.long
def test_while_loop_by_its_forward_rule():
    k = while_loop()
    x = np.array([1.5, 2.0])
    assert tg.jvp(k, (x,), (np.ones(2),))[1].tolist() == [45.5625, 32.0]
    assert tg.grad(lambda x: k(x).sum())(x).tolist() == [45.5625, 32.0]
    assert tg.jacobian(k)(x).tolist() == [[45.5625, 0], [0, 32]]


@pytest.mark.long
def test_kernel_that_writes_in_place():
    k = scale()
    a, b = np.array([1.0, 2, 3]), np.array([4.0, 5, 6])
    assert tg.grad(lambda b: k(a, b).sum())(b).tolist() == [1, 2, 3]
    assert tg.grad(lambda a: k(a, b).sum())(a).tolist() == [4, 5, 6]
    assert a.tolist() == [1, 2, 3]
    assert tg.grad(lambda a: k(k(a, a), a).sum())(a).tolist() == (3 * a * a).tolist()
    zero = lambda y: k(y, np.zeros(2))

    def launches(a):  # y = a a, then a = 0: the gradient is that of the first launch
        y = k(a, a)
        zero(a)
        return y.sum()

    assert tg.grad(launches)(np.array([1.0, 2.0])).tolist() == [2, 4]
    assert any("agree" in line for line in k.check(a, b))


@pytest.mark.long
def test_block_reduction():
    x = np.random.default_rng(0).normal(size=1000)
    k = reduction()
    np.testing.assert_allclose(k(x), (x * x).sum(), rtol=1e-13)
    assert isinstance(k(x), np.float64)
    np.testing.assert_allclose(tg.grad(k)(x), 2 * x)
    check_grads(k, (x,))  # the rule is NumPy code: any order
    assert tg.grad(k)(x.astype(np.float32)).dtype == np.float32


@pytest.mark.long
@pytest.mark.parametrize("outside", [False, True])
def test_dynamic_shared_memory(outside):
    declared = "extern __shared__ real s[];"
    body = """const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  s[threadIdx.x] = i < N ? x[i] : 0;
  __syncthreads();
  for (int k = blockDim.x / 2; k; k /= 2) {
    if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
    __syncthreads();
  }
  if (threadIdx.x == 0) part[blockIdx.x] = s[0];"""
    source = kernel(
        "sums",
        "const real* x, real* part, long long N",
        body if outside else declared + body,
        declared if outside else "",
    )
    spread = lambda g, part, x: np.repeat(g, 64)[: x.size]
    k = raw(
        source,
        "sums",
        ["in real x[N]", "out real part[(N + 63) // 64]", "size N"],
        vjp=spread,
        threads="N",
        block=64,
        shared="threads * real",
    )
    x = np.arange(200.0)
    assert k(x).tolist() == [x[i : i + 64].sum() for i in range(0, 200, 64)]
    assert (
        tg.grad(lambda x: (k(x) * [1.0, 2, 3, 4]).sum())(x).tolist()
        == np.repeat([1.0, 2, 3, 4], 64)[:200].tolist()
    )
    k.check(x, sanitize=True)


def test_assertions_and_large_local_arrays():
    body = f"""{LOOP} {{
    real a[4096];
    for (int i = 0; i < 4096; ++i) a[i] = x[b] * i;
    assert(x[b] < 10);
    __syncwarp();
    real sum = 0;
    for (int i = 0; i < 4096; ++i) sum += a[i];
    y[b] = sum;
  }}"""
    k = raw(
        kernel("f", "const real* x, real* y, long long B", body),
        "f",
        ["in real x[B]", "out real y[B]", "size B"],
        block=32,
    )
    assert k(np.arange(8.0)).tolist() == (np.arange(8.0) * 4096 * 4095 / 2).tolist()
    with pytest.raises(KernelError, match="f: the assertion `x.b. < 10` in line 7 failed"):
        k(np.arange(20.0))


def test_a_cotangent_declared_const_still_transposes():
    """An adjoint with a rule of its own, but none by its cotangent: forward mode of the primal does not use
    that rule."""
    args = [*GIVEN, "const real value_bar[B]", "out real theta_bar[4, B]", *SIZES]
    adjoint = raw(GAUSSIAN, "gaussian_vjp", args, vjp=lambda g, out, *args: (g, None, None))
    k = raw(GAUSSIAN, "gaussian", [*GIVEN, "out real value[B]", *SIZES], vjp=adjoint)
    np.testing.assert_allclose(
        tg.jvp(lambda t: k(t, X), (THETA,), (THETA,))[1], (GRADIENT * THETA).sum(axis=0)
    )


MANY = kernel(
    "many",
    "const real* x, real* y, int* where, real* z, long long B",
    f"{LOOP} {{ y[b] = x[b] * x[b]; where[b] = x[b] > 0; z[b] = x[b] * x[b] * x[b]; }}",
)


def many(vjp=None, **more):
    args = ["in real x[B]", "out unsaved real y[B]", "out int where[B]", "out unsaved real z[B]", "size B"]
    return raw(MANY, "many", args, vjp=vjp or (lambda g, out, x: 2 * x * g[0] + 3 * x * x * g[2]), **more)


@pytest.mark.long
def test_several_outputs():
    k, x = many(), np.array([1.0, -2.0, 3.0])
    y, where, z = k(x)
    assert where.dtype == np.int32 and where.tolist() == [1, 0, 1] and z.tolist() == [1, -8, 27]
    assert tg.grad(lambda x: k(x)[0].sum())(x).tolist() == (2 * x).tolist()
    assert tg.grad(lambda x: k(x)[2].sum())(x).tolist() == (3 * x * x).tolist()
    assert tg.grad(lambda x: (k(x)[2] * k(x)[1]).sum())(x).tolist() == [3, 0, 27]
    check_grads(lambda x: k(x)[0] * k(x)[2], (x,))
    source = MANY + kernel(
        "many_vjp",
        "const real* x, const real* y_bar, const real* z_bar, real* x_bar, long long B",
        f"{LOOP} x_bar[b] = 2 * x[b] * y_bar[b] + 3 * x[b] * x[b] * z_bar[b];",
    )
    adjoint = raw(
        source,
        "many_vjp",
        ["in real x[B]", "in real y_bar[B]", "in real z_bar[B]", "out real x_bar[B]", "size B"],
    )
    check_grads(lambda x: many(adjoint)(x)[0] * many(adjoint)(x)[2], (x,), order=1)
    with pytest.raises(ShapeError, match="vjp returned shape"):
        tg.grad(lambda x: many(lambda g, out, x: 2 * g[0][:2])(x)[0].sum())(x)


def test_rules_in_python_with_kernels_inside():
    both = raw(GAUSSIAN, "gaussian_vjp", [*GIVEN, "in real value_bar[B]", "out real theta_bar[4, B]", *SIZES])
    k = raw(
        GAUSSIAN,
        "gaussian",
        [*GIVEN, "out real value[B]", *SIZES],
        vjp=lambda g, out, theta, x: (g * both(theta, x, np.ones(3)), None),
    )
    np.testing.assert_allclose(tg.grad(lambda theta: k(theta, X).sum())(THETA), GRADIENT)
    np.testing.assert_allclose(
        tg.jvp(lambda theta: k(theta, X), (THETA,), (THETA,))[1], (GRADIENT * THETA).sum(axis=0)
    )


# --- mutation, shadows ---


def test_arguments_written_after_the_call():
    k = gaussian()

    def f(theta, x):
        v = k(theta, x)
        theta[...] = 1.0
        x[...] = 5.0
        return v.sum()

    np.testing.assert_allclose(tg.grad(lambda theta: f(theta, X.copy()))(THETA), GRADIENT)
    x, buffer = X.copy(), np.zeros(3)

    def g(theta):
        buffer[:] = k(theta, x)
        x[...] = 0.0
        return (buffer * buffer).sum()

    np.testing.assert_allclose(tg.grad(g)(THETA), 2 * np.array(VALUE) * GRADIENT)
    np.testing.assert_allclose(buffer, VALUE)
    assert not x.any()


def test_layouts_and_sizes():
    k = gaussian()
    wide = np.zeros((8, 6))
    wide[::2, ::2] = THETA
    np.testing.assert_allclose(k(wide[::2, ::2], np.asfortranarray(X)), VALUE)
    frozen = THETA.copy()
    frozen.flags.writeable = False
    np.testing.assert_allclose(k(frozen, X), VALUE)
    np.testing.assert_allclose(tg.grad(lambda theta: k(theta, X).sum())(wide[::2, ::2]), GRADIENT)
    assert k(np.zeros((4, 0)), X).shape == (0,)
    assert tg.grad(lambda theta: k(theta, X).sum())(np.zeros((4, 0))).shape == (4, 0)
    np.testing.assert_allclose(k(THETA[:, :1], X), VALUE[:1])
    assert k(THETA, np.zeros((2, 0))).tolist() == [0, 0, 0]
    c = tg.grad(lambda c: linear()(c, np.zeros((3, 0)), np.zeros(0, np.int32), 1.0).sum())(np.ones(3))
    assert c.tolist() == [0, 0, 0]
    assert reduction()(np.zeros(0)) == 0
    rng = np.random.default_rng(0)
    theta, x = 1 + rng.random((4, 3000)), rng.normal(size=(2, 200))
    reference = -0.5 * (((x[:, None] - theta[:2, :, None]) / theta[2:, :, None]) ** 2).sum(
        (0, 2)
    ) - 200 * np.log(2 * np.pi * theta[2] * theta[3])
    np.testing.assert_allclose(k(theta, x), reference, rtol=1e-12)


# --- random formulas ---


def random_formula(seed):
    """A smooth formula of p parameters and a datum, by sympy."""
    rng = np.random.default_rng(seed)
    theta, x = sympy.symbols(f"t0:{2 + seed % 2}"), sympy.Symbol("x")
    e = x
    for _ in range(5):
        a, b = [theta[i] for i in rng.integers(0, len(theta), 2)]
        e = [
            lambda: sympy.sin(e * a) + b,
            lambda: e * a + b * x,
            lambda: sympy.exp(-((e - a) ** 2)) * b,
            lambda: e / (1 + a * a),
        ][rng.integers(4)]()
    return theta, x, e * theta[0] + theta[1] ** 2


def formula_kernels(theta, x, e):
    """value = sum over data of the formula, its adjoint, and the adjoint of that, written by sympy."""
    p = len(theta)
    u = sympy.symbols(f"u0:{p}")
    gradient = [sympy.diff(e, t) for t in theta]
    slope = sum(g * v for g, v in zip(gradient, u, strict=True))
    curved = [sympy.diff(slope, t) for t in theta]

    def text(name, parameters, sums, outs):
        load = "".join(f"const real t{k} = theta[{k} * B + b];" for k in range(p))
        load += (
            "".join(f"const real u{k} = theta_bar_bar[{k} * B + b];" for k in range(p))
            if "theta_bar_bar" in parameters
            else ""
        )
        lines = [f"real s{k} = 0;" for k in range(len(sums))]
        adds = "".join(f"s{k} += {sympy.ccode(s)};" for k, s in enumerate(sums))
        lines.append(f"for (long long i = 0; i < N; ++i) {{ const real x = data[i]; {adds} }}")
        body = f"{LOOP} {{ {load} {' '.join(lines)} {' '.join(outs)} }}"
        return kernel(
            name, f"const real* theta, const real* data, {parameters}, long long B, long long N", body
        )

    bars = [f"theta_bar[{k} * B + b] = value_bar[b] * s{k};" for k in range(p)]
    source = text("f", "real* value", [e], ["value[b] = s0;"])
    source += text("f_vjp", "const real* value_bar, real* theta_bar", gradient, bars)
    second = "const real* value_bar, const real* theta_bar_bar, real* theta_bar, real* value_bar_bar"
    source += text("f_vjp_vjp", second, [*curved, slope], [*bars, f"value_bar_bar[b] = s{p};"])
    given, sizes = [f"in real theta[{p}, B]", "const real data[N]"], ["size B", "size N"]
    first = [*given, "in real value_bar[B]"]
    outs = [f"out real theta_bar[{p}, B]", "out real value_bar_bar[B]"]
    two = raw(source, "f_vjp_vjp", [*first, f"in real theta_bar_bar[{p}, B]", *outs, *sizes])
    one = raw(source, "f_vjp", [*first, outs[0], *sizes], vjp=two)
    return raw(source, "f", [*given, "out real value[B]", *sizes], vjp=one)


@pytest.mark.long
@pytest.mark.parametrize("seed", [*range(2), *[pytest.param(n, marks=pytest.mark.long) for n in range(2, 8)]])
def test_random_formulas(seed):
    """Value and all derivatives of two orders against the array tape, within programs that write and take
    parts."""
    theta, x, e = random_formula(seed)
    k, formula = formula_kernels(theta, x, e), sympy.lambdify([*theta, x], e, "numpy")
    rng = np.random.default_rng(seed)
    point, data, w = rng.uniform(0.3, 1.2, (len(theta), 5)), rng.uniform(-1, 1, 7), rng.normal(size=5)

    def tape(theta, data):
        return formula(*[t[:, None] for t in theta], data).sum(axis=1)

    def program(f):
        def run(theta):
            buffer = np.zeros(5)
            buffer[1:] = f(theta * 1.0, data)[1:]
            buffer[:2] += f(np.sin(theta), data)[:2] * w[:2]
            return (buffer**2 * w).sum()

        return run

    ours, theirs = program(k), program(tape)
    np.testing.assert_allclose(k(point, data), tape(point, data), rtol=1e-13)
    np.testing.assert_allclose(tg.grad(ours)(point), tg.grad(theirs)(point), rtol=1e-10, atol=1e-12)
    v = rng.normal(size=point.shape)
    np.testing.assert_allclose(tg.jvp(ours, (point,), (v,))[1], tg.jvp(theirs, (point,), (v,))[1], rtol=1e-10)
    np.testing.assert_allclose(tg.hvp(ours, point, v), tg.hvp(theirs, point, v), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(tg.hessian(ours)(point), tg.hessian(theirs)(point), rtol=1e-9, atol=1e-10)
