import numpy as np
import similaritymeasures
from geomdl import BSpline
from tslearn.metrics import soft_dtw
from tslearn.preprocessing import TimeSeriesScalerMeanVariance

v = np.array([0.2, 0.9, 1.74, 1.15, 0.43])  # (one largest distance)
t = np.arange(5.0)
other = np.column_stack([t, np.array([0.1, 1.0, 1.5, 1.3, 0.2])])


def spline_point(x):
    curve = BSpline.Curve()
    curve.degree = 2
    curve.ctrlpts = [[a, b] for a, b in zip(t, x, strict=True)]
    curve.knotvector = [0, 0, 0, 1 / 3, 2 / 3, 1, 1, 1]
    return np.array(curve.evaluate_single(0.45))


def frechet(x):
    return similaritymeasures.frechet_dist(np.column_stack([t, x]), other)


def warped(x):
    return similaritymeasures.dtw(np.column_stack([t, x]), other)[0]


def area(x):
    return similaritymeasures.area_between_two_curves(np.column_stack([t, x]), other)


def soft_warped(x):
    return soft_dtw(x, other[:, 1], gamma=0.5)


def scaled(x):
    return TimeSeriesScalerMeanVariance().fit_transform(x[None, :, None])


CALLS = [(f, v) for f in (spline_point, frechet, warped, area, soft_warped, scaled)]
