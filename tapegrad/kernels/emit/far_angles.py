"""Reduction of large angles (Payne and Hanek, 1983): |x| = q pi/2 + r, by integer arithmetic, as LLVM text
and as CUDA C.

With |x| = M 2^E, M an integer, the turns |x| 2/pi modulo 4 are M times a window of 128 bits of 2/pi.  Bits of
larger weight are multiples of 4, bits of smaller weight contribute less than 2^-70.  The upper 64 bits of the
product are the turns in units of 2^-62. Both texts do the same integer arithmetic, one conversion and one
product, so they give the same bits.  The error of r is below 2^-61 + 2^-53 |r|."""

import math
import struct

# The bits of 2/pi, 64 in a word, after one word of zeros (computed with mpmath).
WORDS = (
    0x0, 0xA2F9836E4E441529, 0xFC2757D1F534DDC0, 0xDB6295993C439041, 0xFE5163ABDEBBC561, 0xB7246E3A424DD2E0,
    0x06492EEA09D1921C,
    0xFE1DEB1CB129A73E, 0xE88235F52EBB4484, 0xE99C7026B45F7E41, 0x3991D639835339F4, 0x9C845F8BBDF9283B,
    0x1FF897FFDE05980F,
    0xEF2F118B5A0A6D1F, 0x6D367ECF27CB09B7, 0x4F463F669E5FEA2D, 0x7527BAC7EBE5F17B, 0x3D0739F78A5292EA,
    0x6BFB5FB11F8D5D08,
    0x56033046FC7B6BAB,
)  # fmt: skip
UNIT = math.pi / 2 * 2.0**-62  # of r
LIMIT = {64: 47, 32: 22}  # exponent of 2 above which floating-point reduction fails
LAYOUT = {64: (52, 0x7FF, 1023), 32: (23, 0xFF, 127)}  # bits of the mantissa; mask and bias of the exponent

TABLE = f"""declare i64 @llvm.fshl.i64(i64, i64, i64)
@two_by_pi = private unnamed_addr constant [{len(WORDS)} x i64] [{", ".join([f"i64 {w}" for w in WORDS])}], align 64
"""


def llvm(bits: int) -> str:
    """Return `far_turns_BITS(x)`: {q modulo 4, r} for a finite x of at least 2^LIMIT, otherwise {0, 0}."""
    mantissa, mask, bias = LAYOUT[bits]
    (unit,) = struct.unpack("<Q", struct.pack("<d", UNIT))
    if bits == 64:
        real, whole, bits_of, last = "double", "i64", "bitcast double %x to i64", ("%q4", "%r2")
        narrowed = ""
    else:
        real, whole, bits_of, last = "float", "i32", "zext i32 %short to i64", ("%qn", "%rn")
        narrowed = "  %qn = trunc i64 %q4 to i32\n  %rn = fptrunc double %r2 to float\n"
    return f"""define internal {{{whole}, {real}}} @far_turns_{bits}({real} %x) {{
entry:
  %short = bitcast {real} %x to {whole}
  %bits = {bits_of}
  %shifted = lshr i64 %bits, {mantissa}
  %e = and i64 %shifted, {mask}
  %large = icmp uge i64 %e, {bias + LIMIT[bits]}
  %finite = icmp ult i64 %e, {mask}
  %far = and i1 %large, %finite
  br i1 %far, label %reduce, label %done
reduce:
  %fraction = and i64 %bits, {2**mantissa - 1}
  %m = or i64 %fraction, {2**mantissa}
  %start = add i64 %e, {62 - bias - mantissa}
  %s = and i64 %start, 63
  %p0 = lshr i64 %start, 6
  %p1 = add i64 %p0, 1
  %p2 = add i64 %p0, 2
  %a0 = getelementptr i64, ptr @two_by_pi, i64 %p0
  %a1 = getelementptr i64, ptr @two_by_pi, i64 %p1
  %a2 = getelementptr i64, ptr @two_by_pi, i64 %p2
  %w0 = load i64, ptr %a0, align 8
  %w1 = load i64, ptr %a1, align 8
  %w2 = load i64, ptr %a2, align 8
  %high = call i64 @llvm.fshl.i64(i64 %w0, i64 %w1, i64 %s)
  %low = call i64 @llvm.fshl.i64(i64 %w1, i64 %w2, i64 %s)
  %wide_m = zext i64 %m to i128
  %wide_low = zext i64 %low to i128
  %product = mul i128 %wide_m, %wide_low
  %upper = lshr i128 %product, 64
  %carried = trunc i128 %upper to i64
  %m_high = mul i64 %m, %high
  %w = add i64 %m_high, %carried
  %near = add i64 %w, {2**61}
  %turns = lshr i64 %near, 62
  %full = shl i64 %turns, 62
  %rest = sub i64 %w, %full
  %count = sitofp i64 %rest to double
  %angle = fmul double %count, 0x{unit:016X}
  %sign = lshr i64 %bits, {bits - 1}
  %negative = icmp ne i64 %sign, 0
  %minus = fneg double %angle
  %back = sub i64 0, %turns
  %r2 = select i1 %negative, double %minus, double %angle
  %q2 = select i1 %negative, i64 %back, i64 %turns
  %q4 = and i64 %q2, 3
{narrowed}  br label %done
done:
  %q_out = phi {whole} [ 0, %entry ], [ {last[0]}, %reduce ]
  %r_out = phi {real} [ 0.0, %entry ], [ {last[1]}, %reduce ]
  %part = insertvalue {{{whole}, {real}}} poison, {whole} %q_out, 0
  %both = insertvalue {{{whole}, {real}}} %part, {real} %r_out, 1
  ret {{{whole}, {real}}} %both
}}
"""


