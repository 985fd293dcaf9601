import chemicals
import numpy as np


def antoine(x):
    return chemicals.Antoine(x[0], 10.0, 1500.0, -30.0)


def virial(x):
    return chemicals.BVirial_Pitzer_Curl(x[0], 500.0, 5e6, 0.2)


def lee_kesler(x):
    return chemicals.Lee_Kesler(x[0], 500.0, 5e6, 0.2)


def rackett(x):
    return chemicals.Rackett(x[0], 500.0, 5e6, 0.27)


def flash(x):
    return chemicals.Rachford_Rice_solution([0.5, 0.5], [x[0] / 100, x[1] / 1000])[0]


def wilson(x):
    return chemicals.Wilson_K_value(x[0], 1e5, 500.0, 4e6, 0.2)


def poling(x):
    return chemicals.Poling(x[0], 4.3, 1e-3, 1e-5, -1e-8, 3e-12)


def viscosity(x):
    return chemicals.Lucas_gas(x[0], 500.0, 5e6, 0.27, 40.0)


def shomate(x):
    return chemicals.Shomate(x[0], 30.1, 6.8e-3, 6.8e-6, -2.5e-9, 8e4)


def mixture(x):
    return chemicals.mixing_simple([0.3, 0.7], [x[0], x[1]])


def surface_tension(x):
    return chemicals.Brock_Bird(x[0], 350.0, 500.0, 5e6)


def iapws_density(x):
    return chemicals.iapws95_rho(x[0], x[1] * 1e3)


p2 = np.array([320.0, 410.0])
CALLS = [
    (f, p2)
    for f in (
        antoine,
        virial,
        lee_kesler,
        rackett,
        flash,
        wilson,
        poling,
        viscosity,
        shomate,
        mixture,
        surface_tension,
        iapws_density,
    )
]
