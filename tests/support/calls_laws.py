"""Calls of scipy.stats' functions that make laws of laws, and of its estimates from censored samples, as users
write them: see public_calls.py."""

import numpy as np
import scipy.stats as s
from public_calls import cat, table

CALLS, t = table(by_values=("ecdf", "logrank"))
z = np.array([0.3, 1.1])
sample, other = np.array([0.4, 2.1, 1.3, 0.9, 3.2]), np.array([1.1, 0.2, 2.6, 1.9])

normal = lambda p: s.Normal(mu=p[0], sigma=p[1])
t(
    "truncate",
    lambda p: cat(s.truncate(normal(p), 0.2, 2.5).logpdf(0.7), s.truncate(normal(p), p[0], 2.0).pdf(0.9)),
    z,
)
t("abs", lambda p: cat(s.abs(normal(p)).logpdf(0.7), s.abs(normal(p)).cdf(0.7)), z)
t("exp", lambda p: cat(s.exp(normal(p)).logcdf(0.7), s.exp(normal(p)).pdf(p[1])), z)
t("log", lambda p: s.log(s.Uniform(a=p[0], b=p[1])).cdf(np.log(np.array([0.4, 0.7]))), z)
t("order_statistic", lambda p: s.order_statistic(normal(p), r=2, n=4).logpdf(p[1] / 4), z)
t("ecdf", lambda x: s.ecdf(x).cdf.quantiles ** 2, sample)
t("logrank", lambda x, y: s.logrank(x, y).statistic * np.sum(x * y[0]), sample, other)
