import fluids
import numpy as np


def reynolds(x):
    return fluids.Reynolds(x[0], 0.1, rho=1000.0, mu=x[1] * 1e-3)


def friction(x):
    return fluids.friction_factor(Re=1e5 * x[0], eD=1e-3 * x[1])


def colebrook(x):
    return fluids.Colebrook(1e5 * x[0], 1e-3 * x[1])


def haaland(x):
    return fluids.Haaland(1e5 * x[0], 1e-3 * x[1])


def bend(x):
    return fluids.bend_rounded(Di=0.1 * x[0], angle=30.0, fd=0.02, bend_diameters=5.0)


def drag(x):
    return fluids.drag_sphere(100.0 * x[0])


def orifice(x):
    return fluids.differential_pressure_meter_C_epsilon(
        D=0.1,
        D2=0.05 * x[0],
        P1=2e5,
        P2=1.9e5,
        rho=1.0,
        mu=1e-5,
        k=1.3,
        m=0.1,
        meter_type="ISO 5167 orifice",
        taps="corner",
    )[0]


def ergun(x):
    return fluids.Ergun(dp=8e-4, voidage=0.4 * x[0], vs=1e-3 * x[1], rho=1e3, mu=1e-3)


def tank(x):
    return fluids.TANK(D=1.2 * x[0], L=4.0, horizontal=False).V_total


def atmosphere(x):
    return fluids.ATMOSPHERE_1976(5000.0 * x[0]).rho


def isothermal(x):
    return fluids.isothermal_gas(rho=11.3, fd=0.02, P1=1e6, P2=9e5 * x[0], L=1000.0, D=0.5 * x[1])


def two_phase(x):
    return fluids.Lockhart_Martinelli(
        m=0.6 * x[0], x=0.1, rhol=915.0, rhog=2.67, mul=180e-6, mug=14e-6, D=0.05
    )


p2 = np.array([1.02, 0.95])
CALLS = [
    (f, p2)
    for f in (
        reynolds, friction, colebrook, haaland, bend, drag, orifice, ergun, tank, atmosphere, isothermal,
        two_phase,
    )
]  # fmt: skip
