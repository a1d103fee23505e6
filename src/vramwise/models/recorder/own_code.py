"""Import the classes that `auto_map` names from the model's own folder, for models that ship their own code.

Only the worker calls this, after the kernel has locked the process (`sandbox.lock`). Nothing is copied or downloaded:
names of other repositories (`owner/name--module.Class`) are refused.
"""

from __future__ import annotations

import importlib
import re
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PACKAGE = "vramwise_model"
_NAME = re.compile(r"(\w+(?:\.\w+)*)\.(\w+)", re.ASCII)


def class_of(config: Mapping[str, Any], auto: str, folder: Path) -> Any:
    """Return the class that `auto_map` names for an Auto class. Raises LookupError if it names none in this folder."""
    named = config.get("auto_map", {}).get(auto)
    found = _NAME.fullmatch(named) if isinstance(named, str) else None
    if found is None:
        raise LookupError(f"auto_map names no {auto} in the model's own folder")
    if PACKAGE not in sys.modules:
        sys.dont_write_bytecode = True
        package = types.ModuleType(PACKAGE)
        package.__path__ = [str(folder)]
        sys.modules[PACKAGE] = package
    return getattr(importlib.import_module(f"{PACKAGE}.{found[1]}"), found[2])
