"""Are all derivatives of a random program right?  And if not: the smallest program that shows it.

Expected values come from plain runs, in two ways that know nothing of each other:
- nilpotent numbers in object arrays (`_jets.py`): gradient and Hessian times vector, to rounding;
- complex steps, or central differences extrapolated, with an estimate of their error; not used where it is large.
A program is unjudged where it overflows, or where jets in multiple precision show that double precision loses
the digits asked for.

`python tests/support/judged_programs.py 50000 3000` judges 3000 programs from seed 50000 and prints how many
were right."""

import functools
import sys
from collections import Counter
from dataclasses import dataclass, field, replace

import _jets
import numpy as np
import random_programs
from comparison import host

import tapegrad as tg
from tapegrad.errors import AliasError

CLOSE, DIFFERENCE, MODES = 1e-9, 1e-6, 1e-8  # relative to the size of the derivative
LARGE = 1e5  # differences are not asked beyond
ROUNDING = 100  # how much more than jets in double precision the engine may lose


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
    noise: float = 0.0  # relative error by rounding that is allowed in addition

    def compare(self, check, actual, expected, tolerance, scale=1.0):
        self.done.append(check)
        actual, expected = np.asarray(host(actual)), np.asarray(host(expected))
        if actual.shape != expected.shape or not np.all(
            np.abs(actual - expected) <= (tolerance + self.noise) * scale
        ):
            self.wrong.append((check, actual, expected))

    def same(self, check, actual, expected):
        """The same bits."""
        self.done.append(check)
        if host(actual).tobytes() != host(expected).tobytes():
            self.wrong.append((check, actual, expected))


def maker(program, xp):
    """(make, exact): `make(np)` gives f, a function that shows the captured arrays and one that resets them,
    all new."""
    source = random_programs.source(program)
    code = compile(source.text, "<random program>", "exec")

    def make(library=xp, transforms=tg):
        space = {"np": library, "tg": transforms, "__name__": "random_program"}
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


def laid(z, x):
    """A copy of z that lies in memory as the point x does."""
    step = x.strides[0] // x.itemsize
    room = (np if isinstance(z, np.ndarray) else sys.modules["cupy"]).empty(z.size * abs(step), z.dtype)[
        ::step
    ]
    room[...] = z
    return room


def slope_of(make, exact, x, point, library=np):
    """(gradient at x, estimated error) from plain runs of arrays that lie as `point` does."""

    def value(z):
        f = make()[0]
        return host(f(laid(z if library is np else library.asarray(z), point)))

    g, error = np.empty(x.size), 0.0
    for k in range(x.size):
        if exact:
            z = x.astype(complex)
            z[k] += 1e-30j
            g[k] = make(Complexes(np))[0](laid(z, point)).imag / 1e-30
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


@dataclass
class Expected:
    """What plain runs give, each in a list of (check, expected, tolerance)."""

    left: tuple  # the captured arrays after a call, and which are the objects they were
    values: list
    gradients: list = field(default_factory=list)
    products: list = field(default_factory=list)


def expected_of(program, x, v, xp):
    """(Expected, jets' derivatives as a function of `bits`, or None), from plain runs."""
    make, exact = maker(program, xp)
    f, show, _ = make()
    before = show()
    overflows = []
    with np.errstate(over="call", call=lambda *_: overflows.append(True)):
        value = host(f(laid(x, x)))
    known = Expected((show(), kept(before, show())), [("value", value, 1e-12)])
    if overflows or not np.isfinite(value):
        return known, None
    plain, _ = maker(program, np)
    alike = abs(plain()[0](laid(host(x), x)) - value) <= 1e-12 * (
        1 + abs(value)
    )  # else a copy there is a view here
    jets = None
    if alike:
        jets = functools.partial(
            _jets.derivatives, lambda *stand_ins: plain(*stand_ins)[0], laid(host(x), x), host(v)
        )
        try:
            y, g, product = jets()
        except ArithmeticError:  # where arrays would hold inf or nan
            return known, None
        if not (np.all(np.isfinite(g)) and np.all(np.isfinite(product))):
            return known, None
        known.values.append(("value by jets", y, CLOSE))
        known.gradients.append(("gradient", g, CLOSE))
        known.products.append(("second order", product, MODES))
    by_differences(known, make, plain if alike else make, exact and alike, x, v, xp)
    return known, jets


def by_differences(known, make, plain, exact, x, v, xp):
    """The same from complex steps and differences, where these are accurate; they are all there is where jets
    do not apply."""
    library = xp if plain is make else np
    g, error = slope_of(plain, exact, host(x), x, library)
    scale = 1 + np.abs(g).max()
    if not (
        np.all(np.isfinite(g))
        and max(abs(known.values[0][1]), scale) <= LARGE
        and error <= DIFFERENCE / 4 * scale
    ):
        return
    name = " by differences" if known.gradients else ""
    known.gradients.append(("gradient" + name, g, CLOSE if exact else DIFFERENCE))
    if exact:
        slope = lambda s: slope_of(plain, True, host(x) + s * 1e-3 * host(v), x)[0]
    elif not known.products:
        slope = lambda s: host(tg.grad(make()[0])(laid(x + s * 1e-3 * v, x)))
    else:
        return
    product, error = [s / 1e-3 for s in extrapolated(slope)]
    if error <= DIFFERENCE / 4 * (1 + np.abs(product).max()):
        known.products.append(("second order" + name, product, DIFFERENCE))


