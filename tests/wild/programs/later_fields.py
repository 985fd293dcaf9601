import magpylib
import numpy as np
import tmm
from prysm.coordinates import cart_to_polar
from prysm.polynomials import zernike_nm
from raytracing import Lens, Space
from refnx.reflect.reflect_model import reflectivity

place = np.array([0.3, -0.2, 1.4])
layers = np.array([80.0, 120.0, 1.4, 2.1])


def magnet(x):
    return magpylib.magnet.Cuboid(polarization=(0.1, 0.2, 1.0), dimension=(1, 1, 1)).getB(x)


def polarization(x):
    return magpylib.magnet.Cylinder(polarization=x, dimension=(1, 1)).getB((0.4, 0.8, 1.1))


def loop(x):
    return magpylib.current.Circle(current=3.0, diameter=x[2]).getB((x[0], x[1], 0.6))


def dipole(x):
    return magpylib.misc.Dipole(moment=(0.1, 1.0, 0.4)).getH(x)


def coating(x):
    stack = tmm.coh_tmm("s", [1.0, x[2], x[3], 1.5], [np.inf, x[0], x[1], np.inf], 0.2, 550.0)
    return np.array([stack["R"], stack["T"]])


def unpolarized(x):
    return tmm.unpolarized_RT([1.0, x[2], x[3], 1.5], [np.inf, x[0], x[1], np.inf], 0.2, 550.0)["R"]


def aberration(x):
    rho, phi = cart_to_polar(x[:2], x[1:])
    return zernike_nm(3, 1, rho, phi)


def imaging(x):
    system = Space(d=x[0]) * Lens(f=x[1]) * Space(d=x[2])
    return np.array([system.A, system.B, system.C, system.D])


def neutrons(x):
    q = np.linspace(0.01, 0.3, 10)
    slabs = np.array([[0, 0.0, 0, 0], [100 * x[2], 3.47 + x[0], 0, 3], [0, 2.07 + x[1], 0, 3]])
    return np.log(reflectivity(q, slabs, scale=1.0, bkg=1e-7, dq=0.0))


CALLS = [(f, place) for f in (magnet, polarization, loop, dipole, aberration, neutrons)]
CALLS += [(coating, layers), (unpolarized, layers), (imaging, np.array([1.0, 2.0, 3.0]))]
