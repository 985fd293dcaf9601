"""Discussion 3: functions that write the buffers they captured."""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from _modes import check_first, check_second, complex_step, nested
from comparison import close, host

import tapegrad as tg

pytestmark = pytest.mark.smoke

GLOBAL = np.zeros(1)
BOX = np.array(0.0)
TOTALS = {"calls": 0}


# --- C1: a buffer that is written and read ---


class Holder:
    def __init__(self, a):
        self.a = a

    def method(self, x):
        self.a[0] = 1
        self.a[0] += x
        return self.a[0] ** 2

    __call__ = method


class Slotted:
    __slots__ = ("a",)

    def __init__(self, a):
        self.a = a

    def __call__(self, x):
        self.a[0] = 1
        self.a[0] += x
        return self.a[0] ** 2


@dataclass
class Work:
    a: Any


def with_global(x):
    GLOBAL[0] = 1
    GLOBAL[0] += x
    return GLOBAL[0] ** 2


def helper(a, x):
    a[0] = 1
    a[0] += x
    return a[0] ** 2


def captures(a):
    """The program of the discussion, with the buffer reached in every way that Python has."""

    def closure(x):
        a[0] = 1
        a[0] += x
        return a[0] ** 2

    def default(x, a=a):
        a[0] = 1
        a[0] += x
        return a[0] ** 2

    def keyword_default(x, *, a=a):
        a[0] = 1
        a[0] += x
        return a[0] ** 2

    holder, work, box, table = Holder(a), Work(a), [a], {"a": a}

    def attribute(x):
        holder.a[0] = 1
        holder.a[0] += x
        return holder.a[0] ** 2

    def member(x):
        work.a[0], y = 1, box[0]
        y[0] += x
        return table["a"][0] ** 2

    def nested_helper(x):
        def inner():
            a[0] += x

        a[0] = 1
        inner()
        return sum(a[i] ** 2 for i in range(1))

    def nested_generator(x):
        a[0] = 1
        a[0] += sum(v for v in [x])
        return [a[0] ** 2 for _ in range(1)][0]

    return {
        "closure": closure,
        "default": default,
        "keyword default": keyword_default,
        "attribute": attribute,
        "containers and dataclass": member,
        "helper": functools.partial(helper, a),
        "nested": nested_helper,
        "generator": nested_generator,
        "method": holder.method,
        "callable": holder,
        "slots": Slotted(a),
    }


def check_c1(xp, f, a):
    x = xp.asarray(3.0)
    for _ in range(10):
        value, gradient = tg.value_and_grad(f)(x)
        close(value, 16.0)
        close(gradient, 8.0)
        close(tg.jvp(f, (x,), (xp.asarray(1.0),))[1], 8.0)
        for product in (
            tg.hvp(f, x, xp.asarray(1.0)),
            tg.hessian(f)(x),
            tg.jvp(lambda z: tg.jvp(f, (z,), (xp.asarray(1.0),))[1], (x,), (xp.asarray(1.0),))[1],
            tg.grad(lambda z: tg.jvp(f, (z,), (xp.asarray(1.0),))[1])(x),
            tg.grad(lambda z: tg.grad(f)(z))(x),
        ):
            close(product, 2.0)
        assert type(a) is xp.ndarray
        close(a, [4.0])
    close(f(x), 16.0)


@pytest.mark.parametrize("way", captures(np.zeros(1)))
def test_c1_captured_buffer(xp, way):
    a = xp.zeros(1)
    check_c1(xp, captures(a)[way], a)


def test_c1_global():
    check_c1(np, with_global, GLOBAL)


@pytest.mark.parametrize("modes", ["F", "R", "FF", "FR", "RF", "RR", "FRF", "RFR"])
def test_c1_python_float(modes):
    f = captures(np.zeros(1))["closure"]
    close(nested(modes, f)(3.0), {1: 8.0, 2: 2.0, 3: 0.0}[len(modes)], atol=0)


