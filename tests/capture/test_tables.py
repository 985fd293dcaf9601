"""Tables and columns of pandas in followed code: what they hold keeps its derivative, or the call raises."""

import numpy as np
import pandas as pd
import pytest
from numpy import asarray
from pandas import DataFrame, Series
from pandas.compat._optional import import_optional_dependency
from scipy import integrate, interpolate, optimize, stats

import tapegrad as tg

INDEX = pd.Index([1, 2, 4, 3])
X, V = np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.3, -0.2, 0.5, 0.1])


KNOWN = DataFrame(
    {"t": [0.5, 1.0, 2.0, 3.0], "y": [1.0, 0.3, 2.0, 0.7], "n": [1, 2, 3, 4], "g": list("abaa")},
    index=pd.date_range("2024-01-01", periods=4),
)
NUMBERS = KNOWN[["t", "y"]]
GAPPED = KNOWN["t"].where(KNOWN["n"] != 2)
TWICE = DataFrame([[1.0, 2.0], [3.0, 4.0]], columns=["a", "a"])


class Trend:
    """A model that holds its data."""

    def __init__(self, table):
        self.table, self.weights = table, np.linspace(1.0, 2.0, len(table))

    def loss(self, x):
        rest = self.table["y"] - (x[0] + x[1] * self.table["t"] + x[2] * self.table["n"] ** x[3])
        return ((rest * self.weights) ** 2).mean()


def grown(x):
    table = KNOWN.copy()
    table["z"] = x[0] * table["t"]
    table["w"] = table["z"] + table["n"]
    return (table["w"] ** 2).sum() + table.loc[table["t"] > 0.7, "z"].sum()


def in_place(x):
    s = KNOWN["t"].copy()
    s += x[0]
    s *= x[1]
    return (s**2).sum()


def written(x):
    d = DataFrame({"a": x**2, "b": x})
    d.loc[1, "a"] = x[0]
    d.iloc[0, 1] = 0.0
    d.loc[d["b"] > 2.5, "b"] = 1.0
    return (d["a"] * d["b"]).sum() + d["b"].sum()


def shared(x):
    a = x**2
    d, s = DataFrame({"a": a}), Series(a)
    a[0] = 0.0
    return d["a"].sum() + s.sum()


def part(x):
    s = Series(x**2)
    u = s.iloc[1:3].copy()
    u.iloc[0] = 5.0
    return s.sum() + u.sum()


