"""tapegrad differentiates ordinary NumPy and CuPy programs, in reverse and forward mode, nested to any order."""

import os
from typing import TYPE_CHECKING, Any

from . import cache as cache
from . import errors as errors
from ._late import ELSEWHERE as _ELSEWHERE
from ._late import ON_USE as _ON_USE
from ._late import PUBLIC as _PUBLIC
from ._late import load as _load
from ._linearize import linearize as linearize
from ._memory import checkpoint as checkpoint
from ._memory import inplace as inplace
from ._memory import stateful as stateful
from ._recording import Dual as Dual
from ._recording import Tape as Tape
from ._recording import ravel as ravel
from ._recording import value as value
from ._rule import rule as rule
from ._transforms import grad as grad
from ._transforms import hessian as hessian
from ._transforms import hmp as hmp
from ._transforms import hvp as hvp
from ._transforms import jacobian as jacobian
from ._transforms import jvp as jvp
from ._transforms import value_and_grad as value_and_grad
from ._transforms import value_grad_hvp as value_grad_hvp
from ._transforms import vjp as vjp
from ._tree import Const as Const
from ._tree import register_tree as register_tree
from ._variable import Variable as Variable
from ._vmap import vmap as vmap
from .ops import _attach as _attach

if os.environ.get("TAPEGRAD_FAST") != "0":  # the engine runs without it, slower
    from . import _fast as _fast

__version__ = "0.1.0"


if TYPE_CHECKING:  # what loads on first use, for type checkers
    from . import cupy as cupy
    from . import implicit as implicit
    from . import kernels as kernels
    from . import numpy as numpy
    from . import operators as operators
    from . import optimize as optimize
    from . import scipy as scipy
    from . import sparse as sparse
    from . import statespace as statespace
    from . import stats as stats
    from . import testing as testing
    from ._anomalies import detect_anomalies as detect_anomalies
    from ._audit import audit as audit
    from ._graph import graph as graph
    from ._profile import profile as profile
    from .replay import prepare as prepare

else:

    def __getattr__(name: str) -> Any:
        """Subpackages load on first use (PEP 562)."""
        if name in _PUBLIC:
            return _load(f"tapegrad.{name}")
        if name in _ON_USE:
            return getattr(_load(_ON_USE[name]), name)
        hint = f"; what other libraries call {name} is here tapegrad.{_ELSEWHERE[name]}" if name in _ELSEWHERE else ""
        raise AttributeError(f"module 'tapegrad' has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    """What is public, for completion."""
    own = [n for n, x in globals().items() if not n.startswith("_") and getattr(x, "__module__", "").startswith("tapegrad")]
    return sorted({*own, "cache", "errors", "__version__", *_PUBLIC, *_ON_USE})
