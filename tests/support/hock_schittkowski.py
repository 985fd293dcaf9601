"""Test problems 1 to 113 of Hock and Schittkowski, as far as they are typed here.

From W. Hock and K. Schittkowski, Test Examples for Nonlinear Programming Codes, Lecture Notes in Economics
and Mathematical Systems 187 (1981): objective, constraints (eq = 0, ineq >= 0), bounds, start and the value
at the published optimum."""

import numpy as np

INF = np.inf
R2, R3 = np.sqrt(2.0), np.sqrt(3.0)


class Problem:
    def __init__(self, start, fun, best, *, eq=None, ineq=None, low=None, high=None, local=()):
        self.start, self.fun, self.best, self.eq, self.ineq = np.array(start, float), fun, best, eq, ineq
        n = self.start.size
        self.low = np.broadcast_to(np.asarray(-INF if low is None else low, float), n)
        self.high = np.broadcast_to(np.asarray(INF if high is None else high, float), n)
        self.local = local  # values at other local minima, which the book or its successors name

    def violation(self, x):
        """The largest violation of a constraint or a bound, by plain NumPy."""
        parts = [np.zeros(1), self.low - x, x - self.high]
        parts += [abs(np.stack(self.eq(*x)))] if self.eq else []
        parts += [-np.stack(self.ineq(*x))] if self.ineq else []
        return float(np.concatenate(parts).max())


def banana(a, b):
    return 100 * (b - a**2) ** 2 + (1 - a) ** 2


def powers(a, b, c, d, e):
    return (a**2 + b**2 + c**2 + d**2 + e**2 - 10, b * c - 5 * d * e, a**3 + b**3 + 1)


def three_lines(a, b, c, d, e):
    return (a + 3 * b, c + d - 2 * e, b - e)


def hs100(a, b, c, d, e, f, g):
    return (
        (a - 10) ** 2
        + 5 * (b - 12) ** 2
        + c**4
        + 3 * (d - 11) ** 2
        + 10 * e**6
        + 7 * f**2
        + g**4
        - 4 * f * g
        - 10 * f
        - 8 * g
    )


def hs100_above_zero(a, b, c, d, e, f, g):
    return (
        127 - 2 * a**2 - 3 * b**4 - c - 4 * d**2 - 5 * e,
        282 - 7 * a - 3 * b - 10 * c**2 - d + e,
        196 - 23 * a - b**2 - 6 * f**2 + 8 * g,
        -4 * a**2 - b**2 + 3 * a * b - 2 * c**2 - 5 * f + 11 * g,
    )


def hs113(a, b, c, d, e, f, g, h, i, j):
    return (
        a**2 + b**2 + a * b - 14 * a - 16 * b + (c - 10) ** 2 + 4 * (d - 5) ** 2 + (e - 3) ** 2 + 2 * (f - 1) ** 2 + 5 * g**2
        + 7 * (h - 11) ** 2 + 2 * (i - 10) ** 2 + (j - 7) ** 2 + 45
    )  # fmt: skip


def hs113_above_zero(a, b, c, d, e, f, g, h, i, j):
    return (
        105 - 4 * a - 5 * b + 3 * g - 9 * h,
        -10 * a + 8 * b + 17 * g - 2 * h,
        8 * a - 2 * b - 5 * i + 2 * j + 12,
        -3 * (a - 2) ** 2 - 4 * (b - 3) ** 2 - 2 * c**2 + 7 * d + 120,
        -5 * a**2 - 8 * b - (c - 6) ** 2 + 2 * d + 40,
        -0.5 * (a - 8) ** 2 - 2 * (b - 4) ** 2 - 3 * e**2 + f + 30,
        -(a**2) - 2 * (b - 2) ** 2 + 2 * a * b - 14 * e + 6 * f,
        3 * a - 6 * b - 12 * (i - 8) ** 2 + 7 * j,
    )


def hs110(*x):
    x = np.stack(x)
    return (np.log(x - 2) ** 2 + np.log(10 - x) ** 2).sum() - np.prod(x) ** 0.2


