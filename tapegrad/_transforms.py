"""What a user calls: grad, value_and_grad, jvp, vjp, jacobian, hessian, hvp, hmp, Tape, rule, ravel, value.

Reading order: how arguments are watched (`_Inputs`) and results handed out (`_out`), one run of the user's function (`_run`),
then the transforms, each a few lines on top of these."""

import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from . import _tape as reverse
from ._array import is_array, is_differentiable, owned, shares_memory, xp_of
from ._dual import Dual
from ._primitive import OPEN, Primitive, Trace, bind, handle, live, plain
from ._shadow import Shadow
from ._tree import Const, children, is_node, leaves, structure, tree_map
from ._variable import Variable, bottom, copied, frozen, variable
from .errors import ArgumentError, DeviceError, NotScalarError, ShapeError
from .ops import shaping
from .ops._define import dtype, shape

# --- arguments and results ---


def name_of(f: Any) -> str:
    while isinstance(f, (functools.partial, Const)):
        f = f.func if isinstance(f, functools.partial) else f.value
    return getattr(f, "__name__", type(f).__name__)


def where_of(f: Any) -> str:
    """' (defined at file:line)', or nothing."""
    code = getattr(getattr(f, "__wrapped__", f), "__code__", None)
    return f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""


def number(x: Any) -> Any:
    """An active Python number as one of NumPy's."""
    return np.float64(x) if type(x) is float else np.complex128(x) if type(x) is complex else x


def entered(x: Any) -> Any:
    """An argument leaf as a value that nobody else alters: plain arrays are copied, Variables frozen."""
    if isinstance(x, Variable):
        x = live(x)
        b = bottom(x)
        if x._trace is None:
            return b.copy(order="K") if is_array(b) else b
        read_only = type(b) is np.ndarray and not b.flags.writeable
        return copied(x) if read_only else frozen(x)
    return x.copy(order="K") if is_array(x) else number(x)


class _Inputs:
    """The arguments of one call: which leaves are active, and how to build the tuple that f gets."""

    def __init__(self, call: str, argnums: int | tuple, args: tuple):
        single = isinstance(argnums, int)
        wanted = (argnums,) if single else tuple(argnums)
        for n in wanted:
            if not isinstance(n, int) or isinstance(n, bool) or not -len(args) <= n < len(args):
                raise ArgumentError(f"{call}: argnums={argnums!r} does not fit a call with {len(args)} positional arguments")
        self.call, self.single, self.args = call, single, args
        self.nums = [n % len(args) for n in wanted]
        self.watched: dict = {}  # (position, leaf number) -> value of the active leaf
        for n in self.nums:
            self._check(n)

    def _check(self, n: int) -> None:
        a = self.args[n]
        if is_node(a) or is_differentiable(a) or isinstance(a, Variable) and dtype(a).kind in "fc":
            return
        if isinstance(a, Const):
            raise ArgumentError(f"{self.call}: argument {n} is marked Const, and argnums asks for its derivative")
        kind = f"dtype {dtype(a)}" if hasattr(a, "dtype") else f"type {type(a).__name__}"
        hint = f"pass float({a!r})" if type(a) in (int, bool) else "pass x.astype(float)" if hasattr(a, "dtype") else "pass a float array"
        raise ArgumentError(f"{self.call}: argument {n} has {kind}, which has no derivative; {hint}, or choose others with argnums=")

    def enter(self, watch: Callable) -> list:
        """The arguments with every active leaf replaced by `watch(key, value)`; Const taken off."""
        out = list(self.args)
        shared = overlapping([leaf for a in self.args for leaf in leaves(a)])
        aliased = {}
        for n in self.nums:
            counter = iter(range(sys.maxsize))

            def leaf(x, n=n, counter=counter):
                key = (n, next(counter))
                if isinstance(x, Const):
                    return x.value
                if is_differentiable(x) or (isinstance(x, Variable) and dtype(x).kind in "fc"):
                    value = self.watched[key] = entered(x)
                    v = watch(key, value)
                    if id(x) in shared:
                        aliased[id(v)] = v
                    return v
                return x

            out[n] = tree_map(leaf, self.args[n])
        if shared:
            for n, a in enumerate(out):
                if id(a) in shared and n not in self.nums:
                    out[n] = v = variable(a)
                    v._saved, aliased[id(v)] = True, v
            OPEN.aliased = {**getattr(OPEN, "aliased", {}), **aliased}
        return [a.value if isinstance(a, Const) else a for a in out]

    def results(self, of: Callable) -> Any:
        """Per argument asked for, its tree with `of(key, value)` at each active leaf and None elsewhere."""
        trees = []
        for n in self.nums:
            counter = iter(range(sys.maxsize))

            def leaf(x, n=n, counter=counter):
                key = (n, next(counter))
                return of(key, self.watched[key]) if key in self.watched else None

            trees.append(tree_map(leaf, self.args[n]))
        return trees[0] if self.single else tuple(trees)


