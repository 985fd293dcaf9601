"""From the user's Python function to a program of the graph.

`tracing` runs the function, `loops` has those that it asks for, `surroundings` gives it other globals, `reads` and `captured` say what
it read from them, `symbolic` is the array it sees; NumPy's and SciPy's functions on such arrays: `array_functions`,
`composite_functions`, `linalg`; `whole_matrices` has the derivatives of those that are one node."""

from . import whole_matrices as whole_matrices
