"""Imports all families of operations, which register themselves."""

from . import (  # noqa: F401
    creation,
    einsum,
    elementwise,
    fft,
    names,
    nondifferentiable,
    piecewise,
    products,
    reductions,
    scans,
    shaping,
    sorting,
    statistics,
    zero_derivative,
)
from .indexing import (  # noqa: F401
    gathering,
    hidden_regions,
    overlaps,
    padding,
    regions,
    traced_indices,
    traced_masks,
    views,
    writes,
)
from .linalg import (  # noqa: F401
    block_matrices,
    decompositions,
    degenerate_spectra,
    determinants,
    factorizations,
    hermitian,
    norms,
)
from .special import (  # noqa: F401
    asymptotic,
    bessel,
    error_functions,
    gamma,
    incomplete,
    zeta,
)
