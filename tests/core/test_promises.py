"""The ten promises, each with programs that would show a breach."""

import functools
import gc
import itertools
import threading

import numpy as np
import pytest
from _modes import check_first, check_second, complex_step, nested, second_difference, second_orders
from comparison import close, host

import tapegrad as tg
from tapegrad import numpy as tnp
from tapegrad.errors import DroppedDerivativeError, NoRuleError, NotScalarError


def work(xp):
    """A function with a captured buffer, views and writes, and the same without writes."""
    buf = xp.zeros((3, 2))

    def f(x):
        buf[0] = xp.sin(x)
        for t in range(2):
            buf[t + 1] = buf[t] * x
            buf[t + 1, 1] += buf[t, 0] ** 2
        row = buf[2]
        row *= row
        return (buf * xp.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])).sum()

    def plain(x):
        a = np.sin(x)
        b = a * x + np.array([0, 1]) * a[0] ** 2
        c = b * x + np.array([0, 1]) * b[0] ** 2
        return a @ [1, 2] + b @ [3, 4] + (c * c) @ [5, 6]

    return f, plain, buf


X = np.array([0.7, -0.4])


# --- 1: right, or an exception ---

DROPPING = {
    "hex": lambda x: float.fromhex(x[0].hex()) * x[0],
    "percent": lambda x: float("%f".__mod__(x[0])) * x[0],
    "tobytes": lambda x: np.frombuffer(x.tobytes())[0] * x[0],
    "no rule": lambda x: np.histogram_bin_edges(x, 3)[0],
    "buffer protocol": lambda x: memoryview(x)[0] * x[0],
    "dlpack": lambda x: np.from_dlpack(x)[0] * x[0],
}


@pytest.mark.parametrize("way", DROPPING)
def test_1_loud_where_a_derivative_would_be_lost(way):
    f = DROPPING[way]
    for call in (
        lambda: tg.grad(f)(X),
        lambda: tg.jvp(f, (X,), (X,)),
        lambda: tg.hvp(f, X, X),
        lambda: tg.grad(tg.Const(f))(X),
    ):
        with pytest.raises((DroppedDerivativeError, NoRuleError, TypeError, ValueError, BufferError)):
            call()


def test_1_unshadowed_buffer_is_loud():
    buf = np.zeros(2)

    def f(x):
        buf[0] = x[0]
        return buf.sum()

    for call in (lambda: tg.grad(tg.Const(f))(X), lambda: tg.jvp(tg.Const(f), (X,), (X,))):
        with pytest.raises((TypeError, ValueError)) as caught:
            call()
        found = caught.value
        assert isinstance(found, DroppedDerivativeError) or isinstance(
            found.__cause__, DroppedDerivativeError
        )
    assert not buf.any()


# --- 2, 3: views and captured buffers ---


def test_2_3_buffers_in_every_mode(xp):
    f, plain, buf = work(xp)
    v = np.array([1.0, 2.0])
    slope = complex_step(plain, X)
    curvature = second_difference(plain, X, v)
    for _ in range(3):
        check_first(f, xp.asarray(X), slope)
        check_second(f, xp.asarray(X), xp.asarray(v), curvature, rtol=1e-7)
    assert type(buf) is xp.ndarray
    close(f(xp.asarray(X)), plain(X))
    left = host(buf).copy()
    tg.grad(f)(xp.asarray(X))
    close(buf, left, rtol=1e-15)


# --- 4: the caller's arrays ---


def frozen(a):
    a.flags.writeable = False
    return a


def test_4_caller_arrays_are_unchanged(xp):
    def f(x, p):
        x *= 2
        p["w"] += x
        p["w"][0] = 0.0
        return (x**2).sum() + p["w"].sum()

    x, w, v = xp.array([1.0, 2.0]), xp.array([3.0, 4.0]), xp.array([1.0, -1.0])
    before = [host(a).copy() for a in (x, w, v)]
    p, q = {"w": w}, {"w": v}
    tg.grad(f, argnums=(0, 1))(x, p)
    tg.grad(f)(x, p)
    value, pullback = tg.vjp(f, x, p)
    pullback(xp.asarray(1.0))
    tg.jvp(f, (x, p), (v, q))
    tg.hvp(f, x, v, (p,))
    tg.hmp(f, x, xp.stack([v, v]), (p,))
    tg.hessian(f, argnums=(0, 1))(x, p)
    tg.jacobian(lambda x: x.__imul__(3.0))(x)
    assert p["w"] is w and q["w"] is v
    for a, b in zip((x, w, v), before, strict=True):
        close(a, b, rtol=0)


