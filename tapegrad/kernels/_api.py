"""likelihood, recursion, map: a Python function of one sample becomes a kernel for many, with all derivatives.

    k = tg.kernels.likelihood(loglik)       # loglik(theta, datum) -> a number
    k(theta, data)                          # theta (p, B), data (d, N) or (N,): (B,)
    k.value_and_grad(theta, data)           # (B,), (p, B)

The function is traced once; its plain NumPy code may use np.log, @, np.linalg, np.where, indexing and writing into small arrays
that it makes.  What it captures (numbers, arrays) is constant, as it is at the first call."""

import importlib
import math
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from .._array import is_array, xp_of
from .._primitive import is_tracked, live, plain
from .._tape import Tape
from .._tree import Const, is_node, leaves, tree_map
from .._variable import Variable
from ..errors import ArgumentError, KernelError, ShapeError
from ..ops import shaping
from ._cpu import Launcher, address
from ._family import Family, library
from ._lower import Lowered, lowered
from ._trace import trace_likelihood, trace_map, trace_recursion

FLOATS = (np.dtype(np.float64), np.dtype(np.float32))


def name_of(f: Any) -> str:
    return getattr(f, "__name__", type(f).__name__)


def as_float(x: Any, what: str) -> Any:
    """A Variable or array of float64 or float32; lists and numbers are converted."""
    if type(x) is np.ndarray and x.dtype in FLOATS:
        return x
    if isinstance(x, Const):
        x = x.value
    if isinstance(x, Variable):
        if is_tracked(x):
            return x
        x = plain(x)
    if not is_array(x):
        x = np.asarray(x)
    if x.dtype in FLOATS:
        return x
    if x.dtype.kind in "biu":
        return x.astype(np.float64)
    raise ArgumentError(f"{what} has dtype {x.dtype}; a kernel computes in float64 or float32")


def contiguous(x: Any, dtype: np.dtype) -> Any:
    return x if x.dtype == dtype and x.flags.c_contiguous else xp_of(x).ascontiguousarray(x, dtype=dtype)


def launcher_of(*arrays: Any) -> type:
    """The class that launches on these arrays.  CuPy is imported by whoever has CuPy arrays."""
    return Launcher if library(*arrays) is np else importlib.import_module("tapegrad.kernels._cuda").CudaLauncher


def again(theta: np.ndarray, data: np.ndarray, dtype: np.dtype, fire: Callable, rest: list) -> tuple:
    """Value and gradient by a launch like the last one."""
    g = np.empty(theta.shape, dtype)
    v = np.empty(rest[1], dtype)
    fire(address(theta), address(data), address(v), address(g), *rest[:-1])
    return (v, g) if theta.ndim == 2 else (v[0], g)


