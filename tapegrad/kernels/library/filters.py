"""The calls of both Kalman filters: named arguments become rows of theta and rows of data, and back.

A constant argument takes rows of theta. An argument with a value for each step takes rows of the data; its
gradient is a gradient with respect to the data. Symmetric arguments are stored as lower triangles. The mode
of an argument is 0 if it is constant, 1 if it belongs to steps and its gradient is wanted, 2 if it only
belongs to steps. Each number of states and pattern of modes has one kernel, made on first use."""

import functools
import math
import threading
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._core.arrays import is_array, xp_of
from ..._core.errors import ArgumentError, KernelError, ShapeError
from ..._core.primitive import is_tracked, layout_of, values_of
from ..._core.scope import lock
from ..._core.trees import Const
from ..._core.variable import Variable
from ...ops import shaping
from ..generated.arguments import as_float
from ..generated.derivatives import derivative_library
from ..generated.kernel import recursion
from . import observation
from .models import Definition, LibraryKernel, ModelRecursion

MOST = {"k": 8, "d": 4}


@dataclass(frozen=True)
class Argument:
    """An argument; `axes` are the axes of one value by names of sizes: 'kk' is a matrix of k rows and
    columns."""

    name: str
    axes: str
    symmetric: bool = False
    varies: bool = False

    def shape(self, sizes: dict) -> tuple:
        return tuple([sizes[a] for a in self.axes])

    def rows(self, sizes: dict) -> int:
        n = sizes[self.axes[0]] if self.axes else 1
        return n * (n + 1) // 2 if self.symmetric else math.prod(self.shape(sizes))


class FilterKernel(ModelRecursion):
    """A recursion with arguments in the data, below the observations."""

    def with_slopes(self, theta, data) -> tuple:
        """Return value, gradient with respect to theta, and gradient of each sample with respect to the data.

        The last, (d, T, B), leaves out the observed rows."""
        if isinstance(theta, Variable) or isinstance(data, Variable):
            of, run = self._family, self._recorded
            by_theta, by_data = [of.gradient(kind, run, theta, data, (), (), None) for kind in "RD"]
            return of.F(run, theta, data), by_theta, by_data[of.observed :]
        return self._run("VGD", (0, 0), (theta, data))

    def product(self, theta, data, v, way) -> list:
        """Return the Hessian of each sample times (v, way), directions of theta and of the data.

        The result has a part for theta and one for the data below the observed rows."""
        of, run = self._family, self._recorded
        moved = ((v,), ()), ((), (way,))
        by_theta, by_data = [
            sum([of.gradient(kind, run, theta, data, vs, ys, None) for vs, ys in moved]) for kind in "RD"
        ]
        return [by_theta, by_data[of.observed :]]


# --- the model in plain Python, from which kernels are generated ---


def kalman_start(model: tuple) -> tuple:
    *_, m0, P0 = model
    return m0, np.where(np.min(np.diag(P0)) >= 0, P0, np.nan)


def kalman_step(carry: tuple[Any, Any], model: tuple, y) -> tuple:
    """Return mean and covariance of the next state, and the log density of y given the data before it.

    The observation is a number with an error of variance R, or a vector with errors of covariance R."""
    A, C, Q, R, _, _ = model
    single = R.ndim == 0
    if single:
        C, R, y = C.reshape((1, -1)), R.reshape(1), y.reshape(1)
    here = ~np.isnan(y)
    valid = np.minimum(np.min(np.diag(Q)), np.min(R if single else np.diag(R))) >= 0
    after, density = observation.observation_step(*carry, A, Q, C, R, np.where(here, y, 0.0), here, single)
    return after, np.where(valid, density, np.nan)


# --- kernels ---


