"""The structure of the package: bounds of the figures that benchmarks/structure.py reads from the sources."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("structure", ROOT / "benchmarks" / "structure.py")
structure = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(structure)

MOST = {
    "private modules at the root": 0,
    "nodes of the import graph (root modules, folders)": 28,
    "edges": 128,
    "longest path (-1: a circle)": 11,
    "lines over 110 columns": 119,
    "functions over 60 lines": 43,
    "longest module, lines": 750,
    "modules in the largest folder": 25,
    "definitions that share their name with another module, %": 12,
    "class names used twice or more": 15,
    "names of thresholds with several meanings": 10,
    "primitives named outside of ops": 20,
    "`prim.name` asked outside of ops": 10,
    "flags and optional methods of Trace": 5,
    "words a sentence, docs": 16,
    "sentences over 35 words, docs, %": 3,
    "words a sentence, docstrings": 15,
}


@pytest.fixture(scope="module")
def facts():
    return structure.facts(ROOT)


@pytest.mark.long  # `.ci/run` runs them
@pytest.mark.parametrize("name", MOST)
def test_bounds(facts, name):
    assert facts[name] <= MOST[name]


@pytest.mark.long
def test_no_circle_of_folders(facts):
    assert facts["longest path (-1: a circle)"] > 5


def test_a_circle_is_found():
    assert structure.longest_path({"a": {"b"}, "b": {"c"}, "c": set()}) == 3
    assert structure.longest_path({"a": {"b"}, "b": {"c"}, "c": {"a"}}) == -1


def test_sentences_are_counted():
    prose = "# Head\n\nOne fact is here. Two `code.words` are\nthere, too!\n\n| a | b |\n\n"
    text = prose + "```python\nx = 1.  Y = 2.\n```\n- A point. And another one\n"
    assert structure.sentences(text) == [4, 5, 2, 3]
