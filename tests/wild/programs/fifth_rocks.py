import numpy as np
from bruges import filters, reflection, rockphysics

layer = np.array([2500.0, 1200.0, 2100.0])
ratio = np.array([1.0, 1.1, 0.95])


def shuey(x):
    return reflection.shuey(x[0], x[1], x[2], 2700.0, 1450.0, 2250.0, theta1=20.0)


def akirichards(x):
    found = reflection.akirichards(2500.0, 1200.0, 2100.0, x[0], x[1], x[2], theta1=np.array([5.0, 25.0]))
    return np.real(found)


def zoeppritz(x):
    return np.real(reflection.zoeppritz_rpp(x[0], x[1], x[2], 2700.0, 1450.0, 2250.0, theta1=15.0))


def acoustic(x):
    return reflection.acoustic_reflectivity(vp=2500.0 * x, rho=2100.0 * x**0.5)


def gassmann(x):
    return rockphysics.avseth_gassmann(x[0] * 1e10, 2.5e9, x[1] * 1e9, 36e9, 0.1 + 0.1 * x[2])


def backus(x):
    return np.stack(rockphysics.backus(2500.0 * x, 1200.0 * x, 2100.0 * x, lb=3.0, dz=1.0))


def hertz_mindlin(x):
    return np.stack(rockphysics.hertz_mindlin(37.0 * x[0], 44.0 * x[1], 0.02 * x[2]))


def soft_sand(x):
    return np.stack(rockphysics.soft_sand(37.0 * x[0], 44.0 * x[1], 0.25 * x[2], 0.02))


def brine(x):
    return rockphysics.rho_brine(60.0 * x[0], 20.0 * x[1], 0.05 * x[2])


def ricker(x):
    return filters.ricker(0.1, 0.01, 25.0 * x[0], return_t=False)


def moduli(x):
    return np.stack(list(rockphysics.moduli_dict(x[0], x[1], x[2]).values()))


CALLS = [(f, layer) for f in (shuey, akirichards, zoeppritz, moduli)]
CALLS += [(f, ratio) for f in (acoustic, gassmann, backus, hertz_mindlin, soft_sand, brine, ricker)]
