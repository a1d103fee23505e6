"""The page's current config: a text with its settings and knobs, opened once and kept for further requests.

Knobs are adjustable settings in RunSpec's terms, written into the config in its trainer's keys. A number is written
under the trainer's own key for the field; a choice is one of the changes that a search would try.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from vramwise.documents.edit import apply_edits
from vramwise.errors import VramwiseError
from vramwise.opening.options import Options, PredictOptions, Text
from vramwise.opening.subject import Subject
from vramwise.types import Change, Edit
from vramwise.variants.axes import AXES
from vramwise.verbs.check import FileReport, Policy, check_subject
from vramwise.verbs.predict import opened

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


Request = Mapping[str, Any]
_Kept = TypeVar("_Kept")
# How many opened configs to keep: enough for going back and forth on a slider. Each holds its predictions.
_KEPT = 6
_MOST_GPUS = 4096
_SHAPES = {
    **dict.fromkeys(("ask", "text", "log", "name"), str),
    **dict.fromkeys(("settings", "knobs", "wishes", "finding"), dict),
    "allow": list,
}


def shaped(asked: Any) -> Request:
    """Return the request if its parts have the expected types.

    Raises VramwiseError otherwise: a link carries some of them, and anyone can write a link.
    """
    if not isinstance(asked, dict):
        raise VramwiseError("the page's request is not a JSON object: reload the page without the link")
    for name, kind in _SHAPES.items():
        if asked.get(name) is not None and not isinstance(asked[name], kind):
            raise VramwiseError(f"'{name}' in the page's request has the wrong type: reload the page without the link")
    return asked


def options_of(settings: Mapping[str, Any]) -> Options:
    """Return the page's settings as Options: only the text is read, no file and no project around it."""
    gpus = settings.get("gpus") or 1
    if not isinstance(gpus, int) or not 1 <= gpus <= _MOST_GPUS:
        raise VramwiseError(f"there are 1 to {_MOST_GPUS} cards, not {gpus}")
    gpu = str(settings.get("gpu") or "")
    return Options(
        gpu=gpu or None,
        gpus=gpus if gpu and gpus > 1 else None,
        versions=tuple(str(settings.get("versions") or "").replace(",", " ").split()),
        alloc_conf=str(settings.get("alloc_conf") or "") or None,
        trainer=str(settings.get("trainer") or "") or None,
        text_alone=True,
        predict=True,
    )


class Desk:
    """The configs of recent requests, and their reports."""

    def __init__(self) -> None:
        self._subjects: dict[str, Subject] = {}
        self._reports: dict[str, FileReport] = {}
        self._weighed: dict[str, FileReport] = {}

    def subject(self, request: Request) -> Subject:
        """Return the config of a request with its knobs applied. Raises VramwiseError if it cannot be read."""
        knobs = request.get("knobs") or {}
        return _kept(
            self._subjects,
            _key(request, knobs),
            # apart: predictions shared by all variants would accumulate while the user plays
            lambda: turned(self.as_written(request), knobs).apart() if knobs else _opened(request),
        )

    def as_written(self, request: Request) -> Subject:
        """Return the config without its knobs."""
        return self.subject({**request, "knobs": {}})

    def report(self, request: Request, *, weighed: bool = False) -> FileReport:
        """Return what `check` finds, with one prediction.

        `weighed`: also with those of the remedies, which takes longer.
        """
        return _kept(
            self._weighed if weighed else self._reports,
            _key(request, request.get("knobs") or {}),
            lambda: check_subject(self.subject(request), Policy(predicts=True, figures=weighed)),
        )


def _kept(kept: dict[str, _Kept], key: str, make: Callable[[], _Kept]) -> _Kept:
    """Return the value kept under a key, or make and keep it; the least recently used one is dropped."""
    found = kept.pop(key) if key in kept else make()
    kept[key] = found
    if len(kept) > _KEPT:
        del kept[next(iter(kept))]
    return found


def text_of(request: Request) -> str:
    """Return the config's text. Raises VramwiseError if it is empty."""
    text = request.get("text")
    if not isinstance(text, str) or not text.strip():
        raise VramwiseError("there is no config yet: paste one, drop a file, or start from an example")
    return text


def _opened(request: Request) -> Subject:
    source, options = Text(text_of(request)), options_of(request.get("settings") or {})
    return opened(source, options, PredictOptions(online=False))


def _key(request: Request, knobs: Mapping[str, Any]) -> str:
    return json.dumps([request.get("text"), request.get("settings"), knobs], sort_keys=True)
