"""`tg.prepare`: what is read anew, what is guarded, what is written back, and how errors read."""

import cmath
import copy
import pickle
import sys
import threading
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest

import tapegrad as tg
from tapegrad._core.trees import leaves
from tapegrad.errors import AliasError, ArgumentError, GuardError, ShapeError
from tapegrad.replay.cached_program import CachedProgram
from tapegrad.replay.costs import CALLS_PER_RECORDING

pytestmark = pytest.mark.smoke

X = np.array([0.3, -0.7, 0.2])
V = np.array([1.0, 0.5, -2.0])


def cubes(x):
    return (x**3).sum()


def recordings(p, method="grad"):
    return p.forms[method].recordings


def replayed(p, method="grad"):
    return p.forms[method].eager is None and p.forms[method].replays > 0


# --- what there is ---


def test_value_gradient_and_product_in_one_call():
    p = tg.prepare(lambda x: (x * x).sum(), np.array([1.0, 2.0]))
    for _ in range(3):
        value, gradient, product = p.value_grad_hvp(np.array([1.0, 2.0]), np.array([1.0, 0.0]))
        assert (value, gradient.tolist(), product.tolist()) == (5.0, [2.0, 4.0], [2.0, 0.0])


FORMS = {
    "value": (lambda f: f, ()),
    "grad": (tg.grad, ()),
    "value_and_grad": (tg.value_and_grad, ()),
    "jacobian": (tg.jacobian, ()),
    "hessian": (tg.hessian, ()),
    "jvp": (lambda f: lambda x, v: tg.jvp(f, (x,), (v,)), (V,)),
    "vjp": (lambda f: lambda x, w: (tg.vjp(f, x)[0], tg.vjp(f, x)[1](w)), (np.array(2.0),)),
    "hvp": (lambda f: lambda x, v: tg.hvp(f, x, v), (V,)),
    "hmp": (lambda f: lambda x, v: tg.hmp(f, x, v), (np.eye(3),)),
    "value_grad_hvp": (lambda f: lambda x, v: tg.value_grad_hvp(f, x, v), (V,)),
}


@pytest.mark.parametrize("form", FORMS)
def test_each_gives_what_its_function_gives(form, xp):
    plain, more = FORMS[form]
    more = [xp.asarray(a) if isinstance(a, np.ndarray) else a for a in more]
    buffer = xp.zeros(3)

    def f(x):
        buffer[:] = x * x
        buffer[1:] += xp.sin(x[:-1])
        return (buffer * buffer).sum() * x[0]

    p = tg.prepare(f, xp.asarray(X))
    for k in range(4):
        x = xp.asarray(X * (1 + 0.1 * k))
        got = getattr(p, form)(x, *more)
        left = buffer.copy()
        want = plain(f)(x, *more)
        for a, b in zip(leaves(got), leaves(want), strict=True):
            assert type(a) is type(b) and a.dtype == b.dtype
            assert xp.allclose(a, b, 1e-12, 1e-12)
        assert xp.array_equal(left, buffer)
    assert recordings(p, form) == 1 and p.forms[form].replays == 3


def test_trees_several_arguments_and_constants():
    data = np.array([1.0, 2.0, 3.0])

    def f(p, scale, data, n):
        return {"loss": (p["w"] * data**n).sum() * scale + p["b"], "n": n}

    loss = lambda *args: f(*args)["loss"]
    p = tg.prepare(loss, {"w": X, "b": 1.0}, np.array(2.0), tg.Const(data), 2, argnums=(0, 1))
    for k in range(1, 4):
        args = {"w": X * k, "b": 1.0 * k}, np.array(2.0 + k), tg.Const(data), 2
        got, want = p.grad(*args), tg.grad(loss, (0, 1))(*args)
        assert all(np.allclose(a, b) for a, b in zip(leaves(got), leaves(want), strict=True))
    assert recordings(p) == 1
    args = {"w": X, "b": 1.0}, np.array(2.0), tg.Const(data), 3
    for count in (1, 2):
        assert np.allclose(p.grad(*args)[0]["w"], tg.grad(loss, (0, 1))(*args)[0]["w"])
        assert recordings(p) == count
    q = tg.prepare(f, {"w": X, "b": 1.0}, 2.0, data, 2)
    for _ in range(3):
        y = q.value({"w": X, "b": 1.0}, 2.0, data, 2)
        assert y["n"] == 2 and np.isclose(y["loss"], f({"w": X, "b": 1.0}, 2.0, data, 2)["loss"])


