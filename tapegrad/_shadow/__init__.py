"""What a differentiated function captured is replaced for the length of one call (core.py tells how)."""

from .core import MAKERS, Shadow
from .functions import Globals
from .kinds import EMPTY, is_foreign
from .routes import names_in
from .threads import THREADS, mine, protect

__all__ = ["EMPTY", "MAKERS", "THREADS", "Globals", "Shadow", "is_foreign", "mine", "names_in", "protect"]
