"""Searches by comparisons, whose result has lost its derivative, are told of; other loops are not."""

import bisect
import warnings

import numpy as np
import pytest

import tapegrad as tg

AT = 3.0
POINT = 3.0107


def cubic(t, x):
    return t**3 + t - x


def halving(x):
    low, high = 0.0, 10.0
    for _ in range(50):
        middle = (low + high) / 2
        if cubic(middle, x) > 0:
            high = middle
        else:
            low = middle
    return middle


def until_near(x):
    low, high = 0 * x, 4 + 0 * x
    while high - low > 1e-3:
        middle = 0.5 * (low + high)
        if cubic(middle, x) >= 0:
            high = middle
        else:
            low = middle
    return (low + high) / 2


def by_signs(x):
    a, b = 0.0, 10.0
    fa = cubic(a, x)
    for _ in range(40):
        c = a + (b - a) / 2
        fc = cubic(c, x)
        if np.sign(fc) == np.sign(fa):
            a, fa = c, fc
        else:
            b = c
    return c


def by_product(x):
    a, b = 0.0, 10.0
    while b - a > 1e-8:
        c = (a + b) / 2
        if cubic(a, x) * cubic(c, x) <= 0:
            b = c
        else:
            a = c
    return (a + b) / 2


def recursive(x, low=0.0, high=10.0, depth=0):
    middle = (low + high) / 2
    if depth > 30:
        return middle
    if cubic(middle, x) < 0:
        return recursive(x, middle, high, depth + 1)
    return recursive(x, low, middle, depth + 1)


def digits(x):
    t, step = 0.0, 4.0
    for _ in range(40):
        if cubic(t + step, x) <= 0:
            t += step
        step /= 2
    return t


def either_way(x):
    t, step = 2.0, 1.0
    for _ in range(40):
        t = t + step if cubic(t, x) < 0 else t - step
        step *= 0.5
    return t


def of_a_ratio(x):
    low, high = 1e-3, 1e3
    for _ in range(60):
        middle = np.sqrt(low * high)  # of logarithms
        if np.log(middle) + middle / 10 >= np.log(x):
            high = middle
        else:
            low = middle
    return high


def golden(x):
    ratio = (np.sqrt(5) - 1) / 2
    a, b = -3.0, 5.0
    while b - a > 1e-5:
        c, d = b - ratio * (b - a), a + ratio * (b - a)
        if (c - x) ** 2 + 0.1 * c**4 < (d - x) ** 2 + 0.1 * d**4:
            b = d
        else:
            a = c
    return (a + b) / 2


def ternary(x):
    a, b = 0.0, 7.0
    for _ in range(60):
        c, d = a + (b - a) / 3, b - (b - a) / 3
        if np.cosh(c - x) > np.cosh(d - x):
            a = c
        else:
            b = d
    return a


def kepler(e):
    e = e / 10
    low, high = 0.0, np.pi
    while high - low > 1e-10:
        anomaly = (low + high) / 2
        if anomaly - e * np.sin(anomaly) < 1.0:
            low = anomaly
        else:
            high = anomaly
    return anomaly


def of_arrays(x):
    wanted = x * np.array([1.0, 2.0, 3.0])
    low, high = np.zeros(3), np.full(3, 5.0)
    for _ in range(40):
        middle = (low + high) / 2
        above = cubic(middle, wanted) > 0
        high, low = np.where(above, middle, high), np.where(above, low, middle)
    return low.sum()


def of_arrays_in_place(x):
    wanted = x * np.linspace(1.0, 2.0, 500)
    low, high = np.zeros(500), np.full(500, 5.0)
    while np.max(high - low) > 1e-9:
        middle = (low + high) / 2
        above = cubic(middle, wanted) > 0
        high[above] = middle[above]
        low[~above] = middle[~above]
    return low.mean()


def of_signs_of_arrays(x):
    wanted = x * np.array([1.0, 2.0, 3.0])
    low, high = np.zeros(3), np.full(3, 5.0)
    for _ in range(40):
        middle = (low + high) / 2
        low = np.where(np.sign(cubic(middle, wanted)) < 0, middle, low)
        high = np.where(np.sign(cubic(middle, wanted)) < 0, high, middle)
    return low.sum()


