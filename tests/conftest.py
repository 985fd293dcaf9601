"""The fixture `xp`: a test that takes it runs on NumPy, on the real CuPy package over host memory, and (-m gpu) on a device."""

import contextlib
import gc

import numpy as np
import pytest
from plugin_skips import pytest_make_collect_report, pytest_runtest_makereport, pytest_terminal_summary  # noqa: F401
from sealed import Sealed, sealed

from tapegrad._core.reverse import Tape
from tapegrad.kernels.launch import host

try:
    import hosted_cupy

    device = hosted_cupy.real_device()
    hosted = None if device else hosted_cupy.install()
except ImportError:
    device, hosted = False, None
if hosted is not None:
    import _hosted_kernels

    _hosted_kernels.ELEMENTWISE["tapegrad_segment_add"] = lambda at, y, n, r: np.add.at(r, at, y)  # ops/indexing.py


def pytest_addoption(parser):
    parser.addoption("--sealed", action="store_true", help="hash every array that a record keeps, and compare it when it is swept")


def pytest_configure(config):
    if config.getoption("--sealed"):
        Tape.Records = Sealed


# g++ takes a third less than with -O2; the arithmetic is the same.
host.FLAGS = tuple(["-O1" if flag == "-O2" else flag for flag in host.FLAGS])


def pytest_collection_finish(session):
    """Twenty thousand tests and their packages are no garbage: the collector, which many tests ask, need not visit them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def unsealed(request):
    with sealed(list) if request.node.get_closest_marker("unsealed") else contextlib.nullcontext():
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


def pytest_collection_modifyitems(config, items):
    """Leave out the pairs of library and test that do not exist: functions that CuPy lacks, tests of CuPy alone."""

    def exists(item):
        params = getattr(getattr(item, "callspec", None), "params", {})
        if "xp" not in params:
            return True
        if params["xp"] == "numpy":
            return item.get_closest_marker("cupy_only") is None
        return not getattr(params.get("case"), "numpy_only", False)

    config.hook.pytest_deselected(items=[item for item in items if not exists(item)])
    items[:] = [item for item in items if exists(item)]