def test_c1_views_of_one_buffer(xp):
    base = xp.zeros(6)
    left, right, every = base[:3], base[3:], base[::2]

    def f(x):
        base[...] = 1
        left[...] *= x
        right[...] = left * x
        every[1] = every[1] + right[0] ** 2  # base[2] = x + x^4
        return (base**2).sum() + left[2]

    x = xp.asarray(1.5)
    # base = (x, x, x + x^4, x^2, x^2, x^2)
    z = 1.5
    slope = 4 * z + 2 * (z + z**4) * (1 + 4 * z**3) + 12 * z**3 + 1 + 4 * z**3
    curvature = 4 + 2 * (1 + 4 * z**3) ** 2 + 2 * (z + z**4) * 12 * z**2 + 36 * z**2 + 12 * z**2
    for _ in range(3):
        close(tg.grad(f)(x), slope)
        close(tg.hvp(f, x, xp.asarray(1.0)), curvature)
        close(tg.jvp(f, (x,), (xp.asarray(1.0),))[1], slope)
        close(base, [z, z, z + z**4, z**2, z**2, z**2])
        close(left, host(base)[:3])


def test_c1_written_back_when_f_raises(xp):
    a = xp.zeros(3)

    def f(x):
        a[0] = x
        a[1] = 2 * x
        if host(tg.value(x)) > 1:
            raise LookupError("half-way")
        a[2] = 3 * x
        return a.sum()

    with pytest.raises(LookupError, match="half-way"):
        tg.grad(f)(xp.asarray(5.0))
    assert type(a) is xp.ndarray
    close(a, [5.0, 10.0, 0.0])
    close(tg.grad(f)(xp.asarray(0.5)), 6.0)
    close(a, [0.5, 1.0, 1.5])


def test_c1_rebound_names():
    history = []
    total = 0.0

    def f(x):
        nonlocal total
        total = total + x
        history.append(x * 2)
        TOTALS["last"] = x**2
        TOTALS["calls"] += 1
        return total**2

    calls = TOTALS["calls"]
    for k in range(1, 4):
        assert tg.grad(f)(1.5) == 2 * 1.5 * k  # what an earlier call left is a constant
        assert total == 1.5 * k
        assert not isinstance(total, tg.Variable)
    assert history == [3.0, 3.0, 3.0] and not any(isinstance(h, tg.Variable) for h in history)
    assert (
        TOTALS["last"] == 2.25
        and TOTALS["calls"] == calls + 3
        and not isinstance(TOTALS["last"], tg.Variable)
    )


# --- C2: a network that nothing active reaches ---


class Network:
    def __init__(self, xp):
        self.xp = xp
        self.weights = [xp.full((4, 4), 0.1), xp.full((4, 4), 0.2)]
        self.calls = 0

    def __call__(self):
        self.calls += 1
        h = self.xp.ones(4)
        for w in self.weights:
            h = self.xp.tanh(w @ h)
        return h.sum()


@pytest.mark.parametrize("wrap", [lambda n: n, tg.Const], ids=["shadowed", "Const"])
def test_c2_captured_network(xp, wrap):
    network = Network(xp)
    NN = wrap(network)
    f = lambda x: NN() + x
    x = xp.asarray(3.1)
    for k in range(1, 4):
        value, gradient = tg.value_and_grad(f)(x)
        close(gradient, 1.0)
        assert network.calls == k
    close(value, host(Network(xp)()) + 3.1)
    with tg.Tape() as tape:
        z = tape.watch(x)
        f(z)
    assert len(tape._trace.records) == 2  # x, and the addition
    assert all(type(w) is xp.ndarray for w in network.weights)


def test_c2_parameters_of_another_library_are_left_alone():
    class Parameter:
        requires_grad = True
        grad = None

        def __init__(self, data):
            self.data = data

    p = Parameter(np.array([2.0, 3.0]))
    f = lambda x: (p.data * x).sum()
    close(tg.grad(f)(np.array([1.0, 1.0])), [2.0, 3.0])
    assert p.grad is None and p.requires_grad and type(p.data) is np.ndarray and type(p) is Parameter


# --- C3: reaction and diffusion, exactly as a user wrote it ---


