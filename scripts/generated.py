"""Writes generated files, or compares them: what the scripts that `make generate` runs have in common."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def write_or_check(wanted: Mapping[Path, str], *, gone: frozenset[Path] = frozenset()) -> int:
    """Write the files that differ and delete those in `gone`; return the exit code.

    With `--check` on the command line nothing is written: files that are not current are listed, and the code is 1.
    """
    stale = [path for path, text in wanted.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv:
        for path in (*stale, *sorted(gone)):
            print(f"{path.relative_to(ROOT)} is not current: run `make generate`")
        return int(bool(stale or gone))
    for path in gone:
        path.unlink()
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(wanted[path].encode("utf-8"))
        print(f"{path.relative_to(ROOT)} written")
    return 0
