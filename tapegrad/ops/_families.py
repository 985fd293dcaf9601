"""All files of operations, imported for what they register."""

from . import bessel as bessel
from . import corners as corners
from . import creation as creation
from . import degenerate as degenerate
from . import elementwise as elementwise
from . import far_out as far_out
from . import fft as fft
from . import gamma as gamma
from . import gates as gates
from . import gathering as gathering
from . import indexing as indexing
from . import linalg as linalg
from . import norms as norms
from . import one_triangle as one_triangle
from . import picking as picking
from . import products as products
from . import reductions as reductions
from . import shaping as shaping
from . import sorting as sorting
from . import special as special
from . import spectral as spectral
from . import statistics as statistics
from . import structured as structured
from . import views as views
from . import writing as writing
from . import zero_derivative as zero_derivative
