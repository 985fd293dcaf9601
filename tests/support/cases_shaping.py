"""Shapes, views, joining, padding, gathering, creation, and functions that write into their first
argument."""

import numpy as np
from cases import case, normal

import tapegrad.numpy as tnp

x3, x23, x33, x234 = normal(3), normal(2, 3), normal(3, 3), normal(2, 3, 4)
z23 = normal(2, 3, seed=1) + 1j * normal(2, 3, seed=2)
mask = np.array([[True, False, True], [False, True, True]])


def into(write):
    """The array that `write(a, *xs)` has altered; a starts as a copy of the first input."""

    def f(x, *rest):
        a = x.copy()  # in C order, so that the views are the same ones for any layout of x
        write(a, *rest)
        return a * a

    return f


# Every function that gives a view of a (2, 3) array.
VIEWS = {
    "reshape": lambda a: np.reshape(a, (3, 2)),
    "ravel": np.ravel,
    "T": lambda a: a.T,
    "mT": lambda a: a.mT,
    "swapaxes": lambda a: np.swapaxes(a, 0, 1),
    "moveaxis": lambda a: np.moveaxis(a, 0, 1),
    "rollaxis": lambda a: np.rollaxis(a, 1),
    "expand_dims": lambda a: np.expand_dims(a, 1),
    "squeeze": lambda a: np.squeeze(a[:1]),
    "flip": np.flip,
    "fliplr": np.fliplr,
    "rot90": np.rot90,
    "rot90 -1": lambda a: np.rot90(a, -1),
    "split": lambda a: np.split(a, 3, 1)[1],
    "hsplit": lambda a: np.hsplit(a, [1])[1],
    "unstack": lambda a: np.unstack(a)[1],
    "atleast_3d": np.atleast_3d,
    "real": np.real,
    "row of a transpose": lambda a: a.T[::-1][1:],
    "reshape of a slice": lambda a: a[:, None, 1:].reshape(2, 2, 1)[:, ::-1],
    "reshape that copies": lambda a: a.T.reshape(-1)[2:],
    "flatten": lambda a: a.flatten(),
}
READ_ONLY = {
    "broadcast_to": lambda a: np.broadcast_to(a, (4, 2, 3))[1:, :, ::2],
    "diagonal": lambda a: np.diagonal(a)[::-1],
    "diagonal of a broadcast": lambda a: np.broadcast_to(a[0], (3, 3)).diagonal(),
    "broadcast_arrays": lambda a: np.broadcast_arrays(a[:, :1], a)[0],
    "diag": lambda a: np.diag(a, 1),
}


def write_both(see):
    """The base and its view, written in turn; what each shows afterwards."""

    def f(x, y):
        a = x.copy()  # in C order, so that the views are the same ones for any layout of x
        v = see(a)
        before = v * v
        a *= y[0]
        v += before
        v[0] = v[-1] * y[1]
        a[1] *= a[0]
        return np.concatenate([(a * a).ravel(), (v * v).ravel(), before.ravel()])

    return f


def doubled_ends(line, width, axis, settings):
    """A mode of `numpy.pad`, which writes into each line."""
    before, after = width
    line[:before] = 2.0 * line[before]
    line[len(line) - after :] = line[before] * line[-after - 1]


def extremes(x, y):
    """The indices are repeated."""
    a, b = x.copy(), x.copy()
    np.maximum.at(a, ([0, 1, 1, 1], [2, 0, 0, 1]), y)
    np.minimum.at(b, [1, 1], y[:2, None])
    return np.concatenate([a, b])


def read_after(see):
    def f(x, y):
        a = x.copy()  # in C order, so that the views are the same ones for any layout of x
        v = see(a)
        before = v * v
        a *= y[0]
        a[1] = a[0] * y[1]
        return np.concatenate([(a * a).ravel(), (v * v).ravel(), before.ravel()])

    return f


