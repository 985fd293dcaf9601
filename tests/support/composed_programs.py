"""Programs that nest constructs: loops, solvers, integrals, transforms, kernels and models, one inside another.

A construct makes a function R^3 -> R^3 of another one, which it calls as the callback or uses for its
parameters. `drawn(seed)` nests up to three of them over a plain function; `judge` compares the derivatives that
each transform gives with differences of the plain calls."""

import functools

import numba
import numpy as np
import scipy.integrate as si
import scipy.interpolate as sp
import scipy.linalg as sl
import scipy.optimize as so
import scipy.signal as sg
import scipy.sparse as ss
import scipy.sparse.linalg as sla
import scipy.special as sc
import scipy.stats

import tapegrad as tg

SHIFT = np.array([0.3, -0.2, 0.5])
A = np.array([[1.2, 0.1, 0.0], [0.2, 1.4, 0.1], [0.0, 0.3, 1.1]])
WEIGHTS, DIRECTION = np.array([1.0, -0.7, 0.4]), np.array([0.3, 0.8, -0.5])
DATA = np.where(np.arange(12) == 5, np.nan, 1.3 * np.sin(np.arange(12.0)))
WHOLE = 1.3 * np.sin(np.arange(12.0))
BUFFER = np.zeros(3)

# --- plain functions ---


def written(x):
    out = np.empty(3)
    out[0] = x[1]
    out[1:] = np.cos(x[:2])
    out[1] += x[2] * 0.3
    return out


def captured(x):
    BUFFER[:] = x * 0.5
    BUFFER[1] += np.sin(BUFFER[0])
    return BUFFER.copy()


PLAIN = {
    "tanh": lambda x: np.tanh(x + SHIFT),
    "linear": lambda x: A @ x * 0.5,
    "mixed": lambda x: np.sin(x) + 0.2 * x[::-1],
    "written": written,
    "captured": captured,
    "numbers": lambda x: np.array([float(x[0]) * 0.5, np.exp(-(x[1] ** 2)), x[2]]),
    "softmax": lambda x: x - np.log(np.exp(x).sum()),
    "permuted": lambda x: x[[2, 0, 1]] * 0.7,
}

# --- constructs: of a function, a function ---

CONSTRUCTS = {}


def construct(made):
    CONSTRUCTS[made.__name__] = made
    return made


def repeated(F, y, *args):
    for _ in range(80):
        y = F(y, *args)
    return y


def of_residual(F, y, *args):
    for _ in range(80):
        y = y - F(y, *args)
    return y


def by_bfgs(F, y, *args):
    options = dict(gtol=1e-12)
    return so.minimize(F, y, args, "BFGS", tg.grad(F), tol=1e-14, options=options).x


def values_and(**named):
    """Constructs in one line: `f` is the function, `x` its argument."""
    for name, made in named.items():
        CONSTRUCTS[name] = lambda f, made=made: lambda x: made(f, x)


