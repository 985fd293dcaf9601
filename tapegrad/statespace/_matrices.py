"""A state space model after the checks: every matrix in one form, in the array library of the data."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy
from numpy import ndarray

from .. import numpy as np
from .._core.arrays import is_array, to_host
from .._core.errors import ArgumentError, NotPositiveDefiniteError, ShapeError
from .._core.primitive import SAMPLED, is_tracked, primal_of, seen
from .._core.scope import OPEN
from .._core.variable import Variable
from .._transforms.tape import value
from ._model import FIELD_AXES, LinearGaussian, RegressionOffset, Start
from ._observations import Observations, as_given, as_observations


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
    diffuse: ndarray
    predict_first: bool
    varying: frozenset[str]
    xp: ModuleType
    zeros: dict[str, ndarray]
    names: tuple[str, ...]
    inputs: dict[str, RegressionOffset]

    def series(self, name: str):
        """Return a field that varies over time, or the regressors of an offset, by their
        name (`step_kernel.REGRESSOR`)."""
        return self.inputs[name[0]].X if len(name) > 1 else getattr(self, name)

    def at(self, t: int | slice, name: str):
        """Return a field at a step, or at some steps; one that does not vary stands for all of them."""
        field = getattr(self, name)
        return field[t] if name in self.varying else field

    def host(self, t: int, name: str) -> ndarray:
        """Return the numbers of a field on the host, for decisions about structure; under `vmap` those of the
        first sample."""
        field = self.at(t, name)
        return field if type(field) is ndarray else to_host(_of_first_sample(value(field)))

    @property
    def hidden(self) -> bool:
        """Return whether transition or observation matrix differ between the samples of a `vmap`."""
        return _hidden_by_vmap(self.T) or _hidden_by_vmap(self.Z)


def _hidden_by_vmap(x) -> bool:
    return any([t.visibility == SAMPLED for t in OPEN.hiding]) and isinstance(primal_of(x), Variable)


def _of_first_sample(x):
    while isinstance(x := primal_of(x), Variable) and x._trace.visibility == SAMPLED:
        x = x._trace.sample(x, 0)
    return x


def call_data(call: str, model: LinearGaussian, y) -> Observations:
    """Return the data of a call; raise if its model is not one."""
    if not isinstance(model, LinearGaussian):
        raise ArgumentError(
            f"{call}: the model is a {type(model).__name__}; wanted a LinearGaussian, as local_level(...) "
            f"gives, and then the data"
        )
    return as_observations(y)


def checked_fields(model: LinearGaussian, data: Observations) -> tuple[dict[str, Any], int]:
    """Return the fields of a model by their letters, with checked shapes, and the number of states."""
    n, p = data.steps, data.width
    given = {name: getattr(model, name) for name in FIELD_AXES}
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
        _LETTER[name] for name, axes in FIELD_AXES.items() if getattr(field[_LETTER[name]], "ndim", 0) > axes
    }
    T = matrix_field(field["T"], m, m, xp)
    Z = matrix_field(field["Z"], p, m, xp)
    R = field["R"]
    Q = _covariance(field["Q"], m if R is None else R.shape[-1], xp)
    if R is not None:
        Q = R @ Q @ R.mT
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


def _zeros(field: dict[str, Any], m: int, p: int) -> dict[str, ndarray]:
    """Return where covariances are structurally zero, and where no noise is selected."""
    R, zeros = field["R"], {}
    if field["H"].ndim < 2 and p > 1:
        zeros["H"] = ~numpy.eye(p, dtype=bool).ravel()
    if R is None and field["Q"].ndim < 2 and m > 1:
        zeros["Q"] = ~numpy.eye(m, dtype=bool).ravel()
    elif type(R) is ndarray and R.ndim == 2:
        spread = R != 0
        zeros["Q"] = ~(
            spread @ spread.T if field["Q"].ndim < 2 else numpy.outer(spread.any(axis=1), spread.any(axis=1))
        ).ravel()
    return zeros


def checked_start(start: Start, m: int, data: Observations) -> tuple[Any, Any, ndarray]:
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
    start: Start, T, Q, c, varying: bool, m: int, data: Observations
) -> tuple[Any, Any, ndarray]:
    """Return mean (m,), covariance (m, m) of the finite part, and the marks of the diffuse elements."""
    xp = data.xp
    mean, cov, mark = checked_start(start, m, data)
    if start.stationary:
        if mark.any() or varying:
            raise ArgumentError(
                "start.stationary: the start is diffuse too, or the transition varies; give mean and cov"
            )
        # The stationary moments: a = T a + c and P = T P T' + Q (DK 5.6.2).
        plain = is_array(value(c)) or isinstance(c, numpy.generic)  # no symbol of a kernel
        still = plain and not is_tracked(c) and not to_host(value(c)).any()
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
HIDDEN_DOUBLINGS = 40  # enough for eigenvalues up to 1 - 2e-11


def stationary_covariance(T, Q, xp: ModuleType):
    """Return P = T P T' + Q, the sum of T^i Q T'^i; each pass of the loop doubles the number of terms."""
    m = T.shape[0]
    if m <= SMALL_STATE_COUNT:
        shown = seen(T)
        if shown is not None and not _settles(shown):
            raise _not_stationary(shown)
        P = np.linalg.solve(xp.eye(m * m) - np.kron(T, T), Q.reshape((m * m,))).reshape((m, m))
        return _nan_unless(lambda T: _is_small(_doubled(T, T)[0]), T, (P + P.T) * 0.5)
    A, P = T, Q
    if _hidden_by_vmap(T):
        A, P = _doubled(T, Q)
        return _nan_unless(_is_small, A, (P + P.T) * 0.5)
    for _ in range(60):
        size = numpy.linalg.norm(to_host(value(A)))
        if size < 1e-9:
            return (P + P.T) * 0.5
        if size > 1e9:
            break
        P = P + A @ P @ A.T
        A = A @ A
    raise _not_stationary(to_host(value(T)))


def _doubled(A, P) -> tuple[Any, Any]:
    """Return the last power of A and the sum of A^i P A'^i after as many terms as any stable sample needs."""
    with numpy.errstate(over="ignore", invalid="ignore"):
        for _ in range(HIDDEN_DOUBLINGS):
            A, P = A @ A, P + A @ P @ A.T
    return A, P


