"""Dispatch: the wrappers behind the names of NumPy, SciPy and CuPy while a function is differentiated."""