def test_a_transform_a_method_and_another_transform_around():
    class Model:
        scale = 2.0

        def loss(self, x):
            return (x**3).sum() * self.scale

    m = Model()
    p = tg.prepare(tg.grad(m.loss), X)
    for _ in range(3):
        assert np.allclose(p(X), 6 * X**2) and np.allclose(p.jvp(X, V)[1], 12 * X * V)
    q = tg.prepare(m.loss, X)
    q.value(X)
    assert np.allclose(tg.grad(lambda x: q.value(x) ** 2)(X), 2 * m.loss(X) * 6 * X**2)
    assert np.allclose(tg.vmap(q.grad)(np.stack([X, V])), 6 * np.stack([X, V]) ** 2)
    m.scale = 3.0
    assert np.allclose(p(X), 9 * X**2) and np.allclose(q.grad(X), 9 * X**2)


def test_it_can_be_copied_and_pickled():
    p = tg.prepare(cubes, X)
    for q in (copy.copy(p), pickle.loads(pickle.dumps(p))):
        assert np.array_equal(q.grad(X), p.grad(X))


# --- captured arrays ---


def test_captured_arrays_are_read_anew_and_written():
    a, total = np.ones(3), np.zeros(1)

    def f(x):
        total[0] += (a * x).sum()
        return total[0] ** 2

    p = tg.prepare(f, X)
    expected, sums = 0.0, []
    for k in range(5):
        a[:] = k + 1.0
        gradient = p.grad(X)
        expected += (k + 1) * X.sum()
        sums.append(expected)
        assert np.isclose(total[0], expected) and np.allclose(gradient, 2 * expected * a)
    assert recordings(p) == 1 and replayed(p)
    total[0] = 10.0
    assert np.allclose(p.grad(X), 2 * (10 + 5 * X.sum()) * 5)
    assert recordings(p) == 1


def test_views_of_captured_memory_are_followed():
    whole = np.zeros((2, 3))
    row = whole[1]

    def f(x):
        row[:] = x
        return (whole * whole).sum()

    p = tg.prepare(f, X)
    for k in range(1, 5):
        whole[0] = k
        assert np.allclose(p.value(X * k), 3 * k * k + (X * X).sum() * k * k) and np.array_equal(
            whole[1], X * k
        )
    assert recordings(p, "value") == 1


def test_a_captured_array_that_moves_or_changes_its_shape_is_noticed():
    space = {"a": np.ones(3)}
    f = lambda x: (space["a"].sum() * x).sum()
    p = tg.prepare(f, X)
    for a in (np.ones(3), np.full(3, 2.0), np.ones(4), np.ones(4, np.float32), np.ones(3)):
        space["a"] = a
        for _ in range(2):
            assert np.allclose(p.grad(X), a.sum())
    a = space["a"]
    a.resize((2,), refcheck=False)
    assert np.allclose(p.grad(X), 2.0)


def test_what_a_recording_used_up_is_compared():
    n, order, flags = np.array([2]), np.array([2, 0, 1]), np.array([1.0, -1.0, 1.0])

    def f(x):
        y = x[: n[0]].sum() + (x[order] * np.arange(3.0)).sum()
        return y + (x[flags > 0] ** 2).sum()

    p, g = tg.prepare(f, X), tg.grad(f)
    for change in (
        lambda: n.fill(3),
        lambda: order.sort(),
        lambda: flags.fill(1.0),
        lambda: flags.fill(-1.0),
    ):
        for _ in range(3):
            assert np.allclose(p.grad(X), g(X))
        change()
    assert np.allclose(p.grad(X), g(X)) and replayed(p)


def test_arrays_of_arguments_are_as_a_plain_call_leaves_them():
    def f(x):
        x *= 2.0
        x[0] = 1.0
        return (x * x).sum()

    p = tg.prepare(f, X)
    for _ in range(3):
        x = X.copy()
        assert np.allclose(p.grad(x), [0.0, 8 * X[1], 8 * X[2]]) and np.array_equal(x, X)


def test_arguments_that_share_memory():
    def f(x, y):
        x[0] = y[1] * 2.0
        return (x * y).sum()

    p = tg.prepare(f, X, V)
    for _ in range(3):
        p.grad(X, V)
    x = X.copy()
    with pytest.raises(AliasError):
        tg.grad(f)(x, x)
    with pytest.raises(AliasError):
        p.grad(x, x)


# --- guards ---