class Filter(LibraryKernel):
    """loglik(model, y); the modules `kalman` and `kalman_vector` have one each.

    `kind` is the named tuple of the arguments; `observed` and `errors` are axes of two of them."""

    def __init__(self, name: str, kind, observed: str, errors: str, invalid: str = "reject"):
        if invalid not in ("reject", "nan"):
            raise ArgumentError(f"invalid={invalid!r}: 'reject' (value -inf, gradient 0) or 'nan'")
        self.__name__, self.kind, self._axes, self._invalid = name, kind, (observed, errors), invalid
        axes = ("kk", observed, "kk", errors, "k", "kk")
        self.arguments = tuple(
            [
                Argument(field, a, symmetric=n > 1 and len(a) == 2, varies=n < 4)
                for n, (field, a) in enumerate(zip(kind._fields, axes, strict=True))
            ]
        )
        self._kernels = {}
        self._lock = lock()
        # `last`: a weak reference to the last observations, and these with one more axis
        self._seen = threading.local()

    def __repr__(self) -> str:
        return f"<kernel {self.__name__}.loglik>"

    def options(self, *, invalid: str = "reject") -> "Filter":
        """This kernel with `invalid='nan'`: a sample with parameters that are not valid has value and
        derivatives nan."""
        return self._with(type(self)(self.__name__, self.kind, *self._axes, invalid), invalid=invalid)

    # --- calls ---

    def __call__(self, model, y, out=None):
        """The log-likelihood of each sample, (B,); a number if no argument has an axis of samples.  `out`: an
        array to fill.

        What is tracked, y too, is differentiated."""
        call = self._packed(model, y, False)
        value = self.kernel(call)(call.theta, call.data)
        return self._filled(out, value[0] if call.single else value, "out")

    def value_and_grad(self, model, y, out=None) -> tuple:
        """(B,) and the gradients of each sample, (..., B), in one launch; None for what is Const.  `out`:
        such a pair to fill."""
        call = self._packed(model, y, True)
        kernel, slopes = self.kernel(call), None
        if 1 in call.modes:
            value, gradient, slopes = kernel.with_slopes(call.theta, call.data)
        else:
            value, gradient = kernel.value_and_grad(call.theta, call.data)
        value, gradient = value[0] if call.single else value, self._restored(call, gradient, slopes)
        if out is not None:
            if not isinstance(out, (tuple, list)) or len(out) != 2 or len(out[1]) != len(gradient):
                raise ArgumentError(
                    f"{self.__name__}: out= needs an array and {type(gradient).__name__}(..) of arrays, "
                    f"None for Const"
                )
            value = self._filled(out[0], value, "out[0]")
            names = [f"out[1].{a.name}" for a in self.arguments]
            gradient = type(gradient)(
                *[self._filled(*part) for part in zip(out[1], gradient, names, strict=True)]
            )
        return value, gradient

    def grad(self, model, y):
        """The gradients of each sample, as `value_and_grad` gives them."""
        return self.value_and_grad(model, y)[1]

    def hvp(self, model, v, y):
        """The Hessian of each sample times v, which is like the model, with None for zeros."""
        call = self._packed(model, y, True)
        given = [values_of(as_float(_value(x), self.__name__)) for x in model]
        zeros = [xp_of(x).zeros_like(x) for x in given]
        vs = [
            Const(o) if isinstance(x, Const) else o if d is None else d
            for x, d, o in zip(model, v, zeros, strict=True)
        ]
        other = self._packed(type(model)(*vs), y, True, call.batch)
        if other.sizes != call.sizes or other.theta.shape != call.theta.shape:
            raise ShapeError(f"{self.__name__}.hvp: v must have the shapes of the model")
        if 1 not in call.modes:
            return self._restored(call, self.kernel(call).hvp(call.theta, other.theta, call.data))
        way = other.data.copy()
        way[: self._count(call.sizes)] = 0.0
        return self._restored(call, *self.kernel(call).product(call.theta, call.data, other.theta, way))

    # the following come from the kernel generated from `start` and `step`

    def hessian(self, model, y):
        """A Model of Models: hessian(model, y).A.c is (k, k, k, B), the second derivatives by A and by c;
        None for what is Const."""
        call = self._packed_constant("hessian", model, y)
        return self._nested(call, self.kernel(call).hessian(call.theta, call.data))

    def contributions(self, model, y):
        """The log density of each datum given those before it, (T, B)."""
        call = self._packed(model, y, False)
        each = self.kernel(call).contributions(call.theta, call.data)
        return each[:, 0] if call.single else each

    def scores(self, model, y):
        """The gradient of each datum's contribution: a Model of (T, ..., B); None for what is Const."""
        call = self._packed_constant("scores", model, y)
        s = self.kernel(call).scores(call.theta, call.data).swapaxes(0, 1)  # (p, T, B)
        parts = [
            None if x is None else x.transpose((x.ndim - 2, *range(x.ndim - 2), x.ndim - 1))
            for x in self._expanded(call, s)
        ]
        return self.kind(*[x[..., 0] if call.single and x is not None else x for x in parts])

    def fisher(self, model, y):
        """The sum over data of the outer product of the scores, in the form of `hessian`."""
        call = self._packed_constant("fisher", model, y)
        return self._nested(call, self.kernel(call).fisher(call.theta, call.data))

    def final(self, model, y) -> tuple:
        """Mean (k, B) and covariance (k, k, B) of the state one step after the last observation."""
        call = self._packed(model, y, False)
        m, P = self.kernel(call).final(call.theta, call.data)
        return (m[..., 0], P[..., 0]) if call.single else (m, P)

    # --- kernels ---

    def kernel(self, call: "PackedCall") -> FilterKernel:
        """Return the kernel for such a call; its modes are 0 and 2."""
        modes = tuple([2 if mode else 0 for mode in call.modes])
        key = modes, tuple(call.sizes.items())
        with self._lock:
            if key not in self._kernels:
                self._kernels[key] = self._kernel_for(modes, dict(call.sizes))
            return self._kernels[key]

    def _kernel_for(self, modes: tuple, sizes: dict) -> FilterKernel:
        init, step = self.formula(sizes, modes)
        definition = Definition(
            name=self.__name__,
            key=f"{sizes} {modes}",
            observed=self._count(sizes),
            formula=recursion(init, step, missing="step", invalid=self._invalid),
            fits=lambda p, d: True,
            wants="as packed",
        )
        return FilterKernel(definition, self._invalid)

    def formula(self, sizes: dict, modes: tuple) -> tuple:
        """Return init and step for `recursion`; theta and the data hold rows of the arguments, as in
        `_packed`."""
        kind, arguments = self.kind, self.arguments

        def model(theta, datum):
            parts, row, line = [], 0, self._count(sizes)
            for a, mode in zip(arguments, modes, strict=True):
                n = a.rows(sizes)
                x = datum[line : line + n] if mode else theta[row : row + n]
                row, line = (row, line + n) if mode else (row + n, line)
                parts.append(x[_symmetric(sizes[a.axes[0]])[0]] if a.symmetric else x)
            return kind(*[x.reshape(a.shape(sizes)) for a, x in zip(arguments, parts, strict=True)])

        def observed(datum):
            return datum[: sizes["d"]] if "d" in sizes else datum[0]

        def none(theta):  # arguments of each step are absent, and unused, at the start
            return np.zeros(sum([a.rows(sizes) for a in arguments]) + 1)

        return lambda theta: kalman_start(model(theta, none(theta))), lambda carry, theta, datum: kalman_step(
            carry, model(theta, datum), observed(datum)
        )

    # --- arguments ---

    def _packed(self, model, y, gradients: bool, batch: int | None = None) -> "PackedCall":
        """Pack a call; `gradients`: of everything that is not Const, otherwise of what is tracked."""
        name, kind, arguments = self.__name__, self.kind, self.arguments
        if not isinstance(model, (tuple, list)) or len(model) != len(arguments):
            raise ArgumentError(
                f"{name}: the model is {kind.__name__}({', '.join([a.name for a in arguments])}), got "
                f"{type(model).__name__}"
            )
        const = tuple([isinstance(x, Const) for x in model])
        values = [as_float(_value(x), f"{name}: {a.name}") for a, x in zip(arguments, model, strict=True)]
        y = as_float(y, f"{name}: y")
        sizes = self._sizes(values, y)
        base = len(self._observed(sizes))
        if y.ndim not in (base + 1, base + 2) or y.shape[:base] != self._observed(sizes):
            raise ShapeError(f"{name}: y has shape {y.shape}; wanted is {self._wanted_y(sizes)}")
        steps = y.shape[base]
        kinds = [self._kind(a, v, sizes, steps) for a, v in zip(arguments, values, strict=True)]
        samples = {v.shape[-1] for v, kind in zip(values, kinds, strict=True) if kind} | set(
            y.shape[base + 1 :]
        )
        if len(samples - {1}) > 1:
            raise ShapeError(
                f"{name}: the last axis is the sample, and the arguments have {sorted(samples - {1})} samples"
            )
        single = not samples
        batch = batch or max(samples - {1}, default=1) if 0 not in samples else 0
        xp = derivative_library(*[layout_of(v) for v in values], layout_of(y))
        values = [v if isinstance(v, Variable) or xp_of(v) is xp else xp.asarray(v) for v in values]
        wanted = [not c and (gradients or is_tracked(v)) for c, v in zip(const, values, strict=True)]
        modes = tuple([(1 if w else 2) if kind == 2 else 0 for kind, w in zip(kinds, wanted, strict=True)])
        dtype = np.result_type(*[layout_of(v).dtype for v in values])
        given = list(zip(arguments, values, kinds, modes, strict=True))
        theta = [_rows(a, v, kind, sizes) for a, v, kind, mode in given if not mode]
        theta = shaping.concatenate(
            *[x if x.shape[1] == batch else shaping.broadcast_to(x, (x.shape[0], batch)) for x in theta]
        )
        theta = theta if layout_of(theta).dtype == dtype else theta.astype(dtype)
        for a, v, _, mode in given:
            if mode == 2 and not bool(xp.isfinite(v).all()):
                raise ArgumentError(
                    f"{name}: {a.name} holds " + ("nan; only y may" if bool(xp.isnan(v).any()) else "inf")
                )
        stepped = [(a, v) for a, v, _, mode in given if mode]
        data = self._observations(y, base)
        if stepped:
            # the gradient of each sample, even where samples share an argument
            each = gradients and 1 in modes
            data = _lines(data, stepped, sizes, batch if each else None, dtype)
        return PackedCall(theta, data, modes, sizes, single, const, steps, batch)

    def _observations(self, y, base: int):
        """Return y with an axis of components; equal objects for equal ones, so device data are checked
        once."""
        if base:
            return y
        if isinstance(y, Variable):
            return y.reshape((1, *y.shape))
        known = getattr(self._seen, "last", None)
        if known is None or known[0]() is not y:
            known = self._seen.last = weakref.ref(y), y[None]
        return known[1]

    def _sizes(self, values: list, y) -> dict:
        """Return the sizes from the first arguments: k, and d if several numbers are observed."""
        name, arguments = self.__name__, self.arguments
        sizes = {}
        for a, v in zip(arguments[:2], values[:2], strict=True):
            if v.ndim < len(a.axes):
                raise ShapeError(
                    f"{name}: {a.name} has shape {tuple(v.shape)}; wanted is ({', '.join(a.axes)}), (.., B) "
                    f"or (T, .., B)"
                )
            start = 1 if v.ndim == len(a.axes) + 2 else 0
            for axis, n in zip(a.axes, v.shape[start:], strict=False):
                sizes.setdefault(axis, int(n))
        for size, most in MOST.items():
            if size in sizes and not 1 <= sizes[size] <= most:
                raise ShapeError(f"{name}: {size} = {sizes[size]}; the kernel is made for 1 to {most}")
        return sizes

    def _observed(self, sizes: dict) -> tuple:
        return (sizes["d"],) if "d" in sizes else ()

    def _count(self, sizes: dict) -> int:
        return sizes.get("d", 1)

    def _wanted_y(self, sizes: dict) -> str:
        d = "".join([f"{n}, " for n in self._observed(sizes)])
        return f"({d}T) or ({d}T, B)"

    def _kind(self, a: Argument, v, sizes: dict, steps: int) -> int:
        """Return 0 for one value, 1 for a value of each sample, 2 for a value of each step and sample."""
        shape, want = tuple(v.shape), a.shape(sizes)
        if shape == want:
            return 0
        if shape[:-1] == want:
            return 1
        if a.varies and shape[:-1] == (steps, *want):
            return 2
        listed = ", ".join([str(n) for n in want])
        more = f", or ({steps}, {listed}{', ' if want else ''}B or 1)" if a.varies else ""
        raise ShapeError(
            f"{self.__name__}: {a.name} has shape {shape}; wanted is ({listed}), "
            f"({listed}{', ' if want else ''}B){more}"
        )

    def _restored(self, call: "PackedCall", gradient, slopes=None):
        """Return rows of gradients, also by arguments of each step, as the model's arguments.

        Their shapes are (..., B) or (T, ..., B)."""
        parts = self._expanded(call, gradient, slopes)
        return self.kind(*[x[..., 0] if call.single and x is not None else x for x in parts])

    def _expanded(self, call: "PackedCall", gradient, slopes=None) -> list:
        """Expand rows to (shape of an argument, ...), or (T, shape, ...), for each argument; None for a
        Const."""
        row, line = 0, 0
        parts = []
        for a, mode, const in zip(self.arguments, call.modes, call.const, strict=True):
            n, shape = a.rows(call.sizes), a.shape(call.sizes)
            if mode:
                x, line = slopes[line : line + n] if mode == 1 else None, line + n
            else:
                x, row = gradient[row : row + n], row + n
            if const or x is None:
                parts.append(None)
                continue
            rest = tuple(x.shape[1:])
            if a.symmetric:
                full, share = _symmetric(shape[0])
                share = share[full].reshape((-1, *[1] * len(rest)))
                x = x[full]
                x *= xp_of(layout_of(x)).asarray(share, layout_of(x).dtype)
            x = x.reshape((*shape, *rest))
            parts.append(x if not mode else x.transpose((len(shape), *range(len(shape)), len(shape) + 1)))
        return parts

    def _nested(self, call: "PackedCall", H):
        """Return matrices (B, p, p) of rows as a Model of Models."""
        kind = self.kind
        made: list = []
        for x, a in zip(self._expanded(call, H.transpose((1, 2, 0))), self.arguments, strict=True):
            if x is None:
                made.append(None)
                continue
            shape = a.shape(call.sizes)
            x = x.reshape((math.prod(shape), *x.shape[len(shape) :])).swapaxes(0, 1)  # (p, elements of a, B)
            parts = [None if z is None else self._turned(z, shape, call) for z in self._expanded(call, x)]
            made.append(kind(*parts))
        return kind(*made)

    def _turned(self, z, shape: tuple, call: "PackedCall"):
        """Transpose (shape of b, elements of a, B) to (shape of a, shape of b, B)."""
        z = z.transpose((z.ndim - 2, *range(z.ndim - 2), z.ndim - 1))
        z = z.reshape((*shape, *z.shape[1:]))
        return z[..., 0] if call.single else z

    def _packed_constant(self, what: str, model, y) -> "PackedCall":
        """Pack a call for derivatives that need arguments without a value for each step."""
        call = self._packed(model, y, True)
        for a, mode in zip(self.arguments, call.modes, strict=True):
            if mode == 1:
                raise KernelError(
                    f"{self.__name__}.{what}: {a.name} has a value for each step; pass Const({a.name}), or "
                    f"take hvp"
                )
        return call

    def _filled(self, out, x, what: str):
        """Return x, or `out` filled with it."""
        if out is None or x is None:
            return x
        if isinstance(x, Variable):
            raise ArgumentError(f"{self.__name__}: {what}= is for plain arrays, and an argument is tracked")
        shape, dtype = np.shape(x), x.dtype
        if (
            not is_array(out)
            or out.shape != shape
            or out.dtype != dtype
            or not getattr(out.flags, "writeable", True)
        ):
            raise ShapeError(f"{self.__name__}: {what} must be a writable {dtype} array of shape {shape}")
        out[...] = x
        return out


