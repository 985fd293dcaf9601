"""The calls that are refused, and those that are wrong, with the cause."""


def of(cause: str, names: str) -> dict:
    return dict.fromkeys(names.split(), cause)


COMPILED = {
    **of(
        "compiled (Cython)",
        "known_arch.garch_likelihood known_astropy.distance known_gstools.kriging "
        "known_statsmodels.sarimax_loglike known_lifelines.kaplan_meier",
    ),
    **of(
        "compiled (C, C++)",
        "known_astropy.smooth known_astropy.cartesian known_george.values known_pymoo.igd unseen_ot.exact "
        "fresh_ocean.modern_density fresh_sky.galactic",
    ),
}
REFUSED = {
    **of(
        "pandas",
        "known_linearmodels.two_stage known_linearmodels.liml known_linearmodels.gmm "
        "known_linearmodels.seemingly_unrelated",
    ),
    **of("autograd's boxes", "known_lifelines.exponential_fit"),
    **of(
        "functions of SciPy",
        "known_pvlib.single_diode known_quantecon.stationary known_skfem.stiffness",
    ),
    **of("eval of the name of a class", "unseen_signal.additive_fit"),
    **of("second order of eigenvectors: nan with a warning", "fresh_rotations.matrix_to_quaternion"),
    **of("a gufunc of Numba", "fresh_scores.older_ensemble"),
    **of("C functions behind `array_api_compat`", "fresh_matrices.distance"),
}
# docs/limits.md, "What cannot be seen"
WRONG = of("wrong, a root by bisection", "fresh_air.wet_bulb fresh_sky.kepler")