values_and(
    loop=lambda f, x: tg.loop(4, lambda i, s: s * 0.8 + 0.2 * f(s), x * 1.0),
    loop_of_captured=lambda f, x: tg.loop(3, lambda i, s: 0.5 * s + 0.2 * f(s + x), np.zeros(3), snapshots=2),
    checkpoint=lambda f, x: tg.checkpoint(f)(x) * 1.1,
    root=lambda f, x: tg.implicit.root(lambda y, x: y - 0.2 * f(y) - x, of_residual)(np.zeros(3), x),
    root_of_captured=lambda f, x: tg.implicit.root(lambda y: y - 0.2 * f(y) - x, of_residual)(np.zeros(3)),
    fixed_point=lambda f, x: tg.implicit.fixed_point(lambda y, x: 0.2 * f(y) + x, repeated)(np.zeros(3), x),
    solve_ivp=lambda f, x: si.solve_ivp(
        lambda t, y: 0.3 * f(y) - 0.1 * y + 0.1 * x, (0, 1), x, t_eval=[1.0], rtol=1e-10, atol=1e-12
    ).y[:, -1],
    solve_ivp_stiff=lambda f, x: si.solve_ivp(
        lambda t, y: 0.3 * f(y), (0, 1), x, "Radau", [1.0], rtol=1e-9, atol=1e-11
    ).y[:, -1],
    odeint=lambda f, x: si.odeint(lambda y, t: 0.3 * f(y), x, [0.0, 0.5, 1.0], rtol=1e-10, atol=1e-12)[-1],
    quad=lambda f, x: np.stack(
        [si.quad(lambda t, i=i: f(x * t)[i], 0, 1, epsabs=1e-10)[0] for i in range(3)]
    ),
    quad_vec=lambda f, x: si.quad_vec(lambda t: f(x * t), 0, 1, epsabs=1e-11)[0],
    dblquad=lambda f, x: x * si.dblquad(lambda a, b: f(x * a * b).sum(), 0, 1, 0, 1)[0],
    scipy_root=lambda f, x: so.root(lambda y: y - 0.2 * f(y) - x, np.zeros(3), tol=1e-13).x,
    brentq=lambda f, x: x * so.brentq(lambda t: t - 0.2 * f(x * t)[0] - 0.3, -5, 5, xtol=1e-14, rtol=1e-14),
    newton=lambda f, x: x + so.newton(lambda t: t - 0.2 * f(x * t)[1] - 0.3, 0.1, tol=1e-13),
    minimize=lambda f, x: (
        so.minimize(
            lambda y: 0.5 * ((y - x) ** 2).sum() + 0.05 * (f(y) ** 2).sum(),
            np.zeros(3),
            tol=1e-12,
            method="BFGS",
        ).x
    ),
    least_squares=lambda f, x: (
        so.least_squares(
            lambda y: np.concatenate([y - x, 0.2 * f(y)]), np.zeros(3), xtol=1e-14, ftol=1e-14, gtol=1e-14
        ).x
    ),
    linprog=lambda f, x: so.linprog(1 + 0.1 * f(x), A_ub=-np.eye(3), b_ub=-x).x,
    grad=lambda f, x: tg.grad(lambda y: 0.5 * (f(y) ** 2).sum() * y.sum())(x),
    hvp=lambda f, x: tg.hvp(lambda y: (f(y) ** 2).sum() * x[0], x * 1.0, x),
    jvp=lambda f, x: tg.jvp(f, (x,), (x * 0.5 + SHIFT,))[1],
    vjp=lambda f, x: tg.vjp(f, x)[1](np.sin(x)),
    jacobian=lambda f, x: tg.jacobian(f)(x) @ x,
    jacobian_forward=lambda f, x: tg.jacobian(f, mode="forward")(x) @ SHIFT,
    hessian=lambda f, x: tg.hessian(lambda y: (f(y) ** 2).sum())(x) @ x,
    linearize=lambda f, x: tg.linearize(f, x)[1](x * x),
    vmap=lambda f, x: tg.vmap(f)(np.stack([x, x * 0.5, -x])).sum(0),
    vmap_of_captured=lambda f, x: tg.vmap(lambda s: f(x * s))(np.array([1.0, 0.5, 2.0])).mean(0),
    vmap_of_grad=lambda f, x: tg.vmap(tg.grad(lambda y: (f(y) ** 2).sum()))(np.stack([x, 0.3 * x])).sum(0),
    prepare=lambda f, x: tg.prepare(f, np.zeros(3))(x),
    prepare_grad=lambda f, x: tg.prepare(lambda y: (f(y) ** 2).sum(), np.ones(3)).grad(x),
    propagate=lambda f, x: tg.propagate(f, x, 0.1 * np.eye(3) + 0.02).cov[0],
    cg=lambda f, x: sla.cg(
        sla.LinearOperator((3, 3), matvec=lambda v: v * (2 + f(x) ** 2), dtype=float), x, rtol=1e-14
    )[0],
    gmres=lambda f, x: sla.gmres(A + np.diag(0.2 * f(x)), x, rtol=1e-13)[0],
    spsolve=lambda f, x: sla.spsolve(ss.csc_array(np.diag(3 + f(x)) + 0.1), x),
    cholesky=lambda f, x: tg.sparse.cholesky(ss.csr_array(np.diag(2 + f(x) ** 2) + 0.3)).solve(x),
    solve=lambda f, x: sl.solve(A + np.diag(0.2 * f(x)), x),
    spline=lambda f, x: sp.CubicSpline(np.array([0.0, 1, 2]), f(x))(np.array([0.2, 0.9, 1.7])),
    spline_at=lambda f, x: sp.CubicSpline(np.arange(-9.0, 10), np.sin(np.arange(-9.0, 10)))(f(x)),
    lfilter=lambda f, x: sg.lfilter([1.0, 0.2], np.concatenate([np.ones(1), f(x)[:2] * 0.2]), x),
    fourier=lambda f, x: np.fft.irfft(np.fft.rfft(f(x), 8) * np.exp(-0.1 * np.arange(5)), 8)[:3],
    complex=lambda f, x: np.abs(f(x) + 1j * x) ** 2 + np.angle(1 + f(x) * 1j),
    singular_values=lambda f, x: np.linalg.svd(np.diag(2 + f(x)) + A, compute_uv=False),
    vectorize=lambda f, x: np.vectorize(lambda a: np.sin(a) * a)(f(x)),
    along_axis=lambda f, x: np.apply_along_axis(f, 1, np.stack([x, 2 * x])).sum(0),
    mapped=lambda f, x: np.array(list(map(np.sin, f(x)))),
    reduced=lambda f, x: functools.reduce(lambda a, b: a * 0.5 + f(b), [x, x * x, SHIFT]),
    add_at=lambda f, x: np.stack([x[0] + 0 * x, f(x), x * x])[[0, 1, 1]].sum(0),
    tree=lambda f, x: (lambda d: d["a"] * d["b"][0])(
        tg.checkpoint(lambda t: {"a": f(t["x"]), "b": [t["x"] * 2]})({"x": x})
    ),
    special=lambda f, x: sc.gammainc(1 + f(x) ** 2, 1 + x**2),
    local_level=lambda f, x: (
        x * 0.05 * tg.statespace.loglik(tg.statespace.local_level(*np.exp(f(x)[:2])), DATA)
    ),
    garch=lambda f, x: (
        x
        * 0.05
        * tg.kernels.garch.loglik(
            np.stack([f(x)[0] * 0.1, 0.2 + x[1] ** 2, 0.1 + 0.05 * np.tanh(f(x)[2]), 0.5 + 0 * x[0]]), WHOLE
        )
    ),
    kernel=lambda f, x: tg.kernels.map(lambda a, b: a * np.sin(b) + b * b)(f(x), x),
    ode=lambda f, x: DECAY(x, f(x) ** 2).y[:, -1],
    ode_stiff=lambda f, x: STIFF(x, 1 + f(x) ** 2).y[:, -1],
    compiled_loop=lambda f, x: compiled_loop(f(x), x),
    compiled_ufunc=lambda f, x: compiled_ufunc(f(x), x),
)

