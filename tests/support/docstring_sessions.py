"""The examples of a docstring as programs of one number.

One value of the session, an array or a float that is written there, is multiplied by t = 1.  The program gives
the sum of all floats that the session shows, with fixed weights.  Its derivative by t is compared with
differences, so a function of NumPy or SciPy is tried as its authors show it."""

import ast
import contextlib
import doctest
import io
import linecache
import re
import warnings

import numpy as np

import tapegrad as tg

LEFT_OUT = re.compile(
    r"plt\.|\.plot\(|show\(|\bhist\(|\bax\.|\bfig\b|timeit|tempfile|open\(|np\.save|np\.load|\bsys\.|\bos\."
)
RIGHT, WRONG, REFUSED = "right", "wrong", "refused"


def statements(doc):
    """The statements of the examples, without plots, files and errors."""
    found = []
    for example in doctest.DocTestParser().get_examples(doc):
        if example.exc_msg is None and not LEFT_OUT.search(example.source):
            with contextlib.suppress(SyntaxError):
                found += ast.parse(example.source.replace("default_rng()", "default_rng(7)")).body
    return found


def shown(values):
    """The sum of the floats in what a session shows."""
    total = 0.0
    for v in values:
        if isinstance(v, (list, tuple)):
            total = total + shown(v[:20])
        elif isinstance(v, (np.ndarray, np.generic, float, complex)):
            a = np.asarray(v)
            if a.dtype == object and a.size < 1000:  # `plain.dot(tracked)`, whose elements are numbers
                a = np.asarray(a.tolist())
            if a.dtype.kind in "fc":
                weights = np.cos(1.0 + np.arange(a.size)).reshape(a.shape)
                total = total + np.sum(np.real(a) * weights)
                total = total + (0.7 * np.sum(np.imag(a) * weights) if a.dtype.kind == "c" else 0.0)
    return total


def quiet(f, *args):
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(action="ignore"):
        with np.errstate(all="ignore"):
            return f(*args)


class Scaled(ast.NodeTransformer):
    """The float number `place` of a statement is multiplied by t; an index stays."""

    def __init__(self, place):
        self.left = place

    def visit_Constant(self, node):
        self.left -= type(node.value) is float
        if self.left == 0 and type(node.value) is float:
            return ast.BinOp(node, ast.Mult(), ast.Name("_t", ast.Load()))
        return node

    def visit_Subscript(self, node):
        node.value = self.visit(node.value)
        return node

    def visit_FunctionDef(self, node):
        return node


def program(name, imports, body, place):
    """The session as a function of t.  place: the number of a statement, and 0 for the variable that it binds or
    k for the k-th float in it."""
    lines, (at, k) = [], place
    for n, statement in enumerate(body):
        if n == at and k:
            statement = ast.fix_missing_locations(Scaled(k).visit(ast.parse(ast.unparse(statement)).body[0]))
        text = ast.unparse(statement)
        lines.append(f"_shown.append({text})" if isinstance(statement, ast.Expr) else text)
        if n == at and not k:
            (target,) = statement.targets
            lines.append(f"{target.id} = {target.id} * 1.0 * _t")
    inner = "\n".join(["_shown = []", *lines, "return _of(_shown)"])
    text = "\n".join(["def session(_t):", *[f"    {line}" for line in inner.splitlines()]])
    name = f"<{name}, {place}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    space = {"__name__": "docstring", "np": np, "_of": shown}
    exec(compile(ast.Module(imports, []), name, "exec"), space)
    exec(compile(text, name, "exec"), space)
    return space["session"]


def sessions(name, doc):
    """The programs of a docstring: one for each array and each float that it binds, and for the first two floats
    of each statement."""
    body = statements(doc)
    imports = [s for s in body if isinstance(s, (ast.Import, ast.ImportFrom))]
    space, kept, bound, written = {"__name__": "docstring", "np": np}, [], [], []
    for statement in [s for s in body if s not in imports]:
        try:
            quiet(exec, compile(ast.Module([*imports, statement], []), name, "exec"), space)
        except Exception:
            continue
        kept.append(statement)
        if isinstance(statement, ast.Assign) and [type(x) for x in statement.targets] == [ast.Name]:
            v = space[statement.targets[0].id]
            if type(v) in (np.ndarray, float) and np.asarray(v).dtype.kind in "fci":
                bound.append((len(kept) - 1, 0))
        if not isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            counter = Scaled(1000)
            counter.visit(ast.parse(ast.unparse(statement)))
            written += [(len(kept) - 1, k) for k in range(1, min(2, 1000 - counter.left) + 1)]
    return [program(name, imports, kept, place) for place in bound + written]


def is_smooth(f, plain, steps):
    """Do the differences agree, from both sides?"""
    apart, size = np.abs(np.diff(steps)), max(abs(plain), 1e-3)
    sides = [(quiet(f, 1 + h) - plain) / h for h in (1e-5, -1e-5)]
    allowed = 1e-4 * max(abs(steps[1]), 1e-3 * size)
    return apart.max() <= allowed and abs(sides[0] - sides[1]) <= 10 * allowed + 1e-3 * abs(steps[1])


def judge(f):
    """(verdict, words) of a session; None where plain calls give no derivative to compare with."""
    try:
        plain, again = quiet(f, 1.0), quiet(f, 1.0)
        steps = [(quiet(f, 1 + h) - quiet(f, 1 - h)) / (2 * h) for h in (1e-4, 1e-5, 1e-6)]
    except Exception:
        return None
    if plain != again or not np.isfinite([plain, *steps]).all() or not is_smooth(f, plain, steps):
        return None
    size, slope, apart = max(abs(plain), 1e-3), steps[1], np.abs(np.diff(steps))
    try:
        value, reverse = quiet(tg.value_and_grad(f), 1.0)
        forward = quiet(tg.jvp, f, (1.0,), (1.0,))[1]
    except Exception as error:
        return REFUSED, f"{type(error).__name__}: {error}"
    if not np.isfinite([value, reverse, forward]).all():
        return REFUSED, f"{value}; {reverse} and {forward}"
    off = 20 * apart.max() + 1e-5 * max(abs(slope), 1e-3 * size)
    if abs(value - plain) > 1e-7 * size or abs(reverse - slope) > off or abs(forward - slope) > off:
        return WRONG, f"{value}, plain {plain}; {reverse} and {forward}, differences {slope}"
    return RIGHT, ""