def gm3(xp, N):
    Ax = -2 * xp.eye(N) + xp.eye(N, k=1) + xp.eye(N, k=-1)
    Ay = Ax.copy()
    Ax[1, 0] = Ax[-2, -1] = 2.0
    Ay[0, 1] = Ay[-1, -2] = 2.0
    Ayu = xp.zeros((N, N))
    uAx = xp.zeros((N, N))
    Du = xp.zeros((N, N))
    Ayv = xp.zeros((N, N))
    vAx = xp.zeros((N, N))
    Dv = xp.zeros((N, N))

    def gm3(dr, r, p, t):
        a, α, ubar, β, D1, D2 = p
        u = r[:, :, 0]
        v = r[:, :, 1]
        du = dr[:, :, 0]
        dv = dr[:, :, 1]
        xp.matmul(Ay, u, out=Ayu)
        xp.matmul(u, Ax, out=uAx)
        xp.matmul(Ay, v, out=Ayv)
        xp.matmul(v, Ax, out=vAx)
        Du[:] = D1 * (Ayu + uAx)
        Dv[:] = D2 * (Ayv + vAx)
        du[:] = Du + a * u * u / v + ubar - α * u
        dv[:] = Dv + a * u * u - β * v

    return gm3, (Ax, Ay), (Ayu, uAx, Du, Ayv, vAx, Dv)


P = (1.0, 1.0, 1.0, 10.0, 0.001, 100.0)
DP = (
    -1948.5968973755573,
    -2.5757662897924303,
    0.222318753194628,
    272.4411033125247,
    -0.5495918100398445,
    324.60836399657745,
)
DR00 = (-1903.8713270400801, 41594.14911766717)
LOSS = 16617.14826913951


def state(N):
    k = np.arange(N * N).reshape(N, N)
    return np.stack([11 + 0.1 * np.sin(k), 12.1 + 0.1 * np.cos(k)], axis=2)


def gm3_loss(p, r, N):
    """The same without writes, for complex steps."""
    _, (Ax, Ay), _ = gm3(np, N)
    a, α, ubar, β, D1, D2 = p
    u, v = r[:, :, 0], r[:, :, 1]
    du = D1 * (Ay @ u + u @ Ax) + a * u * u / v + ubar - α * u
    dv = D2 * (Ay @ v + v @ Ax) + a * u * u - β * v
    return (du**2).sum() + (dv**2).sum()


def test_c3_six_captured_buffers(xp):
    N = 4
    step, _, caches = gm3(xp, N)
    r, p = xp.asarray(state(N)), xp.array(P)

    def loss(p, r):
        dr = xp.empty((N, N, 2))
        step(dr, r, p, 0.0)
        return (dr**2).sum()

    for _ in range(3):
        value, (dp, dr) = tg.value_and_grad(loss, argnums=(0, 1))(p, r)
        close(value, LOSS)
        close(dp, DP, rtol=1e-12)
        close(dr[0, 0], DR00, rtol=1e-12)
        assert all(type(c) is xp.ndarray for c in caches)
    close(dr, complex_step(lambda r: gm3_loss(P, r, N), state(N)))
    check_first(lambda p: loss(p, r), p, DP)


def test_c3_second_order(xp):
    N = 4
    step, _, _ = gm3(xp, N)
    r, p = xp.asarray(state(N)), xp.array(P)
    v = np.array([0.5, -1.0, 2.0, 0.3, 10.0, 0.01])

    def loss(p):
        dr = xp.empty((N, N, 2))
        step(dr, r, p, 0.0)
        return (dr**2).sum()

    # The loss is quadratic in p: one difference of the gradient is exact.
    gradient = lambda p: complex_step(lambda p: gm3_loss(p, state(N), N), p)
    expected = gradient(np.array(P) + v) - gradient(np.array(P))
    check_second(loss, p, xp.asarray(v), expected, rtol=1e-11)


def test_c3_in_place_function(xp):
    N = 4
    step, _, _ = gm3(xp, N)
    r, p = xp.asarray(state(N)), xp.array(P)
    filled = tg.inplace(step, xp.zeros((N, N, 2)))
    close(tg.grad(lambda p: (filled(r, p, 0.0) ** 2).sum())(p), DP)
    _, pullback = tg.vjp(lambda r: filled(r, p, 0.0), r)
    dr = pullback(2 * filled(r, p, 0.0))
    close(dr[0, 0], DR00)


