"""The methods of a prepared function: each is a transform of the function and of `argnums`."""

from collections.abc import Callable
from typing import Any

from .._core.scope import scope_block
from .._transforms.arguments import user_name
from .._transforms.call import RecordedCall as Swept
from .._transforms.call import cast_to_primal, leaves_like, run_forward
from .._transforms.gradient import grad, value_and_grad
from .._transforms.hessian_products import hmp, hvp, value_grad_hvp
from .._transforms.jacobian import hessian, jacobian
from .._transforms.products import jmp, vmp


def value_form(f: Callable, argnums: Any) -> Callable:
    return f


def _jvp(f: Callable, argnums: Any) -> Callable:
    return lambda x, v, *args: run_forward(f"jvp({user_name(f)})", f, (x, *args), (0,), (v,))[:2]


def _vjp(f: Callable, argnums: Any) -> Callable:
    def pulled(x, w, *args):
        with scope_block():
            r = Swept(f"vjp({user_name(f)})", f, 0, (x, *args), {})
            ws = leaves_like("vjp", "cotangent", w, r.tree)
            gs = [
                None if s is None or c is None else cast_to_primal("vjp", "cotangent", c, y)
                for c, (y, s) in zip(ws, r.low, strict=True)
            ]
            return r.value(), r.inputs.results(r.gradient(gs))

    return pulled


METHODS: dict[str, Callable] = {
    "value": value_form,
    "grad": grad,
    "value_and_grad": value_and_grad,
    "jacobian": jacobian,
    "hessian": hessian,
    "jvp": _jvp,
    "vjp": _vjp,
    "hvp": lambda f, argnums: lambda x, v, *args: hvp(f, x, v, args),
    "hmp": lambda f, argnums: lambda x, V, *args: hmp(f, x, V, args),
    "jmp": lambda f, argnums: lambda x, V, *args: jmp(f, x, V, args),
    "vmp": lambda f, argnums: lambda x, W, *args: vmp(f, x, W, args),
    "smp": lambda f, argnums: lambda x, V, *args: vmp(grad(f), x, V, args),  # of a Hessian
    "value_grad_hvp": lambda f, argnums: lambda x, v, *args: value_grad_hvp(f, x, v, args),
}


# their second argument is a direction
PRODUCTS = frozenset(("jvp", "vjp", "hvp", "hmp", "jmp", "vmp", "smp", "value_grad_hvp"))
