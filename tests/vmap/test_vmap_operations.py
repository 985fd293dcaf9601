"""Every operation under `tg.vmap`, against a loop over the samples: values and derivatives, inside and
outside."""

import numpy as np
import pytest
from cases import all_cases
from looped import judged, same

import tapegrad as tg
from tapegrad._core.primitive import layout_of
from tapegrad._core.trees import leaves

X = np.random.default_rng(0).uniform(0.2, 1.8, (4, 3))
CASES = [
    c
    for c in all_cases()
    if any(np.asarray(a).dtype.kind in "fc" for a in c.inputs if not isinstance(a, (list, tuple)))
]


@pytest.mark.one_in(3)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES, ids=repr)
def test_operations(case):
    judged(case, 2, order=1)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES, ids=repr)
def test_operations_to_second_order(case):
    """With two samples, and with three and four, which are also the lengths of many axes."""
    for count in (2, 3, 4):
        judged(case, count)


@pytest.mark.filterwarnings("ignore")
def test_some_operations_in_all_forms():
    """vmap of vmap, and recorded, among them."""
    for case in CASES[7::70]:
        judged(case, 3)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", [c for c in CASES if not c.numpy_only], ids=repr)
def test_operations_on_cupy(case, xp):
    if xp is not np:
        judged(case, 2, library=xp)


def in_order(x, order):
    """A stack of x and another array, each in this memory order."""
    room = np.empty((2, *(x.shape if order == "C" else x.shape[::-1])), x.dtype)
    stack = room if order == "C" else room.transpose(0, *range(x.ndim, 0, -1))
    stack[0], stack[1] = x, x * x.dtype.type(0.9)
    return stack


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("case", CASES, ids=repr)
def test_memory_order_of_results(case, order):
    """Each sample of a result lies as the result of one sample does: whether a reshape of it is a view
    depends on it."""
    active = [
        n
        for n, a in enumerate(case.inputs)
        if not isinstance(a, (list, tuple)) and np.asarray(a).dtype.kind in "fc"
    ]
    seen = []

    def f(*xs):
        given = list(case.inputs)
        for n, x in zip(active, xs, strict=True):
            given[n] = x
        y = case.f(*given)
        found = [layout_of(v) for v in leaves(y) if v is not None]
        seen.append(
            [(v.flags.c_contiguous, v.flags.f_contiguous) for v in found if getattr(v, "ndim", 0) > 1]
        )
        return y

    stacks = [in_order(np.asarray(case.inputs[n]), order) for n in active]
    with np.errstate(all="ignore"):
        tg.vmap(f)(*stacks)
        one = tuple([x[0] for x in stacks])
        tg.jvp(f, one, one)
    assert seen[0] == seen[1]


def test_what_runs_on_one_sample_after_the_other_is_reported():
    """Operations without a word for batching, those whose settings leave none, and the solver of an implicit
    function."""
    knots = np.array([0.0, 1.0, 2.0])
    root = tg.implicit.root(lambda x, a: x * x - a, lambda F, x0, a: np.sqrt(a))
    for f, name in (
        (lambda x: np.interp(x, knots, knots * x.sum()), "searchsorted"),
        (lambda x: root(x, x), "the solver of implicit.root"),
        (lambda x: np.sin(x).sum(), None),
    ):
        p = tg.prepare(tg.vmap(f), X)
        p(X)
        told = p.report().partition("under vmap one sample after the other: ")[2]
        assert told.startswith(name) if name else told == ""
        assert same([p(2 * X)], [np.stack([f(x) for x in 2 * X])])


@pytest.mark.filterwarnings("ignore:numpy.fix is deprecated")  # (from NumPy 2.5 on, of a plain call)
def test_tests_of_values_are_run_for_all_samples_at_once():
    x, y, shared = X.copy(), X[:, :2, None].copy(), np.arange(6.0).reshape(2, 3)
    x[2, 1], x[0, 0], y[1, 1] = np.inf, -np.inf, x[1, 2]
    for f in (
        lambda x, y: np.isclose(x, y), lambda x, y: np.isclose(x, shared), lambda x, y: np.isclose(shared,
        x.min() + y, rtol=0.5),
        lambda x, y: np.isclose(x[0], y), lambda x, y: np.isneginf(x), lambda x, y: np.isposinf(x), lambda x,
        y: np.iscomplex(x),
        lambda x, y: np.isreal(x), lambda x, y: np.fix(x),
    ):  # fmt: skip
        p = tg.prepare(tg.vmap(f), x, y)
        for call in (tg.vmap(f), p):
            assert np.array_equal(call(x, y), [f(a, b) for a, b in zip(x, y, strict=True)])
        assert "one sample" not in p.report()


def test_functions_of_the_layout_need_no_values():
    A = np.random.default_rng(1).normal(size=(3, 4, 4))
    for f in (
        lambda x: x[np.diag_indices_from(x)], lambda x: x[np.tril_indices_from(x, -1)],
        lambda x: x[np.triu_indices_from(x, k=1)] ** 2,
        lambda x: np.einsum("ij,jk", x, x, optimize=np.einsum_path("ij,jk", x, x)[0]),
    ):  # fmt: skip
        for x in A:
            assert same([tg.prepare(f, A[0])(x)], [f(x)])
        assert same([tg.vmap(f)(A)], [np.stack([f(x) for x in A])])


@pytest.mark.parametrize("f", [np.linalg.eigvals, lambda m: np.linalg.eig(m)[0]])
def test_eigenvalues_without_derivatives_are_the_librarys(f):
    """Equal ones have no derivative, but a value."""
    defective = np.array([[2.0, 1.0], [0.0, 2.0]])
    stack = np.stack([defective, np.array([[1.0, 2.0], [-3.0, 0.5]])]) + 0j
    np.testing.assert_array_equal(tg.vmap(f)(stack), np.stack([f(m) for m in stack]))
    np.testing.assert_array_equal(tg.prepare(f, defective).value(defective), f(defective))
    with pytest.raises(tg.errors.SingularError):
        tg.grad(lambda m: abs(f(m)).sum())(defective)


def test_flags_are_of_one_array():
    """An array that is made read-only under vmap or in a recording leaves others of its layout as they are."""

    def f(x):
        y, z = x * 2.0, np.require(x * 3.0, requirements=["O", "W"])
        y.flags.writeable = False
        z[0] = 1.0
        w = np.require(y, requirements="W")
        w[1] = 2.0
        return np.sum(y * z) * (1 + y.flags.owndata + y.flags.writeable + 2 * x[1:].flags.owndata) + np.sum(w)

    x = np.array([0.7, -0.4, 1.3])
    p, gradient = tg.prepare(f, x), [4.0 + 2, 24 * x[1], 24 * x[2] + 2]
    np.testing.assert_allclose(tg.grad(f)(x), gradient)
    np.testing.assert_allclose(tg.vmap(f)(np.stack([x, 2 * x])), [f(x), f(2 * x)])
    np.testing.assert_allclose(tg.vmap(tg.grad(f))(np.stack([x, x]))[1], gradient)
    np.testing.assert_allclose([p.value(x), *p.grad(x)], [f(x), *gradient])
