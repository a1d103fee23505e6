"""The process of another trainer: `python start.py ENTRY PLAN.json WORDS…`, run by that trainer's Python.

Started as a script by path, because the trainer's environment may not contain vramwise. The package that contains this
file is then used, and nothing else of our environment.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Start the trainer with the guard and return the exit code."""
    as_package()
    from vramwise.training.hosted.entries import enter

    return enter(arguments)


def as_package() -> None:
    """Make `vramwise` refer to the package that this script is part of."""
    folder = Path(__file__).resolve().parent
    # Python adds the script's folder: our modules must not be importable as packages
    sys.path[:] = [place for place in sys.path if not place or Path(place).resolve() != folder]
    if "vramwise" in sys.modules:
        return
    package = folder.parent.parent
    spec = importlib.util.spec_from_file_location(
        "vramwise", package / "__init__.py", submodule_search_locations=[str(package)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["vramwise"] = module
    spec.loader.exec_module(module)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
