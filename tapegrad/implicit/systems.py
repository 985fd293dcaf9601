"""Linear systems with the Jacobian of an implicit function, at one point or for many samples at once."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse.linalg

from .._core.arrays import is_array, xp_of
from .._core.errors import ConvergenceError, GuardError, ShapeError, SingularError
from .._core.primitive import layout_of
from .._core.registry import load
from .._core.trees import Const
from .._transforms.arguments import user_name, where_of
from .._transforms.call import RecordedCall
from .._transforms.linearize import Products, record_linear
from .._transforms.many_directions import for_each
from ..ops.declare import dtype, shape

# the number of unknowns up to which the Jacobian is formed and inverted, if `solve` is not given
DENSE_JACOBIAN_UNKNOWNS = 1000
MOST_INVERSE_NUMBERS = 2**27  # the number of elements in the inverses of all samples


def singular_part(kind: str) -> str:
    return "the Hessian of" if kind == "minimum" else "the derivative by x of the equations of"


def inverse_of(A: Any, what: str, xp: Any = np) -> Any:
    """The inverse of a number or of matrices; `what` they are, for the error."""
    condition: Any = np.inf
    try:
        if not A.ndim:
            inverse, condition = (1.0 / A, 1.0) if A != 0 else (A, np.inf)
        else:
            inverse = xp.linalg.inv(A)
            condition = (abs(A).sum(-2).max(-1) * abs(inverse).sum(-2).max(-1)).max()
    except np.linalg.LinAlgError:
        pass
    if not condition < 0.1 / np.finfo(A.dtype).eps:
        raise SingularError(
            f"{what} is singular at the solution (condition {condition:.2g}): "
            "the solution is no differentiable function of the parameters there"
        )
    return inverse


class SequentialSystems(Exception):
    """Raised when these systems must be solved one after another."""


def kinds(parts: Any) -> str:
    return ", ".join([str(dtype(v)) for v in parts])


class LinearSystem:
    """A = dR/dx at a point, as a real matrix; a complex unknown counts as two. Each sample has a system
    of its own (`lead`: the shape of the samples). The equations of all samples are one function of all
    unknowns, whose Jacobian has these blocks."""

    def __init__(self, problem: Any, x: tuple, values: tuple):
        self.of, self.call, self.lead, self.point, self.x = (
            problem.of,
            problem.call,
            problem.lead,
            (*x, *values),
            x,
        )
        nums = 0 if len(x) == 1 else tuple(range(len(x)))
        self.recorded: RecordedCall = record_linear(
            self.call, Const(lambda *x: problem.residual(x, values)), nums, x
        )
        self.products = Products(self.recorded)
        self.r = tuple([y for y, _ in self.recorded.low])
        if not self.of.size(self.r) <= 2 * self.of.limit(self.r):
            raise GuardError(
                f"{self.call}: {user_name(self.of.F)}{where_of(self.of.F)} is not zero any more at the "
                "solution: it reads something that has changed since (an attribute, a list, a file); pass "
                "it as a parameter"
            )
        self.xp = xp_of(layout_of(x[0]))
        self.size = self.vector(x).shape[-1]
        if self.vector(self.r).shape[-1] != self.size:
            raise ShapeError(
                f"{self.call}: x has {kinds(x)}, {user_name(self.of.F)} gives {kinds(self.r)}: both must be "
                f"real, or both complex"
            )
        self.inverse: Any = None

    def vector(self, parts: Any) -> Any:
        pieces = []
        for v in parts:
            v = self.xp.asarray(v).reshape(*self.lead, -1)
            pieces.append(v.view(v.real.dtype) if v.dtype.kind == "c" else v)
        return self.xp.concatenate(pieces, axis=-1)

    def parts(self, v: Any, like: tuple) -> list:
        """The arrays that a vector contains, or each row of a matrix."""
        found, at, rows = [], 0, v.shape[: v.ndim - 1 - len(self.lead)]
        for part in like:
            d, to = dtype(part), shape(part)
            n = int(np.prod(to[len(self.lead) :])) * (2 if d.kind == "c" else 1)
            piece = self.xp.ascontiguousarray(v[..., at : at + n], dtype=np.empty(0, d).real.dtype)
            piece = (piece.view(d) if d.kind == "c" else piece).reshape((*rows, *to))
            found.append(piece if rows or is_array(part) else d.type(piece))
            at += n
        return found

    def forward(self, v: Any) -> Any:
        return self.vector(
            self.products.forward(dict(enumerate(self.parts(v.reshape(*self.lead, -1), self.x)))).values()
        )

    def backward(self, w: Any) -> Any:
        found = self.products.backward(self.parts(w.reshape(*self.lead, -1), self.r))
        return self.vector([found[k] for k in range(len(self.x))])

    def solved(self, b: tuple, adjoint: bool) -> tuple:
        """Solve the system for b. b has the shapes of the equations, the result those of the unknowns;
        the reverse for the adjoint system."""
        right = self.vector(b)
        known = self.xp.isfinite(right).all(-1, keepdims=True)
        all_known = bool(known.all())
        if all_known or (self.lead and bool(known.any())):
            y = self.solution(right if all_known else self.xp.where(known, right, 0), adjoint)
        else:
            y = right
        if not all_known:
            y = self.xp.where(known, y, np.nan)  # the solution is unknown there
        return tuple(self.parts(y, self.r if adjoint else self.x))

    def solution(self, right: Any, adjoint: bool) -> Any:
        dense = self.of.solve == "dense" or (self.of.solve is None and self.size <= DENSE_JACOBIAN_UNKNOWNS)
        if self.lead and (
            right.size * self.size > MOST_INVERSE_NUMBERS
            if dense
            else self.of.solve is not None or self.of.kind != "minimum"
        ):
            raise SequentialSystems
        return (
            self.refined(right, adjoint, self.dense(adjoint), 2)
            if dense
            else self.refined(right, adjoint, self.free(adjoint), 8)
        )

    def refined(self, b: Any, adjoint: bool, solve: Callable, rounds: int) -> Any:
        """Iterative refinement: call a solver that removes most of the error again on the residual."""
        if not b.size:
            return b
        apply, eps = self.backward if adjoint else self.forward, float(np.finfo(b.dtype).eps)
        goal = abs(b).max(-1, keepdims=True)
        y, rest, left = 0 * b, b, goal
        for _ in range(rounds):
            if bool((left <= 10 * eps * goal).all()):
                break
            new = y + solve(rest)
            next_rest = b - apply(new)
            now = abs(next_rest).max(-1, keepdims=True)
            better = now < left
            if not bool(better.any()):
                break
            y, rest, left = [
                self.xp.where(better, u, v) for u, v in ((new, y), (next_rest, rest), (now, left))
            ]
        solved = left <= eps**0.5 * goal
        if not bool(solved.all()):
            far = float((left / goal)[~solved].max())
            raise ConvergenceError(
                f"{self.call}: the linear system with its Jacobian was not solved: the residual is {far:.3g} "
                "of the right side. Is the Jacobian singular at the solution? Else give solve=, a function "
                "solve(A, b) with a preconditioner or more iterations, or solve='dense'"
            )
        return y

    def dense(self, adjoint: bool) -> Callable:
        if self.inverse is None:
            self.inverse = self.inverted()
        inverse = self.inverse.swapaxes(-1, -2) if adjoint else self.inverse
        return lambda b: (inverse @ b[..., None])[..., 0]

    def inverted(self) -> Any:
        n, like, lead = self.size, self.r, self.lead
        if not n:
            return self.xp.zeros((*lead, 0, 0))
        units = self.xp.eye(n, dtype=self.vector(like).dtype).reshape(n, *(1,) * len(lead), n)
        units = self.parts(self.xp.broadcast_to(units, (n, *lead, n)), like)
        rows = for_each(self.call, self.recorded, lambda w: self.products.backward(list(w)), units)
        pieces = [rows[k].reshape(n, *lead, -1) for k in range(len(self.x))]
        A = self.xp.concatenate([p.view(p.real.dtype) if p.dtype.kind == "c" else p for p in pieces], axis=-1)
        A = self.xp.moveaxis(A, 0, -2)
        what = f"{self.call}: {singular_part(self.of.kind)} {user_name(self.of.F)}{where_of(self.of.F)}"
        return inverse_of(A, what, self.xp)

    def free(self, adjoint: bool) -> Callable:
        """The user's solver, or a default, on a LinearOperator."""
        pair = (self.backward, self.forward) if adjoint else (self.forward, self.backward)
        library = scipy.sparse.linalg if self.xp is np else load("cupyx.scipy.sparse.linalg")
        size = self.vector(self.x).size
        forward, back = [lambda v, product=product: product(v).reshape(-1) for product in pair]
        A = library.LinearOperator(
            (size, size), matvec=forward, rmatvec=back, dtype=self.vector(self.x).dtype
        )
        solve = self.of.solve or (library.cg if self.of.kind == "minimum" else library.gmres)

        def solved(b):
            y = solve(A, b.reshape(-1))
            y = y[0] if isinstance(y, tuple) else y
            if shape(y) != (size,):
                raise ShapeError(
                    f"{self.call}: solve(A, b) returned shape {shape(y)} for b of shape {(size,)}"
                )
            return y.reshape(b.shape)

        return solved
