"""The log-likelihood of a linear Gaussian state space model with several numbers observed at a step.

    x[0] ~ N(m0, P0)       y[t] = C x[t] + e[t],  e[t] ~ N(0, R)       x[t + 1] = A x[t] + q[t],  q[t] ~ N(0,
    Q)

    model = kalman_vector.Model(A, C, Q, R, m0, P0)
    kalman_vector.loglik(model, y)                    (B,)
    kalman_vector.loglik.value_and_grad(model, y)     (B,), and a Model of the gradients of each sample

As `kalman`, but for C (d, k), R (d, d), of which the symmetric part counts, and y (d, T) or (d, T, B), in
which any element may be nan: the others at that step are used.  k is 1 to 8, d 1 to 4.

Source: Durbin and Koopman, Time Series Analysis by State Space Methods, sections 4.3, 4.10 and 7.2.

>>> import numpy as np, tapegrad as tg
>>> one = np.ones((1, 1))
>>> walk = tg.kernels.kalman_vector.Model(A=one, C=np.ones((2, 1)), Q=one, R=np.eye(2), m0=np.zeros(1), P0=one)
>>> value, gradient = tg.kernels.kalman_vector.loglik.value_and_grad(walk, np.array([[1.0, np.nan, 3.0], [2.0, 1.0, 2.0]]))
>>> gradient.R.round(4)
array([[-0.2955,  0.2218],
       [ 0.2218, -0.4685]])
"""

from typing import Any, NamedTuple

from .filters import Filter


class Model(NamedTuple):
    """The arguments of `loglik`, and the form of its gradients."""

    A: Any
    C: Any
    Q: Any
    R: Any
    m0: Any
    P0: Any


loglik = Filter("kalman_vector", Model, "dk", "dd")
