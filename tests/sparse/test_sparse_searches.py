"""The sparsity pattern of a function that searches: the solution moves with what its function captured."""

import numpy as np
import pytest
import scipy.integrate
import scipy.optimize

import tapegrad as tg

X = np.array([2.5, 0.7, 1.2])
SEARCHES = {
    "newton": lambda a: scipy.optimize.newton(lambda z: z * z - a, 1.5),
    "brentq": lambda a: scipy.optimize.brentq(lambda z: z**3 + z - a, 0.0, 9.0),
    "root": lambda a: scipy.optimize.root(lambda z: z**3 + z - a, np.ones(1)).x[0],
    "fsolve": lambda a: scipy.optimize.fsolve(lambda z: z**3 + z - a, 1.0)[0],
    "minimize": lambda a: scipy.optimize.minimize(lambda z: ((z - a) ** 2 + z**4).sum(), np.zeros(1)).x[0],
    "quad": lambda a: scipy.integrate.quad(lambda z: np.exp(-a * z), 0.0, 1.0)[0],
    "solve_ivp": lambda a: scipy.integrate.solve_ivp(lambda t, y: -a * y, (0.0, 1.0), [1.0]).y[0, -1],
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_patterns_hold_what_a_search_captured(search):
    def f(x):
        return x**2 + np.array([0.0, 1.0, 0.0]) * search(x[0])

    dense = tg.jacobian(f)(X)
    assert dense[1, 0] != 0
    plan = tg.sparse.prepare_jacobian(f, X)
    for x in (X, X + 0.25):
        np.testing.assert_allclose(plan(x).toarray(), tg.jacobian(f)(x), rtol=1e-9)
    H = tg.sparse.prepare_hessian(lambda x: (f(x) ** 2).sum(), X)(X).toarray()
    np.testing.assert_allclose(H, tg.hessian(lambda x: (f(x) ** 2).sum())(X), rtol=1e-6, atol=1e-8)
