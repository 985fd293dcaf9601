"""A local Dask cluster that loses a worker, and one that loses its client.  References: the same work in one process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.dask
ROOT = Path(__file__).parents[2]


def on_cluster(case, folder):
    command = [sys.executable, str(Path(__file__).parent / "programs" / "cluster.py"), case, str(folder)]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300
    )
    return done.returncode, done.stdout


def test_a_killed_worker(tmp_path):
    status, text = on_cluster("killed", tmp_path)
    assert status == 0 and text.endswith("done\n"), text[-4000:]


@pytest.mark.long
def test_a_killed_client(tmp_path):
    assert on_cluster("client", tmp_path)[0] == -signal.SIGKILL
    status, text = on_cluster("again", tmp_path)
    assert status == 0 and text.endswith("done\n"), text[-4000:]
