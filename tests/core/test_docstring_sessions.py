"""What the docstrings of NumPy and SciPy show, differentiated: see tests/support/docstring_sessions.py.

A function counts as right if all sessions of its docstring are."""

import importlib
import types

import docstring_sessions as ds
import pytest

# What they show jumps there, is rounded, has another dtype, or is memory that nobody wrote.  AAA shows poles
# in an order that rounding decides, ncfdtri* few right digits.  qr_insert and
# qr_update show further columns of Q, which are not unique: nan in forward mode, and to be nan in reverse mode.
ROUGH = {
    "numpy.empty_like",
    "numpy.ma.empty_like",
    "numpy.ma.masked_all_like",
    "numpy.round",
    "scipy.fft.hfft",
    "scipy.interpolate.AAA",
    "scipy.linalg.cho_factor",
    "scipy.linalg.qr_insert",
    "scipy.linalg.qr_update",
    "scipy.ndimage.maximum",
    "scipy.optimize.least_squares",
    "scipy.special.ncfdtridfd",
    "scipy.special.ncfdtridfn",
    "scipy.special.ncfdtrinc",
}
# agm shows a loop until two floats are equal, which need not end beside the values shown.
SLOW = {
    "numpy.linalg.multi_dot",
    "numpy.shares_memory",
    "scipy.special.agm",
    *[
        f"scipy.optimize.{name}"
        for name in "basinhopping curve_fit differential_evolution dual_annealing lsq_linear root".split()
    ],
}
NO_DERIVATIVE = {
    "numbers from a generator that chooses by the parameter": """Generator.beta Generator.binomial Generator.f
        Generator.gamma Generator.geometric Generator.logseries Generator.multinomial
        Generator.negative_binomial Generator.noncentral_f Generator.poisson Generator.standard_gamma
        Generator.vonmises Generator.zipf RandomState.gamma RandomState.logseries RandomState.multinomial
        RandomState.negative_binomial RandomState.noncentral_f RandomState.poisson
        RandomState.standard_gamma RandomState.vonmises RandomState.zipf""",
    "integers, types, texts, bytes, addresses": """as_integer_ratio mintypecode info byteswap ctypes setflags
        char.mod strings.mod rec.fromfile rec.fromstring rec.fromrecords insert ptp ufunc.at""",
    "what is left of an input that may be overwritten": "median percentile quantile",
}
MODULES = {  # the functions of which one session or more has a derivative, and those of them that are right
    "numpy": (289, 282),
    "numpy.char": (1, 1),
    "numpy.fft": (16, 16),
    "numpy.linalg": (28, 27),
    "numpy.ma": (106, 106),
    "numpy.polynomial.chebyshev": (2, 2),
    "numpy.polynomial.hermite": (11, 11),
    "numpy.polynomial.hermite_e": (8, 8),
    "numpy.polynomial.laguerre": (10, 10),
    "numpy.polynomial.legendre": (1, 1),
    "numpy.polynomial.polynomial": (7, 7),
    "numpy.random": (34, 34),
    "numpy.rec": (3, 2),
    "numpy.strings": (7, 7),
    "scipy.cluster.hierarchy": (20, 1),  # compiled
    "scipy.cluster.vq": (2, 2),
    "scipy.differentiate": (3, 3),
    "scipy.fft": (29, 27),
    "scipy.integrate": (19, 14),
    "scipy.interpolate": (47, 38),
    "scipy.linalg": (80, 65),
    "scipy.ndimage": (37, 35),
    "scipy.optimize": (36, 33),
    "scipy.signal": (120, 112),
    "scipy.sparse": (17, 9),
    "scipy.sparse.csgraph": (4, 3),
    "scipy.sparse.linalg": (29, 23),
    "scipy.spatial": (23, 6),
    "scipy.spatial.distance": (11, 11),
    "scipy.spatial.transform": (20, 20),
    "scipy.special": (176, 163),  # a gradient of nan is not right
}


def documented(module):
    """(name, docstring) of the public functions and classes of a module, and of the methods of the classes."""
    for name in sorted(module.__all__):
        x = getattr(module, name)
        if isinstance(x, types.ModuleType):
            continue
        yield f"{module.__name__}.{name}", getattr(x, "__doc__", None)
        if isinstance(x, type):
            for method, f in vars(x).items():
                if not method.startswith("_"):
                    yield f"{module.__name__}.{name}.{method}", getattr(f, "__doc__", None)


def functions(module):
    left_out = SLOW | ROUGH | {n for names in NO_DERIVATIVE.values() for n in names.split()}
    seen = set()
    for name, doc in documented(module):
        if isinstance(doc, str) and ">>>" in doc and doc not in seen:
            seen.add(doc)
            if not any([name == n or name.endswith("." + n) for n in left_out]):
                yield name, doc


def judged(module):
    """{function: the verdicts of its sessions}"""
    found = {}
    for function, doc in functions(importlib.import_module(module)):
        verdicts = [v for f in ds.sessions(function, doc)[:4] if (v := ds.judge(f)) is not None]
        if verdicts:
            found[function] = verdicts
    return found


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("module", MODULES)
def test_sessions(module):
    found = judged(module)
    wrong = {f: v for f, vs in found.items() for v in vs if v[0] == ds.WRONG}
    assert not wrong
    right = [f for f, vs in found.items() if all([v == ds.RIGHT for v, _ in vs])]
    assert len(found) >= MODULES[module][0] and len(right) >= MODULES[module][1]


def test_a_wrong_derivative_is_found():
    doc = """
    >>> import tapegrad as tg
    >>> x = np.array([1.0, 2.0])
    >>> np.sum(np.sin(x) * tg.value(x))
    1.0
    >>> y = np.array([1, 2])
    >>> np.cumsum(y)
    array([1, 3])
    """
    assert [ds.judge(f)[0] for f in ds.sessions("f", doc)] == [ds.WRONG, ds.RIGHT, ds.WRONG, ds.WRONG]
