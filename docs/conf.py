"""The site, by Sphinx:  pip install '.[docs]' && sphinx-build -W --keep-going docs SITE"""

import re
import sys
from importlib.metadata import version as version_of
from pathlib import Path

from docutils import nodes

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

from drawing import flowchart  # noqa: E402

project = "tapegrad"
author = "The authors of tapegrad"
copyright = "the authors of tapegrad; Apache 2.0"
version = release = version_of("tapegrad")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
napoleon_google_docstring = False
source_suffix = {".md": "markdown"}
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["wide.css"]
html_title = "tapegrad"
html_show_sphinx = False
html_copy_source = False
html_show_search_summary = (
    False  # it fetches pages, which a browser refuses where the site is opened from a disk
)
myst_heading_anchors = 3

# Docstrings have NumPy's sections, with `code` in single marks.
default_role = "code"
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "none"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 100


def as_plain_text(app, what, name, obj, options, lines):
    """Columns stay columns, and `*` outside code is no markup.  Code and the names of parameters (`*args`) stay as they are."""
    if name.startswith("tapegrad.kernels.library.") and what == "module":
        lines[:] = [lines[0], "", "::", "", *("    " + line for line in lines[1:]), ""]
        return
    paragraphs = "\n".join(lines).split("\n\n")
    for k, paragraph in enumerate(paragraphs):
        rows = paragraph.split("\n")
        if len(rows) > 3 and all(re.search(r"[^\s.:;] {2,}\S", row) for row in rows):
            paragraphs[k] = "::\n\n" + "\n".join("    " + row for row in rows)
        elif ">>> " not in paragraph and not paragraph.startswith("    "):
            paragraphs[k] = re.sub(
                r"(`+[^`]*`+|^\*+(?=\w+ :))|\*", lambda m: m[1] or r"\*", paragraph, flags=re.M
            )
    lines[:] = "\n\n".join(paragraphs).split("\n")


def carry_files(app, docname, source):
    """Links to files of the repository outside of docs/ become downloads."""
    here = (DOCS / docname).parent

    def download(m):
        outside = (here / m[2]).resolve()
        return (
            m[0]
            if outside.is_relative_to(DOCS) or not outside.is_file()
            else f"{{download}}`{m[1].replace('`', '')} <{m[2]}>`"
        )

    source[0] = re.sub(r"(?<!!)\[([^\]]*)\]\((\.\.?/[^)#]+)\)", download, source[0])


def draw_charts(app, doctree):
    for block in doctree.findall(nodes.literal_block):
        if block.get("language") == "mermaid":
            block.replace_self(nodes.raw("", flowchart(block.astext()), format="html"))


def setup(app):
    app.connect("autodoc-process-docstring", as_plain_text, priority=400)  # before the sections are read
    app.connect("source-read", carry_files)
    app.connect("doctree-read", draw_charts)
