"""The sun's place, fields of magnets and currents, melts and minerals, polarised light, thin films."""

import EMpy
import numpy as np
import pandas as pd
import poppy
import pyorbital.astronomy
import solposx.refraction
import solposx.solarposition
import Thermobar
from geoana.em import static
from py_pol.jones_matrix import Jones_matrix
from py_pol.jones_vector import Jones_vector
from py_pol.stokes import Stokes
from pyrolite.comp import codata

WHEN = np.datetime64("2024-05-03T10:20:00")
HOURS = pd.date_range("2024-05-03 08:00", periods=3, freq="2h", tz="UTC")
PLACES = np.array([[0.3, 0.2, 0.9], [1.1, -0.4, 0.7], [0.2, 0.8, 1.4]])
POINT = np.array([1.1, 0.9, 1.2])


def sun_from_satellite(x):
    altitude, azimuth = pyorbital.astronomy.get_alt_az(WHEN, 15 * x[0], 50 * x[1])
    return np.array([altitude, azimuth, pyorbital.astronomy.cos_zen(WHEN, 20 * x[1], 40 * x[0])])


def observer(x):
    position, velocity = pyorbital.astronomy.observer_position(WHEN, 15 * x[0], 50 * x[1], 0.3 * x[2])
    return np.array([*position, *velocity])


def sun_by_iqbal(x):
    return solposx.solarposition.iqbal(HOURS, 50 * x[0], 10 * x[1]).to_numpy().ravel()


def sun_by_psa(x):
    return solposx.solarposition.psa(HOURS, 50 * x[0], 10 * x[1])[["elevation", "zenith"]].to_numpy().ravel()


def refraction(x):
    height = 20.0 * x
    return np.concatenate(
        [
            solposx.refraction.bennett(height),
            solposx.refraction.archer(height),
            solposx.refraction.sg2(height),
        ]
    )


def sphere_in_field(x):
    sphere = static.MagnetostaticSphere(0.5 * x[0], 10 * x[1], 1.0, primary_field=np.array([0.0, 0.0, 1.0]))
    return sphere.magnetic_field(PLACES * x[2], field="total").ravel()


def current_loop(x):
    loop = static.CircularLoopWholeSpace(radius=0.5, current=x[0], orientation="z", location=np.zeros(3))
    return 1e6 * loop.magnetic_flux_density(PLACES * x[1]).ravel()


def point_electrode(x):
    electrode = static.PointCurrentWholeSpace(rho=100 * x[0], current=x[1])
    return np.append(electrode.potential(PLACES * x[2]), electrode.electric_field(PLACES).ravel())


def charged_sphere(x):
    sphere = static.ElectrostaticSphere(0.5, x[0], 0.1 * x[1], primary_field=np.array([1.0, 0.0, 0.0]))
    return np.append(sphere.potential(PLACES, field="total"), sphere.current_density(PLACES, field="total"))


def melt_temperature(x):
    liquid = pd.DataFrame(
        {"SiO2_Liq": [52 * x[0]], "TiO2_Liq": [1.1], "Al2O3_Liq": [16.0], "FeOt_Liq": [8.5], "MnO_Liq": [0.1],
         "MgO_Liq": [7 * x[1]], "CaO_Liq": [9.8], "Na2O_Liq": [3.0], "K2O_Liq": [0.9], "Cr2O3_Liq": [0.0],
         "P2O5_Liq": [0.2], "H2O_Liq": [1.5 * x[2]]}
    )  # fmt: skip
    return Thermobar.calculate_liq_only_temp(liq_comps=liquid, equationT="T_Put2008_eq13").to_numpy()


def amphibole_pressure(x):
    return np.array(
        [
            Thermobar.amphibole.P_Schmidt1992(Al_Amp_cat_23ox=2 * x[0]),
            Thermobar.amphibole.T_Put2016_SiHbl(Si_Amp_cat_23ox=6.5 * x[1]),
        ]
    )


