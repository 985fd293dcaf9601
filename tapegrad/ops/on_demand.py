"""Operations that are declared on first use, or with tapegrad.scipy, so that `import tapegrad` stays
fast.

Most implement SciPy's names, some NumPy's. `ops.protocols.function_for` loads them for a name that the
families do not have."""

from .._core.registry import LoadTransaction

with LoadTransaction():
    from . import (  # noqa: F401
        coefficients,
        cosine_transforms,
        histograms,
    )
    from .linalg import (  # noqa: F401
        equations,
        matrix_functions,
        schur,
    )
    from .special import (  # noqa: F401
        bessel_orders,
        bessel_relatives,
        derivative_tables,
        distribution_functions,
        ellipsoidal,
        elliptic,
        hypergeometric,
        integrals,
        kolmogorov,
        legendre,
        mathieu_spheroidal,
        noncentral,
        orthogonal_polynomials,
        parabolic_cylinder,
    )
