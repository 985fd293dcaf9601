"""The names of autograd, mapped to those of tapegrad, NumPy and SciPy: a plugin for pytest that runs autograd's
own tests.

`check_grads` has the differences and tolerances of autograd's own: one random direction, step 1e-6.  What
autograd adds to NumPy or SciPy (`make_diagonal`, `convolve(axes=)`), and the machinery of its boxes and vector
spaces, has no counterpart here."""

import functools
import itertools
import sys
import types

import numpy as np
import scipy.integrate
import scipy.linalg
import scipy.signal
import scipy.special
import scipy.stats

import tapegrad as tg

EPS = CLOSE = 1e-6
rng = np.random.default_rng(0)


def pytest_runtest_setup(item):
    rng.bit_generator.state = np.random.default_rng(0).bit_generator.state


def scalar_close(a, b):
    return abs(a - b) < CLOSE or abs(a - b) / abs(a + b) < CLOSE


def flat(tree):
    """The real numbers in a tree; a complex number is two."""
    arrays = [np.ravel(np.asarray(x)) for x in tg.tree.flatten(tree)[0]]
    parts = [part for a in arrays for part in ((a.real, a.imag) if a.dtype.kind == "c" else (a,))]
    return np.concatenate([np.zeros(0), *parts])


def random_like(tree):
    def leaf(x):
        v = rng.standard_normal(np.shape(x))
        return v + 1j * rng.standard_normal(np.shape(x)) if np.iscomplexobj(x) else v

    return tg.tree.map(leaf, tree)


def of_floats(tree):
    """The tree, its whole numbers as floats: autograd differentiates integers."""
    return tg.tree.map(lambda x: x * 1.0 if np.asarray(x).dtype.kind in "iub" else x, tree)


def of_one(f, argnum, args, kwargs):
    """(g, x): f as a function of the arguments with the numbers argnum, a tuple of them if it is one."""
    several = isinstance(argnum, (tuple, list))
    places = tuple(argnum) if several else (argnum,)

    @functools.wraps(f, updated=())
    def g(x):
        full = list(args)
        for k, v in zip(places, x if several else (x,), strict=True):
            full[k] = v
        return f(*full, **kwargs)

    return g, of_floats(tuple(args[k] for k in places) if several else args[argnum])


def nary(transform):
    """A transform of a function of one argument as autograd spells it: `transform(f, argnum)(*args)`."""

    @functools.wraps(transform)
    def of_function(f, argnum=0, *options, **named):
        def of_values(*args, **kwargs):
            return transform(*of_one(f, argnum, args, kwargs), *options, **named)

        return of_values

    return of_function


def number(f):
    """f; a result of one element is a number, as for autograd."""
    return lambda x: np.reshape(y, ()) if np.size(y := f(x)) == 1 and np.ndim(y) else y


def check_equivalent(a, b):
    assert np.shape(flat(a)) == np.shape(flat(b))
    v = rng.standard_normal(flat(a).shape)
    assert scalar_close(np.sum(flat(a) * v), np.sum(flat(b) * v)), f"{a} and {b}"


@nary
def check_grads(f, x, modes=("fwd", "rev"), order=2, name=None):
    name = name or getattr(f, "__name__", "f")
    v = random_like(x)
    step = [tg.tree.map(lambda a, b, h=h: a + h * b, x, v) for h in (EPS / 2, -EPS / 2)]
    slope = (flat(f(step[0])) - flat(f(step[1]))) / EPS
    if "fwd" in modes:
        check_equivalent(flat(tg.jvp(f, (x,), (v,))[1]), slope)
        if order > 1:
            check_grads(lambda x, v: tg.jvp(f, (x,), (v,))[1], (0, 1), modes, order - 1, f"jvp_{name}")(x, v)
    if "rev" in modes:
        y, pull = tg.vjp(f, x)
        w = random_like(y)
        same = scalar_close(np.sum(flat(pull(w)) * flat(v)), np.sum(flat(w) * slope))
        assert same, f"Derivative (VJP) check of {name} failed"
        if order > 1:
            check_grads(lambda x, w: tg.vjp(f, x)[1](w), (0, 1), modes, order - 1, f"vjp_{name}")(x, w)


def combo_check(f, *options, **named):
    def of_choices(*args, **kwargs):
        for chosen in itertools.product(*args):
            for values in itertools.product(*kwargs.values()):
                check_grads(f, *options, **named)(*chosen, **dict(zip(kwargs, values, strict=True)))

    return of_choices


@nary
def grad(f, x):
    return tg.grad(number(f))(x)


@nary
def value_and_grad(f, x):
    return tg.value_and_grad(number(f))(x)


@nary
def grad_and_aux(f, x):
    return tg.grad(f, has_aux=True)(x)


@nary
def elementwise_grad(f, x):
    return tg.grad(lambda x: np.sum(f(x)))(x)


@nary
def holomorphic_grad(f, x):
    return np.conj(tg.grad(lambda x: np.real(f(x)))(x))  # the gradient here is the conjugate


