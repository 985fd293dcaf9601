"""The C++ that CuPy's compiler of Python kernels writes: CUDA C with arrays of several axes, and tuples.

A tuple is resolved here into its members, and a part of an array into its elements."""

import functools

from .parser import CNode, CParser, CVariable


class ArrayParser(CParser):
    """Arrays are parameters of the type `CArray`; tuples are `STD::pair` and `STD::tuple`."""

    def array(self) -> tuple[str, int]:
        """(type of the elements, number of axes)"""
        self.expect("CArray")
        self.expect("<")
        type, _ = self.type()
        self.expect(",")
        axes = int(self.next().text)
        while not self.take(">"):
            self.next()
        return type, axes

    def parameter(self) -> CVariable:
        if self.peek() != "CArray":
            return super().parameter()
        type, axes = self.array()
        if not axes:
            raise self.refuse(f"{self.peek()} is an array of no axes: pass a number")
        v = self.declare(self.next().text, type, True)
        v.axes = axes
        return v

    def statement(self) -> CNode:
        line, type = self.line, self.peek()
        if type == "CArray":
            self.array()
        elif type == "STD":
            while not self.take(">"):
                self.next()
        else:
            return super().statement()
        name = self.next().text
        self.parts[name] = None
        if self.take(";"):
            return CNode("block", line)
        x = self.set(name, self.assigned())
        self.expect(";")
        return CNode("expression", line, (x,))

    def function(self, *x) -> None:
        self.parts: dict[
            str, CNode | None
        ] = {}  # name of a tuple or of a part of an array -> what it stands for
        super().function(*x)

    def assignment(self) -> CNode:
        if self.peek() not in self.parts or self.peek(1) != "=":
            return super().assignment()
        name = self.next().text
        return self.set(name, self.assigned())

    def assigned(self) -> CNode:
        self.expect("=")
        return super().assignment()

    def set(self, name: str, x: CNode) -> CNode:
        """An expression that sets the numbers in x, so that the name stands for x."""
        made: list[CNode] = []
        new, old = self.kept(x, made), self.parts[name]
        if old is None:
            self.parts[name] = self.scopes[0][name] = new
        else:
            self.match(name, old, new, made)
        return functools.reduce(
            lambda a, b: CNode("comma", x.line, (a, b)), made, CNode("number", x.line, ("i4", 0))
        )

    def match(self, name: str, old: CNode, new: CNode, made: list[CNode]) -> None:
        """Set the numbers of `old` to those of `new`."""
        if old.kind == new.kind == "name":
            if old.parts[0].pointer or new.parts[0].pointer:
                if old.parts != new.parts:
                    raise self.refuse(f"{name} stands for parts of different arrays")
            else:
                made.append(CNode("assign", new.line, ("", old, new)))
        elif old.kind == new.kind and len(old.parts) == len(new.parts):
            for a, b in zip(old.parts, new.parts, strict=True):
                self.match(name, a, b, made)
        else:
            raise self.refuse(f"{name} stands for objects of different shapes")

    def kept(self, x: CNode, made: list[CNode]) -> CNode:
        """x with its numbers in new variables, which expressions in `made` set."""
        if x.kind == "tuple":
            return CNode("tuple", x.line, tuple([self.kept(y, made) for y in x.parts]))
        if x.kind == "element":
            return CNode("element", x.line, (self.kept(x.parts[0], made), self.held(x.parts[1], made)))
        whole = x.kind == "name" and isinstance(x.parts[0], CVariable) and x.parts[0].pointer
        return x if whole else self.held(x, made)

    def held(self, x: CNode, made: list[CNode]) -> CNode:
        v = CNode("name", x.line, (CVariable(f"index.{next(self.numbers)}", "same"),))
        made.append(CNode("assign", x.line, ("", v, x)))
        return v

    def primary(self) -> CNode:
        line = self.line
        if self.take("Dim"):  # of an index: the number of its axes
            while not self.take(")"):
                self.next()
            return CNode("block", line)
        if not self.take("STD"):
            return super().primary()
        self.expect("::")
        name = self.next().text
        if name == "get":
            self.expect("<")
            k = int(self.next().text)
            self.expect(">")
            return self.member(self.condition(), k)
        self.expect("(")
        parts = self.arguments()
        if name[:5] == "make_":
            return CNode("tuple", line, parts)
        return CNode("call", line, (f"numpy.{name}", parts))

    def member(self, x: CNode, k: int) -> CNode:
        if x.kind == "tuple":
            return x.parts[k]
        if x.kind == "shape":
            return CNode("length", x.line, (x.parts[0], k))
        raise self.refuse("a member of something that is no tuple")

    def postfix(self, x: CNode) -> CNode:
        x = super().postfix(x)
        if x.kind == "element" and x.parts[0].kind == "shape":
            return CNode("length", x.line, (x.parts[0].parts[0], x.parts[1].parts[1]))
        return x

    def method(self, x: CNode, name: str, args: tuple) -> CNode:
        if name in ("shape", "get_shape") and not args:
            return CNode("shape", self.line, (x,))
        if name not in ("_indexing", "_slicing"):
            return super().method(x, name, args)
        for i in args[0].parts if args[0].kind == "tuple" else args[:1]:
            x = CNode("element", i.line, (x, i))
        return x
