"""Under each transform a call has the value of the plain call: number, dtype, shape and kind of the result,
or the exception."""

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
from families import DISCRETE
from plain_values import LAWS, MODES, NO_REFERENCE, array_calls, count_calls, difference, law_calls, outcome

from tapegrad.ops.declare import SCIPY

# Of these the values under a transform are other ones by design (vectors of equal eigenvalues follow the
# tangent, triangles that nobody reads are zero), derivatives do not exist at many of the points, or the plain
# function does not return from them.
NOT_SEARCHED = set(
    "eig eigh eigvals eig_banded eigvals_banded cho_factor cholesky_banded solveh_banded lstsq pinv svd "
    "qr rq qz ordqz schur rsf2csf lu lu_factor ldl polar orth null_space signm subspace_angles "
    "orthogonal_procrustes qr_multiply slogdet sqrtm hessenberg expm_frechet companion fiedler_companion "
    "matmul_toeplitz solve_toeplitz solve_circulant solve_continuous_lyapunov solve_discrete_lyapunov "
    "solve_lyapunov test tanm tanhm".split()
)
FUNCTIONS = {
    f"{library.__name__}.{name}": f
    for library in (np.linalg, scipy.linalg)
    for name, f in vars(library).items()
    if callable(f) and not isinstance(f, type) and name[0] != "_" and name not in NOT_SEARCHED
}
REFERENCES = [n for n in LAWS if n not in NO_REFERENCE]
SHORT = ("forward", "reverse")


def compared(calls, modes, rtol, each=False):
    count, wrong = 0, []
    for text, f, x in calls:
        expected = outcome(f, x.copy())
        for mode in modes:
            count += 1
            told = difference(
                expected,
                outcome(MODES[mode], f, x.copy()),
                1e-3 if np.asarray(x).dtype == np.float32 else rtol,
                each,
            )
            if told is not None:
                wrong.append(f"{mode}, {text}: {told}")
    assert not wrong, f"{len(wrong)} of {count}\n" + "\n".join(wrong[:5])
    return count


def finite(y):
    return isinstance(y, np.ndarray) and np.all(np.isfinite(y))


def own_arguments(name):
    """The calls of a function of matrices that mean something."""
    settings = {"cholesky": 1, "norm": 1, "cond": 1, "det": 1, "inv": 1, "expm": 1, "logm": 1}
    for text, f, x in array_calls(FUNCTIONS[name]):
        if name == "scipy.linalg.solve" and SCIPY < (1, 17) and not finite(outcome(f, x.copy())):
            continue  # (a matrix of zeros was solved as a diagonal one)
        if name.rpartition(".")[2] not in settings or "), (" not in text:
            yield text, f, x


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_matrices(name):
    compared(own_arguments(name), SHORT[len(name) % 2 :][:1], 1e-8)


@pytest.mark.long
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_matrices_in_all_transforms(name):
    exact = name != "scipy.linalg.norm"  # in a recording its squares may overflow
    compared(own_arguments(name), [m for m in MODES if exact or m != "prepared"], 1e-8)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REFERENCES[::4])
def test_laws_at_the_ends_of_their_supports(name):
    compared(list(law_calls(name))[::4], SHORT[:1], 1e-7, each=True)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REFERENCES)
def test_laws_in_all_transforms(name):
    compared(law_calls(name), ("forward", "reverse", "nested"), 1e-7, each=True)


@pytest.mark.parametrize("name", [n for n in DISCRETE if n not in NO_REFERENCE][::3])
def test_laws_of_counts(name):
    compared(count_calls(name), SHORT[:1], 1e-7, each=True)
