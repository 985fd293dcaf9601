"""Random functions with loops within loops, which run the same as a kernel and as plain Python.

A program is a list of statements on a growing list of numbers; it is drawn once, and then run with numbers,
Variables or the symbols of a trace."""

import numpy as np

import tapegrad as tg

kernels = tg.kernels
OPS = {
    "mix": lambda a, b: 0.6 * a - 0.5 * b,
    "product": lambda a, b: 0.7 * a * np.tanh(b),
    "ratio": lambda a, b: a / (1.0 + b * b),
    "either": lambda a, b: np.where(a > b, 0.8 * a, 0.3 * b + 0.1),
    "wave": lambda a, b: np.sin(a) + 0.2 * b,
    "bump": lambda a, b: np.exp(-a * a) * b,
    "root": lambda a, b: np.sqrt(1.0 + a * a) - 0.4 * b,
    "log": lambda a, b: np.log(1.2 + np.sin(a)) + 0.1 * b,
}


class Nest:
    """`given`: numbers at the beginning; `counters`: bounds of loops that are given; `depth`: loops within
    loops, at most; `vector`: the numbers are vectors of so many."""

    def __init__(self, seed: int, given: int, counters: int = 0, depth: int = 3, vector: int = 0):
        self.rng = np.random.default_rng(seed)
        self.counters = counters
        self.one = np.ones(vector) if vector else 1.0
        self.turned = (
            np.linalg.qr(np.random.default_rng(vector).normal(size=(vector, vector)))[0] if vector else None
        )
        self.statements, self.size = self.block(given, depth, True)

    def block(self, size: int, depth: int, outer: bool = False) -> tuple[list, int]:
        rng, made = self.rng, []
        for _ in range(rng.integers(1, 4)):
            made.append(("op", str(rng.choice(list(OPS))), *[int(k) for k in rng.integers(0, size, 2)]))
            size += 1
        for _ in range((rng.integers(1, 3) if outer else rng.integers(0, 3)) if depth else 0):
            carry = int(rng.integers(1, 4))
            start = [int(k) for k in rng.integers(0, size, carry)]
            if carry > 1 and rng.random() < 0.3:
                start[1] = start[0]
            body, inside = self.block(size + carry + 1, depth - 1)
            last = [int(k) for k in rng.integers(inside - min(inside, 6), inside, carry)]
            if carry > 1 and rng.random() < 0.2:
                last[1] = size + 1  # this component never changes
            kind = str(rng.choice(["loop", "loop", "bounded", "while"]))
            made.append((kind, self.bound(size, outer), start, body, last, size))
            size += carry
            if rng.random() < 0.7:
                made.append(("op", str(rng.choice(list(OPS))), size - 1, int(rng.integers(0, size))))
                size += 1
        return made, size

    def bound(self, size: int, outer: bool) -> tuple:
        rng = self.rng
        kinds = (
            ["value"] * 3
            + ["constant", "large"]
            + ["count"] * 2 * bool(self.counters)
            + ["counter"] * 2 * (not outer)
        )
        kind = str(rng.choice(kinds))
        which = {
            "value": rng.integers(0, size),
            "count": rng.integers(0, max(self.counters, 1)),
            "constant": rng.integers(0, 5),
        }
        return kind, int(which.get(kind, 17))

    def __call__(self, values: list, counts: list, plain: bool) -> list:
        return self.run(self.statements, list(values), counts, None, plain)

    def run(self, statements: list, values: list, counts: list, counter, plain: bool) -> list:
        for s in statements:
            if s[0] == "op":
                values.append(
                    OPS[s[1]](
                        values[s[2]], values[s[3]] if self.turned is None else self.turned @ values[s[3]]
                    )
                )
                continue
            kind, bound, start, body, last, size = s
            assert len(values) == size
            n = self.trips(bound, values, counts, counter)

            def step(i, c, values=values, body=body, last=last):
                inner = self.run(body, [*values, i * self.one, *c], counts, i, plain)
                return tuple([0.9 * inner[k] for k in last])

            begin = tuple([values[k] for k in start])
            if kind == "while":
                turn = lambda c, step=step: (c[0] + 1.0, *step(c[0], c[1:]))
                limit = 0.5 * n
                c = kernels.while_loop(lambda c, limit=limit: c[0] < limit, turn, (0.0, *begin), 12)[1:]
            elif plain:
                c = kernels.loop(int(tg.value(n)), step, begin)
            elif kind == "bounded":
                c = kernels.loop(n, step, begin, max_steps=20)
            else:
                c = kernels.loop(n, step, begin)
            values += list(c)
        return values

    def trips(self, bound: tuple, values: list, counts: list, counter):
        kind, k = bound
        if kind == "value":
            x = values[k] if self.turned is None else values[k][0]
            return np.floor(2.5 + 2.4 * np.sin(5.0 * x))
        if kind == "count":
            return counts[k]
        if kind == "counter" and counter is not None:
            return counter + 1
        return k


