"""Every line of tests/support/cases.py, on NumPy and CuPy: value, forward, reverse, nestings of second and
third order, and variants of the inputs (0-d, empty, strided, float32, broadcast)."""

import itertools

import numpy as np
import pytest
from cases import all_cases, covered, declared_late
from grid import active, derivatives, of_active, on

import tapegrad as tg
from tapegrad._core.trees import leaves, tree_map
from tapegrad.ops.declare import COMPOSED, PRIMITIVES
from tapegrad.testing.derivative_checks import (
    check_grads,
    differences,
    direction_like,
    inner_product,
    nested_derivative,
    plain_host_array,
)

pytestmark = pytest.mark.usefixtures("quiet")

CASES = all_cases()
ELSEWHERE = {"read", "assign", "add_at"}  # tests of in-place writes
ELSEWHERE |= {"taken_by", "added_by", "alike_each"}  # tests of hidden values
ELSEWHERE |= {
    "shares_memory",
    "may_share_memory",
}  # tests/capture/test_overlaps.py: answers of True and False
ELSEWHERE |= {"reciprocal_condition"}  # tests/scipy_packages/test_solver_warnings.py
ELSEWHERE |= {"lu_packed", "lu_solution"}  # tests/replay/test_shared_factors.py: parts of `solve` there
ELSEWHERE |= {
    "sum_over_ranks",
    "rows_over_ranks",
    "shifted",
    "compared_over_ranks",
}  # tests/parallel: over several ranks
ELSEWHERE |= {"as_strided"}  # below: NumPy hands it over only where code is followed
ELSEWHERE |= {
    "last_writer",
    "places_of",
    "first_chosen",
}  # tests of vmap: met where an index differs between samples


def over(kind=None, order=0):
    chosen = [c for c in CASES if c.order >= order and (kind is None or kind in c.kinds)]
    return pytest.mark.parametrize("case", chosen, ids=repr)


NUMPY_FIRST = pytest.mark.parametrize(  # one rule serves both libraries; the second order shows it on CuPy
    "xp",
    [
        "numpy",
        pytest.param("hosted-cupy", marks=pytest.mark.long),
        pytest.param("cupy", marks=pytest.mark.gpu),
    ],
    indirect=True,
)


def same(a, b, rtol):
    for u, v in zip(leaves(a), leaves(b), strict=True):
        if u is not None and v is not None:
            u, v = plain_host_array(u), plain_host_array(v)
            assert u.shape == v.shape
            scale = np.max(np.abs(v), initial=0.0, where=np.isfinite(v)) if v.size else 0.0
            np.testing.assert_allclose(u, v, rtol=rtol, atol=rtol * max(1.0, float(scale)))


@over()
def test_value_is_numpys(xp, case):
    direct = case.f(*[a.copy() if isinstance(a, np.ndarray) else a for a in case.inputs])
    x = on(xp, case.inputs)
    nums, f = of_active(case, x)
    value = tg.vjp(f, *[x[n] for n in nums])[0]
    assert len(leaves(value)) == len(leaves(direct))
    for a, b in zip(leaves(value), leaves(direct), strict=True):
        assert np.asarray(b).dtype == plain_host_array(a).dtype
    same(value, direct, 1e-12)


@pytest.mark.one_in(9, of="hosted-cupy")
@over(order=1)
def test_first_and_second_order(xp, case):
    check_grads(
        case.f, on(xp, case.inputs), order=min(case.order, 2), rtol=case.rtol, atol=case.rtol, eps=case.eps
    )


THIRD = ["".join(word) for word in itertools.product("FR", repeat=3)]


@pytest.mark.long
@NUMPY_FIRST
@over(order=3)
def test_third_order(xp, case):
    """On NumPy all eight nestings and differences; on CuPy, where the rules are the same, two opposite
    nestings, others for each line of the table in turn."""
    x = on(xp, case.inputs)
    nums, f = of_active(case, x)
    x_active = tuple([x[n] for n in nums])
    rng = np.random.default_rng(3)
    w = direction_like(tg.vjp(f, *x_active)[0], rng)
    phi = lambda *xs: inner_product(w, f(*xs))
    v = [direction_like(x_active, rng) for _ in range(3)]
    turn = CASES.index(case) % 4
    words = THIRD if xp is np else [THIRD[turn], THIRD[7 - turn]]
    found = {word: float(plain_host_array(nested_derivative(phi, word, v)(*x_active))) for word in words}
    scale = max(1.0, *[abs(d) for d in found.values()])
    first = found[words[0]]
    assert all(abs(d - first) <= 20 * case.rtol * scale for d in found.values()), found
    if xp is np:
        numeric = float(differences(nested_derivative(phi, "FR", v[:2]), x_active, v[2], case.eps))
        assert abs(numeric - first) <= 100 * case.rtol * scale, (numeric, found)


@pytest.mark.parametrize("case", [c for c in CASES if c.order == 0], ids=repr)
def test_no_derivative(xp, case):
    x = on(xp, case.inputs)
    value, tangent, c, _ = derivatives(case, x)
    assert all(t is None or not plain_host_array(t).any() for t in leaves(tangent))
    assert all(t is None or not plain_host_array(t).any() for t in leaves(c))


@NUMPY_FIRST
@over("strided")
def test_strided(xp, case):
    x = on(xp, case.inputs)
    expected = derivatives(case, x)
    same(
        derivatives(case, tuple([xp.asfortranarray(a) if getattr(a, "ndim", 0) else a for a in x])),
        expected,
        1e-11,
    )
    turned = tuple([xp.flip(xp.flip(a).copy()) if getattr(a, "ndim", 0) else a for a in x])
    same(derivatives(case, turned), expected, 1e-11)


