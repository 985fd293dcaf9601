"""Normal numbers that depend on (seed, trajectory, step) only, by the counter-based generator Philox.

The key of the generator is (seed, trajectory). The word at step * noises + k becomes noise k of a step, by
the inverse of the normal distribution. So a word is one number, whatever else is drawn."""

import operator

import numpy as np
import scipy.special

from .._core.errors import ArgumentError

WORD = 2.0**-53  # of the upper 53 bits of a word


def normal_noise(seed: int, shape: tuple[int, ...], first: int = 0) -> np.ndarray:
    """Return the normal numbers of which a stochastic equation is solved.

    A number depends on the seed, its trajectory, its step and its noise only. So trajectories can be solved
    in any parts, on any machine, with the same numbers.

    Parameters
    ----------
    seed : int
        From 0 to 2**64 - 1.
    shape : tuple of int
        (noises, steps, B) for B trajectories, or (noises, steps) for one.
    first : int
        The number of the first trajectory.

    Returns
    -------
    ndarray
        Independent numbers with mean 0 and variance 1.

    See Also
    --------
    stochastic_solver : Takes them as `noise`, and makes them of `seed`.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> z = tg.ode.normal_noise(7, (1, 100, 5))
    >>> bool((z[:, :, 3:] == tg.ode.normal_noise(7, (1, 100, 2), first=3)).all())
    True
    """
    seed, first, *sizes = [operator.index(x) for x in (seed, first, *shape)]
    if len(sizes) not in (2, 3) or min(seed, first, *sizes) < 0 or max(seed, first + sizes[-1]) >= 2**64:
        raise ArgumentError(
            f"ode.normal_noise: seed={seed}, shape={shape}, first={first}; the shape is (noises, steps, B), "
            f"and all are >= 0"
        )
    noises, steps, batch = [*sizes, 1][:3]
    words = np.empty((batch, steps, noises), np.uint64)
    generator = np.random.Philox(key=seed)
    state = generator.state
    for b in range(batch):
        state["state"]["key"] = np.array([seed, first + b], np.uint64)
        generator.state = state
        words[b] = generator.random_raw(steps * noises).reshape(steps, noises)
    words >>= np.uint64(11)
    found = scipy.special.ndtri((words + 0.5) * WORD).transpose((2, 1, 0))
    return np.ascontiguousarray(found if len(shape) == 3 else found[:, :, 0])
