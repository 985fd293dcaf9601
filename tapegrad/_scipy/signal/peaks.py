"""scipy.signal: peaks.  Their places are constant, their heights and widths are not."""

import numpy as plain_np
import scipy.signal as sig

from ... import numpy as np
from ...ops.nondifferentiable import at_users_line
from ..namespaces import as_float_array, bare, tracked_among
from .filters import SIGNAL


@SIGNAL.rule(sig.find_peaks)
def find_peaks(
    x, height=None, threshold=None, distance=None, prominence=None, width=None, wlen=None, rel_height=0.5,
    plateau_size=None
):  # fmt: skip
    x = as_float_array(x)
    given = [
        bare(v) for v in (height, threshold, distance, prominence, width, wlen, rel_height, plateau_size)
    ]
    peaks, found = at_users_line(sig.find_peaks, bare(x), *given)
    heights = np.take(x, peaks)
    if "peak_heights" in found:
        found["peak_heights"] = heights
    if "left_thresholds" in found:
        found["left_thresholds"], found["right_thresholds"] = [
            heights - np.take(x, peaks + d) for d in (-1, 1)
        ]
    if "prominences" in found:
        found["prominences"] = heights - base_of(x, found["left_bases"], found["right_bases"])
    if "widths" in found:
        names = ("widths", "width_heights", "left_ips", "right_ips")
        data = [found[n] for n in ("prominences", "left_bases", "right_bases")]
        found.update(zip(names, peak_widths(x, peaks, given[6], data), strict=True))
    return peaks, found


def base_of(x, left, right):
    return np.maximum(np.take(x, left), np.take(x, right))


@SIGNAL.rule(sig.peak_prominences)
def peak_prominences(x, peaks, wlen=None):
    x, peaks = as_float_array(x), plain_np.asarray(bare(peaks))
    _, left, right = at_users_line(sig.peak_prominences, bare(x), peaks, bare(wlen))
    return np.take(x, peaks) - base_of(x, left, right), left, right


@SIGNAL.rule(sig.peak_widths)
def peak_widths(x, peaks, rel_height=0.5, prominence_data=None, wlen=None):
    """On the line between the two samples where the signal crosses the height."""
    like = tracked_among(x, prominence_data, rel_height)
    x, peaks = as_float_array(x, like), plain_np.asarray(bare(peaks))
    if prominence_data is None:
        prominence_data = peak_prominences(x, peaks, wlen)
    prominences, *bases = [bare(v) for v in prominence_data]
    known = (plain_np.asarray(prominences, float), *bases)
    found = at_users_line(sig.peak_widths, bare(x), peaks, bare(rel_height), known)
    height = np.take(x, peaks) - prominence_data[0] * rel_height
    ends = []
    for places, inward in ((plain_np.floor(found[2]), 1), (plain_np.ceil(found[3]), -1)):
        low, high = np.take(x, places.astype(int)), np.take(x, places.astype(int) + inward)
        crosses = low < height
        ends.append(
            places + inward * np.where(crosses, (height - low) / np.where(crosses, high - low, 1.0), 0.0)
        )
    return ends[1] - ends[0], height, *ends
