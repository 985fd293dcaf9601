"""Large arrays in compiled loops: each operation against its primitive, views, writes, stencils, sums, and
what NumPy would warn of."""

import math
import threading

import numpy as np
import pytest
import scipy.special as sp
import test_replay_operations as from_operations
import test_replay_programs as from_programs

import tapegrad as tg
from tapegrad._core.trees import leaves
from tapegrad.kernels.launch import waiting
from tapegrad.replay import cached_program
from tapegrad.replay import emitted as _emitted
from tapegrad.replay.fusion import compiled_groups
from tapegrad.replay.fusion import groups as _groups
from tapegrad.replay.fusion.compiled_groups import with_strides

N = 600
RNG = np.random.default_rng(12)
X, Y = RNG.normal(size=N), RNG.uniform(0.1, 0.9, size=N)


@pytest.fixture(autouse=True)
def small_arrays_too(monkeypatch):
    """Groups are made of what the interpreter would do as fast."""
    monkeypatch.setattr(compiled_groups, "BLOCK_ELEMENT_NS", 4.0)
    monkeypatch.setattr(compiled_groups, "slow_element_ns", lambda name, operations: 8.0)
    monkeypatch.setattr(_emitted, "BLOCK_ELEMENT_NS", 4.0)


def fused(f, *points, rtol=4e-15, method="value", groups=1):
    """f at each point with its loops compiled, the same as plainly; the emitted program."""
    p = tg.prepare(f, *points[0], compile=True)
    plain = f if method == "value" else getattr(tg, method)(f)
    for args in (points[0], points[0], points[0], *points):
        with np.errstate(all="ignore"):
            got, want = leaves(getattr(p, method)(*args)), leaves(plain(*args))
        for a, b in zip(got, want, strict=True):
            assert type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape
            scale = np.abs(b[np.isfinite(b)]).max(initial=0.0) if b.dtype != bool else 0.0
            np.testing.assert_allclose(a, b, rtol * (1 if b.dtype != "f4" else 4e8), rtol * scale)
    kept = p.forms[method].programs[0]
    assert len(kept.emitted.groups) >= groups, kept.report()
    assert not kept.failures and not kept.refusals
    return kept.emitted


# --- elementwise operations ---

SMOOTH = [
    np.sqrt, np.exp, np.expm1, np.log, np.log2, np.log10, np.log1p, np.sin, np.cos, np.tan, np.arcsin,
    np.arccos, np.arctan, np.sinh,
    np.cosh, np.tanh, np.arcsinh, np.arctanh, sp.erf, sp.erfc, sp.erfcx, sp.ndtr, sp.log_ndtr, sp.expit,
    sp.log_expit, sp.gammaln,
    sp.digamma, sp.logit, sp.entr,
]  # fmt: skip
PLAIN = [
    np.negative,
    np.positive,
    np.square,
    np.reciprocal,
    np.absolute,
    np.fabs,
    np.sign,
    np.floor,
    np.ceil,
    np.trunc,
    np.rint,
]
PLAIN += [np.isnan, np.isinf, np.isfinite, np.deg2rad, np.rad2deg, np.heaviside, np.copysign]
TWO = [
    np.add,
    np.subtract,
    np.multiply,
    np.divide,
    np.maximum,
    np.minimum,
    np.fmax,
    np.fmin,
    np.hypot,
    np.arctan2,
    np.logaddexp,
]
TWO += [np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal, np.copysign, sp.xlogy]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", ["f8", pytest.param("f4", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "functions", [SMOOTH[:15], SMOOTH[15:], PLAIN, TWO], ids=["elementary", "special", "plain", "two"]
)
def test_operations(functions, dtype):
    def f(x, y):
        u, v = x * 1.0, y * 0.75
        out = [g(v, u) if g.nin == 2 else g(v) for g in functions]
        return (
            *out,
            *[g(u, v) for g in functions if g in TWO],
            np.where(u < v, u, v),
            u**3,
            v**0,
            np.where((u > 0) & ~(v > 0.3), u, v),
        )

    fused(
        f,
        (X.astype(dtype), Y.astype(dtype)),
        (Y.astype(dtype), Y[::-1].astype(dtype)),
        rtol=4e-14 if functions is SMOOTH[15:] else 1e-14,
    )


