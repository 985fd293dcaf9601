"""All generated texts and short ways: what the engine does sooner where it can.  It runs without this folder (TAPEGRAD_FAST=0).

entries.py: the texts of the functions by which operations are called.  numbers.py: rules that sum at once.  regions.py,
products.py, stacks.py: other bodies of functions marked `hook`, for views, elements, rows written, products, lists of numbers.
Each of these does what the function does without it, and falls back on that for all but the common case, which is: NumPy, one
level, no surprises."""

from . import entries, numbers, products, regions, stacks

__all__ = ["entries", "numbers", "products", "regions", "stacks"]
