"""Tests of hypotheses about the parameters: Wald and likelihood ratio."""

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy
from numpy import ndarray
from scipy.special import chdtrc, ndtr

from ... import numpy as np
from ..._core.arrays import to_host
from ..._core.errors import ArgumentError
from ..._transforms.jacobian import jacobian
from .forecast import normal_quantile


@dataclass(frozen=True)
class HypothesisTest:
    """A statistic, the probability of a larger one if the hypothesis is true, and its degrees of freedom.

    The statistic is chi-squared in large samples, if the hypothesis is not at the bound of a constraint. That
    of `f_test` is F distributed, with `df_denom` in its denominator."""

    statistic: float
    p_value: float
    degrees: int
    df_denom: float | None = None

    @property
    def pvalue(self) -> float:
        """`p_value`, as statsmodels calls it."""
        return self.p_value


@dataclass(frozen=True)
class SeparateTests:
    """Of each restriction: `effect`, its value less what it is under the hypothesis; `sd`, the standard
    error; `statistic`, their ratio; `p_value`, the two-sided probability of a larger ratio."""

    effect: ndarray
    sd: ndarray

    @property
    def statistic(self) -> ndarray:
        return self.effect / self.sd

    tvalue = statistic

    @property
    def p_value(self) -> ndarray:
        return 2 * ndtr(-abs(self.statistic))

    pvalue = p_value

    def conf_int(self, alpha: float = 0.05) -> ndarray:
        """Return confidence limits of the effects, (r, 2)."""
        half = normal_quantile(alpha) * self.sd
        return numpy.stack([self.effect - half, self.effect + half], axis=1)


def t_test(fit, hypothesis, cov: str = "exact") -> SeparateTests:
    """Test each restriction by itself, by the normal distribution; arguments as for `wald_test`."""
    d, spread = _spread(fit, hypothesis, cov)
    return SeparateTests(d, numpy.sqrt(numpy.diag(spread)))


def f_test(fit, hypothesis, cov: str = "exact") -> HypothesisTest:
    """Test restrictions together by the F distribution; arguments as for `wald_test`."""
    found = wald_test(fit, hypothesis, cov)
    return replace(found, statistic=found.statistic / found.degrees, df_denom=numpy.inf)


def wald_test(fit: Any, hypothesis: Any, cov: str = "exact") -> HypothesisTest:
    """Test that restrictions of the parameters hold, by the estimates and their covariance.

    The statistic is d' (R V R')^-1 d, with the values d of the restrictions and their derivatives R.

    Parameters
    ----------
    hypothesis : dict, str, array, tuple or callable
        Values by name, ``{"ar.L1": 0.0}``, or equations, ``"ar.L1 + ar.L2 = 1, ma.L1 = 0"``. Or R, or
        (R, q), for R @ estimates = q. Or a function of `params` that is zero under the hypothesis, a
        number or several, linearised by exact derivatives.
    cov : {'exact', 'opg', 'robust'}
        The covariance of the estimates.
    """
    d, spread = _spread(fit, hypothesis, cov)
    scale = numpy.sqrt(numpy.diag(spread))
    if not scale.all() or numpy.linalg.eigvalsh(spread / numpy.outer(scale, scale))[0] < 1e-10:
        raise ArgumentError(
            "wald_test: the restrictions depend on each other; leave out those that follow from the others"
        )
    statistic = float(d @ numpy.linalg.solve(spread, d))
    return HypothesisTest(statistic, float(chdtrc(len(d), statistic)), len(d))


def _spread(fit, hypothesis, cov: str) -> tuple[ndarray, ndarray]:
    """Return the values d of restrictions, and their covariance R V R'."""
    d, R = _restrictions(fit, hypothesis)
    V = fit.cov(cov)
    unknown = numpy.isnan(numpy.diag(V))
    for i in numpy.flatnonzero(unknown & R.any(axis=0))[:1]:
        raise ArgumentError(
            f"wald_test: {fit.names[i]} is at the bound of its constraint, and has no standard error"
        )
    return d, R[:, ~unknown] @ V[numpy.ix_(~unknown, ~unknown)] @ R[:, ~unknown].T


