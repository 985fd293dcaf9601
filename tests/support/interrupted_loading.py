"""A program: python interrupted_loading.py COUNT SEED

COUNT times, a signal arrives at a place drawn at random in the first calls of a process, which load and
declare what they use. Afterwards the calls are right, and the handler of the signal is the same."""

import os
import random
import signal
import sys

import numpy as np
import scipy.linalg
import scipy.signal
import scipy.special
from scipy.spatial.transform import Rotation

import tapegrad as tg

X = np.array([0.7, 1.2, 1.9])
FILES = os.path.dirname(tg.__file__), "<frozen importlib"


def f(x):
    a = scipy.linalg.expm(np.outer(x, x) * 0.1)
    y = scipy.signal.lfilter(x[:1], [1.0, 0.3], scipy.special.gammaln(x))
    return a[0].sum() + y @ y + Rotation.from_rotvec(x).as_matrix()[0, 1] + np.polynomial.Polynomial(x)(0.5)


def handler(number, frame):
    """It reads the globals of all frames, as those do that report where a program hangs."""
    while frame is not None:
        list(frame.f_globals)
        frame = frame.f_back
    raise KeyboardInterrupt


def calls():
    return tg.grad(f)(X), tg.vmap(tg.grad(f))(X[None])[0], tg.prepare(f, X).grad(X)


class Places:
    """Calls of functions and turns of loops, where CPython looks for signals; one arrives at the k-th."""

    def __init__(self, k):
        self.k, self.count = k, 0

    def __call__(self, frame, event, arg):
        if not frame.f_code.co_filename.startswith(FILES):
            return None
        self.count += 1
        if self.count == self.k:
            signal.raise_signal(signal.SIGALRM)
        return None


def struck(k):
    """How many places there were, or 0 if the signal did not arrive."""
    places, arrived = Places(k), False
    sys.settrace(places)
    try:
        calls()
    except KeyboardInterrupt:
        arrived = True
    finally:
        sys.settrace(None)
    return places.count if arrived == (k > 0) else 0


def in_child(run):
    """The number that the function gives in a child process."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.write(writing, str(run()).encode())
        os._exit(0)
    os.wait()
    os.close(writing)
    with os.fdopen(reading) as pipe:
        return int(pipe.read() or 0)


def is_right_after(k, wanted):
    if not struck(k) or signal.getsignal(signal.SIGALRM) is not handler:
        return 0
    return int(all(np.allclose(found, wanted, rtol=1e-5) for found in calls()))


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, handler)
    count, chosen = int(sys.argv[1]), random.Random(sys.argv[2])
    wanted = np.array([(f(X + 1e-6 * e) - f(X - 1e-6 * e)) / 2e-6 for e in np.eye(3)])
    size = in_child(lambda: struck(0)) // 3  # where most is loaded
    wrong = [
        k for k in chosen.sample(range(1, size), count) if not in_child(lambda k=k: is_right_after(k, wanted))
    ]
    sys.exit(f"wrong after a signal at {wrong} of {size}" if wrong else 0)
