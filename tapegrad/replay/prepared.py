"""`prepare`: a function and its derivatives, recorded once and replayed at other points."""

from collections.abc import Callable
from typing import Any, Concatenate, Generic, Literal, TypeAlias, TypeVar, overload

from .._core.errors import ArgumentError
from .._core.pickling import PickledByCall
from .._core.registry import SHADOW_MAKERS
from .._core.trees import Const
from .._transforms.arguments import Inputs, check_function, checked_argnums, user_name
from .form import TransformForm
from .methods import METHODS
from .partial_evaluation import FixedPointProduct, filled_out
from .signature import CallSignature

X = TypeVar("X")
Y = TypeVar("Y")
OnChange: TypeAlias = Literal["record", "raise"]


class Prepared(PickledByCall, Generic[X, Y]):
    """A recorded function and its derivatives, made by `prepare`; each call replays a recording.

    The methods take the arguments of f. With ``out=`` the derivative is written there.

    See Also
    --------
    prepare : Makes it, with an example.
    """

    def __init__(
        self,
        f: Callable,
        args: tuple,
        argnums: Any,
        on_change: str,
        compile: Any = "auto",
        cuda_graph: bool = False,
    ):
        self.args, self.compile, self.cuda_graph = args, compile, cuda_graph
        self.of, self.argnums, self.on_change = f, argnums, on_change
        self.f = f
        self.name = f"prepare({user_name(f)})"
        self.__name__ = self.name
        self.nums = Inputs(self.name, argnums, args).nums
        self.example = CallSignature(args, tuple([k in self.nums for k in range(len(args))]), True)
        self.forms = {method: TransformForm(self, method) for method in METHODS}

    def _made(self) -> tuple:
        return Prepared, (self.of, self.args, self.argnums, self.on_change, self.compile, self.cuda_graph)

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def value(self, *args: object, out: object = None) -> Y:
        """Compute f(*args)."""
        return self.given("value", self.forms["value"](args), out)

    __call__ = value

    def grad(self, *args: object, out: object = None) -> X:
        """Compute the gradient, as `tapegrad.grad` does."""
        return self.given("grad", self.forms["grad"](args), out)

    def value_and_grad(self, *args: object, out: object = None) -> tuple[Y, X]:
        """Compute (value, gradient); `out` is for the gradient."""
        value, gradient = self.forms["value_and_grad"](args)
        return value, self.given("value_and_grad", gradient, out)

    def jacobian(self, *args: object, out: object = None) -> Any:
        """Compute the Jacobian, as `tapegrad.jacobian` does."""
        return self.given("jacobian", self.forms["jacobian"](args), out)

    def hessian(self, *args: object, out: object = None) -> Any:
        """Compute the Hessian, as `tapegrad.hessian` does."""
        return self.given("hessian", self.forms["hessian"](args), out)

    def jvp(self, x: X, v: X, args: tuple[object, ...] = (), *, out: object = None) -> tuple[Y, Y]:
        """Compute (f(x, *args), J v); `out` is for J v."""
        value, slope = self.product("jvp", x, v, args)
        return value, self.given("jvp", slope, out)

    def vjp(self, x: X, w: Y, args: tuple[object, ...] = (), *, out: object = None) -> tuple[Y, X]:
        """Compute (f(x, *args), J^H w); `out` is for J^H w."""
        value, pulled = self.product("vjp", x, w, args)
        return value, self.given("vjp", pulled, out)

    def hvp(self, x: X, v: X, args: tuple[object, ...] = (), *, out: object = None) -> X:
        """Compute H v, the Hessian of f with respect to x times v."""
        return self.given("hvp", self.product("hvp", x, v, args), out)

    def hmp(self, x: X, V: X, args: tuple[object, ...] = (), *, out: object = None) -> X:
        """Compute H times each direction in V, of shape (k, *x.shape)."""
        return self.given("hmp", self.product("hmp", x, V, args), out)

    def value_grad_hvp(
        self, x: X, v: X, args: tuple[object, ...] = (), *, out: object = None
    ) -> tuple[Y, X, X]:
        """Compute (value, gradient, H v); `out` is for H v."""
        value, gradient, hv = self.product("value_grad_hvp", x, v, args)
        return value, gradient, self.given("value_grad_hvp", hv, out)

    def given(self, method: str, y: Any, out: Any) -> Any:
        return y if out is None else filled_out(f"{self.name}.{method}", y, out)

    def product(self, method: str, x: Any, v: Any, args: tuple) -> Any:
        if self.nums != (0,):
            raise ArgumentError(
                f"{self.name}.{method}: a product is that of argument 0; prepare with argnums=0, not "
                f"{self.argnums!r}"
            )
        return self.forms[method]((x, v, *args))

    def at(self, x: X, *args: object) -> FixedPointProduct:
        """Fix the point x: a product then computes only what depends on its direction (partial evaluation).

        Parameters
        ----------
        x : array, number or tree
            The point.
        *args : object
            Further arguments of f.

        Returns
        -------
        At
            It has the methods ``hvp(v)``, ``jvp(v)``, ``vjp(w)`` and ``hmp(V)``.

        Examples
        --------
        >>> import numpy as np, tapegrad as tg
        >>> here = tg.prepare(lambda x: (x ** 3).sum(), np.ones(2)).at(np.array([1.0, 2.0]))
        >>> [here.hvp(v) for v in np.eye(2)]
        [array([6., 0.]), array([ 0., 12.])]
        """
        return FixedPointProduct(self, x, args)

    def report(self) -> str:
        """Say what is recorded, and how it runs."""
        lines = [f"{self.name}"]
        for method, form in self.forms.items():
            lines += [f"  .{method}: {line}" for line in form.report()]
        return "\n".join(lines if len(lines) > 1 else [*lines, "  nothing is recorded yet"])


