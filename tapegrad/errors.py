"""The exceptions.  Each is a `TapegradError` and also the builtin that a caller would expect; the text says
what happened, where, and what to write instead."""

from ._core.errors import AliasError as AliasError
from ._core.errors import AnomalyError as AnomalyError
from ._core.errors import ArgumentError as ArgumentError
from ._core.errors import BatchError as BatchError
from ._core.errors import ConvergenceError as ConvergenceError
from ._core.errors import DataError as DataError
from ._core.errors import DenseWarning as DenseWarning
from ._core.errors import DeviceError as DeviceError
from ._core.errors import DroppedDerivativeError as DroppedDerivativeError
from ._core.errors import GuardError as GuardError
from ._core.errors import KernelError as KernelError
from ._core.errors import NonDifferentiableWarning as NonDifferentiableWarning
from ._core.errors import NoRuleError as NoRuleError
from ._core.errors import NotPositiveDefiniteError as NotPositiveDefiniteError
from ._core.errors import NotScalarError as NotScalarError
from ._core.errors import RankError as RankError
from ._core.errors import ReplayWarning as ReplayWarning
from ._core.errors import RouteError as RouteError
from ._core.errors import ShapeError as ShapeError
from ._core.errors import SingularError as SingularError
from ._core.errors import TapegradError as TapegradError


def __dir__() -> list[str]:
    return [n for n, x in globals().items() if isinstance(x, type)]
