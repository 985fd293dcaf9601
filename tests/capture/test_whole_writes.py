"""Buffers that are written whole: the tape takes the array over, and who writes the one afterwards does not
change the other.

The judge of the random programs is the complex step, of the same text."""

import random
from collections import Counter

import numpy as np
import pytest

import tapegrad as tg

X = np.array([0.3, -0.4, 0.5])


def both(f, x=X):
    """The gradient, which must be that of the complex step, and the slope forward."""
    slopes = np.array([f(x + 1e-30j * e).imag / 1e-30 for e in np.eye(len(x))])
    g = tg.grad(f)(x)
    assert np.allclose(g, slopes, rtol=1e-12, atol=1e-14)
    assert np.isclose(tg.jvp(f, (x,), (slopes,))[1], slopes @ slopes, rtol=1e-12)
    return g


@pytest.mark.parametrize("whole", [slice(None), Ellipsis])
def test_both_are_written_afterwards(whole):
    def f(x):
        b = np.zeros(3, x.dtype, like=x)
        b[0] = x[1]
        y = x * x
        b[whole] = y
        first, part = b * b, b[1:]
        b[0] = 5.0 * x[2]
        y += x
        y[2] = x[0]
        second = b * y
        b[whole] = y
        b *= 2.0
        part += x[:2]
        return (first + second + b * y * x).sum() + (part * x[1:]).sum()

    both(f)


def test_two_buffers_and_an_argument():
    def f(x):
        a, b = np.ones(3, x.dtype, like=x), np.ones(3, x.dtype, like=x)
        a[0], b[0] = x[0], x[1]
        a[:] = x
        b[:] = a * 1.0
        a[:] = b * 1.0
        c = a * 3.0
        b[:] = c
        a[:] = c
        a[1] = x[0] * x[1]
        b[2] = 7.0
        c[0] = a[1]
        return (a * b * c * x).sum()

    both(f)


def test_a_captured_buffer_is_left_as_a_plain_call_leaves_it():
    buffer, kept = np.zeros(3), []

    def f(x):
        buffer[0] = x[0]
        for _ in range(3):
            y = np.sin(buffer) * x
            buffer[:] = y
            kept.append(y)
            y[1] = 4.0
        buffer[2] += x[0]
        return (buffer * kept[-1]).sum()

    g = tg.grad(f)(X)
    after, last = buffer.copy(), [np.asarray(k).copy() for k in kept]
    buffer[:], kept[:] = 0.0, []
    f(X)
    assert np.array_equal(after, buffer)
    assert all(np.array_equal(a, b) for a, b in zip(last, kept, strict=True))

    def slope(e):
        values = []
        for h in (1e-6, -1e-6):
            buffer[:], kept[:] = 0.0, []
            values.append(f(X + h * e))
        return (values[0] - values[1]) / 2e-6

    assert np.allclose(g, [slope(e) for e in np.eye(3)], rtol=1e-7)


def test_views_are_written_whole():
    def f(x):
        b = np.zeros((3, 4), x.dtype, like=x)
        row, column, block = b[1], b[:, 2], b[1:, ::2]
        row[:] = x[0] * x[1]
        column[...] = x
        block[:] = block * 2.0 + x[0]
        block[:] = x[2]
        b[:] = b * b
        row[...] = row[::-1] + x[1]
        column += x
        return (b * b).sum() + (block * x[:2]).sum()

    both(f)


def test_bad_whole_writes_harm_nothing():
    def f(x, wrong):
        b = np.zeros((2, 3), like=x)
        row = b[1]
        b[0] = x
        row[:] = x * 2.0
        with pytest.raises(ValueError):
            row[:] = wrong
        with pytest.raises(ValueError):
            b[...] = wrong
        return (b * b).sum()

    assert np.allclose(tg.grad(lambda x: f(x, x[:2] * 1.0))(X), 10 * X)
    assert np.allclose(tg.grad(lambda x: f(x, np.ones(4)))(X), 10 * X)


RUNS = {
    "eager": lambda f: tg.value_and_grad(f)(X)[0],
    "recorded": lambda f: tg.prepare(f, X).value(X),
    "batched": lambda f: tg.vmap(f)(X[None])[0],
}


@pytest.mark.parametrize("y", ["1.5", None, np.array(["1", "2", "3"]), "a", {}], ids=repr)
@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_what_is_no_number_is_converted_as_numpy_converts_it(y, run):
    def f(x):
        b = x * 1.0
        b[...] = y
        return (b * x).sum()

    plain = X.copy()
    try:
        plain[...] = y
    except (ValueError, TypeError) as error:
        with pytest.raises(type(error)):
            run(f)
    else:
        np.testing.assert_array_equal(run(f), (plain * X).sum())


