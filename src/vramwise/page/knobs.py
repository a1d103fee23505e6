"""The page's what-if: adjustable settings in RunSpec's terms, and the config with them in its trainer's keys.

A number is written under the trainer's own key for the field; a choice is one of the changes that a search would try.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vramwise.documents.edit import apply_edits
from vramwise.opening.subject import Subject
from vramwise.types import Change, Edit
from vramwise.variants.axes import AXES

_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_LENGTHS = (256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 65536, 131072)
NUMBERS: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "micro_batch_size": ("Micro-batch", _COUNTS),
    "sequence_len": ("Sequence length", _LENGTHS),
    "lora_r": ("LoRA rank", (4, 8, 16, 32, 64, 128, 256)),
    "eval_batch_size": ("Eval batch", _COUNTS),
}
CHOICES: Mapping[str, str] = {"checkpointing": "Checkpointing", "loss": "Loss"}
# The label of the value in the config.
AS_WRITTEN = "as written"


def knobs_of(subject: Subject) -> list[dict[str, Any]]:
    """Return what can be adjusted in a config, each with its values and the current one."""
    return [*_numbers(subject), *_choices(subject)]


def _numbers(subject: Subject) -> Iterator[dict[str, Any]]:
    run = subject.run
    for name, (label, usual) in NUMBERS.items():
        now, key = run.value(name), run.keys.get(name)
        if not isinstance(now, int) or key is None or (name == "lora_r" and run.adapter.kind is None):
            continue
        yield {"name": name, "label": label, "key": key, "values": sorted({*usual, now}), "now": now}


def _choices(subject: Subject) -> Iterator[dict[str, Any]]:
    for name, label in CHOICES.items():
        offered = [change for change in _changes(subject, name) if _edits(subject, change)]
        if offered:
            options = [{"value": change.id, "label": change.title} for change in offered]
            yield {"name": name, "label": label, "options": [{"value": "", "label": AS_WRITTEN}, *options], "now": ""}


def turned(subject: Subject, knobs: Mapping[str, Any]) -> Subject:
    """Return the subject with its knobs applied; those that do not apply are ignored."""
    numbers = {name: value for name, value in knobs.items() if name in NUMBERS and type(value) is int}
    keys = subject.run.keys
    edits = [Edit(op="insert", key=keys[name], value=value) for name, value in numbers.items() if name in keys]
    if edits:
        subject = subject.with_document(apply_edits(subject.document, edits))
    for name in CHOICES:
        wanted = knobs.get(name)
        change = next((found for found in _changes(subject, name) if found.id == wanted), None) if wanted else None
        edits = [] if change is None else _edits(subject, change)
        if edits:
            subject = subject.with_document(apply_edits(subject.document, edits))
    return subject


def _changes(subject: Subject, axis: str) -> Iterator[Change]:
    """Yield the choices of a search axis that leave the training unchanged."""
    for one in AXES:
        if one.name == axis and not one.allow:
            yield from one.choices(subject.run)


def _edits(subject: Subject, change: Change) -> list[Edit]:
    spelling = subject.trainer.spell(subject.run, change)
    return [] if spelling is None else list(spelling.edits)
