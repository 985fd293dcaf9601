"""Marginal likelihoods by Laplace's method, with latent variables whose Hessian is sparse.

The mode is found by Newton's method on the sparse Hessian. Its derivative follows from the equation that it
solves. The rest is a composition of operations that carry derivatives of any order."""

import math
from collections.abc import Callable
from typing import Any

import numpy as plain_np

from .. import numpy as np
from .._core.arrays import is_array, is_differentiable, xp_of
from .._core.errors import ArgumentError, ConvergenceError, NotPositiveDefiniteError
from .._core.pickling import PickledByCall
from .._core.primitive import is_tracked, layout_of
from .._core.scope import changed
from .._core.trees import describe_tree, leaves, tree_map
from .._transforms.arguments import user_name
from .._transforms.custom_rule import rule
from .._transforms.gradient import grad
from .._transforms.tape import ravel
from ..ops.declare import shape
from ..replay.methods import METHODS
from ..replay.prepared import prepare
from ..replay.signature import tree_of
from ._arguments import plain_point
from ._cholesky import applied, cholesky_solution, logdet_derivative, no_directions, sparse_logdet
from ._elimination import analysis_of
from ._ldl import Factor
from ._matrices import settings_of
from ._plan import COMPILING, Plan
from ._terms import terms_of

FEW_COLOURS = 16  # products up to which they are computed as they are at first
MOST_STEPS = 200  # Newton steps
SMALL_REST = 1e-28  # of |f| or 1: the decrease that is left after the last step
NEWTON_SHRINKAGE = 1e-4  # of the expected decrease by |f| or 1: how far a step of Newton's shrinks the next
SHORT_STEP = 1e-4  # of |z| or 1: above this the mode may be at infinity
ENOUGH = 1e-4  # of the expected decrease that a step must reach
SHORTEST = 1e-10  # the shortest step
MOST_SHRINKAGE = 1e-4  # of the expected decrease, from step to step with one factor
FIRST_SHIFT, SHIFT_FACTOR = 1e-3, 10.0  # of the largest diagonal entry: shifts of an indefinite Hessian


def forms():
    """Return the transforms of functions with further arguments, which are followed too."""
    return METHODS


def along_of(f: Callable) -> Callable:
    """Return (x, v, *args) -> (f, its derivative by x along v)."""
    return forms()["jvp"](f, 0)


def descent(factor: Factor, g: plain_np.ndarray) -> tuple[plain_np.ndarray, float]:
    """Return the step that the factor gives, and the decrease that it promises."""
    s = factor.solve(-g[None])[0]
    return s, -float(g @ s)


