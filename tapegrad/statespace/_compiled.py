"""The compiled filter of one model, and the choice between it and the filter on arrays.

Nothing is known here of where the model comes from, so each entry of a field that is tracked is a number of the kernel's theta (or of its
rows, if the field varies over time), and each of the others that is not 0, 1 or -1."""

from collections import Counter
from dataclasses import dataclass, fields
from typing import Any

import numpy

from .. import numpy as np
from .._primitive import is_tracked, seen
from .._scope import lock
from ..errors import ArgumentError, KernelError
from ..kernels.launch import stored
from ._begin import begin_of, upper
from ._diffuse import unknown
from ._filter import (
    FilterResult,
    ForecastResult,
    Moments,
    NotCompiled,
    Path,
    after,
    begun,
    filter_result,
    loglik_on_arrays,
    moments_of,
    moments_on_arrays,
    observed,
    require_settled,
)
from ._host import brought, on_processor
from ._kernel import LETTERS, OWN, Form, Layout, codes_of, compiled, first_of, form_of, key_of, path_of, sizes, starts, triangle
from ._model import LinearGaussian, Observations, System, given, system
from ._pattern import at_steps, data_rows, flat

FEW, SHORT = 8, 30  # steps that arrays filter in the time that it takes to put together what a kernel needs; SHORT: plain numbers
FILTERED = 5_000  # steps that arrays filter in about the time that a kernel of several states takes to be compiled
LOCK = lock()
ON_DEVICE: Counter = Counter()  # steps that were filtered on a device, by the shape of the transition and the number of observations


