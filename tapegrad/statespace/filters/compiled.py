"""The compiled filter of one model, and the choice between it and the filter on arrays.

The origin of the model is unknown here. Each tracked entry of a field is therefore a number of the kernel's
theta, or of its rows if the field varies over time. So is each other entry that is not 0, 1 or -1."""

from collections import Counter
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy

from ... import numpy as np
from ..._core.errors import ArgumentError, KernelError
from ..._core.primitive import is_tracked, seen
from ..._core.scope import lock
from ...kernels.launch import stored
from .._matrices import ModelMatrices, call_data, system
from .._model import LinearGaussian
from .._observations import Observations
from .arrays import (
    ArrayFilter,
    FilterResult,
    ForecastResult,
    Moments,
    NotCompiled,
    first_state,
    observed_moments,
    with_noise,
)
from .augmented import LostDigits, at_estimate, start_of
from .data_rows import codes_of_series, constant_fields, form_of_codes, kernel_data_rows, vector_of
from .diffuse_start import begin_of, loglik_on_arrays, moments_by_kernel
from .gains import delta_of, filtered
from .host import brought, on_processor
from .step_kernel import (
    LETTERS,
    OWN,
    KernelForm,
    cache_key,
    compile_layout,
    constant_codes,
    triangle_places,
    weights,
)

# steps that arrays filter in the time that a kernel's arguments take; SHORT: plain numbers
FEW, SHORT = 8, 30
FILTERED = 5_000  # steps that arrays filter in about the compilation time of a kernel of several states
LOCK = lock()
ON_DEVICE: Counter = Counter()  # steps filtered on a device, by the shapes of T and y


@dataclass(frozen=True)
class CompiledFilter:
    """The compiled filter of a model: its form, its constant fields as one vector, and its data."""

    form: KernelForm
    x: Any
    s: ModelMatrices
    data: Observations
    joseph: bool

    def loglik(self):
        """Return the log-likelihood, by the ordinary filter after the first steps."""
        form, x, s, data = self.form, self.x, self.s, self.data
        moving = is_tracked(s.T) or is_tracked(s.Z)
        begin = begin_of(s, data, moving, self.joseph)
        if begin is None:
            return compile_layout(form.layout)(x[form.begun], kernel_data_rows(form, s, data, 0))
        try:
            begun = begin.state(form, x, s, data)
        except LostDigits:
            begin = begin_of(s, data, moving, self.joseph, anew=True)
            begun = begin.state(form, x, s, data)
        if begin.steps == data.steps:
            return begun[-1]
        return (
            compile_layout(form.layout)(
                np.concatenate([begun[:-1], x[form.at]]), kernel_data_rows(form, s, data, begin.steps)
            )
            + begun[-1]
        )

    def moments(self, mean, cov, begin: int, end: int) -> Moments:
        """Return the moments as `ArrayFilter` does, which also reports the error where they are not
        finite."""
        found = moments_by_kernel(self.form, self.x[self.form.at], self.s, self.data, mean, cov, begin, end)
        size = seen(found.size)
        if size is None or numpy.isfinite(size).all():
            return found
        return ArrayFilter(self.s, self.data, self.joseph).moments(mean, cov, begin, end)

    def weights(self, L, u, W) -> tuple[Any, Any]:
        """As `ArrayFilter` gives them."""
        n, m, k = u.shape
        upper, full = triangle_places(m)
        rows = np.concatenate(
            [x.reshape((n, -1)) for x in (L, u)] + [W.reshape((n, m * m))[:, upper]], axis=1
        )[::-1].T
        found = weights(m, k).path(numpy.zeros(m * k + upper.size), rows)[:, ::-1].T
        return found[:, : m * k].reshape((n, m, k)), found[:, m * k :][:, full]