def test_what_is_known_too_roughly_is_not_fused():
    def f(x, y):
        return x**y * 1.0, x**2.5 + 1.0, np.cbrt(x) * 2.0, sp.gamma(x) * 1.0, np.fmod(x, y) + 1.0

    emitted = _emitted.EmittedProgram(recorded(f, Y, X), True)
    assert {"power_of", "power_n", "cbrt", "gamma", "fmod"} <= emitted.alone.keys()


def recorded(f, *args):
    p = tg.prepare(f, *args)
    p.value(*args)
    return p.forms["value"].programs[0].program


def test_far_out():
    far = np.array([0.0, -0.0, 5e-324, 1e-310, 1e-300, 1e300, 1.7e308, np.inf, -np.inf, np.nan] * 40)

    def f(x):
        with np.errstate(all="ignore"):
            y = x * 1.0
            return (
                y / 3.0,
                1.0 / y,
                y - y,
                y * y,
                np.maximum(y, -y),
                np.maximum(y, 5e-324),
                y + 1e308,
                abs(y),
                np.tanh(y),
                np.exp(y),
            )

    p = tg.prepare(f, far, compile=True)
    for _ in range(4):
        got = p.value(far)
    assert p.forms["value"].programs[0].emitted.groups
    for a, b in zip(got, f(far), strict=True):
        np.testing.assert_allclose(a, b, 4e-16)


def test_zero_cotangents_stay_zero():
    def f(x):
        return (
            np.where(x > 0, np.sqrt(x * 1.0), 0.0) + np.where(x > 0, np.log(x), 0.0) * x
        ).sum() + np.hypot(x, 0.0).sum()

    x = np.where(X > 0, X, 0.0)
    with np.errstate(all="ignore"):
        fused(f, (np.abs(X) + 0.1,), (x,), (X,), method="grad")


# --- warnings ---


def test_what_numpy_warns_of():
    f = lambda x: (np.log(x * 1.0) * 2.0 + x).sum()
    p = tg.prepare(f, Y, compile=True)
    for _ in range(3):
        p.grad(Y)
    p.value(Y), p.value(Y), p.value(Y)
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        assert p.value(np.where(Y > 0.5, 0.0, Y)) == -np.inf
    with pytest.warns(RuntimeWarning, match="invalid value"):
        assert np.isnan(p.value(-Y))
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        p.value(np.where(Y > 0.5, 0.0, Y))
    assert p.value(Y) == pytest.approx(f(Y), rel=1e-14)


def test_values_that_are_often_not_finite():
    """A plain call does not warn of them: then there are no groups."""
    f = lambda x: (x * 2.0 + 1.0, np.exp(-x) + x * 3.0)
    p = tg.prepare(f, X, compile=True)
    for _ in range(4):
        p.value(X)
    infinite = np.where(X > 0, np.inf, X)
    for _ in range(20):
        np.testing.assert_array_equal(p.value(infinite)[0], f(infinite)[0])
    assert "not finite" in p.report() and not p.forms["value"].programs[0].emitted.groups


def test_angles_too_large_for_the_loops():
    f = lambda x: np.sin(x * 1.0) + np.cos(x * 2.0) * x
    p = tg.prepare(f, X, compile=True)
    for x in (X, X, X, X * 1e16, X):
        np.testing.assert_allclose(p.value(x), f(x), 1e-13, 1e-13)


# --- views, writes, sums ---


def views(x):
    m = (x * 2.0).reshape(20, 30)
    a = x.reshape(20, 30)
    y = a[::-1, 1:-1] * a[:, :1] + np.broadcast_to(x[:28], (20, 28)) - a.T[2:, ::1].T * 0.5
    z = a[1:, ::3] * a[:-1, ::-3] + a[3][::3]
    return (
        y,
        z,
        m.sum(),
        y.sum(axis=0),
        y.sum(axis=1),
        (y * y).sum(axis=(0, 1)),
        z.T * 2.0 + 1.0,
        y[:, None, :3].sum(-1) + 1.0,
    )


def test_views_and_sums():
    fused(views, (X,), (X * 1.3,), rtol=1e-13)
    fused(lambda x: sum([(v * v).sum() for v in views(x)]), (X,), (X * 1.3,), rtol=1e-12, method="grad")


