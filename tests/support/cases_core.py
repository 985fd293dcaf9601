"""The pure operations of ops/shaping.py on which all rules stand."""

import numpy as np
from cases import case, cnormal, normal, unary

import tapegrad.ops.shaping as s

X, Z = normal(2, 3), cnormal(2, 3)

CASES = [
    unary("copy", s.copy, X),
    unary("relaid", lambda x: s.relaid(x, strides=x.strides[::-1]), X),
    unary("array_of", s.array_of, X),
    case("astype", lambda x: s.astype(x, to=np.dtype("f8")) * 2.0, X),
    case("astype complex", lambda x: s.astype(x, to=np.dtype("c16")) * (1 + 2j), X, kinds=("strided",)),
    case("sum", lambda x: s.sum(x), X),
    case("broadcast_to", lambda x: s.broadcast_to(x, to=(4, 2, 3)), X),
    case("reshape", lambda x: s.reshape(x, to=(3, 2)), X),
    case("transpose", lambda x: s.transpose(x, axes=(1, 0)), X),
    case("concatenate", lambda x, y: s.concatenate(x, y, axis=1), X, normal(2, 2)),
    case("slice_of", lambda x: s.slice_of(x, axis=1, start=1, stop=3), X),
    case("embed", lambda x: s.embed(x, axis=0, start=1, size=5), X),
    case("stack", lambda x, z: np.stack([x, z, x], axis=1), X, Z, kinds=("strided",)),
    case("layered", lambda x, z: s.layered(x, z, axis=1), X, Z),
    case("layer", lambda x: s.layer(x, axis=1, at=1), X),
    case("as_layer", lambda x: s.as_layer(x, axis=1, at=1, size=3), X),
]
