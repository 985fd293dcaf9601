"""Functions across libraries: of tapegrad in PyTorch, JAX and PyTensor, and of PyTorch and JAX in tapegrad.

Each converter returns a function that the other library differentiates, to any order. The library in which a
function is written computes its derivatives. Arrays are handed over without a copy where the other library
allows it. A library is imported by the first converter that needs it.
"""

from collections.abc import Callable
from typing import Any

from .._core.registry import load

__all__ = ["from_jax", "from_torch", "to_jax", "to_pytensor", "to_torch"]


def _converted(library: str, name: str, f: Callable, *settings: Any) -> Callable:
    """What the converter in the module that imports another library returns."""
    of_library: Callable = getattr(load(f"tapegrad.interop.{library}"), name)(f, *settings)
    return of_library


def to_torch(f: Callable) -> Callable:
    """Return a function of tensors that PyTorch differentiates.

    Parameters
    ----------
    f : callable
        A function of NumPy or CuPy arrays. It returns an array, a number or a tree of these.

    Returns
    -------
    callable
        Takes tensors, or trees of them, where f takes arrays. Other arguments reach f as they are.
        `backward`, double backward, `torch.func.grad`, `jvp`, `vmap` and `hessian` work, to any order.
        A tensor on a GPU reaches f as a CuPy array.

    Raises
    ------
    ArgumentError
        For a tensor of a dtype that NumPy lacks.

    See Also
    --------
    from_torch : The other direction.

    Notes
    -----
    f runs once for a value and its first derivatives by `backward`. Each further order runs it again.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg, torch
    >>> f = tg.interop.to_torch(lambda x: np.sum(np.sin(x)))
    >>> x = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    >>> f(x).backward()
    >>> x.grad
    tensor([1., 1., 1.], dtype=torch.float64)
    """
    return _converted("pytorch", "to_torch", f)


def from_torch(f: Callable) -> Callable:
    """Return a function of arrays that tapegrad differentiates.

    Parameters
    ----------
    f : callable
        A function of tensors. It returns a tensor or a tree of tensors.

    Returns
    -------
    callable
        Takes NumPy or CuPy arrays and numbers. Other arguments reach f as they are. Reverse and forward mode
        work, to the order that PyTorch knows for the operations of f. Under `tg.vmap` f runs for each sample.

    See Also
    --------
    to_torch : The other direction.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg, torch
    >>> f = tg.interop.from_torch(lambda x: torch.sin(x).sum())
    >>> tg.grad(f)(np.zeros(3))
    array([1., 1., 1.])
    """
    return _converted("pytorch", "from_torch", f)


def to_jax(f: Callable, out: Any = None) -> Callable:
    """Return a function that JAX differentiates, compiles and batches.

    Parameters
    ----------
    f : callable
        A function of NumPy arrays. It returns an array, a number or a tree of these, and has no side
        effects.
    out : tree, optional
        The structure of the result: arrays or `jax.ShapeDtypeStruct`. Without it, the first call with
        arguments of new shapes runs f once more, at random numbers between 0 and 1, to find out.

    Returns
    -------
    callable
        Takes JAX arrays, or trees of them. Other arguments reach f as they are. `jax.grad`, `jvp`, `jit`,
        `vmap`, `hessian` and their compositions work, to any order. f runs on the host. Results have the
        dtypes that JAX allows: float32, if `jax_enable_x64` is off.

    Raises
    ------
    ShapeError
        If the shape of a result depends on values.

    See Also
    --------
    from_jax : The other direction.

    Examples
    --------
    >>> import jax, numpy as np, tapegrad as tg
    >>> f = tg.interop.to_jax(lambda x: np.sum(np.sin(x)))
    >>> [float(v) for v in jax.jit(jax.grad(f))(jax.numpy.zeros(3))]
    [1.0, 1.0, 1.0]
    """
    return _converted("jax", "to_jax", f, out)


def from_jax(f: Callable) -> Callable:
    """Return a function of arrays that tapegrad differentiates.

    Parameters
    ----------
    f : callable
        A function of JAX arrays. It returns an array or a tree of arrays.

    Returns
    -------
    callable
        Takes NumPy arrays and numbers. Other arguments reach f as they are. Reverse and forward mode work, to
        the order that JAX knows for the operations of f. Under `tg.vmap` f runs for each sample.

    Raises
    ------
    ArgumentError
        In a call with float64 or complex128, if `jax_enable_x64` is off: JAX would round it to float32.

    See Also
    --------
    to_jax : The other direction.

    Examples
    --------
    >>> import jax, numpy as np, tapegrad as tg
    >>> f = tg.interop.from_jax(lambda x: jax.numpy.sin(x).sum())
    >>> tg.grad(f)(np.zeros(3, np.float32))
    array([1., 1., 1.], dtype=float32)
    """
    return _converted("jax", "from_jax", f)


def to_pytensor(f: Callable, out: Any = 0.0) -> Callable:
    """Return a function of PyTensor variables that PyTensor differentiates.

    Parameters
    ----------
    f : callable
        A function of NumPy arrays. It returns an array, a number or a tree of these.
    out : tree, optional
        An example of the result: its structure, dtypes and numbers of dimensions count. Default: one real
        number, as a log-likelihood is.

    Returns
    -------
    callable
        Takes tensor variables, or trees of them. Other arguments reach f as they are. Reverse and forward
        mode work, to any order.

    Raises
    ------
    ShapeError
        When a graph runs, if a result has another number of dimensions than `out` says.

    See Also
    --------
    to_jax : The same for JAX.

    Examples
    --------
    >>> import numpy as np, pytensor, tapegrad as tg
    >>> x = pytensor.tensor.dvector()
    >>> y = tg.interop.to_pytensor(lambda x: np.sum(np.sin(x)))(x)
    >>> pytensor.function([x], pytensor.grad(y, x), mode="FAST_COMPILE")(np.zeros(3))
    array([1., 1., 1.])
    """
    return _converted("pytensor", "to_pytensor", f, out)
