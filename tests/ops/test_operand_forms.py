"""Dtype objects that are equal to NumPy's own and are not them, other byte orders and extended precision:
every line of the table of cases gives the derivatives that it gives for NumPy's own dtypes.

Fast paths ask whether a dtype is one of NumPy's own objects.  The objects of unpickled arrays, of worker processes and of files are not."""

import os
import pathlib
import pickle
import subprocess
import sys

import numpy as np
import pytest
from cases import all_cases
from grid import derivatives
from test_grid import same

from tapegrad._core.trees import leaves
from tapegrad.testing.derivative_checks import plain_host_array

CASES = [
    c for c in all_cases() if c.name != "partition"
]  # (the order within the parts is that of NumPy's algorithm for the dtype)


def extended(a):
    return a.astype({"f": np.longdouble, "c": np.clongdouble}[a.dtype.kind])


def swapped(a):
    return a.astype(a.dtype.newbyteorder())


FORMS = {
    "unpickled": lambda a: pickle.loads(pickle.dumps(a)),
    "with metadata": lambda a: a.astype(np.dtype(a.dtype, metadata={"unit": "m"})),
    "byte-swapped": swapped,
    "extended": extended,
}


def formed(form, inputs):
    return tuple(
        [FORMS[form](a) if isinstance(a, np.ndarray) and a.dtype.kind in "fc" else a for a in inputs]
    )


def agree(case, form):
    expected = derivatives(case, case.inputs)[:3]
    try:
        found = derivatives(case, formed(form, case.inputs))[:3]
    except Exception as error:
        if "not supported for the input types" in str(error) and form == "extended":
            return  # SciPy has no such function, or not the one that is its derivative
        try:
            case.f(*formed(form, case.inputs))
        except type(error):
            return  # SciPy raises the same
        raise
    for a, b in zip(leaves(found[2]), leaves(expected[2]), strict=True):
        assert (a is None) is (b is None)
        assert form != "unpickled" or a is None or plain_host_array(a).dtype == plain_host_array(b).dtype
    same(found, expected, max(case.rtol, 1e-9))


def chosen():
    """Every second line with one of the forms by default, all of them with `-m long`."""
    for n, case in enumerate(CASES):
        for k, form in enumerate(FORMS):
            yield pytest.param(
                case, form, marks=() if n % 8 == 2 * k else pytest.mark.long, id=f"{case!r}-{form}"
            )


@pytest.mark.parametrize(("case", "form"), [*chosen()])
def test_derivatives_do_not_depend_on_the_object_of_a_dtype(case, form):
    with np.errstate(all="ignore"):
        agree(case, form)


@pytest.mark.long
def test_the_same_without_fast_paths():
    here = pathlib.Path(__file__)
    environment = {**os.environ, "TAPEGRAD_FAST": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "-m",
        "long or not long",
        str(here),
        "-k",
        "derivatives_do_not_depend",
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=here.parents[2])
    assert done.returncode == 0, done.stdout[-3000:]
