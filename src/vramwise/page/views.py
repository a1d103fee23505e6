"""What the page shows of a config, as plain values: the verdict, the findings, the charts, what would fit.

Texts are returned as text; HTML only as `Markup` from the components that draw the reports.

Actions and fields have the page's words, not those of the command line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vramwise.documents.python.notebook import line_in_file
from vramwise.errors import VramwiseError
from vramwise.facts.gpus import all_gpus
from vramwise.models.known import catalogue_ids
from vramwise.opening.subject import Subject
from vramwise.render.doubt_text import error_lines
from vramwise.render.html import at_a_glance, picture
from vramwise.render.html.data import page_data
from vramwise.render.html.sections import assumptions_list
from vramwise.render.json_text import json_text
from vramwise.render.outward import unstyle
from vramwise.render.prediction_text import describe
from vramwise.render.report_json import finding_json
from vramwise.render.speed_text import speed_figures
from vramwise.render.verdict_text import reasons, sentence, state_of, stopped, would_need
from vramwise.trainers.registry import all_identities
from vramwise.types import Document, Finding
from vramwise.units import gib
from vramwise.variants.axes import ALLOW
from vramwise.variants.prediction import Prediction, profile_of
from vramwise.variants.verdict import Verdict
from vramwise.verbs.check import FileReport
from vramwise.verbs.fitting.shorter_rows import judged
from vramwise.verbs.new import starting_trainers
from vramwise.verbs.predict import on_cards


def catalogue(version: str) -> dict[str, Any]:
    """Return what there is to choose from."""
    return {
        "version": version,
        "cards": [{"name": card.name, "memory": gib(card.memory_bytes)} for card in all_gpus()],
        "models": catalogue_ids(),
        "trainers": [
            # `composes`: `start` can write a config for it
            {"name": trainer.name, "title": trainer.title, "composes": trainer.name in starting_trainers()}
            for trainer in all_identities()
        ],
        "allow": [{"word": word, "meaning": ALLOWED[word]} for word in ALLOW],
    }


def verdict_view(subject: Subject, prediction: Prediction) -> dict[str, Any]:
    """Return the verdict in one line, the reasons, and the card as a bar."""
    return _verdict_view(subject, prediction, judged(subject, prediction))


def first_view(subject: Subject, prediction: Prediction) -> dict[str, Any]:
    """Return the same from this one prediction; whether shorter rows would fit is left open."""
    verdict = prediction.verdict()
    if verdict.kind == "does_not_fit" and prediction.full_rows:
        verdict = replace(verdict, kind="may_fit")
    return _verdict_view(subject, prediction, verdict)


def _verdict_view(subject: Subject, prediction: Prediction, verdict: Verdict) -> dict[str, Any]:
    speed = subject.speed()
    figures = speed_figures(speed, subject.duration(speed)) if speed else ()
    return {
        "state": state_of(verdict.kind),
        "fits": prediction.fits,
        "headline": sentence(prediction, verdict),
        "kind": verdict.kind,
        "reasons": list(reasons(prediction, verdict, with_stops=False)),
        "subtitle": describe(prediction),
        "bar": "".join(at_a_glance(prediction.shown, prediction.gpu, figures)),
        "reserved_bytes": prediction.needs.highest_reserved_bytes,
        "stops": _stops_view(subject.document, prediction, verdict) if prediction.stops else None,
    }


def _stops_view(document: Document, prediction: Prediction, verdict: Verdict) -> dict[str, Any]:
    """Return why the run does not start: the errors with their fixes, and what memory it would need."""
    needs = would_need(prediction, verdict).removeprefix("and ")
    return {
        "title": stopped(prediction.stops),
        "memory": f"{needs[:1].upper()}{needs[1:]}",
        "errors": [finding_view(found, document) for found in prediction.stops],
    }


def no_verdict(report: FileReport) -> dict[str, Any]:
    """Return the same for a config without a prediction."""
    why = report.error.message if report.error is not None else report.not_predicted
    return {"state": "open", "fits": None, "headline": f"Not predicted: {why}", "reasons": [], "bar": ""}


def finding_view(found: Finding, document: Document) -> dict[str, Any]:
    """Return a finding as in `check`, at its line of the file, with the effect of its fix in words."""
    shown: dict[str, Any] = json.loads(json_text(finding_json(found)))
    shown |= _in_notebook(found, document)
    if found.fix is not None:
        shown["fix"]["words"] = found.fix.effect_words
    return shown


def _in_notebook(found: Finding, document: Document) -> dict[str, int]:
    """Return the place of a finding in a notebook's JSON, which the editor shows; empty for other files."""
    cell = document.cell(found.place.line)
    if cell is None:
        return {}
    line = line_in_file(document.file_text, *cell)
    return {"line": line, "column": 1, "end_line": line, "end_column": 1}


