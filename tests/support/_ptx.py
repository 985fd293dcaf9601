"""The PTX that NVRTC makes of a kernel, translated to C++ statement by statement and run on the CPU.

So the compiler's own output runs without a GPU.  Multiplications and additions without .rn may be contracted by what turns PTX
into machine code; the translation of a text that has such is compiled with contraction too.  Whatever is not in the tables below,
opcode or modifier, raises NotImplementedError: nothing is guessed."""

import re

import numpy as np
from _cuda_host import HostKernel

from tapegrad.kernels.launch.cuda import nvrtc_output

TYPES = {
    "pred": "bool", "f32": "float", "f64": "double",
    **{f"{c}{n}": f"{'' if c == 's' else 'u'}int{n}_t" for n in (8, 16, 32, 64) for c in "bus"},
}  # fmt: skip
REGISTERS = {"p": "pred", "rs": "b16", "r": "b32", "rd": "b64", "f": "f32", "fd": "f64"}
SPECIAL = {"tid": "threadIdx", "ctaid": "blockIdx", "ntid": "blockDim", "nctaid": "gridDim"}
ORDER = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
INFIX = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^", "div": "/", "rem": "%"}
ROUND = {"rmi": "floor", "rpi": "ceil", "rzi": "trunc", "rni": "rint"}
HELP = """
template <class T, class F> static T same_bits(F x) { T y; static_assert(sizeof x == sizeof y, ""); memcpy(&y, &x, sizeof y); return y; }
template <class T, class F> static T whole(F x) {  // a conversion saturates; nan becomes 0, or in 64 bits the lowest number
  const F top = (F)((uint64_t)1 << (8 * sizeof(T) - 1));
  if (x != x) return sizeof(T) == 8 ? (T)((uint64_t)1 << 63) : 0;
  return x >= top ? (T)(((T)1 << (8 * sizeof(T) - 2)) * 2 - 1) : x < -top ? (T)((uint64_t)1 << (8 * sizeof(T) - 1)) : (T)x;
}
template <class T> static T shifted_left(T x, uint32_t n) { return n < 8 * sizeof(T) ? x << n : 0; }
template <class T> static T shifted_right(T x, uint32_t n) {
  const uint32_t most = 8 * sizeof(T) - 1;
  return x >> (n < most ? n : most) >> (n > most);
}
template <class T> static T inserted(T field, T into, uint32_t at, uint32_t n) {
  const T mask = shifted_left((T)(n >= 8 * sizeof(T) ? ~(T)0 : ((T)1 << n) - 1), at);
  return (into & ~mask) | (shifted_left(field, at) & mask);
}
"""


def register_type(name: str) -> str:
    if name == "%SPL":
        return "b64"
    found = re.fullmatch(r"%([a-z]+)\d+", name)
    if not found or found[1] not in REGISTERS:
        raise NotImplementedError(f"the operand {name}")
    return REGISTERS[found[1]]


def operand(text: str, kind: str) -> str:
    """An operand as a C expression of the type `kind`."""
    special = re.fullmatch(r"%(\w+)\.([xyz])", text)
    if special:
        return f"{SPECIAL[special[1]]}.{special[2]}"
    if text.startswith(("0f", "0d")):
        return f"same_bits<{TYPES[kind]}>(({'uint32_t' if text[1] == 'f' else 'uint64_t'})0x{text[2:]}ull)"
    if re.fullmatch(r"__local_depot\d+", text):
        return f"({TYPES[kind]}){text}"
    if re.fullmatch(r"-?\d+", text):
        return f"({TYPES[kind]}){text}ll"
    own, name = register_type(text), text[1:]
    if (own[0] == "f") != (kind[0] == "f"):
        return f"same_bits<{TYPES[kind]}>({name})"
    return name if kind[0] == "f" or own == "pred" else f"({TYPES[kind]}){name}"


def result(register: str, kind: str, value: str) -> str:
    own = register_type(register)
    if (own[0] == "f") != (kind[0] == "f"):
        value = f"same_bits<{TYPES[own]}>(({TYPES[kind]})({value}))"
    return f"{register[1:]} = {value};"


def address(text: str) -> str:
    base, _, offset = text.strip("[]").partition("+")
    return f"{base[1:]} + ({offset or 0}ll)"


def compared(how: str, kind: str, a: str, b: str) -> str:
    how = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(how, how)
    unordered = f"({a} != {a} || {b} != {b})"
    if kind[0] == "f" and how in ("nan", "num"):
        return unordered if how == "nan" else f"!{unordered}"
    if kind[0] == "f" and how.endswith("u"):
        return f"({a} {ORDER[how[:-1]]} {b} || {unordered})"
    if kind[0] == "f" and how == "ne":
        return f"({a} < {b} || {a} > {b})"
    return f"({a} {ORDER[how]} {b})"