def overlapping(arrays: list) -> set:
    """The ids of those plain arrays that share memory with another one of the list."""
    roots: dict = {}
    for a in arrays:
        if is_array(a) and a.dtype.kind in "fc":
            root = a
            while is_array(root.base):
                root = root.base
            roots.setdefault(id(root), []).append(a)
    groups = [g for g in roots.values() if len(g) > 1]
    return {id(a) for g in groups for i, a in enumerate(g) if any(shares_memory(a, b) for b in g[:i] + g[i + 1 :])}


def full_like(x: Any, c: float) -> Any:
    """A constant of the shape and dtype of x.  A number of NumPy's own is 6 times as fast as a 0-d array."""
    x = plain(x)
    if not is_array(x):
        return dtype(x).type(c)
    if x.shape == () and xp_of(x) is np:
        return x.dtype.type(c)
    return xp_of(x).full(x.shape, c, x.dtype)


def _out(g: Any, like: Any) -> Any:
    """A derivative for the caller: the kind and dtype of `like`, memory of its own; a Variable only within an outer transform."""
    if g is None:
        g = full_like(like, 0)
    if isinstance(g, Variable):
        g = live(g)
        if g._trace is not None:
            want = dtype(like)
            return frozen(g) if dtype(g) == want else shaping.fit(g, shape(g), want)
        g = bottom(g)
    return _given(_plain_out(g, plain(like)))


def _given(a: Any) -> Any:
    """A plain result; within another transform as a Variable of level 0, for the user may write tracked values into it."""
    return handle(a) if getattr(OPEN, "depth", 0) and is_array(a) else a


def _plain_out(g: Any, like: Any) -> Any:
    if not is_array(like):
        return dtype(like).type(g.item() if is_array(g) else g) if xp_of(g) is np else g
    if not is_array(g):
        return xp_of(like).asarray(g, dtype=like.dtype)
    if g.dtype != like.dtype:
        return g.astype(like.dtype) if like.dtype.kind == "c" or g.dtype.kind != "c" else g.real.astype(like.dtype)
    if g.base is None and g.nbytes > 4096 and sys.getrefcount(g) <= 5:
        return g  # nobody else holds it: no copy
    return owned(g)


def _value(y: Any) -> Any:
    """What a function returned, one level down, as a result for the caller."""
    if isinstance(y, Variable):
        y = live(y)
        if y._trace is not None:
            return frozen(y)
        y = bottom(y)
    return _given(owned(y)) if is_array(y) else np.float64(y) if type(y) is float else y


def _plain_tree(y: Any) -> Any:
    """Auxiliary output: every Variable of an ended transform as its plain value."""
    return tree_map(lambda v: _value(v) if isinstance(v, Variable) else v, y)


def lowered(y: Any, trace: Trace) -> tuple:
    """(value below `trace`, slot or None) of one output leaf, read while the trace is open."""
    if isinstance(y, Variable):
        y = live(y)
        if y._trace is trace:
            return y._value, y._slot
        return (frozen(y) if y._trace is not None else bottom(y)), None
    return y, None


def _run(f: Callable, trace: Trace, args: list, kwargs: dict, read: Callable, lift: Callable | None = None) -> Shadow:
    """f once, with its captured arrays as Variables; `read` sees the output while the trace is open.  Whatever happens, the
    trace is closed; the shadow that is returned wants `finish()`, which lets captured arrays hold plain data again.
    `lift` makes of the shadowed f the function that is to be run, its gradient for example."""
    shadow = Shadow(f, args)
    with shadow as (g, args):
        try:
            read((g if lift is None else lift(g))(*args, **kwargs))
        except TypeError as error:
            if str(error).startswith("Unsupported type <class 'numpy.") or "(expected cupy" in str(error):  # CuPy's words
                raise DeviceError(
                    f"{name_of(f)}{where_of(f)}: an operation met a NumPy and a CuPy array; move one with cupy.asarray(a) or a.get()"
                ) from error
            raise
        finally:
            trace.close()
            OPEN.aliased = {}
    return shadow


# --- reverse mode ---


