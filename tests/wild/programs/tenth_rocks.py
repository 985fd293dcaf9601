import ladybug.psychrometrics as air
import numpy as np
from ladybug import skymodel
from ladybug.sunpath import Sunpath
from ladybug.windprofile import WindProfile
from ladybug_geometry.geometry3d import Arc3D, Face3D, LineSegment3D, Plane, Point3D, Vector3D
from rockphypy import AVO, BW, EM, GM, Anisotropy, Fluid


def bounds_of_a_mixture(x):
    return np.array([*EM.HS(x[0], x[1], 21, x[2], 7, bound="upper"), *EM.cripor(x[1], x[2], 0.2, 0.4)])


def self_consistent(x):
    return np.array(EM.Berryman_sc([x[0], x[1]], [44.0, x[2]], [0.8, 0.2], [1.0, 0.15]))


def differential_medium(x):
    return np.array(EM.Berryman_DEM(x[0], x[1], 2.2, 0.0, x[2], 0.2))[:, -1]


def soft_sand(x):
    return np.array(GM.softsand(x[0], x[1], np.array([0.2, 0.3]), 0.4, 8.6, x[2], 0.5))


def gassmann(x):
    return np.array([*Fluid.Gassmann(x[0], x[1], 37, x[2], 0.2), Fluid.Brie(2.2, 0.05, x[0] / 20, x[1])])


def patchy_saturation(x):
    return np.array(
        Fluid.White_Dutta_Ode(
            x[0] * 1e9, x[1] * 1e9, 37e9, 0.3, 2650, 1000, 100, 2.2e9, 1e8, 1e-3, 1e-5, 1e-13, 0.1, x[2], 50
        )[:2]
    )


def reflections(x):
    shuey = AVO.Aki_Richards(np.array([5.0, 20.0]), x[0], x[1], 1.2, 1.5, 2.2, x[2])
    return np.array([*shuey[1], *np.ravel(AVO.zoeppritz(x[0], 1.2, 2.2, x[1], 1.5, x[2], 20.0)).real])


def anisotropy(x):
    return np.array(
        [
            *Anisotropy.Thomsen(x[0], x[1], 8.6, 7.0, 9.0, 2.3, 30.0),
            *Anisotropy.Backus(np.array([0.4, 0.6]), np.array([x[2], 9.0]), np.array([x[1] / 4, 6.0])),
        ]
    )


def reservoir_fluids(x):
    return np.array(
        [*BW.rho_K_gas(x[0], x[1], 0.6), *BW.rho_K_brine(x[1], x[0], x[2]), *BW.rho_K_oil(x[0], x[1], 0.8)]
    )


def humid_air(x):
    ratio = air.humid_ratio_from_db_rh(x[0], x[1])
    return np.array([ratio, air.enthalpy_from_db_hr(x[0], ratio), air.rel_humid_from_db_dpt(x[0], x[2])])


def dew_point(x):
    return np.array([air.dew_point_from_db_rh_fast(x[0], x[1]), air.wet_bulb_from_db_rh_fast(x[0], x[1])])


def dew_point_by_newton(x):
    return air.dew_point_from_db_rh(x[0], x[1])


def wet_bulb_by_secant(x):
    return air.wet_bulb_from_db_rh(x[0], x[1], x[2])


def sun(x):
    found = Sunpath(x[0], x[1]).calculate_sun(6, 21, 10.5)
    return np.array([found.altitude, found.azimuth, found.sun_vector.x])


def clear_sky(x):
    direct, diffuse = skymodel.ashrae_revised_clear_sky([x[0]], x[1], x[2])
    return np.array([direct[0], diffuse[0], skymodel.get_relative_airmass(x[0])])


def wind(x):
    return WindProfile().calculate_wind(x[0], x[1])


def plane_and_line(x):
    plane = Plane(Vector3D(x[0], x[1], x[2]), Point3D(0, 0, 1))
    hit = plane.intersect_line_ray(LineSegment3D.from_end_points(Point3D(0, 0, -9), Point3D(3, 4, 9)))
    return np.array([*hit, plane.distance_to_point(Point3D(x[2], 2, 5)), plane.tilt])


def face(x):
    found = Face3D([Point3D(x[0], 0, 0), Point3D(3, x[1], 0), Point3D(3, 4, x[2]), Point3D(0, 4, x[2])])
    return np.array([found.area, found.perimeter, *found.center])


def arc(x):
    found = Arc3D(Plane(), x[0], x[1], x[2])
    return np.array([found.length, found.angle, *found.midpoint, *found.p2])


CALLS = [
    (bounds_of_a_mixture, [0.3, 37.0, 44.0]),
    (self_consistent, [37.0, 20.0, 15.0]),
    (differential_medium, [37.0, 44.0, 0.2]),
    (soft_sand, [37.0, 44.0, 15.0]),
    (gassmann, [12.0, 9.0, 2.3]),
    (patchy_saturation, [3.0, 2.5, 0.3]),
    (reflections, [2.5, 2.7, 2.4]),
    (anisotropy, [22.0, 18.0, 11.0]),
    (reservoir_fluids, [30.0, 80.0, 0.05]),
    (humid_air, [25.0, 55.0, 12.0]),
    (dew_point, [25.0, 55.0]),
    (dew_point_by_newton, [25.0, 55.0]),
    (wet_bulb_by_secant, [25.0, 55.0, 101325.0]),
    (sun, [47.0, 8.0]),
    (clear_sky, [40.0, 0.4, 2.2]),
    (wind, [5.0, 30.0]),
    (plane_and_line, [0.2, 0.3, 1.0]),
    (face, [0.5, 0.7, 1.5]),
    (arc, [2.0, 0.3, 2.2]),
]