def colville(x):
    """Problem 86, and what problem 117 is dual to."""
    return LINE @ x + x @ CURVED @ x + CUBES @ x**3


LINE, CUBES = np.array([-15.0, -27.0, -36.0, -18.0, -12.0]), np.array([4.0, 8.0, 10.0, 6.0, 2.0])
CURVED = np.array(
    [
        [30, -20, -10, 32, -10],
        [-20, 39, -6, -31, 32],
        [-10, -6, 10, -6, -10],
        [32, -31, -6, 39, -20],
        [-10, 32, -10, -20, 30],
    ],
    float,
)
ROWS = np.array(
    [[-16, 2, 0, 1, 0], [0, -2, 0, 0.4, 2], [-3.5, 0, 2, 0, 0], [0, -2, 0, -4, -1], [0, -9, -2, 1, -2.8],
     [2, 0, -4, 0, 0], [-1, -1, -1, -1, -1], [-1, -2, -3, -2, -1], [1, 2, 3, 4, 5], [1, 1, 1, 1, 1]],
)  # fmt: skip
LEAST = np.array([-40, -2, -0.25, -4, -4, -1, -40, -60, 5, 1])


def hs117(*x):
    x = np.stack(x)
    y, z = x[:10], x[10:]
    return -LEAST @ y + z @ CURVED @ z + 2 * CUBES @ z**3


def hs117_above_zero(*x):
    x = np.stack(x)
    y, z = x[:10], x[10:]
    return tuple(2 * CURVED @ z + 3 * CUBES * z**2 + LINE - ROWS.T @ y)


def colville3(a, b, c, d, e):
    first = 85.334407 + 0.0056858 * b * e + 0.0006262 * a * d - 0.0022053 * c * e
    second = 80.51249 + 0.0071317 * b * e + 0.0029955 * a * b + 0.0021813 * c**2
    third = 9.300961 + 0.0047026 * c * e + 0.0012547 * a * c + 0.0019085 * c * d
    return first, 92 - first, second - 90, 110 - second, third - 20, 25 - third


def network(limit):
    """Problems 74 and 75."""
    eq = lambda a, b, c, d: (
        1000 * np.sin(-c - 0.25) + 1000 * np.sin(-d - 0.25) + 894.8 - a,
        1000 * np.sin(c - 0.25) + 1000 * np.sin(c - d - 0.25) + 894.8 - b,
        1000 * np.sin(d - 0.25) + 1000 * np.sin(d - c - 0.25) + 1294.8,
    )
    fun = lambda a, b, c, d: 3 * a + 1e-6 * a**3 + 2 * b + 2e-6 / 3 * b**3
    ineq = lambda a, b, c, d: (d - c + limit, c - d + limit)
    return {
        "start": [0] * 4,
        "fun": fun,
        "eq": eq,
        "ineq": ineq,
        "low": [0, 0, -limit, -limit],
        "high": [1200, 1200, limit, limit],
    }


def process(least):
    """Problems 95 to 98."""
    fun = lambda a, b, c, d, e, f: 4.3 * a + 31.8 * b + 63.3 * c + 15.8 * d + 68.5 * e + 4.7 * f
    ineq = lambda a, b, c, d, e, f: (
        17.1 * a + 38.2 * b + 204.2 * c + 212.3 * d + 623.4 * e + 1495.5 * f
        - 169 * a * c - 3580 * c * e - 3810 * d * e - 18500 * d * f - 24300 * e * f - least[0],
        17.9 * a + 36.8 * b + 113.9 * c + 169.7 * d + 337.8 * e + 1385.2 * f
        - 139 * a * c - 2450 * d * e - 16600 * d * f - 17200 * e * f - least[1],
        -273 * b - 70 * d - 819 * e + 26000 * d * e - least[2],
        159.9 * a - 311 * b + 587 * d + 391 * e + 2198 * f - 14000 * a * f - least[3],
    )  # fmt: skip
    return {
        "start": [0] * 6,
        "fun": fun,
        "ineq": ineq,
        "low": 0,
        "high": [0.31, 0.046, 0.068, 0.042, 0.028, 0.0134],
    }


