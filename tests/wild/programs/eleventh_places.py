import datetime

import numpy as np
import poppy
import rmsd
import verde
from pyorbital import astronomy, orbital

for module in (poppy.zernike, poppy.matrixDFT, poppy.accel_math):
    module.xp = np  # not CuPy, which the tests run over host memory
P = np.sin(1.3 * np.arange(18.0) ** 1.1).reshape(6, 3)
NOON = np.datetime64(datetime.datetime(2024, 3, 1, 12, 30))


def superposed(x):
    return np.array([rmsd.kabsch_rmsd(P, x.reshape(6, 3), translate=True), rmsd.rmsd(P, x.reshape(6, 3))])


def by_quaternions(x):
    return rmsd.quaternion_rmsd(P - P.mean(0), x.reshape(6, 3))


def weighted(x):
    return rmsd.kabsch_weighted_rmsd(P, x.reshape(6, 3), np.arange(1.0, 7.0))


def sun(x):
    altitude, azimuth = astronomy.get_alt_az(NOON, x[0], x[1])
    return np.array([altitude, azimuth, astronomy.sun_zenith_angle(NOON, x[0], x[1])])


def look(x):
    return np.array(orbital.get_observer_look(x[0], x[1], 820.0, NOON, 10.0, x[2], 0.1))


def spline(x):
    places = (np.array([0.0, 1.0, 2.0, 0.5, 1.7]), np.array([0.0, 0.3, 1.9, 1.2, 1.1]))
    return verde.Spline(damping=1e-3).fit(places, x).predict((np.array([0.7, 1.2]), np.array([0.4, 0.9])))


def trend(x):
    places = (np.array([0.0, 1.0, 2.0, 0.5, 1.7]), np.array([0.0, 0.3, 1.9, 1.2, 1.1]))
    chain = verde.Chain([("trend", verde.Trend(degree=1)), ("reduced", verde.KNeighbors(k=2))])
    return chain.fit(places, x).predict((np.array([0.7, 1.2]), np.array([0.4, 0.9])))


def zernikes(x):
    rho, theta = np.meshgrid(np.linspace(0.1, 0.9, 4), np.linspace(0.0, 5.0, 5))
    return poppy.zernike.opd_from_zernikes(x, npix=8, outside=0.0)[2:6] + np.sum(
        poppy.zernike.zernike(3, 1, rho=rho * x[0], theta=theta)
    )


def focused(x):
    plane = np.exp(1j * np.outer(x, np.cos(np.arange(6.0))))
    return np.abs(poppy.matrixDFT.MatrixFourierTransform().perform(plane, 4.0, 6)) ** 2


CALLS = [
    (superposed, (P + 0.2 * np.cos(P[::-1])).ravel()),
    (by_quaternions, (P + 0.2 * np.cos(P[::-1])).ravel()),
    (weighted, (P + 0.2 * np.cos(P[::-1])).ravel()),
    (sun, [13.0, 42.0]),
    (look, [14.0, 48.0, 45.0]),
    (spline, [1.0, 0.4, -0.7, 0.2, 0.9]),
    (trend, [1.0, 0.4, -0.7, 0.2, 0.9]),
    (zernikes, [0.4, 0.2, -0.3, 0.6, 0.1]),
    (focused, 0.3 * np.arange(6.0)),
]
