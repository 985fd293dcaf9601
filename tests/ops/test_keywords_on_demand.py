"""Functions that are declared on first use, and those of SciPy's subpackages: their keywords by what the code
says.

A search that calls them needs arguments of each (keyword_calls.py); what can be seen without is that no
keyword is accepted and not read, and that none has another default than the library's."""

import dis
import inspect
import types

import coverage_table
import numpy as np
import pytest
import scipy.linalg
import scipy.signal
import scipy.sparse
import scipy.stats
from keyword_calls import is_late

import tapegrad as tg
from tapegrad.errors import ArgumentError
from tapegrad.ops.declare import NUMPY
from tapegrad.ops.protocols import HARMLESS

coverage_table.table()  # all is declared
ALL = {f: ours for f, ours in NUMPY.items() if not isinstance(f, np.ufunc) and is_late(ours)}
# Keywords that change no value: ways to the same result, tolerances of a search whose result is made exact,
# pictures and printing.
WAYS = {
    "plan", "method", "tol", "blocksize", "overwrite_ab", "overwrite_a_band", "overwrite_qr", "overwrite_qru",
    "overwrite_qruv",
    "overwrite_c", "overwrite_data", "overwrite_A", "batch_memory", "rng", "show", "wopts", "wvar", "Dfun",
    "ml", "mu", "col_deriv",
    "ixpr", "mxhnil", "printmessg", "use_umfpack", "permc_spec", "diag_pivot_thresh", "options", "panel_size",
    "relax", "traceA",
    "precenter", "irlen", "exact", "rvalue",
}  # fmt: skip
# Those that have a meaning only beside another one, which is refused.
BESIDE = {
    "select_range": "select", "max_ev": "select", "inclusive": "limits", "singular": "c", "caxis": "c",
    "optimizer": "lmbda",
    "alpha": "lmbda", "sort": "output", "weights": "bins", "pass_zero": "circular", "scale": "circular",
}  # fmt: skip
OF_ONE = {"sh_jacobi": {"monic"}}  # its leading coefficient is 1 anyway
OLDER = ("disp", "precenter", "center")  # whose default SciPy before 1.16 or 1.17 spells out
SYNONYMS = {  # of one version of SciPy and another
    "hann_periodic": "hann", ("tukey_periodic", 0.25): ("tukey", 0.25),
}  # fmt: skip


def body(ours):
    while hasattr(ours, "__wrapped__"):
        ours = ours.__wrapped__
    return getattr(getattr(ours, "prim", None), "run", ours)


def unread(f):
    """The parameters that the code of a function never loads."""
    if not isinstance(f, types.FunctionType):
        return set()
    code = f.__code__
    names = set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    loaded = set(code.co_cellvars)
    for i in dis.get_instructions(code):
        loaded |= {i.argval} if isinstance(i.argval, str) and "LOAD" in i.opname else set()
        loaded |= set(i.argval) if isinstance(i.argval, tuple) and "LOAD" in i.opname else set()
    return names - loaded


def test_every_keyword_is_read():
    found = {}
    for f, ours in ALL.items():
        left = (
            unread(body(ours))
            - HARMLESS
            - WAYS
            - BESIDE.keys()
            - OF_ONE.get(getattr(f, "__name__", ""), set())
        )
        if left and "tapegrad" in (body(ours).__globals__.get("__name__") or ""):
            found[f"{f.__module__}.{f.__name__}"] = left
    assert len(ALL) > 500 and found == {}


def test_defaults_are_those_of_the_library():
    found = {}
    for f, ours in ALL.items():
        try:
            theirs, mine = inspect.signature(f).parameters, inspect.signature(ours).parameters
        except (TypeError, ValueError):
            continue
        for name in theirs.keys() & mine.keys():
            a, b = theirs[name].default, mine[name].default
            if (
                inspect.Parameter.empty in (a, b)
                or a is b
                or a is np._NoValue
                or type(a) is object
                or repr(a) == repr(b)
            ):
                continue
            if SYNONYMS.get(a, a) != b and not (b is None and name in ("output", "ymax", *OLDER)):
                found[f"{f.__module__}.{f.__name__}({name}=)"] = a, b
    assert found == {}


@pytest.mark.parametrize(
    "call",
    [
        lambda x: scipy.linalg.solve_circulant(x, x, caxis=0),
        lambda x: scipy.sparse.linalg.spsolve_triangular(scipy.sparse.csr_array(x), np.ones(3)),
    ],
)
def test_what_is_not_read_is_refused(call):
    x = np.array([[1.1, 0.4, 0.3], [0.2, 1.3, 0.5], [0.6, 0.7, 1.9]])
    with pytest.raises(ArgumentError):
        tg.jvp(call, (x,), (x,))


@pytest.mark.parametrize(
    "call",
    [
        lambda s, x: s.circmean(x, axis=0, keepdims=True),
        lambda s, x: s.ttest_1samp(x, 0.1, keepdims=True)[0],
        lambda s, x: s.gmean(x, dtype=np.float64),
        lambda s, x: s.tmean(x, (0.1, 2.0), (False, True)),
        lambda s, x: s.skew(np.where(x > 1.5, np.nan, x), nan_policy="omit"),
    ],
)
def test_settings_of_statistics_are_followed(call):
    x = np.array([[1.1, 0.4, 0.3], [0.2, 1.3, 0.5], [0.6, 0.7, 1.9]])
    np.testing.assert_allclose(
        tg.jvp(lambda x: call(scipy.stats, x), (x,), (x,))[0], call(scipy.stats, x), rtol=1e-12
    )
    tg.testing.check_grads(lambda x: call(tg.stats, x), (x,), order=1)


def test_the_dtype_of_diagonals():
    x = np.array([1.0, 2.0])
    for f in (
        lambda x: scipy.sparse.diags([x], [0], dtype=np.float32),
        lambda x: scipy.sparse.diags_array([x], offsets=[0], dtype=np.complex64),
    ):
        assert tg.jvp(lambda x, f=f: f(x).toarray(), (x,), (x,))[0].dtype == f(x).dtype
