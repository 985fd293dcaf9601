"""Linear Gaussian state space models: their description, the checks, and ready-made ones.

    x[t+1] = T[t] x[t] + c[t] + R[t] eta[t],   eta[t] ~ N(0, Q[t])        transition
    y[t]   = Z[t] x[t] + d[t] + eps[t],        eps[t] ~ N(0, H[t])        observation

`LinearGaussian` is what the user writes; `ModelMatrices` is the same model after the checks, every matrix in
one form and in the array library of the data.  The letters are those of J. Durbin and S. J. Koopman, Time
Series Analysis by State Space Methods, 2nd edition (2012), cited below as DK.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy

from .. import numpy as np
from .._core.arrays import is_array, to_host, xp_of
from .._core.errors import ArgumentError, DataError, NotPositiveDefiniteError, ShapeError
from .._core.primitive import SAMPLED, is_tracked, nests_variable, primal_of, seen, values_of
from .._core.scope import OPEN
from .._core.trees import Const
from .._core.variable import Variable
from .._transforms.tape import value
from ._labels import LibraryBound, labels_of


@dataclass(frozen=True)
class Start:
    """The distribution of the first state.

    Parameters
    ----------
    mean : scalar or array of shape (m,), default 0
        The mean.
    cov : scalar, or array of shape (m,) of variances, or (m, m), default 0
        The covariance.
    diffuse : bool or sequence of m bool, default False
        True gives every element an infinite variance, treated exactly (DK chapter 5). A sequence marks some
        elements, and `mean` and `cov` then describe the rest.
    stationary : bool, default False
        Whether mean and covariance are those of the stationary distribution of the transition.
    predict_first : bool, default False
        Whether this is the state before the first transition, not the one of the first observation. Then
        T[t], c[t], Q[t] lead into time t instead of out of it.

    See Also
    --------
    LinearGaussian : Takes a start.

    Examples
    --------
    >>> from tapegrad import statespace as ss
    >>> ss.Start(mean=0.0, cov=1e7)
    Start(mean=0.0, cov=10000000.0, diffuse=False, stationary=False, predict_first=False)
    """

    mean: Any = 0.0
    cov: Any = 0.0
    diffuse: bool | Sequence[bool] = False
    stationary: bool = False
    predict_first: bool = False


@dataclass(frozen=True)
class LinearGaussian:
    """A linear Gaussian state space model with m states and p observations a step.

    A matrix may vary over time. It then has one more axis in front, of at least as many steps as the data.

    Parameters
    ----------
    transition : scalar (m = 1) or array of shape (m, m)
        The matrix T.
    observation : scalar (m = p = 1), or array of shape (m,) for p = 1, or (p, m)
        The matrix Z.
    transition_cov : scalar variance, or array of shape (r,) of variances, or (r, r)
        The covariance Q.
    observation_cov : scalar variance, or array of shape (p,) of variances, or (p, p)
        The covariance H.
    selection : array of shape (m, r), optional
        The matrix R. By default r = m, and the noise enters every state.
    transition_offset : scalar or array of shape (m,), default 0
        The vector c.
    observation_offset : scalar or array of shape (p,), default 0
        The vector d.
    start : Start, optional
        The distribution of the first state. The default is an exact diffuse start.
    state_names : sequence of str, optional
        Names of the m states, for errors and plots.

    Raises
    ------
    ShapeError
        When the model meets data, if a matrix does not fit. It names the matrix, its shape and the one
        wanted.

    See Also
    --------
    loglik, filter, smooth, forecast, simulate : What to do with a model.

    Examples
    --------
    >>> from tapegrad import statespace as ss
    >>> start = ss.Start(stationary=True)
    >>> model = ss.LinearGaussian(0.5, 1.0, transition_cov=2.0, observation_cov=1.0, start=start)
    >>> print(round(float(ss.loglik(model, [0.3, -1.0, 2.0])), 6))
    -5.620608
    """

    transition: Any
    observation: Any
    transition_cov: Any
    observation_cov: Any
    selection: Any = None
    transition_offset: Any = 0.0
    observation_offset: Any = 0.0
    start: Start = Start(diffuse=True)
    state_names: Sequence[str] | None = None


def local_level(observation_var: Any, level_var: Any, start: Start = Start(diffuse=True)) -> LinearGaussian:
    """Make a random walk observed with noise (DK chapter 2).

    The model is y[t] = mu[t] + eps[t], mu[t+1] = mu[t] + eta[t].

    Parameters
    ----------
    observation_var, level_var : scalar
        The variances of eps and eta.
    start : Start, optional
        The default is an exact diffuse start.

    Returns
    -------
    LinearGaussian

    See Also
    --------
    level : The same as a component of a sum.

    Examples
    --------
    >>> from tapegrad import statespace as ss
    >>> print(round(float(ss.loglik(ss.local_level(1.0, 0.5), [0.1, 0.4, -0.2, 0.3])), 6))
    -4.948418
    """
    return LinearGaussian(1.0, 1.0, level_var, observation_var, start=start)


def local_linear_trend(
    observation_var: Any, level_var: Any, slope_var: Any, start: Start = Start(diffuse=True)
) -> LinearGaussian:
    """Make a model of level and slope, both random walks (DK 3.2.1).

    The states are (mu, nu), with mu[t+1] = mu[t] + nu[t] + xi[t].

    Parameters
    ----------
    observation_var, level_var, slope_var : scalar
        The variances of the three noises.
    start : Start, optional
        The default is an exact diffuse start.

    Returns
    -------
    LinearGaussian

    See Also
    --------
    trend : The slope as a component of a sum.

    Examples
    --------
    >>> from tapegrad import statespace as ss
    >>> model = ss.local_linear_trend(1.0, 0.5, 0.1)
    >>> ss.forecast(model, [1.0, 2.0, 3.0, 4.0], steps=2).mean.round(6)
    array([[5.],
           [6.]])
    """
    T = numpy.array([[1.0, 1.0], [0.0, 1.0]])
    return LinearGaussian(
        T, numpy.array([1.0, 0.0]), np.stack([level_var, slope_var]), observation_var, start=start
    )


def arma(
    ar: Any, ma: Any = (), var: Any = 1.0, mean: Any = 0.0, observation_var: Any = 0.0
) -> LinearGaussian:
    """Make a stationary ARMA process about a mean, perhaps observed with noise (Harvey's form, DK 3.4).

    The process is y[t] = ar[0] y[t-1] + ... + e[t] + ma[0] e[t-1] + ...

    Parameters
    ----------
    ar : array of shape (k,)
        Coefficients of the autoregression; empty for none. If they are not stationary, the covariance of the
        start is not positive definite.
    ma : array of shape (l,), default ()
        Coefficients of the moving average.
    var : scalar, default 1
        The variance of e.
    mean : scalar, default 0
        The mean of y.
    observation_var : scalar, default 0
        The variance of the observation noise.

    Returns
    -------
    LinearGaussian

    See Also
    --------
    sarimax : Fits such a process.

    Examples
    --------
    >>> import numpy as np
    >>> from tapegrad import statespace as ss
    >>> print(round(float(ss.loglik(ss.arma(np.array([0.5]), np.array([0.3])), [0.2, 1.0, -0.4])), 6))
    -4.118411
    """
    ar, ma = _given(ar), _given(ma)
    m = max(ar.shape[0], ma.shape[0] + 1)
    if ar.shape[0] < m:
        ar = np.concatenate([ar, xp_of(value(ar)).zeros(m - ar.shape[0])])
    xp = xp_of(value(ar))
    one, rest = xp.ones(1), m - 1 - ma.shape[0]
    T = np.concatenate([ar[:, None], xp.eye(m, m - 1)], axis=1)
    R = np.concatenate([one, ma, xp.zeros(rest)])
    start = Start(stationary=True)
    return LinearGaussian(T, numpy.eye(1, m)[0], var, observation_var, R[:, None], 0.0, mean, start)


class Observations(LibraryBound):
    """Data after the checks, as a copy.

    `loglik` and the other functions accept it in place of y. The pattern of missing values is then found only
    once.

    Parameters
    ----------
    y : array of shape (n,) or (n, p), Series or DataFrame
        The data, nan where missing.

    Attributes
    ----------
    values : array of shape (n, p)
        The data, 0 where missing.
    rows : list of list of int
        The observed elements of each step.
    labels : object
        Dates and names of a Series or DataFrame.

    Raises
    ------
    DataError
        If data are infinite.

    See Also
    --------
    loglik : Takes observations.

    Examples
    --------
    >>> from tapegrad import statespace as ss
    >>> data = ss.Observations([1.0, float("nan"), 3.0])
    >>> data.steps, data.count, data.rows
    (3, 2, [[0], [], [0]])
    """

    def __init__(self, y: Any):
        given = y.value if isinstance(y, Const) else y
        y = _given(_with_gaps(given))
        y = y.copy() if is_array(y) else y
        shape = tuple(y.shape)
        if y.ndim == 1:
            y = y[:, None]
        if y.ndim != 2 or y.shape[0] == 0 or y.shape[1] == 0:
            raise ShapeError(f"y: shape {y.shape}; wanted (n,) or (n, p) with n and p at least 1, time first")
        self.labels = labels_of(given, shape)
        host = value(y)
        self.xp: ModuleType = xp_of(host)
        host = to_host(host)
        if host.dtype.kind != "f":
            raise ArgumentError(f"y: dtype {host.dtype}; wanted real floating point")
        for t, i in numpy.argwhere(numpy.isinf(host))[:1]:
            raise DataError(
                f"y[{t}, {i}] is {host[t, i]}: infinite values cannot be filtered; nan means a missing value"
            )
        missing = numpy.isnan(host)
        self.steps, self.width = host.shape
        self.count = int((~missing).sum())
        self.raw = y
        self.start: Any = None  # what these data imply for a diffuse start (`filters.augmented`),
        self.begin: Any = None  # how filters begin on them (`filters.diffuse_start`),
        self.lines: Any = None  # and the data rows of kernels
        self.values = np.where(self.xp.asarray(missing), 0.0, y) if missing.any() else y
        everything = list(range(self.width))
        full = (~missing.any(axis=1)).tolist()
        self.rows = [
            everything if all_there else numpy.flatnonzero(~gap).tolist()
            for all_there, gap in zip(full, missing, strict=True)
        ]

    def first(self, steps: int) -> "Observations":
        """Return the first rows."""
        return Observations(self.raw[:steps])

    def extended(self, steps: int) -> "Observations":
        """Return the data followed by `steps` missing rows."""
        gap = self.xp.full((steps, self.width), numpy.nan, value(self.raw).dtype)
        return Observations(np.concatenate([self.raw, gap]))

    def followed_by(self, call: str, y: Any) -> "Observations":
        """Return these data with new ones behind; their dates must follow."""
        new = y if isinstance(y, Observations) else Observations(self.row_of(y))
        if new.width != self.width:
            raise ShapeError(f"{call}: y has {new.width} series, and the data have {self.width}")
        index = self.labels.continued(call, new.labels, new.steps)
        raw = np.concatenate([self.raw, new.raw])
        return Observations(self.labels.frame(raw[:, 0] if self.labels.single else raw, index))

    def row_of(self, y: Any) -> Any:
        """Return y; one new row may be given as a number or, of several series, as a vector."""
        if hasattr(y, "index") and not callable(y.index):
            return y
        if not self.labels.single and numpy.ndim(y) == 1 and len(y) == self.width:
            return numpy.asarray(y, float)[None]
        return numpy.asarray([y], float) if numpy.ndim(y) == 0 else y

    def since(self, step: int) -> "Observations":
        """Return the rows from a step on, with their dates."""
        raw = self.raw[step:, 0] if self.labels.single else self.raw[step:]
        return Observations(
            raw if self.labels.index is None else self.labels.frame(raw, self.labels.index[step:])
        )

    def in_form(self, values: Any, index: Any = None) -> Any:
        """Return values (n, p) on the host in the form of the data: (n,), (n, p), a Series or a DataFrame."""
        values = to_host(values)
        return self.labels.frame(values[:, 0] if self.labels.single and self.width == 1 else values, index)


@dataclass(frozen=True, eq=False)
class RegressionOffset:
    """An offset X[t] @ coefficients, in which only known regressors vary over time.

    X is (n, size, k) on the host. Kernels read it as data, and get the k coefficients as numbers."""

    X: numpy.ndarray
    coefficients: Any

    def array(self) -> Any:
        """Return the offsets (n, size)."""
        n, size, k = self.X.shape
        return (
            xp_of(value(self.coefficients)).asarray(self.X.reshape(n * size, k)) @ self.coefficients
        ).reshape((n, size))

    def rows(self, at: slice) -> "RegressionOffset":
        return replace(self, X=self.X[at])

    def __array__(self, dtype: Any = None, copy: Any = None) -> numpy.ndarray:
        return numpy.asarray(to_host(value(self.array())), dtype)


def model_after(model: LinearGaussian, steps: int, start: Start) -> LinearGaussian:
    """Return the model without its first steps, with another start."""
    cut: dict[str, Any] = {}
    for name, axes in _FIELDS.items():
        given = getattr(model, name)
        if isinstance(given, RegressionOffset):
            cut[name] = given.rows(slice(steps, None))
            continue
        x = None if given is None else _given(given)
        if x is not None and x.ndim > axes:
            cut[name] = x[steps:]
    return replace(model, **cut, start=start)


@dataclass
class ModelMatrices:
    """A model with all matrices in one form; `at(t, name)` reads a field.

    Fields in `varying` have a time axis in front. `zeros` marks structural zeros of covariances. `inputs`
    holds the offsets of which only the regressors vary."""

    T: Any
    Z: Any
    Q: Any
    H: Any
    c: Any
    d: Any
    mean: Any
    cov: Any
    diffuse: numpy.ndarray
    predict_first: bool
    varying: frozenset[str]
    xp: ModuleType
    zeros: dict[str, numpy.ndarray]
    names: tuple[str, ...]
    inputs: dict[str, RegressionOffset]

    def series(self, name: str) -> Any:
        """Return a field that varies over time, or the regressors of an offset, by their
        name (`step_kernel.REGRESSOR`)."""
        return self.inputs[name[0]].X if len(name) > 1 else getattr(self, name)

    def at(self, t: int, name: str) -> Any:
        field = getattr(self, name)
        return field[t] if name in self.varying else field

    def host(self, t: int, name: str) -> numpy.ndarray:
        """Return the numbers of a field on the host, for decisions about structure."""
        field = self.at(t, name)
        return field if type(field) is numpy.ndarray else to_host(value(field))


def call_data(call: str, model: LinearGaussian, y: Any) -> Observations:
    """Return the data of a call; raise if its model is not one."""
    if not isinstance(model, LinearGaussian):
        raise ArgumentError(
            f"{call}: the model is a {type(model).__name__}; wanted a LinearGaussian, as local_level(...) "
            f"gives, and then the data"
        )
    return y if isinstance(y, Observations) else Observations(y)


def checked_fields(model: LinearGaussian, data: Observations) -> tuple[dict[str, Any], int]:
    """Return the fields of a model by their letters, with checked shapes, and the number of states."""
    n, p = data.steps, data.width
    given = {name: getattr(model, name) for name in _FIELDS}
    given |= {name: x.rows(slice(n)).array() for name, x in given.items() if isinstance(x, RegressionOffset)}
    field = {name: in_library_of_data(name, x, data.xp) for name, x in given.items()}
    T, R = field["transition"], field["selection"]
    m = T.shape[-1] if T.ndim else 1
    r = m if R is None else R.shape[-1] if R.ndim else 1
    shapes: dict[str, Any] = {
        "transition": [(m, m)] + [()] * (m == 1),
        "observation": [(p, m)] + [(m,)] * (p == 1) + [()] * (m == p == 1),
        "transition_cov": [(r, r), (r,), ()],
        "observation_cov": [(p, p), (p,), ()],
        "selection": [(m, r)],
        "transition_offset": [(m,), ()],
        "observation_offset": [(p,), ()],
    }
    field = {name: x if x is None else _check(name, x, shapes[name], n, m, p) for name, x in field.items()}
    for name in ("transition_cov", "observation_cov"):
        field[name] = _required_covariance(name, field[name])
    return {_LETTER[name]: x for name, x in field.items()}, m


def system(model: LinearGaussian, data: Observations) -> ModelMatrices:
    """Check the shapes of a model against data, and bring its matrices into one form."""
    field, m = checked_fields(model, data)
    p, xp = data.width, data.xp
    varying = {
        _LETTER[name] for name, axes in _FIELDS.items() if getattr(field[_LETTER[name]], "ndim", 0) > axes
    }
    T, Z, R = matrix_field(field["T"], m, m, xp), matrix_field(field["Z"], p, m, xp), field["R"]
    Q = _covariance(field["Q"], m if R is None else R.shape[-1], xp)
    if R is not None:
        Q = R @ Q @ np.swapaxes(R, -1, -2)
        varying = varying - {"R"} | ({"Q"} if "R" in varying else set())
    mean, cov, diffuse = _first_state(model.start, T, Q, field["c"], bool(varying & {"T", "Q", "c"}), m, data)
    H = _covariance(field["H"], p, xp)
    first = model.start.predict_first
    zeros = _zeros(field, m, p)
    names = tuple(model.state_names or [f"state {i}" for i in range(m)])
    if len(names) != m or not all(isinstance(name, str) for name in names):
        raise ShapeError(f"state_names: {names}; wanted {m} names, one for each state")
    given = {"c": model.transition_offset, "d": model.observation_offset}
    inputs = {name: x.rows(slice(data.steps)) for name, x in given.items() if isinstance(x, RegressionOffset)}
    return ModelMatrices(
        T,
        Z,
        Q,
        H,
        field["c"],
        field["d"],
        mean,
        cov,
        diffuse,
        first,
        frozenset(varying),
        xp,
        zeros,
        names,
        inputs,
    )


def _zeros(field: dict[str, Any], m: int, p: int) -> dict[str, numpy.ndarray]:
    """Return where covariances are structurally zero, and where no noise is selected."""
    R, zeros = field["R"], {}
    if field["H"].ndim < 2 and p > 1:
        zeros["H"] = ~numpy.eye(p, dtype=bool).ravel()
    if R is None and field["Q"].ndim < 2 and m > 1:
        zeros["Q"] = ~numpy.eye(m, dtype=bool).ravel()
    elif type(R) is numpy.ndarray and R.ndim == 2:
        spread = R != 0
        zeros["Q"] = ~(
            spread @ spread.T if field["Q"].ndim < 2 else numpy.outer(spread.any(axis=1), spread.any(axis=1))
        ).ravel()
    return zeros


def checked_start(start: Start, m: int, data: Observations) -> tuple[Any, Any, numpy.ndarray]:
    """Return mean and covariance as given, with checked shapes, and the marks of the diffuse elements
    (m,)."""
    mark = numpy.asarray(start.diffuse, bool)
    if mark.shape not in ((), (m,)):
        raise ShapeError(
            f"start.diffuse: shape {mark.shape}; wanted one boolean or ({m},), for the model has {m} states"
        )
    p = data.width
    mean = _check("start.mean", in_library_of_data("start.mean", start.mean, data.xp), [(m,), ()], 0, m, p)
    cov = _check(
        "start.cov", in_library_of_data("start.cov", start.cov, data.xp), [(m, m), (m,), ()], 0, m, p
    )
    cov = _required_covariance("start.cov", cov)
    return mean, cov, numpy.broadcast_to(mark, (m,))


def _first_state(
    start: Start, T: Any, Q: Any, c: Any, varying: bool, m: int, data: Observations
) -> tuple[Any, Any, numpy.ndarray]:
    """Return mean (m,), covariance (m, m) of the finite part, and the marks of the diffuse elements."""
    xp = data.xp
    mean, cov, mark = checked_start(start, m, data)
    if start.stationary:
        if mark.any() or varying:
            raise ArgumentError(
                "start.stationary: the start is diffuse too, or the transition varies; give mean and cov"
            )
        # The stationary moments: a = T a + c and P = T P T' + Q (DK 5.6.2).
        still = not is_tracked(c) and not to_host(value(c)).any()
        return (
            xp.zeros(m) if still else np.linalg.solve(xp.eye(m) - T, c + xp.zeros(m)),
            stationary_covariance(T, Q, xp),
            mark,
        )
    mean, cov = mean + xp.zeros(m), _covariance(cov, m, xp)
    if mark.any():
        keep = xp.asarray(~mark, float)
        mean, cov = mean * keep, cov * (keep[:, None] * keep)
    return mean, cov, mark


SMALL_STATE_COUNT = 3  # states up to which P = T P T' + Q is solved as m^2 equations


def stationary_covariance(T: Any, Q: Any, xp: ModuleType) -> Any:
    """Return P = T P T' + Q, the sum of T^i Q T'^i; each pass of the loop doubles the number of terms."""
    m = T.shape[0]
    if m <= SMALL_STATE_COUNT:
        shown = seen(T)
        if shown is not None and not _settles(shown):
            raise _not_stationary(shown)
        P = np.linalg.solve(xp.eye(m * m) - np.kron(T, T), Q.reshape((m * m,))).reshape((m, m))
        return _nan_unless(
            lambda T: np.max(np.abs(np.linalg.eigvals(np.where(np.isfinite(T), T, 2.0)))) < 1.0,
            T,
            (P + P.T) * 0.5,
        )
    A, P = T, Q
    for _ in range(60):
        size = numpy.linalg.norm(to_host(value(A)))
        if size < 1e-9:
            return (P + P.T) * 0.5
        if size > 1e9:
            break
        P = P + A @ P @ A.T
        A = A @ A
    raise _not_stationary(to_host(value(T)))


def _settles(T: numpy.ndarray) -> bool:
    """Return whether all eigenvalues are smaller than 1."""
    if len(T) == 1:
        return bool(abs(T[0, 0]) < 1)
    if len(T) == 2:
        (a, b), (c, d) = T.tolist()
        return abs(a + d) < 1 + a * d - b * c < 2
    return bool(abs(numpy.linalg.eigvals(T)).max() < 1) if numpy.isfinite(T).all() else False


def _not_stationary(T: numpy.ndarray) -> NotPositiveDefiniteError:
    largest = abs(numpy.linalg.eigvals(T)).max() if numpy.isfinite(T).all() else numpy.nan
    return NotPositiveDefiniteError(
        f"start.stationary: an eigenvalue of the transition has size {largest:.6g}, and only below 1 is "
        f"there a stationary state; "
        "keep the parameters there by a constraint such as stationary(), or give start a mean and cov"
    )


# The largest number of axes of a constant field; one more is the time axis.
_FIELDS = {
    "transition": 2,
    "observation": 2,
    "transition_cov": 2,
    "observation_cov": 2,
    "selection": 2,
    "transition_offset": 1,
    "observation_offset": 1,
}
_LETTER = dict(zip(_FIELDS, "TZQHRcd", strict=True))


def _with_gaps(y: Any) -> Any:
    """Return the user's data, with nan where a mask or pandas marks missing values."""
    if isinstance(y, numpy.ma.MaskedArray):
        return numpy.ma.filled(y.astype(float), numpy.nan) if y.dtype.kind in "biuf" else y.data
    if isinstance(y, (str, bytes, dict, set)):
        raise ArgumentError(
            f"y: a {type(y).__name__}; wanted numbers (n,) or (n, p), or a Series or DataFrame"
        )
    try:
        if hasattr(y, "to_numpy"):
            return y.to_numpy(dtype=float, na_value=numpy.nan)
        return numpy.asarray(y, dtype=float) if isinstance(y, (list, tuple)) and not nests_variable(y) else y
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"y: a {type(y).__name__} that does not hold real numbers alone: {error}"
        ) from error


