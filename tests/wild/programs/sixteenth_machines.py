"""Aircraft, gas dynamics, robots, heat, electromagnetic soundings, earthquakes."""

import aerokit.aero.Isentropic as isentropic
import aerokit.aero.ShockWave as shock
import empymod
import numpy as np
import pandas as pd
import pygmm
import pyrvt
import scipy.stats
import spei
from aerokit.aero import MassFlow, Supersonic
from aerokit.aero.unsteady1D import unsteady_state
from aerokit.engine import turbojet
from aerokit.instance.riemann import riemann_pb
from oemof.thermal import compression_heatpumps_and_chillers as heatpumps
from oemof.thermal import stratified_thermal_storage as storage
from oemof.thermal.solar_thermal_collector import flat_plate_precalc
from openap import Drag, FuelFlow, aero, contrail
from pybotics.geometry import matrix_2_vector, vector_2_matrix
from pybotics.predefined_models import puma560, ur10
from pybotics.robot import Robot
from pybotics.tool import Tool

MONTHS = pd.date_range("2000-01-31", periods=48, freq="ME")
RAIN = pd.Series(np.random.default_rng(16).gamma(2.0, 30.0, 48), MONTHS)


def drag(x):
    return Drag(ac="A320").clean(mass=60000 * x[0], tas=350 * x[1], alt=32000 * x[2])


def fuel_flow(x):
    return FuelFlow(ac="A320").enroute(mass=60000 * x[0], tas=350 * x[1], alt=30000 * x[2], vs=500.0)


def airspeeds(x):
    return np.array([aero.tas2cas(220 * x[0], 9000 * x[1]), aero.cas2mach(150 * x[0], 9000 * x[1])])


def contrail_temperature(x):
    return np.array(contrail.critical_temperature_water_and_ice(25000 * x[0], 0.3 * x[1]))


def oblique_shock(x):
    sigma = shock.weaksigma_Mach_deflection(2.5 * x[0], 12 * x[1])
    return np.array([sigma, shock.downstream_Mach(2.5 * x[0], sigma)])


def nozzle_flow(x):
    mach = MassFlow.MachSup_Sigma(2 * x[0])
    return np.array([mach, isentropic.PtPs_Mach(mach), Supersonic.Mach_PrandtlMeyer(25 * x[1])])


def shock_tube(x):
    left = unsteady_state(rho=x[0], u=0.1 * x[1], p=x[2])
    right = unsteady_state(rho=0.125, u=0.0, p=0.1)
    problem = riemann_pb(left, right)
    return np.array([problem.pstar(), problem.ustar(), problem.qstarL().rho, problem.qstarR().rho])


def jet_engine(x):
    engine = turbojet.turbojet_opt(OPR=10 * x[0], Tt4=1500 * x[1], etapolCHP=0.9 * x[2])
    engine.flight_conditions(T0=223.0, P0=26500.0, M0=0.8)
    engine.update()
    return np.array([engine.spec_thrust(), engine.thermal_efficiency()])


def arm_pose(x):
    robot = Robot.from_parameters(ur10())
    robot.tool = Tool()
    robot.tool.position = [0.0, 0.0, 100.0 * x[6]]
    return robot.fk(x[:6])


def arm_torques(x):
    return Robot.from_parameters(puma560()).compute_joint_torques(np.cos(np.arange(6.0)), x)


def calibrated_links(x):
    """The kinematic calibration of the examples: the pose by the parameters of the links."""
    parameters = ur10().ravel() + 0.1 * np.sin(np.arange(24.0) * x[0] + x[1])
    pose = Robot.from_parameters(parameters).fk([0.1, -0.5, 0.7, 0.3, 0.4, -0.2])
    return matrix_2_vector(pose) + matrix_2_vector(vector_2_matrix([1.0, 2.0, 3.0, x[0], x[1], 0.3]))


def marine_sounding(x):
    field = empymod.dipole(
        src=[0, 0, 990], rec=[[2000.0, 4000.0], [0.0, 0.0], 1000], depth=[0, 1000, 2000, 2100],
        res=[2e14, 0.3, x[0], 50 * x[1], x[2]], freqtime=1.0, verb=0,
    )  # fmt: skip
    return 1e13 * np.abs(field)


