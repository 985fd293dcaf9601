"""`tg.vmap` of functions that read and write at indices that differ from sample to sample, against a loop."""

import collections
import itertools

import numpy as np
import pytest
from looped import WEIGHTS, forms, further_forms, looped, same, vmapped, weighed

import tapegrad as tg
from tapegrad.errors import BatchError

X = np.random.default_rng(3).normal(size=(4, 3))
M = np.random.default_rng(4).normal(size=(4, 3, 2, 5))
K = np.array([0, 2, 1, 2])
I = np.array([[0, 1], [2, 2], [1, 0], [0, 0]])
TABLE = np.arange(12.0).reshape(4, 3)


def rows_written(x, m, k, i):
    y = x * 1.0
    y[k] = x[0] * 3
    y[i] *= x[:2]
    y[x > 0] = 2.0
    return y


def regions_written(x, m, k, i):
    y = np.zeros((3, 2, 5))
    y[k] = m[0]
    y[:, i * 0, k] += x[:, None]
    v = y[1:]
    v[i * 0, 1] = x[1]
    return y


def added(x, m, k, i):
    y = np.zeros(3)
    np.add.at(y, i, x[:2])
    y += x
    np.subtract.at(y, (k,), 2.0 * x[1])
    return y


PROGRAMS = {
    "number": lambda x, m, k, i: x[k],
    "row": lambda x, m, k, i: m[k],
    "last axis": lambda x, m, k, i: m[:, :, k],
    "array": lambda x, m, k, i: m[i],
    "apart": lambda x, m, k, i: m[i, :, i + 1],
    "behind an ellipsis": lambda x, m, k, i: m[..., i, i * 0, :],
    "with a list": lambda x, m, k, i: m[k, :, [1, 2]],
    "between slices": lambda x, m, k, i: m[:, i * 0 + 1, 1:3],
    "new axis": lambda x, m, k, i: m[None, k, ..., k],
    "of values": lambda x, m, k, i: x[np.argmax(x)] * x[np.argsort(x)][0],
    "take": lambda x, m, k, i: (
        np.take(m, i, axis=2) + np.take(x, i + 7, mode="wrap")[0] + np.take(x, i - 1, mode="clip")[1]
    ),
    "captured": lambda x, m, k, i: TABLE[k] * x + TABLE[k, i[0]],
    "with a mask": lambda x, m, k, i: m[np.array([True, False, True]), :, k],
    "negative": lambda x, m, k, i: x[-k],
    "rows written": rows_written,
    "regions written": regions_written,
    "added": added,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_indices(name):
    f = PROGRAMS[name]
    gradient = lambda x, m, k, i: tg.grad(lambda x, m: weighed(f(x, m, k, i)), (0, 1))(x, m)
    second = lambda x, m, k, i: tg.hvp(lambda x: weighed(f(x, m, k, i) ** 2), x, x)
    for g in (f, gradient, second):
        got, want = vmapped(g)(X, M, K, I), looped(g)(X, M, K, I)
        assert same(got, want), (got, want)
    got = tg.grad(lambda X: (tg.vmap(lambda *args: weighed(f(*args)))(X, M, K, I) * WEIGHTS[:4]).sum())(X)
    want = tg.grad(lambda X: sum([weighed(f(X[n] * 1.0, M[n], K[n], I[n])) * WEIGHTS[n] for n in range(4)]))(
        X
    )
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-14)
    twice = [np.stack([a, a[::-1]]) for a in (X, M, K, I)]
    want = [[f(*[np.copy(a[p, q]) for a in twice]) for q in range(4)] for p in range(2)]
    np.testing.assert_allclose(tg.vmap(tg.vmap(f))(*twice), want, rtol=1e-12, atol=1e-14)


def test_out_of_range():
    with pytest.raises(IndexError):
        tg.vmap(lambda x, k: x[k])(X, K + 1)


ROWS = np.zeros((3, 3))


def halved(x):
    x[x > 0] *= 0.5
    return x


def by_function(x):
    y = x * 1.0
    y[y < 0] = np.expm1(y[y < 0]) * x[0]
    y[np.abs(y) > 0.5] /= 3.0
    return y


def kept_in_domain(x):
    chosen, out = x > 0, np.zeros(3)
    out[chosen] = np.log(x[chosen]) * x[0] + 2.0
    out[~chosen] -= np.sqrt(-x[~chosen]) + x[~chosen] ** 2
    return out


