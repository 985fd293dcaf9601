"""Entries worked out one by one in compiled loops: as the dense derivatives, and as the coloured products,
wherever they are used."""

import threading
import tracemalloc
from collections import Counter

import numpy as np
import pytest
import scipy.sparse
from test_sparse_programs import makers

import tapegrad as tg
from tapegrad.errors import AliasError, GuardError
from tapegrad.replay.scalar_graph import Exact
from tapegrad.sparse._coefficients import DIRECTION, LinearCoefficients, NotLinear
from tapegrad.sparse._direct import DirectEntries
from tapegrad.sparse._rows import NotRowwise, ReshapedValue

pytestmark = pytest.mark.smoke

WORK = np.zeros((5, 6))
FLAT = np.zeros(30)


def five_points(z):
    """A field with walls, in place."""
    u = z.reshape(5, 6)
    out = np.zeros_like(u)
    out[1:-1, 1:-1] = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1] ** 2
    out[0] = u[0] ** 3
    out[-1, 2:] = u[-1, :-2] * u[-2, 2:]
    return out.ravel()


def two_fields(z):
    """Two blocks, joined, of which one flows by an upwind difference."""
    u, v = z[:15].reshape(3, 5), z[15:].reshape(3, 5)
    flow = np.where(v[:, 1:] > 0.1, u[:, 1:] - u[:, :-1], np.diff(v, axis=1) * u[:, 1:])
    return np.concatenate([(np.roll(u, 1, 0) * v).ravel(), np.tanh(flow).ravel(), np.full(3, 2.0)])


def captured(z):
    WORK[:] = z.reshape(5, 6) * 2.0
    WORK[:, 0] = 1.0
    WORK[1:, 1:] += WORK[:-1, 1:] ** 2  # rows that were there before
    return WORK.reshape(-1) * z


def met(z):
    """The middle element is met twice."""
    return z[:29] * z[28::-1] ** 2


def ragged(z):
    return np.concatenate([z[:10] ** 2, z[10:20] * z[20:] * z[:10], np.sin(z[5:8])])


def stacked(z):
    a, b = z[:15], z[15:]
    return np.stack([a * b, a - b**3, np.zeros(15)], axis=1).reshape(-1)


def trajectory(z):
    """Leaps of many particles in captured memory, their number by number."""
    FLAT[:] = z
    for k in range(3):
        FLAT[:15] += 0.1 * FLAT[15:]
        FLAT[15:] -= 0.1 * np.sin(FLAT[:15]) * (k + 1)
    FLAT[3] = FLAT[4] * FLAT[5]
    return FLAT * 1.0


def chain(z):
    return np.exp(-((z[1:] - z[:-1]) ** 2)) / (1.0 + z[1:] ** 2)


EDGES = np.random.default_rng(5).integers(30, size=(2, 40))
FACES = np.random.default_rng(6).integers(10, size=(8, 3))


def forces(z):
    """Springs along the edges of a graph, which add up at its vertices."""
    i, j = EDGES
    r = np.zeros(30)
    pull = np.sin(z[j] - z[i])
    np.add.at(r, i, pull)
    np.subtract.at(r, j, pull * z[i])
    return r


def faces(z):
    """Areas, squared, of the triangles of a mesh, and where points are put by a permutation."""
    X = z.reshape(10, 3)
    area = np.cross(X[FACES[:, 1]] - X[FACES[:, 0]], X[FACES[:, 2]] - X[FACES[:, 0]])
    return (area**2 * 0.25).sum(axis=1)


def collocated(z):
    """A pendulum by the trapezoidal rule: rows of a reshape, and numbers at the ends as an array."""
    angle, speed, torque = z.reshape(3, 10)
    force = torque - 9.81 * np.sin(angle) - 0.1 * speed
    steps = [x[1:] - x[:-1] - 0.1 * (s[1:] + s[:-1]) for x, s in ((angle, speed), (speed, force))]
    return np.concatenate([*steps, np.stack([angle[0], speed[0], angle[-1] * speed[-1], speed[-1]])])


