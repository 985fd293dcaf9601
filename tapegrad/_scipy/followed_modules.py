"""Modules of SciPy whose functions are followed, all of them: they are written in Python.

What they have compiled stands in a rule below, or is refused for tracked values."""

from types import ModuleType
from typing import Any

import numpy as plain_np
import scipy.cluster.vq as vq
import scipy.constants
import scipy.differentiate
import scipy.stats.contingency
import scipy.stats.qmc

from .. import numpy as np
from .._dispatch.faces import FACES, faces_of, is_function
from ..ops.declare import shape
from .followed import Follower
from .namespaces import SciPyNamespace, bare
from .spatial import METRICS
from .statistics import STATS

FOLLOWED = Follower(
    "scipy.cluster",
    "scipy.constants",
    "scipy.differentiate",
    "scipy.stats.contingency",
    "scipy.stats._qmc",
)


def nearest(points, centres) -> tuple:
    """(the number of the nearest centre, the distance to it), of each point."""
    codes, _ = vq._vq.vq(bare(points), bare(centres))
    points, centres = [np.reshape(x, (*shape(x), 1)[:2]) for x in (points, centres)]
    return codes, METRICS["euclidean"](points, np.take(centres, codes, 0))


def means_of_clusters(points, labels, count: int) -> tuple:
    """(the mean of the points with each label, whether there are any)"""
    member = bare(labels) == plain_np.arange(count)[:, None]
    sizes = member.sum(1)
    return member @ points / plain_np.maximum(sizes, 1)[:, None], sizes > 0


FOLLOWED.leaf(vq._vq.vq, nearest)
FOLLOWED.leaf(vq._vq.update_cluster_means, means_of_clusters)


def followed(real: ModuleType, of_functions: bool = False):
    """The stand-in for a module, with its functions followed; those of scipy.stats have their rules there."""
    space, module = SciPyNamespace(real, listed=False), faces_of(f"tapegrad.{real.__name__}", real)
    for name in real.__all__:
        f = getattr(real, name)
        if is_function(f):
            owner = STATS if f in STATS.rules else space
            if owner is space:
                space.rule(f, of_functions=of_functions)(FOLLOWED.function(f))
            module.__dict__[name] = FACES[f] = FACES.get(f) or owner.face(f)
    return module


cluster: Any = faces_of("tapegrad.scipy.cluster", scipy.cluster)
cluster.vq = followed(vq)
constants = followed(scipy.constants)
differentiate = followed(scipy.differentiate, of_functions=True)
contingency = followed(scipy.stats.contingency)
qmc = followed(scipy.stats.qmc)