@nary
def deriv(f, x):
    return tg.jvp(f, (x,), (tg.tree.map(np.ones_like, x),))[1]


@nary
def jacobian(f, x):
    return tg.jacobian(f)(x)


@nary
def hessian(f, x):
    return tg.jacobian(tg.jacobian(f))(x)


@nary
def make_vjp(f, x):
    y, pull = tg.vjp(f, x)
    return pull, y


@nary
def make_jvp(f, x):
    return lambda v: tg.jvp(f, (x,), (v,))


@nary
def make_hvp(f, x):
    return (lambda v: tg.hvp(f, x, v)), tg.grad(f)(x)


def make_ggnvp(f, g=lambda y: np.sum(y**2) / 2):
    def product(x, v):
        y, moved = tg.jvp(f, (x,), (v,))
        return tg.vjp(f, x)[1](tg.hvp(g, y, moved))

    return lambda x: lambda v: product(x, v)


def hessian_tensor_product(f, argnum=0):
    return lambda x, v: tg.hvp(number(f), x, v)


def tensor_jacobian_product(f, argnum=0):
    return lambda x, w: np.tensordot(w, tg.jacobian(f)(x), np.ndim(w))


def make_module(name, **members):
    module = sys.modules[name] = types.ModuleType(name)
    module.__dict__.update(members)
    parent, _, last = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], last, module)
    return module


def flatten(tree):
    """The numbers of a tree as one array, those of a dict in the order of its keys, and the way back."""
    tree = {k: tree[k] for k in sorted(tree)} if isinstance(tree, dict) else tree
    leaves, rebuilt = tg.tree.flatten(tree)
    ends = np.cumsum([0, *[np.size(x) for x in leaves]])

    def unflatten(vector):
        spans = zip(leaves, ends, ends[1:], strict=False)
        return rebuilt([np.reshape(vector[a:b], np.shape(x)) for x, a, b in spans])

    return np.concatenate([np.zeros(0), *[np.ravel(x) for x in leaves]]), unflatten


class Primitive:
    """A function; `defvjp` gives it a rule."""

    def __init__(self, f):
        self.f = self.ruled = f
        self.__name__ = getattr(f, "__name__", "f")

    def __call__(self, *args):
        return self.ruled(*args)


def defvjp(f, *makers):
    f.ruled = tg.rule(f.f, vjp=lambda g, out, *args: tuple(m(out, *args)(g) for m in makers))


def machinery(*args, **kwargs):
    raise NotImplementedError("autograd's machinery: it has no counterpart")


TRANSFORMS = {
    f.__name__: f
    for f in (
        grad,
        value_and_grad,
        grad_and_aux,
        elementwise_grad,
        holomorphic_grad,
        deriv,
        jacobian,
        hessian,
        make_vjp,
        make_jvp,
        make_hvp,
        make_ggnvp,
        hessian_tensor_product,
        tensor_jacobian_product,
    )  # fmt: skip
}
TYPES = {"isinstance": isinstance, "tuple": tuple, "list": list, "dict": dict}
make_module(
    "autograd",
    **TRANSFORMS,
    **TYPES,
    hessian_vector_product=hessian_tensor_product,
    vector_jacobian_product=tensor_jacobian_product,
    checkpoint=tg.checkpoint,
    numpy=np,
    scipy=scipy,
    __path__=[],
)
make_module("autograd.builtins", **TYPES)
make_module("autograd.differential_operators", **TRANSFORMS, make_jvp_reversemode=make_jvp)
make_module(
    "autograd.test_util",
    check_grads=check_grads,
    check_equivalent=check_equivalent,
    combo_check=combo_check,
    scalar_close=scalar_close,
)
make_module(
    "autograd.core",
    make_vjp=lambda f, x: make_vjp(f)(x),
    primitive=Primitive,
    primitive_vjps={},
    vspace=machinery,
)
make_module(
    "autograd.util", quick_grad_check=lambda f, x, args: check_grads(f, modes=["rev"], order=1)(x, *args)
)
make_module("autograd.extend", primitive=Primitive, defvjp=defvjp)
make_module("autograd.tracer", primitive=Primitive, isbox=lambda x: type(x).__module__.startswith("tapegrad"))
make_module("autograd.wrap_util", unary_to_nary=nary, wraps=functools.wraps)
make_module("autograd.misc", flatten=flatten, const_graph=machinery)
for library in (np, scipy):
    for name in ("", "random", "linalg", "fft", "special", "stats", "signal", "integrate"):
        module = sys.modules.get(f"{library.__name__}.{name}".rstrip("."))
        if module is not None:
            sys.modules[f"autograd.{module.__name__}"] = module
for law in ("norm", "t", "beta", "gamma", "poisson", "chi2", "dirichlet", "multivariate_normal"):
    sys.modules[f"autograd.scipy.stats.{law}"] = getattr(scipy.stats, law)
