"""Calls of sparse eigenvalues and linear operators, as users write them: see public_calls.py."""

import numpy as np
import scipy.linalg
import scipy.sparse as sp
import scipy.sparse.linalg as l
from public_calls import cat, table

CALLS, t = table(samples=False)
rng = np.random.default_rng(0)
A0 = sp.csr_array(
    sp.random_array((9, 9), density=0.4, rng=1, format="csr") + sp.diags_array(np.arange(1.0, 10.0))
)
d = A0.data.copy()
v9 = rng.normal(size=9)
mk = lambda d: sp.csr_array((d, A0.indices, A0.indptr), shape=(9, 9))
S = (A0 + A0.T).tocsr()
B9 = sp.diags_array(np.linspace(1, 2, 9)).tocsr()


def sq(v):
    return np.abs(v) ** 2


t("eigs", lambda d: l.eigs(mk(d), 3, v0=v9)[0], d, exact=1e-9)
t("eigs vectors", lambda d: sq(l.eigs(mk(d), 3, v0=v9)[1]), d, exact=1e-9)
t("eigs M", lambda d: l.eigs(mk(d), 2, M=B9 * d[0], v0=v9)[0], d, exact=1e-9)
sym = lambda d: (mk(d) + mk(d).T) * 0.5
t(
    "eigsh M",
    lambda d: cat(l.eigsh(sym(d), 2, M=B9 * d[0], v0=v9)[0], sq(l.eigsh(sym(d), 2, M=B9 * d[0], v0=v9)[1])),
    d,
    exact=1e-9,
)
t(
    "lobpcg",
    lambda d: cat(
        l.lobpcg(sym(d), np.eye(9)[:, :2], tol=1e-12, maxiter=300)[0],
        sq(l.lobpcg(sym(d), np.eye(9)[:, :2], tol=1e-12, maxiter=300)[1]),
    ),
    d,
    exact=1e-7,
)
R0 = sp.random_array((5, 7), density=0.6, rng=3, format="csr")
t(
    "svds",
    lambda d: l.svds(sp.csr_array((d, R0.indices, R0.indptr), shape=(5, 7)), 2)[1],
    R0.data,
    exact=1e-9,
)
t(
    "svds vectors",
    lambda d: cat(
        *[
            sq(v)
            for v in l.svds(sp.csr_array((d, R0.indices, R0.indptr), shape=(5, 7)), 2, v0=np.ones(5))[::2]
        ]
    ),
    R0.data,
    exact=1e-9,
)
t("aslinearoperator", lambda d, x: (l.aslinearoperator(mk(d)) * 2 + l.aslinearoperator(A0)).matvec(x), d, v9)
op = l.aslinearoperator(A0)
t("operator captured", lambda x: op @ x + op.rmatvec(x), v9)
t(
    "LinearOperator",
    lambda p, x: l.LinearOperator((9, 9), matvec=lambda x: p * x, rmatvec=lambda x: p * x, dtype=float).T @ x,
    v9 * 2,
    v9,
)
t(
    "gmres operator",
    lambda p, b: l.gmres(
        l.LinearOperator((9, 9), matvec=lambda x: p * x + 0.1 * np.roll(x, 1), dtype=float), b, rtol=1e-12
    )[0],
    d[:9] + 3,
    v9,
    exact=1e-9,
)
t("onenormest", lambda d: l.onenormest(mk(d)), d, exact=1e-9)
if hasattr(l, "funm_multiply_krylov"):  # from SciPy 1.16 on
    t(
        "funm_krylov",
        lambda d, b: l.funm_multiply_krylov(scipy.linalg.expm, mk(d) * 0.1, b, rtol=1e-10),
        d,
        v9,
        exact=1e-9,
        rtol=1e-6,
    )
