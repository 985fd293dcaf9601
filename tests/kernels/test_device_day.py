"""The paths of benchmarks/device_day run: on CuPy over host memory, as nobody has a device at hand when they
are changed."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "device_day"
spec = importlib.util.spec_from_file_location("device_day_paths", FOLDER / "paths.py")
paths = importlib.util.module_from_spec(spec)
spec.loader.exec_module(paths)


@pytest.mark.one_in(7)
@pytest.mark.cupy_only
@pytest.mark.parametrize("path", paths.PATHS)
def test_the_device_gives_what_the_host_gives(xp, path):
    assert paths.difference(xp, path) <= paths.tolerance(path)


def test_a_step_without_a_device_says_so(tmp_path):
    run = subprocess.run(
        [sys.executable, FOLDER, "probe", "--out", tmp_path, "--only", "operations"],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 1 and "no CUDA device answers" in run.stderr


def test_a_step_writes_as_it_goes(tmp_path):
    run = subprocess.run(
        [sys.executable, FOLDER, "versions", "--out", tmp_path], capture_output=True, text=True
    )
    rows = [json.loads(line) for line in (tmp_path / "versions.jsonl").read_text().splitlines()]
    assert run.returncode == 0, run.stderr
    assert {"numpy", "cupy", "python"} <= {row["name"] for row in rows}
