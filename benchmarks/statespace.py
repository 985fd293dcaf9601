"""Maximum likelihood of state space models beside statsmodels: a structural model, ARMA, the airline model; a
thousand series at once.

    python benchmarks/statespace.py [--save] [--quick]

Each fit is timed in a fresh process, from the call to the standard errors (by exact second derivatives here,
by statsmodels' approximations there), after the package has been imported; tapegrad's first process finds no
kernel on disk, the later ones do.  Both get their own defaults.  How far an estimate is from the maximum is
judged by the system's own log-likelihood, for the two differ in what they count: it is what Newton's method
or a longer search gains from there."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import _harness as bench
import numpy as np

DATA = Path(__file__).resolve().parent.parent / "examples" / "data"


def column(name):
    return np.loadtxt(DATA / f"{name}.csv", delimiter=",", skiprows=3, usecols=1)


def walks(k):
    g = np.random.default_rng(0)
    return (0.7 * g.normal(size=(k, 100))).cumsum(axis=1) + g.normal(size=(k, 100))


# --- tapegrad ---


def seasonal_matrices():
    """Level, slope and eleven seasonal states: transition, observation, selection."""
    T = np.zeros((13, 13))
    T[0, 0] = T[0, 1] = T[1, 1] = 1.0
    T[2, 2:] = -1.0
    T[np.arange(3, 13), np.arange(2, 12)] = 1.0
    z, R = np.zeros(13), np.zeros((13, 3))
    z[0] = z[2] = R[0, 0] = R[1, 1] = R[2, 2] = 1.0
    return T, z, R


def structural(ss, np):
    """Four variances."""
    y = np.log(column("airline"))
    T, z, R = seasonal_matrices()

    def build(p):
        return ss.LinearGaussian(
            T, z, np.stack([p["level"], p["slope"], p["seasonal"]]), p["irregular"], selection=R
        )

    size = np.var(np.diff(y))
    start = {"level": size / 10, "slope": size / 100, "seasonal": size / 100, "irregular": size / 10}
    return lambda: ss.fit(build, y, start, ss.positive())


def arma(ss, np):
    y = column("sunspots")
    return lambda: ss.sarimax(y, order=(2, 0, 1), trend="c").fit()


def airline(ss, np):
    y = np.log(column("airline"))
    return lambda: ss.sarimax(y, order=(0, 1, 1), seasonal_order=(0, 1, 1, 12)).fit()


def months_with_gaps():
    """The airline data with missing months, and two regressors."""
    y = np.log(column("airline"))
    y[[5, 17, 60, 61, 100]] = np.nan
    return y, np.random.default_rng(0).normal(size=(y.size, 2))


def gaps(ss, np):
    y, X = months_with_gaps()
    return lambda: ss.sarimax(y, order=(1, 1, 1), seasonal_order=(0, 1, 1, 12), exog=X).fit()


def random_trend(ss, np):
    y = np.log(column("airline"))
    return lambda: ss.fit(ss.level(var=0) + ss.trend() + ss.ar(1) + ss.noise(var=0), y)


def daily_data():
    """Ten years of days with a week, a year of two waves, a wandering level, and noise."""
    g, t = np.random.default_rng(0), np.arange(3652)
    week = np.resize([0.0, 0.3, 0.5, 0.2, 0.0, -0.5, -0.5], t.size)
    year = np.cos(2 * np.pi * t / 365.25) + 0.3 * np.sin(4 * np.pi * t / 365.25)
    return week + year + 0.05 * g.normal(size=t.size).cumsum() + 0.3 * g.normal(size=t.size)


def daily(ss, np):
    model = ss.level() + ss.seasonal(7) + ss.seasonal(365.25, harmonics=3, name="year")
    y = daily_data()
    return lambda: ss.fit(model, y)


def output_of_the_united_states():
    """203 quarters."""
    import statsmodels.api as sm

    return np.log(np.asarray(sm.datasets.macrodata.load_pandas().data["realgdp"], float))


def output(ss, np):
    y = output_of_the_united_states()
    return lambda: ss.fit(ss.level(var=0) + ss.trend() + ss.ar(1) + ss.noise(var=0), y)


def many_of(ss, name):
    """The call that fits many series: k, and the call."""
    if name == "many":
        Y = walks(1000)
        build = lambda p: ss.local_level(p["noise"], p["level"])
        return 1000, lambda: ss.fit_many(build, Y, {"noise": 1.0, "level": 1.0}, ss.positive())
    if name == "many_levels":
        Y = walks(1000)
        return 1000, lambda: ss.fit_many(ss.level(), Y)
    if name == "many_by_name":
        Y = walks(1000)
        return 1000, lambda: ss.fit_many(lambda y: ss.unobserved_components(y, "llevel"), Y)
    Y = airlines(1000)
    if name == "many_structural":
        return 1000, lambda: ss.fit_many(ss.level() + ss.trend() + ss.seasonal(12), Y)
    seasonal = (0, 1, 1, 12)
    return 1000, lambda: ss.fit_many(lambda y: ss.sarimax(y, order=(0, 1, 1), seasonal_order=seasonal), Y)


def airlines(k):
    g = np.random.default_rng(1)
    return np.log(column("airline")) + 0.03 * g.normal(size=(k, 144))


def ours(name):
    import tapegrad.statespace as ss

    if name.startswith("many"):
        _, call = many_of(ss, name)
        begin = time.process_time()
        r = call()
        return {
            "seconds": time.process_time() - begin,
            "loglik": float(r.loglik.sum()),
            "short": float((~r.converged).sum()),
        }
    fit = MODELS[name](ss, np)
    begin = time.process_time()
    r = fit()
    seconds = time.process_time() - begin
    short = float(0.5 * r.stop.gradient @ np.linalg.lstsq(r.stop.hessian, r.stop.gradient)[0])
    return {"seconds": seconds, "loglik": r.loglik, "short": abs(short)}


# --- statsmodels ---


def theirs(name):
    import warnings

    import statsmodels.api as sm
    from statsmodels.tsa.arima.model import ARIMA

    warnings.simplefilter("ignore")
    if name.startswith("many"):
        model = {
            "many_structural": lambda y: sm.tsa.UnobservedComponents(y, "lltrend", seasonal=12),
            "many_airline": lambda y: sm.tsa.SARIMAX(y, order=(0, 1, 1), seasonal_order=(0, 1, 1, 12)),
        }.get(name, lambda y: sm.tsa.UnobservedComponents(y, "llevel"))
        Y, count = (airlines(5), 1000) if name in ("many_structural", "many_airline") else (walks(20), 1000)
        begin = time.process_time()
        found = [model(y).fit(disp=0) for y in Y]
        errors = [r.bse for r in found]
        seconds = (time.process_time() - begin) * count / len(Y)
        return {
            "seconds": seconds,
            "loglik": float(sum(r.llf for r in found)),
            "short": float(not np.isfinite(errors).all()),
        }

    def fit(**options):
        if name == "structural":
            return sm.tsa.UnobservedComponents(np.log(column("airline")), "lltrend", seasonal=12).fit(
                disp=0, **options
            )
        if name == "arma":
            return ARIMA(column("sunspots"), order=(2, 0, 1)).fit(
                **({"method_kwargs": options} if options else {})
            )
        if name == "gaps":
            y, X = months_with_gaps()
            return sm.tsa.SARIMAX(y, X, order=(1, 1, 1), seasonal_order=(0, 1, 1, 12)).fit(disp=0, **options)
        if name == "daily":
            waves = [{"period": 365.25, "harmonics": 3}]
            model = sm.tsa.UnobservedComponents(daily_data(), "llevel", seasonal=7, freq_seasonal=waves)
            return model.fit(disp=0, **options)
        if name == "output":
            return sm.tsa.UnobservedComponents(output_of_the_united_states(), "rtrend", autoregressive=1).fit(
                disp=0, **options
            )
        if name == "random_trend":
            return sm.tsa.UnobservedComponents(np.log(column("airline")), "rtrend", autoregressive=1).fit(
                disp=0, **options
            )
        return sm.tsa.SARIMAX(np.log(column("airline")), order=(0, 1, 1), seasonal_order=(0, 1, 1, 12)).fit(
            disp=0, **options
        )

    begin = time.process_time()
    r = fit()
    errors = r.bse
    seconds = time.process_time() - begin
    assert len(errors)
    best = r.llf
    for method in () if name in ("arma", "daily") else ("nm", "bfgs", "powell"):  # a longer search from there
        with np.errstate(all="ignore"):
            best = max(best, r.model.fit(r.params, disp=0, method=method, maxiter=5000).llf)
    return {"seconds": seconds, "loglik": r.llf, "short": best - r.llf}


MODELS = {
    "structural": structural,
    "arma": arma,
    "airline": airline,
    "gaps": gaps,
    "random_trend": random_trend,
    "output": output,
    "daily": daily,
}


def alone(system, name, cache):
    """What a fresh process says of one fit."""
    done = subprocess.run(
        [sys.executable, __file__, "--alone", system, name],
        capture_output=True,
        text=True,
        env={**os.environ, "TAPEGRAD_CACHE": cache},
    )
    if done.returncode:
        if "No module named 'statsmodels'" in done.stderr:
            return None
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def one_model(report):
    rounds = 2 if report.quick else 7
    report.table(
        "G1s, one fit with standard errors: milliseconds of processor time",
        [
            "model",
            "tapegrad, first process",
            "tapegrad, kernel on disk",
            "statsmodels",
            "tapegrad short of the maximum",
            "statsmodels short of it",
        ],
    )
    goals = []
    titles = {
        "structural": "structural, 144 months",
        "arma": "ARMA(2,1), 300 years",
        "airline": "airline, (0,1,1)(0,1,1)12",
    }
    titles |= {
        "gaps": "airline, (1,1,1)(0,1,1)12, gaps, two regressors",
        "random_trend": "airline, random trend and AR(1)",
        "output": "203 quarters, random trend and AR(1)",
        "daily": "3,652 days, level, week, year of 3 waves",
    }
    for name, title in titles.items():
        with tempfile.TemporaryDirectory() as cache:
            first = alone("ours", name, cache)
            found = [(alone("ours", name, cache), alone("theirs", name, cache)) for _ in range(rounds)]
        warm = bench.Seconds.of([a["seconds"] for a, _ in found])
        if found[0][1] is None:
            other, short = bench.NOT_INSTALLED, bench.NOT_INSTALLED
        else:
            other = bench.Seconds.of([b["seconds"] for _, b in found])
            # one likelihood for both
            short = max(a["loglik"] - b["loglik"] if name == "arma" else b["short"] for a, b in found)
        report.row(
            title,
            first["seconds"] * 1e3,
            warm * 1e3,
            bench.times(other, 1e3),
            max(a["short"] for a, _ in found),
            short,
        )
        goals.append((f"{title}: tapegrad / statsmodels", bench.ratio(warm, other), 1 / 3))
        goals.append(
            (
                f"{title}: seconds more without a kernel on disk",
                first["seconds"] - statistics.median(warm.rounds),
                1.0,
            )
        )
        goals.append((f"{title}: tapegrad short of the maximum", max(a["short"] for a, _ in found), 1e-6))
    report.say()
    for goal in goals:
        report.goal(*goal)


def many_series(report):
    """Many series at once; statsmodels' time is that of 20 local levels, or of 5 of the others."""
    report.table(
        "many series: seconds of processor time",
        [
            "series and model",
            "tapegrad, first process",
            "tapegrad, kernel on disk",
            "a loop over statsmodels",
            "series not converged",
        ],
    )
    titles = {
        "many": ("1,000 local levels of 100 points, by a function", 100),
        "many_levels": ("the same, ss.level()", 100),
        "many_by_name": ("the same, ss.unobserved_components", 100),
        "many_structural": ("1,000 of level, trend and season, 144 months", 40),
        "many_airline": ("1,000 airline models, 144 months", 40),
    }
    goals, loop = [], {}
    for name, (title, wanted) in titles.items():
        peer = "many" if wanted == 100 else name
        with tempfile.TemporaryDirectory() as cache:
            first = alone("ours", name, cache)
            found = [alone("ours", name, cache) for _ in range(1 if report.quick else 3)]
        if peer not in loop:
            loop[peer] = alone("theirs", peer, "")
        warm = bench.Seconds.of([a["seconds"] for a in found])
        other = bench.NOT_INSTALLED if loop[peer] is None else bench.Seconds.of([loop[peer]["seconds"]])
        report.row(title, first["seconds"], warm, other, first["short"])
        goals.append(
            (f"{title}: time by that of a loop over statsmodels", bench.ratio(warm, other), 1 / wanted)
        )
    report.say()
    for goal in goals:
        report.goal(*goal)


