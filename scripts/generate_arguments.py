"""Facts about transformers' TrainingArguments by release, for trainers/arguments/schema; `releases.py` writes them.

Every argument with type and default comes from the dataclass, read as text; what it means for memory is in
`argument_meanings.py`. `constructors`: what Trainer takes.
"""

from __future__ import annotations

from typing import Any

from argument_schema import Modules, fields_of, signature_of
from registry import Archive

FILES = ("trainer_utils.py", "debug_utils.py", "training_args.py")
# What the parsers take beyond the annotation: `fsdp: true`, and lists for what was joined by blanks.
TAKEN = {"fsdp": "bool|str|list[str]?"}


def facts_of(archive: Archive) -> dict[str, Any]:
    """The facts of one release."""
    found = fields_of("TrainingArguments", Modules(archive.texts(*(f"transformers/{name}" for name in FILES))))
    for key, written in TAKEN.items():
        found[key] = [written, *found[key][1:]]
    trainer = signature_of("Trainer", Modules(archive.texts("transformers/trainer.py")))
    return {"keys": found, "constructors": {"Trainer": trainer}}
