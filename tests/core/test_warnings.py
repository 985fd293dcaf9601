"""Warnings of floating-point arithmetic: as in a plain call, in both modes, at the user's line; `np.errstate`
and `np.seterr` act as in a plain call; sweeps and tangents are silent."""

import threading
import warnings

import numpy as np
import pytest
from cases import all_cases

import tapegrad as tg

X = np.array([0.0, 1.0, -1.0])
V = np.array([1.0, -0.5, 2.0])
MODES = {
    "grad": lambda f, x: tg.grad(f)(x),
    "value_and_grad": lambda f, x: tg.value_and_grad(f)(x),
    "const": lambda f, x: tg.grad(tg.Const(f))(x),
    "vjp": lambda f, x: tg.vjp(f, x)[1](1.0),
    "jvp": lambda f, x: tg.jvp(f, (x,), (V,)),
    "jacobian": lambda f, x: tg.jacobian(f)(x),
    "forward jacobian": lambda f, x: tg.jacobian(f, mode="forward")(x),
    "hvp": lambda f, x: tg.hvp(f, x, V),
    "hessian": lambda f, x: tg.hessian(f)(x),
    "jvp of jvp": lambda f, x: tg.jvp(lambda x: tg.jvp(f, (x,), (V,))[1], (x,), (V,)),
    "grad of jvp": lambda f, x: tg.grad(lambda x: tg.jvp(f, (x,), (V,))[1])(x),
}


def said(call):
    """What a call warns of: (text, file, line), and FloatingPointError if it raised that."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            call()
        except FloatingPointError as error:
            return [(w.category, str(w.message), w.filename, w.lineno) for w in caught], str(error)
    return [(w.category, str(w.message), w.filename, w.lineno) for w in caught], None


def logs(x):
    y = np.log(x)
    z = 1.0 / x
    return (y * z)[1] + z[0]


def scalars(x):
    a = x[0]
    b = a / a
    c = np.sqrt(x[2])
    return b + c + a**-1.5


def exponentials(x):
    return np.exp(x * 1e3).max() + np.sinh(x * -1e4)[2] + np.expm1(x * 1e5)[1]


def in_place(x):
    b = np.zeros(3)
    b[:] = x
    b /= 0.0
    return b[1]


def helpers(x):
    return helper(x) * helper(x * 0.5)


def helper(x):
    return np.arctanh(x[1]) + np.log1p(x)[2]


def many(x):
    total = 0.0
    for k in range(3):
        total = total + np.arcsin(x * (k + 1))[1]
    return total


def remainders(x):
    return (x % 0.0)[1] + (x // 0.0)[1] + np.logaddexp(x * np.inf, -x * np.inf)[0]


def plain_numbers(x):
    a = np.array([1, 2]) / np.array([0, 1])
    return x[1] * a[1]


def ignored(x):
    with np.errstate(all="ignore"):
        y = np.log(x)
    return y[1] + np.sqrt(x)[1]


def partly(x):
    with np.errstate(divide="ignore"):
        y = np.log(x)
        with np.errstate(invalid="ignore", divide="warn"):
            z = 1 / x + np.sqrt(x)
    return y[1] + z[1]


def raising(x):
    with np.errstate(divide="raise"):
        return np.log(x)[1]


def caught(x):
    with np.errstate(all="raise"):
        try:
            y = np.log(x)
        except FloatingPointError:
            y = x * 2
    return y[1]


def recovered(x):
    with np.errstate(divide="raise"):
        y = x[0]
        try:
            y = 1 / y
        except FloatingPointError:
            y = y * 3
    return y


@np.errstate(divide="ignore")
def decorated(x):
    return np.log(x)[1]


def decorated_inside(x):
    @np.errstate(divide="ignore")
    def g(y):
        return np.log(y)

    return g(x)[1] + g(x)[1]


def quiet_by_seterr(x):
    old = np.seterr(divide="ignore")
    y = np.log(x)
    assert old["divide"] == "warn" and np.geterr()["divide"] == "ignore" and np.geterr()["invalid"] == "warn"
    np.seterr(**old)
    return y[1] + (1 / x)[1]


FUNCTIONS = [
    logs, scalars, exponentials, in_place, helpers, many, remainders, plain_numbers, ignored, partly, raising,
    caught, recovered,
    decorated, decorated_inside, quiet_by_seterr,
]  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_as_in_a_plain_call(f, mode):
    if mode == "const" and f in (in_place, partly, quiet_by_seterr):
        # a plain array cannot hold tracked values; where numpy.errstate is NumPy's own, so is the line that
        # it names
        return
    plain, error = said(lambda: f(X))
    found, theirs = said(lambda: MODES[mode](f, X))
    assert [w[2:] for w in found] == [w[2:] for w in plain], (plain, found)
    assert found == plain
    assert theirs == error
    assert all(w[2] == __file__ for w in found)


def test_the_words_of_reductions():
    found, _ = said(
        lambda: tg.grad(lambda x: (x * 1e308).sum() * 0 + np.prod(x + 2) + ((x + 2) * 1e308).sum())(X)
    )
    assert {w[1] for w in found} <= {
        "overflow encountered in reduce",
        "overflow encountered in multiply",
    } and found
    assert all(w[2] == __file__ for w in found)


@pytest.mark.parametrize("mode", MODES)
def test_around_a_transform(mode):
    """The user's errstate around the whole call is that of his function."""
    for setting in ("ignore", "warn", "raise"):
        for f in (logs, scalars, many):
            with np.errstate(all=setting, under="ignore"):
                plain, found = said(lambda f=f: f(X)), said(lambda f=f: MODES[mode](f, X))
            assert found == plain, setting
    old = np.geterr()
    MODES[mode](lambda x: (x * x).sum(), X)
    assert np.geterr() == old and np.geterrcall() is None


