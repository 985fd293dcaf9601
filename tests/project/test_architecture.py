"""docs/architecture.md names what exists, and all of it; and how often one gradient changes rooms."""

import importlib
import re
from pathlib import Path

import numpy as np
import pytest
from frames import profiled
from layers import FLOORS, MODULES

import tapegrad as tg

pytestmark = pytest.mark.smoke

TEXT = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")
TOP = {name.split(".")[0] for name in MODULES}
NAMED = [n for n in re.findall(r"`([A-Za-z_][\w.]*)`", TEXT) if n.split(".")[0] in TOP - {"numpy", "graph"}]
PICTURE = "".join(re.findall(r"```mermaid\n(.*?)```", TEXT, re.DOTALL))
NAMED += [n for n in re.findall(r"\b(?:ops\.)?_\w+\b", PICTURE) if n.strip("_")]


def found(name):
    """The module, or the object in a module, that a dotted name of the package says."""
    parts = name.split(".")
    for n in range(len(parts), 0, -1):
        try:
            x = importlib.import_module(".".join(["tapegrad", *parts[:n]]))
        except ModuleNotFoundError:
            continue
        for part in parts[n:]:
            x = getattr(x, part)
        return x
    raise AttributeError(name)


@pytest.mark.parametrize("name", sorted(set(NAMED)))
def test_what_is_named_exists(name):
    assert found(name) is not None


def test_every_room_is_named():
    assert len(NAMED) > 30
    rooms = {name for floor in FLOORS for name in floor if name.endswith(".")}
    rooms = {room.removesuffix(".").rpartition(".")[2] for room in rooms}
    assert [room for room in rooms if not re.search(rf"\b{room}\b", TEXT)] == []


def moves(call):
    """How often `call` goes from a module of the package into another, and how many it enters."""
    seen = []

    def room(frame):
        name = frame.f_globals.get("__name__") or ""
        return name if name.startswith("tapegrad") else None

    def called(frame, event, arg):
        if event == "call" and room(frame):
            outer = frame.f_back
            while outer is not None and room(outer) is None:
                outer = outer.f_back
            if outer is None or room(outer) != room(frame):
                seen.append(room(frame))

    profiled(called, call)
    return len(seen), len(set(seen))


@pytest.mark.unsealed
def test_moves_between_rooms():
    """`grad(sum(sin x))`: a reader who follows it changes file so often."""
    f, x = lambda x: np.sum(np.sin(x)), np.ones(3)
    tg.grad(f)(x)
    count, rooms = moves(lambda: tg.grad(f)(x))
    assert 20 < count <= 66 and 10 < rooms <= 24
