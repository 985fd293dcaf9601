"""The tape by hand and dual numbers: random programs against jets and complex steps, and each line of the
table of operations."""

import copy
import gc
import itertools
import math
import operator
import pickle
import weakref

import numpy as np
import pytest
import random_programs
from cases import all_cases
from grid import of_active
from judged_programs import CLOSE, argument, expected_of, maker

import tapegrad as tg
import tapegrad.numpy as tnp
from tapegrad.errors import ArgumentError, DroppedDerivativeError, NoRuleError, NotScalarError, ShapeError
from tapegrad.testing.derivative_checks import direction_like, inner_product

pytestmark = pytest.mark.smoke

CASES = [c for c in all_cases() if c.order >= 2]


def judged(seeds):
    """(program, f, x, v, gradient, H v): the last two by plain runs alone."""
    for seed in seeds:
        program = random_programs.draw(seed, bare=True)
        x, v = [np.array(a) for a in argument(seed, np)]  # in C order, as the copy on a tape
        with np.errstate(all="ignore"):
            known, _ = expected_of(program, x, v, np)
        gradients = [g for name, g, tolerance in known.gradients if tolerance == CLOSE]
        products = [p for name, p, _ in known.products if name == "second order"]
        if gradients and products and max(np.abs(products[0]).max(), np.abs(gradients[0]).max()) < 1e3:
            yield program, maker(program, np)[0]()[0], x, v, gradients[0], products[0]


def close(found, expected, tolerance=1e-8):
    np.testing.assert_allclose(
        found, expected, rtol=tolerance, atol=tolerance * (1 + np.max(np.abs(expected), initial=0.0))
    )


def tapes(seeds):
    count = 0
    for program, f, a, v, g, hv in judged(seeds):
        with np.errstate(all="ignore"):
            with tg.Tape() as tape:
                x = tape.watch(a)
                y = f(x.copy())
            message = f"seed {program.seed}"
            close(tape.grad(y, x), g), close(tape.hvp(y, x, v), hv)
            close(tape.jvp(y, x, v), g @ v), close(tape.vjp(y, 2.0, x), 2 * g), close(tape.jacobian(y, x), g)
            y.backward()
            assert np.array_equal(x.grad, tape.grad(y, x)), message
        count += 1
    return count


def duals(seeds):
    count = 0
    for program, f, a, v, g, hv in judged(seeds):
        u = np.cos(np.arange(a.size) + program.seed)
        with np.errstate(all="ignore"):
            y = f(tg.Dual(a, v))
            close(y.tangent, g @ v)
            second = f(tg.Dual(tg.Dual(a, v), tg.Dual(u, np.zeros_like(u))))
            (
                close(second.tangent.tangent, u @ hv),
                close(second.value.tangent, g @ v),
                close(second.tangent.value, g @ u),
            )
            assert type(y) is tg.Dual and y.value == second.value.value
            # under a transform: the direction is tracked, and so is the point
            close(tg.grad(lambda p: f(tg.Dual(a, p)).tangent)(v), g)
            close(tg.grad(lambda p: f(tg.Dual(p, v)).tangent)(a.copy()), hv)
        count += 1
    return count


def test_random_programs_on_a_tape():
    assert tapes(range(8_000, 8_012)) > 6


def test_random_programs_of_dual_numbers():
    assert duals(range(9_000, 9_010)) > 5


@pytest.mark.long
def test_six_hundred_random_programs():
    assert tapes(range(10_000, 10_300)) > 250 and duals(range(20_000, 20_300)) > 250


