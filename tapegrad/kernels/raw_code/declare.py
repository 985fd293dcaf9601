"""Declarations of the parameters of a hand-written kernel, one line of text for each parameter of the C
function, in its order:

    role [unsaved] type name[dimensions]

role       in (has a derivative), const (has none), out (allocated for the call), inout (a copy
           that the kernel changes), work (scratch), size (a dimension's length)
unsaved    the adjoint does not read the value: it is not kept for it type       real (float or double, as the
arguments are), float, double, int, long long dimensions names, numbers and whole-number expressions of names;
no bracket: a scalar passed by value; []: a pointer to one value

A name is bound where it first stands alone in an argument, and checked everywhere else; `slots` is the number
of threads."""

import ast
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._core.errors import KernelError, ShapeError

ROLES = ("in", "const", "out", "inout", "work", "size")
KINDS = {"real": None, "float": np.float32, "double": np.float64, "int": np.int32, "long long": np.int64}
OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
TOKEN = re.compile(r"long\s+long\b|[A-Za-z_]\w*|\S")
SLOTS = "slots"


@dataclass(frozen=True)
class Dimension:
    text: str
    tree: Any
    names: frozenset

    def value(self, known: dict) -> int:
        return _evaluate(self.tree, known)

    @property
    def alone(self) -> bool:
        """Return whether the dimension is a single name."""
        return isinstance(self.tree, ast.Name)


@dataclass(frozen=True)
class Arg:
    """One parameter; `dims` is None for a scalar passed by value."""

    role: str
    kind: str
    name: str
    dims: tuple | None
    saved: bool
    text: str

    @property
    def given(self) -> bool:
        """Return whether the caller passes the parameter."""
        return self.role in ("in", "const", "inout")

    @property
    def returned(self) -> bool:
        return self.role in ("out", "inout")

    @property
    def active(self) -> bool:
        """Return whether the parameter can have a derivative."""
        return self.role in ("in", "out", "inout") and self.kind in ("real", "float", "double")

    def dtype(self, real: np.dtype) -> np.dtype:
        return real if self.kind == "real" else np.dtype(KINDS[self.kind])

    def shape(self, known: dict) -> tuple:
        return tuple([d.value(known) for d in self.dims or ()])

    @property
    def names(self) -> set:
        return set().union(*[d.names for d in self.dims or ()])


def _evaluate(tree, known: dict) -> int:
    if isinstance(tree, ast.Constant) and isinstance(tree.value, int):
        return tree.value
    if isinstance(tree, ast.Name):
        return known[tree.id]
    return OPERATORS[type(tree.op)](_evaluate(tree.left, known), _evaluate(tree.right, known))


def _allowed(tree) -> bool:
    if isinstance(tree, ast.BinOp):
        return type(tree.op) in OPERATORS and _allowed(tree.left) and _allowed(tree.right)
    return isinstance(tree, ast.Name) or (isinstance(tree, ast.Constant) and type(tree.value) is int)