def _given(x: Any) -> Any:
    """Return x as an array or number, tracked or plain; lists may hold tracked numbers."""
    if issubclass(type(x), numpy.ma.MaskedArray):
        raise ArgumentError(
            "a masked array among the parameters of a model: masks have no meaning there; pass "
            "x.filled(value)"
        )
    if isinstance(x, (list, tuple)):
        return numpy.asarray(x, dtype=float) if _of_numbers(x) else np.stack([_given(item) for item in x])
    if type(x) in (int, float, bool):
        return numpy.float64(x)
    if isinstance(x, Variable) and not is_tracked(x):
        x = values_of(x)
    if not hasattr(x, "dtype") or (type(x) is numpy.ndarray and x.ndim == 0):
        return numpy.asarray(x, dtype=float)[()]
    return x.astype(float) if x.dtype.kind in "iub" else x


def _of_numbers(x: Any) -> bool:
    """Return whether a nested list holds only plain numbers of the host."""
    if isinstance(x, (list, tuple)):
        return all(_of_numbers(item) for item in x)
    return issubclass(type(x), (int, float, numpy.generic, numpy.ndarray))


def in_library_of_data(name: str, x: Any, xp: ModuleType) -> Any:
    """Return x in the array library of the data: host constants are moved there, numbers fit anywhere."""
    if x is None:
        return None
    try:
        x = _given(x)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"{name}: a {type(x).__name__} that is no real number, or array or list of such: {error}"
        ) from error
    if x.dtype.kind != "f":
        raise ArgumentError(f"{name}: dtype {x.dtype}; wanted real numbers")
    return xp.asarray(x) if xp is not numpy and issubclass(type(x), numpy.ndarray) else x


