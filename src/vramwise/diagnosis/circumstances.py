"""The circumstances of a failed run that decide which remedies can run there, as words for `when` and `unless`.

The stage of the failure and the trainer's name are such words, too.

A word is only given if the log, the config or the options say so: a remedy that needs it is left out otherwise, and one
that it rules out is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from vramwise.diagnosis.case import Case
from vramwise.diagnosis.read.phases import in_eager_attention

_EIGHT_BIT = re.compile(r"8bit|8_bit|adalomo|galore", re.IGNORECASE)
_LOG_PROBS = re.compile(r"log_?p(?:s|rob|olicy)?|selective_log_softmax")
# The least that weights, gradients and AdamW's values of a trained parameter take.
_STATE_BYTES = 8
_TRUE = ("true", "True", "1", "yes", "enabled")
_PREPARING = re.compile(r"tokeniz|preprocess|\bmap\b|subprocesses has abruptly died|num_proc", re.IGNORECASE)


def circumstances(case: Case) -> frozenset[str]:
    """Return the words that hold for this failure."""
    return frozenset(
        (*_machine(case), *_moment(case), *_sharding(case), *_settings(case), *(case.log.setup.named - {"one-card"}))
    )


def _machine(case: Case) -> Iterator[str]:
    platform = case.log.platform
    if platform == "mac" or case.memory.wording == "mps" or "mlx" in case.log.setup.named:
        yield "mac"
    if platform in ("windows", "wsl"):
        yield platform
    if platform in ("colab", "kaggle") or case.symptom.kind == "host-session":
        yield "notebook"
    if case.card is not None and not case.card.bf16:
        yield "no-bf16"
    capability = case.card.capability if case.card is not None else None
    if capability is not None and capability < (8, 0):
        yield "before-ampere"
    if case.cards:
        yield "several-cards" if case.cards > 1 else "one-card"
    elif "one-card" in case.log.setup.named:
        yield "one-card"


def _moment(case: Case) -> Iterator[str]:
    stage, phase = case.symptom.stage, case.symptom.phase
    if stage:
        yield stage
    if phase in ("load", "resume"):
        yield "before-training"
    if phase == "load":
        yield "loading"
    if phase == "save":
        yield "saving"
    if phase == "eval":
        yield "evaluating"
    if (
        not case.symptom.frames
        or case.symptom.inner in ("attention", "vision")
        or in_eager_attention(case.symptom.frames)
    ):
        yield "perhaps-scores"
    if "log-probs" in (stage, case.symptom.inner) or any(
        _LOG_PROBS.search(frame.function) for frame in case.symptom.frames
    ):
        yield "log-probs"
    if phase == "optimizer":
        yield "stepping"
    if case.larger_eval_batch:
        yield "larger-eval-batch"
    if stage == "recompute":
        yield "checkpointing"
    if case.pins_memory:
        yield "pinning"
    if case.symptom.kind.startswith("nccl"):
        yield "nccl"
    if case.symptom.kind == "flex-uncompiled":
        yield "uncompiled"
    if phase in ("load", "resume"):
        yield "host-loading"
    elif phase == "save" or case.symptom.after == "save":
        yield "host-saving"
    elif case.log.steps_done is None:
        yield "host-anywhere"
    if case.symptom.kind == "host-worker-died" or _PREPARING.search(case.symptom.quote.text):
        yield "preparing-data"


def _sharding(case: Case) -> Iterator[str]:
    run, setup = case.run, case.log.setup
    files = " ".join(frame.file for frame in case.symptom.frames).lower()
    named = case.log.libraries if run is None else frozenset()
    # Source lines of a traceback speak of ways that the run did not take.
    told_stage = None if case.symptom.frames else setup.zero_stage
    zero = (run is not None and run.sharding.is_zero) or told_stage is not None or "deepspeed" in named
    if zero:
        yield "zero"
    if told_stage == 3 or "zero/stage3" in files or (run is not None and run.sharding.kind == "zero3"):
        yield "zero3"
    if (run is not None and run.sharding.kind.startswith("fsdp")) or "fsdp" in named or "fsdp" in files:
        yield "fsdp"
    if case.symptom.kind.startswith("fsdp") and not zero:
        yield "fsdp"
    if (
        setup.offload
        or _must_offload(case)
        or (run is not None and (run.sharding.offload_optimizer or run.sharding.offload_params))
    ):
        yield "offloading"
    if "ray" in case.log.libraries:
        yield "ray"
    if case.uses_vllm:
        yield "vllm"
    if case.speaker.known:
        yield case.speaker.trainer.name
    if case.vision:
        yield "vision"


def _must_offload(case: Case) -> bool:
    """Whether the RAM that is said to fill up is what the offloaded state of all weights would take."""
    return (
        case.symptom.kind.startswith("host-")
        and case.log.setup.method == "full"
        and case.symptom.phase not in ("load", "save", "resume")
        and 0 < (case.log.stated.host_bytes or 0) < _STATE_BYTES * case.parameters
    )


def _settings(case: Case) -> Iterator[str]:
    """Yield what is already set, by the config or by the settings that the log prints."""
    run, log = case.run, case.log
    if case.micro_batch_size == 1:
        yield "micro-batch-1"
    if case.eval_batch_size == 1:
        yield "eval-batch-1"
    if case.expandable:
        yield "expandable"
    if case.told is not None and case.told.prediction is not None and case.told.prediction.memory_fits is False:
        yield "described-run-fails"
    if log.stated.grows_at_save is not None:
        yield "grows-at-save"
    if case.number("trainable_params") > 0.1 * case.number("base_parameters") > 0:
        yield "much-trained"
    if case.symptom.kind == "driver-oom" and not case.pins_memory:
        yield "driver-refused"
    if run is not None:
        return  # the changes know what a config sets
    shown = {key: setting.value for key, setting in log.settings.items()}
    if shown.get("gradient_checkpointing") in _TRUE:
        yield "checkpointing"
    if any(shown.get(key) in _TRUE for key in ("load_in_4bit", "load_in_8bit")) or log.setup.method == "qlora":
        yield "quantised"
    if _EIGHT_BIT.search(shown.get("optimizer", "")):
        yield "eight-bit-optimizer"
