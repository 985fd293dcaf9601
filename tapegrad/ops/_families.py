"""All files of operations, imported for what they register."""

import importlib
import pathlib

FAMILIES = [importlib.import_module("." + f.stem, __package__) for f in sorted(pathlib.Path(__file__).parent.glob("[a-z]*.py"))]
