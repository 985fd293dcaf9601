"""Implicit differentiation: solutions of equations as functions of their parameters.

The user supplies the solver; the derivative follows from the implicit function theorem. If R(x, p) =
0, then dx = -A^-1 (dR/dp) dp with A = dR/dx. So the solution is one operation, whose rules solve one
linear system with A or its adjoint. The solution of that system is another operation; its rules solve
systems with the same A. The rules are written with operations, which gives derivatives of any order.

Reading order: `root`, `fixed_point`, `minimum`; `Implicit`, what they return; `ImplicitProblem`, one call of
it, with the two operations; `BatchedProblem`, the same for many samples. implicit.systems solves the linear
systems."""

from typing import Any

import numpy as np

from .._core.arrays import copy_with_layout, is_array, is_differentiable, same_bits, xp_of
from .._core.errors import ArgumentError, Attempt, BatchError, ConvergenceError, ShapeError
from .._core.pickling import PickledByCall
from .._core.primitive import (
    READ,
    Primitive,
    bind,
    handle,
    is_tracked,
    joint_primitive,
    layout_of,
    primal_of,
    values_of,
)
from .._core.registry import SHADOW_MAKERS
from .._core.scope import OPEN, at_the_end_of, changed, scope_block
from .._core.trees import Const, describe_tree, leaves, tree_map
from .._core.typing import AnyDict, AnyFunction, AnyList, AnyTuple
from .._core.variable import Variable
from .._transforms.arguments import user_name, where_of
from .._transforms.batching.rules import CustomRule, as_stack
from .._transforms.call import constant_like, value_out
from .._transforms.gradient import grad
from .._transforms.products import jvp, vjp
from .._transforms.rebind import Rebind, as_they_were, confirm, forgotten, left_by_error, out_of, with_all
from .._transforms.vmap import vmap
from ..ops import shaping
from ..ops.declare import dtype, shape
from .systems import LinearSystem

__all__ = ["fixed_point", "minimum", "root"]


def __dir__() -> list[str]:
    return __all__


KEPT_SYSTEMS = 32  # the number of points whose linear systems are kept


def root(F: AnyFunction, solver: AnyFunction, *, tol: float | None = None, solve: Any = None) -> "Implicit":
    """Make a function of the solution of F(x, *params) = 0, differentiable in the parameters.

    The derivative is that of the implicit function theorem, in both modes and to any order. It includes what
    F captured. The derivative with respect to x0 is zero.

    Parameters
    ----------
    F : callable
        ``F(x, *params)`` returns as many numbers as x has, in an array or a tree.
    solver : callable
        ``solver(F, x0, *params)`` returns the solution. It sees plain arrays and is not differentiated.
    tol : float, optional
        The largest residual that is accepted, in any element. The default is the cube root of the precision.
    solve : callable or 'dense', optional
        ``solve(A, b)`` solves the linear systems, such as scipy.sparse.linalg.gmres; A is a LinearOperator.
        By default the Jacobian is formed and inverted up to 1000 unknowns, and gmres is called beyond.

    Returns
    -------
    callable
        ``g(x0, *params)`` returns the solution, with the tree, shapes and dtypes of x0. Arrays that F
        captured and writes are scratch: they end with what F leaves there at the solution.

    Raises
    ------
    ConvergenceError
        In a call, if a residual exceeds `tol`, or a linear system is not solved.
    SingularError
        For a derivative, if the derivative of F with respect to x is singular.
    GuardError
        In a later call of a pullback, if what F reads has changed.

    See Also
    --------
    fixed_point : For x = F(x).
    minimum : For a minimum of F.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> def newton(F, x, *params):
    ...     for _ in range(20):
    ...         x = x - F(x, *params) / (2 * x)
    ...     return x
    >>> sqrt = tg.implicit.root(lambda x, a: x * x - a, newton)
    >>> tg.grad(sqrt, 1)(1.0, 4.0), tg.grad(tg.grad(sqrt, 1), 1)(1.0, 4.0)
    (np.float64(0.25), np.float64(-0.03125))
    """
    return Implicit("root", F, solver, tol, solve)