def settings():
    """(what changes a setting that f reads, f) for each way to it."""
    box, items, table, names = (
        SimpleNamespace(scale=2.0),
        [1.0, 2.0],
        {"scale": 2.0},
        {"np": np, "scale": 2.0, "__name__": "user"},
    )
    k = 2.0

    def rebind():
        nonlocal k
        k = 3.0

    exec("def f(x): return (x * x).sum() * scale", names)
    helper = SimpleNamespace(f=lambda x: x * 2.0)

    class Base:
        def __call__(self, x):
            return (x * x).sum()

    class Derived(Base):
        pass

    derived = Derived()
    yield "number in a cell", lambda x: (x * x).sum() * k, rebind
    yield "attribute", lambda x: (x * x).sum() * box.scale, lambda: setattr(box, "scale", 3.0)
    yield "item", lambda x: (x * x).sum() * items[0], lambda: items.__setitem__(0, 3.0)
    yield "length", lambda x: (x * x).sum() * len(items), lambda: items.append(3.0)
    yield "entry", lambda x: (x * x).sum() * table["scale"], lambda: table.update(scale=3.0)
    yield "global", names["f"], lambda: names.update(scale=3.0)
    yield "function", lambda x: (helper.f(x) ** 2).sum(), lambda: setattr(helper, "f", lambda x: x * 3.0)
    yield (
        "method that was inherited",
        lambda x: derived(x),
        lambda: setattr(Derived, "__call__", lambda self, x: (x**3).sum()),
    )


@pytest.mark.parametrize("case", list(settings()), ids=lambda case: case[0])
def test_what_f_reads_is_guarded(case):
    _, f, change = case
    p, strict = tg.prepare(f, X), tg.prepare(f, X, on_change="raise")
    for _ in range(CALLS_PER_RECORDING):
        assert np.allclose(p.grad(X), tg.grad(f)(X)) and np.allclose(strict.grad(X), tg.grad(f)(X))
    before = p.grad(X)
    change()
    assert np.allclose(p.grad(X), tg.grad(f)(X)) and not np.allclose(p.grad(X), before) and recordings(p) == 2
    with pytest.raises(
        GuardError,
        match=r"prepare\(.*\)\.grad: what the function reads from its surroundings .* has changed; with "
        r"on_change=",
    ):
        strict.grad(X)


def test_numbers_of_modules_are_guarded(monkeypatch):
    p = tg.prepare(lambda x: (x * x).sum() * cmath.pi, X)
    for _ in range(3):
        p.grad(X)
    monkeypatch.setattr(cmath, "pi", 3.0)
    assert np.allclose(p.grad(X), 6.0 * X)


def branching(x):
    if x[0] > 0:
        return (x * x).sum()
    return (x**3).sum()


def test_a_branch_that_flips():
    p = tg.prepare(branching, X)
    for n, x in enumerate(3 * [X, -X, X, -X, X * 2]):
        assert np.allclose(p.grad(x), tg.grad(branching)(x))
        assert recordings(p) == 1 or n >= CALLS_PER_RECORDING
    assert recordings(p) == 2
    strict = tg.prepare(branching, X, on_change="raise")
    strict.grad(X)
    line = branching.__code__.co_firstlineno + 1
    with pytest.raises(
        GuardError,
        match=rf"prepare\(branching\)\.grad: .*test_replay\.py:{line}: a condition is no longer True; with",
    ):
        strict.grad(-X)


def test_shapes_dtypes_and_arguments_of_another_kind():
    p, strict = tg.prepare(cubes, X), tg.prepare(cubes, X, on_change="raise")
    for x in (X, np.ones(4), X.astype(np.float32), np.ones((2, 3)).T, X + 0j, X):
        want = tg.grad(lambda x: cubes(x).real)(x) if x.dtype.kind == "c" else tg.grad(cubes)(x)
        if x.dtype.kind == "c":
            continue
        got = p.grad(x)
        assert got.dtype == want.dtype and np.array_equal(got, want)
    with pytest.raises(
        GuardError,
        match=r"argument 0 is an array of shape \(4,\), float64 instead of an array of shape \(3,\), float64",
    ):
        strict.grad(np.ones(4))
    with pytest.raises(GuardError, match=r"2 arguments instead of 1"):
        strict.grad(X, X)


