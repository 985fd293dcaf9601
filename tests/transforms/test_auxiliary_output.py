"""`has_aux` and `argnums` of every transform: the result is that of the function without its auxiliary output,
which comes back plain, as the last element."""

import re

import numpy as np
import pytest

import tapegrad as tg
from tapegrad._core.trees import describe_tree
from tapegrad.errors import ArgumentError, NotScalarError

X, A = np.array([0.5, 1.5, -0.7]), np.array([2.0, 0.3, 1.1])
V = np.array([1.0, -2.0, 0.5])


def scalar(x, a):
    return np.sum(a**2 * np.sin(x) * x)


def vector(x, a):
    return {"y": a * np.exp(x), "z": np.sum(x * a)}


def pulled(f, *args, argnums=None, **has_aux):
    y, pullback, *aux = tg.vjp(f, *args, argnums=argnums, **has_aux)
    return (y, pullback(tg.tree.map(lambda v: 0.3 + 0.0 * v, y)), *aux)


def linear(f, *args, argnums, v, **has_aux):
    y, J, *aux = tg.linearize(f, *args, argnums=argnums, **has_aux)
    return (y, J(*v), J.T(y), *aux)


def directions(argnums):
    return (V,) if isinstance(argnums, int) else tuple([V * (1 + k) for k in range(len(argnums))])


def one(found, with_aux):
    """Results of a transform that gives one tree, as a tuple."""
    return found if with_aux else (found,)


def chosen(argnums, given):
    """What a transform of x and further arguments takes: the chosen arguments, the others."""
    nums = [n % len(given) for n in ([argnums] if isinstance(argnums, int) else argnums)]
    x = tuple([given[n] for n in nums])
    return (x[0] if isinstance(argnums, int) else x), tuple([a for n, a in enumerate(given) if n not in nums])


def second(name):
    def call(f, *given, argnums, **has_aux):
        x, args = chosen(argnums, given)
        v = directions(argnums)[0] if isinstance(argnums, int) else directions(argnums)
        if name == "hmp":
            v = tg.tree.map(lambda w: np.stack([w, 2 * w, w * w]), v)
        found = getattr(tg, name)(f, x, v, args, argnums=argnums, **has_aux)
        return found if name == "value_grad_hvp" else one(found, bool(has_aux))

    return call


def made(name, **settings):
    def call(f, *args, argnums, **has_aux):
        return one(getattr(tg, name)(f, argnums, **settings, **has_aux)(*args), bool(has_aux))

    return call


CALLS = {
    "grad": (made("grad"), scalar),
    "jacobian by rows": (made("jacobian", mode="reverse"), vector),
    "jacobian by columns": (made("jacobian", mode="forward"), vector),
    "hessian": (made("hessian"), scalar),
    "vjp": (pulled, vector),
    "jvp": (lambda f, *a, argnums, **k: tg.jvp(f, a, directions(argnums), argnums=argnums, **k), vector),
    "linearize": (
        lambda f, *a, argnums, **k: linear(f, *a, argnums=argnums, v=directions(argnums), **k),
        vector,
    ),
    "hvp": (second("hvp"), scalar),
    "value_grad_hvp": (second("value_grad_hvp"), scalar),
    "hmp": (second("hmp"), scalar),
}


def same(a, b):
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        a, b = list(a.values()), list(b.values())
    if isinstance(a, (tuple, list)):
        assert len(a) == len(b)
        for u, v in zip(a, b, strict=True):
            same(u, v)
    elif isinstance(a, (np.ndarray, float)):
        np.testing.assert_array_equal(a, b)
    else:
        assert a == b


@pytest.mark.parametrize("argnums", [0, 1, (1, 0), (-1,)])
@pytest.mark.parametrize("name", CALLS)
def test_result_is_that_without_aux_and_aux_is_plain(name, argnums):
    call, f = CALLS[name]
    runs = []

    def both(x, a):
        runs.append(None)
        return f(x, a), {"square": x * x, "a": a, "name": "both", "none": None, "count": 3}

    *found, aux = call(both, X, A, argnums=argnums, has_aux=True)
    assert len(runs) == 1
    same(tuple(found), tuple(call(f, X, A, argnums=argnums)))
    same(aux, {"square": X * X, "a": A, "name": "both", "none": None, "count": 3})
    assert not np.shares_memory(aux["a"], A)
    aux["a"][:] = 0.0
    assert A[0] == 2.0


