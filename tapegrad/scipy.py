"""SciPy's names, for arrays and Variables alike; for CuPy arrays the functions of cupyx.scipy.

`linalg`, `special` and `fft` stand here; `stats` is `tapegrad.stats`; the others are made when they are first
met (`_scipy`)."""

from functools import partial as _partial
from typing import Any as _Any

import scipy as _scipy
import scipy.fft as _scipy_fft
import scipy.linalg as _scipy_linalg
import scipy.special as _scipy_special

from ._core.registry import load as _load
from ._dispatch.faces import faces_of as _faces_of
from .ops import on_demand as _further  # noqa: F401 (it declares)


def _routines(*args: _Any, **kwargs: _Any) -> _Any:
    return _load("tapegrad._scipy.linear_routines").chosen(*args, **kwargs)


linalg = _faces_of("tapegrad.scipy.linalg", _scipy_linalg, device="cupyx.scipy.linalg")
_OLD = {"btdtr": "betainc", "btdtri": "betaincinv"}
for _f in (_scipy_linalg.get_lapack_funcs, _scipy_linalg.get_blas_funcs):
    vars(linalg)[_f.__name__] = _partial(_routines, _f)
for _m in (_scipy_linalg.lapack, _scipy_linalg.blas):
    _faces_of(f"tapegrad.{_m.__name__}", _m)
special = _faces_of("tapegrad.scipy.special", _scipy_special, device="cupyx.scipy.special", old=_OLD)
fft = _faces_of("tapegrad.scipy.fft", _scipy_fft, device="cupyx.scipy.fft")

_ON_USE = {
    "signal": "tapegrad._scipy.signal", "ndimage": "tapegrad._scipy.ndimage",
    "interpolate": "tapegrad._scipy.interpolate",
    "integrate": "tapegrad._scipy.integrate", "spatial": "tapegrad._scipy.spatial",
    "sparse": "tapegrad._scipy.sparse",
    "optimize": "tapegrad._scipy.optimize", "fftpack": "tapegrad._scipy.fftpack",
}  # fmt: skip


def __getattr__(name: str) -> _Any:
    if name in _ON_USE:
        found = globals()[name] = _load(_ON_USE[name]).stand_in
        return found
    if name in ("cluster", "constants", "differentiate"):
        return getattr(_load("tapegrad._scipy.followed_modules"), name)
    if name == "stats":
        found = globals()[name] = _load("tapegrad.stats")
        return found
    if name == "get_array_module":
        return _load("tapegrad.cupy").get_array_module
    return getattr(_scipy, name)


def __dir__() -> _Any:
    return dir(_scipy)
