"""Random programs in which an operation may raise or warn, and the function goes on: as text, drawn by a
seed.

Each has an operation of one KIND, which fails at some points and not at others, within one HANDLER, at times
within a further one, behind
an `if`, after writes into captured arrays.  `ways(x)` says which way a plain call takes."""

import contextlib
import linecache
import sys
import textwrap
import warnings

import numpy as np
import scipy

import tapegrad as tg

SIZE = 2
# name -> (what is caught, statements that make y of x where they do not fail)
KINDS = {
    "cholesky": ("np.linalg.LinAlgError", "y = np.log(np.diag(np.linalg.cholesky(K + np.diag(x)))) + x"),
    "cholesky, unread": ("np.linalg.LinAlgError", "np.linalg.cholesky(K + np.diag(x))\ny = np.sin(x)"),
    "cho_factor": ("np.linalg.LinAlgError", "y = scipy.linalg.cho_solve(scipy.linalg.cho_factor(K + "
    "np.diag(x)), x)"),
    "solve": ("np.linalg.LinAlgError", "y = np.linalg.solve(np.diag(np.maximum(x, 0.0) * np.array([1.0, "
    "0.0]) + np.array([0.0, 1.0])), x)"),
    "inv": ("np.linalg.LinAlgError", "np.linalg.inv(np.stack([x, 2.0 * x]) + (x[0] > 0) * np.eye(2))\ny = "
    "np.cos(x)"),
    "index": ("IndexError", "y = x[np.argsort(x) + 2 * (x < 0)] * 2.0"),
    "along": ("IndexError", "y = np.take_along_axis(x, np.array([0, 1]) + 2 * (x < 0), 0)"),
    "log": ("FloatingPointError", "with np.errstate(all='raise'):\n    y = np.log(x) * x"),
    "divide": ("FloatingPointError", "with np.errstate(divide='raise', invalid='raise'):\n    y = x / "
    "np.maximum(x, 0.0)"),
    "overflow": ("FloatingPointError", "with np.errstate(over='raise', under='ignore'):\n    y = np.exp(-x "
    "* 600.0) + x"),
    "seterr": ("FloatingPointError", "old = np.seterr(invalid='raise')\ntry:\n    y = "
    "np.sqrt(x)\nfinally:\n    np.seterr(**old)"),
    "warning": ("RuntimeWarning", "with warnings.catch_warnings():\n    warnings.simplefilter('error')\n    "
    "y = np.log(x)"),
    "recorded": (
        "Told",
        "with warnings.catch_warnings(record=True) as found:\n    warnings.simplefilter('always')\n    y = "
        "np.sqrt(x) * x\nif found:\n    raise Told(len(found))",
    ),
    "called": (
        "Told",
        "found = []\nwith np.errstate(all='call', call=lambda kind, flag: found.append(kind)):\n    y = "
        "np.log(x)\nif found:\n    raise Told(len(found))",
    ),
    "ignored": (
        "ZeroDivisionError",
        "with warnings.catch_warnings():\n    warnings.simplefilter('ignore')\n    y = np.where(x > 0, "
        "np.sqrt(x), x)",
    ),
    "brentq": ("ValueError", "y = x * scipy.optimize.brentq(lambda z: z**3 + z - x[0], 0.0, 9.0)"),
    # (no double root at any of the POINTS: there is no derivative at one)
    "newton": ("RuntimeError", "y = x + scipy.optimize.newton(lambda z: z * z - x[0] - 0.1, 1.5, "
    "maxiter=40)"),
    "implicit": ("tg.errors.ConvergenceError", "y = x * tg.implicit.root(lambda z, a: z * z - a, "
    "halved)(1.5, x[0])"),
    "state space": (
        "tg.errors.NotPositiveDefiniteError",
        "y = x * ss.loglik(ss.LinearGaussian(0.5, 1.0, x[0], 0.01, start=ss.Start(0.0, 0.1)), data)",
    ),
    "raised by hand": ("ValueError", "if x[0] + x[1] < 0:\n    raise ValueError('below')\ny = x**3"),
    "an inner gradient": ("np.linalg.LinAlgError", "y = tg.grad(lambda z: "
    "np.log(np.diag(np.linalg.cholesky(K + np.diag(z)))).sum())(x)"),
    "an inner tangent": (
        "FloatingPointError",
        "with np.errstate(all='raise'):\n    y = tg.jvp(lambda z: np.log(z) * z, (x,), (x * 0.5,))[1]",
    ),
    "an inner batch": (
        "np.linalg.LinAlgError",
        "y = tg.vmap(lambda a: np.linalg.cholesky(K + np.diag(x * a)).sum())(np.array([1.0, 0.5]))",
    ),
}  # fmt: skip
# BODY makes y, OTHER another y, CAUGHT is what is caught
HANDLERS = {
    "except": "try:\n    BODY\nexcept CAUGHT:\n    OTHER",
    "else": "try:\n    BODY\nexcept CAUGHT:\n    OTHER\nelse:\n    y = y * 1.5",
    "suppress": "OTHER\nwith contextlib.suppress(CAUGHT):\n    BODY",
    "finally": (
        "fine = 0.5\ntry:\n    try:\n        BODY\n        fine = 2.0\n    finally:\n        z = x * "
        "fine\nexcept CAUGHT:\n    y = z"
    ),
    "again": "try:\n    try:\n        BODY\n    except CAUGHT as error:\n        raise Again('no') from "
    "error\nexcept Again:\n    OTHER",
    "bare": "try:\n    try:\n        BODY\n    except CAUGHT:\n        raise\nexcept Exception:\n    OTHER",
    "generator": (
        "def parts():\n    for k in range(2):\n        BODY\n        yield y\n"
        "def total():\n    z = x * 0.0\n    try:\n        for part in parts():\n            z = z + part\n"
        "    except CAUGHT:\n        return z - x\n    return z\ny = total()"
    ),
    "manager": "OTHER\nwith Swallows(CAUGHT):\n    BODY",
    "stack": "OTHER\nwith contextlib.ExitStack() as stack:\n    "
    "stack.enter_context(contextlib.suppress(CAUGHT))\n    BODY",
    "returned": "def inner(x):\n    try:\n        BODY\n        return y\n    except CAUGHT:\n        "
    "return x * x\ny = inner(x)",
    "retries": (
        "given, y = x, None\nfor k in range(3):\n    try:\n        BODY\n        break\n    except "
        "CAUGHT:\n        x = x + 1.0\nif y is None:\n    OTHER\nx = given"
    ),
    "beyond": "def inner(x):\n    BODY\n    return (y * y).sum()\ntry:\n    y = tg.grad(inner)(x)\nexcept "
    "CAUGHT:\n    OTHER",
    "text": "try:\n    BODY\nexcept CAUGHT as error:\n    OTHER\n    y = y * (2.0 if str(error) else 3.0)",
    "buffer": "buf[:] = x\ntry:\n    BODY\n    buf *= y\nexcept CAUGHT:\n    buf[1] = x[0]\ny = buf + x",
    "nothing": "BODY",
}
OTHERS = ("y = x * x + 3.0", "y = np.tanh(x) - 1.0", "y = buf * x", "y = x[::-1] * 0.5")
RARE = frozenset(("state space", "implicit"))  # kinds that take long


