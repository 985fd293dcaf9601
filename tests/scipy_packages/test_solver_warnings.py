"""Functions of SciPy that warn of a bad input warn under each transform too: of the same categories, and
where a plain call names the user's line, at that line."""

import os
import warnings

import numpy as np
import pytest
import scipy.integrate
import scipy.interpolate
import scipy.linalg
import scipy.optimize
import scipy.signal

import tapegrad as tg
from tapegrad.errors import TapegradError
from tapegrad.ops.declare import SCIPY

PACKAGE = os.path.dirname(tg.__file__)
H, J = scipy.linalg.hilbert(13), np.array([[0.0, 1.0], [0.0, 0.0]])
b, t = np.arange(1.0, 14.0), np.linspace(0, 1, 5)
XY, WILD = np.random.default_rng(0).random((2, 50)), np.sin(99 * np.arange(50))
TRIANGLE, INPUTS = np.array([[1.0, 2, 3], [0, 1, 2], [0, 0, 1]]), np.array([[1.0, 0], [0, 1], [1, 1]])

CASES = {
    "solve": lambda s: scipy.linalg.solve(H * s, b),
    "inv": lambda s: scipy.linalg.inv(H * s),
    "solve_sym": lambda s: scipy.linalg.solve(H * s, b, assume_a="sym"),
    "lu_factor": lambda s: scipy.linalg.lu_factor(np.array([[1.0, 2], [2, 4]]) * s)[0],
    "logm": lambda s: scipy.linalg.logm(np.array([[1.0, 2], [0, 0.0]]) * s),
    "sqrtm": lambda s: scipy.linalg.sqrtm(J * s),
    "quad": lambda s: scipy.integrate.quad(lambda x: s / x, 0, 1)[0],
    "quad2": lambda s: scipy.integrate.quad(lambda x: np.sin(s * 1000 * x), 0, 10, limit=3)[0],
    "dblquad": lambda s: scipy.integrate.dblquad(lambda y, x: s / x, 0, 1, 0, 1)[0],
    "nquad": lambda s: scipy.integrate.nquad(lambda y: s * np.sin(1000 * y), [[0, 10]])[0],
    "odeint": lambda s: scipy.integrate.odeint(lambda y, t: s * y * y, 1.0, np.array([0, 1, 2.0]))[-1],
    "odeint2": lambda s: scipy.integrate.odeint(
        lambda y, t: -1000 * s * y, 1.0, np.array([0, 1, 2.0]), mxstep=3
    )[-1],
    "solve_ivp": lambda s: scipy.integrate.solve_ivp(lambda t, y: s * y, (0, 1), [1.0], foo=3).y,
    "newton": lambda s: scipy.optimize.newton(lambda x: s + 0 * x, 1.0, disp=False),
    "fsolve": lambda s: scipy.optimize.fsolve(lambda x: x * x + s, 1.0),
    "fsolve2": lambda s: scipy.optimize.fsolve(lambda x: x**3 - s, 0.1, maxfev=3),
    "leastsq": lambda s: scipy.optimize.leastsq(lambda x: x**3 - s, 0.1, maxfev=3)[0],
    "curve_fit": lambda s: scipy.optimize.curve_fit(lambda x, a, b: s * a * x + 0 * b, t, 2 * t)[0][:1],
    "curve_fit3": lambda s: scipy.optimize.curve_fit(lambda x, a: a * x, t[:1], 2 * t[:1] * s)[0][:1],
    "minimize_unk": lambda s: (
        scipy.optimize.minimize(lambda x: (x - s) @ (x - s), np.zeros(2), options={"foo": 1}).x
    ),
    "minimize_jac": lambda s: (
        scipy.optimize.minimize(
            lambda x: (x - s) @ (x - s), np.zeros(2), method="Nelder-Mead", jac=lambda x: 2 * (x - s)
        ).x
    ),
    "minimize_bounds": lambda s: (
        scipy.optimize.minimize(
            lambda x: (x - s) @ (x - s), np.zeros(2), method="BFGS", bounds=[(-5, 5)] * 2
        ).x
    ),
    "minimize_clip": lambda s: (
        scipy.optimize.minimize(
            lambda x: (x - s) @ (x - s), np.ones(2) * 9, method="Nelder-Mead", bounds=[(-5, 5)] * 2
        ).x
    ),
    "linprog": lambda s: (
        scipy.optimize.linprog(
            s * np.array([1.0, 2]), A_eq=[[1.0, 1], [2, 2]], b_eq=[1.0, 2], method="highs", options={"foo": 1}
        ).x
    ),
    "nnls": lambda s: scipy.optimize.nnls(np.eye(2), s * np.array([1.0, 2]), atol=1e-3)[0],
    "root": lambda s: scipy.optimize.root(lambda x: x**3 - s, np.ones(2), options={"foo": 3}).x,
    "minimize_scalar": lambda s: (
        scipy.optimize.minimize_scalar(
            lambda x: (x - s) ** 2, bounds=(-3, 9), method="bounded", options={"foo": 3}
        ).x
    ),
    "root_scalar": lambda s: (
        scipy.optimize.root_scalar(
            lambda x: x**3 - s, x0=0.0, fprime=lambda x: 3 * x * x, method="newton", maxiter=3
        ).root
    ),
    "spline": lambda s: scipy.interpolate.UnivariateSpline(t, s * np.array([0, 1, 0, 2, 5.0]), s=1e-20)(0.3),
    "bisplrep": lambda s: scipy.interpolate.bisplev(
        0.3, 0.3, scipy.interpolate.bisplrep(*XY, s * WILD, s=1e-12)
    ),
    "smooth": lambda s: scipy.interpolate.SmoothBivariateSpline(*XY, s * WILD, s=1e-12)(0.3, 0.3),
    "lsqbi": lambda s: scipy.interpolate.LSQBivariateSpline(
        *XY, s * WILD, [0.3, 0.31, 0.32, 0.33, 0.34], [0.3, 0.31, 0.32]
    )(0.3, 0.3),
    "krogh": lambda s: scipy.interpolate.KroghInterpolator(np.linspace(0, 1, 40), s * np.arange(40.0))(0.3),
    "tf2zpk": lambda s: scipy.signal.normalize(s * np.array([0.0, 1]), [1.0, 2])[0],
    "tf2ss": lambda s: scipy.signal.tf2ss(s * np.array([0.0, 1]), [1.0, 2, 3])[0],
    "group_delay": lambda s: scipy.signal.group_delay((s * np.array([1.0, 0, 1]), [1.0]), w=[np.pi / 2, 0.3])[
        1
    ],
    "welch": lambda s: scipy.signal.welch(s * np.arange(10.0), nperseg=256)[1],
    "csd": lambda s: scipy.signal.csd(s * np.arange(10.0), np.arange(10.0) ** 2, nperseg=256)[1].real,
    "spectrogram": lambda s: scipy.signal.spectrogram(s * np.arange(10.0), nperseg=256)[2],
    "stft": lambda s: abs(scipy.signal.stft(s * np.arange(1, 10.0), nperseg=256)[2])[0],
    "istft": lambda s: scipy.signal.istft(s * np.ones((129, 5)), nperseg=256, noverlap=0)[1],
    "prominences": lambda s: scipy.signal.peak_prominences(s * np.array([0, 1, 0.0]), [0])[0] * s,
    "place_poles": lambda s: (
        scipy.signal.place_poles(TRIANGLE, s * INPUTS, [-1, -2, -3], maxiter=1).gain_matrix
    ),
    "zpk2sos": lambda s: scipy.signal.lti([0.0, 1.0], [1.0, s, 2.0]).num,
    "cont2discrete": lambda s: scipy.signal.cont2discrete(([0.0, s], [1.0, 2.0]), 0.1)[0],
    "findwid": lambda s: scipy.signal.peak_widths(s * np.array([0, 1, 0.0, 0]), [0])[0] * s,
}
SAMPLE = (
    "solve",
    "inv",
    "quad",
    "curve_fit",
    "minimize_unk",
    "welch",
    "istft",
    "group_delay",
    "krogh",
    "tf2zpk",
    "spline",
)
NOT_DERIVED = (TapegradError, np.linalg.LinAlgError)