def test_warnings_and_errors_are_those_of_a_plain_call():
    p = tg.prepare(lambda x: np.log(x).sum(), V**2)
    for _ in range(3):
        p.grad(V**2)
    with pytest.warns(RuntimeWarning, match="divide by zero encountered in log"):
        assert p.value(np.zeros(3)) == -np.inf
    p.value(V**2)
    with pytest.warns(RuntimeWarning, match="divide by zero encountered in log"):
        assert p.value(np.zeros(3)) == -np.inf
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        p.value(np.zeros(3))
    with np.errstate(all="ignore"):
        assert p.value(np.zeros(3)) == -np.inf
    q = tg.prepare(lambda a: np.linalg.cholesky(a).sum(), np.eye(2))
    for _ in range(3):
        q.grad(np.eye(2))
    with pytest.raises(np.linalg.LinAlgError):
        q.grad(-np.eye(2))
    assert np.allclose(q.grad(np.eye(2)), tg.grad(lambda a: np.linalg.cholesky(a).sum())(np.eye(2)))


def test_zero_times_infinity_is_zero_as_it_is_plainly():
    f = lambda x: np.where(x > 0, np.log(x) * x, 0.0).sum()
    p = tg.prepare(f, V**2)
    with np.errstate(all="ignore"):
        for x in (V**2, V**2, V**2, np.array([0.0, 1.0, 2.0])):
            assert np.array_equal(p.grad(x), tg.grad(f)(x))


# --- what cannot be recorded ---


def test_an_order_of_its_own_that_is_shuffled_is_run_plainly():
    rng, same = np.random.default_rng(1), np.random.default_rng(1)

    def f(rng):
        def of(x):
            order = np.arange(3)
            rng.shuffle(order)
            return (x[order] * V).sum()

        return of

    p = tg.prepare(f(rng), X)
    for _ in range(4):
        assert np.array_equal(p.grad(X), tg.grad(f(same))(X))
    assert "run as it is" in p.report() and "random" in p.report()
    with pytest.raises(GuardError, match=r"prepare\(of\)\.grad: .* cannot be recorded: .*random"):
        tg.prepare(f(rng), X, on_change="raise").grad(X)


def test_a_seed_inside_gives_the_same_numbers():
    def f(x):
        return (x * np.random.default_rng(3).standard_normal(3)).sum()

    p = tg.prepare(f, X)
    for _ in range(4):
        assert np.array_equal(p.grad(X), tg.grad(f)(X))
    assert replayed(p)


def test_calls_that_are_counted_are_counted():
    calls, box = [], SimpleNamespace(count=0)

    def f(x):
        calls.append(1.0)
        box.count += 1
        return (x * x).sum() * box.count

    p = tg.prepare(f, X)
    for k in range(1, 5):
        assert np.allclose(p.grad(X), 2 * X * k) and len(calls) == box.count == k
    assert "a call changes what the function reads" in p.report()


def test_a_number_that_is_used_up_is_run_plainly_in_the_end():
    def f(x):
        return tg.value(x)[0] * x[0] if int(x[0] * 1e6) % 2 else x[0] * 2.0

    p = tg.prepare(f, X)
    for k in range(640):
        x = X + 0.001234567 * k
        assert np.allclose(p.grad(x), tg.grad(f)(x))
    assert "another way, and few were replayed" in p.report()


def test_compiled_code_that_wants_numbers(recwarn):
    f = lambda x: (x * float.fromhex(tg.value(x)[0].hex())).sum()
    p = tg.prepare(f, X)
    for x in (X, X, V, V):
        assert np.allclose(p.grad(x), tg.grad(f)(x))
    assert "run as it is, not recorded" in p.report()
    with pytest.raises(
        GuardError,
        match=r"prepare\(<lambda>\)\.grad: <lambda> \(.*\) cannot be recorded: .*x\.hex\(\) of a tracked "
        r"value",
    ):
        tg.prepare(f, X, on_change="raise").grad(X)


# --- at a fixed point ---


def test_products_at_a_fixed_point_pay_for_the_direction_only():
    A = np.arange(9.0).reshape(3, 3) / 9 + np.eye(3)
    buffer = np.zeros(3)

    def f(x):
        buffer[:] = np.tanh(A @ x)
        return (np.linalg.solve(A + np.eye(3), buffer) ** 2).sum()

    g = lambda x: np.linalg.solve(A + np.diag(np.exp(x)), x)
    p, q = tg.prepare(g, X), tg.prepare(f, X)
    here = p.at(X)
    for k in range(1, 5):
        v = V * k
        want = tg.jvp(g, (X,), (v,))
        assert all(np.allclose(a, b, 1e-12) for a, b in zip(here.jvp(v), want, strict=True))
        value, pullback = tg.vjp(g, X)
        assert all(np.allclose(a, b, 1e-12) for a, b in zip(here.vjp(v), (value, pullback(v)), strict=True))
        assert np.allclose(q.at(X).hvp(v), tg.hvp(f, X, v), 1e-12)
    whole = len(p.forms["jvp"].programs[0].program.code)
    assert len(here.folded["jvp"].rest.program.code) < whole
    A[0, 0] = 5.0  # what was folded is out of date
    for _ in range(3):
        assert np.allclose(here.jvp(V)[1], tg.jvp(g, (X,), (V,))[1], 1e-12)
    out = np.zeros(3)
    assert here.jvp(V, out=out)[1] is out and np.allclose(out, tg.jvp(g, (X,), (V,))[1])
    assert here.value().shape == (3,) and np.allclose(q.at(X).grad(), tg.grad(f)(X))
    assert np.allclose(tg.prepare(cubes, X).at(X).hmp(np.eye(3)), np.diag(6 * X))