def test_other_memory_orders():
    f = lambda m, x: (
        m * 2.0 + x,
        (m + x[:, ::-1] * m).sum(axis=1),
        m.T * x.T + 1.0,
        np.tanh(m[:, 5]) * x[3, :20],
        m * m > x,
    )
    m, x = X.reshape(20, 30), Y.reshape(20, 30)
    big = np.zeros((40, 60, 2))
    for turn in (
        np.asarray,
        np.asfortranarray,
        lambda a: a[::-1, ::-1],
        lambda a: big.__setitem__((slice(20), slice(30), 1), a) or big[:20, :30, 1],
    ):
        fused(f, (turn(m), x), (turn(m * 1.1), x + 1.0), rtol=1e-13)


def writes(x):
    a = np.zeros(N)
    a[:] = x * 2.0
    seen = a[1:-1]
    b = a.copy()
    a[1:] += a[:-1] * x[1:]
    a[::-1] *= x
    a[5] = x[3]
    a[-1] += 2.0
    b[10:20] = a[5:15] + seen[:10]
    c = np.roll(b, 3) - np.concatenate([a[300:], b[:300]])
    return a, b, c, seen * 1.0, np.pad(c[:400] * x[:400], 7)


def test_a_reshape_that_is_written_with_itself(monkeypatch):
    monkeypatch.setattr(compiled_groups, "GROUP_ENTRY_NS", -1e12)

    def f(x):
        a = x * 2.0
        m = a.reshape(20, 30)
        m[1:] += m[:-1] * 0.5
        a[:] = m.reshape(-1)[::-1]
        m[:, ::2] = a.reshape(20, 30)[:, 1::2]
        m += a.reshape(20, 30)
        a += a
        return a, m * 1.0, a[::-1] + m.ravel()

    fused(f, (X,), (Y,))
    fused(lambda x: sum([(v * v).sum() for v in f(x)]), (X,), (X * 1.3,), rtol=1e-12, method="grad")


def test_writes_and_who_sees_them():
    fused(writes, (X,), (X * 1.3,), rtol=1e-13)
    fused(lambda x: sum([(v * v).sum() for v in writes(x)]), (X,), (X * 1.3,), rtol=1e-12, method="grad")


def rosenbrock(x):
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()


def five_points(x):
    u = x.reshape(20, 30)
    v = np.zeros_like(u)
    v[1:-1, 1:-1] = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4.0 * u[1:-1, 1:-1]
    return (np.tanh(v) * v).sum()


def periodic(x):
    u = x.reshape(20, 30)
    return (np.roll(u, 1, 0) + np.roll(u, -1, 1) - 2.0 * u * u).sum()


@pytest.mark.parametrize("f", [rosenbrock, five_points, periodic], ids=lambda f: f.__name__)
def test_stencils_are_one_loop(f):
    emitted = fused(f, (X,), (X * 1.1,), rtol=1e-13, method="grad")
    assert len(emitted.groups) <= 2 and "add_at" not in emitted.alone
    p = tg.prepare(f, X, compile=True)
    for k in range(4):
        np.testing.assert_allclose(p.hvp(X * (1 + k / 8), Y), tg.hvp(f, X * (1 + k / 8), Y), 1e-11, 1e-11)


def test_steps_of_a_stencil_are_not_worked_out_again_and_again():
    def f(x):
        for _ in range(12):
            x = x + 0.1 * (np.roll(x, 1) - 2.0 * x + np.roll(x, -1))
        return (x * x).sum()

    emitted = fused(f, (X,), (X + 1.0,), rtol=1e-13, method="grad", groups=2)
    assert max([group.ready().lines for group in emitted.groups]) < 4000


def test_views_of_what_is_not_in_memory():
    """They have memory of their own then, without gaps."""
    turn = np.linalg.qr(RNG.normal(size=(30, 30)))[0]

    def f(x):
        for _ in range(3):
            z = np.tanh(x @ turn + x)
            x = z[:, :15].repeat(2, axis=1) * z[:, ::-1] + (z[:, 5:20] @ turn[:15])
        return (x * x).sum()

    fused(f, (X.reshape(20, 30),), (Y.reshape(20, 30),), rtol=1e-12, method="grad", groups=3)