class _Recorded:
    """f recorded once: its value, and the tape to pull on."""

    def __init__(self, call: str, f: Callable, argnums: Any, args: tuple, kwargs: dict, has_aux: bool = False, lift: Any = None):
        self.inputs = _Inputs(call, argnums, args)
        self.tape = tape = reverse.Tape()
        self.slots: dict = {}
        self.aux = None

        def watch(key, value):
            x = tape.watch(value)
            self.slots[key] = x._slot
            return x

        def read(y):
            if has_aux:
                if not (isinstance(y, tuple) and len(y) == 2):
                    raise ArgumentError(f"{call}: with has_aux=True, {name_of(f)} must return a pair (value, aux)")
                y, self.aux = y
            self.tree = y
            self.low = [lowered(v, tape) for v in leaves(y)]

        entered = self.inputs.enter(watch)
        tape.trusted = frozenset([id(a.value) for a in args if isinstance(a, Const)])
        try:
            self.shadow = _run(f, tape, entered, kwargs, read, lift)
        except BaseException:
            tape.release()
            raise

    def finish(self) -> None:
        """No sweep follows."""
        self.tape.release()
        self.shadow.finish()

    def value(self) -> Any:
        members = iter(self.low)
        return tree_map(lambda _: _value(next(members)[0]), self.tree)

    def pull(self, cotangents: list, last: bool = False) -> Callable:
        """Given one cotangent (or None) for each output leaf: a function from key to the cotangent of that input."""
        seeds = [(s, g) for (_, s), g in zip(self.low, cotangents, strict=True) if s is not None and g is not None]
        if not seeds:
            return lambda key: None
        G = reverse.pull(self.tape, seeds, last)
        return lambda key: G[self.slots[key]] if self.slots[key] < len(G) else None


def scalar_error(call: str, f: Callable, y: Any) -> NotScalarError:
    name = name_of(f)
    if is_node(y):
        return NotScalarError(
            f"{call}: {name}{where_of(f)} returned {structure(y)}; grad needs one real scalar (has_aux=True allows a pair)"
        )
    if y is None or isinstance(y, str):
        return NotScalarError(f"{call}: {name}{where_of(f)} returned {y!r}; grad needs a real scalar: is a return missing?")
    if shape(y) != ():
        one = " or `y[0]`," if np.prod(shape(y)) == 1 else ""
        return NotScalarError(
            f"{call}: {name}{where_of(f)} returned shape {shape(y)}; grad needs a scalar. Return{one} `y.sum()`, or use jacobian({name})"
        )
    return NotScalarError(
        f"{call}: {name}{where_of(f)} returned a value of dtype {dtype(y)}; grad needs a real float. "
        f"Return its .real or abs(y)**2, or use jacobian({name})"
    )


def _check_scalar(call: str, f: Callable, y: Any) -> None:
    if is_node(y) or y is None or isinstance(y, str) or shape(y) != () or dtype(y).kind not in "fiub":
        raise scalar_error(call, f, y)


def _again(f: Callable) -> Callable:
    """What an inner transform makes of the shadowed f: a Const stays one."""
    return Const if isinstance(f, Const) else lambda g: g


def value_and_grad(f: Callable, argnums: int | tuple = 0, has_aux: bool = False, *, shadow: bool = True) -> Callable:
    """Value and gradient of a real scalar function.

    `argnums` says which positional arguments (an int, or a tuple: then a tuple of gradients).  With `has_aux` f returns a pair
    (scalar, aux).  A gradient has its argument's tree, array kind, shape and dtype; for a complex argument z = x + iy it is
    df/dx + i df/dy, the direction of steepest ascent.  Raises ArgumentError for an integer or boolean argument, NotScalarError
    for an output that is not a real scalar.  With shadow=False (or tg.Const(f)) captured arrays are constants.

    >>> import numpy as np, tapegrad as tg
    >>> tg.value_and_grad(lambda x: (x * x).sum())(np.array([1.0, 2.0]))
    (np.float64(5.0), array([2., 4.]))
    """
    f = f if shadow else Const(f)

    def wrapped(*args, **kwargs):
        call = f"grad({name_of(f)})"
        r = _Recorded(call, f, argnums, args, kwargs, has_aux)
        try:
            _check_scalar(call, f, r.tree)
            value = r.value()
            of = r.pull([full_like(r.low[0][0], 1)], last=True)
            gradient = r.inputs.results(lambda key, x: _out(of(key), x))
        finally:
            r.finish()
        return ((value, _plain_tree(r.aux)) if has_aux else value), gradient

    return _named(wrapped, "value_and_grad", f, lambda g: value_and_grad(g, argnums, has_aux))


def _named(wrapped: Callable, prefix: str, f: Callable, remake: Callable) -> Callable:
    """Name the transform of f.  `remake` makes the same transform of another function: so an outer transform can shadow the
    arrays that f captured."""
    wrapped.remake, wrapped.of = remake, f
    wrapped.__name__ = wrapped.__qualname__ = f"{prefix}({name_of(f)})"
    wrapped.__doc__ = f"{prefix} of {name_of(f)}, by tapegrad."
    return wrapped


def grad(f: Callable, argnums: int | tuple = 0, has_aux: bool = False, *, shadow: bool = True) -> Callable:
    """Gradient of a real scalar function; see `value_and_grad`.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda x: np.sin(x).sum())(np.zeros(2))
    array([1., 1.])
    """
    f = f if shadow else Const(f)
    both = value_and_grad(f, argnums, has_aux)

    def wrapped(*args, **kwargs):
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return _named(wrapped, "grad", f, lambda g: grad(g, argnums, has_aux))


