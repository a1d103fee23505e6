"""Write trainers/arguments/schema/*.json from transformers' wheels: the newest in full, older ones as differences.

    pip download --no-deps --only-binary=:all: --python-version 3.12 -d wheels transformers==5.22.2    # and older ones
    python scripts/generate_arguments.py wheels/transformers-*.whl

Every argument with type and default comes from the dataclass, read as text; what it means for memory is in
`argument_meanings.py`. A new version: run it with all wheels, read the difference, add what new keys mean.
"""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from argument_meanings import MEANINGS
from argument_schema import Modules, difference, fields_of

TARGET = Path(__file__).parents[1] / "src/vramwise/trainers/arguments/schema"
FILES = ("trainer_utils.py", "debug_utils.py", "training_args.py")
# What the parsers take beyond the annotation: `fsdp: true`, and lists for what was joined by blanks.
TAKEN = {"fsdp": "bool|str|list[str]?"}


def version_of(wheel: Path) -> tuple[int, ...]:
    """The version in a wheel's name."""
    return tuple(int(part) for part in wheel.name.split("-")[1].split("."))


def modules_in(wheel: Path, names: Sequence[str]) -> list[str]:
    """Source files of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        there = set(archive.namelist())
        return [archive.read(name).decode() for name in names if name in there]


def transformers_sources(wheel: Path) -> list[str]:
    """The files that TrainingArguments stands in."""
    return modules_in(wheel, [f"transformers/{name}" for name in FILES])


def training_arguments(wheel: Path) -> dict[str, Any]:
    """The facts of one version."""
    found = fields_of("TrainingArguments", Modules(transformers_sources(wheel)))
    for key, written in TAKEN.items():
        found[key] = [written, *found[key][1:]]
    version = ".".join(map(str, version_of(wheel)))
    unknown = sorted(MEANINGS.keys() - found.keys() - {"group_by_length", "train_sampling_strategy"})
    if version_of(wheel) >= (5, 23) and unknown:
        raise SystemExit(f"argument_meanings.py speaks of keys that transformers {version} does not have: {unknown}")
    meanings = {key: text for key, text in MEANINGS.items() if key in found}
    return {"source": f"transformers {version}, training_args.py", "keys": found, "memory": meanings}


def write_versions(target: Path, facts: dict[str, dict[str, Any]]) -> None:
    """One file a version, the oldest first in `facts`: the newest in full, each other as what differs from the next."""
    target.mkdir(parents=True, exist_ok=True)
    versions = list(facts)
    for version, newer in zip(versions, [*versions[1:], None], strict=True):
        held = facts[version] if newer is None else difference(facts[newer], facts[version])
        (target / f"{version}.json").write_text(compact(held), encoding="utf-8")
    (target / "versions.json").write_text(json.dumps(versions) + "\n", encoding="utf-8")


def compact(facts: dict[str, Any]) -> str:
    """JSON with one line a key of the second level."""
    parts = []
    for name, value in facts.items():
        if isinstance(value, dict) and value:
            lines = ",\n".join(f"    {json.dumps(key)}: {json.dumps(held)}" for key, held in value.items())
            parts.append(f"  {json.dumps(name)}: {{\n{lines}\n  }}")
        else:
            parts.append(f"  {json.dumps(name)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    """All wheels that are named."""
    wheels = sorted((Path(name) for name in sys.argv[1:]), key=version_of)
    write_versions(TARGET, {".".join(map(str, version_of(one))): training_arguments(one) for one in wheels})


if __name__ == "__main__":
    main()
