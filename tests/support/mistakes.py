"""What newcomers write, and what they are told: the rows of the table in docs/errors.md.

`python tests/support/mistakes.py` prints the table anew."""

import contextlib
import io
import json
import linecache
import math
import operator
import pickle
import traceback
import warnings
from dataclasses import dataclass

import matplotlib.figure
import numpy as np
import pandas as pd
import scipy.stats

import tapegrad as tg
from tapegrad.errors import (
    AliasError,
    ArgumentError,
    BatchError,
    DroppedDerivativeError,
    NoRuleError,
    NotScalarError,
    RouteError,
    ShapeError,
)


class Tensor:
    """Stands for one of PyTorch's, of which only the name of its module is looked at."""

    __module__ = "torch"
    shape, dtype = (3,), "torch.float32"


@dataclass(frozen=True)
class Mistake:
    """`what` is said in the table, `code` is run as the file mistake.py, `error` and `texts` are what has to
    come."""

    what: str
    code: str
    error: type
    texts: tuple


def m(what, code, error, *texts):
    return Mistake(what, code, error, texts)


MISTAKES = [
    # transforms
    m("the value in place of the function", "tg.grad(f(x))", ArgumentError, "grad", "perhaps a value f(x)",
    "grad(f)(x)"),
    m("no function at all", "tg.grad(3)", ArgumentError, "first argument is 3", "grad(f)(x)"),
    m("the argument beside the function", "tg.grad(f, x)", ArgumentError, "argnums is ndarray(3,)",
    "grad(f)(x)"),
    m("arguments chosen by name", "tg.grad(f, argnums='x')", ArgumentError, "argnums is 'x'", "positions"),
    m("an argument that is not there", "tg.grad(f, argnums=1)(x)", ArgumentError, "argnums=1",
    "1 positional"),
    m("what is differentiated, by keyword", "tg.grad(f)(x=x)", ArgumentError, "argnums=0", "by position"),
    m("a call of jvp without tuples", "tg.jvp(f, x, x)", ArgumentError, "jvp(f, (x,), (v,))"),
    m("a direction of another shape", "tg.hvp(f, x, np.ones(2))", ShapeError, "hvp(f)", "(2,)", "(3,)"),
    m("a cotangent of another shape", "pullback(1.0)", ShapeError, "pullback", "()", "(3,)"),
    m("the name of another library", "tg.jit(f)", AttributeError, "no attribute 'jit'",
    "tapegrad.prepare(f, x)"),
    m("vmap over arguments of different length", "tg.vmap(operator.mul)(x, np.ones(4))", ShapeError,
    "3 along axis 0", "4 along axis 0"),
    # arguments
    m("an integer", "tg.grad(lambda x: x * x)(3)", ArgumentError, "argument 0 has type int", "float(3)"),
    m("a list of integers", "tg.grad(lambda x: x[0] * x[1])([1, 2])", ArgumentError,
    "no leaf of argument 0 is a float", "float(1)"),
    m("an array of integers", "tg.grad(f)(np.array([1, 2, 3]))", ArgumentError, "dtype int64",
    "x.astype(float)"),
    m("a boolean", "tg.grad(f)(np.array([True, False]))", ArgumentError, "dtype bool", "x.astype(float)"),
    m("text, or None", "tg.grad(f)(None)", ArgumentError, "type NoneType", "float array"),
    m("a list for an array", "tg.grad(lambda x: (x * 2.0).sum())([1.0, 2.0])", TypeError,
    "argument 0 is a list", "numpy.array(x)"),
    m("a Series of pandas", "tg.grad(f)(pd.Series([1.0, 2.0]))", ArgumentError, "Series of pandas",
    "s.to_numpy()"),
    m("a tensor of PyTorch", "tg.grad(f)(tensor)", ArgumentError, "Tensor of torch",
    "t.detach().cpu().numpy()"),
    m("an array of objects", "tg.grad(f)(np.array([1.0, 2.0], dtype=object))", ArgumentError, "dtype object",
    "x.astype(float)"),
    m("arrays that share memory, one written", "tg.grad(set_first, (0, 1))(x, x)", AliasError,
    "`a[0] = b[1] * 2`", "x.copy()"),
    # results
    m("an array as result", "tg.grad(lambda x: x * x)(x)", NotScalarError, "shape (3,)", "`y.sum()`",
    "jacobian"),
    m("an array of one element", "tg.grad(lambda x: x[:1])(x)", NotScalarError, "shape (1,)", "`y[0]`"),
    m("a missing return", "tg.grad(no_return)(x)", NotScalarError, "no_return", "None",
    "is a return missing?"),
    m("two results", "tg.grad(lambda x: (f(x), x))(x)", NotScalarError, "tuple(float64, ndarray(3,))",
    "has_aux=True"),
    m("a complex result", "tg.grad(lambda x: (x * 1j).sum())(x)", NotScalarError, "complex128", ".real"),
    m("a generator", "tg.grad(generator)(x)", NotScalarError, "generator", "real scalar"),
    m("the Hessian of an array", "tg.hessian(lambda x: x * x)(x)", NotScalarError, "hessian(<lambda>)",
    "hessian needs", "`y.sum()`"),
    # inside the function
    m("`%` of a text", "tg.grad(lambda x: float('%f' % f(x)))(x)", DroppedDerivativeError, "`float('%f' % f(x))`",
    "numpy.round(x, n)"),
    m("code not followed", "tg.grad(tg.Const(lambda x: math.sin(x)))(1.0)", DroppedDerivativeError,
    "`math.sin(x)`", "numpy.sin(x)"),
    m(".hex()", "tg.grad(lambda x: x[0].hex())(x)", DroppedDerivativeError, "`x[0].hex()`",
    "tapegrad.value(x)"),
    m(".tobytes(), for a file say", "tg.grad(lambda x: len(x.tobytes()))(x)", DroppedDerivativeError,
    "`len(x.tobytes())`", "value(x)"),
    m("pickling", "tg.grad(lambda x: len(pickle.dumps(x)))(x)", DroppedDerivativeError, "`pickle.dumps(x)`",
    "tapegrad.value(x)"),
    m("an array of integers filled", "tg.grad(into_integers)(x)", DroppedDerivativeError, "`a[:] = x`",
    "numpy.zeros(n, like=x)"),
    m("a plotted value", "tg.grad(lambda x: plot(x) or f(x))(x)", DroppedDerivativeError, "`plot(x)`",
    "ax.plot(tapegrad.value(x))"),
    m("pandas inside", "tg.grad(lambda x: pd.Series(np.ones(3)).quantile(x[0] / 9))(x)", DroppedDerivativeError,
    "pandas asked", "s.to_numpy()"),
    m("pandas inside, of a Series", "tg.grad(lambda x: pd.Series(x).rolling(2).rank().sum())(x)",
    DroppedDerivativeError, "compiled code", "tapegrad.rule"),
    m("a function of SciPy without derivative", "tg.grad(lambda x: bootstrap((x,), "
    "np.mean).standard_error)(x)", NoRuleError,
      "scipy.stats.bootstrap", "tapegrad.rule"),
    m("a file written", "tg.grad(lambda x: x.tofile('x.bin') or f(x))(x)", DroppedDerivativeError,
    "`x.tofile('x.bin')`", "value(x)"),
    m("a count that is followed", "tg.grad(lambda x: sum([x[0] for _ in range(x[1])]))(x)", TypeError,
    "numpy.float64", "integer"),
    m("a condition on an array", "tg.grad(lambda x: f(x) if x > 0 else 0.0)(x)", ValueError,
    "a.any() or a.all()"),
    m("a condition under vmap", "tg.vmap(lambda x: x if x > 2 else -x)(x)", BatchError, "mistake.py:1",
    "numpy.where"),
    m("shapes that do not fit", "tg.grad(lambda x: (x + np.ones(4)).sum())(x)", ValueError, "(3,) (4,)"),
    m("a shape that is set", "tg.grad(set_shape)(x)", ArgumentError, "x.shape", "x = x.reshape(s)"),
    m("a read-only array written", "tg.grad(into_read_only)(x)", ValueError, "read-only"),
    m("an error that is caught", "tg.grad(catches)(x)", DroppedDerivativeError, "`except` clause",
    "tapegrad.value(x)"),
    m("a buffer by two ways", "tg.grad(two_ways)(x)", RouteError, "raw"),
    # afterwards, and by hand
    m("a tape asked for what came later", "later()", ArgumentError, "inside it"),
    m("a rule without a rule", "tg.rule(f)", ArgumentError, "rule(f)", "vjp="),
    m("a rule of another shape", "tg.grad(lambda x: wrong_shape(x).sum())(x)", ShapeError,
    "vjp returned shape (2,)", "(3,)"),
    m("a rule that does not take the result", "without_out(2.0)", ArgumentError, "rule(<lambda>)",
    "vjp(g, out, x0)"),
    m("chunks of no samples", "tg.vmap(f, chunk=0)", ArgumentError, "chunk=0"),
    m("an unknown mode", "tg.jacobian(f, mode='fwd')", ArgumentError, "'fwd'", "'forward' or 'reverse'"),
]  # fmt: skip