def loglik(model: LinearGaussian, y: Any, joseph: bool = False) -> Any:
    """Compute the log-likelihood of data under a model, differentiable in both.

    It runs as a compiled filter where that pays (see the page on state space models). With a diffuse start it
    is the diffuse log-likelihood, all constants included (DK 7.2).

    Parameters
    ----------
    model : LinearGaussian
        The model.
    y : array of shape (n,) or (n, p), or Observations
        The data, nan where missing.
    joseph : bool, default False
        Whether the longer update of the covariance is used. It loses no digits when an observation is far
        more exact than the state.

    Returns
    -------
    scalar
        The log-likelihood.

    Raises
    ------
    ShapeError
        If a matrix does not fit.
    DataError
        If data are infinite.
    NotPositiveDefiniteError
        If a covariance has a negative eigenvalue, or the variance of an observation is not positive. On CuPy
        the value is nan instead.

    See Also
    --------
    filter : The states too.
    tapegrad.kernels.recursion : A likelihood of your own.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> from tapegrad import statespace as ss
    >>> f = lambda v: ss.loglik(ss.local_level(v[0], v[1]), [0.1, 0.4, -0.2, 0.3])
    >>> tg.grad(f)(np.array([1.0, 0.5])).round(6)
    array([-1.026835, -0.764213])
    """
    data = call_data("loglik", model, y)
    single = data.width == 1 and getattr(model.transition, "ndim", 0) == 0
    # float32 data stay float32
    if data.steps >= (SHORT if single else FEW) and not (single and data.values.dtype != float):
        at, there = _for_kernels(model, data)
        s = system(at, there)
        try:
            total = run_filter(s, there, joseph, there is not data).loglik()
        except (NotCompiled, KernelError):
            return loglik_on_arrays(model, data, joseph, s if there is data else None)
        shown = seen(total)
        if there is not data or shown is None or numpy.isfinite(shown):
            return brought(total, data.xp)
    return loglik_on_arrays(model, data, joseph)


def kalman_filter(model: LinearGaussian, y: Any, joseph: bool = False) -> FilterResult:
    """Compute predicted and filtered states, innovations and the terms of the log-likelihood.

    Parameters
    ----------
    model, y, joseph
        As for `loglik`.

    Returns
    -------
    FilterResult

    Raises
    ------
    ShapeError, DataError, NotPositiveDefiniteError
        As for `loglik`.

    See Also
    --------
    smooth : States given all data.

    Examples
    --------
    >>> from tapegrad import statespace as ss
    >>> r = ss.filter(ss.local_level(1.0, 0.5), [0.1, 0.4, -0.2, 0.3])
    >>> r.filtered_mean[:, 0].round(6), r.diffuse_steps
    (array([0.1     , 0.28    , 0.028571, 0.165882]), 1)
    """
    data = call_data("filter", model, y)
    of = runner(model, data, joseph)
    x, terms, infinite = filtered(of)
    fitted, spread = with_noise(of.s, x.signal, x.signal_cov, 0, data.steps)
    found = (
        x.mean,
        x.cov,
        x.filtered_mean,
        x.filtered_cov,
        of.data.raw - fitted,
        spread,
        terms,
        np.sum(terms),
    )
    return brought(FilterResult(*found, len(infinite), infinite), data.xp)


def forecast(model: LinearGaussian, y: Any, steps: int, joseph: bool = False) -> ForecastResult:
    """Compute mean and covariance of the next observations and states given the data.

    Parameters
    ----------
    model, y, joseph
        As for `loglik`. Matrices that vary over time need values for the steps ahead too.
    steps : int
        How many steps to forecast.

    Returns
    -------
    ForecastResult

    Raises
    ------
    DataError
        If the data leave a diffuse element undetermined, so that its forecast has infinite variance. Other
        errors are as for `loglik`.

    See Also
    --------
    simulate_smoother : Draws given the data.

    Examples
    --------
    >>> from tapegrad import statespace as ss
    >>> r = ss.forecast(ss.local_level(1.0, 0.5), [0.1, 0.4, -0.2, 0.3], steps=3)
    >>> r.cov[:, 0, 0].round(6)
    array([2.00..., 2.50..., 3.00...])
    """
    if not (isinstance(steps, Integral) and steps >= 1):
        raise ArgumentError(f"forecast(..., steps={steps!r}): wanted a whole number, at least 1")
    data = call_data("forecast", model, y)
    n = data.steps
    data = data.extended(steps)
    of = runner(model, data, joseph)
    s, start = of.s, start_of(of.s, of.data)
    if start:
        start.require_determined("forecast", n, first=False)
    x = of.moments(*first_state(s, start), 0, n + steps)
    delta, ahead = delta_of(x, start), (x.mean[n:], x.cov[n:])
    signal = at_estimate(*observed_moments(s, *ahead, n, n + steps), delta)
    return brought(
        ForecastResult(*with_noise(s, *signal, n, n + steps), *at_estimate(*ahead, delta)), data.xp
    )