def quantile(scale):
    points = np.linspace(0, 30, 400)
    weights = np.exp(-points / scale)
    low, high = 0.0, 30.0
    for _ in range(45):
        middle = (low + high) / 2
        if 1 - np.exp(-middle / scale) < 0.7:
            low = middle
        else:
            high = middle
    return middle * weights.sum()


def implied_volatility(price):
    from scipy.stats import norm

    low, high = 1e-3, 5.0
    while high - low > 1e-6:
        v = (low + high) / 2
        d = v / 2
        if 10 * (norm.cdf(d) - norm.cdf(-d)) > price:
            high = v
        else:
            low = v
    return v


class Solver:
    def __init__(self, low, high):
        self.ends = [low, high]

    def solve(self, f):
        for _ in range(60):
            middle = sum(self.ends) / 2
            self.ends[int(f(middle) > 0)] = middle
        return self.ends[0]


def by_an_object(x):
    return Solver(0.0, 9.0).solve(lambda t: cubic(t, x))


def from_the_right(x):
    low, high = 0.0, 10.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if x > middle**3 + middle else (low, middle)
    return high


def shooting(x):  # the speed at which a ball comes down at x
    low, high = 0.0, 20.0
    for _ in range(30):
        speed, place, v = (low + high) / 2, 0.0, (low + high) / 2
        for _ in range(5):
            place, v = place + 0.1 * v, v - 0.1 * v**2 * 0.05
        if place > x:
            high = speed
        else:
            low = speed
    return speed


def nelder_mead(x):
    f = lambda p: (p[0] - x) ** 2 + 2 * (p[1] - 1 - 0.1 * p[0]) ** 2
    simplex = [np.array(p) for p in ([0.0, 0.0], [1.0, 0.0], [0.0, 1.0])]
    for _ in range(90):
        values = [f(p) for p in simplex]
        order = np.argsort(np.array([tg.value(v) for v in values]))
        best, middle, worst = [simplex[k] for k in order]
        centre = (best + middle) / 2
        tried = 2 * centre - worst
        if f(tried) < values[order[2]]:
            simplex = [best, middle, tried]
        else:
            simplex = [best, (best + middle) / 2, (best + worst) / 2]
    return best[0]


SEARCHES = [
    halving, until_near, by_signs, by_product, recursive, digits, either_way, of_a_ratio, golden, ternary,
    kepler, of_arrays, of_arrays_in_place, of_signs_of_arrays, quantile, implied_volatility, by_an_object,
    from_the_right, shooting, nelder_mead,
]  # fmt: skip


@pytest.mark.parametrize("f", SEARCHES, ids=lambda f: f.__name__)
def test_a_search_by_comparisons_is_told(f):
    with pytest.warns(tg.errors.NonDifferentiableWarning, match="found by comparisons") as reverse:
        tg.grad(f)(AT)
    with pytest.warns(tg.errors.NonDifferentiableWarning, match="found by comparisons") as forward:
        tg.jvp(f, (AT,), (1.0,))
    places = {(w.filename, w.lineno) for w in [*reverse, *forward]}
    assert {file for file, _ in places} == {__file__}
    assert all([" if " in f" {line_of(n)}" or "sign" in line_of(n) or ">" in line_of(n) for _, n in places])


def line_of(number):
    with open(__file__) as file:
        return file.read().splitlines()[number - 1]


def newton(x):
    t = 1.0 + 0 * x
    while True:
        step = cubic(t, x) / (3 * t * t + 1)
        t = t - step
        if abs(step) < 1e-12:
            return t


def newton_of_arrays(x):
    wanted = x * np.linspace(0.1, 30.0, 7)
    t = np.ones(7)
    for _ in range(80):
        step = cubic(t, wanted) / (3 * t * t + 1)
        t = t - 0.5 * step
        if (abs(step) < 1e-10).all():
            break
    return t.sum()


