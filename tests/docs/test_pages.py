"""The Python of README.md and of every page in docs/ runs, and prints what stands in the comment behind each
`print`; links lead to files, and to headings in them; pictures are those that their script draws."""

import contextlib
import io
import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


def python_of(page):
    """The blocks of Python on the page, each after as many empty lines as bring its line numbers to those of
    the page."""
    text = page.read_text(encoding="utf-8")
    blocks = re.finditer(r"^```python\n(.*?)^```$", text, re.M | re.S)
    return ["\n" * text[: b.start(1)].count("\n") + b[1] for b in blocks]


EXTRA = {
    "scale.md": [pytest.mark.mpi],
    "samplers-and-optimisers.md": [pytest.mark.interop, pytest.mark.filterwarnings("ignore")],
    "neighbours.md": [
        pytest.mark.interop,
        pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated"),
    ],
}
# They compile for seconds; `.ci/run` runs them.
SLOW = {
    "differential-equations.md",
    "forecasting.md",
    "optimisation.md",
    "raw-kernels.md",
    "state-space.md",
    "gpu.md",
}
EXTRA.update(dict.fromkeys(SLOW, [pytest.mark.long]))


@pytest.mark.parametrize(
    "page", [pytest.param(p, marks=EXTRA.get(p.name, ()), id=n) for p, n in zip(PAGES, NAMES, strict=True)]
)
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


def anchors(page):
    """The headings of a page, as a link writes them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    return {
        re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.*)$", text, re.M)
    }


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links(page):
    for target, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", page.read_text(encoding="utf-8")):
        leads = (page.parent / target).resolve() if target else page
        assert leads.exists(), target
        assert not anchor or anchor in anchors(leads), f"{target}#{anchor}"


def test_readme_has_python():
    assert len(python_of(ROOT / "README.md")) >= 4


def test_every_page_is_reached():
    """Each page is in a table of contents of the site, or it could not be found there."""
    pages, entries = list(DOCS.rglob("*.md")), set()
    for page in pages:
        for tree in re.findall(r"^```\{toctree\}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S):
            entries |= {(page.parent / entry).resolve() for entry in re.findall(r"^[\w/-]+$", tree, re.M)}
    assert {page.with_suffix("") for page in pages} - entries == {DOCS / "index"}


def script(name):
    spec = spec_from_file_location(name, DOCS / f"{name}.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def drawing():
    return script("drawing")


def test_faults_of_a_site_are_found(tmp_path):
    (tmp_path / "a.html").write_text(
        '<html><body><h1 id="top">a</h1><a href="b.html#there">b</a><img src="p.svg"></body></html>'
    )
    (tmp_path / "b.html").write_text(
        '<html><body><p id="there">b<br/></p><a href="https://elsewhere.org/x">c</a></body></html>'
    )
    (tmp_path / "p.svg").write_text("<svg/>")
    faults = script("check_site").faults
    assert faults(tmp_path) == []
    (tmp_path / "b.html").write_text(
        '<html><body><p id="here">b</div><p id="here"><a href="c.html">c</a><a href="#no">d</a></body></html>'
    )
    (tmp_path / "p.svg").unlink()
    found = "\n".join(faults(tmp_path))
    for text in (
        "b.html#there leads to no element",
        "p.svg leads to no file",
        "c.html leads to no file",
        "#no leads to no element",
    ):
        assert text in found
    assert "two elements have the name here" in found and "closes nothing" in found


@pytest.mark.parametrize("name", ["tape", "levels"])
def test_pictures_are_as_drawn(name, drawing):
    assert (DOCS / "pictures" / f"{name}.svg").read_text(encoding="utf-8") == getattr(drawing, name)()


def test_charts_have_each_box_once_and_apart(drawing):
    for chart in re.findall(
        r"```mermaid\n(.*?)```", (DOCS / "architecture.md").read_text(encoding="utf-8"), re.S
    ):
        svg = drawing.flowchart(chart)
        boxes = np.array(
            re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', svg), float
        )
        assert len(boxes) == len(re.findall(r'\w+\["', chart)) >= 7
        low, high = boxes[:, :2], boxes[:, :2] + boxes[:, 2:]
        overlap = np.all((low[:, None] < high[None]) & (low[None] < high[:, None]), axis=2)
        assert overlap.sum() == len(boxes)
        arrows = sum(line.count("-->") for line in chart.splitlines())
        assert svg.count("<line") == arrows


def test_a_notebook_prints_what_stands_on_its_page(monkeypatch):
    monkeypatch.chdir(ROOT)
    page = DOCS / "tutorials" / "first-gradient.md"
    cells = script("notebooks").notebook(page)["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    printed = [line.rstrip("\n") for cell in code for out in cell["outputs"] for line in out["text"]]
    assert printed == re.findall(r"^ *print\(.*\)  # (.*)$", page.read_text(encoding="utf-8"), re.M)
    assert len(code) == len(python_of(page)) and not any("  # " in line for line in code[0]["source"])