def dimension(text: str) -> Dimension:
    """Parse a dimension or another integer expression; raise ValueError."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        raise ValueError(text) from None
    if not _allowed(tree):
        raise ValueError(text)
    return Dimension(text.strip(), tree, frozenset(n.id for n in ast.walk(tree) if isinstance(n, ast.Name)))


def fail(kernel: str, text: str, column: int, message: str) -> None:
    raise KernelError(f"{kernel}: {message}\n    {text}\n    {' ' * column}^")


class DeclarationReader:
    """The words of a declaration before its dimensions; the last one is empty."""

    def __init__(self, kernel: str, text: str):
        self.kernel, self.text = kernel, text
        head = text.partition("[")[0]
        self.words = [(" ".join(m[0].split()), m.start()) for m in TOKEN.finditer(head)]
        self.words.append(("", len(head.rstrip())))

    def must(self, fits: Callable, message: str) -> str:
        """Return the next word, which fits."""
        word, column = self.words[0]
        if not fits(word):
            fail(self.kernel, self.text, column, message)
        return word

    def take(self, fits: Callable, message: str) -> str:
        word = self.must(fits, message)
        self.words.pop(0)
        return word


def parse(kernel: str, text: str) -> Arg:
    """Parse one declaration; raise KernelError that shows the column."""
    if not isinstance(text, str):
        raise KernelError(f'{kernel}: a declaration is a text such as "in real theta[p, B]", not {text!r}')
    read, start = DeclarationReader(kernel, text), text.find("[")
    role = read.take(ROLES.__contains__, f"a declaration begins with one of {', '.join(ROLES)}")
    if role == "size":
        wanted = 'wanted is "size" and the name of one dimension'
        name = read.take(str.isidentifier, wanted)
        read.must(lambda word: not word and start < 0, wanted)
        return Arg("size", "long long", name, None, True, text)
    saved = read.words[0][0] != "unsaved"
    if not saved:
        read.take(lambda _: role != "work", "a work array is never saved")
    read.must(
        lambda word: role not in ("in", "inout") or word not in ("int", "long long"),
        "whole numbers have no derivative: declare them const",
    )
    kind = read.take(KINDS.__contains__, f"wanted is a type: {', '.join(KINDS)}")
    name = read.take(str.isidentifier, "wanted is the name of the parameter")
    read.must(lambda word: not word, "wanted are the dimensions in [ ], or the end")
    dims = None if start < 0 else _dimensions(kernel, text, start, role)
    if dims is None and role in ("out", "inout", "work"):
        fail(kernel, text, len(text.rstrip()), f"an array of role {role} needs its dimensions in [ ]")
    return Arg(role, kind, name, dims, saved, text)


def _dimensions(kernel: str, text: str, start: int, role: str) -> tuple:
    close = text.find("]", start)
    if close < 0:
        fail(kernel, text, len(text.rstrip()), "wanted is ]")
    rest = text[close + 1 :].lstrip()
    if rest:
        fail(kernel, text, len(text) - len(rest), "nothing may follow the dimensions")
    inside = text[start + 1 : close]
    if not inside.strip():
        return ()
    made, column = [], start + 1
    for part in inside.split(","):
        at = column + len(part) - len(part.lstrip())
        try:
            d = dimension(part)
        except ValueError:
            fail(
                kernel,
                text,
                at,
                "a dimension is a name, a number, or whole-number arithmetic (+ - * //) with names",
            )
        if SLOTS in d.names and role != "work":
            fail(kernel, text, at, f"`{SLOTS}`, the number of threads, is a dimension of work arrays only")
        made.append(d)
        column += len(part) + 1
    return tuple(made)


def bind_dimensions(kernel: str, args: list, values: list, known: dict) -> dict:
    """Return the dimensions of a call with the given arguments `values`; raise ShapeError with the argument's
    name."""
    known, given = dict(known), [a for a in args if a.given]
    source = dict.fromkeys(known, "the kernel that it is a rule of")
    for a, v in zip(given, values, strict=True):
        if a.dims is None:
            if a.kind in ("int", "long long") and a.name not in known:
                known[a.name] = int(v)  # a whole number passed by value serves in dimensions
            continue
        shape = () if type(v) is float else tuple(v.shape)
        if len(shape) != len(a.dims):
            raise ShapeError(f"{kernel}: argument {a.name} has shape {shape}, declared is {a.text!r}")
        for d, n in zip(a.dims, shape, strict=True):
            if d.alone and d.text not in known:
                known[d.text], source[d.text] = n, a.name
    for a, v in zip(given, values, strict=True):
        for axis, d in enumerate(a.dims or ()):
            if d.value(known) != v.shape[axis]:
                why = "".join(f", {n} is {known[n]} by {source[n]}" for n in sorted(d.names) if n in source)
                raise ShapeError(
                    f"{kernel}: argument {a.name} has shape {tuple(v.shape)}, declared is {a.text!r}{why}"
                )
    return known


def derivable(kernel: str, args: list) -> None:
    """Raise KernelError if a dimension is used that no argument determines."""
    told = set()
    for a in args:
        if a.given and a.dims is None and a.kind in ("int", "long long"):
            told.add(a.name)
        elif a.given:
            told |= {d.text for d in a.dims or () if d.alone}
    for a in args:
        names = {a.name} if a.role == "size" else a.names - {SLOTS}
        missing = sorted(names - told)
        if missing:
            first = max(a.text.find("["), 0)
            found = re.search(rf"\b{missing[0]}\b", a.text[first:])
            column = first + (found.start() if found else 0)
            fail(kernel, a.text, column, f"no `in` or `const` argument tells the dimension {missing[0]}")


# --- the C text ---

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
PLAIN = dict(zip(KINDS, KINDS, strict=True)) | {
    "long long int": "long long",
    "signed int": "int",
    "int32_t": "int",
    "int64_t": "long",
    "long": "long",
    "unsigned": "unsigned int",
    "unsigned int": "unsigned int",
    "size_t": "unsigned long",
}


def c_parameters(kernel: str, source: str, entry: str) -> list:
    """Return (type, is a pointer, name, text) of each parameter of the entry; unknown types are None."""
    code = COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), source)
    found = re.search(
        rf"__global__[^;{{}}()]*(?:__launch_bounds__\s*\([^()]*\)\s*)?[^;{{}}()]*\b{re.escape(entry)}\s*\(",
        code,
    )
    if found is None:
        have = re.findall(
            r"__global__[^;{}()]*(?:__launch_bounds__\s*\([^()]*\)\s*)?[^;{}()]*?\b(\w+)\s*\(", code
        )
        raise KernelError(
            f"{kernel}: the source has no __global__ function {entry!r}; it has {', '.join(have) or 'none'}"
        )
    if not re.search(r'extern\s*"C"', code[: found.end()]):
        raise KernelError(
            f'{kernel}: write extern "C" __global__ void {entry}(...), so that the name is found in the '
            f"compiled code"
        )
    text = code[found.end() : code.index(")", found.end())]
    made = []
    for p in [p.strip() for p in text.split(",")] if text.strip() else []:
        plain = re.sub(
            r"\b(const|volatile|__restrict__|__restrict|restrict)\b", " ", re.sub(r"=.*", "", p, flags=re.S)
        )
        pointer = "*" in plain or "[" in plain
        words = re.sub(r"\[.*?\]", " ", plain).replace("*", " ").split()
        made.append((PLAIN.get(" ".join(words[:-1])), pointer, words[-1], " ".join(p.split())))
    return made


def compare(kernel: str, args: list, parameters: list) -> None:
    """Raise KernelError where the declarations differ from the C text."""
    if len(args) != len(parameters):
        raise KernelError(
            f"{kernel}: {len(args)} parameters are declared, the C function has {len(parameters)}"
        )
    names = [name for _, _, name, _ in parameters]
    for n, (a, (kind, pointer, _, text)) in enumerate(zip(args, parameters, strict=True)):
        if a.name in names and names.index(a.name) != n:
            raise KernelError(
                f"{kernel}: parameter {n} is declared {a.text!r}; in the C text {a.name} is parameter "
                f"{names.index(a.name)}"
            )
        want = a.dims is not None
        if pointer != want:
            raise KernelError(
                f"{kernel}: parameter {n} is declared {a.text!r}, {'a pointer' if want else 'a value'}; the "
                f"C text is `{text}`"
            )
        if a.returned and re.search(r"\bconst\b", text.partition("*")[0]):
            raise KernelError(
                f"{kernel}: parameter {n} is declared {a.text!r}, to be written; the C text is `{text}`"
            )
        same = kind is None or kind == a.kind or (kind == "long" and a.kind == "long long")
        if not same:
            raise KernelError(
                f"{kernel}: parameter {n} is declared {a.text!r}, which is {a.kind}; the C text is `{text}`"
            )


def compare_compiled(kernel: str, args: list, signature: list, real: np.dtype) -> None:
    """Compare the declarations with the types of the compiler.

    `signature` holds (is a pointer, to const, bytes, floating, signed) of each parameter."""
    if len(args) != len(signature):
        raise KernelError(
            f"{kernel}: {len(args)} parameters are declared, the C function has {len(signature)}"
        )
    for n, (a, (pointer, constant, size, floating, signed)) in enumerate(zip(args, signature, strict=True)):
        want = a.dtype(real)
        have = f"{'a pointer to ' if pointer else ''}{'const ' if constant else ''}"
        have += f"{size}-byte {'floating-point' if floating else 'signed whole' if signed else 'unsigned whole'} numbers"
        fits = (
            bool(pointer) == (a.dims is not None)
            and size == want.itemsize
            and bool(floating) == (want.kind == "f")
            and signed
        )
        if not fits or (constant and a.returned):
            raise KernelError(
                f"{kernel}: parameter {n} is declared {a.text!r} ({want}); the C function takes {have}"
            )
