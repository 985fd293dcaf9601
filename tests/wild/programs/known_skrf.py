import numpy as np
import skrf as rf
from skrf.media import DefinedGammaZ0
from skrf.network import s2z, z2s

f3 = rf.Frequency(1, 3, 3, "ghz")


def reflection(x):
    return abs(rf.tlineFunctions.zl_2_Gamma0(50.0, x))


def loss(x):
    return rf.mathFunctions.complex_2_db(x[0] + 1j * x[1])


def line(x):
    return abs(DefinedGammaZ0(f3, gamma=0.1 + 1j * x[0], z0=50.0).line(0.3, "m").s)


def shunt(x):
    return abs(DefinedGammaZ0(f3, gamma=1j, z0=50.0).shunt_capacitor(x[0] * 1e-12).s)


def cascade(x):
    media = DefinedGammaZ0(f3, gamma=1j, z0=50.0)
    return abs((media.capacitor(x[0] * 1e-12) ** media.inductor(x[1] * 1e-9)).s)


def impedances(x):
    return abs(s2z((x[0] * np.array([[0.1, 0.3], [0.3, 0.2]]) + 0j)[None]))


def scattering(x):
    return abs(z2s((x[1] * np.array([[60.0, 30.0], [30.0, 40.0]]) + 5j)[None]))


def network(x):
    return rf.Network(frequency=f3, s=x[0] * np.ones((3, 1, 1)), z0=50.0).s_db


p2 = np.array([1.2, 0.7])
CALLS = [(f, p2) for f in (reflection, loss, line, shunt, cascade, impedances, scattering, network)]