def test_rows_of_a_large_buffer_are_written_where_it_lies():
    X = np.zeros((400, 500))

    def f(x):
        X[0] = x
        for t in range(399):
            X[t + 1] = np.sin(X[t]) * 1.01
        return (X[-1] * X[-1]).sum()

    p = tg.prepare(f, Y[:500], compile=True)
    for k in range(4):
        np.testing.assert_allclose(p.grad(Y[:500] + k), tg.grad(f)(Y[:500] + k), 1e-11, 1e-12)
    emitted = p.forms["grad"].programs[0].emitted
    whole = [k for group in emitted.groups for k in group.written if group.shown[k][1] == (400, 500)]
    assert len(whole) < 8


def test_captured_buffers():
    def made():
        buffer, total = np.zeros((3, N)), np.zeros(())

        def f(x):
            for k in range(3):
                buffer[k] = np.sin(x * (k + 1.0)) + buffer[k - 1] * 0.5
            total[...] += (buffer * buffer).sum()
            return total * 1.0

        return f, buffer, total

    (f, buffer, total), (h, shown, sums) = made(), made()
    p = tg.prepare(h, X, compile=True)
    for k in range(6):
        np.testing.assert_allclose(p.grad(X + k), tg.grad(f)(X + k), 1e-12)
        np.testing.assert_allclose(shown, buffer, 1e-13, 1e-14)
        np.testing.assert_allclose(sums, total, 1e-13)
    assert p.forms["grad"].programs[0].emitted.groups


def test_results_belong_to_the_caller():
    f = lambda x: (x * 2.0 + 1.0, np.exp(x) * x)
    p = tg.prepare(f, X, compile=True)
    before = X.copy()
    kept = [p.value(X) for _ in range(5)]
    kept[-1][0][:] = 0.0
    np.testing.assert_array_equal(kept[-2][0], f(X)[0])
    np.testing.assert_array_equal(X, before)
    out = X.copy()
    assert p.grad is not None and tg.prepare(rosenbrock, X, compile=True).grad(out, out=out) is out
    np.testing.assert_array_equal(out, tg.grad(rosenbrock)(X))


def test_memory_that_lies_askew():
    raw = np.zeros(8 * N + 1, np.uint8)
    askew = raw[1:].view("f8")
    askew[:] = X
    f = lambda: None
    f = lambda x: (x * askew + askew).sum() * 2.0
    p = tg.prepare(f, X, compile=True)
    for _ in range(4):
        assert p.value(X) == pytest.approx(f(X), rel=1e-14)


def test_nothing_at_all():
    f = lambda x: (x * 2.0 + 1.0, x.sum(), (x[:0] * 2.0).sum())
    p = tg.prepare(f, X[:0], compile=True)
    for x in (X[:0], X[:0], X[:0], X, X, X):
        for a, b in zip(p.value(x), f(x), strict=True):
            np.testing.assert_allclose(a, b, 1e-13)


# --- many elements, many threads ---


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_the_bits_do_not_depend_on_threads(axis, monkeypatch):
    x = RNG.normal(size=(211, 301))

    def f(x):
        y = np.tanh(x * 1.5) + x[::-1]
        return y.sum(axis), (y * y).sum(), y

    found = []
    for threads in (1, 3, 8):
        monkeypatch.setattr(waiting, "THREADS", threads)
        monkeypatch.setattr(waiting, "THREADED_OPERATIONS", 1000)
        compiled_groups.CODES.clear()
        waiting.dismiss()
        found.append(run(f, x))
    waiting.dismiss()
    for other in found[1:]:
        assert all([np.array_equal(a, b) for a, b in zip(found[0], other, strict=True)])
    np.testing.assert_allclose(found[0][1], f(x)[1], 1e-14)


def run(f, x):
    p = tg.prepare(f, x, compile=True)
    return [leaves(p.value(x)) for _ in range(4)][-1]


def test_sums_are_as_exact_as_those_of_numpy():
    x = RNG.uniform(size=1_000_003).astype("f4")
    total = run(lambda x: ((x * 1.0).sum(), (x * 0.5).sum()), x)
    exact = math.fsum(x.astype(float))
    assert abs(float(total[0]) - exact) <= 4e-7 * exact and abs(float(total[1]) - exact / 2) <= 4e-7 * exact