def test_a_fixed_point_is_a_copy_and_its_results_are_fresh():
    x = X.copy()
    here = tg.prepare(cubes, x).at(x)
    first = [here.hvp(V) for _ in range(3)]
    x[:] = 100.0
    for y in first:
        y[:] = 0.0
    assert np.allclose(here.hvp(V), 6 * X * V) and np.allclose(here.hvp(2 * V), 12 * X * V)


# --- results ---


def test_results_are_fresh_and_out_is_filled():
    p = tg.prepare(lambda x: (x * 2.0, x), X)
    kept = [p.value(X) for _ in range(4)]
    for y, same in kept:
        y[:] = 7.0
        same[:] = 8.0
    assert X[0] == 0.3 and np.array_equal(p.value(X)[0], X * 2.0)
    g = tg.prepare(cubes, X)
    x = X.copy()
    for _ in range(3):
        want = tg.grad(cubes)(x)
        assert g.grad(x, out=x) is x and np.array_equal(x, want)
    out = np.zeros(3)
    value, hv = g.jvp(X, V), g.hvp(X, V, out=out)
    assert hv is out and np.allclose(out, 6 * X * V) and np.allclose(value[1], (3 * X**2 * V).sum())
    with pytest.raises(
        ShapeError, match=r"prepare\(cubes\)\.grad: out= is ndarray\(4,\), the result is ndarray\(3,\)"
    ):
        g.grad(X, out=np.zeros(4))
    with pytest.raises(ShapeError, match="float32"):
        g.grad(X.astype(np.float32), out=np.zeros(3))


def test_results_that_are_captured_or_constant_are_fresh():
    a = np.ones(3)

    def f(x):
        a[:] = x
        return a, a[1:], np.zeros(2), x

    p = tg.prepare(f, X)
    for _ in range(4):
        for y in p.value(X):
            y[...] = 9.0
        assert np.array_equal(a, X) and np.array_equal(p.value(X)[2], np.zeros(2))


def test_large_arrays_use_memory_again():
    f = lambda x: (np.sin(x) * np.exp(-x * x) + np.cos(x * 2.0) * x).sum()
    x = np.linspace(-1, 1, 20_000)
    p = tg.prepare(f, x)
    for k in range(1, 5):
        assert np.allclose(p.grad(x * k), tg.grad(f)(x * k), 1e-13, 1e-13)
        value, gradient, hv = p.value_grad_hvp(x * k, x)
        assert np.allclose(hv, tg.hvp(f, x * k, x), 1e-13, 1e-13) and np.allclose(
            gradient, p.grad(x * k), 1e-13, 1e-13
        )


def test_several_threads_replay_one_program():
    a = np.full(2000, 2.0)
    f = lambda x: (np.sin(a * x) ** 2).sum()
    x = np.linspace(0, 1, 2000)
    p = tg.prepare(f, x)
    p.grad(x)
    wrong = []

    def work(k):
        want = 2 * a * np.sin(a * x * k) * np.cos(a * x * k)
        for _ in range(30):
            if not np.allclose(p.grad(x * k), want):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


# --- bad input ---


def test_bad_input():
    with pytest.raises(
        ArgumentError, match=r"prepare\(cubes\): give arguments like those of the calls to come"
    ):
        tg.prepare(cubes)
    with pytest.raises(
        ArgumentError, match=r"prepare\(cubes\): on_change='again'; it is 'record' or 'raise'"
    ):
        tg.prepare(cubes, X, on_change="again")
    with pytest.raises(
        ArgumentError, match=r"prepare\(cubes\): argnums=1 does not fit a call with 1 positional"
    ):
        tg.prepare(cubes, X, argnums=1)
    with pytest.raises(ArgumentError, match=r"prepare\(cubes\): argument 0 has dtype int64"):
        tg.prepare(cubes, np.arange(3))
    with pytest.raises(
        ArgumentError, match=r"\.hvp: a product is that of argument 0; prepare with argnums=0, not 1"
    ):
        tg.prepare(lambda a, x: (a * x).sum(), X, X, argnums=1).hvp(X, V)
    with pytest.raises(ShapeError, match="tangent"):
        tg.prepare(cubes, X).hvp(X, np.ones(4))