# tables from outside of the function, as operands of tracked values
OPERANDS = {
    "model": Trend(KNOWN).loss,
    "grown": grown,
    "in place": in_place,
    "a column by a number": lambda x: ((KNOWN["y"] - KNOWN["t"] * x[0]) ** 2).sum(),
    "a number by a column": lambda x: ((KNOWN["y"] - x[0] * KNOWN["t"]) ** 2).std(),
    "an array by a column": lambda x: (x * KNOWN["t"] - KNOWN["n"] / x).sum(),
    "captured array": lambda x: (X * Series(x**2)).sum(),
    "integers, powers": lambda x: (
        (KNOWN["n"] ** x[0]).sum() + (x[1] ** KNOWN["t"]).sum() + (KNOWN["n"] % (x[2] + 0.3)).sum()
    ),
    "ufunc": lambda x: np.multiply(x, KNOWN["t"]).std() + np.exp(-x[0] * KNOWN["n"]).mean(),
    "maximum": lambda x: np.maximum(X, KNOWN["t"] * x[0]).sum(),
    "labels decide": lambda x: (KNOWN["t"].iloc[:3] * x[0] + KNOWN["y"].iloc[1:] * x[1]).sum(),
    "lag": lambda x: ((KNOWN["y"] - x[0] * KNOWN["y"].shift(1) - x[1]).dropna() ** 2).sum(),
    "missing": lambda x: (GAPPED * x[0]).sum() + (GAPPED - x[1]).mean() + np.nanmean(GAPPED * x[2]),
    "missing, running": lambda x: (GAPPED * x[0] + x[1]).cumsum().sum() * (GAPPED * x[2]).cumprod().iloc[-1],
    "missing, running, kept": lambda x: (GAPPED * x[0]).cumsum(skipna=False).iloc[0] ** 2,
    "missing, spread": lambda x: (
        (GAPPED * x[0] + x[1]).std() + (GAPPED * x[0]).sem() + (GAPPED * x[2]).median()
    ),
    "a table by a number": lambda x: (
        (NUMBERS * x[0] + x[1] * NUMBERS).sum().sum() + NUMBERS.mul(x[2]).mean().sum()
    ),
    "a table by a row": lambda x: (
        ((NUMBERS * x[:2]) ** 2).to_numpy().sum() + (x[2:] - NUMBERS).sum(axis=1).iloc[0]
    ),
    "a table by a matrix": lambda x: ((NUMBERS - np.outer(x, x[:2])) ** 2).values.sum(),
    "equal names": lambda x: ((TWICE * x[0]) ** 2).sum().sum() + (TWICE * x[:2]).iloc[0].sum(),
    "products": lambda x: ((NUMBERS @ x[:2] - KNOWN["y"]) ** 2).sum() + x @ KNOWN["t"] + KNOWN["y"].dot(x**2),
    "product from the left": lambda x: (
        (x @ NUMBERS).iloc[1] ** 2 + NUMBERS.dot(np.outer(x[:2], x)).iloc[0, 2]
    ),
    "groups": lambda x: ((x[0] * KNOWN["t"] + x[1]).groupby(KNOWN["g"]).mean() ** 2).sum(),
    "rows": lambda x: KNOWN.apply(lambda row: row["t"] * x[0] + row["n"] * x[1], axis=1).pow(2).sum(),
    "parts": lambda x: (KNOWN["t"] * x[0]).iloc[2] * (KNOWN["y"] - x[1]).loc["2024-01-03"],
    "comparison": lambda x: ((KNOWN["t"] * x[0] > KNOWN["y"] + 0.1) * KNOWN["t"]).sum() * x[1],
    "laws": lambda x: (
        stats.norm.logpdf(KNOWN["y"], x[0] * KNOWN["t"], x[1]).sum()
        + stats.gamma.cdf(1.0 + x[0] * KNOWN["t"], 1.5).sum()
        + stats.multivariate_normal.logpdf(X, x[0] * KNOWN["t"], np.eye(4))
    ),
    "interpolation": lambda x: interpolate.PchipInterpolator(KNOWN["t"], x[0] * KNOWN["y"])(1.3) * x[1],
    "fits": lambda x: (
        np.polyfit(KNOWN["t"], KNOWN["y"] + x[0] * KNOWN["n"], 1).sum()
        + np.linalg.lstsq(NUMBERS, KNOWN["y"] * x[1], rcond=None)[0].sum()
    ),
    "values are an array": lambda x: stats.entropy((KNOWN["t"] * x[0] + x[1]).values),
    "methods of values": lambda x: (KNOWN["t"] * x[0]).values.sum() + (KNOWN["t"] * x[1]).values.dot(X),
    # functions of the user's that return columns
    "checkpoint": lambda x: (tg.checkpoint(lambda q: q[0] * KNOWN["t"])(x) ** 2).sum(),
    "rule": lambda x: tg.rule(lambda q: q[0] ** 2 * KNOWN["t"], jvp="differences")(x).sum(),
    "root": lambda x: optimize.root(lambda u: u**3 + u - x[0] * KNOWN["t"], np.ones(4)).x.sum(),
    "residuals": lambda x: optimize.least_squares(
        lambda u: u[0] * KNOWN["n"] + u[1] - KNOWN["y"] * x[0], [1.0, 1.0]
    ).x.sum(),
    "slopes": lambda x: integrate.solve_ivp(
        lambda t, u: -x[0] * KNOWN["t"] * u, (0.0, 0.3), np.ones(4), t_eval=[0.3], rtol=1e-9, atol=1e-9
    ).y.sum(),
}
HAS_BRANCHES = ("comparison",)  # which vmap refuses
SOLVERS = ("slopes", "root", "residuals")  # which have tests of their own