def checked(case):
    """All products of one line of the table, on a tape by hand and by transforms."""
    nums, f = of_active(case, case.inputs)
    given = tuple([case.inputs[n] for n in nums])
    rng = np.random.default_rng(1)
    v = direction_like(given, rng)
    value, tangent = tg.jvp(f, given, v)
    w = direction_like(value, rng)
    phi = lambda xs: inner_product(w, f(*xs))
    with tg.Tape() as tape:
        x = tuple([tape.watch(a) for a in given])
        y = f(*x)
        z = inner_product(w, y)
    pairs = [(tape.jvp(y, x, v), tangent), (tape.vjp(z, 1.0, x), tg.grad(phi)(given))]
    if case.order > 1:
        pairs.append((tape.hvp(z, x, v), tg.hvp(phi, given, v)))
    for found, expected in pairs:
        for a, b in zip(tg.ravel(found)[0], tg.ravel(expected)[0], strict=True):
            assert (
                a == b
                or abs(a - b) <= 1e-10 * max(1.0, abs(b), np.abs(tg.ravel(expected)[0]).max())
                or (np.isnan(a) and np.isnan(b))
            ), case


def run(cases):
    refused = 0
    with np.errstate(all="ignore"):
        for case in cases:
            try:
                checked(case)
            except DroppedDerivativeError:  # NumPy's names are not followed here
                refused += 1
    assert refused < len(cases) / 3


def test_each_seventeenth_operation():
    run(CASES[::17])


@pytest.mark.long
def test_each_operation():
    run(CASES)


def test_operations_whose_records_do_not_tell_second_derivatives_are_refused():
    scale = [2.0]
    cube = tg.rule(lambda x: x**3, vjp=lambda g, out, x: scale[0] * g * x**2)
    for f in (lambda x: cube(x).sum(), lambda x: tg.checkpoint(lambda v: np.sin(v).sum())(x)):
        with tg.Tape() as tape:
            x = tape.watch(np.ones(2))
            y = f(x)
        with pytest.raises(NoRuleError, match="tapegrad.hvp"):
            tape.hvp(y, x, np.ones(2))
        tape.grad(y, x)


def test_trees_views_and_buffers():
    a, b = np.array([1.0, 2.0]), 3.0
    with tg.Tape() as tape:
        x = {"a": tape.watch(a), "b": tape.watch(b)}
        y = {"u": x["a"] * x["b"], "v": x["a"][1:]}
        buffer = tnp.zeros(2)
        buffer[:] = x["a"] ** 2
        z = (y["u"] ** 2).sum()
    v, w = {"a": np.array([1.0, -1.0]), "b": 2.0}, {"u": np.array([1.0, 2.0]), "v": np.array([5.0])}
    found = tape.jvp(y, x, v)
    close(found["u"], [5.0, 1.0]), close(found["v"], [-1.0])
    found = tape.vjp(y, w, x)
    close(found["a"], [3.0, 11.0]), close(found["b"], 5.0)
    close(tape.jacobian(buffer, x["a"]), np.diag([2.0, 4.0]))
    close(tape.jacobian(y, x)["v"]["a"], [[0.0, 1.0]]), close(tape.jacobian(y, x)["u"]["b"], a)
    for mode in ("forward", "reverse"):
        close(tape.jacobian(buffer, x["a"], mode=mode), np.diag([2.0, 4.0]))
    close(tape.hvp(z, x, v)["b"], 2 * 2.0 * (a @ a) + 4 * 3.0 * (a @ v["a"]))  # of b^2 a.a
    z.backward()
    close(x["a"].grad, 18 * a), close(x["b"].grad, 30.0)
    z.backward()
    close(x["a"].grad, 36 * a)  # it adds up
    buffer[0] = 7.0
    with pytest.raises(ArgumentError, match="does not depend"):
        tape.jacobian(buffer, x["a"])


def test_tapes_within_transforms_and_tapes():
    def f(p):
        with tg.Tape() as tape:
            x = tape.watch(p)
            y = (x**3).sum()
        y.backward()
        return (tape.hvp(y, x, p) + tape.grad(y, x) + x.grad).sum() + tape.jvp(y, x, p)

    p = np.array([1.0, 2.0])  # 6 p^2 + 6 p^2 + 3 p^3
    close(tg.grad(f)(p), 24 * p + 9 * p**2), close(tg.hvp(f, p, np.ones(2)), 24 + 18 * p)
    with tg.Tape() as outer:
        x = outer.watch(p)
        with tg.Tape() as inner_tape:
            z = inner_tape.watch(x)
            y = (z**3).sum()
        g = inner_tape.grad(y, z)
    close(outer.jacobian(g, x), np.diag(6 * p))


