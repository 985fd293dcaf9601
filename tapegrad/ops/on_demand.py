"""Operations that are declared when one of them is needed, or with tapegrad.scipy: `import tapegrad` does not wait for them.

Most answer for SciPy's names, some for NumPy's; `_protocols.function_for` loads them when it meets a name that the families do not know."""

from .._core.registry import Whole

with Whole():
    from . import coefficients as coefficients
    from . import cosine_transforms as cosine_transforms
    from . import histograms as histograms
    from .linalg import equations as equations
    from .linalg import matrix_functions as matrix_functions
    from .linalg import schur as schur
    from .special import bessel_orders as bessel_orders
    from .special import bessel_relatives as bessel_relatives
    from .special import derivative_tables as derivative_tables
    from .special import distribution_functions as distribution_functions
    from .special import ellipsoidal as ellipsoidal
    from .special import elliptic as elliptic
    from .special import hypergeometric as hypergeometric
    from .special import integrals as integrals
    from .special import kolmogorov as kolmogorov
    from .special import legendre as legendre
    from .special import mathieu_spheroidal as mathieu_spheroidal
    from .special import noncentral as noncentral
    from .special import orthogonal_polynomials as orthogonal_polynomials
    from .special import parabolic_cylinder as parabolic_cylinder
