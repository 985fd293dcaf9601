"""Operations that are declared on first use, or with tapegrad.scipy, so that `import tapegrad` stays
fast.

Most implement SciPy's names, some NumPy's. `ops.protocols.function_for` loads them for a name that the
families do not have."""

from .._core.registry import TableTransaction

with TableTransaction():
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
