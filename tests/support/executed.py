"""What each differentiated function gives when it is executed by its public name: tests/support/executed.txt,
of which
docs/coverage.md counts.  Made by  PYTHONPATH=.:tests/support python tests/support/executed.py  in some ten minutes.

Every table of calls is asked for lines: the first FEW that use a name, those first that use few others; and
where CuPy has the name, and
takes none of these, the first of the MORE next ones that it takes.  A line runs on NumPy in reverse and forward mode, to second order
(forward over reverse) and under vmap; and, written with cupy for numpy and cupyx.scipy for scipy, on CuPy in the first three.  On NumPy
the reference is differences of the plain function, of the fourth order (for the second order of the gradient;
under vmap the samples one by one), on CuPy what NumPy gives."""

import collections
import contextlib
import functools
import importlib
import multiprocessing
import sys
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import families
import keyword_calls
import numpy as np
import sample_statistics
import scipy.stats
from cases import all_cases, all_lines
from written import Absent, Cupy, Names, Numpy, written

import tapegrad as tg
from tapegrad._core.trees import leaves
from tapegrad.testing import hosted as hosted_cupy
from tapegrad.testing.derivative_checks import direction_like, inner_product, plain_host_array

FILE = Path(__file__).with_name("executed.txt")
FEW, MORE = 3, 12
NUMPY_MODES, CUPY_MODES = ("reverse", "forward", "second", "samples"), ("reverse", "forward", "second")
RIGHT, WRONG, RAISES, UNKNOWN, ABSENT = "right", "wrong", "raises", "unknown", "absent"
WEIGHTS = ((-2, 1 / 12), (-1, -2 / 3), (1, 2 / 3), (2, -1 / 12))

# --- the lines ---


@dataclass
class Line:
    """`options`: h, the step of the differences; rtol, how near to them; exact, how near the value is to the
    plain one."""

    name: str
    f: object
    inputs: tuple
    options: dict = field(default_factory=dict)


def of_keyword_calls():
    """The calls of keyword_calls.py with required arguments alone, by those that are arrays."""
    for call in (*keyword_calls.calls(), *keyword_calls.ufunc_calls()):
        places = [k for k, a in enumerate(call.args) if isinstance(a, np.ndarray) and a.dtype.kind in "fc"]
        apart = {
            *keyword_calls.IN_PLACE,
            *keyword_calls.SYMMETRISED,
            *keyword_calls.CHOSEN,
            np.trim_zeros,
            np.real_if_close,
            np.astype,
        }
        if places and not (call.kwargs or call.ufunc) and call.f not in apart:

            def run(*xs, f=call.f, args=call.args, places=places):
                given = dict(zip(places, xs, strict=True))
                return f(*[given.get(k, a) for k, a in enumerate(args)])

            yield Line(
                f"keyword {call.f.__name__}",
                run,
                tuple([call.args[k] for k in places]),
                {"h": 1e-4, "rtol": 1e-5},
            )


def all_of_them():
    for c in (*all_cases(), *all_lines()):
        yield Line(c.name, c.f, c.inputs, {"h": c.eps, "rtol": max(5e-6, 100 * c.rtol)})
    for path in sorted(FILE.parent.glob("calls_*.py")):
        for name, f, x, options in importlib.import_module(path.stem).CALLS:
            yield Line(
                f"{path.stem.removeprefix('calls_')} {name}",
                f,
                x,
                {**options, "rtol": max(1e-6, options.get("rtol", 0.0))},
            )
    for name, f, x in families.lines():
        yield Line(f"family {name}", f, x, {"h": 3e-4, "rtol": 1e-5, "exact": 1e-7})
    for name, f in sample_statistics.CALLS.items():
        searched = name.split()[0] in sample_statistics.SEARCHED
        run = lambda x, f=f: f(scipy.stats, x)
        yield Line(f"statistic {name}", run, (sample_statistics.ALL[name],),
                   {"h": 1e-4, "rtol": 2e-3, "exact": 1e-5} if searched else {"h": 1e-4, "rtol": 1e-5,
                   "exact": 1e-8})  # fmt: skip
    yield from of_keyword_calls()


