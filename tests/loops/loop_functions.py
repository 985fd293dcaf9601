"""Functions of Numba's with loops, and arguments for them: the cases of several tests."""

import numpy as np
from numba import njit, prange

SCALE = 0.75
TABLE = np.array([0.5, -1.0, 2.0, 0.25])


@njit
def lap(u, i, j):
    return u[i + 1, j] + u[i - 1, j] + u[i, j + 1] + u[i, j - 1] - 4.0 * u[i, j]


@njit
def wave(u, v, c2, dt, nt):
    n, m = u.shape
    for _ in range(nt):
        for i in prange(1, n - 1):
            for j in range(1, m - 1):
                v[i, j] += dt * c2[i, j] * lap(u, i, j)
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                u[i, j] += dt * v[i, j]
    s = 0.0
    for i in prange(n):
        for j in range(m):
            s += u[i, j] ** 2 if u[i, j] > 0.0 else SCALE * u[i, j]
    return s


@njit
def heat(u, un, k, nt):
    n, m = u.shape
    for _ in range(nt):
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                un[i, j] = u[i, j] + k * u[i, j] * lap(u, i, j)
        u, un = un, u
    s = 0.0
    for i in range(n):
        for j in range(m):
            s += u[i, j] ** 2
    return s


@njit
def newton(a, x):
    k = 0
    while k < 50 and abs(x * x - a) > 1e-13:
        x = 0.5 * (x + a / x)
        k += 1
    return x


@njit
def gauss_seidel(u, b, n):
    for _ in range(n):
        for i in range(1, u.shape[0] - 1):
            u[i] = 0.5 * (u[i - 1] * u[i + 1] + b[i])
    s = 0.0
    for i in range(u.shape[0]):
        s += u[i] ** 2
    return s


@njit
def prefix(x, y):
    for i in range(1, x.shape[0]):
        y[i] = y[i - 1] * 0.5 + x[i] * x[i] * y[i - 1]
    return y[-1] * y[2]


@njit
def thomas(a, d, c, r):
    n = d.shape[0]
    for k in range(1, n):
        w = a[k] / d[k - 1]
        d[k] = d[k] - w * c[k - 1]
        r[k] = r[k] - w * r[k - 1]
    r[n - 1] = r[n - 1] / d[n - 1]
    for k in range(n - 2, -1, -1):
        r[k] = (r[k] - c[k] * r[k + 1]) / d[k]
    s = 0.0
    for k in range(n):
        s += r[k] * r[k] * (k + 1)
    return s


@njit
def histogram(x, w, idx, h):
    for k in range(x.shape[0]):
        h[idx[k]] += w[k] * x[k] * x[k]
    s = 0.0
    for j in range(h.shape[0]):
        s += np.sin(h[j])
    return s


PLACES = np.array([0, 2, 2, 1, 0, -3, 1, 2])


def histogram_of(x, w, h):
    return histogram(x, w, PLACES, h)


@njit
def leapfrog(q, p, k, dt, tmax):
    t = 0.0
    e = 0.0
    while t < tmax:
        p[0] -= 0.5 * dt * k * np.sin(q[0])
        q[0] += dt * p[0]
        p[0] -= 0.5 * dt * k * np.sin(q[0])
        e += p[0] * q[0]
        t += 0.1
    return e + q[0] * p[0]


@njit
def early_store(u, b, n):
    for k in range(n):
        u[0] = u[0] * b[k]
        for i in range(1, u.shape[0]):
            u[i] = u[i] + u[0] * u[i] * 0.1
    s = 0.0
    for i in range(u.shape[0]):
        s += u[i] ** 2
    return s


@njit
def nbody(x, v, m, dt, nt):
    n = x.shape[0]
    for _ in range(nt):
        for i in range(n):
            a = 0.0
            for j in range(n):
                d = x[j] - x[i]
                r = np.sqrt(d * d + 0.01)
                a += m[j] * d / (r * r * r)
            v[i] += dt * a
        for i in range(n):
            x[i] += dt * v[i]
    s = 0.0
    for i in range(n):
        s += x[i] * v[i]
    return s


@njit
def first_large(x, y):
    """A loop with `break`, an index that is used after it, and a loop with `continue`."""
    at = 0
    for k in range(x.shape[0]):
        if x[k] > 1.2:
            break
        at = k
        y[k] *= x[k]
    s = 0.0
    for k in range(x.shape[0] - 1, -1, -2):
        if k == at:
            continue
        s += y[k] * x[k]
    return s + x[at] ** 3


