"""Is the derivative of a program text right, or loud?  And if neither: the smallest text that shows it.

A `Text` is a module: `head` sets up what f captures, `body` is f's, `after` runs between the forward run and
a pullback, `shown`
are expressions for what a call leaves behind.  It is run as a real module, registered in `sys.modules`.

The judge knows nothing of the engine: NumPy runs the same text at Chebyshev nodes of a line through x, and
the derivatives of the polynomial through these values are those of f along the line, to about 1e-10 for the
smooth programs drawn here."""

import contextvars
import functools
import gc
import re
import sys
import textwrap
import types
import warnings
from dataclasses import dataclass, field, replace

import numpy as np
from comparison import host

import tapegrad as tg

NAME = "route_program"
PRELUDE = """
import abc, argparse, array, collections, concurrent.futures, contextlib, contextvars, copy, ctypes, dataclasses, enum, functools
import importlib, itertools, mmap, operator, random, sys, threading, types, typing, weakref
import numpy as np
import scipy.ndimage, scipy.optimize
import tapegrad as tg

W = np.cos(1.0 + 1.7 * np.arange(200.0))

def red(a):
    return (a * W[: np.size(a)].reshape(np.shape(a))).sum()

def fit(x, a):
    return x[np.arange(np.size(a)) % 3].reshape(np.shape(a))
"""
X, V = np.array([0.7, -0.6, 0.9]), np.array([0.8, 0.5, -0.9])


def point(text, t: float = 0.0):
    """X + t V, new, in the library of the text."""
    return sys.modules[text.library].asarray(X + t * V)


NODES, REACH, STEP = 12, 0.2, 1e-4
CLOSE, CLOSE_SECOND, ALIKE = 1e-7, 3e-6, 1e-9
LARGE = 1e6


def lines_of(text: str) -> tuple:
    """Pieces of programs, one a line; a line that begins with & goes on with the piece above."""
    return tuple([piece.replace("\n& ", "\n") for piece in re.split(r"\n(?!& )", text.strip("\n"))])


@dataclass(frozen=True)
class Text:
    head: tuple
    body: tuple
    shown: tuple = ()
    after: tuple = ()
    closure: bool = False
    seed: int = 0
    library: str = "numpy"  # what the text calls np

    def source(self) -> str:
        put = lambda units, depth: [textwrap.indent(u, "    " * depth) for u in units]
        d = int(self.closure)
        f = ["def f(x):", "    s = 0.0", *put(self.body, 1), "    return s"]
        look = [
            "def look():",
            f"    return [{', '.join(self.shown)}]",
            "def after():",
            *put(self.after, 1),
            "    pass",
        ]
        lines = [*self.head, *f, *look]
        if self.closure:
            lines = [
                "def setting():",
                *put(lines, d),
                "    return f, look, after",
                "f, look, after = setting()",
            ]
        return (
            "\n".join([PRELUDE.replace("import numpy as np", f"import {self.library} as np"), *lines]) + "\n"
        )


@functools.lru_cache(maxsize=64)
def compiled(source: str):
    return compile(source, f"<{NAME}>", "exec")


def fresh(text: Text):
    """The module of the text, new."""
    module = types.ModuleType(NAME)
    sys.modules[NAME] = module
    exec(compiled(text.source()), module.__dict__)
    return module


def silent(f):
    """Without warnings, of Python or of floating point."""

    @functools.wraps(f)
    def g(*args):
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return f(*args)

    return g


def runs(text: Text) -> bool:
    """Does NumPy run it, and is the derivative not zero?"""
    return contextvars.Context().run(ran, text)


@silent
def ran(text: Text) -> bool:
    try:
        one, two = fresh(text), fresh(text)
        y = [one.f(point(text)), two.f(point(text, 0.1))]
        one.look()
        one.after()
        one.f(point(text))
        y = [host(a) for a in y]
    except Exception:
        return False
    return bool(np.all(np.isfinite(y)) and np.ndim(y[0]) == 0 and y[0] != y[1] and max(map(abs, y)) < 1e4)


# --- what plain runs give ---