def test_an_error_of_the_function_is_its_own_and_is_no_reason_to_give_up():
    def f(x):
        if x[0] < 0:
            raise ValueError("below zero")
        return (x * x).sum()

    p = tg.prepare(f, X)
    with pytest.raises(ValueError, match="below zero"):
        p.grad(-X)
    for _ in range(3):
        assert np.allclose(p.grad(X), 2 * X)
    with pytest.raises(ValueError, match="below zero"):
        p.grad(-X)
    assert replayed(p)


def test_report():
    p = tg.prepare(cubes, X)
    assert p.report() == "prepare(cubes)\n  nothing is recorded yet"
    p.grad(X)
    assert "bound calls" in p.report()
    p.grad(X)
    p.grad(X)
    assert "one text of Python" in p.report() and ".grad" in p.report() and ".hvp" not in p.report()


def test_many_directions_at_once_are_recorded():
    """Rows of V are parts of an argument, and enough of them are done by one sweep."""
    p = tg.prepare(lambda x: (x**3).sum() + x[0] * x[1], np.ones(10))
    x = np.linspace(1, 2, 10)
    np.testing.assert_allclose(p.hmp(x, np.eye(10)), tg.hessian(p.f)(x))
    np.testing.assert_allclose(p.hmp(x + 1, np.eye(10)), tg.hessian(p.f)(x + 1))
    assert "run as it is" not in p.report()


@pytest.mark.parametrize("n", [3, 100])
@pytest.mark.parametrize("order", ["C", "F"])
def test_results_lie_in_memory_as_those_of_a_plain_call(order, n):
    x = np.array(np.random.default_rng(0).random((n, n)), order=order)
    functions = [
        np.sin,
        lambda x: (x * 2).T,
        lambda x: x,
        lambda x: (x * 2)[:, ::-1],
        lambda x: np.cumsum(x[::-1], 0),
    ]
    for f in functions:
        p, want = tg.prepare(f, x), f(x)
        for _ in range(4):
            found = p.value(x)
            assert found.strides == want.strides and np.array_equal(found, want)
        assert not np.shares_memory(p.value(x), x)
        q = tg.prepare(lambda x, f=f: (f(x) ** 2).sum(), x)
        want = tg.grad(q.of)(x)
        for _ in range(4):
            assert q.grad(x).strides == want.strides


def test_a_program_lets_go_of_what_was_recorded():
    """Of sixteen arrays on the way nothing is left once the call is over."""
    x = np.linspace(0.1, 0.9, 100_000)

    def f(x):
        for _ in range(16):
            x = np.sin(x) * 0.9
        return x.sum()

    p = tg.prepare(f, x)
    tracemalloc.start()
    p.value_and_grad(x)
    left, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert left < 4 * x.nbytes and recordings(p, "value_and_grad") == 1


@pytest.mark.parametrize("method", ["value", "grad", "value_and_grad", "jvp", "hvp"])
def test_buffers_written_whole_and_in_parts(method):
    """What was written whole is what was written there, until one of the two is written again."""

    def made():
        B, C, D = np.zeros(3), np.ones(3), np.zeros((2, 3))

        def f(x):
            B[:] = x * 2.0
            y = x * x
            B[:] = y
            C[:] = B
            C[...] = B
            B[1] = 3.0 * x[2]
            C[0] = -y[1] * x[1]
            B[:2] = x[1:] * y[0]
            D[:] = 1.0
            D[0] = y
            D[1] = x
            D[:, 1] = x[:2]
            D[1, 1:] = 0.25
            y[2] = 5.0 * x[0]
            u = D[0, ::2] * 2.0
            D[0] = B
            return (B * C * x + y).sum() + (D * D).sum() + (u * y[:2]).sum()

        return f, (B, C, D)

    for x in (X, 2 * X):
        args = (x, V) if method in ("jvp", "hvp") else (x,)
        f, _ = made()
        p = tg.prepare(f, X)
        for _ in range(4):
            found = getattr(p, method)(*args)
        g, buffers = made()
        want = {
            "value": lambda: g(x), "grad": lambda: tg.grad(g)(x),
            "value_and_grad": lambda: tg.value_and_grad(g)(x),
            "jvp": lambda: tg.jvp(g, (x,), (V,)), "hvp": lambda: tg.hvp(g, x, V),
        }[method]()  # fmt: skip
        for one, other in zip(leaves(found), leaves(want), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-14)
        for cell, buffer in zip(f.__closure__, buffers, strict=True):
            np.testing.assert_allclose(cell.cell_contents, buffer, rtol=1e-14)
        assert replayed(p, method)