SETTING = """
def f(x):
    return (x * x).sum()
def set_first(a, b):
    a[0] = b[1] * 2
    return (a * b).sum()
def no_return(x):
    y = f(x)
def generator(x):
    yield f(x)
def into_integers(x):
    a = np.array([0, 0, 0])
    a[:] = x
    return a.sum()
def into_read_only(x):
    read_only[:] = x
    return read_only.sum()
def set_shape(x):
    buffer.shape = (3, 1)
    return (buffer * x).sum()
def catches(x):
    try:
        return float("%f" % x[0])
    except TypeError:
        return x[0] * 0
def two_ways(x):
    buffer[:] = x
    return (x * np.frombuffer(raw)).sum()
def later():
    with tg.Tape() as tape:
        x = tape.watch(np.ones(3))
    return tape.grad((x * x).sum(), x)
value, pullback = tg.vjp(np.sin, x)
without_out = tg.rule(lambda x: x**2, vjp=lambda g, x: 2 * g * x)
wrong_shape = tg.rule(lambda x: x * x, vjp=lambda g, out, x: np.ones(2))
"""


def surroundings():
    """The names that the mistakes use."""
    x, buffer, read_only = np.array([1.0, 2.0, 3.0]), np.zeros(3), np.zeros(3)
    read_only.flags.writeable = False
    space = dict(
        __name__="__main__", np=np, tg=tg, pd=pd, math=math, json=json, pickle=pickle, operator=operator, x=x,
        buffer=buffer,
        raw=memoryview(buffer).cast("B"), read_only=read_only, tensor=Tensor(),
        bootstrap=scipy.stats.bootstrap,
        plot=matplotlib.figure.Figure().subplots().plot,
    )  # fmt: skip
    run(SETTING, "setting.py", space)
    return space


def run(source, name, space):
    """The text as a file whose lines are known."""
    linecache.cache[name] = len(source), None, source.splitlines(True), name
    exec(compile(source, name, "exec"), space)


def printed(mistake):
    """(the error, all that is printed of it)."""
    space = surroundings()
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            run(mistake.code, "mistake.py", space)
        except Exception as error:
            return error, "".join(traceback.format_exception_only(error)).strip()
    return None, ""


def short(text):
    """As in the table: without the module of the class."""
    head, _, rest = text.partition(": ")
    return (
        f"**{head.rpartition('.')[2]}**: {rest}".replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
    )


def rows():
    yield "| what is written | what is printed |"
    yield "|---|---|"
    for mistake in MISTAKES:
        yield f"| {mistake.what}: `{mistake.code}` | {short(printed(mistake)[1])} |"


if __name__ == "__main__":
    print("\n".join(rows()))
