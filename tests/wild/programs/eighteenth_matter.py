"""Rocks, steel, concrete, crystals, soil, adsorption, light on a line, waves, arms of robots, systems, noise."""

import damask
import damask.mechanics
import fdtd
import kinpy
import numpy as np
import opensimplex
import pandas as pd
import pyiast
import pylife.materiallaws
import pylife.strength
import pylife.stress.equistress
import structuralcodes.codes.ec2_2004 as ec2
import structuralcodes.materials.constitutive_laws as laws
import unsatfit
from diffractio.scalar_sources_X import Scalar_source_X
from elasticipy.tensors.elasticity import StiffnessTensor
from elasticipy.tensors.stress_strain import StressTensor
from odeintw import odeintw
from pymor.algorithms.gram_schmidt import gram_schmidt
from pymor.models.iosys import LTIModel
from pymor.vectorarrays.numpy import NumpyVectorSpace
from rockphypy import AVO, EM, GM, Fluid

POINT = np.array([1.1, 0.9, 1.2])
URDF = """<robot name="arm"><link name="base"/><link name="one"/><link name="two"/><link name="hand"/>
<joint name="a" type="revolute"><parent link="base"/><child link="one"/><origin xyz="0 0 0.3"/><axis xyz="0 0 1"/></joint>
<joint name="b" type="revolute"><parent link="one"/><child link="two"/><origin xyz="0.4 0 0" rpy="0.3 0 0"/>
<axis xyz="0 1 0"/></joint>
<joint name="c" type="revolute"><parent link="two"/><child link="hand"/><origin xyz="0.5 0 0"/><axis xyz="0 1 0"/></joint>
</robot>"""


def sand(x):
    dry = GM.hertzmindlin(37.0 * x[0], 44.0 * x[1], 0.36, 8.6, 10 * x[2], 0.5)
    return np.array(
        [*dry, *GM.softsand(37.0 * x[0], 44.0, np.array([0.2, 0.3]), 0.36, 8.6, 10 * x[2], 0.5)[0]]
    )


def fluid_in_rock(x):
    return np.array(
        [
            *Fluid.Gassmann(12.0 * x[0], 9.0, 37.0 * x[1], 2.5 * x[2], 0.2),
            *EM.HS(0.3 * x[0], 37.0, 21.0 * x[1], 44.0, 7.0),
        ]
    )


def reflections(x):
    angles = np.array([0.0, 10.0, 25.0])
    near = AVO.Aki_Richards(angles, 3.0 * x[0], 3.4, 1.5 * x[1], 1.8, 2.3 * x[2], 2.4)
    return np.concatenate([np.ravel(part) for part in near])


def inclusions(x):
    return np.array(EM.Berryman_DEM(37.0 * x[0], 44.0, 2.2 * x[1], 0.0, 0.1 * x[2], 0.2)).ravel()


def plastic_strain(x):
    law = pylife.materiallaws.RambergOsgood(E=2.1e5 * x[0], K=1184.0 * x[1], n=0.187 * x[2])
    return np.concatenate([law.strain(np.array([100.0, 350.0])) * 1e3, law.stress(np.array([1e-3, 4e-3]))])


def strain_of_solid(x):
    law = pylife.materiallaws.HookesLaw3d(2.1e5 * x[0], 0.3 * x[1])
    return np.array(law.stress(1e-3 * x[2], 2e-4, 0.0, 1e-4, 0.0, 3e-4)).ravel()


def equivalent_stress(x):
    parts = np.array([[100.0, 50.0, 20.0, 10.0, 5.0, 30.0]]) * x[0] + x[1] * np.arange(6.0) * x[2]
    stress = pylife.stress.equistress
    return np.concatenate(
        [np.ravel(f(*parts.T)) for f in (stress.mises, stress.tresca, stress.signed_mises_trace)]
    )


def failures(x):
    strength = pylife.strength.FailureProbability(100.0 * x[0], 0.05 * x[1])
    return np.array([strength.pf_simple_load(90.0 * x[2]), strength.pf_norm_load(80.0, 0.06 * x[2])]).ravel()


def cracked_concrete(x):
    fctm = ec2.fctm(30.0 * x[0])
    return np.array(
        [
            fctm,
            ec2.Ecm(38.0 * x[1]),
            ec2.beta_cc(20.0 * x[2], 0.25),
            ec2.VRdc(30 * x[0], 450 * x[1], 1500, 300, 1e4, 1.5e5 * x[2], 20),
        ]
    )


def concrete_law(x):
    strains = np.linspace(-0.003, -0.0004, 6) * x[0]
    curved = laws.ParabolaRectangle(30.0 * x[1], n=2.0 * x[2])
    return np.concatenate([curved.get_stress(strains), laws.Sargin(38.0 * x[1]).get_stress(strains)])


def turned_crystal(x):
    turn = damask.Rotation.from_Euler_angles(np.array([0.3, 0.8, 1.4]) * x)
    return np.concatenate([turn.as_matrix().ravel(), turn.as_axis_angle(), turn.as_Rodrigues_vector()])


def stretched_crystal(x):
    gradient = np.array([[1.0, 0.2, 0.0], [0.1, 0.9, 0.1], [0.0, 0.3, 1.1]]) * x
    m = damask.mechanics
    return np.concatenate(
        [
            m.strain(gradient, "V", 0.0).ravel(),
            m.stretch_right(gradient).ravel(),
            [m.equivalent_stress_Mises(gradient + gradient.T)],
        ]
    )