SILENT = {
    "sqrt at zero": lambda x: np.sqrt(np.abs(x)).sum(),
    "power at zero": lambda x: (np.abs(x) ** 0.5).sum(),
    "norm at zero": lambda x: np.sqrt((x * x * 0).sum()),
    "hypot at zero": lambda x: np.hypot(x[0], 0.0),
    "arcsin at one": lambda x: np.arcsin(x).sum(),
    "arccosh at one": lambda x: np.arccosh(x[1]),
    "large slope": lambda x: np.tanh(x * 1e200).sum() * 1e200,
    "product with zero": lambda x: np.prod(x),
    "scalar power": lambda x: x[0] ** 0.5 + x[0] ** 1.5,
    "linear": lambda x: ((x * 1e200) * 1e100 * 1e8).sum(),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", SILENT)
def test_tangents_and_sweeps_are_silent(name, mode):
    """What only the derivative divides by zero is no affair of the user's: neither warned of, nor raised."""
    f = SILENT[name]
    assert said(lambda: f(X)) == ([], None)
    with np.errstate(all="raise", under="ignore"):
        found = said(lambda: MODES[mode](f, X))
    found = (
        [w for w in found[0] if not issubclass(w[0], getattr(tg.errors, "NonDifferentiableWarning", ()))],
        found[1],
    )
    assert found == ([], None)


def test_inside_raise_the_tangent_is_silent():
    def f(x):
        with np.errstate(all="raise", under="ignore"):
            return np.sqrt(x[0]) + np.arcsin(x[1]) * 2

    for mode, call in MODES.items():
        assert said(lambda call=call: call(f, X)) == ([], None), mode


def test_seterr_stays_as_after_a_plain_call():
    def f(x):
        np.seterr(divide="ignore", over="raise")
        return x.sum()

    for call in MODES.values():
        old = np.geterr()
        try:
            call(f, X)
            now = np.geterr()
        finally:
            np.seterr(**old)
        assert now == {**old, "divide": "ignore", "over": "raise"}
        assert np.geterrcall() is None


def test_callbacks_and_logs(capfd):
    heard, lines = [], []

    class Log:
        def write(self, text):
            lines.append(text)

    def f(x):
        x = np.abs(x)
        with np.errstate(divide="call", call=lambda kind, flag: heard.append((kind, flag))):
            y = np.log(x)
        with np.errstate(divide="log", call=Log()):
            z = 1 / x
        with np.errstate(divide="print"):
            w = np.log(x)
        return y[1] + z[1] + w[1]

    f(X)
    plain, heard[:] = list(heard), []
    text, lines[:] = list(lines), []
    printed = capfd.readouterr()
    for call in (MODES["grad"], MODES["jvp"], MODES["hvp"]):
        heard.clear(), lines.clear()
        call(f, X)
        assert (heard, lines) == (plain, text)
        assert capfd.readouterr() == printed


def test_outer_callback_is_called_and_kept():
    heard = []
    with np.errstate(divide="call", call=lambda *given: heard.append(given)) as _:
        before = np.geterrcall()
        tg.grad(lambda x: np.log(np.abs(x))[1] + (np.geterrcall() is not before))(X)
        assert np.geterrcall() is before
    assert len(heard) == 1


def test_wrong_settings_are_refused_as_numpy_does():
    for wrong in (
        lambda: np.errstate(divide="never"),
        lambda: np.errstate(dvide="warn"),
        lambda: np.errstate(call=3, divide="call"),
    ):

        def f(x, wrong=wrong):
            with wrong():
                return x.sum()

        with pytest.raises((ValueError, TypeError)):
            f(X)
        with pytest.raises((ValueError, TypeError)):
            tg.grad(f)(X)
    assert np.geterrcall() is None


def test_once_per_line():
    """The default filter shows a warning once for each line of the user's, not of ours."""

    def f(x):
        a = np.log(x)
        b = np.log(x * 1)
        for _ in range(3):
            a = a + np.log(x)
        return a[1] + b[1]

    found = []
    with warnings.catch_warnings():
        warnings.resetwarnings()
        warnings.simplefilter("default")
        warnings.showwarning = lambda message, category, filename, lineno, *rest: found.append(
            (str(message), lineno)
        )
        globals().pop("__warningregistry__", None)
        f(X)
        plain, found[:] = list(found), []
        globals().pop("__warningregistry__", None)
        tg.grad(f)(X)
    assert found == plain and len({line for _, line in found}) == 3


def test_threads():
    found = {}

    def run(setting):
        with np.errstate(divide=setting, invalid="ignore"):
            for _ in range(20):
                try:
                    tg.grad(lambda x: np.log(np.abs(x))[1])(X)
                    found.setdefault(setting, set()).add("fine")
                except FloatingPointError:
                    found.setdefault(setting, set()).add("raised")

    threads = [threading.Thread(target=run, args=(s,)) for s in ("raise", "ignore")]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == {"raise": {"raised"}, "ignore": {"fine"}}


def test_an_error_leaves_the_settings_alone():
    old = np.geterr()
    with pytest.raises(KeyError):
        tg.grad(lambda x: {}[x.sum()])(X)
    assert np.geterr() == old and np.geterrcall() is None


# --- the search: every operation, at ordinary and special numbers ---

# Composed of others, with an intermediate result that overflows or is undefined at infinite, huge or equal
# numbers where NumPy's own way is not (docs/other-objects.md).
INTERMEDIATE = set(
    "cond cumprod expm1 huber interp logsumexp lstsq median nanmedian prod pseudo_huber recursed scipy_more "
    "solve_triangular".split()
)
SPECIAL = {
    "ordinary": lambda flat: None,
    "zero": lambda flat: flat.__setitem__(slice(None, None, 2), 0.0),
    "nan": lambda flat: flat.__setitem__(slice(None, None, 2), np.nan),
    "inf": lambda flat: flat.__setitem__(slice(None, None, 2), np.inf),
    "huge": lambda flat: flat.__setitem__(slice(None, None, 2), flat[::2] * 1e200),
    "tiny": lambda flat: flat.__setitem__(slice(None, None, 2), flat[::2] * 1e-250),
    "equal": lambda flat: flat.__setitem__(slice(None), flat[:1].sum()),
}


def outcome(call):
    """'fine', the FloatingPointError's text, or None for any other error."""
    try:
        call()
    except FloatingPointError as error:
        return str(error)
    except Exception:
        return None
    return "fine"


def searched(cases):
    """No transform of what raises no flag raises one; gives how many lines were compared."""
    count = 0
    for c in cases:
        for name, spoil in SPECIAL.items():
            inputs = [a.copy() if isinstance(a, np.ndarray) else a for a in c.inputs]
            nums = [n for n, a in enumerate(inputs) if isinstance(a, np.ndarray) and a.dtype.kind in "fc"]
            for n in nums:
                if inputs[n].dtype.kind == "f" and inputs[n].size:
                    spoil(inputs[n].reshape(-1))

            def f(*xs, c=c, inputs=inputs, nums=nums):
                given = list(inputs)
                for n, x in zip(nums, xs, strict=True):
                    given[n] = x
                return c.f(*given)

            xs = tuple([inputs[n] for n in nums])
            with np.errstate(all="raise", under="ignore"):
                if not nums or outcome(lambda f=f, xs=xs: f(*xs)) != "fine":
                    continue
                found = [
                    outcome(lambda f=f, xs=xs: tg.jvp(f, xs, xs)),
                    outcome(lambda f=f, xs=xs: (lambda y, pull: pull(y))(*tg.vjp(f, *xs))),
                ]
            count += 1
            if c.name.split(":")[0].split()[0] not in INTERMEDIATE:
                assert set(found) <= {"fine", None}, (c.name, name, found)
    print(count)
    return count


@pytest.mark.filterwarnings("ignore")
def test_search():
    assert searched(all_cases()[::8]) > 200


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(8))
def test_search_whole(part):
    searched(all_cases()[part::8])


