"""The tools that work on a config: check, fix, predict, diagnose. Each uses the same verb as the command line.

For a prediction, an agent may describe the run by a few settings instead of a config.
"""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from vramwise.diagnosis.reading import read_all
from vramwise.documents.edit import diff
from vramwise.errors import VramwiseError
from vramwise.mcp.arguments import Config, Gpu, Gpus, TrainerName, Versions, known_model, next_call, options_of, plain
from vramwise.mcp.results import Checked, Diagnosed, Fixed, Predicted
from vramwise.opening.options import Options, PredictOptions, Text
from vramwise.opening.sources import NotOurs, Source
from vramwise.opening.subject import Subject
from vramwise.render.diagnosis_json import diagnosis_json
from vramwise.render.outward import unstyle
from vramwise.render.prediction_json import prediction_json, what_if_json
from vramwise.render.report_json import file_json, finding_json
from vramwise.render.text import summary
from vramwise.trainers.compose import composed, composing_trainers
from vramwise.units import GIB
from vramwise.verbs.check import FileReport, check_source
from vramwise.verbs.fix import fix_source
from vramwise.verbs.predict import WhatIf, opened
from vramwise.verbs.predict import predict as predict_subject
from vramwise.verbs.predict import what_if as what_changes

_COUNT = Annotated[int | None, Field(ge=1)]


class Wished(BaseModel):
    """What is said of a run; what is left out is the trainer's default."""

    model_config = ConfigDict(extra="forbid")

    adapter: str = Field("none", description="Training method: lora, qlora, or none for a full fine-tune.")
    rank: _COUNT = Field(None, description="LoRA rank.")
    sequence_len: _COUNT = Field(None, description="Tokens per row.")
    micro_batch: _COUNT = Field(None, description="Rows per micro-batch on one card.")
    accumulation: _COUNT = Field(None, description="Micro-batches per optimizer step.")
    optimizer: str | None = Field(None, description="For example adamw_torch_fused or adamw_bnb_8bit.")
    checkpointing: bool | None = Field(None, description="Recompute activations in the backward pass.")
    attention: str | None = Field(None, description="sdpa, flash_attention_2 or eager.")
    packing: bool | None = Field(None, description="Pack several samples into a row.")
    fused_loss: bool | None = Field(None, description="Use a fused loss that never holds all logits.")
    eval_batch: _COUNT = Field(None, description="Evaluate, with this many rows per batch.")


WishedRun = Annotated[
    Wished | None,
    Field(
        description=f"Instead of a config: the run's main settings, for `trainer` ({', '.join(composing_trainers())})."
    ),
]
OptionalConfig = Annotated[
    str,
    Field(
        description=(
            "The text of the training config, YAML or JSON (not a path). Files it names are not read: inline a "
            "DeepSpeed config, and name the model by its hub id. Leave empty to describe the run with `model` and "
            "`run`."
        )
    ),
]


def predicted_source(config: str, model: str, run: Wished | None, options: Options) -> tuple[Source, Options]:
    """Return the given config, or one composed from the run's settings, and the options to read it with."""
    if config and run is not None:
        error = VramwiseError("config and run cannot be combined")
        raise next_call(error, "pass only one; to try other values of a config, use `changes`")
    if config:
        return Text(config), options
    wished = {} if run is None else run.model_dump(exclude_none=True)
    try:
        trainer, values = composed(model, wished, options.trainer)
    except VramwiseError as error:
        raise next_call(error, "pass config, or model (see list_models) with run") from error
    return values, replace(options, trainer=trainer)


