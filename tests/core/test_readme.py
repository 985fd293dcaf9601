"""The Python of README.md and docs/ runs, and prints what stands in the comment behind each `print`; links lead to files."""

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def python_of(page):
    """The blocks of Python on the page, each after as many empty lines as bring its line numbers to those of the page."""
    text = page.read_text()
    blocks = re.finditer(r"^```python\n(.*?)^```$", text, re.M | re.S)
    return ["\n" * text[: b.start(1)].count("\n") + b[1] for b in blocks]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_page(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    names = {"__name__": page.stem}
    for code in python_of(page):
        expected = re.findall(r"^ *print\(.*\)  # (.*)$", code, re.M)
        assert len(expected) == code.count("print("), "a print without its output"
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(page), "exec"), names)
        assert printed.getvalue().splitlines() == expected


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_readme_has_python():
    assert len(python_of(ROOT / "README.md")) >= 4
