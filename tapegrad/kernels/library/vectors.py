"""Vectors of neighbouring samples for the Numba twins, so that a twin reads as the CUDA C of one sample.

    Vector   so many reals as a register of 64 bytes holds, one for each sample: + - * / and comparisons, each lane by itself
    Mask     the result of a comparison: & ; where(mask, a, b)
    Rows     a place in memory where vectors follow each other: x[i], x + i
    Table    a place in the caller's array (rows, samples): x[i], of the samples from there on

All are lane by lane what LLVM's instructions do to one number, with IEEE rounding and no contraction, so that a sample gets the
same bits in every lane.  A number beside a vector stands for the same number in each lane."""

import operator
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, register_model

from ..emit import elementary
from .own_functions import Builder

BYTES = 64
INDEX = ir.IntType(64)


def lanes(real: Any) -> int:
    """How many samples stand side by side, for a dtype."""
    return BYTES // real.itemsize


class Vector(types.Type):
    """`bits`: of one number; `count` of them."""

    def __init__(self, bits: int, count: int):
        self.bits, self.count = bits, count
        super().__init__(f"Vector({bits} x {count})")

    @property
    def real(self) -> types.Type:
        return types.float64 if self.bits == 64 else types.float32


class Mask(types.Type):
    def __init__(self, count: int):
        self.count = count
        super().__init__(f"Mask({count})")


class Rows(types.Type):
    def __init__(self, vector: Vector, name: str = "Rows"):
        self.vector, self.bits = vector, vector.bits
        super().__init__(f"{name}({vector.name})")


class Table(Rows):
    def __init__(self, vector: Vector):
        super().__init__(vector, "Table")


def vector_of(real: Any) -> Vector:
    """As many as a register holds."""
    return Vector(real.bitwidth, 8 * BYTES // real.bitwidth)


def real_type(bits: int) -> ir.Type:
    return ir.DoubleType() if bits == 64 else ir.FloatType()


def vector_type(t: Any) -> ir.VectorType:
    return ir.VectorType(ir.IntType(1) if isinstance(t, Mask) else real_type(t.bits), t.count)


@register_model(Vector)
@register_model(Mask)
class VectorModel(models.PrimitiveModel):
    def __init__(self, dmm, fe_type):
        super().__init__(dmm, fe_type, vector_type(fe_type))


@register_model(Rows)
class RowsModel(models.PrimitiveModel):
    def __init__(self, dmm, fe_type):
        super().__init__(dmm, fe_type, real_type(fe_type.bits).as_pointer())


@register_model(Table)
class TableModel(models.StructModel):
    def __init__(self, dmm, fe_type):
        super().__init__(dmm, fe_type, [("place", types.CPointer(fe_type.vector.real)), ("stride", types.int64)])


# --- arithmetic ---


def filled(builder: ir.IRBuilder, x: Any, count: int) -> Any:
    """The number x in each lane."""
    kind = ir.VectorType(x.type, count)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), x, ir.IntType(32)(0))
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), ir.Constant(ir.VectorType(ir.IntType(32), count), None))


def widened(context: Any, builder: ir.IRBuilder, x: Any, t: Any, to: Any) -> Any:
    """x of type t as a vector of type `to`."""
    return x if t == to else filled(builder, context.cast(builder, x, t, to.real), to.count)


def common(args: tuple) -> Any:
    """The type of the vectors among the arguments, if the others are numbers."""
    found = {a for a in args if isinstance(a, Vector)}
    if len(found) == 1 and all([isinstance(a, (Vector, types.Number)) for a in args]):
        return found.pop()
    return None


def elementwise(op: Any, emit: Any, compares: bool = False) -> None:
    """An operator on vectors and numbers."""

    @infer_global(op)
    class Typed(AbstractTemplate):
        def generic(self, args, kws):
            t = common(args)
            return None if t is None else signature(Mask(t.count) if compares else t, *args)

    def lower(context, builder, sig, args):
        t = common(sig.args)
        return emit(builder, *[widened(context, builder, x, a, t) for x, a in zip(args, sig.args, strict=True)])

    kinds = [(Vector, Vector), (Vector, types.Number), (types.Number, Vector)]
    for k in kinds if op is not operator.neg else [(Vector,)]:
        lower_builtin(op, *k)(lower)