def judge(program, xp=np, orders=2):
    """All checks of one program; an exception of the engine is a wrong result too."""
    with np.errstate(all="ignore"):
        x, v = argument(program.seed, xp)
        try:
            known, jets = expected_of(program, x, v, xp)
        except AliasError:  # of a transform that the program itself calls: it is refused as it is
            return Verdict(unjudged=["gradient"])
        if not known.gradients:
            return Verdict(unjudged=["gradient"])
        verdict = checked(program, known, x, v, xp, orders)
        if verdict.wrong and jets:
            noise = ROUNDING * max(
                relative(a, b) for a, b in zip(jets(), jets(bits=_jets.EXACT), strict=True)
            )
            lenient = checked(program, known, x, v, xp, orders, noise) if noise > CLOSE else verdict
            if not lenient.wrong:
                return Verdict(unjudged=["gradient"])
    return verdict


def relative(a, b):
    return np.max(np.abs(a - b)) / (1 + np.max(np.abs(b)))


def checked(program, known, x, v, xp, orders, noise=0.0):
    verdict = Verdict(noise=noise)
    make, _ = maker(program, xp)
    try:
        first_orders(verdict, program, make, x, v, known)
        if orders > 1 and not verdict.wrong:
            second_orders(verdict, program, make, x, v, known, xp)
    except Exception as e:
        verdict.wrong.append((f"{type(e).__name__}: {e}", None, None))
    return verdict


def marked(program, f):
    return tg.Const(f) if program.bare else f


def first_orders(verdict, program, make, x, v, known):
    left = known.left
    scale, start = 1 + np.abs(known.gradients[0][1]).max(), x.copy()
    f, show, reset = make()
    before = show()
    y, G = tg.value_and_grad(marked(program, f))(x)
    for check, value, tolerance in known.values:
        verdict.compare(check, y, value, tolerance, 1 + abs(value))
    for check, g, tolerance in known.gradients:
        verdict.compare(check, G, g, tolerance, scale)
    compare_captured(verdict, "captured after grad", before, show(), *left)
    again = tg.grad(marked(program, f))(x)
    if program.reset:
        verdict.same("second call", again, G)
    # what one call leaves, the next one finds: that of a plain call but for rounding, where a transform
    # inside adds in another order
    else:
        h = make()[0]
        h(laid(x, x))
        verdict.compare("second call", again, tg.grad(marked(program, h))(x), 1e-11, scale)
        reset()  # from outside, between two calls
        verdict.same("call after a reset", tg.grad(marked(program, f))(x), G)
    f, show, _ = make()
    before = show()
    y, t = tg.jvp(marked(program, f), (x,), (v,))
    for check, value, tolerance in known.values:
        verdict.compare(check.replace("value", "value of jvp"), y, value, tolerance, 1 + abs(value))
    for check, g, tolerance in known.gradients:
        verdict.compare(check.replace("gradient", "jvp"), t, g @ host(v), tolerance, scale * 10)
    compare_captured(verdict, "captured after jvp", before, show(), *left)
    f = make()[0]
    z = laid(x, x)
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


def second_orders(verdict, program, make, x, v, known, xp):
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
    for name, found in (("RR", RR), ("RF", RF), ("hmp", hmp[1])):
        verdict.compare(name + " and FR", found, FR, MODES, scale)
    verdict.compare("FF and FR", FF, host(FR) @ host(v), MODES, scale * 10)
    for check, product, tolerance in known.products:
        verdict.compare(check, FR, product, tolerance, scale)
    if not known.products:
        verdict.unjudged.append("second order")


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
    lines = [
        f"  {check}: {'' if actual is None else f'{actual} instead of {expected}'}"
        for check, actual, expected in verdict.wrong
    ]
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
            f"f, captured, reset = setting(){'  # differentiated as tg.Const(f)' if program.bare else ''}",
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


# --- a sample ---


def outcome(verdict):
    if verdict.wrong:
        return "raised" if verdict.wrong[0][1] is None else "wrong"
    return "unjudged" if verdict.unjudged else "right"


def main(first, number, *settings):
    """Judge that many programs from seed `first`; settings: 'bare'."""
    found, checks = Counter(), Counter()
    for seed in range(int(first), int(first) + int(number)):
        program = random_programs.draw(seed, **dict.fromkeys(settings, True))
        verdict = judge(program)
        checks.update(set(verdict.done))
        found[outcome(verdict)] += 1
        if outcome(verdict) != "right":
            print(seed, outcome(verdict), *verdict.wrong[:1], flush=True)
        if verdict.wrong:
            print(report(program), flush=True)
    print(dict(found), dict(checks))


if __name__ == "__main__":
    main(*sys.argv[1:])
