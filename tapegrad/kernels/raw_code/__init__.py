"""Kernels from the user's own CUDA C, with their own derivatives: `tapegrad.kernels.raw`.

`declare` parses declared parameters. `threads` holds the code and the threads that run it. `plan` checks a
call and shares the result with similar calls. `kernel` is the operation, `cuda` its launch on a device.
`transpose` derives the mode that has no kernel. `batch` is the batching rule. `check` implements
`RawKernel.check`, `sources` shows derived rules."""
