"""`python -m tapegrad` prints the versions of a report."""

from ._debug.versions import show_versions

if __name__ == "__main__":
    show_versions()