def fixed_point(
    F: AnyFunction, solver: AnyFunction, *, tol: float | None = None, solve: Any = None
) -> "Implicit":
    """Make a function of the solution of x = F(x, *params), differentiable in the parameters.

    Parameters
    ----------
    F : callable
        ``F(x, *params)`` returns a tree like x.
    solver : callable
        ``solver(F, x0, *params)`` returns the solution. It sees plain arrays and is not differentiated.
    tol, solve : optional
        As for `root`.

    Returns
    -------
    callable
        ``g(x0, *params)`` returns the solution, with the tree, shapes and dtypes of x0.

    Raises
    ------
    ConvergenceError, SingularError, GuardError
        As for `root`.

    See Also
    --------
    root : For F(x) = 0, with the details.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> def iterate(F, x, *params):
    ...     for _ in range(100):
    ...         x = F(x, *params)
    ...     return x
    >>> kepler = tg.implicit.fixed_point(lambda E, e, M: M + e * np.sin(E), iterate)
    >>> tg.grad(kepler, 2)(1.0, 0.5, 0.0)
    np.float64(2.0)
    """
    return Implicit("fixed_point", F, solver, tol, solve)


def minimum(
    F: AnyFunction, solver: AnyFunction, *, tol: float | None = None, solve: Any = None
) -> "Implicit":
    """Make a function of the minimum of F(x, *params) in x, differentiable in the parameters.

    It is the point that the solver finds, at which the gradient of F with respect to x is zero.

    Parameters
    ----------
    F : callable
        ``F(x, *params)`` returns a real scalar.
    solver : callable
        ``solver(F, x0, *params)`` returns the minimum. It sees plain arrays and is not differentiated.
    tol : float, optional
        The largest element of the gradient that is accepted. The default is the cube root of the precision.
    solve : callable or 'dense', optional
        Solves the linear systems with the Hessian of F. By default the Hessian is formed up to 1000 unknowns,
        and scipy.sparse.linalg.cg is called beyond.

    Returns
    -------
    callable
        ``g(x0, *params)`` returns the minimum, with the tree, shapes and dtypes of x0.

    Raises
    ------
    ConvergenceError, SingularError, GuardError
        As for `root`.

    See Also
    --------
    root : For F(x) = 0, with the details.
    tapegrad.optimize.minimize : A solver with exact derivatives.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> g = tg.implicit.minimum(lambda x, a: ((x - a) ** 2).sum(), lambda F, x0, a: a.copy())
    >>> tg.jacobian(g, 1)(np.zeros(2), np.array([1.0, 2.0]))
    array([[1., 0.],
           [0., 1.]])
    """
    return Implicit("minimum", F, solver, tol, solve)


# the residual R, as a function of F and of x = (x, *params), returning a tree
EQUATIONS: dict[str, AnyFunction] = {
    "root": lambda F: F,
    "fixed_point": lambda F: F,  # x is subtracted later
    "minimum": lambda F: grad(Const(F) if OPEN.depth else F),  # (inside a transform F is followed already)
}


def is_float(v: Any) -> bool:
    return is_differentiable(layout_of(v))


def float_leaves(tree: Any) -> AnyList:
    return [v for v in leaves(tree) if is_float(v)]