def test_complex_values_on_a_tape():
    a = np.array([1.0 + 2.0j, -0.5 + 0.3j])
    v, w = np.array([0.3 - 1.0j, 2.0 + 0.1j]), np.array([1.0 - 1.0j, 0.5j])
    with tg.Tape() as tape:
        x = tape.watch(a)
        y = x * x
        z = (y * y.conj()).real.sum()
    close(tape.jvp(y, x, v), 2 * a * v), close(tape.vjp(y, w, x), np.conj(2 * a) * w)
    close(tape.jacobian(y, x, holomorphic=True), np.diag(2 * a))
    slope = lambda s: 4 * np.abs(a + s * v) ** 2 * (a + s * v)  # the gradient of |x|^4
    close(tape.hvp(z, x, v), (slope(1e-6) - slope(-1e-6)) / 2e-6, 1e-7)


def test_what_is_asked_wrongly_says_what_to_write():
    a = np.ones(2)
    with tg.Tape() as tape:
        x = tape.watch(a)
        y = x * x
    for ask in (lambda: tape.hvp(y, x, a), lambda: y.backward()):
        with pytest.raises(NotScalarError, match="sum"):
            ask()
    for ask in (
        lambda: tape.jvp(y, x, np.ones(3)),
        lambda: tape.vjp(y, 1.0, x),
        lambda: tape.hvp(y.sum(), x, a),
    ):
        with pytest.raises((ShapeError, ArgumentError)):
            ask()
    with pytest.raises(ArgumentError, match="not watched"):
        tape.jacobian(y, y)
    with pytest.raises(ArgumentError, match="mode"):
        tape.jacobian(y, x, mode="sideways")
    for outside in (tg.Variable(a), tg.Variable(2.0)):
        with pytest.raises(AttributeError, match=r"tape.grad\(y, x\)"):
            outside.backward()
        assert not hasattr(outside, "grad") and not hasattr(outside, "backward")
    with pytest.raises(AttributeError, match=r"tapegrad.grad\(f\)"):
        tg.grad(lambda x: x.sum().backward())(a)


def test_tapes_are_no_cycles():
    gc.collect()
    gc.disable()
    try:
        with tg.Tape() as tape:
            x = tape.watch(np.ones(3))
            buffer = tnp.zeros(3)
            buffer[0] = x[1]
            y = (x**3).sum() + buffer.sum()
        y.backward()
        tape.hvp(y, x, np.ones(3)), tape.jvp(y, x, np.ones(3)), tape.jacobian(y, x), tape.snapshots
        gone = weakref.ref(tape)
        trace = weakref.ref(tape._trace)
        del tape, x, y, buffer
        assert gone() is None and trace() is None
    finally:
        gc.enable()


# --- copies for writes ---


def test_snapshots_are_the_copies_that_memory_shows():
    """Random writes into two buffers, some of which a record keeps: a copy is told exactly where the memory
    moved."""
    rng = np.random.default_rng(5)
    for _ in range(25):
        with tg.Tape() as tape:
            x = tape.watch(rng.normal(size=4))
            buffers, moved = [tnp.zeros(4), tnp.zeros((3, 2))], []
            for buffer in buffers:
                buffer[0] = x[0]
            for _ in range(12):
                b = buffers[rng.integers(2)]
                if rng.integers(2):
                    x[:1].sum() + (b * b).sum()  # keeps b
                else:
                    before = tg.value(b), b._value
                    b[rng.integers(len(b))] = x[rng.integers(4)] * 2.0
                    if b._value is not before[1]:
                        moved.append((b.nbytes, before))
        found = [s for s in tape.snapshots if s.record is not None]
        kept = [(size, before) for size, before in moved]
        assert [s.bytes for s in found] == [size for size, _ in kept]
        for s, (_, (content, _)) in zip(found, kept, strict=True):
            assert (
                s.line.startswith(__file__)
                and np.array_equal(s.array, content)
                and not s.array.flags.writeable
            )
            assert int(s.record.partition(":")[0]) < len(tape._trace.records) and "multiply" in s.record
    assert any(moved)


