import numpy as np
import tensorly as tl
from tensorly.cp_tensor import cp_to_tensor
from tensorly.tenalg import khatri_rao, mode_dot
from tensorly.tucker_tensor import tucker_to_tensor

T = np.random.default_rng(0).normal(size=(3, 4, 2))
W = np.random.default_rng(1).normal(size=(5, 3))


def unfolded(x):
    return tl.unfold(x, 1)


def product(x):
    return mode_dot(x, W, 0)


def norm(x):
    return tl.norm(x, 2)


def cp(x):
    return cp_to_tensor((None, [x, W, W]))


def tucker(x):
    return tucker_to_tensor((x, [W, np.ones((2, 4)), np.ones((3, 2))]))


def rao(x):
    return khatri_rao([x, W])


CALLS = [(unfolded, T), (product, T), (norm, T), (cp, W + 0.1), (tucker, T), (rao, W + 0.1)]