@pytest.mark.parametrize("size", [1, 100, 1024, 1025, 5000])
def test_a_number_among_large_arrays(size):
    """The cotangent of the number is one sum of products, as exact as NumPy's sum."""
    rng = np.random.default_rng(size)
    A, B = rng.standard_normal((2, size))

    def f(a, b):
        return ((a * A) * B).sum() + ((B * b) * A).sum() + (A / b).sum() + (A.reshape(-1, 1) * a).sum()

    ga, gb = tg.grad(f, (0, 1))(np.float64(1.5), np.float64(0.5))
    assert np.isclose(ga, (A * B).sum() + A.sum(), rtol=1e-12, atol=1e-12)
    assert np.isclose(gb, (A * B).sum() - (A / 0.25).sum(), rtol=1e-12, atol=1e-12)
    A[size // 2] = np.inf  # where no product is finite the safe rule is asked
    assert np.isnan(tg.grad(lambda a: np.where(np.isfinite(A), a * A, 0.0).sum() * 0.0)(2.0)) == np.isnan(
        0.0 * A[np.isfinite(A)].sum()
    )
    assert np.isclose(
        tg.grad(lambda a: np.where(np.isfinite(A), a * A, 0.0).sum())(2.0), A[np.isfinite(A)].sum()
    )


# --- random programs ---


def program(seed):
    """(text, shape)"""
    draw = random.Random(seed)
    n, matrix = draw.choice([3, 4]), draw.random() < 0.5
    shape = (n, n) if matrix else (n,)
    order = draw.choice(["", ", order='F'"]) if matrix else ""
    buffers, values, views, lines = ["c0", "c1", "b0", "b1"], ["x"], [], []
    places = ["0", "-1", "1:", "::2", "::-1"] + ([":, 0", "0, 1:", "1, 1"] if matrix else [])

    def term():
        a, b = draw.choice(values + buffers), draw.choice(values + buffers)
        forms = [
            f"{a} * {b}",
            f"np.sin({a})",
            f"{a} + 0.5 * {b}",
            a,
            f"{a} - {b} * {b}",
            f"-{a}",
            f"{a}.copy()",
            f"0.5 * {a}",
        ]
        return draw.choice(forms + ([f"{a} @ {b}", f"{a}.T"] if matrix else []))

    for k in range(draw.randrange(4, 14)):
        kind, at = (
            draw.choice(["whole", "whole", "in place", "part", "view", "through", "value", "out"]),
            draw.choice(places),
        )
        target = draw.choice(buffers + values[1:])
        if kind == "whole":
            lines.append(f"{draw.choice(buffers)}[{draw.choice([':', '...'])}] = {term()}")
        elif kind == "in place":
            lines.append(f"{target} {draw.choice(['+=', '-=', '*='])} {term()}")
        elif kind == "part":
            lines.append(
                f"{target}[{at}] = {draw.choice(['0.75', f'x[{at}] * 1.5', f'{draw.choice(buffers)}[{at}] * x[{at}]'])}"
            )
        elif kind == "view" and (":" in at or matrix) and at != "1, 1":
            lines.append(f"v{k} = {target}[{at}]")
            views.append(f"v{k}")
        elif kind == "through" and views:
            v = draw.choice(views)
            right = draw.choice([f"{v} * 2.0", "x.sum()", f"np.cos({v})", "0.3"])
            lines.append(draw.choice([f"{v}[:] = {right}", f"{v}[...] = {right}", f"{v} *= 1.5"]))
        elif kind == "value":
            lines.append(f"y{k} = {term()}")
            values.append(f"y{k}")
        elif kind == "out":
            lines.append(
                f"np.multiply({draw.choice(buffers)}, {draw.choice(values + buffers)}, "
                f"out={draw.choice(buffers)})"
            )
    end = " + ".join([f"({v} ** 2).sum() * {j + 1}.0" for j, v in enumerate(values + buffers + views)])
    start = ["global c0, c1", f"b0 = np.zeros({shape}, x.dtype{order})", "b1 = b0 + 0.25"]
    return "def f(x):\n    " + "\n    ".join([*start, *lines, f"return 0.01 * ({end})"]) + "\n", shape


def judged(seed):
    text, shape = program(seed)
    rng = np.random.default_rng(seed)
    captured, (x, v) = 0.3 * rng.standard_normal((2, *shape)), 0.4 * rng.standard_normal((2, *shape))

    def made(dtype):
        space = {
            "np": np,
            "__name__": "model",
            "c0": captured[0].astype(dtype),
            "c1": captured[1].astype(dtype),
        }
        exec(text, space)
        return space

    with np.errstate(all="ignore"):
        slope = made(complex)["f"](x + 1e-30j * v).imag / 1e-30
        if not abs(slope) < 1e6:
            return "too steep"
        plain, reverse, forward = made(float), made(float), made(float)
        value = plain["f"](x.copy())
        found, g = tg.value_and_grad(reverse["f"])(x)
        assert np.isclose(found, value, rtol=1e-12), f"seed {seed}\n{text}"
        for d in ((g * v).sum(), tg.jvp(forward["f"], (x,), (v,))[1]):
            assert np.isclose(d, slope, rtol=1e-8, atol=1e-10), f"seed {seed}: {d} instead of {slope}\n{text}"
        for name in ("c0", "c1"):
            assert np.allclose(reverse[name], plain[name], rtol=1e-12, atol=1e-14), (
                f"seed {seed}: {name}\n{text}"
            )
            assert np.allclose(forward[name], plain[name], rtol=1e-12, atol=1e-14), (
                f"seed {seed}: {name}\n{text}"
            )
        twice = tg.hvp(made(float)["f"], x, v) if seed % 5 == 0 else None
        if twice is not None:
            h = 1e-6
            near = [tg.grad(made(float)["f"])(x + s * h * v) for s in (1, -1)]
            difference = (near[0] - near[1]) / (2 * h)
            assert np.allclose(twice, difference, rtol=1e-4, atol=1e-5 * (1 + abs(difference).max())), (
                f"seed {seed}\n{text}"
            )
    return "right"


def test_random_whole_writes():
    assert Counter(map(judged, range(100)))["right"] > 80


@pytest.mark.long
def test_more_random_whole_writes():
    assert Counter(map(judged, range(1000, 5000)))["right"] > 3200
