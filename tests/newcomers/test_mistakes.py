"""Mistakes of newcomers: what is printed names what was called and what to write instead.  docs/errors.md has the table."""

from pathlib import Path

import mistakes
import numpy as np
import pytest

import tapegrad as tg
from tapegrad._core.errors import OfTracked

pytestmark = pytest.mark.smoke


@pytest.mark.parametrize("mistake", mistakes.MISTAKES, ids=lambda mistake: mistake.what)
def test_what_is_printed(mistake):
    error, text = mistakes.printed(mistake)
    assert isinstance(error, mistake.error), text
    assert [part for part in mistake.texts if part not in text] == [], text
    np.testing.assert_array_equal(
        tg.grad(lambda x: (x * x).sum())(np.array([1.0, 2.0])), [2.0, 4.0]
    )  # nothing was harmed


def test_the_table_has_forty_and_is_that_of_the_document():
    assert len(mistakes.MISTAKES) >= 40
    document = Path(__file__).parents[2] / "docs" / "errors.md"
    missing = [row for row in mistakes.rows() if row not in document.read_text(encoding="utf-8")]
    assert missing == [], (
        "run `PYTHONPATH=. python tests/support/mistakes.py` and put its table in docs/errors.md"
    )


def test_errors_of_tracked_values_name_the_line():
    """Those that a plain call would not have met."""
    for mistake in mistakes.MISTAKES:
        error, text = mistakes.printed(mistake)
        if isinstance(error, OfTracked):
            assert ".py:" in text, text


def test_names_of_other_libraries():
    for name in ("jit", "jacfwd", "stop_gradient", "GradientTape"):
        with pytest.raises(AttributeError, match=f"what other libraries call {name} is here tapegrad"):
            getattr(tg, name)
    with pytest.raises(AttributeError) as caught:
        _ = tg.nonsense
    assert str(caught.value) == "module 'tapegrad' has no attribute 'nonsense'"


@pytest.mark.parametrize("name", ["grad", "value_and_grad", "jacobian", "hessian", "vmap", "checkpoint"])
def test_transforms_refuse_at_once_what_is_no_function(name, xp):
    transform = getattr(tg, name)
    for what in (3, 2.0, xp.ones(3), "f", None, [np.sin], tg.Const(2.0)):
        with pytest.raises(
            tg.errors.ArgumentError, match=f"^{name}: the first argument is .* not a function"
        ):
            transform(what)


@pytest.mark.parametrize(
    "call",
    [
        lambda f, x: tg.vjp(f, x), lambda f, x: tg.jvp(f, (x,), (x,)), lambda f, x: tg.hvp(f, x, x), lambda f,
        x: tg.hmp(f, x, np.eye(3)),
        lambda f, x: tg.linearize(f, x), lambda f, x: tg.prepare(f, x), lambda f, x: tg.value_grad_hvp(f, x,
        x),
        lambda f, x: tg.rule(f, vjp=np.sin), lambda f, x: tg.inplace(f, x), lambda f, x: tg.stateful(f, x),
    ],
)  # fmt: skip
def test_so_do_the_others(call):
    for what in (3, np.ones(3)):
        with pytest.raises(
            tg.errors.ArgumentError,
            match="the first argument is .* not a function. Give the function itself: ",
        ):
            call(what, np.ones(3))


@pytest.mark.cupy_only
def test_what_mixes_numpy_and_cupy(xp):
    with pytest.raises(tg.errors.DeviceError, match=r"cupy.asarray\(a\) or a.get\(\)"):
        tg.grad(lambda x: (x * np.ones(3)).sum())(xp.ones(3))
