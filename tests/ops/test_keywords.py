"""Every function that tapegrad answers for, with every keyword of its signature at its default and at other
values, against the
plain call: value, dtype, shape, tangent and cotangents.  Each call is right, or raises an error of tapegrad's own, or raises where
the plain call raises too."""

import itertools
from collections import Counter

import numpy as np
import pytest
import scipy.fft
import scipy.linalg
from comparison import host
from keyword_calls import (
    NUMPY_24,
    SQUARE,
    SYMMETRIC,
    A,
    Call,
    Device,
    alone,
    calls,
    floats,
    functions,
    judge,
    method_calls,
    ufunc_calls,
)

import tapegrad as tg
from tapegrad.errors import ArgumentError, NoRuleError
from tapegrad.ops import layouts
from tapegrad.ops.declare import NUMPY
from tapegrad.ops.protocols import ADAPTERS, signature_of
from tapegrad.testing.hosted import stats


def verdict(call):
    """With all floats tracked; where that is refused, with each of them alone."""
    r = judge(call)
    n = len(floats((call.args, call.kwargs)))
    if r.startswith("refused") and n > 1:
        return next((s for s in (judge(call, [k]) for k in range(n)) if s.startswith("WRONG")), r)
    return r


def report(name, all_calls, judged=verdict):
    count, wrong = Counter(), []
    all_calls = list(all_calls)
    for call in all_calls:
        r = judged(call)
        count[r.split(":")[0]] += 1
        if r.startswith("WRONG"):
            wrong.append(f"{call}: {r}")
    keywords = {(c.f, k) for c in all_calls for k in c.kwargs}
    print(
        f"{name}: {len({c.f for c in all_calls})} functions, {len(keywords)} keywords, {len(all_calls)} "
        f"calls: {dict(count)}"
    )
    assert not wrong, "\n".join(wrong)
    assert count["right"] > len(all_calls) / 3


def test_functions():
    report("functions", calls())


def test_ufuncs_and_their_methods():
    report("ufuncs", ufunc_calls(), judge)


def test_methods_of_arrays():
    report("methods", method_calls())


@pytest.mark.cupy_only
@pytest.mark.parametrize("step", [23, pytest.param(1, marks=pytest.mark.long)])
def test_on_a_device(xp, step):
    """CuPy's functions of the same names on its arrays; every 23rd of the calls, and all in the long run."""
    device = Device(xp)
    there = [
        c
        for c in (*calls(), *ufunc_calls(), *method_calls())
        if device.function(c) and not any(v is np._NoValue for v in c.kwargs.values())
    ]
    report("on a device", there[::step], lambda call: judge_known(call, device))


def judge_known(call, device):
    """Where the hosted CuPy knows the kernels; a real one knows all."""
    stats["unknown"].clear()
    r = judge(call, where=device)
    return "unknown" if stats["unknown"] else r


def quantile_calls():
    """Of an element that is picked: with weights, and by the methods that jump."""
    columns, rows = np.array([1.0, 2.0, 0.5, 0.7]), np.array([1.0, 2.0, 0.5])
    for f in (np.quantile, np.percentile, np.nanquantile, np.nanpercentile):
        for q in (
            0.02,
            0.25,
            0.37,
            0.5,
            0.75,
            0.98,
            np.array([0.25, 0.9]),
            np.array([[0.1, 0.5], [0.7, 0.75]]),
        ):
            q = 100 * q if "percentile" in f.__name__ else q
            for method in ("inverted_cdf", "averaged_inverted_cdf", "closest_observation"):
                for axis in (None, 0, 1, (0, 1)):
                    yield Call(f, (A, q), {"method": method, "axis": axis, "keepdims": axis == 0})
            for axis, w in ((None, abs(A)), (0, rows), (1, columns), (1, abs(A))):
                yield Call(
                    f, (A, q), {"method": "inverted_cdf", "axis": axis, "keepdims": axis == 1, "weights": w}
                )