def secant(x):
    a, b = 0.5, 2.0
    while abs(b - a) > 1e-10:
        fa, fb = cubic(a, x), cubic(b, x)
        a, b = b, b - fb * (b - a) / (fb - fa)
    return b


def illinois(x):
    a, b = 0.0, 10.0
    fa, fb = cubic(a, x), cubic(b, x)
    for _ in range(60):
        c = (fb * a - fa * b) / (fb - fa)
        fc = cubic(c, x)
        if abs(fc) < 1e-11:
            break
        if fc * fb < 0:
            a, fa = b, fb
        else:
            fa = fa / 2
        b, fb = c, fc
    return c


def safeguarded_newton(x):
    low, high, t = 0.0, 10.0, 5.0
    for _ in range(60):
        f = cubic(t, x)
        if f > 0:
            high = t
        else:
            low = t
        new = t - f / (3 * t * t + 1)
        if new < low or new > high:
            new = (low + high) / 2
        if abs(new - t) < 1e-12:
            break
        t = new
    return new


def fixed_point(x):
    t = 1.0
    for _ in range(200):
        new = np.cos(t * x / 4)
        if abs(new - t) < 1e-12:
            break
        t = new
    return new


def descent(x):
    f = lambda t: (t - x) ** 2 * 3 + 0.1 * t**4
    t = 0.0
    for _ in range(40):
        slope, step = 6 * (t - x) + 0.4 * t**3, 1.0
        while f(t - step * slope) > f(t) - 0.3 * step * slope**2:
            step /= 2
        t = t - step * slope
    return t


def trust_region(x):
    f = lambda t: np.log1p((t - x) ** 2) + 0.05 * t * t
    t, radius = 0.1 * x, 1.0
    for _ in range(50):
        slope = 2 * (t - x) / (1 + (t - x) ** 2) + 0.1 * t
        new = t - radius * slope
        if f(new) < f(t):
            t, radius = new, radius * 1.2
        else:
            radius *= 0.4
    return t


def adaptive_steps(x):
    t, y, h = 0.0, 1.0, 0.3
    while t < 2.0:
        h = min(h, 2.0 - t)
        k = -x * y
        error = abs(0.5 * h * h * x * k)
        if error < 1e-2:
            t, y = t + h, y + h * k + 0.5 * h * h * -x * k
            h *= 1.3
        else:
            h *= 0.5
    return y


def insertion_sort(x):
    values = list(np.sin(x * np.arange(1.0, 25.0)))
    for i in range(1, len(values)):
        k = i
        while k > 0 and values[k - 1] > values[k]:
            values[k - 1], values[k] = values[k], values[k - 1]
            k -= 1
    return sum([k * v for k, v in enumerate(values)])


def quicksort(x):
    def ordered(values):
        if len(values) < 2:
            return values
        pivot = values[0]
        lower = [v for v in values[1:] if v < pivot]
        return ordered(lower) + [pivot] + ordered([v for v in values[1:] if not v < pivot])

    return sum([k * v for k, v in enumerate(ordered(list(np.sin(x * np.arange(1.0, 40.0)))))])


def sorted_and_bisected(x):
    knots = np.linspace(0.0, 10.0, 5001)
    k = bisect.bisect(list(knots), x) - 1
    values = sorted(np.cos(x * np.arange(30.0)))
    return values[3] + (x - knots[k]) ** 2


def table_by_halves(x):
    knots, values = np.linspace(0.0, 10.0, 257), np.sin(np.linspace(0.0, 10.0, 257))
    low, high = 0, 256
    while high - low > 1:
        middle = (low + high) // 2
        if knots[middle] <= x:
            low = middle
        else:
            high = middle
    return values[low] + (values[high] - values[low]) * (x - knots[low]) / (knots[high] - knots[low])


def clipping(x):
    level, spilt = 1.0, 0.0
    for k in range(60):
        level = level + 0.1 * np.sin(k * x) * 0.95**k
        if level > 1.05:
            spilt, level = spilt + level - 1.05, 1.05
        if level < 0.95:
            level = 0.95
    return spilt + level


