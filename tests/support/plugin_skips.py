"""No test is skipped unseen.  Where CI=true, a skip is a failure; elsewhere each skip is listed at the end of the run.

Tests that need a GPU are the exception.  conftest.py imports the three hooks:

    from plugin_skips import pytest_make_collect_report, pytest_runtest_makereport, pytest_terminal_summary  # noqa: F401
"""

import os

import pytest

STRICT = os.environ.get("CI") == "true"


def reason_of(report):
    where = report.longrepr
    return where[2].removeprefix("Skipped: ") if isinstance(where, tuple) else str(where)


def note(report, name, allowed):
    """A skip that is not allowed is a failure."""
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    if STRICT and not allowed:
        report.outcome = "failed"
        report.longrepr = f"{name} was skipped: {reason_of(report)}\nWith CI=true nothing may be skipped but tests of a GPU."


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
    skips = terminalreporter.stats.get("skipped", [])  # of all processes
    if skips:
        terminalreporter.section(f"skipped: {len(skips)}")
        for report in skips:
            terminalreporter.write_line(f"{report.nodeid}: {reason_of(report)}")