def _is_small(A):
    return np.max(np.abs(A)) < 1e-9


def _settles(T: ndarray) -> bool:
    """Return whether all eigenvalues are smaller than 1."""
    if len(T) == 1:
        return bool(abs(T[0, 0]) < 1)
    if len(T) == 2:
        (a, b), (c, d) = T.tolist()
        return abs(a + d) < 1 + a * d - b * c < 2
    return bool(abs(numpy.linalg.eigvals(T)).max() < 1) if numpy.isfinite(T).all() else False


def _not_stationary(T: ndarray) -> NotPositiveDefiniteError:
    largest = abs(numpy.linalg.eigvals(T)).max() if numpy.isfinite(T).all() else numpy.nan
    return NotPositiveDefiniteError(
        f"start.stationary: an eigenvalue of the transition has size {largest:.6g}, and only below 1 is "
        f"there a stationary state; "
        "keep the parameters there by a constraint such as stationary(), or give start a mean and cov"
    )


_LETTER = dict(zip(FIELD_AXES, "TZQHRcd", strict=True))


def in_library_of_data(name: str, x, xp: ModuleType):
    """Return x in the array library of the data: host constants are moved there, numbers fit anywhere."""
    if x is None:
        return None
    try:
        x = as_given(x)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"{name}: a {type(x).__name__} that is no real number, or array or list of such: {error}"
        ) from error
    if x.dtype.kind != "f":
        raise ArgumentError(f"{name}: dtype {x.dtype}; wanted real numbers")
    return xp.asarray(x) if xp is not numpy and issubclass(type(x), ndarray) else x


def _check(name: str, x, shapes: Sequence[tuple[int, ...]], n: int, m: int, p: int):
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


def _required_covariance(name: str, x):
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


def _nan_unless(holds: Callable, x, y):
    """Return y, with nan for each sample of a `vmap` for which the condition on x is false."""
    return np.where(holds(primal_of(x)), y, numpy.nan) if _hidden_by_vmap(x) else y


def _is_covariance(x):
    if x.ndim < 2:
        return x >= 0.0 if x.ndim == 0 else np.min(x) >= 0.0
    x = (x + x.T) / 2
    size = np.linalg.eigvalsh(np.where(np.isfinite(x), x, 0.0))
    return size[0] >= -ROUNDING * np.max(np.abs(size))


ROUNDING = 1e-9


def matrix_field(x, rows: int, columns: int, xp: ModuleType):
    if x.ndim == 0:
        return x * xp.ones((rows, columns))
    return x.reshape((rows, columns)) if x.ndim == 1 else x


def _covariance(x, k: int, xp: ModuleType):
    """Return a (k, k) matrix from a variance, a vector of variances, or the symmetric part of a matrix.

    The derivative is then symmetric."""
    if x.ndim < 2:
        return x * xp.eye(k)
    return x if k == 1 else (x + x.mT) * 0.5