def test_a_buffer_written_whole_costs_no_copy():
    buffer = np.zeros(3)

    def f(x):
        for _ in range(20):
            buffer[:] = np.sin(x)
            x = buffer * 0.5
        return x.sum()

    p = tg.prepare(f, X)
    p.grad(X)
    p.grad(X)
    made = [i.prim.name for _, i in p.forms["grad"].programs[0].program.code if not isinstance(i.prim, str)]
    assert (
        made.count("assign") <= 2 or "tapegrad._dispatch.fast" not in sys.modules
    )  # that leaves the copies out


def test_parts_that_do_not_fit_are_told_where():
    buffer = np.zeros(3)

    def wrong(at, y):
        def f(x):
            buffer[0] = x[0]
            buffer[at] = y(x)
            return buffer.sum()

        return f

    for at, y, error in (
        (7, lambda x: x[0], IndexError),
        (slice(2), lambda x: x, ShapeError),
        ((0, 1), lambda x: x[0], IndexError),
    ):
        with pytest.raises(error):
            tg.prepare(wrong(at, y), X).grad(X)
        np.testing.assert_array_equal(buffer, [X[0], 0.0, 0.0])  # as a plain call leaves it
        buffer[:] = 0.0


def test_what_is_read_only_is_not_taken_over():
    B = np.zeros(3)

    def taken(x):
        B[:] = 1.0
        B[:] = x
        B[0] = x[1] * x[1]
        return (B * B).sum()

    x = X.copy()
    x.flags.writeable = False
    p = tg.prepare(taken, x)
    for _ in range(3):
        np.testing.assert_allclose(p.grad(x), tg.grad(taken)(x), rtol=1e-14)


def events(trips):
    """A function with an event in a loop, at trips that depend on x."""

    def f(x):
        y = x * 1.0
        for _ in range(trips):
            y = y * (1.01 + 0.02 * x[2]) + 0.001 * x[0]
            if y[0] > 1.5:
                y = y * 0.5 * (1 + x[1])
        return (y * y).sum()

    return f


def test_other_ways_are_recorded_once_calls_have_paid_for_it():
    """A recording costs about as much as ten plain calls. Plain calls come first: twice as many where the
    last recording was not replayed, and twice as many after each in vain."""

    f, last = events(100), 6 * CALLS_PER_RECORDING
    p, rng = tg.prepare(f, X), np.random.default_rng(0)
    with pytest.warns(tg.errors.ReplayWarning, match="30 calls were run as they are.* not paid") as told:
        for n in range(last + 1):
            x = rng.random(3) + 0.2
            g = p.grad(x)
            assert recordings(p) == 1 + (n >= 2 * CALLS_PER_RECORDING) + (n == last)
    np.testing.assert_allclose(g, tg.grad(f)(x), rtol=1e-12)
    assert len(told) == 1
    assert f"{last - 2} calls were run as they are: no recording holds for them" in p.report()

    q, points = tg.prepare(f, X), rng.random((3, 3)) + 0.2
    for n in range(40):
        np.testing.assert_allclose(q.grad(points[n % 3]), tg.grad(f)(points[n % 3]), rtol=1e-12)
    assert recordings(q) == 3 and replayed(q)


@pytest.mark.filterwarnings("ignore::tapegrad.errors.ReplayWarning")
def test_ways_that_do_not_come_again_are_seldom_tried(monkeypatch):
    tried, replay = [], CachedProgram.replay
    monkeypatch.setattr(CachedProgram, "replay", lambda kept, values: tried.append(0) or replay(kept, values))
    f, points = events(100), np.random.default_rng(0).random((60, 3)) + 0.2
    p = tg.prepare(f, X)
    for x in points:
        np.testing.assert_allclose(p.grad(x), tg.grad(f)(x), rtol=1e-12)
    assert len(tried) < 40
    for _ in range(2 * CALLS_PER_RECORDING):  # (the last way that was recorded)
        p.grad(points[30])
    before = len(tried)
    for _ in range(5):
        p.grad(points[30])
    assert len(tried) == before + 5 and replayed(p)


