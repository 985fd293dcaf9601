"""The nonlinear Statistical Reference Datasets of NIST, from both published starts.

`nist_strd.json` holds starts, certified estimates, standard errors, sums of squares and data, as published on
https://www.itl.nist.gov/div898/strd/nls/nls_main.shtml (27 sets, of which NIST is the author). It was made
from the unchanged files of NIST that the source package of lmfit 1.3.2 ships."""

import json
from pathlib import Path

import numpy as np
import pytest

import tapegrad as tg

SETS = json.loads((Path(__file__).parents[1] / "support" / "nist_strd.json").read_text())


def gauss(x, b1, b2, b3, b4, b5, b6, b7, b8):
    return (
        b1 * np.exp(-b2 * x) + b3 * np.exp(-((x - b4) ** 2) / b5**2) + b6 * np.exp(-((x - b7) ** 2) / b8**2)
    )


def lanczos(x, b1, b2, b3, b4, b5, b6):
    return b1 * np.exp(-b2 * x) + b3 * np.exp(-b4 * x) + b5 * np.exp(-b6 * x)


def enso(x, b1, b2, b3, b4, b5, b6, b7, b8, b9):
    wave = lambda period, c, s: c * np.cos(2 * np.pi * x / period) + s * np.sin(2 * np.pi * x / period)
    return b1 + wave(12, b2, b3) + wave(b4, b5, b6) + wave(b7, b8, b9)


def cubics(x, b1, b2, b3, b4, b5, b6, b7):
    return (b1 + b2 * x + b3 * x**2 + b4 * x**3) / (1 + b5 * x + b6 * x**2 + b7 * x**3)


def chwirut(x, b1, b2, b3):
    return np.exp(-b1 * x) / (b2 + b3 * x)


def saturation(x, b1, b2):
    return b1 * (1 - np.exp(-b2 * x))


MODELS = {
    "Bennett5": lambda x, b1, b2, b3: b1 * (b2 + x) ** (-1 / b3),
    "BoxBOD": saturation,
    "Chwirut1": chwirut,
    "Chwirut2": chwirut,
    "DanWood": lambda x, b1, b2: b1 * x**b2,
    "ENSO": enso,
    "Eckerle4": lambda x, b1, b2, b3: b1 / b2 * np.exp(-0.5 * ((x - b3) / b2) ** 2),
    "Gauss1": gauss,
    "Gauss2": gauss,
    "Gauss3": gauss,
    "Hahn1": cubics,
    "Kirby2": lambda x, b1, b2, b3, b4, b5: (b1 + b2 * x + b3 * x**2) / (1 + b4 * x + b5 * x**2),
    "Lanczos1": lanczos,
    "Lanczos2": lanczos,
    "Lanczos3": lanczos,
    "MGH09": lambda x, b1, b2, b3, b4: b1 * (x**2 + x * b2) / (x**2 + x * b3 + b4),
    "MGH10": lambda x, b1, b2, b3: b1 * np.exp(b2 / (x + b3)),
    "MGH17": lambda x, b1, b2, b3, b4, b5: b1 + b2 * np.exp(-x * b4) + b3 * np.exp(-x * b5),
    "Misra1a": saturation,
    "Misra1b": lambda x, b1, b2: b1 * (1 - (1 + b2 * x / 2) ** -2),
    "Misra1c": lambda x, b1, b2: b1 * (1 - (1 + 2 * b2 * x) ** -0.5),
    "Misra1d": lambda x, b1, b2: b1 * b2 * x / (1 + b2 * x),
    "Nelson": lambda x, b1, b2, b3: b1 - b2 * x[0] * np.exp(-b3 * x[1]),
    "Rat42": lambda x, b1, b2, b3: b1 / (1 + np.exp(b2 - b3 * x)),
    "Rat43": lambda x, b1, b2, b3, b4: b1 / (1 + np.exp(b2 - b3 * x)) ** (1 / b4),
    "Roszman1": lambda x, b1, b2, b3, b4: b1 - b2 * x - np.arctan(b3 / (x - b4)) / np.pi,
    "Thurber": cubics,
}


def published(name):
    """Return the data x and y, the two starts, the certified estimates and their standard errors."""
    found = {key: np.array(value) for key, value in SETS[name].items()}
    y, *x = found["columns"]
    return (
        np.array(x) if len(x) > 1 else x[0],
        np.log(y) if name == "Nelson" else y,
        found["starts"],
        found["certified"],
        found["errors"],
    )


def digits(found, certified):
    """Return the least number of correct digits, at most the eleven that are published."""
    error = abs(np.asarray(found) / certified - 1).max()
    return min(11.0, -np.log10(max(error, 1e-11)))


TIGHT = {"xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15, "max_nfev": 20000}
SLOW = {"Bennett5", "MGH10", "MGH17", "Lanczos1", "Lanczos3", "MGH09", "ENSO"}  # hundreds of steps
INEXACT = {"Lanczos1"}  # its residuals are rounding errors, and so are the standard errors


def by_names(slow):
    return [pytest.param(name, marks=pytest.mark.long if name in slow else ()) for name in MODELS]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("name", by_names(SLOW))
def test_one_fit(name, start):
    """SciPy's trust region ends where the sum of squares stands still, at six digits or more."""
    x, y, starts, certified, errors = published(name)
    with np.errstate(over="ignore", invalid="ignore"):  # trial steps of BoxBOD and MGH17
        fit = tg.optimize.curve_fit(MODELS[name], x, y, starts[start], method="trf", x_scale="jac", **TIGHT)
    assert digits(fit[0], certified) >= 6
    if name not in INEXACT:
        assert digits(np.sqrt(np.diag(fit[1])), errors) >= 6
        assert digits(fit.estimates().standard_errors, errors) >= 6


@pytest.mark.parametrize("name", by_names(set(MODELS) - {"BoxBOD", "Misra1a", "Rat43", "Nelson"}))
def test_many_fits(name):
    x, y, starts, certified, errors = published(name)
    f = MODELS[name]
    if name == "BoxBOD":  # from its first start a step leads to b2 = 115, where b2 has no effect
        starts = starts[1:]
    r = tg.optimize.curve_fit_many(
        f, x, np.stack([y] * len(starts), axis=1), starts.T.copy(), gtol=1e-13, maxiter=20000
    )
    assert r.converged.all()
    np.testing.assert_allclose(2 * r.cost, SETS[name]["squares"], rtol=1e-9, atol=1e-20)
    for k in range(len(starts)):
        assert digits(r.x[:, k], certified) >= 8
        assert name in INEXACT or digits(r.standard_errors[:, k], errors) >= 6


def test_lost_column_is_not_converged():
    """From the first start of BoxBOD a step leads to b2 = 115, where b2 has no effect."""
    x, y, starts, _, _ = published("BoxBOD")
    f = MODELS["BoxBOD"]
    many = tg.optimize.curve_fit_many(f, x, y[:, None], starts[0][:, None])
    one = tg.optimize.least_squares(lambda p: f(x, *p) - y, starts[0], method="gauss-newton")
    assert not many.converged[0] and not one.success
    assert "lost its effect" in many.message[0] and "lost its effect" in one.message
