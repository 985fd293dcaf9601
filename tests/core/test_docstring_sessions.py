"""What the docstrings of NumPy and SciPy show, differentiated: see tests/support/docstring_sessions.py."""

import importlib
import types

import docstring_sessions as ds
import pytest

# what they show jumps there, is rounded, or has another dtype
ROUGH = ["scipy.fft.hfft", "scipy.ndimage.maximum"]
SLOW = ["numpy.linalg.multi_dot"]
MODULES = {  # the least share of the sessions that are right
    "numpy.fft": 1.0,
    "numpy.linalg": 0.9,
    "numpy.ma": 1.0,
    "numpy.polynomial.polynomial": 1.0,
    "scipy.fft": 0.8,
    "scipy.ndimage": 0.9,
}


def functions(module):
    for name in sorted(module.__all__):
        x = getattr(module, name)
        doc = getattr(x, "__doc__", None)
        public = f"{module.__name__}.{name}"
        if (
            not isinstance(x, types.ModuleType)
            and isinstance(doc, str)
            and ">>>" in doc
            and public not in SLOW
        ):
            yield public, doc


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODULES)
def test_sessions(name):
    found = {}
    for function, doc in functions(importlib.import_module(name)):
        found[function] = [v for f in ds.sessions(function, doc)[:4] if (v := ds.judge(f)) is not None]
    wrong = {f: v for f, vs in found.items() for v in vs if v[0] == ds.WRONG and f not in ROUGH}
    assert not wrong
    verdicts = [v for vs in found.values() for v, _ in vs]
    assert len(verdicts) > 8 and verdicts.count(ds.RIGHT) >= MODULES[name] * len(verdicts)


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
    assert [ds.judge(f)[0] for f in ds.sessions("f", doc)] == [ds.WRONG, ds.RIGHT]
