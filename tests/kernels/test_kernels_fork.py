"""A child that was forked while another thread compiles can compile, too, and differentiate."""

import os
import signal
import sys
import threading
import time

import numpy as np
import pytest

import tapegrad as tg

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
THETA, Y = np.ones((2, 3)), np.array([0.5, 0.6])
BUFFER = np.zeros(3)


def kernel(c):
    return tg.kernels.likelihood(lambda t, y: -t[0] * (y - t[1] * c) ** 2)


def in_child(n):
    value, gradient = kernel(1000.5 + n).value_and_grad(THETA, Y)
    right = [-np.sum((Y - 1000.5 - n) ** 2)] * 3

    def f(x):
        BUFFER[:] = x * x
        return (BUFFER * x).sum()

    return np.allclose(value, right) and np.allclose(tg.grad(f)(np.arange(3.0)), 3 * np.arange(3.0) ** 2)


def forked(n):
    """The status of a child that may take a minute: it may have to compile on a busy machine."""
    child = os.fork()
    if child == 0:
        os._exit(0 if in_child(n) else 1)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "it hung"


@pytest.mark.parametrize("children", [2, pytest.param(8, marks=pytest.mark.long)])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_children_of_a_process_that_compiles(monkeypatch, children):
    monkeypatch.setenv("TAPEGRAD_CACHE", "")
    kernel(0.5)(THETA, Y)
    stop, compiled = threading.Event(), []

    def work():
        while not stop.is_set():
            compiled.append(kernel(2.0 + len(compiled) / 7).value_and_grad(THETA, Y))
            tg.grad(lambda x: (BUFFER * x).sum())(np.ones(3))

    other = threading.Thread(target=work)
    other.start()
    try:
        found = []
        for n in range(children):
            time.sleep(0.003 * n)
            found.append(forked(n))
    finally:
        stop.set()
        other.join()
    assert found == [0] * children and compiled and sys.exception() is None
