import astropy.units as u
import naima.models
import nmrglue.process.proc_base as processing
import numpy as np
from astropy.modeling import models
from nmrglue.analysis import lineshapes1d
from nmrglue.process import proc_autophase, proc_bl

SIGNAL = np.exp((1j * 0.9 - 0.05) * np.arange(32.0)) + 0.5 * np.exp((2.1j - 0.1) * np.arange(32.0))
ENERGIES = np.array([0.3, 1.0, 4.0, 20.0])


def lines(x):
    t = np.arange(12.0)
    return np.concatenate(
        [
            lineshapes1d.sim_voigt_fwhm(t, x[0], x[1], x[2]),
            lineshapes1d.sim_gauss_fwhm(t, x[0], x[1]),
            lineshapes1d.sim_lorentz_gamma(t, x[0], x[2]),
        ]
    )


def processed(x):
    data = processing.gmb(processing.em(SIGNAL * x[0], lb=x[1]), a=0.01, b=x[2])
    return processing.ps(processing.fft(processing.zf_auto(data)), p0=30.0 * x[2], p1=4.0).real


def windowed(x):
    data = processing.tm(processing.sp(x + 0j, off=0.35, end=0.98, pow=2.0), t1=4, t2=9)
    return np.abs(processing.ha(processing.fft_norm(data)))


def phase_score(x):
    return proc_autophase._ps_acme_score(x, processing.fft(SIGNAL)[:24])


def flattened(x):
    return proc_bl.med(x, mw=4, sf=3, sigma=1.5)


def power_law(x):
    law = naima.models.ExponentialCutoffPowerLaw(x[0] / u.eV, 1 * u.TeV, x[1], x[2] * u.TeV)
    return law(ENERGIES * u.TeV).value


def synchrotron(x):
    electrons = naima.models.ExponentialCutoffPowerLaw(x[0] / u.eV, 10 * u.TeV, x[1], x[2] * u.TeV)
    source = naima.models.Synchrotron(electrons, B=100 * u.uG, Eemin=1 * u.TeV, nEed=8)
    return source.flux(ENERGIES * u.keV, distance=1 * u.kpc).value


def fitted_lines(x):
    model = models.Gaussian1D(x[0], x[1], x[2]) + models.Lorentz1D(0.5, 2.0, x[2]) + models.Const1D(0.1)
    return model(np.linspace(0.0, 4.0, 9))


def galaxy(x):
    return models.Sersic2D(x[0], x[1], 2.5, 3.0, 3.0, ellip=x[2], theta=0.4)(
        np.arange(6.0), np.arange(6.0)[::-1]
    )


CALLS = [
    (lines, [5.3, 2.1, 1.4]),
    (processed, [1.2, 0.02, 0.3]),
    (windowed, np.cos(0.7 * np.arange(16.0))),
    (phase_score, [12.0, 25.0]),
    (flattened, np.sin(0.4 * np.arange(24.0)) + 0.1 * np.cos(5 * np.arange(24.0))),
    (power_law, [1.3, 2.1, 13.0]),
    (synchrotron, [1.3, 2.1, 13.0]),
    (fitted_lines, [1.2, 1.1, 0.4]),
    (galaxy, [1.1, 2.3, 0.3]),
]
