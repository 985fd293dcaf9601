"""What a differentiated function captured is replaced for the length of one call (core.py tells how)."""

from .builtin import BUILTINS, GlobalNames, ModuleGlobals, ModuleShadow, names_in
from .core import Shadow
from .kinds import is_foreign
from .remembered import ShadowMemory, memory_of
from .threads import THREADS, mine, protect, replay_reading, replay_writing

__all__ = [
    "BUILTINS",
    "THREADS",
    "ModuleGlobals",
    "ModuleShadow",
    "GlobalNames",
    "Shadow",
    "ShadowMemory",
    "is_foreign",
    "memory_of",
    "mine",
    "names_in",
    "protect",
    "replay_reading",
    "replay_writing",
]