def cuda() -> str:
    """Return `far_turns(x, q, r)` for double and float, which stores the results of the LLVM function."""
    text = "#ifndef FAR_CALL\n#define FAR_CALL __noinline__  // large angles are rare, and written out they would take registers\n#endif\n"
    text += f"static __device__ const unsigned long long two_by_pi[{len(WORDS)}] = {{{', '.join([f'{w}ULL' for w in WORDS])}}};\n"
    text += f"""static __device__ FAR_CALL void far_turns_of(unsigned long long m, int start, bool negative, int* q, double* r) {{
  typedef unsigned long long u64;
  const int p = start >> 6, s = start & 63;
  const u64 a = two_by_pi[p], b = two_by_pi[p + 1], c = two_by_pi[p + 2];
  const u64 high = s ? (a << s) | (b >> (64 - s)) : a, low = s ? (b << s) | (c >> (64 - s)) : b;
  const u64 m1 = m >> 32, m0 = m & 0xffffffffULL, l1 = low >> 32, l0 = low & 0xffffffffULL;  // the upper half of m * low
  const u64 t = m1 * l0 + ((m0 * l0) >> 32), u = m0 * l1 + (t & 0xffffffffULL);
  const u64 w = m * high + m1 * l1 + (t >> 32) + (u >> 32), turns = (w + (1ULL << 61)) >> 62;
  const double angle = (double)(long long)(w - (turns << 62)) * {UNIT.hex()};
  *q = (int)((negative ? 0 - turns : turns) & 3);
  *r = negative ? -angle : angle;
}}
"""
    for bits, real, integer in ((64, "double", "long long"), (32, "float", "int")):
        mantissa, mask, bias = LAYOUT[bits]
        text += f"""static __device__ __forceinline__ void far_turns({real} x, {integer}* q, {real}* r) {{
  union {{ {real} r; unsigned {integer} i; }} of;
  of.r = x;
  const int e = (int)(of.i >> {mantissa}) & {mask};
  *q = 0;
  *r = 0;
  if (e < {bias + LIMIT[bits]} || e == {mask}) return;
  int turns;
  double angle;
  const unsigned long long m = (of.i & {2**mantissa - 1}ULL) | {2**mantissa}ULL;
  far_turns_of(m, e - {bias + mantissa - 62}, (of.i >> {bits - 1}) != 0, &turns, &angle);
  *q = turns;
  *r = ({real})angle;
}}
"""
    return text
