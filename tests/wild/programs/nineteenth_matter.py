"""Layers that scatter, crystals, electrons, structures, machines, fields on grids, curves, pulses, proteins, acids."""

import bezier
import Bio.PDB.vectors
import Bio.SVDSuperimposer
import concreteproperties.stress_strain_profile as profiles
import crystals
import Dans_Diffraction
import Dans_Diffraction.functions_crystallography
import deerlab
import fipy
import gymnasium.envs.classic_control as control
import iadpython
import motulator.drive.model
import motulator.drive.utils
import numpy as np
import nurbspy
import openmdao.api as om
import pde
import pypulseq
import pyyeti.dsp
import pyyeti.ode
import pyyeti.srs
import rampy
import rayoptics.optical.opticalmodel
import rayoptics.raytr.trace
import simple_pid
import simpleicp.mathutils
import skued
import vg
from iadpython.quadrature import gauss
from openmdao.components.interp_util.interp import InterpND

POINT = np.array([1.1, 0.9, 1.2])
RNG = np.random.default_rng(19)
CLOUD = RNG.standard_normal((12, 3))
LINE = RNG.standard_normal(60)


def scattering_layer(x):
    return np.array(iadpython.Sample(a=0.8 * x[0], b=1.5 * x[1], g=0.5 * x[2], n=1.4, quad_pts=4).rt())


def skin_layer(x):
    sample = iadpython.Sample(
        a=0.7 * x[0], b=2.0 * x[1], g=0.3, n=1.3, n_above=1.5 * x[2], n_below=1.5, quad_pts=4
    )
    return np.array([*sample.rt(), *sample.unscattered_rt(), sample.mu_sp()])


def points_of_quadrature(x):
    places, weights = gauss(5, 0.1 * x[0], 0.9 * x[1])
    return np.concatenate([places, weights * x[2]])


def electrons(x):
    return np.array(
        [
            skued.electron_wavelength(90.0 * x[0]),
            skued.electron_velocity(90.0 * x[1]) * 1e-8,
            skued.interaction_parameter(80 * x[2]),
        ]
    )


def peaks_of_diffraction(x):
    q = np.linspace(-2, 2, 9)
    return np.concatenate(
        [
            skued.gaussian(q, 0.1 * x[0], fwhm=0.7 * x[1]),
            skued.lorentzian(q, 0.1, 0.5 * x[2]),
            skued.pseudo_voigt(q, 0.1, 0.6 * x[0], 0.4),
        ]
    )


def decay_after_pump(x):
    return skued.biexponential(np.linspace(-1, 5, 9), 0.1 * x[0], 0.7 * x[1], 0.3, 1.5, 0.8 * x[2])


def scattered_by_atom(x):
    return np.ravel(skued.affe("C", np.array([1.0, 2.0, 3.0]) * x))


def thin_film(x):
    return np.array(skued.film_optical_coefficients(800.0 * x[0], 50.0 * x[1], 2.0 * x[2] + 0.3j, 1.5))


def lattice(x):
    cell = crystals.Lattice.from_parameters(4.0 * x[0], 5.0 * x[1], 6.0, 80.0 * x[2], 90.0, 100.0)
    return np.concatenate(
        [np.ravel(cell.reciprocal_vectors), [cell.volume], cell.scattering_vector((1, 0, 2))]
    )


def angles_of_diffraction(x):
    f = Dans_Diffraction.functions_crystallography
    return np.array(
        [f.cal2theta(2.0 * x[0], 8.0 * x[1]), f.caldspace(20.0 * x[2], 8.0), f.energy2wave(8.0 * x[0])]
    )


def factors_of_atoms(x):
    return np.ravel(
        Dans_Diffraction.functions_crystallography.xray_scattering_factor(
            ["Fe", "O"], np.array([1.0, 2.0, 4.0]) * x
        )
    )


def structure_of_crystal(x):
    crystal = Dans_Diffraction.Crystal()
    crystal.Cell.latt([4.0 * x[0], 5.0 * x[1], 6.0, 90.0, 90.0, 90.0 * x[2]])
    return np.concatenate(
        [
            np.ravel(crystal.Cell.UV()),
            [crystal.Cell.volume()],
            np.ravel(crystal.Cell.Qmag([[1, 0, 2], [0, 1, 1]])),
        ]
    )


def dipolar_signal(x):
    t, r = np.linspace(0, 2, 20), np.linspace(2, 5, 25)
    distances = deerlab.dd_gauss(r, 3.5 * x[0], 0.3 * x[1])
    return deerlab.dipolarkernel(t, r, mod=0.3 * x[2]) @ distances


def background_of_signal(x):
    t = np.linspace(0, 2, 10)
    return np.concatenate(
        [deerlab.bg_hom3d(t, 80.0 * x[0], 0.3 * x[1]), deerlab.bg_strexp(t, 0.2 * x[2], 3.0)]
    )


