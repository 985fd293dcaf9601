"""The subset of CUDA C that kernels are written in: from its text to a tree.

Names are resolved here: each declared variable is a `CVariable`, so that the tree has no scopes."""

import itertools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ..program import LoopRefused
from .preprocessor import Preprocessor, Token

# A type is "b1", "f4", "f8", a signed or unsigned integer "i4", "i8", "u4", "u8", or "void".
TYPES = {
    "void": "void", "bool": "b1", "float": "f4", "double": "f8", "int": "i4", "long": "i8", "unsigned": "u4",
    "int32_t": "i4", "int64_t": "i8", "uint32_t": "u4", "uint64_t": "u8", "size_t": "u8", "ptrdiff_t": "i8",
    "ssize_t": "i8",
}  # fmt: skip
INTEGER_WORDS = frozenset(("unsigned", "signed", "long", "int"))
QUALIFIERS = frozenset(
    ("const", "volatile", "static", "inline", "extern", "constexpr", "__restrict__", "__restrict", "__host__",
     "__device__", "__global__", "__forceinline__", "__noinline__", "__shared__", "__constant__")
)  # fmt: skip
REFUSED = frozenset(
    ("template", "class", "struct", "union", "enum", "namespace", "using", "switch", "goto", "asm", "new",
     "delete", "operator", "try", "typename", "char", "short", "half", "__half", "double2", "float2",
     "float4", "complex", "lambda", "sizeof", "reinterpret_cast")
)  # fmt: skip
BINARY = [
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="), ("<<", ">>"), ("+", "-"),
    ("*", "/", "%"),
]  # fmt: skip
ASSIGN = frozenset(("=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="))
INDICES = ("threadIdx", "blockIdx", "blockDim", "gridDim")


class CNode(NamedTuple):
    """An expression or statement; `parts` depend on its kind."""

    kind: str
    line: int
    parts: tuple = ()


class CVariable:
    """A variable or parameter. `dims` are the lengths of an array; None stands for a length of the launch."""

    def __init__(self, name: str, type: str, pointer: bool = False, dims: tuple = (), words: Iterable = ()):
        self.name, self.type, self.pointer, self.dims = name, type, pointer, dims
        self.shared, self.constant = "__shared__" in words, "const" in words
        self.axes = 0  # of the array that a pointer stands for; 0 for any array, read as a flat one


class CFunction(NamedTuple):
    name: str
    type: str
    params: list
    body: CNode
    line: int


