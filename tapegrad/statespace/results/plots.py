"""Pictures of a fit.  matplotlib is imported when the first is drawn."""

from typing import Any

import numpy
from numpy import ndarray
from scipy.special import ndtri

from ..._core.arrays import to_host
from ..._core.errors import ArgumentError
from ..._core.registry import load
from .diagnostics import autocorrelations
from .forecast import normal_quantile, prediction_of

SHADE = {"alpha": 0.2, "linewidth": 0}
LEGEND = {"frameon": False, "fontsize": 8}


def _panels(rows: int, columns: int, size: tuple[float, float], **settings) -> tuple[Any, ndarray]:
    """A figure and its axes (rows, columns)."""
    try:
        pyplot = load("matplotlib.pyplot")
    except ImportError as error:
        raise ArgumentError(
            "a picture needs the package matplotlib: pip install matplotlib, or 'tapegrad[plot]'"
        ) from error
    return pyplot.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained", **settings)


def _axis(places) -> ndarray:
    """Places in time as matplotlib draws them: dates, numbers, or the number of the step."""
    if hasattr(places, "to_timestamp"):
        places = places.to_timestamp()
    values = places.to_numpy() if hasattr(places, "to_numpy") else numpy.asarray(places)
    return values if values.dtype.kind in "Mmiuf" else numpy.arange(len(values))


def _draw_curve(axis, x, mean, half, colour: str, label: str, shaded: str | None) -> None:
    """Draw means with a band about them, whose label is `shaded`."""
    axis.plot(x, mean, colour, lw=1.2, label=label)
    axis.fill_between(x, mean - half, mean + half, color=colour, label=shaded, **SHADE)


def plot(fit, steps: int = 0, exog=None, alpha: float = 0.05, ax=None):
    """Plot the data with their one-step forecasts, and forecasts of the next `steps`.

    The result is a figure of matplotlib; with `ax` it is drawn there.
    """
    data, z = fit.data, normal_quantile(alpha)
    begin = fit.filtered.diffuse_steps
    if ax is None:
        figure, axes = _panels(data.width, 1, (9.0, 1.5 + 2.8 * data.width), sharex=True)
        axes = axes[:, 0]
    else:
        axes = numpy.atleast_1d(ax).reshape(-1)
        if len(axes) != data.width:
            raise ArgumentError(
                f"plot: ax holds {len(axes)} axes and there are {data.width} series; wanted one for each"
            )
        figure = axes[0].figure
    y = to_host(data.raw)
    n = data.steps
    found = prediction_of(fit, (0, data.steps + steps), exog=exog)
    x = numpy.r_[_axis(data.labels.places(n)), _axis(found.dates[n:])]
    means, errors = (numpy.asarray(v).reshape(n + steps, -1) for v in (found.mean, found.standard_errors))
    spans: list[tuple] = [("C0", "one-step forecast", slice(begin, n), None)]
    if steps:
        spans.append(("C1", "forecast", slice(n, None), f"{100 * (1 - alpha):g} % intervals"))
    for i, (axis, name) in enumerate(zip(axes, data.labels.columns, strict=True)):
        axis.plot(x[:n], y[:, i], "k.-", lw=0.6, ms=4, label=name)
        seen = [y[:, i], means[begin:n, i]]
        for colour, label, at, shaded in spans:
            mean, half = means[at, i], z * errors[at, i]
            _draw_curve(axis, x[at], mean, half, colour, label, shaded)
            seen += [mean - half, mean + half] if shaded else []
        low, high = (f(numpy.concatenate(seen)) for f in (numpy.nanmin, numpy.nanmax))
        # the first intervals after a diffuse start are wide
        axis.set_ylim(low - 0.15 * (high - low), high + 0.15 * (high - low))
        axis.set_ylabel(name)
        axis.legend(**LEGEND)
    axes[-1].set_xlabel(_time(data))
    return figure


def _time(data) -> str:
    index = data.labels.index
    if index is None:
        return "step"
    return "time" if index.name is None else str(index.name)