@dataclass
class PackedCall:
    """A call in the form of a generated kernel."""

    theta: Any
    data: Any
    modes: tuple
    sizes: dict
    single: bool
    const: tuple
    steps: int
    batch: int


def _value(x):
    return x.value if isinstance(x, Const) else x


@functools.cache
def _triangle(k: int) -> tuple:
    return np.tril_indices(k)


@functools.cache
def _symmetric(k: int) -> tuple:
    """Return the row of each matrix element in the lower triangle, and each element's share of a
    derivative."""
    i, j = np.indices((k, k))
    i, j = np.maximum(i, j).ravel(), np.minimum(i, j).ravel()
    return i * (i + 1) // 2 + j, np.where(np.equal(*_triangle(k)), 1.0, 0.5)


def _rows(a: Argument, v, kind: int, sizes: dict):
    """Return the rows of an argument, (rows, B or 1)."""
    if kind == 0:
        v = v.reshape(tuple(v.shape) + (1,))
    if a.symmetric:
        i, j = _triangle(sizes[a.axes[0]])
        v, other = v[..., i, j, :], v[..., j, i, :]
        v += other
        v *= 0.5
    return v.reshape((a.rows(sizes), v.shape[-1]))


def _lines(y, stepped: list, sizes: dict, batch: int | None, dtype: np.dtype):
    """Return the observations, followed by arguments of each step, as data: (d, T) or (d, T, B).

    `batch` forces that many samples."""
    pieces: list = [(y if y.ndim == 3 else y[..., None],)]
    for a, v in stepped:
        if a.symmetric:
            pieces += [
                (v[:, i, : i + 1].swapaxes(0, 1), v[:, : i + 1, i].swapaxes(0, 1))
                for i in range(sizes[a.axes[0]])
            ]
        else:
            pieces.append((v.reshape((v.shape[0], a.rows(sizes), v.shape[-1])).swapaxes(0, 1),))
    samples = batch or max([x.shape[2] for x, *_ in pieces])
    if any([isinstance(x, Variable) for x, *_ in pieces]):
        pieces = [x if not other else 0.5 * (x + other[0]) for x, *other in pieces]
        pieces = [x if layout_of(x).dtype == dtype else x.astype(dtype) for x in pieces]
        made = shaping.concatenate(*[shaping.broadcast_to(x, (*x.shape[:2], samples)) for x in pieces])
    else:
        made, at = (
            xp_of(y).empty((sum([len(x) for x, *_ in pieces]), pieces[0][0].shape[1], samples), dtype),
            0,
        )
        for x, *other in pieces:
            rows = made[at : at + len(x)]
            at += len(x)
            rows[...] = x
            if other:
                rows += other[0]
                rows *= 0.5
    return made if batch or samples > 1 else made[..., 0]