def test_4_read_only_arguments():
    x, v = frozen(X.copy()), frozen(np.ones(2))
    f, plain, _ = work(np)
    close(tg.grad(f)(x), complex_step(plain, X))
    tg.hvp(f, x, v)

    def doubled(x):
        x += x
        return (x**2).sum()

    with pytest.raises(ValueError, match="read-only"):
        doubled(x)
    close(tg.grad(doubled)(x), 8 * X)


def test_4_results_share_no_memory(xp):
    n = 2000
    x, w = xp.linspace(1.0, 2.0, n), xp.ones(n)
    before = x.copy()
    value, pullback = tg.vjp(lambda x: x, x)
    g1, g2 = pullback(w), pullback(w)
    primal, tangent = tg.jvp(lambda x: x[::-1], (x,), (w,))
    pair = tg.vjp(lambda a, b: (a, b, a), x, x)
    v, (ga, gb) = tg.value_and_grad(lambda a, b: (a + b).sum(), argnums=(0, 1))(x, x)
    J = tg.jacobian(lambda x: x[:3])(x[:3])
    results = [value, g1, g2, primal, tangent, *pair[0], ga, gb, J, *pair[1]((w, w, w))]
    for a, b in itertools.combinations([x, w, *results], 2):
        assert not xp.may_share_memory(a, b)
    for r in results:
        # (one that lies backwards is a view of its own memory)
        assert type(r) is xp.ndarray and (r.base is None or r.strides == (-8,))
        r[...] = 0.0
    close(pullback(w), np.ones(n))
    assert xp.array_equal(x, before)


# --- 5, 6 ---


def test_5_earlier_pullbacks_stay_right(xp):
    f, plain, _ = work(xp)
    points = [X, X * 2, X - 1, X * 0.1]
    pulls = [tg.vjp(f, xp.asarray(p))[1] for p in points]
    tg.hvp(f, xp.asarray(X), xp.asarray(X))
    for pull, p in reversed(list(zip(pulls, points, strict=True))):
        close(pull(xp.asarray(1.0)), complex_step(plain, p), rtol=1e-11)
        close(pull(xp.asarray(-2.0)), -2 * complex_step(plain, p), rtol=1e-11)


def test_6_same_bits(xp):
    f, _, _ = work(xp)
    x, v = xp.asarray(X), xp.ones(2)

    def scattered(x):
        a = xp.zeros(5)
        xp.add.at(a, xp.array([0, 1, 0, 0, 4, 0]), xp.concatenate([x, xp.sin(x), x * 0.1]))
        return (a**3).sum()

    for g in (f, scattered):
        first = [host(tg.grad(g)(x)), host(tg.hvp(g, x, v)), host(tg.jvp(g, (x,), (v,))[1])]
        for _ in range(5):
            again = [host(tg.grad(g)(x)), host(tg.hvp(g, x, v)), host(tg.jvp(g, (x,), (v,))[1])]
            assert [a.tobytes() for a in first] == [a.tobytes() for a in again]


# --- 7: nestings ---


@pytest.mark.parametrize("modes", ["".join(m) for n in (1, 2, 3) for m in itertools.product("FR", repeat=n)])
def test_7_nestings_agree(xp, modes):
    buf = xp.zeros(3)

    def f(x):
        buf[0] = x
        buf[1:] = buf[:-1] * x
        buf[2] *= buf[1]
        return buf.sum() + xp.exp(x)  # x + x^2 + (0 * x) * x^2

    def g(x):
        buf[:] = 1.0
        buf[0] = x
        buf[1:] *= buf[:-1] * x
        buf[2] *= buf[1]
        return buf.sum()  # x + x^2 + x * x^2

    x = 1.3
    expected = {1: 1 + 2 * x + 3 * x**2, 2: 2 + 6 * x, 3: 6.0}[len(modes)]
    close(nested(modes, g)(x) if xp is np else nested_on(xp, modes, g, x), expected)


def nested_on(xp, modes, f, x):
    one = xp.asarray(1.0)
    for mode in reversed(modes):
        f = functools.partial(_forward, f, one) if mode == "F" else tg.grad(f)
    return f(xp.asarray(x))


def _forward(f, one, x):
    return tg.jvp(f, (x,), (one,))[1]


def test_7_same_digits(xp):
    f, _, _ = work(xp)
    products = [host(p) for _, p in second_orders(f, xp.asarray(X), xp.array([1.0, 2.0]))]
    for p in products[1:]:
        close(p, products[0], rtol=1e-13)


# --- 8: memory by reference count alone ---


