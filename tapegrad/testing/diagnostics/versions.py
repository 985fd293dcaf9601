"""What a report of a fault needs to say about the machine and its libraries."""

import importlib.metadata
import os
import platform
import sys

from ... import cache

try:
    import cupy
except ImportError:
    cupy = None

PACKAGES = (
    "tapegrad numpy scipy numba llvmlite cupy cupy-cuda12x cupy-cuda13x pandas matplotlib torch jax "
    "pytensor mpi4py mpich dask ipyopt".split()
)


def installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def devices() -> str:
    """The names of the CUDA devices that CuPy sees."""
    if cupy is None:
        return "CuPy is not installed"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
        return (
            ", ".join([cupy.cuda.runtime.getDeviceProperties(k)["name"].decode() for k in range(count)])
            or "none"
        )
    except Exception as error:  # no driver: the text says so
        return f"none ({error})"


def show_versions() -> None:
    """Print the versions and settings that a report of a fault needs.

    See Also
    --------
    tapegrad.cache.info : The files of compiled code.

    Examples
    --------
    >>> import tapegrad as tg
    >>> tg.show_versions()  # doctest: +ELLIPSIS
    python       3...
    """
    rows = [
        ("python", sys.version.split()[0]),
        ("machine", f"{platform.platform()}, {os.cpu_count()} processors"),
    ]
    rows += [(name, version) for name in PACKAGES if (version := installed(name)) is not None]
    rows += [("devices", devices()), ("cache", str(cache.info()))]
    rows += [(name, value) for name, value in sorted(os.environ.items()) if name.startswith("TAPEGRAD_")]
    width = max([len(name) for name, _ in rows])
    print("\n".join([f"{name.ljust(width)}  {value}" for name, value in rows]))
