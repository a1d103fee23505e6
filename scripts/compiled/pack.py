"""Pack recorded programs into the file that ships: `python scripts/compiled/pack.py FOLDER`, with `KEY.raw.json` each.

The key's words are those of `vramwise.models.compiled`; in file names, `_` stands for ", ".
"""

from __future__ import annotations

import json
import sys
import zlib
from base64 import b85encode
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from read_program import read  # noqa: E402

OUT = HERE.parent.parent / "src" / "vramwise" / "models" / "compiled_programs.json"


def main() -> None:
    """Write the file."""
    programs = {}
    for path in sorted(Path(sys.argv[1]).glob("*.raw.json")):
        found = read(path)
        if not all(any(part["loop"] for part in half) for half in found["halves"]):
            raise SystemExit(f"{path.name}: its layers are not told apart")
        text = json.dumps(found, separators=(",", ":"))
        key = path.name.removesuffix(".raw.json").replace("_", ", ")
        programs[key] = b85encode(zlib.compress(text.encode(), 9)).decode()
    OUT.write_text(json.dumps({"torch": "2.13.0", "programs": programs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