right = lambda t, y, p: -p * y + 0.3 * np.sin(y) * t
TIMES = np.array([0.0, 0.4, 1.0])
DECAY = tg.ode.solver(right, "tsit5", rtol=1e-9, atol=1e-11, save_at=TIMES)
STIFF = tg.ode.solver(right, "rodas5p", rtol=1e-8, atol=1e-10, save_at=TIMES)


@numba.njit
def compiled_loop(x, p):
    out = np.zeros(3)
    for k in range(4):
        for i in range(3):
            out[i] += p[i] * np.sin(x[(i + k) % 3]) * 0.3
    return out


@numba.vectorize
def compiled_ufunc(a, b):
    return a * np.sin(b) if a > -9 else b


@construct
def loop_that_writes(f):
    def g(x):
        total = np.zeros(3)

        def step(i, s):
            total[...] += 0.2 * f(s)
            return s + 0.1 * total

        return tg.loop(4, step, x * 1.0) + total

    return g


@construct
def minimum(f):
    def g(x):
        cost = lambda y, x: 0.5 * ((y - x) ** 2).sum() + 0.05 * (f(y) ** 2).sum()
        return tg.implicit.minimum(cost, by_bfgs, tol=1e-5)(np.zeros(3), x)

    return g


@construct
def prepared_once(f):
    kept = []

    def g(x):
        if not kept:
            kept.append(tg.prepare(f, np.ones(3)))
        return kept[0](x)

    return g


@construct
def kept_buffer(f):
    rows = np.zeros((2, 3))

    def g(x):
        rows[0] = f(x)
        np.multiply(rows[0], x, out=rows[1])
        return rows[1] + rows[0]

    return g


@construct
def marginal(f):
    log_joint = lambda p, z: -0.5 * ((z - p) ** 2).sum() - 0.1 * (z**4).sum()
    integrated = tg.sparse.prepare_laplace(log_joint, np.ones(3), np.zeros(3))
    return lambda x: x * 0.2 * integrated(f(x))


@construct
def caught(f):
    def g(x):
        try:
            y = f(x)
            np.linalg.cholesky(-np.eye(3))
        except np.linalg.LinAlgError:
            return y * 0.9

    return g


@construct
def generated(f):
    def parts(x):
        for k in range(3):
            yield f(x * (k + 1) / 3)[k]

    return lambda x: np.array(list(parts(x)))


@construct
def instance(f):
    class Model:
        def __init__(self):
            self.out = np.zeros(3)

        def __call__(self, x):
            self.out[:] = f(x)
            self.last = x * 2
            return self.out + self.last

    return Model()


