import numpy as np
from pymoo.decomposition.asf import ASF
from pymoo.decomposition.tchebicheff import Tchebicheff
from pymoo.indicators.igd import IGD
from pymoo.problems import get_problem

x5 = np.array([0.3, 0.4, 0.2, 0.6, 0.5])


def rosenbrock(x):
    return get_problem("rosenbrock", n_var=5).evaluate(x)


def ackley(x):
    return get_problem("ackley", n_var=5).evaluate(x)


def zdt(x):
    return get_problem("zdt1", n_var=5).evaluate(x)


def dtlz(x):
    return get_problem("dtlz2", n_var=5, n_obj=2).evaluate(x)


def bnh(x):
    return get_problem("bnh").evaluate(x[:2])[0]


def achievement(x):
    return ASF().do(x[None], weights=np.array([0.5, 0.3, 0.2, 0.4, 0.6]))


def tchebicheff(x):
    return Tchebicheff().do(x[None], weights=np.full(5, 0.2))


def igd(x):
    return IGD(np.array([[0.0, 1.0], [1.0, 0.0]]))(np.stack([x[:2], x[2:4]]))


CALLS = [(f, x5) for f in (rosenbrock, ackley, zdt, dtlz, bnh, achievement, tchebicheff, igd)]
