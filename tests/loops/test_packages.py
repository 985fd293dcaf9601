"""Functions that installed packages compile with Numba: the census of `benchmarks/numba_packages.py`."""

import importlib.util
import pathlib

import pytest

from tapegrad.loops import operation

FILE = pathlib.Path(__file__).parents[2] / "benchmarks" / "numba_packages.py"


@pytest.mark.wild
@pytest.mark.parametrize("package", ["arch", "quantecon", "stumpy", "librosa", "numba_stats", "pynndescent"])
def test_no_derivative_of_a_package_is_wrong(package, monkeypatch):
    pytest.importorskip(package, reason=f"NOT RUN: {package} is missing")
    monkeypatch.setattr(operation, "call_numba", operation.call_numba)  # the census watches it
    spec = importlib.util.spec_from_file_location("numba_packages", FILE)
    census = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(census)
    assert census.main([package.replace("_", "-")]) == 0