def slopes(count: int) -> tuple:
    """(nodes, weights of the first, of the second derivative at the middle node)."""
    t = -np.cos(np.pi * np.arange(count + 1) / count)
    c = np.ones(count + 1)
    c[0] = c[-1] = 2.0
    c *= (-1.0) ** np.arange(count + 1)
    d = t[:, None] - t + np.eye(count + 1)
    D = np.outer(c, 1 / c) / d
    D -= np.diag(D.sum(1))
    return REACH * t, D[count // 2] / REACH, (D @ D)[count // 2] / REACH**2


FINE, COARSE = slopes(NODES), slopes(NODES // 2)


@dataclass
class Plain:
    value: float
    left: list
    first: float
    second: float
    sure: bool


def plain(text: Text, calls: int = 1) -> Plain:
    """Value, what is left, and both derivatives along the line, of the last of so many calls."""

    def run(t, look=False):
        module = fresh(text)
        for _ in range(calls - 1):
            module.f(point(text))
        y = host(module.f(point(text, t)))
        return (float(y), copies(module.look())) if look else float(y)

    y = np.array([run(t) for t in FINE[0]])
    value, left = run(0.0, look=True)
    rough = [w @ y[::2] for w in COARSE[1:]]
    exact = [w @ y for w in FINE[1:]]
    scale = 1 + np.abs(y).max()
    smooth = abs(rough[0] - exact[0]) <= 1e-3 * scale and abs(rough[1] - exact[1]) <= 3e-2 * scale
    steady = abs(y[NODES // 2] - value) < 1e-12 * scale
    # A kink on the line, away from its middle, spoils the polynomial alone; these differences are exact to
    # STEP^4.
    right, left_of = run(STEP), run(-STEP)
    short = (8 * (right - left_of) - (run(2 * STEP) - run(-2 * STEP))) / (12 * STEP)
    smooth = (
        smooth and abs(right + left_of - 2 * value) <= 0.01 * STEP * scale
    )  # a kink in the middle itself spoils neither
    smooth = smooth and abs(short - exact[0]) <= 0.3 * CLOSE * (1 + abs(value) + abs(exact[0]))
    return Plain(value, left, *exact, bool(np.all(np.isfinite(y)) and scale < LARGE and smooth and steady))


def copies(shown: list) -> list:
    """(type, dtype, values) of each.  (Two modules of one text have classes of the same name.)"""
    return [
        (
            str(type(a)),
            getattr(a, "dtype", None),
            np.array(host(a), copy=True, subok=False) if np.ndim(a) else host(a),
        )
        for a in shown
    ]


# --- the checks ---


@dataclass
class Verdict:
    wrong: list = field(default_factory=list)  # (check, what was got, what is right)
    loud: list = field(default_factory=list)  # (check, exception)
    right: list = field(default_factory=list)
    unjudged: str = ""

    def silent(self) -> bool:
        """Is a number, or what is left, wrong without an exception?"""
        return any(right is not None for _, _, right in self.wrong)

    def outcome(self) -> str:
        """`raised`: by an exception that the plain program does not raise and that is none of tapegrad's."""
        return self.unjudged or (
            "wrong" if self.silent() else "raised" if self.wrong else "loud" if self.loud else "right"
        )


REFUSALS = (  # what NumPy says of an object that is no array, forgetting what was said to it
    "Error setting single item of array.",
    "Supplied output array must be contiguous, writable, aligned, and in machine byte-order.",
    "Axis argument is only supported on ndarray objects",
    "out must be a numpy array",
    "Iterator operand is flagged as writeable, but is an object which cannot be written back to via "
    "WRITEBACKIFCOPY",
)


def own(e: BaseException | None) -> bool:
    """Is it an error of tapegrad's, or one that NumPy put around it?  What compiled code says when it is given a Variable for an array
    is loud too: it names the Variable, or refuses it, and nobody can put other words into its mouth."""
    while e is not None:
        said = str(e)
        if isinstance(e, tg.errors.TapegradError) or said in REFUSALS:
            return True
        named = any(f"'{n}'" in said or f"not {n}" in said for n in ("Variable", "View"))
        if isinstance(e, TypeError) and named and "unsupported operand" not in said:
            return True
        e = e.__cause__
    return False


def same(a: tuple, b: tuple) -> bool:
    if a[:2] != b[:2]:
        return False
    try:
        return np.shape(a[2]) == np.shape(b[2]) and bool(
            np.all(np.abs(a[2] - b[2]) <= ALIKE * (1 + np.abs(b[2])))
        )
    except TypeError:
        return True  # objects


def left_tracked(module) -> str:
    """Where a Variable is left in what the module holds; "" if nowhere."""
    seen, queue = set(), [(module.__dict__, "")]
    while queue and len(seen) < 20_000:
        x, path = queue.pop()
        if id(x) in seen:
            continue
        seen.add(id(x))
        if isinstance(x, tg.Variable):
            return path
        if isinstance(x, (types.ModuleType, types.TracebackType, types.FrameType)):
            continue
        if callable(x) and not str(getattr(x, "__module__", "")).startswith("route"):
            continue
        if isinstance(x, dict) and x.get("__name__") and x is not module.__dict__ and "__builtins__" in x:
            continue
        if isinstance(x, np.ndarray) and x.dtype == object:
            queue += [(a, f"{path}/item") for a in x.flat]
        queue += [
            (a, f"{path}/{type(x).__name__}")
            for a in gc.get_referents(x)
            if not isinstance(a, (str, int, float))
        ]
    return ""


class Judge:
    def __init__(self, text: Text):
        self.text, self.verdict = text, Verdict()

    def check(self, name, run):
        """`run` gives pairs (got, right, tolerance) of one check, or raises."""
        try:
            found = [(got, right) for got, right, tolerance in run() if not near(got, right, tolerance)]
        except Exception as e:
            if own(e):
                self.verdict.loud.append((name, e))
            else:
                self.verdict.wrong.append((name, f"{type(e).__name__}: {e}", None))
            return
        if found:
            self.verdict.wrong.append((name, *found[0]))
        else:
            self.verdict.right.append(name)

    def left(self, name, module, expected):
        """After a call: as a plain call leaves it.  After an error of its own: nothing tracked is left."""
        loud = any(n == name for n, _ in self.verdict.loud) or any(
            w[0] == name and w[2] is None for w in self.verdict.wrong
        )
        try:
            now = copies(module.look())
        except Exception as e:
            if not loud:
                self.verdict.wrong.append(
                    (name + ", left", f"{type(e).__name__}: {e}", "what a plain call leaves")
                )
            return
        if path := left_tracked(module):
            self.verdict.wrong.append((name + ", left", "a Variable at " + path, "plain data"))
        if loud:
            return
        for expression, a, b in zip(self.text.shown, now, expected, strict=True):
            if not same(a, b):
                self.verdict.wrong.append((f"{name}, left in {expression}", a, b))
                return

    def stopped(self):
        """f raises half-way: so does the transform, and what f captured is as a plain call up to there leaves
        it."""
        half = len(self.text.body) // 2
        cut = replace(
            self.text, body=(*self.text.body[:half], "raise KeyError('stop')", *self.text.body[half:])
        )
        try:
            plain = fresh(cut)
            raised(plain.f, self.text)
            left = copies(plain.look())
        except Exception:
            return
        module = fresh(cut)

        def run():
            if notes := raised(tg.grad(module.f), self.text):
                raise tg.errors.RouteError(*notes)
            return []

        self.check("f raises", run)
        self.left("f raises", module, left)


def raised(f, text) -> list:
    """The notes on the exception that f was to raise."""
    try:
        f(point(text))
    except KeyError as e:
        if e.args == ("stop",):
            return getattr(e, "__notes__", [])
        raise
    raise AssertionError("KeyError of f was lost")


def near(got, right, tolerance) -> bool:
    got = host(got)
    return bool(np.isfinite(got) and abs(got - right) <= tolerance)


def judge(text: Text, deep: bool = True) -> Verdict:
    """All checks; `deep`: second calls and second orders too."""
    before = {k for k in sys.modules if k.startswith("route_")}
    try:
        return contextvars.Context().run(judged, text, deep)
    finally:
        for k in [k for k in sys.modules if k.startswith("route_") and k not in before]:
            del sys.modules[k]


@silent
def judged(text: Text, deep: bool) -> Verdict:
    try:
        known = plain(text)
        again = plain(text, calls=2) if deep else None
    except Exception as e:
        return Verdict(unjudged=f"invalid: {type(e).__name__}: {e}")
    if not known.sure:
        return Verdict(unjudged="unsure")
    j = Judge(text)
    scale = 1 + abs(known.value) + abs(known.first)
    one, two = CLOSE * scale, CLOSE_SECOND * (scale + abs(known.second))
    direction = sys.modules[text.library].asarray(V)
    module = fresh(text)

    def gradient(module=module, known=known):
        x = point(text)
        y, g = tg.value_and_grad(module.f)(x)
        return [
            (y, known.value, ALIKE * scale),
            (along(g), known.first, one),
            (np.abs(host(x) - X).max(), 0.0, 0.0),
        ]

    j.check("grad", gradient)
    j.left("grad", module, known.left)
    if again and again.sure and not j.verdict.loud:
        j.check("second call", functools.partial(gradient, known=again))
        j.left("second call", module, again.left)
    module = fresh(text)

    def forward():
        y, t = tg.jvp(module.f, (point(text),), (direction,))
        return [(y, known.value, ALIKE * scale), (t, known.first, one)]

    j.check("jvp", forward)
    j.left("jvp", module, known.left)

    def pulled():
        module = fresh(text)
        y, back = tg.vjp(module.f, point(text))
        module.after()
        return [
            (y, known.value, ALIKE * scale),
            (along(back(1.0)), known.first, one),
            (along(back(1.0)), known.first, one),
        ]

    j.check("pullback", pulled)
    if not deep:
        return j.verdict
    j.stopped()
    for name, run in NESTED.items():
        module = fresh(text)
        j.check(
            name, lambda run=run, module=module: [(run(module.f, point(text), direction), known.second, two)]
        )
        if known.left != [] and name in ("hvp", "RF"):
            j.left(name, module, known.left)
    return j.verdict


def along(g):
    return host(g) @ V


NESTED = {
    "hvp": lambda f, x, v: along(tg.hvp(f, x, v)),
    "RR": lambda f, x, v: along(tg.grad(lambda z: (tg.grad(f)(z) * v).sum())(x)),
    "RF": lambda f, x, v: along(tg.grad(lambda z: tg.jvp(f, (z,), (v,))[1])(x)),
    "FF": lambda f, x, v: tg.jvp(lambda z: tg.jvp(f, (z,), (v,))[1], (x,), (v,))[1],
}


# --- the smallest text that still shows it ---


def class_of(verdict: Verdict) -> tuple:
    """What must stay while the text is shrunk: a number that is wrong, or the type of what was raised."""
    check, got, right = next((w for w in verdict.wrong if w[2] is not None), verdict.wrong[0])
    return ("raised", str(got).partition(":")[0]) if right is None else ("wrong", ", left" in check)


def shrunk(text: Text, deep: bool = True) -> Text:
    kind = class_of(judge(text, deep))

    def still(shorter):
        v = judge(shorter, deep)
        return bool(v.wrong) and class_of(v) == kind

    if deep and kind[0] and (v := judge(text, False)).wrong and class_of(v) == kind:
        deep = False
    changed = True
    while changed:
        changed = False
        for part in ("after", "body", "shown", "head"):
            size = max(1, len(getattr(text, part)) // 2)
            while size:
                k = 0
                while k < len(getattr(text, part)):
                    units = getattr(text, part)
                    shorter = replace(text, **{part: units[:k] + units[k + size :]})
                    if still(shorter):
                        text, changed = shorter, True
                    else:
                        k += size
                size //= 2
    return text


def report(text: Text, deep: bool = True) -> str:
    text = shrunk(text, deep)
    verdict = judge(text, deep)
    found = [f"  {check}: {got} instead of {right}" for check, got, right in verdict.wrong]
    shown = text.source().replace(PRELUDE, "")
    return f"program of seed {text.seed} is wrong; minimised:\n\n{shown}\n" + "\n".join(found)
