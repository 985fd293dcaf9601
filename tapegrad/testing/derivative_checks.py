"""`check_grads`: every derivative of a function checked against the others and against differences.

All checks reduce to one number.  With a random cotangent w let phi(x) = Re <w, f(x)>.  A derivative of phi
along v is taken in forward mode, `jvp(phi, x, v)`, or in reverse, `Re <v, grad phi(x)>`; either gives a
scalar function again.  So the nestings of order k are the 2^k words over {F, R}, each along the directions v1
... vk, and all must give the same number."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from .._core.arrays import is_array, is_differentiable, may_share_memory, xp_of
from .._core.errors import ArgumentError
from .._core.primitive import values_of
from .._core.trees import Const, describe_tree, leaves, tree_map
from .._transforms.arguments import checked_argnums, positions, user_name
from .._transforms.products import jvp, vjp
from .._transforms.wrapped import directional, inner_product, partial_call, weighted_output
from ..ops.declare import dtype
from ..ops.linalg.hermitian import symmetric

LETTERS = {"forward": "F", "reverse": "R"}
NAMES = {"F": "forward", "R": "reverse"}


def plain_host_array(a: Any) -> np.ndarray:
    """The values as a plain array on the host."""
    a = values_of(a)
    return a.get() if is_array(a) and xp_of(a) is not np else np.asarray(a)


def direction_like(tree: Any, rng: np.random.Generator) -> Any:
    """Random numbers in the tree, library and dtypes of `tree`; None at leaves that have no derivative."""

    def leaf(x: Any) -> Any:
        x = values_of(x)
        if isinstance(x, Const) or not is_differentiable(x):
            return None
        d = np.dtype(type(x)) if type(x) in (float, complex) else x.dtype
        v = rng.standard_normal(np.shape(x))
        if d.kind == "c":
            v = v + 1j * rng.standard_normal(np.shape(x))
        v = np.asarray(v, d)
        return xp_of(x).asarray(v) if is_array(x) else v[()]

    return tree_map(leaf, tree)


def hermitian_part(tree: Any, v: Any) -> Any:
    """The direction v, made Hermitian where `tree` has Hermitian matrices that are not diagonal: of those
    cholesky, eigh and their kin are functions, while NumPy reads one triangle."""

    def leaf(x: Any, d: Any) -> Any:
        x = values_of(x)
        if d is None or np.ndim(x) < 2 or not 1 < x.shape[-1] == x.shape[-2]:
            return d
        alike = plain_host_array(symmetric(x))
        return (
            xp_of(x).where(xp_of(x).asarray(alike), (d + d.swapaxes(-1, -2).conj()) * 0.5, d).astype(d.dtype)
            if alike.any()
            else d
        )

    return tree_map(leaf, tree, v)


def displaced(tree: Any, v: Any, h: float) -> Any:
    """tree + h v, in the precision of the tree."""

    def leaf(x: Any, d: Any) -> Any:
        if d is None:
            return x
        y = x + h * d
        return y.astype(x.dtype) if hasattr(x, "dtype") else y

    return tree_map(leaf, tree, v)


def nested_derivative(phi: Callable, word: str, directions: list) -> Callable:
    """The derivative of order len(word); the first letter is the outermost transform."""
    for letter, v in zip(reversed(word), directions, strict=True):
        phi = directional(phi, v, letter)
    return phi


def differences(f: Callable, x: tuple, v: tuple, h: float) -> Any:
    """The derivative of f along v by central differences at h and h / 2, extrapolated: error O(h^4)."""

    def central(h: Any) -> Any:
        up, down = f(*displaced(x, v, h)), f(*displaced(x, v, -h))
        return tree_map(
            lambda a, b: (plain_host_array(a) * 1.0 - plain_host_array(b)) / (2 * h),
            up,
            down,
        )

    return tree_map(lambda a, b: (4 * b - a) / 3, central(h), central(h / 2))


def cotangents(f: Callable, x: tuple, w: Any) -> tuple:
    """The cotangents of all arguments x, for the cotangent w of the value."""
    pulled = vjp(f, *x)[1](w)
    return pulled if len(x) > 1 else (pulled,)


def gaps(u: np.ndarray, v: np.ndarray) -> Any:
    """Return the distances of elements: 0 for two nan, infinite for one."""
    with np.errstate(invalid="ignore"):
        gap = np.where((u == v) | (np.isnan(u) & np.isnan(v)), 0.0, np.abs(u - v))
    return np.where(np.isnan(gap), np.inf, gap)


class _Check:
    """One call of check_grads: what is compared, how closely, and the text of a failure."""

    def __init__(self, name: str, rtol: float, atol: float):
        self.name, self.rtol, self.atol = name, rtol, atol

    def same(self, what: str, a: Any, b: Any, names: tuple, factor: float = 1.0) -> None:
        for n, (u, v) in enumerate(zip(leaves(a), leaves(b), strict=True)):
            if u is None or v is None:
                continue
            u, v = plain_host_array(u), plain_host_array(v)
            if u.shape != v.shape:
                raise AssertionError(
                    f"check_grads({self.name}): {what}: {names[0]} has shape {u.shape}, {names[1]} has "
                    f"shape {v.shape}"
                )
            if u.size == 0:
                continue
            scale = np.max(np.abs(np.where(np.isfinite(v), v, 0.0)))
            bound = factor * (self.atol + self.rtol * scale)
            gap = gaps(u, v)
            if np.max(gap) > bound:
                at = np.unravel_index(int(np.argmax(gap)), u.shape)
                place = f" in leaf {n}" * (len(leaves(a)) > 1) + f" at {tuple(int(i) for i in at)}" * (
                    u.ndim > 0
                )
                raise AssertionError(
                    f"check_grads({self.name}): {what} differ by {np.max(gap):.3g}{place}: "
                    f"{names[0]} {u[at]!r}, {names[1]} {v[at]!r}; allowed {bound:.3g}"
                )

    def transposed(self, v: Any, pulled: Any, w: Any, pushed: Any) -> None:
        """Are <v, pulled> and <w, pushed> the same?"""
        what = "order 1, reverse against forward by dot product"
        self.same(what, inner_product(v, pulled), inner_product(w, pushed), ("reverse", "forward"))

    def bits(self, what: str, a: Any, b: Any) -> None:
        for u, v in zip(leaves(a), leaves(b), strict=True):
            if u is not None and plain_host_array(u).tobytes() != plain_host_array(v).tobytes():
                raise AssertionError(f"check_grads({self.name}): {what}")


def check_grads(
    f: Callable,
    args: Any,
    *,
    argnums: int | tuple | None = None,
    order: int = 2,
    modes: tuple = ("forward", "reverse"),
    rtol: float | None = None,
    atol: float | None = None,
    eps: float | None = None,
    seed: int = 0,
) -> None:
    """Check the derivatives of f(*args) along random directions.

    Checked are:

    - the value, against a plain call;
    - forward mode, against central differences;
    - reverse mode, against forward mode by a dot product;
    - for every order up to `order`, all nestings of the `modes`, against each other and against differences
      of one order less;
    - that a second call gives the same bits, that the arguments are unchanged, and that results share no
      memory with them.

    f must be smooth within a few `eps` of its arguments. Hermitian matrices that are not diagonal are
    perturbed to Hermitian ones.

    Parameters
    ----------
    f : callable
        A function of `args` that returns an array, a number or a tree of these.
    args : tuple or object
        The arguments, or the only argument.
    argnums : int or tuple of int, optional
        The arguments to differentiate. By default all with float or complex leaves.
    order : int, default 2
        The highest order of derivatives.
    modes : tuple, default ('forward', 'reverse')
        The modes that are nested.
    rtol, atol : float, optional
        Tolerances of comparisons of derivatives with each other. Differences are allowed 1000 times as much
        (in float64).
    eps : float, optional
        The step of the differences.
    seed : int, default 0
        Seed of the random directions.

    Raises
    ------
    AssertionError
        If a check fails. The text says which one, and by how much.

    See Also
    --------
    tapegrad.audit : A report on every transform.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> tg.testing.check_grads(lambda x, y: np.sin(x) * y, (np.ones(3), 2.0))
    >>> square = tg.rule(lambda x: x * x, vjp=lambda g, out, x: 3 * g * x)
    >>> tg.testing.check_grads(square, np.ones(2))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    AssertionError: check_grads(<lambda>): order 1, forward against differences differ by ...
    """
    args = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    if argnums is None:
        argnums = tuple(
            [n for n, a in enumerate(args) if any(is_differentiable(values_of(x)) for x in leaves(a))]
        )
    if isinstance(argnums, tuple) and not argnums:
        raise ArgumentError(f"check_grads({user_name(f)}): no argument has float or complex leaves")
    nums = positions("check_grads", checked_argnums("check_grads", argnums), len(args))
    if not modes or not set(modes) <= LETTERS.keys():
        raise ArgumentError(f"check_grads: modes={modes!r}; they are 'forward' and 'reverse'")
    letters = "".join(LETTERS[m] for m in modes)
    x = tuple([args[n] for n in nums])
    single = any(np.finfo(dtype(v)).bits < 64 for v in leaves(x) if is_differentiable(values_of(v)))
    rtol = (1e-3 if single else 1e-9) if rtol is None else rtol
    atol = (1e-3 if single else 1e-9) if atol is None else atol
    eps = (2e-2 if single else 1e-3) if eps is None else eps
    slack = 10.0 if single else 1000.0

    call = partial_call(f, args, nums)
    check = _Check(user_name(f), rtol, atol)
    before = tree_map(copied_array, args)
    rng = np.random.default_rng(seed)
    value = vjp(call, *x)[0]
    by_hand = _check_value(check, call, x, value)
    w = direction_like(value, rng)

    phi = weighted_output(call, w)
    anywhere = direction_like(x, rng)
    directions = [
        hermitian_part(x, v) for v in (anywhere, *[direction_like(x, rng) for _ in range(order - 1)])
    ]
    if all(c is None for c in leaves(w)):
        raise ArgumentError(
            f"check_grads({user_name(f)}): the value is {describe_tree(value)}, which has no derivative"
        )
    _check_first(check, call, by_hand, x, directions[0], w, value, letters, eps, slack)
    if len(letters) > 1 and any(
        u is not v for u, v in zip(leaves(anywhere), leaves(directions[0]), strict=True)
    ):
        # along a direction that leaves the Hermitian matrices there are no differences to compare with
        check.transposed(anywhere, cotangents(call, x, w), w, jvp(call, x, anywhere)[1])
    _check_higher(check, phi, x, directions, letters, eps, slack)
    check.bits("an argument was altered", before, tree_map(copied_array, args))


def copied_array(v: Any) -> Any:
    """A copy on the host of the array v; None for another leaf."""
    return plain_host_array(v).copy() if is_array(values_of(v)) else None


def _check_higher(
    check: _Check, phi: Callable, x: tuple, directions: list, letters: str, eps: float, slack: float
) -> None:
    """Check the orders from two on: all nestings against each other, and against differences."""
    lower = directional(phi, directions[0], letters[0])
    for k in range(2, len(directions) + 1):
        words = ["".join(word) for word in itertools.product(letters, repeat=k)]
        found = {word: nested_derivative(phi, word, directions[:k])(*x) for word in words}
        for word in words[1:]:
            what = f"order {k}, {_spelt(word)} against {_spelt(words[0])}"
            check.same(what, found[word], found[words[0]], (word, words[0]), 10.0 ** (k - 2))
        numeric = differences(lower, x, directions[k - 1], eps)
        what = f"order {k}, {_spelt(words[0])} against differences of order {k - 1}"
        check.same(what, found[words[0]], numeric, (words[0], "differences"), slack * 10.0 ** (k - 2))
        lower = nested_derivative(phi, letters[0] * k, directions[:k])


def _spelt(word: str) -> str:
    return " over ".join(NAMES[c] for c in word)


def _check_value(check: _Check, call: Callable, x: tuple, value: Any) -> Callable:
    """Against a plain call on copies.  Returns what differences are taken of: f itself, or, where f knows
    only Variables, its value found by tapegrad."""
    try:
        with np.errstate(all="ignore"):
            direct = call(*tree_map(lambda v: v.copy() if is_array(v) else v, x))
    except (TypeError, AttributeError, NotImplementedError):
        return lambda *xs: vjp(call, *xs)[0]
    numbers = tree_map(
        lambda v: v if hasattr(values_of(v), "dtype") or isinstance(v, (int, float, complex)) else None,
        direct,
    )
    check.same("value against plain call", value, numbers, ("value", "plain"))
    for u, v in zip(leaves(value), leaves(numbers), strict=True):
        if v is not None and dtype(u) != dtype(v):
            raise AssertionError(
                f"check_grads({check.name}): the value has dtype {dtype(u)}, that of a plain call {dtype(v)}"
            )
    return call


def _check_first(
    check: Any,
    call: Any,
    by_hand: Any,
    x: Any,
    v: Any,
    w: Any,
    value: Any,
    letters: Any,
    eps: Any,
    slack: Any,
) -> None:
    pushed = pulled = None
    if "F" in letters:
        out, pushed = jvp(call, x, v)
        check.bits("forward: the value is not that of a second call", value, out)
        check.bits("forward: a second call gives other bits", pushed, jvp(call, x, v)[1])
        numeric = differences(by_hand, x, v, eps)
        check.same("order 1, forward against differences", pushed, numeric, ("forward", "differences"), slack)
        _check_memory(check, "forward", x, pushed)
        _check_memory(check, "the value of forward", x, out)
    if "R" in letters:
        out, pullback = vjp(call, *x)
        check.same("value of reverse against forward", out, value, ("reverse", "forward"))
        pulled = pullback(w)
        check.bits("reverse: a second pullback gives other bits", pulled, pullback(w))
        check.bits("reverse: a second call gives other bits", pulled, vjp(call, *x)[1](w))
        _check_memory(check, "reverse", (x, w), pulled)
        _check_memory(check, "the value of reverse", x, out)
        pulled = pulled if len(x) > 1 else (pulled,)
        for a, c in zip(leaves(x), leaves(pulled), strict=True):
            if c is not None and np.shape(a) != np.shape(c):
                raise AssertionError(
                    f"check_grads({check.name}): reverse: a gradient has shape {np.shape(c)}, its argument "
                    f"{np.shape(a)}"
                )
            if c is not None and hasattr(a, "dtype") and a.dtype != c.dtype:
                raise AssertionError(
                    f"check_grads({check.name}): reverse: a gradient has dtype {c.dtype}, its argument "
                    f"{a.dtype}"
                )
        if pushed is not None:
            check.transposed(v, pulled, w, pushed)
        else:
            numeric = differences(lambda *xs: inner_product(w, by_hand(*xs)), x, v, eps)
            check.same(
                "order 1, reverse against differences",
                inner_product(v, pulled),
                numeric,
                ("reverse", "differences"),
                slack,
            )


def _check_memory(check: _Check, what: str, x: Any, result: Any) -> None:
    for a in leaves(x):
        for b in leaves(result):
            if a is not None and b is not None and may_share_memory(values_of(a), values_of(b)):
                raise AssertionError(
                    f"check_grads({check.name}): {what}: a result shares memory with an argument"
                )
