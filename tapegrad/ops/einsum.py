"""einsum: diagonals of repeated labels and sums over labels of one operand come first. Then two operands
at a time are contracted: as batches of matrices, if they have that form."""

import functools
import math
import string
from collections import namedtuple

import numpy as np
from numpy import ndarray

from .._core.arrays import xp_of
from .._core.primitive import layout_of, view
from .._core.variable import ArrayVariable, Variable, View
from .declare import dtype as dtype_of
from .declare import implements, ndim, primitive, rules, shape, sum_of_given, xp
from .layouts import in_library_layout
from .products import T, diagonals, product, reordered, two_operands
from .shaping import argsort, arrays_of, astype, fit_to_shape, reshape, sum


def _contract_stacked(run, xs, params):
    """The contraction of stacks, with one more label for the samples."""
    labels, result = params["subscripts"].split("->")
    new = next(c for c in string.ascii_letters if c not in labels)
    return run(
        *xs, **params | {"subscripts": ",".join(new + k for k in labels.split(",")) + "->" + new + result}
    )


@primitive(batch=_contract_stacked, total=True, known_as="einsum")
def contract(x, y, *, subscripts):
    """einsum of two operands, if every label is unique in its operand and occurs in the result or in the
    other operand."""
    if type(x) is type(y) is ndarray:
        how = as_matrices(subscripts)
        if (
            how is not None
            and math.prod(x.shape) * math.prod([y.shape[k] for k in how.free]) > FEW_MULTIPLICATIONS
        ):
            return how(x, y)
    return xp_of(x).einsum(subscripts, x, y)


# multiplications; up to here NumPy's own loop is faster than the preparation for BLAS
FEW_MULTIPLICATIONS = 4096