class Machine:
    def __init__(self, xp):
        self.xp, self.state, self.log = xp, xp.zeros(2), []

    def step(self, x):
        self.state[:] = self.xp.tanh(self.state + x)
        self.log.append(1)
        return self.state


cubed = tg.rule(lambda x: (x**3).sum(), vjp=lambda g, out, x: 3 * g * x * x)


def made_within(x):
    return tg.rule(lambda x: (x**3).sum(), vjp=lambda g, out, x: 3 * g * x * x)(x)


def doubled(out, x):
    out[...] = x
    out *= 2


class Owner:
    """Refers to itself; the user's own cycle, which lives on."""

    def __init__(self, xp):
        self.a, self.me = xp.zeros(2), self

    def method(self, x):
        self.me.a[:] = x
        return (self.a**2).sum()


def programs(xp):
    f, _, buf = work(xp)
    machine, owner = Machine(xp), Owner(xp)

    def recursive(x, n=3):
        return (x**2).sum() if n == 0 else recursive(xp.sin(x), n - 1)

    def method(x):
        machine.state[:] = 0
        return machine.step(machine.step(x) * 2).sum()

    def views(x):
        y = x.reshape(1, 2).T
        y[:, 0] *= 2
        return (y**2).sum()

    def failing(x):
        y = xp.sin(x)
        raise ValueError(y.shape)

    return {
        "buffer": lambda: tg.grad(f)(xp.asarray(X)),
        "lambda": lambda: tg.grad(lambda x: (x * x).sum())(xp.asarray(X)),
        "recursive": lambda: tg.grad(recursive)(xp.asarray(X)),
        "object": lambda: tg.grad(method)(xp.asarray(X)),
        "views": lambda: tg.grad(views)(xp.asarray(X)),
        "jvp": lambda: tg.jvp(f, (xp.asarray(X),), (xp.asarray(X),)),
        "vjp": lambda: tg.vjp(f, xp.asarray(X))[1](xp.asarray(1.0)),
        "hvp": lambda: tg.hvp(f, xp.asarray(X), xp.asarray(X)),
        "reverse over reverse": lambda: tg.grad(lambda x: (tg.grad(f)(x) ** 2).sum())(xp.asarray(X)),
        "jacobian": lambda: tg.jacobian(lambda x: x * x, mode="forward")(xp.asarray(X)),
        "hessian": lambda: tg.hessian(f)(xp.asarray(X)),
        "exception": lambda: quiet(failing, xp.asarray(X)),
        "rule": lambda: tg.grad(lambda x: cubed(x) * 2)(xp.asarray(X)),
        "rule made within": lambda: tg.jvp(made_within, (xp.asarray(X),), (xp.asarray(X),)),
        "inplace": lambda: tg.grad(lambda x: (tg.inplace(doubled, x)(x) ** 2).sum())(xp.asarray(X)),
        "stateful": lambda: tg.grad(tg.stateful(f, buf), has_aux=True)((xp.ones((3, 2)),), xp.asarray(X)),
        "checkpoint": lambda: tg.grad(tg.checkpoint(f))(xp.asarray(X)),
        "self-reference": lambda: tg.grad(owner.method)(xp.asarray(X)),
    }


def quiet(f, x):
    try:
        tg.grad(f)(x)
    except ValueError:
        pass


def long_chain(x):
    for _ in range(20000):
        x = x * 1.0001
    return x


def long_and_broken(x):
    raise KeyError(float(tg.value(long_chain(x))))


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_it_was_after_a_long_tape(enabled):
    """It rests while a tape of many records grows and is swept."""
    calls = [
        lambda: tg.grad(long_chain)(1.0),
        lambda: tg.vjp(long_chain, np.float64(1.0))[1](1.0),
        lambda: tg.grad(long_and_broken)(1.0),
        lambda: tg.grad(lambda x: long_chain(x) * np.ones(2))(1.0),
        lambda: tg.hessian(lambda x: long_chain(x) ** 2)(1.0),
    ]
    was = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        for call in calls:
            try:
                call()
            except (KeyError, TypeError):
                pass
            assert gc.isenabled() == enabled
    finally:
        (gc.enable if was else gc.disable)()


@pytest.mark.one_in(7)
@pytest.mark.parametrize("name", programs(np))
def test_8_nothing_for_the_cyclic_collector(xp, name):
    run = programs(xp)[name]
    run()
    run()
    gc.collect()
    gc.disable()
    try:
        for _ in range(10):
            run()
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_8_records_are_released():
    def f(x):
        for _ in range(20):
            x = np.sin(x)
        return x.sum()

    x = np.ones(10_000)
    for _ in range(3):  # what is kept of f is there
        tg.grad(f)(x)
    gc.collect()
    count = len(gc.get_objects())
    for _ in range(10):
        tg.grad(f)(x)
    assert len(gc.get_objects()) - count < 50