@functools.cache
def lines():
    """name -> line; of one name the second is `name 2`."""
    found, count = {}, collections.Counter()
    for line in all_of_them():
        count[line.name] += 1
        line.name += f" {count[line.name]}" if count[line.name] > 1 else ""
        found[line.name] = line
    return found


def lines_by_name():
    """(namespace, name) -> names of the lines that use it."""
    found = collections.defaultdict(list)
    for line in lines().values():
        library = Names()
        with contextlib.suppress(ValueError, TypeError):  # keyword calls that want a keyword
            Problem(line, library)()
            for name in library.seen:
                found[name].append((len(library.seen), len(found[name]), line.name))
    return {name: [line for _, _, line in sorted(those)[: FEW + MORE]] for name, those in found.items()}


# --- a line in a library ---


def numbers(y):
    """The floating point numbers of a result, as real vectors."""
    parts = []
    for v in leaves(y):
        v = np.asarray(v) if type(v) in (float, complex) else v
        if isinstance(getattr(v, "dtype", None), np.dtype) and v.dtype.kind in "fc":
            parts += [v.real.reshape(-1), v.imag.reshape(-1)] if v.dtype.kind == "c" else [v.reshape(-1)]
    return tuple(parts)


def vector(parts):
    return np.concatenate([np.zeros(0), *[plain_host_array(p).astype(float) for p in parts]])


class Problem:
    """A line as a function of its floating point inputs; its point and directions are the same in both
    libraries."""

    def __init__(self, line, library):
        self.f, self.library, self.inputs = written(line.f, library), library, line.inputs
        self.places = [n for n, a in enumerate(line.inputs) if np.asarray(a).dtype.kind in "fc"]
        self.x = tuple([line.inputs[n] for n in self.places])
        self.v = direction_like(self.x, np.random.default_rng(0))
        self.every = tuple(range(len(self.x)))

    def put(self, x):
        return self.library.array(x.copy()) if isinstance(x, np.ndarray) else x

    def at(self, h=0.0):
        return tuple([self.put(a + h * d if h else a) for a, d in zip(self.x, self.v, strict=True)])

    def directions(self):
        return tuple(map(self.put, self.v))

    def of(self, *xs):
        given = [self.put(a) for a in self.inputs]
        for n, x in zip(self.places, xs, strict=True):
            given[n] = x
        return numbers(self.f(*given))

    def __call__(self, h=0.0):
        """All numbers of the plain function."""
        return vector(self.of(*self.at(h)))

    def weights(self):
        rng = np.random.default_rng(1)
        return [rng.standard_normal(len(n)) for n in self.of(*self.at())]

    def forward(self):
        """(values, tangents)"""
        values, tangents = tg.jvp(self.of, self.at(), self.directions())
        return vector(values), vector(
            [p * 0.0 if t is None else t for p, t in zip(values, tangents, strict=True)]
        )

    def gradient(self, weights):
        """The function of the point: cotangents of the weighted sum of all numbers."""
        weights = list(map(self.put, weights))
        return tg.grad(
            lambda *xs: sum([(w * p).sum() for w, p in zip(weights, self.of(*xs), strict=True)]), self.every
        )

    def reverse(self, weights):
        return vector(numbers(self.gradient(weights)(*self.at())))

    def second(self, weights):
        return vector(numbers(tg.jvp(self.gradient(weights), self.at(), self.directions())[1]))


# --- what is said of it ---


def near(found, wanted, rtol):
    if found.shape != wanted.shape:
        return f"{WRONG}: {found.shape} numbers for {wanted.shape}"
    scale = max(1.0, np.max(np.abs(wanted[np.isfinite(wanted)]), initial=0.0))
    worst = np.max(np.abs(found - wanted), initial=0.0, where=~(np.isnan(found) & np.isnan(wanted))) / scale
    return RIGHT if worst <= rtol else f"{WRONG}: off by {worst:.2g}"


NOT_HOSTED = (
    "host_cupy",
    "'int' object is not callable",
)  # a kernel that the hosted CuPy does not know, a stub of a library