@njit
def early_return(x, t):
    s = 0.0
    for k in range(x.shape[0]):
        s += np.exp(x[k])
        if s > t:
            return s * x[k]
    return s / 2.0


@njit
def guarded(x, y):
    s = 0.0
    for k in range(x.shape[0]):
        s += y[k] / x[k] if x[k] != 0.0 else y[k] * y[k]
        if x[k] > 0.0:
            s += np.log(x[k])
    return s


@njit
def powers(x, y):
    s = 0.0
    for k in range(x.shape[0]):
        s += (
            x[k] ** 3
            + x[k] ** -2
            + x[k] ** 0.5
            + abs(y[k]) ** x[k]
            + np.arctan2(x[k], y[k])
            + TABLE[k % 4] * y[k] % 0.7
        )
        s += max(x[k], y[k]) - min(x[k], y[k], 0.3) + np.hypot(x[k], y[k]) + np.tanh(x[k]) * np.floor(y[k])
    return s


@njit
def new_array(x, n):
    y = np.zeros(n)
    w = np.ones_like(x)
    for k in range(n):
        z = np.empty(3)
        z[0], z[1], z[2] = x[k % x.shape[0]], 2.0, 0.0
        for j in range(3):
            y[k] += z[j] * z[j] * x[j] * w[j]
        w[k % 4] = y[k]
    return y, w[0]


def new_array_of(x, n):
    y, z = new_array(x, n)
    return (y * y).sum() + z**2


@njit
def expressions(u, v, dt, nt):
    for _ in range(nt):
        u[1:-1] += dt * v[1:-1] * np.exp(-u[2:])
        v[:-1] = 0.5 * (v[1:] + v[:-1])
        row = u[2:5]
        row[0] = row[1] * row[-1]
    return (u * v).sum() + np.sum(u[::1])


@njit
def rows(a, b, n):
    for k in range(n):
        r = a[k]
        for j in range(r.shape[0]):
            r[j] = r[j] * b[j, k] + r[j - 1]
        b[k, :] = r * 2.0
    s = 0.0
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            s += np.cos(a[i, j]) * b[i, j]
    return s


@njit
def copies(u, n):
    new = np.zeros_like(u)
    for _ in range(n):
        for i in range(u.shape[0]):
            new[i] = u[i] * u[i - 1]
        new, u = u, new
    return u[0] + u[2] * new[1]


