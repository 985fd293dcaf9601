"""Classes of one's own as trees: registered ones, those of attrs, dataclasses."""

import dataclasses

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.errors import ArgumentError

pytestmark = pytest.mark.smoke


class Layer:
    """Nothing tells from outside what it holds."""

    def __init__(self, weights, bias, name):
        self.held, self.name = {"w": weights, "b": bias}, name

    def __call__(self, x):
        return np.tanh(x @ self.held["w"] + self.held["b"])


tg.register_tree(Layer, lambda m: ((m.held["w"], m.held["b"]), m.name), lambda name, held: Layer(*held, name))


class Attribute:
    def __init__(self, name):
        self.name = name


class Attrs:
    """What attrs makes of a class, as far as it can be told from outside: `__attrs_attrs__`, and here slots
    and no setting."""

    __slots__ = ("scale", "shift", "label")
    __attrs_attrs__ = (Attribute("scale"), Attribute("shift"), Attribute("label"))

    def __init__(self, scale, shift, label):
        for name, value in zip(self.__slots__, (scale, shift, label), strict=True):
            object.__setattr__(self, name, value)

    def __setattr__(self, name, value):
        raise AttributeError("frozen")


@dataclasses.dataclass(frozen=True, slots=True)
class Data:
    scale: object
    shift: object
    label: str = "d"


RNG = np.random.default_rng(0)
W, B, X = RNG.standard_normal((3, 2)), RNG.standard_normal(2), RNG.standard_normal((5, 3))


def loss(layer):
    return (layer(X) ** 2).sum()


def by_hand(w, b):
    return (np.tanh(X @ w + b) ** 2).sum()


def test_a_registered_class_in_every_transform():
    layer, direction = Layer(W, B, "first"), Layer(np.ones((3, 2)), np.ones(2), "first")
    gw, gb = tg.grad(by_hand, (0, 1))(W, B)
    for g in (
        tg.grad(loss)(layer),
        tg.value_and_grad(loss)(layer)[1],
        tg.vjp(loss, layer)[1](1.0),
        tg.prepare(loss, layer).grad(layer),
    ):
        assert type(g) is Layer and g.name == "first"
        np.testing.assert_allclose(g.held["w"], gw, rtol=1e-12)
        np.testing.assert_allclose(g.held["b"], gb, rtol=1e-12)
    slope = tg.jvp(loss, (layer,), (direction,))[1]
    np.testing.assert_allclose(slope, gw.sum() + gb.sum(), rtol=1e-12)
    hv = tg.hvp(loss, layer, direction)
    plain = tg.jvp(lambda w, b: tg.grad(by_hand, (0, 1))(w, b), (W, B), (np.ones((3, 2)), np.ones(2)))[1]
    np.testing.assert_allclose(hv.held["w"], plain[0], rtol=1e-10)
    flat, restore = tg.ravel(layer)
    assert flat.shape == (8,) and type(restore(flat)) is Layer
    stacks = Layer(np.stack([W, 2 * W]), np.stack([B, B]), "first")
    np.testing.assert_allclose(tg.vmap(loss)(stacks), [by_hand(W, B), by_hand(2 * W, B)], rtol=1e-12)


def test_as_a_result_and_within_other_trees():
    y, slope = tg.jvp(lambda p: {"out": Layer(p[0] * 2, p[1], "y")}, ((W, B),), ((W, B),))
    assert type(y["out"]) is Layer and slope["out"].name == "y"
    np.testing.assert_allclose(slope["out"].held["w"], 2 * W)
    g = tg.grad(lambda p: sum(loss(m) for m in p["layers"]))(
        {"layers": [Layer(W, B, "a"), Layer(2 * W, B, "b")]}
    )
    assert [m.name for m in g["layers"]] == ["a", "b"]


def test_what_has_no_derivative_is_none():
    g = tg.grad(lambda m: (m.held["w"] * m.held["b"]).sum())(Layer(W, 3, "n"))
    assert g.held["b"] is None
    np.testing.assert_allclose(g.held["w"], 3 * np.ones((3, 2)))


@pytest.mark.parametrize("kind", [Attrs, Data])
def test_attrs_and_dataclasses_by_themselves(kind, xp):
    p = kind(xp.asarray(B), 2.0, "n")
    value, g = tg.value_and_grad(lambda p: (p.scale**3).sum() * p.shift)(p)
    assert type(g) is kind and g.label is None
    np.testing.assert_allclose(_host(g.scale), 6 * B**2)
    np.testing.assert_allclose(_host(g.shift), (B**3).sum())
    assert p.shift == 2.0 and type(p.scale) is xp.ndarray


def _host(a):
    return a.get() if hasattr(a, "get") else a


def test_the_callers_object_is_left_alone():
    layer = Layer(W.copy(), B.copy(), "n")

    def writes(m):
        m.held["w"][0] = m.held["b"][0]
        m.name = "other"
        return (m.held["w"] ** 2).sum()

    g = tg.grad(writes)(layer)
    assert (layer.held["w"] == W).all() and layer.name == "n" and (g.held["w"][0] == 0).all()


def test_bad_input():
    same = lambda x: x
    for cls in (list, dict, np.ndarray, float, tg.Variable, 3, Layer(W, B, "x")):
        with pytest.raises(ArgumentError, match="^register_tree: "):
            tg.register_tree(cls, same, same)
    with pytest.raises(ArgumentError, match="two functions"):
        tg.register_tree(Attribute, None, same)

    class Wrong:
        pass

    tg.register_tree(Wrong, lambda x: 3, same)
    with pytest.raises(
        ArgumentError, match=r"register_tree\(Wrong\): flatten\(x\) must give \(members, rest\)"
    ):
        tg.grad(lambda x: x)(Wrong())
