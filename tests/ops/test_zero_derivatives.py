"""Functions declared to have derivative zero, with every float argument tracked: what they give is no float,
or is constant near
the point, or they have a rule, or raise.  No derivative is lost in silence."""

import itertools

import numpy as np
import pytest
import scipy.linalg
from keyword_calls import (
    INTS,
    RANGE,
    A,
    Call,
    U,
    V,
    calls,
    floats,
    is_float,
    judge,
    members,
    plain_result,
    ufunc_calls,
)

import tapegrad as tg
from tapegrad.errors import ArgumentError, NoRuleError
from tapegrad.ops import zero_derivative
from tapegrad.ops.declare import NUMPY
from tapegrad.ops.zero_derivative import zero_derivative_of
from tapegrad.testing import check_grads

pytestmark = pytest.mark.smoke


def has_no_rule(f):
    ours = NUMPY[f]
    prim = getattr(ours, "prim", None)
    return (
        prim.jvp is None
        if prim is not None
        else getattr(f, "__name__", None) in zero_derivative.NAMES or ours.__module__.endswith("corners")
    )


ZERO = {f for f in NUMPY if has_no_rule(f)}


def test_the_registry_of_zero_derivatives():
    """Each of its calls with each float argument tracked alone, and all together."""
    count, wrong = 0, []
    for call in itertools.chain(calls(), ufunc_calls()):
        if call.f not in ZERO:
            continue
        n = len(floats((call.args, call.kwargs)))
        for tracked in [[k] for k in range(n)] + ([list(range(n))] if n > 1 else []):
            r = judge(call, tracked)
            count += 1
            if r.startswith("WRONG"):
                wrong.append(f"{call}, tracked {tracked}: {r}")
    print(f"derivative zero: {len(ZERO)} functions, {count} calls")
    assert not wrong, "\n".join(wrong)
    assert len(ZERO) > 80 and count > 300


# Functions of floats that are no float in the registry, at arguments that are usual elsewhere.
FLOATS = [
    Call(np.bincount, (INTS, V)), Call(np.bincount, (INTS,), {"weights": V, "minlength": 9}),
    Call(np.digitize, (A, RANGE)),
    Call(np.searchsorted, (RANGE, A)), Call(np.quantile, (A, 0.37)), Call(np.quantile, (A, np.array([0.2,
    0.63])), {"axis": 1}),
    Call(np.percentile, (A, 37.3), {"axis": 0, "keepdims": True}), Call(np.nanquantile, (A, np.array([[0.2],
    [0.63]]))),
    Call(np.nanpercentile, (np.where(A > 0.5, np.nan, A), 37.3), {"axis": 1}), Call(np.quantile, (A, 0.37),
    {"method": "hazen"}),
    Call(np.cov, (A,), {"aweights": abs(V[:4]) + 0.2}), Call(np.cov, (A,), {"aweights": abs(V[:4]) + 0.2,
    "fweights": [1, 2, 1, 3]}),
    Call(np.average, (A,), {"weights": abs(A) + 0.2, "returned": True}), Call(np.average, (A,),
    {"weights": abs(V[:4]) + 0.2, "axis": 1}),
    Call(np.linalg.lstsq, (A.T, V[:4])), Call(np.linalg.lstsq, (A[:, :3] + np.eye(3), A[:, :2])),
    Call(np.linalg.lstsq, (A, V[:3])),
    Call(np.nextafter, (U, U + 1)), Call(np.ix_, (V, [1, 2])), Call(np.indices, ((2, 3),), {"dtype": float}),
    Call(np.fix, (U * 5,)),
    Call(np.interp, (np.array([0.2, 1.2]), RANGE, V[:4]), {"left": 0.3, "right": 0.4}),
    Call(np.interp, (U, RANGE, V[:4]), {"period": 1.9}), Call(np.fromiter, ([0.3, 0.5], float)),
    Call(np.histogram, (V,)),
    Call(np.histogram, (V,), {"weights": V, "bins": [-1.0, 0.1, 1.0]}), Call(np.piecewise, (A, [A > 0.1],
    [0.3, 2.0])),
    Call(np.select, ([A > 0.1], [A]), {"default": 0.7}), Call(np.linspace, (0.3, 1.7)), Call(np.logspace,
    (0.3, 1.1), {"base": 2.5}),
    Call(np.geomspace, (0.3, 2.7)), Call(np.full, ((2,), 0.7)), Call(np.where, (A > 0.1, A, 0.5)),
    Call(np.nan_to_num, (np.array([np.nan, 1.0]),), {"nan": 0.7}), Call(np.pad, (V, 2),
    {"constant_values": 0.3}),
    Call(np.pad, (V, 2, "linear_ramp"), {"end_values": 0.3}), Call(np.ediff1d, (V,), {"to_end": 0.3,
    "to_begin": V[:2]}),
    Call(np.diff, (V,), {"prepend": 0.3, "append": 0.2}), Call(np.unwrap, (V * 5,), {"period": 2.1}),
    Call(np.trapezoid, (V,), {"dx": 0.3}), Call(np.gradient, (V, 0.3)), Call(np.gradient, (V[:4], RANGE)),
    Call(np.linalg.norm, (V,), {"ord": 2.5}), Call(np.clip, (A, -0.3, 0.4)), Call(np.isclose, (A, A + 1e-9),
    {"atol": 1e-8}),
    Call(np.round, (U, 1)), Call(np.heaviside, (V, 0.4)), Call(np.ldexp, (V, 2)), Call(np.polyval, (V, 0.3)),
    Call(np.polyfit, (V, V**2, 1)), Call(np.convolve, (V, V[:2])), Call(np.histogram2d, (V, V**2, 3)),
    Call(np.std, (A,), {"correction": 0.5}), Call(np.var, (A,), {"mean": A.mean()}),
    Call(scipy.linalg.toeplitz, (V, V * 2)),
    Call(np.insert, (V, 2, 0.7)), Call(np.put_along_axis, (A, np.array([[0, 2, 1, 0]]), 0.7, 0)),
    Call(np.unique, (V,)),
    Call(np.max, (A,), {"where": A < 0.3, "initial": 0.1}), Call(np.sum, (A,), {"where": A < 0.3,
    "initial": 0.1}),
]  # fmt: skip


