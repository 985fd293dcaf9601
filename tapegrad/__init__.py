"""tapegrad differentiates ordinary NumPy and CuPy programs, in reverse and forward mode, nested to any
order."""

import os
from typing import TYPE_CHECKING, Any

from . import cache as cache
from . import errors as errors
from ._core.registry import ELSEWHERE as _ELSEWHERE
from ._core.registry import ON_USE as _ON_USE
from ._core.registry import PUBLIC as _PUBLIC
from ._core.registry import LoadTransaction as _LoadTransaction
from ._core.registry import load as _load

with _LoadTransaction():
    from ._core.trees import Const as Const
    from ._core.trees import register_tree as register_tree
    from ._core.variable import Variable as Variable
    from ._transforms.checkpoint import checkpoint as checkpoint
    from ._transforms.checkpoint import inplace as inplace
    from ._transforms.checkpoint import stateful as stateful
    from ._transforms.custom_rule import rule as rule
    from ._transforms.dual_numbers import Dual as Dual
    from ._transforms.gradient import grad as grad
    from ._transforms.gradient import value_and_grad as value_and_grad
    from ._transforms.hessian_products import hmp as hmp
    from ._transforms.hessian_products import hvp as hvp
    from ._transforms.hessian_products import value_grad_hvp as value_grad_hvp
    from ._transforms.jacobian import hessian as hessian
    from ._transforms.jacobian import jacobian as jacobian
    from ._transforms.linearize import linearize as linearize
    from ._transforms.products import jvp as jvp
    from ._transforms.products import vjp as vjp
    from ._transforms.tape import Tape as Tape
    from ._transforms.tape import ravel as ravel
    from ._transforms.tape import value as value
    from ._transforms.time_loop import loop as loop
    from ._transforms.vmap import vmap as vmap
    from .ops import variable_methods as _variable_methods  # noqa: F401

    if os.environ.get("TAPEGRAD_FAST") != "0":  # the engine runs without it, slower
        from ._dispatch import fast as _fast  # noqa: F401

__version__ = "0.2.0"


if TYPE_CHECKING:  # what loads on first use, for type checkers
    from . import cupy as cupy
    from . import implicit as implicit
    from . import interop as interop
    from . import kernels as kernels
    from . import loops as loops
    from . import numpy as numpy
    from . import ode as ode
    from . import operators as operators
    from . import optimize as optimize
    from . import parallel as parallel
    from . import scipy as scipy
    from . import sparse as sparse
    from . import statespace as statespace
    from . import stats as stats
    from . import testing as testing
    from . import tree as tree
    from .optimize._propagation import propagate as propagate
    from .replay import prepare as prepare
    from .sparse import laplace as laplace
    from .testing.diagnostics.anomalies import detect_anomalies as detect_anomalies
    from .testing.diagnostics.audit import audit as audit
    from .testing.diagnostics.graph import graph as graph
    from .testing.diagnostics.profile import profile as profile
    from .testing.diagnostics.versions import show_versions as show_versions

else:

    def __getattr__(name: str) -> Any:
        """Subpackages load on first use (PEP 562)."""
        if name in _PUBLIC:
            return _load(f"tapegrad.{name}")
        if name in _ON_USE:
            return getattr(_load(_ON_USE[name]), name)
        hint = (
            f"; what other libraries call {name} is here tapegrad.{_ELSEWHERE[name]}"
            if name in _ELSEWHERE
            else ""
        )
        raise AttributeError(f"module 'tapegrad' has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    """What is public, for completion."""
    own = [
        n
        for n, x in globals().items()
        if not n.startswith("_") and getattr(x, "__module__", "").startswith("tapegrad")
    ]
    return sorted({*own, "cache", "errors", "__version__", *_PUBLIC, *_ON_USE})
