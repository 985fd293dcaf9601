import burnman
import numpy as np
import periodictable
from burnman import minerals
from calfem.core import bar2e, beam2e, plante
from pyXSteam.XSteam import XSteam

steam = XSteam(XSteam.UNIT_SYSTEM_MKS)
state = np.array([30.0, 1.8])
steam_state = np.array([20.0, 300.0])
ends = np.array([[0.0, 0.3], [1.1, 0.8]])
corners = np.array([[0.0, 1.0, 0.2], [0.1, 0.0, 0.9]])


def density(x):
    rock = minerals.SLB_2011.periclase()
    rock.set_state(x[0] * 1e9, 1000.0 * x[1])
    return rock.density


def energy(x):
    rock = minerals.SLB_2011.forsterite()
    rock.set_state(x[0] * 1e9, 1000.0 * x[1])
    return np.array([rock.gibbs, rock.S])


def sound(x):
    rock = burnman.Composite([minerals.SLB_2011.periclase(), minerals.SLB_2011.mg_perovskite()], [0.2, 0.8])
    rock.set_state(x[0] * 1e9, 1000.0 * x[1])
    return rock.v_s


def enthalpy(x):
    return steam.h_pt(x[0], x[1])


def saturation(x):
    return steam.tsat_p(x[0])


def neutrons(x):
    return np.array(periodictable.neutron_sld("D2O", density=1.0 + 0.01 * x[0], wavelength=4.0 + x[1])[:2])


def x_rays(x):
    return np.array(periodictable.xray_sld("SiO2", density=2.0 + 0.01 * x[0], energy=8.0 + x[1]))


def bar(x):
    return bar2e(x[:, 0], x[:, 1], [210.0, 0.3])


def frame(x):
    return beam2e(x[:, 0], x[:, 1], [210.0, 0.3, 0.02])


def plate(x):
    return plante(x[0], x[1], [1, 0.1], np.array([[2.0, 0.6, 0.0], [0.6, 2.0, 0.0], [0.0, 0.0, 0.7]]))


CALLS = [(f, state) for f in (density, energy, sound, neutrons, x_rays)]
CALLS += [(f, steam_state) for f in (enthalpy, saturation)]
CALLS += [(f, ends) for f in (bar, frame)] + [(plate, corners)]
