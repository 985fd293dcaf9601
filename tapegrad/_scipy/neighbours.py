"""Trees of points, which find neighbours by values."""

from typing import Any

import numpy as np
import scipy.spatial

from .._core.arrays import xp_of
from .namespaces import bare, refusal_text


class NeighbourTree:
    """SciPy's KDTree, for points and places that may be tracked; on CuPy without a tree."""

    def __init__(self, points: Any):
        self.points = bare(points)
        self.tree = scipy.spatial.cKDTree(self.points) if xp_of(self.points) is np else None

    def query(self, x: Any, k: int) -> tuple:
        if self.tree is None:
            raise refusal_text(
                "scipy.spatial.KDTree", "CuPy's finds no neighbours here", "arrays of the host"
            )
        return self.tree.query(bare(x), k)

    def query_ball_point(self, x: Any, r: Any) -> Any:
        x, r = bare(x), bare(r)
        if self.tree is not None:
            return self.tree.query_ball_point(x, r)
        return (((self.points - x) ** 2).sum(-1) <= r * r).nonzero()[0].tolist()