def _cast(call: str, what: str, w: Any, y: Any) -> Any:
    """A tangent or cotangent, checked against its primal y: exact shape; widths are cast; complex for real raises."""
    w = number(w)
    if not isinstance(w, (Variable, np.generic, int)) and not is_array(w):
        w = np.asarray(w)
    if isinstance(w, Variable):
        w = live(w)
    if not is_array(plain(w)) and is_array(plain(y)) and xp_of(plain(y)) is not np and shape(w) == ():
        w = xp_of(plain(y)).asarray(w)
    elif type(w) is int:
        w = np.float64(w)
    if shape(w) != shape(y):
        raise ShapeError(f"{call}: the {what} has shape {shape(w)}, the primal has shape {shape(y)}; they must be equal")
    if is_array(plain(w)) and is_array(plain(y)) and xp_of(plain(w)) is not xp_of(plain(y)):
        raise ArgumentError(f"{call}: the {what} is a {type(plain(w)).__module__} array, the primal a {type(plain(y)).__module__} array")
    have, want = dtype(w), dtype(y)
    if have.kind == "c" and want.kind != "c":
        raise ArgumentError(f"{call}: the {what} is complex, the primal is real ({want}); pass the {what}'s .real")
    if have.kind not in "biufc":
        raise ArgumentError(f"{call}: the {what} has dtype {have}; it must be a number or an array of numbers")
    if isinstance(w, Variable) and w._trace is not None:
        return frozen(w) if have == want else shaping.astype(w, to=want)
    w = plain(w)
    return w.astype(want) if have != want else owned(w) if is_array(w) else w


def _leaves_like(call: str, what: str, w: Any, tree: Any) -> list:
    """The leaves of w, which must have the tree of `tree`; None (or for constants anything) counts as zero."""
    if is_node(tree):
        if w is None:
            return [None] * len(leaves(tree))
        if not is_node(w) or len(children(w)) != len(children(tree)) or isinstance(w, dict) != isinstance(tree, dict):
            raise ArgumentError(f"{call}: the {what} is {structure(w)}, the primal is {structure(tree)}; they must be alike")
        pairs = (
            [(w[k], tree[k]) for k in tree]
            if isinstance(tree, dict) and set(w) == set(tree)
            else zip(children(w), children(tree), strict=True)
        )
        return [leaf for a, b in pairs for leaf in _leaves_like(call, what, a, b)]
    return [w]


def vjp(f: Callable, *primals: Any) -> tuple:
    """(f(*primals), pullback); `pullback(w)` gives J^H w: one tree for one primal, else a tuple.

    w has the tree and shapes of the value.  The pullback may be called any number of times, also after later calls of f.

    >>> import numpy as np, tapegrad as tg
    >>> y, pullback = tg.vjp(lambda x: x * x, np.array([1.0, 3.0]))
    >>> pullback(np.array([1.0, 10.0]))
    array([ 2., 60.])
    """
    call = f"vjp({name_of(f)})"
    if not primals:
        raise ArgumentError(f"{call}: give the primals, vjp(f, x)")
    r = _Recorded(call, f, 0 if len(primals) == 1 else tuple(range(len(primals))), primals, {})
    value = r.value()
    r.shadow.release(r.tape.records)
    r.shadow.finish()

    def pullback(w):
        ws = _leaves_like("pullback", "cotangent", w, r.tree)
        gs = [None if s is None or c is None else _cast("pullback", "cotangent", c, y) for c, (y, s) in zip(ws, r.low, strict=True)]
        of = r.pull(gs)
        return r.inputs.results(lambda key, x: _out(of(key), x))

    return value, pullback


# --- forward mode ---


def _forward(call: str, f: Callable, primals: tuple, tangents: tuple, lift: Any = None) -> tuple:
    """(output tree, pairs (value, tangent or None) of its leaves)."""
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise ArgumentError(f"{call}: primals and tangents must be tuples: jvp(f, (x,), (v,))")
    if len(primals) != len(tangents):
        raise ArgumentError(f"{call}: {len(primals)} primals but {len(tangents)} tangents")
    dual = Dual()
    inputs = _Inputs(call, tuple(range(len(primals))), tuple(primals))
    flat = {n: _leaves_like(call, "tangent", t, p) for n, (p, t) in enumerate(zip(primals, tangents, strict=True))}

    def watch(key, value):
        t = flat[key[0]][key[1]]
        return dual.watch(value, _cast(call, "tangent", t, value)) if t is not None else value

    found = []

    def read(y):
        found.extend((y, [lowered(v, dual) for v in leaves(y)]))

    entered = inputs.enter(watch)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        _run(f, dual, entered, {}, read, lift).finish()
    return tuple(found)