def ordered(sign: str) -> Any:
    return lambda builder, a, b: builder.fcmp_ordered(sign, a, b)


elementwise(operator.add, lambda b, x, y: b.fadd(x, y))
elementwise(operator.sub, lambda b, x, y: b.fsub(x, y))
elementwise(operator.mul, lambda b, x, y: b.fmul(x, y))
elementwise(operator.truediv, lambda b, x, y: b.fdiv(x, y))
elementwise(operator.neg, lambda b, x: b.fneg(x))
for comparison, sign in ((operator.lt, "<"), (operator.gt, ">"), (operator.ge, ">="), (operator.eq, "==")):
    elementwise(comparison, ordered(sign), compares=True)


@infer_global(operator.and_)
class Both(AbstractTemplate):
    def generic(self, args, kws):
        return signature(args[0], *args) if all([isinstance(a, Mask) and a == args[0] for a in args]) else None


lower_builtin(operator.and_, Mask, Mask)(lambda context, builder, sig, args: builder.and_(*args))


@intrinsic
def where(typing, mask, a, b):
    t = common((a, b))
    if t is None or not isinstance(mask, Mask):
        return None

    def generate(context, builder, sig, args):
        x, y = [widened(context, builder, v, s, t) for v, s in zip(args[1:], sig.args[1:], strict=True)]
        return builder.select(args[0], x, y)

    return t(mask, a, b), generate


@intrinsic
def whole(typing, like, yes):
    """The mask that is `yes` in each lane of a vector."""

    def generate(context, builder, sig, args):
        return filled(builder, args[1], like.count)

    return Mask(like.count)(like, types.boolean), generate


class VectorBuilder(Builder):
    """The operations that elementary.py writes its functions in, on vectors."""

    def __init__(self, builder: ir.IRBuilder, t: Vector):
        super().__init__(builder, t.bits)
        self.kind = f"v{t.count}f{t.bits}"
        self.real, self.whole = ir.VectorType(self.real, t.count), ir.VectorType(self.whole, t.count)
        self.fma = self._fma

    def _call(self, name: str, *args: Any) -> Any:
        t = ir.FunctionType(self.real, [self.real] * len(args))
        return self.b.call(cgutils.get_or_insert_function(self.b.module, t, f"llvm.{name}.{self.kind}"), args)

    def _unary(self, name: str, a):
        return self._call(name, a)

    def _fma(self, a, b, c):
        return self._call("fma", a, b, c)


def mathematical(name: str) -> Any:
    """A function of elementary.py, or one of the instructions, on vectors."""

    @intrinsic
    def f(typing, x):
        if not isinstance(x, Vector):
            return None

        def generate(context, builder, sig, args):
            b = VectorBuilder(builder, x)
            return elementary.FUNCTIONS[name](b, args[0]) if name in elementary.FUNCTIONS else getattr(b, name)(args[0])

        return x(x), generate

    return f


exp, log, log1p, sqrt = [mathematical(name) for name in ("exp", "log", "log1p", "sqrt")]


def contracted(name: str) -> Any:
    """a b + c, or c - a b, with one rounding."""

    @intrinsic
    def f(typing, a, b, c):
        t = common((a, b, c))
        if t is None:
            return None

        def generate(context, builder, sig, args):
            x = [widened(context, builder, v, s, t) for v, s in zip(args, sig.args, strict=True)]
            return getattr(VectorBuilder(builder, t), name)(*x)

        return t(a, b, c), generate

    return f


fma, fnma = contracted("fma"), contracted("fnma")


@intrinsic
def double(typing, x):
    """In float64."""
    t = Vector(64, x.count)

    def generate(context, builder, sig, args):
        return args[0] if x.bits == 64 else builder.fpext(args[0], vector_type(t))

    return t(x), generate


@intrinsic
def narrow(typing, x, like):
    """x, a vector of float64, as one of the numbers in `like`."""

    def generate(context, builder, sig, args):
        return args[0] if like.bits == 64 else builder.fptrunc(args[0], vector_type(like))

    return like(x, like), generate


