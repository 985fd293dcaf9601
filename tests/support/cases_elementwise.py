"""NumPy's ufuncs."""

import numpy as np
from cases import between, binary, case, cnormal, distinct, normal, positive, unary

import tapegrad.ops.elementwise as e
import tapegrad.ops.piecewise as m
import tapegrad.ops.shaping as s

X, Y, P = normal(2, 3), normal(2, 3, seed=1), positive(2, 3)
U = between(-0.9, 0.9, 2, 3)
Z = cnormal(2, 3)
D = distinct(2, 3)
AWAY = np.sign(X) * (0.3 + abs(X))
CEIL = between(0.1, 0.9, 2, 3) + np.arange(3)

CASES = [
    binary("add", np.add, X, Y),
    binary("subtract", np.subtract, X, Y),
    binary("multiply", np.multiply, X, Y),
    binary("divide", np.divide, X, AWAY),
    case("add complex and real", np.add, Z, X),
    case("multiply complex", np.multiply, Z, cnormal(3, seed=1)),
    case("multiply complex and real", np.multiply, Z, X),
    case("divide complex", np.divide, Z, cnormal(3, seed=1)),
    case("divide real by complex", np.divide, X, Z),
    unary("negative", np.negative, X),
    unary("positive", np.positive, X),
    unary("square", np.square, X),
    unary("square complex", np.square, Z),
    unary("reciprocal", np.reciprocal, AWAY),
    unary("reciprocal complex", np.reciprocal, Z),
    binary("times0", e.times0, X, Y),
    binary("times00", e.times00, X, Y),
    binary("over0", e.over0, X, AWAY),
    # powers
    case("power", np.power, P, Y, kinds=("scalar", "empty", "strided", "float32", "broadcast")),
    case("power complex", np.power, Z, cnormal(2, 3, seed=1)),
    case("power of integers", np.power, AWAY, np.array([2, -1, 0])),
    binary("power_of", e.power_of, P, Y),
    unary("power_n 3", lambda x: np.power(x, 3), X, covers=("power",)),
    unary("power_n -2", lambda x: np.power(x, -2.0), AWAY, covers=("power",)),
    unary("power_n 1.5", lambda x: np.power(x, 1.5), P),
    unary("power_n 0", lambda x: np.power(x, 0.0), X, order=0),
    unary("power_n complex", lambda x: np.power(x, 3), Z),
    unary("power operator", lambda x: x**2 + x**3 + x**-1, AWAY),
    case("power base", lambda x: 2.0**x + np.float64(3) ** x, X),
    case("float_power", np.float_power, P, Y, kinds=("strided",)),
    unary("sqrt", np.sqrt, P, covers=("root_slope",)),
    *[
        case(
            f"emath_{f.__name__} {place}", lambda x, f=f, a=a: np.abs(f(a * x) + 3.0) ** 2, x, numpy_only=True
        )
        for f, inside, outside in [
            *[(f, (1.0, P), (-1.0, P)) for f in (np.emath.sqrt, np.emath.log, np.emath.log2, np.emath.log10)],
            *[(f, (1.0, U), (3.0, 0.5 + P)) for f in (np.emath.arccos, np.emath.arcsin, np.emath.arctanh)],
        ]
        for place, (a, x) in (("inside", inside), ("outside", outside))
    ],
    case(
        "logn",
        lambda x: np.emath.logn(3.0, x) + np.abs(np.emath.logn(2.0, -x)) ** 2,
        P,
        numpy_only=True,
    ),
    case(
        "emath_power",
        lambda x: np.emath.power(x, 1.5) + np.abs(np.emath.power(-x, 0.5)) ** 2,
        P,
        numpy_only=True,
    ),
    unary("sqrt complex", np.sqrt, Z),
    unary("cbrt", np.cbrt, AWAY),
    # exponentials
    unary("exp", np.exp, X),
    unary("exp complex", np.exp, Z),
    unary("exp2", np.exp2, X),
    unary("expm1", np.expm1, X),
    unary("log", np.log, P),
    unary("log complex", np.log, Z),
    unary("log2", np.log2, P),
    unary("log10", np.log10, P),
    unary("log1p", np.log1p, P),
    binary("logaddexp", np.logaddexp, X, Y),
    binary("logaddexp2", np.logaddexp2, X, Y),
    # trigonometry
    unary("sin", np.sin, X),
    unary("cos", np.cos, X),
    unary("tan", np.tan, U),
    unary("arcsin", np.arcsin, U, eps=2e-4, covers=("other_leg", "less_square", "bell")),
    unary("arccos", np.arccos, U, eps=2e-4),
    unary("arctan", np.arctan, X),
    binary("arctan2", np.arctan2, X, AWAY),
    unary("sinh", np.sinh, X),
    unary("cosh", np.cosh, X),
    unary("tanh", np.tanh, X, covers=("tanh_slope",)),
    unary("arcsinh", np.arcsinh, X),
    unary("arccosh", np.arccosh, 1.2 + P),
    unary("arctanh", np.arctanh, U, eps=2e-4),
    *[unary(f"{f.__name__} complex", f, Z) for f in (np.sin, np.cos, np.tan, np.sinh, np.cosh, np.tanh)],
    *[
        unary(f"{f.__name__} complex", f, Z, numpy_only=True)
        for f in (
            np.arcsin,
            np.arccos,
            np.arctan,
            np.arcsinh,
            np.arccosh,
            np.arctanh,
            np.expm1,
            np.log1p,
            np.log2,
            np.log10,
            np.exp2,
        )
    ],
    unary("deg2rad", np.deg2rad, X),
    unary("rad2deg", np.rad2deg, X),
    unary("sinc", np.sinc, np.array([[0.0, 0.01, -0.3], [0.7, 1.9, -2.5]])),
    # corners
    unary("absolute", np.absolute, AWAY),
    unary("absolute complex", np.absolute, Z, covers=("phase_of",)),
    unary("fabs", np.fabs, AWAY),
    unary("sign", np.sign, AWAY, order=0),
    binary("hypot", np.hypot, X, AWAY, covers=("part_of_hypot",)),
    binary("maximum", np.maximum, D, 0.05 + D[::-1]),
    binary("minimum", np.minimum, D, 0.05 + D[::-1]),
    binary("fmax", np.fmax, D, 0.05 + D[::-1]),
    binary("fmin", np.fmin, D, 0.05 + D[::-1]),
    unary("clip", lambda x: np.clip(x, -0.5, 0.5), D),
    case(
        "clip by arrays",
        lambda x, a, b: np.clip(x * x, a, b),
        D,
        np.array([0.0, 0.3, 0.1]),
        np.array([[0.5], [0.8]]),
    ),
    unary("clip below", lambda x: np.clip(x, 0.0, None), D),
    case("clip min and max", lambda x: np.clip(x, min=-0.5, max=0.3), D),
    binary("where", lambda x, y: np.where(x + y > 0, x, y * y), D, Y),
    case("where broadcast", lambda x, y: np.where(np.abs(x) > 0.4, y, 1.0) * x, D, np.array(0.7)),
    binary("select", lambda x, y: m.select(x > 0, x * y, y), D, Y),
    # rounding
    *[unary(f.__name__, f, CEIL, order=0) for f in (np.floor, np.ceil, np.rint, np.trunc)],
    binary("nextafter", np.nextafter, CEIL, 0.7 * P),
    unary("spacing", np.spacing, CEIL, order=0, numpy_only=True),
    unary("around", np.round, CEIL, order=0),
    case("around decimals", lambda x: np.around(10.0 * x, -1), CEIL, order=0),
    case("around noise", lambda x: np.around(x, 12), CEIL, covers=("without_noise",)),
    *[
        unary(f.__name__, f, CEIL, order=0)
        for f in (np.isnan, np.isinf, np.isfinite, np.signbit, np.logical_not)
    ],
    *[
        binary(f.__name__, f, CEIL, 0.7 * P, order=0)
        for f in (
            np.floor_divide,
            np.less,
            np.less_equal,
            np.greater,
            np.greater_equal,
            np.equal,
            np.not_equal,
        )
    ],
    *[binary(f.__name__, f, CEIL, P, order=0) for f in (np.logical_and, np.logical_or, np.logical_xor)],
    binary("remainder", np.remainder, CEIL, np.full((2, 3), 0.93)),
    case("remainder operator", lambda x: x % 0.93 + x // 2, CEIL),
    binary("fmod", np.fmod, AWAY + np.array([3.0, -4.0, 5.0]), np.full((2, 3), 0.71)),
    unary("fraction", m.fraction, CEIL),
    unary("modf", np.modf, -CEIL),
    case("divmod", np.divmod, CEIL, np.full((2, 3), 0.93)),
    case("scaled", m.scaled, X, np.array([1, -2, 3], np.int32)),
    case("ldexp", np.ldexp, X, np.array([1, -2, 3], np.int32)),
    unary("frexp", np.frexp, AWAY, covers=("exponent",)),
    binary("copysign", np.copysign, AWAY, -AWAY[::-1]),
    binary("heaviside", np.heaviside, AWAY, Y, order=0),
    unary("nan_to_num", np.nan_to_num, X),
    unary("with_finite", lambda x: np.nan_to_num(1.0 / x, posinf=3.0), X),
    unary("angle", lambda z: np.angle(z), Z),
    unary("angle degrees", lambda z: np.angle(z, deg=True), Z),
    # parts of complex numbers
    unary("conj", np.conj, Z),
    unary("real", lambda z: s.real(z), Z),
    unary("imag", lambda z: s.imag(z), Z),
    unary("imaginary", lambda z: s.imaginary(z), X),
]
