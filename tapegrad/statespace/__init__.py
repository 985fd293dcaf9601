"""Linear Gaussian state space models: filter, likelihood, smoother, forecasts and maximum likelihood.

Structural models, ARIMA, vector autoregressions and dynamic factors are built on them."""

from ._constraints import Constraint as Constraint
from ._constraints import correlation as correlation
from ._constraints import interval as interval
from ._constraints import invertible as invertible
from ._constraints import positive as positive
from ._constraints import stationary as stationary
from ._constraints import unconstrained as unconstrained
from ._fit import fit as fit
from ._load import load as load
from ._model import LinearGaussian as LinearGaussian
from ._model import Start as Start
from ._model import arma as arma
from ._model import local_level as local_level
from ._model import local_linear_trend as local_linear_trend
from ._observations import Observations as Observations
from ._panel import ManyFits as ManyFits
from ._panel import fit_many as fit_many
from .filters.arrays import FilterResult as FilterResult
from .filters.arrays import ForecastResult as ForecastResult
from .filters.compiled import forecast as forecast
from .filters.compiled import kalman_filter as filter  # noqa: F401
from .filters.compiled import loglik as loglik
from .filters.nonlinear import Nonlinear as Nonlinear
from .filters.nonlinear import extended as extended
from .filters.nonlinear import unscented as unscented
from .filters.simulate import Draws as Draws
from .filters.simulate import simulate as simulate
from .filters.simulate import simulate_smoother as simulate_smoother
from .filters.smoother import SmootherResult as SmootherResult
from .filters.smoother import smooth as smooth
from .models.factors import dynamic_factor as dynamic_factor
from .models.sarimax import sarimax as sarimax
from .models.structural import ar as ar
from .models.structural import cycle as cycle
from .models.structural import level as level
from .models.structural import noise as noise
from .models.structural import regression as regression
from .models.structural import seasonal as seasonal
from .models.structural import trend as trend
from .models.sums import Structural as Structural
from .models.unobserved import unobserved_components as unobserved_components
from .models.vector import var as var
from .models.vector import varmax as varmax
from .results.news import News as News
from .results.news import Surprises as Surprises
from .results.result import FitResult as FitResult
