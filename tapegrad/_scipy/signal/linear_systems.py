"""scipy.signal: linear systems by their coefficients, zeros or states, their responses and conversions."""

import numpy as plain_np
import scipy.signal as sig

from ... import numpy as np
from ...ops.declare import shape
from ...ops.nondifferentiable import at_users_line
from ..namespaces import Namespace, array, bare, refusal, tracked
from .filters import FOLLOWED, SIGNAL

for _name in """
    tf2ss ss2tf zpk2ss ss2zpk abcd_normalize cont2discrete
    lsim impulse step bode freqresp dlsim dimpulse dstep dbode dfreqresp
    residue residuez invres invresz unique_roots
    cheb1ap cheb2ap ellipap buttord cheb1ord cheb2ord ellipord band_stop_obj findfreqs iirdesign iircomb gammatone
    kaiserord firwin firwin2 firls firwin_2d minimum_phase savgol_coeffs get_window closest_STFT_dual_window envelope czt_points
    spline_filter whittaker_henderson
""".split():
    _f = getattr(sig, _name, None)  # (not every SciPy has them all)
    if _f is not None:
        SIGNAL.rule(_f)(FOLLOWED.function(_f))
WINDOWS = Namespace(sig.windows, "cupyx.scipy.signal.windows", listed=False)
for _name in sig.windows.__all__:
    _f = getattr(sig.windows, _name)
    if _f not in SIGNAL.rules:
        WINDOWS.rule(_f)(FOLLOWED.function(_f))
CLASSES = (
    "LinearTimeInvariant lti dlti TransferFunction TransferFunctionContinuous TransferFunctionDiscrete ZerosPolesGain "
    "ZerosPolesGainContinuous ZerosPolesGainDiscrete StateSpace StateSpaceContinuous StateSpaceDiscrete"
).split()
for _c in (*[getattr(sig._ltisys, n) for n in CLASSES], sig.CZT, sig.ZoomFFT, sig.ShortTimeFFT):
    SIGNAL.rule(_c)(FOLLOWED.klass(_c))


@SIGNAL.rule(sig.place_poles)
def place_poles(A, B, poles, method="YT", rtol=0.001, maxiter=30):
    """Of one input the gain is e K^-1 p(A), with K the columns b, A b, ..; with an input for each state it is B^-1 (A - P)."""
    found = at_users_line(sig.place_poles, bare(A), bare(B), bare(poles), method, rtol, maxiter)
    like = next(x for x in (A, B, poles) if tracked(x))
    A, B, p = [array(x, like) for x in (A, B, poles)]
    n, inputs = shape(B)
    order = [int(abs(bare(p) - r).argmin()) for r in found.requested_poles]
    if inputs != 1:
        raise refusal("scipy.signal.place_poles", "with several inputs the gain is not unique", "one input, or tapegrad.implicit")
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
