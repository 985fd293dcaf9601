"""Random functions of two numbers with nested branches, in-place writes, `min`, `max` and lists."""

import linecache
import random
from collections.abc import Callable

import numpy as np

NAMES = ("x", "y", "z", "w", "a[0]", "a[1]", "a.sum()")


def expression(rng: random.Random, depth: int) -> str:
    kind = rng.randrange(9 if depth else 2)
    if kind < 2:
        return rng.choice(NAMES) if kind else f"{rng.uniform(-2, 2):.3f}"
    a, b = expression(rng, depth - 1), expression(rng, depth - 1)
    return (
        f"({a} + {b})", f"({a} * {b})", f"np.sin({a})", f"max({a}, {b})", f"min({a}, {b})",
        f"np.exp(-abs({a}))", f"({a} - {b})",
    )[kind - 2]  # fmt: skip


def condition(rng: random.Random) -> str:
    a, b = expression(rng, 1), expression(rng, 1)
    return rng.choice(
        (
            f"{a} > {b}", f"{a} <= {b}", f"{a} > 0 and {b} < 1", f"{a} < -1 or {b} > 0.5", f"not {a} > {b}",
            f"-1 < {a} < 1",
        )
    )  # fmt: skip


def block(rng: random.Random, depth: int, indent: str) -> list[str]:
    lines = []
    for _ in range(rng.randrange(1, 3)):
        kind = rng.randrange(5)
        if kind < 2:
            lines.append(f"{indent}{rng.choice('zw')} = {expression(rng, 2)}")
        elif kind == 2:
            lines.append(f"{indent}a[{rng.randrange(3)}] = {expression(rng, 2)}")
        elif kind == 3:
            lines.append(f"{indent}seen.append({expression(rng, 1)}); w = w + seen[-1]")
        elif depth:
            lines += [f"{indent}if {condition(rng)}:", *block(rng, depth - 1, indent + "    ")]
            if rng.random() < 0.6:
                lines += [f"{indent}else:", *block(rng, depth - 1, indent + "    ")]
        else:
            lines.append(f"{indent}a += {expression(rng, 1)}")
    return lines


def branching_function(seed: int) -> Callable:
    rng = random.Random(seed)
    lines = [
        "def f(x, y):",
        "    z, w, a, seen = x * y, 1.0, np.zeros(3), [0.0]",
        *block(rng, 2, "    "),
        *block(rng, 2, "    "),
        f"    if {condition(rng)}:",
        f"        return {expression(rng, 2)} + a.sum() * w",
        "    return z * w + a[1] + sum(seen)",
    ]
    name, space = f"<branches {seed}>", {"np": np}
    linecache.cache[name] = (0, None, [line + "\n" for line in lines], name)
    exec(compile("\n".join(lines), name, "exec"), space)
    return space["f"]