@construct
def matrix(f):
    def g(x):
        M = np.eye(3)
        M[1] = f(x)
        M[:, 2] *= x
        return M @ x

    return g


CUBED = {
    "pulled": tg.rule(lambda a, b: a**3 * b, vjp=lambda g, out, a, b: (g * 3 * a**2 * b, g * a**3)),
    "pushed": tg.rule(
        lambda a, b: a**3 * b, jvp=lambda t, out, a, b: or_zero(t[0]) * 3 * a**2 * b + or_zero(t[1]) * a**3
    ),
}
or_zero = lambda t: 0.0 if t is None else t
values_and(
    rule_pulled=lambda f, x: CUBED["pulled"](f(x), x),
    rule_pushed=lambda f, x: CUBED["pushed"](f(x), x),
    cumulated=lambda f, x: np.cumsum(f(x)) + np.maximum.accumulate(x + SHIFT * 9),
    einsum=lambda f, x: np.einsum("i,j,jk->k", f(x), x, A),
    shared=lambda f, x: (lambda y: np.concatenate([y[:1], (y[1:] * y[:-1])]) + y.reshape(3, 1).T[0])(f(x)),
    norms=lambda f, x: f(x) / np.linalg.norm(1 + x) + np.hypot(f(x), x + 2),
    recursion=lambda f, x: x * 0.05 * RECURSION(0.3 * np.tanh(f(x)), WHOLE),
    solver_object=lambda f, x: (
        si.ode(lambda t, y: 0.3 * f(y))
        .set_integrator("dopri5", rtol=1e-10, atol=1e-12)
        .set_initial_value(x, 0)
        .integrate(1.0)
    ),
    curve_fit=lambda f, x: so.curve_fit(
        lambda t, a, b, c: a + b * t + c * t * t, GRID, np.sin(2 * GRID) * x[0] + x[1] + f(x)[2] * GRID**2
    )[0],
    bvp=lambda f, x: (
        x
        * si.solve_bvp(
            lambda t, y: np.stack([y[1], -0.2 * y[0]]),
            lambda a, b: np.array([a[0] - f(x)[0], b[0] - x[1]]),
            GRID,
            np.zeros((2, 6)),
            tol=1e-8,
        ).y[0, 3]
    ),
    density=lambda f, x: x * scipy.stats.multivariate_normal.logpdf(x, f(x), A @ A.T),
)
GRID = np.linspace(0, 1, 6)
RECURSION = tg.kernels.recursion(
    lambda theta: 0.0,
    lambda m, theta, y: (theta[0] * y + theta[1] * m, -0.5 * (y - m) ** 2 * theta[2]),
)


@construct
def stateful(f):
    total = np.zeros(3)

    def step(x):
        total[:] += f(x)
        return total * x

    g = tg.stateful(step, total)

    def run(x):
        y, (left,) = g((x * 0.5,), x)
        return y + left

    return run


@construct
def default_argument(f):
    def g(x, kept={}):  # noqa: B006
        kept["y"] = f(x)
        return kept["y"] + kept["y"] ** 2

    return g


@construct
def while_loop(f):
    def g(x):
        y, n = x, 0
        while n < 6 and np.abs(y).max() > 1e-3:
            y, n = 0.25 * f(y) + 0.2 * y, n + 1
        return y + x

    return g


# --- transforms: the derivative along DIRECTION, and the second one ---

pair = lambda x: np.stack([x, x])
apart = lambda x: np.stack([x + 0.1, x])
slope = lambda L: lambda x: tg.grad(L)(x) @ DIRECTION
pushed = lambda L: lambda x: tg.jvp(L, (x,), (DIRECTION,))[1]
of_pair = lambda L: lambda x: tg.vmap(L)(pair(x)).sum() / 2


def replayed(L, x, compile="auto"):
    p = tg.prepare(L, x + 0.05, compile=compile)
    p.value_and_grad(x + 0.02)
    return p.value_and_grad(x)[1] @ DIRECTION


