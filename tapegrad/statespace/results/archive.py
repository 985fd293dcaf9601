"""A fit as a file: numbers and names alone, without code, so that later versions can read it.

The file is an archive of arrays and a header in JSON. It describes model, data, parameters and the point of
the maximum. What follows from these is computed anew."""

import json
from dataclasses import fields, is_dataclass
from types import ModuleType
from typing import Any

import numpy
from numpy import ndarray

from ..._core.arrays import is_array, to_host
from ..._core.errors import ArgumentError
from ..._core.registry import load
from .._labels import Labels, is_dates

FORMAT = 1  # of the files; a new number for a change that older versions cannot read
STOP = ("u", "value", "gradient", "hessian", "method", "message", "way", "starts")
COUNTS = ("iterations", "newton_steps", "evaluations", "hessians", "products")


def save(fit, path) -> None:
    """Write the fit to a file without code, which `tapegrad.statespace.load` reads."""
    arrays: list[ndarray] = []
    header = {"format": FORMAT, "fit": _encoded(_described(fit), arrays)}
    named: dict[str, Any] = {f"a{k}": x for k, x in enumerate(arrays)}
    with open(path, "wb") as file:
        numpy.savez_compressed(file, header=numpy.array(json.dumps(header)), **named)


def read_fit(path, kinds: dict[str, type]) -> dict[str, Any]:
    """Return what `save` wrote; `kinds` are the classes of models by their names."""
    try:
        with numpy.load(path, allow_pickle=False) as file:
            header = json.loads(str(file["header"]))
            arrays = [file[f"a{k}"] for k in range(len(file.files) - 1)]
    except (OSError, ValueError, KeyError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise ArgumentError(f"load: {path} is no file that fit.save wrote: {error}") from error
    if header["format"] > FORMAT:
        raise ArgumentError(
            f"load: {path} has format {header['format']}, and this version of tapegrad reads up to "
            f"{FORMAT}; update it"
        )
    return _decoded(header["fit"], arrays, kinds)


def _described(fit) -> dict[str, Any]:
    p, stop = fit.problem, fit.stop
    return {
        "described": p.described,
        "needs": [
            name
            for name in ("build", "prior")
            if getattr(p, name) is not None and (name == "prior" or p.described is None)
        ],
        "data": p.data.host[:, 0] if p.data.labels.single else p.data.host,
        "index": p.data.labels.index,
        "columns": p.data.labels.columns,
        "parameters": p.parameters.stored(),
        "problem": {name: getattr(p, name) for name in ("joseph", "past", "begin")},
        "stop": {name: getattr(stop, name) for name in (*STOP, *COUNTS)},
        "origin": None if fit.origin is None else _described(fit.origin),
    }


def _encoded(x, arrays: list[ndarray]):
    """Return x as JSON, with its arrays by their numbers."""
    if isinstance(x, numpy.generic):
        x = x.item()
    if x is None or isinstance(x, (bool, int, float, str)):
        return x
    if isinstance(x, (list, tuple)):
        return {"tuple" if isinstance(x, tuple) else "list": [_encoded(item, arrays) for item in x]}
    if isinstance(x, dict):
        return {"dict": [[name, _encoded(item, arrays)] for name, item in x.items()]}
    if isinstance(x, ModuleType):
        return {"library": x.__name__}
    if is_array(x):
        arrays.append(to_host(x))
        return {"array": len(arrays) - 1}
    names = getattr(x, "stored", None) or ([f.name for f in fields(x)] if is_dataclass(x) else None)
    if names:
        return {
            "model": type(x).__name__,
            "fields": {name: _encoded(getattr(x, name), arrays) for name in names},
        }
    if hasattr(x, "to_numpy"):
        return {"index": _encoded(_index_parts(x), arrays)}
    raise ArgumentError(f"save: a {type(x).__name__} cannot be stored in a file")


def _index_parts(index) -> dict[str, Any]:
    """Return an index of pandas in plain parts."""
    parts = {"name": None if index.name is None else str(index.name), "kind": type(index).__name__}
    if is_dates(index):
        zone = getattr(index, "tz", None)
        return parts | {
            "numbers": index.asi8,
            "freq": index.freqstr,
            "unit": getattr(index, "unit", None),
            "zone": zone and str(zone),
        }
    numbers = index.to_numpy()
    return parts | (
        {"numbers": numbers} if numbers.dtype.kind in "iuf" else {"texts": [str(label) for label in index]}
    )


def _index_of(parts: dict[str, Any]):
    pandas, name = load("pandas"), parts["name"]
    if parts["kind"] == "PeriodIndex":
        return pandas.PeriodIndex.from_ordinals(parts["numbers"], freq=parts["freq"], name=name)
    if parts["kind"] in ("DatetimeIndex", "TimedeltaIndex"):
        letter = "M" if parts["kind"] == "DatetimeIndex" else "m"
        index = getattr(pandas, parts["kind"])(
            parts["numbers"].view(f"{letter}8[{parts['unit']}]"), name=name
        )
        index = index.tz_localize("UTC").tz_convert(parts["zone"]) if parts["zone"] else index
        return type(index)(index, freq=parts["freq"], name=name)
    if parts["kind"] == "RangeIndex" and len(parts["numbers"]) > 1:
        first, second, *_ = parts["numbers"].tolist()
        return pandas.RangeIndex(
            first, first + (second - first) * len(parts["numbers"]), second - first, name=name
        )
    return pandas.Index(parts["numbers"] if "numbers" in parts else parts["texts"], name=name)


def _decoded(x, arrays: list[ndarray], kinds: dict[str, type]):
    if not isinstance(x, dict):
        return x

    def inner(item):
        return _decoded(item, arrays, kinds)

    if "model" in x:
        if x["model"] not in kinds:
            raise ArgumentError(
                f"load: the file has a model {x['model']!r}, which this version does not know"
            )
        return kinds[x["model"]](**{name: inner(item) for name, item in x["fields"].items()})
    ((form, content),) = x.items()
    if form == "array":
        return arrays[content]
    if form == "library":
        return numpy  # a fit of data on a device comes back on the host
    if form == "index":
        return _index_of(inner(content))
    if form == "dict":
        return {name: inner(item) for name, item in content}
    return tuple(map(inner, content)) if form == "tuple" else list(map(inner, content))


def stored_frame(saved: dict[str, Any]):
    """Return the data of a saved fit in the form that they had."""
    values = saved["data"]
    columns = saved["columns"][0] if values.ndim == 1 else saved["columns"]
    return Labels(saved["index"], tuple(saved["columns"]), values.ndim == 1).frame(values, None, columns)
