"""Lines of scipy.stats for tests/ops/test_scipy_names.py: operations that its families are made of; the
families: test_distributions.py."""

import numpy as np
from cases import between, case, positive

from tapegrad import stats

U, P = between(0.1, 0.9, 3), positive(3)

LINES = [
    case(
        "scipys_law", lambda a: stats.dirichlet.logpdf(np.array([0.2, 0.5, 0.3]), a), 1.0 + P, numpy_only=True
    ),
    case("scipys_where_uncertain", lambda x: stats.lognorm.cdf(np.append(x, 0.0), 0.9), P, numpy_only=True),
    case("quantiles", lambda q, df: stats.t.ppf(q, df), U, 2 + P, numpy_only=True, order=2, rtol=1e-6),
    case(
        "quantiles from the right",
        lambda q, a: stats.skewnorm.isf(q, a),
        U,
        P,
        numpy_only=True,
        order=2,
        rtol=1e-6,
    ),
]
