import colorspacious
import numpy as np
import pymannkendall
import skgstat
from colormath.color_conversions import convert_color
from colormath.color_objects import LabColor, LCHabColor, XYZColor, sRGBColor

colour = np.array([0.3, 0.6, 0.8])
series = np.array([1.0, 1.7, 1.3, 2.4, 2.2, 3.1, 2.9, 4.2])
places = np.array(
    [[0.0, 0.0], [1.0, 0.2], [0.3, 1.1], [1.4, 1.3], [2.0, 0.5], [0.7, 2.1], [2.3, 1.9], [1.8, 2.6]]
)


def to_cam(x):
    return colorspacious.cspace_convert(x, "sRGB1", "CAM02-UCS")


def to_lab(x):
    return colorspacious.cspace_convert(x, "sRGB1", "CIELab")


def difference(x):
    return colorspacious.deltaE(x, np.array([0.5, 0.5, 0.4]))


def colour_blind(x):
    return colorspacious.cspace_convert(
        x, {"name": "sRGB1+CVD", "cvd_type": "deuteranomaly", "severity": 60}, "sRGB1"
    )


def lab_of_rgb(x):
    return np.stack(convert_color(sRGBColor(x[0], x[1], x[2]), LabColor).get_value_tuple())


def rgb_of_xyz(x):
    return np.stack(convert_color(XYZColor(x[0], x[1], x[2]), sRGBColor).get_value_tuple())


def hue(x):
    return np.stack(convert_color(sRGBColor(x[0], x[1], x[2]), LCHabColor).get_value_tuple())


def trend(x):
    return np.stack(pymannkendall.original_test(x)[7:9])


def seasonal_slope(x):
    return pymannkendall.seasonal_sens_slope(x, period=4).slope


def sens_slope(x):
    return pymannkendall.sens_slope(x).slope


def prewhitened(x):
    return pymannkendall.pre_whitening_modification_test(x).slope


def spherical(x):
    return np.stack([skgstat.models.spherical(h, 2.0 * x[0], x[1], 0.1 * x[2]) for h in (0.3, 0.5, 3.0)])


def matern(x):
    return skgstat.models.matern(np.array([0.3, 0.7]), x[0], x[1], 1.5, 0.1 * x[2])


def variogram(x):
    return skgstat.Variogram(places, x, n_lags=3, maxlag=3.0, fit_method=None).experimental


CALLS = [(f, colour) for f in (to_cam, to_lab, difference, colour_blind, lab_of_rgb, rgb_of_xyz, hue)]
CALLS += [(f, series) for f in (trend, seasonal_slope, sens_slope, prewhitened, variogram)]
CALLS += [(f, colour) for f in (spherical, matern)]