def converted(modifiers: list, to: str, of: str, x: str) -> str:
    if of[0] == "f" and to[0] == "f":
        if to == of:
            return f"{ROUND['.'.join(modifiers)]}{'f' if to == 'f32' else ''}({x})"
        if modifiers not in (["rn"], []):
            raise NotImplementedError(f"cvt.{'.'.join(modifiers)}.{to}.{of}")
        return f"({TYPES[to]})({x})"
    if of[0] == "f":
        if modifiers != ["rzi"] or to[0] != "s":
            raise NotImplementedError(f"cvt.{'.'.join(modifiers)}.{to}.{of}")
        return f"whole<{TYPES[to]}>({x})"
    if modifiers != (["rn"] if to[0] == "f" else []):
        raise NotImplementedError(f"cvt.{'.'.join(modifiers)}.{to}.{of}")
    return f"({TYPES[to]})({x})"


def value(name: str, modifiers: list, kind: str, x: list[str]) -> str:
    """What an arithmetic opcode gives for operands that are C expressions of its type."""
    c, real, suffix = TYPES[kind], kind[0] == "f", "f" if kind == "f32" else ""
    exact = modifiers in ([], ["rn"]) if real else not modifiers
    if name in INFIX and (exact if real or name != "mul" else modifiers == ["lo"]):
        return f"({c})({x[0]} {INFIX[name]} {x[1]})"
    if name == "mul" and modifiers == ["wide"]:
        wide = TYPES[kind.replace("32", "64").replace("16", "32")]
        return f"({wide})({x[0]}) * ({wide})({x[1]})"
    if name == "mul" and modifiers == ["hi"] and not real:
        return f"({c})(({'' if kind[0] == 's' else 'unsigned '}__int128){x[0]} * {x[1]} >> {kind[1:]})"
    if name == "mad" and modifiers == ["lo"]:
        return f"({c})({x[0]} * {x[1]} + {x[2]})"
    if name == "fma" and modifiers == ["rn"]:
        return f"fma{suffix}({', '.join(x)})"
    if not exact:
        raise NotImplementedError(f"{name}.{'.'.join(modifiers)}.{kind}")
    if name in ("min", "max"):
        return (
            f"f{name}{suffix}({x[0]}, {x[1]})"
            if real
            else f"({x[0]} {'<' if name == 'min' else '>'} {x[1]} ? {x[0]} : {x[1]})"
        )
    plain = {
        "neg": "({c})(-{0})", "not": "!{0}" if kind == "pred" else "({c})(~{0})", "mov": "{0}",
        "abs": "fabs{suffix}({0})" if real else "({0} < 0 ? -{0} : {0})",
        "shl": "shifted_left<{c}>({0}, {1})", "shr": "shifted_right<{c}>({0}, {1})",
        "bfi": "inserted<{c}>({0}, {1}, {2}, {3})",
        "rcp": "({c})1 / {0}", "sqrt": "sqrt{suffix}({0})",
    }  # fmt: skip
    if name not in plain or (name in ("rcp", "sqrt") and modifiers != ["rn"]):
        raise NotImplementedError(f"{name}.{'.'.join([*modifiers, kind])}")
    return plain[name].format(*x, c=c, suffix=suffix)


def statement(text: str, parameters: dict) -> str:
    """One instruction without its guard."""
    opcode, _, rest = text.partition(" ") if "\t" not in text else text.partition("\t")
    name, *modifiers = opcode.strip().split(".")
    x = [part.strip() for part in rest.split(",")]
    if name == "ret":
        return "return;"
    if name == "bra":
        return f"goto {x[0].lstrip('$')};"
    four = re.fullmatch(r"ld\.global\.nc\.v4\.f32\s+\{(.*)\},\s*(\[.*\])", text)
    if four:
        names = [name.strip() for name in four[1].split(",")]
        return " ".join(
            result(name, "f32", f"*(volatile float*)({address(four[2])} + {4 * k})")
            for k, name in enumerate(names)
        )
    if any(part.startswith("{") for part in x) or not modifiers or modifiers[-1] not in TYPES:
        raise NotImplementedError(text)
    kind, modifiers = modifiers[-1], modifiers[:-1]
    if name == "ld" and modifiers == ["param"]:
        return result(x[0], kind, parameters[x[1].strip("[]")])
    if name in ("ld", "st") and modifiers in (
        ["global"],
        ["global", "nc"],
        ["volatile", "global"],
        ["local"],
        ["volatile", "local"],
    ):
        place = f"*(volatile {TYPES[kind]}*)({address(x[name == 'ld'])})"
        return result(x[0], kind, place) if name == "ld" else f"{place} = {operand(x[1], kind)};"
    if name == "atom" and modifiers == ["global", "max"]:
        return result(x[0], kind, f"atomicMax(({TYPES[kind]}*)({address(x[1])}), {operand(x[2], kind)})")
    if name == "cvta" and modifiers == ["to", "global"]:
        return result(x[0], kind, operand(x[1], kind))
    if name == "cvt":
        return result(
            x[0], modifiers[-1], converted(modifiers[:-1], modifiers[-1], kind, operand(x[1], kind))
        )
    if name == "setp" and len(modifiers) == 1:
        return result(x[0], "pred", compared(modifiers[0], kind, *[operand(y, kind) for y in x[1:]]))
    if name == "selp" and not modifiers:
        return result(x[0], kind, f"{operand(x[3], 'pred')} ? {operand(x[1], kind)} : {operand(x[2], kind)}")
    made = kind.replace("32", "64") if modifiers == ["wide"] else kind
    return result(x[0], made, value(name, modifiers, kind, [operand(y, kind) for y in x[1:]]))


