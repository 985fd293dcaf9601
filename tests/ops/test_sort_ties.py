"""Where elements are equal, sort uses the stable permutation (API): the first among equals stays the first,
in both modes, in every form of sorting, whatever algorithm makes the values."""

import numpy as np
import pytest

import tapegrad as tg

N = 120
rng = np.random.default_rng(7)
TIED = rng.integers(0, 9, N) * 0.5
W, V = rng.standard_normal(N), rng.standard_normal(N)


def in_place(v, **options):
    a = v * 1.0
    a.sort(**options)
    return a


def captured(v):
    buf = np.zeros(N)

    def f(u):
        buf[:] = u
        buf.sort()
        return (buf * 1.0)[None]

    return f(v)[0]


FORMS = {
    "sort": np.sort,
    "quicksort": lambda v: np.sort(v, kind="quicksort"),
    "heapsort": lambda v: np.sort(v, kind="heapsort"),
    "stable": lambda v: np.sort(v, stable=True),
    "method": in_place,
    "method, heapsort": lambda v: in_place(v, kind="heapsort"),
    "written buffer": captured,
    "argsort, stable": lambda v: v[np.argsort(v, kind="stable")],
    "in a matrix": lambda v: np.sort(np.stack([v, v * 2.0]), axis=-1)[0],
    "columns": lambda v: np.sort(np.stack([v, v * 2.0], axis=1), axis=0)[:, 0],
    "flat": lambda v: np.sort(v.reshape(10, -1), axis=None),
    "view": lambda v: np.sort(v[::-1])[:],
}


@pytest.mark.parametrize("name", FORMS)
def test_the_first_among_equals_stays_first(name):
    f = FORMS[name]
    start = np.arange(N)[::-1] if name == "view" else np.arange(N)
    order = start[np.argsort(TIED[start], kind="stable")]
    right = np.zeros(N)
    right[order] = W
    loss = lambda v: f(v) @ W
    assert np.array_equal(tg.grad(loss)(TIED), right)
    assert np.isclose(tg.jvp(loss, (TIED,), (V,))[1], right @ V, rtol=1e-13)
    assert np.allclose(tg.hvp(lambda v: (f(v) ** 3) @ W, TIED, V), 6 * TIED * right * V, rtol=1e-12)


def test_a_captured_buffer_sorted_in_place():
    buf = np.zeros(N)

    def f(v):
        buf[:] = v
        buf.sort()
        return buf @ W

    right = np.zeros(N)
    right[np.argsort(TIED, kind="stable")] = W
    assert np.array_equal(tg.grad(f)(TIED), right)
    assert np.array_equal(buf, np.sort(TIED))


def picked(v, k):
    """The gradient of the element of this rank in a stable sort."""
    right = np.zeros(len(v))
    right[np.argsort(v, kind="stable")[k]] = 1.0
    return right


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", [1, 2, 9, 120, 501])
def test_quantiles_pick_as_a_stable_sort_does(n, dtype):
    for few in (2, 7, 10**6):
        v = (rng.integers(0, few, n) * 0.5).astype(dtype)
        v[rng.random(n) < 0.2] *= -0.0
        low, high = (n - 1) // 2, n // 2
        assert np.array_equal(tg.grad(np.median)(v), (picked(v, low) + picked(v, high)) / 2)
        for q in (0.0, 0.3, 0.77, 1.0):
            k = min(int(q * (n - 1)), n - 1)
            part = q * (n - 1) - k
            want = (1 - part) * picked(v, k) + part * picked(v, min(k + 1, n - 1))
            assert np.allclose(tg.grad(np.quantile)(v, q), want, atol=1e-6 if dtype is np.float32 else 1e-14)
            assert np.isclose(
                tg.jvp(lambda v, q=q: np.quantile(v, q), (v,), (np.arange(n, dtype=dtype),))[1],
                want @ np.arange(n),
                rtol=1e-4,
            )


def test_a_quantile_of_nan_is_nan():
    v = np.array([1.0, np.nan, 0.5])
    with np.errstate(all="ignore"):
        assert np.isnan(tg.value_and_grad(lambda v: np.median(v) * 2.0)(v)[0])
        assert np.isnan(tg.value_and_grad(lambda v: np.quantile(v, 0.1))(v)[0])
