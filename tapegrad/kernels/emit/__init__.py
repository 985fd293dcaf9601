"""From a program to text.

`lower` makes lists of instructions that both emitters share, `arena` places blocks, `schedule` orders a step; `block_code`,
`elementary` and `walk` are written once for both. LLVM: `llvm_builder`, `llvm`. CUDA C: `cuda_builder`, `cuda`, `cuda_tape`,
`cuda_split`."""