CASES = [
    case("extreme_at", extremes, x23, normal(4)),
    *[
        case(f"reshape: {name} and base written", write_both(see), x23, normal(2), order=2)
        for name, see in VIEWS.items()
    ],
    *[
        case(
            f"reshape: {name} and base read",
            read_after(see),
            x23,
            normal(2),
            order=2,
            numpy_only=name == "diag",
        )
        for name, see in (VIEWS | READ_ONLY).items()
    ],
    # shapes and views
    case("reshape", lambda x: np.reshape(x, (3, -1)) ** 2, x23),
    case("reshape F", lambda x: np.reshape(x, (3, 2), order="F") ** 2, x23),
    case("reshape of a transpose", lambda x: x.T.reshape(6) ** 2, x23),
    case("ravel", lambda x: np.ravel(x) ** 3, x23),
    case("flatten", lambda x: x.flatten() ** 3, x23),
    case("transpose", lambda x: np.transpose(x, (2, 0, 1)) ** 2, x234),
    case("transpose method", lambda x: x.transpose(1, 0, 2) * x.transpose().reshape(3, 2, 4), x234),
    case("matrix_transpose", lambda x: np.matrix_transpose(x) ** 2, x234),
    case("mT", lambda x: x.mT**2, x234),
    case("swapaxes", lambda x: np.swapaxes(x, 0, -1) ** 2, x234),
    case("moveaxis", lambda x: np.moveaxis(x, (0, 1), (-1, 0)) ** 2, x234),
    case("rollaxis", lambda x: np.rollaxis(x, 2) ** 2, x234),
    case("expand_dims", lambda x: np.expand_dims(x, (0, 2)) ** 2, x23),
    case("squeeze", lambda x: np.squeeze(x[:1], 0) ** 2 + x[:1].squeeze(), x23),
    case("broadcast_to", lambda x: np.broadcast_to(x, (2, 3)) ** 2 * x, x3),
    case(
        "broadcast_arrays", lambda x, y: np.broadcast_arrays(x, y)[0] * np.broadcast_arrays(x, y)[1], x3, x23
    ),
    case("atleast_1d", lambda x: np.atleast_1d(x[0]) ** 2, x3),
    case("atleast_2d", lambda x: np.atleast_2d(x) ** 2, x3),
    case("atleast_3d", lambda x: np.atleast_3d(x) ** 2, x3),
    case("diagonal", lambda x: np.diagonal(x, 1) ** 2, x33),
    case("diagonal of a batch", lambda x: np.diagonal(x, 0, 2, 1) ** 2, x234),
    case(
        "sliding_window_view", lambda x: np.lib.stride_tricks.sliding_window_view(x, 2, 1) ** 2, normal(2, 5)
    ),
    case(
        "sliding_window_view of planes",
        lambda x: np.lib.stride_tricks.sliding_window_view(x, (2, 3)) ** 2,
        normal(3, 4),
    ),
    case("linalg_diagonal", lambda x: np.linalg.diagonal(x, offset=-1) ** 2, x33),
    case("real", lambda x: np.real(x) ** 2, z23, kinds=()),
    case("imag", lambda x: np.imag(x) ** 2, z23, kinds=()),
    case("imaginary", lambda x: (x.imag * 1j) * x, z23, kinds=()),
    case("real of real", lambda x: np.real(x) ** 2 + np.imag(x), x23),
    case("conj", lambda x: np.conj(x) * x * x, z23, kinds=()),
    case("real_if_close", lambda x: np.real_if_close(x) ** 2, x23),
    case("flip", lambda x: np.flip(x, 1) * x, x23),
    case("flip all", lambda x: np.flip(x) * x, x23),
    case("fliplr", lambda x: np.fliplr(x) * x, x23),
    case("flipud", lambda x: np.flipud(x) * x, x23),
    case("rot90", lambda x: np.rot90(x) ** 2 * np.rot90(x, 3), x23),
    case("rot90 twice", lambda x: np.rot90(x, 2) * x, x23),
    case("array_split", lambda x: np.array_split(x, 2)[0] ** 2 + np.array_split(x, 2)[1][0], x3),
    case("split", lambda x: np.split(x, [1, 2], axis=1)[1] ** 2, x23),
    case("vsplit", lambda x: np.vsplit(x, 2)[0] * np.vsplit(x, 2)[1], x23),
    case("hsplit", lambda x: np.hsplit(x, 3)[0] * np.hsplit(x, 3)[2], x23),
    case("dsplit", lambda x: np.dsplit(x, 2)[0] * np.dsplit(x, 2)[1], x234),
    case("unstack", lambda x: np.unstack(x)[0] * np.unstack(x, axis=0)[1], x23),
    case("rows", lambda x: sum(r * r[0] for r in x), x23),
    case("flat", lambda x: sum(v * v for v in x.flat), x23, order=2),
    # sums and joining
    case("sum", lambda x: np.sum(x, axis=(0, 2), keepdims=True) ** 2 * np.sum(x), x234),
    case(
        "concatenate",
        lambda x, y: np.concatenate([x, y * x, np.ones((1, 3))]) ** 2,
        x23,
        normal(2, 3, seed=5),
        numpy_only=True,
    ),
    case("concatenate axis", lambda x, y: np.concatenate((x, y), axis=-1) ** 2, x23, normal(2, 2)),
    case("concatenate None", lambda x, y: np.concatenate((x, y), axis=None) ** 2, x23, x3),
    case("stack", lambda x, y: np.stack([x, y], axis=-1) ** 2, x23, normal(2, 3, seed=5)),
    case("vstack", lambda x, y: np.vstack([x, y]) ** 2, x3, x23),
    case("hstack", lambda x, y: np.hstack([x, y]) ** 2, x23, normal(2, 1)),
    case("dstack", lambda x, y: np.dstack([x, y]) ** 2, x23, normal(2, 3, seed=5)),
    case("column_stack", lambda x, y: np.column_stack([x, y]) ** 2, x3, x33),
    case("block", lambda x, y: np.block([[x, y], [y, x]]) ** 2, x23, normal(2, 3, seed=5)),
    case("append", lambda x, y: np.append(x, y) ** 2, x23, x3),
    case(
        "meshgrid",
        lambda x, y: np.meshgrid(x, y)[0] ** 2 * np.meshgrid(x, y, indexing="xy")[1],
        x3,
        normal(2),
    ),
    case("ix_", lambda x, y: np.multiply(*np.ix_(x, y)) ** 2, x3, normal(2)),
    case(
        "meshgrid ij",
        lambda x, y: np.multiply(*np.meshgrid(x, y, indexing="ij", sparse=True)) ** 2,
        x3,
        normal(2),
    ),
    case("array", lambda x: np.array([[x[0], x[1]], [2.0, x[2]]], like=x) ** 2, x3, numpy_only=True),
    # repeating and padding
    case("repeat", lambda x: np.repeat(x, 2, axis=1) ** 2, x23),
    case("repeat by counts", lambda x: np.repeat(x, [1, 0, 2], axis=1) ** 2, x23),
    case("tile", lambda x: np.tile(x, (2, 2)) ** 2, x23),
    case("resize", lambda x: np.resize(x, (2, 4)) ** 2, x23),
    case("roll", lambda x: np.roll(x, 2) * x, x23, covers=("rolled",)),
    case("roll axis", lambda x: np.roll(x, (1, -1), (0, 1)) * x, x23),
    case("pad", lambda x: np.pad(x, ((1, 0), (0, 2))) ** 2, x23, covers=("pad_zeros", "trimmed")),
    case(
        "pad with numbers",
        lambda x, c: np.pad(x, 1, constant_values=c) ** 2,
        x23,
        np.array(1.5),
        kinds=("strided",),
        numpy_only=True,
    ),
    case("pad mean", lambda x: np.pad(x, (1, 2), mode="mean", stat_length=2) ** 2, x23, kinds=(), order=2),
    case(
        "pad ramp",
        lambda x, c: np.pad(x, (1, 2), mode="linear_ramp", end_values=c) ** 2,
        x23,
        np.array(0.7),
        kinds=(),
        order=2,
        numpy_only=True,
    ),
    case("pad odd", lambda x: np.pad(x, 1, mode="reflect", reflect_type="odd") ** 2, x23, kinds=(), order=2),
    case("pad edge", lambda x: np.pad(x, 2, mode="edge") ** 2, x23),
    case("pad reflect", lambda x: np.pad(x, ((1, 1), (2, 1)), mode="reflect") ** 2, x23),
    case("pad symmetric", lambda x: np.pad(x, 2, mode="symmetric") ** 2, x23),
    case("pad by a function", lambda x: np.pad(x, (1, 2), doubled_ends) ** 2, x23, kinds=(), numpy_only=True),
    case("pad wrap", lambda x: np.pad(x, (1, 2), mode="wrap") ** 2, x23),
    # triangles and diagonals
    case("tril", lambda x: np.tril(x, -1) ** 2, x33, covers=("lower_part",)),
    case("triu", lambda x: np.triu(x, 1) ** 2 + np.triu(x[0]), x33, covers=("upper_part",)),
    case("diag", lambda x: np.diag(x, 1) @ np.diag(x, -1), x3),
    case("diag of a matrix", lambda x: np.diag(x) ** 2, x33),
    case("diagflat", lambda x: np.diagflat(x) ** 2, x23),
    case("vander", lambda x: np.vander(x, 3), x3),
    # taking and cutting
    case("take", lambda x: np.take(x, [0, 2, 2]) ** 2, x3),
    case(
        "take axis",
        lambda x: np.take(x, np.array([[2, 0]]), axis=1) ** 2 * x.take(-1, axis=1)[:, None, None],
        x23,
    ),
    case("take wrap", lambda x: np.take(x, np.array([4, -7]), mode="wrap") ** 2, x23),
    case("compress", lambda x: np.compress([True, False, True], x, axis=1) ** 2, x23),
    case("extract", lambda x: np.extract(mask, x) ** 2, x23),
    case("delete", lambda x: np.delete(x, 1, axis=1) ** 2, x23),
    case("insert", lambda x, y: np.insert(x, 1, y, axis=1) ** 2, x23, normal(2)),
    case("insert several", lambda x, y: np.insert(x, [0, 2], y) ** 2, x3, normal(2)),
    case("trim_zeros", lambda x: np.trim_zeros(np.pad(x, 2)) ** 2, x3, covers=("without",)),
    case(
        "select", lambda x, y: np.select([x > 0.5, x < -0.2], [x**2, y * x], 2 * y), x23, normal(2, 3, seed=5)
    ),
    case(
        "choose",
        lambda x, y: np.choose(np.array([[0, 1, 0], [1, 1, 0]]), [x**2, x * y]),
        x23,
        normal(2, 3, seed=5),
        numpy_only=True,
    ),
    case(
        "piecewise", lambda x: np.piecewise(x, [x < 0, x > 0.3], [lambda v: v**2, lambda v: v**3, 7.0]), x23
    ),
    case("diff", lambda x: np.diff(x, 2) ** 2, x234),
    case(
        "diff with ends",
        lambda x, y: np.diff(x, axis=0, prepend=y[:1], append=0.5) ** 2,
        x23,
        normal(2, 3, seed=5),
    ),
    case("ediff1d", lambda x: np.ediff1d(x, to_begin=x[0, :1]) ** 2, x23),
    case("astype", lambda x: np.astype(x, np.complex128) ** 2 * (1 + 2j), x23, kinds=("strided",)),
    case("copy", lambda x: np.copy(x) * x.copy(), x23, covers=("copy_of",)),
    case("getitem", lambda x: x[1, ::2] * x[0, [0, 2]] * x[1, 0] * x[mask][:2], x23),
    case("slice_of", lambda x: np.concatenate([x, x]) ** 2, x23, covers=("embed", "packed")),
    # creation
    case("full", lambda x: np.full((2, 3), x[0], like=x) * x, x3),
    case("full_like", lambda x: np.full_like(x, x[0]) * x, x3),
    case(  # host to device and back: tests/ops/test_faces.py
        "asarray",
        lambda x: np.asarray([x[0] * 2, x[1]], like=x) ** 2,
        x3,
        numpy_only=True,
        covers=("to_device", "copy_to_host"),
    ),
    case(
        "ascontiguousarray",
        lambda x: np.ascontiguousarray([x[0] * 2, x[1]], like=x) ** 2,
        x3,
        numpy_only=True,
    ),
    case(
        "asfortranarray",
        lambda x: np.asfortranarray([[x[0] * 2, x[1]], [x[2], 1.0]], like=x) ** 2,
        x3,
        numpy_only=True,
    ),
    case("require", lambda x: np.require(x * 1, like=x) ** 2, x3, numpy_only=True),
    case("asarray_chkfinite", lambda x: x * x, x3),
    case("fromiter", lambda x: tnp.fromiter([x[0] * 2, x[1]], x.dtype) ** 2, x3, numpy_only=True),
    case("linspace", lambda x: np.linspace(x[0], x[1], 5) ** 2, x3),
    case("logspace", lambda x: np.logspace(x[0], x[1], 4, base=2.0), x3, numpy_only=True, kinds=("strided",)),
    case(
        "geomspace",
        lambda x: np.geomspace(x[:2] ** 2 + 1, x[2] ** 2 + 2, 3),
        x3,
        numpy_only=True,
        kinds=("strided",),
    ),
    case("arange", lambda x: np.arange(0.0, 3.0, like=x) * x, x3, numpy_only=True),
    # writes
    case(
        "copyto", into(lambda a, y: np.copyto(a, y**2, where=mask[0])), x3, normal(3, seed=5), numpy_only=True
    ),
    case("put", into(lambda a, y: np.put(a, [0, 4], y**2)), x23, normal(2)),
    case("place", into(lambda a, y: np.place(a, mask, y**2)), x23, normal(2), numpy_only=True),
    case("putmask", into(lambda a, y: np.putmask(a, mask, y**2)), x23, normal(2), numpy_only=True),
    case(
        "put_along_axis",
        into(lambda a, y: np.put_along_axis(a, np.array([[1], [0]]), y**2, 1)),
        x23,
        normal(2, 1),
    ),
    case("fill_diagonal", into(lambda a, y: np.fill_diagonal(a, y**2)), x33, normal(3, seed=5)),
    case(
        "fill_diagonal wrap", into(lambda a, y: np.fill_diagonal(a, y[0], wrap=True)), normal(5, 2), normal(1)
    ),
    case(
        "write through flat", into(lambda a, y: a.flat.__setitem__(slice(1, 4), y**2)), x23, normal(3, seed=5)
    ),
    case("write through rot90", into(lambda a, y: np.rot90(a).__setitem__(0, y**2)), x23, normal(2)),
    case(
        "write through real", into(lambda a, y: setattr(a, "real", y**2)), z23, normal(2, 3, seed=5), kinds=()
    ),
]
