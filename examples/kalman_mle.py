"""Maximum likelihood for the local level model on the flow of the Nile, 1871-1970.

    python examples/kalman_mle.py                    # prints the table, writes kalman_mle.png
    python examples/kalman_mle.py --method BFGS --device cuda

The model (Durbin and Koopman, Time Series Analysis by State Space Methods, chapter 2) is a random walk
observed with noise,

    flow[t] = level[t] + eps[t], var(eps) = observation_var;  level[t+1] = level[t] + eta[t], var(eta) =
    level_var,

with an unknown first level (exact diffuse start).  The book prints 15099 and 1469.1 for the two variances;
the program checks itself against them.  Gradient and Hessian of the log-likelihood are exact: tapegrad
differentiates the Kalman filter.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from device import add_option, array_module, to_host

from tapegrad import statespace as ss

try:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
except ImportError:
    pyplot = None

DATA = Path(__file__).parent / "data" / "nile.csv"
PUBLISHED = {"observation_var": 15099.0, "level_var": 1469.1}
START = {"observation_var": 1e4, "level_var": 1e3}


def build(p):
    return ss.local_level(p["observation_var"], p["level_var"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_option(parser)
    parser.add_argument(
        "--method", default="trust-exact", help="a gradient method of scipy.optimize.minimize"
    )
    parser.add_argument("--output", type=Path, default=Path("kalman_mle.png"), help="the picture")
    parser.add_argument("--years", type=int, default=10, help="years to forecast")
    args = parser.parse_args()

    year, flow = np.loadtxt(DATA, delimiter=",", skiprows=3, unpack=True)
    y = array_module(args.device).asarray(flow)

    fit = ss.fit(build, y, START, ss.positive(), method=args.method)
    print(fit.summary())

    print()
    for name, published in PUBLISHED.items():
        found = float(fit.params[name])
        if not np.isclose(found, published, rtol=1e-4):
            print(f"{name}: {found} differs from the published {published}", file=sys.stderr)
            return 1
        print(f"checked: {name} {found:.2f}, published {published:g}, within 1e-4 of it")

    if pyplot is None:
        print("no picture: pip install 'tapegrad[plot]'")
    else:
        draw(
            year,
            flow,
            fit,
            ss.filter(fit.model, y),
            ss.smooth(fit.model, y),
            ss.forecast(fit.model, y, args.years),
            args.output,
        )
        print(f"\npicture: {args.output}")
    return 0


def draw(year, flow, fit, filtered, smoothed, ahead, output):
    future = year[-1] + 1 + np.arange(len(ahead.mean))
    shape = {"figsize": (9, 7), "height_ratios": (3, 1), "layout": "constrained"}
    figure, (axes, below) = pyplot.subplots(2, 1, sharex=True, **shape)
    axes.plot(year, flow, "k.", label="flow")
    axes.plot(year, to_host(filtered.filtered_mean)[:, 0], "C1", lw=1, label="filtered level")
    band(axes, year, smoothed.mean, smoothed.cov, "C0", "smoothed level")
    band(axes, future, ahead.mean, ahead.cov, "C2", "forecast of the flow")
    axes.set(ylabel="flow at Aswan, $10^8$ m$^3$", title="Nile: local level model, bands of 95 %")
    axes.legend(loc="upper center")
    residuals = to_host(fit.standardised).reshape(len(year), -1)[:, 0]
    below.bar(year, residuals, color="C0")
    below.axhline(0, color="k", lw=0.8)
    for limit in (-1.96, 1.96):
        below.axhline(limit, color="k", lw=0.8, ls=":")
    title = f"residuals: {np.sum(np.abs(residuals) > 1.96)} of {np.isfinite(residuals).sum()} beyond 1.96"
    below.set(xlabel="year", ylabel="standardised\none-step errors", title=title)
    figure.savefig(output, dpi=90)


def band(axes, year, mean, cov, colour, label):
    mean, half = to_host(mean)[:, 0], 1.96 * np.sqrt(to_host(cov)[:, 0, 0])
    axes.plot(year, mean, colour, label=label)
    axes.fill_between(year, mean - half, mean + half, color=colour, alpha=0.2)


if __name__ == "__main__":
    sys.exit(main())
