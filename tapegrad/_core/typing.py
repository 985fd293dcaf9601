"""Words of the public signatures, for type checkers."""

from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray  # CuPy's, which has no types, counts as Any
Number: TypeAlias = float | complex | np.number


class Fields(Protocol):
    """A dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


Node: TypeAlias = tuple[Any, ...] | list[Any] | dict[Any, Any] | Fields