class Generated:
    """What likelihood and recursion kernels share.  Make one by `tapegrad.kernels.likelihood` or `.recursion`."""

    def __init__(self, f: Callable, trace: Callable, missing: Any, invalid: str, build: Callable | None = None):
        if invalid not in ("reject", "nan"):
            raise ArgumentError(f"invalid={invalid!r}: 'reject' (value -inf, gradient 0) or 'nan'")
        self.__name__, self.missing = name_of(f), missing
        self.__doc__ = getattr(f, "__doc__", None)
        self._plan = threading.local()  # `plan`: how the last call of value_and_grad was launched
        self._clean: dict = {}
        self._last: tuple = (None, None)  # the launcher of the last call
        self._parts = f, trace, missing, invalid
        self._trees: dict = {}
        self._family = Family(self.__name__, lambda signature: trace(signature, build), True, invalid == "reject")

    def __repr__(self) -> str:
        return f"<{type(self).__name__.lower()} kernel of {self.__name__}>"

    # --- calls ---

    def __call__(self, theta: Any, data: Any, out: Any = None) -> Any:
        """The value for each sample, (B,); theta (p, B), data (N,), (d, N) or (d, N, B).  theta (p,) gives one number.

        theta may be a dict, named tuple or dataclass of arrays (..., B): the function then gets such a tree for one sample."""
        if is_tree(theta):
            kernel, rows, _ = self._of_tree(theta)
            return kernel(rows, data, out)
        theta, data, single = self._arguments(theta, data)
        if isinstance(theta, Variable):
            fused = type(live(theta)._trace) is Tape
            v = self._family.apply("VG", 0, (theta, data), self._run)[0] if fused else self._family.F(self._run, theta, data, ())
        else:
            v = self._run("F", 0, (theta, data), _outs(out))
        return v[0] if single else v

    def value_and_grad(self, theta: Any, data: Any, out: Any = None) -> tuple:
        """(B,) and (p, B), in one launch; `out`: a pair of arrays to fill.  The gradient of a tree is such a tree."""
        if is_tree(theta):
            kernel, rows, restore = self._of_tree(theta)
            value, gradient = kernel.value_and_grad(rows, data)
            return value, restore(gradient)
        plan = self._plan.__dict__.get("plan")
        if plan is not None and out is None and type(theta) is np.ndarray is type(data):
            shape, data_shape, dtype, fire, *rest = plan
            if theta.shape == shape and data.shape == data_shape and theta.dtype is dtype is data.dtype:
                if theta.flags.c_contiguous and data.flags.c_contiguous and not self._is_missing(data):
                    return again(theta, data, dtype, fire, rest)
        theta, data, single = self._arguments(theta, data)
        if isinstance(theta, Variable):
            v, g = self._family.apply("VG", 0, (theta, data), self._run)
        else:
            v, g = self._run("VG", 0, (theta, data), _outs(out))
            if type(theta) is np.ndarray is type(data):
                self._remember(theta, data, single)
        return (v[0], g[:, 0]) if single else (v, g)

    def _remember(self, theta: np.ndarray, data: np.ndarray, single: bool) -> None:
        """Keep what the next call on arrays like these needs, for this thread."""
        self._plan.plan = None
        key, launcher = self._last
        if key is None or key[0] != "VG" or key[4] or data.ndim == 3 or not theta.size or theta.dtype is not data.dtype:
            return
        fire = launcher.repeatable(data, data.shape[-1], theta.shape[1])
        if fire is not None:
            self._plan.plan = (theta.shape[:1] if single else theta.shape, data.shape, theta.dtype, *fire, launcher)

    def grad(self, theta: Any, data: Any) -> Any:
        """(p, B)."""
        return self.value_and_grad(theta, data)[1]

    def hvp(self, theta: Any, v: Any, data: Any) -> Any:
        """The Hessian of each sample times v[:, sample], (p, B)."""
        theta, data, single = self._arguments(theta, data)
        v = as_float(v, f"{self.__name__}.hvp: v")
        if single:
            v = v.reshape(-1, 1)
        if tuple(v.shape) != tuple(theta.shape):
            raise ShapeError(f"{self.__name__}.hvp: v has shape {tuple(v.shape)}, theta {tuple(theta.shape)}")
        h = self._family.R(self._run, theta, data, (v,), None)
        return h[:, 0] if single else h

    def hessian(self, theta: Any, data: Any) -> Any:
        """(B, p, p): one Hessian-vector product for each parameter, all in one launch."""
        theta, data, single = self._arguments(theta, data)
        if isinstance(theta, Variable):
            raise ArgumentError(f"{self.__name__}.hessian of a tracked value: use hvp, or nest transforms around the kernel")
        xp = xp_of(theta)
        p, batch = theta.shape
        many = xp.ascontiguousarray(xp.broadcast_to(theta[:, None, :], (p, p, batch)).reshape(p, p * batch))
        units = xp.ascontiguousarray(xp.broadcast_to(xp.eye(p, dtype=theta.dtype)[:, :, None], (p, p, batch)).reshape(p, p * batch))
        if data.ndim == 3:
            data = xp.tile(data, (1, 1, p))
        h = self._run("R", 1, (many, data, units)).reshape(p, p, batch).transpose(2, 0, 1)
        h = 0.5 * (h + h.transpose(0, 2, 1)) + 0.0  # no -0
        return h[0] if single else h

    def lowered(self, theta_rows: int, data_rows: int, kind: str = "VG", order: int = 0, missing: bool = False) -> Lowered:
        """The program of one kernel, for `emit_cuda` and for those who want to read it; kind: 'F', 'R' or 'VG'."""
        with self._family.lock:
            return lowered(self._family.derived(kind, order, (theta_rows, data_rows, missing)))

    # --- arguments ---

    def _of_tree(self, theta: Any) -> tuple:
        """The kernel for rows in place of this tree, the rows (p, B), and the function from rows to such a tree."""
        arrays = [as_float(x, f"{self.__name__}: theta") for x in leaves(theta)]
        batch = _batch(self.__name__, arrays)
        shapes = [tuple(a.shape[:-1]) if a.ndim else () for a in arrays]
        cuts = np.cumsum([0] + [math.prod(s) for s in shapes])

        def restore(rows):
            place = iter(range(len(shapes)))

            def part(_):
                k = next(place)
                return rows[cuts[k] : cuts[k + 1]].reshape(shapes[k] + tuple(rows.shape[1:]))

            return tree_map(part, theta)

        numbers = iter(shapes)
        key = repr(tree_map(lambda _: next(numbers), theta))
        kernel = self._trees.get(key)
        if kernel is None:
            kernel = self._trees[key] = type(self)(*self._parts, restore)
        dtype = np.result_type(*[plain(a).dtype for a in arrays])
        return kernel, _rows(arrays, batch, dtype), restore

    def _arguments(self, theta: Any, data: Any) -> tuple:
        if (
            type(theta) is np.ndarray is type(data)
            and theta.ndim == 2
            and 0 < data.ndim < 3
            and theta.dtype in FLOATS
            and data.dtype in FLOATS
        ):
            return theta, data, False  # the usual case in one line
        theta, data = as_float(theta, f"{self.__name__}: theta"), as_float(data, f"{self.__name__}: data")
        if isinstance(data, Variable):
            raise ArgumentError(
                f"{self.__name__}: a generated kernel has no derivative by its data, and these are tracked; pass tg.value(data)"
            )
        single = theta.ndim == 1
        if single:
            theta = theta.reshape(-1, 1)
        if theta.ndim != 2 or data.ndim not in (1, 2, 3):
            raise ShapeError(
                f"{self.__name__}: theta has shape {tuple(theta.shape)} and data {tuple(data.shape)}; "
                "wanted are (p, B) and (N,), (d, N) or (d, N, B)"
            )
        if data.ndim == 3 and data.shape[2] != theta.shape[1]:
            raise ShapeError(f"{self.__name__}: theta {tuple(theta.shape)} has {theta.shape[1]} samples, the data have {data.shape[2]}")
        return theta, data, single

    def _is_missing(self, data: Any) -> bool:
        """Do the data hold nan?  Infinite data are an error."""
        xp = xp_of(data)
        if xp is not np:
            return self._is_missing_on_device(xp, data)
        known = None if data.base is not None else self._clean.get(id(data))
        if known is not None and known() is data and not data.flags.writeable:
            return False  # read-only data are looked at once
        flat = data if data.ndim == 1 else data.ravel()
        with np.errstate(all="ignore"):
            check = float(flat.dot(flat))
        if check - check == 0.0:
            if not data.flags.writeable and data.base is None:
                self._clean = {id(data): weakref.ref(data)}
            return False
        if bool(xp.isinf(flat).any()):
            raise ArgumentError(f"{self.__name__}: the data hold inf; mark missing data by nan")
        return bool(xp.isnan(flat).any())

    def _is_missing_on_device(self, xp: Any, data: Any) -> bool:
        """Looking makes the host wait: so an array on a device is looked at when it is first met, and not again."""
        known = self._clean.get(id(data))
        if known is not None and known[0]() is data and known[1] == data.data.ptr:
            return known[2]
        if bool(xp.isinf(data).any()):
            raise ArgumentError(f"{self.__name__}: the data hold inf; mark missing data by nan")
        missing = bool(xp.isnan(data).any())
        self._clean = {id(data): (weakref.ref(data), data.data.ptr, missing)}
        return missing

    def _run(self, kind: str, n: int, arrays: tuple, outs: list | None = None) -> Any:
        """Launch on plain arrays."""
        theta, data, *vs = arrays
        dtype, (rows, batch), shape = theta.dtype, theta.shape, data.shape
        missing = self._is_missing(data)
        key = kind, n, rows, shape[:-1], missing, type(theta), dtype.char
        last, launcher = self._last
        if key != last:
            launcher = self._launcher(kind, n, theta, data, vs, missing)
            self._last = key, launcher
        inputs = [contiguous(x, dtype) for x in (theta, *vs)]
        if outs is None:
            xp = xp_of(theta)
            made = [xp.empty((rows, batch), dtype) for rows in launcher.outputs]
        else:
            made = _checked_outs(self.__name__, outs, launcher.outputs, batch, dtype)
        if batch:
            launcher(inputs, contiguous(data, dtype), shape[0 if len(shape) == 1 else 1], made, batch)
        if outs is None:
            outs = made if kind == "R" else [made[0][0], *made[1:]]
        return outs[0] if len(outs) == 1 else tuple(outs)

    def _launcher(self, kind: str, n: int, theta: Any, data: Any, vs: list, missing: bool) -> Any:
        if missing and self.missing is None:
            raise KernelError(
                f"{self.__name__}: the data hold nan. Say what a step does without a datum: missing=function(carry, theta) that "
                "gives the carry after it, missing='skip' to leave the step out, or missing='step' if the step itself looks "
                "for nan, by np.where(np.isnan(y), ...)"
            )
        signature = theta.shape[0], 0 if data.ndim == 1 else data.shape[0], missing
        make = launcher_of(theta, data, *vs)
        return self._family.launcher(kind, n, signature, theta.dtype, data.ndim == 3, make)


