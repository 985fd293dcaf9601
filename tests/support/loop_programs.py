"""Random loops over six numbers, as users write them: each step has some operations of NumPy or SciPy, writes
and views.

`fault_of(seed)` compares a prepared program with the eager one at several points, in several calls: value,
gradient and Hessian product; and the eager gradient in reverse with that in forward mode.

`python tests/support/loop_programs.py 0 1000` prints the faults of so many programs from seed 0."""

import random
import re
import sys
import warnings

import numpy as np
import scipy.special

import tapegrad as tg

ONE = """np.sin(A); np.exp(-np.abs(A)); np.tanh(A); np.sqrt(np.abs(A) + 0.5); np.log1p(A**2); np.arctan(A); np.floor(A * 3) + A
np.sign(A) * A; np.clip(A, -0.5, 0.8); np.cumsum(A) * 0.2; np.sort(A); A[::-1] * 1.0; np.roll(A, 1)
np.where(A > 0.1, A, 0.5 * A**2); np.maximum(A, 0.2); np.minimum(A, A.mean()); A / (1 + A @ A)
np.convolve(A, KERNEL, 'same'); np.linalg.norm(A) * WEIGHTS; scipy.special.expit(A); scipy.special.erf(A)
np.interp(A, GRID, HEIGHTS); np.diff(A, append=0.0); np.mod(A, 0.7); np.hypot(A, 0.3); np.power(np.abs(A) + 0.1, 1.5)
scipy.special.logsumexp(A) + 0 * A; np.linalg.solve(MATRIX + np.diag(A**2), A); np.cross(A[:3], A[3:]).repeat(2)
np.abs(A); np.max(A) * A; np.cumprod(1 + 0.1 * A); np.median(A) + A * 0.1; np.square(A); np.arctan2(A, WEIGHTS)
np.logaddexp(A, 0.3); np.fmax(A, -0.2); np.fmin(A, 0.4); np.prod(1 + 0.1 * A) * WEIGHTS
np.linalg.det(MATRIX + np.diag(A)) * WEIGHTS * 0.01; A.reshape(2, 3).T.ravel() * 1.0
np.einsum('i,ij->j', A, MATRIX) * 0.2; np.linalg.cholesky(MATRIX @ MATRIX.T + np.diag(A**2))[:, 0] * 0.3
np.ptp(A) + A; np.add.reduceat(A, [0, 2, 4]).repeat(2); np.take(A, [5, 0, 0, 3, 2, 2])
np.trapezoid(A) * WEIGHTS * 0.1; np.std(A) * WEIGHTS + A; np.nanmean(A) + A; np.rint(A * 4) * 0.1 + A; np.cbrt(A + 2)
1.0 * (False & (A == A)) + A; (A > 0) * A; ~(A > 0.1) * 0.2 + A; np.isnan(A) + A; np.heaviside(A, 0.5) * A
np.select([A > 0.5, A < -0.5], [A, -A], A * 2); np.unwrap(A * 4); np.searchsorted(GRID, A) * 0.1 + A
np.logical_xor(A > 0, A[::-1] > 0) * 0.1 + A; np.argmax(A) * 0.01 + A; np.gradient(A); np.nan_to_num(A)
np.trunc(A * 2) * 0.1 + A"""
TWO = """A * B; A + 0.3 * B; A - B; A / (2 + B**2); np.maximum(A, B); np.where(A > B, A, B * 0.5); np.arctan2(A, 1 + B**2)
np.dot(A, B) * WEIGHTS; np.outer(A, B)[2]; np.concatenate([A[:3], B[3:]]); np.hypot(A, B); np.logaddexp(A, B)
np.minimum(A, B) * 1.1; np.fmax(A, B); np.copysign(A, B); np.stack([A, B]).max(0); np.fmod(A, 2 + np.abs(B))
(A > B) & (B > 0) | (A < 0); np.kron(A[:2], B[:3])"""
WRITES = """s[I:] += 0.1 * t[I:]; s[I] = t[J] * 0.5; s *= 0.9; np.multiply(s, 0.5, out=s); s[:3], s[3:] = t[3:] * 1.0, s[:3] * 1.0
kept[n % 4] = s; s += kept[(n + 1) % 4] * 0.1; s[t > 0.3] = 0.2; np.add.at(s, [1, 1, 2], t[:3] * 0.1); s[::2] *= 0.8
s = s.copy(); s[n % 6] += 0.05; total += s[n % 6]; s = s if n % 3 else t; np.tanh(s, out=s, where=t > 0)
s[[1, 4]] = s[[4, 1]]; np.copyto(s, t, where=t > s)"""
ONE, TWO, WRITES = [
    [x.strip() for line in text.split("\n") for x in line.split("; ")] for text in (ONE, TWO, WRITES)
]
NAMES = {
    "np": np,
    "scipy": scipy,
    "KERNEL": np.array([0.2, 0.5, 0.3]),
    "WEIGHTS": np.linspace(0.5, 1.5, 6),
    "GRID": np.linspace(-1, 1, 5),
    "HEIGHTS": np.array([0.0, 0.5, 0.2, -0.3, 0.4]),
    "MATRIX": np.eye(6) * 2 + 0.1 * np.arange(36).reshape(6, 6) / 36,
}