def layers(x):
    """Products and loops in turn, whose values lie in memory that is kept."""
    u, turn = x.reshape(20, 30), np.cos(np.arange(900.0)).reshape(30, 30) / 9
    for _ in range(4):
        u = np.tanh(u @ turn + u * 0.5) + 0.1 * u[::-1]
    return (u * u).sum()


@pytest.mark.parametrize("f", [rosenbrock, layers], ids=lambda f: f.__name__)
def test_several_threads_call_one(f):
    p, wanted = tg.prepare(f, X, compile=True), [tg.grad(f)(X + k) for k in range(8)]
    wrong = []

    def work(k):
        for _ in range(60):
            if not np.allclose(p.grad(X + k), wanted[k], 1e-12, 1e-13):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


# --- when it is compiled ---


def test_the_choice():
    f = lambda x: (np.exp(x) * x + 1.0).sum()
    with pytest.raises(tg.errors.ArgumentError, match="compile='yes'; it is True, False or 'auto'"):
        tg.prepare(f, X, compile="yes")
    never, at_once, later = [tg.prepare(f, X, compile=c) for c in (False, True, "auto")]
    for _ in range(4):
        never.grad(X), at_once.grad(X), later.grad(X)
    groups = lambda p: p.forms["grad"].programs[0].emitted.groups
    assert not groups(never) and groups(at_once) and not groups(later)
    assert "compiled loops" not in never.report() and "once that pays" in later.report()
    assert "1 compiled loop with exp" in at_once.report()
    assert tg.testing is not None and "compile" in tg.prepare.__doc__


def test_it_is_compiled_once_that_pays(monkeypatch):
    monkeypatch.setattr(cached_program, "COMPILE_NS", 8 * N * _emitted.BLOCK_ELEMENT_NS * 4)
    p = tg.prepare(lambda x: (np.exp(x) * x + 1.0).sum(), X)
    seen = []
    for _ in range(20):
        p.grad(X)
        emitted = p.forms["grad"].programs[0].emitted if p.forms["grad"].programs else None
        seen.append(bool(emitted and emitted.groups))
    assert not any(seen[:3]) and seen[-1]


def test_groups_alike_have_one_code():
    def f(x):
        for _ in range(6):
            x = (np.tanh(x * 1.25) + x * 0.5) @ turn
        return x

    turn, before = np.linalg.qr(RNG.normal(size=(30, 30)))[0], len(compiled_groups.CODES)
    emitted = fused(f, (X.reshape(20, 30),), rtol=1e-12)
    assert len(emitted.groups) >= 3 and len(compiled_groups.CODES) - before < len(emitted.groups)


def test_what_reads_a_sum_waits_for_the_loop_that_adds_it_up():
    def f(x):
        y, total = np.tanh(x), 0.0
        for _ in range(5):
            total = total * 0.5 + y.sum()
            y = np.tanh(y) + x
        return total

    assert len(fused(f, (X,), (Y,), method="grad").groups) == 1


# --- random programs ---


@pytest.fixture
def all_of_it(monkeypatch):
    """Each array of two elements and more is large, and each group pays."""
    monkeypatch.setattr(cached_program, "COMPILE_NS", 0)
    monkeypatch.setattr(cached_program, "GROUP_REFUSALS", 10**9)
    monkeypatch.setattr(_emitted, "GROUPED_ELEMENTS", 1)
    monkeypatch.setattr(_groups, "GROUPED_ELEMENTS", 2)
    monkeypatch.setattr(compiled_groups, "GROUP_ENTRY_NS", -1e12)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "seeds",
    [
        range(1),
        *[pytest.param(range(k, k + 25), marks=pytest.mark.long) for k in range(200_000, 201_000, 25)],
    ],
)
def test_random_programs(seeds, all_of_it):
    from_programs.run(seeds)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "first, step", [(1, 240), *[pytest.param(k, 60, marks=pytest.mark.long) for k in range(60)]]
)
def test_lines_of_the_table_of_operations(first, step, all_of_it):
    from_operations.judged(from_operations.all_cases()[first::step])