def test_ways_in_turn_are_recorded_one_after_the_other():
    def ways(x):
        y = x
        for k in range(1, 5):
            if x[0] > k:
                y = np.sin(y) + k
        return (y * y).sum()

    p = tg.prepare(ways, X)
    for n in range(120):
        x = X + n % 5
        np.testing.assert_allclose(p.grad(x), tg.grad(ways)(x), rtol=1e-12)
    assert recordings(p) == 5 and replayed(p)


def test_another_kind_of_arguments_is_recorded_once_it_comes_again():
    """Shapes that never come again cost one recording in all, and are told once."""
    p, sizes = tg.prepare(cubes, X), [*range(4, 40), 7, 7]
    p.grad(X)
    with pytest.warns(
        tg.errors.ReplayWarning, match="30 calls were run as they are.*had not come before"
    ) as told:
        for n in sizes:
            np.testing.assert_array_equal(p.grad(np.ones(n)), tg.grad(cubes)(np.ones(n)))
    assert recordings(p) == 2 and p.forms["grad"].replays == 1 and len(told) == 1


def test_a_condition_is_recorded_about_as_fast_as_other_operations():
    """Calls of Python functions, of a trip with a condition and of one without it."""

    def calls(condition):
        def f(x):
            y = x[0]
            for _ in range(100):
                y = y * 0.5 if condition and y > 2.0 else y + x[1]
            return y

        p, count = tg.prepare(f, np.array([0.5, 0.001])), []
        before = sys.getprofile()
        sys.setprofile(lambda frame, event, arg: count.append(0) if event == "call" else None)
        try:
            p.grad(np.array([0.5, 0.001]))
        finally:
            sys.setprofile(before)
        return len(count)

    assert calls(True) - calls(False) < 50 * 100


def test_surroundings_that_change_often_are_not_recorded_each_time():
    """Each recording of this function is replayed three times at most."""
    missing, y = np.zeros(20, bool), np.linspace(0, 1, 20)

    def f(x):
        return sum([(x[0] * v - x[1]) ** 2 for v, m in zip(y, missing, strict=True) if not m])

    p = tg.prepare(f, X)
    for n in range(80):
        missing[n // 4] = True
        np.testing.assert_array_equal(p.grad(X + n), tg.grad(f)(X + n))
        assert recordings(p) == sum([n >= k * CALLS_PER_RECORDING for k in (0, 1, 3, 7)])


class Held:
    """Of which code reads the namespace."""

    def __init__(self, a):
        self.a = a

    @property
    def twice(self):
        return self.__dict__.setdefault("kept", 2.0 * self.a)


class Weak(Held):
    def __getattr__(self, name):
        if name == "a" or name[:2] == "__":
            raise AttributeError(name)
        return getattr(self.a, name)


@pytest.mark.parametrize("kind", (Held, Weak))
@pytest.mark.parametrize(
    "read",
    (lambda h: h.twice, lambda h: vars(h)["a"], copy.copy, lambda h: getattr(h, "a")),  # noqa: B009
)
def test_what_is_as_it_was_is_not_walked_through_again(read, kind):
    """One comparison for each place that was passed is enough, whatever the way that code reads it."""
    outer = kind(np.array([1.0, 2.0, 3.0]))

    def f(x):
        inner = kind(x * outer.a)
        found = read(outer), read(inner)
        return sum([(getattr(y, "a", y) ** 2).sum() for y in found])

    p = tg.prepare(f, X)
    for _ in range(3):
        np.testing.assert_allclose(p.grad(X), tg.grad(f)(X))
    kept = p.forms["grad"].programs[0].surroundings
    _, same = kept.environment.looked()
    assert same()


def test_a_product_at_a_point_runs_its_own_operations_one_by_one():
    """What a program has kept for bound calls is not that of the part which depends on the direction."""

    def f(x):
        u = x
        for _ in range(6):
            u = np.sin(u) * 2.0 / (1.0 + u * u)
        return (u * x).sum()

    x, v = np.full(3, 0.3), np.array([1.0, 2.0, 3.0])
    p = tg.prepare(f, x, compile=False)
    for _ in range(2):
        p.hvp(x, v)  # by bound calls
    here = p.at(x)
    here.hvp(v)
    rest = here.folded["hvp"].rest
    rest.emitted = None
    found = rest.program.run([v])
    assert type(found) is tuple
    np.testing.assert_allclose(found[0][0], tg.hvp(f, x, v), 1e-13)
