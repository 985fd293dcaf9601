"""The table of a fit, as text and as HTML."""

from dataclasses import dataclass
from html import escape

import numpy
from scipy.special import ndtr

from .._labels import span_text


@dataclass(frozen=True)
class Tables:
    """Title, pairs of name and text for the head, the rows of parameters under `columns`, tests of residuals,
    remarks."""

    title: str
    head: list[tuple[str, str]]
    columns: list[str]
    rows: list[list[str]]
    tests: list[list[str]]
    remarks: list[str]


TESTS = ["residuals", "Ljung-Box (1)", "P", "Jarque-Bera", "P", "skew", "kurtosis", "heterosk.", "P"]


def tables(fit, alpha: float, cov: str, covariance: str, diffuse: str) -> Tables:
    criteria, data, problem = fit.criteria(diffuse), fit.data, fit.problem
    index, n = data.labels.index, data.steps
    head = [
        ("Data", ", ".join(data.labels.columns[:6]) + (", ..." if data.width > 6 else "")),
        (
            "Observations",
            f"{fit.observations}" + (f" of {n * data.width}" if fit.observations < n * data.width else ""),
        ),
        (
            "Sample",
            span_text(index) if index is not None else f"0 to {n - 1}",
        ),
        ("Log-likelihood", f"{fit.loglik:.10f}"),
        ("Model", problem.described.title if problem.described else "a function of the parameters"),
        ("AIC", f"{criteria.aic:.6f}"),
        (
            "Method",
            f"{'maximum likelihood' if problem.prior is None else 'maximum a posteriori'}, {fit.method}",
        ),
        ("AICc", f"{criteria.aicc:.6f}"),
        ("Covariance", covariance),
        ("BIC", f"{criteria.bic:.6f}"),
        ("Search", f"{fit.iterations} + {fit.newton_steps} Newton, gradient {fit.gradient:.1e}"),
        ("HQIC", f"{criteria.hqic:.6f}"),
    ]
    errors, limits = numpy.sqrt(numpy.diag(fit.cov(cov))), numpy.asarray(fit.conf_int(alpha, cov))
    with numpy.errstate(divide="ignore", invalid="ignore"):
        z = fit.estimates / errors
    rows = [
        [
            name,
            f"{x:#.10g}",
            _number(e, "#.10g"),
            _number(s, ".3f"),
            _number(2 * ndtr(-abs(s)), ".3f"),
            _number(a),
            _number(b),
        ]
        for name, x, e, s, (a, b) in zip(fit.names, fit.estimates, errors, z, limits, strict=True)
    ]
    columns = ["", "estimate", "std. error", "z", "P>|z|", f"[{alpha / 2:.4g}", f"{1 - alpha / 2:.4g}]"]
    tests = [_tests(name, found) for name, found in zip(data.labels.columns, fit.diagnostics, strict=True)]
    return Tables("State space model", head, columns, rows, tests, _remarks(fit, diffuse))


def _number(x: float, form: str = ".7g") -> str:
    return "" if numpy.isnan(x) else format(x, form)


def _tests(name: str, d) -> list[str]:
    pairs = [d.ljung_box, d.jarque_bera, d.heteroskedasticity]
    a, b, c = ([_number(x.statistic, ".4g"), _number(x.p_value, ".3f")] for x in pairs)
    return [name, *a, *b, _number(d.skewness, ".2f"), _number(d.kurtosis, ".2f"), *c]


def _remarks(fit, diffuse: str) -> list[str]:
    remarks = []
    if fit.at_bound:
        remarks.append(f"at the bound of the constraint, no standard error: {', '.join(fit.at_bound)}")
    if fit.stop.starts > 1:
        remarks.append(f"the highest of the maxima found from {fit.stop.starts} starts")
    count = fit.diffuse_states - fit.problem.used_up
    if count:
        how = "counted among the parameters in" if diffuse == "counted" else "not counted in"
        remarks.append(f"exact diffuse start: {count} element{'s' if count > 1 else ''}, {how} the criteria")
    if fit.fixed:
        remarks.append(f"not estimated: {', '.join([f'{name} = {x:.6g}' for name, x in fit.fixed.items()])}")
    if fit.problem.concentrated:
        remarks.append(f"the scale {fit.scale:.10g} is not among the estimates")
    if fit.origin:
        remarks.append(f"estimates and standard errors are those of other data, {fit.origin.nobs} steps")
    return remarks + (list(fit.problem.described.remarks) if fit.problem.described else [])


class Table(str):
    """Rows as aligned text; the first has the titles, if `head`."""

    rows: list[list[str]]
    head: bool

    def __new__(cls, rows: list[list[str]], side: str = ">", head: bool = True) -> "Table":
        found = super().__new__(cls, "\n".join(_aligned(rows, side)))
        found.rows, found.head = rows, head
        return found

    def as_text(self) -> str:
        return str(self)

    def as_html(self) -> str:
        lines = []
        for k, row in enumerate(self.rows):
            cell = "th" if self.head and k == 0 else "td"
            lines.append("<tr>" + "".join(f"<{cell}>{escape(x)}</{cell}>" for x in row) + "</tr>")
        return "<table>\n" + "\n".join(lines) + "\n</table>"

    _repr_html_ = as_html


class Summary(str):
    """The table of a fit as text. `tables` are its head, the parameters and the tests of residuals."""

    parts: Tables

    def __new__(cls, parts: Tables) -> "Summary":
        found = super().__new__(cls, _text_of(parts))
        found.parts = parts
        return found

    @property
    def tables(self) -> list[Table]:
        t = self.parts
        pairs = [[*a, *b] for a, b in zip(t.head[::2], t.head[1::2], strict=True)]
        return [Table(pairs, "<", False), Table([t.columns, *t.rows]), Table([TESTS, *t.tests])]

    def as_text(self) -> str:
        return str(self)

    def as_html(self) -> str:
        parts = [f"<b>{escape(self.parts.title)}</b>", *(table.as_html() for table in self.tables)]
        return "\n".join([*parts, *(f"<p>{escape(x)}</p>" for x in self.parts.remarks)])

    _repr_html_ = as_html


def _text_of(t: Tables) -> str:
    body, tests = _aligned([t.columns, *t.rows]), _aligned([TESTS, *t.tests])
    left, right = _aligned([list(pair) for pair in t.head[::2]], "<"), t.head[1::2]
    width = max(len(body[0]), len(tests[0]), len(left[0]) + 3 + max(len(a) + len(b) + 2 for a, b in right))
    head = [
        line + "   " + name + figure.rjust(width - len(line) - 3 - len(name))
        for line, (name, figure) in zip(left, right, strict=True)
    ]
    double, single = "=" * width, "-" * width
    parts = [
        t.title.center(width).rstrip(),
        double,
        *head,
        double,
        body[0],
        single,
        *body[1:],
        double,
        tests[0],
        *tests[1:],
        double,
    ]
    return "\n".join([*parts, *t.remarks])


def _aligned(rows: list[list[str]], side: str = ">") -> list[str]:
    """Rows as lines: the first column to the left, the others to the `side`, two blanks between."""
    wide = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return [
        row[0].ljust(wide[0]) + "".join(f"  {x:{side}{w}}" for x, w in zip(row[1:], wide[1:], strict=True))
        for row in rows
    ]
