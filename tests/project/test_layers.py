"""The floors of the package: who may import whom; and what `import tapegrad` costs."""

import ast
import functools
import importlib
import re
import subprocess
import sys
import tomllib

import pytest
from layers import FLOORS, MODULES, PACKAGE, trees

import tapegrad
from tapegrad._core import registry


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
        targets = [
            a.name.removeprefix("tapegrad.") for a in node.names if a.name.partition(".")[0] == "tapegrad"
        ]
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


STUBS = frozenset(("_core.attached",))  # for type checkers only


@functools.cache
def imports(name):
    found = set()
    for node in ast.walk(trees()[name]):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found.update(resolved(name, node))
    return found - {name} - STUBS


def test_every_module_has_a_floor():
    assert len(MODULES) > 15
    assert [name for name in MODULES if place(name) is None] == []


def upwards(name):
    """What a module imports that does not lie below it."""
    mine = place(name)
    assert mine is not None
    for other in imports(name):
        assert other in MODULES, f"{name} imports {other}"
        theirs = place(other)
        assert theirs is not None, f"{other} has no floor"
        together = mine[2] and theirs[:2] == mine[:2]
        if not (theirs[:2] < mine[:2] or together):
            yield f"{name} (floor {mine[0]}) imports {other} (floor {theirs[0]})"


def test_imports_only_from_below():
    assert [line for name in MODULES for line in upwards(name)] == []


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


def inside_functions(node, within=False):
    """The lines of the imports inside functions."""
    for child in ast.iter_child_nodes(node):
        if within and isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child.lineno
        if isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):  # no expression holds an import
            yield from inside_functions(
                child, within or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
            )


def test_no_import_inside_a_function():
    nested = ast.parse("def f():\n  if 1:\n    try: pass\n    except E:\n      import a")
    assert list(inside_functions(nested)) == [5]
    assert [(name, line) for name in MODULES for line in inside_functions(trees()[name])] == []


# --- arrows that no import shows: all are declared in tapegrad/_core/registry.py ---

CHANGING = frozenset(
    (
        "update",
        "setdefault",
        "append",
        "add",
        "extend",
        "insert",
        "pop",
        "clear",
        "remove",
        "__setitem__",
        "__setattr__",
    )
)
IMPORTERS = frozenset(("importlib", "imp", "pkgutil", "runpy", "zipimport"))


@functools.cache
def origin(module, name):
    """module.name, or where that was imported from."""
    if module in STUBS:
        return f"{module}.{name}"
    for node in trees()[module].body:
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("tapegrad")):
            for a, full in zip(node.names, resolved(module, node), strict=True):
                if (a.asname or a.name) == name and full.rpartition(".")[2] != a.name:
                    return origin(full, a.name)
    return f"{module}.{name}"


def hidden(name, tree):
    """(kind, what) of each hidden arrow: ("import", module) by Python's own means; ("load", module or None)
    by `load`; ("gives", name) and ("calls", name) of `late`; ("fills", module.name) of an object from another
    module whose attributes or entries are set."""
    known, late, load = {}, set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from [("import", a.name) for a in node.names if a.name.partition(".")[0] in IMPORTERS]
        if isinstance(node, ast.ImportFrom):
            if node.level == 0 and (node.module or "").partition(".")[0] in IMPORTERS:
                yield "import", node.module
            for a, full in zip(node.names, resolved(name, node), strict=False):
                mine = a.asname or a.name
                known[mine] = (
                    full if full.rpartition(".")[2] == a.name and full in MODULES else origin(full, a.name)
                )
                if full == "_core.registry":
                    (late if a.name == "late" else load if a.name == "load" else set()).add(mine)
    for node in tree.body:  # V = Variable
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id in known:
            known.update(
                {target.id: known[node.value.id] for target in node.targets if isinstance(target, ast.Name)}
            )

    def filled(x):
        names = []
        while isinstance(x, (ast.Attribute, ast.Subscript)):
            names += [x.attr] if isinstance(x, ast.Attribute) else []
            x = x.value
        if isinstance(x, ast.Name) and x.id in known and x.id not in late:
            what = known[x.id]
            yield "fills", f"{what}.{names[-1]}" if what in MODULES and names else what

    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == "__import__":
            yield "import", "__import__"
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in late:
            yield "gives" if isinstance(node.ctx, ast.Store) else "calls", node.attr
        if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, (ast.Store, ast.Del)):
            yield from filled(node)
        if isinstance(node, ast.Call):
            f, first = node.func, node.args[0] if node.args else None
            if isinstance(f, ast.Name) and f.id in load:
                yield "load", first.value if isinstance(first, ast.Constant) else None
            elif (
                isinstance(f, ast.Name)
                and f.id in ("setattr", "delattr")
                and isinstance(first, ast.Name)
                and first.id in known
            ):
                yield "fills", known[first.id]
            elif (
                isinstance(f, ast.Attribute)
                and f.attr in CHANGING
                and isinstance(f.value, (ast.Name, ast.Attribute))
            ):
                yield from filled(f.value)


