"""What predictions of preference and reward training take for granted, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.types import RunSpec


def preference_assumptions(run: RunSpec) -> Iterator[str]:
    """What is not known of the data, and what is not modelled."""
    if run.rl and run.objective == "tokens":
        yield f"rl: {run.rl} is not modelled: predicted as supervised fine-tuning, without what it adds"
    if run.objective == "kto" and run.log_probs == "whole":
        yield "kto: mismatched completions are taken to be as long as the others, and half of the rows of each label"
    elif run.objective == "kto":
        yield "kto: the log copies logits of completions: taken to fill their rows, all of one label in the worst batch"
    if run.spare_model:
        yield "a second model is loaded and let go before the first step: its memory is taken to be used again"
    if run.reference != "none" and run.sharding != "none":
        yield f"the reference's passes are taken to gather weights as the policy's do under {run.sharding}"
    if run.log_probs in ("chunked", "tiled") and run.objective in ("dpo", "kto", "grpo"):
        yield "log-probabilities a tile at a time: predicted after TRL 1.14; earlier ones take Liger's own loss"
    if run.objective == "grpo":
        yield from _generation(run)


def _generation(run: RunSpec) -> Iterator[str]:
    yield (
        f"every completion is taken to reach {run.completion_len} tokens; --lengths are those of prompts, which "
        "without them are taken to fill the rest of the longest row"
    )
    gpu = run.target.gpu
    if run.engine == "elsewhere":
        yield "vLLM is taken to run on another card"
    elif run.engine == "beside" and gpu is None:
        yield f"vLLM takes {run.engine_share:.0%} of the card, which is not named: not counted"
    elif run.engine == "beside" and gpu is not None:
        sleeps = ", but sleeps while the policy is trained" if run.engine_sleeps else ", all the time"
        share = f"{run.engine_share:.0%} of {gpu.name}"
        yield f"vLLM is counted as {share}{sleeps}: what it really takes is not modelled"
