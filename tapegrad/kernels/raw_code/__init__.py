"""Kernels that are the user's own CUDA C, with their own derivatives: `tapegrad.kernels.raw`.

`declare` the parameters as text, `threads` the code and the threads that run it, `plan` what a call checks and shares with its like,
`kernel` the operation, `cuda` its launch on a device, `transpose` the mode that has no kernel, `check` what `RawKernel.check` looks
for."""