def is_tree(theta: Any) -> bool:
    """A structure with names; lists and plain tuples of numbers are arrays."""
    return is_node(theta) and not (isinstance(theta, (list, tuple)) and not hasattr(theta, "_fields"))


def _outs(out: Any) -> list | None:
    return None if out is None else list(out) if isinstance(out, (tuple, list)) else [out]


def _checked_outs(name: str, outs: list, rows: list, batch: int, dtype: np.dtype) -> list:
    if len(outs) != len(rows):
        raise ArgumentError(f"{name}: out= needs {len(rows)} arrays")
    made = []
    for k, (o, n) in enumerate(zip(outs, rows, strict=True)):
        want = (batch,) if k == 0 else (n, batch)
        if not is_array(o) or o.shape != want or o.dtype != dtype or not o.flags.c_contiguous or not getattr(o.flags, "writeable", True):
            raise ShapeError(f"{name}: out[{k}] must be a writable, C-contiguous {dtype} array of shape {want}")
        made.append(o.reshape(n, batch))
    return made


class Likelihood(Generated):
    """A sum over data; see `likelihood`."""

    def scores(self, theta: Any, data: Any) -> Any:
        """The gradient of each datum's term, (N, p, B)."""
        theta, data, _ = self._arguments(theta, data)
        xp = xp_of(theta)
        p, batch = theta.shape
        rows = data[None] if data.ndim == 1 else data
        d, n = rows.shape[:2]
        many = xp.ascontiguousarray(xp.broadcast_to(theta[:, None, :], (p, n, batch)).reshape(p, n * batch))
        each = rows[:, :, None] if rows.ndim == 2 else rows
        each = xp.ascontiguousarray(xp.broadcast_to(each, (d, n, batch)).reshape(d, 1, n * batch))
        if data.ndim == 1:
            signature_data = each
            g = self._run_scalar(many, signature_data)
        else:
            g = self._run("VG", 0, (many, each))[1]
        return g.reshape(p, n, batch).transpose(1, 0, 2)

    def _run_scalar(self, theta: Any, data: Any) -> Any:
        """Plain-number data, one for each sample."""
        missing = self._is_missing(data)
        launcher = self._family.launcher("R", 0, (theta.shape[0], 0, missing), theta.dtype, True, launcher_of(theta, data))
        out = xp_of(theta).empty(theta.shape, theta.dtype)
        if out.size:
            launcher([contiguous(theta, theta.dtype)], contiguous(data, theta.dtype), 1, [out], theta.shape[1])
        return out

    def fisher(self, theta: Any, data: Any) -> Any:
        """Sum over data of the outer product of the scores, (B, p, p)."""
        s = self.scores(theta, data)
        return xp_of(s).einsum("nib,njb->bij", s, s)


