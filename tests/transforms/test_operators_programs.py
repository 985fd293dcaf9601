"""Random programs that write in place: products of tg.linearize and tg.operators against jvp, vjp, hvp, which
have their own judges."""

import contextlib

import numpy as np
import pytest
from judged_programs import argument, maker
from random_programs import draw, source

import tapegrad as tg
from tapegrad.errors import AliasError, TapegradError


def answer(f):
    """What f gives, or the class of error that it raises."""
    try:
        return np.asarray(f())
    except TapegradError as error:
        return type(error)


def same(a, b):
    if isinstance(a, type) or isinstance(b, type):
        return a is b
    return a.shape == b.shape and np.allclose(
        a, b, rtol=1e-9, atol=1e-12 + 1e-12 * np.nan_to_num(abs(b)).max(initial=0), equal_nan=True
    )


def judged(seed):
    program = draw(seed)
    make = maker(program, np)[0]
    x, v = argument(seed, np)
    w = np.float64(1.5)

    def linear(product):
        """Again after another product, and after f was called with other numbers."""

        def f():
            g = make()[0]
            J = tg.linearize(g, x)[1]
            first = product(J)
            J(-v), J.T(-w)
            with contextlib.suppress(AliasError):  # of a transform inside, outside of all others
                g(x + 0.1)
            again = product(J)
            assert same(np.asarray(first), np.asarray(again)), (
                f"seed {seed}, a second product\n{source(program).text}"
            )
            return first

        return f

    def hessian(product):
        """The third time recorded, then replayed."""

        def f():
            H = tg.operators.hessian(make()[0], x)
            found = [np.asarray(product(H)) for _ in range(5)]
            assert all([same(y, found[0]) for y in found]), (
                f"seed {seed}, replayed: {found}\n{source(program).text}"
            )
            return found[0]

        return f

    forms = {
        "value": (lambda: tg.linearize(make()[0], x)[0], lambda: tg.jvp(make()[0], (x,), (v,))[0]),
        "J v": (linear(lambda J: J(v)), lambda: tg.jvp(make()[0], (x,), (v,))[1]),
        "J^T w": (linear(lambda J: J.T(w)), lambda: tg.vjp(make()[0], x)[1](w)),
        "gradient": (hessian(lambda H: H.gradient), lambda: tg.grad(make()[0])(x)),
        "H v": (hessian(lambda H: H @ v), lambda: tg.hvp(make()[0], x, v)),
        "H V": (
            hessian(lambda H: H @ np.stack([v, x], 1)),
            lambda: np.stack([tg.hvp(make()[0], x, u) for u in (v, x)], 1),
        ),
    }
    with np.errstate(all="ignore"):
        for form, (ours, want) in forms.items():
            got, wanted = answer(ours), answer(want)
            assert same(got, wanted), (
                f"seed {seed}, {form}: {got} instead of {wanted}\n{source(program).text}"
            )
    return not isinstance(wanted, type)


def run(seeds):
    right = sum([judged(seed) for seed in seeds])
    assert right > 0.95 * len(seeds), right


@pytest.fixture(autouse=True)
def replayed(monkeypatch):
    monkeypatch.setattr("tapegrad.operators.FREQUENT_PRODUCTS", 2)


@pytest.mark.filterwarnings("ignore")
def test_programs():
    run(range(12))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seeds", [range(k, k + 250) for k in range(70_000, 72_000, 250)], ids=str)
def test_two_thousand_programs(seeds):
    run(seeds)
