"""What SciPy's larger subpackages do not differentiate is refused by name, with the user's line and what to
write; and nothing is in none of the three kinds."""

import inspect

import numpy as np
import pytest
import scipy.integrate
import scipy.interpolate
import scipy.ndimage
import scipy.optimize
import scipy.signal
import scipy.sparse
import scipy.spatial.distance

import tapegrad as tg
import tapegrad.scipy
from tapegrad._scipy.namespaces import NAMESPACES
from tapegrad.errors import ArgumentError, NoRuleError

X = np.array([0.7, 1.3, 0.2, 0.9])
A = scipy.sparse.csr_array(np.eye(4) * 2.0)
LOG, ENDS, INPUTS = {"log": True}, [-1, 5], np.array([[1.0, 1, 1, 1], [0.3, 2, 1, 5]]).T

REFUSED = {
    "scipy.signal.remez": (lambda x: scipy.signal.remez(3, [0, 0.2, 0.3, 0.5], x[:2]), "firls"),
    "scipy.signal.place_poles": (lambda x: scipy.signal.place_poles(np.diag(x), INPUTS, -X).gain_matrix,
    "one input"),
    "scipy.interpolate.insert(per=)": (lambda x: scipy.interpolate.insert(0.5, (np.arange(8.0), x, 3), per=1)[1],
    "without per="),
    "scipy.interpolate.bisplrep": (lambda x: scipy.interpolate.bisplrep(X, X, x)[2], "RectBivariateSpline"),
    "scipy.integrate.tanhsinh(log=True)": (lambda x: scipy.integrate.tanhsinh(lambda t: t * x[0], 0, 1,
    **LOG).integral, "without log="),
    "scipy.integrate.LSODA": (lambda x: scipy.integrate.LSODA(lambda t, y: -y, 0.0, x, 1.0).y, "solve_ivp"),
    "scipy.spatial.distance.cdist(metric='jaccard')": (lambda x: scipy.spatial.distance.cdist([x], [x],
    "jaccard"), "euclidean"),
    "scipy.sparse.linalg.spilu": (lambda x: scipy.sparse.linalg.spilu(A * x[0]).solve(X), "splu"),
    "scipy.optimize.linprog": (lambda x: scipy.optimize.linprog(x, A_ub=[[1.0, 1, 1, 1]] * 2, b_ub=[0.0,
    0.0]).x, "redundant"),
    "scipy.optimize.minimize": (
        lambda x: scipy.optimize.minimize(lambda t: (t[0] - x[0]) ** 2, [0.1], bounds=[(0, 0.3)]).x,
        "the bound",
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    f, instead = REFUSED[name]
    place = f"{__file__}:{inspect.getsourcelines(f)[1]}"[:-1]
    for call in (lambda: tg.grad(lambda x: np.sum(f(x)))(X), lambda: tg.jvp(lambda x: f(x), (X,), (X,))):
        with pytest.raises(NoRuleError) as caught:
            call()
        text = str(caught.value)
        assert name in text and instead in text and "tapegrad.value" in text and place in text, text


def test_plain_calls_of_what_is_refused_pass():
    def f(x):
        b, a = scipy.signal.butter(2, 0.3)
        low = scipy.optimize.fminbound(lambda t: (t - 0.5) ** 2, 0, 2)
        return np.sum(scipy.signal.lfilter(b, a, x)) * low

    assert tg.grad(f)(X) == pytest.approx(
        [np.sum(scipy.signal.lfilter(*scipy.signal.butter(2, 0.3), e)) * 0.5 for e in np.eye(4)], rel=1e-4
    )


def test_settings_that_are_tracked_are_refused():
    with pytest.raises(ArgumentError, match=r"test_refusals.*scipy\.ndimage\.zoom: zoom= has no derivative"):
        tg.grad(lambda x: scipy.ndimage.zoom(np.ones((3, 3)), x[0]).sum())(X)
    with pytest.raises(ArgumentError, match="distance_transform_edt: sampling= has no derivative"):
        tg.grad(lambda x: scipy.ndimage.distance_transform_edt(np.eye(3), sampling=x[:2]).sum())(X)
    with pytest.raises(ArgumentError, match="hamming: w= has no derivative"):
        tg.grad(lambda x: scipy.spatial.distance.hamming([1, 0, 1, 1], [1, 1, 0, 1], x))(X)


def test_an_initial_value_that_goes_on_step_by_step_is_refused():
    def f(x, **how):
        r = scipy.integrate.ode(lambda t, y: -x[0] * y).set_integrator("dopri5").set_initial_value(x, 0.0)
        return np.sum(r.integrate(0.5, **how))

    assert tg.grad(f)(X)[1] == pytest.approx(np.exp(-0.5 * X[0]), rel=1e-8)
    with pytest.raises(
        ArgumentError, match=r"test_refusals.*scipy\.integrate\.ode\.integrate .*use solve_ivp"
    ):
        tg.grad(lambda x: f(x, step=True))(X)
    with pytest.raises(ArgumentError, match=r"ode\.set_solout has no derivative; use solve_ivp\(events=\)"):
        tg.grad(lambda x: scipy.integrate.ode(lambda t, y: -y).set_solout(print))(X)


def test_every_function_is_of_one_kind():
    for name in ("signal", "ndimage", "interpolate", "integrate", "spatial", "sparse", "optimize"):
        assert getattr(tapegrad.scipy, name).__name__ == f"tapegrad.scipy.{name}"
    assert len(NAMESPACES) == 8
    none = {
        f"{space.name}.{n}"
        for space in NAMESPACES.values()
        for n, kind in space.kinds().items()
        if kind == "none"
    }
    assert none == set()
    counts = [kind for space in NAMESPACES.values() for kind in space.kinds().values()]
    assert counts.count("differentiated") > 200
