"""Parameters on the host and data on a device: random programs in CuPy against the same programs in NumPy.

An optimiser of SciPy passes NumPy arrays. A model in CuPy takes numbers from them, and its derivatives come
back as NumPy arrays. This holds in every mode and nesting."""

import numpy as np
import pytest

import tapegrad as tg

P = 3  # numbers of the host


def program(seed):
    """A random function of `P` host numbers and the library of the data."""
    rng = np.random.default_rng(seed)
    data = rng.uniform(0.5, 1.5, (4, 3))
    host = (
        lambda a, b: a * b,
        lambda a, b: a + b / 3,
        lambda a, b: np.sin(a) + b,
        lambda a, b: np.exp(0.3 * np.sin(a)) * b,
        lambda a, b: np.maximum(a, b),
        lambda a, b: np.hypot(a, b),
    )
    mixed = (
        lambda xp, a, x: a * x,
        lambda xp, a, x: x / (2 + a * a),
        lambda xp, a, x: (2 + a) - x,
        lambda xp, a, x: (x * x + 0.1) ** (1 + a / 4),
        lambda xp, a, x: (1.5 + a * a) ** xp.sin(x),
        lambda xp, a, x: xp.where(x > a, x * a, x - a),
        lambda xp, a, x: xp.maximum(x, a),
        lambda xp, a, x: xp.arctan2(x, 1 + a),
        lambda xp, a, x: xp.hypot(x, a),
        lambda xp, a, x: xp.clip(x, a, None),
        lambda xp, a, x: x + xp.exp(a * x).mean(0),
        lambda xp, a, x: filled(xp, a, x),
    )
    device = (
        lambda xp, x: xp.sin(x),
        lambda xp, x: x - x.mean(0),
        lambda xp, x: xp.cumsum(x, 0) / 4,
        lambda xp, x: x @ (x.T @ x) / 10,
        lambda xp, x: xp.sqrt(x * x + 1),
    )
    lines = [
        (kind, int(k), *rng.integers(0, 9, 2))
        for kind, k in zip(rng.integers(0, 3, 7), rng.integers(0, 99, 7), strict=True)
    ]

    def f(q, xp):
        numbers, x = list(q), xp.asarray(data)
        for kind, k, i, j in lines:
            a, b = numbers[i % len(numbers)], numbers[j % len(numbers)]
            if kind == 0:
                numbers.append(host[k % len(host)](a, b))
            elif kind == 1:
                x = mixed[k % len(mixed)](xp, a, x)
            else:
                x = device[k % len(device)](xp, x)
        return (x * numbers[-1]).sum() + (x * x).mean() * numbers[0]

    return f


def filled(xp, a, x):
    """A buffer on the device that a host number is written into."""
    buffer = xp.zeros_like(x)
    buffer[0] = a
    buffer[1:] = x[1:] * a
    return buffer


def directions(f, q, v):
    return {
        "grad": lambda: tg.grad(f)(q),
        "jvp": lambda: tg.jvp(f, (q,), (v,))[1],
        "hvp": lambda: tg.hvp(f, q, v),
        "hessian": lambda: tg.hessian(f)(q),
        "hmp": lambda: tg.hmp(f, q, np.stack([v, 2 * v])),
        "linearize": lambda: tg.linearize(f, q)[1](v),
        "jacobian forward": lambda: tg.jacobian(f, mode="forward")(q),
        "reverse over forward": lambda: tg.grad(lambda q: tg.jvp(f, (q,), (v,))[1])(q),
        "reverse over reverse": lambda: tg.grad(lambda q: np.sum(tg.grad(f)(q) * v))(q),
        "forward over forward": lambda: tg.jvp(lambda q: tg.jvp(f, (q,), (v,))[1], (q,), (v,))[1],
        "third": lambda: tg.grad(lambda q: np.sum(tg.hvp(f, q, v) * v))(q),
    }


@pytest.mark.one_in(2)
@pytest.mark.cupy_only
@pytest.mark.parametrize(
    "seed", [*range(8), *[pytest.param(s, marks=pytest.mark.long) for s in range(8, 200)]]
)
def test_as_with_data_on_the_host(xp, seed):
    f = program(seed)
    q = np.random.default_rng(seed + 1).uniform(-0.8, 0.8, P)
    v = np.array([0.3, -1.0, 0.5])
    on_host, on_device = [directions(lambda q, m=m: f(q, m), q, v) for m in (np, xp)]
    for name, call in on_host.items():
        want, got = call(), on_device[name]()
        if name not in ("jvp", "reverse over forward", "forward over forward") and np.ndim(want):
            assert type(got) is np.ndarray, name
        scale = 1 + np.max(np.abs(want))
        np.testing.assert_allclose(
            np.asarray(got.get() if hasattr(got, "get") else got),
            want,
            rtol=1e-9,
            atol=1e-11 * scale,
            err_msg=name,
        )


@pytest.mark.parametrize("format", ["csr", "csc", "coo"])
def test_sparse_derivatives_are_matrices_of_the_host(format):
    """The data of such a matrix lay on the device, and its products failed."""
    cp = pytest.importorskip("cupy")
    x = np.arange(1.0, 5.0)
    f = lambda z: cp.sin(cp.asarray(z)) * cp.asarray(z)[::-1]
    J = tg.sparse.jacobian(f, x, format=format)
    assert type(J.data) is np.ndarray
    J = J.tocsr()
    assert np.allclose(J @ x, np.diag(np.cos(x) * x[::-1]) @ x + (np.diag(np.sin(x))[:, ::-1]) @ x)