def log_ratios(x):
    parts = np.array([[0.2, 0.3, 0.5], [0.4, 0.4, 0.2]]) * x
    return np.concatenate([codata.CLR(parts).ravel(), codata.ALR(parts).ravel(), codata.ILR(parts).ravel()])


def parts_again(x):
    return np.append(
        codata.inverse_CLR(np.array([x, 2 * x])).ravel(), codata.sphere(np.array([x / np.sum(x)])).ravel()
    )


def transformed_parts(x):
    return codata.boxcox(np.array([[0.2, 0.3, 0.5], [0.4, 0.4, 0.2]]) * x, lmbda=0.4).ravel()


def polarised_light(x):
    light = Jones_vector("light").general_azimuth_ellipticity(
        azimuth=0.4 * x[0], ellipticity=0.2 * x[1], intensity=x[2]
    )
    plate = Jones_matrix("plate").retarder_linear(R=0.7 * x[0], azimuth=0.3 * x[1])
    return (plate * light).parameters.intensity()


def through_polariser(x):
    light = Jones_vector("light").linear_light(azimuth=0.4 * x[0], intensity=x[1])
    polariser = Jones_matrix("polariser").diattenuator_linear(p1=0.9, p2=0.3 * x[1], azimuth=0.2 * x[0])
    return (polariser * light).M.real.ravel()


def stokes_parameters(x):
    light = Stokes("light").general_azimuth_ellipticity(
        azimuth=0.4 * x[0], ellipticity=0.2 * x[1], intensity=x[2]
    )
    return light.M.ravel()


def thin_film(x):
    film = EMpy.materials.IsotropicMaterial("film", n0=EMpy.materials.RefractiveIndex(n0_const=1.8 * x[0]))
    air = EMpy.materials.IsotropicMaterial("air", n0=EMpy.materials.RefractiveIndex(n0_const=1.0))
    glass = EMpy.materials.IsotropicMaterial("glass", n0=EMpy.materials.RefractiveIndex(n0_const=1.5))
    layers = [
        EMpy.utils.Layer(air, np.inf),
        EMpy.utils.Layer(film, 0.2e-6 * x[1]),
        EMpy.utils.Layer(glass, np.inf),
    ]
    solution = EMpy.transfer_matrix.IsotropicTransferMatrix(EMpy.utils.Multilayer(layers), 0.3 * x[2])
    solution.solve(np.array([0.5e-6, 0.6e-6]))
    return np.append(solution.Rs.ravel(), solution.Tp.ravel())


def ring_resonator(x):
    wavelengths = np.linspace(1.54e-6, 1.56e-6, 5)
    first, second = [EMpy.devices.Coupler(wavelengths, np.sqrt(0.1 * k), 1.0) for k in x[:2]]
    ring = EMpy.devices.SRR(first, second, 1.5 * x[2], 2e-6, 3e-6).solve()
    return np.abs(ring.THRU).ravel()


def wavefront(x):
    front = poppy.zernike.zernike(2, 0, npix=8) * x[0] + poppy.zernike.zernike(3, 1, npix=8) * x[1] ** 2
    return np.nan_to_num(front).ravel()


CALLS = [
    (sun_from_satellite, POINT[:2]), (observer, POINT), (sun_by_iqbal, POINT[:2]), (sun_by_psa, POINT[:2]), (refraction, POINT),
    (sphere_in_field, POINT), (current_loop, POINT[:2]), (point_electrode, POINT), (charged_sphere, POINT[:2]),
    (melt_temperature, POINT), (amphibole_pressure, POINT[:2]), (log_ratios, POINT), (parts_again, POINT),
    (transformed_parts, POINT), (polarised_light, POINT), (through_polariser, POINT[:2]), (stokes_parameters, POINT),
    (thin_film, POINT), (ring_resonator, POINT), (wavefront, POINT[:2]),
]  # fmt: skip