class CParser:
    """The functions of a text; `types` adds names of types."""

    def __init__(self, text: str, types: dict[str, str] | None = None, options: Iterable[str] = ()):
        self.tokens = Preprocessor(text, options).tokens
        self.at, self.types = 0, {**TYPES, **(types or {})}
        self.numbers = itertools.count()
        self.scopes: list[dict] = [{}]  # name -> its variable, or the expression that it stands for
        self.functions: dict[str, CFunction] = {}
        self.globals: list[CNode] = []
        self.shared: list[CVariable] = []
        while self.peek() != "":
            self.outermost()

    # --- tokens ---

    @property
    def line(self) -> int:
        return self.tokens[self.at].line

    def peek(self, ahead: int = 0) -> str:
        return self.tokens[min(self.at + ahead, len(self.tokens) - 1)].text

    def next(self) -> Token:
        t = self.tokens[self.at]
        self.at += t.kind != "end"
        return t

    def take(self, text: str) -> bool:
        found = self.peek() == text and self.tokens[self.at].kind != "text"
        self.at += found
        return found

    def expect(self, text: str) -> None:
        if not self.take(text):
            raise self.refuse(f"{text!r} is expected before {self.peek()!r}")

    def refuse(self, what: str) -> LoopRefused:
        return LoopRefused(f"line {self.line}: {what}")

    # --- declarations ---

    def outermost(self) -> None:
        if self.take(";") or self.take("}"):
            return
        if self.peek() == "extern" and self.tokens[self.at + 1].kind == "text":
            self.at += 2
            self.take("{")
            return
        if self.take("typedef"):
            type, _ = self.type()
            self.types[self.next().text] = type
            self.expect(";")
            return
        line, (type, words) = self.line, self.type()
        if self.peek() == "*":
            raise self.refuse("a pointer as a result or outside of functions")
        name = self.next().text
        if self.take("("):
            self.function(name, type, line)
        else:
            self.globals += self.declarators(type, words, name)

    def type(self) -> tuple[str, set]:
        """(type, qualifiers)"""
        words: list[str] = []
        while self.peek() in QUALIFIERS or self.peek() == "__launch_bounds__":
            if self.take("__launch_bounds__"):
                while not self.take(")"):
                    self.next()
            else:
                words.append(self.next().text)
        if self.peek() in REFUSED:
            raise self.refuse(f"{self.peek()!r} is not known in kernels that are differentiated")
        found = self.types.get(self.peek())
        if found is None:
            if self.peek() not in INTEGER_WORDS:
                raise self.refuse(f"{self.peek()!r} is no known type")
        if self.peek() in INTEGER_WORDS:
            parts = []
            while self.peek() in INTEGER_WORDS:
                parts.append(self.next().text)
            found = ("u" if "unsigned" in parts else "i") + ("8" if "long" in parts else "4")
            if self.take("double"):
                raise self.refuse("long double is not known")
        else:
            self.next()
        while self.peek() in QUALIFIERS:
            words.append(self.next().text)
        return str(found), set(words)

    def starts_type(self) -> bool:
        return self.tokens[self.at].kind == "name" and (
            self.peek() in self.types
            or self.peek() in QUALIFIERS
            or self.peek() in INTEGER_WORDS
            or self.peek() in REFUSED
        )

    def declare(self, name: str, *x) -> CVariable:
        v = CVariable(f"{name}.{next(self.numbers)}", *x)
        self.scopes[-1][name] = v
        return v

    def pointer(self) -> bool:
        found = self.take("*")
        while self.peek() in QUALIFIERS:
            self.next()
        if self.peek() in ("*", "&"):
            raise self.refuse("pointers to pointers, and references as parameters, are not known")
        return found

    def function(self, name: str, type: str, line: int) -> None:
        self.scopes.append({})
        params = []
        while not self.take(")"):
            if self.take("void") and self.peek() == ")":
                continue
            params.append(self.parameter())
            self.take(",")
        if not self.take(";"):
            body = self.statement()
            self.functions[name] = CFunction(name, type, params, body, line)
        self.scopes.pop()

    def parameter(self) -> CVariable:
        kind, own = self.type()
        pointer = self.pointer()
        v = self.declare(self.next().text, kind, pointer, (), own)
        if self.take("["):
            while not self.take("]"):
                self.next()
            v.pointer = True
        return v

    def declarators(self, type: str, words: set, name: str | None = None) -> list[CNode]:
        made = []
        while True:
            line = self.line
            if name is None and self.take("&"):
                made += self.reference(type)
                if self.take(";"):
                    return made
                self.expect(",")
                continue
            pointer = False if name else self.pointer()
            name = name or self.next().text
            dims: list = []
            while self.take("["):
                if self.take("]"):
                    dims.append(None)
                    continue
                dims.append(self.expression())
                self.expect("]")
            v = CVariable(f"{name}.{next(self.numbers)}", type, pointer, tuple(dims), words)
            init = None
            if self.take("="):
                init = self.braces() if self.peek() == "{" else self.assignment()
            elif self.peek() in ("(", "{"):
                raise self.refuse(f"the declaration of {name}")
            self.scopes[-1][name] = v
            if v.shared:
                self.shared.append(v)
            made.append(CNode("declare", line, (v, init)))
            name = None
            if self.take(";"):
                return made
            self.expect(",")

    def reference(self, type: str) -> list[CNode]:
        """`name = place`: another name of a variable, or of the element at this place."""
        line, name = self.line, self.next().text
        self.expect("=")
        place = self.chosen()
        if place.kind == "name" and isinstance(place.parts[0], CVariable):
            self.scopes[-1][name] = place
            return []
        p = self.declare(name, type, True)
        self.scopes[-1][name] = CNode("unary", line, ("*", CNode("name", line, (p,))))
        return [CNode("declare", line, (p, CNode("unary", line, ("&", place))))]

    def braces(self) -> list:
        self.expect("{")
        made = []
        while not self.take("}"):
            made.append(self.braces() if self.peek() == "{" else self.assignment())
            self.take(",")
        return made

    # --- statements ---

    def statement(self) -> CNode:
        line = self.line
        if self.take("{"):
            self.scopes.append({})
            made: list[CNode] = []
            while not self.take("}"):
                if self.peek() == "":
                    raise self.refuse("a block does not end")
                made.append(self.statement())
            self.scopes.pop()
            return CNode("block", line, tuple(made))
        word = self.peek()
        if word in ("if", "for", "while", "do", "return", "break", "continue"):
            self.next()
            self.scopes.append({})
            made_one = getattr(self, "on_" + word)(line)
            self.scopes.pop()
            return made_one
        if self.take(";"):
            return CNode("block", line)
        if self.starts_type():
            return CNode("block", line, tuple(self.declarators(*self.type())))
        x = self.expression()
        self.expect(";")
        return CNode("expression", line, (x,))

    def condition(self) -> CNode:
        self.expect("(")
        x = self.expression()
        self.expect(")")
        return x

    def on_if(self, line: int) -> CNode:
        test, then = self.condition(), self.statement()
        return CNode("if", line, (test, then, self.statement() if self.take("else") else None))

    def on_for(self, line: int) -> CNode:
        self.expect("(")
        if self.starts_type():
            first = self.declarators(*self.type())
        else:
            first = [] if self.peek() == ";" else [CNode("expression", line, (self.expression(),))]
            self.expect(";")
        test = None if self.peek() == ";" else self.expression()
        self.expect(";")
        step = None if self.peek() == ")" else self.expression()
        self.expect(")")
        return CNode("for", line, (tuple(first), test, step, self.statement()))

    def on_while(self, line: int) -> CNode:
        return CNode("for", line, ((), self.condition(), None, self.statement()))

    def on_do(self, line: int) -> CNode:
        body = self.statement()
        self.expect("while")
        test = self.condition()
        self.expect(";")
        return CNode("do", line, (body, test))

    def on_return(self, line: int) -> CNode:
        x = None if self.peek() == ";" else self.expression()
        self.expect(";")
        return CNode("return", line, (x,))

    def on_break(self, line: int) -> CNode:
        self.expect(";")
        return CNode("break", line)

    def on_continue(self, line: int) -> CNode:
        self.expect(";")
        return CNode("continue", line)

    # --- expressions ---

    def expression(self) -> CNode:
        x = self.assignment()
        while self.take(","):
            x = CNode("comma", self.line, (x, self.assignment()))
        return x

    def assignment(self) -> CNode:
        x = self.chosen()
        if self.peek() in ASSIGN:
            t = self.next()
            return CNode("assign", t.line, (t.text[:-1], x, self.assignment()))
        return x

    def chosen(self) -> CNode:
        x = self.binary(0)
        if self.take("?"):
            line, a = self.line, self.expression()
            self.expect(":")
            return CNode("choose", line, (x, a, self.assignment()))
        return x

    def binary(self, level: int) -> CNode:
        if level == len(BINARY):
            return self.unary()
        x = self.binary(level + 1)
        while self.peek() in BINARY[level]:
            t = self.next()
            x = CNode("binary", t.line, (t.text, x, self.binary(level + 1)))
        return x

    def unary(self) -> CNode:
        t = self.tokens[self.at]
        if t.text in ("++", "--"):
            self.next()
            return CNode("step", t.line, (t.text[0], self.unary(), True))
        if t.text in ("-", "+", "!", "~", "*", "&"):
            self.next()
            return CNode("unary", t.line, (t.text, self.unary()))
        if t.text == "(":
            self.next()
            if self.starts_type():
                type, _ = self.type()
                pointer = self.pointer()
                self.expect(")")
                return CNode("cast", t.line, (type, pointer, self.unary()))
            x = self.expression()
            self.expect(")")
            return self.postfix(x)
        return self.postfix(self.primary())

    def primary(self) -> CNode:
        t = self.next()
        if t.kind == "number":
            return CNode("number", t.line, number(t.text))
        if t.kind != "name" or t.text in REFUSED:
            raise LoopRefused(f"line {t.line}: {t.text!r} is not known here")
        if t.text in ("true", "false"):
            return CNode("number", t.line, ("b1", t.text == "true"))
        if t.text == "static_cast" and self.take("<"):
            type, _ = self.type()
            pointer = self.pointer()
            self.expect(">")
            return CNode("cast", t.line, (type, pointer, self.condition()))
        if t.text in INDICES and self.peek() == ".":
            self.next()
            return CNode("index of thread", t.line, (f"{t.text}.{self.next().text}",))
        if self.peek() == "(" and (t.text in self.types):
            self.next()
            x = self.expression()
            self.expect(")")
            return CNode("cast", t.line, (self.types[t.text], False, x))
        if self.take("("):
            return CNode("call", t.line, (t.text, self.arguments()))
        v = next((scope[t.text] for scope in reversed(self.scopes) if t.text in scope), None)
        return v if isinstance(v, CNode) else CNode("name", t.line, (v or t.text,))

    def arguments(self) -> tuple:
        made: list[CNode] = []
        while not self.take(")"):
            made.append(self.assignment())
            if not self.take(",") and self.peek() != ")":
                raise self.refuse(f"',' is expected before {self.peek()!r}")
        return tuple(made)

    def postfix(self, x: CNode) -> CNode:
        while True:
            t = self.tokens[self.at]
            if self.take("["):
                x = CNode("element", t.line, (x, self.expression()))
                self.expect("]")
            elif t.text in ("++", "--"):
                self.next()
                x = CNode("step", t.line, (t.text[0], x, False))
            elif self.take("."):
                name = self.next().text
                self.expect("(")
                x = self.method(x, name, self.arguments())
            else:
                return x

    def method(self, x: CNode, name: str, args: tuple) -> CNode:
        if name == "size" and not args:
            return CNode("size", self.line, (x,))
        raise self.refuse(f"the method {name}()")


def number(text: str) -> tuple[str, Any]:
    """(type, value) of a literal."""
    low = text.lower()
    if low.startswith("0x") or not any(c in low for c in ".ef"):
        digits = low.rstrip("ul")
        value = int(
            digits, 16 if digits.startswith("0x") else 8 if len(digits) > 1 and digits[0] == "0" else 10
        )
        suffix = low[len(digits) :]
        wide = "l" in suffix or value >= 2 ** (32 if "u" in suffix else 31)
        return ("u" if "u" in suffix else "i") + ("8" if wide else "4"), value
    return ("f4", float(low.rstrip("f"))) if low.endswith("f") else ("f8", float(low.rstrip("l")))


def nodes(x) -> Iterable[CNode]:
    """All nodes of a tree."""
    if isinstance(x, CNode):
        yield x
        for p in x.parts:
            yield from nodes(p)
    elif isinstance(x, (tuple, list)):
        for p in x:
            yield from nodes(p)


def found_in(x, test: Callable) -> bool:
    return any(test(n) for n in nodes(x))