@pytest.mark.parametrize("call", FLOATS, ids=repr)
def test_every_float_argument(call):
    n = len(floats((call.args, call.kwargs)))
    for tracked in [[k] for k in range(n)] + [list(range(n))]:
        r = judge(call, tracked)
        assert not r.startswith("WRONG"), f"tracked {tracked}: {r}"


RIGHT = ("bincount", "quantile", "percentile", "cov", "average", "lstsq", "nextafter", "fromiter", "logspace",
"geomspace", "ediff1d",
         "histogram")  # fmt: skip


def test_the_usual_ones_have_a_rule():
    for call in FLOATS:
        if call.f.__name__ in RIGHT:
            assert judge(call) == "right", call


def test_weights_of_bincount():
    at, w = np.array([0, 2, 2, 1, 2]), np.array([0.5, 1.0, -0.3, 2.0, 0.7])
    c = np.array([2.0, 3.0, 5.0, 7.0])
    g = tg.grad(lambda w: (c * np.bincount(at, w, minlength=4)).sum())(w)
    assert np.array_equal(g, c[at])
    check_grads(lambda w: np.bincount(at, weights=w) ** 3, (w,), order=2)
    with pytest.raises(ValueError, match="same length"):
        tg.grad(lambda w: np.bincount(at, w[:2]).sum())(w)


def test_quantile_in_q():
    """Between two elements the quantile is linear: the slope is (n - 1) times their distance."""
    x = np.array([3.0, 0.0, 1.0, 7.0])
    assert tg.grad(lambda q: np.quantile(x, q))(0.5) == pytest.approx(3 * 2.0)
    assert np.allclose(
        tg.jacobian(lambda q: np.percentile(x, q))(np.array([10.0, 80.0])),
        np.diag([3.0 / 100, 3 * 4.0 / 100]),
    )
    assert tg.grad(lambda q: np.quantile(x, q, method="lower"))(0.5) == 0.0
    with pytest.raises(ValueError, match=r"q must lie in \[0, 100\]"):
        tg.grad(lambda q: np.percentile(x, q))(101.0)


def test_singular_values_of_lstsq():
    """The derivative of sum s^2 is 2 a."""
    a, b = np.random.default_rng(4).random((5, 3)), np.arange(5.0)
    assert np.allclose(tg.grad(lambda a: (np.linalg.lstsq(a, b)[3] ** 2).sum())(a), 2 * a)


def test_a_float_that_would_be_lost_raises():
    assert np.array_equal(tg.grad(lambda x: (np.ix_(x)[0] * x).sum())(V), 2 * V)
    as_if_zero = zero_derivative_of(np.sort)  # as one that is declared wrongly
    with pytest.raises(NoRuleError, match=r"numpy\.sort gives floats here"):
        tg.grad(lambda x: as_if_zero(x).sum())(V)
    with pytest.raises(ArgumentError, match=r"numpy\.histogram: bins='auto' chooses the edges by the data"):
        tg.grad(lambda x: np.histogram(x, "auto")[1].sum())(V)


def test_a_histogram_of_weights():
    """Bars are linear in the weights, and with density= move with the edges that were given."""
    x, w = np.array([0.1, 0.2, 0.7, 0.4, 3.0]), np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    edges, c = np.array([0.0, 0.3, 0.5, 1.0]), np.array([2.0, 3.0, 5.0])
    g = tg.grad(lambda w: (c * np.histogram(x, edges, weights=w)[0]).sum())(w)
    assert g.tolist() == [2, 2, 5, 3, 0]
    f = lambda w, edges: (c * np.histogram(x, edges, weights=w, density=True)[0] ** 2).sum()
    check_grads(lambda w, edges: f(w, edges), (w, edges), order=2)
    assert tg.jacobian(lambda x: np.histogram(x, 2)[1])(x).tolist() == [
        [1, 0, 0, 0, 0],
        [0.5, 0, 0, 0, 0.5],
        [0, 0, 0, 0, 1],
    ]


def test_no_zero_function_gives_floats_of_plain_calls():
    """What the table of names says of them: booleans, integers, texts, dtypes and shapes; `fix` is constant
    between steps."""
    seen = {}
    for call in calls():
        if call.f in ZERO and call.f.__name__ in zero_derivative.NAMES and not call.kwargs:
            seen[call.f.__name__] = any(is_float(v) for v in members(plain_result(call)))
    assert len(seen) > 40 and {n for n, floating in seen.items() if floating} <= {"fix"}