@njit
def fdtd(ez, hx, hy, eps, nt):
    """Maxwell's equations in two dimensions: leapfrog of fields on staggered grids, with a hard source."""
    n, m = ez.shape
    for t in range(nt):
        for i in range(n):
            for j in range(m - 1):
                hx[i, j] -= 0.5 * (ez[i, j + 1] - ez[i, j])
        for i in range(n - 1):
            for j in range(m):
                hy[i, j] += 0.5 * (ez[i + 1, j] - ez[i, j])
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                curl = hy[i, j] - hy[i - 1, j] - hx[i, j] + hx[i, j - 1]
                ez[i, j] += 0.5 / eps[i, j] * curl
        ez[n // 2, m // 2] = np.sin(0.3 * t)
    s = 0.0
    for i in range(n):
        for j in range(m):
            s += eps[i, j] * ez[i, j] ** 2
    return s


@njit
def deposition(x, charge, rho):
    """Particles in cells: each gives its charge to two nodes, then feels their field."""
    n = rho.shape[0]
    for k in range(x.shape[0]):
        cell = int(np.floor(x[k] * n))
        part = x[k] * n - cell
        rho[cell % n] += charge[k] * (1.0 - part)
        rho[(cell + 1) % n] += charge[k] * part
    s = 0.0
    for k in range(x.shape[0]):
        cell = int(np.floor(x[k] * n))
        part = x[k] * n - cell
        field = rho[cell % n] * (1.0 - part) + rho[(cell + 1) % n] * part
        s += charge[k] * field * field
    return s


@njit
def lookup(energy, density, grid, cross_sections, materials):
    """The inner loop of a Monte Carlo transport code: a search in the grid of each nuclide, then the mean
    of its cross sections between two points, weighted by density."""
    total = 0.0
    for e in range(energy.shape[0]):
        macro = np.zeros(3)
        for position in range(materials.shape[1]):
            nuclide = materials[e % materials.shape[0], position]
            if nuclide < 0:
                break
            low, high = 0, grid.shape[1] - 1
            while high - low > 1:
                middle = (low + high) // 2
                if grid[nuclide, middle] > energy[e]:
                    high = middle
                else:
                    low = middle
            f = (grid[nuclide, high] - energy[e]) / (grid[nuclide, high] - grid[nuclide, low])
            for k in range(3):
                micro = cross_sections[nuclide, high, k] - f * (
                    cross_sections[nuclide, high, k] - cross_sections[nuclide, low, k]
                )
                macro[k] += density[nuclide] * micro
        total += macro[0] * macro[1] - macro[2] * macro[2]
    return total


MATERIALS = np.array([[0, 2, -1], [1, 2, 0]])


def lookup_of(energy, density, grid, cross_sections):
    return lookup(energy, density, grid, cross_sections, MATERIALS)


@njit
def slopes(state, rates):
    (x, y), z = state
    return (rates[0] * (y - x), x * (rates[1] - z) - y), x * y - rates[2] * z


@njit
def first_of(x, k):
    """Two returns of tuples, with an integer in one place."""
    if k % 2:
        return x[k], 2
    return 0.5 * x[k - 1], 3


@njit
def tuples(x, u, v, steps):
    """Tuples of numbers, of tuples and of arrays that loops and branches assign anew."""
    state, rates, pair = ((x[0], x[1]), x[2]), (x[3], x[4], x[5]), (u, v)
    for k in range(steps):
        (a, b), c = slopes(state, rates)
        state = ((state[0][0] + 0.02 * a, state[0][1] + 0.02 * b), state[1] + 0.02 * c)
        source, target = pair
        for i in range(source.shape[0]):
            target[i] += source[i] * state[0][0]
        pair = (target, source)
        if k == 2:
            state = ((state[0][1], state[0][0]), state[1])
    y, power = first_of(x, steps)
    return state[0][0] * state[1] + pair[0][0] * pair[1][1] + y**power


R = np.random.default_rng(3).random


def arguments():
    """Name -> (function of the differentiated arguments, these, further arguments)."""
    r = lambda *s: R(s) + 0.5
    return {
        "wave": (wave, (r(7, 6) - 1, r(7, 6) - 1, r(7, 6), 0.1), (5,)),
        "heat, even": (heat, (r(6, 5), r(6, 5), 0.05), (4,)),
        "heat, odd": (heat, (r(6, 5), r(6, 5), 0.05), (5,)),
        "heat, no step": (heat, (r(6, 5), r(6, 5), 0.05), (0,)),
        "newton": (newton, (3.0, 1.0), ()),
        "gauss_seidel": (gauss_seidel, (r(7), r(7)), (4,)),
        "prefix": (prefix, (r(6), r(6)), ()),
        "thomas": (thomas, (r(6), r(6) + 3, r(6), r(6)), ()),
        "histogram": (histogram_of, (r(8), r(8), r(3)), ()),
        "leapfrog": (leapfrog, (r(1), r(1), 1.3, 0.1), (1.0,)),
        "early_store": (early_store, (r(4), r(3)), (3,)),
        "nbody": (nbody, (r(4), r(4), r(4), 0.1), (3,)),
        "first_large": (first_large, (np.array([0.5, 0.7, 1.1, 1.5, 0.2]), r(5)), ()),
        "first_large, none": (first_large, (np.array([0.5, 0.7, 1.1]), r(3)), ()),
        "early_return": (early_return, (r(5),), (4.0,)),
        "early_return, late": (early_return, (r(5),), (400.0,)),
        "guarded": (guarded, (np.array([0.5, 0.0, -1.0, 2.0]), r(4)), ()),
        "powers": (powers, (r(6), R(6) - 0.4), ()),
        "new_array": (new_array_of, (r(4),), (5,)),
        "expressions": (expressions, (r(7), r(7), 0.1), (3,)),
        "rows": (rows, (r(4, 4), r(4, 4)), (4,)),
        "copies, odd": (copies, (r(4),), (3,)),
        "copies, even": (copies, (r(4),), (4,)),
        "fdtd": (fdtd, (r(6, 5), r(6, 5), r(6, 5), r(6, 5)), (5,)),
        "deposition": (deposition, (R(6), r(6), r(4)), ()),
        "lookup": (lookup_of, (R(4) * 3, r(3), np.sort(R((3, 5)) * 3), r(3, 5, 3)), ()),
        "tuples, odd": (tuples, (r(6), r(3), r(3)), (5,)),
        "tuples, even": (tuples, (r(6), r(3), r(3)), (4,)),
    }  # fmt: skip


CASES = arguments()
histogram_of.python = lambda x, w, h: histogram.py_func(x, w, PLACES, h)
NOT_COMPLEX = {
    "powers",
    "new_array",
    "newton",
    "deposition",
    "lookup",
}  # they take the modulus, or make real arrays