FIRST = {
    "grad": lambda L, x: slope(L)(x),
    "jvp": lambda L, x: pushed(L)(x),
    "forward jacobian": lambda L, x: tg.jacobian(L, mode="forward")(x) @ DIRECTION,
    "vmap of grad": lambda L, x: tg.vmap(slope(L))(apart(x))[1],
    "vmap of jvp": lambda L, x: tg.vmap(pushed(L))(apart(x))[1],
    "grad of vmap": lambda L, x: slope(lambda a: tg.vmap(L)(apart(a))[1])(x),
    "grad of vmap, equal": lambda L, x: slope(of_pair(L))(x),
    "grad of vmap, captured": lambda L, x: slope(
        lambda a: tg.vmap(lambda s: L(a) * s)(np.array([1.0, 2.0])).sum() / 3
    )(x),
    "jvp of vmap, chunks": lambda L, x: pushed(lambda a: tg.vmap(L, chunk=1)(pair(a)).sum() / 2)(x),
    "replay": replayed,
    "replay, compiled": lambda L, x: replayed(L, x, True),
    "grad of replay": lambda L, x: slope(tg.prepare(L, x + 0.02))(x),
    "vmap of grad of replay": lambda L, x: tg.vmap(slope(tg.prepare(L, x + 0.02)))(apart(x))[1],
}
SECOND = {
    "hvp": lambda L, x: tg.hvp(L, x, DIRECTION) @ DIRECTION,
    "grad of grad": lambda L, x: slope(slope(L))(x),
    "jvp of jvp": lambda L, x: pushed(pushed(L))(x),
    "grad of jvp": lambda L, x: slope(pushed(L))(x),
    "hessian": lambda L, x: DIRECTION @ tg.hessian(L)(x) @ DIRECTION,
    "replayed hvp": lambda L, x: tg.prepare(L, x + 0.05).hvp(x, DIRECTION) @ DIRECTION,
    "vmap of hvp": lambda L, x: tg.vmap(lambda a: tg.hvp(L, a, DIRECTION))(apart(x))[1] @ DIRECTION,
    "hvp of vmap": lambda L, x: tg.hvp(of_pair(L), x, DIRECTION) @ DIRECTION,
    "grad of vmap of grad": lambda L, x: slope(lambda a: tg.vmap(slope(L))(apart(a))[1])(x),
    "jvp of vmap of jvp": lambda L, x: pushed(of_pair(pushed(L)))(x),
}


def difference(L, x, order):
    """(the derivative of this order along DIRECTION, by extrapolated differences, and an estimate of its error)"""
    along = lambda t: float(L(x + t * DIRECTION))
    steps = {
        1: lambda h: (along(h) - along(-h)) / (2 * h),
        2: lambda h: (along(h) - 2 * along(0.0) + along(-h)) / h**2,
    }
    h = {1: 2e-3, 2: 2e-2}[order]
    a, b, c = [steps[order](h / k) for k in (1, 2, 4)]
    fine, finer = (4 * b - a) / 3, (4 * c - b) / 3
    return (16 * finer - fine) / 15, abs(finer - fine)


class Composed:
    """A nest of constructs over a plain function, as a number of x."""

    def __init__(self, names, plain, x):
        self.name, self.x = " of ".join([*names, plain]), x
        f = PLAIN[plain]
        for name in reversed(names):
            f = CONSTRUCTS[name](f)
        self.f = f

    def __call__(self, x):
        return (WEIGHTS * self.f(x)).sum()

    def judge(self, names):
        """name of a transform -> 'right', 'refused', 'unjudged' (the plain program has no differences), or what
        is wrong."""
        found = {}
        for order, table in ((1, FIRST), (2, SECOND)):
            chosen = [n for n in names if n in table]
            try:
                want, error = difference(self, self.x, order) if chosen else (0.0, 0.0)
            except (tg.errors.TapegradError, RuntimeError, ValueError, TypeError):
                return dict.fromkeys(names, "unjudged")
            near = {1: 1e-6, 2: 1e-4}[order] * (1 + abs(want)) + 20 * error
            for name in chosen:
                try:
                    got = float(table[name](self, self.x))
                except tg.errors.TapegradError:
                    found[name] = "refused"
                    continue
                found[name] = "right" if abs(got - want) <= near else f"{got} instead of {want}"
        return found


# they call their function hundreds of times: one in a nest
MANY_CALLS = set(
    "root root_of_captured fixed_point solve_ivp solve_ivp_stiff odeint quad quad_vec dblquad scipy_root brentq "
    "newton minimize least_squares minimum solver_object".split()
)


def drawn(seed):
    r = np.random.default_rng(seed)
    names = [str(r.choice(list(CONSTRUCTS))) for _ in range(r.integers(1, 4))]
    while sum([n in MANY_CALLS for n in names]) > 1:
        names[r.integers(len(names))] = str(r.choice(list(CONSTRUCTS)))
    x = np.array([0.4, -0.3, 0.25]) + 0.1 * r.standard_normal(3)
    transforms = [*r.choice(list(FIRST), 3, replace=False), str(r.choice(list(SECOND)))]
    return Composed(names, str(r.choice(list(PLAIN))), x), [str(t) for t in transforms]
