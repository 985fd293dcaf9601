"""No test is skipped unseen.  Where CI=true, a skip is a failure; elsewhere each skip is listed at the end of the run.

Tests that need a GPU are the exception.  conftest.py imports the three hooks:

    from plugin_skips import pytest_make_collect_report, pytest_runtest_makereport, pytest_terminal_summary  # noqa: F401
"""

import os

import pytest

STRICT = os.environ.get("CI") == "true"
SKIPS: list = []  # (test, reason) of this run


def reason_of(report):
    where = report.longrepr
    return where[2].removeprefix("Skipped: ") if isinstance(where, tuple) else str(where)


def note(report, name, allowed):
    """Count a skip; where it is not allowed, make it a failure."""
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = reason_of(report)
    SKIPS.append((name, reason))
    if STRICT and not allowed:
        report.outcome = "failed"
        report.longrepr = f"{name} was skipped: {reason}\nWith CI=true nothing may be skipped but tests of a GPU."


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    # the fixture that stands CuPy on host memory steps aside where a real device answers
    note(report, item.nodeid, "gpu" in item.keywords or "CUDA device" in reason_of(report))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    note(report, collector.nodeid, False)
    return report


def pytest_terminal_summary(terminalreporter):
    if SKIPS:
        terminalreporter.section(f"skipped: {len(SKIPS)}")
        for name, reason in SKIPS:
            terminalreporter.write_line(f"{name}: {reason}")
