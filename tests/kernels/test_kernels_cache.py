"""What lies in the folder of compiled kernels cannot harm: damaged, foreign and planted files are made anew,
and processes that write at once do not see halves of files."""

import ctypes
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import cache
from tapegrad.kernels.generated.kernel import named_recursion
from tapegrad.kernels.launch import cpu, stored
from tapegrad.kernels.trace import captured

NAME = cache.key("a test")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    where = tmp_path / "kernels"
    monkeypatch.setenv("TAPEGRAD_CACHE", str(where))
    return where


def times(factor):
    """The text of a function that multiplies, and the function as compiled, or read, in a process that knows
    nothing of it."""
    text = f"define i64 @kernel(i64 %x) {{\n  %y = mul i64 %x, {factor}\n  ret i64 %y\n}}\n"
    key = cache.key(cpu.processor().description, text)

    def run():
        cache.ENGINES.pop(key, None)
        cpu.ALIVE.pop(key, None)
        return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(cpu.function_address(text))(2)

    return key, run


def counted(monkeypatch):
    """How often code is compiled."""
    calls, compile_ = [], cpu.object_code
    monkeypatch.setattr(cpu, "object_code", lambda *args: calls.append(1) or compile_(*args))
    return calls


def test_code_that_runs_for_long_is_optimised(folder, monkeypatch):
    """Long code is compiled quickly at first. Later the same bits come from optimised code, which the next
    kernel reads from disk."""
    monkeypatch.setattr(cpu, "DEFERRED_SECONDS", 0.0)
    levels, compile_ = [], cpu.object_code

    def noted(text, large):
        if "@kernel(" in text:
            levels.append(text.count("\n") <= large)
        return compile_(text, large)

    monkeypatch.setattr(cpu, "object_code", noted)
    monkeypatch.setattr(cpu, "SECONDS_PER_LINE", 1.0)
    theta, data = np.array([[0.3, 0.7], [0.5, -0.2]]), np.linspace(0.1, 2.0, 9)

    def normal(t, y):
        return -((y - np.sin(t[0])) ** 2) * np.exp(t[1]) - np.log1p(y * np.exp(t[0])) / (
            1.5 + np.cos(y + t[1])
        )

    for made in ([False, True], []):
        k = tg.kernels.likelihood(normal)
        first = k.value_and_grad(theta, data)
        (launcher,) = k._family.launchers.values()
        assert bool(launcher.quick) == bool(made) and levels == made[:1]
        launcher.quick = {width: (text, 0.0) for width, (text, _) in launcher.quick.items()}
        for _ in range(3):
            again = k.value_and_grad(theta, data)
            assert all([(a == b).all() for a, b in zip(first, again, strict=True)])
        assert not launcher.quick and levels == made
        levels.clear()
        cpu.ALIVE.clear()
        cache.ENGINES.clear()


def test_the_key_is_part_of_what_is_checked(folder, monkeypatch):
    """A file under the name of another is whole, and still not used."""
    calls = counted(monkeypatch)
    (one, run_one), (two, run_two) = times(11), times(13)
    assert (run_one(), run_two(), len(calls)) == (22, 26, 2)
    assert (run_one(), run_two(), len(calls)) == (22, 26, 2)
    os.replace(folder / f"{one}.o", folder / f"{two}.o")
    assert (run_two(), len(calls)) == (26, 3)
    assert (run_two(), run_one(), len(calls)) == (26, 22, 4)