class LatentMode:
    """The mode of the latent variables, and the Hessian there."""

    def __init__(self, name: str, energy: Callable, z0: plain_np.ndarray, t0, rest: tuple):
        self.name, self.z0, self.rest, self.shape = name, z0, rest, z0.shape
        with plain_np.errstate(all="ignore"):
            self.plan = Plan(name, energy, (z0, t0, *rest), True, settings_of({}))
        terms = None
        if self.plan.colors > FEW_COLOURS:
            self.plan.spent = COMPILING  # the loop over entries pays at the first call
            self.plain_entries(z0, t0)
            terms = terms_of(self.plan.direct, self.plan.pattern.nnz)
        self.has_terms = terms is not None
        pattern = self.plan.pattern
        try:
            self.analysis = analysis_of(z0.size, pattern.indptr, pattern.indices)
        except NotPositiveDefiniteError as error:
            raise NotPositiveDefiniteError(
                f"{name}: the log-joint is not strictly concave in all latents, some of which it does not "
                f"hold: {error}"
            ) from error
        self.last = z0
        self.last_factor: Factor | None = None
        # The entries are one operation: forward by the plan, backward by a recorded sweep. f is an argument
        # of each transform, so its captured arrays and its libraries are followed.
        seeds, table = self.plan.seeds[0], self.plan.entries.table
        products = forms()["smp"](energy, 0)

        def entries(z, t, *rest):
            if terms is not None:
                return terms(z, t, *rest)
            return np.take(np.reshape(products(z, seeds, t, *rest), (-1,)), table)

        def weighted(z, t, w, *rest):
            return (w * entries(z, t, *rest)).sum()

        with plain_np.errstate(all="ignore"):
            recorded = prepare(weighted, z0, t0, plain_np.ones(table.size), *rest, argnums=(0, 1))

        def pull(g, out, z, t) -> tuple:
            with plain_np.errstate(all="ignore"):
                if is_tracked(g) or is_tracked(z) or is_tracked(t):
                    return grad(weighted, (0, 1))(z, t, g, *rest)
                with changed(depth=0):
                    return recorded.grad(*[plain_point(x) for x in (z, t, g)], *rest)

        def push(v: tuple, out, z, t):
            with plain_np.errstate(all="ignore"):
                by_z = None if v[0] is None else along_of(entries)(z, v[0], t, *rest)[1]
                by_t = (
                    None
                    if v[1] is None
                    else along_of(lambda t, z, *rest: entries(z, t, *rest))(t, v[1], z, *rest)[1]
                )
            return by_t if by_z is None else by_z if by_t is None else by_z + by_t

        self.entries = rule(self.plain_entries, vjp=pull, jvp=push, pure=True)

    def value_and_gradient(self, z: plain_np.ndarray, t) -> tuple[float, plain_np.ndarray]:
        with changed(depth=0), plain_np.errstate(all="ignore"):
            value, g = self.plan.prepared.forms["value_and_grad"](self.plan.entered((z, t, *self.rest)))
        return float(value), plain_np.asarray(g).reshape(-1)

    def plain_entries(self, z, t):
        """Return the entries of the Hessian of the negative log-joint."""
        with plain_np.errstate(all="ignore"):
            return self.plan.values(z, t, *self.rest)

    def factor(self, z: plain_np.ndarray, t) -> tuple[Factor, bool]:
        """Return the factor of the Hessian, shifted if it is indefinite, and whether it is not shifted."""
        H = self.plain_entries(z, t)
        if not plain_np.isfinite(H).all():
            raise ConvergenceError(
                f"{self.name}: the Hessian of the log-joint is not finite on the way to the mode; start "
                f"elsewhere"
            )
        diagonal = self.analysis.rows == self.analysis.indices
        shift = 0.0
        while True:
            try:
                return Factor(self.analysis, H + shift * diagonal if shift else H), shift == 0.0
            except NotPositiveDefiniteError:
                largest = float(abs(H).max()) or 1.0
                shift = max(FIRST_SHIFT * largest, SHIFT_FACTOR * shift)
                if not shift < 1e12 * largest:
                    raise

    def start(self, t) -> tuple:
        """Return (point, value, gradient) of the better one of z0 and the last mode."""
        found = [
            (z, *self.value_and_gradient(z, t))
            for z in ([self.z0] if self.last is self.z0 else [self.z0, self.last])
        ]
        good = [s for s in found if plain_np.isfinite(s[1]) and plain_np.isfinite(s[2]).all()]
        if not good:
            raise ConvergenceError(
                f"{self.name}: the log-joint or its gradient is not finite at z0; start elsewhere"
            )
        return min(good, key=lambda s: s[1])

    def accepted(
        self, z: plain_np.ndarray, value: float, g: plain_np.ndarray, s: plain_np.ndarray, decrement: float, t
    ) -> tuple:
        """Return (point, value, gradient, length) of the longest step that decreases the value enough."""
        noise = 1e-14 * max(1.0, abs(value))
        length = 1.0
        while length >= SHORTEST:
            trial = z + length * s.reshape(self.shape)
            new, new_g = self.value_and_gradient(trial, t)
            if new <= value - ENOUGH * length * decrement + noise and plain_np.isfinite(new_g).all():
                return trial, new, new_g, length
            length *= 0.5
        raise ConvergenceError(
            f"{self.name}: no step raises the log-joint, whose gradient there is up to {abs(g).max():.1e}; "
            "it may have a kink or a wrong derivative in the latents"
        )

    def __call__(self, t) -> plain_np.ndarray:
        """Return the mode at the parameters t, both plain."""
        z, value, g = self.start(t)
        factor = None if z is self.z0 else self.last_factor  # a factor serves while the steps shrink
        is_newton, before = True, None  # the expected decrease of the step before
        for _ in range(MOST_STEPS):
            scale = max(1.0, abs(value))
            if factor is not None:
                s, decrement = descent(factor, g)
                shrinkage = 1.0 if before is None else decrement / before
                if before is not None and not 0.0 <= shrinkage <= MOST_SHRINKAGE:
                    factor = None
            if factor is None:
                used, is_newton = self.factor(z, t)
                s, decrement = descent(used, g)
                shrinkage = NEWTON_SHRINKAGE * decrement / scale
                self.last_factor = factor = used if is_newton and self.analysis.is_filled else None
            is_short = float(abs(s).max()) <= SHORT_STEP * max(1.0, float(abs(z).max()))
            if is_newton and is_short and decrement * shrinkage <= SMALL_REST * scale:
                self.last = z + s.reshape(self.shape)
                return self.last.copy()
            z, value, g, length = self.accepted(z, value, g, s, decrement, t)
            before = decrement
            if length < 1.0:
                factor = None
        raise ConvergenceError(
            f"{self.name}: the mode was not found in {MOST_STEPS} Newton steps; start closer, or it has no "
            f"mode"
        )


