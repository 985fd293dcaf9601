"""docs/architecture.md and docs/glossary.md name what exists, and the former every folder and root module;
and how often one gradient changes modules."""

import importlib
import re
from pathlib import Path

import numpy as np
import pytest
from frames import profiled
from layers import MODULES

import tapegrad as tg

pytestmark = pytest.mark.smoke

TEXT = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")
TOP = {name.split(".")[0] for name in MODULES}
GLOSSARY = (Path(__file__).parents[2] / "docs" / "glossary.md").read_text(encoding="utf-8")
WORDS = re.findall(r"^\| ([^|]+) \| [^|]+ \| (`.*`) \|$", GLOSSARY, re.MULTILINE)
CODE = re.findall(r"`([A-Za-z_][\w.]*)`", TEXT + "".join(place for _, place in WORDS))
NAMED = [n for n in CODE if n.split(".")[0] in TOP - {"numpy", "graph"}]
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


def test_every_folder_and_root_module_has_a_row():
    assert len(NAMED) > 30
    rows = re.findall(r"^\| (`.*?) \|", TEXT, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == TOP - {"__init__"}


def test_the_glossary_is_sorted():
    terms = [term.lower() for term, _ in WORDS]
    assert len(terms) > 50 and terms == sorted(terms)


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
    for _ in range(5):  # from then on the copy of f is kept, and code of its operations generated
        tg.grad(f)(x)
    count, rooms = moves(lambda: tg.grad(f)(x))
    assert 20 < count <= 56 and 10 < rooms <= 20
