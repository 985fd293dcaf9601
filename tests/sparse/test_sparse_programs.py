"""Random programs that write in place, through views and into captured arrays: the pattern holds what differs
from zero, values are
those of the dense derivatives, at the point of the pattern and at others.  What cannot be recorded says so."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from judged_programs import argument
from looped import same
from random_programs import draw, source

import tapegrad as tg
from tapegrad.errors import GuardError


def makers(seed):
    """Two functions that make the program anew, with one number as result, and with many."""
    text = source(replace(draw(seed), reset=True)).text
    many = text.replace(".reshape(a.shape))).sum()", ".reshape(a.shape))).reshape(-1)")
    head, _, rest = many.rpartition("        return ")
    result, _, tail = rest.partition("\n")
    many = f"{head}        return np.concatenate([{result.replace(') + ', '), ')}])\n{tail}"
    found = []
    for t in (text, many):
        space = {"np": np, "tg": tg, "__name__": "random_program"}
        exec(compile(t, "<random program>", "exec"), space)
        found.append(space["setting"])
    return (*found, many)


def judged(seed, counts):
    one, many, text = makers(seed)
    x = argument(seed, np)[0]
    with np.errstate(all="ignore"):
        for made, dense_of, plan_of in (
            (many, tg.jacobian, tg.sparse.prepare_jacobian),
            (one, tg.hessian, tg.sparse.prepare_hessian),
        ):
            for scope in ("global", "local"):
                about = f"seed {seed}, {plan_of.__name__}, {scope}\n{text}"
                try:
                    plan = plan_of(made()[0], x, scope=scope)
                except GuardError as e:
                    counts[f"refused: {str(e)[-60:]}"] += 1
                    continue
                for k, point in enumerate((x, x * 1.01, np.linspace(0.4, -0.6, 5), -x)):
                    dense = dense_of(made()[0])(point)
                    try:
                        found = plan(point)
                    except GuardError:
                        assert k, about
                        counts["guarded"] += 1
                        continue
                    counts["right"] += 1
                    counts["sparse"] += found.nnz < dense.size
                    got, fine = found.toarray(), np.isfinite(dense).all()
                    found.data[:] = (
                        # of this layout: where x is a view of another array, the program may be another one
                        1.0
                    )
                    assert not fine or not ((dense != 0) & (found.toarray() == 0)).any(), about
                    assert not fine or same([got], [dense], 1e-8), f"{about}{got} instead of {dense}"


def run(seeds):
    counts = Counter()
    for seed in seeds:
        judged(seed, counts)
    print(dict(counts))
    assert counts["right"] > len(seeds)
    assert sum([n for name, n in counts.items() if name.startswith("refused")]) < counts["right"]
    return counts


@pytest.mark.filterwarnings("ignore")
def test_programs():
    run(range(2))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seeds", [range(k, k + 50) for k in range(200_000, 203_000, 50)], ids=str)
def test_three_thousand_programs(seeds):
    run(seeds)
