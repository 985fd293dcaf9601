import colour
import numpy as np

rgb = np.array([0.3, 0.5, 0.7])


def to_xyz(x):
    return colour.sRGB_to_XYZ(x)


def to_lab(x):
    return colour.XYZ_to_Lab(x)


def difference(x):
    return colour.delta_E(x * 50, np.array([20.0, 30.0, 10.0]), method="CIE 1976")


def difference_2000(x):
    return colour.delta_E(x * 50, np.array([20.0, 30.0, 10.0]))


def oklab(x):
    return colour.XYZ_to_Oklab(x)


def gamma(x):
    return colour.cctf_encoding(x)


def adapted(x):
    return colour.chromatic_adaptation(x, np.array([0.95, 1.0, 1.09]), np.array([0.96, 1.0, 0.82]))


CALLS = [(f, rgb) for f in (to_xyz, to_lab, difference, difference_2000, oklab, gamma, adapted)]
