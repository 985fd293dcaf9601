"""Operations that are declared when one of them is needed, or with tapegrad.scipy: `import tapegrad` does not wait for them.

Most answer for SciPy's names, some for NumPy's; `_protocols.function_for` loads them when it meets a name that the families do not know."""

from ..._late import Whole

with Whole():
    from . import bessels as bessels
    from . import coefficients as coefficients
    from . import cumulative as cumulative
    from . import cylinders as cylinders
    from . import eigenfunctions as eigenfunctions
    from . import ellipsoidal as ellipsoidal
    from . import elliptic as elliptic
    from . import equations as equations
    from . import factors as factors
    from . import histograms as histograms
    from . import hypergeometric as hypergeometric
    from . import kolmogorov as kolmogorov
    from . import legendre as legendre
    from . import matrices as matrices
    from . import noncentral as noncentral
    from . import orders as orders
    from . import polynomials as polynomials
    from . import powers as powers
    from . import tables as tables
    from . import transforms as transforms
