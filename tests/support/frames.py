"""What a job calls: counts, which no load on the machine alters, in the place of times."""

import sys


def profiled(see, job):
    before = sys.getprofile()
    sys.setprofile(see)
    try:
        job()
    finally:
        sys.setprofile(before)


def frames_of(job):
    """The names of the functions of Python that a job runs."""
    names = []

    def note(frame, event, arg):
        if event == "call":
            names.append(frame.f_code.co_name)

    profiled(note, job)
    return names


def calls(job):
    """How many functions of Python's and of C a job calls, when it is run again."""
    job()
    n = 0

    def see(frame, event, arg):
        nonlocal n
        n += event in ("call", "c_call")

    profiled(see, job)
    return n