def of_rows(x):
    y = np.outer(x, [1.0, 2.0])
    rows = y[:, 0] > 0
    y[rows] *= np.array([2.0, 3.0]) * x[1]
    y[rows] += x[:2]
    return np.append(y.ravel(), y[rows].sum(axis=0) + y[rows].sum())


def reduced(x):
    chosen = x[x > -9.0 * (x[0] > 0)]  # of some samples all
    return np.stack(
        [
            np.exp(x[x < 0]).sum(),
            np.prod(x[x > 0]),
            chosen.copy().sum(),
            np.clip(x[x > 0], 0.1, 0.4).sum(),
            (x[x > 0] > 1.0).any() * x[0],
        ]
    )


def in_a_captured_array(x):
    for k in range(3):
        ROWS[k] = x * k
        row = ROWS[k]
        row[row > 0.3] = 0.3 + np.tanh(row[row > 0.3] - 0.3)
    return ROWS * 1.0


def with_rows_of_a_sample(x):
    y = np.where(x > 0, x, 2.0 * x)
    y[x > 0] -= y[x > 0].astype(np.float64) * x[1]
    return -y


@pytest.mark.parametrize(
    "f",
    [halved, by_function, kept_in_domain, of_rows, reduced, in_a_captured_array, with_rows_of_a_sample],
    ids=lambda f: f.__name__,
)
def test_masks_that_differ(f):
    """As a loop, in three forms; no function meets an element that its mask kept from it; some samples choose
    none."""
    given = np.concatenate([X, [[0.5, 0.2, 0.7], [-0.5, -0.2, -0.7]]])
    slope = np.linspace(1.0, 2.0, 3)
    with np.errstate(all="raise", under="ignore"):
        np.testing.assert_allclose(tg.vmap(f)(given * 1.0), [f(x) for x in given * 1.0], 1e-12, 1e-14)
        one = lambda x: (f(x) ** 2).sum()
        for form in (tg.grad(one), lambda x: tg.jvp(f, (x,), (slope,))[1], lambda x: tg.hvp(one, x, slope)):
            np.testing.assert_allclose(
                tg.vmap(form)(given * 1.0), [form(x) for x in given * 1.0], 1e-12, 1e-13
            )
        outside = tg.grad(lambda X: tg.vmap(one)(X).sum())(given * 1.0)
        np.testing.assert_allclose(outside, [tg.grad(one)(x) for x in given * 1.0], 1e-12, 1e-13)


def test_what_a_mask_that_differs_refuses():
    def another_mask(x):
        y = x * 1.0
        y[y > 0] = x[x < 0.1]
        return y

    of_chosen = (
        lambda v: v, lambda v: v.shape[0], len, lambda v: v[0], lambda v: v @ v, lambda v: np.sort(v).sum(),
        sum, lambda v: v + X[0],
        np.add.reduce, np.cumsum, np.linalg.norm, np.max, float, np.asarray,
    )  # fmt: skip
    for f in (*[lambda x, g=g: g(x[x > 0]) for g in of_chosen], another_mask):
        with pytest.raises(
            BatchError,
            match="mask that differs between samples.*numpy.where|a value is asked for|differs between "
            "samples",
        ):
            tg.vmap(f)(X)


def test_a_captured_argument_of_a_transform_inside_may_be_written():
    table = np.array([1.0, 2.0, 3.0])

    def g(x):
        x *= 2.0
        x[0] = x[1] * x[2]
        return x.sum()

    for f in (
        lambda x: tg.grad(g)(table) * x, lambda x: tg.jvp(g, (table,), (x,))[1], lambda x: tg.jvp(g, (x,),
        (table,))[1],
        lambda x: tg.hvp(lambda z: g(z) ** 2, table, x),
    ):  # fmt: skip
        np.testing.assert_allclose(tg.vmap(f)(X * 1.0), [f(x) for x in X * 1.0], 1e-13)
    assert table.tolist() == [1.0, 2.0, 3.0]