def raman_line(x):
    shift = np.linspace(200.0, 800.0, 60)
    line = rampy.gaussian(shift, 10.0 * x[0], 500.0 * x[1], 40.0) + rampy.pearson7(
        shift, 4.0 * x[2], 350.0, 30.0, 2.0
    )
    return np.concatenate([line[::6], np.ravel(rampy.centroid(shift[:, None], line[:, None]))])


def raman_baseline(x):
    shift = np.linspace(0.0, 6.0, 60)
    line = np.exp(-((shift - 3.0 * x[0]) ** 2)) * x[1] + 0.1 * x[2] * shift
    fitted, base = rampy.baseline(
        shift, line, roi=np.array([[0.0, 1.0], [5.0, 6.0]]), method="poly", polynomial_order=2
    )
    return np.concatenate([np.ravel(fitted)[::9], np.ravel(base)[::9]])


def lens(x):
    model = rayoptics.optical.opticalmodel.OpticalModel()
    sequence = model["seq_model"]
    sequence.gaps[0].thi = 1e3
    sequence.add_surface([0.02 * x[0], 4.0 * x[1], 1.5, 60.0])
    sequence.add_surface([-0.015 * x[2], 50.0])
    sequence.do_apertures = False
    model.update_model()
    found = rayoptics.raytr.trace.trace(
        sequence,
        np.array([0.0, 1.0, 0.0]),
        np.array([0.0, 0.01, np.sqrt(1 - 1e-4)]),
        sequence.central_wavelength(),
    )
    return np.concatenate([found[0][-1][0], found[0][-1][1]])


def shock_spectrum(x):
    pulse = np.sin(np.linspace(0, 6 * x[0], 120)) * x[1] + 0.1 * x[2] * LINE.repeat(2)
    return pyyeti.srs.srs(pulse, 200.0, np.array([2.0, 5.0, 11.0]), 10.0, parallel="no").ravel()


def structure_in_time(x):
    masses, dampings, springs = np.ones(2) * x[0], np.array([0.1, 0.2]) * x[1], np.array([4.0, 9.0]) * x[2]
    solved = pyyeti.ode.SolveUnc(masses, dampings, springs, 0.05).tsolve(np.vstack([LINE[:20], LINE[20:40]]))
    return solved.d[:, ::5].ravel()


def fourier_of_record(x):
    size, phase, _ = pyyeti.dsp.fftcoef(
        LINE * x[0] + x[1] * np.cos(np.arange(60.0) * x[2]), 60.0, window="hann"
    )
    return np.concatenate([size[1::6], phase[1::6]])


def steel(x):
    law = profiles.SteelElasticPlastic(500.0 * x[0], 2e5 * x[1], 0.05)
    concrete = profiles.EurocodeNonLinear(3e4 * x[2], 0.0035, 38.0, 0.002, 2.9, 3.0)
    return np.array([law.get_stress(0.001 * x[2]), concrete.get_stress(0.0015 * x[0]), law.get_stress(0.004)])


def synchronous_drive(x):
    values = motulator.drive.utils.SynchronousMachinePars(3, 3.6 * x[0], 0.036, 0.051 * x[1], 0.545 * x[2])
    machine = motulator.drive.model.SynchronousMachine(values)
    machine.state.psi_s = (0.6 + 0.2j) * x[0]
    machine.inp.u_ss = 100.0 * x[1] + 20.0j
    machine.inp.w_M = 50.0 * x[2]
    machine.state.exp_j_theta_m = np.exp(0.3j)
    machine.set_outputs(0.0)
    rates = machine.rhs()
    return np.array([rates[0].real, rates[0].imag, machine.tau_M])


def pole_on_cart(x):
    cart = control.CartPoleEnv()
    cart.reset(seed=1)
    cart.state = (0.1 * x[0], 0.2 * x[1], 0.05 * x[2], 0.1)
    for action in (1, 0, 1):
        cart.step(action)
    return np.array(cart.state)


def pendulum(x):
    swing = control.PendulumEnv()
    swing.reset(seed=1)
    swing.state = np.array([0.7 * x[0], 0.2 * x[1]])
    rewards = [swing.step(np.array([0.5 * x[2]]))[1] for _ in range(3)]
    return np.array([*swing.state, *rewards])


def heat_on_grid(x):
    grid = pde.CartesianGrid([(0.0, 2.0)], 12)
    field = pde.ScalarField(grid, np.sin(grid.axes_coords[0] * x[0]) * x[1])
    laplace = field.laplace({"value": x[2]}, backend="scipy")
    return np.array([*laplace.data[::3], field.average, field.fluctuations])


def diffusion(x):
    mesh = fipy.Grid1D(nx=10, dx=0.1)
    heat = fipy.CellVariable(mesh=mesh, value=0.0)
    heat.constrain(1.0 * x[0], mesh.facesLeft)
    heat.constrain(0.2 * x[1], mesh.facesRight)
    equation = fipy.TransientTerm() == fipy.DiffusionTerm(coeff=0.3 * x[2])
    for _ in range(3):
        equation.solve(var=heat, dt=0.05)
    return np.array(heat.value)


