"""What NumPy's functions write into arrays of a kernel function, and which of their results are views."""

import numpy as np
import pytest

import tapegrad as tg

DIAGONAL = np.eye(3) > 0

WRITES = {
    "fill_diagonal": lambda z, p: np.fill_diagonal(z, p[1]),
    "fill_diagonal by name": lambda z, p: np.fill_diagonal(a=z, val=p[1]),
    "put": lambda z, p: np.put(z, [1, 4], p),
    "put into a view": lambda z, p: np.put(z[::-1, 1:], [0], p[1]),
    "place": lambda z, p: np.place(z, DIAGONAL, p),
    "putmask": lambda z, p: np.putmask(z, DIAGONAL, p[1]),
    "put_along_axis": lambda z, p: np.put_along_axis(z, np.array([[0], [2], [1]]), p[1], 1),
    "copyto": lambda z, p: np.copyto(z[:, ::-1], p[1], where=np.eye(3) > 0),
    "dot": lambda z, p: np.dot(z * p[0], z + p[1], out=z),
    "dot, in place": lambda z, p: np.dot(z * p[0], z + p[1], z),
    "einsum": lambda z, p: np.einsum("i,j->ij", z[0], z[1] + p[1], out=z),
    "cumsum": lambda z, p: np.cumsum(z, 0, out=z),
    "sum": lambda z, p: np.sum(z, 0, out=z[1]),
    "clip": lambda z, p: z.clip(1.5, p[1], out=z),
    "concatenate": lambda z, p: np.concatenate([z[:1], z[:2]], out=z),
    "divmod": lambda z, p: np.divmod(z[0] * 3, p[1], out=(z[1], z[2])),
}  # fmt: skip

RESULTS = {
    "copy": np.copy, "+": lambda z: +z, "positive": np.positive, "conj": np.conj,
    "astype": lambda z: z.astype(float),
    "np.astype": lambda z: np.astype(z, float), "reshape, copied": lambda z: np.reshape(z, -1, copy=True),
    "sum over no axis": lambda z: np.sum(z, axis=()), "largest over no axis": lambda z: z.max(axis=()),
    "product of one": lambda z: np.prod(z[None], 0), "products of one": lambda z: np.cumprod(z[:, :1], 1),
    "meshgrid": lambda z: np.meshgrid(z[0], z[1])[0], "array": lambda z: np.array(z, float),
    "asarray": lambda z: np.asarray(z, float), "astype, no copy": lambda z: z.astype(float, copy=False),
    "transpose": lambda z: z.T, "reshape": lambda z: z.reshape(-1),
    "reshape of a transpose": lambda z: z.T.reshape(-1),
    "flip": np.flip, "diagonal of einsum": lambda z: np.einsum("ii->i", z),
    "split": lambda z: np.split(z, [1])[1],
}  # fmt: skip

LAYOUTS = {
    "product": lambda z: z.T * 1.0, "array": lambda z: np.array(z.T), "copy": lambda z: z.T.copy(),
    "np.copy": lambda z: np.copy(z.T), "power": lambda z: z.T**2,
    "select": lambda z: np.where(z.T > 4, z.T, 0.0),
    "mixed": lambda z: z.T + z, "of rows": lambda z: np.array(np.broadcast_to(z[0], (2, 3))),
    "order": lambda z: np.array(z, order="F"), "more axes": lambda z: np.array(z[0], ndmin=2),
}  # fmt: skip

POINTS = np.array([[1.0, 2.5], [3.0, 4.5]])


def filled(p):
    return np.arange(9.0).reshape(3, 3) * p[0] + p[1]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_functions_that_write(write):
    def f(p):
        z = filled(p) * 1.0
        write(z, p)
        return z @ np.array([1.0, -2.0, 0.5]) * p[1]

    plain = np.stack([f(p) for p in POINTS.T], -1)
    np.testing.assert_allclose(tg.kernels.map(f)(POINTS), plain, rtol=1e-13)
    slope = np.stack([tg.grad(lambda p: f(p).sum())(p) for p in POINTS.T], -1)
    np.testing.assert_allclose(tg.grad(lambda p: tg.kernels.map(f)(p).sum())(POINTS), slope, rtol=1e-12)


@pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS)
def test_results_are_views_where_numpy_has_views(result):
    """A write into the result, and one into the argument afterwards, are seen where NumPy sees them."""

    def f(p):
        z = filled(p) * 1.0
        r = result(z)
        r *= 2.0
        z[1] += 3.0
        return z.sum() + np.sum(r**2)

    plain = np.array([f(p) for p in POINTS.T])
    np.testing.assert_allclose(tg.kernels.map(f)(POINTS), plain, rtol=1e-13)
    np.testing.assert_allclose([tg.vjp(f, p)[0] for p in POINTS.T], plain, rtol=1e-13)


@pytest.mark.parametrize("result", LAYOUTS.values(), ids=LAYOUTS)
def test_results_lie_in_memory_as_those_of_numpy(result):
    """`ravel` gives a view or a copy according to the memory order."""

    def f(p):
        r = result(filled(p))
        line = r.ravel()
        line[1] = 3.0 * p[1]
        return r[0] @ r[-1] + line @ line

    plain = np.array([f(p) for p in POINTS.T])
    np.testing.assert_allclose(tg.kernels.map(f)(POINTS), plain, rtol=1e-13)


@pytest.mark.parametrize("make", [np.zeros_like, np.ones_like, lambda p: np.full_like(p, 2.0)])
def test_arrays_made_like_a_symbol_take_symbols(make):
    def f(p):
        r = make(p)
        r[0] = p[1] ** 2
        return r.sum()

    np.testing.assert_allclose(tg.kernels.map(f)(POINTS), [f(p) for p in POINTS.T], rtol=1e-14)


def test_a_function_whose_rule_needs_its_result_at_a_constant():
    f = lambda p: tg.grad(lambda q: (np.tanh(q) @ q) * p[0])(np.array([0.3, 0.55]))[0]
    slope = np.tanh(0.3) + 0.3 / np.cosh(0.3) ** 2
    np.testing.assert_allclose(tg.kernels.map(f)(POINTS), slope * POINTS[0], rtol=1e-14)


@pytest.mark.parametrize("steps", [0, 3, 30])
@pytest.mark.parametrize("loop", ["loop", "while_loop"])
def test_a_body_writes_its_carry_and_the_start_stays(loop, steps):
    """Compiled, unrolled and plain loops agree; no step hands the start on."""

    def f(p):
        def body(c):
            c[0] += p[1]
            return c

        start = p * 1.0
        if loop == "loop":
            last = tg.kernels.loop(steps, lambda i, c: body(c), start)
        else:
            last = tg.kernels.while_loop(
                lambda c: c[2] > 0, lambda c: body([c[0], c[1], c[2] - 1]), [*start, steps], steps
            )
            last = np.stack(last[:2])
        return 100.0 * start.sum() + last.sum()

    exact = 101.0 * POINTS.sum(axis=0) + steps * POINTS[1]
    np.testing.assert_allclose(tg.kernels.map(f)(POINTS), exact, rtol=1e-13)
    np.testing.assert_allclose([f(p) for p in POINTS.T], exact, rtol=1e-13)
    np.testing.assert_allclose(tg.grad(f)(POINTS[:, 0])[1], 101.0 + steps, rtol=1e-13)
