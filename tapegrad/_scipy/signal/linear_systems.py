"""scipy.signal: the feedback that places the poles of a linear system."""

import numpy as plain_np
import scipy.signal as sig

from ... import numpy as np
from ...ops.declare import shape
from ...ops.nondifferentiable import at_users_line
from ..namespaces import as_float_array, bare, refusal_text, tracked_among
from .filters import SIGNAL


@SIGNAL.rule(sig.place_poles)
def place_poles(A, B, poles, method="YT", rtol=0.001, maxiter=30):
    """Of one input the gain is e K^-1 p(A), with K the columns b, A b, ..; with an input for each state it is
    B^-1 (A - P)."""
    found = at_users_line(sig.place_poles, bare(A), bare(B), bare(poles), method, rtol, maxiter)
    like = tracked_among(A, B, poles)
    A, B, p = [as_float_array(x, like) for x in (A, B, poles)]
    n, inputs = shape(B)
    order = [int(abs(bare(p) - r).argmin()) for r in found.requested_poles]
    if inputs != 1:
        raise refusal_text(
            "scipy.signal.place_poles",
            "with several inputs the gain is not unique",
            "one input, or tapegrad.implicit",
        )
    columns, value, eye = [B[:, 0]], None, plain_np.eye(n)
    for k in range(n):
        columns.append(A @ columns[-1])
        factor = A - p[order[k]] * eye
        value = factor if value is None else value @ factor
    last = np.linalg.solve(np.stack(columns[:n], 1).T, eye[-1])
    gain = np.reshape(last @ value, (1, -1))
    found.gain_matrix = gain.real if gain.dtype.kind == "c" else gain
    del found.X  # (which is made of eigenvectors of any length)
    found.computed_poles = found.requested_poles = np.stack([p[k] for k in order])
    return found