def tried(f):
    try:
        return f()
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        return f"{UNKNOWN}: {text}" if any(sign in text for sign in NOT_HOSTED) else f"{RAISES}: {text}"


def slope(f, h):
    return sum([c / h * f(k * h) for k, c in WEIGHTS])


def quietly(run):
    @functools.wraps(run)
    def quiet(*args):
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return run(*args)

    return quiet


@quietly
def on_numpy(line):
    """mode -> verdict"""
    p = Problem(line, Numpy())
    h, rtol, exact = [
        line.options.get(k, least) for k, least in (("h", 1e-3), ("rtol", 1e-6), ("exact", 1e-9))
    ]
    weights, gradient = p.weights(), p.gradient(p.weights())

    def forward():
        values, tangents = p.forward()
        plain = near(values, p(), exact)
        return near(tangents, slope(p, h), rtol) if plain == RIGHT else plain

    def reverse():
        along = np.array([float(plain_host_array(inner_product(p.v, gradient(*p.at()))))])
        return near(along, np.array([vector(weights) @ slope(p, h)]), rtol)

    def second():
        return near(p.second(weights), slope(lambda h: vector(numbers(gradient(*p.at(h)))), h), 10 * rtol)

    def samples():
        stacks = [np.stack([a, np.asarray(a) * 0.97]) for a in p.x]
        verdict = RIGHT
        for f in (p.of, gradient):
            whole = leaves(tg.vmap(lambda *xs, f=f: tuple(leaves(f(*xs))))(*stacks))
            for k in range(2) if verdict == RIGHT else ():
                alone = leaves(f(*[s[k] for s in stacks]))
                verdict = near(vector(numbers([w[k] for w in whole])), vector(numbers(alone)), 10 * exact)
        return verdict

    return {mode: tried(f) for mode, f in zip(NUMPY_MODES, (reverse, forward, second, samples), strict=True)}


@quietly
def on_cupy(line, cupy):
    """mode -> verdict; of a line that uses a name which CuPy has not, or of which CuPy gives other numbers
    than NumPy, ABSENT."""
    p = Problem(line, Numpy())
    try:
        q = Problem(line, Cupy(cupy))
    except (Absent, NotImplementedError, TypeError, ValueError, AttributeError) as error:
        kind = UNKNOWN if any(sign in str(error) for sign in NOT_HOSTED) else ABSENT
        return dict.fromkeys(CUPY_MODES, f"{kind}: {type(error).__name__}: {error}")
    rtol, weights = max(1e-8, 1e-2 * line.options.get("rtol", 1e-6)), p.weights()

    def forward():
        values, tangents = q.forward()
        wanted, slopes = p.forward()
        verdict = near(values, wanted, max(1e-9, line.options.get("exact", 0.0)))
        return near(tangents, slopes, rtol) if verdict == RIGHT else verdict

    def reverse():
        return near(q.reverse(weights), p.reverse(weights), rtol)

    def second():
        return near(q.second(weights), p.second(weights), 10 * rtol)

    verdicts = {mode: tried(f) for mode, f in zip(CUPY_MODES, (reverse, forward, second), strict=True)}
    if set(verdicts.values()) != {RIGHT}:
        plain = tried(lambda: near(q(), p(), 1e-6))
        if plain.startswith((RAISES, WRONG)):  # CuPy's own call has other numbers, or arguments
            return dict.fromkeys(CUPY_MODES, f"{ABSENT}: {plain}")
        if plain.startswith(UNKNOWN) and any("numbers for" in verdict for verdict in verdicts.values()):
            return dict.fromkeys(
                CUPY_MODES, plain
            )  # its results may have another form: roots that are complex, longer states
    return verdicts


def together(verdicts):
    """Of the lines of one name in one mode: wrong if one is, else right if one is, else why not."""
    kinds = [v.partition(":")[0] for v in verdicts]
    return next((k for k in (WRONG, RIGHT, RAISES, UNKNOWN) if k in kinds), ABSENT)


# --- the file ---

CODES = {RIGHT: "r", WRONG: "W", RAISES: "e", UNKNOWN: "u", ABSENT: "-"}


