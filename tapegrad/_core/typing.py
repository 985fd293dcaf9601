"""Words of the signatures, for type checkers."""

from collections.abc import Callable
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray  # CuPy has no type information; its arrays count as Any
Number: TypeAlias = float | complex | np.number

# Containers whose members may be anything: values of the user's program, trees and their leaves, slots of a
# trace.
AnyTuple: TypeAlias = tuple[Any, ...]
AnyList: TypeAlias = list[Any]
AnyDict: TypeAlias = dict[Any, Any]
AnyFunction: TypeAlias = Callable[..., Any]

Shape: TypeAlias = tuple[int, ...]  # of an array; its strides too
Params: TypeAlias = dict[str, Any]  # the settings of an operation, by keyword


class Fields(Protocol):
    """A dataclass instance."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


Node: TypeAlias = AnyTuple | AnyList | AnyDict | Fields
