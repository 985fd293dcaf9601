import numpy as np
import pyromat
from pystoi import stoi

nitrogen, methane, steam = pyromat.get("ig.N2"), pyromat.get("ig.CH4"), pyromat.get("mp.H2O")
rng = np.random.default_rng(17)
speech = np.convolve(rng.normal(size=8000), np.ones(4) / 4, "same") * (1 + np.sin(np.arange(8000) / 300))
noise = rng.normal(size=8000)


def enthalpy(x):
    return nitrogen.h(x[0]) + methane.h(T=x[0])


def entropy(x):
    return nitrogen.s(T=x[0], p=x[1])


def heat_capacities(x):
    return np.array([nitrogen.cp(T=x[0]), nitrogen.cv(T=x[0]), nitrogen.gam(T=x[0])])


def density(x):
    return methane.d(T=x[0], p=x[1])


def isentropic(x):
    return nitrogen.T_s(s=nitrogen.s(T=x[0], p=x[1]), p=2 * x[1])


def free_energy(x):
    return methane.g(T=x[0], p=x[1])


def of_enthalpy(x):
    return nitrogen.T_h(nitrogen.h(T=x[0]) + 10 * x[1])


def saturation(x):
    return steam.ps(T=x[0])


def steam_enthalpy(x):
    return steam.h(T=x[0], p=x[1])


def intelligibility(x):
    return stoi(speech, speech * x[0] + 0.3 * x[1] * noise, 10000)


def extended(x):
    return stoi(speech, speech * x[0] + 0.3 * x[1] * noise, 10000, extended=True)


CALLS = [
    *[(f, [420.0, 1.5])
      for f in (enthalpy, entropy, heat_capacities, density, isentropic, free_energy, of_enthalpy, saturation, steam_enthalpy)],
    (intelligibility, [0.9, 1.2]),
    (extended, [0.9, 1.2]),
]  # fmt: skip