def matrix_calls():
    other, upper = SQUARE @ SQUARE.T + np.eye(3), SQUARE + 1j * SQUARE.T @ SQUARE
    for h in (SYMMETRIC, SQUARE, np.stack([SQUARE, SQUARE.T]), upper):
        yield from [Call(np.linalg.svd, (h,), {"hermitian": True, "compute_uv": u}) for u in (True, False)]
        yield from [Call(np.linalg.pinv, (h,), {"hermitian": True, "rcond": r}) for r in (1e-15, 0.6)]
    for lower, kind in itertools.product((True, False), (1, 2, 3)):
        for more in ({}, {"subset_by_value": [-0.5, 9.0]}, {"subset_by_index": [1, 2]}):
            yield Call(scipy.linalg.eigh, (SYMMETRIC, other), {"type": kind, "lower": lower, **more})
        yield Call(scipy.linalg.eigvalsh, (SYMMETRIC, other), {"type": kind, "lower": lower})
    yield from [
        Call(scipy.linalg.eigh, (SYMMETRIC,), {"subset_by_value": v})
        for v in ([-1.0, 5.0], [-np.inf, 4.0], [50.0, 60.0])
    ]
    for a in (A, A.T, SQUARE):
        for more in (
            {"atol": 0.7},
            {"return_rank": True},
            {"atol": 0.7, "rtol": 0.01, "return_rank": True},
            {"rtol": 0.4},
        ):
            yield Call(scipy.linalg.pinv, (a,), more)
    for axis in (0, 1, -1):
        for more in ({}, {"return_index": True}, {"return_inverse": True, "return_counts": True}):
            yield Call(np.unique, (A,), {"axis": axis, **more})


def test_keywords_that_act_together():
    """q and the weights move nothing: what they pick jumps."""
    report("quantiles that jump", quantile_calls(), lambda call: judge(call, [0]))
    report("matrices", matrix_calls(), judge)


def test_unique_rows_of_which_some_are_equal():
    x = np.array([[1.0, 2.0], [0.5, 3.0], [1.0, 2.0]])
    assert (
        tg.grad(lambda x: (np.unique(x, axis=0) * [[1.0, 2.0], [3.0, 4.0]]).sum())(x)
        == [[3, 4], [1, 2], [0, 0]]
    ).all()


def test_weighted_quantiles_do_not_move_with_their_weights():
    x = np.array([3.0, 1.0, 2.0])
    g = tg.grad(lambda x, w: np.quantile(x, 0.5, method="inverted_cdf", weights=w), (0, 1))(
        x, np.array([1.0, 1.0, 5.0])
    )
    assert g[0].tolist() == [0, 0, 1] and not g[1].any()


def test_the_pseudo_inverse_of_a_matrix_that_is_cut_off(xp):
    """Of a matrix of the rank that is taken, its derivative is that at constant rank; else that of what is
    computed."""
    a = SQUARE[:, :2] @ SQUARE[:2]
    d = SQUARE[:, :2] @ SQUARE[:2] @ SYMMETRIC
    for b, e, cut in ((a, d, 1e-6), (SYMMETRIC, d, 0.6)):
        low, high = (np.linalg.pinv(b + h * e, cut) for h in (-1e-6, 1e-6))
        if xp is not np and cut < 1e-3:
            continue  # a device does not look at the singular values
        found = tg.jvp(lambda b, cut=cut: tg.numpy.linalg.pinv(b, cut), (xp.asarray(b),), (xp.asarray(e),))[1]
        np.testing.assert_allclose(host(found), (high - low) / 2e-6, rtol=1e-6, atol=1e-8)


@pytest.mark.long
def test_each_argument_alone():
    def judged(call):
        rs = [judge(call, tracked) for tracked in alone(call)]
        return next((r for r in rs if r.startswith("WRONG")), rs[0] if rs else "right")

    report("each argument alone", [*calls(), *ufunc_calls(), *method_calls()], judged)


