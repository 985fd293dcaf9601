"""Bad input: each error says what happened, names the call, says what to write instead, and harms nothing."""

import numpy as np
import pytest
from comparison import close, host

import tapegrad as tg
from tapegrad import numpy as tnp
from tapegrad._core.scope import OPEN
from tapegrad.errors import (
    AliasError,
    ArgumentError,
    DeviceError,
    DroppedDerivativeError,
    NoRuleError,
    NotPositiveDefiniteError,
    NotScalarError,
    ShapeError,
    TapegradError,
)

pytestmark = pytest.mark.smoke


def square(x):
    return (x * x).sum()


@pytest.fixture(autouse=True)
def unharmed():
    """After every error the next transform works, and numpy's names give plain arrays."""
    yield
    close(tg.grad(square)(np.array([1.0, 2.0])), [2.0, 4.0])
    close(tg.hvp(square, np.array([1.0, 2.0]), np.ones(2)), [2.0, 2.0])
    assert type(tnp.zeros(2)) is np.ndarray


def raised(error, call, *texts):
    with pytest.raises(error) as caught:
        call()
    for text in texts:
        assert text in str(caught.value), (text, str(caught.value))
    return str(caught.value)


# --- arguments ---


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.bool_])
def test_integer_or_boolean_array(xp, dtype):
    x = xp.ones(3, dtype=dtype)
    name = f"dtype {np.dtype(dtype)}"
    raised(
        ArgumentError,
        lambda: tg.grad(square)(x),
        "grad(square)",
        "argument 0",
        name,
        "astype(float)",
        "argnums",
    )
    raised(ArgumentError, lambda: tg.jvp(square, (x,), (x,)), "jvp(square)", "argument 0", name)
    raised(ArgumentError, lambda: tg.vjp(square, x), "vjp(square)", "argument 0", name)
    raised(ArgumentError, lambda: tg.hessian(square)(x), "(square)", "argument 0", name)
    raised(ArgumentError, lambda: tg.grad(lambda a, b: square(b), argnums=1)(1.0, x), "argument 1", name)
    assert x.dtype == dtype


@pytest.mark.parametrize("x", [3, True, "text", None, object()])
def test_argument_that_is_no_array(x):
    message = raised(
        ArgumentError, lambda: tg.grad(square)(x), "grad(square)", "argument 0", type(x).__name__
    )
    if x == 3:
        assert "float(3)" in message
    assert issubclass(ArgumentError, TypeError)


def test_argnums_that_do_not_fit():
    for argnums in (1, -2, (0, 1)):
        raised(ArgumentError, lambda: tg.grad(square, argnums=argnums)(np.ones(2)), "argnums", "1 positional")
    raised(ArgumentError, lambda: tg.grad(square)(), "argnums")
    raised(ArgumentError, lambda: tg.grad(square)(tg.Const(np.ones(2))), "Const")


def test_jacobian_mode():
    raised(ArgumentError, lambda: tg.jacobian(square, mode="backward"), "backward", "'forward'", "'reverse'")


# --- outputs ---


def test_output_that_is_not_a_scalar(xp):
    def pair(x):
        return x * 2

    message = raised(
        NotScalarError, lambda: tg.grad(pair)(xp.ones(3)), "grad(pair)", "(3,)", "y.sum()", "jacobian(pair)"
    )
    assert "test_errors.py" in message
    raised(NotScalarError, lambda: tg.grad(pair)(xp.ones(1)), "(1,)", "y[0]", "y.sum()")
    raised(NotScalarError, lambda: tg.grad(pair)(xp.ones((1, 1))), "(1, 1)", "y.sum()")
    raised(NotScalarError, lambda: tg.hessian(pair)(xp.ones(3)), "(3,)")
    raised(NotScalarError, lambda: tg.hvp(pair, xp.ones(3), xp.ones(3)), "(3,)")
    raised(NotScalarError, lambda: tg.grad(lambda x: (x.sum(), 1))(xp.ones(3)), "tuple", "has_aux")
    raised(NotScalarError, lambda: tg.grad(lambda x: None)(xp.ones(3)), "None", "return")
    raised(ArgumentError, lambda: tg.grad(square, has_aux=True)(xp.ones(3)), "has_aux", "pair", "square")
    assert issubclass(NotScalarError, TypeError)