# --- second derivatives at the zero of a length ---

LENGTHS = {
    "norm": np.linalg.norm,
    "norm of order 3": lambda x: np.linalg.norm(x, 3),
    "of rows": lambda x: np.linalg.norm(np.stack([x, 2 * x]), axis=1).sum(),
    "hypot": lambda x: np.hypot(x[0], x[2]),
    "complex": lambda x: abs(x[0] + 1j * x[1]),
    "std": np.std,
    "squared": lambda x: np.linalg.norm(x) ** 2,
    "within": lambda x: np.exp(-np.linalg.norm(3 * x)).sum() * x[0] + x[1],
}
ZERO, AWAY, ALONG = np.zeros(3), np.array([1.0, 2.0, 4.0]), np.array([1.0, 2.0, 0.5])


def used(make):
    """Something prepared, called often enough away from zero to be compiled, and then at zero."""

    def at_zero(f):
        call = make(f)
        for k in range(4):
            call(AWAY + k)
        return call(ZERO)

    return at_zero


def product_of(p):
    return lambda x: p.hvp(x, ALONG)


def first_of(p):
    return lambda x: p.value(np.stack([x, AWAY]))[0]


SECOND = {
    "hessian": lambda f: tg.hessian(f)(ZERO),
    "product": lambda f: tg.hvp(f, ZERO, ALONG),
    "operator": lambda f: tg.operators.hessian(f, ZERO) @ ALONG,
    "samples": lambda f: tg.vmap(tg.hessian(f))(np.stack([AWAY, ZERO, AWAY]))[1],
    "products of samples": lambda f: tg.vmap(lambda x, v: tg.hvp(f, x, v))(np.stack([AWAY, ZERO]),
    np.stack([ALONG, ALONG]))[1],
    "samples of samples": lambda f: tg.vmap(tg.vmap(tg.hessian(f)))(np.stack([AWAY, ZERO])[None])[0, 1],
    "prepared": used(lambda f: tg.prepare(f, AWAY).hessian),
    "prepared product": used(lambda f: product_of(tg.prepare(f, AWAY))),
    "prepared at zero": lambda f: [tg.prepare(f, ZERO).hessian(ZERO)],
    "prepared samples": used(lambda f: first_of(tg.prepare(tg.vmap(tg.hessian(f)), np.stack([AWAY, AWAY])))),
    "sparse": lambda f: tg.sparse.hessian(f, ZERO),
    "plan": used(lambda f: tg.sparse.prepare_hessian(f, AWAY)),
}  # fmt: skip


@pytest.mark.one_in(3)
@pytest.mark.parametrize("way", SECOND)
def test_no_second_derivative_at_a_length_of_zero_is_silent(way):
    for name, f in LENGTHS.items():
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            try:
                SECOND[way](f)
            except tg.errors.GuardError:
                assert way in ("sparse", "plan"), name
                continue
        assert any([w.category is tg.errors.NonDifferentiableWarning for w in heard]), name


def test_lengths_away_from_zero_are_recorded_once():
    for f in LENGTHS.values():
        p = tg.prepare(f, AWAY)
        for k in range(4):
            np.testing.assert_allclose(
                p.hvp(AWAY + k, ALONG), tg.hvp(f, AWAY + k, ALONG), rtol=1e-12, atol=1e-14
            )
        assert p.forms["hvp"].recordings == 1 and p.forms["hvp"].eager is None