class Implicit(PickledByCall):
    """The callable that `root`, `fixed_point` and `minimum` return."""

    def __init__(self, kind: str, F: AnyFunction, solver: AnyFunction, tol: float | None, solve: Any):
        self.kind, self.F, self.solver, self.tol, self.solve = kind, F, solver, tol, solve
        self.__name__ = f"implicit.{kind}({user_name(F)})"
        if not callable(F) or not callable(solver):
            raise ArgumentError(
                f"implicit.{kind}: give two functions, F(x, *params) and solver(F, x0, *params)"
            )
        if not (tol is None or (isinstance(tol, (int, float)) and not isinstance(tol, bool) and tol >= 0)):
            raise ArgumentError(
                f"{self.__name__}: tol={tol!r}; it is the largest residual that is allowed, or None"
            )
        if not (solve is None or solve == "dense" or callable(solve)):
            raise ArgumentError(
                f"{self.__name__}: solve={solve!r}; it is a function solve(A, b) such as "
                f"scipy.sparse.linalg.gmres, or 'dense'"
            )

    def _made(self) -> AnyTuple:
        return Implicit, (self.kind, self.F, self.solver, self.tol, self.solve)

    def __repr__(self) -> str:
        return f"<{self.__name__}>"

    def __call__(self, x0: Any, *params: Any) -> Any:
        if OPEN.inside is not None:
            raise ArgumentError(
                f"{self.__name__}: a kernel has no solver; call it outside and pass the solution"
            )
        params = tuple([a.value if isinstance(a, Const) else a for a in params])
        x0 = x0.value if isinstance(x0, Const) else x0
        if not float_leaves(x0):
            kind = f"of dtype {dtype(x0)}" if hasattr(x0, "dtype") else describe_tree(x0)
            raise ArgumentError(
                f"{self.__name__}: x0 is {kind}, which has no derivative; give x0 as floats, "
                f"x0.astype(float) or float(x0)"
            )
        if not OPEN.depth:
            x = self.solved(
                self.F,
                self.solver,
                tree_map(owned_argument, x0),
                tuple([tree_map(owned_argument, a) for a in params]),
            )
            self.checked(self.residual(self.F, x0, x, params))
            return with_floats(x0, x)
        problem = ImplicitProblem(self, x0, params)
        x = problem.solution()
        if problem.wrote:  # captured arrays end with the content that F leaves at the solution
            self.F(x, *params)
        return x

    def solved(self, F: AnyFunction, solver: AnyFunction, x0: Any, params: AnyTuple) -> AnyTuple:
        """The float leaves of the solution, as plain arrays."""
        found, wanted = float_leaves(solver(F, x0, *params)), float_leaves(x0)
        if shapes(found) != shapes(wanted):
            raise ShapeError(
                f"{self.__name__}: {user_name(solver)}{where_of(solver)} returned floats of "
                f"{shapes(found)}, and x0 has {shapes(wanted)}; "
                "return the solution in the tree and shapes of x0 (of scipy.optimize.root the .x)"
            )
        return tuple([self.as_x(v, like) for v, like in zip(found, wanted, strict=True)])

    def as_x(self, v: Any, like: Any) -> Any:
        if is_tracked(v):
            raise ArgumentError(
                f"{self.__name__}: what the solver gave is tracked: it captured a tracked value by a way "
                "that is not followed; pass it as a parameter"
            )
        v, want = value_out(v), dtype(like)
        b = values_of(v)
        if dtype(b).kind == "c" and want.kind != "c":
            raise ArgumentError(
                f"{self.__name__}: the solution is complex and x0 is real; give x0 as complex numbers"
            )
        if is_array(layout_of(like)):
            return xp_of(layout_of(like)).asarray(b, dtype=want)
        return want.type(b)

    def residual(self, F: AnyFunction, x0: Any, x: AnyTuple, params: AnyTuple) -> AnyTuple:
        """The float leaves of the residual R(x, params)."""
        found = float_leaves(EQUATIONS[self.kind](F)(with_floats(x0, x), *params))
        if shapes(found) != shapes(x):
            raise ShapeError(
                f"{self.__name__}: {user_name(F)}{where_of(F)} returned floats of {shapes(found)} for x of "
                f"{shapes(x)}; there must be one equation for each unknown, in the shapes of x"
            )
        return tuple([v - w for v, w in zip(x, found, strict=True)] if self.kind == "fixed_point" else found)

    def limit(self, r: AnyTuple) -> float:
        if self.tol is not None:
            return self.tol
        return float(np.cbrt(max([np.finfo(dtype(v)).eps for v in r])))

    def size(self, r: AnyTuple) -> float:
        """The largest modulus of an element; nan if an element is nan."""
        return max(
            [float(np.max(abs(values_of(v)))) if v_size(v) else 0.0 for v in r], key=lambda s: (s != s, s)
        )

    def checked(self, r: AnyTuple) -> None:
        size = self.size(r)
        if not size <= self.limit(r):
            what = {"root": "|F(x)|", "fixed_point": "|x - F(x)|", "minimum": "the gradient of F"}[self.kind]
            raise ConvergenceError(
                f"{self.__name__}: {user_name(self.solver)}{where_of(self.solver)} did not solve it: {what} "
                f"is {size:.3g} there, and {self.limit(r):.3g} is allowed. The derivative is that of a "
                "solution: let the solver go on, or allow more with tol="
            )


def shapes(parts: Any) -> str:
    """The shapes of some arrays as text, for messages."""
    return "shape " + ", ".join([str(shape(v)) for v in parts]) if len(parts) else "no shape: there are none"


def v_size(v: Any) -> int:
    return int(np.prod(shape(v)))