class Laplace(PickledByCall):
    """The marginal log-likelihood of parameters, made by `prepare_laplace`; call it as
    ``marginal(theta)``."""

    def __init__(self, f: Callable, theta: Any, z0: Any, data: tuple):
        self.given = f, theta, z0, data
        self.name = f"laplace({user_name(f)})"
        if any([is_tracked(x) for x in leaves(data)]):
            raise ArgumentError(
                f"{self.name}: data carry derivatives; make what is differentiated part of theta"
            )
        plain = tree_map(plain_point, theta)
        if isinstance(z0, dict) or hasattr(z0, "_fields"):
            raise ArgumentError(
                f"{self.name}: z0 is {describe_tree(z0)}; wanted is one array of latents: tapegrad.ravel "
                "joins "
                f"those of a tree, and its second result restores the tree in the log-joint"
            )
        z0 = plain_point(z0)
        if any([x is None for x in leaves(plain)]) or z0 is None:
            raise ArgumentError(
                f"{self.name}: vmap and recording hide theta or z0; make it by sparse.prepare_laplace outside"
            )
        z0 = plain_np.array(z0, float) if xp_of(z0) is plain_np else None
        t0, restore = ravel(plain)
        if z0 is None or xp_of(layout_of(t0)) is not plain_np:
            raise ArgumentError(
                f"{self.name}: arrays on a device are not taken; sparse factorisations are computed on the "
                f"host"
            )
        if not z0.size or not t0.size:
            raise ArgumentError(f"{self.name}: theta or z0 holds no number")

        # places among the data are constants, for those of an argument are hidden from a recording
        self.places = [d.copy() if is_array(d) and d.dtype.kind in "iu" else None for d in data]
        places, rest = self.places, (f, *[d for d, k in zip(data, self.places, strict=True) if k is None])

        def energy(z, t, f: Callable, *varying):
            left = iter(varying)
            return -f(restore(t), z, *[next(left) if d is None else d for d in places])

        self.energy, self.rest = energy, rest
        mode = self.mode = LatentMode(self.name, energy, z0, plain_np.asarray(t0, float), rest)

        # f is an argument of each transform, so its captured arrays and its libraries are followed
        slope = along_of(energy)

        def pull(g, out, t):
            along = applied(
                cholesky_solution, mode.entries(out, t), np.reshape(g, (-1,)), analysis=mode.analysis
            )
            return -grad(lambda q, *more: slope(*more[:2], q, *more[2:])[1])(
                t, out, np.reshape(along, mode.shape), *rest
            )

        def push(dt: tuple, out, t):
            moved = along_of(lambda q, out, *more: grad(energy)(out, q, *more))(t, dt[0], out, *rest)[1]
            return -np.reshape(
                applied(
                    cholesky_solution, mode.entries(out, t), np.reshape(moved, (-1,)), analysis=mode.analysis
                ),
                mode.shape,
            )

        self.star = rule(mode.__call__, vjp=pull, jvp=push, pure=True)

    def _made(self) -> tuple:
        return Laplace, self.given

    def is_of_form(self, theta: Any) -> bool:
        """Return whether theta is a tree like the prepared one, with the same shapes and constants."""
        if tree_of(theta) != tree_of(self.given[1]):
            return False
        for x, known in zip(leaves(theta), leaves(self.given[1]), strict=True):
            tracked = is_differentiable(layout_of(x))
            if tracked != is_differentiable(layout_of(known)):
                return False
            if shape(x) != shape(known) if tracked else not plain_np.array_equal(x, known):
                return False
        return True

    def followed_energy(self, z: Any, t: Any) -> Any:
        """Return the negative log-joint; a transform, with a tangent of zero, follows the user's function."""
        zero = plain_np.zeros(self.mode.shape, layout_of(z).dtype)
        return along_of(self.energy)(z, zero, t, *self.rest)[0]

    def __call__(self, theta: Any, has_aux: bool = False) -> Any:
        """Return the marginal log-likelihood; with `has_aux` also (the mode, its standard errors)."""
        t = ravel(theta)[0]
        if not self.is_of_form(theta):
            raise ArgumentError(
                f"{self.name}: theta differs from that of prepare_laplace in its tree, its shapes or its "
                f"constants"
            )
        for d, known in zip(self.given[3], self.places, strict=True):
            if known is not None and not plain_np.array_equal(d, known):
                raise ArgumentError(f"{self.name}: integers among the data have changed; prepare it anew")
        z = self.star(t)
        H, a = self.mode.entries(z, t), self.mode.analysis
        try:
            value = -self.followed_energy(z, t) - 0.5 * applied(sparse_logdet, H, analysis=a)
        except NotPositiveDefiniteError as error:
            raise ConvergenceError(
                f"{self.name}: the Hessian at the mode is not positive definite: {error}"
            ) from error
        value = value + 0.5 * self.mode.z0.size * math.log(2 * math.pi)
        if not has_aux:
            return value
        variances = applied(logdet_derivative, H, no_directions(H), analysis=a)
        own = plain_np.flatnonzero(a.rows == a.indices)
        return value, (z, np.reshape(np.sqrt(np.take(variances, own)), self.mode.shape))


