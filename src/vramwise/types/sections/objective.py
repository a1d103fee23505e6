"""The training objective: next tokens, preferences or rewards; the reference model; generation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """`rl` is the trainer's own name for the method, `kind` the kind of loss."""

    rl: str | None
    # "value": rewards from a head with one output, beside the vocabulary's head; "classes": a label for each row;
    # "token_classes": a label for each token
    kind: Literal[
        "tokens", "dpo", "kto", "orpo", "cpo", "reward", "value", "process_reward", "grpo", "classes", "token_classes"
    ] = field(metadata={"flat": "objective"})
    class_labels: int  # of a head for classes; 0: it has none
    target_len: int | None  # rows of a decoder that attends to an encoder; None: as long as the encoder's
    reference: Literal["none", "model", "adapter_off", "adapter_copy"]
    reference_dtype: Literal["bf16", "fp16", "fp32"]
    reference_precomputed: bool  # the reference's log-probabilities are computed before the first step
    reference_whole: bool  # FSDP 2 wraps the reference as one unit and gathers all of it at once
    spare_model: bool  # a second model is loaded that the trainer does not use
    # How log-probabilities are computed from logits; "whole": by a log-softmax over all of them
    log_probs: Literal["copied", "fused", "chunked", "tiled", "whole"]
    chosen_cross_entropy: bool  # the chosen rows of pairs also get a cross-entropy loss
    empties_cache_each_step: bool
    # Generation: rows generated at once and the length of completions; None: no generation
    generation_rows: int | None
    completion_len: int | None
    rows_per_prompt: int
    old_log_probs: bool  # a pass for the policy's own log-probabilities before the update
    engine: Literal["policy", "beside", "elsewhere"]  # who generates; "beside": an engine on the same card
    engine_share: float  # share of the card's memory
    engine_sleeps: bool  # the engine frees its memory while the policy is trained


NEUTRAL = Objective(
    rl=None,
    kind="tokens",
    class_labels=0,
    target_len=None,
    reference="none",
    reference_dtype="bf16",
    reference_precomputed=False,
    reference_whole=False,
    spare_model=False,
    log_probs="fused",
    chosen_cross_entropy=False,
    empties_cache_each_step=False,
    generation_rows=None,
    completion_len=None,
    rows_per_prompt=1,
    old_log_probs=False,
    engine="policy",
    engine_share=0.0,
    engine_sleeps=False,
)
NEUTRAL_WHY = "supervised: next tokens, nothing is generated"
