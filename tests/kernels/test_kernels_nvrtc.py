"""NVRTC, which needs no GPU: every generated kernel of the list for every architecture, within its budget of
registers."""

import pytest

pytest.importorskip("cupy", reason="NOT RUN: NVRTC, which is called through CuPy")

import _nvrtc
from _nvrtc import ARCHS, FILE, excess, figures, kernels, read, written

from tapegrad.errors import KernelError
from tapegrad.kernels.launch.cuda import cubin


@pytest.mark.parametrize(
    "arch, every", [(90, 3), *[pytest.param(a, 1, marks=pytest.mark.long) for a in ARCHS]]
)
def test_registers_and_spills_are_within_the_budget(arch, every):
    wrong = excess(arch, *read(FILE.read_text()), every)
    assert not wrong, "\n".join(
        [*wrong, "(to change the budget: PYTHONPATH=. python tests/support/_nvrtc.py)"]
    )


def test_the_budget_finds_what_it_is_for(monkeypatch):
    """A kernel that needs more, one that is new, one that is gone."""
    compiler, budget = read(FILE.read_text())
    some = kernels()[:3]
    (first, source), (second, _), (third, _) = some
    monkeypatch.setattr(_nvrtc, "kernels", lambda: some)
    of_these = {k: v for k, v in budget.items() if k[0] in (first, second, third) and k[1] == 90}
    assert excess(90, compiler, of_these) == []
    registers, spilled = figures(source, 90)
    assert "registers" in excess(90, _nvrtc.version(), {**of_these, (first, 90): (registers - 1, spilled)})[0]
    assert excess(90, "NVRTC 1.0", {**of_these, (first, 90): (registers - 8, spilled)}) == []
    assert "no budget" in excess(90, compiler, {k: v for k, v in of_these.items() if k[0] != second})[0]
    assert "no such kernel" in excess(90, compiler, {**of_these, ("gone, F0, float64", 90): (9, 0)})[0]


def test_the_budget_is_read_as_it_is_written():
    measured = {"a, F0, float64": [(40 + n, 8 * n) for n in range(len(ARCHS))]}
    compiler, budget = read(written(measured))
    assert compiler == _nvrtc.version() and budget["a, F0, float64", 80] == (41, 8)


def test_spills_are_seen():
    source = "".join(f"x{k} = x{k} * y + x{(k * 7 + 1) % 300};" for k in range(300))
    names = ", ".join(f"x{k} = in[{k} + threadIdx.x]" for k in range(300))
    total = " + ".join(f"x{k}" for k in range(300))
    text = f'extern "C" __global__ void k(const double* in, double* out, int n) {{ double {names}, y = in[n];'
    text += f"for (int i = 0; i < n; ++i) {{ {source} }} out[0] = {total}; }}"
    registers, spilled = figures(text, 90)
    assert registers > 250 and spilled > 300


def test_a_compile_error_is_shown():
    with pytest.raises(KernelError, match="(?s)sm_90.*oops"):
        cubin("__global__ void k() { oops(); }", 90)
