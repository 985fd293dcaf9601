"""The memory of sparse matrices: which of them share their elements, in which order the elements stand, and
what becomes of several elements at one place.

The judge is SciPy, which runs the same text on plain numbers; the derivatives are judged by differences."""

import random

import numpy as np
import pytest
import scipy.sparse as ss
import scipy.sparse.linalg as spla
from scipy.spatial import cKDTree

import tapegrad as tg

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # of numpy.matrix
POINT = np.array([0.7, -0.4, 1.3, 0.35, -1.1, 0.9])
DIRECTION = np.array([0.3, 0.8, -0.5, 0.2, -0.7, 0.4])
GIVEN = {
    "np": np,
    "ss": ss,
    "spla": spla,
    "cKDTree": cKDTree,
    "c": np.array([0.3, -0.8, 1.2, 0.5, -0.1, 0.75]),
    "W": np.arange(16.0).reshape(4, 4) / 7,
    "rows": np.array([0, 1, 1, 2, 3, 0]),
    "cols": np.array([1, 2, 0, 1, 3, 0]),
    "rows2": np.array([0, 1, 1, 2, 0, 0]),  # with several elements at one place
    "cols2": np.array([1, 2, 2, 0, 1, 1]),
    "sorted2": np.array([1, 1, 2, 2, 1, 3]),
    "unsorted": np.array([3, 1, 2, 0, 1, 3]),
    "starts": np.array([0, 2, 4, 5, 6]),
}
SHARING = """
csr_array((y, (rows, cols))) | B = A.copy(); B.data[0] = 0.5
csr_array((y, (rows, cols))) | B = A.tocsr(); B.data[0] = 0.5
csr_matrix((y, (rows, cols))) | B = A.T; B.data[0] = 0.5; A.data[1:3] *= y[4]
csr_array((y, (rows, cols))) | B = A.tocoo(); B.data[1] = y[3]; A.data[2] = 3.0
csr_array((y, (rows, cols))) | B = A.tocsc(); B.data[:2] = c[:2] * y[0]
coo_array((y, (rows, cols))) | B = A.tocsr(); B.data *= y[0]; B.data[2] = 1.5
csc_matrix((y, (rows, cols))) | B = A.astype(float, copy=False); np.sin(B.data, out=B.data)
csr_array((y, (rows, cols))) | B = ss.csr_array(A, copy=True); B.data[0] = 9.0
csr_array((y, (rows, cols))) | B = A.conj(); B *= 2.0; B.data[0] = y[1]
coo_array((y, (rows2, cols2))) | B = A.copy(); B.data[0] = 0.5
coo_array((y, (rows2, cols2))) | B = -A; A.data **= 2
coo_array((y, (rows2, cols2))) | B = A.power(2)
csr_array((y, sorted2, starts)) | B = A.multiply(A); B.data[0] = y[2]
csr_array((y * 1, sorted2, starts)) | B = A * 2.0; A.sum_duplicates(); A.data[-1] += y[1]
csc_array((y, (rows, cols))) | B = A.multiply(A); B.data[1:3] = y[:2]
csr_array((y, (rows, cols))) | B = A[1:3]; B.data[0] = 0.25
csr_array((y, (rows, cols))) | B = A @ A; B.data[:3] = c[:3] * y[0]
csr_array((y, sorted2, starts)) | B = A @ A.T; B.data[1:] *= y[1]
csc_array((y, (rows, cols))) | B = A @ A; B.data[0] = y[2]
csr_array((y, (rows, cols))) | B = A @ A.tocsc() @ A; B.data[:3] *= c[:3]
csc_array((y, (rows, cols))) | B = A.T @ A; B.data[:3] = c[:3] * y[0]
csr_array((y, unsorted, starts)) | B = A + A.T; B.data[:3] = c[:3] * y[0]
csr_array((y, unsorted, starts)) | B = ss.eye_array(4) - A; B.data[:3] = c[:3] * y[0]
csc_array((y, unsorted, starts)) | B = A.multiply(A.T) - A; B.data[:3] = c[:3] * y[0]
csr_array((y, (rows, cols))) | B = A @ A + A; B.data[:3] = c[:3] * y[0]
coo_array((y, (rows2, cols2))) | B = ss.triu(A, format="csr"); B.data[:2] = c[:2] * y[0]
coo_array((y, (rows2, cols2))) | B = ss.hstack([A, 2 * A], format="csr"); B.data[:2] = c[:2] * y[0]
"""
FORMATS = "csr_array", "csc_array", "coo_array", "csr_matrix", "csc_matrix", "coo_matrix"
MOVES = (
    "copy()", "tocsr()", "tocsc()", "tocoo()", "T", "transpose(copy=True)", "tocsr(copy=True)", "conj()",
    "tocoo(copy=False)", "asformat('csc')", "astype(float)", "astype(float, copy=False)", "real",
)  # fmt: skip
ARITHMETIC = (
    "{} * y[0]",
    "-{}",
    "abs({})",
    "{}.power(2)",
    "{}.sin()",
    "{0}.multiply({0})",
    "{}.multiply(c[:4])",
)
WRITES = (
    "{}.data[0] = 0.5", "{}.data *= 1.5", "{}.data[1:3] = c[:2] * y[0]", "{0}.data = {0}.data**2",
    "{}.data[-1] += y[1]", "{} *= 2.0", "{} /= y[2]", "np.sin({0}.data, out={0}.data)",
)  # fmt: skip
READS = (
    "{}.sum()", "{} @ c[:4]", "({}.toarray() ** 2).sum()", "{}.T @ y[:4]", "{}.diagonal() @ c[:4]",
    "{}.tocsr()[1, 1]", "np.asarray({}.sum(axis=0)).ravel() @ c[:4]", "{}.todia().toarray()[0]",
    "{}.tolil().toarray()[1]", "{}.tocsr()[[1, 0, 2]].toarray()",
)  # fmt: skip


