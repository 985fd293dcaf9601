"""Code generation: from a program to text.

`lower` makes the lists of instructions that both emitters share. `arena` places blocks, and `schedule` orders
a step. `builder`, `block_code`, `elementary` and `walk` are common to both emitters. `llvm_builder` and
`llvm` write LLVM. `cuda_builder`, `cuda`, `cuda_tape` and `cuda_split` write CUDA C."""