class Verbs:
    """Tools for a config. `online`: the dimensions of unknown models may be fetched from the hub."""

    def __init__(self, *, online: bool = False) -> None:
        self._online = online

    def check_config(
        self,
        config: Config,
        gpu: Gpu = "",
        gpus: Gpus = 1,
        versions: Versions = [],  # noqa: B006
        trainer: TrainerName = "",
    ) -> Checked:
        """Check an LLM fine-tuning config for GPU memory problems before it runs.

        Returns findings with line, severity, message and fix (its edits, and whether the training stays the same).
        With a card, also whether the run fits. Changes nothing; use fix_config to apply the fixes.
        """
        report = check_source(Text(config), options_of(gpu, gpus, versions, trainer), alone=True)
        _refuse_unusable(report)
        shown = plain(file_json(report))
        return Checked(
            summary=_summary(report),
            trainer=shown["trainer"],
            findings=shown["findings"],
            error=shown["error"],
            not_predicted=shown["not_predicted"],
            clean=_clean(report),
            fits=_fits(report),
            next=_after(report),
        )

    def fix_config(
        self,
        config: Config,
        gpu: Gpu = "",
        gpus: Gpus = 1,
        unsafe: Annotated[
            bool,
            Field(
                description="Also apply fixes that change the training: numerics, data, method, the intended optimizer."
            ),
        ] = False,
        versions: Versions = [],  # noqa: B006
        trainer: TrainerName = "",
    ) -> Fixed:
        """Fix a fine-tuning config. Returns the full new text and its diff; comments and layout are kept.

        Safe fixes keep the training result; others need unsafe=true. No file is written: save `config` yourself. The
        answer lists the remaining findings and says whether the new text fits, so you need no further check.
        """
        report = fix_source(Text(config), options_of(gpu, gpus, versions, trainer), unsafe=unsafe)
        _refuse_unusable(report.remaining)
        before, after = report.before, report.after
        return Fixed(
            summary=_summary(report.remaining),
            changed=report.changed,
            config=after.file_text if after else config,
            diff=diff(before, after) if before and after else "",
            applied=plain([finding_json(found) for found in report.applied]),
            refused=plain([{**finding_json(found), "why": why} for found, why in report.refused]),
            clean=_clean(report.remaining),
            fits=_fits(report.remaining),
            remaining=plain([finding_json(found) for found in report.remaining.findings]),
            error=plain(file_json(report.remaining)["error"]),
            next=_after(report.remaining, fixed=True, unsafe=unsafe),
        )

    def predict_memory(
        self,
        config: OptionalConfig = "",
        gpu: Gpu = "",
        gpus: Gpus = 1,
        changes: Annotated[
            list[str],
            Field(description="Changes to try together: key=value for a config key, or package==version."),
        ] = [],  # noqa: B006
        model: Annotated[
            str,
            Field(
                description=(
                    "Hub id of a known model (see list_models). It replaces the config's base model; without a config "
                    "it is the model of `run`."
                )
            ),
        ] = "",
        versions: Versions = [],  # noqa: B006
        trainer: TrainerName = "",
        run: WishedRun = None,
    ) -> Predicted:
        """Predict the peak GPU memory of a fine-tuning run by simulation, without a GPU.

        Pass a config, or `model` and `run`; the answer's `config` is then a config made from them for `trainer`.
        Returns the verdict for the card, the peak by phase, what uses the memory, the expected error, and remedies
        with their predicted effect. With `changes`, `what_if` holds the same for the changed config.
        """
        options = options_of(gpu, gpus, versions, trainer)
        ask = PredictOptions(model=model or None, online=self._online)
        source, options = predicted_source(config, model, run, options)
        subject = opened(source, options, ask)
        known_model(subject)
        found = predict_subject(subject, ask)
        changed = _changed(subject, options, ask, changes) if changes else None
        shown = changed.prediction if changed else found.prediction
        capacity = shown.capacity_bytes
        return Predicted(
            summary=str((what_if_json(changed) if changed else prediction_json(shown, found))["verdict"]["text"]),
            fits=shown.fits,
            peak_reserved_gib=round(shown.needs.peak_reserved_bytes / GIB, 2),
            capacity_gib=None if capacity is None else round(capacity / GIB, 2),
            prediction=plain(prediction_json(found.prediction, found)),
            what_if=plain(what_if_json(changed)) if changed else None,
            config="" if config else subject.document.text,
            next="" if shown.fits is not False else "call fit_config, or try a remedy's edits with `changes`",
        )

    def diagnose_failure(
        self,
        log: Annotated[
            str, Field(description="The text of the training log, or its end with the traceback (not a path).")
        ],
        config: Annotated[
            str,
            Field(description="The text of the run's config. With it, causes and remedies are checked by simulation."),
        ] = "",
        gpu: Gpu = "",
        gpus: Gpus = 1,
        versions: Versions = [],  # noqa: B006
        trainer: TrainerName = "",
    ) -> Diagnosed:
        """Explain a failed run (CUDA out of memory, dtype errors) from its log: ranked causes, evidence, remedies.

        With the config, remedies are returned as edits, each with whether the run would have survived.
        """
        options = options_of(gpu, gpus, versions, trainer)
        stream = BytesIO(log.encode("utf-8", "replace"))
        found = read_all(stream, config=Text(config) if config else None, options=options).diagnosis
        then = "also pass the config, to predict the effect of the remedies" if found.failed and not config else ""
        return Diagnosed(summary=found.sentence, failed=found.failed, diagnosis=plain(diagnosis_json(found)), next=then)


def _refuse_unusable(report: FileReport) -> None:
    """Raise the error of a text that is not a known config or cannot be read at all."""
    if report.foreign is not None:
        raise NotOurs(report.foreign)
    if report.error is not None and not report.findings:
        raise report.error


def _summary(report: FileReport) -> str:
    said, found = unstyle(summary([report], fixing=True)), report.prediction
    if found is None or found.gpu is None:
        return said
    rows = " with full rows" if found.full_rows else ""
    return f"{said} ({found.gpu.name}{rows})"


def _clean(report: FileReport) -> bool:
    return report.error is None and report.failing == 0


def _fits(report: FileReport) -> bool | None:
    return None if report.prediction is None else report.prediction.fits


def _after(report: FileReport, *, fixed: bool = False, unsafe: bool = False) -> str:
    """Return the next call to make."""
    fixes = [found.fix for found in report.findings if found.fix is not None]
    if report.prediction is None and report.run is not None and report.run.target.gpu is None:
        return "pass gpu to predict the run"
    if not fixed and fixes:
        return "call fix_config" + ("" if all(fix.safe for fix in fixes) else " (unsafe=true for unsafe fixes)")
    if fixed and not unsafe and any(not fix.safe for fix in fixes):
        return "call fix_config with unsafe=true if the training may change"
    if _fits(report) is False:
        return "call fit_config"
    return "" if _clean(report) else "call explain_rule with the rule of a finding"


def _changed(subject: Subject, options: Options, ask: PredictOptions, changes: list[str]) -> WhatIf:
    try:
        return what_changes(subject, options, ask, changes)
    except VramwiseError as error:
        raise next_call(error, "call lookup_key for a key's values, or search_practice to find a key") from error
