"""`python -m tapegrad` prints the versions of a report."""

from .testing.diagnostics.versions import show_versions

if __name__ == "__main__":
    show_versions()