class Recursion(Generated):
    """A recursion with a carry; see `recursion`."""


def likelihood(loglik: Callable, *, missing: str = "skip", invalid: str = "reject") -> Likelihood:
    """A kernel for sum over data of loglik(theta, datum).

    `loglik` gets the p parameters of one sample as an array that can be unpacked, and a datum: a number for data (N,), an array
    (d,) for data (d, N).  A datum with nan is left out (`missing='skip'`; with 'step' loglik gets it).  A sample whose value is
    nan gets -inf, and derivatives 0 (`invalid='nan'`: they are left as they are).  Infinite data raise.

    >>> import numpy as np, tapegrad as tg
    >>> def normal(theta, x):
    ...     mu, sigma = theta
    ...     return -0.5 * ((x - mu) / sigma) ** 2 - np.log(sigma)
    >>> k = tg.kernels.likelihood(normal)
    >>> theta = np.array([[0.0, 1.0], [1.0, 2.0]])        # two samples: (mu, sigma) = (0, 1) and (1, 2)
    >>> value, gradient = k.value_and_grad(theta, np.array([1.0, 2.0]))
    >>> value.round(4)
    array([-2.5   , -1.5113])
    >>> gradient
    array([[ 3.   ,  0.25 ],
           [ 3.   , -0.875]])
    """
    if missing not in ("skip", "step"):
        raise ArgumentError(f"missing={missing!r}: 'skip' or 'step'")
    skip = missing == "skip"
    return Likelihood(loglik, lambda s, build: trace_likelihood(loglik, s[0], s[1], s[2] and skip, build), missing, invalid)


