"""Models by hand: each a module beside its CUDA C, loaded on first use as `tapegrad.kernels.<name>`.

`handwritten` (with prelude.cu) is what a model is made by, `filters` (with filters.cu) what the two Kalman filters share. Their twins
on the CPU: `vectors`, `own_functions`, `sweeps`, `sample_loops`, `filter_twins`, `celerite_twin`, `straight_line_code`, `on_cpu`."""
