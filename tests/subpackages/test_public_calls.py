"""Calls of SciPy's larger subpackages by their public names: values, both modes, second order and samples, against differences of the
plain function.  By default every fifth call, to first order; all of them, to second order and under vmap, in the long run."""

import warnings

import calls_distance
import calls_integrate
import calls_interpolate
import calls_ndimage
import calls_operators
import calls_optimize
import calls_polynomial
import calls_programs
import calls_signal
import calls_smoothing
import calls_solutions
import calls_sparse
import calls_systems
import pytest
from public_calls import judged

TABLES = (
    calls_distance, calls_integrate, calls_interpolate, calls_ndimage, calls_operators, calls_optimize, calls_polynomial, calls_programs,
    calls_signal, calls_smoothing, calls_solutions, calls_sparse, calls_systems,
)  # fmt: skip
CALLS = [(f"{table.__name__.removeprefix('calls_')} {call[0]}", *call[1:]) for table in TABLES for call in table.CALLS]


def name_of(call):
    return call[0].replace(" ", "-") if isinstance(call, tuple) else ""


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SciPy's own, of formats that cost time
        yield


@pytest.mark.parametrize("call", [c for c in CALLS[::5] if "BDF" not in c[0]], ids=name_of)
def test_values_and_both_modes(call):
    _, f, x, options = call
    judged(f, *x, **{**options, "order": 1, "samples": False})


@pytest.mark.long
@pytest.mark.parametrize("call", CALLS, ids=name_of)
def test_to_second_order_and_of_samples(call):
    _, f, x, options = call
    judged(f, *x, **options)
