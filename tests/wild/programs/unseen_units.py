import numpy as np
import pint
import xarray as xr
from SALib.test_functions import Ishigami, Sobol_G

ureg = pint.UnitRegistry()
v = np.array([0.4, 1.2, 0.7])


def pint_speed(x):
    return (x * ureg.kilometer / ureg.hour).to("m/s").magnitude


def pint_root(x):
    return np.sqrt((x * ureg.meter) ** 2).to("cm").magnitude


def labelled(x):
    return xr.DataArray(x, dims="t").mean("t").values


def labelled_product(x):
    return (
        xr.DataArray(x, dims="t", coords={"t": [0, 1, 2]})
        * xr.DataArray(v, dims="t", coords={"t": [0, 1, 2]})
    ).values


def ishigami(x):
    return Ishigami.evaluate(np.stack([x, x + 0.1]))


def sobol(x):
    return Sobol_G.evaluate(x[None] / 2, np.array([0.5, 1.0, 4.0]))


CALLS = [(f, v) for f in (pint_speed, pint_root, labelled, labelled_product, ishigami, sobol)]
