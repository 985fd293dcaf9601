"""Are all derivatives of a random program right?  And if not: the smallest program that shows it.

Expected values come from plain runs: complex steps, or central differences extrapolated, with an estimate
of their error.  What this estimate does not allow to judge is counted as unjudged, and only compared between
the modes."""

import functools
from dataclasses import dataclass, field, replace

import numpy as np
import random_programs
from _modes import host

import tapegrad as tg

CLOSE, DIFFERENCE, MODES = 1e-9, 1e-6, 1e-8  # relative to the size of the derivative


class Complexes:
    """A library whose new arrays are complex, for complex steps through a program."""

    def __init__(self, xp):
        self.xp = xp

    def __getattr__(self, name):
        f = getattr(self.xp, name)
        return functools.partial(f, dtype=complex) if name in ("zeros", "ones", "full", "empty") else f


@dataclass
class Verdict:
    wrong: list = field(default_factory=list)  # (check, actual, expected)
    unjudged: list = field(default_factory=list)
    done: list = field(default_factory=list)

    def compare(self, check, actual, expected, tolerance, scale=1.0):
        self.done.append(check)
        actual, expected = np.asarray(host(actual)), np.asarray(host(expected))
        if actual.shape != expected.shape or not np.all(np.abs(actual - expected) <= tolerance * scale):
            self.wrong.append((check, actual, expected))

    def same(self, check, actual, expected):
        """The same bits."""
        self.done.append(check)
        if host(actual).tobytes() != host(expected).tobytes():
            self.wrong.append((check, actual, expected))


def maker(program, xp):
    """(make, exact): `make(np)` gives f and a function that shows the captured arrays, both new."""
    source = random_programs.source(program)
    code = compile(source.text, "<random program>", "exec")

    def make(library=xp):
        space = {"np": library, "tg": tg, "__name__": "random_program"}
        exec(code, space)
        return space["setting"]()

    return make, source.exact


def argument(seed, xp):
    """(x, v): a point, in one of three memory layouts, and a direction."""
    r = np.random.default_rng(seed)
    x, v = r.uniform(-0.9, 0.9, 5), r.normal(size=5)
    room = xp.empty(10)
    layout = [xp.empty(5), room[::2], room[4::-1]][seed % 3]
    layout[...] = xp.asarray(x)
    return layout, xp.asarray(v)


def slope_of(make, exact, x, library=np):
    """(gradient at x, estimated error) from plain runs."""

    def value(z):
        f = make()[0]
        return host(f(z if library is np else library.asarray(z)))

    g, error = np.empty(x.size), 0.0
    for k in range(x.size):
        if exact:
            z = x.astype(complex)
            z[k] += 1e-30j
            g[k] = make(Complexes(np))[0](z).imag / 1e-30
            continue
        e = np.zeros(x.size)
        e[k] = 1e-3
        g[k], step_error = extrapolated(lambda s, e=e: value(x + s * e))
        g[k], error = g[k] / 1e-3, max(error, step_error / 1e-3)
    return g, error


def extrapolated(f):
    """(f'(0), estimated error) for steps of 1."""
    d1, d2, d3 = [(f(s) - f(-s)) / (2 * s) for s in (1.0, 0.5, 0.25)]
    e1, e2 = (4 * d2 - d1) / 3, (4 * d3 - d2) / 3
    return (16 * e2 - e1) / 15, np.max(np.abs(e2 - e1))


def judge(program, xp=np, orders=2):
    """All checks of one program; an exception of the engine is a wrong result too."""
    verdict = Verdict()
    with np.errstate(all="ignore"):
        make, exact = maker(program, xp)
        x, v = argument(program.seed, xp)
        f, show = make()
        before = show()
        overflows = []
        with np.errstate(over="call", call=lambda *_: overflows.append(True)):
            value = host(f(x.copy()))
        left = show(), kept(before, show())
        plain, _ = maker(program, np)
        if abs(plain()[0](host(x).copy()) - value) > 1e-12 * (1 + abs(value)):  # a copy there is a view here
            plain, exact = make, False
        g, error = slope_of(plain, exact, host(x), xp if plain is make else np)
        if (
            overflows
            or not np.all(np.isfinite(g))
            or max(abs(value), np.abs(g).max()) > 1e5
            or error > DIFFERENCE / 4 * (1 + np.abs(g).max())
        ):
            verdict.unjudged.append("gradient")
            return verdict
        try:
            first_orders(verdict, program, make, x, v, value, g, CLOSE if exact else DIFFERENCE, left)
            if orders > 1 and not verdict.wrong:
                second_orders(verdict, program, make, plain, exact, x, v, xp)
        except Exception as e:
            verdict.wrong.append((f"{type(e).__name__}: {e}", None, None))
    return verdict


def marked(program, f):
    return tg.Const(f) if program.bare else f


