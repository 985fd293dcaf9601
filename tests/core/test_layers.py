"""The floors of the package: who may import whom; and what `import tapegrad` costs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tapegrad

PACKAGE = Path(tapegrad.__file__).parent

# A module imports only from floors below its own, or from what stands before it on its own floor.  A name
# that ends with a dot is a package whose modules may import each other, without a cycle.
FLOORS = [
    ["errors", "_array", "_variable", "_tree", "_pickling", "_foreign", "_flags"],
    ["_primitive", "_loans"],
    ["_tape", "_dual", "_batch", "ops", "ops._define"],
    [
        "ops.shaping",
        "ops.creation",
        "ops.indexing",
        "ops.gates",
        "ops.elementwise",
        "ops.elementwise_more",
        "ops.special",
        "ops.reductions",
        "ops.statistics",
        "ops.products",
        "ops.one_triangle",
        "ops.linalg",
        "ops.degenerate",
        "ops.spectral",
        "ops.norms",
        "ops.structured",
        "ops.sorting",
        "ops.fft",
        "ops.zero_derivative",
    ],
    ["ops.views", "ops.gathering", "ops.writing", "ops._families", "ops._protocols", "ops._attach"],
    ["_faces", "_higher", "_float_errors", "_random", "numpy", "cupy", "scipy", "stats", "_questions", "_twins"],
    ["_shadow."],
    ["_calls", "_transforms", "_transposed", "_byhand", "_functional"],
    [
        "kernels.graph.",
        "kernels.trace.",
        "kernels.emit.",
        "kernels.launch.",
        "kernels.generated.",
        "kernels.raw_code.",
        "kernels.library.",
        "kernels",
    ],
    ["prepare", "sparse", "operators", "optimize", "statespace.", "testing", "graph"],
    ["__init__"],
]


def modules():
    """Name within the package -> path."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)
        found[name] = path
    return found


MODULES = modules()


def place(name):
    """(floor, place on it, is it in a package whose modules are on a par?)."""
    for floor, names in enumerate(FLOORS):
        for k, n in enumerate(names):
            if name == n:
                return floor, k, False
            if n.endswith(".") and (name == n[:-1] or name.startswith(n)):
                return floor, k, True
    return None


def resolved(name, node):
    """The modules of the package that one import statement names."""
    if isinstance(node, ast.Import):
        targets = [a.name.removeprefix("tapegrad.") for a in node.names if a.name.partition(".")[0] == "tapegrad"]
        return [t if t != "tapegrad" else "__init__" for t in targets]
    if node.level == 0:
        if (node.module or "").partition(".")[0] != "tapegrad":
            return []
        base = node.module.split(".")[1:]
    else:
        here = [] if name == "__init__" else name.split(".")
        is_package = MODULES[name].name == "__init__.py"
        drop = node.level - 1 if is_package else node.level
        base = here[: len(here) - drop] + (node.module.split(".") if node.module else [])
    found = []
    for a in node.names:
        full = ".".join([*base, a.name])
        found.append(full if full in MODULES else ".".join(base) or "__init__")
    return found


def imports(name):
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found.update(resolved(name, node))
    return found - {name}


def test_every_module_has_a_floor():
    assert len(MODULES) > 15
    assert [name for name in MODULES if place(name) is None] == []


@pytest.mark.parametrize("name", MODULES)
def test_imports_only_from_below(name):
    mine = place(name)
    assert mine is not None
    for other in imports(name):
        assert other in MODULES, f"{name} imports {other}"
        theirs = place(other)
        assert theirs is not None, f"{other} has no floor"
        together = mine[2] and theirs[:2] == mine[:2]
        assert theirs[:2] < mine[:2] or together, f"{name} (floor {mine[0]}) imports {other} (floor {theirs[0]})"


def test_no_cycles():
    graph = {name: imports(name) for name in MODULES}
    done, open_ = set(), []

    def visit(name):
        if name in done:
            return
        assert name not in open_, " -> ".join([*open_[open_.index(name) :], name])
        open_.append(name)
        for other in sorted(graph.get(name, ())):
            if not other == name.rpartition(".")[0]:  # a package's own __init__ may import its modules
                visit(other)
        open_.pop()
        done.add(name)

    for name in graph:
        visit(name)
    assert done >= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_no_import_inside_a_function(name):
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    inside = [
        inner.lineno
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for inner in ast.walk(node)
        if isinstance(inner, (ast.Import, ast.ImportFrom))
    ]
    assert inside == []


def test_only_one_file_changes_the_class():
    """`Variable` gets its methods in ops/_attach.py, nowhere else."""
    changing = []
    for name, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            targets = node.targets if isinstance(node, ast.Assign) else []
            for t in targets:
                if isinstance(t, ast.Attribute) and isinstance(t.value, ast.Name) and t.value.id in ("Variable", "View", "V"):
                    changing.append(name)
    assert set(changing) == {"ops._attach"}


def measured(code):
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent)
    return out.stdout.split()


def test_import_loads_neither_numba_nor_cupy():
    code = "import sys, tapegrad; print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    loaded = set(measured(code))
    assert "tapegrad" in loaded and "numpy" in loaded
    assert not loaded & {"numba", "llvmlite", "cupy", "cupyx", "matplotlib", "tqdm", "torch", "jax"}


def test_import_time():
    """Under 0.6 s of processor time beyond NumPy, on a slow machine; the best of five."""
    code = "import time, numpy; t = time.process_time(); import tapegrad; print(time.process_time() - t)"
    assert min(float(measured(code)[0]) for _ in range(5)) < 0.6


def test_public_names():
    expected = """Const Tape Variable checkpoint errors grad hessian hmp hvp inplace jacobian jvp numpy
        optimize ravel rule statespace stateful stats value value_and_grad value_grad_hvp vjp""".split()
    missing = [n for n in expected if not hasattr(tapegrad, n)]
    assert missing == []
    assert {n for n in expected if n not in dir(tapegrad)} == set()
