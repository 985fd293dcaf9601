"""Calls of scipy.sparse and scipy.sparse.linalg, as users write them: see public_calls.py."""

import numpy as np
import scipy.sparse as s
import scipy.sparse.linalg as l
from public_calls import table
from scipy.sparse.linalg import spsolve

from tapegrad.ops.declare import SCIPY

CALLS, t = table()
rng = np.random.default_rng(0)
A0 = s.random_array((6, 6), density=0.4, rng=1, format="csr") + s.eye_array(6) * 2
A0 = s.csr_array(A0)
R = s.random_array((4, 6), density=0.5, rng=2, format="csr")
d = A0.data.copy()
b = rng.normal(size=6)
B = rng.normal(size=(6, 3))
row, col = A0.tocoo().coords
for c in (
    "csr_array",
    "csr_matrix",
    "csc_array",
    "csc_matrix",
    "coo_array",
    "coo_matrix",
    "dia_array",
    "dia_matrix",
):
    A = getattr(s, c)(A0)
    t("captured " + c, lambda x, A=A: A @ x, b)
    t("captured M " + c, lambda x, A=A: A @ x, B)
    t("captured r " + c, lambda x, A=A: x @ A, b)
    t("captured rM " + c, lambda x, A=A: x @ A, B.T.copy())
    if "dia" not in c:
        t("make " + c, lambda d, x, c=c: getattr(s, c)((d, (row, col)), shape=(6, 6)) @ x, d, b)
        t("makeM " + c, lambda d, x, c=c: x @ getattr(s, c)((d, (row, col)), shape=(6, 6)), d, B.T.copy())
t("csr 3", lambda d, x: s.csr_array((d, A0.indices, A0.indptr), shape=(6, 6)) @ x, d, b)
t("csc 3", lambda d, x: s.csc_matrix((d, A0.indices, A0.indptr), shape=(6, 6)) @ x, d, b)
t(
    "dup",
    lambda d, x: (
        s.coo_array((np.concatenate([d, d**2]), (np.r_[row, row], np.r_[col, col])), shape=(6, 6)) @ x
    ),
    d,
    b,
)
t(
    "dup csr",
    lambda d, x: (
        s.csr_array((np.concatenate([d, d**2]), (np.r_[row, row], np.r_[col, col])), shape=(6, 6)).T @ x
    ),
    d,
    b,
)
D = rng.normal(size=(3, 6))
t("dia", lambda D, x: s.dia_array((D, [-1, 0, 2]), shape=(6, 6)) @ x, D, b)
t("diags", lambda u, v, x: s.diags([u, v, 2.0], [0, 1, -1], shape=(6, 6), format="csc") @ x, b, b[:5] ** 2, b)
t("diags_array", lambda u, x: s.diags_array([u, -u[1:]], offsets=[0, 1]) @ x, b, b)
t("spdiags", lambda D, x: s.spdiags(D, [0, 1, -1], 6, 6) @ x, D, b)
mk = lambda d: s.csr_array((d, A0.indices, A0.indptr), shape=(6, 6))
t("dense", lambda M, x: s.csr_array(M) @ x, B.T.copy(), b, samples=False)
t("AB", lambda d: (mk(d) @ mk(d * 2)).toarray(), d)
t("AR", lambda d: (R @ mk(d)).toarray(), d)
t("A+B", lambda d: (mk(d) + A0.T * d[0] - s.eye_array(6)).toarray(), d)
t("A*A", lambda d: mk(d).multiply(mk(d).T).toarray(), d)
t("A*dense", lambda d, M: (mk(d) * M).toarray(), d, B @ B.T)
t("/", lambda d: (mk(d) / d[1]).sum(0), d)
t("sum", lambda d: np.concatenate([mk(d).sum(0), mk(d).sum(1), mk(d).diagonal(), mk(d).diagonal(1)]), d)
t("slice", lambda d: mk(d)[1:4, [0, 2]].toarray(), d)
t("elem", lambda d: mk(d)[2, 2] * mk(d)[0, 0], d)
t("T", lambda d, x: mk(d).T.tocsc() @ x, d, b)
t("power", lambda d: mk(d).power(2).sum(), d)
t("abs", lambda d: abs(mk(d)).toarray(), d)
t("data", lambda d: mk(d).T.tocsr().data, d)
t("pow", lambda d: s.linalg.matrix_power(mk(d), 3).toarray(), d)
t("solve", lambda d, b: spsolve(mk(d).tocsc(), b), d, b)
t("solve M", lambda d, b: l.spsolve(mk(d).tocsc(), b), d, B)
t("solve c", lambda b: l.spsolve(A0.tocsc(), b), b)
t("splu", lambda d, b: l.splu(mk(d).tocsc()).solve(b), d, b)
t("splu T", lambda d, b: l.splu(mk(d).tocsc()).solve(b, "T"), d, B)
t(
    "splu U",
    lambda d: np.log(np.abs(l.splu(mk(d).tocsc(), permc_spec="NATURAL").U.diagonal())),
    d,
    samples=False,
)
t("splu L", lambda d: (f := l.splu(mk(d).tocsc())).L.toarray()[:, f.perm_c] @ f.U.toarray(), d, samples=False)
lu = l.splu(A0.tocsc())
t("captured lu", lambda b: lu.solve(b), b)
t("captured lu M", lambda b: lu.solve(b, "T"), B)
t("factorized", lambda d, b: l.factorized(mk(d).tocsc())(b), d, b)
t("splu in", lambda b: l.splu(A0.tocsc()).solve(b), b)
t("tri", lambda d, b: l.spsolve_triangular(s.tril(mk(d)).tocsr(), b), d, b)
for n in ("cg", "gmres", "bicgstab"):
    t(
        n,
        lambda d, b, n=n: getattr(l, n)((mk(d) @ mk(d).T).tocsr(), b, rtol=1e-12)[0],
        d,
        b,
        exact=1e-9,
        samples=False,
    )
