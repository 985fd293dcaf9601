"""NumPy's names, for arrays and Variables alike: `from tapegrad import numpy as np`.

Every public name of numpy is here.  Functions with a derivative rule differentiate; others run on what no transform watches and
raise `NoRuleError` for what one does.  Constants, types and modules without twin are NumPy's own."""

import numpy as _numpy

from ._faces import Joined as _Joined
from ._faces import array_class as _array_class
from ._faces import fill as _fill
from ._faces import twin as _twin

linalg = _twin("tapegrad.numpy.linalg", _numpy.linalg)
fft = _twin("tapegrad.numpy.fft", _numpy.fft)
ndarray = _array_class(_numpy.ndarray)
r_, c_ = _Joined(_numpy.r_, 0, 1, -1), _Joined(_numpy.c_, -1, 2, 0)
_fill(globals(), _numpy)
