"""Lines of NumPy's names that are declared on first use, for tests/ops/test_scipy_names.py."""

import numpy as np
from cases import case, distinct, normal

from tapegrad import numpy as face

X3, X4, X5 = normal(3), normal(4), normal(5)
D5, D4 = distinct(5), distinct(4)


def line(name, f, *inputs, **options):
    return case(name, f, *inputs, numpy_only=True, **options)


LINES = [
    line("poly", lambda z: np.poly(z), X4),
    line("poly of a matrix", lambda a: np.poly(a), normal(3, 3), rtol=1e-7),
    line("roots", lambda p: abs(np.roots(p)) ** 2, 1 + abs(X4), rtol=1e-7, covers=("simple_roots",)),
    line("polyadd", lambda a, b: np.polyadd(a, b) ** 2, X3, X5),
    line("polysub", lambda a, b: np.polysub(a, b) ** 2, X5, X3),
    line("polymul", lambda a, b: np.polymul(a, b), X5, X3),
    line("polydiv", lambda a, b: np.polydiv(a, b), X5, 1 + abs(X3)),
    line("polyder", lambda p: np.polyder(p, 2) ** 2, X5),
    line("polyint", lambda p, k: np.polyint(p, 2, k) ** 2, X3, X5[:2]),
    line("polyfit", lambda x, y: np.polyfit(x, y, 2), D5, X5, rtol=1e-6),
    line(
        "polyfit weights", lambda x, y, w: np.polyfit(x, y, 1, w=w, cov=True), D5, X5, 1 + abs(X5), rtol=1e-6
    ),
    line("kaiser", lambda b: face.kaiser(6, b), abs(X3[:1])[0] + 1),
    line("unwrap options", lambda p, t: np.unwrap(5 * p, 1.3, period=t) ** 2, X5, np.array(1.1)),
    line(
        "histogramdd",
        lambda x, w: np.histogramdd(x, [3, np.array([-2.0, 0.0, 3.0])], density=True, weights=w * w),
        normal(4, 2),
        X4,
    ),
    line("histogram2d", lambda x, y, w: np.histogram2d(x, y, 3, weights=w * w), D5, distinct(5, seed=1), X5),
    line("unwrap", lambda p: np.unwrap(5 * p) ** 2, X5),
    line("union1d", lambda a, b: np.union1d(a, b) ** 2, D5, D4 + 0.05),
    line("setdiff1d", lambda a: np.setdiff1d(a, D5[:2] + 0.05) ** 2, D5),
    line("setxor1d", lambda a, b: np.setxor1d(a, b) ** 2, D5, D4 + 0.05),
    *[
        line(f, lambda x, f=f: tuple(getattr(face, f)(x))[0] ** 2, D5)
        for f in ("unique_counts", "unique_inverse", "unique_all")
    ],
    line("unique_values", lambda x: face.unique_values(x) ** 2, D5),
    line("intersect1d", lambda x: np.intersect1d(x, x[:3]) ** 2, D5),
]
