"""Random programs that write in place under `tg.vmap`, against a loop over the samples: right or loud,
captured arrays included; and loud is hardly one that hands nothing from sample to sample."""

import itertools
from collections import Counter

import numpy as np
import pytest
from caught_programs import around
from comparison import host
from judged_programs import argument, maker
from looped import forms, further_forms, looped, near, same, vmapped
from random_programs import draw, source

import tapegrad as tg
from tapegrad._core.trees import leaves
from tapegrad.errors import AliasError, BatchError

SAMPLES = 3
NAMES = (
    "value",
    "vmap of grad",
    "vmap of jvp",
    "grad of vmap",
    "vmap of hvp",
    "hvp of vmap",
    "grad of vmap of grad",
)  # at one point


def hands_on(make, stack):
    """Does a loop give other results, or leave other data, than each sample by itself?"""
    of_loop = make()
    want = looped(of_loop[0])(stack)
    column = []
    for x in stack:
        alone = make()
        column.append(alone[0](x.copy(order="K")))
    return not (
        same([np.stack([host(y) for y in column])], want, 1e-12)
        and same(leaves(alone[1]()), leaves(of_loop[1]()), 1e-12)
    )


def disagree(f, more):
    """Is there no plain vmap over the samples of both points either, for branches and masks on which they
    disagree?"""
    try:
        vmapped(f)(more)
    except BatchError as e:
        return "differs between samples" in str(e)
    return False


def judged(seed, found, samples=SAMPLES, xp=np, all_forms=True):
    program = draw(seed, cupy=xp is not np)
    make = maker(program, xp)[0]
    x, v = argument(seed, xp)
    stack, directions = [xp.stack([a * (1 - 0.01 * k) for k in range(samples)]) for a in (x, v)]
    with np.errstate(all="ignore"):
        try:
            state = hands_on(make, stack)
            more = xp.concatenate([stack, *near([stack])])
            state = state or hands_on(make, more)
        except (
            AliasError
        ):  # an inner transform of an array that its function captured, too: without vmap as well
            found["alias"] += 1
            return
        anew = lambda: make()[0]
        caught = [
            ("caught", *of) for _, *of in forms(lambda: around(make()[0], seed, xp), 1, [directions], 1)
        ]
        for form, batched, loop in itertools.chain(
            forms(anew, 1, [directions]), further_forms(anew, 1) if all_forms else (), caught
        ):
            try:
                want = loop(stack)
            except AliasError:
                found["alias"] += 1
                continue
            try:
                got = batched(stack)
            except BatchError as e:
                hands = state and ("sample to sample" in str(e) or "keeps a value" in str(e))
                known = (form not in NAMES and disagree(make()[0], more)) or (
                    form == "caught" and "except" in str(e)
                )
                found["state" if hands else "disagree" if known else "refused"] += 1
                continue
            got, want = [[host(y) for y in leaves(ys)] for ys in (got, want)]
            assert same(got, want, 1e-6), (
                f"seed {seed}, {form}: {got} instead of {want}\n{source(program).text}"
            )
            found["right"] += 1
        of_loop, of_batch = make(), make()
        try:
            looped(of_loop[0])(stack)
        except AliasError:
            return
        try:
            vmapped(of_batch[0])(stack)
        except BatchError:
            return
        assert same(leaves(of_batch[1]()), leaves(of_loop[1]()), 1e-6), (
            f"seed {seed}, captured arrays\n{source(program).text}"
        )


def run(seeds, samples=SAMPLES, xp=np, sparsely=False):
    found = Counter()
    for seed in seeds:
        judged(seed, found, samples, xp, not sparsely or seed % 6 == 0)
    print(dict(found))
    assert found["right"] > 0.6 * found.total() and found["refused"] <= 0.02 * (
        found["right"] + found["refused"]
    ), found


@pytest.mark.one_in(2)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seeds", [range(12), range(12, 24)], ids=str)
def test_programs(seeds):
    run(seeds, sparsely=True)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seeds", [range(k, k + 250) for k in range(90_000, 100_000, 250)], ids=str)
