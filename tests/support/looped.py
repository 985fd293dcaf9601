"""What a loop over the samples gives, against which `tg.vmap` is judged."""

import itertools

import numpy as np
from comparison import host
from grid import on

import tapegrad as tg
from tapegrad._core.arrays import copy_with_layout
from tapegrad._core.trees import leaves
from tapegrad.ops.declare import xp

WEIGHTS = np.array([1.0, 0.5, -0.25, 0.125, -0.7])


def beside(a, y):
    """The array a in the library of y."""
    return xp(y).asarray(a)


def looped(f):
    """The results of f for each sample, as a list of leaves, each stacked."""

    def run(*stacks):
        each = [
            leaves(f(*[copy_with_layout(x[k]) if x.ndim > 1 else x[k] for x in stacks]))
            for k in range(len(stacks[0]))
        ]
        return [
            np.stack([host(y) for y in column]) for column in zip(*each, strict=True) if column[0] is not None
        ]

    return run


def vmapped(f):
    return lambda *stacks: [y for y in leaves(tg.vmap(f)(*stacks)) if y is not None]


def same(got, want, rtol=1e-9):
    """(`rtol` of the largest number of an array, or 1; more in single precision.)"""
    if len(got) != len(want):
        return False
    for a, b in zip(got, want, strict=True):
        a, b = host(a), host(b)
        finite = np.abs(b[np.isfinite(b)]) if b.dtype.kind in "fc" else np.zeros(0)
        tolerance = 2e-4 if b.dtype in (np.float32, np.complex64) else rtol
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        if not np.allclose(a, b, tolerance, tolerance * max(1.0, finite.max(initial=0.0)), equal_nan=True):
            return False
    return True


def weighed(ys):
    """A number made of the results of one sample."""
    total = 0.0
    for y in leaves(ys):
        if y is not None and y.dtype.kind in "fc":
            y = y * beside(0.3 + 0.1 * np.cos(np.arange(y.size)).reshape(y.shape), y)
            total = total + ((y * y.conj()).real.sum() if y.dtype.kind == "c" else y.sum())
    return total


def forms(f, arity, v, order=2):
    """name -> (what vmap gives, what a loop gives), of stacks.  `v`: stacks of directions.  f is made anew for each."""
    n = tuple(range(arity))
    yield "value", vmapped(f()), looped(f())
    if not order:
        return
    g = lambda h: tg.grad(lambda *xs: weighed(h(*xs)) + 0.0 * abs(xs[0]).sum(), n)
    yield "vmap of grad", vmapped(g(f())), looped(g(f()))
    push = lambda h: lambda *xs: tg.jvp(h, xs[:arity], xs[arity:])[1]
    yield "vmap of jvp", lambda *s: vmapped(push(f()))(*s, *v), lambda *s: looped(push(f()))(*s, *v)
    w = WEIGHTS[: len(v[0])]
    total = lambda h: (
        lambda *s: (tg.vmap(lambda *xs: weighed(h(*xs)))(*s) * beside(w, s[0])).sum() + 0.0 * abs(s[0]).sum()
    )
    one = lambda h: (
        lambda *s: (
            sum([weighed(h(*[x[k] * 1.0 for x in s])) * c for k, c in enumerate(w)]) + 0.0 * abs(s[0]).sum()
        )
    )
    yield "grad of vmap", lambda *s: tg.grad(total(f()), n)(*s), lambda *s: tg.grad(one(f()), n)(*s)
    if order > 1:
        hvp = lambda h: lambda *xs: tg.jvp(g(h), xs[:arity], xs[arity:])[1]
        yield "vmap of hvp", lambda *s: vmapped(hvp(f()))(*s, *v), lambda *s: looped(hvp(f()))(*s, *v)
        yield (
            "hvp of vmap",
            lambda *s: tg.jvp(tg.grad(total(f()), n), s, tuple(v))[1],
            lambda *s: tg.jvp(tg.grad(one(f()), n), s, tuple(v))[1],
        )
        yield (
            "grad of vmap of grad",
            lambda *s: tg.grad(twice(vmap_of(g(f())), w), n)(*s),
            lambda *s: tg.grad(twice(loop_of(g(f())), w), n)(*s),
        )


def further_forms(f, arity):
    """The same, for vmap within vmap, and for vmap recorded at one point and replayed at others, in value and
    gradient."""
    n = tuple(range(arity))
    g = lambda h: tg.grad(lambda *xs: weighed(h(*xs)) + 0.0 * abs(xs[0]).sum(), n)

    def inner(h):
        def run(*s):
            each = [looped(h)(*s), looped(h)(*near(s))]
            return [np.stack(pair) for pair in zip(*each, strict=True)]

        return run

    yield (
        "vmap of vmap",
        lambda *s: vmapped(tg.vmap(f()))(
            *[xp(x).stack(pair) for x, *pair in zip(s, s, near(s), strict=True)]
        ),
        inner(f()),
    )
    for name, of in (("vmap in prepare", lambda h: h), ("vmap of grad in prepare", g)):
        yield name, prepared(of(f())), at_points(looped(of(f())))


def near(s):
    return [x * x.dtype.type(0.98) for x in s]


def prepared(h):
    def run(*s):
        p = tg.prepare(tg.vmap(h), *s)
        return at_points(lambda *s: [y for y in leaves(p(*s)) if y is not None])(*s)

    return run


def at_points(run):
    """At a point, near it, and once more there."""
    return lambda *s: [y for point in (s, near(s), s) for y in run(*point)]


def vmap_of(g):
    return tg.vmap(g)


def loop_of(g):
    return lambda *s: tuple(
        [
            np.stack(column)
            for column in zip(*[g(*[x[k] * 1.0 for x in s]) for k in range(len(s[0]))], strict=True)
        ]
    )


def twice(g, w):
    """A number made of gradients."""

    def total(*s):
        found = [y * beside(w, y).reshape(-1, *(1,) * (y.ndim - 1)) for y in g(*s)]
        return sum([((y * y.conj()).real.sum() if y.dtype.kind == "c" else (y * y).sum()) for y in found])

    return total


def judged(case, count, order=3, library=np):
    """A line of the table of operations, under vmap and in a loop."""
    active = [
        n
        for n, a in enumerate(case.inputs)
        if not isinstance(a, (list, tuple)) and np.asarray(a).dtype.kind in "fc"
    ]
    inputs = [np.asarray(case.inputs[n]) for n in active]
    stacks = [
        library.asarray(np.stack([x * x.dtype.type(1 - 0.07 * k) for k in range(count)])) for x in inputs
    ]
    v = [library.asarray(np.linspace(0.3, 1, x.size).reshape(x.shape).astype(x.dtype)) for x in stacks]
    rest = on(library, case.inputs)

    def of_floats(*xs):
        given = list(rest)
        for n, x in zip(active, xs, strict=True):
            given[n] = x
        return case.f(*given)

    order = min(case.order, order)
    further = further_forms(lambda: of_floats, len(active)) if order > 1 else ()
    with np.errstate(all="ignore"):
        for form, batched, loop in itertools.chain(forms(lambda: of_floats, len(active), v, order), further):
            try:
                want = loop(*stacks)
            except (
                AttributeError,
                TypeError,
                NotImplementedError,
            ):  # on plain CuPy arrays, a name or setting that CuPy lacks
                assert library is not np and form in ("value", "vmap of vmap", "vmap in prepare"), form
                continue
            got = batched(*stacks)
            assert same(got, want, 1e-8), f"{form}: {got} instead of {want}"
