"""The samples of PyTorch's own tests (OpInfo): gradients of the NumPy references of its operations, compared
with PyTorch's gradients of the operations.

A reference counts as the user's code: its functions are copied out of PyTorch's module, unchanged."""

import types
import warnings

import numpy as np
import pytest

import tapegrad as tg

REFUSED = {  # in one sample or more
    "nn.functional.conv_transpose1d": "the reference calls PyTorch",
    "nn.functional.conv_transpose2d": "the reference calls PyTorch",
    "nn.functional.conv_transpose3d": "the reference calls PyTorch",
    "nn.functional.pdist": "a Hamming distance: it compares truths",
}
SAMPLES = 6  # of each operation
RIGHT = 556, 139  # samples, operations


def of_user(f):
    """A function of PyTorch's test modules as one of the user's, with those that it calls."""
    if type(f) is not types.FunctionType:
        return f
    space = {**f.__globals__, "__name__": "references"}
    cells = f.__closure__ and tuple([types.CellType(of_user(c.cell_contents)) for c in f.__closure__])
    g = types.FunctionType(f.__code__, space, f.__name__, f.__defaults__, cells)
    g.__kwdefaults__ = f.__kwdefaults__
    return g


def arrays(tree, torch):
    if isinstance(tree, torch.Tensor):
        return tree.detach().numpy().copy()
    if isinstance(tree, dict):
        return {k: arrays(v, torch) for k, v in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)([arrays(v, torch) for v in tree])
    return np.float64 if tree is torch.float64 else tree


def comparison(op, sample, torch):
    """(function, point, gradient by PyTorch) of a sample; None where the reference gives something else, or
    nothing has a derivative."""
    y = op.op(sample.input, *sample.args, **sample.kwargs)
    if not isinstance(y, torch.Tensor) or y.dtype != torch.float64 or not y.requires_grad:
        return None
    weights = torch.cos(torch.arange(1.0, 1.0 + y.numel(), dtype=torch.float64)).reshape(y.shape)
    (wanted,) = torch.autograd.grad((y * weights).sum(), sample.input, allow_unused=True)
    if wanted is None:
        return None
    x, args, kwargs = [arrays(v, torch) for v in (sample.input, sample.args, sample.kwargs)]
    weights, reference = weights.numpy(), of_user(op.ref)
    plain = reference(x.copy(), *args, **kwargs)
    if np.shape(plain) != tuple(y.shape) or not np.allclose(plain, y.detach().numpy(), equal_nan=True):
        return None
    return lambda x: np.sum(reference(x, *args, **kwargs) * weights), x, wanted.numpy()


def comparisons(torch, operations):
    """(name, function, point, gradient) of all samples with a NumPy reference."""
    torch.manual_seed(0)
    for op in operations:
        if (
            not callable(getattr(op, "ref", None))
            or torch.float64 not in op.dtypes
            or not op.supports_autograd
        ):
            continue
        try:
            samples = list(op.sample_inputs("cpu", torch.float64, requires_grad=True))[:SAMPLES]
        except Exception:
            continue  # the operation needs what this machine has not
        for sample in samples:
            try:
                found = comparison(op, sample, torch) if isinstance(sample.input, torch.Tensor) else None
            except Exception:
                continue  # the reference does not take the sample
            if found is not None:
                yield op.name, *found


@pytest.mark.wild
def test_gradients_of_references():
    torch = pytest.importorskip("torch")
    pytest.importorskip("expecttest")
    with warnings.catch_warnings(action="ignore"):
        from torch.testing._internal.common_methods_invocations import op_db

        right, refused, wrong = [], set(), {}
        for name, f, x, wanted in comparisons(torch, op_db):
            try:
                found = np.asarray(tg.grad(f)(np.asarray(x, float)))
            except (TypeError, tg.errors.TapegradError):
                refused.add(name)
                continue
            finite = np.isfinite(wanted)
            if np.allclose(found[finite], wanted[finite], rtol=1e-6, atol=1e-8):
                right.append(name)
            else:
                wrong[name] = found, wanted
    assert wrong == {} and refused <= set(REFUSED)
    assert len(right) >= RIGHT[0] and len(set(right)) >= RIGHT[1]
