"""Tokens of CUDA C, with macros replaced."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from ..program import LoopRefused

TOKEN = re.compile(
    r"(?P<space>[ \t\r\f\v]+|//[^\n]*|/\*.*?\*/)|(?P<line>\n)"
    r"|(?P<number>(?:0[xX][0-9a-fA-F]+|(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?)[uUlLfF]*)"
    r"|(?P<name>[A-Za-z_]\w*)|(?P<text>\"[^\"\n]*\")"
    r"|(?P<sign>\+\+|--|<<=|>>=|<=|>=|==|!=|&&|\|\||<<|>>|->|::|[-+*/%&|^]=|[-+*/%&|^~!<>=?:;,.(){}\[\]#])",
    re.DOTALL,
)


class Token(NamedTuple):
    kind: str
    text: str
    line: int


class Preprocessor:
    """Tokens without comments, with macros replaced."""

    def __init__(self, text: str, options: Iterable[str]):
        self.macros: dict[str, tuple] = {}
        for option in options:
            if option.startswith("-D"):
                name, _, value = option[2:].partition("=")
                self.macros[name.strip()] = None, self.split(value or "1", 0)
        made: list[Token] = []
        number = 0
        for line in self.blank_comments(text).split("\n"):
            number += 1
            renumbered = re.match(r"\s*#\s*line\s+(\d+)", line)
            if renumbered is not None:
                number = int(renumbered[1]) - 1
            elif line.lstrip().startswith("#"):
                self.directive(line.lstrip()[1:].strip(), number)
            else:
                made += self.split(line, number)
        self.tokens = [*self.expanded(made, frozenset()), Token("end", "", made[-1].line if made else 0)]

    @staticmethod
    def blank_comments(text: str) -> str:
        return re.sub(r"/\*.*?\*/|//[^\n]*", lambda m: "\n" * m.group().count("\n") or " ", text, flags=re.S)

    def split(self, text: str, line: int) -> list[Token]:
        made, at = [], 0
        while at < len(text):
            m = TOKEN.match(text, at)
            if m is None:
                raise LoopRefused(f"line {line}: the sign {text[at]!r} is not known")
            at = m.end()
            if m.lastgroup not in ("space", "line"):
                made.append(Token(m.lastgroup or "", m.group(), line))
        return made

    def directive(self, text: str, line: int) -> None:
        m = re.match(r"define\s+(\w+)(\(([^)]*)\))?(.*)", text)
        if m is not None and not text.endswith("\\"):
            params = [p.strip() for p in m[3].split(",")] if m[2] else None
            self.macros[m[1]] = params, self.split(m[4], line)
        elif not text.startswith(("pragma", "include")):
            raise LoopRefused(f"line {line}: the directive #{text.split()[0] if text else ''} is not known")

    def expanded(self, tokens: list[Token], busy: frozenset) -> list[Token]:
        made, k = [], 0
        while k < len(tokens):
            t, k = tokens[k], k + 1
            params, body = self.macros.get(t.text, (None, None)) if t.text not in busy else (None, None)
            if body is None or (params is not None and (k >= len(tokens) or tokens[k].text != "(")):
                made.append(t)
                continue
            given = {}
            if params is not None:
                parts, k = self.arguments(tokens, k + 1)
                if len(parts) != len(params):
                    raise LoopRefused(f"line {t.line}: the macro {t.text} takes {len(params)} arguments")
                given = dict(zip(params, [self.expanded(p, busy) for p in parts], strict=True))
            inner = [n for b in body for n in given.get(b.text, [b])]
            made += self.expanded([n._replace(line=t.line) for n in inner], busy | {t.text})
        return made

    @staticmethod
    def arguments(tokens: list[Token], k: int) -> tuple[list, int]:
        parts: list[list[Token]] = [[]]
        depth = 1
        while k < len(tokens):
            t, k = tokens[k], k + 1
            depth += (t.text == "(") - (t.text == ")")
            if depth == 0:
                return parts, k
            if t.text == "," and depth == 1:
                parts.append([])
            else:
                parts[-1].append(t)
        raise LoopRefused(f"line {tokens[-1].line}: a macro's arguments do not end")