@intrinsic
def is_wide(typing, x):
    """Does the vector hold float64?"""

    def generate(context, builder, sig, args):
        return ir.Constant(ir.IntType(1), x.bits == 64)

    return types.boolean(x), generate


@intrinsic
def splat(typing, x, like):
    """The number x in each lane, of the type of the vector `like`."""

    def generate(context, builder, sig, args):
        return filled(builder, context.cast(builder, args[0], sig.args[0], like.real), like.count)

    return like(x, like), generate


# --- memory ---


@intrinsic
def rows(typing, address, real):
    """Vectors of the type of the number `real`, from an address that is a multiple of 64."""
    t = Rows(vector_of(real))

    def generate(context, builder, sig, args):
        return builder.inttoptr(args[0], real_type(t.bits).as_pointer())

    return t(types.intp, real), generate


@intrinsic
def table(typing, address, stride, real):
    """An array (rows, stride) from the address of its first row's first sample."""
    t = Table(vector_of(real))

    def generate(context, builder, sig, args):
        made = cgutils.create_struct_proxy(t)(context, builder)
        made.place, made.stride = builder.inttoptr(args[0], real_type(t.bits).as_pointer()), args[1]
        return made._getvalue()

    return t(types.intp, types.intp, real), generate


@intrinsic
def doubles(typing, x):
    """In place of rows, as many vectors of float64, each of which takes the room of two vectors at most."""
    t = Rows(Vector(64, x.vector.count))

    def generate(context, builder, sig, args):
        return builder.bitcast(args[0], real_type(64).as_pointer())

    return t(x), generate


def place_of(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple) -> tuple:
    """The pointer to vector i of rows or a table, and its alignment."""
    t, i = sig.args[0], context.cast(builder, args[1], sig.args[1], types.int64)
    vector = vector_type(t.vector)
    if isinstance(t, Table):
        x = cgutils.create_struct_proxy(t)(context, builder, value=args[0])
        place, align = builder.gep(x.place, [builder.mul(i, x.stride)]), t.bits // 8
    else:
        place, align = builder.gep(args[0], [builder.mul(i, INDEX(t.vector.count))]), BYTES
    return builder.bitcast(place, vector.as_pointer()), align


@infer_global(operator.getitem)
class GetRow(AbstractTemplate):
    def generic(self, args, kws):
        ours = isinstance(args[0], Rows) and isinstance(args[1], types.Integer)
        return signature(args[0].vector, *args) if ours else None


@infer_global(operator.setitem)
class SetRow(AbstractTemplate):
    def generic(self, args, kws):
        ours = isinstance(args[0], Rows) and isinstance(args[1], types.Integer) and isinstance(args[2], (Vector, types.Number))
        return signature(types.none, *args) if ours else None


@infer_global(operator.add)
class RowsFurther(AbstractTemplate):
    def generic(self, args, kws):
        ours = type(args[0]) is Rows and isinstance(args[1], types.Integer)
        return signature(args[0], *args) if ours else None


def get_row(context, builder, sig, args):
    place, align = place_of(context, builder, sig, args)
    return builder.load(place, align=align)


def set_row(context, builder, sig, args):
    place, align = place_of(context, builder, sig, args)
    builder.store(widened(context, builder, args[2], sig.args[2], sig.args[0].vector), place, align=align)
    return context.get_dummy_value()


def further(context, builder, sig, args):
    i = context.cast(builder, args[1], sig.args[1], types.int64)
    return builder.gep(args[0], [builder.mul(i, INDEX(sig.args[0].vector.count))])


lower_builtin(operator.getitem, Rows, types.Integer)(get_row)
lower_builtin(operator.setitem, Rows, types.Integer, Vector)(set_row)
lower_builtin(operator.setitem, Rows, types.Integer, types.Number)(set_row)
lower_builtin(operator.add, Rows, types.Integer)(further)


@intrinsic
def number(typing, address, i, real):
    """Number i of an array that begins at this address."""

    def generate(context, builder, sig, args):
        place = builder.inttoptr(args[0], real_type(real.bitwidth).as_pointer())
        return builder.load(builder.gep(place, [args[1]]))

    return real(types.intp, types.intp, real), generate
