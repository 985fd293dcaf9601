"""The compiled filter of one model, and the choice between it and the filter on arrays.

Nothing is known here of where the model comes from, so each entry of a field that is tracked is a number of the kernel's theta (or of its
rows, if the field varies over time), and each of the others that is not 0, 1 or -1."""

import threading
from dataclasses import dataclass, fields
from typing import Any

import numpy

from .. import numpy as np
from .._primitive import is_tracked, seen
from ..errors import ArgumentError, KernelError
from ..kernels.launch import stored
from ._begin import begin_of, upper
from ._filter import (
    FilterResult,
    ForecastResult,
    Moments,
    NotCompiled,
    Path,
    begun,
    filter_result,
    loglik_on_arrays,
    moments_of,
    moments_on_arrays,
    observed,
    require_settled,
)
from ._kernel import LETTERS, OWN, Form, Layout, codes_of, compiled, form_of, key_of, path_of, sizes, starts, triangle
from ._model import LinearGaussian, Observations, System, system
from ._pattern import at_steps, data_rows, flat

FEW, SHORT = 8, 30  # steps that arrays filter in the time that it takes to put together what a kernel needs; SHORT: plain numbers
FILTERED = 5_000  # steps that arrays filter in the time that a kernel takes to be compiled
LOCK = threading.Lock()


@dataclass(frozen=True)
class Run:
    """A kernel at the numbers of a model; `first` is the log-likelihood of the steps before its rows, and `path` their path if they have
    been run on arrays."""

    layout: Layout
    theta: Any
    rows: Any
    first: Any
    path: Path

    def loglik(self) -> Any:
        return compiled(self.layout)(self.theta, self.rows) + self.first

    def moments(self, m: int) -> Moments:
        """Of the steps of the kernel."""
        x = path_of(self.layout).path(self.theta, self.rows)
        full, k = triangle(m)[1], m + m * (m + 1) // 2
        mean, filtered = x[1 : m + 1].T, x[k + 1 : k + m + 1].T
        return Moments(mean, x[m + 1 : k + 1].T[:, full], filtered, x[k + m + 1 :].T[:, full], x[0], [])


def loglik(model: LinearGaussian, y: Any, joseph: bool = False) -> Any:
    """The log-likelihood of y (n,) or (n, p) under the model, nan meaning missing; differentiable in model
    and data.

    With a diffuse start it is the diffuse log-likelihood, all constants included (DK 7.2).  `joseph` takes
    the longer update of the covariance that loses no digits when an observation is far more exact than the
    state.  Raises `ShapeError` if a matrix does not fit, `DataError` on infinite data,
    `NotPositiveDefiniteError` if the variance of an observation is not positive (on NumPy; on CuPy the value
    is nan, for a check would stop the device).

    On NumPy it runs as a compiled filter where that pays: see docs/state-space.md.

    >>> import numpy as np, tapegrad as tg
    >>> from tapegrad import statespace as ss
    >>> f = lambda v: ss.loglik(ss.local_level(v[0], v[1]), [0.1, 0.4, -0.2, 0.3])
    >>> tg.grad(f)(np.array([1.0, 0.5])).round(6)
    array([-1.026835, -0.764213])
    """
    data = y if isinstance(y, Observations) else Observations(y)
    few = SHORT if data.width == 1 and getattr(model.transition, "ndim", 0) == 0 else FEW
    if data.steps >= few:
        s = system(model, data)
        try:
            total = run(s, data, joseph).loglik()
        except (NotCompiled, KernelError):
            return loglik_on_arrays(model, data, joseph, s)
        if numpy.isfinite(seen(total)):
            return total
    return loglik_on_arrays(model, data, joseph)


def kalman_filter(model: LinearGaussian, y: Any, joseph: bool = False) -> FilterResult:
    """Predicted and filtered states, innovations and log-likelihood terms; arguments and errors as in
    `loglik`.

    >>> from tapegrad import statespace as ss
    >>> r = ss.filter(ss.local_level(1.0, 0.5), [0.1, 0.4, -0.2, 0.3])
    >>> r.filtered_mean[:, 0].round(6), r.diffuse_steps
    (array([0.1     , 0.28    , 0.028571, 0.165882]), 1)
    """
    data = y if isinstance(y, Observations) else Observations(y)
    s = system(model, data)
    found = moments(s, data, joseph)
    if found is None:
        x, _, total, _ = moments_on_arrays(s, data, joseph)
        return filter_result(x, total, s, data)
    return filter_result(found[0], np.sum(found[0].terms), s, data)