def with_floats(x0: Any, x: Any) -> Any:
    """The tree of x0 with other floats."""
    each = iter(x)
    return tree_map(lambda v: next(each) if is_float(v) else v, x0)


SHADOW_MAKERS[Implicit] = lambda shadow, x: Implicit(
    x.kind, shadow(x.F), shadow(x.solver), x.tol, shadow(x.solve)
)


# --- one call ---


def owned_argument(v: Any) -> Any:
    """An argument as a value that no later write changes."""
    return copy_with_layout(v) if is_array(v) else v


class ImplicitProblem:
    """One call: the solution as a function of `values`, the Variables that F, the solver and the
    arguments hold.

    F and the arguments are copies made by `first`, with stand-ins for these Variables. So a pullback
    may run F after the transform has ended."""

    def __init__(self, of: Implicit, x0: Any, params: AnyTuple):
        self.of, self.call = of, of.__name__
        given = tuple([tree_map(owned_argument, a) for a in (x0, *params)])
        self.original = (of.F, of.solver), [given]
        self.first = first = Rebind(*self.original)
        with first as (functions, args):
            first.arrays = []
        self.functions, self.args, self.x0, self.params = functions, args, x0, params
        self.count = len(float_leaves(x0))
        self.lead: AnyTuple = ()
        self.wrote = self.kept_floats = False
        self.systems: list[LinearSystem] = []
        # what `BatchedProblem` keep: (how many, which values differ) -> systems
        self.of_samples: AnyDict = {}

    def __del__(self) -> None:
        at_the_end_of(self, "first")  # break the reference cycle between it and the functions

    def linear(self, adjoint: bool) -> Primitive:
        run, *rules = [
            method(adjoint) for method in (self.linear_run, self.linear_pulled, self.linear_pushed)
        ]
        prim = joint_primitive(f"linear system of {self.call}", run, rules[0], rules[1])
        prim.batch = CustomRule(
            lambda trace, _, operands, params: self.linear_of_samples(trace, operands, adjoint)
        )
        return prim

    def within(self, values: Any, run: AnyFunction, solving: bool = False) -> Any:
        """`run(F, solver, x0, params)` with these values of the Variables. What the functions change is as it
        was when the solution was asked for, and only `solving` alters it: so no derivative reads what they
        have kept."""
        if solving:
            return self.ran(*self.original, values, run)
        with scope_block():
            as_they_were(self.first.state)
            return self.ran(self.functions, self.args, values, run, True)

    def ran(self, functions: Any, args: Any, values: Any, run: AnyFunction, again: bool = False) -> Any:
        shadow = Rebind(functions, args, self.first, values)
        with shadow as ((F, solver), ((x0, *params),)):
            try:
                out = run(F, solver, x0, tuple(params))
            except Exception:
                left_by_error(shadow, self.call)
                raise
            self.wrote = any([getattr(h, "_version", 0) > 0 for _, h in shadow.handles])
            shadow.check_all(self.call)
            self.kept_floats |= bool(shadow.check(self.call))
        shadow.arrays = []
        if again:
            forgotten(shadow)
        else:
            shadow.finish()
        return out

    def residual(self, x: AnyTuple, values: Any) -> AnyTuple:
        return self.within(  # type: ignore[no-any-return]
            values, lambda F, _, x0, params: tuple([out_of(r) for r in self.of.residual(F, x0, x, params)])
        )

    def solution(self) -> Any:
        handles, x = with_all(self.first, lambda values: bind(self.solving(), values, {}))
        confirm(
            self.kept_floats, handles, lambda *values: self.residual(tuple([primal_of(v) for v in x]), values)
        )
        return with_floats(self.x0, [handle(v) for v in x])

    def solving(self) -> Primitive:
        prim = joint_primitive(self.call, self.run, self.pulled, self.pushed)
        prim.batch = CustomRule(lambda trace, _, operands, params: self.solution_of_samples(trace, operands))
        return prim

    # --- under `vmap` ---

    def solution_of_samples(self, trace: Any, operands: AnyList) -> Any:
        if not trace.count:
            return NotImplemented
        for outer in OPEN.hiding:
            outer.looped(f"the solver of {self.call}")
        many = BatchedProblem(self, trace.count, [batched for _, batched in operands])
        return bind(many.solving(), [v for v, _ in operands], {})

    def linear_of_samples(self, trace: Any, operands: AnyList, adjoint: bool) -> Any:
        b, x, values = self.split(tuple(operands))
        if not trace.count or not any([batched for _, batched in (*x, *values)]):
            return NotImplemented  # one system with many right-hand sides
        many = BatchedProblem(self, trace.count, [batched for _, batched in values])
        return bind(
            many.linear(adjoint), [*[as_stack(trace, *o) for o in (*b, *x)], *[v for v, _ in values]], {}
        )

    # --- the solution: x as a function of the values ---

    def run(self, *values: Any) -> AnyTuple:
        def solved(F: Any, solver: Any, x0: Any, params: AnyTuple) -> Any:
            with changed(depth=0):
                x = self.of.solved(
                    F, solver, tree_map(solver_value, x0), tuple([tree_map(solver_value, a) for a in params])
                )
            r = self.of.residual(F, x0, x, params)
            if any([is_tracked(v) for v in r]):
                raise ArgumentError(
                    f"{self.call}: {user_name(F)}{where_of(F)} reads a tracked value by a way that is not "
                    f"followed; pass it as a parameter"
                )
            self.of.checked(r)
            return x

        return self.within(values, solved, True)  # type: ignore[no-any-return]

    def pulled(self, g: Any, out: Any, need: Any, *values: Any) -> Any:
        x = tuple(out)
        w = bind(self.linear(True), [*or_zeros(g, x), *x, *values], {})
        return negative_pullback(lambda *values: self.residual(x, values), values, need, w)

    def pushed(self, t: Any, out: Any, *values: Any) -> Any:
        x = tuple(out)
        d = push_outputs(lambda *values: self.residual(x, values), values, t)
        return bind(self.linear(False), [*[-v for v in d], *x, *values], {})

    # --- the linear system A y = b, or A^H y = b: y as a function of b, x and the values ---

    def split(self, inputs: AnyTuple) -> AnyTuple:
        n = self.count
        return inputs[:n], inputs[n : 2 * n], inputs[2 * n :]

    def linear_run(self, adjoint: bool) -> AnyFunction:
        def run(*inputs: Any) -> Any:
            b, x, values = self.split(inputs)
            with changed(depth=0):
                return self.system(x, values).solved(b, adjoint)

        return run

    def system(self, x: AnyTuple, values: AnyTuple) -> LinearSystem:
        point = (*x, *values)
        for known in self.systems:
            if all([is_uniform(a, b) for a, b in zip(known.point, point, strict=True)]):
                return known
        self.systems[:] = [LinearSystem(self, x, values), *self.systems[: KEPT_SYSTEMS - 1]]
        return self.systems[0]

    def product(self, adjoint: bool, y: AnyTuple, x: AnyTuple, values: AnyTuple) -> Any:
        """A y, or A^H y."""
        f = Const(lambda *x: self.residual(x, values))
        if not adjoint:
            return jvp(f, x, y)[1]
        found = vjp(f, *x)[1](y)
        return found if len(x) > 1 else (found,)

    def linear_pulled(self, adjoint: bool) -> AnyFunction:
        def pull(g: Any, out: Any, need: Any, *inputs: Any) -> Any:
            _, x, values = self.split(inputs)
            y, n = tuple(out), len(x)
            w = bind(self.linear(not adjoint), [*or_zeros(g, y), *x, *values], {})
            return (
                *w,
                *negative_pullback(
                    lambda *xv: self.product(adjoint, y, xv[:n], xv[n:]), inputs[n:], need[n:], w
                ),
            )

        return pull

    def linear_pushed(self, adjoint: bool) -> AnyFunction:
        def push(t: Any, out: Any, *inputs: Any) -> Any:
            b, x, values = self.split(inputs)
            y, n = tuple(out), len(x)
            right = or_zeros(t[:n], b)
            if any([d is not None for d in t[n:]]):
                d = push_outputs(lambda *xv: self.product(adjoint, y, xv[:n], xv[n:]), inputs[n:], t[n:])
                right = [r - v for r, v in zip(right, d, strict=True)]
            return bind(self.linear(adjoint), [*right, *x, *values], {})

        return push