t("expm", lambda d, b: l.expm_multiply(mk(d), b), d, b, samples=False)
t("expm M", lambda d, b: l.expm_multiply(mk(d), b), d, B, samples=False)
t("expm t", lambda b: l.expm_multiply(A0, b, start=0, stop=1, num=3, endpoint=True), b)
t("kron", lambda d: s.kron(mk(d), R).toarray(), d)
t("kronsum", lambda d: s.kronsum(mk(d), mk(d)).toarray(), d)
t("bmat", lambda d, x: s.bmat([[mk(d), None], [R, s.eye(4)]]).tocsr() @ np.concatenate([x, x[:4]]), d, b)
t("block_array", lambda d, x: s.block_array([[mk(d), R.T], [R, None]]) @ np.concatenate([x, x[:4]]), d, b)
t("hstack", lambda d: s.hstack([mk(d), R.T, mk(d)]).toarray(), d)
t("vstack", lambda d: s.vstack([mk(d), R]).toarray(), d)
t("block_diag", lambda d: s.block_diag([mk(d), R]).toarray(), d)
t("triu", lambda d: s.triu(mk(d), 1).toarray(), d)
t("eye", lambda x: (s.eye(6) + s.eye(6, k=1)) @ x, b)
t("find", lambda d: s.find(mk(d))[2], d)
t("norm", lambda d: l.norm(mk(d)) + l.norm(mk(d), 1) + l.norm(mk(d), np.inf), d)
t("norm ax", lambda d: l.norm(mk(d), axis=0), d)
BEFORE = len(CALLS)
# arrays count element by element, matrices as matrices
t("A**2", lambda d: (mk(d) ** 2).toarray(), d)
t("A**1.5", lambda d: (mk(abs(d)) ** 1.5).toarray(), d)
t("M**2", lambda d: (s.csr_matrix((d, A0.indices, A0.indptr), shape=(6, 6)) ** 2).toarray(), d)
t("captured A**2", lambda x: (A0**2) @ x, b)
# sparse operands of other shapes
COLUMN, ROW, LINE = A0[:, [1]], A0[[2]], A0[3]
t("A*column", lambda d: mk(d).multiply(COLUMN).toarray(), d)
t("A*row", lambda d: (mk(d) * ROW).toarray(), d)
t("row*A", lambda d: (ROW * mk(d)).toarray(), d)
t("A*line", lambda d: (mk(d) * LINE).toarray(), d)
t("column*row", lambda d: (mk(d)[:, [1]] * ROW).toarray(), d)
# arrays of one axis
t("line @ x", lambda d, x: mk(d)[1] @ x, d, b)
t("line @ M", lambda d, x: mk(d)[1] @ x, d, B)
t("x @ line", lambda d, x: x @ mk(d)[1], d, b)
t("M @ line", lambda d, x: x @ mk(d)[1], d, B.T.copy())
t("line @ line", lambda d: mk(d)[1] @ mk(d)[2], d)
t("line @ A", lambda d: (LINE @ mk(d)).toarray(), d)
t("A @ line", lambda d: (mk(d) @ LINE).toarray(), d)
t("line sums", lambda d: mk(d)[1].sum() * mk(d)[:, 2].sum(axis=0) * mk(d)[3].mean(), d)
t("line + line", lambda d: (mk(d)[1] - mk(d)[2] * LINE).toarray(), d)
t("line*x", lambda d, x: (mk(d)[1].multiply(x) + mk(d)[2] / x**2).toarray(), d, b)
t("captured line", lambda x: (LINE @ x) * LINE.multiply(x).toarray(), b)
if SCIPY >= (1, 16):
    t("sum axes", lambda d: mk(d).sum(axis=(0, 1)) * mk(d).mean(axis=-1), d)


