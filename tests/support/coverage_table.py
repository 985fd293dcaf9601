"""docs/coverage.md, made of what is declared:  PYTHONPATH=.:tests/support python tests/support/coverage_table.py

A public function is *differentiated* (it is in the registry of operations, a face of ours stands for it, or it makes arrays), *constant*
(`ops.zero_derivative`, `ops.names.CONSTANT`) or *refused* (`ops.names.REFUSED`); what further subpackages declare is asked of them."""

import functools
import importlib
import sys
import types
import warnings
from pathlib import Path

import numpy as np
import scipy

import tapegrad.numpy
import tapegrad.scipy
from tapegrad import stats
from tapegrad._faces import is_function
from tapegrad._scipy._declare import NAMESPACES
from tapegrad.ops import zero_derivative
from tapegrad.ops._define import NUMPY
from tapegrad.ops.creation import CREATORS
from tapegrad.ops.further._declare import LACKING
from tapegrad.ops.names import NATURE, WHY

OURS = ("numpy", "numpy.linalg", "numpy.fft", "scipy.special", "scipy.linalg", "scipy.fft", "scipy.stats")
DIFFERENTIATED, CONSTANT, REFUSED = "differentiated", "constant", "refused"
PAGE = Path(__file__).parents[2] / "docs" / "coverage.md"


def public(module):
    """The public functions of a module; of scipy.stats, the distributions too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = getattr(module, "__all__", None) or dir(module)
        found = {n: getattr(module, n) for n in names if not n.startswith("_")}
    return {n: f for n, f in sorted(found.items()) if callable(f) and not isinstance(f, (type, types.ModuleType))}


def kinds_of(space, name, f):
    """Which of the three are said of it: exactly one, if all is well."""
    said = set()
    twin = sys.modules["tapegrad.stats"] if space == "scipy.stats" else importlib.import_module(f"tapegrad.{space}")
    if space == "scipy.stats":
        getattr(stats, name)
    try:
        ours = NUMPY.get(f)
    except TypeError:
        ours = None
    if space == "scipy.stats" and isinstance(vars(twin).get(name) or getattr(stats, name), stats._families.Distribution):
        said.add(DIFFERENTIATED)
    elif ours is not None:
        said.add(CONSTANT if name in zero_derivative.NAMES or ours.__module__ == zero_derivative.__name__ else DIFFERENTIATED)
    elif f in CREATORS:
        said.add(DIFFERENTIATED)
    elif own(twin, name):
        said.add(CONSTANT if "_float_errors" in vars(twin)[name].__module__ else DIFFERENTIATED)
    if name in NATURE.get(space, ()):
        said.add(CONSTANT)
    if name in WHY.get(space, {}):
        said.add(REFUSED)
    return said


def own(twin, name):
    """Is there a function of our own under this name, that no registry knows?"""
    x = vars(twin).get(name)
    return x is not None and (getattr(x, "__module__", "") or "").startswith("tapegrad.") and "_faces" not in x.__module__


@functools.cache
def table():
    """namespace -> name -> what is said of it."""
    found = {}
    for space in OURS:
        module = importlib.import_module(space)
        found[space] = {name: kinds_of(space, name, f) for name, f in public(module).items()}
    for name in vars(tapegrad.scipy)["_ON_USE"]:
        getattr(tapegrad.scipy, name)
    for space, declared in NAMESPACES.items():
        found[space] = {name: {kind} for name, kind in declared.kinds().items()}
    return found


def face_of(space, name):
    return getattr(stats if space == "scipy.stats" else importlib.import_module(f"tapegrad.{space}"), name)


def is_called(f):
    """A function, not an object whose methods are called."""
    return is_function(f)


def why(space, name):
    return NAMESPACES[space].why(name) if space in NAMESPACES else WHY.get(space, {}).get(name, "")


def page():
    rows, parts = [], []
    total = dict.fromkeys((DIFFERENTIATED, CONSTANT, REFUSED), 0)
    for space, names in table().items():
        by = {k: sorted(n for n, said in names.items() if said == {k}) for k in total}
        for k, found in by.items():
            total[k] += len(found)
        with_derivative = len(by[DIFFERENTIATED]) + len(by[REFUSED])
        share = 100 * len(by[DIFFERENTIATED]) / max(1, with_derivative)
        rows.append(f"| `{space}` | {' | '.join(str(len(by[k])) for k in total)} | {share:.0f} % |")
        parts.append(f"\n## {space}\n")
        for kind in (DIFFERENTIATED, CONSTANT):
            if by[kind]:
                parts.append(f"{kind.capitalize()}: {', '.join(by[kind])}.\n")
        partly = [f"{n} ({', '.join(map(str, LACKING[n]))})" for n in by[DIFFERENTIATED] if space == "scipy.special" and n in LACKING]
        if partly:
            parts.append(f"Of the differentiated these raise an error for a tracked argument of this number: {', '.join(partly)}.\n")
        reasons = {}
        for name in by[REFUSED]:
            reasons.setdefault(why(space, name), []).append(name)
        if reasons:
            parts.append("Refused:\n" + "\n".join(f"- {', '.join(n)}: {w or 'see the error'}." for w, n in reasons.items()) + "\n")
    share = 100 * total[DIFFERENTIATED] / (total[DIFFERENTIATED] + total[REFUSED])
    rows.append(f"| all | {' | '.join(str(total[k]) for k in total)} | {share:.0f} % |")
    head = f"""# Which functions are differentiated

Made by `tests/support/coverage_table.py` from what is declared, for NumPy {np.__version__} and SciPy {scipy.__version__};
`tests/core/test_coverage.py` holds it. *Differentiated*: in both modes and all nestings. *Constant*: no argument has a derivative, or
the result does not move with it. *Refused*: a tracked value raises `NoRuleError`, which says why and what to write instead. The last
column is the share of the first among the first and third.

| namespace | differentiated | constant | refused | |
|---|---|---|---|---|
"""
    return head + "\n".join(rows) + "\n" + "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    for space, names in table().items():
        wrong = {n: sorted(said) for n, said in names.items() if len(said) != 1}
        print(space, len(names), wrong)
