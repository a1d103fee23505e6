"""Write what follows from the known releases: meanings beside keys, and the lists of versions in README and docs.

    python scripts/release_files.py            # writes them
    python scripts/release_files.py --check    # only says which are not current

Needs no wheel: history.json and releases.json are written again from what they hold.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

from packaging.version import Version

from generated import ROOT, write_or_check
from histories import TRAINERS, Known
from known_packages import PACKAGES, constants

# Places that name versions: a file, what stands before the versions, and what is written there.
_Words = Callable[[], str]


def versions(folder: str) -> list[str]:
    """The known releases of a package, oldest first."""
    return sorted(Known(TRAINERS / folder / "schema").releases, key=Version)


def span(folder: str) -> str:
    """From the oldest to the newest: `1.9 to 1.16`, without numbers that say nothing."""
    known = versions(folder)
    return f"{_short(known[0])} to {_short(known[-1])}"


def _short(version: str) -> str:
    return version.removesuffix(".0") if version.count(".") > 1 else version


def _newest(folder: str) -> str:
    return versions(folder)[-1]


PLACES: tuple[tuple[str, str, _Words], ...] = (
    (
        "README.md",
        r"(- \*\*Configs\*\*: ).*?(?=,\n  and the JSON of)",
        lambda: (
            f"Axolotl {span('axolotl')}, TRL {span('trl')}, LLaMA-Factory {span('llamafactory')}, "
            f"Unsloth {span('unsloth')}"
        ),
    ),
    (
        "docs/check.md",
        r"(for Axolotl that is\s+)\d[\d.]*\d",
        lambda: _newest("axolotl"),
    ),
    (
        "docs/check.md",
        r"(Known releases: ).*?(?=\.\nTorch is)",
        lambda: "; ".join(
            f"{title} {span(folder)}"
            for title, folder in (
                ("Axolotl", "axolotl"),
                ("TRL", "trl"),
                ("LLaMA-Factory", "llamafactory"),
                ("Unsloth", "unsloth"),
                ("transformers", "arguments"),
            )
        ),
    ),
)


def listed(text: str, pattern: str, words: str) -> str:
    """The text with its list of versions replaced. It ends its line, so that nothing else moves."""
    found = re.search(pattern, text, re.DOTALL)
    if found is None:
        raise SystemExit(f"no place for a list of versions like {pattern}")
    return text[: found.start()] + found[1] + words + text[found.end() :]


def wanted() -> dict[Path, str]:
    """Every file with the text that it must have."""
    files: dict[Path, str] = {}
    for package in PACKAGES:
        known = Known(TRAINERS / package.folder / "schema")
        if lost := sorted(package.meanings.keys() - known.names()):
            raise SystemExit(f"the meanings of {package.title} describe keys that no release has: {', '.join(lost)}")
        files |= known.files(constants(package, known))
    for name, pattern, words in PLACES:
        path = ROOT / name
        files[path] = listed(files.get(path) or path.read_text(encoding="utf-8"), pattern, words())
    return files


def main() -> int:
    """Write the files, or with --check compare them."""
    return write_or_check(wanted())


if __name__ == "__main__":
    sys.exit(main())
