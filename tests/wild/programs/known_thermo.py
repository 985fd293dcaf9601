import numpy as np
from thermo import NRTL, PRMIX, Wilson
from thermo.eos import PR, SRK, VDW
from thermo.wilson import Wilson_gammas


def peng_robinson(x):
    return PR(Tc=507.6, Pc=3025000.0, omega=0.2975, T=x[0], P=1e6).V_l * 1e4


def soave(x):
    return SRK(Tc=507.6, Pc=3025000.0, omega=0.2975, T=x[0], P=1e6).phi_l


def van_der_waals(x):
    return VDW(Tc=507.6, Pc=3025000.0, T=x[0], P=1e6).V_l * 1e4


def mixture(x):
    eos = PRMIX(
        T=x[0],
        P=1e6,
        Tcs=[126.1, 190.6],
        Pcs=[3394e3, 4604e3],
        omegas=[0.04, 0.011],
        zs=[0.5, 0.5],
        kijs=[[0.0, 0.0], [0.0, 0.0]],
    )
    return eos.V_g


def activities(x):
    return np.array(Wilson_gammas([0.252, 0.748], [[1.0, x[0] / 1000], [x[1] / 1000, 1.0]]))


def nrtl(x):
    tau = [[0.0, 0.9], [0.3, 0.0]]
    return NRTL(T=x[0], xs=[0.3, 0.7], tau_as=tau, alpha_cs=[[0.0, 0.3], [0.3, 0.0]]).GE()


def wilson(x):
    return Wilson(T=x[0], xs=[0.3, 0.7], lambda_as=[[0.0, 0.4], [0.1, 0.0]]).GE()


p2 = np.array([320.0, 410.0])
CALLS = [(f, p2) for f in (peng_robinson, soave, van_der_waals, mixture, activities, nrtl, wilson)]
