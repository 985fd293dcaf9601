"""Each public name has its entry in the reference, once, and a text of its own."""

import ast
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

from tapegrad._core import registry

pytestmark = pytest.mark.smoke

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
FACES = ("numpy", "cupy", "scipy")  # NumPy's names, CuPy's, SciPy's: docs/coverage.md lists them
MODULES = [
    "tapegrad",
    "tapegrad.cache",
    "tapegrad.errors",
    *(f"tapegrad.{name}" for name in registry.PUBLIC if name not in FACES),
]


def public(module):
    """The names that a module gives: its `__all__`, or what it imports under a name `as` that name; of
    errors, the classes."""
    if hasattr(module, "__all__"):
        return set(module.__all__)
    if module.__name__ == "tapegrad.errors":
        classes = {
            name: c for name, c in vars(module).items() if isinstance(c, type) and issubclass(c, Exception)
        }
        return {
            name
            for name, c in classes.items()
            if c.__module__ == module.__name__ and name.endswith(("Error", "Warning"))
        }
    tree = ast.parse(inspect.getsource(module))
    imported = {
        a.asname
        for n in tree.body
        if isinstance(n, ast.ImportFrom)
        for a in n.names
        if a.asname and a.asname[0] != "_"
    }
    if module.__name__ == "tapegrad":
        imported = (imported | set(registry.ON_USE)) - {"cache", "errors"}
    return imported


def entries():
    """What the reference has an entry for, and the members that it lists: dotted names, as Sphinx will read
    them."""
    found = []
    for page in REFERENCE.glob("*.md"):
        current = None
        for line in page.read_text(encoding="utf-8").splitlines():
            if m := re.match(r"\.\. currentmodule:: (\S+)", line):
                current = m[1]
            elif m := re.match(r"\.\. auto(?:function|class|exception):: (\S+)", line):
                found.append(m[1] if "." in m[1] else f"{current}.{m[1]}")
                entry = found[-1]
            elif m := re.match(r"   :members: (\S.*)", line):
                found += [f"{entry}.{name}" for name in m[1].split(", ")]
    return found


ENTRIES = entries()


@pytest.mark.parametrize("name", MODULES)
def test_each_public_name_has_an_entry(name):
    module = importlib.import_module(name)
    names = public(module)
    assert names
    if name == "tapegrad.stats":  # families: one class and a list of names
        listed = set(re.findall(r"`(\w+)`", (REFERENCE / "stats.md").read_text(encoding="utf-8")))
        assert names == listed & set(dir(module))
    else:
        missing = {f"{name}.{n}" for n in names} - set(ENTRIES)
        assert not missing


def test_each_model_of_the_library_has_an_entry():
    page = (REFERENCE / "kernels.md").read_text(encoding="utf-8")
    listed = re.findall(r"automodule:: tapegrad\.kernels\.library\.(\w+)", page)
    assert sorted(listed) == sorted(registry.MODELS)
    assert all(importlib.import_module(f"tapegrad.kernels.library.{name}").__doc__ for name in listed)


def test_entries_are_there_once_and_have_a_text():
    assert len(ENTRIES) == len(set(ENTRIES)) > 100
    for entry in ENTRIES:
        text = inspect.getdoc(pkgutil.resolve_name(entry))
        assert text and len(text) > 8, entry


def sections(text):
    """The sections of a docstring in NumPy's form."""
    parts = re.split(r"^(\w[\w ]*)\n-+$", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def documented(section):
    """The names that a section of parameters describes."""
    heads = [line.partition(" : ")[0] for line in section.splitlines() if line and line[0] != " "]
    return {name.strip().lstrip("*") for head in heads for name in head.split(",")}


FUNCTIONS = [
    entry
    for entry in ENTRIES
    if inspect.isfunction(pkgutil.resolve_name(entry)) and entry.split(".")[-2].islower()
]


@pytest.mark.parametrize("entry", FUNCTIONS)
def test_docstrings_have_sections(entry):
    """Every parameter is described, and no other; `**unknown` only catches names that are refused."""
    function = pkgutil.resolve_name(entry)
    found, signature = sections(inspect.getdoc(function)), inspect.signature(function)
    assert documented(found.get("Parameters", "")) == set(signature.parameters) - {"unknown"}
    assert {"See Also", "Examples"} <= set(found)
    assert {"Returns", "Yields"} & set(found) or signature.return_annotation is None


def test_functions_are_found():
    assert len(FUNCTIONS) > 70


def test_faces_are_named():
    page = (REFERENCE / "numpy-and-scipy.md").read_text(encoding="utf-8")
    assert all(f"tapegrad.{name}" in page for name in FACES)
