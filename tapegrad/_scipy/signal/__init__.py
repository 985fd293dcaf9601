"""scipy.signal.  SciPy's own code is followed, down to what is compiled: `filters`, `splines` and `peaks`
have the rules of that."""

import scipy.signal as sig

from ..namespaces import SciPyNamespace, present
from . import linear_systems as linear_systems
from . import peaks as peaks
from . import responses as responses
from . import splines as splines
from .filters import FOLLOWED, SIGNAL

SIGNAL.constant(
    *present(sig, (
        "argrelextrema", "argrelmax", "argrelmin", "check_COLA", "check_NOLA", "choose_conv_method",
        "correlation_lags", "find_peaks_cwt",
        "max_len_seq", "square", "unit_impulse",
    )),
)  # fmt: skip
SIGNAL.constant(sig.buttap, sig.besselap)
SIGNAL.refuse("the extremal frequencies are found by an exchange", "firls, or firwin2", sig.remez)
SIGNAL.follow(FOLLOWED)
for _name in "Continuous Discrete".split():
    for _kind in "TransferFunction ZerosPolesGain StateSpace".split():
        _class = getattr(sig._ltisys, _kind + _name)
        SIGNAL.rule(_class)(FOLLOWED.klass(_class))
SIGNAL.rule(sig._ltisys.LinearTimeInvariant)(FOLLOWED.klass(sig._ltisys.LinearTimeInvariant))
WINDOWS = SciPyNamespace(sig.windows, "cupyx.scipy.signal.windows", listed=False)
WINDOWS.rules.update(SIGNAL.rules)
WINDOWS.follow(FOLLOWED)

stand_in = SIGNAL.stand_in("tapegrad.scipy.signal")
stand_in.windows = WINDOWS.stand_in("tapegrad.scipy.signal.windows")
