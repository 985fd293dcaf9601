import bilby
import meteocalc
import numpy as np
import pointpats
import pygfunction as gt
import xraydb
from astropy import units as u
from astropy.modeling.physical_models import NFW
from astropy.modeling.powerlaws import Schechter1D
from fastpt import FASTPT
from floris import FlorisModel
from giddy import ergodic, mobility
from halomod.bias import SMT01, Tinker10
from mgwr.gwr import GWR
from py_wake.deficit_models.gaussian import BastankhahGaussianDeficit
from py_wake.deficit_models.noj import NOJDeficit
from py_wake.examples.data.hornsrev1 import V80
from py_wake.site import UniformSite
from py_wake.wind_farm_models import PropagateDownwind
from pymeeus import Coordinates
from pymeeus.Angle import Angle
from rocketpy import Function
from rocketpy.mathutils.vector_matrix import Matrix, Vector
from rocketpy.tools import euler313_to_quaternions
from sunpy.sun import models as sun_models
from synphot import Observation, SourceSpectrum, SpectralElement
from synphot.models import BlackBodyNorm1D, Box1D

T = np.linspace(0.0, 1.0, 15)
COORDINATES = np.column_stack([np.cos(5.0 * T) + T, np.sin(7.0 * T) - T])
RESPONSE = np.sin(3.0 * T)[:, None] + 0.1 * np.cos(40.0 * T)[:, None]
COVARIATE = np.cos(4.0 * T)[:, None]
WAVENUMBERS = np.logspace(-3, 1, 100)
POINTS = np.column_stack([np.cos(3.0 * T), np.sin(8.0 * T)])
FARM = FlorisModel("defaults")
FAST = FASTPT(WAVENUMBERS, to_do=["one_loop_dd"], low_extrap=-5, high_extrap=3, n_pad=100)
SITE = UniformSite(p_wd=[1.0], ti=0.1)


def farm_power(x):
    farm = FARM.copy()
    farm.set(
        layout_x=[0.0, x[0], 1300.0],
        layout_y=[0.0, x[1], 40.0],
        wind_directions=np.array([270.0]),
        wind_speeds=np.array([8.0]),
        turbulence_intensities=np.array([0.06]),
    )
    farm.run()
    return farm.get_turbine_powers().ravel() / 1e6


def turbine_speeds(x):
    farm = PropagateDownwind(SITE, V80(), wake_deficitModel=BastankhahGaussianDeficit(k=x[0]))
    result = farm([0.0, 500.0, 1100.0], [0.0, 30.0, -20.0], wd=[270.0], ws=[9.0, 10.0])
    return result.WS_eff.values.ravel()


def jensen(x):
    farm = PropagateDownwind(SITE, V80(), wake_deficitModel=NOJDeficit(k=0.05))
    result = farm([0.0, x[0], 1100.0], [0.0, x[1], -20.0], wd=[270.0], ws=[9.0])
    return result.Power.values.ravel() / 1e6


def borehole(x):
    one = gt.boreholes.Borehole(H=x[0], D=4.0, r_b=0.075, x=0.0, y=0.0)
    two = gt.boreholes.Borehole(H=150.0, D=4.0, r_b=0.075, x=x[1], y=0.0)
    return gt.heat_transfer.finite_line_source(np.array([1e6, 1e7]), 1e-6, one, two)


def pipe_resistances(x):
    positions = [(-x[0], 0.0), (x[0], 0.0)]
    return np.ravel(gt.pipes.thermal_resistances(positions, 0.02, 0.075, x[1], 1.0, 0.1, J=2)[0])


def load_history(x):
    loads = gt.load_aggregation.ClaessonJaved(3600.0, 10 * 3600.0)
    loads.initialize(np.log1p(loads.get_times_for_simulation()))
    found = []
    for k in range(4):
        loads.next_time_step(3600.0 * (k + 1))
        loads.set_current_load(x[k])
        found.append(np.sum(loads.temporal_superposition()))
    return np.array(found)


def local_regression(x):
    model = GWR(
        COORDINATES,
        RESPONSE * x[0],
        COVARIATE + x[1] * RESPONSE**2,
        bw=2.5,
        fixed=True,
        kernel="gaussian",
        n_jobs=1,
    )
    return model.fit().params[:4].ravel()


def steady(x):
    rates = np.array([[1 - x[0], x[0], 0.0], [x[1], 1 - x[1] - x[2], x[2]], [0.0, x[3], 1 - x[3]]])
    return ergodic.steady_state(rates)


