"""A search for silent wrong numbers at special points of the calls of the tables: zeros of either sign, equal
and repeated elements, integers, denormal numbers. Each seed draws other points."""

import calls_further
import calls_polynomial
import calls_signal
import calls_systems
import numpy as np
import pytest
from special_points import faults

SEEDS = [pytest.param(0, id="some"), *[pytest.param(n, marks=pytest.mark.long) for n in range(1, 6)]]
# Where a function has no one derivative, its value is rounding noise, or the lengths are those of untrimmed
# series: ties of roots and orders of filters, poles of tan, systems with large numbers, equal poles, ties of
# medians, a sampling rate of 0
NOT_SMOOTH = {
    "buttord",
    "CZT w",
    "iircomb",
    "place",
    "polydiv",
    "ss mul",
    "freqresp ss",
    "residuez",
    "iirdesign",
    "to_discrete",
    "medfilt",
    "medfilt2d",
    "ss2zpk",
    "stft by fs",
    "lombscargle mean",
    "coherence",
    "order_filter",
    "sawtooth",
    "spectrogram by fs",
    "freqz",
}
CALLS = [
    c
    for module in (calls_polynomial, calls_systems, calls_signal, calls_further)
    for c in module.CALLS
    if c[0] not in NOT_SMOOTH
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", SEEDS)
def test_special_points(seed):
    some = CALLS[::16] if seed == 0 else CALLS[seed - 1 :: 5]
    with np.errstate(all="ignore"):
        found = [fault for call in some for fault in faults(call, seed, 2 if seed == 0 else 6)]
    assert not found, "\n".join(found)
