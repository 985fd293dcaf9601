"""Linear algebra: factorisations, decompositions, norms and functions of matrices."""
