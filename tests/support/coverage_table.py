"""docs/coverage.md, made of what is declared and of what executed.py found:

    PYTHONPATH=.:tests/support python tests/support/coverage_table.py

A public function is *differentiated* (it is in the registry of operations, a face of ours stands for it, or
it makes arrays), *constant* (`ops.zero_derivative`, `ops.names.CONSTANT`) or *refused* (`ops.names.REFUSED`);
what further subpackages declare is asked of them."""

import functools
import importlib
import sys
import types
import warnings
from pathlib import Path

import executed
import numpy as np
import scipy

import tapegrad.numpy
import tapegrad.scipy
from tapegrad import stats
from tapegrad._dispatch.faces import is_function
from tapegrad._dispatch.stand_ins import MATRICES
from tapegrad._scipy.namespaces import NAMESPACES
from tapegrad.ops import zero_derivative
from tapegrad.ops.creation import CREATORS
from tapegrad.ops.declare import NUMPY
from tapegrad.ops.names import NATURE, WHY
from tapegrad.ops.special.declare import LACKING

OURS = ("numpy", "numpy.linalg", "numpy.fft", "scipy.special", "scipy.linalg", "scipy.fft", "scipy.stats")
DIFFERENTIATED, CONSTANT, REFUSED = "differentiated", "constant", "refused"
PAGE = Path(__file__).parents[2] / "docs" / "coverage.md"


