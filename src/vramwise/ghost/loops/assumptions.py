"""The assumptions of predictions for preference and reward training, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.actions import action
from vramwise.types import RunSpec


def preference_assumptions(run: RunSpec) -> Iterator[str]:
    """Yield what is unknown about the data, and what is not modelled."""
    if run.objective.rl and run.objective.kind == "tokens":
        yield (
            f"rl: {run.objective.rl} is not modelled: predicted as supervised fine-tuning, without its additional "
            "memory"
        )
    if run.objective.kind == "kto" and run.objective.log_probs == "whole":
        yield "kto: mismatched completions are assumed to be as long as the others, with half of the rows of each label"
    elif run.objective.kind == "kto":
        yield (
            "kto: logging copies the logits of completions; they are assumed to fill their rows, all of one label in "
            "the worst batch"
        )
    if run.objective.spare_model:
        yield "a second model is loaded and freed before the first step: its memory is assumed to be reused"
    if run.objective.reference != "none" and run.sharding.kind != "none":
        yield f"the reference model is assumed to gather weights like the policy under {run.sharding.kind}"
    if run.objective.log_probs in ("chunked", "tiled") and run.objective.kind in ("dpo", "kto", "grpo"):
        yield "tiled log-probabilities are predicted as in TRL 1.14; earlier versions use Liger's own loss"
    if run.objective.kind == "grpo":
        yield from _generation(run)


def _generation(run: RunSpec) -> Iterator[str]:
    yield (
        f"every completion reaches {run.objective.completion_len} tokens, and prompts fill the rest of the longest "
        f"row ({action('prompt lengths')})"
    )
    gpu = run.target.gpu
    if run.objective.engine == "elsewhere":
        yield "vLLM is assumed to run on another card"
    elif run.objective.engine == "beside" and gpu is None:
        yield f"vLLM takes {run.objective.engine_share:.0%} of the card; no card is given, so it is not counted"
    elif run.objective.engine == "beside" and gpu is not None:
        sleeps = ", but sleeps while the policy is trained" if run.objective.engine_sleeps else ", all the time"
        share = f"{run.objective.engine_share:.0%} of {gpu.name}"
        yield f"vLLM is counted as {share}{sleeps}: its actual use is not modelled"
