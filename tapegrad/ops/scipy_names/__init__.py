"""Operations of SciPy's names that are declared with tapegrad.scipy, when a function is met that uses SciPy: `import tapegrad` does not
wait for them."""

from . import bessels as bessels
from . import cumulative as cumulative
from . import elliptic as elliptic
from . import equations as equations
from . import matrices as matrices
from . import orders as orders
from . import polynomials as polynomials
from . import powers as powers
from . import transforms as transforms
