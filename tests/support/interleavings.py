"""Runs a call up to a line, then another thread, then the rest of the call."""

import sys
from concurrent.futures import ThreadPoolExecutor, wait

PACKAGE = "tapegrad"
WAITING = 0.1  # seconds; the other thread may wait for the call


def count_lines(make):
    """Return how many lines of the package's code a call of what `make()` returns runs."""
    make()()  # it may import modules
    call = make()
    counted = _Lines({}, None)
    counted.run(call)
    return counted.n


def interleaved(call, actions):
    """Return call(). Before its n-th line of the package's code another thread runs ``actions[n]()``."""
    with ThreadPoolExecutor(1) as other:
        other.submit(int).result()  # the thread is there before the call
        lines = _Lines(actions, other)
        result = lines.run(call)
        for action in lines.begun:
            action.result(30)
    return result


class _Lines:
    def __init__(self, actions, other):
        self.actions, self.other, self.n, self.begun = actions, other, 0, []

    def run(self, call):
        sys.settrace(self.trace)
        try:
            return call()
        finally:
            sys.settrace(None)

    def trace(self, frame, event, _):
        name = frame.f_code.co_filename
        if PACKAGE not in name and not name.startswith("<"):  # written code
            return None
        if event == "line":
            self.n += 1
            if self.n in self.actions:
                sys.settrace(None)
                self.begun.append(self.other.submit(self.actions[self.n]))
                wait(self.begun, WAITING)
                sys.settrace(self.trace)
        return self.trace
