"""Captured arrays become Variables for one call."""

from ._primitive import OPEN


class Shadow:
    def __init__(self, f, args, shadow):
        self.f, self.args = f, args

    def __enter__(self):
        OPEN.depth = getattr(OPEN, "depth", 0) + 1
        return self.f, self.args

    def __exit__(self, *error):
        OPEN.depth -= 1
