"""A generated kernel as operations of the array tape, closed under differentiation.

Let f be the traced function of theta (rows, samples), n directions v1 .. vn of the same shape, and W a cotangent of f.  Two
families hold all that any nesting of transforms asks for:

    F_n(theta, v1 .. vn)    = D^n f [v1, .., vn]                  n times forward mode on the program
    R_n(theta, v1 .. vn, W) = gradient of <W, F_n> by theta       and one reverse sweep

    <W, F_n> by theta: R_n(.., W)          by v_i: R_{n-1}(without v_i, W)
    <U, R_n> by theta: R_{n+1}(.., U, W)   by v_i: R_n(v_i = U, W)           by W: F_{n+1}(.., U)

and forward rules in the same way.  Where f is one number for each sample W is left out and multiplied outside.  `VG` is F_0 and
R_0 in one launch.  Each program is derived, and each kernel compiled, when it is first needed."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from .._array import xp_of
from .._primitive import Primitive, bind
from ..errors import ArgumentError
from ._cpu import Launcher
from ._differentiate import forward, reverse
from ._lower import lowered
from ._program import Program


class Family:
    """All derivatives of one traced function.  `scalar`: one number for each sample; `reject`: where it is no finite number the
    derivatives are 0, and nan becomes -inf."""

    def __init__(self, name: str, base: Callable[[tuple], Program], scalar: bool, reject: bool):
        self.name, self.base, self.scalar, self.reject = name, base, scalar, reject
        self.lock = threading.RLock()
        self.programs: dict = {}
        self.launchers: dict = {}
        self.prims: dict = {}

    # --- programs and kernels ---

    def program(self, signature: tuple, n: int) -> Program:
        """n times forward."""
        key = signature, n
        if key not in self.programs:
            self.programs[key] = self.base(signature) if n == 0 else forward(self.program(signature, n - 1), 0)
        return self.programs[key]

    def derived(self, kind: str, n: int, signature: tuple) -> Program:
        p = self.program(signature, n)
        values = self.program(signature, 0).outputs
        g, inputs, gradient = p.g, list(p.inputs), []
        made = p
        if kind != "F":
            seeds = [g.one] * len(p.outputs)
            if not self.scalar:
                seeds = g.parameters_like(sum(inputs), p.outputs)
                inputs.append(sum(p.rows_of(k) for k in range(len(p.groups))))
            made, gradient = reverse(p, p.thetas(0), seeds)
        outputs = list(p.outputs)
        if self.reject:
            (v,) = values
            good = g.compare("lt", g.node("abs", v), g.const(np.inf))
            gradient = [g.select(good, d, g.zero) for d in gradient]
            outputs = [g.select(g.isnan(v), g.const(-np.inf), v) if n == 0 else g.select(good, o, g.zero) for o in outputs]
        groups = {"F": [outputs], "R": [gradient], "VG": [outputs, gradient]}[kind]
        return Program(g, inputs, p.rows, made.loops, groups)

    def launcher(self, kind: str, n: int, signature: tuple, dtype: np.dtype, per_sample: bool, make: Callable = Launcher) -> Any:
        key = kind, n, signature, dtype, per_sample, make
        found = self.launchers.get(key)
        if found is None:
            with self.lock:
                found = self.launchers.get(key)
                if found is None:
                    low = lowered(self.derived(kind, n, signature))
                    low.name = f"{self.name}.{kind}{n}"
                    found = self.launchers[key] = make(low, dtype, per_sample)
        return found

    # --- operations of the tape ---

    def apply(self, kind: str, n: int, arrays: tuple, run: Callable) -> Any:
        """The operation on (theta, aux, directions..., W); `run(kind, n, arrays)` launches it on plain arrays."""
        return bind(self.prim(kind, n), arrays, {"run": run})

    def prim(self, kind: str, n: int) -> Primitive:
        key = kind, n
        found = self.prims.get(key)
        if found is None:
            prim = Primitive(f"{self.name}_{kind}{n}", lambda *arrays, run: run(kind, n, arrays), multi=2 if kind == "VG" else 0)
            prim.holomorphic, prim.joint = False, True
            prim.keep_spec = lambda active: (tuple(range(len(active))), True)
            pull = {"F": self.pull_value, "R": self.pull_gradient, "VG": self.pull_both}[kind]
            push = {"F": self.push_value, "R": self.push_gradient, "VG": self.push_both}[kind]
            prim.vjp = (lambda g, out, need, *arrays, run: pull(n, run, g, out, need, arrays),)
            prim.jvp = lambda t, out, *arrays, run: push(n, run, t, out, arrays)
            found = self.prims[key] = prim
        return found

    def parts(self, arrays: tuple, n: int) -> tuple:
        """theta, aux, directions, and W as a tuple of one or none."""
        return arrays[0], arrays[1], arrays[2 : 2 + n], arrays[2 + n :]

    def checked(self, need: tuple) -> None:
        if need[1]:
            raise ArgumentError(f"{self.name}: a generated kernel has no derivative by its data or whole-number arguments")

    def F(self, run, theta, aux, vs):
        return self.apply("F", len(vs), (theta, aux, *vs), run)

    def R(self, run, theta, aux, vs, W):
        if self.scalar:
            r = self.apply("R", len(vs), (theta, aux, *vs), run)
            return r if W is None else r * W.reshape(1, -1)
        return self.apply("R", len(vs), (theta, aux, *vs, W), run)

    def pull_value(self, n, run, g, out, need, arrays):
        self.checked(need)
        theta, aux, vs, _ = self.parts(arrays, n)
        terms = [self.R(run, theta, aux, vs, g) if need[0] else None, None]
        terms += [self.R(run, theta, aux, vs[:i] + vs[i + 1 :], g) if need[2 + i] else None for i in range(n)]
        return tuple(terms)

    def push_value(self, n, run, t, out, arrays):
        theta, aux, vs, _ = self.parts(arrays, n)
        terms = [self.F(run, theta, aux, (*vs, t[0]))] if t[0] is not None else []
        terms += [self.F(run, theta, aux, replaced(vs, i, t[2 + i])) for i in range(n) if t[2 + i] is not None]
        return added(terms)

    def pull_gradient(self, n, run, U, out, need, arrays):
        self.checked(need)
        theta, aux, vs, W = self.parts(arrays, n)
        w = W[0] if W else None
        terms = [self.R(run, theta, aux, (*vs, U), w) if need[0] else None, None]
        terms += [self.R(run, theta, aux, replaced(vs, i, U), w) if need[2 + i] else None for i in range(n)]
        if W:
            terms.append(self.F(run, theta, aux, (*vs, U)) if need[-1] else None)
        return tuple(terms)

    def push_gradient(self, n, run, t, out, arrays):
        theta, aux, vs, W = self.parts(arrays, n)
        w = W[0] if W else None
        terms = [self.R(run, theta, aux, (*vs, t[0]), w)] if t[0] is not None else []
        terms += [self.R(run, theta, aux, replaced(vs, i, t[2 + i]), w) for i in range(n) if t[2 + i] is not None]
        if W and t[-1] is not None:
            terms.append(self.R(run, theta, aux, vs, t[-1]))
        return added(terms)

    def pull_both(self, n, run, g, out, need, arrays):
        self.checked(need)
        theta, aux = arrays
        terms = []
        if g[0] is not None:
            terms.append(out[1] * g[0].reshape(1, -1))
        if g[1] is not None:
            terms.append(self.R(run, theta, aux, (g[1],), None))
        return added(terms), None

    def push_both(self, n, run, t, out, arrays):
        theta, aux = arrays
        return (out[1] * t[0]).sum(axis=0), self.R(run, theta, aux, (t[0],), None)


def replaced(vs: tuple, i: int, v: Any) -> tuple:
    return vs[:i] + (v,) + vs[i + 1 :]


def added(terms: list) -> Any:
    out = None
    for x in terms:
        out = x if out is None else out + x
    return out


def library(*arrays: Any) -> Any:
    for x in arrays:
        if xp_of(x) is not np:
            return xp_of(x)
    return np
