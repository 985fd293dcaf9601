"""Fits that are written to a file and read again, by another process too."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import tapegrad as tg
from tapegrad import statespace as ss
from tapegrad.errors import ArgumentError

RNG = np.random.default_rng(1)
X = RNG.normal(size=(60, 2))
WALK = RNG.normal(size=60).cumsum() + RNG.normal(size=60)
INDEXES = {
    "none": None,
    "months": pd.date_range("2001-01-31", periods=60, freq="ME", tz="Europe/Berlin", name="month"),
    "quarters": pd.period_range("2001Q2", periods=60, freq="Q"),
    "numbers": pd.Index(range(1990, 2050), name="year"),
    "texts": pd.Index([f"step {i}" for i in range(60)]),
}
KINDS = {
    "structural": lambda y: ss.fit(ss.level() + ss.trend(var=0) + ss.seasonal(4) + ss.regression(X), y),
    "cycle": lambda y: ss.fit(ss.level(var=0.0) + ss.cycle(period=(3, 20), damping=0.9), y),
    "airline": lambda y: ss.sarimax(y, (0, 1, 1), (0, 1, 1, 4)).fit(),
    "regressors": lambda y: ss.sarimax(y, ([1, 3], 0, 1), exog=X, trend="c").fit(fixed={"ma.L1": 0.2}),
    "own": lambda y: ss.fit(own, y, [1.0, 1.0], ss.positive()),
}


def own(p):
    return ss.local_level(p[0], p[1])


def same(a, b):
    for name in ("estimates", "standard_errors", "loglik", "aic", "residuals"):
        assert_allclose(getattr(a, name), getattr(b, name), rtol=1e-9)
    assert a.names == b.names and a.fixed == b.fixed and a.at_bound == b.at_bound and a.nobs == b.nobs
    assert_allclose(a.cov("robust"), b.cov("robust"), rtol=1e-7)
    assert a.summary().splitlines()[3:6] == b.summary().splitlines()[3:6]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", KINDS)
def test_a_saved_fit_is_the_fit(name, tmp_path):
    fit = KINDS[name](pd.Series(WALK, INDEXES["months"], name="w"))
    path, given = tmp_path / "a.fit", {"build": own} if name == "own" else {}
    fit.save(path)
    again = ss.load(path, **given)
    same(again, fit)
    assert again.data.labels.index.equals(fit.data.labels.index) and again.data.labels.columns == ("w",)
    exog = {"exog": np.ones((2, 2))} if name in ("structural", "regressors") else {}
    assert_allclose(again.forecast(2, **exog).mean, fit.forecast(2, **exog).mean, rtol=1e-10)
    assert again.forecast(2, **exog).mean.index.equals(fit.forecast(2, **exog).mean.index)
    one = {"exog": np.ones((1, 2))} if exog else {}
    for other in (fit.append(1.0, **one), fit.extend(1.0, **one)):
        other.save(path)
        found = ss.load(path, **given)
        assert_allclose([found.loglik, found.nobs], [other.loglik, other.nobs], rtol=1e-10)
        assert found.origin is not None
        same(found.origin, fit)


@pytest.mark.parametrize("name", INDEXES)
def test_indexes_come_back(name, tmp_path):
    index = INDEXES[name]
    fit = ss.fit(ss.level(), WALK if index is None else pd.Series(WALK, index))
    fit.save(tmp_path / "a.fit")
    found = ss.load(tmp_path / "a.fit").data.labels.index
    assert found is None if index is None else found.equals(index) and found.name == index.name
    assert getattr(found, "freq", None) == getattr(index, "freq", None)


@pytest.mark.long
def test_several_series_come_back(tmp_path):
    frame = pd.DataFrame(RNG.normal(size=(60, 3)), INDEXES["quarters"], ["a", "b", "c"])
    for fit in (ss.var(frame, 1).fit(), ss.dynamic_factor(frame, 1).fit()):
        fit.save(tmp_path / "a.fit")
        same(ss.load(tmp_path / "a.fit"), fit)


def test_another_process_reads_it(tmp_path):
    fit = KINDS["airline"](WALK)
    fit.save(tmp_path / "a.fit")
    code = f"from tapegrad import statespace as ss; print(ss.load({str(tmp_path / 'a.fit')!r}).forecast(1).mean[0])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert_allclose(float(found.stdout), fit.forecast(1).mean[0], rtol=1e-10)


# What the first version that wrote fits said of them: log-likelihood, and forecasts of two steps.
FIRST = {
    "structural": (-110.44756240194462, [-8.873748, -9.284506]),
    "cycle": (-125.48359919735074, [-7.18132, -6.298564]),
    "sarimax": (-113.04936990256101, [-8.076436, -8.599125]),
    "airline": (-102.90356424217471, [-8.858407, -8.940105]),
    "var": (-253.55465903424422, [0.036309, 0.028803, 0.178592, 0.037433, 0.080128, 0.006686]),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", FIRST)
def test_files_of_the_first_version_are_read(name, tmp_path):
    found = ss.load(Path(__file__).parent / "saved" / f"{name}.fit")
    exog = {"exog": np.ones((2, 2))} if name in ("structural", "sarimax") else {}
    loglik, ahead = FIRST[name]
    assert_allclose(found.loglik, loglik, rtol=1e-12)
    assert_allclose(np.ravel(found.forecast(2, **exog).mean), ahead, atol=1e-6)
    found.save(tmp_path / "a.fit")
    same(ss.load(tmp_path / "a.fit"), found)


def test_what_cannot_be_loaded(tmp_path):
    path = tmp_path / "a.fit"
    fit = KINDS["own"](WALK)
    fit.save(path)
    with pytest.raises(ArgumentError, match="cannot hold the function build; write ss.load"):
        ss.load(path)
    with pytest.raises(ArgumentError, match="is build or prior another function"):
        ss.load(path, build=lambda p: ss.local_level(p[1], p[0]))
    with_prior = ss.fit(ss.level(), WALK, prior={"sigma2.level": tg.stats.gamma(2.0, scale=1.0)})
    with_prior.save(path)
    with pytest.raises(ArgumentError, match="function prior"):
        ss.load(path)
    same(ss.load(path, prior={"sigma2.level": tg.stats.gamma(2.0, scale=1.0)}), with_prior)
    with np.load(path) as file:
        arrays = dict(file)
    header = json.loads(str(arrays["header"]))
    arrays["header"] = np.array(json.dumps(header | {"format": 99}))
    np.savez(tmp_path / "later.npz", **arrays)
    with pytest.raises(ArgumentError, match="has format 99, and this version of tapegrad reads up to 1"):
        ss.load(tmp_path / "later.npz")
    path.write_text("no fit")
    with pytest.raises(ArgumentError, match="no file that fit.save wrote"):
        ss.load(path)
    with pytest.raises(FileNotFoundError):
        ss.load(tmp_path / "nothing")
    square = ss.Constraint(
        "square", "numbers above 0", lambda u: u**2, np.sqrt, lambda x: bool((x > 0).all())
    )
    with pytest.raises(ArgumentError, match="square is a constraint of your own"):
        ss.fit(ss.level(), WALK, constraints={"sigma2.level": square}).save(path)