def test_every_keyword_has_another_value():
    """`calls` passes each keyword of each signature, but for those that it gives by place."""
    given = {(c.f, k) for c in calls() for k in c.kwargs}
    without = set()
    for f in functions():
        for n, p in signature_of(f).parameters.items():
            if p.default is not p.empty and p.kind is not p.POSITIONAL_ONLY and (f, n) not in given:
                without.add(f"{f.__name__}({n})")
    by_place = {"arange(stop)", "clip(a_min)", "clip(a_max)", "tensorinv(ind)", "zeta(q)"}
    if NUMPY_24:
        assert without == by_place | {"array(ndmax)"}
    else:  # of `array` there is no signature, of these another one
        assert (
            without - {"where(x)", "where(y)", "reshape(shape)", "convolve(mode)", "correlate(mode)"}
            == by_place
        )


def test_the_judge_finds_a_keyword_in_another_place(monkeypatch):
    """As `overwrite_input` once stood for `axis`."""
    right = NUMPY[np.median]
    ADAPTERS.pop(np.median, None)
    monkeypatch.setitem(
        NUMPY, np.median, lambda a, axis=None, *, keepdims=False: right(a, axis=0 if axis is False else axis)
    )
    assert judge(Call(np.median, (A,))) == "right"
    monkeypatch.setitem(NUMPY, np.median, lambda a, axis=None, *, keepdims=False: right(a, axis=0))
    ADAPTERS.pop(np.median, None)
    assert judge(Call(np.median, (A,), {"overwrite_input": False})).startswith("WRONG")
    ADAPTERS.pop(np.median, None)


@pytest.mark.parametrize("f", [np.quantile, np.percentile, np.nanquantile, np.nanpercentile])
def test_quantiles_of_a_matrix_by_keyword(f):
    x = np.arange(12.0).reshape(3, 4) ** 1.3
    q = 30.0 if "percentile" in f.__name__ else 0.3
    for given in (
        {"overwrite_input": False},
        {"overwrite_input": True, "keepdims": True},
        {"axis": 1, "out": None},
    ):
        value, gradient = tg.value_and_grad(lambda x: np.sum(f(x, q, **given)))(x)
        assert value == pytest.approx(np.sum(f(x, q, **{**given, "overwrite_input": False})))
        assert gradient.sum() == pytest.approx(3.0 if "axis" in given else 1.0)


def test_a_keyword_unknown_to_the_library_raises_as_there():
    with pytest.raises(TypeError, match="no_such"):
        tg.grad(lambda x: np.sum(x, no_such=1))(np.ones(3))
    with pytest.raises(TypeError, match="missing .*argument: 'q'"):
        tg.grad(lambda x: np.quantile(x, axis=0))(np.ones(3))


def test_what_is_refused_names_function_and_keyword():
    x = np.eye(3) + 1
    with pytest.raises(ArgumentError, match="loses? the derivative"):
        tg.grad(lambda x: np.mean(x, dtype=int) * 1.0)(x)
    with pytest.raises(ArgumentError, match=r"scipy\.linalg\.qr: mode='raw'"):
        tg.grad(lambda x: scipy.linalg.qr(x, mode="raw")[1].sum())(x)
    with pytest.raises(NoRuleError, match=r"scipy\.special\.zeta of complex"):
        tg.grad(lambda x: scipy.special.zeta(x + 1j).real.sum())(x)


def test_integer_dtype_of_a_ufunc_acts_on_the_inputs():
    """NumPy casts first: 1.5 + 1.5 is 2 in integers."""
    seen = []
    tg.grad(lambda x: (seen.append(np.add(x, x, dtype=int, casting="unsafe")), x.sum())[1])(np.array([1.5]))
    assert seen[0][0] == 2 and seen[0].dtype == int
    with pytest.raises(TypeError, match="same_kind"):
        tg.grad(lambda x: np.add(x, x, dtype=int).sum() * 1.0)(np.array([1.5]))