def prepare_laplace(log_joint: Callable, theta: Any, z0: Any, *data: Any) -> Laplace:
    """Prepare Laplace's method for many parameters: pattern, colours and elimination are found once.

    Each call starts at the better one of z0 and the last mode. What log_joint captures counts as constant.
    Integer arrays among the data must not change; other data are read at each call.

    Parameters
    ----------
    log_joint, theta, z0, *data : object
        As for `tapegrad.laplace`.

    Returns
    -------
    Laplace
        ``marginal(theta)`` is the marginal log-likelihood, ``marginal(theta, has_aux=True)`` adds the mode
        and its standard errors. Every transform takes it.

    See Also
    --------
    tapegrad.laplace : For one call.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> y = np.array([1.0, 2.0, 4.0])
    >>> log_joint = lambda s, z: -0.5 * (((y - z) / s) ** 2).sum() - 3 * np.log(s) - 0.5 * (z**2).sum()
    >>> marginal = tg.sparse.prepare_laplace(log_joint, 1.0, np.zeros(3))
    >>> round(float(tg.grad(marginal)(2.0)), 6), round(float(tg.hessian(marginal)(2.0)), 6)
    (0.48, -1.488)
    """
    return Laplace(log_joint, theta, z0, data)


def laplace(log_joint: Callable, theta: Any, z0: Any, *data: Any, has_aux: bool = False) -> Any:
    """Integrate latent variables out of a joint density by Laplace's method.

    The result is exact if the latents are Gaussian given the data. Its derivatives by theta are those of the
    approximation, of any order. They include the change of the mode and of its Hessian, which is sparse.

    Parameters
    ----------
    log_joint : callable
        ``log_joint(theta, z, *data)`` is the logarithm of the joint density of data and latents.
    theta : array, number or tree
        The parameters.
    z0 : array
        Where the search for the mode starts, in the shape of the latents.
    *data : object
        Further arguments, which carry no derivatives.
    has_aux : bool, default False
        Whether the mode and its standard errors are returned as well.

    Returns
    -------
    value : float
        The marginal log-likelihood.
    aux : tuple, with `has_aux`
        The mode and the standard errors of the latents at these parameters, in the shape of z0.

    Raises
    ------
    ArgumentError
        If data carry derivatives.
    ConvergenceError
        If no mode is found, or the log-joint is not finite at z0.
    NotPositiveDefiniteError
        If the log-joint does not depend on some latents.

    See Also
    --------
    tapegrad.sparse.prepare_laplace : For many calls, with less work in each.

    Examples
    --------
    >>> import numpy as np, tapegrad as tg
    >>> y = np.array([1.0, 2.0, 4.0])
    >>> normal = lambda e, s: (-0.5 * (e / s) ** 2 - np.log(s) - 0.5 * np.log(2 * np.pi)).sum()
    >>> f = lambda s: tg.laplace(lambda s, z, y: normal(y - z, s + 0 * y) + normal(z, 1.0), s, np.zeros(3), y)
    >>> exact = lambda s: normal(y, np.sqrt(1 + s**2) + 0 * y)
    >>> bool(abs(f(2.0) - exact(2.0)) < 1e-12), bool(abs(tg.grad(f)(2.0) - tg.grad(exact)(2.0)) < 1e-12)
    (True, True)
    """
    return Laplace(log_joint, theta, z0, data)(theta, has_aux)