def bent_curve(x):
    nodes = np.asfortranarray([[0.0, 1.0 * x[0], 2.0], [0.0, 2.0 * x[1], 0.5 * x[2]]])
    curve = bezier.Curve(nodes, degree=2)
    return np.concatenate(
        [curve.evaluate_multi(np.array([0.2, 0.7])).ravel(), curve.elevate().nodes.ravel(), [curve.length]]
    )


def rational_curve(x):
    points = np.array([[0.0, 1.0, 2.0, 3.0], [0.0, 1.0 * x[0], 0.5, 0.2 * x[1]]])
    curve = nurbspy.NurbsCurve(
        control_points=points,
        weights=np.array([1.0, x[2], 1.5, 1.0]),
        degree=2,
        knots=np.array([0, 0, 0, 0.5, 1, 1, 1]),
    )
    u = np.array([0.2, 0.6])
    return np.concatenate(
        [curve.get_value(u).ravel(), curve.get_derivative(u, 1).ravel(), curve.get_curvature(u)]
    )


def table_of_values(x):
    grid = (np.linspace(0, 2, 6), np.linspace(0, 3, 5))
    table = InterpND(method="akima", points=grid, values=np.sin(grid[0] * x[2])[:, None] * np.cos(grid[1]))
    return table.interpolate(np.array([[0.7 * x[0], 1.1 * x[1]], [1.3, 2.2]])).ravel()


class Lift(om.ExplicitComponent):
    def setup(self):
        self.add_input("speed", 1.0)
        self.add_input("area", np.ones(2))
        self.add_output("lift", np.ones(2))

    def compute(self, inputs, outputs):
        outputs["lift"] = 0.5 * inputs["speed"] ** 2 * inputs["area"]


def model_of_wing(x):
    problem = om.Problem(reports=False)
    problem.model.add_subsystem("wing", Lift(), promotes=["*"])
    problem.setup()
    problem.set_val("speed", 10.0 * x[0])
    problem.set_val("area", 2.0 * x[1:])
    problem.run_model()
    return problem.get_val("lift") * 1.0


def trapezoid(x):
    gradient = pypulseq.make_trapezoid("x", area=1000.0 * x[0], duration=4e-3)
    return np.array([gradient.amplitude, gradient.area, gradient.flat_area * x[1]])


def pulse_of_resonance(x):
    pulse = pypulseq.make_sinc_pulse(
        0.5 * x[0], duration=1e-3, apodization=0.4 * x[1], time_bw_product=4.0 * x[2], use="excitation"
    )
    return np.abs(pulse.signal[::200])


def controller(x):
    pid = simple_pid.PID(1.0 * x[0], 0.3 * x[1], 0.1 * x[2], setpoint=2.0, sample_time=None)
    level = 0.0
    for _ in range(4):
        level = level + 0.2 * pid(level, dt=0.1)
    return np.array([level, *pid.components])


def moved_cloud(x):
    distances = vg.euclidean_distance(CLOUD, np.array([1.0, 2.0, 3.0]) * x)
    turned = vg.rotate(CLOUD, around_axis=np.array([0.0, x[0], 1.0]), angle=30.0 * x[1])
    return np.concatenate(
        [distances, turned[:2].ravel(), vg.project(CLOUD[0], onto=x), [vg.angle(CLOUD[0], x)]]
    )


def superimposed(x):
    work = Bio.SVDSuperimposer.SVDSuperimposer()
    work.set(
        CLOUD, CLOUD @ np.array([[0.0, 1.0, 0.1], [-1.0, 0.0, 0.0], [0.0, 0.1, 1.0]]) * x + 0.1 * CLOUD[::-1]
    )
    work.run()
    return np.concatenate([np.ravel(work.get_rotran()[0]), [work.get_rms(), work.get_init_rms()]])


def torsion(x):
    places = [Bio.PDB.vectors.Vector(*(p * x)) for p in CLOUD[:4]]
    return np.array(
        [Bio.PDB.vectors.calc_dihedral(*places), Bio.PDB.vectors.calc_angle(*places[:3]), places[0].norm()]
    )


def turned_by_icp(x):
    turn = simpleicp.mathutils.euler_angles_to_rotation_matrix(0.1 * x[0], 0.2 * x[1], 0.3 * x[2])
    return np.concatenate(
        [np.ravel(turn), np.ravel(simpleicp.mathutils.rotation_matrix_to_euler_angles(turn))]
    )


CALLS = [
    (f, POINT)
    for f in (
        scattering_layer, skin_layer, points_of_quadrature, electrons, peaks_of_diffraction, decay_after_pump,
        scattered_by_atom, thin_film, lattice, angles_of_diffraction, factors_of_atoms, structure_of_crystal,
        dipolar_signal, background_of_signal, raman_line, raman_baseline, lens, shock_spectrum, structure_in_time,
        fourier_of_record, steel, synchronous_drive, pole_on_cart, pendulum, heat_on_grid, diffusion,
        bent_curve, rational_curve, table_of_values, model_of_wing, trapezoid, pulse_of_resonance, controller,
        moved_cloud, superimposed, torsion, turned_by_icp,
    )
]  # fmt: skip