# --- 9: threads ---


def random_program(seed, n=8, length=25):
    """A program with writes and views, as user code on a captured buffer, and its twin for complex steps."""
    rng = np.random.default_rng(seed)
    steps = []
    for _ in range(length):
        kind = rng.integers(7)
        a, b = sorted(rng.integers(0, n - 1, 2))
        steps.append((kind, int(a), int(b) + 1, float(rng.uniform(0.3, 0.9))))
    buf = np.zeros(n)

    def run(y, sin):
        for kind, a, b, c in steps:
            v = y[a:b]
            if kind == 0:
                v *= c
            elif kind == 1:
                y[a:b] = sin(v) + c
            elif kind == 2:
                y[a + 1 : b] += y[a : b - 1] * c
            elif kind == 3:
                w = v[::-1]
                v += w * c
            elif kind == 4:
                y[b] = v.sum() * c
            elif kind == 5:
                v[...] = v * y[a] * c
            else:
                m = y.reshape(2, n // 2)
                m[0] -= m[1] * c
        return (y * y).sum()

    def f(x):
        buf[:] = x
        return run(buf, np.sin)

    return f, lambda x: run(x * (1 + 0j), np.sin)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", range(30))
def test_2_random_programs(seed):
    f, plain = random_program(seed)
    x = np.random.default_rng(seed + 1).uniform(-1, 1, 8)
    v = np.random.default_rng(seed + 2).uniform(-1, 1, 8)
    slope = complex_step(plain, x)
    check_first(f, x, slope, rtol=1e-11)
    check_second(f, x, v, second_difference(plain, x, v), rtol=1e-6)


def test_9_random_programs_in_threads():
    wrong, barrier = [], threading.Barrier(8)

    def run(k):
        f, plain = random_program(100 + k)
        x = np.random.default_rng(k).uniform(-1, 1, 8)
        v = np.ones(8)
        slope = complex_step(plain, x)
        product = tg.hvp(f, x, v)
        barrier.wait()
        for _ in range(10):
            try:
                close(tg.grad(f)(x), slope, rtol=1e-11)
                close(tg.jvp(f, (x,), (v,))[1], slope @ v, rtol=1e-10)
                close(tg.hvp(f, x, v), product, rtol=0)
            except BaseException as error:
                wrong.append((k, error))

    threads = [threading.Thread(target=run, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_9_the_last_to_finish_leaves_its_contents():
    shared = np.zeros(1)
    first, second = threading.Event(), threading.Event()
    gradients = {}

    def f(x, k):
        shared[0] = x * k
        if k == 2.0:
            first.set()
            second.wait(10)
        return shared[0] ** 2

    def run(k):
        gradients[k] = tg.grad(f)(3.0, k)

    a = threading.Thread(target=run, args=(2.0,))
    a.start()
    first.wait(10)
    run(5.0)  # begins and ends while the other is in the middle
    assert shared[0] == 15.0
    second.set()
    a.join()
    assert gradients == {2.0: 24.0, 5.0: 150.0} and shared[0] == 6.0


def test_9_a_transform_in_one_thread_does_not_touch_another():
    """While one thread is inside a transform, numpy.zeros in another gives plain arrays."""
    inside, leave, seen = threading.Event(), threading.Event(), []

    def f(x):
        inside.set()
        leave.wait(10)
        return x * x

    t = threading.Thread(target=lambda: tg.grad(f)(1.0))
    t.start()
    inside.wait(10)
    seen.append(type(tnp.zeros(2)))
    leave.set()
    t.join()
    assert seen == [np.ndarray]


# --- 10: exceptions ---


@pytest.mark.parametrize(
    "error",
    [KeyboardInterrupt, MemoryError, StopIteration, SystemExit, RecursionError, np.linalg.LinAlgError],
)
def test_10_exceptions_pass_and_leave_nothing(xp, error):
    buf = xp.zeros(2)
    raised = error("mine")

    def f(x):
        buf[:] = xp.sin(x)
        if host(tg.value(x))[0] > 5:
            raise raised
        return (buf**2).sum()

    good, bad = xp.asarray(X), xp.array([6.0, 1.0])
    for call in (
        lambda: tg.grad(f)(bad),
        lambda: tg.vjp(f, bad),
        lambda: tg.jvp(f, (bad,), (good,)),
        lambda: tg.hvp(f, bad, good),
        lambda: tg.jacobian(f)(bad),
        lambda: tg.grad(lambda x: tg.jvp(f, (x,), (good,))[1])(bad),
        lambda: tg.jvp(lambda x: tg.grad(f)(x), (bad,), (good,)),
    ):
        with pytest.raises(error) as caught:
            call()
        assert caught.value is raised
        assert type(buf) is xp.ndarray
        close(buf, np.sin(host(bad)))
        close(tg.grad(f)(good), np.sin(2 * X))
    assert type(tnp.zeros(2)) is np.ndarray


def test_10_exception_in_an_inner_transform_that_f_catches():
    def inner(y):
        raise LookupError

    def f(x):
        try:
            tg.grad(inner)(x)
        except LookupError:
            pass
        return x * x

    assert tg.grad(f)(3.0) == 6.0
    assert tg.hvp(f, 3.0, 1.0) == 2.0


def test_10_errors_of_ours_leave_nothing(xp):
    x = xp.asarray(X)
    for _ in range(3):
        with pytest.raises(NotScalarError):
            tg.grad(lambda x: x * 2)(x)
        close(tg.grad(lambda x: (x * x).sum())(x), 2 * X)


# --- depth, types, one run ---


@pytest.mark.long
def test_a_chain_of_a_million_records():
    def f(x):
        y = x
        for _ in range(250_000):
            y = y * 0.999999
            y = y + 1e-6
            y = y * 1.000001
            y = y - 1e-6
        return y

    close(tg.grad(f)(2.0), (0.999999 * 1.000001) ** 250_000, rtol=1e-8)


@pytest.mark.long
def test_a_long_chain_of_arrays_and_second_order():
    def f(x):
        y = x
        for _ in range(100_000):
            y = y + 1e-6 * y * y
        return y.sum()

    x = np.array([0.5, 1.0])
    step = 1e-5
    difference = (tg.grad(f)(x + step) - tg.grad(f)(x - step)) / (2 * step)
    close(tg.hvp(f, x, np.ones(2)), difference, rtol=1e-6)


def test_a_deep_nest_of_views():
    def f(x):
        y = x * 1
        for _ in range(3000):
            y = y[::-1]
        y *= 2
        return (y * np.array([1.0, 2.0])).sum()

    close(tg.grad(f)(np.ones(2)), [2.0, 4.0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_is_kept(xp, dtype):
    buf = xp.zeros(2, dtype=dtype)

    def f(x):
        buf[:] = xp.sin(x) * 2
        z = xp.ones(2, dtype=dtype)
        z[0] = buf[1] / 3
        return (buf * z + x.mean()).sum() ** 2

    x = xp.asarray(X, dtype=dtype)
    v = xp.ones(2, dtype=dtype)
    value, gradient = tg.value_and_grad(f)(x)
    assert value.dtype == gradient.dtype == dtype
    primal, tangent = tg.jvp(f, (x,), (v,))
    assert primal.dtype == tangent.dtype == dtype
    for name, p in second_orders(f, x, v):
        assert p.dtype == dtype, name
    assert tg.hessian(f)(x).dtype == dtype and buf.dtype == dtype
    _, pullback = tg.vjp(f, x)
    assert pullback(1.0 if xp is np else xp.asarray(1.0)).dtype == dtype
    assert tg.jvp(f, (x,), (xp.ones(2, dtype=np.float64),))[1].dtype == dtype


def test_half_precision_is_kept(xp):
    x = xp.asarray(X, dtype=np.float16)
    assert tg.grad(lambda x: (x * x).sum())(x).dtype == np.float16


def test_f_runs_once_per_transform(xp):
    calls = []

    def f(x):
        calls.append(len(calls))
        return (x**3).sum()

    x, v = xp.asarray(X), xp.ones(2)
    expected = 0
    for run in (
        lambda: tg.grad(f)(x),
        lambda: tg.jvp(f, (x,), (v,)),
        lambda: tg.vjp(f, x)[1](xp.asarray(1.0)),
        lambda: tg.hvp(f, x, v),
        lambda: tg.hessian(f)(x),
        lambda: tg.hmp(f, x, xp.eye(2)),
        lambda: tg.jacobian(f, mode="forward")(x),
        lambda: tg.value_grad_hvp(f, x, v),
        lambda: tg.jvp(tg.grad(f), (x,), (v,)),
        lambda: tg.grad(lambda x: tg.grad(f)(x) @ v)(x),
    ):
        run()
        expected += 1
        assert len(calls) == expected and type(calls) is list
