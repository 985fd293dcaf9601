"""The methods of a prepared function: each is a transform of the function and of `argnums`."""

from collections.abc import Callable

from .._transforms.gradient import grad, value_and_grad
from .._transforms.hessian_products import hmp, hvp, value_grad_hvp
from .._transforms.jacobian import hessian, jacobian
from .._transforms.products import jmp, jvp, vjp, vmp


def value_form(f: Callable, argnums) -> Callable:
    return f


def _jvp(f: Callable, argnums) -> Callable:
    return lambda x, v, *args: jvp(f, (x, *args), (v,), 0)


def _vjp(f: Callable, argnums) -> Callable:
    def pulled(x, w, *args):
        y, pullback = vjp(f, x, *args, argnums=0)
        return y, pullback(w)

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
