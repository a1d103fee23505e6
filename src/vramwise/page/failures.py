"""A failed run on the page: its log or snapshot explained, with what to change in the current config."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from vramwise.diagnosis.drawing import draw
from vramwise.diagnosis.evidence import Diagnosis, Remedy
from vramwise.diagnosis.reading import Reading, read_all
from vramwise.documents.edit import EditRefused, apply_edits
from vramwise.errors import VramwiseError
from vramwise.opening.options import Options, Text
from vramwise.opening.sources import read_document, trainer_of
from vramwise.page.desk import options_of
from vramwise.render.diagnosis_html import advice
from vramwise.render.html import picture
from vramwise.render.html.data import page_data
from vramwise.types import Document
from vramwise.whole_files import write_new


def diagnosed(request: Mapping[str, Any], data: bytes | None) -> dict[str, Any]:
    """Return the diagnosis of a log (text) or a snapshot (`data`), with the config if it can be read."""
    options = options_of(request.get("settings") or {})
    document = _config(request.get("text"), options)
    reading = _read(request, data, Text(document.file_text) if document is not None else None, options)
    found = _without_commands(reading.diagnosis)
    first = found.causes[0].remedies if found.causes else ()
    tried = ((place, _offered(remedy, document)) for place, remedy in enumerate(first))
    offered = [{**made, "place": place} for place, made in tried if made is not None]
    return {
        "failed": found.failed,
        "state": "bad" if found.failed else "good",
        "headline": found.sentence,
        "notes": [*found.notes, *found.next_steps],
        "markup": advice(found) or "",
        "remedies": offered,
        **_drawn(reading),
    }


def _without_commands(found: Diagnosis) -> Diagnosis:
    """Return the diagnosis without vramwise commands: the page has buttons for them."""

    def kept(remedy: Remedy) -> Remedy:
        ours = (remedy.command or "").startswith("vramwise ")
        return replace(remedy, command=None) if ours else remedy

    return replace(found, causes=tuple(replace(one, remedies=tuple(map(kept, one.remedies))) for one in found.causes))


def _config(text: object, options: Options) -> Document | None:
    """Return the current config; None if it cannot be read, so that the log is diagnosed alone."""
    if not isinstance(text, str) or not text.strip():
        return None
    try:
        document = read_document(Text(text), options)
        trainer_of(document, options.trainer)
    except VramwiseError:
        return None
    return document


def _read(request: Mapping[str, Any], data: bytes | None, config: str | None, options: Options) -> Reading:
    log = request.get("log")
    stream = BytesIO(log.encode("utf-8", "replace")) if isinstance(log, str) and log else None
    if stream is None and data is None:
        raise VramwiseError("drop a log or a memory snapshot: there is nothing to diagnose")
    if data is None:
        return read_all(stream, config=config, options=options)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "snapshot.pickle"
        write_new(path, data)
        try:
            return read_all(stream, config=config, snapshot=str(path), options=options)
        except VramwiseError as error:  # the user dropped a file and does not know this path
            raise VramwiseError(str(error).replace(str(path), "the snapshot")) from error


def _offered(remedy: Remedy, document: Document | None) -> dict[str, Any] | None:
    """Return a remedy with the resulting text if it edits the current config; otherwise None."""
    if remedy.fix is None or document is None or remedy.refused:
        return None
    try:
        text = apply_edits(document, remedy.fix.edits).text
    except EditRefused:
        return None
    return {"title": remedy.title, "survives": remedy.survives, "text": text}


def _drawn(reading: Reading) -> dict[str, Any]:
    """Return the recording as a chart, if there is one."""
    if reading.recording is None or reading.diagnosis.snapshot is None:
        return {"chart": None}
    drawing = draw(reading)
    parts = [part for part in picture(drawing.profile, drawing.report, None) if part is not None]
    return {
        "chart": {
            "markup": "".join(parts),
            "data": json.loads(page_data(drawing.profile, drawing.report, None, ())),
        }
    }
