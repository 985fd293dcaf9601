import cma
import numpy as np
import opt_einsum
import quantities as pq
import unyt
from pyswarms.utils.functions import single_obj

v = np.array([0.3, 0.5, -0.4])
A = np.array([[2.0, 0.3, 0.1], [0.3, 1.5, 0.2], [0.1, 0.2, 1.2]])


def contraction(x):
    return opt_einsum.contract("i,ij,jk,k->", x, A, A, x)


def path(x):
    return opt_einsum.contract_expression("ij,jk->ik", (3, 3), (3, 3))(A, np.outer(x, x))


def units(x):
    return ((x * unyt.m) / (2.0 * unyt.s)).to("km/hr").value


def energies(x):
    return (0.5 * (x[0] ** 2 + 1) * unyt.kg * (x[1:] * unyt.m / unyt.s) ** 2).in_units("J").d


def lengths(x):
    return (pq.Quantity(x, "m") + 3 * pq.cm).rescale("km").magnitude


def speeds(x):
    return ((x * pq.m) / (2.0 * pq.s)).simplified.magnitude


def ackley(x):
    return single_obj.ackley(x[None])


def rastrigin(x):
    return single_obj.rastrigin(x[None])


def ellipsoid(x):
    return cma.ff.elli(x) + cma.ff.rosen(x)


CALLS = [
    (f, v) for f in (*(contraction, path, units, energies, lengths, speeds, ackley, rastrigin, ellipsoid),)
]