def passages(x):
    rates = np.array([[1 - x[0], x[0], 0.0], [x[1], 1 - x[1] - x[2], x[2]], [0.0, x[3], 1 - x[3]]])
    return np.append(ergodic.mfpt(rates).ravel(), mobility.markov_mobility(rates, measure="D"))


def centres(x):
    points = np.stack([POINTS[:, 0] * x[0], POINTS[:, 1] + x[1] * POINTS[:, 0]], axis=1)
    major, minor, angle = pointpats.centrography.ellipse(points)
    return np.array([pointpats.centrography.std_distance(points), major, minor, angle])


def middle(x):
    return pointpats.centrography.euclidean_median(POINTS * x)


def one_loop(x):
    spectrum = x[0] * WAVENUMBERS ** x[1] / (1.0 + (WAVENUMBERS / 0.05) ** 2)
    return FAST.one_loop_dd(spectrum)[1][30:60:6]


def tinker(x):
    return np.concatenate([Tinker10(nu=x, delta_halo=300.0).bias(), SMT01(nu=x).bias()])


def dew(x):
    comfort = meteocalc.heat_index(temperature=meteocalc.Temp(x[0], "c"), humidity=x[1])
    return np.array([float(meteocalc.dew_point(meteocalc.Temp(x[0], "c"), x[1]).c), float(comfort.c)])


def rotating_sun(x):
    return sun_models.differential_rotation(2.0 * u.day, x * u.deg, model="snodgrass").to_value(u.deg)


def stellar_flux(x):
    star = SourceSpectrum(BlackBodyNorm1D, temperature=x[0])
    band = SpectralElement(Box1D, amplitude=1.0, x_0=5500.0, width=900.0)
    return Observation(star, band, binset=np.arange(5000.0, 6000.0, 10.0)).effstim("flam").value * 1e15


def halo(x):
    model = NFW(mass=x[0] * 1e12 * u.solMass, concentration=x[1], redshift=0.1)
    return model(np.array([20.0, 80.0]) * u.kpc).to_value(u.solMass / u.kpc**3) / 1e6


def luminosities(x):
    return Schechter1D(phi_star=x[0], m_star=x[1], alpha=x[2])(np.array([-21.0, -19.5, -18.0]))


def refraction(x):
    return xraydb.mirror_reflectivity(
        "Si", np.array([1e-3, 3e-3]) * x[0], 9000.0, density=x[1], roughness=x[2]
    )


def ecliptic(x):
    right, declination = Coordinates.ecliptical2equatorial(Angle(x[0]), Angle(x[1]), Angle(23.4))
    return np.array([right.rad(), declination.rad()])


def thrust(x):
    burn = Function(np.column_stack([[0.0, 0.4, 1.1, 2.0], x]), interpolation="spline")
    return np.array([burn(0.7), burn.integral(0.0, 2.0), burn.differentiate(0.9)])


def attitude(x):
    rotation = Matrix.transformation(euler313_to_quaternions(x[0], x[1], x[2]))
    return np.array(list(rotation @ Vector([1.0, x[0], -0.5])) + [abs(rotation @ rotation)])


def chirp(x):
    mass = bilby.gw.conversion.component_masses_to_chirp_mass(x[0], x[1])
    tidal = bilby.gw.conversion.lambda_1_lambda_2_to_lambda_tilde(x[2], x[3], x[0], x[1])
    return np.array(
        [mass, tidal, *bilby.gw.conversion.chirp_mass_and_mass_ratio_to_component_masses(mass, 0.8)]
    )


CALLS = [
    (farm_power, [630.0, 20.0]),
    (turbine_speeds, [0.032]),
    (jensen, [520.0, 35.0]),
    (borehole, [150.0, 5.0]),
    (pipe_resistances, [0.04, 2.0]),
    (load_history, [1.0, 0.6, -0.3, 0.8]),
    (local_regression, [1.2, 0.3]),
    (steady, [0.3, 0.2, 0.35, 0.15]),
    (passages, [0.3, 0.2, 0.35, 0.15]),
    (centres, [1.2, 0.4]),
    (middle, [1.2, 0.7]),
    (one_loop, [900.0, 0.96]),
    (tinker, [0.8, 1.7, 3.1]),
    (dew, [32.0, 60.0]),
    (rotating_sun, [10.0, 35.0, -50.0]),
    (stellar_flux, [5800.0]),
    (halo, [1.3, 9.0]),
    (luminosities, [1.2, -20.5, -1.1]),
    (refraction, [1.1, 2.33, 4.0]),
    (ecliptic, [113.2, 6.7]),
    (thrust, [10.0, 80.0, 55.0, 20.0]),
    (attitude, [0.3, 0.8, -0.4]),
    (chirp, [36.0, 29.0, 400.0, 500.0]),
]