def jvp(f: Callable, primals: tuple, tangents: tuple) -> tuple:
    """(f(*primals), J v): the value and its derivative along `tangents`, a tuple like `primals`.

    Tangents have the exact shapes of their primals; None stands for zero.

    >>> import numpy as np, tapegrad as tg
    >>> tg.jvp(np.sin, (np.float64(0.0),), (2.0,))
    (np.float64(0.0), np.float64(2.0))
    """
    return _value_and_tangent(*_forward(f"jvp({name_of(f)})", f, primals, tangents))


def _value_and_tangent(tree: Any, pairs: list) -> tuple:
    values, slopes = iter(pairs), iter(pairs)
    value = tree_map(lambda _: _value(next(values)[0]), tree)

    def tangent(_):
        y, t = next(slopes)
        return _out(t, number(y)) if is_differentiable(plain(y)) else None

    return value, tree_map(tangent, tree)


# --- second order ---


def value_grad_hvp(f: Callable, x: Any, v: Any, args: tuple = ()) -> tuple:
    """(value, gradient, H v) of a real scalar function, forward over reverse in one pass; x and v are alike trees.

    >>> import numpy as np, tapegrad as tg
    >>> tg.value_grad_hvp(lambda x: (x ** 3).sum(), np.array([1.0]), np.array([2.0]))
    (np.float64(1.0), array([3.]), array([12.]))
    """
    again = _again(f)
    pairs = _forward(f"hvp({name_of(f)})", f, (x,), (v,), lambda g: lambda x: value_and_grad(again(g))(x, *args))
    (value, gradient), (_, hv) = _value_and_tangent(*pairs)
    return value, gradient, hv


def hvp(f: Callable, x: Any, v: Any, args: tuple = ()) -> Any:
    """H v, the Hessian of f at x times v, without the Hessian; further arguments of f in `args`.

    >>> import numpy as np, tapegrad as tg
    >>> tg.hvp(lambda x: (x ** 3).sum(), np.array([1.0, 2.0]), np.array([1.0, 1.0]))
    array([ 6., 12.])
    """
    return value_grad_hvp(f, x, v, args)[2]


def hmp(f: Callable, x: Any, V: Any, args: tuple = ()) -> Any:
    """H times each of k directions: every leaf of V has shape (k, *leaf.shape), and so has the result.  f is recorded once.

    >>> import numpy as np, tapegrad as tg
    >>> tg.hmp(lambda x: (x ** 3).sum(), np.array([1.0, 2.0]), np.eye(2))
    array([[ 6.,  0.],
           [ 0., 12.]])
    """
    call = f"hmp({name_of(f)})"
    again = _again(f)
    r = _Recorded(call, f, 0, (x,), {}, lift=lambda g: lambda x: grad(again(g))(x, *args))
    results = []
    try:
        rows = _leaves_like(call, "matrix V", V, x)
        sizes = {shape(v)[0] if shape(v) else -1 for v, (_, s) in zip(rows, r.low, strict=True) if v is not None}
        if len(sizes) != 1 or -1 in sizes:
            raise ShapeError(f"{call}: every leaf of V needs the same leading axis of directions, got {structure(V)}")
        for n in range(sizes.pop()):
            seeds = [None if v is None else _cast(call, "direction", v[n], y) for v, (y, _) in zip(rows, r.low, strict=True)]
            of = r.pull(seeds)
            results.append({key: _out(of(key), x) for key, x in r.inputs.watched.items()})
    finally:
        r.finish()
    return r.inputs.results(lambda key, x: shaping.stack([m[key] for m in results]) if results else empty_rows(x))


def empty_rows(x: Any) -> Any:
    return xp_of(plain(x)).zeros((0, *shape(x)), dtype(x))


def basis(x: Any) -> list:
    """The unit arrays of the shape of x."""
    s, x = shape(x), plain(x)
    library = xp_of(x) if is_array(x) else np
    n = int(np.prod(s))
    return [e.reshape(s) if s else e[0] for e in library.eye(n, dtype=dtype(x))]


def jacobian(f: Callable, argnums: int | tuple = 0, mode: str = "auto", holomorphic: bool = False, *, shadow: bool = True) -> Callable:
    """Jacobian of shape out.shape + x.shape; for trees, the output's tree of the input's trees.  f is recorded once.

    mode: 'reverse' (a sweep for each output), 'forward' (one for each input) or 'auto' (the fewer).  A real function of a
    complex argument has its gradient as Jacobian; a complex function of a complex argument needs holomorphic=True.

    >>> import numpy as np, tapegrad as tg
    >>> tg.jacobian(lambda x: x * x)(np.array([1.0, 2.0]))
    array([[2., 0.],
           [0., 4.]])
    """
    if mode not in ("auto", "forward", "reverse"):
        raise ArgumentError(f"jacobian: mode={mode!r}; it is 'auto', 'forward' or 'reverse'")
    f = f if shadow else Const(f)

    def wrapped(*args, **kwargs):
        return _jacobian(f"jacobian({name_of(f)})", f, argnums, args, kwargs, mode, holomorphic)

    return _named(wrapped, "jacobian", f, lambda g: jacobian(g, argnums, mode, holomorphic))


