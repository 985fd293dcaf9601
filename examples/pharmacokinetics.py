"""200 subjects take a drug every twelve hours; the parameters of each are fitted to ten concentrations.

A right-hand side becomes a compiled solver, and the misfit of one subject becomes one kernel for all subjects
(`tapegrad.optimize.minimize_many`). The parameters are the logarithms of absorption rate, clearance and
volume.

    python examples/pharmacokinetics.py                  # prints the table
    python examples/pharmacokinetics.py --device cuda    # all fits on the device
"""

import argparse
import time

import numpy as np
from device import add_option, array_module, to_host

import tapegrad as tg

SUBJECTS, SPREAD, NOISE, DOSE = 200, 0.3, 0.03, 100.0
TIMES = np.array([0.5, 1.0, 2.0, 4.0, 8.0, 11.9, 13.0, 16.0, 20.0, 30.0])
DOSES = np.array([0.0, 12.0]), np.array([[DOSE, DOSE], [0.0, 0.0]])
MEAN = np.log([1.2, 4.0, 30.0])


def slope(t, y, p):
    absorbed = p[0] * y[0]  # from the gut into the blood
    return np.array([-absorbed, absorbed - p[1] / p[2] * y[1]])


solve = tg.ode.solver(slope, save_at=TIMES, rtol=1e-9)


def concentration(q):
    p = np.exp(q)
    return solve(np.zeros(2), p, t0=0.0, doses=DOSES).y[1] / p[2]


def misfit(q, data):
    """The squares of one subject, with the spread of subjects as prior."""
    error = np.log(concentration(q)) - data
    return (error**2).sum() / NOISE**2 + (((q - MEAN) / SPREAD) ** 2).sum()


def closed_form(q, t):
    """After one dose."""
    absorption, clearance, volume = np.exp(q)
    rate = clearance / volume
    return DOSE / volume * absorption / (absorption - rate) * (np.exp(-rate * t) - np.exp(-absorption * t))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_option(parser)
    xp = array_module(parser.parse_args().device)
    rng = np.random.default_rng(0)
    true = MEAN[:, None] + SPREAD * rng.standard_normal((3, SUBJECTS))
    data = np.stack([np.log(concentration(q)) for q in true.T.copy()], 1) + NOISE * rng.standard_normal(
        (len(TIMES), SUBJECTS)
    )
    assert np.allclose(concentration(MEAN)[:6], closed_form(MEAN, TIMES[:6]), rtol=1e-5)

    begun = time.perf_counter()
    fit = tg.optimize.minimize_many(
        misfit, xp.asarray(np.repeat(MEAN[:, None], SUBJECTS, 1)), xp.asarray(data)
    )
    seconds = time.perf_counter() - begun
    error = np.median(np.abs(to_host(fit.x) - true), 1)
    print(f"{fit.converged.sum()} of {SUBJECTS} fits converged, in {seconds:.1f} s with compilation")
    print("parameter     spread of subjects   median error of the fits")
    for name, spread, e in zip(("absorption", "clearance", "volume"), true.std(1), error, strict=True):
        print(f"{name:12s}  {spread:18.3f}   {e:24.3f}")
    assert fit.converged.all() and (error < 0.06).all()


if __name__ == "__main__":
    main()