def public(module):
    """The public functions of a module, without those that are followed as the user's code is; of scipy.stats,
    the distributions too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = getattr(module, "__all__", None) or dir(module)
        found = {n: getattr(module, n) for n in names if not n.startswith("_")}
    return {
        n: f
        for n, f in sorted(found.items())
        if callable(f) and not isinstance(f, (type, types.ModuleType)) and id(f) not in MATRICES
    }


def kinds_of(space, name, f):
    """Which of the three are said of it: exactly one, if all is well."""
    said = set()
    twin = (
        sys.modules["tapegrad.stats"]
        if space == "scipy.stats"
        else importlib.import_module(f"tapegrad.{space}")
    )
    if space == "scipy.stats":
        getattr(stats, name)
    try:
        ours = NUMPY.get(f)
    except TypeError:
        ours = None
    if space == "scipy.stats" and isinstance(
        vars(twin).get(name) or getattr(stats, name), stats._families.Distribution
    ):
        said.add(DIFFERENTIATED)
    elif ours is not None and name not in NATURE.get(
        space, ()
    ):  # (SciPy's statistics of ranks are followed, too)
        said.add(
            CONSTANT
            if name in zero_derivative.NAMES or ours.__module__ == zero_derivative.__name__
            else DIFFERENTIATED
        )
    elif f in CREATORS:
        said.add(DIFFERENTIATED)
    elif own(twin, name):
        said.add(CONSTANT if "float_errors" in vars(twin)[name].__module__ else DIFFERENTIATED)
    if name in NATURE.get(space, ()):
        said.add(CONSTANT)
    if name in WHY.get(space, {}):
        said.add(REFUSED)
    return said


def own(twin, name):
    """Is there a function of our own under this name, that no registry knows?"""
    x = vars(twin).get(name)
    return (
        x is not None
        and (getattr(x, "__module__", "") or "").startswith("tapegrad.")
        and ".faces" not in x.__module__
    )


@functools.cache
def table():
    """namespace -> name -> what is said of it."""
    found = {}
    for space in OURS:
        module = importlib.import_module(space)
        found[space] = {name: kinds_of(space, name, f) for name, f in public(module).items()}
    for name in vars(tapegrad.scipy)["_ON_USE"]:
        getattr(tapegrad.scipy, name)
    for space, declared in sorted(NAMESPACES.items()):
        found[space] = {name: {kind} for name, kind in declared.kinds().items()}
    return found


def differentiated():
    """The names of which it is said, as (namespace, name)."""
    return [
        (space, name)
        for space, names in table().items()
        for name, said in names.items()
        if said == {DIFFERENTIATED}
    ]


def face_of(space, name):
    return getattr(stats if space == "scipy.stats" else importlib.import_module(f"tapegrad.{space}"), name)


def is_called(f):
    """A function, not an object whose methods are called."""
    return is_function(f)


def why(space, name):
    return NAMESPACES[space].why(name) if space in NAMESPACES else WHY.get(space, {}).get(name, "")


def executed_of(space, names):
    """The entries of tests/support/executed.txt for these names."""
    entries = executed.read()
    return {name: entries[space, name] for name in names if (space, name) in entries}


def row(space, by):
    """Counts: differentiated; right in each mode on NumPy; CuPy's; right there in all modes; constant;
    refused; the share."""
    found = executed_of(space, by[DIFFERENTIATED]).values()
    right = [sum(e.numpy[mode] == executed.RIGHT for e in found) for mode in executed.NUMPY_MODES]
    there = [set(e.cupy.values()) == {executed.RIGHT} for e in found if e.cupy is not None]
    return [len(by[DIFFERENTIATED]), *right, len(there), sum(there), len(by[CONSTANT]), len(by[REFUSED])]


def shown(space, counts):
    differentiated, refused = counts[0], counts[-1]
    return f"| {space} | {' | '.join(map(str, counts))} | {100 * differentiated / max(1, differentiated + refused):.0f} % |"


def of_modes(space, names):
    """What the modes leave out, in words."""
    found = executed_of(space, names)
    there = {
        name: set(e.cupy.values())
        for name, e in found.items()
        if e.cupy is not None and set(e.cupy.values()) != {executed.RIGHT}
    }
    refused = [name for name, said in there.items() if executed.RAISES in said]
    apart = {name: set(e.numpy.values()) - {executed.RIGHT} for name, e in found.items()}
    by_value = [name for name, e in found.items() if e.numpy["samples"] != executed.RIGHT]
    for names, text in (
        (by_value, "These raise under `vmap`, because their control flow depends on values"),
        (refused, "CuPy has these; they raise an error on its arrays"),
        ([name for name in there if name not in refused], "CuPy has these; no test executes them there"),
        ([name for name in found if apart[name] and name not in by_value], "Not right in every mode"),
    ):
        if names:
            yield f"{text}: {', '.join(names)}.\n"


def page():
    rows, parts = [], []
    for space, names in table().items():
        by = {
            k: sorted(n for n, said in names.items() if said == {k})
            for k in (DIFFERENTIATED, CONSTANT, REFUSED)
        }
        rows.append((f"`{space}`", row(space, by)))
        parts.append(f"\n## {space}\n")
        for kind in (DIFFERENTIATED, CONSTANT):
            if by[kind]:
                parts.append(f"{kind.capitalize()}: {', '.join(by[kind])}.\n")
        partly = [
            f"{n} ({', '.join(map(str, LACKING[n]))})"
            for n in by[DIFFERENTIATED]
            if space == "scipy.special" and n in LACKING
        ]
        if partly:
            parts.append(
                f"These raise an error for a tracked argument at the position given: {', '.join(partly)}.\n"
            )
        parts.extend(of_modes(space, by[DIFFERENTIATED]))
        reasons = {}
        for name in by[REFUSED]:
            reasons.setdefault(why(space, name), []).append(name)
        if reasons:
            parts.append(
                "Refused:\n"
                + "\n".join(f"- {', '.join(n)}: {w or 'see the error'}." for w, n in reasons.items())
                + "\n"
            )
    rows.append(("all", [sum(column) for column in zip(*[counts for _, counts in rows], strict=True)]))
    head = f"""# Which functions are differentiated

The table counts the public functions of NumPy and SciPy. The lists below name them.

- *Differentiated* functions have derivatives.
- *Constant* functions have no differentiable argument, or their result is piecewise constant.
- *Refused* functions raise `NoRuleError` for a tracked value. The error says why and what to write instead.

The last column is the share of differentiated functions among the differentiated and the refused.

The other columns count what is executed, by public names, in up to four calls each:

- *reverse*, *forward* and *second* order (forward over reverse) against differences of the plain function;
- *batched* under `vmap` against the samples one by one;
- *CuPy has* a function of that name; it is *right there* in the first three, against NumPy. CuPy runs over host memory.

A name counts if one call is right and none is wrong. A call may raise, for example for an option that a library lacks. A wrong number
fails the tests. `tests/support/executed.txt` lists the calls.

`tests/support/coverage_table.py` made this page for NumPy {np.__version__} and SciPy {scipy.__version__}.
`tests/project/test_coverage.py` checks it.

| namespace | differentiated | reverse | forward | second | batched | CuPy has | right there | constant | refused | |
|---|---|---|---|---|---|---|---|---|---|---|
"""
    return head + "\n".join([shown(*r) for r in rows]) + "\n" + "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    for space, names in table().items():
        wrong = {n: sorted(said) for n, said in names.items() if len(said) != 1}
        print(space, len(names), wrong)