def forecast(model: LinearGaussian, y: Any, steps: int, joseph: bool = False) -> ForecastResult:
    """Mean and covariance of the next `steps` observations and states given y; arguments and errors as in
    `loglik`.

    Matrices that vary over time need values for the steps ahead too.  Raises `DataError` if the data
    leave a diffuse element undetermined: its forecast has infinite variance.

    >>> from tapegrad import statespace as ss
    >>> r = ss.forecast(ss.local_level(1.0, 0.5), [0.1, 0.4, -0.2, 0.3], steps=3)
    >>> r.cov[:, 0, 0].round(6)
    array([2.00..., 2.50..., 3.00...])
    """
    if steps < 1:
        raise ArgumentError(f"forecast(..., steps={steps}): wanted at least 1")
    data = y if isinstance(y, Observations) else Observations(y)
    n = data.steps
    data = data.extended(steps)
    s = system(model, data)
    found = moments(s, data, joseph)
    if found is None:
        x, _, _, settled = moments_on_arrays(s, data, joseph)
        require_settled(settled, "forecast")
    else:
        x = found[0]
    mean, cov = x.mean[n:], x.cov[n:]
    return ForecastResult(*observed(s, mean, cov, n, n + steps), mean, cov)


def run(s: System, data: Observations, joseph: bool, always: bool = False, path: bool = False) -> Run:
    """The compiled filter of a model; with `path`, the first steps are run on arrays.  Raises `NotCompiled` where there is none, and,
    unless `always`, where it is not worth it yet."""
    form, x = _form(s, data, joseph)
    if not always and data.values.dtype != float:
        raise NotCompiled("the data are float32, and so may be the result")
    if not (always or form.ready or _pays(form, data.steps)):
        raise NotCompiled("it is too short for a kernel to be worth while")
    begin = begin_of(s, data, is_tracked(s.T) or is_tracked(s.Z))
    if begin is None:
        return Run(form.layout, x[form.begun], _rows(form, s, data, 0), 0.0, Path())
    if path:
        (a, P, first), total = begun(s, data, begin.steps, joseph), 0.0
    else:
        (a, P, total), first = begin.state(s, data, joseph), Path()
    theta = np.concatenate([upper(a, P), x[form.at]])
    return Run(form.layout, theta, _rows(form, s, data, begin.steps), total, first)


def moments(s: System, data: Observations, joseph: bool) -> tuple[Moments, Path] | None:
    """The moments of all states by the compiled filter, and the path of the steps before it; None where there is no such filter, or it
    does not pay, or a variance is not positive."""
    if data.steps < FEW:
        return None
    try:
        r = run(s, data, joseph, path=True)
        found = r.moments(len(s.diffuse))
    except (NotCompiled, KernelError):
        return None
    if not numpy.isfinite(seen(found.terms)).all():
        return None
    return (joined(moments_of(r.path, s.xp), found) if r.path.updates else found), r.path


def joined(x: Moments, y: Moments) -> Moments:
    """x, and y behind it."""
    parts = [np.concatenate([getattr(x, f.name), getattr(y, f.name)]) for f in fields(x) if f.name != "infinite"]
    return Moments(*parts, x.infinite)


def _form(s: System, data: Observations, joseph: bool) -> tuple[Form, Any]:
    """The form of a model, and its constant fields in one vector."""
    if data.xp is not numpy:
        raise NotCompiled("the data are on a device")
    m, p = len(s.diffuse), data.width
    size, at = sizes(m, p), starts(m, p, s.varying)
    x = np.concatenate([flat(getattr(s, name), size[name]) for name in at])
    host, y = seen(x), seen(data.values)
    if host is None or y is None:
        raise NotCompiled("its numbers are hidden")
    codes = codes_of(host)
    for name, place in at.items():
        if name in LETTERS:
            code = codes[place]
            if is_tracked(getattr(s, name)):
                code[:] = OWN
                if name in s.zeros:
                    code[s.zeros[name]] = 0
            elif name in "QH":  # a variance is a number of its own, whatever it is: at another call it will be another
                code[host[place] != 0] = OWN
    if s.varying:
        codes = numpy.concatenate([_codes_of_series(s, name, data) if name in s.varying else codes[at[name]] for name in LETTERS])
    else:
        codes = codes[m + m * m :]
    return form_of(m, p, data.count < data.steps * p, joseph, s.varying, codes.tobytes()), x


def _codes_of_series(s: System, name: str, data: Observations) -> numpy.ndarray:
    x = seen(getattr(s, name))
    if x is None:
        raise NotCompiled("its numbers are hidden")
    x = x[: data.steps].reshape(data.steps, -1)
    return codes_of(x[0], is_tracked(getattr(s, name)) or (x != x[0]).any(axis=0))


def _pays(form: Form, steps: int) -> bool:
    """Is the kernel on disk, or have arrays filtered so much in this form that its compilation is due?"""
    with LOCK:
        form.ready = form.ready or (form.filtered == 0 and stored.noted(key_of(form.layout)))
        form.filtered += steps
        if not form.ready and form.filtered >= FILTERED:
            form.ready = True
            stored.note(key_of(form.layout))
        return form.ready


def _rows(form: Form, s: System, data: Observations, steps: int) -> Any:
    """The data rows of the kernel.  What does not depend on the model is made once."""
    if form.lines or is_tracked(data.values):
        rows, _ = data_rows(data, steps)
        series = {name: at_steps(s, name, steps, data.steps) for name in s.varying}
        return np.stack(rows + [series[name][:, e] for name, e in form.lines])
    if data.lines is None or data.lines[0] != steps:
        data.lines = steps, numpy.stack(data_rows(data, steps)[0])
    return data.lines[1]
