"""The calls that are refused, with the cause."""


def of(cause: str, names: str) -> dict:
    return dict.fromkeys(names.split(), cause)


COMPILED = {
    **of(
        "compiled (Cython)",
        "known_arch.garch_likelihood known_gstools.kriging known_statsmodels.sarimax_loglike "
        "known_lifelines.kaplan_meier",
    ),
    **of("compiled (C, C++)", "known_astropy.smooth known_george.values known_pymoo.igd unseen_ot.exact"),
}
REFUSED = {
    **of(
        "a class derived from numpy.ndarray",
        "known_astropy.black_body known_astropy.units known_astropy.units_of_root known_astropy.hubble "
        "known_astropy.distance "
        "known_astropy.cartesian known_astropy.sky known_astropy.polynomial known_astropy.compound "
        "known_control.step known_control.forced "
        "known_control.bode known_skfem.interpolated known_skfem.load known_skfem.solution "
        "known_skfem.nonlinear "
        "unseen_ahrs.quaternion unseen_ahrs.from_angles",
    ),
    **of(
        "numpy.ma",
        "known_pykalman.likelihood known_pykalman.filtered known_pykalman.smoothed known_pykalman.masked "
        "known_pykalman.unscented "
        "known_pykrige.kriging",
    ),
    **of(
        "pandas",
        "known_linearmodels.two_stage known_linearmodels.liml known_linearmodels.gmm "
        "known_linearmodels.seemingly_unrelated",
    ),
    **of("autograd's boxes", "known_lifelines.weibull_hazard known_lifelines.exponential_fit"),
    **of(
        "functions of SciPy",
        "known_pvlib.single_diode known_quantecon.stationary known_skfem.stiffness",
    ),
    **of("x.shape = s", "known_quantecon.kalman"),
    **of("eval of the name of a class", "unseen_signal.additive_fit"),
}  # fmt: skip
