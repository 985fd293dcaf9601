"""Runs one of autograd's examples, by autograd itself or by tapegrad under autograd's names, and writes what its
first derivatives are: `python autograd_example.py ENGINE SOURCES EXAMPLE RESULT`.

The examples are unchanged.  Pictures are not shown, images of digits are made up, and the run ends after `MOST`
derivatives or `SECONDS` seconds."""

import importlib.util
import os
import pickle
import signal
import sys
import types
import warnings
from pathlib import Path

MOST, SECONDS = 12, 40
os.environ["MPLBACKEND"] = "agg"


class Finished(BaseException):
    """The run has seen enough."""


def finish(*_):
    raise Finished


def numbers_of(tree):
    """The arrays of a result; None if it has anything else, such as a value of an outer derivative."""
    import numpy as np

    if isinstance(tree, dict):
        tree = [tree[k] for k in sorted(tree)]
    if isinstance(tree, (tuple, list)):
        parts = [numbers_of(x) for x in tree]
        return None if any(p is None for p in parts) else [a for p in parts for a in p]
    plain = type(tree) is np.ndarray or isinstance(tree, (float, int, complex, np.generic))
    return [np.array(tree)] if plain else None


class Found(list):
    """What the derivatives were, and how many of them are being computed."""

    depth = 0


def recorded(transform, found):
    """The transform, whose derivatives are kept in `found`, but for those of derivatives."""

    def of_function(f, *options, **named):
        derivative = transform(f, *options, **named)

        def of_values(*args, **kwargs):
            found.depth += 1
            result = derivative(*args, **kwargs)
            found.depth -= 1
            numbers = None if found.depth else numbers_of(result)
            if numbers is not None:
                found.append(numbers)
                if len(found) == MOST:
                    finish()
            return result

        return of_values

    return of_function


def digits():
    """In place of the images that the examples download."""
    import numpy as np

    rng = np.random.RandomState(1)
    images = [(rng.uniform(size=(n, 28, 28)) * 255).astype(np.uint8) for n in (600, 100)]
    labels = [rng.randint(0, 10, n).astype(np.uint8) for n in (600, 100)]
    return images[0], labels[0], images[1], labels[1]


def module_from(name, path):
    """A module of autograd in pure Python, over the names of tapegrad."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def names_of(engine, sources):
    """The module `autograd` of this engine."""
    if engine == "autograd":
        sys.path.insert(0, str(sources))
        import autograd

        return autograd
    import autograd_names

    misc = sys.modules["autograd.misc"]
    misc.__path__ = []
    flatten = misc.flatten
    autograd_names.make_module("autograd.misc.flatten", flatten=flatten, flatten_func=flatten_func)
    misc.flatten = flatten
    autograd_names.make_module("autograd.misc.fixed_points", fixed_point=fixed_point)
    module_from("autograd.misc.optimizers", sources / "autograd" / "misc" / "optimizers.py")
    extend = sys.modules["autograd.extend"]
    declared = vars(extend).copy()
    vars(extend).update(
        primitive=lambda f: f, defvjp=lambda *_: None
    )  # `convolve(axes=)` has no rule: it is followed
    own = module_from("autograd.scipy.signal", sources / "autograd" / "scipy" / "signal.py")
    vars(extend).update(declared)
    sys.modules["autograd"].scipy = types.SimpleNamespace(**vars(sys.modules["scipy"]) | {"signal": own})
    return sys.modules["autograd"]


def fixed_point(f, a, start, distance, tol):
    """autograd's: x = f(a)(x), iterated until neighbours are close."""
    import tapegrad as tg

    def iterated(step, x, a):
        new = step(x, a)
        while distance(x, new) > tol:
            x, new = new, step(new, a)
        return new

    return tg.implicit.fixed_point(lambda x, a: f(a)(x), iterated, tol=10 * tol)(start, a)


def flatten_func(f, example):
    flatten = sys.modules["autograd.misc.flatten"].flatten
    vector, unflatten = flatten(example)
    return (lambda x, *args: flatten(f(unflatten(x), *args))[0]), unflatten, vector


def run(engine, sources, example):
    """What the example's derivatives were, and the error that ended it."""
    autograd = names_of(engine, sources)
    found = Found()
    for name in ("grad", "value_and_grad", "elementwise_grad", "hessian_vector_product", "jacobian"):
        setattr(autograd, name, recorded(getattr(autograd, name), found))
    path = sources / "examples" / example
    sys.path.insert(0, str(path.parent))
    sys.path.insert(0, str(sources / "examples"))
    sys.modules["data_mnist"] = types.SimpleNamespace(mnist=digits)
    import numpy as np

    np.random.seed(0)
    sys.modules["__main__"] = types.ModuleType("__main__")
    space = vars(sys.modules["__main__"])
    space["__file__"] = str(path)
    signal.signal(signal.SIGALRM, finish)
    signal.alarm(SECONDS)
    error = ""
    try:
        text = path.read_text(encoding="utf-8")
        text = text.replace("distance, 1e-4", "distance, 1e-10")  # also of the iteration for the derivative
        text = text.replace("n_data / 2", "n_data // 2")  # a count
        text = text.replace("RandomState()", "RandomState(1)")
        text = text.replace("rtol=0.01", "rtol=1e-11, atol=1e-11")  # else autograd's adjoint is rough
        exec(compile(text, str(path), "exec"), space)
    except Finished:
        pass
    except Exception as e:
        error = f"{type(e).__name__}: {e}"
    signal.alarm(0)
    return list(found), error


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    engine, sources, example, result = sys.argv[1:]
    Path(result).write_bytes(pickle.dumps(run(engine, Path(sources), example)))