@pytest.mark.parametrize("name", CALLS)
def test_aux_keeps_the_derivatives_of_an_outer_transform(name):
    """And drops those of the transform that returns it."""
    call, f = CALLS[name]

    def both(x, a):
        return f(x, a), x**2 * a

    def outer(x):
        return np.sum(call(both, x, A, argnums=0, has_aux=True)[-1])

    np.testing.assert_allclose(tg.grad(outer)(X), 2 * X * A, rtol=1e-15)
    np.testing.assert_allclose(tg.jvp(outer, (X,), (V,))[1], np.sum(2 * X * A * V), rtol=1e-14)


@pytest.mark.parametrize("name", CALLS)
def test_one_result_where_two_are_wanted_raises(name):
    call, f = CALLS[name]
    with pytest.raises(ArgumentError, match=rf"^{name.split()[0]}\(.*must return a pair"):
        call(f, X, A, argnums=0, has_aux=True)


@pytest.mark.parametrize("name", ["hvp", "value_grad_hvp", "hmp", "hessian"])
def test_errors_of_the_inner_gradient_name_the_outer_call(name):
    call, _ = CALLS[name]
    with pytest.raises(NotScalarError, match=rf"^{name}\(.*; {name} needs a scalar"):
        call(lambda x, a: x * a, X, A, argnums=0)


@pytest.mark.parametrize(
    ("call", "instead"),
    [
        (lambda: tg.vjp(scalar, X, A, argnums="x"), "Write vjp(f, x, argnums=0)"),
        (lambda: tg.jvp(scalar, (X, A), (V,), argnums="x"), "Write jvp(f, (x,), (v,), argnums=0)"),
        (lambda: tg.hvp(scalar, X, V, (A,), argnums="x"), "Write hvp(f, x, v, argnums=0)"),
        (lambda: tg.linearize(scalar, X, A, argnums="x"), "Write linearize(f, x, argnums=0)"),
        (lambda: tg.hessian(scalar, argnums="x"), "what hessian returns: hessian(f)(x)"),
    ],
)
def test_bad_argnums_say_how_the_transform_is_called(call, instead):
    with pytest.raises(ArgumentError, match=re.escape(instead)):
        call()


@pytest.mark.parametrize("name", ["hvp", "value_grad_hvp", "hmp"])
def test_x_must_fit_argnums(name):
    call = getattr(tg, name)
    with pytest.raises(ArgumentError, match="asks for a tuple of 2 arguments"):
        call(scalar, X, V, (), argnums=(0, 1))
    with pytest.raises(ArgumentError, match="names an argument twice"):
        call(scalar, (X, A), (V, V), (), argnums=(0, 0))
    with pytest.raises(ArgumentError, match="does not fit a call with 2"):
        call(scalar, X, V, (A,), argnums=2)
    with pytest.raises(ArgumentError, match="argnums is 'x'"):
        call(scalar, X, V, (A,), argnums="x")


BY_ARGNUMS = {
    "grad": lambda n: tg.grad(scalar, n)(X, A),
    "value_and_grad": lambda n: tg.value_and_grad(scalar, n)(X, A),
    "jacobian": lambda n: tg.jacobian(scalar, n)(X, A),
    "jacobian, forward": lambda n: tg.jacobian(scalar, n, mode="forward")(X, A),
    "hessian": lambda n: tg.hessian(scalar, n)(X, A),
    "vjp": lambda n: tg.vjp(scalar, X, A, argnums=n)[1](1.0),
    "jvp": lambda n: tg.jvp(scalar, (X, A), one_way(n), argnums=n),
    "linearize": lambda n: tg.linearize(scalar, X, A, argnums=n)[1](*one_way(n)),
    "hvp": lambda n: tg.hvp(scalar, *arguments_of_product(n), argnums=n),
    "value_grad_hvp": lambda n: tg.value_grad_hvp(scalar, *arguments_of_product(n), argnums=n),
    "hmp": lambda n: tg.hmp(scalar, *arguments_of_product(n, V[None]), argnums=n),
    "prepare": lambda n: tg.prepare(scalar, X, A, argnums=n).grad(X, A),
    "check_grads": lambda n: tg.testing.check_grads(scalar, (X, A), argnums=n),
    "graph": lambda n: str(tg.graph(scalar, X, A, argnums=n)),
}


