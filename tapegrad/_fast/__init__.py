"""All generated texts and short ways: what the engine does sooner where it can.  It runs without this folder (TAPEGRAD_FAST=0).

entries.py: the texts of the functions by which operations are called.  regions.py, products.py: other bodies of functions marked
`hook`, for views, elements, rows written, products.  Each of these does what the function does without it, and falls back on
that for all but the common case, which is: NumPy, one level, no surprises."""

from . import entries, products, regions

__all__ = ["entries", "products", "regions"]