def test_c3_euler_steps(xp):
    N, steps, dt = 3, 5, 1e-3
    step, _, _ = gm3(xp, N)
    r0 = xp.asarray(state(N))

    def loss(p):
        r, dr = r0.copy(), xp.empty((N, N, 2))
        for i in range(steps):
            step(dr, r, p, i * dt)
            r += dt * dr
        return (r**2).sum()

    def plain(p):
        _, (Ax, Ay), _ = gm3(np, N)
        a, α, ubar, β, D1, D2 = p
        u, v = state(N)[:, :, 0], state(N)[:, :, 1]
        for _ in range(steps):
            du = D1 * (Ay @ u + u @ Ax) + a * u * u / v + ubar - α * u
            dv = D2 * (Ay @ v + v @ Ax) + a * u * u - β * v
            u, v = u + dt * du, v + dt * dv
        return (u**2).sum() + (v**2).sum()

    check_first(loss, xp.array(P), complex_step(plain, P), rtol=1e-11)
    close(r0, state(N), rtol=0)


# --- C4, C5: the storage that other systems lose ---


def test_c4_temporary_storage(xp):
    tmp = xp.zeros(1)

    def f(x):
        tmp[0] = 1
        for _ in range(5):
            tmp[0] *= x
        return tmp[0]

    x = xp.asarray(1.2)
    for _ in range(3):
        close(tg.grad(f)(x), 10.368)
        close(tg.jvp(f, (x,), (xp.asarray(1.0),))[1], 10.368)
        close(tg.hvp(f, x, xp.asarray(1.0)), 20 * 1.2**3)
        close(tmp, [1.2**5])


def test_c5_global_box():
    def foo(y):
        BOX[...] = y
        return BOX[...]

    for _ in range(3):
        assert tg.grad(foo)(5.0) == 1.0
        assert tg.jvp(foo, (5.0,), (1.0,))[1] == 1.0
        assert type(BOX) is np.ndarray and BOX == 5.0
        assert tg.hvp(lambda y: foo(y) * foo(y), 5.0, 1.0) == 2.0


def test_c5_box(xp):
    box = xp.asarray(0.0)

    def foo(y):
        box[...] = y
        return box[...] * 1.0

    close(tg.grad(foo)(xp.asarray(5.0)), 1.0)
    close(box, 5.0)


# --- C6: state that flows from one call to the next ---


def test_c6_the_entry_value_is_a_constant(xp):
    cache = xp.array([1.0])

    def f(x):
        cache[0] = cache[0] * x
        return cache[0]

    x, entry = xp.asarray(2.0), 1.0
    for _ in range(4):
        close(tg.grad(f)(x), entry)  # d (c x) / dx = c, whatever made c
        entry *= 2.0
        close(cache, [entry])
    close(tg.jvp(f, (x,), (xp.asarray(1.0),))[1], entry)


def test_c6_stateful(xp):
    cache = xp.array([1.0])

    def f(x):
        cache[0] = cache[0] * x
        return cache[0] + x

    g = tg.stateful(f, cache)

    def three(x):
        s, total = (xp.array([1.0]),), 0.0
        for _ in range(3):
            y, s = g(s, x)
            total = total + y
        return total  # x + x^2 + x^3 + 3x

    x = xp.asarray(2.0)
    y, (after,) = g((xp.array([5.0]),), x)
    close(y, 12.0)
    close(after, [10.0])
    close(cache, [1.0])
    close(tg.grad(three)(x), 1 + 4.0 + 12.0 + 3)
    close(tg.hvp(three, x, xp.asarray(1.0)), 2 + 12.0)
    close(tg.jvp(three, (x,), (xp.asarray(1.0),))[1], 20.0)
    ds, dx = tg.grad(lambda s, x: g(s, x)[0], argnums=(0, 1))((xp.array([5.0]),), x)
    close(ds[0], [2.0])
    close(dx, 6.0)
