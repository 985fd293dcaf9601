"""Models of state spaces by name: their matrices, parameters and labels."""
