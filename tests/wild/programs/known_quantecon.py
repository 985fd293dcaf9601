import numpy as np
import quantecon as qe

rng = np.random.default_rng(0)
A = 0.3 * rng.normal(size=(3, 3))


def lyapunov(x):
    return qe.solve_discrete_lyapunov(x, np.eye(3))


def riccati(x):
    return qe.solve_discrete_riccati(x, np.ones((3, 1)), np.eye(3), np.eye(1))


def linear_quadratic(x):
    return qe.LQ(np.eye(1), np.eye(3), x, np.ones((3, 1)), beta=0.95).stationary_values()[0]


def gini(x):
    return qe.gini_coefficient(x)


def kalman(x):
    lss = qe.LinearStateSpace(x, 0.1 * np.eye(3), np.eye(3)[:1], H=np.eye(1))
    kalman = qe.Kalman(lss, np.zeros(3), np.eye(3))
    kalman.update(1.0)
    return kalman.Sigma


def stationary(x):
    P = np.array([[1 - x[0], x[0]], [x[1], 1 - x[1]]])
    return qe.MarkovChain(P).stationary_distributions[0]


def arma(x):
    return qe.ARMA(x[0], x[1]).impulse_response(6)


def hamilton(x):
    return qe.hamilton_filter(x, 2, 2)[0][4:]


CALLS = [
    (lyapunov, A), (riccati, A), (linear_quadratic, A), (gini, np.array([1.0, 2.0, 4.0])), (kalman, A),
    (stationary, np.array([0.2, 0.4])),
    (arma, np.array([0.5, 0.3])), (hamilton, rng.normal(size=20)),
]  # fmt: skip