def chart_view(prediction: Prediction) -> dict[str, Any]:
    """Return memory over the run: the chart elements, their data, and the assumptions."""
    profile = profile_of(prediction)
    notes = [unstyle(line).strip() for line in error_lines(prediction)]
    parts = [part for part in picture(profile, prediction.shown, prediction.gpu) if part is not None]
    rests = assumptions_list([*prediction.assumptions, *notes], prediction.shown.settings)
    return {
        "markup": "".join([*parts, rests]),
        "data": json.loads(page_data(profile, prediction.shown, prediction.gpu, ())),
    }


def cards_view(subject: Subject, prediction: Prediction) -> list[dict[str, Any]]:
    """Return the verdict for each card."""
    shown = []
    for name, on, verdict in on_cards(subject, prediction):
        shown.append({"name": name, "kind": verdict.kind, "words": sentence(on, verdict)})
    return shown


def predicted(report: FileReport) -> Prediction:
    """Return the report's prediction. Raises VramwiseError with the reason if there is none."""
    if report.prediction is None:
        raise VramwiseError(report.not_predicted or "nothing was predicted")
    return report.prediction


def chosen(findings: Mapping[str, Any] | None, report: FileReport, document: Document) -> Finding:
    """Return the finding that the user selected. Raises VramwiseError if it is gone."""
    wanted = findings or {}
    for found in report.findings:
        line = _in_notebook(found, document).get("line", found.place.line)
        if (found.rule, found.key, line) == (wanted.get("rule"), wanted.get("key"), wanted.get("line")):
            return found
    raise VramwiseError("this finding is gone: the config has changed since")


ACTIONS: Mapping[str, str] = {
    "choose a card": "choose a card",
    "say how many cards": "set Cards to how many there are",
    "say the version": "--with {}==VERSION on the command line names yours",
    "several cards": "several (Cards)",
    "read the lengths": "set Sequence length to this under What if to make sure",
    "read how long": "set Sequence length to this under What if to make sure",
    "lengths": "the page does not read data",
    "prompt lengths": "the page does not read data",
    "name the model": "write a known model of the same shape into the config",
    "try a step": "the first steps of the run on that card",
    "simulate more": "the others are narrower",
    "allow": "ticking “{}”",
    "allow several": " and ",
    "allowed only": "needs a ticked box",
    "nothing to allow": "Ticking the other boxes was not found to make it fit",
    "search less": "untick boxes to leave fewer",
    "keep room": "see Variants below",
    "list the cards": "choose a card",
    "insist": "paste a training config",
    "name the call": "paste the script or notebook with the call that creates the trainer",
    "predict a loop": (
        "it is a loop of its own: in that program, before the loop, "
        "`print(vramwise.predict(model=model, optimizer=optimizer, batch=batch))` answers"
    ),
    "add a model": "add one to the config",
    "write a model": "write a model there",
    "name its origin": "Write the one it was made from into the config",
    "point to a model": "Write a known model of the same shape into the config",
    "looked for a model": "not in the catalogue",
    "fetch a model": "",
    "give the config": "paste the config of the run into the editor",
    "give the snapshot": "drop snapshot.pickle on the page",
    "say the trainer": "paste the config of the run to get its own keys",
}
# Changes to the training that a search may make, as labels of checkboxes.
ALLOWED: Mapping[str, str] = {
    "lora": "train LoRA adapters instead of all weights",
    "qlora": "load the base in 4 bits and train LoRA adapters",
    "8bit-optimizer": "keep optimizer states in 8 bits",
    "shorter-sequences": "halve the sequence length, repeatedly; long samples are dropped or cut",
    "lower-rank": "halve the LoRA rank, repeatedly, with alpha in proportion",
    "bf16-weights": "keep trained weights, their gradients and states in bf16, not fp32",
    "narrower-targets": "train LoRA adapters on attention alone",
    "no-evaluation": "do not evaluate during training",
    "compile": "compile the model with torch.compile, if rows have one width",
    "fp8": "multiply matrices in fp8 with torch.compile, on cards that support it",
    "packing": "pack several samples into each row, so a step sees more of them",
    "fsdp": "shard weights, gradients and states over several cards with FSDP2",
    "zero": "shard states, gradients or weights over several cards with DeepSpeed ZeRO",
}
# Options shown under the name of their field: in errors, and as the origin of a value.
_FIELDS = {
    "--gpus": "Cards",
    "--gpu": "Card",
    "--with": "Versions",
    "--torch": "Versions",
    "--alloc-conf": "Allocator",
}
_OPTION = re.compile(rf"({'|'.join(_FIELDS)})\b")


def with_fields(answer: Any) -> Any:
    """Return an answer with the page's names for options. Config text, chart data and HTML pages stay unchanged."""
    if isinstance(answer, str):
        return _OPTION.sub(lambda found: _FIELDS[found[1]], answer)
    if isinstance(answer, list):
        return [with_fields(one) for one in answer]
    if isinstance(answer, dict):
        return {name: one if name in ("text", "data", "html") else with_fields(one) for name, one in answer.items()}
    return answer
