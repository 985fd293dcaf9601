import numpy as np
import tidynamics
from ase import Atoms, units
from ase.calculators.emt import EMT
from ase.calculators.lj import LennardJones
from ase.calculators.morse import MorsePotential
from ase.geometry import get_angles, get_dihedrals

rng = np.random.default_rng(0)
square = np.array([[0.0, 0.0, 0.0], [2.6, 0.0, 0.1], [0.1, 2.5, 0.0], [2.4, 2.7, 0.8]])
walk = np.cumsum(rng.normal(size=(12, 2)), axis=0)


def lennard_jones(x):
    atoms = Atoms("Ar4", positions=x)
    atoms.calc = LennardJones(sigma=2.3, epsilon=0.4, rc=8.0)
    return atoms.get_potential_energy()


def copper(x):
    atoms = Atoms("Cu4", positions=x)
    atoms.calc = EMT()
    return atoms.get_potential_energy()


def morse(x):
    atoms = Atoms("H4", positions=x)
    atoms.calc = MorsePotential(epsilon=1.1, r0=2.4, rho0=5.0)
    return atoms.get_potential_energy()


def distances(x):
    return Atoms("Ar4", positions=x).get_all_distances()[np.triu_indices(4, 1)]


def inertia(x):
    return Atoms("Ar4", positions=x).get_moments_of_inertia()


def kinetic(x):
    atoms = Atoms("Ar4", positions=square)
    atoms.set_velocities(x * units.fs)
    return atoms.get_temperature()


def angles(x):
    return get_angles((x[1] - x[0])[None], (x[2] - x[0])[None])


def dihedrals(x):
    return get_dihedrals((x[1] - x[0])[None], (x[2] - x[1])[None], (x[3] - x[2])[None])


def autocorrelation(x):
    return tidynamics.acf(x)


def displacement(x):
    return tidynamics.msd(x)


CALLS = [(f, square) for f in (lennard_jones, copper, morse, distances, inertia, kinetic, angles, dihedrals)]
CALLS += [(autocorrelation, walk), (displacement, walk)]
