"""The page's current config: a text with its settings and knobs, opened once and kept for further requests."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from vramwise.errors import VramwiseError
from vramwise.opening.options import Options, PredictOptions, Text
from vramwise.opening.subject import Subject
from vramwise.page.knobs import turned
from vramwise.verbs.check import FileReport, Policy, check_subject
from vramwise.verbs.predict import opened

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
