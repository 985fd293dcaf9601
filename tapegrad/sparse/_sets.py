"""Interned sets of the numbers 0 .. n-1: the inputs that an element of an array depends on.

An array of sets is an integer array of names. Name 0 is the empty set, 1 + j is the set of j alone and `full`
is the set of all. An operation that moves elements therefore moves names. Recent unions are cached. If one
set contains the other, their union reuses its name. Sums over overlapping sets then store nothing twice.

Numba compiles the loops and stores them on disk. A loop stops when an array is full and resumes in a larger
one."""

import numba
import numpy as np

DONE = -1  # otherwise the place where a loop stopped because an array was full
REMEMBERED_UNIONS = 1 << 12  # size of the cache of unions


@numba.njit(cache=True)
def unite(a, b, out, first, start, items, count, keys, names, full, n):  # pragma: no cover (compiled)
    """Set out[k] to the union of a[k] and b[k] for k >= `first`.

    Return (place where it stopped, number of sets). `keys` and `names` are the cache of recent unions."""
    mask = keys.size - 1
    top, room, last = start[count], items.size, start.size - 2
    for k in range(first, a.size):
        x, y = a[k], b[k]
        if x == y or y == 0 or x == full:
            out[k] = x
            continue
        if x == 0 or y == full:
            out[k] = y
            continue
        key = (x << 32) | y
        h = (x * 31 + y) & mask
        if keys[h] == key:
            out[k] = names[h]
            continue
        i, i_end, j, j_end = start[x], start[x + 1], start[y], start[y + 1]
        big, small = i_end - i, j_end - j
        if top + big + small > room or count >= last:
            return k, count
        p = top
        while i < i_end and j < j_end:
            u, v = items[i], items[j]
            items[p] = u if u <= v else v
            i += u <= v
            j += v <= u
            p += 1
        while i < i_end:
            items[p] = items[i]
            i += 1
            p += 1
        while j < j_end:
            items[p] = items[j]
            j += 1
            p += 1
        size = p - top
        if size == n:
            z = full
        elif size == big:
            z = x
        elif size == small:
            z = y
        else:
            z = count
            count += 1
            start[count] = top = p
        keys[h], names[h] = key, z
        out[k] = z
    return -1, count


@numba.njit(cache=True)
# pragma: no cover (compiled)
def gather(bounds, members, out, first, start, items, count, full, n, mark, met, stamp):
    """Set out[k] to the union of members[bounds[k] : bounds[k + 1]] for k >= `first`.

    `mark` and `met` hold the last stamp at which a number or a set was visited."""
    for k in range(first, bounds.size - 1):
        stamp += 1
        total, big, name, last = 0, 0, 0, 0
        for m in range(bounds[k], bounds[k + 1]):
            x = members[m]
            if x == 0 or x == last or met[x] == stamp:
                continue
            last = x
            met[x] = stamp
            if x == full:
                total, big, name = n, n, full
                break
            for i in range(start[x], start[x + 1]):
                if mark[items[i]] != stamp:
                    mark[items[i]] = stamp
                    total += 1
            if start[x + 1] - start[x] > big:
                big, name = start[x + 1] - start[x], x
        if total == n and n > 0:
            name = full
        elif total > big:
            top = start[count]
            if top + total > items.size or count + 1 >= start.size:
                return k, count, stamp
            p = top
            if 16 * total > n:
                for j in range(n):
                    if mark[j] == stamp:
                        items[p] = j
                        p += 1
            else:
                stamp += 1
                for m in range(bounds[k], bounds[k + 1]):
                    x = members[m]
                    if x == 0 or met[x] == stamp:
                        continue
                    met[x] = stamp
                    for i in range(start[x], start[x + 1]):
                        if mark[items[i]] != stamp:
                            mark[items[i]] = stamp
                            items[p] = items[i]
                            p += 1
                items[top:p] = np.sort(items[top:p])
            name = count
            count += 1
            start[count] = p
        out[k] = name
    return -1, count, stamp


@numba.njit(cache=True)
def expand_sets(names, start, items, full, n, indptr, indices):  # pragma: no cover (compiled)
    for k in range(names.size):
        p = indptr[k]
        if names[k] == full:
            for j in range(n):
                indices[p + j] = j
        else:
            for i in range(start[names[k]], start[names[k] + 1]):
                indices[p] = items[i]
                p += 1


