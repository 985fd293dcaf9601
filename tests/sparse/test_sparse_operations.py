"""Every line of the table of operations: the pattern that is found holds all that differs from zero, of the
Jacobian and of the Hessian, in both scopes, and values are those of the dense derivatives."""

import numpy as np
import pytest
import scipy.linalg
from cases import all_cases

import tapegrad as tg
from tapegrad._core.trees import leaves


def joined(case):
    """The case as a function of one vector, all inputs of real floats in it, that gives one vector."""
    inputs = [np.asarray(x) for x in case.inputs]
    of = [k for k, x in enumerate(inputs) if x.dtype.kind == "f"]
    bounds = np.cumsum([0, *[inputs[k].size for k in of]])

    def f(z):
        args = list(inputs)
        for n, k in enumerate(of):
            args[k] = z[bounds[n] : bounds[n + 1]].reshape(inputs[k].shape)
        flat = [y.reshape(-1) for y in leaves(case.f(*args)) if hasattr(y, "shape") and y.dtype.kind in "fc"]
        flat = [part for y in flat for part in ((y.real, y.imag) if y.dtype.kind == "c" else (y,))]
        return np.concatenate([z[:1] * 0.0, *flat])

    return f, np.concatenate([inputs[k].reshape(-1) for k in of]) if of else None


def holds(pattern, dense, about):
    missing = (dense != 0) & ~pattern.toarray()
    assert not missing.any(), f"{about}: {np.argwhere(missing)[:5].tolist()} is missing"


def close(a, b, about):
    fine = np.isclose(a, b, rtol=1e-9, atol=1e-9 * np.max(abs(b), initial=1.0), equal_nan=True)
    assert fine.all(), f"{about}: {a} instead of {b}"


def judged(cases):
    """Number of lines of which a pattern is smaller than everything."""
    sparse = 0
    for case in cases:
        f, z = joined(case)
        if z is None or not case.order:
            continue
        weights = 0.3 + 0.1 * np.cos(np.arange(f(z).size))

        def scalar(z, f=f, weights=weights):
            return (weights * f(z)).sum()

        with np.errstate(all="ignore"):
            J = tg.jacobian(f)(z)
            for scope in ("global", "local"):
                plan = tg.sparse.prepare_jacobian(f, z, scope=scope)
                holds(plan.pattern, J, f"{case}, {scope}")
                close(plan(z).toarray(), J, f"{case}, {scope}")
                sparse += plan.pattern.nnz < J.size
            if case.order > 1:
                H = tg.hessian(scalar)(z)
                found = tg.sparse.pattern(scalar, z, second=True)
                holds(found, H, f"Hessian of {case}")
                if np.isfinite(H).all():
                    close(
                        tg.sparse.hessian(scalar, z, kind="acyclic").toarray(),
                        (H + H.T) / 2,
                        f"Hessian of {case}",
                    )
    return sparse


@pytest.mark.filterwarnings("ignore")
def test_some_operations():
    assert judged(all_cases()[7::170]) > 0


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", range(20))
def test_all_operations(first):
    judged(all_cases()[first::20])


UNKNOWNS = 6  # from 5 on, a replay factors a matrix once for several systems
LAPLACE = np.diag(np.full(UNKNOWNS, 3.0)) - np.diag(np.ones(UNKNOWNS - 1), 1)
VALUES_ALONE = {
    "two systems": lambda x: np.linalg.solve(LAPLACE, np.sin(np.linalg.solve(LAPLACE, x))),
    "a system and its transpose": lambda x: np.linalg.solve(LAPLACE, x) * np.linalg.solve(LAPLACE.T, x**2),
    "a computed matrix": lambda x: np.linalg.solve(
        np.diag(x + 4) + LAPLACE, np.linalg.solve(np.diag(x + 4) + LAPLACE, x**3)
    ),
    "a mask beside systems": lambda x: np.where(
        np.linalg.solve(LAPLACE, x) > 0.1, x, np.linalg.solve(LAPLACE, x[::-1]) ** 2
    ),
    "eigvals": lambda x: np.sort(np.linalg.eigvals(LAPLACE.T + np.diag(x * 3)).real),
    "eig": lambda x: np.abs(np.linalg.eig(LAPLACE + np.outer(x, x))[1][:, 0]),
    "scipy eigvals": lambda x: np.abs(scipy.linalg.eigvals(LAPLACE + np.outer(x, x[::-1]))),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("f", VALUES_ALONE.values(), ids=VALUES_ALONE)
def test_a_recording_of_values_tells_what_they_depend_on(f):
    """The recording may hold operations without rules, where those with rules give the same values."""
    x = np.linspace(0.2, 1.4, UNKNOWNS) ** 2
    J = tg.jacobian(f)(x)
    assert (J != 0).any()
    plan = tg.sparse.prepare_jacobian(f, x)
    holds(plan.pattern, J, "Jacobian")
    for z in (x, 1.1 * x):
        close(plan(z).toarray(), tg.jacobian(f)(z), "Jacobian")

    def square(x):
        return (f(x) ** 2).sum()

    close(tg.sparse.hessian(square, x).toarray(), tg.hessian(square)(x), "Hessian")


def test_steps_add_nothing_to_a_pattern():
    x = np.array([0.3, 1.2, -0.7, 2.1])
    for step in (np.floor, np.round, np.sign, np.trunc, lambda z: z // 0.3, np.argsort, np.isfinite):
        assert tg.sparse.pattern(lambda x, step=step: step(x)[::-1] * x, x).nnz == len(x)
