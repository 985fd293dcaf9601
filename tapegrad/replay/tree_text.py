"""Texts of Python that take trees of one form apart, and put them together."""

import functools
import types
from typing import Any

from .._core.trees import AuxiliaryData, children, flattened, flattening_of, is_node, leaves, rebuilt

PLAIN: dict[type, str] = {tuple: "({0})", list: "[{0}]"}


def node_signature(x) -> tuple:
    """What two nodes share whose members may be compared."""
    beside = (
        tuple(x)
        if isinstance(x, dict)
        else None
        if flattening_of(type(x)) is None
        else AuxiliaryData(flattened(x)[1])
    )
    return type(x), beside, len(children(x))


@functools.lru_cache(256)
def compiled_tree_text(text: str) -> types.CodeType:
    """Compile a text. Those of trees of one form are the same."""
    return compile(text, "<tapegrad arguments>", "exec")


class TreeText:
    """The lines of a function of trees, and what they name."""

    def __init__(self) -> None:
        self.space: dict[str, Any] = {}
        self.lines: list[str] = []
        self.members = 0

    def given(self, x) -> str:
        name = f"c{len(self.space)}"
        self.space[name] = x
        return name

    def function(self, head: str):
        """Return the function of these lines."""
        text = "".join([f"    {line}\n" for line in self.lines])
        exec(compiled_tree_text(f"def made({head}):\n{text}"), self.space)
        return self.space.pop("made")

    def names(self, count: int) -> list:
        self.members += count
        return [f"x{n}" for n in range(self.members - count, self.members)]

    def unpack(self, names: list, text: str) -> None:
        if names:
            self.lines.append(f"{', '.join(names)}, = {text}")

    def take(self, name: str, x) -> list:
        """The names of the leaves of a tree. None is returned for a tree unlike x."""
        if not is_node(x):
            return [name]
        kind, members = type(x), children(x)
        text, same = name, f"len({name}) == {len(members)}"
        if kind is dict:
            text, same = f"{name}.values()", f"(*{name},) == {self.given(tuple(x))}"
        elif kind not in PLAIN:
            text = f"{self.given(children)}({name})"
            same = f"{self.given(node_signature)}({name}) == {self.given(node_signature(x))}"
        self.lines.append(f"if type({name}) is not {self.given(kind)} or not {same}: return None")
        names = self.names(len(members))
        self.unpack(names, text)
        return [leaf for n, m in zip(names, members, strict=True) for leaf in self.take(n, m)]

    def put(self, x, names) -> str:
        """The text of a tree like x with leaves of these names, an iterator."""
        if not is_node(x):
            return next(names)
        members = [self.put(m, names) for m in children(x)]
        if type(x) is dict:
            pairs = zip(x, members, strict=True)
            return f"{{{', '.join([f'{self.given(key)}: {member}' for key, member in pairs])}}}"
        listed = "".join([f"{member}, " for member in members])
        if type(x) in PLAIN:
            return PLAIN[type(x)].format(listed)
        return f"{self.given(rebuilt)}({self.given(x)}, [{listed}])"


def builder(x):
    """Return ``build(leaves)``, which gives a tree like x."""
    made = TreeText()
    names = made.names(len(leaves(x)))
    made.unpack(names, "leaves")
    made.lines.append(f"return {made.put(x, iter(names))}")
    return made.function("leaves")