@dataclass
class Entry:
    """Of one name: the verdicts by mode on NumPy and on CuPy (None where CuPy has no function of that name),
    and its lines."""

    numpy: dict
    cupy: dict | None
    lines: tuple
    slow: bool = False

    def text(self):
        codes = [
            "".join([CODES[v] for v in verdicts.values()]) if verdicts else "."
            for verdicts in (self.numpy, self.cupy)
        ]
        return f"{codes[0]} {codes[1]:3} {'slow' if self.slow else '-':4} {'; '.join(self.lines)}"


@functools.cache
def read():
    """(namespace, name) -> Entry, of the file."""
    found, kinds = {}, {code: kind for kind, code in CODES.items()}
    for text in FILE.read_text(encoding="utf-8").splitlines()[1:]:
        name, on_host, there, slow, those = text.split(maxsplit=4)
        space, _, name = name.rpartition(".")
        verdicts = [
            dict(zip(modes, [kinds[c] for c in codes], strict=True)) if codes != "." else None
            for modes, codes in ((NUMPY_MODES, on_host), (CUPY_MODES, there))
        ]
        found[space, name] = Entry(*verdicts, tuple(those.split("; ")), slow == "slow")
    return found


def hosted():
    """The hosted CuPy, as tests/conftest.py makes it."""
    return hosted_cupy.install()


def has(cupy, space, name):
    try:
        return callable(Cupy(cupy).function(space, name))
    except Absent:
        return False


def of_name(verdicts):
    """mode -> verdict of a name, by those of its lines."""
    return {mode: together([said[mode] for said in verdicts]) for mode in verdicts[0]}


def versions():
    return f"NumPy {np.__version__}, SciPy {scipy.__version__}"


def made_here():
    """Was the file made with today's libraries?"""
    return FILE.read_text(encoding="utf-8").partition("\n")[0] == f"# {versions()}"


def write(entries):
    lines = [f"{'.'.join(key)} {entry.text()}\n" for key, entry in entries.items()]
    FILE.write_text(f"# {versions()}\n" + "".join(lines), encoding="utf-8")


# --- all of them ---


def timed(name):
    """(name, verdicts on NumPy and on CuPy, seconds of processor time, which a busy machine leaves as they are)"""
    start, line = time.process_time(), lines()[name]
    return name, (on_numpy(line), on_cupy(line, hosted())), time.process_time() - start


def executed(names, processes=2):
    """Entries of these names, (namespace, name) -> lines, and the verdicts of the lines.  What takes a second of processor time is marked."""
    found = {}

    def add(wanted):
        with multiprocessing.get_context("fork").Pool(processes) as pool:
            found.update(
                {
                    line: said
                    for line, *said in pool.imap_unordered(timed, sorted(wanted - found.keys()), chunksize=4)
                }
            )

    def taken(line):
        return set(found[line][0][1].values()) == {RIGHT}

    add({line for those in names.values() for line in those[:FEW]})
    there = {key for key, those in names.items() if has(hosted(), *key) and not any(map(taken, those[:FEW]))}
    add({line for key in there for line in names[key][FEW:]})
    entries = {}
    for key, those in names.items():
        chosen = [*those[:FEW], *[line for line in those[FEW:] if key in there and taken(line)][:1]]
        on_host, on_device = [of_name([found[line][0][k] for line in chosen]) for k in range(2)]
        slow = any(found[line][1] > 1.0 for line in chosen)
        entries[key] = Entry(on_host, on_device if has(hosted(), *key) else None, tuple(chosen), slow)
    return entries, {line: said for line, (said, _) in found.items()}


if __name__ == "__main__":
    import coverage_table

    hosted()
    found = lines_by_name()
    entries, verdicts = executed(
        {key: found[key] for key in coverage_table.differentiated()}, int(*sys.argv[1:] or [2])
    )
    write(entries)
    for (space, name), e in entries.items():
        for k, said in enumerate((e.numpy, e.cupy or {})):
            if set(said.values()) - {RIGHT}:
                print(
                    f"{space}.{name}",
                    "on CuPy" if k else "on NumPy",
                    [(line, verdicts[line][k]) for line in e.lines],
                )