FUNCTIONS = [
    five_points, two_fields, captured, met, ragged, stacked, trajectory, chain, forces, faces, collocated,
]  # fmt: skip


def of(f, second=False, **options):
    if not second:
        return tg.sparse.prepare_jacobian(f, np.ones(30), compile=True, **options)
    return tg.sparse.prepare_hessian(lambda x: (f(x) ** 2).sum(), np.ones(30), compile=True, **options)


def dense(f, x, second=False):
    return tg.hessian(lambda x: (f(x) ** 2).sum())(x) if second else tg.jacobian(f)(x)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("second", [False, True], ids=["jacobian", "hessian"])
@pytest.mark.parametrize("f", FUNCTIONS)
@pytest.mark.filterwarnings("ignore::tapegrad.errors.DenseWarning")
def test_entries_are_those_of_the_dense_matrix(f, second):
    plan = of(f, second)
    for seed in range(4):
        x = np.random.default_rng(seed).normal(size=30)
        found, expected = plan(x), dense(f, x, second)
        # by products: a cotangent written into parts of a vector, each of a shape of its own; what is read of
        # sums at vertices
        assert (
            plan.direct == {two_fields: "add_at", forces: "read"}.get(f)
            if second and f in (two_fields, forces)
            else type(plan.direct) is DirectEntries
        )
        np.testing.assert_allclose(found.toarray(), expected, rtol=1e-12, atol=1e-13 * abs(expected).max())
        assert found.nnz == plan.pattern.nnz
        for out in (None, np.empty(found.nnz), np.empty(2 * found.nnz)[::2], np.empty(found.nnz, np.float32)):
            data = plan.values(x, out=out)
            assert out is None or data is out
            np.testing.assert_array_equal(data, found.data if out is None else found.data.astype(out.dtype))


def test_values_without_new_arrays():
    x, w = np.linspace(-1.0, 1.0, 20_000), np.ones(19_999)
    jac = tg.sparse.prepare_jacobian(chain, x, compile=True)
    hess = tg.sparse.prepare_hessian(lambda x, w: w @ (x[1:] - x[:-1]) ** 3, x, w, compile=True)
    for plan, args in ((jac, (x,)), (hess, (x, w))):
        out = np.empty(plan.pattern.nnz)
        for _ in range(3):
            plan.values(*args, out=out)
        tracemalloc.start()
        plan.values(*args, out=out)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert type(plan.direct) is DirectEntries and peak < 10_000 < out.nbytes
        np.testing.assert_allclose(out, plan(*args).data)


@pytest.mark.parametrize("f", [captured, trajectory])
def test_captured_arrays_are_written_as_by_a_call(f):
    plan, buffer = of(f), {captured: WORK, trajectory: FLAT}[f]
    x = np.linspace(-1, 2, 30)
    plan(x)
    assert type(plan.direct) is DirectEntries
    buffer[...] = 7.0
    plan(x)
    found = buffer.copy()
    f(x)
    np.testing.assert_allclose(found, buffer, rtol=1e-15)


@pytest.mark.parametrize("format", ["csr", "csc", "coo"])
def test_formats_and_float32(format):
    x = np.random.default_rng(1).normal(size=30).astype(np.float32)
    plan = tg.sparse.prepare_jacobian(ragged, x, compile=True, format=format)
    found = plan(x)
    assert type(plan.direct) is DirectEntries and found.format == format and found.dtype == np.float32
    np.testing.assert_allclose(found.toarray(), tg.jacobian(ragged)(x), rtol=1e-5, atol=1e-6)
    kept, data = found.toarray(), found.data
    plan(2 * x)
    np.testing.assert_array_equal(kept, found.toarray())  # a result is the caller's
    data[:] = 0.0
    assert abs(plan(x) - scipy.sparse.csr_array(kept)).max() == 0


