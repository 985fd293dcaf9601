"""Public names of NumPy and SciPy without a derivative here: constant by nature, or refused with a
reason.

`CONSTANT`: functions whose arguments have no derivatives (sizes, orders, counts, texts, files), or
whose results do not depend continuously on them. `REFUSED`: groups of names with a reason and a
remedy, which the error for a tracked value quotes. All other names have rules.
tests/project/test_coverage.py checks this, and docs/coverage.md is generated from these tables and the
registry."""

CONSTANT = {
    "numpy": """
        bartlett base_repr binary_repr blackman busday_count busday_offset datetime_as_string
        datetime_data diag_indices
        from_dlpack fromfile fromregex fromstring get_include get_printoptions
        getbufsize hamming hanning info is_busday isdtype issubdtype mask_indices mintypecode
        nested_iters packbits printoptions
        promote_types set_printoptions setbufsize show_config show_runtime test tril_indices
        triu_indices typename unpackbits frompyfunc""",
    "scipy.fft": """
        fhtoffset get_workers next_fast_len prev_fast_len register_backend
        set_backend set_global_backend set_workers
        skip_backend""",
    "scipy.linalg": """
        dft hadamard helmert hilbert invhilbert pascal invpascal find_best_blas_type
        get_blas_funcs get_lapack_funcs clarkson_woodruff_transform""",
    "scipy.special": """
        ai_zeros bei_zeros beip_zeros ber_zeros bernoulli berp_zeros bi_zeros c_roots cg_roots
        erf_zeros euler fresnel_zeros
        fresnelc_zeros fresnels_zeros geterr h_roots he_roots j_roots jn_zeros jnjnp_zeros jnp_zeros
        jnyn_zeros js_roots kei_zeros
        keip_zeros kelvin_zeros ker_zeros kerp_zeros l_roots la_roots p_roots ps_roots roots_chebyc
        roots_chebys roots_chebyt
        roots_chebyu roots_gegenbauer roots_genlaguerre roots_hermite roots_hermitenorm roots_jacobi
        roots_laguerre roots_legendre
        roots_sh_chebyt roots_sh_chebyu roots_sh_jacobi roots_sh_legendre s_roots seterr stirling2
        t_roots ts_roots u_roots us_roots
        y0_zeros y1_zeros y1p_zeros yn_zeros ynp_zeros factorial2 factorialk
        chebyc chebys chebyt chebyu hermite hermitenorm laguerre legendre sh_chebyt sh_chebyu sh_legendre""",
    "scipy.stats": """
        rankdata tiecorrect percentileofscore kendalltau spearmanr spearmanrho weightedtau somersd
        chatterjeexi fisher_exact
        barnard_exact boschloo_exact poisson_means_test mannwhitneyu wilcoxon brunnermunzel kruskal
        friedmanchisquare page_trend_test
        mood ansari fligner ks_2samp multiscale_graphcorr bws_test hypergeom nhypergeom
        randint multivariate_hypergeom
        ortho_group special_ortho_group unitary_group random_table uniform_direction
        random_correlation ranksums anderson_ksamp
        cramervonmises_2samp find_repeats""",
}

TEST = "its p-value is not followed; write the statistic with numpy's functions and its distribution function with scipy.stats"
RANDOM = "it resamples at random; write the statistic itself"
OBJECTS = "it takes or gives SciPy's objects, which hold plain arrays; write it with numpy"

REFUSED = {
    "numpy": {
        "write numpy.histogram(x, n)[1], whose edges have a derivative": "histogram_bin_edges",
    },
    "scipy.stats": {
        TEST: "dunnett",
        RANDOM: "bootstrap monte_carlo_test permutation_test power goodness_of_fit sobol_indices",
        "it is the solution of a linear program; write it for one axis with "
        "scipy.stats.wasserstein_distance": "wasserstein_distance_nd",
        OBJECTS: "make_distribution",
        "it searches for the optimum; write it with tapegrad.implicit.minimum": "fit",
        "its density or distribution function has no closed form in known functions; give it a rule with "
        "tapegrad.rule": """
            levy_stable""",
        "by its samples and points it is piecewise linear; write numpy.interp(y, numpy.sort(x), "
        "p)": "estimated_cdf",
    },
}


WHY = {  # namespace -> name -> reason
    space: {name: why for why, names in kinds.items() for name in names.split()}
    for space, kinds in REFUSED.items()
}
NATURE = {space: frozenset(names.split()) for space, names in CONSTANT.items()}


def reason(public: str) -> str | None:
    """The reason and remedy for a refused function, by its public name."""
    parts = public.split(".")
    return next(
        (
            WHY[space][parts[-1]]
            for space in (".".join(parts[:2]), parts[0])
            if parts[-1] in WHY.get(space, ())
        ),
        None,
    )
