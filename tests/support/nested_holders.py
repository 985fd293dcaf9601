"""A value behind holders of random kinds, each in the one before: what a function reads, or keeps, by ways
that no list names."""

import collections
import functools
import types

import numpy as np


class Plain:
    pass


class Slotted:
    __slots__ = ("held",)


class Computed:
    def __init__(self, held):
        self._held = held

    @property
    def held(self):
        return self._held

    def read(self):
        return self._held

    def __call__(self):
        return self._held


def attribute(v):
    o = Plain()
    o.held = v
    return lambda: o.held


def slot(v):
    o = Slotted()
    o.held = v
    return lambda: o.held


def class_attribute(v):
    kind = type("Kind", (), {"held": [v]})
    return lambda: kind.held[0]


def object_array(v):
    a = np.empty(2, object)
    a[1] = [v]
    return lambda: a[1][0]


def generator(v):
    def forever():
        while True:
            yield v

    made = forever()
    return lambda: next(made)


def helper(v):
    def inner():
        return v

    def outer():
        return inner()

    return lambda: outer()


def default(v):
    return lambda held=v: held


def keyword(v):
    return lambda *, held=v: held


def partial(v):
    return functools.partial(lambda held: held, v)


def long_list(v):
    many = [0.0] * 150 + [v]
    return lambda: many[-1]


def namespace(v):
    space = types.SimpleNamespace(held=v)
    return lambda: space.held


def computed(v):
    o = Computed(v)
    return lambda: o.held


HOLDERS = {
    "attribute": attribute,
    "slot": slot,
    "class attribute": class_attribute,
    "object array": object_array,
    "generator": generator,
    "helper": helper,
    "default": default,
    "keyword": keyword,
    "partial": partial,
    "long list": long_list,
    "deque": lambda v: lambda d=collections.deque([v]): d[0],
    "dict": lambda v: lambda d={"a": {"b": v}}: d["a"]["b"],
    "tuple": lambda v: lambda d=((v,), 1): d[0][0],
    "namespace": namespace,
    "property": computed,
    "bound method": lambda v: Computed(v).read,
    "callable object": Computed,
    "method of a list": lambda v: functools.partial([v].__getitem__, 0),
    "cache": lambda v: functools.lru_cache(lambda: v),
    "chain": lambda v: lambda d=collections.ChainMap({}, {"a": v}): d["a"],
}


def nested(v, r):
    """(the kinds, a function that gives v)"""
    kinds, read = [], None
    for _ in range(r.integers(1, 4)):
        kinds.append([*HOLDERS][r.integers(len(HOLDERS))])
        read = HOLDERS[kinds[-1]](v if read is None else read)
    return kinds, functools.reduce(lambda f, _: lambda: f()(), kinds[1:], read)