def test_values_that_are_not_finite():
    f = lambda x: np.log(x[1:]) * x[:-1]
    x = np.linspace(1, 2, 30)
    plan = tg.sparse.prepare_jacobian(f, x, compile=True)
    plan(x)
    assert type(plan.direct) is DirectEntries
    for bad, nans in ((0.0, 0), (np.nan, 3), (np.inf, 0), (-1.0, 1)):
        y = x.copy()
        y[7] = bad
        with np.errstate(all="ignore"):
            expected = tg.jacobian(f)(y)
            found = plan(y).toarray()
        fine = ~np.isnan(expected)  # a product adds 0 times inf to what is inf; an entry by itself does not
        np.testing.assert_allclose(found[fine], expected[fine], rtol=1e-15)
        assert np.isnan(found).sum() == nans


def test_a_branch_of_python_is_still_guarded():
    f = lambda x: x[1:] * x[:-1] if x[0] > 0 else x[1:] ** 2
    plan = tg.sparse.prepare_jacobian(f, np.ones(30), compile=True)
    np.testing.assert_array_equal(plan(np.full(30, 2.0)).data, np.full(58, 2.0))
    assert type(plan.direct) is DirectEntries
    with pytest.raises(GuardError, match="prepare one for this"):
        plan(-np.ones(30))


def test_captured_arrays_are_read_anew():
    scale = np.ones(29)
    plan = tg.sparse.prepare_jacobian(lambda x: scale * x[1:] * np.cumsum(scale), np.ones(30), compile=True)
    plan(np.ones(30))
    scale[:] = np.arange(29)
    np.testing.assert_allclose(plan(np.ones(30)).data, scale * np.cumsum(scale))
    assert type(plan.direct) is DirectEntries


def test_other_settings_of_numpy_are_no_other_point():
    plan = tg.sparse.prepare_jacobian(chain, np.ones(30), compile=True)
    plan(np.ones(30))
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(plan(np.zeros(30)).toarray(), tg.jacobian(chain)(np.zeros(30)))


def test_what_mixes_elements_is_done_by_products():
    A = np.diag(np.ones(30)) + np.diag(np.ones(29), 1)
    plan = tg.sparse.prepare_jacobian(lambda x: A @ x**2, np.ones(30), compile=True)
    np.testing.assert_array_equal(plan(np.full(30, 3.0)).toarray(), 6 * A)
    assert plan.direct == "matmul"


def test_small_problems_are_not_compiled_by_themselves():
    plan = tg.sparse.prepare_jacobian(chain, np.ones(30))
    plan(np.ones(30))
    assert plan.direct is None
    assert tg.sparse.prepare_jacobian(chain, np.ones(30), compile=False).direct == "not asked for"


def test_energy_of_a_graph():
    energy = lambda z: ((z[EDGES[0]] - z[EDGES[1]]) ** 4).sum() + (z**2).sum()
    plan = tg.sparse.prepare_hessian(energy, np.ones(30), compile=True)
    for seed in range(3):
        x = np.random.default_rng(seed).normal(size=30)
        np.testing.assert_allclose(plan(x).toarray(), tg.hessian(energy)(x), rtol=1e-12, atol=1e-12)
    assert type(plan.direct) is DirectEntries
    x32 = x.astype(np.float32)
    single = tg.sparse.prepare_hessian(energy, x32, compile=True)
    assert single(x32).dtype == np.float32
    np.testing.assert_allclose(single(x32).toarray(), tg.hessian(energy)(x), rtol=1e-5, atol=1e-4)


def test_several_threads():
    plan, points = of(five_points), [np.random.default_rng(k).normal(size=30) for k in range(4)]
    plan(points[0])
    wrong = []

    def work(x):
        expected = dense(five_points, x)
        for _ in range(50):
            if not np.allclose(plan(x).toarray(), expected, rtol=1e-12):
                wrong.append(x)

    threads = [threading.Thread(target=work, args=(x,)) for x in points]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


# --- parts ---