def test_masks_on_which_samples_agree_where_another_trace_hides_them():
    """The samples of an outer vmap agree, too; what was recorded holds for this mask."""

    def halved(x, m):
        y = x * 1.0
        y[m > 0] *= 0.5
        y[m < 0] = y[m < 0] + x[m < 0] * 2.0
        return y[m > 0].sum() * x

    mask = np.stack([np.array([1.0, -1.0, 2.0])] * 4)
    want = looped(halved)(X, mask)
    assert same(vmapped(halved)(X, mask), want)
    both = tg.vmap(tg.vmap(halved))(np.stack([X, 2 * X]), np.stack([mask, mask]))
    assert same([both[0], both[1]], [*want, *looped(halved)(2 * X, mask)])
    p = tg.prepare(tg.vmap(halved), X, mask)
    for m in (mask, -mask, mask):
        assert same([p(X, m)], looped(halved)(X, m))
    mask[1] *= -1
    both = tg.vmap(tg.vmap(halved))(np.stack([X, X]), np.stack([mask, mask]))
    assert same([both[0], both[1]], 2 * looped(halved)(X, mask))
    assert same([p(X, mask)], looped(halved)(X, mask))


def test_a_captured_array_written_at_places_that_differ_raises():
    table = np.zeros(3)

    def g(x, k):
        table[k] = x[0]
        return x.sum()

    with pytest.raises(BatchError, match="from sample to sample"):
        tg.vmap(g)(X, K)


# --- arrays of integers and truth values that are filled ---


def order_of_a_sort(x):
    order = np.zeros(5, int)
    order[:] = np.argsort(x)
    order[1:] += order[:-1] * 0
    return (x[order] * np.arange(5.0)).sum()


def back_pointers(x):
    back, score, k, path = np.zeros((4, 5), dtype=np.int32), x, 0, []
    for t in range(1, 4):
        steps = score[:, None] + np.outer(x, x)
        back[t] = steps.argmax(0)
        score = steps.max(0)
    k = score.argmax()
    for t in range(3, 0, -1):
        path.append(k)
        k = back[t, k]
    return score.max() + sum([x[k] ** 2 for k in path])


def chosen_one_by_one(x):
    used, total = np.zeros_like(x, dtype=bool), 0.0
    for n in range(5):
        k = np.argmin(np.where(used, np.inf, x))
        total = total + (n + 1) * x[k] ** 2
        used[k] = True
    return total + used.sum()


def counted_in_cells(x):
    cells = np.full(9, 0)
    np.add.at(cells, (x * 8.0).astype(int), 1)
    return (cells * np.arange(9)).sum() * x.sum() + x[(cells > 1)[:5]].sum()


def counts_that_all_share(x):
    sizes, flags = np.zeros(2, int), np.ones(3, bool)
    sizes[0], sizes[1] = 2, 3
    flags[1] = False
    parts = [x[: sizes[0]], x[sizes[0] :]]
    y = np.zeros(sizes.sum())
    if flags.any() and sizes[0] == 2:
        y[: sizes[0]] = parts[0] * len(flags)
    return (
        (y**2).sum() + x[sizes].sum() + np.repeat(x[:2], sizes).sum() + parts[1][flags].sum() * int(sizes[1])
    )


FILLED = [order_of_a_sort, back_pointers, chosen_one_by_one, counted_in_cells, counts_that_all_share]


@pytest.mark.parametrize("f", FILLED, ids=lambda f: f.__name__)
def test_arrays_of_integers_that_are_filled(f):
    stacks = [np.random.default_rng(3).uniform(0.05, 0.95, (4, 5))]
    v = [np.linspace(0.3, 1.0, 20).reshape(4, 5)]
    for form, batched, loop in (*forms(lambda: f, 1, v), *further_forms(lambda: f, 1)):
        assert same(batched(*stacks), loop(*stacks)), form


def test_arrays_of_integers_made_outside_are_told():
    order = np.zeros(5, int)

    def f(x):
        order[:] = np.argsort(x)
        return x[order][0]

    with pytest.raises(BatchError, match="make it inside"):
        tg.vmap(f)(np.random.default_rng(3).uniform(size=(4, 5)))