def test_complex_output_of_a_real_gradient(xp):
    f = lambda x: (x * (1 + 2j)).sum()
    raised(NotScalarError, lambda: tg.grad(f)(xp.ones(2)), "complex128", ".real", "abs(y)**2")
    raised(
        NotScalarError, lambda: tg.grad(lambda z: (z * z).sum())(xp.ones(2) * 1j), "complex128", "jacobian"
    )
    raised(ArgumentError, lambda: tg.jacobian(lambda z: z * z)(xp.ones(2) * 1j), "holomorphic=True")


# --- tangents and cotangents ---


@pytest.mark.parametrize("shape", [(2,), (3, 1), (1, 3), ()])
def test_tangent_of_another_shape(xp, shape):
    x, v = xp.ones(3), xp.ones(shape)
    raised(ShapeError, lambda: tg.jvp(square, (x,), (v,)), "jvp(square)", "tangent", str(shape), "(3,)")
    raised(ShapeError, lambda: tg.hvp(square, x, v), str(shape), "(3,)")
    _, pullback = tg.vjp(lambda x: x * 2, x)
    raised(ShapeError, lambda: pullback(v), "pullback", "cotangent", str(shape), "(3,)")
    close(pullback(xp.ones(3)), np.full(3, 2.0))
    assert issubclass(ShapeError, ValueError)


def test_tangent_of_another_dtype(xp):
    x = xp.ones(3)
    raised(ArgumentError, lambda: tg.jvp(square, (x,), (x * 1j,)), "tangent", "complex", "real")
    _, pullback = tg.vjp(lambda x: x * 2, x)
    raised(ArgumentError, lambda: pullback(x * 1j), "cotangent", "complex", ".real")
    raised(
        ArgumentError, lambda: tg.jvp(square, (np.ones(3),), (np.array(["a", "b", "c"]),)), "tangent", "dtype"
    )
    # Widths are cast, and integers too.
    close(tg.jvp(square, (x,), (xp.ones(3, dtype=np.float32),))[1], 6.0)
    close(tg.jvp(square, (x,), (xp.ones(3, dtype=int),))[1], 6.0)
    assert pullback(xp.ones(3, dtype=np.float32)).dtype == np.float64


def test_tangents_that_do_not_fit_the_tree(xp):
    f = lambda p: p["a"].sum() * p["b"].sum()
    p = {"a": xp.ones(2), "b": xp.ones(3)}
    raised(ArgumentError, lambda: tg.jvp(f, (p,), ({"a": xp.ones(2)},)), "tangent", "'a'", "'b'")
    raised(ArgumentError, lambda: tg.jvp(square, (xp.ones(2),), ()), "jvp(square)", "1 primals", "0 tangents")
    raised(ArgumentError, lambda: tg.jvp(square, xp.ones(2), xp.ones(2)), "tuples", "jvp(f, (x,), (v,))")
    raised(ShapeError, lambda: tg.hmp(square, xp.ones(2), xp.ones(2)), "hmp(square)")
    raised(ArgumentError, lambda: tg.vjp(square), "vjp(square)", "primals")


# --- devices ---


@pytest.mark.parametrize("xp", ["hosted-cupy"], indirect=True)
def test_arrays_of_two_libraries(xp):
    c, d = np.ones(3), xp.ones(3)
    for call in (
        lambda: tg.grad(lambda x: (x * c).sum())(xp.ones(3)),
        lambda: tg.grad(lambda x: (x + d).sum())(np.ones(3)),
        lambda: tg.grad(lambda x: (d @ x).sum())(np.ones(3)),
        lambda: tg.grad(lambda x, y: (x * y).sum())(np.ones(3), xp.ones(3)),
    ):
        raised(DeviceError, call, "NumPy", "CuPy", "cupy.asarray")
    raised(TypeError, lambda: tg.jvp(square, (xp.ones(3),), (np.ones(3),)), "tangent", "cupy", "numpy")
    assert issubclass(DeviceError, TypeError)