def to_c(ptx: str, entry: str) -> str:
    """C++ with a function `entry` of the same parameters, pointers being 64-bit numbers."""
    found = re.search(rf"\.entry {entry}\((.*?)\)(.*?)^\{{(.*?)^\}}", ptx, re.S | re.M)
    declared = re.findall(r"\.param \.(\w+) (\w+)", found[1])
    tables = re.findall(r"^\.global \.align (\d+) \.b8 (\w+)\[(\d+)\] = \{(.*?)\};", ptx, re.M)
    lines = []
    for line in found[3].splitlines():
        line = re.sub(r"//.*", "", line).strip().rstrip(";").strip()
        table = re.fullmatch(r"mov\.u64\s+%(rd\d+), (\w+)", line)
        registers = re.fullmatch(r"\.reg \.(\w+)\s+%(\w+)<(\d+)>", line)
        label = re.fullmatch(r"\$(\w+):", line)
        stack = re.fullmatch(r"\.local \.align (\d+) \.b8\s+(\w+)\[(\d+)\]", line)
        if stack:
            lines.append(f"alignas({stack[1]}) unsigned char {stack[2]}[{stack[3]}];")
        elif re.fullmatch(r"\.reg \.b64\s+%SPL?", line):
            lines.append(f"uint64_t {line.rpartition('%')[2]} = 0;")
        elif registers:
            lines.append(
                f"{TYPES[registers[1]]} "
                + ", ".join(f"{registers[2]}{n} = 0" for n in range(int(registers[3])))
                + ";"
            )
        elif table and table[2] in [name for _, name, *_ in tables]:
            lines.append(f"{table[1]} = (uint64_t){table[2]};")
        elif label:
            lines.append(f"{label[1]}:;")
        elif line and not line.startswith(".pragma"):
            guard = re.match(r"@(!?)%(p\d+)\s+", line)
            text = statement(line[guard.end() :] if guard else line, {name: name for _, name in declared})
            lines.append(f"if ({guard[1]}{guard[2]}) {text}" if guard else text)
    parameters = ", ".join(f"{TYPES[kind]} {name}" for kind, name in declared)
    constants = "".join(
        f"alignas({a}) static const unsigned char {name}[{n}] = {{{given}}};\n"
        for a, name, n, given in tables
    )
    return f"{HELP}\n{constants}static void {entry}({parameters}) {{\n" + "\n".join(lines) + "\n}\n"


class PtxKernel(HostKernel):
    """What NVRTC makes of a kernel, on the CPU; called like any other.  `fmad`: multiplications and additions may be contracted."""

    def __init__(self, source: str, entry: str, fmad: bool = False):
        options = (
            "-std=c++17",
            f"-fmad={str(fmad).lower()}",
            "-default-device",
            "-DFAR_CALL=__forceinline__",
            "-arch=compute_90",
        )
        ptx = nvrtc_output(source, options)[0]
        self.ptx = ptx.decode() if isinstance(ptx, bytes) else ptx
        bound = len(re.findall(r"\b(?:mul|add|sub)\.rn\.f", self.ptx))
        free = len(re.findall(r"\b(?:mul|add|sub)\.f", self.ptx))
        if bound and free:
            raise NotImplementedError(
                "some of the multiplications and additions may be contracted, and some not"
            )
        contract = ("-ffp-contract=fast", "-O2") if free else ()  # gcc contracts from -O2 on
        super().__init__(to_c(self.ptx, entry), entry, (*contract, "-fwrapv", "-fno-strict-aliasing"))

    def __call__(self, grid: tuple, block: tuple, args: tuple) -> None:
        super().__call__(
            grid, block, [np.uint64(x.ctypes.data) if isinstance(x, np.ndarray) else x for x in args]
        )
