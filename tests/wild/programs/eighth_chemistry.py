import chempy
import numpy as np
from chempy import electrolytes
from chempy.einstein_smoluchowski import electrical_mobility_from_D
from chempy.henry import Henry_H_at_T
from chempy.kinetics import arrhenius, eyring, integrated
from chempy.properties.sulfuric_acid_density_myhre_1998 import sulfuric_acid_density
from chempy.properties.water_density_tanaka_2001 import water_density
from chempy.properties.water_diffusivity_holz_2000 import water_self_diffusion_coefficient
from chempy.properties.water_permittivity_bradley_pitzer_1979 import water_permittivity
from chempy.properties.water_viscosity_korson_1969 import water_viscosity
from pmutt.empirical.nasa import Nasa
from pmutt.empirical.shomate import Shomate
from pmutt.eos import vanDerWaalsEOS
from pmutt.statmech import StatMech
from pmutt.statmech.rot import RigidRotor
from pmutt.statmech.trans import FreeTrans
from pmutt.statmech.vib import DebyeVib, EinsteinVib, HarmonicVib, QRRHOVib


def rates(x):
    p = arrhenius.ArrheniusParam(x[0], x[1])
    e = eyring.EyringParam(dH=x[1], dS=-20.0)
    return np.array([1e-9 * p(310.0), 1e-3 * e(310.0), 1e-9 * arrhenius.arrhenius_equation(x[0], x[1], x[2])])


def dimerisation(x):
    return np.array([integrated.dimerization_irrev(t, x[0], x[1]) for t in (0.5, 1.0, 2.0)])


def binary_reversible(x):
    return integrated.binary_rev(np.linspace(0.1, 2, 5), x[0], x[1], x[2], x[3], x[4])


def activity(x):
    ions = {"Na+": x[0], "Cl-": x[1]}
    strength = electrolytes.ionic_strength(ions)
    a, b = electrolytes.A(x[2], 298.15, 997.0), electrolytes.B(x[2], 298.15, 997.0)
    return np.array([electrolytes.davies_log_gamma(strength, 1, a),
                     electrolytes.extended_log_gamma(strength, -1, 3e-10, a, b)])  # fmt: skip


def water(x):
    return np.array([water_density(x[0]), water_viscosity(x[0]), 1e9 * water_self_diffusion_coefficient(x[0]),
                     water_permittivity(x[0], x[1]), sulfuric_acid_density(x[2], x[0])])  # fmt: skip


def henry(x):
    return np.array([Henry_H_at_T(x[0], x[1], x[2]), 1e6 * electrical_mobility_from_D(1e-9 * x[1], 2, x[0])])


def reaction_rates(x):
    reactions = [
        chempy.Reaction({"A": 1, "B": 1}, {"C": 1}, x[3]),
        chempy.Reaction({"C": 1}, {"A": 1, "B": 1}, x[4]),
    ]
    system = chempy.ReactionSystem(reactions, "ABC")
    return np.array([system.rates({"A": x[0], "B": x[1], "C": x[2]})[k] for k in "ABC"])


def quotient(x):
    return chempy.chemistry.equilibrium_quotient(x, [-1, -2, 1])


def vibrations(x):
    v = HarmonicVib(vib_wavenumbers=x)
    return np.array([v.get_q(T=300.0), v.get_CvoR(T=300.0), v.get_SoR(T=400.0), v.get_GoRT(T=350.0)])


def quasi_rigid(x):
    v = QRRHOVib(vib_wavenumbers=list(x))
    return np.array([v.get_CvoR(T=300.0), v.get_SoR(T=400.0), v.get_UoRT(T=350.0)])


def crystals(x):
    e, d = EinsteinVib(einstein_temperature=x[0]), DebyeVib(debye_temperature=x[1], interaction_energy=0.1)
    return np.array([e.get_CvoR(T=x[2]), e.get_SoR(T=x[2]), d.get_CvoR(T=x[2])])


def ideal_gas(x):
    rotor = RigidRotor(symmetrynumber=2, geometry="nonlinear", rot_temperatures=[x[0], x[1], 13.0])
    trans = FreeTrans(n_degrees=3, molecular_weight=x[2])
    return np.array([rotor.get_SoR(T=300.0), trans.get_SoR(T=x[3]), np.log(trans.get_q(T=x[3]))])


def molecule(x):
    m = StatMech(name="H2O", trans_model=FreeTrans, n_degrees=3, molecular_weight=18.0, vib_model=HarmonicVib,
                 vib_wavenumbers=[x[0], x[1]], rot_model=RigidRotor, symmetrynumber=2, geometry="nonlinear",
                 rot_temperatures=[40.1, 20.9, 13.4])  # fmt: skip
    return np.array([m.get_CpoR(T=x[2]), m.get_HoRT(T=x[2]), m.get_SoR(T=x[2]), m.get_GoRT(T=x[2])])


LOW = np.array([4.04, -6.9e-4, 2.8e-6, -1.5e-9, 2.4e-13, -3.0e4, -0.12])


def nasa(x):
    fit = Nasa(
        name="H2O",
        T_low=200.0,
        T_mid=1600.0,
        T_high=3500.0,
        elements={"H": 2, "O": 1},
        a_low=LOW * x[0],
        a_high=LOW,
    )
    return np.array(
        [fit.get_CpoR(T=x[1]), fit.get_HoRT(T=x[1]), fit.get_SoR(T=x[1]), fit.get_G(T=x[1], units="kJ/mol")]
    )


def shomate(x):
    fit = Shomate(name="CO", T_low=298.0, T_high=1300.0, a=x[:8])
    return np.array([fit.get_CpoR(T=x[8]), fit.get_HoRT(T=x[8]), fit.get_SoR(T=x[8])])


def van_der_waals(x):
    gas = vanDerWaalsEOS(a=x[0], b=1e-5 * x[1])
    return np.array([gas.get_P(T=x[2], V=0.025, n=1.0), 1e3 * gas.get_Vm(T=x[2], P=2.0)])


CALLS = [
    (rates, np.array([1e10, 42e3, 320.0])),
    (dimerisation, np.array([0.7, 2.0])),
    (binary_reversible, np.array([0.7, 0.2, 0.1, 1.0, 1.3])),
    (activity, np.array([0.02, 0.03, 78.0])),
    (water, np.array([293.0, 1e5, 0.2])),
    (henry, np.array([310.0, 1.2e-3, 1800.0])),
    (reaction_rates, np.array([1.0, 0.7, 0.2, 2.0, 0.3])),
    (quotient, np.array([1.0, 0.7, 0.2])),
    (vibrations, np.array([900.0, 1500.0, 3200.0])),
    (quasi_rigid, np.array([90.0, 1500.0, 3200.0])),
    (crystals, np.array([200.0, 300.0, 250.0])),
    (ideal_gas, np.array([40.0, 20.0, 18.0, 300.0])),
    (molecule, np.array([1600.0, 3600.0, 400.0])),
    (nasa, np.array([1.1, 500.0])),
    (shomate, np.array([25.6, 6.1, 4.1, -2.7, 0.13, -118.0, 227.4, -110.5, 500.0])),
    (van_der_waals, np.array([0.14, 3.2, 300.0])),
]
