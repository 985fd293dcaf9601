"""Operators, plans, solvers, optimisers, custom rules, debugging tools over ranks, against
one process."""

import numpy as np
from mpi4py import MPI
from scipy.integrate import solve_ivp

import tapegrad as tg
from tapegrad import parallel

SIZE = MPI.COMM_WORLD.size
r = np.random.default_rng(0)
A, x, v = r.normal(size=(9, 4)), r.normal(size=4), r.normal(size=4)
mine = A[parallel.split(9)]
f = lambda x: parallel.psum(np.sum(np.sin(mine @ x) ** 2)) + np.sum(x**3)
whole = lambda x: np.sum(np.sin(A @ x) ** 2) + np.sum(x**3)
g = lambda x: parallel.psum(mine.T @ np.sin(mine @ x))
several = lambda x: A.T @ np.sin(A @ x)
H, J = tg.hessian(whole)(x), tg.jacobian(several)(x)


def same(found, wanted, tolerance=1e-12):
    assert np.max(np.abs(found - wanted)) <= tolerance * (1 + np.max(np.abs(wanted))), (found, wanted)


same(tg.operators.hessian(f, x) @ v, H @ v)
same(tg.operators.jacobian(g, x).T @ v, J.T @ v)
try:
    tg.sparse.hessian(f, x)
except tg.errors.GuardError as error:
    assert "acts outside of the process" in str(error)
else:
    raise AssertionError("a pattern was found")
with tg.detect_anomalies():
    same(tg.grad(f)(x), tg.grad(whole)(x))
tg.audit(f, x)
tg.testing.check_grads(f, (x,))


def newton(F, z, x):
    for _ in range(30):
        z = z - F(z, x) / (3 * z**2 + 1)
    return z


root = tg.implicit.root(lambda z, x: z**3 + z - g(x), newton)
alone = tg.implicit.root(lambda z, x: z**3 + z - several(x), newton)
same(tg.jacobian(lambda x: root(np.zeros(4), x))(x), tg.jacobian(lambda x: alone(np.zeros(4), x))(x))
state = lambda h: (
    lambda x: np.sum(solve_ivp(lambda t, y: -y + np.tanh(h(y)), (0, 1), x, rtol=1e-8).y[:, -1] ** 2)
)
same(tg.grad(state(g))(x), tg.grad(state(several))(x), 1e-9)
same(tg.hvp(state(g), x, v), tg.hvp(state(several), x, v), 1e-9)

# a divided unknown whose equation is coupled over ranks is refused
coupled = tg.implicit.root(lambda z, e: z**3 + z - e + 0.1 * parallel.psum(np.sum(z)), newton)
try:
    tg.grad(lambda x: parallel.psum(np.sum(coupled(np.zeros(len(mine)), mine @ x))))(x)
except tg.errors.RankError as error:
    assert "differ between ranks" in str(error)
else:
    raise AssertionError("a coupled equation was differentiated")
convex = lambda f: lambda x: f(x) + 3 * np.sum(x**4)
found, wanted = [tg.optimize.minimize(convex(h), x, method="trust-exact") for h in (f, whole)]
same(found.x, wanted.x, 1e-8)
residuals = lambda x: parallel.allgather(np.sin(mine @ x) - 1)
same(
    tg.optimize.least_squares(residuals, x).x,
    tg.optimize.least_squares(lambda x: np.sin(A @ x) - 1, x).x,
    1e-8,
)

# rules of the user with collectives in them, of divided arguments
value = lambda e: parallel.psum(np.sum(e)) * np.ones(3)
pull = lambda c, out, e: parallel.psum(np.sum(c)) * np.ones(e.shape)
push = lambda t, out, e: parallel.psum(np.sum(t[0])) * np.ones(3)
for rule in (tg.rule(value, vjp=pull), tg.rule(value, jvp=push), tg.rule(value, vjp=pull, jvp=push)):
    h = lambda x, rule=rule: parallel.psum(np.sum(rule(np.sin(mine @ x))))
    of_one = lambda x: 3 * SIZE * np.sum(np.sin(A @ x))
    same(tg.grad(h)(x), tg.grad(of_one)(x))
    same(tg.jvp(h, (x,), (v,))[1], tg.jvp(of_one, (x,), (v,))[1])

print("done", flush=True)