def test_a_snapshot_is_shown_with_its_line():
    with tg.Tape() as tape:
        x = tape.watch(np.ones(1000))
        y = np.exp(x)
        y[0] = 2.0
        line = test_a_snapshot_is_shown_with_its_line.__code__.co_firstlineno + 4
    (snapshot,) = tape.snapshots
    assert (
        snapshot.record.endswith(": exp") and snapshot.bytes == 8000 and snapshot.line == f"{__file__}:{line}"
    )
    assert "8000 bytes" in repr(snapshot) and f":{line}" in repr(snapshot)
    assert tg.Tape().snapshots == []


# --- dual numbers ---

BINARY = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.pow,
    np.arctan2,
    np.maximum,
    np.logaddexp,
]
UNARY = [
    operator.neg,
    abs,
    np.exp,
    np.log,
    np.sqrt,
    np.tanh,
    np.cumsum,
    np.sort,
    np.sum,
    np.ravel,
    lambda x: x.mean(),
]


def test_dual_arithmetic_is_that_of_differences():
    """Each operator of each pair of operands: dual numbers, dual arrays, plain ones, NumPy's numbers; values
    too."""
    rng = np.random.default_rng(2)
    operands = [2.5, np.float64(1.5), rng.uniform(0.5, 2, 3), rng.uniform(0.5, 2, (2, 3))]
    for f, (a, b) in itertools.product(BINARY, itertools.product(operands, operands)):
        s, t = rng.normal(size=np.shape(a)), rng.normal(size=np.shape(b))
        slope = lambda h: (f(a + h * s, b + t * h) - f(a - h * s, b - t * h)) / (2 * h)
        y = f(tg.Dual(a, s), tg.Dual(b, t))
        expected = f(np.asarray(a)[()], np.asarray(b)[()])
        close(y.value, expected, 1e-14)
        assert y.shape == np.shape(expected)
        close(y.tangent, slope(1e-6), 1e-7)
        left, right = f(tg.Dual(a, s), b), f(a, tg.Dual(b, t))
        close(left.tangent + right.tangent, y.tangent, 1e-12)
    for f, a in itertools.product(UNARY, operands):
        if f is np.sort and not np.shape(a):
            continue
        s = rng.normal(size=np.shape(a))
        d = f(tg.Dual(a, s))
        expected = f(np.asarray(a)[()])
        assert np.array_equal(d.value, expected)
        close(d.tangent, (f(np.asarray(a + 1e-6 * s)[()]) - f(np.asarray(a - 1e-6 * s)[()])) / 2e-6, 1e-7)


def test_dual_numbers_answer_as_numbers_and_arrays():
    d, e = tg.Dual(3.0, 1.0), tg.Dual(np.array([1.0, -2.0]), np.ones(2))
    assert d > 2 and d == 3.0 and hash(d) == hash(3.0) and int(d) == 3 and bool(d) and round(d) == 3
    assert (
        len(e) == 2
        and e.shape == (2,)
        and e.dtype == float
        and [float(v.value) for v in e] == [1.0, -2.0]
        and -2.0 in e
    )
    assert repr(tg.Dual(1.0, 2.0)) == "Dual(np.float64(1.0), np.float64(2.0))"
    for other in (pickle.loads(pickle.dumps(e)), copy.copy(e), copy.deepcopy(e)):
        assert np.array_equal(other.value, e.value) and np.array_equal(other.tangent, e.tangent)
        other[0] = 9.0
        assert e.value[0] == 1.0
    for wrong, x in ((hash, e), (len, d), (float, d), (complex, d), (np.asarray, e), (iter, d), (bool, e)):
        with pytest.raises((TypeError, ValueError)):
            wrong(x)
    for wrong in (
        lambda: tg.Dual(1, 1),
        lambda: tg.Dual(np.ones(2), 1.0),
        lambda: tg.Dual(1.0, 1.0j),
        lambda: tg.Dual("a", 1.0),
    ):
        with pytest.raises((ArgumentError, ShapeError)):
            wrong()
    with pytest.raises(ArgumentError):
        tg.grad(lambda x: x * x)(d)
    assert np.linalg.slogdet(tg.Dual(2 * np.eye(2), np.eye(2))).logabsdet.tangent == 1.0


