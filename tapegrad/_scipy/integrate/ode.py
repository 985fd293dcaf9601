"""scipy.integrate.ode and complex_ode: initial values that are taken forward call by call.

The value is SciPy's, whose integrator goes on from call to call; the derivative is that of a Runge-Kutta
method with smaller errors, from the state of the last call."""

from collections.abc import Callable

import scipy.integrate as itg

from ... import numpy as np
from ..._core.errors import ArgumentError, callers_line
from ..._transforms.rebind import once_more
from ...ops.declare import shape
from ..namespaces import (
    Carrier,
    CarrierType,
    as_float_array,
    bare,
    holds_tracked,
    kind_of,
    lost_imaginary_part,
    plain_argument,
    with_derivative_of,
)
from ..optimize.callback_search import ComposedFunction
from .ivp_by_steps import solve_ivp

FINE = {"rtol": 1e-10, "atol": 1e-12}


class ode(Carrier, metaclass=CarrierType):
    _theirs = itg.ode

    def __init__(self, f: Callable, jac=None):
        self.f = f
        self.f_params = ()
        self.t = 0.0
        self._y = None
        self.moves = False
        self.stiff, self.jac_params = False, ()
        of = lambda t, y: self.at(t, y, *map(bare, self.f_params))
        # (vode of SciPy 1.17 gives the parameters of f to jac)
        slopes = lambda t, y: bare(as_float_array(jac(t, y, *map(bare, self.jac_params))))
        self.real = type(self)._theirs(of, None if jac is None else slopes)

    def at(self, t, y, *params):
        """The plain slope; a function that captured what is tracked is found out by it."""
        slope = as_float_array(self.f(t, y, *params))
        self.moves = self.moves or holds_tracked(slope)
        return bare(slope)

    def _tracked(self) -> bool:
        return holds_tracked(self._y, self.t, self.f_params)

    def _plain(self):
        return self.real

    y = property(lambda self: self._y)

    def set_initial_value(self, y, t=0.0):
        self._y, self.t = np.reshape(as_float_array(y), -1), t
        self.real.set_initial_value(bare(self._y), bare(t))
        return self

    def set_integrator(self, name, **settings):
        self.stiff = name == "lsoda" or settings.get("method") == "bdf"
        self.real.set_integrator(name, **plain_argument(settings))
        return self

    def set_f_params(self, *params):
        self.f_params = params
        return self

    def set_jac_params(self, *params):
        self.jac_params = params
        return self

    def set_solout(self, solout):
        raise ArgumentError(
            f"{callers_line()}: scipy.integrate.{type(self).__name__}.set_solout has no derivative; use "
            f"solve_ivp(events=)"
        )

    def integrate(self, t, step=False, relax=False):
        start, before = self.t, self._y
        if kind_of(t) == "c":
            raise lost_imaginary_part(f"scipy.integrate.{type(self).__name__}.integrate")
        value = self.real.integrate(bare(t), step, relax)
        if self.moves or holds_tracked(before, start, t, self.f_params):
            if step or relax or not self.successful():
                raise ArgumentError(
                    f"{callers_line()}: scipy.integrate.{type(self).__name__}.integrate has a derivative "
                    "where it reaches t, without step= and relax=; use solve_ivp"
                )
            on = ComposedFunction(lambda f: lambda t, y: f(t, y, *self.f_params), self.f)
            with once_more(on) as (on,):
                run = solve_ivp(on, (start, t), before, "Radau" if self.stiff else "DOP853", **FINE)
            exact = run.y[:, shape(run.y)[1] - 1]
            value = with_derivative_of(value, exact)
        self._y, self.t = value, self.real.t if step or relax or not holds_tracked(t) else t
        return self._y

    def successful(self):
        return self.real.successful()

    def get_return_code(self):
        return self.real.get_return_code()


class complex_ode(ode, metaclass=CarrierType):
    _theirs = itg.complex_ode

    def set_initial_value(self, y, t=0.0):
        return ode.set_initial_value(self, np.astype(as_float_array(y), complex), t)
