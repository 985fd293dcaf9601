"""What a differentiated function captured is replaced for the length of one call (core.py tells how)."""

from .builtin import BUILTINS, Globals, names_in
from .core import MAKERS, Shadow
from .kinds import EMPTY, is_foreign

__all__ = ["BUILTINS", "EMPTY", "MAKERS", "Globals", "Shadow", "is_foreign", "names_in"]