def hs62(a, b, c):
    first = 255 * np.log((a + b + c + 0.03) / (0.09 * a + b + c + 0.03))
    return -32.174 * (
        first
        + 280 * np.log((b + c + 0.03) / (0.07 * b + c + 0.03))
        + 290 * np.log((c + 0.03) / (0.13 * c + 0.03))
    )


def hs93(a, b, c, d, e, f):
    p, q = a * d * (a + b + c), b * c * (a + 1.57 * b + d)
    return 0.0204 * p + 0.0187 * q + 0.0607 * p * e**2 + 0.0437 * q * f**2


def hs93_above_zero(a, b, c, d, e, f):
    p, q = a * d * (a + b + c), b * c * (a + 1.57 * b + d)
    return 0.001 * a * b * c * d * e * f - 2.07, 1 - 0.00062 * p * e**2 - 0.00058 * q * f**2


def hs104(a, b, c, d, e, f, g, h):
    return 0.4 * a**0.67 * g**-0.67 + 0.4 * b**0.67 * h**-0.67 + 10 - a - b


def hs104_above_zero(a, b, c, d, e, f, g, h):
    value = hs104(a, b, c, d, e, f, g, h)
    return (
        1 - 0.0588 * e * g - 0.1 * a,
        1 - 0.0588 * f * h - 0.1 * a - 0.1 * b,
        1 - 4 * c / e - 2 * c**-0.71 / e - 0.0588 * c**-1.3 * g,
        1 - 4 * d / f - 2 * d**-0.71 / f - 0.0588 * d**-1.3 * h,
        value - 1,
        4.2 - value,
    )


def hs106_above_zero(a, b, c, d, e, f, g, h):
    return (
        1 - 0.0025 * (d + f),
        1 - 0.0025 * (e + g - d),
        1 - 0.01 * (h - e),
        a * f - 833.33252 * d - 100 * a + 83333.333,
        b * g - 1250 * e - b * d + 1250 * d,
        c * h - 1250000 - c * e + 2500 * e,
    )


GASES = np.array([-6.089, -17.164, -34.054, -5.914, -24.721, -14.986, -24.1, -10.708, -26.662, -22.179])


def equilibrium(*x):
    x = np.stack(x)
    return (x * (GASES + np.log(x / x.sum()))).sum()


def atoms(a, b, c, d, e, f, g, h, i, j):
    return a + 2 * b + 2 * c + f + j - 2, d + 2 * e + f + g - 1, c + g + h + 2 * i + j - 1


