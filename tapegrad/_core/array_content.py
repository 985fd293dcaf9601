"""What `x.tobytes()` gives for a tracked x: a key for memos, from which no number can be read."""

from typing import Any

from .errors import DroppedDerivativeError
from .primitive import is_tracked


class Content:
    """It is equal to the content of arrays of the same transform only. So what an earlier call has left in a
    memo, which is a constant, is not found, and is computed again."""

    __slots__ = ("_key",)

    def __init__(self, level: float, content: bytes):
        self._key = level, content

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Content) and self._key == other._key

    def __getattr__(self, name: str) -> Any:
        raise DroppedDerivativeError(
            f"x.tobytes().{name} of a tracked value would drop its derivative in silence; use numpy's "
            "functions, which keep it, or tapegrad.value(x) where the plain number is wanted"
        )

    def __len__(self) -> int:
        return int(self.__getattr__("__len__"))


def memo_key(x: Any, content: bytes) -> Any:
    """The content of x; a `Content` of a tracked one."""
    return Content(x._trace.level, content) if is_tracked(x) else content