@functools.cache
def arrows():
    return {name: set(hidden(name, tree)) for name, tree in trees().items() if name != "_core.registry"}


def declared(name, names):
    return any([name == n or (n.endswith(".") and name.startswith(n)) for n in names])


def undeclared(name):
    """The hidden arrows of a module that `_core/registry.py` does not declare."""
    for kind, what in arrows()[name]:
        if kind == "import":
            known = name in registry.FOR_USERS  # else: declare the module in registry.LOADED and use `load`
        elif kind == "load":
            known = name in (registry.LOADED[what] if what else set().union(*registry.LOADED.values()))
        elif kind == "gives":
            known = name == registry.GIVEN[what][0]
        elif kind == "calls":
            known = name in registry.GIVEN[what][1]
        else:
            known = what in registry.STATE or declared(name, registry.FILLED.get(what, ()))
        if not known:
            yield f"{name} {kind} {what}"


def test_hidden_arrows_are_declared():
    assert [line for name in arrows() for line in undeclared(name)] == []


def test_no_declared_arrow_is_out_of_use():
    for what, (giver, callers) in registry.GIVEN.items():
        assert hasattr(registry.late, what) and ("gives", what) in arrows()[giver]
        assert [c for c in callers if ("calls", what) not in arrows()[c]] == [], what
    for what, loaders in registry.LOADED.items():
        assert [f for f in loaders if not {("load", what), ("load", None)} & arrows()[f]] == [], what
        assert what.removeprefix("tapegrad.") in MODULES or not what.startswith("tapegrad.")
    for what, fillers in registry.FILLED.items():
        filling = [name for name in arrows() if ("fills", what) in arrows()[name]]
        assert [f for f in fillers if not any([declared(name, (f,)) for name in filling])] == [], what
    assert [f for f in registry.FOR_USERS if "import" not in {kind for kind, _ in arrows()[f]}] == []


@pytest.mark.parametrize(
    "source, arrow",
    [
        ("import importlib.util", ("import", "importlib.util")),
        ("from importlib import import_module as m", ("import", "importlib")),
        ("def f():\n    return __import__('x')", ("import", "__import__")),
        (
            "from .._core.registry import load as l\ndef f():\n    l('tapegrad.numpy')",
            ("load", "tapegrad.numpy"),
        ),
        ("from .._core.registry import late\nlate.fit, y = 1, 2", ("gives", "fit")),
        ("from .._core.registry import late\nlate.fit(2)", ("calls", "fit")),
        ("from .._core import reverse\nreverse.keep = None", ("fills", "_core.reverse.keep")),
        ("from ..ops.declare import NUMPY as S\nS[1] = 2", ("fills", "ops.declare.NUMPY")),
        ("from ..ops.declare import NUMPY\nNUMPY.update({1: 2})", ("fills", "ops.declare.NUMPY")),
        ("from .._core.primitive import READ\nREAD.vjp = ()", ("fills", "_core.primitive.READ")),
        (
            "from .._core.variable import Variable\nV = Variable\nsetattr(V, 'x', 1)",
            ("fills", "_core.variable.Variable"),
        ),
    ],
)
def test_every_kind_of_hidden_arrow_is_found(source, arrow):
    assert arrow in set(hidden("_transforms.call", ast.parse(source)))


