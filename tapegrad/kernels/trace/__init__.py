"""Tracing: from the user's Python function to a program of the graph.

`tracing` runs the function, `loops` traces the loops that it asks for, `surroundings` gives it other globals.
`captured` watches the captured objects. `symbolic` is the array type that the function sees.
`array_functions`, `composite_functions` and `linalg` implement functions of NumPy and SciPy on it;
`small_matrices` are factorisations that the interpreter of replays has too.
`complex_numbers` are pairs of such arrays. `whole_matrices` has the derivatives of functions that are one
node."""

from . import whole_matrices as whole_matrices
