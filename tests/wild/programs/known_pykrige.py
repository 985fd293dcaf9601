import numpy as np
from pykrige.ok import OrdinaryKriging
from pykrige.variogram_models import (
    exponential_variogram_model,
    gaussian_variogram_model,
    spherical_variogram_model,
)

d = np.array([0.2, 0.7, 1.3])
px, py = np.array([0.0, 1.0, 2.0, 0.5]), np.array([0.0, 0.5, 1.0, 1.5])


def gaussian(x):
    return gaussian_variogram_model([1.0, 2.0, 0.1], x)


def exponential(x):
    return exponential_variogram_model([x[0], x[1], 0.1], d)


def spherical(x):
    return spherical_variogram_model([1.0, 2.0, 0.1], x)


def kriging(x):
    ok = OrdinaryKriging(px, py, x, variogram_model="exponential", variogram_parameters=[1.0, 2.0, 0.1])
    return ok.execute("points", np.array([0.7]), np.array([0.4]))[0]


CALLS = [(gaussian, d), (exponential, d), (spherical, d), (kriging, np.array([1.0, 2.0, 1.5, 0.7]))]