def garbage(path):
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    yield b""
    yield b"\0"
    yield whole[:-1]
    yield whole[: len(whole) // 2]
    yield whole[-32:]
    yield whole + b"\0"
    yield rng.bytes(len(whole))
    yield rng.bytes(100_000)
    for _ in range(20):
        at = int(rng.integers(len(whole)))
        yield whole[:at] + bytes([whole[at] ^ (1 << int(rng.integers(8)))]) + whole[at + 1 :]
    yield whole[:100] + whole[-32:]


def test_garbage_is_made_anew(folder, monkeypatch):
    key, run = times(17)
    run()
    path, calls = folder / f"{key}.o", counted(monkeypatch)
    for n, content in enumerate(garbage(path)):
        path.write_bytes(content)
        assert run() == 34 and len(calls) == n + 1
        assert run() == 34 and len(calls) == n + 1  # and is stored again


def test_files_that_others_may_write_are_not_executed(folder, monkeypatch):
    key, run = times(19)
    run()
    path, calls = folder / f"{key}.o", counted(monkeypatch)
    assert not stat.S_IMODE(path.stat().st_mode) & 0o077 and not stat.S_IMODE(folder.stat().st_mode) & 0o077
    for mode in (0o620, 0o602, 0o666):
        path.chmod(mode)
        assert run() == 38 and len(calls) == 1
        calls.clear()
        assert not stat.S_IMODE(path.stat().st_mode) & 0o022  # replaced


def test_files_of_another_owner_are_not_executed(folder, monkeypatch):
    key, run = times(23)
    run()
    calls = counted(monkeypatch)
    real = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: real + 1)
    assert run() == 46 and len(calls) == 1
    if real == 0:  # who may give files away
        monkeypatch.undo()
        monkeypatch.setenv("TAPEGRAD_CACHE", str(folder))
        calls = counted(monkeypatch)
        os.chown(folder / f"{key}.o", 12345, 12345)
        assert run() == 46 and len(calls) == 1


def things(path):
    """What may stand where a file is expected."""
    path.mkdir()
    yield "folder"
    (path / "inside").write_bytes(b"x")
    yield "folder with a file"
    (path / "inside").unlink()
    path.rmdir()
    os.mkfifo(path)
    yield "pipe"
    path.unlink()
    path.symlink_to(path.with_name("nothing"))
    yield "link to nothing"
    path.unlink()
    path.symlink_to(path)
    yield "link to itself"
    path.unlink()
    path.symlink_to("/dev/zero")
    yield "device"
    path.unlink()
    with socket.socket(socket.AF_UNIX) as s:
        before = os.getcwd()
        os.chdir(path.parent)  # the names of sockets are short
        s.bind(path.name[:20])
        os.chdir(before)
        os.replace(path.with_name(path.name[:20]), path)
        yield "socket"
    path.unlink(missing_ok=True)


def test_other_things_than_files(folder):
    key, run = times(29)
    folder.mkdir()
    path = folder / f"{key}.o"
    for thing in things(path):
        assert run() == 58, thing
        assert run() == 58, thing
        if path.is_file():
            path.unlink()
        left = [p.name for p in folder.iterdir() if p != path]
        assert left == [], thing  # what could not be put in its place is not left about
        if thing not in ("folder", "folder with a file"):
            path.write_bytes(b"") if not os.path.lexists(path) else None


@pytest.mark.parametrize(
    "how", ["a file", "below a file", "read-only", "nowhere", "no home", "name with nul"]
)
def test_folders_that_cannot_be_used(how, tmp_path, monkeypatch):
    calls, (_, run) = counted(monkeypatch), times(31)
    where = tmp_path / "x"
    if how == "a file":
        where.write_bytes(b"")
    elif how == "below a file":
        where.write_bytes(b"")
        where = where / "y"
    elif how == "read-only":
        monkeypatch.setattr(
            cache.tempfile, "mkstemp", lambda **kw: (_ for _ in ()).throw(PermissionError("read-only"))
        )
    elif how == "nowhere":
        where = Path("/proc/nowhere/at/all")
    elif how == "no home":
        monkeypatch.delenv("TAPEGRAD_CACHE", raising=False)
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    if how == "name with nul":
        monkeypatch.setattr(cache, "folder", lambda: "a\0b")
    elif how != "no home":
        monkeypatch.setenv("TAPEGRAD_CACHE", str(where))
    assert run() == 62 and run() == 62 and len(calls) == 2


def test_a_full_disk_leaves_nothing(folder, monkeypatch):
    def full(handle, mode):
        os.close(handle)
        raise OSError(28, "no space left")

    monkeypatch.setattr(cache.os, "fdopen", full)
    cache.save(NAME, b"content")
    monkeypatch.undo()
    assert list(folder.iterdir()) == []


