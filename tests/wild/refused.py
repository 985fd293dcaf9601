"""The calls that are refused, with the cause."""


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
        "fresh_ocean.modern_density fresh_sky.galactic later_fields.neutrons",
    ),
    **of(
        "compiled (Cython)",
        "eighth_options.implied_volatility eighth_waters.bounded_aquifer eighth_waters.heterogeneous "
        "eighth_models.chaos_mean eighth_models.regression eighth_models.sobol eighth_models.moments",
    ),
    **of(
        "compiled (Cython)",
        "tenth_forms.interpolated_curve tenth_forms.gradients_histogram tenth_pulses.entropies tenth_photons.qubits "
        "tenth_tables.archimedean_copulas tenth_tables.periodogram tenth_tables.densities",
    ),
    **of("compiled (C, C++)", "tenth_pulses.hidden_states tenth_pulses.categories"),
    **of("compiled (Cython)", "eleventh_models.tweedie"),
    **of("compiled (Cython)", "twelfth_tables.isotonic twelfth_tables.distances twelfth_tables.recursive"),
    **of(
        "compiled (Cython)",
        "thirteenth_tables.poisson thirteenth_tables.scales thirteenth_places.sinogram",
    ),
    **of("compiled (C, C++)", "thirteenth_plasmas.representations"),
    **of("compiled (Cython)", "later_signals.least_squares_baseline"),
    **of("compiled (a C function that Numba made)", "sixteenth_machines.response_spectrum"),
    **of("compiled (C)", "eighteenth_matter.robot_arm"),
    **of("compiled (Cython)", "fifteenth_rotations.polynomial fifteenth_rotations.polynomial_gradient"),
    **of("compiled (Rust)", "twentieth_matter.natural_gas twentieth_matter.heat_in_bar"),
    **of("compiled (Rust)", "twentieth_people.option_book twentieth_people.decay_of_claims_and_options"),
    **of("compiled (Cython)", "twentieth_people.spin_chain"),
    **of("compiled (C++)", "nineteenth_people.slow_modes nineteenth_matter.bent_curve"),
    **of("compiled (by mypyc)", "seventeenth_models.plackett_luce seventeenth_models.bradley_terry"),
    **of(
        "compiled (Cython)",
        "fourteenth_people.density fourteenth_people.smoothing fourteenth_people.regimes",
    ),
}
REFUSED = {
    **of("the class of a number is compared with `float`", "twentieth_matter.beam_on_supports"),
    **of("`as_strided` of an array that is not in C order", "twentieth_matter.dereverberation"),
    **of("`x.data` of an array", "twentieth_matter.total_variation"),
    **of("a factor of `splu` times a tracked matrix", "twentieth_matter.posterior"),
    **of("a matrix of NumPy becomes a sparse one", "twentieth_matter.raman_baselines"),
    **of("numbers of a table by `to_numpy(float)`", "twentieth_people.density_at_points"),
    **of("pandas takes the class of the values for text", "twentieth_people.jump_at_threshold"),
    **of("the bytes of an array of numbers", "twentieth_people.reserves"),
    **of("tracked numbers in a plain array", "twentieth_people.drift_diffusion"),
    **of("a compiled function of pandas", "twentieth_people.failures_fitted"),
    **of("more than 100 seconds", "twentieth_people.cooling_force"),
    **of("a view of an array of objects", "twentieth_people.line_of_star"),
    **of("tracked numbers in a plain array of pandas", "twentieth_people.wind_of_site"),
    **of("nodes of `np.interp` that do not increase", "last_matter.x_rays"),
    **of("`as_integer_ratio` of SymPy", "ninth_samples.decay"),
    **of("a SciPy matrix times a tracked one, element by element", "fifth_measures.variogram"),
    **of("the number of elements of a sparse matrix, some of which are zero", "eighth_models.weighted_graph"),
    **of("a list of arrays of different shapes becomes an array", "nineteenth_people.unfolded"),
    **of("pandas takes the class of the values for text", "nineteenth_people.bins_of_events"),
    **of("writes into arrays of the package that were made plain", "nineteenth_matter.points_of_quadrature"),
    **of("writes into arrays of the package that were made plain", "nineteenth_matter.structure_in_time"),
    **of("a memo of units that the call fills", "nineteenth_earth.heat_in_town"),
    **of("a result that is rounded", "nineteenth_earth.way_on_map"),
    **of("LAPACK's functions by `get_lapack_funcs`", "eighteenth_matter.transfer_function"),
    **of("a matrix of expressions of `picos`", "seventeenth_models.entanglement"),
    **of("a class of Numba holds the coefficients", "seventeenth_models.rotated_vector"),
    **of("a view of an array of integers as `np.ndarray`", "later_algebra.energies"),
    **of(
        "a tracked array is stored in a plain array",
        "fourteenth_places.farm_power fourteenth_places.jensen",
    ),
    **of("a memo that compares a distance, with a warning", "fourteenth_places.pipe_resistances"),
    **of("a parameter of astropy in arithmetic", "fourteenth_places.stellar_flux"),
    **of("a list of arrays is stored in an object array", "fourteenth_places.halo"),
    **of("an object that pickles itself", "fourteenth_people.quadratic_surrogate"),
    **of(
        "the package rounds its result, with a warning",
        "fifteenth_models.colour_of",
    ),
    **of("autograd's boxes", "known_lifelines.exponential_fit"),
    **of(
        "functions of SciPy",
        "known_pvlib.single_diode known_skfem.stiffness",
    ),
    **of("eval of the name of a class", "unseen_signal.additive_fit"),
    **of("second order of eigenvectors: nan with a warning", "fresh_rotations.matrix_to_quaternion"),
    **of("masked arrays", "known_pykalman.unscented"),
    **of("eval of a text with tracked numbers", "later_engineering.circuit"),
    **of("`a.dot(x)` of an object with `__array__`", "later_atoms.morse"),
    **of("a class derived from SciPy's `PPoly`", "later_signals.smoothing"),
    **of("a number of a class derived from `float`", "last_earth.sphere last_earth.vincenty"),
    **of("a digest of a tracked array", "last_choices.solid"),
    **of("`x.shape = ...` of an array that was written", "ninth_series.multitaper"),
    **of("a list of arrays is stored in an object array", "eleventh_models.black_body eleventh_models.halo"),
    **of("`np.place` into a plain array", "thirteenth_tables.edgeworth"),
    **of("tracked numbers in a plain array of pandas", "thirteenth_tables.manova"),
    **of("dask's hash of a tracked array", "thirteenth_places.patterns"),
    **of("a gufunc of Numba", "thirteenth_places.moving thirteenth_places.missing"),
    **of("`interp` of xarray", "thirteenth_places.weighted"),
    **of("`float` of a quantity of pint", "thirteenth_plasmas.activity"),
    **of("a masked array in `scipy.ndimage`", "eleventh_spectra.flattened"),
    **of("an object that is reached by two ways", "eleventh_spectra.synchrotron"),
    **of("the function draws a picture", "eleventh_lives.failure"),
    **of("numbers of mpmath", "ninth_samples.heavy_tails ninth_samples.stretched"),
    **of("an array of integers is written", "ninth_grids.direct_current ninth_grids.power_flow"),
    **of(
        "second order of eigenvectors: nan with a warning",
        "ninth_shapes.head_positions ninth_samples.rotated eleventh_models.projected",
    ),
    **of("singular values that are equal on a whole path, in forward mode", "tenth_tables.quartimax"),
    **of("sympy runs in the function", "eighth_models.log_likelihood eighth_models.kinetics"),
    **of("a whole array with fields", "fifth_motion.lorentz_arrays"),
    **of("a root by bisection, with a warning", "fresh_air.wet_bulb fresh_sky.kepler"),
    **of(
        "an object array of angles",
        "sixth_tracking.bearing sixth_tracking.bearing_jacobian sixth_tracking.extended_update",
    ),
    **of("a class derived from `np.ndarray`", "sixth_tracking.update sixth_tracking.distances"),
    **of("`hyp2f1` of complex numbers by its third parameter", "sixth_lenses.magnification"),
    **of("C functions behind `array_api_compat`", "fresh_matrices.distance"),
}
NAN = {  # loud
    **of("nan: the power of an element that is zero", "twentieth_people.best_choice"),
    **of("nan: a quotient of numbers below 1e-308, to second order", "eighteenth_skies.synchrotron"),
    **of("nan: the root of a component that is zero", "fifteenth_rotations.interpolated_pose"),
    **of("nan: the root of a discriminant that is zero to rounding", "thirteenth_plasmas.stix_waves"),
    **of("nan: conjugate gradients beyond convergence, to second order", "fourteenth_people.least_squares"),
}