def test_coefficients_of_a_graph():
    g = Exact()
    w, v, p, q = (
        g.input(DIRECTION, 0, "w"),
        g.input(DIRECTION, 0, "v"),
        g.input("y", 0, 0),
        g.input("y", 0, 1),
    )
    linear = LinearCoefficients(g)
    y = g.sub(g.div(g.mul(p, g.add(w, v)), q), g.neg(g.mul(w, p)))
    found = linear.of(y)
    assert set(found) == {w, v} and found[v] == g.div(p, q)
    c = g.compare("gt", p, q)
    found = linear.of(g.select(c, g.mul(w, p), g.zero))
    assert found == {w: g.select(c, p, g.zero)}
    gate = g.both(
        g.compare("eq", w, g.zero), g.isnan(g.mul(w, p))
    )  # 0 times what is no number: asked for w = 1
    assert linear.of(g.select(gate, g.zero, g.mul(w, p)))[w] == p
    for bad in (g.mul(w, v), g.div(p, w), g.node("exp", w), g.select(c, w, p), gate):
        with pytest.raises(NotLinear):
            LinearCoefficients(g).of(bad)


def test_places_through_reshapes():
    """Against NumPy's own order of elements."""
    rng, told = np.random.default_rng(0), 0
    for _ in range(300):
        axes = [int(n) for n in rng.choice([1, 2, 3, 4], size=4)]
        split = sorted(rng.integers(0, 5, size=2))
        shape = tuple([int(np.prod(axes[a:b])) for a, b in zip((0, *split), (*split, 4), strict=True)])
        to = tuple(axes) if rng.random() < 0.5 else (int(np.prod(axes)),)
        shape, to = (shape, to) if rng.random() < 0.5 else (to, shape)
        start = [int(rng.integers(n)) for n in to]
        extents = tuple([int(rng.integers(1, n - s + 1)) for n, s in zip(to, start, strict=True)])
        place = tuple([(s, tuple([int(a == d) for d in range(len(to))])) for a, s in enumerate(start)])
        try:
            ((_, found),) = ReshapedValue(0, shape, to).needs(place, extents)
        except NotRowwise:
            continue
        told += 1
        numbers = np.arange(np.prod(axes))
        box = numbers.reshape(to)[tuple([slice(s, s + e) for s, e in zip(start, extents, strict=True)])]
        at = [
            first + sum(s * c for s, c in zip(steps, np.indices(extents), strict=True))
            for first, steps in found
        ]
        np.testing.assert_array_equal(numbers.reshape(shape)[tuple(at)] if shape else numbers[0], box)
    assert told > 150


def judged(seeds, counts):
    for seed in seeds:
        one, many, text = makers(seed)
        x = np.random.default_rng(seed).normal(size=5)
        for make, dense_of, plan_of in (
            (many, tg.jacobian, tg.sparse.prepare_jacobian),
            (one, tg.hessian, tg.sparse.prepare_hessian),
        ):
            with np.errstate(all="ignore"):
                try:
                    plan = plan_of(make()[0], x, compile=True)
                except GuardError:
                    continue
                for point in (x, 1.5 * x, -x):
                    expected = dense_of(make()[0])(point)
                    try:
                        found = plan(point).toarray()
                    except GuardError:
                        continue
                    counts[type(plan.direct) is DirectEntries] += 1
                    fine = np.isfinite(expected)
                    scale = abs(expected[fine]).max(initial=1.0)
                    assert np.allclose(found[fine], expected[fine], rtol=1e-8, atol=1e-9 * scale), (
                        f"seed {seed}\n{text}"
                    )


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_random_programs():
    counts = Counter()
    judged(range(70_000, 70_012), counts)
    assert counts[True] and counts[False]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seeds", [range(k, k + 50) for k in range(71_000, 72_000, 50)], ids=str)
def test_a_thousand_random_programs(seeds):
    judged(seeds, Counter())


def test_an_argument_that_is_captured_and_written_is_refused_as_by_products():
    buffer = np.zeros(30)

    def f(x):
        buffer[1:] = x[:-1] * x[1:]
        buffer[0] = x[0] ** 2
        return buffer * x

    for compile in (True, False):
        plan = tg.sparse.prepare_jacobian(f, np.linspace(1, 2, 30), compile=compile)
        plan(np.linspace(1, 2, 30))
        assert (type(plan.direct) is DirectEntries) is compile
        with pytest.raises(AliasError, match="buffer"):
            plan(buffer)