WRITER = """
import sys
from tapegrad import cache
name = sys.argv[1]
for n in range(300):
    cache.save(name, bytes([n % 251]) * (1 + n * 997 % 50_000))
    found = cache.load_code(name)
    assert found is not None and found == found[:1] * len(found)
"""


@pytest.mark.long
def test_processes_that_write_at_once(folder):
    command = [sys.executable, "-c", WRITER, NAME]
    environment = {**os.environ, "PYTHONPATH": str(Path(tg.__file__).parents[1])}
    running = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) for _ in range(3)]
    for process in running:
        assert process.wait(120) == 0, process.stderr.read().decode()
        process.stderr.close()
    assert [p.name for p in folder.iterdir()] == [f"{NAME}.o"]


def test_kernels_are_read_by_the_next_process(folder):
    code = """
import numpy as np, tapegrad as tg
from tapegrad.kernels.launch import cpu
compile_, calls = cpu.object_code, []
cpu.object_code = lambda *args: calls.append(1) or compile_(*args)
k = tg.kernels.likelihood(lambda t, y: -(y - t[0]) ** 2 * t[1])
value = k(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([0.5, 2.0]))
print(len(calls), *value)
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(tg.__file__).parents[1])}
    told = [
        subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(2)
    ]
    assert int(told[0][0]) > 0 and told[1][0] == "0"
    assert told[0][1:] == told[1][1:] == ["-3.75", "-9.0"]


# --- limits ---


def test_the_files_that_were_used_least_recently_go(folder, monkeypatch):
    """Files are written, and read, at random; those that are left are the last ones."""
    monkeypatch.setattr(cache, "MOST_FILES", 20)
    monkeypatch.setattr(cache, "WRITES_BETWEEN_CHECKS", 1)
    monkeypatch.setattr(cache, "TOUCH_AGE_SECONDS", 0.0)
    rng, last = np.random.default_rng(0), []
    folder.mkdir()
    for other in ("notes.txt", "a.o", f"{'g' * 64}.o"):
        (folder / other).write_bytes(b"of somebody else")
    for n in range(200):
        name = cache.key(str(n if rng.random() < 0.7 or not last else rng.integers(n)))
        if cache.load_code(name) is None:
            cache.save(name, b"content")
        last = [*[x for x in last if x != name], name]
        os.utime(folder / f"{name}.o", (1e9 + n, 1e9 + n))  # (clocks of file systems are coarse)
        found = cache.info()
        assert found.files <= 20 == found.most_files
        assert {p.name for p in folder.iterdir() if cache.NAME.fullmatch(p.name)} == {
            f"{x}.o" for x in last[-found.files :]
        }
    assert sorted([p.name for p in folder.iterdir() if not cache.NAME.fullmatch(p.name)]) == [
        "a.o",
        f"{'g' * 64}.o",
        "notes.txt",
    ]


def test_large_files_go_first_where_bytes_are_limited(folder, monkeypatch):
    monkeypatch.setattr(cache, "MOST_BYTES", 10_000)
    monkeypatch.setattr(cache, "WRITES_BETWEEN_CHECKS", 1)
    for n in range(30):
        cache.save(cache.key(str(n)), bytes([n]) * 900)
        assert cache.info().bytes <= 10_000
    assert cache.load_code(cache.key("29")) == bytes([29]) * 900


def test_a_file_that_is_read_counts_as_used(folder, monkeypatch):
    cache.save(NAME, b"content")
    path = folder / f"{NAME}.o"
    os.utime(path, (1e9, 1e9))
    assert cache.load_code(NAME) == b"content" and path.stat().st_mtime > 1e9 + 1


def test_clear(folder, monkeypatch):
    k = tg.kernels.likelihood(lambda t, y: -t[0] * (y - 2.0) ** 2)
    theta, y = np.ones((1, 1)), np.ones(2)
    assert k(theta, y) == [-2.0] and cache.info().files > 0 and cache.info().folder == folder
    (folder / "other").write_bytes(b"x")
    assert (
        cache.clear() > 0 and cache.info().files == cache.info().engines == 0 and (folder / "other").exists()
    )
    assert k(2 * theta, y) == [-4.0]
    monkeypatch.setenv("TAPEGRAD_CACHE", "")
    assert cache.info().folder is None and cache.clear() == cache.info().files == 0


# --- programs with a name: on disk before they are traced ---


def forget():
    """As in another process: no machine code is loaded."""
    cache.ENGINES.clear()
    cpu.ALIVE.clear()


def walk(key):
    """A recursion of this name, and how often its step is traced."""
    traced = []

    def step(m, theta, y):
        traced.append(1)
        return theta[0] * m + y, -0.5 * theta[1] * (y - m) ** 2

    return named_recursion(key, lambda theta: 0.0 * theta[0], step), traced


def answers(k):
    theta, y = np.array([0.4, 1.3]), np.array([0.3, -1.0, 0.7])
    many = np.repeat(theta[:, None], 5, axis=1)
    return *k.value_and_grad(theta, y), k.hvp(many, many[::-1], y), k.scores(theta, y)


@pytest.mark.parametrize("alone", [True, False])
def test_a_named_program_is_not_traced_twice(folder, monkeypatch, alone):
    """Other threads, as that of a progress bar, change nothing that a pure function reads."""
    monkeypatch.setattr(captured.OtherThreads, "have_run", lambda self: not alone)
    forget()
    first, traced = walk("walk")
    before = answers(first)
    assert traced
    calls = counted(monkeypatch)
    forget()
    again, traced = walk("walk")
    for a, b in zip(answers(again), before, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not traced and not calls


def test_another_name_or_another_text_is_traced(folder, monkeypatch):
    answers(walk("walk")[0])
    k, traced = walk("run")
    answers(k)
    assert traced
    monkeypatch.setattr(stored, "state_of_package", lambda: "another text")
    k, traced = walk("walk")
    answers(k)
    assert traced


@pytest.mark.parametrize("lost", ["code", "record", "all"])
def test_what_is_lost_of_a_named_program_is_made_again(folder, lost):
    before = answers(walk("walk")[0])
    for path in folder.iterdir():
        if lost == "all" or (b'"plan"' in path.read_bytes()) == (lost == "record"):
            path.write_bytes(b"damaged") if lost == "record" else path.unlink()
    forget()
    k, traced = walk("walk")
    for a, b in zip(answers(k), before, strict=True):
        np.testing.assert_array_equal(a, b)
    assert traced


PROGRAM = """
import builtins, sys
import numpy as np, tapegrad as tg
from tapegrad._dispatch.fast import entries
made, compile_ = [], compile
entries.compile = lambda text, file, kind: made.append(file) or compile_(text, file, kind)
f = lambda x: np.sum(np.exp(x) * np.sin(x) / np.linalg.norm(x))
x = np.array([0.5, 0.25])
print(repr((tg.grad(f)(x).tolist(), tg.hessian(f)(x).tolist())), len(made))
"""


@pytest.mark.long
def test_the_texts_of_operations_are_compiled_once(folder):
    def run():
        done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
        assert not done.returncode, done.stderr
        found, _, count = done.stdout.rpartition(" ")
        return found, int(count)

    first = run()
    assert first[1] > 5 and run() == (first[0], 0)
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes()[:-1])  # no file is whole any more
    assert run() == first


def test_a_long_compilation_is_logged(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("TAPEGRAD_CACHE", str(tmp_path))
    monkeypatch.setattr(cpu, "ANNOUNCED_SECONDS", 0.0)
    text = f"define double @kernel(double %x) {{\n  %y = fadd double %x, {9127}.0\n  ret double %y\n}}\n"
    with caplog.at_level("INFO", logger="tapegrad"):
        cpu.engine_of(text)
        cpu.engine_of(text)
    assert [r.message[:24] for r in caplog.records] == ["compiled 4 lines of LLVM"]