def _restrictions(fit, hypothesis) -> tuple[ndarray, ndarray]:
    """Return the functions that are to be zero (r,), and their derivatives (r, k)."""
    k, names = len(fit.names), fit.names
    if isinstance(hypothesis, Mapping):
        for name in hypothesis:
            if name not in names:
                raise ArgumentError(
                    f"wald_test: {name!r} is not an estimated parameter; wanted one of {', '.join(names)}"
                )
        R = numpy.eye(k)[[names.index(name) for name in hypothesis]]
        return R @ fit.estimates - numpy.array(list(hypothesis.values()), float), R
    if callable(hypothesis):
        return _linearised(fit, hypothesis)
    if isinstance(hypothesis, str):
        values = equations(hypothesis, names)
        return values(fit.estimates), to_host(jacobian(values)(fit.estimates))
    R, q = hypothesis if isinstance(hypothesis, tuple) else (hypothesis, 0.0)
    R = numpy.atleast_2d(numpy.asarray(R, float))
    if R.shape[1] != k:
        raise ArgumentError(
            f"wald_test: R has shape {R.shape}; wanted a column for each of the {k} parameters {', '.join(names)}"
        )
    return R @ fit.estimates - q, R


ARITHMETIC = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def equations(text: str, names: list[str]) -> Callable:
    """Return the function from parameters (k,) to the left sides less the right sides of equations such as
    "ar.L1 + ar.L2 = 1, ma.L1 = 0"."""
    places = {f"_{i}": i for i in range(len(names))}
    known = sorted(range(len(names)), key=lambda i: -len(names[i]))
    pattern = "|".join([rf"(?<![\w.]){re.escape(names[i])}(?![\w.\[(])" for i in known])
    plain = re.sub(pattern, lambda found: f"_{names.index(found[0])}", text)

    def value(node, x):
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            return float(node.value)
        if isinstance(node, ast.Name) and node.id in places:
            return x[places[node.id]]
        if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
            return ARITHMETIC[type(node.op)](value(node.left, x), value(node.right, x))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -value(node.operand, x)
        raise ArgumentError(
            f"wald_test: {text!r}; wanted equations such as '{names[0]} = 0', with commas between them, of the "
            f"parameters {', '.join(names)} and numbers"
        )

    try:
        sides = [
            [
                ast.parse(side.strip(), mode="eval").body
                for side in (part if "=" in part else part + "= 0").split("=")
            ]
            for part in plain.split(",")
        ]
        if any(len(pair) != 2 for pair in sides):
            raise SyntaxError
    except SyntaxError:
        sides = [[ast.Tuple([]), ast.Tuple([])]]  # `value` refuses it
    return lambda x: np.stack([value(left, x) - value(right, x) for left, right in sides])


def _linearised(fit, f: Callable) -> tuple[ndarray, ndarray]:
    """Return the values of a function of the parameters, and its derivatives by them."""
    parameters = fit.problem.parameters
    u = fit.data.xp.asarray(fit.unconstrained)

    def values(u):
        found = f(parameters.tree(u))
        return np.stack(list(found)) if isinstance(found, (tuple, list)) else np.reshape(found, (-1,))

    by_free, J = to_host(jacobian(values)(u)), to_host(jacobian(parameters.flat)(u))
    held = [name in fit.at_bound for name in parameters.names]
    J[held] = numpy.eye(len(J))[held]
    return to_host(values(u)), numpy.linalg.solve(J.T, by_free.T).T[:, : len(fit.names)]


def likelihood_ratio_of(fit, restricted) -> HypothesisTest:
    """Test the restrictions of another fit to the same data."""
    same = numpy.array_equal(to_host(fit.data.raw), to_host(restricted.data.raw), equal_nan=True)
    if not same or fit.problem.used_up != restricted.problem.used_up:
        raise ArgumentError(
            "likelihood_ratio_test: the fits are of different data, or of different differences of them"
        )
    degrees = len(fit.names) - len(restricted.names)
    if degrees < 1:
        raise ArgumentError(
            f"likelihood_ratio_test: the other fit has {len(restricted.names)} parameters and this one "
            f"{len(fit.names)}; call it on the fit with more parameters"
        )
    statistic = 2 * (fit.loglik - restricted.loglik)
    if statistic < -1e-6 * max(1.0, abs(fit.loglik)):
        raise ArgumentError(
            f"likelihood_ratio_test: the fit with fewer parameters has the higher log-likelihood "
            f"({restricted.loglik:.6f} and "
            f"{fit.loglik:.6f}), so that it is no restriction of this one, or this one is no global maximum"
        )
    return HypothesisTest(max(statistic, 0.0), float(chdtrc(degrees, max(statistic, 0.0))), degrees)
