"""Random kernels in CUDA C: C's types and conversions, loops with several ways out, pointers, short circuits.

Signed numbers stay small, since their overflow has no meaning in C; unsigned ones wrap."""

import numpy as np

TYPES = ("int", "unsigned int", "long long", "unsigned long long", "double", "float", "size_t", "bool")
SIGNED = ("int", "long long")


class RandomKernel:
    """`source` is one kernel f(double* x, double* y, int* k, int n) for arrays of 6, 6, 5, run by one thread."""

    def __init__(self, seed):
        self.r = np.random.default_rng(seed)
        self.names = 0
        self.lines = []
        self.block(1, [("n", "int")], [], self.r.integers(4, 8), False)
        body = "\n".join(self.lines)
        self.source = (
            "#define WRAP(i, n) (((int)(i) % (n) + (n)) % (n))\n"
            "__device__ double helper(double a, int b) { if (b > 2) return a * 0.5; return a - b; }\n"
            "__device__ void add(double* p, double v) { *p += v; }\n"
            f'extern "C" __global__ void f(double* x, double* y, int* k, int n) {{\n{body}\n}}\n'
        )

    def pick(self, *x):
        return x[self.r.integers(len(x))]

    def write(self, depth, line):
        self.lines.append("  " * depth + line)

    def whole(self, values, depth=2):
        """A whole number, of any integer type."""
        names = [v for v, t in values if t not in ("double", "float")]
        if depth == 0:
            leaf = self.pick("name", "name", "k", "literal", "threadIdx.x", "blockDim.x")
            if leaf == "name":
                return self.pick(*names)
            return {"k": f"k[{self.r.integers(5)}]", "literal": self.literal()}.get(leaf, leaf)
        a, b = self.whole(values, depth - 1), self.whole(values, depth - 1)
        form = self.pick(
            "{a} + {b}", "{a} - {b}", "{a} * {c}", "{a} / {c}", "{a} % {c}", "-{a}", "{a} >> {d}", "{a} & {b}",
            "{a} | {c}", "{a} ^ {b}", "~{a}", "({t}){a}", "{a} < {b}", "{a} == {b} || {b} > {c}", "!{a}",
            "({a} > {b} ? {a} : {b})", "min({c}, {d})", "WRAP({a}, {c})", "{a} >= {b} && k[WRAP({b}, 5)] > 1",
            "(int)fmod({f}, 50.0)", "{c} << {d}",
        )  # fmt: skip
        text = form.format(
            a=f"({a})", b=f"({b})", c=self.r.integers(1, 9), d=self.r.integers(0, 4), t=self.pick(*TYPES[:4]),
            f=self.real(values, 0),
        )  # fmt: skip
        return f"({text})"

    def literal(self):
        return self.pick(
            "3", "-2", "7u", "5ll", "0x1F", "2654435761u", "true", "011", "6364136223846793005ull"
        )

    def real(self, values, depth=2):
        names = [v for v, t in values if t in ("double", "float")]
        if depth == 0:
            leaf = self.pick("name", "name", "x", "y", "literal")
            if leaf == "name" and names:
                return self.pick(*names)
            i = f"WRAP({self.whole(values, 0)}, 6)"
            return {"x": f"x[{i}]", "y": f"y[{i}]"}.get(leaf, self.pick("0.5", "1.25f", "3", "2e-1"))
        a, b = self.real(values, depth - 1), self.real(values, depth - 1)
        form = self.pick(
            "{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} / ({b} * {b} + 1.0)", "{w} * {a}", "sin({a})", "-{a}",
            "fmax({a}, {b})", "({a} > {b} ? {a} : {w})", "helper({a}, {i})", "(float)({a})", "fabs({a} + {w})",
            "({i} > 1 && {a} < 2.0 ? x[WRAP({i}, 6)] : 1.0f)", "floor({a})", "tanhf({a})", "*(x + {c})",
        )  # fmt: skip
        text = form.format(
            a=f"({a})", b=f"({b})", w=f"(double)((int)({self.whole(values, 1)}) % 100)",
            i=f"(int)({self.whole(values, 1)})", c=self.r.integers(6),
        )  # fmt: skip
        return f"({text})"

    def block(self, depth, values, fixed, count, in_loop):
        """Statements; `fixed` are the variables that loops count with."""
        values = list(values)
        for _ in range(count):
            kind = self.pick(
                "declare", "declare", "assign", "store", "store", "if", "for", "while", "step", "exit"
            )
            free = [v for v in values if v[0] not in fixed and v[0] != "n"]
            if kind in ("if", "for", "while") and depth > 3:
                kind = "store"
            if kind in ("assign", "step") and not free:
                kind = "declare"
            getattr(self, "on_" + kind)(depth, values, fixed, free, in_loop)

    def value(self, type, values):
        """An expression that may be assigned to this type."""
        if type in ("double", "float"):
            return f"tanh({self.real(values)}) * 3"
        text = self.whole(values)
        return f"(int)({text}) % 1000" if type in SIGNED else text

    def on_declare(self, depth, values, fixed, free, in_loop):
        self.names += 1
        t, name = self.pick(*TYPES), f"v{self.names}"
        self.write(depth, f"{t} {name} = {self.value(t, values)};")
        values.append((name, t))

    def on_assign(self, depth, values, fixed, free, in_loop):
        name, t = self.pick(*free)
        self.write(depth, f"{name} = {self.value(t, values)};")

    def on_step(self, depth, values, fixed, free, in_loop):
        name, t = self.pick(*free)
        if t == "bool":
            self.write(depth, f"{name} = !{name};")
        elif t in ("double", "float"):
            self.write(depth, f"{name} {self.pick('+', '-', '*')}= {self.value('double', values)};")
        else:
            self.write(depth, f"y[WRAP({name}++, 6)] += {self.pick('++', '--')}{name} % 7;")
            if t in SIGNED:
                self.write(depth, f"{name} %= 1000;")

    def on_store(self, depth, values, fixed, free, in_loop):
        array, at = self.pick("x", "y"), f"WRAP({self.whole(values)}, 6)"
        v = f"tanh({self.real(values)})"
        form = self.pick("{p}[{i}] = {v};", "{p}[{i}] += {v};", "add({p} + {i}, {v});", "*(&{p}[{i}]) = {v};",
                         "{{ double* q = {p}; q += {i}; *q -= {v}; }}", "k[WRAP({i}, 5)] = {w};")  # fmt: skip
        self.write(depth, form.format(p=array, i=at, v=v, w=f"(int)({self.whole(values)}) % 10"))

    def on_if(self, depth, values, fixed, free, in_loop):
        test = self.pick(self.whole(values), f"{self.real(values)} > 0.3")
        self.write(depth, f"if ({test}) {{")
        self.block(depth + 1, values, fixed, self.r.integers(1, 4), in_loop)
        if self.r.random() < 0.6:
            self.write(depth, "} else {")
            self.block(depth + 1, values, fixed, self.r.integers(1, 3), in_loop)
        self.write(depth, "}")

    def on_for(self, depth, values, fixed, free, in_loop):
        self.names += 1
        i, t = f"i{self.names}", self.pick("int", "unsigned int", "long long", "size_t")
        head = self.pick("{t} {i} = {a}; {i} < {b}; {i}++", "{t} {i} = {a}; {i} <= {b}; {i} += 2",
                         "int {i} = {b}; {i} > -1; --{i}", "int {i} = {b}; {i} >= {a}; {i} -= 3")  # fmt: skip
        self.write(depth, f"for ({head.format(t=t, i=i, a=self.r.integers(3), b=self.r.integers(5))}) {{")
        kind = t if head.startswith("{t}") else "int"
        self.block(depth + 1, [*values, (i, kind)], [*fixed, i], self.r.integers(1, 4), True)
        self.write(depth, "}")

    def on_while(self, depth, values, fixed, free, in_loop):
        self.names += 1
        c = f"c{self.names}"
        self.write(depth, f"int {c} = 0;")
        head, foot = self.pick((f"while (++{c} < 5 && {self.whole(values)} < 50) {{", "}"),
                               ("do {", f"}} while (++{c} < 4);"))  # fmt: skip
        self.write(depth, head)
        self.block(depth + 1, [*values, (c, "int")], [*fixed, c], self.r.integers(1, 4), True)
        self.write(depth, foot)

    def on_exit(self, depth, values, fixed, free, in_loop):
        if in_loop:
            self.write(depth, f"if ({self.whole(values)} > 3) {self.pick('break', 'continue', 'return')};")