class BatchedProblem(ImplicitProblem):
    """The problems of many samples as one. The residuals of all samples are one function of all unknowns,
    by `vmap`. The solver runs for one sample after another. `differ`: which of the values have a first
    axis of samples. All unknowns have it."""

    def __init__(self, of_one: ImplicitProblem, number: int, differ: AnyList):
        self.one, self.number, self.differ = of_one, number, differ
        self.of, self.call, self.count, self.x0 = of_one.of, of_one.call, of_one.count, of_one.x0
        self.lead = (number, *of_one.lead)
        self.of_samples = {}
        self.systems = of_one.of_samples.setdefault((number, *differ), [])

    def __del__(self) -> None:
        pass

    def residual(self, x: AnyTuple, values: Any) -> Any:
        n = len(x)
        axes = (*(0,) * n, *[0 if yes else None for yes in self.differ])
        return either(
            lambda: vmap(Const(lambda *xv: self.one.residual(xv[:n], xv[n:])), axes)(*x, *values),
            lambda k: self.one.residual(tuple([sample_of(v, k) for v in x]), self.of_sample(k, values)),
            self.number,
            BatchError,
        )

    def of_sample(self, k: int, values: Any) -> AnyList:
        return [sample_of(v, k) if yes else v for v, yes in zip(values, self.differ, strict=True)]

    def run(self, *values: Any) -> AnyTuple:
        return stack_trees([self.one.run(*self.of_sample(k, values)) for k in range(self.number)])

    def linear_run(self, adjoint: bool) -> AnyFunction:
        together, one = super().linear_run(adjoint), self.one.linear_run(adjoint)

        def of_sample(k: Any, inputs: Any) -> Any:
            b, x, values = self.split(inputs)
            return one(*[sample_of(v, k) for v in (*b, *x)], *self.of_sample(k, values))

        return lambda *inputs: either(
            lambda: together(*inputs), lambda k: of_sample(k, inputs), self.number, Exception
        )


