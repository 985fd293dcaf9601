"""Parts of an array at an index that is known when the kernel runs: views, as in NumPy."""

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.errors import KernelError

kernels = tg.kernels

ROWS = """
r = B[i]; r[0] = x**2
B[i][1] = x**2
B[:, i][0] = x**2
r = B[i]; r += x; r *= 2.0
r = B[i]; B[i] = x; B[0] += r.sum()
r = B[:, i]; B[:] = x * 3.0; B[0] = r[0] + r[1]
r = B[i][::-1]; r[0] = x**2; B[1] += r[1]
np.add(1.0, x, out=B[i])
r = B.T[:, i]; r[1] = x**2
t = B[i].copy(); t[0] = 9.0; B[0, 0] += t[0]
r = B[i]; q = B[1 - i]; q[:] = r * x; r[0] = q[1] + x
""".strip().splitlines()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("statement", ROWS)
def test_a_part_at_a_run_time_index_is_a_view(statement):
    text = f"def f(x, i):\n    B = np.cos(x) + np.zeros((2, 2))\n    {statement.replace('; ', chr(10) + '    ')}\n"
    space = {"np": np, "w": np.array([[1.0, 2.0], [-3.0, 0.5]])}
    exec(text + "    return (B * w).sum()\n", space)
    f, k = space["f"], kernels.map(space["f"])
    x, n = np.array([1.5, 2.0, -0.5]), np.array([0, 1, 1])
    got = k(x, n), tg.grad(lambda x: k(x, n).sum())(x)
    want = [np.array([g(*xn) for xn in zip(x, n, strict=True)]) for g in (f, tg.grad(f))]
    assert np.allclose(got, want, rtol=1e-13)


def test_a_reshaped_part_at_a_run_time_index_is_not_written():
    def f(x, i):
        B = x + np.zeros((2, 2, 2))
        B[i].reshape(-1)[0] = 1.0
        return B.sum()

    with pytest.raises(KernelError, match=r"write x\[i\]\[j\] = y"):
        kernels.map(f)(np.ones(3), np.array([0, 1, 1]))
