"""NumPy's operations on booleans by the names that they have in the graph."""

import numpy as np

BITWISE = {np.bitwise_and: "and", np.bitwise_or: "or", np.bitwise_xor: "ne", np.invert: "not"}
# NumPy's arithmetic of booleans; None: undefined
LOGICAL = {
    **BITWISE,
    np.add: "or",
    np.multiply: "and",
    np.maximum: "or",
    np.minimum: "and",
    np.subtract: None,
    np.negative: None,
}