def ground_motion(x):
    scenario = pygmm.Scenario(mag=6.5 * x[0], dist_jb=20 * x[1], v_s30=500 * x[2], mechanism="SS")
    return pygmm.BooreStewartSeyhanAtkinson2014(scenario).spec_accels[::20]


def another_ground_motion(x):
    scenario = pygmm.Scenario(
        mag=6.5 * x[0], dist_jb=20 * x[1], dist_rup=22 * x[1], dist_x=20.0, v_s30=500 * x[2], dip=90,
        mechanism="SS", depth_tor=2.0, on_hanging_wall=False,
    )  # fmt: skip
    return pygmm.ChiouYoungs2014(scenario).spec_accels[::20]


def source_spectrum(x):
    motion = pyrvt.motions.SourceTheoryMotion(6.0 * x[0], 20.0 * x[1], "wna", stress_drop=80 * x[2])
    motion.calc_fourier_amps(np.geomspace(0.1, 50, 64))
    return motion.fourier_amps[::16]


def response_spectrum(x):
    freqs = np.geomspace(0.1, 50, 64)
    amps = 0.1 * x[0] * freqs / (1 + (freqs / (5 * x[1])) ** 2)
    motion = pyrvt.motions.RvtMotion(freqs, amps, 8 * x[2], peak_calculator="BJ84")
    return motion.calc_osc_accels(np.array([0.5, 2.0, 8.0]), 0.05)


def drought_index(x):
    """The standardised index of the package's first example."""
    return spei.spi(RAIN * x[0] + 5 * x[1], dist=scipy.stats.norm, timescale=3).to_numpy()[5:9]


def heat_pump(x):
    temperatures = [10 * x[0], 5 * x[0], -2.0]
    cops = heatpumps.calc_cops("heat_pump", [45 * x[1]], temperatures, 0.4, factor_icing=0.8)
    u_value = storage.calculate_storage_u_value(50 * x[0], 0.05 * x[1], 3, 7)
    return np.array([*cops, *storage.calculate_losses(u_value, 5 * x[0], 75, 45, 20 * x[1])])


def flat_plate(x):
    """A day of a solar collector, as in the package's example."""
    hours = pd.date_range("2003-06-21 06:00", periods=6, freq="2h", tz="Etc/GMT-1")
    sun = pd.Series(400 + 300 * np.sin(np.arange(6.0)), hours) * x[0]
    air = pd.Series(15 + np.arange(6.0), hours) * x[1]
    table = flat_plate_precalc(52.2, 13.1, 10, 20, 0.73, 1.7, 0.016, 20 * x[2], 10, sun, 0.3 * sun, air)
    return table["collectors_heat"].to_numpy()


CALLS = [
    (drag, [1.05, 0.95, 0.9]),
    (fuel_flow, [1.05, 0.95, 0.9]),
    (airspeeds, [1.05, 0.95]),
    (contrail_temperature, [1.05, 1.2]),
    (oblique_shock, [1.05, 0.9]),
    (nozzle_flow, [1.1, 0.9]),
    (shock_tube, [1.1, 0.8, 1.05]),
    (jet_engine, [1.1, 0.95, 0.97]),
    (arm_pose, [0.1, -0.5, 0.7, 0.3, 0.4, -0.2, 0.8]),
    (arm_torques, [0.1, -0.5, 0.7, 0.3, 0.4, -0.2]),
    (calibrated_links, [0.8, 0.4]),
    (marine_sounding, [1.1, 0.9, 1.3]),
    (ground_motion, [1.02, 1.1, 0.9]),
    (another_ground_motion, [1.02, 1.1, 0.9]),
    (source_spectrum, [1.02, 1.1, 0.9]),
    (response_spectrum, [1.02, 1.1, 0.9]),
    (drought_index, [1.1, 0.9]),
    (heat_pump, [1.1, 0.9]),
    (flat_plate, [1.1, 0.9, 1.05]),
]
