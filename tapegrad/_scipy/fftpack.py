"""scipy.fftpack: SciPy's own code, on the transforms of scipy.fft."""

import scipy.fftpack

from ..scipy import fft
from .followed import Follower
from .namespaces import SciPyNamespace

FFTPACK = SciPyNamespace(scipy.fftpack)
FFTPACK.refuse("its numbers are packed", "scipy.fft.rfft", scipy.fftpack.rfft, scipy.fftpack.irfft)
FFTPACK.follow(Follower("scipy.fftpack", **{"scipy.fft._pocketfft": fft}))
stand_in = FFTPACK.stand_in("tapegrad.scipy.fftpack")
