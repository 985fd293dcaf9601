"""The fixture `xp`: a test that takes it runs on NumPy, on the real CuPy package over host memory, and (-m
gpu) on a device."""

import collections
import contextlib
import gc
import os
import shutil
import tempfile

import numpy as np
import plugin_limits
import pytest
from plugin_skips import pytest_make_collect_report, pytest_runtest_makereport, pytest_terminal_summary  # noqa: F401
from sealed import Sealed, sealed

from tapegrad._core.reverse import Tape
from tapegrad.kernels.launch import host
from tapegrad.replay import cached_program
from tapegrad.replay.cached_program import CachedProgram

try:
    from tapegrad.testing import hosted as hosted_cupy

    device = hosted_cupy.real_device()
    hosted = None if device else hosted_cupy.install()
except ImportError:
    device, hosted = False, None


def pytest_addoption(parser):
    parser.addoption(
        "--sealed",
        action="store_true",
        help="hash every array that a record keeps, and compare it when it is swept",
    )


# The monitor thread of tqdm wakes every 10 s. A recording during which another thread has run is made twice.
with contextlib.suppress(ImportError):
    import tqdm

    tqdm.tqdm.monitor_interval = 0


# of all processes of a session
CACHE = None if "TAPEGRAD_CACHE" in os.environ else tempfile.mkdtemp(prefix="tapegrad_tests_")
if CACHE:
    os.environ["TAPEGRAD_CACHE"] = CACHE


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Without -n: as many processes as there are cores, at most 4, where pytest-xdist is installed."""
    option = config.option
    if not config.pluginmanager.hasplugin("xdist") or hasattr(config, "workerinput"):
        return
    if option.numprocesses is None and option.dist == "no" and not option.tx:
        option.numprocesses, option.maxprocesses = "auto", option.maxprocesses or 4
    if option.numprocesses and option.dist == "no":
        option.dist = "worksteal"


def pytest_unconfigure():
    if CACHE:
        shutil.rmtree(CACHE, ignore_errors=True)


def pytest_configure(config):
    config.pluginmanager.register(plugin_limits)  # for doctests of the package too
    if config.getoption("--sealed"):
        Tape.Records = Sealed


# g++ takes less than half the time that it takes with -O2; the arithmetic is the same.
host.FLAGS = tuple(["-O0" if flag == "-O2" else flag for flag in host.FLAGS])


gc.disable()  # until the tests are collected: they and their packages are no garbage


def pytest_collection_finish(session):
    """The collector, which many tests ask, need not visit twenty thousand tests."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def written_at_once(monkeypatch):
    """The text of a prepared function is written for its second replay, and the compiled one stays, so that
    tests see them.  By default it waits for what it costs, and the faster one stays
    (tests/replay/test_replay_told.py)."""
    monkeypatch.setattr(CachedProgram, "writing_cost", 0.0)
    monkeypatch.setattr(cached_program, "LOADING_NS", 0.0)
    monkeypatch.setattr(cached_program, "TRIED_REPLAYS", 0)


@pytest.fixture(autouse=True)
def unsealed(request):
    with sealed(list) if request.node.get_closest_marker("unsealed") else contextlib.nullcontext():
        yield


@pytest.fixture
def quiet():
    """Without warnings of floating-point arithmetic."""
    with np.errstate(all="ignore"):
        yield


@pytest.fixture(params=["numpy", "hosted-cupy", pytest.param("cupy", marks=pytest.mark.gpu)])
def xp(request):
    if request.param == "numpy":
        return np
    if request.param == "hosted-cupy":
        if hosted is None:
            pytest.skip("a CUDA device answers" if device else "CuPy is not installed")
        return hosted
    if not device:
        pytest.skip("no CUDA device answers")
    return pytest.importorskip("cupy")


def pytest_ignore_collect(collection_path, config):
    """`-m smoke` need not import the files that have no such test."""
    if config.option.markexpr == "smoke" and collection_path.suffix == ".py":
        return "pytest.mark.smoke" not in collection_path.read_text(encoding="utf-8") or None
    return None


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(config, items):
    """A test with the marker `one_in(n)` runs by default in one of n of its cases; the others are `long`.
    `one_in(n, of="hosted-cupy")` chooses among the cases with this in their names.

    Leave out the pairs of library and test that do not exist: functions that CuPy lacks, tests of CuPy
    alone.  `-m smoke` leaves out what the default leaves out."""
    smoke = config.option.markexpr == "smoke"
    numbers: collections.Counter = collections.Counter()

    def exists(item):
        if smoke and (item.get_closest_marker("long") or item.get_closest_marker("gpu")):
            return False
        params = getattr(getattr(item, "callspec", None), "params", {})
        if "xp" not in params:
            return True
        if params["xp"] == "numpy":
            return item.get_closest_marker("cupy_only") is None
        return not getattr(params.get("case"), "numpy_only", False)

    config.hook.pytest_deselected(items=[item for item in items if not exists(item)])
    items[:] = [item for item in items if exists(item)]
    for item in items:
        marker = item.get_closest_marker("one_in")
        if marker is not None and item.get_closest_marker("long") is None:
            test, _, case = item.nodeid.partition("[")
            if marker.kwargs.get("of", "") in case:
                if numbers[test] % marker.args[0]:
                    item.add_marker(pytest.mark.long)
                numbers[test] += 1
