"""Calls into scientific packages, as a user of these packages writes them: right, or refused with a cause.

The programs were chosen before they were tried.  `pytest -m wild` compares what becomes of each with
`refused.py`; `python tests/wild/test_wild.py FILE ...` judges the
calls of these files of `programs`, or of all, and writes their rows of the table of docs/packages.md.  The packages are those
of the extra `wild`."""

import contextlib
import importlib
import re
import statistics
import sys
import warnings
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "programs")]
from judge import verdict  # noqa: E402
from refused import COMPILED, NAN, REFUSED  # noqa: E402

KINDS = (
    "known",
    "unseen",
    "fresh",
    "later",
    "last",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "eleventh",
    "twelfth",
    "thirteenth",
    "fourteenth",
    "fifteenth",
    "sixteenth",
    "seventeenth",
    "eighteenth",
    "nineteenth",
    "twentieth",
)
PROGRAMS = sorted(
    [p.stem for p in (HERE / "programs").glob("*.py")], key=lambda p: (KINDS.index(p.partition("_")[0]), p)
)
DOCUMENT = HERE.parents[1] / "docs" / "packages.md"


@contextlib.contextmanager
def only_packages():
    """Imports find installed packages, and not a folder of tests, as `sparse`."""
    path = sys.path[:]
    sys.path[:] = [place for place in path if Path(place).resolve() != HERE.parent]
    try:
        yield
    finally:
        sys.path[:] = path


def judged(program, timed=False):
    """(name of the call, verdict) of each call of a file."""
    with warnings.catch_warnings(action="ignore"), only_packages():  # (the packages' own warnings)
        calls = importlib.import_module(program).CALLS
        return [(f.__name__, verdict(f, x, timed)) for f, x in calls]


@pytest.mark.wild
@pytest.mark.parametrize("program", PROGRAMS)
def test_calls_are_right_or_refused(program):
    with only_packages():
        pytest.importorskip(program, exc_type=ImportError)
    found = judged(program)
    wrong = {f"{program}.{name}": v.cause for name, v in found if v.outcome == "wrong"}
    assert {name: cause for name, cause in wrong.items() if name not in NAN or "nan" not in cause} == {}
    assert {
        f"{program}.{name}": v.cause
        for name, v in found
        if v.outcome == "refused" and f"{program}.{name}" not in {**REFUSED, **COMPILED}
    } == {}


STARS = {kind: " " * (k > 0) + "*" * k for k, kind in enumerate(KINDS)}


def row(program, found):
    kind, _, package = program.partition("_")
    right = [v for _, v in found if v.outcome == "right"]
    costs = [v.cost for v in right if v.cost == v.cost]  # (nan: not timed)
    cost = f"{statistics.median(costs):.0f}" if costs else ""
    causes = {}
    for name, v in found:
        if v.outcome != "right":
            key = f"{program}.{name}"
            causes.setdefault({**COMPILED, **REFUSED, **NAN}.get(key, v.cause), []).append(name)
    told = "; ".join([f"{', '.join([f'`{n}`' for n in names])}: {cause}" for cause, names in causes.items()])
    return f"| {package}{STARS[kind]} | {len(found)} | {len(right)} | {cost} | {told} |"


def rows_of(text):
    """{(package, stars): the row} of the table in a text."""
    rows = [
        line
        for line in text.partition("<!-- table -->")[2].splitlines()
        if re.match(r"\| \w+ ?\**  ?\|", line)
    ]
    return {
        tuple(re.match(r"\| (\w+) ?(\**)", line).groups()): line for line in rows if line[2:9] != "package"
    }


def total(rows):
    """The sum of the table, for the text above it."""
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in rows]
    calls, right = [sum([int(c[k]) for c in cells]) for k in (1, 2)]
    costs = sorted([int(c[3]) for c in cells if c[3]])
    of_each = []
    for stars in range(1, len(KINDS)):
        found = [c for c in cells if c[0].count("*") == stars]
        of_each.append(f"{sum([int(c[2]) for c in found])} of {sum([int(c[1]) for c in found])}")
    return (
        f"{calls} calls: {right} right ({100 * right / calls:.0f} %), {calls - right - len(NAN)} refused, {len(COMPILED)} "
        f"of these by compiled code; {len(NAN)} have a gradient of nan. With one to {len(KINDS) - 1} stars: "
        f"{', '.join(of_each)} right. Value and gradient take {statistics.median(costs):.0f} times the plain call "
        "(median of the packages)."
    )


def write_table(programs):
    """Judge the calls of these files, and put their rows into the table."""
    text = DOCUMENT.read_text(encoding="utf-8")
    rows = rows_of(text)
    for program in programs:
        kind, _, package = program.partition("_")
        rows[package, STARS[kind].strip()] = row(program, judged(program, timed=True))
        print(rows[package, STARS[kind].strip()], flush=True)
    order = [(p.partition("_")[2], STARS[p.partition("_")[0]].strip()) for p in PROGRAMS]
    lines = [rows[key] for key in order if key in rows]
    head = "| package | calls | right | cost | refused or wrong |\n|---|---|---|---|---|\n"
    table = total(lines) + "\n\n" + head + "\n".join(lines) + "\n"
    DOCUMENT.write_text(text.partition("<!-- table -->\n")[0] + "<!-- table -->\n" + table, encoding="utf-8")


if __name__ == "__main__":
    write_table(sys.argv[1:] or PROGRAMS)