def distance(a, b) -> float:
    a, b = np.asarray(a, float), np.asarray(b, float)
    assert a.shape == b.shape
    return float(np.max(np.abs(a - b) / (1 + np.abs(b)), initial=0.0))


class Drawn:
    """A random kernel of one kind, `call(theta)` for all samples, and the same in plain Python,
    `plain(sample)` a function of theta and the data of one sample."""

    def __init__(self, seed: int, kind: str):
        rng = self.rng = np.random.default_rng(seed + 10**6)
        self.kind, self.seed = kind, seed
        self.batch = int(rng.choice([1, 3, 5, 17]))
        self.nest = Nest(seed, 3 if kind == "map" else 5, 1, int(rng.integers(1, 4 if kind == "map" else 3)))
        self.theta = rng.normal(size=(3, self.batch))
        self.data = np.stack([rng.normal(size=4), rng.integers(0, 4, 4)])
        getattr(self, kind)()

    def map(self) -> None:
        n = self.rng.integers(0, 5, self.batch)
        f = lambda x, n, plain: self.nest([x[0], x[1], x[2]], [n], plain)[-1] + 0.1 * x[0]
        kernel = kernels.map(lambda x, n: f(x, n, False))
        self.call = lambda x, data=None: kernel(x, n)
        self.plain = lambda b: lambda x, data=None: f(x, n[b], True)

    def vectors(self) -> None:
        """A map of three vectors."""
        n, size = self.rng.integers(0, 5, self.batch), 5
        nest = Nest(self.seed, 3, 1, 2, size)
        f = lambda x, n, plain: (
            (nest([x[0], x[1], x[2]], [n], plain)[-1] * np.cos(np.arange(size))).sum() + 0.1 * x[0][1]
        )
        kernel = kernels.map(lambda x, n: f(x.reshape((3, size)), n, False))
        self.theta = self.rng.normal(size=(3 * size, self.batch))
        self.call = lambda x, data=None: kernel(x, n)
        self.plain = lambda b: lambda x, data=None: f(x.reshape((3, size)), n[b], True)

    def likelihood(self) -> None:
        f = lambda th, d, plain: self.nest([th[0], th[1], th[2], d[0], 0.3], [d[1]], plain)[-1]
        kernel = kernels.likelihood(lambda th, d: f(th, d, False), invalid="nan")
        self.call = lambda th, data=self.data: kernel(th, data)
        self.plain = lambda b: (
            lambda th, data=self.data: sum([f(th, data[:, t], True) for t in range(data.shape[1])])
        )

    def recursion(self) -> None:
        begin = Nest(self.seed + 7 * 10**6, 3, 0, 1)
        init = lambda th, plain: (begin([th[0], th[1], th[2]], [], plain)[-1], 0.5)

        def step(c, th, d, plain):
            out = self.nest([th[0], th[1], c[0], c[1], d[0]], [d[1]], plain)
            return (0.9 * out[-1], 0.8 * out[-2]), out[-1] * d[0] + out[5]

        def plain(th, data=self.data):
            c, total = init(th, True), 0.0
            for t in range(data.shape[1]):
                c, term = step(c, th, data[:, t], True)
                total = total + term
            return total

        kernel = kernels.recursion(
            lambda th: init(th, False), lambda c, th, d: step(c, th, d, False), invalid="nan"
        )
        self.call = lambda th, data=self.data: kernel(th, data)
        self.plain = lambda b: plain


def disagreement(seed: int, kind: str, deep: bool = True) -> float:
    """The largest difference between a random kernel and plain Python: values and gradients of a few samples;
    with `deep` also a Hessian times a vector, a forward derivative, and the gradient by the data."""
    drawn = Drawn(seed, kind)
    theta, call, rng = drawn.theta, drawn.call, drawn.rng
    value, gradient = call(theta), tg.grad(lambda x: call(x).sum())(theta)
    chosen = rng.permutation(drawn.batch)[:3]
    found = []
    for b in chosen:
        v, g = tg.value_and_grad(drawn.plain(b))(theta[:, b])
        found += [distance(value[b], v), distance(gradient[:, b], g)]
    if deep:
        b, w = chosen[0], rng.normal(size=theta.shape)
        plain = drawn.plain(b)
        found.append(
            distance(tg.hvp(lambda x: call(x).sum(), theta, w)[:, b], tg.hvp(plain, theta[:, b], w[:, b]))
        )
        found.append(
            distance(tg.jvp(call, (theta,), (w,))[1][b], tg.jvp(plain, (theta[:, b],), (w[:, b],))[1])
        )
        if kind in ("likelihood", "recursion"):
            ours = tg.grad(lambda d: call(theta[:, [b]], d).sum())(drawn.data)
            found.append(distance(ours, tg.grad(lambda d: plain(theta[:, b], d))(drawn.data)))
    return max(found)