# --- operations without a rule, conversions ---


def test_operation_without_a_rule():
    x, name = np.array([1.0, 2.0, 4.0]), "histogram_bin_edges"

    def call(x):
        return np.histogram_bin_edges(x).sum()

    message = raised(
        NoRuleError, lambda: tg.grad(call)(x), f"numpy.{name}", "tapegrad.rule", "tapegrad.value"
    )
    assert "derivative" in message
    raised(NotImplementedError, lambda: tg.jvp(call, (x,), (x,)), name)
    with tg.Tape() as tape:
        raised(NoRuleError, lambda: call(tape.watch(x)), name)


CONVERSIONS = {
    "float(x)": float,
    "x.hex()": lambda x: float.fromhex(x.hex()),
    "numpy.asarray": lambda x: np.asarray(x),
}


@pytest.mark.parametrize("text", CONVERSIONS)
def test_conversions_of_a_tracked_value(text):
    with tg.Tape() as tape:
        x = tape.watch(1.5)
        raised(DroppedDerivativeError, lambda: CONVERSIONS[text](x * 2), text, "derivative", "tapegrad.value")
        assert CONVERSIONS[text](tg.value(x * 2)) == 3.0
    assert issubclass(DroppedDerivativeError, TypeError)


def test_storing_into_a_plain_array():
    plain = np.zeros(3)
    with tg.Tape() as tape:
        x = tape.watch(np.array([1.0, 2.0]))
        for at, y in ((0, x[0]), (slice(2), x), (Ellipsis, x.sum())):
            with pytest.raises((TypeError, ValueError)) as caught:
                plain[at] = y
            found = caught.value if isinstance(caught.value, TapegradError) else caught.value.__cause__
            assert isinstance(found, DroppedDerivativeError)
            assert "tapegrad.value(x)" in str(found) and "like=x" in str(found)
    assert not plain.any()


# --- matrices ---


def test_singular_matrix(xp):
    A, b = xp.array([[1.0, 2.0], [2.0, 4.0]]), xp.ones(2)
    for f in (lambda A: xp.linalg.solve(A, b).sum(), lambda A: xp.linalg.inv(A).sum()):
        if xp is np:
            raised(np.linalg.LinAlgError, lambda: tg.grad(f)(A), "ingular")
            raised(np.linalg.LinAlgError, lambda: tg.jvp(f, (A,), (A,)), "ingular")
        else:  # no exception without a synchronisation; nothing finite and wrong either
            assert not np.isfinite(host(tg.grad(f)(A))).any()
    close(A, [[1.0, 2.0], [2.0, 4.0]], rtol=0)


def test_indefinite_matrix(xp):
    A = xp.array([[1.0, 2.0], [2.0, 1.0]])
    f = lambda A: xp.linalg.cholesky(A).sum()
    if xp is np:
        raised(np.linalg.LinAlgError, lambda: tg.grad(f)(A), "ositive definite")
    else:
        assert np.isnan(host(tg.grad(f)(A))).any()
    assert issubclass(NotPositiveDefiniteError, np.linalg.LinAlgError)


# --- writes ---


def test_read_only_array():
    locked = np.zeros(2)
    locked.flags.writeable = False

    def f(x):
        locked[0] = x
        return locked.sum()

    for call in (lambda: tg.grad(f)(1.5), lambda: tg.jvp(f, (1.5,), (1.0,))):
        raised(ValueError, call, "read-only")
    assert not locked.any()