def damped_friction(x):
    place, speed = 1.0, 0.0
    for _ in range(300):
        force = -x * place - (0.3 if speed > 0 else -0.3) * abs(speed)
        speed = speed + 0.05 * force
        place = place + 0.05 * speed
    return place


def bouncing(x):
    height, speed, bounces = x, 0.0, 0
    for _ in range(400):
        speed -= 0.05
        height = height + 0.05 * speed
        if height < 0:
            height, speed, bounces = -height, -0.5 * speed, bounces + 1
    return height + speed


def series(x):
    term, total, k = 1.0 + 0 * x, 0.0, 0
    while abs(term) > 1e-14:
        total, k = total + term, k + 1
        term = -term * x / k
    return total


def alternating_series(x):
    total, term = 0.0, 1.0
    for k in range(1, 60):
        total = total + term
        if term > 0:
            total = total + 1e-3 * term
        term = -term * x / (x + 2 + k % 3)
    return total


def power_iteration(x):
    A = np.array([[2.0, 1.0], [1.0, x]])
    v, old = np.ones(2), 0.0
    for _ in range(200):
        w = A @ v
        value = np.linalg.norm(w)
        v = w / value
        if abs(value - old) < 1e-12:
            break
        old = value
    return value


def active_set(x):
    p = np.zeros(6)
    for _ in range(80):
        p = p - 0.2 * (p - x * np.cos(np.arange(6.0)) + 0.3 * p.sum() / 6)
        p = np.where(p > 0.2, p, 0.2)
    return (p**2).sum()


def plain_search_and_newton(x):
    low, high = 0.0, 10.0
    for _ in range(50):
        middle = (low + high) / 2
        if cubic(middle, tg.value(x)) > 0:
            high = middle
        else:
            low = middle
    return middle - cubic(middle, x) / (3 * middle**2 + 1)


ORDINARY = [
    newton, newton_of_arrays, secant, illinois, safeguarded_newton, fixed_point, descent, trust_region,
    adaptive_steps, insertion_sort, quicksort, sorted_and_bisected, table_by_halves, clipping,
    damped_friction, bouncing, series, alternating_series, power_iteration, active_set,
    plain_search_and_newton,
]  # fmt: skip


@pytest.mark.parametrize("f", ORDINARY, ids=lambda f: f.__name__)
def test_other_loops_are_silent(f):
    with warnings.catch_warnings(action="error"):
        slope = tg.grad(f)(POINT)
        _, tangent = tg.jvp(f, (POINT,), (1.0,))
    assert np.isclose(slope, tangent)
    h = 1e-5 if f in (descent, trust_region) else 1e-6  # (these end at the square root of the rounding error)
    assert np.isclose(slope, (f(POINT + h) - f(POINT - h)) / (2 * h), rtol=2e-3, atol=1e-7)


def test_each_search_is_told_once_with_what_to_write():
    def f(x):
        return sum([halving(x + k) for k in range(5)])

    with warnings.catch_warnings(record=True, action="always") as told:
        tg.hessian(f)(AT)
    assert len({(w.filename, w.lineno) for w in told}) == len(told) == 1
    assert "brentq" in str(told[0].message) and "tapegrad.value(x)" in str(told[0].message)


def by_key(x, memo):
    key = float(x)
    if key not in memo:
        memo[key] = key**2
    return memo[key]


def by_hash(x, memo):
    key = hash((x, 3))
    if key not in memo:
        memo[key] = x**2
    return memo[key]


def by_last_argument(x, memo):
    if not memo or not np.allclose(memo["x"], x):
        memo.update(x=x, y=x**2)
    return memo["y"]


def by_last_elements(x, memo):
    x = np.stack([x, 2.0 * x])
    if not memo or np.any(memo["x"] != x):
        memo.update(x=x, y=np.sum(x) ** 2)
    return memo["y"]


