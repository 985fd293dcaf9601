"""scipy.fftpack: SciPy's own code, on the transforms of scipy.fft."""

from typing import Any

import scipy.fftpack

from .._dispatch.faces import faces_of
from ..scipy import fft
from .followed import Follower

# the second name: of SciPy 1.18 on
FOLLOWED = Follower("scipy.fftpack", **{"scipy.fft._pocketfft": fft, "scipy.fft._duccfft": fft})
stand_in: Any = faces_of("tapegrad.scipy.fftpack", scipy.fftpack)
for _name in "dct idct dst idst dctn idctn dstn idstn fft ifft fft2 ifft2 fftn ifftn".split():
    setattr(stand_in, _name, FOLLOWED.function(getattr(scipy.fftpack, _name)))
