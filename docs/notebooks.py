"""Write the tutorials as notebooks with their output: `python docs/notebooks.py FOLDER`.

Each block of Python on a page becomes a cell that was run here, in the order of the page; the text between
them becomes Markdown. The tests of the pages compare what is printed with what stands on the page."""

import contextlib
import io
import json
import os
import re
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OUTPUT = re.compile(r"^(\s*print\(.*\))  # .*$", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+?)\.md(#[^)]*)?\)")


def lines(text: str) -> list[str]:
    return text.strip("\n").splitlines(keepends=True)


def markdown(text: str) -> dict:
    text = re.sub(r"^```\{.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)  # directives of the site
    return {"cell_type": "markdown", "metadata": {}, "source": lines(LINK.sub(r"](\1.html\2)", text))}


def code(text: str, names: dict, count: int, page: Path) -> dict:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(text, str(page), "exec"), names)
    outputs = (
        [{"output_type": "stream", "name": "stdout", "text": lines(printed.getvalue())}]
        if printed.getvalue()
        else []
    )
    source = lines(OUTPUT.sub(r"\1", text))
    return {
        "cell_type": "code",
        "metadata": {},
        "execution_count": count,
        "source": source,
        "outputs": outputs,
    }


def notebook(page: Path) -> dict:
    """The page as a notebook of version 4, each cell run."""
    names: dict = {"__name__": "__main__"}
    pieces = BLOCK.split(page.read_text(encoding="utf-8"))
    cells = []
    for n, piece in enumerate(pieces):
        if n % 2:
            cells.append(code(piece, names, n // 2 + 1, page))
        elif piece.strip():
            cells.append(markdown(piece))
    for n, cell in enumerate(cells):
        cell["id"] = f"cell-{n}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}, "cells": cells}


def main(folder: str) -> None:
    target = Path(folder).resolve()
    target.mkdir(parents=True, exist_ok=True)
    os.chdir(DOCS.parent)  # the pages read files of the checkout
    for page in sorted((DOCS / "tutorials").glob("*.md")):
        if page.stem != "index":
            text = json.dumps(notebook(page), indent=1, ensure_ascii=False)
            (target / f"{page.stem}.ipynb").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
