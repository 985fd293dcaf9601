"""Random programs in which what is written is read from the array that is written, by every statement and
function that writes."""

import numpy as np

SHAPES = [(6,), (8,), (3, 4), (4, 4), (3, 3), (2, 3, 2)]


def view_of(a, r):
    """The steps of a random view, as functions."""
    steps = []
    for _ in range(r.integers(3)):
        k, axis = r.integers(4), int(r.integers(a.ndim))
        low, high, step = [int(n) for n in r.integers((0, 0, 1), (2, 2, 3))]
        if k == 0:
            steps.append(lambda a: a.T)
        elif k == 1:
            steps.append(lambda a, at=(*(slice(None),) * axis, slice(None, None, -1)): a[at])
        elif k == 2:
            steps.append(lambda a: a.reshape(-1) if a.flags.c_contiguous else a)
        elif a.shape[0] > 2:
            steps.append(lambda a, at=slice(low, a.shape[0] - high, step): a[at])
        a = steps[-1](a) if steps else a
    return steps


def part(s, shape, r):
    """A view of s of this shape, or one that is broadcast to it."""
    if s.shape == shape:
        return s
    n = int(np.prod(shape))
    if s.ndim == 1 and s.size >= n:
        k = int(r.integers(s.size - n + 1))
        return s[k : k + n].reshape(shape)
    for candidate in (s[0], s.T[0], s[: shape[0]] if shape else s):
        if candidate.shape == shape:
            return candidate
    return s[(slice(1),) * s.ndim].reshape((1,) * min(len(shape), s.ndim))


def pieces(t, r):
    axis = int(r.integers(t.ndim))
    k, lead = int(r.integers(t.shape[axis] + 1)), (slice(None),) * axis
    return [t[(*lead, slice(k, None))], t[(*lead, slice(None, k))]], axis


def written(t, at, y):
    t[at] = y


def concatenated(t, s, r):
    parts, axis = pieces(t, r)
    np.concatenate(parts, axis=axis, out=t)


def along(t, s, r):
    axis = int(r.integers(t.ndim))
    np.put_along_axis(t, np.argsort(r.random(t.shape), axis=axis), part(s, t.shape, r), axis)


def flat_part(t, s, r):
    t.flat[int(r.integers(3)) :: int(r.integers(1, 3))] = s


def whole_flat(t, s, r):
    t.flat = s


def real_part(t, s, r):
    t.real = part(s, t.shape, r)


def sliced(t, s, r):
    at = slice(int(r.integers(2)), None, int(r.integers(1, 3)))
    t[at] = part(s, t[at].shape, r)


def masked(t, s, r):
    mask = r.random(t.shape) < 0.6
    t[mask] = part(s, (int(mask.sum()),), r)


def masked_by_values(t, s, r):
    mask = t > t.mean()
    t[mask] = part(s, (int(mask.sum()),), r)


def added(t, s, r):
    t += part(s, t.shape, r)


def square(t):
    return np.arange(float(len(t) ** 2)).reshape(len(t), len(t))


WRITES = {
    "slice": sliced,
    "mask": masked,
    "mask in a tuple": lambda t, s, r: written(
        t, (m := r.random(t.shape) < 0.6,), part(s, (int(m.sum()),), r)
    ),
    "mask of values": masked_by_values,
    "mask of rows": lambda t, s, r: written(
        t, m := r.random(len(t)) < 0.6, part(s, (int(m.sum()), *t.shape[1:]), r)
    ),
    "integers": lambda t, s, r: written(t, r.integers(len(t), size=4), part(s, (4, *t.shape[1:]), r)),
    "flat part": flat_part,
    "flat places": lambda t, s, r: written(t.flat, [1, 0, 2], s),
    "flat of flat": lambda t, s, r: written(t.flat, slice(1, None), t.flat),
    "flat": whole_flat,
    "real": real_part,
    "copyto": lambda t, s, r: np.copyto(t, part(s, t.shape, r)),
    "copyto where": lambda t, s, r: np.copyto(t, part(s, t.shape, r), where=r.random(t.shape) < 0.5),
    "put": lambda t, s, r: np.put(t, r.integers(t.size, size=5), s),
    "put wrap": lambda t, s, r: np.put(t, r.integers(-9, 9, 5), s, mode="wrap"),
    "place": lambda t, s, r: np.place(t, r.random(t.shape) < 0.6, s),
    "putmask": lambda t, s, r: np.putmask(t, r.random(t.shape) < 0.6, s),
    "put_along_axis": along,
    "fill_diagonal": lambda t, s, r: np.fill_diagonal(t, s) if t.ndim == 2 else None,
    "fill_diagonal column": lambda t, s, r: np.fill_diagonal(t, t[::-1, 0]) if t.ndim == 2 else None,
    "fill_diagonal wrap": lambda t, s, r: np.fill_diagonal(t, s, wrap=True) if t.ndim == 2 else None,
    "concatenate": concatenated,
    "concatenate rows": lambda t, s, r: np.concatenate([t[::-1][:1], t[:-1]], out=t),
    "concatenate others": lambda t, s, r: np.concatenate([t[1:], 2 * t[:1]], out=t),
    "stack": lambda t, s, r: np.stack([t[k] for k in r.permutation(len(t))], out=t),
    "add out": lambda t, s, r: np.add(part(s, t.shape, r), 1.5 * part(s, t.shape, r), out=t),
    "add where": lambda t, s, r: np.add(part(s, t.shape, r), t, out=t, where=r.random(t.shape) < 0.5),
    "in place": added,
    "add.at": lambda t, s, r: np.add.at(t, r.integers(len(t), size=4), part(s, (4, *t.shape[1:]), r)),
    "cumsum": lambda t, s, r: np.cumsum(t[::-1], axis=0, out=t),
    "matmul": lambda t, s, r: np.matmul(square(t), t[::-1], out=t) if t.ndim < 3 else None,
    "take": lambda t, s, r: np.take(s, r.integers(s.size, size=t.shape), out=t),
    "choose": lambda t, s, r: np.choose(r.integers(2, size=t.shape), [part(s, t.shape, r), t], out=t),
    "clip": lambda t, s, r: np.clip(part(s, t.shape, r), -100, 100, out=t),
    "sum": lambda t, s, r: np.sum(t, axis=0, out=t[0]) if t.ndim > 1 else None,
    "einsum": lambda t, s, r: (
        np.einsum("ij->ji", t, out=t) if t.ndim == 2 and t.shape[0] == t.shape[1] else None
    ),
}


def program(name, seed):
    """(f, x, v): f is linear in x where no mask is made of values; x and v lie in memory in one order."""
    r = np.random.default_rng(seed)
    shape, order, captured = SHAPES[r.integers(len(SHAPES))], "CF"[r.integers(2)], r.random() < 0.4
    buffer = np.zeros(shape, order=order)
    to, of, later = view_of(buffer, r), view_of(buffer, r), int(r.integers(1 << 30))
    weights = r.standard_normal(shape)

    def view(y, steps):
        for step in steps:
            y = step(y)
        return y

    def f(x):
        if captured:
            y = buffer
            y[...] = x
        else:
            y = x * 1.0
        WRITES[name](view(y, to), view(y, of), np.random.default_rng(later))
        return (y * weights).sum()

    return f, *[np.array(r.standard_normal(shape), order=order) for _ in range(2)]