def program(seed: int) -> list[str]:
    """The lines of a random program: matrices A, B, ... and what is read of them, in `found`."""
    r = random.Random(seed)
    at = r.choice(("(rows, cols)", "(rows2, cols2)"))
    lines, names = [f"A = ss.{r.choice(FORMATS)}((y, {at}), shape=(4, 4), copy={r.random() < 0.5})"], ["A"]
    for _ in range(r.randint(2, 7)):
        m, kind = r.choice(names), r.choice("mmwwar")
        if kind == "w":
            lines.append(r.choice(WRITES).format(m))
        elif kind == "r":
            lines.append(f"found.append(np.sum({r.choice(READS).format(m)}))")
        else:
            names.append(chr(65 + len(names)))
            made = f"{m}.{r.choice(MOVES)}" if kind == "m" else r.choice(ARITHMETIC).format(m)
            lines.append(f"{names[-1]} = {made}")
    return lines + [f"found += [({m}.toarray() * W).sum(), ({m}.data**3).sum()]" for m in names]


def function(lines: list[str]):
    text = "\n    ".join(["def f(x):", "y, found = x * 1.0, []", *lines, "return np.array(found)"])
    space = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in GIVEN.items()}
    exec(text, space)
    return space["f"]


def judge(lines: list[str]) -> None:
    text, h = "\n".join(lines), 1e-3
    run = lambda t: function(lines)(POINT + t * DIRECTION)
    slopes = [(run(k) - run(-k)) / (2 * k) for k in (h, h / 2)]
    value, slope = tg.jvp(function(lines), (POINT,), (DIRECTION,))
    np.testing.assert_allclose(value, run(0.0), rtol=1e-12, atol=1e-12, err_msg=text)
    np.testing.assert_allclose(slope, (4 * slopes[1] - slopes[0]) / 3, rtol=1e-6, atol=1e-6, err_msg=text)
    pulled = tg.vjp(function(lines), POINT)[1](np.cos(np.arange(len(value))))
    np.testing.assert_allclose(pulled @ DIRECTION, slope @ np.cos(np.arange(len(value))), rtol=1e-9)


@pytest.mark.parametrize("text", SHARING.strip().split("\n"))
def test_matrices_share_memory_as_scipys(text):
    first, then = text.split(" | ")
    read = "found += [(A.toarray() * W).sum(), B.toarray().sum(), *A.data, *B.data, A.nnz, B.nnz, *y]"
    judge([f"A = ss.{first[:-1]}, shape=(4, 4))", *then.split("; "), read])


@pytest.mark.parametrize(
    "seeds", [range(20), pytest.param(range(20, 400), marks=pytest.mark.long)], ids=["few", "many"]
)
def test_random_programs(seeds):
    for seed in seeds:
        judge(program(seed))


@pytest.mark.parametrize(
    "text",
    [
        "lu = spla.splu(A); A.data *= 2; found += [*lu.solve(c[:4]), *lu.solve(y[:4], 'T')]",
        "solve = spla.factorized(A); A.data[0] = 9.0; found += [*solve(y[:4])]",
        "p = y.reshape(3, 2); tree = cKDTree(p, copy_data=True); p *= 2; found += [*tree.query(W[:2, :2])[0]]",
    ],
)
def test_what_keeps_a_copy_is_of_the_values_that_it_was_made_of(text):
    judge(["A = ss.csc_array((y, (rows, cols)), shape=(4, 4)) + ss.eye_array(4) * 4", *text.split("; ")])
