"""Legendre functions, of one degree and order or as tables up to given ones; functions of the second
kind; spherical harmonics.

Degrees and orders are integer constants."""

from typing import Any

import numpy as np
import scipy.special as sp

from ..._core.arrays import xp_of
from ..._core.primitive import primal_of
from ..elementwise import exp, select
from ..shaping import stack
from .declare import implements_special, library_function, special_function
from .gamma import factorial
from .orthogonal_polynomials import DEGREE, eval_gegenbauer, eval_legendre, half_by_side, sph_harm_y_of


def table_orders(m):
    """The orders 0, 1, .., m, -m, .., -1 of SciPy's tables."""
    m = int(primal_of(m))
    return np.concatenate([np.arange(m + 1), np.arange(-m, 0)])


def broadcast_degrees(ns, *xs):
    """Integers with additional axes of length 1 for those of the arguments."""
    return np.reshape(ns, (*np.shape(ns), *(1,) * max(np.ndim(x) for x in xs)))


def degrees(n, *xs):
    return broadcast_degrees(np.arange(int(primal_of(n)) + 1), *xs)


def degree_and_order(n, m, *xs):
    return broadcast_degrees(np.arange(int(primal_of(n)) + 1)[:, None], *xs), broadcast_degrees(
        table_orders(m), *xs
    )


# --- on the line: P_n, and P_n^m on either side of its cuts ---


def legendre_slope(n, z, k):
    """The derivative of order k of P_n: (2 k - 1)!! C_(n-k)^(k + 1/2)."""
    n = primal_of(n) * 1.0
    if k == 0:
        return eval_legendre(n, z)
    below = n < k
    return select(below, 0.0, np.prod(np.arange(1.0, 2 * k, 2))) * eval_gegenbauer(
        np.where(below, 0.0, n - k), k + 0.5, z
    )


@implements_special(sp.legendre_p)
def legendre_p(n, z, *, diff_n=0):
    return stack([legendre_slope(n, z, k) for k in range(diff_n + 1)])


@implements_special(sp.legendre_p_all)
def legendre_p_all(n, z, *, diff_n=0):
    return legendre_p(degrees(n, z), z, diff_n=diff_n)


def degree_recurrence(out, n, m, z, f):
    """From (z^2 - 1) P' = n z P - (n + m) P of the degree below."""
    n, m = primal_of(n), primal_of(m)
    return (n * z * out - (n + m) * f(np.where(n > 0, n - 1, 0), m, z)) / (z * z - 1.0)


def associated(cut):
    f = special_function(
        None,
        DEGREE,
        DEGREE,
        lambda out, n, m, z: degree_recurrence(out, n, m, z, f),
        body=lambda n, m, z: sp.assoc_legendre_p(n, m, z, branch_cut=cut)[0],
        name=f"associated_legendre_{cut}",
    )
    return f


ASSOCIATED = {cut: associated(cut) for cut in (2, 3)}


def normalisation(n, m):
    """The factor that makes the functions of one order orthonormal. It is 0 for orders beyond the degree,
    where they vanish."""
    n, m = primal_of(n) * 1.0, primal_of(m) * 1.0
    inside = abs(m) <= n
    ratio = factorial(np.where(inside, n - m, 0.0)) / factorial(np.where(inside, n + m, 0.0))
    return np.where(inside, np.sqrt((n + 0.5) * ratio), 0.0)


@implements_special(sp.assoc_legendre_p)
def assoc_legendre_p(n, m, z, *, branch_cut=2, norm=False, diff_n=0):
    """The second derivative follows from Legendre's equation."""
    f = ASSOCIATED[int(branch_cut)]
    parts = [f(n, m, z)]
    if diff_n > 0:
        parts.append(degree_recurrence(parts[0], n, m, z, f))
    if diff_n > 1:
        n_, m_, rest = primal_of(n), primal_of(m), 1.0 - z * z
        parts.append((2.0 * z * parts[1] - (n_ * (n_ + 1.0) - m_ * m_ / rest) * parts[0]) / rest)
    return stack(parts) * (normalisation(n, m) if norm else 1.0)


@implements_special(sp.assoc_legendre_p_all)
def assoc_legendre_p_all(n, m, z, *, branch_cut=2, norm=False, diff_n=0):
    return assoc_legendre_p(*degree_and_order(n, m, z), z, branch_cut=branch_cut, norm=norm, diff_n=diff_n)


# --- on the sphere: the ladder operators need no division ---


