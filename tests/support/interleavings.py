"""Runs a call up to a line, then another thread, then the rest of the call."""

import sys
import threading

PACKAGE = "tapegrad"
WAITING = 0.2  # seconds; the other thread may wait for the call


class Interleaving:
    """`Interleaving({n: action, ...})(call)` returns `call()`.

    Before the n-th line of the package's code, `action` runs in a thread of its own. `lines` counts the lines.
    """

    def __init__(self, actions):
        self.actions, self.lines, self.threads = actions, 0, []

    def __call__(self, call):
        sys.settrace(self.trace)
        try:
            return call()
        finally:
            sys.settrace(None)
            for thread in self.threads:
                thread.join(30)
                assert not thread.is_alive()

    def trace(self, frame, event, _):
        if PACKAGE not in frame.f_code.co_filename:
            return None
        if event == "line":
            self.lines += 1
            if self.lines in self.actions:
                sys.settrace(None)
                thread = threading.Thread(target=self.actions[self.lines])
                self.threads.append(thread)
                thread.start()
                thread.join(WAITING)
                sys.settrace(self.trace)
        return self.trace


def count_lines(call):
    counted = Interleaving({})
    counted(call)
    return counted.lines
