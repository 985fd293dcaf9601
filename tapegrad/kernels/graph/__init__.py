"""The scalar graph: what one sample computes, as data, and its derivatives.

`nodes` the hash-consed graph and its simplifications, `blocks` the nodes that are arrays, `lengths` those of vectors, `gated` products
that stay zero, `program` loops around graphs, `adjoint` forward and reverse mode on programs, `recipes` a rule as nodes, `expanded`
operations written out in those that the emitters know, `factor` what does not vary taken out of sums, `wide_sums` float64 sums in
float32 kernels."""
