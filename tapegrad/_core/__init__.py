"""Foundations of the package: arrays, trees, Variable, Primitive, reverse mode and forward mode."""
