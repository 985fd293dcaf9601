"""What a differentiated function captured is replaced for the length of one call (core.py tells how)."""

from .builtin import BUILTINS, Globals, Module, Names, names_in
from .core import MAKERS, Shadow
from .kinds import is_foreign
from .threads import THREADS, mine, protect

__all__ = ["BUILTINS", "MAKERS", "THREADS", "Globals", "Module", "Names", "Shadow", "is_foreign", "mine", "names_in", "protect"]