def filled(d):
    out = np.zeros((6, 6))
    mk(d).toarray(out=out)
    return out


t("toarray out", filled, d)
SHAPES = CALLS[BEFORE:]
C = A0.copy()


def write(d, x):
    C.data[:] = d * 2
    return C @ x


t("write", write, d, b, samples=False)

SYM = lambda d: mk(d) + mk(d).T + s.eye_array(6) * 0.1
t("eigsh", lambda d: l.eigsh(SYM(d), 2, v0=np.ones(6))[0], d, samples=False, exact=1e-9, h=1e-4, rtol=1e-6)
t(
    "eigsh v",
    lambda d: l.eigsh(SYM(d), 1, which="SA", v0=np.ones(6))[1] ** 2,
    d,
    samples=False,
    exact=1e-8,
    h=1e-4,
    rtol=1e-6,
)
t("expm dense", lambda d: l.expm(mk(d) * 0.3).toarray(), d, samples=False)
t("inv", lambda d: l.inv(mk(d).tocsc()).toarray(), d, samples=False)
TALL = lambda d: s.vstack([mk(d), R])
t(
    "lsqr",
    lambda d, b: l.lsqr(TALL(d), np.concatenate([b, b[:4]]), atol=1e-13, btol=1e-13)[0],
    d,
    b,
    samples=False,
    exact=1e-8,
    rtol=1e-6,
)
t(
    "lsmr",
    lambda d, b: l.lsmr(TALL(d), np.concatenate([b, b[:4]]), damp=0.3, atol=1e-13, btol=1e-13)[0],
    d,
    b,
    samples=False,
    exact=1e-8,
    rtol=1e-6,
)

TWICE = (np.r_[0, 0, 2, 1, 1], np.r_[0, 2, 5])  # columns 0, 0 of the first row, 1, 1 of the second
t("csr with duplicates", lambda d: s.csr_array((d[:5], *TWICE), shape=(2, 3)).toarray(), d)
t("csr with duplicates @", lambda d, x: s.csr_array((d[:5], *TWICE), shape=(2, 3)).T @ x[:2], d, b)
