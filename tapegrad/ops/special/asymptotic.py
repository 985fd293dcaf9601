"""Helpers shared by the families of special functions: choice of the library, refusals, and asymptotic
sums of powers."""

import math

from ..._core.arrays import is_array
from ..._core.errors import NoRuleError
from ..._core.primitive import seen
from ..declare import dtype, primitive, rules, same
from ..elementwise import select
from ..piecewise import special_of


def special_of2(x, y):
    return special_of(x if is_array(x) else y)


def no_rule_in(name: str, parameter: str):
    raise NoRuleError(
        f"scipy.special.{name} has no derivative in {parameter}; pass tapegrad.value({parameter}), or give "
        "the function a rule with tapegrad.rule"
    )


# --- large arguments, where derivatives computed as differences would cancel ---


def tail_sum(x, *, terms, p, q, m):
    total = 0.0
    for k in reversed(range(len(terms))):
        total = total * x**-q + terms[k] * math.prod([-(p + q * k + j) for j in range(m)])
    return total * x ** -(p + m)


@primitive(scalar=tail_sum, rough=True)
def tail(x, *, terms, p, q, m=0):
    """The derivative of order m of the sum of terms[k] x^(-p - q k) at a large x > 0, term by term."""
    return tail_sum(x, terms=terms, p=p, q=q, m=m).astype(x.dtype)


rules(tail, lambda g, out, x, terms, p, q, m: g * tail(x, terms=terms, p=p, q=q, m=m + 1), jvp=same)


def near_or_far(far, x, away, near):
    """near(x), or away(x) where the mask `far` holds. On the CPU an unused branch is not evaluated."""
    if seen(far) is not None and not far.any():
        return near(x)
    one = dtype(x).type(1)
    return select(far, away(select(far, x, 100 * one)), near(select(far, one, x)))
