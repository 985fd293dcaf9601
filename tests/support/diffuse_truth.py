"""Makes diffuse_truth.json: log-likelihoods, gradients and smoothed states of the models in
diffuse_models.py, in 2000 bits.

    python tests/support/diffuse_truth.py 150        # with so many random models; needs python-flint

The start has a variance of kappa = 1e80 for each diffuse element, and the log-likelihood gets q / 2 log kappa.  The error is about 1e-80.
Gradients are central differences with a relative step of 1e-60, smoothed states come by the recursion of
Rauch, Tung and Striebel. `condition` is that of the whitened diffuse columns, scaled to length 1."""

import json
import sys
from pathlib import Path

import numpy as np
from diffuse_models import NAMED, drawn

try:
    import flint
    from flint import arb, arb_mat
except ImportError:
    sys.exit("needs python-flint") if __name__ == "__main__" else None
else:
    flint.ctx.prec = 2000  # the first rows of ill-conditioned models take hundreds of digits
    KAPPA = arb(10) ** 80


def exact(x):
    return arb_mat([[arb(float(v)) for v in row] for row in np.atleast_2d(x)])


def floats(x):
    return np.array([[float(x[i, j]) for j in range(x.ncols())] for i in range(x.nrows())])


def matrices(model, q):
    add = lambda base, Ds: sum([exact(D) * x for x, D in zip(q, Ds, strict=True) if D.any()], exact(base))
    return add(model.T0, model.DT), add(0.0 * model.DQ[0], model.DQ), add(0.0 * model.DH[0], model.DH)


def filtered(model, q, states=False):
    """The log-likelihood, and the filtered states."""
    T, Q, H = matrices(model, q)
    m, back = len(model.T0), T.transpose()
    P, a = exact(model.cov) + exact(np.diag(1.0 * model.mark)) * KAPPA, exact(np.zeros((m, 1)))
    total, means, covs = arb(0), [], []
    for t, y in enumerate(model.y):
        rows = np.flatnonzero(~np.isnan(y))
        if len(rows):
            Z = exact((model.Z if model.Z.ndim == 2 else model.Z[t])[rows])
            M = P * Z.transpose()
            F = Z * M + arb_mat([[H[int(i), int(j)] for j in rows] for i in rows])
            v, inverse = exact(y[rows][:, None]) - Z * a, F.inv()
            total = (
                total
                - (len(rows) * (2 * arb.pi()).log() + F.det().log() + (v.transpose() * inverse * v)[0, 0]) / 2
            )
            a, P = (a + M * inverse * v).mid(), (P - M * inverse * M.transpose()).mid()
        if states:
            means.append(a)
            covs.append(P)
        a, P = (T * a).mid(), T * P * back + Q
        P, total = ((P + P.transpose()) * arb(0.5)).mid(), total.mid()
    return total + int(model.mark.sum()) * KAPPA.log() / 2, means, covs


def smoothed(model, q, steps):
    """Means and variances of the states at these steps."""
    _, means, covs = filtered(model, q, True)
    T, Q, _ = matrices(model, q)
    a, P, found = means[-1], covs[-1], {}
    for t in reversed(range(len(means))):
        if t < len(means) - 1:
            ahead = T * covs[t] * T.transpose() + Q
            J = covs[t] * T.transpose() * ahead.inv()
            a, P = (
                (means[t] + J * (a - T * means[t])).mid(),
                (covs[t] + J * (P - ahead) * J.transpose()).mid(),
            )
        if t in steps:
            found[t] = [floats(a)[:, 0].tolist(), np.diag(floats(P)).tolist()]
    return [found[t] for t in steps]


def condition(model, q):
    """Of the rows W = L^-1 X, with L L' the covariance of the data and X the diffuse columns; None where L is
    singular."""
    T, Q, H = matrices(model, q)
    A, P, S = exact(np.eye(len(model.T0))[:, model.mark]), exact(model.cov), 0
    for t, y in enumerate(model.y):
        rows = np.flatnonzero(~np.isnan(y))
        if len(rows):
            Z = exact((model.Z if model.Z.ndim == 2 else model.Z[t])[rows])
            M = P * Z.transpose()
            F = Z * M + arb_mat([[H[int(i), int(j)] for j in rows] for i in rows])
            if not F[0, 0] > 0:
                return None
            inverse, X = F.inv(), Z * A
            S = X.transpose() * inverse * X + S
            A, P = (A - M * inverse * X).mid(), (P - M * inverse * M.transpose()).mid()
        A, P = (T * A).mid(), (T * P * T.transpose() + Q).mid()
    n = S.nrows()
    scaled = arb_mat([[S[i, j] / (S[i, i] * S[j, j]).sqrt() for j in range(n)] for i in range(n)]).mid()
    values = [float(x.real) for x in flint.acb_mat(scaled).eig(multiple=True, algorithm="approx")]
    return float(np.sqrt(max(values) / max(min(values), 1e-80)))


def said(model):
    q = [arb(float(x)) for x in model.q]
    step, gradient = arb(10) ** -60, {}
    for i in range(len(q)) if model.entry is None else [model.entry]:
        up, down = list(q), list(q)
        up[i], down[i] = q[i] * (1 + step), q[i] * (1 - step)
        gradient[i] = float((filtered(model, up)[0] - filtered(model, down)[0]) / (2 * step * q[i]))
    found = {"loglik": float(filtered(model, q)[0]), "gradient": gradient, "condition": condition(model, q)}
    return found | ({"states": smoothed(model, q, model.steps)} if model.steps else {})


if __name__ == "__main__":
    place = Path(__file__).with_suffix(".json")
    known = json.loads(place.read_text()) if place.exists() else {}
    for name, made in [
        *NAMED.items(),
        *((f"seed {seed}", lambda seed=seed: drawn(seed)) for seed in range(int(sys.argv[1]))),
    ]:
        if name not in known:
            known[name] = said(made())
            print(name, known[name]["loglik"], known[name]["condition"], flush=True)
            place.write_text(json.dumps(known, indent=0))
