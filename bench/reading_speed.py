"""CPU time to read scripts and notebooks, and the values read, of this tree against another.

    python bench/reading_speed.py OTHER/src FOLDER [--rounds N]

Each round reads every file of the folder in a new process of each tree, in turn: once to warm up, then timed. Prints
the ratio of the fastest rounds, and every file of which something other than before is read.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("values", "places", "unknown", "assumptions", "versions")


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        print(json.dumps(timed(chosen.folder)))
        return
    rounds = [[in_process(tree, chosen.folder) for tree in (chosen.other, ROOT / "src")] for _ in range(chosen.rounds)]
    before, after = (min(one[side]["seconds"] for one in rounds) for side in (0, 1))
    print(f"{before:.3f} s before, {after:.3f} s now: ratio {after / before:.3f}")
    old, new = (one["read"] for one in rounds[0])
    for name in sorted(old):
        changed = [part for part, one, other in zip(PARTS, old[name], new[name], strict=False) if one != other]
        if changed or len(old[name]) != len(new[name]):
            print(f"{name}: {', '.join(changed) or 'refused or read'}")
    print(f"{len(old)} files")


def in_process(tree: Path, folder: Path) -> Any:
    """What one tree takes and reads."""
    words = [sys.executable, __file__, str(tree), str(folder), "--child"]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    return json.loads(subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout)


def timed(folder: Path) -> dict[str, Any]:
    """The CPU time to read a folder, and what is read of each file."""
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.suffix in (".py", ".ipynb")}
    found = {name: read(name, data) for name, data in files.items()}
    began = time.process_time()
    for name, data in files.items():
        read(name, data, shown=False)
    return {"seconds": time.process_time() - began, "read": found}


def read(name: str, data: bytes, *, shown: bool = True) -> list[str]:
    """What is read of one file, as text; the error if it is refused."""
    from vramwise.errors import VramwiseError
    from vramwise.trainers.scripts.reading import Reading, read_script

    try:
        found = read_script(name, data, Reading(bf16=True))
    except VramwiseError as error:
        return [str(error)]
    script = found.script
    assert script is not None
    open_keys = [(one.key, one.name, one.line, one.why, one.either) for one in script.unsaid]
    parts = (
        sorted(found.values.items()),
        sorted(found.spans.items(), key=str),
        open_keys,
        script.assumed,
        dict(script.versions),
    )
    return [repr(one) for one in parts] if shown else []


if __name__ == "__main__":
    main()
