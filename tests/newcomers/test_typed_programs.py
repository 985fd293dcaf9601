"""The programs that mypy reads with --strict (pyproject.toml, .ci/run) also run."""

from pathlib import Path
from runpy import run_path

import pytest

HERE = Path(__file__).parent


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["typed_regression", "typed_simulation", "typed_library"])
def test_program(name):
    run_path(str(HERE / f"{name}.py"), run_name="__main__")


def test_mypy_reads_them():
    text = (HERE.parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    assert [p.name for p in HERE.glob("typed_*.py") if f"tests/newcomers/{p.name}" not in text] == []