def runner(model: LinearGaussian, data: Observations, joseph: bool) -> CompiledFilter | ArrayFilter:
    """Return the filter of a model: compiled, on the host, or on arrays where that is impossible or does not
    pay."""
    s = None
    if data.steps >= FEW:
        at, there = _for_kernels(model, data)
        host = system(at, there)
        s = host if there is data else None
        try:
            return run_filter(host, there, joseph, there is not data, True)
        except (NotCompiled, KernelError):
            pass
    return ArrayFilter(s or system(model, data), data, joseph)


def run_filter(
    s: ModelMatrices, data: Observations, joseph: bool, always: bool, path: bool = False
) -> CompiledFilter:
    """Return the compiled filter of a model, with `path` for its moments.

    Raise `NotCompiled` if there is none, or, unless `always`, if it does not pay yet."""
    form, x = _form(s, data, joseph)
    tracked = any(map(is_tracked, [x, data.values, *(getattr(s, name) for name in s.varying)]))
    use = f"{'path' if path else 'loglik'}{' differentiated' if tracked else ''}"
    if not (always or use in form.ready or _pays(form, use, data.steps)):
        raise NotCompiled("it is too short for a kernel to be worth while")
    return CompiledFilter(form, x, s, data, joseph)


def _for_kernels(model: LinearGaussian, data: Observations) -> tuple[LinearGaussian, Observations]:
    """Return a model and data of a device on the host, once so many steps were filtered that a kernel pays.

    The cost of the move must be small beside the filter. Until then nothing leaves the device."""
    if data.xp is not numpy:
        with LOCK:
            form = getattr(model.transition, "shape", ()), data.width
            ON_DEVICE[form] += data.steps
            if ON_DEVICE[form] < FILTERED:
                return model, data
    return on_processor(model, data)


def _form(s: ModelMatrices, data: Observations, joseph: bool) -> tuple[KernelForm, Any]:
    """Return the form of a model, and its constant fields as one vector."""
    if data.xp is not numpy:
        raise NotCompiled("the data are on a device")
    m, p = len(s.diffuse), data.width
    at = constant_fields(s, p)
    values = dict(zip(at, vector_of(s, at), strict=True))
    x = np.concatenate(list(values.values()))
    host = x  # tracked entries need no inspection
    if is_tracked(x):
        host = numpy.concatenate(
            [numpy.zeros(v.shape) if is_tracked(v) else seen(v) for v in values.values()]
        )
    codes = constant_codes(host)
    for name, place in at.items():
        if name in LETTERS:
            code = codes[place]
            if is_tracked(values[name]):
                code[:] = OWN
                if name in s.zeros:
                    code[s.zeros[name]] = 0
            elif name in "QH":  # a variance is always a number of its own: it may differ at the next call
                code[host[place] != 0] = OWN
    if not s.varying:
        return form_of_codes(s, data, joseph, [codes[m + m * m :]]), x
    series = {name: codes_of_series(s, name, data.steps) for name in s.varying}
    return form_of_codes(
        s, data, joseph, [series[name] if name in series else codes[at[name]] for name in LETTERS]
    ), x


def _pays(form: KernelForm, use: str, steps: int) -> bool:
    """Return whether the kernel is on disk for this use, or arrays have filtered enough to compile it."""
    with LOCK:
        name = f"{cache_key(form.layout)} {use}"
        if use not in form.filtered and stored.was_compiled(name):
            form.ready.add(use)
        form.filtered[use] += steps
        if use not in form.ready and form.filtered[use] >= FILTERED:
            form.ready.add(use)
            stored.note_compiled(name)
        return use in form.ready
