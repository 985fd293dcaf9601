"""`graph`: the records of one call, as text and drawn."""

import shutil
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.testing.diagnostics.graph import layer_nodes

pytestmark = pytest.mark.smoke

BUFFER = np.full(3, 0.5)


def f(x, y):
    BUFFER[:2] = np.sin(x) * y
    a, b = np.linalg.slogdet(np.outer(x, x) + np.eye(2))
    return BUFFER.sum() + b


X = np.array([0.3, 0.4])


def test_each_operation_stands_there_with_its_line_and_inputs():
    g = tg.graph(f, X, 2.0)
    names = [n.name for n in g.nodes]
    assert names[:2] == ["argument", "argument"] and {
        "sin",
        "multiply",
        "assign",
        "slogdet",
        "sum",
        "add",
    } <= set(names)
    product = g.nodes[names.index("multiply")]
    assert product.inputs == (names.index("sin"), 1) and product.kind == "float64 (2,)"
    assert all([i < k for k, n in enumerate(g.nodes) for i in n.inputs])
    assert [n.name for n in g.nodes if n.result] == ["add"]
    text = str(g)
    assert "BUFFER[:2] = np.sin(x) * y" in text and __file__ in text and f"%{names.index('multiply')}" in text
    assert (BUFFER == 0.5).all()


def test_what_does_not_depend_on_the_argument_is_not_there():
    assert [n.name for n in tg.graph(lambda x: np.sum(np.exp(X)), X).nodes] == ["argument"]


def test_nested_transforms_and_devices(xp):
    g = tg.graph(lambda x: tg.grad(lambda x: xp.sum(x**3))(x), xp.asarray(X))
    assert len(g.nodes) > 2 and any([n.result for n in g.nodes])


def drawn(text):
    return len(ElementTree.fromstring(text).findall("{http://www.w3.org/2000/svg}rect"))


def test_drawings(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    g = tg.graph(f, X, 2.0)
    assert drawn(g.svg()) == len(g.nodes) == g.dot().count("[label=")
    assert g.dot().count("->") == sum(len(n.inputs) for n in g.nodes) == g.svg().count("<line")
    g.save(str(tmp_path / "tape.svg"))
    assert (tmp_path / "tape.svg").read_text() == g.svg() == g._repr_svg_()


def test_no_two_boxes_overlap():
    tree = ElementTree.fromstring(layer_nodes(tg.graph(f, X, 2.0).nodes))
    boxes = [(float(r.get("x")), float(r.get("y"))) for r in tree.iter("{http://www.w3.org/2000/svg}rect")]
    assert len(set(boxes)) == len(boxes)
    for n, (x, y) in enumerate(boxes):
        assert all([abs(x - u) >= 150 or abs(y - v) >= 40 for u, v in boxes[:n]])


def test_graphviz_is_asked_where_it_is(tmp_path, monkeypatch):
    program = tmp_path / "dot"
    program.write_text("#!/bin/sh\ncat > /dev/null\necho '<svg/>'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert tg.graph(f, X, 2.0).svg() == "<svg/>\n"


def test_a_long_tape_is_cut():
    def long(x):
        for _ in range(400):
            x = x * 1.5
        return x

    text = str(tg.graph(long, 1.0))
    assert "graph(long): 400 operations" in text and "and 101 more" in text


def test_bad_input():
    for call in (lambda: tg.graph(3, X), lambda: tg.graph(f, 1)):
        with pytest.raises(tg.errors.ArgumentError):
            call()