def _jacobian(call, f, argnums, args, kwargs, mode, holomorphic, lift=None) -> Any:
    r = _Recorded(call, f, argnums, args, kwargs, lift=lift)
    try:
        blocks = _blocks(call, f, r, mode, holomorphic)
    finally:
        r.finish()
    numbers = iter(range(len(r.low)))

    def block(y):
        k = next(numbers)
        return None if y is None else r.inputs.results(lambda key, x: blocks[k, key])

    return tree_map(block, r.tree)


def _blocks(call: str, f: Callable, r: _Recorded, mode: str, holomorphic: bool) -> dict:
    for y, _ in r.low:
        if not (y is None or is_array(plain(y)) or isinstance(plain(y), (int, float, complex, np.generic))):
            raise ArgumentError(f"{call}: {name_of(f)}{where_of(f)} returned {structure(r.tree)}, not arrays")
    complex_in = any(dtype(x).kind == "c" for x in r.inputs.watched.values())
    if complex_in and any(y is not None and dtype(y).kind == "c" for y, _ in r.low) and not holomorphic:
        raise ArgumentError(f"{call}: complex function of complex arguments; say holomorphic=True, or split into real and imaginary parts")
    n_out = sum(int(np.prod(shape(y))) for y, _ in r.low if y is not None)
    n_in = sum(int(np.prod(shape(x))) for x in r.inputs.watched.values())
    if mode == "forward" or (mode == "auto" and n_in < n_out and not complex_in):
        return _columns(r)
    return _rows(r, holomorphic)


def _rows(r: _Recorded, holomorphic: bool) -> dict:
    """Blocks (output leaf, input key) by one reverse sweep for each output element."""
    blocks = {}
    for k, (y, _) in enumerate(r.low):
        if y is None:
            continue
        found: dict = {key: [] for key in r.inputs.watched}
        mixed = dtype(y).kind == "c" and not holomorphic
        for e in basis(number(y)):
            seeds = [e if j == k else None for j in range(len(r.low))]
            of = r.pull(seeds)
            turned = r.pull([None if s is None else s * 1j for s in seeds]) if mixed else None
            for key, x in r.inputs.watched.items():
                row = _out(of(key), x)
                if mixed:
                    row = row + 1j * _out(turned(key), x)
                elif holomorphic:
                    row = shaping.conj(row)
                found[key].append(row)
        for key, x in r.inputs.watched.items():
            blocks[k, key] = _assembled(found[key], shape(y), shape(x), x)
    return blocks


def _assembled(rows: list, first: tuple, second: tuple, like: Any) -> Any:
    if not rows:
        return xp_of(plain(like)).zeros(first + second, dtype(like))
    if first == ():
        return rows[0]
    return unshared(shaping.reshape(shaping.stack(rows), to=first + second))


def unshared(a: Any) -> Any:
    """A plain result in memory of its own."""
    return a if isinstance(a, Variable) or a.base is None else a.copy()


def _columns(r: _Recorded) -> dict:
    """Blocks by one sweep for each input element: the pullback w -> J^T w is itself recorded (it is linear in w) and pulled
    back, which gives J v without running f again."""
    tape = reverse.Tape()
    ws = [None if y is None else tape.watch(full_like(number(y), 0)) for y, _ in r.low]
    of = r.pull(ws)
    outputs = {key: lowered(of(key), tape) if of(key) is not None else (None, None) for key in r.inputs.watched}
    tape.close()
    blocks = {}
    for key, x in r.inputs.watched.items():
        _, slot = outputs[key]
        found: list = [[] for _ in r.low]
        for e in basis(x):
            G = None
            if slot is not None:
                G = reverse.pull(tape, [(slot, e)])
            for k, (y, _) in enumerate(r.low):
                if y is None:
                    continue
                s = ws[k]._slot
                found[k].append(_out(G[s] if G is not None and s < len(G) else None, number(y)))
        for k, (y, _) in enumerate(r.low):
            columns = found[k]
            if y is None:
                continue
            if not columns:
                blocks[k, key] = xp_of(plain(x)).zeros(shape(y) + shape(x), dtype(x))
            elif shape(x) == ():
                blocks[k, key] = columns[0]
            else:
                stacked = shaping.stack(columns, axis=len(shape(y)))
                blocks[k, key] = unshared(shaping.reshape(stacked, to=shape(y) + shape(x)))
    tape.release()
    return blocks


