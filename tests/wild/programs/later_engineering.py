import acoustics
import ht
import numpy as np
from acoustics.atmosphere import Atmosphere
from impedance.models.circuits import CustomCircuit
from impedance.models.circuits.elements import W, p, s
from solidspy import uelutil

cell = np.array([0.01, 0.05, 1.2, 0.03])
corners = np.array([[0.0, 0.0], [1.1, 0.1], [1.0, 1.2], [-0.1, 0.9]])
flow = np.array([1e4, 0.8, 3.0])


def circuit(x):
    Z = CustomCircuit("R0-p(R1,C1)-W1", initial_guess=list(x)).predict(np.array([1.0, 10.0, 100.0]))
    return np.concatenate([Z.real, Z.imag])


def elements(x):
    Z = s([W([x[0]], [1.0, 10.0]), p([W([x[1]], [1.0, 10.0]), W([x[2]], [1.0, 10.0])])])
    return np.abs(Z)


def stiffness(x):
    return uelutil.uel4nquad(x, 0.3, 200.0)


def triangle(x):
    return uelutil.uel3ntrian(x[:3], 0.3, 200.0)


def nusselt(x):
    return ht.turbulent_Gnielinski(Re=x[0], Pr=x[1], fd=0.02)


def exchanger(x):
    return ht.effectiveness_from_NTU(NTU=x[2], Cr=x[1], subtype="counterflow")


def mean_difference(x):
    return ht.LMTD(Thi=100.0 + x[2], Tho=60.0, Tci=30.0, Tco=40.2 + x[1])


def boiling(x):
    return ht.Rohsenow(
        rhol=957.854, rhog=0.595593, mul=2.79e-4, kl=0.680, Cpl=4217.0, Hvap=2.257e6, sigma=0.0589,
        Te=4.9 + x[2], Csf=0.011 * x[1], n=1.26,
    )  # fmt: skip


def sound_of_air(x):
    air = Atmosphere(temperature=290.0 + x[2], pressure=101.325, relative_humidity=50.0 + x[1])
    return np.append(air.attenuation_coefficient(np.array([1000.0])), air.soundspeed)


def levels(x):
    return acoustics.decibel.dbmean(x)


CALLS = [(circuit, cell), (elements, cell), (stiffness, corners), (triangle, corners)]
CALLS += [(f, flow) for f in (nusselt, exchanger, mean_difference, boiling)]
CALLS += [(f, np.array([0.5, 0.8, 3.0])) for f in (sound_of_air, levels)]