class Told(Exception):
    pass


class Again(Exception):
    pass


class Swallows:
    def __init__(self, kind):
        self.kind = kind

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        return kind is not None and issubclass(kind, self.kind)


def halved(F, z, a):
    """A solver that gives up."""
    for _ in range(60):
        z = z - F(z, a) / (2.0 * z)
    return z


def put(text, **parts):
    """A template with these blocks in it, each as deep as where it stands."""
    lines = []
    for line in text.split("\n"):
        word = line.strip()
        lines.append(textwrap.indent(parts[word], line[: len(line) - len(word)]) if word in parts else line)
    return "\n".join(lines).replace("CAUGHT", parts["CAUGHT"])


class Program:
    def __init__(self, seed, kinds=None, handlers=None):
        rng = np.random.default_rng(seed)
        kinds = kinds or [k for k in KINDS if k not in RARE or rng.random() < 0.2]
        self.kind, self.handler = str(rng.choice(kinds)), str(rng.choice(handlers or list(HANDLERS)))
        caught, body = KINDS[self.kind]
        parts = {"CAUGHT": caught, "BODY": body, "OTHER": str(rng.choice(OTHERS))}
        text = put(HANDLERS[self.handler], **parts)
        if rng.random() < 0.25 and self.handler != "nothing":  # within another one
            kind = str(rng.choice(["cholesky, unread", "log", "index", "raised by hand"]))
            outer = put(KINDS[kind][1], CAUGHT="")
            text = put(
                "try:\n    FIRST\nexcept CAUGHT:\n    y = x * 2.0\nelse:\n    BODY",
                CAUGHT=KINDS[kind][0],
                FIRST=outer,
                BODY=text,
            )
        if rng.random() < 0.25:
            text = put("if x[1] > 0.4:\n    BODY\nelse:\n    y = np.sin(x)", CAUGHT="", BODY=text)
        if rng.random() < 0.25:
            text = f"buf[0] = x[1] * 2.0\n{text}"
        if rng.random() < 0.25:
            text = f"given = x\nx = np.array([x[0], x[1] * 1.0])\n{text}\nx = given"
        self.text = "def f(x):\n" + textwrap.indent(text, "    ") + "\n"
        self.seed = seed

    def make(self, result="(y * y).sum() + (x * buf).sum()"):
        """(a function, the array that it captures)"""
        name = f"<caught program {self.seed}>"
        text = f"{self.text}    return {result}\n"
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)
        space = {"np": np, "scipy": scipy, "tg": tg, "ss": tg.statespace, "warnings": warnings,
        "contextlib": contextlib, "Told": Told,
                 "Again": Again, "Swallows": Swallows, "halved": halved, "data": np.array([0.1, -0.2, 0.3]),
                 "buf": np.array([0.3, 0.7]),
                 "K": np.array([[1.0, 0.3], [0.3, 1.0]]), "__name__": "caught_programs_drawn"}  # fmt: skip
        exec(compile(text, name, "exec"), space)
        return space["f"], space["buf"]

    def ways(self, x):
        """What a plain call meets: the lines of f that it runs."""
        f, _ = self.make()
        lines = []

        def trace(frame, event, arg):
            if not frame.f_code.co_filename.startswith("<caught"):
                return None
            lines.append((frame.f_code.co_name, frame.f_lineno))
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            f(x.copy())
        except Exception as error:
            lines.append(type(error))
        finally:
            sys.settrace(before)
        return lines


