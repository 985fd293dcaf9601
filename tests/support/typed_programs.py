"""Random programs whose arrays have other dtypes than float64: other objects for the same dtype, other byte
orders, other precisions, complex numbers.

The text is that of `random_programs`; each constructor of NumPy in it, and the argument, gets one of FORMS.  The judge is NumPy, which
runs the text without them: in jets, or in complex numbers at points of a line; and the text itself for what a
call leaves.

`python tests/support/typed_programs.py 50000 3000` judges 3000 programs from seed 50000 and prints how many
were right."""

import ast
import functools
import random
import sys
import warnings
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
from _jets import EXACT, derivatives
from _jets import SINGLE as SINGLE_BITS
from judged_programs import ROUNDING, Verdict, compare_captured, kept, laid, shrunk
from judged_programs import maker as untyped
from judged_routes import COARSE, FINE, STEP, own
from random_programs import KINDS, Program, draw, source

import tapegrad as tg
from tapegrad.errors import AliasError

FORMS = {  # of the dtype B, or of one of that kind with more digits, L, or fewer, S
    "own": "np.dtype(B)",
    "unpickled": "pickle.loads(pickle.dumps(np.dtype(B)))",
    "metadata": "np.dtype(B, metadata={'unit': 'm'})",
    "swapped": "np.dtype(B).newbyteorder()",
    "swapped, unpickled": "pickle.loads(pickle.dumps(np.dtype(B).newbyteorder()))",
    "extended": "np.dtype(L)",
    "single": "np.dtype(S)",
    "single, swapped": "np.dtype(S).newbyteorder()",
}
KIND = {
    False: "B, L, S = np.float64, np.longdouble, np.float32",
    True: "B, L, S = np.complex128, np.clongdouble, np.complex64",
}
MAKERS = {"zeros", "ones", "full", "empty", "linspace"}
CLOSE, CLOSE_SECOND, SINGLE = 1e-7, 3e-6, 2e-3
ANALYTIC = tuple([name for name, kind in KINDS.items() if kind.exact])


@dataclass(frozen=True)
class Typed:
    program: Program
    complex: bool
    forms: tuple  # that may be drawn

    @property
    def digits(self) -> float:
        return SINGLE if any(["single" in form for form in self.forms]) else 0.0


def drawn(seed: int) -> Typed:
    """Half of them have one form, the others several."""
    rng = random.Random(seed)
    complex = rng.random() < 0.3
    program = replace(draw(seed, only=ANALYTIC if complex else ()), reset=True)
    precise = [form for form in FORMS if "single" not in form]
    names = list(FORMS) if rng.random() < 0.3 else precise
    return Typed(program, complex, tuple(rng.sample(names, 1 if rng.random() < 0.5 else 3)))


class Constructors(ast.NodeTransformer):
    """Gives each constructor a dtype."""

    def __init__(self, rng, forms):
        self.rng, self.forms = rng, forms

    def visit_Call(self, node):
        self.generic_visit(node)
        if (
            isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "np"
        ):
            if node.func.attr in MAKERS and not [k for k in node.keywords if k.arg == "dtype"]:
                node.keywords.append(ast.keyword("dtype", self.form()))
        return node

    def form(self):
        return ast.parse(f"D[{self.rng.choice(self.forms)!r}]", mode="eval").body


def text_of(typed: Typed, plain: bool) -> str:
    """As the program's text, with dtypes; `plain`: all of them NumPy's own of float64 or complex128."""
    forms = ("own",) if plain else typed.forms
    tree = Constructors(random.Random(typed.program.seed), forms).visit(ast.parse(source(typed.program).text))
    outer = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "setting")
    f = next(node for node in outer.body if isinstance(node, ast.FunctionDef) and node.name == "f")
    if typed.complex:
        f.body[-1].value = ast.Attribute(f.body[-1].value, "real", ast.Load())
    made = ", ".join([f"{form!r}: {FORMS[form]}" for form in forms])
    return f"import pickle\n{KIND[typed.complex]}\nD = {{{made}}}\n{ast.unparse(ast.fix_missing_locations(tree))}\n"


def maker(typed: Typed, plain: bool = False):
    code = compile(text_of(typed, plain), "<typed program>", "exec")

    def make():
        space = {"np": np, "tg": tg, "__name__": "typed_program"}
        exec(code, space)
        return (*space["setting"](), space["D"])

    return make


def point_of(typed: Typed, D) -> tuple:
    """(the argument, a direction), in forms of the program and one of three layouts."""
    seed = typed.program.seed
    r = np.random.default_rng(seed)
    x, v = r.uniform(-0.9, 0.9, 5), r.normal(size=5)
    if typed.complex:
        x, v = x + 0.3j * r.normal(size=5), v + 0.3j * r.normal(size=5)
    forms = [D[str(form)] for form in r.choice(typed.forms, 2)]
    room = np.empty(10, forms[0])
    layout = [np.empty(5, forms[0]), room[::2], room[4::-1]][seed % 3]
    layout[...] = x
    return layout, v.astype(forms[1])


