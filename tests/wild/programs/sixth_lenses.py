import numpy as np
from lenstronomy.Cosmo.lens_cosmo import LensCosmo
from lenstronomy.LensModel.lens_model import LensModel
from lenstronomy.LensModel.Profiles.nfw import NFW
from lenstronomy.LensModel.Solver.lens_equation_solver import LensEquationSolver
from lenstronomy.LightModel.light_model import LightModel
from lenstronomy.Util import param_util
from lenstronomy.Util.kernel_util import kernel_gaussian

lens = np.array([1.2, 0.1, -0.05])
places = np.array([0.5, -0.8]), np.array([0.3, 0.9])


def ray_shooting(x):
    model = LensModel(["SIE", "SHEAR"])
    ellipse = {"theta_E": x[0], "e1": x[1], "e2": x[2], "center_x": 0.0, "center_y": 0.0}
    shear = {"gamma1": 0.3 * x[1], "gamma2": 0.02, "ra_0": 0.0, "dec_0": 0.0}
    return np.stack(model.ray_shooting(*places, [ellipse, shear]))


def magnification(x):
    kwargs = {"theta_E": x[0], "gamma": 2.0 + x[1], "e1": x[1], "e2": x[2], "center_x": 0.0, "center_y": 0.0}
    return LensModel(["EPL"]).magnification(*places, [kwargs])


def fermat(x):
    kwargs = {"theta_E": x[0], "center_x": x[1], "center_y": x[2]}
    return LensModel(["SIS"]).fermat_potential(*places, [kwargs], 0.1, 0.05)


def convergence(x):
    return LensModel(["NFW"]).kappa(
        *places, [{"Rs": 2.0 * x[0], "alpha_Rs": x[0], "center_x": x[1], "center_y": x[2]}]
    )


def nfw_density(x):
    return NFW().density_lens(np.array([0.5, 1.5]), x[0], x[0] + x[1])


def sersic(x):
    kwargs = {"amp": x[0], "R_sersic": 0.5 + x[1], "n_sersic": 3.0 + x[2], "center_x": 0.0, "center_y": 0.0}
    return LightModel(["SERSIC"]).surface_brightness(*places, [kwargs])


def ellipticity(x):
    return np.stack(
        [*param_util.phi_q2_ellipticity(x[0], 0.7 + x[1]), *param_util.ellipticity2phi_q(x[1], x[2])]
    )


def distances(x):
    return LensCosmo(z_lens=0.5, z_source=1.5).phys2arcsec_lens(x) * 1e3


def images(x):
    solver = LensEquationSolver(LensModel(["SIS"]))
    found = solver.image_position_from_source(
        0.1, 0.05, [{"theta_E": x[0], "center_x": x[1], "center_y": x[2]}]
    )
    return np.stack(found)


def blurring(x):
    return kernel_gaussian(5, 0.5, x[0])


CALLS = [
    (f, lens)
    for f in (
        ray_shooting, magnification, fermat, convergence, nfw_density, sersic, ellipticity, distances, images,
        blurring,
    )
]  # fmt: skip