def given(call):
    """The warnings of a call, (category, file, line); None where it has no derivative, and says so."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        try:
            call()
        except NOT_DERIVED:
            return None
    return {(w.category, w.filename, w.lineno) for w in found}


def ways(f):
    total = lambda s: np.sum(np.real(f(s)))
    prepared = tg.prepare(total, 1.3)
    yield "grad", lambda: tg.grad(total)(1.3)
    yield "jvp", lambda: tg.jvp(total, (1.3,), (1.0,))
    yield "vmap", lambda: tg.vmap(f)(np.array([1.3, 1.4]))
    yield "recorded", lambda: prepared.value(1.3)
    yield "again", lambda: prepared.value(1.3)
    yield "replayed", lambda: prepared.value(1.35)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in SAMPLE else pytest.mark.long) for n in CASES]
)
def test_warnings_are_those_of_a_plain_call(name):
    f = CASES[name]
    plain = given(lambda: f(1.3))
    assert plain or SCIPY < (1, 17), "the plain call is to warn"
    mine = {w[0] for w in plain if w[1] == __file__}
    followed = 0
    for way, call in ways(f):
        found = given(call)
        if found is None:
            continue
        followed += 1
        assert {w[0] for w in plain} <= {w[0] for w in found}, way
        assert mine <= {w[0] for w in found if w[1] == __file__}, way
        assert not [w for w in found if w[1].startswith(PACKAGE) and w[0] is not RuntimeWarning], way
    assert followed > 2