def along(g, v) -> float:
    """The derivative along v, of the gradient df/dx + i df/dy."""
    return float(np.real(np.vdot(g.astype(complex), v.astype(complex))))


def batch(samples):
    """An array whose rows lie in memory as the samples do."""
    step = samples[0].strides[0] // samples[0].itemsize
    rows = np.empty((len(samples), samples[0].size * abs(step)), samples[0].dtype)[:, ::step]
    rows[...] = samples
    return rows


@dataclass
class Expected:
    value: float
    first: float
    second: float
    left: tuple = ()  # what a call leaves


def expected_of(typed: Typed) -> Expected:
    """From plain runs."""
    f, show, _, D = maker(typed)()
    before = show()
    x, v = point_of(typed, D)
    value, left = float(f(laid(x, x))), show()
    known = by_points(typed, x, v) if typed.complex else by_jets(typed, x, v)
    sure = (
        known
        and np.isfinite(known.value)
        and abs(known.value - value) <= (1e-9 + typed.digits / 100) * (1 + abs(value))
    )
    return replace(known, value=value, left=(left, kept(before, left))) if sure else None


def by_jets(typed: Typed, x, v, bits=53):
    plain, _ = untyped(typed.program, np)
    try:
        y, g, product = derivatives(
            lambda *stand_ins: plain(*stand_ins)[0], laid(x.astype(float), x), v.astype(float), bits
        )
    except ArithmeticError:  # where arrays would hold inf or nan
        return None
    return Expected(y, g @ v.astype(float), product @ v.astype(float))