def recursion(init: Callable, step: Callable, *, missing: Any = None, invalid: str = "reject") -> Recursion:
    """A kernel for recursions: carry = init(theta); for each datum carry, contribution = step(carry, theta, datum).

    The value is the sum of the contributions.  The carry is a number, an array, or a tuple of these.  Data (T,) or (d, T).
    Data with nan are missing.  `missing='step'`: the step looks for nan itself (np.where(np.isnan(y), ...)); a function
    (carry, theta) -> carry: what a step does to the carry without a datum, its contribution being 0; 'skip': the step is left
    out; None: raise.

    >>> import numpy as np, tapegrad as tg
    >>> k = tg.kernels.recursion(lambda theta: 0.0, lambda m, theta, y: (theta[0] * y, -0.5 * (y - m) ** 2))
    >>> k.value_and_grad(np.array([[0.5]]), np.array([1.0, 2.0]))
    (array([-1.625]), array([[1.5]]))
    """
    if not (missing in (None, "skip", "step") or callable(missing)):
        raise ArgumentError(f"missing={missing!r}: None, 'skip', 'step', or a function (carry, theta) -> carry")
    rule = missing if callable(missing) else None

    def trace(s, build):
        return trace_recursion(init, step, s[0], s[1], s[2] and missing != "step", rule, build)

    return Recursion(step, trace, missing, invalid)


