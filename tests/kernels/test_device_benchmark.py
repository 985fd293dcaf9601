"""The device benchmark runs: on CuPy over host memory with small sizes, as nobody has a device at hand when
it is changed."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from _cuda_host import array_library  # noqa: F401

TINY = {"copy": 2**12, "chains": 10, "gaussian": (70, 100), "many": (130, 10), "few": (2, 3000), "level": 70,
"states": (65, 10),
        "large": (2, 3)}  # fmt: skip


@pytest.mark.long
def test_every_row_is_measured_and_has_the_bits_of_the_cpu(cupy, monkeypatch):
    monkeypatch.setattr(
        os, "environ", dict(os.environ)
    )  # the benchmarks set variables when they are imported
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "benchmarks"))
    before = set(sys.modules)
    try:
        import _harness
        import device

        def once(cupy, job, *rest):
            job()
            return 1e-3

        monkeypatch.setattr(device, "seconds", once)
        report = _harness.Report(
            "device", "small", SimpleNamespace(quick=True, save=False, only=[]), device.METHOD
        )
        absent = _harness.Absent("not asked")
        device.measured(report, cupy, TINY, absent, absent)
    finally:
        for name in set(sys.modules) - before:
            if name in ("_harness", "_peers", "kernels", "device"):
                del sys.modules[name]
    rows = [
        [c.strip() for c in line.split("|")[1:-1]]
        for line in report.lines
        if line.startswith("| ") and "model" not in line
    ]
    assert len(rows) == 12
    assert {row[9] for row in rows} == {"yes"}
    assert {row[3] for row in rows} == {"float64", "float32"}
    assert all(np.isfinite(float(row[7])) for row in rows[:10])
