"""Programs of array operations: recorded, and replayed at other values.

Reading order: `record.recorder` (the trace), `program` (what is left of a recording, and the plainest way to
run it), `signature` (what it holds for), `form` (one function, its programs, and what is done where none
holds), `emitted` (a program as a text), `interpreter.blocks` and `interpreter.machine_code` (small operations
in it as one call), `partial_evaluation`, `prepared` (what users call)."""

from .prepared import Prepared as Prepared
from .prepared import prepare as prepare