def one_call(report):
    """A call of `ss.loglik`, `filter`, `smooth`, as a compiled filter and on arrays."""
    import tapegrad as tg
    from tapegrad import statespace as ss
    from tapegrad.statespace.filters import compiled

    report.table(
        "one call, kernel on disk: milliseconds of processor time",
        ["model", "call", "tapegrad", "the same on arrays", "statsmodels"],
    )
    T, z, R = seasonal_matrices()
    months, years = np.log(column("airline")), column("sunspots")
    first = lambda v: ss.LinearGaussian(T, z, v[:3], v[3], selection=R)
    second = lambda v: ss.arma(v[:2], v[2:3], v[3], v[4])
    cases = [
        ("structural, 144 months", first, months, np.array([1e-3, 1e-5, 1e-5, 1e-3])),
        ("ARMA(2,1), 300 years", second, years, np.array([1.4, -0.7, -0.15, 270.0, 49.0])),
    ]
    for title, build, y, v in cases:
        data = ss.Observations(y)
        calls = {
            "value": lambda: ss.loglik(build(v), data),
            "value and gradient": lambda: tg.value_and_grad(lambda v: ss.loglik(build(v), data))(v),
            "filter": lambda: ss.filter(build(v), data).filtered_mean,
            "smooth": lambda: ss.smooth(build(v), data).mean,
        }
        peers = models_of_statsmodels(y, v)
        for name, call in calls.items():
            jobs = {"tapegrad": at(call, compiled, 0), "arrays": at(call, compiled, 10**9)}
            jobs["statsmodels"] = peers.get(name, bench.NOT_INSTALLED)
            # statsmodels' filtered states have the finite part alone while something is infinite
            found = bench.measure(jobs, 0.5, rtol=1e-8, compare=name != "filter")
            report.row(title, name, *[bench.times(x, 1e3) for x in found.values()])
    report.say()


