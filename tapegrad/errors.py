"""The exceptions.  Each is a `TapegradError` and also the builtin that a caller would expect; the text says what happened,
where, and what to write instead."""

import numpy as np


class TapegradError(Exception):
    """Base class of every error raised by tapegrad."""


class DroppedDerivativeError(TapegradError, TypeError):
    """A tracked value was about to become a plain number or array, which would drop its derivative in silence."""


class NotScalarError(TapegradError, TypeError):
    """A gradient was asked of a function whose value is not a real scalar."""


class ArgumentError(TapegradError, TypeError):
    """An argument cannot be differentiated, or does not fit what the call needs."""


class DeviceError(TapegradError, TypeError):
    """Arrays of two libraries or two devices met in one operation."""


class NoRuleError(TapegradError, NotImplementedError):
    """An operation without a derivative rule met a tracked value."""


class ShapeError(TapegradError, ValueError):
    """Shapes do not fit together."""


class DataError(TapegradError, ValueError):
    """Observations that a model cannot use: infinite ones, or too few."""


class AliasError(TapegradError, RuntimeError):
    """Two arguments share memory and one of them is written."""


class GuardError(TapegradError, RuntimeError):
    """A recorded computation met a branch or shape other than the recorded one."""


class KernelError(TapegradError, RuntimeError):
    """A kernel could not be built or launched."""


class ConvergenceError(TapegradError, RuntimeError):
    """An optimiser stopped before it reached a maximum."""


class NotPositiveDefiniteError(TapegradError, np.linalg.LinAlgError):
    """A matrix that must be positive definite is not."""


class NonDifferentiableWarning(RuntimeWarning):
    """A second derivative where there is none, or none that can be told, was taken as zero."""
