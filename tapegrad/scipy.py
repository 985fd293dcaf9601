"""SciPy's names, for arrays and Variables alike: `linalg`, `special`, `fft`; for CuPy arrays the functions of cupyx.scipy.

`stats` is `tapegrad.stats`; of SciPy's own nothing else differentiates."""

import scipy as _scipy
import scipy.fft as _scipy_fft
import scipy.linalg as _scipy_linalg
import scipy.special as _scipy_special

from ._faces import faces_of as _faces_of
from ._late import load as _load
from .ops import further as _further  # noqa: F401 (it declares)

linalg = _faces_of("tapegrad.scipy.linalg", _scipy_linalg, device="cupyx.scipy.linalg")
special = _faces_of("tapegrad.scipy.special", _scipy_special, device="cupyx.scipy.special")
fft = _faces_of("tapegrad.scipy.fft", _scipy_fft, device="cupyx.scipy.fft")


def __getattr__(name):
    if name == "stats":
        return _load("tapegrad.stats")
    if name == "get_array_module":
        return _load("tapegrad.cupy").get_array_module
    return getattr(_scipy, name)


def __dir__():
    return dir(_scipy)