RIGHT = OPERANDS | {
    "written": written,
    "shared": shared,
    "part": part,
    "by the module": lambda x: pd.DataFrame({"a": x**2})["a"].sum() * isinstance(pd.Series(x), pd.Series),
    "series": lambda x: np.sum(Series(x).to_numpy() ** 2),
    "df": lambda x: np.sum(DataFrame({"a": x, "b": 2 * x}).to_numpy() ** 2),
    "df2": lambda x: np.sum(DataFrame(x.reshape(2, 2)).values ** 2),
    "s.mean": lambda x: Series(x**2).mean() + Series(x).std() + Series(x**2).median(),
    "dfsum": lambda x: DataFrame({"a": x, "b": 2 * x * x}).sum(axis=1, numeric_only=True).sum(),
    "dfsum0": lambda x: DataFrame({"a": x, "b": 2 * x * x}).sum().sum(),
    "dfmean": lambda x: DataFrame({"a": x, "b": 2 * x * x, "c": list("abcd")}).mean(numeric_only=True)["b"],
    "list": lambda x: Series(list(x**2)).sum(),
    "list2": lambda x: DataFrame({"a": [x[0] ** 2, x[1]]}).sum(numeric_only=True).sum(),
    "arith": lambda x: ((Series(x) * 2 + Series(x) ** 2) / 3 - 1).sum(),
    "dfarith": lambda x: (DataFrame({"a": x, "b": x * x}) * DataFrame({"a": x, "b": x})).sum().sum(),
    "col": lambda x: (lambda d: (d["a"] * d["b"]).sum())(DataFrame({"a": x, "b": x * x})),
    "iloc": lambda x: Series(x**2).iloc[1] + Series(x**2, index=list("abcd"))["c"],
    "loc": lambda x: DataFrame({"a": x**2}).loc[1:2, "a"].sum(),
    "np.exp": lambda x: np.exp(Series(x)).sum(),
    "index and a number": lambda x: (
        np.sum(np.cos(pd.Index([1.0, 2.0, 4.0, 0.5]) * 15 + x[0]).to_numpy() * X) * x[1]
    ),
    "by an index": lambda x: np.sum(np.asarray(x * INDEX + (INDEX * x > 2.6)) ** 2),
    "a column of an index": lambda x: (
        DataFrame({"a": pd.Index([1.0, 2.0]) * x[0]}, index=[3, 4])["a"].pow(3).sum()
    ),
    "row by row": lambda x: (lambda d: (d.div(d.loc[0, :], axis="columns") ** 2).to_numpy().sum())(
        pd.concat(
            [DataFrame({"a": [1.5], "b": [2.0]}), DataFrame({"a": [x[0]], "b": [1.1]})], ignore_index=True
        )
    ),
    "describe": lambda x: np.sum(Series(x**2).describe().to_numpy()[1:] * np.arange(7.0)),
    "describe a table": lambda x: np.sum(
        DataFrame({"a": x, "b": x**2}).describe().to_numpy()[2] * [1.0, 2.0]
    ),
    "corr": lambda x: np.sum(DataFrame({"a": x, "b": x**3 + X}).corr().to_numpy() * [[1, 2], [3, 4]]),
    "cov": lambda x: np.sum(DataFrame({"a": x, "b": x**3 + X}).cov().loc["a", "b"]),
    "mask": lambda x: (lambda s: s[s > 2].sum())(Series(x**2)),
    "align": lambda x: (Series(x, index=[0, 1, 2, 3]) * Series(x, index=[3, 2, 1, 0])).sum(),
    "align2": lambda x: (Series(x**2, index=[0, 1, 2, 3]) * Series(x, index=[1, 2, 3, 4])).sum(),
    "shift": lambda x: (Series(x**2) - Series(x**2).shift(1)).sum(),
    "diff": lambda x: (Series(x**2).diff() ** 2).sum(),
    "pct": lambda x: Series(x**2).pct_change().sum(),
    "cumsum": lambda x: (Series(x**2).cumsum() ** 2).sum(),
    "concat": lambda x: pd.concat([Series(x**2), Series(x)]).sum(),
    "concat plain": lambda x: pd.concat([Series(x**2), Series([1.0, 2.0])]).sum(),
    "groupby": lambda x: (lambda d: d.groupby("g")["a"].mean()["u"])(
        DataFrame({"a": x**2, "g": list("uuvv")})
    ),
    "groupbysum": lambda x: (lambda d: d.groupby("g")["a"].sum()["u"])(
        DataFrame({"a": x**2, "g": list("uuvv")})
    ),
    "sort": lambda x: (Series(x**2).sort_values(ascending=False).to_numpy() * np.arange(4.0)).sum(),
    "fillna": lambda x: (Series(x**2).shift(1).fillna(0.0)).sum(),
    "dropna": lambda x: (Series(x**2).shift(1).dropna()).sum(),
    "astype": lambda x: Series(x**2).astype(float).sum(),
    "dfdot": lambda x: np.sum(DataFrame({"a": x, "b": x * x}).dot(np.array([1.0, 2.0])).to_numpy()),
    "df@": lambda x: np.sum(np.asarray(DataFrame({"a": x, "b": x * x})).T @ x),
    "mul plain": lambda x: (Series([1.0, 2.0, 3.0, 4.0]) * Series(x)).sum(),
    "apply": lambda x: Series(x).apply(lambda v: v**2).sum(),
    "select": lambda x: DataFrame({"a": x**2}).select_dtypes(include=np.number).sum().sum(),
    "quantile": lambda x: Series(x**2).quantile(0.3),
    "clip": lambda x: Series(x**2).clip(lower=2.0).sum(),
    "where": lambda x: Series(x**2).where(Series(x) > 2.5, 0.0).sum(),
    "merge": lambda x: (lambda m: (m["a"] * m["b"]).sum())(
        DataFrame({"k": [0, 1, 2, 3], "a": x**2}).merge(DataFrame({"k": [3, 2, 1, 0], "b": x}), on="k")
    ),
    "T": lambda x: (DataFrame({"a": x, "b": x * x}).T.sum() ** 2).sum(),
    "isinstance": lambda x: isinstance(Series(x), Series) * Series(x).sum(),
    "resample": lambda x: (
        Series(x**2, index=pd.date_range("2020-01-01", periods=4, freq="D")).resample("2D").mean().iloc[0]
    ),
    "max": lambda x: Series(x**2).max() * Series(x).idxmax(),
    "mean1": lambda x: DataFrame({"a": x, "b": x * x}).mean(axis=1).iloc[2],
    "std": lambda x: DataFrame({"a": x, "b": x * x}).std()["b"],
    "setcol": lambda x: (lambda d: (d.__setitem__("b", d["a"] * 2), d["b"].sum())[1])(DataFrame({"a": x**2})),
    "setvar": lambda x: (lambda d: (d.__setitem__("b", x), d.sum(numeric_only=True).sum())[1])(
        DataFrame({"a": x**2})
    ),
    "names": lambda x: DataFrame({"a": x**2})["a"].sum() + Series(x).sum(),
    "2d list": lambda x: DataFrame([[x[0], x[1]], [x[2], x[3]]], columns=["u", "v"])["v"].sum(),
    "records": lambda x: DataFrame([{"a": x[0] ** 2, "b": 1.0}, {"a": x[1], "b": 2.0}])["a"].sum(),
    "recordsnum": lambda x: (
        DataFrame([{"a": x[0] ** 2, "b": 1.0}, {"a": x[1], "b": 2.0}]).sum(numeric_only=True).sum()
    ),
    "from_dict": lambda x: (
        DataFrame.from_dict({"a": [x[0] ** 2, x[1]], "b": [1.0, 2.0]}).sum(numeric_only=True).sum()
    ),
    "from_records": lambda x: (
        DataFrame.from_records([(x[0] ** 2, 1.0), (x[1], 2.0)], columns=list("ab"))
        .sum(numeric_only=True)
        .sum()
    ),
    "dict scalar": lambda x: Series({"a": x[0] ** 2, "b": x[1]}).sum(),
    "dict scal mix": lambda x: DataFrame({"a": x**2, "c": x[0] * x[1]}).sum(numeric_only=True).sum(),
    "index": lambda x: DataFrame({"a": x**2}, index=list("abcd")).loc["b", "a"],
    "nested series": lambda x: (
        DataFrame({"a": Series(x**2, index=list("abcd")), "b": Series([1.0, 2.0], index=list("ab"))})
        .sum()
        .sum()
    ),
    "prod": lambda x: Series(x).prod() * Series(x).sem(),
    "var nan": lambda x: (
        Series(np.concatenate([x, [np.nan]])).var(ddof=0) + Series(np.concatenate([x, [np.nan]])).mean()
    ),
    "sumnan": lambda x: Series(np.concatenate([x, [np.nan]])).sum(min_count=1),
    "empty": lambda x: Series(x[:0]).sum() + x.sum(),
    "mincount": lambda x: np.nan_to_num(Series(x).sum(min_count=9)) + x.sum(),
    "one col": lambda x: DataFrame({"a": x**2}).to_numpy().sum() + DataFrame({"a": x**2}).values.sum(),
    "asarray": lambda x: (asarray(DataFrame({"a": x**2})) * np.arange(4.0)[:, None]).sum(),
    "asarray s": lambda x: (asarray(Series(x**2)) * np.arange(4.0)).sum(),
    "np.sum df": lambda x: np.sum(DataFrame({"a": x**2}).to_numpy() * x[:, None]),
    "column_stack": lambda x: (np.column_stack([Series(x**2), x]) ** 2).sum(),
    "np.mean": lambda x: np.mean(Series(x**2)),
    "np.dot": lambda x: np.dot(Series(x**2), Series(x)),
    "np.log df": lambda x: np.log(DataFrame({"a": x**2, "b": x})).sum().sum(),
    "series*var": lambda x: (Series(x**2) * x).sum(),
    "float": lambda x: float(Series(x**2).iloc[1]) * 2,
    "items": lambda x: sum(v for k, v in Series(x**2).items()),
    "iterrows": lambda x: sum(r["a"] for k, r in DataFrame({"a": x**2}).iterrows()),
    "itertuples": lambda x: sum(r.a for r in DataFrame({"a": x**2}).itertuples()),
    "agg": lambda x: DataFrame({"a": x**2, "g": list("uuvv")}).groupby("g").agg({"a": "sum"})["a"].iloc[1],
    "gmax": lambda x: DataFrame({"a": x**2, "g": list("uuvv")}).groupby("g")["a"].max().sum(),
    "gfirst": lambda x: DataFrame({"a": x**2, "g": list("uuvv")}).groupby("g")["a"].first().sum(),
    "gtransform": lambda x: (
        DataFrame({"a": x**2, "g": list("uuvv")}).groupby("g")["a"].transform("mean") * x
    ).sum(),
    "gapply": lambda x: (
        DataFrame({"a": x**2, "g": list("uuvv")}).groupby("g")["a"].apply(lambda s: s.sum()).sum()
    ),
    "pivot": lambda x: (
        DataFrame({"a": x**2, "g": list("uuvv"), "h": list("stst")})
        .pivot(index="g", columns="h", values="a")
        .sum()
        .sum()
    ),
    "melt": lambda x: DataFrame({"a": x**2, "b": x}).melt()["value"].sum(),
    "stack": lambda x: DataFrame({"a": x**2, "b": x}).stack().sum(),
    "ffill": lambda x: Series(x**2).shift(-1).ffill().sum(),
    "between": lambda x: Series(x**2)[Series(x).between(1.5, 3.5)].sum(),
    "get_dummies": lambda x: pd.get_dummies(DataFrame({"a": x**2, "g": list("uuvv")}))["a"].sum(),
    "reindex": lambda x: Series(x**2, index=[0, 1, 2, 3]).reindex([3, 1, 7]).fillna(0).sum(),
    "add fill": lambda x: (
        Series(x**2, index=[0, 1, 2, 3]).add(Series(x, index=[2, 3, 4, 5]), fill_value=0).sum()
    ),
    "dfadd fill": lambda x: (
        DataFrame({"a": x**2})
        .add(
            DataFrame(
                {
                    "a": x[:2],
                }
            ),
            fill_value=0,
        )
        .sum()
        .sum()
    ),
    "concat ax1": lambda x: pd.concat([Series(x**2), Series(x)], axis=1).sum(axis=1).iloc[2],
    "join": lambda x: DataFrame({"a": x**2}).join(DataFrame({"b": x})).prod(axis=1).sum(),
    "abs,neg": lambda x: (-Series(x)).abs().sum() + Series(x).pow(2).sum() + (2 ** Series(x)).sum(),
    "dfmed": lambda x: DataFrame({"a": x**2, "b": x}).median(axis=1).sum(),
    "dfmaxax": lambda x: DataFrame({"a": x**2, "b": x}).max(axis=1).sum(),
    "dfidx": lambda x: DataFrame({"a": x**2, "b": x}).iloc[:, [1, 0]].iloc[1:3].sum().sum(),
    "dfcumprod": lambda x: DataFrame({"a": x**2, "b": x}).cumprod().sum().sum(),
    "copy": lambda x: (lambda d: (d.copy(), d.sum().sum())[1])(DataFrame({"a": x**2, "b": x})),
    "describe's mean": lambda x: Series(x**2).describe()["mean"],
    "one corr": lambda x: DataFrame({"a": x**2, "b": x}).corr().iloc[0, 1],
    "one cov": lambda x: DataFrame({"a": x**2, "b": x}).cov().iloc[0, 1],
    "an index by an array": lambda x: (pd.Index([1.0, 2.0, 3.0, 4.0]) * x).to_numpy().sum(),
}
REFUSED = {
    "gstd": lambda x: DataFrame({"a": x**2, "g": list("uuvv")}).groupby("g")["a"].std().iloc[1],
    "dtypeint": lambda x: Series(x**2, dtype=int).sum() * x.sum(),
    "astype f32": lambda x: float(Series(x**2).astype("float32").sum()),
}


