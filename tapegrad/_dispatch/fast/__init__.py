"""Generated code and fast paths. tapegrad gives the same results without this folder (TAPEGRAD_FAST=0).

Module entries.py generates the entry points of operations; numbers.py has reverse rules that sum at once.
The modules regions.py, products.py and stacks.py replace bodies of functions marked `hook`, for views,
elements, written rows, products and lists of numbers. Each fast path handles the common case (NumPy arrays,
one level) and falls back to the function that it replaces."""

from . import entries, numbers, products, regions, stacks

__all__ = ["entries", "numbers", "products", "regions", "stacks"]
