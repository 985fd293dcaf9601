"""Optimisation with exact derivatives: SciPy's optimisers for one problem, a batched one for many."""

from ._constrained import constrained_minimum as constrained_minimum
from ._estimates import CurveFit as CurveFit
from ._estimates import Estimates as Estimates
from ._estimates import FitResult as FitResult
from ._estimates import Predictions as Predictions
from ._many import ManyResult as ManyResult
from ._many import minimize_many as minimize_many
from ._minimize import minimize as minimize
from ._objective import Objective as Objective
from ._prepared import PreparedMinimize as PreparedMinimize
from ._prepared import prepare_minimize as prepare_minimize
from ._propagation import Propagated as Propagated
from ._residuals import curve_fit as curve_fit
from ._residuals import least_squares as least_squares
from ._residuals import root as root
from ._residuals_many import ManyFits as ManyFits
from ._residuals_many import curve_fit_many as curve_fit_many
from ._residuals_many import least_squares_many as least_squares_many