def by_distance(x, memo):
    if not memo or not abs(x - memo["x"]) / x < 1e-6:
        memo.update(x=x, y=x**2)
    return memo["y"]


def by_distances(x, memo):
    x = np.stack([x, 2.0 * x])
    if not memo or np.any(np.abs(x - memo["x"]) > 1e-8):
        memo.update(x=x, y=np.sum(x) ** 2)
    return memo["y"]


def by_number(x):
    """No memo: the code writes the number."""
    if x == 1.5:
        return 2.25
    return x**2


MEMOS = [by_key, by_hash, by_last_argument, by_last_elements, by_distance, by_distances]


@pytest.mark.parametrize("f", MEMOS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("of", [lambda g: tg.grad(g)(1.5), lambda g: tg.jvp(g, (1.5,), (1.0,))[1]])
def test_a_result_that_an_earlier_call_left_is_told(f, of):
    memo = {}
    with warnings.catch_warnings(action="error"):
        slope = of(lambda x: f(x, memo))
    assert np.isclose(slope, (f(1.5 + 1e-6, {}) - f(1.5 - 1e-6, {})) / 2e-6)
    with pytest.warns(tg.errors.NonDifferentiableWarning, match="memo"):
        assert of(lambda x: f(x, memo)) == 0.0


def test_a_constant_case_is_not_taken_for_a_memo():
    with warnings.catch_warnings(action="error"):
        assert tg.grad(lambda x: by_number(x))(1.5) == 0.0


def test_equal_numbers_are_silent_where_the_result_depends_on_the_argument():
    with warnings.catch_warnings(action="error"):
        assert tg.grad(lambda x: x**2 if x == 1.5 else 0.0)(1.5) == 3.0
        assert tg.grad(lambda x: 2.0 if x == 1.0 else 3.0)(1.5) == 0.0
        assert tg.grad(lambda x: x**2 if abs(x - 1.5) < 1e-6 else 0.0)(1.5) == 3.0
        assert tg.grad(lambda x: 2.0 if x < 0.5 else 3.0)(0.0) == 0.0


ROUNDINGS = [
    lambda x: np.round(x**2, 3).sum(),
    lambda x: 2.0 * round(x[0], 7),
    lambda x: np.array([round(v, 4) for v in x])[1],
]


@pytest.mark.parametrize("f", ROUNDINGS)
@pytest.mark.parametrize("of", [tg.grad, tg.hessian, lambda f: lambda x: tg.jvp(f, (x,), (x,))[1]])
def test_a_result_that_is_rounded_as_a_whole_is_told(f, of):
    with pytest.warns(tg.errors.NonDifferentiableWarning, match="rounding"):
        assert not np.any(of(f)(np.array([1.2345678, 2.5])))


def test_roundings_of_a_part_and_to_whole_numbers_are_silent():
    with warnings.catch_warnings(action="error"):
        np.testing.assert_array_equal(tg.grad(lambda x: x[0] + round(x[1], 2))(np.ones(2)), [1.0, 0.0])
        assert tg.grad(lambda x: 2.0 * np.round(x))(1.2) == 0.0


@pytest.mark.parametrize("decimals, dtype", [(8, float), (15, float), (12, complex), (4, np.float32)])
def test_a_rounding_that_clears_noise_has_the_derivative_of_its_argument(decimals, dtype):
    x, v = np.linspace(0.3, 1.7, 6).reshape(2, 3).astype(dtype), np.arange(6.0).reshape(2, 3).astype(dtype)

    def f(x):
        return np.sum(abs(np.round(np.sin(x), decimals)) ** 2 + x.round(decimals).real)

    with warnings.catch_warnings(action="error"):
        for of in (lambda f: tg.grad(f)(x), lambda f: tg.hvp(f, x, v), lambda f: tg.jvp(f, (x,), (v,))):
            exact = of(lambda x: np.sum(abs(np.sin(x)) ** 2 + x.real))
            np.testing.assert_allclose(of(f), exact, rtol=50 * 10.0**-decimals)
        np.testing.assert_allclose(tg.vmap(f)(x), [f(row) for row in x])
