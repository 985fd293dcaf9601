"""SciPy's further subpackages, each loaded when it is first met: signal, ndimage, interpolate, integrate,
spatial, sparse, optimize."""
