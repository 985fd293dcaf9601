"""What a differentiated function captured is replaced for the length of one call (core.py tells how)."""

from .core import MAKERS, Shadow
from .functions import Globals
from .kinds import EMPTY, is_foreign

__all__ = ["EMPTY", "MAKERS", "Globals", "Shadow", "is_foreign"]
