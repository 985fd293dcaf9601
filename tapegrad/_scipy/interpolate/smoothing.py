"""Smoothing splines: FITPACK chooses the knots among the nodes, and how much it smooths so that the squares
of the residuals add up to s.

For knots that stay, c minimises |G c - y|^2 + q |D c|^2, with G the B-splines at the nodes and D the jumps of
their highest derivatives; q is the number for which the first term is what it is at SciPy's solution, by the
theorem of implicit functions."""

import inspect

import numpy as plain_np
import scipy.interpolate as itp
import scipy.optimize

from ... import numpy as np
from ...ops.declare import ndim, shape
from ..namespaces import as_float_array, bare, holds_tracked, refusal_text, with_derivative_of
from .piecewise import FOLLOWED, INTERPOLATE, BSpline, differentiated, dtype_like, trailing
from .splines import collocation

SMOOTHING_NEWTON_ROUNDS = 3  # of Newton's method: each has the derivatives of one order more


def knots_among(t, x):
    """The knots as functions of the nodes, or of the middles between two, on which they lie."""
    if not holds_tracked(x):
        return t
    nodes = np.concatenate([x, 0.5 * (x[1:] + x[:-1])])
    apart = plain_np.abs(t[:, None] - bare(nodes)[None, :])
    at = apart.argmin(1)
    far = plain_np.take_along_axis(apart, at[:, None], 1)[:, 0] > 1e-12 * max(1.0, float(abs(t).max()))
    return np.where(far, t, np.take(nodes, at))


def smoothed(x, y, w, t, k: int, c, s=None) -> tuple:
    """(knots, coefficients): SciPy's, as functions of the nodes, the data (nodes first) and the weights."""
    like = dtype_like(x, y, w, s)
    x, y = as_float_array(x, like), as_float_array(y, like)
    T = knots_among(t, x)
    n, wide = len(t) - k - 1, ndim(y) - 1
    weights = plain_np.ones(shape(x)) if w is None else as_float_array(w, like)
    G, Y = (
        trailing(weights, 1) * collocation(T, x, k),
        np.reshape(trailing(weights, wide) * y, (shape(x)[0], -1)),
    )
    c = plain_np.reshape(c[:n], (n, -1))
    if n == shape(x)[0]:
        found = np.linalg.solve(G, Y)
    elif n == k + 1:
        found = np.linalg.solve(G.T @ G, G.T @ Y)
    else:
        D = differentiated(T, plain_np.eye(n), k, k)[1]
        D = D[1:] - D[:-1]
        found = penalised(G, Y, D, c, s)
    return T, np.reshape(with_derivative_of(c, found), (n, *shape(y)[1:]))


def penalised(G, Y, D, c, s):
    A, R, P = G.T @ G, G.T @ Y, D.T @ D

    def squares(c):
        d = G @ c - Y
        return np.sum(d * d)

    def solution(q):
        return np.linalg.solve(A + q * P, R)

    size = float(bare(squares(c)))
    a, r, p, g, y = [bare(v) for v in (A, R, P, G, Y)]
    scale = float(plain_np.trace(a) / plain_np.trace(p))
    off = lambda u: float(((g @ plain_np.linalg.solve(a + scale * 10.0**u * p, r) - y) ** 2).sum()) - size
    if not off(-14) < 0 < off(10):
        raise refusal_text(
            "scipy.interpolate: a smoothing spline",
            "of this s",
            "make_smoothing_spline(lam=), or given knots",
        )
    q = plain_np.float64(scale * 10.0 ** scipy.optimize.brentq(off, -14, 10, xtol=1e-14))
    d = -plain_np.linalg.solve(a + q * p, p @ (now := plain_np.linalg.solve(a + q * p, r)))
    slope = float(2 * plain_np.sum((g @ now - y) * (g @ d)))
    want = size if s is None else with_derivative_of(size, s)
    for _ in range(SMOOTHING_NEWTON_ROUNDS):
        q = q - (squares(solution(q)) - want) / slope
    return solution(q)


def smoothing_spline(x, y, w=None, xb=None, xe=None, k=3, s=0, t=None, nest=None, periodic=False, xp=None):
    """What make_splrep and make_splprep share.  (SciPy before 1.16 knows no `periodic`, and takes some of
    these by name alone.)"""
    if periodic:
        raise refusal_text(
            "scipy.interpolate.make_splrep(bc_type='periodic')", "", "make_interp_spline(bc_type='periodic')"
        )
    theirs = itp.make_splrep.__globals__["_make_splrep_impl"]
    more = {"periodic": False} if "periodic" in inspect.signature(theirs).parameters else {}
    found = theirs(
        bare(x),
        bare(y),
        w=bare(w),
        xb=bare(xb),
        xe=bare(xe),
        k=k,
        s=float(bare(s)),
        t=bare(t),
        nest=nest,
        **more,
    )
    return BSpline._made(*smoothed(x, y, w, found.t, k, found.c, s if holds_tracked(s) else None), k)


FOLLOWED.leaf(itp.make_splrep.__globals__["_make_splrep_impl"], smoothing_spline)


def generate_knots(x, y, *, w=None, xb=None, xe=None, k=3, s=0, nest=None, **settings):
    nodes = as_float_array(x, dtype_like(x, y, w))
    for t in itp.generate_knots(
        *[bare(v) for v in (x, y)],
        w=bare(w),
        xb=bare(xb),
        xe=bare(xe),
        k=k,
        s=float(bare(s)),
        nest=nest,
        **settings,
    ):
        yield knots_among(t, nodes)


INTERPOLATE.rule(itp.generate_knots)(generate_knots)