def test_what_is_not_declared_does_not_load():
    with pytest.raises(AssertionError, match="does not declare it"):
        registry.load("tapegrad._core.reverse")


def test_all_operations_are_imported():
    folder = PACKAGE / "ops"
    words = {
        "declare",
        "layouts",
        "protocols",
        "cupy_calls",
        "variable_methods",
        "families",
        "on_demand",
        "indexing.flags",
        "indexing.flat",
        "special.declare",
    }
    modules = {".".join(p.relative_to(folder).with_suffix("").parts) for p in folder.rglob("[a-z]*.py")}
    assert {f"ops.{m}" for m in modules - words} == imports("ops.families") | (
        imports("ops.on_demand") - {"_core.registry"}
    )


def test_only_one_file_changes_the_class():
    """`Variable` gets its methods in ops/variable_methods.py, nowhere else."""
    changing = []
    for name, tree in trees().items():
        for node in ast.walk(tree):
            targets = node.targets if isinstance(node, ast.Assign) else []
            for t in targets:
                if (
                    isinstance(t, ast.Attribute)
                    and isinstance(t.value, ast.Name)
                    and t.value.id in ("Variable", "View", "V")
                ):
                    changing.append(name)
    assert set(changing) == {"ops.variable_methods"}


def test_nobody_asks_for_the_class_of_all_variables():
    """No object is of the class `Variable` itself: `type(x) is Variable`, a table with it, or `new(Variable)`
    would be wrong."""
    found = []
    for name, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare):
                exact = any(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops)
                found += [
                    (name, node.lineno)
                    for c in node.comparators
                    if exact and isinstance(c, ast.Name) and c.id == "Variable"
                ]
            members = (
                node.elts if isinstance(node, ast.Set) else node.keys if isinstance(node, ast.Dict) else []
            )
            made = node.args if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "new" else []
            found += [
                (name, node.lineno)
                for e in (*members, *made)
                if isinstance(e, ast.Name) and e.id == "Variable"
            ]
    assert {f for f in found if f[0] != "_core.variable"} == set()


def measured(code):
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent
    )
    return out.stdout.split()


def test_import_loads_neither_numba_nor_cupy():
    code = "import sys, tapegrad; print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    loaded = set(measured(code))
    assert "tapegrad" in loaded and "numpy" in loaded
    assert not loaded & {"numba", "llvmlite", "cupy", "cupyx", "matplotlib", "tqdm", "torch", "jax"}


@pytest.mark.long
def test_a_written_program_takes_the_emitters_of_kernels_alone():
    loaded = measured("import sys, tapegrad.replay.emitted; print(*sys.modules)")
    parts = {m.split(".")[2] for m in loaded if m.startswith("tapegrad.kernels.")}
    assert "emit" in parts and not parts & {"generated", "raw_code", "library"}


def test_import_loads_the_core_alone():
    """Subpackages load on first use, ours and SciPy's (benchmarks/overhead.py tells the time)."""
    loaded = measured("import sys, tapegrad; print(*sys.modules)")
    below = lambda root: {m.split(".")[1] for m in loaded if m.startswith(f"{root}.")}
    assert below("tapegrad").isdisjoint((set(registry.PUBLIC) - {"numpy"}) | {"_scipy", "replay"})
    plain = measured("import sys, scipy.fft, scipy.linalg, scipy.special; print(*sys.modules)")
    assert not [name for name in loaded if name.startswith("scipy.") and name not in plain]