def hessian(f: Callable, argnums: int | tuple = 0, *, shadow: bool = True) -> Callable:
    """Hessian of shape x.shape + x.shape; with argnums=(0, 1) the blocks ((H00, H01), (H10, H11)).  f is recorded once.

    >>> import numpy as np, tapegrad as tg
    >>> tg.hessian(lambda x: x[0] ** 2 * x[1])(np.array([1.0, 2.0]))
    array([[4., 2.],
           [2., 0.]])
    """
    f = f if shadow else Const(f)
    again = _again(f)

    def wrapped(*args, **kwargs):
        return _jacobian(f"hessian({name_of(f)})", f, argnums, args, kwargs, "reverse", False, lambda g: grad(again(g), argnums))

    return _named(wrapped, "hessian", f, lambda g: hessian(g, argnums))


# --- the tape by hand ---


class Tape:
    """A tape by hand: watch arrays, compute, ask for gradients.  NumPy's names are not shadowed here: use `tapegrad.numpy`, or
    numpy functions through their protocols.

    >>> import numpy as np, tapegrad as tg
    >>> with tg.Tape() as tape:
    ...     x = tape.watch(np.array([1.0, 2.0]))
    ...     y = (x * x).sum()
    >>> tape.grad(y, x)
    array([2., 4.])
    """

    def __init__(self):
        self._trace = reverse.Tape()
        self._leaves: dict = {}

    def __enter__(self) -> "Tape":
        OPEN.depth = getattr(OPEN, "depth", 0) + 1
        return self

    def __exit__(self, *error: Any) -> None:
        OPEN.depth -= 1
        self._trace.close()

    @property
    def saved_bytes(self) -> int:
        """Bytes of arrays that the records keep."""
        return reverse.saved_bytes(self._trace)

    def watch(self, array: Any) -> Variable:
        """A Variable over a copy of the array."""
        inputs = _Inputs("tape.watch", 0, (array,))
        if type(self._trace) is not reverse.Tape:
            raise ArgumentError("tape.watch: the tape is closed; watch arrays inside its with block")
        value = entered(inputs.args[0])
        x = self._trace.watch(value)
        self._leaves[x._slot] = value
        return x

    def grad(self, y: Any, x: Any, seed: Any = None) -> Any:
        """Gradient of the scalar y (or J^H seed of an array y) for the watched x, or a tree of such; repeatable."""
        slot = y._slot if isinstance(y, Variable) and (live_on(y, self._trace)) else None
        if seed is None:
            _check_scalar("tape.grad", self.grad, y)
            seed = full_like(y, 1)
        else:
            seed = _cast("tape.grad", "seed", seed, y)
        G: list = []
        if slot is not None:
            G = reverse.pull(self._trace, [(slot, seed)])

        def of(v):
            if not isinstance(v, Variable) or v._trace is not self._trace or v._slot not in self._leaves:
                raise ArgumentError("tape.grad(y, x): x was not watched by this tape, or was written since; keep what tape.watch returned")
            return _out(G[v._slot] if v._slot < len(G) else None, self._leaves[v._slot])

        return tree_map(of, x)


def live_on(y: Variable, trace: Trace) -> bool:
    plain(y)
    return y._trace is trace


# --- rules of the user's own ---


def rule(f: Callable, vjp: Callable | None = None, jvp: Callable | None = None) -> Callable:
    """f with the user's own derivative.  f gets plain arrays.

    `vjp(g, out, *args)` gives one cotangent, or a tuple of one for each argument (None: zero); `jvp(t, out, *args)`, with t a
    tuple of tangents (None: zero), gives the tangent of the output.  args are as they were at the call, whatever was written
    since.  With only one of the two, the other mode is its transpose.

    >>> import numpy as np, tapegrad as tg
    >>> sumsq = tg.rule(lambda x: (x * x).sum(), vjp=lambda g, out, x: 2 * g * x)
    >>> tg.grad(sumsq)(np.array([2.0, 3.0]))
    array([4., 6.])
    """
    if vjp is None and jvp is None:
        raise ArgumentError(f"rule({name_of(f)}): give vjp=, jvp=, or both")
    name = name_of(f)
    prim = Primitive(name, f)
    prim.holomorphic, prim.joint = False, True
    prim.keep_spec = lambda active: (tuple(range(len(active))), True)

    def reverse_rule(g, out, need, *args, **params):
        if isinstance(g, list):
            g = tuple([full_like(o, 0) if c is None else c for c, o in zip(g, out, strict=True)])
        if vjp is None:
            return _transposed_jvp(jvp, g, out, need, args, params)
        terms = vjp(g, out, *args, **params)
        return _terms(name, terms, args)

    def forward_rule(t, out, *args, **params):
        if jvp is not None:
            return jvp(tuple(t), out, *args, **params)
        return _transposed_vjp(vjp, name, t, out, args, params)

    prim.vjp, prim.jvp = (reverse_rule,), forward_rule

    @functools.wraps(f)
    def wrapped(*args, **params):
        for n, a in enumerate(args):
            if not (is_array(plain(a)) or isinstance(plain(a), (int, float, complex, np.generic))):
                raise ArgumentError(
                    f"{name}: argument {n} of a function with a rule must be an array or a number; pass settings by keyword"
                )
        return bind(prim, args, params)

    wrapped.prim = prim
    return wrapped


