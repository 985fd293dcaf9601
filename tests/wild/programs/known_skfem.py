import numpy as np
from skfem import Basis, BilinearForm, ElementTriP1, LinearForm, MeshLine, MeshTri, condense, solve
from skfem.element import ElementLineP1
from skfem.helpers import dot, grad
from skfem.models.poisson import laplace, unit_load

mesh = MeshTri().refined(1)
basis = Basis(mesh, ElementTriP1())
interval = Basis(MeshLine(np.linspace(0, 1, 5)), ElementLineP1())


def interpolated(x):
    return basis.interpolate(x).value


def energy(x):
    K = laplace.assemble(basis)
    return x @ (K @ x)


def load(x):
    return LinearForm(lambda v, w: x[0] * w.x[0] * v).assemble(basis)


def stiffness(x):
    return BilinearForm(lambda u, v, w: x[0] * dot(grad(u), grad(v))).assemble(basis).data


def solution(x):
    K = laplace.assemble(basis)
    return solve(*condense(K, x[0] * unit_load.assemble(basis), D=mesh.boundary_nodes()))


def nonlinear(x):
    return LinearForm(lambda v, w: w["u"] ** 2 * v).assemble(interval, u=interval.interpolate(x))


u = np.linspace(0.2, 1.0, basis.N)
CALLS = [
    (interpolated, u),
    (energy, u),
    (load, u[:2]),
    (stiffness, u[:2]),
    (solution, u[:2]),
    (nonlinear, u[:5]),
]