def stiffness_of_crystal(x):
    crystal = StiffnessTensor.cubic(C11=186.0 * x[0], C12=134.0 * x[1], C44=77.0 * x[2])
    mean = crystal.Hill_average()
    return np.array([crystal.Zener_ratio(), crystal.bulk_modulus, *mean.matrix().ravel()])


def invariants_of_stress(x):
    stress = StressTensor([[100 * x[0], 20, 5], [20, 50 * x[1], 10], [5, 10, 30 * x[2]]])
    return np.array([stress.vonMises(), stress.Tresca(), stress.I1, stress.I2, stress.J2, stress.J3])


def water_in_soil(x):
    fit = unsatfit.Fit()
    fit.set_model("vg", const=["q=1"])
    heads = np.array([10.0, 100.0])
    first = fit.vg((0.45 * x[0], 0.05, 0.02 * x[1], 0.3 * x[2], 1), heads)
    fit.set_model("ln")
    return np.concatenate([first, fit.ln((0.4, 0.05 * x[0], 90 * x[1], 1.2), heads)])


def adsorbed_gases(x):
    pressures = np.linspace(0.1, 5, 12)
    frames = [
        pd.DataFrame({"p": pressures, "q": 3.0 * b * pressures / (1 + b * pressures)}) for b in (0.7, 1.3)
    ]
    isotherms = [
        pyiast.InterpolatorIsotherm(f, loading_key="q", pressure_key="p", fill_value=3.0) for f in frames
    ]
    return pyiast.iast(np.array([0.6, 0.8]) * x[:2] * x[2], isotherms, warningoff=True)


def light_on_a_line(x):
    source = Scalar_source_X(x=np.linspace(-100.0, 100.0, 64), wavelength=0.6)
    source.gauss_beam(A=x[0], x0=5 * x[1], z0=0.0, w0=30 * x[2], theta=0.0)
    far = source.RS(z=2000.0, verbose=False, new_field=True)
    return np.concatenate([far.intensity(), [source.average_intensity()]])


def field_on_a_grid(x):
    fdtd.set_backend("numpy")
    grid = fdtd.Grid(shape=(12, 12, 1), grid_spacing=1e-7, permittivity=1.5)
    grid[5, 5, 0] = fdtd.PointSource(period=8, amplitude=1.0, name="lamp")
    grid.E[3:6, 4:8, 0, 2] = x[0] * np.cos(x[1] * np.arange(12.0)).reshape(3, 4)
    grid.H[2:4, 2:4, 0, 1] = x[2]
    grid.run(total_time=6, progress_bar=False)
    return np.array(grid.E[2:8, 2:8, 0, 2]).ravel()


def robot_arm(x):
    arm = kinpy.build_serial_chain_from_urdf(URDF, "hand")
    hand = arm.forward_kinematics(np.array([0.3, 0.5, 0.7]) * x)
    return np.concatenate([hand.pos, hand.rot, arm.jacobian(np.array([0.3, 0.5, 0.7]) * x).ravel()])


def matrix_equation(x):
    start = np.array([[1.0, 0.5j], [0.2, 1.0]]) * x[0]
    mixing = np.array([[0.1 * x[1], 1.0], [-1.0, 0.05 * x[2]]])
    path = odeintw(lambda y, t: mixing @ y, start, np.linspace(0, 1, 4), rtol=1e-10, atol=1e-10)
    return np.concatenate([path.real.ravel(), path.imag.ravel()])


def transfer_function(x):
    system = np.array([[-1.0 * x[0], 2.0, 0.0], [0.0, -2.0 * x[1], 1.0], [0.5, 0.0, -3.0 * x[2]]])
    model = LTIModel.from_matrices(system, np.array([[1.0], [0.0], [1.0]]), np.array([[1.0, 1.0, 0.0]]))
    return np.concatenate([np.ravel(model.transfer_function.eval_tf(1j * w)).view(float) for w in (0.5, 2.0)])


def orthogonal_vectors(x):
    vectors = np.vander(np.array([0.3, 0.5, 0.9, 1.4, 2.0]) * x[0], 3).T * np.array([[x[1]], [1.0], [x[2]]])
    space = NumpyVectorSpace(5)
    return gram_schmidt(space.make_array(vectors.T + np.eye(5, 3))).to_numpy().ravel()


def noise_in_the_plane(x):
    field = opensimplex.OpenSimplex(seed=3)
    return np.array([field.noise2(1.3 * x[0], 0.4 * x[1]), field.noise3(0.2 * x[0], 0.7 * x[1], 1.9 * x[2])])


CALLS = [
    (sand, POINT),
    (fluid_in_rock, POINT),
    (reflections, POINT),
    (inclusions, POINT),
    (plastic_strain, POINT),
    (strain_of_solid, POINT),
    (equivalent_stress, POINT),
    (failures, POINT),
    (cracked_concrete, POINT),
    (concrete_law, POINT),
    (turned_crystal, POINT),
    (stretched_crystal, POINT),
    (stiffness_of_crystal, POINT),
    (invariants_of_stress, POINT),
    (water_in_soil, POINT),
    (adsorbed_gases, POINT),
    (light_on_a_line, POINT),
    (field_on_a_grid, POINT),
    (robot_arm, POINT),
    (matrix_equation, POINT),
    (transfer_function, POINT),
    (orthogonal_vectors, POINT),
    (noise_in_the_plane, POINT),
]
