"""Likelihoods of common models: each is a module, loaded on first use as `tapegrad.kernels.<name>`.

`models` has the base classes. `handwritten` (with prelude.cu) adds models whose first derivative on a device
is CUDA C, in the .cu beside the module. `own_functions` provides exp, log and related functions for it.
`filters` has the calls of both Kalman filters."""