def one_way(n):
    return (V,) * np.size(n)


def arguments_of_product(n, v=V):
    """x, v and args of a product: in the order of `argnums`."""
    if isinstance(n, (tuple, list)):
        return tuple([(X, A)[int(k)] for k in n]), (v,) * len(n), ()
    k = int(n) if n in (0, 1) else 0
    return (X, A)[k], v, ((X, A)[1 - k],)


@pytest.mark.parametrize("name", BY_ARGNUMS)
def test_argnums_are_read_alike(name):
    """NumPy's integers and lists mean what Python's integers and tuples do; no argument is named twice."""
    call = BY_ARGNUMS[name]
    for given, plain in ((np.int64(1), 1), ([1, 0], (1, 0)), ((np.int32(0), np.uint8(1)), (0, 1))):
        found, expected = call(given), call(plain)
        assert describe_tree(found) == describe_tree(expected)
        for a, b in zip(tg.tree.flatten(found)[0], tg.tree.flatten(expected)[0], strict=True):
            np.testing.assert_array_equal(a, b)
    for twice in ((0, 0), (1, -1), [0, np.int64(0)]):
        with pytest.raises(ArgumentError, match="names an argument twice"):
            call(twice)
    for wrong in (True, (0, 1.0), None if name in ("grad", "hvp") else "x", 2):
        with pytest.raises(ArgumentError, match="argnums"):
            call(wrong)


def test_constants_among_the_arguments():
    """A Const outside of argnums stays one for the inner transform."""
    found = tg.hvp(scalar, A, V, (tg.Const(X),), argnums=1)
    np.testing.assert_allclose(found, 2 * np.sin(X) * X * V, rtol=1e-15)


def test_a_captured_buffer_is_written_once_and_returned():
    def program():
        buffer = np.zeros(3)

        def f(x):
            buffer[:] = x * x
            buffer[1:] += buffer[:-1]
            return np.sum(buffer**2), buffer

        return f, buffer

    f, buffer = program()
    product, aux = tg.hvp(f, X, V, has_aux=True)
    g, _ = program()
    np.testing.assert_array_equal(aux, buffer)
    np.testing.assert_allclose(product, tg.hvp(lambda x: g(x)[0], X, V), rtol=1e-15)


# --- inside kernels ---

INNER = {
    "hvp": lambda f, x, **k: tg.hvp(f, x, 2.0, **k),
    "value_grad_hvp": lambda f, x, **k: tg.value_grad_hvp(f, x, 2.0, **k),
    "hmp": lambda f, x, **k: tg.hmp(f, x, np.array([2.0, 3.0]), **k),
    "jvp": lambda f, x, **k: tg.jvp(f, (x,), (2.0,), **k),
    "grad": lambda f, x, **k: tg.grad(f, **k)(x),
    "value_and_grad": lambda f, x, **k: tg.value_and_grad(f, **k)(x),
    "hessian": lambda f, x, **k: tg.hessian(f, **k)(x),
    "jacobian": lambda f, x, **k: tg.jacobian(f, **k)(x),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", INNER)
def test_inside_a_kernel_as_outside(name):
    def both(x):
        return x**3 * np.cos(x), 5 * x

    def body(x):
        return INNER[name](both, x, has_aux=True)

    k = tg.kernels.map(body)
    found = k(X)
    for n, x in enumerate(X):
        want = tg.tree.flatten(body(x))[0]
        got = [np.asarray(v)[..., n] for v in tg.tree.flatten(found)[0]]
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-13)


def test_inside_a_kernel_by_a_later_argument():
    k = tg.kernels.map(lambda x, a: tg.hvp(lambda a, x: a * x**3, x, 1.0, (a,), argnums=1))
    np.testing.assert_allclose(k(X, A), 6 * A * X, rtol=1e-14)