def test_ten_thousand_programs(seeds):
    run(seeds, (2, 3, 5)[seeds.start // 250 % 3])  # 2 and 5 are lengths of many axes, too


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seeds", [range(k, k + 20) for k in range(104_000, 104_080, 20)], ids=str)
def test_programs_on_cupy(seeds, xp):
    if xp is not np:
        run(seeds, xp=xp)


def test_the_judge_finds_a_batch_that_forgets(monkeypatch):
    """A captured array that hands a value on, without marks."""
    monkeypatch.setattr("tapegrad._transforms.batching.captured_marks.Marks.fail", lambda marks: None)
    total = np.zeros(1)

    def f(x):
        total[0] += x.sum()
        return total[0] * 1.0

    stack = np.arange(6.0).reshape(3, 2)
    assert not same(vmapped(f)(stack), looped(f)(stack))
    assert same([tg.vmap(lambda x: x.sum())(stack)], [stack.sum(1)])


# --- transforms within transforms, over captured arrays that each level writes ---

STATEMENTS = (
    "b[:] = z", "b[1:] *= z[:-1]", "b[0] = z[1] * z[2]", "b[...] += z", "c[1] = c[0] * z", "c[:, 1] = z[:2]",
    "z = z + b * 0.3", "z = z * c[0]", "np.multiply(b, z, out=b)", "c[...] = np.stack([z, b])",
    "b[:], c[0] = c[0] * 1.0, b * 1.0", "b[[0, 2]] = z[[2, 1]]", "z = np.sin(z) + c[1] * 0.2",
)  # fmt: skip
INNER = (
    "vmap(lambda s: h(z * s))(z + 1.5).sum(0)", "vmap(h)(np.stack([z, z * 0.5])).sum(0)",
    "vmap(lambda s, q: h(q + s), (0, None))(W, z)[1]", "tg.grad(lambda q: (h(q) * W).sum())(z)",
    "tg.jvp(h, (z,), (z[::-1],))[1]", "tg.vjp(h, z)[1](z * 0.5)", "tg.checkpoint(h)(z)",
    "vmap(tg.grad(lambda q: (h(q) * z).sum()))(np.stack([z, W])).sum(0)",
    "tg.grad(lambda Q: vmap(h)(Q).sum())(np.stack([z, W])).sum(0)",
)  # fmt: skip
OUTER = {
    "grad": lambda f, vmap: lambda x: tg.grad(lambda x: (f(x) * x).sum())(x),
    "vmap of vjp": lambda f, vmap: lambda x: vmap(lambda q: tg.vjp(f, q)[1](x))(np.stack([x, x[::-1]])),
    "vmap of jvp": lambda f, vmap: lambda x: vmap(lambda q: tg.jvp(f, (q,), (x,))[1])(np.stack([x, x / 2])),
    "vmap of vmap": lambda f, vmap: lambda x: vmap(vmap(f))(np.stack([[x, x[::-1]], [x / 2, -x]])),
    "hvp": lambda f, vmap: lambda x: tg.hvp(lambda x: (f(x) * x).sum(), x, x),
    "vmap of hvp": lambda f, vmap: lambda x: vmap(
        lambda q: tg.hvp(lambda q: (f(q) * x).sum(), q, x)
    )(np.stack([x, x / 2])),
}  # fmt: skip


def nest(rng):
    """Functions h0, h1 .. of three numbers; each calls the one before by a transform."""
    text = ""
    for k in range(rng.integers(2, 4)):
        lines = ["b[:] = z * 0.7", "c[...] = z * 0.4 + 0.1", *rng.choice(STATEMENTS, rng.integers(1, 3))]
        if k:
            inner = str(rng.choice(INNER)).replace("h(", "f(").replace("(h", "(f")
            lines += [f"z = np.tanh({inner})".replace("f(", f"h{k - 1}(").replace("(f", f"(h{k - 1}")]
        lines.append(
            rng.choice(["return z * 1.0", "return z + b * 0.3", "return z + c.sum(0)", "return b * z"])
        )
        text += f"def h{k}(z):\n    " + "\n    ".join(lines) + "\n"
    return f"{text}f = h{k}\n"


def run_nest(text, mode, vmap):
    space = {"np": np, "tg": tg, "vmap": vmap, "W": np.array([0.3, -0.8, 0.6]), "__name__": "nest"}
    space |= {"b": np.full(3, 0.25), "c": np.full((2, 3), 0.4)}
    exec(text, space)
    y = OUTER[mode](space["f"], vmap)(np.array([0.7, -0.4, 0.9]))
    return y, space["b"], space["c"]


def loop(f, in_axes=0):
    def each(*args):
        axes = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(args)
        given = [[x] * SAMPLES if axis is None else x for x, axis in zip(args, axes, strict=True)]
        return np.stack([f(*xs) for xs in zip(*given, strict=False)])

    return each


@pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, 1500), marks=pytest.mark.long)])
def test_nests(seeds):
    """As where loops are in the place of each `vmap`."""
    right = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        text, mode = nest(rng), str(rng.choice(list(OUTER)))
        try:
            found = run_nest(text, mode, tg.vmap)
        except BatchError:
            continue
        right += 1
        for a, b in zip(found, run_nest(text, mode, loop), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12, err_msg=f"{mode}\n{text}")
    assert right > len(seeds) / 2


@pytest.mark.parametrize("mode", ["vmap of vjp", "vmap of jvp", "vmap of hvp"])
def test_inner_vmap_writes_a_captured_array(mode):
    """What the last sample leaves there has the derivative of the transform between the two."""
    text = (
        "def f(z):\n    def e(s, q):\n        b[:] = q * s\n        return b ** 2 + s\n"
        "    return vmap(e, (0, None))(z, z * 0.5).sum(0) + b\n"
    )
    for a, b in zip(run_nest(text, mode, tg.vmap), run_nest(text, mode, loop), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
