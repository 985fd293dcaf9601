"""Sums without rounding: each number is added to integers of 32 binary digits each, which add up exactly.

So the result does not depend on the order of the terms, nor on how they lie on ranks. It is the sum rounded
once."""

import math

import numpy as np

DIGITS = 32
LOWEST = -1126  # the exponent of the first binary digit: that of the least double, as 53 digits
LIMBS = (1024 - LOWEST) // DIGITS + 3  # of 64 bits, so that 2**30 terms and more do not overflow
MASK = (1 << DIGITS) - 1
SPECIAL = 3  # further integers: how many are nan, +inf, -inf


def exact_bins(x):
    """The sum of x along its first axis as integers, shape (LIMBS + SPECIAL, n).

    A complex number counts as two."""
    x = np.ascontiguousarray(x).reshape(len(x), math.prod(x.shape[1:]))
    x = (x.view(x.real.dtype) if x.dtype.kind == "c" else x).astype(float)
    bins = np.zeros((LIMBS + SPECIAL, x.shape[1]), np.int64)
    columns = np.broadcast_to(np.arange(x.shape[1]), x.shape)
    for n, is_special in enumerate((np.isnan(x), np.isposinf(x), np.isneginf(x))):
        bins[LIMBS + n] = is_special.sum(0)
    mantissa, exponent = np.frexp(np.where(np.isfinite(x), x, 0.0))
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    limb, offset = np.divmod(exponent - 53 - LOWEST, DIGITS)
    offset = offset.astype(np.int64)
    for k, part in enumerate((whole & MASK, whole >> DIGITS)):  # each fits, moved by up to 31 digits
        moved = part << offset
        np.add.at(bins, (limb + k, columns), moved & MASK)
        np.add.at(bins, (limb + k + 1, columns), moved >> DIGITS)
    return bins


def rounded(bins, shape: tuple, dtype):
    """The numbers for which the integers stand."""
    found = np.zeros(bins.shape[1])
    for n in range(bins.shape[1]):
        nan, above, below = (int(b) for b in bins[LIMBS:, n])
        if nan or above or below:
            found[n] = np.nan if nan or (above and below) else np.inf if above else -np.inf
            continue
        total = sum([int(b) << (DIGITS * k) for k, b in enumerate(bins[:LIMBS, n]) if b])
        try:
            found[n] = total / (1 << -LOWEST)
        except OverflowError:
            found[n] = np.inf if total > 0 else -np.inf
    real = np.empty(0, dtype).real.dtype
    return found.astype(real).view(dtype).reshape(shape)
