"""The scheduler with executors.  References: the same work in one process."""

import functools
import os
import signal
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import parallel
from tapegrad import statespace as ss
from tapegrad.errors import ArgumentError, ShapeError
from tapegrad.optimize import _many
from tapegrad.parallel import workers
from tapegrad.statespace import _panel

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*multi-threaded.*fork"
)  # the processes of these tests start at once
SQUARES = [k * k for k in range(40)]


def square(k):
    return k * k


def noted(folder, k):
    """k**2, with a file for each run."""
    (folder / f"{k}-{os.getpid()}-{threading.get_ident()}-{time.monotonic_ns()}").touch()
    return k * k


def deadly(folder, k):
    """The same; the process that is first to come to 7 is killed there."""
    flag = folder / "dead"
    if k == 7 and not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return noted(folder, k)


def always_deadly(k):
    os.kill(os.getpid(), signal.SIGKILL)


def failing(k):
    if k == 11:
        raise ValueError("part 11")
    return k * k


def runs(folder, k):
    return len(list(folder.glob(f"{k}-*")))


@pytest.fixture
def pool():
    with ProcessPoolExecutor(2, mp_context=get_context("fork")) as executor:
        yield executor


@pytest.fixture
def threads():
    with ThreadPoolExecutor(2) as executor:
        yield executor


def test_order_and_once(threads, tmp_path):
    assert parallel.run_parts(functools.partial(noted, tmp_path), range(40), threads) == SQUARES
    assert [runs(tmp_path, k) for k in range(40)] == [1] * 40
    assert parallel.run_parts(square, [], threads) == parallel.run_parts(square, []) == []


def test_a_dead_process(pool, tmp_path):
    """Its parts are computed again, by another pool."""
    assert parallel.run_parts(functools.partial(deadly, tmp_path), range(40), pool) == SQUARES
    assert all(runs(tmp_path, k) >= 1 for k in range(40))


def test_processes_that_always_die(pool):
    with pytest.raises(Exception, match="terminated abruptly"):
        parallel.run_parts(always_deadly, range(3), pool)


def test_an_error_ends_the_run_and_the_store_goes_on(threads, tmp_path):
    store = tmp_path / "store"
    with pytest.raises(ValueError, match="part 11"):
        parallel.run_parts(failing, range(40), store=store)
    assert len(list(store.iterdir())) == 11
    with pytest.raises(ValueError, match="part 11"):
        parallel.run_parts(failing, range(40), threads)


def test_store(tmp_path):
    store, f = tmp_path / "store", functools.partial(noted, tmp_path)
    assert parallel.run_parts(f, range(20), store=store) == SQUARES[:20]
    assert parallel.run_parts(f, range(40), store=store) == SQUARES
    assert [runs(tmp_path, k) for k in range(40)] == [1] * 40
    # a damaged and a short file are computed again; other arguments have other files
    first, second = sorted(store.iterdir())[:2]
    first.write_bytes(first.read_bytes()[:-1] + b"?")
    second.write_bytes(b"")
    assert parallel.run_parts(f, range(40), store=store) == SQUARES
    assert [runs(tmp_path, k) for k in range(3)] == [2, 2, 1]
    assert parallel.run_parts(f, [5], store=store) == [25] and runs(tmp_path, 5) == 2
    assert parallel.run_parts(square, range(3), store=store) == SQUARES[:3] and runs(tmp_path, 2) == 1
    assert not list(store.glob("*.part"))


def test_tasks_grow_with_measured_cost(threads):
    tasks = workers.Tasks(square, range(1000), list(range(1000)), threads, lambda n, result: None)
    sizes, submit = [], tasks.submit

    def counted():
        before = len(tasks.left)
        submit()
        sizes.append(before - len(tasks.left))

    tasks.submit = counted
    tasks.run()
    assert sizes[:4] == [1] * 4 and max(sizes) > 50 and sum(sizes) == 1000


def test_bad_input(threads, pool):
    with pytest.raises(ArgumentError, match="client is a int"):
        parallel.run_parts(square, [1], 3)
    with pytest.raises(ArgumentError, match="the function cannot be pickled.*top level of a module"):
        parallel.run_parts(threading.Lock().__enter__, [1], threads)
    with pytest.raises(ArgumentError, match="a part cannot be pickled"):
        parallel.run_parts(square, [threading.Lock()], threads)
    with pytest.raises(ArgumentError, match="progress='on'"):
        parallel.run_parts(square, [1], progress="on")
    with pytest.raises(ShapeError, match="one number of observations"):
        parallel.bootstrap(np.mean, (np.ones(3), np.ones(4)))
    with pytest.raises(ArgumentError, match="samples=0"):
        parallel.bootstrap(np.mean, np.ones(3), 0)


def test_progress(capsys):
    assert parallel.run_parts(square, range(3), progress=True) == [0, 1, 4]
    assert "3/3" in capsys.readouterr().err


def test_bootstrap(threads, tmp_path):
    x = np.random.default_rng(0).normal(size=(50, 2))
    alone = parallel.bootstrap(lambda x: x.mean(0), x, 60, seed=3)
    assert alone.shape == (60, 2)
    assert np.array_equal(
        parallel.bootstrap(functools.partial(np.mean, axis=0), x, 60, seed=3, client=threads, store=tmp_path),
        alone,
    )
    k = 31
    assert np.array_equal(alone[k], x[np.random.default_rng([3, k]).integers(50, size=50)].mean(0))