def test_public_names():
    expected = """Const Tape Variable audit checkpoint detect_anomalies errors grad graph hessian hmp hvp inplace jacobian jvp numpy
        optimize prepare profile ravel register_tree rule statespace stateful stats value value_and_grad value_grad_hvp vjp""".split()
    missing = [n for n in expected if not hasattr(tapegrad, n)]
    assert missing == []
    assert {n for n in expected if n not in dir(tapegrad)} == set()


@pytest.mark.parametrize(
    "name", ["", ".errors", ".implicit", ".kernels", ".operators", ".sparse", ".statespace", ".testing"]
)
def test_completion_shows_what_is_public(name):
    """Nothing that is imported from elsewhere, nothing for tapegrad's own use."""
    module = importlib.import_module(f"tapegrad{name}")
    shown = {n: getattr(module, n) for n in dir(module) if not (n.startswith("__") and n.endswith("__"))}
    assert shown and (name or not [n for n in shown if n.startswith("_")])
    assert not [
        n
        for n, x in shown.items()
        if not (getattr(x, "__module__", None) or x.__name__).startswith("tapegrad")
    ]


BROKEN = """
import random, sys
import numpy as np
import scipy.special as sp
import tapegrad as tg
from tapegrad.ops import declare
from tapegrad.ops.special import declare as special

rng, whole = random.Random(3), declare.primitive
for attempt in range(3):
    left = rng.randrange(1, 40)

    def primitive(*args, **kwargs):
        global left
        left -= 1
        if not left:
            raise KeyboardInterrupt
        return whole(*args, **kwargs)

    before = [dict(t) for t in (declare.NUMPY, declare.PRIMITIVES, declare.COMPOSED)], {m for m in sys.modules if m[:9] == "tapegrad."}
    declare.primitive = special.primitive = primitive
    try:
        tg.grad(lambda x: sp.ellipe(x))(0.3) if attempt % 2 else __import__("tapegrad.scipy")
        raise AssertionError("not interrupted")
    except KeyboardInterrupt:
        pass
    declare.primitive = special.primitive = whole
    assert before[0] == [declare.NUMPY, declare.PRIMITIVES, declare.COMPOSED]
    assert before[1] >= {m for m in sys.modules if m.startswith("tapegrad.ops.")}
for f in (sp.ellipe, lambda x: sp.pro_cv(1, 1, x), lambda x: sp.fresnel(x)[0], sp.exp1):
    assert abs(tg.grad(f)(0.3) - (f(0.3 + 1e-6) - f(0.3 - 1e-6)) / 2e-6) < 1e-7
print("right")
"""


def test_a_table_that_is_interrupted_does_not_stay_half_loaded():
    """At random operations, by import and by use: the tables are as before, and the next use is right."""
    run = subprocess.run([sys.executable, "-c", BROKEN], capture_output=True, text=True)
    assert run.stdout == "right\n", run.stderr


def test_the_oldest_versions_are_those_declared():
    root = PACKAGE.parent
    with open(root / "pyproject.toml", "rb") as file:
        declared = tomllib.load(file)["project"]["dependencies"]
    pinned = (root / ".ci" / "oldest.txt").read_text().split()
    assert [p.partition("==")[0] for p in pinned] == [d.partition(">=")[0] for d in declared]
    for pin, least in zip(pinned, declared, strict=True):
        version, minimum = pin.partition("==")[2], least.partition(">=")[2]
        assert version == minimum or version == f"{minimum}.0"
        assert minimum in (root / "docs" / "limits.md").read_text()


def test_the_version_stands_in_the_citation_and_the_changelog():
    root = PACKAGE.parent
    assert f"\nversion: {tapegrad.__version__}\n" in (root / "CITATION.cff").read_text()
    first = re.search(r"^## (\S+)$", (root / "docs" / "changelog.md").read_text(), re.MULTILINE)
    assert first and first[1] == tapegrad.__version__
