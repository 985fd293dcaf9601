"""Calls of scipy.spatial.distance, as users write them: see public_calls.py."""

import numpy as np
import scipy.spatial
import scipy.spatial.distance as s
from public_calls import table

CALLS, t = table()
rng = np.random.default_rng(0)
A = rng.normal(size=(4, 3))
B = rng.normal(size=(5, 3))
w = np.array([0.5, 1.0, 2.0])
P = rng.uniform(0.1, 1, size=(4, 3))
Q = rng.uniform(0.1, 1, size=(5, 3))
for m in (
    "euclidean",
    "sqeuclidean",
    "cityblock",
    "chebyshev",
    "canberra",
    "braycurtis",
    "cosine",
    "correlation",
    "minkowski",
    "seuclidean",
    "mahalanobis",
):
    X, Y = (P, Q) if m == "braycurtis" else (A, B)
    t("cdist " + m, lambda a, b, m=m: scipy.spatial.distance.cdist(a, b, m), X, Y, h=1e-4, rtol=1e-6, order=2)
    t("pdist " + m, lambda a, m=m: s.pdist(a, m), np.concatenate([X, Y]), h=1e-4, rtol=1e-6)
    if m not in ("seuclidean", "mahalanobis", "minkowski"):
        t("f " + m, lambda a, b, m=m: getattr(s, m)(a, b), X[0].copy(), Y[0].copy(), h=1e-4, rtol=1e-6)
        t(
            "fw " + m,
            lambda a, b, w, m=m: getattr(s, m)(a, b, w),
            X[0].copy(),
            Y[0].copy(),
            w,
            h=1e-4,
            rtol=1e-6,
        )
        t("cw " + m, lambda a, b, m=m: s.cdist(a, b, m, w=w), X, Y, h=1e-4, rtol=1e-6)
t("mink 3", lambda a, b, w: s.cdist(a, b, "minkowski", p=3, w=w), A, B, w, h=1e-4, rtol=1e-6)
t("mink f", lambda a, b: s.minkowski(a, b, 1.5), A[0].copy(), B[0].copy(), h=1e-4, rtol=1e-6)
t("seu V", lambda a, b, V: s.cdist(a, b, "seuclidean", V=V), A, B, w)
t("mah VI", lambda a, b, V: s.cdist(a, b, "mahalanobis", VI=V), A, B, np.eye(3) * 2 + 0.1)
t("mah f", lambda a, b: s.mahalanobis(a, b, np.eye(3) * 2 + 0.1), A[0].copy(), B[0].copy())
t("seu f", lambda a, b: s.seuclidean(a, b, w), A[0].copy(), B[0].copy())
t("js", lambda a, b: s.cdist(a, b, "jensenshannon"), P, Q, h=1e-4, rtol=1e-6)
t("js f", lambda a, b: s.jensenshannon(a, b, 2.0), P[0].copy(), Q[0].copy(), h=1e-4, rtol=1e-6)
t("sq", lambda a: s.squareform(s.pdist(a)), A, h=1e-4, rtol=1e-6)
t("sq back", lambda a: s.squareform(s.squareform(a)), rng.uniform(size=6))
t("callable", lambda a, b: s.cdist(a, b, lambda u, v: ((u - v) ** 4).sum()), A, B)
t("callable scipy", lambda a, b: s.cdist(a, b, s.euclidean), A, B, h=1e-4, rtol=1e-6)
t("euc alias", lambda a, b: s.cdist(a, b, "l2" if 0 else "cityblock"), A, B)


def into_buffer(a, b):
    room = np.zeros((4, 5))
    s.cdist(a, b, "sqeuclidean", out=room)
    return room


t("cdist out", into_buffer, A, B)
