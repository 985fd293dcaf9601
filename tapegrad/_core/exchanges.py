"""How the processes of a group agree on what each does with a prepared function that exchanges data.

A group is an object with the methods `begin_replay` and `end_replay`: `tapegrad.parallel.ranks.Ranks`. All
processes of a group replay a call, or all record it, or all run it plainly. They replay what they recorded in
one call, because a recording holds what the others sent then: sizes, for example. If the replay of one fails,
all give up theirs. A replay leaves nothing behind before its end, so it can be given up."""

REPLAYED, RECORDED, PLAIN = range(3)  # what a process asks for; the group does the largest


class ReplayGivenUp(BaseException):
    """Raised by an exchange within a replay if another process has given up its replay.

    No operation catches it, because it is no `Exception`."""