def _check(name: str, x: Any, shapes: Sequence[tuple[int, ...]], n: int, m: int, p: int) -> Any:
    """Return x if it has one of the shapes, otherwise raise `ShapeError`.

    The first shape may follow a time axis of at least n steps, of which the first n are returned."""
    shape, matrix = tuple(x.shape), shapes[0]
    if shape in shapes:
        return x
    if n and len(shape) == len(matrix) + 1 and shape[0] >= n and shape[1:] == matrix:
        return x if shape[0] == n else x[:n]
    wanted = [str(s) if s else "a scalar" for s in shapes]
    if n:
        wanted.append(f"({n} or more, {', '.join(map(str, matrix))}) for one that varies over time")
    raise ShapeError(
        f"{name}: shape {shape}; wanted {' or '.join(wanted)} (the model has {m} states and {p} "
        f"observations a step)"
    )


def _required_covariance(name: str, x: Any) -> Any:
    """Return x; raise if a visible variance, or eigenvalue of a matrix, is negative.

    The variance of an observation may be positive all the same. Under `vmap` the samples concerned become
    nan."""
    shown = seen(x) if x.ndim < 3 else None
    if shown is None:
        return _nan_unless(_is_covariance, x, x) if x.ndim < 3 else x
    if x.ndim < 2:
        if (shown < 0.0).any() if x.ndim else shown < 0.0:
            raise NotPositiveDefiniteError(
                f"{name}: a variance of {numpy.min(shown):.6g}; wanted none below 0"
            )
    elif numpy.isfinite(shown).all():
        size = numpy.linalg.eigvalsh(shown + shown.T) / 2
        if size[0] < -ROUNDING * abs(size).max():
            raise NotPositiveDefiniteError(
                f"{name}: a covariance with the eigenvalue {size[0]:.6g}; wanted none below 0"
            )
    return x