@overload
def prepare(
    f: Callable[Concatenate[X, ...], Y],
    x: X,
    /,
    *args: object,
    argnums: Literal[0] = 0,
    on_change: OnChange = "record",
    compile: bool | Literal["auto"] = "auto",
    shadow: bool = True,
    cuda_graph: bool = False,
) -> Prepared[X, Y]: ...
@overload
def prepare(
    f: Callable[..., Y],
    *args: object,
    argnums: int | tuple[int, ...],
    on_change: OnChange = "record",
    compile: bool | Literal["auto"] = "auto",
    shadow: bool = True,
    cuda_graph: bool = False,
) -> Prepared[Any, Y]: ...
def prepare(
    f: Callable,
    *args: Any,
    argnums: Any = 0,
    on_change: str = "record",
    compile: bool | str = "auto",
    shadow: bool = True,
    cuda_graph: bool = False,
) -> Prepared:
    """Record a function and its derivatives once, and replay them at other points.

    Each method records at its first call. Captured arrays are read anew at each call, and written as a plain
    call would. If shapes, dtypes, a branch, an index, or a number, name or attribute that f reads differ from
    those of the recording, the call is recorded again. A function that cannot be recorded, for example
    because it counts its calls, runs plainly; `report()` says why.

    Parameters
    ----------
    f : callable
        The function.
    *args : object
        Arguments like those of the calls to come.
    argnums : int or tuple of int, default 0
        Positions of the arguments to differentiate.
    on_change : {'record', 'raise'}, default 'record'
        What to do with a call that differs from the recordings.
    compile : bool or 'auto', default 'auto'
        Whether work on large arrays is compiled into loops: True at the second replay, False never, 'auto'
        once the replays so far have cost about as much as compiling might. The faster way then stays.
    shadow : bool, default True
        Whether derivatives follow what f captured.
    cuda_graph : bool, default False
        Whether a replay on CuPy that checks no conditions becomes one CUDA graph.

    Returns
    -------
    Prepared
        ``p.value(x, ...)``, ``p.grad``, ``p.value_and_grad``, ``p.jacobian`` and ``p.hessian`` take the
        arguments of f. ``p.jvp(x, v)``, ``p.vjp(x, w)``, ``p.hvp(x, v)``, ``p.hmp(x, V)`` and
        ``p.value_grad_hvp(x, v)`` take further arguments of f in ``args``. Results are new arrays, or written
        to ``out``.

    Raises
    ------
    GuardError
        In a call, with ``on_change='raise'``, if it differs from the recording or cannot be recorded.

    See Also
    --------
    linearize : Products at one point.
    tapegrad.kernels.map : Compiles a function of one sample.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> p = tg.prepare(lambda x: (x ** 3).sum(), np.ones(2))
    >>> p.grad(np.array([1.0, 2.0])), p.hvp(np.array([1.0, 2.0]), np.array([1.0, 0.0]))
    (array([ 3., 12.]), array([6., 0.]))
    """
    check_function("prepare", f)
    argnums = checked_argnums("prepare", argnums)
    if not args:
        raise ArgumentError(
            f"prepare({user_name(f)}): give arguments like those of the calls to come: prepare(f, x)"
        )
    if on_change not in ("record", "raise"):
        raise ArgumentError(f"prepare({user_name(f)}): on_change={on_change!r}; it is 'record' or 'raise'")
    if not (type(compile) is bool or compile == "auto"):
        raise ArgumentError(f"prepare({user_name(f)}): compile={compile!r}; it is True, False or 'auto'")
    return Prepared(f if shadow else Const(f), args, argnums, on_change, compile, cuda_graph)


def _shadowed(shadow, x: Prepared) -> Prepared:
    """Within a transform it is the function whose captured arrays that transform follows."""
    f = shadow(x.of)
    return x if f is x.of else Prepared(f, x.args, x.argnums, x.on_change, x.compile, x.cuda_graph)


SHADOW_MAKERS[Prepared] = _shadowed
