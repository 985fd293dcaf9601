"""Kernels made from the user's Python functions.

`kernel` holds likelihood and recursion, `map` the per-sample map. `arguments` prepares the arguments of
calls. `derivatives` makes a kernel an operation of the array tape, closed under differentiation."""
