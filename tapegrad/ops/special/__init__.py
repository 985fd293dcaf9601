"""The functions of scipy.special."""