def _nan_unless(holds: Callable, x: Any, y: Any) -> Any:
    """Return y, with nan for each sample of a `vmap` for which the condition on x is false."""
    hidden = any([t.visibility == SAMPLED for t in OPEN.hiding]) and isinstance(primal_of(x), Variable)
    return np.where(holds(primal_of(x)), y, numpy.nan) if hidden else y


def _is_covariance(x: Any) -> Any:
    if x.ndim < 2:
        return np.all(x >= 0.0)
    x = (x + x.T) / 2
    size = np.linalg.eigvalsh(np.where(np.isfinite(x), x, 0.0))
    return size[0] >= -ROUNDING * np.max(np.abs(size))


ROUNDING = 1e-9


def matrix_field(x: Any, rows: int, columns: int, xp: ModuleType) -> Any:
    if x.ndim == 0:
        return x * xp.ones((rows, columns))
    return x.reshape((rows, columns)) if x.ndim == 1 else x


def _covariance(x: Any, k: int, xp: ModuleType) -> Any:
    """Return a (k, k) matrix from a variance, a vector of variances, or the symmetric part of a matrix.

    The derivative is then symmetric."""
    if x.ndim < 2:
        return x * xp.eye(k)
    return x if k == 1 else (x + np.swapaxes(x, -1, -2)) * 0.5
