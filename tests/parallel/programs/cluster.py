"""Fits on a local Dask cluster: `killed` loses a worker half-way, `client` its own process, `again`
resumes."""

import functools
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
from distributed import Client, LocalCluster

from tapegrad import parallel
from tapegrad import statespace as ss
from tapegrad.statespace import _panel

PARTS = 24


def noted(folder, k):
    """A number of part k, and a file for each run of it."""
    time.sleep(0.02)
    (Path(folder) / f"run-{k}-{os.getpid()}-{time.monotonic_ns()}").touch()
    return float(np.random.default_rng(k).normal())


def runs(folder, k):
    return len(list(Path(folder).glob(f"run-{k}-*")))


def level(p):
    return ss.local_level(p["level"], p["noise"])


def main(case, folder):
    wanted = [float(np.random.default_rng(k).normal()) for k in range(PARTS)]
    f, store = functools.partial(noted, folder), Path(folder) / "store"
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        if case == "killed":
            pids = client.run(os.getpid)
            done = [0]

            def kill_one(self, n, result, save=parallel.workers.ResultStore.save):
                save(self, n, result)
                done[0] += 1
                if done[0] == PARTS // 4:
                    os.kill(next(iter(pids.values())), signal.SIGKILL)

            parallel.workers.ResultStore.save = kill_one
            assert parallel.run_parts(f, range(PARTS), client, store=store) == wanted
            assert len(list(store.iterdir())) == PARTS and all(runs(folder, k) >= 1 for k in range(PARTS))
            r = np.random.default_rng(0)
            Y = r.normal(size=(6, 40)).cumsum(axis=1) + r.normal(size=(6, 40))
            _panel.SERIES_OF_PART = 3
            fit = functools.partial(ss.fit_many, level, Y, {"level": 1.0, "noise": 1.0}, ss.positive())
            fits = [fit(client=client), fit(store=store)]
            assert np.array_equal(fits[0].estimates, fits[1].estimates) and fits[0].converged.all()
            x = r.normal(size=60)
            assert np.array_equal(
                parallel.bootstrap(np.median, x, 60, client=client), parallel.bootstrap(np.median, x, 60)
            )
        elif case == "client":
            done = [0]

            def die(self, n, result, save=parallel.workers.ResultStore.save):
                save(self, n, result)
                done[0] += 1
                if done[0] == PARTS // 2:
                    os.kill(os.getpid(), signal.SIGKILL)

            parallel.workers.ResultStore.save = die
            parallel.run_parts(f, range(PARTS), client, store=store)
        else:
            kept = {
                int(p.name.split("-")[1]): runs(folder, int(p.name.split("-")[1]))
                for p in store.glob("part-*")
            }
            assert len(kept) == PARTS // 2
            assert parallel.run_parts(f, range(PARTS), client, store=store) == wanted
            assert all(runs(folder, k) == n for k, n in kept.items()), "a finished part ran twice"
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
