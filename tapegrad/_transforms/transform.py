"""What `grad` and its like return, and what the transforms of this folder share.

While a kernel function is traced, `OPEN.inside` runs and differentiates the functions
(kernels/trace/derivatives.py): it stands for gradients, Jacobians, pullbacks and forward mode, of which the
transforms are made."""

import types
from typing import Any, Literal, ParamSpec, TypeAlias, TypeVar

from .._core.errors import ArgumentError
from .._core.pickling import PickledByCall, named_like
from .._core.registry import SHADOW_MAKERS
from .._core.trees import Const, describe_tree
from .._core.typing import AnyFunction, AnyTuple, Array, Node, Number
from .arguments import check_function, positions, user_name

# For type checkers: X is the type of the first argument and so of its gradient, Y of the value, A of aux, P
# of what else f takes.
X = TypeVar("X")
Y = TypeVar("Y")
Z = TypeVar("Z")
A = TypeVar("A")
Both: TypeAlias = tuple[Literal[0], Literal[1]]
V = TypeVar("V", bound=Array | Number)
N = TypeVar("N", bound=Node)
P = ParamSpec("P")


class Transform(PickledByCall):
    """What grad and its like return: `body(call, f, settings, args, kwargs)` with f and the settings that
    they were given, and the name of the call for messages."""

    def __init__(self, prefix: str, body: AnyFunction, f: AnyFunction, *settings: Any):
        check_function(prefix, f)
        named_like(self, f)
        self.prefix, self.body, self.of, self.settings = prefix, body, f, settings
        name = user_name(f)
        self.__name__ = self.call = f"{prefix}({name})"
        self.__doc__ = f"{prefix} of {name}, by tapegrad."

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.body(self.call, self.of, self.settings, args, kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """In a class it is a method, as a function is."""
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<{self.__name__}>"

    def _made(self) -> AnyTuple:
        return Transform, (self.prefix, self.body, self.of, *self.settings)


def transform_of_shadow(shadow: Any, x: Transform) -> Transform:
    """The same transform of the function whose captured arrays an outer transform follows."""
    f = shadow(x.of)
    return x if f is x.of else Transform(x.prefix, x.body, f, *x.settings)


SHADOW_MAKERS[Transform] = transform_of_shadow


# --- reverse and forward mode ---


def wrapping(f: AnyFunction) -> AnyFunction:
    """Return what marks the shadowed f as constant, if f is."""
    return Const if isinstance(f, Const) else lambda g: g


def lift_of(
    call: str, body: AnyFunction, f: AnyFunction, args: AnyTuple, argnums: Any = 0, has_aux: bool = False
) -> AnyFunction:
    """Return the lift of an outer transform: from the shadowed f to `body` of it.

    Parameters
    ----------
    call : str
        The outer call. Errors of the inner transform name it.
    body : callable
        The body of a transform, such as `gradient_body`.
    f : callable
        The function that the user gave.
    args : tuple
        The arguments of f. Those that are constants stay constants inside.
    argnums, has_aux
        Settings of the inner transform.
    """
    wrap, marked = wrapping(f), [type(a) is Const for a in args]

    def lift(g: AnyFunction) -> AnyFunction:
        def inner(*given: Any, **kwargs: Any) -> Any:
            again = tuple([Const(a) if m else a for a, m in zip(given, marked, strict=True)])
            return body(call, wrap(g), (argnums, has_aux), again, kwargs)

        return inner

    return lift


def placed_arguments(call: str, argnums: int | AnyTuple, x: Any, args: AnyTuple) -> AnyTuple:
    """(all arguments of f, the positions of those in x): x is the argument `argnums`, or a tuple of them."""
    if argnums == 0:
        return (x, *args), (0,)
    if isinstance(argnums, tuple) and not (isinstance(x, tuple) and len(x) == len(argnums)):
        raise ArgumentError(
            f"{call}: argnums={argnums!r} asks for a tuple of {len(argnums)} arguments, got "
            f"{describe_tree(x)}"
        )
    xs = x if isinstance(argnums, tuple) else (x,)
    nums = positions(call, argnums, len(xs) + len(args))
    chosen, rest = dict(zip(nums, xs, strict=True)), iter(args)
    return tuple([chosen[n] if n in chosen else next(rest) for n in range(len(xs) + len(args))]), nums
