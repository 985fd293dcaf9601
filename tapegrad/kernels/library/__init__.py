"""Handwritten models: each is a module beside its CUDA C, loaded on first use as `tapegrad.kernels.<name>`.

`handwritten` (with prelude.cu) is the base of all models, `filters` (with filters.cu) that of the two Kalman
filters. `own_functions` provides exp, log and related functions for the CUDA C."""
