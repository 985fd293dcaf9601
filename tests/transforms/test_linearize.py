"""tg.linearize: the value and the linear map, against jvp, vjp and closed forms."""

import numpy as np
import pytest

import tapegrad as tg

pytestmark = pytest.mark.smoke


def in_place(d, b):
    buffer = np.zeros(3)
    buffer[:2] = d["a"] * b
    buffer[2] = np.sum(np.sin(buffer[:2]))
    buffer *= 2
    return {"y": buffer, "n": 3, "s": buffer[2] * b}


def close(a, b):
    if isinstance(a, dict):
        assert set(a) == set(b)
        for k in a:
            close(a[k], b[k])
    elif isinstance(a, tuple):
        for v, w in zip(a, b, strict=True):
            close(v, w)
    elif a is None or b is None:
        assert a is b
    else:
        np.testing.assert_allclose(a, b, rtol=1e-14, atol=1e-14)


def test_closed_form(xp):
    x, v, w = xp.array([1.0, 3.0]), xp.array([1.0, 10.0]), xp.array([2.0, 1.0])
    y, J = tg.linearize(lambda x: x * x, x)
    for _ in range(2):
        assert (
            y.tolist() == [1, 9]
            and J(v).tolist() == [2, 60]
            and J.T(w).tolist() == [4, 6]
            and J.T.T(v).tolist() == [2, 60]
        )
    assert type(J(v)) is type(x) and J(v).base is None


def test_trees_several_arguments_and_code_that_writes():
    x, t = ({"a": np.array([1.0, 2.0]), "k": 4}, 0.7), ({"a": np.array([0.3, 0.1]), "k": None}, 0.2)
    w = {"y": np.arange(3.0), "n": None, "s": 2.0}
    y, J = tg.linearize(in_place, *x)
    close((y, J(*t)), tg.jvp(in_place, x, t))
    close(J.T(w), tg.vjp(in_place, *x)[1](w))
    h = 1e-6
    ahead, back = [in_place({"a": x[0]["a"] + s * h * t[0]["a"]}, x[1] + s * h * t[1])["y"] for s in (1, -1)]
    np.testing.assert_allclose(J(*t)["y"], (ahead - back) / (2 * h), rtol=1e-8)


def test_runs_once_and_keeps_the_point():
    runs, factor = [], np.array([2.0, 3.0])

    def f(x):
        runs.append(1)
        return factor * np.exp(x)

    x = np.zeros(2)
    _, J = tg.linearize(f, x)
    x += 5
    factor *= 7
    assert J(np.ones(2)).tolist() == [2, 3] and J.T(np.ones(2)).tolist() == [2, 3] and len(runs) == 1


def held_by(records, shape):
    members = [v for r in records for m in r[4:] for v in (m if type(m) is list else [m])]
    return [v for v in members if isinstance(v, np.ndarray) and v.shape == shape]


def test_read_only_memory_is_not_copied():
    big = np.ones((300, 300))
    view = big[:2]
    view.flags.writeable = False  # its owner may be written
    for a, shared in ((np.ones((300, 300)), True), (view, False)):
        a.flags.writeable = False
        J = tg.linearize(lambda x: a @ x, np.ones(300))[1]
        kept = held_by(J.products.recorded.tape.records, a.shape)
        assert len(kept) == 1 and np.shares_memory(kept[0], a) is shared
    big *= 2
    assert J(np.ones(300)).tolist() == [300, 300]


def test_complex_and_nested():
    z, v = np.array([1 + 2j, 0.5j]), np.array([0.3 - 1j, 2 + 0.1j])

    def f(z):
        return np.exp(z) * np.conj(z) + abs(z)

    J = tg.linearize(f, z)[1]
    np.testing.assert_allclose(J(v), tg.jvp(f, (z,), (v,))[1], rtol=1e-14)
    assert np.vdot(v, J.T(v)).real == pytest.approx(np.vdot(J(v), v).real)
    assert tg.grad(lambda x: tg.linearize(lambda x: x**3, x)[1](np.ones(2)).sum())(
        np.array([1.0, 2.0])
    ).tolist() == [6, 12]
    cubed = tg.linearize(lambda x: x**3, np.array([1.0, 2.0]))[1]
    assert tg.grad(lambda v: (cubed(v) ** 2).sum())(np.ones(2)).tolist() == [18, 288]
    np.testing.assert_array_equal(tg.vmap(cubed)(np.eye(2)), [[3, 0], [0, 12]])
    assert tg.linearize(np.sqrt, np.array([0.0, 1.0]))[1](np.array([0.0, 1.0])).tolist() == [0, 0.5]


def test_constant_output_and_one_that_leaves_an_argument_out():
    y, J = tg.linearize(lambda x, y: (np.ones(2), x), np.ones(2), 3.0)
    close(J(np.ones(2), 1.0), (np.zeros(2), np.ones(2)))
    close(J.T((np.ones(2), np.ones(2))), (np.ones(2), 0.0))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda J: J(np.ones(3)), tg.errors.ShapeError, r"linearize\(sin\): the tangent has shape \(3,\)"),
        (lambda J: J(), tg.errors.ArgumentError, "one tangent for each of the 1 primals; got 0"),
        (lambda J: J.T(1, 2), tg.errors.ArgumentError, r"linearize\(sin\).T: give one cotangent"),
        (lambda J: J(1j * np.ones(2)), tg.errors.ArgumentError, "the tangent is complex"),
        (lambda J: tg.linearize(np.sin), tg.errors.ArgumentError, "give the primals"),
        (lambda J: tg.linearize(np.sin, np.arange(3)), tg.errors.ArgumentError, "argument 0 has dtype int64"),
    ],
)
def test_bad_input(call, error, text):
    J = tg.linearize(np.sin, np.ones(2))[1]
    with pytest.raises(error, match=text):
        call(J)
    assert J(np.ones(2)).tolist() == np.cos([1.0, 1.0]).tolist()