def sample_of(v: Any, k: int) -> Any:
    return bind(READ, (v,), {"path": (), "at": (k,) if len(shape(v)) == 1 else k, "copy": True})


def either(together: AnyFunction, of_sample: AnyFunction, number: int, failing: Any) -> Any:
    """The results of all samples at once. If that fails, the results sample by sample, whose errors are
    more specific."""
    with Attempt(of=failing):
        return together()
    return stack_trees([of_sample(k) for k in range(number)])


def stack_trees(each: AnyList) -> AnyTuple:
    return tuple([shaping.stack(list(column)) for column in zip(*each, strict=True)])


def solver_value(v: Any) -> Any:
    """An argument as the solver gets it: plain."""
    if not isinstance(v, Variable):
        return v
    v = values_of(v)
    return v.copy() if is_array(v) else v


def or_zeros(t: Any, like: Any) -> AnyList:
    """Tangents or cotangents, with zeros for None."""
    return [
        constant_like(v, 0) if d is None else d
        for d, v in zip(t if t is not None else [None] * len(like), like, strict=True)
    ]


def of_some(f: AnyFunction, inputs: Any, wanted: AnyList) -> AnyTuple:
    """(f as a function of the inputs with these numbers, those inputs)."""

    def of(*some: Any) -> Any:
        every = list(inputs)
        for k, v in zip(wanted, some, strict=True):
            every[k] = v
        return f(*every)

    return Const(of), tuple([inputs[k] for k in wanted])


def negative_pullback(f: AnyFunction, inputs: Any, need: Any, w: AnyTuple) -> AnyList:
    """The pullback of -w, a cotangent of f's outputs, to the inputs that need it."""
    wanted = [k for k, n in enumerate(need) if n]
    terms: AnyList = [None] * len(inputs)
    if wanted:
        of, some = of_some(f, inputs, wanted)
        found = vjp(of, *some)[1](tuple([-v for v in w]))
        for k, c in zip(wanted, found if len(wanted) > 1 else (found,), strict=True):
            terms[k] = c
    return terms


def push_outputs(f: AnyFunction, inputs: Any, t: Any) -> Any:
    """The tangents of the outputs of f."""
    wanted = [k for k, d in enumerate(t) if d is not None]
    of, some = of_some(f, inputs, wanted)
    return jvp(of, some, tuple([t[k] for k in wanted]))[1]


def is_uniform(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if not is_array(a) or not is_array(b) or xp_of(a) is not np or xp_of(b) is not np:
        return not is_array(a) and not is_array(b) and bool(a == b)
    return a.shape == b.shape and a.dtype == b.dtype and same_bits(a, b)
