"""The assumptions behind a prediction: what the settings, versions, card and lengths leave open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from vramwise.facts.torch import NEWEST_RECORDED
from vramwise.facts.torch import shown as version_words
from vramwise.ghost.hardware import taken_for_granted
from vramwise.ghost.loops.batches import goes_by_labels
from vramwise.types import ModelSpec, RunSpec
from vramwise.types.actions import action
from vramwise.variants.batches import lists_widths
from vramwise.variants.lengths import Lengths


@dataclass(frozen=True, slots=True)
class Assumption:
    """`kind` is the subject of the text.

    It is the rows of the data, rows of unknown lengths, the model, a version, how a command was read, or anything else
    about the run.
    """

    text: str
    kind: Literal["data", "rows", "model", "version", "source", "run"] = "run"

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}" if self.kind in ("data", "model") else self.text


def assumptions_of(
    run: RunSpec, model: ModelSpec, lengths: Lengths | None, eval_lengths: Lengths | None
) -> Iterable[Assumption]:
    """Return the assumptions that the settings, the card and the lengths make necessary, each once."""
    known = [package for package in (run.trainer, "torch") if package in run.target.stack.releases]
    found = [
        Assumption(f"{model.name} ({model.source})", "model"),
        *(Assumption(_version(run, package), "version") for package in known),
        *map(Assumption, _unrecorded(run)),
        *map(Assumption, _open_settings(run)),
        *(Assumption(text, "rows") for text in _open_rows(run) if lengths is None),
    ]
    for given in (lengths, eval_lengths):
        if given is not None:
            if given.described:
                found.append(Assumption(given.described, "data"))
            found.extend(map(Assumption, _open_lengths(run, given)))
    return dict.fromkeys(found)


def _open_settings(run: RunSpec) -> list[str]:
    notes: list[str] = []
    if run.target.gpu is not None and run.target.gpu.taken_for:
        notes.append(run.target.gpu.taken_for)
    notes.extend(taken_for_granted(run.target.gpu))
    decisive = (run.origins.get(name) for name in ("objective", "precision", "weights_dtype", "lora_r", "sequence_len"))
    notes.extend(origin.why for origin in decisive if origin is not None and origin.kind == "assumed")
    return notes


def _open_rows(run: RunSpec) -> Iterator[str]:
    if not run.shapes.sample_packing:
        longest = run.keys.get("sequence_len", "sequence_len")
        yield f"every batch is {longest} wide, with shorter rows in it ({action('lengths')})"
    if not run.shapes.constant_shapes:
        yield "batches of varying width may reserve more"


def _open_lengths(run: RunSpec, given: Lengths) -> Iterator[str]:
    yield from given.assumptions
    yield from _labels(run, given)
    if run.shapes.packing_fill == "full" and lists_widths(given.tokens, run.shapes.pad_multiple):
        yield "all lengths are round numbers: treated as batch widths, with shorter rows inside"


def _labels(run: RunSpec, lengths: Lengths) -> Iterator[str]:
    """Yield how much of the data is trained on, if the loss depends on it and the data was read."""
    counts = lengths.labels(run)
    if lengths.labelled is None and counts is not None and goes_by_labels(run):
        share = sum(counts) / max(1, sum(lengths.tokens))
        yield f"labels: {share:.0%} of the data's tokens are trained on, estimated from their share of each row's text"


def _unrecorded(run: RunSpec) -> Iterator[str]:
    """Yield an assumption for torch releases newer than the newest one that was measured."""
    if run.target.torch > NEWEST_RECORDED:
        newer, known = version_words(run.target.torch), version_words(NEWEST_RECORDED)
        yield f"torch {newer} is treated as {known}: it has not been measured"


def _version(run: RunSpec, package: str) -> str:
    release = run.target.stack.releases[package]
    return f"{package} {release.version} ({release.origin.why})"
