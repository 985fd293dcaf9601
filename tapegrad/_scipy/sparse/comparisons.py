"""The elements of sparse matrices, compared with numbers and with those of other matrices."""

import operator
from typing import Any

import scipy.sparse as sps

from ... import numpy as np
from ..namespaces import Carrier, bare
from .places import is_scalar_operand


class ElementComparisons:
    """The part of a sparse matrix that compares."""

    format: str

    def maximum(self: Any, other: Any) -> Any:
        return self._extreme(np.maximum, other, operator.gt)

    def minimum(self: Any, other: Any) -> Any:
        return self._extreme(np.minimum, other, operator.lt)

    def _extreme(self: Any, f: Any, other: Any, fills: Any) -> Any:
        """`fills`: the comparison with 0 of a number that takes the place of elements which are not stored."""
        if not hasattr(type(self)._theirs, "_maximum_minimum"):  # of SciPy before 1.16
            self = self.tocsr()
        if is_scalar_operand(other):
            if fills(bare(other), 0):
                return type(self)(f(self.toarray(), other))
            found = (self if self.format == "csc" else self.tocsr())._with_sums(lambda v: f(v, other))
        elif not (isinstance(other, Carrier) or sps.issparse(other)):
            return f(self.toarray(), other)
        else:  # both with elements at the places of either
            second = self._with(np.zeros_like) + type(self)(other)
            found = self + second._with(np.zeros_like)
            found.sum_duplicates()
            second.sum_duplicates()
            found.data = f(found.data, second.data)
        found.eliminate_zeros()
        return found
