"""The log-likelihood of a linear Gaussian state space model with one number observed at a step.

    x[0] ~ N(m0, P0)       y[t] = c . x[t] + e[t],  e[t] ~ N(0, r)       x[t + 1] = A x[t] + q[t],  q[t] ~
    N(0, Q)

    model = kalman.Model(A, c, Q, r, m0, P0)
    kalman.loglik(model, y)                    (B,)
    kalman.loglik.value_and_grad(model, y)     (B,), and a Model of the gradients of each sample

m0 and P0 are those of the first observation's state, before it is seen.  Shapes: A (k, k), c (k,), Q (k, k),
r (), m0 (k,), P0 (k, k); each with an axis B of samples at the end, where the samples have their own; A, c, Q
and r also with an axis T of steps in front of these two: (T, k, k, B) or (T, k, k, 1).  A[t], Q[t] lead from
step t to t + 1.  y (T,) or (T, B); nan is missing.  Of Q and P0 the symmetric part counts, and their
gradients are symmetric.  k is 1 to 8.

Source: Durbin and Koopman, Time Series Analysis by State Space Methods, sections 4.3 and 7.2.

>>> import numpy as np, tapegrad as tg
>>> one = np.ones((1, 1))
>>> walk = tg.kernels.kalman.Model(A=one, c=np.ones(1), Q=one, r=np.array([1.0, 2.0]), m0=np.zeros(1), P0=one)
>>> value, gradient = tg.kernels.kalman.loglik.value_and_grad(walk, np.array([1.0, np.nan, 3.0]))
>>> value.round(4), gradient.r.round(4)
(array([-3.9537, -4.086 ]), array([-0.1633, -0.1122]))
"""

from typing import Any, NamedTuple

from .filters import Filter


class Model(NamedTuple):
    """The arguments of `loglik`, and the form of its gradients."""

    A: Any
    c: Any
    Q: Any
    r: Any
    m0: Any
    P0: Any


loglik = Filter("kalman", Model, "k", "")
