"""What `x.tobytes()` and digests give for a tracked x: a key for memos, from which no number can be read."""

from typing import Any

from .errors import DroppedDerivativeError
from .primitive import is_tracked
from .variable import HANDLES


class Content:
    """It is equal to the content of arrays of the same transform only. So what an earlier call has left in a
    memo, which is a constant, is not found, and is computed again."""

    __slots__ = ("level", "content")

    def __init__(self, level: float, content: Any):
        self.level, self.content = level, content

    def __hash__(self) -> int:
        return hash((self.level, self.content))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Content) and (self.level, self.content) == (other.level, other.content)

    def __getattr__(self, name: str) -> Any:
        if name not in dir(type(self.content)):
            raise AttributeError(name)
        raise DroppedDerivativeError(
            f"x.tobytes().{name} of a tracked value, or of its digest, would drop its derivative in silence; "
            "use numpy's functions, which keep it, or tapegrad.value(x) where the plain number is wanted"
        )

    def __len__(self) -> int:
        return int(self.__getattr__("__len__"))


def content_of(x: Any) -> Any:
    """The content of a tracked array; anything else as it is."""
    return x.tobytes() if type(x) in HANDLES and is_tracked(x) else x


def memo_key(x: Any, content: bytes) -> Any:
    """The content of x; a `Content` of a tracked one."""
    return Content(x._trace.level, content) if is_tracked(x) else content
