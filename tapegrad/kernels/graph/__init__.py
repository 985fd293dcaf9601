"""The scalar graph: the computation of one sample as data, and its derivatives.

`nodes` is the hash-consed graph with its simplifications. `blocks` holds nodes that are arrays, `lengths`
nodes that are lengths of vectors, `gated` products that stay zero. `program` puts loops around graphs, and
`adjoint` applies forward and reverse mode to programs. `recipes` stores a rule as nodes. `expanded` writes
operations in terms of those that the emitters know. `factor` moves invariants out of sums. `wide_sums` makes
float64 sums in float32 kernels."""