def ladder(f, n, m, theta, k):
    """The derivative of order k with respect to theta."""
    if k == 0:
        return f(n, m, theta)
    up, down = [np.sqrt(np.maximum((n - s * m) * (n + s * m + 1.0), 0.0)) for s in (1, -1)]
    raised, lowered = [ladder(f, n, m + s, theta, k - 1) for s in (1, -1)]
    return half_by_side(theta) * (up * raised - down * lowered)


def on_sphere(n, m, theta):
    """From the harmonics, the only function that CuPy has; they are nan for orders beyond the degree."""
    cp = xp_of(theta)
    if cp is np:
        return sp.sph_legendre_p(n, m, theta)[0]
    inside = cp.asarray(abs(m) <= n)
    return cp.where(inside, library_function(sp.sph_harm_y)(n, m * inside, theta, 0.0 * theta).real, 0.0)


sph_legendre_of: Any = special_function(
    None,
    DEGREE,
    DEGREE,
    lambda out, n, m, theta: ladder(sph_legendre_of, primal_of(n), primal_of(m), theta, 1),
    body=on_sphere,
    name="sph_legendre_of",
)


@implements_special(sp.sph_legendre_p)
def sph_legendre_p(n, m, theta, *, diff_n=0):
    n, m = primal_of(n), primal_of(m)
    return stack([ladder(sph_legendre_of, n, m, theta, k) for k in range(diff_n + 1)])


@implements_special(sp.sph_legendre_p_all)
def sph_legendre_p_all(n, m, theta, *, diff_n=0):
    return sph_legendre_p(*degree_and_order(n, m, theta), theta, diff_n=diff_n)


@implements_special(sp.sph_harm_y)
def sph_harm_y(n, m, theta, phi, *, diff_n=0):
    """The spherical harmonic, with its gradient and Hessian with respect to (theta, phi)."""
    n, m = primal_of(n), primal_of(m)
    value = sph_harm_y_of(n, m, theta, phi)
    if diff_n == 0:
        return value
    turn = exp(1j * phi)
    y = [
        ladder(lambda n, k, t: sph_legendre_of(n, k, t), n, m, theta, k) * turn**m for k in range(diff_n + 1)
    ]
    first = stack([y[1], 1j * m * y[0]], -1)
    if diff_n == 1:
        return value, first
    mixed = 1j * m * y[1]
    return value, first, stack([stack([y[2], mixed], -1), stack([mixed, -m * m * y[0]], -1)], -1)


@implements_special(sp.sph_harm_y_all)
def sph_harm_y_all(n, m, theta, phi, *, diff_n=0):
    return sph_harm_y(*degree_and_order(n, m, theta, phi), theta, phi, diff_n=diff_n)


# --- of the second kind: tables of values and slopes ---


def second_kind(table, name, at):
    """Values and derivatives at one place of SciPy's tables, as the operations (q, dq) of (m, n, z). (1 -
    z^2) q'' = 2 z q' - (n (n + 1) - m^2 / (1 - z^2)) q."""

    def body(part):
        def of(m, n, z):
            m, n, z = np.broadcast_arrays(m, n, z)
            y = np.empty(z.shape, np.result_type(z, 0.0))
            for i in np.ndindex(*z.shape):
                y[i] = at(table, int(m[i]), int(n[i]), z[i])[part]
            return y[()]

        return of

    def second(out, m, n, z):
        m, n, rest = primal_of(m), primal_of(n), 1.0 - z * z
        return (2.0 * z * out - (n * (n + 1.0) - m * m / rest) * q(m, n, z)) / rest

    q = special_function(None, DEGREE, DEGREE, lambda out, m, n, z: dq(m, n, z), body=body(0), name=name)
    dq = special_function(None, DEGREE, DEGREE, second, body=body(1), name=name + "_slope", public=name)
    return q, dq


# SciPy's short tables begin with zeros where z > 1
lqn_of = second_kind(sp.lqn, "lqn_of", lambda f, m, n, z: [t[n] for t in f(max(n, 2), z)])
lqmn_of = second_kind(sp.lqmn, "lqmn_of", lambda f, m, n, z: [t[m, n] for t in f(max(m, 2), max(n, 2), z)])


@implements_special(sp.lqn)
def lqn(n, z):
    return tuple([f(0, degrees(n, z), z) for f in lqn_of])


@implements_special(sp.lqmn)
def lqmn(m, n, z):
    m, n = broadcast_degrees(np.arange(int(m) + 1)[:, None], z), degrees(n, z)
    return tuple([f(m, n, z) for f in lqmn_of])