POINTS = [
    np.array(v)
    for v in ([2.5, 0.7], [-2.0, 0.5], [0.6, 1.3], [-1.7, 0.2], [0.0, 0.9], [1.1, 0.3], [-1.5, -1.6])
]


# --- around a function of other programs ---


def log_raising(x):
    with np.errstate(all="raise"):
        return np.log(x[:2] + 0.45).sum()


def log_warning(x):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return np.log(x[:2] + 0.45).sum()


CHECKS = [
    (lambda x: np.log(np.diag(np.linalg.cholesky(np.diag(x[:2] + 0.45) + 0.1))).sum(), np.linalg.LinAlgError),
    (log_raising, FloatingPointError),
    (log_warning, RuntimeWarning),
    (lambda x: x[np.argsort(x) + 5 * (x < -0.45)].sum(), IndexError),
    (lambda x: scipy.optimize.brentq(lambda z: z**3 + z - x[1] - 0.45, 0.0, 9.0), ValueError),
]


def around(f, k, xp=np):
    """f, with an operation behind it that fails at some points, and f goes on."""
    check, error = CHECKS[k % len(CHECKS)] if xp is np else CHECKS[3]

    def g(x):
        try:
            y = f(x)
            return y * 1.5 + check(x)
        except error:
            return y + (x * x).sum()

    return g