class IndexSets:
    """All sets of n numbers that have occurred."""

    def __init__(self, n: int):
        self.n = n
        self.full = n + 1 if n > 1 else n
        self.count = n + 2  # of names
        self.start = np.empty(24 * n + 1024, np.int64)
        self.start[0] = 0
        self.start[1 : n + 2] = np.arange(n + 1)
        self.start[n + 2] = n
        self.items = np.empty(96 * n + 4096, np.int32)  # unwritten pages take no memory
        self.items[:n] = np.arange(n)
        self.keys, self.names = np.zeros(REMEMBERED_UNIONS, np.int64), np.zeros(REMEMBERED_UNIONS, np.int64)
        self.mark, self.met, self.stamp = np.full(n, -1), np.zeros(self.start.size, np.int64), 0

    def singles(self, shape: tuple) -> np.ndarray:
        """Return an array of singletons: each element depends on its own number."""
        return np.arange(1, self.n + 1).reshape(shape)

    def grown(self) -> None:
        """Enlarge the arrays."""
        if self.start.size < 2 * self.count:
            self.start = np.concatenate([self.start, np.empty_like(self.start)])
            self.met = np.concatenate([self.met, np.zeros_like(self.met)])
        self.items = np.concatenate([self.items, np.empty(self.items.size + 2 * self.n, np.int32)])

    def union(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return the elementwise union of two arrays of names, broadcast together."""
        if a is b:
            return a
        shape = np.broadcast_shapes(a.shape, b.shape)
        # of one layout and writable, so that the loop is compiled once
        a, b = [np.array(np.broadcast_to(x, shape), np.int64, order="C").reshape(-1) for x in (a, b)]
        out, k = np.empty(a.size, np.int64), 0
        while True:
            k, self.count = unite(
                a, b, out, k, self.start, self.items, self.count, self.keys, self.names, self.full, self.n
            )
            if k == DONE:
                return out.reshape(shape)
            self.grown()

    def groups(self, bounds: np.ndarray, members: np.ndarray) -> np.ndarray:
        """Return the union of each group of names members[bounds[k] : bounds[k + 1]]."""
        bounds, members = np.ascontiguousarray(bounds, np.int64), np.ascontiguousarray(members, np.int64)
        out, k = np.empty(bounds.size - 1, np.int64), 0
        while True:
            k, self.count, self.stamp = gather(
                bounds,
                members,
                out,
                k,
                self.start,
                self.items,
                self.count,
                self.full,
                self.n,
                self.mark,
                self.met,
                self.stamp,
            )
            if k == DONE:
                return out
            self.grown()

    def over(self, names: np.ndarray, axes: tuple) -> np.ndarray:
        """Return the unions over some axes, kept with length 1."""
        kept = [k for k in range(names.ndim) if k not in axes]
        rows = int(np.prod([names.shape[k] for k in kept]))
        moved = (
            names.transpose([*kept, *axes]).reshape(rows, -1) if names.size else np.zeros((rows, 0), np.int64)
        )
        bounds = np.arange(rows + 1) * moved.shape[1]
        out = self.groups(bounds, moved.reshape(-1))
        return out.reshape([1 if k in axes else s for k, s in enumerate(names.shape)])

    def at_places(self, places: np.ndarray, names: np.ndarray, size: int) -> np.ndarray:
        """Return for each of `size` places the union of the names scattered to it."""
        places, names = places.reshape(-1), names.reshape(-1)
        bounds = np.zeros(size + 1, np.int64)
        np.cumsum(np.bincount(places, minlength=size), out=bounds[1:])
        return self.groups(bounds, names[np.argsort(places, kind="stable")])

    def rows(self, names: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (indptr, indices) of the matrix whose rows are these sets."""
        names = np.ascontiguousarray(names, np.int64).reshape(-1)
        sizes = self.start[names + 1] - self.start[names]
        sizes[names == self.full] = self.n
        indptr = np.zeros(names.size + 1, np.int64)
        np.cumsum(sizes, out=indptr[1:])
        if indptr[-1] < 2**31:
            indptr = indptr.astype(np.int32)
        indices = np.empty(indptr[-1], np.int32)
        expand_sets(names, self.start, self.items, self.full, self.n, indptr, indices)
        return indptr, indices
