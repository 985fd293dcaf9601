"""exp, log and the other functions of `elementary` as CUDA C for handwritten kernels: `own_exp` and so on.

They give the same bits as in generated kernels."""

import re

from ..emit import elementary
from ..emit.cuda_builder import BITS, device_function

KINDS = {64: ("double", "long long"), 32: ("float", "int")}
CALL = re.compile(r"\bown_(\w+)\(")


def device_functions(source: str) -> str:
    """Return the text of the functions own_... that the source calls, for float and double."""
    names = sorted({n for n in CALL.findall(source) if n in elementary.FUNCTIONS})
    made = []
    for bits, (real, whole) in KINDS.items() if names else ():
        text = "\n".join([device_function(n, bits) for n in names])
        made.append(
            BITS.format(real=real, whole=whole, integer=whole)
            + re.sub(r"\breal\b", real, re.sub(r"\bwhole\b", whole, text))
        )
    return "\n".join(made) + "\n"