def _terms(name: str, terms: Any, args: tuple) -> tuple:
    terms = tuple(terms) if isinstance(terms, (tuple, list)) else (terms,)
    if len(terms) != len(args):
        raise ArgumentError(f"rule({name}): vjp returned {len(terms)} cotangents for {len(args)} arguments")
    for n, (c, a) in enumerate(zip(terms, args, strict=True)):
        if c is not None and shape(c) != shape(a):
            raise ShapeError(f"rule({name}): vjp returned shape {shape(c)} for argument {n} of shape {shape(a)}")
    return terms


def _transposed_vjp(vjp: Callable, name: str, t: tuple, out: Any, args: tuple, params: dict) -> Any:
    """J t from w -> J^T w, which is linear in w: record it and pull t back through it."""
    outs = out if isinstance(out, tuple) else (out,)
    tape = reverse.Tape()
    ws = [tape.watch(full_like(o, 0)) for o in outs]
    terms = _terms(name, vjp(tuple(ws) if isinstance(out, tuple) else ws[0], out, *args, **params), args)
    seeds = []
    for c, d in zip(terms, t, strict=True):
        _, slot = lowered(c, tape)
        if d is not None and slot is not None:
            seeds.append((slot, d))
    tape.close()
    G = reverse.pull(tape, seeds) if seeds else []
    tangents = tuple(
        [G[w._slot] if w._slot < len(G) and G[w._slot] is not None else full_like(o, 0) for w, o in zip(ws, outs, strict=True)]
    )
    return tangents if isinstance(out, tuple) else tangents[0]


def _transposed_jvp(jvp: Callable, g: Any, out: Any, need: tuple, args: tuple, params: dict) -> list:
    """J^T g from t -> J t, likewise."""
    tape = reverse.Tape()
    ts = [tape.watch(full_like(a, 0)) if n else None for a, n in zip(args, need, strict=True)]
    d = jvp(tuple(ts), out, *args, **params)
    pairs = zip(d if isinstance(d, tuple) else (d,), g if isinstance(g, tuple) else (g,), strict=True)
    seeds = [(slot, c) for (_, slot), c in [(lowered(v, tape), c) for v, c in pairs] if slot is not None]
    tape.close()
    G = reverse.pull(tape, seeds) if seeds else []
    return [None if t is None or t._slot >= len(G) else G[t._slot] for t in ts]


# --- small things ---


def value(x: Any) -> Any:
    """The plain array behind a tracked Variable: the derivative is cut on purpose.  Other objects pass through.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda x: x * tg.value(x))(3.0)
    np.float64(3.0)
    """
    if not isinstance(x, Variable):
        return x
    x = plain(x)
    return owned(x) if is_array(x) else x


def ravel(tree: Any) -> tuple:
    """(flat vector, restore): all float arrays of a tree as one vector, and the way back; both differentiable.

    >>> import numpy as np, tapegrad as tg
    >>> flat, restore = tg.ravel({"a": 1.0, "b": np.array([2.0, 3.0])})
    >>> flat, restore(flat * 10)["b"]
    (array([1., 2., 3.]), array([20., 30.]))
    """
    members = leaves(tree)
    active = [is_differentiable(plain(m)) for m in members]
    shapes = [shape(m) for m in members]
    kinds = [type(plain(m)) for m in members]
    dtypes = [dtype(m) if a else None for m, a in zip(members, active, strict=True)]
    pieces = [
        shaping.reshape(m, to=(-1,)) if is_array(plain(m)) else np.reshape(m, (1,)) for m, a in zip(members, active, strict=True) if a
    ]
    flat = shaping.concatenate(*pieces) if pieces else np.zeros(0)

    def restore(vector: Any) -> Any:
        total = sum(int(np.prod(s)) for s, a in zip(shapes, active, strict=True) if a)
        if shape(vector) != (total,):
            raise ShapeError(f"restore: the vector has shape {shape(vector)}, the tree needs ({total},)")
        start = 0
        made = []
        for m, s, a, kind, dt in zip(members, shapes, active, kinds, dtypes, strict=True):
            if not a:
                made.append(m)
                continue
            n = int(np.prod(s))
            piece = shaping.slice_of(vector, axis=0, start=start, stop=start + n)
            start += n
            piece = shaping.reshape(piece, to=s)
            if not isinstance(piece, Variable) and issubclass(kind, (float, complex, np.generic)):
                piece = piece[()]
            made.append(piece if dtype(piece) == dt else shaping.fit(piece, s, dt))
        again = iter(made)
        return tree_map(lambda _: next(again), tree)

    return flat, restore
