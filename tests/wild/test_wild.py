"""Calls into scientific packages, as a user of these packages writes them: right, or refused with a cause.

The programs were chosen before they were tried.  `pytest -m wild` compares what becomes of each with
`refused.py`; `python tests/wild/test_wild.py` writes the table of docs/packages.md.  The packages are those
of the extra `wild`."""

import importlib
import statistics
import sys
import warnings
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "programs")]
from judge import verdict  # noqa: E402
from refused import COMPILED, NAN, REFUSED  # noqa: E402

KINDS = ("known", "unseen", "fresh", "later", "last", "fifth", "sixth")
PROGRAMS = sorted(
    [p.stem for p in (HERE / "programs").glob("*.py")], key=lambda p: (KINDS.index(p.partition("_")[0]), p)
)
DOCUMENT = HERE.parents[1] / "docs" / "packages.md"


def judged(program, timed=False):
    """(name of the call, verdict) of each call of a file."""
    with warnings.catch_warnings(action="ignore"):  # the packages' own
        calls = importlib.import_module(program).CALLS
        return [(f.__name__, verdict(f, x, timed)) for f, x in calls]


@pytest.mark.wild
@pytest.mark.parametrize("program", PROGRAMS)
def test_calls_are_right_or_refused(program):
    pytest.importorskip(program, exc_type=ImportError)
    found = judged(program)
    wrong = {f"{program}.{name}": v.cause for name, v in found if v.outcome == "wrong"}
    assert {name for name, cause in wrong.items() if "gradient along v nan" in cause} <= NAN.keys()
    assert {name: cause for name, cause in wrong.items() if "gradient along v nan" not in cause} == {}
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


def write_table():
    rows, every = [], []
    for program in PROGRAMS:
        found = judged(program, timed=True)
        every += [(f"{program}.{name}", v) for name, v in found]
        rows.append(row(program, found))
        print(rows[-1], flush=True)
    right = [v for _, v in every if v.outcome == "right"]
    starred = [[v.outcome == "right" for name, v in every if name.startswith(kind)] for kind in KINDS[1:]]
    of_each = [f"{sum(found)} of {len(found)}" for found in starred]
    costs = sorted([v.cost for v in right if v.cost == v.cost])  # (nan: not timed)
    compiled = sum(name in COMPILED for name, v in every if v.outcome == "refused")
    wrong = sum(v.outcome == "wrong" for _, v in every)
    lines = [
        f"{len(every)} calls: {len(right)} right ({100 * len(right) / len(every):.0f} %), {wrong} wrong, "
        f"{len(every) - len(right) - wrong} refused, {compiled} of these by compiled code. With one to "
        f"five stars: {', '.join(of_each)} right. "
        f"Value and gradient take {costs[len(costs) // 2]:.0f} times "
        f"the plain call (median; 90 %: {costs[len(costs) * 9 // 10]:.0f}).",
        "",
        "| package | calls | right | cost | refused or wrong |",
        "|---|---|---|---|---|",
        *rows,
    ]
    text = DOCUMENT.read_text(encoding="utf-8")
    head, _, _ = text.partition("<!-- table -->\n")
    DOCUMENT.write_text(head + "<!-- table -->\n" + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_table()
