"""A program of a user, fully typed: a Poisson regression, its standard errors, checks and a picture of what
was recorded."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

import tapegrad as tg

Floats = npt.NDArray[np.float64]


@dataclass
class Sample:
    regressors: Floats
    counts: Floats


def loss(beta: Floats, sample: Sample) -> float:
    eta = sample.regressors @ beta
    return float_of(np.exp(eta) - sample.counts * eta + gammaln(sample.counts + 1.0))


def float_of(terms: Floats) -> float:
    total: float = terms.sum()
    return total


def fitted(sample: Sample) -> tuple[Floats, Floats]:
    """Estimates and standard errors."""
    beta = np.zeros(sample.regressors.shape[1])
    gradient, hessian = tg.grad(loss), tg.hessian(loss)
    for _ in range(20):
        beta = beta - np.linalg.solve(hessian(beta, sample), gradient(beta, sample))
    return beta, np.sqrt(np.diag(np.linalg.inv(hessian(beta, sample))))


def main() -> None:
    rng = np.random.default_rng(0)
    regressors = np.column_stack([np.ones(400), rng.standard_normal(400)])
    sample = Sample(regressors, rng.poisson(np.exp(regressors @ [0.5, -0.3])).astype(float))
    beta, errors = fitted(sample)
    value, gradient = tg.value_and_grad(loss)(beta, sample)
    assert np.abs(gradient).max() < 1e-8 and value < loss(np.zeros(2), sample)
    assert (np.abs(beta - [0.5, -0.3]) < 4 * errors).all()
    report = tg.audit(loss, beta, tg.Const(sample), argnums=0)
    assert report.ok, report
    print(
        tg.profile(loss, beta, tg.Const(sample), argnums=0).kept,
        tg.graph(loss, beta, tg.Const(sample)).svg()[:4],
    )


if __name__ == "__main__":
    main()
