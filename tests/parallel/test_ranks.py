"""Programs on several ranks, each started by mpiexec.  References: the same functions in one process, math.fsum."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.mpi

PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(__file__).parents[2]
WITHIN = 30.0  # seconds in which all ranks end after one has failed


def on_ranks(count, name, *args, seconds=240.0):
    """(exit status, output) of a program on `count` ranks."""
    mpiexec = Path(sys.executable).with_name("mpiexec")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    command = [str(mpiexec), "-n", str(count), sys.executable, str(PROGRAMS / name), *args]
    done = subprocess.run(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds
    )
    return done.returncode, done.stdout


def all_done(count, name, *args):
    status, text = on_ranks(count, name, *args)
    assert status == 0 and text.count("done") == count, text[-4000:]
    return text


@pytest.mark.parametrize("count", [pytest.param(2, marks=pytest.mark.long), 3])
def test_derivatives(count):
    all_done(count, "derivatives.py")


@pytest.mark.parametrize(
    "first, count", [(10, 4), *[pytest.param(10 * k, 10, marks=pytest.mark.long) for k in range(2, 7)]]
)
def test_random_programs(first, count):
    all_done(3, "random_programs.py", str(first), str(count))


@pytest.mark.parametrize("how", ["in order", "error"])
def test_ends_of_several_communicators(how):
    status, text = on_ranks(3, "ends.py", how, seconds=WITHIN)
    assert text.count("done") == 3, text
    assert (status != 0) == (how == "error") and text.count("ValueError: rank 0 stops here") == (
        how == "error"
    ), text


@pytest.mark.parametrize("count", [*[pytest.param(n, marks=pytest.mark.long) for n in (1, 2)], 3])
def test_prepared(count):
    all_done(count, "prepared.py")


def test_tools():
    all_done(2, "tools.py")


@pytest.mark.parametrize("count", [2, pytest.param(3, marks=pytest.mark.long)])
def test_arrays_of_a_device(count):
    all_done(count, "device.py")


def test_estimation_and_bits():
    texts = [all_done(count, "estimation.py") for count in (1, 3)]
    bits = [[line for line in text.splitlines() if line.startswith("bits")] for text in texts]
    assert len(bits[0]) == 6 and bits[0] == bits[1]


# what a rank raises that did not fail itself, and one that did
ERRORS = {
    "share": ("RankError rank {last}: ValueError: boom", "ValueError boom"),
    "product": ("RankError rank {last}: ValueError: boom", "ValueError boom"),
    "block": ("RankError rank {last}: ValueError: boom", "ValueError boom"),
    "branches": ("RankError the ranks do not do the same",) * 2,
    "branches of a value": ("RankError the ranks do not do the same",) * 2,
    "loops": ("RankError the ranks do not do the same",) * 2,
    "shapes": ("RankError the ranks do not do the same",) * 2,
    "dtypes": ("RankError the ranks do not do the same",) * 2,
    "rows": ("RankError rank {last}: ShapeError: halo", "ShapeError halo"),
    "constant": ("RankError psum of float64 () at",) * 2,
    "arguments": ("(number 0) that differ between ranks",) * 2,
    "values": ("(number 1) that differ between ranks",) * 2,
    "cotangents": ("(number 2) that differ between ranks",) * 2,
    "unused": ("RankError the ranks do not do the same",) * 2,
    "collective in a share": ("ArgumentError parallel.value_and_grad: the function calls a collective",) * 2,
    "letters": ("ArgumentError tapegrad.parallel: an array of dtype <U1",) * 2,
    "no communicator": ("ArgumentError tapegrad.parallel: comm is a int",) * 2,
    "no rank": ("ArgumentError bcast: root=",) * 2,
    "guarded": ("acts outside of the process",) * 2,
}


def test_errors_reach_all_ranks():
    """And the communicator works afterwards."""
    count = 2
    text = all_done(count, "failures.py", *ERRORS)
    said = {
        rank: [line[2:] for line in text.splitlines() if line.startswith(f"{rank} ")] for rank in range(count)
    }
    for name, wanted in ERRORS.items():
        for rank in range(count):
            at = said[rank].index(f"case {name}")
            assert wanted[rank == count - 1].format(last=count - 1) in said[rank][at + 1], (
                name,
                said[rank][at + 1],
            )
            assert said[rank][at + 2] == "goes on"


@pytest.mark.parametrize(
    "name, said",
    [
        ("uncaught", "RankError: rank 2 has ended with ValueError: boom"),
        ("ended", "RankError: rank 2 has ended, and takes part no more"),
        ("killed", ""),
    ],
)
def test_all_ranks_end_with_one(name, said):
    begin = time.monotonic()
    status, text = on_ranks(3, "failures.py", name, seconds=120.0)
    assert status != 0 and time.monotonic() - begin < WITHIN
    assert text.count(said) == 2 or not said, text


def test_without_mpi(tmp_path):
    """The error says what to install, and nothing else of the package needs MPI."""
    (tmp_path / "mpi4py.py").write_text("raise ImportError('hidden')")
    program = "import tapegrad as tg; tg.parallel.run_parts(abs, [1]); tg.parallel.psum(1.0)"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, stderr=subprocess.PIPE, text=True, timeout=120
    )
    assert "pip install 'tapegrad[mpi]'" in done.stderr
