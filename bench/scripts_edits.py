"""`fix` and `fit --write` on copies of all scripts and notebooks of a folder: what changes, is the file still whole?

Usage: python bench/scripts_edits.py [FOLDER] [--gpu CARD] [--every N] [--verb fix|fit]

A changed script must parse. A changed notebook must be valid JSON whose outputs, metadata, ids and other cells are what
they were, in the same layout. Exit 1 where one is not.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

DEFAULT = Path(__file__).parent.parent.parent / "shared" / "corpus" / "scripts"
COMMANDS = {
    "fix": ["fix", "--unsafe-fixes"],
    "fit": ["fit", "--write", "--offline", "--allow", "qlora"],
}


def without_sources(notebook: dict[str, Any]) -> dict[str, Any]:
    """A notebook with the sources of its code cells taken out."""
    cells = [
        {key: value for key, value in cell.items() if key != "source" or cell.get("cell_type") != "code"}
        for cell in notebook["cells"]
    ]
    return {**notebook, "cells": cells}


def faults(before: bytes, after: bytes, name: str) -> list[str]:
    """What is wrong with a changed file."""
    if name.endswith(".py"):
        try:
            ast.parse(after)
        except SyntaxError as error:
            return [f"does not parse: {error}"]
        return []
    try:
        old, new = json.loads(before), json.loads(after)
    except ValueError as error:
        return [f"is no JSON: {error}"]
    found = [] if without_sources(old) == without_sources(new) else ["changed outside of code cells' sources"]
    lines = [len(text.splitlines()) for text in (before.decode(), after.decode())]
    if abs(lines[0] - lines[1]) > 50:
        found.append("changed its layout")
    return found


def changed_lines(before: bytes, after: bytes) -> list[str]:
    """The lines that a change takes out or adds."""
    both = [text.decode("utf-8", "replace").splitlines() for text in (before, after)]
    found = difflib.unified_diff(*both, lineterm="", n=0)
    return [line for line in found if line[:1] in "+-" and line[:3] not in ("+++", "---")]


def main() -> int:
    """Print what was changed and what is wrong; exit 1 where something is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", default=str(DEFAULT))
    parser.add_argument("--gpu", default="rtx-4090")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--verb", choices=COMMANDS, default="fix")
    asked = parser.parse_args()
    counts: Counter[str] = Counter()
    broken = 0
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(Path(asked.folder).iterdir())[:: asked.every]:
            copy = Path(folder) / path.name
            shutil.copyfile(path, copy)
            command = [sys.executable, "-m", "vramwise", *COMMANDS[asked.verb], str(copy), "--gpu", asked.gpu]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            before, after = path.read_bytes(), copy.read_bytes()
            wrong = ["traceback"] if "Traceback" in done.stderr else []
            counts["changed" if before != after else f"unchanged, exit {done.returncode}"] += 1
            if before != after:
                wrong += faults(before, after, path.name)
                print(f"{path.name}: {' | '.join(line.strip() for line in changed_lines(before, after))[:400]}")
            if wrong:
                broken += 1
                print(f"WRONG {path.name}: {'; '.join(wrong)} {done.stderr[-300:]}")
    print("; ".join(f"{count} {word}" for word, count in counts.most_common()), f"; {broken} wrong")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