# --- the functions that take client= ---


def level(p):
    return ss.local_level(p["level"], p["noise"])


def valley(x, a):
    return (x[0] - a) ** 2 + 10 * (x[1] - x[0] ** 2) ** 2


def loglik(theta, d):
    z = (d - theta[0]) * np.exp(-theta[1])
    return -0.5 * z * z - theta[1]


def squares(x):
    return np.sum(np.sin(x) ** 2)


def decay(t, y, k):
    return -k * y


def used(kernel, prepared, solver, model, k):
    """What came by pickle, in another process."""
    return [
        kernel.grad(np.array([k, 0.1]), np.arange(5.0)),
        prepared.grad(k * np.ones(3)),
        solver(np.array([1.0]), k).y,
        ss.loglik(model, k * np.arange(9.0)),
    ]


def test_kernels_prepared_functions_solvers_and_models_travel(pool):
    prepared = tg.prepare(squares, np.ones(3))
    prepared.grad(np.ones(3))
    f = functools.partial(
        used,
        tg.kernels.likelihood(loglik),
        prepared,
        tg.ode.solver(decay, save_at=np.array([0.0, 1.0])),
        ss.local_level(0.3, 0.8),
    )
    for there, here in zip(parallel.run_parts(f, [0.1, 0.2], pool), [f(0.1), f(0.2)], strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(there, here, strict=True))


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(_panel, "SERIES_OF_PART", 3)
    monkeypatch.setattr(_many, "PROBLEMS_OF_PART", 4)


def test_fit_many(small_parts, pool, tmp_path):
    r = np.random.default_rng(2)
    Y = r.normal(size=(8, 40)).cumsum(axis=1) + r.normal(size=(8, 40))
    Y[2, 5] = np.nan
    start = {"level": 1.0, "noise": 1.0}
    whole = ss.fit_many(level, Y, start, ss.positive())
    kept = ss.fit_many(level, Y, start, ss.positive(), store=tmp_path)
    found = ss.fit_many(level, Y, start, ss.positive(), client=pool)
    again = ss.fit_many(level, Y, start, ss.positive(), client=pool, store=tmp_path)
    for name in ("estimates", "standard_errors", "loglik", "converged", "message"):
        assert np.array_equal(getattr(found, name), getattr(kept, name))
        assert np.array_equal(getattr(found, name), getattr(again, name))
    assert np.allclose(found.estimates, whole.estimates, rtol=1e-6)
    assert found.report().startswith("3 parts of up to 3 series") and found.series == whole.series


def growth(x, a, b):
    return a * np.exp(b * x)


def misfit(p, y):
    return growth(TIMES, p[0], p[1]) - y


TIMES = np.linspace(0.0, 1.0, 9)


def same_fits(found, whole):
    for name in ("x", "cost", "cov", "standard_errors", "active_mask", "converged", "status", "iterations"):
        np.testing.assert_allclose(getattr(found, name), getattr(whole, name), rtol=1e-12, atol=1e-14)


def test_fits_many(small_parts, pool, tmp_path):
    """Parts of four fits give what one call gives: shared and own data, weights, limits, missing data."""
    rng = np.random.default_rng(3)
    Y = growth(TIMES[:, None], 2.0, np.linspace(-1.0, 1.0, 10)) + 0.01 * rng.normal(size=(9, 10))
    start = np.ones((2, 10))
    limits = (np.array([0.5, -2.0]), np.stack([np.full(10, 5.0), np.linspace(1.05, 3.0, 10)]))
    whole = tg.optimize.least_squares_many(misfit, start, Y, bounds=limits, loss="soft_l1")
    kept = {"client": pool, "store": tmp_path}
    for _ in range(2):  # the second time from the store
        found = tg.optimize.least_squares_many(misfit, start, Y, bounds=limits, loss="soft_l1", **kept)
        same_fits(found, whole)
    Y[2, 7] = np.nan
    own = TIMES[:, None] + 0.01 * np.arange(10)
    for x, sigma in ((TIMES, None), (own, np.linspace(0.1, 0.3, 9)), (TIMES, 0.1 + 0.0 * own), (own, 0.2)):
        given = dict(sigma=sigma, absolute_sigma=sigma is not None, nan_policy="omit")
        whole = tg.optimize.curve_fit_many(growth, x, Y, start, **given)
        same_fits(tg.optimize.curve_fit_many(growth, x, Y, start, client=pool, **given), whole)


@pytest.mark.parametrize("method", ["newton", "bfgs"])
def test_minimize_many(small_parts, threads, method):
    a = np.linspace(0.5, 2.0, 10)
    whole = tg.optimize.minimize_many(valley, np.ones((2, 10)), (a,), method)
    found = tg.optimize.minimize_many(valley, np.ones((2, 10)), (a,), method, client=threads)
    assert np.array_equal(found.x, whole.x) and np.array_equal(found.inverse, whole.inverse)
    assert found.converged.all() and found.iterations.shape == (10,)
    assert (found.hessian is None) == (method == "bfgs")
    tree = {"u": np.ones(10), "v": np.ones((1, 10))}
    of_tree = lambda x, a: valley([x["u"], x["v"][0]], a)
    found = tg.optimize.minimize_many(
        of_tree, tree, (a,), method, client=threads if workers.cloudpickle else None
    )
    assert np.allclose(found.x["u"], a, atol=1e-5) and found.x["v"].shape == (1, 10)