@pytest.mark.parametrize(
    "structure", ["sym", "her", "diagonal", "tridiagonal", "upper triangular", "lower triangular"]
)
@pytest.mark.parametrize("lower", [False, True])
def test_solve_reads_what_the_structure_says(structure, lower):
    """The entries that SciPy does not read have gradient zero."""
    a, b = np.random.default_rng(3).random((4, 4)) + 4 * np.eye(4), np.arange(1.0, 5.0)
    f = lambda a: (scipy.linalg.solve(a, b, assume_a=structure, lower=lower) ** 2).sum()
    g = tg.grad(f)(a)
    for i in range(4):
        for j in range(4):
            e = np.zeros((4, 4))
            e[i, j] = 1e-6
            assert g[i, j] == pytest.approx((f(a + e) - f(a - e)) / 2e-6, rel=1e-5, abs=1e-9)


FORTRAN = np.asfortranarray([[3.2, 0.1, 0.3], [0.1, 2.4, 0.3], [0.3, 0.3, 4.1]])
OVERWRITING = {
    "solve": lambda m, b: scipy.linalg.solve(m, b, overwrite_a=True, overwrite_b=True),
    "cho_solve": lambda m, b: scipy.linalg.cho_solve(scipy.linalg.cho_factor(m), b, overwrite_b=True),
    "lu_solve": lambda m, b: scipy.linalg.lu_solve(scipy.linalg.lu_factor(m), b, overwrite_b=True),
    "lstsq": lambda m, b: scipy.linalg.lstsq(m, b, overwrite_a=True, overwrite_b=True)[0],
    "solve_triangular": lambda m, b: scipy.linalg.solve_triangular(m, b, overwrite_b=True),
    "dct": lambda m, b: scipy.fft.dct(m * b, overwrite_x=True),
}


@pytest.mark.parametrize("name", OVERWRITING)
def test_memory_that_a_library_may_overwrite_is_as_it_was_for_derivatives(name):
    """Also in the first call of its kind, in which the form of the library's result is learnt."""

    def f(b):
        return np.sum(OVERWRITING[name](FORTRAN.copy(order="F"), b.copy()) * np.cos(b))

    layouts.KNOWN.clear()
    b = np.array([0.7, -0.4, 1.3])
    h = 1e-6 * np.eye(3)
    for _ in range(2):
        np.testing.assert_allclose(tg.grad(f)(b), [(f(b + d) - f(b - d)) / 2e-6 for d in h], rtol=1e-7)
    np.testing.assert_array_equal(FORTRAN, FORTRAN.T)


@pytest.mark.parametrize("f, to", [(np.cumsum, (2, 1)), (np.cumprod, (2, 1)), (np.sum, (1,))])
def test_out_has_the_shape_of_the_result(f, to):
    """(NumPy fills only a part of a larger array with running sums, or refuses it.)"""
    into = lambda x, to: np.sum(f(x, axis=0, out=np.zeros(to)))
    x = np.array([[0.7], [0.3]])
    assert tg.value_and_grad(into)(x, to)[0] == into(x, to)
    with pytest.raises(ValueError):
        tg.grad(into)(x, (2, *to))


@pytest.mark.parametrize("f", [np.sum, np.prod, np.cumsum, np.cumprod, np.trace])
def test_integers_of_floats_in_a_total_are_refused(f):
    """Their derivative is 0, and was that of the floats."""
    x = np.array([[1.3, 2.6], [0.4, 1.7]])
    with pytest.raises(TypeError, match=r"dtype=int64 takes integers of floats"):
        tg.grad(lambda x: np.sum(f(x, dtype=np.int64) * x[0, 0]))(x)
    assert tg.grad(lambda x: np.sum(f(x, dtype=np.float64)))(x).any()