class AsMatrices:
    """Two operands of einsum as batches of matrices. The labels are those of the batch, of x alone, of
    the sum, and of y alone."""

    def __init__(self, subscripts: str, x: str, y: str, result: str):
        batch = [a for a in result if a in x and a in y]
        summed = [a for a in x if a not in result]
        left, right = [a for a in result if a in x and a not in y], [a for a in result if a not in x]
        self.subscripts, self.batch, self.left = subscripts, len(batch), len(left)
        self.free = [y.index(a) for a in right]
        self.x, self.y = (
            [x.index(a) for a in batch + left + summed],
            [y.index(a) for a in batch + summed + right],
        )
        self.to = [(batch + left + right).index(a) for a in result]
        # strides of two operands -> the axes of the result, and their permutation in memory
        self.known = {}

    def product(self, x, y):
        """The contraction, in any memory order."""
        a, b = x.transpose(self.x), y.transpose(self.y)
        n, m, k = self.batch, self.batch + self.left, self.batch + y.ndim - self.batch - len(self.free)
        left, right = a.shape[n:m], b.shape[k:]
        a = a.reshape((*a.shape[:n], math.prod(left), -1))
        b = b.reshape((*b.shape[:n], -1, math.prod(right)))
        return np.matmul(a, b).reshape((*a.shape[:n], *left, *right)).transpose(self.to)

    def __call__(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        z = self.product(x, y)
        if not z.ndim:
            return z
        key = x.shape, x.strides, y.shape, y.strides, x.dtype, y.dtype
        if key not in self.known:
            if len(self.known) > 99:
                self.known.clear()
            # einsum orders the result by the strides of its operands, which decides whether a reshape is
            # a view: run it on few elements
            small = (slice(2),)
            strides = np.einsum(self.subscripts, x[small * x.ndim], y[small * y.ndim]).strides
            order = sorted(range(z.ndim), key=lambda i: -strides[i])
            self.known[key] = order, argsort(order)
        order, back = self.known[key]
        return np.ascontiguousarray(z.transpose(order)).transpose(back)


@functools.lru_cache(512)
def as_matrices(subscripts: str) -> AsMatrices | None:
    """None if nothing is summed or no label is free: an elementwise sum of products."""
    left, result = subscripts.split("->")
    x, y = left.split(",")
    summed, free = set(x) - set(result), set(x) ^ set(y)
    return AsMatrices(subscripts, x, y, result) if summed and free else None


def _contract_vjp(g, out, need, x, y, subscripts):
    """The cotangent of one operand: g contracted with the other one onto its labels."""
    left, result = subscripts.split("->")
    a, b = left.split(",")
    return [
        contract(g, other, subscripts=f"{result},{known}->{wanted}") if needed else None
        for needed, other, known, wanted in zip(need, (y, x), (b, a), (a, b), strict=True)
    ]


def _contract_jvp(t, out, x, y, subscripts):
    dx, dy = t
    return sum_of_given(
        [
            None if dx is None else contract(dx, y, subscripts=subscripts),
            None if dy is None else contract(x, dy, subscripts=subscripts),
        ]
    )


rules(contract, joint=_contract_vjp, jvp=_contract_jvp)
contract.prim.multilinear = True


def by_pairs(text: str, xs: list | tuple, optimize):
    """The sums of products, two operands at a time."""
    if len(xs) == 2 and not optimize:
        return contract(*xs, subscripts=text)
    order = pairs if type(optimize) in (bool, str) else pairs.__wrapped__
    common = np.result_type(*map(dtype_of, xs))
    xs = [x if len(xs) == 2 or dtype_of(x) == common else astype(x, to=common) for x in xs]
    for (j, k), subscripts in order(text, tuple(map(shape, xs)), optimize):
        xs.append(contract(xs.pop(j), xs.pop(k), subscripts=subscripts))
    return xs[0]


@functools.lru_cache(512)
def pairs(text: str, shapes: tuple, optimize) -> list:
    """The order of NumPy's `einsum_path`, as (places of two operands, subscripts); what they give becomes
    the last operand. Where NumPy takes more at once, they are taken from the last one on."""
    given, (left, result), found = [np.broadcast_to(0.0, s) for s in shapes], text.split("->"), []
    labels = left.split(",")
    for step in [*np.einsum_path(text, *given, optimize=optimize or True)[0][1:], range(len(shapes))]:
        places = sorted({k % len(labels) for k in step})
        while len(places) > 1:
            j, k = places.pop(), places.pop()
            x, y = labels.pop(j), labels.pop(k)
            read = {*result, *"".join(labels)}
            labels.append("".join([a for a in dict.fromkeys(x + y) if a in read]) if labels else result)
            found.append(((j, k), f"{x},{y}->{labels[-1]}"))
            places += [len(labels) - 1] * bool(places)
    return found


LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _parsed(operands: tuple) -> tuple:
    """Both call forms of einsum as (operands, a list of labels for each, labels of the result); ...
    becomes integers."""
    if isinstance(operands[0], str):
        text, xs = operands[0].replace(" ", ""), list(operands[1:])
        left, arrow, right = text.partition("->")
        parts = [_tokens(p) for p in left.split(",")]
        result = _tokens(right) if arrow else None
    else:
        given = list(operands)
        result = list(given.pop()) if len(given) % 2 else None
        xs, parts = given[::2], [list(p) for p in given[1::2]]
    xs = arrays_of(xs)
    if len(parts) != len(xs):
        raise ValueError(f"einsum: {len(parts)} subscripts for {len(xs)} operands")
    wide, labels = 0, []
    for x, p in zip(xs, parts, strict=True):
        k = ndim(x) - len([a for a in p if a is not ...])
        if k < 0 or (k and ... not in p):
            raise ValueError(f"einsum: subscript {p} does not fit an operand of shape {shape(x)}")
        wide = max(wide, k if ... in p else 0)
        labels.append([b for a in p for b in ([("...", i) for i in range(-k, 0)] if a is ... else [a])])
    ellipsis = [("...", i) for i in range(-wide, 0)]
    if result is None:
        named = [a for p in parts for a in p if a is not ...]
        result = ellipsis + sorted([a for a in set(named) if named.count(a) == 1])
    else:
        result = [b for a in result for b in (ellipsis if a is ... else [a])]
    return xs, labels, result


def _tokens(text: str) -> list:
    return [... if c == "." else c for c in text.replace("...", ".")]


@implements(np.einsum, layout="own")
def einsum(*operands, out=None, optimize=False, dtype=None, order="K", casting="safe"):
    """Diagonals, axes of length one and labels of a single operand come first; the rest is `contract`. A
    single operand without sums becomes a view, whatever dtype says, as in NumPy."""
    if len(operands) == 3 and type(operands[0]) is str and out is dtype is None:
        y = _product_of(operands[0], *operands[1:])
        if y is not None:
            return (
                y
                if not optimize and xp(y) is np
                else in_library_layout(y, np.einsum, operands, {"optimize": optimize})
            )
    if type(operands[0]) is str and out is dtype is None and order == "K":
        text = _contracted(operands[0], operands[1:])
        if text is not None:
            y = by_pairs(text, operands[1:], optimize)
            return in_library_layout(y, np.einsum, operands, {"optimize": optimize} if optimize else {})
    xs, labels, result = _parsed(operands)
    if len(set(result)) != len(result) or not set(result) <= {a for p in labels for a in p}:
        raise ValueError("einsum: a label of the result is repeated, or stands in no operand")
    if len(xs) == 1 and set(labels[0]) == set(result) and isinstance(xs[0], Variable) and result:
        letter = dict(zip(result, LETTERS, strict=False))
        y = view(xs[0], ("einsum", "->".join(["".join([letter[a] for a in p]) for p in (labels[0], result)])))
        shape(y)  # raises as NumPy does
        return y
    size = {}
    for x, p in zip(xs, labels, strict=True):
        for a, n in zip(p, shape(x), strict=True):
            if size.setdefault(a, n) != n and n != 1:
                if size[a] != 1:
                    raise ValueError(f"einsum: operands have lengths {size[a]} and {n} along label {a!r}")
                size[a] = n
    for i, (x, p) in enumerate(zip(xs, labels, strict=True)):
        xs[i], labels[i] = _with_unique_labels(x, p, size)
    for i, p in enumerate(labels):
        alone = [
            n
            for n, a in enumerate(p)
            if a not in result and not any(a in q for j, q in enumerate(labels) if j != i)
        ]
        if alone:
            xs[i], labels[i] = sum(xs[i], tuple(alone)), [a for n, a in enumerate(p) if n not in alone]
    if len(xs) == 1:
        y = reordered(xs[0], tuple([labels[0].index(a) for a in result]))
    else:
        letter = dict(zip(size, LETTERS, strict=False))
        text = (
            ",".join(["".join([letter[a] for a in p]) for p in labels])
            + "->"
            + "".join([letter[a] for a in result])
        )
        y = by_pairs(text, xs, optimize)
    y = y if dtype is None else fit_to_shape(y, shape(y), np.dtype(dtype))
    named = {} if dtype is None and order == "K" else {"dtype": dtype, "order": order, "casting": casting}
    return in_library_layout(y, np.einsum, operands, {"optimize": optimize, **named} if optimize else named)


def _with_unique_labels(x, p: list, size: dict) -> tuple:
    """An operand and its labels: diagonals in place of labels that are repeated, and without axes of length
    one that broadcast."""
    for a in set(p):
        while p.count(a) > 1:
            j = p.index(a)
            k = p.index(a, j + 1)
            rest = [n for n in range(len(p)) if n not in (j, k)]
            x = diagonals(reordered(x, (*rest, j, k)))
            p = [p[n] for n in rest] + [a]
    kept = [n for n, a in enumerate(p) if shape(x)[n] == size[a]]
    if len(kept) == len(p):
        return x, p
    return reshape(x, to=tuple([shape(x)[n] for n in kept])), [p[n] for n in kept]


def _product_of(text: str, x, y):
    """The einsum of two matrices or vectors over one label as `@`, if the memory order is that of
    einsum's result; else None."""
    how = _as_product(text)
    if how is None:
        return None
    i, j = how.summed_x, how.summed_y
    x, y = two_operands(y, x) if how.swapped else two_operands(x, y)
    s, r = shape(x), shape(y)
    if (len(s), len(r)) != how.ranks or min(s) < 2 or min(r) < 2 or s[i] != r[j]:
        return None
    if how.ranks == (2, 2):
        a, b = [[abs(stride) for stride in layout_of(v).strides] for v in (x, y)]
        # the result's first label is the faster one in both operands
        if a[1 - i] <= a[i] and b[j] <= b[1 - j]:
            return None
    return product(T(x) if how.ranks[0] == 2 and i == 0 else x, T(y) if j == 1 else y)


def _contracted(text: str, xs: tuple) -> str | None:
    """The text of an einsum that equals `contract`, for arrays without axes of length one; else None."""
    known = _as_contraction(text)
    if known is None or len(known.labels) != len(xs):
        return None
    size = {}
    for x, p in zip(xs, known.labels, strict=True):
        s = shape(x) if type(x) in ARRAYS else ()
        if len(s) != len(p) or 1 in s or any([size.setdefault(a, n) != n for a, n in zip(p, s, strict=True)]):
            return None
    return known.text


ARRAYS = frozenset((ArrayVariable, View, ndarray))
AsContraction = namedtuple("AsContraction", "labels text")


@functools.lru_cache(512)
def _as_contraction(text: str) -> AsContraction | None:
    """None for `...`, and if a label is repeated in an operand or occurs in one operand only."""
    text = text.replace(" ", "")
    left, arrow, result = text.partition("->")
    labels = left.split(",")
    if not arrow or "." in text or len(labels) < 2 or any(len(set(p)) < len(p) for p in (*labels, result)):
        return None
    places = [*labels, result]
    if any([a in p for p in places].count(True) < 2 for a in left.replace(",", "") + result):
        return None
    return AsContraction(labels, text)


AsProduct = namedtuple("AsProduct", "swapped summed_x summed_y ranks")


@functools.lru_cache(512)
def _as_product(text: str) -> AsProduct | None:
    left, arrow, result = text.replace(" ", "").partition("->")
    parts = left.split(",")
    if (
        not arrow
        or "." in text
        or len(parts) != 2
        or any(not 0 < len(p) < 3 or len(set(p)) < len(p) for p in parts)
    ):
        return None
    x, y = parts
    summed = [a for a in x if a in y]
    if len(summed) != 1 or sorted(result) != sorted(set(x) ^ set(y)):
        return None
    swapped = len(result) == 2 and result[0] in y
    x, y = (y, x) if swapped else (x, y)
    return AsProduct(swapped, x.index(summed[0]), y.index(summed[0]), (len(x), len(y)))
