"""Laplace's method against R's TMB: three models, whose references `tmb/models.R` computed once."""

import csv
import math
import pathlib

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

import tapegrad as tg

HERE = pathlib.Path(__file__).parent / "tmb"


def read(name):
    found = {}
    with open(HERE / name) as file:
        for row in csv.DictReader(file):
            found.setdefault((int(row["model"]), row["name"]), []).append(float(row["value"]))
    return {key: np.array(v) for key, v in found.items()}


DATA, REFERENCES = read("data.csv"), read("references.csv")
LOG_2PI = math.log(2 * math.pi)
SIDE, LEVELS = 8, 15
T = scipy.sparse.diags_array([-np.ones(SIDE - 1), np.full(SIDE, 2.0), -np.ones(SIDE - 1)], offsets=[-1, 0, 1])
EYE = scipy.sparse.eye_array(SIDE)
LAPLACIAN = (scipy.sparse.kron(T, EYE) + scipy.sparse.kron(EYE, T)).tocsr()
FIRST, SECOND = DATA[3, "first"].astype(int), DATA[3, "second"].astype(int)
LOG_FACTORIALS = {m: np.array([math.lgamma(v + 1) for v in DATA[m, "y"]]).sum() for m in (1, 2)}


def normal(e, s):
    return -0.5 * ((e / s) ** 2).sum() - e.size * (np.log(s) + 0.5 * LOG_2PI)


def autoregression(th, z, y):
    phi, s = np.tanh(th[0]), np.exp(th[1])
    prior = normal(z[:1], s / np.sqrt(1 - phi**2)) + normal(z[1:] - phi * z[:-1], s)
    return prior + (y * (th[2] + z) - np.exp(th[2] + z)).sum() - LOG_FACTORIALS[1]


def field(th, z, y):
    Q = np.exp(th[0]) * (LAPLACIAN + np.exp(th[1]) * scipy.sparse.eye_array(SIDE**2))
    prior = 0.5 * tg.sparse.cholesky(Q).logdet() - 0.5 * z @ (Q @ z) - 0.5 * SIDE**2 * LOG_2PI
    return prior + (y * (th[2] + z) - np.exp(th[2] + z)).sum() - LOG_FACTORIALS[2]


def crossed(th, z, y):
    eta = th[2] + z[FIRST] + z[LEVELS + SECOND]
    prior = normal(z[:LEVELS], np.exp(th[0])) + normal(z[LEVELS:], np.exp(th[1]))
    return prior + (y * eta - np.logaddexp(0.0, eta)).sum()


MODELS = {1: autoregression, 2: field, 3: crossed}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("number", MODELS)
def test_laplace_is_that_of_tmb(number):
    """Value, gradient, modes and their errors at one point; estimates and their errors at the maximum."""
    known = {name: v for (m, name), v in REFERENCES.items() if m == number}
    y, theta = DATA[number, "y"], DATA[number, "theta"]
    marginal = tg.sparse.prepare_laplace(MODELS[number], theta, np.zeros(known["mode"].size), y)
    value, (mode, errors) = marginal(theta, has_aux=True)
    np.testing.assert_allclose(value, known["value"][0], rtol=1e-11)
    np.testing.assert_allclose(mode, known["mode"], rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(errors, known["errors"], rtol=1e-8)
    np.testing.assert_allclose(tg.grad(marginal)(theta), known["gradient"], rtol=1e-8, atol=1e-8)
    value_and_grad = tg.value_and_grad(lambda th: -marginal(th))
    fit = scipy.optimize.minimize(value_and_grad, theta, jac=True, options={"gtol": 1e-9})
    np.testing.assert_allclose(fit.x, known["estimates"], rtol=1e-6, atol=1e-6)
    cov = np.linalg.inv(-tg.hessian(marginal)(fit.x))
    # TMB differentiates its gradient by differences
    np.testing.assert_allclose(np.sqrt(np.diag(cov)), known["estimates_errors"], rtol=1e-4)