class Map:
    """A function of per-sample arguments; see `map_`."""

    def __init__(self, f: Callable):
        self.f, self.__name__, self.__doc__ = f, name_of(f), getattr(f, "__doc__", None)
        self._families: dict = {}

    def __repr__(self) -> str:
        return f"<map kernel of {self.__name__}>"

    def __call__(self, *args: Any) -> Any:
        """Arguments (..., B): the last axis is the sample.  The results have it too."""
        values = [a.value if isinstance(a, Const) else a for a in args]
        fixed = [isinstance(a, Const) or not _differentiable(v) for a, v in zip(args, values, strict=True)]
        arrays = [as_float(v, f"{self.__name__}: argument {n}") for n, v in enumerate(values)]
        batch = _batch(self.__name__, arrays)
        shapes = tuple([tuple(a.shape[:-1]) if a.ndim else () for a in arrays])
        family, build = self._family(shapes, tuple(fixed))
        dtype = np.result_type(*[plain(a).dtype for a, c in zip(arrays, fixed, strict=True) if not c] or [np.float64])
        xp = library(*[plain(a) for a in arrays])
        arrays = [xp.asarray(a) if type(a) is np.ndarray and not a.ndim else a for a in arrays]  # numbers belong anywhere
        theta = _rows([a for a, c in zip(arrays, fixed, strict=True) if not c], batch, dtype, xp)
        rest = _rows([a for a, c in zip(arrays, fixed, strict=True) if c], batch, dtype, xp)
        return build(family.F(self._launch(family), theta, rest, ()))

    def _family(self, shapes: tuple, fixed: tuple) -> tuple:
        key = shapes, fixed
        if key not in self._families:
            order = [n for n, c in enumerate(fixed) if not c] + [n for n, c in enumerate(fixed) if c]
            place = {n: k for k, n in enumerate(order)}

            program, build = trace_map(self.f, [shapes[n] for n in order], [place[n] for n in range(len(order))])
            active = sum(program.inputs[: fixed.count(False)])
            total = sum(program.inputs)
            program.inputs = [active, total - active]
            self._families[key] = Family(self.__name__, lambda s: program, False, False), build
        return self._families[key]

    def _launch(self, family: Family) -> Callable:
        def run(kind, n, arrays):
            theta, rest, *others = arrays
            dtype = theta.dtype
            xp = library(*arrays)
            launcher = family.launcher(kind, n, (), dtype, False, launcher_of(*arrays))
            batch = theta.shape[1]
            made = [xp.empty((rows, batch), dtype) for rows in launcher.outputs]
            if batch:
                launcher([contiguous(x, dtype) for x in (theta, rest, *others)], None, 0, made, batch)
            return made[0]

        return run


def _differentiable(x: Any) -> bool:
    return isinstance(x, (Variable, float)) or getattr(x, "dtype", np.dtype(int)).kind == "f"


def _batch(name: str, arrays: list) -> int:
    sizes = {a.shape[-1] for a in arrays if a.ndim}
    if len(sizes) > 1:
        raise ShapeError(f"{name}: the last axis is the sample, and the arguments have {sorted(sizes)} samples")
    if not sizes:
        raise ShapeError(f"{name}: no argument has an axis of samples; map works on arrays (..., B)")
    return sizes.pop()


def _rows(arrays: list, batch: int, dtype: np.dtype, xp: Any = np) -> Any:
    """The arguments one below the other, (rows, B); without any, rows of the library `xp`."""
    if not arrays:
        return xp.zeros((0, batch), dtype)
    parts = [shaping.broadcast_to(a, (1, batch)) if a.ndim == 0 else a.reshape((math.prod(a.shape[:-1]), batch)) for a in arrays]
    return parts[0] if len(parts) == 1 else shaping.concatenate(*parts)


def map_(f: Callable) -> Map:
    """A kernel for f applied to each sample: arguments and results have the sample as their last axis.

    Whole-number arguments and those marked Const have no derivative.  f may use `loop` and `while_loop` of this module.

    >>> import numpy as np, tapegrad as tg
    >>> k = tg.kernels.map(lambda a, b: a @ b)
    >>> k(np.ones((3, 2)), np.ones((3, 2)))
    array([3., 3.])
    """
    return Map(f)
