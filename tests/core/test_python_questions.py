"""Every question of tests/support/python_questions.py, of every kind of value, in every mode: a tracked value
answers as NumPy's."""

import re
import types
import warnings

import numpy as np
import pytest
import python_questions
from python_questions import STANDS, X, questions

import tapegrad as tg

python_questions.VALUE = tg.value
QUESTIONS = list(questions())
MODES = {
    "reverse": lambda f: tg.grad(f)(X),
    "forward": lambda f: tg.jvp(f, (X,), (X,)),
    "nested": lambda f: tg.hvp(f, X, X),
    "recorded": lambda f: tg.prepare(f, X).value(X),
    "batched": lambda f: tg.vmap(f)(np.stack([X, X])),
}
PLAIN = tg.Const(complex)
HIDING = ("recorded", "batched")  # values are not shown: an error that says so is an answer

# What is deliberately otherwise: "question | value that is asked", and why.
DIFFERENT = {
    r"(float|complex|\.item\(.*\)|__float__\(\)|__complex__\(.*\)) \|": "numpy.float64, numpy.complex128; "
    "by the method an error",
    r"(bytes|bytearray|memoryview|__dlpack__\(\)|__buffer__\(.*\)) \|": "memory in other hands drops the "
    "derivative: an error",
    r"ascii \|": "repr shows that a value is tracked",
    r"(__getnewargs__|__setstate__|__getformat__)\(.*\) \|": "of pickling",
    r"hasattr mT \|": "hasattr asks the class; of a vector NumPy's raises ValueError",
    r"__iter__\(.*\) \| (float|long|comp|clong)": "None of a number, so that iter() raises",
    r"__(floor|ceil|trunc)__\(.*\) \|": "of all numbers, as math.floor would ask for a plain float",
    r"__r?(divmod|floordiv|mod)__\(2,\) \| c": "the operation raises before NumPy's scalar leaves it to the "
    "other operand",
    r"__deepcopy__\(2,\) \|": "the memo is used",
    r"(repeat|mul (\[.*\]|\(\))( reflected)?) \| (float|long|comp|clong)": "a number times a list is an "
    "array, as by numpy.multiply",
    r"\w+ 1j reflected \| float64": "numpy.complex128 where Python's complex gives Python's",
    r".* \| empty": "an array of no elements meets None or a text: NumPy gives an array of objects or "
    "texts, or no error",
    r"set dtype \|": "the dtype of a tracked array cannot be set: AttributeError",
    r"matmul (None|{}|<class 'object'>)( reflected)? \|": "TypeError, as with other operators: NumPy makes "
    "an array of objects of it",
    r"imatmul (1j|np.float32\(2.0\)) \|": "two mistakes: NumPy names another first",
    r"np\.concatenate\(dtype='U3'\) \|": "the text drops the derivative, as by astype(str): an error",
    r"\.ptp\(": "arrays of CuPy have it",
    r"np\.matmul\(2\.0,\) \| (float|long|comp|clong)": "TypeError, as the operator has it",
    r"np\.arange\(\) \| 0-d complex": "TypeError: NumPy gives an empty array",
    r"np\.fft\.fft\(-1,\) \|": "n=-1 is the length, as in fftn",
}


def without_free_vectors(values, vectors):
    """Vectors in columns. Those of a repeated value span a space, and any base of it is right: they are nan."""
    apart = np.abs(values[:, None] - values) > 1e-9 * np.abs(values).max()
    return np.where(apart.sum(0) == len(values) - 1, vectors, np.nan)


