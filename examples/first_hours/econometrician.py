"""First hour of an econometrician: airline passengers, from an estimate to a forecast that is updated.

The estimates of Box and Jenkins' airline model are those printed by statsmodels and Stata: -0.4018 and
-0.5569."""

from pathlib import Path

import numpy as np

from tapegrad import statespace as ss

passengers = np.loadtxt(
    Path(__file__).parents[1] / "data" / "airline.csv", delimiter=",", skiprows=3, usecols=1
)
y = np.log(passengers)

# Estimate on all but the last year. Standard errors come from the exact Hessian.
model = ss.sarimax(y, order=(0, 1, 1), seasonal_order=(0, 1, 1, 12))
fit = model.fit()
print(fit)
published = dict(zip(["ma.L1", "ma.S.L12"], [-0.4018, -0.5569], strict=True))
for name, value in published.items():
    assert abs(fit.estimates[fit.names.index(name)] - value) < 1e-3

# A year ahead, with a band of 95 %.
early = ss.sarimax(y[:-12], order=(0, 1, 1), seasonal_order=(0, 1, 1, 12)).fit()
ahead = early.forecast(12)
low, high = ahead.mean - 1.96 * ahead.standard_errors, ahead.mean + 1.96 * ahead.standard_errors
inside = np.mean((y[-12:] > low) & (y[-12:] < high))
print(f"share of the last year inside the band: {inside:.2f}")
assert inside > 0.7

# A month arrives: the parameters stay, the forecast moves.
updated = early.append(y[-12:-11])
print(
    "forecast of the second month, before and after the first:",
    ahead.mean[1].round(4),
    updated.forecast(1).mean[0].round(4),
)
