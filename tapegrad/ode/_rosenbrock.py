"""Rodas5P, a stiffly accurate Rosenbrock method of order 5 with an embedded one of order 4.

G. Steinebach, Construction of Rosenbrock-Wanner method Rodas5P and numerical benchmarks within the Julia
Differential Equations package, BIT Numerical Mathematics 63 (2023) 27.

With J = df/dy and W = 1 - h gamma J, stage i solves

    W k_i = gamma (h f(t + c_i h, y + sum_j a_ij k_j) + sum_j C_ij k_j + h^2 d_i df/dt)

The last three stages start where the stage before them ends. The last one is the estimate of the error."""

from collections.abc import Callable

import numpy as np

from .._transforms.jacobian import jacobian
from .._transforms.products import jvp
from ._tsitouras import combined

GAMMA = 0.21193756319429014
NODES = (0.0, 0.6358126895828704, 0.4095798393397535, 0.9769306725060716, 0.4288403609558664, 1.0)
TIME_WEIGHTS = (
    0.21193756319429014, -0.42387512638858027, -0.3384627126235924, 1.8046452872882734, 2.325825639765069,
)  # fmt: skip
STAGES = (
    (),
    (3.0,),
    (2.849394379747939, 0.45842242204463923),
    (-6.954028509809101, 2.489845061869568, -10.358996098473584),
    (2.8029986275628964, 0.5072464736228206, -0.3988312541770524, -0.04721187230404641),
    (-7.502846399306121, 2.561846144803919, -11.627539656261098, -0.18268767659942256, 0.030198172008377946),
)
COUPLING = (
    (),
    (-14.155112264123755,),
    (-17.97296035885952, -2.859693295451294),
    (147.12150275711716, -1.41221402718213, 71.68940251302358),
    (165.43517024871676, -0.4592823456491126, 42.90938336958603, -5.961986721573306),
    (24.854864614690072, -3.0009227002832186, 47.4931110020768, 5.5814197821558125, -0.6610691825249471),
    (
        30.91273214028599, -3.1208243349937974, 77.79954646070892, 34.28646028294783, -19.097331116725623,
        -28.087943162872662,
    ),
    (
        37.80277123390563, -3.2571969029072276, 112.26918849496327, 66.9347231244047, -40.06618937091002,
        -54.66780262877968, -9.48861652309627,
    ),
)  # fmt: skip


def dense_solver(f: Callable, t, y, h) -> Callable:
    """Return a function that solves equations with the matrix W."""
    W = np.eye(len(y)) - h * GAMMA * jacobian(lambda y: f(t, y), mode="forward")(y)
    return lambda right: np.linalg.solve(W, right)


def rosenbrock_step(f: Callable, t, y, slope, h, solver: Callable = dense_solver) -> tuple:
    """Return the state after a step, the estimate of its error, the slope there, and no stiffness."""
    by_time = jvp(f, (t, y), (1.0, None))[1]
    solve = solver(f, t, y, h)
    ks = []
    new = y
    for i, couplings in enumerate(COUPLING):
        if 0 < i < len(STAGES):
            new = y + combined(STAGES[i], ks)
        elif ks:
            new = new + ks[-1]
        right = h * (f(t + NODES[min(i, 5)] * h, new) if ks else slope)
        if ks:
            right = right + combined(couplings, ks)
        if i < len(TIME_WEIGHTS):
            right = right + h * h * TIME_WEIGHTS[i] * by_time
        right = GAMMA * right
        ks.append(solve(right))
    new = new + ks[-1]
    return new, ks[-1], f(t + h, new), 0.0
