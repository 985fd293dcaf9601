"""Kernels made from the user's Python functions.

`kernel` likelihood and recursion, `map` the rest, `arguments` what their calls are given, `derivatives` the operations of the array tape
that a kernel is, closed under differentiation."""