PROBLEMS = {
    1: Problem([-2, 1], banana, 0.0, low=[-INF, -1.5]),
    3: Problem([10, 1], lambda a, b: b + 1e-5 * (b - a) ** 2, 0.0, low=[-INF, 0]),
    4: Problem([1.125, 0.125], lambda a, b: (a + 1) ** 3 / 3 + b, 8 / 3, low=[1, 0]),
    5: Problem([0, 0], lambda a, b: np.sin(a + b) + (a - b) ** 2 - 1.5 * a + 2.5 * b + 1, -R3 / 2 - np.pi / 3,
                low=[-1.5, -3], high=[4, 3]),
    6: Problem([-1.2, 1], lambda a, b: (1 - a) ** 2, 0.0, eq=lambda a, b: (10 * (b - a**2),)),
    7: Problem([2, 2], lambda a, b: np.log(1 + a**2) - b, -R3, eq=lambda a, b: ((1 + a**2) ** 2 + b**2 - 4,)),
    8: Problem([2, 1], lambda a, b: -1.0 + 0 * a, -1.0, eq=lambda a, b: (a**2 + b**2 - 25, a * b - 9)),
    9: Problem([0, 0], lambda a, b: np.sin(np.pi * a / 12) * np.cos(np.pi * b / 16), -0.5, eq=lambda a,
    b: (4 * a - 3 * b,)),
    10: Problem([-10, 10], lambda a, b: a - b, -1.0, ineq=lambda a, b: (-3 * a**2 + 2 * a * b - b**2 + 1,)),
    11: Problem([4.9, 0.1], lambda a, b: (a - 5) ** 2 + b**2 - 25, -8.498464223, ineq=lambda a,
    b: (-(a**2) + b,)),
    12: Problem([0, 0], lambda a, b: 0.5 * a**2 + b**2 - a * b - 7 * a - 7 * b, -30.0, ineq=lambda a,
    b: (25 - 4 * a**2 - b**2,)),
    14: Problem([2, 2], lambda a, b: (a - 2) ** 2 + (b - 1) ** 2, 9 - 2.875 * np.sqrt(7), eq=lambda a,
    b: (a - 2 * b + 1,),
                ineq=lambda a, b: (-(a**2) / 4 - b**2 + 1,)),
    15: Problem([-2, 1], banana, 306.5, ineq=lambda a, b: (a * b - 1, a + b**2), high=[0.5, INF],
    local=(360.37976,)),
    16: Problem([-2, 1], banana, 0.25, ineq=lambda a, b: (a + b**2, a**2 + b),
                low=[-0.5, -INF], high=[0.5, 1], local=(3.982103, 23.1446)),
    17: Problem([-2, 1], banana, 1.0, ineq=lambda a, b: (b**2 - a, a**2 - b), low=[-0.5, -INF], high=[0.5,
    1]),
    18: Problem([2, 2], lambda a, b: 0.01 * a**2 + b**2, 5.0, ineq=lambda a, b: (a * b - 25,
    a**2 + b**2 - 25), low=[2, 0], high=50),
    21: Problem([-1, -1], lambda a, b: 0.01 * a**2 + b**2 - 100, -99.96, ineq=lambda a, b: (10 * a - b - 10,),
    low=[2, -50], high=50),
    22: Problem([2, 2], lambda a, b: (a - 2) ** 2 + (b - 1) ** 2, 1.0, ineq=lambda a, b: (-a - b + 2,
    -(a**2) + b)),
    23: Problem([3, 1], lambda a, b: a**2 + b**2, 2.0, low=-50, high=50,
                ineq=lambda a, b: (a + b - 1, a**2 + b**2 - 1, 9 * a**2 + b**2 - 9, a**2 - b, b**2 - a)),
    24: Problem([1, 0.5], lambda a, b: ((a - 3) ** 2 - 9) * b**3 / (27 * R3), -1.0, low=0,
                ineq=lambda a, b: (a / R3 - b, a + R3 * b, -a - R3 * b + 6), local=(0.0,)),
    26: Problem([-2.6, 2, 2], lambda a, b, c: (a - b) ** 2 + (b - c) ** 4, 0.0, eq=lambda a, b,
    c: ((1 + b**2) * a + c**4 - 3,)),
    27: Problem([2, 2, 2], lambda a, b, c: 0.01 * (a - 1) ** 2 + (b - a**2) ** 2, 0.04, eq=lambda a, b,
    c: (a + c**2 + 1,)),
    28: Problem([-4, 1, 1], lambda a, b, c: (a + b) ** 2 + (b + c) ** 2, 0.0, eq=lambda a, b,
    c: (a + 2 * b + 3 * c - 1,)),
    29: Problem([1, 1, 1], lambda a, b, c: -a * b * c, -16 * R2, ineq=lambda a, b,
    c: (-(a**2) - 2 * b**2 - 4 * c**2 + 48,)),
    30: Problem([1, 1, 1], lambda a, b, c: a**2 + b**2 + c**2, 1.0, ineq=lambda a, b, c: (a**2 + b**2 - 1,),
    low=[1, -10, -10], high=10),
    31: Problem([1, 1, 1], lambda a, b, c: 9 * a**2 + b**2 + 9 * c**2, 6.0, ineq=lambda a, b, c: (a * b - 1,),
                low=[-10, 1, -10], high=[10, 10, 1]),
    32: Problem([0.1, 0.7, 0.2], lambda a, b, c: (a + 3 * b + c) ** 2 + 4 * (a - b) ** 2, 1.0, low=0,
                eq=lambda a, b, c: (1 - a - b - c,), ineq=lambda a, b, c: (6 * b + 4 * c - a**3 - 3,)),
    33: Problem([0, 0, 3], lambda a, b, c: (a - 1) * (a - 2) * (a - 3) + c, R2 - 6, low=0, high=[INF, INF, 5],
    local=(-4.0,),
                ineq=lambda a, b, c: (c**2 - b**2 - a**2, a**2 + b**2 + c**2 - 4)),
    34: Problem([0, 1.05, 2.9], lambda a, b, c: -a, -np.log(np.log(10)), low=0, high=[100, 100, 10],
                ineq=lambda a, b, c: (b - np.exp(a), c - np.exp(b))),
    35: Problem([0.5] * 3, lambda a, b, c: 9 - 8 * a - 6 * b - 4 * c + 2 * a**2 + 2 * b**2 + c**2 + 2 * a * b + 2 * a * c, 1 / 9,
                low=0, ineq=lambda a, b, c: (3 - a - b - 2 * c,)),
    36: Problem([10] * 3, lambda a, b, c: -a * b * c, -3300.0, low=0, high=[20, 11, 42], ineq=lambda a, b,
    c: (72 - a - 2 * b - 2 * c,)),
    37: Problem([10] * 3, lambda a, b, c: -a * b * c, -3456.0, low=0, high=42,
                ineq=lambda a, b, c: (72 - a - 2 * b - 2 * c, a + 2 * b + 2 * c)),
    39: Problem([2] * 4, lambda a, b, c, d: -a, -1.0, eq=lambda a, b, c, d: (b - a**3 - c**2,
    a**2 - b - d**2)),
    40: Problem([0.8] * 4, lambda a, b, c, d: -a * b * c * d, -0.25, eq=lambda a, b, c, d: (a**3 + b**2 - 1,
    a**2 * d - c, d**2 - b)),
    41: Problem([2] * 4, lambda a, b, c, d: 2 - a * b * c, 52 / 27,
                low=0, high=[1, 1, 1, 2], eq=lambda a, b, c, d: (a + 2 * b + 2 * c - d,),
                local=(2.0,)),
    42: Problem([1] * 4, lambda a, b, c, d: (a - 1) ** 2 + (b - 2) ** 2 + (c - 3) ** 2 + (d - 4) ** 2,
    28 - 10 * R2,
                eq=lambda a, b, c, d: (a - 2, c**2 + d**2 - 2)),
    43: Problem([0] * 4, lambda a, b, c, d: a**2 + b**2 + 2 * c**2 + d**2 - 5 * a - 5 * b - 21 * c + 7 * d,
    -44.0,
                ineq=lambda a, b, c, d: (8 - a**2 - b**2 - c**2 - d**2 - a + b - c + d,
                10 - a**2 - 2 * b**2 - c**2 - 2 * d**2 + a + d,
                                         5 - 2 * a**2 - b**2 - c**2 - 2 * a + b + d)),
    44: Problem([0] * 4, lambda a, b, c, d: a - b - c - a * c + a * d + b * c - b * d, -15.0, low=0,
    local=(-13.0,),
                ineq=lambda a, b, c, d: (8 - a - 2 * b, 12 - 4 * a - b, 12 - 3 * a - 4 * b, 8 - 2 * c - d,
                8 - c - 2 * d, 5 - c - d)),
    46: Problem([R2 / 2, 1.75, 0.5, 2, 2], lambda a, b, c, d,
    e: (a - b) ** 2 + (c - 1) ** 2 + (d - 1) ** 4 + (e - 1) ** 6, 0.0,
                eq=lambda a, b, c, d, e: (a**2 * d + np.sin(d - e) - 1, b + c**4 * d**2 - 2)),
    48: Problem([3, 5, -3, 2, -2], lambda a, b, c, d, e: (a - 1) ** 2 + (b - c) ** 2 + (d - e) ** 2, 0.0,
                eq=lambda a, b, c, d, e: (a + b + c + d + e - 5, c - 2 * (d + e) + 3)),
    50: Problem([35, -31, 11, 5, -5], lambda a, b, c, d,
    e: (a - b) ** 2 + (b - c) ** 2 + (c - d) ** 4 + (d - e) ** 2, 0.0,
                eq=lambda a, b, c, d, e: (a + 2 * b + 3 * c - 6, b + 2 * c + 3 * d - 6,
                c + 2 * d + 3 * e - 6)),
    51: Problem([2.5, 0.5, 2, -1, 0.5], lambda a, b, c, d,
    e: (a - b) ** 2 + (b + c - 2) ** 2 + (d - 1) ** 2 + (e - 1) ** 2, 0.0,
                eq=lambda a, b, c, d, e: (a + 3 * b - 4, c + d - 2 * e, b - e)),
    52: Problem([2] * 5, lambda a, b, c, d, e: (4 * a - b) ** 2 + (b + c - 2) ** 2 + (d - 1) ** 2 + (e - 1) ** 2, 1859 / 349,
                eq=three_lines),
    53: Problem([2] * 5, lambda a, b, c, d, e: (a - b) ** 2 + (b + c - 2) ** 2 + (d - 1) ** 2 + (e - 1) ** 2,
    176 / 43, eq=three_lines,
                low=-10, high=10),
    60: Problem([2] * 3, lambda a, b, c: (a - 1) ** 2 + (a - b) ** 2 + (b - c) ** 4, 0.03256820025, low=-10,
    high=10,
                eq=lambda a, b, c: (a * (1 + b**2) + c**4 - 4 - 3 * R2,)),
    61: Problem([0] * 3, lambda a, b, c: 4 * a**2 + 2 * b**2 + 2 * c**2 - 33 * a + 16 * b - 24 * c,
    -143.6461422,
                eq=lambda a, b, c: (3 * a - 2 * b**2 - 7, 4 * a - c**2 - 11)),
    63: Problem([2] * 3, lambda a, b, c: 1000 - a**2 - 2 * b**2 - c**2 - a * b - a * c, 961.7151721, low=0,
                eq=lambda a, b, c: (8 * a + 14 * b + 7 * c - 56, a**2 + b**2 + c**2 - 25)),
    65: Problem([-5, 5, 0], lambda a, b, c: (a - b) ** 2 + (a + b - 10) ** 2 / 9 + (c - 5) ** 2, 0.9535288567,
    low=[-4.5, -4.5, -5],
                high=[4.5, 4.5, 5], ineq=lambda a, b, c: (48 - a**2 - b**2 - c**2,)),
    66: Problem([0, 1.05, 2.9], lambda a, b, c: 0.2 * c - 0.8 * a, 0.5181632741, low=0, high=[100, 100, 10],
                ineq=lambda a, b, c: (b - np.exp(a), c - np.exp(b))),
    71: Problem([1, 5, 5, 1], lambda a, b, c, d: a * d * (a + b + c) + c, 17.0140173,
                low=1, high=5, ineq=lambda a, b, c, d: (a * b * c * d - 25,),
                eq=lambda a, b, c, d: (a**2 + b**2 + c**2 + d**2 - 40,)),
    76: Problem([0.5] * 4, lambda a, b, c,
                d: a**2 + 0.5 * b**2 + c**2 + 0.5 * d**2 - a * c + c * d - a - 3 * b + c - d, -4.681818181,
                low=0,
                ineq=lambda a, b, c, d: (5 - a - 2 * b - c - d, 4 - 3 * a - b - 2 * c + d, b + 4 * c - 1.5)),
    77: Problem([2] * 5, lambda a, b, c, d, e: (a - 1) ** 2 + (a - b) ** 2 + (c - 1) ** 2 + (d - 1) ** 4 + (e - 1) ** 6, 0.24150513,
                eq=lambda a, b, c, d, e: (a**2 * d + np.sin(d - e) - 2 * R2, b + c**4 * d**2 - 8 - R2)),
    78: Problem([-2, 1.5, 2, -1, -1], lambda a, b, c, d, e: a * b * c * d * e, -2.91970041, eq=powers),
    79: Problem([2] * 5, lambda a, b, c, d, e: (a - 1) ** 2 + (a - b) ** 2 + (b - c) ** 2 + (c - d) ** 4 + (d - e) ** 4, 0.0787768209,
                eq=lambda a, b, c, d, e: (a + b**2 + c**3 - 2 - 3 * R2, b - c**2 + d + 2 - 2 * R2,
                a * e - 2)),
    80: Problem([-2, 2, 2, -1, -1], lambda a, b, c, d, e: np.exp(a * b * c * d * e), 0.0539498478, eq=powers,
                low=[-2.3, -2.3, -3.2, -3.2, -3.2], high=[2.3, 2.3, 3.2, 3.2, 3.2]),
    81: Problem([-2, 2, 2, -1, -1], lambda a, b, c, d,
    e: np.exp(a * b * c * d * e) - 0.5 * (a**3 + b**3 + 1) ** 2, 0.0539498478,
                eq=powers,
                low=[-2.3, -2.3, -3.2, -3.2, -3.2], high=[2.3, 2.3, 3.2, 3.2, 3.2]),
    100: Problem([1, 2, 0, 4, 0, 1, 1], hs100, 680.6300573, ineq=hs100_above_zero),
    110: Problem([9] * 10, hs110, -45.77846971, low=2.001, high=9.999),
    113: Problem([2, 3, 5, 5, 1, 2, 7, 3, 6, 10], hs113, 24.3062091, ineq=hs113_above_zero),
    2: Problem([-2, 1], banana, 0.0504261879, low=[-INF, 1.5], local=(4.941229318,)),
    19: Problem([20.1, 5.84], lambda a, b: (a - 10) ** 3 + (b - 20) ** 3, -6961.81381, low=[13, 0], high=100,
                ineq=lambda a, b: ((a - 5) ** 2 + (b - 5) ** 2 - 100,
                -((b - 5) ** 2) - (a - 6) ** 2 + 82.81)),
    20: Problem([-2, 1], banana, 81.5 - 25 * R3, ineq=lambda a, b: (a + b**2, a**2 + b, a**2 + b**2 - 1),
                low=[-0.5, -INF], high=[0.5, INF], local=(40.19872981,)),
    38: Problem([-3, -1, -3, -1], lambda a, b, c, d: banana(a, b) + 90 * (d - c**2) ** 2 + (1 - c) ** 2
                + 10.1 * ((b - 1) ** 2 + (d - 1) ** 2) + 19.8 * (b - 1) * (d - 1), 0.0, low=-10, high=10),
    45: Problem([2] * 5, lambda a, b, c, d, e: 2 - a * b * c * d * e / 120, 1.0, low=0, high=[1, 2, 3, 4, 5],
    local=(2.0,)),
    49: Problem([10, 7, 2, -3, 0.8], lambda a, b, c, d,
    e: (a - b) ** 2 + (c - 1) ** 2 + (d - 1) ** 4 + (e - 1) ** 6, 0.0,
                eq=lambda a, b, c, d, e: (a + b + c + 4 * d - 7, c + 5 * e - 6)),
    56: Problem([1] * 3 + [np.arcsin(np.sqrt(1 / 4.2))] * 3 + [np.arcsin(np.sqrt(5 / 7.2))], lambda a, b, c,
    d, e, f, g: -a * b * c, -3.456,
                eq=lambda a, b, c, d, e, f, g: (a - 4.2 * np.sin(d) ** 2, b - 4.2 * np.sin(e) ** 2,
                c - 4.2 * np.sin(f) ** 2,
                                                a + 2 * b + 2 * c - 7.2 * np.sin(g) ** 2)),
    62: Problem([0.7, 0.2, 0.1], hs62, -26272.51448, low=0, high=1, eq=lambda a, b, c: (a + b + c - 1,)),
    64: Problem([1] * 3, lambda a, b, c: 5 * a + 50000 / a + 20 * b + 72000 / b + 10 * c + 144000 / c,
    6299.842428, low=1e-5,
                ineq=lambda a, b, c: (1 - 4 / a - 32 / b - 120 / c,)),
    72: Problem([1] * 4, lambda a, b, c, d: 1 + a + b + c + d, 727.67937, low=0.001, high=[4e5, 3e5, 2e5,
    1e5],
                ineq=lambda a, b, c, d: (0.0401 - 4 / a - 2.25 / b - 1 / c - 0.25 / d,
                                         0.010085 - 0.16 / a - 0.36 / b - 0.64 / c - 0.64 / d)),
    73: Problem([1] * 4, lambda a, b, c, d: 24.55 * a + 26.75 * b + 39 * c + 40.5 * d, 29.894378, low=0,
                eq=lambda a, b, c, d: (a + b + c + d - 1,),
                ineq=lambda a, b, c, d: (2.3 * a + 5.6 * b + 11.1 * c + 1.3 * d - 5,
                12 * a + 11.9 * b + 41.8 * c + 52.1 * d - 21
                                         - 1.645 * np.sqrt(0.28 * a**2 + 0.19 * b**2 + 20.5 * c**2 + 0.62 * d**2))),
    74: Problem(best=5126.4981, **network(0.55)),
    75: Problem(best=5174.4129, **network(0.48)),
    83: Problem([78, 33, 27, 27, 27], lambda a, b, c, d,
    e: 5.3578547 * c**2 + 0.8356891 * a * e + 37.293239 * a - 40792.141,
                -30665.53867, low=[78, 33, 27, 27, 27], high=[102, 45, 45, 45, 45], ineq=colville3),
    86: Problem([0, 0, 0, 0, 1], lambda *x: colville(np.stack(x)), -32.34867897, low=0,
                ineq=lambda *x: tuple(ROWS @ np.stack(x) - LEAST)),
    93: Problem([5.54, 4.4, 12.02, 11.82, 0.702, 0.852], hs93, 135.075961, low=0, ineq=hs93_above_zero),
    95: Problem(best=0.015619514, **process((4.97, -1.88, -29.08, -78.02))),
    96: Problem(best=0.015619514, **process((4.97, -1.88, -69.08, -118.02))),
    97: Problem(best=3.1358091, local=(4.07124638,), **process((32.97, 25.12, -29.08, -78.02))),
    98: Problem(best=3.1358091, local=(4.07124638,), **process((32.97, 25.12, -124.08, -173.02))),
    104: Problem([6, 3, 0.4, 0.2, 6, 6, 1, 0.5], hs104, 3.9511634396, low=0.1, high=10,
    ineq=hs104_above_zero),
    106: Problem([5000, 5000, 5000, 200, 350, 150, 225, 425], lambda a, b, c, d, e, f, g, h: a + b + c,
    7049.248021,
                 low=[100, 1000, 1000] + [10] * 5, high=[10000] * 3 + [1000] * 5, ineq=hs106_above_zero),
    111: Problem([-2.3] * 10, lambda *x: equilibrium(*np.exp(np.stack(x))), -47.76109026, low=-100, high=100,
                 eq=lambda *x: atoms(*np.exp(np.stack(x)))),
    112: Problem([0.1] * 10, equilibrium, -47.76109026, low=1e-6, eq=atoms),
    117: Problem([0.001] * 6 + [60] + [0.001] * 8, hs117, 32.34867897, low=0, ineq=hs117_above_zero),
}  # fmt: skip
