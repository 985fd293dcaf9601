"""Random loop programs: forward and reverse derivatives of first and second order against a complex step of
the slow interpreter, and machine code against that interpreter."""

import numpy as np
import pytest
from written_programs import RandomProgram

from tapegrad.loops.adjoint import adjoint
from tapegrad.loops.machine import code_of
from tapegrad.loops.program import FLOATS, LoopArray, Scalar, verified
from tapegrad.loops.reference import interpreted
from tapegrad.loops.tangent import tangent

STEP = 1e-30
DTYPES = {"f8": float, "i8": int}


def copied(args):
    return [x.copy() if isinstance(x, np.ndarray) else x for x in args]


def by_complex_step(p, args, moved):
    """The tangents of all results of p; `moved` are those of its parameters, by number."""
    given = [
        np.asarray(x, complex) + STEP * 1j * moved.get(k, 0.0) if q.type in FLOATS else x
        for k, (q, x) in enumerate(zip(p.params, copied(args), strict=True))
    ]
    given = [complex(x) if isinstance(q, Scalar) and q.type in FLOATS else x
    for q, x in zip(p.params, given, strict=True)]  # fmt: skip
    return [np.imag(y) / STEP for y in interpreted(p, given)]


def real_results(p):
    return [*p.outs, *[y for y in p.body.yields if y.type in FLOATS]]


def seeds_for(p, args, shadows, known, r):
    """For each of these arrays of p an array of its shape: the known one, or a random one."""
    shapes = {q: np.shape(x) for q, x in zip(p.params, args, strict=True)}
    return [known.get(a, r.standard_normal(shapes[a])) for a in shadows]


def judge(p, args, r):
    """Compare the derivatives of p by some of its parameters; return its adjoint with arguments."""
    reals = [k for k, q in enumerate(p.params) if q.type in FLOATS]
    wrt = tuple(k for k in reals if r.random() < 0.7) or tuple(reals)
    moved = {k: r.standard_normal(np.shape(args[k])) for k in wrt}
    want = by_complex_step(p, args, moved)
    by_param = {p.params[k]: d for k, d in moved.items()}

    T = verified(tangent(p, wrt))
    zero = {a: np.zeros(np.shape(x)) for a, x in zip(p.params, args, strict=True) if isinstance(a, LoopArray)}
    shadows = [a for a in p.arrays if a in T.derived["shadows"]]
    dots = seeds_for(p, args, shadows, {**zero, **by_param}, r)
    scalars = [float(moved[k]) for k in wrt if isinstance(p.params[k], Scalar)]
    got = iter(interpreted(T, [*copied(args), *copied(dots), *scalars]))
    active = [next(got) if q in shadows else np.zeros(np.shape(w))
    for q, w in zip(p.outs, want, strict=False)]  # fmt: skip
    forward = [*active, *got]
    want = [w for q, w in zip([*p.outs, *p.body.yields], want, strict=True) if q.type in FLOATS]
    size = max([1.0, *[np.max(np.abs(w), initial=0.0) for w in want]])
    for f, w in zip(forward, want, strict=True):
        np.testing.assert_allclose(f, w, rtol=1e-9, atol=1e-10 * size)

    A = verified(adjoint(p, wrt))
    results = real_results(p)
    weights = dict(zip(results, [r.standard_normal(np.shape(w)) for w in want], strict=True))
    shadows = [a for a in p.arrays if a in A.derived["shadows"]]
    bars = seeds_for(p, args, shadows, {**zero, **weights}, r)
    # (an array that is not written has no result; its cotangent is zero at the end)
    given = [*copied(args), *copied(bars), *[float(weights[y]) for y in results if isinstance(y, Scalar)]]
    found = interpreted(A, copied(given))
    order = sorted(wrt, key=lambda k: isinstance(p.params[k], Scalar))
    slope = sum(np.sum(b * moved[k]) for k, b in zip(order, found, strict=True))
    wanted = sum(np.sum(weights[y] * w) for y, w in zip(results, want, strict=True))
    size = max(1.0, *[np.max(np.abs(b), initial=0.0) for b in found])
    np.testing.assert_allclose(slope, wanted, rtol=1e-9, atol=1e-9 * size)
    return A, given


def check(seed, compiled=False):
    made = RandomProgram(seed)
    p, args, r = made.program, made.arguments(), np.random.default_rng(seed)
    for order in range(2):
        q, given = judge(p, args, r)
        if compiled:
            for code, x in ((p, args), (q, given)) if order == 0 else ((q, given),):
                for slow, fast in zip(interpreted(code, copied(x)), code_of(code)(copied(x)), strict=True):
                    np.testing.assert_allclose(fast, slow, rtol=1e-10, atol=1e-10)
        p, args = q, given


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", range(15))
def test_random_programs(seed):
    check(seed)


@pytest.mark.long
@pytest.mark.parametrize("part", range(100))
def test_ten_thousand_random_programs(part):
    for seed in range(1000 + 100 * part, 1100 + 100 * part):
        check(seed, compiled=seed % 100 == 0)
