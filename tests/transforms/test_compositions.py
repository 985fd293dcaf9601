"""Constructs inside constructs, under every transform: right, or refused by an error of tapegrad's.

`python tests/transforms/test_compositions.py FIRST NUMBER` judges that many random nests."""

import sys
import warnings
from collections import Counter

import numpy as np
import pytest
from composed_programs import CONSTRUCTS, FIRST, SECOND, Composed, drawn

# refused under vmap: an object whose state goes by values
REFUSED = {"solver_object"}


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SciPy's own, of accuracies that it does not reach
        yield


def judged(program, transforms, found):
    for name, verdict in program.judge(transforms).items():
        assert verdict in ("right", "refused", "unjudged"), f"{name} of {program.name}: {verdict}"
        found[verdict] += 1


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", CONSTRUCTS)
def test_each_construct(name):
    """Two transforms of each by default, which change from one to the next."""
    k, found = [*CONSTRUCTS].index(name), Counter()
    program = Composed([name], "mixed", np.array([0.4, -0.3, 0.25]))
    names = [[*FIRST][4 * k % len(FIRST)], [*SECOND][3 * k % len(SECOND)]]
    judged(program, names, found)
    assert found["right"] == 2 or name in REFUSED, found


@pytest.mark.long
@pytest.mark.parametrize("name", CONSTRUCTS)
def test_each_construct_under_each_transform(name):
    found = Counter()
    judged(Composed([name], "mixed", np.array([0.4, -0.3, 0.25])), [*FIRST, *SECOND], found)
    assert found["right"] == len(FIRST) + len(SECOND) or name in REFUSED, found


def test_a_captured_buffer_that_a_solver_writes():
    """Equal samples let the solver run once; its function's buffer keeps its marks."""
    program = Composed(["odeint"], "captured", np.array([0.4, -0.3, 0.25]))
    found = program.judge(["grad of vmap, equal", "grad of vmap", "hvp of vmap"])
    assert found == {"grad of vmap, equal": "right", "grad of vmap": "refused", "hvp of vmap": "right"}


def run(seeds):
    found = Counter()
    for seed in seeds:
        judged(*drawn(seed), found)
    print(dict(found))
    assert found["right"] > 2 * (found["refused"] + found["unjudged"]), found


@pytest.mark.long
def test_random_nests():
    run(range(5))


@pytest.mark.long
@pytest.mark.parametrize("first", range(100, 400, 20))
def test_many_random_nests(first):
    run(range(first, first + 20))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    run(range(int(sys.argv[1]), int(sys.argv[1]) + int(sys.argv[2])))
