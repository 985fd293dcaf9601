"""What the text of a replay writes otherwise than a plain call runs it: contractions, sums of short rows,
columns one by one."""

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.ops.declare import signature_of
from tapegrad.replay import emitted

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def without_blocks(monkeypatch):
    monkeypatch.setattr(emitted, "block_ranges", lambda *_: [])


def replayed(f, *args):
    """f there by a written text, and the text."""
    p = tg.prepare(f, *[2 * a for a in args], compile=False)
    for _ in range(3):
        p.value(*[2 * a for a in args])
    kept = p.forms["value"].programs[0]
    assert kept.emitted is not None and not kept.failures
    return p.value(*args), kept.emitted.text


CONTRACTIONS = [
    "ab,bc->ac", "ab,bc->ca", "ab,cb->ac", "ba,bc->ca", "abc,ad->dbc", "abc,bd->adc", "abc,cd->abd",
    "adc,abc->bd", "adc,abc->db",
    "abc,dbe->acde", "abc,dbe->daec", "abc,dbe->eadc", "abc,abd->cd", "ab,b->a", "b,ab->a", "a,abc->cb",
    "abc,bc->a", "abc,cb->a",
    "abcd,bd->ac", "abcd,db->ca", "abcd,ebfd->acef", "abcd,ebfd->fcea",
]  # fmt: skip
SIZE = dict(zip("abcdef", (4, 5, 3, 6, 2, 7), strict=True))


def operands(subscripts, order="C"):
    inputs, _ = subscripts.split("->")
    return [np.asarray(RNG.normal(size=[SIZE[c] for c in s]), order=order) for s in inputs.split(",")]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("subscripts", CONTRACTIONS)
def test_a_contraction_is_a_product_of_matrices(subscripts, order):
    f = lambda x, y: np.einsum(subscripts, x, y)
    x, y = operands(subscripts, order)
    found, _ = replayed(f, x, y)
    want = f(x, y)
    np.testing.assert_allclose(found, want, 1e-13, 1e-14)
    assert found.strides == want.strides
    q = tg.prepare(lambda x, y: (f(x, y) ** 2).sum(), x, y, argnums=(0, 1), compile=False)
    for _ in range(3):
        for got, g in zip(q.grad(x, y), tg.grad(q.of, (0, 1))(x, y), strict=True):
            np.testing.assert_allclose(got, g, 1e-12, 1e-13)


def test_contractions_of_other_dtypes():
    x, y = RNG.normal(size=(4, 5, 3)), RNG.normal(size=(4, 6))
    for kind in (np.float32, np.complex128):
        a, b = x.astype(kind), y.astype(kind)
        found, _ = replayed(lambda x, y: np.einsum("abc,ad->dbc", x, y), a, b)
        assert found.dtype == kind
        np.testing.assert_array_equal(found, np.einsum("abc,ad->dbc", a, b))


@pytest.mark.parametrize("axis", [0, 1, -2, 2, (1,), (0, 1), None])
@pytest.mark.parametrize("keepdims", [False, True])
def test_sums_of_short_rows(axis, keepdims):
    x = RNG.normal(size=(20, 15, 3))
    f = lambda x: x.sum(axis=axis, keepdims=keepdims)
    found, text = replayed(f, x)
    np.testing.assert_allclose(found, f(x), 1e-13, 1e-14)
    assert np.shape(found) == np.shape(f(x)) and (" @ " in text) == (axis in (1, -2, (1,)) and not keepdims)
    x[3, 4, 1] = np.inf
    p = tg.prepare(f, x)
    for _ in range(3):
        np.testing.assert_allclose(p.value(x), f(x), 1e-13, 1e-14)


@pytest.mark.parametrize("sign", ["add", "subtract", "multiply", "divide"])
@pytest.mark.parametrize(
    "shapes",
    [
        ((300, 1, 3), (4, 3)),
        ((3,), (250, 3)),
        ((250, 1), (250, 3)),
        ((250, 3), (1, 1)),
        ((20, 15, 1), (15, 2)),
    ],
)
def test_columns_have_the_bits_of_numpy(sign, shapes):
    f = lambda x, y: getattr(np, sign)(x, y)
    x, y = [RNG.normal(size=s) for s in shapes]
    for a, b in ((x, y), (y, x)):
        found, text = replayed(f, a, b)
        np.testing.assert_array_equal(found, f(a, b))
        assert found.flags.c_contiguous
        p = tg.prepare(lambda x, y: (f(x, y) ** 2).sum(), a, b, argnums=(0, 1), compile=False)
        for _ in range(3):
            for got, g in zip(p.grad(a, b), tg.grad(p.of, (0, 1))(a, b), strict=True):
                np.testing.assert_allclose(got, g, 1e-11, 1e-12)


def test_what_numpy_would_warn_of_in_columns_is_warned_of():
    x, y = np.ones((250, 3)), np.array([1.0, 0.0, 2.0])
    p = tg.prepare(lambda x, y: x / y, x, y + 1, compile=False)
    for _ in range(3):
        p.value(x, y + 1)
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        found = p.value(x, y)
    assert np.isinf(found[:, 1]).all() and np.isfinite(found[:, ::2]).all()


UFUNCS = [entry.prim for entry in tg.ops.declare.PRIMITIVES.values() if emitted.is_elementwise(entry.prim)]


@pytest.mark.parametrize("prim", [p for p in UFUNCS if p.infix != "**"], ids=str)
def test_a_text_may_call_the_ufunc_of_an_operation(prim):
    """Its body gives the same bits, for all dtypes that it takes; and it has no settings."""
    ufunc, signature = emitted.without_gate(prim).ufunc, signature_of(prim.run)
    assert ufunc.nin == len(signature.arrays) and ufunc.nout == 1 and not signature.settings
    rng, met = np.random.default_rng(3), 0
    for dtype in "fdFD":
        low = 1.0 if prim.name == "arccosh" else 0.0
        x = [
            low + rng.uniform(0.1, 0.9, (3, 2)) + 1j * rng.uniform(0.1, 0.9, (3, 2)) for _ in signature.arrays
        ]
        x = [(v if dtype in "FD" else v.real).astype(dtype) for v in x]
        try:
            got = prim.run(*x)
        except (TypeError, tg.errors.NoRuleError):
            continue
        assert got.dtype == ufunc(*x).dtype
        np.testing.assert_array_equal(got, ufunc(*x))
        met += 1
    assert met >= 2