def first_orders(verdict, program, make, x, v, value, g, tolerance, left):
    scale, start = 1 + np.abs(g).max(), x.copy()
    f, show = make()
    before = show()
    y, G = tg.value_and_grad(marked(program, f))(x)
    verdict.compare("value", y, value, 1e-12, 1 + abs(value))
    verdict.compare("gradient", G, g, tolerance, scale)
    compare_captured(verdict, "captured after grad", before, show(), *left)
    again = tg.grad(marked(program, f))(x)
    if program.reset:
        verdict.same("second call", again, G)
    else:  # what one call leaves, the next one finds
        h, _ = make()
        h(x.copy())
        verdict.same("second call", again, tg.grad(marked(program, h))(x))
    f, show = make()
    before = show()
    y, t = tg.jvp(marked(program, f), (x,), (v,))
    verdict.compare("value of jvp", y, value, 1e-12, 1 + abs(value))
    verdict.compare("jvp", t, host(g) @ host(v), tolerance, scale * 10)
    compare_captured(verdict, "captured after jvp", before, show(), *left)
    f, _ = make()
    z = x.copy()
    _, pullback = tg.vjp(marked(program, f), z)
    tg.grad(marked(program, f))(x * 0.9 + 0.05)
    z[...] = 7.0
    verdict.compare("pullback after another call", pullback(1.0), G, 1e-12, scale)
    verdict.compare("pullback again", pullback(1.0), G, 1e-12, scale)
    verdict.same("argument", x, start)


def kept(before, after):
    """Which captured arrays are the objects that they were?"""
    return [a is b for a, b in zip(before, after, strict=False) if np.ndim(host(a))]


def compare_captured(verdict, check, before, after, left, same):
    """After the call captured arrays are as a plain call leaves them: plain, equal, the same objects."""
    if len(after) != len(left) or kept(before, after) != same:
        verdict.wrong.append((check, after, left))
    for a, b in zip(after, left, strict=False):
        if type(a) is not type(b):
            verdict.wrong.append((check, type(a), type(b)))
        else:
            verdict.compare(check, a, b, 1e-12, 1 + np.max(np.abs(host(b))))


def second_orders(verdict, program, make, plain, exact, x, v, xp):
    mark = functools.partial(marked, program)
    w = xp.asarray(np.random.default_rng(program.seed + 1).normal(size=x.size))
    FR = tg.hvp(mark(make()[0]), x, v)
    scale = 1 + np.abs(host(FR)).max()
    # One function, called again, where its captured arrays are reset; else a new one for each.
    f = mark(make()[0])
    g, h = (f, f) if program.reset else (mark(make()[0]), mark(make()[0]))
    RR = tg.grad(mark(lambda z: (tg.grad(f)(z) * v).sum()))(x)
    RF = tg.grad(mark(lambda z: tg.jvp(g, (z,), (v,))[1]))(x)
    FF = tg.jvp(mark(lambda z: tg.jvp(h, (z,), (v,))[1]), (x,), (v,))[1]
    hmp = tg.hmp(mark(make()[0]), x, xp.stack([w, v]))
    if exact:
        slope = lambda s: slope_of(plain, True, host(x) + s * 1e-3 * host(v))[0]
    else:
        slope = lambda s: host(tg.grad(mark(make()[0]))(x + s * 1e-3 * v))
    product, error = [s / 1e-3 for s in extrapolated(slope)]
    for name, found in (("RR", RR), ("RF", RF), ("hmp", hmp[1])):
        verdict.compare(name + " and FR", found, FR, MODES, scale)
    verdict.compare("FF and FR", FF, host(FR) @ host(v), MODES, scale * 10)
    if error > DIFFERENCE / 4 * scale:
        verdict.unjudged.append("second order")
    else:
        verdict.compare("second order", FR, product, DIFFERENCE, scale)


# --- the smallest program that is still wrong ---


def shrunk(program, is_wrong):
    """Statements, and parts of the result, dropped as long as the program stays wrong."""
    size = max(1, len(program.statements) // 2)
    while size:
        k = 0
        while k < len(program.statements):
            shorter = replace(program, statements=program.statements[:k] + program.statements[k + size :])
            if is_wrong(shorter):
                program = shorter
            else:
                k += size
        size //= 2
    for name in reversed(random_programs.source(program).names):
        quieter = replace(program, silent=program.silent | {name})
        if random_programs.source(quieter).text != random_programs.source(program).text and is_wrong(quieter):
            program = quieter
    return program


def report(program, xp=np, is_wrong=None):
    """The minimised program as Python source, and what is wrong with it."""
    program = shrunk(program, is_wrong or (lambda p: bool(safely_judged(p, xp).wrong)))
    verdict = safely_judged(program, xp)
    x, v = argument(program.seed, np)
    lines = [f"  {check}: {'' if actual is None else f'{actual} instead of {expected}'}" for check, actual, expected in verdict.wrong]
    flags = [n for n in ("bare", "views") if getattr(program, n)] + ([] if program.reset else ["not reset"])
    return "\n".join(
        [
            f"random program of seed {program.seed} {flags} is wrong; minimised:",
            "",
            f"import {xp.__name__} as np",
            "import tapegrad as tg",
            "",
            random_programs.source(program).text,
            f"x = np.array({x.tolist()})",
            f"v = np.array({v.tolist()})",
            f"f, captured = setting(){'  # differentiated as tg.Const(f)' if program.bare else ''}",
            "",
            *lines,
        ]
    )


def safely_judged(program, xp):
    """As `judge`; a shortened program that plain NumPy refuses is not wrong."""
    try:
        return judge(program, xp)
    except Exception:
        return Verdict()