def single(a):
    d = getattr(a, "dtype", np.dtype(int))
    return a.astype(np.float32 if d.kind == "f" else np.complex64) if d.kind in "fc" else a


@pytest.mark.one_in(2)
@NUMPY_FIRST
@over("float32")
def test_float32(xp, case):
    """float32 in, float32 out; close to the derivatives at the same (rounded) point in float64."""
    x = tuple([single(a) for a in case.inputs])
    value, tangent, c, (a, b) = derivatives(case, on(xp, x))
    double = tuple(
        [v.astype(v.dtype.char.replace("f", "d").replace("F", "D")) if hasattr(v, "dtype") else v for v in x]
    )
    expected = derivatives(case, on(np, double))
    direct = case.f(*x)
    for u, v in zip(leaves(value), leaves(direct), strict=True):
        assert xp is not np or u.dtype == np.asarray(v).dtype
    for u, v in zip(leaves(tangent), leaves(value), strict=True):
        assert u is None or plain_host_array(u).dtype == plain_host_array(v).dtype
    for u, n in zip(c, active(x), strict=True):
        assert plain_host_array(u).dtype == x[n].dtype
    if case.order:
        same((value, tangent, c), expected[:3], case.single)
    if case.order > 1 and len(active(x)) == len(x):
        w, v = (
            direction_like(value, np.random.default_rng(1)),
            direction_like(on(xp, x), np.random.default_rng(2)),
        )
        second = tg.jvp(tg.grad(lambda *xs: inner_product(w, case.f(*xs)), active(x)), on(xp, x), v)[1]
        assert [plain_host_array(u).dtype for u in second] == [a.dtype for a in x]


@pytest.mark.one_in(2)
@pytest.mark.smoke
@over("scalar")
def test_scalars(xp, case):
    """0-d arrays, NumPy numbers and Python floats agree with the element of an array, and keep their kind."""
    first = [plain_host_array(a).flat[0] for a in case.inputs]
    expected = derivatives(
        case, on(np, [np.array([a]) if np.asarray(a).dtype.kind in "fc" else a for a in first])
    )
    forms = [lambda a: xp.asarray(a)] + ([lambda a: a, lambda a: a.item()] if xp is np else [])
    for form in forms:
        x = tuple([form(np.array(a)[()]) for a in first])
        value, tangent, c, (a, b) = derivatives(case, x)
        flat = tree_map(
            lambda u: None if u is None else plain_host_array(u).reshape(-1)[:1], (value, tangent, c)
        )
        assert all(u is None or np.shape(u) == () for u in leaves((value, tangent, c)))
        same(flat, expected[:3], 1e-9 if case.order else 1e-12)


@pytest.mark.one_in(2)
@over("empty")
def test_empty(xp, case):
    for s in ((0,), (2, 0)):
        x = on(xp, [np.zeros(s, np.asarray(a).dtype) for a in case.inputs])
        value, tangent, c, (a, b) = derivatives(case, x)
        assert all(np.shape(v) == s for v in leaves(value))
        assert all(np.shape(v) == s for v in leaves(c))
        assert a == b == 0


SHAPES = [((3, 2), (2,)), ((2,), (3, 1)), ((1, 1), (3,)), ((), (2, 2)), ((3, 2), ())]


@pytest.mark.one_in(3)
@over("broadcast")
def test_broadcast(xp, case):
    """Against the same call on inputs that were broadcast by hand, whose cotangents are then summed."""
    flat = [np.asarray(a).reshape(-1) for a in case.inputs]
    for shapes in SHAPES:
        x = [np.resize(a, s) for a, s in zip(flat, shapes, strict=True)]
        check_grads(
            case.f, on(xp, x), order=min(case.order, 2), rtol=case.rtol, atol=case.rtol, eps=case.eps
        ) if case.order else None
    y = float(flat[1][0]) if flat[1].dtype.kind == "f" else flat[1][0].item()
    z = float(flat[0][0]) if flat[0].dtype.kind == "f" else flat[0][0].item()
    a, b = on(xp, case.inputs)
    for f, x in ((lambda a: case.f(a, y), a), (lambda b: case.f(z, b), b)):
        if case.order and active((x,)):
            check_grads(f, (x,), order=min(case.order, 2), rtol=case.rtol, atol=case.rtol, eps=case.eps)


def test_every_operation_has_a_line():
    declared = {
        name for name, entry in {**PRIMITIVES, **COMPOSED}.items() if not declared_late(entry)
    }  # test_scipy_names.py: the others
    missing = declared - covered(CASES) - ELSEWHERE
    assert not missing, f"no line in tests/support/cases_*.py for {sorted(missing)}"


@pytest.mark.parametrize(
    "shape, steps",
    [((2, 2), None), ((3,), (2,)), ((5, 2), (1, 1)), ((2, 3), (3, 1)), ((2, 2, 2), (4, 2, 1)), (None, None)],
)
@pytest.mark.parametrize("writeable", [True, False])
def test_as_strided(shape, steps, writeable):
    def f(x):
        strides = None if steps is None else tuple([s * x.itemsize for s in steps])
        return np.lib.stride_tricks.as_strided(x, shape, strides, writeable=writeable)

    x = np.random.default_rng(0).normal(size=(3, 4))
    np.testing.assert_array_equal(tg.vjp(f, x)[0], f(x))
    check_grads(lambda x: (f(x) ** 2).sum(), (x,), order=2)
    np.testing.assert_array_equal(tg.vmap(f)(np.stack([x, 2 * x])), np.stack([f(x), f(2 * x)]))