def plot_components(fit, alpha: float = 0.05):
    """Plot the components of a structural model, or the named states, with their intervals."""
    parts, z = fit.components(), normal_quantile(alpha)
    x = _axis(fit.data.labels.places(fit.data.steps))
    figure, axes = _panels(len(parts), 1, (9.0, 1.0 + 1.9 * len(parts)), sharex=True)
    for axis, (name, part) in zip(axes[:, 0], parts.items(), strict=True):
        mean, half = numpy.asarray(part.mean), z * numpy.asarray(part.standard_errors)
        if name == "level" and fit.data.width == 1:
            axis.plot(x, to_host(fit.data.raw)[:, 0], "k.", ms=3, alpha=0.5, label=fit.data.labels.columns[0])
        else:
            axis.axhline(0.0, color="k", lw=0.5, alpha=0.5)
        _draw_curve(axis, x, mean, half, "C0", name, f"{100 * (1 - alpha):g} % interval")
        axis.set_ylabel(name)
        axis.legend(**LEGEND)
    axes[-1, 0].set_xlabel(_time(fit.data))
    return figure


def plot_diagnostics(fit, series: int | str = 0, lags: int = 20):
    """Plot the standardised residuals of one series: series, histogram, quantiles, autocorrelations."""
    names = fit.data.labels.columns
    if isinstance(series, str) and series not in names:
        raise ArgumentError(f"plot_diagnostics: {series!r} is not a series; wanted one of {', '.join(names)}")
    i = names.index(series) if isinstance(series, str) else series
    begin = fit.filtered.diffuse_steps
    e, x = fit.standardised[begin:, i], _axis(fit.data.labels.places(fit.data.steps))[begin:]
    seen = numpy.sort(e[~numpy.isnan(e)])
    if seen.size < 3:
        raise ArgumentError(
            f"plot_diagnostics: {seen.size} residuals are too few for pictures of their distribution"
        )
    figure, ((time, histogram), (quantiles, correlogram)) = _panels(2, 2, (10.0, 7.0))
    time.plot(x, e, "C0.-", lw=0.7, ms=3)
    time.axhline(0.0, color="k", lw=0.5)
    time.set(title=f"standardised residuals of {names[i]}", xlabel=_time(fit.data), ylabel="residual")
    time.tick_params(axis="x", rotation=30)
    grid = numpy.linspace(min(-3.5, seen[0] - 0.5), max(3.5, seen[-1] + 0.5), 200)
    histogram.hist(
        seen, bins="auto", density=True, color="C0", alpha=0.4, edgecolor="white", label="residuals"
    )
    histogram.plot(grid, _smooth_density(seen, grid), "C0", label="kernel density")
    histogram.plot(grid, _normal_density(grid), "k--", lw=1, label="N(0, 1)")
    histogram.set(title="distribution", xlabel="residual", ylabel="density")
    histogram.legend(**LEGEND)
    normal = ndtri((numpy.arange(seen.size) + 0.5) / seen.size)
    quantiles.plot(normal, seen, "C0.", ms=4)
    quantiles.plot(normal[[0, -1]], normal[[0, -1]], "k--", lw=1)
    quantiles.set(title="normal quantiles", xlabel="quantile of N(0, 1)", ylabel="quantile of residuals")
    lags = min(lags, seen.size - 1)
    r, bound = autocorrelations(e, lags)[1:], normal_quantile(0.05) / numpy.sqrt(seen.size)
    correlogram.vlines(numpy.arange(1, lags + 1), 0.0, r, "C0")
    correlogram.plot(numpy.arange(1, lags + 1), r, "C0o", ms=4)
    correlogram.axhspan(-bound, bound, color="C0", label="95 % if white noise", **SHADE)
    correlogram.axhline(0.0, color="k", lw=0.5)
    reach = max(1.3 * bound, 1.15 * abs(r).max())
    correlogram.set(title="autocorrelations", xlabel="lag", ylabel="autocorrelation", ylim=(-reach, reach))
    correlogram.xaxis.get_major_locator().set_params(integer=True)
    correlogram.legend(**LEGEND)
    return figure


def _smooth_density(x: ndarray, grid: ndarray) -> ndarray:
    """A Gaussian kernel density with D. W. Scott's width."""
    width = x.std(ddof=1) * x.size ** (-1 / 5)
    return _normal_density((grid[:, None] - x) / width).mean(1) / width


def _normal_density(z: ndarray) -> ndarray:
    return numpy.exp(-0.5 * z**2) / numpy.sqrt(2 * numpy.pi)