CLOSE = {"value": 1e-12, "gradient": 1e-9, "hvp": 1e-7}  # relative to the largest derivative


ROUNDING = 10  # how much more than the last digits of x the operations may change


def with_names(text: str, **names) -> str:
    return re.sub(r"\b[ABIJ]\b", lambda m: str(names[m[0]]), text)


def text_of(seed: int) -> str:
    rng, body = random.Random(seed), []
    for _ in range(rng.randint(2, 6)):
        kind, to, a, b = rng.random(), *rng.choices("st", k=3)
        if kind < 0.5:
            body.append(f"{to} = {with_names(rng.choice(ONE), A=a)}")
        elif kind < 0.75:
            body.append(f"{to} = ({with_names(rng.choice(TWO), A=a, B=b)}) + 0.0")
        else:
            body.append(with_names(rng.choice(WRITES), I=rng.randrange(6), J=rng.randrange(6)))
    body += ["s = s * 0.7 if s[0] > 0.4 else s"] * (rng.random() < 0.15) + [
        "s = np.tanh(s)",
        "t = np.tanh(t)",
    ]
    lines = [
        "def f(x):",
        "    s, t, total, kept = x * 1.0, np.cos(x), 0.0 * x[0], np.zeros((4, 6))",
        "    kept[0] = x",
        f"    for n in range({rng.choice([3, 7, 25, 60])}):",
        *[f"        {line}" for line in body],
        "    return (s * WEIGHTS).sum() + total * 0.3 + (t**2).sum() + kept.sum() * 0.1",
    ]
    return "\n".join(lines) + "\n"


def different(a, b, tolerance) -> bool:
    return not np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)


def with_other_digits(seed: int, text: str):
    """The program with other last digits of s and t after each step: they decide between equal elements."""
    digits = 1 + np.random.default_rng(seed).integers(-1, 2, (60, 6)) * 2.0**-52
    names = NAMES | {"DIGITS": digits}
    for z in "st":
        text = text.replace(f"        {z} = np.tanh({z})\n", f"        {z} = np.tanh({z}) * DIGITS[n]\n")
    exec(compile(text, "<loop program with other digits>", "exec"), names)
    return names["f"]


def is_rounding(f, text, name, x, v, a, b) -> bool:
    """Is the difference as small as what the last digits of x, or of each step, decide?"""

    def eager(f, x):
        return {"value": f, "gradient": tg.grad(f), "hvp": lambda x: tg.hvp(f, x, v)}[name](x)

    moved = [eager(f, x + k * 2.0**-52) for k in (-3, -2, 2, 3)]
    moved += [eager(with_other_digits(seed, text), x) for seed in range(4)]
    return np.max(np.abs(a - b)) <= ROUNDING * max([np.max(np.abs(m - b)) for m in moved])


def fault_of(seed: int) -> str:
    """What is wrong; empty if nothing is, or if the eager program is refused."""
    names = dict(NAMES)
    exec(compile(text_of(seed), f"<loop program {seed}>", "exec"), names)
    f, rng = names["f"], np.random.default_rng(seed)
    points, v = [0.6 * rng.normal(size=6) for _ in range(4)], rng.normal(size=6)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            expected = [(f(x.copy()), tg.grad(f)(x), tg.hvp(f, x, v)) for x in points]
        except tg.errors.TapegradError:
            return ""
        forward = tg.jvp(f, (points[0],), (v,))[1]
        if np.isfinite(forward) and different(forward, expected[0][1] @ v, 1e-8):
            return f"forward {forward}, reverse {expected[0][1] @ v}"
        p = tg.prepare(f, points[0], **({} if seed % 3 == 2 else {"compile": bool(seed % 3)}))
        for call in range(2):
            for n, (x, (value, gradient, product)) in enumerate(zip(points, expected, strict=True)):
                size = 1 + np.max(np.abs([*gradient, *product]))
                found = *p.value_and_grad(x), p.hvp(x, v)
                for name, a, b in zip(CLOSE, found, (value, gradient, product), strict=True):
                    if different(a / size, b / size, CLOSE[name]) and not is_rounding(
                        f, text_of(seed), name, x, v, a, b
                    ):
                        return f"{name} at point {n} in round {call}: {a}, eager {b}"
    return ""


if __name__ == "__main__":
    first, number = map(int, sys.argv[1:])
    for seed in range(first, first + number):
        if fault := fault_of(seed):
            print(f"{seed}: {fault}\n{text_of(seed)}", flush=True)