@pytest.mark.parametrize("at", [slice(None), 0, [0, 1], slice(0, 2)], ids=["all", "element", "list", "part"])
def test_write_of_a_shape_that_does_not_fit(xp, at):
    buf = xp.zeros(3)
    at = xp.array(at) if isinstance(at, list) else at

    def f(x):
        buf[0] = x[0]
        buf[at] = xp.concatenate([x, x])
        return buf.sum()

    for call in (lambda: tg.grad(f)(xp.ones(2)), lambda: tg.jvp(f, (xp.ones(2),), (xp.ones(2),))):
        buf[...] = 0
        raised(ValueError, call, "shape", "(4,)")
        close(buf, [1.0, 0.0, 0.0])  # as far as f had come
        assert type(buf) is xp.ndarray


def test_in_place_operator_of_a_shape_that_does_not_fit(xp):
    buf = xp.zeros(3)

    def f(x):
        buf[:] += xp.stack([x, x])
        return buf.sum()

    raised(ValueError, lambda: tg.grad(f)(xp.ones(3)), "shape")
    close(buf, np.zeros(3))


def test_complex_into_real(xp):
    buf = xp.zeros(3)

    def f(x):
        buf[:] = x * (1 + 2j)
        return buf.sum()

    raised(TypeError, lambda: tg.grad(f)(xp.ones(3)), "complex", "real", ".real")
    close(buf, np.zeros(3))
    g = lambda x: (xp.zeros(3) + x).__iadd__(x * 1j).sum()
    with pytest.raises(TypeError):
        tg.grad(g)(xp.ones(3))


@pytest.mark.parametrize("at", [5, -4, (0, 0)], ids=str)
def test_index_out_of_range(xp, at):
    buf = xp.zeros(3)

    def written(x):
        buf[1] = x
        buf[at] = x
        return buf.sum()

    def read(x):
        y = xp.ones(3) * x
        return y[at]

    for f in (written, read):
        raised(IndexError, lambda: tg.grad(f)(xp.asarray(1.5)))
        raised(IndexError, lambda: tg.jvp(f, (xp.asarray(1.5),), (xp.asarray(1.0),)))
    close(buf, [0.0, 1.5, 0.0])


def test_list_of_indices_out_of_range():
    buf = np.zeros(3)

    def f(x):
        buf[[0, 7]] = x
        return buf.sum()

    raised(IndexError, lambda: tg.grad(f)(1.5), "7")
    assert not buf.any()


def test_captured_array_resized_meanwhile():
    buf = np.zeros(2)

    def f(x):
        buf[0] = x
        buf.resize((4,), refcheck=False)
        return buf.sum()

    with pytest.raises((TapegradError, AttributeError, ValueError)) as caught:
        tg.grad(f)(1.5)
    assert "resize" in str(caught.value)
    assert type(buf) is np.ndarray and buf[0] == 1.5


def test_integer_buffer(xp):
    buf = xp.zeros(3)
    counts = xp.zeros(3, dtype=int)

    def f(x):
        buf[0] = x
        counts[0] = 7
        counts[1] += 1
        return buf.sum() * counts[0]

    close(tg.grad(f)(xp.asarray(1.5)), 7.0)
    close(counts, [7, 1, 0])


def test_two_arguments_that_share_memory(xp):
    x = xp.array([1.0, 2.0, 3.0])

    def read(a, b):
        return (a * b).sum()

    def written(a, b):
        a[0] = 5.0
        return (a * b).sum()

    ga, gb = tg.grad(read, argnums=(0, 1))(x[:2], x[1:])
    close(ga, [2.0, 3.0])
    close(gb, [1.0, 2.0])
    raised(AliasError, lambda: tg.grad(written, argnums=(0, 1))(x[:2], x[1:]), "memory", "copy")
    close(x, [1.0, 2.0, 3.0])
    ga, gb = tg.grad(written, argnums=(0, 1))(x[:2].copy(), x[1:])
    close(ga, [0.0, 3.0])
    close(gb, [5.0, 2.0])


# --- rules, tapes, trees ---


