"""Random NumPy programs that write in place, as readable Python source.

A `Program` is a list of statements, each the name of a kind and a seed.  `source(program)` writes it out:
kinds are small functions in the table `KINDS`, and a `Writer` runs every line on plain arrays as it is
written, so that indices and shapes fit the arrays that are there.  So a program from which statements were
dropped is a program again, and can be shrunk.

Reading order: `Program` and `source` here; `random_writer`; then the kinds."""

import random
import textwrap
from dataclasses import dataclass, field

import numpy as np
import random_captures
import random_values
import random_writes
from random_writer import CAPTURED, DEFAULTS, GLOBALS, HELPERS, NoFit, Writer

MODULES = random_values, random_writes, random_captures
KINDS = {name: f.kind for module in MODULES for name, f in vars(module).items() if hasattr(f, "kind")}


@dataclass(frozen=True)
class Program:
    """`bare`: to be differentiated without a shadow.  `views`: elements are read as 0-d views, as CuPy does.
    `reset`: f begins with the captured arrays as they were made.  `silent`: arrays left out of the result."""

    statements: tuple
    seed: int
    bare: bool = False
    views: bool = False
    reset: bool = True
    silent: frozenset = field(default=frozenset())


@dataclass
class Source:
    text: str
    exact: bool
    names: list  # of the arrays that make up the result


def draw(seed: int, bare: bool = False, cupy: bool = False, only: tuple = ()) -> Program:
    """A program.  Half of them draw from a part of the kinds, so that these meet each other often."""
    rng = random.Random(seed)
    names = [
        n
        for n, k in KINDS.items()
        if (k.bare or not bare) and (k.cupy or not cupy) and (not only or n in only)
    ]
    if rng.random() < 0.5 and len(names) > 15:
        names = rng.sample(names, 15)
    weights = [KINDS[n].weight for n in names]
    chosen = rng.choices(names, weights, k=rng.randint(3, 16))
    statements = tuple([(n, rng.randrange(1 << 30)) for n in chosen])
    return Program(statements, seed, bare, views=cupy or rng.random() < 0.25, reset=rng.random() < 0.7)


def source(program: Program) -> Source:
    p = Writer(program.bare, program.views)
    p.space["x"] = np.linspace(-0.7, 0.8, 5)
    p.pool = ["x"]
    p.line("c = np.linspace(0.1, 0.9, 6)")
    p.new("np.sin(x) + x")
    exact = True
    for name, seed in program.statements:
        p.rng = random.Random(seed)
        try:
            with np.errstate(all="ignore"):
                KINDS[name].write(p)
        except NoFit:
            continue
        exact &= KINDS[name].exact
    p.use("weigh")
    names = [n for n in p.pool if n not in program.silent] or ["x"]
    result = " + ".join([f"weigh({n}, {0.3 + 0.1 * k:.1f})" for k, n in enumerate(names)])
    resets = [CAPTURED[n][1] for n in p.captured if CAPTURED[n][1]]
    made = [CAPTURED[n][0] for n in p.captured if n not in GLOBALS]
    defaults = "".join([f", {n}={n}" for n in DEFAULTS if n in p.captured])
    shown = ", ".join([CAPTURED[n][3] for n in sorted(p.captured, key="log".__eq__)])
    parts = [
        *[CAPTURED[n][0] for n in p.captured if n in GLOBALS],
        *[textwrap.dedent(HELPERS[n]).strip() + "\n" for n in p.helpers],
        "def setting():",
        *[textwrap.indent(m, "    ") for m in made],
        "    def reset():",
        *[f"        {line}" for line in resets or ["pass"]],
        f"    def f(x{defaults}):",
        *[f"        {line}" for line in resets if program.reset],
        *[textwrap.indent(line, "        ") for line in p.lines],
        f"        return {result}",
        f"    return f, lambda: [{shown}], reset",
    ]
    return Source("\n".join(parts) + "\n", exact, names)
