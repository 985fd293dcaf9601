"""Models by hand: each a module beside its CUDA C, loaded on first use as `tapegrad.kernels.<name>`.

`handwritten` (with prelude.cu) is what a model is made by, `filters` (with filters.cu) what the two Kalman filters share. `own_functions`:
exp, log and their kin for the CUDA C."""
