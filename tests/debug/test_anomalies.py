"""`detect_anomalies`: the first nan or inf, with the operation and the line, wherever it arises.  Each planted one stands on a line
that says HERE; the error has to name that line and no other."""

import inspect
import threading
import warnings

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.errors import AnomalyError

pytestmark = pytest.mark.smoke


def line_of(f):
    """'file:line' of the line of f that says HERE."""
    lines, first = inspect.getsourcelines(f)
    return f"{inspect.getsourcefile(f)}:{first + next(n for n, text in enumerate(lines) if 'HERE' in text)}: "


def found(call, inf=True):
    with pytest.raises(AnomalyError) as caught, tg.detect_anomalies(inf=inf):
        call()
    return str(caught.value)


def logs(x):
    y = x * x
    z = np.log(y)  # HERE
    return z.sum()


def roots(x):
    y = x * 1.0
    z = np.sqrt(y)  # HERE
    return (z * 2).sum()


def log_alone(x):
    return np.log(x).sum()


AT = np.array([1.0, 0.0, 4.0])
WAYS = {
    "grad": lambda f, x: tg.grad(f)(x),
    "value_and_grad": lambda f, x: tg.value_and_grad(f)(x),
    "jvp": lambda f, x: tg.jvp(f, (x,), (x + 1,)),
    "vjp": lambda f, x: tg.vjp(f, x)[1](1.0),
    "hvp": lambda f, x: tg.hvp(f, x, x + 1),
    "hessian": lambda f, x: tg.hessian(f)(x),
    "jacobian": lambda f, x: tg.jacobian(f)(x),
    "grad of grad": lambda f, x: tg.grad(lambda x: (tg.grad(f)(x) * x).sum())(x),
    "vmap of grad": lambda f, x: tg.vmap(tg.grad(f))(
        np.stack([x + 1, x]) if type(x) is np.ndarray else x[None]
    ),
    "grad of vmap": lambda f, x: tg.grad(lambda X: tg.vmap(f)(X).sum())(x[None]),
    "prepare": lambda f, x: tg.prepare(f, x).grad(x),
    "prepared hvp": lambda f, x: tg.prepare(f, x).hvp(x, x + 1),
    "linearize": lambda f, x: tg.linearize(f, x)[1](x + 1),
    "operator": lambda f, x: tg.operators.hessian(f, x).hvp(x + 1),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_value_is_found_by_every_way(way, xp):
    text = found(lambda: WAYS[way](logs, xp.asarray(AT)))
    assert line_of(logs) in text and "log gives -inf" in text and "z = np.log(y)" in text


@pytest.mark.parametrize("way", WAYS)
def test_a_derivative_is_found_by_every_way(way, xp):
    text = found(lambda: WAYS[way](roots, xp.asarray(AT)))
    assert line_of(roots) in text and "derivative of sqrt" in text and " inf" in text


def test_where_and_of_what():
    text = found(lambda: tg.grad(logs)(AT))
    assert text.endswith(
        "log gives -inf in 1 of 3 elements, first at [1]; operands: 0.0\n    z = np.log(y)  # HERE"
    )


def test_in_place_and_by_elements():
    def filled(x):
        buffer = np.zeros(3)
        for k in range(3):
            buffer[k] = 1 / x[k]  # HERE
        return buffer.sum()

    text = found(lambda: tg.grad(filled)(AT))
    assert line_of(filled) in text and "divide gives inf; operands: 0.0" in text


def test_in_a_captured_buffer_and_a_helper():
    buffer = np.zeros(3)

    def helper(x):
        buffer[:] = np.arccosh(x)  # HERE
        return buffer

    assert line_of(helper) in found(lambda: tg.grad(lambda x: helper(x).sum())(AT))


def test_what_was_there_before_is_no_fault_of_an_operation():
    y = np.array([1.0, np.nan, 2.0])

    def residuals(x):
        r = x - y  # HERE
        return (r * r).sum()

    text = found(lambda: tg.value_and_grad(residuals)(AT))
    assert "returned nan" in text and "came in from outside" in text and line_of(residuals) in text
    with tg.detect_anomalies():  # data that are left out, and infinite masks, are nobody's fault
        assert tg.grad(lambda x: ((x - y)[[0, 2]] ** 2).sum())(AT).tolist() == [0.0, 0.0, 4.0]
        assert tg.grad(lambda x: np.exp(x + np.array([0.0, -np.inf, 0.0])).sum())(AT)[1] == 0.0


def test_a_root_that_is_masked_is_none():
    def masked(x):
        return np.where(x > 0, np.sqrt(x), 0.0).sum()

    with tg.detect_anomalies():
        assert np.array_equal(tg.grad(masked)(AT), [0.5, 0.0, 0.25])
        assert np.array_equal(tg.vmap(tg.grad(masked))(AT[None]), [[0.5, 0.0, 0.25]])


def test_only_nan():
    with tg.detect_anomalies(inf=False):
        assert tg.grad(log_alone)(AT)[1] == np.inf
    text = found(lambda: tg.grad(lambda x: (np.log(x) - np.log(x)).sum())(AT), inf=False)
    assert "subtract gives nan" in text


def test_it_is_an_error_of_ours_and_of_python_and_is_not_swallowed():
    def swallowing(x):
        try:
            return logs(x)
        except FloatingPointError:
            return x.sum()

    assert issubclass(AnomalyError, tg.errors.TapegradError)
    assert "log gives" in found(lambda: tg.grad(swallowing)(AT))


def test_outside_nothing_changes():
    def plain():
        with np.errstate(all="ignore"):
            return tg.grad(log_alone)(AT), tg.hvp(lambda x: (x**3).sum(), AT, AT)

    before = plain()
    found(lambda: tg.grad(logs)(AT))
    after = plain()
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert tg.grad(log_alone)(AT)[1] == np.inf
    kinds = []
    tg.grad(lambda x: kinds.append(type(x._trace).__name__) or x.sum(), shadow=False)(AT)
    assert kinds == ["Tape"]


def test_results_are_the_same_within():
    rng = np.random.default_rng(0)
    x, v = rng.standard_normal((2, 4))

    def f(x):
        buffer = np.zeros(4)
        buffer[1:] = np.tanh(x[:-1]) * x[1:]
        buffer[0] = np.linalg.norm(x)
        return np.log1p(buffer**2).sum() + (np.outer(x, x) @ x).sum()

    calls = [
        lambda: tg.grad(f)(x), lambda: tg.hessian(f)(x), lambda: tg.hvp(f, x, v), lambda: tg.jvp(f, (x,), (v,
        ))[1],
        lambda: tg.vmap(tg.grad(f))(np.stack([x, v])), lambda: tg.grad(lambda x: tg.jvp(f, (x,), (v,))[1])(x),
    ]  # fmt: skip
    for call in calls:
        with tg.detect_anomalies():
            within = call()
        np.testing.assert_allclose(within, call(), rtol=1e-13, atol=1e-13)


def test_what_ends_with_the_records_ends():
    """A solution's problem hands back what F counts when the records go."""
    calls = 0

    def F(x, a):
        nonlocal calls
        calls += 1
        return x * x - a

    with tg.detect_anomalies():
        tg.grad(
            lambda a: tg.implicit.root(F, lambda F, x0, a: np.sqrt(a) if F(x0, a) is not None else x0)(1.0, a)
        )(4.0)
        assert calls == 2  # as in a plain call


def test_plans_of_sparse_matrices():
    def f(x):
        return np.log(x[1:]) * x[:-1]  # HERE

    x = np.arange(1.0, 5.0)
    before = tg.sparse.prepare_jacobian(f, x)
    expected = before(x).toarray()
    with tg.detect_anomalies():
        made = tg.sparse.prepare_jacobian(f, x)
        for plan in (before, made):
            assert np.array_equal(plan(x).toarray(), expected)
            with pytest.raises(AnomalyError) as caught:
                plan(x - 2)
            assert line_of(f) in str(caught.value)
    assert np.array_equal(made(x).toarray(), expected)


def test_within_a_checkpoint():
    def inner(x):
        return np.sqrt(x).sum()  # HERE

    text = found(lambda: tg.grad(lambda x: tg.checkpoint(inner)(x * 2))(AT))
    assert line_of(inner) in text and "derivative of sqrt" in text


def test_other_threads_are_left_alone():
    results = []
    with tg.detect_anomalies():
        other = threading.Thread(target=lambda: results.append(_quietly(log_alone)))
        other.start()
        other.join()
    assert results[0][1] == np.inf


def _quietly(f):
    with np.errstate(all="ignore"):
        return tg.grad(f)(AT)


def test_the_tape_by_hand():
    with tg.detect_anomalies(), tg.Tape() as tape:
        x = tape.watch(AT)
        y = np.sqrt(x).sum()
    with pytest.raises(AnomalyError, match="derivative of sqrt"):
        tape.grad(y, x)


# --- kernels ---


def normal(theta, y):
    mu, sigma = theta
    z = (y - mu) / sigma  # HERE
    return -0.5 * z * z - np.log(sigma)


THETA, DATA = np.array([[0.0, 1.0, 2.0], [1.0, 2.0, 0.0]]), np.arange(3.0)


@pytest.mark.parametrize("repeats", [0, 3])
def test_a_kernel_names_the_line_in_its_function(repeats):
    k = tg.kernels.likelihood(normal)
    for _ in range(repeats):  # later calls take a shorter way
        k.value_and_grad(THETA, DATA)
    for call in (k, k.value_and_grad, lambda t, d: tg.grad(lambda t: k(t, d).sum())(t)):
        text = found(lambda call=call: call(THETA, DATA))
        assert line_of(normal) in text and "in the kernel of normal, sample 2" in text
    with tg.detect_anomalies():
        k.value_and_grad(THETA[:, :2], DATA)


def test_a_derivative_in_a_kernel():
    def loglik(theta, y):
        return np.sqrt(theta[0] * y)  # HERE

    k = tg.kernels.likelihood(loglik, invalid="nan")
    text = found(lambda: k.value_and_grad(np.array([[1.0, 0.0]]), DATA[1:]))
    assert line_of(loglik) in text and "derivative of sqrt" in text and "sample 1" in text


def test_a_recursion_and_a_map():
    def step(m, theta, y):
        return m + y, np.log(theta[0] - m)  # HERE

    k = tg.kernels.recursion(lambda theta: 0.0, step)
    assert line_of(step) in found(lambda: k(np.array([[2.5, 1.5]]), np.ones(3)))

    def ratio(a, b):
        return a / b  # HERE

    m = tg.kernels.map(ratio)
    assert line_of(ratio) in found(lambda: m(np.ones(2), np.array([1.0, 0.0])))
    assert line_of(ratio) in found(lambda: tg.grad(lambda a: m(a, np.array([1.0, 0.0])).sum())(np.ones(2)))


def test_missing_data_of_a_kernel_are_none():
    k = tg.kernels.likelihood(normal)
    with tg.detect_anomalies():
        assert np.isfinite(k(THETA[:, :2], np.array([1.0, np.nan, 2.0]))).all()


# --- warnings have the user's line ---


def test_warnings_name_the_file_of_the_user():
    def vectors(x):
        return np.linalg.eigh(x)[1][0, 0]

    programs = [
        lambda: tg.grad(vectors)(np.eye(2)),
        lambda: tg.hessian(lambda x: np.linalg.norm(x))(np.zeros(2)),
        lambda: tg.grad(lambda x: np.log(x).sum())(AT),
    ]
    for program in programs:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            program()
        assert caught and {w.filename for w in caught} == {__file__}


def test_on_a_device_the_length_of_zero_is_told(xp):
    def length(x):
        return (xp.linalg.norm(x) * 2.0).sum()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with tg.detect_anomalies():
            tg.hvp(length, xp.zeros(2), xp.ones(2))
    assert [w.category for w in caught] == [tg.errors.NonDifferentiableWarning] and caught[
        0
    ].filename == __file__


def test_numbers_of_python_among_watched_values():
    """A number of Python's with a number of NumPy's makes one of Python's, unless somebody sees to it."""

    def f(x):
        z = x + 1j * x[0] - x[1] * 2j
        return (z * z.conj()).real.sum() * 2 - 3 / x[0]

    x = np.array([1.0, 2.0, 3.0])
    for call in (
        lambda: tg.grad(f)(x),
        lambda: tg.jvp(f, (x,), (x,))[1],
        lambda: tg.hvp(f, x, x),
        lambda: tg.hessian(f)(x),
    ):
        with tg.detect_anomalies():
            within = call()
        np.testing.assert_allclose(within, call(), rtol=1e-14)
