"""The bootstrap: a statistic of resampled data, on several processes."""

import functools
import operator
from collections.abc import Callable

import numpy as np

from .._core.errors import ArgumentError, ShapeError
from .workers import run_parts

SAMPLES_OF_PART = 25


def bootstrap(
    statistic: Callable,
    data,
    samples: int = 1000,
    *,
    seed: int = 0,
    client=None,
    store=None,
    progress: bool | str = "auto",
) -> np.ndarray:
    """Return a statistic of resampled data, many times.

    Parameters
    ----------
    statistic : callable
        ``statistic(*data)`` returns a number or an array of one shape.
    data : array or tuple of arrays
        Their first axis is that of the observations, which are drawn with replacement.
    samples : int, default 1000
        How many times.
    seed : int, default 0
        Sample k draws from ``numpy.random.default_rng([seed, k])``, whichever process computes it.
    client : dask.distributed.Client or concurrent.futures.Executor, optional
        Who computes. Default: this process.
    store : path, optional
        A folder for results, as for `run_parts`.
    progress : bool or 'auto', default 'auto'
        As for `run_parts`.

    Returns
    -------
    array of shape (samples, ...)
        The statistic of each sample. The same numbers for every client.

    Raises
    ------
    ShapeError
        If the arrays have different numbers of observations, or none.

    See Also
    --------
    run_parts : The scheduler.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> x = np.random.default_rng(1).normal(size=100)
    >>> means = tg.parallel.bootstrap(np.mean, x, samples=200)
    >>> bool(abs(means.std() - x.std() / 10) < 0.02)
    True
    """
    arrays = tuple([np.asarray(x) for x in (data if isinstance(data, tuple) else (data,))])
    if not operator.index(samples) > 0:
        raise ArgumentError(f"bootstrap: samples={samples!r}; it is a whole number above 0")
    if len({x.shape[:1] for x in arrays}) != 1 or not arrays[0].size:
        raise ShapeError(
            f"bootstrap: the data have shapes {[x.shape for x in arrays]}; wanted one number of "
            f"observations above 0"
        )
    parts = [(k, min(k + SAMPLES_OF_PART, samples)) for k in range(0, samples, SAMPLES_OF_PART)]
    found = run_parts(
        functools.partial(resampled, statistic, arrays, seed), parts, client, store=store, progress=progress
    )
    return np.concatenate(found)


def resampled(statistic: Callable, arrays: tuple, seed: int, part: tuple) -> np.ndarray:
    """The statistic of some of the samples."""
    n = len(arrays[0])
    rows = [np.random.default_rng([seed, k]).integers(n, size=n) for k in range(*part)]
    return np.stack([np.asarray(statistic(*[x[at] for x in arrays])) for at in rows])