@pytest.mark.parametrize("f", RIGHT.values(), ids=RIGHT)
def test_tables(f):
    value, gradient = tg.value_and_grad(f)(X)
    assert float(value) == pytest.approx(f(X), rel=1e-12)
    slope = (f(X + 1e-6 * V) - f(X - 1e-6 * V)) / 2e-6
    assert gradient @ V == pytest.approx(slope, rel=1e-6, abs=1e-6)
    assert float(tg.jvp(f, (X,), (V,))[1]) == pytest.approx(slope, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("name", [n for n in OPERANDS if n not in SOLVERS])
def test_operands_in_recordings_and_samples(name):
    f = OPERANDS[name]
    prepared = tg.prepare(f, X)
    for scale in (1.0, 1.1, 0.9):
        np.testing.assert_allclose(
            prepared.value_and_grad(X * scale)[1], tg.grad(f)(X * scale), rtol=1e-9, atol=1e-12
        )
    if name not in HAS_BRANCHES:
        found = tg.vmap(f)(np.stack([X, 1.1 * X]))
        np.testing.assert_allclose(found, [f(X), f(1.1 * X)], rtol=1e-9)


def test_a_column_that_is_not_copied_shares_the_memory_of_a_captured_array():
    held = np.array([1.0, 2.0, 3.0])

    def f(x):
        s, table = Series(held, copy=False), DataFrame(held.reshape(3, 1), copy=False)
        before = s * x[0]
        held[0] = 50.0
        after, rows = s * x[1], (table * x[2]).sum()[0]
        held[0] = 1.0
        return (before**2).sum() + (after**2).sum() + rows

    assert tg.grad(f)(X) @ V == pytest.approx((f(X + 1e-4 * V) - f(X - 1e-4 * V)) / 2e-4, rel=1e-9)


def test_a_function_that_returns_a_column_returns_its_numbers():
    f = lambda x: x[0] * KNOWN["t"]
    value, tangent = tg.jvp(f, (X,), (V,))
    np.testing.assert_array_equal(value, KNOWN["t"])
    np.testing.assert_array_equal(tangent, V[0] * KNOWN["t"])
    np.testing.assert_array_equal(tg.jacobian(f)(X)[:, 0], KNOWN["t"])
    np.testing.assert_array_equal(tg.vmap(f)(np.stack([X, X]))[1], KNOWN["t"])
    assert tg.jacobian(lambda x: x[0] * NUMBERS)(X).shape == (4, 2, 4)


GAP = np.arange(9) == 3
DAYS = pd.date_range("2024-01-01", periods=9)
WINDOWED = {
    **{
        f"rolling {n}": lambda s, n=n: getattr(s.rolling(4), n)()
        for n in "sum mean median max sem count".split()
    },
    **{f"few {n}": lambda s, n=n: getattr(s.rolling(4, min_periods=2), n)() for n in "sum var kurt".split()},
    **{f"expanding {n}": lambda s, n=n: getattr(s.expanding(2), n)() for n in "std skew min".split()},
    "center": lambda s: s.rolling(3, center=True).mean(),
    "days": lambda s: s.rolling("3D").mean(),
    "quantile": lambda s: s.rolling(4, min_periods=1).quantile(0.3),
    "apply raw": lambda s: s.rolling(3, min_periods=2).apply(lambda w: np.nansum(w**2), raw=True),
    "apply": lambda s: s.rolling(3, min_periods=2).apply(lambda w: (w**2).mean()),
    "ewm": lambda s: s.ewm(span=4).mean(),
    "ewm recursive": lambda s: s.ewm(alpha=0.3, adjust=False, ignore_na=True, min_periods=3).mean(),
    "ewm times": lambda s: s.ewm(halflife="2D", times=DAYS).mean(),
    "ewm sum": lambda s: s.ewm(alpha=0.3).sum(),
    "ewm std": lambda s: s.ewm(alpha=0.3, ignore_na=True).std(),
    "ewm cov": lambda s: s.ewm(alpha=0.3, adjust=False).cov(s**2),
    "corr": lambda s: s.rolling(4, min_periods=3).corr(s**2),
    "cov": lambda s: s.rolling(4, min_periods=3).cov(Series(np.arange(9.0), DAYS)),
    "table": lambda s: DataFrame({"a": s, "b": s**2}).rolling(3, min_periods=1).mean().sum(axis=1),
    "groups": lambda s: DataFrame({"g": list("aabbababa"), "v": s}).groupby("g")["v"].rolling(2).mean(),
}

if import_optional_dependency("scipy", errors="ignore"):  # of a version that this pandas takes
    WINDOWED["weighted"] = lambda s: s.rolling(4, win_type="gaussian", min_periods=2).mean(std=2)


@pytest.mark.parametrize("f", WINDOWED.values(), ids=WINDOWED)
def test_moving_windows(f):
    x, v = np.array([0.3, 1.1, 2.0, 0.7, -1.0, 1.3, 0.4, 2.2, -0.3]), np.cos(np.arange(9.0))

    def g(x, missing=GAP):
        y = f(Series(np.where(missing, np.nan, x), DAYS)).to_numpy()
        return np.sum(np.where(np.isnan(y), 0.0, y) * np.sin(1.0 + np.arange(len(y))))

    for missing in (GAP, ~GAP & False):
        slope = (g(x + 1e-5 * v, missing) - g(x - 1e-5 * v, missing)) / 2e-5
        value, gradient = tg.value_and_grad(g)(x, missing)
        assert float(value) == pytest.approx(g(x, missing), rel=1e-10)
        assert gradient @ v == pytest.approx(slope, rel=1e-7, abs=1e-8)
        assert float(tg.jvp(lambda x: g(x, missing), (x,), (v,))[1]) == pytest.approx(gradient @ v, rel=1e-9)


@pytest.mark.parametrize("f", REFUSED.values(), ids=REFUSED)
def test_what_pandas_computes_in_c_is_refused(f):
    with pytest.raises((TypeError, ValueError, NotImplementedError, AttributeError)):
        tg.grad(lambda x: f(x) if np.ndim(y := f(x)) == 0 else np.sum(np.asarray(y)))(X)


class Frame(pd.DataFrame):
    """A user's class."""


def test_subclasses_stay():
    f = lambda x: Frame({"a": [1.0, 2.0]})["a"].sum() * np.sum(x) + isinstance(Frame(), pd.DataFrame)
    np.testing.assert_array_equal(tg.grad(f)(X), np.full(4, 3.0))


def table():
    return DataFrame({"a": [1.0, 2.0, 4.0, 3.0]})


def inserted(x):
    t = table()
    t.insert(0, "b", list(x))
    return t


def put(value):
    def f(x):
        t = table()
        t["b"] = value(t, x)
        return t

    return f


OUTSIDE = table()


def parts_of_a_column(x):
    t = DataFrame({"a": [1.0, 2.0, 4.0, 3.0], "b": [1.0, 2.0, 3.0, 4.0]})
    t.loc[0, "a"] = x[0] ** 2
    t.loc[t["b"] > 2.5, "b"] = x[:2]
    t.iloc[1:3, 0] = x[2:] * t["b"][1:3].to_numpy()
    t.iloc[3, 0] += x[1]
    return t


def elements_of_a_table(x):
    t = DataFrame(np.ones((4, 2)), columns=list("ab"))
    t.loc[:, "a"] = x**2
    t.at[2, "b"] = x[1] * x[0]
    t.iat[0, 1] = x[2] ** 3
    t.loc[1] = x[:2] * x[2]
    return t


def parts_of_a_series(x):
    s = Series(np.nan, index=range(4), dtype=float)
    s.loc[[0, 2]] = x[:2] * x[1]
    s.iloc[1] = x[0] ** 2
    s[s.isna()] = x[3]
    return DataFrame({"s": s})


GAPS = pd.DataFrame({"a": [1.0, np.nan, 0.5, 2.0], "b": [1.0, 3.0, np.nan, 2.0]})
PUT = {
    "parts of a column": parts_of_a_column,
    "elements of a table": elements_of_a_table,
    "parts of a series": parts_of_a_series,
    "where, mask": lambda x: GAPS.where(GAPS > 0.7, x[0] ** 2).mask(GAPS > 1.5, x[1] * x[0]),
    "fillna": lambda x: GAPS.fillna(x[0] ** 2) * GAPS.fillna({"a": x[1], "b": x[2]}),
    "clip": lambda x: (
        GAPS.clip(lower=x[1] ** 2 + 0.01, upper=1.9 * x[3]) * GAPS["a"].clip(upper=x[0] ** 2 + 0.02).sum()
    ),
    "clip by a series": lambda x: DataFrame({"a": GAPS["b"].clip(lower=Series(x**2 + 0.01))}),
    "fill_value": lambda x: DataFrame({"a": GAPS["a"].add(Series(x**2), fill_value=0.5)}),
    "combine_first": lambda x: DataFrame({"a": GAPS["a"].combine_first(Series(x**2))}),
    "interpolate": lambda x: DataFrame({"a": (GAPS["a"] * x[0] ** 2).interpolate(), "b": x}),
    "skew": lambda x: DataFrame({"a": [Series(x**2).skew(), Series(x**2).kurt()]}),
    "list": put(lambda t, x: [v**2 for v in x]),
    "tuple": put(lambda t, x: tuple(x[:3]) + (5.0,)),
    "array": put(lambda t, x: x**2),
    "number": put(lambda t, x: x[1] ** 2),
    "dict": put(lambda t, x: {n: x[n] * x[0] for n in range(4)}),
    "map": put(lambda t, x: t["a"].map(lambda v: v * x[0])),
    "apply": put(lambda t, x: t.apply(lambda row: row["a"] * x[1], axis=1)),
    "assign": lambda x: table().assign(b=[*x], c=lambda t: t["b"] ** 2),
    "insert": inserted,
    "assign to a table of outside": lambda x: OUTSIDE.assign(b=[x[0] ** 2, x[1], 2.0, 1.0]),
    "list of dicts": lambda x: DataFrame([{"a": x[0], "b": 1.0}, {"a": x[1] ** 2, "b": 2.0}]),
}


@pytest.mark.parametrize("f", PUT.values(), ids=PUT)
def test_what_is_put_into_a_table_is_numeric(f):
    g = lambda x: f(x).mean(numeric_only=True).sum() + f(x).select_dtypes("number").iloc[1].sum()
    slope = (g(X + 1e-6 * V) - g(X - 1e-6 * V)) / 2e-6
    gradient = tg.grad(g)(X)
    assert gradient @ V == pytest.approx(slope, rel=1e-7) and slope != 0.0
    assert tg.jvp(g, (X,), (V,))[1] == pytest.approx(slope, rel=1e-7)


def test_a_table_of_outside_has_plain_numbers_afterwards():
    outer = table()

    def f(x):
        outer["b"] = [v**2 for v in x]
        return outer["b"].sum()

    np.testing.assert_allclose(tg.grad(f)(X), 2 * X)
    assert type(outer["b"].to_numpy()) is np.ndarray and type(outer["b"].iloc[0]) is np.float64
    np.testing.assert_array_equal(outer["b"], X**2)


def test_a_table_of_outside_whose_parts_are_written():
    outer = table()

    def f(x):
        outer.loc[1, "a"] = x[0] ** 2
        outer.iloc[2, 0] = x[1]
        return (outer["a"] ** 2).sum()

    for k in (1.0, 2.0):
        x = k * X
        np.testing.assert_allclose(tg.grad(f)(x), [4 * x[0] ** 3, 2 * x[1], 0.0, 0.0])
        assert type(outer["a"].to_numpy()) is np.ndarray
        np.testing.assert_array_equal(outer["a"], [1.0, x[0] ** 2, x[1], 3.0])


def test_a_column_of_integers_takes_no_float():
    def f(x):
        s = Series([1, 2, 3])
        s.iloc[0] = x[0]
        return s.sum()

    with pytest.raises(TypeError, match="Invalid value"):
        tg.grad(f)(X)