def test_memory_is_kept_and_results_that_somebody_holds_stay(monkeypatch):
    monkeypatch.setattr(_emitted, "REUSED_BYTES", 1)

    def f(x):
        u = np.tanh(x.reshape(20, 30) * 2.0) + x.reshape(20, 30)
        v = u @ u.T
        w = np.exp(-(v * v)) + v
        return w, u, w[2:5], (w @ u)[::-1], v.T, w.sum()

    p = tg.prepare(f, X, compile=True)
    found = []
    for k in range(16):
        found = [*found[-4:], (k, p.value(X + k))]  # some are held, others let go of
        for at, values in found:
            for a, b in zip(values, f(X + at), strict=True):
                np.testing.assert_allclose(a, b, 1e-12, 1e-13)
    text = p.forms["value"].programs[0].emitted
    pools = [text.space[name] for name in text.pools.values()]
    counts = [len(pool.arrays) for pool in pools]
    for k in range(4):
        p.value(X + k)
    assert max(counts) > 1 and counts == [len(pool.arrays) for pool in pools]


def test_memory_of_results_that_nobody_holds():
    x = np.linspace(0.0, 1.0, 1 << 18)
    p = tg.prepare(lambda x: x * 2.0 + np.exp(x) * x, x, compile=True)
    for _ in range(4):
        p.value(x)
    first = p.value(x)
    view, place, want = first[3:5], first.ctypes.data, first.copy()
    assert p.value(x + 1.0).ctypes.data != place
    del first
    assert p.value(x + 2.0).ctypes.data != place and np.array_equal(view, want[3:5])
    places = [p.value(x + k).ctypes.data for k in range(3)]
    assert len(set(places)) == 1
    held = [p.value(x + k) for k in range(3)]
    assert len({v.ctypes.data for v in held}) == 3
    for k, v in enumerate(held):
        np.testing.assert_allclose(v, (x + k) * 2.0 + np.exp(x + k) * (x + k), 1e-14)


def test_what_a_block_gives_without_gaps_is_laid_out_as_recorded_for_a_group():
    """A group is compiled for the strides of the recording, which a part of an array has with gaps."""
    whole = np.arange(24.0).reshape(3, 4, 2)
    for v in (whole[..., 0], whole[::-1, :, 1], whole[:, 1:, 0].T, whole[:, :1, 0]):
        for like in (v, v.copy(order="K")):
            made = with_strides(like, v.strides)
            np.testing.assert_array_equal(made, v)
            assert [s for s, n in zip(made.strides, v.shape, strict=True) if n > 1] == [
                s for s, n in zip(v.strides, v.shape, strict=True) if n > 1
            ]
    assert with_strides(whole, whole.strides) is whole


@pytest.mark.parametrize("turned", [lambda v: v[::-1], lambda v: v[:, ::-1], lambda v: v.T, lambda v: v[:]])
def test_a_whole_that_is_written_in_another_order(turned):
    """What is no part of a group reads the buffer."""
    weights = np.sin(np.arange(400.0)).reshape(20, 20)

    def f(x):
        y = weights * x[0]
        view = turned(y)
        view *= 0.7
        z = np.zeros((20, 20))
        np.add.at(z, [*range(20)], y)
        return (y * weights).sum() + (z * weights[::-1]).sum()

    fused(f, (X,), (Y,), rtol=1e-13)
    fused(f, (X,), (Y,), rtol=1e-13, method="grad")


def test_uniform_constants_are_one():
    """Buffers that a function makes anew in each trip; those of 0.0 and of -0.0 are two."""

    def f(x):
        total = 0.0
        for k in range(30):
            y = np.zeros(100)
            y[k] = x[k]
            z = np.full(100, -0.0)
            total = total + (y * y).sum() + np.copysign(1.0, z[0]) * np.sin(x[k])
        return total

    x = np.linspace(0.1, 2.0, 30)
    p = tg.prepare(f, x)
    for n in range(4):
        np.testing.assert_allclose(p.grad(x + n), 2 * (x + n) - np.cos(x + n), rtol=1e-13)
    constants = [v for v in p.forms["grad"].programs[0].program.constants.values() if np.shape(v) == (100,)]
    assert len(constants) == len({c.tobytes() for c in constants}) < 5
