import datetime

import numpy as np
from stonesoup.functions import cart2pol, cart2sphere, pol2cart
from stonesoup.measures import Euclidean, GaussianHellinger, Mahalanobis
from stonesoup.models.measurement.linear import LinearGaussian
from stonesoup.models.measurement.nonlinear import CartesianToBearingRange
from stonesoup.models.transition.linear import CombinedLinearGaussianTransitionModel, ConstantVelocity
from stonesoup.predictor.kalman import ExtendedKalmanPredictor, KalmanPredictor
from stonesoup.types.array import CovarianceMatrix, StateVector
from stonesoup.types.detection import Detection
from stonesoup.types.hypothesis import SingleHypothesis
from stonesoup.types.state import GaussianState, State
from stonesoup.updater.kalman import ExtendedKalmanUpdater, KalmanUpdater

state = np.array([1.0, 0.5, 2.0, -0.3])
start = datetime.datetime(2026, 1, 1)
second = datetime.timedelta(seconds=1)


def prior(x):
    return GaussianState(StateVector(x), CovarianceMatrix(np.diag([1.0, 0.2, 1.5, 0.1])), timestamp=start)


def moving():
    return CombinedLinearGaussianTransitionModel([ConstantVelocity(0.1), ConstantVelocity(0.2)])


def transition(x):
    return moving().function(State(StateVector(x)), noise=False, time_interval=second)


def prediction(x):
    found = KalmanPredictor(moving()).predict(prior(x), timestamp=start + second)
    return np.concatenate([np.ravel(found.state_vector), np.ravel(found.covar) * x[0]])


def update(x):
    seen = LinearGaussian(4, [0, 2], np.diag([0.5, 0.5]))
    predicted = KalmanPredictor(moving()).predict(prior(x), timestamp=start + second)
    detection = Detection(StateVector([1.6, 1.8]), timestamp=start + second, measurement_model=seen)
    return KalmanUpdater(seen).update(SingleHypothesis(predicted, detection)).state_vector


def bearing(x):
    seen = CartesianToBearingRange(4, [0, 2], np.diag([0.01, 0.1]))
    return seen.function(State(StateVector(x)), noise=False)


def bearing_jacobian(x):
    seen = CartesianToBearingRange(4, [0, 2], np.diag([0.01, 0.1]))
    return seen.jacobian(State(StateVector(x)))


def extended_update(x):
    seen = CartesianToBearingRange(4, [0, 2], np.diag([0.01, 0.1]))
    predicted = ExtendedKalmanPredictor(moving()).predict(prior(x), timestamp=start + second)
    detection = Detection(StateVector([0.9, 2.4]), timestamp=start + second, measurement_model=seen)
    return ExtendedKalmanUpdater(seen).update(SingleHypothesis(predicted, detection)).state_vector


def polar(x):
    return np.stack([*cart2pol(x[0], x[2]), *pol2cart(x[2], x[0]), *cart2sphere(x[0], x[1], x[2])])


def distances(x):
    a, b = prior(x), prior(np.array([0.0, 0.1, 1.0, 0.2]))
    return np.stack([m(a, b) for m in (Euclidean(), Mahalanobis(), GaussianHellinger())])


CALLS = [
    (f, state)
    for f in (transition, prediction, update, bearing, bearing_jacobian, extended_update, polar, distances)
]
