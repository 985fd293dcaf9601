"""Reads of `x.__class__` and `dtype.type` in functions that are followed.

There the name `float64` means a stand-in, which keeps the derivative when it is called. Identity has no hook:
`x.dtype.type is np.float64` would be false. So the code of such a function reads these two attributes through
an operator, which gives the class that the names mean. The instructions take the place of the read and of its
inline cache, so no jump and no line number moves."""

import dis
import types
from typing import Any

from .builtin import CLASS_ATTRIBUTES, names_in, of_code
from .type_queries import class_meant

NOP, EXTENDED = dis.opmap["NOP"], dis.EXTENDED_ARG


def length_of(name: str, text: bytes) -> int:
    """The units of an instruction with its inline cache, found in code that has it once."""
    start = text[::2].index(dis.opmap[name])
    rest = text[2 * start + 2 :: 2]
    return 1 + next(n for n, code in enumerate(rest) if code != dis.opmap["CACHE"])


LOAD = dis.opmap["LOAD_ATTR"]
READ_LENGTH = length_of("LOAD_ATTR", (lambda x: x.type).__code__.co_code)
PRODUCT_LENGTH = length_of("BINARY_OP", (lambda x, y: x @ y).__code__.co_code)
PRODUCT = next(i.arg for i in dis.get_instructions(lambda x, y: x @ y) if i.opname == "BINARY_OP") or 0
# where a method call loads an attribute by this instruction too, the lowest bit tells it
NAME_SHIFT = int(LOAD in (lambda x: x.type()).__code__.co_code[::2])


def product_with(constant: int) -> bytes:
    """The code of `constant @ x`, where x lies on the stack, as long as a read of an attribute."""
    load = EXTENDED, constant >> 8, dis.opmap["LOAD_CONST"], constant & 255
    product = dis.opmap["SWAP"], 2, dis.opmap["BINARY_OP"], PRODUCT
    cache = (dis.opmap["CACHE"], 0) * (PRODUCT_LENGTH - 1)
    return bytes([*load, *product, *cache, *(NOP, 0) * (READ_LENGTH - PRODUCT_LENGTH - 3)])


class ClassRead:
    """`read @ x` is the attribute of x; a class is the one that its name means in followed code."""

    def __init__(self, name: str):
        self.name = name

    def __matmul__(self, x: Any) -> Any:
        found = getattr(x, self.name)
        return class_meant(found) if isinstance(found, type) else found


READS = {name: ClassRead(name) for name in CLASS_ATTRIBUTES}


@of_code
def with_class_reads(code: types.CodeType) -> types.CodeType:
    """The code, and that of the functions in it, with these attributes read through the operator."""
    if CLASS_ATTRIBUTES.isdisjoint(names_in(code)):
        return code
    constants = [with_class_reads(k) if isinstance(k, types.CodeType) else k for k in code.co_consts]
    text, high, first = bytearray(code.co_code), 0, 0
    for at in range(0, len(text), 2):
        argument = high | text[at + 1]
        if text[at] == EXTENDED:
            high = argument << 8
            continue
        if text[at] == LOAD and not NAME_SHIFT & argument:
            name = code.co_names[argument >> NAME_SHIFT]
            if name in READS:
                text[first:at] = bytes((NOP, 0)) * ((at - first) // 2)  # the higher bits of the argument
                text[at : at + 2 * READ_LENGTH] = product_with(len(constants))
                constants.append(READS[name])
        high, first = 0, at + 2
    # the constant lies on the stack beside x
    return code.replace(co_code=bytes(text), co_consts=tuple(constants), co_stacksize=code.co_stacksize + 1)