def by_points(typed: Typed, x, v):
    """By a polynomial through values on a line."""
    make = maker(typed, plain=True)
    z, w = x.astype(complex), v.astype(complex)
    g = make()[0]
    run = lambda t: float(g(laid(z + t * w, x)))
    y = np.array([run(t) for t in FINE[0]])
    first, second = [weights @ y for weights in FINE[1:]]
    rough = [weights @ y[::2] for weights in COARSE[1:]]
    scale = 1 + np.abs(y).max()
    right, left_of = run(STEP), run(-STEP)
    short = (8 * (right - left_of) - (run(2 * STEP) - run(-2 * STEP))) / (12 * STEP)
    sure = (
        np.all(np.isfinite(y))
        and scale < 1e5
        and abs(rough[0] - first) <= 1e-3 * scale
        and abs(rough[1] - second) <= 3e-2 * scale
    )
    sure = sure and abs(short - first) <= 0.3 * CLOSE * (1 + abs(first))
    return Expected(y[len(y) // 2], first, second) if sure else None


class Judge:
    def __init__(self, typed: Typed):
        self.typed, self.make = typed, maker(typed)
        self.known = expected_of(typed)
        self.x, self.v = point_of(typed, self.make()[3])
        self.verdict, self.refused = Verdict(noise=typed.digits), []

    def check(self, name, found, expected, tolerance, scale):
        """`found()` against a number of plain runs."""
        try:
            self.verdict.compare(name, found(), expected, tolerance, scale)
        except Exception as error:
            (self.refused if own(error) else self.verdict.wrong).append(
                (f"{name}: {type(error).__name__}: {error}", None, None)
            )

    def judged(self) -> Verdict:
        known, v = self.known, self.v
        one = 1 + abs(known.value) + abs(known.first)
        two = one + abs(known.second)
        new = lambda: self.make()[0]
        of_new = lambda g: functools.partial(g, new())
        x = lambda t=1.0: laid(self.x * self.x.dtype.type(t), self.x)

        def first(name, f):
            self.check(name, f, known.first, CLOSE, one)

        def second(name, f):
            self.check(name, f, known.second, CLOSE_SECOND, two)

        self.check("value", lambda: tg.value_and_grad(new())(x())[0], known.value, 1e-9, one)
        first("grad", lambda: self.of_x(tg.grad(new())(x())))
        self.check("value of jvp", lambda: tg.jvp(new(), (x(),), (v,))[0], known.value, 1e-9, one)
        first("jvp", lambda: tg.jvp(new(), (x(),), (v,))[1])
        first("second call", lambda: [f := new(), tg.grad(f)(x(0.9)), along(tg.grad(f)(x()), v)][-1])
        self.left()
        first("pullback", self.pulled)
        second("hvp", lambda: along(tg.hvp(new(), x(), v), v))
        second("FF", lambda: tg.jvp(of_new(lambda f, z: tg.jvp(f, (z,), (v,))[1]), (x(),), (v,))[1])
        second("RF", lambda: along(tg.grad(of_new(lambda f, z: tg.jvp(f, (z,), (v,))[1]))(x()), v))
        second(
            "RR", lambda: along(tg.grad(of_new(lambda f, z: (tg.grad(f)(z).conj() * v).sum().real))(x()), v)
        )
        for compile in (False, True):
            replayed = lambda compile=compile: tg.prepare(new(), x(0.9), compile=compile)
            first(
                f"replayed, compile={compile}",
                lambda: [p := replayed(), p.grad(x(0.8)), along(p.grad(x()), v)][-1],
            )
            second(
                f"hvp replayed, compile={compile}",
                lambda: [p := replayed(), p.hvp(x(0.8), v), along(p.hvp(x(), v), v)][-1],
            )
        first("vmap", lambda: along(tg.vmap(tg.grad(new()))(batch([x(0.9), x(), x()]))[1], v))
        return self.verdict

    def of_x(self, g):
        assert g.shape == self.x.shape and g.dtype.newbyteorder("=") == self.x.dtype.newbyteorder("="), (
            g.dtype
        )
        return along(g, self.v)

    def pulled(self):
        f, _, _, _ = self.make()
        z = laid(self.x, self.x)
        pullback = tg.vjp(f, z)[1]
        tg.grad(f)(laid(self.x, self.x))
        z[...] = 7.0
        pullback(1.0)
        return along(pullback(1.0), self.v)

    def left(self):
        """What a call leaves is what a plain call leaves, with its dtype."""
        for name, transform in {
            "grad": lambda f, x: tg.grad(f)(x),
            "jvp": lambda f, x: tg.jvp(f, (x,), (self.v,)),
        }.items():
            f, show, _, _ = self.make()
            before = show()
            try:
                transform(f, laid(self.x, self.x))
            except Exception:  # `check` has it
                continue
            compare_captured(self.verdict, f"captured after {name}", before, show(), *self.known.left)
            types = [[getattr(a, "dtype", None) for a in arrays] for arrays in (show(), self.known.left[0])]
            if types[0] != types[1]:
                self.verdict.wrong.append((f"dtypes after {name}", *types))


def judge(typed: Typed) -> tuple:
    """(what is wrong, which checks were refused by an error of tapegrad's; None for both where NumPy refuses
    or plain runs do not tell)"""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            judge = Judge(typed)
        except (TypeError, ValueError):  # of NumPy, about what cannot be cast
            return None, None
        except AliasError as error:  # of a transform that the program itself calls
            return [], [error]
        if judge.known is None:
            return None, None
        wrong = judge.judged().wrong
        if wrong and not typed.complex and (noise := rounding_of(typed, judge)) > CLOSE:
            judge.verdict = Verdict(noise=max(noise, typed.digits))
            if not judge.judged().wrong:
                return None, None
        return wrong, judge.refused


def rounding_of(typed: Typed, judge: Judge) -> float:
    """What derivatives may lose, relative to their size, from how far jets of the program's precision are
    from exact ones."""
    rough, exact = [
        by_jets(typed, judge.x, judge.v, bits) for bits in (SINGLE_BITS if typed.digits else 53, EXACT)
    ]
    if rough is None or exact is None:  # it leaves the numbers that such arrays hold
        return np.inf
    size = 1 + abs(exact.first) + abs(exact.second)
    return ROUNDING * max(abs(rough.first - exact.first), abs(rough.second - exact.second)) / size


def outcome(typed: Typed) -> str:
    wrong, refused = judge(typed)
    if wrong is None:
        return "unjudged"
    if wrong:
        return "raised" if all([found is None for _, found, _ in wrong]) else "wrong"
    return "refused" if refused else "right"


def report(typed: Typed) -> str:
    """The smallest program that is still wrong, and what is."""
    kind = outcome(typed)
    small = replace(
        typed, program=shrunk(typed.program, lambda p: outcome(replace(typed, program=p)) == kind)
    )
    for form in small.forms:
        fewer = replace(small, forms=tuple([f for f in small.forms if f != form]) or small.forms)
        small = fewer if outcome(fewer) == kind else small
    lines = [
        f"  {check}: {'' if found is None else f'{found} instead of {right}'}"
        for check, found, right in judge(small)[0]
    ]
    return (
        f"typed program of seed {small.program.seed} is {kind}; minimised:\n\n{text_of(small, False)}\n"
        + "\n".join(lines)
    )


def main(first, number):
    found = Counter()
    for seed in range(int(first), int(first) + int(number)):
        typed = drawn(seed)
        found[kind := outcome(typed)] += 1
        if kind in ("wrong", "raised"):
            print(report(typed), flush=True)
    print(dict(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
