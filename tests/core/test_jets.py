"""The reference of the random programs, against complex steps and closed forms."""

import _jets
import numpy as np
import pytest
from _modes import complex_step, second_difference
from comparison import close
from judged_programs import Complexes


def derivatives(f, x, v, bits=53):
    """f(np, tg, x) by jets."""
    return _jets.derivatives(lambda xp, tg: lambda z: f(xp, tg, z), x, v, bits)


def in_place(xp, tg, x):
    buffer = xp.zeros((2, 3))
    buffer[0] = x[:3] ** 2
    buffer[1] = xp.sqrt(x[:3] * x[:3] + 1.5) / x[2]
    buffer[:, 1:] *= buffer[:, :-1]
    flat = buffer.ravel()
    flat[1:] += xp.tanh(flat[:-1])
    xp.sin(flat, out=flat, where=xp.arange(6) % 2 == 0)
    flat[[0, 0, 1]] -= x[:3] ** x[1:4]
    xp.add.at(flat, [2, 2], xp.exp(x[:2]))
    return xp.einsum("ij,ij->", buffer, buffer) + (buffer @ buffer.T).sum()


@pytest.mark.parametrize("bits", [53, _jets.EXACT])
def test_jets_agree_with_complex_steps(bits):
    x, v = np.array([0.6, 0.4, 0.9, 0.3, 0.7]), np.array([0.3, -1.0, 0.5, 0.8, 0.2])
    f = lambda z: in_place(Complexes(np), None, z)
    value, gradient, product = derivatives(in_place, x, v, bits)
    close(value, f(x).real, 1e-14)
    close(gradient, complex_step(f, x), 1e-13)
    close(product, second_difference(f, x, v), 1e-9)


def with_transforms(xp, tg, x):
    """x0^3 x1 + 3 x0^2 x1^2 + 6 x1^2 x2 + 12 x0 x1 x2 + 2 x0 x1, by all transforms."""
    kept = xp.zeros(2)

    def cube(z):
        kept[0] = z * x[1]
        return kept[0] * z * z

    y, t = tg.jvp(cube, (x[0],), (x[1],))  # x0^3 x1 and 3 x0^2 x1^2
    p = tg.hvp(lambda z: (z * z * z).sum() * x[1], x[:2], x[1:3])  # 6 x0 x1^2 and 6 x1^2 x2
    z, back = tg.vjp(lambda z: z * z[::-1], x[:2])
    g = tg.grad(lambda z: tg.grad(lambda y: y**3 * x[1])(z) * 2.0)(x[0])  # 12 x0 x1
    return y + t + p[1] + g * x[2] + back(xp.ones(2))[0] * x[0] + (kept[0] - x[0] * x[1])


def test_jets_agree_with_closed_forms():
    """Transforms nest, and what they leave in a captured array is a constant of theirs, not of the outer
    one."""
    x, v = np.array([0.6, 0.4, 0.9]), np.array([0.3, -1.0, 0.5])
    a, b, c = x
    value, gradient, product = derivatives(with_transforms, x, v)
    close(value, a**3 * b + 3 * (a * b) ** 2 + 6 * b * b * c + 12 * a * b * c + 2 * a * b, 1e-14)
    slopes = [
        3 * a * a * b + 6 * a * b * b + 12 * b * c + 2 * b,
        a**3 + 6 * a * a * b + 12 * b * c + 12 * a * c + 2 * a,
        6 * b * b + 12 * a * b,
    ]
    close(gradient, np.array(slopes), 1e-14)
    mixed = 3 * a * a + 12 * a * b + 12 * c + 2
    hessian = [
        [6 * a * b + 6 * b * b, mixed, 12 * b],
        [mixed, 6 * a * a + 12 * c, 12 * b + 12 * a],
        [12 * b, 12 * b + 12 * a, 0.0],
    ]
    close(product, np.array(hessian) @ v, 1e-14)