def test_rules():
    raised(ArgumentError, lambda: tg.rule(square), "rule(square)", "vjp=", "jvp=")
    few = tg.rule(lambda x, y: (x * y).sum(), vjp=lambda g, out, x, y: g * y)
    raised(ArgumentError, lambda: tg.grad(few)(np.ones(2), np.ones(2)), "1 cotangents", "2 arguments")
    wrong = tg.rule(square, vjp=lambda g, out, x: g * x[:1])
    raised(ShapeError, lambda: tg.grad(wrong)(np.ones(2)), "rule(square)", "(1,)", "(2,)")
    raised(ArgumentError, lambda: tg.rule(square, vjp=lambda g, out, x: 2 * g * x)("text"), "argument 0")


def test_tape():
    with tg.Tape() as tape:
        x = tape.watch(np.ones(2))
        raised(ArgumentError, lambda: tape.watch(np.ones(2, int)), "int")
        y = x * 2
    raised(NotScalarError, lambda: tape.grad(y, x), "(2,)")
    raised(ArgumentError, lambda: tape.grad(y.sum(), x), "inside")  # after the block: y.sum() is plain
    raised(ArgumentError, lambda: tape.grad(y[0], x), "inside")
    raised(ArgumentError, lambda: tape.grad(np.float64(3.0), x), "inside")
    raised(ArgumentError, lambda: tape.grad(y.sum(), np.ones(2)), "watch")
    raised(ArgumentError, lambda: tape.watch(np.ones(2)), "closed")
    close(tape.grad(y, x, seed=np.ones(2)), [2.0, 2.0])
    close(tape.grad(y, x, seed=np.array([1.0, 3.0])), [2.0, 6.0])


def test_ravel():
    _, restore = tg.ravel({"a": 1.0, "b": np.ones(2)})
    raised(ShapeError, lambda: restore(np.ones(4)), "(4,)", "(3,)")


def test_variable():
    raised(ArgumentError, lambda: tg.Variable(np.array(["a"])), "dtype")
    raised(TypeError, lambda: tg.grad(lambda x: list(x)[0])(1.5), "numpy.float64' object is not iterable")
    raised(TypeError, lambda: len(tg.Variable(np.array(1.0))))


def test_every_error_is_a_builtin_too():
    pairs = {
        DroppedDerivativeError: TypeError,
        NotScalarError: TypeError,
        ArgumentError: TypeError,
        DeviceError: TypeError,
        NoRuleError: NotImplementedError,
        ShapeError: ValueError,
        AliasError: RuntimeError,
        tg.errors.GuardError: RuntimeError,
        tg.errors.RouteError: RuntimeError,
        tg.errors.KernelError: RuntimeError,
        NotPositiveDefiniteError: np.linalg.LinAlgError,
    }
    for error, builtin in pairs.items():
        assert issubclass(error, builtin) and issubclass(error, TapegradError)


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize(
    "made", [np.matrix, lambda a: np.ma.masked_array(a, a > 3)], ids=["matrix", "masked"]
)
def test_arrays_with_operators_of_their_own(made):
    """What such operators compute is not what the rules of arrays differentiate."""
    a = np.array([[1.0, 2.0], [3.0, 4.0]])
    other, square = made(a), lambda x: np.trace(x * x)
    calls = [
        lambda: tg.grad(square)(other),
        lambda: tg.grad(lambda d: square(d["a"]))({"a": other}),
        lambda: tg.jvp(square, (other,), (a,)),
        lambda: tg.jvp(square, (a,), (other,)),
        lambda: tg.hvp(square, a, other),
        lambda: tg.vjp(lambda x: x * x, a)[1](other),
        lambda: tg.linearize(lambda x: x * x, a)[1](other),
        lambda: tg.vmap(lambda x: (x * x).sum())(other),
        *[lambda: tg.prepare(square, a).hvp(a, other)]
        * (made is not np.matrix),  # (a recording takes its array)
    ]
    for call in calls:
        with pytest.raises(ArgumentError, match=r"numpy\..*(atrix|MaskedArray), whose operators"):
            call()
        assert not OPEN.depth and not OPEN.hiding
    assert np.allclose(tg.grad(square)(a), [[2, 0], [0, 8]])