def at(call, module, steps):
    """The call with the compiled filter from the first step on, or never."""

    def job():
        before = module.FEW, module.SHORT, module.FILTERED
        module.FEW = module.SHORT = steps
        module.FILTERED = 0
        try:
            return call()
        finally:
            module.FEW, module.SHORT, module.FILTERED = before

    return job


def models_of_statsmodels(y, v):
    """Calls of the same names; statsmodels has its score by complex steps."""
    try:
        import statsmodels.api as sm
        from statsmodels.tsa.arima.model import ARIMA
    except ImportError:
        return {}
    if len(v) == 4:
        model, order = (
            sm.tsa.UnobservedComponents(y, "lltrend", seasonal=12, use_exact_diffuse=True),
            [3, 0, 1, 2],
        )
    else:
        model, order = ARIMA(y, order=(2, 0, 1)), [4, 0, 1, 2, 3]
    params, back = v[order], np.argsort(order)
    return {
        "value": lambda: model.loglike(params),
        "value and gradient": lambda: (model.loglike(params), model.score(params)[back]),
        "filter": lambda: model.filter(params).filtered_state.T,
        "smooth": lambda: model.smooth(params).smoothed_state.T,
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["--alone"]:
        print(json.dumps({"ours": ours, "theirs": theirs}[sys.argv[2]](sys.argv[3])))
    else:
        method = "one pinned core, one thread, float64; processor time of a fresh process for each fit, medians of interleaved rounds"
        bench.start(__doc__, method).run(one_model, many_series, one_call)
