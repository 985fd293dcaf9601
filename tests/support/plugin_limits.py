"""A test that hangs ends its process, and in continuous integration a failure is printed at once.

A run that is cut off then still says what was wrong.  conftest.py registers this module as a plugin."""

import faulthandler
import os

import pytest

SECONDS = 240  # many times what the slowest test takes that is not marked `long`
STATE = {}


def pytest_configure(config):
    STATE["plugins"] = config.pluginmanager
    STATE["stderr"] = os.dup(2)  # as it is before tests are captured


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Print the stack of every thread and end the process.  pytest-xdist reports a crash and goes on."""
    if item.get_closest_marker("long") or item.config.getoption("usepdb"):
        return (yield)
    faulthandler.dump_traceback_later(SECONDS, exit=True, file=STATE["stderr"])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_runtest_logreport(report):
    terminal = STATE["plugins"].get_plugin("terminalreporter")  # none in a process of pytest-xdist
    if report.failed and terminal is not None and os.environ.get("CI"):
        terminal.write_line(f"\n{report.nodeid}: {report.when}\n{report.longreprtext}", red=True)
        terminal.flush()