INTEGERS = {
    "argmax": lambda a: np.argmax(a), "argmin": lambda a: np.argmin(a),
    "count": lambda a: np.count_nonzero(a > a.mean()),
    "sum of a mask": lambda a: (a < a.mean()).sum(), "searchsorted": lambda a: np.searchsorted(np.sort(a),
    a.mean()),
    "floor": lambda a: np.floor(np.abs(a).sum()).astype(int) % 4,
    "difference": lambda a: np.argmax(a) - np.argmin(a) * 0,
}  # fmt: skip
USES = {
    "slice": lambda a, n: a[:n].sum() + a[n:].prod(),
    "step": lambda a, n: a[:: n + 1].sum(),
    "range": lambda a, n: sum([a[j] for j in range(n)]),
    "list": lambda a, n: [a, 2 * a, 3 * a, 4 * a][n].sum(),
    "tuple": lambda a, n: (a, 2 * a, 3 * a, 4 * a)[n - 1].sum(),
    "shape": lambda a, n: np.zeros((n, 2)).size + a.sum(),
    "rows": lambda a, n: a.reshape(2, 2)[: n + 1, 0].sum(),
    "text": lambda a, n: a * len(hex(n)),
    "axis": lambda a, n: a.reshape(2, 2).sum(n % 2)[0],
    "shift": lambda a, n: np.roll(a, n)[0] * a[1],
    "iterator": lambda a, n: a[next(itertools.islice(range(9), n, None))],
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("integer", INTEGERS)
def test_an_integer_on_which_all_samples_agree_is_one(integer, use):
    f = lambda a: USES[use](a, INTEGERS[integer](a))
    alike = np.array([0.3, 1.4, 0.2, 0.9]) * np.array([[1.0], [1.02], [0.97]])
    for transform in (lambda f: f, lambda f: tg.grad(lambda a: np.sum(f(a)))):
        np.testing.assert_allclose(tg.vmap(transform(f))(alike), [transform(f)(a) for a in alike], rtol=1e-13)
    other = np.concatenate([alike, [[2.5, 0.1, 3.4, 0.9]]])
    if len({int(INTEGERS[integer](a)) for a in other}) > 1 and use not in ("shift", "iterator"):
        with pytest.raises(BatchError):
            tg.vmap(f)(other)


SEQUENCES = [
    "len([1, 2] * n)", "len(n * [1, 2])", "len((1, 2) * n)", "len('ab' * n)", "len(b'ab' * n)",
    "len(bytearray(b'ab') * n)", "len(n * 'ab')", "(x[[0] * n]).sum()", "len([x[0]] * n)", "[3, 1, 2][n]",
    "(3, 1, 2)[n]", "sum(range(n + 1))", "range(5, 9)[n]", "len([3, 1, 2][:n])", "x[:n].sum()", "n in {1, 2}",
    "n in [1, 2]", "n in range(1, 3)", "{0: 4, 1: 5, 2: 6}[n]", "{0: 4, 2: 6}.get(n, 9)",
    "[2, 0, 1].index(n)", "[2, 0, 2].count(n)", "[4, 5, 6].pop(n)", "len(deque([1, 2]) * n)", "1 << n",
    "float(str(n))", "len([1, 2] * (x > 2).sum())",
]  # fmt: skip


@pytest.mark.parametrize("text", SEQUENCES)
def test_a_hidden_integer_counts_and_chooses_as_it_does_plainly(text):
    f = eval(
        f"lambda x: (lambda n: 1.0 * ({text}))(np.argmax(x)) * x[0]", {"np": np, "deque": collections.deque}
    )
    X = np.array([[1.5, 2.5, 3.5], [5.0, 2.5, 3.5], [1.5, 2.5, 9.0]])
    expected = [f(x) for x in X]
    prepared = tg.prepare(f, X[0])
    assert [prepared(x) for x in X] == [prepared(x) for x in X] == expected
    for run in (tg.vmap(f), lambda X: tg.vmap(tg.value_and_grad(f))(X)[0]):
        try:
            found = run(X)
        except tg.errors.BatchError:
            continue
        assert found.tolist() == expected


@pytest.mark.parametrize("bound", [1e-9, -1.0])
def test_a_number_is_chosen_by_one_truth_value(bound):
    """As scipy.stats.multinomial does with rows that do not add up to one."""
    p = np.array([[0.2, 0.5, 0.3], [0.1, 0.5, 0.4]])

    def chosen(p):
        return (p[0] + 1)[np.abs(p.sum() - 1) < bound]

    def written(p):
        p = p.copy()
        near = np.abs(p.sum() - 1) < bound
        p[near, -1] = (1.0 - p[:-1].sum())[near] ** 2
        return p

    for f in (chosen, written):
        g = lambda q, f=f: np.sum(f(q) ** 2)
        np.testing.assert_allclose(tg.vmap(f)(p), np.stack([f(q) for q in p]))
        np.testing.assert_allclose(tg.vmap(tg.grad(g))(p), np.stack([tg.grad(g)(q) for q in p]))