def test_dual_numbers_across_transforms():
    """Made outside, inside, or in a nest of two transforms: x^2 y^3 by its tangents."""
    d = tg.Dual(2.0, 1.0)
    close(tg.grad(lambda p: (d * d * p**3).tangent)(3.0), 12 * 9.0)
    close(tg.grad(lambda p: (tg.Dual(p, 1.0) ** 3 * d).tangent)(3.0), 6 * 3.0 * 2 + 3 * 9.0)
    close(tg.hvp(lambda p: (tg.Dual(p, 1.0) ** 3 * tg.Dual(2.0, 0.0)).tangent, 3.0, 1.0), 12.0)
    close(tg.jvp(lambda p: tg.grad(lambda q: (tg.Dual(q, p) ** 3).tangent)(p), (2.0,), (1.0,))[1], 12 * 2.0)
    close(tg.vmap(lambda p: (tg.Dual(p, 2.0) ** 2).tangent)(np.array([1.0, 3.0])), [4.0, 12.0])
    out = tg.Dual(np.zeros(2), np.zeros(2))

    def written(p):
        out[0] = p
        return out.tangent.sum()

    with pytest.raises(ArgumentError, match="make the one that is written"):
        tg.grad(written)(1.0)
    assert np.array_equal(out.value, [0.0, 0.0])  # nothing was written


def test_orders_of_dual_numbers_meet():
    x, y = tg.Dual(tg.Dual(3.0, 1.0), tg.Dual(1.0, 0.0)), tg.Dual(3.0, 1.0)
    z = x * x * y  # y has no part along the second direction
    (
        close(z.value.value, 27.0),
        close(z.value.tangent, 27.0),
        close(z.tangent.value, 18.0),
        close(z.tangent.tangent, 12.0),
    )
    row = tg.Dual(np.zeros(2), np.zeros(2))
    part = row[1:]
    part[0] = x
    (
        close(row.tangent.value, [0.0, 1.0]),
        close(row.value.tangent, [0.0, 1.0]),
        close(part.tangent.value, [1.0]),
    )
    three = tg.Dual(
        tg.Dual(tg.Dual(2.0, 1.0), tg.Dual(1.0, 0.0)), tg.Dual(tg.Dual(1.0, 0.0), tg.Dual(0.0, 0.0))
    )
    close((three**4).tangent.tangent.tangent, 24 * 2.0)


def test_rule_with_a_python_number():
    """The result of a function with a rule may be a number of Python's, at every level."""
    sine = tg.rule(
        lambda t: math.sin(t), vjp=lambda g, out, t: g * np.cos(t), jvp=lambda v, out, t: v[0] * np.cos(t)
    )
    f = lambda t: (2 + sine(t[0])) * t[1]
    t = np.array([0.3, 0.2])
    H = [[-np.sin(0.3) * 0.2, np.cos(0.3)], [np.cos(0.3), 0.0]]
    np.testing.assert_allclose(tg.grad(f)(t), [np.cos(0.3) * 0.2, 2 + np.sin(0.3)], rtol=1e-15)
    np.testing.assert_allclose(tg.hessian(f)(t), H, rtol=1e-15)
    np.testing.assert_allclose(
        tg.jacobian(lambda t: tg.jvp(f, (t,), (t,))[1])(t), np.dot(H, t) + tg.grad(f)(t)
    )
