"""Products of real vectors and matrices with one open tape.

An operand may be a transpose that is read only for this product. It needs no record of its own: the
rule returns the transposed cotangent. The rules are indexed by [is the operand a transpose?][axes of
x][axes of y]. Each has a second version for a Variable g."""

from numpy import ndarray

from ..._core.arrays import F8
from ..._core.primitive import refresh
from ..._core.reverse import NONE, Tape, keep
from ..._core.variable import FLOAT, ArrayVariable, View, new
from ...ops import products
from ...ops.products import T, column, matmul, row_vector
from .regions import unread_transpose
from .replacing import replaces

LEFT = (
    (
        (),
        (
            None,
            lambda g, out, x, y: g * y,
            lambda g, out, x, y: y.dot(g) if type(g) is ndarray else matmul(y, g),
        ),
        (
            None,
            lambda g, out, x, y: (
                g[:, None].dot(y[None]) if type(g) is ndarray else matmul(column(g), row_vector(y))
            ),
            lambda g, out, x, y: g.dot(y.T) if type(g) is ndarray else matmul(g, y.T),
        ),
    ),
    (
        (),
        (),
        (
            None,
            lambda g, out, x, y: (
                y[:, None].dot(g[None]) if type(g) is ndarray else matmul(column(y), row_vector(g))
            ),
            lambda g, out, x, y: y.dot(g.T) if type(g) is ndarray else matmul(y, T(g)),
        ),
    ),
)
RIGHT = (
    (
        (),
        (
            None,
            lambda g, out, x, y: g * x,
            lambda g, out, x, y: (
                x[:, None].dot(g[None]) if type(g) is ndarray else matmul(column(x), row_vector(g))
            ),
        ),
        (
            None,
            lambda g, out, x, y: x.T.dot(g) if type(g) is ndarray else matmul(x.T, g),
            lambda g, out, x, y: x.T.dot(g) if type(g) is ndarray else matmul(x.T, g),
        ),
    ),
    (
        (),
        (
            None,
            None,
            lambda g, out, x, y: (
                g[:, None].dot(x[None]) if type(g) is ndarray else matmul(column(g), row_vector(x))
            ),
        ),
        (None, None, lambda g, out, x, y: g.T.dot(x) if type(g) is ndarray else matmul(T(g), x)),
    ),
)


def product_factor(x: View) -> tuple:
    """(value, trace, slot, transposed) of a view. `transposed` is 1 if the slot is that of the transpose,
    else 0."""
    source = unread_transpose(x) if x._seen == -1 and x._value is not None else None
    if source is not None:
        x._base._saved = True
        return source._value.T, source._trace, source._slot, 1
    if x._seen != x._base._version:
        refresh(x)
    return x._value, x._trace, x._slot, 0


for _turned, _rule in [
    (n, r) for table in (LEFT, RIGHT) for n in (0, 1) for rules in table[n] for r in rules if r is not None
]:
    vars(_rule).update(prim=matmul.prim, turned=bool(_turned))


@replaces(products.product)
def product(x, y):
    cx, cy = type(x), type(y)
    turned_x = turned_y = 0
    i = j = trace = other = None
    v, w = x, y
    if cx is ArrayVariable:
        v, trace, i = x._value, x._trace, x._slot
    elif cx is View:
        v, trace, i, turned_x = product_factor(x)
    if cy is ArrayVariable:
        w, other, j = y._value, y._trace, y._slot
    elif cy is View:
        w, other, j, turned_y = product_factor(y)
    if trace is None:
        trace = other
    elif other is not None and other is not trace:
        return matmul(x, y)
    if type(trace) is not Tape or not (type(v) is type(w) is ndarray and v.dtype is w.dtype is F8):
        return matmul(x, y)
    n, m = v.ndim, w.ndim
    if not 0 < n < 3 or not 0 < m < 3:
        return matmul(x, y)
    z = new(ArrayVariable if n + m > 2 else FLOAT)
    z._value = v.dot(w)
    z._trace = trace
    records = trace.records
    z._slot = len(records)
    if j is None:
        if cy is ndarray:
            w = keep(trace, w)
        elif cy is ArrayVariable:
            y._saved = True
        records.append((LEFT[turned_x][n][m], i, NONE, None, None, None, w))
    elif i is None:
        if cx is ndarray:
            v = keep(trace, v)
        elif cx is ArrayVariable:
            x._saved = True
        records.append((None, None, RIGHT[turned_y][n][m], j, None, v, None))
    else:
        if cx is ArrayVariable:
            x._saved = True
        if cy is ArrayVariable:
            y._saved = True
        records.append((LEFT[turned_x][n][m], i, RIGHT[turned_y][n][m], j, None, v, w))
    return z
