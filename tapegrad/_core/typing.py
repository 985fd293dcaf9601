"""Words of the signatures, for type checkers."""

from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray  # CuPy has no type information; its arrays count as Any
Number: TypeAlias = float | complex | np.number

Shape: TypeAlias = tuple[int, ...]  # of an array; its strides too
Params: TypeAlias = dict[str, Any]  # the settings of an operation, by keyword


class Fields(Protocol):
    """A dataclass instance."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


Node: TypeAlias = tuple | list | dict | Fields
