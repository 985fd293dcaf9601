"""Programs of array operations: recorded, and replayed at other values.

Reading order: `_recorder` (the trace), `_program` (what is left of a recording, and the plainest way to run it), `_signature` (what it
holds for), `_form` (one function, its programs, and what is done where none holds), `_emitted` (a program as a text), `_blocks`
and `_interpreter` (small operations in it as one call), `_at`, `_prepare` (what users call)."""

from ._prepare import Prepared as Prepared
from ._prepare import prepare as prepare