@dataclass(frozen=True)
class First:
    """The first steps after a diffuse start, of plain numbers, by a kernel: `x` is what it handed out."""

    layout: Layout
    numbers: numpy.ndarray
    rows: numpy.ndarray
    x: numpy.ndarray
    unknown: int

    @property
    def steps(self) -> int:
        return self.rows.shape[1]

    @property
    def met(self) -> int:
        """How many elements met an infinite variance."""
        return int(self.rows[-self.layout.width :].sum())

    def moments(self) -> Moments:
        m, n = self.layout.states, self.steps
        full, k = triangle(m)[1], m + m * (m + 1) // 2
        a, P, A, b, R = numpy.split(self.x[1:].T, [m, k, k + m * self.unknown, k + m * self.unknown + m], axis=1)
        return Moments(a, P[:, full], b, R[:, full], self.x[0], A.reshape(n, m, self.unknown))

    def smoothed(self, r: numpy.ndarray, N: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
        """Mean and covariance of each state given all data; r, N: the weights behind the last transition of these steps."""
        m, q = self.layout.states, self.unknown
        upper, full = triangle(m)
        theta = numpy.concatenate([r, N.ravel()[upper], self.numbers])
        rows = numpy.concatenate([self.rows, self.x[1 : 1 + m + upper.size + m * q]])[:, ::-1]
        found = first_of(self.layout, q)[1].path(theta, rows)[:, ::-1].T
        return found[:, :m], found[:, m:][:, full]


@dataclass(frozen=True)
class Run:
    """A kernel at the numbers of a model; `loglik_before` is the log-likelihood of the steps before its rows, and `first` these steps, if
    they were asked for."""

    layout: Layout
    theta: Any
    rows: Any
    loglik_before: Any
    first: First | Path

    def loglik(self) -> Any:
        return compiled(self.layout)(self.theta, self.rows) + self.loglik_before

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
    `NotPositiveDefiniteError` if a covariance has an eigenvalue below 0, or the variance of an observation is
    not positive (on NumPy; on CuPy the value is nan).

    It runs as a compiled filter where that pays: see docs/state-space.md.

    >>> import numpy as np, tapegrad as tg
    >>> from tapegrad import statespace as ss
    >>> f = lambda v: ss.loglik(ss.local_level(v[0], v[1]), [0.1, 0.4, -0.2, 0.3])
    >>> tg.grad(f)(np.array([1.0, 0.5])).round(6)
    array([-1.026835, -0.764213])
    """
    data = given("loglik", model, y)
    single = data.width == 1 and getattr(model.transition, "ndim", 0) == 0
    if data.steps >= (SHORT if single else FEW) and not (single and data.values.dtype != float):  # numbers of float32 stay float32
        at, there = _for_kernels(model, data)
        s = system(at, there)
        try:
            total = run(s, there, joseph, there is not data).loglik()
        except (NotCompiled, KernelError):
            return loglik_on_arrays(model, data, joseph, s if there is data else None)
        shown = seen(total)
        if there is not data or shown is None or numpy.isfinite(shown):
            return brought(total, data.xp)
    return loglik_on_arrays(model, data, joseph)


def kalman_filter(model: LinearGaussian, y: Any, joseph: bool = False) -> FilterResult:
    """Predicted and filtered states, innovations and log-likelihood terms; arguments and errors as in
    `loglik`.

    >>> from tapegrad import statespace as ss
    >>> r = ss.filter(ss.local_level(1.0, 0.5), [0.1, 0.4, -0.2, 0.3])
    >>> r.filtered_mean[:, 0].round(6), r.diffuse_steps
    (array([0.1     , 0.28    , 0.028571, 0.165882]), 1)
    """
    data = given("filter", model, y)
    s, there, found = moments(model, data, joseph)
    if found is None:
        x, _, total, _ = moments_on_arrays(s, data, joseph)
        return filter_result(x, total, s, data)
    return brought(filter_result(found[0], np.sum(found[0].terms), s, there), data.xp)


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
    if not (isinstance(steps, (int, numpy.integer)) and steps >= 1):
        raise ArgumentError(f"forecast(..., steps={steps!r}): wanted a whole number, at least 1")
    data = given("forecast", model, y)
    n = data.steps
    data = data.extended(steps)
    s, _, found = moments(model, data, joseph)
    if found is None:
        x, _, _, settled = moments_on_arrays(s, data, joseph)
        require_settled(settled, "forecast")
    else:
        x = found[0]
    mean, cov = x.mean[n:], x.cov[n:]
    return brought(ForecastResult(*observed(s, mean, cov, n, n + steps), mean, cov), data.xp)


def run(s: System, data: Observations, joseph: bool, always: bool = False, path: bool = False, on_arrays: bool = False) -> Run:
    """The compiled filter of a model, with `path` for its moments; with `on_arrays` the first steps are run there in any case.  Raises
    `NotCompiled` where there is none, and, unless `always`, where it is not worth it yet."""
    form, x = _form(s, data, joseph)
    tracked = any(map(is_tracked, [x, data.values, *(getattr(s, name) for name in s.varying)]))
    use = f"{'path' if path else 'loglik'}{' differentiated' if tracked else ''}"
    if not (always or use in form.ready or _pays(form, use, data.steps)):
        raise NotCompiled("it is too short for a kernel to be worth while")
    begin = begin_of(s, data, is_tracked(s.T) or is_tracked(s.Z))
    if begin is None:
        return Run(form.layout, x[form.begun], _rows(form, s, data, 0), 0.0, Path())
    total, first = 0.0, Path()
    if begin.plan and not (tracked or on_arrays) and (path or begin.constants is None):
        first = _first(form, x, s, data, begin.plan)
        found = first.moments()
        a, P = after(s, begin.steps, found.filtered_mean[-1], found.filtered_cov[-1])
        total = found.terms.sum()
    elif path:
        a, P, first = begun(s, data, begin.steps, joseph, begin.plan)
    else:
        a, P, total = begin.state(s, data, joseph)
    theta = np.concatenate([upper(a, P), x[form.at]])
    return Run(form.layout, theta, _rows(form, s, data, begin.steps), total, first)


def _first(form: Form, x: numpy.ndarray, s: System, data: Observations, plan: list[list[bool]]) -> First:
    n, p, A = len(plan), data.width, unknown(s)
    infinite, there = numpy.zeros((p, n)), numpy.zeros((p, n))
    for t, met in enumerate(plan):
        infinite[data.rows[t], t], there[data.rows[t], t] = met, 1.0
    a, P = s.mean, s.cov
    if s.predict_first:
        a, P, A = after(s, 0, a, P, A)
    lines = {name: at_steps(s, name, 0, data.steps)[:n] for name in s.varying}
    rows = data_rows(data, 0, form.layout.gaps)[0]
    rows = numpy.stack([*(row[:n] for row in rows), *(lines[name][:, e] for name, e in form.lines), *(there - infinite), *infinite])
    numbers = x[form.at]
    start = numpy.concatenate([upper(a, P), A.ravel(), numbers])
    return First(form.layout, numbers, rows, first_of(form.layout, A.shape[1])[0].path(start, rows), A.shape[1])


def moments(
    model: LinearGaussian, data: Observations, joseph: bool, on_arrays: bool = False
) -> tuple[System, Observations, tuple[Moments, First | Path] | None]:
    """The system of the model, the data that it is for, and, by the compiled filter, the moments of all states and the first steps (with
    `on_arrays` as a path): on the host.  None in their place, and the system where the data are, where there is no such filter, or it
    does not pay, or a variance is not positive."""
    s = None
    if data.steps >= FEW:
        at, there = _for_kernels(model, data)
        try:
            host = system(at, there)
            s = host if there is data else None
            r = run(host, there, joseph, there is not data, True, on_arrays)
            found = r.moments(len(host.diffuse))
            if r.first.steps:
                found = joined(r.first.moments() if isinstance(r.first, First) else moments_of(r.first, host.xp), found)
            terms = seen(found.terms)
            if terms is None or numpy.isfinite(terms).all():
                return host, there, (found, r.first)
        except (NotCompiled, KernelError):
            pass
    return s or system(model, data), data, None


def _for_kernels(model: LinearGaussian, data: Observations) -> tuple[LinearGaussian, Observations]:
    """A model and data of a device on the host, when so many steps have been filtered on the device that a kernel pays, and that what is
    moved with each call costs little beside them; till then nothing leaves the device."""
    if data.xp is not numpy:
        with LOCK:
            form = getattr(model.transition, "shape", ()), data.width
            ON_DEVICE[form] += data.steps
            if ON_DEVICE[form] < FILTERED:
                return model, data
    return on_processor(model, data)


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
    values = {name: getattr(s, name) for name in at}
    x = np.concatenate([flat(value, size[name]) for name, value in values.items()])
    host = x  # what is tracked need not be looked at
    if is_tracked(x):
        host = numpy.concatenate([numpy.zeros(size[name]) if is_tracked(v) else flat(seen(v), size[name]) for name, v in values.items()])
    codes = codes_of(host)
    for name, place in at.items():
        if name in LETTERS:
            code = codes[place]
            if is_tracked(values[name]):
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
    x = getattr(s, name)
    if is_tracked(x):
        return numpy.full(x[0].size, OWN, numpy.int8)
    x = seen(x)[: data.steps].reshape(data.steps, -1)
    return codes_of(x[0], (x != x[0]).any(axis=0))


def _pays(form: Form, use: str, steps: int) -> bool:
    """Is the kernel on disk for this use, or have arrays filtered so much that its compilation is due?"""
    with LOCK:
        name = f"{key_of(form.layout)} {use}"
        if use not in form.filtered and stored.noted(name):
            form.ready.add(use)
        form.filtered[use] += steps
        if use not in form.ready and form.filtered[use] >= FILTERED:
            form.ready.add(use)
            stored.note(name)
        return use in form.ready


def _rows(form: Form, s: System, data: Observations, steps: int) -> Any:
    """The data rows of the kernel.  What does not depend on the model is made once."""
    if form.lines or is_tracked(data.values):
        rows, _ = data_rows(data, steps, form.layout.gaps)
        series = {name: at_steps(s, name, steps, data.steps) for name in s.varying}
        return np.stack(rows + [series[name][:, e] for name, e in form.lines])
    known = data.lines
    if known is None or known[0] != steps:
        known = data.lines = steps, numpy.stack(data_rows(data, steps, form.layout.gaps)[0])
    return known[1]