def form(x):
    """What a caller can tell of an answer."""
    if type(x).__name__ in ("SVDResult", "EighResult"):
        v = tg.value(tuple(x))
        if len(v) == 3:
            factors = without_free_vectors(v[1], v[0]), v[1], without_free_vectors(v[1], v[2].T).T
        else:
            factors = v[0], without_free_vectors(*v)
        return type(x).__name__, [form(a) for a in factors]
    if isinstance(x, (np.ndarray, np.generic)) or type(x) in (float, complex):
        v = np.asarray(tg.value(x))
        kind = "ndarray" if isinstance(x, np.ndarray) else x.__class__.__name__
        if v.dtype.kind not in "fc":
            return kind, v.dtype, v.shape, v.tolist()
        return (
            kind,
            v.dtype,
            v.shape,
            [None if e != e else PLAIN(np.round(e, 3)) for e in v.ravel().astype(complex)],
        )
    if isinstance(x, (set, frozenset)):
        return type(x).__name__, sorted(map(repr, map(form, x)))
    if isinstance(x, (tuple, list)):
        return type(x).__name__, [form(v) for v in x]
    if isinstance(x, dict):
        return "dict", [(form(k), form(v)) for k, v in x.items()]
    if isinstance(x, type):
        return "class", x.__name__
    if isinstance(x, slice):
        return "slice", form([x.start, x.stop, x.step])
    if isinstance(x, (str, int, type(None), bytes, bytearray, np.dtype, type(NotImplemented))):
        return x
    if isinstance(x, (types.BuiltinFunctionType, types.MethodType, types.FunctionType)):
        return "function"
    return type(x).__name__ if type(x).__module__ == "builtins" and not hasattr(x, "__next__") else "object"


def answer(question, v):
    try:
        return "gives", form(question(v))
    except Exception as error:
        return "raises", error


def asked(question, stand, mode):
    """(the answer of the plain value, that of the tracked one)."""
    answers = []

    def f(x):
        answers.append(answer(question, stand(x)))
        return (x * x).sum()

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        f(X)
        try:
            MODES[mode](f)
        except tg.errors.TapegradError as error:  # that was swallowed
            if mode in HIDING:
                return ("refused", None), ("refused", None)
            assert answers[1:] and answers[1][0] == "raises", error
    return answers[:2]


def expected(error):
    """The class of an error by which a caller catches it."""
    if isinstance(error, (np.exceptions.AxisError, np.linalg.LinAlgError)):
        return type(error)
    return next(c for c in type(error).__mro__ if c.__module__ == "builtins")


def differs(plain, found):
    """What is wrong with an answer; None: nothing."""
    (how, a), (as_well, b) = plain, found
    if how == as_well == "refused":
        return None
    if how == as_well == "gives":
        return None if a == b else f"gives {b}, NumPy's {a}"
    if how == as_well:
        axis = (
            [getattr(e, "axis", None) for e in (a, b)] if isinstance(a, np.exceptions.AxisError) else (0, 0)
        )
        return (
            None
            if isinstance(b, expected(a)) and axis[0] == axis[1]
            else f"raises {b!r:.99}, NumPy's {a!r:.99}"
        )
    return f"{as_well} {b!r:.99}, NumPy's {how} {a!r:.99}"


def wrong(stand, mode, chosen):
    """(question, what is wrong) of those that nothing in the table explains."""
    found = []
    for name, question in chosen:
        if mode in HIDING and name.startswith(("np.", ".")):
            continue  # misuse, which shapes alone may show or not
        told = differs(*asked(question, STANDS[stand], mode))
        if told is not None and not any(re.match(line, f"{name} | {stand}") for line in DIFFERENT):
            found.append((name, told))
    return found


EVERY = 60
CASES = [(stand, mode) for stand in STANDS for mode in MODES]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("stand", "mode"), CASES)
def test_answers_are_numpys(stand, mode):
    """One question of sixty by default, other ones of each kind of value and mode."""
    assert wrong(stand, mode, QUESTIONS[CASES.index((stand, mode)) * 7 % EVERY :: EVERY]) == []


@pytest.mark.long
@pytest.mark.parametrize(("stand", "mode"), CASES)
def test_all_answers_are_numpys(stand, mode):
    assert wrong(stand, mode, QUESTIONS) == []


@pytest.mark.long
def test_the_table_of_differences_says_no_more_than_there_is():
    left = set(DIFFERENT)
    for name, question in QUESTIONS:
        for stand in STANDS:
            lines = [line for line in left if re.match(line, f"{name} | {stand}")]
            if lines and differs(*asked(question, STANDS[stand], "reverse")) is not None:
                left -= set(lines)
    assert not left
